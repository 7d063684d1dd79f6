/* test_zookeeper_proof.c - the deadline that beats prove, against a model of the ensemble: a follower that tells its
 * leader with each ping which clients it has heard from, links that keep the order but are slow, a cut at any
 * instant. Whatever happens, the leader expires the session after the deadline, not before. */
#include "pace.h"
#include "proof.h"
#include "suite.h"

#include <stdio.h>
#include <stdlib.h>

#define MS INT64_C(1000000)
#define NEVER INT64_MAX

/* ---- the arithmetic ------------------------------------------------------------------------------ */

static int64_t proven(int64_t instant_ms, int64_t timeout_ms)
{
    return (instant_ms + timeout_ms) * MS - (timeout_ms * MS / 100 + 2 * MS);
}

static void test_making_counts_at_once(void)
{
    struct proof proof;
    proof_begin(&proof, 1000 * MS);
    CU_ASSERT_EQUAL(proof.deadline_ns, 0);
    proof_unanswered(&proof, 4000 * MS); /* no connection until after this was sent */
    proof_connected(&proof, 6000, 2000);
    CU_ASSERT_EQUAL(proof.deadline_ns, proven(4000, 6000));
}

static void test_three_beats(void)
{
    struct proof proof;
    proof_begin(&proof, 1000 * MS);
    proof_connected(&proof, 6000, 2000);
    int64_t before = proof.deadline_ns;
    proof_answered(&proof, 2000 * MS, 2010 * MS); /* P */
    CU_ASSERT_EQUAL(proof.deadline_ns, before);
    proof_answered(&proof, 3005 * MS, 3010 * MS); /* too soon for a Q of P */
    proof_answered(&proof, 3010 * MS, 3020 * MS); /* Q, and an R of nothing */
    CU_ASSERT_EQUAL(proof.deadline_ns, before);
    proof_answered(&proof, 3020 * MS, 3030 * MS); /* R */
    CU_ASSERT_EQUAL(proof.deadline_ns, proven(2000, 6000));
    proof_answered(&proof, 5000 * MS, 5001 * MS);
    CU_ASSERT_EQUAL(proof.deadline_ns, proven(2000, 6000)); /* its Q was sent half a tick before */
    proof_answered(&proof, 5001 * MS, 5002 * MS);
    CU_ASSERT_EQUAL(proof.deadline_ns, proven(3020, 6000));
}

static void test_reconnection_needs_a_beat(void)
{
    struct proof proof;
    proof_begin(&proof, 1000 * MS);
    proof_connected(&proof, 6000, 2000);
    int64_t before = proof.deadline_ns;
    proof_answered(&proof, 2000 * MS, 2010 * MS);
    proof_unanswered(&proof, 3000 * MS);
    proof_connected(&proof, 6000, 2000);
    CU_ASSERT_EQUAL(proof.deadline_ns, before); /* checked by a leader who may be one no more */
    proof_answered(&proof, 4000 * MS, 4010 * MS);
    CU_ASSERT_EQUAL(proof.deadline_ns, proven(3000, 6000));
    proof_answered(&proof, 5200 * MS, 5210 * MS); /* beats of another connection prove nothing */
    proof_answered(&proof, 5210 * MS, 5220 * MS);
    CU_ASSERT_EQUAL(proof.deadline_ns, proven(4000, 6000));
}

