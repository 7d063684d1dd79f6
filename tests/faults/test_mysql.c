/* test_mysql.c - the MySQL driver and faults of its server: crashes, killed sessions and statements, connections that break,
 * and what its waiters ask for. On a private server; the fault proxy is in front of it for tests that break connections. */
#include "mysql_server.h"

/* ---- crashes and sessions ---------------------------------------------------------------------- */

/* The client is told after the commit: a grant and a renewal survive when the server is killed. */
static void test_crash(void)
{
    mortise_client *client = open_client("renew_every = 100ms", ""), *other = open_client("", "");
    char expiry[64];
    mortise_lease *lease = take(client, "crash", HOLD_MS);
    CU_ASSERT(wait_renewals(client, 1));
    snprintf(expiry, sizeof expiry, "%s",
             ask("SELECT expires_at FROM mortise_lock WHERE name = 'crash'"));
    CU_ASSERT(act("kill", "only=1") && act("start", "only=1"));
    CU_ASSERT_EQUAL(try_for(other, "crash", 0), MORTISE_BUSY);
    char sql[200];
    snprintf(sql, sizeof sql, "SELECT expires_at >= %.40s FROM mortise_lock WHERE name = 'crash'",
             expiry);
    CU_ASSERT_STRING_EQUAL(ask(sql), "1");
    CU_ASSERT_NOT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    give(lease);
    CU_ASSERT_EQUAL(try_for(other, "crash", PATIENCE_MS), MORTISE_OK);
    mortise_close(client, NULL);
    mortise_close(other, NULL);
}

/* A lease does not depend on its session. */
static void test_sessions_killed(void)
{
    mortise_client *client = open_client("", "");
    for (int i = 0; i < 5; i++) {
        mortise_lease *lease = take(client, "session", HOLD_MS);
        CU_ASSERT_STRING_EQUAL(ask("KILL USER mortise; SELECT 'killed'"), "killed");
        give(lease);
    }
    mortise_close(client, NULL);
}

/* An acquire and a release that sleep in the server are killed: the statement, the connection. Either is done in the end,
 * once. */
static void killed_in(const char *what)
{
    mortise_client *client = open_client("", "command_timeout = 600s"),
                   *other = open_client("", "");
    struct caller caller;
    give(take(client, "killed", HOLD_MS));
    row_fault("killed", 1, SLEEPS);
    call_begin(&caller, client, "killed", NULL);
    CU_ASSERT(soon("SELECT count(*) " SLEEPERS, "1"));
    kill_sleepers(what);
    CU_ASSERT_EQUAL(call_end(&caller), MORTISE_OK);
    row_fault_end();
    mortise_lease *lease = take(client, "killed", HOLD_MS);
    row_fault("killed", 1, SLEEPS);
    call_begin(&caller, client, "killed", lease);
    CU_ASSERT(soon("SELECT count(*) " SLEEPERS, "1"));
    kill_sleepers(what);
    CU_ASSERT_EQUAL(call_end(&caller), MORTISE_OK);
    row_fault_end();
    CU_ASSERT_EQUAL(try_for(other, "killed", 0), MORTISE_OK);
    mortise_close(client, NULL);
    mortise_close(other, NULL);
}

static void test_killed_statements(void)
{
    killed_in("QUERY");
    killed_in("CONNECTION");
}

/* ---- each statement is killed ------------------------------------------------------------------- */

static mortise_client *victim;

static mortise_status acquire_new(void)
{
    static int count;
    char name[24];
    snprintf(name, sizeof name, "new-%d", count++);
    return try_for(victim, name, PATIENCE_MS);
}

static mortise_status acquire_shared(void)
{
    mortise_lease *lease;
    mortise_status status = mortise_acquire(
        victim, "shared", MORTISE_OPTIONS(.wait_ms = PATIENCE_MS, .mode = MORTISE_SHARED), &lease,
        &detail);
    return status == MORTISE_OK ? mortise_release(lease, &detail) : status;
}

