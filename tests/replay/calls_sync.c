/* calls_sync.c - mutexes, conditions, threads and futexes of a program that runs under the scheduler.
 *
 * The program that is linked with this file defines the functions below, so its libraries call them in place of the C
 * library's. A thread that the scheduler does not know gets the C library's own.
 *
 * The state of a mutex is kept in its own memory, in the fields that glibc uses: so static mutexes work, and a copy or a
 * memset() does what it does elsewhere. A condition needs no state: the scheduler knows which threads wait for its
 * address. What POSIX leaves undefined is a finding: unlocking a mutex of another thread, destroying one that is
 * locked or a condition that a thread waits for. */
#include "calls.h"
#include "real.h"
#include "sched.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

/* ---- mutexes ---- */

enum { KIND_MASK = 3, RECURSIVE = PTHREAD_MUTEX_RECURSIVE };

static bool is_recursive(const pthread_mutex_t *mutex)
{
    return (mutex->__data.__kind & KIND_MASK) == RECURSIVE;
}

static int me(void)
{
    return (int)sched_thread() + 1;
}

static bool is_locked(const void *address)
{
    return ((const pthread_mutex_t *)address)->__data.__lock != 0;
}

/* A mutex in the data of a library is shared by all processes that the run has in this one. */
static bool is_shared(const pthread_mutex_t *mutex)
{
    return calls_is_static(mutex);
}

static void take(pthread_mutex_t *mutex)
{
    mutex->__data.__lock = 1;
    mutex->__data.__owner = me();
    mutex->__data.__count = 1;
    if (is_shared(mutex))
        sched_hold_shared(+1);
    else if (mutex->__data.__nusers == 0) /* static: it belongs to the process that locks it first */
        mutex->__data.__nusers = (unsigned)sched_process() + 1;
    calls_note_locked(mutex);
}

static void give(pthread_mutex_t *mutex)
{
    calls_note_unlocked(mutex);
    mutex->__data.__lock = 0;
    mutex->__data.__owner = 0;
    mutex->__data.__count = 0;
    if (is_shared(mutex))
        sched_hold_shared(-1);
}

static void lock(pthread_mutex_t *mutex)
{
    while (is_locked(mutex))
        sched_wait(WAIT_MUTEX, mutex, is_locked, SCHED_NEVER);
    take(mutex);
}

/* It belongs to the process that makes it: another one may be the first to lock it, because the sim may wake a client that is
 * just being opened. */
int pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes)
{
    int error = real()->pthread_mutex_init(mutex, attributes);
    if (error == 0 && sched_on() && !is_shared(mutex))
        mutex->__data.__nusers = (unsigned)sched_process() + 1;
    return error;
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    if (!sched_on())
        return real()->pthread_mutex_lock(mutex);
    sched_point(POINT_LOCK);
    if (is_locked(mutex) && mutex->__data.__owner == me()) {
        if (!is_recursive(mutex))
            sched_fail("deadlock: a thread locks a mutex that it has locked");
        mutex->__data.__count++;
        return 0;
    }
    lock(mutex);
    return 0;
}

int pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    if (!sched_on())
        return real()->pthread_mutex_trylock(mutex);
    sched_point(POINT_LOCK);
    if (is_locked(mutex)) {
        if (mutex->__data.__owner != me() || !is_recursive(mutex))
            return EBUSY;
        mutex->__data.__count++;
        return 0;
    }
    take(mutex);
    return 0;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    if (!sched_on())
        return real()->pthread_mutex_unlock(mutex);
    if (!is_locked(mutex) || mutex->__data.__owner != me())
        sched_fail("a thread unlocks a mutex that it has not locked");
    if (--mutex->__data.__count > 0)
        return 0;
    give(mutex);
    sched_point(POINT_UNLOCK);
    return 0;
}

int pthread_mutex_destroy(pthread_mutex_t *mutex)
{
    if (!sched_on())
        return real()->pthread_mutex_destroy(mutex);
    if (is_locked(mutex) || sched_waiting(mutex) > 0)
        sched_fail("a mutex is destroyed that is locked");
    mutex->__data.__kind = -1;
    return 0;
}

/* ---- conditions ---- */

enum { MONOTONIC_BIT = 2 }; /* of __wrefs: what pthread_condattr_setclock() chose */

static void wait_on(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t due_ns, bool *in_time)
{
    if (!is_locked(mutex) || mutex->__data.__owner != me())
        sched_fail("a thread waits for a condition and has not locked the mutex");
    bool spurious = sched_spurious();
    give(mutex);
    if (spurious) {
        sched_point(POINT_YIELD);
        *in_time = true;
    } else
        *in_time = sched_wait(WAIT_COND, cond, NULL, due_ns);
    lock(mutex);
}

int pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    bool in_time;
    if (!sched_on())
        return real()->pthread_cond_wait(cond, mutex);
    wait_on(cond, mutex, SCHED_NEVER, &in_time);
    return 0;
}

