/* contend.c - at most one holder at a time: between threads, clients and processes; and tokens that grow
 * with every grant. */
#include "conformance.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS_MAX = 16 };

struct arena {
    const char *name;
    int passes;
    bool strict;    /* every token is larger than the one before, none the same */
    atomic_int sum; /* read, then written: the lock is what makes that one step */
    atomic_int inside;
    _Atomic uint64_t last_token;
    atomic_int overlaps, failures, bad_tokens;
};

struct fighter {
    pthread_t thread;
    mortise_client *client;
    struct arena *arena;
};

static void check_token(struct arena *arena, uint64_t token)
{
    if (!has(MORTISE_CAP_FENCING)) {
        arena->bad_tokens += token != 0;
        return;
    }
    if (token < arena->last_token || token == 0 || (arena->strict && token == arena->last_token))
        arena->bad_tokens++;
    arena->last_token = token;
}

static void pass(struct arena *arena, mortise_lease *lease)
{
    if (atomic_fetch_add(&arena->inside, 1) != 0)
        arena->overlaps++;
    int sum = atomic_load_explicit(&arena->sum, memory_order_relaxed);
    check_token(arena, mortise_token(lease));
    if (mortise_state(lease) == MORTISE_STATE_LOST)
        arena->failures++;
    atomic_store_explicit(&arena->sum, sum + 1, memory_order_relaxed);
    atomic_fetch_sub(&arena->inside, 1);
}

static void *fight(void *argument)
{
    struct fighter *fighter = argument;
    struct arena *arena = fighter->arena;
    for (int i = 0; i < arena->passes; i++) {
        mortise_lease *lease;
        if (mortise_acquire(fighter->client, arena->name, MORTISE_OPTIONS(.wait_ms = -1), &lease,
                            NULL) != MORTISE_OK) {
            arena->failures++;
            continue;
        }
        pass(arena, lease);
        mortise_status status =
            i % 4 ? mortise_release(lease, NULL) : mortise_release_nowait(lease, NULL);
        arena->failures += status != MORTISE_OK;
    }
    return NULL;
}

static void fight_all(mortise_client **clients, int client_count, int threads, int passes,
                      bool strict)
{
    struct fighter fighters[THREADS_MAX];
    struct arena arena = {.name = fresh_name(), .passes = passes, .strict = strict};
    for (int i = 0; i < threads; i++) {
        fighters[i] = (struct fighter){.client = clients[i % client_count], .arena = &arena};
        if (pthread_create(&fighters[i].thread, NULL, fight, &fighters[i]) != 0)
            CU_FAIL_FATAL("no thread");
    }
    for (int i = 0; i < threads; i++)
        pthread_join(fighters[i].thread, NULL);
    SAFE(arena.overlaps == 0);
    SAFE(arena.bad_tokens == 0);
    CU_ASSERT_EQUAL(arena.failures, 0);
    SAFE(arena.failures > 0 || arena.sum == threads * passes);
}

static void fight_with(const char *settings, int client_count, int threads, int passes, bool strict)
{
    mortise_client *clients[THREADS_MAX];
    for (int i = 0; i < client_count; i++)
        clients[i] = open_client(settings);
    fight_all(clients, client_count, threads, passes, strict);
    for (int i = 0; i < client_count; i++)
        close_client(clients[i]);
}

static void test_threads(void)
{
    fight_with(NULL, 1, 8, 100, false);
}

static void test_threads_no_handover(void)
{
    fight_with("handover_max = 0", 1, 8, 40, true);
}

static void test_clients(void)
{
    fight_with(NULL, 4, 8, 50, false);
}

static void test_clients_no_handover(void)
{
    fight_with("handover_max = 0", 4, 4, 30, true);
}

/* False: one of them did not do all. */
static bool count_in_processes(const char *path, const char *name, int takers, int passes)
{
    struct test_process others[8];
    bool good = true;
    for (int i = 0; i < takers; i++)
        if (!taker_start(&others[i], NULL))
            others[i].pid = 0;
    for (int i = 0; i < takers; i++)
        CU_ASSERT(test_say(&others[i], "spin %s %s %d", name, path, passes));
    for (int i = 0; i < takers; i++) {
        char heard[1200] = "nothing";
        CU_ASSERT(test_hear(&others[i], heard, sizeof heard, 2 * TEST_PATIENCE_MS));
        CU_ASSERT_STRING_EQUAL(heard, "OK");
        good &= strcmp(heard, "OK") == 0;
        taker_end(&others[i]);
    }
    return good;
}

static void test_processes(void)
{
    char path[300];
    if (!subject.processes)
        return;
    snprintf(path, sizeof path, "%s/counter", subject.folder);
    CU_ASSERT_FATAL(test_file_write(path, "0\n"));
    bool good = count_in_processes(path, fresh_name(), 6, 50);
    char *text = test_file_read(path);
    SAFE(!good || (text && strcmp(text, "300\n") == 0));
    free(text);
}

/* Over clients that come and go, threads, and processes; never the same again. */
static void test_tokens_grow(void)
{
    const char *name = fresh_name();
    struct test_process taker;
    uint64_t last = 0;
    bool with_taker = subject.processes && taker_start(&taker, NULL);
    for (int i = 0; i < 12; i++) {
        mortise_client *client = open_client(NULL);
        mortise_lease *lease = take(client, name, 0);
        uint64_t token = mortise_token(lease);
        SAFE(has(MORTISE_CAP_FENCING) ? token > last : token == 0);
        last = token;
        if (i % 3)
            give(lease);
        close_client(client); /* releases it too */
        if (with_taker) {
            char line[300];
            snprintf(line, sizeof line, "acquire %s %d 0", name, TEST_PATIENCE_MS);
            token = taker_number(&taker, line);
            SAFE(has(MORTISE_CAP_FENCING) ? token > last : token == 0);
            last = token;
            taker_expect(&taker, "release", "OK");
        }
    }
    if (with_taker)
        taker_end(&taker);
}

/* The counters are exact. */
static void test_stats(void)
{
    mortise_client *client = open_client(NULL);
    const char *name = fresh_name();
    mortise_stats before = stats_of(client);
    for (int i = 0; i < 5; i++)
        give(take(client, name, 0));
    mortise_lease *lease = take(client, name, 0);
    EXPECT(BUSY, try_once(client, name));
    mortise_stats stats = stats_of(client);
    CU_ASSERT_EQUAL(stats.acquires - before.acquires, 6);
    CU_ASSERT_EQUAL(stats.releases - before.releases, 5);
    CU_ASSERT_EQUAL(stats.failures - before.failures, 1);
    CU_ASSERT_EQUAL(stats.held, 1);
    CU_ASSERT_EQUAL(stats.waiting, 0);
    CU_ASSERT_EQUAL(stats.losses, 0);
    CU_ASSERT(stats.requests - before.requests >= 11);
    give(lease);
    CU_ASSERT_EQUAL(stats_of(client).held, 0);
    close_client(client);
}

const CU_TestInfo contend_tests[] = {
    {"threads of one client", test_threads},
    {"threads, no hand-over", test_threads_no_handover},
    {"several clients", test_clients},
    {"several clients, no hand-over", test_clients_no_handover},
    {"several processes", test_processes},
    {"tokens grow", test_tokens_grow},
    {"counters", test_stats},
    CU_TEST_INFO_NULL,
};
