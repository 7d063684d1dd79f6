/* test_postgres_links.c - the PostgreSQL driver's connections: to several hosts of which one is silent, with the
 * settings of a role, lost while their backend goes on; and clients that block each other. On servers as in
 * test_postgres.c. */
#include "postgres_server.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>

static mortise_client *open_behind_proxy(const char *settings, const char *more)
{
    char conninfo[200];
    snprintf(conninfo, sizeof conninfo,
             "host=127.0.0.1 port=%d dbname=mortise user=mortise sslmode=disable", proxy.port);
    return open_as(conninfo, settings, more);
}

static int listen_at(struct sockaddr_in *address)
{
    socklen_t size = sizeof *address;
    *address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CU_ASSERT_FATAL(fd >= 0 && bind(fd, (struct sockaddr *)address, size) == 0 &&
                    listen(fd, 8) == 0 && getsockname(fd, (struct sockaddr *)address, &size) == 0);
    return fd;
}

/* The first of two hosts accepts connections and is silent, as if it was frozen. */
static void test_silent_host(void)
{
    struct sockaddr_in address;
    char conninfo[200];
    int silent = listen_at(&address);
    snprintf(conninfo, sizeof conninfo,
             "host=127.0.0.1,127.0.0.1 port=%d,%s dbname=mortise user=mortise",
             ntohs(address.sin_port), port);
    mortise_client *client = open_as(conninfo, "", "connect_timeout = 1s");
    CU_ASSERT_EQUAL(try_for(client, "silent", PATIENCE_MS), MORTISE_OK);
    mortise_close(client, NULL);
    close(silent);
}

/* Forwards what the server says to a new client, until it is ready for statements. */
static void greet(int client, int real)
{
    static const char ready[] = {'Z', 0, 0, 0, 5, 'I'};
    char bytes[4096];
    ssize_t len = recv(client, bytes, sizeof bytes, 0);
    if (len <= 0 || send(real, bytes, (size_t)len, MSG_NOSIGNAL) != len)
        return;
    while ((len = recv(real, bytes, sizeof bytes, 0)) > 0 &&
           send(client, bytes, (size_t)len, MSG_NOSIGNAL) == len)
        if (len >= (ssize_t)sizeof ready &&
            memcmp(bytes + len - sizeof ready, ready, sizeof ready) == 0)
            return;
}

/* Ends with the listener. */
static void *freeze_each(void *argument)
{
    int listener = *(int *)argument, client, fds[64], count = 0;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)strtol(port, NULL, 10)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    while (count < 64 && (client = accept(listener, NULL, NULL)) >= 0) {
        int real = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(real, (struct sockaddr *)&address, sizeof address) == 0)
            greet(client, real);
        fds[count++] = client;
        fds[count++] = real;
    }
    while (count > 0)
        close(fds[--count]);
    return NULL;
}

