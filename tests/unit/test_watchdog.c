/* test_watchdog.c - the life of a lease on a virtual clock: renewal, suspicion, loss, and what an answer may do that
 * comes too late (R1, R2).
 *
 * With a ttl of 3 s: renewed every second, patience for an answer 500 ms, margin 1 % + 2 ms = 32 ms. */
#include "rig.h"

#define CONFIG "ttl = 3s\n"
#define MARGIN_MS 32
#define TTL_MS 3000
#define DEADLINE_MS (TTL_MS - MARGIN_MS)

static struct rig rig;
static struct states states;
#define WATCHED MORTISE_OPTIONS(.wait_ms = 0, .on_state = on_state, .user_data = &states)

static mortise_lease *open_and_take(const char *config, const mortise_options *options)
{
    memset(&states, 0, sizeof(states));
    rig_open(&rig, config);
    observe(&rig);
    tap(&rig);
    return take(&rig, "a", options);
}

static int64_t since_start_ms(int64_t at_ns)
{
    return (at_ns - START_NS) / MS;
}

static void expect_states(int count, ...)
{
    va_list wanted;
    va_start(wanted, count);
    CU_ASSERT_EQUAL(states.count, count);
    for (int i = 0; i < count; i++)
        CU_ASSERT_EQUAL(states.seen[i], va_arg(wanted, mortise_lease_state));
    va_end(wanted);
}

/* ---- renewal ------------------------------------------------------------------------------------- */

static void test_renews_every_third(void)
{
    mortise_lease *lease = open_and_take(CONFIG, WATCHED);
    CU_ASSERT_EQUAL(mortise_remaining_ms(lease), DEADLINE_MS);
    advance_ms(999);
    CU_ASSERT_EQUAL(stats_of(&rig).renewals, 0);
    advance_ms(1);
    CU_ASSERT_EQUAL(stats_of(&rig).renewals, 1);
    CU_ASSERT_EQUAL(mortise_remaining_ms(lease), DEADLINE_MS);
    advance_ms(INT64_C(10) * TTL_MS - 1000);
    CU_ASSERT_EQUAL(stats_of(&rig).renewals, 30);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    advance_ms(INT64_C(10) * TTL_MS);
    CU_ASSERT_EQUAL(stats_of(&rig).renewals, 30); /* not after the release */
    expect_states(0);
    ASSERT_NOTHING_LEFT();
    rig_close(&rig);
}

static void test_renew_every_is_configured(void)
{
    mortise_lease *lease = open_and_take(CONFIG "renew_every = 200ms\n", NULL);
    mortise_lease *brief = take(&rig, "b", MORTISE_OPTIONS(.ttl_ms = 300));
    advance_ms(1000);
    CU_ASSERT_EQUAL(stats_of(&rig).renewals, 5 + 10); /* never later than a third of its own ttl */
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(brief, NULL), MORTISE_OK);
    rig_close(&rig);
}

/* A value that would be ignored, because a grant is renewed at a third of its ttl at the latest, is refused. */
static void test_renew_every_beyond_a_third(void)
{
    mortise_error error = {.message = ""};
    CU_ASSERT_EQUAL(rig_try_open(&rig, true, CONFIG "renew_every = 1001ms\n", &error),
                    MORTISE_CONFIG);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "renew_every (1001 ms)"));
    rig_open(&rig, CONFIG "renew_every = 1s\n");
    rig_close(&rig);
}

static void test_hours_of_many_leases(void)
{
    enum { LEASES = 100, MINUTES = 60 };
    mortise_lease *leases[LEASES];
    rig_open(&rig, "ttl = 30s\n");
    for (int i = 0; i < LEASES; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%d", i);
        leases[i] = take(&rig, name, MORTISE_OPTIONS(.ttl_ms = 30000 + 30 * i));
        advance_ms(7);
    }
    advance_to(START_NS + MINUTES * 60 * NS_PER_S);
    for (int i = 0; i < LEASES; i++)
        CU_ASSERT_EQUAL(mortise_state(leases[i]), MORTISE_STATE_HELD);
    CU_ASSERT(stats_of(&rig).renewals > LEASES * (MINUTES * 6 - 60));
    CU_ASSERT(stats_of(&rig).renewals <= LEASES * MINUTES * 6);
    CU_ASSERT_EQUAL(stats_of(&rig).losses, 0);
    for (int i = 0; i < LEASES; i++)
        CU_ASSERT_EQUAL(mortise_release(leases[i], NULL), MORTISE_OK);
    ASSERT_NOTHING_LEFT();
    rig_close(&rig);
}

