/* test_memory.c - what nodes forget when they restart, and what they do not: the guard that prevents a second
 * majority; tokens over all majorities, over nodes without data, and over a clock that jumps. On three nodes, of
 * which the first has a clock that can be set; and on five. */
#include "alone.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static struct nodes nodes, five = {.proxied = true};

static int64_t wall_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

struct successor {
    mortise_lease *of; /* the former holder's */
    struct test_count done;
    mortise_status status;
    mortise_lease *lease;
    mortise_lease_state state_of;
};

static void succeeded(mortise_status status, mortise_lease *lease, const mortise_error *error,
                      void *user_data)
{
    struct successor *successor = user_data;
    (void)error;
    successor->state_of = mortise_state(successor->of);
    successor->status = status;
    successor->lease = lease;
    test_count_add(&successor->done, 1);
}

/* A lock that is not renewed is held; two of three nodes are emptied and restarted; another wants it. */
static void test_guard_with(const char *settings, const char *name, int64_t ttl_ms,
                            mortise_lease_state expected)
{
    mortise_client *client = nodes_open(&nodes, 7, NULL, settings);
    mortise_client *other = nodes_open(&nodes, 7, NULL, settings);
    struct successor successor = {.done = TEST_COUNT_INIT};
    mortise_lease *lease = NULL;
    EXPECT(OK, mortise_acquire(
                   client, name,
                   MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = ttl_ms, .no_renew = true),
                   &lease, &detail));
    uint64_t token = mortise_token(lease);
    CHECK(wait_nodes_with(&nodes, name, 7));
    successor.of = lease;
    nodes_do(&nodes, "kill", 3);
    nodes_do(&nodes, "start", 3);
    EXPECT(OK, mortise_acquire_async(other, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 8000),
                                     succeeded, &successor, NULL, &detail));
    CHECK(test_count_wait(&successor.done, 1));
    CHECK(successor.status == MORTISE_OK);
    CHECK(successor.state_of == expected);
    CHECK(mortise_token(successor.lease) > token);
    give(successor.lease);
    mortise_release(lease, NULL);
    close_client(client);
    close_client(other);
}

static void test_guard(void)
{
    test_guard_with("max_ttl = 8s\n", "guard", 8000, MORTISE_STATE_LOST);
}

/* Without the guard there is a second majority: that is what it is for. */
static void test_no_guard(void)
{
    test_guard_with("node_persistent = yes\n", "no guard", LONG_MS, MORTISE_STATE_HELD);
}

static bool is_refused(void *client)
{
    return try_once(client, "three") == MORTISE_UNREACHABLE;
}

static bool is_taken(void *client)
{
    return try_once(client, "alone") == MORTISE_BUSY;
}

/* Nodes that were just started do not vote: said so, not "taken". */
static void test_guard_is_told(void)
{
    mortise_client *client = nodes_open(&nodes, 7, NULL, "max_ttl = 1h\n");
    EXPECT(UNREACHABLE, try_once(client, "told"));
    SAYS("started less than max_ttl ago");
    CHECK(nodes_with(&nodes, "told") == 0);
    close_client(client);
}

/* redis-plus-plus: with one of three masters down a try throws, and leaves its keys on the two others. */
static void test_one_of_three(void)
{
    mortise_client *client =
        nodes_open(&nodes, 7, NULL, "node_persistent = yes\nnode_timeout = 20s\n");
    mortise_lease *lease = NULL;
    CHECK(wait_works(client));
    nodes_do(&nodes, "kill", 4);
    for (int i = 0; i < 5; i++) {
        EXPECT(OK,
               mortise_acquire(client, "three", MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = LONG_MS),
                               &lease, &detail));
        EXPECT(BUSY, try_once(client, "three"));
        give(lease);
        CHECK(nodes_with(&nodes, "three") == 0);
    }
    nodes_do(&nodes, "kill", 2); /* and another: refused, and nothing is left on the last one */
    CHECK(test_poll(is_refused, client, TEST_PATIENCE_MS));
    CHECK(wait_nodes_with(&nodes, "three", 0));
    nodes_do(&nodes, "start", 6);
    CHECK(wait_works(client));
    close_client(client);
}

/* ---- clocks ------------------------------------------------------------------------------------------------------ */

static void set_clock(const char *offset)
{
    char path[300], new_path[320];
    snprintf(path, sizeof path, "%s/faketime", nodes.group.folder);
    snprintf(new_path, sizeof new_path, "%s.new", path); /* it is read at any time: never empty */
    CHECK(test_file_write(new_path, offset) && rename(new_path, path) == 0);
}

