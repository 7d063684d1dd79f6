/* test_slots.c - where a lock is: its keys, redirects while its slot moves and when it has moved, and a cluster that is down. */
#include "fleet.h"

#include <stdio.h>
#include <string.h>

static struct fleet fleet;

#define QUICK "renew_every = 100ms\n"

/* ---- keys ------------------------------------------------------------------------------------------------------ */

/* The keys of all nodes' masters, one a line, in no order. */
static void all_keys(char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < MASTERS; i++) {
        redisReply *keys = ask(&fleet.node[i], "KEYS *");
        for (size_t k = 0; keys && k < keys->elements; k++)
            used += (size_t)snprintf(text + used, used < size ? size - used : 0, "%s\n",
                                     keys->element[k]->str);
        freeReplyObject(keys);
    }
}

/* What other clients of the same locks rely on: the key is the name, and what is beside it has its slot. */
static void test_keys(void)
{
    static const char *const names[][2] = {
        {"plain", "{mortise:plain}:mortise:token"},
        {"a{tag}b", "{tag}:mortise:token:mortise:a{tag}b"},
        {"a{b", "{mortise:a{b}:mortise:token"},
        {"a}b", "}:mortise:token:mortise:a}b"},   /* four letters of the same slot, in braces */
        {"a{}b", "}:mortise:token:mortise:a{}b"}, /* likewise */
        {"}", "}:mortise:token:mortise:}"},
        {"{", "{mortise:{}:mortise:token"},
    };
    static char before[4000], now[4000];
    mortise_client *client = fleet_open(&fleet, NULL, NULL);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char line[100];
        mortise_lease *lease = take(client, names[i][0]);
        int owner = slot_owner(&fleet, 0, slot_of(&fleet, names[i][0]));
        CHECK(holds(&fleet.node[owner], names[i][0]) == 1);
        CHECK(is_covered(&fleet.node[owner], names[i][0], lease));
        all_keys(now, sizeof now);
        snprintf(line, sizeof line, "%s\n", names[i][1]);
        CHECK(strstr(now, line) != NULL && strstr(before, line) == NULL);
        memcpy(before, now, sizeof before);
        give(lease);
        CHECK(holds(&fleet.node[owner], names[i][0]) == 0);
    }
    close_client(client);
}

/* ---- redirects -------------------------------------------------------------------------------------------------- */

/* It has moved since the client asked where it is, with nothing in it, and with a lease. */
static void test_moved(void)
{
    char name[48];
    mortise_client *client = fleet_open(&fleet, QUICK, NULL);
    name_on(&fleet, 0, "moved", name);
    unsigned slot = slot_of(&fleet, name);
    give(take(client, name));
    move_slot(&fleet, slot, 1);
    mortise_lease *lease = take(client, name);
    uint64_t token = mortise_token(lease);
    CHECK(holds(&fleet.node[1], name) == 1);
    move_slot(&fleet, slot, 2);
    CHECK(wait_renewals(client, stats_of(client).renewals + 3));
    CHECK(mortise_state(lease) == MORTISE_STATE_HELD);
    CHECK(is_covered(&fleet.node[2], name, lease));
    EXPECT(BUSY, try_once(client, name));
    move_slot(&fleet, slot, 0);
    give(lease);
    CHECK(holds(&fleet.node[0], name) == 0);
    lease = take(client, name);
    SAFE(mortise_token(lease) > token);
    give(lease);
    close_client(client);
}

