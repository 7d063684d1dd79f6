/* test_sql_looks.c - when a caller that nobody notifies looks, after its own client has released or downgraded the name. */
#include "sql_remote_test.h"
#include "suite.h"

#include <stdio.h>

#define MS NS_PER_MS

static mortise_op waiter;
static mortise_mode mode; /* that it waits for */

/* It has looked so often in vain, and pauses. Returns until when. */
static int64_t look_in_vain(int looks)
{
    for (int i = 0; i <= looks; i++) {
        waiter = rig_op(MORTISE_OP_ACQUIRE, 2);
        waiter.mode = mode;
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

/* Another caller of the client has done this. Returns when the one that waits looks. */
static int64_t after(mortise_op_kind kind, uint32_t flags)
{
    mortise_op op = rig_op(kind, 1);
    op.token = (uint64_t)table.version;
    op.flags = flags;
    rig_start(&op);
    rig_answer();
    rig_answer();
    CU_ASSERT_EQUAL(completed, MORTISE_OK);
    return main_link.queue[LANE_READING]->not_before_ns;
}

static int64_t release(void)
{
    int64_t due_ns = after(MORTISE_OP_RELEASE, 0);
    CU_ASSERT_EQUAL(table.grants_len, 0);
    return due_ns;
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

/* Another caller of the client has been granted the name since the look was put off: with it, the client forgot how often it had
 * looked in vain. */
static void test_granted_meanwhile(void)
{
    rig_begin(false);
    int64_t due_ns = look_in_vain(16);
    table.grants_len = 0;
    CU_ASSERT_EQUAL(after(MORTISE_OP_ACQUIRE, MORTISE_OP_TRY), due_ns);
    due_ns = release();
    CU_ASSERT(due_ns >= now_ns + 400 * MS && due_ns <= now_ns + 800 * MS);
    now_ns += 100 * MS; /* and again: no sooner */
    CU_ASSERT_EQUAL(after(MORTISE_OP_ACQUIRE, MORTISE_OP_TRY), due_ns);
    CU_ASSERT_EQUAL(release(), due_ns);
    end(due_ns);
}

/* It waits for a shared lease, and the exclusive one becomes shared. */
static void test_downgrade(void)
{
    mode = MORTISE_SHARED;
    rig_begin(false);
    int64_t due_ns = look_in_vain(16);
    CU_ASSERT(due_ns > now_ns + 800 * MS);
    CU_ASSERT_EQUAL(after(MORTISE_OP_RENEW, 0), due_ns);
    due_ns = after(MORTISE_OP_RENEW, MORTISE_OP_DOWNGRADE);
    CU_ASSERT(due_ns >= now_ns + 400 * MS && due_ns <= now_ns + 800 * MS);
    end(due_ns);
    mode = MORTISE_EXCLUSIVE;
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

static void ask(int number)
{
    static char name[16];
    waiter = rig_op(MORTISE_OP_ACQUIRE, 2);
    waiter.name = name;
    waiter.name_len = (size_t)snprintf(name, sizeof name, "n%d", number);
    rig_start(&waiter);
    rig_answer();
}

/* Returns the pause after it, in ms. */
static int64_t look_at(int number)
{
    ask(number);
    CU_ASSERT_EQUAL(completed, MORTISE_BUSY);
    return waiter.hint_ms;
}

/* At each of so many names. Returns the shortest pause. */
static int64_t look_at_all(int names)
{
    int64_t least_ms = INT64_MAX;
    now_ns += 1600 * MS;
    for (int i = 0; i < names; i++) {
        int64_t ms = look_at(i);
        least_ms = ms < least_ms ? ms : least_ms;
    }
    return least_ms;
}

/* One client waits for many names: it looks less and less often at each of them. */
static void test_many_names(void)
{
    rig_begin(false);
    for (int i = 0; i < 15; i++)
        look_at_all(300);
    CU_ASSERT(look_at_all(300) >= 800);
    rig_end();
}

/* It cannot remember that many: it looks a few times in a second at the others, and does so no more when they have been given up. */
static void test_too_many_names(void)
{
    enum { NAMES = 4 * SQL_LOOKS_MAX };
    rig_begin(false);
    for (int i = 0; i < 15; i++)
        look_at_all(NAMES);
    CU_ASSERT(look_at_all(NAMES) >= 200);
    now_ns += 10000 * MS;
    CU_ASSERT(look_at(NAMES) <= 40);
    rig_end();
}

/* It gets them one after the other, each after a moment. */
static void test_names_in_turn(void)
{
    rig_begin(false);
    struct rowlease_row held = table;
    for (int i = 0; i < 4 * SQL_LOOKS_MAX; i++) {
        table = held;
        CU_ASSERT(look_at(i) <= 40);
        table.grants_len = 0;
        ask(i);
        rig_answer();
        CU_ASSERT_EQUAL(completed, MORTISE_OK);
    }
    rig_end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a long pause ends soon", test_soon},
        {"granted to another caller meanwhile", test_granted_meanwhile},
        {"after a downgrade", test_downgrade},
        {"no sooner than the others", test_no_sooner},
        {"another name", test_another},
        {"many names", test_many_names},
        {"too many names", test_too_many_names},
        {"many names, one after the other", test_names_in_turn},
        CU_TEST_INFO_NULL,
    };
    return suite_run("sql looks", tests);
}
