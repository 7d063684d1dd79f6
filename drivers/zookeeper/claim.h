/* claim.h - a claim: one acquisition of one name, from its first request until the servers can have nothing of it.
 *
 * In the servers a claim is one ephemeral sequential node in the folder of its name. Here it is in one of these states:
 *
 *   IDLE         wanted; no node in this session; nothing on its way
 *   LOOKING      a try; reads the folder before it makes a node
 *   MAKING       create and list are on their way, in one flight
 *   UNCERTAIN    a create may have been executed, but its reply is lost; searches the folder, behind a barrier
 *   QUEUED       has a node; reads the folder
 *   MEETING      a try that is not first; reads which contender is
 *   WAITING      another node blocks it, and is being watched
 *   FIRST        no node blocks it; the base of the tokens is being read or raised
 *   READY        has a token; waits until the session is proven for long enough
 *   HELD         granted
 *   GONE         was HELD; its node, that in its gate, or its session has ended: the lease is LOST
 *   UNWANTED     nobody wants it; the create is on its way, and its answer will name the node to delete
 *   SEARCHING    nobody wants it; as UNCERTAIN
 *   DELETING     nobody wants it; deletes its node
 *   REDELETING   as DELETING, but an earlier delete may have been executed: "no node" is a success
 *   REFUSED      the servers refuse the delete; tries again from time to time
 *   ENDED        off all lists; is freed when its last request is answered
 *
 * The table says what happens in each state. "again" is the session's next connection, the claim's turn in the backlog, or a
 * retry. "unwanted" is a cancel, a release, a failure, a ttl that passed, or a caller that gave up.
 *
 *   state       answer                                again         unwanted     session ended  session abandoned
 *   IDLE        gate open j: MAKING                   MAKING a j    ENDED b      IDLE           IDLE b
 *   LOOKING     nobody: MAKING; somebody: MEETING c   LOOKING       ENDED b      IDLE           IDLE
 *   MAKING      made: QUEUED; refused: unwanted d;    UNCERTAIN     UNWANTED     IDLE           UNCERTAIN
 *               lost: UNCERTAIN
 *   UNCERTAIN   found: QUEUED; not found: MAKING;     UNCERTAIN     SEARCHING    IDLE f         UNCERTAIN
 *               found, of an earlier session: IDLE b
 *   QUEUED      first: FIRST k; blocked: WAITING, a   QUEUED        DELETING     IDLE           IDLE b
 *               try: MEETING; no node: MAKING
 *   MEETING     who it is: unwanted (BUSY, or         QUEUED e      DELETING e   IDLE           IDLE b
 *               INVALID g); open h: QUEUED e
 *   WAITING     blocker gone, younger or open h:      QUEUED        DELETING     IDLE           IDLE b
 *               QUEUED
 *   FIRST       base high enough: READY               QUEUED        DELETING     IDLE           IDLE b
 *   READY       proven, and gate left l: HELD         QUEUED        DELETING     IDLE           IDLE b
 *   HELD        no node: GONE; made shared i          HELD          DELETING     GONE           REDELETING
 *   GONE        -                                     GONE          ENDED LOST m GONE           GONE
 *   UNWANTED    made: DELETING; refused: ENDED;       UNWANTED      UNWANTED     ENDED          SEARCHING
 *               lost: SEARCHING
 *   SEARCHING   found: DELETING, of an earlier        SEARCHING     SEARCHING    ENDED f        SEARCHING
 *               session: REDELETING; not found: ENDED;
 *               no list: SEARCHING after a pause
 *   DELETING    done: ENDED; no node: ENDED LOST;     DELETING      DELETING     ENDED f        REDELETING
 *               no right: REFUSED; lost: REDELETING
 *   REDELETING  done, no node: ENDED; no right:       REDELETING    REDELETING   ENDED f        REDELETING
 *               REFUSED
 *   REFUSED     done, no node: ENDED                  REFUSED       REFUSED      ENDED f        REFUSED
 *
 *   a: LOOKING for a try that never had a node. b: a node that an abandoned session left behind, if it is known, is deleted
 *   with the next create, or by REDELETING. c: looks a second time, behind a barrier, before it believes that somebody is
 *   there. d: if there is no folder, makes the folder, then MAKING. e: if it has a node; otherwise LOOKING and ENDED. f: but if
 *   the node, or the create, belongs to an earlier session that was abandoned: as "session abandoned". g: the first contender
 *   is shared with another number of permits; before the acquire fails, the claim looks once more, behind a barrier, and one
 *   that may wait is WAITING for that contender for half a second. h: the claim is shared, and the blocker is exclusive only by
 *   its name. i: a renewal with MORTISE_OP_DOWNGRADE writes the node's note again, and is answered when the write is. If the
 *   write is lost: INDETERMINATE, and the repeat writes the same.
 *
 * A SEMAPHORE has a gate (names.h). For the gate, each claim has a second claim, which is called its *gate*, and has the same
 * table and no op:
 *   j: IDLE until the gate is HELD; a claim without one makes one. k: a gate is HELD at once, without a token.
 *   l: a shared claim drops its gate as soon as it is READY, and is granted when the gate has ENDED, so that a try that comes
 *   after the grant does not meet it. An exclusive one keeps its gate while it is HELD.
 *   m: a renewal, which says LOST, counts as unwanted, too. If only the node in the gate is gone, the claim becomes
 *   REDELETING: until then its own node stays, because the holder did not know. Then the release is answered LOST, too.
 *   If the gate fails, the claim fails. If the claim is unwanted or GONE, its gate is unwanted. If somebody deletes the node
 *   of a HELD gate, an exclusive claim that is HELD is GONE, because others may come; a claim that waits fails (BACKEND). If
 *   the session ends or is abandoned, the gate is unwanted, and the claim, if it is still wanted, goes through a new one. If
 *   the gate cannot be deleted, the claim fails, because nobody else would get through the gate. A downgrade leaves the gate
 *   as soon as the node says that it is shared.
 *
 * Why the holes are closed:
 *   - A create's reply is lost. The search comes after a reconnection and behind a barrier. Otherwise a lagging server might
 *     not show the node; then a second node would be made, and would wait for the first. No old create can be executed after
 *     the search: the leader refuses requests of a session that has moved, and one server keeps the order. (A create of an
 *     abandoned session may be executed; such a node ends with its session.) A node that is found belongs to this very session:
 *     its name says to which session of this client it belongs, and its owner is compared.
 *   - The predecessor vanishes before it is watched. The claim reads the folder again and keeps its place. A `get` sets the
 *     watch, because the watch of an `exists` on a missing node would stay in the server for ever.
 *   - Somebody deletes the own node. A waiting claim sees it when it next reads the folder. A held claim watches its node from
 *     a tenth of a second after the grant on, and then makes the core check (host->doubt).
 *   - The numbers end at 2^31, and a server gives one number twice, or a negative one. The node with the smaller czxid is
 *     first. The answer to the `get` of the predecessor has its czxid; if that is larger than the claim's own, the claim passes
 *     the node.
 *   - The caller gives up without a connection. The claim stays until a server has said that the node is gone, or that the
 *     session has ended.
 *   - The core asks again after INDETERMINATE: the claim is still here, and serves the new op. If it is HELD, that op waits
 *     until enough is proven; if the claim ceases to be HELD before that, the op is BUSY. If the claim is GONE, the op is BUSY,
 *     too, and the claim ends. If the claim is being deleted, the op is INDETERMINATE.
 *   - The holder is stopped past its deadline. The lease was LOST then. When the process runs again, the core releases the claim.
 *     If the ttl has passed too, the driver notices it and deletes the node. If it is stopped for longer than the session's
 *     timeout, the servers end the session.
 *   - The servers refuse the delete (an ACL may permit making nodes, but not deleting them). The release reports it. When the
 *     client has nothing else, it abandons the session, and the node ends with the session.
 *   - No memory for a request: the op fails, and what was sent is undone later.
 *   - Two shared claims with an exclusive one between them. The second one waits for the exclusive one, although it could hold
 *     beside the first, because nobody overtakes. If the exclusive one gives up or its session expires, its node is gone, and
 *     the second one is notified. The exclusive one waits for the nearest node before it and then reads the folder again, so it
 *     does not matter in which order the shared ones end.
 *   - The exclusive holder becomes shared while others wait. Its node, its place and its token stay, so an exclusive claim
 *     behind it goes on waiting. Shared claims wait for the last exclusive node before them. If that is the holder's, the
 *     change of its data wakes them. If it is another one, they read the holder's data when that other node is gone. A holder
 *     never becomes exclusive again, so what was read once stays true.
 *   - Several permits come back at once, or not those of the first nodes: see queue.h.
 *   - Two numbers of permits on one name. A claim holds beside another one only if their numbers are the same. If all the first
 *     ones end, a claim with another number may come to the front. Then claims with the old number wait for it, or fail
 *     (INVALID) at their next look.
 *   - A caller that was refused for its permits still has a node until the node is deleted, and that node may be the first. So
 *     others with the right number wait for half a second before they fail. If that caller dies at that moment, or has no
 *     connection, its node blocks them as a holder's node does: they fail until its session has ended, or its node could be
 *     deleted.
 *
 * Tests. unit.zookeeper_states runs an acquire and its release on a simulated ensemble, and injects one or two faults after
 * each request: the connection is lost while some requests are executed, the session ends or is abandoned, the caller gives up.
 * unit.zookeeper_gate lets things happen to a gate, unit.zookeeper_tokens to claims that need a larger base. On real servers
 * (tests/zookeeper): "canceled in each state", "replies lost", "cut at every byte", "given up without a reply", "lost between
 * create and list", "looks behind a write", "a vanished predecessor", "a waiter's node is deleted", "floors", "many floors at
 * once", "suspect, and back", "asked again too late", "two owners", "asked in two sessions", "may not delete", and
 * shared_tests.c. */
