/* test_postgres_standby.c - a synchronous standby stalls: every commit on the primary hangs, and a session that is
 * terminated there makes its changes visible although no standby has them. Nobody may rely on such a change. On a
 * private pair of servers. */
#define SERVER_SETTINGS "standby=yes\n"
#include "postgres_server.h"

#define PATIENT "unreachable_timeout = 100s"
#define SHORT "command_timeout = 1s"
/* A session of that name waits for the standby. */
#define STALLED(name)                                                                              \
    "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep' "                      \
    "AND application_name = '" name "'"

static mortise_client *open_named(const char *name)
{
    char conninfo[200];
    snprintf(conninfo, sizeof conninfo,
             "host=127.0.0.1 port=%s dbname=mortise user=mortise application_name=%s", port, name);
    return open_as(conninfo, PATIENT, SHORT);
}

/* A call of it ends with the session that it hangs in, and not before. */
static mortise_client *open_patient(const char *name, const char *pooler)
{
    char conninfo[200], more[100];
    snprintf(conninfo, sizeof conninfo,
             "host=127.0.0.1 port=%s dbname=mortise user=mortise application_name=%s", port, name);
    snprintf(more, sizeof more, "pooler = %s\ncommand_timeout = 100s\nlock_timeout = 100s", pooler);
    return open_as(conninfo, PATIENT, more);
}

/* ---- a call on a thread of its own --------------------------------------------------------------- */

struct call {
    pthread_t thread;
    struct test_count over;
    mortise_client *client;
    const char *name;
    mortise_status status;
    mortise_lease *lease;
    char text[32];
    size_t size;
    uint64_t version;
};

static void *acquire(void *argument)
{
    struct call *call = argument;
    call->status = mortise_acquire(call->client, call->name,
                                   MORTISE_OPTIONS(.wait_ms = WAITER_MS, .ttl_ms = HOLD_MS),
                                   &call->lease, &detail);
    test_count_add(&call->over, 1);
    return NULL;
}

static void *write_record(void *argument)
{
    struct call *call = argument;
    call->status = mortise_record_write(call->client, call->name, call->text, call->size,
                                        &call->version, &detail);
    test_count_add(&call->over, 1);
    return NULL;
}

/* Each attempt ends with the session that it hung in: as often as it takes. */
static void *read_record(void *argument)
{
    struct call *call = argument;
    do {
        call->size = sizeof call->text;
        call->status = mortise_record_read(call->client, call->name, call->text, &call->size,
                                           &call->version, &detail);
    } while (call->status == MORTISE_UNREACHABLE || call->status == MORTISE_TIMEDOUT);
    test_count_add(&call->over, 1);
    return NULL;
}

static void call_begin(struct call *call, void *(*run)(void *), mortise_client *client,
                       const char *name)
{
    call->over = (struct test_count)TEST_COUNT_INIT;
    call->client = client;
    call->name = name;
    CU_ASSERT_FATAL(pthread_create(&call->thread, NULL, run, call) == 0);
}

static mortise_status call_end(struct call *call)
{
    pthread_join(call->thread, NULL);
    return call->status;
}

struct either {
    struct call *call;
    const char *sql;
};

static bool over_or_so(void *argument)
{
    struct either *either = argument;
    return test_count_get(&either->call->over) > 0 || strcmp(ask(either->sql), "t") == 0;
}

/* The server says so while the call is not over. */
static bool still_asks(struct call *call, const char *sql)
{
    struct either either = {call, sql};
    return test_poll(over_or_so, &either, PATIENCE_MS) && test_count_get(&call->over) == 0;
}

/* ---- the standby ----------------------------------------------------------------------------------- */

static void make_synchronous(void)
{
    ask("ALTER SYSTEM SET synchronous_standby_names = '*'");
    ask("ALTER SYSTEM SET wal_sender_timeout = 0");
    ask("SELECT pg_reload_conf()");
    CU_ASSERT_FATAL(soon("SELECT sync_state FROM pg_stat_replication", "sync"));
}

