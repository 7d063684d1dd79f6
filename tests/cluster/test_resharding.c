/* test_resharding.c - slots are on their way from master to master: what a holder and fifty waiters see of that. */
#include "fleet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct fleet fleet;

#define QUICK "renew_every = 100ms\n"
/* A place that is lost with a move is taken again after a third of it. */
#define TURN_MS 12000

/* ---- only the new node may be asked ------------------------------------------------------------------------------- */

static bool is_there(int node, const char *name)
{
    freeReplyObject(ask(&fleet.node[node], "ASKING"));
    return ask_number(&fleet.node[node], "EXISTS mortise:%s", name) == 1;
}

/* The slot is on its way, and only the new node may be asked, with ASKING. */
static void test_asked(void)
{
    struct move move;
    char name[48];
    mortise_client *client = fleet_open(&fleet, QUICK, NULL);
    mortise_client *plain = fleet_open(&fleet, QUICK, "fencing = off\nqueue = no\n");
    name_on(&fleet, 1, "asked", name);
    mortise_lease *lease = take(client, "elsewhere");
    give(lease);
    lease = take(plain, "elsewhere");
    give(lease);
    move_begin(&move, &fleet, slot_of(&fleet, name), 2);
    lease = take(plain, name);
    CHECK(is_there(2, name) && holds(&fleet.node[1], name) != 1);
    CHECK(wait_renewals(plain, stats_of(plain).renewals + 3));
    CHECK(mortise_state(lease) == MORTISE_STATE_HELD);
    give(lease);
    CHECK(!is_there(2, name));
    move_end(&move);
    lease = take(client, name);
    move_begin(&move, &fleet, move.slot, 0);
    move_keys(&move);
    CHECK(wait_renewals(client, stats_of(client).renewals + 3));
    CHECK(mortise_state(lease) == MORTISE_STATE_HELD && is_there(0, name));
    EXPECT(BUSY, try_once(plain, name));
    move_end(&move);
    EXPECT(BUSY, try_once(plain, name));
    give(lease);
    CHECK(holds(&fleet.node[0], name) == 0);
    move_slot(&fleet, move.slot, 1);
    close_client(plain);
    close_client(client);
}

static mortise_lease *share(mortise_client *client, const char *name)
{
    mortise_lease *lease = NULL;
    EXPECT(OK,
           mortise_acquire(client, name,
                           MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = LONG_MS, .mode = MORTISE_SHARED),
                           &lease, &detail));
    return lease;
}

/* The former node has none of the lock's keys, so everything goes on at the new one, while some of the keys do not exist. */
static void use_asked(const char *settings, const char *name)
{
    struct pending pending = PENDING_INIT;
    mortise_info info = {.size = sizeof info};
    mortise_client *client = fleet_open(&fleet, QUICK, settings),
                   *other = fleet_open(&fleet, QUICK, settings);
    mortise_lease *lease = take(client, name);
    CHECK(is_there(2, name));
    EXPECT(BUSY, try_once(other, name));
    pending_start(&pending, other, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(wait_renewals(client, stats_of(client).renewals + 3));
    CHECK(test_count_get(&pending.calls) == 0);
    give(lease);
    EXPECT(OK, pending_join(&pending));
    SAFE(mortise_token(pending.lease) > mortise_token(lease));
    give(pending.lease);
    CHECK(!is_there(2, name));
    lease = share(client, name);
    mortise_lease *second = share(other, name);
    EXPECT(OK, mortise_inspect(client, name, &info, &detail));
    CHECK(info.held && info.holders == 2);
    EXPECT(BUSY, try_once(client, name));
    CHECK(wait_renewals(client, stats_of(client).renewals + 3));
    give(lease);
    CHECK(is_there(2, name));
    give(second);
    CHECK(!is_there(2, name));
    close_client(other);
    close_client(client);
}

static void test_all_asked(void)
{
    struct move move;
    char name[48];
    mortise_client *client = fleet_open(&fleet, NULL, NULL);
    name_on(&fleet, 1, "used", name);
    give(take(client, name)); /* its token is a key that stays */
    move_begin(&move, &fleet, slot_of(&fleet, name), 2);
    CHECK(not_reached(try_once(client, name)));
    SAYS("TRYAGAIN");
    move_keys(&move);
    use_asked(NULL, name);
    use_asked("mode = hash\n", name);
    EXPECT(OK, try_once(client, name));
    move_end(&move);
    move_slot(&fleet, move.slot, 1);
    close_client(client);
}

/* Requests of more than one step follow ASK too, and what is asked behind them on that connection has its own answers. */
static void test_steps(void)
{
    mortise_info info = {.size = sizeof info};
    mortise_error error;
    struct move move;
    char name[48], other[48];
    mortise_client *client = fleet_open(&fleet, NULL, NULL),
                   *holder = fleet_open(&fleet, NULL, NULL);
    name_on(&fleet, 1, "steps", name);
    name_on(&fleet, 2, "other", other);
    mortise_lease *lease = take(holder, name), *held = take(holder, other), *shared = NULL;
    EXPECT(BUSY, try_once(client, other));
    move_begin(&move, &fleet, slot_of(&fleet, name), 2);
    move_keys(&move);
    for (int i = 0; i < 2; i++) {
        EXPECT(OK, mortise_inspect(client, name, &info, &error));
        CHECK(info.held && info.token == mortise_token(lease));
        EXPECT(BUSY, try_once(client, other));
    }
    move_end(&move);
    give(lease);
    EXPECT(OK,
           mortise_acquire(client, name,
                           MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = LONG_MS, .mode = MORTISE_SHARED),
                           &shared, &detail));
    move_begin(&move, &fleet, move.slot, 1);
    move_keys(&move);
    EXPECT(OK, mortise_release_nowait(shared, &error));
    EXPECT(OK, mortise_inspect(client, other, &info, &error));
    CHECK(info.held && info.token == mortise_token(held));
    move_end(&move);
    CHECK(wait_holds(&fleet.node[1], name, 0));
    EXPECT(BUSY, try_once(client, other));
    give(held);
    close_client(holder);
    close_client(client);
}