/* The servers forget what a longer timeout promised. */
static void test_reconnection_grants_less(void)
{
    struct proof proof;
    proof_begin(&proof, 1000 * MS);
    proof_connected(&proof, 30000, 2000);
    int64_t before = proof.deadline_ns;
    proof_unanswered(&proof, 3000 * MS);
    proof_connected(&proof, 10000, 2000);
    CU_ASSERT_EQUAL(proof.deadline_ns, proven(3000, 10000));
    CU_ASSERT_EQUAL(proof.told_ns, before);
    proof_answered(&proof, 4000 * MS, 4010 * MS);
    CU_ASSERT_EQUAL(proof.deadline_ns, proven(3000, 10000));
    proof_answered(&proof, 5100 * MS, 5110 * MS);
    proof_answered(&proof, 5120 * MS, 5130 * MS);
    CU_ASSERT_EQUAL(proof.deadline_ns, proven(4000, 10000));
    proof_connected(&proof, 5000,
                    2000); /* a beat was answered meanwhile, so less is known than before */
    CU_ASSERT_EQUAL(proof.deadline_ns, proven(5120, 5000));
    CU_ASSERT_EQUAL(proof.told_ns, before); /* the longest of all */
}

/* What was proven ends sooner than that: it stays. */
static void test_less_is_enough(void)
{
    struct proof proof;
    proof_begin(&proof, 1000 * MS);
    proof_connected(&proof, 10000, 2000);
    int64_t before = proof.deadline_ns;
    proof_unanswered(&proof, 9000 * MS);
    proof_connected(&proof, 6000, 2000);
    CU_ASSERT_EQUAL(proof.deadline_ns, before);
    CU_ASSERT_EQUAL(proof.told_ns, 0);
}

/* The next leader would start the session with the timeout of its making. */
static void test_reconnection_grants_more(void)
{
    struct proof proof;
    proof_begin(&proof, 1000 * MS);
    proof_connected(&proof, 10000, 0);
    proof_unanswered(&proof, 3000 * MS);
    proof_connected(&proof, 20000, 0);
    proof_answered(&proof, 4000 * MS, 4010 * MS);
    CU_ASSERT_EQUAL(proof.deadline_ns, proven(3000, 10000));
    CU_ASSERT_EQUAL(proof.half_tick_ns, 5000 * MS); /* its tick may be longer, too */
    proof_connected(&proof, 10000, 0);
    CU_ASSERT_EQUAL(proof.told_ns, 0);
}

static void test_tick_unknown(void)
{
    struct proof proof;
    proof_begin(&proof, 1000 * MS);
    proof_connected(&proof, 6000, 0); /* half a tick is at most a quarter of the timeout */
    int64_t before = proof.deadline_ns;
    proof_answered(&proof, 2000 * MS, 2000 * MS);
    proof_answered(&proof, 3499 * MS, 3499 * MS);
    proof_answered(&proof, 3500 * MS, 3500 * MS);
    CU_ASSERT_EQUAL(proof.deadline_ns, before);
    proof_answered(&proof, 3501 * MS, 3501 * MS);
    CU_ASSERT_EQUAL(proof.deadline_ns, proven(2000, 6000));
}

/* ---- the pace ---------------------------------------------------------------------------------------- */

static uint64_t state;

static int64_t random_below(int64_t limit)
{
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (int64_t)((state >> 33) % (uint64_t)limit);
}

/* More than 0; random_below() has 31 bits. */
static int64_t random_ns(int64_t limit_ns)
{
    return 1 + random_below(1000000) * (limit_ns / 1000000);
}

/* A client that beats at its pace, and what came of it. All servers work, and answers take a while. */
struct life {
    struct pace pace;
    struct proof proof;
    int64_t now_ns,
        answer_ns;    /* answer_ns: when the beat that is out is answered; NEVER: none is */
    int64_t delay_ns; /* of an answer, at most */
    int64_t least_ns; /* the least that a lease was good for */
    int beats;
    bool holds;
};

static void life_beat(struct life *life)
{
    if (life->answer_ns != NEVER || pace_due(&life->pace) > life->now_ns)
        return;
    pace_sent(&life->pace, true, life->proof.timeout_ns, life->proof.half_tick_ns, life->now_ns);
    life->answer_ns = life->now_ns + random_ns(life->delay_ns);
    life->beats++;
}

