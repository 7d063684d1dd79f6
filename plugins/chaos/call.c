/* call.c - a request that is held here, or whose answer is held: found by the core's op, copied with everything
 * that it points to, and kept in a heap by the time at which it goes on. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- the heap ----------------------------------------------------------------------------------- */

static bool before(const struct call *a, const struct call *b)
{
    return a->due_ns < b->due_ns || (a->due_ns == b->due_ns && a->sequence < b->sequence);
}

static void set(struct chaos *chaos, size_t place, struct call *call)
{
    chaos->heap[place - 1] = call;
    call->place = place;
}

/* Puts the call into its place in the heap, beginning at a free place. */
static void sift(struct chaos *chaos, size_t place, struct call *call)
{
    while (place > 1 && before(call, chaos->heap[place / 2 - 1])) {
        set(chaos, place, chaos->heap[place / 2 - 1]);
        place /= 2;
    }
    for (size_t child = 2 * place; child <= chaos->heap_count; child = 2 * place) {
        if (child < chaos->heap_count && before(chaos->heap[child], chaos->heap[child - 1]))
            child++;
        if (!before(chaos->heap[child - 1], call))
            break;
        set(chaos, place, chaos->heap[child - 1]);
        place = child;
    }
    set(chaos, place, call);
}

void call_schedule(struct call *call, int64_t due_ns)
{
    struct chaos *chaos = call->chaos;
    call->due_ns = due_ns;
    call->sequence = ++chaos->sequence;
    sift(chaos, ++chaos->heap_count, call);
}

void call_unschedule(struct call *call)
{
    struct chaos *chaos = call->chaos;
    size_t place = call->place;
    if (place == 0)
        return;
    struct call *last = chaos->heap[--chaos->heap_count];
    if (last != call)
        sift(chaos, place, last);
    call->place = 0;
}

struct call *call_first(const struct chaos *chaos)
{
    return chaos->heap_count > 0 ? chaos->heap[0] : NULL;
}

/* Reserves room for one more call, so that scheduling never fails. */
static bool reserve(struct chaos *chaos)
{
    size_t calls = HASH_COUNT(chaos->calls) + 1;
    for (const struct call *ghost = chaos->ghosts; ghost != NULL; ghost = ghost->next_ghost)
        calls++;
    if (calls <= chaos->heap_capacity)
        return true;
    size_t capacity = calls < 32 ? 64 : calls * 2;
    struct call **heap = reallocarray(chaos->heap, capacity, sizeof(struct call *));
    if (heap == NULL)
        return false;
    chaos->heap = heap;
    chaos->heap_capacity = capacity;
    return true;
}

/* ---- calls -------------------------------------------------------------------------------------- */

static const void *take_copy(char **room, const void *from, size_t size)
{
    void *to = *room;
    if (from == NULL)
        return NULL;
    memcpy(to, from, size);
    *room += size;
    return to;
}

static size_t room_for(const mortise_op *op)
{
    size_t size = op->name_len + op->owner_len + op->note_len + op->buffer_size;
    return op->kind == MORTISE_OP_WRITE ? size + op->record_size : size;
}

static void copy_op(struct call *call, const mortise_op *upper, void (*done)(mortise_op *op))
{
    mortise_op *op = &call->op;
    char *room = (char *)(call + 1);
    *op = *upper;
    op->name = take_copy(&room, upper->name, upper->name_len);
    op->owner = take_copy(&room, upper->owner, upper->owner_len);
    op->note = take_copy(&room, upper->note, upper->note_len);
    if (upper->kind == MORTISE_OP_WRITE)
        op->record = take_copy(&room, upper->record, upper->record_size);
    op->buffer = upper->buffer == NULL ? NULL : room;
    if (upper->info != NULL) {
        call->info = *upper->info;
        op->info = &call->info;
    }
    op->error = NULL;
    op->status = NOT_COMPLETED;
    op->done = done;
    op->issuer = NULL;
    op->next = op->previous = NULL;
    memset(op->driver_data, 0, sizeof(op->driver_data));
    op->core_state = 0;
}

void call_answered(mortise_op *op); /* flow.c */

struct call *call_make(struct chaos *chaos, mortise_op *upper, struct fate fate, bool copied)
{
    struct call *call = reserve(chaos) ? malloc(sizeof(*call) + room_for(upper)) : NULL;
    if (call == NULL)
        return NULL;
    memset(call, 0, sizeof(*call));
    call->chaos = chaos;
    call->upper = upper;
    call->fate = fate;
    call->copied = copied;
    if (copied)
        copy_op(call, upper, call_answered);
    HASH_ADD_PTR(chaos->calls, upper, call);
    if (call->hh.tbl == NULL) {
        free(call);
        return NULL;
    }
    return call;
}

struct call *call_find(struct chaos *chaos, mortise_op *upper)
{
    struct call *call;
    HASH_FIND_PTR(chaos->calls, &upper, call);
    return call;
}

void call_leave_upper(struct call *call)
{
    if (call->upper != NULL)
        HASH_DELETE(hh, call->chaos->calls, call);
    call->upper = NULL;
}

void call_free(struct call *call)
{
    call_unschedule(call);
    call_leave_upper(call);
    free(call);
}

void call_copy_answer(struct call *call)
{
    const mortise_op *op = &call->op;
    mortise_op *upper = call->upper;
    upper->token = op->token;
    upper->record_version = op->record_version;
    upper->record_size = op->record_size;
    upper->from_ns = op->from_ns;
    upper->good_for_ms = op->good_for_ms;
    upper->hint_ms = op->hint_ms;
    upper->sure = op->sure;
    if (upper->buffer != NULL)
        memcpy(upper->buffer, op->buffer, op->buffer_size);
    if (upper->info != NULL)
        memcpy(upper->info, &call->info,
               upper->info->size < sizeof(call->info) ? upper->info->size : sizeof(call->info));
}
