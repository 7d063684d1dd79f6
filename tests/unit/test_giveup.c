/* test_giveup.c - a caller gives up (time-out, cancel, close) at each step of its acquire: it gets one outcome, and
 * nothing is left behind in the backend (R5).
 *
 * The tests combine a table of steps with a table of ways to give up. Each step brings the acquire of "a" to one
 * point; what blocks it there is removed only after the caller has left. */
#include "rig.h"

static struct rig rig;
static struct outcome got, ahead;
static int rule;

#define ALL_FATES(...) rule = SCRIPT(.kinds = OP(ACQUIRE), __VA_ARGS__)

/* ---- the steps ------------------------------------------------------------------------------------ */

static void request_recalled(void)
{
    ALL_FATES(.hold_request = true, .on_cancel = SIM_CANCEL_CLEAN);
}

static void request_on_its_way(void)
{
    ALL_FATES(.hold_request = true);
}

static void reply_on_its_way(void)
{
    ALL_FATES(.hold_reply = true);
}

static void reply_undone(void)
{
    ALL_FATES(.hold_reply = true, .on_cancel = SIM_CANCEL_CLEAN);
}

static void reply_comes_late(void)
{
    ALL_FATES(.hold_reply = true, .on_cancel = SIM_CANCEL_IGNORED);
}

static void request_comes_late(void)
{
    ALL_FATES(.hold_request = true, .on_cancel = SIM_CANCEL_IGNORED);
}

static void held_by_another(void)
{
    sim->seize("a", MORTISE_NEVER);
}

static void busy_comes_late(void)
{
    held_by_another();
    request_comes_late();
}

static void behind_another(void)
{
    held_by_another();
    want(&rig, &ahead, "a", FOREVER);
}

static void away(void)
{
    ALL_FATES(.fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
}

static void replies_lost(void)
{
    ALL_FATES(.fate = SIM_LOSE_REPLY, .status = MORTISE_INDETERMINATE);
}

static void ghosts(void)
{
    ALL_FATES(.fate = SIM_GHOST, .status = MORTISE_INDETERMINATE, .hold_request = true);
}

/* The backend's queue grants it the name at the very moment when it gives up. */
static void turn_has_come(void)
{
    sim->give_back("a");
}

static const struct step {
    const char *name, *config;
    void (*arrange)(void);
    void (*meanwhile)(void);
    mortise_status on_timeout;
    bool lingers; /* what is left can be cleaned up only later: a close would wait for it */
} steps[] = {
    {"request recalled", "", request_recalled, NULL, MORTISE_TIMEDOUT, false},
    {"request on its way", "", request_on_its_way, NULL, MORTISE_TIMEDOUT, true},
    {"request comes late", "", request_comes_late, NULL, MORTISE_TIMEDOUT, true},
    {"reply on its way", "", reply_on_its_way, NULL, MORTISE_TIMEDOUT, false},
    {"reply undone", "", reply_undone, NULL, MORTISE_TIMEDOUT, false},
    {"reply comes late", "", reply_comes_late, NULL, MORTISE_TIMEDOUT, true},
    {"waiting for news", "", held_by_another, NULL, MORTISE_TIMEDOUT, false},
    {"polling", "[sim]\nnotify = no\n", held_by_another, NULL, MORTISE_TIMEDOUT, false},
    {"busy comes late", "", busy_comes_late, NULL, MORTISE_TIMEDOUT, true},
    {"in the backend's queue", "[sim]\nqueue = yes\n", held_by_another, NULL, MORTISE_TIMEDOUT,
     false},
    {"its turn has come", "[sim]\nqueue = yes\n", held_by_another, turn_has_come, MORTISE_TIMEDOUT,
     false},
    {"news have come", "", held_by_another, turn_has_come, MORTISE_TIMEDOUT, false},
    {"behind another", "", behind_another, NULL, MORTISE_TIMEDOUT, false},
    {"behind another in the backend", "[sim]\nqueue = yes\n", behind_another, NULL,
     MORTISE_TIMEDOUT, false},
    {"backend away", "", away, NULL, MORTISE_UNREACHABLE, false},
    {"replies lost", "", replies_lost, NULL, MORTISE_INDETERMINATE, false},
    {"ghosts", "", ghosts, NULL, MORTISE_INDETERMINATE, true},
};

/* ---- the ways ------------------------------------------------------------------------------------- */

static void time_out(const struct step *step)
{
    (void)step;
    set_now(START_NS + 1000 * MS);
    settle();
}

static void cancel(const struct step *step)
{
    (void)step;
    CU_ASSERT_EQUAL(mortise_cancel(rig.handle, got.request), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_cancel(rig.handle, got.request), MORTISE_INVALID);
    settle();
}

static void end(const struct step *step)
{
    (void)step;
    rig_close(&rig);
}

/* Removes whatever blocked it. */
static void mend(void)
{
    if (rule != 0) {
        sim->end(rule);
        sim->let_go(rule);
    }
    sim->give_back("a");
}

static void check_outcome(const struct step *step, mortise_status wanted)
{
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, wanted);
    CU_ASSERT_PTR_NULL(got.lease);
    CU_ASSERT_EQUAL(got.error.status, wanted);
    CU_ASSERT(got.error.message[0] != '\0');
    if (got.calls != 1 || got.status != wanted)
        fprintf(stderr, "    at \"%s\": %d calls, %s\n", step->name, got.calls,
                mortise_status_name(got.status));
}

