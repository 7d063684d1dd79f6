/* test_holding.c - faults that broke other clients while they held a lock: each test causes the fault of a public
 * issue on a real server, and has its name. test_waiting.c has those of waiting and releasing. */
#include "rig.h"

#include <stdio.h>
#include <string.h>

static struct server server;

/* ---- redisson#7272: a renewal under way when the lock is released makes it live for ever ------------------ */

static void renew_and_release(void *argument)
{
    const struct variant *variant = argument;
    struct test_proxy proxy;
    char name[64];
    snprintf(doing, sizeof doing, "%s", variant->name);
    snprintf(name, sizeof name, "outlives %s", variant->name);
    if (!start_proxy(&server, &proxy))
        return;
    mortise_client *client =
        open_by(&server, &proxy, "renew_every = 10ms\nhandover_max = 0", variant->settings);
    CHECK(test_proxy_say(&proxy, "delay 6 both")); /* a renewal is under way most of the time */
    for (int i = 0; i < 8 && !failures; i++) {
        mortise_lease *lease = take_as(client, name, variant->owner, LONG_MS);
        CHECK(wait_renewals(client, stats_of(client).renewals + 1));
        if (i % 2 == 0)
            give(lease);
        else
            EXPECT(OK, mortise_release_nowait(lease, &detail));
        CHECK(wait_holds(&server, name, 0));
    }
    close_client(client); /* nothing of it is under way any more */
    CHECK(holds(&server, name) == 0);
    test_proxy_end(&proxy);
}

static void test_renewal_outlives(void)
{
    in_parallel(renew_and_release, (void *)(uintptr_t)variants, sizeof *variants, VARIANTS);
}

/* ---- redisson#6198: renewed for a thread that is dead ------------------------------------------------------- */

struct mortal {
    mortise_client *client;
    int64_t ttl_ms, max_hold_ms;
    mortise_lease *lease;
};

static void take_and_die(void *argument)
{
    struct mortal *mortal = argument;
    EXPECT(OK,
           mortise_acquire(mortal->client, "dead",
                           MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = mortal->ttl_ms,
                                           .max_hold_ms = mortal->max_hold_ms),
                           &mortal->lease, &detail));
}

static void test_dead_thread(void)
{
    mortise_client *client = open_at(&server, NULL, "renew_every = 100ms", NULL);
    mortise_client *other = open_at(&server, NULL, NULL, NULL);
    struct mortal mortal = {.client = client, .ttl_ms = LONG_MS, .max_hold_ms = 2 * LONG_MS};
    in_parallel(take_and_die, &mortal, sizeof mortal, 1);
    CHECK(wait_renewals(client, stats_of(client).renewals + 3)); /* and its thread is dead */
    give(mortal.lease);
    mortal.ttl_ms = 300;
    mortal.max_hold_ms = 600;
    in_parallel(take_and_die, &mortal, sizeof mortal, 1);
    give(take(other, "dead")); /* and not for ever */
    close_client(client);
    close_client(other);
}

/* ---- redisson#4698: the holder is never told that renewing failed --------------------------------------------- */

static void expect_told(void (*fault)(struct test_proxy *proxy), int64_t ttl_ms)
{
    struct test_proxy proxy;
    struct told told = TOLD_INIT;
    mortise_lease *lease = NULL;
    if (!start_proxy(&server, &proxy))
        return;
    mortise_client *client =
        open_by(&server, &proxy, "renew_every = 30ms\nclose_timeout = 60s", NULL);
    EXPECT(OK, mortise_acquire(client, "told",
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = ttl_ms,
                                               .on_state = note_state, .user_data = &told),
                               &lease, &detail));
    fault(&proxy);
    CHECK(test_count_wait(&told.lost, 1));
    CHECK(mortise_state(lease) == MORTISE_STATE_LOST);
    EXPECT(LOST, mortise_release(lease, &detail));
    CHECK(test_proxy_say(&proxy, "pass"));
    close_client(client);
    test_proxy_end(&proxy);
}

static void refuse(struct test_proxy *proxy)
{
    CHECK(test_proxy_say(proxy, "refuse"));
}

static void keep_silent(struct test_proxy *proxy)
{
    CHECK(test_proxy_say(proxy, "hold"));
}

static void take_away(struct test_proxy *proxy)
{
    (void)proxy;
    CHECK(ask_number(&server, "DEL mortise:told") == 1);
}

/* Before its end, if there is time. */
static void expect_suspect(void)
{
    struct test_proxy proxy;
    if (!start_proxy(&server, &proxy))
        return;
    mortise_client *client = open_by(&server, &proxy, "renew_every = 30ms", NULL);
    mortise_lease *lease = take(client, "told");
    refuse(&proxy);
    CHECK(wait_state(lease, MORTISE_STATE_SUSPECT, TEST_PATIENCE_MS));
    CHECK(test_proxy_say(&proxy, "pass"));
    give(lease);
    close_client(client);
    test_proxy_end(&proxy);
}

