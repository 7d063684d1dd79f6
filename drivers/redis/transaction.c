/* transaction.c - atomicity = watch: check and act by WATCH, reading, MULTI … EXEC, for servers where scripts
 * are forbidden.
 *
 *          WATCH, GET …            answers       MULTI …, EXEC          answers
 *   idle ───────────────▶ reading ────────▶ decide ─────────────▶ writing ──┬──▶ idle, the next
 *                            ▲                │ nothing to write: idle        │ null: a key was changed
 *                            └────────────────┴──────────────────────────────┘
 *
 * What is watched belongs to the connection, and every EXEC ends it. So one transaction is under way at a
 * time, with one op, or many of one kind; what else has an EXEC in it (look.c) marks one that is reading as
 * disturbed, and it reads again. The ops behind it wait in driver->waiting, in their order; those that need
 * no transaction are sent when they come to its head.
 *
 *   The connection breaks while reading: nothing was done. While writing: INDETERMINATE.
 *   A key expires between reading and EXEC: the EXEC is refused (Redis 6.0.9 and later; before, a renewal
 *     can call back a hash that has just expired, without its fields: it holds up others for a ttl).
 *   The op is canceled while reading: it is taken out. While writing: the answer is dropped.
 *   PUBLISH stands behind EXEC, not inside: where an ACL refuses it the release stands. */
#include "transaction.h"

#include <stdlib.h>

#define OPS_MAX 32     /* in one transaction */
#define REPLIES_EACH 3 /* read for each op */
#define TRIES 32       /* against others who change the same keys */

enum phase { IDLE, READING, WRITING };

struct transaction {
    struct link_call call; /* first */
    struct driver *driver;
    enum phase phase;
    bool watching;  /* since the last EXEC: to be ended first */
    unsigned lead;  /* replies before those of the reading */
    bool disturbed; /* read again */
    bool again;     /* EXEC was refused: likewise */
    bool running;
    unsigned tries;
    size_t count;
    mortise_op *ops[OPS_MAX]; /* NULL: canceled, or completed */
    bool wanted[OPS_MAX];     /* it was read for */
    struct plan plans[OPS_MAX];
    mortise_op_kind kind; /* of all; and what is needed of those that were canceled: */
    mortise_grant_id grants[OPS_MAX];
    int64_t ttls_ms[OPS_MAX];
    int64_t
        read_ns; /* before the reading: what is written counts from the server's time then (R1) */
    unsigned exec_at;                                /* which reply is EXEC's */
    redisReply *replies[3 + OPS_MAX * REPLIES_EACH]; /* UNWATCH's, WATCH's; each; TIME's */
    size_t reply_count;
};

static void read_again(struct transaction *t);
static void was_read(struct link_call *call, unsigned index, redisReply *reply);
static void was_written(struct link_call *call, unsigned index, redisReply *reply);
static void lost(struct link_call *call, enum link_loss loss, const struct link_fault *fault);

static bool needs_transaction(const struct driver *driver, const mortise_op *op)
{
    switch (op->kind) {
    case MORTISE_OP_ACQUIRE: /* without tokens: SET NX is one step by itself */
        return driver->fencing || driver->layout != LAYOUT_STRING;
    case MORTISE_OP_RENEW:
    case MORTISE_OP_RELEASE:
    case MORTISE_OP_WRITE:
        return true;
    default:
        return false;
    }
}

static void drop_replies(struct transaction *t)
{
    for (size_t i = 0; i < t->reply_count; i++)
        freeReplyObject(t->replies[i]);
    t->reply_count = 0;
}

/* ---- reading ------------------------------------------------------------------------------------------ */

static unsigned keys_of(const mortise_op *op)
{
    return op->kind == MORTISE_OP_WRITE ? 1 : 2;
}

static void put_watch(struct transaction *t)
{
    struct link *link = &t->driver->link;
    unsigned keys = 0;
    for (size_t i = 0; i < t->count; i++)
        keys += t->ops[i] != NULL ? keys_of(t->ops[i]) : 0;
    t->lead = t->watching ? 2 : 1;
    if (t->watching) {
        link_command(link, 1);
        link_text(link, "UNWATCH");
    }
    t->watching = true;
    link_command(link, 1 + keys);
    link_text(link, "WATCH");
    for (size_t i = 0; i < t->count; i++) {
        const mortise_op *op = t->ops[i];
        if (op == NULL)
            continue;
        key_put(link, t->driver, op, op->kind == MORTISE_OP_WRITE ? KEY_RECORD : KEY_LOCK);
        if (op->kind == MORTISE_OP_WRITE)
            continue;
        key_put(link, t->driver, op, KEY_TOKEN);
    }
}

