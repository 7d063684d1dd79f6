/* dead.c - the claim of another client whose process has ended (MORTISE_OP_DEAD): its key is deleted, long before its session ends.
 * The key is named by the grant id. An acquire that is still on its way to the servers is not seen; the asker repeats. */
#include "query.h"

#include <string.h>

static void deleted(struct driver *driver, struct call *call)
{
    struct query *query = query_answer(driver, call);
    const struct answer *answer = &call->answer;
    if (query != NULL)
        query_complete(driver, query,
                       answer->ops[0].total + answer->ops[1].total > 0 ? MORTISE_OK : MORTISE_LOST);
}

/* Exclusive or shared: what it was asked for first. */
static void delete_key(const struct driver *driver, const mortise_op *op, struct kind kind,
                       struct writer *out)
{
    char key[KEY_MAX];
    size_t length = strlen(driver->prefix);
    memcpy(key, driver->prefix, length);
    length += name_write(op->name, op->name_len, key + length);
    key[length++] = '/';
    length += contender_write(kind, &op->grant, key + length);
    txn_delete(out, BRANCH_THEN, bytes_of(key, length));
}

void dead_begin(struct driver *driver, struct query *query)
{
    const mortise_op *op = query->op;
    struct call *call = query_call(driver, query, deleted);
    if (call != NULL) {
        delete_key(driver, op, (struct kind){0}, &call->grpc.out);
        delete_key(driver, op, (struct kind){.shared = true, .permits = op->permits},
                   &call->grpc.out);
    }
    query->written = query_send(driver, query, call);
}
