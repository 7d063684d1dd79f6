/* test_stuck.c - the end of a client whose driver breaks its contract for good (R9): it never answers, not even a
 * cancel, or it hangs in a call. The close ends in a bounded time, and nothing that the driver may still use is
 * freed. So something is never freed, and each test has its own process. And a system that gives no more threads. */
#include "close_test.h"

#include <errno.h>
#include <semaphore.h>

static void never_answers(void)
{
    mortise_lease *lease;
    rig_open_real(&rig, CONFIG);
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a", TRY, &lease, NULL), MORTISE_OK);
    SCRIPT(.fate = SIM_SILENT, .on_cancel = SIM_CANCEL_IGNORED);
    close_in_time(MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(sim->instances(), 0);
}

/* ---- a driver that stands still inside a call ------------------------------------------------------ */

static sem_t stuck, go;

static void stuck_start(void *ctx, mortise_op **ops, size_t n)
{
    sem_post(&stuck);
    while (sem_wait(&go) != 0)
        continue;
    sim_start(ctx, ops, n);
}

static void begin_to_stick(void)
{
    pthread_mutex_lock(&rig.client->pump.lock);
    sim_start = rig.client->top->module.start;
    rig.client->top->module.start = stuck_start;
    pthread_mutex_unlock(&rig.client->pump.lock);
}

static void stand_still(void)
{
    sem_init(&stuck, 0, 0);
    sem_init(&go, 0, 0);
    begin_to_stick();
}

static bool service_ended(void *argument)
{
    struct pump *pump = argument;
    pthread_mutex_lock(&pump->lock);
    bool ended = !pump->inside && !pump->service_runs;
    pthread_mutex_unlock(&pump->lock);
    return ended;
}

/* The driver goes on, and nothing that it touches has been freed. What the close left standing stays. */
static void go_on(int threads)
{
    for (int i = 0; i < threads; i++)
        sem_post(&go);
    CU_ASSERT(test_poll(service_ended, &rig.client->pump, TEST_PATIENCE_MS));
}

/* A caller of ours is in there. */
static void stuck_with_a_caller(void)
{
    struct caller caller;
    rig_open_real(&rig, CONFIG);
    stand_still();
    caller = (struct caller){.client = rig.handle};
    pthread_create(&caller.thread, NULL, wait_for_a, &caller);
    while (sem_wait(&stuck) != 0)
        continue;
    close_in_time(MORTISE_UNREACHABLE);
    go_on(10);
    pthread_join(caller.thread, NULL);
    CU_ASSERT_EQUAL(caller.status, MORTISE_CLOSED);
}

/* The close's own requests would be the first to be caught. */
static void stuck_with_the_close(void)
{
    mortise_lease *lease;
    rig_open_real(&rig, CONFIG);
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a", TRY, &lease, NULL), MORTISE_OK);
    stand_still();
    close_in_time(MORTISE_UNREACHABLE);
    go_on(10);
}

static void (*sim_close)(void *ctx);
static size_t left_at_the_close;

static void look_and_close(void *ctx)
{
    left_at_the_close = sim->outstanding();
    sim_close(ctx);
}

static bool given_up(void *argument)
{
    struct locks *locks = argument;
    pthread_mutex_lock(&locks->lock);
    bool is = locks->abandoning;
    pthread_mutex_unlock(&locks->lock);
    return is;
}

static void *let_go_late(void *argument)
{
    CU_ASSERT(test_poll(given_up, argument, TEST_PATIENCE_MS));
    for (int i = 0; i < 10; i++)
        sem_post(&go);
    return NULL;
}

/* The driver comes back, and has the name, when the close has canceled what there was. The release that follows is not
 * answered, and the driver is not closed with it: it is canceled too. */
static void test_comes_back_late(void)
{
    struct caller caller;
    pthread_t late;
    rig_open_real(&rig, CONFIG);
    stand_still();
    sim_close = rig.client->top->module.close;
    rig.client->top->module.close = look_and_close;
    left_at_the_close = 1000;
    SCRIPT(.kinds = OP(RELEASE), .fate = SIM_SILENT);
    caller = (struct caller){.client = rig.handle};
    pthread_create(&caller.thread, NULL, wait_for_a, &caller);
    while (sem_wait(&stuck) != 0)
        continue;
    pthread_create(&late, NULL, let_go_late, &rig.client->locks);
    close_in_time(MORTISE_UNREACHABLE);
    pthread_join(late, NULL);
    pthread_join(caller.thread, NULL);
    CU_ASSERT_EQUAL(sim->count(MORTISE_OP_RELEASE), 1);
    CU_ASSERT_EQUAL(left_at_the_close, 0);
    CU_ASSERT_EQUAL(sim->instances(), 0);
}

static void close_inside(mortise_lease *lease, mortise_lease_state state, void *user_data)
{
    (void)lease;
    if (state != MORTISE_STATE_LOST)
        return;
    mortise_close(rig.handle, NULL);
    test_count_add(user_data, 1);
}

/* The driver is stuck in a renewal, so the lease is lost, so the callback closes the client: who runs the
 * callback must not free what the stuck thread will come back to. */
static void stuck_and_closed_in_a_callback(void)
{
    static struct test_count closed = TEST_COUNT_INIT;
    mortise_lease *lease;
    rig_open_real(&rig, CONFIG);
    CU_ASSERT_EQUAL_FATAL(
        mortise_acquire(rig.handle, "a",
                        MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 100, .on_state = close_inside,
                                        .user_data = &closed),
                        &lease, NULL),
        MORTISE_OK);
    stand_still();
    CU_ASSERT(test_count_wait(&closed, 1));
    mortise_close(rig.handle,
                  NULL); /* waits for the rest of that close, which leaves standing what is stuck */
    go_on(10);
}

