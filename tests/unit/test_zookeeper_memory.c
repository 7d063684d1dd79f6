/* test_zookeeper_memory.c - no memory for an event of ZooKeeper's library, or for the name of a node: the driver goes on. */
#include "fake_zookeeper.h"
#include "suite.h"
#include "zookeeper_host.h"

#include <stdlib.h>

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);

static int mallocs, strdups; /* the one that fails, counted from now; 0: none */

void *__wrap_malloc(size_t size)
{
    return mallocs > 0 && --mallocs == 0 ? NULL : __real_malloc(size);
}

char *__wrap_strdup(const char *text)
{
    return strdups > 0 && --strdups == 0 ? NULL : __real_strdup(text);
}

static void go_on(void)
{
    if (!run_posted() && !fake_connect() && !fake_step())
        pass_time();
}

static bool finish_within(const mortise_op *op, int64_t ms)
{
    for (int64_t from_ns = now_ns; op->issuer == NULL && now_ns - from_ns < ms * MS;)
        go_on();
    return op->issuer != NULL;
}

static bool finish(const mortise_op *op)
{
    return finish_within(op, 2 * FAKE_TIMEOUT_MS);
}

static void finish_with(mortise_op *op, mortise_status status)
{
    CU_ASSERT(finish(op));
    CU_ASSERT_EQUAL(op->status, status);
}

static void settle(void)
{
    while (run_posted() || fake_step())
        continue;
}

static void open_with_folder(void)
{
    fake_reset(true);
    fake_make("/r");
    fake_make("/r/x");
    open_driver(false, HOUR_MS);
}

/* status: LOST if the acquire has failed and its node is deleted by now. */
static void release_and_close(unsigned char grant, mortise_status status)
{
    mortise_op op = op_of(MORTISE_OP_RELEASE, grant);
    bool first;
    start(&op);
    finish_with(&op, status);
    CU_ASSERT_EQUAL(fake_contenders("/r/x", &first), 0);
    settle();
    close_driver();
}

/* The first connection, or another one. */
static void test_connected_is_missed(void)
{
    for (int again = 0; again < 2; again++) {
        mortise_op op = op_of(MORTISE_OP_ACQUIRE, 1);
        bool is_connected = false;
        open_with_folder();
        if (again) {
            while (!fake_connect())
                if (!run_posted())
                    pass_time();
            settle();
            fake_cut(0);
        }
        while (!is_connected) {
            if (!run_posted())
                pass_time();
            mallocs = 1;
            is_connected = fake_connect();
            CU_ASSERT_EQUAL(mallocs, is_connected ? 0 : 1);
            mallocs = 0;
        }
        start(&op); /* sooner than a session that is unproven for too long would be given up */
        CU_ASSERT(finish_within(&op, FAKE_TIMEOUT_MS));
        CU_ASSERT_EQUAL(op.status, MORTISE_OK);
        release_and_close(1, MORTISE_OK);
    }
}

static void test_deleted_is_missed(void)
{
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, 1);
    bool first;
    open_with_folder();
    const char *rival = fake_make("/r/x/_c_x-lock-");
    start(&op);
    while (fake_contenders("/r/x", &first) < 2)
        go_on();
    settle();
    CU_ASSERT_PTR_NULL(op.issuer);
    mallocs = 1;
    CU_ASSERT(fake_delete(rival));
    CU_ASSERT_EQUAL(mallocs, 0);
    finish_with(&op, MORTISE_OK);
    release_and_close(1, MORTISE_OK);
}

