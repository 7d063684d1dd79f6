/* test_shared_half.c - who shares a lock stands in two keys, and a user of an ACL may lack the right to change one of them. Whatever it
 * lacks: the phase of the others goes on, and its marker lasts as long as each of them. */
#include "scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct server server;
struct server *const scene_server = &server;

/* A user with all rights; what it lacks is taken away by may_not(). */
static mortise_client *open_poor(const struct way *way, const char *core)
{
    char settings[200];
    snprintf(settings, sizeof settings, "%susername = poor\npassword = word\n", way->settings);
    CHECK(ask_is(&server, "OK", "ACL SETUSER poor on >word ~* &* +@all"));
    return open_at(&server, NULL, core, settings);
}

static void may_not(const char *rights)
{
    char command[100];
    snprintf(command, sizeof command, "ACL SETUSER poor %s", rights);
    CHECK(ask_is(&server, "OK", command));
}

static void forget_poor(mortise_client *poor)
{
    CHECK(ask_is(&server, "OK", "ACL SETUSER poor +@all"));
    close_client(poor);
    CHECK(ask_number(&server, "ACL DELUSER poor") == 1);
}

static mortise_status share(mortise_client *client, const struct scene *scene, int64_t ttl_ms,
                            mortise_lease **lease)
{
    return mortise_acquire(client, scene->name, SHARED(.wait_ms = 0, .ttl_ms = ttl_ms), lease,
                           &detail);
}

/* So many are in both keys, and the marker ends with the last of them: not earlier, or a writer would get in. */
static bool is_sound(const struct scene *scene, int64_t holders)
{
    static const char script[] =
        "local time, call = redis.call('time'), redis.call "
        "local count = call('zcard', KEYS[2]) "
        "local last = call('zrevrange', KEYS[2], '0', '0', 'withscores')[2] or '0' "
        "local ends = time[1] * 1000 + math.floor(time[2] / 1000) + call('pttl', KEYS[1]) "
        "return (call('hlen', KEYS[3]) == count + 2 and math.abs(ends - last) < 1000) and count or "
        "-1";
    return ask_number(
               &server,
               "EVAL %s 3 mortise:%s {mortise:%s}:mortise:holders {mortise:%s}:mortise:shares",
               script, scene->name, scene->name, scene->name) == holders;
}

/* The first of those who share ends, without a release. */
static void end_first(const struct scene *scene)
{
    CHECK(ask_number(&server, "EVAL %s 1 {mortise:%s}:mortise:holders",
                     "return redis.call('zadd', KEYS[1], 'xx', 'ch', 1, "
                     "redis.call('zrange', KEYS[1], 0, 0)[1])",
                     scene->name) == 1);
}

/* ---- it joins, and leaves ---------------------------------------------------------------------------------------------- */

/* Nothing of it stays if it may not join; nothing is half if it may not leave. */
static void joins_without(const struct way *way, const char *rights, bool joins, bool leaves)
{
    struct scene scene;
    mortise_lease *lease = NULL, *others[2];
    scene_begin(&scene, way, rights, "renew_every = 50ms\n");
    mortise_client *poor = open_poor(way, NULL);
    may_not(rights);
    for (int i = 0; i < 2; i++)
        others[i] = scene_share(&scene, i, 0);
    mortise_status status = share(poor, &scene, 2 * LONG_MS, &lease);
    CHECK(status == (joins ? MORTISE_OK : MORTISE_BACKEND));
    CHECK(is_sound(&scene, joins ? 3 : 2));
    if (joins) {
        uint64_t token = mortise_token(lease);
        status = mortise_release(lease, &detail);
        CHECK(status == (leaves ? MORTISE_OK : MORTISE_BACKEND));
        CHECK(is_sound(&scene, leaves ? 2 : 3));
        if (!leaves)
            EXPECT(OK, mortise_break(scene.client[2], scene.name, token, &detail));
    }
    for (int i = 0; i < 2; i++)
        CHECK(wait_renewals(scene.client[i], stats_of(scene.client[i]).renewals + 2));
    CHECK(is_sound(&scene, 2));
    for (int i = 0; i < 2; i++)
        give(others[i]);
    mortise_close(poor, NULL); /* UNREACHABLE, if a release was refused */
    CHECK(ask_number(&server, "ACL DELUSER poor") == 1);
    scene_end(&scene);
}

static void test_joins(void)
{
    static const struct {
        const char *rights;
        bool joins, leaves;
    } cases[] = {{"-hdel", true, false},
                 {"-zrem", true, false},
                 {"-del", true, true},
                 {"-zadd", false, false},
                 {"-hset", false, false},
                 {"-zrevrange", false, false},
                 {"-pexpireat", false, false},
                 {"-hdel -zadd", false, false},
                 {"-zrem -zadd", false, false},
                 {"-hdel -hset", false, false},
                 {"-hdel -zrevrange", false, false},
                 {"-zrem -zrevrange", false, false},
                 {"-hdel -pexpireat", false, false},
                 {"-zrem -pexpireat", false, false}};
    for (size_t i = 0; i < WAYS; i++)
        for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
            joins_without(&scene_ways[i], cases[k].rights, cases[k].joins, cases[k].leaves);
}

