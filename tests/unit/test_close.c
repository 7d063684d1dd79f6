/* test_close.c - the end of a client (R9): mortise_close() takes a bounded time, fails the calls that wait and
 * releases the leases, even if the driver answers late, twice, or only to a cancel. test_stuck.c has worse drivers.
 *
 * If the end must wait for something, the client is a real one, with threads and the machine's clock. Its
 * close_timeout is short; bounds of time are so large that only a failure reaches them. */
#include "close_test.h"

#include <fcntl.h>

static struct outcome got;

/* ---- what is held, what waits ---------------------------------------------------------------------- */

static void test_gives_back(void)
{
    enum { LEASES = 300 };
    rig_open(&rig, CONFIG);
    mortise_lease *lease = NULL;
    for (int i = 0; i < LEASES; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%d", i);
        lease = take(&rig, name, NULL);
    }
    CU_ASSERT_EQUAL(sim->claims(), LEASES);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT();
    CU_ASSERT_EQUAL(sim->instances(), 0);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
}

static void test_fails_what_waits(void)
{
    struct outcome second, alone;
    rig_open(&rig, CONFIG);
    sim->seize("a", MORTISE_NEVER);
    want(&rig, &got, "a", FOREVER);
    want(&rig, &second, "a", FOREVER);
    int held = SCRIPT(.kinds = OP(ACQUIRE), .name = "b", .hold_request = true,
                      .on_cancel = SIM_CANCEL_CLEAN);
    want(&rig, &alone, "b", TRY);
    rig_close(&rig); /* what waits for its callback gets it before that returns */
    CU_ASSERT_EQUAL(got.calls + second.calls + alone.calls, 3);
    CU_ASSERT_EQUAL(got.status, MORTISE_CLOSED);
    CU_ASSERT_EQUAL(second.status, MORTISE_CLOSED);
    CU_ASSERT_EQUAL(alone.status, MORTISE_CLOSED);
    CU_ASSERT_EQUAL(sim->held(held), 0);
    sim->give_back("a");
    ASSERT_NOTHING_LEFT();
}

static bool all_wait(void *argument)
{
    return stats_of(&rig).waiting == *(uint64_t *)argument;
}

static void test_callers_return(void)
{
    enum { CALLERS = 20 }; /* more than one list of those to wake has room for */
    struct caller callers[CALLERS];
    uint64_t count = CALLERS;
    rig_open_real(&rig, CONFIG);
    sim->seize("a", MORTISE_NEVER);
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){.client = rig.handle};
        pthread_create(&callers[i].thread, NULL, wait_for_a, &callers[i]);
    }
    CU_ASSERT(test_poll(all_wait, &count, TEST_PATIENCE_MS));
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(callers[i].thread, NULL);
        CU_ASSERT_EQUAL(callers[i].status, MORTISE_CLOSED);
        CU_ASSERT_PTR_NULL(callers[i].lease);
    }
    sim->give_back("a");
    ASSERT_NOTHING_LEFT();
    CU_ASSERT_EQUAL(sim->instances(), 0);
}

static void test_twice(void)
{
    mortise_client *client;
    mortise_lease *lease = NULL;
    mortise_error error;
    rig_open(&rig, CONFIG);
    client = rig.handle;
    rig_close(&rig);
    CU_ASSERT_EQUAL(mortise_close(client, &error), MORTISE_CLOSED);
    CU_ASSERT_EQUAL(error.status, MORTISE_CLOSED);
    CU_ASSERT_EQUAL(mortise_acquire(client, "a", TRY, &lease, NULL), MORTISE_CLOSED);
    CU_ASSERT_PTR_NULL(lease);
    mortise_error refused = {.status = MORTISE_OK};
    CU_ASSERT_EQUAL(mortise_close(NULL, NULL), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mortise_close(NULL, &refused), MORTISE_INVALID);
    CU_ASSERT_EQUAL(refused.status, MORTISE_INVALID);
    CU_ASSERT_PTR_NOT_NULL(strstr(refused.message, "NULL"));
}

/* ---- a driver in trouble --------------------------------------------------------------------------- */

