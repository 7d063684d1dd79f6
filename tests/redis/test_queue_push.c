/* test_queue_push.c - the message that hands a lock over is lost, late or forged; the deadline that depends on it is
 * earlier than the server's expiry, whatever is delayed. These leases are not renewed, so that only the hand-over is
 * tested. And waiters whose server forgets them. */
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct server server;
static const char *const modes[] = {"", "mode = hash\n"};
#define MODES 2
#define TTL_MS                                                                                     \
    9000 /* a process may be stopped for almost as long; places are refreshed every third of it */

/* ---- helpers --------------------------------------------------------------------------------------------------- */

/* A waiter behind a proxy, and a holder. */
struct way {
    char name[48];
    struct test_proxy proxy;
    mortise_client *holder, *client;
    mortise_lease *lease;
    struct pending pending;
};

static bool begin(struct way *way, const char *settings, const char *name)
{
    snprintf(doing, sizeof doing, "%s", strstr(settings, "hash") ? "hash" : "string");
    snprintf(way->name, sizeof way->name, "%s-%s", name, doing);
    if (!start_proxy(&server, &way->proxy))
        return false;
    way->holder = open_at(&server, NULL, NULL, settings);
    way->client = open_by(&server, &way->proxy, NULL, settings);
    way->lease = take(way->holder, way->name);
    return way->lease != NULL;
}

static void wait_for(struct way *way, int64_t ttl_ms)
{
    way->pending = PENDING_INIT;
    pending_start(&way->pending, way->client, way->name,
                  MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = ttl_ms, .no_renew = true));
    CHECK(wait_queue(&server, way->name, 1));
}

/* Granted, and the deadline is no later than the server's expiry. */
static void receive(struct way *way)
{
    EXPECT(OK, pending_join(&way->pending));
    CHECK(is_covered(&server, way->name, way->pending.lease));
    CHECK(mortise_state(way->pending.lease) == MORTISE_STATE_HELD);
}

static void end(struct way *way)
{
    CHECK(test_proxy_say(&way->proxy, "pass"));
    CHECK(queue_length(&server, way->name) == 0);
    close_client(way->holder);
    close_client(way->client);
    test_proxy_end(&way->proxy);
}

struct place {
    char grant[33], stamp[24], inbox[64];
};

static struct place place_of(const char *name)
{
    struct place place = {"", "", ""};
    redisReply *reply = ask(&server, "LINDEX {mortise:%s}:mortise:queue 0", name);
    if (reply && reply->str)
        CHECK(sscanf(reply->str, "%32s %*s %*s %*s %*s %23s %*s %63s", place.grant, place.stamp,
                     place.inbox) == 3);
    freeReplyObject(reply);
    return place;
}

struct refreshed {
    const char *name;
    struct place before;
};

static bool is_refreshed(void *argument)
{
    const struct refreshed *refreshed = argument;
    struct place now = place_of(refreshed->name);
    return now.stamp[0] && strcmp(now.stamp, refreshed->before.stamp) != 0;
}

static bool wait_refresh(const char *name)
{
    struct refreshed refreshed = {name, place_of(name)};
    return test_poll(is_refreshed, &refreshed, TEST_PATIENCE_MS);
}

static bool has_replied(void *argument)
{
    struct way *way = argument;
    return test_proxy_count(&way->proxy, "down_taken") == test_proxy_count(&way->proxy, "down");
}

/* ---- late ------------------------------------------------------------------------------------------------------------ */

struct leg {
    const char *mode;
    const char *asking, *refreshing, *handing; /* what the proxy does in the meantime */
};

/* Every message is late, alone and with the others: the request, the answer, the push. */
static void delay_legs(void *argument)
{
    const struct leg *leg = argument;
    struct way way;
    char name[40];
    snprintf(name, sizeof name, "late %c%c%c", leg->asking[10], leg->refreshing[10],
             leg->handing[10]);
    if (!begin(&way, leg->mode, name))
        return;
    snprintf(doing, sizeof doing, "%s, %s, %s", leg->asking, leg->refreshing, leg->handing);
    CHECK(test_proxy_say(&way.proxy, "%s", leg->asking));
    wait_for(&way, TTL_MS);
    CHECK(test_proxy_say(&way.proxy, "%s", leg->refreshing));
    CHECK(wait_refresh(way.name));
    CHECK(test_proxy_say(&way.proxy, "%s", leg->handing));
    give(way.lease);
    receive(&way);
    CHECK(mortise_remaining_ms(way.pending.lease) <= TTL_MS - 200); /* it counts from before */
    give(way.pending.lease);
    end(&way);
}

