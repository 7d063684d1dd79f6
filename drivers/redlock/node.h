/* node.h - the nodes: when the driver connects to them, whether a node can be asked now, and whether its vote counts;
 * and the time in the nodes (clock.c). node.c and clock.c know no claims, ballots or ops. */
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
    PACE_SLOW, /* requests are outstanding, and nothing came for an eighth of node_timeout: a release does without it if it can */
    PACE_LATE  /* the same for node_timeout: nobody waits for this node */
};

struct node {
    struct driver *driver;
    unsigned index;
    struct link_settings settings;
    struct link link, news;
    bool known[SCRIPT_COUNT];      /* scripts that this connection has sent with their text */
    enum node_pace pace;           /* when it was last checked */
    uint64_t news_asked, news_answered; /* pubsub.c: requests on `news`, and replies to them */
    bool fresh;                    /* wanted, and the first attempt to connect has not ended */
    bool twin;                     /* another name of a server that has a vote already */
    char run_id[LINK_RUN_ID_SIZE]; /* of the server process that was seen last */
    int64_t ahead_us;              /* the server's clock less this host's BOOTTIME; 0: unknown */
    int64_t trip_ns;               /* how long an answer takes, smoothed; 0: unknown */
    int64_t alive_ns;              /* when that process last answered */
    int64_t guarded_until_ns;      /* its vote does not count before then */
};

/* What the driver does when a node's connection changes. */
struct node_events {
    void (*up)(struct node *node);
    void (*down)(struct node *node, const struct link_fault *fault);
};

void node_open(struct driver *driver, struct node *node);
/* Ops have arrived: connect to every node. */
void nodes_want(struct driver *driver);
/* The pace at that instant, judged by how long the node has left requests unanswered. */
enum node_pace node_pace_at(const struct node *node, int64_t now_ns);
/* When node->pace must be checked again, if no answer comes before. */
int64_t node_pace_due_ns(const struct node *node);
/* Whether the node can be asked: it is connected, has a vote of its own, and is not late. A node that is connected but late
 * gets only undos, and requests that follow an earlier vote or renewal: a token (acquire.c), a repair (renewal.c). */
bool node_is_usable(const struct node *node, int64_t now_ns);
/* Whether the node can be asked for a new grant: it is usable, and not far behind with its answers. Otherwise the outstanding
 * requests would grow without end. Held claims are renewed and released there nevertheless. */
bool node_takes_votes(const struct node *node, int64_t now_ns);
/* Whether the node's vote counts, because it cannot have forgotten a grant that still holds. */
bool node_counts(const struct node *node, int64_t now_ns);
/* How many nodes can be asked. */
unsigned nodes_usable(const struct driver *driver);
/* How many nodes can be asked for a vote that counts. */
unsigned nodes_voting(const struct driver *driver);
/* How long it takes until the votes of a quorum of usable nodes count; 0: they count now, or there are too few. */
int64_t nodes_vote_in_ms(const struct driver *driver);
/* Whether waiting for more nodes is useless. */
bool nodes_are_ready(const struct driver *driver);
/* The error will not go away: a password, an ACL, a key of another kind. */
static inline bool fault_lasts(const struct link_fault *fault)
{
    return fault->status == MORTISE_BACKEND && !fault->retryable;
}
/* Keeps the last of several faults, but a passing fault does not replace a lasting one. */
static inline void fault_keep(struct link_fault *kept, const struct link_fault *fault)
{
    if (fault_lasts(fault) || !fault_lasts(kept))
        *kept = *fault;
}
/* Adds the nodes that refuse this client for good to the set (a bit each). Returns the error of one of them, or NULL. */
const struct link_fault *nodes_refusal(const struct driver *driver, unsigned *refusing);
/* Whether there is no quorum without the nodes of the set. */
bool nodes_are_needed(const struct driver *driver, unsigned set);
/* Why a needed node is missing; "" if none is. */
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
/* The node's clock, if a token may follow it; the median, if the clock is far ahead of the median. */
uint64_t clock_outvoted(const struct driver *driver, uint64_t clock_us);
/* A token that is probably not behind the clock of any node, except of those far ahead of the median; the floor, if no
 * clock is known. */
uint64_t clock_propose(struct driver *driver, uint64_t floor);

#endif