static void life_begin(struct life *life, int64_t timeout_ms, int64_t tick_ms, int64_t delay_ns)
{
    *life = (struct life){.now_ns = 1000 * MS, .answer_ns = NEVER, .delay_ns = delay_ns};
    proof_begin(&life->proof, life->now_ns);
    pace_begin(&life->pace, life->now_ns);
    proof_connected(&life->proof, timeout_ms, tick_ms);
    pace_connected(&life->pace, false, life->proof.timeout_ns, life->now_ns);
    life_beat(life);
}

/* Until then; looks_ns > 0: a claim looks at the end of a random time up to that, again and again. */
static void life_goes_on(struct life *life, int64_t until_ns, int64_t looks_ns)
{
    int64_t look_ns = looks_ns > 0 ? life->now_ns + random_ns(looks_ns) : NEVER;
    life->least_ns = NEVER;
    life->beats = 0;
    while (life->now_ns < until_ns) {
        int64_t next_ns = life->answer_ns != NEVER ? life->answer_ns : pace_due(&life->pace);
        life->now_ns = next_ns < look_ns ? next_ns : look_ns;
        if (life->proof.deadline_ns - life->now_ns < life->least_ns)
            life->least_ns = life->proof.deadline_ns - life->now_ns;
        if (life->now_ns == life->answer_ns) {
            proof_answered(&life->proof, life->pace.sent_ns, life->now_ns);
            pace_answered(&life->pace, life->holds, life->proof.timeout_ns,
                          life->proof.half_tick_ns, life->now_ns);
            life->answer_ns = NEVER;
        }
        if (life->now_ns == look_ns) {
            pace_look(&life->pace, life->proof.timeout_ns, life->now_ns);
            look_ns += random_ns(looks_ns);
        }
        life_beat(life);
    }
}

#define LIFE_MS 30000

/* Whether claims look often, now and then, or never; whether the tick is known or not; with answers that are late. */
static void test_pace_keeps_a_fifth(void)
{
    static const int64_t delays_ms[] = {1, 40, 400}, looks_ms[] = {0, 50, 2000, 8000, 40000};
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct life life;
        int64_t delay_ns = delays_ms[seed % 3] * MS, looks_ns = looks_ms[seed % 5] * MS;
        state = seed * 2 + 1;
        life_begin(&life, LIFE_MS, seed % 2 == 0 ? 0 : 2000, delay_ns);
        life_goes_on(&life, life.now_ns + 20 * LIFE_MS * MS, looks_ns);
        CU_ASSERT(life.least_ns > LIFE_MS * MS / 5 - 3 * delay_ns);
    }
}

/* From a timeout after the first grant on; with late answers, too. */
static void test_holder_keeps_half(void)
{
    static const int64_t delays_ms[] = {1, 40, 400}, looks_ms[] = {0, 50, 2000, 8000, 40000};
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct life life;
        int64_t delay_ns = delays_ms[seed % 3] * MS, looks_ns = looks_ms[seed % 5] * MS;
        int64_t least_ns = LIFE_MS * MS * (seed % 2 == 0 ? 48 : 68) / 100;
        state = seed * 2 + 1;
        life_begin(&life, LIFE_MS, seed % 2 == 0 ? 0 : 2000, delay_ns);
        life.holds = true;
        life_goes_on(&life, life.now_ns + LIFE_MS * MS, looks_ns);
        life_goes_on(&life, life.now_ns + 20 * LIFE_MS * MS, looks_ns);
        CU_ASSERT(life.least_ns > least_ns - 3 * delay_ns);
        CU_ASSERT(life.beats <= 20 * 10 + 1);
    }
}

