/* test_sql_locks.c - what drivers/lib/sql does with a dialect: the order of the steps, the answers, and what is done
 * for waiters. The dialect of this test keeps one row in memory; a test decides when a step is executed, and how it
 * ends. */
#include "dialect.h"

#include <CUnit/Basic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS SQL_NS_PER_MS

/* ---- the host and the dialect ------------------------------------------------------------------- */

static struct sql_locks locks;
static struct rowlease_row table; /* the only row */
static struct sql_request *queue[16];
static size_t queued, news_count, notified_count;
static int64_t now_ns;
static enum sql_notified notified_as;
static bool can_hear, alive;
static struct rowlease_inbox notified[16];

static char failure[400];
static uint64_t emitted[16];
static size_t emitted_count;

struct completion {
    bool done;
    mortise_status status;
};

static void complete(mortise_host *host, mortise_op *op, mortise_status status)
{
    struct completion *completion = op->issuer;
    (void)host;
    CU_ASSERT_FALSE(completion->done);
    *completion = (struct completion){true, status};
}

static void fail(mortise_host *host, mortise_op *op, mortise_status status, int32_t native,
                 bool retryable, const char *format, ...)
{
    va_list arguments;
    (void)native;
    (void)retryable;
    va_start(arguments, format);
    vsnprintf(failure, sizeof failure, format, arguments);
    va_end(arguments);
    complete(host, op, status);
}

static void emit(mortise_host *host, mortise_op *op, const mortise_info *info)
{
    (void)host;
    (void)op;
    if (emitted_count < 16)
        emitted[emitted_count++] = info->token;
}

static int64_t host_now(mortise_host *host)
{
    (void)host;
    return now_ns;
}

static void host_random(mortise_host *host, void *bytes, size_t size)
{
    (void)host;
    memset(bytes, 7, size);
}

static void news(mortise_host *host, const char *name, size_t name_len)
{
    (void)host;
    (void)name;
    (void)name_len;
    news_count++;
}

static void news_all(mortise_host *host)
{
    (void)host;
    news_count++;
}

static const char *quote(const char *name, size_t name_len, char *buffer, size_t size)
{
    (void)name;
    (void)name_len;
    if (size > 0)
        buffer[0] = '\0';
    return buffer;
}

static mortise_host host = {.size = sizeof(host),
                            .now = host_now,
                            .complete = complete,
                            .fail = fail,
                            .emit = emit,
                            .news = news,
                            .news_all = news_all,
                            .random = host_random,
                            .quote = quote};

static struct rowlease_row bound_from, bound_to; /* of the WRITE that is queued */

static void run(struct sql_request *request)
{
    CU_ASSERT_FATAL(queued < 16);
    queue[queued++] = request;
    bound_from = locks.row;
    bound_to = locks.next;
}

static void cancel(struct sql_request *request)
{
    if (request->flying)
        return;
    for (size_t i = 0; i < queued; i++)
        if (queue[i] == request)
            queue[i] = queue[--queued];
}

static enum sql_notified notify(struct sql_locks *of, const struct rowlease_inbox *inbox,
                                const char *name, size_t name_len)
{
    (void)of;
    (void)name;
    (void)name_len;
    notified[notified_count++] = *inbox;
    return notified_as;
}

static bool is_alive(struct sql_locks *of, const struct rowlease_inbox *inbox)
{
    (void)of;
    (void)inbox;
    return alive;
}

static bool hear(struct sql_locks *of, bool dropped)
{
    (void)dropped;
    of->hears = can_hear;
    return can_hear;
}

static const char *where(const struct sql_request *request, char *text, size_t size)
{
    (void)request;
    (void)size;
    text[0] = '\0';
    return text;
}

static struct sql_dialect dialect;

static void begin(bool quick)
{
    memset(&locks, 0, sizeof(locks));
    memset(&table, 0, sizeof(table));
    queued = news_count = notified_count = emitted_count = 0;
    now_ns = 1000000 * MS;
    notified_as = SQL_NOTIFIED;
    can_hear = alive = true;
    dialect = (struct sql_dialect){.request_size = sizeof(struct sql_request),
                                   .quick = quick,
                                   .append = quick,
                                   .visible_is_safe = !quick,
                                   .run = run,
                                   .cancel = cancel,
                                   .notify = notify,
                                   .is_alive = is_alive,
                                   .hear = hear,
                                   .where = where};
    locks_init(&locks, &host, &dialect, 50);
}

