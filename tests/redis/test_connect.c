/* test_connect.c - ways to connect: a socket, IPv6, a database, users and passwords, a client name that the server
 * shows. What this build does not support is refused at once. And a program that closes the connection by mistake. */
#include "rig.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct server server, six, secret;

/* A lock by this URL or path is this key in this database. */
static void expect_key(struct server *where, const char *url, int database)
{
    mortise_client *client = NULL;
    char text[256];
    snprintf(doing, sizeof doing, "%.100s", url);
    if (!EXPECT(OK, mortise_open(url, &client, &detail)))
        return;
    mortise_lease *lease = take(client, "way");
    EXPECT(OK, mortise_ping(client, text, sizeof text, &detail));
    CHECK(strncmp(text, "Redis ", 6) == 0);
    CHECK(ask_is(where, "OK", "SELECT %d", database));
    CHECK(holds(where, "way") == 1);
    if (lease)
        give(lease);
    CHECK(holds(where, "way") == 0);
    CHECK(ask_is(where, "OK", "SELECT 0"));
    close_client(client);
}

static void test_socket(void)
{
    char text[256];
    mortise_client *client = open_at(&server, server.socket, NULL, NULL);
    mortise_lease *lease = take(client, "by socket");
    CHECK(holds(&server, "by socket") == 1);
    EXPECT(OK, mortise_ping(client, text, sizeof text, &detail));
    CHECK(strstr(text, server.socket) != NULL);
    give(lease);
    close_client(client);
    client = open_at(&server, "/nonexistent/redis.sock", "unreachable_timeout = 100ms", NULL);
    EXPECT(UNREACHABLE, mortise_ping(client, text, sizeof text, &detail));
    SAYS("/nonexistent/redis.sock: No such file");
    mortise_close(client, NULL);
}

static void test_ipv6(void)
{
    char url[100];
    if (six.port == 0) {
        puts("(skipped: this host has no ::1)");
        return;
    }
    snprintf(url, sizeof url, "redis://[::1]:%d", six.port);
    expect_key(&six, url, 0);
}

static void test_host_name(void)
{
    char url[100];
    snprintf(url, sizeof url, "redis://localhost:%d",
             server.port); /* ::1 refuses; the next address does not */
    expect_key(&server, url, 0);
}

static void test_database(void)
{
    char url[100];
    mortise_lease *lease;
    snprintf(url, sizeof url, "redis://127.0.0.1:%d/3", server.port);
    expect_key(&server, url, 3);
    mortise_client *client = open_at(&server, NULL, NULL, "database = 16");
    EXPECT(BACKEND, mortise_acquire(client, "way", MORTISE_OPTIONS(.wait_ms = 0), &lease, &detail));
    SAYS("DB index is out of range");
    close_client(client);
}

static void test_client_name(void)
{
    char wanted[64];
    mortise_client *client = open_at(&server, NULL, NULL, NULL);
    give(take(client, "named"));
    redisReply *list = ask(&server, "CLIENT LIST");
    const char *name = list && list->str ? strstr(list->str, " name=mortise:") : NULL;
    snprintf(wanted, sizeof wanted, ":%d:", (int)getpid());
    CHECK(name != NULL && strstr(name, wanted) != NULL);
    CHECK(name != NULL && strstr(name, wanted) < strchr(name + 1, ' '));
    freeReplyObject(list);
    close_client(client);
}

static void test_passwords(void)
{
    char url[120], path[300], settings[400];
    mortise_client *client = NULL;
    snprintf(url, sizeof url, "redis://mortise:secret@127.0.0.1:%d", secret.port);
    expect_key(&secret, url, 0);
    EXPECT(OK, mortise_open(url, &client, &detail));
    CHECK(strstr(mortise_config_source(client), "secret") == NULL);
    close_client(client);
    snprintf(path, sizeof path, "%s/password", secret.folder);
    CHECK(test_file_write(path, "secret\n"));
    snprintf(settings, sizeof settings, "username = mortise\npassword_file = %s\n", path);
    client = open_at(&secret, NULL, NULL, settings);
    EXPECT(OK, try_once(client, "by file"));
    close_client(client);
}

static void expect_config(const char *servers, const char *redis, const char *says)
{
    mortise_client *client = NULL;
    char *path = config_at(&server, servers, NULL, redis);
    snprintf(doing, sizeof doing, "%.100s", servers ? servers : redis);
    EXPECT(CONFIG, mortise_open(path, &client, &detail));
    SAYS(says);
    CHECK(strstr(detail.message, "hunter2") == NULL);
    free(path);
}

