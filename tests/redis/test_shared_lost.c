/* test_shared_lost.c - what is lost of a shared lock: its marker, what is beside it, replies. The rows of the table in
 * drivers/redis/protocol.md, in both layouts, with and without a queue. Keys are deleted past the driver. */
#include "scene.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct server server;
struct server *const scene_server = &server;

/* ---- what is lost beside the lock ------------------------------------------------------------------------- */

/* The marker is deleted: its holders are void, also when a new phase has begun, which they do not touch. */
static void marker_deleted(const struct way *way)
{
    struct scene scene;
    scene_begin(&scene, way, "marker", NULL);
    mortise_lease *old = scene_share(&scene, 0, 0), *other = scene_share(&scene, 1, 0);
    CHECK(ask_number(&server, "DEL mortise:%s", scene.name) == 1);
    EXPECT(OK, try_once(scene.client[2], scene.name)); /* a writer came and went */
    mortise_lease *fresh = scene_share(&scene, 2, 0);
    CHECK(scene_holders(&scene) == 1);
    EXPECT(LOST, mortise_release(old, &detail));
    CHECK(scene_holders(&scene) == 1);
    EXPECT(LOST, mortise_break(scene.client[0], "nobody's", 1, &detail));
    EXPECT(NOTOWNER, mortise_break(scene.client[0], scene.name, mortise_token(other), &detail));
    give(fresh);
    EXPECT(LOST, mortise_release(other, &detail));
    scene_end(&scene);
}

