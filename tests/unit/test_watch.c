/* test_watch.c - two threads watch and unwatch a name in quick succession: the requests reach the driver in the order
 * in which they were made, although the threads overtake each other on the way to the pump. */
#include "contest_test.h"

#include <semaphore.h>

/* A thread that has made a request under the lock, and has not handed it to the pump yet. */
static _Thread_local bool stops;
static sem_t stopped, goes_on;

void __real_pump_start(struct pump *pump, struct task_list *tasks);
void __wrap_pump_start(struct pump *pump, struct task_list *tasks);

void __wrap_pump_start(struct pump *pump, struct task_list *tasks)
{
    if (stops && tasks->first != NULL) {
        stops = false;
        sem_post(&stopped);
        while (sem_wait(&goes_on) != 0)
            continue;
    }
    __real_pump_start(pump, tasks);
}

static pthread_t start_thread(void *(*body)(void *))
{
    pthread_t thread;
    sem_init(&stopped, 0, 0);
    sem_init(&goes_on, 0, 0);
    CU_ASSERT_FATAL(pthread_create(&thread, NULL, body, NULL) == 0);
    while (sem_wait(&stopped) != 0)
        continue;
    return thread;
}

static void end_thread(pthread_t thread)
{
    sem_post(&goes_on);
    pthread_join(thread, NULL);
    settle();
}

static void *cancel_and_stop(void *argument)
{
    stops = true;
    mortise_cancel(rig.handle, got.request);
    return argument;
}

/* The last caller has left, and its "unwatch" is on its way, when another one comes. */
static void test_watch_after_unwatch(void)
{
    start(CONFIG);
    sim->seize("a", MORTISE_NEVER);
    want(&rig, &got, "a", FOREVER);
    CU_ASSERT_EQUAL(sim->waiters("a"), 1);
    pthread_t thread = start_thread(cancel_and_stop);
    want(&rig, &other, "a", FOREVER);
    end_thread(thread);
    CU_ASSERT_EQUAL(sim->waiters("a"), 1);
    sim->give_back("a");
    settle();
    CU_ASSERT_EQUAL(other.calls, 1); /* news came, long before any timer */
    advance_ms(60000);
    give_back(&other);
    finish();
}

static void *ask_and_stop(void *argument)
{
    stops = true;
    mortise_acquire_async(rig.handle, "a", FOREVER, told, &got, &got.request, NULL);
    return argument;
}

/* The only caller leaves while its "watch" is on its way. */
static void test_unwatch_after_watch(void)
{
    start(CONFIG);
    sim->seize("a", MORTISE_NEVER);
    memset(&got, 0, sizeof(got));
    pthread_t thread = start_thread(ask_and_stop);
    CU_ASSERT_EQUAL(mortise_cancel(rig.handle, got.request), MORTISE_OK);
    end_thread(thread);
    CU_ASSERT_EQUAL(got.status, MORTISE_CANCELED);
    CU_ASSERT_EQUAL(sim->waiters("a"), 0);
    sim->give_back("a");
    finish();
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"a watch after an unwatch", test_watch_after_unwatch},
        {"an unwatch after a watch", test_unwatch_after_watch},
        CU_TEST_INFO_NULL,
    };
    return rig_run("watch", tests);
}
