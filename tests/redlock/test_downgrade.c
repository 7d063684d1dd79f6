/* test_downgrade.c - an exclusive claim becomes shared on five nodes, with requests and answers that are lost, a node that is
 * emptied, a client that dies. */
#include "alone.h"
#include "share.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#define FIVE 31u

static struct nodes nodes = {.proxied = true};
static struct alone one;

/* Two clients listen on each node. */
static bool is_heard_by_two(void *name)
{
    int count = 0;
    for (int i = 0; i < nodes.count; i++) {
        redisReply *reply =
            ask(&nodes.node[i], "PUBSUB NUMSUB {mortise:%s}:mortise:news", (const char *)name);
        count += reply && reply->elements == 2 && reply->element[1]->integer == 2;
        freeReplyObject(reply);
    }
    return count == nodes.count;
}

static void test_downgrade(void)
{
    const char *name = "downgrade";
    mortise_client *client = nodes_open(&nodes, ALL, "renew_every = 100ms\n", AT_ONCE);
    mortise_client *other = nodes_open(&nodes, ALL, NULL, AT_ONCE);
    mortise_client *third = nodes_open(&nodes, ALL, NULL, AT_ONCE);
    struct pending reader, writer;
    mortise_info info = {.size = sizeof info};
    mortise_lease *lease = take(client, name);
    uint64_t token = mortise_token(lease);
    want(&reader, other, name, MORTISE_SHARED);
    CHECK(wait_subscribed(&nodes, 5, name));
    want(&writer, third, name, MORTISE_EXCLUSIVE);
    CHECK(test_poll(is_heard_by_two, (void *)(uintptr_t)name, TEST_PATIENCE_MS));
    EXPECT(OK, mortise_downgrade(lease, &detail));
    SAFE(try_once(third, name) == MORTISE_BUSY);
    EXPECT(OK, pending_join(&reader)); /* the writer that waits too hears of it at the same time */
    CHECK(mortise_token(lease) == token && mortise_token(reader.lease) > token);
    SAFE(test_count_get(&writer.calls) == 0);
    EXPECT(OK, mortise_inspect(other, name, &info, &detail));
    CHECK(info.holders == 2 && info.mode == MORTISE_SHARED && info.token == token);
    CHECK(wait_renewals(client, stats_of(client).renewals + 3));
    give(reader.lease);
    SAFE(test_count_get(&writer.calls) == 0);
    give(lease);
    EXPECT(OK, pending_join(&writer));
    give(writer.lease);
    CHECK(wait_nodes_with(&nodes, name, 0));
    close_client(client);
    close_client(other);
    close_client(third);
}

#define QUICK "node_persistent", "yes", "node_timeout", "200ms", "command_timeout", "60s"

static bool open_by_proxies(void)
{
    int ports[5];
    for (int i = 0; i < 5; i++)
        ports[i] = nodes.proxy[i].port;
    return alone_open(&one, ports, 5, ALONE(QUICK)) && alone_works(&one);
}

static struct call downgrade_of(const struct call *lock)
{
    struct call call = call_about(MORTISE_OP_RENEW, lock);
    call.op.flags = MORTISE_OP_DOWNGRADE;
    return call;
}

/* Repeated as long as nobody knows: nodes that were late may still be. */
static void downgrade_at_last(struct call *down, const struct call *lock)
{
    int64_t give_up_ms = test_now_ms() + TEST_PATIENCE_MS;
    do
        *down = downgrade_of(lock);
    while (call_run(&one, down) == MORTISE_INDETERMINATE && test_now_ms() < give_up_ms);
    CHECK(down->op.status == MORTISE_OK);
}

/* On which nodes it is shared. */
static unsigned shared_on(const char *name)
{
    unsigned set = 0;
    for (int i = 0; i < nodes.count; i++)
        set |= ask_number(&nodes.node[i], "EXISTS {mortise:%s}:mortise:holders", name) == 1
                   ? 1u << i
                   : 0;
    return set;
}

