/* test_explain.c - what the message of a failed acquire says about the holder: what the backend reported, and nothing
 * else. */
#include "rig.h"

static struct rig rig;
static struct outcome got;

static bool busy_by_somebody(mortise_op *op)
{
    if (op->kind != MORTISE_OP_ACQUIRE)
        return false;
    op->info->held = true;
    snprintf(op->info->host, sizeof(op->info->host), "there");
    op->info->pid = 7;
    tapped_host()->complete(tapped_host(), op, MORTISE_BUSY);
    return true;
}

/* A backend that does not tell since when: neither does the message. */
static void test_unknown_since(void)
{
    rig_open(&rig, "ttl = 3s\n");
    tap(&rig);
    tap_answer = busy_by_somebody;
    want(&rig, &got, "a", TRY);
    CU_ASSERT_EQUAL(got.status, MORTISE_BUSY);
    CU_ASSERT_STRING_EQUAL(got.error.message, "\"a\" is held by there (pid 7)");
    want(&rig, &got, "a", MORTISE_OPTIONS(.wait_ms = 300));
    advance_ms(300);
    CU_ASSERT_EQUAL(got.status, MORTISE_TIMEDOUT);
    CU_ASSERT_STRING_EQUAL(got.error.message,
                           "\"a\" is held by there (pid 7); gave up after 300 ms");
    rig_close(&rig);
}

static unsigned answers;

/* Names the holder to the first who asks, and nobody later. */
static bool busy_by_somebody_first(mortise_op *op)
{
    if (op->kind != MORTISE_OP_ACQUIRE)
        return false;
    op->info->held = answers++ == 0;
    snprintf(op->info->host, sizeof(op->info->host), "there");
    op->info->pid = 7;
    op->info->held_ms = 31000;
    tapped_host()->complete(tapped_host(), op, MORTISE_BUSY);
    return true;
}

/* The last answer does not say who holds it: it need not be the one of before. */
static void test_unknown_holder(void)
{
    rig_open(&rig, "ttl = 3s\n");
    tap(&rig);
    tap_answer = busy_by_somebody_first;
    want(&rig, &got, "a", MORTISE_OPTIONS(.wait_ms = 300));
    advance_ms(300);
    CU_ASSERT(answers >= 2);
    CU_ASSERT_EQUAL(got.status, MORTISE_TIMEDOUT);
    CU_ASSERT_STRING_EQUAL(got.error.message, "\"a\" is held by another; gave up after 300 ms");
    rig_close(&rig);
}

/* Of "a" the driver knows the holder, of the others that there is one. */
static bool busy_by_known_of_a(mortise_op *op)
{
    if (op->kind != MORTISE_OP_ACQUIRE)
        return false;
    op->info->held = true;
    if (op->name[op->name_len - 1] == 'a') {
        snprintf(op->info->host, sizeof(op->info->host), "there");
        op->info->pid = 7;
    }
    tapped_host()->complete(tapped_host(), op, MORTISE_BUSY);
    return true;
}

/* The holder of one name is not named as that of another. */
static void test_other_name(void)
{
    rig_open(&rig, "ttl = 3s\n");
    tap(&rig);
    tap_answer = busy_by_known_of_a;
    want(&rig, &got, "a", TRY);
    CU_ASSERT_EQUAL(got.status, MORTISE_BUSY);
    CU_ASSERT_STRING_EQUAL(got.error.message, "\"a\" is held by there (pid 7)");
    want(&rig, &got, "b", TRY);
    CU_ASSERT_EQUAL(got.status, MORTISE_BUSY);
    CU_ASSERT_STRING_EQUAL(got.error.message, "\"b\" is held by another");
    rig_close(&rig);
}

static mortise_op *kept;

static bool keep_acquire(mortise_op *op)
{
    if (op->kind != MORTISE_OP_ACQUIRE)
        return false;
    kept = op;
    return true;
}

static void report_waiting(void *ctx, void *argument)
{
    (void)ctx;
    (void)argument;
    tapped_host()->waiting(tapped_host(), kept);
}

static void give_up_kept(void *ctx, void *argument)
{
    (void)ctx;
    (void)argument;
    tapped_host()->complete(tapped_host(), kept, MORTISE_CANCELED);
}

static void in_the_pump(void (*run)(void *ctx, void *argument))
{
    tapped_host()->post(tapped_host(), run, NULL);
    settle();
}

static bool grant_one(mortise_op *op)
{
    if (op->kind == MORTISE_OP_ACQUIRE)
        tap_answer = keep_acquire;
    return false;
}

/* A backend with a queue of its own says that the caller must wait, and not for whom: it need not be the holder of before, for
 * whom a caller of the same process waited. */
static void test_queued(void)
{
    static struct outcome first;

    rig_open(&rig, "ttl = 3s\n");
    tap(&rig);
    tap_answer = busy_by_somebody;
    want(&rig, &first, "a", MORTISE_OPTIONS(.wait_ms = 60000));
    want(&rig, &got, "a", MORTISE_OPTIONS(.wait_ms = 60000));
    tap_answer = grant_one;
    advance_ms(40000);
    CU_ASSERT_EQUAL(first.status, MORTISE_OK);
    in_the_pump(report_waiting);
    advance_ms(20000);
    CU_ASSERT_EQUAL(got.status, MORTISE_TIMEDOUT);
    CU_ASSERT_STRING_EQUAL(got.error.message, "\"a\" is held by another; gave up after 60000 ms");
    in_the_pump(give_up_kept);
    rig_close(&rig);
}

/* No answer has come: nobody knows whether another holds it. */
static void test_no_answer(void)
{
    rig_open(&rig, "ttl = 3s\n");
    tap(&rig);
    tap_answer = keep_acquire;
    want(&rig, &got, "a", MORTISE_OPTIONS(.wait_ms = 300));
    advance_ms(300);
    CU_ASSERT_EQUAL(got.status, MORTISE_TIMEDOUT);
    CU_ASSERT_STRING_EQUAL(got.error.message, "acquire \"a\": timed out after 300 ms");
    in_the_pump(give_up_kept);
    rig_close(&rig);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"held since an unknown time", test_unknown_since},
        {"held by an unknown holder", test_unknown_holder},
        {"of another name", test_other_name},
        {"in the backend's queue", test_queued},
        {"no answer", test_no_answer},
        CU_TEST_INFO_NULL,
    };
    return rig_run("explain", tests);
}
