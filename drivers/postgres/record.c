/* record.c - the small named records, which outlive clients: read, and written by compare-and-swap. */
#include "internal.h"

#include <string.h>

void record_start(struct request *request)
{
    mortise_op *op = request->op;
    struct args *args = &request->args;
    args_begin(args);
    args_bytes(args, op->name, op->name_len);
    if (op->kind == MORTISE_OP_READ) {
        request->settles = true;
        request_send(request, STEP_QUICK, SQL_RECORD_READ, LANE_DURABLE); /* see THE HOLES */
        return;
    }
    if (op->record_version > INT64_MAX) {
        request_done(request, MORTISE_BUSY);
        return;
    }
    args_bytes(args, op->record, op->record_size);
    if (op->record_version == 0) {
        request_send(request, STEP_QUICK, SQL_RECORD_MAKE, LANE_DURABLE);
        return;
    }
    args_int8(args, (int64_t)op->record_version);
    request_send(request, STEP_QUICK, SQL_RECORD_WRITE, LANE_DURABLE);
}

static void was_read(struct request *request)
{
    static const struct fault too_large = {.status = MORTISE_BACKEND,
                                           .text = "the record is larger than the room for it"};
    const PGresult *result = request->result;
    mortise_op *op = request->op;
    op->record_size = 0;
    op->record_version = 0;
    if (PQntuples(result) == 1) {
        size_t len = (size_t)PQgetlength(result, 0, 1);
        if (len > op->buffer_size) {
            request_failed(request, &too_large);
            return;
        }
        memcpy(op->buffer, PQgetvalue(result, 0, 1), len);
        op->record_size = len;
        op->record_version = (uint64_t)result_int8(result, 0, 0);
    }
    request_done(request, MORTISE_OK);
}

void record_answered(struct request *request)
{
    mortise_op *op = request->op;
    bool written = PQntuples(request->result) == 1;
    if (op == NULL) {
        request_done(request, MORTISE_CANCELED);
        return;
    }
    if (op->kind == MORTISE_OP_READ) {
        was_read(request);
        return;
    }
    if (written)
        op->record_version = (uint64_t)result_int8(request->result, 0, 0);
    request_done(request, written ? MORTISE_OK : MORTISE_BUSY);
}
