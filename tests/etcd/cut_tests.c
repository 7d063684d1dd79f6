/* cut_tests.c - the connection is cut after so many bytes of a first acquire, in either direction: after each number of them with
 * MORTISE_NIGHTLY=1 (the set runs at night only), else after some. And twice while somebody waits. */
#include "stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UP_BYTES 1500 /* of what a client sends until it holds its first lock; a little more */
#define DOWN_BYTES 900
#define DAY_STEP 61
#define LANES                                                                                      \
    4 /* side by side, each with a proxy of its own: most of the time passes until it connects again */

struct lane {
    pthread_t thread;
    struct test_proxy proxy;
    const char *way;
    int first, last, step;
    bool good;
};

static void check(struct lane *lane, bool is_well, int bytes, const char *what)
{
    if (is_well)
        return;
    fprintf(stderr, "%s %d: %s\n", lane->way, bytes, what);
    lane->good = false;
}

/* A new client each time: the greeting, the lease, the join and the acquire. */
static void cut_at(struct lane *lane, mortise_client *direct, int bytes)
{
    char name[32], endpoint[40];
    mortise_lease *lease = NULL;
    snprintf(name, sizeof name, "cut-%s-%d", lane->way, bytes);
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", lane->proxy.port);
    mortise_client *client = client_at(endpoint, "ttl=30s");
    check(lane, test_proxy_say(&lane->proxy, "cut-after %s %d", lane->way, bytes), bytes,
          "the proxy is deaf");
    mortise_status status = mortise_acquire(
        client, name, MORTISE_OPTIONS(.wait_ms = 3 * TEST_PATIENCE_MS), &lease, NULL);
    check(lane, status == MORTISE_OK, bytes, mortise_status_name(status));
    check(lane, wait_contenders(direct, name, 1), bytes, "not one contender");
    if (status == MORTISE_OK)
        check(lane, mortise_release(lease, NULL) == MORTISE_OK, bytes, "not released");
    test_proxy_say(&lane->proxy, "pass");
    check(lane, wait_contenders(direct, name, 0), bytes, "it is still there");
    mortise_close(client, NULL);
}

static void *cut_lane(void *argument)
{
    struct lane *lane = argument;
    mortise_client *direct = client_direct("");
    for (int bytes = lane->first; bytes <= lane->last; bytes += lane->step)
        cut_at(lane, direct, bytes);
    mortise_close(direct, NULL);
    return NULL;
}

static void cut_at_all(const char *way, int last)
{
    static struct lane lanes[LANES];
    const char *nightly = getenv("MORTISE_NIGHTLY");
    int step = nightly && strcmp(nightly, "1") == 0 ? 1 : DAY_STEP;
    for (int i = 0; i < LANES; i++) {
        lanes[i] = (struct lane){
            .way = way, .first = i * step, .last = last, .step = LANES * step, .good = true};
        CU_ASSERT_FATAL(
            test_proxy_start(&lanes[i].proxy, stage.folder, "127.0.0.1", stage.ports[0]));
    }
    for (int i = 0; i < LANES; i++)
        CU_ASSERT_EQUAL_FATAL(pthread_create(&lanes[i].thread, NULL, cut_lane, &lanes[i]), 0);
    for (int i = 0; i < LANES; i++) {
        pthread_join(lanes[i].thread, NULL);
        CU_ASSERT(lanes[i].good);
        test_proxy_end(&lanes[i].proxy);
    }
}

static void test_answers(void)
{
    cut_at_all("down", DOWN_BYTES);
}

static void test_requests(void)
{
    cut_at_all("up", UP_BYTES);
}

/* The release, too. */
static void test_releases(void)
{
    mortise_client *client = client_behind_proxy("ttl=30s"), *direct = client_direct("");
    for (int bytes = 0; bytes < 120; bytes += 13) {
        const char *name = fresh_name();
        mortise_lease *lease = take(client, name);
        CHECK(test_proxy_say(&stage.proxy, "cut-after %s %d", bytes % 2 ? "up" : "down", bytes));
        mortise_status status = mortise_release(lease, &detail);
        CHECK(status == MORTISE_OK || status == MORTISE_INDETERMINATE);
        CHECK(test_proxy_say(&stage.proxy, "pass"));
        CHECK(wait_contenders(direct, name, 0));
    }
    client_end(client);
    client_end(direct);
}

struct asks {
    mortise_client *client;
    uint64_t before;
};

static bool has_asked_again(void *argument)
{
    const struct asks *asks = argument;
    mortise_stats stats = {.size = sizeof stats};
    return mortise_stats_get(asks->client, &stats) == MORTISE_OK && stats.requests > asks->before;
}

static bool answers(void *client)
{
    return mortise_ping(client, NULL, 0, NULL) == MORTISE_OK;
}

/* There is no server until the core has asked again. */
static void fail_shortly(mortise_client *client)
{
    mortise_stats stats = {.size = sizeof stats};
    EXPECT(OK, mortise_stats_get(client, &stats));
    struct asks asks = {client, stats.requests};
    CHECK(test_proxy_say(&stage.proxy, "refuse"));
    CHECK(test_poll(has_asked_again, &asks, TEST_PATIENCE_MS));
    CHECK(test_proxy_say(&stage.proxy, "accept"));
    CHECK(test_poll(answers, client, TEST_PATIENCE_MS));
}

/* Its place is found again in between: the second failure is as short as the first one. */
static void test_two_short_failures(void)
{
    enum { OUTAGE_MS = 3000 };
    mortise_client *client = client_behind_proxy(
                       "ttl=30s&timeout=300ms&connect_timeout=300ms&unreachable_timeout=3s"),
                   *holder = client_direct("");
    const char *name = fresh_name();
    mortise_lease *lease = take(holder, name);
    struct waiter waiter = {0};
    waiter_start(&waiter, client, name);
    CHECK(wait_waiting(holder, client, name));
    for (int i = 0; i < 2; i++) {
        fail_shortly(client);
        CHECK(wait_waiting(holder, client, name));
        if (i == 0)
            let_pass(OUTAGE_MS);
    }
    CHECK(test_count_get(&waiter.done) == 0);
    give_back(lease);
    CHECK(waiter_join(&waiter) == MORTISE_OK);
    give_back(waiter.lease);
    client_end(client);
    client_end(holder);
}

const CU_TestInfo cut_tests[] = {
    {"within the answers", test_answers},
    {"within the requests", test_requests},
    {"at a release", test_releases},
    {"twice, with a long wait between them", test_two_short_failures},
    CU_TEST_INFO_NULL,
};
