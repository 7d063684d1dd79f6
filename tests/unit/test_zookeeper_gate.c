/* test_zookeeper_gate.c - the gate of a semaphore: what becomes of a claim when something happens to its gate. */
#include "fake_zookeeper.h"
#include "suite.h"
#include "zookeeper_host.h"

#include <malloc.h>
#include <string.h>

#define CONNECT_TIMEOUT_MS 2000
#define ENOUGH 3000 /* rounds; far more than any run takes */

void __real_free(void *memory);
void __wrap_free(void *memory);

/* Whoever follows a pointer in freed memory does not get far. */
void __wrap_free(void *memory)
{
    if (memory != NULL)
        memset(memory, 0xa5, malloc_usable_size(memory));
    __real_free(memory);
}

/* Runs until nothing is left to run, with at most so many requests. How many there were. */
static int settle(int requests)
{
    int done = 0;
    while (run_posted() || (done < requests && fake_step() && ++done > 0))
        continue;
    return done;
}

static void open_semaphore(void)
{
    fake_reset(true);
    open_driver(true, CONNECT_TIMEOUT_MS);
    for (int i = 0; i < ENOUGH && !fake_connect(); i++)
        if (!run_posted())
            pass_time();
    settle(ENOUGH);
}

static void go_on(bool is_away)
{
    if (!run_posted() && (is_away || (!fake_connect() && !fake_step())))
        pass_time();
}

static bool finish(const mortise_op *op, bool is_away)
{
    for (int i = 0; i < ENOUGH && op->issuer == NULL; i++)
        go_on(is_away);
    return op->issuer != NULL;
}

/* Releases it, and lets the driver do what nobody waits for. */
static mortise_status leave(void)
{
    bool first;
    mortise_op op = op_of(MORTISE_OP_RELEASE, 1);
    start(&op);
    CU_ASSERT(finish(&op, false));
    for (int i = 0; i < 50; i++)
        go_on(false);
    CU_ASSERT_EQUAL(fake_contenders("/r/x/leases", &first), 0);
    CU_ASSERT_EQUAL(fake_contenders("/r/x/locks", &first), 0);
    settle(ENOUGH);
    close_driver();
    return op.status;
}

/* A try that has a gate and no node yet. Its caller gives up, so two names end at once. */
static void test_given_up_before_the_gate(void)
{
    int requests = 0;
    for (int at = 0; at <= requests + 1; at++) {
        mortise_op op = op_of(MORTISE_OP_ACQUIRE, 1);
        open_semaphore();
        op.flags = MORTISE_OP_TRY;
        start(&op);
        requests = settle(at);
        bool is_done = op.issuer != NULL;
        fake_cut(0);
        CU_ASSERT(finish(&op, true));
        if (!is_done)
            CU_ASSERT(op.status == MORTISE_UNREACHABLE || op.status == MORTISE_INDETERMINATE);
        leave();
    }
    CU_ASSERT(requests > 5);
}

/* A claim waits in the gate, and its caller fails because the servers are away. They come back before the core asks again. The
 * driver reports to the core that this acquire waits, although nothing has changed in the gate. */
static void test_asked_again(void)
{
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, 1);
    open_semaphore();
    fake_make("/r");
    fake_make("/r/x");
    fake_make("/r/x/locks");
    const char *rival = fake_make("/r/x/locks/_c_x-lock-");
    start(&op);
    settle(ENOUGH);
    fake_cut(0);
    CU_ASSERT(finish(&op, true));
    CU_ASSERT_EQUAL(op.status, MORTISE_INDETERMINATE);
    CU_ASSERT(fake_connect());
    settle(ENOUGH);
    told_to_wait = 0;
    op = op_of(MORTISE_OP_ACQUIRE, 1);
    op.flags = MORTISE_OP_REPEAT;
    start(&op);
    settle(ENOUGH);
    CU_ASSERT_EQUAL(told_to_wait, 1);
    CU_ASSERT_PTR_NULL(op.issuer);
    fake_delete(rival);
    CU_ASSERT(finish(&op, false));
    CU_ASSERT_EQUAL(op.status, MORTISE_OK);
    CU_ASSERT_EQUAL(leave(), MORTISE_OK);
}

/* Renewed after all that was heard. */
static mortise_status renewed(void)
{
    mortise_op op = op_of(MORTISE_OP_RENEW, 1);
    settle(ENOUGH);
    start(&op);
    CU_ASSERT(finish(&op, false));
    return op.status;
}

/* Somebody deletes the node in the gate of an exclusive lease, and perhaps the session ends or is abandoned, too. The lease is
 * LOST; its other node stays until the holder is told that, or has released it, and not longer. */
