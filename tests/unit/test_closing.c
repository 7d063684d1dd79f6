/* test_closing.c - callbacks and the end of a client (C1, C2, R9): once mortise_close() has returned OK or
 * UNREACHABLE, no callback runs and none will, whoever closes the client, and on whatever thread. */
#include "callbacks_test.h"

/* ---- a client that is closed in a callback --------------------------------------------------------- */

static void close_here(mortise_status status, mortise_lease *lease, const mortise_error *error,
                       void *user_data)
{
    mortise_status *closed = user_data;
    (void)lease;
    (void)error;
    if (status == MORTISE_OK)
        *closed = rig_close_any(&rig);
}

static void test_close_in_dispatch(void)
{
    mortise_status closed = MORTISE_BUSY;
    struct outcome waiting;
    rig_open(&rig, CONFIG);
    sim->seize("b", MORTISE_NEVER);
    want(&rig, &waiting, "b", FOREVER);
    mortise_client *client = rig.handle;
    mortise_acquire_async(client, "a", FOREVER, close_here, &closed, NULL, NULL);
    settle();
    CU_ASSERT_EQUAL(closed, MORTISE_CLOSING); /* another callback was left */
    CU_ASSERT_EQUAL(waiting.calls, 1);        /* which ran in the same dispatch */
    CU_ASSERT_EQUAL(waiting.status, MORTISE_CLOSED);
    CU_ASSERT_EQUAL(mortise_dispatch(client), MORTISE_CLOSED);
    sim->give_back("b");
    ASSERT_NOTHING_LEFT();
    CU_ASSERT_EQUAL(sim->instances(), 0);
}

static void close_real(mortise_status status, mortise_lease *lease, const mortise_error *error,
                       void *user_data)
{
    (void)lease;
    (void)error;
    if (status == MORTISE_OK)
        CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
    test_count_add(user_data, 1);
}

static void test_close_on_the_notifier(void)
{
    static struct test_count done = TEST_COUNT_INIT;
    for (int i = 0; i < 20; i++) {
        rig_open_real(&rig, CONFIG);
        mortise_acquire_async(rig.handle, "a", FOREVER, close_real, &done, NULL, NULL);
        CU_ASSERT(test_count_wait(&done, i + 1));
    }
    CU_ASSERT(test_poll(no_instances, NULL, TEST_PATIENCE_MS));
    ASSERT_NOTHING_LEFT();
}

/* R9: nor does it keep a close for ever. */
static void test_blocked_callback_and_close(void)
{
    static struct running running; /* outlives this function, as its thread does */
    mortise_lease *lost;
    sem_init(&running.entered, 0, 0);
    sem_init(&running.leave, 0, 0);
    rig_open_real(&rig, CONFIG "close_timeout = 100ms\n");
    lost = lose_and_linger(rig.handle, "lost", &running);
    int64_t from_ms = test_now_ms();
    mortise_error error;
    CU_ASSERT_EQUAL(mortise_close(rig.handle, &error), MORTISE_CLOSING);
    CU_ASSERT_EQUAL(error.status, MORTISE_CLOSING);
    CU_ASSERT(test_now_ms() - from_ms < TEST_PATIENCE_MS);
    CU_ASSERT_FALSE(atomic_load(&running.left));
    CU_ASSERT_EQUAL(sim->instances(), 0); /* all else is over */
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "a", TRY, &lost, NULL), MORTISE_CLOSED);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_CLOSING); /* as often as one likes */
    sem_post(&running.leave);
    mortise_status status;
    do
        error.status = MORTISE_OK; /* a close that succeeds leaves it alone */
    while ((status = mortise_close(rig.handle, &error)) == MORTISE_CLOSING);
    CU_ASSERT_EQUAL(status, MORTISE_OK);
    CU_ASSERT_EQUAL(error.status, MORTISE_OK);
    CU_ASSERT(atomic_load(&running.left));
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_CLOSED);
}

/* ---- no callback after the close ------------------------------------------------------------------- */

static struct last {
    sem_t entered, leave;
    _Atomic bool closed; /* the close said OK */
    _Atomic int began, ended, after;
} last;

/* The first one lingers; none may begin, or still run, when the close has returned OK. */
static void note_last(mortise_status status, mortise_lease *lease, const mortise_error *error,
                      void *user_data)
{
    (void)status;
    (void)lease;
    (void)error;
    (void)user_data;
    atomic_fetch_add(&last.after, atomic_load(&last.closed));
    if (atomic_fetch_add(&last.began, 1) == 0) {
        sem_post(&last.entered);
        while (sem_wait(&last.leave) != 0)
            continue;
    }
    atomic_fetch_add(&last.after, atomic_load(&last.closed));
    atomic_fetch_add(&last.ended, 1);
}

