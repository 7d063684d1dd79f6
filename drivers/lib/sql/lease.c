/* lease.c - acquire, renew and release. The common case is one statement (TAKE, EXTEND, GIVE), which does in SQL what
 * rowlease.c does in C. If that statement touches no row, or the dialect has no such statement, the row is read, and
 * rowlease.c says how it changes.
 *
 * DEADLINES. A claim that one statement makes ends, by the server's clock, a ttl after that statement read the clock. The
 * statement was sent before that, so for its holder the claim counts from the sending. A claim made by READ and WRITE ends a
 * ttl after the server's clock in the result of the READ, so it counts from the sending of the READ. */
#include "lease.h"

#include "request.h"
#include "waiting.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* How soon a waiter that cannot be notified polls ("looks"). The first looks come sooner, because most locks are held for a
 * moment. */
#define POLL_MS 100
#define POLL_STEPS 3 /* doublings of POLL_MS */
#define POLL_LOOKS 4 /* looks between two doublings */
#define SOON_MS 20   /* doubled after each of the first looks */
#define SOON_LOOKS 3
#define SOON_MOVES 32                    /* about five seconds */
#define HASTE_MS (POLL_MS << POLL_STEPS) /* the shortest of the longest pauses */
#define LOOKS_NEAR 8                     /* places that a name may have */
#define GONE_MS 5000 /* a look that is so late will not come: most callers have given up */

static bool waits(const mortise_op *op)
{
    return (op->flags & MORTISE_OP_TRY) == 0;
}

/* ---- waiters that cannot be notified --------------------------------------------------------------- */

static uint64_t hash_of(const mortise_op *op)
{
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (size_t i = 0; i < op->name_len; i++)
        hash = (hash ^ (unsigned char)op->name[i]) * UINT64_C(1099511628211);
    return hash;
}

static uint32_t mark_of(uint64_t hash)
{
    return (uint32_t)(hash >> 32) | 1;
}

static struct sql_looks *looks_place(struct sql_locks *locks, uint64_t hash, size_t i)
{
    return &locks->looks[(hash + i) % SQL_LOOKS_MAX];
}

/* NULL: nobody waits for that name, or the name has no place in the table. */
static struct sql_looks *looks_find(struct sql_locks *locks, const mortise_op *op)
{
    uint64_t hash = hash_of(op);
    for (size_t i = 0; i < LOOKS_NEAR; i++)
        if (looks_place(locks, hash, i)->mark == mark_of(hash))
            return looks_place(locks, hash, i);
    return NULL;
}

/* Finds or makes the name's place. A name that callers wait for keeps its place; otherwise two names would push each other out,
 * and both would begin anew all the time. NULL: no place is left. */
static struct sql_looks *looks_make(struct sql_locks *locks, const mortise_op *op)
{
    struct sql_looks *looks = looks_find(locks, op);
    uint64_t hash = hash_of(op);
    int64_t gone_ns = locks->host->now(locks->host) - GONE_MS * SQL_NS_PER_MS;
    if (looks != NULL)
        return looks;
    for (size_t i = 0; i < LOOKS_NEAR; i++) {
        looks = looks_place(locks, hash, i);
        if (looks->count == 0 || looks->due_ns <= gone_ns) {
            *looks = (struct sql_looks){.mark = mark_of(hash)};
            return looks;
        }
    }
    return NULL;
}

/* Whether a caller looked in vain lately. Then READ comes first, because it takes one statement instead of two while the
 * name is held. */
static bool expects_busy(struct sql_locks *locks, const mortise_op *op)
{
    if (!locks->looking || op->kind != MORTISE_OP_ACQUIRE || !waits(op))
        return false;
    const struct sql_looks *looks = looks_find(locks, op);
    return looks != NULL && looks->count > 0 &&
           locks->host->now(locks->host) - looks->last_ns <= 2 * ROWLEASE_LOOK_MS * SQL_NS_PER_MS;
}

/* Waiters that cannot be notified look again by themselves: soon at first, then less and less often, because a thousand of them
 * load the server. After a pause of some seconds, or a grant, the pauses begin anew. If a look finds that the name has changed
 * hands (a new version; a renewal makes none), the pause is at most 200 ms. Such a name is free for moments only, and a caller
 * that looks every 1.6 s would starve beside those that have just had it, which look soon. If the crowd is so large that each
 * caller waits for long, the pause is at most 400 ms. For a name without a place it is always that. (If the dialect never
 * notifies, the core asks after 125 to 250 ms at the latest. locks_look_due() keeps to the longer pause nevertheless, but not
 * for a name without a place.) */
