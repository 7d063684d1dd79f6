/* test_indeterminate.c - replies are lost at each step of acquire, renew and release (R4): the core repeats the
 * request under the same grant id, and releases what may be left until it is sure, even if a request is executed long
 * after its connection was given up (a ghost). */
#include "rig.h"

#define CONFIG "ttl = 3s\n"
#define DEADLINE_MS (3000 - 32)

static struct rig rig;
static struct outcome got, other;

#define LOSE(kind_, ...)                                                                           \
    SCRIPT(.kinds = OP(kind_), .fate = SIM_LOSE_REPLY, .status = MORTISE_INDETERMINATE, __VA_ARGS__)
#define GHOST(kind_, ...)                                                                          \
    SCRIPT(.kinds = OP(kind_), .fate = SIM_GHOST, .status = MORTISE_INDETERMINATE,                 \
           .hold_request = true, __VA_ARGS__)

static void start(void)
{
    rig_open(&rig, CONFIG);
    tap(&rig);
}

static void finish(void)
{
    advance_ms(10000);
    CU_ASSERT_EQUAL(rig.client->locks.outstanding, 0);
    ASSERT_NOTHING_LEFT();
    rig_close(&rig);
}

static bool same_grant(size_t i, size_t k)
{
    const struct tapped *a = tapped(MORTISE_OP_ACQUIRE, i), *b = tapped(MORTISE_OP_ACQUIRE, k);
    return a != NULL && b != NULL && memcmp(&a->op.grant, &b->op.grant, sizeof(a->op.grant)) == 0;
}

/* ---- acquire ------------------------------------------------------------------------------------- */

/* Only the head of the queue sends requests. A caller behind it that gives up has sent nothing. */
static void test_second_in_line_times_out(void)
{
    start();
    int lost = LOSE(ACQUIRE, .times = 0);
    want(&rig, &got, "a", MORTISE_OPTIONS(.wait_ms = 500));
    want(&rig, &other, "a", MORTISE_OPTIONS(.wait_ms = 100));
    advance_ms(200);
    CU_ASSERT_EQUAL(other.calls, 1);
    CU_ASSERT_EQUAL(other.status, MORTISE_UNREACHABLE);
    advance_ms(400);
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_INDETERMINATE);
    sim->end(lost);
    finish();
}

static void test_acquire_executed(void)
{
    start();
    LOSE(ACQUIRE, .times = 1, .request_ns = 200 * MS, .reply_ns = 300 * MS);
    want(&rig, &got, "a", FOREVER);
    CU_ASSERT_EQUAL(got.calls, 0);
    advance_ms(500);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_ACQUIRE), 2);
    CU_ASSERT(same_grant(0, 1));
    const mortise_op *repeat = &tapped(MORTISE_OP_ACQUIRE, 1)->op;
    CU_ASSERT_EQUAL(repeat->flags & MORTISE_OP_REPEAT, MORTISE_OP_REPEAT);
    CU_ASSERT_EQUAL(repeat->first_sent_ns, START_NS); /* R1: kept over the repeats */
    CU_ASSERT_EQUAL(mortise_token(got.lease), 1);     /* not granted twice */
    CU_ASSERT_EQUAL(sim->claims(), 1);
    CU_ASSERT_EQUAL(mortise_release(got.lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 1);
    finish();
}

/* A try is repeated too: "sent, reply lost" is no outcome for its caller. */
static void test_try_executed(void)
{
    start();
    LOSE(ACQUIRE, .times = 3);
    want(&rig, &got, "a", TRY);
    advance_ms(1000);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT(same_grant(0, 3));
    CU_ASSERT_EQUAL(mortise_release(got.lease, NULL), MORTISE_OK);
    finish();
}

