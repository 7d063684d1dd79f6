/* test_lost.c - the connection is cut before and after each byte of each request and of its reply, for acquire, renew
 * and release, in every layout and with both kinds of atomicity. Whether the server executed it or not, the lock is
 * held once, the status is correct, and nothing is left. */
#include "rig.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct server server;

/* The distance between two bytes that are tried. The nightly run tries every byte with every variant, which takes
 * minutes. Otherwise each variant begins at another byte, so that every byte is tried with one variant; of a reply, which may have four
 * bytes, with two. */
static int step = VARIANTS, step_of_replies = 4;

/* A thread's: its own proxy and names. */
struct way {
    const struct variant *variant;
    const char *direction; /* of the cut: "up", "down" */
    int first, step;       /* bytes that are tried */
    struct test_proxy proxy;
    mortise_client *client;
    const char *core; /* its settings */
    char name[64];
};

/* A client whose connection breaks time and again connects with pauses that grow: each cut has its own. */
static bool reopen(struct way *way)
{
    if (way->client)
        close_client(way->client);
    way->client = open_by(&server, &way->proxy, way->core, way->variant->settings);
    return way->client != NULL;
}

static bool begin(struct way *way, const char *what, const char *core)
{
    snprintf(doing, sizeof doing, "%s %s", way->variant->name, what);
    snprintf(way->name, sizeof way->name, "%s %s %s", what, way->direction, way->variant->name);
    way->core = core;
    return start_proxy(&server, &way->proxy) && reopen(way);
}

static void end(struct way *way)
{
    close_client(way->client);
    CHECK(holds(&server, way->name) == 0);
    test_proxy_end(&way->proxy);
}

static void at_byte(const struct way *way, const char *what, int byte)
{
    snprintf(doing, sizeof doing, "%s, %s, %s byte %d", way->variant->name, what, way->direction,
             byte);
}

/* The step was done while the connection was to be cut behind `byte` more bytes. True: it was cut. */
static bool was_cut(struct way *way, int64_t connections)
{
    bool cut = test_proxy_count(&way->proxy, "ever") > connections;
    CHECK(test_proxy_say(&way->proxy, "pass"));
    return cut;
}

static int64_t arm(struct way *way, int byte)
{
    int64_t connections = test_proxy_count(&way->proxy, "ever");
    CHECK(test_proxy_say(&way->proxy, "cut-after %s %d", way->direction, byte));
    return connections;
}

static mortise_lease *take_in(struct way *way)
{
    return take_as(way->client, way->name, way->variant->owner, LONG_MS);
}

/* ---- acquire ------------------------------------------------------------------------------------------------- */

static void check_had(struct way *way, mortise_lease *lease, uint64_t *token)
{
    CHECK(holds(&server, way->name) == 1);
    CHECK(is_covered(&server, way->name, lease));
    CHECK(mortise_state(lease) == MORTISE_STATE_HELD);
    if (way->variant->fencing)
        CHECK(mortise_token(lease) > *token);
    *token = mortise_token(lease);
}

static void cut_acquires(void *argument)
{
    struct way *way = argument;
    bool cut = true;
    uint64_t token = 0;
    if (!begin(way, "acquire", "handover_max = 0"))
        return;
    for (int byte = way->first; cut && !failures; byte += way->step) {
        at_byte(way, "acquire", byte);
        reopen(way);
        give(take_in(way)); /* the server knows the scripts, and it is known */
        int64_t connections = arm(way, byte);
        mortise_lease *lease = take_in(way);
        cut = was_cut(way, connections);
        check_had(way, lease, &token);
        give(lease);
        CHECK(holds(&server, way->name) == 0);
    }
    end(way);
}

/* ---- release ------------------------------------------------------------------------------------------------- */

/* Of a shared owner another lease stands, and must not be given back with it. */
static void cut_releases_of(struct way *way, mortise_client *other,
                            mortise_status (*release)(mortise_lease *, mortise_error *))
{
    bool cut = true;
    mortise_info info = {.size = sizeof info};
    mortise_lease *lease = NULL;
    int stays = way->variant->owner != NULL;
    mortise_lease *stay = stays ? take_as(other, way->name, way->variant->owner, LONG_MS) : NULL;
    for (int byte = way->first; cut && !failures; byte += way->step) {
        at_byte(way, "release", byte);
        reopen(way);
        give(take_in(way));
        if (!(lease = take_in(way)))
            break;
        CHECK(holds(&server, way->name) == stays + 1);
        int64_t connections = arm(way, byte);
        /* If another lease of the owner stays, the repeat cannot tell whether ours was released or lost. */
        mortise_status status = release(lease, &detail);
        CHECK(status == MORTISE_OK || (stays && status == MORTISE_INDETERMINATE));
        /* Behind it on the same connection: what was not waited for has its answer then, or is cut. Its reply is short: that
         * of a ping has ten thousand bytes, and each would be tried. */
        if (mortise_inspect(way->client, way->name, &info, &detail) != MORTISE_OK)
            EXPECT(OK, mortise_inspect(way->client, way->name, &info, &detail));
        CHECK(wait_holds(&server, way->name, stays));
        cut = was_cut(way, connections);
    }
    if (stay)
        give(stay);
}

