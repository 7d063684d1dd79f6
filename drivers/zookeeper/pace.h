/* pace.h - when a session beats. proof.h says what beats prove; this file says how often a client sends them.
 *
 * Any beats are safe, because the proof looks only at those that were answered, however far apart they are. The pace decides
 * only how long a lease is good for at least. With beats P, Q, R at equal distances, the answer to R proves P, and just before
 * the next answer P is three distances old. So fewer requests in a timeout mean less time that a lease lasts without any
 * answer:
 *
 *   beats in a timeout   a lease is good for, at the least
 *   10                   0.69 of the timeout (0.49, if the servers' tick is not known, or half of it is more than a tenth)
 *   3.9                  0.21
 *   3 (the pings of other libraries)   nothing
 *
 * A client that only waits makes *steps*, 3.9 in a timeout. Two steps are at least half a tick apart, counted from the answer
 * to the first, because an earlier second step would be useless as a Q. While something is held, the client also makes *extra*
 * beats, so that there are ten in a timeout: a holder must outlive the election of a leader. While claims look at their
 * folders, each look has an extra beat in its flight, up to ten in a timeout. So a lease that begins after a quiet time has
 * almost half of the timeout proven, as soon as that flight is answered. An extra beat does not move the next step (with one
 * exception, below). So extra beats never make a proof worse: between two steps that are near enough to prove each other, they
 * can only be a later Q, or a later P.
 *
 * If half a tick is a quarter of the timeout, the third extra beat is due soon after the step. Both would make 11.7 beats in a
 * timeout instead of ten, so a step *joins* the extra beat of a holder that is due less than a twentieth of the timeout later.
 * Then all beats of a holder are a tenth apart: Q is sent 0.3 after P, R 0.4 after P, and just before the next answer P is 0.5
 * old. (If the step did not join, P would be 0.46 old.) If the last lease ends with that beat, no extra beats follow, and the
 * next two steps leave at least 0.16 instead of 0.21. Nothing is held in that time, and a claim that looks brings a beat.
 *
 *   event                                    next step                       next extra beat
 *   a step was sent                          0.2575 of the timeout later     none
 *   a step was answered                      half a tick later at least      -
 *   an extra beat was sent                   -                               none
 *   a claim looks at its folder              -                               at once, if a tenth of the timeout has passed
 *                                                                            since the last beat
 *   a claim needs more proof for its grant   -                               a tenth of the timeout after the last beat
 *   answered, and something is held          with the extra beat, if it is   a tenth of the timeout after the last beat
 *                                            due a little before that
 *   the beat found no node to write to       -                               at once
 *   the connection is lost                   at once: its instant may count  none
 *   a beat without a connection              a tenth of the timeout later    none
 *   a connection, and no beat is out         at once                         -
 *   a connection, and one is out             a step later at most            -
 *   the client rests                         never                           none
 *
 * A session shorter than two ticks has no steps, because two of them would prove nothing. It beats ten times in a timeout. A
 * beat that is sent half a tick after the answer to the last step is a step, whatever its purpose. Only one beat is on its way
 * at a time; one that is due meanwhile is sent after its answer.
 *
 * This file only calculates with instants of CLOCK_BOOTTIME; beat.c sends. unit.zookeeper_proof tries this pace on its
 * model. */
#ifndef MORTISE_ZOOKEEPER_PACE_H
#define MORTISE_ZOOKEEPER_PACE_H

#include <stdbool.h>
#include <stdint.h>

struct pace {
    int64_t sent_ns;          /* the last beat; 0: none */
    int64_t step_answered_ns; /* the answer to the last step */
    int64_t step_due_ns;
    int64_t extra_due_ns;
    bool is_step; /* the last beat was one */
};

/* Instants that never come, as in MORTISE_NEVER. */
#define PACE_NEVER INT64_MAX

/* Begins: the first beat is due at once. */
void pace_begin(struct pace *pace, int64_t now_ns);
/* When the next beat is due, of either kind. */
int64_t pace_due(const struct pace *pace);
/* Notes that a beat was sent. The timeout and half a tick are those of proof.h. */
void pace_sent(struct pace *pace, bool connected, int64_t timeout_ns, int64_t half_tick_ns,
               int64_t now_ns);
/* holds: something is held. */
void pace_answered(struct pace *pace, bool holds, int64_t timeout_ns, int64_t half_tick_ns,
                   int64_t now_ns);
void pace_look(struct pace *pace, int64_t timeout_ns, int64_t now_ns);
void pace_need(struct pace *pace, int64_t timeout_ns);
/* The beat must be repeated. */
void pace_again(struct pace *pace, int64_t now_ns);
/* is_out: a beat is on its way, from before the connection. */
void pace_connected(struct pace *pace, bool is_out, int64_t timeout_ns, int64_t now_ns);
void pace_suspended(struct pace *pace, int64_t now_ns);
void pace_rest(struct pace *pace);

#endif
