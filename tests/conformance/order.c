/* order.c - who is next: callers of one client in their order, clients in theirs if the driver is fair, a thousand
 * waiters on one name, and the hand-over within a process. */
#include "conformance.h"

#include <stdlib.h>

static const mortise_options *patiently(void)
{
    static const mortise_options options = {
        .size = sizeof options, .wait_ms = 3 * TEST_PATIENCE_MS, .ttl_ms = 60000};
    return &options;
}

static void crowd(const char *settings, int count)
{
    mortise_client *client = open_client(settings);
    const char *name = fresh_name();
    struct pending *pendings = calloc((size_t)count, sizeof *pendings);
    CU_ASSERT_PTR_NOT_NULL_FATAL(pendings);
    mortise_lease *lease = take(client, name, 60000);
    for (int i = 0; i < count; i++) {
        pendings[i] = PENDING_INIT;
        pendings[i].release_at_once = true;
        pending_start(&pendings[i], client, name, patiently());
    }
    CU_ASSERT(wait_local_waiters(client, (uint64_t)count));
    mortise_stats before = stats_of(client);
    /* one of them competes, whoever else waits */
    CU_ASSERT(before.requests < (uint64_t)(count < 100 ? 50 : count / 2));
    give(lease);
    for (int i = 0; i < count; i++) {
        PENDING_EXPECT(&pendings[i], OK);
        CU_ASSERT_EQUAL(pendings[i].place, i + 1);
    }
    mortise_stats stats = stats_of(client);
    /* the head may have been handed the name before its request was answered at all */
    CU_ASSERT(stats.waits == (uint64_t)count || stats.waits == (uint64_t)count - 1);
    CU_ASSERT_EQUAL(stats.acquires, (uint64_t)count + 1);
    CU_ASSERT(stats.wait_ns > 0);
    CU_ASSERT_EQUAL(stats.waiting, 0);
    CU_ASSERT_EQUAL(stats.held, 0);
    close_client(client);
    free(pendings);
}

static void test_crowd(void)
{
    crowd(NULL, subject.waiters);
}

static void test_local_order_no_handover(void)
{
    crowd("handover_max = 0", 20);
}

/* Three holders one after the other in one process: tokens are the same exactly if it was handed on. */
static void pass_on(const char *settings, uint64_t handovers)
{
    mortise_client *client = open_client(settings);
    const char *name = fresh_name();
    struct pending first = PENDING_INIT, second = PENDING_INIT;
    mortise_lease *lease = take(client, name, 60000);
    uint64_t token = mortise_token(lease);
    pending_start(&first, client, name, patiently());
    pending_start(&second, client, name, patiently());
    CU_ASSERT(wait_local_waiters(client, 2));
    give(lease);
    PENDING_EXPECT(&first, OK);
    CU_ASSERT_EQUAL(test_count_get(&second.calls), 0);
    give(first.lease);
    PENDING_EXPECT(&second, OK);
    EXPECT(BUSY, try_once(subject.looker, name));
    CU_ASSERT_EQUAL(stats_of(client).handovers, handovers);
    if (has(MORTISE_CAP_FENCING)) {
        CU_ASSERT(handovers ? first.token == token : first.token > token);
        CU_ASSERT(handovers ? second.token == token : second.token > first.token);
    }
    give(second.lease);
    close_client(client);
}

static void test_handover(void)
{
    pass_on("handover_window = 60s", 2);
}

static void test_no_handover(void)
{
    pass_on("handover_max = 0", 0);
}

/* After handover_max passes within the process the grant goes back, so that other processes get a turn. */
static void test_handover_ends(void)
{
    mortise_client *client = open_client("handover_window = 60s\nhandover_max = 3");
    const char *name = fresh_name();
    struct pending pendings[8];
    mortise_lease *lease = take(client, name, 60000);
    uint64_t token = mortise_token(lease);
    for (int i = 0; i < 8; i++) {
        pendings[i] = PENDING_INIT;
        pendings[i].release_at_once = true;
        pending_start(&pendings[i], client, name, patiently());
    }
    CU_ASSERT(wait_local_waiters(client, 8));
    give(lease);
    for (int i = 0; i < 8; i++)
        PENDING_EXPECT(&pendings[i], OK);
    CU_ASSERT_EQUAL(stats_of(client).handovers, 6); /* 3, a new grant, 3, a new grant */
    if (has(MORTISE_CAP_FENCING)) {
        CU_ASSERT_EQUAL(pendings[2].token, token);
        CU_ASSERT(pendings[3].token > token);
        CU_ASSERT_EQUAL(pendings[6].token, pendings[3].token);
        CU_ASSERT(pendings[7].token > pendings[6].token);
    }
    close_client(client);
}

/* A crowd in one client does not starve a waiter in another. */
static void test_others_get_a_turn(void)
{
    mortise_client *crowded = open_client(NULL), *other = open_client(NULL);
    const char *name = fresh_name();
    enum { COUNT = 400 };
    static struct pending pendings[COUNT];
    struct pending lonely = PENDING_INIT;
    mortise_lease *lease = take(crowded, name, 60000);
    lonely.release_at_once = true;
    pending_start(&lonely, other, name, patiently());
    CU_ASSERT(wait_local_waiters(other, 1));
    if (has(MORTISE_CAP_FAIR))
        wait_waiters(name, 1); /* in the queue, before the crowd is */
    for (int i = 0; i < COUNT; i++) {
        pendings[i] = PENDING_INIT;
        pendings[i].release_at_once = true;
        pending_start(&pendings[i], crowded, name, patiently());
    }
    give(lease);
    PENDING_EXPECT(&lonely, OK);
    for (int i = 0; i < COUNT; i++)
        PENDING_EXPECT(&pendings[i], OK);
    if (has(MORTISE_CAP_FAIR))
        CU_ASSERT(lonely.place <= 66); /* handover_max, and the caller that had the lock already */
    close_client(crowded);
    close_client(other);
}

static void test_fair(void)
{
    enum { COUNT = 6 };
    mortise_client *clients[COUNT], *holder = open_client("handover_max = 0");
    struct pending pendings[COUNT];
    const char *name = fresh_name();
    if (!has(MORTISE_CAP_FAIR)) {
        close_client(holder);
        return;
    }
    mortise_lease *lease = take(holder, name, 60000);
    for (int i = 0; i < COUNT; i++) {
        clients[i] = open_client("handover_max = 0");
        pendings[i] = PENDING_INIT;
        pendings[i].release_at_once = true;
        pending_start(&pendings[i], clients[i], name, patiently());
        CU_ASSERT(wait_waiters(name, i + 1));
    }
    EXPECT(BUSY, try_once(holder, name));
    give(lease);
    for (int i = 0; i < COUNT; i++) {
        PENDING_EXPECT(&pendings[i], OK);
        CU_ASSERT_EQUAL(pendings[i].place, i + 1);
        if (i > 0 && has(MORTISE_CAP_FENCING))
            CU_ASSERT(pendings[i].token > pendings[i - 1].token);
    }
    for (int i = 0; i < COUNT; i++)
        close_client(clients[i]);
    close_client(holder);
}

const CU_TestInfo order_tests[] = {
    {"a thousand local waiters", test_crowd},
    {"local order, no hand-over", test_local_order_no_handover},
    {"hand-over", test_handover},
    {"no hand-over", test_no_handover},
    {"hand-over ends", test_handover_ends},
    {"other clients get a turn", test_others_get_a_turn},
    {"fair between clients", test_fair},
    CU_TEST_INFO_NULL,
};
