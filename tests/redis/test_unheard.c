/* test_unheard.c - the second connection, which tells waiters of releases, cannot be made, or is not answered, while the first one
 * works: waiters ask instead, the log says so once, and all is as before when it works again. */
#include "fake.h"
#include "log.h"
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHARED MORTISE_OPTIONS(.mode = MORTISE_SHARED, .wait_ms = 0, .ttl_ms = LONG_MS)

static struct server server;
static const char *const queues[] = {"queue = no\n", "queue = yes\n"};
#define QUEUES 2

/* ---- the log ----------------------------------------------------------------------------------------------------- */

/* How often the log says that waiters must ask. */
static int said(void)
{
    return log_count("no connection for subscriptions; waiters look every 20 ms instead");
}

static bool is_said(void *unused)
{
    (void)unused;
    return said() > 0;
}

/* ---- waiters ----------------------------------------------------------------------------------------------------- */

static int64_t scripts_at_server(void)
{
    return calls_of(&server, "evalsha");
}

static struct fake fake;

static int64_t scripts_at_fake(void)
{
    int64_t count = 0;
    for (size_t i = 0; i < sizeof fake.asked / sizeof *fake.asked; i++)
        count += atomic_load(&fake.asked[i]);
    return count;
}

struct asks {
    int64_t (*count)(void);
    int64_t wanted;
};

static bool has_asked(void *argument)
{
    const struct asks *asks = argument;
    return asks->count() >= asks->wanted;
}

/* The waiter asks again and again, though the lock is held for minutes. */
static bool wait_asks(int64_t (*count)(void))
{
    struct asks asks = {count, count() + 5};
    return test_poll(has_asked, &asks, TEST_PATIENCE_MS);
}

static bool is_subscribed(void *name)
{
    redisReply *reply = ask(&server, "PUBSUB NUMSUB {mortise:%s}:mortise:news", (const char *)name);
    bool is = reply && reply->elements == 2 && reply->element[1]->integer > 0;
    freeReplyObject(reply);
    return is;
}

static bool wait_listens(const char *queue, char *name)
{
    return queue == queues[0] ? test_poll(is_subscribed, name, TEST_PATIENCE_MS)
                              : wait_queue(&server, name, 1) && wait_inboxes(&server, 1);
}

/* ---- the server has no room for it ------------------------------------------------------------------------------ */

static void make_room(void)
{
    CHECK(ask_is(&server, "OK", "CONFIG SET maxclients 10000"));
}

