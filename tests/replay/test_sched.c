/* test_sched.c - the scheduler alone, with toy programs: a wake-up that is lost, an order of locks that deadlocks, a race
 * that loses an update, and what must be the same for each seed. Each run is a process of its own, because a failure ends
 * it.
 *
 *     test_sched          all tests
 *     test_sched TOY A-B  the outcomes of these seeds, one line each */
#include "sched.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS INT64_C(1000000)

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 * MS + now.tv_nsec;
}

static void check(bool holds, const char *what)
{
    if (!holds)
        sched_fail("%s", what);
}

/* ---- toys ---- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int number;
static bool ready;

static pthread_t start(void *(*run)(void *), void *argument)
{
    pthread_t thread;
    check(pthread_create(&thread, NULL, run, argument) == 0, "no thread");
    return thread;
}

/* Looks without the mutex, and misses a signal that comes before it waits. */
static void *waits_carelessly(void *argument)
{
    (void)argument;
    pthread_mutex_lock(&mutex);
    bool wait = !ready;
    pthread_mutex_unlock(&mutex);
    pthread_mutex_lock(&mutex);
    if (wait)
        pthread_cond_wait(&cond, &mutex);
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static void toy_lost_wakeup(void)
{
    pthread_t waiter = start(waits_carelessly, NULL);
    pthread_mutex_lock(&mutex);
    ready = true;
    pthread_cond_signal(&cond);
    pthread_mutex_unlock(&mutex);
    pthread_join(waiter, NULL);
}

static void *locks_other_first(void *argument)
{
    (void)argument;
    pthread_mutex_lock(&other);
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    pthread_mutex_unlock(&other);
    return NULL;
}

static void toy_deadlock(void)
{
    pthread_t thread = start(locks_other_first, NULL);
    pthread_mutex_lock(&mutex);
    pthread_mutex_lock(&other);
    pthread_mutex_unlock(&other);
    pthread_mutex_unlock(&mutex);
    pthread_join(thread, NULL);
}

static void *adds_in_two_steps(void *argument)
{
    (void)argument;
    for (int i = 0; i < 3; i++) {
        pthread_mutex_lock(&mutex);
        int seen = number;
        pthread_mutex_unlock(&mutex);
        pthread_mutex_lock(&mutex);
        number = seen + 1;
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static void toy_lost_update(void)
{
    pthread_t one = start(adds_in_two_steps, NULL), two = start(adds_in_two_steps, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    check(number == 6, "an update was lost");
}

/* Three threads want a turn in the order of their numbers; every way of waiting takes part. */
static _Atomic int turn;
static int poke_fd;

static void *waits_for_turn(void *argument)
{
    int mine = (int)(intptr_t)argument;
    for (int round = 0; round < 3; round++) {
        pthread_mutex_lock(&mutex);
        while (atomic_load(&turn) % 3 != mine)
            pthread_cond_wait(&cond, &mutex);
        atomic_fetch_add(&turn, 1);
        pthread_cond_broadcast(&cond);
        pthread_mutex_unlock(&mutex);
    }
    uint64_t one = 1;
    check(write(poke_fd, &one, sizeof one) == sizeof one, "no write");
    return NULL;
}

static void *sleeps(void *argument)
{
    const int *timer = argument;
    uint64_t count;
    int64_t before = now_ns();
    check(read(*timer, &count, sizeof count) == sizeof count, "the timer cannot be read");
    check(now_ns() - before >= 40 * MS, "the timer came too early");
    usleep(1000);
    return NULL;
}

static void toy_sound(void)
{
    pthread_t threads[3];
    struct epoll_event event = {.events = EPOLLIN};
    int64_t before = now_ns();
    poke_fd = eventfd(0, EFD_NONBLOCK);
    int epoll = epoll_create1(0), low = timerfd_create(CLOCK_MONOTONIC, 0);
    int timer = fcntl(low, F_DUPFD_CLOEXEC, 100);
    close(low);
    epoll_ctl(epoll, EPOLL_CTL_ADD, poke_fd, &event);
    check(epoll_wait(epoll, &event, 1, 50) == 0, "an event without a write");
    check(now_ns() - before >= 50 * MS, "epoll_wait() came back too early");
    timerfd_settime(timer, 0, &(struct itimerspec){.it_value.tv_nsec = 50 * MS}, NULL);
    pthread_t sleeper = start(sleeps, &timer);
    for (intptr_t i = 0; i < 3; i++)
        threads[i] = start(waits_for_turn, (void *)i);
    check(epoll_wait(epoll, &event, 1, -1) == 1, "the write was not seen");
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    pthread_join(sleeper, NULL);
    check(turn == 9, "a turn is missing");
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 3600; /* an hour costs nothing */
    pthread_mutex_lock(&mutex);
    while (pthread_cond_timedwait(&cond, &mutex, &until) == 0)
        continue;
    pthread_mutex_unlock(&mutex);
    check(now_ns() - before >= 3600000 * MS, "the condition came too early");
}

/* A process that is stopped does nothing until it goes on; one that is killed does nothing ever again. */
static void *counts(void *argument)
{
    _Atomic int *count = argument;
    for (;;) {
        atomic_fetch_add(count, 1);
        usleep(10000);
    }
    return NULL;
}

static void *tells_process(void *process)
{
    *(int *)process = sched_process();
    return NULL;
}

/* A thread that one process makes in the data of another is of the process that has made these data. */
static void check_owner(void)
{
    pthread_mutex_t *theirs = malloc(sizeof(*theirs));
    int process = 0;
    sched_set_process(1);
    pthread_mutex_init(theirs, NULL);
    sched_set_process(2);
    pthread_mutex_lock(theirs);
    pthread_t thread = start(tells_process, &process);
    pthread_mutex_unlock(theirs);
    pthread_join(thread, NULL);
    sched_set_process(0);
    pthread_mutex_destroy(theirs);
    free(theirs);
    check(process == 1, "a thread is of the process that locked a mutex first, and not of the one that made it");
}

static void toy_processes(void)
{
    static _Atomic int one, two;
    check_owner();
    pthread_t thread;
    sched_create(&thread, NULL, counts, &one, 1);
    sched_create(&thread, NULL, counts, &two, 2);
    usleep(100000);
    sched_stop(1, sched_now() + 1000 * MS);
    sched_kill(2);
    usleep(10000);
    int first = one, second = two;
    usleep(900000);
    check(one == first && two == second, "a stopped process runs");
    check(sched_is_killed(2), "the process was not killed");
    usleep(500000);
    check(one > first && two == second, "the wrong process runs");
}

static const struct toy {
    const char *name;
    void (*run)(void);
    bool fails; /* for some seeds, and not for others */
    bool spurious;
} toys[] = {
    {"lost-wakeup", toy_lost_wakeup, true, false}, {"deadlock", toy_deadlock, true, true},
    {"lost-update", toy_lost_update, true, true},  {"sound", toy_sound, false, true},
    {"processes", toy_processes, false, true},
};
enum { TOYS = sizeof toys / sizeof *toys };

/* ---- runs ---- */

static struct sched_settings settings_of(const struct toy *toy, uint64_t seed)
{
    struct sched_settings settings = {.seed = seed,
                                      .jitter_ns = 1000,
                                      .step_limit = 100000,
                                      .time_limit_ns = INT64_C(36000000) * MS};
    settings.switch_one_in = seed % 2 ? 3 : 0;
    settings.change_one_in = 10;
    settings.spurious_one_in = toy->spurious ? 8 : 0;
    return settings;
}

/* The last line of the run, in `line`. Returns its exit code. */
static int run(const struct toy *toy, uint64_t seed, char *line, size_t size)
{
    int ends[2], status;
    if (pipe(ends) != 0)
        return -1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        struct sched_settings settings = settings_of(toy, seed);
        sched_begin(&settings);
        toy->run();
        printf("hash %016llx\n", (unsigned long long)sched_hash());
        fflush(stdout);
        _exit(0);
    }
    close(ends[1]);
    FILE *output = fdopen(ends[0], "r");
    char *got = fgets(line, (int)size, output);
    if (!got)
        line[0] = '\0';
    while (fgetc(output) != EOF)
        continue;
    fclose(output);
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool test(const struct toy *toy)
{
    enum { SEEDS = 40 };
    char line[512], again[512];
    int failed = 0, different = 0, hashes = 0;
    char first[512] = "";
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        int code = run(toy, seed, line, sizeof line);
        if (code < 0 || code > 1)
            return false;
        failed += code;
        different += run(toy, seed, again, sizeof again) != code || strcmp(line, again) != 0;
        hashes += seed > 1 && strcmp(first, line) != 0;
        if (seed == 1)
            memcpy(first, line, sizeof first);
    }
    bool good = different == 0 && hashes > SEEDS / 2 &&
                (toy->fails ? failed > 0 && failed < SEEDS : failed == 0);
    printf("%s: %d of %d seeds fail; %d differ when they run again: %s\n", toy->name, failed, SEEDS,
           different, good ? "ok" : "NOT OK");
    if (!good)
        printf("the last line: %s\n", line);
    return good;
}

int main(int argc, char **argv)
{
    bool good = true;
    for (int i = 0; i < TOYS && argc == 1; i++)
        good &= test(&toys[i]);
    for (int i = 0; i < TOYS && argc == 3; i++) {
        char *end, line[512];
        uint64_t first = strtoull(argv[2], &end, 10), last = first;
        if (*end == '-')
            last = strtoull(end + 1, NULL, 10);
        for (; first <= last && strcmp(argv[1], toys[i].name) == 0; first++) {
            int code = run(&toys[i], first, line, sizeof line);
            printf("%llu: %d %s", (unsigned long long)first, code, line);
        }
    }
    return good ? 0 : 1;
}
