/* rowlease_test.h - builds what the tests of the row-lease algorithm hand in: ops, instants, inboxes, and one
 * row that all of them work on. */
#ifndef MORTISE_TESTS_ROWLEASE_TEST_H
#define MORTISE_TESTS_ROWLEASE_TEST_H

#include "rowlease.h"

#include <string.h>

#define S INT64_C(1000000) /* a second, in µs */
#define RESERVE (20 * INT64_C(1000))

static struct rowlease_row row;

static inline struct rowlease_time at(int64_t now_us)
{
    return (struct rowlease_time){
        .now_us = now_us, .wall_us = 1700000000 * S + now_us, .reserve_us = RESERVE};
}

static inline mortise_op op_of(mortise_op_kind kind, int grant, const char *owner, int64_t ttl_ms)
{
    mortise_op op;
    memset(&op, 0, sizeof(op));
    op.kind = kind;
    memcpy(op.grant.bytes, &grant, sizeof(grant));
    op.owner = owner;
    op.owner_len = owner != NULL ? strlen(owner) : 0;
    op.ttl_ms = ttl_ms;
    op.note = "host\n1\nprogram";
    op.note_len = strlen(op.note);
    return op;
}

static inline struct rowlease_inbox inbox_of(int number)
{
    struct rowlease_inbox inbox = {{0}};
    memcpy(inbox.bytes, &number, sizeof(number));
    return inbox;
}

static inline struct rowlease_answer acquire(int grant, const char *owner, int64_t ttl_ms,
                                             int64_t now, const struct rowlease_inbox *inbox)
{
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, grant, owner, ttl_ms);
    return rowlease_acquire(&row, &op, at(now), inbox);
}

static inline struct rowlease_answer renew(int grant, const char *owner, uint64_t token,
                                           int64_t ttl_ms, int64_t now)
{
    mortise_op op = op_of(MORTISE_OP_RENEW, grant, owner, ttl_ms);
    op.token = token;
    return rowlease_renew(&row, &op, at(now));
}

static inline struct rowlease_answer release(int grant, const char *owner, uint64_t token,
                                             int64_t now)
{
    mortise_op op = op_of(MORTISE_OP_RELEASE, grant, owner, 0);
    op.token = token;
    return rowlease_release(&row, &op, at(now));
}

static inline void clear(void)
{
    memset(&row, 0, sizeof(row));
}

#endif
