/* user_tests.c - a server with users: tokens that expire or are outdated, a wrong password, a missing right. */
#include "stage.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

/* A token that nobody uses for a second has expired. */
static void let_tokens_expire(void)
{
    let_pass(2500); /* the server looks for them once a second */
}

static void test_expired(void)
{
    mortise_client *client = client_direct("ttl=60s");
    mortise_lease *lease = take(client, fresh_name()), *other;
    for (int i = 0; i < 2; i++) {
        let_tokens_expire();
        other = take(client, fresh_name());
        give_back(other);
    }
    SAFE(mortise_state(lease) == MORTISE_STATE_HELD);
    give_back(lease);
    client_end(client);
}

/* The token that the watches began with has expired, and then there is something to see. */
static void test_expired_while_waiting(void)
{
    mortise_client *holder = client_direct("ttl=60s"), *client = client_direct("ttl=60s");
    const char *name = fresh_name();
    struct waiter waiter = {0};
    mortise_lease *lease = take(holder, name);
    waiter_start(&waiter, client, name);
    CHECK(wait_contenders(holder, name, 2));
    let_tokens_expire();
    give_back(lease);
    CHECK(waiter_join(&waiter) == MORTISE_OK);
    give_back(waiter.lease);
    client_end(client);
    client_end(holder);
}

/* A client whose stream of watches was opened with a token that has expired by now: the server refuses every later watch on it. Its
 * session lives, and so does its connection. */
static mortise_client *client_with_old_stream(void)
{
    mortise_client *client = client_direct("ttl=60s");
    give_back(take(client, fresh_name()));
    let_tokens_expire();
    return client;
}

static void test_expired_before_waiting(void)
{
    mortise_client *holder = client_direct("ttl=60s"), *client = client_with_old_stream();
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

/* Somebody deletes the key of a holder whose watch was refused: it learns that at its next renewal, a second later. */
static void test_expired_before_holding(void)
{
    char key[200];
    mortise_client *client = client_with_old_stream();
    const char *name = fresh_name();
    mortise_lease *lease = NULL;
    EXPECT(OK, mortise_acquire(client, name,
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = 3000), &lease,
                               &detail));
    CU_ASSERT_FATAL(key_of_name(name, "", key, sizeof key));
    CHECK(CTL("del", key));
    CHECK(wait_state(lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    EXPECT(LOST, mortise_release(lease, &detail));
    client_end(client);
}

/* Any change of users makes all tokens old. */
static void test_old(void)
{
    mortise_client *client = client_direct("ttl=60s");
    mortise_lease *lease = take(client, fresh_name());
    for (int i = 0; i < 3; i++) {
        char user[32];
        snprintf(user, sizeof user, "somebody-%d:x", i);
        CHECK(CTL("user", "add", user));
        give_back(take(client, fresh_name()));
    }
    give_back(lease);
    client_end(client);
}

/* The server has forgotten all tokens. */
static void test_restarted(void)
{
    mortise_client *client = client_direct("ttl=60s");
    const char *name = fresh_name();
    mortise_lease *lease = take(client, name);
    CHECK(stage_server("kill", 1));
    CHECK(stage_server("start", 1));
    CHECK(wait_contenders(client, name, 1));
    SAFE(mortise_state(lease) != MORTISE_STATE_LOST);
    give_back(lease);
    client_end(client);
}

/* Authentication is enabled under a client that has a user and, so far, no token. The beats go on, and so do acquires. */
static void test_enabled_later(void)
{
    CHECK(CTL("auth", "disable"));
    mortise_client *client = client_direct("ttl=1s");
    mortise_lease *lease = take(client, fresh_name());
    CHECK(CTL("auth", "enable"));
    let_pass(2500); /* its session lasts for two seconds */
    SAFE(mortise_state(lease) == MORTISE_STATE_HELD);
    give_back(take(client, fresh_name()));
    give_back(lease);
    client_end(client);
}

static void refused_as(const char *user, const char *password, const char *prefix, const char *why)
{
    char url[300];
    mortise_client *client = NULL;
    mortise_lease *lease = NULL;
    snprintf(url, sizeof url, "etcd://%s%s%s%s%s/%s?log=none", user, user[0] ? ":" : "", password,
             user[0] ? "@" : "", stage.servers, prefix);
    EXPECT(OK, mortise_open(url, &client, &detail));
    EXPECT(BACKEND, mortise_acquire(client, "name", MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS),
                                    &lease, &detail));
    SAYS(why);
    mortise_close(client, NULL);
}

static void test_refused(void)
{
    refused_as("locker", "wrong", "mortise", "authentication failed");
    refused_as("nobody", "secret", "mortise", "authentication failed");
    refused_as("", "", "mortise", "set user and password");
    refused_as("locker", "secret", "elsewhere", "permission denied");
    refused_as("locker", "secret", "elsewhere", "the right readwrite on the prefix");
}

static bool is_held_up(void *argument)
{
    (void)argument;
    return middle_hits() == 1;
}

static void *downgrade(void *lease)
{
    return (void *)(intptr_t)mortise_downgrade(lease, NULL);
}

/* Each answer of the greeting comes later than half of connect_timeout, both together later than `timeout`, each alone within that. */
static void test_slow_password(void)
{
    static const struct rule token = {
        .method = "Auth/Authenticate", .fault = HOLD, .times = 100000};
    static const struct rule status = {
        .method = "Maintenance/Status", .fault = HOLD, .times = 100000};
    char endpoints[80];
    struct waiter waiter = {0};
    snprintf(endpoints, sizeof endpoints, "127.0.0.1:%d,127.0.0.1:%d", stage.middle, stage.middle);
    middle_rule(&token);
    mortise_client *client =
        client_at(endpoints, "ttl=60s&timeout=4s&connect_timeout=2s&unreachable_timeout=60s");
    waiter_start(&waiter, client, fresh_name());
    CHECK(test_poll(is_held_up, NULL, TEST_PATIENCE_MS));
    let_pass(2500);
    CHECK(middle_hits() == 1);
    middle_rule(&status);
    middle_pass();
    CHECK(test_poll(is_held_up, NULL, TEST_PATIENCE_MS));
    let_pass(2500);
    CHECK(middle_clear() == 1);
    CHECK(waiter_join(&waiter) == MORTISE_OK);
    give_back(waiter.lease);
    client_end(client);
}

/* A new token is needed, and the server has too many requests to give one: that is no refusal of the user. */
static void test_too_many_requests(void)
{
    mortise_client *client = client_behind_middle("ttl=60s");
    mortise_lease *lease = take(client, fresh_name());
    let_tokens_expire();
    middle_rule(&(struct rule){.method = "Auth/Authenticate",
                               .fault = REFUSE_NOT,
                               .times = 1,
                               .status = 8,
                               .text = "etcdserver: too many requests"});
    give_back(take(client, fresh_name()));
    CHECK(middle_clear() == 1);
    SAFE(mortise_state(lease) != MORTISE_STATE_LOST);
    give_back(lease);
    client_end(client);
}

/* The user goes while a downgrade is on its way. It may have been executed, so it is asked again when the user is back. */
static void test_refused_behind_a_request(void)
{
    char user[160];
    mortise_client *client = client_behind_middle("ttl=60s");
    const char *name = fresh_name();
    mortise_lease *lease = take(client, name), *other = NULL;
    pthread_t thread;
    void *status;
    middle_rule(&(struct rule){.method = "KV/Txn", .contains = name, .fault = HOLD, .times = 1});
    CU_ASSERT_FATAL(pthread_create(&thread, NULL, downgrade, lease) == 0);
    CHECK(test_poll(is_held_up, NULL, TEST_PATIENCE_MS));
    CHECK(CTL("user", "delete", stage.user));
    EXPECT(BACKEND, mortise_acquire(client, fresh_name(),
                                    MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS), &other, &detail));
    SAYS("authentication failed");
    snprintf(user, sizeof user, "%s:%s", stage.user, stage.password);
    CHECK(CTL("user", "add", user));
    CHECK(CTL("user", "grant-role", stage.user, "locks"));
    middle_clear();
    pthread_join(thread, &status);
    CHECK((intptr_t)status == MORTISE_OK);
    give_back(lease);
    client_end(client);
}

