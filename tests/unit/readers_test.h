/* readers_test.h - builds what the tests of shared holders hand in: shared acquires, renewals, releases, downgrades. */
#ifndef MORTISE_TESTS_READERS_TEST_H
#define MORTISE_TESTS_READERS_TEST_H

#include "rowlease_test.h"

static inline struct rowlease_answer ask(int grant, mortise_mode mode, uint32_t permits, int64_t ttl_ms,
                                  int64_t now, const struct rowlease_inbox *inbox)
{
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, grant, NULL, ttl_ms);
    op.mode = mode;
    op.permits = permits;
    return rowlease_acquire(&row, &op, at(now), inbox);
}

static inline struct rowlease_answer share(int grant, uint32_t permits, int64_t ttl_ms, int64_t now,
                                    const struct rowlease_inbox *inbox)
{
    return ask(grant, MORTISE_SHARED, permits, ttl_ms, now, inbox);
}

static inline mortise_op shared_op(mortise_op_kind kind, int grant, uint64_t token, int64_t ttl_ms)
{
    mortise_op op = op_of(kind, grant, NULL, ttl_ms);
    op.mode = MORTISE_SHARED;
    op.token = token;
    return op;
}

static inline struct rowlease_answer leave(int grant, uint64_t token, int64_t now)
{
    mortise_op op = shared_op(MORTISE_OP_RELEASE, grant, token, 0);
    return rowlease_release(&row, &op, at(now));
}

static inline struct rowlease_answer extend(int grant, uint64_t token, int64_t ttl_ms, int64_t now)
{
    mortise_op op = shared_op(MORTISE_OP_RENEW, grant, token, ttl_ms);
    return rowlease_renew(&row, &op, at(now));
}

static inline struct rowlease_answer downgrade(int grant, uint64_t token, int64_t ttl_ms, int64_t now)
{
    mortise_op op = op_of(MORTISE_OP_RENEW, grant, NULL, ttl_ms);
    op.token = token;
    op.flags = MORTISE_OP_DOWNGRADE;
    return rowlease_renew(&row, &op, at(now));
}

static inline struct rowlease_answer break_it(uint64_t token, int64_t now)
{
    mortise_op op = op_of(MORTISE_OP_RELEASE, 99, NULL, 0);
    op.flags = MORTISE_OP_BREAK;
    op.token = token;
    return rowlease_release(&row, &op, at(now));
}

static inline mortise_info info_at(int64_t now)
{
    mortise_info info;
    memset(&info, 'x', sizeof(info));
    rowlease_inspect(&row, now, &info);
    return info;
}

#endif
