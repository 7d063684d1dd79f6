/* test_postgres_rows.c - the PostgreSQL driver and what others do to its rows and statements: locked rows, statements
 * that fail, hang or lose their backend, commits that hang. On a private server. */
#define SERVER_SETTINGS "conf=deadlock_timeout = 200ms\n"
#include "postgres_server.h"

/* ---- rows that are locked ---------------------------------------------------------------------- */

static bool is_locked(void *client)
{
    return try_for(client, "row", 0) == MORTISE_UNREACHABLE &&
           strstr(detail.message, "keeps the row locked") != NULL;
}

/* The call returns in time and says why. When the row is free again, so is the name. */
static void test_row_locked(void)
{
    struct test_process session;
    mortise_client *client = open_client("", "lock_timeout = 100ms");
    give(take(client, "row", 0));
    CU_ASSERT_FATAL(
        session_begin(&session, "SELECT 1 FROM mortise_lock WHERE name = 'row' FOR UPDATE"));
    CU_ASSERT(test_poll(is_locked, client, PATIENCE_MS));
    int64_t began_ms = test_now_ms();
    CU_ASSERT_NOT_EQUAL(try_for(client, "row", 300), MORTISE_OK);
    CU_ASSERT(test_now_ms() - began_ms < PATIENCE_MS / 3);
    session_end(&session);
    CU_ASSERT_EQUAL(try_for(client, "row", PATIENCE_MS), MORTISE_OK);
    mortise_close(client, NULL);
}

/* It waits a fifth of a second at a time. The server itself detects that. */
#define SEEN_WAITING                                                                               \
    "DO $$ BEGIN FOR i IN 1..500 LOOP PERFORM pg_stat_clear_snapshot(); "                          \
    "IF EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' "                      \
    "AND application_name = 'mortise') THEN RETURN; END IF; PERFORM pg_sleep(0.01); END LOOP; "    \
    "RAISE EXCEPTION 'nobody waits'; END $$; SELECT 't'"

struct neighbour {
    pthread_t thread;
    mortise_client *client;
    char name[24];
    int64_t worst_ms;
    int failed;
};

static void *live_on(void *argument)
{
    struct neighbour *self = argument;
    for (int i = 0; i < 40; i++) {
        int64_t began_ms = test_now_ms();
        self->failed += try_for(self->client, self->name, PATIENCE_MS) != MORTISE_OK;
        int64_t took_ms = test_now_ms() - began_ms;
        self->worst_ms = took_ms > self->worst_ms ? took_ms : self->worst_ms;
    }
    return NULL;
}

/* Other names, of the same client and of another, are not delayed for as long as the wait for the row takes
 * (Spring#11157). */
static void test_neighbours(void)
{
    enum { NEIGHBOURS = 6 };
    struct neighbour neighbours[NEIGHBOURS];
    struct test_process session;
    mortise_client *clients[2];
    struct waiter waiter;
    for (size_t i = 0; i < 2; i++)
        clients[i] = open_client("", "lock_timeout = 40s\ncommand_timeout = 60s");
    give(take(clients[0], "neighbour-3-locked", 0));
    CU_ASSERT_FATAL(session_begin(
        &session, "SELECT 1 FROM mortise_lock WHERE name = 'neighbour-3-locked' FOR UPDATE"));
    waiter_start(&waiter, clients[0], "neighbour-3-locked");
    CU_ASSERT(soon(SEEN_WAITING, "t"));
    for (size_t i = 0; i < NEIGHBOURS; i++) {
        neighbours[i] = (struct neighbour){.client = clients[i % 2]};
        snprintf(neighbours[i].name, sizeof neighbours[i].name, "neighbour-%zu", i);
        pthread_create(&neighbours[i].thread, NULL, live_on, &neighbours[i]);
    }
    for (size_t i = 0; i < NEIGHBOURS; i++) {
        pthread_join(neighbours[i].thread, NULL);
        CU_ASSERT_EQUAL(neighbours[i].failed, 0);
        CU_ASSERT(neighbours[i].worst_ms < 20000);
    }
    session_end(&session);
    CU_ASSERT_EQUAL(waiter_end(&waiter), MORTISE_OK);
    for (size_t i = 0; i < 2; i++)
        mortise_close(clients[i], NULL);
}

