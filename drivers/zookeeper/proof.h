/* proof.h - until when the session is proven to live in the servers. internal.h tells why this is right.
 *
 * Pure arithmetic on instants; whoever holds it sends the beats. */
#ifndef MORTISE_ZOOKEEPER_PROOF_H
#define MORTISE_ZOOKEEPER_PROOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROOF_BEATS 8 /* that are remembered: enough for the candidates of one proof */

struct proof {
    int64_t timeout_ns;   /* of the session, as the server granted it; 0: there is none yet */
    int64_t half_tick_ns; /* within which a follower tells its leader who was heard of */
    int64_t deadline_ns;  /* 0: nothing is proven */
    int64_t newest_ns;    /* when the newest beat was sent whose fate is known */
    int64_t resumed_ns; /* what the first beat answered on this connection will prove; 0: nothing */
    size_t count;       /* of beats of this connection, the last ones kept in: */
    struct {
        int64_t sent_ns, answered_ns;
    } beats[PROOF_BEATS];
};

/* A session is about to be asked for. */
void proof_begin(struct proof *proof, int64_t now_ns);
/* The connection stands: a new session's first, or one more of the same; timeout and tick as they are now.
 * tick_ms 0: not known, as long as servers allow. */
void proof_connected(struct proof *proof, int64_t timeout_ms, int64_t tick_ms);
/* A beat that was sent then was answered, or is known never to be. */
void proof_answered(struct proof *proof, int64_t sent_ns, int64_t now_ns);
void proof_unanswered(struct proof *proof, int64_t sent_ns);

#endif
