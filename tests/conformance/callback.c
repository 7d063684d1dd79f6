/* callback.c - every function of the API called inside a callback, and callbacks that take long. */
#include "conformance.h"

#include <string.h>

/* What the callback saw; asserted afterwards, on the test's thread. */
struct inside {
    mortise_client *client;
    const char *name, *other_name;
    mortise_status granted, waits, waits_default, tries, busy, release, nowait, async, cancel,
        inspect, list, ping, stats, breaks, capabilities, module, source, dispatch, owner;
    mortise_lease_state state;
    struct pending later;
    struct test_count done;
};

static bool skip(const mortise_info *info, void *user_data)
{
    (void)info;
    (void)user_data;
    return false;
}

static mortise_status as_status(bool good)
{
    return good ? MORTISE_OK : MORTISE_BACKEND;
}

static void call_acquires(struct inside *inside)
{
    mortise_lease *lease = NULL;
    inside->waits = mortise_acquire(inside->client, inside->other_name,
                                    MORTISE_OPTIONS(.wait_ms = 1000), &lease, NULL);
    inside->waits_default = mortise_acquire(inside->client, inside->other_name,
                                            MORTISE_OPTIONS(.wait_ms = -1), &lease, NULL);
    inside->busy =
        mortise_acquire(inside->client, inside->name, MORTISE_OPTIONS(.wait_ms = 0), &lease, NULL);
    inside->tries = mortise_acquire(inside->client, inside->other_name,
                                    MORTISE_OPTIONS(.wait_ms = 0), &lease, NULL);
    inside->nowait = mortise_release_nowait(lease, NULL);
}

static void later_done(mortise_status status, mortise_lease *lease, const mortise_error *error,
                       void *user_data)
{
    struct inside *inside = user_data;
    (void)error;
    inside->later.status = status;
    inside->later.lease = lease;
    test_count_add(&inside->later.calls, 1);
}

static void call_async(struct inside *inside)
{
    inside->async =
        mortise_acquire_async(inside->client, inside->name, MORTISE_OPTIONS(.wait_ms = -1),
                              later_done, inside, &inside->later.request, NULL);
    inside->cancel = mortise_cancel(inside->client, inside->later.request);
}

static void call_lookers(struct inside *inside, mortise_lease *lease)
{
    mortise_info info = {.size = sizeof info};
    mortise_stats stats = {.size = sizeof stats};
    mortise_module_info module = {.size = sizeof module};
    char text[256], owner[64];
    inside->inspect = mortise_inspect(inside->client, inside->name, &info, NULL);
    inside->list = mortise_list(inside->client, "", skip, NULL, NULL);
    inside->breaks = mortise_break(inside->client, inside->other_name, 1, NULL);
    inside->ping = mortise_ping(inside->client, text, sizeof text, NULL);
    inside->stats = mortise_stats_get(inside->client, &stats);
    inside->capabilities = as_status(mortise_capabilities(inside->client) == subject.capabilities);
    inside->module = as_status(mortise_module_at(inside->client, 0, &module));
    inside->source = as_status(mortise_config_source(inside->client) != NULL);
    inside->owner = as_status(mortise_owner(lease, owner, sizeof owner) == 32);
    inside->dispatch = (mortise_status)mortise_dispatch(inside->client);
    inside->state = mortise_state(lease);
}

static void call_everything(mortise_status status, mortise_lease *lease, const mortise_error *error,
                            void *user_data)
{
    struct inside *inside = user_data;
    (void)error;
    inside->granted = status;
    call_acquires(inside);
    call_async(inside);
    call_lookers(inside, lease);
    inside->release = mortise_release(lease, NULL);
    test_count_add(&inside->done, 1);
}

static void check_everything(struct inside *inside)
{
    EXPECT(OK, inside->granted);
    EXPECT(DEADLOCK, inside->waits);
    EXPECT(DEADLOCK, inside->waits_default);
    EXPECT(OK, inside->tries);
    EXPECT(BUSY, inside->busy);
    EXPECT(OK, inside->release);
    EXPECT(OK, inside->nowait);
    EXPECT(OK, inside->async);
    EXPECT(OK, inside->cancel);
    expect_at(inside->inspect, has(MORTISE_CAP_INSPECT) ? MORTISE_OK : MORTISE_NOTSUP, "inspect",
              __FILE__, __LINE__);
    expect_at(inside->list, has(MORTISE_CAP_LIST) ? MORTISE_OK : MORTISE_NOTSUP, "list", __FILE__,
              __LINE__);
    expect_at(inside->breaks, has(MORTISE_CAP_FENCING) ? MORTISE_LOST : MORTISE_NOTSUP, "break",
              __FILE__, __LINE__);
    EXPECT(OK, inside->ping);
    EXPECT(OK, inside->stats);
    EXPECT(OK, inside->capabilities);
    EXPECT(OK, inside->module);
    EXPECT(OK, inside->source);
    EXPECT(OK, inside->owner);
    EXPECT(DEADLOCK, inside->dispatch);
    CU_ASSERT_EQUAL(inside->state, MORTISE_STATE_HELD);
    PENDING_EXPECT(&inside->later, CANCELED);
}

