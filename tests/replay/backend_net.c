/* backend_net.c - the drivers redis and redlock: real redis-server processes behind the simulated network. */
#include "backend.h"
#include "failover.h"
#include "net.h"
#include "world.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_TTL_MS 60000 /* the longest that a worker asks for */

static int64_t jumped_back_ms;

static char program[4096];

/* The server tells its path, so that must not follow from the folder of the run. */
static void loaded(void *library)
{
    const char *path = getenv("PATH");
    (void)library;
    while (path && *path) {
        size_t length = strcspn(path, ":");
        snprintf(program, sizeof program, "%.*s/redis-server", (int)length, path);
        if (path[0] == '/' && access(program, X_OK) == 0)
            return;
        path += length + (path[length] == ':');
    }
    fprintf(stderr, "skipped: redis-server was not found\n");
    exit(77);
}

/* ---- settings ---- */

static void write_servers(FILE *config, const char *key)
{
    fprintf(config, "%s = ", key);
    for (int s = 0; s < run_world.plan.servers; s++)
        fprintf(config, "%s127.0.0.1:%d", s > 0 ? ", " : "", NET_FIRST_PORT + s);
    fprintf(config, "\nconnect_timeout = %lldms\ncommand_timeout = %lldms\nforeign = %s\n",
            (long long)run_world.plan.connect_timeout_ms,
            (long long)run_world.plan.command_timeout_ms, run_world.plan.notify ? "none" : "poll");
}

static void write_redis(FILE *config)
{
    const struct plan *plan = &run_world.plan;
    fprintf(config, "[redis]\n");
    write_servers(config, "servers");
    fprintf(config, "min_replicas = %d\nreplica_timeout = 100ms\n", plan->min_replicas);
    fprintf(config, "mode = %s\natomicity = %s\nqueue = %s\n",
            plan->layout == LAYOUT_HASH ? "hash" : "string",
            plan->layout == LAYOUT_WATCH ? "watch" : "lua", plan->queue ? "yes" : "no");
}

static void write_redlock(FILE *config)
{
    fprintf(config, "[redlock]\n");
    write_servers(config, "nodes");
    fprintf(config, "node_persistent = %s\nmax_ttl = %dms\nnode_timeout = %lldms\n",
            run_world.plan.keeps_data ? "yes" : "no", MAX_TTL_MS,
            (long long)run_world.plan.command_timeout_ms / 3);
}

static void set_arguments(struct server *server)
{
    const char *keeps = run_world.plan.keeps_data ? "yes" : "no";
    const char *const arguments[] = {program,   "--port",
                                     "0",       "--unixsocket",
                                     "socket",  "--save",
                                     "",        "--daemonize",
                                     "no",      "--logfile",
                                     "log",     "--loglevel",
                                     "warning", "--appendonly",
                                     keeps,     "--appendfsync",
                                     "always",  "--hz",
                                     "10",      "--dynamic-hz",
                                     "no",      "--databases",
                                     "1",       "--activerehashing",
                                     "no",      "--auto-aof-rewrite-percentage",
                                     "0",       NULL};
    int count = 0;
    for (; arguments[count]; count++)
        server->arguments[count] = arguments[count];
    if (run_world.plan.no_kill) {
        server->arguments[count++] = "--rename-command";
        server->arguments[count++] = "CLIENT";
        server->arguments[count++] = "";
    }
    if (run_world.plan.replica)
        failover_arguments(server);
}

static void begin(void)
{
    const struct plan *plan = &run_world.plan;
    const struct net_settings settings = {.least_ns = plan->latency_ms > 1 ? NS_PER_MS / 2 : 20000,
                                          .most_ns = plan->latency_ms * NS_PER_MS,
                                          .slow_one_in = plan->slow_one_in,
                                          .slow_ns = plan->slow_ms * NS_PER_MS,
                                          .split_one_in = plan->split_one_in};
    net.server_count = plan->servers;
    for (int s = 0; s < plan->servers; s++) {
        server_prepare(&net.servers[s], run_world.folder, s, plan->schedule);
        set_arguments(&net.servers[s]);
        net.servers[s].age_ns = (MAX_TTL_MS + 10000) * NS_PER_MS;
        net.servers[s].wall_offset_ns = plan->wall_offset_ms[s] * NS_PER_MS;
        net.servers[s].drift_ppm = plan->drift_ppm[s];
        server_start(&net.servers[s]);
    }
    net_begin(&settings);
    if (plan->replica)
        failover_begin();
}

