/* cut_tests.c - the connection is cut at every byte, replies are lost, nobody answers: during acquire, wait, hold and
 * release. */
#include "stage.h"

#include <stdio.h>

#define REQUEST_BYTES 460 /* of an acquire: create, list, base; a little more */
#define REPLY_BYTES 330

static bool ready(void *client)
{
    return mortise_ping(client, NULL, 0, NULL) == MORTISE_OK;
}

/* Every so many bytes, by a client and a proxy of its own: most of the time passes until the library tries to
 * connect again, so several go side by side. */
#define LANES 6

struct lane {
    pthread_t thread;
    struct test_proxy proxy;
    mortise_client *client;
    const char *way;
    int first, last;
    int failures;
};

static void check(struct lane *lane, bool is_well, int bytes, const char *what)
{
    if (is_well)
        return;
    fprintf(stderr, "%s %d: %s\n", lane->way, bytes, what);
    lane->failures++;
}

/* The name was locked before, so that the folder is there (mostly: the servers sweep) and the create is the
 * first request. */
static void cut_at(struct lane *lane, int bytes)
{
    char name[32];
    mortise_lease *lease = NULL;
    snprintf(name, sizeof name, "cut-%s-%d", lane->way, bytes);
    check(lane, test_poll(ready, lane->client, TEST_PATIENCE_MS), bytes, "not connected");
    for (int i = 0; i < 2; i++) {
        if (i == 1)
            check(lane, test_proxy_say(&lane->proxy, "cut-after %s %d", lane->way, bytes), bytes,
                  "the proxy is deaf");
        mortise_status status = mortise_acquire(
            lane->client, name, MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS), &lease, NULL);
        check(lane, status == MORTISE_OK, bytes, mortise_status_name(status));
        if (i == 1)
            test_proxy_say(&lane->proxy, "pass");
        check(lane, contenders(name) == 1, bytes, "not one contender");
        check(lane, mortise_release(lease, NULL) == MORTISE_OK, bytes, "not released");
    }
    check(lane, contenders(name) == 0, bytes, "it is still there");
}

static void *cut_lane(void *argument)
{
    struct lane *lane = argument;
    for (int bytes = lane->first; bytes <= lane->last; bytes += LANES)
        cut_at(lane, bytes);
    return NULL;
}

static void cut_at_all(const char *way, int last)
{
    static struct lane lanes[LANES];
    char url[128];
    for (int i = 0; i < LANES; i++) {
        lanes[i] = (struct lane){.way = way, .first = i, .last = last};
        CU_ASSERT_FATAL(
            test_proxy_start(&lanes[i].proxy, stage.folder, "127.0.0.1", stage.ports[0]));
        snprintf(url, sizeof url, "zookeeper://127.0.0.1:%d/faults?" LIFE "&" PATIENT,
                 lanes[i].proxy.port);
        CU_ASSERT_EQUAL_FATAL(mortise_open(url, &lanes[i].client, NULL), MORTISE_OK);
    }
    for (int i = 0; i < LANES; i++)
        CU_ASSERT_EQUAL_FATAL(pthread_create(&lanes[i].thread, NULL, cut_lane, &lanes[i]), 0);
    for (int i = 0; i < LANES; i++) {
        pthread_join(lanes[i].thread, NULL);
        CU_ASSERT_EQUAL(lanes[i].failures, 0);
        client_end(lanes[i].client);
        test_proxy_end(&lanes[i].proxy);
    }
}

/* CURATOR-79: what a create has left behind is found again, and nobody waits for it for ever. */
static void test_reply_cut_curator_79(void)
{
    cut_at_all("down", REPLY_BYTES);
}

static void test_request_cut_curator_79(void)
{
    cut_at_all("up", REQUEST_BYTES);
}

/* CURATOR-79: the caller gives up while nobody knows whether its node was made. */
static void test_given_up_without_reply_curator_79(void)
{
    mortise_client *client = client_behind_proxy(""), *other = client_direct("");
    for (int i = 0; i < 10; i++) {
        const char *name = fresh_name();
        mortise_lease *lease = NULL;
        CU_ASSERT_FATAL(test_poll(ready, client, TEST_PATIENCE_MS));
        CU_ASSERT_FATAL(test_proxy_say(&stage.proxy, "lose"));
        mortise_status status =
            mortise_acquire(client, name, MORTISE_OPTIONS(.wait_ms = 100 + 10 * i), &lease, NULL);
        CU_ASSERT(status == MORTISE_INDETERMINATE || status == MORTISE_TIMEDOUT ||
                  status == MORTISE_UNREACHABLE);
        CU_ASSERT_FATAL(test_proxy_say(&stage.proxy, "pass"));
        lease = take(other, name);
        CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
        CU_ASSERT(wait_contenders(name, 0));
    }
    client_end(client);
    client_end(other);
}

