/* redlock_floor.h - a cycle on five Redis servers by hiredis alone: SET NX PX, and the compare-and-delete script. */
#ifndef MORTISE_BENCH_REDLOCK_FLOOR_H
#define MORTISE_BENCH_REDLOCK_FLOOR_H

#include "common.h"
#include "redis_server.h"

#define REDLOCK_NODES 5
#define REDLOCK_QUORUM 3

struct redlock_request {
    char *bytes;
    size_t length;
};

struct redlock_floor {
    int epoll;
    redisContext *nodes[REDLOCK_NODES];
    unsigned late[REDLOCK_NODES]; /* replies of requests before this one */
    struct redlock_request acquire, release;
};

void redlock_floor_open(struct redlock_floor *floor, const struct redis_server *servers);
void redlock_floor_close(struct redlock_floor *floor);

/* For bench_ns_per_turn. */
void redlock_floor_sequential(void *floor, size_t n);
void redlock_floor_all(void *floor, size_t n);
void redlock_floor_quorum(void *floor, size_t n);

#endif
