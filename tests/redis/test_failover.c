/* test_failover.c - a list of servers without sentinels: the driver finds the primary, whichever it is, and finds the
 * new one when it was killed, stopped, cut off, or made a replica. Leases are renewed there, or reported LOST. */
#include "fake.h"
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct house house;
static struct server strangers;

#define HELD_MS 600000 /* no renewal is due */

static const char timeouts[] = "connect_timeout = 1s\ncommand_timeout = 1s\n";
static const char patient[] = "unreachable_timeout = 60s\n";

static mortise_client *open_house(const char *redis)
{
    return open_at(&house.server, house.list, patient, redis ? redis : timeouts);
}

static mortise_lease *hold(mortise_client *client, const char *name, struct told *told)
{
    mortise_lease *lease = NULL;
    EXPECT(OK, mortise_acquire(client, name,
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = HELD_MS,
                                               .on_state = note_state, .user_data = told),
                               &lease, &detail));
    return lease;
}

/* It was renewed that often at the server that we read, since the old primary was gone, and no loss was reported. */
static void check_kept(mortise_client *client, mortise_lease *lease, const char *name,
                       struct told *told, uint64_t renewals)
{
    CHECK(wait_renewals(client, renewals));
    CHECK(wait_state(lease, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    CHECK(holds(&house.server, name) == 1);
    CHECK(is_covered(&house.server, name, lease));
    CHECK(test_count_get(&told->lost) == 0);
}

static uint64_t token_of(mortise_client *client, const char *name)
{
    mortise_lease *lease = take(client, name);
    uint64_t token = lease ? mortise_token(lease) : 0;
    CHECK(holds(&house.server, name) == 1);
    if (lease)
        give(lease);
    return token;
}

/* ---- finding it ---------------------------------------------------------------------------------------------- */

static void test_whichever(void)
{
    for (int i = 0; i < HOUSE; i++) {
        house_mend(&house, i);
        mortise_client *client = open_house(NULL);
        CHECK(token_of(client, "whichever") > 0);
        close_client(client);
    }
    char url[200], text[256];
    mortise_client *client = NULL;
    snprintf(url, sizeof url, "redis://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/0", house.ports[0],
             house.ports[1], house.ports[2]);
    if (!EXPECT(OK, mortise_open(url, &client, &detail)))
        return;
    EXPECT(OK, mortise_ping(client, text, sizeof text, &detail));
    snprintf(url, sizeof url, "127.0.0.1:%d", house.ports[2]);
    CHECK(strstr(text, url) != NULL);
    close_client(client);
}

/* The first server of the list is silent: the driver does not wait for the whole timeout. */
static void test_silent_first(void)
{
    house_mend(&house, 0);
    mortise_client *client = open_house("connect_timeout = 1h\n");
    house_do(&house, "freeze", 2);
    CHECK(token_of(client, "silent") > 0);
    house_do(&house, "thaw", 2);
    close_client(client);
}

static void test_no_primary(void)
{
    mortise_lease *lease = NULL;
    house_mend(&house, 0);
    mortise_client *client = open_house("");
    house_do(&house, "kill", 0);
    CHECK(not_reached(
        mortise_acquire(client, "nobody", MORTISE_OPTIONS(.wait_ms = 0), &lease, &detail)));
    SAYS("no primary among the servers");
    SAYS("is a replica");
    CHECK(detail.retryable);
    house_promote(&house, 1);
    CHECK(wait_works(client));
    close_client(client);
    house_do(&house, "start", 0);
}

/* Servers that do not replicate each other: the driver uses neither. */
static void test_strangers(void)
{
    char list[80];
    mortise_lease *lease = NULL;
    snprintf(list, sizeof list, "127.0.0.1:%d, 127.0.0.1:%d", strangers.port, strangers.port2);
    mortise_client *client = open_at(&strangers, list, NULL, timeouts);
    CHECK(not_reached(
        mortise_acquire(client, "which", MORTISE_OPTIONS(.wait_ms = 0), &lease, &detail)));
    SAYS("more than one of the servers says that it is the primary");
    close_client(client);
    snprintf(list, sizeof list, "127.0.0.1:%d, localhost:%d", strangers.port, strangers.port);
    client = open_at(&strangers, list, NULL, timeouts);
    EXPECT(OK, try_once(client, "one by two names"));
    close_client(client);
}

/* ---- it goes away ------------------------------------------------------------------------------------------------ */

static void test_killed(void)
{
    struct told told = TOLD_INIT;
    struct pending pending = PENDING_INIT;
    house_mend(&house, 0);
    mortise_client *client = open_house(NULL), *other = open_house(NULL);
    mortise_lease *lease = hold(client, "kept", &told);
    uint64_t token = token_of(client, "grows");
    pending_start(&pending, other, "kept", MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    house_wait_replicas(&house, 2);
    house_do(&house, "kill", 0);
    house_promote(&house, 1);
    check_kept(client, lease, "kept", &told, 1); /* the next one would be due in minutes */
    CHECK(token_of(client, "grows") > token);
    token = mortise_token(lease);
    give(lease); /* its waiter waits at the new primary */
    EXPECT(OK, pending_join(&pending));
    CHECK(mortise_token(pending.lease) > token);
    CHECK(holds(&house.server, "kept") == 1);
    give(pending.lease);
    close_client(other);
    close_client(client);
    CHECK(server_is_clean(&house.server));
    house_do(&house, "start", 0);
}

/* What no replica had is reported LOST at once, not when the next renewal is due. */
static void test_unreplicated(void)
{
    struct told told = TOLD_INIT;
    house_mend(&house, 0);
    mortise_client *client = open_house(NULL);
    give(take(client, "connected"));
    house_wait_replicas(&house, 2);
    house_strand(&house, 1);
    house_strand(&house, 2);
    mortise_lease *lease = hold(client, "unseen", &told);
    CHECK(holds(&house.server, "unseen") == 1);
    house_do(&house, "kill", 0);
    house_promote(&house, 1);
    CHECK(test_count_wait(&told.lost, 1));
    CHECK(mortise_state(lease) == MORTISE_STATE_LOST);
    CHECK(token_of(client, "unseen") > mortise_token(lease));
    EXPECT(LOST, mortise_release(lease, &detail));
    close_client(client);
    CHECK(server_is_clean(&house.server));
    house_do(&house, "start", 0);
}

static bool is_suspect(void *told)
{
    return test_count_get(&((struct told *)told)->suspect) > 0;
}

/* It is stopped with a request in its buffers, and continues when another server is the primary: both say that they
 * are. */
static void test_stopped(void)
{
    struct told told = TOLD_INIT;
    struct pending pending = PENDING_INIT;
    char list[80];
    house_mend(&house, 0);
    mortise_client *client = open_at(&house.server, house.list,
                                     "unreachable_timeout = 60s\nrenew_every = 200ms", timeouts);
    mortise_lease *lease = hold(client, "kept", &told);
    house_wait_replicas(&house, 2);
    house_do(&house, "freeze", 0);
    pending_start(&pending, client, "asked", MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(test_poll(is_suspect, &told, TEST_PATIENCE_MS));
    uint64_t before = stats_of(client).renewals;
    house_promote(&house, 1);
    EXPECT(OK, pending_join(&pending));
    CHECK(holds(&house.server, "asked") == 1);
    check_kept(client, lease, "kept", &told, before + 2); /* a request may have been under way */
    house_do(&house, "thaw", 0);
    snprintf(list, sizeof list, "127.0.0.1:%d, 127.0.0.1:%d", house.ports[0], house.ports[1]);
    mortise_client *late = open_at(&house.server, list, patient, timeouts); /* reaches both */
    EXPECT(BUSY, try_once(late, "asked"));
    CHECK(token_of(late, "grows") > mortise_token(lease));
    close_client(late);
    give(pending.lease);
    give(lease);
    CHECK(holds(&house.server, "asked") == 0 && holds(&house.server, "kept") == 0);
    close_client(client);
    CHECK(server_is_clean(&house.server));
}

/* Only this client is cut off from it. */
static void test_cut_off(void)
{
    struct told told = TOLD_INIT;
    struct test_proxy proxy;
    char list[80];
    house_mend(&house, 0);
    if (!start_proxy(&house.server, &proxy))
        return;
    snprintf(list, sizeof list, "127.0.0.1:%d, 127.0.0.1:%d", proxy.port, house.ports[1]);
    mortise_client *client =
        open_at(&house.server, list, "unreachable_timeout = 60s\nrenew_every = 200ms", timeouts);
    mortise_lease *lease = hold(client, "kept", &told);
    house_wait_replicas(&house, 2);
    CHECK(test_proxy_say(&proxy, "hold"));
    CHECK(test_poll(is_suspect, &told, TEST_PATIENCE_MS));
    uint64_t before = stats_of(client).renewals;
    house_promote(&house, 1);
    check_kept(client, lease, "kept", &told, before + 2); /* a request may have been under way */
    give(lease);
    close_client(client);
    CHECK(server_is_clean(&house.server));
    test_proxy_end(&proxy);
}

/* ---- it becomes a replica ---------------------------------------------------------------------------------------------- */

/* It keeps its connections: the first write returns READONLY. */
static void test_demoted(void)
{
    struct told told = TOLD_INIT;
    house_mend(&house, 0);
    mortise_client *client = open_house(NULL);
    mortise_lease *lease = hold(client, "kept", &told);
    uint64_t token = token_of(client, "grows");
    house_wait_replicas(&house, 2);
    house_mend(&house, 1);
    mortise_lease *next = take(client, "grows");
    CHECK(mortise_token(next) > token);
    CHECK(holds(&house.server, "grows") == 1);
    CHECK(test_count_wait(&told.lost, 1)); /* house_mend has emptied it */
    give(next);
    EXPECT(LOST, mortise_release(lease, &detail));
    close_client(client);
    CHECK(server_is_clean(&house.server));
}

static void lead_to(const char *path, const char *socket)
{
    char next[220];
    snprintf(next, sizeof next, "%s.next", path);
    CHECK(symlink(socket, next) == 0 && rename(next, path) == 0);
}

/* One address (for example, a virtual one), behind which another server becomes the primary while the old one keeps its
 * connections. The client leaves the replica, and its leases go on at the primary. */
static void test_demoted_behind_one_address(void)
{
    struct told told = TOLD_INIT;
    char path[220];
    house_mend(&house, 0);
    snprintf(path, sizeof path, "%s/vip", house.server.folder);
    lead_to(path, house.server.socket);
    mortise_client *client =
        open_at(&house.server, path, "unreachable_timeout = 60s\nrenew_every = 100ms", timeouts);
    mortise_lease *lease = hold(client, "kept", &told);
    uint64_t token = token_of(client, "grows");
    house_wait_replicas(&house, 2);
    lead_to(path, house.server.socket2);
    house_promote(&house, 1);
    house_follow(&house, 0);
    uint64_t renewals = stats_of(client).renewals;
    mortise_lease *next = take(client, "grows");
    CHECK(mortise_token(next) > token);
    CHECK(holds(&house.server, "grows") == 1);
    give(next);
    check_kept(client, lease, "kept", &told, renewals + 2);
    give(lease);
    close_client(client);
    unlink(path);
    CHECK(server_is_clean(&house.server));
}

/* The client only renews shared leases: READONLY says that the server is a replica now. */
static void test_demoted_with_shared(void)
{
    struct told told = TOLD_INIT;
    char path[220];
    mortise_lease *lease = NULL;
    house_mend(&house, 0);
    snprintf(path, sizeof path, "%s/vip", house.server.folder);
    lead_to(path, house.server.socket);
    mortise_client *client =
        open_at(&house.server, path, "unreachable_timeout = 60s\nrenew_every = 100ms", timeouts);
    EXPECT(OK, mortise_acquire(client, "shared",
                               MORTISE_OPTIONS(.mode = MORTISE_SHARED, .ttl_ms = LONG_MS,
                                               .wait_ms = TEST_PATIENCE_MS, .on_state = note_state,
                                               .user_data = &told),
                               &lease, &detail));
    house_wait_replicas(&house, 2);
    lead_to(path, house.server.socket2);
    house_promote(&house, 1);
    house_follow(&house, 0);
    CHECK(wait_renewals(client, stats_of(client).renewals + 2));
    CHECK(mortise_state(lease) == MORTISE_STATE_HELD && test_count_get(&told.lost) == 0);
    give(lease);
    close_client(client);
    unlink(path);
    CHECK(server_is_clean(&house.server));
}

struct seen {
    const char *name;
    int times;
};

static bool see(const mortise_info *info, void *argument)
{
    struct seen *seen = argument;
    seen->times += strcmp(info->name, seen->name) == 0;
    return true;
}

struct listing {
    mortise_client *client;
    struct seen *seen;
};

static bool lists(void *argument)
{
    const struct listing *listing = argument;
    return mortise_list(listing->client, listing->seen->name, see, listing->seen, &detail) ==
           MORTISE_OK;
}

/* The server has become a replica, and only ROLE reveals it: its list does not count. */
static void test_list_at_a_replica(void)
{
    struct seen kept = {"new", 0}, gone = {"old", 0};
    char direct[40];
    house_mend(&house, 0);
    snprintf(direct, sizeof direct, "127.0.0.1:%d", house.ports[0]);
    mortise_client *client = open_house(NULL),
                   *alone = open_at(&house.server, direct, "unreachable_timeout = 10s", timeouts);
    mortise_lease *old = take(client, "old");
    EXPECT(OK, mortise_list(alone, "old", see, &gone, &detail));
    CHECK(gone.times == 1);
    house_wait_replicas(&house, 2);
    house_promote(&house, 1);
    house_strand(&house, 0); /* it keeps its data, and receives nothing */
    CHECK(ask_is(&house.server, "OK", "SET mortise:new %s PX 60000",
                 "0123456789abcdef0123456789abcdef 5 1700000000000000\n"));
    EXPECT(UNREACHABLE, mortise_list(alone, "old", see, &gone, &detail));
    CHECK(gone.times == 1);
    struct listing listing = {client,
                              &kept}; /* the first one fails too, and leads to the new primary */
    CHECK(test_poll(lists, &listing, TEST_PATIENCE_MS));
    CHECK(kept.times == 1);
    CHECK(ask_number(&house.server, "DEL mortise:new") == 1);
    give(old);
    close_client(alone);
    close_client(client);
    CHECK(server_is_clean(&house.server));
}

static bool is_replica(void *text)
{
    return strstr(text, "a replica, not the primary") != NULL;
}

/* One address, which leads to a replica: each call says so. */
static void test_replica_alone(void)
{
    char address[40], text[256];
    house_mend(&house, 0);
    snprintf(address, sizeof address, "127.0.0.1:%d", house.ports[1]);
    mortise_client *client = open_at(&house.server, address, "unreachable_timeout = 1s", timeouts);
    for (int i = 0; i < 2; i++) {
        EXPECT(UNREACHABLE, mortise_ping(client, text, sizeof text, &detail));
        CHECK(is_replica(detail.message));
        EXPECT(UNREACHABLE, try_once(client, "alone"));
        CHECK(is_replica(detail.message));
    }
    close_client(client);
}

/* A replica that lags does not know the lock: its answer that there is none does not count. */
static void test_release_at_a_replica(void)
{
    struct told told = TOLD_INIT;
    house_mend(&house, 0);
    mortise_client *client = open_house(NULL);
    mortise_lease *lease = hold(client, "there", &told);
    house_wait_replicas(&house, 2);
    house_promote(&house, 1);
    redisReply *reply = house_ask(&house, 0, "DEL mortise:there");
    CHECK(reply && reply->integer == 1);
    freeReplyObject(reply);
    house_strand(&house, 0);
    CHECK(holds(&house.server, "there") == 1);
    give(lease);
    CHECK(holds(&house.server, "there") == 0);
    close_client(client);
    CHECK(server_is_clean(&house.server));
}

/* ---- clocks -------------------------------------------------------------------------------------------------- */

/* The new primary's clock is a minute behind the clock of the old one, whose tokens it never had. A client that was
 * connected to the old one gets larger tokens nevertheless; a client that was not does not: docs/promises.md. */
static void test_clock_behind(void)
{
    struct fake old;
    struct timespec now;
    char list[80], ahead[80], text[256];
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(ahead, sizeof ahead, "*2\r\n$10\r\n%lld\r\n$1\r\n0\r\n", (long long)now.tv_sec + 60);
    uint64_t given = ((uint64_t)now.tv_sec + 60) * 1000000;
    if (!CHECK(fake_start(&old)))
        return;
    pthread_mutex_lock(&old.lock);
    old.time = ahead;
    pthread_mutex_unlock(&old.lock);
    snprintf(list, sizeof list, "127.0.0.1:%d, 127.0.0.1:%d", old.port, strangers.port);
    CHECK(ask_is(&strangers, "OK", "REPLICAOF 127.0.0.1 1"));
    mortise_client *client = open_at(&strangers, list, patient, timeouts);
    mortise_client *other = open_at(&strangers, list, patient, timeouts);
    EXPECT(OK, mortise_ping(client, text, sizeof text, &detail));
    fake_end(&old);
    CHECK(ask_is(&strangers, "OK", "REPLICAOF NO ONE"));
    mortise_lease *lease = take(client, "one"), *less = take(other, "another");
    CHECK(mortise_token(lease) > given);
    CHECK(mortise_token(less) < given);
    CHECK(is_covered(&strangers, "one", lease));
    give(less);
    give(lease);
    close_client(other);
    close_client(client);
}

static const CU_TestInfo tests[] = {
    {"whichever is the primary", test_whichever},
    {"the first of the list is silent", test_silent_first},
    {"no primary", test_no_primary},
    {"two that have nothing to do with each other", test_strangers},
    {"the primary is killed", test_killed},
    {"killed with what no replica had", test_unreplicated},
    {"the primary is stopped, and goes on", test_stopped},
    {"cut off from the primary", test_cut_off},
    {"the primary becomes a replica", test_demoted},
    {"demoted behind one address", test_demoted_behind_one_address},
    {"demoted, and only shared leases", test_demoted_with_shared},
    {"a replica alone", test_replica_alone},
    {"a listing of a replica", test_list_at_a_replica},
    {"a release that a lagging replica knows nothing of", test_release_at_a_replica},
    {"the new primary's clock is behind", test_clock_behind},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    static const char *const replicas[] = {"replicas=2", "socket=yes",
                                           "conf=repl-diskless-sync yes",
                                           "conf=repl-diskless-sync-delay 0", NULL};
    static const char *const two[] = {"nodes=2", NULL};
    int code = house_start(&house, replicas);
    if (code == 0)
        code = server_start(&strangers, two);
    if (code == 0)
        code = run_tests("redis: failover", tests, argc, argv);
    if (code == 0)
        house_mend(&house, house.primary);
    return servers_end((struct server *const[]){&house.server, &strangers}, 2, code);
}
