/* test_nodes.c - nodes are down, hang, come back, lose their data: which clients can have the lock, what it costs,
 * and what is left. On five nodes. */
#include "nodes.h"

#include <stdio.h>

static struct nodes nodes = {.proxied = true};

#define HURRIED "unreachable_timeout = 3s\nclose_timeout = 60s"

struct round {
    mortise_client *client;
    const char *name;
    unsigned set;
};

/* Three votes suffice for a grant, and the others follow, except those of nodes that are still connecting. */
static bool is_taken_on(void *argument)
{
    const struct round *round = argument;
    mortise_lease *lease = take(round->client, round->name);
    int64_t give_up_ms = test_now_ms() + 100;
    bool on_all = false;
    while (!on_all && test_now_ms() < give_up_ms)
        on_all = nodes_with(&nodes, round->name) == round->set;
    CHECK(mortise_token(lease) > 0);
    give(lease);
    return on_all;
}

/* Soon a lease is on exactly these nodes; it is gone from them after the release. */
static void take_and_give(mortise_client *client, const char *name, unsigned set)
{
    struct round round = {client, name, set};
    CHECK(test_poll(is_taken_on, &round, TEST_PATIENCE_MS));
    CHECK(wait_nodes_with(&nodes, name, 0));
}

static void test_one_dead(void)
{
    mortise_client *client = nodes_open(&nodes, ALL & ~1u, NULL, AT_ONCE);
    for (int i = 0; i < 5; i++)
        take_and_give(client, "one dead", ALL & ~1u);
    close_client(client);
}

static void test_two_dead(void)
{
    mortise_client *client = nodes_open(&nodes, ALL & ~9u, NULL, AT_ONCE);
    for (int i = 0; i < 5; i++)
        take_and_give(client, "two dead", ALL & ~9u);
    close_client(client);
}

static void test_three_dead(void)
{
    mortise_client *client = nodes_open(&nodes, 3, HURRIED, AT_ONCE);
    mortise_lease *lease = NULL;
    char text[200];
    EXPECT(UNREACHABLE, try_once(client, "three dead"));
    SAYS("2 of 5 nodes, and 3 are needed");
    EXPECT(UNREACHABLE,
           mortise_acquire(client, "three dead", MORTISE_OPTIONS(.wait_ms = -1), &lease, &detail));
    CHECK(nodes_with(&nodes, "three dead") == 0);
    EXPECT(UNREACHABLE, mortise_ping(client, text, sizeof text, &detail));
    close_client(client);
}

/* They have voted, and their replies are lost: their votes are undone nevertheless. */
static void test_three_lost(void)
{
    mortise_client *client = nodes_open_by(&nodes, HURRIED, AT_ONCE "node_timeout = 500ms\n");
    take_and_give(client, "three lost", ALL);
    nodes_say(&nodes, 7, "lose");
    mortise_status status = try_once(client, "three lost");
    CHECK(status == MORTISE_INDETERMINATE || status == MORTISE_UNREACHABLE);
    CHECK(wait_nodes_with(&nodes, "three lost", 0));
    nodes_say(&nodes, 7, "pass");
    take_and_give(client, "three lost", ALL);
    close_client(client);
}

static void limit_memory(unsigned set, const char *bytes)
{
    for (int i = 0; i < nodes.count; i++)
        if ((set & 1u << i) != 0)
            CHECK(ask_is(&nodes.node[i], "OK", "CONFIG SET maxmemory %s", bytes));
}

/* They answer, and give no votes: that is no lock that another has, which a caller would wait for. */
static void no_memory(unsigned up, unsigned full)
{
    mortise_client *client = nodes_open(&nodes, up, "unreachable_timeout = 500ms", AT_ONCE);
    mortise_lease *lease = NULL;
    CHECK(wait_works(client));
    take_and_give(client, "full", up);
    limit_memory(full, "1");
    EXPECT(UNREACHABLE, try_once(client, "full"));
    SAYS("2 of 5 nodes, and 3 are needed");
    SAYS("OOM");
    EXPECT(UNREACHABLE,
           mortise_acquire(client, "full", MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS), &lease,
                           &detail));
    SAYS("OOM");
    CHECK(wait_nodes_with(&nodes, "full", 0));
    limit_memory(full, "0");
    take_and_give(client, "full", up);
    close_client(client);
}

