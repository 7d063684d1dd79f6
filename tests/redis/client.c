/* client.c - a test's clients and their leases, and waiting for their outcomes. */
#include "rig.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct variant variants[VARIANTS] = {
    {"string", "", NULL, true},
    {"string, no queue", "queue = no\n", NULL, true},
    {"hash, no queue", "mode = hash\nqueue = no\n", NULL, true},
    {"shared hash, no queue", "mode = hash\nqueue = no\n", "us", true},
    {"string, watch", "atomicity = watch\n", NULL, true},
    {"plain", "fencing = off\n", NULL, false},
    {"plain, watch", "fencing = off\natomicity = watch\n", NULL, false},
    {"hash", "mode = hash\n", NULL, true},
    {"shared hash", "mode = hash\n", "us", true},
    {"redisson", "mode = hash\ndialect = redisson\n", NULL, true},
    {"shared redisson", "mode = hash\ndialect = redisson\n", "us:1", true},
};

bool has_scripts(const struct variant *variant)
{
    return strstr(variant->settings, "watch") == NULL;
}

/* ---- opening ---------------------------------------------------------------------------------------------- */

/* So that a machine that stands still for seconds is none that is away; a test for which it is says how long. */
static const char *unless_given(const char *settings, const char *key)
{
    static const char *const patient[] = {"unreachable_timeout = 60s\n", "connect_timeout = 30s\n",
                                          "command_timeout = 30s\n"};
    for (size_t i = 0; i < sizeof patient / sizeof *patient; i++)
        if (strncmp(patient[i], key, strlen(key)) == 0 && !(settings && strstr(settings, key)))
            return patient[i];
    return "";
}

char *config_at(struct server *server, const char *servers, const char *core, const char *redis)
{
    static atomic_int count;
    char *path = NULL, *text = NULL, own[40];
    snprintf(own, sizeof own, "127.0.0.1:%d", server->port);
    if (asprintf(&path, "%s/client-%d.conf", server->folder, ++count) < 0 ||
        asprintf(&text, "[mortise]\ndriver = redis\n%s%s\n[redis]\nservers = %s\n%s%s\n%s",
                 unless_given(core, "unreachable_timeout"), core ? core : "",
                 servers ? servers : own, unless_given(redis, "connect_timeout"),
                 unless_given(redis, "command_timeout"), redis ? redis : "") < 0)
        return NULL;
    CHECK(test_file_write(path, text));
    free(text);
    return path;
}

mortise_client *open_at(struct server *server, const char *servers, const char *core,
                        const char *redis)
{
    mortise_client *client = NULL;
    char *path = config_at(server, servers, core, redis);
    EXPECT(OK, mortise_open(path, &client, &detail));
    free(path);
    return client;
}

mortise_client *open_by(struct server *server, const struct test_proxy *proxy, const char *core,
                        const char *redis)
{
    char address[40];
    snprintf(address, sizeof address, "127.0.0.1:%d", proxy->port);
    return open_at(server, address, core, redis);
}

bool start_proxy(struct server *server, struct test_proxy *proxy)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* it counts its sockets */
    pthread_mutex_lock(&lock);
    bool started = test_proxy_start(proxy, server->folder, "127.0.0.1", server->port);
    pthread_mutex_unlock(&lock);
    CHECK(started);
    return started;
}

bool start_taker(struct server *server, struct test_process *taker, const char *redis)
{
    char line[600] = "no answer";
    char *path = config_at(server, NULL, NULL, redis);
    const char *const argv[] = {getenv("MORTISE_TAKER"), path, NULL};
    bool ready = argv[0] && test_spawn(taker, argv) &&
                 test_hear(taker, line, sizeof line, TEST_PATIENCE_MS) &&
                 strcmp(line, "ready") == 0;
    if (!ready)
        fprintf(stderr, "taker: %s\n", line);
    free(path);
    CHECK(ready);
    return ready;
}

bool taker_says(struct test_process *taker, const char *line, const char *wanted)
{
    char heard[1200] = "no answer";
    bool said = test_say(taker, "%s", line) &&
                test_hear(taker, heard, sizeof heard, TEST_PATIENCE_MS) &&
                strncmp(heard, wanted, strlen(wanted)) == 0;
    if (!said)
        fprintf(stderr, "taker: %s: %s, wanted %s\n", line, heard, wanted);
    CHECK(said);
    return said;
}

uint64_t taker_token(struct test_process *taker)
{
    char heard[1200] = "no answer";
    bool heard_it = test_hear(taker, heard, sizeof heard, TEST_PATIENCE_MS);
    if (heard_it && strncmp(heard, "OK ", 3) == 0)
        return strtoull(heard + 3, NULL, 10);
    fprintf(stderr, "taker: %s\n", heard);
    return 0;
}

