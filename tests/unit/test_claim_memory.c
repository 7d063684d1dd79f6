/* test_claim_memory.c - no memory for a claim, or for what its first request needs: the caller gets NOMEM, or the request
 * waits; the callers behind it go on; nothing is kept. */
#include "contest_test.h"

/* An allocation of exactly this many bytes fails, in this program and the core. 0: none fails. */
static size_t missing;

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__real_reallocarray(void *old, size_t count, size_t size);
void *__wrap_reallocarray(void *old, size_t count, size_t size);

void *__wrap_malloc(size_t size)
{
    return missing != 0 && size == missing ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return missing != 0 && count * size == missing ? NULL : __real_calloc(count, size);
}

void *__wrap_reallocarray(void *old, size_t count, size_t size)
{
    return missing != 0 && count * size == missing ? NULL : __real_reallocarray(old, count, size);
}

/* ---- no slot for a claim ------------------------------------------------------------------------------ */

static struct slot *hidden; /* the free slots */

static void hide_slots(void)
{
    hidden = claim_slab.free;
    claim_slab.free = NULL;
    missing = SLAB_CHUNK * sizeof(struct claim);
}

static void show_slots(void)
{
    struct slot **last = &claim_slab.free;
    while (*last != NULL)
        last = &(*last)->next_free;
    *last = hidden;
    missing = 0;
}

/* ---- a caller that comes ------------------------------------------------------------------------------- */

#define OWNER "an owner whose length is not that of any struct: 61 bytes...."

static void expect_nomem(const mortise_options *options)
{
    mortise_lease *lease = NULL;
    mortise_error error = {.message = ""};
    struct timer_heap *timers = &rig.client->locks.timers;
    size_t reserved = timers->reserved;
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "a", options, &lease, &error), MORTISE_NOMEM);
    CU_ASSERT_EQUAL(error.status, MORTISE_NOMEM);
    CU_ASSERT_PTR_NULL(lease);
    CU_ASSERT_EQUAL(tap_count, 0);
    CU_ASSERT_EQUAL(timers->reserved, reserved);
    CU_ASSERT_EQUAL(stats_of(&rig).waiting, 0);
}

/* Afterwards the name can be acquired. */
static void memory_is_back(const mortise_options *options)
{
    missing = 0;
    CU_ASSERT_EQUAL(mortise_release(take(&rig, "a", options), NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(rig.client->locks.timers.reserved, 0);
    finish();
}

static void test_no_slot(void)
{
    start(CONFIG);
    hide_slots();
    expect_nomem(TRY);
    expect_nomem(FOREVER);
    show_slots();
    memory_is_back(TRY);
}

static void test_no_owner(void)
{
    const mortise_options *owned = MORTISE_OPTIONS(.wait_ms = -1, .owner = OWNER);
    start(CONFIG);
    missing = strlen(OWNER);
    expect_nomem(owned);
    memory_is_back(owned);
}

static void test_no_timer(void)
{
    start(CONFIG);
    missing = 64 * sizeof(struct timer *); /* the first heap */
    expect_nomem(FOREVER);
    memory_is_back(FOREVER);
}

static void test_no_waitlist(void)
{
    start(CONFIG);
    missing = sizeof(struct waitlist);
    expect_nomem(TRY);
    expect_nomem(FOREVER);
    memory_is_back(FOREVER);
}

/* An owner's caller asked alone and was refused. There is no memory for the queue that it should join. */
static void test_no_queue(void)
{
    start(CONFIG);
    sim->seize("a", MORTISE_NEVER);
    struct waitlist *free_one = rig.client->locks.free_waitlists;
    CU_ASSERT_PTR_NULL(free_one);
    int slow = SCRIPT(.kinds = OP(ACQUIRE), .times = 1, .hold_reply = true);
    want(&rig, &got, "a", MORTISE_OPTIONS(.wait_ms = -1, .owner = OWNER));
    missing = sizeof(struct waitlist);
    sim->let_go(slow);
    settle();
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_NOMEM);
    sim->give_back("a");
    memory_is_back(TRY);
}

/* ---- a caller that waits ------------------------------------------------------------------------------- */

static bool grant_too_late(mortise_op *op)
{
    if (op->kind != MORTISE_OP_ACQUIRE)
        return false;
    op->token = 1;
    op->from_ns = clock_now() - 60 * NS_PER_S;
    op->good_for_ms = op->ttl_ms;
    tapped_host()->complete(tapped_host(), op, MORTISE_OK);
    return true;
}

/* The claim of the head had to be ended twice, and there is none for a third try. The next caller brought its own. */
static void no_claim_for_the_head(bool behind)
{
    before_each();
    start(CONFIG);
    int held = SCRIPT(.kinds = OP(RELEASE), .hold_reply = true); /* so that no slot becomes free */
    tap_answer = grant_too_late;
    want(&rig, &got, "a", FOREVER);
    if (behind)
        want(&rig, &other, "a", FOREVER);
    CU_ASSERT_EQUAL(got.calls, 0);
    hide_slots();
    while (tapped_count(MORTISE_OP_ACQUIRE) < 2)
        advance_ms(1);
    tap_answer = NULL;
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_INDETERMINATE); /* not NOMEM: the releases are out */
    CU_ASSERT_PTR_NOT_NULL(strstr(got.error.message, "acquire \"a\": "));
    show_slots();
    CU_ASSERT_EQUAL(stats_of(&rig).waiting, behind ? 1 : 0);
    sim->end(held);
    sim->let_go(held);
    advance_ms(100);
    if (behind)
        give_back(&other);
    memory_is_back(TRY);
}

static void test_no_claim_for_the_head(void)
{
    no_claim_for_the_head(true);
    no_claim_for_the_head(false);
}

/* Not a reason to fail: the request waits for a second. */
static void test_no_room_for_the_holder(void)
{
    start(CONFIG);
    missing = sizeof(struct holder_room);
    want(&rig, &got, "a", FOREVER);
    CU_ASSERT_EQUAL(tap_count, 0);
    advance_ms(999);
    CU_ASSERT_EQUAL(tap_count, 0);
    missing = 0;
    advance_ms(1);
    give_back(&got);
    memory_is_back(TRY);
}

/* Nobody tells that the name is free: the list asks again soon, and then watches. */
static void test_no_watch(void)
{
    start(CONFIG);
    sim->seize("a", MORTISE_NEVER);
    missing = sizeof(struct watch);
    want(&rig, &got, "a", FOREVER);
    advance_ms(1000);
    CU_ASSERT(tapped_count(MORTISE_OP_ACQUIRE) >= 4);
    CU_ASSERT_EQUAL(sim->waiters("a"), 0);
    missing = 0;
    advance_ms(260);
    CU_ASSERT_EQUAL(sim->waiters("a"), 1);
    sim->give_back("a");
    settle();
    give_back(&got);
    memory_is_back(TRY);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"no slot for a claim", test_no_slot},
        {"no room for its owner", test_no_owner},
        {"no timer for it", test_no_timer},
        {"no waitlist", test_no_waitlist},
        {"no queue to join", test_no_queue},
        {"no further claim for the head", test_no_claim_for_the_head},
        {"no room for the holder", test_no_room_for_the_holder},
        {"no watch of the name", test_no_watch},
        CU_TEST_INFO_NULL,
    };
    return rig_run("claim_memory", tests);
}
