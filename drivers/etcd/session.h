/* session.h - a session: an etcd lease of this client, its key, its beats, and what it means for a deadline.
 *
 * All claims whose ttls are the same number of whole seconds share a session. It has one of these states:
 *
 *   WANTED    the servers have no lease of it
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
 *   "lease not found"               -           -          OVER       OVER       OVER
 *   no claim for a ttl              OVER        -          RESTING    -          OVER (at once)
 *   a claim comes                   -           -          -          LIVE f     -
 *
 *   a: only if a claim waits for it. b: see THE TERM. c: with another id; the lease that may be there ends by itself, as nothing
 *   is attached to it. d: with a pause; the claims that wait fail. e: see THE JOIN. f: if it is proven for half its ttl;
 *   else OVER, and the claim gets another session.
 *
 * THE JOIN. The session's key is put before the first acquire, and each acquire compares its mod revision. A session is
 * joined, or the put is on its way, or a put is needed:
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
 *   a: after a pause; the claims that wait for it fail. A claim that may be in the servers by an unanswered acquire is neither
 *   begun anew nor known to be gone before the next join is answered: from then on no older acquire is executed.
 *
 * BEATS. A beat is a keep-alive and, after its answer, a read of the session's key. Four in a ttl, while anything is held or
 * wanted. The read alone is sent if this connection has not shown the session's term yet.
 *
 * THE TERM. protocol.md ("The deadline") says why a session belongs to one raft term. `term` of the link is that of the
 * last answer on this connection. It never decreases on one connection, so everything between two answers with one
 * term was done within it:
 *   - granted: the link's term before the grant was sent = that of its answer;
 *   - alive: the link's term before the keep-alive was sent = that of the read's answer = that of the grant.
 *
 * RESTING. A client without a claim costs the servers nothing: the lease ends by itself, and takes its key with it.
 *
 * Why the holes are closed:
 *   - The reply of the grant is lost: another id. The reply of the join is lost: it is needed, and is put again.
 *   - The keep-alive is answered and the read is not: nothing is proven, and the connection is given up.
 *   - The process stops between any two of these: instants are taken before sending, so it counts nothing too late.
 *   - The lease is revoked by hand: the watch of the key tells it, or the next read. "Lease not found" is an answer of the
 *     raft log, so it is final.
 *   - Somebody deletes the key alone: joined again; acquires that were on their way fail, and begin anew.
 *   - The term changes twice while claims move: each move names the lease that the key has; session_of_lease() finds it.
 *   - The servers lose their data: "lease not found". */
