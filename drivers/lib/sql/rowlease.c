/* rowlease.c - how a row changes when its name is acquired, renewed, released or waited for. See rowlease.h for the
 * states, and for the holes that each step must close. */
#include "rowlease.h"

#include "holds.h"
#include "readers.h"
#include "row.h"
#include "waiters.h"

#include <string.h>

/* ---- whose it is --------------------------------------------------------------------------------- */

/* The index of the op's grant if it holds, else hold_count(). If the op knows its token, that must be the row's. With
 * an owner it need not be, because a later joiner's token floor may have raised the hold's token. */
static size_t hold_of_op(const struct rowlease_row *row, const mortise_op *op, int64_t now_us)
{
    size_t count = hold_count(row);
    if (!rowlease_held(row, now_us) || row->owned != (op->owner != NULL) || rowlease_shared(row))
        return count;
    if (!row->owned && op->token != 0 && op->token != (uint64_t)row->version)
        return count;
    size_t i = hold_find(row, &op->grant);
    return i < count && hold_expiry(row, i) > now_us ? i : count;
}

/* Whether nobody holds the name, but it is reserved for a waiter other than this one. */
static bool is_reserved(const struct rowlease_row *row, int64_t now_us,
                        const struct rowlease_inbox *inbox)
{
    if (row->grants_len > 0 || row->expires_us <= now_us || row->waiters_len == 0)
        return false;
    return inbox == NULL || !waiter_is_first(row, inbox);
}

/* ---- acquire ----------------------------------------------------------------------------------- */

#define GRACE_US 20000 /* the first waiter's time if `reserve` is 0 */

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

/* The row gets the op's claim as its only one. The inbox of a client that now has the name leaves the list. But it stays
 * if the op has an owner: another caller of the same client may be waiting under that inbox, and the last holder may be
 * another client, so nobody would notify that caller. */
static void begin_hold(struct rowlease_row *row, const mortise_op *op,
                       const struct rowlease_inbox *inbox)
{
    row->owned = op->owner != NULL;
    row->owner_len = op->owner_len;
    if (op->owner_len > 0)
        memcpy(row->owner, op->owner, op->owner_len);
    row->grants_len = hold_size(row);
    memcpy(row->grants, op->grant.bytes, MORTISE_GRANT_ID_SIZE);
    if (row->owned)
        hold_set_expiry(row, 0, row->expires_us);
    else if (inbox != NULL)
        waiter_remove(row, inbox);
    row_set_note(row, op);
}

/* A new hold. */
static struct rowlease_answer take(struct rowlease_row *row, const mortise_op *op,
                                   struct rowlease_time time, const struct rowlease_inbox *inbox)
{
    struct rowlease_answer passing = {.passed = false}, answer;
    int64_t version;
    if (!rowlease_next_version(row, op->token_floor, time.wall_us, &version))
        return answer_refused("the tokens of this name are used up");
    if (row->exists)
        pass_over(row, time, inbox, &passing);
    row->exists = true;
    row->version = version;
    row->acquired_us = time.now_us;
    row->expires_us = time.now_us + rowlease_ttl_us(op);
    if (op->mode == MORTISE_SHARED) {
        if (inbox != NULL)
            waiter_remove(row, inbox);
        readers_begin(row, op, time);
    } else {
        begin_hold(row, op, inbox);
    }
    answer = answer_granted(row, time.now_us, row->expires_us, true);
    answer.left = op->owner == NULL;
    if (op->mode == MORTISE_SHARED)
        readers_wake(row, time, &answer);
    answer.passed = passing.passed;
    answer.passed_over = passing.passed_over;
    return answer;
}

/* One more grant of the owner that holds. Its token is the hold's. If the op's floor is larger, the hold's token is
 * raised to the floor; the other grants keep the smaller token that they were given. */
static struct rowlease_answer join(struct rowlease_row *row, const mortise_op *op,
                                   struct rowlease_time time)
{
    if (op->token_floor > INT64_MAX)
        return answer_refused("the tokens of this name are used up");
    size_t i = hold_find(row, &op->grant);
    if (i < hold_count(row))
        hold_remove(row, i); /* expired before: begins anew */
    holds_settle(row, time.now_us);
    if (row->grants_len + ROWLEASE_HOLD_SIZE > sizeof(row->grants))
        return answer_refused("its owner holds it too many times");
    int64_t expires_us = time.now_us + rowlease_ttl_us(op);
    i = hold_count(row);
    row->grants_len += ROWLEASE_HOLD_SIZE;
    memcpy(row->grants + i * ROWLEASE_HOLD_SIZE, op->grant.bytes, MORTISE_GRANT_ID_SIZE);
    hold_set_expiry(row, i, expires_us);
    if (row->expires_us < expires_us)
        row->expires_us = expires_us;
    if (row->version < (int64_t)op->token_floor)
        row->version = (int64_t)op->token_floor;
    row_set_note(row, op);
    return answer_granted(row, time.now_us, expires_us, true);
}

static bool same_owner(const struct rowlease_row *row, const mortise_op *op)
{
    return row->owned && op->owner != NULL && row->owner_len == op->owner_len &&
           memcmp(row->owner, op->owner, op->owner_len) == 0;
}

