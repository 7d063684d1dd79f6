/* timer.c - see timer.h. */
#include "base/timer.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

bool timer_reserve(struct timer_heap *heap)
{
    if (heap->reserved == heap->capacity) {
        size_t capacity = heap->capacity == 0 ? 64 : heap->capacity * 2;
        struct timer **grown = reallocarray(heap->timers, capacity, sizeof(*grown));
        if (grown == NULL)
            return false;
        heap->timers = grown;
        heap->capacity = capacity;
    }
    heap->reserved++;
    return true;
}

void timer_unreserve(struct timer_heap *heap)
{
    assert(heap->reserved > 0);
    heap->reserved--;
}

static void put(struct timer_heap *heap, size_t place, struct timer *timer)
{
    heap->timers[place - 1] = timer;
    timer->place = (uint32_t)place;
}

static void sift_up(struct timer_heap *heap, size_t place, struct timer *timer)
{
    while (place > 1 && heap->timers[place / 2 - 1]->due_ns > timer->due_ns) {
        put(heap, place, heap->timers[place / 2 - 1]);
        place /= 2;
    }
    put(heap, place, timer);
}

static void sift_down(struct timer_heap *heap, size_t place, struct timer *timer)
{
    for (;;) {
        size_t child = place * 2;
        if (child > heap->count)
            break;
        if (child < heap->count && heap->timers[child]->due_ns < heap->timers[child - 1]->due_ns)
            child++;
        if (heap->timers[child - 1]->due_ns >= timer->due_ns)
            break;
        put(heap, place, heap->timers[child - 1]);
        place = child;
    }
    put(heap, place, timer);
}

void timer_set(struct timer_heap *heap, struct timer *timer, int64_t due_ns)
{
    if (timer->place == 0) {
        assert(heap->count < heap->reserved);
        timer->due_ns = due_ns;
        heap->count++;
        sift_up(heap, heap->count, timer);
    } else {
        int64_t before = timer->due_ns;
        timer->due_ns = due_ns;
        if (due_ns < before)
            sift_up(heap, timer->place, timer);
        else
            sift_down(heap, timer->place, timer);
    }
}

void timer_stop(struct timer_heap *heap, struct timer *timer)
{
    size_t place = timer->place;
    if (place == 0)
        return;
    timer->place = 0;
    struct timer *last = heap->timers[heap->count - 1];
    heap->count--;
    if (last == timer)
        return;
    if (last->due_ns < timer->due_ns)
        sift_up(heap, place, last);
    else
        sift_down(heap, place, last);
}

int64_t timer_next_ns(const struct timer_heap *heap)
{
    return heap->count > 0 ? heap->timers[0]->due_ns : INT64_MAX;
}
