/* test_repeats.c - requests that come twice, cross each other, or are answered late: op by op, with a clock that the
 * test moves. On five nodes, each behind the fault proxy. */
#include "alone.h"

#include <stdio.h>
#include <string.h>

static struct nodes nodes = {.proxied = true};

/* A node that is stopped for seconds does not count as hanging; a test with a hanging node moves the clock. */
#define VOTES AT_ONCE_KEY, "yes", "node_timeout", "20s", "connect_timeout", "20s"
#define AT_ONCE_KEY "node_persistent"
#define FIVE 31u

static struct alone one;

/* With the nodes of the set; the others have ports without a server. */
static bool open_to(unsigned set, const char *const *settings)
{
    int ports[5];
    for (int i = 0; i < 5; i++)
        ports[i] = (set & 1u << i) != 0 ? nodes.group.ports[i] : i + 1;
    return alone_open(&one, ports, 5, settings) && alone_works(&one);
}

static bool open_by_proxies(int count, const char *const *settings)
{
    int ports[5];
    for (int i = 0; i < count; i++)
        ports[i] = nodes.proxy[i].port;
    return alone_open(&one, ports, count, settings) && alone_works(&one);
}

static struct call repeat_of(const struct call *lock)
{
    struct call call = call_about(MORTISE_OP_ACQUIRE, lock);
    call.op.flags = MORTISE_OP_REPEAT;
    call.op.first_sent_ns = lock->op.first_sent_ns;
    return call;
}

/* Waits until all nodes have executed what was sent before. */
static void pass_all(void)
{
    struct call ping = call_of(MORTISE_OP_PING, "");
    DONE(OK, call_run(&one, &ping));
}

static void end_of(const struct call *lock, mortise_status wanted)
{
    struct call call = call_about(MORTISE_OP_RELEASE, lock);
    expect_at(call_run(&one, &call), wanted, "release", __FILE__, __LINE__);
    CHECK(call.op.sure);
}

/* Returns which nodes of the set have it. A node that hangs must not be asked. */
static unsigned with(unsigned set, const char *name)
{
    unsigned found = 0;
    for (int i = 0; i < nodes.count; i++)
        if ((set & 1u << i) != 0 && holds(&nodes.node[i], name) > 0)
            found |= 1u << i;
    return found;
}

static bool none_has(void *name)
{
    return with(FIVE, name) == 0;
}

static bool first_two_have_it(void *name)
{
    return with(3, name) == 3;
}

static bool none_of_two_has(void *name)
{
    return with(3, name) == 0;
}

#define NONE_HAS(name) CHECK(alone_until(&one, none_has, (void *)(uintptr_t)(name)))

/* ---- tokens of repeats ---------------------------------------------------------------------------------------------- */

static void test_same_token(void)
{
    if (!open_to(FIVE, ALONE(VOTES)))
        return;
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:same"), again, next;
    DONE(OK, call_run(&one, &lock));
    CHECK(lock.op.token > 0);
    for (int i = 0; i < 3; i++) {
        again = repeat_of(&lock);
        DONE(OK, call_run(&one, &again));
        CHECK(again.op.token == lock.op.token);
    }
    pass_all();
    unsigned know_it = 0; /* a majority; none knows a larger one */
    for (int i = 0; i < nodes.count; i++) {
        know_it += last_token(&nodes, i, "same") == lock.op.token;
        CHECK(last_token(&nodes, i, "same") <= lock.op.token);
    }
    CHECK(know_it >= 3);
    end_of(&lock, MORTISE_OK);
    next = repeat_of(&lock); /* after its end this is another hold */
    DONE(OK, call_run(&one, &next));
    CHECK(next.op.token > lock.op.token);
    end_of(&next, MORTISE_OK);
    NONE_HAS("same");
    alone_close(&one);
}

/* What these nodes have of the lock's token: as after votes that took it, or after some that did not. */
static void write_token(unsigned set, const char *name, uint64_t token)
{
    for (int i = 0; i < nodes.count; i++)
        if ((set & 1u << i) != 0)
            CHECK(ask_number(&nodes.node[i], "SETRANGE mortise:%s 33 %016llu", name,
                             (unsigned long long)token) > 0);
}

/* Three nodes have the token, and two of them answer last: the lock keeps it, although the first three answers are a
 * quorum of votes, two of them without a token. */