/* It would be the first, and could not end its lease: it gets none. */
static void test_begins(void)
{
    for (size_t i = 0; i < WAYS; i++) {
        struct scene scene;
        mortise_lease *none = NULL;
        scene_begin(&scene, &scene_ways[i], "begins", NULL);
        mortise_client *poor = open_poor(&scene_ways[i], NULL);
        may_not("-zscore");
        EXPECT(BACKEND, share(poor, &scene, LONG_MS, &none));
        CHECK(holds(&server, scene.name) == 0 && scene_holders(&scene) == 0);
        forget_poor(poor);
        scene_end(&scene);
    }
}

/* It is the only one: nobody is left whom a half could harm. */
static void test_leaves_last(void)
{
    static const char *const rights[] = {"-hdel", "-zrem"};
    for (size_t i = 0; i < WAYS; i++)
        for (int k = 0; k < 2; k++) {
            struct scene scene;
            mortise_lease *lease = NULL;
            scene_begin(&scene, &scene_ways[i], "leaves last", NULL);
            mortise_client *poor = open_poor(&scene_ways[i], NULL);
            may_not(rights[k]);
            EXPECT(OK, share(poor, &scene, LONG_MS, &lease));
            give(lease);
            CHECK(holds(&server, scene.name) == 0 && scene_holders(&scene) == 0);
            forget_poor(poor);
            scene_end(&scene);
        }
}

/* ---- one has ended that it may not take out ---------------------------------------------------------------------------- */

static bool note_one(const mortise_info *info, void *argument)
{
    *(int *)argument += info->held;
    return true;
}

/* It looks at the lock; another user does, and takes that one out. */
static void test_looks(void)
{
    for (size_t i = 0; i < WAYS; i++) {
        struct scene scene;
        mortise_info info = {.size = sizeof info};
        mortise_lease *none = NULL;
        int listed = 0;
        scene_begin(&scene, &scene_ways[i], "looks", NULL);
        mortise_client *poor = open_poor(&scene_ways[i], NULL);
        may_not("-hdel");
        mortise_lease *ended = scene_share(&scene, 0, 0);
        mortise_lease *lease =
            scene_acquire(&scene, 1, SHARED(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = 2 * LONG_MS));
        end_first(&scene);
        EXPECT(BACKEND, mortise_inspect(poor, scene.name, &info, &detail));
        EXPECT(BACKEND, mortise_list(poor, scene.name, note_one, &listed, &detail));
        EXPECT(BACKEND, share(poor, &scene, LONG_MS, &none));
        CHECK(is_sound(&scene, 2));
        EXPECT(OK, mortise_inspect(scene.client[2], scene.name, &info, &detail));
        CHECK(info.holders == 1 && is_sound(&scene, 1));
        EXPECT(LOST, mortise_release(ended, &detail));
        give(lease);
        forget_poor(poor);
        scene_end(&scene);
    }
}

