/* test_extend.c - a lease that the library does not renew is made to last longer: the table of core/lock/extend.c. */
#include "rig.h"

#include <pthread.h>

#define TTL_MS 3000
#define MARGIN_MS (TTL_MS / 100 + 2)
#define LONG_MS 10000
#define LONG_MARGIN_MS (LONG_MS / 100 + 2)
#define CONFIG "ttl = 3s\n"
#define BRIEF MORTISE_OPTIONS(.no_renew = true, .on_state = on_state, .user_data = &states)

static struct rig rig;
static struct states states;
static mortise_lease *lease;
static mortise_error error;

static void start(void)
{
    memset(&states, 0, sizeof(states));
    error.message[0] = '\0';
    rig_open(&rig, CONFIG);
    lease = take(&rig, "a", BRIEF);
    tap(&rig);
}

static void finish(mortise_status released)
{
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), released);
    settle();
    ASSERT_NOTHING_LEFT();
    rig_close(&rig);
}

static void test_extend(void)
{
    start();
    observe(&rig);
    uint64_t token = mortise_token(lease);
    advance_ms(2000);
    CU_ASSERT_EQUAL(mortise_extend(lease, 0, &error), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_remaining_ms(lease), TTL_MS - MARGIN_MS);
    CU_ASSERT_EQUAL(events[0].kind, MORTISE_EVENT_RENEWED);
    CU_ASSERT_EQUAL(mortise_token(lease), token);
    CU_ASSERT_EQUAL(mortise_extend(lease, LONG_MS, &error), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_remaining_ms(lease), LONG_MS - LONG_MARGIN_MS);
    CU_ASSERT_EQUAL(mortise_extend(lease, MORTISE_TTL_MIN_MS, &error), MORTISE_OK); /* no shorter */
    CU_ASSERT_EQUAL(mortise_remaining_ms(lease), LONG_MS - LONG_MARGIN_MS);
    advance_ms(LONG_MS - LONG_MARGIN_MS - 1);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), 3); /* nobody renews it but us */
    advance_ms(1);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_extend(lease, 0, &error), MORTISE_LOST);
    CU_ASSERT_EQUAL(states.count, 1);
    sim->lose_all(); /* it has expired: the sim would see that with the next request */
    finish(MORTISE_LOST);
}

static void test_arguments(void)
{
    start();
    mortise_lease *renewed = take(&rig, "b", NULL);
    CU_ASSERT_EQUAL(mortise_extend(renewed, 0, &error), MORTISE_INVALID);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "renews this lease"));
    CU_ASSERT_EQUAL(mortise_release(renewed, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_extend(renewed, 0, &error), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mortise_extend(NULL, 0, &error), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mortise_extend(lease, -1, &error), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mortise_extend(lease, MORTISE_TTL_MIN_MS - 1, &error), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mortise_extend(lease, MORTISE_TTL_MAX_MS + 1, &error), MORTISE_INVALID);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), 0);
    finish(MORTISE_OK);
}

/* The backend says that the claim is gone. */
static void test_lost(void)
{
    start();
    sim->lose("a");
    CU_ASSERT_EQUAL(mortise_extend(lease, 0, &error), MORTISE_LOST);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    settle();
    CU_ASSERT(states.count == 1 && states.seen[0] == MORTISE_STATE_LOST);
    finish(MORTISE_LOST);
}

/* The call sees the deadline pass before the watchdog does: the callback hears of the loss all the same. */
static void test_sees_the_deadline_first(void)
{
    start();
    set_now(now_ns() + TTL_MS * MS);
    CU_ASSERT_EQUAL(mortise_extend(lease, 0, &error), MORTISE_LOST);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "lost before"));
    settle();
    CU_ASSERT(states.count == 1 && states.seen[0] == MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), 0);
    sim->lose_all(); /* it has expired: the sim would see that with the next request */
    finish(MORTISE_LOST);
}

/* A refusal leaves the deadline where it is; the next one may succeed. */
static void test_refused(void)
{
    start();
    SCRIPT(.kinds = OP(RENEW), .times = 1, .fate = SIM_REFUSE, .status = MORTISE_BACKEND);
    advance_ms(1000);
    CU_ASSERT_EQUAL(mortise_extend(lease, 0, &error), MORTISE_BACKEND);
    CU_ASSERT_EQUAL(error.status, MORTISE_BACKEND);
    CU_ASSERT_EQUAL(mortise_remaining_ms(lease), TTL_MS - MARGIN_MS - 1000);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_SUSPECT);
    advance_ms(1000);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), 1); /* it is not repeated by itself */
    CU_ASSERT_EQUAL(mortise_extend(lease, 0, &error), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_remaining_ms(lease), TTL_MS - MARGIN_MS);
    finish(MORTISE_OK);
}