/* ---- the tests --------------------------------------------------------------------------------------- */

static void test_acquire(void)
{
    struct call call = {.lease = NULL};
    make_synchronous();
    mortise_client *client = open_named("taker");
    give(take(client, "stalls", HOLD_MS));
    CU_ASSERT_FATAL(act("freeze", "only=2"));
    call_begin(&call, acquire, client, "stalls");
    CU_ASSERT(still_asks(&call, "SELECT count(*) > 0 FROM mortise_lock "
                                "WHERE name = 'stalls' AND grants IS NOT NULL"));
    CU_ASSERT(still_asks(&call, STALLED("taker"))); /* it asks again, and writes again */
    CU_ASSERT_EQUAL(test_count_get(&call.over), 0);
    CU_ASSERT_FATAL(act("thaw", "only=2"));
    CU_ASSERT_EQUAL_FATAL(call_end(&call), MORTISE_OK);
    CU_ASSERT_STRING_EQUAL(
        ask_standby("SELECT grants IS NOT NULL FROM mortise_lock WHERE name = 'stalls'"), "t");
    give(call.lease);
    mortise_close(client, NULL);
}

/* pg_cancel_backend: the server stops to wait, answers as usual, and says so in a warning only. */
static void test_canceled(void)
{
    char conninfo[200];
    struct call call = {.lease = NULL};
    make_synchronous();
    snprintf(conninfo, sizeof conninfo,
             "host=127.0.0.1 port=%s dbname=mortise user=mortise application_name=canceled "
             "options='-c client_min_messages=error'",
             port);
    mortise_client *client = open_as(conninfo, PATIENT, "command_timeout = 100s");
    give(take(client, "canceled", HOLD_MS));
    CU_ASSERT_FATAL(act("freeze", "only=2"));
    call_begin(&call, acquire, client, "canceled");
    CU_ASSERT(still_asks(&call, STALLED("canceled")));
    ask("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'canceled' "
        "AND wait_event = 'SyncRep'");
    CU_ASSERT(still_asks(&call, "SELECT count(*) > 0 FROM mortise_lock "
                                "WHERE name = 'canceled' AND grants IS NOT NULL"));
    CU_ASSERT(still_asks(&call, STALLED("canceled"))); /* it writes again */
    CU_ASSERT_FATAL(act("thaw", "only=2"));
    CU_ASSERT_EQUAL_FATAL(call_end(&call), MORTISE_OK);
    give(call.lease);
    mortise_close(client, NULL);
}

/* One that writes it hangs, and is cut off; another one reads what it wrote. */
static void test_record(void)
{
    struct call writer = {.text = "new", .size = 3}, reader = {.size = 0};
    make_synchronous();
    mortise_client *client = open_patient("writer", "no"), *other = open_named("reader");
    CU_ASSERT_EQUAL_FATAL(mortise_record_write(client, "phase", "old", 3, &writer.version, &detail),
                          MORTISE_OK);
    reader.size = sizeof reader.text;
    CU_ASSERT_EQUAL_FATAL(
        mortise_record_read(other, "phase", reader.text, &reader.size, &reader.version, &detail),
        MORTISE_OK);
    CU_ASSERT_FATAL(act("freeze", "only=2"));
    call_begin(&writer, write_record, client, "phase");
    CU_ASSERT(still_asks(&writer, STALLED("writer")));
    ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'writer'");
    CU_ASSERT(
        soon("SELECT convert_from(value, 'UTF8') FROM mortise_record WHERE name = 'phase'", "new"));
    call_begin(&reader, read_record, other, "phase");
    CU_ASSERT(still_asks(&reader, STALLED("reader")));
    CU_ASSERT_FATAL(act("thaw", "only=2"));
    CU_ASSERT_EQUAL(call_end(&reader), MORTISE_OK);
    CU_ASSERT(reader.size == 3 && memcmp(reader.text, "new", 3) == 0);
    CU_ASSERT_STRING_EQUAL(
        ask_standby("SELECT convert_from(value, 'UTF8') FROM mortise_record WHERE name = 'phase'"),
        "new");
    CU_ASSERT_NOT_EQUAL(call_end(&writer), MORTISE_BUSY);
    mortise_close(client, NULL);
    mortise_close(other, NULL);
}

