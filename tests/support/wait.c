/* wait.c - waiting in tests: always for an event, with a time limit that only a failure reaches. */
#include "support.h"

#include <poll.h>
#include <time.h>

int64_t test_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Often at first and then less often: what is looked at is mostly a server, which has something else to do. */
bool test_poll(bool (*ready)(void *argument), void *argument, int64_t timeout_ms)
{
    int64_t began_ms = test_now_ms();
    while (!ready(argument)) {
        int64_t waited_ms = test_now_ms() - began_ms;
        if (waited_ms >= timeout_ms)
            return ready(argument);
        poll(NULL, 0, waited_ms < 100 ? 1 : 5);
    }
    return true;
}

void test_count_add(struct test_count *count, int change)
{
    pthread_mutex_lock(&count->lock);
    count->value += change;
    pthread_cond_broadcast(&count->changed);
    pthread_mutex_unlock(&count->lock);
}

int test_count_get(struct test_count *count)
{
    pthread_mutex_lock(&count->lock);
    int value = count->value;
    pthread_mutex_unlock(&count->lock);
    return value;
}

bool test_count_wait_ms(struct test_count *count, int at_least, int64_t timeout_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&count->lock);
    while (count->value < at_least &&
           pthread_cond_timedwait(&count->changed, &count->lock, &until) == 0)
        continue;
    bool come = count->value >= at_least;
    pthread_mutex_unlock(&count->lock);
    return come;
}

bool test_count_wait(struct test_count *count, int at_least)
{
    return test_count_wait_ms(count, at_least, TEST_PATIENCE_MS);
}
