/* test_address.c - one address leads to another server than before, while the old one is still a primary: all
 * connections of a client end up at one of the two. */
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct house house;

static const char timeouts[] = "connect_timeout = 1s\ncommand_timeout = 1s\n";
static const char patient[] = "unreachable_timeout = 60s\n";

static void lead_to(const char *path, const char *socket)
{
    char next[220];
    snprintf(next, sizeof next, "%s.next", path);
    CHECK(symlink(socket, next) == 0 && rename(next, path) == 0);
}

static bool stands_at_new(void *client)
{
    mortise_lease *lease = take(client, "where");
    bool here = holds(&house.server, "where") == 1;
    give(lease);
    return here;
}

/* The address leads to another primary, and the old one is one still. The connection for messages, which is made then,
 * finds the new one; both must be at one server, or nobody would be told of a release. */
static void test_address_leads_elsewhere(void)
{
    char path[220], direct[40];
    struct pending pending = PENDING_INIT;
    house_mend(&house, 0);
    snprintf(path, sizeof path, "%s/elsewhere", house.server.folder);
    snprintf(direct, sizeof direct, "127.0.0.1:%d", house.ports[0]);
    lead_to(path, house.server.socket);
    mortise_client *client = open_at(&house.server, path, patient, timeouts),
                   *holder = open_at(&house.server, direct, patient, timeouts);
    mortise_lease *lease = take(holder, "wanted");
    EXPECT(BUSY, try_once(client, "wanted"));
    house_wait_replicas(&house, 2);
    lead_to(path, house.server.socket2);
    house_promote(&house, 1);
    pending_start(&pending, client, "wanted", MORTISE_OPTIONS(.wait_ms = 3 * TEST_PATIENCE_MS));
    CHECK(wait_inboxes(&house.server, 1));
    CHECK(test_poll(stands_at_new, client, TEST_PATIENCE_MS));
    CHECK(wait_queue(&house.server, "wanted", 1));
    EXPECT(OK, mortise_break(client, "wanted", mortise_token(lease), &detail));
    CHECK(pending_join(&pending) == MORTISE_OK); /* by a message */
    give(pending.lease);
    mortise_release(lease, NULL); /* of the old one, which forgets it now */
    close_client(holder);
    close_client(client);
    house_follow(&house, 0);
    unlink(path);
}

/* How many connections the server of this context ever had, this one's included. */
static long long connections_of(redisContext *context)
{
    redisReply *reply = redisCommand(context, "INFO stats");
    const char *key = "total_connections_received:", *at = reply ? strstr(reply->str, key) : NULL;
    long long count = at ? strtoll(at + strlen(key), NULL, 10) : -1;
    freeReplyObject(reply);
    return count;
}

/* The connection may move between the two, so the release may find nothing. */
static bool takes_here(mortise_client *client, const char *name)
{
    mortise_lease *lease = take(client, name);
    bool here = holds(&house.server, name) == 1;
    mortise_release(lease, NULL);
    return here;
}

static bool has_come(void *client)
{
    return takes_here(client, "there");
}

static bool has_come_back(void *client)
{
    return takes_here(client, "back");
}

struct visits {
    redisContext *context;
    long long before;
};

static bool came_twice(void *argument)
{
    struct visits *visits = argument;
    return connections_of(visits->context) >= visits->before + 2;
}

/* An address that always leads to two servers: the main connection follows the one for messages once in ten seconds. */
static void test_back_and_forth(void)
{
    char path[220], direct[40];
    struct pending pending = PENDING_INIT;
    struct timeval patience = {.tv_sec = 5};
    house_mend(&house, 0);
    snprintf(path, sizeof path, "%s/back", house.server.folder);
    snprintf(direct, sizeof direct, "127.0.0.1:%d", house.ports[0]);
    lead_to(path, house.server.socket);
    mortise_client *client = open_at(&house.server, path, patient, timeouts),
                   *holder = open_at(&house.server, direct, patient, timeouts);
    struct visits old = {redisConnectWithTimeout("127.0.0.1", house.ports[0], patience), 0};
    mortise_lease *lease = take(holder, "wanted");
    house_wait_replicas(&house, 2);
    pending_start(&pending, client, "wanted", MORTISE_OPTIONS(.wait_ms = -1));
    CHECK(wait_inboxes(&house.server, 1));
    lead_to(path, house.server.socket2);
    house_promote(&house, 1);
    int64_t began_ms = test_now_ms(); /* it leaves later than this */
    freeReplyObject(redisCommand(old.context, "CLIENT KILL TYPE pubsub"));
    CHECK(test_poll(has_come, client, TEST_PATIENCE_MS));
    CHECK(wait_inboxes(&house.server, 1));
    old.before = connections_of(old.context);
    lead_to(path, house.server.socket);
    CHECK(ask_number(&house.server, "CLIENT KILL TYPE pubsub") > 0);
    CHECK(test_poll(came_twice, &old, TEST_PATIENCE_MS)); /* it was there, and tried again */
    bool stays = takes_here(client, "stays");
    CHECK(stays || test_now_ms() - began_ms >= 9000);
    house_look_at(&house, 0);
    CHECK(test_poll(has_come_back, client, TEST_PATIENCE_MS));
    EXPECT(OK, mortise_cancel(client, pending.request));
    EXPECT(CANCELED, pending_join(&pending));
    give(lease);
    close_client(holder);
    close_client(client);
    redisFree(old.context);
    unlink(path);
}

/* The ends of connections to this socket, by their inodes. A younger one need not have a larger number. */
struct ends {
    unsigned long inodes[64];
    size_t count;
};

