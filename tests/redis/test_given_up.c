/* test_given_up.c - answers that never come, on connections that stay; and callers that give up while there is no
 * connection, or one without answers. In every layout, with both kinds of atomicity: the lock is granted once, or
 * nothing is left. */
#include "rig.h"

#include <stdio.h>
#include <string.h>

static struct server server;

struct way {
    const struct variant *variant;
    const char *fault;
    struct test_proxy proxy;
    mortise_client *client;
    char name[64];
    int64_t taken; /* bytes of the client's that the proxy had */
};

static bool begin(struct way *way, const char *what)
{
    snprintf(doing, sizeof doing, "%s, %s", what, way->variant->name);
    snprintf(way->name, sizeof way->name, "%s %s", what, way->variant->name);
    char settings[160];
    snprintf(settings, sizeof settings, "%scommand_timeout = 10m\n", way->variant->settings);
    if (!start_proxy(&server, &way->proxy))
        return false;
    way->client = open_by(&server, &way->proxy, "unreachable_timeout = 10m", settings);
    return way->client && CHECK(wait_works(way->client));
}

static void end(struct way *way)
{
    close_client(way->client);
    CHECK(holds(&server, way->name) == 0);
    test_proxy_end(&way->proxy);
}

static void start(struct way *way, struct pending *pending, const char *name)
{
    *pending = PENDING_INIT;
    pending_start(pending, way->client, name,
                  MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS, .owner = way->variant->owner));
}

static bool has_asked(void *argument)
{
    struct way *way = argument;
    return test_proxy_count(&way->proxy, "up_taken") > way->taken;
}

static void ask_by(struct way *way, struct pending *pending, const char *name)
{
    way->taken = test_proxy_count(&way->proxy, "up_taken");
    start(way, pending, name);
    CHECK(test_poll(has_asked, way, TEST_PATIENCE_MS));
}

/* ---- no answer ----------------------------------------------------------------------------------------------------- */

/* What was asked is executed, and not answered; by transactions it was only read. Then the connection ends. */
static void lose_answers(void *argument)
{
    struct way *way = argument;
    struct pending pending;
    if (!begin(way, "unanswered"))
        return;
    for (int i = 0; i < 3; i++) {
        CHECK(test_proxy_say(&way->proxy, "lose"));
        ask_by(way, &pending, way->name);
        CHECK(test_count_get(&pending.calls) == 0);
        CHECK(test_proxy_say(&way->proxy, "pass"));
        EXPECT(OK, pending_join(&pending));
        CHECK(holds(&server, way->name) == 1);
        CHECK(is_covered(&server, way->name, pending.lease));
        give(pending.lease);

        CHECK(test_proxy_say(&way->proxy, "lose"));
        ask_by(way, &pending, way->name);
        EXPECT(OK, mortise_cancel(way->client, pending.request));
        EXPECT(CANCELED, pending_join(&pending));
        CHECK(test_proxy_say(&way->proxy, "pass"));
        CHECK(wait_works(way->client));
        CHECK(wait_holds(&server, way->name, 0));
    }
    end(way);
}

static void test_unanswered(void)
{
    struct way ways[VARIANTS] = {{.variant = NULL}};
    for (int i = 0; i < VARIANTS; i++)
        ways[i].variant = &variants[i];
    in_parallel(lose_answers, ways, sizeof *ways, VARIANTS);
}

/* ---- no connection --------------------------------------------------------------------------------------------------- */

static bool has_queue(const struct variant *variant)
{
    return variant->settings[0] == '\0' || strcmp(variant->settings, "mode = hash\n") == 0;
}

