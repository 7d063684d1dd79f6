/* test_lists.c - work that waits for the next round of the pump: each piece is done once, and a piece that became
 * pointless meanwhile is removed without the others. */
#include "pump/pump_internal.h"
#include "rig.h"

static struct rig rig;
static struct outcome got;

/* ---- what modules post ------------------------------------------------------------------------------ */

static char ran[8];

static void note_run(void *ctx, void *argument)
{
    (void)ctx;
    strncat(ran, argument, sizeof(ran) - strlen(ran) - 1);
}

/* A module is closed while its neighbours' postings stand around its own. */
static void test_forgets_one_module(void)
{
    static struct instance leaver, stayer;
    static char names[] = "a\0b\0c\0d\0e";
    rig_open(&rig, "");
    struct pump *pump = &rig.client->pump;
    for (int i = 0; i < 5; i++)
        CU_ASSERT(pump_post(pump, i % 2 == 0 ? &stayer : &leaver, note_run, &names[2 * i]));
    pump_forget_posted(pump, &leaver);
    CU_ASSERT(pump_post(pump, &stayer, note_run, &names[2]));
    ran[0] = '\0';
    settle();
    CU_ASSERT_STRING_EQUAL(ran, "aceb");
    rig_close(&rig);
}

/* ---- cancels ---------------------------------------------------------------------------------------- */

static mortise_op *kept;
static int canceled;

static void count_cancel(void *ctx, mortise_op *op)
{
    (void)ctx;
    (void)op;
    canceled++;
}

/* Keeps the first acquire. At the second it is answered, and canceled before the answer is delivered. */
static bool answer_and_cancel(mortise_op *op)
{
    if (op->kind != MORTISE_OP_ACQUIRE)
        return false;
    if (kept == NULL) {
        kept = op;
        return true;
    }
    tap_answer = NULL;
    pump_cancel(&rig.client->pump, (struct task *)(void *)kept);
    tapped_host()->complete(tapped_host(), kept, MORTISE_BACKEND);
    return false;
}

static void test_canceled_too_late(void)
{
    struct outcome other;
    kept = NULL;
    canceled = 0;
    rig_open(&rig, "");
    tap(&rig);
    void (*cancel)(void *ctx, mortise_op *op) = rig.client->top->module.cancel;
    rig.client->top->module.cancel = count_cancel;
    tap_answer = answer_and_cancel;
    want(&rig, &got, "a",
         MORTISE_OPTIONS(.wait_ms = -1, .owner = "me")); /* such an op is freed at its end */
    CU_ASSERT_EQUAL(got.calls, 0);
    want(&rig, &other, "b", FOREVER);
    CU_ASSERT_EQUAL(got.status, MORTISE_BACKEND);
    CU_ASSERT_EQUAL_FATAL(other.status, MORTISE_OK);
    CU_ASSERT_EQUAL(canceled, 0); /* the driver does not hear of an op that it has given back */
    CU_ASSERT_PTR_NULL(rig.client->pump.cancels);
    CU_ASSERT_EQUAL(mortise_release(other.lease, NULL), MORTISE_OK);
    rig.client->top->module.cancel = cancel;
    rig_close(&rig);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"postings of a module that is closed", test_forgets_one_module},
        {"canceled when it was answered", test_canceled_too_late},
        CU_TEST_INFO_NULL,
    };
    return rig_run("lists", tests);
}
