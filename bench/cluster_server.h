/* cluster_server.h - a Redis Cluster of the benchmark's own: three masters without replicas, started by tests/servers.sh. It
 * ends with the program, however the program ends. A failure ends the program; without a Redis that supports clusters, the exit
 * code is 77. */
#ifndef MORTISE_BENCH_CLUSTER_SERVER_H
#define MORTISE_BENCH_CLUSTER_SERVER_H

#include "redis_server.h"

#define CLUSTER_NODES 3

struct cluster_server {
    struct redis_server nodes[CLUSTER_NODES];
    char url[120];
};

/* Call it once in a program. cpu: as for bench_pin(). */
void cluster_server_start(struct cluster_server *cluster, int cpu);
/* Which of the nodes has this key. */
int cluster_server_owner(const struct cluster_server *cluster, const char *key);
/* The sum of redis_server_cpu_ns() of all nodes. */
double cluster_server_cpu_ns(const struct cluster_server *cluster);

#endif
