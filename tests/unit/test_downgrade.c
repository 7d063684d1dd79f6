/* test_downgrade.c - an exclusive lease becomes shared: the table of core/lock/downgrade.c, and who gets in. */
#include "lock/lease.h"
#include "rig.h"

#include <pthread.h>

#define CONFIG "ttl = 3s\n"
#define SHARED MORTISE_OPTIONS(.wait_ms = MORTISE_WAIT_FOREVER, .mode = MORTISE_SHARED)

static struct rig rig, other, third;
static mortise_lease *lease;
static mortise_error error;

static void start(const char *config)
{
    rig_open(&rig, config);
    lease = take(&rig, "a", NULL);
    tap(&rig);
}

static void finish(void)
{
    settle();
    ASSERT_NOTHING_LEFT();
    rig_close(&rig);
}

static void give_back(mortise_lease *given)
{
    CU_ASSERT_EQUAL(mortise_release(given, NULL), MORTISE_OK);
    settle();
}

static uint32_t holders(void)
{
    mortise_info info = {.size = sizeof(info)};
    CU_ASSERT_EQUAL(mortise_inspect(rig.handle, "a", &info, NULL), MORTISE_OK);
    return info.mode == MORTISE_SHARED ? info.holders : 0;
}

static void test_downgrade(void)
{
    start(CONFIG);
    uint64_t token = mortise_token(lease);
    observe(&rig);
    CU_ASSERT_EQUAL(mortise_downgrade(lease, &error), MORTISE_OK);
    CU_ASSERT_EQUAL(events[0].kind, MORTISE_EVENT_DOWNGRADED);
    CU_ASSERT_EQUAL(mortise_token(lease), token);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(holders(), 1);
    mortise_lease *reader = take(&rig, "a", SHARED);
    CU_ASSERT_EQUAL(mortise_downgrade(lease, &error), MORTISE_OK); /* it is shared already */
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), 1);
    advance_ms(10000);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(tapped(MORTISE_OP_RENEW, 1)->op.mode, MORTISE_SHARED);
    CU_ASSERT_EQUAL(tapped(MORTISE_OP_RENEW, 1)->op.flags, 0);
    give_back(lease);
    CU_ASSERT_EQUAL(mortise_downgrade(lease, NULL), MORTISE_INVALID);
    give_back(reader);
    finish();
}

/* A reader at the head of the queue gets in; the writer behind it does not, nor the reader behind the writer. */
static void test_crowd(void)
{
    struct outcome first, writer, last;
    start(CONFIG "[sim]\nqueue = yes\n");
    rig_open(&other, CONFIG "[sim]\nqueue = yes\n");
    want(&other, &first, "a", SHARED);
    want(&rig, &writer, "a", FOREVER);
    rig_open(&third, CONFIG "[sim]\nqueue = yes\n");
    want(&third, &last, "a", SHARED);
    CU_ASSERT_EQUAL(mortise_downgrade(lease, NULL), MORTISE_OK);
    settle();
    CU_ASSERT_EQUAL_FATAL(first.status, MORTISE_OK);
    CU_ASSERT_EQUAL(writer.calls + last.calls, 0);
    give_back(first.lease);
    CU_ASSERT_EQUAL(writer.calls, 0);
    give_back(lease);
    CU_ASSERT_EQUAL_FATAL(writer.status, MORTISE_OK);
    CU_ASSERT_EQUAL(last.calls, 0);
    give_back(writer.lease);
    CU_ASSERT_EQUAL_FATAL(last.status, MORTISE_OK);
    give_back(last.lease);
    rig_close(&other);
    rig_close(&third);
    finish();
}

/* WANTED, no answer: MAYBE, and it is repeated. */
static void test_reply_lost(void)
{
    start(CONFIG);
    SCRIPT(.kinds = OP(RENEW), .times = 2, .fate = SIM_LOSE_REPLY, .status = MORTISE_INDETERMINATE);
    SCRIPT(.kinds = OP(RENEW), .times = 1, .fate = SIM_REFUSE, .status = MORTISE_BACKEND);
    rig_open_real(&other, CONFIG);
    /* the retries need the clock: a client of its own */
    mortise_lease *mine;
    CU_ASSERT_EQUAL(mortise_acquire(other.handle, "b", NULL, &mine, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_downgrade(mine, &error), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_state(mine), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(sim->count(MORTISE_OP_RENEW), 4);
    CU_ASSERT_EQUAL(mortise_release(mine, NULL), MORTISE_OK);
    rig_close(&other);
    set_now(START_NS);
    give_back(lease);
    finish();
}

/* Nobody answers at all: the caller is told so, and the release finds the claim in either mode. */
static void test_silence(void)
{
    rig_open_real(&rig, "ttl = 30s\nunreachable_timeout = 200ms\n");
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "a", NULL, &lease, NULL), MORTISE_OK);
    tap(&rig);
    SCRIPT(.kinds = OP(RENEW), .fate = SIM_SILENT_EXECUTED);
    CU_ASSERT_EQUAL(mortise_downgrade(lease, &error), MORTISE_INDETERMINATE);
    CU_ASSERT_EQUAL(error.status, MORTISE_INDETERMINATE);
    CU_ASSERT_EQUAL(mortise_downgrade(lease, NULL), MORTISE_INDETERMINATE); /* waits once more */
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(tapped(MORTISE_OP_RELEASE, 0)->op.flags, MORTISE_OP_DOWNGRADE);
    CU_ASSERT_EQUAL(tapped(MORTISE_OP_RELEASE, 0)->op.mode, MORTISE_EXCLUSIVE);
    rig_close(&rig);
    CU_ASSERT_EQUAL(sim->claims(), 0);
}