static void give_back_and_leave(mortise_status status, mortise_lease *lease,
                                const mortise_error *error, void *user_data)
{
    (void)status;
    (void)error;
    (void)user_data;
    begin_to_stick();
    CU_ASSERT_EQUAL(mortise_release_nowait(lease, NULL), MORTISE_OK);
}

static void *dispatch_once(void *argument)
{
    (void)argument;
    while (mortise_dispatch(rig.handle) == 0)
        continue;
    return NULL;
}

/* A thread that dispatches, and has run its callbacks, is in there. */
static void stuck_with_a_dispatcher(void)
{
    pthread_t dispatcher;
    sem_init(&stuck, 0, 0);
    sem_init(&go, 0, 0);
    rig_open_real(&rig, CONFIG);
    CU_ASSERT_FATAL(mortise_fd(rig.handle, NULL) >= 0);
    CU_ASSERT_EQUAL(
        mortise_acquire_async(rig.handle, "a", FOREVER, give_back_and_leave, NULL, NULL, NULL),
        MORTISE_OK);
    pthread_create(&dispatcher, NULL, dispatch_once, NULL);
    while (sem_wait(&stuck) != 0)
        continue;
    close_in_time(MORTISE_UNREACHABLE);
    go_on(10);
    pthread_join(dispatcher, NULL);
}

/* ---- a system that gives no more threads ----------------------------------------------------------- */

static _Atomic int threads_left = 1000;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument)
{
    if (atomic_fetch_sub(&threads_left, 1) <= 0)
        return EAGAIN;
    return __real_pthread_create(thread, attributes, run, argument);
}

static mortise_status try_a(mortise_lease **lease, mortise_error *error)
{
    return mortise_acquire(rig.handle, "a", TRY, lease, error);
}

