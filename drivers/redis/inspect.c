/* inspect.c - reads one lock, and pings the server. The lock's value, its remaining time and the server's time are read in
 * one atomic step. */
#include "sending.h"
#include "shared.h"

#include <stdio.h>

_Static_assert(GRANT_HEX + 2 * 20 + 3 + MORTISE_NOTE_MAX < 4096, "a value of ours is seen whole");

static void put_word(struct link *link, const char *word)
{
    link_command(link, 1);
    link_text(link, word);
}

static void put_of_key(struct link *link, const char *word, const char *key, size_t key_len)
{
    link_command(link, 2);
    link_text(link, word);
    link_argument(link, key, key_len);
}

/* In a cluster, a script reads the lock. The first one of a call is sent with its text. */
static void put_script(struct driver *driver, bool first, const char *key, size_t key_len)
{
    struct link *link = &driver->link;
    if (first)
        driver->known[SCRIPT_LOOK] = false;
    script_put(driver, SCRIPT_LOOK, 1, driver->queued ? 2 : 1, false);
    link_argument(link, key, key_len);
    link_text(link, driver->layout == LAYOUT_STRING ? "string" : "hash");
    if (driver->queued)
        key_put_of(link, key, key_len, KEY_QUEUE);
}

void inspect_put(struct driver *driver, bool first, const char *key, size_t key_len)
{
    struct link *link = &driver->link;
    if (driver->in_cluster) {
        put_script(driver, first, key, key_len);
        return;
    }
    if (transaction_disturb(driver))
        put_word(link, "UNWATCH");
    put_word(link, "MULTI");
    if (driver->layout == LAYOUT_STRING) {
        link_command(link, 4);
        link_text(link, "GETRANGE");
        link_argument(link, key, key_len);
        link_text(link, "0");
        link_text(link, VALUE_END);
    } else
        put_of_key(link, "HGETALL", key, key_len);
    put_of_key(link, "PTTL", key, key_len);
    put_word(link, "TIME");
    if (driver->queued) {
        link_command(link, 2);
        link_text(link, "LLEN");
        key_put_of(link, key, key_len, KEY_QUEUE);
    }
    put_word(link, "EXEC");
}

unsigned inspect_replies(const struct driver *driver)
{
    if (driver->in_cluster)
        return 1;
    return driver->queued || driver->transaction != NULL ? 6 : 5;
}

bool inspect_take(const struct driver *driver, const redisReply *reply, mortise_info *info)
{
    size_t parts = driver->queued || driver->in_cluster ? 4 : 3;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != parts)
        return false;
    const redisReply *held = reply->element[0], *remaining = reply->element[1];
    uint64_t now_us = text_time_us(reply->element[2]);
    bool lock = false;
    bool there = remaining->type != REDIS_REPLY_INTEGER || remaining->integer != -2;
    if (held->type == REDIS_REPLY_STRING && there) /* GETRANGE of an absent key is "" */
        lock = holder_of_string(held->str, held->len, now_us, info);
    else if (held->type == REDIS_REPLY_ARRAY && held->elements > 0)
        lock = holder_of_hash(driver, held, now_us, info);
    if (info->held && remaining->type == REDIS_REPLY_INTEGER)
        info->remaining_ms = remaining->integer < 0 ? -1 : remaining->integer;
    if (driver->queued && reply->element[3]->type == REDIS_REPLY_INTEGER)
        info->waiters = (int32_t)reply->element[3]->integer;
    if (!driver->fencing)
        info->token = 0;
    return lock;
}

static void inspected(struct request *request, redisReply *reply);

static void emit(struct request *request, const mortise_info *info)
{
    struct driver *driver = request->driver;
    mortise_op *op = request->op;
    if (op->emitted == NULL || !info->held)
        return;
    mortise_info named = *info;
    text_copy(named.name, sizeof(named.name), op->name, op->name_len);
    driver->host->emit(driver->host, op, &named);
}

static void ask(struct request *request)
{
    const mortise_op *op = request->op;
    request_go_on(request, inspected);
    inspect_put(request->driver, true, op->name, op->name_len);
    link_call_end(&request->driver->link, &request->call, inspect_replies(request->driver));
}

