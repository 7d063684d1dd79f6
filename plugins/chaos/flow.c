/* flow.c - requests down, answers up: what internal.h says, step by step. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

void call_answered(mortise_op *op);

static int64_t now(const struct chaos *chaos)
{
    return chaos->host->now(chaos->host);
}

static void below_start(struct chaos *chaos, mortise_op **ops, size_t n)
{
    if (n > 0)
        chaos->below->module->start(chaos->below->ctx, ops, n);
}

static const char *kind_word(const mortise_op *op)
{
    static const char *const words[] = {"",     "acquire", "renew", "release", "inspect",
                                        "list", "read",    "write", "ping"};
    size_t kind = (size_t)op->kind;
    return kind < sizeof(words) / sizeof(words[0]) ? words[kind] : "request";
}

static void tell(struct chaos *chaos, const mortise_op *op, const char *what)
{
    char name[96];
    if (chaos->values[OPTION_TELL].number != 0)
        chaos->host->log(chaos->host, 6, "%s %s: %s", kind_word(op),
                         chaos->host->quote(op->name, op->name_len, name, sizeof(name)), what);
}

/* ---- who watches -------------------------------------------------------------------------------- */

static void below_watch(struct chaos *chaos, const char *name, size_t name_len)
{
    if (chaos->below->module->watch != NULL)
        chaos->below->module->watch(chaos->below->ctx, name, name_len);
}

static void below_unwatch(struct chaos *chaos, const char *name, size_t name_len)
{
    if (chaos->below->module->unwatch != NULL)
        chaos->below->module->unwatch(chaos->below->ctx, name, name_len);
}

static struct watched *find_watched(struct chaos *chaos, const char *name, size_t name_len)
{
    struct watched *watched;
    HASH_FIND(hh, chaos->watched, name, name_len, watched);
    return watched;
}

static void forget_watched(struct chaos *chaos, struct watched *watched)
{
    HASH_DELETE(hh, chaos->watched, watched);
    free(watched);
}

void flow_watch(struct chaos *chaos, const char *name, size_t name_len)
{
    struct watched *watched = malloc(sizeof(*watched) + name_len);
    if (watched != NULL) {
        watched->name_len = name_len;
        memcpy(watched->name, name, name_len);
        HASH_ADD_KEYPTR(hh, chaos->watched, watched->name, name_len, watched);
    }
    if (watched == NULL || watched->hh.tbl == NULL) {
        chaos->watched_unsure = true;
        free(watched);
    }
    below_watch(chaos, name, name_len);
}

void flow_unwatch(struct chaos *chaos, const char *name, size_t name_len)
{
    struct watched *watched = find_watched(chaos, name, name_len);
    if (watched != NULL)
        forget_watched(chaos, watched);
    below_unwatch(chaos, name, name_len);
}

/* The core has canceled this acquire. If its BUSY put the caller on the list of waiters below, takes the caller off it. */
static void leave_waiters(struct chaos *chaos, const struct call *call)
{
    const mortise_op *op = &call->op;
    if (op->kind != MORTISE_OP_ACQUIRE || op->status != MORTISE_BUSY ||
        (op->flags & MORTISE_OP_TRY) != 0 || chaos->watched_unsure ||
        find_watched(chaos, op->name, op->name_len) != NULL)
        return;
    below_watch(chaos, op->name, op->name_len);
    below_unwatch(chaos, op->name, op->name_len);
}

/* ---- answers ------------------------------------------------------------------------------------ */

static void fail(struct chaos *chaos, mortise_op *op, mortise_status status, const char *what)
{
    char name[96];
    tell(chaos, op, what);
    chaos->host->fail(chaos->host, op, status, 0, true, "chaos: %s %s: %s", kind_word(op),
                      chaos->host->quote(op->name, op->name_len, name, sizeof(name)), what);
}

/* Fails an op that was sent, or may have been sent. If it was not sent before, its first sending is now. */
static void fail_unsure(struct chaos *chaos, mortise_op *op, const char *what)
{
    if (op->first_sent_ns == 0)
        op->first_sent_ns = now(chaos);
    fail(chaos, op, MORTISE_INDETERMINATE, what);
}

static bool haunted(const struct chaos *chaos, const mortise_grant_id *grant)
{
    const struct call *ghost;
    DL_FOREACH2(chaos->ghosts, ghost, next_ghost)
    if (ghost->op.kind == MORTISE_OP_ACQUIRE &&
        memcmp(&ghost->op.grant, grant, sizeof(*grant)) == 0)
        return true;
    return false;
}