static int timed_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
                      const struct timespec *until)
{
    bool in_time;
    wait_on(cond, mutex, calls_instant(clock, until), &in_time);
    return in_time ? 0 : ETIMEDOUT;
}

int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                           const struct timespec *until)
{
    if (!sched_on())
        return real()->pthread_cond_timedwait(cond, mutex, until);
    bool monotonic = cond->__data.__wrefs & MONOTONIC_BIT;
    return timed_wait(cond, mutex, monotonic ? CLOCK_MONOTONIC : CLOCK_REALTIME, until);
}

int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *until)
{
    if (!sched_on())
        abort(); /* nobody needs it before the run */
    return timed_wait(cond, mutex, clock, until);
}

int pthread_cond_signal(pthread_cond_t *cond)
{
    if (!sched_on())
        return real()->pthread_cond_signal(cond);
    sched_wake(WAIT_COND, cond, 1);
    sched_point(POINT_WAKE);
    return 0;
}

int pthread_cond_broadcast(pthread_cond_t *cond)
{
    if (!sched_on())
        return real()->pthread_cond_broadcast(cond);
    sched_wake(WAIT_COND, cond, INT_MAX);
    sched_point(POINT_WAKE);
    return 0;
}

int pthread_cond_destroy(pthread_cond_t *cond)
{
    if (!sched_on())
        return real()->pthread_cond_destroy(cond);
    if (sched_waiting(cond) > 0)
        sched_fail("a condition is destroyed that a thread waits for");
    return 0;
}

/* ---- once ---- */

enum { ONCE_FRESH = 0, ONCE_RUNS = 1, ONCE_DONE = 2 }; /* as glibc has them */

static bool once_runs(const void *address)
{
    return *(const pthread_once_t *)address == ONCE_RUNS;
}

int pthread_once(pthread_once_t *once, void (*run)(void))
{
    if (!sched_on())
        return real()->pthread_once(once, run);
    while (*once == ONCE_RUNS)
        sched_wait(WAIT_MUTEX, once, once_runs, SCHED_NEVER);
    if (*once == ONCE_DONE)
        return 0;
    *once = ONCE_RUNS;
    sched_hold_shared(+1);
    run();
    sched_hold_shared(-1);
    *once = ONCE_DONE;
    sched_point(POINT_WAKE);
    return 0;
}

/* ---- threads ---- */

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                   void *argument)
{
    if (!sched_on())
        return real()->pthread_create(thread, attributes, run, argument);
    return sched_create(thread, attributes, run, argument, calls_process_of_new_thread());
}

int pthread_join(pthread_t thread, void **result)
{
    return sched_on() ? sched_join(thread, result) : real()->pthread_join(thread, result);
}

int pthread_detach(pthread_t thread)
{
    return sched_on() ? sched_detach(thread) : real()->pthread_detach(thread);
}

int pthread_setname_np(pthread_t thread, const char *name)
{
    if (sched_on() && pthread_equal(thread, pthread_self()))
        sched_name_thread(name);
    return real()->pthread_setname_np(thread, name);
}

/* Nothing sends a signal here, except the report of a failure, to each thread. */
int pthread_sigmask(int how, const sigset_t *set, sigset_t *before)
{
    if (!sched_on())
        return real()->pthread_sigmask(how, set, before);
    if (before)
        sigemptyset(before);
    return 0;
}

/* ---- futexes ---- */

static long futex_wait(const int *word, int value, const struct timespec *timeout)
{
    sched_point(POINT_LOCK);
    if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != value) {
        errno = EAGAIN;
        return -1;
    }
    if (sched_spurious())
        return 0;
    int64_t due_ns = timeout ? sched_now() + calls_duration(timeout) : SCHED_NEVER;
    if (sched_wait(WAIT_FUTEX, word, NULL, due_ns))
        return 0;
    errno = ETIMEDOUT;
    return -1;
}

static long futex_wake(const int *word, int count)
{
    int woken = sched_wake(WAIT_FUTEX, word, count);
    sched_point(POINT_WAKE);
    return woken;
}

static long call_futex(const int *word, int operation, int value, const struct timespec *timeout)
{
    switch (operation & ~FUTEX_PRIVATE_FLAG) {
    case FUTEX_WAIT:
        return futex_wait(word, value, timeout);
    case FUTEX_WAKE:
        return futex_wake(word, value);
    default:
        sched_fail("futex operation %d is not known here", operation);
    }
}

long syscall(long number, ...)
{
    long a[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(arguments, long);
    va_end(arguments);
    if (sched_on() && number == SYS_futex)
        return call_futex((const int *)a[0], (int)a[1], (int)a[2], (const struct timespec *)a[3]);
    if (sched_on() && number == SYS_epoll_pwait2)
        return calls_epoll_wait((int)a[0], (struct epoll_event *)a[1], (int)a[2],
                                a[3] ? calls_duration((const struct timespec *)a[3]) : -1);
    return real()->syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
