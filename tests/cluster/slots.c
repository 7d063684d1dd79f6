/* slots.c - which node of a test's cluster serves which slot: it is asked for, moved, removed, taken over; see fleet.h. */
#include "fleet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_ok(int node, redisReply *reply, const char *what)
{
    bool good = reply && reply->type != REDIS_REPLY_ERROR;
    if (!good)
        fprintf(stderr, "node %d: %s: %s\n", node, what, reply ? reply->str : "no answer");
    freeReplyObject(reply);
    return CHECK(good);
}
/* DO(nodes, i, "COMMAND", …): must succeed. */
#define DO(nodes, i, ...) is_ok(i, ask(&(nodes)->node[i], __VA_ARGS__), #__VA_ARGS__)

static bool runs(const struct fleet *fleet, int node)
{
    return (fleet->up & 1u << node) != 0;
}

static int first_up(const struct fleet *fleet)
{
    int node = 0;
    while (node < FLEET - 1 && !runs(fleet, node))
        node++;
    return node;
}

unsigned slot_of(struct fleet *fleet, const char *name)
{
    return (unsigned)ask_number(&fleet->node[first_up(fleet)], "CLUSTER KEYSLOT mortise:%s", name);
}

/* An entry of CLUSTER SLOTS: first slot, last slot, master, replicas. */
static int owner_in(const struct fleet *fleet, const redisReply *range, unsigned slot)
{
    if (range->elements < 3 || range->element[0]->integer > (long long)slot ||
        range->element[1]->integer < (long long)slot || range->element[2]->elements < 3)
        return -1;
    for (int i = 0; i < FLEET; i++)
        if (strcmp(range->element[2]->element[2]->str, fleet->id[i]) == 0)
            return i;
    return -1;
}

int slot_owner(struct fleet *fleet, int seen_by, unsigned slot)
{
    int owner = -1;
    redisReply *ranges = ask(&fleet->node[seen_by], "CLUSTER SLOTS");
    for (size_t i = 0; ranges && owner < 0 && i < ranges->elements; i++)
        owner = owner_in(fleet, ranges->element[i], slot);
    freeReplyObject(ranges);
    return owner;
}

const char *name_on(struct fleet *fleet, int node, const char *prefix, char name[48])
{
    for (int i = 0; i < 1000; i++) {
        snprintf(name, 48, "%s-%d", prefix, i);
        if (slot_owner(fleet, first_up(fleet), slot_of(fleet, name)) == node)
            return name;
    }
    CHECK(!"a name on the node was found");
    return name;
}

struct owned {
    struct fleet *fleet;
    unsigned slot;
    int owner;
};

static bool all_know(void *argument)
{
    const struct owned *owned = argument;
    for (int i = 0; i < FLEET; i++)
        if (runs(owned->fleet, i) && slot_owner(owned->fleet, i, owned->slot) != owned->owner)
            return false;
    return true;
}

bool wait_owner(struct fleet *fleet, unsigned slot, int owner)
{
    struct owned owned = {fleet, slot, owner};
    bool good = test_poll(all_know, &owned, TEST_PATIENCE_MS);
    for (int i = 0; !good && i < FLEET; i++)
        fprintf(stderr, "slot %u, wanted %d, node %d: %d\n", slot, owner, i,
                runs(fleet, i) ? slot_owner(fleet, i, slot) : -2);
    return good;
}

/* ---- moving ---------------------------------------------------------------------------------------------------- */

void move_begin(struct move *move, struct fleet *fleet, unsigned slot, int to)
{
    *move = (struct move){fleet, slot, slot_owner(fleet, to, slot), to};
    DO(fleet, to, "CLUSTER SETSLOT %u IMPORTING %s", slot, fleet->id[move->from]);
    DO(fleet, move->from, "CLUSTER SETSLOT %u MIGRATING %s", slot, fleet->id[to]);
}

bool move_key(struct move *move, const char *key)
{
    struct fleet *fleet = move->fleet;
    redisReply *reply = ask(&fleet->node[move->from], "MIGRATE 127.0.0.1 %d %s 0 5000",
                            fleet->node[move->to].port, key);
    bool moved = reply && reply->str && strcmp(reply->str, "OK") == 0;
    CHECK(moved || (reply && reply->str && strcmp(reply->str, "NOKEY") == 0));
    if (reply && reply->type == REDIS_REPLY_ERROR)
        fprintf(stderr, "MIGRATE: %s\n", reply->str);
    freeReplyObject(reply);
    return moved;
}

