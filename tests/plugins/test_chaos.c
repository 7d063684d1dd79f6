/* test_chaos.c - the chaos plugin over the sim driver, on a clock that the test moves: delays, order, cancellation,
 * pauses, the seed, and what is refused. */
#define RIG_DRIVER "chaos"
#include "rig.h"

#define STACK "ttl = 3s\n[chaos]\nbelow = sim\n"
#define OP(kind) SIM_OP(MORTISE_OP_##kind)

static struct rig rig;
static struct outcome got, other;

static void expect_claims(size_t count)
{
    CU_ASSERT_EQUAL(sim->claims(), count);
}

static int below_watches, below_unwatches;
static void (*sim_watch)(void *ctx, const char *name, size_t name_len);
static void (*sim_unwatch)(void *ctx, const char *name, size_t name_len);

static void count_watch(void *ctx, const char *name, size_t name_len)
{
    below_watches++;
    sim_watch(ctx, name, name_len);
}

static void count_unwatch(void *ctx, const char *name, size_t name_len)
{
    below_unwatches++;
    sim_unwatch(ctx, name, name_len);
}

static struct instance *below_of(struct rig *spied)
{
    struct instance *below = spied->client->top->next;
    CU_ASSERT_STRING_EQUAL_FATAL(below->module.name, "sim");
    return below;
}

/* Counts what the sim, which is below, is asked to watch. */
static void spy_watches(struct rig *spied)
{
    struct instance *below = below_of(spied);
    sim_watch = below->module.watch;
    sim_unwatch = below->module.unwatch;
    below->module.watch = count_watch;
    below->module.unwatch = count_unwatch;
}

/* ---- nothing but late -------------------------------------------------------------------------- */

static void test_nothing(void)
{
    rig_open(&rig, STACK);
    CU_ASSERT_EQUAL(mortise_capabilities(rig.handle) & (MORTISE_CAP_FENCING | MORTISE_CAP_NOTIFY),
                    MORTISE_CAP_FENCING | MORTISE_CAP_NOTIFY);
    CU_ASSERT_EQUAL(mortise_capabilities(rig.handle) & MORTISE_CAP_DURABLE,
                    0); /* nor has the sim */
    mortise_lease *lease = take(&rig, "a", NULL);
    uint64_t before = sim->count(0);
    advance_ms(10000);
    CU_ASSERT_EQUAL(sim->count(MORTISE_OP_RENEW), 10);
    CU_ASSERT_EQUAL(sim->count(0), before + 10);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT();
}

static void test_delay(void)
{
    rig_open(&rig, STACK "delay = 100ms\nseed = 7\n");
    want(&rig, &got, "a", FOREVER);
    expect_claims(0);
    CU_ASSERT_EQUAL(got.calls, 0);
    advance_ms(100);
    expect_claims(1);
    CU_ASSERT_EQUAL(got.status, MORTISE_OK);
    CU_ASSERT(got.at_ns > START_NS && got.at_ns <= START_NS + 100 * MS);
    CU_ASSERT(mortise_remaining_ms(got.lease) <= 2968); /* counted from before it left: R1 */
    CU_ASSERT_EQUAL(mortise_release_nowait(got.lease, NULL), MORTISE_OK);
    expect_claims(1);
    advance_ms(100);
    expect_claims(0);
    rig_close(&rig);
}

/* However late each is: what was asked first arrives first. */
static void test_order(void)
{
    enum { COUNT = 200 };
    static struct outcome outcomes[COUNT];
    char name[16];
    rig_open(&rig, STACK "delay = 1s\n");
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        want(&rig, &outcomes[i], name, FOREVER);
        advance_ms(1);
    }
    advance_ms(1000);
    bool late = false;
    for (int i = 0; i < COUNT; i++) {
        CU_ASSERT_EQUAL(outcomes[i].status, MORTISE_OK);
        CU_ASSERT(outcomes[i].at_ns <= START_NS + (i + 1000) * MS);
        CU_ASSERT(i == 0 || outcomes[i].order > outcomes[i - 1].order);
        late |= outcomes[i].at_ns > START_NS + (i + 500) * MS;
        mortise_release_nowait(outcomes[i].lease, NULL);
    }
    CU_ASSERT(late);
    advance_ms(1000);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT();
}