/* CURATOR-678: a release that fails is remembered and done on reconnection. */
static void test_failed_release_curator_678(void)
{
    mortise_client *client = client_behind_proxy("&unreachable_timeout=3s"),
                   *other = client_direct("");
    const char *name = fresh_name();
    CU_ASSERT_FATAL(test_poll(ready, client, TEST_PATIENCE_MS));
    mortise_lease *lease = take(client, name);
    CU_ASSERT_FATAL(test_proxy_say(&stage.proxy, "refuse"));
    mortise_status status = mortise_release(lease, NULL);
    CU_ASSERT(status == MORTISE_UNREACHABLE || status == MORTISE_INDETERMINATE);
    CU_ASSERT_FATAL(test_proxy_say(&stage.proxy, "accept"));
    lease = take(other, name);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(contenders(name), 0);
    client_end(client);
    client_end(other);
}

struct canceled {
    struct test_count calls;
    mortise_status status;
};

static void on_canceled(mortise_status status, mortise_lease *lease, const mortise_error *error,
                        void *user_data)
{
    struct canceled *canceled = user_data;
    (void)lease;
    (void)error;
    canceled->status = status;
    test_count_add(&canceled->calls, 1);
}

/* kazoo#732: what a waiter that gave up while the connection was lost has in the queue goes when it is back,
 * though its session lives on. */
