/* failover.h - two servers, a primary and its replica, for backend_net.c. */
#ifndef MORTISE_TESTS_REPLAY_FAILOVER_H
#define MORTISE_TESTS_REPLAY_FAILOVER_H

#include "plan.h"
#include "server.h"

/* Adds to those that the server has. */
void failover_arguments(struct server *server);
/* The network is there. Returns when the replica has the primary's data. */
void failover_begin(void);
/* False: it is a step of another kind. */
bool failover_cause(const struct step *step);
/* Everything was repaired. Returns when the replica is in step. */
void failover_calm(void);

#endif