static void test_late(void)
{
    static const char *const delays[] = {"delay 200 up", "delay 200 down", "delay 200 both"};
    struct leg legs[2 * 27];
    size_t n = 0;
    for (int i = 0; i < 27; i++)
        legs[n++] = (struct leg){modes[i % 2], delays[i % 3], delays[i / 3 % 3], delays[i / 9]};
    in_parallel(delay_legs, legs, sizeof *legs, n);
}

/* So late that the next waiter has the lock already: the receiver does not hold it, and no waiter is forgotten. */
static void come_too_late(void *mode)
{
    struct way way;
    struct pending other = PENDING_INIT;
    char settings[80];
    snprintf(settings, sizeof settings, "%scommand_timeout = 1m\n", *(const char **)mode);
    if (!begin(&way, settings, "too late"))
        return;
    mortise_client *third = open_at(&server, NULL, NULL, settings);
    wait_for(&way, 5000);
    CHECK(test_poll(has_replied, &way, TEST_PATIENCE_MS));
    pending_start(&other, third, way.name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(wait_queue(&server, way.name, 2));
    CHECK(test_proxy_say(&way.proxy, "delay 1000000 both"));
    give(way.lease);
    EXPECT(OK, pending_join(&other)); /* when the grant that nobody noticed has ended */
    CHECK(test_count_get(&way.pending.calls) == 0);
    CHECK(test_proxy_say(&way.proxy, "pass"));
    CHECK(wait_queue(&server, way.name, 1));
    CHECK(test_count_get(&way.pending.calls) == 0);
    uint64_t token = mortise_token(other.lease);
    give(other.lease);
    receive(&way);
    CHECK(mortise_token(way.pending.lease) > token);
    give(way.pending.lease);
    close_client(third);
    end(&way);
}

static void test_too_late(void)
{
    in_parallel(come_too_late, (void *)(uintptr_t)modes, sizeof *modes, MODES);
}

static bool is_on_its_way(void *argument)
{
    struct way *way = argument;
    return test_proxy_count(&way->proxy, "up_taken") > test_proxy_count(&way->proxy, "up");
}

static bool is_free(void *name)
{
    return holds(&server, name) == 0;
}

/* The refresh is executed when the grant of the push is over: it must not acquire the lock for nobody. */
static void overtake(void *mode)
{
    struct way way;
    char settings[80];
    snprintf(settings, sizeof settings, "%scommand_timeout = 1m\n", *(const char **)mode);
    if (!begin(&way, settings, "overtaken"))
        return;
    wait_for(&way, 5000);
    CHECK(test_poll(has_replied, &way, TEST_PATIENCE_MS));
    CHECK(test_proxy_say(&way.proxy, "delay 1000000 up"));
    CHECK(test_poll(is_on_its_way, &way, TEST_PATIENCE_MS));
    give(way.lease);
    CHECK(test_poll(is_free, way.name, TEST_PATIENCE_MS));
    CHECK(test_proxy_say(&way.proxy, "pass"));
    receive(&way);
    give(way.pending.lease);
    CHECK(is_free(way.name));
    end(&way);
}

static void test_overtaken(void)
{
    in_parallel(overtake, (void *)(uintptr_t)modes, sizeof *modes, MODES);
}

/* A push from before the last "queued", and others that make no sense. */
static void test_old_push(void)
{
    struct way way;
    if (!begin(&way, "", "old"))
        return;
    wait_for(&way, 5000);
    struct place place = place_of(way.name);
    CHECK(wait_refresh(way.name));
    CHECK(wait_refresh(way.name)); /* the one before has been answered then */
    static const char *const stamps[] = {"", "0", "x", "9223372036854775807",
                                         "99999999999999999999999"};
    CHECK(ask_number(&server, "PUBLISH %s %s", place.inbox, place.grant) == 1);
    CHECK(ask_number(&server, "PUBLISH %s nonsense", place.inbox) == 1);
    for (size_t i = 0; i < sizeof stamps / sizeof *stamps; i++)
        ask_number(&server, "EVAL %s 0 %s %s %s",
                   "return redis.call('publish', ARGV[1], ARGV[2] .. ' 17 ' .. ARGV[3])",
                   place.inbox, place.grant, stamps[i]);
    CHECK(ask_number(&server, "EVAL %s 0 %s %s %s",
                     "return redis.call('publish', ARGV[1], ARGV[2] .. ' 17 ' .. ARGV[3])",
                     place.inbox, place.grant, place.stamp) == 1);
    CHECK(wait_refresh(way.name)); /* it continues to wait */
    CHECK(test_count_get(&way.pending.calls) == 0);
    give(way.lease);
    receive(&way);
    CHECK(mortise_token(way.pending.lease) > 17);
    give(way.pending.lease);
    end(&way);
}

/* ---- lost ------------------------------------------------------------------------------------------------------------ */

/* With the connection that it came on. */
static void lose_connection(void *mode)
{
    struct way way;
    if (!begin(&way, *(const char **)mode, "lost"))
        return;
    wait_for(&way, LONG_MS);
    CHECK(test_poll(has_replied, &way, TEST_PATIENCE_MS));
    CHECK(test_proxy_say(&way.proxy, "delay 1000000 down"));
    give(way.lease);
    CHECK(queue_length(&server, way.name) == 0 && holds(&server, way.name) == 1);
    CHECK(test_proxy_say(&way.proxy, "delay 0 down"));
    CHECK(test_proxy_say(&way.proxy, "cut"));
    receive(&way); /* as soon as it has asked: its ttl is a minute */
    give(way.pending.lease);
    end(&way);
}

static void test_lost(void)
{
    in_parallel(lose_connection, (void *)(uintptr_t)modes, sizeof *modes, MODES);
}

/* Only the push is lost: the next refresh finds the grant. The test does what the release does, without the message. */
static void test_lost_alone(void)
{
    static const char take_over[] =
        "local place = redis.call('lpop', KEYS[2]) "
        "local grant, ttl = string.sub(place, 1, 32), tonumber(string.sub(place, 79, 88)) "
        "redis.call('set', KEYS[1], grant .. ' 9007199254740000 17\\nhost\\n1\\nx', 'px', ttl) "
        "return 1";
    struct way way;
    if (!begin(&way, "", "lost alone"))
        return;
    wait_for(&way, TTL_MS);
    CHECK(ask_number(&server, "EVAL %s 2 mortise:%s {mortise:%s}:mortise:queue", take_over,
                     way.name, way.name) == 1);
    receive(&way);
    CHECK(mortise_token(way.pending.lease) == UINT64_C(9007199254740000));
    give(way.pending.lease);
    EXPECT(LOST, mortise_release(way.lease, &detail));
    end(&way);
}

/* ---- a server that forgets -------------------------------------------------------------------------------------------- */

static void test_emptied(void)
{
    mortise_client *clients[3], *holder = open_at(&server, NULL, NULL, NULL);
    struct pending pendings[3] = {PENDING_INIT, PENDING_INIT, PENDING_INIT};
    bool served[3] = {false};
    mortise_lease *lease = take(holder, "emptied");
    uint64_t token = mortise_token(lease);
    for (int i = 0; i < 3; i++) {
        clients[i] = open_at(&server, NULL, NULL, NULL);
        pending_start(&pendings[i], clients[i], "emptied",
                      MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 6000));
        CHECK(wait_queue(&server, "emptied", i + 1));
    }
    CHECK(ask_is(&server, "OK", "FLUSHALL"));
    for (int round = 0; round < 3; round++) { /* in whatever order they asked */
        int next = 0;
        while (served[next] || test_count_get(&pendings[next].calls) == 0)
            next = (next + 1) % 3;
        served[next] = true;
        EXPECT(OK, pending_join(&pendings[next]));
        CHECK(mortise_token(pendings[next].lease) > token);
        token = mortise_token(pendings[next].lease);
        give(pendings[next].lease);
    }
    EXPECT(LOST, mortise_release(lease, &detail));
    for (int i = 0; i < 3; i++)
        close_client(clients[i]);
    close_client(holder);
}

