/* test_unheard.c - the connections for subscriptions, which tell waiters of releases, cannot be made, or are not answered, while a
 * quorum works otherwise: waiters ask instead, the log says so once, and all is as before when they work again. On three nodes. */
#include "nodes.h"

#include <fake.h>
#include <log.h>

#include <stdio.h>
#include <string.h>

#define NODES 3
#define SETTINGS AT_ONCE "retry = 20ms\n"

static struct nodes nodes;

/* How often the log says that waiters must ask. */
static int said(void)
{
    return log_count("no connection for subscriptions; waiters look every 20 ms instead");
}

static bool is_said(void *unused)
{
    (void)unused;
    return said() > 0;
}

struct asks {
    int64_t (*count)(void);
    int64_t wanted;
};

static bool has_asked(void *argument)
{
    const struct asks *asks = argument;
    return asks->count() >= asks->wanted;
}

/* The waiter asks again and again, though the lock is held for minutes. */
static bool wait_asks(int64_t (*count)(void), int64_t more)
{
    struct asks asks = {count, count() + more};
    return test_poll(has_asked, &asks, TEST_PATIENCE_MS);
}

/* ---- the nodes have no room for them ------------------------------------------------------------------------------ */

static int64_t scripts_at_nodes(void)
{
    return nodes_commands(&nodes, "evalsha");
}

static void make_room(void)
{
    for (int i = 0; i < NODES; i++)
        CHECK(ask_is(&nodes.node[i], "OK", "CONFIG SET maxclients 10000"));
}

static void fill_up(int count)
{
    for (int i = 0; i < count; i++)
        CHECK(ask_is(&nodes.node[i], "OK", "CONFIG SET maxclients %d",
                     (int)info_number(&nodes.node[i], "clients", "connected_clients")));
}

static void shut_out(int full)
{
    static char room[] = "room", more[] = "more room";
    struct pending pending = PENDING_INIT;
    snprintf(doing, sizeof doing, "%d nodes are full", full);
    for (int i = 0; i < NODES; i++)
        CHECK(server_is_clean(&nodes.node[i])); /* no client leaves */
    if (!log_begin(nodes.group.folder))
        return;
    mortise_client *holder = nodes_open(&nodes, ALL, NULL, SETTINGS);
    mortise_client *client = nodes_open(&nodes, ALL, NULL, SETTINGS);
    mortise_lease *lease = take(holder, room);
    EXPECT(BUSY, try_once(client, room));
    fill_up(full);
    pending_start(&pending, client, room, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    if (!CHECK(test_poll(is_said, NULL, TEST_PATIENCE_MS)) ||
        !CHECK(wait_asks(scripts_at_nodes, 30)))
        make_room();
    CHECK(test_count_get(&pending.calls) == 0);
    give(lease);
    EXPECT(OK, pending_join(&pending));
    give(pending.lease);
    make_room();
    /* from now on it is told, and an ordinary reconnection is none of the log's business */
    lease = take(holder, more);
    pending = PENDING_INIT;
    pending_start(&pending, client, more, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(wait_subscribed(&nodes, NODES, more));
    for (int i = 0; i < NODES; i++)
        CHECK(ask_number(&nodes.node[i], "CLIENT KILL TYPE pubsub") == 1);
    CHECK(wait_subscribed(&nodes, NODES, more));
    give(lease);
    EXPECT(OK, pending_join(&pending));
    give(pending.lease);
    close_client(holder);
    close_client(client);
    log_end();
    CHECK(said() == 1);
}

static void test_no_room(void)
{
    shut_out(NODES);
    shut_out(NODES - 1); /* the release may be announced by the other ones only */
}

/* ---- nobody answers ----------------------------------------------------------------------------------------------- */

static struct fake fakes[NODES];

static int64_t scripts_at_fakes(void)
{
    int64_t count = 0;
    for (int i = 0; i < NODES; i++)
        for (size_t k = 0; k < sizeof fakes[i].asked / sizeof *fakes[i].asked; k++)
            count += atomic_load(&fakes[i].asked[k]);
    return count;
}

struct count {
    const atomic_int *count;
    int wanted;
};

static bool is_counted(void *argument)
{
    const struct count *count = argument;
    return atomic_load(count->count) >= count->wanted;
}

/* One lease of ten minutes, at all nodes; and three processes. */
static bool fakes_start(char *list, size_t size)
{
    static const char held[] = "*3\r\n:600000\r\n$66\r\n"
                               "0123456789abcdef0123456789abcdef 1700000000000000 1700000000000000"
                               "\r\n$16\r\n1700000000000000\r\n";
    static char info[NODES][80];
    size_t length = 0;
    for (int i = 0; i < NODES; i++) {
        snprintf(info[i], sizeof info[i],
                 "$49\r\nrun_id:%d123456789012345678901234567890123456789\r\n"
                 "\r\n",
                 i);
        if (!CHECK(fake_start(&fakes[i])))
            return false;
        fake_inform(&fakes[i], info[i]);
        fake_answer(&fakes[i], held, 0, NULL);
        atomic_store(&fakes[i].mute, true);
        length += (size_t)snprintf(list + length, size - length, "%s127.0.0.1:%d", i > 0 ? "," : "",
                                   fakes[i].port);
    }
    return true;
}

/* Each connection is given up after command_timeout; in between waiters ask. */
static void test_not_answered(void)
{
    struct pending pending = PENDING_INIT;
    mortise_client *client = NULL;
    char list[100];
    if (!fakes_start(list, sizeof list) || !log_begin(nodes.group.folder))
        return;
    if (EXPECT(OK, nodes_open_list(&nodes, list, NULL, SETTINGS "command_timeout = 300ms\n",
                                   &client))) {
        pending_start(&pending, client, "mute", MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
        for (int i = 0; i < NODES; i++) {
            struct count thrice = {&fakes[i].subscribed, 3};
            CHECK(test_poll(is_counted, &thrice, TEST_PATIENCE_MS));
        }
        CHECK(test_poll(is_said, NULL, TEST_PATIENCE_MS));
        CHECK(wait_asks(scripts_at_fakes, 30));
        close_client(client);
        EXPECT(CLOSED, pending_join(&pending));
    }
    log_end();
    CHECK(said() == 1);
    for (int i = 0; i < NODES; i++)
        fake_end(&fakes[i]);
}

static const CU_TestInfo tests[] = {
    {"no room for a second connection", test_no_room},
    {"subscribing is not answered", test_not_answered},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = nodes_start(&nodes, NODES, NULL);
    if (code == 0)
        code = run_tests("redlock: waiters that are not told", tests, argc, argv);
    return !nodes_end(&nodes) && code == 0 ? 1 : code;
}
