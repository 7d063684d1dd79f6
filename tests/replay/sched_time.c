/* sched_time.c - the virtual clock, timers, and the numbers of the seed. See sched.h. */
#include "sched_internal.h"

#include <string.h>

int64_t sched_now(void)
{
    return sched.now_ns;
}

int64_t sched_read_clock(void)
{
    sched_advance(1 + (int64_t)sched_draw(64));
    return sched.now_ns;
}

void sched_advance(int64_t by_ns)
{
    sched.now_ns += by_ns;
    if (sched.now_ns >= sched.next_timer_ns)
        sched_fire_timers();
}

void sched_add_timer(struct sched_timer *timer)
{
    timer->next = sched.timers;
    sched.timers = timer;
    if (timer->due_ns < sched.next_timer_ns)
        sched.next_timer_ns = timer->due_ns;
}

void sched_remove_timer(struct sched_timer *timer)
{
    struct sched_timer **link = &sched.timers;
    while (*link && *link != timer)
        link = &(*link)->next;
    if (*link)
        *link = timer->next;
}

void sched_fire_timers(void)
{
    sched.next_timer_ns = SCHED_NEVER;
    for (struct sched_timer *timer = sched.timers; timer; timer = timer->next) {
        if (timer->due_ns <= sched.now_ns) {
            timer->due_ns = SCHED_NEVER;
            timer->fire(timer);
        }
        if (timer->due_ns < sched.next_timer_ns)
            sched.next_timer_ns = timer->due_ns;
    }
}

/* Descriptors may change without the scheduler's knowledge only if the kernel has work of its own; so a thread that waits for
 * them is asked once more before the program is said to hang. */
bool sched_jump(void)
{
    int64_t due_ns = sched.next_timer_ns;
    for (unsigned i = 0; i < sched.count; i++) {
        int64_t at_ns = sched_due_of(sched.threads[i]);
        if (at_ns < due_ns)
            due_ns = at_ns;
    }
    if (due_ns == SCHED_NEVER)
        return false;
    if (due_ns > sched.now_ns)
        sched.now_ns = due_ns;
    sched_mix((uint64_t)sched.now_ns);
    if (sched.now_ns - SCHED_START_NS > sched.settings.time_limit_ns)
        sched_fail("it does not end: %lld s of virtual time",
                   (long long)((sched.now_ns - SCHED_START_NS) / 1000000000));
    sched_fire_timers();
    return true;
}

/* ---- chance ---- */

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

uint32_t sched_draw(uint32_t below)
{
    return below < 2 ? 0 : (uint32_t)((next_random(&sched.random) >> 32) * below >> 32);
}

void sched_random(void *bytes, size_t size)
{
    unsigned char *out = bytes;
    for (size_t i = 0; i < size; i += 8) {
        uint64_t word = next_random(&sched.bytes);
        memcpy(out + i, &word, size - i < 8 ? size - i : 8);
    }
}
