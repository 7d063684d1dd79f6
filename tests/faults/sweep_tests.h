/* sweep_tests.h - rows that are free for long are deleted by the clients, by one for all: for test_mysql_sweep.c and
 * test_postgres_sweep.c, which include it after the header of their server. When a client sweeps is a matter of an hour and of
 * chance. So what is below is in place of the C library's functions, for the core and the drivers, too. The texts of SQL:
 *
 *   ROW_COLUMNS    of mortise_lock, without grants; ROW_OLD: a row that is free for long, behind its name; ROW_HELD
 *   LAST_NAME      0xff00
 *   META_KEY       the first column of mortise_meta
 *   FORGET_SWEEP   nobody has swept lately */
#ifndef MORTISE_TESTS_SWEEP_TESTS_H
#define MORTISE_TESTS_SWEEP_TESTS_H

#include <dlfcn.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>

#define IN_PLACE __attribute__((visibility("default"))) /* of the C library's, also for libraries */

static atomic_llong later_s;   /* so much later is it on the clock of the leases */
static atomic_bool sweep_last; /* each client sweeps when it closes; otherwise none does */
/* Called when a driver that closes waits for what it has sent. NULL: nothing is */
static _Atomic(void (*)(void)) when_closing;

IN_PLACE int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_BOOTTIME)
        now->tv_sec += (time_t)atomic_load(&later_s);
    return result;
}

IN_PLACE int timerfd_settime(int timer, int flags, const struct itimerspec *at,
                             struct itimerspec *before)
{
    struct itimerspec then = *at;
    if ((flags & TFD_TIMER_ABSTIME) != 0 && at->it_value.tv_sec > atomic_load(&later_s))
        then.it_value.tv_sec -= (time_t)atomic_load(&later_s);
    return (int)syscall(SYS_timerfd_settime, timer, flags, &then, before);
}

/* One client in sixteen has a byte that is zero modulo 16. */
IN_PLACE ssize_t getrandom(void *bytes, size_t size, unsigned flags)
{
    ssize_t got = syscall(SYS_getrandom, bytes, size, flags);
    unsigned char *byte = bytes;
    for (ssize_t i = 0; i < got; i++)
        byte[i] = atomic_load(&sweep_last) ? byte[i] & 0xf0u : byte[i] | 1u;
    return got;
}

/* A driver waits here only when it closes. */
IN_PLACE int poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    Dl_info caller;
    struct timespec timeout = {.tv_sec = timeout_ms / 1000,
                               .tv_nsec = timeout_ms % 1000 * INT64_C(1000000)};
    if (timeout_ms > 0 && atomic_load(&when_closing) != NULL &&
        dladdr(__builtin_return_address(0), &caller) != 0 &&
        strstr(caller.dli_fname, "/lib/mortise/") != NULL) {
        void (*let_go)(void) = atomic_exchange(&when_closing, NULL);
        if (let_go != NULL)
            let_go();
    }
    return ppoll(fds, count, timeout_ms < 0 ? NULL : &timeout, NULL);
}

/* ---- a sweep ------------------------------------------------------------------------------------- */

#define UNSWEPT "SELECT count(*) FROM mortise_lock WHERE version = 1"
#define NOTED "SELECT count(*) FROM mortise_meta WHERE " META_KEY " = 'sweep' AND value <> ''"

/* Its statements take as long as the machine needs. */
#define PATIENT "command_timeout = 600s\n"

static void make_tables(void)
{
    mortise_client *client = open_client("", "");
    CU_ASSERT_EQUAL(try_for(client, "sweeper", PATIENCE_MS), MORTISE_OK);
    mortise_close(client, NULL);
    ask("DELETE FROM mortise_lock WHERE name = 'busy'; "
        "INSERT INTO mortise_lock(grants, " ROW_COLUMNS
        ") VALUES ('0123456789abcdef', 'busy', " ROW_HELD "); "
        "UPDATE mortise_lock SET version = 2 WHERE name = 'busy'");
}

static void note_nothing(mortise_status status, mortise_lease *lease, const mortise_error *error,
                         void *user_data)
{
    (void)status;
    (void)lease;
    (void)error;
    (void)user_data;
}

/* An hour later the client begins to sweep, with its next request. That is one which no caller waits for, because the client's
 * own thread has gone to sleep by the clock before. */
static void pass_hour(mortise_client *client)
{
    mortise_request request;
    ask(FORGET_SWEEP);
    atomic_fetch_add(&later_s, 3600);
    CU_ASSERT_EQUAL(
        mortise_acquire_async(client, "busy", NULL, note_nothing, NULL, &request, &detail),
        MORTISE_OK);
}

struct sweeping {
    mortise_client *client;
    struct wanted wanted;
};

static bool has_swept(void *argument)
{
    struct sweeping *sweeping = argument;
    CU_ASSERT_EQUAL(try_for(sweeping->client, "sweeper", PATIENCE_MS), MORTISE_OK);
    return answers(&sweeping->wanted);
}