static mortise_lease *held;

static void *hold(void *client)
{
    held = take(client, "stale", HOLD_MS);
    return NULL;
}

/* The claim counts from when the row was free, not from the begin of the transaction that waited for it
 * (ShedLock#3577). */
static void test_stale_transaction(void)
{
    struct test_process session;
    mortise_client *client = open_client("", "");
    pthread_t thread;
    char line[128] = "", sql[256];
    give(take(client, "stale", 0));
    CU_ASSERT_FATAL(
        session_begin(&session, "UPDATE mortise_lock SET note = NULL WHERE name = 'stale'"));
    CU_ASSERT_FATAL(pthread_create(&thread, NULL, hold, client) == 0);
    int64_t until_ms = test_now_ms() + PATIENCE_MS;
    while (strncmp(line, "20", 2) != 0 && test_now_ms() < until_ms) {
        CU_ASSERT_FATAL(test_say(
            &session, "SELECT pg_stat_clear_snapshot() \\g /dev/null\n"
                      "SELECT CASE WHEN EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type "
                      "= 'Lock' AND xact_start < clock_timestamp() - interval '20 ms') "
                      "THEN clock_timestamp()::text ELSE 'not yet' END;"));
        CU_ASSERT_FATAL(test_hear(&session, line, sizeof line, PATIENCE_MS));
    }
    session_end(&session);
    pthread_join(thread, NULL);
    snprintf(sql, sizeof sql,
             "SELECT acquired_at >= '%.60s' FROM mortise_lock WHERE name = 'stale'", line);
    CU_ASSERT_STRING_EQUAL(ask(sql), "t");
    give(held);
    mortise_close(client, NULL);
}

/* A caller that has given up keeps nothing (DistributedLock#147): the driver releases what the server grants too late. */
static void test_granted_too_late(void)
{
    mortise_client *client = open_client("", "command_timeout = 60s");
    char sql[256];
    give(take(client, "late", 0));
    snprintf(sql, sizeof sql,
             "SELECT version > %.30s AND grants IS NULL FROM mortise_lock WHERE name = 'late'",
             ask("SELECT version FROM mortise_lock WHERE name = 'late'"));
    row_fault("late", 1,
              "PERFORM pg_sleep(8)"); /* this process may be stopped for almost as long */
    CU_ASSERT_EQUAL(try_for(client, "late", 100), MORTISE_TIMEDOUT);
    CU_ASSERT(soon(sql, "t"));
    row_fault_end();
    CU_ASSERT_EQUAL(try_for(client, "late", 0), MORTISE_OK);
    mortise_close(client, NULL);
}

/* ---- statements that fail ---------------------------------------------------------------------- */

static bool has_renewed(void *argument)
{
    mortise_stats stats = {.size = sizeof stats};
    return mortise_stats_get(argument, &stats) == MORTISE_OK && stats.renewals > 0;
}

static bool is_held(void *lease)
{
    return mortise_state(lease) == MORTISE_STATE_HELD;
}

/* Acquire, renew and release fail twice with that error, and are repeated: the caller does not notice. */
static void repeated_after(const char *sqlstate)
{
    char action[100];
    mortise_client *client = open_client("", ""),
                   *renewing = open_client("renew_every = 100ms", "");
    mortise_lease *lease;
    give(take(client, "again", 0));
    snprintf(action, sizeof action, "RAISE EXCEPTION ''fault'' USING ERRCODE = ''%s''", sqlstate);
    row_fault("again", 2, action);
    CU_ASSERT_EQUAL(
        mortise_acquire(client, "again", MORTISE_OPTIONS(.wait_ms = 0), &lease, &detail),
        MORTISE_OK);
    ask("SELECT setval('faults', 1, false)");
    give(lease);
    lease = take(renewing, "again", HOLD_MS);
    ask("SELECT setval('faults', 1, false)");
    /* The faults come first, because a renewal from before them may be counted already. */
    CU_ASSERT(soon("SELECT last_value > 2 FROM faults", "t"));
    CU_ASSERT(test_poll(has_renewed, renewing, PATIENCE_MS));
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    give(lease);
    row_fault_end();
    mortise_close(client, NULL);
    mortise_close(renewing, NULL);
}

