/* test_postgres_sweep.c - many rows: those that are free for long are deleted by the clients of a PostgreSQL server, by one for
 * all, and lists read no others. On a private server. */
#define SERVER_SETTINGS ""
#include "postgres_server.h"

#define ROW_COLUMNS "name, version, acquired_at, expires_at"
#define ROW_OLD "1, '-infinity', '-infinity'"
#define ROW_HELD "1, now(), now() + interval '1 h'"
#define LAST_NAME "'\\xff00'"
#define META_KEY "key"
#define FORGET_SWEEP                                                                               \
    "INSERT INTO mortise_meta VALUES ('swept', '0') "                                              \
    "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
#define NOTE_BEFORE                                                                                \
    "INSERT INTO mortise_meta VALUES ('sweep', encode('before', 'hex')) "                          \
    "ON CONFLICT (key) DO UPDATE SET value = excluded.value"

/* The server sleeps before it does that to such a row. */
static void stop(const char *event, const char *condition)
{
    char sql[1024];
    snprintf(
        sql, sizeof sql,
        "CREATE TABLE stops AS SELECT 1 AS i; GRANT ALL ON stops TO PUBLIC; "
        "CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN WHILE EXISTS (SELECT FROM public.stops) LOOP PERFORM pg_sleep(0.01); END LOOP; "
        "IF TG_OP = ''DELETE'' THEN RETURN OLD; END IF; RETURN NEW; END'; "
        "CREATE TRIGGER stop BEFORE %s FOR EACH ROW WHEN (%s) EXECUTE FUNCTION stop(); "
        "SELECT 'armed'",
        event, condition);
    CU_ASSERT_STRING_EQUAL(ask(sql), "armed");
}

static void stop_turn(void)
{
    stop("UPDATE ON mortise_meta", "OLD.key = 'swept' AND NEW.value <> '0'");
}

static void let_turn_go(void)
{
    ask("DELETE FROM stops");
}

static void end_stops(void)
{
    CU_ASSERT_STRING_EQUAL(ask("SET client_min_messages = warning; DROP FUNCTION stop CASCADE; "
                               "DROP TABLE stops; SELECT 'gone'"),
                           "gone");
}

#include "sweep_tests.h"

/* A transaction has other statements around it, and nothing is prepared. */
static void test_swept_behind_a_pooler(void)
{
    make_tables();
    sweeps_for_hours(open_client("", PATIENT "pooler = yes\n"));
}

/* The largest number behind these words in the server's log. */
static long most(const char *words)
{
    char path[300];
    snprintf(path, sizeof path, "%s/1.log", folder);
    char *log = test_file_read(path);
    long max = 0;
    for (const char *at = log; at != NULL && (at = strstr(at, words)) != NULL;) {
        at += strlen(words);
        long rows = strtol(at, NULL, 10);
        max = rows > max ? rows : max;
    }
    free(log);
    return max;
}

static void add_young_rows(int count)
{
    char sql[400];
    snprintf(sql, sizeof sql,
             "INSERT INTO mortise_lock(" ROW_COLUMNS ") SELECT ('young-' || i)::bytea, "
             "(extract(epoch FROM now()) * 1000000)::bigint, '-infinity', '-infinity' "
             "FROM generate_series(1, %d) AS i ON CONFLICT DO NOTHING; SELECT 'added'",
             count);
    CU_ASSERT_STRING_EQUAL(ask(sql), "added");
}

/* Behind many rows that are not old, and before them more than are deleted at once. No statement reads the whole table, though
 * the table had so many rows when the server made its plan, and as far as the server has been told it still has. */
static void sweeps_stretches(const char *more, int rows_before)
{
    bool explained = strncmp(ask("LOAD 'auto_explain'"), "failed", 6) != 0; /* is it installed? */
    make_tables();
    ask("ALTER TABLE mortise_lock SET (autovacuum_enabled = off)");
    ask("INSERT INTO mortise_lock(" ROW_COLUMNS ") VALUES ('old', " ROW_OLD ")");
    add_young_rows(rows_before);
    ask("ANALYZE mortise_lock");
    if (explained)
        ask("ALTER ROLE mortise SET session_preload_libraries = 'auto_explain'; "
            "ALTER ROLE mortise SET auto_explain.log_min_duration = 0; "
            "ALTER ROLE mortise SET auto_explain.log_timing = off; "
            "ALTER ROLE mortise SET auto_explain.log_analyze = on");
    mortise_client *client = open_client("", more);
    CU_ASSERT_EQUAL(try_for(client, "sweeper", PATIENCE_MS), MORTISE_OK);
    ask("ALTER ROLE mortise RESET ALL");
    sweeps(client, UNSWEPT, "0");
    add_young_rows(20000);
    ask("INSERT INTO mortise_lock(" ROW_COLUMNS ") "
        "SELECT ('old-' || i)::bytea, " ROW_OLD " FROM generate_series(1, 1200) AS i");
    ask("INSERT INTO mortise_lock(" ROW_COLUMNS ") VALUES (" LAST_NAME ", " ROW_OLD ")");
    sweeps(client, UNSWEPT, "0");
    CU_ASSERT(soon(NOTED, "0"));
    CU_ASSERT_STRING_EQUAL(ask("SELECT count(*) FROM mortise_lock WHERE version > 1 "
                               "AND name < 'z' AND name > 'young-'"),
                           "20000");
    long found =
        explained ? most("(actual rows=") : 2000; /* of the index, also those that are gone */
    CU_ASSERT(found >= 2000 && found < 5000);
    CU_ASSERT(most("Rows Removed by Filter: ") < 5000);
    mortise_close(client, NULL);
    ask("DELETE FROM mortise_lock WHERE name > 'young-' AND name < 'z'; "
        "ALTER TABLE mortise_lock RESET (autovacuum_enabled)");
}

