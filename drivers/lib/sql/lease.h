/* lease.h - acquire, renew and release, step by step. */
#ifndef MORTISE_SQL_LEASE_H
#define MORTISE_SQL_LEASE_H

#include "dialect.h"

/* Sets the first step. */
void lease_begin(struct sql_request *request);
/* The op is about to be canceled while a step is with the server. The step may change something that concerns
 * waiters, so the request keeps the name. */
void lease_abandon(struct sql_request *request);
enum sql_next lease_step(struct sql_request *request);
void lease_tell(struct sql_request *request);

#endif
