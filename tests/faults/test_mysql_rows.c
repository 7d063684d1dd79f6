/* test_mysql_rows.c - rows of the lock table that other sessions lock, delete or leave, transactions that the server undoes,
 * and its clock. test_mysql.c has the connections. */
#define SERVER_SETTINGS "faketime=yes\n"
#include "mysql_server.h"

#include "clock_tests.h"

/* ---- rows that are locked ---------------------------------------------------------------------- */

static bool is_locked(void *client)
{
    return try_for(client, "row", 0) == MORTISE_UNREACHABLE &&
           strstr(detail.message, "keeps the row locked") != NULL;
}

/* The call returns in time and says why; others go on. When the row is free again, so is the name. */
static void test_row_locked(void)
{
    struct test_process session;
    mortise_client *client = open_client("unreachable_timeout = 3s", "lock_timeout = 100ms");
    give(take(client, "row", 0));
    CU_ASSERT_FATAL(
        session_begin(&session, "SELECT 1 FROM mortise_lock WHERE name = 'row' FOR UPDATE"));
    CU_ASSERT(test_poll(is_locked, client, PATIENCE_MS));
    for (int i = 0; i < 5; i++) {
        CU_ASSERT_EQUAL(try_for(client, "beside", PATIENCE_MS), MORTISE_OK);
        CU_ASSERT(is_locked(client)); /* not for a second in the server, this time */
    }
    session_end(&session);
    CU_ASSERT_EQUAL(try_for(client, "row", PATIENCE_MS), MORTISE_OK);
    mortise_close(client, NULL);
}

/* Five failures of a kind are overcome; more are reported. */
static void test_deadlocks(void)
{
    static const struct {
        const char *action, *words;
    } faults[] = {
        {"SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'x'", "deadlocks"},
        {"SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1020, MESSAGE_TEXT = 'x'", "serialization"},
    };
    mortise_client *client = open_client("unreachable_timeout = 3s", "");
    give(take(client, "deadlock", 0));
    for (size_t i = 0; i < 2; i++) {
        row_fault("deadlock", 5, faults[i].action);
        CU_ASSERT_EQUAL(try_for(client, "deadlock", 0), MORTISE_OK);
        row_fault_end();
        row_fault("deadlock", 1000000, faults[i].action);
        CU_ASSERT_EQUAL(try_for(client, "deadlock", 0), MORTISE_UNREACHABLE);
        says(faults[i].words);
        row_fault_end();
    }
    row_fault("deadlock", 1, "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'x'");
    CU_ASSERT_EQUAL(try_for(client, "deadlock", 0), MORTISE_BACKEND);
    says("the server's disk is full");
    row_fault_end();
    mortise_close(client, NULL);
}

/* What a server says that goes away, or is short of something, and a member of Group Replication: it is left, or asked again. */
static void test_going_away(void)
{
    static const int numbers[] = {1180, 3032, 3100, 3101, 3781, 3782, 3783, 1037, 1038,
                                  1206, 1637, 1042, 1043, 1135, 1158, 1159, 1160, 1161};
    char action[100];
    mortise_client *client = open_client("", "");
    give(take(client, "errors", 0));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        snprintf(action, sizeof action,
                 "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = %d, MESSAGE_TEXT = 'x'", numbers[i]);
        row_fault("errors", 1, action);
        CU_ASSERT_EQUAL(try_for(client, "errors", PATIENCE_MS), MORTISE_OK);
        row_fault_end();
    }
    mortise_close(client, NULL);
}

/* The server is short of something: a release goes on until it is done, and a wait ends with its limit. */
static void test_short(void)
{
    static const char action[] =
        "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1637, MESSAGE_TEXT = 'x'";
    mortise_client *client = open_client("", "");
    mortise_lease *lease = take(client, "short", HOLD_MS);
    row_fault("short", 3, action);
    give(lease);
    CU_ASSERT_STRING_EQUAL(
        ask("SELECT count(*) FROM mortise_lock WHERE name = 'short' AND grants IS NOT NULL"), "0");
    row_fault("short", 1000000, action);
    int64_t from_ms = test_now_ms();
    mortise_status status = try_for(client, "short", 500);
    /* TIMEDOUT: no answer came in that time */
    CU_ASSERT(status == MORTISE_UNREACHABLE || status == MORTISE_INDETERMINATE ||
              status == MORTISE_TIMEDOUT);
    CU_ASSERT(test_now_ms() - from_ms < PATIENCE_MS); /* not unreachable_timeout */
    row_fault_end();
    mortise_close(client, NULL);
}

/* One of a group fails; the others are done. */
static void test_group(void)
{
    enum { CALLERS = 12 };
    static struct caller callers[CALLERS];
    static char names[CALLERS][16];
    mortise_client *client = open_client("", "");
    for (int i = 0; i < CALLERS; i++) {
        snprintf(names[i], sizeof names[i], "group-%d", i);
        give(take(client, names[i], 0));
    }
    row_fault("group-5", 3, "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'x'");
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < CALLERS; i++)
            call_begin(&callers[i], client, names[i], NULL);
        for (int i = 0; i < CALLERS; i++)
            CU_ASSERT_EQUAL(call_end(&callers[i]), MORTISE_OK);
    }
    row_fault_end();
    CU_ASSERT_STRING_EQUAL(ask("SELECT count(*) FROM mortise_lock WHERE name LIKE 'group-%' "
                               "AND grants IS NOT NULL"),
                           "0");
    mortise_close(client, NULL);
}

/* ---- clocks, rows ------------------------------------------------------------------------------ */

static void test_expired_there(void)
{
    is_expired_by("UPDATE mortise_lock SET expires_at = 1 WHERE name = 'expired'");
}

/* Another client makes the tables just now, or was stopped while it did. */
static void test_half_made(void)
{
    static const char *const steps[] = {
        "CREATE DATABASE half", "DROP TABLE half.mortise_record, half.mortise_meta",
        "DROP TABLE half.mortise_meta", "DELETE FROM half.mortise_meta"};
    char host[64];
    snprintf(host, sizeof host, "127.0.0.1:%s", port);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        ask(steps[i]);
        mortise_client *client = open_at(host, "", "user = root\ndatabase = half");
        CU_ASSERT_EQUAL(try_for(client, "half", 0), MORTISE_OK);
        CU_ASSERT_STRING_EQUAL(ask("SELECT value FROM half.mortise_meta WHERE name = 'layout'"),
                               "1");
        mortise_close(client, NULL);
    }
    ask("DROP DATABASE half");
}

/* ---- main -------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    CU_TestInfo tests[] = {
        {"a row that is locked", test_row_locked},
        {"deadlocks, no disk left", test_deadlocks},
        {"errors of a server that goes away", test_going_away},
        {"a server that is short of something", test_short},
        {"one of a group fails", test_group},
        {"the server's clock is set", test_clock},
        {"expired in the database", test_expired_there},
        {"tables that are half made", test_half_made},
        CU_TEST_INFO_NULL,
    };
    return server_run(tests, argc, argv);
}
