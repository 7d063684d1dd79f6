/* basic.c - acquire and release: trying once, waiting for a time, waiting forever; what is refused, and what a
 * released handle returns. */
#include "conformance.h"

#include <stdio.h>
#include <string.h>

static void test_try(void)
{
    mortise_client *holder = open_client(NULL), *other = open_client(NULL);
    const char *name = fresh_name();
    mortise_lease *lease = take(holder, name, 0), *refused = lease;
    EXPECT(BUSY, mortise_acquire(other, name, MORTISE_OPTIONS(.wait_ms = 0), &refused, &detail));
    CU_ASSERT_PTR_NULL(refused);
    CU_ASSERT_EQUAL(detail.status, MORTISE_BUSY);
    CU_ASSERT(strlen(detail.message) > 0);
    CU_ASSERT_PTR_NULL(strchr(detail.message, '\n'));
    EXPECT(BUSY, try_once(holder, name)); /* the own client is another caller too */
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    give(lease);
    EXPECT(OK, try_once(other, name));
    EXPECT(OK, try_once(holder, name));
    close_client(holder);
    close_client(other);
}

struct timed {
    mortise_client *holder, *waiter;
};

#define LEAVES_MS 5000 /* much less than the ttl, for which a place would stay */

static int64_t timed_out_late_ms(void *argument)
{
    struct timed *timed = argument;
    mortise_client *holder = timed->holder, *waiter = timed->waiter;
    const char *name = fresh_name();
    mortise_lease *lease = take(holder, name, 0), *refused = lease;
    int64_t began_ms = test_now_ms();
    EXPECT(TIMEDOUT,
           mortise_acquire(waiter, name, MORTISE_OPTIONS(.wait_ms = 150), &refused, &detail));
    int64_t took_ms = test_now_ms() - began_ms;
    CU_ASSERT_PTR_NULL(refused);
    CU_ASSERT(took_ms >= 149);
    give(lease);
    /* The caller that timed out left no place in a queue; it may still be on its way out, and be granted the lock for a moment. */
    EXPECT(OK,
           mortise_acquire(waiter, name, MORTISE_OPTIONS(.wait_ms = LEAVES_MS), &lease, &detail));
    give(lease);
    return took_ms - 150;
}

static void test_timed(void)
{
    mortise_client *holder = open_client(NULL), *waiter = open_client(NULL);
    CU_ASSERT(soon(timed_out_late_ms, &(struct timed){holder, waiter}));
    CU_ASSERT(soon(timed_out_late_ms, &(struct timed){holder, holder}));
    close_client(holder);
    close_client(waiter);
}

static void endless(mortise_client *holder, mortise_client *waiter)
{
    struct blocked blocked;
    const char *name = fresh_name();
    mortise_lease *lease = take(holder, name, 0);
    blocked_start(&blocked, waiter, name, MORTISE_OPTIONS(.wait_ms = MORTISE_WAIT_FOREVER));
    CU_ASSERT(wait_local_waiters(waiter, 1));
    CU_ASSERT_EQUAL(test_count_get(&blocked.done), 0);
    give(lease);
    EXPECT(OK, blocked_join(&blocked));
    EXPECT(BUSY, try_once(holder, name));
    give(blocked.lease);
}

static void test_endless(void)
{
    mortise_client *holder = open_client(NULL), *waiter = open_client(NULL);
    endless(holder, waiter);
    endless(holder, holder);
    close_client(holder);
    close_client(waiter);
}

/* Where the driver tells of a release, a waiter learns of it long before the holder's ttl is over. */
static bool is_told_of_release(mortise_client *holder, mortise_client *waiter)
{
    struct blocked blocked;
    const char *name = fresh_name();
    int64_t ttl_ms = has(MORTISE_CAP_NOTIFY) ? 60000 : subject.ttl_ms;
    mortise_lease *lease = take(holder, name, ttl_ms);
    int64_t began_ms = test_now_ms();
    blocked_start(&blocked, waiter, name, MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS));
    CU_ASSERT(wait_local_waiters(waiter, 1));
    if (has(MORTISE_CAP_NOTIFY))
        wait_waiters(name, 1);
    give(lease);
    EXPECT(OK, blocked_join(&blocked));
    bool told = was_told(began_ms);
    give(blocked.lease);
    return told;
}

static void test_told_of_release(void)
{
    mortise_client *holder = open_client(NULL), *waiter = open_client(NULL);
    bool told = false;
    is_told_of_release(holder,
                       waiter); /* the first time it may just have begun to listen, and look */
    for (int i = 0; i < TOLD_TRIES && !told; i++)
        told = is_told_of_release(holder, waiter);
    CU_ASSERT(told);
    close_client(holder);
    close_client(waiter);
}

