/* redis_cluster_renew.c - what renewing 10,000 locks costs the servers: three masters of a Redis Cluster together, beside one
 * server without a cluster, in the same time. The time that they take for as many keys without renewals is measured first, and
 * subtracted from both. */
#include "cluster_server.h"
#include "common.h"

#include <stdio.h>

#define LOCKS 10000
#define TTL_MS 6000
#define PERIOD_NS (INT64_C(1000000) * TTL_MS / 3)
#define IDLE_NS INT64_C(2000000000)

static struct redis_server alone;
static struct cluster_server cluster;

static double alone_ns(void)
{
    return redis_server_cpu_ns(&alone);
}

static double cluster_ns(void)
{
    return cluster_server_cpu_ns(&cluster);
}

struct side {
    mortise_client *client;
    mortise_lease *leases[LOCKS];
    double (*cpu_ns)(void);
    double idle_ns_per_s;
    struct bench_series *idle, *time;
};

static mortise_stats stats_of(mortise_client *client)
{
    mortise_stats stats = {.size = sizeof(stats)};
    if (mortise_stats_get(client, &stats) != MORTISE_OK)
        bench_die("no counters");
    return stats;
}

static void measure_idle(struct side *sides)
{
    double before[2];
    for (int i = 0; i < 2; i++)
        before[i] = sides[i].cpu_ns();
    int64_t from = bench_now_ns();
    bench_sleep_until_ns(from + IDLE_NS);
    for (int i = 0; i < 2; i++) {
        double taken_s = (double)(bench_now_ns() - from) / 1e9;
        sides[i].idle_ns_per_s = (sides[i].cpu_ns() - before[i]) / taken_s;
        bench_add_only(sides[i].idle, sides[i].idle_ns_per_s / 1e6, BENCH_ONCE);
    }
}

/* Makes as many keys as there will be locks. They do not expire, but servers look for expired keys. */
static void fill(const struct redis_server *server, const char *key)
{
    redisContext *context = server->control;
    freeReplyObject(
        redis_server_sure(context, redisCommand(context, "SET %s %032d PX 600000", key, 0)));
}

static void fill_all(void)
{
    char key[64];
    for (int i = 0; i < LOCKS; i++) {
        snprintf(key, sizeof(key), "mortise:idle/lock/%08d", i);
        fill(&alone, key);
        fill(&cluster.nodes[cluster_server_owner(&cluster, key)], key);
    }
}

static void empty(const struct redis_server *server)
{
    redisContext *context = server->control;
    freeReplyObject(redis_server_sure(context, redisCommand(context, "FLUSHALL")));
}

static void empty_all(void)
{
    empty(&alone);
    for (int i = 0; i < CLUSTER_NODES; i++)
        empty(&cluster.nodes[i]);
}

/* Acquires on both sides in turn, at equal distances over a period, or as fast as possible if that is slower. */
static void acquire_all(struct side *sides)
{
    char name[64];
    int64_t from = bench_now_ns();
    for (int i = 0; i < LOCKS; i++) {
        bench_sleep_until_ns(from + PERIOD_NS * i / LOCKS);
        snprintf(name, sizeof(name), "bench/lock/%08d", i);
        for (int side = 0; side < 2; side++)
            sides[side].leases[i] = bench_acquire(sides[side].client, name,
                                                  MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = TTL_MS));
    }
}

static void measure_window(struct side *sides)
{
    double ns[2];
    uint64_t renewals[2];
    int64_t from = bench_now_ns(), wanted_ns = (int64_t)(bench.seconds * 1e9);
    for (int i = 0; i < 2; i++) {
        ns[i] = sides[i].cpu_ns();
        renewals[i] = stats_of(sides[i].client).renewals;
    }
    bench_sleep_until_ns(from + (wanted_ns < PERIOD_NS ? PERIOD_NS : wanted_ns));
    for (int i = 0; i < 2; i++) {
        double taken_s = (double)(bench_now_ns() - from) / 1e9;
        ns[i] = sides[i].cpu_ns() - ns[i] - sides[i].idle_ns_per_s * taken_s;
        renewals[i] = stats_of(sides[i].client).renewals - renewals[i];
        bench_add(sides[i].time, ns[i] / 1e6 / ((double)renewals[i] / LOCKS));
    }
}

int main(int argc, char **argv)
{
    static struct side sides[2];
    char url[64];
    bench.rounds = 5;
    bench_begin(argc, argv, "redis_cluster_renew",
                "10,000 locks held on a Redis Cluster, ttl 6 s, renewed", 4);
    redis_server_start(&alone, bench.cpu);
    cluster_server_start(&cluster, bench.cpu);
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d", alone.port);
    sides[0] = (struct side){.client = bench_open(url), .cpu_ns = alone_ns};
    sides[1] = (struct side){.client = bench_open(cluster.url), .cpu_ns = cluster_ns};
    sides[0].idle =
        bench_new_series("idle_one", "one server with nothing to do, in a second", "ms");
    sides[1].idle = bench_new_series("idle", "three masters with nothing to do, in a second", "ms");
    sides[0].time = bench_new_series("one", "one server for 10,000 renewals", "ms");
    sides[1].time = bench_new_series("three", "three masters for 10,000 renewals", "ms");
    for (int i = 0; i < 2; i++)
        bench_release(bench_acquire(sides[i].client, "first", NULL));
    fill_all();
    measure_idle(sides);
    empty_all();
    acquire_all(sides);
    bench_sleep_until_ns(bench_now_ns() +
                         2 * PERIOD_NS); /* until their renewals have become regular */
    for (int i = 0; i < bench.rounds; i++)
        measure_window(sides);
    bool all_held = true;
    for (int i = 0; i < 2; i++) {
        mortise_stats stats = stats_of(sides[i].client);
        all_held &= stats.held == LOCKS && stats.losses == 0;
        for (size_t k = 0; k < LOCKS; k++)
            bench_release(sides[i].leases[k]);
        bench_close(sides[i].client);
    }
    bench_proof("all_held", "every lock was held to the end", all_held);
    bench_check("three_over_one", "time of three masters / of one server", sides[1].time,
                sides[0].time, BENCH_AT_MOST, 1.3);
    redis_server_stop(&alone);
    return bench_end();
}
