/* test_waiting.c - faults that broke other clients while they waited for a lock, tried it, or released it: each test
 * causes the fault of a public issue on a real server, and has its name. */
#include "rig.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static struct server server;
static const char no_queue[] = "queue = no\n"; /* each name has a channel then */

/* ---- helpers --------------------------------------------------------------------------------------------------- */

static bool are_subscribed(void *argument)
{
    const struct asked *asked = argument;
    redisReply *reply = ask(asked->server, "PUBSUB NUMSUB {mortise:%s}:mortise:news", asked->name);
    bool are = reply && reply->elements == 2 && reply->element[1]->integer >= asked->number;
    freeReplyObject(reply);
    return are;
}

/* Waits until that many clients wait for the name. */
static bool wait_subscribers(const char *name, int64_t number)
{
    struct asked asked = {&server, name, number};
    return test_poll(are_subscribed, &asked, TEST_PATIENCE_MS);
}

static int64_t count_channels(void)
{
    redisReply *reply = ask(&server, "PUBSUB CHANNELS *");
    int64_t count = reply && reply->type == REDIS_REPLY_ARRAY ? (int64_t)reply->elements : -1;
    freeReplyObject(reply);
    return count;
}

static bool channels_are(void *argument)
{
    const struct asked *asked = argument;
    return count_channels() == asked->number;
}

static bool wait_channels(int64_t number)
{
    struct asked asked = {&server, NULL, number};
    return test_poll(channels_are, &asked, TEST_PATIENCE_MS);
}

struct counted {
    struct test_proxy *proxy;
    const char *what;
    int64_t above;
};

static bool is_above(void *argument)
{
    const struct counted *counted = argument;
    return test_proxy_count(counted->proxy, counted->what) > counted->above;
}

static bool wait_above(struct test_proxy *proxy, const char *what, int64_t above)
{
    struct counted counted = {proxy, what, above};
    return test_poll(is_above, &counted, TEST_PATIENCE_MS);
}

static bool is_kept(void *proxy)
{
    return test_proxy_count(proxy, "up_taken") > test_proxy_count(proxy, "up");
}

/* ---- redisson#5761: the lock is released before the subscription is in force: nobody wakes the waiter ------------------ */

/* The proxy holds back what the driver sends after the refusal. False: this thread was stopped at the wrong moment,
 * and the driver has already subscribed. */