static void give_answer(struct call *call)
{
    struct chaos *chaos = call->chaos;
    mortise_op *upper = call->upper;
    mortise_status status = call->op.status;
    upper->first_sent_ns = call->op.first_sent_ns;
    if (call->canceled)
        leave_waiters(chaos, call);
    if (call->fate.fault == FAULT_LOSE_REPLY && status != MORTISE_CANCELED) {
        call_leave_upper(call);
        fail_unsure(chaos, upper, "the reply was lost");
    } else {
        call_copy_answer(call);
        if (call->haunted)
            upper->sure = false;
        call_leave_upper(call);
        if (call->error.message[0] != '\0')
            chaos->host->fail(chaos->host, upper, status, call->error.native, call->error.retryable,
                              "%s", call->error.message);
        else
            chaos->host->complete(chaos->host, upper, status);
    }
    call_free(call);
}

/* The completion of a copy. */
void call_answered(mortise_op *op)
{
    struct call *call = (struct call *)op;
    struct chaos *chaos = call->chaos;
    if (call->upper == NULL) { /* a ghost: nobody waits for its answer */
        DL_DELETE2(chaos->ghosts, call, previous_ghost, next_ghost);
        call_free(call);
        return;
    }
    call->stage = ANSWERED;
    if (op->error != NULL)
        call->error = *op->error;
    int64_t now_ns = now(chaos);
    if (call->canceled || (call->fate.reply_delay_ns == 0 && fate_pause_end(chaos, now_ns) == 0))
        give_answer(call);
    else
        call_schedule(call, now_ns + call->fate.reply_delay_ns);
}

/* ---- requests ----------------------------------------------------------------------------------- */

/* Makes a ghost: it will be sent in any case, but nobody waits for its answer. */
static bool haunt(struct chaos *chaos, mortise_op *op, struct fate fate)
{
    struct call *ghost = call_make(chaos, op, fate, true);
    if (ghost == NULL)
        return false;
    call_leave_upper(ghost);
    ghost->op.flags |= MORTISE_OP_TRY;
    ghost->op.info = NULL;
    if (ghost->op.first_sent_ns == 0)
        ghost->op.first_sent_ns = now(chaos);
    DL_APPEND2(chaos->ghosts, ghost, previous_ghost, next_ghost);
    call_schedule(ghost, now(chaos) + fate.delay_ns);
    fail_unsure(chaos, op, "the reply was lost; the request is still on its way");
    return true;
}

/* True: the request is failed or held here, so the caller must not pass it on. */
static bool waylay(struct chaos *chaos, mortise_op *op, struct fate fate, int64_t now_ns)
{
    if (fate.fault == FAULT_REFUSE) {
        fail(chaos, op, MORTISE_UNREACHABLE, "refused");
        return true;
    }
    if (fate.fault == FAULT_LOSE_REQUEST) {
        fail_unsure(chaos, op, "the request was lost");
        return true;
    }
    if (fate.fault == FAULT_GHOST)
        return haunt(chaos, op, fate);
    bool listing = op->emitted != NULL; /* its results need the core's op, so it is not copied */
    bool release = op->kind == MORTISE_OP_RELEASE && chaos->ghosts != NULL;
    bool copied = !listing && (fate.fault == FAULT_LOSE_REPLY || fate.reply_delay_ns > 0 ||
                               chaos->pauses || release);
    int64_t due_ns = now_ns + fate.delay_ns;
    if (due_ns < chaos->last_due_ns)
        due_ns = chaos->last_due_ns; /* not before earlier requests */
    if (!copied && due_ns <= now_ns && fate_pause_end(chaos, now_ns) == 0)
        return false;
    struct call *call = call_make(chaos, op, fate, copied);
    if (call == NULL)
        return false;
    chaos->last_due_ns = due_ns;
    call_schedule(call, due_ns);
    return true;
}

/* A request is due: returns the op that goes below. */
static mortise_op *send_off(struct call *call)
{
    mortise_op *op = call->copied ? &call->op : call->upper;
    if (call->copied) {
        call->stage = BELOW;
        /* decided now: a ghost that arrives after this release may be gone when the release is answered */
        call->haunted = op->kind == MORTISE_OP_RELEASE && haunted(call->chaos, &op->grant);
    } else
        call_free(call);
    return op;
}