/* The step waits for the third extra beat of a holder, but not if it is due before the second one is answered. */
static void test_step_joins(void)
{
    const int64_t timeout_ns = LIFE_MS * MS, tenth_ns = timeout_ns / 10;
    for (int is_late = 0; is_late < 2; is_late++) {
        struct pace pace;
        int64_t at_ns = MS;
        pace_begin(&pace, at_ns);
        for (int beat = 0; beat < 3; beat++, at_ns += tenth_ns) {
            int64_t delay_ns = is_late && beat == 2 ? tenth_ns * 8 / 10 : MS;
            pace_sent(&pace, true, timeout_ns, timeout_ns / 4, at_ns);
            pace_answered(&pace, true, timeout_ns, timeout_ns / 4, at_ns + delay_ns);
        }
        CU_ASSERT_EQUAL(pace_due(&pace), is_late ? MS + timeout_ns * 103 / 400 : at_ns);
    }
}

/* The extra beats end with the last lease. Until there are two steps more, a little less than a fifth is proven. */
static void test_holds_now_and_then(void)
{
    static const int64_t delays_ms[] = {1, 40, 400}, looks_ms[] = {0, 50, 2000, 8000, 40000};
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct life life;
        int64_t delay_ns = delays_ms[seed % 3] * MS, looks_ns = looks_ms[seed % 5] * MS;
        state = seed * 2 + 1;
        life_begin(&life, LIFE_MS, seed % 2 == 0 ? 0 : 2000, delay_ns);
        for (int i = 0; i < 200; i++) {
            life.holds = !life.holds;
            life_goes_on(&life, life.now_ns + random_ns(LIFE_MS * MS), looks_ns);
            CU_ASSERT(life.least_ns > LIFE_MS * MS * 16 / 100 - 3 * delay_ns);
        }
    }
}

/* Of 1.3 times the pings of a client that sends three in a timeout. */
static void test_quiet_pace(void)
{
    struct life life;
    life_begin(&life, LIFE_MS, 0, MS);
    life_goes_on(&life, life.now_ns + 2 * LIFE_MS * MS, 100 * MS);
    CU_ASSERT(life.beats >= 2 * 9 && life.beats <= 2 * 14);
    life_goes_on(&life, life.now_ns + 100 * LIFE_MS * MS, 0);
    CU_ASSERT(life.beats <= 390);
    CU_ASSERT(life.beats >= 380);
}

/* A look after a quiet time: with its answer the session is proven for almost half of the timeout. */
static void test_look_after_quiet(void)
{
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct life life;
        state = seed * 2 + 1;
        life_begin(&life, LIFE_MS, seed % 2 == 0 ? 0 : 2000, MS);
        life_goes_on(&life, life.now_ns + LIFE_MS * MS + random_ns(9 * LIFE_MS * MS), 0);
        life.now_ns += random_ns(LIFE_MS * MS / 4);
        if (life.answer_ns != NEVER || life.now_ns >= pace_due(&life.pace) ||
            life.now_ns < life.pace.sent_ns + LIFE_MS * MS / 10)
            continue;
        pace_look(&life.pace, life.proof.timeout_ns, life.now_ns);
        CU_ASSERT_EQUAL(pace_due(&life.pace), life.now_ns);
        pace_sent(&life.pace, true, life.proof.timeout_ns, life.proof.half_tick_ns, life.now_ns);
        proof_answered(&life.proof, life.now_ns, life.now_ns + MS);
        CU_ASSERT(life.proof.deadline_ns - life.now_ns > LIFE_MS * MS * 47 / 100 - 10 * MS);
    }
}

/* A session that is shorter than two ticks, whose half a tick is 0.45 of it. */
static void test_pace_of_a_short_session(void)
{
    struct life life;
    life_begin(&life, 2000, 1800, MS);
    life_goes_on(&life, life.now_ns + 100 * 2000 * MS, 0);
    CU_ASSERT(life.least_ns > 2000 * MS / 5);
}

