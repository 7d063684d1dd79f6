/* client_inside.h - what client.c, open.c and close.c share. Nobody else's. */
#ifndef MORTISE_CORE_CLIENT_INSIDE_H
#define MORTISE_CORE_CLIENT_INSIDE_H

#include "core.h"

#define STUCK_MS 1000 /* what has not ended after its time and this much more is stuck */

/* OPEN -> CLOSES -> ENDED; or CLOSES -> LINGERS, if callbacks were left, and back with each further close. */
enum close_phase { PHASE_OPEN, PHASE_CLOSES, PHASE_LINGERS, PHASE_ENDED };

/* No call is a cancellation point: a thread that ended inside one would take locks with it. */
void client_begin_call(void);
void client_end_call(void);
/* client_leave() without the end of the call. */
void client_count_out(struct client *client);
/* Every call that had entered has left; false: one is stuck. */
bool client_wait_for_users(struct client *client, int64_t until_ns);
/* False: the kernel gives none. */
bool client_refill_random(struct client *client);

#endif
