/* test_mysql_replica.c - the MySQL driver, its server's binary log, and a replica of it. */
#define SERVER_SETTINGS "replica=yes\n"
#include "mysql_server.h"

/* ---- the binary log ----------------------------------------------------------------------------- */

static bool replica_has_all(void *argument)
{
    char position[64];
    (void)argument;
    snprintf(position, sizeof position, "%s", ask("SELECT @@gtid_binlog_pos"));
    return strcmp(position, ask_of("only=2", "SELECT @@gtid_slave_pos")) == 0;
}

/* Whether the replica shows that somebody holds the name: "1" or "0". */
static const char *replica_holds(const char *name)
{
    char sql[200];
    CU_ASSERT(test_poll(replica_has_all, NULL, PATIENCE_MS));
    snprintf(sql, sizeof sql,
             "SELECT count(*) FROM mortise_lock WHERE name = '%.40s' AND grants IS NOT NULL", name);
    return ask_of("only=2", sql);
}

static void log_as(const char *format)
{
    char sql[100];
    snprintf(sql, sizeof sql, "SET GLOBAL binlog_format = '%.20s'; SELECT 'set'", format);
    CU_ASSERT_STRING_EQUAL(ask(sql), "set");
}

/* What is written comes to the replica, which is read-only. */
static void test_row_log(void)
{
    static const char *const formats[] = {"ROW", "MIXED"};
    for (size_t i = 0; i < 2; i++) {
        log_as(formats[i]);
        mortise_client *client = open_client("", "");
        mortise_lease *lease = take(client, "logged", HOLD_MS);
        CU_ASSERT_STRING_EQUAL(replica_holds("logged"), "1");
        give(lease);
        CU_ASSERT_STRING_EQUAL(replica_holds("logged"), "0");
        mortise_close(client, NULL);
    }
}

/* By statement it would not: a session that logs so is refused. One that was made before logs as before, and the next one of
 * that client is refused, too. */
static void test_statement_log(void)
{
    mortise_client *client = open_client("", ""), *other = open_client("", "durable = no");
    mortise_lease *lease = take(client, "before", HOLD_MS);
    log_as("STATEMENT");
    CU_ASSERT_EQUAL(try_for(other, "logged", 0), MORTISE_CONFIG);
    says("binlog_format");
    give(take(client, "logged", HOLD_MS));
    CU_ASSERT_STRING_EQUAL(replica_holds("before"), "1");
    CU_ASSERT_STRING_EQUAL(ask("KILL USER mortise; SELECT 'killed'"), "killed");
    CU_ASSERT_EQUAL(try_for(client, "logged", 0), MORTISE_CONFIG);
    says("binlog_format");
    log_as("MIXED");
    CU_ASSERT_EQUAL(try_for(other, "logged", PATIENCE_MS), MORTISE_OK);
    CU_ASSERT_EQUAL(try_for(other, "before", 0), MORTISE_BUSY);
    give(lease);
    CU_ASSERT_EQUAL(try_for(other, "before", PATIENCE_MS), MORTISE_OK);
    mortise_close(client, NULL);
    mortise_close(other, NULL);
}

static void test_durable(void)
{
    static const char *const sets[][2] = {{"innodb_flush_log_at_trx_commit = 2", "innodb_flush"},
                                          {"sync_binlog = 0", "sync_binlog = 0"}};
    char host[64], told[400], sql[200];
    snprintf(host, sizeof host, "127.0.0.1:%s", port);
    for (size_t i = 0; i < 2; i++) {
        snprintf(sql, sizeof sql, "SET GLOBAL %s", sets[i][0]);
        ask(sql);
        CU_ASSERT_EQUAL(reach(host, "", told, sizeof told), MORTISE_CONFIG);
        says(sets[i][1]);
        CU_ASSERT_EQUAL(reach(host, "durable = no", told, sizeof told), MORTISE_OK);
        CU_ASSERT_PTR_NOT_NULL(strstr(told, "not durable"));
        ask("SET GLOBAL innodb_flush_log_at_trx_commit = 1; SET GLOBAL sync_binlog = 1");
    }
    mortise_client *client = NULL;
    CU_ASSERT_EQUAL(open_where(host, "require = durable", "durable = no", &client), MORTISE_CONFIG);
    mortise_close(client, NULL);
}