static void test_no_memory(void)
{
    no_memory(ALL, 7);
    no_memory(7, 1);
}

/* A node that hangs costs nothing if the others suffice; it is asked again when it is back. */
static void test_hanging(void)
{
    mortise_client *client =
        nodes_open(&nodes, ALL, NULL, AT_ONCE "node_timeout = 20s\ncommand_timeout = 60s\n");
    take_and_give(client, "hanging", ALL);
    nodes_do(&nodes, "freeze", 2);
    int64_t began_ms = test_now_ms();
    for (int i = 0; i < 50; i++)
        give(take(client, "hanging"));
    CHECK(test_now_ms() - began_ms < 20000); /* none of them has waited for it */
    nodes_do(&nodes, "thaw", 2);
    take_and_give(client, "hanging", ALL);
    close_client(client);
}

struct timed {
    mortise_client *client;
    int64_t bound_ms;
};

static bool is_known(void *argument)
{
    const struct timed *timed = argument;
    char text[200];
    int64_t began_ms = test_now_ms();
    EXPECT(OK, mortise_ping(timed->client, text, sizeof text, &detail)); /* all requests together */
    return test_now_ms() - began_ms < timed->bound_ms;
}

static bool is_unreachable(void *argument)
{
    return try_once(argument, "needed") == MORTISE_UNREACHABLE;
}

/* The driver knows it after node_timeout; then not even a caller that needs its vote waits for it. */
static void test_hanging_needed(void)
{
    mortise_client *client =
        nodes_open(&nodes, 15, "close_timeout = 60s",
                   AT_ONCE "node_timeout = 5s\ncommand_timeout = 60s\nconnect_timeout = 60s\n");
    struct timed timed = {client, 2500};
    take_and_give(client, "needed", 15);
    nodes_do(&nodes, "freeze", 4);
    CHECK(test_poll(is_known, &timed, TEST_PATIENCE_MS));
    nodes_do(&nodes, "kill", 2);
    CHECK(test_poll(is_unreachable, client, TEST_PATIENCE_MS));
    int64_t began_ms = test_now_ms();
    for (int i = 0; i < 20; i++)
        EXPECT(UNREACHABLE, try_once(client, "needed"));
    CHECK(test_now_ms() - began_ms < 50000); /* half of what it would be */
    nodes_do(&nodes, "thaw", 4);
    nodes_do(&nodes, "start", 2);
    CHECK(wait_works(client));
    take_and_give(client, "needed", 15);
    close_client(client);
}

/* Nodes lose all data and come back, two at a time: the holder's renewals write the lock to them again. */
static void test_repair(void)
{
    struct told told = TOLD_INIT;
    mortise_lease *lease = NULL;
    mortise_client *client = nodes_open(&nodes, ALL, "renew_every = 200ms", AT_ONCE);
    EXPECT(OK, mortise_acquire(client, "repair",
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS,
                                               .on_state = note_state, .user_data = &told),
                               &lease, &detail));
    uint64_t token = mortise_token(lease);
    for (unsigned set = 3; set <= ALL; set <<= 1) {
        CHECK(wait_nodes_with(&nodes, "repair", ALL));
        nodes_do(&nodes, "kill", set);
        CHECK(wait_renewals(client, stats_of(client).renewals + 2));
        nodes_do(&nodes, "start", set);
    }
    CHECK(wait_nodes_with(&nodes, "repair", ALL));
    for (int i = 0; i < nodes.count; i++)
        CHECK(last_token(&nodes, i, "repair") == token);
    CHECK(wait_state(lease, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    CHECK(test_count_get(&told.lost) == 0);
    give(lease);
    CHECK(wait_nodes_with(&nodes, "repair", 0));
    close_client(client);
}

/* A majority has lost it: the holder learns that, and what is left elsewhere is removed before its ttl. */
static void test_majority_lost(void)
{
    struct told told = TOLD_INIT;
    mortise_lease *lease = NULL;
    mortise_client *client = nodes_open(&nodes, ALL, "renew_every = 200ms", AT_ONCE);
    EXPECT(OK, mortise_acquire(client, "majority",
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS,
                                               .on_state = note_state, .user_data = &told),
                               &lease, &detail));
    CHECK(wait_nodes_with(&nodes, "majority", ALL));
    for (int i = 0; i < 3; i++)
        CHECK(ask_number(&nodes.node[i], "DEL mortise:majority") == 1);
    CHECK(test_count_wait(&told.lost, 1));
    CHECK(wait_nodes_with(&nodes, "majority", 0));
    EXPECT(LOST, mortise_release(lease, &detail));
    close_client(client);
}