static void test_backend_away(void)
{
    mortise_lease *lease;
    rig_open_real(&rig, CONFIG);
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a", TRY, &lease, NULL), MORTISE_OK);
    SCRIPT(.fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    close_in_time(MORTISE_UNREACHABLE); /* and it says so */
    CU_ASSERT_EQUAL(sim->instances(), 0);
    CU_ASSERT_EQUAL(sim->claims(), 1); /* until its ttl */
}

static _Atomic int cancels;
static void (*sim_cancel)(void *ctx, mortise_op *op);

static void count_cancel(void *ctx, mortise_op *op)
{
    atomic_fetch_add(&cancels, 1);
    sim_cancel(ctx, op);
}

/* A driver that answers nothing but a cancel: each of its ops has come back before it is closed. */
static void test_unanswered_is_canceled(void)
{
    enum { LEASES = 5 };
    for (int round = 0; round < 5; round++) {
        mortise_lease *lease;
        rig_open_real(&rig, CONFIG);
        atomic_store(&cancels, 0);
        pthread_mutex_lock(&rig.client->pump.lock);
        sim_cancel = rig.client->top->module.cancel;
        rig.client->top->module.cancel = count_cancel;
        pthread_mutex_unlock(&rig.client->pump.lock);
        for (int i = 0; i < LEASES; i++) {
            char name[16];
            snprintf(name, sizeof(name), "%d of %d", i, round);
            CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, name, TRY, &lease, NULL), MORTISE_OK);
        }
        int rule = SCRIPT(.kinds = OP(RELEASE), .fate = SIM_SILENT);
        close_in_time(MORTISE_UNREACHABLE);
        CU_ASSERT_EQUAL(atomic_load(&cancels), LEASES);
        sim->end(rule);
    }
    CU_ASSERT_EQUAL(sim->instances(), 0);
}

/* The answer comes while the close waits for it. */
static void test_answers_late(void)
{
    mortise_lease *lease;
    rig_open_real(&rig, "ttl = 30s\nclose_timeout = 20s\n");
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a", TRY, &lease, NULL), MORTISE_OK);
    SCRIPT(.kinds = OP(RELEASE), .reply_ns = 50 * MS);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
    ASSERT_NOTHING_LEFT();
}

/* A request that was sent may be executed after the close, although its ttl is over: that is not the end of it. */
static void test_request_under_way(void)
{
    mortise_lease *lease;
    rig_open_real(&rig, "ttl = 50ms\nclose_timeout = 20s\n");
    int rule = SCRIPT(.kinds = OP(ACQUIRE), .times = 1, .fate = SIM_GHOST,
                      .status = MORTISE_INDETERMINATE, .hold_request = true);
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a", TRY, &lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(sim->claims(), 0);
    sim->let_go(rule);
    sim->news_all();
    CU_ASSERT_EQUAL(sim->ghosts(), 0);
    CU_ASSERT(sim->lose("a"));
}

/* A grant that is on its way when the client closes is given back, by a close that waits for it. */
static void test_granted_while_closing(void)
{
    rig_open_real(&rig, "ttl = 30s\nclose_timeout = 20s\n");
    int slow = SCRIPT(.kinds = OP(ACQUIRE), .reply_ns = 50 * MS, .on_cancel = SIM_CANCEL_IGNORED);
    memset(&got, 0, sizeof(got));
    CU_ASSERT_EQUAL(mortise_acquire_async(rig.handle, "a", FOREVER, told, &got, &got.request, NULL),
                    MORTISE_OK);
    CU_ASSERT(sim->wait_hits(slow, 1, TEST_PATIENCE_MS));
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_CLOSED);
    ASSERT_NOTHING_LEFT();
}

static void test_answers_twice(void)
{
    rig_open(&rig, CONFIG);
    SCRIPT(.twice = true);
    mortise_lease *lease = take(&rig, "a", NULL);
    advance_ms(30000);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    take(&rig, "b", NULL);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT();
}

/* ---- many calls and a close ------------------------------------------------------------------------ */

static _Atomic bool knock;

static void *knocking(void *argument)
{
    mortise_client *client = argument;
    while (atomic_load(&knock))
        mortise_capabilities(client);
    return NULL;
}

/* Calls on a client that is being closed come and go; none of them holds the close up. */
static void test_knocking_at_the_door(void)
{
    enum { ROUNDS = 30, KNOCKERS = 3 };
    bool late = false;
    for (int round = 0; round < ROUNDS && !late; round++) {
        pthread_t threads[KNOCKERS];
        rig_open_real(&rig, "close_timeout = 60s\n");
        atomic_store(&knock, true);
        for (int i = 0; i < KNOCKERS; i++)
            pthread_create(&threads[i], NULL, knocking, rig.handle);
        mortise_lease *lease;
        CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "a", TRY, &lease, NULL), MORTISE_OK);
        int64_t from_ms = test_now_ms();
        CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
        late = test_now_ms() - from_ms >= 30000; /* one that is not woken waits for a minute */
        atomic_store(&knock, false);
        for (int i = 0; i < KNOCKERS; i++)
            pthread_join(threads[i], NULL);
    }
    CU_ASSERT(!late);
    ASSERT_NOTHING_LEFT();
    CU_ASSERT_EQUAL(sim->instances(), 0);
}

