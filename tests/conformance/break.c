/* break.c - an operator breaks a lease: its holder learns it, its later calls do not touch another grant, and only
 * the named grant is broken. */
#include "conformance.h"

struct told {
    struct test_count lost;
};

static void on_state(mortise_lease *lease, mortise_lease_state state, void *user_data)
{
    struct told *told = user_data;
    (void)lease;
    if (state == MORTISE_STATE_LOST)
        test_count_add(&told->lost, 1);
}

static void test_break(void)
{
    mortise_client *holder = open_client("renew_every = 100ms"), *operator= open_client(NULL);
    const char *name = fresh_name();
    struct told told = {TEST_COUNT_INIT};
    mortise_lease *lease = NULL;
    EXPECT(OK, mortise_acquire(holder, name,
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = 60000,
                                               .on_state = on_state, .user_data = &told),
                               &lease, &detail));
    uint64_t token = mortise_token(lease);
    if (!has(MORTISE_CAP_FENCING)) {
        EXPECT(NOTSUP, mortise_break(operator, name, 1, &detail));
        give(lease);
    } else {
        EXPECT(NOTOWNER, mortise_break(operator, name, token + 1, &detail));
        CU_ASSERT_NOT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
        EXPECT(OK, mortise_break(operator, name, token, &detail));
        EXPECT(LOST, mortise_break(operator, name, token, &detail));
        CU_ASSERT(test_count_wait(&told.lost, 1)); /* at its next renewal */
        CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
        EXPECT(LOST, mortise_release(lease, &detail));
    }
    close_client(holder);
    close_client(operator);
}

/* Whose grant was broken gives back: the next holder keeps what it has. */
static void test_release_after_break(void)
{
    mortise_client *holder = open_client(NULL), *other = open_client(NULL);
    const char *name = fresh_name();
    if (has(MORTISE_CAP_FENCING)) {
        mortise_lease *lease = take(holder, name, 60000);
        uint64_t token = mortise_token(lease);
        EXPECT(OK, mortise_break(other, name, token, &detail));
        mortise_lease *next = take(other, name, 60000);
        CU_ASSERT(mortise_token(next) > token);
        EXPECT(NOTOWNER, mortise_break(holder, name, token, &detail));
        EXPECT(LOST, mortise_release(lease, &detail)); /* the backend says so, before any renewal */
        CU_ASSERT_EQUAL(mortise_state(next), MORTISE_STATE_HELD);
        EXPECT(BUSY, try_once(holder, name));
        give(next);
    }
    close_client(holder);
    close_client(other);
}

/* A waiter does not sleep through it. */
static bool break_wakes(mortise_client *holder, mortise_client *waiter)
{
    struct blocked blocked;
    const char *name = fresh_name();
    mortise_lease *lease = take(holder, name, has(MORTISE_CAP_NOTIFY) ? 60000 : subject.ttl_ms);
    int64_t began_ms = test_now_ms();
    blocked_start(&blocked, waiter, name, MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS));
    CU_ASSERT(wait_local_waiters(waiter, 1));
    if (has(MORTISE_CAP_NOTIFY))
        wait_waiters(name, 1);
    EXPECT(OK, mortise_break(subject.looker, name, mortise_token(lease), &detail));
    EXPECT(OK, blocked_join(&blocked));
    bool told = was_told(began_ms);
    give(blocked.lease);
    EXPECT(LOST, mortise_release(lease, &detail));
    return told;
}

static void test_break_wakes(void)
{
    mortise_client *holder = open_client(NULL), *waiter = open_client(NULL);
    bool told = !has(MORTISE_CAP_FENCING);
    for (int i = 0; i < TOLD_TRIES && !told; i++)
        told = break_wakes(holder, waiter);
    CU_ASSERT(told);
    close_client(holder);
    close_client(waiter);
}

/* A grant that was broken is not handed on within the process. */
static void test_broken_is_not_handed_on(void)
{
    mortise_client *holder = open_client("handover_window = 60s\nrenew_every = 100ms");
    const char *name = fresh_name();
    struct pending pending = PENDING_INIT;
    if (has(MORTISE_CAP_FENCING)) {
        struct told told = {TEST_COUNT_INIT};
        mortise_lease *lease = NULL;
        EXPECT(OK, mortise_acquire(holder, name,
                                   MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = 60000,
                                                   .on_state = on_state, .user_data = &told),
                                   &lease, &detail));
        uint64_t token = mortise_token(lease);
        EXPECT(OK, mortise_break(subject.looker, name, token, &detail));
        CU_ASSERT(test_count_wait(&told.lost, 1));
        pending_start(&pending, holder, name, MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS));
        EXPECT(LOST, mortise_release(lease, &detail));
        PENDING_EXPECT(&pending, OK);
        CU_ASSERT(mortise_token(pending.lease) > token);
        give(pending.lease);
    }
    close_client(holder);
}

const CU_TestInfo break_tests[] = {
    {"break", test_break},
    {"release after a break", test_release_after_break},
    {"a break wakes who waits", test_break_wakes},
    {"what is broken is not handed on", test_broken_is_not_handed_on},
    CU_TEST_INFO_NULL,
};
