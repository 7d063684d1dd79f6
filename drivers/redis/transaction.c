/* transaction.c - atomicity = watch: checks and acts by WATCH, reading, MULTI … EXEC, for servers that forbid scripts. Only
 * for mode = string without a queue. Without tokens an acquire is no transaction but SET NX PX (lease.c).
 *
 * A connection has one set of watched keys, and every EXEC ends it. So one transaction is under way at a time, with one op,
 * or with many of one kind for different names. The others wait in driver->waiting. look.c sends an EXEC of its own and says
 * so (transaction_disturb).
 *
 *   state     event                                           what follows                                    next
 *   IDLE      an op waits                                     [UNWATCH,] WATCH, TIME; for each op its reads    READING
 *   READING   an answer shows that nothing is to be written   that op is completed                             READING
 *   READING   the last answer; ops are left                   MULTI, writes, EXEC, PUBLISH for each release    WRITING
 *   READING   the last answer; ops are left, but disturbed    WATCH again                                      READING
 *   READING   the last answer; no op is left                                                                   IDLE
 *   READING   the connection breaks                           nothing was done: asked again, once              IDLE
 *   WRITING   EXEC was executed, or failed                    the ops are completed                            IDLE
 *   WRITING   EXEC is null: somebody changed a key            the first op alone; the others wait again        READING
 *   WRITING   the connection breaks                           INDETERMINATE; acquires are in doubt             IDLE
 *
 *   An op is canceled while READING: it is taken out. While WRITING: its result is dropped.
 *   A key expires between the reading and EXEC: PEXPIRE and DEL answer 0, so the grant is LOST.
 *   PUBLISH is sent behind EXEC, not inside, so that a release succeeds where an ACL forbids PUBLISH. */
#include "redis.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define OPS_MAX 32 /* in one transaction */
#define TRIES 32   /* while others change the same keys */
#define TOKEN_LIVES_MS 86400000

enum state { IDLE, READING, WRITING };

/* An op of the transaction, and what was read for it. */
struct part {
    mortise_op *op; /* NULL: canceled, or completed */
    mortise_grant_id grant;
    int64_t ttl_ms;
    int64_t remaining_ms; /* as PTTL says it */
    uint64_t
        number; /* to be written: the token of an acquire, the version of a record; 0: no token is left */
};

struct transaction {
    struct link_call call; /* first */
    struct driver *driver;
    enum state state;
    bool watching;  /* since the last EXEC: must be ended first */
    bool disturbed; /* while READING: what was watched is not watched any more */
    bool refused;   /* EXEC was null */
    bool running;   /* transaction_next */
    unsigned lead;  /* replies before those of the parts */
    unsigned tries;
    mortise_op_kind kind; /* of all parts */
    uint64_t now_us;      /* in the server */
    int64_t read_ns;      /* before the reading: a grant counts from then (R1) */
    size_t count;
    struct part parts[OPS_MAX];
};

static void was_read(struct link_call *call, unsigned index, redisReply *reply);
static void was_written(struct link_call *call, unsigned index, redisReply *reply);
static void lost(struct link_call *call, enum link_loss loss, const struct link_fault *fault);

static bool needs_transaction(const struct driver *driver, const mortise_op *op)
{
    return (op->kind == MORTISE_OP_ACQUIRE && driver->fencing) || op->kind == MORTISE_OP_RENEW ||
           op->kind == MORTISE_OP_RELEASE || op->kind == MORTISE_OP_WRITE;
}

static void drop_ended(struct transaction *t)
{
    size_t kept = 0;
    for (size_t i = 0; i < t->count; i++)
        if (t->parts[i].op != NULL)
            t->parts[kept++] = t->parts[i];
    t->count = kept;
}

/* The caller completes it. */
static mortise_op *take_out(struct part *part)
{
    mortise_op *op = part->op;
    part->op = NULL;
    return op;
}

static void fail_all(struct transaction *t, const struct link_fault *fault)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->parts[i].op != NULL)
            op_fail(t->driver, take_out(&t->parts[i]), fault);
}

static void refuse_all(struct transaction *t, const redisReply *reply)
{
    struct link_fault fault;
    link_fault_reply(&t->driver->link, reply, &fault);
    fail_all(t, &fault);
}

