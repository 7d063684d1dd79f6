/* test_stats.c - the counters of a client: each counts what the header says, and nothing else. */
#include "rig.h"

#define CONFIG "ttl = 3s\n"

static struct rig rig;
static struct outcome got, other;

static void test_nothing_yet(void)
{
    static const mortise_stats zero;
    rig_open(&rig, CONFIG);
    mortise_stats stats = stats_of(&rig);
    stats.size = 0;
    CU_ASSERT_EQUAL(memcmp(&stats, &zero, sizeof(zero)), 0);
    CU_ASSERT_EQUAL(mortise_stats_get(rig.handle, NULL), MORTISE_INVALID);
    stats.size = 0;
    CU_ASSERT_EQUAL(mortise_stats_get(rig.handle, &stats), MORTISE_INVALID);
    rig_close(&rig);
}

static void test_plain(void)
{
    rig_open(&rig, CONFIG);
    for (int i = 0; i < 5; i++)
        CU_ASSERT_EQUAL(mortise_release(take(&rig, "a", NULL), NULL), MORTISE_OK);
    take(&rig, "b", NULL);
    mortise_stats stats = stats_of(&rig);
    CU_ASSERT_EQUAL(stats.acquires, 6);
    CU_ASSERT_EQUAL(stats.releases, 5);
    CU_ASSERT_EQUAL(stats.held, 1);
    CU_ASSERT_EQUAL(stats.requests, 11);
    CU_ASSERT_EQUAL(stats.waits + stats.wait_ns + stats.failures + stats.handovers + stats.losses +
                        stats.renewals + stats.waiting,
                    0);
    rig_close(&rig);
}

static void wait_for_a_stranger(const char *config)
{
    rig_open(&rig, config);
    sim->seize("a", MORTISE_NEVER);
    want(&rig, &got, "a", FOREVER);
    want(&rig, &other, "a", MORTISE_OPTIONS(.wait_ms = 100));
    CU_ASSERT_EQUAL(stats_of(&rig).waiting, 2);
    advance_ms(250);
    CU_ASSERT_EQUAL(stats_of(&rig).waiting, 1);
    CU_ASSERT_EQUAL(stats_of(&rig).failures, 1);
    sim->give_back("a");
    settle();
    mortise_stats stats = stats_of(&rig);
    CU_ASSERT_EQUAL(stats.acquires, 1);
    CU_ASSERT_EQUAL(stats.waits, 1); /* of the leases given; the other waited for nothing */
    CU_ASSERT_EQUAL(stats.wait_ns, 250 * MS);
    CU_ASSERT_EQUAL(stats.waiting, 0);
    CU_ASSERT_EQUAL(stats.failures, 1);
    CU_ASSERT_EQUAL(mortise_release(got.lease, NULL), MORTISE_OK);
    rig_close(&rig);
}

static void test_waits(void)
{
    wait_for_a_stranger(CONFIG);
}

/* The backend keeps the request of the first, and refuses nobody. */
static void test_waits_in_a_queue(void)
{
    wait_for_a_stranger(CONFIG "[sim]\nqueue = yes\n");
}

/* In whatever way an acquire fails, it is one failure, and nobody is left waiting. A call that is refused before it asks is
 * none. */
static void test_failures(void)
{
    mortise_lease *lease;
    rig_open(&rig, CONFIG);
    sim->seize("a", MORTISE_NEVER);
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "a", TRY, &lease, NULL), MORTISE_BUSY);
    want(&rig, &got, "a", FOREVER);
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "a", TRY, &lease, NULL), MORTISE_BUSY);
    want(&rig, &other, "a", TRY);
    CU_ASSERT_EQUAL(other.status, MORTISE_BUSY);
    mortise_cancel(rig.handle, got.request);
    settle();
    SCRIPT(.kinds = OP(ACQUIRE), .times = 1, .fate = SIM_REFUSE, .status = MORTISE_BACKEND);
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "b", FOREVER, &lease, NULL), MORTISE_BACKEND);
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "b", MORTISE_OPTIONS(.ttl_ms = 1), &lease, NULL),
                    MORTISE_INVALID);
    CU_ASSERT_EQUAL(stats_of(&rig).failures, 5);
    CU_ASSERT_EQUAL(stats_of(&rig).waiting, 0);
    CU_ASSERT_EQUAL(stats_of(&rig).acquires, 0);
    CU_ASSERT_EQUAL(stats_of(&rig).held, 0);
    sim->give_back("a");
    rig_close(&rig);
}

static void test_handovers(void)
{
    rig_open(&rig, CONFIG);
    mortise_lease *lease = take(&rig, "a", NULL);
    want(&rig, &got, "a", FOREVER);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    settle();
    mortise_stats stats = stats_of(&rig);
    CU_ASSERT_EQUAL(stats.handovers, 1);
    CU_ASSERT_EQUAL(stats.acquires, 2);
    CU_ASSERT_EQUAL(stats.releases, 1);
    CU_ASSERT_EQUAL(stats.held, 1);
    CU_ASSERT_EQUAL(mortise_release(got.lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(stats_of(&rig).held, 0);
    rig_close(&rig);
}

static void test_renewals_and_losses(void)
{
    rig_open(&rig, CONFIG);
    mortise_lease *kept = take(&rig, "a", NULL), *lost = take(&rig, "b", NULL);
    advance_ms(5000);
    CU_ASSERT_EQUAL(stats_of(&rig).renewals, 10);
    sim->lose("b");
    SCRIPT(.name = "a", .kinds = OP(RENEW), .times = 2, .fate = SIM_REFUSE,
           .status = MORTISE_UNREACHABLE);
    advance_ms(1400);
    mortise_stats stats = stats_of(&rig);
    CU_ASSERT_EQUAL(stats.renewals, 11);
    CU_ASSERT_EQUAL(stats.renewal_failures, 2);
    CU_ASSERT_EQUAL(stats.losses, 1);
    CU_ASSERT_EQUAL(stats.held, 1);
    CU_ASSERT_EQUAL(mortise_release(lost, NULL), MORTISE_LOST);
    CU_ASSERT_EQUAL(stats_of(&rig).losses, 1);
    CU_ASSERT_EQUAL(stats_of(&rig).releases, 1);
    CU_ASSERT_EQUAL(mortise_release(kept, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(stats_of(&rig).held, 0);
    rig_close(&rig);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"nothing yet", test_nothing_yet},
        {"a few leases", test_plain},
        {"waits", test_waits},
        {"waits in the backend's queue", test_waits_in_a_queue},
        {"failures", test_failures},
        {"hand-overs", test_handovers},
        {"renewals and losses", test_renewals_and_losses},
        CU_TEST_INFO_NULL,
    };
    return rig_run("stats", tests);
}
