/* high_fd.h - descriptors of the library under numbers that a program does not get next.
 *
 * The application may close descriptors that are not its own, as a daemon does, and have others of the same kind under their
 * numbers: another epoll set, or another timer, which nothing tells from ours. So ours have high numbers; and one that comes in the place of another has another number,
 * because that may be the old number of another client's. */
#ifndef MORTISE_CORE_BASE_HIGH_FD_H
#define MORTISE_CORE_BASE_HIGH_FD_H

#include <fcntl.h>
#include <stdatomic.h>
#include <unistd.h>

#define HIGH_FD 500    /* and below FD_SETSIZE, for applications that use select() */
#define HIGH_TURNS 400 /* so many later ones have another number */

/* The same descriptor with a high number, if the limit on numbers permits one. -1 for -1. */
static inline int high_fd(int fd)
{
    static atomic_uint turn;
    int high = -1;
    if (fd >= 0)
        high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD + (int)(atomic_fetch_add(&turn, 1) % HIGH_TURNS));
    if (fd >= 0 && high < 0)
        high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

#endif