/* The first request is executed after the lease was released: its grant must not last for a ttl. */
static void test_acquire_ghost_comes_after_the_release(void)
{
    start();
    int ghost = GHOST(ACQUIRE, .times = 1);
    want(&rig, &got, "a", FOREVER);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK); /* by the repeat */
    CU_ASSERT_EQUAL(mortise_release(got.lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(sim->claims(), 0);
    CU_ASSERT_EQUAL(sim->held(ghost), 1);
    advance_ms(100);
    sim->let_go(ghost);
    settle();
    CU_ASSERT_EQUAL(sim->claims(), 1); /* executed now */
    advance_ms(2000);                  /* less than the ttl */
    CU_ASSERT_EQUAL(sim->claims(), 0);
    finish();
}

/* The repeat finds another holder: the lost request may still be executed. Nobody must get its grant. */
static void test_acquire_ghost_comes_after_busy(bool try_once)
{
    start();
    int ghost = GHOST(ACQUIRE, .times = 1, .reply_ns = 10 * MS);
    want(&rig, &got, "a", try_once ? TRY : FOREVER);
    sim->seize("a", MORTISE_NEVER);
    advance_ms(10);
    CU_ASSERT_EQUAL(got.calls, try_once ? 1 : 0);
    sim->give_back("a");
    sim->let_go(ghost);
    advance_ms(try_once ? 1000 : 0);
    if (try_once) {
        CU_ASSERT_EQUAL(got.status, MORTISE_BUSY);
    } else {
        advance_ms(1000);
        CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
        CU_ASSERT(!same_grant(0, tapped_count(MORTISE_OP_ACQUIRE) - 1));
        CU_ASSERT_EQUAL(mortise_release(got.lease, NULL), MORTISE_OK);
    }
    CU_ASSERT_EQUAL(sim->claims(), 0); /* a second after it came, of a ttl of three */
    finish();
}

static void test_acquire_ghost_busy_try(void)
{
    test_acquire_ghost_comes_after_busy(true);
}

static void test_acquire_ghost_busy_wait(void)
{
    test_acquire_ghost_comes_after_busy(false);
}

/* No reply arrives for longer than any caller waits. */
static void test_acquire_never_answered(void)
{
    start();
    int lost = LOSE(ACQUIRE);
    int lost_too = LOSE(RELEASE, .request_ns = 10 * MS);
    want(&rig, &got, "a", FOREVER);
    advance_ms(9500);
    CU_ASSERT_EQUAL(got.calls, 0);
    advance_ms(2000);
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_INDETERMINATE);
    CU_ASSERT(got.error.message[0] != '\0' && got.error.retryable);
    CU_ASSERT(tapped_count(MORTISE_OP_ACQUIRE) <= 60); /* backed off */
    sim->end(lost);
    sim->end(lost_too);
    advance_ms(3000);
    CU_ASSERT_EQUAL(tapped(MORTISE_OP_RELEASE, 0)->op.grant.bytes[0],
                    tapped(MORTISE_OP_ACQUIRE, 0)->op.grant.bytes[0]);
    ASSERT_NOTHING_LEFT();
    finish();
}

static void test_acquire_times_out_unsure(void)
{
    start();
    int ghost = GHOST(ACQUIRE);
    want(&rig, &got, "a", MORTISE_OPTIONS(.wait_ms = 500));
    advance_ms(499);
    CU_ASSERT_EQUAL(got.calls, 0);
    advance_ms(1);
    CU_ASSERT_EQUAL(got.status, MORTISE_INDETERMINATE);
    CU_ASSERT_EQUAL(got.at_ns, START_NS + 500 * MS);
    advance_ms(300);
    sim->end(ghost);
    sim->let_go(ghost);
    settle();
    advance_ms(2000);
    CU_ASSERT_EQUAL(sim->claims(), 0);
    finish();
}

/* The clean-up may find nothing while the request is under way: it tries again until it is sure, but not for longer
 * than a claim could last. */
static void test_clean_up_is_bounded_by_the_ttl(void)
{
    start();
    int ghost = GHOST(ACQUIRE, .times = 1, .reply_ns = 10 * MS);
    want(&rig, &got, "a", FOREVER);
    CU_ASSERT_EQUAL(mortise_cancel(rig.handle, got.request), MORTISE_OK);
    settle();
    CU_ASSERT_EQUAL(got.status, MORTISE_CANCELED);
    advance_ms(2900);
    size_t tries = tapped_count(MORTISE_OP_RELEASE);
    CU_ASSERT(tries >= 4 && tries <= 20);
    CU_ASSERT_EQUAL(rig.client->locks.outstanding, 1);
    advance_ms(3000);
    CU_ASSERT_EQUAL(rig.client->locks.outstanding, 0);
    tries = tapped_count(MORTISE_OP_RELEASE);
    advance_ms(10000);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), tries);
    sim->let_go(ghost);
    CU_ASSERT_EQUAL(sim->claims(), 1); /* its own ttl bounds it */
    advance_ms(3000);
    want(&rig, &other, "a", TRY);
    CU_ASSERT_EQUAL(other.status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(other.lease, NULL), MORTISE_OK);
    finish();
}

/* A try whose request is under way when the time is over may still be granted. */
static void test_try_never_answered(void)
{
    start();
    SCRIPT(.kinds = OP(ACQUIRE), .times = 1, .fate = SIM_SILENT_EXECUTED);
    want(&rig, &got, "a", TRY);
    advance_ms(10100);
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_INDETERMINATE);
    finish();
}

/* The first request was not sent, the second one is under way. */
static void test_sent_after_a_refusal(void)
{
    start();
    SCRIPT(.kinds = OP(ACQUIRE), .times = 1, .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    SCRIPT(.kinds = OP(ACQUIRE), .times = 1, .fate = SIM_SILENT_EXECUTED);
    want(&rig, &got, "a", MORTISE_OPTIONS(.wait_ms = 500));
    advance_ms(500);
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_INDETERMINATE);
    finish();
}

