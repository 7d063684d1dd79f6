/* test_chaos_faults.c - the chaos plugin over the sim driver: refused and lost requests, lost replies, renewals and
 * news, ghosts. Whatever it does, the core keeps its promises. */
#define RIG_DRIVER "chaos"
#include "rig.h"

#define STACK "ttl = 3s\n[chaos]\nbelow = sim\n"
#define OP(kind) SIM_OP(MORTISE_OP_##kind)

static struct rig rig, second;
static struct outcome got;

static void expect_claims(size_t count)
{
    CU_ASSERT_EQUAL(sim->claims(), count);
}

static void test_refuse(void)
{
    rig_open(&rig, STACK "refuse = 1000\n");
    mortise_lease *lease;
    mortise_error error;
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "a", TRY, &lease, &error), MORTISE_UNREACHABLE);
    CU_ASSERT_STRING_EQUAL(error.message, "chaos: acquire \"a\": refused");
    CU_ASSERT_STRING_EQUAL(error.driver, "chaos");
    CU_ASSERT(error.retryable);
    mortise_info info = {.size = sizeof(info)};
    CU_ASSERT_EQUAL(mortise_inspect(rig.handle, "a", &info, NULL), MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(sim->count(0), 0);
    rig_close(&rig);
}

static void test_lost_request(void)
{
    rig_open(&rig, "unreachable_timeout = 1s\n" STACK "lose_requests = 1000\nonly = acquire\n");
    want(&rig, &got, "a", FOREVER);
    advance_ms(3000);
    CU_ASSERT_EQUAL(got.status, MORTISE_INDETERMINATE);
    CU_ASSERT_EQUAL(sim->count(MORTISE_OP_ACQUIRE), 0);
    CU_ASSERT(sim->count(MORTISE_OP_RELEASE) > 0); /* until it is sure: R4 */
    rig_close(&rig);
    ASSERT_NOTHING_LEFT();
}

static void test_lost_reply(void)
{
    rig_open(&rig, "unreachable_timeout = 1s\n" STACK "lose_replies = 1000\nonly = acquire\n");
    want(&rig, &got, "a", FOREVER);
    expect_claims(1);
    CU_ASSERT_EQUAL(got.calls, 0);
    advance_ms(3000);
    CU_ASSERT_EQUAL(got.status, MORTISE_INDETERMINATE);
    expect_claims(0); /* cleaned up by the grant id */
    rig_close(&rig);
    ASSERT_NOTHING_LEFT();
}

static mortise_op last_acquire;
static void (*sim_start_below)(void *ctx, mortise_op **ops, size_t n);

static void note_acquire(void *ctx, mortise_op **ops, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ops[i]->kind == MORTISE_OP_ACQUIRE)
            last_acquire = *ops[i];
    sim_start_below(ctx, ops, n);
}

/* A repeat knows when the first one was sent, however late that was answered (R1). */
static void test_first_sent(void)
{
    rig_open(&rig, STACK "lose_replies = 1000\nreply_delay = 900ms\nonly = acquire\n");
    struct instance *below = rig.client->top->next;
    sim_start_below = below->module.start;
    below->module.start = note_acquire;
    want(&rig, &got, "a", FOREVER);
    CU_ASSERT_EQUAL(last_acquire.flags & MORTISE_OP_REPEAT, 0);
    advance_ms(950);
    CU_ASSERT_NOT_EQUAL(last_acquire.flags & MORTISE_OP_REPEAT, 0);
    CU_ASSERT_EQUAL(last_acquire.first_sent_ns, START_NS);
    mortise_cancel(rig.handle, got.request);
    advance_ms(5000);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT();
}

/* Half of the replies are lost: the claim of the first try is found by the next. */
static void test_some_lost_replies(void)
{
    rig_open(&rig, STACK "lose_replies = 500\n");
    for (int i = 0; i < 200; i++) {
        want(&rig, &got, "a", FOREVER);
        advance_ms(2000);
        CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
        CU_ASSERT_EQUAL(mortise_release_nowait(got.lease, NULL), MORTISE_OK);
        advance_ms(2000);
        expect_claims(0);
    }
    rig_close(&rig);
    ASSERT_NOTHING_LEFT();
}

