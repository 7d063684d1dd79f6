/* cluster.h - routes each op to the server that has its lock. Without a cluster, that is one server (or the primary of
 * several). In a Redis Cluster, the lock's slot says which node it is; ../lib/redis/topology.h has the map of slots.
 *
 * THE STATES OF A CLIENT.
 *
 *   state   event                                                   what follows                                     next
 *   ALONE   INFO says that it is a node of one (cluster = auto)     nothing is sent on that connection               FOUND
 *   ALONE   cluster = yes: the first op comes                       the map is wanted                                ROUTED
 *   FOUND   the end of the turn                                     its ops, seats and watches wait for the map      ROUTED
 *   ROUTED  a map was read, or a slot has moved                     what waits goes to its slot's node               ROUTED
 *
 * THE STATES OF A NODE (struct driver with in_cluster) are those of its links, and whether it has slots:
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
 *   MOVED slot node             the map is corrected, a look is wanted; the op goes to that node
 *   ASK slot node               the op goes to that node, behind ASKING; the map stays. If the op waits in the queue there, its next
 *                               request goes by the map again, because the slot may have gone back. The node that answers has none
 *                               of the op's keys, so what is said there names one key (script_call_asking).
 *                               Before Redis 7.0.3 it may have some of them: the greeting refuses such a node (handshake.c)
 *   ASK behind ASKING           that slot moves on already: a pause, then by the map, with all keys
 *   TRYAGAIN                    some keys of the lock are here, some there: a pause, then again by the map
 *   CLUSTERDOWN                 UNREACHABLE, a look is wanted; the core asks again with its own pauses
 *   CROSSSLOT                   BACKEND: a proxy changes the names of the keys; never seen
 *   "Script attempted to …"     a script met a key that is at another node, and ended there ("Lua script attempted to …" before
 *                               Redis 7). An acquire, release, downgrade or write may have written: INDETERMINATE. The others: as
 *                               TRYAGAIN
 *   more than REDIRECTS_FAST    a growing pause before each further one, except that ASK is followed at once
 *   more than REDIRECTS_MAX     UNREACHABLE
 *
 * THE HOLES:
 *
 *   The reply is lost: INDETERMINATE, and a doubt at *that* node (uncertain.c). The core asks again under the same grant, and
 *     the map says where. If another node owns the slot now:
 *       after a failover, it either got the claim by replication, and the repeat finds it. Or it never gets the claim, because
 *         a master accepts nothing from the former one. So its answer is sure, whatever the former master still executes,
 *         because those changes are thrown away.
 *       after a migration, the former owner executes nothing more: all keys of the slot are gone from it, so a late request is
 *         refused (MOVED, ASK, TRYAGAIN).
 *     If the same node still owns it: the new connection to it ends the old one there first, as without a cluster.
 *   A slot is on its way: keys that are still at the source are served there. A script that names several keys is executed
 *     there only if all of them exist there. If only some exist, the reply is TRYAGAIN, and acquires and releases wait until
 *     the keys of that lock have left. If none exists, the reply is ASK. No new key is made at the source any more, so then all
 *     keys of this lock are at the target, and the script goes on there, whether or not the rest of the slot has arrived.
 *     Renewals of exclusive leases name one key, and never wait; those of shared leases name three. A downgrade waits as
 *     acquires do, and is the only renewal of its lease until it is done. If the keys stay at the source for longer than the
 *     ttl, the lease is LOST.
 *   A slot is on its way, and the source fails: its replica does not know about the move (with Valkey 8 it does), owns the
 *     slot, and lacks the keys that have left, so it grants those locks again (docs/redis.md). The driver cannot notice it.
 *   A script at the source needs a key that it has deleted, or that is not there (such as those of shared holders): see "Script
 *     attempted" above. Then a release gives the lock to nobody. A place in the queue can be lost with it; its waiter takes
 *     another one at its next refresh.
 *   A master fails: its connection breaks or is silent (command_timeout), a look is wanted, and every lease is renewed at once
 *     (host->doubt). A claim that the new master has is found; one that it does not have is LOST. While there are leases, the
 *     driver checks its connections even if no op is outstanding (failover.c).
 *   A master is cut off with this client: it answers until cluster-node-timeout, then CLUSTERDOWN. Meanwhile the others have a
 *     new master: two holders are possible, as after each failover without min_replicas (docs/promises.md).
 *   Tokens: the last one moves with its slot. If a failover lost it, the new token is still not below the latest clock of any
 *     node that this client saw (failover.c).
 *   A waiter has a place, and its slot moves: the op leaves its seat, and asks the new node "again".
 *   A waiter without a queue is subscribed at the old node: moving.c subscribes it at the new one, and the confirmation wakes
 *     it. Until the slot has arrived, the new node publishes to nobody, so a client that releases there also publishes the
 *     release at the old one (move_tell).
 *   The inbox: PUBLISH counts only the listeners that are connected to the node itself, so this client has an inbox for each
 *     node at which it waits. But the nodes pass messages on to each other, so a client would hear of a grant that a script
 *     took back because nobody listened *here*. Therefore in a cluster the scripts publish only if somebody listens at this
 *     node (PUBSUB NUMSUB).
 *   An op is canceled while it has no node: nothing was sent since, but it may have a place, or an earlier try may have been
 *   executed. */
