/* test_postgres_connections.c - the PostgreSQL driver's connections: how many there are, and what is left when one breaks
 * or its client stands still. The server has no standby and no clock to set: both cost more for each session. */
#define SERVER_SETTINGS ""
#include "postgres_server.h"

/* A waiter needs no connection of its own. */
static void test_two_connections(void)
{
    enum { LEASES = 1000, WAITERS = 100 };
    static mortise_lease *leases[LEASES];
    static struct waiter waiters[WAITERS];
    static char names[LEASES][16];
    mortise_client *holder = open_client("", ""), *client = open_client("renew_every = 100ms", "");
    mortise_lease *wanted[WAITERS];
    for (int i = 0; i < LEASES; i++) {
        snprintf(names[i], sizeof names[i], "many-%d", i);
        leases[i] = take(client, names[i], HOLD_MS);
    }
    char waited[WAITERS][16];
    for (int i = 0; i < WAITERS; i++) {
        snprintf(waited[i], sizeof waited[i], "wait-%d", i);
        wanted[i] = take(holder, waited[i], HOLD_MS);
        waiter_start(&waiters[i], client, waited[i]);
    }
    CU_ASSERT(soon("SELECT count(*) FROM mortise_lock WHERE waiters IS NOT NULL", "100"));
    mortise_close(holder, NULL); /* releases all of its leases */
    for (int i = 0; i < WAITERS; i++)
        CU_ASSERT_EQUAL(waiter_end(&waiters[i]), MORTISE_OK);
    (void)wanted;
    CU_ASSERT(
        soon("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'mortise'", "2"));
    for (int i = 0; i < LEASES; i++)
        give(leases[i]);
    mortise_close(client, NULL);
}

/* The connection breaks while an acquire waits in the server. Its backend would acquire the lock later, for nobody.
 * So the driver terminates it before it believes a release. */
static void test_ghost(void)
{
    char conninfo[200];
    snprintf(conninfo, sizeof conninfo, "host=127.0.0.1 port=%d dbname=mortise user=mortise",
             proxy.port);
    mortise_client *client = open_as(conninfo, "", "command_timeout = 600s");
    mortise_client *other = open_client("", "");
    give(take(client, "ghost", HOLD_MS));
    row_fault("ghost", 1, "PERFORM pg_sleep(600)");
    give_up_when(client, "ghost", "SELECT count(*) " SLEEPERS, "1");
    CU_ASSERT(test_proxy_say(&proxy, "cut"));
    CU_ASSERT(soon("SELECT count(*) " SLEEPERS, "0"));
    row_fault_end();
    CU_ASSERT_EQUAL(try_for(other, "ghost", 0), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_close(client, &detail), MORTISE_OK);
    mortise_close(other, NULL);
}

/* The running connection, or the next one, is reset after a number of bytes. The lock is acquired in the end, only once, and
 * released. By day some numbers of bytes are tested. At night more of them are, and each one within the replies of a running
 * connection to the acquire and the release. */
static void test_cut_anywhere(void)
{
    static const struct {
        const char *way;
        bool anew; /* the connection is being made */
        int last, step, at_night;
    } cuts[] = {{"up", false, 270, 9, 3},
                {"down", false, 220, 9, 1},
                {"up", true, 9000, 501, 167},
                {"down", true, 1500, 83, 31}};
    char conninfo[200];
    snprintf(conninfo, sizeof conninfo, "host=127.0.0.1 port=%d dbname=mortise user=mortise",
             proxy.port);
    mortise_client *client = open_as(conninfo, "", ""), *other = open_client("", "");
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

/* A client that is stopped anywhere leaves no row locked for longer than its statement. */
static void test_client_stopped(void)
{
    struct test_process taker;
    char url[200], count[300], line[64];
    snprintf(url, sizeof url, "postgresql://mortise@127.0.0.1:%s/mortise", port);
    snprintf(count, sizeof count, "%s/count", folder);
    CU_ASSERT_FATAL(test_file_write(count, "0"));
    const char *const argv[] = {getenv("MORTISE_TAKER"), url, NULL};
    CU_ASSERT_FATAL(test_spawn(&taker, argv) && test_hear(&taker, line, sizeof line, PATIENCE_MS));
    CU_ASSERT(test_say(&taker, "spin stopped %s 1000000", count));
    CU_ASSERT(soon("SELECT count(*) FROM mortise_lock WHERE name = 'stopped'", "1"));
    for (int i = 0; i < 10; i++) {
        CU_ASSERT(test_signal(&taker, SIGSTOP));
        CU_ASSERT(
            soon("SELECT count(*) >= 0 FROM (SELECT 1 FROM mortise_lock FOR UPDATE NOWAIT) AS rows",
                 "t"));
        CU_ASSERT_STRING_EQUAL(
            ask("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%'"), "0");
        CU_ASSERT(test_signal(&taker, SIGCONT));
    }
    test_kill(&taker);
}

/* ---- main -------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    CU_TestInfo tests[] = {
        {"a thousand leases, a hundred waiters, two connections", test_two_connections},
        {"a backend that outlives its connection", test_ghost},
        {"a connection that breaks at any byte", test_cut_anywhere},
        {"a client that is stopped", test_client_stopped},
        CU_TEST_INFO_NULL,
    };
    return server_run(tests, argc, argv);
}
