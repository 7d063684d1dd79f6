/* test_sql_shared.c - shared claims and permits in drivers/lib/sql: which step follows which, who is notified, what is
 * answered. What becomes of a row is tested in test_readers.c. */
#include "sql_locks_test.h"
#include "suite.h"

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

/* A client that closes cannot check whether the woken waiters come, so it notifies those behind them, too. */
static void test_places_come_back_at_the_end(void)
{
    struct completion got;
    begin(false);
    table_is_shared(3, 3);
    for (unsigned char i = 101; i < 105; i++)
        add_waiter(i, true);
    mortise_op op = shared_op(MORTISE_OP_RELEASE, 1, 3, &got);
    start(&op);
    step();
    step();
    CU_ASSERT_EQUAL(notified_count, 1);
    locks.closing = true;
    locks_leave(&locks);
    CU_ASSERT_EQUAL(step(), SQL_READ);
    CU_ASSERT_EQUAL(notified_count, 4);
    CU_ASSERT_EQUAL(notified[1].bytes[0], 102);
    CU_ASSERT_EQUAL(notified[3].bytes[0], 104);
    CU_ASSERT_TRUE(locks_have_left(&locks));
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
        {"the steps of a shared claim", test_steps_of_a_shared_claim},
        {"the steps of a bar", test_steps_of_a_bar},
        {"the steps of a shared waiter", test_steps_of_a_shared_waiter},
        {"places come back", test_places_come_back},
        {"places come back from a client that closes", test_places_come_back_at_the_end},
        {"a downgrade", test_downgrade},
        {"what is told of shared holders", test_what_is_told},
        CU_TEST_INFO_NULL,
    };
    return suite_run("sql shared", tests);
}