/* What its caller gave up arrives when nobody expects it; no release is sure before, and none is left. */
static void test_ghosts(void)
{
    rig_open(&rig, "unreachable_timeout = 100ms\n" STACK
                   "ghosts = 1000\nghost_delay = 2s\nonly = acquire\nseed = 3\n");
    want(&rig, &got, "a", FOREVER);
    advance_ms(300);
    CU_ASSERT_EQUAL(got.status, MORTISE_INDETERMINATE);
    size_t seen = 0;
    for (int i = 0; i < 400; i++) {
        advance_ms(10);
        seen += sim->claims();
    }
    CU_ASSERT(seen > 0);
    CU_ASSERT(sim->count(MORTISE_OP_ACQUIRE) > 0);
    expect_claims(0);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT();
}

/* A ghost does not queue: it would be granted when nobody knows of it. */
static void test_ghosts_do_not_queue(void)
{
    rig_open(&rig, "unreachable_timeout = 100ms\n" STACK
                   "ghosts = 1000\nghost_delay = 10ms\nonly = acquire\n[sim]\nqueue = yes\n");
    sim->seize("a", MORTISE_NEVER);
    want(&rig, &got, "a", FOREVER);
    advance_ms(1000);
    CU_ASSERT_EQUAL(got.status, MORTISE_INDETERMINATE);
    CU_ASSERT(sim->count(MORTISE_OP_ACQUIRE) > 0);
    CU_ASSERT_EQUAL(sim->waiters("a"), 0);
    CU_ASSERT_EQUAL(sim->outstanding(), 0);
    sim->give_back("a");
    rig_close(&rig);
    ASSERT_NOTHING_LEFT();
}

/* The driver below has answered that the repeat waits: the trouble before it is over. */
static void test_waiting_is_passed_on(void)
{
    static const char *const configs[] = {STACK "[sim]\nqueue = yes\n",
                                          STACK "reply_delay = 100ms\n[sim]\nqueue = yes\n"};
    for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++) {
        rig_open(&rig, configs[i]);
        sim->seize("a", MORTISE_NEVER);
        sim->script(&(sim_rule){.kinds = OP(ACQUIRE),
                                .times = 1,
                                .fate = SIM_LOSE_REPLY,
                                .status = MORTISE_INDETERMINATE});
        want(&rig, &got, "a", MORTISE_OPTIONS(.wait_ms = 30000));
        advance_ms(30000);
        CU_ASSERT_EQUAL(sim->count(MORTISE_OP_ACQUIRE), 2);
        CU_ASSERT_EQUAL(got.status, MORTISE_TIMEDOUT);
        sim->give_back("a");
        advance_ms(10000);
        rig_close(&rig);
        ASSERT_NOTHING_LEFT();
        sim->reset();
    }
}

/* They are on their way, or below, when the client closes. */
static void test_ghosts_at_close(void)
{
    for (int held = 0; held < 2; held++) {
        rig_open_real(&rig, "close_timeout = 50ms\nunreachable_timeout = 100ms\n" STACK
                            "ghosts = 1000\nghost_delay = 1ms\nonly = acquire\n");
        int rule = held ? sim->script(&(sim_rule){.hold_request = true}) : 0;
        mortise_lease *lease;
        for (int i = 0; i < 4; i++) /* each asks again and again for that time */
            CU_ASSERT_NOT_EQUAL(mortise_acquire(rig.handle, i % 2 ? "a" : "b", TRY, &lease, NULL),
                                MORTISE_OK);
        if (held)
            CU_ASSERT(sim->wait_hits(rule, 1, TEST_PATIENCE_MS));
        mortise_close(rig.handle, NULL);
        sim->reset();
        CU_ASSERT_EQUAL(sim->instances(), 0);
    }
}