/* One who waits already and one who has not asked yet give up while it is being made anew. */
static void cancel_connecting(void *argument)
{
    struct way *way = argument;
    struct pending waiter, newcomer;
    char other[80];
    if (!begin(way, way->fault))
        return;
    snprintf(other, sizeof other, "%s, newcomer", way->name);
    mortise_client *holder = open_at(&server, NULL, NULL, way->variant->settings);
    mortise_lease *lease =
        take_as(holder, way->name, way->variant->owner ? "others:1" : NULL, LONG_MS);
    ask_by(way, &waiter, way->name);
    if (has_queue(way->variant))
        CHECK(wait_queue(&server, way->name, 1));
    CHECK(test_proxy_say(&way->proxy, "%s", way->fault));
    CHECK(test_proxy_say(&way->proxy, "cut"));
    start(way, &newcomer, other);
    EXPECT(OK, mortise_cancel(way->client, newcomer.request));
    EXPECT(OK, mortise_cancel(way->client, waiter.request));
    EXPECT(CANCELED, pending_join(&newcomer));
    EXPECT(CANCELED, pending_join(&waiter));
    CHECK(test_proxy_say(&way->proxy, "pass"));
    CHECK(wait_works(way->client));
    CHECK(wait_queue(&server, way->name, 0)); /* though its holder is there for a minute */
    CHECK(holds(&server, way->name) == 1);
    give(lease);
    CHECK(wait_holds(&server, way->name, 0));
    CHECK(holds(&server, other) == 0);
    close_client(holder);
    end(way);
}

static void test_connecting(void)
{
    static const char *const faults[] = {"refuse", "hold", "cut-after up 0 each"};
    for (int round = 0; round < 3; round++) {
        struct way ways[VARIANTS] = {{.variant = NULL}};
        for (int i = 0; i < VARIANTS; i++) {
            ways[i].variant = &variants[i];
            ways[i].fault = faults[(i + round) % 3];
        }
        in_parallel(cancel_connecting, ways, sizeof *ways, VARIANTS);
    }
}

/* ---- the lock is another program's ------------------------------------------------------------------------------------ */

/* Its key becomes one of another type while one waits: that one leaves its place, and its client ends in time. Who held the lock is
 * told what is wrong. */
static void leave_other_type(const char *settings, mortise_mode mode, mortise_mode held)
{
    static const char replace[] = "redis.call('del', KEYS[1]) "
                                  "return redis.call('rpush', KEYS[1], 'theirs')";
    struct pending waiter = PENDING_INIT;
    mortise_lease *lease = NULL;
    snprintf(doing, sizeof doing, "another type, mode %d behind %d, %s", (int)mode, (int)held,
             settings);
    mortise_client *holder = open_at(&server, NULL, NULL, settings);
    mortise_client *client = open_at(&server, NULL, NULL, settings);
    EXPECT(OK, mortise_acquire(holder, "typed",
                               MORTISE_OPTIONS(.mode = held, .wait_ms = 0, .ttl_ms = LONG_MS,
                                               .permits = (uint32_t)held),
                               &lease, &detail));
    pending_start(
        &waiter, client, "typed",
        MORTISE_OPTIONS(.mode = mode, .wait_ms = -1, .ttl_ms = LONG_MS, .permits = (uint32_t)mode));
    CHECK(wait_queue(&server, "typed", 1));
    CHECK(ask_number(&server, "EVAL %s 1 mortise:typed", replace) == 1);
    EXPECT(OK, mortise_cancel(client, waiter.request));
    EXPECT(CANCELED, pending_join(&waiter));
    EXPECT(OK, mortise_close(client, &detail));
    CHECK(queue_length(&server, "typed") == 0);
    EXPECT(BACKEND, mortise_release(lease, &detail));
    SAYS("used for something else");
    CHECK(ask_is(&server, "theirs", "LINDEX mortise:typed 0"));
    freeReplyObject(ask(&server, "DEL mortise:typed {mortise:typed}:mortise:holders "
                                 "{mortise:typed}:mortise:shares"));
    EXPECT(UNREACHABLE, mortise_close(holder, &detail)); /* it cannot know that nothing is left */
}

static void test_other_type(void)
{
    static const char *const settings[] = {"", "mode = hash\n"};
    for (int i = 0; i < 2; i++) {
        leave_other_type(settings[i], MORTISE_EXCLUSIVE, MORTISE_EXCLUSIVE);
        leave_other_type(settings[i], MORTISE_SHARED, MORTISE_EXCLUSIVE);
        leave_other_type(settings[i], MORTISE_EXCLUSIVE, MORTISE_SHARED);
        leave_other_type(settings[i], MORTISE_SHARED, MORTISE_SHARED); /* one permit: it waits */
    }
}

static const CU_TestInfo tests[] = {
    {"no answer, and then no connection", test_unanswered},
    {"given up while connecting anew", test_connecting},
    {"given up behind a key of another type", test_other_type},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = server_start(&server, NULL);
    if (code == 0)
        code = run_tests("redis: given up", tests, argc, argv);
    return servers_end((struct server *const[]){&server}, 1, code);
}
