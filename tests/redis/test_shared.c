/* test_shared.c - shared holders and permits on a real server, in both layouts, with and without a queue: who gets in, in
 * which order, and who is kept out. */
#include "scene.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static struct server server;
struct server *const scene_server = &server;

/* ---- who gets in ----------------------------------------------------------------------------------------- */

struct seen {
    int count;
    uint64_t tokens[8];
    mortise_info last;
};

static bool see(const mortise_info *info, void *argument)
{
    struct seen *seen = argument;
    if (seen->count < 8)
        seen->tokens[seen->count++] = info->token;
    seen->last = *info;
    return true;
}

static void readers_and_writer(const struct way *way)
{
    struct scene scene;
    struct pending writer;
    struct seen seen = {.count = 0}, listed = {.count = 0};
    mortise_info info = {.size = sizeof info};
    scene_begin(&scene, way, "readers", NULL);
    mortise_lease *first = scene_share(&scene, 0, 0), *second = scene_share(&scene, 1, 0);
    CHECK(mortise_token(second) > mortise_token(first));
    CHECK(scene_holders(&scene) == 2);
    EXPECT(BUSY, try_once(scene.client[2], scene.name));
    EXPECT(OK, mortise_inspect(scene.client[2], scene.name, &info, &detail));
    CHECK(info.held && info.mode == MORTISE_SHARED && info.permits == 0 && info.holders == 2);
    CHECK(info.token == mortise_token(first) && info.pid > 0);
    CHECK(info.waiters == (way->queued ? 0 : -1));
    CHECK(info.remaining_ms > LONG_MS / 2 && info.remaining_ms <= LONG_MS);
    EXPECT(OK, mortise_holders(scene.client[2], scene.name, see, &seen, &detail));
    CHECK(seen.count == 2 && seen.tokens[0] == mortise_token(first) &&
          seen.tokens[1] == mortise_token(second));
    CHECK(strcmp(seen.last.name, scene.name) == 0);
    EXPECT(OK, mortise_list(scene.client[2], scene.name, see, &listed, &detail));
    CHECK(listed.count == 1 && listed.last.holders == 2 && listed.last.mode == MORTISE_SHARED &&
          listed.tokens[0] == mortise_token(first));
    scene_want(&writer, &scene, 2, MORTISE_EXCLUSIVE, 0);
    scene_wait(&scene, 1);
    give(first);
    CHECK(test_count_get(&writer.calls) == 0);
    give(second);
    EXPECT(OK, pending_join(&writer));
    CHECK(mortise_token(writer.lease) > seen.tokens[1]);
    EXPECT(BUSY, scene_try(&scene, 0, 0));
    seen.count = 0;
    EXPECT(OK, mortise_holders(scene.client[1], scene.name, see, &seen, &detail));
    CHECK(seen.count == 1 && seen.last.mode == MORTISE_EXCLUSIVE && seen.last.holders == 1);
    give(writer.lease);
    scene_end(&scene);
}