static void test_wrong_settings(void)
{
    expect_config(NULL, "username = me\n", "username needs a password");
    expect_config(NULL, "dialect = redisson\n", "needs mode = hash");
    expect_config(NULL, "mode = hash\natomicity = watch\n", "set atomicity = lua");
    expect_config(NULL, "mode = hash\ndialect = redisson\natomicity = watch\n",
                  "mode = string only");
    expect_config(NULL, "queue = yes\natomicity = watch\n", "set queue = no");
    expect_config(NULL, "tls_cert = /a\n", "tls_key");
    expect_config(NULL, "database = -1\n", "database");
    expect_config(NULL, "tls = maybe\n", "tls = \"maybe\": expected no or yes");
    expect_config("a:1, ", "", "missing between the commas");
    expect_config("[::1", "", "host");
    expect_config("fe80::1", "", "brackets");
    expect_config("a:70000", "", "port");
    expect_config(":hunter2@127.0.0.1", "", "servers");
}

/* Of two sections the message names the one that is wrong. */
static void test_section_name(void)
{
    mortise_client *client = NULL;
    char path[300];
    snprintf(path, sizeof path, "%s/cache.conf", server.folder);
    CHECK(test_file_write(path, "[mortise]\ndriver = redis:cache\n[redis:cache]\n"
                                "dialect = redisson\n"));
    EXPECT(CONFIG, mortise_open(path, &client, &detail));
    SAYS("[redis:cache] dialect = redisson needs mode = hash");
    CHECK(test_file_write(path, "[mortise]\ndriver = redlock:three\n[redlock:three]\n"
                                "nodes = a, b\n"));
    EXPECT(CONFIG, mortise_open(path, &client, &detail));
    SAYS("[redlock:three]");
}

/* Where the build has TLS, a server without it is refused, and not spoken to in plain text. */
static void expect_tls(const char *where)
{
    mortise_client *client = NULL;
    mortise_lease *lease = NULL;
    snprintf(doing, sizeof doing, "%.100s", where);
    CHECK(server_is_clean(&server)); /* nobody else asks anything */
    int64_t before = info_number(&server, "stats", "total_commands_processed");
    mortise_status status = mortise_open(where, &client, &detail);
    if (status == MORTISE_OK) {
        CHECK(mortise_acquire(client, "tls", MORTISE_OPTIONS(.wait_ms = 0), &lease, &detail) !=
              MORTISE_OK);
        mortise_close(client, NULL);
    } else {
        EXPECT(CONFIG, status);
        SAYS("TLS is asked for, but this build has none");
        SAYS("hiredis 1.0");
    }
    CHECK(info_number(&server, "stats", "total_commands_processed") == before + 1);
}

static void test_tls(void)
{
    char url[100];
    snprintf(url, sizeof url, "rediss://127.0.0.1:%d?unreachable_timeout=200ms", server.port);
    expect_tls(url);
    snprintf(url, sizeof url, "redis://127.0.0.1:%d?tls=yes&unreachable_timeout=200ms",
             server.port);
    expect_tls(url);
    EXPECT(CONFIG, mortise_open("rediss://127.0.0.1?tls=no", &(mortise_client *){NULL}, &detail));
    SAYS("tls = no contradicts the name rediss");
}

/* A file that calls the driver `name`, and has its settings in `section`. */
static const char *file_with(const char *name, const char *section, const char *settings)
{
    static char path[300];
    char text[1200];
    snprintf(doing, sizeof doing, "%s, [%s] %s", name, section, settings);
    snprintf(path, sizeof path, "%s/named.conf", server.folder);
    snprintf(text, sizeof text,
             "[mortise]\ndriver = %s\nunreachable_timeout = 200ms\n[%s]\nservers = "
             "127.0.0.1:%d\n%s\n",
             name, section, server.port, settings);
    CHECK(test_file_write(path, text));
    return path;
}

/* What a scheme says in a URL, it says as the name of the driver in a file. */
static void test_names(void)
{
    char other[300];
    mortise_client *client = NULL;
    expect_tls(file_with("rediss", "redis", ""));
    expect_tls(file_with("rediss", "redis", "tls = yes"));
    expect_tls(file_with("rediss", "rediss", ""));
    expect_tls(file_with("rediss:x", "rediss:x", ""));
    expect_tls(file_with("rediss+cluster", "redis", ""));
    expect_tls(file_with("redis+cluster", "redis", "tls = yes"));
    expect_tls(file_with("redis", "redis", "scheme = rediss"));
    snprintf(other, sizeof other, "%s#rediss", file_with("redis", "redis", ""));
    expect_tls(other);
    EXPECT(CONFIG, mortise_open(file_with("rediss", "redis", "tls = no"), &client, &detail));
    SAYS("[redis] tls = no contradicts the name rediss");
    EXPECT(CONFIG, mortise_open(file_with("rediss", "redis", "scheme = redis"), &client, &detail));
    SAYS("[redis] driver: scheme is given already, in line 6");
    EXPECT(CONFIG,
           mortise_open(file_with("redis+cluster", "redis", "database = 1"), &client, &detail));
    SAYS("a cluster has no database but 0");
    EXPECT(OK, mortise_open(file_with("redis", "redis", "tls = no"), &client, &detail));
    give(take(client, "plain"));
    close_client(client);
}

