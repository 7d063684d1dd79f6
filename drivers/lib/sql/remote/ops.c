/* ops.c - what happens to the request of an op, or to an errand of drivers/lib/sql; the same for all dialects. */
#include "remote.h"

#include <string.h>

#define PAUSE_MIN_NS (2 * NS_PER_MS)
#define PAUSE_STEPS 6 /* doublings, to 128 ms */

void op_sending(struct request *request)
{
    struct sql_request *base = &request->base;
    mortise_op *op = base->op;
    if (op != NULL && op->kind == MORTISE_OP_ACQUIRE && op->first_sent_ns == 0)
        op->first_sent_ns = base->sent_ns;
    if (op != NULL && op->kind == MORTISE_OP_RELEASE && base->step != SQL_WRITE)
        base->sure = !ghost_has((struct remote *)base->locks, &base->grant);
}

void op_failed(struct request *request, const struct fault *fault)
{
    locks_fail(&request->base, fault->base.status, &fault->base);
}

void op_lost(struct request *request, bool sent)
{
    const struct remote *remote = (const struct remote *)request->base.locks;
    locks_lost(&request->base, sent, &remote->trouble);
}

void op_cancel(struct sql_request *base)
{
    struct request *request = (struct request *)base;
    if (base->flying)
        link_look_soon(request->link);
    else
        queue_remove(request);
}

const char *op_where(const struct sql_request *base, char *text, size_t size)
{
    const struct request *request = (const struct request *)base;
    const struct remote *remote = (const struct remote *)base->locks;
    const struct link *link = request->link != NULL ? request->link : remote->main;
    return remote->dialect->where(link, text, size);
}

void op_pause(struct request *request)
{
    struct sql_locks *locks = request->base.locks;
    unsigned swaps = request->base.swaps;
    if (request->base.step != SQL_READ || swaps < 2)
        return;
    unsigned steps = swaps - 2 < PAUSE_STEPS ? swaps - 2 : PAUSE_STEPS;
    request->not_before_ns =
        locks->host->now(locks->host) + locks_jitter(locks, PAUSE_MIN_NS << steps);
}

void op_hasten(struct sql_locks *locks, const char *name, size_t name_len, int64_t far_ns,
               int64_t due_ns)
{
    const struct remote *remote = (const struct remote *)locks;
    for (struct request *request = remote->main->queue[LANE_READING]; request != NULL;
         request = request->next) {
        size_t len;
        const char *asked = request_name(&request->base, &len);
        if (request->not_before_ns > far_ns && len == name_len && memcmp(asked, name, len) == 0 &&
            locks_looks_again(&request->base))
            request->not_before_ns = due_ns;
    }
}
