/* failover.c - two servers, a primary and its replica, and the operator who makes the other one the primary. See backend.h. */
#include "failover.h"

#include "net.h"
#include "world.h"

#include <stdio.h>
#include <unistd.h>

#define PATIENCE_MS 20000 /* for the replica to have all data */
#define AWAY_MS 1000000

static int primary;
static char ports[2][8];

void failover_arguments(struct server *server)
{
    int other = 1 - server->number;
    int count = 0;
    for (int s = 0; s < 2; s++)
        snprintf(ports[s], sizeof ports[s], "%d", NET_FIRST_PORT + s);
    while (server->arguments[count])
        count++;
    const char *const arguments[] = {"--repl-diskless-sync",
                                     "no",
                                     "--replica-announce-ip",
                                     "127.0.0.1",
                                     "--replica-announce-port",
                                     ports[server->number],
                                     "--replicaof",
                                     "127.0.0.1",
                                     ports[other],
                                     NULL};
    for (int i = 0; arguments[i] && (server->number != primary || i < 6); i++)
        server->arguments[count++] = arguments[i];
    server->arguments[count] = NULL;
}

static bool is_in_step(int replica)
{
    return net_ask(replica, "INFO replication\r\n", "master_link_status:up");
}

static bool wait_until_in_step(void)
{
    for (int ms = 0; ms < PATIENCE_MS; ms += 100) {
        if (is_in_step(1 - primary))
            return true;
        usleep(100000);
    }
    return false;
}

void failover_begin(void)
{
    net_links_begin(run_world.folder);
    if (!wait_until_in_step())
        sched_fail("the replica does not find its primary");
}

static void follow(int server, int other)
{
    char line[64];
    snprintf(line, sizeof line, "REPLICAOF 127.0.0.1 %s\r\n", ports[other]);
    net_tell(server, line);
}

/* ways: 1: the primary was killed; 2: it stands still; 3: it goes on, until it hears of it. */
static void fail_over(const struct step *step)
{
    int from = primary, to = 1 - primary;
    if (!wait_until_in_step())
        return;
    if (step->ways == 1)
        net_kill_server(from);
    else if (step->ways == 2)
        net_stop_server(from, sched_now() + AWAY_MS * NS_PER_MS);
    net_tell(to, "REPLICAOF NO ONE\r\n");
    primary = to;
    usleep((useconds_t)step->ms * 1000);
    if (step->ways == 1)
        net_start_server(from);
    else if (step->ways == 2)
        net_stop_server(from, sched_now());
    follow(from, to);
}

bool failover_cause(const struct step *step)
{
    int64_t until_ns = sched_now() + step->ms * NS_PER_MS;
    switch (step->what) {
    case STEP_FAILOVER:
        fail_over(step);
        return true;
    case STEP_LINK_BLOCK:
        net_block(NET_LINKS + 1 - primary, primary, step->ways, until_ns);
        return true;
    case STEP_LINK_CUT:
        net_cut(NET_LINKS + 1 - primary, primary, true);
        return true;
    default:
        return false;
    }
}

/* A replica that is not in step acknowledges nothing. */
void failover_calm(void)
{
    if (!wait_until_in_step())
        sched_fail("the replica does not find its primary again");
}
