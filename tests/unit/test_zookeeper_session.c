/* test_zookeeper_session.c - the session of the ZooKeeper driver on an ensemble in memory: what the servers grant when it is
 * connected again, and what becomes of the leases; a client that only asks; no threads for the library. */
#include "fake_zookeeper.h"
#include "suite.h"
#include "zookeeper_host.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);

static int threads = -1; /* how many can be had; -1: any number */

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument)
{
    if (threads == 0)
        return EAGAIN;
    threads -= threads > 0;
    return __real_pthread_create(thread, attributes, run, argument);
}

static void settle(void)
{
    while (run_posted() || fake_step())
        continue;
}

static void open_connected(void)
{
    fake_reset(true);
    fake_make("/r");
    fake_make("/r/x");
    open_driver(false, HOUR_MS);
    while (!fake_connect())
        if (!run_posted())
            pass_time();
    settle();
}

static void connect_again(int cut_for_ms)
{
    int64_t until_ns = now_ns + cut_for_ms * MS;
    fake_cut(0);
    while (run_posted())
        continue;
    while (now_ns < until_ns)
        pass_time();
    CU_ASSERT(fake_connect());
    while (run_posted())
        continue;
}

static bool finish(const mortise_op *op)
{
    for (int i = 0; i < 1000 && op->issuer == NULL; i++)
        if (!run_posted() && !fake_step())
            pass_time();
    return op->issuer != NULL;
}

static mortise_op hold(void)
{
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, 1);
    start(&op);
    CU_ASSERT(finish(&op));
    CU_ASSERT_EQUAL(op.status, MORTISE_OK);
    return op;
}

static mortise_status renew(mortise_op *op)
{
    *op = op_of(MORTISE_OP_RENEW, 1);
    start(op);
    CU_ASSERT_PTR_NOT_NULL(op->issuer);
    return op->status;
}

static void release_and_close(mortise_status status)
{
    mortise_op op = op_of(MORTISE_OP_RELEASE, 1);
    bool first;
    start(&op);
    CU_ASSERT(finish(&op));
    CU_ASSERT_EQUAL(op.status, status);
    CU_ASSERT_EQUAL(fake_contenders("/r/x", &first), 0);
    settle();
    close_driver();
}

/* ---- the servers of the config ------------------------------------------------------------------------------ */

/* A user and a password before a server, or a URL, would stand in each message. */
static void test_what_is_no_server(void)
{
    static const char *const
        right[] = {"zk1", "zk1:7, zk2", "::1", "[::1]:7", "fe80::1%eth0", "::ffff:10.0.0.1"},
        *const wrong[] = {"zk1,zk2:x", "zookeeper://zk1:2181", "zk1/root", "x:y:z", "[[::1]:7"},
        *const secret[] = {"u:pw@zk1:2181", "zookeeper://u:pw@zk1:2181",
                           "u:pw@zk1",      "zk0,u:pw,pw@zk1",
                           "[u:pw@zk1]:7",  "zookeeper://zk1:2181/a?auth=digest:u:pw"},
        *const hidden[] = {"zookeeper://zk1/a?auth=digest:u:p@pw", "u:pw?pw@zk1"};
    mortise_error error;
    for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++)
        CU_ASSERT_EQUAL(try_servers(right[i], &error), MORTISE_OK);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        CU_ASSERT_EQUAL(try_servers(wrong[i], &error), MORTISE_CONFIG);
    CU_ASSERT_EQUAL(try_servers(wrong[0], &error), MORTISE_CONFIG);
    CU_ASSERT_STRING_EQUAL(error.message, "zookeeper: servers: \"zk2:x\" is not HOST or HOST:PORT");
    for (size_t i = 0; i < sizeof(secret) / sizeof(*secret); i++) {
        CU_ASSERT_EQUAL_FATAL(try_servers(secret[i], &error), MORTISE_CONFIG);
        CU_ASSERT_PTR_NULL(strstr(error.message, "pw"));
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "zk1"));
    }
    for (size_t i = 0; i < sizeof(hidden) / sizeof(*hidden); i++) {
        CU_ASSERT_EQUAL_FATAL(try_servers(hidden[i], &error), MORTISE_CONFIG);
        CU_ASSERT_PTR_NULL(strstr(error.message, "pw"));
    }
}

/* ---- another timeout ---------------------------------------------------------------------------------------- */

/* A lease was told ten seconds, and the next server grants three. The core cannot shorten its deadline, so the driver makes
 * it ask as soon as three seconds have passed without a proof, and says LOST. */
