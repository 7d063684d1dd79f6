/* primary.h - which of several servers is the primary: by what each says of itself, or by what sentinels say.
 * Knows links, and nothing of locks.
 *
 *   primary.c    a look: all candidates asked at once, each on a connection of its own, and what comes of it
 *   role.c       servers: ROLE and INFO replication, and who is believed where two say "master"
 *   sentinel.c   sentinels: the address and its epoch, and the subscription that tells of a switch
 *
 *               wanted by a link            first answer             all have answered, or failed, or
 *       idle ───────────────────▶ looking ──────────────▶ looking ───── the time is over ─────▶ found / not found
 *                                    ▲                                                            │
 *                                    └────────── a switch was told of meanwhile: once more ───────┘
 *
 *   A candidate is dead: refused at once. It is stopped, or cut off: it says nothing, and nobody waits for it
 *     longer than a part of connect_timeout behind the others' answers. None answers: connect_timeout.
 *   A candidate is a replica, or a sentinel does not know the name: an answer, but no claim.
 *   Nobody claims to be the primary (it has just died): not found; whoever wants it asks again, with the pauses
 *     of a link, and looks on until one does.
 *   Two claim it: an old primary that was cut off, or came back after its successor was made. The successor is
 *     known by its history (its second replication id is the other's first); else the one that replicas
 *     follow; else the one that was ever replicated to, where the other never was. Where none of that tells
 *     them apart neither is taken: they may be servers that have nothing to do with each other. Each
 *     client comes to the same end by what the servers say, not by what it saw before. It is no
 *     promise: of two, only one may be in sight. Sentinels are asked for the epoch of what they say: the
 *     highest wins, so that one sentinel that was cut off with the old primary is overruled.
 *   What was found is a replica by the time it is connected to, or never was a primary (a sentinel's late word):
 *     the link asks ROLE on the very connection that it will use (handshake.c), and seeks again.
 *   It becomes a replica later: READONLY at the next write, or +switch-master, or its connections are closed.
 *   It is cut off, but not from this client, and a successor is made: the subscription at a sentinel tells of
 *     it, where that is reached. Without sentinels, or where none is reached: the client stays with the old one,
 *     until one of its answers fails. (min_replicas: what that one grants does not count then.)
 *   The subscription is refused (ACL): said once in the log. The connection stays, so that it is not made again and
 *     again, and a switch is noticed when an answer of the old primary fails.
 *   The subscription breaks: it is made anew at the next sentinel, and whoever holds it asks all once more when it
 *     stands, for a switch in between would be missed.
 *   The answers of an earlier look come late: each look makes its connections anew.
 *   The resolver hangs for one candidate: that candidate alone fails. */
#ifndef MORTISE_DRIVERS_LIB_REDIS_PRIMARY_H
#define MORTISE_DRIVERS_LIB_REDIS_PRIMARY_H

#include "link.h"

#define PRIMARY_CANDIDATES 16
#define PRIMARY_NAME_MAX 200
#define SENTINEL_PORT "26379"

struct primary;

/* What they are told in the pump; they may begin the next look. */
struct primary_callbacks {
    void (*found)(void *owner, const struct endpoint *endpoint);
    void (*not_found)(void *owner, const struct link_fault *fault);
    /* Sentinels: it is another than the one that was found last. */
    void (*moved)(void *owner);
};

/* Of the servers in a list, or, where a sentinel_name is given, by the sentinels in it. `like` is how servers
 * (or sentinels) are connected to; its texts must stay. NULL: *problem says why. */
struct primary *primary_open(mortise_host *host, const char *list, const char *sentinel_name,
                             const struct link_settings *like,
                             const struct primary_callbacks *callbacks, void *owner,
                             const char **problem);
/* Begins a look, unless there is one. */
void primary_look(struct primary *primary);
/* It has connections to make, or answers to come. */
bool primary_is_busy(const struct primary *primary);
size_t primary_interest(const struct primary *primary, struct pollfd *fds, size_t capacity,
                        int64_t *due_ns);
void primary_turn(struct primary *primary, const struct pollfd *ready, size_t n);
/* "; 2 of 3 sentinels know it", by the last look, and for each that does not "; HOST: why". "" if servers are
 * asked. */
const char *primary_sentinels(const struct primary *primary);
void primary_close(struct primary *primary);

/* ---- inside ------------------------------------------------------------------------------------------- */

/* What a candidate says. */
struct claim {
    bool made; /* to be the primary; or to know it */
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
    char name[PRIMARY_NAME_MAX + 1]; /* that the sentinels know it by; "": servers are asked */
    bool looking, again;
    bool telling;    /* the subscription asks, nobody else */
    int64_t ends_ns; /* of this look */
    int64_t patience_ms;
    struct endpoint found; /* last; text "" if never */
    char sentinels[800];   /* what primary_sentinels() says */

    /* sentinel.c: the subscription, at one of them */
    struct link news;
    struct link_settings news_settings;
    size_t news_at;
    size_t refusals; /* Sentinels in a row that do not permit to subscribe */
    bool deaf;       /* all of them; said once */

    size_t count;
    struct scout scouts[]; /* count of them */
};

/* role.c */
void role_ask(struct scout *scout);
/* A reply to it, by its index. */
void role_take(struct scout *scout, unsigned index, const redisReply *reply);
/* Who is believed; NULL: nobody, *fault says why. */
const struct scout *role_choose(const struct primary *primary, struct link_fault *fault);

/* sentinel.c */
void sentinel_open(struct primary *primary);
void sentinel_ask(struct scout *scout);
void sentinel_take(struct scout *scout, unsigned index, const redisReply *reply);
const struct scout *sentinel_choose(const struct primary *primary, struct link_fault *fault);
/* The subscription was made, or a switch was told of: all are asked again. */
void primary_verify(struct primary *primary);
/* "a: why; b: why", of those that did not help. */
void primary_reasons(const struct primary *primary, const char *what, const char *no_claim,
                     struct link_fault *fault);

#endif
