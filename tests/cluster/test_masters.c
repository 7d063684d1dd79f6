/* test_masters.c - several masters under one client: it finds all of them by any, lists all of them, and renews at each what is there,
 * in few requests. One that does not answer takes only its own names with it. */
#include "fleet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct fleet fleet;

#define QUICK "renew_every = 100ms\n"
#define TIMEOUTS "connect_timeout = 1s\ncommand_timeout = 1s\n"
#define MANY 60

static void name_number(char name[24], int i)
{
    snprintf(name, 24, "listed-%03d", i);
}

/* ---- finding them ------------------------------------------------------------------------------------------------ */

static void check_all_work(mortise_client *client)
{
    char name[48];
    for (int i = 0; i < MASTERS; i++) {
        mortise_lease *lease = take(client, name_on(&fleet, i, "found", name));
        CHECK(holds(&fleet.node[i], name) == 1);
        give(lease);
    }
}

/* One address is enough, a replica's too; a server that is not there does no harm. */
static void test_found(void)
{
    char list[80], text[256], url[100];
    mortise_client *client = NULL;
    for (int i = 2; i < 4; i++) {
        snprintf(list, sizeof list, "127.0.0.1:1,127.0.0.1:%d", fleet.node[i].port);
        if (!EXPECT(OK, fleet_open_list(&fleet, list, NULL, NULL, &client)))
            continue;
        check_all_work(client);
        close_client(client);
    }
    snprintf(url, sizeof url, "redis+cluster://127.0.0.1:%d,127.0.0.1:1", fleet.node[1].port);
    if (!EXPECT(OK, mortise_open(url, &client, &detail)))
        return;
    EXPECT(OK, mortise_ping(client, text, sizeof text, &detail));
    check_all_work(client);
    close_client(client);
}

/* ---- listing ------------------------------------------------------------------------------------------------------ */

struct listed {
    int count;
    bool in_order;
    char last[64];
};

static bool note(const mortise_info *info, void *argument)
{
    struct listed *listed = argument;
    listed->in_order &= strcmp(listed->last, info->name) < 0;
    snprintf(listed->last, sizeof listed->last, "%s", info->name);
    listed->count++;
    return true;
}

static mortise_status list_all(mortise_client *client, struct listed *listed)
{
    *listed = (struct listed){.in_order = true};
    return mortise_list(client, "listed-", note, listed, &detail);
}

/* Each name once and in order, whichever master has it, also while its slot is on its way. A list without one master would be wrong. */
static void test_list(void)
{
    static mortise_lease *leases[MANY];
    struct listed listed;
    struct move move;
    char name[24];
    mortise_client *client = fleet_open(&fleet, NULL, TIMEOUTS);
    mortise_client *hurried = fleet_open(&fleet, "unreachable_timeout = 3s\n", TIMEOUTS);
    unsigned nodes = 0;
    for (int i = 0; i < MANY; i++) {
        name_number(name, i);
        leases[i] = take(client, name);
        nodes |= 1u << slot_owner(&fleet, 0, slot_of(&fleet, name));
    }
    CHECK(nodes == (1u << MASTERS) - 1);
    EXPECT(OK, list_all(client, &listed));
    CHECK(listed.count == MANY && listed.in_order);
    unsigned slot = slot_of(&fleet, name);
    int from = slot_owner(&fleet, 0, slot);
    move_begin(&move, &fleet, slot, (from + 1) % MASTERS);
    move_keys(&move);
    EXPECT(OK, list_all(client, &listed));
    CHECK(listed.count == MANY && listed.in_order);
    move_end(&move);
    EXPECT(OK, list_all(hurried, &listed));
    CHECK(listed.count == MANY && listed.in_order);
    fleet_do(&fleet, "freeze", 2);
    EXPECT(UNREACHABLE, list_all(hurried, &listed));
    fleet_do(&fleet, "thaw", 2);
    EXPECT(OK, list_all(client, &listed));
    CHECK(listed.count == MANY && listed.in_order);
    CHECK(wait_replicated(&fleet, 2, 1));
    fleet_promote(&fleet, REPLICA(2)); /* the former master still answers, as a replica */
    EXPECT(OK, list_all(hurried, &listed));
    CHECK(listed.count == MANY && listed.in_order);
    fleet_mend(&fleet);
    for (int i = 0; i < MANY; i++)
        give(leases[i]);
    move_slot(&fleet, slot, from);
    close_client(hurried);
    close_client(client);
}

static bool pings(void *client)
{
    mortise_status status = mortise_ping(client, NULL, 0, &detail);
    CHECK(status == MORTISE_OK || (status == MORTISE_UNREACHABLE && detail.retryable));
    return status == MORTISE_OK;
}

/* A client that holds nothing and only pings: the former master answers, as a replica. */
static void test_ping(void)
{
    mortise_client *client = fleet_open(&fleet, NULL, NULL);
    EXPECT(OK, mortise_ping(client, NULL, 0, &detail));
    fleet_promote(&fleet, REPLICA(2));
    CHECK(test_poll(pings, client, TEST_PATIENCE_MS));
    fleet_mend(&fleet);
    close_client(client);
}

/* ---- renewals ------------------------------------------------------------------------------------------------------ */

static int64_t reads_on(int node)
{
    return info_number(&fleet.node[node], "stats", "total_reads_processed");
}