static void test_due_together_go_together(void)
{
    enum { HALF = 50 };
    rig_open(&rig, CONFIG);
    for (int i = 0; i < 3 * HALF; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%d", i);
        if (i == HALF)
            set_now(now_ns() + 60 * MS); /* within a 48th of the ttl */
        if (i == 2 * HALF)
            set_now(now_ns() + 10 * MS); /* beyond it */
        take(&rig, name, NULL);
    }
    tap(&rig);
    advance_to(START_NS + 1000 * MS);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), (size_t)2 * HALF);
    CU_ASSERT_EQUAL(taps[0].batch, (size_t)2 * HALF);
    advance_ms(71);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), (size_t)3 * HALF);
    CU_ASSERT_EQUAL(taps[2 * HALF].batch, (size_t)HALF);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT();
}

static void test_no_renew_just_ends(void)
{
    mortise_lease *lease =
        open_and_take(CONFIG, MORTISE_OPTIONS(.wait_ms = 0, .no_renew = true, .on_state = on_state,
                                              .user_data = &states));
    advance_ms(DEADLINE_MS - 1);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    advance_ms(1);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    expect_states(1, MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), 0);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    rig_close(&rig);
}

/* [2] The thread has died: the renewals end, then the lease. */
static void test_max_hold(void)
{
    mortise_lease *lease =
        open_and_take(CONFIG, MORTISE_OPTIONS(.wait_ms = 0, .max_hold_ms = 5000,
                                              .on_state = on_state, .user_data = &states));
    advance_ms(4000 + DEADLINE_MS - 1);
    CU_ASSERT_EQUAL(stats_of(&rig).renewals, 4);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    advance_ms(1);
    expect_states(1, MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    rig_close(&rig);
}

/* ---- the deadline (R1, R2) ------------------------------------------------------------------------ */

static void test_deadline_counts_from_before_the_request(void)
{
    struct outcome got;
    rig_open(&rig, CONFIG);
    SCRIPT(.kinds = OP(ACQUIRE), .request_ns = 300 * MS, .reply_ns = 500 * MS);
    want(&rig, &got, "a", FOREVER);
    advance_ms(800);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_remaining_ms(got.lease), DEADLINE_MS - 800);
    SCRIPT(.kinds = OP(RENEW), .times = 1, .request_ns = 100 * MS, .reply_ns = 150 * MS);
    advance_to(START_NS + 1000 * MS); /* renewed a third after the request, not after the reply */
    CU_ASSERT_EQUAL(sim->count(MORTISE_OP_RENEW), 1);
    advance_ms(250);
    CU_ASSERT_EQUAL(stats_of(&rig).renewals, 1);
    CU_ASSERT_EQUAL(mortise_remaining_ms(got.lease), DEADLINE_MS - 250);
    CU_ASSERT_EQUAL(mortise_release(got.lease, NULL), MORTISE_OK);
    rig_close(&rig);
}

static bool answer_shorter(mortise_op *op)
{
    if (op->kind != MORTISE_OP_RENEW)
        return false;
    op->from_ns = clock_now();
    op->good_for_ms = 500;
    tapped_host()->complete(tapped_host(), op, MORTISE_OK);
    return true;
}

static void test_renewal_never_shortens(void)
{
    mortise_lease *lease = open_and_take(CONFIG, NULL);
    tap_answer = answer_shorter;
    advance_ms(1000);
    CU_ASSERT_EQUAL(stats_of(&rig).renewals, 1);
    CU_ASSERT_EQUAL(mortise_remaining_ms(lease), DEADLINE_MS - 1000);
    tap_answer = NULL;
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    rig_close(&rig);
}