/* Each holder has its own end; the lock ends with the last, and earlier again if that one releases. */
static void own_ends(const struct way *way)
{
    struct scene scene;
    scene_begin(&scene, way, "ends", NULL);
    mortise_lease *brief =
        scene_acquire(&scene, 0, SHARED(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = 60000));
    mortise_lease *late = scene_share(&scene, 1, 0);
    int64_t left = pttl(&server, scene.name);
    CHECK(left > 60000 && left <= LONG_MS);
    give(late);
    left = pttl(&server, scene.name);
    CHECK(left > 0 && left <= 60000);
    CHECK(is_covered(&server, scene.name, brief));
    mortise_lease *ends = scene_acquire(
        &scene, 1, SHARED(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = 300, .no_renew = true));
    CHECK(wait_state(ends, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    EXPECT(LOST, mortise_release(ends, &detail));
    CHECK(mortise_state(brief) == MORTISE_STATE_HELD);
    give(brief);
    scene_end(&scene);
}

static void permits(const struct way *way)
{
    struct scene scene;
    struct pending one, other;
    mortise_info info = {.size = sizeof info};
    scene_begin(&scene, way, "permits", NULL);
    mortise_lease *first = scene_share(&scene, 0, 2), *second = scene_share(&scene, 1, 2);
    EXPECT(BUSY, scene_try(&scene, 2, 2));
    EXPECT(INVALID, scene_try(&scene, 2, 3));
    SAYS("permits = 3 was asked for");
    SAYS("permits = 2");
    SAYS("(pid ");
    EXPECT(INVALID, scene_try(&scene, 2, 0));
    EXPECT(BUSY, try_once(scene.client[2], scene.name));
    EXPECT(OK, mortise_inspect(scene.client[2], scene.name, &info, &detail));
    CHECK(info.permits == 2 && info.holders == 2);
    scene_want(&one, &scene, 2, MORTISE_SHARED, 2);
    scene_wait(&scene, 1);
    scene_want(&other, &scene, 0, MORTISE_SHARED, 2);
    scene_wait(&scene, 2);
    give(first);
    give(second);
    EXPECT(OK, pending_join(&one)); /* both come back, and both get in */
    EXPECT(OK, pending_join(&other));
    CHECK(scene_holders(&scene) == 2);
    give(one.lease);
    give(other.lease);
    EXPECT(OK, scene_try(&scene, 0, 3)); /* nobody holds it: another number may be set */
    scene_end(&scene);
}

/* A holder that does not renew gives its permit back at its own end. */
static void dead_holder(const struct way *way)
{
    struct scene scene;
    struct pending waiter;
    scene_begin(&scene, way, "dead", NULL);
    mortise_lease *lives = scene_share(&scene, 0, 2);
    mortise_lease *dies = scene_acquire(
        &scene, 1,
        SHARED(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = 500, .permits = 2, .no_renew = true));
    scene_want(&waiter, &scene, 2, MORTISE_SHARED, 2);
    scene_join(&waiter);
    EXPECT(LOST, mortise_release(dies, &detail));
    CHECK(scene_holders(&scene) == 1);
    give(lives);
    /* of readers, the last one's end lets a writer in */
    dies = scene_acquire(&scene, 1,
                         SHARED(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = 500, .no_renew = true));
    scene_want(&waiter, &scene, 2, MORTISE_EXCLUSIVE, 0);
    scene_join(&waiter);
    EXPECT(LOST, mortise_release(dies, &detail));
    scene_end(&scene);
}

/* ---- downgrade, break ----------------------------------------------------------------------------------------- */

static void downgrade(const struct way *way)
{
    struct scene scene;
    struct pending reader, writer;
    mortise_info info = {.size = sizeof info};
    scene_begin(&scene, way, "downgrade", "renew_every = 50ms\n");
    mortise_lease *lease =
        scene_acquire(&scene, 0, MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS));
    uint64_t token = mortise_token(lease);
    scene_want(&reader, &scene, 1, MORTISE_SHARED, 0);
    scene_wait(&scene, 1);
    scene_want(&writer, &scene, 2, MORTISE_EXCLUSIVE, 0);
    scene_wait(&scene, 2);
    EXPECT(OK, mortise_downgrade(lease, &detail));
    EXPECT(OK, mortise_downgrade(lease, &detail));
    CHECK(mortise_token(lease) == token);
    EXPECT(OK, pending_join(&reader));
    CHECK(test_count_get(&writer.calls) == 0);
    CHECK(scene_holders(&scene) == 2);
    EXPECT(OK, mortise_inspect(scene.client[1], scene.name, &info, &detail));
    CHECK(info.mode == MORTISE_SHARED && info.token == token && info.holders == 2);
    CHECK(wait_renewals(scene.client[0], stats_of(scene.client[0]).renewals + 2));
    CHECK(mortise_state(lease) == MORTISE_STATE_HELD);
    give(lease);
    give(reader.lease);
    scene_join(&writer);
    scene_end(&scene);
}

/* A queued writer goes before the readers behind it: a downgrade lets nobody pass it. */
static void downgrade_in_order(const struct way *way)
{
    struct scene scene;
    struct pending reader, writer;
    scene_begin(&scene, way, "in order", "handover_max = 0\n");
    mortise_lease *lease =
        scene_acquire(&scene, 0, MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS));
    scene_want(&writer, &scene, 1, MORTISE_EXCLUSIVE, 0);
    CHECK(wait_queue(&server, scene.name, 1));
    scene_want(&reader, &scene, 2, MORTISE_SHARED, 0);
    CHECK(wait_queue(&server, scene.name, 2));
    EXPECT(OK, mortise_downgrade(lease, &detail));
    CHECK(queue_length(&server, scene.name) == 2);
    EXPECT(BUSY, scene_try(&scene, 0, 0));
    give(lease);
    EXPECT(OK, pending_join(&writer));
    CHECK(test_count_get(&reader.calls) == 0);
    give(writer.lease);
    scene_join(&reader);
    scene_end(&scene);
}

