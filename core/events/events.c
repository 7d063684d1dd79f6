/* events.c - the queue of callbacks and the threads that run them. */
#include "events/events.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/slab.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <utlist.h>

static _Thread_local bool inside; /* this thread runs a callback */
static _Thread_local uint32_t
    inside_epoch; /* fork_epoch at that time: a child, forked in a callback, runs no callback */

bool events_inside(void)
{
    return inside && inside_epoch == atomic_load_explicit(&fork_epoch, memory_order_relaxed);
}

void events_init(struct events *events, const struct events_upcalls *upcalls, bool manual)
{
    *events = (struct events){.upcalls = upcalls, .manual = manual, .wakeup = WAKEUP_CLOSED};
    events->epoch = atomic_load(&fork_epoch);
    pthread_mutex_init(&events->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&events->cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void events_destroy(struct events *events)
{
    if (events->thread_made && pthread_equal(events->thread, pthread_self()))
        pthread_detach(events->thread);
    else if (events->thread_made)
        pthread_join(events->thread, NULL);
    wakeup_close(&events->wakeup);
    pthread_cond_destroy(&events->cond);
    pthread_mutex_destroy(&events->lock);
}

/* ---- the queue ---- */

static void push_locked(struct events *events, struct notice *notice)
{
    if (notice->queued)
        return;
    notice->queued = true;
    DL_APPEND2(events->queue, notice, previous, next);
    events->count++;
    if (events->wakeup.epoll < 0)
        pthread_cond_broadcast(&events->cond);
    else if (events->dispatchers == 0) /* else a dispatcher looks before it leaves */
        wakeup_raise(&events->wakeup);
}

static bool calls_back(const struct notice *notice)
{
    return notice->on_state != NULL || notice->on_acquired != NULL || notice->on_released != NULL;
}

void events_push(struct events *events, struct notice *notice)
{
    if (!calls_back(notice))
        return;
    pthread_mutex_lock(&events->lock);
    push_locked(events, notice);
    pthread_mutex_unlock(&events->lock);
}

void events_push_state(struct events *events, struct notice *notice, mortise_lease_state state)
{
    if (!calls_back(notice))
        return;
    pthread_mutex_lock(&events->lock);
    notice->state = state;
    push_locked(events, notice);
    pthread_mutex_unlock(&events->lock);
}

static void remove_locked(struct events *events, struct notice *notice)
{
    DL_DELETE2(events->queue, notice, previous, next);
    notice->queued = false;
    events->count--;
}

void events_forget(struct events *events, struct notice *notice)
{
    if (!calls_back(notice))
        return; /* it was never queued, so the lock is not needed */
    pthread_mutex_lock(&events->lock);
    if (notice->queued)
        remove_locked(events, notice);
    pthread_mutex_unlock(&events->lock);
}

/* ---- running ---- */

static void call(const struct notice *notice)
{
    inside = true;
    inside_epoch = atomic_load_explicit(&fork_epoch, memory_order_relaxed);
    if (notice->on_acquired != NULL)
        notice->on_acquired(notice->status, notice->lease, notice->error, notice->user_data);
    else if (notice->on_released != NULL)
        notice->on_released(notice->status, notice->error, notice->user_data);
    else
        notice->on_state(notice->lease, notice->state, notice->user_data);
    inside = false;
    free(notice->owned);
}

enum ran { RAN_NOTHING, RAN_ONE, RAN_FORKED };

/* Runs the first callback, unless another one runs. It drops the lock meanwhile. RAN_FORKED: this process is a child that
 * was forked in the callback. Then the lock is not held, because all of this is the parent's. */
static enum ran run_first_locked(struct events *events)
{
    if (events->running || events->queue == NULL)
        return RAN_NOTHING;
    struct notice notice = *events->queue;
    remove_locked(events, events->queue);
    events->running = true;
    events->running_thread = pthread_self();
    events->running_lease = notice.on_state != NULL ? notice.lease : NULL;
    pthread_mutex_unlock(&events->lock);
    call(&notice);
    if (events->epoch != atomic_load(&fork_epoch))
        return RAN_FORKED;
    pthread_mutex_lock(&events->lock);
    events->running = false;
    pthread_cond_broadcast(&events->cond);
    return RAN_ONE;
}

static void *thread_main(void *argument)
{
    struct events *events = argument;
    pthread_setname_np(pthread_self(), "mortise-notify");
    pthread_mutex_lock(&events->lock);
    for (;;) {
        bool runs = events->wakeup.epoll < 0 || events->closed_inside;
        enum ran ran = runs ? run_first_locked(events) : RAN_NOTHING;
        if (ran == RAN_FORKED)
            return NULL;
        if (ran == RAN_NOTHING && events->stopping)
            break;
        if (ran == RAN_NOTHING)
            pthread_cond_wait(&events->cond, &events->lock);
    }
    pthread_mutex_unlock(&events->lock);
    events->upcalls->thread_ends(events);
    return NULL;
}

static bool start_locked(struct events *events)
{
    sigset_t all, before; /* signals are for the application's threads */
    if (events->wakeup.epoll >= 0 || events->thread_made || events->manual)
        return true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    events->thread_made = pthread_create(&events->thread, NULL, thread_main, events) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (events->thread_made)
        events->upcalls->thread_begins(events);
    return events->thread_made;
}

bool events_ready(struct events *events)
{
    if (atomic_load_explicit(&events->ready, memory_order_acquire))
        return true;
    pthread_mutex_lock(&events->lock);
    bool ready = start_locked(events);
    atomic_store(&events->ready, ready);
    pthread_mutex_unlock(&events->lock);
    return ready;
}

/* ---- which callback runs ---- */

static bool runs_here_locked(const struct events *events)
{
    return events->running && pthread_equal(events->running_thread, pthread_self());
}

void events_drain(struct events *events, const mortise_lease *lease)
{
    if (events_inside() || log_inside())
        return;
    pthread_mutex_lock(&events->lock);
    while (events->running && events->running_lease == lease && !events->closed_inside)
        pthread_cond_wait(&events->cond, &events->lock);
    pthread_mutex_unlock(&events->lock);
}

bool events_run_elsewhere(struct events *events, const mortise_lease *lease)
{
    pthread_mutex_lock(&events->lock);
    bool runs = events->running && lease != NULL && events->running_lease == lease &&
                !runs_here_locked(events);
    pthread_mutex_unlock(&events->lock);
    return runs;
}

bool events_over(struct events *events)
{
    pthread_mutex_lock(&events->lock);
    bool over = !events->running && events->queue == NULL;
    pthread_mutex_unlock(&events->lock);
    return over;
}

bool events_last_here(struct events *events)
{
    pthread_mutex_lock(&events->lock);
    bool last = runs_here_locked(events) && events->queue == NULL;
    pthread_mutex_unlock(&events->lock);
    return last;
}

/* ---- the application's descriptor ---- */

static bool watch(const struct wakeup *wakeup, int other)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = other};
    return epoll_ctl(wakeup->epoll, EPOLL_CTL_ADD, other, &event) == 0;
}