/* Some keys of the name are here, some there: nobody can be asked. A lease lives through it, an acquire waits. */
static void test_try_again(void)
{
    struct told told = TOLD_INIT;
    struct pending pending = PENDING_INIT;
    struct move move;
    char name[48], key[64];
    mortise_lease *lease = NULL;
    mortise_client *client = fleet_open(&fleet, QUICK, NULL),
                   *other = fleet_open(&fleet, NULL, NULL);
    name_on(&fleet, 2, "torn", name);
    EXPECT(OK, mortise_acquire(client, name,
                               MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = LONG_MS,
                                               .on_state = note_state, .user_data = &told),
                               &lease, &detail));
    uint64_t token = mortise_token(lease);
    snprintf(key, sizeof key, "mortise:%s", name);
    move_begin(&move, &fleet, slot_of(&fleet, name), 0);
    CHECK(move_key(&move, key));
    CHECK(not_reached(
        mortise_acquire(other, name, MORTISE_OPTIONS(.wait_ms = 0), &pending.lease, &detail)));
    SAYS("TRYAGAIN");
    CHECK(detail.retryable);
    pending_start(&pending, other, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    move_end(&move);
    CHECK(wait_renewals(client, stats_of(client).renewals + 3));
    CHECK(wait_state(lease, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    CHECK(test_count_get(&told.lost) == 0 && test_count_get(&pending.calls) == 0);
    give(lease);
    EXPECT(OK, pending_join(&pending));
    SAFE(mortise_token(pending.lease) > token);
    give(pending.lease);
    move_slot(&fleet, move.slot, 2);
    close_client(other);
    close_client(client);
}

static bool is_refused_often(void *before)
{
    return refusals(&fleet, 2, "TRYAGAIN") >= *(int64_t *)before + 4;
}

/* An acquire that was refused several times while some keys were here goes on where they are as soon as the last one is there. False:
 * it gave up before. */
static bool follow_late(mortise_client *client, const char *name, struct move *move)
{
    struct pending pending = PENDING_INIT;
    move_begin(move, &fleet, slot_of(&fleet, name), 0);
    int64_t before = refusals(&fleet, 2, "TRYAGAIN");
    pending_start(&pending, client, name, MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = LONG_MS));
    CHECK(test_poll(is_refused_often, &before, TEST_PATIENCE_MS));
    move_keys(move);
    mortise_status status = pending_join(&pending);
    bool followed = status == MORTISE_OK;
    bool gave_up = !followed && strstr(pending.error.message, "TRYAGAIN") != NULL;
    CHECK(followed || gave_up);
    if (followed)
        give(pending.lease);
    else
        fprintf(stderr, "%s\n", pending.error.message);
    move_end(move);
    move_slot(&fleet, move->slot, 2);
    return !gave_up;
}

static void test_asked_late(void)
{
    struct move move;
    char name[48];
    int tries = 0;
    mortise_client *client = fleet_open(&fleet, NULL, NULL);
    name_on(&fleet, 2, "late", name);
    give(take(client, name)); /* its token is a key that stays */
    while (!follow_late(client, name, &move) && ++tries < 10)
        ;
    CHECK(tries < 10);
    close_client(client);
}

static bool is_asked_twice(void *before)
{
    return fleet_calls(&fleet, 0, "evalsha") >= *(int64_t *)before + 2;
}

/* ASK has led a waiter to the new node. Once the slot has arrived, the client asks this node as it asks the owner of any slot:
 * with scripts that the node knows. */
static void test_arrived(void)
{
    struct pending pending = PENDING_INIT;
    struct move move;
    char name[48];
    mortise_client *client = fleet_open(&fleet, NULL, NULL),
                   *other = fleet_open(&fleet, NULL, NULL);
    name_on(&fleet, 2, "arrived", name);
    mortise_lease *lease = take(client, name);
    move_begin(&move, &fleet, slot_of(&fleet, name), 0);
    move_keys(&move);
    pending_start(&pending, other, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 3000));
    CHECK(wait_inboxes(&fleet.node[0], 1));
    move_end(&move);
    CHECK(wait_queue(&fleet.node[0], name, 1));
    bool asked = false;
    for (int tries = 0; !asked && tries < 20; tries++) {
        mortise_info info = {.size = sizeof info};
        EXPECT(OK, mortise_inspect(other, name, &info, &detail)); /* the former node tells it */
        int64_t before = fleet_calls(&fleet, 0, "evalsha");
        asked = test_poll(is_asked_twice, &before, 5000);
        if (!asked)
            fprintf(stderr, "try %d: evalsha %lld, eval %lld, asking %lld\n", tries,
                    (long long)fleet_calls(&fleet, 0, "evalsha"),
                    (long long)fleet_calls(&fleet, 0, "eval"),
                    (long long)fleet_calls(&fleet, 0, "asking"));
    }
    CHECK(asked);
    give(lease);
    EXPECT(OK, pending_join(&pending));
    give(pending.lease);
    move_slot(&fleet, move.slot, 2);
    close_client(other);
    close_client(client);
}

