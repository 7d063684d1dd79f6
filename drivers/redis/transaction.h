/* transaction.h - what transaction.c (WATCH, read, MULTI, write, EXEC) and decide.c (what follows from what
 * was read) share. Nobody else's. */
#ifndef MORTISE_DRIVERS_REDIS_TRANSACTION_H
#define MORTISE_DRIVERS_REDIS_TRANSACTION_H

#include "internal.h"

/* What was read for an op. */
struct view {
    const redisReply *state; /* GET or HGETALL of the lock; GET of a record */
    const redisReply *pttl;  /* of the lock */
    const redisReply *token; /* GET of the token */
    uint64_t now_us;
    int64_t read_ns; /* before that was asked */
};

/* What is to be written, in one MULTI; nothing if the op has been completed. */
struct plan {
    unsigned commands; /* 0: the op is completed */
    bool frees;        /* PUBLISH behind it */
    int64_t answer;    /* RELEASE: as lease_released() takes it */
    uint64_t token;    /* ACQUIRE */
    uint64_t version;  /* WRITE */
};

/* Decides, and appends the commands behind MULTI, or completes the op. Called twice with the same view:
 * first with put = false, to count. */
struct plan decide(struct driver *driver, mortise_op *op, const struct view *view, bool put);

#endif
