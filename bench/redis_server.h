/* redis_server.h - a redis-server of the benchmark's own: on 127.0.0.1 at a free port, without a disk, in
 * the program's temporary folder; it ends with the program, however the program ends. A failure ends the program. */
#ifndef MORTISE_BENCH_REDIS_SERVER_H
#define MORTISE_BENCH_REDIS_SERVER_H

#include <hiredis/hiredis.h>
#include <stdint.h>
#include <sys/types.h>

struct redis_server {
    pid_t pid;
    int port;
    redisContext *control; /* for requests that are not part of the benchmark */
};

/* Call it from the program's first thread, because the server ends with that thread. cpu: as for bench_pin(). */
void redis_server_start(struct redis_server *server, int cpu);
void redis_server_stop(struct redis_server *server);

/* A blocking connection. */
redisContext *redis_server_connect(const struct redis_server *server);
/* Ends the program if there is no reply, or an error. */
redisReply *redis_server_sure(redisContext *context, redisReply *reply);

/* From INFO, since the server was started: how often a command was called, including the scripts' own calls of it;
 * the processor time of all its threads, in nanoseconds. */
uint64_t redis_server_calls(const struct redis_server *server, const char *command);
double redis_server_cpu_ns(const struct redis_server *server);

#endif