static void test_pace_without_connection(void)
{
    struct pace pace;
    const int64_t timeout_ns = LIFE_MS * MS, tenth_ns = timeout_ns / 10;
    pace_begin(&pace, MS);
    pace_sent(&pace, true, timeout_ns, timeout_ns / 4, MS);
    pace_answered(&pace, false, timeout_ns, timeout_ns / 4, 2 * MS);
    pace_suspended(&pace, 9 * MS);
    CU_ASSERT_EQUAL(pace_due(&pace), 9 * MS);
    pace_sent(&pace, false, timeout_ns, timeout_ns / 4, 9 * MS);
    CU_ASSERT_EQUAL(pace_due(&pace), 9 * MS + tenth_ns);
    pace_connected(&pace, true, timeout_ns, 10 * MS);
    CU_ASSERT_EQUAL(pace_due(&pace), 9 * MS + tenth_ns);
    pace_answered(&pace, false, timeout_ns, timeout_ns / 4,
                  11 * MS); /* a Q before that is of no use */
    CU_ASSERT_EQUAL(pace_due(&pace), 11 * MS + timeout_ns / 4);
    pace_connected(&pace, false, timeout_ns, 20 * MS);
    CU_ASSERT_EQUAL(pace_due(&pace), 20 * MS);
    pace_again(&pace, 20 * MS);
    pace_rest(&pace);
    CU_ASSERT_EQUAL(pace_due(&pace), PACE_NEVER);
    pace_sent(&pace, true, timeout_ns, timeout_ns / 4, 30 * MS);
    pace_need(&pace, timeout_ns);
    CU_ASSERT_EQUAL(pace_due(&pace), 30 * MS + tenth_ns);
}

/* ---- the model ------------------------------------------------------------------------------------- */

enum message { BEAT, PING, TOUCH };
enum link { TO_FOLLOWER, TO_LEADER, FROM_LEADER, TO_CLIENT, LINKS };

struct model {
    int64_t now_ms, cut_ms, half_tick_ms, timeout_ms;
    struct {
        struct {
            enum message message;
            int64_t at_ms;
        } queue[4096];
        unsigned first, count;
    } links[LINKS];
    bool touched;       /* heard of since the last ping */
    int64_t expires_ms; /* as the leader has it */
    int64_t next_ping_ms;
    int64_t beat_sent_ms, next_beat_ms; /* beat_sent < 0: none is on its way */
};

/* Links between the two servers carry nothing after the cut; what was on its way is lost. */
static void put(struct model *model, enum link link, enum message message, int64_t delay_ms)
{
    unsigned last = model->links[link].count - 1;
    int64_t at_ms = model->now_ms + (random_below(4) == 0 ? random_below(delay_ms) : 0);
    if (model->links[link].count > model->links[link].first &&
        at_ms < model->links[link].queue[last % 4096].at_ms)
        at_ms = model->links[link].queue[last % 4096].at_ms;
    if ((link == TO_LEADER || link == FROM_LEADER) && at_ms >= model->cut_ms)
        return;
    unsigned slot = model->links[link].count++ % 4096;
    model->links[link].queue[slot].message = message;
    model->links[link].queue[slot].at_ms = at_ms;
}

static bool take(struct model *model, enum link link, enum message *message)
{
    unsigned slot = model->links[link].first % 4096;
    if (model->links[link].first == model->links[link].count ||
        model->links[link].queue[slot].at_ms > model->now_ms)
        return false;
    *message = model->links[link].queue[slot].message;
    model->links[link].first++;
    return true;
}

static void follower(struct model *model, int64_t delay_ms)
{
    enum message message;
    while (take(model, TO_FOLLOWER, &message)) {
        model->touched = true;
        put(model, TO_LEADER, BEAT, delay_ms);
    }
    while (take(model, FROM_LEADER, &message)) {
        if (message == BEAT)
            put(model, TO_CLIENT, BEAT, delay_ms);
        else if (model->touched) {
            put(model, TO_LEADER, TOUCH, delay_ms);
            model->touched = false;
        }
    }
}

