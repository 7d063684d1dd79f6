/* claim.h - the life of one grant id: what each node may have of it, from the first request for a vote until no node
 * can have anything of it. claim.c sends nothing; undo.c sends what has to be undone.
 *
 * A claim has one state:
 *
 *   WANTED    votes are asked for, or the grant is held: renewed, and repaired
 *   ENDING    nobody wants it: undo.c takes it off every node that may have something of it
 *   FOREIGN   another client's grant, or only a name: in no table, and no votes are asked for it
 *
 *   event                                      WANTED                        ENDING
 *   an acquire asks (again): claim_begin       a new round                   WANTED, a new round
 *   released, failed, lost: claim_end          ENDING, for max_ttl           stays
 *   the last reference goes, every node has    freed                         freed
 *     TRACE_NONE, and no undo is adrift
 *   the ttl of the votes has passed, and no    freed; ENDING while a node    -
 *     op refers to it (within half a minute)   out of reach may have more
 *   max_ttl has passed                         -                             freed; stays while a node out of reach may
 *                                                                            have more, or an answer is outstanding
 *
 * A *round* is one try to get votes. Answers to requests of an earlier round say nothing about the votes of this one,
 * because an undo that was on its way is executed before the new votes, which are behind it on the same connection. A
 * connection that breaks in between is the event "lost".
 *
 * What one node may have of the claim (its trace), and what changes that:
 *
 *   TRACE_NONE       nothing is there, and nothing can come
 *   TRACE_POSSIBLE   a vote was asked for: it may be there
 *   TRACE_THERE      the node said last that it has the vote
 *   TRACE_ADRIFT     a request for a vote was lost with its connection: the server may still execute it, at any time
 *
 *   event         NONE       POSSIBLE   THERE      ADRIFT
 *   ASKED         POSSIBLE   POSSIBLE   THERE      ADRIFT     before a vote or a repair is sent
 *   HAS           NONE       THERE      THERE      ADRIFT     an answer of this round: the vote is there
 *   HAS_NOT       NONE       POSSIBLE   POSSIBLE   ADRIFT     ... it is not there. What was sent since may bring it.
 *                                                             Also a new round: what was there may have been undone
 *   UNDONE        NONE       NONE       NONE       ADRIFT     an undo of this round was answered; ADRIFT: undo again
 *   LOST          ADRIFT     ADRIFT     ADRIFT     ADRIFT     a request for a vote was lost, in whatever round
 *   UNDO_LOST     (no change)                                 an undo was lost: sets undo_adrift
 *   SETTLED       NONE       POSSIBLE   THERE      POSSIBLE   nothing of older connections can be executed any more;
 *                                                             clears undo_adrift
 *   EXPIRED       NONE       NONE       NONE       NONE       the votes have expired, and no lost request can still be
 *                                                             executed; clears undo_adrift
 *
 * While undo_adrift is set for a node, that server may still execute an undo of this grant, which would delete a vote
 * that the same grant gets meanwhile. So the grant asks for no vote there, and counts no renewal there. If too few
 * nodes are left for a quorum, the acquire ends, and the core takes another grant id.
 *
 * A lost request is usually settled as soon as the node is back: the link ends the old connection in the server before
 * anything is asked on the new one. If the user has no right to do that (CLIENT KILL), undos are repeated until max_ttl
 * has passed. A node out of reach keeps the claim alive: the lost request may lie unread in its sockets for longer than
 * any ttl. */
#ifndef MORTISE_DRIVERS_REDLOCK_CLAIM_H
#define MORTISE_DRIVERS_REDLOCK_CLAIM_H

#include "node.h"

#include <string.h>

#define HASH_NONFATAL_OOM 1 /* an element that could not be added has hh.tbl == NULL */
#include <uthash.h>
#include <utlist.h>

enum claim_state { CLAIM_WANTED, CLAIM_ENDING, CLAIM_FOREIGN };

enum trace_state { TRACE_NONE, TRACE_POSSIBLE, TRACE_THERE, TRACE_ADRIFT, TRACE_STATES };

enum trace_event {
    TRACE_ASKED,
    TRACE_HAS,
    TRACE_HAS_NOT,
    TRACE_UNDONE,
    TRACE_LOST,
    TRACE_UNDO_LOST,
    TRACE_SETTLED,
    TRACE_EXPIRED,
    TRACE_EVENTS
};

struct trace {
    unsigned char state; /* enum trace_state */
    bool undo_adrift;
    bool again; /* undo.c sends an undo in its next tick */
};

struct claim {
    UT_hash_handle hh;
    mortise_grant_id grant;
    struct claim *next, *previous; /* in the list of ENDING claims */
    enum claim_state state;
    unsigned references; /* of attempts, ballots and callers */
    unsigned round;
    bool announced; /* ENDING: its undo is published if the lock has a mark: waiters wake */
    char mark;      /* the mark that its votes bring along: pubsub.c; ' ': none */
    bool shared;    /* its votes are shared, or may be: a downgrade was sent */
    bool unsettled; /* a downgrade was sent, and has not won yet */
    uint64_t token; /* WANTED: the grant's token; 0: none yet, or no fencing */
    int64_t
        until_ns; /* WANTED: all votes have expired by then; ENDING: also those that arrive late */
    struct trace traces[NODES_MAX];
    size_t name_len;
    char name[];
};

/* Finds or makes the claim of the op's grant, with a reference for the caller. NULL: no memory. */
struct claim *claim_take(struct driver *driver, const mortise_op *op);
/* NULL: no node can have anything of this grant. */
struct claim *claim_find(const struct driver *driver, const mortise_grant_id *grant);
/* Makes a FOREIGN claim with a reference for the caller. NULL: no memory. */
struct claim *claim_new_foreign(const struct mortise_op *op);
struct claim *claim_ref(struct claim *claim);
void claim_unref(struct driver *driver, struct claim *claim);

/* An acquire asks for votes (again): WANTED, a new round. */
void claim_begin(struct driver *driver, struct claim *claim);
/* Notes until when the claim's votes live if no renewal extends them. */
void claim_lasts(struct claim *claim, int64_t from_ns, int64_t ttl_ms);
/* Nobody wants the claim any more: ENDING. `announced`: its end may let a waiter in, so waiters hear of it. */
void claim_end(struct driver *driver, struct claim *claim, bool announced);

/* Only this function changes a trace. HAS, HAS_NOT and UNDONE count only in the round whose request was answered. */
void claim_note(struct claim *claim, unsigned node, enum trace_event event);
/* undo.c's next tick must send an undo to that node (again). */
void claim_undo_later(struct driver *driver, struct claim *claim, unsigned node);
/* How many nodes may have something of the claim. */
unsigned claim_traces(const struct driver *driver, const struct claim *claim);
static inline bool claim_has_trace(const struct claim *claim, unsigned node)
{
    return claim->traces[node].state != TRACE_NONE;
}
/* Whether the claim must ask for no vote there, and no renewal there counts: see undo_adrift. */
static inline bool claim_is_barred(const struct claim *claim, unsigned node)
{
    return claim->traces[node].undo_adrift;
}

/* A node is back, and can execute nothing of older connections any more. */
void claims_settle(struct driver *driver, unsigned node);
/* Ends or frees claims whose time is over. */
void claims_expire(struct driver *driver, int64_t now_ns);
int64_t claims_due_ns(const struct driver *driver);
void claims_free(struct driver *driver);

#endif