/* What is due together goes to each master in one piece: it reads far less often than it renews. */
static void test_renewals(void)
{
    static mortise_lease *leases[MANY];
    int64_t reads[MASTERS], all = 0;
    char name[24];
    mortise_client *client = fleet_open(&fleet, QUICK, NULL);
    for (int i = 0; i < MANY; i++) {
        name_number(name, i);
        leases[i] = take(client, name);
    }
    CHECK(wait_renewals(client, stats_of(client).renewals + 2 * MANY));
    uint64_t before = stats_of(client).renewals;
    for (int i = 0; i < MASTERS; i++)
        reads[i] = reads_on(i);
    CHECK(wait_renewals(client, before + 20 * MANY));
    for (int i = 0; i < MASTERS; i++) {
        reads[i] = reads_on(i) - reads[i];
        all += reads[i];
        CHECK(reads[i] > 10);
    }
    uint64_t renewals = stats_of(client).renewals - before;
    if (!CHECK((uint64_t)all < renewals / 4))
        fprintf(stderr, "%lld reads for %llu renewals\n", (long long)all,
                (unsigned long long)renewals);
    for (int i = 0; i < MANY; i++) {
        CHECK(mortise_state(leases[i]) == MORTISE_STATE_HELD);
        give(leases[i]);
    }
    close_client(client);
}

/* ---- one of them is away --------------------------------------------------------------------------------------------- */

/* Names of the others are acquired, renewed and released. */
static void test_one_away(void)
{
    struct told told = TOLD_INIT, away = TOLD_INIT;
    char here[48], there[48], new[48];
    mortise_lease *kept = NULL, *suspect = NULL;
    mortise_client *client = fleet_open(&fleet, QUICK, TIMEOUTS);
    mortise_client *hurried = fleet_open(&fleet, "unreachable_timeout = 3s\n", TIMEOUTS);
    name_on(&fleet, 0, "here", here);
    name_on(&fleet, 1, "there", there);
    name_on(&fleet, 2, "new", new);
    EXPECT(OK, mortise_acquire(client, here,
                               MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = LONG_MS,
                                               .on_state = note_state, .user_data = &told),
                               &kept, &detail));
    EXPECT(OK, mortise_acquire(client, there,
                               MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = LONG_MS,
                                               .on_state = note_state, .user_data = &away),
                               &suspect, &detail));
    EXPECT(BUSY, try_once(hurried, there));
    fleet_do(&fleet, "freeze", 1);
    CHECK(test_count_wait(&away.suspect, 1));
    CHECK(wait_renewals(client, stats_of(client).renewals + 3));
    EXPECT(OK, try_once(client, new));
    CHECK(not_reached(try_once(hurried, there)));
    EXPECT(OK, try_once(hurried, new));
    CHECK(test_count_get(&told.suspect) == 0);
    fleet_do(&fleet, "thaw", 1);
    CHECK(wait_state(suspect, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    CHECK(test_count_get(&away.lost) == 0);
    give(suspect);
    give(kept);
    close_client(hurried);
    close_client(client);
}

/* ---- one had no slots ------------------------------------------------------------------------------------------------- */

/* A waiter is given the lock at master 2, to which its slot is on its way: that has none yet. */
static void wait_once(mortise_client *client, mortise_client *other, const char *name)
{
    struct pending pending = PENDING_INIT;
    mortise_lease *lease = take(client, name);
    pending_start(&pending, other, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(wait_inboxes(&fleet.node[2], 1));
    give(lease);
    EXPECT(OK, pending_join(&pending));
    give(pending.lease);
}

static bool listens_anew(void *former)
{
    int64_t id = fleet_listener(&fleet, 2);
    return id > 0 && id != *(int64_t *)former;
}

/* Ends the connections of this type to master 2; the waiter's inbox there is listened to again. */
static void cut_waiter(const char *type)
{
    int64_t former = fleet_listener(&fleet, 2);
    CHECK(former > 0);
    CHECK(ask_number(&fleet.node[2], "CLIENT KILL TYPE %s", type) > 0);
    CHECK(test_poll(listens_anew, &former, TEST_PATIENCE_MS));
    CHECK(wait_inboxes(&fleet.node[2], 1));
}

/* It has its first slot. Connections that were made when it had none are as good as others: if one breaks it is made anew, so that a
 * waiter is told of its turn. */
static void test_first_slot(void)
{
    struct pending pending = PENDING_INIT;
    struct move move;
    char name[48];
    name_on(&fleet, 1, "first-slot", name);
    range_give(&fleet, 2, 1);
    mortise_client *client = fleet_open(&fleet, NULL, NULL),
                   *other = fleet_open(&fleet, NULL, NULL);
    move_begin(&move, &fleet, slot_of(&fleet, name), 2);
    wait_once(client, other, name);
    move_end(&move);
    mortise_lease *lease = take(client, name);
    pending_start(&pending, other, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(wait_queue(&fleet.node[2], name, 1));
    cut_waiter("pubsub");
    cut_waiter("normal");
    give(lease);
    EXPECT(OK, pending_join(&pending));
    give(pending.lease);
    move_slot(&fleet, move.slot, 1);
    close_client(other);
    close_client(client);
    range_give(&fleet, 2, 2);
    fleet_mend(&fleet);
}

static const CU_TestInfo tests[] = {
    {"found by any of them", test_found},
    {"a list of all", test_list},
    {"a ping of all", test_ping},
    {"renewals at each", test_renewals},
    {"one is away", test_one_away},
    {"one has its first slot", test_first_slot},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = fleet_start(&fleet, false, NULL);
    if (code == 0)
        code = run_tests("cluster: masters", tests, argc, argv);
    return !fleet_end(&fleet) && code == 0 ? 1 : code;
}
