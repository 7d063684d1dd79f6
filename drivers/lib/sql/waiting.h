/* waiting.h - callers of this client that wait, and waiters of other clients that it notifies. */
#ifndef MORTISE_SQL_WAITING_H
#define MORTISE_SQL_WAITING_H

#include "names.h"

/* An acquire put this client in the list; or it has the name now. */
void waiting_registered(struct sql_locks *locks, struct sql_name *name);
void waiting_left(struct sql_name *name);
/* Notifies the first of request->waiters, if request->answer asks for it, and looks after it. */
void waiting_wake(struct sql_request *request, const char *name, size_t name_len);
/* A waiter lost its place: it asks again. */
void waiting_passed_over(struct sql_request *request);
/* Released: callers of this client that wait behind its own claim are in no list. */
void waiting_released(struct sql_locks *locks, const char *name, size_t name_len);
/* Errands. */
enum sql_next waiting_step(struct sql_request *request);
void waiting_tell(struct sql_request *request);
void waiting_failed(struct sql_request *request);

#endif
