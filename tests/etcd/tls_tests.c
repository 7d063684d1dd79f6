/* tls_tests.c - TLS with certificates of both sides. */
#include "stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void test_tls(void)
{
    mortise_client *holder = client_direct("ttl=30s"), *client = client_direct("ttl=30s");
    const char *name = fresh_name();
    struct waiter waiter = {0};
    mortise_lease *lease = take(holder, name);
    waiter_start(&waiter, client, name);
    CHECK(wait_contenders(holder, name, 2));
    give_back(lease);
    CHECK(waiter_join(&waiter) == MORTISE_OK);
    give_back(waiter.lease);
    client_end(client);
    client_end(holder);
}

static void unreachable(const char *settings, const char *why)
{
    char all[1200];
    mortise_lease *lease = NULL;
    snprintf(all, sizeof all, "%s&connect_timeout=1s&unreachable_timeout=1s", settings);
    mortise_client *client = client_direct(all);
    EXPECT(UNREACHABLE,
           mortise_acquire(client, "name", MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS), &lease,
                           &detail));
    if (why)
        SAYS(why);
    mortise_close(client, NULL);
}

/* Without the CA; without a certificate of its own; without TLS. */
static void test_tls_refused(void)
{
    char settings[1000];
    snprintf(settings, sizeof settings, "tls=yes&tls_cert=%s&tls_key=%s", stage.cert, stage.key);
    unreachable(settings, "the certificate of the server is refused");
    snprintf(settings, sizeof settings, "tls=yes&tls_ca=%s", stage.ca);
    unreachable(settings, NULL);
    unreachable("tls=no", NULL);
}

/* A certificate that is no file is a mistake of the config. */
static void test_tls_config(void)
{
    char url[600];
    mortise_client *client = NULL;
    snprintf(url, sizeof url, "etcd://%s/mortise?tls=yes&tls_ca=/nowhere/ca.pem&log=none",
             stage.servers);
    EXPECT(CONFIG, mortise_open(url, &client, &detail));
    SAYS("/nowhere/ca.pem");
    snprintf(url, sizeof url, "etcd://%s/mortise?tls=yes&tls_ca=%s&tls_cert=%s&tls_key=%s&log=none",
             stage.servers, stage.ca, stage.cert, stage.ca);
    EXPECT(CONFIG, mortise_open(url, &client, &detail));
    SAYS("cannot use the key");
    snprintf(url, sizeof url, "etcd://%s/mortise?tls=yes&tls_ca=%s&tls_cert=%s&log=none",
             stage.servers, stage.ca, stage.cert);
    EXPECT(CONFIG, mortise_open(url, &client, &detail));
    SAYS("tls_cert and tls_key need each other");
}

/* A key that is encrypted is refused; nobody is asked for its password, neither on the terminal nor by the standard input, which
 * OpenSSL reads if there is no terminal. */
static void test_tls_password(void)
{
    char command[900], url[900];
    mortise_client *client = NULL;
    snprintf(command, sizeof command,
             "openssl pkey -aes128 -passout pass:secret -in '%s' -out '%s/locked.key'", stage.key,
             stage.folder);
    CU_ASSERT_EQUAL_FATAL(system(command), 0);
    int input = test_stdin_begin("secret\n");
    snprintf(url, sizeof url,
             "etcd://%s/mortise?tls=yes&tls_ca=%s&tls_cert=%s&tls_key=%s/locked.key&log=none",
             stage.servers, stage.ca, stage.cert, stage.folder);
    EXPECT(CONFIG, mortise_open(url, &client, &detail));
    SAYS("cannot use the key");
    mortise_close(client, NULL);
    CHECK(test_stdin_end(input, "secret\n"));
}

static void note_line(int level, const char *line, void *found)
{
    *(bool *)found |= level == 4 && strstr(line, "connections are not encrypted") != NULL;
}