static bool keep_subscription(struct test_proxy *proxy, mortise_client *client, const char *name,
                              struct pending *pending)
{
    char text[256];
    EXPECT(OK, mortise_ping(client, text, sizeof text, &detail));
    int64_t replied = test_proxy_count(proxy, "down_taken");
    CHECK(test_proxy_say(proxy, "delay 400 down")); /* the refusal is under way */
    *pending = PENDING_INIT;
    pending_start(pending, client, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(wait_above(proxy, "down_taken", replied));
    CHECK(test_proxy_say(proxy, "delay 1000000 up")); /* and the subscription is held back */
    return test_poll(is_kept, proxy, 2000);
}

static void release_unheard(void *argument)
{
    const struct variant *variant = argument;
    struct test_proxy proxy;
    struct pending pending = PENDING_INIT;
    bool kept = false;
    char name[64];
    snprintf(doing, sizeof doing, "%s", variant->name);
    snprintf(name, sizeof name, "unheard %s", variant->name);
    if (!start_proxy(&server, &proxy))
        return;
    mortise_client *holder = open_at(&server, NULL, NULL, variant->settings);
    mortise_client *client = open_by(&server, &proxy, NULL, variant->settings);
    while (!kept && !failures) {
        mortise_lease *lease = take(holder, name);
        kept = keep_subscription(&proxy, client, name, &pending);
        give(lease);
        CHECK(test_proxy_say(&proxy, "pass"));
        EXPECT(OK, pending_join(&pending)); /* far earlier than the ttl that the refusal reported */
        give(pending.lease);
    }
    close_client(holder);
    close_client(client);
    test_proxy_end(&proxy);
}

static void test_unheard(void)
{
    in_parallel(release_unheard, (void *)(uintptr_t)variants, sizeof *variants, VARIANTS);
}

/* The same if the subscription breaks while a caller waits, and is made again. */
static void test_unheard_again(void)
{
    struct test_proxy proxy;
    struct pending pending = PENDING_INIT;
    if (!start_proxy(&server, &proxy))
        return;
    mortise_client *holder = open_at(&server, NULL, NULL, no_queue);
    mortise_client *client = open_by(&server, &proxy, NULL, no_queue);
    mortise_lease *lease = take(holder, "unheard");
    pending_start(&pending, client, "unheard", MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(wait_subscribers("unheard", 1));
    CHECK(test_proxy_say(&proxy, "refuse"));
    CHECK(wait_channels(0));
    give(lease); /* nobody is subscribed */
    CHECK(test_proxy_say(&proxy, "pass"));
    EXPECT(OK, pending_join(&pending));
    give(pending.lease);
    close_client(holder);
    close_client(client);
    test_proxy_end(&proxy);
}

/* ---- redisson#2575: subscriptions that are no longer needed -------------------------------------------------------------- */

#define NAMES 60

static struct pending leaks[NAMES];

static void wait_for_leak(mortise_client *client, int i, int64_t wait_ms)
{
    char name[32];
    snprintf(name, sizeof name, "leak-%d", i);
    leaks[i] = PENDING_INIT;
    pending_start(&leaks[i], client, name, MORTISE_OPTIONS(.wait_ms = wait_ms, .ttl_ms = LONG_MS));
}

static void test_leaked_subscriptions(void)
{
    mortise_lease *leases[NAMES];
    char name[32];
    mortise_client *holder = open_at(&server, NULL, NULL, no_queue);
    mortise_client *client = open_at(&server, NULL, NULL, no_queue);
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "leak-%d", i);
        leases[i] = take(holder, name);
        if (i % 3 != 0)
            wait_for_leak(client, i, -1);
    }
    CHECK(wait_channels(NAMES - NAMES / 3));
    for (int i = 0; i < NAMES; i += 3)
        wait_for_leak(client, i, 300);
    for (int i = 0; i < NAMES; i++) /* a third gives up by itself */
        if (i % 3 == 1)
            EXPECT(OK, mortise_cancel(client, leaks[i].request));
        else if (i % 3 == 2)
            give(leases[i]);
    for (int i = 0; i < NAMES; i++) {
        static const mortise_status wanted[] = {MORTISE_TIMEDOUT, MORTISE_CANCELED, MORTISE_OK};
        CHECK(pending_join(&leaks[i]) == wanted[i % 3]);
    }
    CHECK(wait_channels(0)); /* although both clients live */
    for (int i = 0; i < NAMES; i++)
        give(i % 3 == 2 ? leaks[i].lease : leases[i]);
    close_client(holder);
    close_client(client);
}

/* ---- redisson#4178: a release timed out, the thread "re-enters" the lock that it left, others starve --------------------------- */

static void release_in_vain(void *argument)
{
    const struct variant *variant = argument;
    struct test_proxy proxy;
    char name[64];
    snprintf(doing, sizeof doing, "%s", variant->name);
    snprintf(name, sizeof name, "in vain %s", variant->name);
    if (!start_proxy(&server, &proxy))
        return;
    const char *owner = variant->owner ? MORTISE_OWNER_THREAD : NULL;
    mortise_client *client =
        open_by(&server, &proxy, "unreachable_timeout = 3s", variant->settings);
    mortise_client *other = open_at(&server, NULL, NULL, variant->settings);
    mortise_lease *lease = take_as(client, name, owner, LONG_MS);
    CHECK(test_proxy_say(&proxy, "hold-up"));
    EXPECT(INDETERMINATE, mortise_release(lease, &detail));
    CHECK(holds(&server, name) == 1);
    CHECK(test_proxy_say(&proxy, "pass"));
    lease = take_as(client, name, owner, LONG_MS);
    CHECK(wait_holds(&server, name, 1)); /* the new hold, not the one that was left */
    give(lease);
    CHECK(wait_holds(&server, name, 0));
    EXPECT(OK, try_once(other, name));
    close_client(client);
    close_client(other);
    test_proxy_end(&proxy);
}

static void test_release_in_vain(void)
{
    in_parallel(release_in_vain, (void *)(uintptr_t)variants, sizeof *variants, VARIANTS);
}

/* ---- redisson#6651: the owner gets "not the owner" after its release was repeated ---------------------------------------------- */

