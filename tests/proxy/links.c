/* links.c - the proxy's connections: it reads bytes and ends of stream from one side as chunks, and writes them to
 * the other side when the rules permit. Knows no command, only what is in force. */
#include "internal.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define KEPT_MAX ((size_t)64 << 20) /* of one direction; then no more is read */

struct link *links;
struct addrinfo *server;
struct counts counts;

static void add_chunk(struct link *link, enum way way, enum what what, const char *bytes,
                      size_t size)
{
    struct flow *flow = &link->flows[way];
    struct chunk *chunk = malloc(sizeof *chunk + size);
    if (!chunk)
        abort();
    *chunk =
        (struct chunk){.what = what, .due_ms = test_now_ms() + rules.delay_ms[way], .size = size};
    if (size > 0)
        memcpy(chunk->bytes, bytes, size);
    flow->kept += size;
    flow->all_taken = what != BYTES;
    DL_APPEND(flow->chunks, chunk);
}

static void drop_chunk(struct flow *flow)
{
    struct chunk *chunk = flow->chunks;
    flow->kept -= chunk->size;
    DL_DELETE(flow->chunks, chunk);
    free(chunk);
}

void close_fd(int fd, bool reset)
{
    if (fd < 0)
        return;
    if (reset)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
    close(fd);
}

void close_link(struct link *link, bool reset)
{
    for (int way = UP; way < WAYS; way++) {
        close_fd(link->fds[way], reset);
        link->fds[way] = -1;
        while (link->flows[way].chunks)
            drop_chunk(&link->flows[way]);
    }
    link->over = true;
}

/* Whether the kernel has handed all of it to the network: then a reset does not overtake it. */
static bool all_left(int fd)
{
    int unsent = 0;
    return fd < 0 || ioctl(fd, SIOCOUTQNSD, &unsent) != 0 || unsent == 0;
}

static void cut_when_sent(struct link *link)
{
    link->cutting = !all_left(link->fds[UP]) || !all_left(link->fds[DOWN]);
    if (!link->cutting)
        close_link(link, true);
}

void new_link(int fd)
{
    struct link *link = calloc(1, sizeof *link);
    if (!link)
        abort();
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    link->fds[UP] = fd;
    link->fds[DOWN] = -1;
    for (int way = UP; way < WAYS; way++)
        link->flows[way].budget = rules.budget[way];
    DL_APPEND(links, link);
    counts.ever++;
}

