/* dead.c - the claim of another client whose process has ended (MORTISE_OP_DEAD): its key is deleted, long before its session
 * ends. The value of the key has its grant id. An acquire that is still on its way to the servers is not seen, so the core
 * repeats the release. */
#include "query.h"

#include <string.h>

static void deleted(struct driver *driver, struct call *call)
{
    struct query *query = query_answer(driver, call);
    if (query != NULL)
        query_complete(driver, query, call->answer.done ? MORTISE_OK : MORTISE_LOST);
}

/* The keys of the name. */
static void found(struct driver *driver, struct call *call)
{
    struct query *query = query_answer(driver, call);
    char grant[HEX_SIZE];
    if (query == NULL)
        return;
    const struct kvs *kvs = &call->answer.ops[0];
    grant_write(&query->op->grant, grant);
    for (size_t i = 0; i < kvs->count; i++) {
        const struct kv *kv = &kvs->all[i];
        mortise_info info = {.size = sizeof(info)};
        if (note_read(kv->value, &info) < 0 || strcmp(info.owner, grant) != 0)
            continue;
        struct call *next = query_call(driver, query, deleted);
        if (next != NULL) {
            txn_if_created(&next->grpc.out, kv->key, kv->created);
            txn_delete(&next->grpc.out, BRANCH_THEN, kv->key);
        }
        query_send_write(driver, query, next);
        return;
    }
    query_complete(driver, query, MORTISE_LOST);
}

void dead_begin(struct driver *driver, struct query *query)
{
    char begin[KEY_MAX], end[KEY_MAX];
    const mortise_op *op = query->op;
    size_t length = strlen(driver->prefix);
    memcpy(begin, driver->prefix, length);
    length += name_write(op->name, op->name_len, begin + length);
    begin[length++] = '/';
    memcpy(end, begin, length);
    end[length - 1] = NAME_END;
    begin[length] = CONTENDERS_BEGIN;
    struct call *call = query_call(driver, query, found);
    if (call != NULL)
        txn_range(
            &call->grpc.out, BRANCH_THEN,
            &(struct range){.begin = bytes_of(begin, length + 1), .end = bytes_of(end, length)});
    query_send(driver, query, call);
}