static void test_deadlock_detected(void)
{
    repeated_after("40P01");
}

static void test_serialization_failure(void)
{
    repeated_after("40001");
}

/* It never stops failing: then the caller gets the reason. */
static void test_always_failing(void)
{
    mortise_client *client = open_client("", "");
    give(take(client, "always", 0));
    row_fault("always", 1000000, "RAISE EXCEPTION ''fault'' USING ERRCODE = ''40P01''");
    CU_ASSERT_EQUAL(try_for(client, "always", 0), MORTISE_UNREACHABLE);
    says("too many deadlocks");
    row_fault_end();
    CU_ASSERT_EQUAL(try_for(client, "always", 0), MORTISE_OK);
    mortise_close(client, NULL);
}

/* ---- backends that are lost in a statement ------------------------------------------------------- */

struct call {
    pthread_t thread;
    mortise_client *client;
    mortise_lease *lease; /* NULL: acquire it; else release */
    mortise_status status;
};

/* Fails while the server is down. */
static bool is_to_repeat(const struct call *call, int64_t until_ms)
{
    bool away = call->status == MORTISE_UNREACHABLE || call->status == MORTISE_INDETERMINATE;
    return away && test_now_ms() < until_ms;
}

static void *make_call(void *argument)
{
    struct call *call = argument;
    int64_t until_ms = test_now_ms() + PATIENCE_MS;
    if (call->lease != NULL) {
        call->status = mortise_release(call->lease, &detail);
        return NULL;
    }
    do {
        call->status = mortise_acquire(call->client, "victim",
                                       MORTISE_OPTIONS(.wait_ms = PATIENCE_MS, .ttl_ms = HOLD_MS),
                                       &call->lease, &detail);
    } while (is_to_repeat(call, until_ms));
    return NULL;
}

/* Checks that the pid belongs to our server, not to a later process with the same pid. */
static bool is_backend(long pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    char *text = test_file_read(path), *state = text != NULL ? strrchr(text, ')') : NULL;
    bool is = pid > 1 && state != NULL && strtol(state + 3, NULL, 10) == server_pid("1");
    free(text);
    return is;
}

/* Ends the backend that sleeps in a fault: cleanly, or as a crash, which ends all backends. */
static void end_sleeper(bool crash)
{
    if (!crash) {
        CU_ASSERT_STRING_EQUAL(ask("SELECT pg_terminate_backend(pid) " SLEEPERS), "t");
        return;
    }
    long pid = strtol(ask("SELECT pid " SLEEPERS), NULL, 10);
    ask("SELECT setval('faults', 100)"); /* that count may be lost in the crash */
    CU_ASSERT_FATAL(is_backend(pid) && kill((pid_t)pid, SIGKILL) == 0);
    CU_ASSERT(soon("SELECT 'back'", "back"));
}

static void call_loses_backend(struct call *call, bool crash)
{
    row_fault("victim", 1, "PERFORM pg_sleep(600)");
    pthread_create(&call->thread, NULL, make_call, call);
    CU_ASSERT(soon("SELECT count(*) " SLEEPERS, "1"));
    end_sleeper(crash);
    pthread_join(call->thread, NULL);
    if (!crash)
        CU_ASSERT_EQUAL(call->status, MORTISE_OK);
    CU_ASSERT_PTR_NOT_NULL_FATAL(call->lease);
    row_fault_end();
}

