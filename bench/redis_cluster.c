/* redis_cluster.c - what one uncontended acquire + release costs on a Redis Cluster of three masters: one caller, beside the same
 * driver on a server without a cluster; 64 cycles in flight on one thread, beside hiredis with a pipeline to each master, which
 * knows beforehand where each lock is. Client and servers share one processor. */
#include "cluster_server.h"
#include "flights.h"
#include "redis_floor.h"

#include <poll.h>
#include <stdio.h>

static int one;
static struct redis_server alone;
static struct cluster_server cluster;

/* ---- one caller ---- */

static void cycles(void *client, size_t n)
{
    while (n-- > 0)
        bench_release(bench_acquire(client, "one caller", NULL));
}

/* ---- a pipeline to each master ---- */

static struct redis_pipeline pipelines[CLUSTER_NODES];

/* Makes each master know the scripts: a client without a cluster uses them there. */
static void teach(const char *name, int node)
{
    char url[64];
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d?cluster=no", cluster.nodes[node].port);
    mortise_client *client = bench_open(url);
    bench_release(bench_acquire(client, name, NULL));
    bench_close(client);
}

static void open_pipelines(const struct redis_cycle *cycle)
{
    char key[48];
    bool taught[CLUSTER_NODES] = {false};
    for (int i = 0; i < CLUSTER_NODES; i++)
        pipelines[i].context = redis_server_connect(&cluster.nodes[i]);
    for (unsigned i = 0; i < REDIS_IN_FLIGHT; i++) {
        snprintf(key, sizeof(key), "mortise:" REDIS_NAME_FORMAT, i);
        int owner = cluster_server_owner(&cluster, key);
        pipelines[owner].cycles[pipelines[owner].in_flight++] = redis_request_for(cycle, i);
        if (!taught[owner])
            teach(key + sizeof("mortise:") - 1, owner);
        taught[owner] = true;
    }
}

/* Each pipeline has as many of the cycles as it has names. The replies of all are taken before more is sent. */
static void pipeline_cycles(void *unused, size_t n)
{
    struct pollfd ready[CLUSTER_NODES];
    size_t done = 0;
    int open = 0;
    (void)unused;
    for (int i = 0; i < CLUSTER_NODES; i++) {
        size_t share =
            i == CLUSTER_NODES - 1 ? n - done : n * pipelines[i].in_flight / REDIS_IN_FLIGHT;
        ready[i] = (struct pollfd){share > 0 ? pipelines[i].context->fd : -1, POLLIN, 0};
        done += share;
        open += share > 0;
        redis_pipeline_begin(&pipelines[i], share);
    }
    while (open > 0) {
        for (int i = 0; i < CLUSTER_NODES; i++)
            redis_pipeline_send(&pipelines[i]);
        poll(ready, CLUSTER_NODES, -1);
        for (int i = 0; i < CLUSTER_NODES; i++)
            if (ready[i].fd >= 0 && ready[i].revents != 0 && !redis_pipeline_take(&pipelines[i])) {
                ready[i].fd = -1;
                open--;
            }
    }
}

/* ---- cases ---- */

/* A `measure`: the loop on the one processor. */
static double ns_on_one(struct bench_case *self, double seconds)
{
    bench_pin(one);
    double ns = bench_ns_per_turn(self, seconds);
    bench_pin(bench.cpu);
    return ns;
}

enum { PLAIN, CLUSTER, PIPELINE, FLIGHT, CASES };

static mortise_client *open_client(const char *url)
{
    mortise_client *client = bench_open(url);
    bench_release(bench_acquire(client, "first", NULL));
    return client;
}

int main(int argc, char **argv)
{
    static struct flights flights;
    struct redis_cycle cycle;
    char url[64];
    bench.rounds = 51;
    bench_begin(argc, argv, "redis_cluster",
                "one uncontended acquire + release on a Redis Cluster, per cycle", 0.04);
    one = bench.cpu != BENCH_ANY_CPU ? bench.cpu : bench_first_cpu();
    redis_server_start(&alone, one);
    cluster_server_start(&cluster, one);
    bench_pin(one);
    redis_request_record(&alone, &cycle);
    open_pipelines(&cycle);
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d", alone.port);
    mortise_client *plain = open_client(url), *client = open_client(cluster.url);
    mortise_client *async_client = open_client(cluster.url);
    flights_open(&flights, async_client, "flight");
    bench_pin(bench.cpu);
    struct bench_case cases[CASES] = {
        {bench_new_series("plain", "one caller, a server without a cluster", "ns"), ns_on_one,
         cycles, plain, 0},
        {bench_new_series("cycle", "one caller, three masters", "ns"), ns_on_one, cycles, client,
         0},
        {bench_new_series("pipeline", "hiredis, 64 in flight, a pipeline to each master", "ns"),
         ns_on_one, pipeline_cycles, NULL, 0},
        {bench_new_series("async", "64 in flight, asynchronous, one thread", "ns"), ns_on_one,
         flights_cycles, &flights, 0},
    };
    bench_rounds(cases, CASES);
    bench_check("cycle_over_plain", "acquire + release / without a cluster", cases[CLUSTER].series,
                cases[PLAIN].series, BENCH_AT_MOST, 1.05);
    bench_check("async_rate", "rate, 64 in flight: asynchronous / hiredis", cases[PIPELINE].series,
                cases[FLIGHT].series, BENCH_AT_LEAST, 0.80);
    bench_close(async_client);
    bench_close(client);
    bench_close(plain);
    for (int i = 0; i < CLUSTER_NODES; i++)
        redis_pipeline_close(&pipelines[i]);
    redis_server_stop(&alone);
    return bench_end();
}
