/* flow.c - ops come in, become requests, and are told. Knows which file does what with which kind of op, and
 * what a lost connection means for each. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define SPARE_MAX 128

/* ---- requests ---------------------------------------------------------------------------------- */

struct request *request_new(struct driver *driver, enum task task)
{
    struct request *request = driver->spare;
    if (request != NULL) {
        driver->spare = request->next;
        driver->spare_count--;
        memset(request, 0, sizeof(*request));
    } else if ((request = calloc(1, sizeof(*request))) == NULL) {
        return NULL;
    }
    request->driver = driver;
    request->task = task;
    return request;
}

void request_free(struct request *request)
{
    struct driver *driver = request->driver;
    PQclear(request->result);
    args_begin(&request->args);
    if (request->name != NULL)
        waiting_unref(driver, request->name);
    if (driver->spare_count >= SPARE_MAX) {
        free(request);
        return;
    }
    request->next = driver->spare;
    driver->spare = request;
    driver->spare_count++;
}

/* Renewals stand alone, on the second connection; they do not wait for it where there is the first. */
static struct link *link_for(const struct request *request)
{
    struct driver *driver = request->driver;
    bool renews = request->task == TASK_OP && request->kind == MORTISE_OP_RENEW;
    if (!renews)
        return &driver->main;
    driver->live_wanted = true;
    bool instead = driver->live.state != LINK_READY && driver->main.state == LINK_READY;
    return instead ? &driver->main : &driver->live;
}

void request_send(struct request *request, enum step step, enum sql sql, enum lane lane)
{
    PQclear(request->result);
    request->result = NULL;
    request->step = step;
    request->sql = sql;
    request->lane = lane;
    request->not_before_ns = 0;
    struct link *link = request->link != NULL && request->link->state == LINK_READY
                            ? request->link
                            : link_for(request);
    flight_queue(link, request); /* it goes out with flow_go(): nothing fails in here */
}

void request_done(struct request *request, mortise_status status)
{
    mortise_op *op = request->op;
    if (op != NULL) {
        op->driver_data[0] = NULL;
        op->sure = request->sure;
        request->driver->host->complete(request->driver->host, op, status);
    }
    request_free(request);
}

static void fail(struct request *request, mortise_status status, const struct fault *fault)
{
    mortise_op *op = request->op;
    if (op != NULL) {
        op->driver_data[0] = NULL;
        fault_tell(request->link != NULL ? request->link : &request->driver->main, op, status,
                   fault);
    }
    request_free(request);
}

/* ---- what comes back --------------------------------------------------------------------------- */

void request_answered(struct request *request)
{
    switch (request->task) {
    case TASK_OP:
        break;
    case TASK_GHOST:
        ghost_answered(request);
        return;
    case TASK_NOTIFY:
        request_free(request);
        return;
    case TASK_SWEEP:
        request->driver->sweep_goes_on = PQntuples(request->result) > 0; /* there may be more */
        if (request->driver->sweep_goes_on)
            request->driver->sweep_ns = 0;
        request_free(request);
        return;
    default:
        waiting_answered(request);
        return;
    }
    switch (request->kind) {
    case MORTISE_OP_ACQUIRE:
    case MORTISE_OP_RENEW:
    case MORTISE_OP_RELEASE:
        lease_answered(request);
        return;
    case MORTISE_OP_READ:
    case MORTISE_OP_WRITE:
        record_answered(request);
        return;
    default:
        look_answered(request);
    }
}

void request_failed(struct request *request, const struct fault *fault)
{
    if (request->task == TASK_OP)
        fail(request, MORTISE_OK, fault);
    else if (request->task == TASK_GHOST)
        ghost_answered(request);
    else if (request->task == TASK_NOTIFY)
        waiting_notify_failed(request, fault);
    else if (request->task == TASK_SWEEP)
        request_free(request);
    else
        waiting_failed(request);
}

/* Of one whose answer will not come: what the server may have done with it. */
static mortise_status lost_status(const struct request *request, bool sent)
{
    bool lists = request->step == STEP_SWAP && request->answer.status == MORTISE_BUSY;
    if (!sent || request->step == STEP_READ || lists)
        return MORTISE_UNREACHABLE;
    switch (request->kind) {
    case MORTISE_OP_ACQUIRE:
    case MORTISE_OP_RENEW:
    case MORTISE_OP_RELEASE:
    case MORTISE_OP_WRITE:
        return MORTISE_INDETERMINATE;
    default:
        return MORTISE_UNREACHABLE;
    }
}

