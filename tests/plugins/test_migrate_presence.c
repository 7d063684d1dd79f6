/* test_migrate_presence.c - the migrate plugin when a presence has ended before what hangs on it: what a client held is given
 * back. And in phase both when one of the two has ended: the other one ends too, if the client has nothing to do. */
#include "migrate_rig.h"

static struct rig rig, peek;

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

static char present_name[MORTISE_NAME_MAX + 1]; /* of the last one that present_on() has found */

static bool count(const mortise_info *info, void *n)
{
    snprintf(present_name, sizeof present_name, "%s", info->name);
    ++*(int *)n;
    return true;
}

static int present_on(enum migrate_side side)
{
    int n = 0;
    side_open(&peek, side);
    CU_ASSERT_EQUAL(mortise_list(peek.handle, MIGRATE_PRESENCES, count, &n, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_close(peek.handle, NULL), MORTISE_OK);
    return n;
}

/* ---- what hangs on it ------------------------------------------------------------------------------ */

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

/* The library does not renew the lease any more (max_hold), and looks at it: it asks for what is left until the deadline. The
 * server keeps the claim for its ttl all the same, and when the presence is broken, the plugin releases it for so long. */
static void test_dropped_after_a_look(void)
{
    open_phase("old");
    mortise_lease *lease = take(&rig, "a", MORTISE_OPTIONS(.max_hold_ms = 1000));
    uint64_t token = mortise_token(lease), renewals = sim->count(MORTISE_OP_RENEW);
    advance_ms(2000);
    sim->doubt_all();
    settle();
    CU_ASSERT(sim->count(MORTISE_OP_RENEW) > renewals);
    CU_ASSERT_EQUAL(present_on(MIGRATE_FROM), 1);
    CU_ASSERT(sim->lose(present_name));
    int away = SCRIPT(.kinds = OP(RELEASE), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    advance_ms(20000);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    CU_ASSERT(sim->holds("a", token));
    sim->end(away);
    advance_ms(1000);
    CU_ASSERT_FALSE(sim->holds("a", token));
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    end();
}

/* ---- one of two ---------------------------------------------------------------------------------- */

static void use_once(void)
{
    CU_ASSERT_EQUAL(mortise_release(take(&rig, "a", NULL), NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(present_on(MIGRATE_FROM), 1);
    CU_ASSERT_EQUAL(present_on(MIGRATE_TO), 1);
}

static void expect_nobody_after_a_minute(void)
{
    advance_ms(60000);
    CU_ASSERT_EQUAL(present_on(MIGRATE_FROM), 0);
    CU_ASSERT_EQUAL(present_on(MIGRATE_TO), 0);
}

/* A client that has nothing to do is on both sides, until one has come back without its data. */
static void forget_on(const sim_api *side)
{
    open_phase("both");
    use_once();
    advance_ms(60000);
    CU_ASSERT_EQUAL(present_on(MIGRATE_FROM), 1);
    CU_ASSERT_EQUAL(present_on(MIGRATE_TO), 1);
    side->lose_all();
    expect_nobody_after_a_minute();
    use_once();
    end();
}

static void test_forgotten(void)
{
    forget_on(sim);
    forget_on(other);
}

static int go_away(const sim_api *side)
{
    return side->script(&(sim_rule){
        .kinds = OP(ACQUIRE) | OP(RENEW), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE});
}

/* Or one cannot be reached for longer than the presence lasts, */
static void test_away(void)
{
    open_phase("both");
    use_once();
    int away = go_away(other);
    expect_nobody_after_a_minute();
    other->end(away);
    use_once();
    end();
}

/* or could not when the client began. */
static void test_away_from_the_start(void)
{
    mortise_lease *lease;
    open_phase("both");
    int away = go_away(other);
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "a", TRY, &lease, NULL), MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(present_on(MIGRATE_FROM), 1);
    expect_nobody_after_a_minute();
    other->end(away);
    use_once();
    end();
}

/* A lock is asked for when the one presence is not renewed any more, and is still there: it is renewed again. */
static void test_used_again(void)
{
    open_phase("both");
    use_once();
    other->lose_all();
    advance_ms(8000);
    CU_ASSERT_EQUAL(present_on(MIGRATE_FROM), 1);
    CU_ASSERT_EQUAL(present_on(MIGRATE_TO), 0);
    mortise_lease *lease = take(&rig, "a", NULL);
    advance_ms(60000);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    end();
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"stopped past the presence", test_stopped},
        {"given back for as long as the server keeps it", test_dropped_after_a_look},
        {"one side has forgotten an idle client", test_forgotten},
        {"one side is away from an idle client", test_away},
        {"one side is away from the start", test_away_from_the_start},
        {"a presence that is renewed again", test_used_again},
        CU_TEST_INFO_NULL,
    };
    return migrate_rig_run("migrate_presence", tests);
}
