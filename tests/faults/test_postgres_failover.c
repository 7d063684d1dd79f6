/* test_postgres_failover.c - a PostgreSQL server dies, and its synchronous standby takes over: what was reported as
 * granted is still granted. On a private pair of servers. */
#define SERVER_SETTINGS "standby=yes\n"
#include "postgres_server.h"

static uint64_t renewals(mortise_client *client)
{
    mortise_stats stats = {.size = sizeof stats};
    mortise_stats_get(client, &stats);
    return stats.renewals;
}

static bool renewed_since(void *argument)
{
    void **arguments = argument;
    return renewals(arguments[0]) > *(uint64_t *)arguments[1] &&
           mortise_state(arguments[2]) == MORTISE_STATE_HELD;
}

static void test_promoted(void)
{
    char conninfo[200];
    ask("ALTER SYSTEM SET synchronous_standby_names = '*'");
    ask("SELECT pg_reload_conf()");
    CU_ASSERT_FATAL(soon("SELECT sync_state FROM pg_stat_replication", "sync"));
    snprintf(conninfo, sizeof conninfo,
             "host=127.0.0.1,127.0.0.1 port=%s,%s dbname=mortise user=mortise", standby_port, port);
    mortise_client *client = open_as(conninfo, "renew_every = 100ms", ""),
                   *other = open_as(conninfo, "", "");
    mortise_lease *lease = take(client, "promoted", HOLD_MS);
    struct waiter waiter;
    uint64_t token = mortise_token(lease);
    waiter_begin(&waiter, other, "promoted");
    CU_ASSERT_FATAL(act("kill", "only=1"));
    uint64_t before = renewals(client) + 1; /* the answer to one may have been under way */
    CU_ASSERT_STRING_EQUAL_FATAL(ask_standby("SELECT pg_promote()"), "t");
    void *arguments[] = {client, &before, lease};
    CU_ASSERT(test_poll(renewed_since, arguments, PATIENCE_MS));
    CU_ASSERT_STRING_EQUAL(
        ask_standby("SELECT grants IS NOT NULL FROM mortise_lock WHERE name = 'promoted'"), "t");
    give(lease);
    CU_ASSERT_EQUAL(waiter_end(&waiter), MORTISE_OK);
    lease = take(client, "promoted", HOLD_MS);
    CU_ASSERT(mortise_token(lease) > token);
    give(lease);
    mortise_close(client, NULL);
    mortise_close(other, NULL);
}

int main(int argc, char **argv)
{
    CU_TestInfo tests[] = {
        {"a standby is promoted", test_promoted},
        CU_TEST_INFO_NULL,
    };
    return server_run(tests, argc, argv);
}
