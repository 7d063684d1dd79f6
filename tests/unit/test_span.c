/* test_span.c - claims that are good for less than their ttl at a time, as with a driver whose claims depend on a
 * session; and a driver that asks the core to check a claim (host->doubt). */
#include "rig.h"

#define TTL_MS 3000
#define GOOD_MS 900
#define MARGIN_MS (GOOD_MS / 100 + 2)
#define TTL_MARGIN_MS (TTL_MS / 100 + 2)

static struct rig rig;
static bool gone;

/* A backend of a few lines: a claim is good for GOOD_MS, and for what is left of its ttl. */
static bool answer(mortise_op *op)
{
    mortise_status status = gone ? MORTISE_LOST : MORTISE_OK;
    if (op->kind != MORTISE_OP_ACQUIRE && op->kind != MORTISE_OP_RENEW &&
        op->kind != MORTISE_OP_RELEASE)
        return false;
    op->from_ns = clock_now();
    op->good_for_ms = op->ttl_ms < GOOD_MS ? op->ttl_ms : GOOD_MS;
    op->token = 7;
    op->sure = true;
    tapped_host()->complete(tapped_host(), op, status);
    return true;
}

static mortise_lease *open_and_take(const mortise_options *options)
{
    rig_open(&rig, "ttl = 3s\n");
    tap(&rig);
    tap_answer = answer;
    gone = false;
    return take(&rig, "a", options);
}

static void test_renewed_by_its_span(void)
{
    mortise_lease *lease = open_and_take(NULL);
    CU_ASSERT_EQUAL(mortise_remaining_ms(lease), GOOD_MS - MARGIN_MS);
    advance_ms(299);
    CU_ASSERT_EQUAL(stats_of(&rig).renewals, 0);
    advance_ms(1);
    CU_ASSERT_EQUAL(stats_of(&rig).renewals, 1);
    advance_ms(2700);
    CU_ASSERT_EQUAL(stats_of(&rig).renewals, 10);
    CU_ASSERT_EQUAL(tapped(MORTISE_OP_RENEW, 9)->op.ttl_ms, TTL_MS);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    rig_close(&rig);
}

/* It lasts for its ttl, though no single claim does; and ends then. */
static void test_no_renew_lasts_for_its_ttl(void)
{
    mortise_lease *lease = open_and_take(MORTISE_OPTIONS(.wait_ms = 0, .no_renew = true));
    advance_ms(2900);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT(mortise_remaining_ms(lease) <= TTL_MS - 2900);
    advance_ms(101);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    uint64_t renewals = stats_of(&rig).renewals;
    advance_ms(INT64_C(10) * TTL_MS);
    CU_ASSERT_EQUAL(stats_of(&rig).renewals, renewals);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    rig_close(&rig);
}

static mortise_op *kept;

static bool keep_release(mortise_op *op)
{
    if (op->kind != MORTISE_OP_RELEASE)
        return answer(op);
    kept = op;
    return true;
}

static void let_go(void *ctx, void *argument)
{
    (void)ctx;
    (void)argument;
    tap_answer = answer;
    answer(kept);
}

/* Its process was stopped between two renewals that succeeded. The backend would keep the claim for the rest of the ttl. */
static void lose_before_the_ttl(bool look)
{
    mortise_lease *lease = open_and_take(NULL);
    const struct claim *claim = slab_find(&claim_slab, lease);
    const mortise_grant_id id = claim->id;
    tap_answer = keep_release;
    set_now(now_ns() + (GOOD_MS - MARGIN_MS) * MS);
    if (look)
        CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    settle();
    CU_ASSERT_EQUAL_FATAL(tapped_count(MORTISE_OP_RELEASE), 1);
    CU_ASSERT(memcmp(&tapped(MORTISE_OP_RELEASE, 0)->op.grant, &id, sizeof(id)) == 0);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), 0);
    CU_ASSERT(claim->state == CLAIM_ENDING && claim->leased);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    tapped_host()->post(tapped_host(), let_go, NULL);
    settle();
    CU_ASSERT_EQUAL(claim->state, CLAIM_LOST);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 1);
    rig_close(&rig);
}

