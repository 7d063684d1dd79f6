/* test_shared_rights.c - shared locks for users of an ACL that lack rights, or lose them while they hold a lock. */
#include "scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct server server;
struct server *const scene_server = &server;

static mortise_client *open_poor(const struct way *way)
{
    char settings[200];
    snprintf(settings, sizeof settings, "%susername = poor\npassword = word\n", way->settings);
    return open_at(&server, NULL, NULL, settings);
}

/* Rights are withdrawn from an exclusive holder. Its downgrade is done, whatever fails of what it does for those who wait; or it is
 * refused, and the lease is as before. */
static void downgrade_without(const struct way *way)
{
    static const char *const rights[] = {"-zrevrange", "-lpop", "-set"};
    for (int i = 0; i < 3; i++) {
        bool refused = i == 2 && strstr(way->settings, "hash") == NULL;
        struct scene scene;
        struct pending reader = PENDING_INIT;
        mortise_lease *lease = NULL;
        CHECK(ask_is(&server, "OK", "ACL SETUSER poor on >word ~* &* +@all"));
        scene_begin(&scene, way, rights[i], NULL);
        mortise_client *poor = open_poor(way);
        EXPECT(OK, mortise_acquire(poor, scene.name,
                                   MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS),
                                   &lease, &detail));
        pending_start(&reader, scene.client[1], scene.name, SHARED(.wait_ms = -1, .ttl_ms = 900));
        scene_wait(&scene, 1);
        CHECK(ask_is(&server, "OK", "ACL SETUSER poor %s", rights[i]));
        mortise_status status = mortise_downgrade(lease, &detail);
        CHECK(status == (refused ? MORTISE_BACKEND : MORTISE_OK));
        CHECK(holds(&server, scene.name) == 1 && (scene_holders(&scene) == 0) == refused);
        CHECK(ask_is(&server, "OK", "ACL SETUSER poor +@all"));
        if (refused)
            give(lease);
        scene_join(&reader);
        if (!refused)
            give(lease);
        close_client(poor);
        scene_end(&scene);
        CHECK(ask_number(&server, "ACL DELUSER poor") == 1);
    }
}

static void test_downgrade(void)
{
    for (size_t i = 0; i < WAYS; i++)
        downgrade_without(&scene_ways[i]);
}

static bool count(const mortise_info *info, void *argument)
{
    int *number = argument;
    *number += info->held && info->mode == MORTISE_SHARED && info->holders == 1;
    return true;
}

/* Who has no queue needs no right to it. */
static void test_no_queue(void)
{
    for (size_t i = 1; i < WAYS; i += 2) {
        struct scene scene;
        mortise_lease *lease = NULL;
        mortise_info info = {.size = sizeof info};
        int listed = 0, holders = 0;
        CHECK(ask_is(&server, "OK", "ACL SETUSER poor on >word ~* &* +@all -@list"));
        scene_begin(&scene, &scene_ways[i], "no right to the queue", NULL);
        mortise_client *poor = open_poor(&scene_ways[i]);
        EXPECT(OK, mortise_acquire(poor, scene.name,
                                   SHARED(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS), &lease,
                                   &detail));
        EXPECT(OK, mortise_inspect(poor, scene.name, &info, &detail));
        CHECK(count(&info, &holders) && holders == 1 && info.waiters == -1);
        EXPECT(OK, mortise_list(poor, scene.name, count, &listed, &detail));
        EXPECT(OK, mortise_holders(poor, scene.name, count, &holders, &detail));
        CHECK(listed == 1 && holders == 2);
        EXPECT(OK, mortise_break(poor, scene.name, mortise_token(lease), &detail));
        EXPECT(LOST, mortise_release(lease, &detail));
        close_client(poor);
        scene_end(&scene);
        CHECK(ask_number(&server, "ACL DELUSER poor") == 1);
    }
}

static mortise_status acquire_some(const struct scene *scene, mortise_client *client,
                                   uint32_t permits, mortise_lease **lease)
{
    return mortise_acquire(client, scene->name,
                           SHARED(.wait_ms = 0, .ttl_ms = LONG_MS, .permits = permits), lease,
                           &detail);
}

/* Nor the right to take places out of it: it passes them. */
static void test_no_pop(void)
{
    for (size_t i = 1; i < WAYS; i += 2) {
        struct scene scene;
        mortise_lease *first = NULL, *second = NULL, *misfit = NULL;
        CHECK(ask_is(&server, "OK", "ACL SETUSER poor on >word ~* &* +@all -lpop"));
        scene_begin(&scene, &scene_ways[i], "no right to pop", NULL);
        mortise_client *poor = open_poor(&scene_ways[i]);
        CHECK(ask_number(&server, "RPUSH {mortise:%s}:mortise:queue gone", scene.name) == 1);
        EXPECT(OK, acquire_some(&scene, poor, 3, &first));
        EXPECT(OK, acquire_some(&scene, poor, 3, &second));
        EXPECT(INVALID, acquire_some(&scene, poor, 4, &misfit));
        CHECK(scene_holders(&scene) == 2 && queue_length(&server, scene.name) == 1);
        give(second);
        give(first);
        CHECK(ask_number(&server, "DEL {mortise:%s}:mortise:queue", scene.name) == 1);
        close_client(poor);
        scene_end(&scene);
        CHECK(ask_number(&server, "ACL DELUSER poor") == 1);
    }
}

