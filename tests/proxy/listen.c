/* listen.c - the proxy's port, which it keeps even while connections are refused. */
#include "internal.h"

#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

int listener = -1;
static struct sockaddr_storage address; /* where we listen */
static socklen_t address_size;

static int bound_socket(void)
{
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) == 0 &&
        bind(fd, (struct sockaddr *)&address, address_size) == 0)
        return fd;
    close_fd(fd, false);
    return -1;
}

/* The second socket never listens, and is never closed: it keeps the port. */
int listen_first(const struct addrinfo *here)
{
    memcpy(&address, here->ai_addr, here->ai_addrlen);
    address_size = here->ai_addrlen;
    int first = bound_socket();
    if (first < 0 || getsockname(first, (struct sockaddr *)&address, &address_size) != 0 ||
        bound_socket() < 0 || listen(first, 1024) != 0)
        return 0;
    listener = first;
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}

bool listen_again(void)
{
    if (listener >= 0)
        return true;
    int fd = bound_socket();
    if (fd >= 0 && listen(fd, 1024) == 0) {
        listener = fd;
        return true;
    }
    close_fd(fd, false);
    return false;
}

void listen_no_more(void)
{
    close_fd(listener, false);
    listener = -1;
}

void accept_all(void)
{
    int fd;
    while (listener >= 0 && (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
        new_link(fd);
}
