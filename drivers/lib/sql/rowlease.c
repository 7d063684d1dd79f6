/* rowlease.c - what becomes of a row when it is acquired, renewed, released or waited for. See rowlease.h
 * for the states and for the holes that each step has to close. */
#include "rowlease.h"

#include "note.h"
#include "waiters.h"

#include <string.h>

/* ---- grants ------------------------------------------------------------------------------------ */

static size_t hold_count(const struct rowlease_row *row)
{
    return row->shared ? row->grants_len / ROWLEASE_HOLD_SIZE : row->grants_len > 0;
}

static int64_t hold_expiry(const struct rowlease_row *row, size_t i)
{
    if (!row->shared)
        return row->expires_us;
    const unsigned char *at = row->grants + i * ROWLEASE_HOLD_SIZE + MORTISE_GRANT_ID_SIZE;
    uint64_t value = 0;
    for (size_t k = 0; k < 8; k++)
        value = value << 8 | at[k];
    return (int64_t)value;
}

static void hold_set_expiry(struct rowlease_row *row, size_t i, int64_t expires_us)
{
    unsigned char *at = row->grants + i * ROWLEASE_HOLD_SIZE + MORTISE_GRANT_ID_SIZE;
    for (size_t k = 0; k < 8; k++)
        at[k] = (unsigned char)((uint64_t)expires_us >> (56 - 8 * k));
}

static size_t hold_size(const struct rowlease_row *row)
{
    return row->shared ? ROWLEASE_HOLD_SIZE : MORTISE_GRANT_ID_SIZE;
}

/* The index of a grant, live or not; hold_count() if it is not there. */
static size_t hold_find(const struct rowlease_row *row, const mortise_grant_id *grant)
{
    size_t count = hold_count(row), i = 0;
    while (i < count &&
           memcmp(row->grants + i * hold_size(row), grant->bytes, MORTISE_GRANT_ID_SIZE) != 0)
        i++;
    return i;
}

static void hold_remove(struct rowlease_row *row, size_t i)
{
    size_t size = hold_size(row), after = (i + 1) * size;
    memmove(row->grants + i * size, row->grants + after, row->grants_len - after);
    row->grants_len -= size;
}

/* Drops the holds of a shared row that have run out, and sets its expiry to the last of the others'. */
static void holds_settle(struct rowlease_row *row, int64_t now_us)
{
    if (!row->shared)
        return;
    row->expires_us = 0;
    for (size_t i = hold_count(row); i-- > 0;) {
        int64_t expiry = hold_expiry(row, i);
        if (expiry <= now_us)
            hold_remove(row, i);
        else if (expiry > row->expires_us)
            row->expires_us = expiry;
    }
}

/* Where the op's grant holds: its index; else hold_count(). A token, where the op knows it, must be the
 * row's: except with an owner, whose hold may have been raised to a later joiner's token floor. */
static size_t hold_of_op(const struct rowlease_row *row, const mortise_op *op, int64_t now_us)
{
    size_t count = hold_count(row);
    if (!rowlease_held(row, now_us) || row->shared != (op->owner != NULL))
        return count;
    if (!row->shared && op->token != 0 && op->token != (uint64_t)row->version)
        return count;
    size_t i = hold_find(row, &op->grant);
    return i < count && hold_expiry(row, i) > now_us ? i : count;
}

bool rowlease_held(const struct rowlease_row *row, int64_t now_us)
{
    return row->exists && row->grants_len > 0 && row->expires_us > now_us;
}

/* Nobody holds it, but it is kept for a waiter who is not this one. */
static bool is_reserved(const struct rowlease_row *row, int64_t now_us,
                        const struct rowlease_inbox *inbox)
{
    if (row->grants_len > 0 || row->expires_us <= now_us || row->waiters_len == 0)
        return false;
    return inbox == NULL || !waiter_is_first(row, inbox);
}

/* ---- rows -------------------------------------------------------------------------------------- */

