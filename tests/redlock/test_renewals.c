/* test_renewals.c - many renewals in one request: each has its own answer, whatever happens to the others or to the
 * request. Op by op, on five nodes. */
#include "alone.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MANY 300
#define BUNDLES 3 /* of them: 128 go into one */

static struct nodes nodes;
static struct alone one;
static struct call locks[MANY], renewals[MANY];
static char names[MANY][32];

static const char *key_of(int i)
{
    return names[i];
}

/* A node that stands still for seconds is none that hangs: where one does, the clock is moved. */
static bool open_with_all(void)
{
    if (!alone_open(
            &one, nodes.group.ports, nodes.count,
            ALONE("node_persistent", "yes", "node_timeout", "30s", "connect_timeout", "30s")) ||
        !alone_works(&one))
        return false;
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "mortise:many %d", i);
        locks[i] = call_of(MORTISE_OP_ACQUIRE, names[i]);
        DONE(OK, call_run(&one, &locks[i]));
    }
    struct call first = call_about(MORTISE_OP_RENEW, &locks[0]); /* the nodes know the script */
    DONE(OK, call_run(&one, &first));
    struct call ping = call_of(MORTISE_OP_PING, "");
    DONE(OK, call_run(&one, &ping));
    return !failures;
}

static void close_all(void)
{
    for (int i = 0; i < MANY; i++) {
        struct call end = call_about(MORTISE_OP_RELEASE, &locks[i]);
        call_run(&one, &end);
    }
    for (int i = 0; i < nodes.count; i++)
        freeReplyObject(ask(&nodes.node[i], "FLUSHALL"));
    alone_close(&one);
}

/* In one call of the core's. */
static void start_all(void)
{
    mortise_op *ops[MANY];
    for (int i = 0; i < MANY; i++) {
        struct call *call = &renewals[i];
        *call = call_about(MORTISE_OP_RENEW, &locks[i]);
        call->op.buffer = call->text;
        call->op.buffer_size = sizeof call->text;
        ops[i] = &call->op;
    }
    one.module->start(one.ctx, ops, MANY);
}

static void wait_all(void)
{
    for (int i = 0; i < MANY; i++)
        call_wait(&one, &renewals[i]);
}

/* All have this status, but for these. */
static void expect_all(mortise_status wanted, int except_from, int except_to)
{
    int others = 0;
    for (int i = 0; i < MANY; i++)
        others += (i < except_from || i >= except_to) && renewals[i].op.status != wanted;
    CHECK(others == 0);
}

static long long left_ms(int node, int i)
{
    redisReply *reply = ask(&nodes.node[node], "PTTL %s", key_of(i));
    long long left = reply && reply->type == REDIS_REPLY_INTEGER ? reply->integer : -3;
    freeReplyObject(reply);
    return left;
}

static void test_together(void)
{
    if (!open_with_all())
        return;
    for (int i = 0; i < MANY; i++)
        freeReplyObject(ask(&nodes.node[0], "PEXPIRE %s 30000", key_of(i)));
    int64_t before = nodes_commands(&nodes, "evalsha") + nodes_commands(&nodes, "eval");
    start_all();
    wait_all();
    expect_all(MORTISE_OK, 0, 0);
    struct call ping = call_of(MORTISE_OP_PING, "");
    DONE(OK, call_run(&one, &ping));
    for (int i = 0; i < nodes.count; i++) /* a minority may not have answered yet */
        freeReplyObject(ask(&nodes.node[i], "PING"));
    int64_t after = nodes_commands(&nodes, "evalsha") + nodes_commands(&nodes, "eval");
    CHECK(after - before <= (BUNDLES + 1) * nodes.count); /* a ping is a script, too */
    int renewed = 0;
    for (int i = 0; i < MANY; i++)
        renewed += left_ms(0, i) > 30000;
    CHECK(renewed == MANY);
    close_all();
}

