/* test_sqlite_leaving.c - waiters of the SQLite module that leave: killed, stopped, giving up, or without their
 * socket. None of this may delay the waiters behind them for more than a moment, or leave anything. */
#include "sqlite_talk.h"

/* ---- waiters that go away -------------------------------------------------------------------------- */

static void wait_for_ever(void *argument)
{
    struct talk *talk = argument;
    struct client client;
    struct call lock = waiting("a");
    OPEN_OK(&client, "path", path);
    CU_ASSERT_EQUAL(run(&client, &lock), MORTISE_BUSY);
    module->watch(client.ctx, "a", 1);
    say(talk->ready);
    for (;;)
        client_turn(&client, time_now() + 1000 * MS);
}

static void test_killed_waiters(void)
{
    enum { KILLED = 11 }; /* more than are tried at once */
    struct client client;
    struct call lock;
    struct talk talk = talk_open();
    pid_t pids[KILLED], last;
    path = database("killed");
    OPEN_OK(&client, "path", path);
    acquire(&client, &lock, "a", 0);
    for (int i = 0; i < KILLED; i++) {
        pids[i] = child_start(wait_for_ever, &talk);
        CU_ASSERT_TRUE_FATAL(hear(talk.ready));
    }
    last = child_start(wait_once, &talk);
    CU_ASSERT_TRUE_FATAL(hear(talk.ready));
    for (int i = 0; i < KILLED; i++) {
        kill(pids[i], SIGKILL);
        child_end(pids[i]);
    }
    CU_ASSERT_EQUAL(entries_in(path, "-wake"), KILLED + 1);
    int64_t released_ns = time_now();
    CU_ASSERT_EQUAL(release(&client, &lock), MORTISE_OK);
    CU_ASSERT_EQUAL(child_end(last), 0);
    CU_ASSERT_TRUE(talk.shared[0] - released_ns < WAIT_MS * MS / 2);
    client_close(&client);
    talk_close(&talk);
    assert_nothing_left();
}

/* The first waiter is stopped at the moment of its turn: it costs the second one a reservation, no more. When it
 * continues, it finds its message and asks again. */
