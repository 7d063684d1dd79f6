/* test_postgres_settings.c - the PostgreSQL driver with the settings of a role, a database or a pooler: isolation and
 * other session settings, search paths and schemas, rights, TLS; and which client creates the tables. On a private
 * server. */
#define SERVER_SETTINGS ""
#include "postgres_server.h"

/* ---- isolation --------------------------------------------------------------------------------- */

struct contender {
    pthread_t thread;
    mortise_client *client;
    int failed;
};

static void *contend(void *argument)
{
    struct contender *contender = argument;
    for (int i = 0; i < 50; i++)
        contender->failed += try_for(contender->client, i % 2 ? "contended-1" : "contended-2",
                                     PATIENCE_MS) != MORTISE_OK;
    return NULL;
}

/* With a role whose transactions are serializable, which the driver cannot change for a session behind a pooler. */
static void test_serializable(void)
{
    struct contender contenders[4];
    ask("ALTER ROLE mortise SET default_transaction_isolation = serializable");
    for (size_t i = 0; i < 4; i++) {
        contenders[i] = (struct contender){.client = open_client("", "pooler = yes")};
        pthread_create(&contenders[i].thread, NULL, contend, &contenders[i]);
    }
    for (size_t i = 0; i < 4; i++) {
        pthread_join(contenders[i].thread, NULL);
        CU_ASSERT_EQUAL(contenders[i].failed, 0);
        mortise_close(contenders[i].client, NULL);
    }
    ask("ALTER ROLE mortise RESET default_transaction_isolation");
}

/* Both find no tables, and are about to create them in different schemas, in transactions that see the database as it
 * was when they began. The second one must see what the first one has created. */
static void test_two_first_starts(void)
{
    static const char *const schemas[] = {"one", "two"};
    struct test_process session;
    struct waiter starters[2];
    char more[100], conninfo[200];
    ask("CREATE DATABASE first OWNER mortise");
    ask("ALTER ROLE mortise SET default_transaction_isolation = 'repeatable read'");
    snprintf(conninfo, sizeof conninfo, "host=127.0.0.1 port=%s dbname=first user=mortise", port);
    CU_ASSERT_FATAL(
        session_begin_in(&session, "first", "SELECT pg_advisory_xact_lock(5642811930437154125)"));
    for (size_t i = 0; i < 2; i++) {
        snprintf(more, sizeof more, "CREATE SCHEMA %s AUTHORIZATION mortise", schemas[i]);
        ask_in("first", more);
        snprintf(more, sizeof more, "schema = %s\npooler = yes\nconnect_timeout = 60s", schemas[i]);
        waiter_start(&starters[i], open_as(conninfo, "", more), "first");
    }
    CU_ASSERT(
        soon("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", "2"));
    session_end(&session);
    mortise_status one = waiter_end(&starters[0]), two = waiter_end(&starters[1]);
    CU_ASSERT((one == MORTISE_OK && two == MORTISE_CONFIG) ||
              (one == MORTISE_CONFIG && two == MORTISE_OK));
    CU_ASSERT_STRING_EQUAL(
        ask_in("first", "SELECT count(*) FROM pg_class WHERE relname = 'mortise_lock'"), "1");
    for (size_t i = 0; i < 2; i++)
        mortise_close(starters[i].client, NULL);
    ask("ALTER ROLE mortise RESET default_transaction_isolation");
}

/* ---- other settings ---------------------------------------------------------------------------- */

