/* flow.c - how ops come in, wait for the nodes, are canceled, and end; see internal.h. */
#include "internal.h"

#include <stdio.h>

/* ---- the ends of an op ------------------------------------------------------------------------------------------- */

void flow_complete(struct driver *driver, mortise_op *op, mortise_status status)
{
    driver->host->complete(driver->host, op, status);
}

static const char *verb_of(const mortise_op *op)
{
    static const char *const verbs[] = {
        [MORTISE_OP_ACQUIRE] = "acquire", [MORTISE_OP_RENEW] = "renew",
        [MORTISE_OP_RELEASE] = "release", [MORTISE_OP_INSPECT] = "inspect",
        [MORTISE_OP_LIST] = "list",       [MORTISE_OP_READ] = "read",
        [MORTISE_OP_WRITE] = "write",     [MORTISE_OP_PING] = "ping",
    };
    return (op->flags & MORTISE_OP_BREAK) != 0 ? "break" : verbs[op->kind];
}

void flow_fail(struct driver *driver, mortise_op *op, mortise_status status, int native,
               bool retryable, const char *text)
{
    char name[QUOTED_SIZE] = "";
    if (op->name_len > 0 && op->kind != MORTISE_OP_PING)
        driver->host->quote(op->name, op->name_len, name, sizeof(name));
    driver->host->fail(driver->host, op, status, native, retryable, "%s (%s%s%s)", text,
                       verb_of(op), name[0] != '\0' ? " " : "", name);
}

void flow_fail_memory(struct driver *driver, mortise_op *op)
{
    flow_fail(driver, op, MORTISE_NOMEM, 0, true, "out of memory");
}

/* An error of a node that will not go away (a password, an ACL) is told as such. */
void flow_fail_few(struct driver *driver, mortise_op *op, mortise_status status, unsigned answered,
                   const struct link_fault *why)
{
    char text[500];
    if (why == NULL || why->status == MORTISE_OK)
        why = nodes_refusal(driver);
    const char *problem =
        why != NULL && why->status != MORTISE_OK ? why->text : nodes_problem(driver);
    bool refused = why != NULL && why->status == MORTISE_BACKEND && !why->retryable;
    if (refused && status == MORTISE_UNREACHABLE)
        status = MORTISE_BACKEND;
    snprintf(text, sizeof(text), "%u of %u nodes, and %u are needed; %s", answered, driver->count,
             driver->quorum, problem);
    flow_fail(driver, op, status, why != NULL ? why->native : 0, !refused, text);
}

/* ---- coming in ---------------------------------------------------------------------------------------------------- */

/* False: it was failed. */
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
    } else if (acquire && op->owner_len > 0) {
        problem = "an owner cannot be shared with this driver";
        status = MORTISE_NOTSUP;
    } else if (op->kind == MORTISE_OP_READ || op->kind == MORTISE_OP_WRITE) {
        problem = "compare-and-write needs consensus, and a quorum of independent nodes is none";
        status = MORTISE_NOTSUP;
    } else if ((op->flags & MORTISE_OP_BREAK) != 0 && !driver->fencing) {
        problem = "without fencing there is no token by which to break";
        status = MORTISE_NOTSUP;
    }
    if (problem != NULL)
        flow_fail(driver, op, status, 0, false, problem);
    return problem == NULL;
}

static void run(struct driver *driver, mortise_op *op)
{
    switch (op->kind) {
    case MORTISE_OP_ACQUIRE:
        attempt_start(driver, op);
        break;
    case MORTISE_OP_RELEASE:
        if ((op->flags & MORTISE_OP_BREAK) != 0)
            look_break(driver, op);
        else
            lease_release(driver, op);
        break;
    case MORTISE_OP_INSPECT:
        look_inspect(driver, op);
        break;
    case MORTISE_OP_LIST:
        list_start(driver, op);
        break;
    default:
        look_ping(driver, op);
        break;
    }
}

static mortise_op *take_waiting(struct driver *driver)
{
    mortise_op *op = driver->waiting;
    DL_DELETE2(driver->waiting, op, previous, next);
    op->driver_data[1] = NULL;
    return op;
}

/* Those that stand behind one another are sent together. */
static void run_renewals(struct driver *driver)
{
    mortise_op *ops[RENEW_MAX];
    unsigned n = 0;
    while (n < RENEW_MAX && driver->waiting != NULL && driver->waiting->kind == MORTISE_OP_RENEW)
        ops[n++] = take_waiting(driver);
    renew_together(driver, ops, n);
}

void flow_look(struct driver *driver)
{
    while (driver->waiting != NULL && nodes_are_ready(driver))
        if (driver->waiting->kind == MORTISE_OP_RENEW)
            run_renewals(driver);
        else
            run(driver, take_waiting(driver));
}

void flow_start(struct driver *driver, mortise_op **ops, size_t n)
{
    nodes_want(driver);
    for (size_t i = 0; i < n; i++) {
        mortise_op *op = ops[i];
        if (!is_possible(driver, op))
            continue;
        op->driver_data[1] = driver; /* a mark: it waits */
        op->next = op->previous = NULL;
        DL_APPEND2(driver->waiting, op, previous, next);
    }
    flow_look(driver);
}

void flow_flush(struct driver *driver)
{
    for (unsigned i = 0; i < driver->count; i++) {
        link_flush(&driver->nodes[i].link);
        link_flush(&driver->nodes[i].news);
    }
}

/* ---- giving up ------------------------------------------------------------------------------------------------------ */

void flow_cancel(struct driver *driver, mortise_op *op)
{
    struct ballot *ballot = op->driver_data[0];
    if (op->driver_data[1] != NULL) {
        struct claim *claim = claim_find(driver, &op->grant);
        bool unsure = claim != NULL;
        DL_DELETE2(driver->waiting, op, previous, next);
        if (unsure && op->kind == MORTISE_OP_RELEASE)
            undo_all(driver, claim); /* where it can be: too few nodes were there to ask them all */
        flow_complete(driver, op, unsure ? MORTISE_INDETERMINATE : MORTISE_CANCELED);
        return;
    }
    if (op->kind == MORTISE_OP_ACQUIRE) {
        attempt_cancel(driver, op);
        return;
    }
    if (list_cancel(driver, op) || ballot == NULL)
        return;
    ballot->op = NULL;
    ballot->info = NULL;
    flow_complete(driver, op, MORTISE_INDETERMINATE);
}