/* The session is not closed under a lease: its node stays until the deadline, and the holder knows. */
static void test_missed_by_a_holder(void)
{
    mortise_op held = op_of(MORTISE_OP_ACQUIRE, 1), waits = op_of(MORTISE_OP_ACQUIRE, 2);
    mortise_op renewal = op_of(MORTISE_OP_RENEW, 1);
    bool first;
    open_with_folder();
    fake_make("/r/y");
    const char *rival = fake_make("/r/y/_c_y-lock-");
    start(&held);
    finish_with(&held, MORTISE_OK);
    waits.name = "y";
    start(&waits);
    while (fake_contenders("/r/y", &first) < 2)
        go_on();
    settle();
    mallocs = 1;
    CU_ASSERT(fake_delete(rival));
    CU_ASSERT_EQUAL(mallocs, 0);
    int64_t deadline_ns = held.from_ns + held.good_for_ms * MS;
    CU_ASSERT(deadline_ns > now_ns);
    while (now_ns < deadline_ns) {
        CU_ASSERT_EQUAL(fake_contenders("/r/x", &first), 1);
        go_on();
    }
    start(&renewal);
    CU_ASSERT(finish(&renewal));
    CU_ASSERT(renewal.status == MORTISE_LOST || renewal.status == MORTISE_UNREACHABLE);
    finish_with(&waits, MORTISE_OK);
    mortise_op release = op_of(MORTISE_OP_RELEASE, 2);
    release.name = "y";
    start(&release);
    finish_with(&release, MORTISE_OK);
    mortise_op last = op_of(MORTISE_OP_RELEASE, 1);
    start(&last);
    CU_ASSERT(finish(&last));
    CU_ASSERT_EQUAL(fake_contenders("/r/x", &first), 0);
    settle();
    close_driver();
}

/* The event was that of the lease's own node, and the connection breaks and comes back. */
static void test_own_is_missed(void)
{
    mortise_op held = op_of(MORTISE_OP_ACQUIRE, 1), before = op_of(MORTISE_OP_RENEW, 1),
               after = op_of(MORTISE_OP_RENEW, 1);
    open_with_folder();
    start(&held);
    finish_with(&held, MORTISE_OK);
    for (int i = 0; i < 20; i++) /* until it watches its node */
        go_on();
    settle();
    start(&before);
    finish_with(&before, MORTISE_OK);
    mallocs = 1;
    CU_ASSERT(fake_delete_first("/r/x"));
    CU_ASSERT_EQUAL(mallocs, 0);
    settle();
    fake_cut(0);
    while (!fake_connect())
        if (!run_posted())
            pass_time();
    for (int i = 0; i < 20; i++)
        go_on();
    start(&after);
    finish_with(&after, MORTISE_LOST);
    release_and_close(1, MORTISE_LOST);
}

/* The event was that of the tokens' base, while a list is on its way that shows a waiter as the first. */
static void test_base_is_missed(void)
{
    const int64_t base = 1000000;
    mortise_op held = op_of(MORTISE_OP_ACQUIRE, 1), waits = op_of(MORTISE_OP_ACQUIRE, 2);
    bool first;
    open_with_folder();
    fake_make("/r/y");
    const char *rival = fake_make("/r/y/_c_y-lock-");
    start(&held);
    finish_with(&held, MORTISE_OK);
    waits.name = "y";
    start(&waits);
    while (fake_contenders("/r/y", &first) < 2)
        go_on();
    settle();
    CU_ASSERT(fake_delete(rival));
    CU_ASSERT(run_posted()); /* the list is on its way */
    mallocs = 1;
    fake_write("/r/%tokens", "1000000");
    CU_ASSERT_EQUAL(mallocs, 0);
    settle();
    finish_with(&waits, MORTISE_OK);
    CU_ASSERT_EQUAL(waits.token, (uint64_t)(fake_czxid("/r/y/") + base));
    fake_cut(0); /* the session is suspended, and lives on */
    mortise_op release = op_of(MORTISE_OP_RELEASE, 2);
    release.name = "y";
    start(&release);
    finish_with(&release, MORTISE_OK);
    release_and_close(1, MORTISE_OK);
}

/* The event was that of a node that a waiter for permits watches, and the node stays. After the reconnection its watch does not
 * count, so the waiter hears of its end. */