static void end(void)
{
    CU_ASSERT_EQUAL(queued, 0);
    locks_free(&locks);
}

/* ---- steps ---------------------------------------------------------------------------------------- */

static bool same_state(const struct rowlease_row *a, const struct rowlease_row *b)
{
    return a->exists == b->exists && a->version == b->version && a->expires_us == b->expires_us &&
           a->grants_len == b->grants_len && memcmp(a->grants, b->grants, a->grants_len) == 0 &&
           a->waiters_len == b->waiters_len && memcmp(a->waiters, b->waiters, a->waiters_len) == 0;
}

/* As a server would. TAKE and its like touch nothing but in take_it(). */
static void execute(const struct sql_request *request)
{
    struct sql_result *result = &locks.result;
    *result = (struct sql_result){.now_us = now_ns / 1000, .wall_us = now_ns / 1000};
    if (request->step == SQL_READ) {
        locks.row = table;
        return;
    }
    if (request->step == SQL_WRITE && same_state(&table, &bound_from)) {
        table = bound_to;
        result->touched = true;
    }
    if (request->step == SQL_BAR)
        result->touched = true;
    if (request->step == SQL_APPEND) {
        table.waiters_len = ROWLEASE_WAITER_SIZE;
        memcpy(table.waiters, locks.inbox.bytes, ROWLEASE_INBOX_SIZE);
        *result = (struct sql_result){.touched = true, .version = table.version, .hint_ms = 1234};
    }
}

static struct sql_request *first(void)
{
    struct sql_request *request = queue[0];
    CU_ASSERT_FATAL(queued > 0);
    memmove(queue, queue + 1, --queued * sizeof(queue[0]));
    request->sent_ns = now_ns;
    return request;
}

/* The first of the queue is executed and answered. */
static enum sql_step step(void)
{
    struct sql_request *request = first();
    enum sql_step done = request->step;
    execute(request);
    if (locks_step(request) == SQL_AGAIN)
        run(request);
    else
        locks_tell(request);
    return done;
}

/* A TAKE, EXTEND or GIVE succeeds. */
static void take_it(struct sql_request *request)
{
    locks.result = (struct sql_result){.touched = true, .version = 42};
    CU_ASSERT_EQUAL(locks_step(request), SQL_OVER);
    locks_tell(request);
}

static mortise_op op_of(mortise_op_kind kind, char grant, struct completion *completion)
{
    mortise_op op;
    memset(&op, 0, sizeof(op));
    op.kind = kind;
    op.name = "name";
    op.name_len = 4;
    op.ttl_ms = 30000;
    op.grant.bytes[0] = (unsigned char)grant;
    op.issuer = completion;
    *completion = (struct completion){false, MORTISE_OK};
    return op;
}

static void start(mortise_op *op)
{
    locks_start(&locks, &op, 1);
}

/* Somebody else holds the row, or has it reserved for these waiters. */
static void table_is(char grant, int64_t for_ms, size_t waiters)
{
    memset(&table, 0, sizeof(table));
    table.exists = true;
    table.version = 5;
    table.grants[0] = (unsigned char)grant;
    table.grants_len = grant != 0 ? MORTISE_GRANT_ID_SIZE : 0;
    table.expires_us = now_ns / 1000 + for_ms * 1000;
    table.waiters_len = waiters * ROWLEASE_WAITER_SIZE;
    for (size_t i = 0; i < waiters; i++)
        table.waiters[i * ROWLEASE_WAITER_SIZE] = (unsigned char)(100 + i);
}

/* ---- the tests ----------------------------------------------------------------------------------- */