/* The driver takes no such ttl, and asks nothing: nobody doubts the lease. */
static void test_too_long(void)
{
    start();
    const struct claim *claim = slab_find(&claim_slab, lease);
    SCRIPT(.kinds = OP(RENEW), .times = 1, .fate = SIM_REFUSE, .status = MORTISE_INVALID);
    advance_ms(1000);
    CU_ASSERT_EQUAL(mortise_extend(lease, LONG_MS, &error), MORTISE_INVALID);
    CU_ASSERT_EQUAL(error.status, MORTISE_INVALID);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_remaining_ms(lease), TTL_MS - MARGIN_MS - 1000);
    CU_ASSERT_EQUAL(claim->ttl_ms, TTL_MS);
    advance_ms(1000);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), 1);
    CU_ASSERT_EQUAL(states.count, 0);
    CU_ASSERT_EQUAL(mortise_extend(lease, 0, &error), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_remaining_ms(lease), TTL_MS - MARGIN_MS);
    finish(MORTISE_OK);
}

/* The reply is lost: the deadline stays, and at the deadline the backend, which may hold the name for longer, is told. */
static void test_reply_lost(void)
{
    start();
    SCRIPT(.kinds = OP(RENEW), .fate = SIM_LOSE_REPLY, .status = MORTISE_INDETERMINATE);
    CU_ASSERT_EQUAL(mortise_extend(lease, LONG_MS, &error), MORTISE_INDETERMINATE);
    CU_ASSERT_EQUAL(mortise_remaining_ms(lease), TTL_MS - MARGIN_MS);
    advance_ms(TTL_MS - MARGIN_MS);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    settle();
    CU_ASSERT_EQUAL(sim->claims(), 0);
    finish(MORTISE_LOST);
}

static int lose_an_extension(void)
{
    start();
    int rule = SCRIPT(.kinds = OP(RENEW), .times = 1, .fate = SIM_LOSE_REPLY,
                      .status = MORTISE_INDETERMINATE);
    CU_ASSERT_EQUAL(mortise_extend(lease, LONG_MS, &error), MORTISE_INDETERMINATE);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_SUSPECT);
    return rule;
}

static void expect_nothing_kept(void)
{
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_remaining_ms(lease), TTL_MS - MARGIN_MS);
    advance_ms(TTL_MS - MARGIN_MS);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(sim->claims(), 0);
    finish(MORTISE_LOST);
}

/* Later answers say that the claim stands, but not that the backend does not keep it for longer: that to a look, */
static void test_reply_lost_then_look(void)
{
    int rule = lose_an_extension();
    claims_doubt(&rig.client->locks, "a", 1);
    settle();
    CU_ASSERT_EQUAL(sim->hits(rule), 1);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), 2);
    expect_nothing_kept();
}

/* and that to a shorter extension. */
static void test_reply_lost_then_less(void)
{
    lose_an_extension();
    CU_ASSERT_EQUAL(mortise_extend(lease, 0, &error), MORTISE_OK);
    expect_nothing_kept();
}

/* A look is out that a doubt asked for: the extension follows it. */
static void test_behind_a_doubt(void)
{
    start();
    int rule = SCRIPT(.kinds = OP(RENEW), .times = 1, .request_ns = 10 * MS);
    struct locks *locks = &rig.client->locks;
    struct claim *claim = slab_find(&claim_slab, lease);
    claims_doubt(locks, "a", 1);
    settle();
    CU_ASSERT_EQUAL(sim->hits(rule), 1);
    struct release_wait wait = {.status = MORTISE_BUSY};
    sleeper_init(&wait.sleeper, &rig.client->pump);
    pthread_mutex_lock(&locks->lock);
    claim_extend_locked(claim, LONG_MS, &wait);
    locks_unlock(locks, START_NOW);
    CU_ASSERT_EQUAL(mortise_extend(lease, 0, &error), MORTISE_INVALID);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "another thread"));
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), 1);
    advance_ms(10);
    CU_ASSERT(sleeper_done(&wait.sleeper));
    CU_ASSERT_EQUAL(wait.status, MORTISE_OK);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), 2);
    CU_ASSERT_EQUAL(tapped(MORTISE_OP_RENEW, 1)->op.ttl_ms, LONG_MS);
    CU_ASSERT_EQUAL(mortise_remaining_ms(lease), LONG_MS - LONG_MARGIN_MS);
    finish(MORTISE_OK);
}

