/* test_migrate_queue.c - a claim that was requested before the presence lapsed, and is granted from the server's
 * queue when there is a new presence, or whose reply was lost and that is asked for again then: the plugin releases it,
 * because the registers may not have been read since. And a leg that waits: after a lost reply, for news. */
#include "migrate_rig.h"

static struct rig rig;
static struct outcome first, second;

/* A call waits in the queue while the presence lapses; another call takes it anew, and is about to read the registers. */
static void lapse_while_queued(bool stepped)
{
    other->reset();
    migrate_open(&rig, "old", "[sim]\nqueue = yes\n");
    sim->seize("n", MORTISE_NEVER);
    want(&rig, &first, "n", FOREVER);
    CU_ASSERT_EQUAL_FATAL(sim->waiters("n"), 1);
    int away = SCRIPT(.kinds = OP(RENEW), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    advance_ms(10500);
    sim->end(away);
    if (stepped)
        register_set(MIGRATE_FROM, MIGRATE_BOTH, 0);
    int reading = SCRIPT(.kinds = OP(READ), .name = MIGRATE_PREFIX "register/from",
                         .hold_request = true, .times = 1);
    want(&rig, &second, "m", FOREVER);
    CU_ASSERT_EQUAL_FATAL(sim->held(reading), 1);
    CU_ASSERT(sim->give_back("n"));
    settle();
    CU_ASSERT_EQUAL(first.calls, 0);
    sim->let_go(reading);
    advance_ms(2000);
}

static void test_stepped(void)
{
    lapse_while_queued(true);
    CU_ASSERT_EQUAL(first.status, MORTISE_CONFIG);
    CU_ASSERT_EQUAL(second.status, MORTISE_CONFIG);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

static void test_not_stepped(void)
{
    lapse_while_queued(false);
    CU_ASSERT_EQUAL_FATAL(first.status, MORTISE_OK);
    CU_ASSERT_EQUAL_FATAL(second.status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release_nowait(first.lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release_nowait(second.lease, NULL), MORTISE_OK);
    settle();
    rig_close(&rig);
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

/* The reply to an acquire is lost, and the client is cut off until its presence has lapsed. Then the fleet goes to phase new
 * and back: other clients had tokens up to the floor that `from` has now. The grant that the server still has is below it. */
static void test_reply_lost_over_steps(void)
{
    static const uint64_t floor = 1000000;
    other->reset();
    rig_open(&rig, "ttl = 60s\nunreachable_timeout = 60s\n[migrate]\nfrom = sim\nto = sim_other\n"
                   "phase = old\npresence = 10s\n");
    int lost = SCRIPT(.kinds = OP(ACQUIRE), .name = "n", .times = 1, .fate = SIM_LOSE_REPLY,
                      .status = MORTISE_INDETERMINATE);
    int away = SCRIPT(.kinds = OP(ACQUIRE), .name = "n", .fate = SIM_REFUSE,
                      .status = MORTISE_UNREACHABLE);
    int renewals = SCRIPT(.kinds = OP(RENEW), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    want(&rig, &first, "n", FOREVER);
    CU_ASSERT_EQUAL(sim->hits(lost), 1);
    advance_ms(10500);
    CU_ASSERT_EQUAL(first.calls, 0);
    CU_ASSERT(sim->hits(away) > 0);
    register_set(MIGRATE_FROM, MIGRATE_OLD | MIGRATE_BOTH, floor);
    sim->end(away);
    sim->end(renewals);
    advance_ms(2000);
    CU_ASSERT_EQUAL_FATAL(first.status, MORTISE_OK);
    CU_ASSERT(mortise_token(first.lease) >= floor);
    CU_ASSERT_EQUAL(mortise_release_nowait(first.lease, NULL), MORTISE_OK);
    settle();
    rig_close(&rig);
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

/* A reply of a side was lost, and then that side has answered that a leg waits: in its queue, or BUSY, which the core never hears
 * of. The trouble is over. */
static void wait_after_a_loss(const char *phase, const sim_api *side, const char *settings)
{
    other->reset();
    sim->reset();
    migrate_open(&rig, phase, settings);
    side->seize("n", MORTISE_NEVER);
    side->script(&(sim_rule){.kinds = OP(ACQUIRE),
                             .name = "n",
                             .times = 1,
                             .fate = SIM_LOSE_REPLY,
                             .status = MORTISE_INDETERMINATE});
    want(&rig, &first, "n", MORTISE_OPTIONS(.wait_ms = 30000));
    advance_ms(29000);
    CU_ASSERT_EQUAL(first.calls, 0);
    advance_ms(1000);
    CU_ASSERT_EQUAL(first.status, MORTISE_TIMEDOUT);
    side->give_back("n");
    advance_ms(10000);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

static void test_waiting_is_passed_on(void)
{
    wait_after_a_loss("old", sim, "[sim]\nqueue = yes\n");
    wait_after_a_loss("both", sim, "[sim]\nqueue = yes\n");
    wait_after_a_loss("both", other, "");
    wait_after_a_loss("both", other, "[sim_other]\nqueue = yes\n");
}

/* The holder of leg 2 has released it while the answer BUSY was on its way. The driver tells that as soon as the name is
 * watched, and not again. */
static void test_news_of_the_watch(void)
{
    other->reset();
    sim->reset();
    migrate_open(&rig, "both", "");
    other->seize("n", MORTISE_NEVER);
    int busy = other->script(
        &(sim_rule){.kinds = OP(ACQUIRE), .name = "n", .times = 1, .hold_reply = true});
    want(&rig, &first, "n", FOREVER);
    CU_ASSERT_EQUAL_FATAL(other->held(busy), 1);
    CU_ASSERT(other->give_back("n"));
    settle();
    CU_ASSERT_EQUAL(first.calls, 0);
    other->let_go(busy);
    settle();
    CU_ASSERT_EQUAL(first.calls, 1);
    advance_ms(2000);
    CU_ASSERT_EQUAL_FATAL(first.status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(first.lease, NULL), MORTISE_OK);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

/* So many that the plugin forgets the claims that must have ended (claim.c). */
enum { MANY = 1025 };
static mortise_lease *many[MANY];

static void many_taken(void)
{
    for (int i = 0; i < MANY; i++) {
        char name[32];
        snprintf(name, sizeof name, "other-%d", i);
        many[i] = take(&rig, name, NULL);
    }
}

static void many_given_back(void)
{
    for (int i = 0; i < MANY; i++)
        CU_ASSERT_EQUAL(mortise_release_nowait(many[i], NULL), MORTISE_OK);
    settle();
}

/* For more than a ttl and a minute, in the queue of "n". */
static void wait_for_long(void)
{
    other->reset();
    sim->reset();
    migrate_open(&rig, "old", "[sim]\nqueue = yes\n");
    sim->seize("n", MORTISE_NEVER);
    want(&rig, &first, "n", FOREVER);
    advance_ms(130000);
}

/* Granted from the queue after that, and not renewed yet. */
static void test_granted_late(void)
{
    wait_for_long();
    CU_ASSERT(sim->give_back("n"));
    settle();
    CU_ASSERT_EQUAL_FATAL(first.status, MORTISE_OK);
    uint64_t token = mortise_token(first.lease);
    many_taken();
    CU_ASSERT(sim->holds("n", token));
    CU_ASSERT_EQUAL(mortise_release(first.lease, NULL), MORTISE_OK);
    CU_ASSERT_FALSE(sim->holds("n", token));
    many_given_back();
    rig_close(&rig);
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

/* A waiter gives up after as long, at the instant at which it is granted, and its release does not reach the server: the plugin must
 * not say that nothing is left there. */
static void test_given_up_late(void)
{
    wait_for_long();
    int away = SCRIPT(.kinds = OP(RELEASE), .name = "n", .fate = SIM_REFUSE,
                      .status = MORTISE_UNREACHABLE);
    CU_ASSERT(sim->give_back("n"));
    CU_ASSERT_EQUAL(mortise_cancel(rig.handle, first.request), MORTISE_OK);
    settle();
    CU_ASSERT_EQUAL(first.status, MORTISE_CANCELED);
    CU_ASSERT(sim->hits(away) > 0);
    many_taken();
    sim->end(away);
    int again = SCRIPT(.kinds = OP(RELEASE), .name = "n");
    advance_ms(5000);
    CU_ASSERT_EQUAL(sim->hits(again), 1);
    many_given_back();
    rig_close(&rig);
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"queued over a lapse, and a step", test_stepped},
        {"queued over a lapse", test_not_stepped},
        {"a reply that was lost before a lapse, and steps", test_reply_lost_over_steps},
        {"that a leg waits is passed on", test_waiting_is_passed_on},
        {"news that come with the watch", test_news_of_the_watch},
        {"granted late, and then many claims", test_granted_late},
        {"given up late, and then many claims", test_given_up_late},
        CU_TEST_INFO_NULL,
    };
    return migrate_rig_run("migrate_queue", tests);
}