static void test_steps_of_an_acquire(void)
{
    struct completion got;
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, 1, &got);
    begin(true);
    start(&op);
    CU_ASSERT_EQUAL(step(), SQL_TAKE); /* touches nothing: who has it? */
    CU_ASSERT_EQUAL(step(), SQL_READ);
    CU_ASSERT_FALSE(got.done);
    CU_ASSERT_TRUE(queue[0]->durable);
    CU_ASSERT_EQUAL(step(), SQL_WRITE);
    CU_ASSERT_TRUE(got.done && got.status == MORTISE_OK);
    CU_ASSERT_EQUAL(op.from_ns, now_ns);
    CU_ASSERT_EQUAL(op.token, (uint64_t)table.version);
    op = op_of(MORTISE_OP_ACQUIRE, 1,
               &got); /* what is visible may not be durable: written again, unchanged */
    op.first_sent_ns = now_ns - 5 * MS;
    start(&op);
    step();
    step();
    CU_ASSERT_TRUE(queue[0]->durable);
    CU_ASSERT_EQUAL(step(), SQL_WRITE);
    CU_ASSERT_EQUAL(op.token, (uint64_t)table.version);
    CU_ASSERT_EQUAL(op.from_ns, now_ns - 5 * MS);
    end();
}

/* Others change the row between READ and WRITE: again and again, and not for ever. */
static void test_writes_in_vain(void)
{
    struct completion got;
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, 1, &got);
    int writes = 0;
    begin(false);
    start(&op);
    while (!got.done && writes < 1000) {
        CU_ASSERT_EQUAL(step(), SQL_READ);
        if (got.done)
            break;
        table.exists = true;
        table.version++;
        CU_ASSERT_EQUAL(step(), SQL_WRITE);
        writes++;
    }
    CU_ASSERT_EQUAL(got.status, MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(writes, 64);
    end();
}

/* What a lost reply leaves in doubt. */
static void test_lost_replies(void)
{
    static const struct {
        mortise_op_kind kind;
        bool quick;
        int steps; /* executed before */
        mortise_status status;
    } cases[] = {
        {MORTISE_OP_ACQUIRE, true, 0, MORTISE_INDETERMINATE},  /* TAKE */
        {MORTISE_OP_RENEW, true, 0, MORTISE_INDETERMINATE},    /* EXTEND */
        {MORTISE_OP_RELEASE, true, 0, MORTISE_INDETERMINATE},  /* GIVE */
        {MORTISE_OP_ACQUIRE, false, 0, MORTISE_UNREACHABLE},   /* READ */
        {MORTISE_OP_ACQUIRE, false, 1, MORTISE_INDETERMINATE}, /* WRITE */
        {MORTISE_OP_WRITE, false, 0, MORTISE_INDETERMINATE},   /* RECORD_WRITE */
        {MORTISE_OP_READ, false, 0, MORTISE_UNREACHABLE},      /* RECORD_READ */
        {MORTISE_OP_LIST, false, 0, MORTISE_UNREACHABLE},
    };
    const mortise_error trouble = {.status = MORTISE_NOMEM};
    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
        struct completion got;
        mortise_op op = op_of(cases[i / 2].kind, 1, &got);
        bool sent = i % 2 == 0;
        begin(cases[i / 2].quick);
        start(&op);
        for (int n = 0; n < cases[i / 2].steps; n++)
            step();
        locks_lost(first(), sent, &trouble);
        CU_ASSERT_TRUE(got.done);
        CU_ASSERT_EQUAL(got.status, sent ? cases[i / 2].status : MORTISE_NOMEM);
        end();
    }
}

/* BUSY: this client becomes a waiter, and with a place in the list it takes the row as the first. */
static void wait_in_list(struct completion *got)
{
    static mortise_op op;
    op = op_of(MORTISE_OP_ACQUIRE, 1, got);
    table_is(9, 60000, 0);
    start(&op);
    CU_ASSERT_EQUAL(step(), SQL_TAKE);
    CU_ASSERT_EQUAL(step(), SQL_READ);
    CU_ASSERT_EQUAL(step(), SQL_APPEND);
    CU_ASSERT_EQUAL(got->status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(op.hint_ms, 1234);
    locks_watch(&locks, "name", 4);
}

static void test_canceled_take(void)
{
    struct completion got;
    begin(true);
    wait_in_list(&got);
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, 2, &got);
    start(&op);
    struct sql_request *request = first();
    CU_ASSERT_TRUE(request->first);
    request->flying = true;
    locks_cancel(&locks, &op);
    CU_ASSERT_TRUE(got.done && got.status == MORTISE_INDETERMINATE);
    take_it(request); /* it took the row, and with it the place in the list */
    op = op_of(MORTISE_OP_ACQUIRE, 3, &got);
    start(&op);
    CU_ASSERT_FALSE(queue[0]->first);
    locks_cancel(&locks, &op);
    CU_ASSERT_EQUAL(got.status, MORTISE_CANCELED);
    locks_unwatch(&locks, "name", 4);
    end();
}

