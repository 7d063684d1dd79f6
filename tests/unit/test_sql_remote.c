/* test_sql_remote.c - what drivers/lib/sql/remote does with a dialect that only notes what it is to do: which addresses the two
 * links of a client try, and when rows that have been free for long are deleted. A test answers the look-ups of host names when
 * it likes. */
#include "sql_dialect_stub.h"
#include "sql_names.h"

#include "suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the dialect --------------------------------------------------------------------------------- */

static char tried[64]; /* the last address, and by which link */

static void connect_noted(struct link *link)
{
    snprintf(tried, sizeof tried, "%s %.40s", link->live ? "live" : "main",
             link->addresses.at[link->address].text);
}

static const char *where(const struct link *link, char *text, size_t size)
{
    (void)link;
    text[size - 1] = text[0] = '\0';
    return text;
}

static int sweeps;
static bool can_sweep;

static const struct handler sweep_handler = {.failed = sweep_failed, .lost = sweep_lost};

static struct request *sweep_noted(struct remote *sweeper)
{
    struct request *request = can_sweep ? statement_new(sweeper, &sweep_handler) : NULL;
    sweeps++;
    if (request != NULL)
        statement_queue(request, LANE_LAZY);
    return request;
}

/* Each group fails, in a way that would go again. */

static int sends;

static bool send_noted(struct link *link, struct group *group)
{
    sends++;
    return link->fd >= 0 && group->count > 0;
}

static void roll_back(struct link *link, short events)
{
    (void)events;
    flight_group(link)->failed = true;
    flight_group(link)->fault =
        (struct fault){.base.status = MORTISE_BACKEND, .flags = FAULT_AGAIN};
    flight_done(link);
}

static const struct remote_dialect dialect = {.name = "test",
                                              .group_max = 1,
                                              .events = wants_to_read,
                                              .come_in = roll_back,
                                              .is_there = is_there,
                                              .is_open = is_open,
                                              .size = no_size,
                                              .send = send_noted,
                                              .connect = connect_noted,
                                              .close = close_nothing,
                                              .where = where,
                                              .forget = forget,
                                              .sweep = sweep_noted};
static const struct sql_dialect statements = {.request_size = sizeof(struct request)};
static const struct handler handler = {.lost = statement_lost};

/* ---- the servers of the config ------------------------------------------------------------------- */

/* A user and a password before a host, or a URL, would stand in each message. */
static void test_what_is_no_host(void)
{
    static const char *const right[] = {"db1",     "db1:7, db2",   "::1",
                                        "[::1]:7", "fe80::1%eth0", "::ffff:10.0.0.1"},
                             *const wrong[] = {"root:pw@db1:3306",
                                               "root:pw@db1",
                                               "pw@db1",
                                               "mysql://root:pw@db1:3306",
                                               "mysql://db1:3306",
                                               "db1/x",
                                               "[pw@db1]:7",
                                               "[[::1]:7",
                                               "x:y:z"};
    static struct hosts hosts;
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        hosts.count = 0;
        CU_ASSERT_PTR_NULL(hosts_read(&hosts, right[i], "3306"));
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        hosts.count = 0;
        const char *said = hosts_read(&hosts, wrong[i], "3306");
        CU_ASSERT_FATAL(said != NULL && strstr(said, "pw") == NULL);
    }
}

/* A driver warns of plain text to any other. */
static void test_this_host(void)
{
    CU_ASSERT(host_is_local("localhost") && host_is_local("127.0.0.1") && host_is_local("127.1"));
    CU_ASSERT(host_is_local("::1"));
    CU_ASSERT_FALSE(host_is_local("127.example.com"));
    CU_ASSERT_FALSE(host_is_local("128.0.0.1") || host_is_local("db1"));
}

/* ---- a client ------------------------------------------------------------------------------------ */

static struct remote *remote;
static struct link main_link, live_link;

static void begin(const char *hosts)
{
    remote = calloc(1, sizeof *remote);
    CU_ASSERT_PTR_NOT_NULL_FATAL(remote);
    now_ns = 1000000 * NS_PER_MS;
    question_count = 0;
    resolver_fails = false;
    sweeps = 0;
    can_sweep = true;
    memset(&main_link, 0, sizeof main_link);
    memset(&live_link, 0, sizeof live_link);
    remote->main = &main_link;
    remote->live = &live_link;
    remote->connect_ms = remote->command_ms = 5000;
    remote_init(remote, &host, &dialect, &statements, 0);
    CU_ASSERT_PTR_NULL(hosts_read(&remote->hosts, hosts, "3306"));
}

