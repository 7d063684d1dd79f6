/* transaction_part.h - one op of a transaction; see transaction_part.c. Only for transaction.c. */
#ifndef MORTISE_DRIVERS_REDIS_TRANSACTION_PART_H
#define MORTISE_DRIVERS_REDIS_TRANSACTION_PART_H

#include "redis.h"

/* The time of a transaction's reading. */
struct moment {
    struct driver *driver;
    uint64_t now_us; /* in the server */
    int64_t read_ns; /* before it was sent: a grant counts from here (R1) */
};

/* An op of the transaction, and what was read for it. */
struct part {
    mortise_op *op; /* NULL: canceled, or completed */
    mortise_grant_id grant;
    int64_t ttl_ms;
    int64_t remaining_ms; /* as PTTL says it */
    uint64_t
        number; /* the number to write: an acquire's token, a record's version; 0: no token is left */
};

/* The caller completes the op. */
mortise_op *part_take_out(struct part *part);

/* How many keys an op of this kind watches. part_put_keys() puts them as the next arguments. */
unsigned part_keys(mortise_op_kind kind);
void part_put_keys(const struct moment *at, const struct part *part);
/* How many commands it reads with. part_put_reads() puts them. */
unsigned part_reads(mortise_op_kind kind);
void part_put_reads(const struct moment *at, const struct part *part);
/* Takes a reply to one of them; `left` more follow. After the last one, the op is completed, or left to be written. */
void part_take(const struct moment *at, struct part *part, unsigned left, const redisReply *reply);
/* How many commands it writes with. part_put_writes() puts them. */
unsigned part_writes(mortise_op_kind kind);
void part_put_writes(const struct moment *at, const struct part *part);
/* EXEC answered these commands: completes the op. */
void part_tell(const struct moment *at, struct part *part, redisReply *const *results);

#endif
