/* tcp.h - the options of a connection over TCP: small requests leave at once, and the kernel notices a host that is gone. */
#ifndef MORTISE_LIB_TCP_H
#define MORTISE_LIB_TCP_H

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <sys/socket.h>

#define TCP_KEEPALIVE_IDLE_S 15
#define TCP_KEEPALIVE_EVERY_S 5
#define TCP_KEEPALIVE_TRIES 3
/* While sent data is not acknowledged, the kernel sends no keepalives and repeats the data for a quarter of an hour. With this
 * option it gives up after the same time as with keepalives. */
#define TCP_UNACKNOWLEDGED_MS                                                                      \
    (1000 * (TCP_KEEPALIVE_IDLE_S + TCP_KEEPALIVE_EVERY_S * TCP_KEEPALIVE_TRIES))

/* A kernel without one of these options does not fail the connection. */
static inline void tcp_set_options(int fd)
{
    static const struct {
        int level, option, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, TCP_KEEPALIVE_IDLE_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, TCP_KEEPALIVE_EVERY_S},
        {IPPROTO_TCP, TCP_KEEPCNT, TCP_KEEPALIVE_TRIES},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, TCP_UNACKNOWLEDGED_MS},
    };
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        setsockopt(fd, options[i].level, options[i].option, &options[i].value, sizeof(int));
}

#endif