/* A notification that comes before the core watches is not lost. */
static void test_notified_before_the_watch(void)
{
    struct completion got;
    begin(true);
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, 1, &got);
    locks.hears = true;
    table_is(9, 60000, 0);
    start(&op);
    step();
    step();
    locks_hear(&locks, "name", 4); /* its BUSY is on its way */
    CU_ASSERT_EQUAL(news_count, 0);
    step();
    locks_watch(&locks, "name", 4);
    CU_ASSERT_EQUAL(news_count, 1);
    locks_unwatch(&locks, "name", 4);
    CU_ASSERT_EQUAL(step(), SQL_READ); /* it leaves the list */
    CU_ASSERT_EQUAL(step(), SQL_WRITE);
    CU_ASSERT_EQUAL(table.waiters_len, 0);
    end();
}

/* Whoever releases looks again when the reservation is over, if the first waiter was notified. */
static void test_check(void)
{
    struct completion got;
    begin(false);
    table_is(1, 60000, 2);
    mortise_op op = op_of(MORTISE_OP_RELEASE, 1, &got);
    op.token = 5;
    start(&op);
    step();
    step();
    CU_ASSERT_EQUAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(notified_count, 1);
    CU_ASSERT_EQUAL(notified[0].bytes[0], 100);
    CU_ASSERT_EQUAL(locks.chore_ns, now_ns + 51 * MS);
    now_ns = locks.chore_ns;
    locks_turn(&locks);
    CU_ASSERT_EQUAL(step(), SQL_READ);
    CU_ASSERT_EQUAL(step(), SQL_WRITE); /* it lost its place to the next */
    CU_ASSERT_EQUAL(table.waiters_len, ROWLEASE_WAITER_SIZE);
    CU_ASSERT_EQUAL(notified_count, 2);
    CU_ASSERT_EQUAL(notified[1].bytes[0], 101);
    end();
}

/* One that cannot be notified now keeps its place. */
static void test_not_yet(void)
{
    struct completion got;
    begin(false);
    notified_as = SQL_NOT_YET;
    table_is(1, 60000, 2);
    mortise_op op = op_of(MORTISE_OP_RELEASE, 1, &got);
    op.token = 5;
    start(&op);
    step();
    step();
    CU_ASSERT_EQUAL(notified_count, 1);
    CU_ASSERT_EQUAL(locks.chore_ns, MORTISE_NEVER);
    end();
}

/* Those that are gone leave the list at once, together. */
static void test_nobody(void)
{
    struct completion got;
    begin(false);
    notified_as = SQL_NOBODY;
    alive = false;
    table_is(1, 60000, 3);
    mortise_op op = op_of(MORTISE_OP_RELEASE, 1, &got);
    op.token = 5;
    start(&op);
    step();
    step();
    CU_ASSERT_EQUAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(step(), SQL_READ);
    CU_ASSERT_EQUAL(step(), SQL_WRITE);
    CU_ASSERT_EQUAL(table.waiters_len, 0);
    CU_ASSERT_EQUAL(table.expires_us, 0);
    end();
}

/* Its claim had expired: callers of this client that waited behind it ask again. */
static void test_released_too_late(void)
{
    struct completion got;
    begin(false);
    can_hear = false;
    locks_watch(&locks, "name", 4);
    table_is(1, -1, 0);
    size_t before = news_count;
    mortise_op op = op_of(MORTISE_OP_RELEASE, 1, &got);
    op.token = 5;
    start(&op);
    step();
    CU_ASSERT_EQUAL(got.status, MORTISE_LOST);
    CU_ASSERT_EQUAL(news_count, before + 1);
    locks_unwatch(&locks, "name", 4);
    end();
}

