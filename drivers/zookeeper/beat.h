/* beat.h - the beats of a session: writes to a node of its own, which prove until when the session lives (proof.h), sent at the
 * pace of pace.h. session.h says when a session beats at all.
 *
 *   PLANNED  none is on its way; the next one is sent when it is due, or never (the session rests)
 *   OUT      one is on its way; no other is sent before that one is answered or lost
 *
 *   event                            PLANNED                        OUT
 *   due                              sent: OUT; no memory: PLANNED  -
 *   answered                         -                              PLANNED; a proof
 *   no node, or no folder for it     -                              PLANNED; the leader heard of the session all the same.
 *                                                                   Again at once, and makes them; four times, then at the pace
 *   lost, the session goes on        -                              PLANNED; no proof. Its instant counts at the reconnection
 *   a claim looks, or needs proof    perhaps sent: OUT (pace.h)     perhaps an extra one is due then
 *   connected                        sent: OUT                      the library sends it on this connection, or has lost it
 *   connection lost                  due at once                    lost, as soon as the library says so
 *   the client rests                 never due                      -
 *
 * Why the deadline is always before the end of the session in the servers: a deadline is the instant *before the sending* of a
 * beat P, plus the timeout, less the margin (proof.h); it never counts from an answer. So:
 *   - The reply of a beat is lost: the beat proves nothing. It was OUT, so the next beat is sent behind the loss, and the
 *     renewals fail (SUSPECT) from an eighth of the timeout on. Whether the server executed it does not matter.
 *   - The process is stopped, perhaps for longer than the session lasts. Instants are taken before sending, on CLOCK_BOOTTIME,
 *     so a stop between the two makes the deadline earlier. Answers that were waiting prove beats from before the stop, whose
 *     deadlines have passed: the lease is LOST before anything else runs. If a beat was due, it is sent when the process goes
 *     on; the servers answer that the session has expired.
 *   - The machine sleeps: the same, because CLOCK_BOOTTIME goes on. No wall clock is used, neither the client's nor the
 *     servers'.
 *   - The server is restarted, or the session moves to another one. The connection is another one, so no beat of the old
 *     one is a P, Q or R of the new one (proof.count). The first answer there proves the newest beat that was answered or
 *     lost before. A server that is restarted alone has its sessions with their full timeout.
 *   - The first acquire after a long idle time, while the connection is half dead. A resting client uses no old proof: the
 *     claim gets a new session (session.h), and so another connection. If queries are open in the old one, the claim waits for
 *     their end: at most until the library notices that the server is silent, two thirds of a timeout.
 *   - The first look after a long *wait*. A waiter has made steps, so its extra beat is an R. If the connection is half dead,
 *     the look has no answer either. If the list is answered and the beat is not, the earlier proof still has at least the
 *     tenth of a timeout that claim_grant() wants, or the grant waits.
 *   - The answers of a look and of the beat behind it come in one turn, or the list alone. The grant may be made with the
 *     earlier proof, which is shorter, but true. The next renewal is answered from the newer one.
 *   - If two beats were out at once, R could be sent before the answer to Q. So there is only one at a time. */
#ifndef MORTISE_ZOOKEEPER_BEAT_H
#define MORTISE_ZOOKEEPER_BEAT_H

#include "pace.h"
#include "proof.h"

enum beat_state { BEAT_PLANNED, BEAT_OUT };

struct beats {
    enum beat_state state;
    struct pace pace;
    struct proof proof;
    unsigned failures; /* how often there was no node to beat with */
};

struct driver;
struct session;

/* A session is about to be made. */
void beats_begin(struct session *session, int64_t now_ns);
void beats_connected(struct driver *driver, int64_t now_ns);
void beats_suspended(struct driver *driver, int64_t now_ns);
/* Sends a beat if one is due. */
void beats_turn(struct driver *driver, int64_t now_ns);
/* A claim looks at its folder. If the beat follows the request of the look, it does not delay the look; if it precedes it,
 * it is also its barrier. */
void beats_look(struct driver *driver);
/* A claim could be granted, if the session were proven for longer. */
void beats_need(struct driver *driver);
bool beats_are_due(const struct session *session, int64_t now_ns);
/* When a beat is due; NEVER: one is out, or none is planned. */
int64_t beats_due(const struct session *session);
/* Whether a beat is out that should have been answered. */
bool beats_are_late(const struct driver *driver, int64_t now_ns);

#endif