/* False: all stays as it was. */
static bool open_fd_locked(struct events *events, int other)
{
    struct wakeup opened;
    if (!wakeup_open(&opened))
        return false;
    if (!events->closing && !watch(&opened, other)) {
        wakeup_close(&opened);
        return false;
    }
    events->wakeup = opened;
    events->other = other;
    if (events->queue != NULL)
        wakeup_raise(&events->wakeup);
    return true;
}

/* For an application that polls the descriptor edge-triggered. The kernel keeps a list of ready descriptors, and a
 * descriptor that is already on the list wakes no thread. epoll_wait() takes those off the list that are not ready any
 * more. Those that still are ready are removed from the set and added again, which wakes the application. */
static void show_edge_locked(struct events *events)
{
    struct epoll_event ready[2];
    int count = epoll_wait(events->wakeup.epoll, ready, 2, 0);
    for (int i = 0; i < count; i++) {
        int fd = ready[i].data.fd;
        struct epoll_event event = {.events = fd == events->other ? EPOLLIN : EPOLLOUT,
                                    .data.fd = fd};
        if (epoll_ctl(events->wakeup.epoll, EPOLL_CTL_DEL, fd, NULL) == 0)
            epoll_ctl(events->wakeup.epoll, EPOLL_CTL_ADD, fd, &event);
    }
}