static void note_warning(int level, const char *line, void *count)
{
    if (level == 4 && strstr(line, "connections are not encrypted: tls_ca") != NULL)
        atomic_fetch_add((atomic_int *)count, 1);
}

static bool has_warned(void *count)
{
    return atomic_load((atomic_int *)count) > 0;
}

static int warnings_of(const char *path, bool expected)
{
    static atomic_int count;
    mortise_client *client = NULL;
    atomic_store(&count, 0);
    mortise_on_log(note_warning, &count);
    if (EXPECT(OK, mortise_open(path, &client, &detail)))
        close_client(client);
    CHECK(!expected ||
          test_poll(has_warned, &count, TEST_PATIENCE_MS)); /* a thread of the log writes it */
    mortise_on_log(NULL, NULL);
    return atomic_load(&count);
}

/* Files for TLS, and no TLS: who wrote that may believe that it is on. */
static void test_tls_off(void)
{
    char path[300];
    CHECK(warnings_of(file_with("redis", "redis", ""), false) == 0);
    CHECK(warnings_of(file_with("redis", "redis", "tls_ca = /a"), true) == 1);
    CHECK(warnings_of(file_with("redis", "redis", "tls_cert = /a\ntls_key = /b"), true) == 1);
    snprintf(path, sizeof path, "%s/three.conf", server.folder);
    CHECK(test_file_write(path, "[mortise]\ndriver = redlock\n[redlock]\nnodes = a, b, c\n"
                                "tls_ca = /a\n"));
    CHECK(warnings_of(path, true) == 1);
}

/* Nobody is asked for the pass phrase of a key, neither on the terminal nor by the standard input, which OpenSSL reads if there is
 * no terminal. */
static void test_tls_password(void)
{
    char command[900], settings[700];
    snprintf(command, sizeof command,
             "openssl req -x509 -newkey rsa:2048 -passout pass:secret -subj /CN=client -keyout "
             "'%s/locked.key' -out '%s/client.pem' 2>/dev/null",
             server.folder, server.folder);
    CU_ASSERT_EQUAL_FATAL(system(command), 0);
    int input = test_stdin_begin("secret\n");
    snprintf(settings, sizeof settings,
             "tls_ca = %s/client.pem\ntls_cert = %s/client.pem\ntls_key = %s/locked.key",
             server.folder, server.folder, server.folder);
    expect_tls(file_with("rediss", "redis", settings));
    CHECK(test_stdin_end(input, "secret\n"));
}

static void test_foreign_socket(void)
{
    for (int full = 0; full < 2; full++) {
        struct test_proxy proxy;
        snprintf(doing, sizeof doing, "%s", full ? "sending" : "receiving");
        if (!start_proxy(&server, &proxy))
            return;
        mortise_client *client = open_by(&server, &proxy, NULL, "command_timeout = 300ms\n");
        CHECK(wait_works(client));
        put_foreign_socket(client, proxy.port, full);
        close_client(client);
        test_proxy_end(&proxy);
    }
}

static const CU_TestInfo tests[] = {
    {"a unix socket", test_socket},
    {"IPv6", test_ipv6},
    {"a host name with two addresses", test_host_name},
    {"a database", test_database},
    {"the client's name in the server", test_client_name},
    {"users, passwords, password files", test_passwords},
    {"settings that are wrong", test_wrong_settings},
    {"the name of the section", test_section_name},
    {"rediss:// is TLS or nothing", test_tls},
    {"the driver's other names in a file", test_names},
    {"files of TLS, and no TLS", test_tls_off},
    {"a key with a pass phrase", test_tls_password},
    {"the program's socket under the number of the connection", test_foreign_socket},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    static const char *const with_socket[] = {"socket=yes", NULL};
    static const char *const with_ipv6[] = {"ipv6=yes", NULL};
    static const char *const users[] = {"user=mortise", "password=secret", NULL};
    int code = server_start(&server, with_socket);
    if (code == 0)
        code = server_start(&six, with_ipv6);
    if (code == TEST_SKIP_CODE) /* of that part only */
        code = six.port = 0;
    if (code == 0)
        code = server_start(&secret, users);
    if (code == 0)
        code = run_tests("redis: connecting", tests, argc, argv);
    return servers_end((struct server *const[]){&server, &six, &secret}, 3, code);
}
