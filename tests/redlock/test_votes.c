/* test_votes.c - votes that are split, that come late, or whose caller has gone; and holders that are cut off or
 * stopped. On five nodes, each behind the fault proxy. */
#include "nodes.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct nodes nodes = {.proxied = true};

#define HURRIED "unreachable_timeout = 3s\nclose_timeout = 60s"
#define SOON AT_ONCE "node_timeout = 300ms\n"

/* It is connected to all nodes, and no request is under way. */
static void warm_up(mortise_client *client, const char *name)
{
    CHECK(wait_works(client));
    give(take(client, name));
    CHECK(wait_nodes_with(&nodes, name, 0));
}

/* ---- late votes ------------------------------------------------------------------------------------------------ */

/* Three of the requests come to their nodes long after the attempt has failed. */
static void test_late_votes(void)
{
    mortise_client *client = nodes_open_by(&nodes, HURRIED, SOON), *other;
    other = nodes_open(&nodes, ALL, NULL, AT_ONCE);
    warm_up(client, "late");
    nodes_say(&nodes, 7, "hold-up");
    mortise_status status = try_once(client, "late");
    CHECK(status == MORTISE_INDETERMINATE || status == MORTISE_UNREACHABLE);
    CHECK(wait_nodes_with(&nodes, "late", 0));
    nodes_say(&nodes, 7, "pass"); /* the votes, and what undoes them behind */
    mortise_lease *lease = take(other, "late");
    give(lease);
    CHECK(wait_nodes_with(&nodes, "late", 0));
    CHECK(wait_works(client));
    close_client(client);
    close_client(other);
}

/* redisson#4456: an acquire that is interrupted half-way leaves nothing. */
static void test_interrupted(void)
{
    mortise_client *client = nodes_open_by(&nodes, NULL, AT_ONCE "node_timeout = 20s\n");
    struct pending pending = PENDING_INIT;
    warm_up(client, "interrupted");
    nodes_say(&nodes, 7, "hold-down"); /* executed on all, answered by two */
    pending_start(&pending, client, "interrupted",
                  MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(wait_nodes_with(&nodes, "interrupted", ALL));
    EXPECT(OK, mortise_cancel(client, pending.request));
    CHECK(pending_join(&pending) == MORTISE_CANCELED);
    CHECK(wait_nodes_with(&nodes, "interrupted", 0)); /* although three are still silent */
    nodes_say(&nodes, 7, "pass");
    give(take(client, "interrupted"));
    close_client(client);
}

/* Two nodes do not answer: the others suffice for the grant, its end, and the end of the client. */
static void test_closed(void)
{
    mortise_client *client =
        nodes_open_by(&nodes, "close_timeout = 5s", AT_ONCE "node_timeout = 20s\n");
    warm_up(client, "closed");
    nodes_say(&nodes, 3, "hold-down");
    mortise_lease *lease = take(client, "closed");
    give(lease);
    CHECK(wait_nodes_with(&nodes, "closed", 0));
    close_client(client);
    nodes_say(&nodes, 3, "pass");
}

/* ---- split votes ------------------------------------------------------------------------------------------------ */

struct contender {
    mortise_client *client;
    const char *name;
    struct nodes *own; /* its proxies */
    int rounds;
};

static void contend(void *argument)
{
    struct contender *contender = argument;
    snprintf(doing, sizeof doing, "%s", contender->name);
    for (int i = 0; i < contender->rounds && !failures; i++)
        give(take(contender->client, contender->name));
}

/* All get it as often as they want, and no lock costs a node more than some tries. */
static void settle(struct contender *contenders, int count, int rounds, const char *name)
{
    int64_t before = nodes_commands(&nodes, "evalsha");
    for (int i = 0; i < count; i++) {
        contenders[i].name = name;
        contenders[i].rounds = rounds;
    }
    in_parallel(contend, contenders, sizeof *contenders, (size_t)count);
    CHECK(wait_nodes_with(&nodes, name, 0));
    double tries = (double)(nodes_commands(&nodes, "evalsha") - before) / 5 / (count * rounds);
    printf("(%d contenders: %.1f requests per node and lock) ", count, tries);
    CHECK(tries < 40);
}

static void open_contenders(struct contender *contenders, int count, unsigned set)
{
    for (int i = 0; i < count; i++)
        contenders[i].client = nodes_open(&nodes, set, "handover_max = 0", AT_ONCE);
}

static void close_contenders(struct contender *contenders, int count)
{
    for (int i = 0; i < count; i++)
        close_client(contenders[i].client);
}

static void test_contenders(void)
{
    static const int counts[] = {2, 3, 5};
    for (int i = 0; i < 3; i++) {
        struct contender contenders[5];
        open_contenders(contenders, counts[i], ALL);
        settle(contenders, counts[i], 30, "contenders");
        close_contenders(contenders, counts[i]);
    }
}

static mortise_client *open_own(struct nodes *own, int slow)
{
    for (int i = 0; i < 2; i++) {
        if (!start_proxy(&nodes.node[i], &own->proxy[i]))
            return NULL;
        if (i == slow)
            CHECK(test_proxy_say(&own->proxy[i], "delay 20 up"));
    }
    char list[100];
    mortise_client *client = NULL;
    snprintf(list, sizeof list, "127.0.0.1:%d, 127.0.0.1:%d, 127.0.0.1:1", own->proxy[0].port,
             own->proxy[1].port);
    EXPECT(OK, nodes_open_list(&nodes, list, "handover_max = 0", AT_ONCE "node_timeout = 5s\n",
                               &client));
    return client;
}

/* node-redlock: two of three nodes answer; each of two contenders is first on another one. */
static void test_split_of_two(void)
{
    struct nodes own[2];
    struct contender contenders[2];
    for (int i = 0; i < 2; i++)
        contenders[i].client = open_own(&own[i], i);
    settle(contenders, 2, 10, "split of two");
    close_contenders(contenders, 2);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++)
            test_proxy_end(&own[i].proxy[k]);
}

