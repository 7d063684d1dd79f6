/* cover_tests.c - an acquire behind a release of the same client: it deletes the released key, too (it *covers* it), so what the answers
 * say, and when, decides the status of the release. And the turn of the waiter behind a holder. */
#include "stage.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static bool was_hit(void *argument)
{
    (void)argument;
    return middle_hits() > 0;
}

struct releaser {
    pthread_t thread;
    mortise_lease *lease;
    mortise_status status;
    atomic_bool is_done;
};

static void *releaser_main(void *argument)
{
    struct releaser *releaser = argument;
    releaser->status = mortise_release(releaser->lease, NULL);
    atomic_store(&releaser->is_done, true);
    return NULL;
}

static bool no_key_below(void *prefix)
{
    char keys[256];
    return keys_below(prefix, keys, sizeof(keys)) && keys[0] == '\0';
}

/* A release whose delete is done and not yet answered, and an acquire of the same client behind it: the acquire does not wait for
 * that answer, which still says whether the key was there. */
static void acquire_behind_release(bool is_deleted_by_hand, mortise_status expected)
{
    mortise_client *client = client_behind_middle("ttl=30s&unreachable_timeout=2m");
    const char *name = fresh_name();
    char prefix[128];
    snprintf(prefix, sizeof(prefix), "mortise/%s/", name);
    struct releaser releaser = {.lease = take(client, name)};
    middle_rule(
        &(struct rule){.method = "KV/DeleteRange", .contains = name, .fault = HOLD, .times = 1});
    if (is_deleted_by_hand)
        CHECK(CTL("del", "--prefix", prefix));
    pthread_create(&releaser.thread, NULL, releaser_main, &releaser);
    while (middle_hits() == 0 && !atomic_load(&releaser.is_done))
        let_pass(1);
    CHECK(test_poll(no_key_below, prefix,
                    TEST_PATIENCE_MS)); /* else the acquire might delete it first */
    mortise_lease *lease = take(client, name);
    if (!is_deleted_by_hand) /* else the driver may have heard of it before */
        CHECK(middle_hits() == 1 && !atomic_load(&releaser.is_done));
    middle_clear();
    pthread_join(releaser.thread, NULL);
    CHECK(releaser.status == expected);
    give_back(lease);
    client_end(client);
}

static void test_acquire_behind_release(void)
{
    acquire_behind_release(false, MORTISE_OK);
    acquire_behind_release(true, MORTISE_LOST);
}

/* The delete of a lease's key comes late, when the acquire that deletes that key too has been answered long ago. Meanwhile
 * another lease must not use the key. */
static void test_late_delete(void)
{
    mortise_client *client = client_behind_middle("ttl=30s");
    const char *name = fresh_name();
    mortise_lease *lease = take(client, name);
    middle_rule(
        &(struct rule){.method = "KV/DeleteRange", .contains = name, .fault = DELAY, .times = 1});
    EXPECT(OK, mortise_release_nowait(lease, &detail));
    give_back(take(client, name)); /* covers it */
    CHECK(middle_hits() == 1);
    lease = take(client, name);
    middle_clear();
    for (int i = 0; i < 3; i++) /* behind the delete */
        EXPECT(OK, mortise_ping(client, NULL, 0, &detail));
    CHECK(wait_contenders(client, name, 1));
    give_back(lease); /* OK: its key is still there */
    client_end(client);
}

/* The same for an acquire that deletes the key, too: it is executed when nobody wants it any more. */
static void test_late_acquire(void)
{
    mortise_client *client = client_behind_middle("ttl=30s");
    const char *name = fresh_name();
    mortise_lease *lease = take(client, name), *late = NULL;
    middle_rule(&(struct rule){.method = "KV/Txn", .contains = name, .fault = DELAY, .times = 1});
    EXPECT(OK, mortise_release_nowait(lease, &detail));
    mortise_status status =
        mortise_acquire(client, name, MORTISE_OPTIONS(.wait_ms = 200), &late, &detail);
    CHECK(status == MORTISE_INDETERMINATE || status == MORTISE_TIMEDOUT);
    CHECK(middle_hits() == 1);
    lease = take(client, name);
    middle_clear();
    for (int i = 0; i < 3; i++)
        EXPECT(OK, mortise_ping(client, NULL, 0, &detail));
    CHECK(wait_contenders(client, name, 1));
    give_back(lease);
    client_end(client);
}