static bool pass_over(const mortise_info *info, void *user_data)
{
    (void)info;
    (void)user_data;
    return true;
}

static mortise_status list(void)
{
    return mortise_list(victim, "", pass_over, NULL, &detail);
}

static mortise_status inspect(void)
{
    mortise_info info = {.size = sizeof info};
    return mortise_inspect(victim, "shared", &info, &detail);
}

static mortise_status ping(void)
{
    char text[400];
    return mortise_ping(victim, text, sizeof text, &detail);
}

struct killed {
    mortise_status (*run)(void);
    bool asks;
    const char
        *mode; /* of the lock on the table that the statement waits for: READ lets questions pass */
    mortise_status status;
};

static void *run_killed(void *argument)
{
    struct killed *killed = argument;
    killed->status = killed->run();
    return NULL;
}

/* The statement waits for the table until it is killed, or its connection. It, or what it was for, is done in the end; but a
 * question whose connection is lost fails. */
static void kill_in(struct killed *killed, const char *what)
{
    bool fails = strcmp(what, "CONNECTION") == 0 && killed->asks;
    static const char waits[] = "FROM information_schema.processlist WHERE user = 'mortise' "
                                "AND state = 'Waiting for table metadata lock'";
    char sql[300];
    pthread_t thread;
    struct test_process session;
    snprintf(sql, sizeof sql, "LOCK TABLES mortise_lock %s, mortise_meta %s", killed->mode,
             killed->mode);
    CU_ASSERT_EQUAL(ping(), MORTISE_OK); /* it is connected */
    CU_ASSERT_FATAL(session_begin(&session, sql));
    CU_ASSERT_FATAL(pthread_create(&thread, NULL, run_killed, killed) == 0);
    snprintf(sql, sizeof sql, "SELECT count(*) %s", waits);
    CU_ASSERT(soon(sql, "1"));
    snprintf(sql, sizeof sql, "SELECT id %s", waits);
    snprintf(sql, sizeof sql, "KILL %s %.20s; SELECT 'killed'", what, ask(sql));
    CU_ASSERT_STRING_EQUAL(ask(sql), "killed");
    test_say(&session, "UNLOCK TABLES;");
    pthread_join(thread, NULL);
    session_end(&session);
    CU_ASSERT_EQUAL(killed->status, fails ? MORTISE_UNREACHABLE : MORTISE_OK);
}

static void test_killed_each(void)
{
    static struct killed each[] = {
        {.run = acquire_new, .mode = "READ"},
        {.run = acquire_shared, .mode = "READ"},
        {.run = acquire_shared, .mode = "WRITE"},
        {.run = list, .asks = true, .mode = "WRITE"},
        {.run = inspect, .asks = true, .mode = "WRITE"},
        {.run = ping, .asks = true, .mode = "WRITE"},
    };
    victim = open_client("", "command_timeout = 600s");
    CU_ASSERT_EQUAL(acquire_shared(), MORTISE_OK);
    for (size_t i = 0; i < sizeof each / sizeof each[0]; i++) {
        kill_in(&each[i], "QUERY");
        kill_in(&each[i], "CONNECTION");
    }
    mortise_close(victim, NULL);
}

/* A renewal that is killed is repeated. */
static void test_killed_renewal(void)
{
    mortise_client *client = open_client("renew_every = 100ms", "command_timeout = 600s");
    mortise_lease *lease = take(client, "renewal", HOLD_MS);
    static const char *const ways[] = {"QUERY", "CONNECTION"};
    for (size_t i = 0; i < 2; i++) {
        row_fault("renewal", 1, SLEEPS);
        CU_ASSERT(soon("SELECT count(*) " SLEEPERS, "1"));
        uint64_t before = renewals_of(client);
        kill_sleepers(ways[i]);
        CU_ASSERT(wait_renewals(client, before + 1));
        row_fault_end();
    }
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    give(lease);
    mortise_close(client, NULL);
}