/* redsync#186: a quorum must not decay: restarted nodes vote again. */
static void test_rejoin(void)
{
    mortise_client *client = nodes_open(&nodes, ALL, NULL, AT_ONCE);
    for (unsigned set = 1; set <= 16; set <<= 1) {
        nodes_do(&nodes, "kill", set);
        give(take(client, "rejoin"));
        nodes_do(&nodes, "start", set);
    }
    nodes_do(&nodes, "kill", 3); /* three are left, each of which was down once */
    give(take(client, "rejoin"));
    nodes_do(&nodes, "start", 3);
    CHECK(wait_works(client));
    close_client(client);
}

/* All connections break at once; the next caller reconnects, and does not notice. */
static void test_all_cut(void)
{
    mortise_client *client = nodes_open_by(&nodes, NULL, AT_ONCE);
    for (int i = 0; i < 5; i++) {
        mortise_lease *lease = take(client, "all cut");
        nodes_say(&nodes, ALL, "cut");
        give(lease);
        CHECK(wait_nodes_with(&nodes, "all cut", 0));
        nodes_say(&nodes, ALL, "cut");
    }
    close_client(client);
}

/* A release while nodes are down reaches them when they are back. */
static void test_release_remembered(void)
{
    mortise_client *client = nodes_open_by(&nodes, NULL, AT_ONCE);
    mortise_lease *lease = take(client, "remembered");
    CHECK(wait_nodes_with(&nodes, "remembered", ALL));
    nodes_say(&nodes, 6, "refuse");
    give(lease);
    CHECK(wait_nodes_with(&nodes, "remembered", 6));
    nodes_say(&nodes, 6, "accept");
    CHECK(wait_works(client));
    CHECK(wait_nodes_with(&nodes, "remembered", 0));
    close_client(client);
}

/* ---- listing ------------------------------------------------------------------------------------------------------ */

struct listing {
    const char *wanted; /* NULL: any name */
    int count, others;
};

static bool count_listed(const mortise_info *info, void *argument)
{
    struct listing *listing = argument;
    listing->count++;
    listing->others += listing->wanted && strcmp(info->name, listing->wanted) != 0;
    return true;
}

static bool keep_listed(const mortise_info *info, void *listed)
{
    *(mortise_info *)listed = *info;
    return true;
}

/* Characters with a meaning in a pattern are taken literally; a script that the nodes have forgotten is sent again. */
static void test_list(void)
{
    static const char *const names[] = {"p*", "p?", "p[a]", "p]", "p\\", "p^", "pa", "p%1"};
    enum { COUNT = sizeof names / sizeof *names };
    mortise_client *client = nodes_open(&nodes, ALL, NULL, AT_ONCE);
    mortise_lease *leases[COUNT];
    struct listing all = {NULL, 0, 0};
    for (int i = 0; i < COUNT; i++)
        leases[i] = take(client, names[i]);
    for (int i = 0; i < COUNT; i++) {
        struct listing one = {names[i], 0, 0};
        EXPECT(OK, mortise_list(client, names[i], count_listed, &one, &detail));
        CHECK(one.count == 1 && one.others == 0);
    }
    for (int i = 0; i < nodes.count; i++)
        freeReplyObject(ask(&nodes.node[i], "SCRIPT FLUSH"));
    EXPECT(OK, mortise_list(client, "p", count_listed, &all, &detail));
    CHECK(all.count == COUNT);
    for (int i = 0; i < COUNT; i++)
        give(leases[i]);
    close_client(client);
}