static bool has_jumped(void *argument)
{
    const int64_t *wanted_s = argument;
    redisReply *reply = ask(&nodes.node[0], "TIME");
    int64_t ahead_s = reply && reply->elements == 2
                          ? strtoll(reply->element[0]->str, NULL, 10) - wall_us() / 1000000
                          : 0;
    freeReplyObject(reply);
    return ahead_s >= *wanted_s - 5 && ahead_s <= *wanted_s + 5;
}

static bool seems_old(void *node)
{
    return info_number(node, "server", "uptime_in_seconds") > 600;
}

/* The clock of one of three nodes jumps: its keys expire there, while the holder counts on. Its majority is two
 * nodes, one of them this: so another can have a majority, and the holder, who does not reach the third one, hears
 * nothing before its deadline. The tokens order them. */
static void test_clock_jumps(void)
{
    static int64_t hour_s = 3600, none_s = 0;
    char name[] = "clock";
    mortise_client *client =
        nodes_open(&nodes, 3, "renew_every = 100ms", "node_persistent = yes\n");
    mortise_client *other = nodes_open(&nodes, 5, NULL, "node_persistent = yes\n");
    struct told told = TOLD_INIT;
    mortise_lease *lease = NULL;
    EXPECT(OK, mortise_acquire(client, name,
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = 6000,
                                               .on_state = note_state, .user_data = &told),
                               &lease, &detail));
    uint64_t token = mortise_token(lease);
    CHECK(wait_nodes_with(&nodes, name, 3));
    set_clock("+1h");
    CHECK(test_poll(has_jumped, &hour_s, TEST_PATIENCE_MS));
    mortise_lease *next = take(other, name);
    CHECK(mortise_token(next) > token);
    token = mortise_token(next);
    CHECK(test_count_wait(&told.lost, 1));
    set_clock("+0");
    CHECK(test_poll(has_jumped, &none_s, TEST_PATIENCE_MS));
    give(next);
    mortise_release(lease, NULL);
    lease = take(client, name); /* the clock is back, the token is not */
    CHECK(mortise_token(lease) > token);
    give(lease);
    close_client(client);
    close_client(other);
}

/* With all three there, the two others outvote the one that jumped. */
static void test_clock_outvoted(void)
{
    static int64_t hour_s = 3600, none_s = 0;
    mortise_client *client = nodes_open(&nodes, 7, NULL, "node_persistent = yes\n");
    mortise_client *other = nodes_open(&nodes, 7, NULL, "node_persistent = yes\n");
    give(take(client, "outvoted"));
    mortise_lease *lease = take(client, "outvoted");
    CHECK(wait_nodes_with(&nodes, "outvoted", 7));
    set_clock("+1h");
    CHECK(test_poll(has_jumped, &hour_s, TEST_PATIENCE_MS));
    EXPECT(BUSY, try_once(other, "outvoted"));
    for (int i = 0; i < 5; i++) {
        uint64_t token = mortise_token(lease);
        give(lease);
        lease = take(i % 2 ? client : other, "outvoted");
        CHECK(mortise_token(lease) > token);
    }
    give(lease);
    set_clock("+0");
    CHECK(test_poll(has_jumped, &none_s, TEST_PATIENCE_MS));
    close_client(client);
    close_client(other);
}

/* The clock of a node jumps while it restarts: it says that it is old. Who knew its former process knows better. */
static void test_guard_by_own_clock(void)
{
    static int64_t hour_s = 3600, none_s = 0;
    struct alone one;
    if (!alone_open(&one, nodes.group.ports, 3, ALONE("max_ttl", "600s")))
        return;
    alone_says(&one, "3 of 3 nodes answer, 0 may vote; votes count in *");
    one.shift_ns += 601 * S_NS;
    alone_says(&one, "3 of 3 nodes answer, 3 may vote");
    nodes_do(&nodes, "kill", 1);
    nodes_do(&nodes, "start", 1);
    set_clock("+1h");
    CHECK(test_poll(has_jumped, &hour_s, TEST_PATIENCE_MS));
    CHECK(test_poll(seems_old, &nodes.node[0], TEST_PATIENCE_MS));
    alone_says(&one, "3 of 3 nodes answer, 2 may vote");
    one.shift_ns += 601 * S_NS;
    alone_says(&one, "3 of 3 nodes answer, 3 may vote");
    alone_close(&one);
    set_clock("+0");
    CHECK(test_poll(has_jumped, &none_s, TEST_PATIENCE_MS));
}