/* A release that was canceled in the server's hands: waiters are notified none the less, and looked after. */
static void test_canceled_release(void)
{
    struct completion got;
    begin(true);
    can_hear = false;
    locks_watch(&locks, "name", 4); /* a caller of this client, behind its own claim */
    table_is(1, 60000, 2);
    mortise_op op = op_of(MORTISE_OP_RELEASE, 1, &got);
    op.token = 5;
    start(&op);
    struct sql_request *request = first();
    CU_ASSERT_EQUAL(request->step, SQL_GIVE);
    request->flying = true;
    locks_cancel(&locks, &op);
    CU_ASSERT_TRUE(got.done);
    size_t before = news_count;
    locks.result = (struct sql_result){
        .touched = true, .waiters = table.waiters, .waiters_len = table.waiters_len};
    CU_ASSERT_EQUAL(locks_step(request), SQL_OVER);
    locks_tell(request);
    CU_ASSERT_EQUAL(news_count, before + 1);
    CU_ASSERT_EQUAL(notified_count, 1);
    table.grants_len = 0; /* what the GIVE made of it; the first waiter does not come */
    now_ns = locks.chore_ns;
    table.expires_us = now_ns / 1000;
    locks_turn(&locks);
    CU_ASSERT_EQUAL(step(), SQL_READ);
    CU_ASSERT_EQUAL(step(), SQL_WRITE);
    CU_ASSERT_EQUAL(notified_count, 2);
    locks_unwatch(&locks, "name", 4);
    end();
}

/* The same of an acquire: the waiter that it passed over asks again. */
static void test_canceled_acquire_passes_over(void)
{
    struct completion got;
    begin(false);
    table_is(0, -100, 1);
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, 1, &got);
    start(&op);
    CU_ASSERT_EQUAL(step(), SQL_READ);
    struct sql_request *request = first();
    CU_ASSERT_EQUAL(request->step, SQL_WRITE);
    request->flying = true;
    locks_cancel(&locks, &op);
    execute(request);
    CU_ASSERT_EQUAL(locks_step(request), SQL_OVER);
    locks_tell(request);
    CU_ASSERT_EQUAL(notified_count, 1);
    CU_ASSERT_EQUAL(notified[0].bytes[0], 100);
    end();
}

/* ---- shared claims --------------------------------------------------------------------------------- */

static mortise_op shared_op(mortise_op_kind kind, char grant, uint32_t permits,
                            struct completion *completion)
{
    mortise_op op = op_of(kind, grant, completion);
    op.mode = MORTISE_SHARED;
    op.permits = permits;
    op.note = "web3\n4711\nnightly";
    op.note_len = strlen(op.note);
    return op;
}

/* Holders with the grants 1, 2, … */
static void table_is_shared(uint32_t permits, int count)
{
    for (int i = 1; i <= count; i++) {
        struct completion got;
        mortise_op op = shared_op(MORTISE_OP_ACQUIRE, (char)i, permits, &got);
        const struct rowlease_time time = {.now_us = now_ns / 1000, .wall_us = now_ns / 1000};
        CU_ASSERT_EQUAL(rowlease_acquire(&table, &op, time, NULL).status, MORTISE_OK);
    }
}

static void add_waiter(unsigned char inbox, bool shared)
{
    unsigned char *waiter = table.waiters + table.waiters_len;
    memset(waiter, 0, ROWLEASE_WAITER_SIZE);
    waiter[0] = inbox;
    waiter[ROWLEASE_WAITER_SIZE - 1] = shared ? ROWLEASE_WANTS_SHARED : 0;
    table.waiters_len += ROWLEASE_WAITER_SIZE;
}

static void test_steps_of_a_shared_claim(void)
{
    struct completion got;
    begin(true);
    mortise_op op = shared_op(MORTISE_OP_ACQUIRE, 1, 0, &got);
    start(&op);
    CU_ASSERT_EQUAL(step(), SQL_READ);
    CU_ASSERT_TRUE(queue[0]->durable);
    CU_ASSERT_EQUAL(step(), SQL_WRITE);
    CU_ASSERT_EQUAL(got.status, MORTISE_OK);
    CU_ASSERT_TRUE(rowlease_shared(&table));
    uint64_t token = op.token;
    op = shared_op(MORTISE_OP_RENEW, 1, 0, &got);
    op.token = token;
    start(&op);
    CU_ASSERT_EQUAL(step(), SQL_READ);
    CU_ASSERT_TRUE(queue[0]->durable);
    CU_ASSERT_EQUAL(step(), SQL_WRITE);
    CU_ASSERT_EQUAL(got.status, MORTISE_OK);
    op = shared_op(MORTISE_OP_RELEASE, 1, 0, &got);
    op.token = token;
    start(&op);
    CU_ASSERT_EQUAL(step(), SQL_READ);
    CU_ASSERT_FALSE(queue[0]->durable);
    CU_ASSERT_EQUAL(step(), SQL_WRITE);
    CU_ASSERT_EQUAL(got.status, MORTISE_OK);
    CU_ASSERT_FALSE(rowlease_held(&table, now_ns / 1000));
    end();
}