void move_keys(struct move *move)
{
    struct fleet *fleet = move->fleet;
    redisReply *keys = ask(&fleet->node[move->from], "CLUSTER GETKEYSINSLOT %u 1000", move->slot);
    for (size_t i = 0; keys && i < keys->elements; i++)
        move_key(move, keys->element[i]->str);
    freeReplyObject(keys);
}

static bool has_no_keys(void *argument)
{
    struct move *move = argument;
    move_keys(move);
    return ask_number(&move->fleet->node[move->from], "CLUSTER COUNTKEYSINSLOT %u", move->slot) ==
           0;
}

/* The new owner first: else nobody would be responsible for a moment. */
static void give_slot(struct move *move)
{
    struct fleet *fleet = move->fleet;
    DO(fleet, move->to, "CLUSTER SETSLOT %u NODE %s", move->slot, fleet->id[move->to]);
    DO(fleet, move->from, "CLUSTER SETSLOT %u NODE %s", move->slot, fleet->id[move->to]);
}

static long long epoch_of(struct fleet *fleet, int node)
{
    static const char words[] = "cluster_current_epoch:";
    redisReply *reply = ask(&fleet->node[node], "CLUSTER INFO");
    const char *at = reply && reply->str ? strstr(reply->str, words) : NULL;
    long long epoch = at ? strtoll(at + sizeof(words) - 1, NULL, 10) : -1;
    freeReplyObject(reply);
    return epoch;
}

static bool have_one_epoch(void *argument)
{
    struct fleet *fleet = argument;
    long long epoch = epoch_of(fleet, first_up(fleet));
    for (int i = 0; i < FLEET; i++)
        if (runs(fleet, i) && epoch_of(fleet, i) != epoch)
            return false;
    return true;
}

/* The new owner takes an epoch above all that it knows. If it does not know the former owner's, that one's next message takes the slot
 * away from it, and its keys are deleted; or each of the two takes the other one for the owner, for good. */
void move_end(struct move *move)
{
    struct fleet *fleet = move->fleet;
    struct owned owned = {fleet, move->slot, move->to};
    CHECK(test_poll(has_no_keys, move, TEST_PATIENCE_MS));
    test_poll(have_one_epoch, fleet, TEST_PATIENCE_MS / 20);
    give_slot(move);
    for (int tries = 0; tries < 5 && !test_poll(all_know, &owned, TEST_PATIENCE_MS / 20); tries++) {
        fprintf(stderr, "slot %u is given to node %d once more\n", move->slot, move->to);
        freeReplyObject(ask(&fleet->node[move->to], "CLUSTER BUMPEPOCH"));
        CHECK(test_poll(has_no_keys, move, TEST_PATIENCE_MS));
        give_slot(move);
    }
    CHECK(wait_owner(fleet, move->slot, move->to));
}

void move_abandon(struct move *move)
{
    struct fleet *fleet = move->fleet;
    redisReply *keys = ask(&fleet->node[move->to], "CLUSTER GETKEYSINSLOT %u 1000", move->slot);
    for (size_t i = 0; keys && i < keys->elements; i++) {
        DO(fleet, move->to, "ASKING");
        DO(fleet, move->to, "DEL %s", keys->element[i]->str);
    }
    freeReplyObject(keys);
    DO(fleet, move->to, "CLUSTER SETSLOT %u STABLE", move->slot);
}

void move_slot(struct fleet *fleet, unsigned slot, int to)
{
    struct move move;
    if (slot_owner(fleet, to, slot) == to)
        return;
    move_begin(&move, fleet, slot, to);
    move_end(&move);
}

int64_t refusals(struct fleet *fleet, int node, const char *error)
{
    char key[64];
    snprintf(key, sizeof key, "errorstat_%s:count=", error);
    redisReply *reply = ask(&fleet->node[node], "INFO errorstats");
    const char *at = reply && reply->str ? strstr(reply->str, key) : NULL;
    int64_t count = at ? strtoll(strchr(at, '=') + 1, NULL, 10) : 0;
    freeReplyObject(reply);
    return count;
}

