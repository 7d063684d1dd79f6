/* test_postgres_ways.c - how a client connects to a PostgreSQL server: password and service files, TLS, poolers, and
 * which connections are opened when. On a private server with a standby and a pooler, behind the fault proxy. */
#define SERVER_SETTINGS "standby=yes\npooler=yes\n"
#include "postgres_server.h"

/* ---- settings that libpq knows ------------------------------------------------------------------- */

static bool shell(const char *command)
{
    struct test_process process;
    const char *const argv[] = {"/bin/sh", "-c", command, NULL};
    return test_spawn(&process, argv) && test_reap(&process, PATIENCE_MS) == 0;
}

/* Before all others. The file keeps its owner. */
static void allow(const char *line)
{
    char command[600];
    snprintf(command, sizeof command,
             "cd '%s/1/data' && { echo '%s'; cat pg_hba.conf; } >'%s/hba' && cat '%s/hba' "
             ">pg_hba.conf",
             folder, line, folder, folder);
    CU_ASSERT_FATAL(shell(command));
    CU_ASSERT_STRING_EQUAL(ask("SELECT pg_reload_conf()"), "t");
    CU_ASSERT(soon("SELECT count(*) FROM pg_hba_file_rules WHERE error IS NOT NULL", "0"));
}

static mortise_status try_as(const char *conninfo, const char *more)
{
    mortise_client *client = open_as(conninfo, "unreachable_timeout = 1s", more);
    mortise_status status = try_for(client, "way", 0);
    mortise_close(client, NULL);
    return status;
}

static bool is_let_in(const char *conninfo, const char *more)
{
    mortise_client *client = open_as(conninfo, "", more);
    mortise_status status = try_for(client, "way", PATIENCE_MS);
    mortise_close(client, NULL);
    return status == MORTISE_OK;
}

static void have_tables(void)
{
    mortise_client *client = open_client("", "");
    CU_ASSERT_EQUAL_FATAL(try_for(client, "tables", PATIENCE_MS), MORTISE_OK);
    mortise_close(client, NULL);
}

static bool is_refused(void *argument)
{
    return try_as(argument, "") != MORTISE_OK && strstr(detail.message, "password") != NULL;
}

static void test_passwords(void)
{
    char conninfo[200], with_file[600], path[300], text[300];
    have_tables();
    ask("CREATE ROLE keeper LOGIN PASSWORD 'open sesame' IN ROLE mortise");
    allow("host all keeper 127.0.0.1/32 scram-sha-256");
    snprintf(conninfo, sizeof conninfo, "host=127.0.0.1 port=%s dbname=mortise user=keeper", port);
    setenv("PGPASSFILE", "/nonexistent", 1);
    CU_ASSERT(test_poll(is_refused, conninfo, PATIENCE_MS));
    CU_ASSERT_PTR_NULL(strstr(detail.message, "sesame"));
    CU_ASSERT(is_let_in(conninfo, "password = open sesame"));
    CU_ASSERT_NOT_EQUAL(try_as(conninfo, "password = wrong sesame"), MORTISE_OK);
    CU_ASSERT_PTR_NULL(strstr(detail.message, "sesame"));
    snprintf(path, sizeof path, "%s/passwords", folder);
    snprintf(text, sizeof text, "127.0.0.1:%s:mortise:keeper:open sesame\n", port);
    CU_ASSERT_FATAL(test_file_write(path, text));
    snprintf(with_file, sizeof with_file, "%s passfile=%s", conninfo, path);
    CU_ASSERT(is_let_in(with_file, ""));
    setenv("PGPASSFILE", path, 1);
    CU_ASSERT(is_let_in(conninfo, ""));
    unsetenv("PGPASSFILE");
}

static bool is_standby(void *unused)
{
    (void)unused;
    return try_as("service=copies", "") == MORTISE_UNREACHABLE &&
           strstr(detail.message, "standby") != NULL;
}

