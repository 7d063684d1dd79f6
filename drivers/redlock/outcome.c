/* outcome.c - how an op ends: completed, or failed with a line that names the op, the lock and the nodes' problem. */
#include "redlock.h"

#include <stdio.h>

void op_complete(struct driver *driver, mortise_op *op, mortise_status status)
{
    op_put(op, OP_NOWHERE, NULL);
    driver->host->complete(driver->host, op, status);
}

void op_fail(struct driver *driver, mortise_op *op, mortise_status status, int native,
             bool retryable, const char *text)
{
    op_put(op, OP_NOWHERE, NULL);
    text_fail(driver->host, op, status, native, retryable, text);
}

void op_fail_memory(struct driver *driver, mortise_op *op)
{
    op_fail(driver, op, MORTISE_NOMEM, 0, true, "out of memory");
}

void op_fail_few(struct driver *driver, mortise_op *op, mortise_status status, unsigned answered,
                 const struct link_fault *why, unsigned refusing)
{
    char text[500];
    const struct link_fault *refusal = nodes_refusal(driver, &refusing);
    bool final = status == MORTISE_BACKEND || nodes_are_needed(driver, refusing);
    if (why != NULL && why->status == MORTISE_OK)
        why = NULL;
    if (final && (why == NULL || !fault_lasts(why)))
        why = refusal;
    const char *problem = why != NULL ? why->text : nodes_problem(driver);
    /* a lasting error is reported as such, unless the nodes without it can form a quorum again */
    if (final && status == MORTISE_UNREACHABLE)
        status = MORTISE_BACKEND;
    snprintf(text, sizeof(text), "%u of %u nodes, and %u are needed; %s", answered, driver->count,
             driver->quorum, problem);
    op_fail(driver, op, status, why != NULL ? why->native : 0, !final, text);
}
