/* test_sql_locks.c - what drivers/lib/sql does with a dialect: the order of the steps, the answers, and what is done
 * for waiters. The dialect of this test keeps one row in memory; a test decides when a step is executed, and how it
 * ends. */
#include "names.h"
#include "sql_locks_test.h"
#include "suite.h"

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

/* A caller that looked in vain looks when that is due. A new one, after it has given up, asks at once. */
static void test_look_due(void)
{
    struct completion got;
    begin(true);
    can_hear = false;
    table_is(9, 60000, 0);
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, 1, &got);
    start(&op);
    CU_ASSERT_EQUAL(step(), SQL_TAKE);
    CU_ASSERT_EQUAL(step(), SQL_READ);
    for (int again = 1; again >= 0; again--) {
        CU_ASSERT_EQUAL(got.status, MORTISE_BUSY);
        int64_t due_ns = now_ns + op.hint_ms * MS;
        CU_ASSERT_TRUE(op.hint_ms > 0 && op.hint_ms < 1000);
        op = op_of(MORTISE_OP_ACQUIRE, 2, &got);
        op.flags = again ? MORTISE_OP_AGAIN : 0;
        start(&op);
        CU_ASSERT_EQUAL(locks_look_due(queue[0]), again ? due_ns : 0);
        CU_ASSERT_EQUAL(step(), SQL_READ);
    }
    op = op_of(MORTISE_OP_ACQUIRE, 2, &got); /* what is found free is taken at once */
    op.flags = MORTISE_OP_AGAIN;
    start(&op);
    CU_ASSERT_TRUE(locks_look_due(queue[0]) > now_ns);
    memset(&table, 0, sizeof(table));
    CU_ASSERT_EQUAL(step(), SQL_READ);
    CU_ASSERT_EQUAL_FATAL(queued, 1);
    CU_ASSERT_EQUAL(locks_look_due(queue[0]), 0);
    while (!got.done)
        step();
    CU_ASSERT_EQUAL(got.status, MORTISE_OK);
    end();
}

/* A caller that waits looks when it is due. Its holder has renewed meanwhile, or it is another holder. Returns when to look
 * again. */
static int64_t look_in_vain(bool moves)
{
    struct completion got;
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, 1, &got);
    table.version += moves;
    table.expires_us = now_ns / 1000 + 60000000;
    start(&op);
    while (!got.done)
        step();
    CU_ASSERT_EQUAL(got.status, MORTISE_BUSY);
    now_ns += op.hint_ms * MS;
    return op.hint_ms;
}

/* It looks less and less often while one holder has the lock; while the lock changes hands, every 100 to 200 ms, and if it
 * has waited for long, every 200 to 400 ms. */
static void test_looks_of_a_moving_lock(void)
{
    begin(true);
    can_hear = false;
    table_is(9, 60000, 0);
    for (int round = 0; round < 3; round++) {
        int64_t ms = 0, most_ms = round == 0 ? 200 : 400;
        for (int i = 0; i < 16; i++)
            ms = look_in_vain(false);
        CU_ASSERT_TRUE(ms >= 800 && ms <= 1600);
        for (int i = 0; i < 31; i++) {
            ms = look_in_vain(true);
            CU_ASSERT_TRUE(ms >= most_ms / 2 && ms <= most_ms);
        }
    }
    end();
}