/* Killed, and started again without its data. */
static void test_restarted(void)
{
    mortise_client *holder = open_at(&server, NULL, "unreachable_timeout = 1m", NULL);
    mortise_client *client = open_at(&server, NULL, "unreachable_timeout = 1m", NULL);
    struct pending pending = PENDING_INIT;
    mortise_lease *lease = take(holder, "restarted");
    pending_start(&pending, client, "restarted", MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(wait_queue(&server, "restarted", 1));
    CHECK(server_do(&server, "kill", NULL));
    CHECK(server_do(&server, "start", NULL));
    EXPECT(OK, pending_join(&pending)); /* it asks as soon as it is connected */
    CHECK(is_covered(&server, "restarted", pending.lease));
    CHECK(mortise_token(pending.lease) > mortise_token(lease));
    give(pending.lease);
    mortise_release(lease, NULL);
    close_client(holder);
    close_client(client);
}

/* ---- two short failures ------------------------------------------------------------------------------------------------- */

#define OUTAGE_MS                                                                                  \
    2000 /* the unreachable_timeout: longer than each failure, and over between them */

struct asks {
    struct way *way;
    uint64_t before;
};

static bool has_asked_again(void *argument)
{
    const struct asks *asks = argument;
    return stats_of(asks->way->client).requests > asks->before;
}

/* No connection can be made until the core has asked again; then the place is made or found once more. */
static void fail_shortly(struct way *way)
{
    struct asks asks = {way, stats_of(way->client).requests};
    struct refreshed refreshed = {way->name, place_of(way->name)};
    CHECK(test_proxy_say(&way->proxy, "refuse"));
    CHECK(test_poll(has_asked_again, &asks, TEST_PATIENCE_MS));
    CHECK(test_proxy_say(&way->proxy, "accept"));
    CHECK(test_poll(is_refreshed, &refreshed, TEST_PATIENCE_MS));
}

/* What failed before the answer that it waits does not make the second failure a long one. */
static void fail_twice(void *mode)
{
    struct way way;
    char settings[80];
    snprintf(settings, sizeof settings, "%sforeign = poll\nretry = 100ms\n", *(const char **)mode);
    if (!begin(&way, *(const char **)mode, "twice"))
        return;
    close_client(way.client);
    way.client = open_by(&server, &way.proxy, "unreachable_timeout = 2s", settings);
    wait_for(&way, LONG_MS); /* its place is refreshed every `retry` */
    int64_t from_ms = test_now_ms();
    fail_shortly(&way);
    while (test_now_ms() < from_ms + OUTAGE_MS && failures == 0)
        CHECK(wait_refresh(way.name));
    CHECK(wait_refresh(way.name)); /* the one before was answered */
    fail_shortly(&way);
    CHECK(wait_refresh(way.name));
    CHECK(test_count_get(&way.pending.calls) == 0);
    give(way.lease);
    receive(&way);
    give(way.pending.lease);
    end(&way);
}

static void test_fail_twice(void)
{
    in_parallel(fail_twice, (void *)(uintptr_t)modes, sizeof *modes, MODES);
}

/* ---- two ears -------------------------------------------------------------------------------------------------------- */

static redisContext *listen_to(const char *inbox)
{
    redisContext *ear = redisConnect("127.0.0.1", server.port);
    redisReply *reply = ear != NULL ? redisCommand(ear, "SUBSCRIBE %s", inbox) : NULL;
    CHECK(reply != NULL && reply->type == REDIS_REPLY_ARRAY);
    freeReplyObject(reply);
    return ear;
}

/* A fresh place, of the grant 0…01. */
static void put_place(const char *name, const char *inbox)
{
    char place[256];
    redisReply *time = ask(&server, "TIME");
    long long now =
        CHECK(time && time->elements == 2) ? strtoll(time->element[0]->str, NULL, 10) * 1000000 : 0;
    freeReplyObject(time);
    snprintf(place, sizeof place, "%032d %016lld %010d %016lld %010d %019d %016d %s\n", 1, now,
             LONG_MS, now + 2000LL * LONG_MS, LONG_MS, 1, 1, inbox);
    freeReplyObject(ask(&server, "RPUSH {mortise:%s}:mortise:queue %s", name, place));
}

static bool is_first_ones(void *name)
{
    return ask_is(&server, "00000000000000000000000000000001", "GETRANGE mortise:%s 0 31",
                  (const char *)name);
}

/* In a cluster: the connection of the first one broke, it listens again on another one, and the server has not noticed yet.
 * Nevertheless it is its turn. The second time the release mostly takes along an acquire of the same client. */
static void test_two_ears(void)
{
    static const char inbox[] = "mortise:inbox:n0000000000000000000000000000001",
                      name[] = "two-ears";
    mortise_client *client = open_at(&server, NULL, "handover_max = 0", NULL);
    redisContext *ears[] = {listen_to(inbox), listen_to(inbox)};
    for (int turn = 0; turn < 2; turn++) {
        struct pending next = PENDING_INIT;
        mortise_lease *lease = take(client, name);
        put_place(name, inbox);
        if (turn)
            pending_start(&next, client, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
        give(lease);
        CHECK(test_poll(is_first_ones, (void *)(uintptr_t)name, TEST_PATIENCE_MS));
        mortise_info info = {.size = sizeof info};
        EXPECT(OK, mortise_inspect(client, name, &info, &detail));
        EXPECT(OK, mortise_break(client, name, info.token, &detail));
        if (turn && EXPECT(OK, pending_join(&next)))
            give(next.lease);
    }
    for (int i = 0; i < 2; i++)
        redisFree(ears[i]);
    close_client(client);
}

static const CU_TestInfo tests[] = {
    {"the deadline of what is handed over, every leg late", test_late},
    {"a push so late that the lock has gone on", test_too_late},
    {"a push overtakes a refresh", test_overtaken},
    {"an old push, and nonsense", test_old_push},
    {"a push lost with its connection", test_lost},
    {"a push lost alone", test_lost_alone},
    {"who has two subscriptions gets its turn", test_two_ears},
    {"the server is emptied while they wait", test_emptied},
    {"the server is restarted while they wait", test_restarted},
    {"two short failures during a wait", test_fail_twice},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = server_start(&server, NULL);
    if (code == 0)
        code = run_tests("redis: queue, pushes", tests, argc, argv);
    return servers_end((struct server *const[]){&server}, 1, code);
}