static void test_everything_inside(void)
{
    struct inside inside = {.client = open_client(NULL),
                            .name = fresh_name(),
                            .other_name = fresh_name(),
                            .later = PENDING_INIT,
                            .done = TEST_COUNT_INIT};
    EXPECT(OK, mortise_acquire_async(inside.client, inside.name, MORTISE_OPTIONS(.wait_ms = 0),
                                     call_everything, &inside, NULL, &detail));
    CU_ASSERT_FATAL(test_count_wait(&inside.done, 1));
    check_everything(&inside);
    close_client(inside.client);
}

static void test_everything_in_dispatch(void)
{
    struct inside inside = {.client = open_client(NULL),
                            .name = fresh_name(),
                            .other_name = fresh_name(),
                            .later = PENDING_INIT,
                            .done = TEST_COUNT_INIT};
    CU_ASSERT(mortise_fd(inside.client, NULL) >= 0);
    EXPECT(OK, mortise_acquire_async(inside.client, inside.name, MORTISE_OPTIONS(.wait_ms = 0),
                                     call_everything, &inside, NULL, &detail));
    int64_t until_ms = test_now_ms() + TEST_PATIENCE_MS;
    while (test_count_get(&inside.later.calls) == 0 && test_now_ms() < until_ms)
        CU_ASSERT(mortise_dispatch(inside.client) >= 0);
    check_everything(&inside);
    close_client(inside.client);
}

struct closing {
    mortise_client *client;
    mortise_status closed, closed_again, acquired, released;
    struct test_count done;
};

static void close_inside(mortise_status status, mortise_lease *lease, const mortise_error *error,
                         void *user_data)
{
    struct closing *closing = user_data;
    mortise_lease *refused;
    (void)status;
    (void)error;
    closing->closed = mortise_close(closing->client, NULL);
    closing->closed_again = mortise_close(closing->client, NULL);
    closing->acquired =
        mortise_acquire(closing->client, "x", MORTISE_OPTIONS(.wait_ms = 0), &refused, NULL);
    closing->released = mortise_release(lease, NULL);
    test_count_add(&closing->done, 1);
}

static void test_close_inside(void)
{
    const char *name = fresh_name();
    struct closing closing = {.client = open_client(NULL), .done = TEST_COUNT_INIT};
    mortise_client *other = open_client(NULL);
    struct blocked blocked;
    blocked_start(&blocked, other, name, MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS));
    EXPECT(OK, blocked_join(&blocked));
    EXPECT(OK, mortise_acquire_async(closing.client, name,
                                     MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 60000), close_inside,
                                     &closing, NULL, &detail));
    give(blocked.lease);
    CU_ASSERT_FATAL(test_count_wait(&closing.done, 1));
    EXPECT(OK, closing.closed);
    EXPECT(CLOSED, closing.closed_again);
    EXPECT(CLOSED, closing.acquired);
    expect_spent(closing.released);
    give(take(other, name, 0)); /* close gave it back */
    close_client(other);
}

struct slow {
    struct test_count entered, leave;
};

static void take_time(mortise_status status, mortise_lease *lease, const mortise_error *error,
                      void *user_data)
{
    struct slow *slow = user_data;
    (void)error;
    if (status == MORTISE_OK)
        mortise_release(lease, NULL);
    test_count_add(&slow->entered, 1);
    test_count_wait(&slow->leave, 1);
}

/* A callback that does not return harms nobody's renewal and nobody's acquire. */
static void test_slow_callback(void)
{
    mortise_client *client = open_client("renew_every = 100ms"), *other = open_client(NULL);
    const char *name = fresh_name();
    struct slow slow = {TEST_COUNT_INIT, TEST_COUNT_INIT};
    mortise_lease *lease = take(client, name, 60000);
    EXPECT(OK, mortise_acquire_async(client, fresh_name(), MORTISE_OPTIONS(.wait_ms = 0), take_time,
                                     &slow, NULL, &detail));
    CU_ASSERT(test_count_wait(&slow.entered, 1));
    EXPECT(OK, try_once(client, fresh_name()));
    CU_ASSERT(wait_renewals(client, 3));
    EXPECT(BUSY, try_once(other, name));
    CU_ASSERT_NOT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    test_count_add(&slow.leave, 1);
    give(lease);
    close_client(client);
    close_client(other);
}

const CU_TestInfo callback_tests[] = {
    {"every function inside a callback", test_everything_inside},
    {"every function inside dispatch", test_everything_in_dispatch},
    {"close inside a callback", test_close_inside},
    {"a callback that takes its time", test_slow_callback},
    CU_TEST_INFO_NULL,
};