static void test_reply_delay(void)
{
    rig_open(&rig, STACK "reply_delay = 100ms\n");
    want(&rig, &got, "a", FOREVER);
    expect_claims(1);
    CU_ASSERT_EQUAL(got.calls, 0);
    advance_ms(100);
    CU_ASSERT_EQUAL(got.status, MORTISE_OK);
    CU_ASSERT(mortise_token(got.lease) > 0);
    CU_ASSERT_EQUAL(mortise_remaining_ms(got.lease), 2868); /* not from the reply: R1 */
    advance_ms(10000);                                      /* renewals come through */
    CU_ASSERT_EQUAL(mortise_state(got.lease), MORTISE_STATE_HELD);
    want(&rig, &other, "a", MORTISE_OPTIONS(.wait_ms = 500));
    advance_ms(1000);
    CU_ASSERT_EQUAL(other.status, MORTISE_TIMEDOUT);
    mortise_release_nowait(got.lease, NULL);
    advance_ms(1000);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT();
}

/* ---- shared leases ----------------------------------------------------------------------------- */

static bool count_holder(const mortise_info *info, void *count)
{
    CU_ASSERT_EQUAL(info->mode, MORTISE_SHARED);
    CU_ASSERT_EQUAL(info->permits, 2);
    ++*(int *)count;
    return true;
}

/* Mode and permits reach the driver in a request that is held here and in one that is copied, and the results of an
 * inspect with several holders come back, however late. Real time: the caller waits. */