static bool is_shared_everywhere(void *name)
{
    return shared_on(name) == FIVE;
}

static bool is_shared_on_two(void *name)
{
    return shared_on(name) == 3;
}

/* The request reaches two of five nodes. Nobody knows what it is then: it is repeated. A reader does not get in, because the
 * other three have it alone; a writer neither. */
static void test_downgraded_on_a_minority(void)
{
    static char name[] = "minority";
    if (!open_by_proxies())
        return;
    mortise_client *other = nodes_open(&nodes, ALL, NULL, AT_ONCE);
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:minority"), down, end;
    DONE(OK, call_run(&one, &lock));
    CHECK(wait_nodes_with(&nodes, name, FIVE));
    nodes_say(&nodes, 28, "hold-up");
    down = downgrade_of(&lock);
    DONE(INDETERMINATE, call_run(&one, &down));
    CHECK(test_poll(is_shared_on_two, name, TEST_PATIENCE_MS));
    SAFE(try_share(other, name) == MORTISE_BUSY);
    SAFE(try_once(other, name) == MORTISE_BUSY);
    nodes_say(&nodes, 28, "pass");
    downgrade_at_last(&down, &lock); /* found exclusive on three nodes, shared on two */
    CHECK(alone_until(&one, is_shared_everywhere, name));
    EXPECT(OK, try_share(other, name));
    SAFE(try_once(other, name) == MORTISE_BUSY);
    end = call_about(MORTISE_OP_RELEASE, &lock);
    end.op.flags = MORTISE_OP_DOWNGRADE;
    DONE(OK, call_run(&one, &end));
    CHECK(wait_nodes_with(&nodes, name, 0));
    alone_close(&one);
    close_client(other);
}

static bool is_unbarred(void *name)
{
    bool barred = false;
    for (int i = 0; i < nodes.count; i++)
        barred |=
            ask_number(&nodes.node[i], "EXISTS {mortise:%s}:mortise:bar", (const char *)name) != 0;
    return !barred;
}

/* A writer that waits is the first to ask after a downgrade. It keeps no reader out then; half a second later it does. */
static void test_writer_first(void)
{
    static char name[] = "first";
    mortise_status status = MORTISE_BUSY;
    bool late = true;
    if (!open_by_proxies())
        return;
    mortise_client *other = nodes_open(&nodes, ALL, NULL, AT_ONCE);
    CHECK(wait_works(other));
    for (int i = 0; i < 20 && status != MORTISE_OK && late; i++) {
        struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:first"), down, end;
        struct call writer = call_of(MORTISE_OP_ACQUIRE, "mortise:first");
        DONE(OK, call_run(&one, &lock));
        CHECK(wait_nodes_with(&nodes, name, FIVE));
        int64_t from_ms = test_now_ms();
        downgrade_at_last(&down, &lock);
        CHECK(alone_until(&one, is_shared_everywhere, name));
        DONE(BUSY, call_run(&one, &writer));
        status = try_share(other, name);
        late = test_now_ms() - from_ms > 400; /* then it proves nothing, and is done again */
        CHECK(status == MORTISE_OK || late);
        CHECK(test_poll(is_unbarred, name, TEST_PATIENCE_MS));
        from_ms = test_now_ms();
        writer = call_of(MORTISE_OP_ACQUIRE, "mortise:first");
        DONE(BUSY, call_run(&one, &writer));
        CHECK(try_share(other, name) == MORTISE_BUSY || test_now_ms() - from_ms >= 2000);
        end = call_about(MORTISE_OP_RELEASE, &lock);
        end.op.mode = MORTISE_SHARED;
        DONE(OK, call_run(&one, &end));
        CHECK(wait_nodes_with(&nodes, name, 0));
    }
    CHECK(status == MORTISE_OK);
    alone_close(&one);
    close_client(other);
}

static bool is_doubted(void *unused)
{
    (void)unused;
    return one.doubts > 0;
}

