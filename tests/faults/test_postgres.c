/* test_postgres.c - the PostgreSQL driver and faults of its server: crashes, terminated sessions, standbys, clocks,
 * rows that somebody changes. On a private server with a standby; the clock of the first one can be set. */
#include "postgres_server.h"

#include "clock_tests.h"

/* ---- crashes ----------------------------------------------------------------------------------- */

static bool has_renewed(void *client)
{
    mortise_stats stats = {.size = sizeof stats};
    return mortise_stats_get(client, &stats) == MORTISE_OK && stats.renewals > 0;
}

/* The client is told after the commit: a grant and a renewal survive when the server goes down like that. */
static void crash_after_grant(int signal)
{
    ask("ALTER ROLE mortise SET synchronous_commit = off"); /* no effect on what must be durable */
    ask("ALTER SYSTEM SET wal_writer_delay = '10s'"); /* what is not durable would certainly be lost */
    ask("SELECT pg_reload_conf()");
    mortise_client *client = open_client("renew_every = 100ms", ""), *other = open_client("", "");
    char expiry[64];
    mortise_lease *lease = take(client, "crash", HOLD_MS);
    CU_ASSERT(test_poll(has_renewed, client, PATIENCE_MS));
    snprintf(expiry, sizeof expiry, "%s",
             ask("SELECT expires_at FROM mortise_lock WHERE name = 'crash'"));
    CU_ASSERT_FATAL(server_stop(signal));
    CU_ASSERT_FATAL(act("start", "only=1"));
    char sql[256];
    snprintf(sql, sizeof sql, "SELECT expires_at >= '%s' FROM mortise_lock WHERE name = 'crash'",
             expiry);
    CU_ASSERT_STRING_EQUAL(ask(sql), "t");
    CU_ASSERT_EQUAL(try_for(other, "crash", 0), MORTISE_BUSY);
    give(lease);
    CU_ASSERT_EQUAL(try_for(other, "crash", PATIENCE_MS), MORTISE_OK);
    mortise_close(client, NULL);
    mortise_close(other, NULL);
    ask("ALTER ROLE mortise RESET synchronous_commit");
    ask("ALTER SYSTEM RESET wal_writer_delay");
    ask("SELECT pg_reload_conf()");
}

static void test_crash_after_grant(void)
{
    crash_after_grant(SIGKILL);
}

static void test_immediate_stop_after_renewal(void)
{
    crash_after_grant(SIGQUIT);
}

/* A caller that waited before the crash is notified of a release after it. */
static void test_crash_while_waiting(void)
{
    mortise_client *client = open_client("", ""), *other = open_client("", "");
    struct waiter waiter;
    mortise_lease *lease = take(client, "waited", HOLD_MS);
    waiter_begin(&waiter, other, "waited");
    CU_ASSERT_FATAL(act("kill", "only=1"));
    CU_ASSERT_FATAL(act("start", "only=1"));
    CU_ASSERT(soon("SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE 'LISTEN%'", "t"));
    give(lease);
    CU_ASSERT_EQUAL(waiter_end(&waiter), MORTISE_OK);
    mortise_close(client, NULL);
    mortise_close(other, NULL);
}

/* ---- sessions ---------------------------------------------------------------------------------- */

static void test_listener_terminated(void)
{
    char another[200];
    mortise_client *client = open_client("", ""), *other = open_client("", "");
    struct waiter waiter;
    mortise_lease *lease = take(client, "listener", HOLD_MS);
    waiter_begin(&waiter, other, "listener");
    CU_ASSERT(soon("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'", "1"));
    snprintf(another, sizeof another,
             "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%' AND pid <> %.20s",
             ask("SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"));
    CU_ASSERT_STRING_EQUAL(ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                               "WHERE query LIKE 'LISTEN%'"),
                           "t");
    CU_ASSERT(soon(another, "1"));
    give(lease);
    CU_ASSERT_EQUAL(waiter_end(&waiter), MORTISE_OK);
    mortise_close(client, NULL);
    mortise_close(other, NULL);
}

/* The statement that adds a waiter to the list takes so long that the waiter is notified before, over its other
 * connection, and finds the name reserved for it. If the notification was in vain, the waiter learns it at once, not
 * when it polls next. */
static bool told_before_the_answer(mortise_client *client, mortise_client *other, const char *name)
{
    char sql[512];
    struct waiter waiter;
    mortise_lease *lease = take(client, name, HOLD_MS);
    row_fault(name, 1,
              "FOR i IN 1..300 LOOP EXIT WHEN EXISTS (SELECT FROM public.told); "
              "PERFORM pg_sleep(0.01); END LOOP; PERFORM pg_sleep(0.2); NEW.grants := NULL; "
              "NEW.expires_at := clock_timestamp() + ''60 s''::interval");
    waiter_start(&waiter, other, name);
    CU_ASSERT(soon("SELECT count(*) " SLEEPERS, "1"));
    snprintf(sql, sizeof sql,
             "INSERT INTO told VALUES (true); SELECT pg_notify('mortise_' || "
             "encode(substr(waiters, 1, 8), 'hex'), encode('%s'::bytea, 'hex')) IS NULL "
             "FROM mortise_lock WHERE name = 'told-first'",
             name);
    int64_t from_ms = test_now_ms();
    ask(sql);
    CU_ASSERT_EQUAL(waiter_end(&waiter), MORTISE_OK);
    bool soon_enough = test_now_ms() - from_ms < 8000; /* it polls after ten seconds */
    row_fault_end();
    ask("DELETE FROM told");
    CU_ASSERT_NOT_EQUAL(mortise_release(lease, &detail), MORTISE_OK); /* the fault took it */
    return soon_enough;
}

