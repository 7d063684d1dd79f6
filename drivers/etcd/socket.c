/* socket.c - bytes to and from the kernel. See socket.h. SIGPIPE never arises: everything is sent with MSG_NOSIGNAL. */
#include "socket.h"
#include "../lib/tcp.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool fail(struct socket *sock, int error)
{
    snprintf(sock->problem, sizeof(sock->problem), "%s%s", strerror(error),
             error == ECONNREFUSED ? "; does a server run there?" : "");
    return false;
}

bool socket_connect(struct socket *sock, const struct sockaddr *address, socklen_t length)
{
    *sock = (struct socket){.fd = -1};
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fail(sock, errno);
    tcp_set_options(fd);
    if (connect(fd, address, length) != 0 && errno != EINPROGRESS) {
        int error = errno;
        close(fd);
        return fail(sock, error);
    }
    sock->fd = fd;
    return true;
}

bool socket_connected(struct socket *sock)
{
    int error = 0;
    socklen_t size = sizeof(error);
    if (getsockopt(sock->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        error = errno;
    return error == 0 || fail(sock, error);
}

void socket_close(struct socket *sock)
{
    tls_free(sock->tls);
    writer_free(&sock->out);
    if (sock->fd >= 0)
        close(sock->fd);
    sock->fd = -1;
    sock->tls = NULL;
    sock->sent = 0;
    sock->blocked = false;
}

/* ---- plain bytes ----------------------------------------------------------------------------------------- */

static ssize_t plain_read(struct socket *sock, void *to, size_t room)
{
    ssize_t size;
    do
        size = recv(sock->fd, to, room, MSG_DONTWAIT);
    while (size < 0 && errno == EINTR);
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    if (size > 0)
        return size;
    if (size < 0)
        fail(sock, errno);
    else
        snprintf(sock->problem, sizeof(sock->problem), "the server has closed the connection");
    return -1;
}

bool socket_flush(struct socket *sock)
{
    if (sock->out.failed)
        return fail(sock, ENOMEM);
    while (sock->sent < sock->out.size) {
        ssize_t size = send(sock->fd, sock->out.data + sock->sent, sock->out.size - sock->sent,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (size < 0 && errno == EINTR)
            continue;
        sock->blocked = size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
        if (sock->blocked)
            return true;
        if (size < 0)
            return fail(sock, errno);
        sock->sent += (size_t)size;
    }
    sock->blocked = false;
    sock->sent = sock->out.size = 0;
    return true;
}

/* ---- with TLS or without ------------------------------------------------------------------------------------ */

bool socket_secure(struct socket *sock, struct tls_context *context, const char *host)
{
    sock->tls = tls_new(context, host);
    return sock->tls != NULL || fail(sock, ENOMEM);
}

/* Hands the available bytes to TLS. False: the end of the stream, or an error. */
static bool feed(struct socket *sock)
{
    char buffer[16384];
    ssize_t size;
    while ((size = plain_read(sock, buffer, sizeof(buffer))) > 0) {
        if (!tls_feed(sock->tls, buffer, (size_t)size))
            return fail(sock, ENOMEM);
        if ((size_t)size < sizeof(buffer))
            break;
    }
    return size >= 0;
}

enum secured socket_handshake(struct socket *sock)
{
    char problem[200] = "";
    bool is_open = feed(sock);
    int result = tls_handshake(sock->tls, problem, sizeof(problem));
    tls_drain(sock->tls, &sock->out); /* also the alert that tells the peer why TLS failed */
    bool flushed = socket_flush(sock);
    if (result < 0)
        memcpy(sock->problem, problem, sizeof(problem));
    if (result < 0 || !flushed || (result == 0 && !is_open))
        return SECURED_NEVER;
    return result == 1 ? SECURED : SECURED_NOT_YET;
}

ssize_t socket_read(struct socket *sock, void *to, size_t room)
{
    if (sock->tls == NULL)
        return plain_read(sock, to, room);
    ssize_t size = tls_read(sock->tls, to, room, sock->problem, sizeof(sock->problem));
    if (size != 0)
        return size;
    if (!feed(sock))
        return -1;
    size = tls_read(sock->tls, to, room, sock->problem, sizeof(sock->problem));
    tls_drain(sock->tls, &sock->out);
    return size;
}

bool socket_write(struct socket *sock, const void *data, size_t size)
{
    if (sock->tls == NULL)
        write_raw(&sock->out, data, size);
    else {
        if (!tls_write(sock->tls, data, size))
            return fail(sock, EPROTO);
        tls_drain(sock->tls, &sock->out);
    }
    return !sock->out.failed || fail(sock, ENOMEM);
}
