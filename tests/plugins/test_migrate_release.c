/* test_migrate_release.c - what a release says in phase both, if the reply of one side is lost and the other side cannot be reached,
 * or has lost the claim. The core repeats it then, on what is left. And a release while a renewal is out, in every phase. */
#include "migrate_rig.h"

#include <mortise/witness.h>

static struct rig rig;
static mortise_status release_told;

static const sim_api *server(bool from)
{
    return from ? sim : other;
}

static mortise_lease *take_n(void)
{
    other->reset();
    migrate_open(&rig, "both", "");
    return take(&rig, "n", NULL);
}

static void end(void)
{
    rig_close(&rig);
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

/* ---- one request ---------------------------------------------------------------------------------- */

/* The next release on that side is executed, and its reply is lost. It is answered by let_go(). */
static int lose_reply(bool from)
{
    return server(from)->script(&(sim_rule){.kinds = OP(RELEASE),
                                            .name = "n",
                                            .times = 1,
                                            .fate = SIM_LOSE_REPLY,
                                            .status = MORTISE_INDETERMINATE,
                                            .hold_reply = true});
}

static int refuse_with(bool from, mortise_status status)
{
    return server(from)->script(&(sim_rule){.kinds = OP(RELEASE),
                                            .name = "n",
                                            .times = 1,
                                            .fate = SIM_REFUSE,
                                            .status = status,
                                            .hold_reply = true});
}

static int refuse(bool from)
{
    return refuse_with(from, MORTISE_UNREACHABLE);
}

static void on_released(mortise_status status, const mortise_error *error, void *user_data)
{
    (void)error;
    *(mortise_status *)user_data = status;
}

static void release(mortise_lease *lease)
{
    release_told = (mortise_status)1;
    CU_ASSERT_EQUAL(mortise_release_async(lease, on_released, &release_told, NULL), MORTISE_OK);
    settle();
}

/* Nobody is told before both sides have answered. */
static void answer(bool from, int rule)
{
    CU_ASSERT_EQUAL(release_told, 1);
    CU_ASSERT_EQUAL(server(from)->held(rule), 1);
    server(from)->let_go(rule);
    settle();
}

/* The core has heard of one side only, and asks again. */
static void expect_told(mortise_status status)
{
    advance_ms(1000);
    CU_ASSERT_EQUAL(release_told, status);
}

/* ---- what is said ----------------------------------------------------------------------------------- */

/* The reply of the one side is lost, and the other side is unreachable. In whatever order that comes, what the one side
 * has executed is no loss when the release is repeated. */
static void test_away(void)
{
    for (int lost_first = 0; lost_first <= 1; lost_first++)
        for (int from = 0; from <= 1; from++) {
            mortise_lease *lease = take_n();
            int lost = lose_reply(from), away = refuse(!from);
            release(lease);
            answer(lost_first ? from : !from, lost_first ? lost : away);
            answer(lost_first ? !from : from, lost_first ? away : lost);
            expect_told(MORTISE_OK);
            end();
        }
}

/* Both replies are lost. */
static void test_both_lost(void)
{
    mortise_lease *lease = take_n();
    int rules[] = {lose_reply(false), lose_reply(true)};
    release(lease);
    answer(false, rules[0]);
    answer(true, rules[1]);
    expect_told(MORTISE_OK);
    end();
}

/* The other side has lost the claim: another holder may have overlapped, whatever becomes of the repeat. */
static void test_lost(void)
{
    for (int executed = 0; executed <= 1; executed++)
        for (int from = 0; from <= 1; from++) {
            mortise_lease *lease = take_n();
            sim_rule in_doubt = {.kinds = OP(RELEASE),
                                 .name = "n",
                                 .times = 1,
                                 .fate = executed ? SIM_LOSE_REPLY : SIM_REFUSE,
                                 .status = MORTISE_INDETERMINATE};
            CU_ASSERT(server(!from)->lose("n"));
            server(from)->script(&in_doubt);
            release(lease);
            expect_told(MORTISE_INDETERMINATE);
            end();
        }
}

/* So it is if that side cannot be reached at first. */
static void test_away_and_lost(void)
{
    for (int from = 0; from <= 1; from++) {
        mortise_lease *lease = take_n();
        int lost = lose_reply(from), away = refuse(!from);
        CU_ASSERT(server(!from)->lose("n"));
        release(lease);
        answer(from, lost);
        answer(!from, away);
        expect_told(MORTISE_INDETERMINATE);
        end();
    }
}

/* The reply of one side is lost, and another has the lock there when the release is repeated. It may have got it after our release, or
 * before. */
static void test_taken(void)
{
    for (int from = 0; from <= 1; from++) {
        mortise_lease *lease = take_n();
        int lost = lose_reply(from), away = refuse(!from);
        release(lease);
        uint64_t token = server(from)->seize("n", MORTISE_NEVER);
        answer(from, lost);
        answer(!from, away);
        expect_told(MORTISE_INDETERMINATE);
        CU_ASSERT(server(from)->holds("n", token));
        server(from)->give_back("n");
        end();
    }
}

/* No reply is lost: then it is known that the claim was. */
static void test_lost_for_sure(void)
{
    for (int from = 0; from <= 1; from++) {
        mortise_lease *lease = take_n();
        int away = refuse(from);
        CU_ASSERT(server(!from)->lose("n"));
        release(lease);
        answer(from, away);
        expect_told(MORTISE_LOST);
        end();
    }
}

/* The side `from` is away once, and the other one refuses always. They answer the first try in either order. */
static int away_once, refused, refused_again;

static void refuse_both(bool from)
{
    away_once = refuse(from);
    refused = refuse_with(!from, MORTISE_BACKEND);
    refused_again = server(!from)->script(&(sim_rule){
        .kinds = OP(RELEASE), .name = "n", .fate = SIM_REFUSE, .status = MORTISE_BACKEND});
}

/* The release is given up only when the side that was away has done it. */
static void answer_both(bool from, bool away_first)
{
    answer(away_first ? from : !from, away_first ? away_once : refused);
    answer(away_first ? !from : from, away_first ? refused : away_once);
    advance_ms(1000);
    CU_ASSERT(server(!from)->hits(refused_again) > 0);
    CU_ASSERT_EQUAL(release_told, MORTISE_BACKEND);
    CU_ASSERT_FALSE(server(from)->lose("n"));
    CU_ASSERT(server(!from)->lose("n"));
    server(!from)->end(refused_again);
    advance_ms(60000); /* what was refused ends with its ttl */
}

static void test_away_and_refused(void)
{
    for (int away_first = 0; away_first <= 1; away_first++)
        for (int from = 0; from <= 1; from++) {
            mortise_lease *lease = take_n();
            refuse_both(from);
            release(lease);
            answer_both(from, away_first);
            end();
        }
}

/* ---- a renewal is out ------------------------------------------------------------------------------- */

static struct outcome next;

/* In one callback: all that it asks for goes out together. */
static void on_marker(mortise_status status, mortise_lease *marker, const mortise_error *error,
                      void *lease)
{
    (void)error;
    CU_ASSERT_EQUAL_FATAL(status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release_nowait(marker, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release_async(lease, on_released, &release_told, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_acquire_async(rig.handle, "n", TRY, told, &next, &next.request, NULL),
                    MORTISE_OK);
}

/* Releases the lease, and asks for its name again. */
static void release_and_ask(mortise_lease *lease)
{
    release_told = (mortise_status)1;
    memset(&next, 0, sizeof next);
    CU_ASSERT_EQUAL(mortise_acquire_async(rig.handle, "marker", TRY, on_marker, lease, NULL, NULL),
                    MORTISE_OK);
    settle();
}

/* The next renewal of "n" on that side: its reply is held. */
static int hold_renewal(bool from, sim_on_cancel on_cancel)
{
    return server(from)->script(&(sim_rule){
        .kinds = OP(RENEW), .name = "n", .times = 1, .hold_reply = true, .on_cancel = on_cancel});
}

static void await_renewal(void)
{
    advance_ms(3400); /* the presence is good for ten seconds */
}

static void expect_next(void)
{
    CU_ASSERT_EQUAL_FATAL(next.calls, 1);
    CU_ASSERT_EQUAL_FATAL(next.status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(next.lease, NULL), MORTISE_OK);
    end();
}

/* The next request comes after the release. Nobody else has the lock, so it is not BUSY. The renewal is answered when it is
 * canceled, or only when all is over. */
static void test_renewed(void)
{
    static const char *const phases[] = {"old", "both", "both", "new"};
    for (int i = 0; i < 4; i++)
        for (int late = 0; late <= 1; late++) {
            bool from = i < 2;
            other->reset();
            sim->reset();
            if (i == 3)
                register_set(MIGRATE_TO, MIGRATE_NEW, 0);
            migrate_open(&rig, phases[i], "");
            mortise_lease *lease = take(&rig, "n", NULL);
            int rule = hold_renewal(from, late ? SIM_CANCEL_IGNORED : SIM_CANCEL_INDETERMINATE);
            await_renewal();
            CU_ASSERT_EQUAL(server(from)->held(rule), 1);
            release_and_ask(lease);
            CU_ASSERT_EQUAL(release_told, MORTISE_OK);
            server(from)->let_go(rule);
            settle();
            expect_next();
        }
}

/* One side has said in the renewal that it has lost the claim; the other one has not answered yet. */
static void test_renewed_and_lost(void)
{
    for (int from = 0; from <= 1; from++) {
        mortise_lease *lease = take_n();
        int rule = hold_renewal(from, SIM_CANCEL_INDETERMINATE);
        CU_ASSERT(server(!from)->lose("n"));
        await_renewal();
        CU_ASSERT_EQUAL(server(from)->held(rule), 1);
        release_and_ask(lease);
        CU_ASSERT_EQUAL(release_told, MORTISE_LOST);
        expect_next();
    }
}

/* The client has lost its presence on one side, and knows that; the renewal is not answered yet. */
static void test_renewed_without_presence(void)
{
    for (int from = 0; from <= 1; from++) {
        char name[MIGRATE_NAME_SIZE];
        mortise_lease *lease = take_n();
        int rule = hold_renewal(from, SIM_CANCEL_IGNORED);
        await_renewal();
        migrate_presence_name(MIGRATE_BOTH, rig.client->loader.client_id, name);
        CU_ASSERT(server(!from)->lose(name));
        await_renewal(); /* that of the presence */
        CU_ASSERT_EQUAL(server(from)->held(rule), 1);
        release_and_ask(lease);
        CU_ASSERT_EQUAL(release_told, MORTISE_LOST);
        server(from)->let_go(rule);
        settle();
        expect_next();
    }
}

/* The renewal is answered in the round of the release: the release has the claim, and finds what the renewal has found. */
static void test_renewed_in_that_round(void)
{
    for (int lost = 0; lost <= 1; lost++)
        for (int from = 0; from <= 1; from++) {
            mortise_lease *lease = take_n();
            int rule = server(from)->script(
                &(sim_rule){.kinds = OP(RENEW), .name = "n", .times = 1, .reply_ns = 100 * MS});
            if (lost)
                CU_ASSERT(server(from)->lose("n"));
            await_renewal();
            CU_ASSERT_EQUAL(server(from)->hits(rule), 1);
            release_told = (mortise_status)1;
            rig.client->pump.turn_wanted = true; /* the round of the release begins with one */
            set_now(now_ns() + 101 * MS);
            CU_ASSERT_EQUAL(mortise_release_async(lease, on_released, &release_told, NULL),
                            MORTISE_OK);
            settle();
            CU_ASSERT_EQUAL(release_told, lost ? MORTISE_LOST : MORTISE_OK);
            end();
        }
}

/* ---- the claim of a process that has died ----------------------------------------------------------- */

/* The claim of "n" as the witness of its process sees it. */
static mortise_witness_slot slot_of_n(void)
{
    mortise_witness_slot slot = {.state = MORTISE_WITNESS_HELD, .ttl_ms = 60000, .name_len = 1};
    const struct name *name = rig.client->locks.names;
    CU_ASSERT_FATAL(name != NULL && name->claims != NULL && name->claims->next == NULL);
    memcpy(slot.grant, name->claims->id.bytes, sizeof slot.grant);
    slot.name[0] = 'n';
    return slot;
}

static void bury(struct rig *witness, const mortise_witness_slot *dead)
{
    release_told = (mortise_status)1;
    migrate_open(witness, "both", "");
    CU_ASSERT_EQUAL(mortise_release_dead(witness->handle, dead, on_released, &release_told, NULL),
                    MORTISE_OK);
    settle();
}

/* It was on one side only, is released there, and the other side is unreachable at first. Nothing is found by the repeat, and yet the
 * backend had it. */
static void test_dead(void)
{
    for (int replies = 0; replies <= 1; replies++)
        for (int lost_first = 0; lost_first <= replies; lost_first++)
            for (int from = 0; from <= 1; from++) {
                struct rig witness;
                mortise_lease *lease = take_n();
                const mortise_witness_slot dead = slot_of_n();
                int lost = replies ? lose_reply(from) : 0, away = refuse(!from);
                CU_ASSERT(server(!from)->lose("n"));
                bury(&witness, &dead);
                if (lost_first)
                    answer(from, lost);
                answer(!from, away);
                if (replies && !lost_first)
                    answer(from, lost);
                expect_told(MORTISE_OK);
                rig_close(&witness);
                CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
                end();
            }
}

/* One side is away, and the other one refuses: the claim of the dead process is gone where that can be. */
static void test_dead_and_refused(void)
{
    for (int away_first = 0; away_first <= 1; away_first++)
        for (int from = 0; from <= 1; from++) {
            struct rig witness;
            mortise_lease *lease = take_n();
            const mortise_witness_slot dead = slot_of_n();
            refuse_both(from);
            bury(&witness, &dead);
            answer_both(from, away_first);
            rig_close(&witness);
            CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
            end();
        }
}

/* An acquire that begins again, as the token of `to` is too far ahead: the claim is not under the grants that are asked for first. */
static mortise_lease *take_n_again(void)
{
    CU_ASSERT_EQUAL(mortise_release(take_n(), NULL), MORTISE_OK);
    other->tokens_from((uint64_t)now_ns() / 1000 + 5 * MIGRATE_FLOOR_LEAD_US);
    return take(&rig, "n", NULL);
}

/* So it is if the acquire began again, and the other side refuses at once. */
static void test_dead_again_and_refused(void)
{
    for (int from = 0; from <= 1; from++) {
        struct rig witness;
        mortise_lease *lease = take_n_again();
        const mortise_witness_slot dead = slot_of_n();
        int rule = server(!from)->script(&(sim_rule){
            .kinds = OP(RELEASE), .name = "n", .fate = SIM_REFUSE, .status = MORTISE_BACKEND});
        bury(&witness, &dead);
        expect_told(MORTISE_BACKEND);
        CU_ASSERT_FALSE(server(from)->lose("n"));
        CU_ASSERT(server(!from)->lose("n"));
        server(!from)->end(rule);
        advance_ms(60000); /* what was refused ends with its ttl */
        rig_close(&witness);
        CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
        end();
    }
}

static int reply_late(bool from)
{
    return server(from)->script(
        &(sim_rule){.kinds = OP(RELEASE), .name = "n", .times = 1, .reply_ns = 100 * MS});
}

/* The acquire began again. Both sides answer that they have nothing under the first grants, but so late that the request is canceled in
 * the round in which that is read. The others are asked for by a repeat. */
static void test_dead_and_canceled(void)
{
    struct rig witness;
    mortise_lease *lease = take_n_again();
    const mortise_witness_slot dead = slot_of_n();
    const int late[] = {reply_late(false), reply_late(true)};
    bury(&witness, &dead);
    CU_ASSERT_EQUAL(release_told, 1);
    witness.client->pump.turn_wanted = true; /* the round of the cancel begins with one */
    set_now(now_ns() + 5001 * MS);
    settle();
    CU_ASSERT_EQUAL(other->hits(late[0]) + sim->hits(late[1]), 2);
    expect_told(MORTISE_OK);
    CU_ASSERT_FALSE(sim->lose("n"));
    CU_ASSERT_FALSE(other->lose("n"));
    rig_close(&witness);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    end();
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"one side is away", test_away},
        {"both replies are lost", test_both_lost},
        {"one side has lost it", test_lost},
        {"one side is away, and has lost it", test_away_and_lost},
        {"one side has it for another", test_taken},
        {"one side has lost it, and no reply is lost", test_lost_for_sure},
        {"one side is away, and the other one refuses", test_away_and_refused},
        {"a renewal is out", test_renewed},
        {"a renewal is out, and one side has lost it", test_renewed_and_lost},
        {"a renewal is out, and the presence is lost", test_renewed_without_presence},
        {"a renewal is answered in that round", test_renewed_in_that_round},
        {"of a dead process, and one side is away", test_dead},
        {"of a dead process, and the other side refuses", test_dead_and_refused},
        {"of a dead process that began again, and the other side refuses",
         test_dead_again_and_refused},
        {"of a dead process, and canceled when answered", test_dead_and_canceled},
        CU_TEST_INFO_NULL,
    };
    return migrate_rig_run("migrate_release", tests);
}