struct rowlease_answer rowlease_acquire(struct rowlease_row *row, const mortise_op *op,
                                        struct rowlease_time time,
                                        const struct rowlease_inbox *inbox)
{
    if (!rowlease_held(row, time.now_us)) {
        if (row->exists && op->mode == MORTISE_SHARED && readers_barred(row, time.now_us))
            return readers_wait(row, op, time, inbox);
        if (row->exists && is_reserved(row, time.now_us, inbox))
            return answer_busy(row, op, time, row->expires_us, inbox);
        return take(row, op, time, inbox);
    }
    if (rowlease_shared(row))
        return op->mode == MORTISE_SHARED ? readers_admit(row, op, time, inbox)
                                          : readers_bar(row, op, time, inbox);
    if (op->mode == MORTISE_SHARED)
        return answer_busy(row, op, time, row->expires_us, inbox);
    size_t i = hold_find(row, &op->grant);
    bool mine = op->owner == NULL ? !row->owned : same_owner(row, op);
    if (mine && i < hold_count(row) && hold_expiry(row, i) > time.now_us)
        return answer_standing(row, op, hold_expiry(row, i), time.now_us);
    if (same_owner(row, op))
        return join(row, op, time);
    return answer_busy(row, op, time, row->expires_us, inbox);
}

/* ---- renew and release ------------------------------------------------------------------------- */

/* Whether the op's claim is a shared one. The op says so; after a downgrade that may have been executed, and for a break,
 * the row says so. */
static bool is_shared_claim(const struct rowlease_row *row, const mortise_op *op)
{
    return op->mode == MORTISE_SHARED ||
           ((op->flags & (MORTISE_OP_DOWNGRADE | MORTISE_OP_BREAK)) != 0 && rowlease_shared(row));
}

struct rowlease_answer rowlease_renew(struct rowlease_row *row, const mortise_op *op,
                                      struct rowlease_time time)
{
    if (is_shared_claim(row, op))
        return rowlease_held(row, time.now_us) && rowlease_shared(row)
                   ? readers_renew(row, op, time)
                   : answer_not_mine(row, time.now_us);
    size_t i = hold_of_op(row, op, time.now_us);
    if (i == hold_count(row))
        return answer_not_mine(row, time.now_us);
    int64_t expires_us = time.now_us + rowlease_ttl_us(op);
    if (expires_us < hold_expiry(row, i))
        expires_us = hold_expiry(row, i);
    if ((op->flags & MORTISE_OP_DOWNGRADE) != 0 && !row->owned)
        return readers_downgrade(row, op, time, expires_us);
    if (!row->owned)
        row->expires_us = expires_us;
    else {
        hold_set_expiry(row, i, expires_us);
        row_set_note(row, op); /* the holder that the note names may hold no longer */
    }
    holds_settle(row, time.now_us);
    return answer_granted(row, time.now_us, expires_us, true);
}

/* The claim had expired when it was released, or is gone. No waiter was notified when it ended. */
static struct rowlease_answer release_late(const struct rowlease_row *row, int64_t now_us)
{
    struct rowlease_answer answer = answer_not_mine(row, now_us);
    answer.wake =
        answer.status == MORTISE_LOST && row->exists && row->grants_len > 0 && row->waiters_len > 0;
    return answer;
}

struct rowlease_answer rowlease_release(struct rowlease_row *row, const mortise_op *op,
                                        struct rowlease_time time)
{
    struct rowlease_answer answer = {.status = MORTISE_OK, .write = true};
    if (is_shared_claim(row, op))
        return rowlease_held(row, time.now_us) && rowlease_shared(row)
                   ? readers_release(row, op, time)
                   : release_late(row, time.now_us);
    bool by_token = (op->flags & MORTISE_OP_BREAK) != 0;
    size_t i = by_token ? 0 : hold_of_op(row, op, time.now_us);
    if (by_token && rowlease_held(row, time.now_us) && op->token != (uint64_t)row->version)
        return answer_not_mine(row, time.now_us);
    if (!rowlease_held(row, time.now_us) || i == hold_count(row))
        return release_late(row, time.now_us);

    if (by_token)
        row->grants_len = 0;
    else
        hold_remove(row, i);
    if (row->grants_len > 0) {
        holds_settle(row, time.now_us);
        row_forget_note(row, op);
    }
    if (row->grants_len == 0) {
        row_set_free(row, time);
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
    size_t shared = waiters_shared(row);
    for (size_t i = 0; i < count; i++) {
        first = first || waiter_is_first(row, &inboxes[i]);
        answer.write = waiter_remove(row, &inboxes[i]) || answer.write;
    }
    if (first && row->grants_len == 0) {
        row_set_free(row, time);
        answer.wake = answer.kept = row->waiters_len > 0;
    }
    if (waiters_shared(row) < shared && rowlease_shared(row) && rowlease_held(row, time.now_us))
        readers_wake(row, time, &answer); /* waiters that left may have been the woken ones */
    return answer;
}

struct rowlease_answer rowlease_pass_over(struct rowlease_row *row, struct rowlease_time time,
                                          int64_t version)
{
    struct rowlease_answer answer = {.status = MORTISE_OK};
    if (rowlease_shared(row) && rowlease_held(row, time.now_us))
        return readers_pass_over(row, time, version);
    if (!row->exists || row->version != version || row->grants_len > 0 || row->waiters_len == 0 ||
        row->expires_us > time.now_us)
        return answer;
    waiter_remove_at(row, 0);
    row_set_free(row, time);
    answer.write = true;
    answer.wake = answer.kept = row->waiters_len > 0;
    return answer;
}
