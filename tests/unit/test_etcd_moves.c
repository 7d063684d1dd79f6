/* test_etcd_moves.c - a session ends while a key may have been moved from it to another one: the table in claim.h, column
 * "session over". When the driver tells the core of keys that it moved: move.c, THE NEWS. And what is left of a claim then; an
 * acquire that comes again under the grant of such a claim. */
#include "etcd_rig.h"

#include "suite.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void test_unwanted(void)
{
    static const enum claim_state states[] = {CLAIM_UNWANTED, CLAIM_DOUBTFUL, CLAIM_DELETING,
                                              CLAIM_REDELETING};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        struct claim *claim = make_claim(states[i], MOVE_UNKNOWN);
        lease_session_over(&driver, &last);
        CU_ASSERT_EQUAL(claim->state, CLAIM_REDELETING);
        CU_ASSERT_EQUAL(driver.claim_count, 1);
        lease_session_over(&driver, &next);
        CU_ASSERT_EQUAL(driver.claim_count, 1);
        claim_end(&driver, claim, MORTISE_OK);
        CU_ASSERT_PTR_NULL(driver.names);
    }
}

static void test_never_moved(void)
{
    make_claim(CLAIM_DOUBTFUL, MOVE_NONE);
    lease_session_over(&driver, &last);
    CU_ASSERT_PTR_NULL(driver.names); /* nothing can be there */
}

/* ---- the news -------------------------------------------------------------------------------------- */

#define CLAIMS 20

static struct claim *make_held(enum move move)
{
    struct claim *claim = make_claim(CLAIM_HELD, move);
    claim->ttl_ms = 1000;
    claim->lease = OLD_LEASE;
    claim->ends_ns = MORTISE_NEVER;
    claim->look_ns = MORTISE_NEVER;
    return claim;
}

/* A leader change: CLAIMS held ones, each with its move on its way. */
static void begin_moves(void)
{
    begin();
    for (size_t i = 0; i < CLAIMS; i++)
        make_held(MOVE_NONE);
    lease_left(&driver, &last);
    CU_ASSERT_EQUAL_FATAL(driver.link.open, CLAIMS);
}

static void answer_all_but_one(void)
{
    for (size_t i = 0; i < CLAIMS - 1; i++)
        answer(CALL_DONE);
    CU_ASSERT_EQUAL(doubts, 0);
}

/* However the answers come: the core is told of all claims in one call. */
static void test_told_at_the_last(void)
{
    begin_moves();
    answer_all_but_one();
    answer(CALL_DONE);
    CU_ASSERT_EQUAL(doubts, CLAIMS);
    lease_sweep(&driver, now_ns + 1000 * NS_PER_MS);
    CU_ASSERT_EQUAL(doubts, CLAIMS); /* once */
    end_moves();
}

/* One that fails keeps nobody waiting, */
static void test_last_is_refused(void)
{
    begin_moves();
    answer_all_but_one();
    answer(CALL_REFUSED);
    CU_ASSERT_EQUAL(doubts, CLAIMS - 1);
    end_moves();
}

static void test_last_is_lost(void)
{
    begin_moves();
    answer_all_but_one();
    answer(CALL_LOST);
    CU_ASSERT_EQUAL(doubts, CLAIMS - 1);
    end_moves();
}

/* and neither does one that is slow. */
static void test_last_is_slow(void)
{
    begin_moves();
    answer_all_but_one();
    now_ns += 99 * NS_PER_MS;
    lease_sweep(&driver, now_ns);
    CU_ASSERT_EQUAL(doubts, 0);
    now_ns += NS_PER_MS;
    lease_sweep(&driver, now_ns);
    CU_ASSERT_EQUAL(doubts, CLAIMS - 1);
    answer(CALL_DONE);
    CU_ASSERT_EQUAL(doubts, CLAIMS);
    end_moves();
}

/* ---- many ------------------------------------------------------------------------------------------ */

static size_t count_moved(void)
{
    size_t count = 0;
    struct claim *claim;
    DL_FOREACH (driver.names->claims, claim)
        count += claim->lease == NEXT_LEASE;
    return count;
}