static void leader(struct model *model, int64_t delay_ms)
{
    enum message message;
    if (model->now_ms >= model->next_ping_ms) {
        put(model, FROM_LEADER, PING, delay_ms);
        model->next_ping_ms += model->half_tick_ms;
    }
    while (take(model, TO_LEADER, &message)) {
        if (message == BEAT)
            put(model, FROM_LEADER, BEAT, delay_ms);
        else
            model->expires_ms = model->now_ms + model->timeout_ms;
    }
}

static void client(struct model *model, struct proof *proof, int64_t delay_ms)
{
    enum message message;
    while (take(model, TO_CLIENT, &message)) {
        proof_answered(proof, model->beat_sent_ms * MS, model->now_ms * MS);
        model->beat_sent_ms = -1;
    }
    if (model->beat_sent_ms < 0 && model->now_ms >= model->next_beat_ms) {
        model->beat_sent_ms = model->now_ms;
        model->next_beat_ms = model->now_ms + random_below(model->timeout_ms / 6);
        put(model, TO_FOLLOWER, BEAT, delay_ms);
    }
}

/* One life up to the cut and what is left in the links; how long the deadline moved. */
static int64_t live(uint64_t seed, int64_t tick_ms, bool tick_known, int *violations)
{
    static struct model model;
    struct proof proof;
    state = seed * 2 + 1;
    model = (struct model){.half_tick_ms = tick_ms / 2, .beat_sent_ms = -1};
    model.timeout_ms = 2 * tick_ms + random_below(2 * tick_ms);
    model.cut_ms = random_below(6 * model.timeout_ms);
    model.next_ping_ms = random_below(model.half_tick_ms);
    model.expires_ms = model.timeout_ms;
    int64_t delay_ms = 1 + random_below(tick_ms);
    proof_begin(&proof, 0);
    proof_connected(&proof, model.timeout_ms, tick_known ? tick_ms : 0);
    for (; model.now_ms < model.cut_ms + 4 * tick_ms; model.now_ms++) {
        leader(&model, delay_ms);
        follower(&model, delay_ms);
        client(&model, &proof, delay_ms);
        /* to the millisecond: the margin is for clocks that drift, and those of the model do not */
        int64_t proven_ns = proof.deadline_ns + proof.timeout_ns / 100 + 2 * MS;
        *violations += model.now_ms >= model.cut_ms && proven_ns > model.expires_ms * MS;
    }
    return proof.deadline_ns / MS - model.timeout_ms;
}

static void test_cut_off_at_any_instant(void)
{
    int violations = 0, moved = 0;
    for (uint64_t seed = 0; seed < 6000; seed++)
        moved += live(seed, 20 + (int64_t)(seed % 60), seed % 2 == 0, &violations) > 0;
    CU_ASSERT_EQUAL(violations, 0);
    CU_ASSERT(moved > 3000); /* nor is it safe by proving nothing */
}

static CU_TestInfo tests[] = {
    {"the making of a session counts at once", test_making_counts_at_once},
    {"three beats", test_three_beats},
    {"a reconnection needs a beat", test_reconnection_needs_a_beat},
    {"a reconnection grants less", test_reconnection_grants_less},
    {"a reconnection grants less, and that is enough", test_less_is_enough},
    {"a reconnection grants more", test_reconnection_grants_more},
    {"the pace keeps a fifth", test_pace_keeps_a_fifth},
    {"a holder keeps half", test_holder_keeps_half},
    {"a step joins an extra beat", test_step_joins},
    {"something is held now and then", test_holds_now_and_then},
    {"the pace of a client that only waits", test_quiet_pace},
    {"a look after a quiet time", test_look_after_quiet},
    {"the pace of a session shorter than two ticks", test_pace_of_a_short_session},
    {"the pace without a connection", test_pace_without_connection},
    {"the tick is unknown", test_tick_unknown},
    {"cut off at any instant", test_cut_off_at_any_instant},
    CU_TEST_INFO_NULL,
};

int main(void)
{
    return suite_run("zookeeper proof", tests);
}