/* A process that was stopped learns it at its first check: no watchdog has run. */
static void test_state_is_a_clock_compare(void)
{
    mortise_lease *lease = open_and_take(CONFIG, WATCHED);
    set_now(START_NS + DEADLINE_MS * MS - 1);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    set_now(START_NS + DEADLINE_MS * MS);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_remaining_ms(lease), 0);
    settle(); /* now it runs */
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    expect_states(1, MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), 0); /* a lease that is over is not renewed */
    rig_close(&rig);
}

/* A renewal that was sent in time succeeds, but a process that slept sees that only after the deadline: nobody has
 * checked in between. */
static void test_late_success_revives_nothing(bool look)
{
    mortise_lease *lease = open_and_take(CONFIG, WATCHED);
    int held = SCRIPT(.kinds = OP(RENEW), .times = 1, .hold_reply = true);
    advance_ms(1000);
    CU_ASSERT_EQUAL(sim->held(held), 1);
    set_now(START_NS + DEADLINE_MS * MS + 1);
    if (look)
        CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    sim->let_go(held);
    mortise_dispatch(rig.handle); /* the answer comes before the watchdog does */
    CU_ASSERT_EQUAL(stats_of(&rig).renewals, 0);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    settle();
    expect_states(1, MORTISE_STATE_LOST);
    ASSERT_NOTHING_LEFT(); /* what the renewal extended is released */
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    rig_close(&rig);
}

/* An answer after the loss: a renewal that may have been executed is released once more; one that was not needs
 * nothing. */
static void late_answer(sim_fate fate, mortise_status status, size_t releases)
{
    mortise_lease *lease = open_and_take(CONFIG, WATCHED);
    int held = SCRIPT(.kinds = OP(RENEW), .times = 1, .fate = fate, .status = status,
                      .hold_reply = true, .on_cancel = SIM_CANCEL_IGNORED);
    advance_ms(1000);
    CU_ASSERT_EQUAL(sim->held(held), 1);
    set_now(START_NS + DEADLINE_MS * MS + 1);
    settle();
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    size_t before = tapped_count(MORTISE_OP_RELEASE);
    sim->let_go(held);
    settle();
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE) - before, releases);
    ASSERT_NOTHING_LEFT();
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    rig_close(&rig);
}

static void test_late_doubt(void)
{
    late_answer(SIM_LOSE_REPLY, MORTISE_INDETERMINATE, 1);
}

static void test_late_refusal(void)
{
    late_answer(SIM_REFUSE, MORTISE_UNREACHABLE, 0);
}

static void test_late_success_unseen(void)
{
    test_late_success_revives_nothing(false);
}

static void test_late_success_seen(void)
{
    test_late_success_revives_nothing(true);
}

/* The same while the loss is already reported: the backend gets another release. */
static void test_answer_after_the_loss(void)
{
    mortise_lease *lease = open_and_take(CONFIG, WATCHED);
    int held =
        SCRIPT(.kinds = OP(RENEW), .times = 1, .hold_reply = true, .on_cancel = SIM_CANCEL_IGNORED);
    advance_ms(TTL_MS);
    expect_states(2, MORTISE_STATE_SUSPECT, MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 1);
    sim->let_go(held);
    settle();
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 2);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    expect_states(2, MORTISE_STATE_SUSPECT, MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    ASSERT_NOTHING_LEFT();
    rig_close(&rig);
}

/* ---- trouble -------------------------------------------------------------------------------------- */

