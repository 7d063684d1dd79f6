/* test_release_async.c - a release whose outcome comes by a callback: each outcome, once, in bounded time. */
#include "rig.h"

#define CONFIG "ttl = 60s\nunreachable_timeout = 1s\n"
#define LATE_MS 3500 /* unreachable_timeout, and the longest pause before a repeat */

static struct rig rig;
static mortise_lease *lease;

static struct {
    struct test_count calls;
    mortise_status status;
    char message[200];
    int64_t at_ns;
} over = {.calls = TEST_COUNT_INIT};

static void released(mortise_status status, const mortise_error *error, void *user_data)
{
    CU_ASSERT_PTR_EQUAL(user_data, &over);
    CU_ASSERT_EQUAL(error == NULL, status == MORTISE_OK);
    over.status = status;
    over.at_ns = now_ns();
    snprintf(over.message, sizeof(over.message), "%s", error == NULL ? "" : error->message);
    if (error != NULL)
        CU_ASSERT_EQUAL(error->status, status);
    test_count_add(&over.calls, 1);
}

static int calls(void)
{
    return test_count_get(&over.calls);
}

static void start(void)
{
    test_count_add(&over.calls, -calls());
    rig_open(&rig, CONFIG);
    lease = take(&rig, "a", NULL);
}

static void finish(void)
{
    settle();
    ASSERT_NOTHING_LEFT();
    rig_close(&rig);
}

static void release(void)
{
    CU_ASSERT_EQUAL(mortise_release_async(lease, released, &over, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
}

static void expect_over(mortise_status status)
{
    CU_ASSERT_EQUAL(calls(), 1);
    CU_ASSERT_EQUAL(over.status, status);
}

static void test_ok(void)
{
    start();
    SCRIPT(.kinds = OP(RELEASE), .reply_ns = 10 * MS);
    release();
    settle();
    CU_ASSERT_EQUAL(calls(), 0);
    CU_ASSERT_EQUAL(mortise_release_async(lease, released, &over, NULL), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_INVALID);
    advance_ms(10);
    expect_over(MORTISE_OK);
    finish();
}

static void test_lost(void)
{
    start();
    advance_ms(1000);
    sim->lose("a");
    release(); /* not known yet: the backend says it */
    settle();
    expect_over(MORTISE_LOST);
    CU_ASSERT_STRING_EQUAL(
        over.message,
        "release \"a\": the lease was lost before: another holder may have overlapped");
    finish();
    start();
    sim->lose("a");
    advance_ms(60000);
    release(); /* known: there is nothing to ask, and a callback all the same */
    settle();
    expect_over(MORTISE_LOST);
    finish();
}

static void test_hand_over(void)
{
    struct outcome got;
    start();
    want(&rig, &got, "a", FOREVER);
    release();
    settle();
    expect_over(MORTISE_OK);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(stats_of(&rig).handovers, 1);
    CU_ASSERT_EQUAL(mortise_release(got.lease, NULL), MORTISE_OK);
    finish();
}

static void test_refused(void)
{
    start();
    SCRIPT(.kinds = OP(RELEASE), .fate = SIM_REFUSE, .status = MORTISE_BACKEND);
    release();
    settle();
    expect_over(MORTISE_BACKEND);
    CU_ASSERT_EQUAL(rig_close_any(&rig), MORTISE_UNREACHABLE); /* the claim is left to its ttl */
    sim->lose_all();
}

/* Nobody answers: the callback comes in bounded time, and the release goes on. */
static void unanswered(const sim_rule *rule, mortise_status wanted)
{
    start();
    int64_t began_ns = now_ns();
    int number = sim->script(rule);
    release();
    advance_ms(LATE_MS);
    expect_over(wanted);
    CU_ASSERT(over.at_ns >= began_ns + 1000 * MS);
    sim->end(number);
    sim->let_go(number);
    advance_ms(5000);
    CU_ASSERT_EQUAL(sim->claims(), 0);
    CU_ASSERT_EQUAL(calls(), 1); /* what came later is nobody's business any more */
    finish();
}

static void test_unreachable(void)
{
    unanswered(&(sim_rule){.kinds = OP(RELEASE), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE},
               MORTISE_UNREACHABLE);
}

static void test_silent(void)
{
    unanswered(&(sim_rule){.kinds = OP(RELEASE), .fate = SIM_SILENT}, MORTISE_INDETERMINATE);
}

/* A driver that does not even answer the cancel. */
static void test_stuck(void)
{
    unanswered(
        &(sim_rule){.kinds = OP(RELEASE), .hold_reply = true, .on_cancel = SIM_CANCEL_IGNORED},
        MORTISE_INDETERMINATE);
}

static void test_arguments(void)
{
    mortise_error error = {.message = ""};
    start();
    CU_ASSERT_EQUAL(mortise_release_async(NULL, released, &over, &error), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mortise_release_async(lease, NULL, &over, &error), MORTISE_INVALID);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "no callback"));
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    settle();
    CU_ASSERT_EQUAL(calls(), 0);
    finish();
}

/* ---- with threads ---------------------------------------------------------------------------------- */

static void test_on_the_notifier(void)
{
    test_count_add(&over.calls, -calls());
    rig_open_real(&rig, "");
    for (int i = 0; i < 100; i++) {
        CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a", NULL, &lease, NULL), MORTISE_OK);
        release();
    }
    CU_ASSERT(test_count_wait(&over.calls, 100));
    CU_ASSERT_EQUAL(over.status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(sim->claims(), 0);
    set_now(START_NS);
}

/* mortise_close() returns when the callback has run, with an answer or without. */
static void test_close(void)
{
    test_count_add(&over.calls, -calls());
    rig_open_real(&rig, "unreachable_timeout = 1h\nclose_timeout = 300ms\n");
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a", NULL, &lease, NULL), MORTISE_OK);
    SCRIPT(.kinds = OP(RELEASE), .fate = SIM_SILENT);
    release();
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_UNREACHABLE);
    expect_over(MORTISE_INDETERMINATE);
    sim->reset();
    set_now(START_NS);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"released", test_ok},
        {"lost", test_lost},
        {"handed over", test_hand_over},
        {"refused", test_refused},
        {"unreachable", test_unreachable},
        {"silence", test_silent},
        {"a driver that is stuck", test_stuck},
        {"arguments", test_arguments},
        {"on the notifier", test_on_the_notifier},
        {"closed meanwhile", test_close},
        CU_TEST_INFO_NULL,
    };
    return rig_run("release_async", tests);
}
