/* test_shared_crowd.c - many who want one name in both modes at the same time, by several clients, with and without a queue: no
 * writer beside anybody, never more holders than permits, and nobody is left out. */
#include "scene.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 12
#define ROUNDS 60
#define PERMITS 3

static struct server server;
struct server *const scene_server = &server;

/* What one who has the lease sees of the others, all of them in this process. */
static atomic_int readers, writers, worst;

struct member {
    const struct scene *scene;
    int number;
    unsigned seed;
    bool permits; /* else readers without a limit, and downgrades */
};

static void check_alone(bool shared, bool limited)
{
    int now = atomic_load(&readers), others = atomic_load(&writers);
    if (shared ? others > 0 || (limited && now > PERMITS) : others > 1 || now > 0)
        atomic_fetch_add(&worst, 1);
}

static void enter(struct member *member, bool shared)
{
    char text[256];
    atomic_fetch_add(shared ? &readers : &writers, 1);
    check_alone(shared, member->permits);
    if (rand_r(&member->seed) % 3 == 0)
        EXPECT(OK, mortise_ping(member->scene->client[member->number % CLIENTS], text, sizeof text,
                                &detail));
    check_alone(shared, member->permits);
}

static void leave(struct member *member, mortise_lease *lease, bool shared)
{
    if (!shared && !member->permits && rand_r(&member->seed) % 3 == 0) {
        atomic_fetch_add(&readers, 1); /* a reader before it is none of the writers */
        atomic_fetch_sub(&writers, 1);
        EXPECT(OK, mortise_downgrade(lease, &detail));
        check_alone(true, false);
        shared = true;
    }
    atomic_fetch_sub(shared ? &readers : &writers, 1);
    give(lease);
}

static void act(void *argument)
{
    struct member *member = argument;
    const struct scene *scene = member->scene;
    for (int i = 0; i < ROUNDS; i++) {
        bool shared = rand_r(&member->seed) % 4 != 0;
        mortise_lease *lease = NULL;
        mortise_options options = {.size = sizeof options,
                                   .wait_ms = rand_r(&member->seed) % 8 == 0 ? 2 : TEST_PATIENCE_MS,
                                   .ttl_ms = LONG_MS,
                                   .mode = shared ? MORTISE_SHARED : MORTISE_EXCLUSIVE,
                                   .permits = shared && member->permits ? PERMITS : 0};
        mortise_status status = mortise_acquire(scene->client[member->number % CLIENTS],
                                                scene->name, &options, &lease, &detail);
        CHECK(status == MORTISE_OK || (options.wait_ms == 2 && status == MORTISE_TIMEDOUT));
        if (status != MORTISE_OK)
            continue;
        enter(member, shared);
        leave(member, lease, shared);
    }
}

static void crowd(const struct way *way, bool permits)
{
    struct scene scene;
    struct member members[THREADS];
    scene_begin(&scene, way, permits ? "permits" : "modes", NULL);
    for (int i = 0; i < THREADS; i++)
        members[i] = (struct member){&scene, i, (unsigned)i + 1, permits};
    in_parallel(act, members, sizeof *members, THREADS);
    snprintf(doing, sizeof doing, "%s, %s", permits ? "permits" : "modes", way->name);
    CHECK(atomic_load(&worst) == 0);
    scene_end(&scene);
}

static void test_modes(void)
{
    for (size_t i = 0; i < WAYS; i++)
        crowd(&scene_ways[i], false);
}

static void test_permits(void)
{
    for (size_t i = 0; i < WAYS; i++)
        crowd(&scene_ways[i], true);
}

/* Processes that are killed while they hold a permit: it comes back at their own end, not before. */
static void test_killed(void)
{
    for (size_t i = 0; i < WAYS; i++) {
        struct scene scene;
        struct test_process taker[PERMITS] = {0};
        struct pending pending;
        char line[120];
        scene_begin(&scene, &scene_ways[i], "killed", NULL);
        snprintf(scene.name, sizeof scene.name, "killed-%zu", i);
        snprintf(line, sizeof line, "acquire %s 0 2000 shared permits=3", scene.name);
        for (int k = 0; k < PERMITS; k++) {
            start_taker(&server, &taker[k], scene.way->settings);
            taker_says(&taker[k], line, "OK ");
        }
        EXPECT(BUSY, scene_try(&scene, 0, PERMITS));
        for (int k = 0; k < PERMITS; k++)
            test_kill(&taker[k]);
        EXPECT(BUSY, scene_try(&scene, 0, PERMITS));
        EXPECT(BUSY, try_once(scene.client[1], scene.name));
        CHECK(scene_holders(&scene) == PERMITS);
        scene_want(&pending, &scene, 0, MORTISE_SHARED, PERMITS);
        scene_join(&pending);
        scene_end(&scene);
    }
}

