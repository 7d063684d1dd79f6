/* interest.c - the epoll set with the descriptors that the stack wants to be polled, made when a thread first
 * has to poll; and the poke, which wakes the thread that polls. See pump.h. */
#include "pump/pump_internal.h"

#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* If the kernel refuses a descriptor, its entry is left without events, so the next look tries again. */
static void set_epoll(struct pump *pump, struct pollfd *fd, bool known)
{
    struct epoll_event event = {.events = (uint32_t)fd->events, .data.fd = fd->fd};
    int first = known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD,
        second = EPOLL_CTL_ADD + EPOLL_CTL_MOD - first;
    if (epoll_ctl(pump->wakeup.epoll, first, fd->fd, &event) < 0 &&
        epoll_ctl(pump->wakeup.epoll, second, fd->fd, &event) < 0)
        fd->events = 0;
}

static void sync_epoll_locked(struct pump *pump, struct pollfd *fds, size_t count)
{
    if (pump->wakeup.epoll < 0)
        return;
    for (size_t i = 0; i < count; i++) {
        size_t k = 0;
        while (k < pump->interest_count && pump->interest[k].fd != fds[i].fd)
            k++;
        bool known = k < pump->interest_count;
        if (!known || pump->interest[k].events != fds[i].events)
            set_epoll(pump, &fds[i], known);
    }
    for (size_t k = 0; k < pump->interest_count; k++) {
        size_t i = 0;
        while (i < count && fds[i].fd != pump->interest[k].fd)
            i++;
        if (i == count)
            epoll_ctl(pump->wakeup.epoll, EPOLL_CTL_DEL, pump->interest[k].fd, NULL);
    }
}

static bool same_interest(const struct pump *pump, const struct pollfd *fds, size_t count)
{
    if (count != pump->interest_count)
        return false;
    for (size_t i = 0; i < count; i++)
        if (fds[i].fd != pump->interest[i].fd || fds[i].events != pump->interest[i].events)
            return false;
    return true;
}

void pump_update_interest_locked(struct pump *pump)
{
    struct pollfd fds[PUMP_FDS];
    pump->due_ns = MORTISE_NEVER;
    size_t count = 0;
    if (pump->top != NULL)
        count = pump->top->module.interest(pump->top->ctx, fds, PUMP_FDS, &pump->due_ns);
    if (count > PUMP_FDS)
        count = PUMP_FDS;
    if (same_interest(pump, fds, count))
        return;
    sync_epoll_locked(pump, fds, count);
    memcpy(pump->interest, fds, count * sizeof(fds[0]));
    pump->interest_count = count;
}

/* Makes the epoll set when a thread first has to poll. pump lock held */
bool pump_open_epoll_locked(struct pump *pump)
{
    if (pump->wakeup.epoll >= 0)
        return true;
    if (!wakeup_open(&pump->wakeup))
        return false;
    size_t count = pump->interest_count;
    pump->interest_count = 0;
    struct pollfd fds[PUMP_FDS];
    memcpy(fds, pump->interest, count * sizeof(fds[0]));
    sync_epoll_locked(pump, fds, count);
    memcpy(pump->interest, fds, count * sizeof(fds[0]));
    pump->interest_count = count;
    return true;
}

/* Wakes the thread that sleeps in epoll_wait, if there is one. pump lock held */
void pump_poke_locked(struct pump *pump)
{
    if (pump->polling)
        wakeup_raise(&pump->wakeup);
}

/* ---- in the application's set (pump_dispatched) ---- */

static bool report(const struct pump *pump, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.fd = pump->wakeup.epoll};
    return epoll_ctl(pump->shown, EPOLL_CTL_MOD, pump->wakeup.epoll, &event) == 0;
}

/* Another thread is inside, perhaps for as long as a disk takes. Until it leaves, no other thread can handle ready descriptors,
 * and an event loop that sees them dispatches again and again. The second epoll_wait() removes the pump's set from the kernel's
 * list of ready descriptors: otherwise an edge-triggered loop would not be woken when the set is shown again. */
void pump_hide_locked(struct pump *pump)
{
    struct epoll_event ready[2];
    if (!pump->dispatched || epoll_wait(pump->wakeup.epoll, ready, 1, 0) <= 0)
        return;
    pump->hidden = report(pump, 0);
    if (pump->hidden)
        epoll_wait(pump->shown, ready, 2, 0);
}

/* The kernel checks whether something is ready, and wakes the threads that poll the set. If the call fails, the owner of that set
 * has just removed the pump's set from it, and adds it again itself, with all events. */
void pump_show_locked(struct pump *pump)
{
    if (pump->hidden)
        report(pump, EPOLLIN);
    pump->hidden = false;
}

void pump_closing_fd(struct pump *pump, int fd)
{
    pthread_mutex_lock(&pump->lock);
    for (size_t i = 0; i < pump->interest_count; i++) {
        if (pump->interest[i].fd != fd)
            continue;
        if (pump->wakeup.epoll >= 0)
            epoll_ctl(pump->wakeup.epoll, EPOLL_CTL_DEL, fd, NULL);
        pump->interest[i] = pump->interest[--pump->interest_count];
        break;
    }
    for (size_t i = 0; i < pump->ready_count;) /* nor was it ready */
        if (pump->ready[i].fd == fd)
            pump->ready[i] = pump->ready[--pump->ready_count];
        else
            i++;
    pthread_mutex_unlock(&pump->lock);
}
