/* test_close_inside.c - a program that dispatches callbacks itself closes its client inside one of them: the waiting
 * callbacks still run, and the client is freed after that. */
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

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"a callback closes its client", test_closes},
        CU_TEST_INFO_NULL,
    };
    return rig_run("close_inside", tests);
}