static void test_stopped_waiter(void)
{
    struct client client;
    struct call lock;
    struct talk talk = talk_open();
    path = database("stopped");
    OPEN_OK(&client, "path", path);
    acquire(&client, &lock, "a", 0);
    pid_t stopped = child_start(wait_once, &talk);
    CU_ASSERT_TRUE_FATAL(hear(talk.ready));
    pid_t second = child_start(wait_once, &talk);
    CU_ASSERT_TRUE_FATAL(hear(talk.ready));
    int status;
    kill(stopped, SIGSTOP);
    CU_ASSERT_EQUAL(waitpid(stopped, &status, WUNTRACED), stopped);
    int64_t released_ns = time_now();
    CU_ASSERT_EQUAL(release(&client, &lock), MORTISE_OK);
    int64_t until_ns = time_now() + WAIT_MS * MS;
    pid_t ended = 0;
    while ((ended = waitpid(second, &status, WNOHANG)) == 0 && time_now() < until_ns)
        client_turn(&client, time_now() + 5 * MS);
    CU_ASSERT_TRUE_FATAL(ended == second && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CU_ASSERT_TRUE(talk.shared[0] - released_ns >= 20 * MS);
    CU_ASSERT_TRUE(talk.shared[0] - released_ns < WAIT_MS * MS / 2);
    kill(stopped, SIGCONT);
    CU_ASSERT_EQUAL(child_end(stopped), 0);
    client_close(&client);
    talk_close(&talk);
    assert_nothing_left();
}

/* It is the only waiter, and the others take turns without waiting: it costs them one reservation. */
static void test_stopped_waiter_costs_once(void)
{
    for (int by_check = 0; by_check < 2; by_check++) {
        struct client client;
        struct call lock;
        struct talk talk = talk_open();
        path = database(by_check ? "once-check" : "once");
        OPEN_OK(&client, "path", path);
        acquire(&client, &lock, "a", 0);
        pid_t stopped = child_start(wait_once, &talk);
        CU_ASSERT_TRUE_FATAL(hear(talk.ready));
        int status;
        kill(stopped, SIGSTOP);
        CU_ASSERT_EQUAL(waitpid(stopped, &status, WUNTRACED), stopped);
        clock_stop();
        CU_ASSERT_EQUAL(release(&client, &lock), MORTISE_OK);
        CU_ASSERT_EQUAL(acquire(&client, &lock, "a", MORTISE_OP_TRY), MORTISE_BUSY);
        clock_go_on();
        clock_shift_ns += 21 * MS; /* by the next caller, or by the releaser's timer */
        if (by_check)
            client_turn(&client, time_now());
        else
            CU_ASSERT_EQUAL(acquire(&client, &lock, "a", MORTISE_OP_TRY), MORTISE_OK);
        CU_ASSERT_EQUAL(inspect(&client, "a").waiters, 0);
        for (int i = 0; i < 10; i++) {
            if (by_check || i > 0)
                CU_ASSERT_EQUAL(acquire(&client, &lock, "a", MORTISE_OP_TRY), MORTISE_OK);
            CU_ASSERT_EQUAL(release(&client, &lock), MORTISE_OK);
        }
        kill(stopped, SIGCONT);
        CU_ASSERT_EQUAL(child_end(stopped), 0);
        client_close(&client);
        talk_close(&talk);
        assert_nothing_left();
    }
}

/* The releaser closes at once, as a command does: nobody else looks after the stopped one. It may be in the list itself. */
static void stopped_waiter_and_closed_releaser(bool waits)
{
    struct client client, second;
    struct call lock, own = waiting("a"), next = waiting("a");
    struct talk talk = talk_open();
    path = database(waits ? "closed-waits" : "closed");
    OPEN_OK(&client, "path", path);
    OPEN_OK(&second, "path", path);
    acquire(&client, &lock, "a", 0);
    pid_t stopped = child_start(wait_once, &talk);
    CU_ASSERT_TRUE_FATAL(hear(talk.ready));
    if (waits) {
        CU_ASSERT_EQUAL(run(&client, &own), MORTISE_BUSY);
        module->watch(client.ctx, "a", 1);
    }
    CU_ASSERT_EQUAL(run(&second, &next), MORTISE_BUSY);
    module->watch(second.ctx, "a", 1);
    int status;
    kill(stopped, SIGSTOP);
    CU_ASSERT_EQUAL(waitpid(stopped, &status, WUNTRACED), stopped);
    clock_stop();
    CU_ASSERT_EQUAL(release(&client, &lock), MORTISE_OK);
    client_close(&client);
    CU_ASSERT_TRUE(wait_news(&second, 1, WAIT_MS * MS));
    CU_ASSERT_EQUAL(run(&second, &next), MORTISE_BUSY);
    CU_ASSERT_TRUE(next.op.hint_ms <= 20);
    clock_go_on();
    wait_news(&second, 2, (next.op.hint_ms + 1) * MS);
    CU_ASSERT_EQUAL(run(&second, &next), MORTISE_OK);
    module->unwatch(second.ctx, "a", 1);
    CU_ASSERT_EQUAL(release(&second, &next), MORTISE_OK);
    kill(stopped, SIGCONT);
    CU_ASSERT_EQUAL(child_end(stopped), 0);
    client_close(&second);
    talk_close(&talk);
    assert_nothing_left();
}

static void test_stopped_waiter_and_closed_releaser(void)
{
    stopped_waiter_and_closed_releaser(false);
    stopped_waiter_and_closed_releaser(true);
}

/* A waiter that gives up just when its turn has come wakes the next one; so does a client that closes. */
static void test_giving_up(void)
{
    for (int closing = 0; closing < 2; closing++) {
        struct client holder, first, second;
        struct call lock, one = waiting("a"), two = waiting("a");
        path = database(closing ? "give-up-close" : "give-up");
        OPEN_OK(&holder, "path", path);
        OPEN_OK(&first, "path", path);
        OPEN_OK(&second, "path", path);
        acquire(&holder, &lock, "a", 0);
        CU_ASSERT_EQUAL(run(&first, &one), MORTISE_BUSY);
        module->watch(first.ctx, "a", 1);
        CU_ASSERT_EQUAL(run(&second, &two), MORTISE_BUSY);
        module->watch(second.ctx, "a", 1);
        CU_ASSERT_EQUAL(inspect(&holder, "a").waiters, 2);
        CU_ASSERT_EQUAL(release(&holder, &lock), MORTISE_OK);
        if (!closing)
            module->unwatch(first.ctx, "a", 1);
        client_close(&first);
        CU_ASSERT_TRUE(wait_news(&second, 1, WAIT_MS * MS));
        CU_ASSERT_EQUAL(run(&second, &two), MORTISE_OK);
        module->unwatch(second.ctx, "a", 1);
        release(&second, &two);
        client_close(&second);
        client_close(&holder);
        assert_nothing_left();
    }
}

/* BUSY, and then no watch: the place in the list ends by itself. */
static void test_busy_without_watch(void)
{
    struct client holder, client;
    struct call lock, other = waiting("a");
    path = database("unwatched");
    OPEN_OK(&holder, "path", path);
    OPEN_OK(&client, "path", path);
    acquire(&holder, &lock, "a", 0);
    CU_ASSERT_EQUAL(run(&client, &other), MORTISE_BUSY);
    CU_ASSERT_EQUAL(inspect(&holder, "a").waiters, 1);
    int64_t until_ns = time_now() + WAIT_MS * MS;
    while (inspect(&holder, "a").waiters > 0 && time_now() < until_ns)
        client_turn(&client, until_ns);
    CU_ASSERT_EQUAL(inspect(&holder, "a").waiters, 0);
    release(&holder, &lock);
    client_close(&client);
    client_close(&holder);
    assert_nothing_left();
}

/* `watch` without an acquire before it: news once when it is in force, then like any other. */
static void test_watch_alone(void)
{
    struct client holder, client;
    struct call lock;
    path = database("watch");
    OPEN_OK(&holder, "path", path);
    OPEN_OK(&client, "path", path);
    module->watch(client.ctx, "a", 1); /* free: no later notification */
    CU_ASSERT_EQUAL(client.news, 1);
    module->unwatch(client.ctx, "a", 1);
    acquire(&holder, &lock, "a", 0);
    module->watch(client.ctx, "a", 1);
    CU_ASSERT_EQUAL(client.news, 2);
    release(&holder, &lock);
    CU_ASSERT_TRUE(wait_news(&client, 3, WAIT_MS * MS));
    module->unwatch(client.ctx, "a", 1);
    client_close(&client);
    client_close(&holder);
    assert_nothing_left();
}

/* A clean-up job removed the sockets, or the whole directory. */
static void test_removed_inbox(void)
{
    for (int whole = 0; whole < 2; whole++) {
        struct client holder, client;
        struct call lock, other = waiting("a");
        char wake[PATHS_MAX];
        path = database(whole ? "removed-folder" : "removed-inbox");
        joined(wake, path, "-wake");
        OPEN_OK(&holder, "path", path);
        OPEN_OK(&client, "path", path);
        acquire(&holder, &lock, "a", 0);
        CU_ASSERT_EQUAL(run(&client, &other), MORTISE_BUSY);
        module->watch(client.ctx, "a", 1);
        remove_tree(wake);
        if (!whole)
            CU_ASSERT_EQUAL(mkdir(wake, 0700), 0);
        CU_ASSERT_EQUAL(release(&holder, &lock), MORTISE_OK); /* finds nobody behind the id */
        CU_ASSERT_EQUAL(acquire(&holder, &lock, "a", 0), MORTISE_OK);
        CU_ASSERT_EQUAL(run(&client, &other), MORTISE_BUSY); /* by the hint */
        CU_ASSERT_EQUAL(entries_in(path, "-wake"), 1);
        unsigned before = client.news;
        CU_ASSERT_EQUAL(release(&holder, &lock), MORTISE_OK);
        CU_ASSERT_TRUE(wait_news(&client, before + 1, WAIT_MS * MS));
        module->unwatch(client.ctx, "a", 1);
        client_close(&client);
        client_close(&holder);
        assert_nothing_left();
    }
}

/* The client that should have notified it died before: the next holder of the name notifies it. */
static void test_never_told(void)
{
    struct client holder, client;
    struct call lock, other = waiting("a");
    path = database("never-told");
    OPEN_OK(&holder, "path", path);
    OPEN_OK(&client, "path", path);
    acquire(&holder, &lock, "a", 0);
    CU_ASSERT_EQUAL(run(&client, &other), MORTISE_BUSY);
    module->watch(client.ctx, "a", 1);
    CU_ASSERT_EQUAL(outside(path, "UPDATE mortise_lock SET grants = NULL, expires_at = 1", NULL),
                    0);
    CU_ASSERT_EQUAL(acquire(&holder, &lock, "a", MORTISE_OP_TRY), MORTISE_OK);
    CU_ASSERT_TRUE(wait_news(&client, 1, WAIT_MS * MS));
    CU_ASSERT_EQUAL(run(&client, &other), MORTISE_BUSY);
    CU_ASSERT_EQUAL(release(&holder, &lock), MORTISE_OK);
    CU_ASSERT_TRUE(wait_news(&client, 2, WAIT_MS * MS));
    module->unwatch(client.ctx, "a", 1);
    client_close(&client);
    client_close(&holder);
    assert_nothing_left();
}

/* A place in a list that its client does not know (a commit that failed and was made nevertheless): a client that is
 * notified of a name that it does not want passes the notification on at once. */
static void test_unwanted_place(void)
{
    struct client holder, stray, second;
    struct call lock, other, a = waiting("a"), b = waiting("b");
    path = database("unwanted");
    OPEN_OK(&holder, "path", path);
    OPEN_OK(&stray, "path", path);
    OPEN_OK(&second, "path", path);
    acquire(&holder, &lock, "a", 0);
    acquire(&holder, &other, "b", 0);
    CU_ASSERT_EQUAL(run(&stray, &a), MORTISE_BUSY);
    module->watch(stray.ctx, "a", 1);
    CU_ASSERT_EQUAL(outside(path,
                            "UPDATE mortise_lock SET waiters = (SELECT waiters FROM mortise_lock "
                            "WHERE name = x'61') WHERE name = x'62'",
                            NULL),
                    0);
    CU_ASSERT_EQUAL(run(&second, &b), MORTISE_BUSY);
    module->watch(second.ctx, "b", 1);
    CU_ASSERT_EQUAL(inspect(&holder, "b").waiters, 2);
    CU_ASSERT_EQUAL(release(&holder, &other), MORTISE_OK);
    client_turn(&stray, time_now() + WAIT_MS * MS);
    CU_ASSERT_EQUAL(stray.news, 0);
    CU_ASSERT_TRUE(wait_news(&second, 1, WAIT_MS * MS)); /* the holder gets no turn meanwhile */
    CU_ASSERT_EQUAL(run(&second, &b), MORTISE_OK);
    module->unwatch(second.ctx, "b", 1);
    module->unwatch(stray.ctx, "a", 1);
    release(&second, &b);
    release(&holder, &lock);
    client_close(&stray);
    client_close(&second);
    client_close(&holder);
    assert_nothing_left();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"killed waiters", test_killed_waiters},
        {"a stopped waiter", test_stopped_waiter},
        {"a stopped waiter costs once", test_stopped_waiter_costs_once},
        {"a stopped waiter, the releaser gone", test_stopped_waiter_and_closed_releaser},
        {"waiters that give up", test_giving_up},
        {"busy, and then not watched", test_busy_without_watch},
        {"the inbox removed by somebody", test_removed_inbox},
        {"watched without an acquire", test_watch_alone},
        {"a waiter that was never told", test_never_told},
        {"a place that nobody wants", test_unwanted_place},
        CU_TEST_INFO_NULL,
    };
    return host_run("sqlite leaving", tests);
}
