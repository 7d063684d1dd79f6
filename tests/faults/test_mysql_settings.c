/* test_mysql_settings.c - the MySQL driver and how its server is set up: TLS, rights, tables, the server's own settings, names.
 * On a private server with TLS. */
#define SERVER_SETTINGS "tls=yes\npassword=secret\n"
#define PASSWORD "password = secret\n"
#include "mysql_server.h"

#include "mysql_functions.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

/* ---- TLS, passwords ---------------------------------------------------------------------------- */

/* Without tls_ca the system's certificates are trusted, and libmariadb is told which: later versions would send a hash of the
 * password to a server that they do not trust. */
static void test_tls_system(void)
{
    char host[64], file[300], told[400] = "";
    snprintf(host, sizeof host, "localhost:%s", port);
    snprintf(file, sizeof file, "%s/tls/ca.pem", folder);
    setenv("SSL_CERT_FILE", file, 1);
    CU_ASSERT_EQUAL(reach(host, "tls = yes", told, sizeof told), MORTISE_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(told, ", TLS,"));
    unsetenv("SSL_CERT_FILE");
    CU_ASSERT_EQUAL(reach(host, "tls = yes", told, sizeof told), MORTISE_UNREACHABLE);
    CU_ASSERT(atomic_load(&trusting) > 1);
    CU_ASSERT_EQUAL(atomic_load(&trusting_none), 0);
}

/* With the certificate's name; an address, for which it is not. */
static void test_tls(void)
{
    char host[64], more[400], told[400] = "";
    snprintf(host, sizeof host, "localhost:%s", port);
    snprintf(more, sizeof more, "tls = yes\ntls_ca = %s/tls/ca.pem", folder);
    for (int i = 0; i < 5; i++) {
        CU_ASSERT_EQUAL(reach(host, more, told, sizeof told), MORTISE_OK);
        CU_ASSERT_PTR_NOT_NULL(strstr(told, ", TLS,"));
    }
    snprintf(host, sizeof host, "127.0.0.1:%s", port);
    CU_ASSERT_EQUAL(reach(host, more, told, sizeof told), MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(reach(host, "tls = no", told, sizeof told), MORTISE_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(told, ", no TLS,"));
}

static mortise_client *open_tls(int to_port, const char *settings, const char *more)
{
    char host[64], text[400];
    snprintf(host, sizeof host, "localhost:%d", to_port);
    snprintf(text, sizeof text, PASSWORD "tls = yes\ntls_ca = %s/tls/ca.pem\n%s", folder, more);
    return open_at(host, settings, text);
}

/* In this thread's queue of OpenSSL, as an application may; libmariadb of some systems uses another library. */
static void leave_error(void)
{
    void *crypto = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_NOLOAD);
    void (*begin)(void) = NULL, (*set)(int, int, const char *, ...) = NULL;
    *(void **)&begin = crypto != NULL ? dlsym(crypto, "ERR_new") : NULL;
    *(void **)&set = crypto != NULL ? dlsym(crypto, "ERR_set_error") : NULL;
    if (begin != NULL && set != NULL) {
        begin();
        set(128, 1, NULL);
    }
}

/* Leases over TLS, and a connection that ends meanwhile. */
static void test_tls_leases(void)
{
    mortise_client *client = open_tls((int)strtol(port, NULL, 10), "renew_every = 50ms", "");
    for (int i = 0; i < 3; i++) {
        mortise_lease *lease = take(client, "tls", HOLD_MS);
        CU_ASSERT_STRING_EQUAL(ask("KILL USER mortise; SELECT 'killed'"), "killed");
        leave_error();
        give(lease);
    }
    mortise_close(client, NULL);
}

/* A statement sleeps in the server, and nothing in the client waits for its answer: renewals go on. */
static void test_tls_slow(void)
{
    struct caller caller;
    mortise_client *client =
        open_tls((int)strtol(port, NULL, 10), "renew_every = 50ms", "command_timeout = 600s");
    mortise_lease *lease = take(client, "quick", 10000);
    give(take(client, "slow", HOLD_MS));
    row_fault("slow", 1, SLEEPS);
    call_begin(&caller, client, "slow", NULL);
    CU_ASSERT(soon("SELECT count(*) " SLEEPERS, "1"));
    CU_ASSERT(is_renewed(client, lease, 20));
    kill_sleepers("QUERY");
    CU_ASSERT_EQUAL(call_end(&caller), MORTISE_OK);
    row_fault_end();
    give(lease);
    mortise_close(client, NULL);
}

struct record_call {
    mortise_client *client;
    uint64_t version;
    mortise_status status;
};