/* A lock excludes, a waiter is notified, tokens grow, a record is read as it was written, and the server is checked. */
static void works(const char *conninfo, const char *more)
{
    char text[16], said[1000] = "";
    size_t size = sizeof text;
    uint64_t version = 0;
    struct waiter waiter;
    mortise_client *client = open_as(conninfo, "", more), *other = open_client("", "");
    mortise_lease *lease = take(client, "set", HOLD_MS);
    uint64_t token = mortise_token(lease);
    CU_ASSERT_EQUAL(try_for(other, "set", 0), MORTISE_BUSY);
    waiter_start(&waiter, other, "set");
    give(lease);
    CU_ASSERT_EQUAL(waiter_end(&waiter), MORTISE_OK);
    lease = take(other, "set", HOLD_MS);
    CU_ASSERT(mortise_token(lease) > token);
    CU_ASSERT_EQUAL(try_for(client, "set", 0), MORTISE_BUSY);
    give(lease);
    CU_ASSERT_EQUAL(mortise_record_read(client, "set", text, &size, &version, &detail), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_record_write(client, "set", "\\x\0é", 5, &version, &detail),
                    MORTISE_OK);
    size = sizeof text;
    CU_ASSERT_EQUAL(mortise_record_read(other, "set", text, &size, &version, &detail), MORTISE_OK);
    CU_ASSERT(size == 5 && memcmp(text, "\\x\0é", 5) == 0);
    CU_ASSERT_EQUAL(mortise_ping(client, said, sizeof said, &detail), MORTISE_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(said, "layout 1"));
    mortise_close(client, NULL);
    mortise_close(other, NULL);
}

/* What a role or a database may set for its sessions; behind a pooler the driver cannot change it for the session. */
static void test_role_settings(void)
{
    static const char *const settings[] = {
        "default_transaction_isolation = 'repeatable read'",
        "default_transaction_deferrable = on",
        "synchronous_commit = off",
        "statement_timeout = '30s'",
        "lock_timeout = '10ms'",
        "idle_in_transaction_session_timeout = '1s'",
        "client_encoding = 'LATIN1'",
        "standard_conforming_strings = off",
        "bytea_output = escape",
        "datestyle = 'German, DMY'",
        "intervalstyle = sql_standard",
        "timezone = 'Asia/Kolkata'",
        "extra_float_digits = -15",
        "quote_all_identifiers = on",
        "transform_null_equals = on",
    };
    char sql[200], conninfo[200];
    ask("CREATE ROLE odd LOGIN IN ROLE mortise");
    snprintf(conninfo, sizeof conninfo, "host=127.0.0.1 port=%s dbname=mortise user=odd", port);
    mortise_client *client = open_client("", ""); /* makes the tables */
    CU_ASSERT_EQUAL(try_for(client, "set", PATIENCE_MS), MORTISE_OK);
    mortise_close(client, NULL);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        snprintf(sql, sizeof sql, "ALTER ROLE odd SET %s", settings[i]);
        CU_ASSERT_STRING_EQUAL(ask(sql), "");
    }
    works(conninfo, "");
    works(conninfo, "pooler = yes");
    ask("DROP ROLE odd");
}

/* Programs mock the clock like this for their tests: a function of that name comes before the built-in one. No
 * statement of the driver may use it, because another client's claim would seem to have ended. */
static void test_mocked_clock(void)
{
    static const char *const more[] = {"", "pooler = yes"};
    char conninfo[200];
    mortise_client *client = open_client("", "");
    mortise_lease *lease = take(client, "mocked", HOLD_MS);
    ask("CREATE ROLE mocking LOGIN IN ROLE mortise");
    ask("CREATE SCHEMA mock AUTHORIZATION mocking");
    ask("CREATE FUNCTION mock.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS "
        "'SELECT to_timestamp(4000000000)'");
    ask("ALTER ROLE mocking SET search_path = mock, public, pg_catalog");
    snprintf(conninfo, sizeof conninfo, "host=127.0.0.1 port=%s dbname=mortise user=mocking", port);
    for (size_t i = 0; i < 2; i++) {
        mortise_client *other = open_as(conninfo, "", more[i]);
        CU_ASSERT_EQUAL(try_for(other, "mocked", 0), MORTISE_BUSY);
        CU_ASSERT_EQUAL(try_for(other, "free", PATIENCE_MS), MORTISE_OK);
        mortise_close(other, NULL);
    }
    ask("DROP SCHEMA mock CASCADE");
    ask("DROP ROLE mocking");
    give(lease);
    mortise_close(client, NULL);
}