/* ---- down and up ------------------------------------------------------------------------------------------------- */

bool is_master(struct fleet *fleet, int node)
{
    redisReply *role = ask(&fleet->node[node], "ROLE");
    bool master = role && role->elements > 0 && strcmp(role->element[0]->str, "master") == 0;
    freeReplyObject(role);
    return master;
}

static bool state_is(struct fleet *fleet, const char *state)
{
    for (int i = 0; i < FLEET; i++) {
        if (!runs(fleet, i))
            continue;
        redisReply *info = ask(&fleet->node[i], "CLUSTER INFO");
        bool same = info && info->str && strstr(info->str, state) != NULL;
        freeReplyObject(info);
        if (!same)
            return false;
    }
    return true;
}

/* What a node heard of the slot a moment ago may come in between. */
static bool nobody_serves(void *argument)
{
    const struct owned *owned = argument;
    for (int i = 0; i < FLEET; i++)
        if (runs(owned->fleet, i) && slot_owner(owned->fleet, i, owned->slot) >= 0)
            freeReplyObject(ask(&owned->fleet->node[i], "CLUSTER DELSLOTS %u", owned->slot));
    return state_is(owned->fleet, "cluster_state:fail");
}

void slot_remove(struct fleet *fleet, unsigned slot)
{
    struct owned owned = {fleet, slot, -1};
    DO(fleet, slot_owner(fleet, first_up(fleet), slot), "CLUSTER DELSLOTS %u", slot);
    CHECK(test_poll(nobody_serves, &owned, TEST_PATIENCE_MS));
}

static bool all_serve(void *fleet)
{
    return state_is(fleet, "cluster_state:ok");
}

/* As if it had been moved: a node tells all others at once of a slot that it has imported, and of an added one in its own time. */
void slot_give(struct fleet *fleet, unsigned slot, int node)
{
    DO(fleet, node, "CLUSTER SETSLOT %u IMPORTING %s", slot, fleet->id[(node + 1) % MASTERS]);
    DO(fleet, node, "CLUSTER SETSLOT %u NODE %s", slot, fleet->id[node]);
    CHECK(wait_owner(fleet, slot, node));
    CHECK(test_poll(all_serve, fleet, TEST_PATIENCE_MS));
}

/* Nobody serves the slots that the owner had in the beginning; the first is looked at for all of them. */
static bool range_is_free(void *argument)
{
    const struct owned *owned = argument;
    struct fleet *fleet = owned->fleet;
    bool is_free = true;
    for (int i = 0; i < FLEET; i++) {
        if (!runs(fleet, i) || slot_owner(fleet, i, owned->slot) < 0)
            continue;
        is_free = false;
        freeReplyObject(ask(&fleet->node[i], "CLUSTER DELSLOTSRANGE %u %u", owned->slot,
                            (unsigned)(SLOTS * (owned->owner + 1) / MASTERS - 1)));
    }
    return is_free;
}

/* slot_give() tells all of the whole range. */
void range_give(struct fleet *fleet, int master, int to)
{
    unsigned first = (unsigned)(SLOTS * master / MASTERS),
             last = (unsigned)(SLOTS * (master + 1) / MASTERS - 1);
    struct owned owned = {fleet, first, master};
    CHECK(test_poll(range_is_free, &owned, TEST_PATIENCE_MS));
    DO(fleet, to, "CLUSTER ADDSLOTSRANGE %u %u", first + 1, last);
    slot_give(fleet, first, to);
}

/* ---- failover ------------------------------------------------------------------------------------------------------ */

void fleet_promote(struct fleet *fleet, int replica)
{
    int other = replica < MASTERS ? REPLICA(replica) : replica - MASTERS;
    unsigned first = (unsigned)(SLOTS * (replica % MASTERS) / MASTERS);
    DO(fleet, replica, "CLUSTER FAILOVER TAKEOVER");
    CHECK(wait_owner(fleet, first, replica));
    CHECK(!runs(fleet, other) || !is_master(fleet, other));
}

struct follower {
    struct fleet *fleet;
    int master, replicas;
    char key[24];
};

