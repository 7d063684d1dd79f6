/* test_contest_trouble.c - waiting for a name of a backend in trouble: who is told what, and when it is asked again. */
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
    CU_ASSERT_EQUAL(got.error.native, 111); /* the driver's own word */
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
    contest_news_all(rig.client);
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

/* A refusal that is final concerns the head alone: the next may want something that is allowed. */
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

/* Grants that are over when they arrive are given back, and asked for again with pauses. */
static void test_grants_that_come_too_late(void)
{
    start(CONFIG "unreachable_timeout = 2s\n");
    tap_answer = answer_stale;
    want(&rig, &got, "a", FOREVER);
    advance_ms(4000);
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_UNREACHABLE);
    size_t tries = tapped_count(MORTISE_OP_ACQUIRE);
    CU_ASSERT(tries >= 3 && tries <= 30);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), tries);
    tap_answer = NULL;
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
        CU_TEST_INFO_NULL,
    };
    return rig_run("contest in trouble", tests);
}
