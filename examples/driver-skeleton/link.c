/* link.c - the connection: it connects without blocking, gives the connection up as a whole, and connects again. Knows
 * lines, but not their meaning. skeleton.h has the states. */
#include "skeleton.h"

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAUSE_NS INT64_C(100000000) /* between two attempts */
#define LONGEST_LINE 65536          /* a server that never ends a line must not fill all memory */

static int64_t now(const struct skeleton *skeleton)
{
    return skeleton->host->now(skeleton->host);
}

/* ---- buffers ---- */

/* Makes room for `more` bytes. False: out of memory. */
static bool reserve(struct buffer *buffer, size_t more)
{
    if (buffer->size - buffer->used >= more)
        return true;
    size_t size = 2 * buffer->size + more + 1024;
    char *bytes = realloc(buffer->bytes, size);
    if (bytes == NULL)
        return false;
    buffer->bytes = bytes;
    buffer->size = size;
    return true;
}

void link_put(struct skeleton *skeleton, const char *format, ...)
{
    struct buffer *out = &skeleton->out;
    char text[256]; /* longer values go through link_put_hex() */
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof(text) || !reserve(out, (size_t)length)) {
        skeleton->broken = true; /* half a line must not be sent */
        return;
    }
    memcpy(out->bytes + out->used, text, (size_t)length);
    out->used += (size_t)length;
}

void link_put_hex(struct skeleton *skeleton, const void *bytes, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *from = bytes;
    struct buffer *out = &skeleton->out;
    if (!reserve(out, 2 * size + 1)) {
        skeleton->broken = true;
        return;
    }
    for (size_t i = 0; i < size; i++) {
        out->bytes[out->used++] = digits[from[i] >> 4];
        out->bytes[out->used++] = digits[from[i] & 15];
    }
    if (size == 0)
        out->bytes[out->used++] = '-';
}

/* ---- down ---- */

static void drop(struct skeleton *skeleton)
{
    if (skeleton->fd >= 0) {
        skeleton->host->closing(skeleton->host, skeleton->fd); /* before the close, always */
        close(skeleton->fd);
    }
    skeleton->fd = -1;
    skeleton->in.used = skeleton->out.used = 0;
    skeleton->broken = false;
    skeleton->answered = skeleton->last_number; /* the next connection owes nothing yet */
    skeleton->attempt++;
}

void link_fail(struct skeleton *skeleton, const char *why)
{
    drop(skeleton);
    skeleton->state = LINK_DOWN;
    skeleton->due_ns = now(skeleton) + PAUSE_NS;
    ask_fail_all(skeleton, why);
}

void link_close(struct skeleton *skeleton)
{
    drop(skeleton);
    free(skeleton->in.bytes);
    free(skeleton->out.bytes);
}

/* ---- up ---- */

static int begin_connecting(const struct addrinfo *address)
{
    int one = 1;
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (connect(fd, address->ai_addr, address->ai_addrlen) == 0 || errno == EINPROGRESS)
        return fd;
    close(fd);
    return -1;
}

/* Tries the first address that it can. A driver for production would try the others if that fails. */
static void resolved(void *ctx, void *argument, const struct addrinfo *addresses,
                     const char *problem)
{
    struct skeleton *skeleton = ctx;
    (void)argument;
    skeleton->looks_up = false;
    if (skeleton->state != LINK_RESOLVING)
        return; /* too late */
    for (const struct addrinfo *each = addresses; each != NULL && skeleton->fd < 0;
         each = each->ai_next)
        skeleton->fd = begin_connecting(each);
    if (skeleton->fd < 0)
        link_fail(skeleton, problem != NULL ? problem : "no address could be connected to");
    else
        skeleton->state = LINK_CONNECTING;
}

void link_need(struct skeleton *skeleton)
{
    if (skeleton->state != LINK_DOWN || now(skeleton) < skeleton->due_ns)
        return;
    skeleton->state = LINK_RESOLVING;
    skeleton->due_ns = now(skeleton) + skeleton->timeout_ns;
    if (skeleton->looks_up)
        return; /* each takes a thread, and the answer of the one that is under way will do */
    skeleton->looks_up =
        skeleton->host->resolve(skeleton->host, skeleton->node, skeleton->port, resolved, NULL);
    if (!skeleton->looks_up)
        link_fail(skeleton, "out of memory or threads");
}

static void connected(struct skeleton *skeleton)
{
    int problem = 0;
    socklen_t size = sizeof(problem);
    if (getsockopt(skeleton->fd, SOL_SOCKET, SO_ERROR, &problem, &size) != 0 || problem != 0) {
        link_fail(skeleton, strerror(problem));
        return;
    }
    skeleton->state = LINK_UP;
    link_put(skeleton, "HELLO %s %" PRIuPTR "\n", skeleton->client_id, skeleton->attempt);
    ask_all(skeleton);
}

/* ---- traffic ---- */

/* Returns false if the connection was given up. */
static bool flush(struct skeleton *skeleton)
{
    struct buffer *out = &skeleton->out;
    size_t sent = 0;
    while (sent < out->used) {
        ssize_t n = send(skeleton->fd, out->bytes + sent, out->used - sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n < 0) {
            link_fail(skeleton, strerror(errno));
            return false;
        }
        sent += (size_t)n;
    }
    memmove(out->bytes, out->bytes + sent, out->used - sent);
    out->used -= sent;
    return true;
}

static void read_lines(struct skeleton *skeleton)
{
    struct buffer *in = &skeleton->in;
    char *line = in->bytes, *end;
    while ((end = memchr(line, '\n', in->used - (size_t)(line - in->bytes))) != NULL) {
        *end = '\0';
        ask_line(skeleton, line);
        line = end + 1;
    }
    in->used -= (size_t)(line - in->bytes);
    memmove(in->bytes, line, in->used);
}

static void receive(struct skeleton *skeleton)
{
    struct buffer *in = &skeleton->in;
    if (!reserve(in, 65536)) {
        link_fail(skeleton, "out of memory");
        return;
    }
    ssize_t n = recv(skeleton->fd, in->bytes + in->used, in->size - in->used, 0);
    if (n > 0) {
        in->used += (size_t)n;
        read_lines(skeleton);
        if (in->used > LONGEST_LINE)
            link_fail(skeleton, "the server sends a line without an end");
    } else if (n == 0) {
        link_fail(skeleton, "the server closed the connection");
    } else if (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) {
        link_fail(skeleton, strerror(errno));
    }
}

void link_turn(struct skeleton *skeleton, short revents)
{
    if (skeleton->state == LINK_CONNECTING && revents != 0)
        connected(skeleton);
    if (skeleton->state == LINK_UP && (revents & (POLLIN | POLLHUP | POLLERR)) != 0)
        receive(skeleton);
    if (skeleton->broken)
        link_fail(skeleton, "out of memory");
    if (skeleton->state == LINK_UP && !flush(skeleton))
        return;
    bool over = now(skeleton) >= skeleton->due_ns;
    if ((skeleton->state == LINK_RESOLVING || skeleton->state == LINK_CONNECTING) && over)
        link_fail(skeleton, "no connection in time");
    else if (skeleton->state == LINK_DOWN && (skeleton->first != NULL || skeleton->watched != NULL))
        link_need(skeleton);
    else if (skeleton->state == LINK_UP && is_owed(skeleton) &&
             now(skeleton) >= answer_due(skeleton))
        link_fail(skeleton, "no answer in time");
}
