/* test_queue.c - the queue in the server: a waiter dies, is stopped, is cut off, gives up; a holder dies; the server
 * forgets. Each case with the lock as a string and as a hash. The tests read the queue directly. */
#include "rig.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static struct server server;

/* ---- helpers --------------------------------------------------------------------------------------------------- */

struct way {
    const char *settings;
    char name[48];
    mortise_client *holder, *client;
    mortise_lease *lease;
};

static const char *const modes[] = {"", "mode = hash\n"};
#define MODES 2

/* The holder has the lock for a minute; another client waits. */
static bool begin(struct way *way, const char *settings, const char *name)
{
    *way = (struct way){.settings = settings};
    snprintf(doing, sizeof doing, "%s", settings[0] ? "hash" : "string");
    snprintf(way->name, sizeof way->name, "%s-%s", name, doing);
    way->holder = open_at(&server, NULL, NULL, settings);
    way->client = open_at(&server, NULL, NULL, settings);
    way->lease = take(way->holder, way->name);
    return way->lease != NULL;
}

static void end(struct way *way)
{
    CHECK(queue_length(&server, way->name) == 0);
    close_client(way->holder);
    close_client(way->client);
}

static void wait_for(struct way *way, struct pending *pending, mortise_client *client,
                     int64_t ttl_ms)
{
    *pending = PENDING_INIT;
    pending_start(pending, client, way->name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = ttl_ms));
}

/* A taker that waits, as the `place`-th. */
static bool start_waiter(struct way *way, struct test_process *taker, int64_t ttl_ms, int place)
{
    return start_taker(&server, taker, way->settings) &&
           CHECK(test_say(taker, "acquire %s -1 %d", way->name, (int)ttl_ms)) &&
           CHECK(wait_queue(&server, way->name, place));
}

static void receive(struct way *way, struct pending *pending)
{
    EXPECT(OK, pending_join(pending));
    CHECK(is_covered(&server, way->name, pending->lease));
    give(pending->lease);
}

static void stop(struct test_process *process)
{
    int status;
    CHECK(test_signal(process, SIGSTOP));
    CHECK(waitpid(process->pid, &status, WUNTRACED) == process->pid && WIFSTOPPED(status));
}

/* The fields of a place, from 0: grant, seen (µs), least, till, ttl, stamp, floor, inbox. */
static int64_t place_word(const char *name, int place, int word)
{
    int64_t number = -1;
    redisReply *reply = ask(&server, "LINDEX {mortise:%s}:mortise:queue %d", name, place);
    const char *at = reply && reply->str ? reply->str : NULL;
    for (int i = 0; at && i < word; i++)
        at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL;
    if (at)
        number = strtoll(at, NULL, 10);
    freeReplyObject(reply);
    return number;
}

static int64_t server_ms(void)
{
    redisReply *reply = ask(&server, "TIME");
    int64_t ms = reply && reply->elements == 2
                     ? strtoll(reply->element[0]->str, NULL, 10) * 1000 +
                           strtoll(reply->element[1]->str, NULL, 10) / 1000
                     : -1;
    freeReplyObject(reply);
    return ms;
}

struct inbox {
    char name[64];
};

static struct inbox inbox_of(const char *name)
{
    struct inbox inbox = {""};
    redisReply *reply = ask(&server, "LINDEX {mortise:%s}:mortise:queue 0", name);
    const char *at = reply && reply->str ? strstr(reply->str, "mortise:inbox:") : NULL;
    snprintf(inbox.name, sizeof inbox.name, "%.46s", at ? at : "");
    freeReplyObject(reply);
    CHECK(inbox.name[0] != '\0');
    return inbox;
}

static bool is_deaf(void *argument)
{
    const struct inbox *inbox = argument;
    redisReply *reply = ask(&server, "PUBSUB NUMSUB %s", inbox->name);
    bool gone = reply && reply->elements == 2 && reply->element[1]->integer == 0;
    freeReplyObject(reply);
    return gone;
}