static void test_late_token(void)
{
    if (!open_by_proxies(5, ALONE(VOTES, "node_timeout", "60s", "command_timeout", "3600s")))
        return;
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:late"), again;
    DONE(OK, call_run(&one, &lock));
    pass_all();
    write_token(7, "late", lock.op.token);
    write_token(24, "late", 0);
    nodes_say(&nodes, 3, "hold-down");
    again = repeat_of(&lock);
    call_start(&one, &again);
    CHECK(alone_wait_readable(&one, 3));
    alone_turn(&one, 0);
    CHECK(!again.done);
    nodes_say(&nodes, 3, "pass");
    CHECK(call_wait(&one, &again));
    CHECK(again.op.status == MORTISE_OK && again.op.token == lock.op.token);
    pass_all();
    for (int i = 0; i < nodes.count; i++)
        CHECK(last_token(&nodes, i, "late") <= lock.op.token);

    nodes_say(&nodes, 3, "hold-down"); /* for an eighth of node_timeout, and not longer */
    again = repeat_of(&lock);
    call_start(&one, &again);
    CHECK(alone_wait_readable(&one, 3));
    alone_turn(&one, 0);
    CHECK(!again.done);
    one.shift_ns += 8 * S_NS;
    CHECK(call_wait(&one, &again));
    CHECK(again.op.status == MORTISE_OK && again.op.token > lock.op.token);
    nodes_say(&nodes, 3, "pass");
    end_of(&again, MORTISE_OK);
    NONE_HAS("late");
    alone_close(&one);
}

/* A majority has lost it, and another client held it in between: no earlier token. */
static void test_another_token(void)
{
    if (!open_to(FIVE, ALONE(VOTES)))
        return;
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:another"), again;
    DONE(OK, call_run(&one, &lock));
    pass_all();
    for (int i = 0; i < 3; i++)
        CHECK(ask_number(&nodes.node[i], "DEL mortise:another") == 1);
    mortise_client *client = nodes_open(&nodes, 7, NULL, AT_ONCE);
    mortise_lease *lease = take(client, "another");
    uint64_t token = mortise_token(lease);
    CHECK(token > lock.op.token);
    give(lease);
    CHECK(wait_nodes_with(&nodes, "another", 24));
    again = repeat_of(&lock);
    DONE(OK, call_run(&one, &again));
    CHECK(again.op.token > token);
    end_of(&again, MORTISE_OK);
    NONE_HAS("another");
    close_client(client);
    alone_close(&one);
}

/* ---- split votes ------------------------------------------------------------------------------------------------------ */

static void vote_for(unsigned set, char who, const char *name)
{
    char grant[33] = "";
    memset(grant, who, 32);
    for (int i = 0; i < nodes.count; i++)
        if ((set & 1u << i) != 0)
            freeReplyObject(ask(&nodes.node[i], "SET mortise:%s %s%s PX 60000", name, grant,
                                "\x20"
                                "0000000000000000"
                                "\x20"
                                "0000000000000000"
                                "\n"));
}

static void take_back(unsigned set, const char *name)
{
    for (int i = 0; i < nodes.count; i++)
        if ((set & 1u << i) != 0)
            CHECK(ask_number(&nodes.node[i], "DEL mortise:%s", name) == 1);
}

/* Two others have two votes each. All votes are undone, and the driver knows it: nothing is in doubt. */
static void test_split(void)
{
    if (!open_to(FIVE, ALONE(VOTES)))
        return;
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:split");
    vote_for(3, 'a', "split");
    vote_for(12, 'b', "split");
    lock.op.flags = MORTISE_OP_REPEAT;
    DONE(BUSY, call_run(&one, &lock));
    CHECK(nodes_with(&nodes, "split") == 15);
    call_start(&one, &lock); /* among rounds it finds one that it wins */
    take_back(15, "split");
    call_wait(&one, &lock);
    CHECK(lock.op.status == MORTISE_OK);
    end_of(&lock, MORTISE_OK);
    NONE_HAS("split");
    alone_close(&one);
}

/* ---- requests that cross ------------------------------------------------------------------------------------------------ */

