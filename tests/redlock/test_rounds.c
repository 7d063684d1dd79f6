/* test_rounds.c - the rounds of one acquire have one grant id: what a refused caller takes for a holder, if it sees votes of
 * two of them; and how long it pauses between its own. Op by op, on five nodes, each behind the fault proxy; the other acquires are votes that the test writes. */
#include "alone.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define RETRY_MS 100
#define TTL_MS 60000
/* longer than a test's patience: what needs the answer of a silent node fails */
#define SETTINGS                                                                                   \
    "node_persistent", "yes", "node_timeout", "60s", "connect_timeout", "20s", "command_timeout",  \
        "3600s", "retry", "100ms"
#define NONE (-1)

static struct nodes nodes = {.proxied = true};
static struct alone one;

static bool open_by_proxies(int count)
{
    int ports[NODES_MAX];
    for (int i = 0; i < count; i++)
        ports[i] = nodes.proxy[i].port;
    return alone_open(&one, ports, count, ALONE(SETTINGS)) && alone_works(&one);
}

/* Waits until all nodes have executed what was sent before. */
static void pass_all(void)
{
    struct call ping = call_of(MORTISE_OP_PING, "");
    DONE(OK, call_run(&one, &ping));
}

static void vote_for(int node, const char *name, char who, int64_t token, int64_t since)
{
    char value[80], grant[33] = "";
    memset(grant, who, 32);
    snprintf(value, sizeof value, "%s %016" PRId64 " %016" PRId64 "\n", grant, token, since);
    freeReplyObject(ask(&nodes.node[node], "SET mortise:%s %s PX %d", name, value, TTL_MS));
}

static void take_back(int node, const char *name)
{
    CHECK(ask_number(&nodes.node[node], "DEL mortise:%s", name) == 1);
}

static void end_of(const struct call *lock)
{
    struct call call = call_about(MORTISE_OP_RELEASE, lock);
    DONE(OK, call_run(&one, &call));
}

/* ---- a holder, and what looks like one ------------------------------------------------------------------------- */

struct seeing {
    const char *what;
    int64_t tokens[NODES_MAX]; /* of the grant's votes; NONE: the node has none */
    int64_t since[NODES_MAX];
    bool is_holder;
};

static const struct seeing seeings[] = {
    {"one token", {7, 7, 7, NONE, NONE}, {0}, true},
    {"two tokens", {7, 7, 8, NONE, NONE}, {0}, false},
    {"the token of its last round", {7, 7, 8, 8, 8}, {0}, true},
    {"votes that did not take the token", {0, 7, 0, 7, 7}, {1, 7, 2, 7, 7}, true},
    {"too few votes that took it", {0, 7, 0, 7, NONE}, {1, 7, 2, 7, 0}, false},
    {"one time", {0, 0, 0, NONE, NONE}, {5, 5, 5, 0, 0}, true},
    {"two times", {0, 0, 0, NONE, NONE}, {5, 5, 6, 0, 0}, false},
    {"one time, and a vote that was repaired", {0, 0, 0, 0, NONE}, {9, 5, 5, 5, 0}, true},
};

static void see(const struct seeing *seeing)
{
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:seen");
    snprintf(doing, sizeof doing, "%s", seeing->what);
    for (int i = 0; i < nodes.count; i++)
        if (seeing->tokens[i] != NONE)
            vote_for(i, "seen", 'a', seeing->tokens[i], seeing->since[i]);
    DONE(BUSY, call_run(&one, &lock));
    if (seeing->is_holder)
        CHECK(lock.op.hint_ms > RETRY_MS && lock.op.hint_ms <= TTL_MS);
    else
        CHECK(lock.op.hint_ms > 0 && lock.op.hint_ms <= RETRY_MS);
    pass_all();
    for (int i = 0; i < nodes.count; i++)
        if (seeing->tokens[i] != NONE)
            take_back(i, "seen");
}

/* A majority names one grant. If all of these votes may be of one round, a waiter sleeps until that one's ttl ends, or its
 * release is announced; if not, until it looks again. */
static void test_seen(void)
{
    if (!open_by_proxies(nodes.count))
        return;
    for (size_t i = 0; i < sizeof seeings / sizeof *seeings; i++)
        see(&seeings[i]);
    CHECK(nodes_with(&nodes, "seen") == 0);
    alone_close(&one);
}

/* It does not wait for a node whose answer would only tell for how long to sleep. */
static void test_try(void)
{
    if (!open_by_proxies(nodes.count))
        return;
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:try");
    lock.op.flags = MORTISE_OP_TRY;
    for (int i = 0; i < 4; i++)
        vote_for(i, "try", 'a', i == 0 ? 7 : 8, 0);
    pass_all();
    call_start(&one, &lock);
    CHECK(alone_wait_readable(&one, 5)); /* the votes */
    nodes_say(&nodes, 8, "hold-down");
    DONE(BUSY, call_wait(&one, &lock) ? lock.op.status : MORTISE_OK);
    nodes_say(&nodes, 8, "pass");
    pass_all();
    for (int i = 0; i < 4; i++)
        take_back(i, "try");
    alone_close(&one);
}