/* Passes on everything that is due; requests that are due together go as one batch. */
static void run_due(struct chaos *chaos, int64_t now_ns)
{
    mortise_op *batch[BATCH];
    size_t n = 0;
    struct call *call;
    while ((call = call_first(chaos)) != NULL && call->due_ns <= now_ns) {
        call_unschedule(call);
        if (call->stage == ANSWERED) {
            give_answer(call);
            continue;
        }
        batch[n++] = send_off(call);
        if (n == BATCH) {
            below_start(chaos, batch, n);
            n = 0;
        }
    }
    below_start(chaos, batch, n);
}

void flow_start(struct chaos *chaos, mortise_op **ops, size_t n)
{
    int64_t now_ns = now(chaos);
    bool paused = fate_pause_end(chaos, now_ns) != 0;
    size_t first = 0, passed = 0; /* the ops from `first` to `passed` are passed on unchanged */
    if (!paused)
        run_due(chaos, now_ns);
    for (size_t i = 0; i < n; i++) {
        mortise_op *op = ops[i];
        if (!waylay(chaos, op, fate_of(chaos, op), now_ns)) {
            ops[passed++] = op;
            continue;
        }
        below_start(chaos, ops + first, passed - first);
        first = passed;
        if (!paused)
            run_due(chaos, now_ns);
    }
    below_start(chaos, ops + first, passed - first);
}

void flow_turn(struct chaos *chaos)
{
    int64_t now_ns = now(chaos);
    if (fate_pause_end(chaos, now_ns) != 0)
        return;
    if (chaos->missed_news) {
        chaos->missed_news = false;
        chaos->host->news_all(chaos->host);
    }
    run_due(chaos, now_ns);
}

int64_t flow_due(const struct chaos *chaos)
{
    const struct call *call = call_first(chaos);
    int64_t due_ns = call == NULL ? MORTISE_NEVER : call->due_ns;
    int64_t end_ns = chaos->pauses ? fate_pause_end(chaos, now(chaos)) : 0;
    if (chaos->missed_news)
        due_ns = INT64_MIN;
    return due_ns < end_ns ? end_ns : due_ns;
}

/* ---- cancel, news, the end ------------------------------------------------------------------------ */

/* Cancels a copy below, unless the module below has completed it: then it does not belong to that module any more. */
static void below_cancel(struct chaos *chaos, struct call *call)
{
    if (call->stage == BELOW && call->op.status == NOT_COMPLETED)
        chaos->below->module->cancel(chaos->below->ctx, &call->op);
}

void flow_cancel(struct chaos *chaos, mortise_op *op)
{
    struct call *call = call_find(chaos, op);
    if (call == NULL) {
        chaos->below->module->cancel(chaos->below->ctx, op);
        return;
    }
    call->canceled = true;
    if (call->stage == BELOW) {
        below_cancel(chaos, call);
    } else if (call->stage == ANSWERED) {
        call_unschedule(call);
        give_answer(call);
    } else { /* this request was not sent; but an earlier try may have been */
        bool unsure = op->kind == MORTISE_OP_ACQUIRE && (op->flags & MORTISE_OP_REPEAT) != 0;
        call_free(call);
        chaos->host->complete(chaos->host, op, unsure ? MORTISE_INDETERMINATE : MORTISE_CANCELED);
    }
}

void flow_news(struct chaos *chaos, const char *name, size_t name_len)
{
    if (fate_loses_news(chaos, name, name_len))
        return;
    if (fate_pause_end(chaos, now(chaos)) != 0)
        chaos->missed_news = true;
    else
        chaos->host->news(chaos->host, name, name_len);
}

/* A request below waits for its turn. If it is a copy, the core knows only the original op; a ghost is not reported. */
void flow_waiting(struct chaos *chaos, mortise_op *op)
{
    const struct call *call = op->done == call_answered ? (struct call *)op : NULL;
    mortise_op *upper = call != NULL && call->chaos == chaos ? call->upper : op;
    if (upper != NULL)
        chaos->host->waiting(chaos->host, upper);
}

/* No op of the core is left. Cancels the ghosts below, because their answers must not reach freed memory. */
void flow_end(struct chaos *chaos)
{
    struct call *call, *next;
    DL_FOREACH_SAFE2(chaos->ghosts, call, next, next_ghost)
    {
        below_cancel(chaos, call);
        call_free(call);
    }
    HASH_ITER (hh, chaos->calls, call, next) {
        call_free(call);
    }
    struct watched *watched, *next_watched;
    HASH_ITER (hh, chaos->watched, watched, next_watched)
        forget_watched(chaos, watched);
}
