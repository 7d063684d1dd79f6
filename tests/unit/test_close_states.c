/* test_close_states.c - the states of a client (core/client/client.h) that its callbacks and several closes lead to: a
 * callback closes, alone or with others behind it, on each kind of thread; and what other closes return meanwhile. */
#include "callbacks_test.h"

#define SHORT CONFIG "close_timeout = 200ms\n"

static struct inside {
    sem_t entered, close, closed, leave;
    mortise_status first, again; /* of the callback that closes */
    mortise_status later[2];     /* of the callbacks behind it */
    pthread_t thread, later_thread[2];
    int later_count;
} inside;

static void take_turn(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0)
        continue;
}

static void close_and_stay(mortise_status status, mortise_lease *lease, const mortise_error *error,
                           void *user_data)
{
    (void)lease;
    (void)error;
    (void)user_data;
    CU_ASSERT_EQUAL(status, MORTISE_BUSY);
    inside.thread = pthread_self();
    sem_post(&inside.entered);
    take_turn(&inside.close);
    inside.first = mortise_close(rig.handle, NULL);
    inside.again = mortise_close(rig.handle, NULL);
    sem_post(&inside.closed);
    take_turn(&inside.leave);
}

static void close_later(mortise_status status, mortise_lease *lease, const mortise_error *error,
                        void *user_data)
{
    (void)lease;
    (void)error;
    (void)user_data;
    CU_ASSERT_EQUAL(status, MORTISE_CLOSED);
    inside.later_thread[inside.later_count] = pthread_self();
    inside.later[inside.later_count++] = mortise_close(rig.handle, NULL);
}

/* A client with `later` callbacks that will wait behind the one that closes. */
static void open_client(const char *config, int later)
{
    sem_init(&inside.entered, 0, 0);
    sem_init(&inside.close, 0, 0);
    sem_init(&inside.closed, 0, 0);
    sem_init(&inside.leave, 0, 0);
    inside.later_count = 0;
    rig_open_real(&rig, config);
    sim->seize("a", MORTISE_NEVER);
    sim->seize("b", MORTISE_NEVER);
    for (int i = 0; i < later; i++)
        CU_ASSERT_EQUAL(
            mortise_acquire_async(rig.handle, "b", FOREVER, close_later, NULL, NULL, NULL),
            MORTISE_OK);
}

static void ask(void)
{
    CU_ASSERT_EQUAL(mortise_acquire_async(rig.handle, "a", TRY, close_and_stay, NULL, NULL, NULL),
                    MORTISE_OK);
}

static bool is_closed(void *argument)
{
    (void)argument;
    return mortise_close(rig.handle, NULL) == MORTISE_CLOSED;
}

static void assert_ended(void)
{
    CU_ASSERT(test_poll(is_closed, NULL, TEST_PATIENCE_MS));
    CU_ASSERT_EQUAL(mortise_dispatch(rig.handle), MORTISE_CLOSED);
    CU_ASSERT_EQUAL(sim->instances(), 0);
    sim->give_back("a");
    sim->give_back("b");
    ASSERT_NOTHING_LEFT();
}

/* ---- a callback closes, and no other one is left --------------------------------------------------- */

/* The callback hears OK, and then CLOSED; another thread hears CLOSING until the callback has returned. */
static void callback_leaves(bool closed_before)
{
    open_client(SHORT, 0);
    ask();
    take_turn(&inside.entered);
    if (closed_before)
        CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_CLOSING);
    sem_post(&inside.close);
    take_turn(&inside.closed);
    CU_ASSERT_EQUAL(inside.first, MORTISE_OK);
    CU_ASSERT_EQUAL(inside.again, MORTISE_CLOSED);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_CLOSING);
    CU_ASSERT_EQUAL(mortise_dispatch(rig.handle), MORTISE_INVALID); /* it has no descriptor */
    sem_post(&inside.leave);
    assert_ended();
}

static void test_open_to_leaving(void)
{
    callback_leaves(false);
}

static void test_lingering_to_leaving(void)
{
    callback_leaves(true);
}

/* A close on another thread that waits meanwhile returns when the callback does. */
static void *close_once(void *argument)
{
    *(mortise_status *)argument = mortise_close(rig.handle, NULL);
    return NULL;
}

