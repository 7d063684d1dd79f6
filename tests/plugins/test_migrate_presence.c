/* test_migrate_presence.c - the migrate plugin when a presence has ended before what hangs on it: what a client held is given
 * back. */
#include "migrate_rig.h"

static struct rig rig;

static void open_phase(const char *phase)
{
    sim->reset();
    other->reset();
    migrate_open(&rig, phase, "");
}

static void end(void)
{
    rig_close(&rig);
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

/* The process is stopped for longer than the presence lasts (10 s), and goes on before the ttl (60 s) is over. The servers would
 * keep the lock until then. */
static void stop_past_the_presence(const char *phase, bool look)
{
    open_phase(phase);
    mortise_lease *lease = take(&rig, "a", NULL);
    uint64_t token = mortise_token(lease);
    CU_ASSERT(sim->holds("a", token));
    CU_ASSERT_EQUAL(other->holds("a", token), strcmp(phase, "both") == 0);
    set_now(now_ns() + 15000 * MS);
    if (look)
        CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    settle();
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    CU_ASSERT_FALSE(sim->holds("a", token));
    CU_ASSERT_FALSE(other->holds("a", token));
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    CU_ASSERT_EQUAL(mortise_release(take(&rig, "a", NULL), NULL), MORTISE_OK);
    end();
}

static void test_stopped(void)
{
    for (int look = 0; look <= 1; look++) {
        stop_past_the_presence("old", look != 0);
        stop_past_the_presence("both", look != 0);
    }
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"stopped past the presence", test_stopped},
        CU_TEST_INFO_NULL,
    };
    return migrate_rig_run("migrate_presence", tests);
}