/* All have done it, and no answer comes back: it is repeated, and the claim is the same. */
static void test_downgrade_reply_lost(void)
{
    static char name[] = "reply";
    if (!open_by_proxies())
        return;
    mortise_client *other = nodes_open(&nodes, ALL, NULL, AT_ONCE);
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:reply"), down, end;
    DONE(OK, call_run(&one, &lock));
    CHECK(wait_nodes_with(&nodes, name, FIVE));
    nodes_say(&nodes, FIVE, "hold-down");
    down = downgrade_of(&lock);
    call_start(&one, &down);
    CHECK(test_poll(is_shared_everywhere, name, TEST_PATIENCE_MS));
    nodes_say(&nodes, FIVE, "cut");
    nodes_say(&nodes, FIVE, "pass");
    CHECK(call_wait(&one, &down));
    CHECK(down.op.status == MORTISE_INDETERMINATE);
    CHECK(alone_until(&one, is_doubted, NULL)); /* a node is back: the core is to ask again */
    downgrade_at_last(&down, &lock);
    mortise_lease *lease = share(other, name);
    CHECK(mortise_token(lease) > lock.op.token);
    SAFE(try_once(other, name) == MORTISE_BUSY);
    end = call_about(MORTISE_OP_RELEASE, &lock);
    end.op.mode = MORTISE_SHARED;
    DONE(OK, call_run(&one, &end));
    CHECK(mortise_state(lease) == MORTISE_STATE_HELD);
    give(lease);
    CHECK(wait_nodes_with(&nodes, name, 0));
    alone_close(&one);
    close_client(other);
}

/* The request does not reach two of five nodes, which have the claim alone for as long as nobody renews it. It can be broken. */
static void test_break_of_a_downgraded(void)
{
    static char name[] = "broken";
    if (!open_by_proxies())
        return;
    mortise_client *other = nodes_open(&nodes, ALL, NULL, AT_ONCE);
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:broken"), down, end;
    DONE(OK, call_run(&one, &lock));
    CHECK(wait_nodes_with(&nodes, name, FIVE));
    nodes_say(&nodes, 24, "hold-up");
    down = downgrade_of(&lock);
    DONE(OK, call_run(&one, &down));
    nodes_say(&nodes, 24, "cut");
    nodes_say(&nodes, 24, "pass");
    CHECK(shared_on(name) == 7 && nodes_with(&nodes, name) == FIVE);
    EXPECT(OK, mortise_break(other, name, lock.op.token, &detail));
    CHECK(wait_nodes_with(&nodes, name, 0));
    end = call_about(MORTISE_OP_RELEASE, &lock);
    end.op.mode = MORTISE_SHARED;
    DONE(LOST, call_run(&one, &end));
    alone_close(&one);
    close_client(other);
}

static bool hears_all(void *client)
{
    char text[400] = "";
    return mortise_ping(client, text, sizeof text, &detail) == MORTISE_OK &&
           strstr(text, "5 of 5 nodes answer") != NULL;
}

static bool is_nowhere(void *name)
{
    return nodes_with(&nodes, name) == 0;
}

/* The request reaches two of five nodes only, and those answer whoever breaks it too late to say that it is shared there. */
static void test_break_of_one_shared_by_few(void)
{
    static char name[] = "few";
    if (!open_by_proxies())
        return;
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:few"), down;
    DONE(OK, call_run(&one, &lock));
    CHECK(wait_nodes_with(&nodes, name, FIVE));
    nodes_say(&nodes, 28, "hold-up");
    down = downgrade_of(&lock);
    DONE(INDETERMINATE, call_run(&one, &down));
    CHECK(test_poll(is_shared_on_two, name, TEST_PATIENCE_MS));
    nodes_say(&nodes, 28, "cut");
    alone_close(&one);
    nodes_say(&nodes, 28, "pass");
    mortise_client *other = nodes_open_by(&nodes, NULL, AT_ONCE "node_timeout = 20s\n");
    CHECK(test_poll(hears_all, other, TEST_PATIENCE_MS));
    nodes_say(&nodes, 3, "hold-down");
    EXPECT(OK, mortise_break(other, name, lock.op.token, &detail));
    /* By itself it would end with its ttl. */
    CHECK(test_poll(is_nowhere, name, TEST_PATIENCE_MS / 2));
    nodes_say(&nodes, 3, "pass");
    close_client(other);
}

