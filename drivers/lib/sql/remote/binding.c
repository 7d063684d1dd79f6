/* binding.c - the values of a step, in the order in which all dialects bind them to their statements. */
#include "remote.h"

static void bytes_or_null(const struct binder *binder, void *to, const void *bytes, size_t len)
{
    binder->bytes(to, len > 0 ? bytes : NULL, len);
}

void bind_name(const struct binder *binder, void *to, const struct request *request)
{
    size_t len;
    const char *name = request_name(&request->base, &len);
    binder->bytes(to, len > 0 ? name : "", len);
}

void bind_take(const struct binder *binder, void *to, const struct request *request)
{
    const mortise_op *op = request->base.op;
    size_t note_len = op->note_len < MORTISE_NOTE_MAX ? op->note_len : MORTISE_NOTE_MAX;
    binder->bytes(to, op->name, op->name_len);
    binder->number(to, (int64_t)op->token_floor);
    binder->bytes(to, op->grant.bytes, MORTISE_GRANT_ID_SIZE);
    binder->span(to, rowlease_ttl_us(op));
    bytes_or_null(binder, to, op->note, note_len);
}

void bind_claim(const struct binder *binder, void *to, const struct request *request)
{
    const mortise_op *op = request->base.op;
    binder->bytes(to, op->name, op->name_len);
    binder->number(to, (int64_t)op->token);
    binder->bytes(to, op->grant.bytes, MORTISE_GRANT_ID_SIZE);
}

void bind_row(const struct binder *binder, void *to, const struct rowlease_row *row)
{
    binder->number(to, row->version);
    bytes_or_null(binder, to, row->owner, row->owned ? row->owner_len : 0);
    bytes_or_null(binder, to, row->grants, row->grants_len);
    binder->time(to, row->acquired_us);
    binder->time(to, row->expires_us);
    bytes_or_null(binder, to, row->waiters, row->waiters_len);
    bytes_or_null(binder, to, row->note, row->note_len);
}

/* An empty prefix is bound as zero bytes, not as null. */
void bind_list(const struct binder *binder, void *to, const struct request *request, char *end)
{
    const mortise_op *op = request->base.op;
    size_t end_len = locks_end_of_prefix(op->name, op->name_len, end);
    bind_name(binder, to, request);
    bytes_or_null(binder, to, end, end_len);
}

void bind_record(const struct binder *binder, void *to, const struct request *request)
{
    const mortise_op *op = request->base.op;
    binder->bytes(to, op->name, op->name_len);
    binder->bytes(to, op->record_size > 0 ? op->record : "", op->record_size);
    if (op->record_version > 0)
        binder->number(to, (int64_t)op->record_version);
}