/* Once is enough, because the machine may be busy. */
static void test_told_before_the_answer(void)
{
    static const char *const names[] = {"told-1", "told-2", "told-3"};
    mortise_client *client = open_client("", ""), *other = open_client("", "");
    struct waiter first;
    bool told = false;
    ask("CREATE TABLE told(yes boolean); GRANT ALL ON told TO PUBLIC");
    mortise_lease *lease = take(client, "told-first", HOLD_MS);
    waiter_begin(&first, other, "told-first");
    for (int i = 0; i < 3 && !told; i++)
        told = told_before_the_answer(client, other, names[i]);
    CU_ASSERT(told);
    give(lease);
    CU_ASSERT_EQUAL(waiter_end(&first), MORTISE_OK);
    ask("DROP TABLE told");
    mortise_close(client, NULL);
    mortise_close(other, NULL);
}

/* A lease does not depend on its session: it survives the end of the session (DistributedLock#168: it ended too, or
 * never). */
static void test_all_terminated(void)
{
    mortise_client *client = open_client("", "");
    for (int i = 0; i < 5; i++) {
        mortise_lease *lease = take(client, "session", HOLD_MS);
        ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = "
            "'mortise'");
        give(lease);
    }
    mortise_close(client, NULL);
}

/* ---- poolers ----------------------------------------------------------------------------------- */

/* A pooler that nobody told us of is noticed: who waits looks by itself. */
static void test_pooler_unannounced(void)
{
    char conninfo[200];
    snprintf(conninfo, sizeof conninfo, "host=127.0.0.1 port=%s dbname=mortise user=mortise",
             pooler_port);
    mortise_client *client = open_as(conninfo, "log = none", ""),
                   *other = open_as(conninfo, "log = none", "");
    mortise_lease *lease = take(client, "pooled", HOLD_MS);
    struct waiter waiter;
    waiter_start(&waiter, other, "pooled");
    give(lease);
    CU_ASSERT_EQUAL(waiter_end(&waiter), MORTISE_OK);
    mortise_close(client, NULL);
    mortise_close(other, NULL);
}

/* A program that shares the pooler's session has left a temporary table of that name there. */
static void test_temporary_table(void)
{
    const char *const there[] = {"-p", pooler_port, "-U", "mortise", NULL};
    char conninfo[200];
    snprintf(conninfo, sizeof conninfo, "host=127.0.0.1 port=%s dbname=mortise user=mortise",
             pooler_port);
    mortise_client *client = open_client("", "");
    mortise_lease *lease = take(client, "temporary", HOLD_MS);
    ask_as(there, "CREATE TEMPORARY TABLE mortise_lock(LIKE mortise_lock INCLUDING ALL)");
    CU_ASSERT_STRING_EQUAL(ask_as(there, "SELECT count(*) FROM pg_temp.mortise_lock"), "0");
    mortise_client *other = open_as(conninfo, "log = none", "");
    CU_ASSERT_EQUAL(try_for(other, "temporary", 0), MORTISE_BUSY);
    mortise_close(other, NULL);
    CU_ASSERT_STRING_EQUAL(
        ask_as(there, "SET client_min_messages = warning; DROP TABLE pg_temp.mortise_lock; "
                      "SELECT 'dropped'"),
        "dropped"); /* it was there all the time: the session is the same */
    give(lease);
    mortise_close(client, NULL);
}

/* ---- standbys, clocks, rows --------------------------------------------------------------------- */

static bool is_read_only(void *client)
{
    return try_for(client, "standby", 0) == MORTISE_UNREACHABLE &&
           strstr(detail.message, "read-only") != NULL;
}

static void test_standby(void)
{
    char conninfo[200];
    snprintf(conninfo, sizeof conninfo, "host=127.0.0.1 port=%s dbname=mortise user=mortise",
             standby_port);
    mortise_client *client = open_as(conninfo, "", "");
    CU_ASSERT(test_poll(is_read_only, client, PATIENCE_MS));
    mortise_close(client, NULL);
    snprintf(conninfo, sizeof conninfo,
             "host=127.0.0.1,127.0.0.1 port=%s,%s dbname=mortise user=mortise", standby_port, port);
    client = open_as(conninfo, "", "");
    CU_ASSERT_EQUAL(try_for(client, "standby", PATIENCE_MS), MORTISE_OK);
    mortise_close(client, NULL);
}

