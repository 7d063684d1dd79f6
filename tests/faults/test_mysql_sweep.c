/* test_mysql_sweep.c - rows that are free for long are deleted by the clients of a MariaDB server, by one for all. On a private
 * server. */
#define SERVER_SETTINGS ""
#include "mysql_server.h"

#define ROW_COLUMNS "name, version, acquired_at, expires_at, revision"
#define ROW_OLD "1, 0, 0, 0"
#define ROW_HELD "1, 1, 9000000000000000, 1"
#define LAST_NAME "0xff00"
#define META_KEY "name"
#define FORGET_SWEEP "UPDATE mortise_meta SET value = '0' WHERE name = 'swept'"
#define NOTE_BEFORE "REPLACE INTO mortise_meta(name, value) VALUES ('sweep', 'before')"

/* The first time, the server sleeps before it does that to such a row. */
static void stop_first(const char *event, const char *condition)
{
    char sql[800];
    snprintf(sql, sizeof sql,
             "CREATE OR REPLACE SEQUENCE faults;; "
             "CREATE OR REPLACE DEFINER = mortise@'%%' TRIGGER fault BEFORE %s FOR EACH ROW BEGIN "
             "IF %s AND NEXTVAL(faults) <= 1 THEN " SLEEPS "; END IF; END;; SELECT 'armed'",
             event, condition);
    CU_ASSERT_STRING_EQUAL(ask(sql), "armed");
}

static void stop_turn(void)
{
    stop_first("UPDATE ON mortise_meta", "OLD.name = 'swept' AND NEW.value <> '0'");
}

static void let_turn_go(void)
{
    kill_sleepers("QUERY"); /* which is repeated */
}

static void end_stops(void)
{
    row_fault_end();
}

#include "sweep_tests.h"

/* Behind many rows that are not old, and between them more than are deleted at once. No statement reads the whole table. */
static void test_stretches(void)
{
    static const char bounded[] =
        "SELECT MAX(rows_examined) BETWEEN 1000 AND 2500 FROM mysql.slow_log "
        "WHERE user_host LIKE 'mortise[%'";
    make_tables();
    ask("INSERT INTO mortise_lock(" ROW_COLUMNS ") "
        "SELECT CONCAT('young-', seq), UNIX_TIMESTAMP() * 1000000, 0, 0, 0 FROM seq_1_to_20000");
    ask("INSERT INTO mortise_lock(" ROW_COLUMNS ") "
        "SELECT CONCAT('young-1-', seq), " ROW_OLD " FROM seq_1_to_600");
    ask("INSERT INTO mortise_lock(" ROW_COLUMNS ") VALUES (" LAST_NAME ", " ROW_OLD ")");
    ask("SET GLOBAL log_output = 'TABLE'; SET GLOBAL log_slow_filter = ''; "
        "SET GLOBAL long_query_time = 0; SET GLOBAL slow_query_log = 1");
    mortise_client *client = open_client("", PATIENT);
    CU_ASSERT_EQUAL(try_for(client, "sweeper", PATIENCE_MS), MORTISE_OK);
    sweeps(client, UNSWEPT, "0");
    CU_ASSERT(soon(NOTED, "0"));
    CU_ASSERT_STRING_EQUAL(ask(bounded), "1");
    ask("SET GLOBAL slow_query_log = 0; SET GLOBAL long_query_time = DEFAULT; "
        "SET GLOBAL log_slow_filter = DEFAULT; SET GLOBAL log_output = DEFAULT");
    CU_ASSERT_STRING_EQUAL(ask("SELECT count(*) FROM mortise_lock WHERE name LIKE 'young-%'"),
                           "20000");
    mortise_close(client, NULL);
    ask("DELETE FROM mortise_lock WHERE name LIKE 'young-%'");
}

