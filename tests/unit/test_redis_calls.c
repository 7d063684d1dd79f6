/* test_redis_calls.c - what becomes of the calls on a connection to Redis: they are answered, lost or never sent when it breaks,
 * is left, rests or is closed. */
#include "redis_link_test.h"

/* ---- what is told of calls ------------------------------------------------------------------------- */

static struct call second;

static void break_it(void)
{
    struct link_fault fault = {.status = MORTISE_UNREACHABLE, .text = "on purpose"};
    call_put(&owner.link, &second, "SET");
    link_break(&owner.link, &fault);
    link_flush(&owner.link);
}

/* It is to be broken while a reply is being told: what was put before that never leaves. */
static void test_put_before_it_breaks(void)
{
    struct call first;
    begin();
    bring_up(&owner, &server);
    call_put(&owner.link, &first, "PING");
    first.then = break_it;
    owner_turn(&owner);
    CU_ASSERT_EQUAL(server_answer(&server), 1);
    owner_turn(&owner);
    CU_ASSERT_EQUAL(first.replies, 1);
    CU_ASSERT_EQUAL(second.losses, 1);
    CU_ASSERT_EQUAL(second.loss, LINK_NOT_SENT);
    CU_ASSERT_STRING_EQUAL(owner.fault.text, "on purpose");
    CU_ASSERT_EQUAL(server_answer(&server), 0);
    server_hang_up(&server);
    now_ns += 1000 * MS;
    bring_up(&owner, &server);
    CU_ASSERT_EQUAL(server.others, 1); /* nor by the next connection */
    end();
}

/* The requests of a call are copied to another link if nothing has been put behind them: else that would be copied too. */
static void test_copied(void)
{
    struct server other;
    struct owner to;
    struct call a, b, copy;
    begin();
    server_start(&other, "other");
    owner_begin(&to, other.at.sun_path);
    bring_up(&owner, &server);
    bring_up(&to, &other);
    call_put(&owner.link, &a, "A");
    call_begin(&to.link, &copy);
    CU_ASSERT_TRUE_FATAL(link_copy(&to.link, &owner.link, &a.call));
    link_call_end(&to.link, &copy.call, 1);
    call_put(&owner.link, &b, "B");
    CU_ASSERT_FALSE(link_copy(&to.link, &owner.link, &a.call));
    link_flush(&owner.link);
    CU_ASSERT_FALSE(link_copy(&to.link, &owner.link, &b.call)); /* it has left */
    talk(&to, &other);
    CU_ASSERT_EQUAL(copy.replies, 1);
    CU_ASSERT_EQUAL(to.downs, 0);
    talk(&owner, &server);
    CU_ASSERT_EQUAL(a.replies + b.replies, 2);
    link_close(&to.link);
    server_end(&other);
    end();
}

/* A driver that announces another number of requests than it puts: each later reply would go to the wrong call. */
static void test_miscounted(void)
{
    struct call first, miscounted;
    begin();
    bring_up(&owner, &server);
    call_put(&owner.link, &first, "PING");
    call_begin(&owner.link, &miscounted);
    link_command(&owner.link, 1);
    link_text(&owner.link, "SET");
    link_call_end(&owner.link, &miscounted.call, 2);
    link_flush(&owner.link);
    CU_ASSERT_EQUAL(first.losses + miscounted.losses, 2);
    CU_ASSERT_EQUAL(miscounted.loss, LINK_NOT_SENT);
    CU_ASSERT_EQUAL(owner.downs, 1);
    server_hang_up(&server);
    now_ns += 1000 * MS;
    bring_up(&owner, &server);
    call_put(&owner.link, &first, "PING");
    talk(&owner, &server);
    CU_ASSERT_EQUAL(first.replies, 1);
    CU_ASSERT_EQUAL(server.others, 1);
    end();
}