static void release_twice(void *argument)
{
    const struct variant *variant = argument;
    struct test_proxy proxy;
    char name[64];
    if (!has_scripts(variant)) /* it writes only after it has read a reply */
        return;
    snprintf(doing, sizeof doing, "%s", variant->name);
    snprintf(name, sizeof name, "twice %s", variant->name);
    if (!start_proxy(&server, &proxy))
        return;
    mortise_client *client = open_by(&server, &proxy, NULL, variant->settings);
    mortise_client *other = open_at(&server, NULL, NULL, variant->settings);
    const char *owner = variant->owner ? MORTISE_OWNER_THREAD : NULL;
    mortise_lease *lease = take_as(client, name, owner, LONG_MS);
    struct pending pending = PENDING_INIT; /* acquires it between the release and its repeat */
    pending_start(&pending, other, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(test_proxy_say(&proxy, "lose"));
    EXPECT(OK, mortise_release_nowait(lease, &detail));
    EXPECT(OK, pending_join(&pending)); /* it was executed */
    CHECK(test_proxy_say(&proxy, "pass"));
    CHECK(wait_works(client));
    CHECK(holds(&server, name) == 1 && mortise_state(pending.lease) == MORTISE_STATE_HELD);
    give(pending.lease);
    lease = take_as(client, name, owner, LONG_MS);
    CHECK(test_proxy_say(&proxy, "cut-reply 1"));
    EXPECT(OK, mortise_release(lease, &detail));
    close_client(client);
    close_client(other);
    test_proxy_end(&proxy);
}

static void test_release_twice(void)
{
    in_parallel(release_twice, (void *)(uintptr_t)variants, sizeof *variants, VARIANTS);
}

/* ---- redis-plus-plus: in transactions, extending another's key is reported as a success ----------------------------------------- */

static void extend_anothers(void *argument)
{
    const struct variant *variant = argument;
    char name[64];
    struct told told = TOLD_INIT;
    mortise_lease *lease = NULL;
    snprintf(doing, sizeof doing, "%s", variant->name);
    snprintf(name, sizeof name, "extended %s", variant->name);
    mortise_client *client =
        open_at(&server, NULL, "ttl = 2s\nrenew_every = 500ms", variant->settings);
    mortise_client *other = open_at(&server, NULL, NULL, variant->settings);
    EXPECT(OK,
           mortise_acquire(client, name,
                           MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = LONG_MS, .on_state = note_state,
                                           .user_data = &told, .owner = variant->owner),
                           &lease, &detail));
    CHECK(ask_number(&server, "DEL mortise:%s", name) == 1);
    mortise_lease *theirs = take_as(other, name, NULL, 20000);
    CHECK(test_count_wait(&told.lost, 1));
    CHECK(pttl(&server, name) <= 20000);
    CHECK(mortise_state(theirs) == MORTISE_STATE_HELD && holds(&server, name) == 1);
    EXPECT(LOST, mortise_release(lease, &detail));
    CHECK(holds(&server, name) == 1);
    give(theirs);
    close_client(client);
    close_client(other);
}

static void test_extend_anothers(void)
{
    in_parallel(extend_anothers, (void *)(uintptr_t)variants, sizeof *variants, VARIANTS);
}

/* ---- redsync#158: a network failure is reported as "already taken" ------------------------------------------------------------------ */

/* Tries again if the time was over before anything happened. */
static bool tells_who_fails(void *client)
{
    mortise_status status = try_once(client, "not taken");
    CHECK(status == MORTISE_UNREACHABLE || status == MORTISE_INDETERMINATE);
    CHECK(detail.retryable);
    return strstr(detail.message, "127.0.0.1:") != NULL;
}

static void test_not_taken(void)
{
    static const char *const faults[] = {"refuse", "hold", "cut-after up 0 each", "lose"};
    struct test_proxy proxy;
    if (!start_proxy(&server, &proxy))
        return;
    mortise_client *client = open_by(&server, &proxy, "unreachable_timeout = 150ms",
                                     "connect_timeout = 50ms\ncommand_timeout = 50ms");
    mortise_client *other = open_at(&server, NULL, NULL, NULL);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        snprintf(doing, sizeof doing, "%s", faults[i]);
        CHECK(wait_works(client)); /* there is a connection */
        CHECK(test_proxy_say(&proxy, "%s", faults[i]));
        CHECK(test_poll(tells_who_fails, client, TEST_PATIENCE_MS));
        CHECK(test_proxy_say(&proxy, "pass"));
        give(take_as(other, "not taken", NULL, 20000)); /* what was executed late is undone */
        CHECK(wait_holds(&server, "not taken", 0));
    }
    close_client(client);
    close_client(other);
    test_proxy_end(&proxy);
}

