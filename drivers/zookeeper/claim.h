/* claim.h - a claim: one acquisition of one name, from its first request until the servers can hold nothing of it.
 *
 * In the servers a claim is one ephemeral sequential node in the folder of its name. Here it is in one of these states:
 *
 *   IDLE         wanted; no node in this session; nothing on its way
 *   LOOKING      a try; reads the folder before it makes a node
 *   MAKING       create and list are on their way, in one flight
 *   UNCERTAIN    a create may have been executed, its reply is lost; searches the folder, behind a barrier
 *   QUEUED       has a node; reads the folder
 *   MEETING      a try that is not first; reads who is
 *   WAITING      another node blocks it, and is being watched
 *   FIRST        no node blocks it; the base of the tokens is being read or raised
 *   READY        has a token; waits until the session is proven for long enough
 *   HELD         granted
 *   GONE         was HELD; its node, that in its gate, or its session has ended: the lease is LOST
 *   UNWANTED     nobody wants it; the create is on its way, and its answer will name the node to delete
 *   SEARCHING    nobody wants it; as UNCERTAIN
 *   DELETING     nobody wants it; deletes its node
 *   REDELETING   as DELETING, but a delete may have been executed before: if there is no node, that is a success
 *   REFUSED      the servers refuse the delete; tries again from time to time
 *   ENDED        off all lists; is freed when its last request is answered
 *
 * What happens in each state. "again" is the session's next connection, the claim's turn in the backlog, or a retry.
 * "unwanted" is a cancel, a release, a failure, a ttl that passed, or a caller that gave up.
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
 *   there. d: no folder: makes the folder, then MAKING. e: if it has a node; else LOOKING and ENDED. f: if the node, or the
 *   create, is of an earlier session that was abandoned: as "session abandoned". g: the first contender is shared with another
 *   number of permits; before the acquire fails, the claim looks once more, behind a barrier, and one that may wait is WAITING
 *   for that contender for half a second. h: the claim is shared, and the blocker is exclusive by its name only. i: a renewal
 *   with MORTISE_OP_DOWNGRADE writes the note of the node again, and is answered when that is; lost: INDETERMINATE, and the
 *   repeat writes the same.
 *
 * A SEMAPHORE has a gate (names.h), and for it each claim has a second one, its *gate*, with the same table and no op:
 *   j: IDLE until the gate is HELD; a claim without one makes one. k: a gate is HELD at once, without a token.
 *   l: a shared claim drops its gate as soon as it is READY, and is granted when the gate has ENDED, so that a try that comes
 *   after the grant does not meet it. An exclusive one keeps its gate while it is HELD.
 *   m: a renewal, which says LOST, counts too. REDELETING if only the node in the gate is gone: until then its own one stays,
 *   because the holder did not know. The release is answered LOST then, too.
 *   The gate fails: the claim fails. The claim is unwanted, or GONE: so is its gate. The node of a HELD gate is deleted by
 *   somebody: an exclusive claim that is HELD is GONE, as others may come; one that waits fails (BACKEND). The session ends
 *   or is abandoned: the gate is unwanted, and the claim, if it is still wanted, goes through a new one. The gate cannot be
 *   deleted: the claim fails, because nobody would get through it. A downgrade leaves the gate when the node says so.
 *
 * Why the holes are closed:
 *   - A create's reply is lost. The search comes after a reconnection and behind a barrier. A server that lags would not
 *     show the node; a second one would be made and would wait for the first. No old create can be executed after the
 *     search: the leader refuses requests of a session that has moved, and one server keeps the order. (A create of a session
 *     that was abandoned may be; such a node ends with its session.) A node that is found is of this very session: its
 *     name says of which session of this client it is, and its owner is compared.
 *   - The predecessor vanishes before it is watched. The claim reads the folder again and keeps its place. It is watched by
 *     a `get`, because the watch of an `exists` on a node that is gone would stay in the server for ever.
 *   - Somebody deletes the own node. A waiting claim sees that when it next reads the folder. A held one watches its node,
 *     from a tenth of a second on, and the core is told to look (host->doubt).
 *   - The numbers end at 2^31, and a server gives one number twice, or a negative one. The node with the smaller czxid is
 *     first. The answer to the `get` of the predecessor has its czxid; if that is larger than the own one, the claim passes
 *     the node.
 *   - The caller gives up without a connection. The claim stays until a server said that the node is gone, or that the
 *     session has ended.
 *   - The core asks again after INDETERMINATE: the claim is still here, and serves the new op. If it is HELD, that op waits
 *     until enough is proven; when the claim ceases to be HELD before that, the op is BUSY. So it is if the claim is GONE, which
 *     ends then. If the claim is being deleted, the op is INDETERMINATE.
 *   - The holder is stopped past its deadline. The lease was LOST then. When the process runs again, the core releases the claim.
 *     If the ttl has passed too, the driver sees that, and deletes the node. If it is stopped for longer than the session's
 *     timeout, the servers end the session.
 *   - The servers refuse the delete (an ACL may allow to make nodes and not to delete them). The release says so. When the
 *     client has nothing else, it abandons the session, and the node ends with it.
 *   - No memory for a request: the op fails, and what was sent is undone later.
 *   - Two shared claims with an exclusive one between them. The second one waits for the exclusive one, though it could hold
 *     beside the first: nobody overtakes. If the exclusive one gives up or its session expires, its node is gone, and the
 *     second one hears of that. The exclusive one waits for the nearest node before it and then reads the folder again, so
 *     it does not matter in which order the shared ones end.
 *   - The exclusive holder becomes shared while others wait. Its node, its place and its token stay, so an exclusive claim
 *     behind it goes on waiting. Shared claims wait for the last exclusive node before them: if that is the holder's, the
 *     change of its data wakes them; if it is another one, they read the holder's data when that one is gone. A holder
 *     never becomes exclusive again, so what was read once stays true.
 *   - Several permits come back at once, or others than the first ones. See queue.h.
 *   - Two numbers of permits on one name. A claim holds beside another one only if their numbers are the same. If all that
 *     were first end, another number may come to the front: claims with the old one wait for it, or fail (INVALID) when
 *     they look next.
 *   - A caller that was refused for its permits has a node until that is deleted, and it may be the first. Others with the right
 *     number wait for half a second before they fail. If that caller dies just then, or has no connection, its node blocks them
 *     as a holder's does: they fail until its session has ended, or its node could be deleted.
 *
 * Tests. unit.zookeeper_states runs an acquire and its release on an ensemble in memory, and lets one or two faults strike
 * after each request: the connection is lost while some requests are executed, the session ends or is abandoned, the caller
 * gives up. unit.zookeeper_gate lets things happen to a gate, unit.zookeeper_tokens to claims that need a larger base. On real
 * servers (tests/zookeeper): "canceled in each state", "replies lost", "cut at every byte", "given up without a reply", "lost
 * between create and list", "looks behind a write", "a vanished predecessor", "a waiter's node is deleted", "floors", "many
 * floors at once", "suspect, and back", "asked again too late", "two owners", "asked in two sessions", "may not delete", and
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

/* Behind what the last look at the folder was sent. */
enum look { LOOK_HERE, LOOK_SYNCED, LOOK_SURE /* behind a barrier */ };