#ifndef MORTISE_ZOOKEEPER_CLAIM_H
#define MORTISE_ZOOKEEPER_CLAIM_H

#include "session.h"

enum claim_state {
    CLAIM_IDLE, /* wanted: up to READY */
    CLAIM_LOOKING,
    CLAIM_MAKING,
    CLAIM_UNCERTAIN,
    CLAIM_QUEUED,
    CLAIM_MEETING,
    CLAIM_WAITING,
    CLAIM_FIRST,
    CLAIM_READY,
    CLAIM_HELD,
    CLAIM_GONE,
    CLAIM_UNWANTED, /* nobody wants it: from here on */
    CLAIM_SEARCHING,
    CLAIM_DELETING,
    CLAIM_REDELETING,
    CLAIM_REFUSED,
    CLAIM_ENDED
};

/* What preceded the last look at the folder. */
enum look { LOOK_HERE, LOOK_SYNCED, LOOK_SURE /* behind a barrier */ };

struct claim {
    struct claim *next, *prev;           /* of the name */
    struct claim *next_late, *prev_late; /* in the backlog; prev_late NULL: not there */
    struct claim *next_raising, *prev_raising; /* FIRST, and needs a larger base (tokens.c); prev_raising NULL: it does not */
    struct name *name;
    struct claim *gate;  /* its claim in a semaphore's gate; NULL: none, or it has left */
    struct claim *opens; /* the claim that goes through this one's gate; NULL: none, or it has been left */
    enum part part;      /* PART_GATE: it is a claim in a gate. It has no op */
    mortise_grant_id grant;
    enum claim_state state;
    mortise_op *op;       /* the acquire that waits for it, or NULL */
    mortise_op *releases; /* utlist: releases that wait for its end */
    uint64_t step;        /* answers to requests of earlier steps are ignored */
    unsigned pending;     /* requests on their way */
    enum look look;
    unsigned made_in;      /* the number of the session of its last create; 0: the servers have nothing of it */
    unsigned folder_tries; /* attempts to make the folder */
    int folder_rc;         /* of the last of them */
    char node[NODE_MAX];   /* "": not known */
    int64_t czxid;
    struct node_kind kind; /* as it was asked for */
    bool lost;             /* it was GONE: whatever comes of its node, a release is answered LOST */
    bool downgraded;       /* it was exclusive, and its node says that it is shared now */
    bool maybe_shared;     /* or may say so, because the answer to a downgrade is lost */
    mortise_op *downgrade; /* the renewal that waits until the node says so, or NULL */
    bool crowded; /* WAITING: not only for `before`, but for any of as many nodes as there are permits */
    int64_t permits_until_ns; /* until when it waits for `before`, if that is first with other permits; else 0 */
    char *opened; /* a node that is exclusive only by its name; NULL: none is known (queue.h) */
    char *before; /* the node that blocks it */
    char *passed; /* the last node that is undecided by number and has a larger czxid; NULL: none (queue.h) */
    int64_t noted_base; /* the base of the tokens in its node */
    uint64_t token_floor, token; /* token: until it is READY, it must not get a smaller one */
    int64_t ttl_ms;
    int64_t asked_ns; /* when its op arrived */
    int64_t from_ns;  /* before the list that showed it as first was sent */
    int64_t ends_ns;  /* when it ends if nobody renews it; NEVER: an op waits for it */
    int64_t look_ns;  /* HELD: when to look at its own node; NEVER: it is watched */
    int64_t retry_ns; /* when to try again what failed; 0: nothing failed */
};