/* No lease is acquired if nobody could renew it, also if only one of the two threads can be started. */
static void acquire_without_threads(void)
{
    mortise_lease *lease;
    mortise_error error = {.message = ""};
    rig_open_real(&rig, CONFIG);
    for (int count = 0; count < 2; count++) {
        atomic_store(&threads_left, count);
        CU_ASSERT_EQUAL(try_a(&lease, &error), MORTISE_NOMEM);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "no thread"));
    }
    CU_ASSERT_EQUAL(sim->count(MORTISE_OP_ACQUIRE), 0);
    atomic_store(&threads_left, 1000);
    CU_ASSERT_EQUAL(try_a(&lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
}

static bool renewed_three_times(void *argument)
{
    (void)argument;
    return stats_of(&rig).renewals >= 3;
}

/* The answers are read, although no thread can be started after the first lease was acquired. */
static void renew_without_threads(void)
{
    mortise_lease *lease;
    rig_open_real(&rig, "ttl = 1h\nclose_timeout = 20s\n");
    CU_ASSERT_EQUAL_FATAL(try_a(&lease, NULL), MORTISE_OK);
    atomic_store(&threads_left, 0);
    SCRIPT(.kinds = OP(RENEW), .reply_ns = 20 * MS);
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "b",
                                          MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = 1500), &lease,
                                          NULL),
                          MORTISE_OK);
    CU_ASSERT(test_poll(renewed_three_times, NULL, TEST_PATIENCE_MS / 3));
    CU_ASSERT_EQUAL(stats_of(&rig).losses, 0);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
}

static void count_grant(mortise_status status, mortise_lease *lease, const mortise_error *error,
                        void *user_data)
{
    (void)lease;
    (void)error;
    CU_ASSERT_EQUAL(status, MORTISE_OK);
    test_count_add(user_data, 1);
}

static void call_back_without_threads(void)
{
    static struct test_count granted = TEST_COUNT_INIT;
    static struct states states;
    mortise_lease *lease;
    rig_open_real(&rig, "ttl = 1h\nclose_timeout = 20s\n");
    CU_ASSERT_EQUAL_FATAL(
        mortise_acquire(rig.handle, "b",
                        MORTISE_OPTIONS(.wait_ms = 0, .on_state = on_state, .user_data = &states),
                        &lease, NULL),
        MORTISE_OK);
    atomic_store(&threads_left, 0);
    SCRIPT(.kinds = OP(ACQUIRE), .reply_ns = 20 * MS);
    CU_ASSERT_EQUAL(
        mortise_acquire_async(rig.handle, "a", FOREVER, count_grant, &granted, NULL, NULL),
        MORTISE_OK);
    CU_ASSERT(test_count_wait(&granted, 1));
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
}

/* The close gives back what is held though it can start no thread. */
static void close_without_threads(void)
{
    mortise_lease *lease;
    rig_open_real(&rig, "ttl = 30s\nclose_timeout = 20s\n");
    CU_ASSERT_EQUAL_FATAL(try_a(&lease, NULL), MORTISE_OK);
    SCRIPT(.kinds = OP(RELEASE), .reply_ns = 20 * MS);
    atomic_store(&threads_left, 0);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
    ASSERT_NOTHING_LEFT();
    CU_ASSERT_EQUAL(sim->instances(), 0);
}

/* A call on the client that does not return, though nobody is in there: OK would be a lie. */
static void call_that_stays(void)
{
    struct client *client;
    rig_open_real(&rig, CONFIG);
    CU_ASSERT_EQUAL_FATAL(client_enter(rig.handle, &client, NULL), MORTISE_OK);
    close_in_time(MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(sim->instances(), 1); /* the call may use it */
}

/* ---- callers that wait for an answer --------------------------------------------------------------- */

static void *release_it(void *argument)
{
    struct caller *caller = argument;
    int64_t from_ms = test_now_ms();
    caller->status = mortise_release(caller->lease, NULL);
    caller->took_ms = test_now_ms() - from_ms;
    return NULL;
}

static void release_while_closing(const sim_rule *rule)
{
    struct caller caller;
    rig_open_real(&rig, CONFIG "unreachable_timeout = 60s\n");
    caller = (struct caller){.client = rig.handle};
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a",
                                          MORTISE_OPTIONS(.wait_ms = 0, .owner = "o"),
                                          &caller.lease, NULL),
                          MORTISE_OK);
    int number = sim->script(rule);
    pthread_create(&caller.thread, NULL, release_it, &caller);
    CU_ASSERT(sim->wait_hits(number, 1, TEST_PATIENCE_MS));
    close_in_time(MORTISE_UNREACHABLE);
    pthread_join(caller.thread, NULL);
    CU_ASSERT(caller.took_ms < 30000);
    CU_ASSERT(caller.status == MORTISE_UNREACHABLE || caller.status == MORTISE_INDETERMINATE);
    CU_ASSERT_EQUAL(sim->instances(), 0); /* nobody is left inside: all of it is gone */
}

