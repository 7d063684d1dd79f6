/* shared.c - shared holders of a lock: how they acquire and release, how an exclusive holder becomes shared, how an exclusive
 * waiter without a place bars new holders, and how holders are listed. protocol.md has the keys, the states and the table of
 * what can happen; scripts/include/shared.lua is the server's part. Renewals go with the others (renewal.c).
 *
 *   An exclusive acquire pays nothing for all this, with one exception: if it is BUSY because of a marker, and waits without a
 *     queue, or can have no place because it cannot be notified (pubsub.c), a second request sets the bar.
 *   A break does not know the mode: if the exclusive script finds another's lock, the shared one follows. The same holds for
 *     the release of a claim that may have been downgraded: first as exclusive, then as shared, because a claim changes only in
 *     this direction. */
#include "shared.h"

#include "seats.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BAR_MS 2000
#define BAR_HINT_MS 1000 /* the waiter sets the bar again before it is over */
#define PHASE "shared:"

static void put_layout(struct driver *driver)
{
    link_text(&driver->link, driver->layout == LAYOUT_HASH ? "hash" : "string");
}

/* In a cluster the server must know all keys. Otherwise it would execute the script while some of them are on their way. */
static void put_script(struct request *request, enum script script, unsigned arguments)
{
    static const enum key keys[] = {KEY_LOCK, KEY_TOKEN, KEY_QUEUE, KEY_HOLDERS, KEY_SHARES};
    unsigned count = request->driver->in_cluster ? 5 : 3;
    request_script(request, script, count, arguments);
    for (unsigned i = 0; i < count; i++)
        key_put(&request->driver->link, request->op, keys[i]);
}

/* ---- acquire ---------------------------------------------------------------------------------------- */

void shared_put_acquire(struct request *request, const char *wish)
{
    struct driver *driver = request->driver;
    struct link *link = &driver->link;
    const mortise_op *op = request->op;
    put_script(request, SCRIPT_SHARED_ACQUIRE, 7);
    key_put_grant(link, op);
    link_number(link, op->ttl_ms);
    link_number(link, (int64_t)failover_floor(driver, op));
    link_argument(link, op->note, op->note_len);
    link_number(link, op->permits);
    put_layout(driver);
    link_text(link, wish != NULL ? wish : driver->queued ? "try" : "bar");
}

bool shared_mismatch(struct request *request, const redisReply *reply)
{
    struct driver *driver = request->driver;
    mortise_op *op = request->op;
    mortise_info info = {.size = sizeof(info)};
    char text[300];
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 ||
        !text_is(reply->element[0], "permits") || reply->element[1]->type != REDIS_REPLY_STRING ||
        reply->element[2]->type != REDIS_REPLY_STRING)
        return false;
    holder_of_string(reply->element[2]->str, reply->element[2]->len, 0, &info);
    snprintf(text, sizeof(text),
             "permits = %" PRIu32 " was asked for, but %s (pid %" PRId64
             ") holds it with permits = %" PRIu64 ": all callers of a name must give the same",
             op->permits, info.host, info.pid,
             text_number(reply->element[1]->str, reply->element[1]->len));
    if (request->seat != NULL)
        request->seat->placed = false; /* its places in the queue were removed */
    op_fail_as(driver, op, MORTISE_INVALID, false, text);
    return true;
}

/* ---- barred by an exclusive waiter ---------------------------------------------------------------------- */

bool shared_is_marker(const redisReply *held)
{
    if (held->type == REDIS_REPLY_STRING)
        return held->len > GRANT_HEX && memcmp(held->str, PHASE, strlen(PHASE)) == 0;
    for (size_t i = 0; held->type == REDIS_REPLY_ARRAY && i + 1 < held->elements; i += 2)
        if (text_is(held->element[i], "o"))
            return held->element[i + 1]->type == REDIS_REPLY_STRING &&
                   held->element[i + 1]->len == GRANT_HEX &&
                   memcmp(held->element[i + 1]->str, PHASE, strlen(PHASE)) == 0;
    return false;
}

void shared_describe(const redisReply *reply, mortise_info *info)
{
    bool counted = reply->elements >= 5 && reply->element[3]->type == REDIS_REPLY_INTEGER &&
                   reply->element[4]->type == REDIS_REPLY_INTEGER && reply->element[4]->integer > 0;
    if (!counted && !shared_is_marker(reply->element[1]))
        return;
    info->mode = MORTISE_SHARED;
    info->permits = counted ? (uint32_t)reply->element[3]->integer : 0;
    info->holders = counted ? (uint32_t)reply->element[4]->integer : 1;
}

/* An error is an answer, too: the user may lack the rights that sharing needs, and needs none of them otherwise. The op asks
 * again soon, as it would without a bar. */
static void barred(struct request *request, redisReply *reply)
{
    struct driver *driver = request->driver;
    int64_t remaining_ms = reply->type == REDIS_REPLY_INTEGER ? reply->integer : BAR_HINT_MS;
    if (remaining_ms > BAR_HINT_MS || remaining_ms == -1)
        remaining_ms = BAR_HINT_MS;
    bool unknown = reply->type == REDIS_REPLY_ERROR && !request->by_text &&
                   link_error_of(reply->str, reply->len) == LINK_ERROR_NOSCRIPT;
    if (unknown)
        driver->known[SCRIPT_SHARED_BAR] = false;
    if (unknown && !driver->queued) /* once more, with the text */
        driver->dispatch->send(driver, request_let_go(request));
    else
        queue_refuse(request, remaining_ms);
}

