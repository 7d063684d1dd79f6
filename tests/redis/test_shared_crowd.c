/* test_shared_crowd.c - many who want one name in both modes at the same time, by several clients: no writer beside anybody,
 * never more holders than permits, and nobody is left out. */
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

static const CU_TestInfo tests[] = {
    {"readers and writers", test_modes},
    {"permits and writers", test_permits},
    {"holders are killed", test_killed},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = server_start(&server, NULL);
    if (code == 0)
        code = run_tests("redis: a crowd in both modes", tests, argc, argv);
    return servers_end((struct server *const[]){&server}, 1, code);
}