static void give_up_at(const struct step *step, void (*way)(const struct step *step),
                       mortise_status wanted)
{
    char config[200];
    snprintf(config, sizeof(config), "ttl = 3s\n%s", step->config);
    before_each();
    memset(&ahead, 0, sizeof(ahead));
    rule = 0;
    rig_open(&rig, config);
    step->arrange();
    want(&rig, &got, "a", MORTISE_OPTIONS(.wait_ms = 1000));
    advance_to(START_NS + 999 * MS);
    CU_ASSERT_EQUAL(got.calls, 0);
    if (step->meanwhile != NULL)
        step->meanwhile();
    way(step);
    check_outcome(step, wanted);
    mend();
    if (way != end) {
        advance_ms(2500); /* less than a ttl */
        if (ahead.calls == 1)
            CU_ASSERT_EQUAL(mortise_release(ahead.lease, NULL), MORTISE_OK);
        CU_ASSERT_EQUAL(stats_of(&rig).waiting, 0);
        CU_ASSERT_EQUAL(rig.client->locks.outstanding, 0);
    }
    if (sim->claims() + sim->waiters(NULL) + sim->outstanding() + sim->ghosts() > 0)
        fprintf(stderr, "    left at \"%s\"\n", step->name);
    ASSERT_NOTHING_LEFT();
    if (way != end)
        rig_close(&rig);
}

#define STEPS (sizeof(steps) / sizeof(steps[0]))

static void test_time_out(void)
{
    for (size_t i = 0; i < STEPS; i++)
        give_up_at(&steps[i], time_out, steps[i].on_timeout);
}

static void test_cancel(void)
{
    for (size_t i = 0; i < STEPS; i++)
        give_up_at(&steps[i], cancel, MORTISE_CANCELED);
}

static void test_close(void)
{
    for (size_t i = 0; i < STEPS; i++)
        if (!steps[i].lingers)
            give_up_at(&steps[i], end, MORTISE_CLOSED);
}

/* ---- further ways --------------------------------------------------------------------------------- */

/* A final refusal after a lost reply: the grant of the first request is released. */
static void test_refused_while_unsure(void)
{
    rig_open(&rig, "ttl = 3s\n");
    SCRIPT(.kinds = OP(ACQUIRE), .times = 1, .fate = SIM_LOSE_REPLY,
           .status = MORTISE_INDETERMINATE);
    SCRIPT(.kinds = OP(ACQUIRE), .times = 1, .fate = SIM_REFUSE, .status = MORTISE_BACKEND,
           .native = 4711);
    want(&rig, &got, "a", FOREVER);
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_BACKEND);
    CU_ASSERT_EQUAL(got.error.native, 4711);
    CU_ASSERT_STRING_EQUAL(got.error.driver, "sim");
    advance_ms(1000);
    ASSERT_NOTHING_LEFT();
    rig_close(&rig);
}