static void cut_releases(void *argument)
{
    struct way *way = argument;
    if (!begin(way, "release", "handover_max = 0"))
        return;
    mortise_client *other = open_at(&server, NULL, NULL, way->variant->settings);
    cut_releases_of(way, other, mortise_release);
    close_client(other);
    end(way);
}

static void cut_late_releases(void *argument)
{
    struct way *way = argument;
    if (!begin(way, "release_nowait", "handover_max = 0"))
        return;
    mortise_client *other = open_at(&server, NULL, NULL, way->variant->settings);
    cut_releases_of(way, other, mortise_release_nowait);
    close_client(other);
    end(way);
}

/* Somebody deleted the lock. The server has said that it is not there, and the connection is cut before it says that it is the
 * primary: this release has changed nothing, so the lease was not held until the end. */
static void cut_roles(void *argument)
{
    struct way *way = argument;
    if (!has_scripts(way->variant) || !begin(way, "role", "handover_max = 0"))
        return;
    for (int byte = 4; byte < 24 && !failures; byte += 6) { /* ":0\r\n" comes first */
        at_byte(way, "role", byte);
        reopen(way);
        give(take_in(way));
        mortise_lease *lease = take_in(way);
        CHECK(ask_number(&server, "DEL mortise:%s", way->name) == 1);
        int64_t connections = arm(way, byte);
        mortise_status status = mortise_release(lease, &detail);
        CHECK(status == MORTISE_LOST || not_reached(status));
        CHECK(was_cut(way, connections));
    }
    end(way);
}

/* ---- renew ----------------------------------------------------------------------------------------------------- */

struct cut {
    struct way *way;
    int64_t connections;
};

static bool is_cut(void *argument)
{
    struct cut *cut = argument;
    return test_proxy_count(&cut->way->proxy, "ever") > cut->connections;
}

struct moved {
    uint64_t renewals;
    int64_t bytes;
};

/* Both at one instant, however long this thread stands still in between. */
static struct moved moved_by_now(struct way *way)
{
    struct moved moved;
    do {
        moved.renewals = stats_of(way->client).renewals;
        moved.bytes = test_proxy_count(&way->proxy, way->direction);
    } while (stats_of(way->client).renewals != moved.renewals);
    return moved;
}

/* How many bytes a renewal has, that way: those of ten or more, divided. */
static int renewal_size(struct way *way)
{
    struct moved before = moved_by_now(way);
    CHECK(wait_renewals(way->client, before.renewals + 10));
    struct moved after = moved_by_now(way);
    return (int)((after.bytes - before.bytes) / (int64_t)(after.renewals - before.renewals));
}

