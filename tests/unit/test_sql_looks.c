/* test_sql_looks.c - when a caller that nobody notifies looks, after its own client has released the name. */
#include "sql_remote_test.h"
#include "suite.h"

#define MS NS_PER_MS

static mortise_op waiter;

/* It has looked so often in vain, and pauses. Returns until when. */
static int64_t look_in_vain(int looks)
{
    for (int i = 0; i <= looks; i++) {
        waiter = rig_op(MORTISE_OP_ACQUIRE, 2);
        waiter.flags = i > 0 ? MORTISE_OP_AGAIN : 0;
        rig_start(&waiter);
        if (i == looks)
            break;
        rig_answer();
        CU_ASSERT_EQUAL(completed, MORTISE_BUSY);
        if (i + 1 < looks)
            now_ns += waiter.hint_ms * MS;
    }
    CU_ASSERT_EQUAL_FATAL(main_link.group_count, 0);
    CU_ASSERT_PTR_NOT_NULL_FATAL(main_link.queue[LANE_READING]);
    return main_link.queue[LANE_READING]->not_before_ns;
}

/* Another caller of the client releases the name. Returns when the one that waits looks. */
static int64_t release(void)
{
    mortise_op op = rig_op(MORTISE_OP_RELEASE, 1);
    op.token = 5;
    rig_start(&op);
    rig_answer();
    rig_answer();
    CU_ASSERT_EQUAL(completed, MORTISE_OK);
    CU_ASSERT_EQUAL(table.grants_len, 0);
    return main_link.queue[LANE_READING]->not_before_ns;
}

static void end(int64_t due_ns)
{
    now_ns = due_ns - 1;
    remote_go(remote);
    CU_ASSERT_EQUAL(main_link.group_count, 0);
    now_ns = due_ns;
    remote_go(remote);
    CU_ASSERT_EQUAL(main_link.group_count, 1);
    completed = MORTISE_BUSY;
    rig_answer();
    rig_answer();
    CU_ASSERT_EQUAL(completed, MORTISE_OK);
    rig_end();
}

/* It would look in more than 0.8 s. */
static void test_soon(void)
{
    rig_begin(false);
    int64_t due_ns = look_in_vain(16);
    CU_ASSERT(due_ns > now_ns + 800 * MS);
    due_ns = release();
    CU_ASSERT(due_ns >= now_ns + 400 * MS && due_ns <= now_ns + 800 * MS);
    end(due_ns);
}

/* It looks within 0.8 s: nothing changes, or those of other clients would find the name free less often. */
static void test_no_sooner(void)
{
    for (int looks = 1; looks <= 15; looks++) {
        rig_begin(false);
        int64_t due_ns = look_in_vain(looks);
        CU_ASSERT(due_ns > now_ns && due_ns <= now_ns + 800 * MS);
        CU_ASSERT_EQUAL(release(), due_ns);
        end(due_ns);
    }
}

/* The name is another one. */
static void test_another(void)
{
    rig_begin(false);
    int64_t due_ns = look_in_vain(16);
    mortise_op op = rig_op(MORTISE_OP_RELEASE, 1);
    op.name = "game";
    op.token = 5;
    rig_start(&op);
    rig_answer();
    rig_answer();
    CU_ASSERT_EQUAL(main_link.queue[LANE_READING]->not_before_ns, due_ns);
    end(due_ns);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a long pause ends soon", test_soon},
        {"no sooner than the others", test_no_sooner},
        {"another name", test_another},
        CU_TEST_INFO_NULL,
    };
    return suite_run("sql looks", tests);
}
