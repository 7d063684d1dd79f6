/* dispatch.c - ops arrive, wait for nodes, and are canceled. An impossible op is refused at once. The others wait until
 * a quorum of nodes is connected, or waiting for more nodes is useless. */
#include "redlock.h"

#include <stdio.h>

/* False: the op has failed. */
static bool is_possible(struct driver *driver, mortise_op *op)
{
    bool acquire = op->kind == MORTISE_OP_ACQUIRE;
    const char *problem = NULL;
    char text[160];
    mortise_status status = MORTISE_INVALID;
    if (acquire && key_is_side(op->name, op->name_len))
        problem = "a name that begins with '{' must not have \"}:mortise:\" in it";
    else if (acquire && op->token_floor > FLOOR_MAX)
        problem = "the token to begin from is above 2^53";
    else if ((acquire || op->kind == MORTISE_OP_RENEW) && op->ttl_ms > driver->max_ttl_ms) {
        snprintf(
            text, sizeof(text),
            "a ttl of %lld ms is longer than max_ttl, %lld ms: a node that was restarted votes "
            "again after that",
            (long long)op->ttl_ms, (long long)driver->max_ttl_ms);
        problem = text;
    } else {
        status = MORTISE_NOTSUP;
        if (acquire && op->owner_len > 0)
            problem = "an owner cannot be shared with this driver";
        else if (op->kind == MORTISE_OP_READ || op->kind == MORTISE_OP_WRITE)
            problem = "redlock cannot store records: independent nodes have no consensus";
        else if ((op->flags & MORTISE_OP_BREAK) != 0 && !driver->fencing)
            problem = "without fencing there is no token by which to break";
    }
    if (problem != NULL)
        op_fail(driver, op, status, 0, false, problem);
    return problem == NULL;
}

static mortise_op *take_waiting(struct driver *driver, mortise_op *op)
{
    DL_DELETE2(driver->waiting, op, previous, next);
    op_put(op, OP_NOWHERE, NULL);
    return op;
}

static void run(struct driver *driver, mortise_op *op)
{
    static void (*const starts[])(struct driver * driver, mortise_op * op) = {
        [MORTISE_OP_ACQUIRE] = acquire_start, [MORTISE_OP_RELEASE] = release_start,
        [MORTISE_OP_INSPECT] = inspect_start, [MORTISE_OP_LIST] = list_start,
        [MORTISE_OP_PING] = ping_start,
    };
    if ((op->flags & MORTISE_OP_BREAK) != 0)
        break_start(driver, op);
    else
        starts[op->kind](driver, op);
}

/* Renewals that came together go to each node in one request. */
static void run_renewals(struct driver *driver)
{
    mortise_op *ops[RENEW_MAX];
    unsigned n = 0;
    while (n < RENEW_MAX && driver->waiting != NULL && driver->waiting->kind == MORTISE_OP_RENEW)
        ops[n++] = take_waiting(driver, driver->waiting);
    renew_together(driver, ops, n);
}

void dispatch_look(struct driver *driver)
{
    while (driver->waiting != NULL && nodes_are_ready(driver))
        if (driver->waiting->kind == MORTISE_OP_RENEW)
            run_renewals(driver);
        else
            run(driver, take_waiting(driver, driver->waiting));
}

void dispatch_start(struct driver *driver, mortise_op **ops, size_t n)
{
    nodes_want(driver);
    for (size_t i = 0; i < n; i++) {
        mortise_op *op = ops[i];
        if (!is_possible(driver, op))
            continue;
        op_put(op, OP_WAITING, NULL);
        DL_APPEND2(driver->waiting, op, previous, next);
    }
    dispatch_look(driver);
}

/* Cancels an op while too few nodes are connected. The connected ones undo what may be left. */
static void cancel_waiting(struct driver *driver, mortise_op *op)
{
    struct claim *claim = claim_find(driver, &op->grant);
    take_waiting(driver, op);
    if (claim != NULL && op->kind == MORTISE_OP_RELEASE)
        undo_all(driver, claim);
    op_complete(driver, op, claim != NULL ? MORTISE_INDETERMINATE : MORTISE_CANCELED);
}

static void cancel_ballot(struct driver *driver, mortise_op *op)
{
    struct ballot *ballot = op_at(op, OP_BALLOT);
    ballot->op = NULL;
    op_complete(driver, op, MORTISE_INDETERMINATE);
}

void dispatch_cancel(struct driver *driver, mortise_op *op)
{
    static void (*const cancels[])(struct driver * driver, mortise_op * op) = {
        [OP_WAITING] = cancel_waiting,
        [OP_ATTEMPT] = acquire_cancel,
        [OP_BALLOT] = cancel_ballot,
        [OP_LIST] = list_cancel,
    };
    if (op_place(op) != OP_NOWHERE) /* otherwise it has ended */
        cancels[op_place(op)](driver, op);
}