static void finish(struct transaction *t)
{
    t->state = IDLE;
    t->count = 0;
    transaction_next(t->driver);
}

/* ---- reading ------------------------------------------------------------------------------------------ */

static void put(struct transaction *t, unsigned arguments, const char *word, const mortise_op *op,
                enum key key)
{
    link_command(&t->driver->link, arguments);
    link_text(&t->driver->link, word);
    key_put(&t->driver->link, op, key);
}

static void put_word(struct transaction *t, const char *word)
{
    link_command(&t->driver->link, 1);
    link_text(&t->driver->link, word);
}

static enum key key_of(const struct transaction *t)
{
    return t->kind == MORTISE_OP_WRITE ? KEY_RECORD : KEY_LOCK;
}

static void begin_call(struct transaction *t, enum state state,
                       void (*replied)(struct link_call *, unsigned, redisReply *))
{
    t->state = state;
    t->call.replied = replied;
    t->call.lost = lost;
    link_call_begin(&t->driver->link, &t->call);
}

static void put_watch(struct transaction *t)
{
    struct link *link = &t->driver->link;
    bool tokens = t->kind == MORTISE_OP_ACQUIRE;
    t->lead = t->watching ? 3 : 2;
    if (t->watching)
        put_word(t, "UNWATCH");
    t->watching = true;
    link_command(link, 1 + (unsigned)t->count * (tokens ? 2 : 1));
    link_text(link, "WATCH");
    for (size_t i = 0; i < t->count; i++) {
        key_put(link, t->parts[i].op, key_of(t));
        if (tokens)
            key_put(link, t->parts[i].op, KEY_TOKEN);
    }
    put_word(t, "TIME");
}

static unsigned reads_of(const struct transaction *t)
{
    return t->kind == MORTISE_OP_ACQUIRE ? 3 : 2;
}

static void read_all(struct transaction *t)
{
    struct link *link = &t->driver->link;
    t->disturbed = t->refused = false;
    begin_call(t, READING, was_read);
    t->read_ns = t->call.sent_ns;
    put_watch(t);
    for (size_t i = 0; i < t->count; i++) {
        mortise_op *op = t->parts[i].op;
        if (t->kind == MORTISE_OP_ACQUIRE)
            put(t, 2, "GET", op, KEY_TOKEN);
        put(t, 2, "PTTL", op, key_of(t));
        put(t, 4, "GETRANGE", op, key_of(t));
        link_text(link, "0");
        link_text(link, VALUE_END);
        op_sent(op, &t->call);
    }
    link_call_end(link, &t->call, t->lead + (unsigned)t->count * reads_of(t));
}

/* ---- deciding ----------------------------------------------------------------------------------------- */

/* The hybrid clock, as in string_acquire.lua. 0: no token is left. */
static uint64_t next_token(const struct transaction *t, const mortise_op *op,
                           const redisReply *last)
{
    uint64_t floor = failover_floor(t->driver, op), token = t->now_us, next = 1;
    if (last->type == REDIS_REPLY_STRING && last->len > 16)
        return 0;
    if (last->type == REDIS_REPLY_STRING)
        next = text_number(last->str, last->len) + 1;
    token = next > token ? next : token;
    token = floor > token ? floor : token;
    return token <= TOKEN_MAX ? token : 0;
}

/* The following decide what a value means for a part: they complete its op, or leave it to be written. An absent key and
 * an empty value look alike, but PTTL tells them apart. */

static bool is_absent(const struct part *part, const redisReply *value)
{
    return value->len == 0 && part->remaining_ms == -2;
}

static bool is_mine(const struct part *part, const redisReply *value)
{
    char hex[GRANT_HEX + 1];
    key_hex(&part->grant, hex);
    return value->len >= GRANT_HEX && memcmp(value->str, hex, GRANT_HEX) == 0;
}

static void decide_acquire(struct transaction *t, struct part *part, const redisReply *value)
{
    mortise_info info;
    if (is_mine(part, value)) {
        holder_of_string(value->str, value->len, 0, &info);
        answer_found(t->driver, take_out(part), info.token, part->remaining_ms, t->read_ns);
    } else if (!is_absent(part, value)) {
        mortise_op *op = take_out(part);
        if (op->info != NULL)
            holder_of_string(value->str, value->len, t->now_us, op->info);
        answer_busy(t->driver, op, part->remaining_ms);
    } else if (part->number == 0)
        op_fail_token(t->driver, take_out(part));
}

