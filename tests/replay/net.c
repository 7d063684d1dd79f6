/* net.c - see net.h. */
#include "net.h"

#include "real.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 65536 };

struct net net;

static void fire(struct sched_timer *timer);

void net_begin(const struct net_settings *settings)
{
    net.settings = *settings;
    net.timer.fire = fire;
    net.timer.due_ns = SCHED_NEVER;
    net.on = true;
}

struct connection *net_of(int fd)
{
    return net.on && fd >= 0 && fd < NET_FDS ? net.by_fd[fd] : NULL;
}

/* ---- the timer ---- */

static struct piece *earliest(struct connection **of, enum net_way *its_way)
{
    struct piece *best = NULL;
    for (int i = 0; i < net.count; i++)
        for (enum net_way way = 0; way < NET_WAYS; way++) {
            struct piece *piece = net.connections[i]->ways[way].first;
            if (!piece || (best && (piece->due_ns > best->due_ns ||
                                    (piece->due_ns == best->due_ns && piece->order > best->order))))
                continue;
            best = piece;
            *of = net.connections[i];
            *its_way = way;
        }
    return best;
}

/* Not for the timer itself: what it fires sets its own next instant. */
void net_set_timer(void)
{
    struct connection *of;
    enum net_way way;
    if (net.arriving)
        return;
    const struct piece *piece = earliest(&of, &way);
    sched_remove_timer(&net.timer);
    net.timer.due_ns = piece ? piece->due_ns : SCHED_NEVER;
    if (piece)
        sched_add_timer(&net.timer);
}

/* ---- pieces ---- */

static int64_t random_ns(int64_t below)
{
    return (int64_t)sched_draw((uint32_t)(below / 1000 + 1)) * 1000;
}

static int64_t journey_ns(void)
{
    const struct net_settings *settings = &net.settings;
    int64_t ns = settings->least_ns + random_ns(settings->most_ns - settings->least_ns);
    if (settings->slow_one_in > 0 && sched_draw(settings->slow_one_in) == 0)
        ns += random_ns(settings->slow_ns);
    return ns;
}

static int64_t leaves_ns(const struct connection *connection, enum net_way way)
{
    int64_t at_ns = sched_now();
    int64_t blocked_ns = net.blocked_until_ns[connection->process][connection->server][way];
    return blocked_ns > at_ns ? blocked_ns : at_ns;
}

static int64_t arrives_ns(const struct connection *connection, enum net_way way, int64_t after_ns)
{
    int64_t at_ns = leaves_ns(connection, way) + after_ns + journey_ns();
    if (way == NET_TO_SERVER && at_ns < net.stopped_until_ns[connection->server])
        at_ns = net.stopped_until_ns[connection->server];
    if (way == NET_TO_SERVER && at_ns < connection->held_until_ns)
        at_ns = connection->held_until_ns;
    if (at_ns <= connection->ways[way].last_ns)
        at_ns = connection->ways[way].last_ns + 1;
    return at_ns;
}

static void put_one(struct connection *connection, enum net_way way, enum net_piece what,
                    const void *bytes, size_t size, int64_t after_ns)
{
    struct way *road = &connection->ways[way];
    struct piece *piece = calloc(1, sizeof *piece + size);
    if (!piece)
        abort();
    piece->what = what;
    piece->size = size;
    if (size > 0)
        memcpy(piece->bytes, bytes, size);
    piece->order = net.order++;
    piece->due_ns = road->last_ns = arrives_ns(connection, way, after_ns);
    if (road->last)
        road->last->next = piece;
    else
        road->first = piece;
    road->last = piece;
}

void net_put(struct connection *connection, enum net_way way, enum net_piece what,
             const void *bytes, size_t size, int64_t after_ns)
{
    size_t first = size;
    if (connection->dead)
        return;
    if (size > 1 && net.settings.split_one_in > 0 && connection->client == 0 &&
        sched_draw(net.settings.split_one_in) == 0)
        first = 1 + sched_draw((uint32_t)size - 1);
    put_one(connection, way, what, bytes, first, after_ns);
    if (first < size)
        put_one(connection, way, what, (const char *)bytes + first, size - first, after_ns);
    net_set_timer();
}