void close_client(mortise_client *client)
{
    EXPECT(OK, mortise_close(client, &detail));
}

/* ---- leases ------------------------------------------------------------------------------------------------ */

mortise_lease *take_as(mortise_client *client, const char *name, const char *owner, int64_t ttl_ms)
{
    mortise_lease *lease = NULL;
    EXPECT(OK, mortise_acquire(
                   client, name,
                   MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = ttl_ms, .owner = owner),
                   &lease, &detail));
    return lease;
}

mortise_lease *take(mortise_client *client, const char *name)
{
    return take_as(client, name, NULL, LONG_MS);
}

void give(mortise_lease *lease)
{
    EXPECT(OK, mortise_release(lease, &detail));
}

bool not_reached(mortise_status status)
{
    return status == MORTISE_UNREACHABLE || status == MORTISE_INDETERMINATE;
}

mortise_status try_once(mortise_client *client, const char *name)
{
    mortise_lease *lease = NULL;
    mortise_status status = mortise_acquire(
        client, name, MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = LONG_MS), &lease, &detail);
    if (lease)
        give(lease);
    return status;
}

mortise_stats stats_of(mortise_client *client)
{
    mortise_stats stats = {.size = sizeof stats};
    EXPECT(OK, mortise_stats_get(client, &stats));
    return stats;
}

struct awaited {
    mortise_lease *lease;
    mortise_lease_state state;
    mortise_client *client;
    uint64_t number;
};

static bool state_is(void *argument)
{
    const struct awaited *awaited = argument;
    return mortise_state(awaited->lease) == awaited->state;
}

bool wait_state(mortise_lease *lease, mortise_lease_state state, int64_t timeout_ms)
{
    struct awaited awaited = {.lease = lease, .state = state};
    return test_poll(state_is, &awaited, timeout_ms);
}

static bool renewals_are(void *argument)
{
    const struct awaited *awaited = argument;
    return stats_of(awaited->client).renewals >= awaited->number;
}

bool wait_renewals(mortise_client *client, uint64_t at_least)
{
    struct awaited awaited = {.client = client, .number = at_least};
    return test_poll(renewals_are, &awaited, TEST_PATIENCE_MS);
}

/* A renewal between the two looks can only help. */
bool is_covered(struct server *server, const char *name, mortise_lease *lease)
{
    int64_t began_ms = test_now_ms(), mine_ms = mortise_remaining_ms(lease);
    int64_t there_ms = pttl(server, name);
    return there_ms > 0 && there_ms + (test_now_ms() - began_ms) + 1 >= mine_ms;
}

static bool works(void *argument)
{
    mortise_lease *lease;
    char name[48];
    snprintf(name, sizeof name, "works-%p", argument);
    return mortise_acquire(argument, name, MORTISE_OPTIONS(.wait_ms = 1000), &lease, &detail) ==
               MORTISE_OK &&
           mortise_release(lease, NULL) == MORTISE_OK;
}

bool wait_works(mortise_client *client)
{
    return test_poll(works, client, TEST_PATIENCE_MS);
}

/* ---- async acquires and callbacks ----------------------------------------------------------------------------- */

static void pending_done(mortise_status status, mortise_lease *lease, const mortise_error *error,
                         void *user_data)
{
    struct pending *pending = user_data;
    pending->status = status;
    pending->lease = lease;
    if (error)
        pending->error = *error;
    test_count_add(&pending->calls, 1);
}

void pending_start(struct pending *pending, mortise_client *client, const char *name,
                   const mortise_options *options)
{
    EXPECT(OK, mortise_acquire_async(client, name, options, pending_done, pending,
                                     &pending->request, &detail));
}

/* Without its callback nothing can go on: it would come to memory that is gone. */
mortise_status pending_join(struct pending *pending)
{
    if (!test_count_wait(&pending->calls, 1)) {
        CHECK(!"the callback of an async acquire came");
        fprintf(stderr, "%s: an async acquire was never completed\n", doing);
        exit(1);
    }
    if (pending->status != MORTISE_OK)
        detail = pending->error;
    return pending->status;
}

void note_state(mortise_lease *lease, mortise_lease_state state, void *told_by)
{
    struct told *told = told_by;
    (void)lease;
    test_count_add(state == MORTISE_STATE_LOST      ? &told->lost
                   : state == MORTISE_STATE_SUSPECT ? &told->suspect
                                                    : &told->held,
                   1);
}
