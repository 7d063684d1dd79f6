/* test_limited.c - users with limited rights: exactly the rights that docs/redlock.md names; and users who may not
 * end their old connections, on which votes come late. On three nodes of each kind. */
#include "alone.h"
#include "share.h"

#include <stdio.h>
#include <string.h>

/* As in docs/redlock.md. */
#define RIGHTS                                                                                     \
    "~mortise:* ~{mortise:*}:mortise:* &{mortise:*}:mortise:news -@all +client|setname "           \
    "+client|id +info +subscribe +unsubscribe +publish +eval +evalsha +get +set +del +pexpire "    \
    "+getrange +setrange +pttl +time +role +scan"
#define SHARING                                                                                    \
    " +zadd +zrem +zscore +zcard +zrange +zrevrange +zrangebyscore +hset +hget +hdel +exists"
#define USER "username = mortise\npassword = secret\n" AT_ONCE

static struct nodes nodes, harmless = {.proxied = true};

static bool count_one(const mortise_info *info, void *seen)
{
    *(int *)seen += info->held;
    return true;
}

static void look_at_it(mortise_client *client, const char *name, uint64_t token)
{
    mortise_info info = {.size = sizeof info};
    char text[200];
    int seen = 0;
    EXPECT(OK, mortise_inspect(client, name, &info, &detail));
    CHECK(info.held && info.token == token);
    EXPECT(OK, mortise_list(client, name, count_one, &seen, &detail));
    CHECK(seen == 1);
    EXPECT(OK, mortise_ping(client, text, sizeof text, &detail));
    CHECK(strstr(text, "3 may vote") != NULL);
}

static bool is_subscribed(void *name)
{
    int count = 0;
    for (int i = 0; i < nodes.count; i++) {
        redisReply *reply =
            ask(&nodes.node[i], "PUBSUB NUMSUB {mortise:%s}:mortise:news", (const char *)name);
        count += reply && reply->elements == 2 && reply->element[1]->integer == 1;
        freeReplyObject(reply);
    }
    return count == nodes.count;
}