static void test_lost_renewals(void)
{
    static struct states states;
    rig_open(&rig, STACK "lose_renewals = 1000\n");
    mortise_lease *lease =
        take(&rig, "a", MORTISE_OPTIONS(.on_state = on_state, .user_data = &states));
    states.count = 0;
    advance_ms(3000);
    CU_ASSERT_EQUAL(states.count, 2);
    CU_ASSERT_EQUAL(states.seen[0], MORTISE_STATE_SUSPECT);
    CU_ASSERT_EQUAL(states.seen[1], MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(sim->count(MORTISE_OP_RENEW), 0);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT();
}

/* A waiter who is not told waits until the claim would have ended. */
static void test_lost_news(void)
{
    for (int lost = 0; lost <= 1; lost++) {
        rig_open(&rig, lost ? STACK "lose_news = 1000\n" : STACK);
        uint64_t token = sim->seize("a", now_ns() + 2000 * MS);
        CU_ASSERT(token > 0);
        want(&rig, &got, "a", FOREVER);
        advance_ms(500);
        sim->give_back("a");
        advance_ms(1);
        CU_ASSERT_EQUAL(got.calls, 1 - lost);
        advance_ms(2000);
        CU_ASSERT_EQUAL(got.status, MORTISE_OK);
        mortise_release(got.lease, NULL);
        rig_close(&rig);
    }
}

/* ---- all of it ----------------------------------------------------------------------------------- */

#define ALL_FAULTS                                                                                 \
    STACK "delay = 40ms\nreply_delay = 40ms\nrefuse = 60\nlose_requests = 60\nlose_replies = 60\n" \
          "ghosts = 60\nghost_delay = 1500ms\nlose_renewals = 100\nlose_news = 200\n"              \
          "pause_every = 7s\npause_for = 900ms\n"

struct player {
    struct rig *rig;
    struct outcome outcome;
    bool asked;
    int rounds;
};

static int count_holders(struct player *players, int count, uint64_t *last_token)
{
    int holders = 0;
    for (int i = 0; i < count; i++) {
        mortise_lease *lease = players[i].outcome.lease;
        if (!players[i].asked || lease == NULL || mortise_state(lease) == MORTISE_STATE_LOST)
            continue;
        CU_ASSERT(mortise_token(lease) >= *last_token);
        *last_token = mortise_token(lease);
        holders++;
    }
    return holders;
}

/* Asks, holds for some steps, gives back. 1: a round is over. */
static int play(struct player *player, int chance)
{
    if (!player->asked) {
        player->asked = true;
        player->rounds = chance % 90;
        want(player->rig, &player->outcome, "a", MORTISE_OPTIONS(.wait_ms = 20000));
        return 0;
    }
    if (player->outcome.calls == 0)
        return 0;
    if (player->outcome.status != MORTISE_OK) {
        player->asked = false;
        return 0;
    }
    if (player->rounds-- > 0)
        return 0;
    mortise_release_nowait(player->outcome.lease, NULL);
    player->asked = false;
    return 1;
}

/* Two clients, hours, every fault: never two holders, tokens that grow, and nothing left in the end. */
static void soak(const char *config, const char *config2)
{
    enum { PLAYERS = 6, STEPS = 6000 };
    struct player players[PLAYERS] = {0};
    uint64_t last_token = 0;
    int rounds = 0, holders_seen = 0;
    rig_open(&rig, config);
    rig_open(&second, config2);
    for (int i = 0; i < PLAYERS; i++)
        players[i].rig = i % 2 ? &second : &rig;
    for (int step = 0; step < STEPS; step++) {
        int holders = count_holders(players, PLAYERS, &last_token);
        CU_ASSERT(holders <= 1);
        holders_seen += holders;
        for (int i = 0; i < PLAYERS; i++)
            rounds += play(&players[i], step * 7 + i);
        advance_ms(37);
    }
    CU_ASSERT(rounds > 50);
    CU_ASSERT(holders_seen > STEPS / 10);
    for (int i = 0; i < PLAYERS; i++) {
        if (players[i].asked && players[i].outcome.calls == 0)
            mortise_cancel(players[i].rig->handle, players[i].outcome.request);
        settle();
        if (players[i].asked && players[i].outcome.status == MORTISE_OK)
            mortise_release_nowait(players[i].outcome.lease, NULL);
    }
    advance_ms(60000);
    expect_claims(0);
    rig_close(&rig);
    rig_close(&second);
    ASSERT_NOTHING_LEFT();
}

static void test_soak(void)
{
    static const char *const sims[] = {"", "[sim]\nlatency = 5ms\n", "[sim]\nqueue = yes\n"};
    char configs[2][1000];
    for (int seed = 1; seed <= 12; seed++) {
        for (int i = 0; i < 2; i++)
            snprintf(configs[i], sizeof(configs[i]), ALL_FAULTS "seed = %d\n%s", 2 * seed + i,
                     sims[seed % 3]);
        soak(configs[0], configs[1]);
    }
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"refused requests", test_refuse},
        {"lost requests", test_lost_request},
        {"lost replies", test_lost_reply},
        {"the first sending is known", test_first_sent},
        {"some lost replies", test_some_lost_replies},
        {"ghosts", test_ghosts},
        {"ghosts do not queue", test_ghosts_do_not_queue},
        {"that an acquire waits is passed on", test_waiting_is_passed_on},
        {"ghosts when the client closes", test_ghosts_at_close},
        {"lost renewals", test_lost_renewals},
        {"lost news", test_lost_news},
        {"all of it, for hours", test_soak},
        CU_TEST_INFO_NULL,
    };
    return rig_run("chaos faults", tests);
}