/* A lock that this client holds, wants or is about to leave. */
struct name {
    UT_hash_handle hh; /* by folder */
    struct claim *claims;
    char *above; /* the folder above this one, below the root; NULL: there is none */
    uint64_t last_token; /* the largest one that a claim here has got */
    size_t name_len;
    char name[MORTISE_NAME_MAX];
    char folder[];
};

static inline bool claim_is_wanted(const struct claim *claim)
{
    return claim->state <= CLAIM_READY;
}

static inline bool claim_is_unwanted(const struct claim *claim)
{
    return claim->state >= CLAIM_UNWANTED;
}

/* ---- claim.c -------------------------------------------------------------------------------------- */

struct claim *claim_find(struct driver *driver, const mortise_op *op);
struct claim *claim_new(struct driver *driver, const mortise_op *op);
/* Makes a claim in the gate that this claim must go through. NULL: no memory. */
struct claim *claim_new_gate(struct driver *driver, struct claim *claim);
/* The claim that somebody waits for or holds: this one, or the one that goes through this gate. */
static inline struct claim *claim_whole(struct claim *claim)
{
    return claim->opens != NULL ? claim->opens : claim;
}
/* Whether its caller does not wait. */
static inline bool claim_is_try(struct claim *claim)
{
    const mortise_op *op = claim_whole(claim)->op;
    return op != NULL && (op->flags & MORTISE_OP_TRY) != 0;
}
/* How the nodes of its folder are named. */
static inline enum node_style claim_style(const struct driver *driver, const struct claim *claim)
{
    return style_of_part(driver->style, claim->part);
}
/* Whether its node, or the one in the gate, may be in the servers. */
static inline bool claim_is_sent(const struct claim *claim)
{
    return claim->made_in != 0 || (claim->gate != NULL && claim->gate->made_in != 0);
}
/* Separates a claim from its gate. */
void claim_part(struct claim *claim, struct claim *gate);
/* The one place where the state changes. */
void claim_become(struct driver *driver, struct claim *claim, enum claim_state state);
/* Goes to WAITING, because an answer of the servers has shown the node that blocks the claim. Reports to the core that the
 * acquire waits. */
