/* shared.h - shared holders of a lock; see shared.c. */
#ifndef MORTISE_DRIVERS_REDIS_SHARED_H
#define MORTISE_DRIVERS_REDIS_SHARED_H

#include "redis.h"

#define SHARED_FLOOR                                                                               \
    UINT64_C(9999999999999999) /* of a shared place; the real one stands in its note */

/* The keys and arguments of an acquire. wish: NULL for none. */
void shared_put_acquire(struct request *request, const char *wish);
/* Whether the answer says that other holders have given another number of permits. If so, the op has been failed. */
bool shared_mismatch(struct request *request, const redisReply *reply);
/* If an exclusive acquire that waits, but can have no place in a queue, is BUSY because of shared holders, it bars new ones
 * first. False: that is not the case. */
bool shared_bar(struct request *request, const redisReply *reply);
/* Adds to *info what the answer to a refused acquire says about shared holders. */
void shared_describe(const redisReply *reply, mortise_info *info);
/* Whether the value or the fields of a lock are a marker. */
bool shared_is_marker(const redisReply *held);
/* Ends a shared holder, by its grant or by its token; the request goes on with it. */
void shared_release(struct request *request);
void shared_downgrade(struct driver *driver, mortise_op *op);
/* Puts the next command of a call, which asks for the shared holders; it has one reply. The first such command is sent with
 * the script's text. */
void shared_put_look(struct driver *driver, bool first, bool asking, const char *key,
                     size_t key_len);
/* Fills info with the holder at `index` of the answer. False: there are not so many. */
bool shared_take(const struct driver *driver, const redisReply *reply, size_t index,
                 mortise_info *info);
/* Whether nobody shares the lock although it has a marker, which then belongs to void holders. */
bool shared_is_broken(const redisReply *reply);

#endif
