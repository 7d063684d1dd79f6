/* test_migrate_kinds.c - the migrate plugin moves exclusive locks only. In every phase it refuses shared leases and
 * permits before it asks a server, also if both servers have them, and reports the one holder that there is. A lease with
 * no_renew lasts for its ttl, although no answer is good for longer than the presence. */
#include "migrate_rig.h"

static struct rig rig;

static void expect_refused(const mortise_options *options)
{
    mortise_lease *lease;
    mortise_error error;
    uint64_t from = sim->count(0), to = other->count(0);
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "a", options, &lease, &error), MORTISE_NOTSUP);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "driver migrate"));
    CU_ASSERT_EQUAL(sim->count(0), from);
    CU_ASSERT_EQUAL(other->count(0), to);
}

static bool count_holder(const mortise_info *info, void *count)
{
    CU_ASSERT_STRING_EQUAL(info->name, "a");
    CU_ASSERT_EQUAL(info->mode, MORTISE_EXCLUSIVE);
    CU_ASSERT_EQUAL(info->holders, 1);
    ++*(int *)count;
    return true;
}

/* Its ttl is 60 s, the presence 10 s: each answer of the server is good for that long only. */
static void expect_short(void)
{
    mortise_lease *lease = NULL;
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a",
                                          MORTISE_OPTIONS(.wait_ms = 0, .no_renew = true), &lease,
                                          NULL),
                          MORTISE_OK);
    CU_ASSERT(mortise_remaining_ms(lease) > 0 && mortise_remaining_ms(lease) <= 10000);
    CU_ASSERT_EQUAL(mortise_extend(lease, 0, NULL), MORTISE_OK);
    CU_ASSERT(mortise_remaining_ms(lease) > 0 && mortise_remaining_ms(lease) <= 10000);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
}

/* It is renewed until its ttl is over, because the presence would end before. */
static void expect_whole_ttl(void)
{
    mortise_lease *lease = take(&rig, "a", MORTISE_OPTIONS(.no_renew = true));
    advance_ms(58000);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    advance_ms(2000);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    advance_ms(10); /* what the drift of the clocks may take */
    CU_ASSERT_EQUAL(mortise_release(take(&rig, "a", NULL), NULL), MORTISE_OK);
}

static void test_phase(const char *phase)
{
    int holders = 0;
    other->reset();
    if (strcmp(phase, "new") == 0)
        register_set(MIGRATE_TO, MIGRATE_NEW, 0);
    migrate_open(&rig, phase, "");
    CU_ASSERT_EQUAL(mortise_capabilities(rig.handle) & (MORTISE_CAP_SHARED | MORTISE_CAP_PERMITS),
                    0);
    expect_refused(MORTISE_OPTIONS(.mode = MORTISE_SHARED));
    expect_refused(MORTISE_OPTIONS(.mode = MORTISE_SHARED, .permits = 2));
    mortise_lease *lease = take(&rig, "a", NULL);
    CU_ASSERT_EQUAL(mortise_holders(rig.handle, "a", count_holder, &holders, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(holders, 1);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    expect_short();
    expect_whole_ttl();
    rig_close(&rig);
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

/* The next renewal of "a" on that side. */
static void refuse_ttl(const sim_api *side)
{
    side->script(&(sim_rule){.kinds = OP(RENEW),
                             .name = "a",
                             .times = 1,
                             .fate = SIM_REFUSE,
                             .status = MORTISE_INVALID});
}

/* A side takes no such ttl. If the other one has extended the lease, nobody can say that nothing was asked for. */
static void test_extend_on_one_side(void)
{
    mortise_error error;
    other->reset();
    migrate_open(&rig, "both", "");
    mortise_lease *lease = take(&rig, "a", MORTISE_OPTIONS(.no_renew = true));
    refuse_ttl(other);
    CU_ASSERT_EQUAL(mortise_extend(lease, 120000, &error), MORTISE_INDETERMINATE);
    settle();
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD); /* the next renewal has succeeded */
    /* neither side takes it */
    refuse_ttl(sim);
    refuse_ttl(other);
    CU_ASSERT_EQUAL(mortise_extend(lease, 120000, &error), MORTISE_INVALID);
    /* another failure says more, though INVALID comes after it */
    SCRIPT(.kinds = OP(RENEW), .name = "a", .times = 1, .fate = SIM_REFUSE,
           .status = MORTISE_UNREACHABLE);
    refuse_ttl(other);
    CU_ASSERT_EQUAL(mortise_extend(lease, 120000, &error), MORTISE_UNREACHABLE);
    settle();
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

/* A side without records has its register on the other side, whose section is wrong. */
static void test_register_out_of_reach(void)
{
    mortise_lease *lease;
    mortise_error error;
    other->reset();
    SCRIPT(.kinds = OP(READ), .fate = SIM_REFUSE, .status = MORTISE_NOTSUP);
    migrate_open(&rig, "old", "[sim_other]\nlatency = soon\n");
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "a", MORTISE_OPTIONS(.wait_ms = 0), &lease, &error),
                    MORTISE_CONFIG);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "`to` [sim_other]"));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "latency"));
    rig_close(&rig);
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

/* The library does not renew a lease that ends before the presence: so it is SUSPECT until an extension succeeds. */
static void test_short_extend_on_one_side(void)
{
    mortise_error error;
    other->reset();
    migrate_open(&rig, "both", "");
    mortise_lease *lease = take(&rig, "a", MORTISE_OPTIONS(.ttl_ms = 6000, .no_renew = true));
    refuse_ttl(other);
    CU_ASSERT_EQUAL(mortise_extend(lease, 120000, &error), MORTISE_INDETERMINATE);
    advance_ms(1000);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_SUSPECT);
    CU_ASSERT_EQUAL(mortise_extend(lease, 0, &error), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

static void test_old(void)
{
    test_phase("old");
}

static void test_both(void)
{
    test_phase("both");
}

static void test_new(void)
{
    test_phase("new");
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"phase old", test_old},
        {"phase both", test_both},
        {"phase new", test_new},
        {"an extension that one side does not take", test_extend_on_one_side},
        {"an extension of a lease that is not renewed", test_short_extend_on_one_side},
        {"a register that is out of reach", test_register_out_of_reach},
        CU_TEST_INFO_NULL,
    };
    return migrate_rig_run("migrate_kinds", tests);
}