bool shared_bar(struct request *request, const redisReply *reply)
{
    struct driver *driver = request->driver;
    const mortise_op *op = request->op;
    bool may_have_place = driver->queued && !driver->deaf && !driver->unheard.asks;
    if (may_have_place || (op->flags & MORTISE_OP_TRY) != 0 || op->mode == MORTISE_SHARED ||
        !driver_shares(driver) || !shared_is_marker(reply->element[1]))
        return false;
    request_go_on(request, barred);
    request->takes_errors = true;
    put_script(request, SCRIPT_SHARED_BAR, 2);
    put_layout(driver);
    link_number(&driver->link, BAR_MS);
    link_call_end(&driver->link, &request->call, 1);
    return true;
}

/* ---- release, downgrade ------------------------------------------------------------------------------------ */

static void released(struct request *request, redisReply *reply)
{
    if (reply->type == REDIS_REPLY_INTEGER && reply->integer >= 0 && reply->integer <= 2)
        answer_released(request->driver, request->op, reply->integer);
    else
        op_fail_odd(request->driver, request->op);
}

static void put_news(struct driver *driver, const mortise_op *op)
{
    key_put_channel(&driver->link, driver, op);
    put_layout(driver);
    link_text(&driver->link, driver->queued ? "queue" : "news");
    if (pubsub_verb(driver) != NULL)
        link_text(&driver->link, pubsub_verb(driver));
}

void shared_release(struct request *request)
{
    struct driver *driver = request->driver;
    const mortise_op *op = request->op;
    request_go_on(request, released);
    put_script(request, SCRIPT_SHARED_RELEASE, 4 + (pubsub_verb(driver) != NULL));
    if ((op->flags & MORTISE_OP_BREAK) != 0) {
        char text[32];
        snprintf(text, sizeof(text), "token:%" PRIu64, op->token);
        link_text(&driver->link, text);
    } else {
        key_put_grant(&driver->link, op);
    }
    put_news(driver, op);
    link_call_end(&driver->link, &request->call, 1);
}

static void downgraded(struct request *request, redisReply *reply)
{
    if (reply->type == REDIS_REPLY_INTEGER && reply->integer == 2 && data_of(request->op)->asking)
        request->driver->routes->released(request->driver, request->op);
    if (reply->type == REDIS_REPLY_INTEGER && reply->integer >= 0 && reply->integer <= 2)
        answer_renewed(request->driver, request->op, (char)('0' + reply->integer),
                       request->call.sent_ns);
    else
        op_fail_odd(request->driver, request->op);
}

void shared_downgrade(struct driver *driver, mortise_op *op)
{
    struct request *request = request_begin(driver, op, downgraded);
    if (request == NULL)
        return;
    put_script(request, SCRIPT_SHARED_DOWNGRADE, 5 + (pubsub_verb(driver) != NULL));
    key_put_grant(&driver->link, op);
    link_number(&driver->link, op->ttl_ms);
    put_news(driver, op);
    link_call_end(&driver->link, &request->call, 1);
}

/* ---- who they are --------------------------------------------------------------------------------------- */

/* The queue, which may not exist, is not given as a key, because a cluster would refuse such a call while the slot is on
 * its way. */
void shared_put_look(struct driver *driver, bool first, bool asking, const char *key,
                     size_t key_len)
{
    static const enum key keys[] = {KEY_LOCK, KEY_HOLDERS, KEY_SHARES};
    if (first)
        driver->known[SCRIPT_SHARED_LOOK] = false;
    script_put(driver, SCRIPT_SHARED_LOOK, 3, 2, asking);
    for (unsigned i = 0; i < 3; i++)
        key_put_of(&driver->link, key, key_len, keys[i]);
    put_layout(driver);
    key_put_of(&driver->link, key, key_len, KEY_QUEUE);
}

bool shared_take(const struct driver *driver, const redisReply *reply, size_t index,
                 mortise_info *info)
{
    size_t at = 3 * (index + 1);
    if (reply->type != REDIS_REPLY_ARRAY || at + 2 >= reply->elements ||
        reply->element[0]->type != REDIS_REPLY_STRING)
        return false;
    const redisReply *now = reply->element[0], *grant = reply->element[at],
                     *note = reply->element[at + 2];
    if (grant->type != REDIS_REPLY_STRING || note->type != REDIS_REPLY_STRING ||
        reply->element[at + 1]->type != REDIS_REPLY_INTEGER)
        return false;
    const char *text = note->str, *end = note->str + note->len;
    size_t token_len, since_len;
    const char *token = text_part(&text, end, ' ', &token_len);
    const char *since = text_part(&text, end, '\n', &since_len);
    holder_set(info, grant->str, grant->len, text_number(token, token_len),
               text_number(since, since_len), text_number(now->str, now->len), text,
               (size_t)(end - text));
    info->remaining_ms = reply->element[at + 1]->integer;
    info->mode = MORTISE_SHARED;
    info->permits = (uint32_t)reply->element[1]->integer;
    info->holders = (uint32_t)(reply->elements / 3 - 1);
    if (driver->queued && reply->element[2]->type == REDIS_REPLY_INTEGER)
        info->waiters = (int32_t)reply->element[2]->integer;
    return true;
}

bool shared_is_broken(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
           reply->element[1]->type == REDIS_REPLY_INTEGER && reply->element[1]->integer == -1;
}