void claim_wait(struct driver *driver, struct claim *claim);
/* Answers the ops that wait for the claim's end, and takes the claim off all lists. The caller must not touch it any more. */
void claim_end(struct driver *driver, struct claim *claim, mortise_status status);
void claims_free(struct driver *driver);
typedef void claim_visit(struct driver *driver, struct claim *claim);
/* Calls visit for each claim; visit may end that claim, and with it the claim's gate. Must not be called from visit. */
void claims_each(struct driver *driver, claim_visit *visit);
/* Finds the claims of the folder in which this path is a node, and the node. NULL: there are none. */
struct claim *claims_of_path(struct driver *driver, const char *path, const char **node);
/* The driver looks at all claims at that time or earlier. */
void claims_sweep_by(struct driver *driver, int64_t at_ns);
/* Makes the core check the claim (host->doubt). */
void claim_tell(struct driver *driver, struct claim *claim);
/* HELD: the claim looks at its own node at that time, or a little later. */
void claim_look_by(struct driver *driver, struct claim *claim, int64_t after_ns);
/* The claim tries again at that time what failed. */
void claim_retry(struct driver *driver, struct claim *claim, int64_t after_ns);
/* Thousands of claims may begin together, or go on after a reconnection. Their requests are not all sent at once, because a
 * beat would be answered after all of them. Claims keep their order: the next acquire of a name is behind its release. True:
 * the claim waits. */
bool claim_is_late(struct driver *driver, struct claim *claim);
/* Whether the numbers do not decide if the blocking node is before the claim's own, and the czxids, as answered, show that
 * it is not. */