static void *write_record(void *argument)
{
    struct record_call *call = argument;
    call->status = mortise_record_write(call->client, "ghost", "new", 3, &call->version, &detail);
    return NULL;
}

/* The connection breaks while a record is written. Its session, which does not notice, is ended although no caller waits for
 * anything. A session that runs a trigger of another user would be hidden from this one. */
static void test_tls_ghost(void)
{
    static const char writes[] = "SELECT count(*) " SESSIONS " AND command = 'Query'";
    pthread_t thread;
    struct record_call call = {
        .client = open_tls(proxy.port, "", "command_timeout = 600s\nconnect_timeout = 60s")};
    CU_ASSERT_EQUAL(mortise_record_write(call.client, "ghost", "old", 3, &call.version, &detail),
                    MORTISE_OK);
    CU_ASSERT_STRING_EQUAL(
        ask("CREATE DEFINER = mortise@'%' TRIGGER late BEFORE UPDATE ON mortise_record FOR EACH "
            "ROW BEGIN WHILE NEW.version > 0 DO DO SLEEP"
            "(0.1); END WHILE; END;; SELECT 'armed'"),
        "armed");
    CU_ASSERT_FATAL(pthread_create(&thread, NULL, write_record, &call) == 0);
    CU_ASSERT(soon(writes, "1"));
    /* the handshake takes a while */
    CU_ASSERT(test_proxy_say(&proxy, "delay 30 both") && test_proxy_say(&proxy, "cut"));
    pthread_join(thread, NULL);
    CU_ASSERT_EQUAL(call.status, MORTISE_INDETERMINATE);
    CU_ASSERT(soon(writes, "0"));
    CU_ASSERT(test_proxy_say(&proxy, "pass"));
    CU_ASSERT_STRING_EQUAL(ask("DROP TRIGGER late; SELECT 'gone'"), "gone");
    mortise_close(call.client, NULL);
}

/* MySQL shows names of up to 255 bytes, with a port. All of it goes into the look for a session that was lost; with more the
 * server is none. */
static void test_long_host(void)
{
    static const char looks[] = "SELECT count(*) > 0 FROM mysql.general_log WHERE argument LIKE "
                                "CONCAT('SELECT 1 FROM%host=X''', REPEAT('70', 261), '''')";
    char name[300], host[64], told[400];
    memset(name, 'p', sizeof name);
    name[261] = '\0';
    ask("SET GLOBAL log_output = 'TABLE'; SET GLOBAL general_log = 1");
    atomic_store(&peer_name, name);
    mortise_client *client = open_proxied("", PASSWORD "command_timeout = 600s");
    give(take(client, "far", HOLD_MS));
    row_fault("far", 1, SLEEPS);
    give_up_when(client, "far", "SELECT count(*) " SLEEPERS, "1");
    CU_ASSERT(test_proxy_say(&proxy, "cut"));
    CU_ASSERT(soon(looks, "1"));
    kill_sleepers("CONNECTION"); /* whose host has another name */
    row_fault_end();
    mortise_close(client, NULL);
    name[261] = 'p';
    name[264] = '\0';
    snprintf(host, sizeof host, "127.0.0.1:%s", port);
    CU_ASSERT_EQUAL(reach(host, "", told, sizeof told), MORTISE_UNREACHABLE);
    says("longer name");
    atomic_store(&peer_name, NULL);
    ask("SET GLOBAL general_log = 0; SET GLOBAL log_output = DEFAULT");
}

/* ---- a server that stalls in the handshake ------------------------------------------------------ */

/* It greets as the real server does, which then expects TLS, and says nothing more. */
struct stall {
    int listener, port;
    pthread_t thread;
    atomic_int shaking; /* clients that are in their handshake */
};

static int connect_to(int to_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)to_port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CU_ASSERT_EQUAL_FATAL(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* The request for TLS has 36 bytes; what is behind it is the beginning of the handshake. Ends with the listener. */
static void *stall_run(void *argument)
{
    struct stall *stall = argument;
    char greeting[512], bytes[37];
    int clients[8], count = 0, real = connect_to((int)strtol(port, NULL, 10));
    ssize_t len = recv(real, greeting, sizeof greeting, 0);
    close(real);
    while (count < 8 && (clients[count] = accept(stall->listener, NULL, NULL)) >= 0) {
        if (send(clients[count], greeting, (size_t)len, MSG_NOSIGNAL) == len &&
            recv(clients[count], bytes, sizeof bytes, MSG_WAITALL) == (ssize_t)sizeof bytes)
            atomic_fetch_add(&stall->shaking, 1);
        count++;
    }
    while (count > 0)
        close(clients[--count]);
    return NULL;
}

/* Nobody listens at its port yet. */
static void stall_make(struct stall *stall)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    *stall = (struct stall){.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    CU_ASSERT_EQUAL_FATAL(bind(stall->listener, (struct sockaddr *)&address, sizeof address), 0);
    CU_ASSERT_EQUAL_FATAL(getsockname(stall->listener, (struct sockaddr *)&address, &size), 0);
    stall->port = ntohs(address.sin_port);
}

static void stall_begin(struct stall *stall)
{
    CU_ASSERT_EQUAL_FATAL(listen(stall->listener, 8), 0);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&stall->thread, NULL, stall_run, stall), 0);
}