/* The first of two hosts lets a client in, and is frozen then: the next attempt begins with the other one. */
static void test_frozen_host(void)
{
    struct sockaddr_in address;
    pthread_t thread;
    char conninfo[200];
    int listener = listen_at(&address);
    CU_ASSERT_FATAL(pthread_create(&thread, NULL, freeze_each, &listener) == 0);
    snprintf(conninfo, sizeof conninfo,
             "host=127.0.0.1,127.0.0.1 port=%d,%s dbname=mortise user=mortise sslmode=disable",
             ntohs(address.sin_port), port);
    mortise_client *client = open_as(conninfo, "unreachable_timeout = 20s", "connect_timeout = 1s");
    CU_ASSERT_EQUAL(try_for(client, "frozen", PATIENCE_MS), MORTISE_OK);
    mortise_close(client, NULL);
    shutdown(listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(listener);
}

static void test_read_only_role(void)
{
    char conninfo[200];
    ask("ALTER ROLE mortise SET default_transaction_read_only = on");
    mortise_client *client = open_client("", "");
    CU_ASSERT_EQUAL(try_for(client, "read only", 0), MORTISE_OK);
    mortise_close(client, NULL);
    snprintf(conninfo, sizeof conninfo,
             "host=127.0.0.1,127.0.0.1 port=%s,%s dbname=mortise user=mortise", standby_port, port);
    client = open_as(conninfo, "", "");
    CU_ASSERT_EQUAL(try_for(client, "read only", 0), MORTISE_OK);
    mortise_close(client, NULL);
    ask("ALTER ROLE mortise RESET default_transaction_read_only");
}

struct record_call {
    mortise_client *client;
    uint64_t version;
    mortise_status status;
};

static void *write_record(void *argument)
{
    struct record_call *call = argument;
    mortise_error error;
    call->status = mortise_record_write(call->client, "ghost", "new", 3, &call->version, &error);
    return NULL;
}

/* Behind a pooler the connection's name of this program is not known. */
#define ASLEEP "FROM pg_stat_activity WHERE wait_event = 'PgSleep'"

static void *release(void *lease)
{
    give(lease);
    return NULL;
}

/* The connection breaks while a release waits in the server: its backend is terminated, as that of an acquire is,
 * because nobody else could use what it has locked meanwhile. */
static void test_ghost_of_release(void)
{
    pthread_t thread;
    char there[128];
    mortise_client *client = open_behind_proxy("", "command_timeout = 600s");
    mortise_lease *lease = take(client, "released", HOLD_MS);
    row_fault("released", 1, "PERFORM pg_sleep(600)");
    CU_ASSERT_FATAL(pthread_create(&thread, NULL, release, lease) == 0);
    CU_ASSERT(soon("SELECT count(*) " SLEEPERS, "1"));
    snprintf(there, sizeof there, "SELECT count(*) FROM pg_stat_activity WHERE pid = %.20s",
             ask("SELECT pid " SLEEPERS));
    CU_ASSERT(test_proxy_say(&proxy, "cut"));
    CU_ASSERT(soon(there, "0"));
    pthread_join(thread, NULL);
    row_fault_end();
    mortise_close(client, NULL);
}

/* Behind a pooler nobody knows which backend it was: the record is read when the lost write can no longer be executed. */
static void test_ghost_of_record(void)
{
    char text[8], final[8];
    size_t size = sizeof text;
    uint64_t version = 0;
    mortise_client *client = open_behind_proxy("", "pooler = yes\ncommand_timeout = 6s");
    struct record_call call = {.client = client};
    CU_ASSERT_EQUAL(mortise_record_write(client, "ghost", "old", 3, &version, &detail), MORTISE_OK);
    call.version = version;
    CU_ASSERT_STRING_EQUAL(
        ask("CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN PERFORM pg_sleep(3); RETURN NEW; END'; CREATE TRIGGER late BEFORE UPDATE ON "
            "mortise_record FOR EACH ROW EXECUTE FUNCTION late(); SELECT 'armed'"),
        "armed");
    pthread_t thread;
    CU_ASSERT_FATAL(pthread_create(&thread, NULL, write_record, &call) == 0);
    CU_ASSERT(soon("SELECT count(*) " ASLEEP, "1"));
    CU_ASSERT(test_proxy_say(&proxy, "cut"));
    CU_ASSERT_EQUAL(mortise_record_read(client, "ghost", text, &size, &version, &detail),
                    MORTISE_OK);
    pthread_join(thread, NULL);
    CU_ASSERT_NOT_EQUAL(call.status, MORTISE_OK);
    CU_ASSERT(soon("SELECT count(*) " ASLEEP, "0"));
    snprintf(final, sizeof final, "%.7s",
             ask("SELECT convert_from(value, 'UTF8') FROM mortise_record WHERE name = 'ghost'"));
    CU_ASSERT(size == strlen(final) && memcmp(text, final, size) == 0);
    ask("SET client_min_messages = warning; DROP FUNCTION late CASCADE");
    mortise_close(client, NULL);
}

/* ---- functions of the server, and doubles ------------------------------------------------------- */

/* Clients that connect from now on get a double of the function, which has its place in pg_catalog: they call no other. The
 * server's own is NAME_real meanwhile. A sequence counts the calls: it is not rolled back. */
static void double_begin(const char *name, const char *arguments, const char *returns,
                         const char *body)
{
    char sql[1000];
    snprintf(sql, sizeof sql,
             "CREATE SEQUENCE public.doubled; GRANT ALL ON public.doubled TO PUBLIC; "
             "ALTER FUNCTION pg_catalog.%s(%s) RENAME TO %s_real; "
             "CREATE FUNCTION pg_catalog.%s(%s) RETURNS %s LANGUAGE plpgsql AS 'BEGIN %s END'; "
             "SELECT 'armed'",
             name, arguments, name, name, arguments, returns, body);
    CU_ASSERT_STRING_EQUAL_FATAL(ask(sql), "armed");
}

#define DOUBLE_COUNTS "PERFORM nextval(''public.doubled'');"

/* And it has been called. */
static void double_end(const char *name, const char *arguments)
{
    char sql[400];
    CU_ASSERT_STRING_EQUAL(ask("SELECT is_called FROM public.doubled"), "t");
    snprintf(sql, sizeof sql,
             "DROP FUNCTION pg_catalog.%s(%s); ALTER FUNCTION pg_catalog.%s_real(%s) RENAME TO %s; "
             "DROP SEQUENCE public.doubled; SELECT 'gone'",
             name, arguments, name, arguments, name);
    CU_ASSERT_STRING_EQUAL_FATAL(ask(sql), "gone");
}

/* The queue of notifications is full: the release is done nevertheless, and so is the acquire of the next one. */
static void test_notify_fails(void)
{
    double_begin("pg_notify", "text, text", "void",
                 DOUBLE_COUNTS " RAISE EXCEPTION ''full'' USING ERRCODE = ''54000'';");
    mortise_client *client = open_client("", ""), *other = open_client("", "");
    struct waiter waiter;
    mortise_lease *lease = take(client, "full", HOLD_MS);
    waiter_begin(&waiter, other, "full");
    give(lease);
    CU_ASSERT_STRING_EQUAL(ask("SELECT grants IS NULL FROM mortise_lock WHERE name = 'full'"), "t");
    double_end("pg_notify", "text, text");
    CU_ASSERT_EQUAL(waiter_end(&waiter),
                    MORTISE_OK); /* it is notified as soon as that is possible */
    mortise_close(client, NULL);
    mortise_close(other, NULL);
}

/* ---- owners ------------------------------------------------------------------------------------ */

struct member {
    pthread_t thread;
    mortise_client *client;
    int failed;
};

static void *come_and_go(void *argument)
{
    struct member *member = argument;
    for (int i = 0; i < 10; i++) {
        mortise_lease *lease;
        if (mortise_acquire(member->client, "shared",
                            MORTISE_OPTIONS(.wait_ms = 0, .owner = "team"), &lease,
                            &detail) != MORTISE_OK ||
            mortise_release(lease, &detail) != MORTISE_OK)
            fprintf(stderr, "%d: %s\n", ++member->failed, detail.message);
    }
    return NULL;
}

static void test_owners(void)
{
    enum { MEMBERS = 60, CLIENTS = 12 };
    static struct member members[MEMBERS];
    mortise_client *clients[CLIENTS];
    for (size_t i = 0; i < CLIENTS; i++)
        clients[i] = open_client("unreachable_timeout = 60s", "");
    for (size_t i = 0; i < MEMBERS; i++) {
        members[i] = (struct member){.client = clients[i % CLIENTS]};
        CU_ASSERT_FATAL(pthread_create(&members[i].thread, NULL, come_and_go, &members[i]) == 0);
    }
    for (size_t i = 0; i < MEMBERS; i++) {
        pthread_join(members[i].thread, NULL);
        CU_ASSERT_EQUAL(members[i].failed, 0);
    }
    for (size_t i = 0; i < CLIENTS; i++)
        mortise_close(clients[i], NULL);
}

/* ---- what is said ------------------------------------------------------------------------------ */

/* No part of a password is in an error. */
static void test_password_unsaid(void)
{
    static const char *const conninfos[] = {
        "password=sec ret", "password=sec'ret x'y", "postgresql://u:pa%ZZret@h/db",
        "postgresql://u:ret/ssw@h/db", "postgresql://u:12/3ret@h/db"};
    for (size_t i = 0; i < sizeof conninfos / sizeof *conninfos; i++) {
        char path[300], text[300];
        mortise_client *client = NULL;
        snprintf(path, sizeof path, "%s/unsaid.conf", folder);
        snprintf(text, sizeof text, "[mortise]\ndriver = postgres\n[postgres]\nconninfo = %s\n",
                 conninfos[i]);
        CU_ASSERT_FATAL(test_file_write(path, text));
        mortise_status status = mortise_open(path, &client, &detail);
        CU_ASSERT_EQUAL(status, MORTISE_CONFIG);
        CU_ASSERT_PTR_NULL(strstr(detail.message, "ret"));
        if (status == MORTISE_OK)
            mortise_close(client, NULL);
    }
}

/* Whenever a client has read the row, it has changed before the client writes it, as if the threads of one process
 * passed the lock on without a pause. A waiter gets into the list nevertheless. */
static void test_restless(void)
{
    struct waiter waiter;
    mortise_client *client = open_client("", "");
    mortise_lease *lease = take(client, "restless", HOLD_MS);
    double_begin("clock_timestamp", "", "timestamptz",
                 "IF current_query() LIKE ''%LEFT JOIN mortise_lock%'' THEN "
                 "UPDATE mortise_lock SET expires_at = expires_at + interval ''1 us'' "
                 "WHERE name = ''restless''; " DOUBLE_COUNTS " END IF; "
                 "RETURN pg_catalog.clock_timestamp_real();");
    mortise_client *other = open_client("", "");
    waiter_begin(&waiter, other, "restless");
    give(lease);
    CU_ASSERT_EQUAL(waiter_end(&waiter), MORTISE_OK);
    mortise_close(other, NULL);
    double_end("clock_timestamp", "");
    mortise_close(client, NULL);
}

/* ---- main -------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    CU_TestInfo tests[] = {
        {"a host that is silent", test_silent_host},
        {"a host that is frozen when it has let a client in", test_frozen_host},
        {"a role that reads only", test_read_only_role},
        {"a backend that releases when its connection is gone", test_ghost_of_release},
        {"a lost write of a record behind a pooler", test_ghost_of_record},
        {"notifications fail", test_notify_fails},
        {"many of one owner", test_owners},
        {"a row that never rests", test_restless},
        {"passwords that libpq cannot parse", test_password_unsaid},
        CU_TEST_INFO_NULL,
    };
    return server_run(tests, argc, argv);
}