/* ---- connections ------------------------------------------------------------------------------- */

/* The connection breaks while an acquire is busy in the server. Its session acquires the lock later, for nobody, perhaps when
 * it is killed. So the driver ends it before it believes a release, and the name is free long before the ttl is over. A session
 * that computes does not look at its connection, so nothing else ends it. */
static void test_ghost(void)
{
    static const char busy[] = "SELECT count(*) " SESSIONS " AND command <> 'Sleep'";
    mortise_client *client = open_proxied("", "command_timeout = 600s");
    mortise_client *other = open_client("", "");
    give(take(client, "ghost", HOLD_MS));
    row_fault("ghost", 1, "DO BENCHMARK(1000000000000, MD5('x'))");
    give_up_when(client, "ghost", busy, "1");
    CU_ASSERT(test_proxy_say(&proxy, "cut"));
    CU_ASSERT(soon(busy, "0"));
    row_fault_end();
    mortise_status status = try_for(other, "ghost", PATIENCE_MS);
    if (status != MORTISE_OK)
        fprintf(stderr, "%s: %s\n", mortise_status_name(status), detail.message);
    CU_ASSERT_EQUAL(status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_close(client, &detail), MORTISE_OK);
    mortise_close(other, NULL);
}

/* Reset behind so many bytes of the running connection, or of the next one: whatever was under way is done in the end, once,
 * and released. By day after some numbers of bytes; at night after more of them, and in the replies of a running connection
 * after each: those of the acquire and of the release. */
static void test_cut_anywhere(void)
{
    static const struct {
        const char *way;
        bool anew; /* the connection is being made */
        int last, step, at_night;
    } cuts[] = {{"up", false, 900, 61, 13},
                {"down", false, 130, 7, 1},
                {"up", true, 2600, 211, 67},
                {"down", true, 1300, 97, 31}};
    mortise_client *client = open_proxied("", ""), *other = open_client("", "");
    const char *nightly = getenv("MORTISE_NIGHTLY");
    bool at_night = nightly && strcmp(nightly, "1") == 0;
    for (size_t k = 0; k < sizeof cuts / sizeof *cuts; k++)
        for (int n = 0; n < cuts[k].last; n += at_night ? cuts[k].at_night : cuts[k].step) {
            give(take(client, "cut", HOLD_MS));
            CU_ASSERT(!cuts[k].anew || test_proxy_say(&proxy, "cut"));
            CU_ASSERT(test_proxy_say(&proxy, "cut-after %s %d", cuts[k].way, n));
            mortise_lease *lease = take(client, "cut", HOLD_MS);
            CU_ASSERT_EQUAL(try_for(other, "cut", 0), MORTISE_BUSY);
            give(lease);
            CU_ASSERT_EQUAL(try_for(other, "cut", 0), MORTISE_OK);
            CU_ASSERT(test_proxy_say(&proxy, "pass"));
        }
    CU_ASSERT_EQUAL(mortise_close(client, &detail), MORTISE_OK);
    mortise_close(other, NULL);
}

/* A client that is stopped anywhere leaves no transaction open. */
static void test_client_stopped(void)
{
    struct test_process taker;
    char url[200], count[300], line[64];
    snprintf(url, sizeof url, "mariadb://mortise@127.0.0.1:%s/mortise", port);
    snprintf(count, sizeof count, "%s/count", folder);
    CU_ASSERT_FATAL(test_file_write(count, "0"));
    const char *const argv[] = {getenv("MORTISE_TAKER"), url, NULL};
    CU_ASSERT_FATAL(test_spawn(&taker, argv) && test_hear(&taker, line, sizeof line, PATIENCE_MS));
    CU_ASSERT(test_say(&taker, "spin stopped %s 1000000", count));
    CU_ASSERT(soon("SELECT count(*) FROM mortise_lock WHERE name = 'stopped'", "1"));
    for (int i = 0; i < 5; i++) {
        CU_ASSERT(test_signal(&taker, SIGSTOP));
        CU_ASSERT(soon("SELECT count(*) FROM information_schema.innodb_trx", "0"));
        CU_ASSERT(test_signal(&taker, SIGCONT));
    }
    test_kill(&taker);
}

