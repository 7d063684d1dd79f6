/* fleet.h - a Redis Cluster for the tests: three masters, 0 to 2, with a replica each: master i has the replica i + 3. Tests read and
 * change each node directly; a fault proxy may be in front of each, and leads clients to the other proxies.
 *
 * A replica takes over only when a test says so. Each test leaves the cluster as it was: fleet_mend(). */
#ifndef MORTISE_TESTS_CLUSTER_FLEET_H
#define MORTISE_TESTS_CLUSTER_FLEET_H

#include <rig.h>

#define MASTERS 3
#define FLEET (2 * MASTERS)
#define REPLICA(master) ((master) + MASTERS)
#define SLOTS 16384
#define ALL_NODES ((1u << FLEET) - 1)

struct fleet {
    struct server group;       /* the processes */
    struct server node[FLEET]; /* connections of the test to each */
    struct test_proxy proxy[FLEET];
    bool proxied;
    unsigned up;                     /* the nodes that run and are not frozen */
    char list[120], proxy_list[120]; /* the addresses of the first masters */
    char id[FLEET][41];
};

/* ---- processes and clients (fleet.c) -------------------------------------------------------------------- */

/* Starts it, with these further KEYs. Returns 0 or the exit code (77: skip). */
int fleet_start(struct fleet *fleet, bool proxied, const char *const *keys);
/* Ends it. False: something was left. All nodes must run. */
bool fleet_end(struct fleet *fleet);
/* kill, stop, start, freeze, thaw, for one node. A started master is one again only if nobody took over meanwhile. */
void fleet_do(struct fleet *fleet, const char *verb, int node);
/* One command to the proxies of the nodes of the set. */
void fleet_say(struct fleet *fleet, unsigned set, const char *command);
/* The masters are 0 to 2 with the slots of the beginning, each has its replica, and all know it. All nodes must run. */
void fleet_mend(struct fleet *fleet);
/* Nothing of clients is left on any node. */
bool fleet_is_clean(struct fleet *fleet);

/* Opens a client with these lines in [mortise] and [redis], directly, or through the proxies. */
mortise_client *fleet_open(struct fleet *fleet, const char *core, const char *redis);
mortise_client *fleet_open_by(struct fleet *fleet, const char *core, const char *redis);
/* Opens with exactly these servers. */
mortise_status fleet_open_list(struct fleet *fleet, const char *list, const char *core,
                               const char *redis, mortise_client **client);
/* How often the node was asked to execute the command, since it was started. */
int64_t fleet_calls(struct fleet *fleet, int node, const char *command);
/* The id of the only connection for messages to the node; -1: there is none, or there are several. */
int64_t fleet_listener(struct fleet *fleet, int node);

/* ---- slots (slots.c) -------------------------------------------------------------------------------------- */

/* Where the lock of a name is. */
unsigned slot_of(struct fleet *fleet, const char *name);
/* Which node serves the slot, as `seen_by` knows it. -1: none. */
int slot_owner(struct fleet *fleet, int seen_by, unsigned slot);
/* Writes a name that begins with `prefix` and whose lock is on the node, as the cluster is now. */
const char *name_on(struct fleet *fleet, int node, const char *prefix, char name[48]);
/* Waits until all nodes that run know that `owner` serves the slot. */
bool wait_owner(struct fleet *fleet, unsigned slot, int owner);

/* Moves a slot in steps: in between clients are led on by ASK. */
struct move {
    struct fleet *fleet;
    unsigned slot;
    int from, to;
};
void move_begin(struct move *move, struct fleet *fleet, unsigned slot, int to);
/* Moves one key: false if it is not there. */
bool move_key(struct move *move, const char *key);
/* Moves all keys that are there now. */
void move_keys(struct move *move);
/* What is left of the keys, and then the slot itself. */
void move_end(struct move *move);
/* The slot stays where it is; the keys that had come to the new node are deleted there. */
void move_abandon(struct move *move);
/* All of these steps. */
void move_slot(struct fleet *fleet, unsigned slot, int to);
/* How often the node has answered with this error ("TRYAGAIN"). */
int64_t refusals(struct fleet *fleet, int node, const char *error);

/* Nobody serves the slot any more, so that the cluster is down; or that node does again. */
void slot_remove(struct fleet *fleet, unsigned slot);
void slot_give(struct fleet *fleet, unsigned slot, int node);
/* All slots that the master had in the beginning, without their keys. No key of them may be in use. */
void range_give(struct fleet *fleet, int master, int to);

/* ---- failover (slots.c) ------------------------------------------------------------------------------------ */

/* What the node takes itself for. */
bool is_master(struct fleet *fleet, int node);

/* The replica takes over at once (TAKEOVER), whether its master lives or not; waits until all that run know it. */
void fleet_promote(struct fleet *fleet, int replica);
/* Waits until the replicas of the node, as many as run, have all that was written to it so far. */
bool wait_replicated(struct fleet *fleet, int master, int replicas);
/* The replica of the master hears nothing new from now on; or it does again. */
void fleet_strand(struct fleet *fleet, int replica, bool stranded);

/* The node and the others cannot hear each other; clients reach all of them. All must run. Needs bus=cut. */
void fleet_isolate(struct fleet *fleet, int node, bool isolated);
/* Waits until the others of those that run have voted for the replica of this master. */
bool wait_elected(struct fleet *fleet, int master);

#endif