/* ---- the order ---------------------------------------------------------------------------------------------------- */

#define FIFTY 50
#define PROCESSES 10 /* the others are clients of this process */

static void test_fifty(void)
{
    static struct pending pendings[FIFTY];
    struct test_process takers[FIFTY / (FIFTY / PROCESSES) + 1];
    mortise_client *clients[FIFTY];
    mortise_client *holder = open_at(&server, NULL, NULL, NULL);
    mortise_lease *lease = take(holder, "fifty");
    int started = 0, every = FIFTY / PROCESSES;
    for (int i = 0; i < FIFTY; i++) {
        pendings[i] = PENDING_INIT;
        if (i % every == 0) {
            if (!start_taker(&server, &takers[started++], NULL))
                return;
            CHECK(test_say(&takers[started - 1], "acquire fifty -1 %d", LONG_MS));
        } else {
            clients[i] = open_at(&server, NULL, NULL, NULL);
            pending_start(&pendings[i], clients[i], "fifty",
                          MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
        }
        CHECK(wait_queue(&server, "fifty", i + 1));
    }
    uint64_t token = mortise_token(lease);
    give(lease);
    for (int i = 0; i < FIFTY && !failures; i++) {
        struct test_process *taker = i % every == 0 ? &takers[i / every] : NULL;
        if (!taker)
            EXPECT(OK, pending_join(&pendings[i]));
        uint64_t next = taker ? taker_token(taker) : mortise_token(pendings[i].lease);
        CHECK(next > token);
        CHECK(queue_length(&server, "fifty") == FIFTY - i - 1);
        token = next;
        if (taker)
            taker_says(taker, "release", "OK");
        else
            give(pendings[i].lease);
    }
    for (int i = 0; i < FIFTY; i++)
        if (i % every != 0)
            close_client(clients[i]);
        else if (taker_says(&takers[i / every], "close", "OK"))
            test_kill(&takers[i / every]);
    close_client(holder);
}

/* ---- who waits ------------------------------------------------------------------------------------------------------ */

/* It is skipped at once: its ttl is longer than the test's patience. */
static void kill_waiter(void *mode)
{
    struct way way;
    struct test_process taker;
    struct pending pending;
    if (!begin(&way, *(const char **)mode, "killed") || !start_waiter(&way, &taker, LONG_MS, 1))
        return;
    wait_for(&way, &pending, way.client, LONG_MS);
    CHECK(wait_queue(&server, way.name, 2));
    struct inbox inbox = inbox_of(way.name);
    test_kill(&taker);
    CHECK(test_poll(is_deaf, &inbox, TEST_PATIENCE_MS)); /* the server has noticed its end */
    give(way.lease);
    receive(&way, &pending);
    end(&way);
}

static void test_killed(void)
{
    in_parallel(kill_waiter, (void *)(uintptr_t)modes, sizeof *modes, MODES);
}

/* It gets the lock, which goes to the next one after its ttl; it never believes that it holds. */
static void stop_waiter(void *mode)
{
    struct way way;
    struct test_process taker;
    struct pending pending;
    if (!begin(&way, *(const char **)mode, "stopped") || !start_waiter(&way, &taker, 900, 1))
        return;
    wait_for(&way, &pending, way.client, LONG_MS);
    CHECK(wait_queue(&server, way.name, 2));
    stop(&taker);
    give(way.lease);
    EXPECT(OK, pending_join(&pending));
    CHECK(test_signal(&taker, SIGCONT));
    CHECK(wait_queue(&server, way.name, 1)); /* it waits again, and gets no grant */
    CHECK(mortise_state(pending.lease) == MORTISE_STATE_HELD);
    uint64_t token = mortise_token(pending.lease);
    give(pending.lease);
    CHECK(taker_token(&taker) > token); /* so short that it gets no further request */
    test_kill(&taker);
    end(&way);
}

static void test_stopped(void)
{
    in_parallel(stop_waiter, (void *)(uintptr_t)modes, sizeof *modes, MODES);
}

struct stale {
    const char *name;
    int place;
};

static bool is_stale(void *argument)
{
    const struct stale *stale = argument;
    int64_t seen = place_word(stale->name, stale->place, 1) / 1000;
    int64_t ttl = place_word(stale->name, stale->place, 4);
    return seen > 0 && 3 * (server_ms() - seen) > 2 * ttl + 30;
}

/* Stopped for longer than two thirds of its ttl: it does not get the lock at all. */
static void stop_waiter_long(void *mode)
{
    struct way way;
    struct test_process taker;
    struct pending pending;
    if (!begin(&way, *(const char **)mode, "stale") || !start_waiter(&way, &taker, 900, 1))
        return;
    stop(&taker);
    CHECK(test_poll(is_stale, &(struct stale){way.name, 0}, TEST_PATIENCE_MS));
    wait_for(&way, &pending, way.client, LONG_MS);
    CHECK(wait_queue(&server, way.name, 2));
    give(way.lease);
    CHECK(queue_length(&server, way.name) == 0); /* both were popped by the release */
    EXPECT(OK, pending_join(&pending));
    CHECK(test_signal(&taker, SIGCONT));
    CHECK(wait_queue(&server, way.name, 1));
    give(pending.lease);
    CHECK(taker_token(&taker) > 0);
    taker_says(&taker, "close", "OK");
    test_kill(&taker);
    end(&way);
}

static void test_stopped_long(void)
{
    in_parallel(stop_waiter_long, (void *)(uintptr_t)modes, sizeof *modes, MODES);
}

/* Cut off: it is skipped; when it is back it waits again. */
static void cut_waiter(void *mode)
{
    struct way way;
    struct test_proxy proxy;
    struct pending cut, pending;
    if (!begin(&way, *(const char **)mode, "cut") || !start_proxy(&server, &proxy))
        return;
    mortise_client *far =
        open_by(&server, &proxy, "unreachable_timeout = 1m", *(const char **)mode);
    wait_for(&way, &cut, far, LONG_MS);
    CHECK(wait_queue(&server, way.name, 1));
    wait_for(&way, &pending, way.client, LONG_MS);
    CHECK(wait_queue(&server, way.name, 2));
    struct inbox inbox = inbox_of(way.name);
    CHECK(test_proxy_say(&proxy, "refuse"));
    CHECK(test_poll(is_deaf, &inbox, TEST_PATIENCE_MS));
    give(way.lease);
    EXPECT(OK, pending_join(&pending));
    CHECK(test_count_get(&cut.calls) == 0);
    CHECK(test_proxy_say(&proxy, "pass"));
    CHECK(wait_queue(&server, way.name, 1));
    give(pending.lease);
    receive(&way, &cut);
    close_client(far);
    test_proxy_end(&proxy);
    end(&way);
}

static void test_cut(void)
{
    in_parallel(cut_waiter, (void *)(uintptr_t)modes, sizeof *modes, MODES);
}

/* The push is under way when the caller gives up: the next one gets the lock at once. */
static void give_up(void *mode)
{
    struct way way;
    struct test_proxy proxy;
    struct pending leaver, pending;
    if (!begin(&way, *(const char **)mode, "given up") || !start_proxy(&server, &proxy))
        return;
    mortise_client *far = open_by(&server, &proxy, NULL, *(const char **)mode);
    wait_for(&way, &leaver, far, LONG_MS);
    CHECK(wait_queue(&server, way.name, 1));
    wait_for(&way, &pending, way.client, LONG_MS);
    CHECK(wait_queue(&server, way.name, 2));
    CHECK(test_proxy_say(&proxy, "delay 1000000 down"));
    give(way.lease);
    CHECK(queue_length(&server, way.name) == 1 && holds(&server, way.name) == 1);
    CHECK(test_count_get(&pending.calls) == 0);
    EXPECT(OK, mortise_cancel(far, leaver.request));
    EXPECT(CANCELED, pending_join(&leaver));
    receive(&way, &pending); /* the push was not even delivered */
    CHECK(test_proxy_say(&proxy, "pass"));
    close_client(far);
    test_proxy_end(&proxy);
    end(&way);
}

static void test_give_up(void)
{
    in_parallel(give_up, (void *)(uintptr_t)modes, sizeof *modes, MODES);
}

/* Giving up and waiting again while the lock goes round: no outcome is lost, none comes twice. */
static void test_give_up_races(void)
{
    mortise_client *holder = open_at(&server, NULL, NULL, NULL);
    mortise_client *client = open_at(&server, NULL, NULL, NULL);
    mortise_client *third = open_at(&server, NULL, NULL, NULL);
    for (int i = 0; i < 300 && !failures; i++) {
        struct pending first = PENDING_INIT, second = PENDING_INIT;
        mortise_lease *lease = take(holder, "races");
        pending_start(&first, client, "races", MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
        pending_start(&second, third, "races", MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
        if (i % 2 == 0)
            CHECK(wait_queue(&server, "races", 2));
        EXPECT(OK, mortise_release_nowait(lease, &detail));
        mortise_cancel(client, first.request);
        if (pending_join(&first) == MORTISE_OK)
            give(first.lease);
        EXPECT(OK, pending_join(&second));
        give(second.lease);
    }
    CHECK(wait_holds(&server, "races", 0) && queue_length(&server, "races") == 0);
    close_client(holder);
    close_client(client);
    close_client(third);
}

/* ---- who holds -------------------------------------------------------------------------------------------------------- */

static void kill_holder(void *mode)
{
    struct way way;
    struct test_process taker;
    struct pending first, second;
    /* a place lasts for two thirds of it, and is refreshed after one third: the taker may be stopped for a third */
    if (!begin(&way, *(const char **)mode, "holder") || !start_waiter(&way, &taker, 15000, 1))
        return;
    mortise_client *other = open_at(&server, NULL, NULL, *(const char **)mode);
    wait_for(&way, &first, way.client, LONG_MS);
    CHECK(wait_queue(&server, way.name, 2));
    wait_for(&way, &second, other, LONG_MS);
    CHECK(wait_queue(&server, way.name, 3));
    give(way.lease);
    uint64_t token = taker_token(&taker);
    test_kill(&taker);
    EXPECT(OK, pending_join(&first));
    CHECK(mortise_token(first.lease) > token);
    CHECK(test_count_get(&second.calls) == 0 && queue_length(&server, way.name) == 1);
    give(first.lease);
    receive(&way, &second);
    close_client(other);
    end(&way);
}

static void test_holder_killed(void)
{
    in_parallel(kill_holder, (void *)(uintptr_t)modes, sizeof *modes, MODES);
}

static bool is_free(void *argument)
{
    const struct asked *asked = argument;
    return ask_number(asked->server, "EXISTS mortise:%s", asked->name) == 0;
}

/* Free, because its holder has died, and the waiter has not asked yet: a try does not get ahead of it. */
static void barge(void *mode)
{
    struct way way;
    struct test_process taker;
    struct test_proxy proxy;
    struct pending pending;
    char settings[80];
    if (!begin(&way, *(const char **)mode, "try") || !start_proxy(&server, &proxy) ||
        !start_waiter(&way, &taker, LONG_MS, 1))
        return;
    snprintf(settings, sizeof settings, "%scommand_timeout = 1m\n", *(const char **)mode);
    mortise_client *far = open_by(&server, &proxy, NULL, settings);
    wait_for(&way, &pending, far, LONG_MS);
    CHECK(wait_queue(&server, way.name, 2));
    EXPECT(BUSY, try_once(way.client, way.name));
    CHECK(test_proxy_say(&proxy, "delay 1000000 up"));
    give(way.lease);
    CHECK(taker_token(&taker) > 0);
    test_kill(&taker);
    CHECK(ask_number(&server, "PEXPIRE mortise:%s 1", way.name) == 1); /* the same as by its ttl */
    CHECK(test_poll(is_free, &(struct asked){&server, way.name, 0}, TEST_PATIENCE_MS));
    CHECK(queue_length(&server, way.name) == 1);
    EXPECT(BUSY, try_once(way.client, way.name));
    CHECK(test_proxy_say(&proxy, "pass")); /* a refresh of the waiter may hang there */
    EXPECT(OK, pending_join(&pending));    /* that try has handed it the lock */
    give(pending.lease);
    close_client(far);
    test_proxy_end(&proxy);
    end(&way);
}

static void test_barge(void)
{
    in_parallel(barge, (void *)(uintptr_t)modes, sizeof *modes, MODES);
}

/* Waiters with the owner that gets the lock get it too, also in other processes, and also without a place: that of their
 * client is another owner's, which is not told who holds. */
static void test_owner(void)
{
    struct pending pendings[3] = {PENDING_INIT, PENDING_INIT, PENDING_INIT}, late = PENDING_INIT;
    char text[256];
    static const char *const owners[] = {"them", "us", "us"};
    mortise_client *clients[3];
    mortise_client *holder = open_at(&server, NULL, NULL, "mode = hash\n");
    mortise_lease *lease = take(holder, "owner");
    static const int order[] = {1, 0, 2};
    for (int i = 0; i < 3; i++) {
        clients[i] = open_at(&server, NULL, NULL, "mode = hash\n");
        pending_start(&pendings[order[i]], clients[i], "owner",
                      MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = order[i] == 0 ? 4500 : LONG_MS,
                                      .owner = owners[order[i]]));
        CHECK(wait_queue(&server, "owner", i + 1));
    }
    pending_start(&late, clients[1], "owner",
                  MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS, .owner = "us"));
    EXPECT(OK, mortise_ping(clients[1], text, sizeof text, &detail)); /* it has been refused */
    give(lease);
    EXPECT(OK, pending_join(&pendings[1]));
    EXPECT(OK, pending_join(&pendings[2]));
    EXPECT(OK, pending_join(&late));
    CHECK(holds(&server, "owner") == 3 && queue_length(&server, "owner") == 1);
    CHECK(mortise_token(pendings[1].lease) == mortise_token(pendings[2].lease));
    CHECK(mortise_token(pendings[1].lease) == mortise_token(late.lease));
    CHECK(is_covered(&server, "owner", pendings[2].lease));
    give(pendings[1].lease);
    give(late.lease);
    CHECK(test_count_get(&pendings[0].calls) == 0);
    give(pendings[2].lease);
    EXPECT(OK, pending_join(&pendings[0]));
    give(pendings[0].lease);
    for (int i = 0; i < 3; i++)
        close_client(clients[i]);
    close_client(holder);
}

static const CU_TestInfo tests[] = {
    {"fifty waiters of several processes are served in order", test_fifty},
    {"a waiter is killed", test_killed},
    {"a waiter is stopped", test_stopped},
    {"a waiter is stopped for longer than its place lasts", test_stopped_long},
    {"a waiter is cut off", test_cut},
    {"a waiter gives up at the moment of the push", test_give_up},
    {"giving up and waiting, again and again", test_give_up_races},
    {"the holder is killed", test_holder_killed},
    {"a try while somebody waits", test_barge},
    {"waiters of one owner", test_owner},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = server_start(&server, NULL);
    if (code == 0)
        code = run_tests("redis: queue", tests, argc, argv);
    return servers_end((struct server *const[]){&server}, 1, code);
}