/* Both names are asked for in one group, with one transaction. The second statement fails when the client is stopped, which
 * cannot send the ROLLBACK, so the first row stays locked: until the server ends the session. No row_fault(): its sequence leaves
 * a transaction behind. */
static void test_client_stopped_failing(void)
{
    struct test_process taker;
    char url[200], line[200];
    mortise_client *client = open_client("", "");
    give(take(client, "stopped-a", HOLD_MS));
    give(take(client, "stopped-b", HOLD_MS));
    snprintf(url, sizeof url, "mariadb://mortise@127.0.0.1:%s/mortise?command_timeout=3s", port);
    const char *const argv[] = {getenv("MORTISE_TAKER"), url, NULL};
    CU_ASSERT_FATAL(test_spawn(&taker, argv) && test_hear(&taker, line, sizeof line, PATIENCE_MS));
    CU_ASSERT_STRING_EQUAL(
        ask("CREATE DEFINER = mortise@'%' TRIGGER fault BEFORE UPDATE ON mortise_lock FOR EACH ROW "
            "BEGIN IF OLD.name = 'stopped-b' AND @@global.max_error_count = 77 THEN " SLEEPS
            "; END IF; END;; SET GLOBAL max_error_count = 77;; SELECT 'armed'"),
        "armed");
    CU_ASSERT(test_say(&taker, "many stopped-a stopped-b"));
    CU_ASSERT(soon("SELECT count(*) " SLEEPERS, "1"));
    CU_ASSERT(test_signal(&taker, SIGSTOP));
    snprintf(line, sizeof line, "KILL QUERY %.20s", ask("SELECT id " SLEEPERS));
    ask(line); /* or command_timeout has ended it */
    CU_ASSERT(soon("SELECT count(*) FROM information_schema.innodb_trx", "0"));
    CU_ASSERT_EQUAL(try_for(client, "stopped-a", 0), MORTISE_OK);
    ask("SET GLOBAL max_error_count = DEFAULT");
    CU_ASSERT(test_signal(&taker, SIGCONT)); /* it notices, and gets both in the end */
    CU_ASSERT(test_hear(&taker, line, sizeof line, PATIENCE_MS));
    CU_ASSERT_STRING_EQUAL(line, "OK");
    CU_ASSERT_EQUAL(try_for(client, "stopped-a", 0), MORTISE_BUSY);
    test_kill(&taker);
    CU_ASSERT_STRING_EQUAL(ask("DROP TRIGGER fault; SELECT 'gone'"), "gone");
    mortise_close(client, NULL);
}

/* The server closes an idle connection; nobody notices. */
static void test_wait_timeout(void)
{
    CU_ASSERT_STRING_EQUAL(ask("SET GLOBAL wait_timeout = 1; SELECT 'set'"), "set");
    mortise_client *client = open_client("unreachable_timeout = 3s", "");
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(try_for(client, "idle", 0), MORTISE_OK);
        CU_ASSERT(soon("SELECT count(*) " SESSIONS, "0"));
    }
    CU_ASSERT_STRING_EQUAL(ask("SET GLOBAL wait_timeout = 28800; SELECT 'set'"), "set");
    mortise_close(client, NULL);
}

static bool is_refused(void *client)
{
    return try_for(client, "crowded", 0) == MORTISE_UNREACHABLE &&
           strstr(detail.message, "max_connections") != NULL;
}

