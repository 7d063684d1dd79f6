/* helpers.c - what the tests are written with: acquiring and releasing leases, async and blocked acquires, a taker
 * that receives commands, and the final check that nothing was left. */
#include "conformance.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char prefix[64];
static atomic_int places;

/* ---- before and after --------------------------------------------------------------------------- */

const char *test_prefix(void)
{
    return prefix;
}

void helpers_before(void)
{
    static unsigned test;
    snprintf(prefix, sizeof prefix, "c%d-%" PRIx64 "/%u/", (int)getpid(), (int64_t)time(NULL),
             ++test);
    pending_reset_places();
}

static bool count_one(const mortise_info *info, void *count)
{
    fprintf(stderr, "left: %s of pid %" PRId64 "\n", info->name, info->pid);
    ++*(int *)count;
    return *(int *)count < 10;
}

static bool count_quietly(const mortise_info *info, void *count)
{
    (void)info;
    ++*(int *)count;
    return false;
}

static bool is_empty(void *argument)
{
    int count = 0;
    (void)argument;
    return mortise_list(subject.looker, prefix, count_quietly, &count, NULL) == MORTISE_OK &&
           count == 0;
}

void helpers_after(void)
{
    int count = 0;
    if (!has(MORTISE_CAP_LIST) || test_poll(is_empty, NULL, LESS_THAN_A_MINUTE_MS))
        return;
    mortise_list(subject.looker, prefix, count_one, &count, NULL);
    CU_FAIL("something was left in the backend");
}

const char *fresh_name(void)
{
    static char names[64][128];
    static unsigned next;
    char *name = names[next % 64];
    snprintf(name, sizeof names[0], "%sn%u", prefix, next++);
    return name;
}

/* ---- clients and leases ------------------------------------------------------------------------- */

mortise_client *open_client(const char *settings)
{
    mortise_client *client = NULL;
    if (settings && strstr(settings, "namespace"))
        CU_ASSERT(subject_write_stage3(settings));
    EXPECT(OK, mortise_open(subject_where(settings), &client, &detail));
    return client;
}

void close_client(mortise_client *client)
{
    EXPECT(OK, mortise_close(client, &detail));
}

mortise_lease *take(mortise_client *client, const char *name, int64_t ttl_ms)
{
    mortise_lease *lease = NULL;
    EXPECT(OK, mortise_acquire(client, name,
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = ttl_ms),
                               &lease, &detail));
    return lease;
}

mortise_status try_once(mortise_client *client, const char *name)
{
    mortise_lease *lease = NULL;
    mortise_status status =
        mortise_acquire(client, name, MORTISE_OPTIONS(.wait_ms = 0), &lease, &detail);
    CU_ASSERT((status == MORTISE_OK) == (lease != NULL));
    if (lease)
        give(lease);
    return status;
}

mortise_lease *take_shared(mortise_client *client, const char *name, int64_t ttl_ms,
                           uint32_t permits)
{
    mortise_lease *lease = NULL;
    EXPECT(OK, mortise_acquire(client, name,
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = ttl_ms,
                                               .mode = MORTISE_SHARED, .permits = permits),
                               &lease, &detail));
    return lease;
}

mortise_status try_shared(mortise_client *client, const char *name, uint32_t permits)
{
    mortise_lease *lease = NULL;
    mortise_status status = mortise_acquire(
        client, name, MORTISE_OPTIONS(.wait_ms = 0, .mode = MORTISE_SHARED, .permits = permits),
        &lease, &detail);
    CU_ASSERT((status == MORTISE_OK) == (lease != NULL));
    if (lease)
        give(lease);
    return status;
}

bool lacks(mortise_capability capability)
{
    if (has(capability))
        return false;
    printf("(skipped: the driver has no %s) ",
           capability == MORTISE_CAP_PERMITS ? "permits" : "shared locks");
    return true;
}

void expect_spent(mortise_status status)
{
    if (status != MORTISE_INVALID)
        EXPECT(CLOSED, status);
}