static void shared_through(const char *settings)
{
    const mortise_options *permits =
        MORTISE_OPTIONS(.wait_ms = 0, .mode = MORTISE_SHARED, .permits = 2);
    mortise_lease *leases[2], *third;
    int holders = 0;
    char text[200];
    snprintf(text, sizeof(text), STACK "%s", settings);
    rig_open_real(&rig, text);
    CU_ASSERT_EQUAL(mortise_capabilities(rig.handle) & (MORTISE_CAP_SHARED | MORTISE_CAP_PERMITS),
                    MORTISE_CAP_SHARED | MORTISE_CAP_PERMITS);
    for (int i = 0; i < 2; i++)
        CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a", permits, &leases[i], NULL),
                              MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "a", permits, &third, NULL), MORTISE_BUSY);
    CU_ASSERT_EQUAL(mortise_holders(rig.handle, "a", count_holder, &holders, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(holders, 2);
    for (int i = 0; i < 2; i++)
        CU_ASSERT_EQUAL(mortise_release(leases[i], NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
    ASSERT_NOTHING_LEFT();
}

static void test_shared(void)
{
    shared_through("");
    shared_through("delay = 20ms\n");
    shared_through("reply_delay = 20ms\n");
}

/* A cancellation is answered at once, wherever the request is. */
static void test_cancel(void)
{
    static const char *const configs[] = {STACK "delay = 1h\n", STACK "reply_delay = 1h\n",
                                          STACK "pause_every = 2s\npause_for = 1999ms\n"};
    for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++) {
        rig_open(&rig, configs[i]);
        advance_ms(2);
        want(&rig, &got, "a", FOREVER);
        CU_ASSERT_EQUAL(got.calls, 0);
        int64_t before = now_ns();
        CU_ASSERT_EQUAL(mortise_cancel(rig.handle, got.request), MORTISE_OK);
        settle();
        CU_ASSERT_EQUAL(got.status, MORTISE_CANCELED);
        CU_ASSERT_EQUAL(now_ns(), before);
        CU_ASSERT_EQUAL(sim->count(MORTISE_OP_ACQUIRE), i == 1 ? 1 : 0); /* else not sent */
        advance_ms(3600000);
        expect_claims(0);
        rig_close(&rig);
        ASSERT_NOTHING_LEFT();
        sim->reset();
    }
}

/* A refusal that is held back when its caller leaves: the caller is no waiter any more. */
static void test_cancel_a_refusal(void)
{
    rig_open(&rig, STACK "reply_delay = 10s\nonly = acquire\n");
    sim->seize("a", MORTISE_NEVER);
    want(&rig, &got, "a", FOREVER);
    CU_ASSERT_EQUAL(sim->count(MORTISE_OP_ACQUIRE), 1);
    CU_ASSERT_EQUAL(got.calls, 0);
    below_watches = below_unwatches = 0;
    spy_watches(&rig);
    mortise_cancel(rig.handle, got.request);
    settle();
    CU_ASSERT_EQUAL(got.status, MORTISE_CANCELED);
    CU_ASSERT_EQUAL(below_watches, 1);
    CU_ASSERT_EQUAL(below_unwatches, 1);
    want(&rig, &got, "a", FOREVER); /* this one hears of it, and watches */
    advance_ms(20000);
    CU_ASSERT_EQUAL(below_watches, 2);
    CU_ASSERT_EQUAL(below_unwatches, 1);
    sim->give_back("a");
    advance_ms(20000);
    CU_ASSERT_EQUAL(got.status, MORTISE_OK);
    mortise_release_nowait(got.lease, NULL);
    advance_ms(20000);
    CU_ASSERT_EQUAL(below_watches, below_unwatches);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT();
}

/* Canceled below: the answer to that is not held back either, and what may be there is given back. */
static void test_cancel_below(void)
{
    rig_open(&rig, STACK "reply_delay = 1h\nonly = acquire\n");
    SCRIPT(.kinds = OP(ACQUIRE), .fate = SIM_SILENT_EXECUTED);
    want(&rig, &got, "a", FOREVER);
    expect_claims(1);
    mortise_cancel(rig.handle, got.request);
    settle();
    CU_ASSERT_EQUAL(got.status, MORTISE_CANCELED);
    expect_claims(0);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT();
    sim->reset();
}

static int below_cancels;
static void (*sim_cancel)(void *ctx, mortise_op *op);

static void count_cancel(void *ctx, mortise_op *op)
{
    below_cancels++;
    sim_cancel(ctx, op);
}

/* Canceled in the round in which the module below answers, which comes first there: that must not hear of the request any
 * more. A moment earlier it must. */
static void test_cancel_an_answered(void)
{
    for (int early = 0; early <= 1; early++) {
        rig_open(&rig, STACK "reply_delay = 1h\nonly = acquire\n");
        SCRIPT(.kinds = OP(ACQUIRE), .reply_ns = 100 * MS);
        struct instance *below = below_of(&rig);
        sim_cancel = below->module.cancel;
        below->module.cancel = count_cancel;
        below_cancels = 0;
        want(&rig, &got, "a", FOREVER);
        set_now(now_ns() + (100 - early) * MS);
        rig.client->pump.turn_wanted = true; /* the round of the cancel begins with one */
        mortise_cancel(rig.handle, got.request);
        settle();
        CU_ASSERT_EQUAL(below_cancels, early);
        CU_ASSERT_EQUAL(got.status, MORTISE_CANCELED);
        advance_ms(1000);
        rig_close(&rig);
        ASSERT_NOTHING_LEFT();
        sim->reset();
    }
}

/* ---- pauses ------------------------------------------------------------------------------------- */

static void test_pauses(void)
{
    enum { STEPS = 4000 };
    int paused = 0, begins = 0;
    bool before = false;
    rig_open(&rig, STACK "pause_every = 1s\npause_for = 300ms\nonly = acquire\n");
    for (int i = 0; i < STEPS; i += 4) {
        int64_t asked = now_ns();
        want(&rig, &got, "a", FOREVER);
        bool now_paused = got.calls == 0;
        begins += now_paused && !before;
        paused += now_paused;
        before = now_paused;
        advance_ms(3);
        if (got.calls == 0) { /* it comes through as soon as the pause is over */
            mortise_cancel(rig.handle, got.request);
            settle();
        } else if (got.status == MORTISE_OK) {
            CU_ASSERT(now_paused || got.at_ns == asked);
            mortise_release_nowait(got.lease, NULL);
        }
        advance_ms(1);
    }
    CU_ASSERT(begins >= 3 && begins <= 4); /* one in each of four seconds */
    CU_ASSERT(paused > 270 && paused < 310);
    advance_ms(1000);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT();
}

/* What was answered and told in a pause is known after it. */
static void test_pause_holds(void)
{
    rig_open(&rig, STACK "pause_every = 2s\npause_for = 1900ms\nseed = 5\n");
    SCRIPT(.kinds = OP(ACQUIRE), .reply_ns = 150 * MS);
    want(&rig, &got, "a", FOREVER);
    advance_ms(4000);
    CU_ASSERT_EQUAL(got.status, MORTISE_OK);
    mortise_release_nowait(got.lease, NULL);
    advance_ms(4000);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT();
}

/* A release in a pause: its news come when the pause is over. */
static void test_news_in_a_pause(void)
{
    rig_open(&rig, STACK "pause_every = 20s\npause_for = 2s\n");
    sim->seize("a", MORTISE_NEVER);
    want(&rig, &got, "a", FOREVER);
    int64_t begins = 0;
    while (begins == 0) { /* until a request does not come through */
        want(&rig, &other, "b", FOREVER);
        begins = other.calls == 0 ? now_ns() : 0;
        mortise_cancel(rig.handle, other.request);
        settle();
        if (other.lease != NULL)
            mortise_release_nowait(other.lease, NULL);
        advance_ms(10);
    }
    sim->give_back("a");
    settle();
    advance_ms(500);
    CU_ASSERT_EQUAL(got.calls, 0);
    advance_ms(1500);
    CU_ASSERT_EQUAL(got.status, MORTISE_OK);
    CU_ASSERT(got.at_ns >= begins + 1900 * MS && got.at_ns <= begins + 2000 * MS);
    mortise_release_nowait(got.lease, NULL);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT();
}

/* ---- the seed ----------------------------------------------------------------------------------- */

#define FATES 400
/* Which of so many tries on a few names came to what. */
static void run_plan(const char *config, char *fates)
{
    rig_open(&rig, config);
    for (int i = 0; i < FATES; i++) {
        char name[8];
        mortise_lease *lease;
        snprintf(name, sizeof(name), "n%d", i % 5);
        mortise_info info = {.size = sizeof(info)};
        mortise_status status = mortise_inspect(rig.handle, name, &info, NULL);
        fates[i] = status == MORTISE_OK ? '.' : 'x';
        if (i % 3 == 0 && mortise_acquire(rig.handle, name, TRY, &lease, NULL) == MORTISE_OK) {
            fates[i] = fates[i] == 'x' ? 'X' : '_';
            mortise_release_nowait(lease, NULL);
        }
        settle();
    }
    fates[FATES] = '\0';
    rig_close(&rig);
    sim->reset();
}

static void test_seed(void)
{
    char first[FATES + 1], again[FATES + 1], else_[FATES + 1];
    int faults = 0;
    run_plan(STACK "refuse = 100\nonly = inspect, acquire\nseed = 11\n", first);
    run_plan(STACK "refuse = 100\nonly = inspect, acquire\nseed = 11\n", again);
    run_plan(STACK "refuse = 100\nonly = inspect, acquire\nseed = 12\n", else_);
    CU_ASSERT_STRING_EQUAL(first, again);
    CU_ASSERT_STRING_NOT_EQUAL(first, else_);
    for (int i = 0; i < FATES; i++)
        faults += first[i] == 'x' || first[i] == 'X';
    CU_ASSERT(faults > FATES / 20 && faults < FATES / 5);
    CU_ASSERT_PTR_NULL(strstr(first, "xxxxx"));
}

/* What happens to one name does not depend on what else is asked. */
static void test_seed_by_name(void)
{
    char fates[2][101] = {"", ""};
    for (int run = 0; run < 2; run++) {
        rig_open(&rig, STACK "refuse = 300\nonly = inspect\nseed = 4\n");
        for (int i = 0; i < 100; i++) {
            mortise_info info = {.size = sizeof(info)};
            for (int k = 0; k < (run == 0 ? 0 : i % 4); k++)
                mortise_inspect(rig.handle, "other", &info, NULL);
            bool ok = mortise_inspect(rig.handle, "mine", &info, NULL) == MORTISE_OK;
            fates[run][i] = ok ? '.' : 'x';
        }
        rig_close(&rig);
    }
    CU_ASSERT_STRING_EQUAL(fates[0], fates[1]);
}

/* Chaos over chaos over the sim. */
static void test_twice(void)
{
    rig_open(&rig, "ttl = 3s\n[chaos]\nbelow = chaos:inner\ndelay = 50ms\n"
                   "[chaos:inner]\nbelow = sim\nreply_delay = 50ms\n");
    want(&rig, &got, "a", FOREVER);
    advance_ms(100);
    CU_ASSERT_EQUAL(got.status, MORTISE_OK);
    mortise_release_nowait(got.lease, NULL);
    advance_ms(100);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT();
}

/* What the driver below doubts was answered, but the answer is on its way still: it is looked at. */
static void lose_and_doubt(void *ctx, void *name)
{
    (void)ctx;
    struct instance *below = rig.client->top->next;
    CU_ASSERT(sim->lose(name));
    below->host.doubt(&below->host, NULL, 0);
}

static void test_doubt_of_a_late_reply(void)
{
    char name[] = "a";
    rig_open(&rig, STACK "reply_delay = 50ms\n");
    want(&rig, &got, name, MORTISE_OPTIONS(.wait_ms = 0, .no_renew = true));
    settle();
    expect_claims(1);
    struct instance *below = rig.client->top->next;
    CU_ASSERT_STRING_EQUAL_FATAL(below->module.name, "sim");
    below->host.post(&below->host, lose_and_doubt, name);
    advance_ms(50); /* the reply of the grant, and a look */
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    advance_ms(50); /* that of the look */
    CU_ASSERT_EQUAL(mortise_state(got.lease), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_release(got.lease, NULL), MORTISE_LOST);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT();
}

static void refused(const char *settings, const char *wanted)
{
    mortise_error error = {.message = ""};
    CU_ASSERT_EQUAL(rig_try_open(&rig, true, settings, &error), MORTISE_CONFIG);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, wanted));
    if (strstr(error.message, wanted) == NULL)
        fprintf(stderr, "    got: %s\n", error.message);
}

