/* waiting.h - callers of this client that wait, and waiters of other clients that it notifies. */
#ifndef MORTISE_SQL_WAITING_H
#define MORTISE_SQL_WAITING_H

#include "names.h"

/* An acquire put this client in the list; or it has the name now. */
void waiting_registered(struct sql_locks *locks, struct sql_name *name);
void waiting_left(struct sql_name *name);
/* If request->answer says so, notifies the first of request->waiters and plans its check, and notifies a waiter that
 * lost its place, so that it asks again. */
void waiting_wake(struct sql_request *request);
/* The name was released: tells callers of this client that wait behind its own claim, because they are in no list. */
void waiting_released(const struct sql_request *request);
/* Errands. */
enum sql_next waiting_step(struct sql_request *request);
void waiting_tell(struct sql_request *request);
void waiting_failed(struct sql_request *request);

#endif
