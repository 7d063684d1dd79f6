/* redis_floor.h - the bare floors of a cycle on Redis: the driver's own requests, sent by hiredis alone. */
#ifndef MORTISE_BENCH_REDIS_FLOOR_H
#define MORTISE_BENCH_REDIS_FLOOR_H

#include "redis_request.h"

#include <stdbool.h>

#define REDIS_IN_FLIGHT 64

/* Requests one after another on one connection, with a wait for each reply. */
struct redis_blocking {
    redisContext *context;
    struct redis_cycle cycle;
};

void redis_blocking_open(struct redis_blocking *blocking, const struct redis_server *server,
                         struct redis_cycle cycle);
void redis_blocking_cycle(struct redis_blocking *blocking);
void redis_blocking_cycles(void *blocking, size_t n); /* a bench_case's loop */
/* The same, but a release is only written, and its reply is taken together with the next acquire's. */
void redis_blocking_cycles_nowait(void *blocking, size_t n);
void redis_blocking_close(struct redis_blocking *blocking);

/* So many cycles at a time on one connection, each on its own name. All requests that the received replies allow are
 * written together. A release and the next acquire of its name go out together. */
struct redis_pipeline {
    redisContext *context;
    size_t in_flight; /* of the cycles */
    struct redis_cycle cycles[REDIS_IN_FLIGHT];
    /* The expected replies, in their order: the number of a cycle, with a mark for a release. */
    unsigned expected[2 * REDIS_IN_FLIGHT];
    size_t first, count;
    size_t to_begin, to_end; /* cycles */
};

void redis_pipeline_open(struct redis_pipeline *pipeline, const struct redis_server *server,
                         const struct redis_cycle *cycle);
void redis_pipeline_cycles(void *pipeline, size_t n); /* likewise */
/* The same for a loop with several pipelines: begin, then send, and take the received replies as long as more will come. */
void redis_pipeline_begin(struct redis_pipeline *pipeline, size_t n);
void redis_pipeline_send(struct redis_pipeline *pipeline);
bool redis_pipeline_take(struct redis_pipeline *pipeline);
void redis_pipeline_close(struct redis_pipeline *pipeline);

#endif
