/* node.h - what a client has at one server, as a whole; see node.c. */
#ifndef MORTISE_DRIVERS_REDIS_NODE_H
#define MORTISE_DRIVERS_REDIS_NODE_H

#include "redis.h"

#define NODE_LINKS 3

/* Opens a driver whose settings are complete. It connects when the first op comes. */
void node_open(struct driver *driver, int64_t min_replicas, int64_t replica_timeout_ms);
/* A node of a cluster, with the settings of `like`; NULL: no memory. */
struct driver *node_new(const struct driver *like, const struct endpoint *at, int server);
void node_free(struct driver *driver);

size_t node_interest(const struct driver *driver, struct pollfd *fds, size_t capacity,
                     int64_t *due_ns);
void node_turn(struct driver *driver, const struct pollfd *ready, size_t n);
void node_flush(struct driver *driver);
/* Whether no request is under way there, and nothing waits. */
bool node_is_quiet(const struct driver *driver);
/* Whether, in addition, nothing is in doubt. */
bool node_is_idle(struct driver *driver);
/* Whether it may be freed: it is not connected, no look-up of its name is under way, it has been quiet for so long, and no
 * request that was lost there matters any more. */
bool node_is_gone(struct driver *driver, int64_t quiet_for_ns);
/* From now on, its connections are not made again if they break. */
void node_unwant(struct driver *driver);
/* Closes its connections. Only if nobody misses an answer. */
void node_rest(struct driver *driver);

#endif
