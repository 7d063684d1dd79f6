/* flight.c - the sim driver's open ops, each with the outcome that the script gave it.
 *
 * An op travels to the backend, is executed there (serve.c), may be queued, and its answer travels back. By default
 * all of that takes no time, and nothing is allocated here. This file knows no clock but the instants that it is
 * given, and completes ops only in the pump of the instance that took them. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

enum stage { TRAVELLING, QUEUED, RETURNING, SILENT };

struct flight {
    struct flight *next, *previous; /* of the instance, timed or parked */
    struct flight *queue_next, *queue_previous;
    struct instance *instance;
    mortise_op *op;
    struct claim *claim; /* QUEUED: on which name */
    enum stage stage;
    bool is_timed, held, executed;
    int rule;
    sim_rule plan;
    int64_t due_ns, sent_ns;
    mortise_status answer;
};

static struct flight *spare;
static uint64_t counts[32];
static size_t travelling;

/* ---- answering -------------------------------------------------------------------------------- */

static void answer(struct instance *instance, mortise_op *op, mortise_status status,
                   const sim_rule *plan)
{
    mortise_host *host = instance->host;
    char quoted[96];
    op->driver_data[0] = NULL;
    if (status == MORTISE_OK || status == MORTISE_BUSY || status == MORTISE_CANCELED) {
        host->complete(host, op, status);
    } else {
        bool retryable = status == MORTISE_UNREACHABLE || status == MORTISE_INDETERMINATE;
        bool invalid = status == MORTISE_INVALID && op->kind == MORTISE_OP_ACQUIRE;
        host->fail(host, op, status, plan ? plan->native : 0, retryable, "sim: %s: op %d: %s",
                   host->quote(op->name, op->name_len, quoted, sizeof quoted), (int)op->kind,
                   plan      ? "as the script says"
                   : invalid ? serve_problem
                             : "refused");
    }
    if (plan && plan->twice)
        host->complete(host, op, status);
}

/* ---- flights ---------------------------------------------------------------------------------- */

static void unlist(struct flight *flight)
{
    struct flight **list = flight->is_timed ? &flight->instance->timed : &flight->instance->parked;
    DL_DELETE2(*list, flight, previous, next);
}

/* Into the timed list, which is ordered: from the tail, since most come last. */
static void schedule(struct flight *flight, int64_t due_ns)
{
    struct flight *first = flight->instance->timed, *before = first ? first->previous : NULL;
    flight->due_ns = due_ns;
    flight->is_timed = true;
    flight->held = false;
    while (before && before->due_ns > due_ns)
        before = before == first ? NULL : before->previous;
    if (before)
        DL_APPEND_ELEM2(flight->instance->timed, before, flight, previous, next);
    else
        DL_PREPEND2(flight->instance->timed, flight, previous, next);
}

static void park(struct flight *flight)
{
    flight->is_timed = false;
    DL_APPEND2(flight->instance->parked, flight, previous, next);
}

static struct flight *flight_new(struct instance *instance, mortise_op *op)
{
    struct flight *flight = spare;
    if (flight)
        spare = flight->next;
    else if (!(flight = malloc(sizeof *flight)))
        return NULL;
    *flight = (struct flight){.instance = instance, .op = op};
    instance->flights++;
    op->driver_data[0] = (mortise_op *)(void *)flight;
    return flight;
}

/* Not in a list any more. */
static void flight_free(struct flight *flight)
{
    if (flight->stage == TRAVELLING)
        travelling--;
    flight->instance->flights--;
    flight->next = spare;
    spare = flight;
}

static void land(struct flight *flight, mortise_status status)
{
    answer(flight->instance, flight->op, status, flight->rule ? &flight->plan : NULL);
    flight_free(flight);
}

static void set_off(struct flight *flight, enum stage stage, bool held, int64_t due_ns)
{
    travelling += (size_t)((stage == TRAVELLING) - (flight->stage == TRAVELLING));
    flight->stage = stage;
    flight->held = held;
    if (held || stage == SILENT || stage == QUEUED)
        park(flight);
    else
        schedule(flight, due_ns);
}

static void queue_up(struct flight *flight, struct claim *claim)
{
    flight->claim = claim;
    set_off(flight, QUEUED, false, 0);
    DL_APPEND2(claim->extra->queue, flight, queue_previous, queue_next);
    flight->instance->host->waiting(flight->instance->host, flight->op);
}

static bool wants_queue(const struct instance *instance, const mortise_op *op,
                        mortise_status status, struct claim *claim)
{
    return status == MORTISE_BUSY && instance->queue && op->kind == MORTISE_OP_ACQUIRE &&
           !(op->flags & MORTISE_OP_TRY) && store_extra(claim);
}

