/* test_contest.c - callers of this process that wait for a name: first come, first served; only the head has a
 * request in the backend; news and hints; which callers do not queue. test_contest_trouble.c has a backend in
 * trouble. */
#include "contest_test.h"

#define CROWD 50

static struct outcome crowd[CROWD];

/* ---- the queue ------------------------------------------------------------------------------------ */

/* [27] A crowd of local callers costs the backend one contender, and is served in order. */
static void crowd_in_order(const char *config)
{
    start(config);
    sim->seize("a", MORTISE_NEVER);
    for (int i = 0; i < CROWD; i++)
        want(&rig, &crowd[i], "a", FOREVER);
    CU_ASSERT_EQUAL(sim->waiters("a"), 1);
    CU_ASSERT(tapped_count(MORTISE_OP_ACQUIRE) <= 2); /* and once more when its watch is in force */
    CU_ASSERT_EQUAL(stats_of(&rig).waiting, CROWD);
    advance_ms(10000);
    tap_count = 0;
    sim->give_back("a");
    for (int i = 0; i < CROWD; i++) {
        advance_ms(150); /* well before any poll or ttl */
        CU_ASSERT_EQUAL(crowd[i].order, i + 1);
        give_back(&crowd[i]);
    }
    CU_ASSERT(tapped_count(MORTISE_OP_ACQUIRE) <= 3 * CROWD);
    finish();
}

static void test_crowd_told_by_news(void)
{
    crowd_in_order(CONFIG);
}

static void test_crowd_in_a_fair_backend(void)
{
    crowd_in_order(CONFIG "[sim]\nqueue = yes\n");
}

static void test_waiter_behind_leaves_in_time(void)
{
    start(CONFIG);
    sim->seize("a", MORTISE_NEVER);
    want(&rig, &got, "a", FOREVER);
    want(&rig, &other, "a", MORTISE_OPTIONS(.wait_ms = 700));
    advance_ms(699);
    CU_ASSERT_EQUAL(other.calls, 0);
    advance_ms(1);
    CU_ASSERT_EQUAL(other.status, MORTISE_TIMEDOUT);
    CU_ASSERT_EQUAL(got.calls, 0);
    sim->give_back("a");
    settle();
    give_back(&got);
    finish();
}

/* The head leaves: its place in the backend's queue belongs to the process, and serves the next caller. */
static void test_place_is_kept(void)
{
    start(CONFIG "[sim]\nqueue = yes\n");
    sim->seize("a", MORTISE_NEVER);
    want(&rig, &got, "a", MORTISE_OPTIONS(.wait_ms = 500));
    want(&rig, &other, "a", FOREVER);
    advance_ms(500);
    CU_ASSERT_EQUAL(got.status, MORTISE_TIMEDOUT);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_ACQUIRE), 1);
    CU_ASSERT_EQUAL(sim->waiters("a"), 1);
    sim->give_back("a");
    settle();
    give_back(&other);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_ACQUIRE), 1);
    finish();
}

/* Unless the next caller wants something else: it gets what it asked for. */
static void test_place_is_given_up(void)
{
    start(CONFIG "[sim]\nqueue = yes\n");
    sim->seize("a", MORTISE_NEVER);
    want(&rig, &got, "a", MORTISE_OPTIONS(.wait_ms = 500));
    want(&rig, &other, "a", MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 8000));
    advance_ms(500);
    CU_ASSERT_EQUAL(sim->waiters("a"), 1);
    sim->give_back("a");
    settle();
    CU_ASSERT_EQUAL_FATAL(other.status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_remaining_ms(other.lease), 8000 - 80 - 2);
    give_back(&other);
    finish();
}

/* ---- how it learns of a release ------------------------------------------------------------------- */

static void test_news_at_once(void)
{
    start(CONFIG);
    sim->seize("a", MORTISE_NEVER);
    want(&rig, &got, "a", FOREVER);
    advance_ms(100);
    tap_count = 0;
    sim->give_back("a");
    settle(); /* no time passes */
    give_back(&got);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_ACQUIRE), 1);
    finish();
}

/* [7] News that comes while the answer BUSY is under way is not lost. */
static void test_news_while_asking(void)
{
    start(CONFIG);
    sim->seize("a", MORTISE_NEVER);
    want(&rig, &got, "a", FOREVER);
    int slow = SCRIPT(.kinds = OP(ACQUIRE), .times = 1, .reply_ns = 100 * MS);
    sim->news_all();
    settle(); /* asked, BUSY */
    advance_ms(50);
    CU_ASSERT_EQUAL(sim->hits(slow), 1);
    sim->give_back("a");
    settle();
    CU_ASSERT_EQUAL(got.calls, 0);
    advance_ms(50);
    give_back(&got);
    finish();
}