/* Who has a shared lock is not told by nodes on which a key beside it is of another type: the others tell, if there are any. */
static void test_list_unread(void)
{
    mortise_client *client = nodes_open(&nodes, ALL, NULL, AT_ONCE);
    mortise_lease *lease = NULL;
    EXPECT(OK, mortise_acquire(client, "unread",
                               MORTISE_OPTIONS(.mode = MORTISE_SHARED, .wait_ms = TEST_PATIENCE_MS,
                                               .ttl_ms = LONG_MS),
                               &lease, &detail));
    CHECK(wait_nodes_with(&nodes, "unread", ALL));
    for (int i = 0; i < nodes.count; i++) {
        mortise_info listed = {.size = 0};
        CHECK(ask_is(&nodes.node[i], "OK", "SET {mortise:unread}:mortise:shares x"));
        EXPECT(OK, mortise_list(client, "unread", keep_listed, &listed, &detail));
        CHECK(listed.held && listed.mode == MORTISE_SHARED && listed.holders == 1);
        CHECK(i < nodes.count - 1 ||
              (listed.leases == 1 && listed.held_ms == -1 && listed.waiters == -1));
        CHECK(listed.remaining_ms > 0 && listed.remaining_ms <= LONG_MS);
        CHECK(listed.token == (i < nodes.count - 1 ? mortise_token(lease) : 0)); /* one tells */
    }
    mortise_client *three = nodes_open(&nodes, 7, NULL, AT_ONCE);
    mortise_info listed = {.size = 0};
    CHECK(wait_works(three));
    for (int i = 1; i < 3; i++)
        CHECK(ask_number(&nodes.node[i], "DEL mortise:unread") == 1);
    /* one of them has it, and two do not answer */
    EXPECT(OK, mortise_list(three, "unread", keep_listed, &listed, &detail));
    CHECK(listed.held && listed.mode == MORTISE_SHARED && listed.token == 0);
    close_client(three);
    for (int i = 0; i < nodes.count; i++)
        freeReplyObject(ask(&nodes.node[i], "DEL mortise:unread {mortise:unread}:mortise:holders "
                                            "{mortise:unread}:mortise:shares"));
    mortise_release(lease, NULL);
    close_client(client);
}

static void expect_refused(const char *list, const char *why)
{
    mortise_client *client = NULL;
    EXPECT(CONFIG, nodes_open_list(&nodes, list, NULL, NULL, &client));
    SAYS(why);
}

static void test_settings(void)
{
    mortise_lease *lease = NULL;
    expect_refused("a:1", "use the driver redis");
    expect_refused("a:1, b:1", "an odd number is needed");
    expect_refused("a:1, b:1, c:1, d:1", "an odd number is needed");
    expect_refused("a:1, b:1, a:1", "named twice");
    expect_refused("a:1,, b:1", "a server is missing");
    expect_refused("a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", "more than 15");
    mortise_client *client = nodes_open(&nodes, ALL, NULL, AT_ONCE "max_ttl = 10s\n");
    EXPECT(INVALID, mortise_acquire(client, "ttl", MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = 10001),
                                    &lease, &detail));
    SAYS("max_ttl");
    give(take_as(client, "ttl", NULL, 10000));
    EXPECT(OK, mortise_acquire(
                   client, "ttl",
                   MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = 10000, .no_renew = true),
                   &lease, &detail));
    EXPECT(INVALID, mortise_extend(lease, 20000, &detail));
    SAYS("max_ttl");
    CHECK(mortise_state(lease) == MORTISE_STATE_HELD);
    EXPECT(OK, mortise_extend(lease, 10000, &detail));
    give(lease);
    EXPECT(NOTSUP, mortise_acquire(client, "ttl", MORTISE_OPTIONS(.wait_ms = 0, .owner = "us"),
                                   &lease, &detail));
    close_client(client);
}

static const CU_TestInfo tests[] = {
    {"settings", test_settings},
    {"one node dead from the start", test_one_dead},
    {"two nodes dead from the start", test_two_dead},
    {"three nodes dead from the start", test_three_dead},
    {"the votes of three nodes are lost", test_three_lost},
    {"the memory of nodes is full", test_no_memory},
    {"a node that hangs", test_hanging},
    {"a node that hangs, and is needed", test_hanging_needed},
    {"nodes die and come back while it is held", test_repair},
    {"a majority has lost it", test_majority_lost},
    {"redsync#186: restarted nodes take part again", test_rejoin},
    {"all connections are cut", test_all_cut},
    {"a release reaches nodes that were away", test_release_remembered},
    {"a list", test_list},
    {"a list, and shares are of another type", test_list_unread},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = nodes_start(&nodes, 5, NULL);
    if (code == 0)
        code = run_tests("redlock nodes", tests, argc, argv);
    return !nodes_end(&nodes) && code == 0 ? 1 : code;
}