static void decide_release(struct transaction *t, struct part *part, const redisReply *value)
{
    bool ends = is_mine(part, value);
    if ((part->op->flags & MORTISE_OP_BREAK) != 0) {
        mortise_info info = {.token = 0};
        holder_of_string(value->str, value->len, 0, &info);
        ends = value->len > 0 && info.token == part->op->token;
    }
    if (!ends)
        answer_released(t->driver, take_out(part), is_absent(part, value) ? 0 : 1);
}

static void decide_write(struct transaction *t, struct part *part, const redisReply *value)
{
    const char *blank = memchr(value->str, ' ', value->len);
    uint64_t version = blank != NULL ? text_number(value->str, (size_t)(blank - value->str)) : 0;
    part->number = version + 1;
    if (version == part->op->record_version)
        return;
    part->op->record_version = 0;
    op_complete(t->driver, take_out(part), MORTISE_BUSY);
}

static void decide(struct transaction *t, struct part *part, const redisReply *value)
{
    if (value->type != REDIS_REPLY_STRING)
        op_fail_odd(t->driver, take_out(part));
    else if (t->kind == MORTISE_OP_ACQUIRE)
        decide_acquire(t, part, value);
    else if (t->kind == MORTISE_OP_RELEASE)
        decide_release(t, part, value);
    else if (t->kind == MORTISE_OP_WRITE)
        decide_write(t, part, value);
    else if (!is_mine(part, value))
        answer_renewed(t->driver, take_out(part), is_absent(part, value) ? '0' : '1', 0);
}

/* An error for one key fails its op, not the others. As in the script, a lock whose key has another type now is another's. */
static void refuse_one(struct transaction *t, struct part *part, const redisReply *reply)
{
    struct link_fault fault;
    link_fault_reply(&t->driver->link, reply, &fault);
    if (t->kind == MORTISE_OP_RENEW && fault.error == LINK_ERROR_WRONGTYPE)
        answer_renewed(t->driver, take_out(part), '1', 0);
    else
        op_fail(t->driver, take_out(part), &fault);
}

/* `left`: how many reads of this part follow. */
static void take(struct transaction *t, struct part *part, unsigned left, const redisReply *reply)
{
    if (part->op == NULL)
        return;
    if (reply->type == REDIS_REPLY_ERROR)
        refuse_one(t, part, reply);
    else if (left == 2)
        part->number = next_token(t, part->op, reply);
    else if (left == 1)
        part->remaining_ms = reply->integer;
    else
        decide(t, part, reply);
}

static void write_all(struct transaction *t);

static void was_read(struct link_call *call, unsigned index, redisReply *reply)
{
    struct transaction *t = (struct transaction *)call;
    unsigned each = reads_of(t);
    if (index >= t->lead)
        take(t, &t->parts[(index - t->lead) / each], each - 1 - (index - t->lead) % each, reply);
    else if (reply->type == REDIS_REPLY_ERROR)
        refuse_all(t, reply);
    else if (index + 1 == t->lead)
        t->now_us = text_time_us(reply);
    if (index + 1 < call->expected)
        return;
    drop_ended(t);
    if (t->count == 0)
        finish(t);
    else if (t->disturbed)
        read_all(t);
    else
        write_all(t);
}

/* ---- writing ------------------------------------------------------------------------------------------ */

static void put_acquire(struct transaction *t, const struct part *part)
{
    struct link *link = &t->driver->link;
    put(t, 5, "SET", part->op, KEY_TOKEN);
    link_number(link, (int64_t)part->number);
    link_text(link, "PX");
    link_number(link, (int64_t)((part->number - t->now_us) / 1000) + TOKEN_LIVES_MS);
    put(t, 5, "SET", part->op, KEY_LOCK);
    holder_put(link, part->op, part->number, t->now_us);
    link_text(link, "PX");
    link_number(link, part->ttl_ms);
}