static void extend_locked(struct release_wait *wait, int64_t ttl_ms)
{
    struct locks *locks = &rig.client->locks;
    struct claim *claim = slab_find(&claim_slab, lease);
    *wait = (struct release_wait){.status = MORTISE_BUSY};
    sleeper_init(&wait->sleeper, &rig.client->pump);
    pthread_mutex_lock(&locks->lock);
    claim_extend_locked(claim, ttl_ms, wait);
    locks_unlock(locks, START_NOW);
}

/* A caller stopped waiting, and its request is still out. */
static void leave_an_extension(int64_t ttl_ms, sim_fate fate, mortise_status status)
{
    struct release_wait gone;
    start();
    int rule = SCRIPT(.kinds = OP(RENEW), .times = 1, .request_ns = 10 * MS, .fate = fate,
                      .status = status);
    extend_locked(&gone, ttl_ms);
    settle();
    CU_ASSERT_EQUAL(sim->hits(rule), 1);
    struct locks *locks = &rig.client->locks;
    pthread_mutex_lock(&locks->lock);
    claim_extend_detach_locked(slab_find(&claim_slab, lease));
    locks_unlock(locks, START_NOW);
    CU_ASSERT_EQUAL(gone.status, MORTISE_INDETERMINATE);
}

/* The answer is not that to the next caller. */
static void test_behind_an_extension(sim_fate fate, mortise_status first)
{
    struct release_wait wait;
    leave_an_extension(TTL_MS, fate, first);
    extend_locked(&wait, LONG_MS);
    advance_ms(10);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), 2);
    CU_ASSERT(sleeper_done(&wait.sleeper));
    CU_ASSERT_EQUAL(wait.status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_remaining_ms(lease), LONG_MS - LONG_MARGIN_MS);
    finish(MORTISE_OK);
}

static void test_two_callers(void)
{
    test_behind_an_extension(SIM_PASS, MORTISE_OK);
    test_behind_an_extension(SIM_REFUSE, MORTISE_BACKEND);
}

/* The driver does not take what the next caller asks for. The claim lasts as if only the first had asked, if that was executed:
 * its release may take that long. */
static void test_refused_behind(sim_fate fate, mortise_status first, uint32_t ttl_ms)
{
    struct release_wait wait;
    leave_an_extension(LONG_MS, fate, first);
    SCRIPT(.kinds = OP(RENEW), .times = 1, .fate = SIM_REFUSE, .status = MORTISE_INVALID);
    extend_locked(&wait, 2 * LONG_MS);
    advance_ms(10);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), 2);
    CU_ASSERT(sleeper_done(&wait.sleeper));
    CU_ASSERT_EQUAL(wait.status, MORTISE_INVALID);
    const struct claim *claim = slab_find(&claim_slab, lease);
    CU_ASSERT_EQUAL(claim->ttl_ms, ttl_ms);
    finish(MORTISE_OK);
}

static void test_too_long_behind(void)
{
    test_refused_behind(SIM_PASS, MORTISE_OK, LONG_MS);
    test_refused_behind(SIM_LOSE_REPLY, MORTISE_INDETERMINATE, LONG_MS);
    test_refused_behind(SIM_REFUSE, MORTISE_INVALID, TTL_MS);
}

/* On a slow network. What the claim lasts for bounds how long an answer may take, and not what was asked for last. */
static void test_after_a_short_one(void)
{
    struct release_wait wait;
    start();
    CU_ASSERT_EQUAL(mortise_extend(lease, LONG_MS, &error), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_extend(lease, MORTISE_TTL_MIN_MS, &error), MORTISE_OK);
    SCRIPT(.kinds = OP(RENEW), .request_ns = 20 * MS);
    claims_doubt(&rig.client->locks, "a", 1);
    advance_ms(1000);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), 3);
    CU_ASSERT_EQUAL(states.count, 0);
    extend_locked(&wait, LONG_MS);
    advance_ms(20);
    CU_ASSERT(sleeper_done(&wait.sleeper));
    CU_ASSERT_EQUAL(wait.status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_remaining_ms(lease), LONG_MS - LONG_MARGIN_MS - 20);
    finish(MORTISE_OK);
}

