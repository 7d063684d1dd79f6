/* test_sentinel.c - three sentinels watch a primary and two replicas, all with passwords: the primary is killed,
 * stopped, replaced, and comes back; sentinels are down or silent; clients follow. */
#include "rig.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct house house;

#define HELD_MS 600000 /* nothing is renewed because it is due */

static const char patient[] = "unreachable_timeout = 150s\n";
static const char secrets[] = "sentinel_password = watch\npassword = secret\n";
static const char timeouts[] = "connect_timeout = 1s\ncommand_timeout = 1s\n";

static mortise_client *open_by_sentinels(const char *sentinels, const char *core, const char *redis)
{
    mortise_client *client = NULL;
    char path[300], text[1000];
    static int count;
    snprintf(path, sizeof path, "%s/sentinel-%d.conf", house.server.folder, ++count);
    snprintf(text, sizeof text, "[mortise]\ndriver = redis\n%s\n[redis]\nsentinel = locks@%s\n%s%s",
             core, sentinels ? sentinels : house.server.sentinels, secrets,
             redis ? redis : timeouts);
    CHECK(test_file_write(path, text));
    EXPECT(OK, mortise_open(path, &client, &detail));
    return client;
}

static mortise_lease *hold(mortise_client *client, const char *name, struct told *told)
{
    mortise_lease *lease = NULL;
    EXPECT(OK, mortise_acquire(client, name,
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = HELD_MS,
                                               .on_state = note_state, .user_data = told),
                               &lease, &detail));
    return lease;
}

/* Of the others both are online; one that came back says that it is a primary itself, for some seconds. */
static bool is_whole(void *unused)
{
    (void)unused;
    for (int i = 0; i < HOUSE; i++) {
        redisReply *reply = house_ask(&house, i, "INFO replication");
        const char *text = reply && reply->str ? reply->str : "", *first = strstr(text, "online");
        bool whole = first && strstr(first + 1, "online");
        freeReplyObject(reply);
        if (whole) {
            house_look_at(&house, i);
            return true;
        }
    }
    return false;
}

/* A primary that was just found may be demoted by the sentinels before it is written to: then another one is looked
 * for. */
static bool is_mended(void *unused)
{
    return is_whole(unused) && ask_is(&house.server, "OK", "SET mortise:house now PX 1") &&
           ask_number(&house.server, "WAIT 2 1000") >= 2 && ask_is(&house.server, "OK", "FLUSHALL");
}

/* All run, and follow one; nothing is in it. */
static void mend(void)
{
    CHECK(test_poll(is_mended, NULL, FAILOVER_MS));
}

struct renewal {
    mortise_client *client;
    struct told *told;
    uint64_t before;
};

/* Known to be of the new primary: the old one is gone, or the client has left it. */
static bool was_renewed(void *argument)
{
    const struct renewal *renewal = argument;
    return stats_of(renewal->client).renewals > renewal->before ||
           test_count_get(&renewal->told->lost) > 0;
}