/* No renewal reaches the backend: the request stays wanted without a caller, and a later call waits for it as well. */
static void test_unreachable(void)
{
    rig_open_real(&rig, "ttl = 30s\nunreachable_timeout = 200ms\n");
    tap(&rig);
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "a", NULL, &lease, NULL), MORTISE_OK);
    int rule = SCRIPT(.kinds = OP(RENEW), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(mortise_downgrade(lease, &error), MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(error.status, MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_SUSPECT);
    CU_ASSERT_EQUAL(mortise_downgrade(lease, NULL), MORTISE_UNREACHABLE); /* waits once more */
    struct claim *claim = slab_find(&claim_slab, lease);
    pthread_mutex_lock(&rig.client->locks.lock);
    CU_ASSERT_EQUAL(claim->downgrade, DOWNGRADE_WANTED);
    locks_unlock(&rig.client->locks, START_NOW);
    CU_ASSERT_EQUAL(holders(), 0);
    sim->end(rule);
    CU_ASSERT_EQUAL(mortise_downgrade(lease, &error), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(holders(), 1);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(tapped(MORTISE_OP_RELEASE, 0)->op.flags, 0);
    rig_close(&rig);
    CU_ASSERT_EQUAL(sim->claims(), 0);
}

static void test_refused(void)
{
    start(CONFIG);
    SCRIPT(.kinds = OP(RENEW), .times = 1, .fate = SIM_REFUSE, .status = MORTISE_BACKEND);
    CU_ASSERT_EQUAL(mortise_downgrade(lease, &error), MORTISE_BACKEND);
    CU_ASSERT_EQUAL(error.status, MORTISE_BACKEND);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD); /* not suspect */
    CU_ASSERT_EQUAL(holders(), 0);
    advance_ms(4000);
    CU_ASSERT_EQUAL(tapped(MORTISE_OP_RENEW, 1)->op.flags, 0); /* it is not repeated */
    CU_ASSERT_EQUAL(mortise_downgrade(lease, &error), MORTISE_OK);
    CU_ASSERT_EQUAL(holders(), 1);
    give_back(lease);
    finish();
}

static void test_lost(void)
{
    start(CONFIG);
    sim->lose("a");
    CU_ASSERT_EQUAL(mortise_downgrade(lease, &error), MORTISE_LOST);
    CU_ASSERT_EQUAL(error.status, MORTISE_LOST);
    CU_ASSERT_EQUAL(mortise_downgrade(lease, &error), MORTISE_LOST);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    finish();
}

/* The call sees the deadline pass before the watchdog does: the callback hears of the loss all the same. */
static void test_sees_the_deadline_first(void)
{
    struct states states = {0};
    rig_open(&rig, CONFIG);
    lease = take(&rig, "a", MORTISE_OPTIONS(.on_state = on_state, .user_data = &states));
    set_now(now_ns() + 3000 * MS);
    CU_ASSERT_EQUAL(mortise_downgrade(lease, &error), MORTISE_LOST);
    settle();
    CU_ASSERT(states.count == 1 && states.seen[0] == MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    sim->lose_all(); /* it has expired: the sim would see that with the next request */
    finish();
}

static void test_invalid(void)
{
    rig_open(&rig, CONFIG);
    lease = take(&rig, "a", MORTISE_OPTIONS(.owner = "us"));
    CU_ASSERT_EQUAL(mortise_downgrade(lease, &error), MORTISE_INVALID);
    give_back(lease);
    finish();
    start(CONFIG "[sim]\nwithout = shared\n");
    CU_ASSERT_EQUAL(mortise_downgrade(lease, &error), MORTISE_NOTSUP);
    CU_ASSERT_EQUAL(tap_count, 0);
    give_back(lease);
    finish();
}

/* A lease that is not renewed: the request does not make it longer. */
static void test_no_renew(void)
{
    rig_open(&rig, CONFIG);
    lease = take(&rig, "a", MORTISE_OPTIONS(.no_renew = true));
    advance_ms(1000);
    int64_t remaining_ms = mortise_remaining_ms(lease);
    CU_ASSERT_EQUAL(mortise_downgrade(lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_remaining_ms(lease), remaining_ms);
    give_back(lease);
    finish();
}

static mortise_status downgrade_status;

static void *downgrade(void *argument)
{
    (void)argument;
    downgrade_status = mortise_downgrade(lease, NULL);
    return NULL;
}

/* The other thread waits in mortise_downgrade(). */
static bool downgrade_waits(void *unused)
{
    (void)unused;
    struct locks *locks = &rig.client->locks;
    struct claim *claim = slab_find(&claim_slab, lease);
    pthread_mutex_lock(&locks->lock);
    bool waits = claim->downgrader != NULL;
    locks_unlock(locks, START_NOW);
    return waits;
}

static bool renewal_held(void *rule)
{
    return sim->held(*(int *)rule) == 1;
}

/* A renewal that was sent before is on its way: the request follows its answer. */
static void test_behind_a_renewal(bool released)
{
    pthread_t thread;
    rig_open_real(&rig, "ttl = 2s\n");
    tap(&rig); /* before the client has threads */
    int rule = SCRIPT(.kinds = OP(RENEW), .times = 1, .hold_reply = true);
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "a", NULL, &lease, NULL), MORTISE_OK);
    CU_ASSERT(test_poll(renewal_held, &rule, TEST_PATIENCE_MS));
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, downgrade, NULL), 0);
    CU_ASSERT(test_poll(downgrade_waits, NULL, TEST_PATIENCE_MS));
    CU_ASSERT_EQUAL(tapped(MORTISE_OP_RENEW, 0)->op.flags, 0);
    CU_ASSERT_EQUAL(mortise_downgrade(lease, NULL), MORTISE_INVALID); /* one thread at a time */
    if (released)
        CU_ASSERT_NOT_EQUAL(mortise_release(lease, NULL), MORTISE_INVALID);
    sim->let_go(rule);
    pthread_join(thread, NULL);
    if (released)
        CU_ASSERT_EQUAL(downgrade_status, MORTISE_INVALID)
    else {
        CU_ASSERT_EQUAL(downgrade_status, MORTISE_OK);
        CU_ASSERT_EQUAL(holders(), 1);
        CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    }
    rig_close(&rig);
    CU_ASSERT_EQUAL(sim->claims(), 0);
}