/* It cannot renew its lease of that lock; those that are renewed with it are. */
static void renews(const struct way *way)
{
    enum { OTHERS = 4 };
    struct scene scene;
    struct told told = TOLD_INIT;
    mortise_lease *ended = NULL, *mine = NULL, *others[OTHERS];
    scene_begin(&scene, way, "renews", NULL);
    mortise_client *poor = open_poor(way, "renew_every = 50ms\n");
    EXPECT(OK, mortise_acquire(
                   scene.client[0], scene.name,
                   SHARED(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS / 2, .no_renew = true),
                   &ended, &detail));
    EXPECT(OK, share(poor, &scene, LONG_MS, &mine));
    for (int i = 0; i < OTHERS; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s %d", scene.name, i);
        EXPECT(OK, mortise_acquire(poor, name,
                                   SHARED(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS,
                                          .on_state = note_state, .user_data = &told),
                                   &others[i], &detail));
    }
    may_not("-hdel");
    CHECK(wait_renewals(poor, stats_of(poor).renewals + OTHERS + 1));
    end_first(&scene);
    CHECK(wait_state(mine, MORTISE_STATE_SUSPECT, TEST_PATIENCE_MS));
    CHECK(wait_renewals(poor, stats_of(poor).renewals + 4 * OTHERS));
    CHECK(test_count_get(&told.suspect) == 0 && test_count_get(&told.lost) == 0);
    EXPECT(LOST, mortise_release(ended, &detail)); /* which takes it out */
    CHECK(wait_state(mine, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    give(mine);
    for (int i = 0; i < OTHERS; i++)
        give(others[i]);
    forget_poor(poor);
    scene_end(&scene);
}

static void test_renews(void)
{
    for (size_t i = 0; i < WAYS; i++)
        renews(&scene_ways[i]);
}

/* It may not write the marker of a hash any more. What was asked for and refused is not there for the next one, which asks for less. */
static void test_extends(void)
{
    for (size_t i = 2; i < WAYS; i++) {
        struct scene scene;
        mortise_lease *lease = NULL;
        scene_begin(&scene, &scene_ways[i], "extends", NULL);
        mortise_client *poor = open_poor(&scene_ways[i], NULL);
        EXPECT(OK, mortise_acquire(
                       poor, scene.name,
                       SHARED(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS / 4, .no_renew = true),
                       &lease, &detail));
        may_not("-hset");
        EXPECT(BACKEND, mortise_extend(lease, LONG_MS, &detail));
        CHECK(is_sound(&scene, 1));
        EXPECT(BACKEND, mortise_extend(lease, LONG_MS / 2, &detail));
        give(lease);
        forget_poor(poor);
        scene_end(&scene);
    }
}

/* ---- it hands the lock to a client that has ended ---------------------------------------------------------------------- */

/* The place of a shared waiter whose client has been closed. The caller frees it. */
static redisReply *place_of_nobody(const struct scene *scene)
{
    struct pending waiter = PENDING_INIT;
    mortise_client *client = open_at(&server, NULL, NULL, scene->way->settings);
    pending_start(&waiter, client, scene->name, SHARED(.wait_ms = -1, .ttl_ms = 2 * LONG_MS));
    CHECK(wait_queue(&server, scene->name, 1));
    redisReply *place = ask(&server, "LINDEX {mortise:%s}:mortise:queue 0", scene->name);
    EXPECT(OK, mortise_cancel(client, waiter.request));
    EXPECT(CANCELED, pending_join(&waiter));
    close_client(client);
    CHECK(place && place->type == REDIS_REPLY_STRING);
    return place;
}

/* It releases an exclusive lease. That place is the first in the queue, or the second, behind another reader's. What is given to it
 * cannot be taken back if somebody shares with it, and the release is done all the same. */
static void lets_in_nobody(const struct way *way, const char *rights, bool first)
{
    struct scene scene;
    struct pending reader;
    mortise_lease *lease = NULL, *next = NULL;
    mortise_info info = {.size = sizeof info};
    scene_begin(&scene, way, first ? "nobody first" : "nobody second", NULL);
    mortise_client *poor = open_poor(way, NULL);
    may_not(rights);
    EXPECT(OK, mortise_acquire(poor, scene.name,
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS),
                               &lease, &detail));
    redisReply *place = place_of_nobody(&scene);
    scene_want(&reader, &scene, 0, MORTISE_SHARED, 0);
    scene_wait(&scene, 1);
    if (place)
        CHECK(ask_number(&server, "%s {mortise:%s}:mortise:queue %b", first ? "LPUSH" : "RPUSH",
                         scene.name, place->str, place->len) == 2);
    freeReplyObject(place);
    give(lease);
    EXPECT(OK, pending_join(&reader));
    CHECK(queue_length(&server, scene.name) == 0);
    CHECK(is_sound(&scene, first ? 1 : 2));
    EXPECT(OK, share(scene.client[1], &scene, LONG_MS, &next));
    CHECK(is_sound(&scene, first ? 2 : 3));
    give(reader.lease);
    give(next);
    if (!first) {
        EXPECT(OK, mortise_inspect(scene.client[2], scene.name, &info, &detail));
        EXPECT(OK, mortise_break(scene.client[2], scene.name, info.token, &detail));
    }
    forget_poor(poor);
    scene_end(&scene);
}

static void test_lets_in_nobody(void)
{
    for (size_t i = 0; i < WAYS; i += 2) {
        lets_in_nobody(&scene_ways[i], "-hdel", true);
        lets_in_nobody(&scene_ways[i], "-hdel", false);
        lets_in_nobody(&scene_ways[i], "-zrem", true);
        lets_in_nobody(&scene_ways[i], "-zrem", false);
    }
}

static const CU_TestInfo tests[] = {
    {"joins and leaves", test_joins},
    {"begins what it could not end", test_begins},
    {"leaves as the last one", test_leaves_last},
    {"looks where one has ended", test_looks},
    {"renews where one has ended", test_renews},
    {"extends what it may not write", test_extends},
    {"lets in a waiter that is gone", test_lets_in_nobody},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = server_start(&server, NULL);
    if (code == 0)
        code = run_tests("redis: shared locks and half the rights", tests, argc, argv);
    return servers_end((struct server *const[]){&server}, 1, code);
}