static void test_max_connections(void)
{
    struct test_process sessions[10];
    mortise_client *client = open_client("unreachable_timeout = 3s", "");
    CU_ASSERT_STRING_EQUAL(ask("SET GLOBAL max_connections = 10; SELECT 'set'"), "set");
    for (size_t i = 0; i < 10; i++)
        CU_ASSERT(session_begin(&sessions[i], "SELECT 1"));
    CU_ASSERT(test_poll(is_refused, client, PATIENCE_MS));
    for (size_t i = 0; i < 10; i++)
        session_end(&sessions[i]);
    CU_ASSERT_STRING_EQUAL(ask("SET GLOBAL max_connections = 60; SELECT 'set'"), "set");
    mortise_client *patient = open_client("", "");
    CU_ASSERT_EQUAL(try_for(patient, "crowded", PATIENCE_MS), MORTISE_OK);
    mortise_close(client, NULL);
    mortise_close(patient, NULL);
}

/* ---- waiters ----------------------------------------------------------------------------------- */

/* It looks less and less often. However slow the machine is, it does not look more often. */
static void test_looks(void)
{
    mortise_client *holder = open_client("", ""), *client = open_client("", "");
    mortise_lease *lease = take(holder, "looked", HOLD_MS);
    CU_ASSERT_EQUAL(try_for(client, "looked", 0), MORTISE_BUSY); /* it is connected */
    CU_ASSERT_EQUAL(try_for(client, "looked", 1000), MORTISE_TIMEDOUT);
    static const char questions[] = "SELECT variable_value FROM information_schema.global_status "
                                    "WHERE variable_name = 'QUESTIONS'";
    long before = strtol(ask(questions), NULL, 10);
    CU_ASSERT_EQUAL(try_for(client, "looked", 10000), MORTISE_TIMEDOUT);
    long made = strtol(ask(questions), NULL, 10) - before;
    fprintf(stderr, "%ld statements in 10 s ", made);
    CU_ASSERT(before > 0 && made < 25);
    mortise_close(client, NULL);
    give(lease);
    mortise_close(holder, NULL);
}

/* Many leases are renewed, and many callers wait, over two connections. */
static void test_two_connections(void)
{
    enum { LEASES = 300, WAITERS = 30 };
    static mortise_lease *leases[LEASES];
    static struct caller callers[WAITERS];
    static char names[LEASES][16], waited[WAITERS][16];
    mortise_client *holder = open_client("", ""), *client = open_client("renew_every = 100ms", "");
    for (int i = 0; i < LEASES; i++) {
        snprintf(names[i], sizeof names[i], "many-%d", i);
        leases[i] = take(client, names[i], HOLD_MS);
    }
    for (int i = 0; i < WAITERS; i++) {
        snprintf(waited[i], sizeof waited[i], "wait-%d", i);
        take(holder, waited[i], HOLD_MS);
        call_begin(&callers[i], client, waited[i], NULL);
    }
    CU_ASSERT(wait_renewals(client, 2 * LEASES));
    CU_ASSERT_STRING_EQUAL(ask("SELECT count(*) " SESSIONS " AND id > 0"), "3");
    mortise_close(holder, NULL); /* releases all of its leases */
    for (int i = 0; i < WAITERS; i++)
        CU_ASSERT_EQUAL(call_end(&callers[i]), MORTISE_OK);
    for (int i = 0; i < LEASES; i++)
        give(leases[i]);
    mortise_close(client, NULL);
}

/* ---- main -------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    CU_TestInfo tests[] = {
        {"crash right after a grant, a renewal", test_crash},
        {"all sessions are killed", test_sessions_killed},
        {"killed in a statement", test_killed_statements},
        {"killed in a renewal", test_killed_renewal},
        {"killed in each other statement", test_killed_each},
        {"a session that outlives its connection", test_ghost},
        {"a connection that breaks at any byte", test_cut_anywhere},
        {"a client that is stopped", test_client_stopped},
        {"stopped when a statement of its group fails", test_client_stopped_failing},
        {"idle for wait_timeout", test_wait_timeout},
        {"too many connections", test_max_connections},
        {"looks of a waiter", test_looks},
        {"many leases and waiters, two connections", test_two_connections},
        CU_TEST_INFO_NULL,
    };
    return server_run(tests, argc, argv);
}
