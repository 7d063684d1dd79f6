/* cluster.h - leads each op to the server that has its lock. Without a cluster that is one server (or the primary of several).
 * In a Redis Cluster the lock's slot says which node it is; ../lib/redis/topology.h has the map of slots.
 *
 * THE STATES OF A CLIENT.
 *
 *   state   event                                                   what follows                                     next
 *   ALONE   INFO says that it is a node of one (cluster = auto)     nothing is sent on that connection               FOUND
 *   ALONE   cluster = yes: the first op comes                       the map is wanted                                ROUTED
 *   FOUND   the end of the turn                                     its ops, seats and watches wait for the map      ROUTED
 *   ROUTED  a map was read, or a slot has moved                     what waits goes to its slot's node               ROUTED
 *
 * THE STATES OF A NODE (struct driver with in_cluster) are those of its links, and what it has of slots:
 *
 *   has slots, or was named by ASK     it is connected when an op needs it
 *   has none, something is in flight   it stays until all is answered or lost
 *   has none, it is idle               its connections are closed; the struct stays for a while, for the case that it comes back
 *   has none, its name is looked up    it stays until the look-up has ended: its answer comes to the links
 *   has none, a doubt is open          it stays until the doubt is settled, or the longest ttl has passed: a server that has died
 *                                      may never come back at that address
 *
 * A REQUEST THAT IS REDIRECTED. All of these are refusals: the node has done nothing. The op keeps its grant id and F.
 *
 *   reply                       what follows
 *   MOVED slot node             the map learns it, a look is wanted; the op goes to that node
 *   ASK slot node               the op goes to that node, behind ASKING, as long as it waits there, or until the map says that the slot
 *                               has arrived; the map stays. The node that answers has none of the op's keys, so what is said there
 *                               names one key (script_call_asking).
 *                               Before Redis 7.0.3 it may have some of them: the greeting refuses such a node (handshake.c)
 *   ASK behind ASKING           that slot moves on already: a pause, then by the map, with all keys
 *   TRYAGAIN                    some keys of the lock are here, some there: a pause, then again by the map
 *   CLUSTERDOWN                 UNREACHABLE, a look is wanted; the core asks again with its own pauses
 *   CROSSSLOT                   BACKEND: a proxy changes the names of the keys; never seen
 *   "Script attempted to …"     a script met a key that is at another node, and ended there ("Lua script attempted to …" before
 *                               Redis 7). An acquire, release, downgrade or write may have written: INDETERMINATE. The others: as
 *                               TRYAGAIN
 *   more than REDIRECTS_FAST    with a growing pause before each, except that ASK is followed at once
 *   more than REDIRECTS_MAX     UNREACHABLE
 *
 * THE HOLES:
 *
 *   The reply is lost: INDETERMINATE, and a doubt at *that* node (uncertain.c). The core asks again under the same grant, and the
 *     map says where. Another node owns the slot now:
 *       after a failover, either it got the claim by replication: found. Or it never gets it, because a master takes in nothing
 *         from the former one. So what it says is sure, whatever the former master still executes: that is thrown away.
 *       after a migration, the former owner executes nothing more: all keys of the slot are gone from it, so a late request is
 *         refused (MOVED, ASK, TRYAGAIN).
 *     The same node still owns it: its new connection ends the old one there first, as without a cluster.
 *   A slot is on its way: keys that are still at the source are served there. A script that names several keys is executed there
 *     only if all of them exist there; else TRYAGAIN, if some do, and acquires and releases wait until the keys of that lock have
 *     left; or ASK, if none does. No key comes into being at the source any more, so all that this lock has is at the target then,
 *     where the script goes on, whether the rest of the slot has arrived or not. Renewals of exclusive leases name one key, and
 *     never wait; those of shared ones name three. A downgrade waits as acquires do, and is the only renewal of its lease until it
 *     is done: if the keys stay at the source for longer than the ttl, the lease is LOST.
 *   A slot is on its way, and the source fails: its replica has not heard of the move (with Valkey 8 it has), owns the slot, and lacks
 *     the keys that have left, so it grants those locks again (docs/redis.md). The driver cannot know.
 *   A script at the source needs a key that it has deleted, or that is not there (as those of holders who share): see "Script
 *     attempted" above. A release gives the lock to nobody then. A place can be lost with it; its waiter takes another one at its
 *     next refresh.
 *   A master fails: its connection breaks or is silent (command_timeout), a look is wanted, and every lease is renewed at once
 *     (host->doubt). A claim that the new master has is found; one that it does not have is LOST. While there are leases,
 *     the driver looks at its connections even if nobody asks anything (failover.c).
 *   A master is cut off with this client: it answers until cluster-node-timeout, then CLUSTERDOWN. Meanwhile the others have a
 *     new master: two holders are possible, as after each failover without min_replicas (docs/promises.md).
 *   Tokens: the last one moves with its slot. After a failover that lost it, the new token is not below the furthest clock of any
 *     node that this client saw (failover.c).
 *   A waiter has a place, and its slot moves: the op leaves its seat, and asks the new node "again".
 *   A waiter without a queue is subscribed at the old node: moving.c subscribes it at the new one, and the confirmation is news.
 *     Until the slot has arrived, the new node publishes to nobody: who releases there publishes it at the old one (move_tell).
 *   The inbox: each node publishes to those that are connected to it, and only those count; so there is an inbox for each node
 *     at which this client waits. The nodes pass messages on to each other, so a client would hear of a grant that a
 *     script took back because nobody listened *here*: in a cluster the scripts publish only if somebody does (PUBSUB NUMSUB).
 *   An op is canceled while it has no node: nothing was sent since, but it may have a place, or an earlier try. */