/* The holder's own call sees it first. */
static void release_past_the_deadline(void)
{
    mortise_lease *lease = open_and_take(NULL);
    set_now(now_ns() + (GOOD_MS - MARGIN_MS) * MS);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    settle();
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 1);
    rig_close(&rig);
}

static void test_lost_before_its_ttl(void)
{
    lose_before_the_ttl(false);
    lose_before_the_ttl(true);
    release_past_the_deadline();
}

static void doubt(void *ctx, void *name)
{
    (void)ctx;
    tapped_host()->doubt(tapped_host(), name, name != NULL ? strlen(name) : 0);
}

static void test_doubt(void)
{
    mortise_lease *lease = open_and_take(NULL);
    char name[] = "a", other[] = "b";
    tapped_host()->post(tapped_host(), doubt, other); /* nobody's */
    settle();
    CU_ASSERT_EQUAL(stats_of(&rig).renewals, 0);
    tapped_host()->post(tapped_host(), doubt, name);
    settle();
    CU_ASSERT_EQUAL(stats_of(&rig).renewals, 1); /* all is well */
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    tapped_host()->post(tapped_host(), doubt, NULL); /* all that is held */
    settle();
    CU_ASSERT_EQUAL(stats_of(&rig).renewals, 2);
    gone = true;
    tapped_host()->post(tapped_host(), doubt, name);
    settle();
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    rig_close(&rig);
}

static bool keep(mortise_op *op)
{
    if (op->kind != MORTISE_OP_RENEW)
        return answer(op);
    kept = op;
    return true;
}

/* The answer that is under way says nothing about what came after it was given. */
static void test_doubt_during_a_renewal(void)
{
    mortise_lease *lease = open_and_take(NULL);
    char name[] = "a";
    tap_answer = keep;
    advance_ms(300);
    tapped_host()->post(tapped_host(), doubt, name);
    settle();
    CU_ASSERT_EQUAL(stats_of(&rig).renewals, 0);
    tapped_host()->post(tapped_host(), let_go, NULL);
    settle();
    CU_ASSERT_EQUAL(stats_of(&rig).renewals, 2);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    rig_close(&rig);
}

static void fail_kept(void *ctx, void *argument)
{
    (void)ctx;
    (void)argument;
    tapped_host()->complete(tapped_host(), kept, MORTISE_UNREACHABLE);
}

/* The first failed renewal is repeated at once, the second after a pause: but not if the driver has news meanwhile, for
 * example because a server is back that was not asked. */
static void test_doubt_during_a_renewal_that_fails(void)
{
    mortise_lease *lease = open_and_take(NULL);
    char name[] = "a";
    tap_answer = keep;
    advance_ms(300);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), 1);
    tapped_host()->post(tapped_host(), fail_kept, NULL);
    settle();
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), 2);
    tapped_host()->post(tapped_host(), doubt, name);
    settle();
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), 2);
    tapped_host()->post(tapped_host(), fail_kept, NULL);
    settle();
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), 3); /* no time has passed */
    tapped_host()->post(tapped_host(), fail_kept, NULL);
    settle();
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), 3); /* that was the answer to the doubt */
    tap_answer = answer;
    advance_ms(200);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    rig_close(&rig);
}

static bool keep_acquire(mortise_op *op)
{
    if (op->kind != MORTISE_OP_ACQUIRE)
        return answer(op);
    kept = op;
    return true;
}

static void grant_and_doubt(void *ctx, void *argument)
{
    let_go(ctx, argument);
    gone = true;
    tapped_host()->doubt(tapped_host(), NULL, 0);
}

