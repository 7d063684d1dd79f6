/* cluster_server.c - a private Redis Cluster; see cluster_server.h. */
#include "cluster_server.h"

#include "common.h"
#include "servers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 16384

/* In the order of their slots: the first node has the first. */
static void find_others(struct cluster_server *cluster)
{
    redisContext *context = redis_server_connect(&cluster->nodes[0]);
    redisReply *ranges = redis_server_sure(context, redisCommand(context, "CLUSTER SLOTS"));
    if (ranges->elements != CLUSTER_NODES)
        bench_die("a cluster of %zu masters", ranges->elements);
    for (size_t i = 0; i < ranges->elements; i++) {
        const redisReply *range = ranges->element[i];
        long long owner = (range->element[0]->integer + 1) * CLUSTER_NODES / SLOTS;
        cluster->nodes[owner].port = (int)range->element[2]->element[1]->integer;
    }
    freeReplyObject(ranges);
    redisFree(context);
}

static struct bench_servers servers;

static void end_servers(void)
{
    bench_servers_end(&servers);
}

void cluster_server_start(struct cluster_server *cluster, int cpu)
{
    char keys[32], port[16];
    snprintf(keys, sizeof(keys), "cluster=%d", CLUSTER_NODES);
    bench_pin(cpu); /* the servers run where this thread runs */
    bench_servers_begin(&servers, "redis", "cluster", keys, "PORT=", port, sizeof(port));
    atexit(end_servers);
    bench_pin(bench.cpu);
    cluster->nodes[0].port = (int)strtol(port, NULL, 10);
    find_others(cluster);
    for (int i = 0; i < CLUSTER_NODES; i++)
        cluster->nodes[i].control = redis_server_connect(&cluster->nodes[i]);
    snprintf(cluster->url, sizeof(cluster->url),
             "redis+cluster://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", cluster->nodes[0].port,
             cluster->nodes[1].port, cluster->nodes[2].port);
}

int cluster_server_owner(const struct cluster_server *cluster, const char *key)
{
    redisContext *context = cluster->nodes[0].control;
    redisReply *reply =
        redis_server_sure(context, redisCommand(context, "CLUSTER KEYSLOT %s", key));
    int slot = (int)reply->integer, owner = 0;
    freeReplyObject(reply);
    while (slot >= SLOTS * (owner + 1) / CLUSTER_NODES) /* servers/redis.sh shares them out so */
        owner++;
    return owner;
}

double cluster_server_cpu_ns(const struct cluster_server *cluster)
{
    double sum = 0;
    for (int i = 0; i < CLUSTER_NODES; i++)
        sum += redis_server_cpu_ns(&cluster->nodes[i]);
    return sum;
}
