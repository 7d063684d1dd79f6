/* answer.c - what the server's answer to an acquire, a release or a renewal means for the op, whichever request asked for
 * it. */
#include "redis.h"

/* ---- granted ---------------------------------------------------------------------------------------- */

static void hold(struct driver *driver, mortise_op *op, int64_t from_ns, int64_t good_for_ms)
{
    op->from_ns = from_ns;
    op->good_for_ms = good_for_ms;
    op_answered(driver, op, MORTISE_OK);
    if (!replicas_take(driver, op))
        op_end(driver, op, MORTISE_OK);
}

void answer_granted(struct driver *driver, mortise_op *op, uint64_t token, int64_t sent_ns)
{
    op->token = driver->fencing ? token : 0;
    hold(driver, op, sent_ns, op->ttl_ms);
}

/* The first sending may belong to another history than the grant: it may have gone to another primary, whose data
 * this one never got. So the grant is believed for no longer than the server says, counted from before this request
 * was sent. */
void answer_found(struct driver *driver, mortise_op *op, uint64_t token, int64_t remaining_ms,
                  int64_t sent_ns)
{
    int64_t left_ms = remaining_ms > 0 ? remaining_ms : 0;
    bool less = remaining_ms != -1 && left_ms < op->ttl_ms &&
                sent_ns + left_ms * NS_PER_MS < op->first_sent_ns + op->ttl_ms * NS_PER_MS;
    op->token = driver->fencing ? token : 0;
    if (less)
        hold(driver, op, sent_ns, left_ms);
    else
        hold(driver, op, op->first_sent_ns, op->ttl_ms);
}

void answer_busy(struct driver *driver, mortise_op *op, int64_t remaining_ms)
{
    if (remaining_ms > MORTISE_TTL_MAX_MS)
        remaining_ms = MORTISE_TTL_MAX_MS;
    int64_t hint_ms = remaining_ms < -1 ? 0 : remaining_ms;
    if (op->info != NULL)
        op->info->remaining_ms = hint_ms;
    bool looks = driver->foreign_polled || pubsub_is_refused(driver, op);
    if (looks && (hint_ms < 0 || hint_ms > driver->retry_ms))
        hint_ms = driver->retry_ms;
    op->hint_ms = hint_ms;
    op_complete(driver, op, MORTISE_BUSY);
}

/* ---- renewed ---------------------------------------------------------------------------------------- */

void answer_renewed(struct driver *driver, mortise_op *op, char digit, int64_t sent_ns)
{
    struct link_fault fault;
    switch (digit) {
    case '2':
        hold(driver, op, sent_ns, op->ttl_ms);
        break;
    case '3':
        link_fault_set(&fault, MORTISE_UNREACHABLE, true, 0,
                       "%s: it refuses to tell who holds the lock", driver->settings.endpoint.text);
        op_fail(driver, op, &fault);
        break;
    case '1':
        op_complete(driver, op, MORTISE_NOTOWNER);
        break;
    case '0':
        op_complete(driver, op, MORTISE_LOST);
        break;
    default:
        op_fail_odd(driver, op);
        break;
    }
}

/* ---- at the primary ---------------------------------------------------------------------------------- */

static void role_told(struct request *request, redisReply *reply)
{
    struct driver *driver = request->driver;
    struct link_fault fault;
    if (failover_is_primary(reply)) {
        op_end(driver, request->op, request->verdict);
        return;
    }
    failover_fault(driver, &fault);
    op_fail(driver, request->op, &fault);
    link_break(&driver->link, &fault);
}

void answer_of_primary(struct driver *driver, mortise_op *op, mortise_status verdict)
{
    if (!driver->link.role_told) { /* the user may not call ROLE */
        op_complete(driver, op, verdict);
        return;
    }
    struct request *request = request_begin(driver, op, role_told);
    if (request == NULL)
        return;
    request->verdict = verdict;
    link_command(&driver->link, 1);
    link_text(&driver->link, "ROLE");
    link_call_end(&driver->link, &request->call, 1);
}

/* ---- released --------------------------------------------------------------------------------------- */

/* A lagging replica, too, would answer that nothing is there. */
void answer_released(struct driver *driver, mortise_op *op, int64_t answer)
{
    op->sure = uncertain_is_sure(driver, &op->grant);
    /* In any case: an earlier release may have been executed, and its reply lost. */
    if (data_of(op)->asking)
        driver->routes->released(driver, op);
    if (answer == 2)
        op_complete(driver, op, MORTISE_OK);
    else
        answer_of_primary(driver, op, answer == 1 ? MORTISE_NOTOWNER : MORTISE_LOST);
}
