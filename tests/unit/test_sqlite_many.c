/* test_sqlite_many.c - many names: the SQLite module reads only those that a list or a sweep is about, up to the last name that there
 * can be. SQLite asks for the time while it works, so the test counts that. */
#include "sqlite_host.h"

enum { ROWS = 20000, TURNS = 600, TRY_TURNS = 5 };

static const char *path;
static char last[MORTISE_NAME_MAX + 1]; /* of all names */
static unsigned work;

static void count(void)
{
    work++;
}

static struct client *open_with_many(struct client *client, const char *name)
{
    memset(last, 0xff, MORTISE_NAME_MAX);
    path = database(name);
    OPEN_OK(client, "path", path);
    CU_ASSERT_EQUAL(
        outside(
            path,
            "WITH RECURSIVE n(i) AS (SELECT 10001 UNION ALL SELECT i + 1 FROM n WHERE i < 30000) "
            "INSERT INTO mortise_lock(name, version, acquired_at, expires_at) "
            "SELECT CAST('n' || i AS BLOB), 9000000000000000, 0, 0 FROM n", /* free, and young */
            NULL),
        0);
    return client;
}

/* ---- lists --------------------------------------------------------------------------------------- */

/* Returns how much work it was. */
static unsigned list(struct client *client, const char *prefix, unsigned expected)
{
    struct call call = call_make(MORTISE_OP_LIST, prefix);
    client->emitted = client->misplaced = 0;
    work = 0;
    on_now = count;
    CU_ASSERT_EQUAL(run(client, &call), MORTISE_OK);
    on_now = NULL;
    CU_ASSERT_EQUAL(client->emitted, expected);
    CU_ASSERT_EQUAL(client->misplaced, 0);
    return work;
}

static void test_lists(void)
{
    struct client client;
    struct call locks[2];
    open_with_many(&client, "lists");
    CU_ASSERT_EQUAL(acquire(&client, &locks[0], "before", 0), MORTISE_OK);
    CU_ASSERT_EQUAL(acquire(&client, &locks[1], last, 0), MORTISE_OK);
    unsigned all = list(&client, "", 2);
    CU_ASSERT_TRUE(all > ROWS / 100);
    CU_ASSERT_TRUE(list(&client, "be", 1) < all / 10);
    CU_ASSERT_TRUE(list(&client, "c", 0) < all / 10);
    CU_ASSERT_TRUE(list(&client, "\xff", 1) < all / 10);
    CU_ASSERT_STRING_EQUAL(client.last_info.name, last);
    client_close(&client);
}

/* ---- sweeps -------------------------------------------------------------------------------------- */

/* A checkpoint is made, and with it a sweep. Returns the work of the call that made it. */
static unsigned sweep(struct client *client)
{
    struct call lock;
    unsigned most = 0;
    clock_shift_ns += 61000 * MS;
    for (int i = 0; i < TURNS; i++) {
        CU_ASSERT_EQUAL(acquire(client, &lock, "a", 0), MORTISE_OK);
        work = 0;
        on_now = count;
        CU_ASSERT_EQUAL(release(client, &lock), MORTISE_OK);
        on_now = NULL;
        most = work > most ? work : most;
    }
    return most;
}

/* Whether the last name of all has a row. */
static bool is_last_there(void)
{
    return outside(path,
                   "CREATE TEMP TABLE t(x CHECK (x = 1)); INSERT INTO t SELECT count(*) FROM "
                   "mortise_lock WHERE name >= x'ff'",
                   NULL) == 0;
}

static void test_sweeps(void)
{
    struct client client;
    struct call lock;
    open_with_many(&client, "sweeps");
    unsigned all = list(&client, "", 0);
    unsigned most = sweep(&client);
    CU_ASSERT_TRUE(most < all / 4);
    CU_ASSERT_EQUAL(acquire(&client, &lock, last, 0), MORTISE_OK);
    CU_ASSERT_EQUAL(release(&client, &lock), MORTISE_OK);
    CU_ASSERT_TRUE(is_last_there());
    CU_ASSERT_EQUAL(outside(path,
                            "UPDATE mortise_lock SET version = 5 WHERE name >= x'ff';"
                            "REPLACE INTO mortise_meta VALUES ('swept', x'7a')",
                            NULL),
                    0);
    for (int i = 0; i < TRY_TURNS && is_last_there(); i++)
        sweep(&client);
    CU_ASSERT_FALSE(is_last_there());
    client_close(&client);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"lists", test_lists},
        {"sweeps", test_sweeps},
        CU_TEST_INFO_NULL,
    };
    return host_run("sqlite many", tests);
}
