/* session.h - a session: an etcd lease of this client, its key, its beats, and the deadline that it proves.
 *
 * All claims of one ttl share a session. Its lease lasts a quarter longer than that ttl, in whole seconds, so that the claims
 * are proven for their whole ttl at any time between two beats. A session has one of these states:
 *
 *   WANTED    the servers have no lease for it
 *   GRANTING  LeaseGrant is on its way
 *   LIVE      the lease was granted in raft term `term`; acquires may begin when it is joined
 *   RESTING   as LIVE; nothing was held or wanted for a ttl; no beats
 *   LEFT      the term has changed: no new claims, no beats; its claims move to the next session
 *   OVER      no claim counts on it any more; it is freed when the last one has gone
 *
 *   event                           WANTED      GRANTING   LIVE       RESTING    LEFT
 *   connected, or a pause is over   GRANTING a  -          -          -          -
 *   granted in the term b           -           LIVE       -          -          -
 *   granted, in another term        -           WANTED c   -          -          -
 *   refused                         -           WANTED d   -          -          -
 *   the connection is lost          -           WANTED c   - e        OVER       - e
 *   an answer is of a later term    -           -          LEFT       OVER       -
 *   connected, another history g    -           -          LEFT       -          -
 *   "lease not found"               -           -          OVER       OVER       OVER
 *   no claim for a ttl              OVER        -          RESTING    -          OVER (at once)
 *   a claim comes                   -           -          -          LIVE f     -
 *
 *   a: only if a claim waits for it. b: see THE TERM. c: with another id; a lease that the servers may have ends by itself,
 *   because nothing is attached to it. d: with a pause; the claims that wait for the session fail, also a READY one that moves
 *   to it. e: see THE JOIN. f: if it is proven for half its ttl. Otherwise it is OVER, and the claim gets another session. g:
 *     another
 *   cluster, or one that has less data than before (link.h, HISTORIES).
 *
 * THE JOIN. The session's key is put before the first acquire, and each acquire compares its mod revision. For a session that
 * was granted, the join is in one of three states: joined, the put on its way, or a put needed:
 *
 *   event                                        joined           on its way    needed
 *   granted                                      -                -             on its way
 *   connected again                              joined           -             on its way
 *   connection lost, an acquire is unanswered    needed           needed        needed
 *   connection lost, no acquire is unanswered    joined           needed        needed
 *   the key is gone, or is another one           needed           -             -
 *   put answered                                 -                joined        -
 *   "lease not found"                            OVER             OVER          -
 *   refused (no space, no right)                 -                needed a      -
 *
 *   a: after a pause; the claims that wait for it fail. If an unanswered acquire may have put a claim's key, the claim is
 *   neither begun anew nor known to be gone before the next join is answered. From then on no older acquire is executed.
 *
 * BEATS. A beat is a keep-alive and, after its answer, a read of the session's key. There are six in a ttl of the lease, while
 * anything is held or wanted. Only the read is sent if this connection has not shown the session's term yet.
 *
 * THE TERM. protocol.md ("The deadline") says why a session belongs to one raft term. `term` of the link is that of the
 * last answer on this connection. It never decreases on one connection, so everything between two answers with the same term
 * was done within that term:
 *   - granted: the link's term before the grant was sent = that of its answer;
 *   - alive: the link's term before the keep-alive was sent = that of the read's answer = that of the grant.
 *
 * RESTING. A client without a claim costs the servers nothing: the lease ends by itself, and its key with it.
 *
 * Why the holes are closed:
 *   - The reply of the grant is lost: the next grant has another id. The reply of the join is lost: a put is needed, and is
 *     sent again.
 *   - The keep-alive is answered and the read is not: nothing is proven, and the connection is given up.
 *   - The process stops between any two of these steps: instants are taken before sending, so no deadline is too late.
 *   - The lease is revoked by hand: the watch of the key reports it, or the next read shows it. "Lease not found" is an answer
 *     from the raft log, so it is final.
 *   - Somebody deletes only the key: the session is joined again; acquires that were on their way fail, and begin anew.
 *   - The term changes twice while claims move: each move names the lease that the key has, and session_of_lease() finds the
 *     session.
 *   - The term changes while the servers grant no lease, because their database is full: nothing is proven any more, and held
 *     claims are LOST at their deadlines.
 *   - The servers lose their data: "lease not found".
 *   - The servers are restored, and the client does not notice it (link.h, HISTORIES): the terms begin again, and may not reach
 *     that of the session. So nothing is proven, nothing is kept alive, and the lease ends: "lease not found". */
