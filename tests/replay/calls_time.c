/* calls_time.c - clocks, sleeps, random bytes and the process id of a program that runs under the scheduler.
 *
 * All clocks that go on steadily are the scheduler's. The time of day is that plus an offset of each process, which may
 * jump. */
#include "calls.h"
#include "real.h"
#include "sched.h"

#include <errno.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/time.h>

#define NS_PER_S INT64_C(1000000000)

static int64_t wall_offset_ns[SCHED_PROCESSES];

void calls_set_wall(int process, int64_t offset_ns)
{
    wall_offset_ns[process] = offset_ns;
}

int64_t calls_duration(const struct timespec *duration)
{
    int64_t ns;
    if (__builtin_mul_overflow((int64_t)duration->tv_sec, NS_PER_S, &ns) ||
        __builtin_add_overflow(ns, (int64_t)duration->tv_nsec, &ns) ||
        ns > SCHED_NEVER - sched_now())
        return SCHED_NEVER - sched_now();
    return ns;
}

static int64_t wall_behind(void)
{
    return CALLS_WALL_NS + wall_offset_ns[sched_process()];
}

static bool is_wall(clockid_t clock)
{
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
}

int64_t calls_instant(clockid_t clock, const struct timespec *at)
{
    int64_t ns = calls_duration(at);
    return is_wall(clock) ? ns - wall_behind() : ns;
}

static struct timespec timespec_of(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!sched_on() || clock == CLOCK_PROCESS_CPUTIME_ID || clock == CLOCK_THREAD_CPUTIME_ID)
        return real()->clock_gettime(clock, now);
    *now = timespec_of(sched_read_clock() + (is_wall(clock) ? wall_behind() : 0));
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec ns;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &ns);
    now->tv_sec = ns.tv_sec;
    now->tv_usec = ns.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now)
{
    struct timespec ns;
    clock_gettime(CLOCK_REALTIME, &ns);
    if (now)
        *now = ns.tv_sec;
    return ns.tv_sec;
}

static void sleep_until(int64_t due_ns)
{
    while (sched_now() < due_ns)
        sched_wait(WAIT_TIME, NULL, NULL, due_ns);
}

int nanosleep(const struct timespec *duration, struct timespec *left)
{
    if (!sched_on())
        return real()->nanosleep(duration, left);
    sleep_until(sched_now() + calls_duration(duration));
    return 0;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *at, struct timespec *left)
{
    if (!sched_on())
        return real()->clock_nanosleep(clock, flags, at, left);
    sleep_until(flags & TIMER_ABSTIME ? calls_instant(clock, at)
                                      : sched_now() + calls_duration(at));
    return 0;
}

int usleep(useconds_t us)
{
    if (!sched_on())
        return real()->usleep(us);
    sleep_until(sched_now() + (int64_t)us * 1000);
    return 0;
}

int sched_yield(void)
{
    if (!sched_on())
        return real()->sched_yield();
    sched_point(POINT_YIELD);
    return 0;
}

ssize_t getrandom(void *bytes, size_t size, unsigned flags)
{
    if (!sched_on())
        return real()->getrandom(bytes, size, flags);
    sched_random(bytes, size);
    return (ssize_t)size;
}

/* Each process of the run has its own. */
pid_t getpid(void)
{
    return sched_on() ? 100 + sched_process() : (pid_t)real()->syscall(SYS_getpid);
}