#ifndef MORTISE_DRIVERS_REDIS_CLUSTER_H
#define MORTISE_DRIVERS_REDIS_CLUSTER_H

#include "node.h"
#include "oplist.h"

#include "../lib/redis/topology.h"

#define CLUSTER_NODES_MAX 75 /* connections to more of them do not fit into the pump */

enum cluster_state { CLUSTER_ALONE, CLUSTER_FOUND, CLUSTER_ROUTED };

struct cluster {
    mortise_host *host;
    const char *list; /* of servers, as configured */
    enum cluster_state state;
    struct driver *alone;      /* its settings are those of all nodes */
    struct topology *topology; /* ROUTED */
    struct driver *nodes;      /* by next_node */
    unsigned node_count;
    struct driver *node_of[TOPOLOGY_SERVERS]; /* by the index of the map */
    struct seen_clock clock;
    mortise_op *unrouted;
    struct gather *gathers;
    bool moved;          /* the map has changed: moving.c */
    const char *refusal; /* the settings do not fit to a cluster */
};

/* Takes `alone` over, whose settings may follow. looks: a server that is a node of a cluster is treated as one; sure: it is a
 * cluster. NULL without memory. */
struct cluster *cluster_open(struct driver *alone, const char *list, bool looks, bool sure);
void cluster_close(struct cluster *cluster);
void cluster_start(struct cluster *cluster, mortise_op **ops, size_t n);
void cluster_cancel(struct cluster *cluster, mortise_op *op);
void cluster_watch(struct cluster *cluster, const char *name, size_t name_len);
void cluster_unwatch(struct cluster *cluster, const char *name, size_t name_len);
size_t cluster_interest(const struct cluster *cluster, struct pollfd *fds, size_t capacity,
                        int64_t *due_ns);
void cluster_turn(struct cluster *cluster, const struct pollfd *ready, size_t n);

/* To the node of this index of the map. It is sent when the turn, or the start, ends. */
void cluster_send(struct cluster *cluster, int server, mortise_op *op);

/* To the node that has its slot; or it waits for the map. */
void cluster_route(struct cluster *cluster, mortise_op *op);
static inline bool is_of_all(const mortise_op *op)
{
    return op->kind == MORTISE_OP_LIST || op->kind == MORTISE_OP_PING;
}

/* The index of the node that has the op's slot; or -1. */
int cluster_owner(const struct cluster *cluster, const mortise_op *op);
/* NULL: too many, or no memory. */
struct driver *cluster_node(struct cluster *cluster, int server);

/* ---- moving.c ------------------------------------------------------------------------------------------- */

/* After a change of the map. */
void move_all(struct cluster *cluster);
/* The op leaves its seat, if it has one, but it may have a place. */
void move_out(struct driver *node, mortise_op *op);
/* A lock was released at this node behind ASKING: whoever listens to the node that still has the slot hears of it. */
void move_tell(struct driver *node, const mortise_op *op);
/* all: also those whose slot is at this node. */
void move_seats(struct driver *node, bool all);

/* ---- gather.c ------------------------------------------------------------------------------------------- */

/* A list or a ping: asked of all nodes that have slots. */
void gather_start(struct cluster *cluster, mortise_op *op);
/* The look of this number has ended. */
void gather_looked(struct cluster *cluster, uint64_t number, const struct link_fault *fault);
void gather_cancel(mortise_op *op);

#endif
