/* client_internal.h - what client.c, open.c, close.c and watchdog.c share. Nobody else's. */
#ifndef MORTISE_CORE_CLIENT_INSIDE_H
#define MORTISE_CORE_CLIENT_INSIDE_H

#include "client/core.h"

#define STUCK_MS 1000 /* what has not ended after its time and this much more is stuck */

/* OPEN -> CLOSES -> ENDED; or CLOSES -> LINGERS, if callbacks were left, and back with each further close. */
enum close_phase { PHASE_OPEN, PHASE_CLOSES, PHASE_LINGERS, PHASE_ENDED };

/* No call is a cancellation point: a thread that ended inside one would take locks with it. */
void client_begin_call(void);
void client_end_call(void);
/* client_leave() without the end of the call. */
void client_count_out(struct client *client);
/* The handle is one of this client, and the client is being closed. Any thread, also when the client is gone. */
bool client_is_closing(struct client *client, const mortise_client *handle);
/* Wakes the other threads that close the client, too. */
void client_set_phase(struct client *client, uint32_t phase);
/* Sleeps, until it is woken, while the word has this value; false: it is until_ns already. */
bool client_sleep_while(_Atomic uint32_t *word, uint32_t value, int64_t until_ns);
/* Every call that had entered has left; false: one is stuck. */
bool client_wait_for_users(struct client *client, int64_t until_ns);

#endif
