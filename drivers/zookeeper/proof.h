/* proof.h - until when the session is proven to live in the servers.
 *
 * Only the servers expire a session, and they do not tell a client that is cut off. A follower tells its leader once in
 * half a tick which sessions it has heard from. So the session *beats*: it writes to a node of its own, one beat after the
 * other (beat.h), ten times in a timeout while anything is held, four times while something is wanted (pace.h). When the beats
 * P, Q and R were answered, Q sent half a tick or more after the answer to P, and R sent after the answer to Q, then the leader
 * has heard of the session after P was sent:
 *   - A leader with a quorum committed P. It pings the follower within half a tick of that commit: before Q reaches it, and
 *     before it answers Q to the follower (one link, in order).
 *   - So the follower has answered that ping, which names the session, before it answered Q to the client, and before it
 *     forwards R (one link, in order).
 *   - R was committed: the leader had read the answer to the ping, and still had a quorum.
 * Hence the session expires no earlier than the sending of P + timeout. A later leader starts all sessions with their full
 * timeout, after a quorum has left the leader that committed R.
 *
 * Which timeout? Each server has limits of its own, and grants a timeout at each connection. The leader counts with that of the
 * connection that it last heard of, and an expiry moves to an earlier instant too; a later leader counts with that of the
 * making. So the smallest one that was granted in this session counts. A connection with a smaller one takes back what was
 * proven: the leader has heard of it after the newest beat before it was sent (a beat that is known to be answered or lost by
 * then), so the session expires no earlier than that + the smaller timeout. A lease that was told more (`told_ns`) cannot be
 * told less: the core only extends deadlines. If the deadline passes before beats prove more, the driver says that it
 * is LOST (lease.c). If the reply to the connection is lost, nobody can know: docs/promises.md asks for equal limits.
 *
 * Nothing in this depends on how far the beats are apart, or on what was sent between them: any three beats of one connection
 * with these two distances are a proof, and without them there is none. So a pace can be chosen freely, and an extra
 * beat at any time is safe. Three are needed: without P's answer nobody knows that there was a leader then; without the
 * answer to Q the ping may still be on its way to the follower; without R its answer may be on its way to the leader.
 *
 * The making of a session is a write of the leader: it counts at once, from before it was asked for.
 *
 * A leader checks and touches the session at a reconnection, but without a quorum. So a reconnection counts when the first
 * beat behind it is answered, from before the last beat that was known to be answered or lost before the connection stood.
 * While there is no connection the driver sends beats all the same, and they are lost, so that this instant is recent.
 *
 * The deadline is 1 % and 2 ms earlier than that. Instants are of CLOCK_BOOTTIME and taken before sending, so a process
 * that was stopped, or a machine that slept, does not shift them.
 *
 * Pure arithmetic on instants; session.c sends the beats. */
#ifndef MORTISE_ZOOKEEPER_PROOF_H
#define MORTISE_ZOOKEEPER_PROOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROOF_BEATS 8 /* how many are kept: enough for the candidates of one proof */

struct proof {
    int64_t timeout_ns;   /* the smallest that was granted; 0: not connected yet */
    int64_t half_tick_ns; /* a follower reports to its leader at least this often */
    int64_t deadline_ns;  /* 0: nothing is proven */
    int64_t told_ns;      /* what was proven before a smaller timeout took it back; 0: that did not happen */
    int64_t newest_ns;    /* when the newest beat was sent that was answered or lost */
    int64_t resumed_ns; /* what the first beat answered on this connection will prove; 0: nothing */
    size_t count;       /* of beats on this connection; the last ones are kept in: */
    struct {
        int64_t sent_ns, answered_ns;
    } beats[PROOF_BEATS];
};

/* A session is about to be made. */
void proof_begin(struct proof *proof, int64_t now_ns);
/* The session is connected, for the first time or again. tick_ms 0: unknown, so the longest that servers allow. */
void proof_connected(struct proof *proof, int64_t timeout_ms, int64_t tick_ms);
/* A beat that was sent then was answered, or will never be. */
void proof_answered(struct proof *proof, int64_t sent_ns, int64_t now_ns);
void proof_unanswered(struct proof *proof, int64_t sent_ns);

#endif
