/* request.c - what all requests have in common: made, freed, read, written, completed. See request.h. Knows neither the
 * purpose of a request nor the waiters. */
#include "request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPARE_MAX 128
#define SWAPS_MAX 64 /* WRITEs in a row that touched no row */

struct sql_request *request_new(struct sql_locks *locks, enum sql_task task)
{
    size_t size = locks->dialect->request_size;
    struct sql_request *request = locks->spare;
    if (request != NULL) {
        locks->spare = request->next;
        locks->spare_count--;
        memset(request, 0, size);
    } else if ((request = calloc(1, size)) == NULL) {
        return NULL;
    }
    request->locks = locks;
    request->task = task;
    return request;
}

void request_free(struct sql_request *request)
{
    struct sql_locks *locks = request->locks;
    if (locks->dialect->clear != NULL)
        locks->dialect->clear(request);
    if (request->name != NULL)
        name_unref(locks, request->name);
    if (locks->spare_count >= SPARE_MAX) {
        free(request);
        return;
    }
    request->next = locks->spare;
    locks->spare = request;
    locks->spare_count++;
}

const char *request_name(const struct sql_request *request, size_t *len)
{
    if (request->op != NULL) {
        *len = request->op->name_len;
        return request->op->name;
    }
    *len = request->name != NULL ? request->name->len : 0;
    return request->name != NULL ? request->name->bytes : "";
}

int64_t locks_jitter(struct sql_locks *locks, int64_t ns)
{
    if (locks->jitter == 0)
        locks->host->random(locks->host, &locks->jitter, sizeof(locks->jitter));
    locks->jitter = locks->jitter * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return ns / 2 + (int64_t)((locks->jitter >> 33) % (uint64_t)(ns / 2 + 1));
}

/* ---- rows -------------------------------------------------------------------------------------- */

bool request_was_read(struct sql_request *request, struct rowlease_time *time)
{
    struct sql_locks *locks = request->locks;
    const struct sql_result *result = &locks->result;
    request->read_ns = request->sent_ns;
    request->now_us = result->now_us;
    request->version = locks->row.version;
    *time = (struct rowlease_time){
        .now_us = result->now_us, .wall_us = result->wall_us, .reserve_us = locks->reserve_us};
    if (!result->insane) {
        rowlease_copy(&locks->next, &locks->row);
        return true;
    }
    request->answer = (struct rowlease_answer){
        .status = MORTISE_BACKEND, .trouble = "the row makes no sense; was it written by hand?"};
    return false;
}

enum sql_next request_write(struct sql_request *request)
{
    struct sql_locks *locks = request->locks;
    bool adds = locks->row.exists && locks->next.waiters_len > locks->row.waiters_len;
    request->version = locks->next.version;
    request->wakes = request->answer.wake && !request->durable;
    if (request->swaps < SWAPS_MAX)
        return request_again(request, !locks->dialect->append                 ? SQL_WRITE
                                      : request->answer.bars                  ? SQL_BAR
                                      : adds && !rowlease_shared(&locks->row) ? SQL_APPEND
                                                                              : SQL_WRITE);
    request->answer = (struct rowlease_answer){
        .status = MORTISE_UNREACHABLE, .trouble = "the row is changed all the time by others"};
    return SQL_OVER;
}

enum sql_next request_written(struct sql_request *request)
{
    if (request->locks->result.touched)
        return SQL_OVER;
    request->swaps++;
    return request_again(request, SQL_READ);
}

void request_take_waiters(struct sql_request *request, const unsigned char *list, size_t len)
{
    uint32_t places = request->answer.places;
    request->waiter_count =
        places > 0 ? rowlease_shared_waiters(list, len, places, request->waiters, SQL_WAKE_MAX)
                   : rowlease_waiters(list, len, request->waiters, SQL_WAKE_MAX);
}

static void set_name(mortise_info *info, const void *name, size_t name_len)
{
    if (name_len > MORTISE_NAME_MAX)
        name_len = MORTISE_NAME_MAX;
    memcpy(info->name, name, name_len);
    info->name[name_len] = '\0';
}

void request_inspect(const struct sql_locks *locks, const struct rowlease_row *row, int64_t now_us,
                     const void *name, size_t name_len, mortise_info *info)
{
    set_name(info, name, name_len);
    rowlease_inspect(row, now_us, info);
    if (locks->unlisted)
        info->waiters = -1;
}

void request_emit_holders(const struct sql_request *request, int64_t now_us)
{
    struct sql_locks *locks = request->locks;
    mortise_op *op = request->op;
    mortise_info info = {.size = sizeof(info)};
    size_t at = 0;
    set_name(&info, op->name, op->name_len);
    while (rowlease_inspect_next(&locks->row, now_us, &at, &info)) {
        if (locks->unlisted)
            info.waiters = -1;
        locks->host->emit(locks->host, op, &info);
    }
}

/* ---- the end ----------------------------------------------------------------------------------- */

void request_done(struct sql_request *request, mortise_status status)
{
    struct sql_locks *locks = request->locks;
    mortise_op *op = request->op;
    if (op != NULL) {
        request_bind(op, NULL);
        op->sure = request->sure;
        locks->host->complete(locks->host, op, status);
    }
    request_free(request);
}

static const char *doing(mortise_op_kind kind)
{
    static const char *const words[] = {"",     "acquire", "renew", "release", "inspect",
                                        "list", "read",    "write", "ping"};
    return (size_t)kind < sizeof(words) / sizeof(words[0]) ? words[kind] : "";
}

void request_failed(struct sql_request *request, mortise_status status,
                    const struct sql_fault *fault)
{
    struct sql_locks *locks = request->locks;
    mortise_host *host = locks->host;
    mortise_op *op = request->op;
    char quoted[SQL_QUOTED_SIZE] = "", where[200];
    if (op != NULL) {
        request_bind(op, NULL);
        if (op->kind != MORTISE_OP_PING)
            host->quote(op->name, op->name_len, quoted, sizeof(quoted));
        host->fail(host, op, status, fault->native, fault->retryable, "%s: %s (%s%s%s)",
                   locks->dialect->where(request, where, sizeof(where)), fault->text,
                   doing(op->kind), quoted[0] != '\0' ? " " : "", quoted);
    }
    request_free(request);
}

void request_refused(struct sql_request *request)
{
    struct sql_fault fault = {.status = request->answer.status};
    fault.retryable = fault.status == MORTISE_UNREACHABLE;
    snprintf(fault.text, sizeof(fault.text), "%s",
             request->trouble[0] != '\0' ? request->trouble : request->answer.trouble);
    request_failed(request, fault.status, &fault);
}
