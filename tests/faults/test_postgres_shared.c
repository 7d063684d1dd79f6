/* test_postgres_shared.c - shared claims and permits in a PostgreSQL server: by several processes, directly and behind the
 * pooler; and what is left if a reply is lost, the server restarts, or somebody deletes the row. */
#define SERVER_SETTINGS "pooler=yes\n"
#include "postgres_server.h"

#include "shared_tests.h"

/* ---- main -------------------------------------------------------------------------------------- */

static void configure(const char *more)
{
    static int count;
    char text[600];
    snprintf(config_path, sizeof config_path, "%s/shared%d.conf", folder, count++);
    snprintf(arena_path, sizeof arena_path, "%s/arena", folder);
    snprintf(text, sizeof text,
             "[mortise]\ndriver = postgres\nunreachable_timeout = 60s\n[postgres]\n"
             "conninfo = host=127.0.0.1 port=%s dbname=mortise user=mortise sslmode=disable\n%s\n",
             port, more);
    CU_ASSERT_FATAL(test_file_write(config_path, text));
}

static void test_begin(void)
{
    configure("");
}

static void test_pooled(void)
{
    configure("pooler = yes");
    test_readers_and_writers();
    test_writer_gets_in();
    configure("");
}

/* The answer to a downgrade is lost: it was made once, and the lease goes on as a shared one. */
static void *downgrade_it(void *lease)
{
    CU_ASSERT_EQUAL(mortise_downgrade(lease, &detail), MORTISE_OK);
    return NULL;
}

static void test_lost_downgrade(void)
{
    char conninfo[200];
    pthread_t thread;
    snprintf(conninfo, sizeof conninfo,
             "host=127.0.0.1 port=%d dbname=mortise user=mortise sslmode=disable", proxy.port);
    mortise_client *client = open_as(conninfo, "", "command_timeout = 600s");
    mortise_client *other = open_here();
    mortise_lease *lease = hold(client, "lost", MORTISE_EXCLUSIVE, 0);
    row_fault("lost", 1, "PERFORM pg_sleep(600)");
    CU_ASSERT_FATAL(pthread_create(&thread, NULL, downgrade_it, lease) == 0);
    CU_ASSERT(soon("SELECT count(*) " SLEEPERS, "1"));
    CU_ASSERT(test_proxy_say(&proxy, "cut"));
    pthread_join(thread, NULL);
    row_fault_end();
    mortise_release(hold(other, "lost", MORTISE_SHARED, 0), NULL);
    CU_ASSERT_EQUAL(try_for(other, "lost", 0), MORTISE_BUSY);
    give(lease);
    CU_ASSERT_EQUAL(try_for(other, "lost", PATIENCE_MS), MORTISE_OK);
    mortise_close(other, NULL);
    mortise_close(client, NULL);
}

/* What a session that was killed did late: a shared claim that nobody wants any more is released. */
static void test_given_up(void)
{
    char conninfo[200];
    snprintf(conninfo, sizeof conninfo,
             "host=127.0.0.1 port=%d dbname=mortise user=mortise sslmode=disable", proxy.port);
    mortise_client *client = open_as(conninfo, "", "command_timeout = 600s");
    mortise_client *other = open_here();
    mortise_lease *reader = hold(other, "given up", MORTISE_SHARED, 0);
    mortise_request request;
    struct given_up given_up = {.calls = TEST_COUNT_INIT};
    row_fault("given up", 1, "PERFORM pg_sleep(600)");
    CU_ASSERT_EQUAL_FATAL(
        mortise_acquire_async(client, "given up",
                              MORTISE_OPTIONS(.wait_ms = -1, .mode = MORTISE_SHARED), note_outcome,
                              &given_up, &request, &detail),
        MORTISE_OK);
    CU_ASSERT(soon("SELECT count(*) " SLEEPERS, "1"));
    CU_ASSERT_EQUAL(mortise_cancel(client, request), MORTISE_OK);
    CU_ASSERT_FATAL(test_count_wait(&given_up.calls, 1));
    CU_ASSERT(test_proxy_say(&proxy, "cut"));
    CU_ASSERT(soon("SELECT count(*) " SLEEPERS, "0"));
    row_fault_end();
    give(reader);
    CU_ASSERT_EQUAL(try_for(other, "given up", PATIENCE_MS), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_close(client, &detail), MORTISE_OK);
    mortise_close(other, NULL);
}

static void test_restart(void)
{
    mortise_client *client = open_here(), *other = open_here();
    mortise_lease *one = hold(client, "restart", MORTISE_SHARED, 2),
                  *two = hold(other, "restart", MORTISE_SHARED, 2);
    CU_ASSERT_FATAL(act("kill", "only=1"));
    CU_ASSERT_FATAL(act("start", "only=1"));
    mortise_info info = {.size = sizeof info};
    CU_ASSERT_EQUAL(mortise_inspect(other, "restart", &info, &detail), MORTISE_OK);
    CU_ASSERT_EQUAL(info.holders, 2);
    CU_ASSERT_EQUAL(info.permits, 2);
    give(one);
    give(two);
    mortise_close(other, NULL);
    mortise_close(client, NULL);
}

static void test_deleted_row(void)
{
    mortise_client *client = open_here(), *other = open_here();
    mortise_lease *one = hold(client, "deleted", MORTISE_SHARED, 0),
                  *two = hold(other, "deleted", MORTISE_SHARED, 0);
    uint64_t token = mortise_token(two);
    ask("DELETE FROM mortise_lock WHERE name = 'deleted'");
    mortise_lease *writer = hold(client, "deleted", MORTISE_EXCLUSIVE, 0);
    CU_ASSERT_TRUE(mortise_token(writer) > token);
    CU_ASSERT_EQUAL(mortise_release(one, &detail), MORTISE_LOST);
    CU_ASSERT_EQUAL(mortise_release(two, &detail), MORTISE_LOST);
    give(writer);
    mortise_close(other, NULL);
    mortise_close(client, NULL);
}

int main(int argc, char **argv)
{
    CU_TestInfo tests[] = {
        {"begin", test_begin},
        {"readers and writers", test_readers_and_writers},
        {"a semaphore", test_semaphore},
        {"a writer gets in", test_writer_gets_in},
        {"killed holders", test_killed_holders},
        {"a dead reader", test_dead_reader},
        {"a downgrade", test_downgrade},
        {"permits come back", test_permits_come_back},
        {"holders", test_holders},
        {"readers and writers behind a pooler", test_pooled},
        {"a lost downgrade", test_lost_downgrade},
        {"a shared acquire that is given up", test_given_up},
        {"a restart", test_restart},
        {"a row that somebody deletes", test_deleted_row},
        CU_TEST_INFO_NULL,
    };
    if (argc == 4 && strcmp(argv[1], "worker") == 0)
        return work(argv[2], argv[3]);
    return server_run(tests, argc, argv);
}
