/* calls_file.c - descriptors of a program that runs under the scheduler.
 *
 * Descriptors are real, so epoll and eventfd are the kernel's. A thread that waits for one lets the scheduler ask for it
 * with no time-out, whenever a descriptor may have changed: after each write, read, close and epoll_ctl, and when a timer
 * is due. A timerfd is an eventfd that the scheduler's clock makes readable. */
#include "calls.h"
#include "net.h"
#include "real.h"
#include "sched.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#define NS_PER_MS INT64_C(1000000)

/* ---- timers ---- */

enum { TIMERS = 64 };

struct timer {
    struct sched_timer timer;
    int fd; /* an eventfd; 0: the slot is free */
    bool blocks;
    clockid_t clock;
};
static struct timer timers[TIMERS];

static struct timer *timer_of(int fd)
{
    for (int i = 0; i < TIMERS && fd > 0; i++)
        if (timers[i].fd == fd)
            return &timers[i];
    return NULL;
}

static void timer_is_due(struct sched_timer *timer)
{
    uint64_t one = 1;
    if (real()->write(((struct timer *)(void *)timer)->fd, &one, sizeof one) == sizeof one)
        sched_files_changed();
}

int timerfd_create(int clock, int flags)
{
    if (!sched_on())
        return real()->timerfd_create(clock, flags);
    int i = 0;
    while (i < TIMERS && timers[i].fd != 0)
        i++;
    int fd = i < TIMERS ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
    if (fd < 0) {
        errno = EMFILE;
        return -1;
    }
    timers[i] = (struct timer){.fd = fd, .blocks = !(flags & TFD_NONBLOCK), .clock = clock};
    timers[i].timer.due_ns = SCHED_NEVER;
    timers[i].timer.fire = timer_is_due;
    return fd;
}

int timerfd_settime(int fd, int flags, const struct itimerspec *to, struct itimerspec *before)
{
    struct timer *timer = sched_on() ? timer_of(fd) : NULL;
    uint64_t count;
    if (!timer)
        return real()->timerfd_settime(fd, flags, to, before);
    bool set = to->it_value.tv_sec != 0 || to->it_value.tv_nsec != 0;
    if (to->it_interval.tv_sec != 0 || to->it_interval.tv_nsec != 0 || before)
        sched_fail("timerfd: neither intervals nor former values are known here");
    sched_remove_timer(&timer->timer);
    (void)!real()->read(fd, &count, sizeof count); /* what was due before is forgotten */
    if (set) {
        timer->timer.due_ns = flags & TFD_TIMER_ABSTIME
                                  ? calls_instant(timer->clock, &to->it_value)
                                  : sched_now() + calls_duration(&to->it_value);
        sched_add_timer(&timer->timer);
    }
    if (set && timer->timer.due_ns <= sched_now()) {
        timer->timer.due_ns = SCHED_NEVER;
        timer_is_due(&timer->timer);
    }
    sched_point(POINT_FILE);
    return 0;
}

/* Who gives a descriptor another number uses that one from then on. */
void calls_timer_moved(int fd, int moved)
{
    struct timer *timer = sched_on() ? timer_of(fd) : NULL;
    if (timer)
        timer->fd = moved;
}

/* ---- read and write ---- */

static bool is_empty(const void *address)
{
    struct pollfd fd = {.fd = *(const int *)address, .events = POLLIN};
    return real()->poll(&fd, 1, 0) == 0;
}

ssize_t read(int fd, void *buffer, size_t size)
{
    const struct timer *timer = sched_on() ? timer_of(fd) : NULL;
    ssize_t count;
    if (calls_net_read(fd, buffer, size, 0, &count))
        return count;
    if (sched_on())
        sched_point(POINT_FILE);
    while (timer && timer->blocks && is_empty(&fd))
        sched_wait(WAIT_FILES, &fd, is_empty, SCHED_NEVER);
    count = real()->read(fd, buffer, size);
    if (sched_on())
        sched_files_changed();
    return count;
}

ssize_t write(int fd, const void *buffer, size_t size)
{
    ssize_t count;
    if (calls_net_write(fd, buffer, size, &count))
        return count;
    count = real()->write(fd, buffer, size);
    if (!sched_on())
        return count;
    int problem = errno;
    sched_files_changed();
    sched_point(POINT_FILE);
    errno = problem;
    return count;
}

int close(int fd)
{
    struct timer *timer = sched_on() ? timer_of(fd) : NULL;
    if (timer) {
        sched_remove_timer(&timer->timer);
        timer->fd = 0;
    }
    calls_disk_closing(fd);
    if (sched_on() && net_of(fd))
        net_close(net_of(fd));
    int result = real()->close(fd);
    if (sched_on())
        sched_files_changed();
    return result;
}

/* ---- epoll and poll ---- */

int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
    int result = real()->epoll_ctl(epoll, operation, fd, event);
    if (sched_on())
        sched_files_changed();
    return result;
}

struct polled {
    struct pollfd *fds;
    nfds_t count;
};

static bool none_is_ready(const void *address)
{
    const struct polled *polled = address;
    return real()->poll(polled->fds, polled->count, 0) == 0;
}

static int64_t due_in(int64_t timeout_ns)
{
    return timeout_ns < 0 || timeout_ns > SCHED_NEVER - sched_now() ? SCHED_NEVER
                                                                    : sched_now() + timeout_ns;
}

static void wait_for(const struct polled *polled, int64_t timeout_ns)
{
    int64_t due_ns = due_in(timeout_ns);
    sched_point(POINT_FILE);
    while (none_is_ready(polled) && sched_now() < due_ns)
        sched_wait(WAIT_FILES, polled, none_is_ready, due_ns);
}

int poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    if (!sched_on())
        return real()->poll(fds, count, timeout_ms);
    struct polled polled = {fds, count};
    if (timeout_ms != 0)
        wait_for(&polled, timeout_ms < 0 ? -1 : timeout_ms * NS_PER_MS);
    return real()->poll(fds, count, 0);
}

int calls_epoll_wait(int epoll, struct epoll_event *events, int capacity, int64_t timeout_ns)
{
    struct pollfd fd = {.fd = epoll, .events = POLLIN};
    struct polled polled = {&fd, 1};
    if (timeout_ns != 0)
        wait_for(&polled, timeout_ns);
    return real()->epoll_wait(epoll, events, capacity, 0);
}

int epoll_wait(int epoll, struct epoll_event *events, int capacity, int timeout_ms)
{
    if (!sched_on())
        return real()->epoll_wait(epoll, events, capacity, timeout_ms);
    return calls_epoll_wait(epoll, events, capacity, timeout_ms < 0 ? -1 : timeout_ms * NS_PER_MS);
}
