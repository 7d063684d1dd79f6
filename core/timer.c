/* timer.c - the heap of due times that the watchdog serves: binary, intrusive, the earliest on top.
 *
 * Setting a timer must not fail in the middle of something that cannot be undone (a grant is there and
 * has to be renewed), so room is reserved beforehand, when failing is still cheap. */
#include "core.h"

#include <assert.h>
#include <stdlib.h>

bool timer_reserve_locked(struct client *client)
{
    struct timer_heap *heap = &client->timers;
    if (client->timers_reserved == heap->capacity) {
        size_t capacity = heap->capacity == 0 ? 64 : heap->capacity * 2;
        struct timer **grown = reallocarray(heap->timers, capacity, sizeof(*grown));
        if (grown == NULL)
            return false;
        heap->timers = grown;
        heap->capacity = capacity;
    }
    client->timers_reserved++;
    return true;
}

void timer_unreserve_locked(struct client *client)
{
    assert(client->timers_reserved > 0);
    client->timers_reserved--;
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

void timer_set_locked(struct client *client, struct timer *timer, int64_t due_ns)
{
    struct timer_heap *heap = &client->timers;
    if (timer->place == 0) {
        assert(heap->count < client->timers_reserved);
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
    watchdog_wake_locked(client, due_ns);
}

void timer_stop_locked(struct client *client, struct timer *timer)
{
    struct timer_heap *heap = &client->timers;
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
