/* lease.c - what is sent for an acquire, a release and a break. protocol.md says what the server does then. */
#include "redis.h"

#include <time.h>

static void acquired(struct request *request, redisReply *reply);

/* ---- acquire ------------------------------------------------------------------------------------------ */

static void put_floor(struct driver *driver, const mortise_op *op)
{
    if (driver->fencing)
        link_number(&driver->link, (int64_t)failover_floor(driver, op));
    else
        link_text(&driver->link, "-");
}

/* The call, with its keys. */
static void begin_taking(struct request *request, const mortise_op *op, enum script script,
                         unsigned arguments)
{
    struct driver *driver = request->driver;
    request_script(request, script, driver->queued ? 3 : 2, arguments);
    key_put(&driver->link, op, KEY_LOCK);
    key_put(&driver->link, op, KEY_TOKEN);
    if (driver->queued)
        key_put(&driver->link, op, KEY_QUEUE);
}

/* Only scripts that hand the lock on need the token and the queue. */
static void begin_giving(struct request *request, const mortise_op *op, enum script script,
                         enum script queued, unsigned arguments)
{
    struct driver *driver = request->driver;
    if (driver->queued) {
        begin_taking(request, op, queued, arguments);
        return;
    }
    request_script(request, script, 1, arguments);
    key_put(&driver->link, op, KEY_LOCK);
}

/* The arguments that the scripts of all layouts have. */
static void put_acquire(struct request *request, const mortise_op *op, enum script script,
                        unsigned more)
{
    struct driver *driver = request->driver;
    struct link *link = &driver->link;
    begin_taking(request, op, script, 4 + more);
    key_put_grant(link, op);
    link_number(link, op->ttl_ms);
    put_floor(driver, op);
    link_argument(link, op->note, op->note_len);
}

static void put_hash(struct request *request, const mortise_op *op, bool wish)
{
    bool queued = request->driver->queued;
    put_acquire(request, op, queued ? SCRIPT_QUEUE_HASH_ACQUIRE : SCRIPT_HASH_ACQUIRE, 1 + wish);
    link_argument(&request->driver->link, op->owner, op->owner_len);
}

static void put_string(struct request *request, const mortise_op *op, bool wish)
{
    bool queued = request->driver->queued;
    put_acquire(request, op, queued ? SCRIPT_QUEUE_STRING_ACQUIRE : SCRIPT_STRING_ACQUIRE, wish);
}

static void put_redisson(struct request *request, const mortise_op *op)
{
    put_acquire(request, op, SCRIPT_REDISSON_ACQUIRE, 2);
    key_put_owner(&request->driver->link, op);
}

/* ---- without tokens: SET NX PX, as other clients send it --------------------------------------------- */

/* It was not set: the lock is another's, or this grant's by an earlier try. */
static void looked(struct request *request, redisReply *reply)
{
    struct driver *driver = request->driver;
    mortise_op *op = request->op;
    char hex[GRANT_HEX + 1];
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3) {
        op_fail_odd(driver, op);
        return;
    }
    const redisReply *held = reply->element[0];
    if (held->type == REDIS_REPLY_ERROR) {
        struct link_fault fault;
        link_fault_reply(&driver->link, held, &fault);
        op_fail(driver, op, &fault);
        return;
    }
    key_hex(&op->grant, hex);
    bool mine = held->type == REDIS_REPLY_STRING && held->len >= GRANT_HEX &&
                memcmp(held->str, hex, GRANT_HEX) == 0;
    if (mine)
        answer_found(driver, op, 0, reply->element[1]->integer, request->call.sent_ns);
    else {
        if (op->info != NULL)
            inspect_take(driver, reply, op->info);
        answer_busy(driver, op, reply->element[1]->integer);
    }
}

static void look(struct request *request)
{
    request_go_on(request, looked);
    inspect_put(request->driver, request->op->name, request->op->name_len);
    link_call_end(&request->driver->link, &request->call, inspect_replies(request->driver));
}

static void set(struct request *request, redisReply *reply)
{
    if (reply->type == REDIS_REPLY_STATUS)
        answer_granted(request->driver, request->op, 0, request->call.sent_ns);
    else if (reply->type == REDIS_REPLY_NIL)
        look(request);
    else
        op_fail_odd(request->driver, request->op);
}

