/* wake.h - wakes a thread or an event loop that polls, by an epoll set with a socket in it. (core/base/wakeup.h does the same
 * for the library, but the bridge may include only mortise.h.)
 *
 * The program may close descriptors that are not its own, as a daemon does, and have others under their numbers. So the
 * bridge writes nothing to wake a thread. Instead, the socket has no peer and is always writable, and the bridge switches the
 * report of that on and off in the set. Before each use, the inode shows whether it is still the same socket, and the set shows whether it has that socket. The
 * numbers are high, so that a program that closes everything does not get them next. */
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
/* False: it is not open, or other descriptors have its numbers by now. Changes nothing that a process shares with its
 * parent. */
bool wake_is_ours(const struct wake *wake);
/* Closes it, if it is ours. The numbers stay in the struct. */
void wake_close(const struct wake *wake);
/* Makes it poll readable, or not readable. False: it is not ours. */
bool wake_set(struct wake *wake, bool raised);

/* Whether a descriptor, which need not be ours, is an epoll set. */
bool is_epoll(int fd);
/* A duplicate with a high number, if the limit on numbers permits one. -1: the system gives none. */
int wake_duplicate(int fd);

#endif
