/* timer.h - a heap of due times: binary, intrusive, the earliest on top.
 *
 * Setting a timer must not fail halfway through a change that cannot be undone: a granted lease has to be renewed. So
 * its owner reserves room beforehand, while failing is still cheap. The caller serialises all calls on one heap. It
 * does not know what a timer is for. */
#ifndef MORTISE_CORE_TIMER_H
#define MORTISE_CORE_TIMER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct timer {
    int64_t due_ns;
    uint32_t place; /* in the heap, from 1; 0: the timer is not set */
    int kind;       /* for the owner of the heap */
};

struct timer_heap {
    struct timer **timers;
    size_t count, capacity, reserved;
};

/* Reserves room for one more timer; false: no memory. */
bool timer_reserve(struct timer_heap *heap);
void timer_unreserve(struct timer_heap *heap);
void timer_set(struct timer_heap *heap, struct timer *timer, int64_t due_ns);
void timer_stop(struct timer_heap *heap, struct timer *timer);
/* The earliest due time; INT64_MAX if no timer is set. */
int64_t timer_next_ns(const struct timer_heap *heap);

#endif
