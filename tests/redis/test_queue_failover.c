/* test_queue_failover.c - another server becomes the primary while clients wait in a queue. Each waiter is served
 * there, in its turn if its place was replicated. If it finds that it owns the lock, it believes that for no longer
 * than the server says, and its token does not go back. */
#include "fake.h"
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct house house;
static struct server lone; /* its clock can be set */

#define HELD_MS 600000 /* no renewal and no refresh is due */
#define LEFT_MS 120000
#define MODES 2

static const char *const modes[MODES] = {"", "mode = hash\n"};
static const char timeouts[] = "connect_timeout = 1s\ncommand_timeout = 1s\n";
static const char patient[] = "unreachable_timeout = 60s\n";

/* ---- helpers --------------------------------------------------------------------------------------------------- */

static mortise_client *open_list(const char *list, const char *mode)
{
    char settings[120];
    snprintf(settings, sizeof settings, "%s%s", timeouts, mode);
    return open_at(&house.server, list, patient, settings);
}

static mortise_client *open_house(const char *mode)
{
    return open_list(house.list, mode);
}

static mortise_lease *hold(mortise_client *client, const char *name, const char *owner)
{
    mortise_lease *lease = NULL;
    EXPECT(OK, mortise_acquire(
                   client, name,
                   MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = HELD_MS, .owner = owner),
                   &lease, &detail));
    return lease;
}

/* As the `place`-th. */
static void wait_as(struct pending *pending, mortise_client *client, const char *name,
                    const char *owner, int place)
{
    *pending = PENDING_INIT;
    pending_start(pending, client, name,
                  MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = HELD_MS, .owner = owner));
    CHECK(wait_queue(&house.server, name, place));
}

static void fail_over(void)
{
    house_do(&house, "kill", 0);
    house_promote(&house, 1);
}

/* The grant and the stamp of the first place, on the server that the test reads. */
struct place {
    char grant[33], stamp[24];
};

static struct place place_of(const char *name)
{
    struct place place = {"", ""};
    redisReply *reply = ask(&house.server, "LINDEX {mortise:%s}:mortise:queue 0", name);
    if (reply && reply->str)
        CHECK(sscanf(reply->str, "%32s %*s %*s %*s %*s %23s", place.grant, place.stamp) == 2);
    freeReplyObject(reply);
    return place;
}

/* ---- what is found there --------------------------------------------------------------------------------------------- */

/* As if this server had handed the lock to that grant, with that token, and its client had not come yet. */
static const char give_it[] =
    "local time, hash = redis.call('time'), ARGV[4] == 'hash' "
    "local now = time[1] * 1000 + math.floor(time[2] / 1000) "
    "redis.call('del', KEYS[1], KEYS[2], KEYS[3]) "
    "if not hash then "
    "  redis.call('set', KEYS[1], ARGV[1] .. ' ' .. ARGV[2] .. ' 17\\nhost\\n1\\nx', 'px', "
    "ARGV[3]) "
    "else "
    "  redis.call('hset', KEYS[1], 'o', '', 't', ARGV[2], 's', '17', 'g:' .. ARGV[1], "
    "    string.format('%.0f', now + ARGV[3]), 'n:' .. ARGV[1], 'x') "
    "  redis.call('pexpire', KEYS[1], ARGV[3]) "
    "end "
    "return 1";

/* The server is still a replica. */
static void give_at(struct server *server, const char *name, const char *mode, const char *grant)
{
    CHECK(ask_is(server, "OK", "CONFIG SET replica-read-only no"));
    CHECK(ask_number(server,
                     "EVAL %s 3 mortise:%s {mortise:%s}:mortise:queue {mortise:%s}:mortise:token"
                     " %s 17 %d %s",
                     give_it, name, name, name, grant, LEFT_MS, mode[0] ? "hash" : "string") == 1);
    CHECK(ask_is(server, "OK", "CONFIG SET replica-read-only yes"));
}

/* A lock with a holder and a waiter. */
struct way {
    char name[32];
    mortise_client *holder, *client;
    mortise_lease *lease;
    struct pending pending;
    struct place place;
};

/* Server 1 has the waiter's grant for two minutes, with token 17; nobody else knows it. */
static void find_elsewhere(struct way *ways)
{
    for (int i = 0; i < MODES; i++) {
        struct way *way = &ways[i];
        snprintf(way->name, sizeof way->name, "found-%d", i);
        way->holder = open_house(modes[i]);
        way->client = open_house(modes[i]);
        way->lease = hold(way->holder, way->name, NULL);
        way->pending = PENDING_INIT;
        pending_start(&way->pending, way->client, way->name,
                      MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = HELD_MS, .no_renew = true));
        CHECK(wait_queue(&house.server, way->name, 1));
        way->place = place_of(way->name);
    }
    house_wait_replicas(&house, 2);
    house_strand(&house, 1);
    house_strand(&house, 2);
    house_look_at(&house, 1);
    for (int i = 0; i < MODES; i++)
        give_at(&house.server, ways[i].name, modes[i], ways[i].place.grant);
    fail_over();
}

