/* test_replicas.c - min_replicas: a lock counts as acquired and renewed only when replicas have it; otherwise the
 * acquire fails in bounded time and leaves nothing, and the holder learns of it in time. */
#include "rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct house house;

#define MANY 20

/* For tests whose primary is down for a while. In the others, a primary that is stopped for a second does not count as
 * down: a repeated try would not end because of what the replicas have. */
#define QUICK "connect_timeout = 1s\ncommand_timeout = 1s\n"

static mortise_client *open_house(const char *core, const char *redis)
{
    return open_at(&house.server, house.list, core, redis);
}

static void freeze_replicas(const char *verb)
{
    house_do(&house, verb, 1);
    house_do(&house, verb, 2);
}

/* ---- had ------------------------------------------------------------------------------------------------------- */

static bool replica_has(int member, const char *name)
{
    redisReply *reply = house_ask(&house, member, "EXISTS mortise:%s", name);
    bool has = reply && reply->integer == 1;
    freeReplyObject(reply);
    return has;
}

/* In every layout: when the lock is granted, both replicas have it. */
static void hold_one(void *argument)
{
    const struct variant *variant = argument;
    char settings[200], name[64];
    snprintf(doing, sizeof doing, "%s", variant->name);
    snprintf(name, sizeof name, "replicated-%d", (int)(variant - variants));
    snprintf(
        settings, sizeof settings,
        "connect_timeout = 1m\ncommand_timeout = 1m\nmin_replicas = 2\nreplica_timeout = 1m\n%s",
        variant->settings);
    mortise_client *client = open_house("handover_max = 0\nrenew_every = 50ms", settings);
    for (int i = 0; i < 5; i++) {
        mortise_lease *lease = take_as(client, name, variant->owner, LONG_MS);
        CHECK(replica_has(1, name) && replica_has(2, name));
        CHECK(is_covered(&house.server, name, lease));
        CHECK(wait_renewals(client, stats_of(client).renewals + 2));
        EXPECT(BUSY, variant->owner ? MORTISE_BUSY : try_once(client, name));
        give(lease);
    }
    CHECK(stats_of(client).renewal_failures == 0);
    close_client(client);
}

static void test_had(void)
{
    house_mend(&house, 0);
    in_parallel(hold_one, (void *)(uintptr_t)variants, sizeof *variants, VARIANTS);
    CHECK(server_is_clean(&house.server));
}

/* The primary dies as soon as a lock is granted, when only one replica was reachable: that replica has the lock. */
static void test_killed_at_once(void)
{
    struct told told = TOLD_INIT;
    mortise_lease *lease = NULL;
    house_mend(&house, 0);
    mortise_client *client =
        open_house("unreachable_timeout = 60s", QUICK "min_replicas = 1\nreplica_timeout = 10s\n");
    house_strand(&house, 2);
    EXPECT(OK, mortise_acquire(client, "kept",
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS,
                                               .on_state = note_state, .user_data = &told),
                               &lease, &detail));
    house_do(&house, "kill", 0);
    house_promote(&house, 1);
    CHECK(holds(&house.server, "kept") == 1);
    house_follow(&house, 2); /* a renewal needs one */
    CHECK(wait_renewals(client, 1));
    CHECK(wait_state(lease, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    CHECK(test_count_get(&told.lost) == 0);
    give(lease);
    close_client(client);
    CHECK(server_is_clean(&house.server));
    house_do(&house, "start", 0);
}

/* A release hands it over to a waiter that needs replicas. */
static void test_handed_over(void)
{
    static const char *const modes[] = {"", "mode = hash\n"};
    house_mend(&house, 0);
    for (int i = 0; i < 2; i++) {
        char settings[100];
        struct pending pending = PENDING_INIT;
        snprintf(doing, sizeof doing, "mode %d", i);
        snprintf(settings, sizeof settings, "min_replicas = 2\nreplica_timeout = 10s\n%s",
                 modes[i]);
        mortise_client *holder = open_house(NULL, modes[i]), *client = open_house(NULL, settings);
        mortise_lease *lease = take(holder, "handed over");
        pending_start(&pending, client, "handed over",
                      MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS, .no_renew = true));
        CHECK(wait_queue(&house.server, "handed over", 1));
        int64_t calls = calls_of(&house.server, "wait");
        give(lease);
        EXPECT(OK, pending_join(&pending));
        CHECK(calls_of(&house.server, "wait") > calls);
        CHECK(queue_length(&house.server, "handed over") == 0);
        CHECK(replica_has(1, "handed over") && replica_has(2, "handed over"));
        CHECK(is_covered(&house.server, "handed over", pending.lease));
        give(pending.lease);
        close_client(holder);
        close_client(client);
    }
    CHECK(server_is_clean(&house.server));
}