/* Those that read it do not wait for each other. */
static void test_readers(void)
{
    struct call readers[2];
    mortise_client *clients[2];
    uint64_t version = 0;
    make_synchronous();
    for (size_t i = 0; i < 2; i++)
        clients[i] = open_patient("beside", "no");
    CU_ASSERT_EQUAL_FATAL(mortise_record_write(clients[0], "read", "old", 3, &version, &detail),
                          MORTISE_OK);
    CU_ASSERT_EQUAL(try_for(clients[1], "read", PATIENCE_MS), MORTISE_OK); /* it is connected */
    CU_ASSERT_FATAL(act("freeze", "only=2"));
    for (size_t i = 0; i < 2; i++)
        call_begin(&readers[i], read_record, clients[i], "read");
    CU_ASSERT(still_asks(&readers[0],
                         "SELECT count(*) = 2 FROM pg_stat_activity WHERE wait_event = 'SyncRep' "
                         "AND application_name = 'beside'"));
    CU_ASSERT_FATAL(act("thaw", "only=2"));
    for (size_t i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(call_end(&readers[i]), MORTISE_OK);
        CU_ASSERT_EQUAL(readers[i].version, version);
        mortise_close(clients[i], NULL);
    }
}

/* Behind a pooler, one that reads it while the commit of a write hangs waits for that write. It may be a write of its own,
 * whose connection was lost, and whose session nobody can look for. */
static void test_pending_record(void)
{
    struct call writer = {.text = "new", .size = 3}, reader = {.size = sizeof reader.text};
    make_synchronous();
    mortise_client *client = open_patient("pending", "yes"),
                   *other = open_patient("waiting", "yes");
    CU_ASSERT_EQUAL_FATAL(
        mortise_record_write(client, "pending", "old", 3, &writer.version, &detail), MORTISE_OK);
    CU_ASSERT_EQUAL_FATAL(
        mortise_record_read(other, "pending", reader.text, &reader.size, &reader.version, &detail),
        MORTISE_OK);
    CU_ASSERT_FATAL(act("freeze", "only=2"));
    call_begin(&writer, write_record, client, "pending");
    CU_ASSERT(still_asks(&writer, STALLED("pending")));
    call_begin(&reader, read_record, other, "pending");
    CU_ASSERT(still_asks(&reader, "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event IN "
                                  "('SyncRep', 'transactionid', 'tuple') "
                                  "AND application_name = 'waiting'"));
    CU_ASSERT_FATAL(act("thaw", "only=2"));
    CU_ASSERT_EQUAL(call_end(&writer), MORTISE_OK);
    CU_ASSERT_EQUAL(call_end(&reader), MORTISE_OK);
    CU_ASSERT(reader.size == 3 && memcmp(reader.text, "new", 3) == 0);
    CU_ASSERT_EQUAL(reader.version, writer.version);
    mortise_close(client, NULL);
    mortise_close(other, NULL);
}

int main(int argc, char **argv)
{
    CU_TestInfo tests[] = {
        {"a grant while the standby stalls", test_acquire},
        {"a record while the standby stalls", test_record},
        {"a canceled commit while the standby stalls", test_canceled},
        {"readers of a record while the standby stalls", test_readers},
        {"a record that is being written while the standby stalls", test_pending_record},
        CU_TEST_INFO_NULL,
    };
    return server_run(tests, argc, argv);
}
