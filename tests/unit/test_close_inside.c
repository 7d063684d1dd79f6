/* test_close_inside.c - a program closes its client inside a callback. If it dispatches callbacks itself, the waiting ones still
 * run, and the client is freed after that. A release on another thread does not wait for the one that closes. */
#include "rig.h"

static struct rig rig;
static struct outcome got, other;

static void close_here(mortise_status status, mortise_lease *lease, const mortise_error *error,
                       void *user_data)
{
    told(status, lease, error, user_data);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_CLOSING); /* another one waits */
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_CLOSING); /* still */
}

static void test_closes(void)
{
    memset(&got, 0, sizeof(got));
    rig_open(&rig, "ttl = 3s\n");
    sim->seize("b", MORTISE_NEVER);
    want(&rig, &other, "b", FOREVER);
    rig_forget(&rig);
    CU_ASSERT_EQUAL(mortise_acquire_async(rig.handle, "a", TRY, close_here, &got, NULL, NULL),
                    MORTISE_OK);
    while (mortise_dispatch(rig.handle) >= 0 && got.calls == 0)
        ;
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(other.calls, 1);
    CU_ASSERT_EQUAL(other.status, MORTISE_CLOSED);
    CU_ASSERT_EQUAL(mortise_dispatch(rig.handle), MORTISE_CLOSED);
    sim->give_back("b");
    ASSERT_NOTHING_LEFT();
    CU_ASSERT_EQUAL(sim->instances(), 0);
}

static struct test_count lost = TEST_COUNT_INIT, released = TEST_COUNT_INIT;
static bool seen_released, closed, released_before; /* it returned before the callback did */

static bool is_being_released(void *lease)
{
    return mortise_downgrade(lease, NULL) == MORTISE_INVALID;
}

static void close_when_released(mortise_lease *lease, mortise_lease_state state, void *user_data)
{
    (void)user_data;
    if (state != MORTISE_STATE_LOST)
        return;
    test_count_add(&lost, 1);
    seen_released = test_poll(is_being_released, lease, TEST_PATIENCE_MS);
    closed = mortise_close(rig.handle, NULL) == MORTISE_OK; /* it waits for the release */
    released_before = test_count_wait(&released, 1);
}

/* The close of another thread tells when the callback has returned. */
static void test_release_meanwhile(void)
{
    mortise_lease *lease;
    rig_open_real(&rig, "ttl = 3s\n");
    CU_ASSERT_EQUAL_FATAL(
        mortise_acquire(rig.handle, "a",
                        MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 60, .no_renew = true,
                                        .on_state = close_when_released),
                        &lease, NULL),
        MORTISE_OK);
    CU_ASSERT_FATAL(test_count_wait(&lost, 1));
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    test_count_add(&released, 1);
    mortise_status status;
    while ((status = mortise_close(rig.handle, NULL)) == MORTISE_CLOSING)
        continue;
    CU_ASSERT_EQUAL(status, MORTISE_CLOSED);
    CU_ASSERT(seen_released && closed && released_before);
    CU_ASSERT_EQUAL(sim->instances(), 0);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"a callback closes its client", test_closes},
        {"a release while a callback closes", test_release_meanwhile},
        CU_TEST_INFO_NULL,
    };
    return rig_run("close_inside", tests);
}