/* ---- not had --------------------------------------------------------------------------------------------------- */

static void test_nobody_acknowledges(void)
{
    mortise_lease *lease = NULL;
    house_mend(&house, 0);
    static const char one[] = "min_replicas = 1\nreplica_timeout = 300ms\n";
    mortise_client *client = open_house(NULL, one);
    mortise_client *hurried = open_house("unreachable_timeout = 1s", one);
    mortise_client *other = open_house(NULL, "");
    CHECK(wait_works(client) && wait_works(hurried));
    freeze_replicas("freeze");
    for (int i = 0; i < 3; i++) {
        CHECK(not_reached(mortise_acquire(client, "replicated",
                                          MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = LONG_MS), &lease,
                                          &detail)));
        SAYS("0 of 1 replicas");
        CHECK(detail.retryable);
        CHECK(holds(&house.server, "replicated") == 0);
    }
    EXPECT(OK, try_once(other, "replicated")); /* a client without min_replicas */
    mortise_status status = mortise_acquire(
        hurried, "replicated", MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS),
        &lease, &detail); /* ends after unreachable_timeout, with an open request or without */
    CHECK(status == MORTISE_UNREACHABLE || status == MORTISE_INDETERMINATE);
    CHECK(wait_holds(&house.server, "replicated", 0));
    freeze_replicas("thaw");
    house_wait_replicas(&house, 2);
    CHECK(wait_works(client));
    close_client(hurried);
    close_client(other);
    close_client(client);
    CHECK(server_is_clean(&house.server));
}

/* The hand-over reaches no replica: the lock goes to the next waiter, and its receiver waits until replicas are back. */
static void test_handed_over_in_vain(void)
{
    struct pending pending = PENDING_INIT, next = PENDING_INIT;
    house_mend(&house, 0);
    mortise_client *holder = open_house(NULL, ""), *third = open_house(NULL, "");
    mortise_client *client =
        open_house("unreachable_timeout = 10m", "min_replicas = 1\nreplica_timeout = 300ms\n");
    mortise_lease *lease = take(holder, "in vain");
    pending_start(&pending, client, "in vain", MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(wait_queue(&house.server, "in vain", 1));
    pending_start(&next, third, "in vain", MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(wait_queue(&house.server, "in vain", 2));
    freeze_replicas("freeze");
    uint64_t token = mortise_token(lease);
    give(lease);
    EXPECT(OK, pending_join(&next)); /* its ttl is a minute: nobody waited for that */
    CHECK(test_count_get(&pending.calls) == 0);
    CHECK(mortise_token(next.lease) > token);
    freeze_replicas("thaw");
    house_wait_replicas(&house, 2);
    token = mortise_token(next.lease);
    give(next.lease);
    EXPECT(OK, pending_join(&pending));
    CHECK(mortise_token(pending.lease) > token);
    CHECK(replica_has(1, "in vain") || replica_has(2, "in vain"));
    give(pending.lease);
    close_client(client);
    close_client(third);
    close_client(holder);
    CHECK(server_is_clean(&house.server));
}

static bool is_on_replica(void *name)
{
    return replica_has(1, name);
}

/* One replica has it, two were required. While the driver waits for that and releases the lock, the replica that has it
 * becomes the primary: the lock is released there, long before its ttl is over. */
static void test_taken_back_at_the_next(void)
{
    static char name[] = "taken back";
    struct pending pending = PENDING_INIT;
    house_mend(&house, 0);
    mortise_client *client =
        open_house("unreachable_timeout = 3s", QUICK "min_replicas = 2\nreplica_timeout = 1s\n");
    CHECK(wait_works(client));
    house_do(&house, "freeze", 2);
    pending_start(&pending, client, name, MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = LONG_MS));
    CHECK(test_poll(is_on_replica, name, TEST_PATIENCE_MS));
    house_do(&house, "freeze", 0);
    house_promote(&house, 1);
    CHECK(pending_join(&pending) != MORTISE_OK);
    CHECK(wait_holds(&house.server, name, 0));
    house_do(&house, "thaw", 0);
    house_do(&house, "thaw", 2);
    house_follow(&house, 0);
    house_follow(&house, 2);
    house_wait_replicas(&house, 2);
    CHECK(wait_works(client));
    CHECK(holds(&house.server, name) == 0);
    close_client(client);
    CHECK(server_is_clean(&house.server));
}

static bool two_are_told(void *client)
{
    mortise_lease *lease = NULL;
    CHECK(not_reached(
        mortise_acquire(client, "three", MORTISE_OPTIONS(.wait_ms = 0), &lease, &detail)));
    CHECK(holds(&house.server, "three") == 0);
    return strstr(detail.message, "2 of 3 replicas") != NULL;
}

/* There never was one. Of the two existing ones, one may be late. */
static void test_too_many_asked(void)
{
    house_mend(&house, 0);
    mortise_client *client = open_house(NULL, "min_replicas = 3\nreplica_timeout = 1s\n");
    CHECK(test_poll(two_are_told, client, TEST_PATIENCE_MS));
    close_client(client);
    CHECK(server_is_clean(&house.server));
}

static bool is_warned(void *path)
{
    char *text = test_file_read(path);
    bool warned = text && strstr(text, "has 2 replicas, and min_replicas is 1") != NULL;
    CHECK(!warned || strstr(text, "[redis] [redis]") == NULL); /* the core writes the section */
    free(text);
    return warned;
}

/* Any replica counts, and the other one may be promoted: the log says so. */
static void test_more_than_asked(void)
{
    char path[220];
    house_mend(&house, 0);
    snprintf(path, sizeof path, "%s/log", house.server.folder);
    int log = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600), stderr_is = dup(2);
    if (!CHECK(log >= 0 && stderr_is >= 0 && dup2(log, 2) == 2))
        return;
    mortise_client *client = open_house(NULL, "min_replicas = 1\nreplica_timeout = 10s\n");
    EXPECT(OK, try_once(client, "warned"));
    CHECK(test_poll(is_warned, path, TEST_PATIENCE_MS));
    close_client(client);
    CHECK(dup2(stderr_is, 2) == 2);
    close(stderr_is);
    close(log);
}