/* 0 is the ttl of the acquire, also after a longer extension. */
static void test_first_ttl(void)
{
    start();
    CU_ASSERT_EQUAL(mortise_extend(lease, LONG_MS, &error), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_extend(lease, 0, &error), MORTISE_OK);
    CU_ASSERT_EQUAL(tapped(MORTISE_OP_RENEW, 1)->op.ttl_ms, TTL_MS);
    finish(MORTISE_OK);
}

/* A claim that depends on a session is good for less than its ttl: the library renews it up to the new end. */
static bool answer_session(mortise_op *op)
{
    if (op->kind == MORTISE_OP_INSPECT)
        return false;
    op->from_ns = clock_now();
    op->good_for_ms = op->ttl_ms < 900 ? op->ttl_ms : 900;
    op->token = 7;
    op->sure = true;
    tapped_host()->complete(tapped_host(), op, MORTISE_OK);
    return true;
}

static void test_session(void)
{
    rig_open(&rig, CONFIG);
    tap(&rig);
    tap_answer = answer_session;
    lease = take(&rig, "a", BRIEF);
    advance_ms(2900);
    CU_ASSERT_EQUAL(mortise_extend(lease, 0, &error), MORTISE_OK);
    advance_ms(2900);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    advance_ms(101);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    rig_close(&rig);
}

/* ---- with threads ---------------------------------------------------------------------------------- */

static void start_real(void)
{
    rig_open_real(&rig, "ttl = 30s\nunreachable_timeout = 200ms\n");
    CU_ASSERT_EQUAL_FATAL(
        mortise_acquire(rig.handle, "a", MORTISE_OPTIONS(.no_renew = true), &lease, NULL),
        MORTISE_OK);
}

/* No answer at all: the second call cannot even send its request. */
static void test_silence(void)
{
    start_real();
    SCRIPT(.kinds = OP(RENEW), .fate = SIM_SILENT_EXECUTED, .on_cancel = SIM_CANCEL_IGNORED);
    CU_ASSERT_EQUAL(mortise_extend(lease, 0, &error), MORTISE_INDETERMINATE);
    CU_ASSERT_EQUAL(error.status, MORTISE_INDETERMINATE);
    CU_ASSERT_EQUAL(mortise_extend(lease, 0, NULL), MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    sim->reset();
    mortise_close(rig.handle, NULL);
    set_now(START_NS);
}

static void *extend(void *status)
{
    *(mortise_status *)status = mortise_extend(lease, 0, NULL);
    return NULL;
}

/* The lease ends while a thread waits for the answer. */
static void test_released_meanwhile(void)
{
    pthread_t thread;
    mortise_status status = MORTISE_BUSY;
    start_real();
    int rule = SCRIPT(.kinds = OP(RENEW), .fate = SIM_SILENT);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, extend, &status), 0);
    CU_ASSERT(sim->wait_hits(rule, 1, TEST_PATIENCE_MS));
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    pthread_join(thread, NULL);
    CU_ASSERT(status == MORTISE_INVALID || status == MORTISE_INDETERMINATE);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(sim->claims(), 0);
    set_now(START_NS);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"extend", test_extend},
        {"arguments", test_arguments},
        {"lost", test_lost},
        {"the call sees the deadline first", test_sees_the_deadline_first},
        {"refused", test_refused},
        {"a ttl that the driver does not take", test_too_long},
        {"a lost reply", test_reply_lost},
        {"a lost reply, and a look", test_reply_lost_then_look},
        {"a lost reply, and a shorter extension", test_reply_lost_then_less},
        {"behind a doubt", test_behind_a_doubt},
        {"two callers", test_two_callers},
        {"a ttl that the driver does not take, behind another", test_too_long_behind},
        {"after a short one", test_after_a_short_one},
        {"the ttl of the acquire", test_first_ttl},
        {"a session", test_session},
        {"silence", test_silence},
        {"released meanwhile", test_released_meanwhile},
        CU_TEST_INFO_NULL,
    };
    return rig_run("extend", tests);
}
