/* query.c - inspect, list and ping, which only read; and the small named records, which outlive clients and are written by
 * compare-and-swap. */
#include "query.h"

#include "request.h"

#include <string.h>

bool query_begin(struct sql_request *request)
{
    mortise_op *op = request->op;
    switch (op->kind) {
    case MORTISE_OP_INSPECT:
        request->step = SQL_READ;
        return true;
    case MORTISE_OP_LIST:
        request->step = SQL_LIST;
        return true;
    case MORTISE_OP_PING:
        request->step = SQL_PING;
        return true;
    case MORTISE_OP_READ:
        op->record_size = 0;
        op->record_version = 0;
        request->step = SQL_RECORD_READ;
        return true;
    case MORTISE_OP_WRITE:
        request->step = SQL_RECORD_WRITE;
        if (op->record_version <= INT64_MAX)
            return true;
        request_done(request, MORTISE_BUSY);
        return false;
    default:
        request_done(request, MORTISE_NOTSUP);
        return false;
    }
}

enum sql_next query_step(struct sql_request *request)
{
    struct sql_locks *locks = request->locks;
    struct rowlease_time time;
    mortise_op *op = request->op;
    if (request->kind == MORTISE_OP_READ) /* locks_record() has already given the result */
        return SQL_OVER;
    request->answer = (struct rowlease_answer){.status = MORTISE_OK};
    if (op == NULL)
        return SQL_OVER;
    if (request->kind == MORTISE_OP_WRITE) {
        request->answer.status = locks->result.touched ? MORTISE_OK : MORTISE_BUSY;
        request->version = locks->result.version;
    } else if (request->kind == MORTISE_OP_INSPECT && request_was_read(request, &time)) {
        request_inspect(locks, &locks->row, time.now_us, op->name, op->name_len, op->info);
        if (op->emitted != NULL)
            request_emit_holders(request, time.now_us);
    }
    return SQL_OVER;
}

/* All rows come from one snapshot, so names that come and go meanwhile are neither missed nor listed twice. */
void locks_list_row(struct sql_request *request, const void *name, size_t name_len, int64_t now_us)
{
    struct sql_locks *locks = request->locks;
    mortise_info info = {.size = sizeof(info)};
    if (request->op == NULL)
        return;
    request_inspect(locks, &locks->row, now_us, name, name_len, &info);
    if (!info.held) /* the row has only a bar */
        return;
    locks->host->emit(locks->host, request->op, &info);
}

size_t locks_end_of_prefix(const char *prefix, size_t len, char *end)
{
    while (len > 0 && (unsigned char)prefix[len - 1] == 0xff)
        len--;
    if (len == 0)
        return 0;
    memcpy(end, prefix, len);
    end[len - 1] = (char)((unsigned char)end[len - 1] + 1);
    return len;
}

void locks_record(struct sql_request *request, int64_t version, const void *value, size_t len)
{
    mortise_op *op = request->op;
    if (op == NULL)
        return;
    if (len > op->buffer_size) {
        request->answer = (struct rowlease_answer){
            .status = MORTISE_BACKEND, .trouble = "the record is larger than the room for it"};
        return;
    }
    if (len > 0)
        memcpy(op->buffer, value, len);
    op->record_size = len;
    op->record_version = (uint64_t)version;
}

void query_tell(struct sql_request *request)
{
    mortise_status status = request->answer.status;
    if (request->answer.trouble != NULL) {
        request_refused(request);
        return;
    }
    if (request->op != NULL && request->kind == MORTISE_OP_WRITE && status == MORTISE_OK)
        request->op->record_version = (uint64_t)request->version;
    request_done(request, status);
}