/* A node is emptied before the downgrade: the renewal brings the claim back there, shared. */
static void test_downgrade_on_an_emptied_node(void)
{
    static char name[] = "emptied";
    mortise_client *client = nodes_open(&nodes, ALL, "renew_every = 100ms\n", AT_ONCE);
    mortise_lease *lease = take(client, name);
    CHECK(wait_nodes_with(&nodes, name, FIVE));
    nodes_do(&nodes, "kill", 1);
    nodes_do(&nodes, "start", 1);
    EXPECT(OK, mortise_downgrade(lease, &detail));
    CHECK(test_poll(is_shared_everywhere, name, TEST_PATIENCE_MS));
    EXPECT(OK, try_share(client, name));
    give(lease);
    CHECK(wait_nodes_with(&nodes, name, 0));
    close_client(client);
}

/* A minority is downgraded, and the client dies: the claim ends with its ttl, on all nodes. */
static void test_downgrade_and_death(void)
{
    static char name[] = "death";
    if (!open_by_proxies())
        return;
    mortise_client *other = nodes_open(&nodes, ALL, NULL, AT_ONCE);
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:death"), down;
    lock.op.ttl_ms = 5000;
    int64_t from_ms = test_now_ms();
    DONE(OK, call_run(&one, &lock));
    CHECK(wait_nodes_with(&nodes, name, FIVE));
    nodes_say(&nodes, 28, "hold-up");
    down = downgrade_of(&lock);
    DONE(INDETERMINATE, call_run(&one, &down));
    CHECK(test_poll(is_shared_on_two, name, TEST_PATIENCE_MS));
    nodes_say(&nodes, 28, "cut");
    alone_close(&one);
    nodes_say(&nodes, 28, "pass");
    mortise_lease *lease = take(other, name);
    SAFE(test_now_ms() - from_ms >= 4940); /* less the margin */
    SAFE(mortise_token(lease) > lock.op.token);
    give(lease);
    CHECK(wait_nodes_with(&nodes, name, 0));
    close_client(other);
}

/* ---- everything at once ------------------------------------------------------------------------------------------- */

#define PARTIES 9
#define TURNS 60

static _Atomic int readers, writers, working, turns;

struct party {
    mortise_client *client;
    unsigned number;
};

/* A caller that gets no answer asks again. */
static mortise_lease *insist(mortise_client *client, mortise_mode mode)
{
    mortise_lease *lease = NULL;
    int64_t give_up_ms = test_now_ms() + TEST_PATIENCE_MS;
    while (!lease && test_now_ms() < give_up_ms) {
        mortise_status status = mortise_acquire(
            client, "mixed",
            MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS, .mode = mode), &lease,
            &detail);
        CHECK(status == MORTISE_OK || status == MORTISE_UNREACHABLE ||
              status == MORTISE_INDETERMINATE);
    }
    CHECK(lease != NULL);
    return lease;
}

static void read_once(mortise_client *client)
{
    mortise_lease *lease = insist(client, MORTISE_SHARED);
    if (!lease)
        return;
    atomic_fetch_add(&readers, 1);
    SAFE(atomic_load(&writers) == 0);
    sched_yield();
    SAFE(atomic_load(&writers) == 0);
    atomic_fetch_sub(&readers, 1);
    mortise_release(lease, NULL); /* its answer may be lost */
}

