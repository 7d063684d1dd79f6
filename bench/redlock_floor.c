/* redlock_floor.c - hand-written loops over hiredis; see redlock_floor.h. Each checks its replies. */
#include "redlock_floor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define RELEASE                                                                                    \
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"

static struct redlock_request request(const char *format, const char *digest)
{
    struct redlock_request made;
    int length = redisFormatCommand(&made.bytes, format, digest);
    if (length < 0)
        bench_die("the floor: no memory");
    made.length = (size_t)length;
    return made;
}

void redlock_floor_open(struct redlock_floor *floor, const struct redis_server *servers)
{
    char digest[64] = "";
    memset(floor, 0, sizeof(*floor));
    floor->epoll = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < REDLOCK_NODES; i++) {
        floor->nodes[i] = redis_server_connect(&servers[i]);
        redisReply *reply = redis_server_sure(
            floor->nodes[i], redisCommand(floor->nodes[i], "SCRIPT LOAD %s", RELEASE));
        snprintf(digest, sizeof(digest), "%s", reply->str);
        freeReplyObject(reply);
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        if (epoll_ctl(floor->epoll, EPOLL_CTL_ADD, floor->nodes[i]->fd, &event) < 0)
            bench_die("the floor: epoll");
    }
    floor->acquire = request("SET floor %s NX PX 30000", "0123456789abcdef0123456789abcdef");
    floor->release = request("EVALSHA %s 1 floor 0123456789abcdef0123456789abcdef", digest);
}

void redlock_floor_close(struct redlock_floor *floor)
{
    for (int i = 0; i < REDLOCK_NODES; i++)
        redisFree(floor->nodes[i]);
    redisFreeCommand(floor->acquire.bytes);
    redisFreeCommand(floor->release.bytes);
    close(floor->epoll);
}

/* ---- one request, one reply ---- */

static void send_to(redisContext *node, const struct redlock_request *what)
{
    int done = 0;
    if (redisAppendFormattedCommand(node, what->bytes, what->length) != REDIS_OK)
        bench_die("the floor: %s", node->errstr);
    while (!done)
        if (redisBufferWrite(node, &done) != REDIS_OK)
            bench_die("the floor: %s", node->errstr);
}

static void check(const redisContext *node, redisReply *reply)
{
    bool good = reply != NULL && (reply->type == REDIS_REPLY_STATUS ||
                                  (reply->type == REDIS_REPLY_INTEGER && reply->integer == 1));
    if (!good)
        bench_die("the floor: a refusal: %s",
                  reply != NULL && reply->str != NULL ? reply->str : node->errstr);
    freeReplyObject(reply);
}

static void ask(redisContext *node, const struct redlock_request *what)
{
    void *reply = NULL;
    send_to(node, what);
    if (redisGetReply(node, &reply) != REDIS_OK)
        reply = NULL;
    check(node, reply);
}

/* ---- all at once ---- */

/* Takes the received replies; returns how many of them answer this request. */
static unsigned take(struct redlock_floor *floor, unsigned i)
{
    redisContext *node = floor->nodes[i];
    void *reply = NULL;
    unsigned mine = 0;
    if (redisBufferRead(node) != REDIS_OK)
        bench_die("the floor: %s", node->errstr);
    while (redisGetReplyFromReader(node, &reply) == REDIS_OK && reply != NULL) {
        check(node, reply);
        mine += --floor->late[i] == 0;
    }
    return mine;
}

static void ask_all(struct redlock_floor *floor, const struct redlock_request *what,
                    unsigned enough)
{
    struct epoll_event ready[REDLOCK_NODES];
    unsigned answered = 0;
    for (unsigned i = 0; i < REDLOCK_NODES; i++) {
        floor->late[i]++;
        send_to(floor->nodes[i], what);
    }
    while (answered < enough) {
        int n = epoll_wait(floor->epoll, ready, REDLOCK_NODES, -1);
        for (int i = 0; i < n; i++)
            answered += take(floor, ready[i].data.u32);
    }
}

static void all_with(struct redlock_floor *floor, size_t n, unsigned enough)
{
    while (n-- > 0) {
        ask_all(floor, &floor->acquire, enough);
        ask_all(floor, &floor->release, enough);
    }
    ask_all(floor, &floor->acquire, REDLOCK_NODES); /* no reply is left for the next round */
    ask_all(floor, &floor->release, REDLOCK_NODES);
}

void redlock_floor_all(void *floor, size_t n)
{
    all_with(floor, n, REDLOCK_NODES);
}

void redlock_floor_quorum(void *floor, size_t n)
{
    all_with(floor, n, REDLOCK_QUORUM);
}

void redlock_floor_sequential(void *context, size_t n)
{
    struct redlock_floor *floor = context;
    while (n-- > 0) {
        for (int i = 0; i < REDLOCK_NODES; i++)
            ask(floor->nodes[i], &floor->acquire);
        for (int i = 0; i < REDLOCK_NODES; i++)
            ask(floor->nodes[i], &floor->release);
    }
}