/* The client sweeps once, until that is the answer. Meanwhile it gets its locks. */
static void sweeps(mortise_client *client, const char *sql, const char *answer)
{
    struct sweeping sweeping = {client, {sql, answer}};
    pass_hour(client);
    CU_ASSERT(test_poll(has_swept, &sweeping, PATIENCE_MS));
}

/* ---- tests --------------------------------------------------------------------------------------- */

static void add_old_rows(void)
{
    CU_ASSERT_STRING_EQUAL(ask("INSERT INTO mortise_lock(" ROW_COLUMNS ") VALUES ('old1', " ROW_OLD
                               "), ('old2', " ROW_OLD "), ('old''3', " ROW_OLD "), (" LAST_NAME
                               ", " ROW_OLD "); " UNSWEPT),
                           "5");
}

static void add_kept_row(void)
{
    CU_ASSERT_STRING_EQUAL(ask("INSERT INTO mortise_lock(grants, " ROW_COLUMNS
                               ") VALUES ('0123456789abcdef', 'kept', " ROW_HELD "); " UNSWEPT),
                           "1");
}

/* One that is held, or was used today, stays. A small table needs no note of how far the sweep got. */
static void expect_swept(void)
{
    CU_ASSERT_STRING_EQUAL(
        ask("SELECT concat((" UNSWEPT "), ' ', (" UNSWEPT " AND name = 'kept'), ' ', "
            "(SELECT count(*) FROM mortise_lock WHERE name = 'sweeper'), ' ', "
            "(SELECT count(*) FROM mortise_meta WHERE " META_KEY " IN ('swept', 'sweep')))"),
        "1 1 1 1");
}

/* By clients that live for a moment. If the server is slow, one does not get far. */
static void test_swept(void)
{
    make_tables();
    add_kept_row();
    add_old_rows();
    atomic_store(&sweep_last, true);
    for (int i = 0; i < 100 && strcmp(ask(UNSWEPT), "1") != 0; i++) {
        ask(FORGET_SWEEP);
        mortise_client *client = open_client("", PATIENT);
        CU_ASSERT_EQUAL(try_for(client, "sweeper", PATIENCE_MS), MORTISE_OK);
        CU_ASSERT_EQUAL(mortise_close(client, &detail), MORTISE_OK);
    }
    atomic_store(&sweep_last, false);
    expect_swept();
    ask("DELETE FROM mortise_lock WHERE name = 'kept'");
}

/* By a client that lives for long, again and again. */
static void sweeps_for_hours(mortise_client *client)
{
    add_kept_row();
    CU_ASSERT_EQUAL(try_for(client, "sweeper", PATIENCE_MS), MORTISE_OK);
    for (int hour = 0; hour < 3; hour++) {
        add_old_rows();
        sweeps(client, UNSWEPT, "1");
        expect_swept();
    }
    mortise_close(client, NULL);
    ask("DELETE FROM mortise_lock WHERE name = 'kept'");
}

static void test_swept_for_hours(void)
{
    make_tables();
    sweeps_for_hours(open_client("", PATIENT));
}

/* A sweep that was given up is continued where it was; the next one begins with the first name. */
static void test_swept_on(void)
{
    make_tables();
    CU_ASSERT_STRING_EQUAL(ask("INSERT INTO mortise_lock(" ROW_COLUMNS
                               ") VALUES ('before', " ROW_OLD "), ('behind', " ROW_OLD
                               "); " NOTE_BEFORE "; " NOTED),
                           "1");
    mortise_client *client = open_client("", PATIENT);
    CU_ASSERT_EQUAL(try_for(client, "sweeper", PATIENCE_MS), MORTISE_OK);
    sweeps(client, NOTED, "0");
    CU_ASSERT_STRING_EQUAL(
        ask("SELECT concat((" UNSWEPT "), ' ', (" UNSWEPT " AND name = 'before'))"), "1 1");
    sweeps(client, UNSWEPT, "0");
    mortise_close(client, NULL);
}

/* A close does not wait for a sweep: what it has sent is answered, and then it is over. */
static void test_closed(void)
{
    make_tables();
    ask("INSERT INTO mortise_lock(" ROW_COLUMNS ") VALUES ('old', " ROW_OLD ")");
    mortise_client *client = open_client("", PATIENT);
    CU_ASSERT_EQUAL(try_for(client, "sweeper", PATIENCE_MS), MORTISE_OK);
    stop_turn();
    pass_hour(client);
    CU_ASSERT(soon("SELECT count(*) " SLEEPERS, "1"));
    atomic_store(&when_closing, let_turn_go);
    CU_ASSERT_EQUAL(mortise_close(client, &detail), MORTISE_OK);
    void (*let_go)(void) = atomic_exchange(&when_closing, NULL);
    if (let_go != NULL) /* it did not wait: on a busy machine its time was over by then */
        let_go();
    CU_ASSERT_STRING_EQUAL(ask(UNSWEPT), "1");
    end_stops();
    ask("DELETE FROM mortise_lock WHERE name = 'old'");
}

#endif
