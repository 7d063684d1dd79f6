/* test_server.c - the server is killed, stopped and started again at every point of acquire, renew and release, with
 * its data and without; it fails over to a replica; it forgets scripts; it has no room for clients or keys. */
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct server volatile_one, durable, pair;

#define HELD_MS 20000 /* pauses between repeated renewals grow with the ttl */

static const char timeouts[] = "connect_timeout = 300ms\ncommand_timeout = 300ms\n";

/* A client of each variant, and its three locks: one is held throughout, one is acquired, one is released. */
struct party {
    const struct variant *variant;
    struct server *server;
    struct test_proxy proxy;
    mortise_client *client;
    struct told told;
    struct pending pending;
    mortise_lease *held, *left;
    uint64_t left_token;
    char holds[64], asks[64], leaves[64];
};

static struct party parties[VARIANTS];

static void name_party(struct party *party, const char *what, const char *step)
{
    snprintf(doing, sizeof doing, "%s, %s, %s", party->variant->name, what, step);
}

/* The same step for all of them, at once. */
static void all(void (*step)(void *party))
{
    in_parallel(step, parties, sizeof *parties, VARIANTS);
}

static void arrive(void *argument)
{
    struct party *party = argument;
    char settings[200], address[120];
    name_party(party, "begin", "");
    snprintf(party->holds, sizeof party->holds, "held %s", party->variant->name);
    snprintf(party->asks, sizeof party->asks, "asked %s", party->variant->name);
    snprintf(party->leaves, sizeof party->leaves, "left %s", party->variant->name);
    snprintf(settings, sizeof settings, "%s%s", timeouts, party->variant->settings);
    party->told = TOLD_INIT;
    party->pending = PENDING_INIT;
    snprintf(address, sizeof address, "%s/link.sock", party->server->folder);
    if (party->server != &pair && !start_proxy(party->server, &party->proxy))
        return;
    if (party->server != &pair)
        snprintf(address, sizeof address, "127.0.0.1:%d", party->proxy.port);
    party->client =
        open_at(party->server, address, "renew_every = 100ms\nunreachable_timeout = 60s", settings);
    EXPECT(OK, mortise_acquire(party->client, party->holds,
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = HELD_MS,
                                               .owner = party->variant->owner,
                                               .on_state = note_state, .user_data = &party->told),
                               &party->held, &detail));
    party->left = take_as(party->client, party->leaves, party->variant->owner, LONG_MS);
    party->left_token = mortise_token(party->left);
}

static void gather(struct server *server)
{
    for (size_t i = 0; i < VARIANTS; i++)
        parties[i] = (struct party){.variant = &variants[i], .server = server};
    all(arrive);
}

/* An acquire and a release are sent. */
static void act(void *argument)
{
    struct party *party = argument;
    name_party(party, "act", "");
    pending_start(
        &party->pending, party->client, party->asks,
        MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS, .owner = party->variant->owner));
    EXPECT(OK, mortise_release_nowait(party->left, &detail));
}

/* The outcome: the acquire is granted once, the release is done, tokens grow. */
static void settle(void *argument)
{
    struct party *party = argument;
    struct server *server = party->server;
    name_party(party, "settle", "");
    EXPECT(OK, pending_join(&party->pending));
    CHECK(wait_holds(server, party->leaves, 0));
    mortise_lease *lease = take_as(party->client, party->leaves, party->variant->owner, LONG_MS);
    CHECK(!party->variant->fencing || mortise_token(lease) > party->left_token);
    CHECK(holds(server, party->leaves) == 1);
    give(lease);
}

