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

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"the client is closed", test_closed_in_between},
        CU_TEST_INFO_NULL,
    };
    return rig_run("many_between", tests);
}