#define LAST 5

static void ask_for_the_last(void)
{
    sem_init(&last.entered, 0, 0);
    sem_init(&last.leave, 0, 0);
    last.began = last.ended = last.after = 0;
    last.closed = false;
    mortise_acquire_async(rig.handle, "a", FOREVER, note_last, NULL, NULL, NULL);
    for (int i = 1; i < LAST; i++)
        mortise_acquire_async(rig.handle, "a", FOREVER, note_last, NULL, NULL, NULL);
}

static void *leave_soon(void *argument)
{
    (void)argument;
    poll(NULL, 0, 20); /* in which a close that does not wait would return */
    sem_post(&last.leave);
    return NULL;
}

static void test_no_callback_after_the_close(void)
{
    pthread_t helper;
    for (int round = 0; round < 10; round++) {
        rig_open_real(&rig, CONFIG "close_timeout = 60s\n");
        ask_for_the_last();
        while (sem_wait(&last.entered) != 0)
            continue;
        pthread_create(&helper, NULL, leave_soon, NULL);
        CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
        CU_ASSERT_EQUAL(atomic_load(&last.ended), LAST);
        atomic_store(&last.closed, true);
        pthread_join(helper, NULL);
        CU_ASSERT_EQUAL(atomic_load(&last.after), 0);
    }
    ASSERT_NOTHING_LEFT();
}

/* It lingers longer than the close waits. The close says so, and the next one waits for all of them. */
static void test_callbacks_left_by_a_close(void)
{
    rig_open_real(&rig, CONFIG "close_timeout = 100ms\n");
    ask_for_the_last();
    while (sem_wait(&last.entered) != 0)
        continue;
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_CLOSING);
    CU_ASSERT_EQUAL(atomic_load(&last.began), 1);
    sem_post(&last.leave);
    mortise_status status;
    while ((status = mortise_close(rig.handle, NULL)) == MORTISE_CLOSING)
        continue;
    /* On a busy machine the release of what was held may take longer than close_timeout. */
    CU_ASSERT(status == MORTISE_OK || status == MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(atomic_load(&last.ended), LAST);
    ASSERT_NOTHING_LEFT();
    CU_ASSERT_EQUAL(sim->instances(), 0);
}

/* With mortise_fd() callbacks run in mortise_dispatch() alone, also those of a close: it may be called under a mutex
 * that they take, and it waits for nobody who does not dispatch. */
static pthread_mutex_t callbacks_take = PTHREAD_MUTEX_INITIALIZER;

static void take_and_count(mortise_status status, mortise_lease *lease, const mortise_error *error,
                           void *user_data)
{
    (void)lease;
    (void)error;
    pthread_mutex_lock(&callbacks_take);
    *(int *)user_data += status == MORTISE_CLOSED;
    pthread_mutex_unlock(&callbacks_take);
}

static void test_close_runs_no_callback(void)
{
    int count = 0;
    rig_open_real(&rig, CONFIG "close_timeout = 1h\n");
    int fd = mortise_fd(rig.handle, NULL);
    sim->seize("a", MORTISE_NEVER);
    for (int i = 0; i < LAST; i++)
        mortise_acquire_async(rig.handle, "a", FOREVER, take_and_count, &count, NULL, NULL);
    pthread_mutex_lock(&callbacks_take);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_CLOSING);
    pthread_mutex_unlock(&callbacks_take);
    CU_ASSERT_EQUAL(count, 0);
    CU_ASSERT(readable(fd));
    CU_ASSERT_EQUAL(mortise_dispatch(rig.handle), LAST);
    CU_ASSERT_EQUAL(count, LAST);
    CU_ASSERT_EQUAL(mortise_dispatch(rig.handle), 0);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_dispatch(rig.handle), MORTISE_CLOSED);
    sim->give_back("a");
    ASSERT_NOTHING_LEFT();
}

static void *dispatch_to_the_end(void *argument)
{
    (void)argument;
    while (mortise_dispatch(rig.handle) >= 0)
        sched_yield();
    return NULL;
}

/* Another thread dispatches: the close waits for the callback that runs there, and for those behind it. */
static void test_close_beside_a_dispatcher(void)
{
    pthread_t dispatcher, helper;
    for (int round = 0; round < 10; round++) {
        rig_open_real(&rig, CONFIG "close_timeout = 60s\n");
        CU_ASSERT(mortise_fd(rig.handle, NULL) >= 0);
        ask_for_the_last();
        pthread_create(&dispatcher, NULL, dispatch_to_the_end, NULL);
        while (sem_wait(&last.entered) != 0)
            continue;
        pthread_create(&helper, NULL, leave_soon, NULL);
        mortise_status status;
        while ((status = mortise_close(rig.handle, NULL)) == MORTISE_CLOSING)
            sched_yield();
        CU_ASSERT_EQUAL(status, MORTISE_OK);
        CU_ASSERT_EQUAL(atomic_load(&last.ended), LAST);
        atomic_store(&last.closed, true);
        pthread_join(helper, NULL);
        pthread_join(dispatcher, NULL);
        CU_ASSERT_EQUAL(atomic_load(&last.after), 0);
    }
    ASSERT_NOTHING_LEFT();
}

