/* wakeup.h - an epoll set, and an event of it that is raised and lowered without a write.
 *
 * The application may close descriptors that are not its own, as a daemon does, and have others under their numbers. So raising
 * the event writes nothing, because the descriptor may be a file of the application by now. Instead, the eventfd is always
 * writable, and EPOLL_CTL_MOD switches the report of that on and off in the epoll set. Both have high numbers (high_fd.h): if an
 * epoll set of the application had the one number, and a descriptor in that set had the other, nothing would show that they are
 * not ours. */
#ifndef MORTISE_CORE_BASE_WAKEUP_H
#define MORTISE_CORE_BASE_WAKEUP_H

#include <stdbool.h>

struct wakeup {
    int epoll, event; /* -1: not open */
    bool raised;      /* the set reports `event` */
};

#define WAKEUP_CLOSED ((struct wakeup){.epoll = -1, .event = -1})

/* False: the system gives no descriptors. */
bool wakeup_open(struct wakeup *wakeup);
/* It is open, and the application has closed neither of the two. */
bool wakeup_is_ours(struct wakeup *wakeup);
/* If it is ours. Else its numbers may be another's. */
void wakeup_close(struct wakeup *wakeup);
/* Closes nothing, because the numbers may belong to other descriptors by now. */
void wakeup_forget(struct wakeup *wakeup);
/* Wakes a thread in epoll_wait(), and each later one until the event is lowered. If the eventfd is gone, another one is made. */
void wakeup_raise(struct wakeup *wakeup);
void wakeup_lower(struct wakeup *wakeup);

#endif
