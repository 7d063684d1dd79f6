/* wakeup.c - an epoll set with an event. See wakeup.h. */
#include "base/wakeup.h"
#include "base/high_fd.h"

#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static bool change(struct wakeup *wakeup, int operation, bool raised)
{
    struct epoll_event event = {.events = raised ? EPOLLOUT : 0, .data.fd = wakeup->event};
    return epoll_ctl(wakeup->epoll, operation, wakeup->event, &event) == 0;
}

static bool add_event(struct wakeup *wakeup, bool raised)
{
    wakeup->event = high_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (wakeup->event >= 0 && change(wakeup, EPOLL_CTL_ADD, raised))
        return true;
    if (wakeup->event >= 0)
        close(wakeup->event);
    wakeup->event = -1;
    return false;
}

bool wakeup_open(struct wakeup *wakeup)
{
    *wakeup = WAKEUP_CLOSED;
    wakeup->epoll = high_fd(epoll_create1(EPOLL_CLOEXEC));
    if (wakeup->epoll >= 0 && add_event(wakeup, false))
        return true;
    if (wakeup->epoll >= 0)
        close(wakeup->epoll);
    wakeup_forget(wakeup);
    return false;
}

/* The kernel finds the event in the set only if both are what was put there, or what another client has under the same numbers. */
bool wakeup_is_ours(struct wakeup *wakeup)
{
    return wakeup->epoll >= 0 && change(wakeup, EPOLL_CTL_MOD, wakeup->raised);
}

void wakeup_close(struct wakeup *wakeup)
{
    if (wakeup_is_ours(wakeup)) {
        close(wakeup->epoll);
        close(wakeup->event);
    }
    wakeup_forget(wakeup);
}

void wakeup_forget(struct wakeup *wakeup)
{
    *wakeup = WAKEUP_CLOSED;
}

/* If the eventfd was closed, it is no longer in the set, and its number is not ours. */
static void set(struct wakeup *wakeup, bool raised)
{
    if (wakeup->epoll < 0 || wakeup->raised == raised)
        return;
    bool is_set = wakeup->event >= 0 && change(wakeup, EPOLL_CTL_MOD, raised);
    if (!is_set)
        is_set = add_event(wakeup, raised);
    wakeup->raised = is_set && raised;
}

void wakeup_raise(struct wakeup *wakeup)
{
    set(wakeup, true);
}

void wakeup_lower(struct wakeup *wakeup)
{
    set(wakeup, false);
}
