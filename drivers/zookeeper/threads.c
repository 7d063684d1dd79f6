/* threads.c - whether the library can have its threads. zookeeper_init2() starts two, and ends the process by an assertion if
 * the system refuses one. So the driver first starts two of its own, which exist at the same time, and ends them again.
 * Somebody else may take their places in between (docs/promises.md). */
#include "session.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LIBRARY_THREADS 2
#define GONE_TRIES 100 /* of a tenth of a millisecond each: the first ones are enough */

struct trial {
    pthread_t thread;
    pthread_mutex_t *all_started;
    pid_t id;
};

static void *wait_for_all(void *argument)
{
    struct trial *trial = argument;
    trial->id = (pid_t)syscall(SYS_gettid);
    pthread_mutex_lock(trial->all_started);
    pthread_mutex_unlock(trial->all_started);
    return NULL;
}

/* The system counts a thread for a moment after it was joined. */
static void await_end(pid_t id)
{
    const struct timespec moment = {0, NS_PER_MS / 10};
    for (int i = 0; i < GONE_TRIES && syscall(SYS_tgkill, getpid(), id, 0) == 0; i++)
        nanosleep(&moment, NULL);
}

bool threads_are_there(void)
{
    pthread_mutex_t all_started = PTHREAD_MUTEX_INITIALIZER;
    struct trial trials[LIBRARY_THREADS];
    int count = 0;
    pthread_mutex_lock(&all_started);
    for (; count < LIBRARY_THREADS; count++) {
        trials[count].all_started = &all_started;
        if (pthread_create(&trials[count].thread, NULL, wait_for_all, &trials[count]) != 0)
            break;
    }
    pthread_mutex_unlock(&all_started);
    for (int i = 0; i < count; i++) {
        pthread_join(trials[i].thread, NULL);
        await_end(trials[i].id);
    }
    pthread_mutex_destroy(&all_started);
    return count == LIBRARY_THREADS;
}