/* A service file overrides this driver's defaults. */
static void test_services(void)
{
    char path[300], text[700];
    snprintf(path, sizeof path, "%s/services", folder);
    snprintf(text, sizeof text,
             "[locks]\nhost=127.0.0.1\nport=%s\ndbname=mortise\nuser=mortise\n"
             "[copies]\nhost=127.0.0.1,127.0.0.1\nport=%s,%s\ndbname=mortise\nuser=mortise\n"
             "target_session_attrs=standby\n",
             port, port, standby_port);
    CU_ASSERT_FATAL(test_file_write(path, text));
    setenv("PGSERVICEFILE", path, 1);
    CU_ASSERT(is_let_in("service=locks", ""));
    CU_ASSERT(test_poll(is_standby, NULL, PATIENCE_MS));
    unsetenv("PGSERVICEFILE");
}

/* ---- TLS ----------------------------------------------------------------------------------------- */

static bool server_speaks_tls(void)
{
    char command[1500];
    snprintf(command, sizeof command,
             "cd '%s/1/data' && openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "
             "/CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 -keyout tls.key -out tls.crt "
             "2>/dev/null && chmod 600 tls.key && chown --reference=PG_VERSION tls.key tls.crt && "
             "cp tls.crt '%s/tls.crt' && openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "
             "/CN=other -keyout /dev/null -out '%s/other.crt' 2>/dev/null",
             folder, folder, folder);
    if (!shell(command))
        return false;
    ask("ALTER SYSTEM SET ssl_cert_file = 'tls.crt'");
    ask("ALTER SYSTEM SET ssl_key_file = 'tls.key'");
    ask("ALTER SYSTEM SET ssl = on");
    ask("SELECT pg_reload_conf()");
    return soon("SHOW ssl", "on");
}

static bool is_distrusted(void *conninfo)
{
    return try_as(conninfo, "") == MORTISE_UNREACHABLE &&
           strstr(detail.message, "certificate verify failed") != NULL;
}

static void test_tls(void)
{
    char conninfo[600];
    have_tables();
    CU_ASSERT_FATAL(server_speaks_tls());
    ask("CREATE ROLE crypt LOGIN IN ROLE mortise");
    allow("hostnossl all crypt 127.0.0.1/32 reject");
    snprintf(conninfo, sizeof conninfo,
             "host=127.0.0.1 port=%s dbname=mortise user=crypt sslmode=verify-full "
             "sslrootcert=%s/other.crt",
             port, folder);
    CU_ASSERT(test_poll(is_distrusted, conninfo, PATIENCE_MS));
    snprintf(conninfo, sizeof conninfo,
             "host=127.0.0.1 port=%s dbname=mortise user=crypt sslmode=verify-full "
             "sslrootcert=%s/tls.crt",
             port, folder);
    mortise_client *client = open_as(conninfo, "renew_every = 100ms", ""),
                   *other = open_as(conninfo, "", "");
    for (int i = 0; i < 3; i++) { /* the sessions are lost in between */
        struct waiter waiter;
        mortise_lease *lease = take(client, "crypt", HOLD_MS);
        waiter_begin(&waiter, other, "crypt");
        CU_ASSERT_STRING_EQUAL(
            ask("SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) "
                "WHERE usename = 'crypt'"),
            "t");
        give(lease);
        CU_ASSERT_EQUAL(waiter_end(&waiter), MORTISE_OK);
        ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'crypt'");
    }
    CU_ASSERT_EQUAL(try_for(client, "crypt", PATIENCE_MS), MORTISE_OK);
    mortise_close(client, NULL);
    mortise_close(other, NULL);
}

/* ---- poolers --------------------------------------------------------------------------------------- */

static bool is_locked(void *client)
{
    return try_for(client, "session", 0) != MORTISE_OK &&
           strstr(detail.message, "keeps the row locked") != NULL;
}

/* None of the role, be it the pooler's, is connected to the primary. */
#define NOBODY_IS_THERE soon("SELECT count(*) FROM pg_stat_activity WHERE usename = 'mortise'", "0")

/* A setting of a database of the pooler, which closes a connection that it has as soon as nobody uses it. */
static void set_pooler(const char *database, const char *from, const char *to)
{
    char command[700];
    const char *const words[] = {"-p", pooler_port, "-d", "pgbouncer", NULL};
    snprintf(command, sizeof command, "sed -i '/^%s = /s/%s/%s/' '%s/pooler/pgbouncer.ini'",
             database, from, to, folder);
    CU_ASSERT_FATAL(shell(command));
    CU_ASSERT_STRING_EQUAL(ask_as(words, "RELOAD"), "");
    CU_ASSERT_STRING_EQUAL(ask_as(words, "RECONNECT"), "");
}