/* In the schema mock each built-in function, operator and table has a double of the same name, which fails when it is
 * used; so have those that would match other types. A function of one literal has a type of its name, to which the
 * literal would be cast. */
static const char doubles[] =
    "CREATE FUNCTION mock.fail() RETURNS void LANGUAGE plpgsql AS "
    "$$BEGIN RAISE EXCEPTION 'a double was used'; END$$; "
    "DO $do$ DECLARE f record; made pg_catalog.int4 := 0; BEGIN "
    "FOR f IN SELECT p.proname, pg_catalog.pg_get_function_identity_arguments(p.oid) AS arguments, "
    "pg_catalog.format_type(p.prorettype, NULL) AS result FROM pg_catalog.pg_proc AS p "
    "WHERE p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace AND p.prokind = 'f' "
    "AND NOT p.proretset AND p.pronargs <= 4 LOOP "
    "BEGIN EXECUTE pg_catalog.format('CREATE FUNCTION mock.%I(%s) RETURNS %s LANGUAGE plpgsql AS "
    "''BEGIN PERFORM mock.fail(); END''', f.proname, f.arguments, f.result); made := made + 1; "
    "EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP; "
    "FOR f IN SELECT o.oprname, pg_catalog.format_type(o.oprleft, NULL) AS l, "
    "pg_catalog.format_type(o.oprright, NULL) AS r, o.oprcode FROM pg_catalog.pg_operator AS o "
    "WHERE o.oprkind = 'b' AND o.oprleft <> 'pg_catalog.anyarray'::pg_catalog.regtype LOOP "
    "BEGIN EXECUTE pg_catalog.format('CREATE OPERATOR mock.%s (FUNCTION = mock.%s, LEFTARG = %s, "
    "RIGHTARG = %s)', f.oprname, f.oprcode::pg_catalog.text, f.l, f.r); made := made + 1; "
    "EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP; "
    "ASSERT made > 2000, made; END$do$; "
    "CREATE FUNCTION mock.quote_ident(name) RETURNS text LANGUAGE plpgsql AS "
    "'BEGIN PERFORM mock.fail(); END'; "
    "CREATE FUNCTION mock.odd(float, int) RETURNS float LANGUAGE plpgsql AS "
    "'BEGIN PERFORM mock.fail(); END'; "
    "CREATE FUNCTION mock.odd(float, bigint) RETURNS float LANGUAGE plpgsql AS "
    "'BEGIN PERFORM mock.fail(); END'; "
    "CREATE FUNCTION mock.is_odd(float, int) RETURNS bool LANGUAGE plpgsql AS "
    "'BEGIN PERFORM mock.fail(); END'; "
    "CREATE FUNCTION mock.is_odd(oid, regclass) RETURNS bool LANGUAGE plpgsql AS "
    "'BEGIN PERFORM mock.fail(); END'; "
    "CREATE FUNCTION mock.is_odd(text) RETURNS bool LANGUAGE plpgsql AS "
    "'BEGIN PERFORM mock.fail(); END'; "
    "CREATE OPERATOR mock.* (FUNCTION = mock.odd, LEFTARG = float, RIGHTARG = int); "
    "CREATE OPERATOR mock.- (FUNCTION = mock.odd, LEFTARG = float, RIGHTARG = int); "
    "CREATE OPERATOR mock.- (FUNCTION = mock.odd, LEFTARG = float, RIGHTARG = bigint); "
    "CREATE OPERATOR mock.> (FUNCTION = mock.is_odd, LEFTARG = float, RIGHTARG = int); "
    "CREATE OPERATOR mock.= (FUNCTION = mock.is_odd, LEFTARG = oid, RIGHTARG = regclass); "
    "CREATE DOMAIN mock.current_setting AS text CHECK (mock.is_odd(VALUE)); "
    "CREATE DOMAIN mock.to_regclass AS text CHECK (mock.is_odd(VALUE)); "
    "CREATE TABLE mock.pg_stat_activity(); CREATE TABLE mock.pg_namespace(); "
    "CREATE TABLE mock.pg_class(); CREATE UNLOGGED TABLE mock.unlogged(); CREATE DOMAIN mock.text "
    "AS int; CREATE DOMAIN mock.bytea AS int";

