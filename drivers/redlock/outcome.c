/* outcome.c - how an op ends: completed, or failed with a line that names the op, the lock and the nodes' problem. */
#include "redlock.h"

#include <stdio.h>

#define QUOTED_SIZE 160

void op_complete(struct driver *driver, mortise_op *op, mortise_status status)
{
    op_put(op, OP_NOWHERE, NULL);
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

void op_fail(struct driver *driver, mortise_op *op, mortise_status status, int native,
             bool retryable, const char *text)
{
    char name[QUOTED_SIZE] = "";
    if (op->name_len > 0 && op->kind != MORTISE_OP_PING)
        driver->host->quote(op->name, op->name_len, name, sizeof(name));
    op_put(op, OP_NOWHERE, NULL);
    driver->host->fail(driver->host, op, status, native, retryable, "%s (%s%s%s)", text,
                       verb_of(op), name[0] != '\0' ? " " : "", name);
}

void op_fail_memory(struct driver *driver, mortise_op *op)
{
    op_fail(driver, op, MORTISE_NOMEM, 0, true, "out of memory");
}

void op_fail_few(struct driver *driver, mortise_op *op, mortise_status status, unsigned answered,
                 const struct link_fault *why)
{
    char text[500];
    if (why == NULL || why->status == MORTISE_OK)
        why = nodes_refusal(driver);
    const char *problem = why != NULL ? why->text : nodes_problem(driver);
    /* an error that will not go away (a password, an ACL) is reported as such */
    bool refused = why != NULL && why->status == MORTISE_BACKEND && !why->retryable;
    if (refused && status == MORTISE_UNREACHABLE)
        status = MORTISE_BACKEND;
    snprintf(text, sizeof(text), "%u of %u nodes, and %u are needed; %s", answered, driver->count,
             driver->quorum, problem);
    op_fail(driver, op, status, why != NULL ? why->native : 0, !refused, text);
}
