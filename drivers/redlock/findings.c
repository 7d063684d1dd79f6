/* findings.c - what a ping adds about the nodes' settings, for `mortise doctor`: each finding is " | risk: …" or " | note: …" at
 * the end of the line (driver.h, MORTISE_OP_PING). If the user may not ask, there are fewer findings, but no failure.
 *
 *   ballot      | an answer of a node       | when the last has answered
 *   ------------|---------------------------|--------------------------------------------------------
 *   INFO        | findings about that node  | with node_persistent the next ballot; else the op ends
 *   CONFIG GET  | a finding about that node | the op ends
 *
 * The answers to a canceled op, which has left its ballot, and those of a late node, which finds the ballot decided, add
 * nothing. */
#include "../lib/ping.h"
#include "redlock.h"

#include <inttypes.h>
#include <string.h>

#define US_PER_S 1000000

static const char *where(const struct vote *vote)
{
    return vote->node->link.endpoint.text;
}

static bool is_persistent(const struct driver *driver)
{
    return driver->values[OPTION_NODE_PERSISTENT].number != 0;
}

/* ---- the list of nodes ------------------------------------------------------------------------------ */

static void add_nodes(const struct driver *driver, const mortise_op *op)
{
    unsigned usable = nodes_usable(driver);
    for (unsigned i = 0; i < driver->count; i++) {
        const struct node *node = &driver->nodes[i];
        if (node->twin)
            ping_add(
                op,
                " | risk: %s is the same server as another node: fewer nodes vote than are named, "
                "and held locks are lost when fewer of them fail; name another server",
                node->settings.endpoint.text);
    }
    if (usable == driver->quorum && usable < driver->count)
        ping_add(
            op,
            " | risk: %u of %u nodes answer: if one more fails, held locks are lost; bring the "
            "others back",
            usable, driver->count);
}

/* ---- a node ----------------------------------------------------------------------------------------------- */

static void add_eviction(const mortise_op *op, const struct vote *vote, const redisReply *info)
{
    char policy[32];
    link_info(info, "maxmemory_policy:", policy, sizeof(policy));
    if (policy[0] == '\0' || strcmp(policy, "noeviction") == 0)
        return;
    if (link_info_number(info, "maxmemory:") > 0)
        ping_add(
            op,
            " | risk: %s: maxmemory-policy is %s: when memory is short the node deletes votes of "
            "held locks, and votes again; set noeviction",
            where(vote), policy);
    else
        ping_add(
            op,
            " | note: %s: maxmemory-policy is %s: with a maxmemory the node would delete votes; "
            "set noeviction",
            where(vote), policy);
}

/* A promoted replica is a process that has been running for long, so its vote counts at once. */
static void add_replicas(const mortise_op *op, const struct vote *vote, const redisReply *info)
{
    const int64_t count = link_info_number(info, "connected_slaves:");
    if (count > 0)
        ping_add(
            op,
            " | risk: %s: the node has replicas: one that takes over its address lacks its last "
            "votes, and a held lock may be granted again; run nodes without replicas",
            where(vote));
}

static void add_clock(const mortise_op *op, const struct vote *vote, const redisReply *info)
{
    const int64_t server_us = link_info_number(info, "server_time_usec:");
    const int64_t ahead_s = server_us / US_PER_S - (int64_t)(clock_wall_us() / US_PER_S);
    if (server_us > 0 && (ahead_s > 2 || ahead_s < -2))
        ping_add(
            op,
            " | note: %s: the node's clock is %" PRId64
            " s ahead of this host's: if it is set right in one step, votes expire early or late; "
            "synchronise both (NTP), without steps",
            where(vote), ahead_s);
}

static enum vote_state info_take(struct ballot *ballot, struct vote *vote, redisReply *reply)
{
    const mortise_op *op = ballot->op;
    if (ballot->state != BALLOT_OPEN || op == NULL || reply->type != REDIS_REPLY_STRING)
        return VOTE_YES;
    add_eviction(op, vote, reply);
    add_replicas(op, vote, reply);
    add_clock(op, vote, reply);
    if (is_persistent(ballot->driver) && link_info_number(reply, "aof_enabled:") == 0)
        ping_add(
            op,
            " | risk: %s: it keeps no AOF, but node_persistent is set: a restart forgets its "
            "votes, "
            "and a held lock may be granted again; set appendonly yes, or remove node_persistent",
            where(vote));
    return VOTE_YES;
}

static void info_put(struct ballot *ballot, struct vote *vote)
{
    (void)ballot;
    link_command(&vote->node->link, 1);
    link_text(&vote->node->link, "INFO");
}

static enum vote_state fsync_take(struct ballot *ballot, struct vote *vote, redisReply *reply)
{
    const bool told = reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
                      reply->element[1]->type == REDIS_REPLY_STRING;
    if (ballot->state == BALLOT_OPEN && ballot->op != NULL && told &&
        strcmp(reply->element[1]->str, "always") != 0)
        ping_add(
            ballot->op,
            " | risk: %s: appendfsync is %.16s, but node_persistent is set: after a power failure "
            "it may have forgotten its last votes, and a held lock may be granted again; set "
            "always, or remove node_persistent",
            where(vote), reply->element[1]->str);
    return VOTE_YES;
}

static void fsync_put(struct ballot *ballot, struct vote *vote)
{
    struct link *link = &vote->node->link;
    (void)ballot;
    link_command(link, 3);
    link_text(link, "CONFIG");
    link_text(link, "GET");
    link_text(link, "appendfsync");
}

/* ---- the ballots -------------------------------------------------------------------------------------------- */

static void fsync_look(struct ballot *ballot, bool over)
{
    mortise_op *op = ballot->op;
    if (!over)
        return;
    ballot_decide(ballot, BALLOT_CLOSED);
    if (op != NULL)
        op_complete(ballot->driver, op, MORTISE_OK);
}

static const struct ballot_kind asking_fsync = {
    .put = fsync_put, .take = fsync_take, .look = fsync_look};

static void ask(struct driver *driver, mortise_op *op, const struct ballot_kind *kind)
{
    struct ballot *ballot = inspect_ballot(driver, op, kind);
    if (ballot == NULL)
        return;
    ballot_ask_usable(ballot);
    ballot_begun(ballot);
}

static void info_look(struct ballot *ballot, bool over)
{
    struct driver *driver = ballot->driver;
    mortise_op *op = ballot->op;
    if (!over)
        return;
    ballot_decide(ballot, BALLOT_CLOSED);
    if (op == NULL)
        return;
    if (ballot->counts[VOTE_YES] == 0)
        ping_add(op,
                 " | note: this user may not run INFO: persistence, replicas and eviction are not "
                 "known; permit it");
    if (is_persistent(driver))
        ask(driver, op, &asking_fsync);
    else
        op_complete(driver, op, MORTISE_OK);
}

static const struct ballot_kind asking_info = {
    .put = info_put, .take = info_take, .look = info_look};

void findings_start(struct driver *driver, mortise_op *op)
{
    add_nodes(driver, op);
    ask(driver, op, &asking_info);
}