/* Who shares a hash is not told without HGET: an inspect says so, and does not ask again until its time is over. */
static void test_no_look(void)
{
    for (size_t i = 2; i < WAYS; i++) {
        struct scene scene;
        mortise_info info = {.size = sizeof info};
        char settings[200];
        int listed = 0;
        CHECK(ask_is(&server, "OK", "ACL SETUSER poor on >word ~* &* +@all -hget"));
        scene_begin(&scene, &scene_ways[i], "no right to look", NULL);
        snprintf(settings, sizeof settings, "%susername = poor\npassword = word\n",
                 scene_ways[i].settings);
        mortise_client *poor = open_at(&server, NULL, "unreachable_timeout = 2s\n", settings);
        mortise_lease *lease = scene_share(&scene, 0, 0);
        EXPECT(BACKEND, mortise_inspect(poor, scene.name, &info, &detail));
        SAYS("can't run this command");
        EXPECT(BACKEND, mortise_list(poor, scene.name, count, &listed, &detail));
        give(lease);
        close_client(poor);
        scene_end(&scene);
        CHECK(ask_number(&server, "ACL DELUSER poor") == 1);
    }
}

/* A user without HGET holds the lock for an owner, and its renewals are refused. */
static mortise_client *own_without_hget(const char *name, struct told *told, mortise_lease **lease)
{
    CHECK(ask_is(&server, "OK", "ACL SETUSER poor on >word ~* &* +@all -hget"));
    mortise_client *poor = open_at(&server, NULL, "renew_every = 100ms\n",
                                   "mode = hash\ndialect = redisson\n"
                                   "username = poor\npassword = word\n");
    EXPECT(OK, mortise_acquire(poor, name,
                               MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = LONG_MS, .owner = "us:1",
                                               .on_state = note_state, .user_data = told),
                               lease, &detail));
    CHECK(test_count_wait(&told->suspect, 1));
    return poor;
}