/* Something waits for that connection. */
static void want(struct link *link)
{
    struct request *request = link->live ? NULL : statement_new(remote, &handler);
    if (request != NULL)
        statement_queue(request, LANE_READING);
    remote->live_wanted = remote->live_wanted || link->live;
    link_want(link);
}

/* The first look-up that was not answered. NULL: it fails. */
static void answer(const char *address)
{
    answer_at(remote, 0, address);
}

static void refuse(struct link *link)
{
    link_failed_why(link, MORTISE_UNREACHABLE, true, "refused");
}

/* ---- the tests ----------------------------------------------------------------------------------- */

static void test_each_address(void)
{
    begin("one, two");
    want(&main_link);
    answer("10.0.0.1");
    CU_ASSERT_EQUAL(main_link.state, LINK_RESOLVING);
    answer("10.0.0.2");
    CU_ASSERT_STRING_EQUAL(tried, "main 10.0.0.1");
    refuse(&main_link);
    CU_ASSERT_STRING_EQUAL(tried, "main 10.0.0.2");
    refuse(&main_link);
    CU_ASSERT_EQUAL(main_link.state, LINK_DOWN);
    remote_close(remote);
}

/* The second link looks the hosts up while the first one tries them: that one still knows what comes next. */
static void test_look_up_of_the_other(void)
{
    begin("one, two, three");
    want(&main_link);
    for (int i = 0; i < 3; i++)
        answer(i == 0 ? "10.0.0.1" : i == 1 ? "10.0.0.2" : "10.0.0.3");
    want(&live_link);
    CU_ASSERT_EQUAL(live_link.state, LINK_RESOLVING);
    refuse(&main_link);
    CU_ASSERT_EQUAL(main_link.state, LINK_CONNECTING);
    CU_ASSERT_STRING_EQUAL(tried, "main 10.0.0.2");
    answer("10.0.0.1");
    refuse(&main_link);
    CU_ASSERT_EQUAL(main_link.state, LINK_CONNECTING);
    CU_ASSERT_STRING_EQUAL(tried, "main 10.0.0.3");
    answer("10.0.0.2");
    answer("10.0.0.3");
    CU_ASSERT_STRING_EQUAL(tried, "live 10.0.0.1");
    remote_close(remote);
}

/* The same, and it finds nothing, or less, or elsewhere. */
static void test_look_up_of_the_other_fails(void)
{
    static const char *const second[][2] = {
        {NULL, NULL}, {NULL, "10.0.0.2"}, {"10.0.0.1", NULL}, {"10.0.0.8", "10.0.0.9"}};
    for (size_t i = 0; i < sizeof second / sizeof second[0]; i++) {
        begin("one, two");
        want(&main_link);
        answer("10.0.0.1");
        answer("10.0.0.2");
        want(&live_link);
        answer(second[i][0]);
        answer(second[i][1]);
        CU_ASSERT_EQUAL(live_link.state, i == 0 ? LINK_DOWN : LINK_CONNECTING);
        refuse(&main_link);
        CU_ASSERT_EQUAL(main_link.state, LINK_CONNECTING);
        CU_ASSERT_STRING_EQUAL(tried, "main 10.0.0.2");
        refuse(&main_link);
        CU_ASSERT_EQUAL(main_link.state, LINK_DOWN);
        remote_close(remote);
    }
}

static void time_out(struct link *link)
{
    now_ns = link->deadline_ns;
    link_turn(link, NULL, 0);
    CU_ASSERT_EQUAL(link->state, LINK_DOWN);
}

/* The look-up takes longer than the attempt. What it finds serves the next attempt, if that is soon, and only that one. */
static void test_slow_resolver(void)
{
    for (int soon = 0; soon <= 1; soon++) {
        begin("one");
        want(&main_link);
        time_out(&main_link);
        CU_ASSERT_PTR_NOT_NULL(strstr(remote->trouble.message, "not looked up in time"));
        answer("10.0.0.1");
        now_ns = soon ? main_link.retry_ns : now_ns + 60000 * NS_PER_MS;
        want(&main_link);
        CU_ASSERT_EQUAL_FATAL(question_count, soon ? 0 : 1);
        if (!soon)
            answer("10.0.0.2");
        CU_ASSERT_STRING_EQUAL(tried, soon ? "main 10.0.0.1" : "main 10.0.0.2");
        refuse(&main_link);
        now_ns = main_link.retry_ns;
        want(&main_link);
        CU_ASSERT_EQUAL(question_count, 1);
        remote_close(remote);
    }
}