static void test_close_waits_for_a_callback_that_closed(void)
{
    pthread_t closer;
    mortise_status status;
    open_client(CONFIG "close_timeout = 1h\n", 0);
    ask();
    sem_post(&inside.close);
    take_turn(&inside.closed);
    pthread_create(&closer, NULL, close_once, &status);
    poll(NULL, 0, 20); /* so that it waits; it passes too if it does not yet */
    sem_post(&inside.leave);
    pthread_join(closer, NULL);
    CU_ASSERT_EQUAL(status, MORTISE_CLOSED);
    assert_ended();
}

static void *dispatch_once(void *argument)
{
    (void)argument;
    while (mortise_dispatch(rig.handle) == 0)
        sched_yield();
    return NULL;
}

/* Another thread that dispatches meanwhile does not end the client. */
static void test_second_dispatcher(void)
{
    pthread_t dispatcher;
    open_client(SHORT, 0);
    CU_ASSERT(mortise_fd(rig.handle, NULL) >= 0);
    ask();
    pthread_create(&dispatcher, NULL, dispatch_once, NULL);
    sem_post(&inside.close);
    take_turn(&inside.closed);
    CU_ASSERT_EQUAL(inside.first, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_dispatch(rig.handle), 0);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_CLOSING);
    sem_post(&inside.leave);
    pthread_join(dispatcher, NULL);
    assert_ended();
}

/* ---- others are left -------------------------------------------------------------------------------- */

/* All run on the thread of the one that closed; the last one hears CLOSED. */
static void assert_rest_ran(pthread_t thread)
{
    assert_ended();
    CU_ASSERT_EQUAL(inside.first, MORTISE_CLOSING);
    CU_ASSERT_EQUAL(inside.again, MORTISE_CLOSING);
    CU_ASSERT_EQUAL_FATAL(inside.later_count, 2);
    CU_ASSERT_EQUAL(inside.later[0], MORTISE_CLOSING);
    CU_ASSERT_EQUAL(inside.later[1], MORTISE_CLOSED);
    CU_ASSERT(pthread_equal(inside.thread, thread));
    CU_ASSERT(pthread_equal(inside.later_thread[0], thread));
    CU_ASSERT(pthread_equal(inside.later_thread[1], thread));
}

/* fd: the application asks for a descriptor while the callback runs on the library's thread. */
static void close_on_the_notifier(bool fd)
{
    open_client(SHORT, 2);
    ask();
    take_turn(&inside.entered);
    pthread_t notifier = inside.thread;
    if (fd)
        CU_ASSERT(mortise_fd(rig.handle, NULL) >= 0);
    sem_post(&inside.close);
    take_turn(&inside.closed);
    sem_post(&inside.leave);
    assert_rest_ran(notifier);
}

static void test_rest_on_the_notifier(void)
{
    close_on_the_notifier(false);
}

static void test_rest_after_a_descriptor(void)
{
    close_on_the_notifier(true);
}

static void count_one(mortise_status status, mortise_lease *lease, const mortise_error *error,
                      void *user_data)
{
    (void)status;
    (void)lease;
    (void)error;
    test_count_add(user_data, 1);
}

/* The library's thread is there, and runs no callback any more. */
static void test_rest_in_dispatch(void)
{
    static struct test_count done = TEST_COUNT_INIT;
    done.value = 0;
    open_client(SHORT, 2);
    mortise_acquire_async(rig.handle, "a", TRY, count_one, &done, NULL, NULL);
    CU_ASSERT(test_count_wait(&done, 1));
    CU_ASSERT(mortise_fd(rig.handle, NULL) >= 0);
    ask();
    sem_post(&inside.close);
    sem_post(&inside.leave);
    int count;
    while ((count = mortise_dispatch(rig.handle)) == 0)
        sched_yield();
    CU_ASSERT_EQUAL(count, 3);
    assert_rest_ran(pthread_self());
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"OPEN to LEAVING", test_open_to_leaving},
        {"LINGERING to LEAVING", test_lingering_to_leaving},
        {"a close waits for LEAVING to end", test_close_waits_for_a_callback_that_closed},
        {"LEAVING and a second dispatcher", test_second_dispatcher},
        {"the rest, on the notifier", test_rest_on_the_notifier},
        {"the rest, after a descriptor", test_rest_after_a_descriptor},
        {"the rest, in dispatch", test_rest_in_dispatch},
        CU_TEST_INFO_NULL,
    };
    return rig_run("close_states", tests);
}