/* The request has arrived; the flight is in no list. */
static void arrive(struct flight *flight, int64_t now_ns)
{
    const sim_rule *plan = &flight->plan;
    struct claim *claim = NULL;
    if (plan->fate != SIM_REFUSE && plan->fate != SIM_SILENT) {
        flight->answer =
            serve(flight->instance, flight->op, now_ns, flight->sent_ns, false, &claim);
        flight->executed = true;
    }
    if (plan->fate == SIM_PASS &&
        wants_queue(flight->instance, flight->op, flight->answer, claim)) {
        queue_up(flight, claim);
        return;
    }
    if (plan->fate == SIM_REFUSE || plan->fate == SIM_LOSE_REPLY)
        flight->answer = plan->status;
    bool silent = plan->fate == SIM_SILENT || plan->fate == SIM_SILENT_EXECUTED;
    set_off(flight, silent ? SILENT : RETURNING, plan->hold_reply && !silent,
            now_ns + plan->reply_ns);
}

/* What has come to the end of its stage goes on to the next; the flight leaves the timed list. */
static void advance(struct flight *flight, int64_t now_ns)
{
    unlist(flight);
    if (flight->stage == TRAVELLING)
        arrive(flight, now_ns);
    else
        land(flight, flight->answer);
}

static bool names_grant(const mortise_op *op, const mortise_grant_id *grant)
{
    return op->kind == MORTISE_OP_ACQUIRE && memcmp(&op->grant, grant, sizeof *grant) == 0;
}

static void haunt(const struct flight *flight, bool held, int64_t due_ns)
{
    ghost_add(flight->instance, flight->op, flight->rule, held, due_ns);
}

static bool travels_under(struct flight *list, const mortise_grant_id *grant)
{
    struct flight *flight;
    DL_FOREACH (list, flight) {
        if (flight->stage == TRAVELLING && names_grant(flight->op, grant))
            return true;
    }
    return false;
}

bool flight_may_come(const mortise_grant_id *grant)
{
    struct instance *instance;
    if (ghost_under(grant))
        return true;
    if (travelling)
        DL_FOREACH (sim_instances, instance) {
            if (travels_under(instance->timed, grant) || travels_under(instance->parked, grant))
                return true;
        }
    return false;
}

static void lose_grants(struct flight *list)
{
    struct flight *flight;
    DL_FOREACH (list, flight) {
        if (flight->stage == RETURNING && flight->op->kind == MORTISE_OP_ACQUIRE &&
            flight->answer == MORTISE_OK)
            flight->answer = MORTISE_INDETERMINATE;
    }
}

void flight_lose_grants(void)
{
    struct instance *instance;
    DL_FOREACH (sim_instances, instance) {
        lose_grants(instance->timed);
        lose_grants(instance->parked);
    }
}

/* ---- start, cancel, turn ---------------------------------------------------------------------- */

static void start_planned(struct instance *instance, mortise_op *op, int64_t now_ns)
{
    int number = 0;
    const sim_rule *is = script_match(op, &number);
    struct flight *flight = flight_new(instance, op);
    if (!flight) {
        answer(instance, op, MORTISE_NOMEM, NULL);
        return;
    }
    flight->stage = RETURNING; /* nowhere yet */
    flight->plan = is ? *is : (sim_rule){.request_ns = instance->latency_ns};
    flight->rule = number;
    flight->sent_ns = now_ns;
    const sim_rule *plan = &flight->plan;
    if (plan->fate == SIM_GHOST) {
        haunt(flight, plan->hold_request, now_ns + plan->request_ns);
        flight->answer = plan->status;
        set_off(flight, RETURNING, plan->hold_reply, now_ns + plan->reply_ns);
    } else {
        set_off(flight, TRAVELLING, plan->hold_request, now_ns + plan->request_ns);
    }
}

void flight_start(struct instance *instance, mortise_op *op, int64_t now_ns)
{
    counts[0]++;
    counts[(unsigned)op->kind & 31]++;
    if (op->kind == MORTISE_OP_ACQUIRE &&
        op->first_sent_ns == 0) /* as most drivers: of no other kind */
        op->first_sent_ns = now_ns;
    ghosts_arrive(now_ns);
    if (script_exists() || instance->latency_ns) {
        start_planned(instance, op, now_ns);
        return;
    }
    struct claim *claim = NULL;
    struct flight *flight;
    mortise_status status = serve(instance, op, now_ns, now_ns, false, &claim);
    if (!wants_queue(instance, op, status, claim)) {
        answer(instance, op, status, NULL);
        return;
    }
    if (!(flight = flight_new(instance, op))) {
        answer(instance, op, MORTISE_NOMEM, NULL);
        return;
    }
    flight->stage = RETURNING;
    queue_up(flight, claim);
}

static void leave_queue(struct flight *flight)
{
    DL_DELETE2(flight->claim->extra->queue, flight, queue_previous, queue_next);
}

/* The grant that a clean cancel takes back. */
static void undo(struct flight *flight, int64_t now_ns)
{
    mortise_op op = *flight->op;
    struct claim *claim;
    op.kind = MORTISE_OP_RELEASE;
    op.flags = 0;
    if (flight->executed && flight->op->kind == MORTISE_OP_ACQUIRE)
        serve(flight->instance, &op, now_ns, now_ns, true, &claim);
}

