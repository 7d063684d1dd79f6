/* test_watches.c - waiters without a queue: what their client subscribes to at the node of the name; and one in the queue, whose slot
 * moves often. */
#include "fleet.h"

#include <stdlib.h>

static struct fleet fleet;

static int64_t listeners(const char *name)
{
    redisReply *reply = ask(&fleet.node[1], "PUBSUB SHARDNUMSUB {mortise:%s}:mortise:news", name);
    int64_t count = reply && reply->elements == 2 ? reply->element[1]->integer : -1;
    freeReplyObject(reply);
    return count;
}

static bool is_listened_to(void *name)
{
    return listeners(name) == 1;
}

static bool is_not_listened_to(void *name)
{
    return listeners(name) == 0;
}

static bool has_subscribed(void *calls)
{
    return fleet_calls(&fleet, 1, "ssubscribe") >= *(int64_t *)calls;
}

/* The last waiter of a name ends, and the next one comes at once: the answer to SUNSUBSCRIBE does not end the new subscription, so
 * that goes with its waiter. */
static void test_next_at_once(void)
{
    char name[48];
    mortise_client *client = fleet_open(&fleet, NULL, "queue = no\n"),
                   *other = fleet_open(&fleet, NULL, "queue = no\n");
    mortise_lease *lease = take(client, name_on(&fleet, 1, "next", name));
    const mortise_options *options = MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS);
    bool is_gone = true;
    for (int i = 0; i < 30 && is_gone; i++) {
        struct pending first = PENDING_INIT, second = PENDING_INIT;
        int64_t calls = fleet_calls(&fleet, 1, "ssubscribe") + 2;
        pending_start(&first, other, name, options);
        CHECK(test_poll(is_listened_to, name, TEST_PATIENCE_MS));
        EXPECT(OK, mortise_cancel(other, first.request));
        pending_start(&second, other, name, options);
        EXPECT(CANCELED, pending_join(&first));
        CHECK(test_poll(has_subscribed, &calls, TEST_PATIENCE_MS));
        EXPECT(OK, mortise_cancel(other, second.request));
        EXPECT(CANCELED, pending_join(&second));
        is_gone = test_poll(is_not_listened_to, name, TEST_PATIENCE_MS);
    }
    CHECK(is_gone);
    give(lease);
    close_client(other);
    close_client(client);
}

static bool has_refused(void *before)
{
    return refusals(&fleet, 1, "MOVED") > *(int64_t *)before;
}

/* The last waiter of a name ends when its slot has gone, and the client has not heard of that yet: SUNSUBSCRIBE is refused. The other
 * names stay subscribed to, on the same connection. */