/* The resolver hangs for one name: the other host is tried after a share of the time, and by the next attempts, too. */
static void test_resolver_hangs(void)
{
    begin("one, 10.0.0.2");
    for (int i = 0; i < 2; i++) {
        want(&main_link);
        CU_ASSERT_EQUAL_FATAL(question_count, 2); /* `one` was asked for once */
        answer_at(remote, 1, "10.0.0.2");
        CU_ASSERT_EQUAL_FATAL(main_link.state, LINK_RESOLVING);
        tried[0] = '\0';
        now_ns = main_link.share_ns;
        CU_ASSERT_FATAL(now_ns < main_link.deadline_ns);
        link_turn(&main_link, NULL, 0);
        CU_ASSERT_STRING_EQUAL(tried, "main 10.0.0.2");
        refuse(&main_link);
        now_ns = main_link.retry_ns;
    }
    want(&main_link);
    now_ns = main_link.share_ns;
    link_turn(&main_link, NULL, 0); /* nothing is known: the first answer is enough */
    CU_ASSERT_EQUAL(main_link.state, LINK_RESOLVING);
    answer("10.0.0.1");
    CU_ASSERT_STRING_EQUAL(tried, "main 10.0.0.1");
    remote_close(remote);
}

/* A system that gives no thread for a look-up says so. */
static void test_no_look_up(void)
{
    begin("one");
    resolver_fails = true;
    want(&main_link);
    CU_ASSERT_EQUAL(main_link.state, LINK_DOWN);
    CU_ASSERT_PTR_NOT_NULL(strstr(remote->trouble.message, "out of memory or threads"));
    remote_close(remote);
}

/* Each look-up counts, not what was found before. */
static void test_moved(void)
{
    begin("one, 10.0.0.2");
    want(&main_link);
    answer("10.0.0.1");
    answer("10.0.0.2");
    refuse(&main_link);
    refuse(&main_link);
    CU_ASSERT_EQUAL(main_link.state, LINK_DOWN);
    now_ns = main_link.retry_ns;
    want(&main_link);
    answer("10.0.0.9");
    answer("10.0.0.2");
    CU_ASSERT_STRING_EQUAL(tried, "main 10.0.0.9");
    CU_ASSERT_EQUAL(main_link.addresses.count, 2);
    remote_close(remote);
}

/* ---- sweeps -------------------------------------------------------------------------------------- */

#define HOUR_NS (INT64_C(3600000) * NS_PER_MS)

/* Its statement is answered. */
static void sweep_end(void)
{
    CU_ASSERT_PTR_NOT_NULL_FATAL(remote->sweep);
    queue_remove(remote->sweep);
    sweep_over(remote->sweep);
    CU_ASSERT_PTR_NULL(remote->sweep);
}

static void begin_sweep(void)
{
    begin("one");
    main_link.state = LINK_READY;
    now_ns += HOUR_NS;
    sweep_turn(remote);
    CU_ASSERT_PTR_NOT_NULL_FATAL(remote->sweep);
}

static void end(void)
{
    main_link.state = LINK_DOWN;
    remote_close(remote);
}

/* It needs a connection that is there, and is not begun while another one goes on. */
static void test_one_sweep(void)
{
    begin("one");
    now_ns += HOUR_NS;
    sweep_turn(remote);
    CU_ASSERT_EQUAL(sweeps, 0);
    main_link.state = LINK_READY;
    can_sweep = false; /* no memory: not before the next hour */
    for (int i = 0; i < 2; i++)
        sweep_turn(remote);
    CU_ASSERT_EQUAL(sweeps, 1);
    can_sweep = true;
    for (int i = 0; i < 2; i++) {
        now_ns += HOUR_NS;
        sweep_turn(remote);
    }
    CU_ASSERT_EQUAL(sweeps, 2);
    sweep_end();
    sweep_turn(remote);
    CU_ASSERT_EQUAL(sweeps, 3);
    end();
}

/* However it ends, the next one comes. */
static void test_sweeps_that_end(void)
{
    static const struct fault fault = {.base.status = MORTISE_BACKEND};
    begin_sweep();
    for (int i = 1; i < 50; i++) {
        struct request *request = remote->sweep;
        CU_ASSERT_PTR_NOT_NULL_FATAL(request);
        queue_remove(request);
        if (i % 3 == 0)
            sweep_over(request);
        else if (i % 3 == 1)
            request->handler->failed(request, &fault);
        else
            request->handler->lost(request, true);
        sweep_turn(remote);
        CU_ASSERT_EQUAL(sweeps, i); /* not at once */
        now_ns += HOUR_NS;
        sweep_turn(remote);
        CU_ASSERT_EQUAL(sweeps, i + 1);
    }
    end();
}