static void put_set(struct request *request, const mortise_op *op)
{
    struct link *link = &request->driver->link;
    struct timespec now; /* only for people to read */
    clock_gettime(CLOCK_REALTIME, &now);
    request->answer = set;
    link_command(link, 6);
    link_argument(link, "SET", 3);
    key_put(link, op, KEY_LOCK);
    holder_put(link, op, 0, (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
    link_argument(link, "NX", 2);
    link_argument(link, "PX", 2);
    link_number(link, op->ttl_ms);
}

void lease_acquire(struct driver *driver, mortise_op *op)
{
    char text[WISH_SIZE];
    struct request *request = request_begin(driver, op, acquired);
    if (request == NULL)
        return;
    if (driver->queued)
        request->wish = queue_wish(request, text);
    bool wish = request->wish != WISH_NONE;
    if (driver->layout == LAYOUT_HASH)
        put_hash(request, op, wish);
    else if (driver->layout == LAYOUT_REDISSON)
        put_redisson(request, op);
    else if (driver->fencing)
        put_string(request, op, wish);
    else
        put_set(request, op);
    if (wish)
        link_text(&driver->link, text);
    link_call_end(&driver->link, &request->call, 1);
}

/* {remaining, …} */
static bool is_pair(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements >= 2 &&
           reply->element[0]->type == REDIS_REPLY_INTEGER;
}

/* {remaining, token} */
static bool is_found(const redisReply *reply)
{
    return is_pair(reply) && reply->element[1]->type == REDIS_REPLY_INTEGER &&
           reply->element[1]->integer > 0;
}

static void queued(struct request *request, int64_t at_latest_ms)
{
    struct driver *driver = request->driver;
    mortise_op *op = request->op;
    if (queue_keep(driver, op, request->wish, at_latest_ms, request->call.sent_ns))
        return;
    if (seat_is_placed(op))
        op_fail_deaf(driver, op);
    else
        op_fail_odd(driver, op);
}

static void is_busy(struct request *request, const redisReply *reply)
{
    struct driver *driver = request->driver;
    mortise_op *op = request->op;
    int64_t remaining_ms = reply->element[0]->integer;
    int64_t at_latest_ms =
        remaining_ms >= 0 && remaining_ms < INT64_MAX ? remaining_ms + 1 : op->ttl_ms;
    if (queue_keep(driver, op, WISH_NONE, at_latest_ms, request->call.sent_ns))
        return;
    if (seat_is_placed(op)) {
        op_fail_deaf(driver, op);
        return;
    }
    if (op->info != NULL)
        holder_of_refusal(driver, reply, op->info);
    answer_busy(driver, op, remaining_ms);
}

static void acquired(struct request *request, redisReply *reply)
{
    struct driver *driver = request->driver;
    mortise_op *op = request->op;
    int64_t sent_ns = request->call.sent_ns, number = reply->integer;
    if (reply->type == REDIS_REPLY_INTEGER && number > 0)
        answer_granted(driver, op, (uint64_t)number, sent_ns);
    else if (reply->type == REDIS_REPLY_INTEGER && number < 0 && number > INT64_MIN &&
             request->wish != WISH_NONE)
        queued(request, -number);
    else if (is_found(reply))
        answer_found(driver, op, (uint64_t)reply->element[1]->integer, reply->element[0]->integer,
                     sent_ns);
    else if (is_pair(reply))
        is_busy(request, reply);
    else
        op_fail_odd(driver, op);
}

/* ---- release, break -------------------------------------------------------------------------------------- */

static void released(struct request *request, redisReply *reply)
{
    if (reply->type == REDIS_REPLY_INTEGER)
        answer_released(request->driver, request->op, reply->integer);
    else
        op_fail_odd(request->driver, request->op);
}

static void put_break(struct request *request, const mortise_op *op)
{
    static const enum script scripts[] = {[LAYOUT_STRING] = SCRIPT_STRING_BREAK,
                                          [LAYOUT_HASH] = SCRIPT_HASH_BREAK,
                                          [LAYOUT_REDISSON] = SCRIPT_REDISSON_BREAK};
    static const enum script queued[] = {[LAYOUT_STRING] = SCRIPT_QUEUE_STRING_BREAK,
                                         [LAYOUT_HASH] = SCRIPT_QUEUE_HASH_BREAK,
                                         [LAYOUT_REDISSON] = SCRIPT_COUNT};
    struct driver *driver = request->driver;
    begin_giving(request, op, scripts[driver->layout], queued[driver->layout], 2);
    link_number(&driver->link, (int64_t)op->token);
    key_put_channel(&driver->link, driver, op);
}

static void put_release(struct request *request, const mortise_op *op)
{
    static const enum script scripts[] = {[LAYOUT_STRING] = SCRIPT_STRING_RELEASE,
                                          [LAYOUT_HASH] = SCRIPT_HASH_RELEASE,
                                          [LAYOUT_REDISSON] = SCRIPT_REDISSON_RELEASE};
    static const enum script queued[] = {[LAYOUT_STRING] = SCRIPT_QUEUE_STRING_RELEASE,
                                         [LAYOUT_HASH] = SCRIPT_QUEUE_HASH_RELEASE,
                                         [LAYOUT_REDISSON] = SCRIPT_COUNT};
    struct driver *driver = request->driver;
    bool redisson = driver->layout == LAYOUT_REDISSON;
    begin_giving(request, op, scripts[driver->layout], queued[driver->layout], redisson ? 4 : 2);
    key_put_grant(&driver->link, op);
    key_put_channel(&driver->link, driver, op);
    if (redisson)
        key_put_owner(&driver->link, op);
}

void lease_release(struct driver *driver, mortise_op *op)
{
    struct request *request = request_begin(driver, op, released);
    if (request == NULL)
        return;
    if ((op->flags & MORTISE_OP_BREAK) != 0)
        put_break(request, op);
    else
        put_release(request, op);
    link_call_end(&driver->link, &request->call, 1);
}
