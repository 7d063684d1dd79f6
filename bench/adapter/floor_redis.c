/* floor_redis.c - the bare floors on one Redis server, as an adapter (adapter.h): the driver's own requests by hiredis
 * (../redis_floor.h), a connection for each thread, or 64 in flight on one; for a name that all want, a token that
 * goes round by BLPOP and RPUSH: one client is woken, in order. That ring is not a lock (a client that dies takes the
 * token with it); it shows how fast a server can hand over. The address is a port of 127.0.0.1. */
#include "../common.h"
#include "../redis_floor.h"
#include "adapter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct redis_server server;
static struct redis_cycle cycle;
static pthread_mutex_t learning = PTHREAD_MUTEX_INITIALIZER;

struct own {
    struct redis_blocking blocking;
    unsigned number;
    bool learnt;
};

/* Learns what the driver sends. Only if that is measured: contending threads would disturb each other. */
static struct redis_cycle learn(unsigned number)
{
    static bool learnt;
    pthread_mutex_lock(&learning);
    if (!learnt)
        redis_request_record(&server, &cycle);
    learnt = true;
    pthread_mutex_unlock(&learning);
    return redis_request_for(&cycle, number);
}

static const char *open_server(const char *where)
{
    static char version[64];
    server.port = (int)strtol(where, NULL, 10);
    server.control = redis_server_connect(&server);
    snprintf(version, sizeof(version), "hiredis %d.%d.%d", HIREDIS_MAJOR, HIREDIS_MINOR,
             HIREDIS_PATCH);
    return version;
}

static void *open_worker(unsigned number)
{
    struct own *own = calloc(1, sizeof(*own));
    if (own == NULL)
        bench_die("out of memory");
    own->number = number;
    own->blocking.context = redis_server_connect(&server);
    return own;
}

static void cycle_of(void *worker, const char *name)
{
    struct own *own = worker;
    (void)name;
    if (!own->learnt) /* in the warm-up */
        own->blocking.cycle = learn(own->number);
    own->learnt = true;
    redis_blocking_cycle(&own->blocking);
}

static void many(const char *name, size_t count)
{
    static struct redis_pipeline pipeline;
    static bool open;
    (void)name;
    if (!open) {
        learn(0);
        redis_pipeline_open(&pipeline, &server, &cycle);
    }
    open = true;
    redis_pipeline_cycles(&pipeline, count);
}

/* ---- the ring ---- */

static void ask(redisContext *context, const char *format, const char *name)
{
    freeReplyObject(redis_server_sure(context, redisCommand(context, format, name)));
}

/* Makes one token, whichever process comes first. */
static void make_ring(redisContext *context, const char *name)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char made[128];
    pthread_mutex_lock(&lock);
    if (strncmp(made, name, sizeof(made) - 1) != 0) {
        redisReply *reply = redis_server_sure(
            context, redisCommand(context, "EVAL %s 2 ring:%s made:%s",
                                  "if redis.call('set', KEYS[2], '1', 'nx') then "
                                  "redis.call('rpush', KEYS[1], 'token') end return 1",
                                  name, name));
        freeReplyObject(reply);
        snprintf(made, sizeof(made), "%s", name);
    }
    pthread_mutex_unlock(&lock);
}

static bool take_token(void *worker, const char *name, void **held)
{
    redisContext *context = ((struct own *)worker)->blocking.context;
    (void)held;
    make_ring(context, name);
    ask(context, "BLPOP ring:%s 0", name);
    return true;
}

static void give_token(void *worker, const char *name, void *held)
{
    (void)held;
    ask(((struct own *)worker)->blocking.context, "RPUSH ring:%s token", name);
}

int main(int argc, char **argv)
{
    return adapter_main(argc, argv,
                        &(struct adapter){.name = "floor_redis",
                                          .open = open_server,
                                          .worker = open_worker,
                                          .cycle = cycle_of,
                                          .take = take_token,
                                          .give = give_token,
                                          .many = many});
}