static void shut_out(const char *queue)
{
    static char room[] = "room", more[] = "more room";
    struct pending pending = PENDING_INIT;
    char settings[60];
    snprintf(doing, sizeof doing, "%s", queue);
    snprintf(settings, sizeof settings, "retry = 20ms\n%s", queue);
    CHECK(server_is_clean(&server)); /* no client leaves */
    if (!log_begin(server.folder))
        return;
    mortise_client *holder = open_at(&server, NULL, NULL, settings);
    mortise_client *client = open_at(&server, NULL, NULL, settings);
    mortise_lease *lease = take(holder, room);
    EXPECT(BUSY, try_once(client, room));
    CHECK(ask_is(&server, "OK", "CONFIG SET maxclients %d",
                 (int)info_number(&server, "clients", "connected_clients")));
    pending_start(&pending, client, room, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    if (!CHECK(test_poll(is_said, NULL, TEST_PATIENCE_MS)) || !CHECK(wait_asks(scripts_at_server)))
        make_room();
    CHECK(test_count_get(&pending.calls) == 0);
    give(lease);
    EXPECT(OK, pending_join(&pending));
    give(pending.lease);
    make_room();
    /* from now on it is told, and an ordinary reconnection is none of the log's business */
    lease = take(holder, more);
    pending = PENDING_INIT;
    pending_start(&pending, client, more, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(wait_listens(queue, more));
    CHECK(ask_number(&server, "CLIENT KILL TYPE pubsub") == 1);
    CHECK(wait_listens(queue, more));
    give(lease);
    EXPECT(OK, pending_join(&pending));
    give(pending.lease);
    close_client(holder);
    close_client(client);
    log_end();
    CHECK(said() == 1);
}

static void test_no_room(void)
{
    for (int i = 0; i < QUEUES; i++)
        shut_out(queues[i]);
}

static bool has_bar(void *name)
{
    return ask_number(&server, "EXISTS {mortise:%s}:mortise:bar", (const char *)name) == 1;
}

/* A writer that has no room for its inbox, and so no place, and those who share come all the time: it keeps new ones out. */
static void test_no_room_for_writer(void)
{
    static char name[] = "room for a writer";
    struct pending writer = PENDING_INIT;
    mortise_lease *lease = NULL, *late = NULL;
    CHECK(server_is_clean(&server));
    mortise_client *holder = open_at(&server, NULL, NULL, "");
    mortise_client *other = open_at(&server, NULL, NULL, "");
    mortise_client *client = open_at(&server, NULL, NULL, "retry = 20ms\n");
    EXPECT(OK, mortise_acquire(holder, name, SHARED, &lease, &detail));
    EXPECT(OK, mortise_acquire(other, name, SHARED, &late, &detail));
    give(late);
    EXPECT(BUSY, try_once(client, name));
    CHECK(ask_is(&server, "OK", "CONFIG SET maxclients %d",
                 (int)info_number(&server, "clients", "connected_clients")));
    pending_start(&writer, client, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(test_poll(has_bar, name, TEST_PATIENCE_MS));
    EXPECT(BUSY, mortise_acquire(other, name, SHARED, &late, &detail));
    give(lease);
    EXPECT(OK, pending_join(&writer));
    make_room();
    give(writer.lease);
    close_client(holder);
    close_client(other);
    close_client(client);
}

/* ---- nobody answers --------------------------------------------------------------------------------------------- */

struct count {
    const atomic_int *count;
    int wanted;
};

static bool is_counted(void *argument)
{
    const struct count *count = argument;
    return atomic_load(count->count) >= count->wanted;
}

static bool wait_count(const atomic_int *count, int wanted)
{
    struct count counted = {count, wanted};
    return test_poll(is_counted, &counted, TEST_PATIENCE_MS);
}

/* Each connection is given up after command_timeout; in between waiters ask. */
static void not_answered(const char *queue)
{
    struct pending pending = PENDING_INIT;
    char address[40], settings[100];
    snprintf(doing, sizeof doing, "%s", queue);
    snprintf(settings, sizeof settings, "command_timeout = 300ms\nretry = 20ms\n%s", queue);
    if (!CHECK(fake_start(&fake)) || !log_begin(server.folder))
        return;
    snprintf(address, sizeof address, "127.0.0.1:%d", fake.port);
    fake_seat(&fake);
    atomic_store(&fake.mute, true);
    mortise_client *client = open_at(&server, address, NULL, settings);
    pending_start(&pending, client, "mute", MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 600000));
    CHECK(wait_count(&fake.subscribed, 3));
    CHECK(test_poll(is_said, NULL, TEST_PATIENCE_MS));
    CHECK(wait_asks(scripts_at_fake));
    CHECK(atomic_load(&fake.asked[8]) == 0); /* a place, without an inbox */
    atomic_store(&fake.mute, false);
    if (queue == queues[1])
        CHECK(wait_count(&fake.asked[8], 1));
    fake_answer(&fake, ":2\r\n", 0, NULL);
    fake_cut(&fake, false);
    EXPECT(OK, pending_join(&pending));
    give(pending.lease);
    close_client(client);
    log_end();
    CHECK(said() == 1);
    fake_end(&fake);
}

static void test_not_answered(void)
{
    for (int i = 0; i < QUEUES; i++)
        not_answered(queues[i]);
}

/* The subscription to what sentinels say of a switch. */
static void test_sentinel_not_answered(void)
{
    char url[200], where[80], port[8];
    mortise_client *client = NULL;
    if (!CHECK(fake_start(&fake)))
        return;
    snprintf(port, sizeof port, "%d", server.port);
    snprintf(where, sizeof where, "*2\r\n$9\r\n127.0.0.1\r\n$%zu\r\n%s\r\n", strlen(port), port);
    fake_answer(&fake, where, 0, NULL);
    atomic_store(&fake.mute, true);
    snprintf(url, sizeof url,
             "redis:///0?sentinel=locks@127.0.0.1:%d&connect_timeout=300ms&unreachable_timeout=1m",
             fake.port);
    if (EXPECT(OK, mortise_open(url, &client, &detail))) {
        mortise_lease *lease = take(client, "sentinel");
        CHECK(wait_count(&fake.subscribed, 3));
        give(lease);
        close_client(client);
    }
    fake_end(&fake);
}

static const CU_TestInfo tests[] = {
    {"no room for a second connection", test_no_room},
    {"no room for a second connection of a writer", test_no_room_for_writer},
    {"subscribing is not answered", test_not_answered},
    {"a sentinel does not answer", test_sentinel_not_answered},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = server_start(&server, NULL);
    if (code == 0)
        code = run_tests("redis: waiters that are not told", tests, argc, argv);
    return servers_end((struct server *const[]){&server}, 1, code);
}