/* ---- the answers in other orders ---- */

/* A release whose delete is delayed by the middle. */
static void release_delayed(struct releaser *releaser, mortise_client *client, const char *name,
                            int64_t ttl_ms)
{
    *releaser = (struct releaser){.lease = NULL};
    EXPECT(OK, mortise_acquire(client, name,
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = ttl_ms),
                               &releaser->lease, &detail));
    middle_rule(
        &(struct rule){.method = "KV/DeleteRange", .contains = name, .fault = DELAY, .times = 1});
    pthread_create(&releaser->thread, NULL, releaser_main, releaser);
    CHECK(test_poll(was_hit, NULL, TEST_PATIENCE_MS));
}

/* When everything has passed. */
static void both_succeed(struct releaser *releaser, struct waiter *waiter)
{
    for (int i = 0; i < 3; i++)
        EXPECT(OK, mortise_ping(waiter->client, NULL, 0, &detail));
    middle_clear();
    pthread_join(releaser->thread, NULL);
    CHECK(releaser->status == MORTISE_OK);
    CHECK(waiter_join(waiter) == MORTISE_OK);
    give_back(waiter->lease);
    client_end(waiter->client);
}

/* The delete comes behind the acquire that has deleted the key, and is answered first: no key. That is no loss. */
static void test_answered_first(void)
{
    mortise_client *client = client_behind_middle("ttl=30s");
    const char *name = fresh_name();
    struct releaser releaser;
    struct waiter waiter = {0};
    release_delayed(&releaser, client, name, 0);
    middle_rule(&(struct rule){.method = "KV/Txn", .contains = name, .fault = HOLD, .times = 1});
    waiter_start(&waiter, client, name);
    CHECK(test_poll(was_hit, NULL, TEST_PATIENCE_MS));
    middle_pass();
    both_succeed(&releaser, &waiter);
}

/* The acquire that has deleted the key is refused, so it does not say whether the key was there. */
static void test_refused_cover(void)
{
    mortise_client *client = client_behind_middle("ttl=30s");
    const char *name = fresh_name();
    struct releaser releaser;
    struct waiter waiter = {0};
    release_delayed(&releaser, client, name, 0);
    middle_rule(&(struct rule){.method = "KV/Txn",
                               .contains = name,
                               .fault = REFUSE,
                               .times = 1,
                               .status = 8,
                               .text = "etcdserver: mvcc: database space exceeded"});
    waiter_start(&waiter, client, name);
    CHECK(test_poll(was_hit, NULL, TEST_PATIENCE_MS));
    both_succeed(&releaser, &waiter);
}

struct keys {
    const char *name;
    char old[200], own[200]; /* the release's, and the acquire's */
};

static bool has_own_key(void *argument)
{
    struct keys *keys = argument;
    return key_of_name(keys->name, keys->old, keys->own, sizeof keys->own);
}

/* The session of the acquire that has deleted the key is over before that is answered; the acquire begins anew in another one. */
static void test_over_cover(void)
{
    mortise_client *client = client_behind_middle("ttl=60s");
    const char *name = fresh_name();
    struct keys keys = {.name = name};
    char lease[32];
    struct releaser releaser;
    struct waiter waiter = {0};
    release_delayed(&releaser, client, name, 30000);
    CU_ASSERT_FATAL(key_of_name(name, "", keys.old, sizeof keys.old));
    middle_rule(&(struct rule){.method = "KV/Txn", .contains = name, .fault = HOLD, .times = 1});
    waiter_start(&waiter, client, name);
    CHECK(test_poll(was_hit, NULL, TEST_PATIENCE_MS));
    CU_ASSERT_FATAL(test_poll(has_own_key, &keys, TEST_PATIENCE_MS));
    CU_ASSERT_FATAL(lease_of_key(keys.own, lease, sizeof lease));
    CHECK(CTL("lease", "revoke", lease));
    CHECK(waiter_join(&waiter) == MORTISE_OK);
    middle_clear();
    pthread_join(releaser.thread, NULL);
    CHECK(releaser.status == MORTISE_OK);
    give_back(waiter.lease);
    client_end(client);
}