static void test_permit_is_missed(void)
{
    mortise_op held = op_of(MORTISE_OP_ACQUIRE, 1), waits = op_of(MORTISE_OP_ACQUIRE, 2);
    bool first;
    open_with_folder();
    fake_make("/r/y");
    const char *rival = fake_make("/r/y/_c_x-1-s2-mortise-lock-");
    fake_make("/r/y/_c_y-1-s2-mortise-lock-");
    start(&held);
    finish_with(&held, MORTISE_OK);
    waits.name = "y";
    waits.mode = MORTISE_SHARED;
    waits.permits = 2;
    start(&waits);
    while (fake_contenders("/r/y", &first) < 3)
        go_on();
    settle();
    mallocs = 1;
    fake_write(rival, "__REVOKE__");
    CU_ASSERT_EQUAL(mallocs, 0);
    settle();
    fake_cut(0);
    while (!fake_connect())
        if (!run_posted())
            pass_time();
    settle();
    CU_ASSERT_PTR_NULL(waits.issuer);
    CU_ASSERT(fake_delete(rival));
    finish_with(&waits, MORTISE_OK);
    mortise_op release = op_of(MORTISE_OP_RELEASE, 2);
    release.name = "y";
    start(&release);
    finish_with(&release, MORTISE_OK);
    release_and_close(1, MORTISE_OK);
}

/* A shared acquire reads that the exclusive node before it is shared by now, and has no memory for its name. It looks again
 * later. A try does not: it fails for want of memory, and is not refused. */
static void forget_opened(uint32_t flags)
{
    bool has_failed = true, no_memory = false;
    for (int at = 1; has_failed; at++) {
        mortise_op held = op_of(MORTISE_OP_ACQUIRE, 1), shared = op_of(MORTISE_OP_ACQUIRE, 2);
        mortise_op downgrade = op_of(MORTISE_OP_RENEW, 1), release = op_of(MORTISE_OP_RELEASE, 1);
        open_with_folder();
        start(&held);
        finish_with(&held, MORTISE_OK);
        downgrade.flags = MORTISE_OP_DOWNGRADE;
        start(&downgrade);
        finish_with(&downgrade, MORTISE_OK);
        shared.mode = MORTISE_SHARED;
        shared.flags = flags;
        strdups = at;
        start(&shared);
        CU_ASSERT(finish(&shared));
        CU_ASSERT(shared.status == MORTISE_OK || shared.status == MORTISE_NOMEM ||
                  shared.status == MORTISE_INDETERMINATE);
        no_memory |= shared.status == MORTISE_NOMEM;
        has_failed = strdups == 0;
        strdups = 0;
        start(&release);
        finish_with(&release, MORTISE_OK);
        release_and_close(2, shared.status == MORTISE_OK ? MORTISE_OK : MORTISE_LOST);
    }
    CU_ASSERT(no_memory || (flags & MORTISE_OP_TRY) == 0);
}

static void test_opened_is_forgotten(void)
{
    forget_opened(0);
}

static void test_opened_is_forgotten_by_a_try(void)
{
    forget_opened(MORTISE_OP_TRY);
}

/* The library has no memory for more creates than may be under way at the same time. Afterwards others are sent. */
static void test_creates_are_refused(void)
{
    mortise_op held = op_of(MORTISE_OP_ACQUIRE, 1), refused, release = op_of(MORTISE_OP_RELEASE, 1);
    open_with_folder();
    start(&held);
    finish_with(&held, MORTISE_OK);
    fake_refusals = 300;
    while (fake_refusals > 0) {
        refused = op_of(MORTISE_OP_ACQUIRE, 2);
        start(&refused);
        CU_ASSERT_FATAL(finish(&refused));
        CU_ASSERT(refused.status == MORTISE_NOMEM || refused.status == MORTISE_INDETERMINATE);
    }
    start(&release);
    finish_with(&release, MORTISE_OK);
    mortise_op next = op_of(MORTISE_OP_ACQUIRE, 3);
    start(&next);
    finish_with(&next, MORTISE_OK);
    release_and_close(3, MORTISE_OK);
}

int main(void)
{
    CU_TestInfo tests[] = {{"connected, and not told", test_connected_is_missed},
                           {"deleted, and not told", test_deleted_is_missed},
                           {"not told, with a lease", test_missed_by_a_holder},
                           {"its own end, and not told", test_own_is_missed},
                           {"the base of the tokens, and not told", test_base_is_missed},
                           {"a permit, and not told", test_permit_is_missed},
                           {"opened, and forgotten", test_opened_is_forgotten},
                           {"a try forgets that it is opened", test_opened_is_forgotten_by_a_try},
                           {"creates are refused", test_creates_are_refused},
                           CU_TEST_INFO_NULL};
    return suite_run("zookeeper memory", tests);
}