/* Behind shared holders a waiter that wants the name for itself bars others; in one statement, if the dialect has it. */
static void test_steps_of_a_bar(void)
{
    for (int quick = 0; quick < 2; quick++) {
        struct completion got;
        begin(quick);
        locks.hears = true;
        table_is_shared(0, 2);
        mortise_op op = op_of(MORTISE_OP_ACQUIRE, 9, &got);
        start(&op);
        if (quick)
            CU_ASSERT_EQUAL(step(), SQL_TAKE);
        CU_ASSERT_EQUAL(step(), SQL_READ);
        CU_ASSERT_TRUE(queue[0]->answer.registered);
        CU_ASSERT_FALSE(queue[0]->durable);
        CU_ASSERT_EQUAL(step(), quick ? SQL_BAR : SQL_WRITE);
        CU_ASSERT_TRUE(got.done && got.status == MORTISE_BUSY);
        CU_ASSERT_TRUE(op.hint_ms > 0 && op.hint_ms <= 1000);
        end();
    }
}

/* A place in the list behind an exclusive holder; behind shared ones only if none of them has left meanwhile. */
static void test_steps_of_a_shared_waiter(void)
{
    struct completion got;
    begin(true);
    locks.hears = true;
    table_is(9, 60000, 0);
    mortise_op op = shared_op(MORTISE_OP_ACQUIRE, 1, 2, &got);
    start(&op);
    CU_ASSERT_EQUAL(step(), SQL_READ);
    CU_ASSERT_EQUAL(step(), SQL_APPEND);
    CU_ASSERT_EQUAL(got.status, MORTISE_BUSY);
    end();
    begin(true);
    locks.hears = true;
    table_is_shared(2, 2);
    op = shared_op(MORTISE_OP_ACQUIRE, 9, 2, &got);
    start(&op);
    CU_ASSERT_EQUAL(step(), SQL_READ);
    CU_ASSERT_EQUAL(step(), SQL_WRITE);
    CU_ASSERT_EQUAL(got.status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(table.waiters[ROWLEASE_WAITER_SIZE - 1], ROWLEASE_WANTS_SHARED);
    end();
}

/* Two places are free, so two waiters are notified; one that wants the name for itself is not. */
static void test_places_come_back(void)
{
    struct completion got;
    begin(false);
    notified_as = SQL_NOT_YET;
    table_is_shared(3, 2);
    add_waiter(100, false);
    for (unsigned char i = 101; i < 105; i++)
        add_waiter(i, true);
    mortise_op op = shared_op(MORTISE_OP_RELEASE, 1, 3, &got);
    start(&op);
    CU_ASSERT_EQUAL(step(), SQL_READ);
    CU_ASSERT_TRUE(queue[0]->wakes);
    CU_ASSERT_EQUAL(queue[0]->waiters[0].bytes[0], 101);
    CU_ASSERT_EQUAL(step(), SQL_WRITE);
    CU_ASSERT_EQUAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(notified_count, 2);
    CU_ASSERT_EQUAL(notified[0].bytes[0], 101);
    CU_ASSERT_EQUAL(notified[1].bytes[0], 102);
    now_ns = locks.chore_ns; /* neither comes */
    locks_turn(&locks);
    CU_ASSERT_EQUAL(step(), SQL_READ);
    CU_ASSERT_EQUAL(step(), SQL_WRITE);
    CU_ASSERT_EQUAL(notified_count, 4);
    CU_ASSERT_EQUAL(notified[2].bytes[0], 102);
    CU_ASSERT_EQUAL(notified[3].bytes[0], 103);
    now_ns = locks.chore_ns;
    table.grants_len = table.expires_us = 0; /* it is over */
    table.owned = false;
    table.version++;
    locks_turn(&locks);
    CU_ASSERT_EQUAL(step(), SQL_READ);
    end();
}

static void test_downgrade(void)
{
    struct completion got;
    begin(true);
    can_hear = false;
    locks_watch(&locks, "name", 4); /* a caller of this client */
    table_is(1, 60000, 0);
    add_waiter(100, false);
    add_waiter(101, true);
    mortise_op op = op_of(MORTISE_OP_RENEW, 1, &got);
    op.token = 5;
    op.flags = MORTISE_OP_DOWNGRADE;
    start(&op);
    CU_ASSERT_EQUAL(step(), SQL_READ);
    CU_ASSERT_TRUE(queue[0]->durable && !queue[0]->wakes);
    size_t before = news_count;
    CU_ASSERT_EQUAL(step(), SQL_WRITE);
    CU_ASSERT_EQUAL(got.status, MORTISE_OK);
    CU_ASSERT_TRUE(rowlease_shared(&table));
    CU_ASSERT_EQUAL(news_count, before + 1);
    CU_ASSERT_EQUAL(notified_count, 1);
    CU_ASSERT_EQUAL(notified[0].bytes[0], 101);
    locks_unwatch(&locks, "name", 4);
    now_ns = locks.chore_ns;
    locks_turn(&locks);
    CU_ASSERT_EQUAL(step(), SQL_READ);
    CU_ASSERT_EQUAL(step(), SQL_WRITE);
    op = op_of(MORTISE_OP_RELEASE, 1, &got);
    op.token = 5;
    op.flags = MORTISE_OP_DOWNGRADE;
    start(&op);
    CU_ASSERT_EQUAL(step(), SQL_READ);
    CU_ASSERT_EQUAL(step(), SQL_WRITE);
    CU_ASSERT_EQUAL(got.status, MORTISE_OK);
    now_ns = locks.chore_ns;
    table.version++;
    locks_turn(&locks);
    CU_ASSERT_EQUAL(step(), SQL_READ);
    end();
}

static void drop_info(mortise_op *op, const mortise_info *info)
{
    (void)op;
    (void)info;
}

static void test_what_is_told(void)
{
    struct completion got;
    mortise_info info = {.size = sizeof info};
    begin(true);
    table_is_shared(3, 2);
    mortise_op op = shared_op(MORTISE_OP_ACQUIRE, 9, 5, &got);
    start(&op);
    CU_ASSERT_EQUAL(step(), SQL_READ);
    CU_ASSERT_TRUE(got.done && got.status == MORTISE_INVALID);
    CU_ASSERT_PTR_NOT_NULL(strstr(failure, "permits = 5 was asked for"));
    CU_ASSERT_PTR_NOT_NULL(strstr(failure, "(pid 4711) holds it with permits = 3"));
    op = op_of(MORTISE_OP_INSPECT, 0, &got);
    op.info = &info;
    op.emitted = drop_info;
    start(&op);
    CU_ASSERT_EQUAL(step(), SQL_READ);
    CU_ASSERT_TRUE(info.held && info.mode == MORTISE_SHARED && info.holders == 2);
    CU_ASSERT_EQUAL(emitted_count, 2);
    CU_ASSERT_TRUE(emitted[0] == info.token && emitted[1] == info.token + 1);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"the steps of an acquire", test_steps_of_an_acquire},
        {"writes in vain", test_writes_in_vain},
        {"lost replies", test_lost_replies},
        {"a canceled TAKE", test_canceled_take},
        {"a canceled release", test_canceled_release},
        {"a canceled acquire that passes a waiter over", test_canceled_acquire_passes_over},
        {"notified before the watch", test_notified_before_the_watch},
        {"a check", test_check},
        {"notified later", test_not_yet},
        {"nobody is there", test_nobody},
        {"released too late", test_released_too_late},
        {"the steps of a shared claim", test_steps_of_a_shared_claim},
        {"the steps of a bar", test_steps_of_a_bar},
        {"the steps of a shared waiter", test_steps_of_a_shared_waiter},
        {"places come back", test_places_come_back},
        {"a downgrade", test_downgrade},
        {"what is told of shared holders", test_what_is_told},
        CU_TEST_INFO_NULL,
    };
    CU_SuiteInfo suites[] = {{"sql locks", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    if (CU_initialize_registry() != CUE_SUCCESS || CU_register_suites(suites) != CUE_SUCCESS)
        return 1;
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    unsigned failures = CU_get_number_of_failures();
    CU_cleanup_registry();
    return failures == 0 ? 0 : 1;
}