int events_open_fd(struct events *events, int other)
{
    pthread_mutex_lock(&events->lock);
    /* not open yet, or closed by the application */
    bool is_open = wakeup_is_ours(&events->wakeup) || open_fd_locked(events, other);
    int fd = is_open ? events->wakeup.epoll : -1;
    pthread_mutex_unlock(&events->lock);
    return fd;
}

bool events_dispatch_begin(struct events *events)
{
    pthread_mutex_lock(&events->lock);
    bool may = events->wakeup.epoll >= 0;
    events->dispatchers += may;
    pthread_mutex_unlock(&events->lock);
    return may;
}

int events_dispatch_run(struct events *events)
{
    int count = 0;
    pthread_mutex_lock(&events->lock);
    for (size_t due = events->count; due > 0 || events->closed_inside; due -= due > 0) {
        enum ran ran = run_first_locked(events);
        count += ran != RAN_NOTHING;
        if (ran == RAN_FORKED)
            return count;
        if (ran == RAN_NOTHING)
            break;
    }
    pthread_mutex_unlock(&events->lock);
    return count;
}

void events_dispatch_end(struct events *events)
{
    pthread_mutex_lock(&events->lock);
    events->dispatchers--;
    if (events->queue != NULL)
        wakeup_raise(&events->wakeup);
    else
        wakeup_lower(&events->wakeup);
    show_edge_locked(events);
    pthread_cond_broadcast(&events->cond);
    pthread_mutex_unlock(&events->lock);
}

/* ---- the end ---- */

static void wait_until_locked(struct events *events, int64_t until_ns)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    int64_t left = until_ns - clock_now(), ns;
    left = left < NS_PER_MS ? NS_PER_MS : left;
    ns = at.tv_nsec + left % NS_PER_S;
    at.tv_sec += (time_t)(left / NS_PER_S + ns / NS_PER_S);
    at.tv_nsec = (long)(ns % NS_PER_S);
    pthread_cond_timedwait(&events->cond, &events->lock, &at);
}

void events_closing(struct events *events)
{
    pthread_mutex_lock(&events->lock);
    if (events->wakeup.epoll >= 0)
        epoll_ctl(events->wakeup.epoll, EPOLL_CTL_DEL, events->other, NULL);
    events->closing = true;
    events->closed_inside = runs_here_locked(events);
    pthread_cond_broadcast(&events->cond);
    pthread_mutex_unlock(&events->lock);
}

/* Other threads than the one that closes run callbacks, or will run those that wait. */
static bool others_run_locked(const struct events *events)
{
    bool run = events->wakeup.epoll < 0 ? events->thread_made : events->dispatchers > 0;
    return events->running || (events->queue != NULL && run);
}

enum events_end events_stop(struct events *events, int64_t until_ns)
{
    enum events_end end = EVENTS_OVER;
    pthread_mutex_lock(&events->lock);
    events->stopping = true;
    pthread_cond_broadcast(&events->cond);
    while (!events->closed_inside && others_run_locked(events) && clock_now() < until_ns)
        wait_until_locked(events, until_ns);
    if (events->closed_inside)
        end = EVENTS_HERE;
    else if (events->running || events->queue != NULL)
        end = EVENTS_LEFT;
    pthread_mutex_unlock(&events->lock);
    return end;
}
