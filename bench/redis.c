/* redis.c - what one uncontended acquire + release costs on Redis, beside hiredis loops that send the very
 * same requests: one caller that waits for the release, or does not; 64 cycles in flight on one thread; 64 threads.
 *
 * *On one processor*: client and server share it, so that all work adds up, and no waking of an idle processor hides
 * any of it. *Free*: the system places them. Each case has its own names, and the servers have no other keys. */
#include "flights.h"
#include "redis_crowd.h"

#include <stdio.h>

/* ---- one caller ---- */

static void cycles(void *client, size_t n)
{
    while (n-- > 0)
        bench_release(bench_acquire(client, "one caller", NULL));
}

static void cycles_nowait(void *client, size_t n)
{
    mortise_error error;
    while (n-- > 0)
        if (mortise_release_nowait(bench_acquire(client, "nowait", NULL), &error) != MORTISE_OK)
            bench_die("release: %s", error.message);
}

/* ---- where ---- */

/* One server with its clients and floors, all of it on `cpu`. */
struct place {
    int cpu;
    struct redis_server server;
    struct redis_cycle cycle;
    struct redis_blocking blocking;
    struct redis_pipeline pipeline;
    mortise_client *client, *async_client, *crowd_client;
    struct flights flights;
    struct redis_crowd bare_crowd, crowd;
};

/* The library's own threads, made at the first acquire, run there, too. */
static mortise_client *open_client(const struct place *place)
{
    char url[64];
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d", place->server.port);
    mortise_client *client = bench_open(url);
    bench_release(bench_acquire(client, "first", NULL));
    return client;
}

static void open_place(struct place *place, int cpu)
{
    place->cpu = cpu;
    redis_server_start(&place->server, cpu);
    bench_pin(cpu);
    redis_request_record(&place->server, &place->cycle);
    redis_blocking_open(&place->blocking, &place->server, place->cycle);
    redis_pipeline_open(&place->pipeline, &place->server, &place->cycle);
    place->client = open_client(place);
    place->async_client = open_client(place);
    place->crowd_client = open_client(place);
    flights_open(&place->flights, place->async_client, "flight");
    redis_crowd_of_bare(&place->bare_crowd, cpu, &place->server, &place->cycle);
    redis_crowd_of_client(&place->crowd, cpu, place->crowd_client);
    bench_pin(bench.cpu);
}

static void close_place(struct place *place)
{
    bench_close(place->client);
    bench_close(place->async_client);
    bench_close(place->crowd_client);
    redis_blocking_close(&place->blocking);
    redis_pipeline_close(&place->pipeline);
    redis_crowd_close(&place->bare_crowd);
    redis_crowd_close(&place->crowd);
    redis_server_stop(&place->server);
}

/* ---- cases ---- */

static int one;

/* A `measure`: the loop on the one processor. */
static double ns_on_one(struct bench_case *self, double seconds)
{
    bench_pin(one);
    double ns = bench_ns_per_turn(self, seconds);
    bench_pin(bench.cpu);
    return ns;
}

enum {
    BARE,
    BARE_NOWAIT,
    WAITED,
    NOWAIT,
    PIPELINE,
    FLIGHT,
    CROWD,
    FREE_BARE,
    FREE_WAITED,
    FREE_NOWAIT,
    FREE_BARE_CROWD,
    FREE_CROWD,
    CASES
};

static void make_cases_on_one(struct bench_case *cases, struct place *place)
{
    cases[BARE] =
        (struct bench_case){bench_new_series("bare", "hiredis, one caller, on one processor", "ns"),
                            ns_on_one, redis_blocking_cycles, &place->blocking, 0};
    cases[BARE_NOWAIT] = (struct bench_case){
        bench_new_series("bare_nowait", "hiredis, its release not waited for", "ns"), ns_on_one,
        redis_blocking_cycles_nowait, &place->blocking, 0};
    cases[WAITED] = (struct bench_case){bench_new_series("cycle", "acquire + release", "ns"),
                                        ns_on_one, cycles, place->client, 0};
    cases[NOWAIT] =
        (struct bench_case){bench_new_series("nowait", "acquire + release_nowait", "ns"), ns_on_one,
                            cycles_nowait, place->client, 0};
    cases[PIPELINE] = (struct bench_case){
        bench_new_series("pipeline", "hiredis, 64 in flight, on one processor", "ns"), ns_on_one,
        redis_pipeline_cycles, &place->pipeline, 0};
    cases[FLIGHT] = (struct bench_case){
        bench_new_series("async", "64 in flight, asynchronous, one thread", "ns"), ns_on_one,
        flights_cycles, &place->flights, 0};
    cases[CROWD] =
        (struct bench_case){bench_new_series("threads", "64 threads, on one processor", "ns"),
                            redis_crowd_ns_per_cycle, NULL, &place->crowd, 0};
}

