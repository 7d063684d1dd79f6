/* test_delayed.c - a request on a broken connection is executed later, when its client has long continued on another
 * one: the proxy holds the bytes back, and forwards them at the end.
 *
 * If the client may end its old connection in the server, nothing of it is executed. Otherwise the late acquire takes
 * the lock again after its release, and must be found and removed long before its ttl ends. */
#include "rig.h"

#include <stdio.h>
#include <string.h>

static struct server server;  /* with all rights */
static struct server limited; /* without CLIENT KILL */

static const char timeouts[] = "connect_timeout = 600ms\ncommand_timeout = 600ms\n";
static const char user[] = "username = mortise\npassword = secret\n";

struct way {
    const struct variant *variant;
    struct server *server;
    struct test_proxy proxy;
    mortise_client *client;
    char name[64];
    int64_t token; /* the last one */
};

static bool begin(struct way *way, const char *what)
{
    const char *core = way->server == &limited ? "close_timeout = 300ms" : "close_timeout = 60s";
    char settings[256], all[100];
    snprintf(doing, sizeof doing, "%s, %s", way->variant->name, what);
    snprintf(way->name, sizeof way->name, "%s %s", what, way->variant->name);
    snprintf(settings, sizeof settings, "%s%s%s", timeouts, way->server == &limited ? user : "",
             way->variant->settings);
    if (!start_proxy(way->server, &way->proxy))
        return false;
    snprintf(all, sizeof all, "handover_max = 0\nrenew_every = 800ms\n%s", core);
    way->client = open_by(way->server, &way->proxy, all, settings);
    return way->client != NULL;
}

/* A release that is not sure yet goes on; mortise_close() does not wait for its ttl, and says so. */
static void end(struct way *way)
{
    mortise_status status = mortise_close(way->client, &detail);
    if (status != MORTISE_UNREACHABLE || way->server != &limited)
        EXPECT(OK, status);
    CHECK(holds(way->server, way->name) == 0);
    test_proxy_end(&way->proxy);
}

/* ---- holding back -------------------------------------------------------------------------------------------- */

struct counted {
    struct test_proxy *proxy;
    const char *what;
    int64_t from, to;
};

static bool is_counted(void *argument)
{
    const struct counted *counted = argument;
    int64_t count = test_proxy_count(counted->proxy, counted->what);
    return count >= counted->from && count <= counted->to;
}

static bool wait_count(struct way *way, const char *what, int64_t from, int64_t to)
{
    struct counted counted = {&way->proxy, what, from, to};
    return test_poll(is_counted, &counted, TEST_PATIENCE_MS);
}

/* Holds back what is sent from now on. */
static void keep_back(struct way *way)
{
    CHECK(test_proxy_say(&way->proxy, "delay 1000000 up"));
}

static bool is_kept(void *argument)
{
    struct way *way = argument;
    return test_proxy_count(&way->proxy, "up_taken") > test_proxy_count(&way->proxy, "up");
}

/* Something is held back; what is sent from now on, on other connections, is not. */
static void keep_only(struct way *way)
{
    CHECK(test_poll(is_kept, way, TEST_PATIENCE_MS));
    CHECK(test_proxy_say(&way->proxy, "delay 0 both"));
}

/* The held bytes reach the server, and then the end of that connection. When it is gone in the proxy, the server has
 * executed what it would. */
static void let_go(struct way *way)
{
    CHECK(wait_count(way, "now", 2, INT64_MAX));
    CHECK(test_proxy_say(&way->proxy, "pass"));
    CHECK(wait_count(way, "now", 0, 1));
}

static int64_t token_of(struct way *way)
{
    return ask_number(way->server, "GET {mortise:%s}:mortise:token", way->name);
}

static bool token_has_grown(void *argument)
{
    struct way *way = argument;
    return token_of(way) > way->token;
}

/* Everything is sent as at the second time: scripts by their digest. */
static void warm_up(struct way *way)
{
    mortise_lease *lease = take_as(way->client, way->name, way->variant->owner, LONG_MS);
    give(lease);
    CHECK(holds(way->server, way->name) == 0);
}

/* ---- a delayed acquire ------------------------------------------------------------------------------------------- */

