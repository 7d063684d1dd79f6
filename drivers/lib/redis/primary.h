/* primary.h - which of several servers is the primary: by what each says of itself, or by what sentinels say. It knows links,
 * but no locks.
 *
 *   primary.c    a look: asks all candidates at once, each on a connection of its own
 *   role.c       servers: ROLE and INFO replication, and which one is believed if two say "master"
 *   sentinel.c   sentinels: the address and its epoch, and the subscription that tells of a switch
 *
 *               a link wants it          first answer             all have answered, or failed, or
 *       idle ───────────────────▶ looking ──────────────▶ looking ───── the time is over ─────▶ found / not found
 *                                    ▲                                                            │
 *                                    └────────── meanwhile told of a switch: once more ───────────┘
 *
 *   A candidate is dead: refused at once. A stopped or cut-off candidate says nothing. The look waits for it only for a part of
 *     connect_timeout after the others' answers. If none answers, the look ends after connect_timeout.
 *   A candidate is a replica, or a sentinel does not know the name: an answer, but no claim.
 *   No candidate claims to be the primary, because it has just died: not found. The link asks again, with its backoff.
 *   Two claim it: an old primary that was cut off, or came back after its successor was made. The successor is known by its
 *     history: its second replication id is the other's first one. Otherwise the one that replicas follow is taken; otherwise
 *     the one that was ever replicated to, if the other never was. If nothing tells them apart, neither is taken, because they
 *     may be unrelated servers. All clients come to the same result, because they judge by what the servers say, not by what
 *     they saw before. This is no guarantee: a client may reach only one of the two. Sentinels are asked for the epoch, and the
 *     highest wins, so a sentinel that was cut off with the old primary is overruled.
 *   The server that was found is a replica by the time it is connected to, or never was a primary (a sentinel's answer may be
 *     late): the link asks ROLE on the very connection that it will use (handshake.c), and seeks again.
 *   It becomes a replica later: READONLY at the next write, or +switch-master, or its connections are closed.
 *   It is cut off, but not from this client, and a successor is made: the subscription at a sentinel reports the successor, if
 *     a sentinel is in reach. Otherwise the client stays with the old one until an answer fails. (With min_replicas, what the
 *     old one grants does not count then.)
 *   The subscription is refused (ACL): logged once. The connection stays open, so that it is not made again and again. A switch
 *     is noticed when a request to the old primary fails.
 *   The subscription breaks, or is not answered in time: it is made again at the next sentinel. When it is in force, all
 *     sentinels are asked once more, because a switch in between would be missed.
 *   The answers of an earlier look come late: each look makes its connections anew.
 *   The resolver hangs for one candidate: that candidate alone fails. */
#ifndef MORTISE_DRIVERS_LIB_REDIS_PRIMARY_H
#define MORTISE_DRIVERS_LIB_REDIS_PRIMARY_H

#include "link.h"

#define PRIMARY_CANDIDATES 16
#define PRIMARY_NAME_MAX 200
#define SENTINEL_PORT "26379"

struct primary;

/* Called in the pump. They may begin the next look. */
struct primary_callbacks {
    void (*found)(void *owner, const struct endpoint *endpoint);
    void (*not_found)(void *owner, const struct link_fault *fault);
    /* The sentinels name a primary other than the one that was found last. */
    void (*moved)(void *owner);
    /* If set, it is called instead of found and not_found when a server is a node of a cluster. */
    void (*clustered)(void *owner);
};

/* Looks among the servers in the list or, if a sentinel_name is given, asks the sentinels in it. `like` says how to connect
 * to them; its texts must live as long as the result. NULL: *problem says why. */
struct primary *primary_open(mortise_host *host, const char *list, const char *sentinel_name,
                             const struct link_settings *like,
                             const struct primary_callbacks *callbacks, void *owner,
                             const char **problem);
/* Begins a look, unless one is under way. */
void primary_look(struct primary *primary);
/* A look is under way, or the subscription is being made. */
bool primary_is_busy(const struct primary *primary);
size_t primary_interest(const struct primary *primary, struct pollfd *fds, size_t capacity,
                        int64_t *due_ns);
void primary_turn(struct primary *primary, const struct pollfd *ready, size_t n);
/* The result of the last look: "; 2 of 3 sentinels know it", and for each other sentinel "; HOST: why". "" if servers are
 * asked. */
const char *primary_sentinels(const struct primary *primary);
size_t primary_sentinel_count(const struct primary *primary); /* that are named */
void primary_close(struct primary *primary);

/* ---- inside ------------------------------------------------------------------------------------------- */

/* What a candidate says. */
struct claim {
    bool made; /* that it is the primary; a sentinel's: that it knows it */
    /* of a server */
    char run_id[LINK_RUN_ID_SIZE], history[LINK_RUN_ID_SIZE], history_before[LINK_RUN_ID_SIZE];
    unsigned replicas;
    uint64_t offset;
    /* of a sentinel */
    struct endpoint at;
    uint64_t epoch;
};

enum scout_state { SCOUT_RESTS, SCOUT_ASKS, SCOUT_TOLD, SCOUT_FAILED };

/* A candidate, and the connection on which it is asked. */
struct scout {
    struct link link;
    struct link_settings settings;
    struct link_call call;
    struct primary *primary;
    enum scout_state state;
    struct claim claim;
    struct link_fault fault; /* why there is no answer */
};

struct primary {
    mortise_host *host;
    const struct primary_callbacks *callbacks;
    void *owner;
    char name[PRIMARY_NAME_MAX + 1]; /* the primary's name at sentinels; "": servers are asked */
    bool looking, again, clustered;
    bool telling;    /* only the subscription asks */
    int64_t ends_ns; /* of this look */
    int64_t patience_ms;
    struct endpoint found; /* last; text "" if never */
    char sentinels[800];   /* what primary_sentinels() says */

    /* sentinel.c: the subscription, at one of them */
    struct link news;
    struct link_settings news_settings;
    size_t news_at;
    size_t refusals; /* Sentinels in a row that do not permit to subscribe */
    bool deaf;       /* none of them permits it; logged once */

    size_t count;
    struct scout scouts[]; /* count of them */
};

/* role.c */
void role_ask(struct scout *scout);
/* A reply to it, by its index. */
void role_take(struct scout *scout, unsigned index, const redisReply *reply);
/* The server that is taken for the primary. NULL: none is; *fault says why. */
const struct scout *role_choose(const struct primary *primary, struct link_fault *fault);

/* sentinel.c */
void sentinel_open(struct primary *primary);
void sentinel_ask(struct scout *scout);
void sentinel_take(struct scout *scout, unsigned index, const redisReply *reply);
const struct scout *sentinel_choose(const struct primary *primary, struct link_fault *fault);
/* The subscription is in force, or has reported a switch: asks all sentinels again. */
void primary_verify(struct primary *primary);
/* Makes the fault "what (a: why; b: why)", with the candidates that did not help. */
void primary_reasons(const struct primary *primary, const char *what, const char *no_claim,
                     struct link_fault *fault);

#endif