static struct ends ends_of(const char *socket)
{
    FILE *file = fopen("/proc/net/unix", "re");
    char line[400], path[200];
    struct ends ends = {.count = 0};
    unsigned long inode;
    while (file && ends.count < 64 && fgets(line, sizeof line, file))
        if (sscanf(line, "%*s %*s %*s %*s %*s %*s %lu %199s", &inode, path) == 2 &&
            strcmp(path, socket) == 0)
            ends.inodes[ends.count++] = inode;
    if (file)
        fclose(file);
    return ends;
}

static bool connects_again(void *argument)
{
    const struct ends *before = argument, now = ends_of(house.server.socket);
    for (size_t i = 0; i < now.count; i++) {
        size_t at = 0;
        while (at < before->count && before->inodes[at] != now.inodes[i])
            at++;
        if (at == before->count)
            return true;
    }
    return false;
}

/* An address that leads elsewhere, without the right to INFO, while the connection for messages is being made to the
 * old one, which stands still: it goes to where the main one is. */
static void test_late_news(void)
{
    char path[220], direct[40], text[200];
    struct pending pending = PENDING_INIT;
    house_mend(&house, 0);
    for (int i = 0; i < 2; i++)
        freeReplyObject(house_ask(&house, i, "ACL SETUSER blind on >word ~* &* +@all -info"));
    snprintf(path, sizeof path, "%s/late", house.server.folder);
    snprintf(direct, sizeof direct, "127.0.0.1:%d", house.ports[0]);
    lead_to(path, house.server.socket);
    mortise_client *client = open_at(&house.server, path, patient,
                                     "connect_timeout = 60s\ncommand_timeout = 1s\n"
                                     "username = blind\npassword = word\n"),
                   *holder = open_at(&house.server, direct, patient, timeouts);
    mortise_lease *lease = take(holder, "late");
    pending_start(&pending, client, "late",
                  MORTISE_OPTIONS(.wait_ms = 3 * TEST_PATIENCE_MS, .ttl_ms = LONG_MS));
    CHECK(wait_inboxes(&house.server, 1));
    /* It asks nothing any more. Without INFO an acquire that was lost may be executed for as long as its ttl, and a close waits. */
    CHECK(wait_queue(&house.server, "late", 1));
    house_wait_replicas(&house, 2);
    struct ends before = ends_of(house.server.socket);
    freeReplyObject(ask(&house.server, "MULTI"));
    freeReplyObject(ask(&house.server, "CLIENT KILL TYPE pubsub"));
    freeReplyObject(ask(&house.server, "CLIENT PAUSE 2000")); /* until it is frozen */
    freeReplyObject(ask(&house.server, "EXEC"));
    CHECK(test_poll(connects_again, &before, TEST_PATIENCE_MS)); /* else this would test nothing */
    house_do(&house, "freeze", 0);
    lead_to(path, house.server.socket2);
    house_promote(&house, 1);
    EXPECT(OK, mortise_ping(client, text, sizeof text,
                            &detail)); /* what was lost leaves nothing to be undone */
    house_do(&house, "thaw", 0);
    CHECK(wait_inboxes(&house.server, 1));
    EXPECT(OK, mortise_break(client, "late", mortise_token(lease), &detail));
    CHECK(pending_join(&pending) == MORTISE_OK);
    give(pending.lease);
    mortise_release(lease, NULL); /* of the old one */
    close_client(holder);
    close_client(client);
    house_follow(&house, 0);
    unlink(path);
}

/* Ends the connection on which WAIT was sent. */
static void cut_confirming(void)
{
    redisReply *list = ask(&house.server, "CLIENT LIST");
    const char *line = list && list->str ? list->str : "";
    long long id = 0;
    for (; line[0] != '\0' && id == 0; line += strcspn(line, "\n") + 1) {
        const char *wait = strstr(line, "cmd=wait");
        if (wait && wait < line + strcspn(line, "\n"))
            sscanf(line, "id=%lld", &id);
    }
    freeReplyObject(list);
    CHECK(id != 0 && ask_number(&house.server, "CLIENT KILL ID %lld", id) == 1);
}

static bool has_one_replica(void *argument)
{
    (void)argument;
    return info_number(&house.server, "replication", "connected_slaves") == 1;
}

/* The address leads to another primary, the old one is one still, and only the connection for WAIT is made anew: the
 * locks follow it. */
static void test_replicas_elsewhere(void)
{
    char path[220];
    house_mend(&house, 0);
    snprintf(path, sizeof path, "%s/elsewhere", house.server.folder);
    lead_to(path, house.server.socket);
    mortise_client *client = open_at(
        &house.server, path, "unreachable_timeout = 60s",
        "connect_timeout = 1s\ncommand_timeout = 1s\nmin_replicas = 1\nreplica_timeout = 10s\n");
    give(take(client, "before"));
    lead_to(path, house.server.socket2);
    cut_confirming();
    house_promote(&house, 1);
    house_follow(&house, 2);
    CHECK(test_poll(has_one_replica, NULL, TEST_PATIENCE_MS));
    mortise_lease *lease = take(client, "after");
    CHECK(holds(&house.server, "after") == 1);
    give(lease);
    close_client(client);
    house_follow(&house, 0);
    CHECK(server_is_clean(&house.server));
    unlink(path);
}

static const CU_TestInfo tests[] = {
    {"an address that leads elsewhere", test_address_leads_elsewhere},
    {"an address that leads back and forth", test_back_and_forth},
    {"the connection for messages is late", test_late_news},
    {"only the connection for replicas is at the new one", test_replicas_elsewhere},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    static const char *const keys[] = {"replicas=2", "socket=yes", "conf=repl-diskless-sync yes",
                                       "conf=repl-diskless-sync-delay 0", NULL};
    int code = house_start(&house, keys);
    if (code == 0)
        code = run_tests("redis: address", tests, argc, argv);
    return servers_end((struct server *const[]){&house.server}, 1, code);
}
