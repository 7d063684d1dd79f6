/* test_release.c - releases end even if nobody waits for them: the core repeats them until it is sure, with growing
 * pauses, for callers that wait, that have gone, or that never waited. */
#include "rig.h"

#include <errno.h>

#define CONFIG "ttl = 30s\n"

static struct rig rig;
static struct outcome got;

static void start(const char *config)
{
    rig_open(&rig, config);
    tap(&rig);
}

static void finish(void)
{
    settle();
    CU_ASSERT_EQUAL(rig.client->locks.outstanding, 0);
    CU_ASSERT_EQUAL(rig.client->pump.unattended, 0);
    ASSERT_NOTHING_LEFT();
    rig_close(&rig);
}

static void test_one_request(void)
{
    start(CONFIG);
    mortise_lease *lease = take(&rig, "a", NULL);
    mortise_grant_id grant = taps[0].op.grant;
    uint64_t token = mortise_token(lease);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(tap_count, 2);
    CU_ASSERT_EQUAL(memcmp(&taps[1].op.grant, &grant, sizeof(grant)), 0); /* R3 */
    CU_ASSERT_EQUAL(taps[1].op.token, token);
    CU_ASSERT_EQUAL(taps[1].op.flags, 0);
    finish();
}

static void test_null(void)
{
    mortise_error error = {.status = MORTISE_BUSY};
    CU_ASSERT_EQUAL(mortise_release(NULL, &error), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release_nowait(NULL, &error), MORTISE_OK);
    CU_ASSERT_EQUAL(error.status, MORTISE_BUSY);
    mortise_lease *none = NULL;
    mortise_release_scope(&none);
}

static void test_scope(void)
{
    start(CONFIG);
    mortise_lease *lease = take(&rig, "a", NULL);
    int rounds = 0;
    MORTISE_WITH (lease) {
        rounds++;
        CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    }
    CU_ASSERT_EQUAL(rounds, 1);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    lease = take(&rig, "a", NULL);
    for (int i = 0; i < 1; i++)
        MORTISE_WITH (lease) {
            continue;
        }
    MORTISE_WITH ((mortise_lease *)NULL) {
        rounds++;
    }
    CU_ASSERT_EQUAL(rounds, 1);
    finish();
}

/* The client's next request comes after it. */
static void test_nowait_then_acquire(void)
{
    start(CONFIG);
    SCRIPT(.request_ns = 10 * MS);
    want(&rig, &got, "a", FOREVER);
    advance_ms(10);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release_nowait(got.lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_state(got.lease), MORTISE_STATE_LOST);
    want(&rig, &got, "a", TRY);
    advance_ms(10);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release_nowait(got.lease, NULL), MORTISE_OK);
    advance_ms(10);
    finish();
}

static void test_nowait_tells_a_known_loss(void)
{
    start(CONFIG);
    mortise_lease *lease = take(&rig, "a", NULL);
    sim->lose("a");
    advance_ms(10000);
    CU_ASSERT_EQUAL(mortise_release_nowait(lease, NULL), MORTISE_LOST);
    lease = take(&rig, "a", NULL);
    sim->lose("a");
    CU_ASSERT_EQUAL(mortise_release_nowait(lease, NULL), MORTISE_OK); /* not known yet */
    finish();
}

/* A release cannot fail because memory is short: the claim contains its request from the start. */
static void test_needs_no_memory(void)
{
    static const char *const owners[] = {NULL, "somebody"};
    for (int i = 0; i < 2; i++) {
        start(CONFIG);
        mortise_lease *lease = take(&rig, "a", MORTISE_OPTIONS(.owner = owners[i]));
        struct claim *claim = slab_find(&claim_slab, lease);
        int held = SCRIPT(.kinds = OP(RELEASE), .hold_reply = true);
        CU_ASSERT_EQUAL(mortise_release_nowait(lease, NULL), MORTISE_OK);
        CU_ASSERT_EQUAL(claim->state, CLAIM_ENDING);
        CU_ASSERT(claim->end_out);
        sim->end(held);
        sim->let_go(held);
        finish();
    }
}