static void test_suspect_then_held(void)
{
    mortise_lease *lease = open_and_take(CONFIG, WATCHED);
    int away = SCRIPT(.kinds = OP(RENEW), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    advance_ms(1000);
    expect_states(1, MORTISE_STATE_SUSPECT);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_SUSPECT);
    CU_ASSERT_EQUAL(mortise_remaining_ms(lease), DEADLINE_MS - 1000);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), 2); /* at once, once */
    advance_ms(1000);
    sim->end(away);
    size_t tries = tapped_count(MORTISE_OP_RENEW);
    CU_ASSERT(tries >= 4 && tries <= 8);
    for (size_t i = 2; i < tries; i++) { /* a fiftieth of the ttl and more, a sixth at most */
        int64_t pause_ns =
            tapped(MORTISE_OP_RENEW, i)->at_ns - tapped(MORTISE_OP_RENEW, i - 1)->at_ns;
        CU_ASSERT(pause_ns >= 60 * MS && pause_ns <= 500 * MS);
    }
    advance_ms(500);
    expect_states(2, MORTISE_STATE_SUSPECT, MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(stats_of(&rig).renewal_failures, tries);
    advance_ms(10000);
    expect_states(2, MORTISE_STATE_SUSPECT, MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    rig_close(&rig);
}

/* But not more than ten times a second, after the first two. */
static void test_tried_as_often_as_renewed(void)
{
    mortise_lease *lease = open_and_take(CONFIG "renew_every = 10ms\n", WATCHED);
    int away = SCRIPT(.kinds = OP(RENEW), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    advance_ms(1050);
    size_t tries = tapped_count(MORTISE_OP_RENEW);
    CU_ASSERT(tries >= 6 && tries <= 18);
    sim->end(away);
    advance_ms(200);
    expect_states(2, MORTISE_STATE_SUSPECT, MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    rig_close(&rig);
}

static void test_lost_at_the_deadline(void)
{
    mortise_lease *lease = open_and_take(CONFIG, WATCHED);
    SCRIPT(.kinds = OP(RENEW), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    advance_ms(TTL_MS);
    expect_states(2, MORTISE_STATE_SUSPECT, MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(since_start_ms(states.at_ns[1]), DEADLINE_MS);
    CU_ASSERT_PTR_EQUAL(states.lease, lease);
    mortise_stats stats = stats_of(&rig);
    CU_ASSERT_EQUAL(stats.losses, 1);
    CU_ASSERT_EQUAL(stats.held, 0);
    ASSERT_NOTHING_LEFT(); /* one of those may have been executed: it was released */
    size_t tries = tapped_count(MORTISE_OP_RENEW);
    advance_ms(10000);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), tries);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    rig_close(&rig);
}

static void test_backend_says_lost(bool to_another)
{
    mortise_lease *lease = open_and_take(CONFIG, WATCHED);
    CU_ASSERT(sim->lose("a"));
    if (to_another)
        sim->seize("a", MORTISE_NEVER);
    advance_ms(1000);
    expect_states(1, MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    advance_ms(10000);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 0);
    CU_ASSERT_EQUAL(sim->claims(), to_another ? 1 : 0);
    rig_close(&rig);
}

static void test_backend_says_gone(void)
{
    test_backend_says_lost(false);
}

static void test_backend_says_anothers(void)
{
    test_backend_says_lost(true);
}

/* No answer within a sixth of the ttl is a failure: the request is canceled and repeated. */
static void test_silence(void)
{
    mortise_lease *lease = open_and_take(CONFIG, WATCHED);
    SCRIPT(.kinds = OP(RENEW), .times = 2, .fate = SIM_SILENT);
    advance_ms(1499);
    expect_states(0);
    advance_ms(1);
    expect_states(1, MORTISE_STATE_SUSPECT);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), 2);
    advance_ms(1000);
    expect_states(2, MORTISE_STATE_SUSPECT, MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    rig_close(&rig);
}

/* A driver that does not even answer a cancel: the holder learns it in time nevertheless. */
static void test_silence_for_ever(void)
{
    mortise_lease *lease = open_and_take(CONFIG, WATCHED);
    int held = SCRIPT(.kinds = OP(RENEW), .hold_request = true, .on_cancel = SIM_CANCEL_IGNORED);
    advance_ms(TTL_MS);
    expect_states(2, MORTISE_STATE_SUSPECT, MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(since_start_ms(states.at_ns[0]), 1500);
    CU_ASSERT_EQUAL(since_start_ms(states.at_ns[1]), DEADLINE_MS);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), 1);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    sim->let_go(held);
    settle();
    ASSERT_NOTHING_LEFT();
    rig_close(&rig);
}

static mortise_lease *looked_at;

/* Another thread checks the lease just when its deadline has come, in the middle of the watchdog's work. */
static void look_at_the_deadline(void *ctx, const mortise_event *event)
{
    (void)ctx;
    if (event->kind != MORTISE_EVENT_SUSPECT)
        return;
    set_now(event->deadline_ns);
    CU_ASSERT_EQUAL(mortise_state(looked_at), MORTISE_STATE_LOST);
}

static void test_loss_seen_between_is_told(void)
{
    looked_at = open_and_take(CONFIG, WATCHED);
    rig.client->locks.observers[0]->module.observe = look_at_the_deadline;
    int held = SCRIPT(.kinds = OP(RENEW), .times = 1, .hold_request = true,
                      .on_cancel = SIM_CANCEL_IGNORED);
    advance_ms(1600);
    advance_ms(TTL_MS);
    CU_ASSERT_EQUAL(states.count > 0 ? states.seen[states.count - 1] : MORTISE_STATE_HELD,
                    MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(stats_of(&rig).losses, 1);
    CU_ASSERT_EQUAL(mortise_release(looked_at, NULL), MORTISE_LOST);
    sim->let_go(held);
    settle();
    rig_close(&rig);
}

static void test_jitter_is_in_its_bounds(void)
{
    static const int64_t below[] = {1, 2, 1000, 2500000001, 4294967295};
    rig_open(&rig, CONFIG);
    for (size_t i = 0; i < sizeof(below) / sizeof(below[0]); i++)
        for (int n = 0; n < 1000; n++) {
            int64_t jitter = random_below(&rig.client->locks.random, below[i]);
            if (jitter < 0 || jitter >= below[i]) {
                CU_FAIL("out of bounds");
                break;
            }
        }
    rig_close(&rig);
}

/* A suspended machine: an hour passes between two instants. */
static void test_long_sleep(void)
{
    mortise_lease *lease = open_and_take(CONFIG, WATCHED);
    advance_ms(500);
    set_now(now_ns() + 3600 * NS_PER_S);
    uint64_t token = sim->seize("a", MORTISE_NEVER); /* another client has held it since */
    settle();
    expect_states(1, MORTISE_STATE_LOST);
    CU_ASSERT(token > mortise_token(lease));
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    CU_ASSERT_EQUAL(sim->claims(), 1); /* the other's */
    rig_close(&rig);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"a lease is renewed every third of its ttl", test_renews_every_third},
        {"renew_every is configured", test_renew_every_is_configured},
        {"renew_every beyond a third of the ttl", test_renew_every_beyond_a_third},
        {"an hour of a hundred leases", test_hours_of_many_leases},
        {"renewals that are due together go together", test_due_together_go_together},
        {"no_renew: it just ends", test_no_renew_just_ends},
        {"max_hold ends the renewals", test_max_hold},
        {"R1: a deadline counts from before the request",
         test_deadline_counts_from_before_the_request},
        {"R1: a renewal never shortens", test_renewal_never_shortens},
        {"R2: the state is a clock compare", test_state_is_a_clock_compare},
        {"R2: a late success that nobody saw coming", test_late_success_unseen},
        {"R2: a late success after a look", test_late_success_seen},
        {"R2: a late answer that leaves doubt", test_late_doubt},
        {"R2: a late refusal", test_late_refusal},
        {"an answer after the loss", test_answer_after_the_loss},
        {"suspect, then held again", test_suspect_then_held},
        {"tried as often as it is renewed", test_tried_as_often_as_renewed},
        {"lost at the deadline", test_lost_at_the_deadline},
        {"lost by the backend's word: gone", test_backend_says_gone},
        {"lost by the backend's word: another's", test_backend_says_anothers},
        {"no answer to a renewal", test_silence},
        {"no answer to its cancel either", test_silence_for_ever},
        {"a loss that another thread saw first is told", test_loss_seen_between_is_told},
        {"jitter is in its bounds", test_jitter_is_in_its_bounds},
        {"a machine that slept", test_long_sleep},
        CU_TEST_INFO_NULL,
    };
    return rig_run("watchdog", tests);
}