static void end(void)
{
    for (int s = 0; s < net.server_count; s++)
        server_kill(&net.servers[s]);
}

/* ---- faults ---- */

static void restart(const struct step *step)
{
    net_kill_server(step->server);
    usleep((useconds_t)step->ms * 1000);
    net_start_server(step->server);
    if (run_world.plan.losses)
        run_world.lost_ns = sched_now();
}

static void cause(const struct step *step)
{
    int64_t until_ns = sched_now() + step->ms * NS_PER_MS;
    if (failover_cause(step))
        return;
    switch (step->what) {
    case STEP_CUT:
    case STEP_CUT_ALL:
        net_cut(step->process, step->server, step->what == STEP_CUT_ALL);
        break;
    case STEP_BLOCK:
        net_block(step->process, step->server, step->ways, until_ns);
        break;
    case STEP_HOLD:
        net_hold(step->process, step->server, until_ns);
        break;
    case STEP_SERVER_STOP:
        net_stop_server(step->server, until_ns);
        break;
    case STEP_RESTART:
        restart(step);
        break;
    case STEP_FLUSH:
        net_tell(step->server, "SCRIPT FLUSH\r\n");
        break;
    case STEP_SERVER_WALL:
        net.servers[step->server].wall_offset_ns += step->ms * NS_PER_MS;
        jumped_back_ms += step->ms < 0 ? -step->ms : 0;
        break;
    default: /* HANGUP */
        net_tell(step->server, "CLIENT KILL SKIPME yes\r\n");
    }
}

static void end_faults(void)
{
    net_repair();
}

/* A node that has lost its data does not vote for max_ttl. */
static void calm(void)
{
    net_repair();
    if (run_world.plan.replica)
        failover_calm();
    if (run_world.plan.driver == PLAN_REDLOCK && !run_world.plan.keeps_data)
        usleep((MAX_TTL_MS + 2000) * 1000);
}

/* ---- the end ---- */

/* Without CLIENT KILL an old connection may bring an acquire that nobody waits for. */
static void check_left(int claims, int waiters)
{
    if ((claims > 0 || waiters > 0) && !run_world.plan.no_kill)
        sched_fail("left in the servers: %d claims, %d waiters", claims, waiters);
}

/* What the replica had not got before the failover is forgotten: a claim that was released lasts for its ttl. So does one that
 * is given to the place of a waiter that had left, and that may happen until two thirds of the place's ttl are over. No ttl is
 * longer than twice the plan's. */
static int64_t patience_ms(void)
{
    const struct plan *plan = &run_world.plan;
    int64_t ttl_ms = 2 * plan->ttl_ms;
    int64_t forgotten_ms = plan->queue ? ttl_ms * 5 / 3 : ttl_ms;
    return jumped_back_ms + (plan->replica ? forgotten_ms : 0);
}

#define BACKEND(text, file, section)                                                               \
    {                                                                                              \
        .name = (text), .module = (file), .loaded = loaded, .write_section = (section),            \
        .begin = begin, .cause = cause, .end_faults = end_faults, .calm = calm,                    \
        .process_killed = net_end_process, .check_left = check_left, .patience_ms = patience_ms,   \
        .end = end                                                                                 \
    }
const struct backend backend_redis = BACKEND("redis", "redis", write_redis);
const struct backend backend_redlock = BACKEND("redlock", "redlock", write_redlock);
const struct backend backend_failover = BACKEND("redis-failover", "redis", write_redis);
const struct backend backend_forgets = BACKEND("redis-forgets", "redis", write_redis);