/* ---- a slot that moves twice while a request is in flight ------------------------------------------------------------ */

static bool has_taken(void *argument)
{
    return test_proxy_count(argument, "up_taken") > test_proxy_count(argument, "up");
}

static bool is_granted(void *name)
{
    return holds(&fleet.node[0], name) == 1;
}

enum flight { NOT_SENT, NOT_ANSWERED, ANSWER_LOST };

/* The request, or its answer, is on the way while the slot goes to another node, and to a third one, or back. */
static void fly(enum flight flight, int last)
{
    static const char *const orders[] = {"hold-up", "hold-down", "lose"};
    struct pending pending = PENDING_INIT;
    static char name[48];
    char what[24];
    mortise_client *client = fleet_open_by(&fleet, QUICK, NULL),
                   *other = fleet_open(&fleet, NULL, NULL);
    snprintf(what, sizeof what, "flight-%d-%d", flight, last);
    name_on(&fleet, 0, what, name);
    unsigned slot = slot_of(&fleet, name);
    mortise_lease *lease = take(client, name);
    uint64_t token = mortise_token(lease);
    give(lease);
    fleet_say(&fleet, 1u << 0, orders[flight]);
    pending_start(&pending, client, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    if (flight == NOT_SENT)
        CHECK(test_poll(has_taken, &fleet.proxy[0], TEST_PATIENCE_MS));
    else
        CHECK(test_poll(is_granted, name, TEST_PATIENCE_MS));
    move_slot(&fleet, slot, 1);
    move_slot(&fleet, slot, last);
    fleet_say(&fleet, 1u << 0, "pass");
    EXPECT(OK, pending_join(&pending));
    SAFE(mortise_token(pending.lease) > token);
    CHECK(holds(&fleet.node[last], name) == 1);
    CHECK(wait_renewals(client, stats_of(client).renewals + 2));
    CHECK(mortise_state(pending.lease) == MORTISE_STATE_HELD);
    EXPECT(BUSY, try_once(other, name));
    give(pending.lease);
    EXPECT(OK, try_once(other, name));
    move_slot(&fleet, slot, 0);
    close_client(other);
    close_client(client);
}

static void test_twice(void)
{
    fly(NOT_ANSWERED, 2);
    fly(NOT_SENT, 2);
    fly(ANSWER_LOST, 0);
}

/* ---- a list while a lock moves ------------------------------------------------------------------------------------------ */

struct listing {
    mortise_client *client;
    mortise_status status;
    int count;
};

static bool note_one(const mortise_info *info, void *argument)
{
    (void)info;
    ((struct listing *)argument)->count++;
    return true;
}

static void *list_once(void *argument)
{
    struct listing *listing = argument;
    mortise_error error;
    listing->count = 0;
    listing->status = mortise_list(listing->client, "wanderer", note_one, listing, &error);
    return NULL;
}

struct asked_so_far {
    int node;
    int64_t calls;
};

/* ROLE ends what is asked of a node. */
static bool has_been_read(void *argument)
{
    const struct asked_so_far *asked = argument;
    return fleet_calls(&fleet, asked->node, "role") > asked->calls;
}

/* It goes from a master that was not read yet to one that was. */
static void test_wanderer(void)
{
    char name[48];
    pthread_t thread;
    struct move move;
    mortise_client *client = fleet_open_by(&fleet, NULL, NULL);
    struct listing listing = {.client = client};
    mortise_lease *lease = take(client, name_on(&fleet, 0, "wanderer", name));
    list_once(&listing);
    CHECK(listing.status == MORTISE_OK && listing.count == 1);
    struct asked_so_far asked = {1, fleet_calls(&fleet, 1, "role")};
    fleet_say(&fleet, 1u << 0, "hold-up");
    if (!CHECK(pthread_create(&thread, NULL, list_once, &listing) == 0))
        return;
    CHECK(test_poll(has_been_read, &asked, TEST_PATIENCE_MS));
    move_begin(&move, &fleet, slot_of(&fleet, name), 1);
    move_keys(&move);
    fleet_say(&fleet, 1u << 0, "pass");
    pthread_join(thread, NULL);
    CHECK(listing.status == MORTISE_OK && listing.count == 1);
    move_end(&move);
    move_slot(&fleet, move.slot, 0);
    give(lease);
    close_client(client);
}

/* ---- a list, and the first look is redirected: the text of the script went with it --------------------------------------- */

static bool count_held(const mortise_info *info, void *argument)
{
    *(int *)argument += info->held;
    return true;
}

static bool count_shared(const mortise_info *info, void *argument)
{
    *(int *)argument += info->held && info->mode == MORTISE_SHARED && info->holders == 2;
    return true;
}

/* One of two shared locks is still at the former master: first with all its keys. Then one of these has left, so no node can tell
 * who shares it, and the list has only what it saw of the lock itself. Which of the two the node names first is not known. */
static void test_list_sharers(void)
{
    char names[2][48], key[80];
    struct move move;
    mortise_info info = {.size = sizeof info};
    mortise_lease *leases[4] = {NULL};
    mortise_client *client = fleet_open(&fleet, NULL, NULL),
                   *other = fleet_open(&fleet, NULL, NULL);
    for (int i = 0; i < 2; i++)
        name_on(&fleet, 0, i == 0 ? "sharers, one" : "sharers, two", names[i]);
    for (int i = 0; i < 4; i++)
        EXPECT(OK, mortise_acquire(i < 2 ? client : other, names[i % 2],
                                   MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS,
                                                   .mode = MORTISE_SHARED),
                                   &leases[i], &detail));
    for (int i = 0; i < 2; i++) {
        int held = 0, shared = 0;
        move_begin(&move, &fleet, slot_of(&fleet, names[i]), 1);
        EXPECT(OK, mortise_inspect(client, names[i], &info, &detail));
        CHECK(info.held && info.mode == MORTISE_SHARED && info.holders == 2);
        EXPECT(OK, mortise_list(client, "sharers", count_shared, &shared, &detail));
        CHECK(shared == 2);
        shared = 0;
        snprintf(key, sizeof key, "{mortise:%s}:mortise:shares", names[i]);
        CHECK(move_key(&move, key));
        CHECK(ask_is(&fleet.node[0], "OK", "SCRIPT FLUSH"));
        EXPECT(OK, mortise_list(client, "sharers", count_held, &held, &detail));
        CHECK(ask_is(&fleet.node[0], "OK", "SCRIPT FLUSH"));
        EXPECT(OK, mortise_list(client, "sharers", count_shared, &shared, &detail));
        CHECK(held == 2 && shared >= 1);
        move_end(&move);
        move_slot(&fleet, move.slot, 0);
    }
    for (int i = 0; i < 4; i++)
        give(leases[i]);
    close_client(other);
    close_client(client);
}

