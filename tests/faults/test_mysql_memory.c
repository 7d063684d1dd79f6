/* test_mysql_memory.c - libmariadb gets no memory for the settings of a connection. On a private server. */
#include "mysql_server.h"
#include "refused_memory.h"

/* Behind these libmariadb connects, and some versions of it end the process where they get no memory then. */
#define SETTINGS_MAX 8

/* Without memory for libmariadb's allocation of that number, in a first acquire, which connects. The next one
 * succeeds. */
static void go_round(int at)
{
    char name[32];
    mortise_client *client = open_client("", "");
    snprintf(name, sizeof name, "name %d", at);
    refuse(at);
    mortise_status status = try_for(client, name, PATIENCE_MS);
    CU_ASSERT(refuse_end());
    CU_ASSERT(status == MORTISE_OK || status == MORTISE_NOMEM);
    CU_ASSERT_EQUAL(try_for(client, name, PATIENCE_MS), MORTISE_OK);
    mortise_close(client, NULL);
}

static void test_settings(void)
{
    mortise_client *other = open_client("", "");
    give(take(other, "another one", HOLD_MS)); /* the library is loaded, the tables are made */
    refuse_begin("/libmariadb.so");
    CU_ASSERT_FATAL(code_begin != 0);
    for (int at = 1; at <= SETTINGS_MAX; at++)
        go_round(at);
    mortise_close(other, NULL);
}

int main(int argc, char **argv)
{
    CU_TestInfo tests[] = {
        {"no memory for the settings of a connection", test_settings},
        CU_TEST_INFO_NULL,
    };
    return server_run(tests, argc, argv);
}
