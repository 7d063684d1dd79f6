/* test_sql_ghosts.c - which sessions of lost connections a client of a database server looks for, to end them. */
#include "sql_remote_test.h"
#include "suite.h"

/* The connection to session 7 is lost while a statement that writes is on its way, and the next one is to session 8. */
static void begin(void)
{
    rig_begin(false);
    struct request request = {.lane = LANE_LAZY};
    main_link.session = (struct session){.id = 7, .start = 100};
    ghost_make(&main_link, &request);
    CU_ASSERT_PTR_NOT_NULL_FATAL(remote->ghosts);
    main_link.session = (struct session){.id = 8, .start = 200};
    looked_for = 0;
}

/* A pooler gives the session to the second connection, which is ready, or will be soon. */
static void test_given_to_second(void)
{
    begin();
    live_link.session = (struct session){.id = 7, .start = 100};
    ghost_turn(remote);
    CU_ASSERT_EQUAL(looked_for, 0);
    CU_ASSERT_PTR_NULL(remote->ghosts);
    rig_end();
}

static void is_looked_for(struct session second)
{
    begin();
    live_link.session = second;
    ghost_turn(remote);
    CU_ASSERT_EQUAL(looked_for, 7);
    CU_ASSERT_PTR_NOT_NULL(remote->ghosts);
    rig_end();
}

/* The second connection is not there, or is to another session, be it one that has the number again or is at another server. */
static void test_looked_for(void)
{
    is_looked_for((struct session){.id = 0});
    is_looked_for((struct session){.id = 9, .start = 100});
    is_looked_for((struct session){.id = 7, .start = 300});
    is_looked_for((struct session){.id = 7, .start = 100, .peer = "other"});
    is_looked_for((struct session){.id = 7, .start = 100, .server = "other"});
}

/* The connection to session 8 is lost when a look has found session 7, and the statement that ends it was not sent yet. */
static void lose_unsent(void)
{
    begin();
    can_look = ends_session = true;
    ghost_turn(remote);
    remote_go(remote);
    CU_ASSERT_EQUAL(main_link.group_count, 1);
    come_in(&main_link, POLLIN);
    CU_ASSERT_EQUAL(main_link.group_count, 0);
    CU_ASSERT_PTR_NOT_NULL(main_link.queue[LANE_READING]);
    link_lose_why(&main_link, "closed");
    looked_for = 0;
    ends_session = false;
    CU_ASSERT_FATAL(link_poll(&main_link, ends[0]));
    main_link.state = LINK_READY;
}

/* The next connection is to another server: nothing is sent there. */
static void test_unsent_elsewhere(void)
{
    lose_unsent();
    main_link.session = (struct session){.id = 9, .server = "other"};
    ghost_turn(remote);
    remote_go(remote);
    CU_ASSERT_EQUAL(looked_for, 0);
    CU_ASSERT_EQUAL(main_link.group_count, 0);
    CU_ASSERT_PTR_NOT_NULL(remote->ghosts);
    rig_end();
}

/* It is to the same one: it looks again before it ends anything, and before any other statement, which may wait for a row that this
 * session keeps locked. */
static void test_unsent_here(void)
{
    lose_unsent();
    mortise_op op = rig_op(MORTISE_OP_ACQUIRE, 2);
    locks_start(&remote->locks, (mortise_op *[]){&op}, 1);
    main_link.session = (struct session){.id = 9};
    ghost_turn(remote);
    remote_go(remote);
    CU_ASSERT_EQUAL(looked_for, 7);
    CU_ASSERT_EQUAL(main_link.group_count, 1);
    rig_answer();
    CU_ASSERT_PTR_NULL(remote->ghosts);
    CU_ASSERT_EQUAL(completed, MORTISE_OK); /* nothing yet */
    rig_answer();
    CU_ASSERT_EQUAL(completed, MORTISE_BUSY);
    rig_end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"the second connection has it", test_given_to_second},
        {"nobody has it", test_looked_for},
        {"what was not sent, and another server", test_unsent_elsewhere},
        {"what was not sent, and the same server", test_unsent_here},
        CU_TEST_INFO_NULL,
    };
    return suite_run("sql ghosts", tests);
}