/* An unreachable backend: one repeat at once, then with pauses that double, up to two seconds. */
static void test_backs_off(void)
{
    start(CONFIG);
    mortise_lease *lease = take(&rig, "a", NULL);
    int away = SCRIPT(.kinds = OP(RELEASE), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(mortise_release_nowait(lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 2);
    advance_ms(20000);
    size_t tries = tapped_count(MORTISE_OP_RELEASE);
    CU_ASSERT(tries >= 14 && tries <= 40);
    int64_t last_ns = 0;
    for (size_t i = 2; i < tries; i++) {
        int64_t pause_ns =
            tapped(MORTISE_OP_RELEASE, i)->at_ns - tapped(MORTISE_OP_RELEASE, i - 1)->at_ns;
        CU_ASSERT(pause_ns >= 5 * MS && pause_ns <= 2000 * MS);
        CU_ASSERT(pause_ns * 4 >= last_ns);
        last_ns = pause_ns;
        CU_ASSERT_EQUAL(tapped(MORTISE_OP_RELEASE, i)->op.flags, MORTISE_OP_REPEAT);
    }
    sim->end(away);
    advance_ms(2000);
    CU_ASSERT_EQUAL(rig.client->locks.outstanding, 0);
    finish();
}

/* No answer at all: each try is given up after a while and repeated. */
static void test_silence(void)
{
    start(CONFIG);
    mortise_lease *lease = take(&rig, "a", NULL);
    SCRIPT(.kinds = OP(RELEASE), .times = 2, .fate = SIM_SILENT);
    CU_ASSERT_EQUAL(mortise_release_nowait(lease, NULL), MORTISE_OK);
    advance_ms(5000);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 1);
    advance_ms(6000);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 3);
    finish();
}

static void test_ends_with_the_ttl(void)
{
    start("ttl = 3s\n");
    mortise_lease *lease = take(&rig, "a", NULL);
    SCRIPT(.kinds = OP(RELEASE), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(mortise_release_nowait(lease, NULL), MORTISE_OK);
    advance_ms(2900);
    CU_ASSERT_EQUAL(rig.client->locks.outstanding, 1);
    advance_ms(2200);
    CU_ASSERT_EQUAL(rig.client->locks.outstanding, 0);
    size_t tries = tapped_count(MORTISE_OP_RELEASE);
    advance_ms(60000);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), tries);
    sim->lose("a");
    finish();
}

static void refuse_for_good(void)
{
    start(CONFIG);
    mortise_error error;
    mortise_lease *lease = take(&rig, "a", NULL);
    SCRIPT(.kinds = OP(RELEASE), .times = 1, .fate = SIM_REFUSE, .status = MORTISE_BACKEND,
           .native = 99);
    CU_ASSERT_EQUAL(mortise_release(lease, &error), MORTISE_BACKEND);
    CU_ASSERT_EQUAL(error.native, 99);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 1);
    CU_ASSERT_EQUAL(sim->claims(), 1);
}

/* The backend keeps the claim until its ttl is over. A close says that until then, and not for ever. */
static void test_final_refusal(void)
{
    refuse_for_good();
    advance_ms(29999);
    CU_ASSERT_EQUAL(rig_close_any(&rig), MORTISE_UNREACHABLE);
    sim->lose("a");
    refuse_for_good();
    advance_ms(30000);
    rig_close(&rig);
}

/* ---- callers that wait ----------------------------------------------------------------------------- */

struct caller {
    pthread_t thread;
    mortise_lease *lease;
    mortise_status status;
    mortise_error error;
};

static void *release_it(void *argument)
{
    struct caller *caller = argument;
    caller->status = mortise_release(caller->lease, &caller->error);
    return NULL;
}