static void make_cases_free(struct bench_case *cases, struct place *place)
{
    cases[FREE_BARE] =
        (struct bench_case){bench_new_series("bare_free", "hiredis, one caller, free", "ns"),
                            bench_ns_per_turn, redis_blocking_cycles, &place->blocking, 0};
    cases[FREE_WAITED] =
        (struct bench_case){bench_new_series("cycle_free", "acquire + release, free", "ns"),
                            bench_ns_per_turn, cycles, place->client, 0};
    cases[FREE_NOWAIT] =
        (struct bench_case){bench_new_series("nowait_free", "acquire + release_nowait, free", "ns"),
                            bench_ns_per_turn, cycles_nowait, place->client, 0};
    cases[FREE_BARE_CROWD] = (struct bench_case){
        bench_new_series("bare_threads_free", "hiredis, 64 threads, a connection each, free", "ns"),
        redis_crowd_ns_per_cycle, NULL, &place->bare_crowd, 0};
    cases[FREE_CROWD] =
        (struct bench_case){bench_new_series("threads_free", "64 threads, free", "ns"),
                            redis_crowd_ns_per_cycle, NULL, &place->crowd, 0};
}

/* A ratio of rates is the inverse of the ratio of times. */
static void check(const char *key, const char *label, const struct bench_case *mine,
                  const struct bench_case *floor, enum bench_bound bound, double target)
{
    bool rates = bound == BENCH_AT_LEAST;
    bench_check(key, label, rates ? floor->series : mine->series,
                rates ? mine->series : floor->series, bound, target);
}

static void check_all(const struct bench_case *cases)
{
    check("cycle_over_bare", "acquire + release / hiredis", &cases[WAITED], &cases[BARE],
          BENCH_AT_MOST, 1.10);
    check("nowait_over_bare", "acquire + release_nowait / hiredis", &cases[NOWAIT], &cases[BARE],
          BENCH_AT_MOST, 0.65);
    check("async_rate", "rate, 64 in flight: asynchronous / hiredis", &cases[FLIGHT],
          &cases[PIPELINE], BENCH_AT_LEAST, 0.80);
    check("threads_rate", "rate: 64 threads / hiredis, one caller", &cases[CROWD], &cases[BARE],
          BENCH_AT_LEAST, 1.3);
    check("threads_rate_free", "rate, 64 threads, free: one client / hiredis", &cases[FREE_CROWD],
          &cases[FREE_BARE_CROWD], BENCH_AT_LEAST, 1.0);
    /* Without a target: the figures jump between two levels. */
    check("cycle_over_bare_free", "acquire + release / hiredis, free", &cases[FREE_WAITED],
          &cases[FREE_BARE], BENCH_TOLD, 0);
    check("nowait_over_bare_free", "acquire + release_nowait / hiredis, free", &cases[FREE_NOWAIT],
          &cases[FREE_BARE], BENCH_TOLD, 0);
}

int main(int argc, char **argv)
{
    static struct place on_one, free;
    struct bench_case cases[CASES];
    bench.rounds = 51; /* many short ones: a machine that is busy for a moment spoils only few */
    bench_begin(argc, argv, "redis", "one uncontended acquire + release on Redis, per cycle", 0.04);
    one = bench.cpu != BENCH_ANY_CPU ? bench.cpu : bench_first_cpu();
    open_place(&on_one, one);
    open_place(&free, bench.cpu);
    make_cases_on_one(cases, &on_one);
    make_cases_free(cases, &free);
    bench_rounds(cases, CASES);
    check_all(cases);
    close_place(&on_one);
    close_place(&free);
    return bench_end();
}
