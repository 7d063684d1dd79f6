/* test_failover.c - a master goes away, and its replica takes over: leases are renewed there, or reported LOST. With min_replicas
 * nothing that was granted is forgotten. */
#include "fleet.h"

#include <stdio.h>
#include <string.h>

static struct fleet fleet;

#define HELD_MS 600000 /* no renewal is due */
#define QUICK "renew_every = 200ms\n"
static const char timeouts[] = "connect_timeout = 1s\ncommand_timeout = 1s\n";
static const char one_replica[] =
    "connect_timeout = 1s\ncommand_timeout = 1s\nmin_replicas = 1\nreplica_timeout = 500ms\n";

static mortise_lease *hold(mortise_client *client, const char *name, struct told *told)
{
    mortise_lease *lease = NULL;
    EXPECT(OK, mortise_acquire(client, name,
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = HELD_MS,
                                               .on_state = note_state, .user_data = told),
                               &lease, &detail));
    return lease;
}

static void check_kept(mortise_client *client, mortise_lease *lease, const char *name,
                       struct told *told, uint64_t renewals)
{
    struct server *now = &fleet.node[REPLICA(1)];
    CHECK(wait_renewals(client, renewals));
    CHECK(wait_state(lease, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    CHECK(holds(now, name) == 1 && is_covered(now, name, lease));
    CHECK(test_count_get(&told->lost) == 0);
}

/* The lease goes on at the new master, before its renewal would be due; its waiter gets it there. */
static void test_killed(void)
{
    struct told told = TOLD_INIT;
    struct pending pending = PENDING_INIT;
    char name[48];
    mortise_client *client = fleet_open(&fleet, NULL, timeouts),
                   *other = fleet_open(&fleet, NULL, timeouts);
    name_on(&fleet, 1, "kept", name);
    mortise_lease *lease = hold(client, name, &told);
    uint64_t token = mortise_token(lease);
    pending_start(&pending, other, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(wait_queue(&fleet.node[1], name, 1));
    CHECK(wait_replicated(&fleet, 1, 1));
    fleet_do(&fleet, "kill", 1);
    fleet_promote(&fleet, REPLICA(1));
    check_kept(client, lease, name, &told, 1);
    give(lease);
    EXPECT(OK, pending_join(&pending));
    SAFE(mortise_token(pending.lease) > token);
    CHECK(holds(&fleet.node[REPLICA(1)], name) == 1);
    fleet_do(&fleet, "start", 1);
    fleet_mend(&fleet);
    give(pending.lease);
    CHECK(holds(&fleet.node[1], name) == 0);
    close_client(other);
    close_client(client);
}

/* What the replica never had is reported LOST at once, not when the next renewal is due. */
static void test_unreplicated(void)
{
    struct told told = TOLD_INIT;
    char name[48];
    mortise_client *client = fleet_open(&fleet, NULL, timeouts);
    name_on(&fleet, 1, "unseen", name);
    give(take(client, name));
    CHECK(wait_replicated(&fleet, 1, 1));
    fleet_strand(&fleet, REPLICA(1), true);
    mortise_lease *lease = hold(client, name, &told);
    CHECK(holds(&fleet.node[1], name) == 1);
    fleet_do(&fleet, "kill", 1);
    fleet_promote(&fleet, REPLICA(1));
    fleet_strand(&fleet, REPLICA(1), false);
    CHECK(test_count_wait(&told.lost, 1));
    mortise_lease *next = take(client, name);
    SAFE(mortise_token(next) > mortise_token(lease));
    EXPECT(LOST, mortise_release(lease, &detail));
    CHECK(holds(&fleet.node[REPLICA(1)], name) == 1);
    give(next);
    fleet_do(&fleet, "start", 1);
    fleet_mend(&fleet);
    close_client(client);
}

/* It is stopped with a request in its buffers, and goes on when another node is the master. */
static void test_stopped(void)
{
    struct told told = TOLD_INIT;
    struct pending pending = PENDING_INIT;
    char name[48], asked[48];
    mortise_client *client = fleet_open(&fleet, QUICK, timeouts),
                   *late = fleet_open(&fleet, NULL, timeouts);
    name_on(&fleet, 1, "stopped", name);
    name_on(&fleet, 1, "asked", asked);
    mortise_lease *lease = hold(client, name, &told);
    CHECK(wait_replicated(&fleet, 1, 1));
    fleet_do(&fleet, "freeze", 1);
    pending_start(&pending, client, asked, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(test_count_wait(&told.suspect, 1));
    uint64_t before = stats_of(client).renewals;
    fleet_promote(&fleet, REPLICA(1));
    EXPECT(OK, pending_join(&pending));
    CHECK(holds(&fleet.node[REPLICA(1)], asked) == 1);
    check_kept(client, lease, name, &told, before + 2); /* a request may have been under way */
    fleet_do(&fleet, "thaw", 1);
    EXPECT(BUSY, try_once(late, asked));
    EXPECT(BUSY, try_once(late, name));
    fleet_mend(&fleet);
    CHECK(holds(&fleet.node[1], asked) == 1);
    give(lease);
    EXPECT(OK, try_once(late, name));
    give(pending.lease);
    EXPECT(OK, try_once(late, asked));
    close_client(late);
    close_client(client);
}

/* Only this client is cut off from it. */
static void test_cut_off(void)
{
    struct told told = TOLD_INIT;
    char name[48];
    mortise_client *client = fleet_open_by(&fleet, QUICK, timeouts);
    name_on(&fleet, 1, "cut-off", name);
    mortise_lease *lease = hold(client, name, &told);
    CHECK(wait_replicated(&fleet, 1, 1));
    fleet_say(&fleet, 1u << 1, "hold");
    CHECK(test_count_wait(&told.suspect, 1));
    uint64_t before = stats_of(client).renewals;
    fleet_promote(&fleet, REPLICA(1));
    check_kept(client, lease, name, &told, before + 2);
    give(lease);
    CHECK(holds(&fleet.node[REPLICA(1)], name) == 0);
    fleet_say(&fleet, 1u << 1, "pass");
    fleet_mend(&fleet);
    close_client(client);
}

/* ---- min_replicas ------------------------------------------------------------------------------------------------- */

/* The master is killed as soon as the lock is granted: the replica has it. */
static void test_replicated(void)
{
    struct told told = TOLD_INIT;
    char name[48];
    mortise_client *client = fleet_open(&fleet, NULL, one_replica),
                   *other = fleet_open(&fleet, NULL, timeouts);
    name_on(&fleet, 1, "replicated", name);
    mortise_lease *lease = hold(client, name, &told);
    fleet_do(&fleet, "kill", 1);
    fleet_promote(&fleet, REPLICA(1));
    CHECK(holds(&fleet.node[REPLICA(1)], name) == 1);
    EXPECT(BUSY, try_once(other, name));
    fleet_do(&fleet, "start", 1);
    fleet_mend(&fleet);
    CHECK(mortise_state(lease) != MORTISE_STATE_LOST);
    give(lease);
    EXPECT(OK, try_once(client, name));
    close_client(other);
    close_client(client);
}

/* The replica of another master does not count. */
static void test_not_acknowledged(void)
{
    char name[48];
    mortise_lease *lease = NULL;
    mortise_client *client = fleet_open(&fleet, NULL, one_replica);
    name_on(&fleet, 1, "alone", name);
    EXPECT(OK, try_once(client, name));
    fleet_do(&fleet, "freeze", REPLICA(1));
    CHECK(not_reached(mortise_acquire(
        client, name, MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = LONG_MS), &lease, &detail)));
    SAYS("0 of 1 replicas");
    CHECK(wait_holds(&fleet.node[1], name, 0));
    EXPECT(OK, try_once(client, name_on(&fleet, 0, "not-alone", name)));
    fleet_do(&fleet, "thaw", REPLICA(1));
    CHECK(wait_replicated(&fleet, 1, 1));
    EXPECT(OK, try_once(client, name_on(&fleet, 1, "alone", name)));
    close_client(client);
}

/* The lock's own slot is on its way: it is renewed and confirmed, where it still is, and where it has come. */
static void test_confirmed_moving(void)
{
    struct told told = TOLD_INIT;
    struct move move;
    char name[48];
    mortise_client *client = fleet_open(&fleet, QUICK, one_replica);
    name_on(&fleet, 1, "confirmed", name);
    mortise_lease *lease = hold(client, name, &told);
    move_begin(&move, &fleet, slot_of(&fleet, name), 2);
    CHECK(wait_renewals(client, stats_of(client).renewals + 3));
    move_keys(&move);
    CHECK(wait_renewals(client, stats_of(client).renewals + 3));
    CHECK(mortise_state(lease) == MORTISE_STATE_HELD);
    move_end(&move);
    CHECK(wait_renewals(client, stats_of(client).renewals + 3));
    CHECK(test_count_get(&told.suspect) == 0);
    give(lease);
    move_slot(&fleet, move.slot, 1);
    close_client(client);
}

/* A name whose slot is said by a tag, and that is on the node. */
static const char *tagged_on(int node, char name[48])
{
    int i = 0;
    do
        snprintf(name, 48, "job{%d}", i++);
    while (slot_owner(&fleet, 0, slot_of(&fleet, name)) != node);
    return name;
}

/* Likewise a lock whose name has a tag, and what is confirmed together with it. */
static void test_tagged_moving(void)
{
    struct told told = TOLD_INIT;
    struct move move;
    char name[48], plain[48];
    mortise_client *client = fleet_open(&fleet, QUICK, one_replica);
    mortise_lease *lease = hold(client, tagged_on(1, name), &told);
    move_begin(&move, &fleet, slot_of(&fleet, name), 2);
    CHECK(wait_renewals(client, stats_of(client).renewals + 3));
    mortise_lease *beside = hold(client, name_on(&fleet, 1, "beside", plain), &told);
    CHECK(wait_renewals(client, stats_of(client).renewals + 6));
    CHECK(mortise_state(lease) == MORTISE_STATE_HELD);
    CHECK(mortise_state(beside) == MORTISE_STATE_HELD);
    CHECK(test_count_get(&told.suspect) == 0);
    move_end(&move);
    give(lease);
    give(beside);
    move_slot(&fleet, move.slot, 1);
    close_client(client);
}

/* The first slot of a new master is on its way there: nothing else can be written there. */
static void test_new_master(void)
{
    struct told told = TOLD_INIT;
    struct move move;
    char name[48];
    name_on(&fleet, 1, "new-master", name);
    range_give(&fleet, 2, 1);
    mortise_client *client = fleet_open(&fleet, QUICK, one_replica);
    mortise_lease *lease = hold(client, name, &told);
    move_begin(&move, &fleet, slot_of(&fleet, name), 2);
    move_keys(&move);
    CHECK(wait_renewals(client, stats_of(client).renewals + 3));
    CHECK(mortise_state(lease) == MORTISE_STATE_HELD);
    CHECK(test_count_get(&told.suspect) == 0);
    move_end(&move);
    give(lease);
    move_slot(&fleet, move.slot, 1);
    close_client(client);
    range_give(&fleet, 2, 2);
    fleet_mend(&fleet);
}

static bool set_memory(const char *bytes)
{
    return ask_is(&fleet.node[1], "OK", "CONFIG SET maxmemory %s", bytes);
}

/* The master refuses to make a key, for whatever lock. What is held is renewed and confirmed nevertheless, exclusive or shared, also while
 * its slot is on its way; nothing is granted. */
static void test_full_memory(void)
{
    struct told told = TOLD_INIT;
    struct move move;
    char name[48], other[48];
    mortise_client *client = fleet_open(&fleet, QUICK, one_replica);
    mortise_lease *lease = hold(client, name_on(&fleet, 1, "full", name), &told);
    CHECK(set_memory("1"));
    EXPECT(BACKEND, try_once(client, name_on(&fleet, 1, "no-room", other)));
    int64_t writes =
        fleet_calls(&fleet, 1, "pexpireat"); /* a renewal of an exclusive lease makes none */
    CHECK(wait_renewals(client, stats_of(client).renewals + 3));
    CHECK(fleet_calls(&fleet, 1, "pexpireat") > writes);
    EXPECT(OK, mortise_downgrade(lease, &detail));
    CHECK(wait_renewals(client, stats_of(client).renewals + 3));
    move_begin(&move, &fleet, slot_of(&fleet, name), 2);
    CHECK(wait_renewals(client, stats_of(client).renewals + 3));
    CHECK(mortise_state(lease) == MORTISE_STATE_HELD);
    CHECK(test_count_get(&told.suspect) == 0);
    CHECK(set_memory("0"));
    move_end(&move);
    give(lease);
    move_slot(&fleet, move.slot, 1);
    close_client(client);
}

/* The replica has not acknowledged: that the memory is full must not make an older write count. */
static void test_full_not_acknowledged(void)
{
    struct told told = TOLD_INIT;
    char name[48];
    mortise_client *client = fleet_open(&fleet, QUICK, one_replica);
    mortise_lease *lease = hold(client, name_on(&fleet, 1, "full-alone", name), &told);
    CHECK(set_memory("1"));
    CHECK(wait_renewals(client, stats_of(client).renewals + 3));
    fleet_do(&fleet, "freeze", REPLICA(1));
    CHECK(test_count_wait(&told.suspect, 1));
    CHECK(holds(&fleet.node[1], name) == 1);
    fleet_do(&fleet, "thaw", REPLICA(1));
    CHECK(wait_state(lease, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    CHECK(set_memory("0"));
    CHECK(wait_replicated(&fleet, 1, 1));
    CHECK(test_count_get(&told.lost) == 0);
    give(lease);
    close_client(client);
}

/* What min_replicas cannot prevent: the lock has just moved, and its new master dies before its replica has the copy. The
 * holder's next renewal tells, and tokens say who was first. */
static void test_just_moved(void)
{
    struct told told = TOLD_INIT;
    char name[48];
    mortise_client *client = fleet_open(&fleet, "renew_every = 5s\n", one_replica),
                   *other = fleet_open(&fleet, NULL, one_replica);
    name_on(&fleet, 1, "just-moved", name);
    mortise_lease *lease = hold(client, name, &told);
    fleet_strand(&fleet, REPLICA(2), true);
    move_slot(&fleet, slot_of(&fleet, name), 2);
    fleet_do(&fleet, "kill", 2);
    fleet_promote(&fleet, REPLICA(2));
    fleet_strand(&fleet, REPLICA(2), false);
    fleet_do(&fleet, "start", 2);
    fleet_mend(&fleet);
    mortise_lease *next = take(other, name);
    SAFE(mortise_token(next) > mortise_token(lease));
    CHECK(test_count_wait(&told.lost, 1));
    EXPECT(LOST, mortise_release(lease, &detail));
    give(next);
    move_slot(&fleet, slot_of(&fleet, name), 1);
    close_client(other);
    close_client(client);
}

/* Likewise: only the former master knows that the slot is on its way, and it dies when it has handed over the lock. Its replica owns
 * the slot, has no copy, and sends nobody on. */
static void test_source_killed(void)
{
    struct told told = TOLD_INIT;
    struct move move;
    char name[48];
    mortise_client *client = fleet_open(&fleet, QUICK, one_replica),
                   *other = fleet_open(&fleet, NULL, timeouts);
    name_on(&fleet, 1, "source-killed", name);
    mortise_lease *lease = hold(client, name, &told);
    move_begin(&move, &fleet, slot_of(&fleet, name), 2);
    move_keys(&move);
    CHECK(wait_renewals(client, stats_of(client).renewals + 3));
    CHECK(wait_replicated(&fleet, 1, 1));
    CHECK(test_count_get(&told.lost) == 0);
    fleet_do(&fleet, "kill", 1);
    fleet_promote(&fleet, REPLICA(1));
    mortise_lease *next = take(other, name);
    SAFE(mortise_token(next) > mortise_token(lease));
    CHECK(test_count_wait(&told.lost, 1));
    EXPECT(LOST, mortise_release(lease, &detail));
    give(next);
    move_abandon(&move);
    fleet_do(&fleet, "start", 1);
    fleet_mend(&fleet);
    CHECK(wait_owner(&fleet, move.slot, 1));
    close_client(other);
    close_client(client);
}

static bool is_refused_more(void *before)
{
    return refusals(&fleet, 1, "TRYAGAIN") > *(int64_t *)before;
}

/* The release of an acquire that nobody acknowledged is on its way from node to node when the caller gives up, and closes. */
static void test_undone_elsewhere(void)
{
    struct pending pending = PENDING_INIT;
    struct move move;
    char name[48];
    mortise_client *client = fleet_open_by(&fleet, "close_timeout = 300ms\n", one_replica);
    EXPECT(OK, try_once(client, name_on(&fleet, 2, "first", name)));
    EXPECT(OK, try_once(client, name_on(&fleet, 1, "undone", name)));
    fleet_do(&fleet, "freeze", REPLICA(1));
    pending_start(&pending, client, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(wait_holds(&fleet.node[1], name, 1));
    move_begin(&move, &fleet, slot_of(&fleet, name), 2);
    int64_t before = refusals(&fleet, 1, "TRYAGAIN");
    CHECK(test_poll(is_refused_more, &before, TEST_PATIENCE_MS));
    EXPECT(OK, mortise_cancel(client, pending.request));
    fleet_say(&fleet, 1u << 2, "hold-up");
    move_end(&move);
    pending_join(&pending);
    mortise_close(client, NULL);
    fleet_say(&fleet, 1u << 2, "pass");
    fleet_do(&fleet, "thaw", REPLICA(1));
    move_slot(&fleet, move.slot, 1);
}

static const CU_TestInfo tests[] = {
    {"a master is killed", test_killed},
    {"killed with what its replica never had", test_unreplicated},
    {"a master is stopped, and goes on", test_stopped},
    {"cut off from a master", test_cut_off},
    {"min_replicas: killed at once", test_replicated},
    {"min_replicas: nobody acknowledges", test_not_acknowledged},
    {"min_replicas: the slot is on its way", test_confirmed_moving},
    {"min_replicas: the slot of a tag is on its way", test_tagged_moving},
    {"min_replicas: the first slot of a new master", test_new_master},
    {"min_replicas: the memory is full", test_full_memory},
    {"min_replicas: the memory is full, nobody acknowledges", test_full_not_acknowledged},
    {"min_replicas: the slot has just moved", test_just_moved},
    {"min_replicas: a slot's former master is killed", test_source_killed},
    {"min_replicas: undone elsewhere", test_undone_elsewhere},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = fleet_start(&fleet, true, NULL);
    if (code == 0)
        code = run_tests("cluster: failover", tests, argc, argv);
    return !fleet_end(&fleet) && code == 0 ? 1 : code;
}