/* ---- the turn ---- */

static bool is_done_or_hit(void *argument)
{
    return test_count_get(argument) > 0 || middle_hits() > 0;
}

/* Whoever is behind the holder needs no answer but the event. If its watch is late it does look. */
static bool needs_no_read(mortise_client *holder, mortise_client *client)
{
    const char *name = fresh_name();
    struct waiter waiter = {0};
    mortise_lease *lease = take(holder, name);
    waiter_start(&waiter, client, name);
    CHECK(wait_waiting(holder, client, name));
    middle_rule(&(struct rule){.method = "KV/Txn", .contains = name, .fault = HOLD, .times = 1000});
    give_back(lease);
    CHECK(test_poll(is_done_or_hit, &waiter.done, TEST_PATIENCE_MS));
    bool needs_none = middle_clear() == 0;
    CHECK(waiter_join(&waiter) == MORTISE_OK);
    give_back(waiter.lease);
    return needs_none;
}

static void test_turn(void)
{
    mortise_client *holder = client_direct("ttl=30s"), *client = client_behind_middle("ttl=30s");
    int tries = 1;
    while (tries < 5 && !needs_no_read(holder, client))
        tries++;
    CHECK(tries < 5);
    client_end(client);
    client_end(holder);
}

/* The waiter's key is deleted before it watches it: it is not its turn when the holder goes. is_read: it has read that by then. */
static void deleted_unwatched(bool is_read)
{
    mortise_client *holder = client_direct("ttl=30s"), *client = client_behind_middle("ttl=30s");
    const char *name = fresh_name();
    char first[200], second[200];
    const struct rule hold = {.method = "KV/Txn", .contains = name, .fault = HOLD, .times = 1};
    mortise_lease *lease = take(holder, name);
    struct waiter waiter = {0};
    CU_ASSERT_FATAL(key_of_name(name, "", first, sizeof first));
    middle_rule(&hold); /* the answer to the acquire, */
    waiter_start(&waiter, client, name);
    CHECK(test_poll(was_hit, NULL, TEST_PATIENCE_MS));
    CU_ASSERT_FATAL(key_of_name(name, first, second, sizeof second));
    CHECK(CTL("del", second));
    if (is_read)
        middle_clear();
    else { /* and that to the read of both keys */
        middle_rule(&hold);
        middle_pass();
        CHECK(test_poll(was_hit, NULL, TEST_PATIENCE_MS));
    }
    if (is_read) /* then it begins anew */
        CHECK(wait_waiting(holder, client, name));
    give_back(lease);
    CHECK(waiter_join(&waiter) == MORTISE_OK);
    CHECK(wait_contenders(holder, name, 1));
    middle_clear();
    give_back(waiter.lease);
    client_end(client);
    client_end(holder);
}

static void test_deleted_unwatched(void)
{
    deleted_unwatched(true);
    deleted_unwatched(false);
}

const CU_TestInfo cover_tests[] = {
    {"an acquire behind a release", test_acquire_behind_release},
    {"the release is answered first", test_answered_first},
    {"the acquire is refused", test_refused_cover},
    {"the acquire's session is over", test_over_cover},
    {"a late delete", test_late_delete},
    {"a late acquire", test_late_acquire},
    {"a turn needs no read", test_turn},
    {"deleted before it is watched", test_deleted_unwatched},
    CU_TEST_INFO_NULL,
};
