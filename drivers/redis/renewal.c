/* renewal.c - renewals: many in one script, each with its own result. */
#include "sending.h"

#include <stdlib.h>

/* One script call for many ops. */
struct batch {
    struct link_call call; /* first */
    struct driver *driver;
    enum script script;
    bool by_text;
    bool asks; /* ASKING comes first, and has a reply, too */
    size_t count;
    mortise_op *ops[]; /* NULL: canceled */
};

static void replied(struct link_call *call, unsigned index, redisReply *reply);
static void lost(struct link_call *call, enum link_loss loss, const struct link_fault *fault);

/* ---- sending ---------------------------------------------------------------------------------------- */

/* The keys of one shared lock in a cluster: as in shared.c, except for the queue, which may not exist. */
static void put_shared_of_slot(struct batch *batch)
{
    struct driver *driver = batch->driver;
    struct link *link = &driver->link;
    const mortise_op *op = batch->ops[0];
    batch->by_text = script_put(driver, batch->script, 3, 4, false);
    key_put(link, op, KEY_LOCK);
    key_put(link, op, KEY_HOLDERS);
    key_put(link, op, KEY_SHARES);
    link_text(link, driver->layout == LAYOUT_HASH ? "hash" : "string");
    key_put_grant(link, op);
    link_number(link, op->ttl_ms);
    key_put(link, op, KEY_QUEUE);
}

static void put_shared(struct batch *batch)
{
    struct driver *driver = batch->driver;
    struct link *link = &driver->link;
    unsigned n = (unsigned)batch->count;
    batch->script = SCRIPT_SHARED_RENEW;
    if (driver->in_cluster) {
        put_shared_of_slot(batch);
        return;
    }
    batch->by_text = script_put(driver, batch->script, 2 * n, 1 + 2 * n, false);
    for (unsigned i = 0; i < n; i++) {
        key_put(link, batch->ops[i], KEY_LOCK);
        key_put(link, batch->ops[i], KEY_QUEUE);
    }
    link_text(link, driver->layout == LAYOUT_HASH ? "hash" : "string");
    for (unsigned i = 0; i < n; i++) {
        key_put_grant(link, batch->ops[i]);
        link_number(link, batch->ops[i]->ttl_ms);
    }
}

/* All ops of the batch have one mode. */
static void put(struct batch *batch)
{
    static const enum script scripts[] = {[LAYOUT_STRING] = SCRIPT_STRING_RENEW,
                                          [LAYOUT_HASH] = SCRIPT_HASH_RENEW,
                                          [LAYOUT_REDISSON] = SCRIPT_REDISSON_RENEW};
    struct driver *driver = batch->driver;
    struct link *link = &driver->link;
    bool redisson = driver->layout == LAYOUT_REDISSON;
    unsigned n = (unsigned)batch->count;
    if (batch->ops[0]->mode == MORTISE_SHARED) {
        put_shared(batch);
        return;
    }
    unsigned arguments = redisson ? 4 * n : 2 * n;
    batch->script = scripts[driver->layout];
    if (driver->in_cluster && n > 1) { /* they may be in several slots: scripts/include/any_slot */
        batch->by_text = script_put(driver, batch->script, 0, 1 + n + arguments, false);
        link_number(link, n);
    } else
        batch->by_text = script_put(driver, batch->script, n, arguments, false);
    for (unsigned i = 0; i < n; i++)
        key_put(link, batch->ops[i], KEY_LOCK);
    for (unsigned i = 0; i < n; i++) {
        key_put_grant(link, batch->ops[i]);
        link_number(link, batch->ops[i]->ttl_ms);
        if (redisson)
            key_put_owner(link, batch->ops[i]);
    }
}