/* A row that is taken after it was found old, and before it is deleted, stays. */
static void test_taken(void)
{
    make_tables();
    ask("INSERT INTO mortise_lock(" ROW_COLUMNS ") VALUES ('old', " ROW_OLD "), ('taken', " ROW_OLD
        ")");
    mortise_client *client = open_client("", PATIENT), *other = open_client("", "");
    CU_ASSERT_EQUAL(try_for(client, "sweeper", PATIENCE_MS), MORTISE_OK);
    stop_first("DELETE ON mortise_lock", "OLD.name = 'old'");
    pass_hour(client);
    CU_ASSERT(soon("SELECT count(*) " SLEEPERS, "1"));
    mortise_lease *lease = take(other, "taken", HOLD_MS);
    kill_sleepers("QUERY");
    CU_ASSERT(soon(UNSWEPT, "0"));
    CU_ASSERT_STRING_EQUAL(ask("SELECT count(*) FROM mortise_lock WHERE name = 'taken'"), "1");
    give(lease);
    row_fault_end();
    mortise_close(client, NULL);
    mortise_close(other, NULL);
}

/* A row that another session keeps locked is left for the next time, as those that were to be deleted with it. The sweep goes
 * on behind it. */
static void test_locked(void)
{
    struct test_process session;
    make_tables();
    ask("INSERT INTO mortise_lock(" ROW_COLUMNS ") VALUES ('locked', " ROW_OLD "), ('z', " ROW_OLD
        ")");
    ask("INSERT INTO mortise_lock(" ROW_COLUMNS ") "
        "SELECT CONCAT('young-', seq), UNIX_TIMESTAMP() * 1000000, 0, 0, 0 FROM seq_1_to_2500");
    mortise_client *client = open_client("", PATIENT "lock_timeout = 100ms\n");
    CU_ASSERT_EQUAL(try_for(client, "sweeper", PATIENCE_MS), MORTISE_OK);
    CU_ASSERT_FATAL(
        session_begin(&session, "SELECT 1 FROM mortise_lock WHERE name = 'locked' FOR UPDATE"));
    sweeps(client, UNSWEPT " AND name = 'z'", "0");
    CU_ASSERT_STRING_EQUAL(ask(UNSWEPT), "1");
    session_end(&session);
    sweeps(client, UNSWEPT, "0");
    mortise_close(client, NULL);
    ask("DELETE FROM mortise_lock WHERE name LIKE 'young-%'");
}

/* A user that cannot write how far it got sweeps all the same. */
static void test_swept_without_note(void)
{
    make_tables();
    ask("DELETE FROM mortise_meta WHERE name = 'sweep'; CREATE USER poor@'%'; GRANT SELECT, UPDATE "
        "ON mortise.mortise_meta TO poor@'%'; "
        "GRANT SELECT, INSERT, UPDATE, DELETE ON mortise.mortise_lock TO poor@'%'; "
        "GRANT SELECT ON mortise.mortise_record TO poor@'%'");
    ask("INSERT INTO mortise_lock(" ROW_COLUMNS ") "
        "SELECT CONCAT('old-', seq), " ROW_OLD " FROM seq_1_to_1500");
    mortise_client *client = open_client("", PATIENT "user = poor\n");
    CU_ASSERT_EQUAL(try_for(client, "sweeper", PATIENCE_MS), MORTISE_OK);
    sweeps(client, UNSWEPT, "0");
    CU_ASSERT_STRING_EQUAL(ask("SELECT count(*) FROM mortise_meta WHERE name = 'sweep'"), "0");
    mortise_close(client, NULL);
    ask("DROP USER poor@'%'");
}

int main(int argc, char **argv)
{
    CU_TestInfo tests[] = {
        {"rows that are free for long", test_swept},
        {"a client that lives for long", test_swept_for_hours},
        {"many rows", test_stretches},
        {"a sweep that was given up", test_swept_on},
        {"a close in a sweep", test_closed},
        {"a row that is taken meanwhile", test_taken},
        {"a row that is locked", test_locked},
        {"a sweep without the right to note it", test_swept_without_note},
        CU_TEST_INFO_NULL,
    };
    return server_run(tests, argc, argv);
}