static void test_refused(void)
{
    refused("", "[chaos] below is missing");
    refused(STACK "refuse = 600\nghosts = 401\n", "together more than 1000");
    refused(STACK "refuse = 1001\n", "refuse");
    refused(STACK "pause_every = 1s\npause_for = 1s\n", "pause_for must be shorter");
    refused(STACK "only = acquire, renw\n", "only: \"renw\" is none of");
    refused("[chaos]\nbelow = chaos\n", "cannot be below itself");
    refused("[chaos]\nbelow = nothing\n", "no module \"nothing\"");
    CU_ASSERT_EQUAL(sim->instances(), 0);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"nothing happens", test_nothing},
        {"requests are late", test_delay},
        {"in order", test_order},
        {"replies are late", test_reply_delay},
        {"shared leases", test_shared},
        {"canceled at once", test_cancel},
        {"canceled below", test_cancel_below},
        {"canceled when the answer is there", test_cancel_an_answered},
        {"a refusal that nobody hears", test_cancel_a_refusal},
        {"pauses", test_pauses},
        {"a pause holds", test_pause_holds},
        {"news in a pause", test_news_in_a_pause},
        {"the seed", test_seed},
        {"the seed, name by name", test_seed_by_name},
        {"over itself", test_twice},
        {"R2: a doubt while a reply is late", test_doubt_of_a_late_reply},
        {"refused configs", test_refused},
        CU_TEST_INFO_NULL,
    };
    return rig_run("chaos", tests);
}