/* The release comes after the answer BUSY and before the watch is in force. */
static bool give_back_after_busy(mortise_op *op)
{
    if (op->kind == MORTISE_OP_ACQUIRE && sim->waiters("a") == 0) {
        tap_answer = NULL;
        op->hint_ms = -1;
        tapped_host()->complete(tapped_host(), op, MORTISE_BUSY);
        sim->give_back("a");
        return true;
    }
    return false;
}

static void test_release_before_the_watch(void)
{
    start(CONFIG);
    sim->seize("a", MORTISE_NEVER);
    tap_answer = give_back_after_busy;
    want(&rig, &got, "a", FOREVER);
    CU_ASSERT_EQUAL(got.calls, 1);
    give_back(&got);
    finish();
}

static mortise_grant_id grants[3];
static size_t grant_count;

static bool note_grant(mortise_op *op)
{
    if (op->kind == MORTISE_OP_ACQUIRE && grant_count < 3)
        grants[grant_count++] = op->grant;
    return false;
}

/* A backend may execute the undo of the last try late: so each try after BUSY has its own grant id. */
static void test_another_grant_after_busy(void)
{
    start(CONFIG "[sim]\nnotify = no\n");
    sim->seize("a", MORTISE_NEVER);
    grant_count = 0;
    tap_answer = note_grant;
    want(&rig, &got, "a", FOREVER);
    advance_ms(2000);
    CU_ASSERT_EQUAL(grant_count, 3);
    for (size_t i = 0; i < 3; i++)
        CU_ASSERT(memcmp(&grants[i], &grants[(i + 1) % 3], sizeof grants[0]) != 0);
    tap_answer = NULL;
    sim->give_back("a");
    advance_ms(1000);
    give_back(&got);
    finish();
}

/* The holder died: there is no news, and the core asks again when its claim has ended. */
static void test_holder_died(void)
{
    start(CONFIG);
    sim->seize("a", START_NS + 2000 * MS);
    want(&rig, &got, "a", FOREVER);
    tap_count = 0;
    advance_ms(1999);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_ACQUIRE), 0); /* [17], [20] nobody polls */
    advance_ms(150);
    give_back(&got);
    CU_ASSERT(got.at_ns >= START_NS + 2000 * MS);
    finish();
}

/* A backend without news is polled, with pauses that grow to a quarter of a second. */
static void test_polling(void)
{
    start(CONFIG "[sim]\nnotify = no\n");
    sim->seize("a", MORTISE_NEVER);
    want(&rig, &got, "a", FOREVER);
    advance_ms(10000);
    size_t polls = tapped_count(MORTISE_OP_ACQUIRE);
    CU_ASSERT(polls >= 40 && polls <= 100);
    int64_t shortest_ns = MORTISE_NEVER;
    for (size_t i = 1; i < polls; i++) {
        int64_t pause_ns =
            tapped(MORTISE_OP_ACQUIRE, i)->at_ns - tapped(MORTISE_OP_ACQUIRE, i - 1)->at_ns;
        CU_ASSERT(pause_ns >= 10 * MS && pause_ns <= 251 * MS);
        if (i > 10 && pause_ns < shortest_ns)
            shortest_ns = pause_ns;
    }
    CU_ASSERT(shortest_ns < 200 * MS); /* of 30, by chance: processes do not poll all at once */
    sim->give_back("a");
    advance_ms(251);
    give_back(&got);
    finish();
}

/* A driver may keep what a caller asks again; not what the next caller asks when that one has given up. */
static void test_again(void)
{
    start(CONFIG "[sim]\nnotify = no\n");
    sim->seize("a", MORTISE_NEVER);
    for (int i = 0; i < 2; i++) {
        tap_count = 0;
        want(&rig, &got, "a", MORTISE_OPTIONS(.wait_ms = 1000));
        advance_ms(1000);
        CU_ASSERT_EQUAL(got.status, MORTISE_TIMEDOUT);
        size_t asked = tapped_count(MORTISE_OP_ACQUIRE);
        CU_ASSERT(asked > 2);
        for (size_t k = 0; k < asked; k++)
            CU_ASSERT_EQUAL((tapped(MORTISE_OP_ACQUIRE, k)->op.flags & MORTISE_OP_AGAIN) != 0,
                            k > 0);
    }
    sim->give_back("a");
    finish();
}

