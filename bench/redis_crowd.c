/* redis_crowd.c - threads that make cycles until they are told to stop; see redis_crowd.h. What they did is
 * counted over a window in which all of them run. */
#include "redis_crowd.h"

#include <stdio.h>

static void make_cycle(struct redis_member *member)
{
    mortise_client *client = member->crowd->client;
    if (client == NULL)
        redis_blocking_cycle(&member->bare);
    else
        bench_release(bench_acquire(client, member->name, NULL));
}

static void *member_main(void *argument)
{
    struct redis_member *member = argument;
    struct redis_crowd *crowd = member->crowd;
    pthread_barrier_wait(&crowd->start);
    while (!atomic_load_explicit(&crowd->stop, memory_order_relaxed)) {
        make_cycle(member);
        atomic_fetch_add_explicit(&member->cycles, 1, memory_order_relaxed);
    }
    return NULL;
}

static void prepare(struct redis_crowd *crowd, int cpu, mortise_client *client)
{
    crowd->cpu = cpu;
    crowd->client = client;
    for (unsigned i = 0; i < REDIS_CROWD; i++) {
        struct redis_member *member = &crowd->members[i];
        member->crowd = crowd;
        snprintf(member->name, sizeof(member->name), REDIS_NAME_FORMAT, i);
    }
}

void redis_crowd_of_client(struct redis_crowd *crowd, int cpu, mortise_client *client)
{
    prepare(crowd, cpu, client);
}

void redis_crowd_of_bare(struct redis_crowd *crowd, int cpu, const struct redis_server *server,
                         const struct redis_cycle *cycle)
{
    prepare(crowd, cpu, NULL);
    for (unsigned i = 0; i < REDIS_CROWD; i++)
        redis_blocking_open(&crowd->members[i].bare, server, redis_request_for(cycle, i));
}

void redis_crowd_close(struct redis_crowd *crowd)
{
    for (unsigned i = 0; i < REDIS_CROWD && crowd->client == NULL; i++)
        redis_blocking_close(&crowd->members[i].bare);
}

/* ---- a window ---- */

static void start_threads(struct redis_crowd *crowd)
{
    atomic_store(&crowd->stop, false);
    pthread_barrier_init(&crowd->start, NULL, REDIS_CROWD + 1);
    bench_pin(crowd->cpu);
    for (unsigned i = 0; i < REDIS_CROWD; i++)
        crowd->members[i].thread = bench_thread(member_main, &crowd->members[i]);
    bench_pin(bench.cpu);
    pthread_barrier_wait(&crowd->start);
}

static void stop_threads(struct redis_crowd *crowd)
{
    atomic_store(&crowd->stop, true);
    for (unsigned i = 0; i < REDIS_CROWD; i++)
        pthread_join(crowd->members[i].thread, NULL);
    pthread_barrier_destroy(&crowd->start);
}

static uint64_t cycles_of(struct redis_crowd *crowd)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < REDIS_CROWD; i++)
        sum += atomic_load_explicit(&crowd->members[i].cycles, memory_order_relaxed);
    return sum;
}

static void sleep_seconds(double seconds)
{
    bench_sleep_until_ns(bench_now_ns() + (int64_t)(seconds * 1e9));
}

double redis_crowd_ns_per_cycle(struct bench_case *self, double seconds)
{
    struct redis_crowd *crowd = self->context;
    start_threads(crowd);
    sleep_seconds(seconds / 4);
    uint64_t cycles = cycles_of(crowd);
    int64_t from = bench_now_ns();
    sleep_seconds(seconds);
    cycles = cycles_of(crowd) - cycles;
    double taken = (double)(bench_now_ns() - from);
    stop_threads(crowd);
    return taken / (double)(cycles > 0 ? cycles : 1);
}