/* From the call on it counts as shared. */
static void write_once(mortise_client *client, bool downgrades)
{
    mortise_lease *lease = insist(client, MORTISE_EXCLUSIVE);
    if (!lease)
        return;
    SAFE(atomic_fetch_add(&writers, 1) == 0);
    SAFE(atomic_load(&readers) == 0);
    sched_yield();
    SAFE(atomic_load(&readers) == 0);
    atomic_fetch_sub(&writers, 1);
    if (downgrades) {
        atomic_fetch_add(&readers, 1);
        mortise_status status = mortise_downgrade(lease, &detail);
        CHECK(status == MORTISE_OK || status == MORTISE_INDETERMINATE ||
              status == MORTISE_UNREACHABLE);
        SAFE(atomic_load(&writers) == 0);
        sched_yield();
        SAFE(atomic_load(&writers) == 0);
        atomic_fetch_sub(&readers, 1);
    }
    mortise_release(lease, NULL);
}

static bool has_gone_on(void *before)
{
    return atomic_load(&turns) > *(const int *)before || atomic_load(&working) == 0;
}

/* After each turn of somebody, one to five nodes lose their connections, or what is on its way to them, until all others have ended. */
static void break_connections(void)
{
    static const char *const commands[] = {"cut", "hold-up", "hold-down", "cut-reply 1"};
    unsigned random = 1;
    while (atomic_load(&working) > 0 && failures < 3) {
        random = random * 1103515245 + 12345;
        unsigned set = (random >> 16) % FIVE + 1;
        nodes_say(&nodes, set, commands[(random >> 8) % 4]);
        int before = atomic_load(&turns);
        if ((random & 64) != 0)
            test_poll(has_gone_on, &before, 20); /* without these nodes, if it can */
        nodes_say(&nodes, set, "cut");
        nodes_say(&nodes, set, "pass");
        before = atomic_load(&turns) + 2;
        CHECK(test_poll(has_gone_on, &before, TEST_PATIENCE_MS));
    }
}

static void party_run(void *argument)
{
    const struct party *party = argument;
    if (party->number == 0) {
        break_connections();
        return;
    }
    for (int i = 0; i < TURNS && failures < 3; i++) {
        if (party->number <= 3)
            write_once(party->client, i % 3 != 0);
        else
            read_once(party->client);
        atomic_fetch_add(&turns, 1);
    }
    atomic_fetch_sub(&working, 1);
}

static void test_mixed(void)
{
    struct party parties[PARTIES];
    atomic_store(&working, PARTIES - 1);
    for (unsigned i = 0; i < PARTIES; i++)
        parties[i] = (struct party){i > 0 ? nodes_open_by(&nodes, NULL, AT_ONCE) : NULL, i};
    in_parallel(party_run, parties, sizeof parties[0], PARTIES);
    nodes_say(&nodes, FIVE, "pass");
    CHECK(wait_nodes_with(&nodes, "mixed",
                          0)); /* undone where a connection broke, while the clients are open */
    for (unsigned i = 1; i < PARTIES; i++)
        close_client(parties[i].client);
}

static const CU_TestInfo tests[] = {
    {"downgrade with waiting callers", test_downgrade},
    {"a writer asks first after a downgrade", test_writer_first},
    {"a downgrade that reaches a minority", test_downgraded_on_a_minority},
    {"the answer to a downgrade is lost", test_downgrade_reply_lost},
    {"a downgraded claim that a minority has alone is broken", test_break_of_a_downgraded},
    {"a claim that only a minority shares is broken", test_break_of_one_shared_by_few},
    {"a downgrade finds an emptied node", test_downgrade_on_an_emptied_node},
    {"a minority is downgraded, and the client dies", test_downgrade_and_death},
    {"readers, writers and downgrades on connections that break", test_mixed},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = nodes_start(&nodes, 5, NULL);
    if (code == 0)
        code = run_tests("redlock downgrade", tests, argc, argv);
    return !nodes_end(&nodes) && code == 0 ? 1 : code;
}