static void test_granted_less_and_cut_off(void)
{
    mortise_op held, renewal;
    bool first;
    open_connected();
    held = hold();
    settle();
    fake_timeout_ms = 3000;
    connect_again(0); /* from now on the client is cut off, and hears nothing of that */
    int64_t from_ns = now_ns, told_ns = held.from_ns + held.good_for_ms * MS;
    int before = doubts;
    while (doubts == before && now_ns < told_ns)
        pass_time();
    CU_ASSERT(now_ns - from_ns <= 3000 * MS);
    CU_ASSERT(now_ns - from_ns > 2000 * MS); /* and not before it is needed */
    CU_ASSERT_EQUAL(fake_contenders("/r/x", &first), 1);
    CU_ASSERT_EQUAL(renew(&renewal), MORTISE_LOST);
    release_and_close(MORTISE_OK);
}

/* While beats are answered, it is renewed for less at a time. */
static void test_granted_less_and_renewed(void)
{
    mortise_op renewal;
    open_connected();
    hold();
    settle();
    fake_timeout_ms = 3000;
    connect_again(0);
    for (int64_t until_ns = now_ns + 2LL * FAKE_TIMEOUT_MS * MS; now_ns < until_ns;) {
        settle();
        CU_ASSERT_EQUAL(renew(&renewal), MORTISE_OK);
        CU_ASSERT(renewal.good_for_ms <= 3000);
        pass_time();
    }
    release_and_close(MORTISE_OK);
}

/* ---- a client that only asks -------------------------------------------------------------------------------- */

/* Servers that have lost their data do not connect its session again, and do not say that it has expired. */
static void test_asks_while_asleep(void)
{
    mortise_info info = {.size = sizeof(info)};
    mortise_op asks = op_of(MORTISE_OP_INSPECT, 0);
    asks.info = &info;
    open_connected();
    int handles = fake_handles;
    for (int64_t until_ns = now_ns + 3LL * FAKE_TIMEOUT_MS * MS; now_ns < until_ns;)
        if (!run_posted() && !fake_step())
            pass_time();
    fake_cut(0);
    while (run_posted())
        continue;
    start(&asks);
    for (int i = 0; i < 100 && fake_handles == handles; i++)
        if (!run_posted())
            pass_time();
    CU_ASSERT_EQUAL(fake_handles, handles + 1);
    CU_ASSERT(fake_connect());
    CU_ASSERT(finish(&asks));
    CU_ASSERT_EQUAL(asks.status, MORTISE_OK);
    settle();
    close_driver();
}

/* ---- no answer ---------------------------------------------------------------------------------------------- */

static void test_connected_without_an_answer(void)
{
    mortise_op renewal;
    open_connected();
    hold();
    settle();
    for (int64_t until_ns = now_ns + FAKE_TIMEOUT_MS / 2 * MS; now_ns < until_ns;)
        pass_time(); /* a beat is sent, and not answered */
    CU_ASSERT_EQUAL(renew(&renewal), MORTISE_UNREACHABLE);
    CU_ASSERT_PTR_NOT_NULL(strstr(told, "connected, and no answer"));
    settle();
    CU_ASSERT_EQUAL(renew(&renewal), MORTISE_OK);
    fake_cut(0);
    while (run_posted())
        continue;
    CU_ASSERT_EQUAL(renew(&renewal), MORTISE_UNREACHABLE);
    CU_ASSERT_PTR_NOT_NULL(strstr(told, "no connection"));
    CU_ASSERT(fake_connect());
    release_and_close(MORTISE_OK);
}

/* ---- an acquire is repeated ------------------------------------------------------------------------------------ */

static void hold_and_watch(void)
{
    hold();
    for (int64_t until_ns = now_ns + 500 * MS; now_ns < until_ns; pass_time())
        settle();
    settle();
}

static mortise_op repeat_of_acquire(void)
{
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, 1);
    op.flags = MORTISE_OP_REPEAT;
    op.hint_ms = -1;
    return op;
}

/* Without a connection, until less than a tenth of the timeout is left of what is proven. Then nothing is granted before a beat is
 * answered. */
static void nearly_lose(void)
{
    mortise_op renewal;
    CU_ASSERT_EQUAL(renew(&renewal), MORTISE_OK);
    int64_t deadline_ns = renewal.from_ns + renewal.good_for_ms * MS;
    fake_cut(0);
    while (now_ns < deadline_ns - FAKE_TIMEOUT_MS / 20 * MS)
        if (!run_posted())
            pass_time();
    CU_ASSERT(now_ns < deadline_ns);
}

/* The reply of an acquire was lost above the driver, and it comes again under the same grant. Before it can be answered, the
 * claim ceases to be held: that is the answer, and the caller may ask anew at once. */
static void test_repeated_and_lost(void)
{
    enum { EXPIRES, IS_DELETED, IS_ABANDONED, ALL };
    for (int how = EXPIRES; how < ALL; how++) {
        mortise_op repeat = repeat_of_acquire();
        open_connected();
        hold_and_watch();
        nearly_lose();
        int handles = fake_handles;
        start(&repeat);
        CU_ASSERT_PTR_NULL(repeat.issuer);
        if (how == EXPIRES)
            CU_ASSERT(fake_expire());
        if (how == IS_DELETED)
            CU_ASSERT(fake_delete_first("/r/x"));
        if (how == IS_DELETED)
            CU_ASSERT(fake_connect());
        CU_ASSERT(finish(&repeat));
        CU_ASSERT_EQUAL(repeat.status, MORTISE_BUSY);
        CU_ASSERT_EQUAL(repeat.hint_ms, 0);
        while (how != IS_DELETED && (fake_handles == handles || !fake_connect()))
            if (!run_posted())
                pass_time();
        release_and_close(how == IS_ABANDONED ? MORTISE_OK : MORTISE_LOST);
    }
}