void give(mortise_lease *lease)
{
    EXPECT(OK, mortise_release(lease, &detail));
}

mortise_info look(mortise_client *client, const char *name)
{
    mortise_info info = {.size = sizeof info};
    EXPECT(OK, mortise_inspect(client, name, &info, &detail));
    return info;
}

struct expected {
    mortise_client *client;
    const char *name;
    uint64_t token;
};

static bool tells_token(void *argument)
{
    const struct expected *expected = argument;
    return look(expected->client, expected->name).token == expected->token;
}

bool soon_tells_token(mortise_client *client, const char *name, uint64_t token)
{
    return test_poll(tells_token, &(struct expected){client, name, token}, TEST_PATIENCE_MS);
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
    const char *name;
    int64_t count;
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

static bool waiters_are(void *argument)
{
    const struct awaited *awaited = argument;
    mortise_info info = {.size = sizeof info};
    return mortise_inspect(subject.looker, awaited->name, &info, NULL) == MORTISE_OK &&
           info.waiters == awaited->count;
}

bool wait_waiters(const char *name, int count)
{
    struct awaited awaited = {.name = name, .count = count};
    mortise_info info = {.size = sizeof info};
    if (!has(MORTISE_CAP_INSPECT) ||
        mortise_inspect(subject.looker, name, &info, NULL) != MORTISE_OK || info.waiters < 0)
        return false;
    return test_poll(waiters_are, &awaited, TEST_PATIENCE_MS);
}

static bool local_waiters_are(void *argument)
{
    const struct awaited *awaited = argument;
    mortise_stats stats = {.size = sizeof stats};
    return mortise_stats_get(awaited->client, &stats) == MORTISE_OK &&
           stats.waiting == (uint64_t)awaited->count;
}

static bool has_renewed(void *argument)
{
    const struct awaited *awaited = argument;
    return stats_of(awaited->client).renewals >= (uint64_t)awaited->count;
}

bool wait_renewals(mortise_client *client, uint64_t more)
{
    struct awaited awaited = {.client = client,
                              .count = (int64_t)(stats_of(client).renewals + more)};
    return test_poll(has_renewed, &awaited, TEST_PATIENCE_MS);
}

bool wait_local_waiters(mortise_client *client, uint64_t count)
{
    struct awaited awaited = {.client = client, .count = (int64_t)count};
    return test_poll(local_waiters_are, &awaited, TEST_PATIENCE_MS);
}

/* ---- async -------------------------------------------------------------------------------------- */

static void pending_done(mortise_status status, mortise_lease *lease, const mortise_error *error,
                         void *user_data)
{
    struct pending *pending = user_data;
    pending->status = status;
    pending->lease = lease;
    pending->token = mortise_token(lease);
    pending->place = atomic_fetch_add(&places, 1) + 1;
    pending->thread = pthread_self();
    if (status != MORTISE_OK && (!error || error->status != status))
        pending->status = (mortise_status)-1000; /* nobody expects that */
    if (pending->release_at_once && lease)
        pending->status = mortise_release(lease, NULL);
    test_count_add(&pending->calls, 1);
}

void pending_start(struct pending *pending, mortise_client *client, const char *name,
                   const mortise_options *options)
{
    EXPECT(OK, mortise_acquire_async(client, name, options, pending_done, pending,
                                     &pending->request, &detail));
    CU_ASSERT_NOT_EQUAL(pending->request, 0);
}

/* A thread or a callback may still come and write where a later test has its variables: end it here. */
static void end_all(const char *why)
{
    fprintf(stderr, "\n%s: %s; the suite ends here\n", CU_get_current_test()->pName, why);
    fflush(NULL);
    if (subject.hooks && strcmp(subject.hooks, "sim") != 0)
        subject_hook("end");
    _exit(1);
}

void pending_expect(struct pending *pending, mortise_status status)
{
    if (!test_count_wait(&pending->calls, 1))
        end_all("the callback did not come");
    expect_at(pending->status, status, "the callback's status", __FILE__, __LINE__);
    CU_ASSERT_EQUAL(test_count_get(&pending->calls), 1);
}

void pending_reset_places(void)
{
    atomic_store(&places, 0);
}

/* ---- threads ------------------------------------------------------------------------------------ */

static void *blocked_run(void *argument)
{
    struct blocked *blocked = argument;
    int64_t began_ms = test_now_ms();
    blocked->status =
        mortise_acquire(blocked->client, blocked->name, &blocked->options, &blocked->lease, NULL);
    blocked->took_ms = test_now_ms() - began_ms;
    test_count_add(&blocked->done, 1);
    return NULL;
}

void blocked_start(struct blocked *blocked, mortise_client *client, const char *name,
                   const mortise_options *options)
{
    *blocked = (struct blocked){
        .client = client, .name = name, .options = *options, .done = TEST_COUNT_INIT};
    if (pthread_create(&blocked->thread, NULL, blocked_run, blocked) != 0)
        CU_FAIL_FATAL("no thread");
}

bool was_told(int64_t began_ms)
{
    int64_t most_ms = has(MORTISE_CAP_NOTIFY) ? 8000 : TEST_PATIENCE_MS;
    return test_now_ms() - began_ms < most_ms;
}

bool soon(int64_t (*late_ms)(void *argument), void *argument)
{
    enum { RUNS = 8 };
    int64_t best_ms = INT64_MAX;
    for (int i = 0; i < RUNS && best_ms > subject.slack_ms; i++) {
        int64_t late = late_ms(argument);
        best_ms = late < best_ms ? late : best_ms;
    }
    if (best_ms > subject.slack_ms)
        printf("(late by %" PRId64 " ms in the best of %d runs) ", best_ms, RUNS);
    return best_ms <= subject.slack_ms;
}

mortise_status blocked_join(struct blocked *blocked)
{
    if (!test_count_wait(&blocked->done, 1))
        end_all("a blocked acquire did not return");
    pthread_join(blocked->thread, NULL);
    return blocked->status;
}

/* ---- takers ------------------------------------------------------------------------------------- */

bool taker_start(struct test_process *taker, const char *settings)
{
    char line[1200] = "nothing";
    const char *const argv[] = {subject.taker, subject_where(settings), NULL};
    bool ready = test_spawn(taker, argv) && test_hear(taker, line, sizeof line, TEST_PATIENCE_MS) &&
                 strcmp(line, "ready") == 0;
    if (!ready)
        fprintf(stderr, "taker: %s\n", line);
    CU_ASSERT(ready);
    return ready;
}

bool taker_expect(struct test_process *taker, const char *line, const char *answer)
{
    char heard[1200] = "nothing", told[2600];
    bool as_wanted = test_say(taker, "%s", line) &&
                     test_hear(taker, heard, sizeof heard, TEST_PATIENCE_MS) &&
                     strncmp(heard, answer, strlen(answer)) == 0;
    snprintf(told, sizeof told, "taker: %s: %s, wanted %s", line, heard, answer);
    CU_assertImplementation(as_wanted, __LINE__, told, __FILE__, "", CU_FALSE);
    return as_wanted;
}

uint64_t taker_number(struct test_process *taker, const char *line)
{
    char heard[1200] = "nothing";
    bool is_number = test_say(taker, "%s", line) &&
                     test_hear(taker, heard, sizeof heard, TEST_PATIENCE_MS) &&
                     strncmp(heard, "OK ", 3) == 0;
    if (!is_number)
        fprintf(stderr, "taker: %s: %s\n", line, heard);
    CU_ASSERT(is_number);
    return is_number ? strtoull(heard + 3, NULL, 10) : 0;
}

void taker_end(struct test_process *taker)
{
    test_say(taker, "quit");
    CU_ASSERT_EQUAL(test_reap(taker, TEST_PATIENCE_MS), 0);
    test_kill(taker);
}

bool all_held(mortise_lease **leases, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (mortise_state(leases[i]) != MORTISE_STATE_HELD)
            return false;
    return true;
}