static int64_t next_look_ms(struct sql_locks *locks, const mortise_op *op, int64_t version)
{
    struct sql_looks *looks = looks_make(locks, op);
    int64_t now = locks->host->now(locks->host);
    if (looks == NULL)
        return locks_jitter(locks, 4 * POLL_MS);
    if (now - looks->last_ns > 2 * ROWLEASE_LOOK_MS * SQL_NS_PER_MS)
        looks->count = looks->moves = 0;
    if (version != looks->version) {
        unsigned most = looks->moves++ < SOON_MOVES ? SOON_LOOKS : SOON_LOOKS + POLL_LOOKS;
        looks->count = looks->count < most ? looks->count : most;
        looks->version = version;
    }
    unsigned count = looks->count++;
    looks->last_ns = now;
    locks->looking = true;
    if (count < SOON_LOOKS)
        return locks_jitter(locks, (int64_t)(2 * SOON_MS) << count);
    unsigned steps = (count - SOON_LOOKS) / POLL_LOOKS;
    return locks_jitter(locks, (int64_t)(2 * POLL_MS) << (steps < POLL_STEPS ? steps : POLL_STEPS));
}

bool locks_looks_again(const struct sql_request *request)
{
    return request->kind == MORTISE_OP_ACQUIRE && request->op != NULL &&
           request->step == SQL_READ && request->swaps == 0 && request->sent_ns == 0 &&
           (request->op->flags & MORTISE_OP_AGAIN) != 0;
}

int64_t locks_look_due(const struct sql_request *request)
{
    /* a new caller does not wait because of what earlier callers found: the name may be free by now */
    if (!locks_looks_again(request) || !expects_busy(request->locks, request->op))
        return 0;
    return looks_find(request->locks, request->op)->due_ns;
}

static void look_anew(struct sql_locks *locks, const mortise_op *op)
{
    struct sql_looks *looks = locks->looking ? looks_find(locks, op) : NULL;
    if (looks != NULL)
        looks->count = looks->moves = 0;
}

/* This client has just freed the name. If its own next look is far away, because the name was held for long, the look comes
 * sooner: otherwise this client would sleep although it knows that the name is free. But it must not come so soon that other
 * clients, which look as seldom, nearly always find the name taken again. A look that is due soon anyway is left alone. A look
 * that pauses already was planned with what was known when its pause began: another caller may have been granted the name
 * meanwhile, and then the place says nothing about that look. */
static void look_soon(struct sql_locks *locks, const mortise_op *op)
{
    if (!locks->looking)
        return;
    struct sql_looks *looks = looks_find(locks, op);
    int64_t now = locks->host->now(locks->host);
    int64_t far_ns = now + HASTE_MS * SQL_NS_PER_MS;
    int64_t due_ns = now + locks_jitter(locks, HASTE_MS * SQL_NS_PER_MS);
    if (looks != NULL && looks->due_ns > far_ns)
        looks->due_ns = due_ns;
    if (locks->dialect->hasten != NULL)
        locks->dialect->hasten(locks, op->name, op->name_len, far_ns, due_ns);
}

/* ---- acquire ----------------------------------------------------------------------------------- */

/* If the list of waiters may contain this client, or is to contain it, the name remembers that. */
static bool know_name(struct sql_request *request, bool make)
{
    struct sql_locks *locks = request->locks;
    const mortise_op *op = request->op;
    if (request->name == NULL) {
        request->name = make ? name_make(locks, op->name, op->name_len)
                             : name_find(locks, op->name, op->name_len);
        if (request->name != NULL)
            request->name->references++;
    }
    return request->name != NULL;
}

static const struct rowlease_inbox *inbox_of(struct sql_request *request)
{
    struct sql_locks *locks = request->locks;
    bool known = know_name(request, waits(request->op) && locks->hears);
    return known && (locks->hears || name_is_listed(request->name)) ? &locks->inbox : NULL;
}

/* The name is BUSY, and this client has to wait. `had`: it had an inbox; another client may have taken it off the list,
 * because that inbox is gone. True: there is a new inbox. */
static bool gets_inbox(struct sql_request *request, bool had)
{
    struct sql_locks *locks = request->locks;
    const struct rowlease_answer *answer = &request->answer;
    bool dropped = had && answer->registered && answer->write && name_is_listed(request->name);
    if (had && !dropped)
        return false;
    return locks->dialect->hear(locks, dropped) && locks->hears && know_name(request, true);
}

/* The row's holders gave another number of permits: says which number, and names a holder. */
static void explain_permits(struct sql_request *request, int64_t now_us)
{
    struct sql_locks *locks = request->locks;
    mortise_info info = {.size = sizeof(info)};
    char quoted[SQL_QUOTED_SIZE];
    rowlease_inspect(&locks->row, now_us, &info);
    locks->host->quote(info.host, strlen(info.host), quoted, sizeof(quoted));
    snprintf(request->trouble, sizeof(request->trouble),
             "permits = %" PRIu32 " was asked for, but %.100s (pid %" PRId64
             ") holds it with permits = %" PRIu32 ": all callers of a name must give the same",
             request->op->permits, quoted, info.pid, info.permits);
}