/* Files for TLS, and no TLS: who wrote that may believe that it is on. Nothing else is said of them: they are not used. */
static void test_tls_off(void)
{
    static const char *const keys[] = {"tls_ca", "tls_cert", "tls_key"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char url[600];
        mortise_client *client = NULL;
        bool found = false;
        mortise_on_log(note_line, &found);
        snprintf(url, sizeof url, "etcd://%s/mortise?%s=%s", stage.servers, keys[i], stage.ca);
        EXPECT(OK, mortise_open(url, &client, &detail));
        client_end(client);
        mortise_on_log(NULL, NULL);
        CHECK(found);
    }
}

static void copy(const char *from, const char *folder, const char *to)
{
    char command[900];
    snprintf(command, sizeof command, "cp '%s' '%s/%s'", from, folder, to);
    CU_ASSERT_EQUAL_FATAL(system(command), 0);
}

static void count_unread(int level, const char *line, void *count)
{
    *(int *)count += level == 4 && strstr(line, "the files of TLS stay") != NULL;
}

/* What is written there cannot be read. That is said, and not before each attempt. */
static void spoil(mortise_client *client)
{
    mortise_info info = {.size = sizeof info};
    int count = 0, further = 0;
    mortise_on_log(count_unread, &count);
    copy(stage.key, stage.folder, "used.pem");
    for (int i = 0; i < 20 && further < 3; i++) {
        EXPECT(UNREACHABLE, mortise_inspect(client, "name", &info, &detail));
        further += count > 0;
    }
    mortise_on_log(NULL, NULL);
    CHECK(count == 1);
}

/* The files are replaced under a client that runs: at first its certificate is a stranger's, then its CA is. */
static void test_tls_replaced(void)
{
    char command[900], url[1200];
    mortise_client *client = NULL;
    mortise_info info = {.size = sizeof info};
    snprintf(
        command, sizeof command,
        "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=stranger -keyout '%s/s.key'"
        " -out '%s/s.pem' 2>/dev/null",
        stage.folder, stage.folder);
    CU_ASSERT_EQUAL_FATAL(system(command), 0);
    for (int is_ca = 0; is_ca < 2; is_ca++) {
        char pem[300], key[300];
        snprintf(pem, sizeof pem, "%s/s.pem", stage.folder);
        snprintf(key, sizeof key, "%s/s.key", stage.folder);
        copy(is_ca ? pem : stage.ca, stage.folder, "used-ca.pem");
        copy(is_ca ? stage.cert : pem, stage.folder, "used.pem");
        copy(is_ca ? stage.key : key, stage.folder, "used.key");
        snprintf(url, sizeof url,
                 "etcd://%s/mortise?tls=yes&tls_ca=%s/used-ca.pem&tls_cert=%s/used.pem"
                 "&tls_key=%s/used.key&connect_timeout=500ms",
                 stage.servers, stage.folder, stage.folder, stage.folder);
        EXPECT(OK, mortise_open(url, &client, &detail));
        EXPECT(UNREACHABLE, mortise_inspect(client, "name", &info, &detail));
        spoil(client);
        copy(stage.ca, stage.folder, "used-ca.pem");
        copy(stage.cert, stage.folder, "used.pem");
        copy(stage.key, stage.folder, "used.key");
        give_back(take(client, fresh_name()));
        client_end(client);
    }
}

/* An answer of some megabytes, in hundreds of records of TLS. */
static void test_tls_large(void)
{
    static char value[100001];
    char key[64];
    mortise_client *client = client_direct("ttl=30s");
    mortise_info info = {.size = sizeof info};
    memset(value, 'x', sizeof value - 1);
    for (int i = 0; i < 30; i++) {
        snprintf(key, sizeof key, "mortise/large/%d", i);
        CHECK(CTL("put", key, value));
    }
    for (int i = 0; i < 5; i++) {
        EXPECT(OK, mortise_inspect(client, "large", &info, &detail));
        CHECK(info.held && info.waiters == 29);
    }
    CHECK(CTL("del", "--prefix", "mortise/large/"));
    client_end(client);
}

const CU_TestInfo tls_tests[] = {
    {"both certificates", test_tls},
    {"refused", test_tls_refused},
    {"config", test_tls_config},
    {"a key with a password", test_tls_password},
    {"files without TLS", test_tls_off},
    {"files are replaced", test_tls_replaced},
    {"an answer of megabytes", test_tls_large},
    CU_TEST_INFO_NULL,
};