/* ---- rueidis#602, redis-plus-plus: what waiting costs ------------------------------------------------------------------------------------ */

#define WAITERS 40

static int64_t cpu_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The commands that the server has executed, except our own. */
static int64_t commands(void)
{
    return info_number(&server, "stats", "total_commands_processed");
}

/* Forty clients wait for a lock; the test counts what they do in a second. */
static void test_cost_of_waiting(void)
{
    static struct pending pendings[WAITERS];
    static struct test_count never = TEST_COUNT_INIT;
    bool served[WAITERS] = {false};
    mortise_client *clients[WAITERS], *holder = open_at(&server, NULL, NULL, no_queue);
    mortise_lease *lease = take(holder, "cost");
    for (int i = 0; i < WAITERS; i++) {
        clients[i] = open_at(&server, NULL, NULL, no_queue);
        pendings[i] = PENDING_INIT;
        pending_start(&pendings[i], clients[i], "cost",
                      MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    }
    CHECK(wait_subscribers("cost", WAITERS));
    CHECK(stats_of(clients[WAITERS - 1]).waiting == 1);
    int64_t idle_ms = test_now_ms(), cpu = cpu_ms(), asked = commands();
    test_count_wait_ms(&never, 1, 1000); /* and costs nothing itself */
    int64_t asked_in_between = commands() - asked;
    CHECK(asked_in_between <=
          3 * WAITERS); /* each may have tried once more after its subscription */
    CHECK(cpu_ms() - cpu < (test_now_ms() - idle_ms) / 2 + 20);
    give(lease);
    for (int i = 0; i < WAITERS; i++) {
        int next = 0;
        while (served[next] || test_count_get(&pendings[next].calls) == 0)
            next = (next + 1) % WAITERS;
        served[next] = true;
        EXPECT(OK, pending_join(&pendings[next]));
        give(pendings[next].lease);
    }
    for (int i = 0; i < WAITERS; i++)
        close_client(clients[i]);
    close_client(holder);
}

/* Giving up and waiting again at once, many times: no outcome is lost, none comes twice. */
static void test_cancel_races(void)
{
    mortise_client *holder = open_at(&server, NULL, NULL, no_queue);
    mortise_client *client = open_at(&server, NULL, NULL, no_queue);
    mortise_lease *lease = take(holder, "cancels");
    for (int i = 0; i < 300 && !failures; i++) {
        struct pending first = PENDING_INIT, second = PENDING_INIT;
        pending_start(&first, client, "cancels", MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
        if (i % 3 == 0)
            CHECK(wait_channels(1));
        mortise_cancel(client, first.request);
        pending_start(&second, client, "cancels",
                      MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
        EXPECT(CANCELED, pending_join(&first));
        give(lease);
        EXPECT(OK, pending_join(&second));
        give(second.lease);
        lease = take(holder, "cancels");
    }
    give(lease);
    CHECK(wait_channels(0));
    close_client(holder);
    close_client(client);
}

static const CU_TestInfo tests[] = {
    {"redisson#5761, #1763: unlock published before the subscription was ready", test_unheard},
    {"redisson#5761: unlock published while the subscription was broken", test_unheard_again},
    {"redisson#2575, #4064: leaked subscriptions", test_leaked_subscriptions},
    {"redisson#4178: unlock timed out, the thread re-enters the leak", test_release_in_vain},
    {"redisson#6651: the owner told 'not the owner' after a retried unlock", test_release_twice},
    {"redis-plus-plus: extend in a transaction succeeds on another's key", test_extend_anothers},
    {"redsync#158: a network failure told as 'already taken'", test_not_taken},
    {"rueidis#602, redis-plus-plus: what waiting costs", test_cost_of_waiting},
    {"rueidis#602: cancel races with the next wait", test_cancel_races},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = server_start(&server, NULL);
    if (code == 0)
        code = run_tests("redis: waiting", tests, argc, argv);
    return servers_end((struct server *const[]){&server}, 1, code);
}