static void test_each_has_its_own(void)
{
    enum { GONE = 140, LOST_ONCE, ANOTHERS, NO_STRING, EXCEPT_END };
    if (!open_with_all())
        return;
    for (int i = 0; i < 3; i++) {
        freeReplyObject(ask(&nodes.node[i], "DEL %s", key_of(GONE)));
        freeReplyObject(ask(&nodes.node[i], "SET %s somebody", key_of(ANOTHERS)));
        freeReplyObject(ask(&nodes.node[i], "DEL %s", key_of(NO_STRING)));
        freeReplyObject(ask(&nodes.node[i], "RPUSH %s x", key_of(NO_STRING)));
    }
    freeReplyObject(ask(&nodes.node[0], "DEL %s", key_of(LOST_ONCE)));
    start_all();
    wait_all();
    expect_all(MORTISE_OK, GONE, EXCEPT_END);
    CHECK(renewals[GONE].op.status == MORTISE_LOST);
    CHECK(renewals[LOST_ONCE].op.status == MORTISE_OK);
    CHECK(renewals[ANOTHERS].op.status == MORTISE_NOTOWNER);
    CHECK(renewals[NO_STRING].op.status == MORTISE_NOTOWNER);
    struct call ping = call_of(MORTISE_OP_PING, "");
    DONE(OK, call_run(&one, &ping)); /* behind the repair */
    CHECK(left_ms(0, LOST_ONCE) > 0);
    close_all();
}

static void test_flushed(void)
{
    if (!open_with_all())
        return;
    for (int i = 0; i < nodes.count; i++)
        freeReplyObject(ask(&nodes.node[i], "SCRIPT FLUSH"));
    start_all();
    wait_all();
    expect_all(MORTISE_OK, 0, 0);
    close_all();
}

/* One of two is canceled before anything is answered. */
static void test_canceled(void)
{
    if (!open_with_all())
        return;
    int wrong = 0;
    start_all();
    for (int i = 0; i < MANY; i += 2)
        one.module->cancel(one.ctx, &renewals[i].op);
    wait_all();
    for (int i = 0; i < MANY; i++)
        wrong += renewals[i].op.status != (i % 2 == 0 ? MORTISE_INDETERMINATE : MORTISE_OK);
    CHECK(wrong == 0);
    close_all();
}

/* Three do not let the user see who holds the lock: nothing else is wrong with them, so the error says that. */
static void test_not_told(void)
{
    if (!open_with_all())
        return;
    for (int i = 0; i < 3; i++)
        CHECK(ask_is(&nodes.node[i], "OK", "ACL SETUSER default -getrange"));
    struct call renewal = call_about(MORTISE_OP_RENEW, &locks[0]);
    DONE(UNREACHABLE, call_run(&one, &renewal));
    CHECK(strstr(renewal.text, "refuses to tell") != NULL);
    for (int i = 0; i < 3; i++)
        CHECK(ask_is(&nodes.node[i], "OK", "ACL SETUSER default +getrange"));
    close_all();
}

/* Two of five hang: the others are enough. Three: each of the renewals fails. Later all are renewed. */
static void test_hanging(void)
{
    if (!open_with_all())
        return;
    nodes_do(&nodes, "freeze", 3);
    start_all();
    wait_all();
    expect_all(MORTISE_OK, 0, 0);
    nodes_do(&nodes, "freeze", 4);
    start_all();
    one.shift_ns += 31 * S_NS; /* node_timeout */
    wait_all();
    expect_all(MORTISE_UNREACHABLE, 0, 0);
    nodes_do(&nodes, "thaw", 7);
    CHECK(alone_works(&one));
    start_all();
    wait_all();
    expect_all(MORTISE_OK, 0, 0);
    close_all();
}

/* A node dies with them: they are told of it. */
static void test_connections_break(void)
{
    if (!open_with_all())
        return;
    nodes_do(&nodes, "freeze", 7);
    start_all();
    nodes_do(&nodes, "kill", 7);
    wait_all();
    expect_all(MORTISE_UNREACHABLE, 0, 0);
    nodes_do(&nodes, "start", 7);
    close_all();
}

static const CU_TestInfo tests[] = {
    {"many in one request", test_together},
    {"each has an answer of its own", test_each_has_its_own},
    {"scripts are flushed", test_flushed},
    {"one of two is canceled", test_canceled},
    {"nodes that do not tell", test_not_told},
    {"nodes that hang", test_hanging},
    {"connections that break", test_connections_break},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = nodes_start(&nodes, 5, NULL);
    if (code == 0)
        code = run_tests("redlock renewals", tests, argc, argv);
    return !nodes_end(&nodes) && code == 0 ? 1 : code;
}
