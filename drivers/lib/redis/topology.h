/* topology.h - which server of a Redis Cluster has which slot: the slot map, and how it is read. It does not know locks.
 *
 * The map is read with CLUSTER SLOTS from any node of the cluster, on a connection of its own (a *scout*), which is closed
 * again. A MOVED reply changes one slot of the map at once, without a look.
 *
 *   state    event                                          what follows                                 next
 *   RESTS    wanted; the pause since the last look is over  the first scout asks                         LOOKS
 *   RESTS    wanted earlier                                 nothing                                      PAUSES
 *   PAUSES   the pause is over                              the first scout asks                         LOOKS
 *   LOOKS    wanted                                         one more look follows this one               LOOKS
 *   any      somebody waits for a look                      no pause comes before it                     LOOKS, or after this one
 *   LOOKS    no answer for HEDGE_MS, or a scout failed      the next scout asks another server           LOOKS
 *   LOOKS    an answer                                      it is the map; `changed`, `looked`           RESTS, or PAUSES
 *   LOOKS    every known server failed, or time is over     `looked` with the fault                      RESTS, or PAUSES
 *
 *   Many requests are redirected at once: there is one look at a time. A pause follows each look: PAUSE_MIN_MS, and twice as
 *     long, up to PAUSE_MAX_MS, after each look that failed or changed nothing.
 *   A server is frozen or cut off: the next one is asked after HEDGE_MS. At most TOPOLOGY_SCOUTS ask at the same time.
 *   The resolver hangs: a scout that waits for it asks nobody. While TOPOLOGY_SCOUTS - 1 look-ups are under way, also those of
 *     earlier looks, candidates with numeric addresses are asked first: a scout is left for them.
 *   A server that is cut off from the others has an old map: the cluster's epoch that it reports (CLUSTER INFO) is below the
 *     one that this client has seen. Then the next server is asked. If all servers report such an epoch, the cluster was made
 *     anew: the look fails, and the next one believes them. If the user may not ask for the epoch, requests go by the old map
 *     to a server that answers MOVED or CLUSTERDOWN, and the map is read again, from the next server in turn.
 *   The answer is older than a MOVED that came during the look: the request is redirected once more, and one more look follows.
 *   All servers of the map are gone: the servers of the configuration are asked too.
 *   Servers come and go with new addresses, for years: see topology_index().
 *   A slot has no owner: requests for it fail, and the map is read again.
 *   The server does not say its own address (""): it is the address at which it was asked. */
#ifndef MORTISE_DRIVERS_LIB_REDIS_TOPOLOGY_H
#define MORTISE_DRIVERS_LIB_REDIS_TOPOLOGY_H

#include "keys.h"

#define TOPOLOGY_SCOUTS 3
#define TOPOLOGY_SERVERS 256
#define TOPOLOGY_CANDIDATES 64

struct topology_callbacks {
    /* At least one slot has a new owner. */
    void (*changed)(void *owner);
    /* A look has ended. fault: NULL, or why no server has given the map; then no server is asked until the map is wanted
     * again. */
    void (*looked)(void *owner, const struct link_fault *fault);
};

struct topology_server {
    struct endpoint at;
    unsigned slots; /* that it has; 0: the map does not show it as a master */
    bool kept;      /* the owner still uses it: its index stays */
    uint64_t named; /* in this look */
};

enum topology_state { TOPOLOGY_RESTS, TOPOLOGY_PAUSES, TOPOLOGY_LOOKS };

struct map_scout {
    struct link link;
    struct link_settings settings;
    struct link_call call;
    struct topology *topology;
    bool asks;
    uint64_t epoch; /* that this server reports; 0: none */
};

struct topology {
    mortise_host *host;
    const struct topology_callbacks *callbacks;
    void *owner;
    enum topology_state state;
    bool known, again;  /* again: wanted during a look */
    bool portless;      /* the map has masters without a port for this kind of connection */
    uint64_t begun;     /* looks so far, with the one under way */
    uint64_t epoch;     /* the highest one; 0: none was told */
    uint64_t changes;   /* of slots' owners so far */
    uint64_t hurry_for; /* the number of a look for which somebody waits */
    int64_t due_ns;     /* PAUSES: when the look begins; LOOKS: when it fails */
    int64_t hedge_ns;   /* LOOKS: when the next scout asks */
    int64_t rests_until_ns, pause_ms, patience_ms;
    struct link_fault fault; /* LOOKS: why the last scout failed */
    struct map_scout scouts[TOPOLOGY_SCOUTS];
    size_t seed_count, candidate_count, next, asked;
    bool was_asked[TOPOLOGY_CANDIDATES]; /* in this look */
    struct endpoint seeds[16];
    struct endpoint candidates[TOPOLOGY_CANDIDATES]; /* masters, replicas, seeds */
    uint16_t server_count;
    uint16_t slot[KEY_SLOTS]; /* index of `servers`, or TOPOLOGY_SERVERS */
    struct topology_server servers[TOPOLOGY_SERVERS];
};

/* `list`: servers to begin with. Asks no server yet. NULL: *problem says why. */
struct topology *topology_open(mortise_host *host, const char *list,
                               const struct link_settings *like,
                               const struct topology_callbacks *callbacks, void *owner,
                               const char **problem);
void topology_close(struct topology *topology);

/* The map may be old: reads it as soon as the pause permits. */
void topology_want(struct topology *topology);
/* Reads the map at once. Returns the number of a look that begins after this call. That look has ended when `looked` is
 * called while `begun` is at least that number. */
uint64_t topology_read(struct topology *topology);
/* The index of the slot's owner; -1: nobody has the slot. */
int topology_owner(const struct topology *topology, unsigned slot);
/* The index of a server. Adds a new server; if there is no room, it replaces one that has no slots and is not kept. -1:
 * there are too many. */
int topology_index(struct topology *topology, const struct endpoint *at);
/* Whether the reply is an answer to CLUSTER SLOTS: ranges of {first slot, last slot, master, replica …}. */
bool topology_is_map(const redisReply *reply);
/* Reads a server of a range, {host, port, …}, from the answer of the server at `from`. False: it has no address. */
bool topology_read_server(const redisReply *reply, const struct endpoint *from,
                          struct endpoint *at);
/* The server has port 0: it has no port for this kind of connection, with or without TLS. */
bool topology_is_portless(const redisReply *server);
/* Reads "MOVED 3999 127.0.0.1:6381", or ASK, from the answer of the server at `from`. False: it makes no sense. */
bool topology_read_redirect(const redisReply *reply, const struct endpoint *from, unsigned *slot,
                            struct endpoint *to);
/* Notes that the slot is at this server. */
void topology_moved(struct topology *topology, unsigned slot, int server);

size_t topology_interest(const struct topology *topology, struct pollfd *fds, size_t capacity,
                         int64_t *due_ns);
void topology_turn(struct topology *topology, const struct pollfd *ready, size_t n);

#endif