/* Runs a release on another thread, with a clock that does not move, until the rule has hit n times. */
static void release_beside(struct caller *caller, int rule, uint64_t n)
{
    pthread_create(&caller->thread, NULL, release_it, caller);
    CU_ASSERT(sim->wait_hits(rule, n, TEST_PATIENCE_MS));
}

static bool ended(void *argument)
{
    struct caller *caller = argument;
    return pthread_tryjoin_np(caller->thread, NULL) == 0;
}

/* Moves the clock until the caller has returned, for no longer than this. */
static int64_t let_time_pass(struct caller *caller, int64_t at_most_ms)
{
    int64_t from_ns = now_ns();
    while (!ended(caller) && now_ns() < from_ns + at_most_ms * MS) {
        set_now(now_ns() + 100 * MS);
        watchdog_run(&rig.client->locks);
        /* from when it is due on, more slowly: its thread may have to wait for its turn */
        if (test_poll(ended, caller, now_ns() < from_ns + 2000 * MS ? 5 : 100))
            return (now_ns() - from_ns) / MS;
    }
    return (now_ns() - from_ns) / MS;
}

/* The caller gives up after unreachable_timeout; the release does not. */
static void caller_goes(const sim_rule *rule, mortise_status wanted)
{
    struct caller caller = {.status = MORTISE_OK};
    start(CONFIG "unreachable_timeout = 2s\n");
    caller.lease = take(&rig, "a", MORTISE_OPTIONS(.owner = "o"));
    int number = sim->script(rule);
    release_beside(&caller, number, 1);
    int64_t took_ms = let_time_pass(&caller, 60000);
    CU_ASSERT(took_ms >= 2000 && took_ms <= 20000);
    CU_ASSERT_EQUAL(caller.status, wanted);
    CU_ASSERT_EQUAL(caller.error.status, wanted);
    CU_ASSERT_EQUAL(rig.client->locks.outstanding, 1);
    CU_ASSERT_EQUAL(rig.client->pump.unattended <= 1, true);
    sim->end(number);
    advance_ms(5000);
    CU_ASSERT_EQUAL(sim->claims(), 0);
    finish();
}

static void test_caller_goes_backend_away(void)
{
    caller_goes(
        &(sim_rule){.kinds = OP(RELEASE), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE},
        MORTISE_UNREACHABLE);
}

/* The first try was not sent. The second one was, and is not answered. */
static void test_caller_goes_second_try_sent(void)
{
    struct caller caller = {.status = MORTISE_OK};
    start(CONFIG "unreachable_timeout = 2s\n");
    caller.lease = take(&rig, "a", MORTISE_OPTIONS(.owner = "o"));
    SCRIPT(.kinds = OP(RELEASE), .times = 1, .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    int held = SCRIPT(.kinds = OP(RELEASE), .times = 1, .hold_reply = true,
                      .on_cancel = SIM_CANCEL_IGNORED);
    release_beside(&caller, held, 1);
    let_time_pass(&caller, 60000);
    CU_ASSERT_EQUAL(caller.status, MORTISE_INDETERMINATE);
    sim->let_go(held);
    advance_ms(5000);
    CU_ASSERT_EQUAL(sim->claims(), 0);
    finish();
}

static void test_caller_goes_no_answer(void)
{
    caller_goes(&(sim_rule){.kinds = OP(RELEASE), .fate = SIM_SILENT}, MORTISE_INDETERMINATE);
}

static void test_caller_goes_replies_lost(void)
{
    caller_goes(
        &(sim_rule){.kinds = OP(RELEASE), .fate = SIM_LOSE_REPLY, .status = MORTISE_INDETERMINATE},
        MORTISE_INDETERMINATE);
}

static bool nothing_outstanding(void *argument)
{
    (void)argument;
    pthread_mutex_lock(&rig.client->locks.lock);
    bool none = rig.client->locks.outstanding == 0;
    locks_unlock(&rig.client->locks, START_NOW);
    return none;
}

/* On a real client: an answer that comes after the caller has gone is read. */
static void test_caller_goes_answer_comes(void)
{
    mortise_lease *lease;
    rig_open_real(&rig, CONFIG "unreachable_timeout = 100ms\n");
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a", TRY, &lease, NULL), MORTISE_OK);
    SCRIPT(.kinds = OP(RELEASE), .reply_ns = 1500 * MS, .on_cancel = SIM_CANCEL_IGNORED);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_INDETERMINATE);
    CU_ASSERT(test_poll(nothing_outstanding, NULL, 5000));
    ASSERT_NOTHING_LEFT();
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
}