static bool is_listened_to(void *name)
{
    redisReply *reply =
        ask(&fleet.node[1], "PUBSUB SHARDNUMSUB {mortise:%s}:mortise:news", (const char *)name);
    bool is = reply && reply->elements == 2 && reply->element[1]->integer == 1;
    freeReplyObject(reply);
    return is;
}

/* What the holder does while its lock is at the new node. */
static void gives(mortise_lease *lease, const char *name)
{
    (void)name;
    give(lease);
}

/* As if this release had been executed before, and its reply lost. */
static void gives_again(mortise_lease *lease, const char *name)
{
    freeReplyObject(ask(&fleet.node[2], "ASKING"));
    CHECK(ask_number(&fleet.node[2], "DEL mortise:%s", name) == 1);
    EXPECT(LOST, mortise_release(lease, &detail));
}

static void downgrades(mortise_lease *lease, const char *name)
{
    (void)name;
    EXPECT(OK, mortise_downgrade(lease, &detail));
}

/* Without a queue. The new node executes it; the waiter listens to the former one, which has the slot still. */
static void tell(const char *name, mortise_mode mode,
                 void (*then)(mortise_lease *lease, const char *name))
{
    struct pending pending = PENDING_INIT;
    struct move move;
    mortise_client *client = fleet_open(&fleet, NULL, "queue = no\n"),
                   *other = fleet_open(&fleet, NULL, "queue = no\n");
    mortise_lease *lease = take(client, name);
    pending_start(&pending, other, name,
                  MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS, .mode = mode));
    CHECK(test_poll(is_listened_to, (void *)(uintptr_t)name, TEST_PATIENCE_MS));
    EXPECT(BUSY, try_once(other, name)); /* what it asked before was answered */
    move_begin(&move, &fleet, slot_of(&fleet, name), 2);
    move_keys(&move);
    then(lease, name);
    CHECK(test_count_wait(&pending.calls, 1));
    move_end(&move);
    EXPECT(OK, pending_join(&pending));
    give(pending.lease);
    if (then == downgrades)
        give(lease);
    move_slot(&fleet, move.slot, 1);
    close_client(other);
    close_client(client);
}

static void test_told(void)
{
    char name[48];
    name_on(&fleet, 1, "told", name);
    tell(name, MORTISE_EXCLUSIVE, gives);
    tell(name, MORTISE_EXCLUSIVE, gives_again);
    tell(name, MORTISE_SHARED, downgrades);
}

