/* test_migrate_ask.c - a request that the module below completes while it is handed over, and that is canceled by then: the
 * module knows nothing of it any more. */
#include <support.h>

#include "internal.h"

#include <CUnit/Basic.h>

static bool completes;
static unsigned started, canceled;

/* As host->complete() does it: `done` comes later. */
static void start(void *ctx, mortise_op **ops, size_t n)
{
    (void)ctx;
    started += (unsigned)n;
    for (size_t i = 0; completes && i < n; i++)
        ops[i]->status = MORTISE_UNREACHABLE;
}

static void cancel(void *ctx, mortise_op *op)
{
    (void)ctx;
    (void)op;
    canceled++;
}

static void answered(struct ask *ask)
{
    (void)ask;
}

/* Sends a request within a call of the core's, and cancels it before the end of that call. */
static void send_and_cancel(void)
{
    static const mortise_module module = {.start = start, .cancel = cancel};
    mortise_below below = {.module = &module};
    struct migrate migrate = {.depth = 1};
    struct ask ask = {.migrate = &migrate, .side = MIGRATE_FROM, .answered = answered};
    started = canceled = 0;
    for (size_t i = 0; i < SIDES; i++) {
        migrate.sides[i].below = &below;
        migrate.sides[i].outbox_end = &migrate.sides[i].outbox;
    }
    ask_prepare(&ask, MORTISE_OP_READ);
    ask_send(&ask);
    CU_ASSERT_EQUAL(started, 0);
    ask_cancel(&ask);
    CU_ASSERT_EQUAL(started, 1);
}

static void test_completed(void)
{
    completes = true;
    send_and_cancel();
    CU_ASSERT_EQUAL(canceled, 0);
}

static void test_not_completed(void)
{
    completes = false;
    send_and_cancel();
    CU_ASSERT_EQUAL(canceled, 1);
}

int main(void)
{
    CU_initialize_registry();
    CU_pSuite suite = CU_add_suite("migrate_ask", NULL, NULL);
    CU_add_test(suite, "canceled, and completed at once", test_completed);
    CU_add_test(suite, "canceled", test_not_completed);
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    int failures = (int)CU_get_number_of_failures();
    CU_cleanup_registry();
    return failures > 0;
}