/* It is deleted, and their renewals find out, whether a new phase has begun or not. */
static void marker_deleted_renewed(const struct way *way)
{
    struct scene scene;
    scene_begin(&scene, way, "renewed", "renew_every = 50ms\n");
    for (int again = 0; again < 2; again++) {
        mortise_lease *old = scene_share(&scene, 0, 0), *fresh = NULL;
        CHECK(wait_renewals(scene.client[0], stats_of(scene.client[0]).renewals + 2));
        CHECK(ask_number(&server, "DEL mortise:%s", scene.name) == 1);
        if (again)
            fresh =
                scene_acquire(&scene, 1, SHARED(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS));
        CHECK(wait_state(old, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
        EXPECT(LOST, mortise_release(old, &detail));
        if (fresh) {
            CHECK(mortise_state(fresh) == MORTISE_STATE_HELD);
            give(fresh);
        }
    }
    freeReplyObject(ask(&server, "DEL {mortise:%s}:mortise:holders {mortise:%s}:mortise:shares",
                        scene.name, scene.name));
    scene_end(&scene);
}

/* What is beside the marker is evicted: nobody gets in before the marker ends, and nobody extends it. */
static void side_deleted(const struct way *way)
{
    static const char *const sides[] = {"holders", "shares"};
    for (int i = 0; i < 2; i++) {
        struct scene scene;
        struct pending writer;
        mortise_info info = {.size = sizeof info};
        scene_begin(&scene, way, sides[i], NULL);
        mortise_lease *lost = scene_acquire(
            &scene, 0, SHARED(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = 500, .no_renew = true));
        CHECK(ask_number(&server, "DEL {mortise:%s}:mortise:%s", scene.name, sides[i]) == 1);
        EXPECT(BUSY, scene_try(&scene, 1, 0));
        EXPECT(BUSY, scene_try(&scene, 1, 7));
        EXPECT(BUSY, try_once(scene.client[1], scene.name));
        EXPECT(OK, mortise_inspect(scene.client[1], scene.name, &info, &detail));
        CHECK(info.held);
        EXPECT(LOST, mortise_release(lost, &detail));
        CHECK(holds(&server, scene.name) == 1);
        scene_want(&writer, &scene, 2, MORTISE_EXCLUSIVE, 0);
        scene_join(&writer);
        freeReplyObject(ask(&server, "DEL {mortise:%s}:mortise:holders {mortise:%s}:mortise:shares",
                            scene.name, scene.name));
        scene_end(&scene);
    }
}

/* Another program takes the key: it is not touched. */
static void foreign(const struct way *way)
{
    struct scene scene;
    scene_begin(&scene, way, "foreign", NULL);
    mortise_lease *lease = scene_share(&scene, 0, 0);
    redisReply *reply = ask(&server, "SET mortise:%s mine NX PX 600000", scene.name);
    CHECK(reply && reply->type == REDIS_REPLY_NIL);
    freeReplyObject(reply);
    CHECK(ask_number(&server, "DEL mortise:%s", scene.name) == 1);
    CHECK(ask_is(&server, "OK", "SET mortise:%s mine NX PX 600000", scene.name));
    if (strstr(way->settings, "hash") == NULL) {
        EXPECT(LOST, mortise_release(lease, &detail));
        EXPECT(BUSY, scene_try(&scene, 1, 0));
        lease = NULL;
    }
    CHECK(ask_is(&server, "mine", "GET mortise:%s", scene.name));
    CHECK(ask_number(&server, "DEL mortise:%s", scene.name) == 1);
    if (lease)
        EXPECT(LOST, mortise_release(lease, &detail));
    freeReplyObject(ask(&server, "DEL {mortise:%s}:mortise:holders {mortise:%s}:mortise:shares",
                        scene.name, scene.name));
    scene_end(&scene);
}

/* ---- lost replies ------------------------------------------------------------------------------------------- */

static bool is_shared_by(void *argument)
{
    const struct asked *asked = argument;
    return ask_number(&server, "ZCARD {mortise:%s}:mortise:holders", asked->name) == asked->number;
}

/* Acquire, downgrade and release are executed, and their answers are lost with the connection. */
static void replies_lost(const struct way *way)
{
    struct scene scene;
    struct test_proxy proxy;
    struct pending pending;
    scene_begin(&scene, way, "replies", NULL);
    if (!start_proxy(&server, &proxy))
        return;
    mortise_client *cut = open_by(&server, &proxy, "unreachable_timeout = 10m", way->settings);
    CHECK(wait_works(cut));
    mortise_lease *stays = scene_share(&scene, 0, 3);
    for (int i = 0; i < 3; i++) {
        struct asked two = {&server, scene.name, 2}, one = {&server, scene.name, 1};
        CHECK(test_proxy_say(&proxy, "lose"));
        pending = PENDING_INIT;
        pending_start(&pending, cut, scene.name,
                      SHARED(.wait_ms = -1, .ttl_ms = LONG_MS, .permits = 3));
        CHECK(test_poll(is_shared_by, &two, TEST_PATIENCE_MS));
        CHECK(test_proxy_say(&proxy, "pass"));
        EXPECT(OK, pending_join(&pending));
        CHECK(scene_holders(&scene) == 2);
        CHECK(test_proxy_say(&proxy, "lose"));
        EXPECT(OK, mortise_release_nowait(pending.lease, &detail));
        CHECK(test_poll(is_shared_by, &one, TEST_PATIENCE_MS));
        CHECK(test_proxy_say(&proxy, "pass"));
        CHECK(wait_works(cut));
        CHECK(scene_holders(&scene) == 1);
    }
    give(stays);
    CHECK(mortise_close(cut, NULL) == MORTISE_OK);
    scene_end(&scene);
    test_proxy_end(&proxy);
}

/* The answer to a downgrade is lost. What follows, a renewal or a release, finds the claim in either mode. */
static void downgrade_lost(const struct way *way)
{
    for (int executed = 0; executed < 2; executed++) {
        struct scene scene;
        struct test_proxy proxy;
        mortise_lease *lease = NULL;
        scene_begin(&scene, way, executed ? "executed" : "not executed", NULL);
        if (!start_proxy(&server, &proxy))
            return;
        mortise_client *cut =
            open_by(&server, &proxy, "unreachable_timeout = 300ms", way->settings);
        EXPECT(OK, mortise_acquire(cut, scene.name,
                                   MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS),
                                   &lease, &detail));
        CHECK(test_proxy_say(&proxy, executed ? "lose" : "delay 1000000 up"));
        CHECK(not_reached(mortise_downgrade(lease, &detail)));
        CHECK(scene_holders(&scene) == executed);
        CHECK(test_proxy_say(&proxy, "cut"));
        CHECK(test_proxy_say(&proxy, "pass"));
        CHECK(wait_works(cut));
        mortise_status status = mortise_release(lease, &detail);
        CHECK(status == MORTISE_OK || status == MORTISE_INDETERMINATE);
        CHECK(wait_holds(&server, scene.name, 0));
        CHECK(mortise_close(cut, NULL) == MORTISE_OK);
        scene_end(&scene);
        test_proxy_end(&proxy);
    }
}

/* It is lost, and then no connection succeeds, because the password is another: that the server refuses the next one does not
 * mean that it refused the downgrade. */
static void downgrade_lost_refused(const struct way *way)
{
    struct scene scene;
    struct test_proxy proxy;
    struct pending reader;
    mortise_lease *lease = NULL;
    char settings[200];
    scene_begin(&scene, way, "refused", NULL);
    if (!start_proxy(&server, &proxy))
        return;
    CHECK(ask_is(&server, "OK", "ACL SETUSER moody on >word ~* &* +@all"));
    snprintf(settings, sizeof settings, "%susername = moody\npassword = word\n", way->settings);
    mortise_client *cut = open_by(&server, &proxy, "unreachable_timeout = 500ms", settings);
    CHECK(wait_works(cut));
    EXPECT(OK, mortise_acquire(cut, scene.name,
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS),
                               &lease, &detail));
    scene_want(&reader, &scene, 1, MORTISE_SHARED, 0);
    scene_wait(&scene, 1);
    CHECK(ask_is(&server, "OK", "ACL SETUSER moody resetpass >another"));
    CHECK(test_proxy_say(&proxy, "cut-after down 1"));
    CHECK(not_reached(mortise_downgrade(lease, &detail)));
    EXPECT(OK, pending_join(&reader));
    CHECK(scene_holders(&scene) == 2);
    CHECK(ask_is(&server, "OK", "ACL SETUSER moody resetpass >word"));
    CHECK(wait_works(cut));
    mortise_status status = mortise_release(lease, &detail);
    CHECK(status == MORTISE_OK || status == MORTISE_INDETERMINATE);
    struct asked one = {&server, scene.name, 1};
    CHECK(test_poll(is_shared_by, &one, TEST_PATIENCE_MS));
    give(reader.lease);
    CHECK(mortise_close(cut, NULL) == MORTISE_OK);
    scene_end(&scene);
    test_proxy_end(&proxy);
    CHECK(ask_number(&server, "ACL DELUSER moody") == 1);
}