static mortise_op *unsent;

/* Keeps an acquire and sends nothing, as a driver without a connection does; completes it with the next op. */
static bool keep_unsent(mortise_op *op)
{
    if (op->kind == MORTISE_OP_ACQUIRE && unsent == NULL) {
        unsent = op;
        return true;
    }
    if (unsent != NULL)
        tapped_host()->complete(tapped_host(), unsent, MORTISE_CANCELED);
    tap_answer = NULL;
    return false;
}

static void test_try_never_sent(void)
{
    start();
    unsent = NULL;
    tap_answer = keep_unsent;
    want(&rig, &got, "a", TRY);
    advance_ms(10100);
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(mortise_release(take(&rig, "b", NULL), NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 1); /* nothing of "a" must be undone */
    finish();
}

/* If the driver knows that a request was not sent, nothing is uncertain. */
static void test_unreachable_is_sure(void)
{
    start();
    SCRIPT(.kinds = OP(ACQUIRE), .times = 1, .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    want(&rig, &got, "a", TRY);
    CU_ASSERT_EQUAL(got.status, MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_ACQUIRE), 1);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 0);
    finish();
}

/* The next caller in line takes over an acquisition whose reply was lost, with its grant id. */
static void test_next_inherits_the_uncertainty(void)
{
    start();
    int lost = LOSE(ACQUIRE);
    want(&rig, &got, "a", MORTISE_OPTIONS(.wait_ms = 100));
    want(&rig, &other, "a", FOREVER);
    advance_ms(110);
    CU_ASSERT_EQUAL(got.status, MORTISE_INDETERMINATE);
    sim->end(lost);
    advance_ms(1000);
    CU_ASSERT_EQUAL_FATAL(other.status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_token(other.lease), 1);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 0);
    CU_ASSERT_EQUAL(mortise_release(other.lease, NULL), MORTISE_OK);
    finish();
}

/* If it wants something else (a ttl of its own), the old acquisition is ended and cleaned up. */
static void test_next_wants_another(void)
{
    start();
    int lost = LOSE(ACQUIRE);
    want(&rig, &got, "a", MORTISE_OPTIONS(.wait_ms = 100));
    want(&rig, &other, "a", MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 5000));
    advance_ms(100);
    sim->end(lost);
    CU_ASSERT_EQUAL(got.status, MORTISE_INDETERMINATE);
    advance_ms(1000);
    CU_ASSERT_EQUAL_FATAL(other.status, MORTISE_OK);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 1);
    CU_ASSERT_EQUAL(mortise_state(other.lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(sim->claims(), 1);
    CU_ASSERT_EQUAL(mortise_release(other.lease, NULL), MORTISE_OK);
    finish();
}

/* ---- renew --------------------------------------------------------------------------------------- */

static void test_renew(bool executed)
{
    struct states states = {0};
    start();
    mortise_lease *lease =
        take(&rig, "a", MORTISE_OPTIONS(.on_state = on_state, .user_data = &states));
    int ghost = executed ? LOSE(RENEW, .times = 1) : GHOST(RENEW, .times = 1);
    advance_ms(1000);
    /* SUSPECT, and HELD by the repeat: one notice with the last state, if both changes wait */
    CU_ASSERT_FATAL(states.count == 1 || states.count == 2);
    CU_ASSERT_EQUAL(states.seen[states.count - 1], MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_remaining_ms(lease), DEADLINE_MS);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    sim->let_go(ghost); /* a renewal does not bring back a claim that is gone */
    settle();
    CU_ASSERT_EQUAL(sim->claims(), 0);
    finish();
}

static void test_renew_executed(void)
{
    test_renew(true);
}

static void test_renew_ghost(void)
{
    test_renew(false);
}

/* Renewals are executed, and their replies are lost until the deadline: the backend's claim outlives the lease, and is
 * released as soon as the lease is lost. */
static void test_renew_never_answered(void)
{
    start();
    mortise_lease *lease = take(&rig, "a", NULL);
    LOSE(RENEW);
    advance_ms(DEADLINE_MS - 1);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_SUSPECT);
    CU_ASSERT_EQUAL(sim->claims(), 1);
    advance_ms(1);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(sim->claims(), 0);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    finish();
}

/* ---- release -------------------------------------------------------------------------------------- */

/* [10] The owner's release was executed, and its reply lost: the owner must not get NOTOWNER. */
static void test_release_executed(void)
{
    start();
    mortise_lease *lease = take(&rig, "a", NULL);
    LOSE(RELEASE, .times = 1);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 2);
    CU_ASSERT_EQUAL(tapped(MORTISE_OP_RELEASE, 1)->op.flags & MORTISE_OP_REPEAT, MORTISE_OP_REPEAT);
    finish();
}