static void cut_renewal(struct way *way, int byte, int *size)
{
    struct told told = TOLD_INIT;
    mortise_lease *lease = NULL;
    reopen(way);
    EXPECT(OK, mortise_acquire(way->client, way->name,
                               MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = LONG_MS,
                                               .owner = way->variant->owner, .on_state = note_state,
                                               .user_data = &told),
                               &lease, &detail));
    CHECK(wait_renewals(way->client, 1)); /* the script is known */
    if (*size == 0)
        *size = renewal_size(way);
    struct cut cut = {way, arm(way, byte)};
    CHECK(test_poll(is_cut, &cut, TEST_PATIENCE_MS));
    CHECK(wait_renewals(way->client, stats_of(way->client).renewals + 1));
    CHECK(wait_state(lease, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    CHECK(is_covered(&server, way->name, lease));
    CHECK(holds(&server, way->name) == 1);
    give(lease);
    CHECK(test_count_get(&told.lost) == 0);
}

static void cut_renewals(void *argument)
{
    struct way *way = argument;
    int size = 0;
    if (!begin(way, "renew", "renew_every = 10ms"))
        return;
    for (int byte = way->first; (size == 0 || byte <= size) && !failures; byte += way->step) {
        at_byte(way, "renew", byte);
        cut_renewal(way, byte, &size);
    }
    CHECK(size > 0 && size < 2000);
    end(way);
}

/* ---- extend ---------------------------------------------------------------------------------------------------- */

/* The server keeps the lock for long, the client does not know, and hears after the reconnection only that it has it: when the
 * lease ends, so does the lock. */
static void test_extension(void)
{
    struct way way = {.variant = &variants[0], .direction = "down"};
    mortise_lease *lease = NULL;
    if (!begin(&way, "extend", NULL))
        return;
    EXPECT(OK, mortise_acquire(way.client, way.name,
                               MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = 3000, .no_renew = true),
                               &lease, &detail));
    EXPECT(OK, mortise_extend(lease, 0, &detail)); /* the script is known */
    struct cut cut = {&way, arm(&way, 1)};
    CHECK(not_reached(mortise_extend(lease, LONG_MS, &detail)));
    CHECK(test_poll(is_cut, &cut, TEST_PATIENCE_MS));
    CHECK(wait_state(lease, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    CHECK(wait_state(lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    EXPECT(LOST, mortise_release(lease, &detail));
    CHECK(wait_holds(&server, way.name, 0));
    end(&way);
}

/* ---- slow ---------------------------------------------------------------------------------------------------------- */

/* Each way takes 60 ms: no lease lasts longer here than in the server (R1). */
static void be_slow(void *argument)
{
    struct way *way = argument;
    if (!begin(way, "slow", "renew_every = 300ms"))
        return;
    give(take_in(way));
    CHECK(test_proxy_say(&way->proxy, "delay 60 both"));
    mortise_lease *lease = take_as(way->client, way->name, way->variant->owner, 6000);
    CHECK(is_covered(&server, way->name, lease));
    for (int i = 0; i < 2; i++) {
        CHECK(wait_renewals(way->client, stats_of(way->client).renewals + 1));
        CHECK(is_covered(&server, way->name, lease));
    }
    CHECK(test_proxy_say(&way->proxy, "pass"));
    give(lease);
    end(way);
}

/* ---- the tests ---------------------------------------------------------------------------------------------------- */

static void in_every_variant(void (*run)(void *way), const char *direction, const char *other)
{
    struct way ways[32];
    const size_t count = other ? 2 * VARIANTS : VARIANTS;
    memset(ways, 0, sizeof ways);
    for (size_t i = 0; i < count; i++) {
        ways[i].variant = &variants[i % VARIANTS];
        ways[i].direction = i < VARIANTS ? direction : other;
        ways[i].step = !other && strcmp(direction, "down") == 0 ? step_of_replies : step;
        ways[i].first = (int)(i % VARIANTS) % ways[i].step;
    }
    in_parallel(run, ways, sizeof *ways, count);
}

static void test_acquire_requests(void)
{
    in_every_variant(cut_acquires, "up", NULL);
}

static void test_acquire_replies(void)
{
    in_every_variant(cut_acquires, "down", NULL);
}

static void test_release_requests(void)
{
    in_every_variant(cut_releases, "up", NULL);
}

static void test_release_replies(void)
{
    in_every_variant(cut_releases, "down", NULL);
}

static void test_late_release_requests(void)
{
    in_every_variant(cut_late_releases, "up", NULL);
}

static void test_late_release_replies(void)
{
    in_every_variant(cut_late_releases, "down", NULL);
}

static void test_roles(void)
{
    in_every_variant(cut_roles, "down", NULL);
}

static void test_renewals(void)
{
    in_every_variant(cut_renewals, "up", "down");
}

static void test_slow(void)
{
    in_every_variant(be_slow, "both", NULL);
}

static const CU_TestInfo tests[] = {
    {"acquire, cut at each byte of the request", test_acquire_requests},
    {"acquire, cut at each byte of the reply", test_acquire_replies},
    {"release, cut at each byte of the request", test_release_requests},
    {"release, cut at each byte of the reply", test_release_replies},
    {"release_nowait, cut at each byte of the request", test_late_release_requests},
    {"release_nowait, cut at each byte of the reply", test_late_release_replies},
    {"release of a lock that is gone, cut behind the answer", test_roles},
    {"renew, cut at each byte of the request and of the reply", test_renewals},
    {"a lost extension keeps no lock", test_extension},
    {"no lease outlives its claim on a slow network", test_slow},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    const char *nightly = getenv("MORTISE_NIGHTLY");
    if (nightly && strcmp(nightly, "1") == 0)
        step = step_of_replies = 1;
    int code = server_start(&server, NULL);
    if (code == 0)
        code = run_tests("redis: lost replies", tests, argc, argv);
    return servers_end((struct server *const[]){&server}, 1, code);
}
