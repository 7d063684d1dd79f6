/* findings.c - what a ping adds about the server's settings, for `mortise doctor`: each finding is " | risk: …" or
 * " | note: …" at the end of the line (driver.h, MORTISE_OP_PING). If the user may not ask, there are fewer findings, but
 * no failure.
 *
 *   request    | an answer                                  an error
 *   -----------|------------------------------------------------------------------
 *   INFO       | findings; CONFIG GET is sent if the        a note; the ping ends
 *              | server keeps an AOF or is of a cluster
 *   CONFIG GET | findings; the ping ends                    the ping ends
 *
 * A node of a cluster is asked like a server; gather.c joins the findings of all masters. */
#include "../lib/ping.h"
#include "sending.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEFAULT_TTL_MS 30000

static void add_eviction(const mortise_op *op, const redisReply *info)
{
    char policy[32];
    link_info(info, "maxmemory_policy:", policy, sizeof(policy));
    if (policy[0] == '\0' || strcmp(policy, "noeviction") == 0)
        return;
    if (link_info_number(info, "maxmemory:") > 0)
        ping_add(
            op,
            " | risk: maxmemory-policy is %s: when memory is short the server deletes held locks "
            "and grants them again; set noeviction",
            policy);
    else
        ping_add(
            op,
            " | note: maxmemory-policy is %s: with a maxmemory the server would delete held locks; "
            "set "
            "noeviction",
            policy);
}

static void add_replicas(const struct driver *driver, const mortise_op *op, const redisReply *info)
{
    const int64_t count = link_info_number(info, "connected_slaves:");
    if (count > driver->replicas.wanted)
        ping_add(
            op,
            " | risk: %" PRId64 " replicas, but min_replicas is %" PRId64
            ": after a failover a held lock may be granted again; set min_replicas to %" PRId64,
            count, driver->replicas.wanted, count);
    if (count >= 0 && count < driver->replicas.wanted)
        ping_add(
            op,
            " | risk: %" PRId64 " replicas, but min_replicas is %" PRId64
            ": nothing is granted or renewed, so held locks are lost; bring the replicas back, or "
            "lower min_replicas in all clients",
            count, driver->replicas.wanted);
    if (count == 0 && driver->replicas.wanted == 0 &&
        (driver->in_cluster || driver->primary != NULL))
        ping_add(
            op,
            " | note: no replica: nobody takes over if this server fails, so its locks cannot be "
            "acquired or renewed until it is back; give it a replica, and set min_replicas");
}

/* With two sentinels, neither can outvote the other, so the client may believe one that is cut off; and a failover needs a
 * majority. */
static void add_sentinels(const struct driver *driver, const mortise_op *op)
{
    const size_t count = driver->primary != NULL ? primary_sentinel_count(driver->primary) : 0;
    if (count > 0 && count < 3)
        ping_add(
            op,
            " | note: `sentinel` names %zu of the sentinels: if those fail or are cut off, this "
            "client does not find the new primary; run at least three, and name them all",
            count);
}

static void add_clock(const mortise_op *op, const redisReply *info)
{
    const int64_t server_us = link_info_number(info, "server_time_usec:");
    if (server_us > 0)
        ping_add_clock(op, server_us / 1000000 - (int64_t)time(NULL));
}

static void add_fsync(const mortise_op *op, const char *policy)
{
    if (strcmp(policy, "always") != 0)
        ping_add(
            op,
            " | note: appendfsync is %.16s: after a power failure the server may have forgotten "
            "its last grants, and grant them again; set always",
            policy);
}

static void add_coverage(const mortise_op *op, const char *value)
{
    if (strcmp(value, "yes") == 0)
        ping_add(op,
                 " | risk: cluster-require-full-coverage is yes: if one master and its replicas "
                 "fail, the others refuse renewals too, and their locks are lost; set no");
}

/* The time until the nodes agree that one has failed, and a replica is elected. */
static void add_failover(const mortise_op *op, const char *value)
{
    const int64_t timeout_ms = strtoll(value, NULL, 10);
    const int64_t failover_ms = timeout_ms + timeout_ms / 2 + 2000;
    if (failover_ms > DEFAULT_TTL_MS)
        ping_add(op,
                 " | note: cluster-node-timeout is %" PRId64 " ms: a failover takes up to %" PRId64
                 " ms, and a lock with a shorter ttl is lost by it; use a longer ttl, or a shorter "
                 "cluster-node-timeout",
                 timeout_ms, failover_ms);
}

static void told_config(struct request *request, redisReply *reply)
{
    static const struct {
        const char *key;
        void (*add)(const mortise_op *op, const char *value);
    } rows[] = {{"appendfsync", add_fsync},
                {"cluster-require-full-coverage", add_coverage},
                {"cluster-node-timeout", add_failover}};
    mortise_op *op = request->op;
    const size_t count = reply->type == REDIS_REPLY_ARRAY ? reply->elements : 0;
    for (size_t i = 0; i + 1 < count; i += 2) {
        const redisReply *key = reply->element[i], *value = reply->element[i + 1];
        if (key->type != REDIS_REPLY_STRING || value->type != REDIS_REPLY_STRING)
            continue;
        for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++)
            if (strcmp(key->str, rows[row].key) == 0)
                rows[row].add(op, value->str);
    }
    op_complete(request->driver, op, MORTISE_OK);
}

/* CONFIG GET takes several names only from Redis 7 on, so an older cluster gets fewer findings. */
static void ask_config(struct request *request, bool keeps_log)
{
    struct link *link = &request->driver->link;
    request_go_on(request, told_config);
    request->takes_errors = true;
    link_command(link, 2 + keeps_log + (link->clustered ? 2 : 0));
    link_text(link, "CONFIG");
    link_text(link, "GET");
    if (keeps_log)
        link_text(link, "appendfsync");
    if (link->clustered) {
        link_text(link, "cluster-require-full-coverage");
        link_text(link, "cluster-node-timeout");
    }
    link_call_end(link, &request->call, 1);
}

static void told_info(struct request *request, redisReply *reply)
{
    struct driver *driver = request->driver;
    mortise_op *op = request->op;
    if (reply->type != REDIS_REPLY_STRING) {
        ping_add(op,
                 " | note: this user may not run INFO: eviction, persistence and replicas are not "
                 "known");
        op_complete(driver, op, MORTISE_OK);
        return;
    }
    add_eviction(op, reply);
    add_replicas(driver, op, reply);
    add_sentinels(driver, op);
    add_clock(op, reply);
    const int64_t keeps_log = link_info_number(reply, "aof_enabled:");
    if (keeps_log == 0)
        ping_add(op,
                 " | note: the server keeps no AOF: after a crash it may have forgotten its locks, "
                 "and grant them again; set appendonly yes and appendfsync always");
    if (keeps_log == 1 || driver->link.clustered)
        ask_config(request, keeps_log == 1);
    else
        op_complete(driver, op, MORTISE_OK);
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