bool rowlease_valid(const struct rowlease_row *row)
{
    if (row->version < 0 || row->expires_us < 0 || row->waiters_len % ROWLEASE_WAITER_SIZE != 0)
        return false;
    if (row->grants_len == 0)
        return true;
    return row->shared ? row->grants_len % ROWLEASE_HOLD_SIZE == 0
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
    to->shared = from->shared;
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

static void set_note(struct rowlease_row *row, const mortise_op *op)
{
    row->note_len = op->note_len < sizeof(row->note) ? op->note_len : sizeof(row->note);
    copy_bytes(row->note, op->note, row->note_len);
}

/* Nobody holds it any more: free, or kept for the first waiter. */
static void set_free(struct rowlease_row *row, struct rowlease_time time)
{
    row->shared = false;
    row->owner_len = row->grants_len = row->note_len = 0;
    row->acquired_us = 0;
    row->expires_us = row->waiters_len > 0 ? time.now_us + time.reserve_us : 0;
}

/* ---- acquire ----------------------------------------------------------------------------------- */

static struct rowlease_answer refused(const char *trouble)
{
    return (struct rowlease_answer){.status = MORTISE_BACKEND, .trouble = trouble};
}

static struct rowlease_answer granted(const struct rowlease_row *row, int64_t from_us,
                                      int64_t expires_us, bool write)
{
    return (struct rowlease_answer){.status = MORTISE_OK,
                                    .write = write,
                                    .token = (uint64_t)row->version,
                                    .from_us = from_us,
                                    .good_for_ms = (expires_us - from_us) / 1000};
}

/* The claim is there already: neither its token nor its end changes. It was made at expiry - ttl, or
 * renewed then; that instant is exact, and before the request that asks now. */
static struct rowlease_answer standing(const struct rowlease_row *row, const mortise_op *op,
                                       int64_t expires_us, int64_t now_us)
{
    int64_t from_us = expires_us - rowlease_ttl_us(op);
    return granted(row, from_us < now_us ? from_us : now_us, expires_us, false);
}

static struct rowlease_answer busy(struct rowlease_row *row, const mortise_op *op, int64_t now_us,
                                   const struct rowlease_inbox *inbox)
{
    struct rowlease_answer answer = {.status = MORTISE_BUSY};
    answer.hint_ms = (row->expires_us - now_us + 999) / 1000;
    if (inbox != NULL && (op->flags & MORTISE_OP_TRY) == 0)
        answer.registered = waiter_add(row, inbox, &answer.write);
    return answer;
}

#define GRACE_US 20000 /* for the first waiter, where nothing is reserved */

/* The name was kept for the first waiter, which did not come in time: it loses its place. */
static void pass_over(struct rowlease_row *row, struct rowlease_time time,
                      const struct rowlease_inbox *inbox, struct rowlease_answer *answer)
{
    int64_t grace_us = time.reserve_us > 0 ? 0 : GRACE_US;
    if (row->grants_len > 0 || row->waiters_len == 0 || time.now_us < row->expires_us + grace_us ||
        (inbox != NULL && waiter_is_first(row, inbox)))
        return;
    answer->passed = true;
    memcpy(answer->passed_over.bytes, row->waiters, ROWLEASE_INBOX_SIZE);
    waiter_remove_at(row, 0);
}

/* A new hold. The inbox of a client that has the name now leaves the list, but not that of one of many
 * owners: another caller of the same client may be waiting under it, and the last holder may be another
 * client, so that nobody would tell it. */
static struct rowlease_answer take(struct rowlease_row *row, const mortise_op *op,
                                   struct rowlease_time time, const struct rowlease_inbox *inbox)
{
    struct rowlease_answer passing = {.passed = false}, answer;
    int64_t version;
    if (!rowlease_next_version(row, op->token_floor, time.wall_us, &version))
        return refused("the tokens of this name are used up");
    if (row->exists)
        pass_over(row, time, inbox, &passing);
    row->exists = true;
    row->version = version;
    row->acquired_us = time.now_us;
    row->expires_us = time.now_us + rowlease_ttl_us(op);
    row->shared = op->owner != NULL;
    row->owner_len = op->owner_len;
    copy_bytes(row->owner, op->owner, op->owner_len);
    row->grants_len = hold_size(row);
    memcpy(row->grants, op->grant.bytes, MORTISE_GRANT_ID_SIZE);
    if (row->shared)
        hold_set_expiry(row, 0, row->expires_us);
    else if (inbox != NULL)
        waiter_remove(row, inbox);
    set_note(row, op);
    answer = granted(row, time.now_us, row->expires_us, true);
    answer.passed = passing.passed;
    answer.passed_over = passing.passed_over;
    return answer;
}

/* One more grant of the owner that holds. The token is the hold's; where the op's floor is above it, the
 * hold is raised to the floor (its other grants keep the smaller token they were given). */
static struct rowlease_answer join(struct rowlease_row *row, const mortise_op *op,
                                   struct rowlease_time time)
{
    if (op->token_floor > INT64_MAX)
        return refused("the tokens of this name are used up");
    size_t i = hold_find(row, &op->grant);
    if (i < hold_count(row))
        hold_remove(row, i); /* ran out before: begins anew */
    holds_settle(row, time.now_us);
    if (row->grants_len + ROWLEASE_HOLD_SIZE > sizeof(row->grants))
        return refused("its owner holds it too many times");
    int64_t expires_us = time.now_us + rowlease_ttl_us(op);
    i = hold_count(row);
    row->grants_len += ROWLEASE_HOLD_SIZE;
    memcpy(row->grants + i * ROWLEASE_HOLD_SIZE, op->grant.bytes, MORTISE_GRANT_ID_SIZE);
    hold_set_expiry(row, i, expires_us);
    if (row->expires_us < expires_us)
        row->expires_us = expires_us;
    if (row->version < (int64_t)op->token_floor)
        row->version = (int64_t)op->token_floor;
    set_note(row, op);
    return granted(row, time.now_us, expires_us, true);
}

static bool same_owner(const struct rowlease_row *row, const mortise_op *op)
{
    return row->shared && op->owner != NULL && row->owner_len == op->owner_len &&
           memcmp(row->owner, op->owner, op->owner_len) == 0;
}

struct rowlease_answer rowlease_acquire(struct rowlease_row *row, const mortise_op *op,
                                        struct rowlease_time time,
                                        const struct rowlease_inbox *inbox)
{
    if (!rowlease_held(row, time.now_us)) {
        if (row->exists && is_reserved(row, time.now_us, inbox))
            return busy(row, op, time.now_us, inbox);
        return take(row, op, time, inbox);
    }
    size_t i = hold_find(row, &op->grant);
    bool mine = op->owner == NULL ? !row->shared : same_owner(row, op);
    if (mine && i < hold_count(row) && hold_expiry(row, i) > time.now_us)
        return standing(row, op, hold_expiry(row, i), time.now_us);
    if (same_owner(row, op))
        return join(row, op, time);
    return busy(row, op, time.now_us, inbox);
}

/* ---- renew and release ------------------------------------------------------------------------- */

/* The op's grant holds nothing. */
static struct rowlease_answer not_mine(const struct rowlease_row *row, int64_t now_us)
{
    bool held = rowlease_held(row, now_us);
    return (struct rowlease_answer){.status = held ? MORTISE_NOTOWNER : MORTISE_LOST};
}

struct rowlease_answer rowlease_renew(struct rowlease_row *row, const mortise_op *op,
                                      struct rowlease_time time)
{
    size_t i = hold_of_op(row, op, time.now_us);
    if (i == hold_count(row))
        return not_mine(row, time.now_us);
    int64_t expires_us = time.now_us + rowlease_ttl_us(op);
    if (expires_us < hold_expiry(row, i))
        expires_us = hold_expiry(row, i);
    if (row->shared)
        hold_set_expiry(row, i, expires_us);
    else
        row->expires_us = expires_us;
    holds_settle(row, time.now_us);
    return granted(row, time.now_us, expires_us, true);
}

/* A claim that had run out when it was released, or is gone: nobody was told when it ended. */
static struct rowlease_answer release_late(const struct rowlease_row *row, int64_t now_us)
{
    struct rowlease_answer answer = not_mine(row, now_us);
    answer.wake =
        answer.status == MORTISE_LOST && row->exists && row->grants_len > 0 && row->waiters_len > 0;
    return answer;
}

struct rowlease_answer rowlease_release(struct rowlease_row *row, const mortise_op *op,
                                        struct rowlease_time time)
{
    struct rowlease_answer answer = {.status = MORTISE_OK, .write = true};
    bool by_token = (op->flags & MORTISE_OP_BREAK) != 0;
    size_t i = by_token ? 0 : hold_of_op(row, op, time.now_us);
    if (by_token && rowlease_held(row, time.now_us) && op->token != (uint64_t)row->version)
        return not_mine(row, time.now_us);
    if (!rowlease_held(row, time.now_us) || i == hold_count(row))
        return release_late(row, time.now_us);

    if (by_token)
        row->grants_len = 0;
    else
        hold_remove(row, i);
    if (row->grants_len > 0)
        holds_settle(row, time.now_us);
    if (row->grants_len == 0) {
        set_free(row, time);
        answer.wake = answer.kept = row->waiters_len > 0;
    }
    return answer;
}

/* ---- waiting ----------------------------------------------------------------------------------- */

struct rowlease_answer rowlease_register(struct rowlease_row *row, struct rowlease_time time,
                                         const struct rowlease_inbox *inbox)
{
    struct rowlease_answer answer = {.status = MORTISE_OK};
    if (row->exists && (rowlease_held(row, time.now_us) || is_reserved(row, time.now_us, inbox)))
        answer.registered = waiter_add(row, inbox, &answer.write);
    return answer;
}

struct rowlease_answer rowlease_forget(struct rowlease_row *row, struct rowlease_time time,
                                       const struct rowlease_inbox *inboxes, size_t count)
{
    struct rowlease_answer answer = {.status = MORTISE_OK};
    bool first = false;
    for (size_t i = 0; i < count; i++) {
        first = first || waiter_is_first(row, &inboxes[i]);
        answer.write = waiter_remove(row, &inboxes[i]) || answer.write;
    }
    if (first && row->grants_len == 0) {
        set_free(row, time);
        answer.wake = answer.kept = row->waiters_len > 0;
    }
    return answer;
}

struct rowlease_answer rowlease_pass_over(struct rowlease_row *row, struct rowlease_time time,
                                          int64_t version)
{
    struct rowlease_answer answer = {.status = MORTISE_OK};
    if (!row->exists || row->version != version || row->grants_len > 0 || row->waiters_len == 0 ||
        row->expires_us > time.now_us)
        return answer;
    waiter_remove_at(row, 0);
    set_free(row, time);
    answer.write = true;
    answer.wake = answer.kept = row->waiters_len > 0;
    return answer;
}

/* ---- looking in -------------------------------------------------------------------------------- */

/* The name of an owner who gave none: the grant id in hex, as mortise_owner() tells the holder. */
static void unnamed_owner(const struct rowlease_row *row, char *text)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < MORTISE_GRANT_ID_SIZE; i++) {
        *text++ = digits[row->grants[i] >> 4];
        *text++ = digits[row->grants[i] & 15];
    }
    *text = '\0';
}

static uint32_t live_holds(const struct rowlease_row *row, int64_t now_us)
{
    uint32_t live = 0;
    for (size_t i = 0; i < hold_count(row); i++)
        live += hold_expiry(row, i) > now_us;
    return live;
}

void rowlease_inspect(const struct rowlease_row *row, int64_t now_us, mortise_info *info)
{
    info->held = rowlease_held(row, now_us);
    info->owner[0] = info->host[0] = info->program[0] = '\0';
    info->pid = info->held_ms = info->remaining_ms = 0;
    info->token = 0;
    info->leases = 0;
    info->waiters = row->exists ? (int32_t)(row->waiters_len / ROWLEASE_WAITER_SIZE) : 0;
    if (!info->held)
        return;
    if (row->shared) {
        copy_bytes(info->owner, row->owner, row->owner_len);
        info->owner[row->owner_len] = '\0';
    } else {
        unnamed_owner(row, info->owner);
    }
    note_read(row->note, row->note_len, info);
    info->held_ms = row->acquired_us < now_us ? (now_us - row->acquired_us) / 1000 : 0;
    info->remaining_ms = (row->expires_us - now_us) / 1000;
    info->token = (uint64_t)row->version;
    info->leases = live_holds(row, now_us);
}
