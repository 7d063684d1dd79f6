/* async.c - acquires with a callback, which is called exactly once; their cancellation at every moment; and the mode
 * in which the application runs the callbacks. */
#include "conformance.h"

#include <poll.h>
#include <stdlib.h>

static const mortise_options *for_ever(void)
{
    static const mortise_options options = {.size = sizeof options,
                                            .wait_ms = MORTISE_WAIT_FOREVER};
    return &options;
}

static void test_outcomes(void)
{
    mortise_client *client = open_client(NULL);
    const char *name = fresh_name();
    struct pending granted = PENDING_INIT, busy = PENDING_INIT, late = PENDING_INIT;
    pending_start(&granted, client, name, MORTISE_OPTIONS(.wait_ms = 0));
    PENDING_EXPECT(&granted, OK);
    CU_ASSERT_EQUAL(mortise_state(granted.lease), MORTISE_STATE_HELD);
    CU_ASSERT_FALSE(pthread_equal(granted.thread, pthread_self()));
    pending_start(&busy, client, name, MORTISE_OPTIONS(.wait_ms = 0));
    PENDING_EXPECT(&busy, BUSY);
    CU_ASSERT_PTR_NULL(busy.lease);
    int64_t began_ms = test_now_ms();
    pending_start(&late, client, name, MORTISE_OPTIONS(.wait_ms = 100));
    PENDING_EXPECT(&late, TIMEDOUT);
    CU_ASSERT(test_now_ms() - began_ms >= 99);
    CU_ASSERT_NOT_EQUAL(granted.request, busy.request);
    give(granted.lease);
    EXPECT(OK, try_once(client, name));
    close_client(client);
}

/* OK of mortise_cancel means that CANCELED comes, INVALID that something else was decided. */
static int cancel_and_settle(struct pending *pending, mortise_client *client)
{
    mortise_status canceled = mortise_cancel(client, pending->request);
    CU_ASSERT(canceled == MORTISE_OK || canceled == MORTISE_INVALID);
    pending_expect(pending, canceled == MORTISE_OK ? MORTISE_CANCELED : MORTISE_OK);
    if (pending->lease)
        give(pending->lease);
    EXPECT(INVALID, mortise_cancel(client, pending->request));
    return canceled == MORTISE_OK;
}

static void test_cancel_at_once(void)
{
    mortise_client *client = open_client(NULL), *other = open_client(NULL);
    for (int i = 0; i < 200; i++) {
        const char *name = fresh_name();
        struct pending pending = PENDING_INIT;
        pending_start(&pending, client, name, for_ever());
        cancel_and_settle(&pending, client);
        give(take(other, name, 0));
    }
    CU_ASSERT_EQUAL(stats_of(client).held, 0);
    CU_ASSERT_EQUAL(stats_of(client).waiting, 0);
    close_client(client);
    close_client(other);
}

/* The head, the one behind it, the last: each leaves, the rest stay in order. */
static void cancel_in_queue(mortise_client *holder, mortise_client *waiter)
{
    const char *name = fresh_name();
    struct pending pendings[4];
    mortise_lease *lease = take(holder, name, 60000);
    for (int i = 0; i < 4; i++) {
        pendings[i] = PENDING_INIT;
        pending_start(&pendings[i], waiter, name, for_ever());
    }
    CU_ASSERT(wait_local_waiters(waiter, 4));
    CU_ASSERT(cancel_and_settle(&pendings[0], waiter));
    CU_ASSERT(cancel_and_settle(&pendings[2], waiter));
    CU_ASSERT_EQUAL(test_count_get(&pendings[1].calls), 0);
    give(lease);
    PENDING_EXPECT(&pendings[1], OK);
    CU_ASSERT(cancel_and_settle(&pendings[3], waiter));
    EXPECT(BUSY, try_once(holder, name));
    give(pendings[1].lease);
    give(
        take(holder, name, 0)); /* what a canceled one has left goes, though it is not waited for */
}

static void test_cancel_in_queue(void)
{
    mortise_client *holder = open_client(NULL), *waiter = open_client(NULL);
    cancel_in_queue(holder, waiter);
    cancel_in_queue(holder, holder);
    close_client(holder);
    close_client(waiter);
}

static void *release_later(void *lease)
{
    return (void *)(intptr_t)mortise_release(lease, NULL);
}

/* The holder gives back while the waiter gives up. */
static void cancel_races_release(mortise_client *holder, mortise_client *waiter)
{
    for (int i = 0; i < 100; i++) {
        const char *name = fresh_name();
        struct pending pending = PENDING_INIT;
        pthread_t thread;
        void *released;
        mortise_lease *lease = take(holder, name, 60000);
        pending_start(&pending, waiter, name, for_ever());
        if (pthread_create(&thread, NULL, release_later, lease) != 0)
            CU_FAIL_FATAL("no thread");
        cancel_and_settle(&pending, waiter);
        pthread_join(thread, &released);
        EXPECT(OK, (mortise_status)(intptr_t)released);
        give(take(holder, name, 0));
    }
}

static void test_cancel_races_release(void)
{
    mortise_client *holder = open_client(NULL), *waiter = open_client(NULL);
    cancel_races_release(holder, waiter);
    cancel_races_release(holder, holder);
    close_client(holder);
    close_client(waiter);
}