/* Whether a shared owner's grant still stands is not told without HGET: it is not lost. */
static void test_owner(void)
{
    struct told told = TOLD_INIT;
    mortise_lease *lease = NULL;
    mortise_client *poor = own_without_hget("owned", &told, &lease);
    CHECK(holds(&server, "owned") == 1);
    CHECK(ask_is(&server, "OK", "ACL SETUSER poor +hget"));
    CHECK(wait_state(lease, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    CHECK(test_count_get(&told.lost) == 0);
    give(lease);
    CHECK(holds(&server, "owned") == 0);
    close_client(poor);
    CHECK(ask_number(&server, "ACL DELUSER poor") == 1);
}

/* Nor need it be told if nobody has the lock any more: the lease is lost at once, and not only at its deadline. */
static void test_owner_gone(void)
{
    struct told told = TOLD_INIT;
    mortise_lease *lease = NULL;
    mortise_client *poor = own_without_hget("forced", &told, &lease);
    CHECK(ask_number(&server, "DEL mortise:forced") == 1);
    CHECK(test_count_wait(&told.lost, 1));
    mortise_release(lease, NULL);
    close_client(poor);
    CHECK(ask_number(&server, "ACL DELUSER poor") == 1);
}

static bool has_run(void *wanted)
{
    return calls_of(&server, "evalsha") >= *(int64_t *)wanted;
}

static bool has_long_bar(void *scene)
{
    return scene_bar_ms(scene) > 1000;
}

static bool has_place(void *scene)
{
    return queue_length(&server, ((struct scene *)scene)->name) == 1;
}

/* The lock is shared, and whatever new readers come, also those that queue: the writer is next. */
static void writer_bars(struct scene *scene, mortise_client *poor)
{
    struct pending writer = PENDING_INIT, reader;
    mortise_lease *lease = scene_share(scene, 0, 0);
    pending_start(&writer, poor, scene->name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(test_poll(scene_has_bar, scene, TEST_PATIENCE_MS));
    EXPECT(BUSY, scene_try(scene, 1, 0));
    scene_want(&reader, scene, 2, MORTISE_SHARED, 0);
    CHECK(wait_inboxes(&server, 1)); /* now it asks for a place, and gets none */
    int64_t wanted = calls_of(&server, "evalsha") + 20, searches = calls_of(&server, "lrange");
    int64_t sets = calls_of(&server, "set"), began_ms = test_now_ms();
    CHECK(test_poll(has_run, &wanted, TEST_PATIENCE_MS));
    /* at most once a second, however often the writer asks; but always before it is over */
    CHECK(calls_of(&server, "set") - sets <= (test_now_ms() - began_ms) / 1000 + 2);
    CHECK(ask_number(&server, "PEXPIRE {mortise:%s}:mortise:bar 990", scene->name) == 1);
    CHECK(test_poll(has_long_bar, scene, TEST_PATIENCE_MS));
    CHECK(queue_length(&server, scene->name) == 0 && test_count_get(&reader.calls) == 0);
    give(lease);
    EXPECT(OK, pending_join(&writer));
    CHECK(test_poll(has_place, scene, TEST_PATIENCE_MS)); /* a new one: nobody looks for another */
    CHECK(calls_of(&server, "lrange") == searches && test_count_get(&reader.calls) == 0);
    give(writer.lease);
    scene_join(&reader);
}

/* A writer that may not subscribe has no place in the queue. So it bars new readers, which get none either: the reader before them
 * would give them the lock. */
static void test_deaf_writer(void)
{
    for (size_t i = 0; i < WAYS; i += 2) {
        struct scene scene;
        CHECK(ask_is(&server, "OK", "ACL SETUSER poor on >word ~* &* +@all -subscribe"));
        scene_begin(&scene, &scene_ways[i], "no right to subscribe", NULL);
        mortise_client *poor = open_poor(&scene_ways[i]);
        writer_bars(&scene, poor);
        close_client(poor);
        scene_end(&scene);
        CHECK(ask_number(&server, "ACL DELUSER poor") == 1);
    }
}

/* Nor has it the rights of those who share: it waits without a bar. So does one that has no queue. */
static void test_poorer_writer(void)
{
    for (size_t i = 0; i < WAYS; i++) {
        struct scene scene;
        struct pending writer = PENDING_INIT;
        static char command[] = "zcard";
        CHECK(ask_is(&server, "OK", "ACL LOG RESET"));
        CHECK(ask_is(&server, "OK", "ACL SETUSER poor on >word ~* &* +@all %s -%s",
                     scene_ways[i].queued ? "-subscribe" : "+subscribe", command));
        scene_begin(&scene, &scene_ways[i], "no right to bar", NULL);
        mortise_client *poor = open_poor(&scene_ways[i]);
        mortise_lease *lease = scene_share(&scene, 0, 0);
        pending_start(&writer, poor, scene.name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
        CHECK(test_poll(scene_has_refused, command, TEST_PATIENCE_MS));
        give(lease);
        scene_join(&writer);
        close_client(poor);
        scene_end(&scene);
        CHECK(ask_number(&server, "ACL DELUSER poor") == 1);
    }
}

static void give_up(mortise_client *client, struct pending *pending)
{
    EXPECT(OK, mortise_cancel(client, pending->request));
    EXPECT(CANCELED, pending_join(pending));
}

/* It waits behind shared holders, and gives up: its place is gone. */
static void test_poorer_gives_up(void)
{
    for (size_t i = 0; i < WAYS; i += 2) {
        struct scene scene;
        struct pending writer = PENDING_INIT;
        CHECK(ask_is(&server, "OK", "ACL SETUSER poor on >word ~* &* +@all -zcard"));
        scene_begin(&scene, &scene_ways[i], "no right to count", NULL);
        mortise_client *poor = open_poor(&scene_ways[i]);
        mortise_lease *lease = scene_share(&scene, 0, 0);
        pending_start(&writer, poor, scene.name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
        scene_wait(&scene, 1);
        give_up(poor, &writer);
        CHECK(wait_queue(&server, scene.name, 0));
        EXPECT(OK, mortise_close(poor, &detail));
        give(lease);
        scene_end(&scene);
        CHECK(ask_number(&server, "ACL DELUSER poor") == 1);
    }
}

/* A user without this right holds the lock of the scene. */
static mortise_client *poor_holds(struct scene *scene, const struct way *way, const char *right,
                                  mortise_lease **lease)
{
    CHECK(ask_is(&server, "OK", "ACL SETUSER poor on >word ~* &* +@all %s", right));
    scene_begin(scene, way, right, NULL);
    mortise_client *poor = open_poor(way);
    EXPECT(OK, mortise_acquire(poor, scene->name,
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS),
                               lease, &detail));
    return poor;
}

/* It gives the lock back, and may not make the first of the queue a shared holder: the next one gets it, in the same step, and
 * that one is told, and waits behind it. */
static void releases_without(const struct way *way, const char *right)
{
    struct scene scene;
    struct pending reader, writer;
    mortise_lease *lease = NULL;
    mortise_client *poor = poor_holds(&scene, way, right, &lease);
    scene_want(&reader, &scene, 1, MORTISE_SHARED, 0);
    scene_wait(&scene, 1);
    scene_want(&writer, &scene, 2, MORTISE_EXCLUSIVE, 0);
    scene_wait(&scene, 2);
    give(lease);
    CHECK(holds(&server, scene.name) == 1);
    EXPECT(OK, pending_join(&writer));
    scene_wait(&scene, 1);
    give(writer.lease);
    scene_join(&reader);
    close_client(poor);
    scene_end(&scene);
    CHECK(ask_number(&server, "ACL DELUSER poor") == 1);
}

static void test_poorer_releases(void)
{
    for (size_t i = 0; i < WAYS; i += 2) {
        releases_without(&scene_ways[i], "-zadd");
        releases_without(&scene_ways[i], "-zscore");
    }
}

/* Only such callers are in the queue: they are told, and share it at once, long before they would ask by themselves. */
static void releases_to_readers_without(const struct way *way, const char *right)
{
    struct scene scene;
    struct pending reader[2];
    mortise_lease *lease = NULL;
    mortise_client *poor = poor_holds(&scene, way, right, &lease);
    for (int k = 0; k < 2; k++) {
        scene_want(&reader[k], &scene, k, MORTISE_SHARED, 0);
        scene_wait(&scene, k + 1);
    }
    give(lease);
    for (int k = 0; k < 2; k++)
        EXPECT(OK, pending_join(&reader[k]));
    CHECK(scene_holders(&scene) == 2);
    for (int k = 0; k < 2; k++)
        give(reader[k].lease);
    close_client(poor);
    scene_end(&scene);
    CHECK(ask_number(&server, "ACL DELUSER poor") == 1);
}

static void test_poorer_releases_to_readers(void)
{
    for (size_t i = 0; i < WAYS; i += 2) {
        releases_to_readers_without(&scene_ways[i], "-zadd");
        releases_to_readers_without(&scene_ways[i], "-zscore");
    }
}

/* It waits behind a shared holder, and gives up: the reader behind it, which it may not let in, asks itself. Nor does it harm those
 * who share when it asks to share itself. */
static void lets_in_without(const struct way *way, const char *rights)
{
    struct scene scene;
    struct pending reader, writer = PENDING_INIT;
    mortise_lease *none = NULL;
    CHECK(ask_is(&server, "OK", "ACL SETUSER poor on >word ~* &* +@all"));
    CHECK(ask_is(&server, "OK", rights));
    scene_begin(&scene, way, rights, "renew_every = 100ms\n");
    mortise_client *poor = open_poor(way);
    mortise_lease *lease = scene_share(&scene, 0, 0);
    pending_start(&writer, poor, scene.name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    scene_wait(&scene, 1);
    scene_want(&reader, &scene, 1, MORTISE_SHARED, 0);
    scene_wait(&scene, 2);
    give_up(poor, &writer);
    EXPECT(OK, pending_join(&reader));
    EXPECT(BACKEND, acquire_some(&scene, poor, 0, &none));
    CHECK(wait_renewals(scene.client[0], stats_of(scene.client[0]).renewals + 2));
    CHECK(scene_holders(&scene) == 2);
    give(reader.lease);
    give(lease);
    close_client(poor);
    scene_end(&scene);
    CHECK(ask_number(&server, "ACL DELUSER poor") == 1);
}

static void test_poorer_lets_in(void)
{
    for (size_t i = 0; i < WAYS; i += 2) {
        lets_in_without(&scene_ways[i], "ACL SETUSER poor -zadd");
        lets_in_without(&scene_ways[i], "ACL SETUSER poor -zadd -zrem");
    }
}

static const CU_TestInfo tests[] = {
    {"a downgrade, and rights are withdrawn", test_downgrade},
    {"no queue, and no right to it", test_no_queue},
    {"no queue, and no right to take places out of it", test_no_pop},
    {"no right to see who shares", test_no_look},
    {"no right to see whether an owner's grant stands", test_owner},
    {"no right to see whether an owner's grant stands, and it is gone", test_owner_gone},
    {"a writer without the right to subscribe", test_deaf_writer},
    {"a writer without the rights to subscribe and to share", test_poorer_writer},
    {"a writer without the rights to share gives up", test_poorer_gives_up},
    {"a writer without the rights to share releases", test_poorer_releases},
    {"a writer without the rights to share releases to readers", test_poorer_releases_to_readers},
    {"a writer without the rights to share lets readers in", test_poorer_lets_in},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = server_start(&server, NULL);
    if (code == 0)
        code = run_tests("redis: shared locks and rights", tests, argc, argv);
    return servers_end((struct server *const[]){&server}, 1, code);
}