/* A release lets in the shared place at the head and those directly behind it, in one step; not those behind a writer. */
static void head_and_followers(const struct way *way)
{
    struct scene scene;
    struct pending one, two, writer, late;
    scene_begin(&scene, way, "followers", "handover_max = 0\n");
    mortise_client *fourth = open_at(&server, NULL, NULL, way->settings);
    mortise_lease *lease =
        scene_acquire(&scene, 0, MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS));
    scene_want(&one, &scene, 1, MORTISE_SHARED, 0);
    CHECK(wait_queue(&server, scene.name, 1));
    scene_want(&two, &scene, 2, MORTISE_SHARED, 0);
    CHECK(wait_queue(&server, scene.name, 2));
    scene_want(&writer, &scene, 0, MORTISE_EXCLUSIVE, 0);
    CHECK(wait_queue(&server, scene.name, 3));
    late = PENDING_INIT;
    pending_start(&late, fourth, scene.name, SHARED(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(wait_queue(&server, scene.name, 4));
    give(lease);
    CHECK(scene_holders(&scene) == 2 && queue_length(&server, scene.name) == 2);
    EXPECT(OK, pending_join(&one));
    EXPECT(OK, pending_join(&two));
    CHECK(is_covered(&server, scene.name, one.lease) && is_covered(&server, scene.name, two.lease));
    give(one.lease);
    give(two.lease);
    EXPECT(OK, pending_join(&writer));
    CHECK(test_count_get(&late.calls) == 0);
    give(writer.lease);
    scene_join(&late);
    close_client(fourth);
    scene_end(&scene);
}

/* The writer at the head gives up: the readers behind it share with those who hold. */
static void head_gives_up(const struct way *way)
{
    struct scene scene;
    struct pending reader, writer;
    scene_begin(&scene, way, "head", NULL);
    mortise_lease *lease = scene_share(&scene, 0, 0);
    scene_want(&writer, &scene, 1, MORTISE_EXCLUSIVE, 0);
    CHECK(wait_queue(&server, scene.name, 1));
    scene_want(&reader, &scene, 2, MORTISE_SHARED, 0);
    CHECK(wait_queue(&server, scene.name, 2));
    EXPECT(OK, mortise_cancel(scene.client[1], writer.request));
    EXPECT(CANCELED, pending_join(&writer));
    scene_join(&reader);
    give(lease);
    scene_end(&scene);
}

/* A waiter whose number of permits is another does not hold up those behind it: it is told to ask again, and is refused. */
static void other_number_queued(const struct way *way)
{
    struct scene scene;
    struct pending one, two, three;
    scene_begin(&scene, way, "number", NULL);
    mortise_lease *lease =
        scene_acquire(&scene, 0, MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS));
    scene_want(&one, &scene, 0, MORTISE_SHARED, 2);
    CHECK(wait_queue(&server, scene.name, 1));
    scene_want(&two, &scene, 1, MORTISE_SHARED, 3);
    CHECK(wait_queue(&server, scene.name, 2));
    scene_want(&three, &scene, 2, MORTISE_SHARED, 2);
    CHECK(wait_queue(&server, scene.name, 3));
    give(lease);
    CHECK(scene_holders(&scene) == 2 && queue_length(&server, scene.name) == 0);
    EXPECT(OK, pending_join(&one));
    EXPECT(INVALID, pending_join(&two));
    EXPECT(OK, pending_join(&three));
    CHECK(scene_holders(&scene) == 2);
    give(one.lease);
    give(three.lease);
    scene_end(&scene);
}

