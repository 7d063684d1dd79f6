/* net_fault.c - what a plan does to the network and the servers. See net.h.
 *
 * Of a connection that is cut, each end hears at once, or only when TCP's keepalive finds out; and what is under way is
 * lost from some byte on. */
#include "net.h"

#include "real.h"

#include <string.h>

#define KEEPALIVE_NS INT64_C(30000000000)

static bool matches(const struct connection *connection, int process, int server)
{
    return connection->state != NET_FRESH && connection->process == process &&
           (server < 0 || connection->server == server);
}

static void cut(struct connection *connection)
{
    if (connection->dead || connection->state == NET_CLOSED)
        return;
    int64_t server_hears_ns = sched_draw(3) == 0 ? KEEPALIVE_NS : 1;
    int64_t client_hears_ns = sched_draw(3) == 0 ? KEEPALIVE_NS : 1;
    for (enum net_way way = 0; way < NET_WAYS; way++) {
        size_t bytes = net_bytes(connection, way);
        net_truncate(connection, way, connection->client > 0 ? 0 : sched_draw((uint32_t)bytes + 1));
    }
    sched_trace("net: connection %u of p%d is cut", connection->number, connection->process);
    net_put(connection, NET_TO_SERVER, PIECE_END, NULL, 0, server_hears_ns);
    net_put(connection, NET_TO_CLIENT, PIECE_RESET, NULL, 0, client_hears_ns);
    connection->dead = true;
}

void net_cut(int process, int server, bool all)
{
    int found = 0;
    for (int i = 0; i < net.count; i++)
        found += matches(net.connections[i], process, server);
    int chosen = found > 0 ? (int)sched_draw((uint32_t)found) : 0;
    for (int i = 0; i < net.count; i++)
        if (matches(net.connections[i], process, server) && (chosen-- == 0 || all))
            cut(net.connections[i]);
}

void net_block(int process, int server, unsigned ways, int64_t until_ns)
{
    for (int s = 0; s < net.server_count; s++)
        for (enum net_way way = 0; way < NET_WAYS; way++)
            if ((server < 0 || s == server) && (ways & 1u << way))
                net.blocked_until_ns[process][s][way] = until_ns;
}

/* In their order. */
static void delay_until(struct way *road, int64_t at_ns)
{
    for (struct piece *piece = road->first; piece && piece->due_ns <= at_ns; piece = piece->next)
        road->last_ns = piece->due_ns = at_ns++;
}

void net_hold(int process, int server, int64_t until_ns)
{
    for (int i = 0; i < net.count; i++) {
        struct connection *connection = net.connections[i];
        if (!matches(connection, process, server) || connection->dead)
            continue;
        connection->held_until_ns = until_ns;
        delay_until(&connection->ways[NET_TO_SERVER], until_ns);
    }
    net_set_timer();
}

void net_stop_server(int server, int64_t until_ns)
{
    net.stopped_until_ns[server] = until_ns;
    for (int i = 0; i < net.count; i++)
        if (net.connections[i]->server == server)
            delay_until(&net.connections[i]->ways[NET_TO_SERVER], until_ns);
    net_set_timer();
}

void net_kill_server(int server)
{
    server_kill(&net.servers[server]);
    net_end_links(server);
    for (int i = 0; i < net.count; i++) {
        struct connection *connection = net.connections[i];
        if (connection->server != server || connection->at_server < 0)
            continue;
        real()->close(connection->at_server);
        connection->at_server = -1;
        if (connection->state != NET_CLOSED)
            net_put(connection, NET_TO_CLIENT, sched_draw(2) ? PIECE_END : PIECE_RESET, NULL, 0,
                    sched_draw(6) == 0 ? KEEPALIVE_NS : 0);
    }
}

void net_start_server(int server)
{
    if (net.servers[server].pid != 0)
        return;
    server_start(&net.servers[server]);
    net_collect(server);
}

void net_end_process(int process)
{
    for (int i = 0; i < net.count; i++) {
        struct connection *connection = net.connections[i];
        if (connection->process == process && connection->state != NET_CLOSED)
            net_leave(connection, false);
    }
}

/* Who has not heard yet that a connection is cut hears it now. */
static void tell_at_last(struct way *road)
{
    int64_t at_ns = sched_now() + 1000000;
    for (struct piece *piece = road->first; piece; piece = piece->next) {
        if (piece->due_ns > sched_now() + KEEPALIVE_NS / 2)
            piece->due_ns = road->last_ns = at_ns;
        if (at_ns <= piece->due_ns)
            at_ns = piece->due_ns + 1;
    }
}

void net_repair(void)
{
    for (int i = 0; i < net.count; i++) {
        net.connections[i]->held_until_ns = 0;
        for (enum net_way way = 0; way < NET_WAYS; way++)
            tell_at_last(&net.connections[i]->ways[way]);
    }
    net_set_timer();
    memset(net.blocked_until_ns, 0, sizeof net.blocked_until_ns);
    memset(net.stopped_until_ns, 0, sizeof net.stopped_until_ns);
    net.settings.slow_one_in = 0;
    for (int s = 0; s < net.server_count; s++)
        net_start_server(s);
}

bool net_ask(int server, const char *line, const char *text)
{
    if (net.servers[server].pid == 0)
        return false;
    int fd = server_connect(&net.servers[server]);
    char answer[16384];
    real()->send(fd, line, strlen(line), MSG_NOSIGNAL);
    server_turn(&net.servers[server]);
    ssize_t size = real()->recv(fd, answer, sizeof answer - 1, MSG_DONTWAIT);
    answer[size > 0 ? size : 0] = '\0';
    real()->close(fd);
    server_turn(&net.servers[server]);
    net_collect(server);
    return strstr(answer, text) != NULL;
}

void net_tell(int server, const char *line)
{
    net_ask(server, line, "");
}