void flight_cancel(mortise_op *op, int64_t now_ns)
{
    struct flight *flight = (struct flight *)(void *)op->driver_data[0];
    if (!flight || flight->plan.on_cancel == SIM_CANCEL_IGNORED)
        return;
    unlist(flight);
    if (flight->stage == QUEUED) {
        struct claim *claim = flight->claim;
        leave_queue(flight);
        land(flight, MORTISE_CANCELED);
        claim_freed(claim, now_ns); /* those behind it may have waited for it only */
    } else if (flight->claim) {     /* the queue's grant is on its way: it just became so */
        land(flight, flight->answer);
    } else if (flight->plan.on_cancel == SIM_CANCEL_CLEAN) {
        undo(flight, now_ns);
        land(flight, MORTISE_CANCELED);
    } else {
        if (flight->stage == TRAVELLING)
            haunt(flight, flight->held, flight->due_ns);
        land(flight, MORTISE_INDETERMINATE);
    }
}

size_t flight_queue_length(const struct claim *claim)
{
    struct flight *flight;
    int count = 0;
    if (claim->extra)
        DL_COUNT2(claim->extra->queue, flight, count, queue_next);
    return (size_t)count;
}

bool flight_grant_head(struct claim *claim, int64_t now_ns)
{
    struct flight *flight;
    bool any = false;
    while ((flight = claim->extra->queue) && serve_admits(claim, flight->op)) {
        leave_queue(flight);
        unlist(flight);
        /* counted from now, an instant before the grant: the waiter's request is older than that */
        flight->answer = serve_from_queue(flight->instance, flight->op, now_ns, claim);
        flight->executed = true;
        set_off(flight, RETURNING, false, INT64_MIN);
        sim_dirty(flight->instance);
        any = true;
    }
    return any;
}

static bool turn_has_come(const struct flight *flight, int64_t now_ns)
{
    return flight->stage == QUEUED &&
           (!flight->claim->held || claim_first_expires(flight->claim) <= now_ns);
}

/* Names on which this instance queues and whose holder has run out of time, or was taken away. */
static void refresh_queued(struct instance *instance, int64_t now_ns)
{
    struct flight *flight = instance->parked;
    while (flight) {
        struct claim *claim = flight->claim;
        if (!turn_has_come(flight, now_ns)) {
            flight = flight->next;
            continue;
        }
        if (!claim->held)
            claim_freed(claim, now_ns);
        else
            claim_refresh(claim, now_ns);
        flight = instance->parked; /* the list has changed */
    }
}

void flight_turn(struct instance *instance, int64_t now_ns)
{
    ghosts_arrive(now_ns);
    refresh_queued(instance, now_ns);
    while (instance->timed && instance->timed->due_ns <= now_ns)
        advance(instance->timed, now_ns);
}

int64_t flight_due(struct instance *instance)
{
    int64_t due_ns = instance->timed ? instance->timed->due_ns : MORTISE_NEVER;
    struct flight *flight;
    DL_FOREACH (instance->parked, flight) {
        if (turn_has_come(flight, due_ns - 1))
            due_ns = flight->claim->held ? claim_first_expires(flight->claim) : INT64_MIN;
    }
    return due_ns;
}

size_t flight_outstanding(const struct instance *instance)
{
    struct flight *flight;
    size_t count = 0;
    DL_FOREACH (instance->timed, flight) {
        count++;
    }
    DL_FOREACH (instance->parked, flight) {
        count++;
    }
    return count;
}

void flight_forget(struct instance *instance)
{
    struct flight *flight;
    while ((flight = instance->timed ? instance->timed : instance->parked)) {
        unlist(flight);
        if (flight->stage == QUEUED)
            leave_queue(flight);
        flight_free(flight);
    }
}

uint64_t flight_held(int number)
{
    uint64_t count = ghost_held(number);
    struct instance *instance;
    DL_FOREACH (sim_instances, instance) {
        struct flight *flight;
        DL_FOREACH (instance->parked, flight) {
            count += flight->held && flight->rule == number;
        }
    }
    return count;
}

static void let_go_flights(struct instance *instance, int number)
{
    struct flight *flight, *next;
    DL_FOREACH_SAFE (instance->parked, flight, next) {
        if (!flight->held || (number && flight->rule != number))
            continue;
        unlist(flight);
        schedule(flight, INT64_MIN);
        sim_dirty(instance);
    }
}

void flight_let_go(int number)
{
    struct instance *instance;
    DL_FOREACH (sim_instances, instance) {
        let_go_flights(instance, number);
    }
    ghost_let_go(number);
    ghosts_arrive(sim_any_now());
}

uint64_t flight_count(int kind)
{
    return kind >= 0 && kind < 32 ? counts[kind] : 0;
}

void flight_reset(void)
{
    struct instance *instance;
    DL_FOREACH (sim_instances, instance) {
        let_go_flights(instance, 0);
    }
    ghosts_reset();
    memset(counts, 0, sizeof counts);
}