/* Neither the first looks, which come sooner, nor those of another caller after a pause are put off by that. */
static void test_soon_though_it_moves(void)
{
    begin(true);
    can_hear = false;
    table_is(9, 60000, 0);
    for (int round = 0; round < 2; round++) {
        for (int64_t most_ms = 40; most_ms <= 160; most_ms *= 2) {
            int64_t ms = look_in_vain(true);
            CU_ASSERT_TRUE(ms >= most_ms / 2 && ms <= most_ms);
        }
        CU_ASSERT_TRUE(look_in_vain(true) <= 200);
        now_ns += 2 * ROWLEASE_LOOK_MS * MS + MS;
    }
    end();
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

/* The same, by READ and WRITE: whoever waits next is entered again. */
static void test_canceled_write(void)
{
    for (int shared = 0; shared < 2; shared++) {
        struct completion got;
        begin(true);
        wait_in_list(&got);
        table.expires_us = now_ns / 1000; /* its holder has expired */
        mortise_op op = op_of(MORTISE_OP_ACQUIRE, 2, &got);
        op.mode = shared ? MORTISE_SHARED : MORTISE_EXCLUSIVE;
        start(&op);
        if (!shared)
            CU_ASSERT_EQUAL(step(), SQL_TAKE);
        CU_ASSERT_EQUAL(step(), SQL_READ);
        struct sql_request *request = first();
        request->flying = true;
        locks_cancel(&locks, &op);
        execute(request);
        CU_ASSERT_EQUAL(locks_step(request), SQL_OVER);
        locks_tell(request);
        CU_ASSERT_EQUAL(table.waiters_len, 0);
        locks_watch(&locks, "name", 4);
        CU_ASSERT_EQUAL(step(), SQL_READ);
        step();
        locks_unwatch(&locks, "name", 4);
        CU_ASSERT_EQUAL(step(), SQL_READ);
        CU_ASSERT_EQUAL(step(), SQL_WRITE);
        end();
    }
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

/* Each cell of the table in names.h. */
static void test_places(void)
{
    enum {
        NONE = PLACE_NONE,
        ENTER = PLACE_TO_ENTER,
        LISTED = PLACE_LISTED,
        LEAVE = PLACE_TO_LEAVE
    };
    static const struct {
        enum name_event event;
        int after[PLACES]; /* NONE, TO_ENTER, LISTED, TO_LEAVE */
    } rows[PLACE_EVENTS] = {
        {PLACE_WANTED, {ENTER, ENTER, LISTED, ENTER}},
        {PLACE_DEAF, {NONE, NONE, LISTED, LEAVE}},
        {PLACE_UNWANTED, {NONE, NONE, LEAVE, LEAVE}},
        {PLACE_BEGUN, {NONE, NONE, LISTED, LISTED}},
        {PLACE_ENTERED, {LISTED, LISTED, LISTED, LISTED}},
        {PLACE_LEFT, {NONE, NONE, NONE, NONE}},
        {PLACE_UNLISTED, {NONE, ENTER, NONE, NONE}},
        {PLACE_STRAY, {LEAVE, LEAVE, LEAVE, LEAVE}},
    };
    struct sql_name name = {.len = 0};
    for (size_t i = 0; i < PLACE_EVENTS; i++)
        for (int before = 0; before < PLACES; before++) {
            name.place = (enum name_place)before;
            name_place_go(&name, rows[i].event);
            CU_ASSERT_EQUAL((int)name.place, rows[i].after[before]);
            CU_ASSERT_EQUAL(name_is_listed(&name), (int)name.place >= LISTED);
        }
}

/* An errand that leaves the list got no answer: it may have left. A caller that waits again enters again. */
static void test_leaving_without_an_answer(void)
{
    const mortise_error trouble = {.status = MORTISE_UNREACHABLE};
    struct completion got;
    begin(true);
    wait_in_list(&got);
    locks_unwatch(&locks, "name", 4);
    locks_lost(first(), true, &trouble);
    table.waiters_len = 0; /* it has left */
    locks_watch(&locks, "name", 4);
    CU_ASSERT_EQUAL(step(), SQL_READ);
    CU_ASSERT_EQUAL(step(), SQL_APPEND);
    CU_ASSERT_EQUAL(table.waiters_len, ROWLEASE_WAITER_SIZE);
    locks_unwatch(&locks, "name", 4);
    CU_ASSERT_EQUAL(step(), SQL_READ);
    CU_ASSERT_EQUAL(step(), SQL_WRITE);
    CU_ASSERT_EQUAL(table.waiters_len, 0);
    end();
}

/* Its place in the list is of no use while no notification arrives: it looks as often as one without. */
static void test_listed_and_deaf(void)
{
    struct completion got;
    begin(true);
    wait_in_list(&got);
    locks.hears = can_hear = false; /* the connection for it is lost */
    for (int i = 0; i < 20; i++)
        CU_ASSERT_TRUE(look_in_vain(false) <= 1600);
    locks.hears = true;
    CU_ASSERT_TRUE(look_in_vain(false) > 1600);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"the steps of an acquire", test_steps_of_an_acquire},
        {"writes in vain", test_writes_in_vain},
        {"lost replies", test_lost_replies},
        {"places in a list", test_places},
        {"leaving without an answer", test_leaving_without_an_answer},
        {"when the next look is due", test_look_due},
        {"looks of a lock that changes hands", test_looks_of_a_moving_lock},
        {"looks soon though it changes hands", test_soon_though_it_moves},
        {"looks of a listed waiter that cannot be notified", test_listed_and_deaf},
        {"a canceled TAKE", test_canceled_take},
        {"a canceled WRITE", test_canceled_write},
        {"a canceled release", test_canceled_release},
        {"a canceled acquire that passes a waiter over", test_canceled_acquire_passes_over},
        {"notified before the watch", test_notified_before_the_watch},
        {"a check", test_check},
        {"notified later", test_not_yet},
        {"nobody is there", test_nobody},
        {"released too late", test_released_too_late},
        CU_TEST_INFO_NULL,
    };
    return suite_run("sql locks", tests);
}