static void test_doubles(void)
{
    static const char *const paths[] = {"mock, public, pg_catalog", "mock, public"};
    char sql[200], conninfo[200];
    mortise_close(open_client("", ""), NULL);
    ask("CREATE ROLE doubled LOGIN IN ROLE mortise");
    ask("CREATE SCHEMA mock");
    ask("GRANT USAGE ON SCHEMA mock TO doubled");
    CU_ASSERT_STRING_EQUAL_FATAL(ask(doubles), "");
    snprintf(conninfo, sizeof conninfo, "host=127.0.0.1 port=%s dbname=mortise user=doubled", port);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        snprintf(sql, sizeof sql, "ALTER ROLE doubled SET search_path = %s", paths[i]);
        ask(sql);
        works(conninfo, "");
        works(conninfo, "pooler = yes");
    }
    ask("DROP SCHEMA mock CASCADE");
    ask("DROP ROLE doubled");
}

/* ---- rights, layouts --------------------------------------------------------------------------- */

static void test_no_right(void)
{
    char conninfo[200];
    ask("CREATE ROLE poor LOGIN");
    ask("CREATE DATABASE bare");
    snprintf(conninfo, sizeof conninfo, "host=127.0.0.1 port=%s dbname=bare user=poor", port);
    mortise_client *client = open_as(conninfo, "", "");
    CU_ASSERT_EQUAL(try_for(client, "poor", PATIENCE_MS), MORTISE_BACKEND);
    says("mortise schema postgres");
    mortise_close(client, NULL);
}

static void test_other_layout(void)
{
    mortise_client *client;
    ask("UPDATE mortise_meta SET value = '0' WHERE key = 'layout'");
    client = open_client("", "");
    CU_ASSERT_EQUAL(try_for(client, "layout", PATIENCE_MS), MORTISE_BACKEND);
    says("layout");
    ask("UPDATE mortise_meta SET value = '1' WHERE key = 'layout'");
    CU_ASSERT_EQUAL(try_for(client, "layout", PATIENCE_MS), MORTISE_OK);
    mortise_close(client, NULL);
}

/* ---- which tables are used ------------------------------------------------------------------------- */

/* A client with a role that has that search_path. */
static mortise_client *open_on_path(const char *path, const char *more)
{
    char conninfo[300];
    snprintf(conninfo, sizeof conninfo,
             "host=127.0.0.1 port=%s dbname=schemas user=mortise options='-c search_path=%s'", port,
             path);
    return open_as(conninfo, "", more);
}

static mortise_status try_on_path(const char *path, const char *more)
{
    mortise_client *client = open_on_path(path, more);
    mortise_status status = try_for(client, "where", 0);
    CU_ASSERT_EQUAL(mortise_close(client, NULL), MORTISE_OK);
    return status;
}

static void add_text(const char *text, size_t length, void *sql)
{
    strncat(sql, text, length);
}

/* As an operator would. */
static void make_tables(const char *database, const char *schema)
{
    char sql[8000];
    snprintf(sql, sizeof sql, "SET ROLE mortise; SET search_path TO %s;\n", schema);
    CU_ASSERT_EQUAL(mortise_schema(NULL, "postgres", add_text, sql, &detail), MORTISE_OK);
    ask_in(database, sql);
}