static void test_watch_is_balanced(void)
{
    start(CONFIG);
    for (int i = 0; i < 5; i++) {
        sim->seize("a", MORTISE_NEVER);
        want(&rig, &got, "a", MORTISE_OPTIONS(.wait_ms = 100));
        want(&rig, &other, "a", FOREVER);
        CU_ASSERT_EQUAL(sim->waiters("a"), 1);
        advance_ms(100);
        CU_ASSERT_EQUAL(sim->waiters("a"), 1);
        if (i % 2 == 0)
            sim->give_back("a");
        else
            mortise_cancel(rig.handle, other.request);
        settle();
        CU_ASSERT_EQUAL(sim->waiters("a"), 0); /* [8] */
        if (i % 2 == 0)
            give_back(&other);
        sim->give_back("a");
    }
    finish();
}

/* ---- callers outside the queue ---------------------------------------------------------------------- */

static void test_tries(void)
{
    start(CONFIG);
    sim->seize("a", MORTISE_NEVER);
    want(&rig, &got, "a", TRY);
    CU_ASSERT_EQUAL(got.status, MORTISE_BUSY);
    CU_ASSERT_PTR_NOT_NULL(strstr(got.error.message, "elsewhere"));
    CU_ASSERT_EQUAL(taps[0].op.flags & MORTISE_OP_TRY, MORTISE_OP_TRY);
    CU_ASSERT_EQUAL(sim->waiters(NULL), 0);
    want(&rig, &other, "a", FOREVER);
    tap_count = 0;
    want(&rig, &got, "a", TRY); /* never ahead of those who wait; the backend need not be asked */
    CU_ASSERT_EQUAL(got.status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(tap_count, 0);
    sim->give_back("a");
    settle();
    give_back(&other);
    finish();
}

#define AS(owner_) MORTISE_OPTIONS(.wait_ms = -1, .owner = owner_)

/* An owner that holds the name does not wait behind others, because they may be waiting for it. */
static void test_owner_passes_the_queue(void)
{
    struct outcome more;
    start(CONFIG);
    want(&rig, &got, "a", AS("o"));
    want(&rig, &other, "a", FOREVER);
    want(&rig, &more, "a", AS("o"));
    CU_ASSERT_EQUAL(other.calls, 0);
    give_back(&more);
    CU_ASSERT_EQUAL(other.calls, 0);
    give_back(&got);
    advance_ms(200);
    give_back(&other);
    finish();
}

/* The same if its owner gets the name while it is in the queue. */
static void test_owner_leaves_the_queue(void)
{
    struct outcome first;
    start(CONFIG);
    sim->seize("a", MORTISE_NEVER);
    want(&rig, &first, "a", AS("o"));
    want(&rig, &other, "a", FOREVER);
    want(&rig, &got, "a", AS("o"));
    sim->give_back("a");
    advance_ms(200);
    CU_ASSERT_EQUAL_FATAL(first.status, MORTISE_OK);
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(other.calls, 0);
    give_back(&got);
    give_back(&first);
    advance_ms(200);
    give_back(&other);
    finish();
}

static bool busy_without_a_word(mortise_op *op)
{
    if (op->kind != MORTISE_OP_ACQUIRE || op->owner_len > 0)
        return false;
    tapped_host()->complete(tapped_host(), op, MORTISE_BUSY);
    return true;
}

/* What the core knows itself needs no report of the driver about the holder. */
static void test_owner_leaves_the_queue_untold(void)
{
    struct outcome first;
    start(CONFIG);
    sim->seize("a", MORTISE_NEVER);
    want(&rig, &first, "a", AS("o"));
    want(&rig, &other, "a", FOREVER);
    want(&rig, &got, "a", AS("o"));
    tap_answer = busy_without_a_word;
    sim->give_back("a");
    settle();
    CU_ASSERT_EQUAL_FATAL(first.status, MORTISE_OK);
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(other.calls, 0);
    tap_answer = NULL;
    give_back(&got);
    give_back(&first);
    advance_ms(200);
    give_back(&other);
    finish();
}

static bool busy_with_owner(mortise_op *op)
{
    if (op->kind != MORTISE_OP_ACQUIRE || op->owner_len > 0)
        return false;
    tap_answer = NULL;
    op->info->held = true;
    snprintf(op->info->owner, sizeof(op->info->owner), "o");
    tapped_host()->complete(tapped_host(), op, MORTISE_BUSY);
    return true;
}

/* If its owner has released the name by then, it has its place in the queue again. */
static void test_owner_keeps_its_place(void)
{
    start(CONFIG);
    sim->seize("a", MORTISE_NEVER);
    for (int i = 0; i < 4; i++)
        want(&rig, &crowd[i], "a", i == 1 ? AS("o") : FOREVER);
    tap_count = 0;
    tap_answer = busy_with_owner;
    sim->news_all();
    settle();
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_ACQUIRE), 2); /* the head's, and the owner's own */
    sim->give_back("a");
    for (int i = 0; i < 4; i++) {
        advance_ms(200);
        CU_ASSERT_EQUAL(crowd[i].order, i + 1);
        for (int k = 0; k < 4; k++)
            if (crowd[k].order == i + 1)
                give_back(&crowd[k]);
    }
    finish();
}