#ifndef MORTISE_ETCD_SESSION_H
#define MORTISE_ETCD_SESSION_H

#include "driver.h"

#define BEATS_PER_TTL 6 /* of the lease */

enum session_state {
    SESSION_WANTED,
    SESSION_GRANTING,
    SESSION_LIVE,
    SESSION_RESTING,
    SESSION_LEFT,
    SESSION_OVER
};

enum join { JOIN_NEEDED, JOIN_SENT, JOINED };

struct session {
    struct session *next, *prev;
    enum session_state state;
    enum join join;
    int64_t asked_ttl_s; /* as claims ask for it */
    int64_t ttl_ns;      /* as the servers gave it */
    int64_t lease;       /* its id */
    uint64_t term;       /* of its grant, */
    unsigned history;    /* and the link's: in another one the term means nothing */
    int64_t joined_at;   /* the mod revision of its key, while JOINED */
    unsigned claims;     /* that refer to it; claim.c counts them, and these two: */
    unsigned wanted;     /* those that are wanted or held */
    unsigned doubtful;   /* those that must wait for a join first */
    uint64_t step;       /* answers to calls of earlier steps are ignored */
    unsigned pending;    /* calls on their way */
    int64_t deadline_ns; /* 0: nothing is proven */
    int64_t busy_ns;     /* when it was needed last */
    int64_t retry_ns;    /* when to try again what was refused */
    int64_t refused_ns;  /* since when the servers refuse it; 0: they do not */
    int64_t beat_due_ns;
    int64_t beat_sent_ns;       /* of the beat that is on its way; 0: none */
    int64_t keep_alive_sent_ns; /* of its keep-alive; 0: none, or it proves nothing */
    int64_t keep_alive_ttl_ns;
    uint64_t asked_term; /* the link's, before the grant or the keep-alive was sent */
    bool suspects;       /* the core was told to doubt held claims, and not yet that all is well */
    int64_t watch;
    size_t key_len;
    char key[PREFIX_MAX + 80];
};

static inline struct bytes session_key(const struct session *session)
{
    return bytes_of(session->key, session->key_len);
}

/* Whether acquires may be sent. */
static inline bool session_is_ready(const struct session *session)
{
    return session->state == SESSION_LIVE && session->join == JOINED;
}

/* Finds or makes the session for claims with this ttl. NULL: no memory. */
struct session *session_for(struct driver *driver, int64_t ttl_ms);
/* NULL: none of ours. */
struct session *session_of_lease(const struct driver *driver, int64_t lease);
/* "Lease not found": the session is over. */
void session_end(struct driver *driver, struct session *session);
/* An acquire found that the session's key has another revision, or is gone. */
void session_rejoin(struct driver *driver, struct session *session);
/* The reply to an acquire was lost: claims that wait for a join go on only after the next one. */
void session_doubt(struct session *session);
/* The session must be proven for longer: beats now. */
void session_hurry(struct driver *driver, struct session *session);
/* Whether there is a connection, and no beat is overdue. */
bool session_is_well(const struct driver *driver, const struct session *session);

void sessions_up(struct driver *driver);
void sessions_down(struct driver *driver);
void sessions_term(struct driver *driver, uint64_t term);
void session_watched(struct driver *driver, struct session *session, enum watch_event event);
void sessions_turn(struct driver *driver);
void sessions_due(const struct driver *driver, int64_t *due_ns);
/* When the instance closes: ends the leases in the servers, as far as that is possible at once. */
void sessions_leave(struct driver *driver);
void sessions_free(struct driver *driver);

#endif