/* Its request is held back; repeated on a new connection it is granted, and released. */
static void acquire_twice(struct way *way)
{
    struct pending pending = PENDING_INIT;
    keep_back(way);
    pending_start(&pending, way->client, way->name,
                  MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS, .owner = way->variant->owner));
    keep_only(way);
    EXPECT(OK, pending_join(&pending));
    CHECK(holds(way->server, way->name) == 1);
    give(pending.lease);
    CHECK(holds(way->server, way->name) == 0);
    way->token = token_of(way);
}

static void delay_acquire(void *argument)
{
    struct way *way = argument;
    if (!begin(way, "acquire"))
        return;
    warm_up(way);
    acquire_twice(way);
    let_go(way);
    CHECK(holds(way->server, way->name) == 0);
    CHECK(token_of(way) == way->token);
    end(way);
}

/* With scripts, the lock comes back. A transaction is refused, because the keys that it watched have changed. */
static void return_acquire(void *argument)
{
    struct way *way = argument;
    if (!begin(way, "acquire comes back"))
        return;
    warm_up(way);
    acquire_twice(way);
    let_go(way);
    if (way->variant->fencing && has_scripts(way->variant))
        CHECK(test_poll(token_has_grown, way, TEST_PATIENCE_MS));
    CHECK(wait_holds(way->server, way->name, 0));
    end(way);
}

/* ---- a delayed acquire that was given up ---------------------------------------------------------------------------- */

static void give_up(struct way *way)
{
    struct pending pending = PENDING_INIT;
    keep_back(way);
    pending_start(&pending, way->client, way->name,
                  MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS, .owner = way->variant->owner));
    keep_only(way);
    EXPECT(OK, mortise_cancel(way->client, pending.request));
    EXPECT(CANCELED, pending_join(&pending));
    CHECK(wait_works(way->client)); /* over a new connection, behind the first release */
}

static void delay_given_up(void *argument)
{
    struct way *way = argument;
    if (!begin(way, "given up"))
        return;
    warm_up(way);
    give_up(way);
    way->token = token_of(way);
    let_go(way);
    CHECK(holds(way->server, way->name) == 0);
    CHECK(token_of(way) == way->token);
    end(way);
}

static void return_given_up(void *argument)
{
    struct way *way = argument;
    if (!begin(way, "given up, comes back"))
        return;
    warm_up(way);
    give_up(way);
    let_go(way);
    CHECK(wait_holds(way->server, way->name, 0));
    end(way);
}

/* Replies are late, long enough to hold back what follows the first ones. If this thread is stopped for longer,
 * nothing is held back, the lock is acquired, and the test tries again. */
static bool keep_transaction(struct way *way, struct pending *pending)
{
    *pending = PENDING_INIT;
    int64_t replied = test_proxy_count(&way->proxy, "down_taken");
    CHECK(test_proxy_say(&way->proxy, "delay 400 down"));
    pending_start(pending, way->client, way->name,
                  MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS, .owner = way->variant->owner));
    CHECK(wait_count(way, "down_taken", replied + 1, INT64_MAX));
    keep_back(way);
    while (!is_kept(way) && test_count_get(&pending->calls) == 0)
        test_count_wait_ms(&pending->calls, 1, 1);
    CHECK(test_proxy_say(&way->proxy, "delay 0 both"));
    bool kept = test_count_get(&pending->calls) == 0;
    if (!kept) {
        CHECK(test_proxy_say(&way->proxy, "pass"));
        EXPECT(OK, pending_join(pending));
        give(pending->lease);
    }
    return kept;
}

/* MULTI … EXEC of an acquire is held back: nobody changes what it watches, so it will be executed. */
static void return_transaction(void *argument)
{
    struct way *way = argument;
    struct pending pending;
    if (!begin(way, "transaction comes back"))
        return;
    warm_up(way);
    while (!keep_transaction(way, &pending) && !failures)
        continue;
    way->token = token_of(way);
    EXPECT(OK, mortise_cancel(way->client, pending.request));
    EXPECT(CANCELED, pending_join(&pending));
    CHECK(wait_works(way->client));
    let_go(way);
    CHECK(test_poll(token_has_grown, way, TEST_PATIENCE_MS));
    CHECK(wait_holds(way->server, way->name, 0));
    end(way);
}

/* ---- a delayed release, a delayed renewal ------------------------------------------------------------------------------ */