static void test_clean_up_while_suspended_kazoo_732(void)
{
    mortise_client *client = client_behind_proxy(""), *holder = client_direct("");
    const char *name = fresh_name(), *kept = fresh_name();
    mortise_lease *lease = take(holder, name), *sign = take(client, kept);
    struct canceled canceled = {.calls = TEST_COUNT_INIT};
    mortise_request request;
    EXPECT(OK, mortise_acquire_async(client, name, MORTISE_OPTIONS(.wait_ms = -1), on_canceled,
                                     &canceled, &request, &detail));
    CU_ASSERT(wait_contenders(name, 2));
    CU_ASSERT_FATAL(test_proxy_say(&stage.proxy, "refuse"));
    CU_ASSERT(wait_state(sign, MORTISE_STATE_SUSPECT, TEST_PATIENCE_MS));
    EXPECT(OK, mortise_cancel(client, request));
    CU_ASSERT(test_count_wait(&canceled.calls, 1));
    CU_ASSERT_EQUAL(canceled.status, MORTISE_CANCELED);
    CU_ASSERT_EQUAL(contenders(name), 2);
    CU_ASSERT_FATAL(test_proxy_say(&stage.proxy, "accept"));
    CU_ASSERT(wait_contenders(name, 1));
    CU_ASSERT(wait_state(sign, MORTISE_STATE_HELD, TEST_PATIENCE_MS)); /* of the same session */
    CU_ASSERT_EQUAL(mortise_release(sign, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    client_end(client);
    client_end(holder);
}

/* kazoo#282: a release that happens while a waiter is cut off is not missed. */
static void test_hangs_after_reconnect_kazoo_282(void)
{
    mortise_client *client = client_behind_proxy(""), *holder = client_direct("");
    for (int i = 0; i < 5; i++) {
        const char *name = fresh_name();
        struct waiter waiter = {0};
        mortise_lease *lease = take(holder, name);
        waiter_start(&waiter, client, name);
        CU_ASSERT(wait_contenders(name, 2));
        CU_ASSERT_FATAL(test_proxy_say(&stage.proxy, "refuse"));
        CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
        CU_ASSERT_FATAL(test_proxy_say(&stage.proxy, "accept"));
        CU_ASSERT_EQUAL(waiter_join(&waiter), MORTISE_OK);
        CU_ASSERT_EQUAL(contenders(name), 1);
        CU_ASSERT_EQUAL(mortise_release(waiter.lease, NULL), MORTISE_OK);
    }
    client_end(client);
    client_end(holder);
}

/* A short cut makes a holder SUSPECT, and HELD again; nobody else was let in. */
static void test_suspect_and_back(void)
{
    mortise_client *client = client_behind_proxy(""), *other = client_direct("");
    const char *name = fresh_name();
    mortise_lease *lease = take(client, name);
    uint64_t token = mortise_token(lease);
    for (int i = 0; i < 5; i++) {
        CU_ASSERT_FATAL(test_proxy_say(&stage.proxy, "refuse"));
        CU_ASSERT(wait_state(lease, MORTISE_STATE_SUSPECT, TEST_PATIENCE_MS));
        CU_ASSERT_FATAL(test_proxy_say(&stage.proxy, "accept"));
        CU_ASSERT(wait_state(lease, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    }
    CU_ASSERT_EQUAL(mortise_token(lease), token);
    CU_ASSERT_EQUAL(contenders(name), 1);
    EXPECT(OK, mortise_release(lease, &detail));
    client_end(client);
    client_end(other);
}

/* One that asked when its words got through and no answers did gives its session up after a while, and asks
 * in another: what both have left under one uuid is not taken for one, and none of it stays. */
static void test_asked_in_two_sessions_curator_498(void)
{
    mortise_client *client = client_behind_proxy("&session_timeout=8s"),
                   *holder = client_direct("");
    const char *name = fresh_name();
    CU_ASSERT_FATAL(test_poll(ready, client, TEST_PATIENCE_MS));
    mortise_lease *lease = take(holder, name);
    struct waiter waiter = {0};
    CU_ASSERT_FATAL(test_proxy_say(&stage.proxy, "lose"));
    waiter_start(&waiter, client, name);
    CU_ASSERT(wait_contenders(name, 2)); /* its first node, of which it does not know */
    CU_ASSERT_FALSE(test_count_wait_ms(&waiter.done, 1, 12000));
    CU_ASSERT_FATAL(test_proxy_say(&stage.proxy, "pass"));
    EXPECT(OK, mortise_release(lease, &detail));
    CU_ASSERT_EQUAL(waiter_join(&waiter), MORTISE_OK);
    CU_ASSERT(wait_contenders(name, 1));
    EXPECT(OK, mortise_release(waiter.lease, &detail));
    CU_ASSERT(wait_contenders(name, 0));
    client_end(client);
    client_end(holder);
}

/* CURATOR-206: a holder that is cut off is never told; it is LOST at its own deadline, before anybody else
 * has the lock, wherever between two beats the cut comes. */
#define HOLDERS 5

struct round {
    mortise_client *clients[HOLDERS], *other;
    struct waiter waiters[HOLDERS];
};

/* False: one of them is LOST by then. */
static bool hold_all(struct round *round)
{
    bool held = true;
    round->other = client_direct("");
    for (int i = 0; i < HOLDERS; i++) {
        const char *name = fresh_name();
        round->clients[i] = client_behind_proxy(BRIEF);
        mortise_lease *lease = take(round->clients[i], name);
        round->waiters[i] = (struct waiter){.other = lease};
        waiter_start(&round->waiters[i], round->other, name);
        held &= held_among(name, 2, lease) &&
                !wait_state(lease, MORTISE_STATE_LOST, 37); /* so that they do not beat at once */
    }
    return held;
}

static void give_back(struct round *round, bool were_lost)
{
    for (int i = 0; i < HOLDERS; i++) {
        mortise_status status = mortise_release(round->waiters[i].other, NULL);
        CU_ASSERT(status == MORTISE_LOST || !were_lost);
        if (!were_lost)
            CU_ASSERT_EQUAL(waiter_join(&round->waiters[i]), MORTISE_OK);
        CU_ASSERT_EQUAL(mortise_release(round->waiters[i].lease, NULL), MORTISE_OK);
        client_end(round->clients[i]);
    }
    client_end(round->other);
}

static bool cut_off(const char *how)
{
    struct round round;
    int64_t deadline_ms[HOLDERS];
    bool held = hold_all(&round);
    CU_ASSERT_FATAL(test_proxy_say(&stage.proxy, "%s", how));
    for (int i = 0; i < HOLDERS; i++) {
        deadline_ms[i] = deadline_of(round.waiters[i].other);
        held &= deadline_ms[i] > 0;
    }
    for (int i = 0; i < HOLDERS && held; i++) {
        CU_ASSERT_EQUAL(waiter_join(&round.waiters[i]), MORTISE_OK);
        CU_ASSERT_EQUAL(round.waiters[i].other_state, MORTISE_STATE_LOST);
        CU_ASSERT(round.waiters[i].granted_ms >= deadline_ms[i]);
    }
    CU_ASSERT_FATAL(test_proxy_say(&stage.proxy, "pass"));
    give_back(&round, held);
    return held;
}

static void cut_off_some_time(const char *how)
{
    for (int tries = 0; tries < TRIES; tries++)
        if (cut_off(how))
            return;
    CU_FAIL("sessions were lost each time before the cut");
}

static void test_partitioned_holder_curator_206(void)
{
    cut_off_some_time("hold");
    cut_off_some_time("lose");
}

const CU_TestInfo cut_tests[] = {
    {"CURATOR-79: cut at every byte of the reply", test_reply_cut_curator_79},
    {"CURATOR-79: cut at every byte of the request", test_request_cut_curator_79},
    {"CURATOR-79: given up without a reply", test_given_up_without_reply_curator_79},
    {"CURATOR-678: a failed release", test_failed_release_curator_678},
    {"kazoo#732: clean-up while suspended", test_clean_up_while_suspended_kazoo_732},
    {"kazoo#282: released while cut off", test_hangs_after_reconnect_kazoo_282},
    {"suspect, and back", test_suspect_and_back},
    {"CURATOR-498: asked in two sessions", test_asked_in_two_sessions_curator_498},
    {"CURATOR-206: a partitioned holder", test_partitioned_holder_curator_206},
    CU_TEST_INFO_NULL,
};
