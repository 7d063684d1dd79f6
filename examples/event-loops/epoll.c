/* epoll.c - locks in your own event loop: the clients' descriptors are in the loop like any others. argv[1]: a config
 * file or a URL; without it, the default config file. */
#include "crowd.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { TICK = CROWD_CLIENTS }; /* after the clients: the program's other work */

static bool add(int epoll, int fd, int which)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)which};
    return fd >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static int loop(int epoll, int timer)
{
    uint64_t times;
    bool done = false;
    while (!done) {
        struct epoll_event ready[8];
        int count = epoll_wait(epoll, ready, 8, -1);
        if (count < 0 && errno != EINTR)
            return 1;
        for (int i = 0; i < count && !done; i++) {
            if (ready[i].data.u32 != TICK)
                done = crowd_ready((int)ready[i].data.u32);
            else if (read(timer, &times, sizeof(times)) == (ssize_t)sizeof(times))
                done = crowd_tick();
        }
    }
    return crowd_end();
}

int main(int argc, char **argv)
{
    const struct itimerspec every = {{0, 10000000}, {0, 10000000}};
    int epoll = epoll_create1(EPOLL_CLOEXEC),
        timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (!crowd_begin(argc > 1 ? argv[1] : NULL))
        return crowd_end();
    bool well = timerfd_settime(timer, 0, &every, NULL) == 0 && add(epoll, timer, TICK);
    for (int i = 0; i < CROWD_CLIENTS; i++)
        well = well && add(epoll, crowd_fd(i), i);
    return well ? loop(epoll, timer) : 1;
}