/* The clean-up itself finds the backend unreachable, and goes on when it is back. */
static void test_clean_up_waits_for_the_backend(void)
{
    rig_open(&rig, "ttl = 30s\n");
    int lost = SCRIPT(.kinds = OP(ACQUIRE), .hold_reply = true);
    want(&rig, &got, "a", FOREVER);
    int unreachable = SCRIPT(.fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(mortise_cancel(rig.handle, got.request), MORTISE_OK);
    settle();
    CU_ASSERT_EQUAL(got.status, MORTISE_CANCELED);
    advance_ms(15000);
    CU_ASSERT_EQUAL(sim->claims(), 1);
    uint64_t tries = sim->hits(unreachable);
    CU_ASSERT(tries >= 8 && tries <= 40);
    sim->end(unreachable);
    sim->end(lost);
    advance_ms(2500);
    ASSERT_NOTHING_LEFT();
    rig_close(&rig);
}

/* One of a crowd leaves: the others lose nothing, and the backend has seen one contender all the time. */
static void test_one_of_many(void)
{
    enum { CROWD = 20 };
    struct outcome outcomes[CROWD];
    rig_open(&rig, "ttl = 3s\nhandover_max = 0\n");
    sim->seize("a", MORTISE_NEVER);
    for (int i = 0; i < CROWD; i++)
        want(&rig, &outcomes[i], "a", FOREVER);
    for (int i = 0; i < CROWD; i += 2)
        CU_ASSERT_EQUAL(mortise_cancel(rig.handle, outcomes[i].request), MORTISE_OK);
    settle();
    CU_ASSERT_EQUAL(sim->waiters("a"), 1);
    sim->give_back("a");
    for (int i = 1; i < CROWD; i += 2) {
        advance_ms(200);
        CU_ASSERT_EQUAL_FATAL(outcomes[i].status, MORTISE_OK);
        CU_ASSERT_EQUAL(mortise_release(outcomes[i].lease, NULL), MORTISE_OK);
    }
    settle();
    for (int i = 0; i < CROWD; i++) {
        CU_ASSERT_EQUAL(outcomes[i].calls, 1);
        CU_ASSERT_EQUAL(outcomes[i].status, i % 2 == 0 ? MORTISE_CANCELED : MORTISE_OK);
    }
    ASSERT_NOTHING_LEFT();
    rig_close(&rig);
}

/* Decided at the same moment: the callback gets that outcome, and the cancel reports it. */
static void test_cancel_after_the_outcome(void)
{
    rig_open(&rig, "ttl = 3s\n");
    mortise_request request;
    memset(&got, 0, sizeof(got));
    CU_ASSERT_EQUAL(mortise_acquire_async(rig.handle, "a", FOREVER, told, &got, &request, NULL),
                    MORTISE_OK); /* granted already, not reported yet */
    CU_ASSERT_EQUAL(got.calls, 0);
    CU_ASSERT_EQUAL(mortise_cancel(rig.handle, request), MORTISE_INVALID);
    settle();
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(got.lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_cancel(rig.handle, 0), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mortise_cancel(rig.handle, 4711), MORTISE_INVALID);
    rig_close(&rig);
}

/* They come and go at random: each cancel finds its own as long as it waits, and never again. */
static void test_cancel_in_any_order(void)
{
    enum { CROWD = 150, STEPS_AT_RANDOM = 6000 };
    static struct outcome outcomes[CROWD];
    bool waits[CROWD] = {false};
    uint64_t random = 1;
    rig_open(&rig, "ttl = 3s\n");
    sim->seize("a", MORTISE_NEVER);
    for (int step = 0; step < STEPS_AT_RANDOM; step++) {
        random = random * UINT64_C(6364136223846793005) + 1;
        size_t i = (size_t)(random >> 33) % CROWD;
        if (!waits[i]) {
            want(&rig, &outcomes[i], "a", FOREVER);
        } else {
            CU_ASSERT_EQUAL(mortise_cancel(rig.handle, outcomes[i].request), MORTISE_OK);
            CU_ASSERT_EQUAL(mortise_cancel(rig.handle, outcomes[i].request), MORTISE_INVALID);
            settle();
            CU_ASSERT_EQUAL(outcomes[i].calls, 1);
            CU_ASSERT_EQUAL(outcomes[i].status, MORTISE_CANCELED);
        }
        waits[i] = !waits[i];
    }
    for (int i = 0; i < CROWD; i++)
        if (waits[i])
            CU_ASSERT_EQUAL(mortise_cancel(rig.handle, outcomes[i].request), MORTISE_OK);
    settle();
    for (int i = 0; i < CROWD; i++)
        CU_ASSERT_EQUAL(outcomes[i].status, MORTISE_CANCELED);
    CU_ASSERT_EQUAL(stats_of(&rig).waiting, 0);
    sim->give_back("a");
    ASSERT_NOTHING_LEFT();
    rig_close(&rig);
}

static int canceled;

static void count_canceled(mortise_status status, mortise_lease *lease, const mortise_error *error,
                           void *user_data)
{
    (void)lease;
    (void)error;
    (void)user_data;
    canceled += status == MORTISE_CANCELED;
}

static int64_t processor_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (int64_t)used.tv_sec * NS_PER_S + used.tv_nsec;
}

