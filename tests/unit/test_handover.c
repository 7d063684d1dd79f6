/* test_handover.c - a claim is passed from caller to caller of this process without a request to the server: when
 * that is allowed, when it is not, and what the new holder gets. */
#include "rig.h"

#define CONFIG "ttl = 3s\n"

static struct rig rig;
static struct outcome got, other;

static mortise_lease *start(const char *config, const mortise_options *options)
{
    rig_open(&rig, config);
    mortise_lease *lease = take(&rig, "a", options);
    observe(&rig);
    tap(&rig);
    return lease;
}

static void finish(void)
{
    settle();
    ASSERT_NOTHING_LEFT();
    rig_close(&rig);
}

static void give_back(struct outcome *outcome)
{
    CU_ASSERT_EQUAL_FATAL(outcome->status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(outcome->lease, NULL), MORTISE_OK);
}

/* Releases, with a waiter of these options behind: was the grant handed to it? */
static bool handed(mortise_lease *lease, const mortise_options *waiter)
{
    uint64_t before = stats_of(&rig).handovers;
    want(&rig, &got, "a", waiter);
    CU_ASSERT_EQUAL(got.calls, 0);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    advance_ms(200);
    CU_ASSERT_EQUAL(got.calls, 1);
    bool was = stats_of(&rig).handovers > before;
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), was ? 0 : 1);
    give_back(&got);
    return was;
}

static void test_hands_over(void)
{
    struct states states = {0};
    mortise_lease *lease =
        start(CONFIG, MORTISE_OPTIONS(.wait_ms = 0, .on_state = on_state, .user_data = &states));
    uint64_t token = mortise_token(lease);
    want(&rig, &got, "a", FOREVER);
    advance_ms(20);
    int64_t remaining_ms = mortise_remaining_ms(lease);
    tap_count = 0;
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(tap_count, 0); /* not a word */
    settle();
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT_PTR_NOT_EQUAL(got.lease, lease);
    CU_ASSERT_EQUAL(mortise_token(got.lease), token);
    CU_ASSERT_EQUAL(mortise_remaining_ms(got.lease), remaining_ms);
    CU_ASSERT_EQUAL(mortise_state(got.lease), MORTISE_STATE_HELD);
    /* the old handle is spent */
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_token(lease), 0);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_INVALID);
    /* it is renewed for its new holder */
    advance_ms(10000);
    CU_ASSERT_EQUAL(mortise_state(got.lease), MORTISE_STATE_HELD);
    /* and its loss is the new holder's */
    sim->lose("a");
    advance_ms(1000);
    CU_ASSERT_EQUAL(states.count, 0);
    CU_ASSERT_EQUAL(mortise_release(got.lease, NULL), MORTISE_LOST);
    finish();
}

static void test_callbacks_go_with_the_lease(void)
{
    struct states first = {0}, second = {0};
    mortise_lease *lease =
        start(CONFIG, MORTISE_OPTIONS(.wait_ms = 0, .on_state = on_state, .user_data = &first));
    want(&rig, &got, "a",
         MORTISE_OPTIONS(.wait_ms = -1, .on_state = on_state, .user_data = &second));
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    settle();
    sim->lose("a");
    advance_ms(1000);
    CU_ASSERT_EQUAL(first.count, 0);
    CU_ASSERT_EQUAL(second.count, 1);
    CU_ASSERT_PTR_EQUAL(second.lease, got.lease);
    CU_ASSERT_EQUAL(mortise_release(got.lease, NULL), MORTISE_LOST);
    finish();
}

static void test_in_order(void)
{
    mortise_lease *lease = start(CONFIG, NULL);
    want(&rig, &got, "a", FOREVER);
    want(&rig, &other, "a", FOREVER);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    settle();
    CU_ASSERT_EQUAL(other.calls, 0);
    give_back(&got);
    settle();
    CU_ASSERT_EQUAL(other.order, 2);
    give_back(&other);
    CU_ASSERT_EQUAL(stats_of(&rig).handovers, 2);
    finish();
}