static void test_gate_is_deleted(void)
{
    enum { NOTHING, RELEASED, REPEATED, EXPIRES, IS_ABANDONED, ALL };
    for (int then = NOTHING; then < ALL; then++) {
        bool first;
        mortise_op op = op_of(MORTISE_OP_ACQUIRE, 1);
        open_semaphore();
        start(&op);
        CU_ASSERT(finish(&op, false));
        CU_ASSERT_EQUAL(op.status, MORTISE_OK);
        for (int i = 0; i < 20; i++) /* until it watches its nodes */
            go_on(false);
        CU_ASSERT_EQUAL(renewed(), MORTISE_OK);
        CU_ASSERT_EQUAL(fake_contenders("/r/x/locks", &first), 1);
        CU_ASSERT(fake_delete_first("/r/x/locks"));
        settle(ENOUGH);
        CU_ASSERT_EQUAL(fake_contenders("/r/x/leases", &first), 1);
        if (then == REPEATED) { /* an acquire under the same grant comes again */
            mortise_op again = op_of(MORTISE_OP_ACQUIRE, 1);
            again.flags = MORTISE_OP_REPEAT;
            start(&again);
            CU_ASSERT_PTR_NOT_NULL(again.issuer);
            CU_ASSERT_EQUAL(again.status, MORTISE_BUSY);
        }
        if (then == EXPIRES)
            fake_expire();
        else if (then == IS_ABANDONED) {
            fake_cut(0);
            for (int64_t from_ns = now_ns; now_ns - from_ns < 2 * FAKE_TIMEOUT_MS * MS;)
                go_on(true);
        }
        if (then != RELEASED)
            CU_ASSERT_EQUAL(renewed(), MORTISE_LOST);
        if (then == NOTHING) {
            settle(ENOUGH);
            CU_ASSERT_EQUAL(fake_contenders("/r/x/leases", &first), 0);
        }
        CU_ASSERT_EQUAL(leave(), MORTISE_LOST);
    }
}

static mortise_info inspect(void)
{
    mortise_info info = {.size = sizeof(info)};
    mortise_op op = op_of(MORTISE_OP_INSPECT, 0);
    op.info = &info;
    start(&op);
    CU_ASSERT(finish(&op, false));
    CU_ASSERT_EQUAL(op.status, MORTISE_OK);
    return info;
}

static mortise_status break_lease(uint64_t token)
{
    mortise_op op = op_of(MORTISE_OP_RELEASE, 0);
    op.flags = MORTISE_OP_BREAK;
    op.token = token;
    start(&op);
    CU_ASSERT(finish(&op, false));
    return op.status;
}

static mortise_op acquire_beside_kazoo(void)
{
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, 1);
    semaphore_style = KAZOO_SEMAPHORE;
    open_semaphore();
    semaphore_style = CURATOR_SEMAPHORE;
    fake_make("/r");
    fake_make("/r/x");
    CU_ASSERT(fake_delete(fake_make("/r/x/first-"))); /* the number of ours is not 0 */
    return op;
}

/* The leases of kazoo have no number. A lease that was made shared holds beside those that came later; an exclusive one that
 * waits for an earlier one holds nothing. */
static void test_leases_of_kazoo(void)
{
    static const char lease[] = "/r/x/0123456789abcdef0123456789abcdef";
    mortise_op op = acquire_beside_kazoo();
    start(&op);
    CU_ASSERT(finish(&op, false));
    CU_ASSERT_EQUAL_FATAL(op.status, MORTISE_OK);
    mortise_op shared = op_of(MORTISE_OP_RENEW, 1);
    shared.flags = MORTISE_OP_DOWNGRADE;
    start(&shared);
    CU_ASSERT(finish(&shared, false));
    CU_ASSERT_EQUAL(shared.status, MORTISE_OK);
    fake_make(lease);
    mortise_info info = inspect();
    CU_ASSERT_EQUAL(info.holders, 2);
    CU_ASSERT_EQUAL(info.mode, MORTISE_SHARED);
    CU_ASSERT_EQUAL(info.token, op.token);
    CU_ASSERT_EQUAL(break_lease(op.token), MORTISE_OK);
    CU_ASSERT_EQUAL(inspect().holders, 1);
    CU_ASSERT_EQUAL(leave(), MORTISE_LOST);

    op = acquire_beside_kazoo();
    fake_make(lease);
    start(&op);
    settle(ENOUGH);
    CU_ASSERT_PTR_NULL(op.issuer);
    info = inspect();
    CU_ASSERT_EQUAL(info.holders, 1);
    CU_ASSERT_EQUAL(info.waiters, 1);
    CU_ASSERT_EQUAL(info.mode, MORTISE_SHARED);
    CU_ASSERT(fake_delete(lease));
    CU_ASSERT(finish(&op, false));
    CU_ASSERT_EQUAL(op.status, MORTISE_OK);
    info = inspect();
    CU_ASSERT_EQUAL(info.mode, MORTISE_EXCLUSIVE);
    CU_ASSERT_EQUAL(info.token, op.token);
    CU_ASSERT_EQUAL(leave(), MORTISE_OK);
}

int main(void)
{
    CU_TestInfo tests[] = {{"given up before the gate", test_given_up_before_the_gate},
                           {"asked again at the gate", test_asked_again},
                           {"gate is deleted", test_gate_is_deleted},
                           {"leases of kazoo", test_leases_of_kazoo},
                           CU_TEST_INFO_NULL};
    return suite_run("zookeeper gate", tests);
}