static void test_cancel_of_granted(void)
{
    mortise_client *client = open_client(NULL), *other = open_client(NULL);
    const char *name = fresh_name();
    struct pending pending = PENDING_INIT;
    pending_start(&pending, client, name, MORTISE_OPTIONS(.wait_ms = 0));
    PENDING_EXPECT(&pending, OK);
    EXPECT(INVALID, mortise_cancel(client, pending.request));
    EXPECT(INVALID, mortise_cancel(client, pending.request + 1000000));
    CU_ASSERT_EQUAL(mortise_state(pending.lease), MORTISE_STATE_HELD);
    give(pending.lease);
    pending = PENDING_INIT;
    mortise_lease *lease = take(other, name, 0);
    pending_start(&pending, client, name, for_ever());
    EXPECT(INVALID, mortise_cancel(other, pending.request)); /* another client's */
    CU_ASSERT(cancel_and_settle(&pending, client));
    give(lease);
    close_client(client);
    close_client(other);
}

/* Waits on the descriptor until there is something to do, and does it. */
static int dispatch_once(mortise_client *client, int fd)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    CU_ASSERT_EQUAL(poll(&ready, 1, TEST_PATIENCE_MS), 1);
    int ran = mortise_dispatch(client);
    CU_ASSERT(ran >= 0);
    return ran;
}

static void dispatch_until(mortise_client *client, int fd, struct pending *pending)
{
    int64_t until_ms = test_now_ms() + TEST_PATIENCE_MS;
    while (test_count_get(&pending->calls) == 0 && test_now_ms() < until_ms)
        dispatch_once(client, fd);
    CU_ASSERT(pthread_equal(pending->thread, pthread_self()));
}

static void test_dispatch(void)
{
    mortise_client *client = open_client(NULL);
    const char *name = fresh_name();
    mortise_status status = MORTISE_BACKEND;
    struct pending first = PENDING_INIT, second = PENDING_INIT, canceled = PENDING_INIT;
    CU_ASSERT_EQUAL(mortise_dispatch(client), MORTISE_INVALID);
    int fd = mortise_fd(client, &status);
    CU_ASSERT_FATAL(fd >= 0);
    EXPECT(OK, status);
    CU_ASSERT_EQUAL(mortise_fd(client, NULL), fd);
    CU_ASSERT_EQUAL(mortise_dispatch(client), 0);
    pending_start(&first, client, name, for_ever());
    pending_start(&second, client, name, for_ever());
    dispatch_until(client, fd, &first);
    PENDING_EXPECT(&first, OK);
    pending_start(&canceled, client, name, for_ever());
    EXPECT(OK, mortise_cancel(client, canceled.request));
    CU_ASSERT_EQUAL(test_count_get(&canceled.calls), 0); /* in dispatch only */
    dispatch_until(client, fd, &canceled);
    PENDING_EXPECT(&canceled, CANCELED);
    give(first.lease);
    dispatch_until(client, fd, &second);
    PENDING_EXPECT(&second, OK);
    give(second.lease);
    close_client(client);
    CU_ASSERT_EQUAL(mortise_dispatch(client), MORTISE_CLOSED);
    CU_ASSERT_EQUAL(mortise_fd(client, &status), -1);
    EXPECT(CLOSED, status);
}

/* Another client's release reaches a program that only polls. */
static void test_dispatch_waits(void)
{
    mortise_client *client = open_client(NULL), *other = open_client(NULL);
    const char *name = fresh_name();
    struct pending pending = PENDING_INIT;
    int fd = mortise_fd(client, NULL);
    mortise_lease *lease = take(other, name, has(MORTISE_CAP_NOTIFY) ? 60000 : subject.ttl_ms);
    pending_start(&pending, client, name, for_ever());
    EXPECT(OK, mortise_release_nowait(lease, &detail));
    dispatch_until(client, fd, &pending);
    PENDING_EXPECT(&pending, OK);
    give(pending.lease);
    close_client(client);
    close_client(other);
}

/* A program that never calls dispatch keeps its locks all the same. */
static void test_no_dispatch_needed_to_renew(void)
{
    mortise_client *client = open_client("renew_every = 100ms"), *other = open_client(NULL);
    const char *name = fresh_name();
    CU_ASSERT(mortise_fd(client, NULL) >= 0);
    mortise_lease *lease = take(client, name, 60000);
    CU_ASSERT(wait_renewals(client, 3));
    EXPECT(BUSY, try_once(other, name));
    CU_ASSERT_NOT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    give(lease);
    close_client(client);
    close_client(other);
}

const CU_TestInfo async_tests[] = {
    {"outcomes", test_outcomes},
    {"cancel at once", test_cancel_at_once},
    {"cancel in the queue", test_cancel_in_queue},
    {"cancel races release", test_cancel_races_release},
    {"cancel of what is granted", test_cancel_of_granted},
    {"dispatch", test_dispatch},
    {"dispatch waits for others", test_dispatch_waits},
    {"no dispatch needed to renew", test_no_dispatch_needed_to_renew},
    CU_TEST_INFO_NULL,
};