/* ---- replicas ---------------------------------------------------------------------------------- */

static void test_replica(void)
{
    char host[64], hosts[128], told[400];
    snprintf(host, sizeof host, "127.0.0.1:%s", replica_port);
    CU_ASSERT_EQUAL(reach(host, "", told, sizeof told), MORTISE_UNREACHABLE);
    says("read-only");
    CU_ASSERT_EQUAL(reach(host, "user = root", told, sizeof told), MORTISE_UNREACHABLE);
    says("read-only");
    snprintf(hosts, sizeof hosts, "127.0.0.1:%s, 127.0.0.1:%s", replica_port, port);
    mortise_client *client = open_at(hosts, "", "");
    CU_ASSERT_EQUAL(try_for(client, "replica", PATIENCE_MS), MORTISE_OK);
    mortise_close(client, NULL);
}

/* Both servers accept writes, and the second one receives those of the first. A connection to the first breaks, whose session
 * goes on, and acquires the lock later, for nobody. The driver, which is at the second server by then, cannot look for that
 * session, so it does not believe a release, and the lock is free long before the ttl is over. The trigger is not replicated. */
static void test_session_elsewhere(void)
{
    static const char busy[] = "SELECT count(*) " SESSIONS " AND command = 'Query'";
    char hosts[128], second[64];
    ask_of("only=2", "SET GLOBAL read_only = 0");
    snprintf(second, sizeof second, "127.0.0.1:%s", replica_port);
    snprintf(hosts, sizeof hosts, "127.0.0.1:%d, %s", proxy.port, second);
    mortise_client *client =
                       open_at(hosts, "ttl = 600s\nclose_timeout = 10ms", "command_timeout = 600s"),
                   *other = open_at(second, "", "");
    give(take(client, "elsewhere", HOLD_MS));
    CU_ASSERT_STRING_EQUAL(
        ask("SET sql_log_bin = 0;; CREATE DEFINER = mortise@'%' TRIGGER gate BEFORE UPDATE ON "
            "mortise_lock FOR EACH ROW BEGIN WHILE OLD.name = 'elsewhere' AND "
            "@@global.max_error_count = 77 DO DO SLEEP"
            "(0.02); END WHILE; END;; SET GLOBAL max_error_count = 77;; SELECT 'armed'"),
        "armed");
    give_up_when(client, "elsewhere", busy, "1");
    CU_ASSERT(test_proxy_say(&proxy, "refuse"));
    give(take(client, "here", HOLD_MS)); /* behind the release */
    CU_ASSERT_STRING_EQUAL(ask(busy), "1");
    CU_ASSERT_STRING_EQUAL(ask("SET GLOBAL max_error_count = DEFAULT; SELECT 'open'"), "open");
    CU_ASSERT(soon(busy, "0"));
    CU_ASSERT(test_poll(replica_has_all, NULL, PATIENCE_MS));
    CU_ASSERT_EQUAL(try_for(other, "elsewhere", PATIENCE_MS), MORTISE_OK);
    CU_ASSERT(test_proxy_say(&proxy, "pass"));
    ask("SET sql_log_bin = 0; DROP TRIGGER gate");
    ask_of("only=2", "SET GLOBAL read_only = 1");
    mortise_close(client, NULL);
    mortise_close(other, NULL);
}