#define GHOSTS 16

/* A key in a slot that the node does not serve: it is named, and cannot be looked at. */
static void haunt(const char *name, bool there)
{
    unsigned slot = slot_of(&fleet, name);
    CHECK(ask_is(&fleet.node[0], "OK", "CLUSTER SETSLOT %u IMPORTING %s", slot, fleet.id[1]));
    CHECK(ask_is(&fleet.node[0], "OK", "ASKING"));
    if (there)
        CHECK(ask_is(&fleet.node[0], "OK", "SET mortise:%s here PX 600000", name));
    else
        CHECK(ask_number(&fleet.node[0], "DEL mortise:%s", name) == 1);
    CHECK(ask_is(&fleet.node[0], "OK", "CLUSTER SETSLOT %u STABLE", slot));
}

/* As the driver asks. */
static bool ghost_is_first(void)
{
    redisReply *page = ask(&fleet.node[0], "SCAN 0 MATCH mortise:haunted* COUNT 500");
    bool is_ghost = page && page->elements == 2 && page->element[1]->elements > 0 &&
                    strstr(page->element[1]->element[0]->str, "ghost") != NULL;
    freeReplyObject(page);
    return is_ghost;
}

/* The list asks again until they have gone, as of keys that have left, or gives up. */
static void test_list_ghosts(void)
{
    char name[48], prefix[24], ghosts[GHOSTS][48];
    int count = 0, listed = 0;
    mortise_client *client = fleet_open(&fleet, NULL, NULL);
    mortise_lease *lease = take(client, name_on(&fleet, 0, "haunted", name));
    while (count < GHOSTS && !ghost_is_first()) {
        snprintf(prefix, sizeof prefix, "haunted, ghost %d,", count);
        haunt(name_on(&fleet, 1, prefix, ghosts[count]), true);
        count++;
    }
    CHECK(ask_is(&fleet.node[0], "OK", "SCRIPT FLUSH"));
    EXPECT(UNREACHABLE, mortise_list(client, "haunted", count_held, &listed, &detail));
    SAYS("again and again");
    while (count > 0)
        haunt(ghosts[--count], false);
    EXPECT(OK, mortise_list(client, "haunted", count_held, &listed, &detail));
    CHECK(listed == 1);
    give(lease);
    close_client(client);
}