static void break_one(const struct way *way)
{
    struct scene scene;
    scene_begin(&scene, way, "break", NULL);
    mortise_lease *first = scene_share(&scene, 0, 2), *second = scene_share(&scene, 1, 2);
    EXPECT(NOTOWNER, mortise_break(scene.client[2], scene.name, 12345, &detail));
    EXPECT(OK, mortise_break(scene.client[2], scene.name, mortise_token(first), &detail));
    CHECK(scene_holders(&scene) == 1);
    EXPECT(OK, scene_try(&scene, 2, 2));
    EXPECT(LOST, mortise_release(first, &detail));
    EXPECT(OK, mortise_break(scene.client[2], scene.name, mortise_token(second), &detail));
    EXPECT(OK, try_once(scene.client[2], scene.name));
    EXPECT(LOST, mortise_release(second, &detail));
    scene_end(&scene);
}

/* A client that cannot share sees the lock held, and cannot end it by the token of the first holder. */
static void test_watch(void)
{
    struct scene scene;
    mortise_info info = {.size = sizeof info};
    scene_begin(&scene, &scene_ways[0], "watch", NULL);
    mortise_client *client = open_at(&server, NULL, NULL, "atomicity = watch\n");
    mortise_lease *lease = scene_share(&scene, 0, 0);
    EXPECT(BUSY, try_once(client, scene.name));
    EXPECT(OK, mortise_inspect(client, scene.name, &info, &detail));
    CHECK(info.held);
    EXPECT(NOTOWNER, mortise_break(client, scene.name, mortise_token(lease), &detail));
    CHECK(scene_holders(&scene) == 1 && holds(&server, scene.name) == 1);
    give(lease);
    EXPECT(OK, try_once(client, scene.name));
    close_client(client);
    scene_end(&scene);
}

/* ---- writers do not starve ------------------------------------------------------------------------------------ */

struct reader {
    const struct scene *scene;
    int who;
    atomic_bool *stops;
};

static void read_on(void *argument)
{
    struct reader *reader = argument;
    char text[256];
    while (!atomic_load(reader->stops)) {
        mortise_lease *lease = scene_acquire(
            reader->scene, reader->who, SHARED(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS));
        EXPECT(OK, mortise_ping(reader->scene->client[reader->who], text, sizeof text, &detail));
        give(lease);
    }
}

static void write_five_times(const struct scene *scene, atomic_bool *stops)
{
    for (int i = 0; i < 5; i++)
        give(scene_acquire(scene, 0,
                           MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS)));
    atomic_store(stops, true);
}

#define READERS 16
struct crowd {
    struct scene scene;
    atomic_bool stops;
};

static void in_crowd(void *argument)
{
    struct reader *reader = argument;
    if (reader->who == 0)
        write_five_times(reader->scene, reader->stops);
    else
        read_on(reader);
}

static void starving(const struct way *way)
{
    struct crowd crowd = {.stops = false};
    struct reader readers[READERS + 1];
    scene_begin(&crowd.scene, way, "starving", "handover_max = 0\n");
    for (int i = 0; i <= READERS; i++)
        readers[i] = (struct reader){&crowd.scene, i == 0 ? 0 : 1 + i % 2, &crowd.stops};
    in_parallel(in_crowd, readers, sizeof *readers, READERS + 1);
    snprintf(doing, sizeof doing, "starving, %s", way->name);
    scene_end(&crowd.scene);
}

/* The bar keeps new readers out, also a try; a writer that gives up takes it away after two seconds. */
static void barred(const struct way *way)
{
    struct scene scene;
    struct pending writer, reader;
    scene_begin(&scene, way, "barred", NULL);
    mortise_lease *lease = scene_share(&scene, 0, 0);
    EXPECT(BUSY, try_once(scene.client[1], scene.name)); /* a try sets none */
    CHECK(!scene_has_bar(&scene));
    scene_want(&writer, &scene, 1, MORTISE_EXCLUSIVE, 0);
    CHECK(test_poll(scene_has_bar, &scene, TEST_PATIENCE_MS));
    EXPECT(BUSY, scene_try(&scene, 2, 0));
    CHECK(ask_is(&server, "OK", "SCRIPT FLUSH"));
    scene_bar_lasts(&scene);
    scene_want(&reader, &scene, 2, MORTISE_SHARED, 0);
    give(lease);
    EXPECT(OK, pending_join(&writer));
    CHECK(test_count_get(&reader.calls) == 0);
    give(writer.lease); /* its grant has cleared the bar */
    scene_join(&reader);
    lease = scene_share(&scene, 0, 0);
    scene_want(&writer, &scene, 1, MORTISE_EXCLUSIVE, 0);
    CHECK(test_poll(scene_has_bar, &scene, TEST_PATIENCE_MS));
    EXPECT(OK, mortise_cancel(scene.client[1], writer.request));
    EXPECT(CANCELED, pending_join(&writer));
    scene_want(&reader, &scene, 2, MORTISE_SHARED, 0);
    scene_join(&reader);
    give(lease);
    scene_end(&scene);
}