static void put_read(struct transaction *t, const mortise_op *op, const char *word, enum key key)
{
    link_command(&t->driver->link, 2);
    link_text(&t->driver->link, word);
    key_put(&t->driver->link, t->driver, op, key);
}

static void begin_call(struct transaction *t, enum phase phase,
                       void (*replied)(struct link_call *, unsigned, redisReply *))
{
    t->phase = phase;
    t->call.replied = replied;
    t->call.lost = lost;
    link_call_begin(&t->driver->link, &t->call);
}

static void read_again(struct transaction *t)
{
    struct link *link = &t->driver->link;
    unsigned replies = 1; /* TIME */
    t->disturbed = false;
    begin_call(t, READING, was_read);
    t->read_ns = t->call.sent_ns;
    put_watch(t);
    for (size_t i = 0; i < t->count; i++) {
        const mortise_op *op = t->ops[i];
        t->wanted[i] = op != NULL;
        if (op == NULL)
            continue;
        bool record = op->kind == MORTISE_OP_WRITE;
        bool hash = t->driver->layout != LAYOUT_STRING && !record;
        put_read(t, op, hash ? "HGETALL" : "GET", record ? KEY_RECORD : KEY_LOCK);
        put_read(t, op, "PTTL", KEY_LOCK);
        put_read(t, op, "GET", KEY_TOKEN);
        replies += REPLIES_EACH;
        flow_sent(t->ops[i], &t->call);
    }
    link_command(link, 1);
    link_text(link, "TIME");
    link_call_end(link, &t->call, t->lead + replies);
}

/* ---- the ends --------------------------------------------------------------------------------------------- */

static void finish(struct transaction *t)
{
    drop_replies(t);
    t->phase = IDLE;
    t->count = 0;
    transaction_next(t->driver);
}

static void fail_ops(struct transaction *t, const struct link_fault *fault)
{
    for (size_t i = 0; i < t->count; i++) {
        if (t->ops[i] != NULL)
            flow_fail(t->driver, t->ops[i], fault);
        t->ops[i] = NULL;
    }
}

static void refuse_ops(struct transaction *t, const redisReply *reply)
{
    struct link_fault fault;
    link_fault_reply(&t->driver->link, reply, &fault);
    fail_ops(t, &fault);
}

static bool any_left(const struct transaction *t)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->ops[i] != NULL)
            return true;
    return false;
}

/* ---- deciding ----------------------------------------------------------------------------------------------- */

static struct view view_of(const struct transaction *t, size_t nth)
{
    redisReply *const *at = t->replies + t->lead + nth * REPLIES_EACH;
    return (struct view){.state = at[0],
                         .pttl = at[1],
                         .token = at[2],
                         .now_us = holder_time_us(t->replies[t->reply_count - 1]),
                         .read_ns = t->read_ns};
}

static unsigned decide_all(struct transaction *t, bool put)
{
    unsigned commands = 0;
    size_t nth = 0;
    for (size_t i = 0; i < t->count; i++) {
        if (!t->wanted[i])
            continue;
        struct view view = view_of(t, nth++);
        if (!put)
            t->plans[i] = (struct plan){.commands = 0}; /* not an earlier transaction's */
        if (t->ops[i] == NULL)
            continue;
        t->plans[i] = decide(t->driver, t->ops[i], &view, put);
        commands += t->plans[i].commands;
        if (t->plans[i].commands == 0)
            t->ops[i] = NULL;
    }
    return commands;
}

static unsigned put_publishes(struct transaction *t)
{
    struct link *link = &t->driver->link;
    unsigned n = 0;
    for (size_t i = 0; i < t->count; i++) {
        if (t->ops[i] == NULL || !t->plans[i].frees)
            continue;
        link_command(link, 3);
        link_text(link, "PUBLISH");
        key_put_channel(link, t->driver, t->ops[i]);
        link_text(link, t->driver->layout == LAYOUT_REDISSON ? "0" : "");
        n++;
    }
    return n;
}

static void write_all(struct transaction *t)
{
    struct link *link = &t->driver->link;
    unsigned commands = decide_all(t, false);
    if (commands == 0) {
        finish(t);
        return;
    }
    begin_call(t, WRITING, was_written);
    link_command(link, 1);
    link_text(link, "MULTI");
    decide_all(t, true);
    link_command(link, 1);
    link_text(link, "EXEC");
    t->watching = false;
    t->exec_at = commands + 1;
    link_call_end(link, &t->call, commands + 2 + put_publishes(t));
    drop_replies(t);
}