/* Another acquire has a vote of one node of three in each of two rounds. This caller's undo meets the first one where it is
 * executed at once, and the second one where it comes late. The name is free soon after that, and nobody announces it. */
static void test_two_instants(void)
{
    if (!open_by_proxies(3))
        return;
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:instants");
    vote_for(0, "instants", 'a', 7, 7);
    vote_for(1, "instants", 'b', 8, 8);
    pass_all();
    call_start(&one, &lock);
    CHECK(alone_wait_readable(&one, 3)); /* two have refused */
    nodes_say(&nodes, 2, "hold-up");
    alone_turn(&one, 0); /* the undo is sent */
    CHECK(!lock.done);
    CHECK(alone_wait_readable(&one, 2));
    take_back(0, "instants");
    take_back(1, "instants");
    vote_for(1, "instants", 'a', 9, 9);
    nodes_say(&nodes, 2, "pass");
    DONE(BUSY, call_wait(&one, &lock) ? lock.op.status : MORTISE_OK);
    CHECK(lock.op.hint_ms > 0 && lock.op.hint_ms <= RETRY_MS);
    take_back(1, "instants");
    lock = call_of(MORTISE_OP_ACQUIRE, "mortise:instants");
    DONE(OK, call_run(&one, &lock));
    end_of(&lock);
    pass_all();
    alone_close(&one);
}

/* ---- a round's own token --------------------------------------------------------------------------------------- */

/* Also where the tokens must be larger than all clocks: each round proposes another one. */
static void test_floor(void)
{
    const uint64_t floor = UINT64_C(8000000000000000);
    if (!open_by_proxies(nodes.count))
        return;
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:floor");
    lock.op.token_floor = floor;
    for (int i = 0; i < 4; i++)
        vote_for(i, "floor", i < 2 ? 'a' : 'b', 7, 7);
    DONE(BUSY, call_run(&one, &lock)); /* after some rounds */
    pass_all();
    CHECK(last_token(&nodes, 4, "floor") > floor);
    for (int i = 0; i < 4; i++)
        take_back(i, "floor");
    lock = call_of(MORTISE_OP_ACQUIRE, "mortise:floor");
    lock.op.token_floor = floor;
    DONE(OK, call_run(&one, &lock));
    CHECK(lock.op.token >= floor);
    end_of(&lock);
    pass_all();
    alone_close(&one);
}

/* ---- pauses ---------------------------------------------------------------------------------------------------- */

#define FAR_MS 30 /* each request is on its way for so long */
#define DRAW_MS 200
#define ROUNDS 7

/* The number that is drawn for a pause, if it may be as long as that. */
static void draw(mortise_host *host, void *bytes, size_t size)
{
    uint64_t number = UINT64_C(1000000) * DRAW_MS;
    (void)host;
    memset(bytes, 0, size);
    memcpy(bytes, &number, size < sizeof number ? size : sizeof number);
}

static void split_seven(void)
{
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:far");
    for (int i = 0; i < 4; i++)
        vote_for(i, "far", i < 2 ? 'a' : 'b', 7, 7);
    pass_all();
    one.host.random = draw;
    int64_t began_ms = test_now_ms();
    DONE(BUSY, call_run(&one, &lock));
    CHECK(test_now_ms() - began_ms >= ROUNDS * 2 * (FAR_MS - 1) + 2 * DRAW_MS - 10);
    CHECK(lock.op.hint_ms == DRAW_MS);
    for (int i = 0; i < 4; i++)
        take_back(i, "far");
    lock = call_of(MORTISE_OP_ACQUIRE, "mortise:far");
    DONE(OK, call_run(&one, &lock));
    end_of(&lock);
    pass_all();
    alone_close(&one);
}

/* Seven votes are split. The two pauses before the last one may be longer than the draw, because the nodes are far away, and so
 * may the wait after it. */
static void test_pauses(void)
{
    nodes_say(&nodes, ALL, "delay 30 up");
    if (open_by_proxies(nodes.count))
        split_seven();
    nodes_say(&nodes, ALL, "pass");
}

/* Only one node gives a vote, so the trips to the others stay unknown. */
static void test_pauses_of_a_new_client(void)
{
    int ports[NODES_MAX];
    for (int i = 0; i < nodes.count; i++)
        ports[i] = nodes.proxy[i].port;
    nodes_say(&nodes, ALL, "delay 30 up");
    if (alone_open(&one, ports, nodes.count, ALONE(SETTINGS)) &&
        alone_says(&one, "5 of 5 nodes answer, 5 may vote"))
        split_seven();
    nodes_say(&nodes, ALL, "pass");
}

static const CU_TestInfo tests[] = {
    {"votes of two rounds are no holder", test_seen},
    {"a try does not wait to see whose they are", test_try},
    {"two rounds, seen at two instants", test_two_instants},
    {"each round has a token of its own", test_floor},
    {"pauses where trips are long", test_pauses},
    {"pauses of a client that has had few votes", test_pauses_of_a_new_client},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = nodes_start(&nodes, 5, NULL);
    if (code == 0)
        code = run_tests("redlock rounds", tests, argc, argv);
    return !nodes_end(&nodes) && code == 0 ? 1 : code;
}
