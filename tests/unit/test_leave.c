/* test_leave.c - the last request of a client, to a plugin that keeps something in the backend: it comes after all
 * other requests, and the close waits for its answer and reports it. */
#include "close_test.h"

static mortise_op *asked_to_leave;
static uint64_t claims_then;

static void leave_later(void *ctx, mortise_op *op)
{
    (void)ctx;
    claims_then = sim->claims();
    asked_to_leave = op;
}

static void open_with(void (*leave)(void *ctx, mortise_op *op))
{
    asked_to_leave = NULL;
    rig_open_real(&rig, "ttl = 30s\nclose_timeout = 20s\n");
    rig.client->top->module.leave = leave;
}

static void answer(mortise_op *op, mortise_status status)
{
    mortise_host *host = &rig.client->top->host;
    host->complete(host, op, status);
}

static void leave_at_once(void *ctx, mortise_op *op)
{
    leave_later(ctx, op);
    answer(op, MORTISE_OK);
}

static void test_comes_last(void)
{
    mortise_lease *lease;
    open_with(leave_at_once);
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a", TRY, &lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(sim->claims(), 1);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
    CU_ASSERT_PTR_NOT_NULL(asked_to_leave);
    CU_ASSERT_EQUAL(claims_then, 0);
}

static void leave_in_vain(void *ctx, mortise_op *op)
{
    leave_later(ctx, op);
    answer(op, MORTISE_UNREACHABLE);
}

static void test_failure_is_told(void)
{
    mortise_error error = {.message = ""};
    open_with(leave_in_vain);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, &error), MORTISE_UNREACHABLE);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "driver sim"));
}

/* ---- an answer that takes a turn ------------------------------------------------------------------- */

static size_t due_at_once(void *ctx, struct pollfd *fds, size_t capacity, int64_t *due_ns)
{
    (void)ctx;
    (void)fds;
    (void)capacity;
    if (asked_to_leave != NULL)
        *due_ns = clock_now();
    return 0;
}

static void answer_in_turn(void *ctx, const struct pollfd *ready, size_t n)
{
    (void)ctx;
    (void)ready;
    (void)n;
    if (asked_to_leave != NULL)
        answer(asked_to_leave, MORTISE_OK);
    asked_to_leave = NULL;
}

/* Nobody but the close waits for it: it gives the plugin its turns. */
static void test_turns_go_on(void)
{
    open_with(leave_later);
    rig.client->top->module.interest = due_at_once;
    rig.client->top->module.turn = answer_in_turn;
    int64_t from_ms = test_now_ms();
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
    CU_ASSERT(test_now_ms() - from_ms < 15000);
    CU_ASSERT_PTR_NULL(asked_to_leave);
}

/* ---- a close that is called again ------------------------------------------------------------------ */

/* What the first call found out is told by the one that ends the client, with the driver's name. */
static void test_told_by_the_last_close(void)
{
    struct outcome got;
    mortise_error error = {.message = ""};
    rig_open(&rig, CONFIG);
    rig.client->top->module.leave = leave_in_vain;
    sim->seize("a", MORTISE_NEVER);
    want(&rig, &got, "a", FOREVER);
    rig_forget(&rig);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, &error), MORTISE_CLOSING); /* a callback waits */
    while (mortise_dispatch(rig.handle) > 0)
        ;
    CU_ASSERT_EQUAL(got.status, MORTISE_CLOSED);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, &error), MORTISE_UNREACHABLE);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "driver sim"));
    sim->give_back("a");
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"it comes after all releases", test_comes_last},
        {"its failure is the close's", test_failure_is_told},
        {"it is given turns", test_turns_go_on},
        {"the last close tells", test_told_by_the_last_close},
        CU_TEST_INFO_NULL,
    };
    return rig_run("leave", tests);
}