static void test_stretches(void)
{
    sweeps_stretches(PATIENT, 0);
}

static void test_stretches_behind_a_pooler(void)
{
    sweeps_stretches(PATIENT "pooler = yes\n", 0);
}

static void test_stretches_of_a_grown_table(void)
{
    make_tables();
    ask("TRUNCATE mortise_lock"); /* no pages that were left empty */
    sweeps_stretches(PATIENT, 4000);
}

/* Who asks for a row that is being deleted waits for that, and gets a new one. */
static void test_taken(void)
{
    struct waiter waiter;
    make_tables();
    ask("INSERT INTO mortise_lock(" ROW_COLUMNS ") VALUES ('taken', " ROW_OLD ")");
    mortise_client *client = open_client("", PATIENT), *other = open_client("", "");
    CU_ASSERT_EQUAL(try_for(client, "sweeper", PATIENCE_MS), MORTISE_OK);
    stop("DELETE ON mortise_lock", "OLD.name = 'taken'");
    pass_hour(client);
    CU_ASSERT(soon("SELECT count(*) " SLEEPERS, "1"));
    waiter_start(&waiter, other, "taken");
    CU_ASSERT(soon("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                   "AND application_name = 'mortise'",
                   "1"));
    ask("DELETE FROM stops");
    CU_ASSERT_EQUAL(waiter_end(&waiter), MORTISE_OK);
    CU_ASSERT_STRING_EQUAL(
        ask("SELECT count(*) FROM mortise_lock WHERE name = 'taken' AND version > 1"), "1");
    end_stops();
    mortise_close(client, NULL);
    mortise_close(other, NULL);
}

/* A row that another session keeps locked is left for the next time; if that session takes it, it stays. */
static void test_locked(void)
{
    struct test_process session;
    make_tables();
    ask("INSERT INTO mortise_lock(" ROW_COLUMNS ") VALUES ('locked', " ROW_OLD "), ('old', " ROW_OLD
        ")");
    mortise_client *client = open_client("", PATIENT);
    CU_ASSERT_EQUAL(try_for(client, "sweeper", PATIENCE_MS), MORTISE_OK);
    CU_ASSERT_FATAL(session_begin(&session, "UPDATE mortise_lock SET expires_at = now() + "
                                            "interval '1 h' WHERE name = 'locked'"));
    sweeps(client, UNSWEPT, "1");
    session_end(&session);
    ask("INSERT INTO mortise_lock(" ROW_COLUMNS ") VALUES ('old', " ROW_OLD ")");
    sweeps(client, UNSWEPT, "1");
    CU_ASSERT_STRING_EQUAL(ask("SELECT count(*) FROM mortise_lock WHERE name = 'locked'"), "1");
    mortise_close(client, NULL);
    ask("DELETE FROM mortise_lock WHERE name = 'locked'");
}

/* ---- lists ---------------------------------------------------------------------------------------- */

#define ENTRIES "pg_stat_get_tuples_returned('mortise_lock_pkey'::regclass)"
#define SESSIONS "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'mortise'"

static bool count_one(const mortise_info *info, void *user_data)
{
    (void)info;
    ++*(int *)user_data;
    return true;
}

static int list(mortise_client *client, const char *prefix)
{
    int count = 0;
    CU_ASSERT_EQUAL(mortise_list(client, prefix, count_one, &count, &detail), MORTISE_OK);
    return count;
}

/* A list reads the names that it is about, and none behind them: those are read once, by the list of all. The last name of all is
 * no longer than a name may be. */
static void test_lists(void)
{
    enum { ROWS = 5000 };
    char sql[200], last[513] = "";
    memset(last, 0xff, sizeof last - 1);
    make_tables();
    add_young_rows(ROWS);
    mortise_client *holder = open_client("", ""), *client = open_client("", "");
    mortise_lease *leases[] = {take(holder, "before", HOLD_MS), take(holder, last, HOLD_MS)};
    CU_ASSERT(soon(SESSIONS, "1"));
    long before = strtol(ask("SELECT " ENTRIES), NULL, 10);
    for (int i = 0; i < 3; i++)
        CU_ASSERT_EQUAL(list(client, "be"), 1);
    CU_ASSERT_EQUAL(list(client, ""), 3); /* and `busy` */
    CU_ASSERT_EQUAL(list(client, "\xff"), 1);
    mortise_close(client, NULL);
    CU_ASSERT(soon(SESSIONS, "1")); /* it has said what it has read */
    snprintf(sql, sizeof sql, "SELECT " ENTRIES " >= %ld", before + ROWS);
    CU_ASSERT(soon(sql, "t"));
    CU_ASSERT(strtol(ask("SELECT " ENTRIES), NULL, 10) - before < 2 * ROWS);
    for (size_t i = 0; i < 2; i++)
        give(leases[i]);
    mortise_close(holder, NULL);
}

int main(int argc, char **argv)
{
    CU_TestInfo tests[] = {
        {"rows that are free for long", test_swept},
        {"a client that lives for long", test_swept_for_hours},
        {"the same behind a pooler", test_swept_behind_a_pooler},
        {"many rows", test_stretches},
        {"many rows behind a pooler", test_stretches_behind_a_pooler},
        {"many rows more", test_stretches_of_a_grown_table},
        {"a sweep that was given up", test_swept_on},
        {"a close in a sweep", test_closed},
        {"a row that is taken meanwhile", test_taken},
        {"a row that is locked", test_locked},
        {"lists among many rows", test_lists},
        CU_TEST_INFO_NULL,
    };
    return server_run(tests, argc, argv);
}
