/* findings.c - what a ping adds about the server's settings, for `mortise doctor`: each finding is " | risk: …" or
 * " | note: …" at the end of the line (driver.h, MORTISE_OP_PING). A user who may not ask gets fewer findings, no failure.
 *
 *   request    | an answer                                  an error
 *   -----------|------------------------------------------------------------------
 *   INFO       | findings; with an AOF, CONFIG GET is sent  a note; the ping ends
 *   CONFIG GET | a finding; the ping ends                   the ping ends */
#include "sending.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void add(const mortise_op *op, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void add(const mortise_op *op, const char *format, ...)
{
    char *text = op->buffer;
    const size_t used = strlen(text);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text + used, op->buffer_size - used, format, arguments);
    va_end(arguments);
}

/* -1: the server does not say. */
static int64_t number_of(const redisReply *info, const char *key)
{
    char text[32];
    link_info(info, key, text, sizeof(text));
    return text[0] >= '0' && text[0] <= '9' ? (int64_t)strtoull(text, NULL, 10) : -1;
}

static void add_eviction(const mortise_op *op, const redisReply *info)
{
    char policy[32];
    link_info(info, "maxmemory_policy:", policy, sizeof(policy));
    if (policy[0] == '\0' || strcmp(policy, "noeviction") == 0)
        return;
    if (number_of(info, "maxmemory:") > 0)
        add(op,
            " | risk: maxmemory-policy is %s: when memory is short the server deletes held locks "
            "and grants them again; set noeviction",
            policy);
    else
        add(op,
            " | note: maxmemory-policy is %s: with a maxmemory the server would delete held locks",
            policy);
}

static void add_replicas(const struct driver *driver, const mortise_op *op, const redisReply *info)
{
    const int64_t count = number_of(info, "connected_slaves:");
    if (count > driver->replicas.wanted)
        add(op,
            " | risk: %" PRId64 " replicas, but min_replicas is %" PRId64
            ": after a failover a held lock may be granted again",
            count, driver->replicas.wanted);
}

/* It need not be exact: a second is all that matters to a reader of two logs. */
static void add_clock(const mortise_op *op, const redisReply *info)
{
    const int64_t server_us = number_of(info, "server_time_usec:");
    const int64_t ahead_s = server_us / 1000000 - (int64_t)time(NULL);
    if (server_us > 0 && (ahead_s > 2 || ahead_s < -2))
        add(op,
            " | note: the server's clock is %" PRId64
            " s ahead of this host's: leases do not depend on it, but the times in logs differ",
            ahead_s);
}

static void told_config(struct request *request, redisReply *reply)
{
    mortise_op *op = request->op;
    const bool told = reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
                      reply->element[1]->type == REDIS_REPLY_STRING;
    if (told && strcmp(reply->element[1]->str, "always") != 0)
        add(op,
            " | note: appendfsync is %.16s: after a power failure the server may have forgotten "
            "its last grants, and grant them again; always prevents that",
            reply->element[1]->str);
    op_complete(request->driver, op, MORTISE_OK);
}

static void told_info(struct request *request, redisReply *reply)
{
    struct driver *driver = request->driver;
    mortise_op *op = request->op;
    if (reply->type != REDIS_REPLY_STRING) {
        add(op, " | note: this user may not run INFO: eviction, persistence and replicas are not "
                "known");
        op_complete(driver, op, MORTISE_OK);
        return;
    }
    add_eviction(op, reply);
    add_replicas(driver, op, reply);
    add_clock(op, reply);
    if (number_of(reply, "aof_enabled:") != 1) {
        if (number_of(reply, "aof_enabled:") == 0)
            add(op, " | note: the server keeps no AOF: after a crash it may have forgotten its "
                    "locks, and grant them again");
        op_complete(driver, op, MORTISE_OK);
        return;
    }
    request_go_on(request, told_config);
    request->takes_errors = true;
    link_command(&driver->link, 3);
    link_text(&driver->link, "CONFIG");
    link_text(&driver->link, "GET");
    link_text(&driver->link, "appendfsync");
    link_call_end(&driver->link, &request->call, 1);
}

void findings_ask(struct request *request)
{
    struct driver *driver = request->driver;
    request_go_on(request, told_info);
    request->takes_errors = true;
    link_command(&driver->link, 1);
    link_text(&driver->link, "INFO");
    link_call_end(&driver->link, &request->call, 1);
}