/* More than may be on their way at once: the others take turns. */
static void test_paced(void)
{
    static const struct upcalls upcalls = {.late = claim_move_late};
    const size_t count = OPEN_MAX + 100;
    begin();
    driver.upcalls = &upcalls;
    for (size_t i = 0; i < count; i++)
        make_held(MOVE_NONE);
    lease_left(&driver, &last);
    for (size_t i = 0; i < count; i++) {
        CU_ASSERT_EQUAL_FATAL(driver.link.open, i < 100 ? OPEN_MAX : count - i);
        CU_ASSERT_EQUAL(doubts, 0);
        answer(CALL_DONE);
        claims_go_late(&driver);
    }
    CU_ASSERT_EQUAL(count_moved(), count);
    CU_ASSERT_EQUAL(doubts, count);
    end_moves();
}

/* Whoever waits for a lock has no deadline. */
static void test_held_first(void)
{
    begin();
    driver.link.open = OPEN_MAX;
    struct claim *queued = make_claim(CLAIM_QUEUED, MOVE_NONE), *held = make_held(MOVE_NONE);
    CU_ASSERT_TRUE(claim_is_late(&driver, queued));
    CU_ASSERT_TRUE(claim_is_late(&driver, held));
    CU_ASSERT_PTR_EQUAL(driver.backlog, held);
    driver.link.open = 0;
    end_moves();
}

/* ---- a refusal ---------------------------------------------------------------------------------------------- */

/* The leader has changed, and the next session is not granted. Who has a place in the queue keeps it; who is the first, and only
 * waits for the proof of that session, is told, unless it will pass, and does so within connect_timeout. */
static void test_next_refused(void)
{
    static const struct {
        enum claim_state state;
        int code;
        const char *text;
        bool is_told;
        int64_t refused_ms; /* for how long */
    } cases[] = {
        {CLAIM_WAITING, GRPC_RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", false,
         0},
        {CLAIM_READY, GRPC_RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", true,
         0},
        {CLAIM_READY, GRPC_PERMISSION_DENIED, "etcdserver: permission denied", true, 0},
        {CLAIM_READY, GRPC_RESOURCE_EXHAUSTED, "etcdserver: too many requests", false, 999},
        {CLAIM_READY, GRPC_RESOURCE_EXHAUSTED, "etcdserver: too many requests", true, 1000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct call refusal = {.end = CALL_REFUSED, .code = cases[i].code};
        snprintf(refusal.text, sizeof refusal.text, "%s", cases[i].text);
        mortise_op op = {.kind = MORTISE_OP_ACQUIRE, .name = "a", .name_len = 1, .status = 99};
        begin();
        next.state = SESSION_GRANTING;
        next.refused_ns = now_of(&driver) - cases[i].refused_ms * NS_PER_MS;
        driver.settings.connect_timeout_ms = 1000;
        struct claim *claim = make_claim(cases[i].state, MOVE_NONE);
        claim->ttl_ms = 1000;
        claim->lease = OLD_LEASE;
        claim->op = &op;
        claim_move(&driver, claim);
        CU_ASSERT_PTR_EQUAL(claim->moves_to, &next);
        lease_refused(&driver, &next, &refusal);
        CU_ASSERT_EQUAL(op.status, cases[i].is_told ? MORTISE_BACKEND : 99);
        CU_ASSERT_EQUAL(claim->state, cases[i].is_told ? CLAIM_DELETING : cases[i].state);
        end_moves();
    }
}

/* ---- a renewal ---------------------------------------------------------------------------------------------- */

/* Nothing is proven for the key. Over a connection that stands, the error does not tell of what was before. */
static void test_not_confirmed(void)
{
    static const enum link_state states[] = {LINK_UP, LINK_DOWN};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        mortise_op op = {.kind = MORTISE_OP_RENEW, .name = "a", .name_len = 1, .ttl_ms = 1000};
        begin();
        snprintf(driver.link.trouble, sizeof driver.link.trouble, "b:1: some trouble");
        driver.link.state = states[i];
        make_held(MOVE_NONE);
        lease_renew(&driver, &op);
        CU_ASSERT_EQUAL(op.status, MORTISE_UNREACHABLE);
        bool is_up = states[i] == LINK_UP;
        CU_ASSERT_EQUAL(strstr(told, "have not confirmed it yet") != NULL, is_up);
        CU_ASSERT_EQUAL(strstr(told, "no connection; b:1: some trouble") != NULL, !is_up);
        end_moves();
    }
}

