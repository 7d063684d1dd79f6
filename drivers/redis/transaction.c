/* transaction.c - atomicity = watch: checks and acts by WATCH, reading, MULTI … EXEC, for servers that forbid scripts. Only
 * for mode = string without a queue. Without tokens, an acquire is not a transaction, but SET NX PX (lease.c).
 *
 * A connection has one set of watched keys, and every EXEC clears it. So only one transaction is under way at a time, with
 * one op, or with many of one kind for different names. The others wait in driver->waiting. inspect.c and list.c send an
 * EXEC of their own, and announce it with transaction_disturb().
 *
 *   state     event                                           what follows                                    next
 *   IDLE      an op waits                                     MULTI, EXEC, WATCH, TIME; for each op its reads  READING
 *   READING   an answer shows that nothing is to be written   that op is completed                             READING
 *   READING   the last answer; ops are left                   MULTI, writes, EXEC, PUBLISH for each release    WRITING
 *   READING   the last answer; ops are left, but disturbed    WATCH again                                      READING
 *   READING   the last answer; no op is left                                                                   IDLE
 *   READING   the connection breaks                           nothing was done: asked again, once              IDLE
 *   WRITING   EXEC was executed, or failed                    the ops are completed                            IDLE
 *   WRITING   EXEC is null: somebody changed a key            the first op alone; the others wait again        READING
 *   WRITING   the connection breaks                           INDETERMINATE, a renewal UNREACHABLE; acquires   IDLE
 *                                                             are in doubt
 *
 *   An op that is canceled while READING is taken out; while WRITING, its result is dropped.
 *   A key expires between the reading and EXEC: PEXPIRE and DEL answer 0, so the grant is LOST.
 *   PUBLISH is sent behind EXEC, not inside, so that a release succeeds where an ACL forbids PUBLISH. */
#include "sending.h"
#include "transaction_part.h"

#include <stdlib.h>

#define OPS_MAX 32 /* in one transaction */
#define TRIES 32   /* while others change the same keys */

enum state { IDLE, READING, WRITING };

struct transaction {
    struct link_call call; /* first */
    struct driver *driver;
    struct moment at; /* of the reading */
    enum state state;
    bool disturbed; /* while READING: the keys are not watched any more */
    bool refused;   /* EXEC was null */
    bool running;   /* transaction_next */
    unsigned lead;  /* replies before those of the parts */
    unsigned tries;
    mortise_op_kind kind; /* of all parts */
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

static void fail_all(struct transaction *t, const struct link_fault *fault)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->parts[i].op != NULL)
            op_fail(t->driver, part_take_out(&t->parts[i]), fault);
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

static void put_word(struct transaction *t, const char *word)
{
    link_command(&t->driver->link, 1);
    link_text(&t->driver->link, word);
}

static void begin_call(struct transaction *t, enum state state,
                       void (*replied)(struct link_call *, unsigned, redisReply *))
{
    t->state = state;
    t->call.replied = replied;
    t->call.lost = lost;
    link_call_begin(&t->driver->link, &t->call);
}

/* The empty transaction clears the watched keys, and shows that the server accepts MULTI. If the server refused only
 * MULTI, it would execute the writes behind it one by one, without any guard. */
static void put_watch(struct transaction *t)
{
    t->lead = 4;
    put_word(t, "MULTI");
    put_word(t, "EXEC");
    link_command(&t->driver->link, 1 + (unsigned)t->count * part_keys(t->kind));
    link_text(&t->driver->link, "WATCH");
    for (size_t i = 0; i < t->count; i++)
        part_put_keys(&t->at, &t->parts[i]);
    put_word(t, "TIME");
}

static void read_all(struct transaction *t)
{
    t->disturbed = t->refused = false;
    begin_call(t, READING, was_read);
    t->at.read_ns = t->call.sent_ns;
    put_watch(t);
    for (size_t i = 0; i < t->count; i++) {
        part_put_reads(&t->at, &t->parts[i]);
        op_sent(t->parts[i].op, &t->call);
    }
    link_call_end(&t->driver->link, &t->call, t->lead + (unsigned)t->count * part_reads(t->kind));
}

static void write_all(struct transaction *t);

static void was_read(struct link_call *call, unsigned index, redisReply *reply)
{
    struct transaction *t = (struct transaction *)call;
    unsigned each = part_reads(t->kind);
    if (index >= t->lead) {
        struct part *part = &t->parts[(index - t->lead) / each];
        if (part->op != NULL)
            part_take(&t->at, part, each - 1 - (index - t->lead) % each, reply);
    } else if (reply->type == REDIS_REPLY_ERROR)
        refuse_all(t, reply);
    else if (index + 1 == t->lead)
        t->at.now_us = text_time_us(reply);
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

static unsigned exec_at(const struct transaction *t)
{
    return 1 + (unsigned)t->count * part_writes(t->kind);
}

static void write_all(struct transaction *t)
{
    struct link *link = &t->driver->link;
    unsigned published = t->kind == MORTISE_OP_RELEASE ? (unsigned)t->count : 0;
    begin_call(t, WRITING, was_written);
    put_word(t, "MULTI");
    for (size_t i = 0; i < t->count; i++)
        part_put_writes(&t->at, &t->parts[i]);
    put_word(t, "EXEC");
    for (unsigned i = 0; i < published; i++) {
        link_command(link, 3);
        link_text(link, "PUBLISH");
        key_put_channel(link, t->driver, t->parts[i].op);
        link_text(link, "");
    }
    link_call_end(link, &t->call, exec_at(t) + 1 + published);
}

static void executed(struct transaction *t, const redisReply *results)
{
    unsigned each = part_writes(t->kind);
    for (size_t i = 0; i < t->count; i++) {
        struct part *part = &t->parts[i];
        if (part->op != NULL && (i + 1) * each <= results->elements)
            part_tell(&t->at, part, results->element + i * each);
        else if (part->op != NULL)
            op_fail_odd(t->driver, part_take_out(part));
    }
}

static void take_op(struct transaction *t, mortise_op *op)
{
    DL_DELETE2(t->driver->waiting, op, previous, next);
    t->kind = op->kind;
    t->parts[t->count++] = (struct part){.op = op, .grant = op->grant, .ttl_ms = op->ttl_ms};
    op_set(op, OP_WATCHED, t);
}

/* One op whose key others change must not delay the rest: the first op is tried alone, and the others wait again. */
static void try_again(struct transaction *t)
{
    struct link_fault fault;
    drop_ended(t);
    while (t->count > 1) {
        mortise_op *op = t->parts[--t->count].op;
        op_set(op, OP_WAITING, t->driver);
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
        refuse_all(t, reply); /* the first error says why; EXECABORT does not */
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

/* Takes the first op, and others of its kind, each for another name, because a write for one must not change what was read
 * for another. */
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

/* Guards against recursion, because a request that is sent may end at once. */
void transaction_next(struct driver *driver)
{
    struct transaction *t = driver->transaction;
    if (t->running)
        return;
    t->running = true;
    begin_next(t);
    t->running = false;
}

void transaction_cancel(mortise_op *op)
{
    struct transaction *t = data_of(op)->transaction;
    for (size_t i = 0; i < t->count; i++)
        if (t->parts[i].op == op)
            t->parts[i].op = NULL;
    bool unsure = t->state == WRITING || (op->flags & MORTISE_OP_REPEAT) != 0;
    op_complete(t->driver, op, unsure ? MORTISE_INDETERMINATE : MORTISE_CANCELED);
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
        driver->transaction->driver = driver->transaction->at.driver = driver;
    return driver->transaction != NULL;
}
