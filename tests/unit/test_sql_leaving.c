/* test_sql_leaving.c - a client of a database server closes while it is in a list of waiters, or is just being put there. */
#include "sql_remote_test.h"
#include "suite.h"

#include <sys/socket.h>

static mortise_op op;

int __real_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms);

/* As with TCP, fewer bytes than expected do not end the wait. */
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    if (main_link.expected == 0)
        return __real_poll(fds, count, timeout_ms);
    now_ns += timeout_ms * NS_PER_MS;
    return 0;
}

/* Its acquire is BUSY, and what puts it into the list is on its way. */
static void begin(void)
{
    rig_begin(true);
    op = rig_op(MORTISE_OP_ACQUIRE, 2);
    rig_start(&op);
    rig_answer();
    CU_ASSERT_EQUAL_FATAL(main_link.group_count, 1);
    CU_ASSERT_EQUAL(flight_group(&main_link)->requests[0]->base.step, SQL_APPEND);
    CU_ASSERT_EQUAL(table.waiters_len, 0);
}

/* It leaves, and waits for nothing else. */
static void end(void)
{
    int64_t began_ns = now_ns;
    rig_end();
    CU_ASSERT_EQUAL(table.waiters_len, 0);
    CU_ASSERT_EQUAL(now_ns, began_ns);
}

static void test_listed(void)
{
    begin();
    rig_answer();
    CU_ASSERT_EQUAL(completed, MORTISE_BUSY);
    CU_ASSERT_EQUAL(table.waiters_len, ROWLEASE_WAITER_SIZE);
    end();
}

/* The caller has given up, and the answer that puts the client into the list comes when it closes. */
static void test_listed_meanwhile(void)
{
    begin();
    remote_cancel(remote, &op);
    CU_ASSERT_EQUAL(completed, MORTISE_CANCELED);
    end();
}

/* The answer is shorter than expected, as that of a server that refuses a statement: the close looks for it. */
static void test_short_answer(void)
{
    int pair[2];
    begin();
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    CU_ASSERT_EQUAL(write(pair[1], "x", 1), 1);
    link_poll_no_more(&main_link);
    CU_ASSERT_FATAL(link_poll(&main_link, pair[0]));
    link_expect(&main_link, 100);
    remote_cancel(remote, &op);
    int64_t began_ns = now_ns;
    rig_end();
    CU_ASSERT_EQUAL(table.waiters_len, 0);
    CU_ASSERT(now_ns > began_ns && now_ns - began_ns < 10 * NS_PER_MS);
    close(pair[0]);
    close(pair[1]);
}

/* The statement that leaves the list fails. */
static void test_leaving_fails(void)
{
    begin();
    rig_answer();
    failures = 2;
    end();
    CU_ASSERT_EQUAL(failures, 0);
}

/* It always fails, at once: the close ends, and the server is not asked again and again until then. */
static void test_leaving_is_refused(void)
{
    begin();
    rig_answer();
    failures = 1000;
    int64_t began_ns = now_ns;
    rig_end();
    CU_ASSERT_EQUAL(failures, 995);
    CU_ASSERT_EQUAL(now_ns, began_ns);
    failures = 0;
}

/* The list is of a client that is stopped, of this one, and of a third; and another caller of this one releases the name, which is
 * kept for the first. Nobody else would look after that, so the close notifies the third. */
static void first_is_stopped(bool leaves)
{
    mortise_op release = rig_op(MORTISE_OP_RELEASE, 1);
    release.token = 5;
    begin();
    rig_answer();
    remote_watch(remote, "name", 4);
    memmove(table.waiters + ROWLEASE_WAITER_SIZE, table.waiters, ROWLEASE_WAITER_SIZE);
    table.waiters[0] = 100;
    table.waiters[2 * ROWLEASE_WAITER_SIZE] = 101;
    table.waiters_len = 3 * ROWLEASE_WAITER_SIZE;
    rig_start(&release);
    if (leaves)
        remote_unwatch(remote, "name", 4);
    rig_answer();
    rig_answer();
    CU_ASSERT_EQUAL(completed, MORTISE_OK);
    CU_ASSERT_EQUAL(table.grants_len, 0);
    CU_ASSERT_EQUAL(notified, 100);
    CU_ASSERT_EQUAL(main_link.group_count, leaves); /* to leave the list */
    rig_end();
    CU_ASSERT_EQUAL(table.waiters_len, 2 * ROWLEASE_WAITER_SIZE);
    CU_ASSERT_EQUAL(notified, 101);
}

static void test_first_is_stopped(void)
{
    first_is_stopped(false);
    first_is_stopped(true);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"in the list when it closes", test_listed},
        {"put into the list while it closes", test_listed_meanwhile},
        {"an answer that is shorter than expected", test_short_answer},
        {"leaving fails", test_leaving_fails},
        {"leaving is refused", test_leaving_is_refused},
        {"the waiter before it is stopped", test_first_is_stopped},
        CU_TEST_INFO_NULL,
    };
    return suite_run("sql leaving", tests);
}