static void end_ways(struct way *ways)
{
    for (int i = 0; i < MODES; i++) {
        mortise_release(ways[i].lease, NULL); /* lost there */
        close_client(ways[i].holder);
        close_client(ways[i].client);
    }
    CHECK(server_is_clean(&house.server));
    house_do(&house, "start", 0);
}

/* Its last request to the old primary does not say when this one granted the lock. */
static void test_found(void)
{
    struct way ways[MODES];
    house_mend(&house, 0);
    find_elsewhere(ways);
    for (int i = 0; i < MODES; i++) {
        snprintf(doing, sizeof doing, "%s", ways[i].name);
        EXPECT(OK, pending_join(&ways[i].pending));
        CHECK(is_covered(&house.server, ways[i].name, ways[i].pending.lease));
        CHECK(mortise_remaining_ms(ways[i].pending.lease) <= LEFT_MS);
        CHECK(mortise_remaining_ms(ways[i].pending.lease) > 0);
        give(ways[i].pending.lease);
    }
    end_ways(ways);
}

/* ---- clocks ------------------------------------------------------------------------------------------------------- */

static bool clock_is(void *argument)
{
    const int64_t *wanted_s = argument;
    redisReply *reply = ask(&lone, "TIME");
    int64_t ahead_s = reply && reply->elements == 2
                          ? strtoll(reply->element[0]->str, NULL, 10) - (int64_t)time(NULL)
                          : INT64_MAX;
    freeReplyObject(reply);
    return ahead_s >= *wanted_s - 10 && ahead_s <= *wanted_s + 10;
}

static void set_clock(int64_t ahead_s)
{
    char path[300], offset[24];
    snprintf(path, sizeof path, "%s/faketime", lone.folder);
    snprintf(offset, sizeof offset, "+%llds", (long long)ahead_s);
    CHECK(test_file_write(path, offset));
    CHECK(test_poll(clock_is, &ahead_s, TEST_PATIENCE_MS));
}

/* The server's clock is an hour ahead of this host's: a waiter gets the lock nevertheless. */
static void test_clock_ahead(void)
{
    set_clock(3600);
    for (int i = 0; i < MODES; i++) {
        struct pending pending = PENDING_INIT;
        mortise_client *holder = open_at(&lone, NULL, NULL, modes[i]);
        mortise_client *client = open_at(&lone, NULL, NULL, modes[i]);
        snprintf(doing, sizeof doing, "mode %d", i);
        mortise_lease *lease = take(holder, "ahead");
        pending_start(&pending, client, "ahead",
                      MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS, .no_renew = true));
        CHECK(wait_queue(&lone, "ahead", 1));
        uint64_t token = mortise_token(lease);
        CHECK(token / 1000000 > (uint64_t)time(NULL) + 3000);
        give(lease);
        EXPECT(OK, pending_join(&pending));
        CHECK(is_covered(&lone, "ahead", pending.lease));
        CHECK(mortise_remaining_ms(pending.lease) > 0);
        CHECK(mortise_token(pending.lease) > token);
        give(pending.lease);
        close_client(holder);
        close_client(client);
    }
    CHECK(server_is_clean(&lone));
    CHECK(ask_is(&lone, "OK", "FLUSHALL"));
    set_clock(0);
}

static bool is_queued(void *asked)
{
    return atomic_load((atomic_int *)asked) > 0;
}

static void check_raised(mortise_client *client, const char *name, mortise_lease *lease)
{
    mortise_info info = {.size = sizeof info};
    char text[32];
    uint64_t token = mortise_token(lease);
    EXPECT(OK, mortise_inspect(client, name, &info, &detail));
    CHECK(info.held && info.token == token);
    snprintf(text, sizeof text, "%llu", (unsigned long long)token);
    CHECK(ask_is(&lone, text, "GET {mortise:%s}:mortise:token", name));
    CHECK(is_covered(&lone, name, lease));
}

/* The old primary's clock was a minute ahead, and the new one has none of its tokens. It grants the lock to a waiter
 * before that one can send its floor. */
