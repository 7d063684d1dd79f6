/* look.c - looking at one lock, and at the server. What a lock says of itself, how long it still lives and
 * what time it is there are read as one step. */
#include "internal.h"

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

void look_put(struct driver *driver, const char *key, size_t key_len)
{
    struct link *link = &driver->link;
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

unsigned look_replies(const struct driver *driver)
{
    return driver->queued || driver->transaction != NULL ? 6 : 5;
}

bool look_take(const struct driver *driver, const redisReply *reply, mortise_info *info)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != (driver->queued ? 4 : 3))
        return false;
    const redisReply *held = reply->element[0], *remaining = reply->element[1];
    uint64_t now_us = holder_time_us(reply->element[2]);
    bool lock = false;
    bool there = remaining->type != REDIS_REPLY_INTEGER || remaining->integer != -2;
    if (held->type == REDIS_REPLY_STRING && there) /* GETRANGE says "" of a key that is not there */
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

static void inspected(struct flight *flight, redisReply *reply)
{
    mortise_info *info = flight->op->info;
    info->held = false;
    info->waiters = -1;
    info->held_ms = info->remaining_ms = 0;
    look_take(flight->driver, reply, info);
    flow_complete(flight->driver, flight->op, MORTISE_OK);
}

void look_inspect(struct driver *driver, mortise_op *op)
{
    struct flight *flight = flow_take_off(driver, op, inspected);
    if (flight == NULL)
        return;
    look_put(driver, op->name, op->name_len);
    link_call_end(&driver->link, &flight->call, look_replies(driver));
}

/* ---- ping -------------------------------------------------------------------------------------------- */

static void pinged(struct flight *flight, redisReply *reply)
{
    struct driver *driver = flight->driver;
    mortise_op *op = flight->op;
    const char *version = driver->link.version;
    (void)reply;
    if (op->buffer != NULL && op->buffer_size > 0)
        snprintf(op->buffer, op->buffer_size, "Redis %s at %s, run %.12s%s",
                 version[0] != '\0' ? version : "(unknown version)", driver->settings.endpoint.text,
                 driver->link.run_id[0] != '\0' ? driver->link.run_id : "unknown",
                 driver->primary != NULL ? primary_sentinels(driver->primary) : "");
    flow_complete(driver, op, MORTISE_OK);
}

/* A replica and a Sentinel answer PING as well, and grant nothing. */
static const char *why_not(const redisReply *role)
{
    if (role->type != REDIS_REPLY_ARRAY || role->elements == 0 ||
        role->element[0]->type != REDIS_REPLY_STRING)
        return NULL; /* the user may not ask: then nothing is known */
    if (strcmp(role->element[0]->str, "slave") == 0)
        return "a replica, which cannot be written to: `servers` must name the primary, or all "
               "servers";
    if (strcmp(role->element[0]->str, "sentinel") == 0)
        return "a Sentinel: `sentinel = name@address` finds the primary through it";
    return NULL;
}

void look_role_told(struct flight *flight, redisReply *reply)
{
    struct driver *driver = flight->driver;
    const char *reason = why_not(reply);
    if (reason != NULL) {
        struct link_fault fault = {.status = MORTISE_BACKEND};
        snprintf(fault.text, sizeof(fault.text), "%s is %s", driver->settings.endpoint.text,
                 reason);
        flow_fail(driver, flight->op, &fault);
        return;
    }
    flow_go_on(flight, pinged);
    if (driver->transaction != NULL) {
        put_word(&driver->link, "PING");
    } else { /* and scripts must be allowed to run */
        link_command(&driver->link, 3);
        link_text(&driver->link, "EVAL");
        link_text(&driver->link, "return 1");
        link_text(&driver->link, "0");
    }
    link_call_end(&driver->link, &flight->call, 1);
}

void look_ping(struct driver *driver, mortise_op *op)
{
    struct flight *flight = flow_take_off(driver, op, look_role_told);
    if (flight == NULL)
        return;
    put_word(&driver->link, "ROLE");
    link_call_end(&driver->link, &flight->call, 1);
}