#define CROWD_MAX 30011 /* a prime */

/* What it takes to cancel so many, each of them `stride` after the one before. */
static int64_t cancel_many_ns(size_t count, size_t stride)
{
    static mortise_request requests[CROWD_MAX];
    int refused = 0;
    canceled = 0;
    for (size_t i = 0; i < count; i++)
        refused += mortise_acquire_async(rig.handle, "a", FOREVER, count_canceled, NULL,
                                         &requests[i], NULL) != MORTISE_OK;
    int64_t from_ns = processor_ns();
    for (size_t i = 0; i < count; i++)
        refused += mortise_cancel(rig.handle, requests[i * stride % count]) != MORTISE_OK;
    int64_t used_ns = processor_ns() - from_ns;
    CU_ASSERT_EQUAL(refused, 0);
    settle();
    CU_ASSERT_EQUAL(canceled, (int)count);
    return used_ns;
}

/* asyncio cancels its tasks in the order of a set. A cancel among very many costs about what one among a few does; as many of the
 * one as of the other are measured. If each looked at all that are left, it would be a hundred times as much. */
static void test_cost_of_any_order(void)
{
    enum { FEW = 300, TIMES_MOST = 10 };
    const size_t strides[] = {1, 11003}; /* coprime to both counts */
    rig_open(&rig, "ttl = 3s\n");
    sim->seize("a", MORTISE_NEVER);
    for (size_t i = 0; i < 2; i++) {
        int64_t many_ns = cancel_many_ns(CROWD_MAX, strides[i]), few_ns = 0;
        for (int round = 0; round < CROWD_MAX / FEW; round++)
            few_ns += cancel_many_ns(FEW, strides[i]);
        CU_ASSERT(many_ns < TIMES_MOST * few_ns);
        if (many_ns >= TIMES_MOST * few_ns)
            fprintf(stderr, "    stride %zu: among many %lld us, among a few %lld us\n", strides[i],
                    (long long)(many_ns / 1000), (long long)(few_ns / 1000));
    }
    sim->give_back("a");
    ASSERT_NOTHING_LEFT();
    rig_close(&rig);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"R5: time-out at each step", test_time_out},
        {"R5: cancel at each step", test_cancel},
        {"R5: close at each step", test_close},
        {"R5: refused while unsure", test_refused_while_unsure},
        {"R5: clean-up while the backend is away", test_clean_up_waits_for_the_backend},
        {"one of many leaves", test_one_of_many},
        {"cancel after the outcome", test_cancel_after_the_outcome},
        {"cancel in any order", test_cancel_in_any_order},
        {"what it costs in any order", test_cost_of_any_order},
        CU_TEST_INFO_NULL,
    };
    return rig_run("giveup", tests);
}
