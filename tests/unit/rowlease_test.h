/* rowlease_test.h - builds the input for the tests of the row-lease algorithm: ops, instants, inboxes, and one row
 * that all of them use. */
#ifndef MORTISE_TESTS_ROWLEASE_TEST_H
#define MORTISE_TESTS_ROWLEASE_TEST_H

#include "rowlease.h"

#include <CUnit/CUnit.h>
#include <stdlib.h>
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

/* ---- a client on a random walk ------------------------------------------------------------------- */

struct believer { /* what a client must believe, by the answers it got */
    bool holds;
    const char *owner;
    uint64_t token;
    int64_t until_us;
};

static inline void step(struct believer *all, int i, int64_t now, uint64_t *last_token)
{
    static const char *const owners[] = {NULL, NULL, "ann", "bob"};
    struct believer *one = &all[i];
    struct rowlease_inbox inbox = inbox_of(i + 1);
    int64_t stopped = rand() % 4 == 0 ? rand() % (2 * S) : 0; /* its clock was read so long ago */
    int64_t then = now - stopped, before = one->until_us;
    struct rowlease_answer answer;
    switch (rand() % 4) {
    case 0:
        if (one->holds && one->until_us > now)
            break;
        one->owner = owners[rand() % 4];
        answer = acquire(1000 + i, one->owner, 50 + rand() % 3000, then, &inbox);
        one->holds = answer.status == MORTISE_OK;
        one->token = answer.token;
        one->until_us = answer.from_us + answer.good_for_ms * 1000;
        CU_ASSERT_TRUE(!one->holds || answer.token >= *last_token);
        CU_ASSERT_TRUE(!one->holds || one->owner != NULL || !answer.write ||
                       answer.token > *last_token);
        if (one->holds)
            *last_token = answer.token;
        break;
    case 1:
        if (!one->holds)
            break;
        answer = renew(1000 + i, one->owner, one->token, 50 + rand() % 3000, then);
        CU_ASSERT_TRUE(answer.status == MORTISE_OK || before <= now);
        if (answer.status == MORTISE_OK) {
            one->until_us = answer.from_us + answer.good_for_ms * 1000;
            CU_ASSERT_TRUE(one->until_us > before - 1000);
        }
        break;
    case 2:
        answer = release(1000 + i, one->owner, one->token, then);
        CU_ASSERT_TRUE(answer.status == MORTISE_OK || !one->holds || before <= now);
        one->holds = false;
        break;
    default:
        rowlease_forget(&row, at(then), &inbox, 1);
    }
}

#endif