static void arrive(const char *mode)
{
    struct fake old;
    struct pending pending = PENDING_INIT;
    char list[80], ahead[80], settings[120];
    uint64_t given = ((uint64_t)time(NULL) + 60) * 1000000;
    snprintf(ahead, sizeof ahead, "*2\r\n$10\r\n%llu\r\n$1\r\n0\r\n",
             (unsigned long long)given / 1000000);
    if (!CHECK(fake_start(&old)))
        return;
    pthread_mutex_lock(&old.lock);
    old.time = ahead;
    pthread_mutex_unlock(&old.lock);
    fake_seat(&old);
    CHECK(ask_is(&lone, "OK", "REPLICAOF 127.0.0.1 1"));
    snprintf(list, sizeof list, "127.0.0.1:%d, 127.0.0.1:%d", old.port, lone.port);
    snprintf(settings, sizeof settings, "%s%s", timeouts, mode);
    mortise_client *client = open_at(&lone, list, patient, settings);
    pending_start(&pending, client, "behind",
                  MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = HELD_MS, .no_renew = true));
    CHECK(test_poll(is_queued, &old.asked[mode[0] ? 9 : 8], TEST_PATIENCE_MS));
    fake_end(&old);
    give_at(&lone, "behind", mode, old.grant);
    CHECK(ask_is(&lone, "OK", "REPLICAOF NO ONE"));
    EXPECT(OK, pending_join(&pending));
    CHECK(mortise_token(pending.lease) > given);
    check_raised(client, "behind", pending.lease);
    uint64_t token = mortise_token(pending.lease);
    give(pending.lease);
    mortise_lease *next = take(client, "behind");
    CHECK(mortise_token(next) > token);
    give(next);
    close_client(client);
    CHECK(server_is_clean(&lone));
}

static void test_clock_behind(void)
{
    for (int i = 0; i < MODES; i++) {
        snprintf(doing, sizeof doing, "mode %d", i);
        arrive(modes[i]);
        CHECK(ask_is(&lone, "OK", "FLUSHALL"));
    }
}

/* ---- those that wait ------------------------------------------------------------------------------------------------ */

#define WAITERS 4

/* All of them have connected to the new primary when the lock is released: their order is kept. */
static void wait_several(const char *mode)
{
    struct pending pendings[WAITERS];
    mortise_client *clients[WAITERS], *holder = open_house(mode);
    snprintf(doing, sizeof doing, "%s", mode);
    mortise_lease *lease = hold(holder, "several", NULL);
    for (int i = 0; i < WAITERS; i++) {
        clients[i] = open_house(mode);
        wait_as(&pendings[i], clients[i], "several", NULL, i + 1);
    }
    house_wait_replicas(&house, 2);
    fail_over();
    CHECK(wait_inboxes(&house.server, WAITERS));
    CHECK(queue_length(&house.server, "several") == WAITERS);
    uint64_t token = mortise_token(lease);
    give(lease);
    for (int i = 0; i < WAITERS; i++) {
        EXPECT(OK, pending_join(&pendings[i]));
        CHECK(queue_length(&house.server, "several") == WAITERS - i - 1);
        CHECK(is_covered(&house.server, "several", pendings[i].lease));
        CHECK(mortise_token(pendings[i].lease) > token);
        token = mortise_token(pendings[i].lease);
        give(pendings[i].lease);
    }
    for (int i = 0; i < WAITERS; i++)
        close_client(clients[i]);
    close_client(holder);
    CHECK(server_is_clean(&house.server));
    house_do(&house, "start", 0);
}

static void test_several(void)
{
    for (int i = 0; i < MODES; i++) {
        house_mend(&house, 0);
        wait_several(modes[i]);
    }
}

/* None of them has: they are skipped, and served as they come. */
static void test_passed_over(void)
{
    struct pending pendings[WAITERS];
    struct test_proxy proxy;
    bool served[WAITERS] = {false};
    char list[80];
    house_mend(&house, 0);
    server_look_at(&house.server, house.ports[1]); /* the client behind the proxy */
    if (!start_proxy(&house.server, &proxy))
        return;
    house_look_at(&house, 0);
    CHECK(test_proxy_say(&proxy, "refuse"));
    snprintf(list, sizeof list, "127.0.0.1:%d, 127.0.0.1:%d", house.ports[0], proxy.port);
    mortise_client *clients[WAITERS], *holder = open_house("");
    mortise_lease *lease = hold(holder, "passed over", NULL);
    for (int i = 0; i < WAITERS; i++) {
        clients[i] = open_list(list, "");
        wait_as(&pendings[i], clients[i], "passed over", NULL, i + 1);
    }
    house_wait_replicas(&house, 2);
    fail_over();
    CHECK(queue_length(&house.server, "passed over") == WAITERS);
    uint64_t token = mortise_token(lease);
    give(lease);
    CHECK(holds(&house.server, "passed over") == 0);
    CHECK(queue_length(&house.server, "passed over") == 0);
    CHECK(test_proxy_say(&proxy, "pass"));
    for (int round = 0; round < WAITERS; round++) {
        int next = 0;
        while (served[next] || test_count_get(&pendings[next].calls) == 0)
            next = (next + 1) % WAITERS;
        served[next] = true;
        EXPECT(OK, pending_join(&pendings[next]));
        CHECK(mortise_token(pendings[next].lease) > token);
        token = mortise_token(pendings[next].lease);
        give(pendings[next].lease);
    }
    for (int i = 0; i < WAITERS; i++)
        close_client(clients[i]);
    close_client(holder);
    test_proxy_end(&proxy);
    CHECK(server_is_clean(&house.server));
    house_do(&house, "start", 0);
}