/* What it reads, as soon as that is possible, or "-"; a buffer of this function's. */
static const char *record_of(mortise_client *client, const char *name)
{
    static char text[16];
    mortise_status status;
    uint64_t version = 0;
    size_t size;
    do {
        size = sizeof text - 1;
        status = mortise_record_read(client, name, text, &size, &version, &detail);
    } while (status == MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL_FATAL(status, MORTISE_OK);
    text[size] = '\0';
    return version > 0 ? text : "-";
}

static bool take_token(const mortise_info *info, void *user_data)
{
    *(uint64_t *)user_data = info->token;
    return true;
}

/* The token of the one name that begins so and is held; 0: none is. As soon as that is possible. */
static uint64_t listed(mortise_client *client, const char *prefix)
{
    mortise_status status;
    uint64_t token = 0;
    do
        status = mortise_list(client, prefix, take_token, &token, &detail);
    while (status == MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL_FATAL(status, MORTISE_OK);
    return token;
}

/* Whether that server answers, as soon as one does. */
static bool answers_at(mortise_client *client, const char *port_there)
{
    char told[400], where[64];
    mortise_status status;
    do
        status = mortise_ping(client, told, sizeof told, &detail);
    while (status == MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL_FATAL(status, MORTISE_OK);
    snprintf(where, sizeof where, "127.0.0.1:%s,", port_there);
    return strstr(told, where) != NULL;
}

/* A lease goes on over a failover: the primary becomes read-only, the replica is promoted. Of the clients all but the first
 * have all rights, so the old primary would let them write. What is not there is not believed of it either, nor what is:
 * of the last three, each only reads a record, only lists, and only asks whether the server answers. */
static void test_failover(void)
{
    char hosts[128];
    snprintf(hosts, sizeof hosts, "127.0.0.1:%s, 127.0.0.1:%s", port, replica_port);
    mortise_client *client = open_at(hosts, "renew_every = 100ms", ""),
                   *root = open_at(hosts, "renew_every = 100ms", "user = root"),
                   *reader = open_at(hosts, "", "user = root"),
                   *lister = open_at(hosts, "", "user = root"),
                   *pinger = open_at(hosts, "", "user = root");
    mortise_lease *lease = take(client, "failover", HOLD_MS),
                  *other = take(root, "rooted", HOLD_MS);
    uint64_t token = mortise_token(lease);
    CU_ASSERT_STRING_EQUAL(record_of(reader, "late"), "-");
    CU_ASSERT_EQUAL(listed(lister, "failover"), token);
    CU_ASSERT(answers_at(pinger, port));
    ask("SET GLOBAL read_only = 1");
    CU_ASSERT(test_poll(replica_has_all, NULL, PATIENCE_MS));
    ask_of("only=2", "STOP SLAVE; SET GLOBAL read_only = 0");
    mortise_client *writer = open_at(hosts, "", "");
    uint64_t version = 0;
    CU_ASSERT_EQUAL(mortise_record_write(writer, "late", "new", 3, &version, &detail), MORTISE_OK);
    CU_ASSERT_STRING_EQUAL(record_of(reader, "late"), "new");
    mortise_close(writer, NULL);
    mortise_close(reader, NULL);
    for (int i = 0; i < 2; i++) {
        mortise_client *which = i == 0 ? client : root;
        CU_ASSERT(wait_renewals(which, renewals_of(which) + 3));
    }
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_state(other), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(try_for(root, "failover", 0), MORTISE_BUSY);
    give(lease);
    give(other);
    lease = take(root, "failover", HOLD_MS);
    CU_ASSERT(mortise_token(lease) > token);
    CU_ASSERT_EQUAL(listed(lister, "failover"), mortise_token(lease));
    CU_ASSERT(answers_at(pinger, replica_port));
    give(lease);
    CU_ASSERT_STRING_EQUAL(
        ask_of("only=2", "SELECT count(*) FROM mortise_lock WHERE grants IS NOT NULL"), "0");
    mortise_close(client, NULL);
    mortise_close(root, NULL);
    mortise_close(lister, NULL);
    mortise_close(pinger, NULL);
}

int main(int argc, char **argv)
{
    CU_TestInfo tests[] = {
        {"a log by rows", test_row_log},
        {"a log by statement", test_statement_log},
        {"a server that is not durable", test_durable},
        {"a read-only replica", test_replica},
        {"a session that lives on at another server", test_session_elsewhere},
        {"failover to a replica", test_failover},
        CU_TEST_INFO_NULL,
    };
    return server_run(tests, argc, argv);
}
