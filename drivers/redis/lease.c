/* lease.c - acquire, release and break: what is sent for them, and what the answers mean. What the scripts
 * do stands in scripts/. */
#include "internal.h"

#include <time.h>

static void acquired(struct flight *flight, redisReply *reply);

/* ---- what an answer means --------------------------------------------------------------------------- */

static void hold(struct driver *driver, mortise_op *op, uint64_t token, int64_t from_ns,
                 int64_t good_for_ms)
{
    op->token = driver->fencing ? token : 0;
    op->from_ns = from_ns;
    op->good_for_ms = good_for_ms;
    flow_complete(driver, op, MORTISE_OK);
}

void lease_granted(struct driver *driver, mortise_op *op, uint64_t token, int64_t sent_ns)
{
    hold(driver, op, token, sent_ns, op->ttl_ms);
}

/* What was first sent may be of another history than what is found: a request to another primary, which this one
 * never heard of. So it is believed for no longer than it says, from before it was asked. */
void lease_found(struct driver *driver, mortise_op *op, uint64_t token, int64_t remaining_ms,
                 int64_t sent_ns)
{
    int64_t left_ms = remaining_ms > 0 ? remaining_ms : 0;
    bool less = remaining_ms != -1 && left_ms < op->ttl_ms &&
                sent_ns + left_ms * NS_PER_MS < op->first_sent_ns + op->ttl_ms * NS_PER_MS;
    if (less)
        hold(driver, op, token, sent_ns, left_ms);
    else
        hold(driver, op, token, op->first_sent_ns, op->ttl_ms);
}

void lease_busy(struct driver *driver, mortise_op *op, int64_t remaining_ms)
{
    if (remaining_ms > MORTISE_TTL_MAX_MS)
        remaining_ms = MORTISE_TTL_MAX_MS;
    int64_t hint_ms = remaining_ms < -1 ? 0 : remaining_ms;
    bool looks = driver->foreign_polled || news_is_refused(driver, op);
    if (looks && (hint_ms < 0 || hint_ms > driver->retry_ms))
        hint_ms = driver->retry_ms;
    if (op->info != NULL)
        op->info->remaining_ms = remaining_ms < -1 ? 0 : remaining_ms;
    op->hint_ms = hint_ms;
    flow_complete(driver, op, MORTISE_BUSY);
}

void lease_released(struct driver *driver, mortise_op *op, int64_t answer)
{
    op->sure = flow_is_sure(driver, &op->grant);
    flow_complete(driver, op,
                  answer == 2   ? MORTISE_OK
                  : answer == 1 ? MORTISE_NOTOWNER
                                : MORTISE_LOST);
}

/* ---- acquire ------------------------------------------------------------------------------------------ */

static void put_floor(struct driver *driver, const mortise_op *op)
{
    if (driver->fencing)
        link_number(&driver->link, (int64_t)place_floor(driver, op));
    else
        link_text(&driver->link, "-");
}

/* The call, with its keys. */
static void begin_taking(struct flight *flight, const mortise_op *op, enum script script,
                         unsigned arguments)
{
    struct driver *driver = flight->driver;
    script_begin(flight, script, driver->queued ? 3 : 2, arguments);
    key_put(&driver->link, driver, op, KEY_LOCK);
    key_put(&driver->link, driver, op, KEY_TOKEN);
    if (driver->queued)
        key_put(&driver->link, driver, op, KEY_QUEUE);
}

/* Only where the lock is handed on do these know of tokens. */
static void begin_giving(struct flight *flight, const mortise_op *op, enum script script,
                         enum script queued, unsigned arguments)
{
    struct driver *driver = flight->driver;
    if (driver->queued) {
        begin_taking(flight, op, queued, arguments);
        return;
    }
    script_begin(flight, script, 1, arguments);
    key_put(&driver->link, driver, op, KEY_LOCK);
}

/* The arguments that each layout's script has. */
static void put_acquire(struct flight *flight, const mortise_op *op, enum script script,
                        unsigned more)
{
    struct driver *driver = flight->driver;
    struct link *link = &driver->link;
    begin_taking(flight, op, script, 4 + more);
    key_put_grant(link, op);
    link_number(link, op->ttl_ms);
    put_floor(driver, op);
    link_argument(link, op->note, op->note_len);
}