/* A waiter that is not heard any more, because subscribing was forbidden, only tries; it learns that those who share have another
 * number of permits, and that is final: its place must not stay. */
static void place_taken_out(const struct way *way)
{
    struct scene scene;
    struct pending one, writer, other = PENDING_INIT;
    char settings[200];
    CHECK(ask_is(&server, "OK", "ACL SETUSER deaf on >word ~* &* +@all"));
    scene_begin(&scene, way, "taken out", NULL);
    snprintf(settings, sizeof settings, "%susername = deaf\npassword = word\n", way->settings);
    mortise_client *deaf = open_at(&server, NULL, NULL, settings);
    mortise_lease *lease = take(scene.client[0], scene.name);
    scene_want(&one, &scene, 1, MORTISE_SHARED, 5);
    scene_wait(&scene, 1);
    scene_want(&writer, &scene, 2, MORTISE_EXCLUSIVE, 0);
    scene_wait(&scene, 2);
    pending_start(&other, deaf, scene.name, SHARED(.wait_ms = -1, .ttl_ms = LONG_MS, .permits = 3));
    scene_wait(&scene, 3);
    give(lease);
    EXPECT(OK, pending_join(&one));
    CHECK(queue_length(&server, scene.name) == 2);
    CHECK(ask_is(&server, "OK", "ACL SETUSER deaf resetchannels"));
    EXPECT(INVALID, pending_join(&other));
    CHECK(queue_length(&server, scene.name) == 1);
    give(one.lease);
    EXPECT(OK, pending_join(&writer));
    give(writer.lease);
    EXPECT(OK, try_once(scene.client[0], scene.name));
    close_client(deaf);
    scene_end(&scene);
    CHECK(ask_number(&server, "ACL DELUSER deaf") == 1);
}

/* ---- who cannot ------------------------------------------------------------------------------------------------ */

static void test_without(void)
{
    static const char *const settings[] = {"atomicity = watch\n", "fencing = off\n",
                                           "mode = hash\ndialect = redisson\n",
                                           "mode = hash\nfencing = off\n"};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        mortise_lease *lease = NULL;
        snprintf(doing, sizeof doing, "%s", settings[i]);
        mortise_client *client = open_at(&server, NULL, NULL, settings[i]);
        EXPECT(NOTSUP, mortise_acquire(client, "without",
                                       SHARED(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS),
                                       &lease, &detail));
        close_client(client);
    }
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
EACH(test_readers, readers_and_writer, true, true)
EACH(test_ends, own_ends, true, true)
EACH(test_permits, permits, true, true)
EACH(test_dead, dead_holder, true, true)
EACH(test_downgrade, downgrade, true, true)
EACH(test_in_order, downgrade_in_order, true, false)
EACH(test_followers, head_and_followers, true, false)
EACH(test_head, head_gives_up, true, false)
EACH(test_number, other_number_queued, true, false)
EACH(test_taken_out, place_taken_out, true, false)
EACH(test_break, break_one, true, true)
EACH(test_starving, starving, true, true)
EACH(test_barred, barred, false, true)

static const CU_TestInfo tests[] = {
    {"readers and a writer", test_readers},
    {"each holder has its own end", test_ends},
    {"permits", test_permits},
    {"a holder that does not renew", test_dead},
    {"downgrade", test_downgrade},
    {"a downgrade passes no queued writer", test_in_order},
    {"the head of the queue and those behind it", test_followers},
    {"a queued writer gives up", test_head},
    {"another number of permits in the queue", test_number},
    {"another number of permits, and not heard any more", test_taken_out},
    {"break ends one holder", test_break},
    {"writers do not starve", test_starving},
    {"the bar of a writer", test_barred},
    {"who cannot share", test_without},
    {"who cannot share, beside one who does", test_watch},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = server_start(&server, NULL);
    if (code == 0)
        code = run_tests("redis: shared holders and permits", tests, argc, argv);
    return servers_end((struct server *const[]){&server}, 1, code);
}
