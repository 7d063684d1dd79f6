/* test_cancels.c - an acquire is canceled in each state of its attempt (the table in acquire.c): it ends at once, and
 * nothing is left. Op by op, on five nodes: the driver continues only when the test calls turn. */
#include "alone.h"

#include <stdio.h>
#include <string.h>

#define FIVE 31u

static struct nodes nodes;
static struct alone one;
static struct call lock;

static bool open_to_all(void)
{
    return alone_open(
               &one, nodes.group.ports, nodes.count,
               ALONE("node_persistent", "yes", "node_timeout", "20s", "connect_timeout", "20s")) &&
           alone_works(&one);
}

/* Every node has answered what it was asked, and nothing was read. */
static void begin(const char *name)
{
    struct call ping = call_of(MORTISE_OP_PING, "");
    DONE(OK, call_run(&one, &ping)); /* behind what was sent before */
    lock = call_of(MORTISE_OP_ACQUIRE, name);
    call_start(&one, &lock);
    CHECK(alone_wait_readable(&one, 5));
}

/* Reads these answers. The next requests are sent, and answered. */
static void go_on(void)
{
    alone_turn(&one, 0);
    CHECK(!lock.done);
    CHECK(alone_wait_readable(&one, 5));
}

static mortise_status cancel(void)
{
    one.module->cancel(one.ctx, &lock.op);
    CHECK(lock.done);
    return lock.op.status;
}

/* As the core does after INDETERMINATE. */
static mortise_status release(void)
{
    struct call end = call_about(MORTISE_OP_RELEASE, &lock);
    call_run(&one, &end);
    CHECK(end.op.sure);
    return end.op.status;
}

static bool is_gone(void *name)
{
    return nodes_with(&nodes, name) == 0;
}

/* The release is answered when most nodes have answered it; the others have it, too. */
static void expect_gone(char *name)
{
    CHECK(test_poll(is_gone, name, TEST_PATIENCE_MS));
}

static void test_asking(void)
{
    if (!open_to_all())
        return;
    begin("mortise:asking");
    DONE(INDETERMINATE, cancel());
    DONE(OK, release());
    expect_gone((char[]){"asking"});
    alone_close(&one);
}

static void test_confirming(void)
{
    if (!open_to_all())
        return;
    for (int i = 0; i < nodes.count; i++) /* a token that is larger than what the driver proposes */
        freeReplyObject(
            ask(&nodes.node[i], "SET {mortise:confirming}:mortise:token 9000000000000000"));
    begin("mortise:confirming");
    go_on();
    DONE(INDETERMINATE, cancel());
    CHECK(last_token(&nodes, 0, "confirming") == 9000000000000001u);
    DONE(OK, release());
    expect_gone((char[]){"confirming"});
    alone_close(&one);
}

static void vote_for(char who, int from, int to, const char *name)
{
    char grant[33] = "";
    memset(grant, who, 32);
    for (int i = from; i < to; i++)
        freeReplyObject(ask(&nodes.node[i], "SET mortise:%s %s PX 60000", name, grant));
}

static void take_back(const char *name)
{
    for (int i = 0; i < 4; i++)
        CHECK(ask_number(&nodes.node[i], "DEL mortise:%s", name) == 1);
}

/* Two others have two votes each. */
static void test_undoing(void)
{
    if (!open_to_all())
        return;
    vote_for('a', 0, 2, "undoing");
    vote_for('b', 2, 4, "undoing");
    begin("mortise:undoing");
    CHECK(nodes_with(&nodes, "undoing") == FIVE);
    go_on();
    DONE(INDETERMINATE, cancel());
    DONE(NOTOWNER, release());
    CHECK(nodes_with(&nodes, "undoing") == 15);
    take_back("undoing");
    alone_close(&one);
}

/* All votes are taken back, and known to be. The pause may be over by then, because it is random. */
static void test_pausing(void)
{
    bool seen = false;
    if (!open_to_all())
        return;
    vote_for('a', 0, 2, "pausing");
    vote_for('b', 2, 4, "pausing");
    for (int i = 0; i < 200 && !seen && !failures; i++) {
        begin("mortise:pausing");
        go_on();
        alone_turn(&one, 0);
        seen = cancel() == MORTISE_CANCELED;
        if (!seen)
            DONE(NOTOWNER, release());
    }
    CHECK(seen);
    CHECK(nodes_with(&nodes, "pausing") == 15);
    take_back("pausing");
    alone_close(&one);
}

static const CU_TestInfo tests[] = {
    {"while it asks for votes", test_asking},
    {"while it writes the token", test_confirming},
    {"while it takes votes back", test_undoing},
    {"while it pauses after a split vote", test_pausing},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = nodes_start(&nodes, 5, NULL);
    if (code == 0)
        code = run_tests("redlock cancels", tests, argc, argv);
    return !nodes_end(&nodes) && code == 0 ? 1 : code;
}
