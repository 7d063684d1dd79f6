/* etcd_server.h - a private etcd server for a benchmark, started by tests/servers.sh, and its counters. A failure ends the
 * program. */
#ifndef MORTISE_BENCH_ETCD_SERVER_H
#define MORTISE_BENCH_ETCD_SERVER_H

#include "servers.h"

struct etcd_server {
    struct bench_servers servers;
    char address[64]; /* HOST:PORT */
    char url[128];    /* for the driver */
};

/* Starts the server in bench_folder(); it ends with the program. keys: further KEY=VALUE words for servers.sh. */
void etcd_server_begin(struct etcd_server *server, const char *keys);

/* Its counters (/metrics) at one instant, as text that the caller frees. */
char *etcd_server_metrics(const struct etcd_server *server);
/* The sum of a counter in it, over all lines whose labels contain `label` ("" for all); 0: there is none. */
double etcd_metric(const char *metrics, const char *counter, const char *label);

#endif