/* ---- the watch of the own key ---------------------------------------------------------------------- */

static unsigned events;

static void count_event(struct driver *of, enum watch_target kind, void *target,
                        enum watch_event event)
{
    (void)of;
    (void)kind;
    (void)target;
    (void)event;
    events++;
}

/* The servers tell the watches with numbers up to that that their keys are deleted. Returns how many have somebody to tell. */
static unsigned tell_watches(uint8_t last_number)
{
    events = 0;
    for (uint8_t number = 1; number <= last_number; number++) {
        const uint8_t message[] = {0x10, number, 0x5a, 2, 0x08, 1};
        CU_ASSERT_TRUE(watch_message(&driver, (struct bytes){message, sizeof message}));
    }
    return events;
}

/* Its session is over while its key is watched, and may have been moved: it is looked at, and watched anew. No watch is left. */
static void test_one_watch(void)
{
    static const struct upcalls upcalls = {.watched = count_event};
    struct kv own = {.created = 5, .modified = 7, .lease = NEXT_LEASE};
    begin();
    driver.upcalls = &upcalls;
    CU_ASSERT_FATAL(grpc_open(&driver.link.grpc, "a", false));
    struct claim *claim = make_held(MOVE_UNKNOWN);
    claim->created = claim->seen_at = 5;
    claim_look_by(&driver, claim, 0);
    now_ns += 1000 * NS_PER_MS;
    lease_sweep(&driver, now_ns);
    CU_ASSERT_EQUAL(claim->own_watch, 1);
    lease_session_over(&driver, &last);
    answer_with(CALL_DONE, &own);
    now_ns += 1000 * NS_PER_MS;
    lease_sweep(&driver, now_ns);
    CU_ASSERT_EQUAL(claim->lease, NEXT_LEASE);
    CU_ASSERT_EQUAL(claim->own_watch, 2);
    CU_ASSERT_EQUAL(tell_watches(2), 1);
    claim_end(&driver, claim, MORTISE_OK);
    CU_ASSERT_EQUAL(tell_watches(2), 0);
    grpc_close(&driver.link.grpc);
    grpc_call_free(&driver.link.watch);
    end_moves();
}

/* A token is on its way, and the session's key is watched meanwhile. */
static void begin_with_user(int first_number)
{
    static const struct link_settings settings = {.user = "u", .password = "p", .timeout_ms = 5000};
    begin();
    driver.link.settings = &settings;
    driver.link.token_state = TOKEN_NONE;
    CU_ASSERT_FATAL(grpc_open(&driver.link.grpc, "a", false));
    nghttp2_session_set_next_stream_id(driver.link.grpc.session, first_number);
    calls_authenticate(&driver.link);
    CU_ASSERT_EQUAL(driver.link.token_state, TOKEN_ASKED);
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_NOT_EQUAL(watch_start(&driver, WATCHES_SESSION, &next,
                                        (struct bytes){(const uint8_t *)"k", 1}, (struct bytes){0},
                                        1, false),
                            0);
        CU_ASSERT_EQUAL(driver.link.watch.stream, 0);
    }
}

/* It is here; nothing follows it in its message. */
static void answer_token(void)
{
    static const uint8_t token[] = {'t'};
    driver.link.calls->answer.token = (struct bytes){token, sizeof token};
    answer(CALL_DONE);
    CU_ASSERT_EQUAL(driver.link.token_state, TOKEN_THERE);
    CU_ASSERT_STRING_EQUAL(driver.link.token, "t");
}

static void end_with_user(void)
{
    watches_end(&driver);
    free(driver.link.token);
    grpc_close(&driver.link.grpc);
    grpc_call_free(&driver.link.watch);
    end_moves();
}

/* The stream of the watches begins with a token, so it waits for the one that is on its way. */
static void test_watch_without_token(void)
{
    begin_with_user(1);
    answer_token();
    CU_ASSERT_NOT_EQUAL(driver.link.watch.stream, 0);
    end_with_user();
}

/* The request for the token has used up the last number of the connection: that is what the connection is given up for. */
static void test_watch_without_number(void)
{
    begin_with_user(INT32_MAX);
    driver.link.telling = true;
    answer_token();
    CU_ASSERT_EQUAL(driver.link.watch.stream, 0);
    CU_ASSERT_TRUE(driver.link.breaks);
    CU_ASSERT_PTR_NOT_NULL(strstr(driver.link.trouble, "used up"));
    end_with_user();
}

