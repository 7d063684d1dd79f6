/* test_redis_greeting.c - the first requests on a connection to Redis: what a server says of itself, and whether an older
 * connection is known to have ended there. */
#include "redis_link_test.h"

/* The connection breaks, a request is under way, and it is made anew. */
static void connect_again(void)
{
    struct call call;
    call_put(&owner.link, &call, "SET");
    owner_turn(&owner);
    server_hang_up(&server);
    owner_turn(&owner);
    CU_ASSERT_EQUAL(call.losses, 1);
    CU_ASSERT_EQUAL(call.loss, LINK_LOST);
    server.killed_id = 0;
    now_ns += 1000 * MS;
    bring_up(&owner, &server);
}

static void test_ended(void)
{
    begin();
    bring_up(&owner, &server);
    CU_ASSERT_TRUE(link_settled(&owner.link));
    for (int i = 0; i < 3; i++) {
        connect_again();
        CU_ASSERT_EQUAL(server.killed_id, server.id - 1);
        CU_ASSERT_TRUE(link_settled(&owner.link));
    }
    end();
}

/* It does not say which connection this is: that one cannot be ended later, and no other one is in its place. */
static void test_hidden_id(void)
{
    begin();
    bring_up(&owner, &server);
    server.hides_id = true;
    connect_again();
    CU_ASSERT_EQUAL(server.killed_id, server.id - 1);
    CU_ASSERT_TRUE(link_settled(&owner.link));
    connect_again();
    CU_ASSERT_EQUAL(server.killed_id, 0);
    CU_ASSERT_FALSE(link_settled(&owner.link));
    end();
}

/* Once it does not permit that. The next time it does, but nobody knows any more which the first one was. */
static void test_refused_once(void)
{
    begin();
    bring_up(&owner, &server);
    server.kill = "-NOPERM this user has no permissions to run the 'client|kill' command\r\n";
    connect_again();
    CU_ASSERT_EQUAL(server.killed_id, server.id - 1);
    CU_ASSERT_FALSE(link_settled(&owner.link));
    server.kill = ":1\r\n";
    connect_again();
    CU_ASSERT_FALSE(link_settled(&owner.link));
    end();
}

/* A server that does not say who it is: nobody knows whether it is the same one, so nothing is ended, and nothing settled. */
static void test_unknown(void)
{
    for (int at_first = 0; at_first <= 1; at_first++) {
        begin();
        server.info = at_first ? INFO_7 : NULL;
        bring_up(&owner, &server);
        CU_ASSERT_TRUE(link_settled(&owner.link));
        CU_ASSERT_STRING_EQUAL(owner.link.version, at_first ? "7.0.0" : "");
        server.info = NULL;
        connect_again();
        CU_ASSERT_STRING_EQUAL(owner.link.version, ""); /* that of another one is not its own */
        CU_ASSERT_EQUAL(server.killed_id, 0);
        CU_ASSERT_FALSE(link_settled(&owner.link));
        end();
    }
}

/* ---- other processes ------------------------------------------------------------------------------- */

static char infos[LINK_PASTS + 6][64];

static void be_process(int which)
{
    snprintf(infos[which], sizeof infos[which], "redis_version:7.0.0\r\nrun_id:process%d\r\n",
             which);
    server.info = infos[which];
}

/* One address may lead to several processes, of which one is the primary at a time. What was left at another one is settled
 * here, and is ended when the link comes back to it. */
static void test_several_processes(void)
{
    begin();
    owner.settings.primary = owner.settings.role_optional = true;
    be_process(0);
    bring_up(&owner, &server);
    int first = server.id;
    for (int i = 1; i <= 2; i++) {
        be_process(i);
        connect_again();
        CU_ASSERT_EQUAL(server.killed_id, 0);
        CU_ASSERT_TRUE(link_settled(&owner.link));
    }
    for (int i = 0; i <= 1; i++) {
        be_process(i);
        connect_again();
        CU_ASSERT_EQUAL(server.killed_id, first + i);
        CU_ASSERT_TRUE(link_settled(&owner.link));
    }
    end();
}