static void test_config_defaults(void)
{
    mortise_client *client = open_client("wait = 150ms\nttl = 7s");
    const char *name = fresh_name();
    mortise_lease *lease = NULL, *refused;
    int64_t began_ms = test_now_ms();
    EXPECT(OK, mortise_acquire(client, name, MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS), &lease,
                               &detail));
    int64_t remaining_ms = mortise_remaining_ms(lease);
    if (has(MORTISE_CAP_LEASE)) /* less 1 %, 2 ms, and roundings */
        CU_ASSERT(remaining_ms >= 7000 - 75 - (test_now_ms() - began_ms));
    CU_ASSERT(remaining_ms <= 7000 - 70);
    began_ms = test_now_ms();
    EXPECT(TIMEDOUT, mortise_acquire(client, name, NULL, &refused, &detail));
    EXPECT(TIMEDOUT, mortise_acquire(client, name, MORTISE_OPTIONS(.wait_ms = MORTISE_WAIT_DEFAULT),
                                     &refused, &detail));
    CU_ASSERT(test_now_ms() - began_ms >= 298);
    give(lease);
    close_client(client);
}

static void test_spent_handles(void)
{
    mortise_client *client = open_client(NULL);
    const char *name = fresh_name();
    char owner[64] = "x";
    mortise_lease *lease = take(client, name, 0);
    give(lease);
    mortise_lease *next =
        take(client, name, 0); /* may use the same memory, never the same handle */
    EXPECT(INVALID, mortise_release(lease, &detail));
    EXPECT(INVALID, mortise_release_nowait(lease, &detail));
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_remaining_ms(lease), 0);
    CU_ASSERT_EQUAL(mortise_token(lease), 0);
    CU_ASSERT_EQUAL(mortise_owner(lease, owner, sizeof owner), 0);
    CU_ASSERT_EQUAL(mortise_state(next), MORTISE_STATE_HELD);
    give(next);
    EXPECT(OK, mortise_release(NULL, &detail));
    EXPECT(OK, mortise_release_nowait(NULL, &detail));
    CU_ASSERT_EQUAL(mortise_state(NULL), MORTISE_STATE_LOST);
    EXPECT(INVALID, mortise_release((mortise_lease *)(uintptr_t)0x123456789, &detail));
    close_client(client);
}

static void test_release_nowait(void)
{
    mortise_client *client = open_client(NULL), *other = open_client(NULL);
    const char *name = fresh_name();
    for (int i = 0; i < 50; i++) {
        mortise_lease *lease = take(client, name, 0);
        EXPECT(OK, mortise_release_nowait(lease, &detail));
        EXPECT(INVALID, mortise_release_nowait(lease, &detail));
        lease = take(i % 2 ? other : client, name, 0);
        give(lease);
    }
    EXPECT(OK, mortise_release_nowait(take(client, name, 0), &detail));
    close_client(client); /* waits for it */
    EXPECT(OK, try_once(other, name));
    close_client(other);
}

static int with_return(mortise_lease *lease)
{
    MORTISE_WITH (lease)
        return 1;
    return 0;
}

static void test_with(void)
{
    mortise_client *client = open_client(NULL);
    const char *name = fresh_name();
    int runs = 0;
    MORTISE_WITH (take(client, name, 0)) {
        runs++;
        EXPECT(BUSY, try_once(client, name));
    }
    EXPECT(OK, try_once(client, name));
    MORTISE_WITH (take(client, name, 0)) {
        runs++;
        break;
    }
    EXPECT(OK, try_once(client, name));
    for (int i = 0; i < 2; i++)
        MORTISE_WITH (take(client, name, 0)) {
            runs++;
            continue;
        }
    EXPECT(OK, try_once(client, name));
    CU_ASSERT_EQUAL(with_return(take(client, name, 0)), 1);
    EXPECT(OK, try_once(client, name));
    MORTISE_WITH (NULL)
        runs += 100;
    CU_ASSERT_EQUAL(runs, 4);
    close_client(client);
}

static void never(mortise_status status, mortise_lease *lease, const mortise_error *error,
                  void *called)
{
    (void)status;
    (void)lease;
    (void)error;
    test_count_add(called, 1);
}

/* What is not supported at all may be refused for that. */
static mortise_status not_supported(mortise_status status, bool supported)
{
    return status == MORTISE_NOTSUP && !supported ? MORTISE_INVALID : status;
}