static void stall_end(struct stall *stall)
{
    shutdown(stall->listener, SHUT_RDWR);
    pthread_join(stall->thread, NULL);
    close(stall->listener);
}

/* How many sockets of this process are connected to that port, and would be a program's that it starts. */
static int inherited_count(int to_port)
{
    int count = 0;
    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_in peer = {.sin_family = AF_UNSPEC};
        socklen_t size = sizeof peer;
        count += getpeername(fd, (struct sockaddr *)&peer, &size) == 0 &&
                 ntohs(peer.sin_port) == to_port && (fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0;
    }
    return count;
}

static bool has_shaken(void *argument)
{
    struct stall *stall = argument;
    return atomic_load(&stall->shaking) > 0;
}

/* The first connection is made again, and stalls; the second one renews meanwhile. Then the client is closed. */
static void test_handshake_stalls(void)
{
    struct stall stall;
    char host[80], more[400];
    stall_make(&stall);
    snprintf(host, sizeof host, "localhost:%d, localhost:%s", stall.port, port);
    snprintf(more, sizeof more, PASSWORD "tls = yes\ntls_ca = %s/tls/ca.pem\nconnect_timeout = 60s",
             folder);
    mortise_client *client = open_at(host, "renew_every = 50ms\nclose_timeout = 1s", more);
    mortise_lease *lease = take(client, "stalled", 4000);
    CU_ASSERT(soon("SELECT count(*) " SESSIONS, "2") && is_renewed(client, lease, 2));
    stall_begin(&stall);
    char sql[80];
    snprintf(sql, sizeof sql, "KILL %.20s; SELECT 'killed'", ask("SELECT MIN(id) " SESSIONS));
    CU_ASSERT_STRING_EQUAL(ask(sql), "killed");
    mortise_lease *other = NULL; /* makes the connection again */
    CU_ASSERT_EQUAL(mortise_acquire(client, "other", MORTISE_OPTIONS(.wait_ms = 10), &other, NULL),
                    MORTISE_TIMEDOUT);
    CU_ASSERT(test_poll(has_shaken, &stall, PATIENCE_MS));
    CU_ASSERT_EQUAL(inherited_count(stall.port), 0);
    CU_ASSERT(is_renewed(client, lease, 20));
    mortise_close(client, NULL); /* while it connects; the lease is left to its ttl */
    stall_end(&stall);
    ask("DELETE FROM mortise_lock WHERE name = 'stalled'");
}

/* The address is passed by when its share of connect_timeout is over. */
static void test_handshake_passed_by(void)
{
    struct stall stall;
    char host[80], more[400], told[400];
    stall_make(&stall);
    stall_begin(&stall);
    snprintf(more, sizeof more, "tls = yes\ntls_ca = %s/tls/ca.pem\nconnect_timeout = 3s", folder);
    snprintf(host, sizeof host, "127.0.0.1:%d, localhost:%s", stall.port, port);
    CU_ASSERT_EQUAL(reach(host, more, told, sizeof told), MORTISE_OK);
    CU_ASSERT(atomic_load(&stall.shaking) > 0);
    stall_end(&stall);
}

static void test_wrong_password(void)
{
    char host[64], told[400];
    snprintf(host, sizeof host, "127.0.0.1:%s", port);
    CU_ASSERT_EQUAL(reach(host, "password = another", told, sizeof told), MORTISE_UNREACHABLE);
    says("Access denied");
    CU_ASSERT_PTR_NULL(strstr(detail.message, "another"));
    CU_ASSERT_EQUAL(reach(host, "database = nowhere", told, sizeof told), MORTISE_BACKEND);
}