static void backend_lost(bool crash)
{
    struct call call = {.client = open_client("", "command_timeout = 600s")};
    mortise_client *other = open_client("", ""),
                   *renewing = open_client("renew_every = 100ms", "command_timeout = 600s");
    give(take(call.client, "victim", 0));
    call_loses_backend(&call, crash);
    CU_ASSERT_EQUAL(try_for(other, "victim", 0), MORTISE_BUSY);
    call_loses_backend(&call, crash); /* its release */
    CU_ASSERT_EQUAL(try_for(other, "victim", PATIENCE_MS), MORTISE_OK);
    mortise_lease *lease = take(renewing, "victim", HOLD_MS);
    row_fault("victim", 1, "PERFORM pg_sleep(600)");
    CU_ASSERT(soon("SELECT count(*) " SLEEPERS, "1"));
    end_sleeper(crash);
    CU_ASSERT(soon("SELECT last_value > 2 FROM faults", "t")); /* it is renewed again */
    row_fault_end();
    CU_ASSERT(test_poll(is_held, lease, PATIENCE_MS));
    give(lease);
    mortise_close(call.client, NULL);
    mortise_close(renewing, NULL);
    mortise_close(other, NULL);
}

static void test_backend_terminated(void)
{
    backend_lost(false);
}

static void test_backend_killed(void)
{
    backend_lost(true);
}

/* ---- commits that hang --------------------------------------------------------------------------- */

/* Every durable commit waits for a standby that does not exist. */
static void commits_hang(bool hang)
{
    char sql[200];
    snprintf(sql, sizeof sql, "ALTER SYSTEM SET synchronous_standby_names = '%s'",
             hang ? "nosuch" : "");
    const char *const steps[] = {"SET synchronous_commit = off", sql, "SELECT pg_reload_conf()"};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        ask(steps[i]);
    CU_ASSERT(soon("SHOW synchronous_standby_names", hang ? "nosuch" : ""));
}

struct flag {
    pthread_t thread;
    mortise_client *client;
    mortise_lease *lease;
    _Atomic bool done;
};

static void *take_flagged(void *argument)
{
    struct flag *flag = argument;
    flag->lease = take(flag->client, "commit", HOLD_MS);
    flag->done = true;
    return NULL;
}

#define HANGING                                                                                    \
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' "                          \
    "AND application_name = 'mortise'"

/* A grant is reported when it is committed, not when its row arrives. */
static void test_told_after_commit(void)
{
    struct flag flag = {.client = open_client("", "command_timeout = 600s")};
    give(take(flag.client, "commit", 0));
    commits_hang(true);
    CU_ASSERT_FATAL(pthread_create(&flag.thread, NULL, take_flagged, &flag) == 0);
    CU_ASSERT(soon(HANGING, "1"));
    CU_ASSERT_STRING_EQUAL(ask("SELECT grants IS NULL FROM mortise_lock WHERE name = 'commit'"),
                           "t");
    CU_ASSERT_STRING_EQUAL(ask(HANGING), "1");
    CU_ASSERT(!flag.done);
    commits_hang(false);
    pthread_join(flag.thread, NULL);
    CU_ASSERT_EQUAL(mortise_state(flag.lease), MORTISE_STATE_HELD);
    give(flag.lease);
    mortise_close(flag.client, NULL);
}

/* A commit with a notification in another database hangs, and keeps all notifications of the cluster locked. Releases
 * go on; waiters are notified when that is over. */
static void test_foreign_notify(void)
{
    struct test_process session;
    char line[64];
    const char *const argv[] = {"/bin/sh", script, "ask", "postgres", folder, NULL};
    mortise_client *client = open_client("", ""), *other = open_client("", "");
    struct waiter waiter;
    mortise_lease *lease = take(client, "told", HOLD_MS);
    waiter_begin(&waiter, other, "told");
    ask("CREATE DATABASE elsewhere");
    commits_hang(true);
    CU_ASSERT_FATAL(test_spawn(&session, argv) &&
                    test_say(&session,
                             "\\c elsewhere\nBEGIN; CREATE TABLE hanging(a int); "
                             "NOTIFY hanging; COMMIT; DROP TABLE hanging; SELECT 'over';"));
    CU_ASSERT(soon("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' "
                   "AND datname = 'elsewhere'",
                   "1"));
    give(lease);
    commits_hang(false);
    CU_ASSERT_EQUAL(waiter_end(&waiter), MORTISE_OK);
    CU_ASSERT(test_hear(&session, line, sizeof line, PATIENCE_MS));
    test_say(&session, "\\q");
    test_reap(&session, PATIENCE_MS);
    test_kill(&session);
    mortise_close(client, NULL);
    mortise_close(other, NULL);
}