/* Two share the lock, two others wait to share it. */
static void test_owners(void)
{
    struct pending pendings[2];
    mortise_client *clients[4];
    mortise_lease *leases[2];
    house_mend(&house, 0);
    for (int i = 0; i < 4; i++)
        clients[i] = open_house("mode = hash\n");
    for (int i = 0; i < 2; i++)
        leases[i] = hold(clients[i], "owners", "us");
    for (int i = 0; i < 2; i++)
        wait_as(&pendings[i], clients[2 + i], "owners", "them", i + 1);
    CHECK(holds(&house.server, "owners") == 2);
    house_wait_replicas(&house, 2);
    fail_over();
    CHECK(wait_inboxes(&house.server, 2));
    CHECK(wait_renewals(clients[0], 1) && wait_renewals(clients[1], 1));
    uint64_t token = mortise_token(leases[0]);
    CHECK(mortise_token(leases[1]) == token);
    give(leases[0]);
    CHECK(holds(&house.server, "owners") == 1);
    CHECK(test_count_get(&pendings[0].calls) == 0 && test_count_get(&pendings[1].calls) == 0);
    give(leases[1]);
    for (int i = 0; i < 2; i++)
        EXPECT(OK, pending_join(&pendings[i]));
    CHECK(holds(&house.server, "owners") == 2);
    CHECK(mortise_token(pendings[0].lease) > token);
    CHECK(mortise_token(pendings[0].lease) == mortise_token(pendings[1].lease));
    for (int i = 0; i < 2; i++) {
        CHECK(is_covered(&house.server, "owners", pendings[i].lease));
        give(pendings[i].lease);
    }
    for (int i = 0; i < 4; i++)
        close_client(clients[i]);
    CHECK(server_is_clean(&house.server));
    house_do(&house, "start", 0);
}

static bool is_refreshed(void *argument)
{
    const struct place *before = argument;
    struct place now = place_of("read only");
    return strcmp(now.grant, before->grant) == 0 && strcmp(now.stamp, before->stamp) != 0;
}

/* The primary becomes a replica and keeps its connections: a waiter that refreshes its place gets READONLY, and keeps
 * its place at the new primary. */
static void test_read_only(void)
{
    struct pending pending = PENDING_INIT;
    house_mend(&house, 0);
    mortise_client *holder = open_house(""), *client = open_house("");
    mortise_lease *lease = hold(holder, "read only", NULL);
    pending_start(&pending, client, "read only", MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 6000));
    CHECK(wait_queue(&house.server, "read only", 1));
    house_wait_replicas(&house, 2);
    house_promote(&house, 1);
    struct place before = place_of("read only");
    house_follow(&house, 0);
    house_follow(&house, 2);
    CHECK(test_poll(is_refreshed, &before, TEST_PATIENCE_MS));
    CHECK(test_count_get(&pending.calls) == 0);
    uint64_t token = mortise_token(lease);
    give(lease);
    EXPECT(OK, pending_join(&pending));
    CHECK(mortise_token(pending.lease) > token);
    CHECK(holds(&house.server, "read only") == 1);
    give(pending.lease);
    close_client(client);
    close_client(holder);
    CHECK(server_is_clean(&house.server));
}

static const CU_TestInfo tests[] = {
    {"found at the new primary, which says how long it stands", test_found},
    {"the server's clock is ahead of this host's", test_clock_ahead},
    {"given by the new primary, whose clock is behind", test_clock_behind},
    {"several wait, and have come when the lock is given back", test_several},
    {"several wait, and come later", test_passed_over},
    {"owners hold, and owners wait", test_owners},
    {"READONLY, told to one that waits", test_read_only},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    static const char *const keys[] = {"replicas=2", "conf=repl-diskless-sync yes",
                                       "conf=repl-diskless-sync-delay 0", NULL};
    static const char *const clock[] = {"faketime=yes", NULL};
    int code = house_start(&house, keys);
    if (code == 0)
        code = server_start(&lone, clock);
    if (code == 0)
        code = run_tests("redis: queue, failover", tests, argc, argv);
    return servers_end((struct server *const[]){&house.server, &lone}, 2, code);
}
