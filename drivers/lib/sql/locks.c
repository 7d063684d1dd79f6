/* locks.c - ops come in, become requests, and go through their steps; see dialect.h. Knows which file handles which kind
 * of op, and what a lost connection means for each kind. */
#include "lease.h"
#include "query.h"
#include "request.h"
#include "waiting.h"

#include <stdlib.h>

void locks_init(struct sql_locks *locks, mortise_host *host, const struct sql_dialect *dialect,
                int64_t reserve_ms)
{
    locks->host = host;
    locks->dialect = dialect;
    locks->reserve_us = reserve_ms * 1000;
    locks->chore_ns = MORTISE_NEVER;
    host->random(host, &locks->inbox, sizeof(locks->inbox));
}

void locks_free(struct sql_locks *locks)
{
    while (locks->spare != NULL) {
        struct sql_request *request = locks->spare;
        locks->spare = request->next;
        free(request);
    }
    names_free(locks);
}

/* ---- ops come in ------------------------------------------------------------------------------- */

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

static bool is_lease(mortise_op_kind kind)
{
    return kind == MORTISE_OP_ACQUIRE || kind == MORTISE_OP_RENEW || kind == MORTISE_OP_RELEASE;
}

/* Chooses the first step. False: the op was completed. */
static bool begin(struct sql_request *request)
{
    if (!is_lease(request->kind))
        return query_begin(request);
    lease_begin(request);
    return true;
}

static void start_one(struct sql_locks *locks, mortise_op *op)
{
    mortise_host *host = locks->host;
    if (!makes_sense(op)) {
        host->complete(host, op, MORTISE_INVALID);
        return;
    }
    struct sql_request *request = request_new(locks, SQL_TASK_OP);
    if (request == NULL) {
        host->complete(host, op, MORTISE_NOMEM);
        return;
    }
    request->op = op;
    request->kind = op->kind;
    request->grant = op->grant;
    request_bind(op, request);
    if (begin(request))
        locks->dialect->run(request);
}

void locks_start(struct sql_locks *locks, mortise_op **ops, size_t n)
{
    for (size_t i = 0; i < n; i++)
        start_one(locks, ops[i]);
}

void locks_restart(struct sql_request *request)
{
    request->answer = (struct rowlease_answer){.status = MORTISE_OK};
    request->notified = false;
    if (request->task != SQL_TASK_OP)
        request->step = SQL_READ;
    else if (is_lease(request->kind))
        lease_begin(request);
}

/* Nothing was left in the database if neither the present step nor an earlier request with this grant was sent.
 * Otherwise the core no longer needs the answer, because it looks after the grant id by itself. */
void locks_cancel(struct sql_locks *locks, mortise_op *op)
{
    struct sql_request *request = request_of(op);
    if (request == NULL)
        return;
    bool unsure = (op->flags & MORTISE_OP_REPEAT) != 0 && op->kind == MORTISE_OP_ACQUIRE;
    bool flying = request->flying;
    if (flying && locks_lost_status(request) == MORTISE_INDETERMINATE)
        unsure = true;
    if (flying && is_lease(request->kind))
        lease_abandon(request);
    request_bind(op, NULL);
    request->op = NULL;
    locks->dialect->cancel(request);
    if (!flying)
        request_free(request);
    locks->host->complete(locks->host, op, unsure ? MORTISE_INDETERMINATE : MORTISE_CANCELED);
}

/* ---- answers ----------------------------------------------------------------------------------- */

enum sql_next locks_step(struct sql_request *request)
{
    if (request->task != SQL_TASK_OP)
        return waiting_step(request);
    return is_lease(request->kind) ? lease_step(request) : query_step(request);
}

void locks_tell(struct sql_request *request)
{
    if (request->task != SQL_TASK_OP)
        waiting_tell(request);
    else if (is_lease(request->kind))
        lease_tell(request);
    else
        query_tell(request);
}

void locks_fail(struct sql_request *request, mortise_status status, const struct sql_fault *fault)
{
    if (request->task == SQL_TASK_OP)
        request_failed(request, status, fault);
    else
        waiting_failed(request);
}

mortise_status locks_lost_status(const struct sql_request *request)
{
    bool lists = request->step == SQL_APPEND || request->step == SQL_BAR ||
                 (request->step == SQL_WRITE && request->answer.status == MORTISE_BUSY);
    if (request->step == SQL_READ || lists)
        return MORTISE_UNREACHABLE;
    return is_lease(request->kind) || request->kind == MORTISE_OP_WRITE ? MORTISE_INDETERMINATE
                                                                        : MORTISE_UNREACHABLE;
}

void locks_lost(struct sql_request *request, bool sent, const mortise_error *trouble)
{
    struct sql_locks *locks = request->locks;
    mortise_op *op = request->op;
    if (request->task != SQL_TASK_OP) {
        waiting_failed(request);
        return;
    }
    if (op != NULL) {
        request_bind(op, NULL);
        op->sure = false;
        locks->host->fail(locks->host, op, sent ? locks_lost_status(request) : trouble->status,
                          trouble->native, trouble->retryable, "%s", trouble->message);
    }
    request_free(request);
}