static void refuse(mortise_client *client, const char *name, const mortise_options *options,
                   const char *what)
{
    bool supported = !options->owner || has(MORTISE_CAP_REENTRANT);
    mortise_lease *lease = (mortise_lease *)(uintptr_t)1;
    detail = (mortise_error){0};
    mortise_status status = mortise_acquire(client, name, options, &lease, &detail);
    if (!EXPECT(INVALID, not_supported(status, supported)))
        fprintf(stderr, "  of: %s\n", what);
    CU_ASSERT_PTR_NULL(lease);
    CU_ASSERT_EQUAL(detail.status, status);
    static struct test_count called = TEST_COUNT_INIT;
    status = mortise_acquire_async(client, name, options, never, &called, NULL, &detail);
    EXPECT(INVALID, not_supported(status, supported));
    CU_ASSERT_EQUAL(test_count_get(&called), 0);
}

#define REFUSE(...) refuse(client, name, MORTISE_OPTIONS(__VA_ARGS__), #__VA_ARGS__)

static void test_bad_options(void)
{
    mortise_client *client = open_client(NULL);
    const char *name = fresh_name();
    char owner[MORTISE_OWNER_MAX + 2];
    memset(owner, 'o', sizeof owner - 1);
    owner[sizeof owner - 1] = '\0';
    REFUSE(.wait_ms = -3);
    REFUSE(.wait_ms = MORTISE_WAIT_MAX_MS + 1);
    REFUSE(.wait_ms = INT64_MAX);
    REFUSE(.ttl_ms = -1);
    REFUSE(.ttl_ms = MORTISE_TTL_MIN_MS - 1);
    REFUSE(.ttl_ms = MORTISE_TTL_MAX_MS + 1);
    REFUSE(.ttl_ms = INT64_MAX);
    REFUSE(.max_hold_ms = -1);
    REFUSE(.owner = "");
    REFUSE(.owner = owner);
    mortise_options no_size = {.wait_ms = 0};
    refuse(client, name, &no_size, "size 0");
    EXPECT(OK, try_once(client, name));
    close_client(client);
}

static void test_bad_arguments(void)
{
    mortise_client *client = open_client(NULL);
    char longer[MORTISE_NAME_MAX + 2];
    mortise_lease *lease = (mortise_lease *)(uintptr_t)1;
    mortise_info info = {.size = 0};
    memset(longer, 'n', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    refuse(client, "", MORTISE_OPTIONS(.wait_ms = 0), "an empty name");
    refuse(client, longer, MORTISE_OPTIONS(.wait_ms = 0), "a name that is too long");
    refuse(client, NULL, MORTISE_OPTIONS(.wait_ms = 0), "no name");
    EXPECT(INVALID, mortise_acquire(client, "x", MORTISE_OPTIONS(.wait_ms = 0), NULL, &detail));
    EXPECT(INVALID, mortise_acquire_async(client, "x", NULL, NULL, NULL, NULL, &detail));
    mortise_status status =
        mortise_acquire(NULL, "x", MORTISE_OPTIONS(.wait_ms = 0), &lease, &detail);
    CU_ASSERT(status == MORTISE_INVALID || status == MORTISE_CLOSED);
    CU_ASSERT_PTR_NULL(lease);
    EXPECT(INVALID, mortise_inspect(client, "x", &info, &detail));
    EXPECT(INVALID, mortise_inspect(client, "x", NULL, &detail));
    info.size = sizeof info;
    EXPECT(INVALID,
           not_supported(mortise_inspect(client, "", &info, &detail), has(MORTISE_CAP_INSPECT)));
    EXPECT(INVALID, mortise_list(client, "", NULL, NULL, &detail));
    EXPECT(INVALID, not_supported(mortise_break(client, "", 1, &detail), has(MORTISE_CAP_FENCING)));
    EXPECT(INVALID, mortise_open(subject.where, NULL, &detail));
    /* errors may be left away */
    EXPECT(INVALID, mortise_acquire(client, longer, NULL, &lease, NULL));
    EXPECT(INVALID, mortise_cancel(client, 0));
    EXPECT(INVALID, mortise_cancel(client, UINT64_MAX));
    close_client(client);
}

const CU_TestInfo basic_tests[] = {
    {"try once", test_try},
    {"wait for a time", test_timed},
    {"wait for ever", test_endless},
    {"a waiter is told of the release", test_told_of_release},
    {"the config's wait and ttl", test_config_defaults},
    {"spent handles", test_spent_handles},
    {"release without waiting", test_release_nowait},
    {"MORTISE_WITH", test_with},
    {"options with bad values", test_bad_options},
    {"arguments with bad values", test_bad_arguments},
    CU_TEST_INFO_NULL,
};