static void put_record(struct transaction *t, const struct part *part)
{
    char head[24];
    int length = snprintf(head, sizeof(head), "%" PRIu64 " ", part->number);
    const struct link_part texts[] = {{head, (size_t)length},
                                      {part->op->record, part->op->record_size}};
    put(t, 3, "SET", part->op, KEY_RECORD);
    link_parts(&t->driver->link, texts, 2);
}

static void put_write(struct transaction *t, const struct part *part)
{
    switch (t->kind) {
    case MORTISE_OP_ACQUIRE:
        put_acquire(t, part);
        break;
    case MORTISE_OP_RENEW: /* never shortens what is there */
        put(t, 3, "PEXPIRE", part->op, KEY_LOCK);
        link_number(&t->driver->link,
                    part->remaining_ms > part->ttl_ms ? part->remaining_ms : part->ttl_ms);
        break;
    case MORTISE_OP_RELEASE:
        put(t, 2, "DEL", part->op, KEY_LOCK);
        break;
    default:
        put_record(t, part);
        break;
    }
}

static unsigned writes_of(const struct transaction *t)
{
    return t->kind == MORTISE_OP_ACQUIRE ? 2 : 1;
}

static unsigned exec_at(const struct transaction *t)
{
    return 1 + (unsigned)t->count * writes_of(t);
}

static void write_all(struct transaction *t)
{
    struct link *link = &t->driver->link;
    unsigned published = t->kind == MORTISE_OP_RELEASE ? (unsigned)t->count : 0;
    begin_call(t, WRITING, was_written);
    put_word(t, "MULTI");
    for (size_t i = 0; i < t->count; i++)
        put_write(t, &t->parts[i]);
    put_word(t, "EXEC");
    t->watching = false;
    for (unsigned i = 0; i < published; i++) {
        link_command(link, 3);
        link_text(link, "PUBLISH");
        key_put_channel(link, t->driver, t->parts[i].op);
        link_text(link, "");
    }
    link_call_end(link, &t->call, exec_at(t) + 1 + published);
}

/* `results` are those of the commands of the part. */
static void tell(struct transaction *t, struct part *part, redisReply *const *results)
{
    mortise_op *op = take_out(part);
    bool gone = results[0]->type == REDIS_REPLY_INTEGER && results[0]->integer == 0, failed = false;
    for (unsigned i = 0; i < writes_of(t); i++)
        failed |= results[i]->type == REDIS_REPLY_ERROR;
    if (failed)
        op_fail_odd(t->driver, op);
    else if (t->kind == MORTISE_OP_ACQUIRE)
        answer_granted(t->driver, op, part->number, t->read_ns);
    else if (t->kind == MORTISE_OP_RENEW)
        answer_renewed(t->driver, op, gone ? '0' : '2', t->read_ns);
    else if (t->kind == MORTISE_OP_RELEASE)
        answer_released(t->driver, op, gone ? 0 : 2);
    else {
        op->record_version = part->number;
        op_complete(t->driver, op, MORTISE_OK);
    }
}

static void executed(struct transaction *t, const redisReply *results)
{
    unsigned each = writes_of(t);
    for (size_t i = 0; i < t->count; i++) {
        struct part *part = &t->parts[i];
        if (part->op != NULL && (i + 1) * each <= results->elements)
            tell(t, part, results->element + i * each);
        else if (part->op != NULL)
            op_fail_odd(t->driver, take_out(part));
    }
}

static void take_op(struct transaction *t, mortise_op *op)
{
    DL_DELETE2(t->driver->waiting, op, previous, next);
    t->kind = op->kind;
    t->parts[t->count++] = (struct part){.op = op, .grant = op->grant, .ttl_ms = op->ttl_ms};
    op_set(op, OP_WATCHED, NULL);
}

/* One op whose key others change must not hold up the rest: the first is tried alone, the others wait again. */
static void try_again(struct transaction *t)
{
    struct link_fault fault;
    drop_ended(t);
    while (t->count > 1) {
        mortise_op *op = t->parts[--t->count].op;
        op_set(op, OP_WAITING, NULL);
        op->next = op->previous = NULL;
        DL_PREPEND2(t->driver->waiting, op, previous, next);
    }
    if (t->count == 1 && ++t->tries < TRIES) {
        read_all(t);
        return;
    }
    link_fault_set(&fault, MORTISE_UNREACHABLE, true, 0,
                   "%s: the lock was changed by others at every try",
                   t->driver->settings.endpoint.text);
    fail_all(t, &fault);
    finish(t);
}