static void put_hash(struct flight *flight, const mortise_op *op, bool wish)
{
    bool queued = flight->driver->queued;
    put_acquire(flight, op, queued ? SCRIPT_QUEUE_HASH_ACQUIRE : SCRIPT_HASH_ACQUIRE, 1 + wish);
    link_argument(&flight->driver->link, op->owner, op->owner_len);
}

static void put_string(struct flight *flight, const mortise_op *op, bool wish)
{
    bool queued = flight->driver->queued;
    put_acquire(flight, op, queued ? SCRIPT_QUEUE_STRING_ACQUIRE : SCRIPT_STRING_ACQUIRE, wish);
}

static void put_redisson(struct flight *flight, const mortise_op *op)
{
    put_acquire(flight, op, SCRIPT_REDISSON_ACQUIRE, 2);
    key_put_owner(&flight->driver->link, op);
}

/* ---- without tokens: SET NX PX, what other clients send -------------------------------------------------- */

/* Not set: it is another's, or this grant's of a former try. */
static void looked(struct flight *flight, redisReply *reply)
{
    struct driver *driver = flight->driver;
    mortise_op *op = flight->op;
    char hex[GRANT_HEX + 1];
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3) {
        flow_fail_odd(driver, op);
        return;
    }
    const redisReply *held = reply->element[0];
    if (held->type == REDIS_REPLY_ERROR) {
        struct link_fault fault;
        link_fault_reply(&driver->link, held, &fault);
        flow_fail(driver, op, &fault);
        return;
    }
    key_hex(&op->grant, hex);
    bool mine = held->type == REDIS_REPLY_STRING && held->len >= GRANT_HEX &&
                memcmp(held->str, hex, GRANT_HEX) == 0;
    if (mine)
        lease_found(driver, op, 0, reply->element[1]->integer, flight->call.sent_ns);
    else {
        if (op->info != NULL)
            look_take(driver, reply, op->info);
        lease_busy(driver, op, reply->element[1]->integer);
    }
}

static void look(struct flight *flight)
{
    flow_go_on(flight, looked);
    look_put(flight->driver, flight->op->name, flight->op->name_len);
    link_call_end(&flight->driver->link, &flight->call, look_replies(flight->driver));
}

static void set(struct flight *flight, redisReply *reply)
{
    if (reply->type == REDIS_REPLY_STATUS)
        lease_granted(flight->driver, flight->op, 0, flight->call.sent_ns);
    else if (reply->type == REDIS_REPLY_NIL)
        look(flight);
    else
        flow_fail_odd(flight->driver, flight->op);
}