struct claim {
    struct claim *next, *prev;           /* of the name */
    struct claim *next_late, *prev_late; /* in the backlog; prev_late NULL: not there */
    struct claim *next_raising, *prev_raising; /* FIRST, and needs a larger base (tokens.c); prev_raising NULL: it does not */
    struct name *name;
    struct claim *gate;  /* its claim in the gate of a semaphore; NULL: none, or it has left */
    struct claim *opens; /* the claim that goes through this one's gate; NULL: none, or it has been left */
    enum part part;      /* PART_GATE: it is a claim in a gate. It has no op */
    mortise_grant_id grant;
    enum claim_state state;
    mortise_op *op;       /* the acquire that waits for it, or NULL */
    mortise_op *releases; /* utlist; they wait for its end */
    uint64_t step;        /* answers to requests of earlier steps mean nothing */
    unsigned pending;     /* requests on their way */
    enum look look;
    unsigned made_in;      /* the number of the session in which a create was sent last; 0: the servers have nothing of it */
    unsigned folder_tries; /* attempts to make the folder */
    int folder_rc;         /* of the last of them */
    char node[NODE_MAX];   /* "": not known */
    int64_t czxid;
    struct node_kind kind; /* as it was asked for */
    bool lost;             /* it was GONE: whatever comes of its node, a release is answered LOST */
    bool downgraded;       /* it was exclusive, and its node says that it is shared now */
    bool maybe_shared;     /* or may say so: the answer to a downgrade is lost */
    mortise_op *downgrade; /* the renewal that waits until the node says so, or NULL */
    bool crowded; /* WAITING: not for `before` alone, but for any of as many nodes as there are permits */
    int64_t permits_until_ns; /* until when it waits for `before`, which is first with other permits; 0: it is not */
    char *opened; /* a node that is exclusive by its name only; NULL: none is known (queue.h) */
    char *before; /* the node that blocks it */
    char *passed; /* the last node that is undecided by number and has a larger czxid; NULL: none (queue.h) */
    int64_t noted_base; /* the base of the tokens in its node */
    uint64_t token_floor, token; /* the token until it is READY: it must not get a smaller one */
    int64_t ttl_ms;
    int64_t asked_ns; /* when its op came */
    int64_t from_ns;  /* before the list that showed it first was sent */
    int64_t ends_ns;  /* when it is over if nobody renews it; NEVER: an op waits for it */
    int64_t look_ns;  /* HELD: when to look at its own node; NEVER: a watch tells */
    int64_t retry_ns; /* when to try again what failed; 0: nothing did */
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
/* A claim in the gate that this one has to go through; NULL: no memory. */
struct claim *claim_new_gate(struct driver *driver, struct claim *claim);
/* The claim that somebody waits for or holds: itself, or the one that goes through this one's gate. */
static inline struct claim *claim_whole(struct claim *claim)
{
    return claim->opens != NULL ? claim->opens : claim;
}
/* A caller that does not wait. */
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
/* Its node, or that in the gate, may be in the servers. */
static inline bool claim_is_sent(const struct claim *claim)
{
    return claim->made_in != 0 || (claim->gate != NULL && claim->gate->made_in != 0);
}
/* The two know nothing of each other any more. */
void claim_part(struct claim *claim, struct claim *gate);
/* The one place where the state changes. */
void claim_become(struct driver *driver, struct claim *claim, enum claim_state state);
/* To WAITING: an answer of the servers has shown the node that blocks it. Reports to the core that the acquire waits. */
void claim_wait(struct driver *driver, struct claim *claim);
/* Answers the ops that wait for its end, and takes it off all lists. The caller must not touch it any more. */
void claim_end(struct driver *driver, struct claim *claim, mortise_status status);
void claims_free(struct driver *driver);
typedef void claim_visit(struct driver *driver, struct claim *claim);
/* Calls visit for each claim; it may end the claim that it is given, and with it that one's gate. Not from within visit. */
void claims_each(struct driver *driver, claim_visit *visit);
/* The claims of the folder in which this path is a node, and the node; NULL: there are none. */
struct claim *claims_of_path(struct driver *driver, const char *path, const char **node);
/* Not later than that the driver looks at all claims. */
void claims_sweep_by(struct driver *driver, int64_t at_ns);
/* The core is to look at it. */
void claim_tell(struct driver *driver, struct claim *claim);
/* HELD: looks at its own node then, or a little later. */
void claim_look_by(struct driver *driver, struct claim *claim, int64_t after_ns);
/* Tries again then what failed. */
void claim_retry(struct driver *driver, struct claim *claim, int64_t after_ns);
/* Thousands of claims may begin together, or go on after a reconnection. They are not all sent at once, because a beat would
 * be answered after all of them. They keep their order: the next acquire of a name is behind its release. True: it waits. */
bool claim_is_late(struct driver *driver, struct claim *claim);
/* The numbers do not say whether the node that blocks it is before it, and the czxids, as answered, say that it is not. */
bool claim_may_pass(const struct driver *driver, const struct claim *claim,
                    const struct request *request);
/* Takes it off the backlog. */
void claim_not_late(struct driver *driver, struct claim *claim);
/* Takes it off the list of those that need a larger base. */
void claim_not_raising(struct driver *driver, struct claim *claim);
/* Where the answer to a request of its present step goes. */
struct reply_to claim_reply(struct claim *claim, reply_handler *answered);
/* Counts a request that was sent. False: it was not, and the acquire has failed. */
bool claim_sent(struct driver *driver, struct claim *claim, bool sent);
/* An answer is here: its claim, or NULL if that has ended. */
struct claim *claim_answered(struct driver *driver, struct request *request);
/* The same; also NULL if the answer is of an earlier step, or lost. */
struct claim *claim_arrived(struct driver *driver, struct request *request);

/* ---- folder.c ------------------------------------------------------------------------------------- */

/* The folder that is missing, and those above it. False: not sent. */
bool claim_make_folder(struct driver *driver, struct claim *claim);

/* ---- acquire.c ------------------------------------------------------------------------------------ */

/* Looks again from what is known, if the session is ready, or waits for its turn. Not for HELD and GONE. */
void claim_go(struct driver *driver, struct claim *claim);
/* There may be room for claims of the backlog. */
void claims_go_late(struct driver *driver);
/* Reads the folder. */
void claim_list(struct driver *driver, struct claim *claim, enum look look);
/* Watches the node that blocks it. */
void claim_watch_before(struct driver *driver, struct claim *claim);

/* ---- tokens.c ------------------------------------------------------------------------------------- */

void base_connected(struct driver *driver);
/* The base was raised, or may have been. */
void base_changed(struct driver *driver);
/* An event; false: of another node. */
bool base_event(struct driver *driver, const char *path);
/* If kazoo says in the folder how many leases its semaphore has, the acquire fails with another number (INVALID). False: not
 * sent. */
bool claim_read_number(struct driver *driver, struct claim *claim);
/* It is the first of its queue: gets its token, and then the grant. */
void claim_be_first(struct driver *driver, struct claim *claim);
/* READY or HELD: answers the acquire, if the session is proven for long enough. */
void claim_grant(struct driver *driver, struct claim *claim);

/* ---- release.c ------------------------------------------------------------------------------------ */

/* Nobody wants it any more. It may end at once: the caller must not touch it any more. */
void claim_drop(struct driver *driver, struct claim *claim);
/* Nor does it need its gate any more, if it has one. */
void claim_leave_gate(struct driver *driver, struct claim *claim);
/* Fails the acquire, and drops the claim. */
void claim_fail(struct driver *driver, struct claim *claim, mortise_status status, int rc);
/* The same, because of this node in this folder: its owner and ours would both hold. */
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