static void was_written(struct link_call *call, unsigned index, redisReply *reply)
{
    struct transaction *t = (struct transaction *)call;
    bool last = index + 1 == call->expected;
    if (index <= exec_at(t) && reply->type == REDIS_REPLY_ERROR)
        refuse_all(t, reply); /* the first says why; EXECABORT says only that */
    else if (index == exec_at(t) && reply->type == REDIS_REPLY_ARRAY)
        executed(t, reply);
    else if (index == exec_at(t))
        t->refused = true;
    if (last && t->refused)
        try_again(t);
    else if (last)
        finish(t);
}

static void lost(struct link_call *call, enum link_loss loss, const struct link_fault *fault)
{
    struct transaction *t = (struct transaction *)call;
    bool written = t->state == WRITING && loss == LINK_LOST;
    for (size_t i = 0; i < t->count; i++) {
        struct part *part = &t->parts[i];
        if (written && t->kind == MORTISE_OP_ACQUIRE)
            uncertain_add(t->driver, &part->grant, part->ttl_ms);
        if (part->op != NULL && (t->state == WRITING || !op_wait_again(t->driver, part->op)))
            op_lose(t->driver, part->op, written ? LINK_LOST : LINK_NOT_SENT, fault);
    }
    t->state = IDLE;
    t->count = 0;
    t->watching = false;
}

/* ---- the next ----------------------------------------------------------------------------------------- */

/* Renewals have deadlines, so they come first; others wait for releases, so they come next; the rest comes in order. */
static mortise_op *most_urgent(const struct driver *driver)
{
    mortise_op *op, *release = NULL;
    DL_FOREACH2(driver->waiting, op, next)
    {
        if (op->kind == MORTISE_OP_RENEW)
            return op;
        if (release == NULL && op->kind == MORTISE_OP_RELEASE)
            release = op;
    }
    return release != NULL ? release : driver->waiting;
}

static bool has_name(const struct transaction *t, const mortise_op *op)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->parts[i].op->name_len == op->name_len &&
            memcmp(t->parts[i].op->name, op->name, op->name_len) == 0)
            return true;
    return false;
}

/* With others of its kind, each for another name: what is written for one must not change what was read for another. */
static void take_ops(struct transaction *t, mortise_op *first)
{
    mortise_op *op = first, *next;
    t->tries = 0;
    for (; op != NULL && t->count < OPS_MAX; op = next) {
        next = op->next;
        bool joins = op->kind == first->kind && op->kind != MORTISE_OP_WRITE && !has_name(t, op);
        if (op == first || joins)
            take_op(t, op);
    }
}

static void begin_next(struct transaction *t)
{
    struct driver *driver = t->driver;
    while (t->state == IDLE && driver->waiting != NULL && link_is_up(&driver->link)) {
        mortise_op *op = most_urgent(driver);
        if (needs_transaction(driver, op)) {
            take_ops(t, op);
            read_all(t);
        } else {
            DL_DELETE2(driver->waiting, op, previous, next);
            driver->dispatch->send(driver, op);
        }
    }
}

/* Not from inside itself: what is sent may end at once. */
void transaction_next(struct driver *driver)
{
    struct transaction *t = driver->transaction;
    if (t->running)
        return;
    t->running = true;
    begin_next(t);
    t->running = false;
}

void transaction_cancel(struct driver *driver, mortise_op *op)
{
    struct transaction *t = driver->transaction;
    for (size_t i = 0; i < t->count; i++)
        if (t->parts[i].op == op)
            t->parts[i].op = NULL;
    bool unsure = t->state == WRITING || (op->flags & MORTISE_OP_REPEAT) != 0;
    op_complete(driver, op, unsure ? MORTISE_INDETERMINATE : MORTISE_CANCELED);
}

bool transaction_disturb(struct driver *driver)
{
    if (driver->transaction == NULL)
        return false;
    driver->transaction->disturbed = true;
    return true;
}

bool transaction_open(struct driver *driver)
{
    driver->transaction = calloc(1, sizeof(*driver->transaction));
    if (driver->transaction != NULL)
        driver->transaction->driver = driver;
    return driver->transaction != NULL;
}