static void put_set(struct flight *flight, const mortise_op *op)
{
    struct link *link = &flight->driver->link;
    struct timespec now; /* for people to read: without tokens the server's time is not asked */
    clock_gettime(CLOCK_REALTIME, &now);
    flight->answer = set;
    link_command(link, 6);
    link_argument(link, "SET", 3);
    key_put(link, flight->driver, op, KEY_LOCK);
    holder_put(link, op, 0, (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
    link_argument(link, "NX", 2);
    link_argument(link, "PX", 2);
    link_number(link, op->ttl_ms);
}

void lease_acquire(struct driver *driver, mortise_op *op)
{
    char text[WISH_SIZE];
    struct flight *flight = flow_take_off(driver, op, acquired);
    if (flight == NULL)
        return;
    if (driver->queued)
        flight->wish = queue_wish(driver, op, flight->call.sent_ns, text);
    bool wish = flight->wish != WISH_NONE;
    if (driver->layout == LAYOUT_HASH)
        put_hash(flight, op, wish);
    else if (driver->layout == LAYOUT_REDISSON)
        put_redisson(flight, op);
    else if (driver->fencing)
        put_string(flight, op, wish);
    else
        put_set(flight, op);
    if (wish)
        link_text(&driver->link, text);
    link_call_end(&driver->link, &flight->call, 1);
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

static void queued(struct flight *flight, int64_t at_latest_ms)
{
    struct driver *driver = flight->driver;
    mortise_op *op = flight->op;
    if (queue_keep(driver, op, flight->wish, at_latest_ms, flight->call.sent_ns))
        return;
    if (queue_is_placed(driver, op))
        flow_fail_deaf(driver, op);
    else
        flow_fail_odd(driver, op);
}

static void is_busy(struct flight *flight, const redisReply *reply)
{
    struct driver *driver = flight->driver;
    mortise_op *op = flight->op;
    int64_t remaining_ms = reply->element[0]->integer;
    int64_t at_latest_ms =
        remaining_ms >= 0 && remaining_ms < INT64_MAX ? remaining_ms + 1 : op->ttl_ms;
    if (queue_keep(driver, op, WISH_NONE, at_latest_ms, flight->call.sent_ns))
        return;
    if (queue_is_placed(driver, op)) {
        flow_fail_deaf(driver, op);
        return;
    }
    if (op->info != NULL)
        holder_of_refusal(driver, reply, op->info);
    lease_busy(driver, op, remaining_ms);
}

static void acquired(struct flight *flight, redisReply *reply)
{
    struct driver *driver = flight->driver;
    mortise_op *op = flight->op;
    int64_t sent_ns = flight->call.sent_ns, number = reply->integer;
    if (reply->type == REDIS_REPLY_INTEGER && number > 0)
        lease_granted(driver, op, (uint64_t)number, sent_ns);
    else if (reply->type == REDIS_REPLY_INTEGER && number < 0 && number > INT64_MIN &&
             flight->wish != WISH_NONE)
        queued(flight, -number);
    else if (is_found(reply))
        lease_found(driver, op, (uint64_t)reply->element[1]->integer, reply->element[0]->integer,
                    sent_ns);
    else if (is_pair(reply))
        is_busy(flight, reply);
    else
        flow_fail_odd(driver, op);
}

/* ---- release, break -------------------------------------------------------------------------------------- */

static void released(struct flight *flight, redisReply *reply)
{
    if (reply->type == REDIS_REPLY_INTEGER)
        lease_released(flight->driver, flight->op, reply->integer);
    else
        flow_fail_odd(flight->driver, flight->op);
}

static void put_break(struct flight *flight, const mortise_op *op)
{
    static const enum script scripts[] = {[LAYOUT_STRING] = SCRIPT_STRING_BREAK,
                                          [LAYOUT_HASH] = SCRIPT_HASH_BREAK,
                                          [LAYOUT_REDISSON] = SCRIPT_REDISSON_BREAK};
    static const enum script queued[] = {[LAYOUT_STRING] = SCRIPT_QUEUE_STRING_BREAK,
                                         [LAYOUT_HASH] = SCRIPT_QUEUE_HASH_BREAK,
                                         [LAYOUT_REDISSON] = SCRIPT_COUNT};
    struct driver *driver = flight->driver;
    begin_giving(flight, op, scripts[driver->layout], queued[driver->layout], 2);
    link_number(&driver->link, (int64_t)op->token);
    key_put_channel(&driver->link, driver, op);
}

static void put_release(struct flight *flight, const mortise_op *op)
{
    static const enum script scripts[] = {[LAYOUT_STRING] = SCRIPT_STRING_RELEASE,
                                          [LAYOUT_HASH] = SCRIPT_HASH_RELEASE,
                                          [LAYOUT_REDISSON] = SCRIPT_REDISSON_RELEASE};
    static const enum script queued[] = {[LAYOUT_STRING] = SCRIPT_QUEUE_STRING_RELEASE,
                                         [LAYOUT_HASH] = SCRIPT_QUEUE_HASH_RELEASE,
                                         [LAYOUT_REDISSON] = SCRIPT_COUNT};
    struct driver *driver = flight->driver;
    bool redisson = driver->layout == LAYOUT_REDISSON;
    begin_giving(flight, op, scripts[driver->layout], queued[driver->layout], redisson ? 4 : 2);
    key_put_grant(&driver->link, op);
    key_put_channel(&driver->link, driver, op);
    if (redisson)
        key_put_owner(&driver->link, op);
}

void lease_release(struct driver *driver, mortise_op *op)
{
    struct flight *flight = flow_take_off(driver, op, released);
    if (flight == NULL)
        return;
    if ((op->flags & MORTISE_OP_BREAK) != 0)
        put_break(flight, op);
    else
        put_release(flight, op);
    link_call_end(&driver->link, &flight->call, 1);
}
