/* test_queue_rights.c - waiters in the queue, and users of an ACL that lack rights: what such a user may not do costs nobody else
 * a place or a lock. */
#include "scene.h"

#include <stdio.h>

static struct server server;
struct server *const scene_server = &server;

static mortise_client *open_poor(const struct way *way, const char *right, const char *settings)
{
    char all[200];
    CHECK(ask_is(&server, "OK", "ACL LOG RESET"));
    CHECK(ask_is(&server, "OK", "ACL SETUSER poor on >word ~* &* +@all %s", right));
    snprintf(all, sizeof all, "%s%susername = poor\npassword = word\n", way->settings, settings);
    return open_at(&server, NULL, NULL, all);
}

static void forget_poor(mortise_client *poor)
{
    close_client(poor);
    CHECK(ask_number(&server, "ACL DELUSER poor") == 1);
}

/* Behind a place that lasts longer it gets one, but it may not make the queue last longer when it refreshes that. The others keep
 * their places: each gets a message when its turn comes, long before it would ask by itself. */
static void waits_last(const struct way *way)
{
    static char command[] = "pexpire";
    struct scene scene;
    struct pending waiters[2], last = PENDING_INIT;
    scene_begin(&scene, way, "waits last", NULL);
    mortise_client *poor = open_poor(way, "-pexpire", "foreign = poll\nretry = 50ms\n");
    mortise_lease *lease =
        scene_acquire(&scene, 0, MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS));
    for (int i = 0; i < 2; i++) {
        scene_want(&waiters[i], &scene, i + 1, MORTISE_EXCLUSIVE, 0);
        scene_wait(&scene, i + 1);
    }
    pending_start(&last, poor, scene.name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(test_poll(scene_has_refused, command, TEST_PATIENCE_MS));
    CHECK(queue_length(&server, scene.name) >= 2);
    give(lease);
    for (int i = 0; i < 2; i++)
        scene_join(&waiters[i]);
    scene_join(&last);
    forget_poor(poor);
    scene_end(&scene);
}

/* It is the first: a queue that never ends must not stay. */
static void waits_first(const struct way *way, const char *right)
{
    struct scene scene;
    struct pending first = PENDING_INIT;
    scene_begin(&scene, way, "waits first", NULL);
    mortise_client *poor = open_poor(way, right, "");
    mortise_lease *lease =
        scene_acquire(&scene, 0, MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS));
    pending_start(&first, poor, scene.name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    EXPECT(BACKEND, pending_join(&first));
    CHECK(queue_length(&server, scene.name) == 0);
    give(lease);
    forget_poor(poor);
    scene_end(&scene);
}

static void test_no_pexpire(void)
{
    for (size_t i = 0; i < WAYS; i += 2) {
        waits_first(&scene_ways[i], "-pexpire");
        waits_last(&scene_ways[i]);
    }
}

/* It is refused, so it must have no place: nobody would take what is handed to that. */
static void waits_second(const struct way *way, const char *right)
{
    struct scene scene;
    struct pending earlier = PENDING_INIT, first, second = PENDING_INIT;
    scene_begin(&scene, way, "waits second", NULL);
    mortise_client *poor = open_poor(way, "", "");
    mortise_lease *lease =
        scene_acquire(&scene, 0, MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS));
    pending_start(&earlier, poor, scene.name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    scene_wait(&scene, 1);
    give(lease);
    scene_join(&earlier); /* it has an inbox from now on, and asks for a place at once */
    CHECK(ask_is(&server, "OK", "ACL SETUSER poor %s", right));
    lease =
        scene_acquire(&scene, 0, MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS));
    scene_want(&first, &scene, 1, MORTISE_EXCLUSIVE, 0);
    scene_wait(&scene, 1);
    pending_start(&second, poor, scene.name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    EXPECT(BACKEND, pending_join(&second));
    CHECK(queue_length(&server, scene.name) == 1);
    give(lease);
    scene_join(&first);
    forget_poor(poor);
    scene_end(&scene);
}

static void test_no_pttl(void)
{
    waits_first(&scene_ways[2], "-pttl");
    waits_second(&scene_ways[0], "-pttl");
}

/* Whoever gets the lock may have others of its owner, who hold with it. This user may not do all that handing it on to them takes:
 * its release is done all the same. */