/* The reply is kept: the struct is copied, its parts are ours then. */
static bool keep(struct transaction *t, redisReply *reply)
{
    redisReply *copy = calloc(1, sizeof(*copy));
    if (copy == NULL)
        return false;
    *copy = *reply;
    memset(reply, 0, sizeof(*reply));
    reply->type = REDIS_REPLY_NIL;
    t->replies[t->reply_count++] = copy;
    return true;
}

/* An error for one key is its op's own: a lock whose key is something else now is another's, as the script
 * says; what else is refused fails. (The others of a batch must not suffer.) */
static void refuse_one(struct transaction *t, size_t nth, const redisReply *reply)
{
    struct link_fault fault;
    size_t i = 0;
    while (!t->wanted[i] || nth-- > 0)
        i++;
    mortise_op *op = t->ops[i];
    t->ops[i] = NULL;
    if (op == NULL)
        return;
    link_fault_reply(&t->driver->link, reply, &fault);
    if (op->kind == MORTISE_OP_RENEW && fault.error == LINK_ERROR_WRONGTYPE)
        renew_answer(t->driver, op, '1', 0);
    else
        flow_fail(t->driver, op, &fault);
}

static void was_read(struct link_call *call, unsigned index, redisReply *reply)
{
    struct transaction *t = (struct transaction *)call;
    bool shared = index < t->lead || index + 1 == call->expected; /* WATCH, TIME */
    if (index == 0)
        drop_replies(t);
    if (reply->type == REDIS_REPLY_ERROR && shared)
        refuse_ops(t, reply);
    else if (reply->type == REDIS_REPLY_ERROR)
        refuse_one(t, (index - t->lead) / REPLIES_EACH, reply);
    if (!keep(t, reply)) {
        struct link_fault fault;
        link_fault_set(&fault, MORTISE_NOMEM, true, 0, "out of memory");
        fail_ops(t, &fault);
    }
    if (index + 1 < call->expected)
        return;
    if (!any_left(t))
        finish(t);
    else if (t->disturbed)
        read_again(t);
    else
        write_all(t);
}

/* ---- written ------------------------------------------------------------------------------------------------- */

static bool has_error(const redisReply *results, size_t from, size_t count)
{
    for (size_t i = from; i < from + count && i < results->elements; i++)
        if (results->element[i]->type == REDIS_REPLY_ERROR)
            return true;
    return false;
}

/* The first of an op's results is 0: what was to be changed had expired (before Redis 6.0.9). */
static bool is_gone(const mortise_op *op, const redisReply *result, const struct driver *driver)
{
    bool tells = op->kind == MORTISE_OP_RELEASE ||
                 (op->kind == MORTISE_OP_RENEW && driver->layout != LAYOUT_HASH);
    return tells && result->type == REDIS_REPLY_INTEGER && result->integer == 0;
}

static void tell(struct transaction *t, size_t i, const redisReply *results, size_t from)
{
    mortise_op *op = t->ops[i];
    struct driver *driver = t->driver;
    bool gone = is_gone(op, results->element[from], driver);
    if (has_error(results, from, t->plans[i].commands))
        flow_fail_odd(driver, op);
    else if (op->kind == MORTISE_OP_ACQUIRE)
        lease_granted(driver, op, t->plans[i].token, t->read_ns);
    else if (op->kind == MORTISE_OP_RENEW)
        renew_answer(driver, op, gone ? '0' : '2', t->read_ns);
    else if (op->kind == MORTISE_OP_RELEASE)
        lease_released(driver, op, gone ? 0 : t->plans[i].answer);
    else {
        op->record_version = t->plans[i].version;
        flow_complete(driver, op, MORTISE_OK);
    }
}

static void executed(struct transaction *t, const redisReply *results)
{
    size_t from = 0;
    for (size_t i = 0; i < t->count; i++) {
        if (!t->wanted[i] || t->plans[i].commands == 0)
            continue;
        if (t->ops[i] != NULL && from + t->plans[i].commands <= results->elements)
            tell(t, i, results, from);
        else if (t->ops[i] != NULL)
            flow_fail_odd(t->driver, t->ops[i]);
        t->ops[i] = NULL;
        from += t->plans[i].commands;
    }
}

static void take_op(struct transaction *t, mortise_op *op)
{
    DL_DELETE2(t->driver->waiting, op, previous, next);
    t->kind = op->kind;
    t->grants[t->count] = op->grant;
    t->ttls_ms[t->count] = op->ttl_ms;
    t->ops[t->count++] = op;
    op->driver_data[0] = t;
}