/* Everything that can be asked, with tokens or without. */
static void use_it(const char *settings, bool fencing, const char *name)
{
    struct pending pending = PENDING_INIT;
    mortise_client *client = nodes_open(&nodes, 7, "renew_every = 100ms", settings);
    mortise_client *other = nodes_open(&nodes, 7, NULL, settings);
    snprintf(doing, sizeof doing, "%s", name);
    CHECK(wait_works(client));
    mortise_lease *lease = take(client, name);
    CHECK(wait_renewals(client, stats_of(client).renewals + 2));
    CHECK(wait_nodes_with(&nodes, name, 7));
    look_at_it(client, name, mortise_token(lease));
    pending_start(&pending, other, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(test_poll(is_subscribed, (void *)(uintptr_t)name, TEST_PATIENCE_MS));
    give(lease);
    CHECK(pending_join(&pending) == MORTISE_OK);
    if (fencing)
        EXPECT(OK, mortise_break(client, name, mortise_token(pending.lease), &detail));
    mortise_release(pending.lease, NULL);
    CHECK(wait_nodes_with(&nodes, name, 0));
    close_client(client);
    close_client(other);
}

static void test_least_rights(void)
{
    use_it(USER, true, "least");
    use_it(USER "fencing = off\n", false, "least, plain");
}

/* ---- CLIENT KILL is forbidden -------------------------------------------------------------------------------------- */

struct counted {
    struct test_proxy *proxy;
    const char *what;
    int64_t from, to;
};

static bool is_counted(void *argument)
{
    const struct counted *counted = argument;
    int64_t count = test_proxy_count(counted->proxy, counted->what);
    return count >= counted->from && count <= counted->to;
}

static bool wait_count(const char *what, int64_t from, int64_t to)
{
    struct counted counted = {&harmless.proxy[0], what, from, to};
    return CHECK(test_poll(is_counted, &counted, TEST_PATIENCE_MS));
}

/* A vote is kept back on its way to one node; the client has long taken the lock with the other two, and given it
 * back over a new connection, when it arrives. It is found and undone, though nobody asks the client for anything. */
static void test_late_vote(void)
{
    mortise_client *client =
        nodes_open_by(&harmless, "close_timeout = 3s",
                      USER "node_timeout = 300ms\ncommand_timeout = 600ms\nconnect_timeout = 5s\n");
    CHECK(wait_works(client));
    give(take(client, "late"));
    CHECK(wait_nodes_with(&harmless, "late", 0));
    int64_t sent = test_proxy_count(&harmless.proxy[0], "up_taken");
    nodes_say(&harmless, 1, "delay 1000000 up");
    mortise_lease *lease = take(client, "late");
    wait_count("up_taken", sent + 1, INT64_MAX);
    nodes_say(&harmless, 1, "delay 0 both");
    wait_count("now", 2, 2); /* the old connection, in which the vote is, and the new one */
    give(lease);
    CHECK(wait_nodes_with(&harmless, "late", 0));
    nodes_say(&harmless, 1, "pass");
    wait_count("now", 0, 1); /* all that was in it has been executed */
    CHECK(wait_nodes_with(&harmless, "late", 0));
    close_client(client);
}

/* ---- a late undo ----------------------------------------------------------------------------------------------------- */

static struct alone one;

static bool first_has_it(void *name)
{
    return holds(&harmless.node[0], name) == 1;
}

static bool undo_is_kept(void *unused)
{
    (void)unused;
    return test_proxy_count(&harmless.proxy[0], "up_taken") >
           test_proxy_count(&harmless.proxy[0], "up");
}

static bool has_reconnected(void *unused)
{
    struct call ping = call_of(MORTISE_OP_PING, "");
    (void)unused;
    return test_proxy_count(&harmless.proxy[0], "now") == 2 &&
           call_run(&one, &ping) == MORTISE_OK && strstr(ping.text, "3 of 3 nodes answer") != NULL;
}

static struct call repeat_of(const struct call *lock)
{
    struct call call = call_about(MORTISE_OP_ACQUIRE, lock);
    call.op.flags = MORTISE_OP_REPEAT;
    return call;
}

/* A round fails; its undo is kept back on the way to the first node, whose vote stands, and the connection breaks.
 * Over the next one the same grant asks again, and would have a quorum with that vote, which the undo deletes when it
 * arrives. */
static void test_late_undo(void)
{
    int ports[3];
    for (int i = 0; i < 3; i++)
        ports[i] = harmless.proxy[i].port;
    if (!alone_open(&one, ports, 3,
                    ALONE("node_persistent", "yes", "username", "mortise", "password", "secret",
                          "node_timeout", "20s", "command_timeout", "40s", "connect_timeout",
                          "20s")) ||
        !alone_works(&one))
        return;
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:undo"), again, end;
    for (int i = 1; i < 3; i++)
        freeReplyObject(ask(&harmless.node[i], "SET mortise:undo another"));
    call_start(&one, &lock);
    CHECK(test_poll(first_has_it, (void *)(uintptr_t) "undo", TEST_PATIENCE_MS));
    CHECK(alone_wait_readable(&one, 3));
    nodes_say(&harmless, 1, "delay 1000000 up");
    DONE(BUSY, call_wait(&one, &lock) ? lock.op.status : MORTISE_OK);
    CHECK(alone_until(&one, undo_is_kept, NULL));
    nodes_say(&harmless, 1, "delay 0 both");
    one.shift_ns += 45 * S_NS;
    CHECK(alone_until(&one, has_reconnected, NULL));
    CHECK(ask_number(&harmless.node[1], "DEL mortise:undo") == 1);
    again = repeat_of(&lock);
    DONE(BUSY, call_run(&one, &again)); /* with the first node's vote, and not for long */
    CHECK(ask_number(&harmless.node[2], "DEL mortise:undo") == 1);
    again = repeat_of(&lock);
    DONE(OK, call_run(&one, &again));
    nodes_say(&harmless, 1, "pass");
    wait_count("now", 0, 1); /* the undo has been executed */
    CHECK((nodes_with(&harmless, "undo") & 6) == 6);
    struct call renewal = call_about(MORTISE_OP_RENEW, &again);
    DONE(OK, call_run(&one, &renewal));
    CHECK((nodes_with(&harmless, "undo") & 6) == 6);
    end = call_about(MORTISE_OP_RELEASE, &again);
    DONE(OK, call_run(&one, &end));
    CHECK(wait_nodes_with(&harmless, "undo", 0));
    alone_close(&one);
}

/* ---- sharing -------------------------------------------------------------------------------------------------------- */

static void test_sharing(void)
{
    const char *name = "sharing";
    mortise_client *client = nodes_open(&nodes, ALL, "renew_every = 50ms\n", USER);
    mortise_client *other = nodes_open(&nodes, ALL, NULL, USER);
    struct pending writer;
    mortise_lease *lease = take(client, name);
    EXPECT(BUSY, try_share(other, name));
    EXPECT(OK, mortise_downgrade(lease, &detail));
    mortise_lease *reader = share(other, name);
    want(&writer, other, name, MORTISE_EXCLUSIVE);
    CHECK(wait_subscribed(&nodes, 3, name));
    CHECK(wait_renewals(client, stats_of(client).renewals + 2));
    look_at_it(other, name, mortise_token(lease));
    give(lease);
    give(reader);
    EXPECT(OK, pending_join(&writer));
    give(writer.lease);
    CHECK(wait_nodes_with(&nodes, name, 0));
    close_client(client);
    close_client(other);
}

/* Without those rights nothing is shared, nothing is left, and exclusive locks are as ever. */
static void test_no_sharing(void)
{
    const char *name = "alone";
    mortise_client *client =
        nodes_open(&harmless, ALL, "unreachable_timeout = 1s\nrenew_every = 50ms\n", USER);
    mortise_client *other = nodes_open(&harmless, ALL, NULL, USER);
    CHECK(try_share(client, name) != MORTISE_OK);
    SAYS("can't run this command");
    CHECK(nodes_with(&harmless, name) == 0);
    mortise_lease *lease = take(client, name);
    EXPECT(BUSY, try_once(other, name));
    EXPECT(BACKEND, mortise_downgrade(lease, &detail));
    SAYS("can't run this command");
    CHECK(wait_renewals(client, stats_of(client).renewals + 2));
    CHECK(mortise_state(lease) == MORTISE_STATE_HELD && nodes_with(&harmless, name) == 7);
    EXPECT(BACKEND, mortise_downgrade(lease, &detail)); /* it can be asked for again */
    give(lease);
    CHECK(wait_nodes_with(&harmless, name, 0));
    close_client(client);
    close_client(other);
}

/* ---- some refuse, others are away ------------------------------------------------------------------------------------ */

static void set_right(int node, const char *right)
{
    freeReplyObject(ask(&nodes.node[node], "ACL SETUSER mortise %s", right));
}

/* A share of it, with the error that it shows. */
static mortise_status share_alone(const char *wanted)
{
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:refusing"), end;
    lock.op.mode = MORTISE_SHARED;
    mortise_status status = call_run(&one, &lock);
    if (wanted)
        CHECK(strstr(lock.text, wanted) != NULL);
    end = call_about(MORTISE_OP_RELEASE, &lock);
    end.op.mode = MORTISE_SHARED;
    if (status == MORTISE_OK)
        DONE(OK, call_run(&one, &end));
    return status;
}

/* One node refuses for good. If another one is away, that is no reason to give up: it may come back. Two that refuse are. */
static void test_one_refuses(void)
{
    if (!alone_open(&one, nodes.group.ports, 3,
                    ALONE("node_persistent", "yes", "username", "mortise", "password", "secret")) ||
        !alone_works(&one))
        return;
    set_right(0, "-hset");
    DONE(OK, share_alone(NULL));
    nodes_do(&nodes, "kill", 4);
    CHECK(alone_says(&one, "2 of 3 nodes answer, 2 may vote*"));
    DONE(UNREACHABLE, share_alone("can't run this command"));
    nodes_do(&nodes, "start", 4);
    CHECK(alone_says(&one, "3 of 3 nodes answer, 3 may vote"));
    DONE(OK, share_alone(NULL));
    set_right(1, "-hset");
    DONE(BACKEND, share_alone("can't run this command"));
    set_right(0, "+hset");
    set_right(1, "+hset");
    CHECK(wait_nodes_with(&nodes, "refusing", 0));
    alone_close(&one);
}

/* Starts it while the third node hangs. The others have answered when that one's time is over. */
static mortise_status run_without_third(struct call *call, unsigned answers)
{
    nodes_do(&nodes, "freeze", 4);
    call_start(&one, call);
    for (; answers > 0; answers--) {
        CHECK(alone_wait_readable(&one, 2));
        alone_turn(&one, 0);
    }
    one.shift_ns += 25 * S_NS; /* node_timeout */
    if (call->op.kind == MORTISE_OP_LIST)
        one.shift_ns += 20 * S_NS; /* command_timeout */
    call_wait(&one, call);
    nodes_do(&nodes, "thaw", 4);
    return call->op.status;
}

/* Two of three nodes refuse for good, so that is the answer, though the third one's silence is noticed after their errors. */
static void test_two_refuse(void)
{
    if (!alone_open(&one, nodes.group.ports, 3,
                    ALONE("node_persistent", "yes", "username", "mortise", "password", "secret",
                          "node_timeout", "20s", "command_timeout", "40s", "connect_timeout",
                          "20s")) ||
        !alone_works(&one))
        return;
    CHECK(alone_says(&one, "3 of 3 nodes answer, 3 may vote"));
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:refusing");
    struct call list = call_of(MORTISE_OP_LIST, "mortise:");
    lock.op.mode = MORTISE_SHARED;
    for (int i = 0; i < 2; i++) {
        set_right(i, "-hset");
        set_right(i, "-scan");
    }
    DONE(BACKEND, run_without_third(&lock, 2)); /* the votes, and their undos */
    CHECK(strstr(lock.text, "can't run this command") != NULL);
    CHECK(alone_says(&one, "3 of 3 nodes answer, 3 may vote"));
    DONE(BACKEND, run_without_third(&list, 1));
    CHECK(strstr(list.text, "can't run this command") != NULL);
    for (int i = 0; i < 2; i++) {
        set_right(i, "+hset");
        set_right(i, "+scan");
    }
    CHECK(wait_nodes_with(&nodes, "refusing", 0));
    alone_close(&one);
}

/* A ping fails then: too few answer. */
static bool is_alone(void *unused)
{
    struct call ping = call_of(MORTISE_OP_PING, "");
    (void)unused;
    return call_run(&one, &ping) == MORTISE_UNREACHABLE &&
           strstr(ping.text, "1 of 3 nodes, and 2 are needed") != NULL;
}

/* Of three nodes one can be asked to downgrade, and refuses for good: that is the answer. */
static void test_one_refuses_to_downgrade(void)
{
    if (!alone_open(&one, nodes.group.ports, 3,
                    ALONE("node_persistent", "yes", "username", "mortise", "password", "secret")) ||
        !alone_works(&one))
        return;
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:refusing"), call;
    DONE(OK, call_run(&one, &lock));
    CHECK(wait_nodes_with(&nodes, "refusing", 7));
    set_right(0, "-hset");
    nodes_do(&nodes, "kill", 6);
    CHECK(alone_until(&one, is_alone, NULL));
    call = call_about(MORTISE_OP_RENEW, &lock);
    call.op.flags = MORTISE_OP_DOWNGRADE;
    DONE(BACKEND, call_run(&one, &call));
    nodes_do(&nodes, "start", 6);
    set_right(0, "+hset");
    CHECK(alone_says(&one, "3 of 3 nodes answer, 3 may vote"));
    call = call_about(MORTISE_OP_RELEASE, &lock);
    call_run(&one, &call); /* the others have lost it */
    CHECK(wait_nodes_with(&nodes, "refusing", 0));
    alone_close(&one);
}

static const CU_TestInfo tests[] = {
    {"the least rights that sharing needs", test_sharing},
    {"without the rights to share", test_no_sharing},
    {"one node refuses, and another is away", test_one_refuses},
    {"two nodes refuse, and another hangs", test_two_refuse},
    {"one node refuses to downgrade, and the others are away", test_one_refuses_to_downgrade},
    {"the least rights", test_least_rights},
    {"a late vote, and no right to end connections", test_late_vote},
    {"a late undo, and no right to end connections", test_late_undo},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    static const char *const all[] = {"user=mortise", "password=secret",
                                      "rights=" RIGHTS " +client|kill" SHARING, NULL};
    static const char *const less[] = {"user=mortise", "password=secret", "rights=" RIGHTS, NULL};
    int code = nodes_start(&nodes, 3, all);
    if (code == 0)
        code = nodes_start(&harmless, 3, less);
    if (code == 0)
        code = run_tests("redlock limited", tests, argc, argv);
    bool clean = nodes_end(&nodes);
    return (!nodes_end(&harmless) || !clean) && code == 0 ? 1 : code;
}