/* Without fencing a repeat leaves no token, not even on a node whose clock is behind this host's. */
static void test_no_token(void)
{
    static int64_t behind_s = -3600, none_s = 0;
    struct alone one;
    set_clock("-1h");
    CHECK(test_poll(has_jumped, &behind_s, TEST_PATIENCE_MS));
    if (!alone_open(&one, nodes.group.ports, 3,
                    ALONE("node_persistent", "yes", "fencing", "off")) ||
        !alone_works(&one))
        return;
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:none"), again, ping, end;
    DONE(OK, call_run(&one, &lock));
    again = call_about(MORTISE_OP_ACQUIRE, &lock);
    again.op.flags = MORTISE_OP_REPEAT;
    DONE(OK, call_run(&one, &again));
    CHECK(again.op.token == 0);
    ping = call_of(MORTISE_OP_PING, "");
    DONE(OK, call_run(&one, &ping)); /* all have executed it */
    CHECK(nodes_with(&nodes, "none") == 7);
    for (int i = 0; i < nodes.count; i++)
        CHECK(ask_number(&nodes.node[i], "EXISTS {mortise:none}:mortise:token") == 0);
    end = call_about(MORTISE_OP_RELEASE, &lock);
    DONE(OK, call_run(&one, &end));
    CHECK(wait_nodes_with(&nodes, "none", 0));
    alone_close(&one);
    set_clock("+0");
    CHECK(test_poll(has_jumped, &none_s, TEST_PATIENCE_MS));
}

/* ---- tokens --------------------------------------------------------------------------------------------------------- */

#define MAJORITIES 10

/* Clients that reach three of five nodes each, all combinations. */
static void open_majorities(mortise_client **clients)
{
    int count = 0;
    for (unsigned set = 0; set <= ALL; set++)
        if (__builtin_popcount(set) == 3)
            clients[count++] = nodes_open(&five, set, NULL, AT_ONCE);
    CHECK(count == MAJORITIES);
}

static uint64_t take_token(mortise_client *client, const char *name)
{
    mortise_lease *lease = take(client, name);
    uint64_t token = mortise_token(lease);
    give(lease);
    return token;
}

/* Each majority after each other one; ahead of the clocks, which would hide a token that was not handed on. */
static void test_all_majorities(void)
{
    mortise_client *clients[MAJORITIES];
    const char *name = "majorities";
    uint64_t last = (uint64_t)wall_us() + UINT64_C(3600000000);
    open_majorities(clients);
    for (int i = 0; i < 3; i++)
        freeReplyObject(ask(&five.node[i], "SET {mortise:%s}:mortise:token %" PRIu64 " PX 9000000",
                            name, last));
    for (int i = 0; i < MAJORITIES; i++)
        for (int k = 0; k < MAJORITIES; k++) {
            uint64_t first = take_token(clients[i], name), second = take_token(clients[k], name);
            snprintf(doing, sizeof doing, "majorities %d and %d", i, k);
            CHECK(first > last);
            CHECK(second > first);
            last = second;
        }
    CHECK((int64_t)last < wall_us() + INT64_C(3700000000)); /* by one each */
    for (int i = 0; i < MAJORITIES; i++)
        close_client(clients[i]);
}

/* All nodes lose all: they grow by the clocks. */
static void test_emptied(void)
{
    mortise_client *client = nodes_open(&five, ALL, NULL, AT_ONCE);
    uint64_t token = take_token(client, "emptied"), next;
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < five.count; k++)
            freeReplyObject(ask(&five.node[k], "FLUSHALL"));
        next = take_token(client, "emptied");
        CHECK(next > token);
        token = next;
    }
    close_client(client);
}

/* Tokens are written in a second round, by SETRANGE, for less than half of twenty locks. */
static bool takes_one_round(void *client)
{
    int64_t before = nodes_commands(&five, "setrange");
    for (int i = 0; i < 20; i++)
        give(take(client, "rounds"));
    return nodes_commands(&five, "setrange") - before <= 5 * 10;
}

/* One round trip where nodes take what is proposed. On a busy machine some come too late for that, but not for ever. */
static void test_rounds(void)
{
    mortise_client *client = nodes_open(&five, ALL, NULL, AT_ONCE);
    CHECK(test_poll(takes_one_round, client, 2 * TEST_PATIENCE_MS));
    close_client(client);
}