/* One grant from hand to hand, and never past its bounds: then the server is asked, and others have a chance. */
static void test_bounds(void)
{
    enum { MAX = 3 };
    mortise_lease *lease = start(CONFIG "handover_max = 3\n", NULL);
    struct outcome line[2 * MAX];
    for (int i = 0; i < 2 * MAX; i++)
        want(&rig, &line[i], "a", FOREVER);
    tap_count = 0;
    uint64_t token = mortise_token(lease);
    for (int i = 0; i < MAX; i++) {
        CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
        settle();
        CU_ASSERT_EQUAL_FATAL(line[i].calls, 1);
        lease = line[i].lease;
        CU_ASSERT_EQUAL(mortise_token(lease), token);
    }
    CU_ASSERT_EQUAL(tap_count, 0);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    advance_ms(100);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 1);
    CU_ASSERT_EQUAL_FATAL(line[MAX].calls, 1);
    CU_ASSERT(mortise_token(line[MAX].lease) > token); /* R6: a new grant */
    for (int i = MAX; i < 2 * MAX; i++) {
        advance_ms(1);
        give_back(&line[i]);
    }
    finish();
}

/* The count of hand-overs reaches the largest handover_max. */
static void test_large_bound(void)
{
    mortise_lease *lease = start(CONFIG "handover_max = 100000\n", NULL);
    struct claim *claim = slab_find(&claim_slab, lease);
    claim->handovers = 99999;
    want(&rig, &got, "a", FOREVER);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    settle();
    CU_ASSERT_EQUAL(stats_of(&rig).handovers, 1);
    CU_ASSERT_EQUAL_FATAL(got.calls, 1);
    CU_ASSERT_FALSE(handed(got.lease, FOREVER));
    finish();
}

static void test_window(void)
{
    mortise_lease *lease = start(CONFIG, NULL);
    advance_ms(24);
    CU_ASSERT(handed(lease, FOREVER));
    tap_count = 0;
    lease = take(&rig, "a", NULL);
    advance_ms(25); /* the grant's age counts, not the lease's */
    CU_ASSERT_FALSE(handed(lease, FOREVER));
    finish();
}

static void test_turned_off(void)
{
    CU_ASSERT_FALSE(handed(start(CONFIG "handover_max = 0\n", NULL), FOREVER));
    finish();
}

static void test_suspect_is_not_handed(void)
{
    mortise_lease *lease = start(CONFIG "handover_window = 1h\n", NULL);
    int away = SCRIPT(.kinds = OP(RENEW), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    advance_ms(1000);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_SUSPECT);
    CU_ASSERT_FALSE(handed(lease, FOREVER));
    sim->end(away);
    finish();
}

static void test_near_its_deadline(void)
{
    mortise_lease *lease = start(CONFIG "handover_window = 1h\n", NULL);
    int slow = SCRIPT(.kinds = OP(RENEW), .hold_request = true, .on_cancel = SIM_CANCEL_IGNORED);
    advance_ms(1400);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    set_now(START_NS + 2000 * MS); /* less than a third is left; the watchdog has not run */
    want(&rig, &got, "a",
         FOREVER); /* now it has: the lease is suspect; but for that, the time would tell */
    atomic_store(&((struct claim *)slab_find(&claim_slab, lease))->suspect, false);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(stats_of(&rig).handovers, 0);
    sim->end(slow);
    sim->let_go(slow);
    advance_ms(100);
    give_back(&got);
    finish();
}

static void test_lost_is_not_handed(void)
{
    mortise_lease *lease = start(CONFIG "handover_window = 1h\n", NULL);
    want(&rig, &got, "a", FOREVER);
    set_now(START_NS + 2968 * MS);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    CU_ASSERT_EQUAL(stats_of(&rig).handovers, 0);
    advance_ms(1000);
    give_back(&got);
    finish();
}

/* What the waiter asked for must be what the grant is. */
static void test_other_wishes(void)
{
    static const mortise_options wishes[] = {
        {.size = sizeof(mortise_options), .wait_ms = -1, .ttl_ms = 4000},
        {.size = sizeof(mortise_options), .wait_ms = -1, .no_renew = true},
        {.size = sizeof(mortise_options), .wait_ms = -1, .owner = "o"},
    };
    static const mortise_options grants[] = {
        {.size = sizeof(mortise_options), .no_renew = true},
        {.size = sizeof(mortise_options), .max_hold_ms = 60000},
        {.size = sizeof(mortise_options), .owner = "o"},
    };
    for (size_t i = 0; i < sizeof(wishes) / sizeof(wishes[0]); i++) {
        CU_ASSERT_FALSE(handed(start(CONFIG, NULL), &wishes[i]));
        finish();
        CU_ASSERT_FALSE(handed(start(CONFIG, &grants[i]), FOREVER));
        finish();
    }
}