static void check_kept(mortise_client *client, mortise_lease *lease, const char *name,
                       struct told *told, uint64_t before)
{
    struct renewal renewal = {client, told, before};
    CHECK(test_poll(was_renewed, &renewal, FAILOVER_MS));
    CHECK(wait_state(lease, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    CHECK(test_count_get(&told->lost) == 0);
    CHECK(holds(&house.server, name) == 1);
    CHECK(is_covered(&house.server, name, lease));
}

/* ---- asking ----------------------------------------------------------------------------------------------------- */

static void test_finding(void)
{
    char url[400], text[256], address[40];
    mortise_client *client = NULL;
    mend();
    snprintf(address, sizeof address, "127.0.0.1:%d", house.server.port);
    snprintf(url, sizeof url,
             "redis:///0?sentinel=locks@%s&sentinel_password=watch&password=secret",
             house.server.sentinels);
    EXPECT(OK, mortise_open(url, &client, &detail));
    EXPECT(OK, mortise_ping(client, text, sizeof text, &detail));
    CHECK(strstr(text, address) != NULL);
    EXPECT(OK, try_once(client, "by a URL"));
    close_client(client);
}

static void expect_refused(const char *name, const char *settings, mortise_status wanted,
                           const char *says)
{
    mortise_client *client = NULL;
    mortise_lease *lease = NULL;
    char path[300], text[700];
    snprintf(path, sizeof path, "%s/refused.conf", house.server.folder);
    snprintf(
        text, sizeof text,
        "[mortise]\ndriver = redis\nunreachable_timeout = 60s\n[redis]\nconnect_timeout = 30s\n"
        "command_timeout = 30s\nsentinel = %s%s\n%s",
        name, house.server.sentinels, settings);
    snprintf(doing, sizeof doing, "%s %s", name, settings);
    CHECK(test_file_write(path, text));
    mortise_status status = mortise_open(path, &client, &detail);
    if (status == MORTISE_OK)
        status = mortise_acquire(client, "refused", MORTISE_OPTIONS(.wait_ms = 0), &lease, &detail);
    CHECK(status == wanted);
    SAYS(says);
    CHECK(strstr(detail.message, "hunter2") == NULL);
    mortise_close(client, NULL);
}

static void test_refused(void)
{
    mend();
    expect_refused("other@", secrets, MORTISE_UNREACHABLE, "no sentinel tells where \"other\" is");
    expect_refused("other@", secrets, MORTISE_UNREACHABLE, "does not know it");
    expect_refused("locks@", "password = secret\n", MORTISE_BACKEND, "NOAUTH");
    expect_refused("locks@", "sentinel_password = hunter2\n", MORTISE_BACKEND, "WRONGPASS");
    expect_refused("locks@", "sentinel_password = watch\n", MORTISE_BACKEND, "NOAUTH");
    expect_refused("", secrets, MORTISE_CONFIG, "NAME@HOST");
    expect_refused("locks@", "servers = 127.0.0.1\n", MORTISE_CONFIG, "exclude each other");
    expect_refused("locks@", "sentinel_username = me\n", MORTISE_CONFIG, "sentinel_password");
    expect_refused("locks@,", secrets, MORTISE_CONFIG, "missing between the commas");
}

/* A server of another protocol: it answers whatever it is told in its own, as HTTP or TLS servers do. */
struct web {
    int listener, port;
    const char *answer;
    size_t length;
    pthread_t thread;
};

static void *serve_web(void *argument)
{
    struct web *web = argument;
    int fd;
    while ((fd = accept(web->listener, NULL, NULL)) >= 0) {
        char bytes[4096];
        if (recv(fd, bytes, sizeof bytes, 0) > 0)
            send(fd, web->answer, web->length, MSG_NOSIGNAL);
        shutdown(fd, SHUT_WR);
        while (recv(fd, bytes, sizeof bytes, 0) > 0)
            ;
        close(fd);
    }
    return NULL;
}

static bool web_start(struct web *web, const char *answer, size_t length)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof here;
    *web = (struct web){.answer = answer, .length = length};
    web->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (web->listener < 0 || bind(web->listener, (struct sockaddr *)&here, sizeof here) != 0 ||
        listen(web->listener, 16) != 0 ||
        getsockname(web->listener, (struct sockaddr *)&here, &size) != 0)
        return false;
    web->port = ntohs(here.sin_port);
    return pthread_create(&web->thread, NULL, serve_web, web) == 0;
}

static void web_end(struct web *web)
{
    shutdown(web->listener, SHUT_RDWR);
    pthread_join(web->thread, NULL);
    close(web->listener);
}

/* A web server, or the TLS port of something, in place of the Sentinels: it is named, with what is wrong. */
static void test_other_protocols(void)
{
    static const char http[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
                      tls[] = "\x15\x03\x01\x00\x02\x02\x46"; /* an alert */
    const char *const answers[] = {http, tls};
    const size_t lengths[] = {sizeof http - 1, sizeof tls - 1};
    for (int i = 0; i < 2; i++) {
        struct web web;
        char address[40], text[512];
        if (!CHECK(web_start(&web, answers[i], lengths[i])))
            return;
        snprintf(address, sizeof address, "127.0.0.1:%d", web.port);
        mortise_client *client = open_by_sentinels(address, "unreachable_timeout = 10s\n", NULL);
        EXPECT(UNREACHABLE, mortise_ping(client, text, sizeof text, &detail));
        SAYS("no sentinel tells where \"locks\" is");
        SAYS(address);
        SAYS("what it answers is not the Redis protocol");
        close_client(client);
        web_end(&web);
    }
}

/* One of them is silent, one refuses, one is a web server: it is not waited for as long as it might be. */
static void test_silent_sentinel(void)
{
    static const char http[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    struct web web;
    char list[200], text[1024];
    mend();
    if (!CHECK(web_start(&web, http, sizeof http - 1)))
        return;
    snprintf(list, sizeof list, "127.0.0.1:1, 127.0.0.1:%d, %s", web.port, house.server.sentinels);
    mortise_client *client = open_by_sentinels(list, patient, "connect_timeout = 1h\n");
    CHECK(server_do(&house.server, "freeze", "only=s1"));
    EXPECT(OK, try_once(client, "silent"));
    EXPECT(OK, mortise_ping(client, text, sizeof text, &detail));
    snprintf(list, sizeof list, "; 127.0.0.1:%d: what it answers is not the Redis protocol",
             web.port);
    CHECK(strstr(text, " of 5 sentinels know it; 127.0.0.1:1: ") != NULL); /* each is named */
    CHECK(strstr(text, list) != NULL);
    CHECK(server_do(&house.server, "thaw", "only=s1"));
    close_client(client);
    web_end(&web);
}

/* Behind the n-th colon of the list. */
static redisContext *connect_to(int n)
{
    const char *at = house.server.sentinels;
    for (int i = 0; i < n; i++)
        at = strchr(at, ':') + 1;
    redisContext *sentinel = redisConnect("127.0.0.1", (int)strtol(at, NULL, 10));
    freeReplyObject(redisCommand(sentinel, "AUTH watch"));
    return sentinel;
}

static redisContext *connect_to_sentinel(void)
{
    return connect_to(3);
}

static int64_t connections_of(redisContext *sentinel)
{
    static const char key[] = "total_connections_received:";
    redisReply *reply = redisCommand(sentinel, "INFO stats");
    const char *at = reply && reply->str ? strstr(reply->str, key) : NULL;
    int64_t count = at ? strtoll(at + sizeof key - 1, NULL, 10) : -1;
    freeReplyObject(reply);
    return count;
}

/* How many connections of the user "some" have a subscription. A Sentinel has no PUBSUB command. */
static int64_t subscribers_of(redisContext *sentinel)
{
    int64_t count = 0;
    redisReply *reply = redisCommand(sentinel, "CLIENT LIST TYPE pubsub");
    for (const char *at = reply && reply->type == REDIS_REPLY_STRING ? reply->str : NULL;
         at && (at = strstr(at, " user=some ")); at++)
        count++;
    freeReplyObject(reply);
    return count;
}

#define CROWD 12

struct permitting {
    redisContext *sentinels[2];
    int64_t before;
};

static bool all_subscribed(void *argument)
{
    struct permitting *permitting = argument;
    return subscribers_of(permitting->sentinels[0]) + subscribers_of(permitting->sentinels[1]) >=
           permitting->before + CROWD;
}

/* One Sentinel does not permit to subscribe, the others do: each client is subscribed at one that does, wherever it
 * began. */
static void test_subscribing_refused_by_one(void)
{
    static const char rights[] =
        "ACL SETUSER some on >watch -@all +sentinel|get-master-addr-by-name +sentinel|master "
        "+client|setname +client|id +info %s";
    mend();
    redisContext *first = connect_to(1);
    struct permitting permitting = {{connect_to(2), connect_to(3)}, 0};
    char command[300];
    snprintf(command, sizeof command, rights, "");
    freeReplyObject(redisCommand(first, command));
    snprintf(command, sizeof command, rights, "+subscribe &*");
    for (int i = 0; i < 2; i++) {
        freeReplyObject(redisCommand(permitting.sentinels[i], command));
        permitting.before += subscribers_of(permitting.sentinels[i]);
    }
    mortise_client *clients[CROWD];
    mortise_lease *leases[CROWD];
    for (int i = 0; i < CROWD; i++) {
        char name[20];
        snprintf(name, sizeof name, "some%d", i);
        clients[i] = open_by_sentinels(NULL, patient, "sentinel_username = some\n");
        leases[i] = take(clients[i], name);
    }
    CHECK(test_poll(all_subscribed, &permitting, TEST_PATIENCE_MS));
    for (int i = 0; i < CROWD; i++) {
        give(leases[i]);
        close_client(clients[i]);
    }
    freeReplyObject(redisCommand(first, "ACL DELUSER some"));
    redisFree(first);
    for (int i = 0; i < 2; i++) {
        freeReplyObject(redisCommand(permitting.sentinels[i], "ACL DELUSER some"));
        redisFree(permitting.sentinels[i]);
    }
}

#define ROUNDS 30

/* A user who may not subscribe at the sentinel. Its connection is kept, and no other one is made for that. */
static void test_subscribing_refused(void)
{
    mend();
    redisContext *sentinel = connect_to_sentinel();
    freeReplyObject(redisCommand(
        sentinel, "ACL SETUSER low on >x -@all +sentinel|get-master-addr-by-name +sentinel|master "
                  "+client|setname +client|id +info"));
    mortise_client *client = NULL;
    char url[300];
    snprintf(url, sizeof url,
             "redis:///0?sentinel=locks@127.0.0.1:%s&sentinel_username=low&sentinel_password=x"
             "&password=secret&renew_every=100ms",
             strrchr(house.server.sentinels, ':') + 1);
    if (!EXPECT(OK, mortise_open(url, &client, &detail)))
        return;
    mortise_lease *lease = take(client, "deaf");
    int64_t before = connections_of(sentinel);
    CHECK(before > 0);
    CHECK(wait_renewals(client, stats_of(client).renewals + ROUNDS));
    CHECK(connections_of(sentinel) <= before + 2); /* other sentinels may connect, too */
    give(lease);
    close_client(client);
    freeReplyObject(redisCommand(sentinel, "ACL DELUSER low"));
    redisFree(sentinel);
}

static void watch(redisContext *sentinel, const char *name, int port)
{
    redisReply *reply = redisCommand(sentinel, "SENTINEL MONITOR %s 127.0.0.1 %d 1", name, port);
    CHECK(reply && reply->str && strcmp(reply->str, "OK") == 0);
    freeReplyObject(reply);
}

/* A sentinel says that the primary is itself, or a replica: the server's own word counts. */
static void test_led_astray(void)
{
    const char *list = strrchr(house.server.sentinels, ',') + 1;
    static const char *const names[] = {"itself", "replica"};
    static const char *const says[] = {"a Sentinel, which has no locks",
                                       "a replica, not the primary"};
    mend();
    redisContext *sentinel = connect_to_sentinel();
    int replica = house.ports[(house.primary + 1) % HOUSE];
    watch(sentinel, names[0], (int)strtol(strrchr(list, ':') + 1, NULL, 10));
    watch(sentinel, names[1], replica);
    for (int i = 0; i < 2; i++) {
        mortise_client *client = NULL;
        mortise_lease *lease = NULL;
        char url[300];
        snprintf(url, sizeof url,
                 "redis:///0?sentinel=%s@127.0.0.1:%s&sentinel_password=watch%s"
                 "&unreachable_timeout=1s",
                 names[i], strrchr(list, ':') + 1, i == 1 ? "&password=secret" : "&password=watch");
        if (!EXPECT(OK, mortise_open(url, &client, &detail)))
            continue;
        mortise_status status =
            mortise_acquire(client, "astray", MORTISE_OPTIONS(.wait_ms = 0), &lease, &detail);
        CHECK(status == MORTISE_UNREACHABLE || status == MORTISE_BACKEND);
        SAYS(says[i]);
        close_client(client);
        freeReplyObject(redisCommand(sentinel, "SENTINEL REMOVE %s", names[i]));
    }
    redisFree(sentinel);
}

/* ---- failover ---------------------------------------------------------------------------------------------------- */

static bool wait_other(int old)
{
    redisContext *sentinel = connect_to_sentinel();
    bool named = house_wait_named(&house, sentinel, old);
    redisFree(sentinel);
    return named;
}

static bool is_at_primary(void *client)
{
    char text[1024], address[40];
    snprintf(address, sizeof address, "127.0.0.1:%d", house.server.port);
    return mortise_ping(client, text, sizeof text, &detail) == MORTISE_OK &&
           strstr(text, address) != NULL;
}

/* Waiters, holders and tokens go along; and the old one, back as a replica, is left alone. */
static void test_killed(void)
{
    struct told told = TOLD_INIT;
    struct pending pending = PENDING_INIT;
    mend();
    int old = house.primary;
    mortise_client *client = open_by_sentinels(NULL, patient, NULL);
    mortise_client *other = open_by_sentinels(NULL, patient, NULL);
    mortise_lease *lease = hold(client, "kept", &told);
    mortise_lease *first = take(client, "grows");
    uint64_t token = mortise_token(first), before = stats_of(client).renewals;
    give(first);
    pending_start(&pending, other, "kept", MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    house_wait_replicas(&house, 2);
    house_do(&house, "kill", old);
    if (!wait_other(old))
        return;
    check_kept(client, lease, "kept", &told, before);
    first = take(client, "grows");
    CHECK(mortise_token(first) > token);
    token = mortise_token(lease);
    give(lease);
    EXPECT(OK, pending_join(&pending));
    CHECK(mortise_token(pending.lease) > token);
    house_do(&house, "start", old); /* as a primary, at first */
    mend();
    CHECK(house.primary != old);
    CHECK(wait_works(client) && wait_works(other));
    mortise_release(first, NULL); /* mend has emptied it */
    mortise_release(pending.lease, NULL);
    close_client(other);
    close_client(client);
    CHECK(server_is_clean(&house.server));
}

/* It is stopped, and nobody asks it anything: the sentinels tell. */
static void test_stopped_and_idle(void)
{
    struct told told = TOLD_INIT;
    mend();
    int old = house.primary;
    mortise_client *client =
        open_by_sentinels(NULL, patient, "connect_timeout = 1s\ncommand_timeout = 1h\n");
    mortise_lease *lease = hold(client, "kept", &told);
    uint64_t before = stats_of(client).renewals;
    house_wait_replicas(&house, 2);
    house_do(&house, "freeze", old);
    if (!wait_other(old))
        return;
    check_kept(client, lease, "kept", &told, before); /* the next renewal is due in minutes */
    house_do(&house, "thaw", old);
    give(lease);
    CHECK(holds(&house.server, "kept") == 0);
    close_client(client);
    mend();
    CHECK(server_is_clean(&house.server));
}

/* In order, by an operator, with requests going on: none fails. */
static void test_exchanged(void)
{
    struct told told = TOLD_INIT;
    mend();
    mortise_client *client =
        open_by_sentinels(NULL, "unreachable_timeout = 150s\nrenew_every = 50ms", NULL);
    mortise_lease *lease = hold(client, "kept", &told);
    house_wait_replicas(&house, 2);
    redisContext *sentinel = connect_to_sentinel();
    bool exchanged = house_exchange(&house, sentinel);
    redisFree(sentinel);
    /* The old one goes on: what it renewed since the other one was promoted is not known there. */
    if (!exchanged || !CHECK(test_poll(is_at_primary, client, FAILOVER_MS)))
        return;
    check_kept(client, lease, "kept", &told, stats_of(client).renewals + 2);
    give(lease);
    CHECK(wait_works(client));
    close_client(client);
    mend();
    CHECK(server_is_clean(&house.server));
}

static const CU_TestInfo tests[] = {
    {"sentinels say where it is", test_finding},
    {"names, passwords and settings that are wrong", test_refused},
    {"a sentinel is silent, another one gone", test_silent_sentinel},
    {"servers of other protocols", test_other_protocols},
    {"subscribing is refused", test_subscribing_refused},
    {"subscribing is refused by one", test_subscribing_refused_by_one},
    {"a sentinel says that it is itself, or a replica", test_led_astray},
    {"the primary is killed, and comes back", test_killed},
    {"the primary is stopped while nothing is asked", test_stopped_and_idle},
    {"the primary is exchanged", test_exchanged},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    static const char *const keys[] = {"replicas=2",
                                       "sentinels=3",
                                       "password=secret",
                                       "sentinel_password=watch",
                                       "down_after=1000",
                                       "conf=repl-diskless-sync yes",
                                       "conf=repl-diskless-sync-delay 0",
                                       NULL};
    int code = house_start(&house, keys);
    if (code == 0)
        code = run_tests("redis: sentinels", tests, argc, argv);
    if (house.server.port > 0)
        mend();
    return servers_end((struct server *const[]){&house.server}, 1, code);
}