static bool goes_on_behind(const char *name)
{
    return sweep_next(remote, name, strlen(name));
}

/* It never goes back. */
static void test_stretches(void)
{
    char longest[MORTISE_NAME_MAX + 1];
    begin_sweep();
    CU_ASSERT(goes_on_behind("b"));
    CU_ASSERT(goes_on_behind("ba"));
    CU_ASSERT(goes_on_behind("\xff"));
    CU_ASSERT_FALSE(goes_on_behind("\xff"));
    CU_ASSERT_FALSE(goes_on_behind("c"));
    CU_ASSERT_FALSE(sweep_next(remote, NULL, 0));
    memset(longest, 0xff, sizeof longest);
    CU_ASSERT_FALSE(sweep_next(remote, longest, sizeof longest));
    CU_ASSERT(sweep_next(remote, longest, MORTISE_NAME_MAX));
    sweep_end();
    now_ns += HOUR_NS;
    sweep_turn(remote);
    CU_ASSERT(goes_on_behind("a")); /* from the first name on */
    end();
}

/* A close ends a sweep: at once if it pauses, otherwise with the answer to what is on its way. */
static void test_sweep_and_close(void)
{
    begin_sweep();
    remote->sweep->not_before_ns = now_ns + 10 * NS_PER_MS;
    CU_ASSERT(sweep_goes_on(remote));
    remote->locks.closing = true;
    CU_ASSERT_FALSE(sweep_goes_on(remote));
    CU_ASSERT_FALSE(goes_on_behind("b"));
    sweep_turn(remote);
    CU_ASSERT_PTR_NULL(remote->sweep);
    CU_ASSERT(queue_is_empty(&main_link));
    end();

    begin_sweep();
    struct request *request = remote->sweep;
    queue_remove(request);
    request->base.flying = true;
    remote->locks.closing = remote->sweep_last = true;
    sweep_turn(remote);
    CU_ASSERT_PTR_EQUAL(remote->sweep, request);
    CU_ASSERT_FALSE(sweep_goes_on(remote));
    CU_ASSERT_EQUAL(sweeps, 1); /* not another one beside it */
    sweep_over(request);
    end();
}

/* What is on its way when the client closes fails, and would go again: it is over all the same. */
static void test_rolled_back_in_close(void)
{
    int ends[2];
    begin_sweep();
    CU_ASSERT_EQUAL_FATAL(pipe(ends), 0);
    CU_ASSERT_EQUAL(write(ends[1], "x", 1), 1); /* the answer is there */
    CU_ASSERT_FATAL(link_poll(&main_link, ends[0]));
    sends = 0;
    remote_go(remote);
    CU_ASSERT_EQUAL(sends, 1);
    remote_close(remote);
    CU_ASSERT_EQUAL(sends, 1);
    close(ends[0]);
    close(ends[1]);
}

/* One that begins with the close goes on. */
static void test_last_sweep(void)
{
    begin("one");
    main_link.state = LINK_READY;
    remote->locks.closing = true;
    sweep_turn(remote);
    CU_ASSERT_EQUAL(sweeps, 0);
    remote->sweep_last = true;
    sweep_turn(remote);
    CU_ASSERT_EQUAL(sweeps, 1);
    CU_ASSERT(sweep_goes_on(remote));
    CU_ASSERT(goes_on_behind("a"));
    sweep_turn(remote);
    CU_ASSERT_PTR_NOT_NULL(remote->sweep);
    sweep_end();
    sweep_turn(remote);
    CU_ASSERT_EQUAL(sweeps, 1);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"what is no host", test_what_is_no_host},
        {"this host", test_this_host},
        {"each address is tried", test_each_address},
        {"the other link looks the hosts up", test_look_up_of_the_other},
        {"the other link looks the hosts up, and finds others", test_look_up_of_the_other_fails},
        {"the resolver is slow", test_slow_resolver},
        {"the resolver hangs for one name", test_resolver_hangs},
        {"no look-up is possible", test_no_look_up},
        {"a host has moved", test_moved},
        {"one sweep at a time", test_one_sweep},
        {"sweeps that end", test_sweeps_that_end},
        {"stretches of a sweep", test_stretches},
        {"a close ends a sweep", test_sweep_and_close},
        {"a sweep that fails in a close", test_rolled_back_in_close},
        {"a sweep that begins with the close", test_last_sweep},
        CU_TEST_INFO_NULL,
    };
    return suite_run("sql remote", tests);
}