/* A repeat is sent before the end of the former try was answered: that answer says nothing about the new votes. */
static void test_generations(void)
{
    if (!open_to(FIVE, ALONE(VOTES)))
        return;
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:generations"), end, again;
    DONE(OK, call_run(&one, &lock));
    pass_all();
    end = call_about(MORTISE_OP_RELEASE, &lock);
    call_start(&one, &end);
    CHECK(wait_nodes_with(&nodes, "generations", 0));
    again = repeat_of(&lock);
    call_start(&one, &again);
    CHECK(wait_nodes_with(&nodes, "generations", FIVE));
    CHECK(call_wait(&one, &again));
    CHECK(end.done && end.op.status == MORTISE_OK && again.op.status == MORTISE_OK);
    pass_all();
    end_of(&again, MORTISE_OK);
    NONE_HAS("generations");
    alone_close(&one);
}

static void flush_scripts(void)
{
    for (int i = 0; i < nodes.count; i++)
        freeReplyObject(ask(&nodes.node[i], "SCRIPT FLUSH"));
}

struct counted {
    int64_t before[5];
};

static bool all_have_answered(void *argument)
{
    const struct counted *counted = argument;
    for (int i = 0; i < nodes.count; i++)
        if (test_proxy_count(&nodes.proxy[i], "down_taken") <= counted->before[i])
            return false;
    return true;
}

/* An undo of a claim that has ended meanwhile is answered NOSCRIPT: it is not sent again, behind the votes of a new
 * one. */
static void test_late_noscript(void)
{
    if (!open_by_proxies(
            5, ALONE(VOTES, "fencing", "off", "node_timeout", "60s", "command_timeout", "3600s")))
        return;
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:noscript"), ends[2], again;
    struct counted counted;
    DONE(OK, call_run(&one, &lock));
    pass_all();
    ends[0] = ends[1] = call_about(MORTISE_OP_RELEASE, &lock);
    call_start(&one, &ends[0]);
    CHECK(wait_nodes_with(&nodes, "noscript", 0));
    CHECK(alone_wait_readable(&one, 5)); /* and it is not read yet */
    nodes_say(&nodes, FIVE, "hold-down");
    flush_scripts();
    for (int i = 0; i < nodes.count; i++)
        counted.before[i] = test_proxy_count(&nodes.proxy[i], "down_taken");
    call_start(&one, &ends[1]);
    CHECK(test_poll(all_have_answered, &counted, TEST_PATIENCE_MS));
    CHECK(call_wait(&one, &ends[0]));
    alone_turn(&one, 0); /* of all five */
    CHECK(ends[0].op.status == MORTISE_OK && ends[0].op.sure);
    again = call_about(MORTISE_OP_ACQUIRE, &lock); /* a plain SET, which needs no script */
    call_start(&one, &again);
    CHECK(wait_nodes_with(&nodes, "noscript", FIVE));
    nodes_say(&nodes, FIVE, "pass");
    CHECK(call_wait(&one, &again));
    CHECK(again.op.status == MORTISE_OK);
    CHECK(call_wait(&one, &ends[1]));
    pass_all();
    CHECK(nodes_with(&nodes, "noscript") == FIVE);
    end_of(&again, MORTISE_OK);
    NONE_HAS("noscript");
    alone_close(&one);
}

/* ---- nodes that hang ------------------------------------------------------------------------------------------------------ */

/* Its vote is needed: that costs node_timeout by the driver's clock, once. */
static void test_hanging(void)
{
    if (!open_to(7, ALONE(VOTES, "node_timeout", "60s", "command_timeout", "3600s")))
        return;
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:hanging");
    nodes_do(&nodes, "freeze", 4);
    call_start(&one, &lock);
    CHECK(alone_until(&one, first_two_have_it, (void *)(uintptr_t) "hanging"));
    CHECK(!lock.done);
    one.shift_ns += 61 * S_NS;
    CHECK(call_wait(&one, &lock));
    CHECK(lock.op.status == MORTISE_UNREACHABLE);
    CHECK(alone_until(&one, none_of_two_has, (void *)(uintptr_t) "hanging"));
    for (int i = 0; i < 5; i++) {
        lock = call_of(MORTISE_OP_ACQUIRE, "mortise:hanging");
        call_start(&one, &lock);
        CHECK(lock.done && lock.op.status == MORTISE_UNREACHABLE); /* before its turn */
    }
    nodes_do(&nodes, "thaw", 4);
    alone_works(&one);
    NONE_HAS("hanging");
    alone_close(&one);
}

