/* lease.c - what is sent for an acquire, a release and a break. protocol.md says what the server does with it. */
#include "seats.h"
#include "sending.h"
#include "shared.h"

#include <time.h>

static void acquired(struct request *request, redisReply *reply);

/* ---- scripts ---------------------------------------------------------------------------------------- */

struct family {
    enum script acquire, release, breaks;
};

static const struct family *family_of(const struct driver *driver)
{
    static const struct family families[][2] = {
        /* without a queue, with one */
        [LAYOUT_STRING] = {{SCRIPT_STRING_ACQUIRE, SCRIPT_STRING_RELEASE, SCRIPT_STRING_BREAK},
                           {SCRIPT_QUEUE_STRING_ACQUIRE, SCRIPT_QUEUE_STRING_RELEASE,
                            SCRIPT_QUEUE_STRING_BREAK}},
        [LAYOUT_HASH] = {{SCRIPT_HASH_ACQUIRE, SCRIPT_HASH_RELEASE, SCRIPT_HASH_BREAK},
                         {SCRIPT_QUEUE_HASH_ACQUIRE, SCRIPT_QUEUE_HASH_RELEASE,
                          SCRIPT_QUEUE_HASH_BREAK}},
        [LAYOUT_REDISSON] = {{SCRIPT_REDISSON_ACQUIRE, SCRIPT_REDISSON_RELEASE,
                              SCRIPT_REDISSON_BREAK}},
    };
    return &families[driver->layout][driver->queued];
}

static void put_keys(struct driver *driver, const mortise_op *op, unsigned count)
{
    static const enum key keys[] = {KEY_LOCK, KEY_TOKEN, KEY_QUEUE};
    for (unsigned i = 0; i < count; i++)
        key_put(&driver->link, op, keys[i]);
}

/* ---- acquire ---------------------------------------------------------------------------------------- */

/* wish: NULL for none. */
static void put_acquire(struct request *request, const mortise_op *op, const char *wish)
{
    static const unsigned char owner_arguments[] = {
        [LAYOUT_STRING] = 0, [LAYOUT_HASH] = 1, [LAYOUT_REDISSON] = 2};
    struct driver *driver = request->driver;
    struct link *link = &driver->link;
    unsigned keys = driver->queued ? 3 : 2;
    request_script(request, family_of(driver)->acquire, keys,
                   4 + owner_arguments[driver->layout] + (wish != NULL));
    put_keys(driver, op, keys);
    key_put_grant(link, op);
    link_number(link, op->ttl_ms);
    if (driver->fencing)
        link_number(link, (int64_t)failover_floor(driver, op));
    else
        link_text(link, "-");
    link_argument(link, op->note, op->note_len);
    if (driver->layout == LAYOUT_HASH)
        link_argument(link, op->owner, op->owner_len);
    else if (driver->layout == LAYOUT_REDISSON)
        key_put_owner(link, op);
    if (wish != NULL)
        link_text(link, wish);
}

/* ---- without tokens: SET NX PX, as other clients send it --------------------------------------------- */

/* The key was not set: the lock is another's, or this grant's by an earlier try. */
static void looked(struct request *request, redisReply *reply)
{
    struct driver *driver = request->driver;
    mortise_op *op = request->op;
    char hex[GRANT_HEX + 1];
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 3) {
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
    inspect_put(request->driver, true, request->op->name, request->op->name_len);
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
    if (op->mode == MORTISE_SHARED)
        shared_put_acquire(request, request->wish != WISH_NONE ? text : NULL);
    else if (driver->layout == LAYOUT_STRING && !driver->fencing)
        put_set(request, op);
    else
        put_acquire(request, op, request->wish != WISH_NONE ? text : NULL);
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
    if (queue_keep(request, true, at_latest_ms))
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
    request_made_no_place(request); /* it asked for one, but is barred */
    bool stays = queue_may_wait(driver, op);
    if (!stays && seat_is_placed(op)) {
        op_fail_deaf(driver, op);
        return;
    }
    if (!stays && op->info != NULL) {
        holder_of_refusal(driver, reply, op->info);
        shared_describe(reply, op->info);
    }
    if (!shared_bar(request, reply))
        queue_refuse(request, reply->element[0]->integer);
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
    else if (!shared_mismatch(request, reply))
        op_fail_odd(driver, op);
}

/* ---- release, break -------------------------------------------------------------------------------------- */

/* Whether "another's" may mean a marker of shared holders: a break does not know the mode, and a downgrade may have been
 * executed. */
static bool may_be_shared(const struct driver *driver, const mortise_op *op)
{
    return (op->flags & (MORTISE_OP_BREAK | MORTISE_OP_DOWNGRADE)) != 0 && driver_shares(driver);
}

static void released(struct request *request, redisReply *reply)
{
    if (reply->type == REDIS_REPLY_INTEGER && reply->integer == 1 &&
        may_be_shared(request->driver, request->op))
        shared_release(request);
    else if (reply->type == REDIS_REPLY_INTEGER && reply->integer >= 0 && reply->integer <= 2)
        answer_released(request->driver, request->op, reply->integer);
    else
        op_fail_odd(request->driver, request->op);
}

void lease_release(struct driver *driver, mortise_op *op)
{
    struct link *link = &driver->link;
    struct request *request = request_begin(driver, op, released);
    if (request == NULL)
        return;
    if (op->mode == MORTISE_SHARED && (op->flags & MORTISE_OP_BREAK) == 0) {
        shared_release(request);
        return;
    }
    if (turn_take_along(request))
        return;
    const struct family *family = family_of(driver);
    bool breaks = (op->flags & MORTISE_OP_BREAK) != 0;
    const char *verb = pubsub_verb(driver);
    bool names_owner = driver->layout == LAYOUT_REDISSON && !breaks;
    unsigned keys =
        driver->queued ? 3 : 1; /* to hand the lock on, the script needs the token and the queue */
    request_script(request, breaks ? family->breaks : family->release, keys,
                   (names_owner ? 4 : 2) + (verb != NULL));
    put_keys(driver, op, keys);
    if (breaks)
        link_number(link, (int64_t)op->token);
    else
        key_put_grant(link, op);
    key_put_channel(link, driver, op);
    if (names_owner)
        key_put_owner(link, op);
    if (verb != NULL)
        link_text(link, verb);
    link_call_end(link, &request->call, 1);
}
