/* seats.c - the ops that wait in the queue, by grant and by the time at which each must ask again. queue.c has the protocol. */
#include "seats.h"

#include <stdlib.h>

struct seat *seat_of(const mortise_op *op)
{
    const struct op_data *data = data_of(op);
    return data->state == OP_SEATED ? data->seat
           : data->state == OP_SENT ? data->request->seat
                                    : NULL;
}

void seat_set_due(struct driver *driver, struct seat *seat, int64_t due_ns)
{
    if (seat->due_ns != MORTISE_NEVER)
        DL_DELETE2(driver->seats, seat, previous, next);
    seat->due_ns = due_ns;
    if (due_ns == MORTISE_NEVER)
        return;
    struct seat *after = driver->seats != NULL ? driver->seats->previous : NULL; /* the last */
    while (after != NULL && after->due_ns > due_ns)
        after = after == driver->seats ? NULL : after->previous;
    if (after == NULL)
        DL_PREPEND2(driver->seats, seat, previous, next);
    else
        DL_APPEND_ELEM2(driver->seats, after, seat, previous, next);
}

struct seat *seat_new(struct driver *driver, mortise_op *op, int64_t sent_ns)
{
    struct seat *seat = calloc(1, sizeof(*seat));
    if (seat == NULL)
        return NULL;
    seat->driver = driver;
    seat->op = op;
    seat->due_ns = MORTISE_NEVER;
    seat->since_ns = driver->in_cluster ? sent_ns : 0;
    seat->placed = (op->flags & MORTISE_OP_REPEAT) != 0 || data_of(op)->placed;
    HASH_ADD_KEYPTR(hh, driver->seated, &op->grant, sizeof(op->grant), seat);
    if (seat->hh.tbl == NULL) {
        free(seat);
        return NULL;
    }
    data_of(op)->placed = false;
    return seat;
}

struct seat *seat_kept(const struct driver *driver, const mortise_op *op)
{
    struct seat *seat = NULL;
    HASH_FIND(hh_kept, driver->kept, op->name, op->name_len, seat);
    return seat;
}

void seat_keep(struct driver *driver, struct seat *seat)
{
    const mortise_op *op = seat->op;
    HASH_ADD_KEYPTR(hh_kept, driver->kept, op->name, op->name_len, seat);
    seat->kept = seat->hh_kept.tbl != NULL;
}

void seat_unkeep(struct driver *driver, struct seat *seat)
{
    if (seat->kept)
        HASH_DELETE(hh_kept, driver->kept, seat);
    seat->kept = false;
}

void seat_leave(struct driver *driver, mortise_op *op)
{
    struct seat *seat = seat_of(op);
    if (seat == NULL)
        return;
    if (data_of(op)->state == OP_SENT)
        data_of(op)->request->seat = NULL;
    else
        op_set(op, OP_NEW, NULL);
    HASH_DELETE(hh, driver->seated, seat);
    seat_unkeep(driver, seat);
    seat_set_due(driver, seat, MORTISE_NEVER);
    free(seat);
}

bool seat_is_placed(const mortise_op *op)
{
    const struct seat *seat = seat_of(op);
    return data_of(op)->placed || (seat != NULL && seat->placed);
}
