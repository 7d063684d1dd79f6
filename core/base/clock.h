/* clock.h - the only clock of the core: CLOCK_BOOTTIME in nanoseconds, which also counts the time in
 * which the machine is suspended (R1). Tests replace it by a virtual clock, which the rest of the core does not know. */
#ifndef MORTISE_CORE_CLOCK_H
#define MORTISE_CORE_CLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define NS_PER_MS INT64_C(1000000)
#define NS_PER_S INT64_C(1000000000)

/* The virtual clock in nanoseconds, or -1 for the real clock. Only for unit tests. */
extern _Atomic int64_t clock_virtual_ns;

static inline int64_t clock_now(void)
{
    int64_t instead = atomic_load_explicit(&clock_virtual_ns, memory_order_relaxed);
    if (__builtin_expect(instead >= 0, 0))
        return instead;
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* a + b, a in ns and b in ms >= 0, without overflow: NEVER at the most. */
static inline int64_t clock_after_ms(int64_t at_ns, int64_t ms)
{
    int64_t ns, sum;
    if (__builtin_mul_overflow(ms, NS_PER_MS, &ns) || __builtin_add_overflow(at_ns, ns, &sum))
        return INT64_MAX;
    return sum;
}

#define CLOCK_HOUR_MS (60 * 60 * 1000)

/* For poll(): milliseconds from now to due_ns, rounded up, and an hour at most. INT64_MAX is never (-1), INT64_MIN has passed. */
static inline int clock_poll_ms(int64_t due_ns)
{
    if (due_ns == INT64_MAX)
        return -1;
    int64_t now = clock_now();
    if (due_ns <= now)
        return 0;
    int64_t ms = (due_ns - now) / NS_PER_MS;
    return ms >= CLOCK_HOUR_MS ? CLOCK_HOUR_MS : (int)ms + 1;
}

#endif
