/* row.c - see row.h. */
#include "row.h"

#include "holders.h"
#include "waiters.h"

#include <string.h>

/* ---- rows -------------------------------------------------------------------------------------- */

bool rowlease_shared(const struct rowlease_row *row)
{
    return row->owned && row->owner_len == ROWLEASE_SHARED_SIZE &&
           memcmp(row->owner, ROWLEASE_SHARED, ROWLEASE_SHARED_SIZE) == 0;
}

bool rowlease_held(const struct rowlease_row *row, int64_t now_us)
{
    return row->exists && row->grants_len > 0 && row->expires_us > now_us &&
           !(rowlease_shared(row) && holders_empty(row));
}

bool rowlease_valid(const struct rowlease_row *row)
{
    if (row->version < 0 || row->expires_us < 0 || row->waiters_len % ROWLEASE_WAITER_SIZE != 0)
        return false;
    if (row->grants_len == 0)
        return true;
    if (rowlease_shared(row))
        return holders_valid(row);
    return row->owned ? row->grants_len % ROWLEASE_HOLD_SIZE == 0
                      : row->grants_len == MORTISE_GRANT_ID_SIZE;
}

static void copy_bytes(void *to, const void *from, size_t len)
{
    if (len > 0)
        memcpy(to, from, len);
}

void rowlease_copy(struct rowlease_row *to, const struct rowlease_row *from)
{
    to->exists = from->exists;
    to->owned = from->owned;
    to->version = from->version;
    to->acquired_us = from->acquired_us;
    to->expires_us = from->expires_us;
    to->owner_len = from->owner_len;
    to->grants_len = from->grants_len;
    to->waiters_len = from->waiters_len;
    to->note_len = from->note_len;
    copy_bytes(to->owner, from->owner, from->owner_len);
    copy_bytes(to->grants, from->grants, from->grants_len);
    copy_bytes(to->waiters, from->waiters, from->waiters_len);
    copy_bytes(to->note, from->note, from->note_len);
}

bool rowlease_next_version(const struct rowlease_row *row, uint64_t token_floor, int64_t wall_us,
                           int64_t *version)
{
    int64_t next = wall_us > 0 ? wall_us : 1;
    if (token_floor > INT64_MAX || (row->exists && row->version == INT64_MAX))
        return false;
    if (next < (int64_t)token_floor)
        next = (int64_t)token_floor;
    if (row->exists && next <= row->version)
        next = row->version + 1;
    *version = next;
    return true;
}

void row_set_note(struct rowlease_row *row, const mortise_op *op)
{
    row->note_len = op->note_len < sizeof(row->note) ? op->note_len : sizeof(row->note);
    copy_bytes(row->note, op->note, row->note_len);
}

void row_forget_note(struct rowlease_row *row, const mortise_op *op)
{
    bool own = row->note_len == op->note_len && row->note_len > 0 &&
               memcmp(row->note, op->note, row->note_len) == 0;
    if (own || (op->flags & MORTISE_OP_DEAD) != 0) /* the witness that releases has its own note */
        row->note_len = 0;
}

void row_set_free(struct rowlease_row *row, struct rowlease_time time)
{
    row->owned = false;
    row->owner_len = row->grants_len = row->note_len = 0;
    row->acquired_us = 0;
    row->expires_us = row->waiters_len > 0 ? time.now_us + time.reserve_us : 0;
}

/* ---- answers ----------------------------------------------------------------------------------- */

struct rowlease_answer answer_refused(const char *trouble)
{
    return (struct rowlease_answer){.status = MORTISE_BACKEND, .trouble = trouble};
}

struct rowlease_answer answer_granted(const struct rowlease_row *row, int64_t from_us,
                                      int64_t expires_us, bool write)
{
    return (struct rowlease_answer){.status = MORTISE_OK,
                                    .write = write,
                                    .token = (uint64_t)row->version,
                                    .from_us = from_us,
                                    .good_for_ms = (expires_us - from_us) / 1000};
}

struct rowlease_answer answer_standing(const struct rowlease_row *row, const mortise_op *op,
                                       int64_t expires_us, int64_t now_us)
{
    int64_t from_us = expires_us - rowlease_ttl_us(op);
    return answer_granted(row, from_us < now_us ? from_us : now_us, expires_us, false);
}

struct rowlease_answer answer_not_mine(const struct rowlease_row *row, int64_t now_us)
{
    bool held = rowlease_held(row, now_us);
    return (struct rowlease_answer){.status = held ? MORTISE_NOTOWNER : MORTISE_LOST};
}

struct rowlease_answer answer_busy(struct rowlease_row *row, const mortise_op *op,
                                   struct rowlease_time time, int64_t until_us,
                                   const struct rowlease_inbox *inbox)
{
    struct rowlease_answer answer = {.status = MORTISE_BUSY};
    answer.hint_ms = (until_us - time.now_us + 999) / 1000;
    if (answer.hint_ms < 1) /* 0 would mean "unknown" */
        answer.hint_ms = 1;
    if (inbox == NULL || (op->flags & MORTISE_OP_TRY) != 0)
        return answer;
    answer.registered = waiter_add(row, inbox, &answer.write);
    if (answer.registered)
        waiter_wants(row, inbox, op->mode == MORTISE_SHARED, &answer.write);
    return answer;
}
