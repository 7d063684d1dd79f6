/* calls_net.c - the calls of a program for sockets: those of the internet lead into the simulated network, if there is
 * one. */
#include "calls.h"
#include "net.h"
#include "real.h"
#include "sched.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <unistd.h>

static bool forked;

void calls_net_forked(void)
{
    forked = true;
}

/* NULL: the descriptor is none of the simulated network's. */
static struct connection *find(int fd)
{
    struct connection *connection = sched_on() || forked ? net_of(fd) : NULL;
    if (connection && forked)
        _exit(CALLS_TOUCHED);
    return connection;
}

int socket(int domain, int type, int protocol)
{
    if (!sched_on() || !net.on || domain != AF_INET || (type & 0xf) != SOCK_STREAM)
        return calls_disk_opened(real()->socket(domain, type, protocol));
    return net_socket();
}

int connect(int fd, const struct sockaddr *address, socklen_t length)
{
    struct connection *connection = find(fd);
    if (!connection)
        return real()->connect(fd, address, length);
    const struct sockaddr_in *to = (const void *)address;
    int result = net_connect(connection, ntohs(to->sin_port) - NET_FIRST_PORT);
    int problem = errno;
    sched_point(POINT_FILE);
    errno = problem;
    return result;
}

bool calls_net_write(int fd, const void *buffer, size_t size, ssize_t *count)
{
    struct connection *connection = find(fd);
    if (!connection)
        return false;
    *count = net_send(connection, buffer, size);
    int problem = errno;
    sched_point(POINT_FILE);
    errno = problem;
    return true;
}

bool calls_net_read(int fd, void *buffer, size_t size, int flags, ssize_t *count)
{
    struct connection *connection = find(fd);
    if (!connection)
        return false;
    sched_point(POINT_FILE);
    *count = net_receive(connection, buffer, size, flags);
    sched_files_changed();
    return true;
}

ssize_t send(int fd, const void *buffer, size_t size, int flags)
{
    ssize_t count;
    return calls_net_write(fd, buffer, size, &count) ? count
                                                     : real()->send(fd, buffer, size, flags);
}

ssize_t recv(int fd, void *buffer, size_t size, int flags)
{
    ssize_t count;
    return calls_net_read(fd, buffer, size, flags, &count) ? count
                                                           : real()->recv(fd, buffer, size, flags);
}

int getsockopt(int fd, int level, int option, void *restrict value, socklen_t *restrict size)
{
    struct connection *connection = find(fd);
    if (!connection || level != SOL_SOCKET || option != SO_ERROR)
        return real()->getsockopt(fd, level, option, value, size);
    *(int *)value = connection->problem;
    connection->problem = 0;
    return 0;
}

int setsockopt(int fd, int level, int option, const void *value, socklen_t size)
{
    struct connection *connection = find(fd);
    if (!connection)
        return real()->setsockopt(fd, level, option, value, size);
    if (level == SOL_SOCKET && option == SO_LINGER)
        connection->abortive = ((const struct linger *)value)->l_linger == 0;
    return 0;
}