/* An acquire was executed twice, the second time late: the second place of its grant is nobody's. */
static void place_twice(const struct way *way)
{
    struct scene scene;
    struct pending reader;
    mortise_info info = {.size = sizeof info};
    scene_begin(&scene, way, "twice", NULL);
    mortise_lease *writer = take(scene.client[0], scene.name);
    scene_want(&reader, &scene, 1, MORTISE_SHARED, 0);
    scene_wait(&scene, 1);
    redisReply *place = ask(&server, "LINDEX {mortise:%s}:mortise:queue 0", scene.name);
    if (CHECK(place && place->type == REDIS_REPLY_STRING))
        CHECK(ask_number(&server, "RPUSH {mortise:%s}:mortise:queue %b", scene.name, place->str,
                         place->len) == 2);
    freeReplyObject(place);
    give(writer);
    EXPECT(OK, pending_join(&reader));
    CHECK(queue_length(&server, scene.name) == 0 && scene_holders(&scene) == 1);
    EXPECT(OK, mortise_inspect(scene.client[0], scene.name, &info, &detail));
    CHECK(info.token == mortise_token(reader.lease));
    give(reader.lease);
    scene_end(&scene);
}

/* ---- the server's memory and clock ------------------------------------------------------------------------------ */

/* A full memory refuses a new holder, of the first as of a later one, and leaves nothing; what is held goes on. */
static void memory_full(const struct way *way)
{
    struct scene scene;
    scene_begin(&scene, way, "memory", "renew_every = 50ms\n");
    mortise_lease *lease = scene_share(&scene, 0, 0);
    give(scene_share(&scene, 1, 0)); /* the scripts are known */
    CHECK(ask_is(&server, "OK", "CONFIG SET maxmemory 1"));
    EXPECT(BACKEND, scene_try(&scene, 1, 0));
    SAYS("OOM");
    CHECK(scene_holders(&scene) == 1);
    CHECK(wait_renewals(scene.client[0], stats_of(scene.client[0]).renewals + 3));
    give(lease);
    EXPECT(BACKEND, scene_try(&scene, 1, 0));
    CHECK(holds(&server, scene.name) == 0 && scene_holders(&scene) == 0);
    CHECK(ask_is(&server, "OK", "CONFIG SET maxmemory 0"));
    EXPECT(OK, scene_try(&scene, 1, 0));
    scene_end(&scene);
}

/* It refuses no downgrade either, which is a renewal too. */
static void memory_full_downgrade(const struct way *way)
{
    struct scene scene;
    mortise_lease *lease = NULL;
    scene_begin(&scene, way, "downgrade", "renew_every = 50ms\n");
    EXPECT(OK, mortise_acquire(scene.client[0], scene.name,
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = 3000), &lease,
                               &detail));
    CHECK(ask_is(&server, "OK", "CONFIG SET maxmemory 1"));
    EXPECT(OK, mortise_downgrade(lease, &detail));
    CHECK(holds(&server, scene.name) == 1 && scene_holders(&scene) == 1);
    CHECK(wait_renewals(scene.client[0], stats_of(scene.client[0]).renewals + 3));
    CHECK(ask_is(&server, "OK", "CONFIG SET maxmemory 0"));
    EXPECT(OK, scene_try(&scene, 1, 0));
    give(lease);
    scene_end(&scene);
}