/* It is held to the end, as if nothing had happened. */
static void check_kept(void *argument)
{
    struct party *party = argument;
    name_party(party, "kept", "");
    CHECK(wait_state(party->held, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    CHECK(wait_renewals(party->client, stats_of(party->client).renewals + 2));
    CHECK(holds(party->server, party->holds) == 1 && holds(party->server, party->asks) == 1);
    CHECK(is_covered(party->server, party->holds, party->held));
    CHECK(is_covered(party->server, party->asks, party->pending.lease));
    CHECK(test_count_get(&party->told.lost) == 0);
    give(party->held);
    give(party->pending.lease);
}

/* The server has forgotten its grants; the client reports that. */
static void check_forgotten(void *argument)
{
    struct party *party = argument;
    name_party(party, "forgotten", "");
    CHECK(test_count_wait(&party->told.lost, 1));
    EXPECT(LOST, mortise_release(party->held, &detail));
    mortise_release(party->pending.lease, &detail); /* granted before, or afterwards */
    CHECK(wait_holds(party->server, party->asks, 0));
}

static void leave(void *argument)
{
    struct party *party = argument;
    name_party(party, "end", "");
    close_client(party->client);
    test_proxy_end(&party->proxy);
}

/* ---- killed ------------------------------------------------------------------------------------------------------- */

static bool has_sent(void *argument)
{
    struct party *party = argument;
    return test_proxy_count(&party->proxy, "up_taken") > test_proxy_count(&party->proxy, "up");
}

/* Transactions get no further than their first reply. */
static bool was_executed(void *argument)
{
    struct party *party = argument;
    return !has_scripts(party->variant) ||
           (holds(party->server, party->asks) == 1 && holds(party->server, party->leaves) == 0);
}

static void say_all(const char *command)
{
    for (size_t i = 0; i < VARIANTS; i++)
        CHECK(test_proxy_say(&parties[i].proxy, "%s", command));
}

static void wait_all(bool (*ready)(void *party))
{
    for (size_t i = 0; i < VARIANTS && !failures; i++) {
        name_party(&parties[i], "wait", "");
        CHECK(test_poll(ready, &parties[i], TEST_PATIENCE_MS));
    }
}

/* fault: what the proxies do meanwhile. */
static void kill_at(struct server *server, const char *fault, bool (*ready)(void *party))
{
    gather(server);
    say_all(fault);
    all(act);
    wait_all(ready);
    server_do(server, "kill", NULL);
    say_all("pass");
    server_do(server, "start", NULL);
    all(settle);
    all(server == &durable ? check_kept : check_forgotten);
    all(leave);
    CHECK(server_is_clean(server));
}

static bool was_answered(void *argument)
{
    struct party *party = argument;
    return test_count_get(&party->pending.calls) == 1;
}

static void test_killed_before(void)
{
    kill_at(&volatile_one, "hold-up", has_sent);
}

static void test_killed_executed(void)
{
    kill_at(&volatile_one, "lose", was_executed);
}

static void test_killed_after(void)
{
    kill_at(&volatile_one, "pass", was_answered);
}

static void test_durable_killed_before(void)
{
    kill_at(&durable, "hold-up", has_sent);
}

static void test_durable_killed_executed(void)
{
    kill_at(&durable, "lose", was_executed);
}

static void test_durable_killed_after(void)
{
    kill_at(&durable, "pass", was_answered);
}

/* ---- stopped --------------------------------------------------------------------------------------------------------- */

static bool is_suspect(void *argument)
{
    struct party *party = argument;
    return test_count_get(&party->told.suspect) > 0;
}

/* Requests wait in its kernel, connections break and are made again there: it finds all of that when it continues. */
static void test_frozen(void)
{
    gather(&volatile_one);
    server_do(&volatile_one, "freeze", NULL);
    all(act);
    wait_all(is_suspect);
    server_do(&volatile_one, "thaw", NULL);
    all(settle);
    all(check_kept);
    all(leave);
    CHECK(server_is_clean(&volatile_one));
}

/* ---- failover ------------------------------------------------------------------------------------------------------------ */

static void point_to(const char *socket)
{
    char path[256], new_path[256];
    snprintf(path, sizeof path, "%s/link.sock", pair.folder);
    snprintf(new_path, sizeof new_path, "%s/link.new", pair.folder);
    CHECK(symlink(socket, new_path) == 0);
    CHECK(rename(new_path, path) == 0);
}

static bool is_replicated(void *argument)
{
    const struct party *party = argument;
    return holds(party->server, party->holds) == 1 && holds(party->server, party->leaves) == 1;
}

/* At first it may still notice the connection that broke. */
static bool hears_of_replica(void *argument)
{
    struct party *party = argument;
    mortise_lease *lease = NULL;
    name_party(party, "read-only", "");
    mortise_status status =
        mortise_acquire(party->client, "read-only", MORTISE_OPTIONS(.wait_ms = 0), &lease, &detail);
    return status == MORTISE_UNREACHABLE && detail.retryable &&
           strstr(detail.message, "a replica, not the primary");
}

/* The address leads to the replica, which is promoted later; renewals go on there. */
static void test_failover(void)
{
    point_to(pair.socket);
    gather(&pair);
    int port = pair.port;
    server_look_at(&pair, pair.port2);
    wait_all(is_replicated);
    point_to(pair.socket2);
    server_do(&pair, "kill", "only=1");
    wait_all(is_suspect);
    wait_all(hears_of_replica);
    all(act);
    CHECK(ask_is(&pair, "OK", "REPLICAOF NO ONE"));
    all(settle);
    all(check_kept);
    all(leave);
    CHECK(server_is_clean(&pair));
    pair.port2 = port;
}

/* ---- scripts are forgotten ------------------------------------------------------------------------------------------------- */

static void forget_scripts(void)
{
    CHECK(ask_is(&volatile_one, "OK", "SCRIPT FLUSH"));
}

static void hold_forgetful(void *argument)
{
    const struct variant *variant = argument;
    char name[64];
    struct pending pending = PENDING_INIT;
    snprintf(doing, sizeof doing, "%s", variant->name);
    snprintf(name, sizeof name, "forgetful %s", variant->name);
    mortise_client *client =
        open_at(&volatile_one, NULL, "renew_every = 20ms\nhandover_max = 0", variant->settings);
    mortise_client *other = open_at(&volatile_one, NULL, NULL, variant->settings);
    mortise_lease *lease = take_as(client, name, variant->owner, LONG_MS);
    for (int i = 0; i < 5 && !failures; i++) {
        pending = PENDING_INIT;
        pending_start(&pending, other, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
        forget_scripts();
        CHECK(wait_renewals(client, stats_of(client).renewals + 2));
        forget_scripts();
        give(lease);
        EXPECT(OK, pending_join(&pending));
        CHECK(holds(&volatile_one, name) == 1);
        forget_scripts();
        give(pending.lease);
        forget_scripts();
        lease = take_as(client, name, variant->owner, LONG_MS);
        CHECK(is_covered(&volatile_one, name, lease));
    }
    give(lease);
    CHECK(stats_of(client).renewal_failures == 0);
    close_client(client);
    close_client(other);
}

static void test_scripts_forgotten(void)
{
    in_parallel(hold_forgetful, (void *)(uintptr_t)variants, sizeof *variants, VARIANTS);
}

/* ---- no room -------------------------------------------------------------------------------------------------------------------- */

static void test_too_many_clients(void)
{
    struct pending pending = PENDING_INIT;
    CHECK(server_is_clean(&volatile_one)); /* no client leaves */
    mortise_client *first = open_at(&volatile_one, NULL, "renew_every = 20ms", NULL);
    mortise_client *second = open_at(&volatile_one, NULL, NULL, NULL);
    mortise_lease *lease = take(first, "room"), *none = NULL;
    CHECK(ask_is(&volatile_one, "OK", "CONFIG SET maxclients %d",
                 (int)info_number(&volatile_one, "clients", "connected_clients")));
    EXPECT(UNREACHABLE,
           mortise_acquire(second, "no room", MORTISE_OPTIONS(.wait_ms = 0), &none, &detail));
    SAYS("max number of clients");
    CHECK(detail.retryable);
    CHECK(wait_renewals(first, stats_of(first).renewals + 2));
    pending_start(&pending, second, "no room", MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(wait_renewals(first, stats_of(first).renewals + 2));
    CHECK(test_count_get(&pending.calls) == 0);
    CHECK(ask_is(&volatile_one, "OK", "CONFIG SET maxclients 10000"));
    EXPECT(OK, pending_join(&pending));
    give(pending.lease);
    give(lease);
    close_client(first);
    close_client(second);
}

/* An acquire is refused, with the reason; held locks can be renewed and released. */
static void hold_in_full_memory(void *argument)
{
    struct party *party = argument;
    name_party(party, "memory", "");
    if (party->client == NULL ||
        !has_scripts(party->variant)) /* in MULTI, every write is refused */
        return;
    mortise_lease *none = NULL;
    if (party->variant->fencing || strcmp(party->variant->name, "plain") == 0) {
        EXPECT(BACKEND,
               mortise_acquire(party->client, party->asks,
                               MORTISE_OPTIONS(.wait_ms = 0, .owner = party->variant->owner), &none,
                               &detail));
        SAYS("OOM");
        CHECK(detail.retryable);
    }
    CHECK(holds(party->server, party->asks) == 0);
    CHECK(wait_renewals(party->client, stats_of(party->client).renewals + 3));
    CHECK(mortise_state(party->held) == MORTISE_STATE_HELD);
    CHECK(is_covered(party->server, party->holds, party->held));
    give(party->left);
    CHECK(holds(party->server, party->leaves) == 0);
}

static void recover_memory(void *argument)
{
    struct party *party = argument;
    name_party(party, "memory is back", "");
    if (has_scripts(party->variant))
        EXPECT(OK, pending_join(&party->pending));
    if (party->pending.lease)
        give(party->pending.lease);
    if (!has_scripts(party->variant))
        give(party->left);
    CHECK(wait_state(party->held, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    give(party->held);
}

static void ask_for_memory(void *argument)
{
    struct party *party = argument;
    if (has_scripts(party->variant))
        pending_start(&party->pending, party->client, party->asks,
                      MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
}

static void test_full_memory(void)
{
    gather(&volatile_one);
    CHECK(ask_is(&volatile_one, "OK", "CONFIG SET maxmemory 1"));
    all(hold_in_full_memory);
    all(ask_for_memory);
    CHECK(ask_is(&volatile_one, "OK", "CONFIG SET maxmemory 0"));
    all(recover_memory);
    all(leave);
}

static bool is_away(void *client)
{
    return mortise_ping(client, NULL, 0, NULL) != MORTISE_OK;
}

static bool one_waits(void *client)
{
    return stats_of(client).waiting == 1;
}

/* The connection is broken: the server may come back empty and grant the name to another client first. So a release
 * does not hand the lock over to a waiting thread; it is sent to the server, or reports that it could not be. */
static void test_no_hand_over_while_away(void)
{
    struct pending pending = PENDING_INIT;
    mortise_client *client = open_at(
        &volatile_one, NULL, "handover_window = 1m\nhandover_max = 100\nunreachable_timeout = 1s",
        "connect_timeout = 1s\ncommand_timeout = 1s\n");
    mortise_lease *lease = take(client, "no-heir");
    pending_start(&pending, client, "no-heir", MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(test_poll(one_waits, client, TEST_PATIENCE_MS));
    CHECK(server_do(&volatile_one, "kill", NULL));
    CHECK(test_poll(is_away, client, TEST_PATIENCE_MS));
    CHECK(mortise_release(lease, &detail) != MORTISE_OK);
    CHECK(test_count_get(&pending.calls) == 0 || pending.status != MORTISE_OK);
    CHECK(server_do(&volatile_one, "start", NULL));
    if (pending_join(&pending) == MORTISE_OK)
        give(pending.lease);
    close_client(client);
}

static const CU_TestInfo tests[] = {
    {"killed before it had the requests", test_killed_before},
    {"killed before it answered", test_killed_executed},
    {"killed after it answered", test_killed_after},
    {"with a log of its writes, killed before it had the requests", test_durable_killed_before},
    {"with a log of its writes, killed before it answered", test_durable_killed_executed},
    {"with a log of its writes, killed after it answered", test_durable_killed_after},
    {"stopped, and going on", test_frozen},
    {"failover to a replica", test_failover},
    {"scripts forgotten while holding, waiting, releasing", test_scripts_forgotten},
    {"too many clients", test_too_many_clients},
    {"no memory left", test_full_memory},
    {"no hand-over while it is away", test_no_hand_over_while_away},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    static const char *const with_log[] = {"aof=yes", NULL};
    static const char *const with_replica[] = {"replicas=1", "socket=yes", NULL};
    int code = server_start(&volatile_one, NULL);
    if (code == 0)
        code = server_start(&durable, with_log);
    if (code == 0)
        code = server_start(&pair, with_replica);
    if (code == 0)
        code = run_tests("redis: the server", tests, argc, argv);
    return servers_end((struct server *const[]){&volatile_one, &durable, &pair}, 3, code);
}