/* A slot goes away. The names of others stay subscribed to, on the same connection. */
static void test_others_stay(void)
{
    struct pending goes = PENDING_INIT, stays = PENDING_INIT;
    char gone[48], kept[48];
    mortise_client *client = fleet_open(&fleet, NULL, "queue = no\n"),
                   *other = fleet_open(&fleet, NULL, "queue = no\n");
    mortise_lease *first = take(client, name_on(&fleet, 1, "gone", gone));
    mortise_lease *second = take(client, name_on(&fleet, 1, "kept", kept));
    pending_start(&goes, other, gone, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    pending_start(&stays, other, kept, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(test_poll(is_listened_to, gone, TEST_PATIENCE_MS));
    CHECK(test_poll(is_listened_to, kept, TEST_PATIENCE_MS));
    int64_t id = fleet_listener(&fleet, 1);
    unsigned slot = slot_of(&fleet, gone);
    move_slot(&fleet, slot, 2);
    give(first);
    EXPECT(OK, pending_join(&goes));
    CHECK(holds(&fleet.node[2], gone) == 1);
    CHECK(id > 0 && fleet_listener(&fleet, 1) == id && is_listened_to(kept));
    give(second);
    EXPECT(OK, pending_join(&stays));
    give(goes.lease);
    give(stays.lease);
    move_slot(&fleet, slot, 1);
    close_client(other);
    close_client(client);
}

/* A taker that waits for it, first of all. */
static bool start_waiter(struct test_process *taker, const char *name, const char *settings)
{
    return start_taker(&fleet.node[1], taker, settings) &&
           CHECK(test_say(taker, "acquire %s -1 %d", name, LONG_MS)) &&
           CHECK(wait_queue(&fleet.node[1], name, 1));
}

/* A dead client has a place in the queue, and the slot is on its way. The release pops it, and the node serves only the keys that are
 * there: the lock must not stay the dead one's. */
static void die_next(const char *settings, const char *name)
{
    struct test_process taker;
    struct move move;
    mortise_client *client = fleet_open(&fleet, NULL, settings),
                   *other = fleet_open(&fleet, NULL, settings);
    mortise_lease *lease = take(client, name);
    if (start_waiter(&taker, name, settings))
        test_kill(&taker);
    CHECK(wait_inboxes(&fleet.node[1], 0));
    move_begin(&move, &fleet, slot_of(&fleet, name), 2);
    give(lease);
    CHECK(holds(&fleet.node[1], name) == 0 && queue_length(&fleet.node[1], name) != 1);
    move_end(&move);
    give(take(other, name));
    move_slot(&fleet, move.slot, 1);
    close_client(other);
    close_client(client);
}

static void test_dead_waiter(void)
{
    char name[48];
    name_on(&fleet, 1, "dead", name);
    die_next(NULL, name);
    name_on(
        &fleet, 1, "dead-hash",
        name); /* another slot: two moves of one slot can cross on their way through the nodes */
    die_next("mode = hash\n", name);
}

/* The same, and it lives: it gets the lock at the node that the slot leaves. Its owner makes no difference. */
static void live_next(const char *settings, const char *name, const char *owner)
{
    struct pending pending = PENDING_INIT;
    struct move move;
    mortise_client *client = fleet_open(&fleet, NULL, settings),
                   *other = fleet_open(&fleet, NULL, settings);
    mortise_lease *lease = take(client, name);
    pending_start(&pending, other, name,
                  MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = TURN_MS, .owner = owner));
    CHECK(wait_queue(&fleet.node[1], name, 1) && wait_inboxes(&fleet.node[1], 1));
    move_begin(&move, &fleet, slot_of(&fleet, name), 2);
    give(lease);
    CHECK(test_count_wait(&pending.calls, 1) && holds(&fleet.node[1], name) == 1);
    move_end(&move);
    EXPECT(OK, pending_join(&pending));
    SAFE(mortise_token(pending.lease) > mortise_token(lease));
    give(pending.lease);
    move_slot(&fleet, move.slot, 1);
    close_client(other);
    close_client(client);
}

static void test_live_next(void)
{
    char name[48];
    name_on(&fleet, 1, "live", name);
    live_next(NULL, name, NULL);
    name_on(&fleet, 1, "live-hash", name);
    live_next("mode = hash\n", name, NULL);
    name_on(&fleet, 1, "live-owner", name);
    live_next("mode = hash\n", name, "us");
}

/* The same, and one that would share comes next: the node that the slot leaves cannot make the keys of holders. */
static void share_next(const char *settings, const char *name, bool dead)
{
    struct pending pending = PENDING_INIT;
    struct test_process taker;
    struct move move;
    struct server *node = &fleet.node[1];
    mortise_client *client = fleet_open(&fleet, NULL, settings),
                   *other = fleet_open(&fleet, NULL, settings);
    mortise_lease *lease = take(client, name);
    bool started = dead && start_waiter(&taker, name, settings);
    pending_start(&pending, other, name,
                  MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = TURN_MS, .mode = MORTISE_SHARED));
    CHECK(wait_queue(node, name, dead ? 2 : 1));
    if (started)
        test_kill(&taker);
    CHECK(wait_inboxes(node, 1));
    move_begin(&move, &fleet, slot_of(&fleet, name), 2);
    give(lease);
    CHECK(holds(node, name) == 0 && queue_length(node, name) != 1);
    move_end(&move);
    EXPECT(OK, pending_join(&pending));
    give(pending.lease);
    move_slot(&fleet, move.slot, 1);
    close_client(other);
    close_client(client);
}

