/* test_many_between.c - several names at once: what happens to those that the call has, before the caller has them. */
#include "many_test.h"

/* ---- a close ---- */

static bool closes; /* before the call looks whether it still holds what it was granted */
static pthread_t closer;
static mortise_status close_status;

mortise_lease_state __real_mortise_state(mortise_lease *lease);
mortise_lease_state __wrap_mortise_state(mortise_lease *lease);

static void *close_rig(void *argument)
{
    (void)argument;
    close_status = mortise_close(rig.handle, NULL);
    return NULL;
}

static bool is_closing(void)
{
    struct locks *locks = &rig.client->locks;
    pthread_mutex_lock(&locks->lock);
    bool closing = locks->closing;
    locks_unlock(locks, START_NOW);
    return closing;
}

mortise_lease_state __wrap_mortise_state(mortise_lease *lease)
{
    if (closes) {
        closes = false;
        CU_ASSERT_EQUAL_FATAL(pthread_create(&closer, NULL, close_rig, NULL), 0);
        while (!is_closing())
            sched_yield();
    }
    return __real_mortise_state(lease);
}

/* All names are granted, and the leases end with the client before the call has returned: nobody else holds any. */
static void test_closed_in_between(void)
{
    rig_open_real(&rig, CONFIG);
    closes = true;
    CU_ASSERT_EQUAL(many(abc, 3, TRY), MORTISE_CLOSED);
    CU_ASSERT_EQUAL(error.status, MORTISE_CLOSED);
    assert_none(3);
    CU_ASSERT_FALSE(closes);
    pthread_join(closer, NULL);
    CU_ASSERT_EQUAL(close_status, MORTISE_OK);
    CU_ASSERT_EQUAL(sim->claims(), 0);
}

/* ---- a renewal that fails ---- */

static struct test_count suspects = TEST_COUNT_INIT, helds = TEST_COUNT_INIT;

static void count_changes(mortise_lease *lease, mortise_lease_state state, void *user_data)
{
    (void)lease;
    (void)user_data;
    test_count_add(state == MORTISE_STATE_SUSPECT ? &suspects : &helds, 1);
}

static bool renewal_has_failed(void *argument)
{
    (void)argument;
    return stats_of(&rig).renewal_failures > 0;
}

/* Whoever gets a lease that is SUSPECT is told so, before it is HELD again. */
static void test_suspect_meanwhile(void)
{
    pthread_t thread;
    static char b[] = "b";
    rig_open_real(&rig, "ttl = 60s\nrenew_every = 50ms\nhandover_max = 0\n");
    rig_open_real(&other, CONFIG);
    mortise_lease *held = take(&other, b, NULL);
    wanted_options = MORTISE_OPTIONS(.wait_ms = -1, .on_state = count_changes);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, acquire, NULL), 0);
    CU_ASSERT(test_poll(has_waiter, b, TEST_PATIENCE_MS));
    int rule =
        SCRIPT(.kinds = OP(RENEW), .name = "a", .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    CU_ASSERT(test_poll(renewal_has_failed, NULL, TEST_PATIENCE_MS));
    CU_ASSERT_EQUAL(test_count_get(&suspects), 0);
    CU_ASSERT_EQUAL(mortise_release(held, NULL), MORTISE_OK);
    pthread_join(thread, NULL);
    CU_ASSERT_EQUAL_FATAL(outcome, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_state(leases[1]), MORTISE_STATE_SUSPECT);
    CU_ASSERT(test_count_wait(&suspects, 1));
    CU_ASSERT_EQUAL(test_count_get(&helds), 0);
    sim->end(rule);
    CU_ASSERT(test_count_wait(&helds, 1));
    CU_ASSERT_EQUAL(test_count_get(&suspects), 1);
    CU_ASSERT_EQUAL(mortise_release_many(leases, 3, NULL), MORTISE_OK);
    rig_close(&rig);
    rig_close(&other);
    CU_ASSERT_EQUAL(sim->claims(), 0);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"the client is closed", test_closed_in_between},
        {"a renewal fails", test_suspect_meanwhile},
        CU_TEST_INFO_NULL,
    };
    return rig_run("many_between", tests);
}
