/* test_downgrade.c - an exclusive claim becomes shared on five nodes, with requests and answers that are lost, a node that is
 * emptied, a client that dies. */
#include "alone.h"
#include "share.h"

#define FIVE 31u

static struct nodes nodes = {.proxied = true};
static struct alone one;

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
    EXPECT(OK, mortise_downgrade(lease, &detail));
    EXPECT(OK, pending_join(&reader));
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

static const CU_TestInfo tests[] = {
    {"downgrade with waiting callers", test_downgrade},
    {"a downgrade that reaches a minority", test_downgraded_on_a_minority},
    {"the answer to a downgrade is lost", test_downgrade_reply_lost},
    {"a downgrade finds an emptied node", test_downgrade_on_an_emptied_node},
    {"a minority is downgraded, and the client dies", test_downgrade_and_death},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = nodes_start(&nodes, 5, NULL);
    if (code == 0)
        code = run_tests("redlock downgrade", tests, argc, argv);
    return !nodes_end(&nodes) && code == 0 ? 1 : code;
}