/* A pooler in session mode works like none: the timeouts are set as without it. */
static void test_session_pooler(void)
{
    struct test_process session;
    char conninfo[200];
    snprintf(conninfo, sizeof conninfo, "host=127.0.0.1 port=%s dbname=session user=mortise",
             pooler_port);
    mortise_client *client = open_as(conninfo, "", "pooler = no\nlock_timeout = 100ms");
    give(take(client, "session", 0));
    CU_ASSERT_FATAL(
        session_begin(&session, "SELECT 1 FROM mortise_lock WHERE name = 'session' FOR UPDATE"));
    CU_ASSERT(test_poll(is_locked, client, PATIENCE_MS));
    session_end(&session);
    CU_ASSERT_EQUAL(try_for(client, "session", PATIENCE_MS), MORTISE_OK);
    mortise_close(client, NULL);
}

/* The connection to such a pooler breaks when a request has been executed, and the next one gets the same session of the server: the
 * client does not end that, which is its own. */
static void test_session_again(void)
{
    struct test_proxy near;
    char conninfo[200], before[200];
    static const char pids[] =
        "SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE application_name = 'again'";
    CU_ASSERT_FATAL(
        test_proxy_start(&near, folder, "127.0.0.1", (int)strtol(pooler_port, NULL, 10)));
    set_pooler("session", "$", " pool_size=1");
    CU_ASSERT(NOBODY_IS_THERE);
    snprintf(conninfo, sizeof conninfo,
             "host=127.0.0.1 port=%d dbname=session user=mortise sslmode=disable "
             "application_name=again",
             near.port);
    mortise_client *client = open_as(conninfo, "", "pooler = no");
    give(take(client, "again", HOLD_MS));
    snprintf(before, sizeof before, "%s", ask(pids));
    CU_ASSERT(strtol(before, NULL, 10) > 0);
    CU_ASSERT(test_proxy_say(&near, "cut-after down 1"));
    give(take(client, "again", HOLD_MS));
    CU_ASSERT_STRING_EQUAL(ask(pids), before);
    mortise_close(client, NULL);
    test_proxy_end(&near);
}

static bool standby_has(void *argument)
{
    (void)argument;
    return strcmp(ask_standby("SELECT count(*) FROM mortise_lock WHERE name = 'led astray' AND "
                              "grants IS NULL"),
                  "1") == 0;
}

/* A standby that does not know of a claim yet, behind the pooler that was before the primary: what it says is not believed, though
 * nothing is written. */
static void test_pooler_led_astray(void)
{
    char conninfo[200];
    mortise_lease *lease = NULL;
    const char *const pooled[] = {"-p", pooler_port, "-U", "mortise", NULL};
    const mortise_options *shared =
        MORTISE_OPTIONS(.wait_ms = PATIENCE_MS, .ttl_ms = HOLD_MS, .mode = MORTISE_SHARED);
    snprintf(conninfo, sizeof conninfo, "host=127.0.0.1 port=%s dbname=mortise user=mortise",
             pooler_port);
    mortise_client *client = open_as(conninfo, "unreachable_timeout = 3s", "");
    CU_ASSERT_EQUAL(try_for(client, "led astray", PATIENCE_MS), MORTISE_OK);
    CU_ASSERT_FATAL(test_poll(standby_has, NULL, PATIENCE_MS));
    CU_ASSERT_STRING_EQUAL(ask_standby("SELECT pg_wal_replay_pause()"), "");
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(client, "led astray", shared, &lease, &detail),
                          MORTISE_OK);
    set_pooler("mortise", port, standby_port);
    CU_ASSERT(NOBODY_IS_THERE);
    CU_ASSERT_STRING_EQUAL(ask_as(pooled, "SELECT pg_is_in_recovery()"), "t");
    mortise_status status = mortise_release(lease, &detail);
    CU_ASSERT(status == MORTISE_UNREACHABLE || status == MORTISE_INDETERMINATE);
    set_pooler("mortise", standby_port, port);
    CU_ASSERT(soon("SELECT grants IS NULL FROM mortise_lock WHERE name = 'led astray'", "t"));
    CU_ASSERT_STRING_EQUAL(ask_standby("SELECT pg_wal_replay_resume()"), "");
    mortise_close(client, NULL);
}