static void test_schemas(void)
{
    char text[300] = "";
    ask("CREATE DATABASE schemas OWNER mortise");
    ask_in("schemas", "CREATE SCHEMA one AUTHORIZATION mortise");
    ask_in("schemas", "CREATE SCHEMA \"t wo\" AUTHORIZATION mortise");
    mortise_client *client = open_on_path("one", "");
    mortise_lease *lease = take(client, "where", HOLD_MS);
    CU_ASSERT_EQUAL(mortise_ping(client, text, sizeof text, &detail), MORTISE_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "database schemas, schema one"));
    CU_ASSERT_EQUAL(try_on_path("one,public", ""), MORTISE_BUSY);
    CU_ASSERT_EQUAL(try_on_path("public", ""), MORTISE_CONFIG); /* it does not create its own */
    says("set schema = one");
    CU_ASSERT_EQUAL(try_on_path("public", "schema = one"), MORTISE_BUSY);
    CU_ASSERT_EQUAL(try_on_path("public", "schema = one\npooler = yes"), MORTISE_BUSY);
    CU_ASSERT_EQUAL(try_on_path("one", "schema = three"), MORTISE_CONFIG);
    says("does not exist");
    CU_ASSERT_EQUAL(try_on_path("one", "schema = t wo"),
                    MORTISE_CONFIG); /* no second set by itself */
    says("another schema of this database has them (one)");
    says("mortise schema postgres");
    CU_ASSERT_EQUAL(try_on_path("one", ""), MORTISE_BUSY); /* and none was created */
    make_tables("schemas", "\"t wo\"");
    CU_ASSERT_EQUAL(try_on_path("one", "schema = t wo"), MORTISE_OK); /* another lock */
    CU_ASSERT_EQUAL(try_on_path("one", ""), MORTISE_CONFIG);
    says("more than one schema");
    ask_in("schemas", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                      "WHERE application_name = 'mortise' AND datname = 'schemas'");
    CU_ASSERT_EQUAL(try_for(client, "elsewhere", PATIENCE_MS), MORTISE_OK); /* it uses its own */
    give(lease);
    CU_ASSERT_EQUAL(mortise_close(client, NULL), MORTISE_OK);
}

/* ---- TLS --------------------------------------------------------------------------------------------- */

/* What the log has after opening a client of these hosts, which connects to none. */
static char *logged(const char *conninfo)
{
    char path[300];
    snprintf(path, sizeof path, "%s/logged", folder);
    int file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600), before = dup(STDERR_FILENO);
    CU_ASSERT_FATAL(file >= 0 && before >= 0 && dup2(file, STDERR_FILENO) >= 0);
    mortise_close(open_as(conninfo, "", ""), NULL);
    dup2(before, STDERR_FILENO);
    close(file);
    close(before);
    char *text = test_file_read(path);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    return text;
}

static void test_plain_text(void)
{
    static const struct {
        const char *conninfo;
        bool warns;
    } cases[] = {
        {"host=db.example", true},
        {"host=localhost,db.example sslmode=allow", true},
        {"host=127.0.0.1 hostaddr=192.0.2.7", true},
        {"host=db.example sslmode=require", false},
        {"host=db.example sslmode=disable", false},
        {"host=db.example gssencmode=require", false},
        {"host=/var/run/postgresql,localhost,127.0.0.1", false},
        {"host=db.example hostaddr=127.0.0.1", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = logged(cases[i].conninfo);
        CU_ASSERT_EQUAL(strstr(text, "verify-full") != NULL, cases[i].warns);
        free(text);
    }
}

/* ---- main -------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    CU_TestInfo tests[] = {
        {"serialization failures", test_serializable},
        {"two first starts", test_two_first_starts},
        {"settings of a role", test_role_settings},
        {"a clock before the server's own", test_mocked_clock},
        {"doubles of what the server has", test_doubles},
        {"a role without rights", test_no_right},
        {"another layout", test_other_layout},
        {"tables in two schemas", test_schemas},
        {"a warning where TLS is not required", test_plain_text},
        CU_TEST_INFO_NULL,
    };
    return server_run(tests, argc, argv);
}