/* One WAIT serves all grants that came meanwhile. */
static void test_together(void)
{
    static struct pending pendings[MANY];
    char name[32];
    house_mend(&house, 0);
    mortise_client *client = open_house(NULL, "min_replicas = 1\nreplica_timeout = 1s\n");
    CHECK(wait_works(client));
    freeze_replicas("freeze");
    int64_t before = calls_of(&house.server, "wait");
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "together-%d", i);
        pendings[i] = PENDING_INIT;
        pending_start(&pendings[i], client, name, MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = LONG_MS));
    }
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "together-%d", i);
        EXPECT(UNREACHABLE, pending_join(&pendings[i]));
        CHECK(holds(&house.server, name) == 0);
    }
    int64_t calls = calls_of(&house.server, "wait") - before;
    CHECK(calls >= 1 && calls <= MANY / 2);
    freeze_replicas("thaw");
    close_client(client);
    CHECK(server_is_clean(&house.server));
}

static bool is_there(void *name)
{
    return holds(&house.server, name) == 1;
}

/* The caller gives up while the driver waits for replicas: nothing is left, now or later. */
static void test_given_up(void)
{
    static char name[] = "given up";
    struct pending pending = PENDING_INIT;
    house_mend(&house, 0);
    mortise_client *client = open_house(NULL, "min_replicas = 1\nreplica_timeout = 30s\n");
    EXPECT(OK, try_once(client, name));
    freeze_replicas("freeze");
    pending_start(&pending, client, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(test_poll(is_there, name, TEST_PATIENCE_MS));
    EXPECT(OK, mortise_cancel(client, pending.request));
    EXPECT(CANCELED, pending_join(&pending));
    CHECK(wait_holds(&house.server, name, 0));
    freeze_replicas("thaw");
    house_wait_replicas(&house, 2);
    CHECK(holds(&house.server, name) == 0);
    close_client(client);
    CHECK(server_is_clean(&house.server));
}

static bool is_blocked(void *unused)
{
    (void)unused;
    return info_number(&house.server, "clients", "blocked_clients") == 1;
}

static bool is_kept(void *proxy)
{
    return test_proxy_count(proxy, "up_taken") > test_proxy_count(proxy, "up");
}

struct fewer {
    struct test_proxy *proxy;
    int64_t than;
};

static bool are_fewer(void *argument)
{
    const struct fewer *fewer = argument;
    return test_proxy_count(fewer->proxy, "now") < fewer->than;
}

/* No replica had it in time, so the driver releases it. The proxy holds that request back, and the connection breaks,
 * which the client may not end in the server. The acquire goes on over the next connection; then the request arrives. */
static void test_late_undo(void)
{
    static char name[] = "late undo";
    struct test_proxy proxy;
    struct pending pending = PENDING_INIT;
    house_mend(&house, 0);
    if (!CHECK(test_proxy_start(&proxy, house.server.folder, "127.0.0.1", house.ports[0])))
        return;
    freeReplyObject(ask(&house.server, "ACL SETUSER low on >x ~* &* -@all +@read +@write "
                                       "-@dangerous +@scripting +@pubsub +@connection +time "
                                       "+info +wait -client|kill"));
    mortise_client *client = open_by(&house.server, &proxy, "unreachable_timeout = 60s",
                                     "username = low\npassword = x\nmin_replicas = 1\n"
                                     "replica_timeout = 10s\ncommand_timeout = 1s\n");
    give(take(client, name));
    freeze_replicas("freeze");
    pending_start(&pending, client, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(test_poll(is_blocked, NULL, TEST_PATIENCE_MS));
    CHECK(test_proxy_say(&proxy, "delay 1000000 up"));
    CHECK(test_poll(is_kept, &proxy, TEST_PATIENCE_MS));
    CHECK(test_proxy_say(&proxy, "delay 0 both"));
    freeze_replicas("thaw");
    EXPECT(OK, pending_join(&pending));
    CHECK(holds(&house.server, name) == 1);
    struct fewer fewer = {&proxy, test_proxy_count(&proxy, "now")};
    CHECK(test_proxy_say(&proxy, "pass"));
    CHECK(test_poll(are_fewer, &fewer, TEST_PATIENCE_MS));
    CHECK(holds(&house.server, name) == 1);
    give(pending.lease);
    CHECK(wait_holds(&house.server, name, 0));
    close_client(client);
    test_proxy_end(&proxy);
    freeReplyObject(ask(&house.server, "ACL DELUSER low"));
    CHECK(server_is_clean(&house.server));
}

/* The connection that waits for the replicas breaks. */
static void test_cut_while_waiting(void)
{
    static char name[] = "cut";
    struct pending pending = PENDING_INIT;
    house_mend(&house, 0);
    mortise_client *client =
        open_house("unreachable_timeout = 60s", "min_replicas = 1\nreplica_timeout = 30s\n");
    EXPECT(OK, try_once(client, name));
    freeze_replicas("freeze");
    pending_start(&pending, client, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(test_poll(is_there, name, TEST_PATIENCE_MS));
    CHECK(ask_number(&house.server, "CLIENT KILL TYPE normal SKIPME yes") > 0);
    freeze_replicas("thaw");
    EXPECT(OK, pending_join(&pending));
    CHECK(replica_has(1, name) || replica_has(2, name));
    give(pending.lease);
    CHECK(holds(&house.server, name) == 0);
    close_client(client);
    CHECK(server_is_clean(&house.server));
}

/* ---- renewals ---------------------------------------------------------------------------------------------------- */

/* A holder whose renewals reach no replica learns it, and loses the lease at its deadline: before the replicas' own
 * copy of the lock ends. */
static void test_renewals(void)
{
    struct told told = TOLD_INIT;
    mortise_lease *lease = NULL;
    house_mend(&house, 0);
    mortise_client *client =
        open_house("renew_every = 100ms", "min_replicas = 1\nreplica_timeout = 200ms\n");
    EXPECT(OK, mortise_acquire(client, "renewed",
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS,
                                               .on_state = note_state, .user_data = &told),
                               &lease, &detail));
    CHECK(wait_renewals(client, 2));
    freeze_replicas("freeze");
    CHECK(test_count_wait(&told.suspect, 1));
    freeze_replicas("thaw");
    CHECK(wait_state(lease, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    CHECK(test_count_get(&told.lost) == 0);
    give(lease);
    EXPECT(OK, mortise_acquire(client, "renewed",
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = 3000,
                                               .on_state = note_state, .user_data = &told),
                               &lease, &detail));
    freeze_replicas("freeze");
    CHECK(test_count_wait(&told.lost, 1));
    EXPECT(LOST, mortise_release(lease, &detail));
    freeze_replicas("thaw");
    close_client(client);
    CHECK(server_is_clean(&house.server));
}

static const CU_TestInfo tests[] = {
    {"what is had is on the replicas", test_had},
    {"the primary is killed at once", test_killed_at_once},
    {"handed over", test_handed_over},
    {"nobody acknowledges", test_nobody_acknowledges},
    {"handed over in vain", test_handed_over_in_vain},
    {"taken back at the next primary", test_taken_back_at_the_next},
    {"more are asked for than there are", test_too_many_asked},
    {"more replicas than are asked for", test_more_than_asked},
    {"many wait together", test_together},
    {"given up while waiting for replicas", test_given_up},
    {"a late undo, and no right to end connections", test_late_undo},
    {"the connections break while waiting for replicas", test_cut_while_waiting},
    {"renewals", test_renewals},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    static const char *const keys[] = {"replicas=2", "conf=repl-diskless-sync yes",
                                       "conf=repl-diskless-sync-delay 0", NULL};
    int code = house_start(&house, keys);
    if (code == 0)
        code = run_tests("redis: replicas", tests, argc, argv);
    return servers_end((struct server *const[]){&house.server}, 1, code);
}