/* ---- a list ------------------------------------------------------------------------------------------- */

/* How many keys the call that is on its way asks for. */
static int limit_of(const struct call *call)
{
    static const uint8_t thousand[] = {0x18, 0xe8, 0x07}, hundred[] = {0x18, 100};
    const struct writer *out = &call->grpc.out;
    return memmem(out->data, out->size, thousand, 3) != NULL  ? 1000
           : memmem(out->data, out->size, hundred, 2) != NULL ? 100
                                                              : 0;
}

/* If the connection is lost below a list, its pages may be too large: it asks for smaller ones then. */
static void test_smaller_pages(void)
{
    mortise_op op = {.kind = MORTISE_OP_LIST, .name = "", .name_len = 0};
    begin();
    query_start(&driver, &op, list_begin);
    CU_ASSERT_EQUAL(limit_of(driver.link.calls), 1000);
    answer(CALL_LOST);
    queries_up(&driver);
    CU_ASSERT_EQUAL(limit_of(driver.link.calls->prev), 100);
    query_cancel(&driver, &op);
    queries_free(&driver);
    end_moves();
}

/* ---- an acquire is repeated under a grant that is here ---------------------------------------------------- */

/* The claim is being deleted, or its key has gone. */
static void test_repeated_too_late(void)
{
    mortise_op repeat = {.name = "a",
                         .name_len = 1,
                         .kind = MORTISE_OP_ACQUIRE,
                         .flags = MORTISE_OP_REPEAT,
                         .ttl_ms = 1000,
                         .hint_ms = -1};
    begin();
    struct claim *claim = make_claim(CLAIM_DELETING, MOVE_NONE);
    lease_acquire(&driver, &repeat);
    CU_ASSERT_EQUAL(repeat.status, MORTISE_INDETERMINATE);
    CU_ASSERT_PTR_NOT_NULL(strstr(told, "has not ended yet"));
    claim_end(&driver, claim, MORTISE_OK);
    make_claim(CLAIM_GONE, MOVE_NONE);
    lease_acquire(&driver, &repeat);
    CU_ASSERT_EQUAL(repeat.status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(repeat.hint_ms, 0);
    CU_ASSERT_PTR_NULL(driver.names);
    end_moves();
}

/* What waits for an answer when the claim's key vanishes, and when the claim ends. Only a try does not ask again at once. */
static void test_busy(void)
{
    for (int is_try = 0; is_try < 2; is_try++)
        for (int ends = 0; ends < 2; ends++) {
            mortise_op op = {.kind = MORTISE_OP_ACQUIRE,
                             .flags = is_try ? MORTISE_OP_TRY : MORTISE_OP_REPEAT,
                             .hint_ms = 7};
            begin();
            struct claim *claim = make_claim(CLAIM_HELD, MOVE_NONE);
            claim->op = &op;
            if (!ends)
                claim_vanish(&driver, claim);
            claim_end(&driver, claim, MORTISE_OK);
            CU_ASSERT_EQUAL(op.status, MORTISE_BUSY);
            CU_ASSERT_EQUAL(op.hint_ms, is_try ? -1 : 0);
            end_moves();
        }
}

static const CU_TestInfo tests[] = {
    {"nobody wants it, and its key may be in another session", test_unwanted},
    {"nobody wants it, and its key is in no other session", test_never_moved},
    {"the core is told when the last key was moved", test_told_at_the_last},
    {"the last move is refused", test_last_is_refused},
    {"the last move is lost", test_last_is_lost},
    {"the last move is slow", test_last_is_slow},
    {"many take turns", test_paced},
    {"held ones go first", test_held_first},
    {"the next session is refused", test_next_refused},
    {"a renewal without a proof", test_not_confirmed},
    {"the watches wait for a token", test_watch_without_token},
    {"the watches have a token, and no number", test_watch_without_number},
    {"a key has one watch", test_one_watch},
    {"a list asks for less after a loss", test_smaller_pages},
    {"repeated too late", test_repeated_too_late},
    {"busy", test_busy},
    CU_TEST_INFO_NULL,
};

int main(void)
{
    return suite_run("etcd: moves", tests);
}