static bool clock_is(void *argument)
{
    const int64_t *wanted_s = argument;
    redisReply *reply = ask(&server, "TIME");
    int64_t ahead_s = reply && reply->elements == 2
                          ? strtoll(reply->element[0]->str, NULL, 10) - (int64_t)time(NULL)
                          : INT64_MAX;
    freeReplyObject(reply);
    return ahead_s >= *wanted_s - 10 && ahead_s <= *wanted_s + 10;
}

static void set_clock(int64_t ahead_s)
{
    char path[300], offset[24];
    snprintf(path, sizeof path, "%s/faketime", server.folder);
    snprintf(offset, sizeof offset, "+%llds", (long long)ahead_s);
    CHECK(test_file_write(path, offset));
    CHECK(test_poll(clock_is, &ahead_s, TEST_PATIENCE_MS));
}

/* The server's clock jumps by an hour. Ahead: what is shared has ended, and what is new does not bring it back. Back: it
 * lasts longer, and is released all the same. */
static void clock_jumps(const struct way *way)
{
    struct scene scene;
    scene_begin(&scene, way, "clock", NULL);
    mortise_lease *old = scene_share(&scene, 0, 0), *other = scene_share(&scene, 1, 0);
    set_clock(3600);
    EXPECT(OK, try_once(scene.client[2], scene.name));
    mortise_lease *fresh = scene_share(&scene, 2, 0);
    EXPECT(LOST, mortise_release(old, &detail));
    CHECK(scene_holders(&scene) == 1);
    set_clock(0);
    EXPECT(BUSY, try_once(scene.client[1], scene.name));
    EXPECT(OK, scene_try(&scene, 1, 0));
    EXPECT(LOST, mortise_release(other, &detail));
    give(fresh);
    EXPECT(OK, try_once(scene.client[1], scene.name));
    scene_end(&scene);
}

static bool count(const mortise_info *info, void *argument)
{
    int *number = argument;
    *number += info->held && info->mode == MORTISE_SHARED;
    return true;
}

/* Its place is gone: nothing is left behind. */
static void give_up(mortise_client *client, struct pending *pending)
{
    EXPECT(OK, mortise_cancel(client, pending->request));
    EXPECT(CANCELED, pending_join(pending));
    EXPECT(OK, mortise_close(client, &detail));
}

/* What is beside one lock becomes another type: its lease is not renewed, and those that are renewed with it are. It is listed, and so
 * are the others. Who waits for it may give up. Its release says that it is lost. */
static void side_of_another_type(const struct way *way)
{
    enum { OTHERS = 4 };
    struct told told = TOLD_INIT;
    struct scene scene;
    mortise_lease *others[OTHERS];
    struct pending waiting[2] = {PENDING_INIT, PENDING_INIT};
    mortise_client *waiters[2];
    int listed = 0;
    scene_begin(&scene, way, "typed", "renew_every = 100ms\n");
    mortise_lease *typed = scene_share(&scene, 0, 0);
    for (int i = 0; i < 2 && way->queued; i++) {
        waiters[i] = open_at(&server, NULL, NULL, way->settings);
        pending_start(&waiting[i], waiters[i], scene.name,
                      MORTISE_OPTIONS(.mode = i == 0 ? MORTISE_EXCLUSIVE : MORTISE_SHARED,
                                      .wait_ms = -1, .ttl_ms = LONG_MS));
        scene_wait(&scene, i + 1);
    }
    for (int i = 0; i < OTHERS; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s %d", scene.name, i);
        EXPECT(OK, mortise_acquire(scene.client[0], name,
                                   SHARED(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS,
                                          .on_state = note_state, .user_data = &told),
                                   &others[i], &detail));
    }
    freeReplyObject(ask(&server, "DEL {mortise:%s}:mortise:shares", scene.name));
    freeReplyObject(ask(&server, "SET {mortise:%s}:mortise:shares x", scene.name));
    CHECK(wait_state(typed, MORTISE_STATE_SUSPECT, TEST_PATIENCE_MS));
    CHECK(wait_renewals(scene.client[0], stats_of(scene.client[0]).renewals + OTHERS));
    EXPECT(OK, mortise_list(scene.client[1], scene.name, count, &listed, &detail));
    CHECK(listed == OTHERS + 1);
    for (int i = 1; i >= 0 && way->queued; i--)
        give_up(waiters[i], &waiting[i]);
    CHECK(queue_length(&server, scene.name) == 0);
    EXPECT(BACKEND, mortise_break(scene.client[1], scene.name, mortise_token(typed), &detail));
    EXPECT(LOST, mortise_release(typed, &detail));
    CHECK(test_count_get(&told.suspect) == 0 && test_count_get(&told.lost) == 0);
    for (int i = 0; i < OTHERS; i++)
        give(others[i]);
    freeReplyObject(ask(&server,
                        "DEL {mortise:%s}:mortise:holders {mortise:%s}:mortise:shares mortise:%s",
                        scene.name, scene.name, scene.name));
    scene_end(&scene);
}

