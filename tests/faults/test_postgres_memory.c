/* test_postgres_memory.c - libpq gets no memory for what the server has answered: the statement was executed all the
 * same. On a private server. */
#define SERVER_SETTINGS "conf=checkpoint_timeout = 1h\n"
#include "postgres_server.h"

#include "refused_memory.h"

/* ---- acquire and release -------------------------------------------------------------------------------- */

/* Without memory for libpq's allocation of that number, in an acquire and in a release. False: it has no so many. */
static bool goes_round(mortise_client *other, const mortise_options *options, int at)
{
    static int count;
    char name[32];
    mortise_lease *lease = NULL;
    mortise_client *client = open_client("", "");
    snprintf(name, sizeof name, "name %d", count++);
    give(take(client, "another one", HOLD_MS)); /* it is connected */
    refuse_begin("/libpq.so");
    refuse(at);
    CU_ASSERT_EQUAL(mortise_acquire(client, name, options, &lease, &detail), MORTISE_OK);
    bool hit = refuse_end();
    refuse(at);
    give(lease);
    hit = refuse_end() || hit;
    CU_ASSERT_EQUAL(try_for(other, name, PATIENCE_MS), MORTISE_OK); /* nothing is left of it */
    mortise_close(client, NULL);
    return hit;
}

static void go_round(const mortise_options *options)
{
    mortise_client *other = open_client("", "");
    int at = 1;
    while (goes_round(other, options, at))
        at++;
    CU_ASSERT(code_begin != 0 && at > 3);
    mortise_close(other, NULL);
}

static void test_exclusive(void)
{
    go_round(MORTISE_OPTIONS(.wait_ms = PATIENCE_MS, .ttl_ms = HOLD_MS));
}

static void test_shared(void)
{
    go_round(MORTISE_OPTIONS(.wait_ms = PATIENCE_MS, .ttl_ms = HOLD_MS, .mode = MORTISE_SHARED));
}

int main(int argc, char **argv)
{
    CU_TestInfo tests[] = {
        {"no memory for an answer", test_exclusive},
        {"no memory for an answer: shared", test_shared},
        CU_TEST_INFO_NULL,
    };
    return server_run(tests, argc, argv);
}