/* The user goes while the client is connected to the first of two endpoints: the error names that one, not the next. */
static void test_refused_by_which(void)
{
    char endpoints[80], expected[80], user[160];
    snprintf(endpoints, sizeof endpoints, "127.0.0.1:%d,127.0.0.1:%d", stage.ports[0],
             stage.proxy.port);
    snprintf(expected, sizeof expected, "etcd 127.0.0.1:%d: ", stage.ports[0]);
    mortise_client *client = client_at(endpoints, "ttl=60s");
    mortise_lease *lease = take(client, fresh_name()), *other = NULL;
    CHECK(CTL("user", "delete", stage.user));
    EXPECT(BACKEND, mortise_acquire(client, fresh_name(),
                                    MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS), &other, &detail));
    SAYS("authentication failed");
    SAYS(expected);
    snprintf(user, sizeof user, "%s:%s", stage.user, stage.password);
    CHECK(CTL("user", "add", user));
    CHECK(CTL("user", "grant-role", stage.user, "locks"));
    give_back(lease);
    client_end(client);
}

/* The password is refused, and later nobody answers: that may pass, so it is no refusal. */
static void test_away_after_a_refusal(void)
{
    char url[300];
    mortise_client *client = NULL;
    mortise_lease *lease = NULL;
    snprintf(
        url, sizeof url,
        "etcd://%s:wrong@127.0.0.1:%d/mortise?log=none&connect_timeout=1s&unreachable_timeout=1s",
        stage.user, stage.proxy.port);
    EXPECT(OK, mortise_open(url, &client, &detail));
    EXPECT(BACKEND, mortise_acquire(client, "name", MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS),
                                    &lease, &detail));
    CHECK(test_proxy_say(&stage.proxy, "refuse"));
    EXPECT(UNREACHABLE,
           mortise_acquire(client, "name", MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS), &lease,
                           &detail));
    CHECK(test_proxy_say(&stage.proxy, "accept"));
    client_end(client);
}

const CU_TestInfo user_tests[] = {
    {"expired", test_expired},
    {"expired while somebody waits", test_expired_while_waiting},
    {"expired before somebody waits", test_expired_before_waiting},
    {"expired before a lock is held", test_expired_before_holding},
    {"outdated", test_old},
    {"forgotten", test_restarted},
    {"enabled later", test_enabled_later},
    {"refused", test_refused},
    {"a password is checked slowly", test_slow_password},
    {"too many requests for a token", test_too_many_requests},
    {"refused behind a request", test_refused_behind_a_request},
    {"refused by the first of two", test_refused_by_which},
    {"away after a refusal", test_away_after_a_refusal},
    CU_TEST_INFO_NULL,
};