static bool seize_before_the_repeat(mortise_op *op)
{
    if (op->kind == MORTISE_OP_RELEASE && (op->flags & MORTISE_OP_REPEAT) != 0 &&
        sim->claims() == 0)
        sim->seize("a", MORTISE_NEVER);
    return false;
}

/* Nothing is said of the lost reply, nor of a repeat: it is over, and another holder may have overlapped. */
static void expect_taken(mortise_lease *lease)
{
    mortise_error error;
    CU_ASSERT_EQUAL(mortise_release(lease, &error), MORTISE_INDETERMINATE);
    CU_ASSERT_EQUAL(error.status, MORTISE_INDETERMINATE);
    CU_ASSERT_STRING_EQUAL(error.message,
                           "release \"a\": a reply was lost, and a later try found the lease lost, "
                           "or another holder, which may have overlapped");
}

/* The same if another caller acquired the name in between: the result is different, and that claim is not touched (R3). */
static void test_release_executed_then_taken(void)
{
    start();
    mortise_lease *lease = take(&rig, "a", NULL);
    LOSE(RELEASE, .times = 1);
    tap_answer = seize_before_the_repeat;
    expect_taken(lease);
    CU_ASSERT_EQUAL(sim->claims(), 1);
    sim->give_back("a");
    finish();
}

/* The same, but the lease was lost before: the caller must not get OK. */
static void test_release_after_another_took_it(void)
{
    start();
    mortise_lease *lease = take(&rig, "a", NULL);
    sim->lose("a");
    sim->seize("a", MORTISE_NEVER);
    LOSE(RELEASE, .times = 1);
    expect_taken(lease);
    CU_ASSERT_EQUAL(sim->claims(), 1);
    sim->give_back("a");
    finish();
}

static void test_release_ghost(void)
{
    start();
    mortise_lease *lease = take(&rig, "a", NULL);
    int ghost = GHOST(RELEASE, .times = 1);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(sim->claims(), 0);
    mortise_lease *next = take(&rig, "a", NULL);
    sim->let_go(ghost); /* it names the old grant */
    settle();
    CU_ASSERT_EQUAL(sim->claims(), 1);
    CU_ASSERT_EQUAL(mortise_release(next, NULL), MORTISE_OK);
    finish();
}

/* A release that is answered "not there" at its first try is a loss, and is reported as one. */
static void test_release_of_what_is_gone(void)
{
    start();
    mortise_lease *lease = take(&rig, "a", NULL);
    CU_ASSERT(sim->lose("a"));
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    lease = take(&rig, "a", NULL);
    sim->lose("a");
    sim->seize("a", MORTISE_NEVER);
    mortise_error error = {.message = ""};
    CU_ASSERT_EQUAL(mortise_release(lease, &error), MORTISE_LOST);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "\"a\""));
    CU_ASSERT_EQUAL(sim->claims(), 1);
    sim->give_back("a");
    finish();
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"R4: acquire executed, reply lost", test_acquire_executed},
        {"R4: so is a try", test_try_executed},
        {"R4: the acquire is executed after the release",
         test_acquire_ghost_comes_after_the_release},
        {"R4: it is executed after a busy try", test_acquire_ghost_busy_try},
        {"R4: it is executed while its caller waits", test_acquire_ghost_busy_wait},
        {"R4: no reply at all", test_acquire_never_answered},
        {"R4: a timeout while unsure", test_acquire_times_out_unsure},
        {"a waiter that sent nothing is sure", test_second_in_line_times_out},
        {"R4: the clean-up ends with the ttl", test_clean_up_is_bounded_by_the_ttl},
        {"a try that is never answered", test_try_never_answered},
        {"one that was sent after a refusal", test_sent_after_a_refusal},
        {"a try that was never sent", test_try_never_sent},
        {"unreachable is no uncertainty", test_unreachable_is_sure},
        {"the next in line goes on with it", test_next_inherits_the_uncertainty},
        {"the next in line wants another", test_next_wants_another},
        {"renewal executed, reply lost", test_renew_executed},
        {"renewal executed late", test_renew_ghost},
        {"renewals executed, no reply", test_renew_never_answered},
        {"[10] release executed, reply lost", test_release_executed},
        {"R3: and taken by another in between", test_release_executed_then_taken},
        {"R3: and taken by another before it", test_release_after_another_took_it},
        {"R3: release executed late", test_release_ghost},
        {"release of what is gone", test_release_of_what_is_gone},
        CU_TEST_INFO_NULL,
    };
    return rig_run("indeterminate", tests);
}