static void releases_without(const struct way *way, const char *right)
{
    struct scene scene;
    struct pending waiter = PENDING_INIT, other = PENDING_INIT;
    mortise_lease *lease = NULL;
    scene_begin(&scene, way, right, NULL);
    mortise_client *asker =
        open_at(&server, NULL, NULL, "mode = hash\nforeign = poll\nretry = 50ms\n");
    mortise_client *poor = open_poor(way, right, "");
    EXPECT(OK, mortise_acquire(poor, scene.name,
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS),
                               &lease, &detail));
    pending_start(&waiter, scene.client[0], scene.name,
                  MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS, .owner = "us:1"));
    scene_wait(&scene, 1);
    pending_start(&other, asker, scene.name,
                  MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS, .owner = "us:1"));
    scene_wait(&scene, 2);
    give(lease);
    EXPECT(OK, pending_join(&waiter));
    EXPECT(OK, pending_join(&other)); /* it asked by itself, if nobody told it */
    CHECK(holds(&server, scene.name) == 2);
    give(other.lease);
    give(waiter.lease);
    close_client(asker);
    forget_poor(poor);
    scene_end(&scene);
}

static void test_no_look(void)
{
    releases_without(&scene_ways[2], "-hget");
    releases_without(&scene_ways[2], "-lrange");
}

/* The first waiter, whose process is killed. */
static void wait_dead(struct scene *scene)
{
    struct test_process taker;
    if (!start_taker(&server, &taker, scene->way->settings))
        return;
    CHECK(test_say(&taker, "acquire %s -1 %d", scene->name, LONG_MS));
    scene_wait(scene, 1);
    test_kill(&taker);
    CHECK(wait_inboxes(&server, 0));
}

/* Nor may it remove the former grant: whoever waits behind a dead one has the lock at once all the same. Or it may not make the lock
 * end: then the lock is deleted, and the waiter asks again. */
static void breaks_without(const struct way *way, const char *right, bool handed)
{
    struct scene scene;
    struct pending waiter;
    scene_begin(&scene, way, right, "renew_every = 50ms\n");
    snprintf(scene.name, sizeof scene.name, "breaks%s", right); /* one word */
    mortise_client *poor = open_poor(way, right, "");
    mortise_lease *lease =
        scene_acquire(&scene, 0, MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS));
    if (handed)
        wait_dead(&scene);
    scene_want(&waiter, &scene, 1, MORTISE_EXCLUSIVE, 0);
    scene_wait(&scene, handed ? 2 : 1);
    EXPECT(OK, mortise_break(poor, scene.name, mortise_token(lease), &detail));
    if (handed)
        CHECK(holds(&server, scene.name) == 1);
    CHECK(wait_state(lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    EXPECT(OK, pending_join(&waiter));
    CHECK(holds(&server, scene.name) == 1);
    EXPECT(LOST, mortise_release(lease, &detail));
    give(waiter.lease);
    forget_poor(poor);
    scene_end(&scene);
}

static void test_no_removal(void)
{
    releases_without(&scene_ways[2], "-hdel");
    breaks_without(&scene_ways[2], "-hdel", true);
    breaks_without(&scene_ways[2], "-pexpireat", false);
}

/* Whoever joins a hold of its owner must have no place. This user may not look for one: it gets nothing, and nothing of it stays. */
static void test_no_join(void)
{
    const struct way *way = &scene_ways[2];
    struct scene scene;
    struct pending waiter;
    mortise_lease *none = NULL;
    scene_begin(&scene, way, "joins", NULL);
    mortise_client *poor = open_poor(way, "-lrange", "");
    mortise_lease *lease =
        scene_acquire(&scene, 0, MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = LONG_MS, .owner = "us:1"));
    scene_want(&waiter, &scene, 1, MORTISE_EXCLUSIVE, 0);
    scene_wait(&scene, 1);
    EXPECT(BACKEND,
           mortise_acquire(poor, scene.name,
                           MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = LONG_MS, .owner = "us:1"), &none,
                           &detail));
    CHECK(holds(&server, scene.name) == 1);
    give(lease);
    scene_join(&waiter);
    forget_poor(poor);
    scene_end(&scene);
}

static const CU_TestInfo tests[] = {
    {"no right to make the queue last", test_no_pexpire},
    {"no right to know what time is left", test_no_pttl},
    {"no right to look for an owner's waiters", test_no_look},
    {"no right to remove the former holder", test_no_removal},
    {"no right to look for a place of who joins", test_no_join},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = server_start(&server, NULL);
    if (code == 0)
        code = run_tests("redis: the queue and rights", tests, argc, argv);
    return servers_end((struct server *const[]){&server}, 1, code);
}