/* Its release is between two tries. */
static void test_release_backs_off(void)
{
    release_while_closing(
        &(sim_rule){.kinds = OP(RELEASE), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE});
}

/* Its release is with the driver, which does not answer. */
static void release_unanswered(void)
{
    release_while_closing(
        &(sim_rule){.kinds = OP(RELEASE), .fate = SIM_SILENT, .on_cancel = SIM_CANCEL_IGNORED});
}

/* ---- an open that fails ------------------------------------------------------------------------------ */

static _Atomic bool knock;

static void *poke(void *argument)
{
    (void)argument;
    while (atomic_load(&knock))
        sim->news_all();
    return NULL;
}

/* The driver has posted something, so the service thread is there, when something else does not open. */
static void failed_open_with_threads(void)
{
    pthread_t thread;
    atomic_store(&knock, true);
    pthread_create(&thread, NULL, poke, NULL);
    for (int i = 0; i < 300; i++)
        CU_ASSERT_EQUAL(rig_try_open(&rig, false, "observe = nosuch\n", NULL), MORTISE_CONFIG);
    atomic_store(&knock, false);
    pthread_join(thread, NULL);
    CU_ASSERT_EQUAL(sim->instances(), 0);
}

static void test_failed_open_with_threads(void)
{
    in_child(failed_open_with_threads);
}

/* ---- the same, each in its process ------------------------------------------------------------------ */

static void test_never_answers(void)
{
    in_child(never_answers);
}

static void test_stuck_with_a_caller(void)
{
    in_child(stuck_with_a_caller);
}

static void test_stuck_with_a_dispatcher(void)
{
    in_child(stuck_with_a_dispatcher);
}

static void test_acquire_without_threads(void)
{
    in_child(acquire_without_threads);
}

static void test_renew_without_threads(void)
{
    in_child(renew_without_threads);
}

static void test_call_back_without_threads(void)
{
    in_child(call_back_without_threads);
}

static void test_close_without_threads(void)
{
    in_child(close_without_threads);
}

static void test_call_that_stays(void)
{
    in_child(call_that_stays);
}

static void test_stuck_with_the_close(void)
{
    in_child(stuck_with_the_close);
}

static void test_stuck_and_closed_in_a_callback(void)
{
    in_child(stuck_and_closed_in_a_callback);
}

static void test_release_unanswered(void)
{
    in_child(release_unanswered);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"R9: the driver never answers", test_never_answers},
        {"R9: it is stuck with a caller", test_stuck_with_a_caller},
        {"R9: it comes back late", test_comes_back_late},
        {"R9: it is stuck with the close", test_stuck_with_the_close},
        {"R9: it is stuck with a dispatcher", test_stuck_with_a_dispatcher},
        {"R9: it is stuck, a callback closes", test_stuck_and_closed_in_a_callback},
        {"no thread for an acquire", test_acquire_without_threads},
        {"no more threads for renewals", test_renew_without_threads},
        {"no more threads for a callback", test_call_back_without_threads},
        {"no more threads for a close", test_close_without_threads},
        {"R9: a call does not return", test_call_that_stays},
        {"a release that backs off", test_release_backs_off},
        {"a release without an answer", test_release_unanswered},
        {"an open that failed, with threads", test_failed_open_with_threads},
        CU_TEST_INFO_NULL,
    };
    return rig_run("stuck", tests);
}