static void each_way(void (*run)(const struct way *), bool queued, bool free)
{
    for (size_t i = 0; i < WAYS; i++)
        if (scene_ways[i].queued ? queued : free)
            run(&scene_ways[i]);
}

#define EACH(name, run, queued, free)                                                              \
    static void name(void)                                                                         \
    {                                                                                              \
        each_way(run, queued, free);                                                               \
    }
EACH(test_marker, marker_deleted, true, true)
EACH(test_renewed, marker_deleted_renewed, true, true)
EACH(test_sides, side_deleted, true, true)
EACH(test_typed, side_of_another_type, true, true)
EACH(test_foreign, foreign, true, true)
EACH(test_replies, replies_lost, true, true)
EACH(test_downgrades, downgrade_lost, true, true)
EACH(test_refused, downgrade_lost_refused, true, true)
EACH(test_twice, place_twice, true, false)
EACH(test_memory, memory_full, true, true)
EACH(test_memory_downgrade, memory_full_downgrade, true, true)
EACH(test_clock, clock_jumps, true, true)

/* The clock of expiry goes on while a script runs (before Redis 7.2), so a holder that had a moment left at its begin may have
 * ended at its end. The lock of a hash began anew then, without an end. The script here looks ten seconds back. */
static void test_end_in_a_script(void)
{
    static const char head[] = "local call, sub = redis.call, string.sub\n"
                               "local function text(n) return string.format('%.0f', n) end\n"
                               "local function next_token() end\n",
                      rest[] =
                          "local now = call('time')[1] * 1000\n"
                          "local share = shared(KEYS[1], KEYS[2], ARGV[1] == 'hash',\n"
                          "                     text((now - 10000) * 1000))\n"
                          "local long, brief = string.rep('a', 32), string.rep('b', 32)\n"
                          "share.open()\n"
                          "share.add(long, now + 60000, '1 1\\nnote', 0)\n"
                          "share.add(brief, now - 5000, '2 1\\nnote', 0)\n"
                          "share.remove(long)\n"
                          "return call('exists', KEYS[1], unpack(call('keys', '*in-a-script*')))\n";
    const char *layouts[] = {"hash", "string"};
    char path[400], script[16384];
    snprintf(path, sizeof path, "%s/drivers/redis/scripts/include/shared.lua",
             getenv("MORTISE_SOURCE_DIR"));
    char *text = test_file_read(path);
    CU_ASSERT_FATAL(text != NULL);
    CU_ASSERT_FATAL(snprintf(script, sizeof script, "%s%s%s", head, text, rest) <
                    (int)sizeof script);
    free(text);
    for (int i = 0; i < 2; i++) {
        redisReply *reply =
            ask(&server, "EVAL %s 2 mortise:in-a-script {mortise:in-a-script}:mortise:queue %s",
                script, layouts[i]);
        if (!CHECK(reply && reply->type == REDIS_REPLY_INTEGER && reply->integer == 0))
            fprintf(stderr, "%s: %s\n", layouts[i],
                    reply && reply->str ? reply->str : "a key is left");
        freeReplyObject(reply);
    }
}

static const CU_TestInfo tests[] = {
    {"the marker is deleted", test_marker},
    {"the marker is deleted, and holders renew", test_renewed},
    {"holders or shares are deleted", test_sides},
    {"shares become another type", test_typed},
    {"another program takes the key", test_foreign},
    {"lost replies", test_replies},
    {"a downgrade is lost", test_downgrades},
    {"a downgrade is lost, and the password is another", test_refused},
    {"an acquire is executed twice", test_twice},
    {"a full memory", test_memory},
    {"a full memory, and a downgrade", test_memory_downgrade},
    {"the clock jumps", test_clock},
    {"an end comes while a script runs", test_end_in_a_script},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    static const char *const clock[] = {"faketime=yes", NULL};
    int code = server_start(&server, clock);
    if (code == 0)
        code = run_tests("redis: what is lost of shared locks", tests, argc, argv);
    return servers_end((struct server *const[]){&server}, 1, code);
}