/* Of too many processes the oldest are forgotten, and the others are not. */
static void test_many_processes(void)
{
    const int count = sizeof infos / sizeof *infos;
    begin();
    owner.settings.primary = owner.settings.role_optional = true;
    be_process(0);
    bring_up(&owner, &server);
    int first = server.id;
    for (int i = 1; i < count; i++) {
        be_process(i);
        connect_again();
        CU_ASSERT_TRUE(link_settled(&owner.link));
    }
    be_process(count - 2);
    connect_again();
    CU_ASSERT_EQUAL(server.killed_id, first + count - 2);
    be_process(count - LINK_PASTS + 2);
    connect_again();
    CU_ASSERT_EQUAL(server.killed_id, first + count - LINK_PASTS + 2);
    be_process(0);
    connect_again();
    CU_ASSERT_EQUAL(server.killed_id, 0);
    end();
}

/* A link to one server, which is another process by now: the one before is gone, and does not come back. */
static void test_one_server(void)
{
    begin();
    be_process(0);
    bring_up(&owner, &server);
    for (int i = 1; i >= 0; i--) {
        be_process(i);
        connect_again();
        CU_ASSERT_EQUAL(server.killed_id, 0);
        CU_ASSERT_TRUE(link_settled(&owner.link));
    }
    end();
}

/* ---- versions --------------------------------------------------------------------------------------- */

static void test_version(void)
{
    static const struct {
        const char *info, *refusal;
        bool redirects;
    } all[] = {
        {"redis_version:4.0.14\r\n", "Redis 5.0 or later is needed; this is 4.0.14", false},
        {"redis_version:5.0.0\r\n", NULL, false},
        {"redis_version:6.2.9\r\nredis_mode:cluster\r\n",
         "a cluster needs Redis 7.0.3 or later; this is 6.2.9", true},
        {"redis_version:7.0.0\r\nredis_mode:cluster\r\n",
         "a cluster needs Redis 7.0.3 or later; this is 7.0.0", true},
        {"redis_version:7.0.2\r\nredis_mode:cluster\r\n",
         "a cluster needs Redis 7.0.3 or later; this is 7.0.2", true},
        {"redis_version:7.0.2\r\nredis_mode:cluster\r\n", NULL, false},
        {"redis_version:7.0.2\r\nredis_mode:standalone\r\n", NULL, true},
        {"redis_version:7.0.3\r\nredis_mode:cluster\r\n", NULL, true},
        {"redis_version:7.0.15\r\nredis_mode:cluster\r\n", NULL, true},
        {"redis_version:7.2.0\r\nredis_mode:cluster\r\n", NULL, true},
        {"redis_version:6.2.9\r\nredis_mode:cluster\r\n", NULL, false},
        {"redis_version:6.2.9\r\nredis_mode:standalone\r\n", NULL, true},
        {"redis_version:7.2.4\r\nserver_name:valkey\r\nserver_mode:cluster\r\n", NULL, true},
        {"redis_version:10.0.0\r\nredis_mode:cluster\r\n", NULL, true},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        begin();
        server.info = all[i].info;
        owner.settings.redirects = all[i].redirects;
        link_want(&owner.link);
        talk(&owner, &server);
        CU_ASSERT_EQUAL(owner.ups, all[i].refusal == NULL);
        CU_ASSERT_EQUAL(owner.downs, all[i].refusal != NULL);
        if (all[i].refusal != NULL) {
            CU_ASSERT_PTR_NOT_NULL(strstr(owner.fault.text, all[i].refusal));
            CU_ASSERT_FALSE(owner.fault.retryable);
        }
        end();
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"the old connection is ended", test_ended},
        {"a connection without an id", test_hidden_id},
        {"that is refused, once", test_refused_once},
        {"a server that does not say who it is", test_unknown},
        {"several processes", test_several_processes},
        {"too many processes", test_many_processes},
        {"a server that started anew", test_one_server},
        {"versions", test_version},
        CU_TEST_INFO_NULL,
    };
    return link_tests_run("redis_greeting", tests);
}