/* The caller returns at the first answer, although the release goes on until it is sure. */
static void test_told_before_it_is_sure(void)
{
    start(CONFIG);
    SCRIPT(.kinds = OP(ACQUIRE), .times = 1, .fate = SIM_GHOST, .status = MORTISE_INDETERMINATE,
           .request_ns = 1000 * MS);
    want(&rig, &got, "a", FOREVER);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(got.lease, NULL), MORTISE_OK); /* no time passes */
    CU_ASSERT_EQUAL(rig.client->locks.outstanding, 1);
    advance_ms(999);
    CU_ASSERT_EQUAL(rig.client->locks.outstanding, 1);
    advance_ms(2000);
    finish();
}

/* ---- beside the queue ------------------------------------------------------------------------------ */

/* A waiter of this process gets the name as soon as the release succeeds. */
static void test_waiter_behind_a_slow_release(void)
{
    start(CONFIG "handover_max = 0\n");
    mortise_lease *lease = take(&rig, "a", NULL);
    want(&rig, &got, "a", FOREVER);
    int away = SCRIPT(.kinds = OP(RELEASE), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(mortise_release_nowait(lease, NULL), MORTISE_OK);
    advance_ms(5000);
    CU_ASSERT_EQUAL(got.calls, 0);
    sim->end(away);
    advance_ms(2100);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(got.lease, NULL), MORTISE_OK);
    finish();
}

/* The answer to a renewal that is under way no longer matters. */
static void test_renewal_under_way(void)
{
    static const sim_on_cancel ways[] = {SIM_CANCEL_INDETERMINATE, SIM_CANCEL_CLEAN,
                                         SIM_CANCEL_IGNORED};
    for (int way = 0; way < 3; way++)
        for (int request = 0; request < 2; request++) {
            start("ttl = 3s\n");
            mortise_lease *lease = take(&rig, "a", NULL);
            int held = SCRIPT(.kinds = OP(RENEW), .times = 1, .hold_request = request == 1,
                              .hold_reply = request == 0, .on_cancel = ways[way]);
            advance_ms(1000);
            CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
            sim->let_go(held);
            settle();
            CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 1);
            CU_ASSERT_EQUAL(stats_of(&rig).losses, 0);
            finish();
        }
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"one request", test_one_request},
        {"NULL", test_null},
        {"MORTISE_WITH", test_scope},
        {"nowait, then acquire", test_nowait_then_acquire},
        {"a release needs no memory", test_needs_no_memory},
        {"nowait tells a known loss", test_nowait_tells_a_known_loss},
        {"it backs off", test_backs_off},
        {"no answer", test_silence},
        {"it ends with the ttl", test_ends_with_the_ttl},
        {"a final refusal", test_final_refusal},
        {"the caller goes: backend away", test_caller_goes_backend_away},
        {"the caller goes, its second try was sent", test_caller_goes_second_try_sent},
        {"the caller goes: no answer", test_caller_goes_no_answer},
        {"the caller goes: replies lost", test_caller_goes_replies_lost},
        {"the caller goes, the answer comes", test_caller_goes_answer_comes},
        {"R4: told before it is sure", test_told_before_it_is_sure},
        {"a waiter behind a slow release", test_waiter_behind_a_slow_release},
        {"a renewal under way", test_renewal_under_way},
        CU_TEST_INFO_NULL,
    };
    return rig_run("release", tests);
}
