/* redis_crowd.h - 64 threads that make cycles, each on its own name, and how long one takes: all of them on
 * one client of the library, or each with its own bare connection. */
#ifndef MORTISE_BENCH_REDIS_CROWD_H
#define MORTISE_BENCH_REDIS_CROWD_H

#include "common.h"
#include "redis_floor.h"

#include <stdatomic.h>

#define REDIS_CROWD 64

struct redis_crowd;

struct redis_member {
    struct redis_crowd *crowd;
    pthread_t thread;
    char name[32];
    struct redis_blocking bare;
    _Atomic uint64_t cycles; /* written by the thread alone */
    char apart[128];         /* no two threads' counts in one cache line */
};

struct redis_crowd {
    int cpu;
    mortise_client *client; /* NULL: a bare connection each */
    pthread_barrier_t start;
    _Atomic bool stop;
    struct redis_member members[REDIS_CROWD];
};

/* The threads run on `cpu`, as for bench_pin(). */
void redis_crowd_of_client(struct redis_crowd *crowd, int cpu, mortise_client *client);
void redis_crowd_of_bare(struct redis_crowd *crowd, int cpu, const struct redis_server *server,
                         const struct redis_cycle *cycle);
/* A `measure` of a case whose context is the crowd: nanoseconds per cycle of all of them together. */
double redis_crowd_ns_per_cycle(struct bench_case *self, double seconds);
void redis_crowd_close(struct redis_crowd *crowd);

#endif
