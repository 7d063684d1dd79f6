/* record.c - the small named records, which outlive clients. */
#include "query.h"

#include <stdio.h>
#include <string.h>

struct record_key {
    size_t size;
    char text[PREFIX_MAX + ESCAPED_MAX + 16];
};

static struct bytes key_of(const struct driver *driver, const mortise_op *op,
                           struct record_key *key)
{
    size_t length = (size_t)snprintf(key->text, sizeof(key->text), "%s%%records/", driver->prefix);
    key->size = length + name_write(op->name, op->name_len, key->text + length);
    return bytes_of(key->text, key->size);
}

static void was_read(struct driver *driver, struct call *call)
{
    struct query *query = query_answer(driver, call);
    const struct kvs *kvs = &call->answer.ops[0];
    if (query == NULL)
        return;
    mortise_op *op = query->op;
    op->record_size = 0;
    op->record_version = 0;
    if (kvs->count > 0) {
        const struct kv *kv = kvs->all;
        if (kv->value.size > op->buffer_size) {
            query_fail(driver, query, MORTISE_BACKEND, "the record is too large");
            return;
        }
        if (kv->value.size > 0)
            memcpy(op->buffer, kv->value.data, kv->value.size);
        op->record_size = kv->value.size;
        op->record_version = (uint64_t)kv->modified;
    }
    query_complete(driver, query, MORTISE_OK);
}

void record_read(struct driver *driver, struct query *query)
{
    struct record_key key = {.size = 0};
    struct call *call = query_call(driver, query, was_read);
    if (call != NULL)
        txn_range(&call->grpc.out, BRANCH_THEN,
                  &(struct range){.begin = key_of(driver, query->op, &key)});
    query_send(driver, query, call);
}

static void was_written(struct driver *driver, struct call *call)
{
    struct query *query = query_answer(driver, call);
    if (query == NULL)
        return;
    if (call->answer.done)
        query->op->record_version = (uint64_t)call->answer.header.revision;
    query_complete(driver, query, call->answer.done ? MORTISE_OK : MORTISE_BUSY);
}

void record_write(struct driver *driver, struct query *query)
{
    const mortise_op *op = query->op;
    struct record_key key = {.size = 0};
    if (op->record_version > INT64_MAX) {
        query_complete(driver, query, MORTISE_BUSY);
        return;
    }
    struct call *call = query_call(driver, query, was_written);
    if (call != NULL) {
        struct bytes own = key_of(driver, op, &key);
        txn_if_modified(&call->grpc.out, own, (int64_t)op->record_version);
        txn_put(&call->grpc.out, BRANCH_THEN,
                &(struct put){.key = own, .value = {op->record, op->record_size}});
    }
    query_send_write(driver, query, call);
}