static enum sql_next decide_acquire(struct sql_request *request)
{
    struct sql_locks *locks = request->locks;
    const mortise_op *op = request->op;
    struct rowlease_time time;
    if (!request_was_read(request, &time))
        return SQL_OVER;
    const struct rowlease_inbox *inbox = inbox_of(request);
    request->trouble[0] = '\0';
    request->answer = rowlease_acquire(&locks->next, op, time, inbox);
    if (request->answer.status == MORTISE_INVALID)
        explain_permits(request, time.now_us);
    bool busy = request->answer.status == MORTISE_BUSY;
    if (busy && waits(op) && gets_inbox(request, inbox != NULL)) {
        rowlease_copy(&locks->next, &locks->row);
        request->answer = rowlease_acquire(&locks->next, op, time, &locks->inbox);
    }
    if (request->answer.trouble != NULL)
        return SQL_OVER;
    bool granted = request->answer.status == MORTISE_OK;
    if (busy && op->info != NULL)
        request_inspect(locks, &locks->next, time.now_us, op->name, op->name_len, op->info);
    request->from_ns = request->read_ns - (time.now_us - request->answer.from_us) * 1000;
    request->durable = granted;
    request_take_waiters(request, locks->next.waiters, locks->next.waiters_len);
    if (request->answer.write || (granted && !locks->dialect->visible_is_safe))
        return request_write(request);
    return SQL_OVER;
}

static enum sql_next acquire_step(struct sql_request *request)
{
    const struct sql_result *result = &request->locks->result;
    if (request->step == SQL_TAKE) {
        if (!result->touched)
            return request_again(request, SQL_READ);
        request->from_ns = request->sent_ns;
        request->answer =
            (struct rowlease_answer){.status = MORTISE_OK,
                                     .write = true,
                                     .left = true,
                                     .token = (uint64_t)result->version,
                                     .good_for_ms = request->op != NULL ? request->op->ttl_ms : 0};
        return SQL_OVER;
    }
    if (request->step == SQL_READ)
        return decide_acquire(request);
    /* The caller may have been enlisted behind a claim other than the one that was read and reported to it. Then it looks
     * again at once. (After a BAR it looks soon anyway.) */
    if (request->step == SQL_APPEND && result->touched)
        request->answer.hint_ms = result->version == request->version ? result->hint_ms : 1;
    return request_written(request);
}

static void tell_busy(struct sql_request *request)
{
    struct sql_locks *locks = request->locks;
    mortise_op *op = request->op;
    bool listed = request->answer.registered && request->name != NULL;
    if (listed)
        waiting_registered(locks, request->name);
    bool told = listed && locks->hears; /* it will be notified; a place in the list is not enough */
    if (op != NULL) {
        int64_t most_ms = !waits(op) ? INT64_MAX
                          : told     ? ROWLEASE_LOOK_MS
                                     : next_look_ms(locks, op, request->version);
        op->hint_ms = request->answer.hint_ms < most_ms ? request->answer.hint_ms : most_ms;
        struct sql_looks *looks = waits(op) && !told ? looks_find(locks, op) : NULL;
        if (looks != NULL) /* the holder's claim may end earlier */
            looks->due_ns = locks->host->now(locks->host) + op->hint_ms * SQL_NS_PER_MS;
    }
    request_done(request, MORTISE_BUSY);
}

/* An existing claim counts from when it was made, because the repeated acquire did not extend it. */
static int64_t claim_counts_from(const struct sql_request *request)
{
    const mortise_op *op = request->op;
    bool stood = !request->answer.write && op->first_sent_ns != 0;
    return stood && op->first_sent_ns < request->from_ns ? op->first_sent_ns : request->from_ns;
}

static void tell_acquired(struct sql_request *request)
{
    struct sql_locks *locks = request->locks;
    mortise_op *op = request->op;
    if (request->answer.left && request->name != NULL)
        waiting_left(request->name);
    waiting_wake(request);
    if (op == NULL) {
        request_done(request, MORTISE_OK); /* the core releases what it has canceled */
        return;
    }
    look_anew(locks, op);
    op->token = request->answer.token;
    op->from_ns = claim_counts_from(request);
    op->good_for_ms = request->answer.good_for_ms;
    if (op->first_sent_ns == 0)
        op->first_sent_ns = op->from_ns;
    request_done(request, MORTISE_OK);
}

/* ---- renew, release ---------------------------------------------------------------------------- */