/* ---- notices of released leases ------------------------------------------------------------------- */

/* A change that waits to be told when its lease is released is no callback: no dispatch counts it, and no close says
 * that something is left. */
static void test_spent_notices(void)
{
    struct states states = {0};
    rig_open_real(&rig, CONFIG);
    CU_ASSERT_FATAL(mortise_fd(rig.handle, NULL) >= 0);
    for (int round = 0; round < 2; round++) {
        mortise_lease *lease =
            take(&rig, "a", MORTISE_OPTIONS(.on_state = on_state, .user_data = &states));
        struct claim *claim = slab_find(&claim_slab, lease);
        events_push_state(&rig.client->events, &claim->change, MORTISE_STATE_SUSPECT);
        CU_ASSERT_EQUAL(rig.client->events.count, 1);
        CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
        if (round == 0)
            CU_ASSERT_EQUAL(mortise_dispatch(rig.handle), 0);
    }
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(states.count, 0);
}

/* ---- several close ---------------------------------------------------------------------------------- */

static void *close_to_the_end(void *argument)
{
    mortise_status *status = argument;
    while ((*status = mortise_close(rig.handle, NULL)) == MORTISE_CLOSING)
        continue;
    return NULL;
}

static bool close_waits(void *argument)
{
    struct client *client = argument;
    pthread_mutex_lock(&client->events.lock);
    bool waits = client->events.stopping;
    pthread_mutex_unlock(&client->events.lock);
    return waits;
}

/* Whoever closes hears nothing but CLOSING until no callback runs; then one hears OK, and the other CLOSED. */
static void test_second_closer(void)
{
    pthread_t closer;
    mortise_status first, second;
    rig_open_real(&rig, CONFIG "close_timeout = 200ms\n");
    ask_for_the_last();
    while (sem_wait(&last.entered) != 0)
        continue;
    pthread_create(&closer, NULL, close_to_the_end, &first);
    CU_ASSERT(test_poll(close_waits, rig.client, TEST_PATIENCE_MS));
    for (int i = 0; i < 3; i++)
        CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_CLOSING);
    sem_post(&last.leave);
    close_to_the_end(&second);
    CU_ASSERT_EQUAL(atomic_load(&last.ended), LAST);
    atomic_store(&last.closed, true);
    pthread_join(closer, NULL);
    CU_ASSERT((first == MORTISE_CLOSED) != (second == MORTISE_CLOSED));
    CU_ASSERT_EQUAL(atomic_load(&last.after), 0);
    ASSERT_NOTHING_LEFT();
    CU_ASSERT_EQUAL(sim->instances(), 0);
}

static mortise_status closed_beside;

static void close_beside(mortise_status status, mortise_lease *lease, const mortise_error *error,
                         void *user_data)
{
    (void)status;
    (void)lease;
    (void)error;
    test_count_add(user_data, 1);
    CU_ASSERT(test_poll(close_waits, rig.client, TEST_PATIENCE_MS));
    closed_beside = mortise_close(rig.handle, NULL);
}

/* A close inside a callback, for which another close waits, waits for nobody. */
static void test_second_closer_inside(void)
{
    static struct test_count begun = TEST_COUNT_INIT;
    mortise_status status;
    rig_open_real(&rig, CONFIG "close_timeout = 1h\n");
    mortise_acquire_async(rig.handle, "a", FOREVER, close_beside, &begun, NULL, NULL);
    CU_ASSERT(test_count_wait(&begun, 1));
    int64_t from_ms = test_now_ms();
    close_to_the_end(&status);
    CU_ASSERT(test_now_ms() - from_ms < TEST_PATIENCE_MS);
    CU_ASSERT_EQUAL(status, MORTISE_OK);
    CU_ASSERT_EQUAL(closed_beside, MORTISE_CLOSING);
    CU_ASSERT_EQUAL(sim->instances(), 0);
}

/* ---- a call that has not returned -------------------------------------------------------------------- */

static void *release_lost(void *argument)
{
    CU_ASSERT_EQUAL(mortise_release(argument, NULL), MORTISE_LOST);
    return NULL;
}

static bool one_is_in(void *argument)
{
    (void)argument;
    return atomic_load(&rig.client->users) == 1;
}