static void test_told(void)
{
    expect_told(take_away, LONG_MS);
    expect_suspect();
    expect_told(refuse, 400);
    CHECK(wait_holds(&server, "told", 0));
    expect_told(keep_silent, 400);
    CHECK(wait_holds(&server, "told", 0));
}

/* ---- redisson#5697: under load nobody renews, and a second holder comes ------------------------------------------ */

#define LOAD 200

struct load {
    mortise_client *client;
    struct test_count ended;
    bool stops;
    int number;
    struct load *all;
    pthread_mutex_t lock;
};

static void once_more(mortise_status status, mortise_lease *lease, const mortise_error *error,
                      void *user_data);

static void begin_one(struct load *load)
{
    char name[32];
    snprintf(name, sizeof name, "load-%d", load->number % (LOAD / 2));
    if (mortise_acquire_async(load->client, name, MORTISE_OPTIONS(.wait_ms = -1), once_more, load,
                              NULL, &detail) != MORTISE_OK)
        test_count_add(&load->all->ended, 1);
}

static void once_more(mortise_status status, mortise_lease *lease, const mortise_error *error,
                      void *user_data)
{
    struct load *load = user_data, *all = load->all;
    (void)error;
    if (status == MORTISE_OK)
        mortise_release_nowait(lease, NULL);
    pthread_mutex_lock(&all->lock);
    bool stops = all->stops || status != MORTISE_OK;
    pthread_mutex_unlock(&all->lock);
    if (stops)
        test_count_add(&all->ended, 1);
    else
        begin_one(load);
}

struct acquired {
    mortise_client *client;
    uint64_t wanted;
};

static bool has_acquired(void *argument)
{
    const struct acquired *acquired = argument;
    return stats_of(acquired->client).acquires >= acquired->wanted;
}

/* The load does not end before the renewals have come, however slow all of it is. */
static void test_load(void)
{
    static struct load loads[LOAD];
    mortise_client *client = open_at(&server, NULL, "renew_every = 100ms", NULL);
    mortise_client *other = open_at(&server, NULL, NULL, NULL);
    mortise_lease *lease = take_as(client, "loaded", NULL, 10000);
    loads[0] = (struct load){.ended = TEST_COUNT_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};
    for (int i = 0; i < LOAD; i++) {
        loads[i].client = client;
        loads[i].number = i;
        loads[i].all = loads;
        begin_one(&loads[i]);
    }
    struct acquired acquired = {client, stats_of(client).acquires + LOAD + 1};
    CHECK(wait_renewals(client, stats_of(client).renewals + 10));
    EXPECT(BUSY, try_once(other, "loaded"));
    CHECK(mortise_state(lease) == MORTISE_STATE_HELD);
    CHECK(test_poll(has_acquired, &acquired, TEST_PATIENCE_MS));
    pthread_mutex_lock(&loads[0].lock);
    loads[0].stops = true;
    pthread_mutex_unlock(&loads[0].lock);
    CHECK(test_count_wait(&loads[0].ended, LOAD));
    give(lease);
    close_client(client);
    close_client(other);
}

/* ---- redisson#775, #3194, #3712: renewing is not resumed after a reconnection ------------------------------------- */

struct failing {
    mortise_client *client;
    uint64_t before;
};

static bool has_failed(void *argument)
{
    const struct failing *failing = argument;
    return stats_of(failing->client).renewal_failures > failing->before;
}

static void test_reconnection(void)
{
    static const char *const faults[] = {"cut", "cut-reply 1", "refuse", "hold"};
    struct test_proxy proxy;
    if (!start_proxy(&server, &proxy))
        return;
    mortise_client *client = open_by(&server, &proxy, "renew_every = 50ms",
                                     "connect_timeout = 100ms\ncommand_timeout = 100ms");
    mortise_lease *lease = take_as(client, "resumed", NULL, 15000); /* pauses grow with the ttl */
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct failing failing = {client, stats_of(client).renewal_failures};
        snprintf(doing, sizeof doing, "%s", faults[i]);
        CHECK(test_proxy_say(&proxy, "%s", faults[i]));
        if (i > 0) /* a plain cut may be mended before anything is renewed */
            CHECK(test_poll(has_failed, &failing,
                            TEST_PATIENCE_MS)); /* SUSPECT; for how long is another matter */
        CHECK(test_proxy_say(&proxy, "pass"));
        CHECK(wait_renewals(client, stats_of(client).renewals + 2));
        CHECK(wait_state(lease, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
        CHECK(is_covered(&server, "resumed", lease));
    }
    give(lease);
    close_client(client);
    test_proxy_end(&proxy);
}

/* ---- redisson#6303: thousands of locks overrun the period; a dead server starves the others --------------------------- */

#define CROWD 2000

static struct pending crowd[CROWD];

static void take_crowd(mortise_client *client)
{
    char name[32];
    for (int i = 0; i < CROWD; i++) {
        crowd[i] = PENDING_INIT;
        snprintf(name, sizeof name, "crowd-%d", i);
        pending_start(&crowd[i], client, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 15000));
    }
    for (int i = 0; i < CROWD; i++)
        EXPECT(OK, pending_join(&crowd[i]));
}

