/* redis_floor.c - hand-written loops over hiredis; see redis_floor.h. Each checks its replies, because a measurement
 * of refusals is worthless. */
#include "redis_floor.h"

#include "common.h"

#include <hiredis/hiredis.h>

#define RELEASED 2          /* the script's reply for a release */
#define IS_RELEASE 0x10000U /* in `expected` */

static void check(const redisContext *context, redisReply *reply, bool release)
{
    if (reply == NULL)
        bench_die("the floor: %s", context->errstr);
    if (reply->type != REDIS_REPLY_INTEGER || (release && reply->integer != RELEASED) ||
        (!release && reply->integer <= 0))
        bench_die("the floor: %s was refused: %s", release ? "a release" : "an acquire",
                  reply->type == REDIS_REPLY_ERROR ? reply->str : "an answer of another kind");
    freeReplyObject(reply);
}

static void append(redisContext *context, const struct redis_request *request)
{
    if (redisAppendFormattedCommand(context, request->bytes, request->length) != REDIS_OK)
        bench_die("the floor: %s", context->errstr);
}

/* ---- blocking ---- */

void redis_blocking_open(struct redis_blocking *blocking, const struct redis_server *server,
                         struct redis_cycle cycle)
{
    blocking->context = redis_server_connect(server);
    blocking->cycle = cycle;
}

static void take_reply(redisContext *context, bool release)
{
    void *reply = NULL;
    if (redisGetReply(context, &reply) != REDIS_OK)
        reply = NULL;
    check(context, reply, release);
}

static void ask(redisContext *context, const struct redis_request *request, bool release)
{
    append(context, request);
    take_reply(context, release);
}

void redis_blocking_cycle(struct redis_blocking *blocking)
{
    ask(blocking->context, &blocking->cycle.acquire, false);
    ask(blocking->context, &blocking->cycle.release, true);
}

void redis_blocking_cycles(void *blocking, size_t n)
{
    while (n-- > 0)
        redis_blocking_cycle(blocking);
}

static void write_all(redisContext *context)
{
    int done = 0;
    while (!done)
        if (redisBufferWrite(context, &done) != REDIS_OK)
            bench_die("the floor: %s", context->errstr);
}

void redis_blocking_cycles_nowait(void *context, size_t n)
{
    struct redis_blocking *blocking = context;
    redisContext *redis = blocking->context;
    for (size_t i = 0; i < n; i++) {
        append(redis, &blocking->cycle.acquire);
        write_all(redis);
        if (i > 0)
            take_reply(redis, true);
        take_reply(redis, false);
        append(redis, &blocking->cycle.release);
        write_all(redis);
    }
    if (n > 0)
        take_reply(redis, true);
}

void redis_blocking_close(struct redis_blocking *blocking)
{
    redisFree(blocking->context);
}

/* ---- pipelined ---- */

void redis_pipeline_open(struct redis_pipeline *pipeline, const struct redis_server *server,
                         const struct redis_cycle *cycle)
{
    pipeline->context = redis_server_connect(server);
    pipeline->in_flight = REDIS_IN_FLIGHT;
    for (unsigned i = 0; i < REDIS_IN_FLIGHT; i++)
        pipeline->cycles[i] = redis_request_for(cycle, i);
}

static void expect(struct redis_pipeline *pipeline, unsigned what)
{
    size_t size = sizeof(pipeline->expected) / sizeof(pipeline->expected[0]);
    pipeline->expected[(pipeline->first + pipeline->count++) % size] = what;
}

static void begin(struct redis_pipeline *pipeline, unsigned number)
{
    pipeline->to_begin--;
    append(pipeline->context, &pipeline->cycles[number].acquire);
    expect(pipeline, number);
}

static void take(struct redis_pipeline *pipeline, redisReply *reply)
{
    unsigned what = pipeline->expected[pipeline->first], number = what & ~IS_RELEASE;
    bool release = (what & IS_RELEASE) != 0;
    pipeline->first = (pipeline->first + 1) % (2 * REDIS_IN_FLIGHT);
    pipeline->count--;
    check(pipeline->context, reply, release);
    if (release) {
        pipeline->to_end--;
        return;
    }
    append(pipeline->context, &pipeline->cycles[number].release);
    expect(pipeline, number | IS_RELEASE);
    if (pipeline->to_begin > 0)
        begin(pipeline, number);
}

static void take_all(struct redis_pipeline *pipeline)
{
    redisContext *context = pipeline->context;
    void *reply = NULL;
    if (redisBufferRead(context) != REDIS_OK)
        bench_die("the floor: %s", context->errstr);
    while (redisGetReplyFromReader(context, &reply) == REDIS_OK && reply != NULL)
        take(pipeline, reply);
    if (context->err != 0)
        bench_die("the floor: %s", context->errstr);
}

void redis_pipeline_begin(struct redis_pipeline *pipeline, size_t n)
{
    pipeline->to_begin = pipeline->to_end = n;
    for (unsigned i = 0; i < pipeline->in_flight && pipeline->to_begin > 0; i++)
        begin(pipeline, i);
}

void redis_pipeline_send(struct redis_pipeline *pipeline)
{
    write_all(pipeline->context);
}

bool redis_pipeline_take(struct redis_pipeline *pipeline)
{
    take_all(pipeline);
    return pipeline->to_end > 0;
}

void redis_pipeline_cycles(void *pipeline, size_t n)
{
    redis_pipeline_begin(pipeline, n);
    do
        redis_pipeline_send(pipeline);
    while (redis_pipeline_take(pipeline));
}

void redis_pipeline_close(struct redis_pipeline *pipeline)
{
    redisFree(pipeline->context);
}