/* ---- down and back ------------------------------------------------------------------------------------------------------ */

/* A slot that nobody serves: the whole cluster is down, whatever is asked for. */
static void test_down(void)
{
    struct told told = TOLD_INIT;
    struct pending pending = PENDING_INIT;
    char name[48];
    mortise_lease *lease = NULL;
    mortise_client *client = fleet_open(&fleet, QUICK, NULL),
                   *other = fleet_open(&fleet, NULL, NULL);
    mortise_client *hurried = fleet_open(&fleet, "unreachable_timeout = 1s\n", NULL);
    name_on(&fleet, 1, "down", name);
    unsigned missing = slot_of(&fleet, "another");
    int owner = slot_owner(&fleet, 0, missing);
    EXPECT(OK, mortise_acquire(client, name,
                               MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = LONG_MS,
                                               .on_state = note_state, .user_data = &told),
                               &lease, &detail));
    EXPECT(BUSY, try_once(other, name));
    EXPECT(BUSY, try_once(hurried, name));
    slot_remove(&fleet, missing);
    CHECK(test_count_wait(&told.suspect, 1));
    EXPECT(UNREACHABLE, try_once(other, name));
    SAYS("CLUSTERDOWN");
    CHECK(detail.retryable);
    EXPECT(UNREACHABLE, mortise_acquire(hurried, name, MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS),
                                        &pending.lease, &detail));
    SAYS("CLUSTERDOWN");
    pending_start(&pending, other, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    slot_give(&fleet, missing, owner);
    CHECK(wait_state(lease, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    CHECK(test_count_get(&told.lost) == 0 && test_count_get(&pending.calls) == 0);
    give(lease);
    EXPECT(OK, pending_join(&pending));
    give(pending.lease);
    close_client(hurried);
    close_client(other);
    close_client(client);
}

static const CU_TestInfo tests[] = {
    {"keys", test_keys},
    {"the slot has moved", test_moved},
    {"some keys here, some there", test_try_again},
    {"all keys arrive after some refusals", test_asked_late},
    {"a waiter when the slot has arrived", test_arrived},
    {"twice while a request is in flight", test_twice},
    {"a list while a lock moves", test_wanderer},
    {"a list, and nobody can be asked who shares one", test_list_sharers},
    {"a list, and the first key cannot be looked at", test_list_ghosts},
    {"down and back", test_down},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = fleet_start(&fleet, true, NULL);
    if (code == 0)
        code = run_tests("cluster: slots", tests, argc, argv);
    return !fleet_end(&fleet) && code == 0 ? 1 : code;
}