static void test_thousands(void)
{
    struct test_proxy proxy;
    struct told dead = TOLD_INIT;
    mortise_lease *lease = NULL;
    if (!start_proxy(&server, &proxy))
        return;
    mortise_client *client =
        open_at(&server, NULL, "renew_every = 500ms\nclose_timeout = 60s", NULL);
    mortise_client *cut_off = open_by(&server, &proxy, "close_timeout = 60s", NULL);
    EXPECT(OK, mortise_acquire(cut_off, "dead shard",
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = 1500,
                                               .on_state = note_state, .user_data = &dead),
                               &lease, &detail));
    take_crowd(client);
    keep_silent(&proxy);
    CHECK(test_count_wait(&dead.lost, 1)); /* a whole ttl later */
    CHECK(wait_renewals(client, stats_of(client).renewals + 2 * CROWD));
    CHECK(stats_of(client).losses == 0);
    for (int i = 0; i < CROWD; i++)
        CHECK(mortise_state(crowd[i].lease) == MORTISE_STATE_HELD);
    CHECK(test_proxy_say(&proxy, "pass"));
    EXPECT(LOST, mortise_release(lease, &detail));
    for (int i = 0; i < CROWD; i++)
        EXPECT(OK, mortise_release_nowait(crowd[i].lease, &detail));
    close_client(client);
    close_client(cut_off);
    test_proxy_end(&proxy);
}

/* ---- rueidislock: the network drops silently, and the loss is told 2.5 s after the lock expired ------------------------- */

/* It does not wait for a command that waits for its answer: not for an hour. */

static void test_silent_loss(void)
{
    struct test_proxy proxy;
    struct told told = TOLD_INIT;
    mortise_lease *lease = NULL;
    if (!start_proxy(&server, &proxy))
        return;
    mortise_client *client =
        open_by(&server, &proxy, "close_timeout = 100ms", "command_timeout = 1h");
    EXPECT(OK, mortise_acquire(client, "silent",
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = 700,
                                               .on_state = note_state, .user_data = &told),
                               &lease, &detail));
    keep_silent(&proxy);
    CHECK(test_count_wait(&told.lost, 1));
    EXPECT(LOST, mortise_release(lease, &detail));
    CHECK(test_proxy_say(&proxy, "pass"));
    mortise_close(client, NULL);
    test_proxy_end(&proxy);
}

/* ---- redis-py#621: the body ran without the lock --------------------------------------------------------------------------- */

static int run_body(mortise_client *client, const char *name, int64_t wait_ms)
{
    mortise_lease *lease = NULL;
    int ran = 0;
    mortise_acquire(client, name, MORTISE_OPTIONS(.wait_ms = wait_ms), &lease, &detail);
    MORTISE_WITH (lease) {
        ran++;
    }
    return ran;
}

static void test_body(void)
{
    struct test_proxy proxy;
    if (!start_proxy(&server, &proxy))
        return;
    mortise_client *client = open_by(&server, &proxy, NULL, NULL);
    mortise_client *other = open_at(&server, NULL, NULL, NULL);
    mortise_lease *lease = take(other, "body");
    CHECK(run_body(client, "body", 200) == 0); /* another's */
    give(lease);
    CHECK(run_body(client, "body", TEST_PATIENCE_MS) == 1);
    refuse(&proxy);
    CHECK(run_body(client, "body", 200) == 0); /* no server */
    CHECK(test_proxy_say(&proxy, "pass"));
    CHECK(ask_number(&server, "HSET mortise:body a 1") == 1);
    CHECK(run_body(client, "body", TEST_PATIENCE_MS) == 0); /* something else is there */
    CHECK(ask_number(&server, "DEL mortise:body") == 1);
    close_client(client);
    close_client(other);
    test_proxy_end(&proxy);
}

static const CU_TestInfo tests[] = {
    {"redisson#7272, #2714: a renewal outlives the release", test_renewal_outlives},
    {"redisson#6198: renewed for a thread that died", test_dead_thread},
    {"redisson#4698: the holder is never told that renewing failed", test_told},
    {"redisson#5697: no renewal under load, two holders", test_load},
    {"redisson#775, #3194, #3712: renewing not resumed after a reconnection", test_reconnection},
    {"redisson#6303: thousands of locks, and a dead server", test_thousands},
    {"rueidislock: told long after expiry when the network drops silently", test_silent_loss},
    {"redis-py#621: the body ran without the lock", test_body},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = server_start(&server, NULL);
    if (code == 0)
        code = run_tests("redis: holding", tests, argc, argv);
    return servers_end((struct server *const[]){&server}, 1, code);
}