static void test_share_next(void)
{
    char name[48];
    name_on(&fleet, 1, "next", name);
    share_next(NULL, name, false);
    name_on(&fleet, 1, "next-dead", name);
    share_next(NULL, name, true);
    name_on(&fleet, 1, "next-hash", name);
    share_next("mode = hash\n", name, false);
    name_on(&fleet, 1, "next-hash-dead", name);
    share_next("mode = hash\n", name, true);
}

/* ---- resharding beside a crowd ---------------------------------------------------------------------------------------- */

#define WAITERS 50

static struct crowd {
    pthread_mutex_t lock;
    int holding, had;
    uint64_t token; /* the last one */
    mortise_lease *lease;
    struct test_count granted;
} crowd = {.lock = PTHREAD_MUTEX_INITIALIZER, .granted = TEST_COUNT_INIT};

static void has_turn(mortise_status status, mortise_lease *lease, const mortise_error *error,
                     void *unused)
{
    (void)unused;
    if (status != MORTISE_OK)
        detail = *error;
    EXPECT(OK, status);
    if (status != MORTISE_OK)
        return;
    pthread_mutex_lock(&crowd.lock);
    SAFE(crowd.holding++ == 0);
    SAFE(mortise_token(lease) >=
         crowd.token); /* within a client it is handed over with its token */
    crowd.token = mortise_token(lease);
    crowd.lease = lease;
    crowd.had++;
    pthread_mutex_unlock(&crowd.lock);
    test_count_add(&crowd.granted, 1);
}

/* moving: the slot is on its way. If that takes longer than the caller waits, the release is repeated in the background. */
static void end_turn(bool moving)
{
    pthread_mutex_lock(&crowd.lock);
    mortise_lease *lease = crowd.lease;
    crowd.lease = NULL;
    crowd.holding--;
    pthread_mutex_unlock(&crowd.lock);
    CHECK(mortise_state(lease) != MORTISE_STATE_LOST);
    mortise_status status = mortise_release(lease, &detail);
    if (!moving || (status != MORTISE_INDETERMINATE && status != MORTISE_UNREACHABLE))
        EXPECT(OK, status);
}

/* Each fifth holder has the lock while the slot moves: its release comes before the move, in the middle of it, or behind it. */
static void take_turns(const char *name)
{
    struct move move;
    unsigned slot = slot_of(&fleet, name);
    for (int turn = 1; turn <= WAITERS; turn++) {
        if (!CHECK(test_count_wait(&crowd.granted, turn)))
            return;
        if (turn % 5 != 0) {
            end_turn(false);
            continue;
        }
        move_begin(&move, &fleet, slot, (slot_owner(&fleet, 0, slot) + 1) % MASTERS);
        if (turn % 15 == 0)
            move_keys(&move);
        if (turn % 10 == 0) {
            move_end(&move);
            end_turn(false);
        } else {
            end_turn(true);
            move_end(&move);
        }
    }
}

static void test_crowd(void)
{
    char name[48];
    mortise_error error;
    mortise_client *holder = fleet_open(&fleet, QUICK, NULL), *clients[5];
    name_on(&fleet, 0, "crowd", name);
    unsigned slot = slot_of(&fleet, name);
    mortise_lease *lease = take(holder, name);
    crowd.token = mortise_token(lease);
    for (int i = 0; i < 5; i++)
        clients[i] = fleet_open(&fleet, QUICK, NULL);
    for (int i = 0; i < WAITERS; i++)
        EXPECT(OK, mortise_acquire_async(clients[i % 5], name,
                                         MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = TURN_MS),
                                         has_turn, NULL, NULL, &error));
    CHECK(wait_queue(&fleet.node[0], name, 5));
    move_slot(&fleet, slot, 1);
    CHECK(queue_length(&fleet.node[1], name) == 5);
    CHECK(mortise_state(lease) != MORTISE_STATE_LOST);
    give(lease);
    take_turns(name);
    CHECK(crowd.had == WAITERS);
    for (int i = 0; i < 5; i++)
        close_client(clients[i]);
    close_client(holder);
    move_slot(&fleet, slot, 0);
}

static const CU_TestInfo tests[] = {
    {"the slot is on its way", test_asked},
    {"the slot is on its way, all keys have arrived", test_all_asked},
    {"the slot is on its way, requests of two steps", test_steps},
    {"the slot is on its way, a waiter without a queue", test_told},
    {"a slot has moved, and others are waited for", test_others_stay},
    {"the slot is on its way, a waiter is dead", test_dead_waiter},
    {"the slot is on its way, the next waiter lives", test_live_next},
    {"the slot is on its way, the next would share", test_share_next},
    {"a holder and fifty waiters", test_crowd},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = fleet_start(&fleet, false, NULL);
    if (code == 0)
        code = run_tests("cluster: resharding", tests, argc, argv);
    return !fleet_end(&fleet) && code == 0 ? 1 : code;
}