/* The same where each trip takes long. */
static void test_rounds_far_away(void)
{
    mortise_client *client = nodes_open_by(&five, NULL, AT_ONCE);
    nodes_say(&five, ALL, "delay 10 both");
    CHECK(test_poll(takes_one_round, client, 2 * TEST_PATIENCE_MS));
    nodes_say(&five, ALL, "pass");
    close_client(client);
}

/* Not behind this host's clock by much, and not an hour ahead of it. */
static bool follows_clocks(uint64_t token)
{
    int64_t ahead_us = (int64_t)token - wall_us();
    return ahead_us > INT64_C(-60000000) && ahead_us < INT64_C(60000000);
}

/* No token follows a clock that is far ahead, not even where the vote of that node is needed: the others would never
 * forget it, and emptied nodes would begin below it. */
static void test_clock_ahead(void)
{
    static int64_t hour_s = 3600, none_s = 0;
    mortise_client *ahead = nodes_open(&nodes, 3, NULL, "node_persistent = yes\n");
    mortise_client *others = nodes_open(&nodes, 6, NULL, "node_persistent = yes\n");
    set_clock("+1h");
    CHECK(test_poll(has_jumped, &hour_s, TEST_PATIENCE_MS));
    uint64_t token = take_token(ahead, "ahead"), next;
    CHECK(follows_clocks(token));
    for (int i = 0; i < 3; i++) {
        CHECK((next = take_token(i % 2 ? ahead : others, "ahead")) > token);
        token = next;
    }
    CHECK(wait_nodes_with(&nodes, "ahead", 0));
    for (int i = 1; i < 3; i++)
        freeReplyObject(ask(&nodes.node[i], "FLUSHALL"));
    CHECK((next = take_token(others, "ahead")) > token);
    CHECK(take_token(ahead, "ahead") > next);
    CHECK(follows_clocks(next));
    set_clock("+0");
    CHECK(test_poll(has_jumped, &none_s, TEST_PATIENCE_MS));
    close_client(ahead);
    close_client(others);
}

/* The only clock that a client has heard of is wrong: the other nodes have refused it so far. */
static void test_clock_alone(void)
{
    static int64_t hour_s = 3600, none_s = 0;
    mortise_client *client = nodes_open(&nodes, 7, NULL, "node_persistent = yes\n");
    set_clock("+1h");
    CHECK(test_poll(has_jumped, &hour_s, TEST_PATIENCE_MS));
    for (int i = 1; i < 3; i++)
        freeReplyObject(ask(&nodes.node[i], "SET mortise:alone another PX 60000"));
    CHECK(test_poll(is_taken, client, TEST_PATIENCE_MS));
    for (int i = 1; i < 3; i++)
        freeReplyObject(ask(&nodes.node[i], "DEL mortise:alone"));
    CHECK(follows_clocks(take_token(client, "alone")));
    CHECK(follows_clocks(take_token(client, "alone")));
    set_clock("+0");
    CHECK(test_poll(has_jumped, &none_s, TEST_PATIENCE_MS));
    close_client(client);
}

static const CU_TestInfo tests[] = {
    {"a node that was just started does not vote", test_guard_is_told},
    {"restarted nodes do not make a second majority", test_guard},
    {"without the guard they do", test_no_guard},
    {"its clock jumps while it restarts", test_guard_by_own_clock},
    {"redis-plus-plus: one of three masters is down", test_one_of_three},
    {"the clock of one node jumps", test_clock_jumps},
    {"one clock of three is outvoted", test_clock_outvoted},
    {"tokens grow over all majorities", test_all_majorities},
    {"tokens grow over emptied nodes", test_emptied},
    {"tokens do not follow a clock that is ahead", test_clock_ahead},
    {"the only known clock is wrong", test_clock_alone},
    {"without fencing a repeat leaves no token", test_no_token},
    {"a token costs no round trip", test_rounds},
    {"a token costs no round trip, far away", test_rounds_far_away},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    static const char *const keys[] = {"faketime=yes", NULL};
    int code = nodes_start(&nodes, 3, keys);
    if (code == 0)
        code = nodes_start(&five, 5, NULL);
    if (code == 0)
        code = run_tests("redlock memory", tests, argc, argv);
    bool clean = nodes_end(&nodes);
    return (!nodes_end(&five) || !clean) && code == 0 ? 1 : code;
}
