/* close.c - what happens to waiters, leases and open requests when a client is closed, and to calls after that. */
#include "conformance.h"

static int64_t waiters_closed_late_ms(void *unused)
{
    (void)unused;
    mortise_client *holder = open_client(NULL), *client = open_client(NULL);
    const char *name = fresh_name();
    struct blocked blocked[3];
    struct pending pending = PENDING_INIT;
    mortise_lease *lease = take(holder, name, 60000);
    for (int i = 0; i < 3; i++)
        blocked_start(&blocked[i], client, name, MORTISE_OPTIONS(.wait_ms = -1));
    pending_start(&pending, client, name, MORTISE_OPTIONS(.wait_ms = -1));
    CU_ASSERT(wait_local_waiters(client, 4));
    int64_t began_ms = test_now_ms();
    close_client(client);
    CU_ASSERT_EQUAL(test_count_get(&pending.calls), 1); /* before close returns */
    PENDING_EXPECT(&pending, CLOSED);
    for (int i = 0; i < 3; i++) {
        EXPECT(CLOSED, blocked_join(&blocked[i]));
        CU_ASSERT_PTR_NULL(blocked[i].lease);
    }
    int64_t took_ms = test_now_ms() - began_ms;
    if (has(MORTISE_CAP_INSPECT) && look(holder, name).waiters >= 0)
        CU_ASSERT(wait_waiters(name, 0));
    give(lease);
    EXPECT(OK, try_once(holder, name));
    close_client(holder);
    return took_ms;
}

static void test_waiters(void)
{
    CU_ASSERT(soon(waiters_closed_late_ms, NULL));
}

static void test_held(void)
{
    mortise_client *client = open_client(NULL), *other = open_client(NULL);
    const char *first_name = fresh_name(), *second_name = fresh_name();
    struct blocked blocked;
    mortise_lease *first = take(client, first_name, 60000),
                  *second = take(client, second_name, 60000);
    blocked_start(&blocked, other, first_name, MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS));
    CU_ASSERT(wait_local_waiters(other, 1));
    EXPECT(OK, mortise_release_nowait(take(client, fresh_name(), 60000), &detail));
    close_client(client);
    EXPECT(OK, blocked_join(&blocked));
    EXPECT(OK, try_once(other, second_name));
    CU_ASSERT_EQUAL(mortise_state(first), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_remaining_ms(first), 0);
    expect_spent(mortise_release(first, &detail));
    expect_spent(mortise_release_nowait(second, &detail));
    give(blocked.lease);
    close_client(other);
}

static void never(mortise_status status, mortise_lease *lease, const mortise_error *error,
                  void *called)
{
    (void)status;
    (void)lease;
    (void)error;
    *(bool *)called = true;
}

static bool each(const mortise_info *info, void *called)
{
    (void)info;
    *(bool *)called = true;
    return true;
}

static void test_calls_afterwards(void)
{
    mortise_client *client = open_client(NULL);
    mortise_lease *lease = (mortise_lease *)(uintptr_t)1;
    mortise_info info = {.size = sizeof info};
    mortise_stats stats = {.size = sizeof stats};
    mortise_status status = MORTISE_OK;
    char text[64];
    static bool called;
    close_client(client);
    EXPECT(CLOSED, mortise_close(client, &detail));
    EXPECT(CLOSED, mortise_acquire(client, "x", MORTISE_OPTIONS(.wait_ms = 0), &lease, &detail));
    CU_ASSERT_PTR_NULL(lease);
    EXPECT(CLOSED, mortise_acquire(client, "x", MORTISE_OPTIONS(.wait_ms = -1), &lease, &detail));
    EXPECT(CLOSED, mortise_acquire_async(client, "x", NULL, never, &called, NULL, &detail));
    EXPECT(CLOSED, mortise_cancel(client, 1));
    EXPECT(CLOSED, mortise_inspect(client, "x", &info, &detail));
    EXPECT(CLOSED, mortise_list(client, "", each, &called, &detail));
    EXPECT(CLOSED, mortise_break(client, "x", 1, &detail));
    EXPECT(CLOSED, mortise_ping(client, text, sizeof text, &detail));
    EXPECT(CLOSED, mortise_stats_get(client, &stats));
    CU_ASSERT_EQUAL(mortise_fd(client, &status), -1);
    EXPECT(CLOSED, status);
    CU_ASSERT_FALSE(called);
    mortise_client *again = open_client(NULL); /* may use the same memory, never the same handle */
    EXPECT(CLOSED, mortise_close(client, &detail));
    EXPECT(OK, try_once(again, fresh_name()));
    close_client(again);
}

static void *close_it(void *client)
{
    return (void *)(intptr_t)mortise_close(client, NULL);
}

/* Two threads close, four acquire and release: each call has an answer, one close has OK. */
static void test_races(void)
{
    for (int i = 0; i < 20; i++) {
        mortise_client *client = open_client(NULL);
        const char *name = fresh_name();
        struct blocked blocked[4];
        pthread_t closer;
        void *closed;
        for (int j = 0; j < 4; j++)
            blocked_start(&blocked[j], client, name, MORTISE_OPTIONS(.wait_ms = -1));
        if (pthread_create(&closer, NULL, close_it, client) != 0)
            CU_FAIL_FATAL("no thread");
        mortise_status mine = mortise_close(client, NULL);
        pthread_join(closer, &closed);
        mortise_status theirs = (mortise_status)(intptr_t)closed;
        CU_ASSERT((mine == MORTISE_OK && theirs == MORTISE_CLOSED) ||
                  (mine == MORTISE_CLOSED && theirs == MORTISE_OK));
        for (int j = 0; j < 4; j++) {
            mortise_status status = blocked_join(&blocked[j]);
            CU_ASSERT(status == MORTISE_OK || status == MORTISE_CLOSED);
            if (status == MORTISE_OK)
                expect_spent(mortise_release(blocked[j].lease, &detail));
        }
        EXPECT(OK, try_once(subject.looker, name));
    }
}

const CU_TestInfo close_tests[] = {
    {"close with waiters", test_waiters},
    {"close with leases held", test_held},
    {"calls after close", test_calls_afterwards},
    {"close races", test_races},
    CU_TEST_INFO_NULL,
};
