/* test_shared_lost.c - what is lost of a shared lock: its marker, what is beside it, replies. The rows of the table in
 * drivers/redis/protocol.md, in both layouts, with and without a queue. Keys are deleted past the driver. */
#include "scene.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

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
EACH(test_foreign, foreign, true, true)
EACH(test_replies, replies_lost, true, true)

static const CU_TestInfo tests[] = {
    {"the marker is deleted", test_marker},
    {"the marker is deleted, and holders renew", test_renewed},
    {"holders or shares are deleted", test_sides},
    {"another program takes the key", test_foreign},
    {"lost replies", test_replies},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = server_start(&server, NULL);
    if (code == 0)
        code = run_tests("redis: what is lost of shared locks", tests, argc, argv);
    return servers_end((struct server *const[]){&server}, 1, code);
}
