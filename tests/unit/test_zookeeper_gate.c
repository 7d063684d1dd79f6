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
static void leave(void)
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

int main(void)
{
    CU_TestInfo tests[] = {{"given up before the gate", test_given_up_before_the_gate},
                           CU_TEST_INFO_NULL};
    return suite_run("zookeeper gate", tests);
}
