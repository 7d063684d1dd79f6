/* listen.c - where the page listens: a socket from systemd, or one that it makes. */
#include "serve.h"

#include "exit_code.h"
#include "options.h"
#include "output.h"
#include "text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 128, FROM_SYSTEMD = 3 };

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un local;
    struct sockaddr_storage storage;
};

static bool fail(int *code, int exit_code, const char *where, const char *why)
{
    char shown[QUOTED_SIZE];

    say("serve: %.300s: %s", quoted(where, shown, sizeof shown), why);
    *code = exit_code;
    return false;
}

static bool is_loopback(const union address *address)
{
    if (address->any.sa_family == AF_INET)
        return ntohl(address->v4.sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&address->v6.sin6_addr);
}

/* Fills the rest of the listener from its socket. */
static bool describe(struct listener *listener)
{
    union address address;
    socklen_t size = sizeof address;
    char text[INET6_ADDRSTRLEN] = "";

    if (getsockname(listener->fd, &address.any, &size) != 0)
        return false;
    const bool six = address.any.sa_family == AF_INET6;
    listener->local = address.any.sa_family == AF_UNIX;
    if (listener->local) {
        snprintf(listener->shown, sizeof listener->shown, "a Unix socket");
        return true;
    }
    if (!six && address.any.sa_family != AF_INET)
        return false;
    listener->loopback = is_loopback(&address);
    inet_ntop(address.any.sa_family,
              six ? (void *)&address.v6.sin6_addr : (void *)&address.v4.sin_addr, text,
              sizeof text);
    snprintf(listener->shown, sizeof listener->shown, "http://%s%s%s:%u/", six ? "[" : "", text,
             six ? "]" : "", ntohs(six ? address.v6.sin6_port : address.v4.sin_port));
    return true;
}

/* ---- From systemd ---------------------------------------------------------------------------- */

static bool is_activated(void)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    char own[32];

    snprintf(own, sizeof own, "%d", (int)getpid());
    return pid != NULL && strcmp(pid, own) == 0 && count != NULL && strcmp(count, "0") != 0;
}

static bool take_socket(struct listener *listener, int *code)
{
    socklen_t size = sizeof(int);
    int type = 0, listens = 0;

    listener->fd = FROM_SYSTEMD;
    if (strcmp(getenv("LISTEN_FDS"), "1") != 0 ||
        getsockopt(FROM_SYSTEMD, SOL_SOCKET, SO_TYPE, &type, &size) != 0 ||
        getsockopt(FROM_SYSTEMD, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 ||
        type != SOCK_STREAM || listens == 0 || !describe(listener))
        return fail(code, EXIT_BAD_CONFIG, "LISTEN_FDS",
                    "expected one listening socket (ListenStream=)");
    fcntl(FROM_SYSTEMD, F_SETFD, FD_CLOEXEC);
    fcntl(FROM_SYSTEMD, F_SETFL, O_NONBLOCK);
    return true;
}

/* ---- A socket of its own --------------------------------------------------------------------- */

/* Splits "127.0.0.1:9750" or "[::1]:9750". */
static bool split(const char *where, char *host, size_t size, const char **port)
{
    const char *colon = strrchr(where, ':');
    size_t length = colon ? (size_t)(colon - where) : 0;
    uint64_t number;

    if (length == 0 || !parse_number(colon + 1, 0, 65535, &number))
        return false;
    if (where[0] == '[' && colon[-1] == ']') {
        where++;
        length -= 2;
    } else if (memchr(where, ':', length) != NULL) {
        return false;
    }
    if (length == 0 || length >= size)
        return false;
    memcpy(host, where, length);
    host[length] = '\0';
    *port = colon + 1;
    return true;
}

static bool bind_to(const struct addrinfo *info, struct listener *listener)
{
    const int yes = 1;

    listener->fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener->fd < 0)
        return false;
    setsockopt(listener->fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    return bind(listener->fd, info->ai_addr, info->ai_addrlen) == 0 &&
           listen(listener->fd, BACKLOG) == 0 && describe(listener);
}

static bool make_socket(const char *where, struct listener *listener, int *code)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found;
    char host[256];
    const char *port;

    if (!split(where, host, sizeof host, &port))
        return fail(code, EXIT_BAD_USAGE, where,
                    "expected HOST:PORT, as 127.0.0.1:9750 or [::1]:9750");
    const int error = getaddrinfo(host, port, &hints, &found);
    if (error != 0)
        return fail(code, EXIT_BAD_USAGE, where, gai_strerror(error));
    const bool bound = bind_to(found, listener);
    freeaddrinfo(found);
    if (!bound && errno == EADDRINUSE)
        return fail(code, EXIT_NOT_HAD, where, "another program listens there");
    return bound || fail(code, EXIT_SYSTEM, where, strerror(errno));
}

bool listen_open(const char *where, struct listener *listener, int *code)
{
    *listener = (struct listener){.fd = -1};
    return is_activated() ? take_socket(listener, code) : make_socket(where, listener, code);
}
