/* test_contest_trouble.c - callers wait for a name while the backend is in trouble: which outcome each of them gets,
 * and when the core asks again. */
#include "contest_test.h"

static void test_away_for_too_long(void)
{
    start(CONFIG);
    SCRIPT(.kinds = OP(ACQUIRE), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE, .native = 111);
    want(&rig, &got, "a", FOREVER);
    want(&rig, &other, "a", FOREVER);
    advance_ms(9900);
    CU_ASSERT_EQUAL(got.calls + other.calls, 0);
    advance_ms(1200);
    CU_ASSERT_EQUAL(got.status, MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(other.status, MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(got.error.native, 111); /* the driver's own message */
    size_t tries = tapped_count(MORTISE_OP_ACQUIRE);
    CU_ASSERT(tries >= 10 && tries <= 40);
    advance_ms(60000);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_ACQUIRE), tries);
    finish();
}

static void test_away_for_a_while(void)
{
    start(CONFIG);
    int away = SCRIPT(.kinds = OP(ACQUIRE), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    want(&rig, &got, "a", FOREVER);
    advance_ms(9000);
    sim->end(away);
    advance_ms(1000);
    give_back(&got);
    finish();
}

/* Failures that lie apart are not added up. */
static void test_trouble_is_forgotten(void)
{
    start(CONFIG "unreachable_timeout = 1s\n[sim]\nnotify = no\n");
    sim->seize("a", MORTISE_NEVER);
    want(&rig, &got, "a", FOREVER);
    for (int i = 0; i < 10; i++) {
        SCRIPT(.kinds = OP(ACQUIRE), .times = 1, .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
        advance_ms(700);
    }
    CU_ASSERT_EQUAL(got.calls, 0);
    sim->give_back("a");
    advance_ms(300);
    give_back(&got);
    finish();
}

static void test_news_end_a_backoff(void)
{
    start(CONFIG);
    int away = SCRIPT(.kinds = OP(ACQUIRE), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    want(&rig, &got, "a", FOREVER);
    advance_ms(5000);
    sim->end(away);
    sim->news_all(); /* does not reach it: it watches nothing yet */
    waitlists_news(&rig.client->locks, NULL, 0);
    settle();
    give_back(&got);
    finish();
}

/* [16] Not "held by another": nobody knows. */
static void test_time_out_says_why(void)
{
    start(CONFIG);
    SCRIPT(.kinds = OP(ACQUIRE), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    want(&rig, &got, "a", MORTISE_OPTIONS(.wait_ms = 300));
    advance_ms(300);
    CU_ASSERT_EQUAL(got.status, MORTISE_UNREACHABLE);
    sim->reset();
    sim->seize("a", MORTISE_NEVER);
    want(&rig, &got, "a", MORTISE_OPTIONS(.wait_ms = 300));
    advance_ms(300);
    CU_ASSERT_EQUAL(got.status, MORTISE_TIMEDOUT);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(got.error.message, "\"a\" is held by elsewhere (pid 1) for 0.3 s; "));
    sim->give_back("a");
    finish();
}

/* A final refusal concerns only the head: the next caller may want something that is allowed. */
static void test_refusal_is_the_heads(void)
{
    start(CONFIG);
    sim->seize("a", MORTISE_NEVER);
    want(&rig, &got, "a", FOREVER);
    want(&rig, &other, "a", FOREVER);
    SCRIPT(.kinds = OP(ACQUIRE), .times = 1, .fate = SIM_REFUSE, .status = MORTISE_BACKEND);
    sim->give_back("a");
    settle();
    CU_ASSERT_EQUAL(got.status, MORTISE_BACKEND);
    give_back(&other);
    finish();
}

static bool answer_stale(mortise_op *op)
{
    if (op->kind != MORTISE_OP_ACQUIRE)
        return false;
    op->token = 1;
    op->from_ns = clock_now() - 60 * NS_PER_S;
    op->good_for_ms = op->ttl_ms;
    tapped_host()->complete(tapped_host(), op, MORTISE_OK);
    return true;
}

/* Grants that are over when they arrive are released, and requested again with pauses. Each exists in the backend
 * until its release is executed. */
static void test_grants_that_come_too_late(void)
{
    start(CONFIG "unreachable_timeout = 2s\n");
    tap_answer = answer_stale;
    want(&rig, &got, "a", FOREVER);
    advance_ms(4000);
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_INDETERMINATE);
    CU_ASSERT_EQUAL(got.error.status, MORTISE_INDETERMINATE);
    size_t tries = tapped_count(MORTISE_OP_ACQUIRE);
    CU_ASSERT(tries >= 3 && tries <= 30);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), tries);
    tap_answer = NULL;
    finish();
}

static void test_try_granted_too_late(void)
{
    start(CONFIG);
    tap_answer = answer_stale;
    want(&rig, &got, "a", TRY);
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_INDETERMINATE);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 1);
    tap_answer = NULL;
    finish();
}

