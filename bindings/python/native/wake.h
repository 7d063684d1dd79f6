/* wake.h - what wakes a thread or an event loop that polls: an epoll set, and a socket in it. (The library does it in the same
 * way, in core/base/wakeup.h; the bridge knows no more of it than mortise.h.)
 *
 * The program may close descriptors that are not its own, as a daemon does, and have others under their numbers. So nothing is
 * written to wake somebody: the socket has no peer and is always writable, and the set is asked to report that, or not to.
 * Before the two are used, its inode tells whether it is still the same socket, and the set whether it has that one. And the
 * numbers are high: who closes everything does not get them next. */
#ifndef MORTISE_PYTHON_WAKE_H
#define MORTISE_PYTHON_WAKE_H

#include <stdbool.h>
#include <sys/types.h>

struct wake {
    int epoll, socket; /* -1: not open. A thread polls `epoll` to be woken */
    dev_t dev;
    ino_t ino;
    bool raised; /* it polls readable */
};

#define WAKE_CLOSED ((struct wake){.epoll = -1, .socket = -1})

/* False: the system gives no descriptors. */
bool wake_open(struct wake *wake);
/* False: it is not open, or its numbers are others' by now. It changes nothing that a process shares with its parent. */
bool wake_is_ours(const struct wake *wake);
/* Closes it, if it is ours. The numbers stay. */
void wake_close(const struct wake *wake);
/* Lets it poll readable, or no longer. False: it is not ours. */
bool wake_set(struct wake *wake, bool raised);

/* Another's descriptor: whether it is an epoll set. */
bool is_epoll(int fd);
/* A duplicate with a high number, if the limit on numbers permits one. -1: the system gives none. */
int wake_duplicate(int fd);

#endif
