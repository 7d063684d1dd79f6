/* proof.h - until when the session is proven to live in the servers.
 *
 * Only the servers expire a session, and a client that is cut off does not learn it. A follower tells its leader once in half a
 * tick which sessions it has heard from. So the session *beats*: it writes to a node of its own, one beat after the other
 * (beat.h), ten times in a timeout while anything is held, four times while something is wanted (pace.h). Suppose that the
 * beats P, Q and R were answered, that Q was sent half a tick or more after the answer to P, and R after the answer to Q. Then
 * the leader has heard of the session after P was sent:
 *   - A leader with a quorum committed P. It pings the follower within half a tick of that commit: before Q reaches it, and
 *     before it answers Q to the follower (one link, in order).
 *   - So the follower has answered that ping, which names the session, before it answered Q to the client, and before it
 *     forwards R (one link, in order).
 *   - R was committed: the leader had read the answer to the ping, and still had a quorum.
 * So the session expires no earlier than the sending of P + timeout. A later leader starts all sessions with their full
 * timeout, after a quorum has left the leader that committed R.
 *
 * Which timeout? Each server has limits of its own, and grants a timeout at each connection. The leader uses the timeout of the
 * connection that it last heard of, and that can also make an expiry earlier. A later leader uses the timeout with which the
 * session was made. So the smallest one that was granted in this session counts. A connection with a smaller timeout takes back
 * what was proven. The leader has heard of this connection after the sending of the newest earlier beat (one that is known to
 * be answered or lost by then), so the session expires no earlier than that sending + the smaller timeout. The deadline of a
 * lease that was told more (`told_ns`) cannot be shortened, because the core only extends deadlines. If the deadline passes
 * before beats prove more, the driver says that it is LOST (lease.c). If the reply to the connection is lost, nobody can know:
 * docs/promises.md asks for equal limits.
 *
 * None of this depends on how far apart the beats are, or on what was sent between them: any three beats of one connection with
 * these two distances are a proof, and without such beats there is none. So a pace can be chosen freely, and an extra beat at
 * any time is safe. Three beats are needed. Without P's answer, nobody knows that there was a leader at that time. Without the
 * answer to Q, the ping may still be on its way to the follower. Without R, the ping's answer may still be on its way to the
 * leader.
 *
 * Making a session is a write of the leader, so it counts at once, from before the request was sent.
 *
 * A leader checks and touches the session at a reconnection, but without a quorum. So a reconnection counts only when the first
 * beat after it is answered. It counts from before the last beat that was known to be answered or lost before the connection
 * was made. While there is no connection, the driver keeps sending beats, which are lost, so that this instant is recent.
 *
 * The deadline is 1 % and 2 ms earlier than that. Instants are of CLOCK_BOOTTIME and taken before sending, so a process
 * that was stopped, or a machine that slept, does not shift them.
 *
 * This file only calculates with instants; beat.c sends the beats. */
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
    int64_t told_ns;      /* the proof that a smaller timeout took back; 0: none did */
    int64_t newest_ns;    /* when the newest beat was sent that was answered or lost */
    int64_t resumed_ns; /* what the first answered beat of this connection will prove; 0: nothing */
    size_t count;       /* of beats on this connection; the last ones are kept in: */
    struct {
        int64_t sent_ns, answered_ns;
    } beats[PROOF_BEATS];
};

/* A session is about to be made. */
void proof_begin(struct proof *proof, int64_t now_ns);
/* The session is connected, for the first time or again. tick_ms 0: unknown, so the longest one that servers allow is
 * assumed. */
void proof_connected(struct proof *proof, int64_t timeout_ms, int64_t tick_ms);
/* A beat that was sent at that instant was answered, or will never be. */
void proof_answered(struct proof *proof, int64_t sent_ns, int64_t now_ns);
void proof_unanswered(struct proof *proof, int64_t sent_ns);

#endif
