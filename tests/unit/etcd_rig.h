/* etcd_rig.h - the etcd driver without a server: a host with a clock of its own, two sessions, claims in any state, and answers
 * that a test makes up. The calls wait for a token, so nothing is really sent. */
#ifndef MORTISE_TESTS_ETCD_RIG_H
#define MORTISE_TESTS_ETCD_RIG_H

#include "etcd/call.h"
#include "etcd/claim.h"
#include "etcd/query.h"

#define OLD_LEASE 1  /* of `last`, which is LEFT */
#define NEXT_LEASE 2 /* of `next`, which is LIVE */

extern struct driver driver;
extern struct session next, last;
extern int64_t now_ns;
extern unsigned doubts; /* how often the core was told to look */
extern char told[512];  /* the text of the last failure */
extern uint32_t drawn;  /* the next random number */

void begin(void);
void end_moves(void);
/* Its key was moved to `next`, perhaps, and its acquire is of `last`. */
struct claim *make_claim(enum claim_state state, enum move move);
/* The oldest call that was not answered. As link.c does it, which frees them at the end. own: the key that it shows. */
void answer_with(enum call_end end, struct kv *own);
void answer(enum call_end end);
/* The same for a look: the own key, and the queue, in which the own key may be. */
void answer_look(struct kv *own, const struct kvs *queue);

#endif