/* A write of its own: WAIT speaks of what its connection has written. */
static bool have_all(void *argument)
{
    const struct follower *follower = argument;
    struct server *node = &follower->fleet->node[follower->master];
    return ask_is(node, "OK", "SET %s now PX 1", follower->key) &&
           ask_number(node, "WAIT %d 1000", follower->replicas) >= follower->replicas;
}

bool wait_replicated(struct fleet *fleet, int master, int replicas)
{
    struct follower follower = {.fleet = fleet, .master = master, .replicas = replicas};
    for (int i = 0; i < 1000; i++) { /* a key that it serves */
        snprintf(follower.key, sizeof follower.key, "written:%d", i);
        unsigned slot =
            (unsigned)ask_number(&fleet->node[master], "CLUSTER KEYSLOT %s", follower.key);
        if (slot_owner(fleet, master, slot) == master)
            break;
    }
    return test_poll(have_all, &follower, TEST_PATIENCE_MS);
}

/* It is not told: it cannot log in. */
void fleet_strand(struct fleet *fleet, int replica, bool stranded)
{
    DO(fleet, replica, "CONFIG SET masterauth %s", stranded ? "nobody" : "");
    if (stranded) {
        int master = replica < MASTERS ? REPLICA(replica) : replica - MASTERS;
        CHECK(ask_number(&fleet->node[master], "CLIENT KILL TYPE replica") >= 0);
    }
}

/* A node closes its link to another one that was silent for half of this time. The node `last` gets it after all others. */
static void set_timeouts(struct fleet *fleet, int last, const char *ms)
{
    for (int i = 1; i <= FLEET; i++)
        DO(fleet, (last + i) % FLEET, "CONFIG SET cluster-node-timeout %s", ms);
}

struct links {
    struct server *node;
    redisReply *list;
};

/* One to each of the others, and one from each. */
static bool has_all_links(void *argument)
{
    struct links *links = argument;
    freeReplyObject(links->list);
    links->list = ask(links->node, "CLUSTER LINKS");
    return links->list && links->list->elements == (size_t)(2 * (FLEET - 1));
}

/* The node alone speaks TLS on the bus, so no further link can be made. */
static void cut_links(struct fleet *fleet, struct links *links)
{
    int node = (int)(links->node - fleet->node);
    DO(fleet, node, "CONFIG SET tls-cluster yes");
    for (size_t i = 0; i < links->list->elements; i++) {
        const redisReply *link = links->list->element[i]; /* "direction", it, "node", it, … */
        if (CHECK(link->elements > 3))
            DO(fleet, node, "DEBUG CLUSTERLINK KILL %s %s", link->element[1]->str,
               link->element[3]->str);
    }
}

/* To close a link that has gone ends the server, and one that is not listed stays. So no node closes a link meanwhile, and what was
 * closed before is not listed: the node gets its setting last, and learns of a closed link before it answers that. */
static void isolate(struct fleet *fleet, int node)
{
    struct links links = {&fleet->node[node], NULL};
    redisReply *usual = ask(links.node, "CONFIG GET cluster-node-timeout");
    if (CHECK(usual && usual->elements == 2)) {
        set_timeouts(fleet, node, "3600000");
        if (CHECK(test_poll(has_all_links, &links, TEST_PATIENCE_MS)))
            cut_links(fleet, &links);
        set_timeouts(fleet, node, usual->element[1]->str);
    }
    freeReplyObject(links.list);
    freeReplyObject(usual);
}

void fleet_isolate(struct fleet *fleet, int node, bool isolated)
{
    if (isolated)
        isolate(fleet, node);
    else
        DO(fleet, node, "CONFIG SET tls-cluster no");
}

static bool is_elected(void *argument)
{
    const struct follower *follower = argument;
    unsigned slot = (unsigned)(SLOTS * follower->master / MASTERS);
    for (int i = 0; i < FLEET; i++)
        if (i != follower->master && runs(follower->fleet, i) &&
            slot_owner(follower->fleet, i, slot) != REPLICA(follower->master))
            return false;
    return true;
}

bool wait_elected(struct fleet *fleet, int master)
{
    struct follower follower = {.fleet = fleet, .master = master};
    return test_poll(is_elected, &follower, TEST_PATIENCE_MS);
}