/* If only the hanging node could tell whether the lock was still held, the others suffice for the release. */
static void test_release_hanging(void)
{
    if (!open_to(7, ALONE(VOTES, "node_timeout", "60s", "command_timeout", "3600s")))
        return;
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:release"), end;
    DONE(OK, call_run(&one, &lock));
    pass_all();
    nodes_do(&nodes, "freeze", 4);
    end = call_about(MORTISE_OP_RELEASE, &lock);
    call_start(&one, &end);
    one.shift_ns += 20 * S_NS;
    CHECK(call_wait(&one, &end));
    CHECK(end.op.status == MORTISE_OK && end.op.sure);
    nodes_do(&nodes, "thaw", 4);
    NONE_HAS("release");
    alone_close(&one);
}

/* Two of the five nodes were never there, and one of the others has lost it: LOST at once. */
static void test_release_lost(void)
{
    if (!open_to(7, ALONE(VOTES)))
        return;
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:lost"), end;
    DONE(OK, call_run(&one, &lock));
    pass_all();
    take_back(2, "lost");
    end = call_about(MORTISE_OP_RELEASE, &lock);
    DONE(LOST, call_run(&one, &end));
    NONE_HAS("lost");
    alone_close(&one);
}

static bool third_has_heard(void *argument)
{
    const struct counted *counted = argument;
    return test_proxy_count(&nodes.proxy[2], "up_taken") > counted->before[0];
}

/* Two of three nodes answer; the message says this about the third. */
static bool says_of(int node, const char *why)
{
    char wanted[120];
    snprintf(wanted, sizeof wanted, "2 of 3 nodes answer, 2 may vote; 127.0.0.1:%d: %s",
             nodes.proxy[node].port, why);
    return alone_says(&one, wanted);
}

/* One of three nodes has lost it, and another hangs: the driver does not assume that the hanging one still has it. */
static void test_not_presumed(void)
{
    if (!alone_open(&one, nodes.group.ports, 3,
                    ALONE(VOTES, "node_timeout", "60s", "command_timeout", "3600s")) ||
        !alone_works(&one))
        return;
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:presumed"), end;
    DONE(OK, call_run(&one, &lock));
    pass_all();
    CHECK(ask_number(&nodes.node[1], "DEL mortise:presumed") == 1);
    nodes_do(&nodes, "freeze", 4);
    end = call_about(MORTISE_OP_RELEASE, &lock);
    call_start(&one, &end);
    CHECK(alone_until(&one, none_of_two_has, (void *)(uintptr_t) "presumed"));
    one.shift_ns += 20 * S_NS; /* it is slow */
    for (int i = 0; i < 20; i++)
        alone_turn(&one, 5);
    CHECK(!end.done);
    one.shift_ns += 61 * S_NS; /* it is late */
    DONE(INDETERMINATE, call_wait(&one, &end) ? end.op.status : MORTISE_OK);
    nodes_do(&nodes, "thaw", 4);
    end_of(&lock, MORTISE_LOST); /* the first undo was executed by then */
    NONE_HAS("presumed");
    alone_close(&one);
}

/* The connection is made, and the node is silent: the error says that, and not that its name could not be looked up. */
static void test_silent_greeting(void)
{
    if (!open_by_proxies(3, ALONE(VOTES, "command_timeout", "3600s", "connect_timeout", "3600s")))
        return;
    pass_all();
    nodes_say(&nodes, 4, "cut");
    nodes_say(&nodes, 4, "hold-down");
    CHECK(says_of(2, "no answer to the greeting yet"));
    nodes_say(&nodes, 4, "pass");
    alone_close(&one);
}

/* A node that was late answers. In the same turn an op that has waited for another node finds that it needs this
 * one's vote, which counts. */
