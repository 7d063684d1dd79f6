/* house.c - a primary with two replicas, for tests of failover: asks for their roles, and changes them. */
#include "rig.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int house_start(struct house *house, const char *const *keys)
{
    int code = server_start(&house->server, keys);
    house->ports[0] = house->server.port;
    house->ports[1] = house->server.port2;
    house->ports[2] = house->server.port3;
    house->primary = 0;
    snprintf(house->list, sizeof house->list, "127.0.0.1:%d, 127.0.0.1:%d, 127.0.0.1:%d",
             house->ports[2], house->ports[1], house->ports[0]);
    return code;
}

bool house_do(struct house *house, const char *verb, int member)
{
    char which[16];
    snprintf(which, sizeof which, "only=%d", member + 1);
    return server_do(&house->server, verb, which);
}

static redisContext *connect_to(const struct house *house, int member)
{
    struct timeval patience = {.tv_sec = 5};
    redisContext *context = redisConnectWithTimeout("127.0.0.1", house->ports[member], patience);
    if (context && !context->err && redisSetTimeout(context, patience) == REDIS_OK) {
        if (house->server.password[0])
            freeReplyObject(redisCommand(context, "AUTH %s", house->server.password));
        return context;
    }
    if (context)
        redisFree(context);
    return NULL;
}

redisReply *house_ask(struct house *house, int member, const char *format, ...)
{
    redisContext *context = connect_to(house, member);
    if (!context)
        return NULL;
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = redisvCommand(context, format, arguments);
    va_end(arguments);
    redisFree(context);
    return reply;
}

static bool is_text(const redisReply *reply, const char *text)
{
    return reply && reply->str && strcmp(reply->str, text) == 0;
}

static bool says_master(struct house *house, int member)
{
    redisReply *role = house_ask(house, member, "ROLE");
    bool master = role && role->type == REDIS_REPLY_ARRAY && is_text(role->element[0], "master");
    freeReplyObject(role);
    return master;
}

void house_look_at(struct house *house, int member)
{
    house->primary = member;
    server_look_at(&house->server, house->ports[member]);
}

/* Those that do not run are told when they do: house_mend. */
void house_follow(struct house *house, int member)
{
    redisReply *reply =
        house_ask(house, member, "REPLICAOF 127.0.0.1 %d", house->ports[house->primary]);
    freeReplyObject(reply);
}

void house_promote(struct house *house, int member)
{
    redisReply *reply = house_ask(house, member, "REPLICAOF NO ONE");
    CHECK(is_text(reply, "OK"));
    freeReplyObject(reply);
    house_look_at(house, member);
}

void house_strand(struct house *house, int member)
{
    redisReply *reply = house_ask(house, member, "REPLICAOF 127.0.0.1 1");
    CHECK(is_text(reply, "OK"));
    freeReplyObject(reply);
}

struct named {
    struct house *house;
    redisContext *sentinel;
    int except;
    bool ask;
};

/* What the sentinel says of the primary; "": nothing. */
static const char *said_of(const redisReply *facts, const char *key)
{
    for (size_t i = 0; facts && facts->type == REDIS_REPLY_ARRAY && i + 1 < facts->elements; i += 2)
        if (is_text(facts->element[i], key) && facts->element[i + 1]->str)
            return facts->element[i + 1]->str;
    return "";
}

static bool names_other(void *argument)
{
    const struct named *named = argument;
    struct house *house = named->house;
    redisReply *facts = redisCommand(named->sentinel, "SENTINEL MASTER locks");
    int port = (int)strtol(said_of(facts, "port"), NULL, 10), member = 0;
    bool under_way = strstr(said_of(facts, "flags"), "failover_in_progress") != NULL;
    freeReplyObject(facts);
    while (member < HOUSE && house->ports[member] != port)
        member++;
    if (member == named->except && named->ask && !under_way)
        freeReplyObject(redisCommand(named->sentinel, "SENTINEL FAILOVER locks"));
    if (member == HOUSE || member == named->except || !says_master(house, member))
        return false;
    house_look_at(house, member);
    return true;
}

static bool wait_named(struct house *house, redisContext *sentinel, int except, bool ask)
{
    struct named named = {house, sentinel, except, ask};
    return CHECK(test_poll(names_other, &named, FAILOVER_MS));
}

bool house_wait_named(struct house *house, redisContext *sentinel, int except)
{
    return wait_named(house, sentinel, except, false);
}

bool house_exchange(struct house *house, redisContext *sentinel)
{
    return wait_named(house, sentinel, house->primary, true);
}

struct follower {
    struct house *house;
    int replicas;
};

/* A write of its own: WAIT speaks of what its connection has written. */
static bool have_all(void *argument)
{
    struct follower *follower = argument;
    struct server *server = &follower->house->server;
    return ask_is(server, "OK", "SET mortise:house now PX 1") &&
           ask_number(server, "WAIT %d 1000", follower->replicas) >= follower->replicas;
}

bool house_wait_replicas(struct house *house, int replicas)
{
    struct follower follower = {house, replicas};
    return CHECK(test_poll(have_all, &follower, FAILOVER_MS));
}

void house_mend(struct house *house, int primary)
{
    house_promote(house, primary);
    for (int i = 0; i < HOUSE; i++)
        if (i != primary)
            house_follow(house, i);
    CHECK(ask_is(&house->server, "OK", "FLUSHALL"));
    house_wait_replicas(house, HOUSE - 1);
}
