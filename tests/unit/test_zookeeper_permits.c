/* test_zookeeper_permits.c - a waiter for one of P permits watches P nodes: what it asks for when one of them changes, and that it
 * hears of each of them, whoever watched it first. */
#include "fake_zookeeper.h"
#include "suite.h"
#include "zookeeper_host.h"

#include <stdio.h>

#define RIVALS 10

static char rivals[RIVALS][256]; /* paths of other clients' nodes */

static void settle(void)
{
    while (run_posted() || fake_step())
        continue;
}

static void run_all(void)
{
    while (run_posted())
        continue;
}

static bool finish(const mortise_op *op)
{
    for (int i = 0; i < 1000 && op->issuer == NULL; i++)
        if (!run_posted() && !fake_connect() && !fake_step())
            pass_time();
    return op->issuer != NULL;
}

static void finish_with(mortise_op *op, mortise_status status)
{
    CU_ASSERT(finish(op));
    CU_ASSERT_EQUAL(op->status, status);
}

static mortise_op ask(unsigned char grant, uint32_t permits)
{
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, grant);
    op.mode = MORTISE_SHARED;
    op.permits = permits;
    return op;
}

static void rivals_come(int from, int to, unsigned permits)
{
    char path[64];
    snprintf(path, sizeof(path), "/r/x/_c_x-1-s%u-mortise-lock-", permits);
    for (int i = from; i < to; i++)
        snprintf(rivals[i], sizeof(rivals[i]), "%s", fake_make(path));
}

static void open_connected(void)
{
    fake_reset(true);
    fake_make("/r");
    fake_make("/r/x");
    open_driver(false, HOUR_MS);
    while (!fake_connect())
        if (!run_posted())
            pass_time();
    settle();
}

/* Waits behind these rivals. How many nodes it asks for is known. */
static void open_and_wait(mortise_op *op, int count, unsigned permits)
{
    open_connected();
    rivals_come(0, count, permits);
    int before = fake_gets;
    *op = ask(1, permits);
    start(op);
    settle();
    CU_ASSERT_PTR_NULL(op->issuer);
    CU_ASSERT_EQUAL(fake_gets - before, (int)permits);
}

static void release(unsigned char grant, mortise_status status)
{
    mortise_op op = op_of(MORTISE_OP_RELEASE, grant);
    start(&op);
    finish_with(&op, status);
}

static void end(void)
{
    settle();
    close_driver();
}

/* How many nodes are asked for until nothing is left to do. */
static int asked(void)
{
    int before = fake_gets;
    settle();
    return fake_gets - before;
}

static void test_one_read_for_a_release(void)
{
    mortise_op op;
    open_and_wait(&op, RIVALS, 8);
    CU_ASSERT(fake_delete(rivals[5]));
    CU_ASSERT_EQUAL(asked(), 1); /* of rivals[1], which is the eighth before it now */
    fake_write(rivals[7], "__REVOKE__");
    CU_ASSERT_EQUAL(asked(), 1); /* the event has ended its watch */
    CU_ASSERT(fake_delete(rivals[0]));
    CU_ASSERT_EQUAL(asked(), 0);
    CU_ASSERT_PTR_NULL(op.issuer);
    CU_ASSERT(fake_delete(rivals[7]));
    CU_ASSERT_EQUAL(asked(), 0);
    finish_with(&op, MORTISE_OK);
    release(1, MORTISE_OK);
    end();
}

/* It waits for the nodes that another claim has watched, and that one gives up. */
static void test_watched_by_another_claim(void)
{
    mortise_op op, behind = ask(2, 2);
    open_and_wait(&op, 2, 2);
    start(&behind);
    CU_ASSERT_EQUAL(asked(), 1); /* of the other claim's node */
    module->cancel(driver_ctx, &op);
    CU_ASSERT_EQUAL(asked(), 0);
    CU_ASSERT_PTR_NULL(behind.issuer);
    CU_ASSERT(fake_delete(rivals[0]));
    finish_with(&behind, MORTISE_OK);
    release(2, MORTISE_OK);
    end();
}

/* A holder has asked for a watch on its own node. The waiter has found it in the folder, and the node ends before there is an
 * answer: so there is no watch, and no event. */
static void test_watch_on_its_way(void)
{
    mortise_op held = ask(1, 2), waits = ask(2, 2);
    bool first;
    open_connected();
    start(&held);
    finish_with(&held, MORTISE_OK);
    settle();
    rivals_come(0, 1, 2);
    int before = fake_gets;
    start(&waits);
    for (int i = 0; i < 100 && fake_gets == before; i++) /* until the holder looks at its node */
        pass_time();
    CU_ASSERT_EQUAL(fake_gets, before + 1);
    CU_ASSERT(fake_step()); /* the create, and the list */
    CU_ASSERT(fake_step());
    CU_ASSERT_EQUAL(fake_contenders("/r/x", &first), 3);
    CU_ASSERT(fake_delete_first("/r/x"));
    finish_with(&waits, MORTISE_OK);
    release(1, MORTISE_LOST);
    release(2, MORTISE_OK);
    end();
}

static void test_made_anew(void)
{
    mortise_op op;
    open_and_wait(&op, 2, 2);
    CU_ASSERT(fake_delete(rivals[0]));
    CU_ASSERT_PTR_NOT_NULL(fake_make(rivals[0]));
    CU_ASSERT_EQUAL(asked(), 1);
    CU_ASSERT_PTR_NULL(op.issuer);
    CU_ASSERT(fake_delete(rivals[0]));
    finish_with(&op, MORTISE_OK);
    release(1, MORTISE_OK);
    end();
}

/* Over another connection, and in another session, all are asked for again. */
static void test_connected_again(void)
{
    for (int expires = 0; expires < 2; expires++) {
        mortise_op op;
        open_and_wait(&op, 2, 2);
        int before = fake_gets;
        CU_ASSERT(expires ? fake_expire() : fake_cut(0));
        run_all();
        while (!fake_connect())
            if (!run_posted())
                pass_time();
        settle();
        CU_ASSERT_EQUAL(fake_gets - before, 2);
        CU_ASSERT_PTR_NULL(op.issuer);
        CU_ASSERT(fake_delete(rivals[1]));
        finish_with(&op, MORTISE_OK);
        release(1, MORTISE_OK);
        end();
    }
}

int main(void)
{
    CU_TestInfo tests[] = {{"one read for a release", test_one_read_for_a_release},
                           {"watched by another claim", test_watched_by_another_claim},
                           {"a watch that is on its way", test_watch_on_its_way},
                           {"a node is made anew", test_made_anew},
                           {"connected again", test_connected_again},
                           CU_TEST_INFO_NULL};
    return suite_run("zookeeper permits", tests);
}