/* A writer that waits is killed: it keeps no new reader out, as long as others share and after that. */
static void test_writer_killed(void)
{
    for (size_t i = 0; i < WAYS; i += 2) {
        struct scene scene;
        struct test_process taker;
        scene_begin(&scene, &scene_ways[i], "writer killed", NULL);
        snprintf(scene.name, sizeof scene.name, "writer-killed-%zu", i); /* one word */
        mortise_lease *lease =
            scene_acquire(&scene, 0, SHARED(.wait_ms = 0, .ttl_ms = LONG_MS)); /* no inbox */
        if (start_taker(&server, &taker, scene.way->settings)) {
            CHECK(test_say(&taker, "acquire %s -1 %d", scene.name, LONG_MS));
            CHECK(wait_queue(&server, scene.name, 1));
            EXPECT(BUSY, scene_try(&scene, 1, 0));
            test_kill(&taker);
            CHECK(wait_inboxes(&server, 0));
            give(scene_share(&scene, 1, 0));
        }
        give(lease);
        EXPECT(OK, scene_try(&scene, 1, 0));
        scene_end(&scene);
    }
}

/* ---- some of them in the queue, and some not ---------------------------------------------------------------- */

/* The clients of the scene have no queue, `queued` has one. */
static void want_queued(struct pending *pending, const struct scene *scene, mortise_client *queued,
                        const mortise_options *options)
{
    *pending = PENDING_INIT;
    pending_start(pending, queued, scene->name, options);
    CHECK(wait_queue(&server, scene->name, 1));
}

/* Readers without a queue do not pass a writer that is the first in it, and hand it the lock when they find it free. If it
 * gives up or is dead, they go on. */
static void queued_writer(const struct way *way, const struct way *other)
{
    struct scene scene;
    struct pending writer, reader;
    struct test_process taker;
    scene_begin(&scene, way, "mixed", NULL);
    snprintf(scene.name, sizeof scene.name, "mixed-%d", (int)(way - scene_ways)); /* one word */
    mortise_client *queued = open_at(&server, NULL, NULL, other->settings);
    const mortise_options alone = *MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS);
    mortise_lease *lease = scene_share(&scene, 0, 0);
    want_queued(&writer, &scene, queued, &alone);
    EXPECT(BUSY, scene_try(&scene, 1, 0));
    scene_want(&reader, &scene, 1, MORTISE_SHARED, 0);
    scene_wait(&scene, 1);
    give(lease);
    EXPECT(OK, pending_join(&writer));
    CHECK(test_count_get(&reader.calls) == 0);
    give(writer.lease);
    EXPECT(OK, pending_join(&reader));
    want_queued(&writer, &scene, queued, &alone);
    EXPECT(BUSY, scene_try(&scene, 0, 0));
    EXPECT(OK, mortise_cancel(queued, writer.request));
    EXPECT(CANCELED, pending_join(&writer));
    CHECK(wait_queue(&server, scene.name, 0));
    EXPECT(OK, scene_try(&scene, 0, 0));
    close_client(queued);
    CHECK(wait_inboxes(&server, 0));
    if (start_taker(&server, &taker, other->settings)) {
        CHECK(test_say(&taker, "acquire %s -1 %d", scene.name, LONG_MS));
        CHECK(wait_queue(&server, scene.name, 1));
        EXPECT(BUSY, scene_try(&scene, 0, 0));
        test_kill(&taker);
        CHECK(wait_inboxes(&server, 0));
        EXPECT(OK, scene_try(&scene, 0, 0));
    }
    give(reader.lease);
    EXPECT(OK, scene_try(&scene, 0, 0));
    scene_end(&scene);
}

/* A permit that comes back goes to the first of the queue. */
static void queued_permit(const struct way *way, const struct way *other)
{
    struct scene scene;
    struct pending waiter;
    scene_begin(&scene, way, "mixed permits", NULL);
    mortise_client *queued = open_at(&server, NULL, NULL, other->settings);
    const mortise_options two = *SHARED(.wait_ms = -1, .ttl_ms = LONG_MS, .permits = 2);
    mortise_lease *first = scene_share(&scene, 0, 2), *second = scene_share(&scene, 1, 2);
    want_queued(&waiter, &scene, queued, &two);
    give(first);
    EXPECT(BUSY, scene_try(&scene, 2, 2));
    EXPECT(OK, pending_join(&waiter));
    give(second);
    give(waiter.lease);
    close_client(queued);
    scene_end(&scene);
}

static void test_mixed(void)
{
    for (size_t i = 0; i < WAYS; i += 2) {
        queued_writer(&scene_ways[i + 1], &scene_ways[i]);
        queued_permit(&scene_ways[i + 1], &scene_ways[i]);
    }
}

static const CU_TestInfo tests[] = {
    {"readers and writers", test_modes},
    {"permits and writers", test_permits},
    {"holders are killed", test_killed},
    {"a writer that waits is killed", test_writer_killed},
    {"some of them in the queue", test_mixed},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = server_start(&server, NULL);
    if (code == 0)
        code = run_tests("redis: a crowd in both modes", tests, argc, argv);
    return servers_end((struct server *const[]){&server}, 1, code);
}