/* Each reply goes to the call that asked for it; one that nobody asked for ends the connection. */
static void test_in_order(void)
{
    struct call calls[3];
    begin();
    bring_up(&owner, &server);
    for (int i = 0; i < 3; i++)
        call_put(&owner.link, &calls[i], "PING");
    link_flush(&owner.link);
    server_say(&server, "+1\r\n+2\r\n");
    owner_turn(&owner);
    CU_ASSERT_TRUE(calls[0].replies == 1 && calls[1].replies == 1 && calls[2].replies == 0);
    CU_ASSERT_EQUAL(owner.link.outstanding, 1);
    server_say(&server, "+3\r\n");
    owner_turn(&owner);
    CU_ASSERT_EQUAL(calls[2].replies, 1);
    CU_ASSERT_TRUE(link_is_up(&owner.link));
    server_say(&server, "+4\r\n");
    owner_turn(&owner);
    CU_ASSERT_EQUAL(owner.downs, 1);
    CU_ASSERT_PTR_NOT_NULL(strstr(owner.fault.text, "an answer that nobody asked for"));
    end();
}

/* ---- time ---------------------------------------------------------------------------------------- */

/* A server that stands still: first in the greeting, then with a call. */
static void test_stands_still(void)
{
    struct call call;
    begin();
    link_want(&owner.link);
    owner_turn(&owner);
    CU_ASSERT_TRUE(server_accept(&server));
    owner_turn(&owner);
    CU_ASSERT_EQUAL_FATAL(due_of(&owner), now_ns + CONNECT_MS * MS);
    now_ns = due_of(&owner);
    owner_turn(&owner);
    CU_ASSERT_EQUAL(owner.downs, 1);
    CU_ASSERT_PTR_NOT_NULL(strstr(owner.fault.text, "no answer in time (connect_timeout)"));
    server_hang_up(&server);
    CU_ASSERT_TRUE(due_of(&owner) > now_ns);
    now_ns = due_of(&owner);
    bring_up(&owner, &server);
    CU_ASSERT_EQUAL(due_of(&owner), MORTISE_NEVER); /* nothing is asked */
    now_ns += 60000 * MS;
    call_put(&owner.link, &call, "PING");
    owner_turn(&owner);
    CU_ASSERT_EQUAL_FATAL(due_of(&owner), now_ns + COMMAND_MS * MS);
    now_ns = due_of(&owner);
    owner_turn(&owner);
    CU_ASSERT_EQUAL(call.losses, 1);
    CU_ASSERT_EQUAL(call.loss, LINK_LOST);
    CU_ASSERT_PTR_NOT_NULL(strstr(owner.fault.text, "no answer in time (command_timeout)"));
    end();
}

/* This process stood still: the answer is there when it looks again, and counts. */
static void test_this_process_stood_still(void)
{
    struct call call;
    begin();
    bring_up(&owner, &server);
    call_put(&owner.link, &call, "PING");
    owner_turn(&owner);
    CU_ASSERT_EQUAL(server_answer(&server), 1);
    now_ns += 3600000 * MS;
    link_turn(&owner.link, NULL, 0);
    CU_ASSERT_EQUAL(call.replies, 1);
    CU_ASSERT_TRUE(link_is_up(&owner.link));
    end();
}

static unsigned pushed;

static void count_push(struct link *link, void *of, redisReply *reply)
{
    (void)link;
    (void)of;
    (void)reply;
    pushed++;
}

/* A connection for subscriptions: an answer that does not come ends it, and the next attempt has the backoff, although it has
 * lasted. The next connection awaits nothing. */
static void test_awaited(void)
{
    static const struct link_callbacks callbacks = {
        .up = noted_up, .down = noted_down, .push = count_push};
    begin();
    pushed = 0;
    owner.link.callbacks = &callbacks;
    bring_up(&owner, &server);
    link_awaits(&owner.link, true);
    now_ns += 1000 * MS;
    link_awaits(&owner.link, true); /* it is awaited since the first time */
    server_say(&server, "+subscribed\r\n");
    owner_turn(&owner);
    CU_ASSERT_EQUAL(pushed, 1);
    CU_ASSERT_EQUAL(due_of(&owner), now_ns + COMMAND_MS * MS); /* there was progress */
    link_awaits(&owner.link, false);
    CU_ASSERT_EQUAL(due_of(&owner), MORTISE_NEVER);
    link_awaits(&owner.link, true);
    now_ns = due_of(&owner);
    owner_turn(&owner);
    CU_ASSERT_EQUAL(owner.downs, 1);
    server_hang_up(&server);
    CU_ASSERT_TRUE_FATAL(due_of(&owner) > now_ns && due_of(&owner) < now_ns + 1000 * MS);
    now_ns = due_of(&owner);
    bring_up(&owner, &server);
    CU_ASSERT_EQUAL(due_of(&owner), MORTISE_NEVER);
    end();
}