static enum sql_next decide_renewal(struct sql_request *request)
{
    struct sql_locks *locks = request->locks;
    struct rowlease_time time;
    if (!request_was_read(request, &time))
        return SQL_OVER;
    request->answer = rowlease_renew(&locks->next, request->op, time);
    request->from_ns = request->read_ns;
    request->durable = true;
    request_take_waiters(request, locks->next.waiters, locks->next.waiters_len);
    return request->answer.write ? request_write(request) : SQL_OVER;
}

static enum sql_next renewal_step(struct sql_request *request)
{
    if (request->step == SQL_READ)
        return decide_renewal(request);
    if (request->step != SQL_EXTEND)
        return request_written(request);
    if (!request->locks->result.touched)
        return request_again(request, SQL_READ);
    request->from_ns = request->sent_ns;
    request->answer = (struct rowlease_answer){
        .status = MORTISE_OK, .good_for_ms = request->op != NULL ? request->op->ttl_ms : 0};
    return SQL_OVER;
}

static void tell_renewed(struct sql_request *request)
{
    mortise_op *op = request->op;
    if (op != NULL && request->answer.status == MORTISE_OK) {
        op->from_ns = request->from_ns;
        op->good_for_ms = request->answer.good_for_ms;
    }
    waiting_wake(request);
    if (op != NULL && (op->flags & MORTISE_OP_DOWNGRADE) != 0) {
        waiting_released(request);
        look_soon(request->locks, op);
    }
    request_done(request, request->answer.status);
}

static enum sql_next decide_release(struct sql_request *request)
{
    struct sql_locks *locks = request->locks;
    struct rowlease_time time;
    if (!request_was_read(request, &time))
        return SQL_OVER;
    request->answer = rowlease_release(&locks->next, request->op, time);
    request_take_waiters(request, locks->next.waiters, locks->next.waiters_len);
    return request->answer.write ? request_write(request) : SQL_OVER;
}

static enum sql_next release_step(struct sql_request *request)
{
    const struct sql_result *result = &request->locks->result;
    if (request->step == SQL_READ)
        return decide_release(request);
    if (request->step != SQL_GIVE)
        return request_written(request);
    if (!result->touched)
        return request_again(request, SQL_READ);
    request->answer = (struct rowlease_answer){.status = MORTISE_OK};
    request_take_waiters(request, result->waiters, result->waiters_len);
    request->answer.wake = request->answer.kept = request->waiter_count > 0;
    return SQL_OVER;
}

static void tell_released(struct sql_request *request)
{
    waiting_wake(request);
    waiting_released(request);
    if (request->op != NULL) {
        look_soon(request->locks, request->op);
        look_anew(request->locks, request->op);
    }
    request_done(request, request->answer.status);
}

/* ---- all --------------------------------------------------------------------------------------- */

void lease_begin(struct sql_request *request)
{
    const mortise_op *op = request->op;
    bool quick =
        request->locks->dialect->quick && op->owner == NULL && op->mode == MORTISE_EXCLUSIVE &&
        (op->flags & (MORTISE_OP_BREAK | MORTISE_OP_DOWNGRADE)) == 0 && op->token <= INT64_MAX &&
        op->token_floor <= INT64_MAX && !expects_busy(request->locks, op);
    request->version = (int64_t)op->token; /* GIVE: the version of the claim that ends */
    if (op->kind == MORTISE_OP_ACQUIRE)
        request->first = know_name(request, false) && name_is_listed(request->name);
    request->step = !quick                           ? SQL_READ
                    : op->kind == MORTISE_OP_ACQUIRE ? SQL_TAKE
                    : op->kind == MORTISE_OP_RENEW   ? SQL_EXTEND
                                                     : SQL_GIVE;
}

void lease_abandon(struct sql_request *request)
{
    know_name(request, true); /* out of memory: the waiters ask again by themselves */
}

enum sql_next lease_step(struct sql_request *request)
{
    bool written = request->step != SQL_READ && request->locks->result.touched;
    if (request->op == NULL && !written) { /* its caller has gone: no next step */
        request->answer = (struct rowlease_answer){.status = MORTISE_CANCELED};
        return SQL_OVER;
    }
    if (request->kind == MORTISE_OP_ACQUIRE)
        return acquire_step(request);
    return request->kind == MORTISE_OP_RENEW ? renewal_step(request) : release_step(request);
}

void lease_tell(struct sql_request *request)
{
    if (request->answer.trouble != NULL)
        request_refused(request);
    else if (request->kind == MORTISE_OP_RENEW)
        tell_renewed(request);
    else if (request->kind == MORTISE_OP_RELEASE)
        tell_released(request);
    else if (request->answer.status == MORTISE_OK)
        tell_acquired(request);
    else
        tell_busy(request);
}