static void test_expired_there(void)
{
    is_expired_by("UPDATE mortise_lock SET expires_at = clock_timestamp() WHERE name = 'expired'");
}

/* ---- what others do to the rows ------------------------------------------------------------------------ */

/* The most that this process ever had in memory, in KiB. */
static long peak_kib(void)
{
    char *text = test_file_read("/proc/self/status"), *line = text ? strstr(text, "VmHWM:") : NULL;
    long kib = line != NULL ? strtol(line + 6, NULL, 10) : -1;
    free(text);
    return kib;
}

/* Fields of 64 MiB in a row, a record and the layout: refused, and never fetched. */
static void test_huge_fields(void)
{
    static const struct {
        const char *plant, *words;
    } cases[] = {
        {"note = (SELECT field FROM huge)", "makes no sense"},
        {"note = NULL, owner = (SELECT field FROM huge)", "makes no sense"},
        {"owner = NULL, waiters = (SELECT field FROM huge)", "makes no sense"},
        {"waiters = NULL, grants = (SELECT field FROM huge)", "makes no sense"},
    };
    char sql[300], text[64];
    size_t size = sizeof text;
    uint64_t version = 0;
    mortise_client *client = open_client("", "");
    mortise_info info = {.size = sizeof info};
    mortise_lease *lease = take(client, "huge", HOLD_MS);
    CU_ASSERT_EQUAL(mortise_record_write(client, "huge", "1", 1, &version, &detail), MORTISE_OK);
    /* Made and compressed once: a copy of what a table has is not unpacked. */
    ask("CREATE TABLE huge AS SELECT decode(repeat('00', 67108864), 'hex') AS field");
    CU_ASSERT_STRING_EQUAL(ask("SELECT octet_length(field) FROM huge"), "67108864");
    long before_kib = peak_kib();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(sql, sizeof sql, "UPDATE mortise_lock SET %s WHERE name = 'huge'", cases[i].plant);
        ask(sql);
        CU_ASSERT_EQUAL(mortise_inspect(client, "huge", &info, &detail), MORTISE_BACKEND);
        says(cases[i].words);
        CU_ASSERT_EQUAL(try_for(client, "huge", 0), MORTISE_BACKEND);
    }
    ask("UPDATE mortise_record SET value = (SELECT field FROM huge) WHERE name = 'huge'");
    CU_ASSERT_NOT_EQUAL(mortise_record_read(client, "huge", text, &size, &version, &detail),
                        MORTISE_OK);
    CU_ASSERT(before_kib > 0 && peak_kib() - before_kib < 32 * 1024);
    ask("DELETE FROM mortise_lock WHERE name = 'huge'");
    ask("DELETE FROM mortise_record WHERE name = 'huge'");
    ask("DROP TABLE huge");
    CU_ASSERT_EQUAL(mortise_release(lease, &detail), MORTISE_LOST);
    mortise_close(client, NULL);
}

/* ---- a waiter that nobody can notify --------------------------------------------------------------------- */

/* Statements that looked at a row. */
static long looks_made(void)
{
    static const char scans[] = "SELECT pg_stat_get_numscans('mortise_lock_pkey'::regclass)";
    return strtol(ask_in("mortise", scans), NULL, 10);
}

/* It looks less and less often, with one statement each. However slow the machine is, it makes no more. */
static void test_looks(void)
{
    char conninfo[200];
    snprintf(conninfo, sizeof conninfo, "host=127.0.0.1 port=%s dbname=mortise user=mortise",
             pooler_port);
    mortise_client *holder = open_client("", ""), *client = open_as(conninfo, "", "");
    mortise_lease *lease = take(holder, "looked", HOLD_MS);
    CU_ASSERT_EQUAL(try_for(client, "looked", 0), MORTISE_BUSY); /* it is connected */
    long before = looks_made();
    CU_ASSERT_EQUAL(try_for(client, "looked", 10000), MORTISE_TIMEDOUT);
    long made = looks_made() - before;
    fprintf(stderr, "%ld statements in 10 s ", made);
    CU_ASSERT(made > 0 && made < 34);
    mortise_close(client, NULL);
    give(lease);
    mortise_close(holder, NULL);
}

/* ---- main -------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    CU_TestInfo tests[] = {
        /* First: a session may be counted up to ten seconds late, and the pooler keeps its own. */
        {"looks of a waiter behind a pooler", test_looks},
        {"crash right after a grant, a renewal", test_crash_after_grant},
        {"immediate stop right after a grant, a renewal", test_immediate_stop_after_renewal},
        {"crash while somebody waits", test_crash_while_waiting},
        {"the listening session is terminated", test_listener_terminated},
        {"told before the answer", test_told_before_the_answer},
        {"all sessions are terminated", test_all_terminated},
        {"a pooler that nobody told of", test_pooler_unannounced},
        {"a temporary table behind a pooler", test_temporary_table},
        {"a read-only standby", test_standby},
        {"the server's clock is set", test_clock},
        {"expired in the database", test_expired_there},
        {"huge fields", test_huge_fields},
        CU_TEST_INFO_NULL,
    };
    return server_run(tests, argc, argv);
}