/* The driver doubts the claim while the request is out, which is refused: the doubt is not forgotten. */
static void test_doubted_meanwhile(void)
{
    rig_open(&rig, CONFIG);
    lease = take(&rig, "a", MORTISE_OPTIONS(.no_renew = true));
    tap(&rig);
    SCRIPT(.kinds = OP(RENEW), .times = 1, .request_ns = 10 * MS, .fate = SIM_REFUSE,
           .status = MORTISE_BACKEND);
    struct release_wait wait = {.status = MORTISE_BUSY};
    struct locks *locks = &rig.client->locks;
    sleeper_init(&wait.sleeper, &rig.client->pump);
    pthread_mutex_lock(&locks->lock);
    lease_downgrade_locked(slab_find(&claim_slab, lease), &wait);
    locks_unlock(locks, START_NOW);
    CU_ASSERT(sim->lose("a"));
    claims_doubt(locks, "a", 1);
    advance_ms(10);
    CU_ASSERT_EQUAL(wait.status, MORTISE_BACKEND);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    finish();
}

static void test_renewal_under_way(void)
{
    test_behind_a_renewal(false);
}

static void test_released_meanwhile(void)
{
    test_behind_a_renewal(true);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"a lease becomes shared", test_downgrade},
        {"who gets in", test_crowd},
        {"the reply is lost", test_reply_lost},
        {"no reply at all", test_silence},
        {"unreachable, and asked again", test_unreachable},
        {"refused", test_refused},
        {"lost", test_lost},
        {"the call sees the deadline first", test_sees_the_deadline_first},
        {"invalid, not supported", test_invalid},
        {"a lease that is not renewed", test_no_renew},
        {"a renewal is under way", test_renewal_under_way},
        {"released meanwhile", test_released_meanwhile},
        {"doubted meanwhile", test_doubted_meanwhile},
        CU_TEST_INFO_NULL,
    };
    return rig_run("downgrade", tests);
}