/* The status is correct, and the next holder is not touched. */
static void delay_release(void *argument)
{
    struct way *way = argument;
    if (!begin(way, "release"))
        return;
    warm_up(way);
    mortise_lease *lease = take_as(way->client, way->name, way->variant->owner, LONG_MS);
    keep_back(way);
    EXPECT(OK, mortise_release_nowait(lease, &detail));
    keep_only(way);
    CHECK(wait_holds(way->server, way->name, 0));
    lease = take_as(way->client, way->name, way->variant->owner, LONG_MS);
    let_go(way);
    CHECK(holds(way->server, way->name) == 1);
    CHECK(is_covered(way->server, way->name, lease));
    give(lease);
    end(way);
}

/* A renewal of a lock that was released before it arrives. */
static void release_before_renewal(struct way *way)
{
    mortise_lease *lease = take_as(way->client, way->name, way->variant->owner, LONG_MS);
    keep_back(way);
    keep_only(way);
    CHECK(wait_renewals(way->client, stats_of(way->client).renewals + 1));
    CHECK(wait_state(lease, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    CHECK(mortise_state(lease) == MORTISE_STATE_HELD);
    give(lease);
}

static void delay_renewal(void *argument)
{
    struct way *way = argument;
    if (!begin(way, "renewal"))
        return;
    warm_up(way);
    release_before_renewal(way);
    let_go(way);
    CHECK(holds(way->server, way->name) == 0);
    end(way);
}

/* And another client has it by then. */
static void delay_renewal_of_next(void *argument)
{
    struct way *way = argument;
    if (!begin(way, "renewal, next"))
        return;
    warm_up(way);
    release_before_renewal(way);
    mortise_lease *lease = take_as(way->client, way->name, way->variant->owner, LONG_MS);
    let_go(way);
    CHECK(holds(way->server, way->name) == 1);
    CHECK(is_covered(way->server, way->name, lease));
    give(lease);
    end(way);
}

/* ---- the tests ------------------------------------------------------------------------------------------------------------- */

static void in_variants(void (*run)(void *way), struct server *where, const char *with)
{
    struct way ways[32];
    size_t n = 0;
    memset(ways, 0, sizeof ways);
    for (size_t i = 0; i < VARIANTS; i++)
        if (strstr(variants[i].name, with) && (variants[i].fencing || !with[0])) {
            ways[n].variant = &variants[i];
            ways[n++].server = where;
        }
    in_parallel(run, ways, sizeof *ways, n);
}

static void test_acquire(void)
{
    in_variants(delay_acquire, &server, "");
}

static void test_acquire_returns(void)
{
    in_variants(return_acquire, &limited, "");
}

static void test_given_up(void)
{
    in_variants(delay_given_up, &server, "");
}

static void test_given_up_returns(void)
{
    in_variants(return_given_up, &limited, "");
}

static void test_transaction_returns(void)
{
    in_variants(return_transaction, &limited, "watch");
}

static void test_release(void)
{
    in_variants(delay_release, &server, "");
}

static void test_release_executed(void)
{
    in_variants(delay_release, &limited, "");
}

static void test_renewal(void)
{
    in_variants(delay_renewal, &server, "");
}

static void test_renewal_executed(void)
{
    in_variants(delay_renewal, &limited, "");
}

static void test_renewal_of_next(void)
{
    in_variants(delay_renewal_of_next, &limited, "");
}

static const CU_TestInfo tests[] = {
    {"a delayed acquire is not executed", test_acquire},
    {"a delayed acquire that is executed is removed", test_acquire_returns},
    {"a delayed acquire, given up, is not executed", test_given_up},
    {"a delayed acquire, given up, that is executed is removed", test_given_up_returns},
    {"a delayed transaction that is executed is removed", test_transaction_returns},
    {"a delayed release harms nobody", test_release},
    {"a delayed release that is executed harms nobody", test_release_executed},
    {"a delayed renewal harms nobody", test_renewal},
    {"redisson#7272: a renewal executed after the release brings nothing back",
     test_renewal_executed},
    {"a delayed renewal that is executed does nothing to the next holder", test_renewal_of_next},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    static const char *const users[] = {
        "user=mortise", "password=secret",
        "rights=~* &* -@all +@read +@write -@dangerous +@scripting +@pubsub +@transaction "
        "+@connection +time +info -client|kill",
        NULL};
    int code = server_start(&server, NULL);
    if (code == 0)
        code = server_start(&limited, users);
    if (code == 0)
        code = run_tests("redis: delayed requests", tests, argc, argv);
    return servers_end((struct server *const[]){&server, &limited}, 2, code);
}
