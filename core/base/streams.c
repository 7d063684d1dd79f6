/* streams.c - see streams.h. */
#include "base/streams.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

/* An empty epoll set needs no file, which a sandbox may lack; it leads to no folder outside of a later chroot(); and nobody can
 * write to it by opening /dev/stderr. A new program does not get it. The kernel gives the lowest free number. */
void streams_hold(void)
{
    for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++) {
        int fd = fcntl(stream, F_GETFD) < 0 ? epoll_create1(EPOLL_CLOEXEC) : -1;
        if (fd > STDERR_FILENO) /* another thread has filled the place meanwhile */
            close(fd);
    }
}
