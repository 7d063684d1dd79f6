/* shared.h - shared holders of a lock; see shared.c. */
#ifndef MORTISE_DRIVERS_REDIS_SHARED_H
#define MORTISE_DRIVERS_REDIS_SHARED_H

#include "redis.h"

#define SHARED_FLOOR                                                                               \
    UINT64_C(9999999999999999) /* of a shared place; the real one stands in its note */

/* The keys and arguments of an acquire. wish: NULL for none. */
void shared_put_acquire(struct request *request, const char *wish);
/* The answer says that other holders have given another number of permits: the op was failed. */
bool shared_mismatch(struct request *request, const redisReply *reply);
/* An exclusive acquire that waits, and can have no place in a queue, is BUSY because of shared holders: it bars new ones first.
 * False: not so. */
bool shared_bar(struct request *request, const redisReply *reply);
/* What the answer to an acquire that is refused says of shared holders. */
void shared_describe(const redisReply *reply, mortise_info *info);
/* What a lock is that is read as a value or as fields. */
bool shared_is_marker(const redisReply *held);
/* Ends a shared holder, by its grant or by its token; the request goes on with it. */
void shared_release(struct request *request);
void shared_downgrade(struct driver *driver, mortise_op *op);
/* Asks who shares the lock, as the next command of a call: one reply. With its text, if it is the first of them. */
void shared_put_look(struct driver *driver, bool first, bool asking, const char *key,
                     size_t key_len);
/* What it answers: info of the holder at `index`. False: there are not so many. */
bool shared_take(const struct driver *driver, const redisReply *reply, size_t index,
                 mortise_info *info);
/* Nobody shares it, but a marker stands, which belongs to holders that are void. */
bool shared_is_broken(const redisReply *reply);

#endif