/* The waiter's max_hold counts from when it has the lease. */
static void test_max_hold_of_the_heir(void)
{
    mortise_lease *lease = start(CONFIG, NULL);
    want(&rig, &got, "a", MORTISE_OPTIONS(.wait_ms = -1, .max_hold_ms = 5000));
    advance_ms(20);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    settle();
    CU_ASSERT_EQUAL(stats_of(&rig).handovers, 1);
    advance_ms(20000);
    CU_ASSERT_EQUAL(stats_of(&rig).renewals, 5);
    CU_ASSERT_EQUAL(mortise_state(got.lease), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_release(got.lease, NULL), MORTISE_LOST);
    sim->lose("a"); /* it has expired there too */
    finish();
}

/* The request of the head is under way in the backend when the head is served by hand: it goes to the next, or
 * is taken back with all that it brought. */
static void test_request_of_the_heir(void)
{
    for (int next = 0; next < 2; next++) {
        mortise_lease *lease = start(CONFIG, NULL);
        int slow = SCRIPT(.kinds = OP(ACQUIRE), .hold_request = true);
        want(&rig, &got, "a", FOREVER);
        if (next)
            want(&rig, &other, "a", FOREVER);
        CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
        settle();
        CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
        CU_ASSERT_EQUAL(stats_of(&rig).handovers, 1);
        advance_ms(100); /* too old to be handed on again */
        give_back(&got);
        sim->end(slow);
        sim->let_go(slow);
        advance_ms(2500);
        if (next)
            give_back(&other);
        CU_ASSERT_EQUAL(rig.client->locks.outstanding, 0);
        finish();
    }
}

/* While the backend is asked whether the claim is still there, the claim is not handed over: a server that failed
 * over, or restarted empty, may have granted it to somebody else. */
static void test_check_under_way(void)
{
    mortise_lease *lease = start(CONFIG "handover_window = 1h\n", NULL);
    int slow = SCRIPT(.kinds = OP(RENEW), .times = 1, .hold_reply = true);
    advance_ms(1000);
    CU_ASSERT_EQUAL(sim->held(slow), 1);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT_FALSE(handed(lease, FOREVER));
    finish();
}

static void doubt(void *ctx, void *name)
{
    (void)ctx;
    tapped_host()->doubt(tapped_host(), name, strlen(name));
}

/* The same when the driver doubts the claim: at a new primary, or after a reconnection. */
static void test_doubted(void)
{
    static char name[] = "a";
    mortise_lease *lease = start(CONFIG, NULL);
    int slow = SCRIPT(.kinds = OP(RENEW), .times = 1, .hold_reply = true);
    want(&rig, &got, "a", FOREVER);
    tapped_host()->post(tapped_host(), doubt, name);
    settle();
    CU_ASSERT_EQUAL(sim->held(slow), 1);
    sim->lose("a"); /* a server that came back empty; somebody else has the lock by now */
    sim->seize("a", MORTISE_NEVER);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    settle();
    CU_ASSERT_EQUAL(got.calls, 0);
    CU_ASSERT_EQUAL(stats_of(&rig).handovers, 0);
    sim->let_go(slow);
    sim->give_back("a");
    advance_ms(200);
    give_back(&got);
    finish();
}

/* Once the check has confirmed the claim, it may be handed over again. */
static void test_confirmed(void)
{
    static char name[] = "a";
    mortise_lease *lease = start(CONFIG, NULL);
    tapped_host()->post(tapped_host(), doubt, name);
    settle();
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), 1);
    CU_ASSERT(handed(lease, FOREVER));
    finish();
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"a grant is handed over", test_hands_over},
        {"callbacks go with the lease", test_callbacks_go_with_the_lease},
        {"in order", test_in_order},
        {"handover_max", test_bounds},
        {"a large handover_max", test_large_bound},
        {"handover_window", test_window},
        {"turned off", test_turned_off},
        {"not what is suspect", test_suspect_is_not_handed},
        {"not near its deadline", test_near_its_deadline},
        {"not what is lost", test_lost_is_not_handed},
        {"not to other wishes", test_other_wishes},
        {"max_hold of the heir", test_max_hold_of_the_heir},
        {"the request of the heir", test_request_of_the_heir},
        {"not during a check", test_check_under_way},
        {"not what the driver doubts", test_doubted},
        {"a confirmed claim", test_confirmed},
        CU_TEST_INFO_NULL,
    };
    return rig_run("handover", tests);
}