static void test_config(void)
{
    static const struct {
        const char *host, *more, *words;
    } cases[] = {
        {"127.0.0.1", "database = /", "[mysql] database"},
        {"", "", "either host or socket"},
        {"127.0.0.1", "socket = /tmp/s", "either host or socket"},
        {"", "socket = /tmp/s\ntls = yes", "not through a socket"},
        {"127.0.0.1:0", "", "host:port"},
        {"127.0.0.1:65536", "", "host:port"},
        {"db1,,db2", "", "host:port"},
        {"[::1", "", "host:port"},
        {"127.0.0.1", "tls_cert = /tmp/c", "need each other"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mortise_client *client = NULL;
        CU_ASSERT_EQUAL(open_where(cases[i].host, "", cases[i].more, &client), MORTISE_CONFIG);
        says(cases[i].words);
        mortise_close(client, NULL);
    }
}

/* Through the unix socket; and what libmariadb changes for the whole process stays as it was. */
static void test_socket(void)
{
    char more[300], told[400];
    struct sigaction action;
    signal(SIGPIPE, SIG_DFL);
    snprintf(more, sizeof more, "socket = %s/1/s", folder);
    CU_ASSERT_EQUAL(reach("", more, told, sizeof told), MORTISE_OK);
    sigaction(SIGPIPE, NULL, &action);
    CU_ASSERT(action.sa_handler == SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
}

/* ---- rights and tables ------------------------------------------------------------------------- */

static void test_rights(void)
{
    char host[64];
    snprintf(host, sizeof host, "127.0.0.1:%s", port);
    ask("CREATE DATABASE bare; CREATE USER poor@'%'; GRANT SELECT, INSERT, UPDATE, DELETE ON "
        "bare.* TO poor@'%'");
    mortise_client *client =
        open_at(host, "unreachable_timeout = 5s", "user = poor\ndatabase = bare");
    CU_ASSERT_EQUAL(try_for(client, "poor", 0), MORTISE_BACKEND);
    says("mortise schema mysql");
    mortise_client *owner = open_at(host, "", "user = root\ndatabase = bare");
    CU_ASSERT_EQUAL(try_for(owner, "poor", 0), MORTISE_OK);
    CU_ASSERT_EQUAL(try_for(client, "poor", 0), MORTISE_OK);
    mortise_close(owner, NULL);
    ask("UPDATE bare.mortise_meta SET value = '2' WHERE name = 'layout'; KILL USER poor");
    CU_ASSERT_EQUAL(try_for(client, "poor", 0), MORTISE_BACKEND);
    says("layout of its tables is \"2\"");
    ask("UPDATE bare.mortise_meta SET value = '1' WHERE name = 'layout'");
    ask("ALTER TABLE bare.mortise_lock ENGINE = Aria");
    CU_ASSERT_EQUAL(try_for(client, "poor", 0), MORTISE_BACKEND);
    says("not in InnoDB");
    ask("DROP TABLE bare.mortise_lock");
    CU_ASSERT_EQUAL(try_for(client, "poor", 0), MORTISE_BACKEND);
    says("some of the tables are missing");
    mortise_close(client, NULL);
    ask("DROP DATABASE bare");
}

/* Names that other comparisons would take for the same one. */
static void test_names(void)
{
    static const char *const names[] = {
        "n",   "N",        "n ",       "n  ",      " n",
        "n\t", "\xc3\xa4", "a",        "\xc3\x84", "'; DROP TABLE mortise_lock; -- ",
        "\\",  "\\'",      "\xff\xfe", "%",        "n\n"};
    enum { COUNT = sizeof names / sizeof *names };
    mortise_lease *leases[COUNT];
    mortise_client *client = open_client("", PASSWORD), *other = open_client("", PASSWORD);
    for (size_t i = 0; i < COUNT; i++)
        leases[i] = take(client, names[i], HOLD_MS);
    for (size_t i = 0; i < COUNT; i++) {
        CU_ASSERT_EQUAL(try_for(other, names[i], 0), MORTISE_BUSY);
        give(leases[i]);
        CU_ASSERT_EQUAL(try_for(other, names[i], 0), MORTISE_OK);
    }
    mortise_close(client, NULL);
    mortise_close(other, NULL);
}

static bool count_name(const mortise_info *info, void *user_data)
{
    (void)info;
    ++*(size_t *)user_data;
    return true;
}

/* Each of many names is listed. */
static void test_list(void)
{
    enum { COUNT = 20 };
    mortise_lease *leases[COUNT];
    mortise_client *client = open_client("", PASSWORD);
    size_t count = 0;
    for (size_t i = 0; i < COUNT; i++) {
        char name[16];
        snprintf(name, sizeof name, "listed %zu", i);
        leases[i] = take(client, name, HOLD_MS);
    }
    CU_ASSERT_EQUAL(mortise_list(client, "listed", count_name, &count, &detail), MORTISE_OK);
    CU_ASSERT_EQUAL(count, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        give(leases[i]);
    mortise_close(client, NULL);
}

/* What the server sets for each session does not matter. The limit is more than the driver asks for when it connects. */
static void test_server_settings(void)
{
    ask("SET GLOBAL sql_mode = "
        "'ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES,ORACLE,PAD_CHAR_TO_FULL_LENGTH'; "
        "SET GLOBAL time_zone = '+13:00'; SET GLOBAL autocommit = 0; "
        "SET GLOBAL tx_isolation = 'SERIALIZABLE'; SET GLOBAL tx_read_only = 1; "
        "SET GLOBAL completion_type = 1; SET GLOBAL sql_select_limit = 15; "
        "SET GLOBAL character_set_server = 'ucs2'; SET GLOBAL collation_connection = "
        "'latin1_german1_ci'; SET GLOBAL max_join_size = 10; "
        "SET GLOBAL init_connect = 'SET SESSION timestamp = 1000000000, group_concat_max_len = 5'");
    test_names();
    test_list();
    mortise_client *client = open_client("", PASSWORD);
    mortise_lease *lease = take(client, "settings", 30000);
    CU_ASSERT_STRING_EQUAL(
        ask("SELECT ABS(expires_at / 1000000 - UNIX_TIMESTAMP() - 30) < 20 FROM mortise_lock "
            "WHERE name = 'settings'"),
        "1");
    give(lease);
    mortise_close(client, NULL);
    ask("SET GLOBAL sql_mode = DEFAULT; SET GLOBAL time_zone = 'SYSTEM'; SET GLOBAL autocommit = "
        "1; SET GLOBAL max_join_size = DEFAULT; "
        "SET GLOBAL tx_isolation = 'REPEATABLE-READ'; SET GLOBAL tx_read_only = 0; "
        "SET GLOBAL completion_type = 0; SET GLOBAL sql_select_limit = DEFAULT; "
        "SET GLOBAL character_set_server = 'utf8mb4'; SET GLOBAL init_connect = ''");
}

/* The server is alone, but knows the settings; its trigger tells those of the session that writes. */
static void test_galera(void)
{
    ask("SET GLOBAL wsrep_dirty_reads = ON");
    CU_ASSERT_STRING_EQUAL(
        ask("CREATE DEFINER = mortise@'%' TRIGGER told BEFORE UPDATE ON mortise_lock FOR EACH ROW "
            "SET NEW.note = CONCAT(@@wsrep_sync_wait, ' ', @@wsrep_dirty_reads + 0);; SELECT 1"),
        "1");
    for (int i = 0; i < 2; i++) {
        atomic_store(&galera, i > 0);
        mortise_client *client = open_client("", PASSWORD);
        give(take(client, "told", HOLD_MS));
        CU_ASSERT_STRING_EQUAL(ask("SELECT note FROM mortise_lock WHERE name = 'told'"),
                               i > 0 ? "7 0" : "0 1");
        mortise_close(client, NULL);
    }
    atomic_store(&galera, false);
    ask("DROP TRIGGER told; SET GLOBAL wsrep_dirty_reads = OFF");
}

/* MySQL may find damaged pages, and not mend them. */
static void test_doublewrite(void)
{
    static char detects[] = "DETECT_ONLY";
    char host[64], told[1000];
    snprintf(host, sizeof host, "127.0.0.1:%s", port);
    atomic_store(&doublewrite, detects);
    CU_ASSERT_EQUAL(reach(host, "", told, sizeof told), MORTISE_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(told, "risk: innodb_doublewrite is DETECT_ONLY"));
    atomic_store(&doublewrite, NULL);
}

int main(int argc, char **argv)
{
    CU_TestInfo tests[] = {
        {"TLS: the right name, a wrong one", test_tls},
        {"TLS: the system's CAs, a CA that nobody trusts", test_tls_system},
        {"TLS: leases", test_tls_leases},
        {"TLS: a statement that takes long", test_tls_slow},
        {"TLS: a session that writes when its connection is gone", test_tls_ghost},
        {"a client's host with a long name", test_long_host},
        {"a server that stalls in the TLS handshake", test_handshake_stalls},
        {"and one after it", test_handshake_passed_by},
        {"a wrong password", test_wrong_password},
        {"settings that make no sense", test_config},
        {"a unix socket", test_socket},
        {"a user without rights, another layout, another engine", test_rights},
        {"names that look the same", test_names},
        {"settings of the server", test_server_settings},
        {"a node of Galera", test_galera},
        {"pages that cannot be mended", test_doublewrite},
        CU_TEST_INFO_NULL,
    };
    return server_run(tests, argc, argv);
}