void renewal_start(struct driver *driver, mortise_op **ops, size_t n)
{
    struct batch *batch = malloc(sizeof(*batch) + n * sizeof(*ops));
    if (batch == NULL) {
        for (size_t i = 0; i < n; i++)
            op_fail_memory(driver, ops[i]);
        return;
    }
    batch->driver = driver;
    batch->count = n;
    batch->call.replied = replied;
    batch->call.lost = lost;
    batch->asks = n == 1 && data_of(ops[0])->asking;
    link_call_begin(&driver->link, &batch->call);
    if (batch->asks) {
        link_command(&driver->link, 1);
        link_text(&driver->link, "ASKING");
    }
    for (size_t i = 0; i < n; i++) {
        batch->ops[i] = ops[i];
        op_set(ops[i], OP_RENEWING, batch);
        op_sent(ops[i], &batch->call);
    }
    put(batch);
    link_call_end(&driver->link, &batch->call, batch->asks ? 2 : 1);
}

void renewal_cancel(mortise_op *op)
{
    struct batch *batch = data_of(op)->batch;
    struct driver *driver = batch->driver;
    for (size_t i = 0; i < batch->count; i++)
        if (batch->ops[i] == op)
            batch->ops[i] = NULL;
    op_complete(driver, op, MORTISE_INDETERMINATE);
}

/* ---- answers ------------------------------------------------------------------------------------------ */

/* The server does not know the script: sends the ops that are not canceled again, with the script's text. */
static void send_text(struct batch *batch)
{
    size_t n = 0;
    batch->driver->known[batch->script] = false;
    for (size_t i = 0; i < batch->count; i++)
        if (batch->ops[i] != NULL)
            batch->ops[n++] = batch->ops[i];
    if (n > 0)
        renewal_start(batch->driver, batch->ops, n);
}

static bool was_redirected(const struct batch *batch, mortise_op *op, const redisReply *reply)
{
    struct driver *driver = batch->driver;
    if (!driver->in_cluster || reply->type != REDIS_REPLY_ERROR)
        return false;
    op_set(op, OP_NEW, NULL);
    return driver->routes->redirected(driver, op, reply);
}

static void refused(struct batch *batch, const redisReply *reply)
{
    struct link_fault fault;
    link_fault_reply(&batch->driver->link, reply, &fault);
    if (fault.error == LINK_ERROR_NOSCRIPT && !batch->by_text) {
        send_text(batch);
        return;
    }
    for (size_t i = 0; i < batch->count; i++)
        if (batch->ops[i] != NULL && was_redirected(batch, batch->ops[i], reply))
            continue;
        else if (batch->ops[i] != NULL && reply->type == REDIS_REPLY_ERROR)
            op_fail(batch->driver, batch->ops[i], &fault);
        else if (batch->ops[i] != NULL)
            op_fail_odd(batch->driver, batch->ops[i]);
}

/* Whether a lock in a batch of many slots may have moved. */
static bool may_have_moved(const struct batch *batch, char digit)
{
    return batch->driver->in_cluster && batch->count > 1 && digit == '3';
}

/* Sends this renewal alone. The server's answer then says where the lock is, or what is wrong. */
static void ask_alone(const struct batch *batch, size_t which)
{
    mortise_op *op = batch->ops[which];
    data_of(op)->redirects++;
    op_set(op, OP_NEW, NULL);
    batch->driver->dispatch->start(batch->driver, &op, 1);
}

static void replied(struct link_call *call, unsigned index, redisReply *reply)
{
    struct batch *batch = (struct batch *)call;
    bool answer = reply->type == REDIS_REPLY_STRING && (size_t)reply->len == batch->count;
    if (batch->asks && index == 0)
        return;
    if (!answer)
        refused(batch, reply);
    for (size_t i = 0; answer && i < batch->count; i++)
        if (batch->ops[i] != NULL && may_have_moved(batch, reply->str[i]))
            ask_alone(batch, i);
        else if (batch->ops[i] != NULL)
            answer_renewed(batch->driver, batch->ops[i], reply->str[i], call->sent_ns);
    free(batch);
}

static void lost(struct link_call *call, enum link_loss loss, const struct link_fault *fault)
{
    struct batch *batch = (struct batch *)call;
    for (size_t i = 0; i < batch->count; i++)
        if (batch->ops[i] != NULL)
            op_lose(batch->driver, batch->ops[i], loss, fault);
    free(batch);
}
