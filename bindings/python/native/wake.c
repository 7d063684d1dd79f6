/* wake.c - an epoll set with a socket in it. See wake.h. */
#include "wake.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HIGH = 500 }; /* below FD_SETSIZE, because programs use select() */

bool is_epoll(int fd)
{
    struct epoll_event event;
    return epoll_wait(fd, &event, 1, 0) >= 0;
}

int wake_duplicate(int fd)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH);
    return high >= 0 ? high : fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

/* The same descriptor with a high number, if the limit on numbers permits one. */
static int move_up(int fd)
{
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, HIGH);
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

static void close_both(const struct wake *wake)
{
    if (wake->epoll >= 0)
        close(wake->epoll);
    if (wake->socket >= 0)
        close(wake->socket);
}

bool wake_open(struct wake *wake)
{
    struct epoll_event nothing = {.events = 0};
    struct stat about;
    *wake = WAKE_CLOSED;
    wake->epoll = move_up(epoll_create1(EPOLL_CLOEXEC));
    wake->socket = move_up(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (wake->epoll >= 0 && wake->socket >= 0 && fstat(wake->socket, &about) == 0 &&
        epoll_ctl(wake->epoll, EPOLL_CTL_ADD, wake->socket, &nothing) == 0) {
        wake->dev = about.st_dev;
        wake->ino = about.st_ino;
        return true;
    }
    close_both(wake);
    *wake = WAKE_CLOSED;
    return false;
}

static bool has_socket(const struct wake *wake)
{
    struct stat about;
    return wake->socket >= 0 && fstat(wake->socket, &about) == 0 && about.st_dev == wake->dev &&
           about.st_ino == wake->ino;
}

bool wake_is_ours(const struct wake *wake)
{
    struct epoll_event nothing = {.events = 0};
    if (!has_socket(wake))
        return false;
    if (epoll_ctl(wake->epoll, EPOLL_CTL_ADD, wake->socket, &nothing) != 0)
        return errno == EEXIST;
    epoll_ctl(wake->epoll, EPOLL_CTL_DEL, wake->socket, NULL); /* it was another set */
    return false;
}

void wake_close(const struct wake *wake)
{
    if (wake_is_ours(wake))
        close_both(wake);
}

bool wake_set(struct wake *wake, bool raised)
{
    struct epoll_event event = {.events = raised ? EPOLLOUT : 0};
    bool is_set =
        has_socket(wake) && epoll_ctl(wake->epoll, EPOLL_CTL_MOD, wake->socket, &event) == 0;
    wake->raised = is_set && raised;
    return is_set;
}