/* Somebody changes one of the keys: the others shall not suffer with it. All but the first go back. */
static void put_back(struct transaction *t)
{
    size_t kept = 0;
    for (size_t i = t->count; i-- > 0;) {
        mortise_op *op = t->ops[i];
        t->ops[i] = NULL;
        if (op == NULL)
            continue;
        op->driver_data[0] = NULL;
        op->next = op->previous = NULL;
        DL_PREPEND2(t->driver->waiting, op, previous, next);
        kept++;
    }
    t->count = 0;
    if (kept == 0)
        return;
    mortise_op *op = t->driver->waiting;
    take_op(t, op);
}

static void was_refused(struct transaction *t)
{
    struct link_fault fault;
    t->again = any_left(t);
    put_back(t);
    if (!t->again || ++t->tries < TRIES)
        return;
    t->again = false;
    link_fault_set(&fault, MORTISE_UNREACHABLE, true, 0,
                   "%s: the lock was changed by others at every try",
                   t->driver->settings.endpoint.text);
    fail_ops(t, &fault);
}

static void was_written(struct link_call *call, unsigned index, redisReply *reply)
{
    struct transaction *t = (struct transaction *)call;
    if (index == 0)
        t->again = false;
    if (index <= t->exec_at && reply->type == REDIS_REPLY_ERROR)
        refuse_ops(t, reply); /* the first says why, EXECABORT only that */
    else if (index == t->exec_at && reply->type == REDIS_REPLY_ARRAY)
        executed(t, reply);
    else if (index == t->exec_at)
        was_refused(t);
    if (index + 1 < call->expected)
        return;
    if (t->again && any_left(t))
        read_again(t);
    else
        finish(t);
}

static void lost(struct link_call *call, enum link_loss loss, const struct link_fault *fault)
{
    struct transaction *t = (struct transaction *)call;
    enum link_loss meaning = t->phase == WRITING ? loss : LINK_NOT_SENT;
    for (size_t i = 0; i < t->count && t->kind == MORTISE_OP_ACQUIRE && meaning == LINK_LOST; i++)
        flow_doubt(t->driver, &t->grants[i], t->ttls_ms[i]);
    for (size_t i = 0; i < t->count; i++) {
        mortise_op *op = t->ops[i];
        if (op != NULL && (t->phase == WRITING || !flow_ask_again(t->driver, op)))
            flow_lose(t->driver, op, meaning, fault);
    }
    drop_replies(t);
    t->phase = IDLE;
    t->count = 0;
    t->watching = false;
}

/* ---- the next ---------------------------------------------------------------------------------------------------- */

/* Renewals first, for they have deadlines; then releases, for others wait for them; then in order. */
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
        if (t->ops[i]->name_len == op->name_len &&
            memcmp(t->ops[i]->name, op->name, op->name_len) == 0)
            return true;
    return false;
}

/* With others of its kind, each of another name: what is decided for one must not change what was read for
 * another. */
static void take_ops(struct transaction *t, mortise_op *first)
{
    mortise_op *op = first, *next;
    t->tries = 0;
    t->count = 0;
    for (; op != NULL && t->count < OPS_MAX; op = next) {
        next = op->next;
        bool joins = op == first || (op->kind == first->kind && op->kind != MORTISE_OP_WRITE &&
                                     needs_transaction(t->driver, op) && !has_name(t, op));
        if (joins)
            take_op(t, op);
    }
}

static void begin_next(struct transaction *t)
{
    struct driver *driver = t->driver;
    while (t->phase == IDLE && driver->waiting != NULL && link_is_up(&driver->link)) {
        mortise_op *op = most_urgent(driver);
        if (needs_transaction(driver, op)) {
            take_ops(t, op);
            read_again(t);
        } else {
            DL_DELETE2(driver->waiting, op, previous, next);
            flow_send(driver, op);
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

bool transaction_cancel(struct driver *driver, mortise_op *op)
{
    struct transaction *t = driver->transaction;
    if (t == NULL || op->driver_data[0] != t)
        return false;
    for (size_t i = 0; i < t->count; i++)
        if (t->ops[i] == op)
            t->ops[i] = NULL;
    bool unsure = t->phase == WRITING || (op->flags & MORTISE_OP_REPEAT) != 0;
    flow_complete(driver, op, unsure ? MORTISE_INDETERMINATE : MORTISE_CANCELED);
    return true;
}

void transaction_disturb(struct driver *driver)
{
    if (driver->transaction != NULL && driver->transaction->phase == READING)
        driver->transaction->disturbed = true;
}

bool transaction_open(struct driver *driver)
{
    driver->transaction = calloc(1, sizeof(*driver->transaction));
    if (driver->transaction != NULL)
        driver->transaction->driver = driver;
    return driver->transaction != NULL;
}

void transaction_free(struct driver *driver)
{
    if (driver->transaction != NULL)
        drop_replies(driver->transaction);
    free(driver->transaction);
    driver->transaction = NULL;
}