/* A fair backend lets the head wait and says nothing. Its owner's callers of another client may have the name meanwhile. */
static void owner_behind_a_waiting_head(int before)
{
    struct rig second;
    struct outcome first;
    start(CONFIG "[sim]\nqueue = yes\n");
    rig_open(&second, CONFIG "[sim]\nqueue = yes\n");
    sim->seize("a", MORTISE_NEVER);
    want(&second, &first, "a", AS("o"));
    want(&rig, &other, "a", AS("them"));
    for (int i = 0; i < before; i++)
        want(&rig, &crowd[i], "a", i == 0 ? FOREVER : AS("somebody else"));
    want(&rig, &got, "a", AS("o"));
    sim->give_back("a");
    settle();
    CU_ASSERT_EQUAL_FATAL(first.status, MORTISE_OK);
    CU_ASSERT_EQUAL(got.calls, 0);
    tap_count = 0;
    advance_ms(1000); /* a third of the ttl */
    CU_ASSERT_EQUAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_ACQUIRE), before > 1 ? 2 : 1); /* one looks for all */
    CU_ASSERT_EQUAL(other.calls, 0);
    give_back(&got);
    give_back(&first);
    settle();
    give_back(&other);
    for (int i = 0; i < before; i++) {
        advance_ms(200);
        give_back(&crowd[i]);
    }
    settle();
    rig_close(&second);
    finish();
}

static void test_owner_behind_a_waiting_head(void)
{
    for (int before = 0; before <= 4; before += 2)
        owner_behind_a_waiting_head(before);
}

/* What a request says about its name, when nobody waits for it any more, is not reported for another name. */
static void test_holders_are_not_mixed_up(void)
{
    struct rig second;
    start(CONFIG);
    rig_open(&second, CONFIG);
    sim->seize("a", MORTISE_NEVER);
    mortise_lease *lease = take(&second, "b", NULL);
    int held = SCRIPT(.name = "a", .kinds = OP(ACQUIRE), .hold_request = true,
                      .on_cancel = SIM_CANCEL_IGNORED);
    want(&rig, &got, "a", FOREVER);
    mortise_cancel(rig.handle, got.request);
    settle();
    want(&rig, &other, "b", MORTISE_OPTIONS(.wait_ms = 500));
    sim->let_go(held);
    advance_ms(500);
    CU_ASSERT_EQUAL(other.status, MORTISE_TIMEDOUT);
    CU_ASSERT_PTR_NULL(strstr(other.error.message, "elsewhere"));
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    rig_close(&second);
    sim->give_back("a");
    finish();
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"[27] a crowd in order, by news", test_crowd_told_by_news},
        {"[27] a crowd in order, in a fair backend", test_crowd_in_a_fair_backend},
        {"a waiter behind leaves in time", test_waiter_behind_leaves_in_time},
        {"the place in the backend is kept", test_place_is_kept},
        {"or given up", test_place_is_given_up},
        {"news are acted on at once", test_news_at_once},
        {"[7] news while asking", test_news_while_asking},
        {"[7] a release before the watch", test_release_before_the_watch},
        {"another grant id after BUSY", test_another_grant_after_busy},
        {"the holder died", test_holder_died},
        {"polling", test_polling},
        {"a new caller does not ask again", test_again},
        {"[8] watches are balanced", test_watch_is_balanced},
        {"tries", test_tries},
        {"an owner passes the queue", test_owner_passes_the_queue},
        {"an owner leaves the queue", test_owner_leaves_the_queue},
        {"an owner leaves the queue, untold", test_owner_leaves_the_queue_untold},
        {"an owner keeps its place", test_owner_keeps_its_place},
        {"an owner behind a head that waits", test_owner_behind_a_waiting_head},
        {"holders are not mixed up", test_holders_are_not_mixed_up},
        CU_TEST_INFO_NULL,
    };
    return rig_run("contest", tests);
}