static bool stack_stopped(void *argument)
{
    struct pump *pump = argument;
    pthread_mutex_lock(&pump->lock);
    bool stopped = pump->stopping;
    pthread_mutex_unlock(&pump->lock);
    return stopped;
}

/* A release waits for its callback, longer than the close waits for the release. When the close has waited for the
 * callback, the release is over too, and nothing of the client is left. */
static mortise_status release_outlasts_the_close(void)
{
    struct running running = {.left = false};
    pthread_t releaser, closer;
    mortise_lease *lease;
    mortise_status status;
    sem_init(&running.entered, 0, 0);
    sem_init(&running.leave, 0, 0);
    rig_open_real(&rig, CONFIG "close_timeout = 1s\n");
    lease = lose_and_linger(rig.handle, "a", &running);
    pthread_create(&releaser, NULL, release_lost, lease);
    CU_ASSERT(test_poll(one_is_in, NULL, TEST_PATIENCE_MS));
    pthread_create(&closer, NULL, close_to_the_end, &status);
    CU_ASSERT(test_poll(stack_stopped, &rig.client->pump, TEST_PATIENCE_MS));
    sem_post(&running.leave);
    pthread_join(closer, NULL);
    pthread_join(releaser, NULL);
    return status;
}

/* On a busy machine the release may need longer than the close waits, but not each time. */
static void test_release_outlasts_the_close(void)
{
    mortise_status status = MORTISE_UNREACHABLE;
    for (int i = 0; i < 5 && status == MORTISE_UNREACHABLE; i++)
        status = release_outlasts_the_close();
    CU_ASSERT_EQUAL(status, MORTISE_OK);
    CU_ASSERT_EQUAL(sim->instances(), 0);
}

/* ---- a release and a close ------------------------------------------------------------------------- */

struct crossed {
    struct test_count begun, ended;
};

static void close_while_released(mortise_lease *lease, mortise_lease_state state, void *user_data)
{
    struct crossed *crossed = user_data;
    (void)lease;
    (void)state;
    test_count_add(&crossed->begun, 1);
    poll(NULL, 0, 20); /* so that the release waits for this; it passes too if it does not yet */
    mortise_close(rig.handle, NULL);
    test_count_add(&crossed->ended, 1);
}

/* How long it took. */
static int64_t cross_release_and_close(void)
{
    static struct crossed crossed = {TEST_COUNT_INIT, TEST_COUNT_INIT};
    mortise_lease *lease;
    crossed.begun.value = crossed.ended.value = 0;
    rig_open_real(&rig, "close_timeout = 1h\n");
    CU_ASSERT_EQUAL_FATAL(
        mortise_acquire(rig.handle, "a",
                        MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 60, .no_renew = true,
                                        .on_state = close_while_released, .user_data = &crossed),
                        &lease, NULL),
        MORTISE_OK);
    CU_ASSERT(test_count_wait(&crossed.begun, 1));
    int64_t from_ms = test_now_ms();
    mortise_status status = mortise_release(lease, NULL); /* it may come when all is over */
    CU_ASSERT(status == MORTISE_LOST || status == MORTISE_CLOSED || status == MORTISE_INVALID);
    CU_ASSERT(test_count_wait(&crossed.ended, 1));
    int64_t took_ms = test_now_ms() - from_ms;
    CU_ASSERT(test_poll(no_instances, NULL, TEST_PATIENCE_MS));
    return took_ms;
}

/* The release waits for the callback, and the callback closes the client, which waits for the release. Neither waits for
 * a second that nobody wakes it from: one time in five at least, for the machine may stand still as long. */
static void test_release_and_close_cross(void)
{
    int64_t least_ms = INT64_MAX;
    for (int i = 0; i < 5; i++) {
        int64_t took_ms = cross_release_and_close();
        least_ms = took_ms < least_ms ? took_ms : least_ms;
    }
    CU_ASSERT(least_ms < 900);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"close inside, in dispatch", test_close_in_dispatch},
        {"close inside, on the notifier", test_close_on_the_notifier},
        {"R9: a blocked callback and a close", test_blocked_callback_and_close},
        {"a release and a close cross", test_release_and_close_cross},
        {"no callback after the close", test_no_callback_after_the_close},
        {"callbacks left by a close", test_callbacks_left_by_a_close},
        {"a close runs no callback of a descriptor", test_close_runs_no_callback},
        {"a close beside a dispatcher", test_close_beside_a_dispatcher},
        {"notices of released leases", test_spent_notices},
        {"a second closer", test_second_closer},
        {"a second closer, in a callback", test_second_closer_inside},
        {"a release that outlasts the close", test_release_outlasts_the_close},
        CU_TEST_INFO_NULL,
    };
    return rig_run("closing", tests);
}
