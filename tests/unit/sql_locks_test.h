/* sql_locks_test.h - drivers/lib/sql with a dialect that keeps one row in memory: a test decides when a step is executed, and
 * how it ends. */
#ifndef MORTISE_TESTS_SQL_LOCKS_TEST_H
#define MORTISE_TESTS_SQL_LOCKS_TEST_H

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
    int64_t due_ns = locks_look_due(request); /* as a dialect asks for every step */
    CU_ASSERT_TRUE(due_ns == 0 || (request->step == SQL_READ && !request->swaps));
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

static inline void begin(bool quick)
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

static inline void end(void)
{
    CU_ASSERT_EQUAL(queued, 0);
    locks_free(&locks);
}

/* ---- steps ---------------------------------------------------------------------------------------- */

static inline bool same_state(const struct rowlease_row *a, const struct rowlease_row *b)
{
    return a->exists == b->exists && a->version == b->version && a->expires_us == b->expires_us &&
           a->grants_len == b->grants_len && memcmp(a->grants, b->grants, a->grants_len) == 0 &&
           a->waiters_len == b->waiters_len && memcmp(a->waiters, b->waiters, a->waiters_len) == 0;
}

/* As a server would. TAKE and its like touch nothing but in take_it(). */
static inline void execute(const struct sql_request *request)
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

static inline struct sql_request *first(void)
{
    struct sql_request *request = queue[0];
    CU_ASSERT_FATAL(queued > 0);
    memmove(queue, queue + 1, --queued * sizeof(queue[0]));
    request->sent_ns = now_ns;
    return request;
}

/* The first of the queue is executed and answered. */
static inline enum sql_step step(void)
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
static inline void take_it(struct sql_request *request)
{
    locks.result = (struct sql_result){.touched = true, .version = 42};
    CU_ASSERT_EQUAL(locks_step(request), SQL_OVER);
    locks_tell(request);
}

static inline mortise_op op_of(mortise_op_kind kind, char grant, struct completion *completion)
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

static inline void start(mortise_op *op)
{
    locks_start(&locks, &op, 1);
}

/* Somebody else holds the row, or has it reserved for these waiters. */
static inline void table_is(char grant, int64_t for_ms, size_t waiters)
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

#endif