/* The head got a grant too late once, and then the backend was unreachable: the caller behind it has sent nothing. */
static void test_granted_too_late_then_away(void)
{
    start(CONFIG "unreachable_timeout = 2s\n");
    tap_answer = answer_stale;
    want(&rig, &got, "a", FOREVER);
    want(&rig, &other, "a", FOREVER);
    tap_answer = NULL;
    SCRIPT(.kinds = OP(ACQUIRE), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    advance_ms(4000);
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_INDETERMINATE);
    CU_ASSERT_EQUAL(other.calls, 1);
    CU_ASSERT_EQUAL(other.status, MORTISE_UNREACHABLE);
    finish();
}

static unsigned acquires_seen;
static mortise_op *kept;

/* The first reply is lost, and the driver refuses the repeat: its own undo of that grant may still arrive. */
static bool lose_then_refuse(mortise_op *op)
{
    static const mortise_status answers[] = {MORTISE_INDETERMINATE, MORTISE_BUSY};
    if (op->kind != MORTISE_OP_ACQUIRE || acquires_seen >= 2)
        return false;
    op->first_sent_ns = START_NS;
    tapped_host()->complete(tapped_host(), op, answers[acquires_seen++]);
    return true;
}

/* A try is not refused while nobody holds the lock: it asks again, with another grant id. */
static void try_after_refused_repeat(bool is_held)
{
    start(CONFIG);
    if (is_held)
        sim->seize("a", MORTISE_NEVER);
    acquires_seen = 0;
    tap_answer = lose_then_refuse;
    want(&rig, &got, "a", TRY);
    tap_answer = NULL;
    CU_ASSERT_EQUAL_FATAL(got.calls, 1);
    CU_ASSERT_EQUAL_FATAL(tapped_count(MORTISE_OP_ACQUIRE), 3);
    const mortise_op *repeat = &tapped(MORTISE_OP_ACQUIRE, 1)->op,
                     *last = &tapped(MORTISE_OP_ACQUIRE, 2)->op;
    CU_ASSERT_EQUAL(repeat->flags, MORTISE_OP_TRY | MORTISE_OP_REPEAT);
    CU_ASSERT_EQUAL(last->flags, MORTISE_OP_TRY);
    CU_ASSERT(memcmp(&repeat->grant, &last->grant, sizeof last->grant) != 0);
    CU_ASSERT_EQUAL(got.status, is_held ? MORTISE_BUSY : MORTISE_OK);
    if (is_held) {
        CU_ASSERT_PTR_NOT_NULL(strstr(got.error.message, "elsewhere"));
        sim->give_back("a");
    } else
        give_back(&got);
    advance_ms(5000); /* the lost grant is released until it is sure */
    finish();
}

static void test_try_after_refused_repeat(void)
{
    try_after_refused_repeat(false);
    try_after_refused_repeat(true);
}

/* The request after the refused repeat is not sent. The first one and its undo may still be executed. */
static void test_try_away_after_refused_repeat(void)
{
    start(CONFIG);
    SCRIPT(.kinds = OP(ACQUIRE), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    acquires_seen = 0;
    tap_answer = lose_then_refuse;
    want(&rig, &got, "a", TRY);
    tap_answer = NULL;
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_INDETERMINATE);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_ACQUIRE), 3);
    advance_ms(5000); /* the lost grant is released until it is sure */
    finish();
}

static bool give_kept_back(mortise_op *op)
{
    (void)op;
    tap_answer = NULL;
    tapped_host()->complete(tapped_host(), kept, MORTISE_CANCELED);
    return false;
}

static bool lose_refuse_and_keep(mortise_op *op)
{
    if (op->kind == MORTISE_OP_ACQUIRE && acquires_seen == 2) {
        kept = op; /* unsent: no mark is set */
        acquires_seen++;
        return true;
    }
    return lose_then_refuse(op);
}

/* Likewise if it is kept unsent until the time is over. */
static void test_try_kept_after_refused_repeat(void)
{
    start(CONFIG "unreachable_timeout = 2s\n");
    acquires_seen = 0;
    kept = NULL;
    tap_answer = lose_refuse_and_keep;
    want(&rig, &got, "a", TRY);
    CU_ASSERT_PTR_NOT_NULL_FATAL(kept);
    CU_ASSERT_EQUAL(kept->first_sent_ns, 0);
    advance_ms(2100);
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_INDETERMINATE);
    tap_answer = give_kept_back;
    CU_ASSERT_EQUAL(mortise_release(take(&rig, "b", NULL), NULL), MORTISE_OK);
    advance_ms(5000);
    finish();
}

static bool always_lose_then_refuse(mortise_op *op)
{
    if (op->kind != MORTISE_OP_ACQUIRE)
        return false;
    acquires_seen++;
    bool repeat = (op->flags & MORTISE_OP_REPEAT) != 0;
    tapped_host()->complete(tapped_host(), op, repeat ? MORTISE_BUSY : MORTISE_INDETERMINATE);
    return true;
}

/* Not forever: a try ends if no reply names the holder for `unreachable_timeout`. */
static void test_try_never_told(void)
{
    start(CONFIG "unreachable_timeout = 2s\n");
    acquires_seen = 0;
    tap_answer = always_lose_then_refuse;
    want(&rig, &got, "a", TRY);
    advance_ms(5000);
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_INDETERMINATE);
    CU_ASSERT(acquires_seen > 2);
    tap_answer = NULL;
    advance_ms(5000);
    finish();
}