static void test_gone_before(void)
{
    struct pending goes = PENDING_INIT, stays = PENDING_INIT, next = PENDING_INIT;
    char gone[48], kept[48];
    mortise_client *client = fleet_open(&fleet, NULL, "queue = no\n"),
                   *other = fleet_open_by(&fleet, NULL, "queue = no\ncommand_timeout = 1m\n");
    mortise_lease *first = take(client, name_on(&fleet, 1, "gone", gone));
    mortise_lease *second = take(client, name_on(&fleet, 1, "kept", kept));
    pending_start(&goes, other, gone, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    pending_start(&stays, other, kept, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    pending_start(&next, other, kept, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(test_poll(is_listened_to, gone, TEST_PATIENCE_MS));
    CHECK(test_poll(is_listened_to, kept, TEST_PATIENCE_MS));
    EXPECT(BUSY, try_once(other, gone)); /* what it asked before was answered */
    int64_t id = fleet_listener(&fleet, 1), before = refusals(&fleet, 1, "MOVED");
    unsigned slot = slot_of(&fleet, gone);
    fleet_say(&fleet, 1u << 1, "hold-down");
    move_slot(&fleet, slot, 2);
    EXPECT(OK, mortise_cancel(other, goes.request));
    EXPECT(CANCELED, pending_join(&goes));
    CHECK(test_poll(has_refused, &before, TEST_PATIENCE_MS));
    fleet_say(&fleet, 1u << 1, "pass");
    give(second);
    EXPECT(OK, pending_join(&stays)); /* it was told, behind the refusal */
    CHECK(id > 0 && fleet_listener(&fleet, 1) == id);
    give(stays.lease);
    EXPECT(OK, pending_join(&next));
    give(next.lease);
    give(first);
    move_slot(&fleet, slot, 1);
    close_client(other);
    close_client(client);
}

struct led {
    int from;
    int64_t before;
};

static bool is_led_on(void *argument)
{
    const struct led *led = argument;
    return refusals(&fleet, led->from, "ASK") > led->before;
}

/* The slot moves many times while somebody waits in the queue: that is one request all the time. */
static void test_led_on(void)
{
    struct pending waiter = PENDING_INIT;
    char name[48];
    mortise_lease *lease = NULL;
    mortise_client *client = fleet_open(&fleet, NULL, NULL),
                   *other = fleet_open(&fleet, NULL, "foreign = poll\nretry = 20ms\n");
    name_on(&fleet, 1, "led", name);
    EXPECT(OK, mortise_acquire(client, name,
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS,
                                               .no_renew = true),
                               &lease, &detail));
    pending_start(&waiter, other, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(wait_queue(&fleet.node[1], name, 1));
    uint64_t requests = stats_of(other).requests;
    unsigned slot = slot_of(&fleet, name);
    for (int i = 0; i < 24; i++) {
        struct move move;
        move_begin(&move, &fleet, slot, i % 2 == 0 ? 2 : 1);
        struct led led = {move.from, refusals(&fleet, move.from, "ASK")};
        move_keys(&move);
        CHECK(test_poll(is_led_on, &led, TEST_PATIENCE_MS));
        move_end(&move);
    }
    CHECK(stats_of(other).requests == requests);
    give(lease);
    EXPECT(OK, pending_join(&waiter));
    give(waiter.lease);
    close_client(other);
    close_client(client);
}

static bool has_asked(void *argument)
{
    const struct led *led = argument;
    return fleet_calls(&fleet, led->from, "evalsha") + fleet_calls(&fleet, led->from, "eval") >
           led->before;
}

/* Somebody was led on by ASK; since then the slot has arrived, has gone back, and is on its way again, with all keys where it was. */
static void test_led_before(void)
{
    struct pending waiter = PENDING_INIT;
    struct move move;
    char name[48];
    mortise_client *client = fleet_open(&fleet, NULL, NULL),
                   *other = fleet_open(&fleet, NULL, NULL);
    mortise_lease *lease = NULL;
    name_on(&fleet, 1, "before", name);
    EXPECT(OK, mortise_acquire(client, name,
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS,
                                               .no_renew = true),
                               &lease, &detail));
    move_begin(&move, &fleet, slot_of(&fleet, name), 2);
    move_keys(&move);
    pending_start(&waiter, other, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 15000));
    CHECK(wait_inboxes(&fleet.node[2], 1));
    move_end(&move);
    CHECK(wait_queue(&fleet.node[2], name, 1));
    move_slot(&fleet, move.slot, 1);
    move_begin(&move, &fleet, move.slot, 2);
    struct led led = {1, fleet_calls(&fleet, 1, "evalsha") + fleet_calls(&fleet, 1, "eval")};
    CHECK(test_poll(has_asked, &led, 20000)); /* where it is */
    SAFE(test_count_get(&waiter.calls) == 0);
    move_end(&move);
    give(lease);
    EXPECT(OK, pending_join(&waiter));
    give(waiter.lease);
    move_slot(&fleet, move.slot, 1);
    close_client(other);
    close_client(client);
}

static const CU_TestInfo tests[] = {
    {"the next waiter of a name comes at once", test_next_at_once},
    {"the slot has gone before the last waiter", test_gone_before},
    {"the slot moves many times", test_led_on},
    {"the slot has gone back, and is on its way again", test_led_before},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = fleet_start(&fleet, true, NULL);
    if (code == 0)
        code = run_tests("cluster: watches", tests, argc, argv);
    return !fleet_end(&fleet) && code == 0 ? 1 : code;
}