void request_lost(struct request *request, bool sent, const mortise_error *trouble)
{
    mortise_op *op = request->op;
    if (request->task == TASK_GHOST) {
        ghost_answered(request);
        return;
    }
    if (request->task != TASK_OP) {
        if (request->name != NULL && request->task != TASK_NOTIFY)
            waiting_failed(request);
        else
            request_free(request);
        return;
    }
    if (op != NULL) {
        mortise_status status = lost_status(request, sent);
        op->driver_data[0] = NULL;
        op->sure = false;
        if (status == MORTISE_UNREACHABLE && !sent)
            status = trouble->status;
        request->driver->host->fail(request->driver->host, op, status, trouble->native,
                                    trouble->retryable, "%s", trouble->message);
    }
    request_free(request);
}

/* ---- what goes out ----------------------------------------------------------------------------- */

static bool makes_sense(const mortise_op *op)
{
    size_t least = op->kind == MORTISE_OP_LIST || op->kind == MORTISE_OP_PING ? 0 : 1;
    bool lease = op->kind == MORTISE_OP_ACQUIRE || op->kind == MORTISE_OP_RENEW;
    if (op->name_len < least || op->name_len > MORTISE_NAME_MAX)
        return false;
    if (op->owner != NULL && (op->owner_len == 0 || op->owner_len > MORTISE_OWNER_MAX))
        return false;
    if (op->kind == MORTISE_OP_WRITE && op->record_size > MORTISE_RECORD_MAX)
        return false;
    return !lease || (op->ttl_ms > 0 && op->ttl_ms <= MORTISE_TTL_MAX_MS);
}

static void start_one(struct driver *driver, mortise_op *op)
{
    mortise_host *host = driver->host;
    if (!makes_sense(op)) {
        host->complete(host, op, MORTISE_INVALID);
        return;
    }
    struct request *request = request_new(driver, TASK_OP);
    if (request == NULL) {
        host->complete(host, op, MORTISE_NOMEM);
        return;
    }
    request->op = op;
    request->kind = op->kind;
    request->grant = op->grant;
    op->driver_data[0] = request;
    switch (op->kind) {
    case MORTISE_OP_ACQUIRE:
    case MORTISE_OP_RENEW:
    case MORTISE_OP_RELEASE:
        lease_start(request);
        return;
    case MORTISE_OP_READ:
    case MORTISE_OP_WRITE:
        record_start(request);
        return;
    case MORTISE_OP_INSPECT:
    case MORTISE_OP_LIST:
    case MORTISE_OP_PING:
        look_start(request);
        return;
    }
    request_done(request, MORTISE_NOTSUP);
}

void flow_go(struct driver *driver)
{
    link_want(&driver->main);
    link_want(&driver->live);
    setup_listen(&driver->live);
    flight_go(&driver->main);
    flight_go(&driver->live);
}

void flow_start(struct driver *driver, mortise_op **ops, size_t n)
{
    for (size_t i = 0; i < n; i++)
        start_one(driver, ops[i]);
    flow_go(driver);
}

/* Nothing of this op was ever sent that could still have an effect: certain. Else the answer, when it
 * comes, is of no interest to the core, which looks after the grant id by itself. */
void flow_cancel(struct driver *driver, mortise_op *op)
{
    struct request *request = op->driver_data[0];
    if (request == NULL)
        return;
    bool unsure = (op->flags & MORTISE_OP_REPEAT) != 0 && op->kind == MORTISE_OP_ACQUIRE;
    bool flying = request->flying;
    if (flying && lost_status(request, true) == MORTISE_INDETERMINATE)
        unsure = true;
    op->driver_data[0] = NULL;
    request->op = NULL;
    driver->host->complete(driver->host, op, unsure ? MORTISE_INDETERMINATE : MORTISE_CANCELED);
    if (flying) {
        link_look_soon(request->link);
        return;
    }
    flight_unqueue(request);
    request_free(request);
}