/* ---- ends ---------------------------------------------------------------------------------------- */

/* The server is elsewhere: what is under way is lost, and the next attempt comes at once, although the last ones have failed. */
static void test_left(void)
{
    struct call call;
    begin();
    server_end(&server);
    link_want(&owner.link);
    for (int i = 0; i < 5; i++) {
        owner_turn(&owner);
        now_ns = due_of(&owner);
    }
    CU_ASSERT_TRUE(owner.downs >= 5);
    server_start(&server, "server");
    bring_up(&owner, &server);
    unsigned downs = owner.downs;
    call_put(&owner.link, &call, "SET");
    owner_turn(&owner);
    link_leave(&owner.link, "it is elsewhere");
    CU_ASSERT_EQUAL(call.loss, LINK_LOST);
    CU_ASSERT_EQUAL(owner.downs, downs + 1);
    CU_ASSERT_PTR_NOT_NULL(strstr(owner.fault.text, "it is elsewhere"));
    server_hang_up(&server);
    talk(&owner, &server);
    CU_ASSERT_TRUE(link_is_up(&owner.link));
    end();
}

/* Closed without a word, forgotten, and wanted again. */
static void test_rests(void)
{
    struct call call;
    begin();
    bring_up(&owner, &server);
    call_put(&owner.link, &call, "GET");
    owner_turn(&owner);
    link_rest(&owner.link);
    CU_ASSERT_EQUAL(call.losses, 0);
    CU_ASSERT_EQUAL(owner.downs, 0);
    CU_ASSERT_EQUAL(due_of(&owner), MORTISE_NEVER);
    CU_ASSERT_FALSE(link_is_connecting(&owner.link));
    freeReplyObject(server_read(&server));
    CU_ASSERT_EQUAL(recv(server.fd, &(char){0}, 1, MSG_DONTWAIT), 0); /* its end is closed */
    server_hang_up(&server);
    bring_up(&owner, &server);
    CU_ASSERT_EQUAL(server.killed_id, 0);
    CU_ASSERT_TRUE(link_settled(&owner.link));
    call_put(&owner.link, &call, "GET");
    talk(&owner, &server);
    CU_ASSERT_EQUAL(call.replies, 1);
    end();
}

/* What breaks is made anew only as long as it is wanted. */
static void test_unwanted(void)
{
    begin();
    bring_up(&owner, &server);
    link_unwant(&owner.link);
    CU_ASSERT_TRUE(link_is_up(&owner.link));
    server_hang_up(&server);
    owner_turn(&owner);
    CU_ASSERT_EQUAL(owner.downs, 1);
    CU_ASSERT_EQUAL(due_of(&owner), MORTISE_NEVER);
    now_ns += 60000 * MS;
    owner_turn(&owner);
    CU_ASSERT_FALSE(server_accept(&server));
    bring_up(&owner, &server);
    end();
}

static void test_closed(void)
{
    struct call call;
    begin();
    unsigned before = count_descriptors();
    bring_up(&owner, &server);
    call_put(&owner.link, &call, "SET");
    owner_turn(&owner);
    link_close(&owner.link);
    CU_ASSERT_EQUAL(call.losses, 1);
    CU_ASSERT_EQUAL(call.loss, LINK_LOST);
    CU_ASSERT_EQUAL(call.status, MORTISE_CLOSED);
    CU_ASSERT_EQUAL(owner.downs, 0);
    server_hang_up(&server);
    CU_ASSERT_EQUAL(count_descriptors(), before);
    CU_ASSERT_EQUAL(due_of(&owner), MORTISE_NEVER);
    link_want(&owner.link);
    owner_turn(&owner);
    CU_ASSERT_FALSE(link_is_connecting(&owner.link));
    CU_ASSERT_FALSE(server_accept(&server));
    server_end(&server);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"put before it breaks", test_put_before_it_breaks},
        {"copied from another link", test_copied},
        {"miscounted", test_miscounted},
        {"in order", test_in_order},
        {"a server that stands still", test_stands_still},
        {"this process stood still", test_this_process_stood_still},
        {"a subscription that is not answered", test_awaited},
        {"left", test_left},
        {"at rest", test_rests},
        {"unwanted", test_unwanted},
        {"closed", test_closed},
        CU_TEST_INFO_NULL,
    };
    return link_tests_run("redis_calls", tests);
}