/* ---- waiting ------------------------------------------------------------------------------------------------------ */

static void test_waiting(void)
{
    mortise_client *holder = nodes_open(&nodes, ALL, "renew_every = 50ms", AT_ONCE);
    mortise_client *client = nodes_open(&nodes, ALL, NULL, AT_ONCE);
    struct pending pending = PENDING_INIT;
    mortise_lease *lease = take(holder, "waiting");
    pending_start(&pending, client, "waiting", MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(wait_subscribed(&nodes, 5, "waiting"));
    CHECK(wait_renewals(holder, stats_of(holder).renewals + 3)); /* its look after that is over */
    uint64_t asked = stats_of(client).requests;
    CHECK(wait_renewals(holder, stats_of(holder).renewals + 10));
    CHECK(stats_of(client).requests <= asked + 1);
    give(lease);
    CHECK(pending_join(&pending) ==
          MORTISE_OK); /* not after a ttl, which is longer than its patience */
    give(pending.lease);
    close_client(client);
    close_client(holder);
}

static bool all_are_marked(void *name)
{
    int marked = 0;
    for (int i = 0; i < nodes.count; i++)
        marked += ask_is(&nodes.node[i], "+", "GETRANGE mortise:%s 32 32", (const char *)name);
    return marked == nodes.count;
}

/* A release notifies nobody if nobody was refused; a lock with a waiter looks as before. */
static void test_telling_nobody(void)
{
    mortise_client *client = nodes_open(&nodes, ALL, NULL, AT_ONCE);
    mortise_client *other = nodes_open(&nodes, ALL, NULL, AT_ONCE "node_timeout = 20s\n");
    mortise_info alone = {.size = sizeof alone}, wanted = {.size = sizeof wanted};
    warm_up(client, "telling");
    int64_t told = nodes_commands(&nodes, "publish");
    for (int i = 0; i < 20; i++)
        give(take(client, "telling"));
    CHECK(wait_nodes_with(&nodes, "telling", 0));
    CHECK(nodes_commands(&nodes, "publish") == told);
    mortise_lease *lease = take(client, "telling");
    EXPECT(OK, mortise_inspect(client, "telling", &alone, &detail));
    CHECK(wait_nodes_with(&nodes, "telling", ALL));
    EXPECT(BUSY, try_once(other, "telling"));
    CHECK(test_poll(all_are_marked, (void *)(uintptr_t) "telling", TEST_PATIENCE_MS));
    EXPECT(OK, mortise_inspect(client, "telling", &wanted, &detail));
    CHECK(wanted.held && wanted.token == mortise_token(lease) && wanted.pid == alone.pid);
    CHECK(strcmp(wanted.owner, alone.owner) == 0 && strcmp(wanted.program, alone.program) == 0);
    give(lease);
    CHECK(wait_nodes_with(&nodes, "telling", 0));
    CHECK(nodes_commands(&nodes, "publish") == told + nodes.count);
    close_client(client);
    close_client(other);
}

/* Nodes are down, and come back: a waiter is notified of a release by those that were up. */
static void test_waiting_with_two_away(void)
{
    mortise_client *holder = nodes_open(&nodes, ALL, NULL, AT_ONCE);
    mortise_client *client = nodes_open_by(&nodes, NULL, AT_ONCE);
    struct pending pending = PENDING_INIT;
    mortise_lease *lease = take(holder, "away");
    nodes_say(&nodes, 17, "refuse");
    pending_start(&pending, client, "away", MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(wait_subscribed(&nodes, 3, "away"));
    give(lease);
    CHECK(pending_join(&pending) == MORTISE_OK);
    give(pending.lease);
    nodes_say(&nodes, 17, "accept");
    CHECK(wait_works(client));
    CHECK(wait_nodes_with(&nodes, "away", 0));
    close_client(client);
    close_client(holder);
}

/* Returns the client that has subscribed at the first node; 0: none, or two. */
static int64_t subscriber(void)
{
    redisReply *reply = ask(&nodes.node[0], "CLIENT LIST TYPE pubsub");
    const char *text = reply && reply->str ? reply->str : "", *line = strchr(text, '\n');
    bool one = strncmp(text, "id=", 3) == 0 && line && line[1] == '\0';
    int64_t id = one ? strtoll(text + 3, NULL, 10) : 0;
    freeReplyObject(reply);
    return id;
}

static bool subscribes_anew(void *argument)
{
    const int64_t *before = argument;
    int64_t now = subscriber();
    return now != 0 && now != *before;
}

/* The connection for requests breaks: the next one may lead to another server under the same address, and the
 * connection for news may still belong to the old one. So that is made again, too. */
static void test_news_of_another(void)
{
    mortise_client *holder = nodes_open(&nodes, ALL, NULL, AT_ONCE);
    mortise_client *client = nodes_open(&nodes, ALL, NULL, AT_ONCE);
    struct pending pending = PENDING_INIT;
    mortise_lease *lease = take(holder, "news");
    pending_start(&pending, client, "news", MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(wait_subscribed(&nodes, 5, "news"));
    int64_t before = subscriber();
    CHECK(before > 0);
    freeReplyObject(ask(&nodes.node[0], "CLIENT KILL TYPE normal SKIPME yes"));
    CHECK(test_poll(subscribes_anew, &before, TEST_PATIENCE_MS));
    CHECK(wait_subscribed(&nodes, 5, "news"));
    give(lease);
    CHECK(pending_join(&pending) == MORTISE_OK);
    give(pending.lease);
    CHECK(wait_nodes_with(&nodes, "news",
                          0)); /* a close does not wait for the node that is just coming back */
    close_client(client);
    close_client(holder);
}

/* ---- scripts are forgotten ------------------------------------------------------------------------------------------ */

static atomic_bool flushing;

static void flush_scripts(void *argument)
{
    struct server *node = argument;
    while (flushing)
        freeReplyObject(ask(node, "SCRIPT FLUSH"));
}

static void *flush_all(void *argument)
{
    in_parallel(flush_scripts, argument, sizeof(struct server), (size_t)nodes.count);
    return NULL;
}

/* SCRIPT FLUSH at any moment, in all nodes: votes, tokens, renewals and undos are sent again with their text. */
static void test_scripts_flushed(void)
{
    mortise_client *client =
        nodes_open(&nodes, ALL, "renew_every = 20ms", AT_ONCE "node_timeout = 20s\n");
    struct told told = TOLD_INIT;
    mortise_lease *held = NULL, *lease;
    pthread_t flusher;
    EXPECT(OK, mortise_acquire(client, "flushed, held",
                               MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = LONG_MS,
                                               .on_state = note_state, .user_data = &told),
                               &held, &detail));
    flushing = true;
    CHECK(pthread_create(&flusher, NULL, flush_all, nodes.node) == 0);
    uint64_t token = 0;
    for (int i = 0; i < 100; i++) {
        lease = take(client, "flushed");
        CHECK(mortise_token(lease) > token);
        token = mortise_token(lease);
        EXPECT(BUSY, try_once(client, "flushed"));
        give(lease);
    }
    CHECK(wait_renewals(client, stats_of(client).renewals + 20));
    flushing = false;
    pthread_join(flusher, NULL);
    CHECK(test_count_get(&told.lost) == 0);
    give(held);
    CHECK(wait_nodes_with(&nodes, "flushed", 0));
    CHECK(wait_nodes_with(&nodes, "flushed, held", 0));
    close_client(client);
}

static bool is_nowhere(void *name)
{
    return nodes_with(&nodes, name) == 0;
}

/* NOSCRIPT from the last two nodes comes when the release is over and nobody waits any more: it is read nevertheless,
 * long before the connection's timeout. */
static void test_flushed_and_unread(void)
{
    char name[] = "unread";
    mortise_client *client = nodes_open_by(&nodes, NULL, AT_ONCE "node_timeout = 20s\n");
    warm_up(client, name);
    mortise_lease *lease = take(client, name);
    CHECK(wait_nodes_with(&nodes, name, ALL));
    for (int i = 0; i < nodes.count; i++)
        freeReplyObject(ask(&nodes.node[i], "SCRIPT FLUSH"));
    nodes_say(&nodes, 24, "hold-down");
    give(lease);
    CHECK(!is_nowhere(name));
    nodes_say(&nodes, 24, "pass");
    CHECK(test_poll(is_nowhere, name, 10000));
    close_client(client);
}

/* ---- a server that is listed twice ------------------------------------------------------------------------------------ */

/* Under its own address and the proxy's: one server has one vote. */
static void test_twins(void)
{
    char list[100];
    mortise_client *client = NULL;
    struct test_proxy *proxy = &nodes.proxy[0];
    snprintf(list, sizeof list, "127.0.0.1:%d, 127.0.0.1:%d, 127.0.0.1:1", nodes.node[0].port,
             proxy->port);
    EXPECT(OK, nodes_open_list(&nodes, list, HURRIED, AT_ONCE, &client));
    for (int i = 0; i < 3; i++)
        EXPECT(UNREACHABLE, try_once(client, "twins"));
    CHECK(wait_nodes_with(&nodes, "twins", 0));
    close_client(client);
    snprintf(list, sizeof list, "127.0.0.1:%d, 127.0.0.1:%d, 127.0.0.1:%d", nodes.node[0].port,
             proxy->port, nodes.node[1].port);
    EXPECT(OK, nodes_open_list(&nodes, list, NULL, AT_ONCE, &client));
    mortise_lease *lease = take(client, "twins"); /* of two servers */
    CHECK(wait_nodes_with(&nodes, "twins", 3));
    give(lease);
    CHECK(wait_nodes_with(&nodes, "twins", 0));
    close_client(client);
}

/* ---- holders that are cut off --------------------------------------------------------------------------------------- */

struct successor {
    mortise_lease *of; /* that of the former holder */
    struct test_count done;
    mortise_lease *lease;
    mortise_lease_state state_of;
};

static void succeeded(mortise_status status, mortise_lease *lease, const mortise_error *error,
                      void *user_data)
{
    struct successor *successor = user_data;
    (void)error;
    successor->state_of = mortise_state(successor->of);
    successor->lease = status == MORTISE_OK ? lease : NULL;
    test_count_add(&successor->done, 1);
}

/* As soon as enough nodes answer it in time. */
static bool is_refused(void *client)
{
    mortise_status status = try_once(client, "cut off");
    CHECK(status != MORTISE_OK);
    return status == MORTISE_BUSY;
}

/* A holder on the side of the minority knows by its own clock that it has lost the lock, before the others admit the
 * next one. When it comes back, it cannot raise or take the token of its successor. */
static void test_cut_off(void)
{
    mortise_client *client = nodes_open_by(&nodes, HURRIED, SOON), *other;
    mortise_request request;
    other = nodes_open(&nodes, ALL, NULL, AT_ONCE);
    struct successor successor = {.done = TEST_COUNT_INIT};
    successor.of = take_as(client, "cut off", NULL, 1500);
    uint64_t token = mortise_token(successor.of);
    CHECK(wait_renewals(client, 1));
    nodes_say(&nodes, 7, "hold");
    EXPECT(OK, mortise_acquire_async(other, "cut off",
                                     MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS), succeeded,
                                     &successor, &request, &detail));
    CHECK(test_count_wait(&successor.done, 1));
    CHECK(successor.state_of == MORTISE_STATE_LOST);
    CHECK(successor.lease != NULL);
    uint64_t next = mortise_token(successor.lease);
    CHECK(next > token);
    nodes_say(&nodes, 7, "pass"); /* its late renewals */
    CHECK(wait_works(client));
    for (int i = 0; i < nodes.count; i++)
        CHECK(last_token(&nodes, i, "cut off") <= next);
    CHECK(mortise_state(successor.lease) == MORTISE_STATE_HELD);
    EXPECT(LOST, mortise_release(successor.of, &detail));
    CHECK(__builtin_popcount(nodes_with(&nodes, "cut off")) >= 3);
    CHECK(test_poll(is_refused, client, TEST_PATIENCE_MS));
    give(successor.lease);
    CHECK(wait_nodes_with(&nodes, "cut off", 0));
    close_client(client);
    close_client(other);
}

/* It is stopped between its request and the votes, which come to the nodes when another holds the lock. */
static void test_resumed(void)
{
    mortise_client *client = nodes_open_by(&nodes, NULL, AT_ONCE "node_timeout = 20s\n"), *other;
    other = nodes_open(&nodes, ALL, NULL, AT_ONCE);
    struct pending pending = PENDING_INIT;
    warm_up(client, "resumed");
    nodes_say(&nodes, ALL, "hold-up");
    pending_start(&pending, client, "resumed", MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    mortise_lease *lease = take(other, "resumed");
    uint64_t token = mortise_token(lease);
    CHECK(wait_nodes_with(&nodes, "resumed", ALL));
    nodes_say(&nodes, ALL, "pass");
    CHECK(wait_subscribed(&nodes, 5, "resumed")); /* it was refused, and waits */
    for (int i = 0; i < nodes.count; i++)
        CHECK(last_token(&nodes, i, "resumed") <= token);
    CHECK(mortise_state(lease) == MORTISE_STATE_HELD);
    give(lease);
    CHECK(pending_join(&pending) == MORTISE_OK);
    CHECK(mortise_token(pending.lease) > token);
    give(pending.lease);
    close_client(client);
    close_client(other);
}

static const CU_TestInfo tests[] = {
    {"late votes are undone", test_late_votes},
    {"redisson#4456: an interrupted acquire leaves nothing", test_interrupted},
    {"closed before all have answered", test_closed},
    {"two, three and five contenders", test_contenders},
    {"node-redlock: two live nodes, two contenders, a split vote", test_split_of_two},
    {"a waiter is told", test_waiting},
    {"nobody waits, nobody is told", test_telling_nobody},
    {"a waiter is told while two nodes are away", test_waiting_with_two_away},
    {"news of another server", test_news_of_another},
    {"scripts are flushed all the time", test_scripts_flushed},
    {"scripts are flushed, and the release is over", test_flushed_and_unread},
    {"a server that is listed twice", test_twins},
    {"cut off with a minority", test_cut_off},
    {"stopped between request and votes", test_resumed},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = nodes_start(&nodes, 5, NULL);
    if (code == 0)
        code = run_tests("redlock votes", tests, argc, argv);
    return !nodes_end(&nodes) && code == 0 ? 1 : code;
}