/* The same, when the claim is being deleted, and when its node has gone. */
static void test_repeated_too_late(void)
{
    mortise_op release = op_of(MORTISE_OP_RELEASE, 1), repeat = repeat_of_acquire();
    open_connected();
    hold();
    start(&release);
    CU_ASSERT_PTR_NULL(release.issuer);
    start(&repeat);
    CU_ASSERT_PTR_NOT_NULL(repeat.issuer);
    CU_ASSERT_EQUAL(repeat.status, MORTISE_INDETERMINATE);
    CU_ASSERT_PTR_NOT_NULL(strstr(told, "has not ended yet"));
    CU_ASSERT(finish(&release));
    CU_ASSERT_EQUAL(release.status, MORTISE_OK);
    hold_and_watch();
    CU_ASSERT(fake_delete_first("/r/x"));
    settle();
    start(&repeat);
    CU_ASSERT_PTR_NOT_NULL(repeat.issuer);
    CU_ASSERT_EQUAL(repeat.status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(repeat.hint_ms, 0);
    release_and_close(MORTISE_LOST);
}

/* A try that is BUSY says nothing of how long. */
static void test_busy_for_a_try(void)
{
    mortise_op try = op_of(MORTISE_OP_ACQUIRE, 2);
    open_connected();
    hold();
    try.flags = MORTISE_OP_TRY;
    start(&try);
    CU_ASSERT(finish(&try));
    CU_ASSERT_EQUAL(try.status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(try.hint_ms, -1);
    release_and_close(MORTISE_OK);
}

/* ---- another list of servers ----------------------------------------------------------------------------------- */

/* The names are looked up while nobody answers, and the answer comes when the library has a connection, whether the driver has
 * heard of that or not. */
static void test_servers_change_while_connected(void)
{
    for (int is_heard = 0; is_heard < 2; is_heard++) {
        open_connected();
        fake_cut(0);
        while (run_posted())
            continue;
        int before = look_ups, lists = fake_lists;
        while (look_ups == before)
            pass_time();
        CU_ASSERT(fake_connect());
        if (is_heard)
            module->turn(driver_ctx, NULL, 0);
        settle();
        CU_ASSERT_EQUAL(fake_bad_lists, 0);
        CU_ASSERT_EQUAL(fake_lists, lists);
        for (int cuts = 0; cuts < 2; cuts++) { /* once, at the first */
            fake_cut(0);
            while (run_posted())
                continue;
            CU_ASSERT_EQUAL(fake_lists, lists + 1);
            CU_ASSERT(fake_connect());
            settle();
        }
        CU_ASSERT_EQUAL(fake_bad_lists, 0);
        close_driver();
    }
}

/* ---- no threads --------------------------------------------------------------------------------------------- */

/* The real library would end the process. No thread can be had, or one of two. */
static void test_no_threads(void)
{
    for (int some = 0; some < 2; some++) {
        mortise_op fails = op_of(MORTISE_OP_ACQUIRE, 2), goes;
        fake_reset(true);
        fake_make("/r");
        fake_make("/r/x");
        open_driver(false, 2000);
        threads = some;
        start(&fails);
        while (fails.issuer == NULL) {
            threads = some;
            CU_ASSERT_FALSE_FATAL(fake_connect()); /* no handle */
            if (!run_posted())
                pass_time();
        }
        CU_ASSERT_EQUAL(fails.status, MORTISE_UNREACHABLE);
        CU_ASSERT_PTR_NOT_NULL(strstr(told, "cannot start a thread"));
        threads = -1;
        while (!fake_connect())
            if (!run_posted())
                pass_time();
        goes = hold();
        CU_ASSERT_EQUAL(goes.status, MORTISE_OK);
        release_and_close(MORTISE_OK);
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"what is no server", test_what_is_no_server},
        {"granted less, and cut off", test_granted_less_and_cut_off},
        {"granted less, and renewed", test_granted_less_and_renewed},
        {"a query of a client that is asleep", test_asks_while_asleep},
        {"connected, without an answer", test_connected_without_an_answer},
        {"repeated, and lost", test_repeated_and_lost},
        {"repeated too late", test_repeated_too_late},
        {"busy, for a try", test_busy_for_a_try},
        {"the servers change while connected", test_servers_change_while_connected},
        {"no threads", test_no_threads},
        CU_TEST_INFO_NULL};
    return suite_run("zookeeper session", tests);
}