#ifndef MORTISE_DRIVERS_REDIS_CLUSTER_H
#define MORTISE_DRIVERS_REDIS_CLUSTER_H

#include "node.h"
#include "oplist.h"

#include "../lib/redis/topology.h"

#define CLUSTER_NODES_MAX 75 /* the pump has no room for connections to more nodes */

enum cluster_state { CLUSTER_ALONE, CLUSTER_FOUND, CLUSTER_ROUTED };

struct cluster {
    mortise_host *host;
    const char *list; /* of servers, as configured */
    enum cluster_state state;
    struct driver *alone;      /* its settings apply to all nodes */
    struct topology *topology; /* ROUTED */
    struct driver *nodes;      /* by next_node */
    unsigned node_count;
    struct driver *node_of[TOPOLOGY_SERVERS]; /* by the index of the map */
    struct seen_clock clock;
    mortise_op *unrouted;
    struct gather *gathers;
    bool moved;          /* the map has changed: moving.c */
    const char *refusal; /* why the settings do not fit a cluster */
};

/* Owns `alone` from now on, whose settings may be filled in later. looks: treat a server that is a node of a cluster as one.
 * sure: it is a cluster. NULL: no memory. */
struct cluster *cluster_open(struct driver *alone, const char *list, bool looks, bool sure);
void cluster_close(struct cluster *cluster);
void cluster_start(struct cluster *cluster, mortise_op **ops, size_t n);
void cluster_cancel(struct cluster *cluster, mortise_op *op);
void cluster_watch(struct cluster *cluster, const char *name, size_t name_len);
void cluster_unwatch(struct cluster *cluster, const char *name, size_t name_len);
size_t cluster_interest(const struct cluster *cluster, struct pollfd *fds, size_t capacity,
                        int64_t *due_ns);
void cluster_turn(struct cluster *cluster, const struct pollfd *ready, size_t n);

/* Gives the op to the node with this index in the map. It is sent when the turn, or the start, ends. */
void cluster_send(struct cluster *cluster, int server, mortise_op *op);

/* Gives the op to the node that has its slot, or makes it wait for the map. */
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
/* The op leaves its seat, if it has one, but may still have a place in the server's queue. */
void move_out(struct driver *node, mortise_op *op);
/* A lock was released at this node behind ASKING: publishes that at the node that still has the slot. */
void move_tell(struct driver *node, const mortise_op *op);
/* Moves ops that are SEATED. all: also those whose slot is at this node. */
void move_seats(struct driver *node, bool all);

/* ---- gather.c ------------------------------------------------------------------------------------------- */

/* Sends a list or a ping to all nodes that have slots. */
void gather_start(struct cluster *cluster, mortise_op *op);
/* The look of this number has ended. */
void gather_looked(struct cluster *cluster, uint64_t number, const struct link_fault *fault);
void gather_cancel(mortise_op *op);

#endif
