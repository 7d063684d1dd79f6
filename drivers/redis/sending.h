/* sending.h - what is sent for an op, by its kind. The link is up. */
#ifndef MORTISE_DRIVERS_REDIS_SENDING_H
#define MORTISE_DRIVERS_REDIS_SENDING_H

#include "redis.h"

/* ---- what is sent for an op: lease.c, renewal.c, inspect.c, list.c, record.c, transaction.c --------- */

void lease_acquire(struct driver *driver, mortise_op *op);
void lease_release(struct driver *driver, mortise_op *op);

void renewal_start(struct driver *driver, mortise_op **ops, size_t n);
void renewal_cancel(mortise_op *op);

void inspect_start(struct driver *driver, mortise_op *op);
void inspect_ping(struct driver *driver, mortise_op *op);
/* Goes on with a ping whose line is in op->buffer, and completes it. */
void findings_ask(struct request *request);
/* Reads a lock in one step: MULTI, GETRANGE or HGETALL, PTTL, TIME, with a queue its length, EXEC. In a cluster, a script does
 * that; first: it is the first of a call. Returns the number of replies; the last is EXEC's. */
void inspect_put(struct driver *driver, bool first, const char *key, size_t key_len);
unsigned inspect_replies(const struct driver *driver);
/* Takes the answer to EXEC. False: it makes no sense, or is no lock. */
bool inspect_take(const struct driver *driver, const redisReply *reply, mortise_info *info);

#define LIST_COUNTS (1u << 31) /* a flag of an op of the driver's own: see list.c */
void list_start(struct driver *driver, mortise_op *op);
void list_cancel(mortise_op *op);

void record_read(struct driver *driver, mortise_op *op);
void record_write(struct driver *driver, mortise_op *op);

bool transaction_open(struct driver *driver);
/* Begins the next transaction if none is under way, with an op from driver->waiting. */
void transaction_next(struct driver *driver);
void transaction_cancel(mortise_op *op);
/* An EXEC is about to be sent. True: UNWATCH must precede it, because a key that this connection watches could make it fail. */
bool transaction_disturb(struct driver *driver);

#endif