/* Later failures than these are told by the descriptor (connecting). */
static void connect_link(struct link *link)
{
    int fd = socket(server->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    link->fds[DOWN] = fd;
    if (fd < 0 || (connect(fd, server->ai_addr, server->ai_addrlen) != 0 && errno != EINPROGRESS)) {
        add_chunk(link, DOWN, RESET, NULL, 0);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
}

static void look_connected(struct link *link)
{
    int problem = 0;
    socklen_t size = sizeof problem;
    getsockopt(link->fds[DOWN], SOL_SOCKET, SO_ERROR, &problem, &size);
    if (problem != 0)
        add_chunk(link, DOWN, RESET, NULL, 0);
    link->connected = problem == 0;
}

/* ---- bytes ------------------------------------------------------------------------------------ */

static void cut_reply(struct link *link)
{
    counts.cut_reply++;
    cut_when_sent(link);
}

/* `bytes` begins with what was kept before. */
static void take_replies(struct link *link, char *bytes, size_t size)
{
    size_t ready = map_ports(bytes, size);
    link->partial_size = size - ready;
    memcpy(link->partial, bytes + ready, link->partial_size);
    if (ready > 0)
        add_chunk(link, DOWN, BYTES, bytes, ready);
}

static void take_end(struct link *link, enum way way, enum what what)
{
    if (way == DOWN && link->partial_size > 0)
        add_chunk(link, DOWN, BYTES, link->partial, link->partial_size);
    add_chunk(link, way, what, NULL, 0);
}

static void take(struct link *link, enum way way)
{
    static char buffer[PARTIAL_MAX + 65536];
    size_t kept = way == DOWN ? link->partial_size : 0;
    ssize_t got = recv(link->fds[way], buffer + PARTIAL_MAX, sizeof buffer - PARTIAL_MAX, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        take_end(link, way, got < 0 ? RESET : END);
        return;
    }
    counts.taken[way] += (uint64_t)got;
    char *bytes = buffer + PARTIAL_MAX - kept;
    memcpy(bytes, link->partial, kept);
    if (way == UP)
        add_chunk(link, UP, BYTES, bytes, (size_t)got);
    else if (rules.losing)
        link->lost = true;
    else if (rules.replies_to_cut > 0 && --rules.replies_to_cut == 0)
        cut_reply(link);
    else
        take_replies(link, bytes, kept + (size_t)got);
}

/* Nobody is there to have it; the sender is told in its turn. */
static void give_up(struct link *link, enum way way)
{
    struct flow *flow = &link->flows[way], *back = &link->flows[!way];
    while (flow->chunks)
        drop_chunk(flow);
    flow->all_taken = flow->all_given = true;
    if (!back->all_taken)
        add_chunk(link, !way, RESET, NULL, 0);
}

static void budget_spent(struct link *link, enum way way)
{
    struct link *other;
    counts.cut_after[way]++;
    cut_when_sent(link);
    if (rules.budget_each[way])
        return;
    rules.budget[way] = -1;
    DL_FOREACH (links, other)
        other->flows[way].budget = -1;
}

/* Some of the first chunk; false: not now. */
static bool give_bytes(struct link *link, enum way way)
{
    struct flow *flow = &link->flows[way];
    struct chunk *chunk = flow->chunks;
    size_t size = chunk->size - chunk->sent;
    if (flow->budget >= 0 && size > (uint64_t)flow->budget)
        size = (size_t)flow->budget;
    ssize_t sent =
        size > 0 ? send(link->fds[!way], chunk->bytes + chunk->sent, size, MSG_NOSIGNAL) : 0;
    flow->blocked = sent < 0 && (errno == EAGAIN || errno == EINTR);
    if (sent < 0) {
        if (!flow->blocked)
            give_up(link, way);
        return false;
    }
    counts.given[way] += (uint64_t)sent;
    chunk->sent += (size_t)sent;
    if (chunk->sent == chunk->size)
        drop_chunk(flow);
    if (flow->budget >= 0 && (flow->budget -= sent) == 0)
        budget_spent(link, way);
    return true;
}

static bool may_give(const struct link *link, enum way way, int64_t now_ms)
{
    const struct chunk *chunk = link->flows[way].chunks;
    return chunk && !rules.held[way] && !link->over && !link->cutting && chunk->due_ms <= now_ms &&
           (way == DOWN || link->connected);
}

static void give(struct link *link, enum way way)
{
    struct flow *flow = &link->flows[way];
    int64_t now_ms = test_now_ms();
    while (may_give(link, way, now_ms)) {
        if (flow->chunks->what == BYTES) {
            if (!give_bytes(link, way))
                return;
        } else if (flow->chunks->what == RESET) {
            cut_when_sent(link);
        } else {
            drop_chunk(flow);
            shutdown(link->fds[!way], SHUT_WR);
            flow->all_given = true;
        }
    }
}

void serve_link(struct link *link)
{
    if (link->fds[DOWN] < 0 && !link->over && !rules.held[UP] && !link->flows[DOWN].all_taken)
        connect_link(link);
    give(link, UP);
    give(link, DOWN);
    if (link->cutting && !link->over)
        cut_when_sent(link);
    if (!link->over && link->flows[UP].all_given && link->flows[DOWN].all_given)
        close_link(link, false);
}

/* What is waited for on the descriptor that this way comes from. */
short wanted(const struct link *link, enum way way)
{
    const struct flow *in = &link->flows[way], *out = &link->flows[!way];
    if (link->over || link->cutting || link->fds[way] < 0)
        return 0;
    if (way == DOWN && !link->connected)
        return in->all_taken ? 0 : POLLOUT;
    return (short)((!in->all_taken && in->kept < KEPT_MAX ? POLLIN : 0) |
                   (out->blocked && out->chunks && !rules.held[!way] ? POLLOUT : 0));
}

int timeout_of(const struct link *link, int64_t now_ms, int timeout)
{
    if (link->cutting)
        return 1;
    for (int way = UP; way < WAYS; way++) {
        const struct flow *flow = &link->flows[way];
        if (link->over || !flow->chunks || rules.held[way] || flow->blocked ||
            (way == UP && !link->connected))
            continue;
        /* it may have become due since it was looked at */
        int64_t wait_ms = flow->chunks->due_ms > now_ms ? flow->chunks->due_ms - now_ms : 0;
        if (timeout < 0 || wait_ms < timeout)
            timeout = (int)wait_ms;
    }
    return timeout;
}

void attend(struct link *link, enum way way)
{
    if (link->over)
        return;
    if (way == DOWN && !link->connected)
        look_connected(link);
    else if (!link->flows[way].all_taken && link->flows[way].kept < KEPT_MAX)
        take(link, way);
}