/* The holders of a shared lock. If nobody shares it any more, it is read anew. */
static void holders_told(struct request *request, redisReply *reply)
{
    struct driver *driver = request->driver;
    mortise_op *op = request->op;
    if (!shared_take(driver, reply, 0, op->info) && !shared_is_broken(reply)) {
        ask(request);
        return;
    }
    mortise_info info = *op->info;
    if (shared_is_broken(reply))
        emit(request, &info);
    for (size_t i = 0; shared_take(driver, reply, i, &info); i++)
        emit(request, &info);
    op_complete(driver, op, MORTISE_OK);
}

static void inspected(struct request *request, redisReply *reply)
{
    struct driver *driver = request->driver;
    mortise_op *op = request->op;
    mortise_info *info = op->info;
    if (reply->type != REDIS_REPLY_ARRAY) {
        op_fail_odd(driver, op);
        return;
    }
    info->held = false;
    info->waiters = -1;
    info->held_ms = info->remaining_ms = 0;
    inspect_take(driver, reply, info);
    if (info->held && driver_shares(driver) && shared_is_marker(reply->element[0])) {
        request_go_on(request, holders_told);
        shared_put_look(driver, true, data_of(op)->asking, op->name, op->name_len);
        link_call_end(&driver->link, &request->call, 1);
        return;
    }
    emit(request, info);
    op_complete(driver, op, MORTISE_OK);
}

void inspect_start(struct driver *driver, mortise_op *op)
{
    struct request *request = request_begin(driver, op, inspected);
    if (request == NULL)
        return;
    ask(request);
}

/* ---- ping -------------------------------------------------------------------------------------------- */

static void pinged(struct request *request, redisReply *reply)
{
    struct driver *driver = request->driver;
    mortise_op *op = request->op;
    const char *version = driver->link.version;
    (void)reply;
    if (op->buffer != NULL && op->buffer_size > 0)
        snprintf(op->buffer, op->buffer_size, "Redis %s at %s, run %.12s%s",
                 version[0] != '\0' ? version : "(unknown version)", driver->settings.endpoint.text,
                 driver->link.run_id[0] != '\0' ? driver->link.run_id : "unknown",
                 driver->primary != NULL ? primary_sentinels(driver->primary) : "");
    if (op->buffer != NULL && op->buffer_size > 0)
        findings_ask(request);
    else
        op_complete(driver, op, MORTISE_OK);
}

/* Why the server grants nothing: a replica and a Sentinel answer PING as well. */
static const char *why_not(const redisReply *role)
{
    if (role->type != REDIS_REPLY_ARRAY || role->elements == 0 ||
        role->element[0]->type != REDIS_REPLY_STRING)
        return NULL; /* the user may not ask */
    if (strcmp(role->element[0]->str, "slave") == 0)
        return "a replica, which cannot be written to: `servers` must name the primary, or all "
               "servers";
    if (strcmp(role->element[0]->str, "sentinel") == 0)
        return "a Sentinel: `sentinel = name@address` finds the primary through it";
    return NULL;
}

static void role_told(struct request *request, redisReply *reply)
{
    struct driver *driver = request->driver;
    const char *reason = why_not(reply);
    if (reason != NULL && driver->link.role_told) { /* it was the primary before */
        struct link_fault fault;
        failover_fault(driver, &fault);
        op_fail(driver, request->op, &fault);
        link_break(&driver->link, &fault);
        return;
    }
    if (reason != NULL) {
        struct link_fault fault = {.status = MORTISE_BACKEND};
        snprintf(fault.text, sizeof(fault.text), "%s is %s", driver->settings.endpoint.text,
                 reason);
        op_fail(driver, request->op, &fault);
        return;
    }
    request_go_on(request, pinged);
    if (driver->transaction != NULL) {
        put_word(&driver->link, "PING");
    } else { /* the user must be permitted to run scripts */
        link_command(&driver->link, 3);
        link_text(&driver->link, "EVAL");
        link_text(&driver->link, "return 1");
        link_text(&driver->link, "0");
    }
    link_call_end(&driver->link, &request->call, 1);
}

void inspect_ping(struct driver *driver, mortise_op *op)
{
    struct request *request = request_begin(driver, op, role_told);
    if (request == NULL)
        return;
    request->takes_errors = true; /* the user may not be allowed to ask */
    put_word(&driver->link, "ROLE");
    link_call_end(&driver->link, &request->call, 1);
}
