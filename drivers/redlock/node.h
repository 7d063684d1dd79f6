/* node.h - the nodes: when they are connected to, whether one can be asked now, and whether its vote counts; and what
 * time it is there (clock.c). node.c and clock.c know no claims, ballots or ops. */
#ifndef MORTISE_DRIVERS_REDLOCK_NODE_H
#define MORTISE_DRIVERS_REDLOCK_NODE_H

#include "../lib/redis/script.h"
#include "scripts.h"

#define NODES_MAX 15
#define NS_PER_MS INT64_C(1000000)

struct driver;

/* How quickly a node answers. */
enum node_pace {
    PACE_PROMPT,
    PACE_SLOW, /* an answer is outstanding, and for an eighth of node_timeout none came: a release does without it if it can */
    PACE_LATE  /* for node_timeout: nobody waits for it */
};

struct node {
    struct driver *driver;
    unsigned index;
    struct link_settings settings;
    struct link link, news;
    bool known[SCRIPT_COUNT];      /* scripts that this connection has sent with their text */
    enum node_pace pace;           /* when it was last looked at */
    uint64_t news_asked, news_answered; /* pubsub.c: requests on `news`, and replies to them */
    bool fresh;                    /* wanted, and the first attempt to connect has not ended */
    bool twin;                     /* another name of a server that has a vote already */
    char run_id[LINK_RUN_ID_SIZE]; /* of the server process that was seen last */
    int64_t ahead_us;              /* the server's clock less this host's BOOTTIME; 0: unknown */
    int64_t trip_ns;               /* how long an answer takes, smoothed; 0: unknown */
    int64_t alive_ns;              /* when that process last answered */
    int64_t guarded_until_ns;      /* its vote does not count before */
};

/* What the driver does when a node's connection changes. */
struct node_events {
    void (*up)(struct node *node);
    void (*down)(struct node *node, const struct link_fault *fault);
};

void node_open(struct driver *driver, struct node *node);
/* Ops have arrived: connect to every node. */
void nodes_want(struct driver *driver);
/* By how long it has answered nothing at that instant, though it was asked. */
enum node_pace node_pace_at(const struct node *node, int64_t now_ns);
/* When node->pace is to be looked at again, if no answer comes before. */
int64_t node_pace_due_ns(const struct node *node);
/* It can be asked: connected, with a vote of its own, and not late. A node that is connected but late gets undos, and what follows
 * a vote or a renewal that it was sent before: a token (acquire.c), a repair (renewal.c). */
bool node_is_usable(const struct node *node, int64_t now_ns);
/* The same, and for a new grant: not far behind with its answers, either. Else what is outstanding there would grow for ever. What
 * is held is renewed and released there all the same. */
bool node_takes_votes(const struct node *node, int64_t now_ns);
/* Its vote counts: it cannot have forgotten a grant that still holds. */
bool node_counts(const struct node *node, int64_t now_ns);
/* How many can be asked. */
unsigned nodes_usable(const struct driver *driver);
/* How many can be asked for a vote that counts. */
unsigned nodes_voting(const struct driver *driver);
/* When the votes of a quorum of usable nodes count; 0: they do, or there are too few. */
int64_t nodes_vote_in_ms(const struct driver *driver);
/* Nothing is gained by waiting for more nodes. */
bool nodes_are_ready(const struct driver *driver);
/* The error will not go away: a password, an ACL, a key of another kind. */
static inline bool fault_lasts(const struct link_fault *fault)
{
    return fault->status == MORTISE_BACKEND && !fault->retryable;
}
/* Of several faults the last one is kept, but none that passes in place of one that lasts. */
static inline void fault_keep(struct link_fault *kept, const struct link_fault *fault)
{
    if (fault_lasts(fault) || !fault_lasts(kept))
        *kept = *fault;
}
/* Adds the nodes that do not let this client in, for good, to the set (a bit each). Returns the error of one of them, or NULL. */
const struct link_fault *nodes_refusal(const struct driver *driver, unsigned *refusing);
/* Without the nodes of the set there is no quorum. */
bool nodes_are_needed(const struct driver *driver, unsigned set);
/* Why a node that is needed is missing; "" if none is. */
const char *nodes_problem(const struct driver *driver);
size_t nodes_interest(const struct driver *driver, struct pollfd *fds, size_t capacity,
                      int64_t *due_ns);

/* Sorts a few numbers, the smallest first. */
void sort_numbers(int64_t *numbers, unsigned count);

/* ---- clock.c ---------------------------------------------------------------------------------------- */

/* A node's clock says now_us in the answer to a request that was sent at sent_ns. */
void clock_note(struct node *node, int64_t sent_ns, int64_t now_us);
/* How long the answers of a quorum take. */
int64_t clock_trip_ns(const struct driver *driver);
/* The same within bounds: pubsub.c and courtesy.c measure by it. */
int64_t clock_quorum_trip_ns(const struct driver *driver);
/* This host's wall clock, for people to read. */
uint64_t clock_wall_us(void);
/* What a node's clock said just now, if a token may follow it; the median, if it is far ahead of that. */
uint64_t clock_outvoted(const struct driver *driver, uint64_t clock_us);
/* A token that is probably not behind the clock of any node, except of those far ahead of the median; the floor, if no
 * clock is known. */
uint64_t clock_propose(struct driver *driver, uint64_t floor);

#endif
