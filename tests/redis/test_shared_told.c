/* test_shared_told.c - shared callers whose place in the queue is taken out, because somebody else's user, or their own, may not
 * let them in: when they ask again. */
#include "scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct server server;
struct server *const scene_server = &server;

static mortise_client *open_poor(const struct way *way, const char *more)
{
    char settings[200];
    snprintf(settings, sizeof settings, "%susername = poor\npassword = word\n%s", way->settings,
             more);
    return open_at(&server, NULL, NULL, settings);
}

static bool is_late(void *proxy)
{
    return test_proxy_count(proxy, "down_taken") > test_proxy_count(proxy, "down");
}

struct heard {
    struct test_proxy *proxy;
    int64_t before;
};

static bool has_heard(void *argument)
{
    struct heard *heard = argument;
    return test_proxy_count(heard->proxy, "down") > heard->before;
}

static void hold_answers(struct test_proxy *proxy, const char *delay)
{
    CHECK(test_proxy_say(proxy, "delay %s down", delay));
}

/* The message that its place is gone overtakes the answer that it was made, which is on another connection. */
static void test_told_early(void)
{
    for (size_t i = 0; i < WAYS; i += 2) {
        struct scene scene;
        struct test_proxy proxy;
        struct pending reader = PENDING_INIT;
        const mortise_options *options = SHARED(.wait_ms = -1, .ttl_ms = LONG_MS);
        CHECK(ask_is(&server, "OK", "ACL SETUSER poor on >word ~* &* +@all -zadd"));
        scene_begin(&scene, &scene_ways[i], "told early", NULL);
        CU_ASSERT_FATAL(start_proxy(&server, &proxy));
        mortise_client *poor = open_poor(&scene_ways[i], "");
        mortise_client *client = open_by(&server, &proxy, NULL, scene_ways[i].settings);
        mortise_lease *lease = take(scene.client[0], scene.name);
        pending_start(&reader, client, scene.name, options);
        scene_wait(&scene, 1);
        give(lease);
        scene_join(&reader); /* it listens to its inbox from here on */
        lease = take(poor, scene.name);
        hold_answers(&proxy, "1000000");
        reader = PENDING_INIT;
        pending_start(&reader, client, scene.name, options);
        scene_wait(&scene, 1);
        CHECK(test_poll(is_late, &proxy, TEST_PATIENCE_MS));
        hold_answers(&proxy, "0");
        struct heard heard = {&proxy, test_proxy_count(&proxy, "down")};
        give(lease);
        CHECK(test_poll(has_heard, &heard, TEST_PATIENCE_MS));
        CHECK(test_proxy_say(&proxy, "pass"));
        scene_join(&reader); /* long before it would ask by itself */
        close_client(client);
        test_proxy_end(&proxy);
        close_client(poor);
        scene_end(&scene);
        CHECK(ask_number(&server, "ACL DELUSER poor") == 1);
    }
}

static bool has_told(void *before)
{
    return calls_of(&server, "publish") > *(int64_t *)before;
}

/* They queue behind a writer, and may not share: who asks takes out the place of the next one, and tells it. They do not make each
 * other ask without a pause. All of them share as soon as they may. */
static void go_round(const struct way *way)
{
    enum { READERS = 3 };
    struct scene scene;
    struct pending writer = PENDING_INIT, readers[READERS];
    mortise_client *poor[READERS], *gone;
    CHECK(ask_is(&server, "OK", "ACL SETUSER poor on >word ~* &* +@all -zadd"));
    scene_begin(&scene, way, "told in turn", "renew_every = 100ms\n");
    mortise_lease *lease = scene_share(&scene, 0, 0);
    gone = open_poor(way, "");
    pending_start(&writer, gone, scene.name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    scene_wait(&scene, 1);
    for (int i = 0; i < READERS; i++) {
        poor[i] = open_poor(way, "retry = 1s\n");
        readers[i] = PENDING_INIT;
        pending_start(&readers[i], poor[i], scene.name, SHARED(.wait_ms = -1, .ttl_ms = LONG_MS));
        scene_wait(&scene, i + 2);
    }
    int64_t told = calls_of(&server, "publish"), began_ms = test_now_ms();
    EXPECT(OK, mortise_cancel(gone, writer.request));
    EXPECT(CANCELED, pending_join(&writer));
    CHECK(test_poll(has_told, &told, TEST_PATIENCE_MS));
    CHECK(wait_renewals(scene.client[0], stats_of(scene.client[0]).renewals + 5));
    told = calls_of(&server, "publish") - told;
    CHECK(told <= 20 + (test_now_ms() - began_ms) / 20);
    CHECK(ask_is(&server, "OK", "ACL SETUSER poor +zadd"));
    for (int i = 0; i < READERS; i++)
        EXPECT(OK, pending_join(&readers[i]));
    CHECK(scene_holders(&scene) == READERS + 1);
    for (int i = 0; i < READERS; i++) {
        give(readers[i].lease);
        close_client(poor[i]);
    }
    give(lease);
    close_client(gone);
    scene_end(&scene);
    CHECK(ask_number(&server, "ACL DELUSER poor") == 1);
}

static void test_told_in_turn(void)
{
    for (size_t i = 0; i < WAYS; i += 2)
        go_round(&scene_ways[i]);
}

static const CU_TestInfo tests[] = {
    {"a reader is told before the answer, and asks at once", test_told_early},
    {"readers tell each other, and pause", test_told_in_turn},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = server_start(&server, NULL);
    if (code == 0)
        code = run_tests("redis: places of shared callers are gone", tests, argc, argv);
    return servers_end((struct server *const[]){&server}, 1, code);
}