/* A refusal that will not change: the claim stays for its ttl, and the close says so. */
static void test_refused_for_good(void)
{
    rig_open(&rig, CONFIG);
    take(&rig, "a", NULL);
    SCRIPT(.kinds = OP(RELEASE), .fate = SIM_REFUSE, .status = MORTISE_NOTSUP);
    CU_ASSERT_EQUAL(rig_close_any(&rig), MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(sim->claims(), 1);
}

static void *release_it(void *argument)
{
    struct caller *caller = argument;
    caller->status = mortise_release(caller->lease, NULL);
    return NULL;
}

/* The close tells who waits for a release that its second try was sent; the first one was not. */
static void test_release_sent_at_second_try(void)
{
    struct caller caller = {.status = MORTISE_OK};
    rig_open_real(&rig, CONFIG "unreachable_timeout = 60s\n");
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a", TRY, &caller.lease, NULL), MORTISE_OK);
    SCRIPT(.kinds = OP(RELEASE), .times = 1, .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    int held = SCRIPT(.kinds = OP(RELEASE), .hold_reply = true);
    pthread_create(&caller.thread, NULL, release_it, &caller);
    CU_ASSERT(sim->wait_hits(held, 1, TEST_PATIENCE_MS));
    close_in_time(MORTISE_UNREACHABLE);
    pthread_join(caller.thread, NULL);
    CU_ASSERT_EQUAL(caller.status, MORTISE_INDETERMINATE);
    ASSERT_NOTHING_LEFT();
}

/* A release that ended with its claim's ttl long ago is not left behind. */
static void test_old_trouble(void)
{
    rig_open(&rig, "ttl = 3s\n");
    mortise_lease *lease = take(&rig, "a", NULL);
    int away = SCRIPT(.kinds = OP(RELEASE), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(mortise_release_nowait(lease, NULL), MORTISE_OK);
    advance_ms(6000);
    CU_ASSERT_EQUAL(rig.client->locks.outstanding, 0);
    sim->end(away);
    rig_close(&rig);
}

static int descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++) /* the core's own begin at 500 */
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static bool are_as_before(void *argument)
{
    return descriptors() == *(int *)argument;
}

static void test_descriptors(void)
{
    rig_open_real(&rig, ""); /* what a process opens once */
    rig_close(&rig);
    int before = descriptors();
    rig_open_real(&rig, "");
    mortise_lease *lease = take(&rig, "a", NULL), *none;
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "a", MORTISE_OPTIONS(.wait_ms = 50), &none, NULL),
                    MORTISE_TIMEDOUT);
    CU_ASSERT(descriptors() > before);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    rig_close(&rig);
    CU_ASSERT(test_poll(are_as_before, &before, TEST_PATIENCE_MS));
}

static void test_failed_open(void)
{
    mortise_error error = {.message = ""};
    CU_ASSERT_EQUAL(rig_try_open(&rig, false, "require = quorum\n", &error), MORTISE_CONFIG);
    CU_ASSERT_PTR_NULL(rig.handle);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "\"quorum\""));
    CU_ASSERT_EQUAL(sim->instances(), 0);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"what is held is given back", test_gives_back},
        {"what waits fails", test_fails_what_waits},
        {"callers that wait return", test_callers_return},
        {"a second close", test_twice},
        {"R9: the backend is away", test_backend_away},
        {"the end cancels what is unanswered", test_unanswered_is_canceled},
        {"the driver answers late", test_answers_late},
        {"a request is still under way", test_request_under_way},
        {"it grants while the client closes", test_granted_while_closing},
        {"it answers twice", test_answers_twice},
        {"knocking at the door", test_knocking_at_the_door},
        {"a release that is refused for good", test_refused_for_good},
        {"a release sent at its second try", test_release_sent_at_second_try},
        {"old trouble", test_old_trouble},
        {"no descriptor is left", test_descriptors},
        {"an open that failed", test_failed_open},
        CU_TEST_INFO_NULL,
    };
    return rig_run("close", tests);
}