/* ---- a backup that is restored ------------------------------------------------------------------ */

/* Grants since the backup are forgotten: another client gets the lock while its holder counts on. The tokens order
 * the two, and the older one learns of it at its next request. */
static void test_restored(void)
{
    mortise_client *client = open_client("", ""), *other = open_client("", "");
    give(take(client, "restored", 0));
    CU_ASSERT_STRING_EQUAL(ask("CREATE TABLE backup AS TABLE mortise_lock; SELECT 'made'"), "made");
    mortise_lease *lease = take(client, "restored", HOLD_MS);
    CU_ASSERT_STRING_EQUAL(ask("BEGIN; DELETE FROM mortise_lock; "
                               "INSERT INTO mortise_lock TABLE backup; COMMIT; DROP TABLE backup; "
                               "SELECT 'restored'"),
                           "restored");
    mortise_lease *next = take(other, "restored", HOLD_MS);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT(mortise_token(next) > mortise_token(lease));
    CU_ASSERT_EQUAL(mortise_release(lease, &detail), MORTISE_LOST);
    CU_ASSERT_EQUAL(mortise_state(next), MORTISE_STATE_HELD);
    give(next);
    mortise_close(client, NULL);
    mortise_close(other, NULL);
}

/* ---- no space ---------------------------------------------------------------------------------- */

struct refusal {
    mortise_client *client;
    const char *word;
};

static bool is_refused(void *argument)
{
    const struct refusal *refusal = argument;
    return try_for(refusal->client, "room", 0) == MORTISE_BACKEND &&
           strstr(detail.message, refusal->word) != NULL;
}

/* A statement for which the server has no memory, or no disk, fails with a message that says so. Nothing of it is left,
 * earlier grants remain, and the lock can be acquired once there is space again. */
static void no_room(const char *state, const char *word)
{
    char action[120];
    mortise_client *client = open_client("", ""), *other = open_client("", "");
    mortise_lease *lease = take(client, "kept", HOLD_MS);
    give(take(client, "room", 0));
    snprintf(action, sizeof action, "RAISE EXCEPTION ''no room'' USING ERRCODE = ''%s''", state);
    row_fault("room", 1000000, action);
    struct refusal refusal = {other, word};
    CU_ASSERT(test_poll(is_refused, &refusal, PATIENCE_MS));
    CU_ASSERT_STRING_EQUAL(ask("SELECT grants IS NULL FROM mortise_lock WHERE name = 'room'"), "t");
    row_fault_end();
    CU_ASSERT_EQUAL(try_for(other, "room", PATIENCE_MS), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    give(lease);
    mortise_close(client, NULL);
    mortise_close(other, NULL);
}

static void test_no_memory(void)
{
    no_room("53200", "no room"); /* the server's own code */
}

static void test_no_disk(void)
{
    no_room("53100", "disk is full");
}

/* ---- main -------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    CU_TestInfo tests[] = {
        {"a row that is locked", test_row_locked},
        {"neighbours of a row that is locked", test_neighbours},
        {"a transaction that has waited", test_stale_transaction},
        {"granted when the caller has given up", test_granted_too_late},
        {"deadlock_detected", test_deadlock_detected},
        {"serialization_failure", test_serialization_failure},
        {"deadlocks without end", test_always_failing},
        {"backends terminated in a statement", test_backend_terminated},
        {"backends killed in a statement", test_backend_killed},
        {"told after the commit", test_told_after_commit},
        {"a NOTIFY of others that hangs", test_foreign_notify},
        {"a backup is restored", test_restored},
        {"no memory left", test_no_memory},
        {"no disk left", test_no_disk},
        CU_TEST_INFO_NULL,
    };
    return server_run(tests, argc, argv);
}