/* ---- the driver keeps the request, and reports that it waits ---- */

static bool keep_acquire(mortise_op *op)
{
    if (op->kind != MORTISE_OP_ACQUIRE)
        return false;
    op->first_sent_ns = START_NS;
    kept = op;
    return true;
}

static void report_waiting(void *ctx, void *argument)
{
    (void)ctx;
    (void)argument;
    tapped_host()->waiting(tapped_host(), kept);
}

static void lose_kept(void *ctx, void *argument)
{
    (void)ctx;
    (void)argument;
    tapped_host()->complete(tapped_host(), kept, MORTISE_INDETERMINATE);
}

/* The answer that it waits is that of a request which has failed since. */
static void lose_and_report(void *ctx, void *argument)
{
    lose_kept(ctx, argument);
    report_waiting(ctx, argument);
}

static void in_the_pump(void (*run)(void *ctx, void *argument))
{
    tapped_host()->post(tapped_host(), run, NULL);
    settle();
}

/* The first reply is lost. The driver keeps the repeat. */
static void wait_after_a_loss(const mortise_options *options)
{
    start(CONFIG);
    tap_answer = keep_acquire;
    want(&rig, &got, "a", options);
    in_the_pump(lose_kept);
    CU_ASSERT_EQUAL_FATAL(tapped_count(MORTISE_OP_ACQUIRE), 2);
}

/* Two short failures with a long wait in between are no long failure. */
static void test_lost_twice_while_it_waits(void)
{
    wait_after_a_loss(FOREVER);
    in_the_pump(report_waiting);
    advance_ms(60000);
    in_the_pump(lose_kept);
    CU_ASSERT_EQUAL(got.calls, 0);
    advance_ms(100);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_ACQUIRE), 3); /* after a pause: the second failure in a row */
    in_the_pump(report_waiting);
    advance_ms(120000);
    in_the_pump(lose_kept);
    CU_ASSERT_EQUAL(got.calls, 0);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_ACQUIRE), 4); /* at once: the first failure in a row */
    tap_answer = NULL;
    in_the_pump(lose_kept);
    advance_ms(1000);
    give_back(&got);
    finish();
}

static void test_time_out_while_it_waits(void)
{
    wait_after_a_loss(MORTISE_OPTIONS(.wait_ms = 30000));
    in_the_pump(report_waiting);
    advance_ms(30000);
    CU_ASSERT_EQUAL(got.status, MORTISE_TIMEDOUT);
    CU_ASSERT_STRING_EQUAL(got.error.message, "\"a\" is held by another; gave up after 30000 ms");
    in_the_pump(report_waiting); /* it is canceled: for nobody */
    in_the_pump(lose_kept);
    finish();
}

static void refuse_kept(void *ctx, void *argument)
{
    (void)ctx;
    (void)argument;
    tapped_host()->complete(tapped_host(), kept, MORTISE_UNREACHABLE);
}

/* The queue answers, but each turn ends in a failure: as on Redis without the replicas that must confirm a grant, where callers
 * take turns. That is an outage. */
static void test_turns_that_fail(void)
{
    start(CONFIG);
    tap_answer = keep_acquire;
    want(&rig, &got, "a", FOREVER);
    for (int i = 0; i < 15 && got.calls == 0; i++) {
        in_the_pump(report_waiting);
        advance_ms(12000);
        in_the_pump(refuse_kept);
        advance_ms(2000);
    }
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_UNREACHABLE);
    finish();
}

static void test_overtaken_report(void)
{
    wait_after_a_loss(FOREVER);
    for (int i = 0; i < 11; i++) {
        advance_ms(1000);
        in_the_pump(lose_and_report);
    }
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_INDETERMINATE);
    finish();
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"away for too long", test_away_for_too_long},
        {"away for a while", test_away_for_a_while},
        {"trouble is forgotten", test_trouble_is_forgotten},
        {"news end a back-off", test_news_end_a_backoff},
        {"[16] a time-out says why", test_time_out_says_why},
        {"a refusal is the head's", test_refusal_is_the_heads},
        {"grants that come too late", test_grants_that_come_too_late},
        {"a try that is granted too late", test_try_granted_too_late},
        {"one that was granted too late, then away", test_granted_too_late_then_away},
        {"a try after a refused repeat", test_try_after_refused_repeat},
        {"one that is away then", test_try_away_after_refused_repeat},
        {"one that is kept unsent then", test_try_kept_after_refused_repeat},
        {"a try that is never told who holds", test_try_never_told},
        {"two lost replies, and a long wait between them", test_lost_twice_while_it_waits},
        {"a time-out during the wait", test_time_out_while_it_waits},
        {"a report of a request that has failed since", test_overtaken_report},
        {"turns that fail", test_turns_that_fail},
        CU_TEST_INFO_NULL,
    };
    return rig_run("contest in trouble", tests);
}