static void take_first(struct way *road)
{
    struct piece *piece = road->first;
    road->first = piece->next;
    if (!road->first)
        road->last = NULL;
    free(piece);
}

size_t net_bytes(const struct connection *connection, enum net_way way)
{
    size_t bytes = 0;
    for (const struct piece *piece = connection->ways[way].first; piece; piece = piece->next)
        bytes += piece->size - piece->done;
    return bytes;
}

void net_truncate(struct connection *connection, enum net_way way, size_t kept)
{
    struct way *road = &connection->ways[way];
    struct piece **link = &road->first, *piece;
    road->last = NULL;
    while ((piece = *link) != NULL && piece->size - piece->done <= kept &&
           (kept > 0 || piece->what == PIECE_CONNECT)) {
        kept -= piece->size - piece->done;
        road->last = piece;
        link = &piece->next;
    }
    if (piece && kept > 0) {
        piece->size = piece->done + kept;
        road->last = piece;
        link = &piece->next;
        piece = piece->next;
    }
    *link = NULL;
    while (piece) {
        struct piece *next = piece->next;
        free(piece);
        piece = next;
    }
    road->last_ns = road->last ? road->last->due_ns : 0;
    net_set_timer();
}

/* ---- the program's end ---- */

/* The program's socket takes no bytes any more. */
static void fill(struct connection *connection)
{
    static const char nothing[1024];
    int size = 1;
    real()->setsockopt(connection->fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    while (real()->send(connection->fd, nothing, sizeof nothing, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
        ;
}

static void drain(struct connection *connection)
{
    char nothing[4096];
    while (real()->recv(connection->far, nothing, sizeof nothing, MSG_DONTWAIT) > 0)
        ;
}

static void close_far(struct connection *connection)
{
    if (connection->far >= 0)
        real()->close(connection->far);
    connection->far = -1;
}

static void answer_connect(struct connection *connection, enum net_piece what)
{
    if (connection->state != NET_CONNECTING)
        return;
    connection->state = what == PIECE_ACCEPTED ? NET_OPEN : NET_REFUSED;
    connection->problem = what == PIECE_ACCEPTED  ? 0
                          : what == PIECE_REFUSED ? ECONNREFUSED
                                                  : ECONNRESET;
    if (connection->client == 0)
        drain(connection);
    if (what != PIECE_ACCEPTED)
        close_far(connection);
}

static void end(struct connection *connection, enum net_piece what)
{
    if (connection->state == NET_CONNECTING)
        answer_connect(connection, PIECE_RESET);
    if (connection->state != NET_OPEN)
        return;
    connection->state = what == PIECE_END ? NET_ENDED : NET_RESET;
    close_far(connection);
}

/* Returns whether the piece has arrived as a whole. */
static bool arrive_at_program(struct connection *connection, struct piece *piece)
{
    if (piece->what == PIECE_ACCEPTED || piece->what == PIECE_REFUSED)
        answer_connect(connection, piece->what);
    else if (piece->what != PIECE_DATA)
        end(connection, piece->what);
    else if (connection->state == NET_OPEN) {
        ssize_t count = real()->send(connection->far, piece->bytes + piece->done,
                                     piece->size - piece->done, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count > 0)
            piece->done += (size_t)count;
        if (piece->done < piece->size) { /* the program does not read: again later */
            piece->due_ns = sched_now() + 1000000;
            return false;
        }
    }
    return true;
}

static bool arrive_at_client(struct connection *connection, struct piece *piece)
{
    int client = connection->client - 1;
    bool whole = arrive_at_program(connection, piece);
    if (client >= 0 && net.servers[client].pid > 0) {
        server_turn(&net.servers[client]);
        net_collect(client);
    }
    return whole;
}

/* ---- the server's end ---- */

static void server_closed(struct connection *connection, bool reset)
{
    real()->close(connection->at_server);
    connection->at_server = -1;
    if (connection->state != NET_CLOSED)
        net_put(connection, NET_TO_CLIENT, reset ? PIECE_RESET : PIECE_END, NULL, 0, 0);
}

static ssize_t read_answers(struct connection *connection)
{
    static char bytes[CHUNK];
    ssize_t count = real()->recv(connection->at_server, bytes, sizeof bytes, MSG_DONTWAIT);
    if (count > 0) {
        for (ssize_t i = 0; i < count; i++)
            sched_mix((unsigned char)bytes[i]);
        if (connection->state != NET_CLOSED)
            net_put(connection, NET_TO_CLIENT, PIECE_DATA, bytes, (size_t)count, 0);
    } else if (count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK))
        server_closed(connection, count < 0);
    return count;
}

/* The server may have more to say than the sockets take. */
void net_collect(int server)
{
    bool more = true;
    net_collect_links(server);
    while (more) {
        struct pollfd fds[NET_CONNECTIONS];
        struct connection *of[NET_CONNECTIONS];
        nfds_t n = 0;
        more = false;
        for (int i = 0; i < net.count; i++)
            if (net.connections[i]->server == server && net.connections[i]->at_server >= 0) {
                of[n] = net.connections[i];
                fds[n] = (struct pollfd){.fd = of[n]->at_server, .events = POLLIN};
                n++;
            }
        if (n == 0 || real()->poll(fds, n, 0) <= 0)
            return;
        for (nfds_t i = 0; i < n; i++)
            if (fds[i].revents != 0)
                more |= read_answers(of[i]) == CHUNK;
        if (more && net.servers[server].pid > 0)
            server_turn(&net.servers[server]);
    }
}

static void connect_to_server(struct connection *connection)
{
    struct server *server = &net.servers[connection->server];
    if (server->pid == 0) {
        net_put(connection, NET_TO_CLIENT, PIECE_REFUSED, NULL, 0, 0);
        return;
    }
    connection->at_server = server_connect(server);
    net_put(connection, NET_TO_CLIENT, PIECE_ACCEPTED, NULL, 0, 0);
}

static void send_to_server(struct connection *connection, const struct piece *piece)
{
    size_t done = 0;
    for (size_t i = 0; i < piece->size; i++)
        sched_mix((unsigned char)piece->bytes[i]);
    while (done < piece->size && connection->at_server >= 0) {
        ssize_t count = real()->send(connection->at_server, piece->bytes + done, piece->size - done,
                                     MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count > 0)
            done += (size_t)count;
        server_turn(&net.servers[connection->server]);
        net_collect(connection->server);
    }
}

static void arrive_at_server(struct connection *connection, const struct piece *piece)
{
    if (piece->what == PIECE_CONNECT)
        connect_to_server(connection);
    else if (connection->at_server < 0) { /* there is no such connection any more */
        if (piece->what == PIECE_DATA && connection->state != NET_CLOSED)
            net_put(connection, NET_TO_CLIENT, PIECE_RESET, NULL, 0, 0);
    } else if (piece->what == PIECE_DATA)
        send_to_server(connection, piece);
    else {
        real()->close(connection->at_server);
        connection->at_server = -1;
        server_turn(&net.servers[connection->server]);
        net_collect(connection->server);
    }
}

/* ---- arrivals ---- */

/* Of those that the program has closed: the ones of which nothing travels to a server any more. */
static void free_closed(void)
{
    int kept = 0;
    for (int i = 0; i < net.count; i++) {
        struct connection *connection = net.connections[i];
        if (connection->state != NET_CLOSED || connection->ways[NET_TO_SERVER].first ||
            connection->at_server >= 0) {
            net.connections[kept++] = connection;
            continue;
        }
        while (connection->ways[NET_TO_CLIENT].first)
            take_first(&connection->ways[NET_TO_CLIENT]);
        free(connection);
    }
    net.count = kept;
}

static void arrive(struct connection *connection, enum net_way way)
{
    struct way *road = &connection->ways[way];
    struct piece *piece = road->first;
    static const char *const words[] = {"connect", "accepted", "refused", "data", "end", "reset"};
    bool whole = true, tracing = sched_tracing;
    sched_tracing &= net.traced; /* it is part of the hash in any case */
    sched_trace("net: %s %s: p%d connection %u of server %d, %zu bytes", words[piece->what],
                way == NET_TO_SERVER ? "arrives" : "comes back", connection->process,
                connection->number, connection->server, piece->size - piece->done);
    sched_tracing = tracing;
    if (way == NET_TO_CLIENT)
        whole = arrive_at_client(connection, piece);
    else
        arrive_at_server(connection, piece);
    if (whole)
        take_first(road);
    free_closed();
}

static void fire(struct sched_timer *timer)
{
    struct connection *of;
    enum net_way way;
    const struct piece *piece;
    net.arriving = true;
    while ((piece = earliest(&of, &way)) != NULL && piece->due_ns <= sched_now())
        arrive(of, way);
    net.arriving = false;
    timer->due_ns = piece ? piece->due_ns : SCHED_NEVER;
    sched_files_changed();
}

/* ---- the calls of a program ---- */

int net_socket(void)
{
    int ends[2], size = 212992;
    struct connection *connection = calloc(1, sizeof *connection);
    if (!connection || net.count == NET_CONNECTIONS ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
        sched_fail("too many connections");
    *connection = (struct connection){.number = net.made++,
                                      .process = sched_process(),
                                      .fd = ends[0],
                                      .far = ends[1],
                                      .at_server = -1};
    if (ends[0] >= NET_FDS)
        sched_fail("too many descriptors");
    real()->setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    net.by_fd[ends[0]] = connection;
    net.connections[net.count++] = connection;
    return ends[0];
}

int net_connect(struct connection *connection, int server)
{
    if (connection->state != NET_FRESH || server < 0 || server >= net.server_count) {
        errno = ENETUNREACH;
        return -1;
    }
    connection->server = server;
    connection->state = NET_CONNECTING;
    fill(connection);
    net_put(connection, NET_TO_SERVER, PIECE_CONNECT, NULL, 0, 0);
    errno = EINPROGRESS;
    return -1;
}

ssize_t net_send(struct connection *connection, const void *bytes, size_t size)
{
    if (connection->state == NET_CONNECTING || connection->state == NET_FRESH) {
        errno = ENOTCONN;
        return -1;
    }
    if (connection->state == NET_RESET || connection->state == NET_REFUSED) {
        errno = EPIPE;
        return -1;
    }
    size_t count = size < CHUNK ? size : CHUNK;
    net_put(connection, NET_TO_SERVER, PIECE_DATA, bytes, count, 0);
    return (ssize_t)count;
}

ssize_t net_receive(struct connection *connection, void *bytes, size_t size, int flags)
{
    ssize_t count = real()->recv(connection->fd, bytes, size, flags | MSG_DONTWAIT);
    if (count == 0 && size > 0 && connection->state == NET_RESET) {
        errno = ECONNRESET;
        return -1;
    }
    return count;
}

void net_leave(struct connection *connection, bool abortive)
{
    bool began = connection->state != NET_FRESH && connection->state != NET_REFUSED;
    if (connection->fd >= 0)
        net.by_fd[connection->fd] = NULL;
    connection->fd = -1;
    close_far(connection);
    connection->state = NET_CLOSED;
    if (began && abortive && !connection->dead && sched_draw(2) == 0) /* not sent by the kernel */
        net_truncate(connection, NET_TO_SERVER,
                     sched_draw((uint32_t)net_bytes(connection, NET_TO_SERVER) + 1));
    if (began)
        net_put(connection, NET_TO_SERVER, PIECE_END, NULL, 0, 0);
}

void net_close(struct connection *connection)
{
    net_leave(connection, connection->abortive);
    if (!net.arriving)
        free_closed();
}