/* ---- the second connection --------------------------------------------------------------------------- */

#define OURS "FROM pg_stat_activity WHERE application_name = 'mortise'"

/* Renewals do not use the first session, which is for all other requests. */
static bool renews_on_second(void)
{
    return soon("SELECT count(*) " OURS " AND query LIKE '%SET expires_at = greatest%' "
                "AND backend_start > (SELECT min(backend_start) " OURS ")",
                "1");
}

/* It exists for renewals, and then a caller waits: it listens too, without a new connection. */
static void test_listen_later(void)
{
    char before[200];
    static const char pids[] = "SELECT string_agg(pid::text, ' ' ORDER BY pid) " OURS;
    mortise_client *client = open_client("renew_every = 100ms", ""), *other = open_client("", "");
    mortise_lease *lease = take(client, "renewed", HOLD_MS);
    CU_ASSERT(renews_on_second());
    mortise_lease *wanted = take(other, "wanted", HOLD_MS);
    CU_ASSERT(soon("SELECT count(*) " OURS, "3"));
    snprintf(before, sizeof before, "%s", ask(pids));
    struct waiter waiter;
    waiter_begin(&waiter, client, "wanted");
    CU_ASSERT_STRING_EQUAL(ask(pids), before);
    give(wanted);
    CU_ASSERT_EQUAL(waiter_end(&waiter), MORTISE_OK);
    give(lease);
    mortise_close(client, NULL);
    mortise_close(other, NULL);
}

static mortise_client *open_far(const char *settings, const char *more)
{
    char conninfo[200];
    snprintf(conninfo, sizeof conninfo,
             "host=127.0.0.1 port=%d dbname=mortise user=mortise sslmode=disable", proxy.port);
    CU_ASSERT(test_proxy_say(&proxy, "delay 100 both"));
    return open_as(conninfo, settings, more);
}

/* It takes long to connect, and nobody waits for it: it is made nevertheless. */
static void test_made_unattended(void)
{
    mortise_client *client = open_far("renew_every = 1s", "connect_timeout = 3s");
    mortise_lease *lease = take(client, "idle", HOLD_MS);
    CU_ASSERT(renews_on_second());
    give(lease);
    mortise_close(client, NULL);
    test_proxy_say(&proxy, "pass");
}

/* It is being made for renewals when the first waiter comes: that waiter is notified too. */
static void test_waits_meanwhile(void)
{
    mortise_client *client = open_far("renew_every = 500ms", ""), *other = open_client("", "");
    mortise_lease *wanted = take(other, "meanwhile", HOLD_MS),
                  *lease = take(client, "own", HOLD_MS);
    CU_ASSERT(soon("SELECT count(*) " OURS, "3")); /* its session exists, and is being set up */
    struct waiter waiter;
    waiter_begin(&waiter, client, "meanwhile");
    give(wanted);
    CU_ASSERT_EQUAL(waiter_end(&waiter), MORTISE_OK);
    give(lease);
    mortise_close(client, NULL);
    mortise_close(other, NULL);
    test_proxy_say(&proxy, "pass");
}

/* ---- main -------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    CU_TestInfo tests[] = {
        {"passwords", test_passwords},
        {"services", test_services},
        {"TLS", test_tls},
        {"a pooler in session mode", test_session_pooler},
        {"the same session from the pooler", test_session_again},
        {"listens when somebody waits", test_listen_later},
        {"a second connection that nobody waits for", test_made_unattended},
        {"who waits while it is made", test_waits_meanwhile},
        {"a pooler that leads to a standby",
         test_pooler_led_astray}, /* leaves sessions of the pooler */
        CU_TEST_INFO_NULL,
    };
    return server_run(tests, argc, argv);
}
