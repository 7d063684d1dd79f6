/* test_elected.c - the cluster itself decides that a master is gone, and votes for its replica: the master was killed, or is cut off
 * from the other nodes while clients reach all of them. */
#include "fleet.h"

#include <stdio.h>
#include <string.h>

static struct fleet fleet;

#define QUICK "renew_every = 200ms\n"
static const char timeouts[] = "connect_timeout = 1s\ncommand_timeout = 1s\n";

static mortise_lease *hold(mortise_client *client, const char *name, struct told *told)
{
    mortise_lease *lease = NULL;
    EXPECT(OK, mortise_acquire(client, name,
                               MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = LONG_MS,
                                               .on_state = note_state, .user_data = told),
                               &lease, &detail));
    CHECK(wait_replicated(&fleet, 1, 1));
    return lease;
}

/* It is held at the new master, by this client alone. */
static void check_kept(mortise_client *client, mortise_lease *lease, const char *name,
                       struct told *told)
{
    mortise_client *late = fleet_open(&fleet, NULL, timeouts);
    CHECK(wait_renewals(client, stats_of(client).renewals + 3));
    CHECK(wait_state(lease, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    CHECK(holds(&fleet.node[REPLICA(1)], name) == 1);
    CHECK(is_covered(&fleet.node[REPLICA(1)], name, lease));
    CHECK(test_count_get(&told->lost) == 0);
    EXPECT(BUSY, try_once(late, name));
    close_client(late);
}

static void test_killed(void)
{
    struct told told = TOLD_INIT;
    struct pending pending = PENDING_INIT;
    char name[48];
    mortise_client *client = fleet_open(&fleet, QUICK, timeouts),
                   *other = fleet_open(&fleet, NULL, timeouts);
    name_on(&fleet, 1, "elected", name);
    mortise_lease *lease = hold(client, name, &told);
    uint64_t token = mortise_token(lease);
    pending_start(&pending, other, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    fleet_do(&fleet, "kill", 1);
    CHECK(wait_elected(&fleet, 1));
    check_kept(client, lease, name, &told);
    give(lease);
    EXPECT(OK, pending_join(&pending));
    SAFE(mortise_token(pending.lease) > token);
    give(pending.lease);
    fleet_do(&fleet, "start", 1);
    fleet_mend(&fleet);
    close_client(other);
    close_client(client);
}

struct listed {
    int count;
    char name[64];
};

static bool note(const mortise_info *info, void *argument)
{
    struct listed *listed = argument;
    listed->count++;
    snprintf(listed->name, sizeof listed->name, "%s", info->name);
    return true;
}

/* The former master answers what it knows for a while, then CLUSTERDOWN; its map stays as it was. A client that has seen the new one
 * does not go back. */
static void test_minority(void)
{
    struct told told = TOLD_INIT;
    char name[48], new[48];
    mortise_client *client = fleet_open(&fleet, QUICK, timeouts);
    mortise_lease *lease = hold(client, name_on(&fleet, 1, "minority", name), &told), *next = NULL;
    fleet_isolate(&fleet, 1, true);
    CHECK(wait_elected(&fleet, 1));
    CHECK(slot_owner(&fleet, 1, slot_of(&fleet, name)) == 1);
    check_kept(client, lease, name, &told);
    snprintf(new, sizeof new, "%s", name_on(&fleet, REPLICA(1), "added", name));
    next = take(client, new);
    for (int i = 0; i < 2 * FLEET; i++) { /* each look begins at another node */
        struct listed listed = {.count = 0};
        EXPECT(OK, mortise_list(client, "added", note, &listed, &detail));
        CHECK(listed.count == 1);
    }
    CHECK(mortise_state(lease) == MORTISE_STATE_HELD && test_count_get(&told.lost) == 0);
    give(next);
    give(lease);
    fleet_isolate(&fleet, 1, false);
    CHECK(wait_owner(&fleet, slot_of(&fleet, name), REPLICA(1)));
    CHECK(holds(&fleet.node[REPLICA(1)], new) == 0);
    fleet_mend(&fleet);
    close_client(client);
}

/* What it cannot confirm it does not grant, though it believes that it is the master. */
static void test_minority_confirms(void)
{
    char name[48];
    mortise_lease *lease = NULL;
    mortise_client *client = fleet_open(
        &fleet, NULL,
        "connect_timeout = 1s\ncommand_timeout = 1s\nmin_replicas = 1\nreplica_timeout = 300ms\n");
    EXPECT(OK, try_once(client, name_on(&fleet, 1, "confirmed", name)));
    fleet_isolate(&fleet, 1, true);
    CHECK(wait_elected(&fleet, 1));
    mortise_status status = mortise_acquire(
        client, name, MORTISE_OPTIONS(.wait_ms = 5000, .ttl_ms = LONG_MS), &lease, &detail);
    if (status == MORTISE_OK) {
        SAFE(holds(&fleet.node[REPLICA(1)], name) == 1);
        give(lease);
    } else
        CHECK(not_reached(status));
    fleet_isolate(&fleet, 1, false);
    CHECK(wait_owner(&fleet, slot_of(&fleet, name), REPLICA(1)));
    CHECK(wait_holds(&fleet.node[REPLICA(1)], name, 0));
    fleet_mend(&fleet);
    close_client(client);
}

static const CU_TestInfo tests[] = {
    {"a master is killed", test_killed},
    {"a master is cut off from the others", test_minority},
    {"min_replicas: cut off from the others", test_minority_confirms},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    static const char *const keys[] = {"failover=auto", "node_timeout=2000", "bus=cut", NULL};
    int code = fleet_start(&fleet, false, keys);
    if (code == 0)
        code = run_tests("cluster: elected", tests, argc, argv);
    return !fleet_end(&fleet) && code == 0 ? 1 : code;
}