/* The grant is answered, and in the same turn, before anybody knows of it, it is known that it may be lost. */
static void test_doubt_before_it_is_told(void)
{
    struct outcome outcome;
    rig_open(&rig, "ttl = 3s\n");
    tap(&rig);
    tap_answer = keep_acquire;
    gone = false;
    want(&rig, &outcome, "a", MORTISE_OPTIONS(.wait_ms = 0, .no_renew = true));
    settle();
    tapped_host()->post(tapped_host(), grant_and_doubt, NULL);
    settle();
    CU_ASSERT_EQUAL_FATAL(outcome.status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_state(outcome.lease), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_release(outcome.lease, NULL), MORTISE_LOST);
    rig_close(&rig);
}

/* One that nobody renews, or not any more: looked at until there is an answer, and no longer there for it. */
static void test_doubt_of_one_that_ends(const mortise_options *options, int64_t age_ms)
{
    char name[] = "a";
    rig_open(&rig, "ttl = 3s\n");
    mortise_lease *lease = take(&rig, "a", options);
    advance_ms(age_ms);
    tap(&rig);
    int64_t left_ms = mortise_remaining_ms(lease);
    uint64_t renewals = stats_of(&rig).renewals;
    tapped_host()->post(tapped_host(), doubt, name);
    settle();
    CU_ASSERT_EQUAL_FATAL(tapped_count(MORTISE_OP_RENEW), 1);
    CU_ASSERT(tapped(MORTISE_OP_RENEW, 0)->op.ttl_ms == left_ms + TTL_MARGIN_MS + 1);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    SCRIPT(.kinds = OP(RENEW), .times = 2, .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    tapped_host()->post(tapped_host(), doubt, name);
    settle();
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_SUSPECT);
    advance_ms(500);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), 4);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_remaining_ms(lease), left_ms - 500);
    CU_ASSERT_EQUAL(stats_of(&rig).renewals, renewals);
    CU_ASSERT(sim->lose(name));
    tapped_host()->post(tapped_host(), doubt, name);
    settle();
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT();
}

static void test_doubt_of_no_renew(void)
{
    test_doubt_of_one_that_ends(MORTISE_OPTIONS(.wait_ms = 0, .no_renew = true), 1000);
}

static void test_doubt_past_max_hold(void)
{
    test_doubt_of_one_that_ends(MORTISE_OPTIONS(.wait_ms = 0, .max_hold_ms = 1500), 2500);
}

/* Doubted while it was renewed, and there is no answer until that is over. */
static void test_doubt_into_max_hold(void)
{
    char name[] = "a";
    rig_open(&rig, "ttl = 3s\n");
    mortise_lease *lease = take(&rig, "a", MORTISE_OPTIONS(.max_hold_ms = 1500));
    advance_ms(1499);
    tap(&rig);
    SCRIPT(.kinds = OP(RENEW), .times = 2, .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    tapped_host()->post(tapped_host(), doubt, name);
    settle();
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), 2); /* at once, and once again */
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_SUSPECT);
    CU_ASSERT(sim->lose(name));
    advance_ms(400);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT();
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"a claim is renewed by what it is good for", test_renewed_by_its_span},
        {"no_renew: it lasts for its ttl", test_no_renew_lasts_for_its_ttl},
        {"lost before its ttl is over", test_lost_before_its_ttl},
        {"a doubt is a look", test_doubt},
        {"a doubt during a renewal", test_doubt_during_a_renewal},
        {"a doubt during a renewal that fails", test_doubt_during_a_renewal_that_fails},
        {"R2: a doubt before the grant is told", test_doubt_before_it_is_told},
        {"R2: a doubt about a no_renew lease", test_doubt_of_no_renew},
        {"R2: a doubt past max_hold", test_doubt_past_max_hold},
        {"R2: a doubt into the end of max_hold", test_doubt_into_max_hold},
        CU_TEST_INFO_NULL,
    };
    return rig_run("span", tests);
}
