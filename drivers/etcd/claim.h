/* claim.h - a claim: one acquisition of one name, from its first request until the servers can hold nothing of it.
 *
 * In the servers a claim is one key below its name, attached to the lease of a session. Here it is in one of these states:
 *
 *   IDLE        wanted; the servers have nothing of it; nothing on its way
 *   LOOKING     a shared try; looks before it puts its key
 *   ASKING      its acquire is on its way
 *   UNCERTAIN   its acquire may have been executed, the reply is lost; waits for a join
 *   QUEUED      has a key; a look is on its way, or will be sent
 *   WAITING     other keys block it, and are being watched
 *   FIRST       no key blocks it; the base of the tokens, or its own note, is being written
 *   READY       has a token; waits until its session is proven for long enough
 *   HELD        granted
 *   GONE        was HELD; its key or its session is gone: the lease is LOST
 *   UNWANTED    nobody wants it; its acquire is on its way
 *   DOUBTFUL    nobody wants it; its acquire may have been executed; waits for a join
 *   DELETING    nobody wants it; deletes its key
 *   REDELETING  as DELETING, but the key may have gone before: if there is none, that is a success
 *   ENDED       off all lists; is freed when its last request is answered
 *
 * What happens in each state. "again" is the next connection, the claim's turn in the backlog, or a retry. "unwanted" is a
 * cancel, a release, a failure, a ttl that passed, or a caller that gave up. "session over": its lease is gone, and every
 * key that was attached to it.
 *
 *   state       answer                                again         unwanted     session over
 *   IDLE        -                                     ASKING a b    ENDED        IDLE
 *   LOOKING     nobody: ASKING; somebody: BUSY c      LOOKING       ENDED        IDLE
 *   ASKING      first: FIRST; blocked: WAITING, a     UNCERTAIN     UNWANTED     IDLE
 *               try: DELETING c; has a key: QUEUED;
 *               not joined: IDLE; somebody, an
 *               exclusive try: BUSY c; lost: UNCERTAIN
 *   UNCERTAIN   -                                     ASKING b      DOUBTFUL     IDLE
 *   QUEUED      first: FIRST; blocked: WAITING, a     QUEUED        DELETING     IDLE d
 *               try: DELETING c; no key: IDLE
 *   WAITING     event: QUEUED; watch canceled: QUEUED QUEUED        DELETING     IDLE d
 *   FIRST       written: READY; other base or note:   QUEUED        DELETING     IDLE d
 *               QUEUED
 *   READY       proven: HELD                          QUEUED        DELETING     IDLE d
 *   HELD        key deleted: GONE; made shared e      HELD          DELETING     GONE d
 *   GONE        -                                     GONE          ENDED LOST   GONE
 *   UNWANTED    put: DELETING; not put: ENDED;        DOUBTFUL      UNWANTED     ENDED
 *               has a key: DELETING; lost: DOUBTFUL
 *   DOUBTFUL    -                                     REDELETING b  DOUBTFUL     ENDED
 *   DELETING    done: ENDED; no key: ENDED LOST;      DELETING      DELETING     ENDED d
 *               lost: REDELETING; refused: after a
 *               pause
 *   REDELETING  done, no key: ENDED; refused: after   REDELETING    REDELETING   ENDED d
 *               a pause
 *
 *   a: LOOKING for a shared try. b: when its session is joined. c: the op is BUSY, or INVALID if the holders have another number of
 *   permits. d: if a move may have been executed: QUEUED, HELD looks at its own key, and the others delete it.
 *   e: a renewal with MORTISE_OP_DOWNGRADE puts the note of the key again, and is answered when that is; lost:
 *   INDETERMINATE, and the repeat puts the same.
 *
 * MOVES. When a session is LEFT, each of its claims from QUEUED to HELD moves its key to the next session, beside what else it
 * does. The request names the lease that the key has, so it is done once, whenever it is executed: a lease that was left is
 * never moved to again. Until it is answered, the deadline is that of the old session.
 *
 *   event                               no move           on its way         unknown
 *   the next session is joined          on its way        -                  on its way
 *   done                                -                 no move            no move
 *   not done, the key has another lease -                 unknown            unknown
 *   not done, no key                    -                 no key a           no key a
 *   the connection is lost              -                 unknown            unknown
 *
 *   a: HELD: GONE; else QUEUED.
 *
 * Why the holes are closed:
 *   - An acquire's reply is lost. Each acquire compares the revision of the session's key, and a join changes it. So after the
 *     join is answered, the acquire was executed before, or never will be. The same acquire again finds the key, or puts it.
 *   - The same, and the caller gives up: after the join the key is deleted, whether or not it is there.
 *   - The session ends before the join: its lease is gone, so the acquire cannot be executed, and its key is gone.
 *   - The predecessor vanishes before it is watched. The watch begins at the revision of the look that showed it.
 *   - The event comes, and the own key has gone meanwhile. The look after the event shows the own key, or that it is not there.
 *   - Somebody deletes the own key. A waiting claim sees that when it looks next. A held one watches its key, from a tenth of a second
 *     on, and the core is told to look (host->doubt).
 *   - The caller gives up without a connection. The claim stays until a server said that there is no key, or that the session
 *     is over.
 *   - The core asks again after INDETERMINATE: the claim is still here, and serves the new op.
 *   - The holder is stopped past its ttl. The lease was LOST at its deadline. When the process runs again, the driver sees that the
 *     ttl passed without a renewal, and deletes the key. If it is stopped for longer, the servers end the session.
 *   - The servers refuse the delete (no right): the release says so, and the claim tries again after a pause. An unwanted claim
 *     keeps no session alive, so the key ends when nothing else is held or wanted.
 *   - Two shared claims with an exclusive one between them. The second one waits for the exclusive one: nobody overtakes.
 *   - The exclusive holder becomes shared while others wait. Its key, its revision and its token stay. Shared claims watch
 *     the last exclusive key before them for changes, too. A holder never becomes exclusive again.
 *   - Several permits come back at once, or others than the first ones: any event among the P keys before it makes a claim
 *     look again.
 *   - A release and the first requests of a new session cross the end of the old one: keys are named by grant, not by lease. */
