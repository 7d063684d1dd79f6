/* scene.c - see scene.h. */
#include "scene.h"

#include <stdio.h>
#include <string.h>

const struct way scene_ways[WAYS] = {
    {"string", "", true},
    {"string, no queue", "queue = no\n", false},
    {"hash", "mode = hash\n", true},
    {"hash, no queue", "mode = hash\nqueue = no\n", false},
};

void scene_begin(struct scene *scene, const struct way *way, const char *what, const char *core)
{
    scene->way = way;
    snprintf(doing, sizeof doing, "%s, %s", what, way->name);
    snprintf(scene->name, sizeof scene->name, "%.40s %.16s", what, way->name);
    for (size_t i = 0; i < CLIENTS; i++)
        scene->client[i] = open_at(scene_server, NULL, core, way->settings);
}

int64_t scene_holders(const struct scene *scene)
{
    return ask_number(scene_server, "ZCARD {mortise:%s}:mortise:holders", scene->name);
}

void scene_end(struct scene *scene)
{
    for (size_t i = 0; i < CLIENTS; i++)
        close_client(scene->client[i]);
    CHECK(wait_holds(scene_server, scene->name,
                     0)); /* what ended by itself lasts for a moment in the server */
    CHECK(scene_holders(scene) == 0);
    CHECK(queue_length(scene_server, scene->name) == 0);
}

mortise_lease *scene_acquire(const struct scene *scene, int who, const mortise_options *options)
{
    mortise_lease *lease = NULL;
    EXPECT(OK, mortise_acquire(scene->client[who], scene->name, options, &lease, &detail));
    return lease;
}

mortise_lease *scene_share(const struct scene *scene, int who, uint32_t permits)
{
    return scene_acquire(
        scene, who, SHARED(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS, .permits = permits));
}

mortise_status scene_try(const struct scene *scene, int who, uint32_t permits)
{
    mortise_lease *lease = NULL;
    mortise_status status = mortise_acquire(
        scene->client[who], scene->name,
        SHARED(.wait_ms = 0, .ttl_ms = LONG_MS, .permits = permits), &lease, &detail);
    if (lease)
        give(lease);
    return status;
}

void scene_want(struct pending *pending, const struct scene *scene, int who, mortise_mode mode,
                uint32_t permits)
{
    *pending = PENDING_INIT;
    pending_start(
        pending, scene->client[who], scene->name,
        MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS, .mode = mode, .permits = permits));
}

bool scene_has_bar(void *scene)
{
    return ask_number(scene_server, "EXISTS {mortise:%s}:mortise:bar",
                      ((struct scene *)scene)->name) == 1;
}

int64_t scene_bar_ms(const struct scene *scene)
{
    return ask_number(scene_server, "PTTL {mortise:%s}:mortise:bar", scene->name);
}

struct bar_watch {
    const struct scene *scene;
    int64_t least_ms;
};

static bool is_set_anew(void *argument)
{
    struct bar_watch *watch = argument;
    int64_t left_ms = scene_bar_ms(watch->scene);
    if (left_ms < watch->least_ms)
        watch->least_ms = left_ms;
    return left_ms > 1100;
}

void scene_bar_lasts(struct scene *scene)
{
    struct bar_watch watch = {scene, 1100};
    scene_wait(scene, 1);
    CHECK(ask_number(scene_server, "PEXPIRE {mortise:%s}:mortise:bar 1020", scene->name) == 1);
    CHECK(ask_number(scene_server, "PUBLISH {mortise:%s}:mortise:news 0", scene->name) == 1);
    CHECK(test_poll(is_set_anew, &watch, TEST_PATIENCE_MS));
    CHECK(watch.least_ms > 0);
}

static bool has_listener(void *scene)
{
    redisReply *reply =
        ask(scene_server, "PUBSUB NUMSUB {mortise:%s}:mortise:news", ((struct scene *)scene)->name);
    bool has = reply && reply->elements == 2 && reply->element[1]->integer > 0;
    freeReplyObject(reply);
    return has;
}

/* So many wait, as far as the server shows it. */
void scene_wait(struct scene *scene, int64_t count)
{
    if (scene->way->queued)
        CHECK(wait_queue(scene_server, scene->name, count));
    else
        CHECK(test_poll(has_listener, scene, TEST_PATIENCE_MS));
}

void scene_join(struct pending *pending)
{
    EXPECT(OK, pending_join(pending));
    if (pending->lease)
        give(pending->lease);
}

bool scene_has_refused(void *command)
{
    redisReply *reply = ask(scene_server, "ACL LOG 1");
    const redisReply *last = reply && reply->elements == 1 ? reply->element[0] : NULL;
    bool has = false;
    for (size_t i = 0; last && i < last->elements; i++)
        has = has || (last->element[i]->str && strcmp(last->element[i]->str, command) == 0);
    freeReplyObject(reply);
    return has;
}