bool claim_may_pass(const struct driver *driver, const struct claim *claim,
                    const struct request *request);
/* Takes the claim off the backlog. */
void claim_not_late(struct driver *driver, struct claim *claim);
/* Takes the claim off the list of those that need a larger base. */
void claim_not_raising(struct driver *driver, struct claim *claim);
/* The address for answers to requests of the claim's present step. */
struct reply_to claim_reply(struct claim *claim, reply_handler *answered);
/* Counts a request that was sent. False: it was not, and the acquire has failed. */
bool claim_sent(struct driver *driver, struct claim *claim, bool sent);
/* The claim of an answer that has come, or NULL if the claim has ended. */
struct claim *claim_answered(struct driver *driver, struct request *request);
/* The same; also NULL if the answer belongs to an earlier step, or is lost. */
struct claim *claim_arrived(struct driver *driver, struct request *request);

/* ---- folder.c ------------------------------------------------------------------------------------- */

/* Makes the missing folder, and those above it. False: not sent. */
bool claim_make_folder(struct driver *driver, struct claim *claim);

/* ---- acquire.c ------------------------------------------------------------------------------------ */

/* Goes on from what is known, if the session is ready, or waits for the claim's turn in the backlog. Not for HELD and GONE. */
void claim_go(struct driver *driver, struct claim *claim);
/* Lets claims of the backlog go on, as far as there is room. */
void claims_go_late(struct driver *driver);
/* Reads the folder. */
void claim_list(struct driver *driver, struct claim *claim, enum look look);
/* Watches the node that blocks the claim. */
void claim_watch_before(struct driver *driver, struct claim *claim);

/* ---- tokens.c ------------------------------------------------------------------------------------- */

void base_connected(struct driver *driver);
/* The base was raised, or may have been. */
void base_changed(struct driver *driver);
/* Takes an event. False: it is of another node. */
bool base_event(struct driver *driver, const char *path);
/* If kazoo has written the number of the semaphore's leases into the folder, an acquire with another number fails (INVALID).
 * False: not sent. */
bool claim_read_number(struct driver *driver, struct claim *claim);
/* The claim is the first of its queue: gets its token, and then the grant. */
void claim_be_first(struct driver *driver, struct claim *claim);
/* Writes the base that the claim counts with into its node. */
void claim_note(struct driver *driver, struct claim *claim);
/* READY or HELD: answers the acquire, if the session is proven for long enough. */
void claim_grant(struct driver *driver, struct claim *claim);

/* ---- release.c ------------------------------------------------------------------------------------ */

/* Nobody wants the claim any more. It may end at once, so the caller must not touch it any more. */
void claim_drop(struct driver *driver, struct claim *claim);
/* The claim does not need its gate any more, if it has one. */
void claim_leave_gate(struct driver *driver, struct claim *claim);
/* Fails the acquire, and drops the claim. */
void claim_fail(struct driver *driver, struct claim *claim, mortise_status status, int rc);
/* The same, because of this node in this folder: otherwise its owner and ours would both hold. */
void claim_refuse(struct driver *driver, struct claim *claim, const char *folder, const char *node);
/* Sends the delete of its node. */
void claim_delete(struct driver *driver, struct claim *claim);
/* The node of an unwanted claim could not be found or deleted: its releases fail, and the claim tries again after a pause. */
void claim_not_deleted(struct driver *driver, struct claim *claim, int rc);

/* ---- lease.c: the core's ops and the session's events ----------------------------------------------- */

void lease_acquire(struct driver *driver, mortise_op *op);
void lease_renew(struct driver *driver, mortise_op *op);
void lease_release(struct driver *driver, mortise_op *op);
void lease_cancel_acquire(struct driver *driver, mortise_op *op);
void lease_cancel_renew(struct driver *driver, mortise_op *op);
void lease_cancel_release(struct driver *driver, mortise_op *op);
void lease_connected(struct driver *driver);
void lease_suspended(struct driver *driver);
void lease_event_missed(struct driver *driver);
void lease_away(struct driver *driver);
void lease_proven(struct driver *driver);
void lease_session_over(struct driver *driver, bool abandoned);
void lease_node_event(struct driver *driver, const char *path, bool deleted);
void lease_sweep(struct driver *driver, int64_t now_ns);

#endif
