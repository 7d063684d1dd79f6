/* net_link.c - connections of one server to another, as a replica has one to its primary. See net.h.
 *
 * The puppet leads a server's connect() to the socket "link" and the port, beside the servers' folders. There the network
 * accepts it. From then on it is a connection as others are; only its client is a server, which goes on in a turn when
 * something arrives. What is sent is never split: a server waits in the kernel for the rest of a line. */
#include "net.h"

#include "real.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>

#define TICK_NS INT64_C(100000000) /* a server does its chores ten times a second */

static int doors[NET_SERVERS];
static struct sched_timer tick;

static void give_turns(struct sched_timer *timer)
{
    for (int s = 0; s < net.server_count; s++)
        if (net.servers[s].pid > 0 && net.stopped_until_ns[s] <= sched_now()) {
            server_turn(&net.servers[s]);
            net_collect(s);
        }
    timer->due_ns = sched_now() + TICK_NS;
    sched_files_changed();
}

void net_links_begin(const char *folder)
{
    for (int s = 0; s < net.server_count; s++) {
        struct sockaddr_un at = {.sun_family = AF_UNIX};
        snprintf(at.sun_path, sizeof at.sun_path, "%s/link%d", folder, NET_FIRST_PORT + s);
        doors[s] = real()->socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (doors[s] < 0 || bind(doors[s], (struct sockaddr *)&at, sizeof at) != 0 ||
            listen(doors[s], 8) != 0)
            sched_fail("the servers cannot be linked");
    }
    net.links = true;
    tick.fire = give_turns;
    tick.due_ns = sched_now() + TICK_NS;
    sched_add_timer(&tick);
}

static int server_behind(int fd)
{
    struct ucred who = {.pid = 0};
    socklen_t size = sizeof who;
    real()->getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size);
    for (int s = 0; s < net.server_count; s++)
        if (who.pid > 0 && net.servers[s].pid == who.pid)
            return s;
    return -1; /* it was killed meanwhile */
}

static void accept_all(void)
{
    for (int s = 0; s < net.server_count; s++) {
        int fd = accept4(doors[s], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        int client = fd < 0 ? -1 : server_behind(fd);
        if (client < 0) {
            if (fd >= 0)
                real()->close(fd);
            continue;
        }
        struct connection *link = calloc(1, sizeof *link);
        if (!link || net.count == NET_CONNECTIONS)
            sched_fail("too many connections");
        *link = (struct connection){.state = NET_CONNECTING,
                                    .number = net.made++,
                                    .process = NET_LINKS + client,
                                    .server = s,
                                    .client = client + 1,
                                    .fd = -1,
                                    .far = fd,
                                    .at_server = -1};
        net.connections[net.count++] = link;
        net_put(link, NET_TO_SERVER, PIECE_CONNECT, NULL, 0, 0);
    }
}

/* What the client has sent by now; or it has closed the connection. */
static void read_link(struct connection *link)
{
    static char bytes[65536];
    ssize_t count;
    while (link->far >= 0 &&
           (count = real()->recv(link->far, bytes, sizeof bytes, MSG_DONTWAIT)) >= 0) {
        for (ssize_t i = 0; i < count; i++)
            sched_mix((unsigned char)bytes[i]);
        if (count == 0)
            net_leave(link, false);
        else
            net_put(link, NET_TO_SERVER, PIECE_DATA, bytes, (size_t)count, 0);
    }
}

void net_collect_links(int client)
{
    if (!net.links)
        return;
    accept_all();
    for (int i = 0; i < net.count; i++)
        if (net.connections[i]->client == client + 1 && net.connections[i]->state == NET_OPEN)
            read_link(net.connections[i]);
}

void net_end_links(int client)
{
    for (int i = 0; i < net.count; i++)
        if (net.connections[i]->client == client + 1 && net.connections[i]->state != NET_CLOSED)
            net_leave(net.connections[i], false);
}