static void test_back_in_time(void)
{
    if (!open_by_proxies(3, ALONE(VOTES, "command_timeout", "3600s", "connect_timeout", "3600s")))
        return;
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:in time");
    struct call ping = call_of(MORTISE_OP_PING, "");
    pass_all();
    nodes_say(&nodes, 1, "hold-down");
    call_start(&one, &ping);
    one.shift_ns += 21 * S_NS;
    CHECK(call_wait(&one, &ping));
    CHECK(says_of(0, "no answer, or refused")); /* the driver knows that the first is late */
    nodes_say(&nodes, 4, "cut");
    nodes_say(&nodes, 4, "hold-down");
    struct counted greeted = {.before = {test_proxy_count(&nodes.proxy[2], "up_taken")}};
    CHECK(alone_until(&one, third_has_heard, &greeted)); /* it is connecting again */
    int64_t deleted = nodes_commands(&nodes, "del");
    call_start(&one, &lock);
    CHECK(!lock.done);
    nodes_say(&nodes, 1, "pass");
    CHECK(alone_wait_readable(&one, 1));
    nodes_say(&nodes, 4, "refuse");
    CHECK(alone_wait_readable(&one, 2));
    CHECK(call_wait(&one, &lock));
    CHECK(lock.op.status == MORTISE_OK);
    CHECK(nodes_commands(&nodes, "del") == deleted); /* it was not undone, and was tried again */
    nodes_say(&nodes, 4, "pass");
    nodes_say(&nodes, 4, "accept");
    end_of(&lock, MORTISE_OK);
    NONE_HAS("in time");
    alone_close(&one);
}

/* The process is stopped between its poll and its turn: nodes that have answered by then are not late. */
static void test_stopped(void)
{
    if (!open_to(FIVE, ALONE(VOTES)))
        return;
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:stopped");
    pass_all();
    int64_t deleted = nodes_commands(&nodes, "del");
    call_start(&one, &lock);
    CHECK(alone_wait_readable(&one, 5));
    one.shift_ns += 21 * S_NS; /* node_timeout, and not command_timeout */
    alone_turn_one(&one);
    CHECK(call_wait(&one, &lock));
    CHECK(lock.op.status == MORTISE_OK);
    CHECK(nodes_commands(&nodes, "del") == deleted);
    end_of(&lock, MORTISE_OK);
    NONE_HAS("stopped");
    alone_close(&one);
}

static bool is_ended(void *argument)
{
    return ((struct call *)argument)->done;
}

/* Votes are unread in the sockets of nodes that hang, for longer than any ttl. When they are executed, they are undone. */
static void test_hanging_for_long(void)
{
    if (!open_to(FIVE, ALONE(VOTES, "max_ttl", "600s")))
        return;
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:long"), end, other;
    lock.op.ttl_ms = 600000;
    pass_all();
    nodes_do(&nodes, "freeze", 24);
    DONE(OK, call_run(&one, &lock));
    one.shift_ns += 41 * S_NS; /* twice node_timeout: the driver gives up those connections */
    other = call_of(MORTISE_OP_PING, "");
    DONE(OK, call_run(&one, &other));
    end = call_about(MORTISE_OP_RELEASE, &lock);
    DONE(OK, call_run(&one, &end));
    for (int i = 0; i < 5; i++) {
        one.shift_ns += 601 * S_NS; /* max_ttl */
        other = call_of(MORTISE_OP_PING, "");
        call_start(&one, &other);
        CHECK(alone_until(&one, is_ended, &other));
    }
    nodes_do(&nodes, "thaw", 24);
    CHECK(wait_nodes_with(&nodes, "long", 24)); /* the driver gets no turn */
    NONE_HAS("long");
    alone_close(&one);
}

static const CU_TestInfo tests[] = {
    {"a repeat has the same token", test_same_token},
    {"a repeat waits for those who know the token", test_late_token},
    {"a repeat of what was lost has another", test_another_token},
    {"a repeat among split votes", test_split},
    {"a repeat crosses the end of the former try", test_generations},
    {"a late NOSCRIPT", test_late_noscript},
    {"a greeting is not answered", test_silent_greeting},
    {"a hanging node costs node_timeout, once", test_hanging},
    {"a release does not wait for a hanging node", test_release_hanging},
    {"a release tells that it was lost", test_release_lost},
    {"a release presumes nothing after a loss", test_not_presumed},
    {"a late node answers in time", test_back_in_time},
    {"stopped between a poll and a turn", test_stopped},
    {"votes in a node that hangs for long", test_hanging_for_long},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = nodes_start(&nodes, 5, NULL);
    if (code == 0)
        code = run_tests("redlock repeats", tests, argc, argv);
    return !nodes_end(&nodes) && code == 0 ? 1 : code;
}
