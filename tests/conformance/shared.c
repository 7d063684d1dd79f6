/* shared.c - readers and writers of one name: who keeps out whom, that writers do not starve, that a dead reader blocks a
 * writer for its own ttl. holders.c has the rest. A driver without the capability runs the first test only, which expects NOTSUP. */
#include "conformance.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define READ_WAITING                                                                               \
    MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = 60000, .mode = MORTISE_SHARED)
#define WRITE_WAITING MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = 60000)

static mortise_status refusal(mortise_client *client, const mortise_options *options)
{
    mortise_lease *lease = NULL;
    uint64_t before = stats_of(client).requests;
    mortise_status status = mortise_acquire(client, fresh_name(), options, &lease, &detail);
    CU_ASSERT_PTR_NULL(lease);
    CU_ASSERT_EQUAL(stats_of(client).requests, before);
    return status;
}

/* What cannot be is refused before anything is sent. */
static void test_refused(void)
{
    mortise_client *client = open_client(NULL);
    EXPECT(INVALID, refusal(client, MORTISE_OPTIONS(.permits = 2)));
    EXPECT(INVALID, refusal(client, MORTISE_OPTIONS(.mode = MORTISE_SHARED, .owner = "us")));
    EXPECT(INVALID, refusal(client, MORTISE_OPTIONS(.mode = (mortise_mode)7)));
    if (!has(MORTISE_CAP_SHARED)) {
        EXPECT(NOTSUP, refusal(client, MORTISE_OPTIONS(.mode = MORTISE_SHARED)));
        SAYS("shared");
    }
    if (!has(MORTISE_CAP_PERMITS)) {
        EXPECT(NOTSUP, refusal(client, MORTISE_OPTIONS(.mode = MORTISE_SHARED, .permits = 2)));
        CU_ASSERT(!has(MORTISE_CAP_SHARED) || SAYS("permits"));
    }
    close_client(client);
}

/* ---- who keeps out whom ------------------------------------------------------------------------- */

static void test_together(void)
{
    mortise_client *clients[3] = {open_client(NULL), open_client(NULL), open_client(NULL)};
    const char *name = fresh_name();
    struct blocked writer, reader;
    mortise_lease *leases[3];
    if (lacks(MORTISE_CAP_SHARED))
        goto end;
    uint64_t last = 0;
    for (int i = 0; i < 3; i++) {
        leases[i] = take_shared(clients[i], name, 60000, 0);
        SAFE(has(MORTISE_CAP_FENCING) ? mortise_token(leases[i]) > last
                                      : mortise_token(leases[i]) == 0);
        last = mortise_token(leases[i]);
    }
    SAFE(try_once(clients[0], name) == MORTISE_BUSY); /* not even a client that reads */
    blocked_start(&writer, subject.looker, name, WRITE_WAITING);
    CU_ASSERT(wait_local_waiters(subject.looker, 1));
    for (int i = 0; i < 3; i++) {
        CU_ASSERT_EQUAL(mortise_state(leases[i]), MORTISE_STATE_HELD);
        SAFE(test_count_get(&writer.done) == 0);
        give(leases[i]);
    }
    EXPECT(OK, blocked_join(&writer));
    SAFE(!has(MORTISE_CAP_FENCING) || mortise_token(writer.lease) > last);
    last = mortise_token(writer.lease);
    SAFE(try_shared(clients[0], name, 0) == MORTISE_BUSY);
    blocked_start(&reader, clients[0], name, READ_WAITING);
    CU_ASSERT(wait_local_waiters(clients[0], 1));
    give(writer.lease);
    EXPECT(OK, blocked_join(&reader));
    SAFE(!has(MORTISE_CAP_FENCING) || mortise_token(reader.lease) > last);
    give(reader.lease);
end:
    for (int i = 0; i < 3; i++)
        close_client(clients[i]);
}

/* All that wait for a shared lease get in when the writer has gone, not one of them. */
static bool all_told(mortise_client **clients)
{
    const char *name = fresh_name();
    struct blocked readers[3];
    mortise_lease *lease =
        take(subject.looker, name, has(MORTISE_CAP_NOTIFY) ? 60000 : subject.ttl_ms);
    for (int i = 0; i < 3; i++) {
        blocked_start(&readers[i], clients[i], name, READ_WAITING);
        CU_ASSERT(wait_local_waiters(clients[i], 1));
    }
    if (has(MORTISE_CAP_NOTIFY))
        wait_waiters(name, 3);
    int64_t began_ms = test_now_ms();
    give(lease);
    for (int i = 0; i < 3; i++)
        EXPECT(OK, blocked_join(&readers[i]));
    bool told = was_told(began_ms);
    for (int i = 0; i < 3; i++)
        give(readers[i].lease);
    return told;
}

static void test_all_told(void)
{
    mortise_client *clients[3] = {open_client(NULL), open_client(NULL), open_client(NULL)};
    bool told = lacks(MORTISE_CAP_SHARED);
    for (int i = 0; i < TOLD_TRIES && !told; i++)
        told = all_told(clients);
    CU_ASSERT(told);
    for (int i = 0; i < 3; i++)
        close_client(clients[i]);
}

/* ---- a counter ---------------------------------------------------------------------------------- */

enum { CLIENTS = 4, READERS = 8, WRITERS = 4, PASSES = 15 };

/* Writers make the state odd and even again; a reader sees it even, and the same until its end. */
struct hall {
    mortise_client *clients[CLIENTS];
    const char *name;
    bool strict; /* no claim is passed on: a writer's token is larger than all before */
    atomic_int state, readers, writers, most_readers;
    _Atomic uint64_t token; /* the largest so far */
    atomic_int overlaps, bad_tokens, failures, turn;
};

static void check_token(struct hall *hall, uint64_t token, bool writes)
{
    uint64_t largest = atomic_load(&hall->token);
    if (!has(MORTISE_CAP_FENCING)) {
        hall->bad_tokens += token != 0;
        return;
    }
    if (writes && (token < largest || (hall->strict && token == largest)))
        hall->bad_tokens++;
    while (token > largest && !atomic_compare_exchange_weak(&hall->token, &largest, token))
        continue;
}

static void write_once(struct hall *hall, uint64_t token)
{
    if (atomic_fetch_add(&hall->writers, 1) != 0 || atomic_load(&hall->readers) != 0)
        hall->overlaps++;
    int state = atomic_load_explicit(&hall->state, memory_order_relaxed);
    check_token(hall, token, true);
    atomic_store_explicit(&hall->state, state + 1, memory_order_relaxed);
    sched_yield();
    atomic_store_explicit(&hall->state, state + 2, memory_order_relaxed);
    atomic_fetch_sub(&hall->writers, 1);
}

static void read_once(struct hall *hall, uint64_t token)
{
    int readers = atomic_fetch_add(&hall->readers, 1) + 1, most = atomic_load(&hall->most_readers);
    while (readers > most && !atomic_compare_exchange_weak(&hall->most_readers, &most, readers))
        continue;
    int state = atomic_load(&hall->state);
    if (state % 2 != 0 || atomic_load(&hall->writers) != 0)
        hall->overlaps++;
    check_token(hall, token, false);
    sched_yield();
    if (atomic_load(&hall->state) != state)
        hall->overlaps++;
    atomic_fetch_sub(&hall->readers, 1);
}

static void *visit(void *argument)
{
    struct hall *hall = argument;
    int turn = atomic_fetch_add(&hall->turn, 1);
    bool writes = turn >= READERS;
    for (int i = 0; i < PASSES; i++) {
        mortise_lease *lease;
        if (mortise_acquire(hall->clients[turn % CLIENTS], hall->name,
                            writes ? WRITE_WAITING : READ_WAITING, &lease, NULL) != MORTISE_OK) {
            hall->failures++;
            continue;
        }
        (writes ? write_once : read_once)(hall, mortise_token(lease));
        hall->failures += mortise_release(lease, NULL) != MORTISE_OK;
    }
    return NULL;
}

static void visit_with(const char *settings, bool strict)
{
    struct hall hall = {.name = fresh_name(), .strict = strict};
    pthread_t threads[READERS + WRITERS];
    if (lacks(MORTISE_CAP_SHARED))
        return;
    for (int i = 0; i < CLIENTS; i++)
        hall.clients[i] = open_client(settings);
    for (int i = 0; i < READERS + WRITERS; i++)
        if (pthread_create(&threads[i], NULL, visit, &hall) != 0)
            CU_FAIL_FATAL("no thread");
    for (int i = 0; i < READERS + WRITERS; i++)
        pthread_join(threads[i], NULL);
    SAFE(hall.overlaps == 0);
    SAFE(hall.bad_tokens == 0);
    CU_ASSERT_EQUAL(hall.failures, 0);
    SAFE(hall.failures > 0 || hall.state == 2 * WRITERS * PASSES);
    printf("(%d readers at once) ", hall.most_readers);
    for (int i = 0; i < CLIENTS; i++)
        close_client(hall.clients[i]);
}

static void test_counter(void)
{
    visit_with(NULL, false);
}

static void test_counter_no_handover(void)
{
    visit_with("handover_max = 0", true);
}

static void test_processes(void)
{
    struct test_process takers[6];
    char path[300];
    const char *name = fresh_name();
    bool good = true, torn = false, lost = false;
    if (lacks(MORTISE_CAP_SHARED) || !subject.processes)
        return;
    snprintf(path, sizeof path, "%s/shared-counter", subject.folder);
    CU_ASSERT_FATAL(test_file_write(path, "0\n"));
    for (int i = 0; i < 6; i++)
        if (!taker_start(&takers[i], NULL))
            return;
    for (int i = 0; i < 6; i++)
        CU_ASSERT(test_say(&takers[i], "%s %s %s 20", i < 2 ? "spin" : "peek", name, path));
    for (int i = 0; i < 6; i++) {
        char heard[1200] = "nothing";
        CU_ASSERT(test_hear(&takers[i], heard, sizeof heard, 2 * TEST_PATIENCE_MS));
        torn |= strncmp(heard, "INVALID", 7) == 0; /* somebody wrote while it read, … */
        /* … who had stood still for longer than the ttl, or whose answer does not say so */
        lost |= strcmp(heard, "OK") != 0 && strncmp(heard, "INVALID", 7) != 0;
        CU_ASSERT_STRING_EQUAL(heard, "OK");
        if (strcmp(heard, "OK") != 0)
            fprintf(stderr, "taker: %s\n", heard);
        good &= strcmp(heard, "OK") == 0;
        taker_end(&takers[i]);
    }
    char *text = test_file_read(path);
    SAFE(!torn || lost);
    SAFE(!good || (text && strcmp(text, "40\n") == 0));
    free(text);
}

/* ---- writers get their turn --------------------------------------------------------------------- */

enum { CROWD = 32 };

struct relay {
    mortise_client *clients[CLIENTS];
    const char *name;
    atomic_int inside, turn, failures;
    atomic_bool two, ends; /* two: there were two inside at once */
};

static bool is_followed(void *argument)
{
    struct relay *relay = argument;
    return atomic_load(&relay->inside) > 1 || atomic_load(&relay->ends);
}

static bool were_two(void *argument)
{
    struct relay *relay = argument;
    return atomic_load(&relay->two);
}

/* Leaves when the next one is in, so that there is always one; but not for long if nobody gets in any more. */
static void *relay_run(void *argument)
{
    struct relay *relay = argument;
    mortise_client *client = relay->clients[atomic_fetch_add(&relay->turn, 1) % CLIENTS];
    while (!atomic_load(&relay->ends)) {
        mortise_lease *lease;
        if (mortise_acquire(client, relay->name, READ_WAITING, &lease, NULL) != MORTISE_OK) {
            relay->failures++;
            break;
        }
        if (atomic_fetch_add(&relay->inside, 1) > 0)
            atomic_store(&relay->two, true);
        test_poll(is_followed, relay, 50);
        atomic_fetch_sub(&relay->inside, 1);
        relay->failures += mortise_release(lease, NULL) != MORTISE_OK;
    }
    return NULL;
}

/* 32 readers that come again and again do not keep a writer out for ever. */
static void test_no_starving(void)
{
    struct relay relay = {.name = fresh_name()};
    pthread_t threads[CROWD];
    mortise_client *writer = open_client(NULL);
    for (int i = 0; i < CLIENTS; i++)
        relay.clients[i] = open_client(NULL);
    if (lacks(MORTISE_CAP_SHARED))
        goto end;
    for (int i = 0; i < CROWD; i++)
        if (pthread_create(&threads[i], NULL, relay_run, &relay) != 0)
            CU_FAIL_FATAL("no thread");
    CU_ASSERT(test_poll(were_two, &relay, TEST_PATIENCE_MS));
    for (int i = 0; i < 3; i++) {
        mortise_lease *lease = take(writer, relay.name, 60000);
        SAFE(lease == NULL || atomic_load(&relay.inside) == 0);
        mortise_release(lease, NULL);
    }
    atomic_store(&relay.ends, true);
    for (int i = 0; i < CROWD; i++)
        pthread_join(threads[i], NULL);
    CU_ASSERT_EQUAL(relay.failures, 0);
end:
    for (int i = 0; i < CLIENTS; i++)
        close_client(relay.clients[i]);
    close_client(writer);
}

struct reader {
    mortise_client *client;
    const char *name;
};

static bool is_kept_out(void *argument)
{
    const struct reader *reader = argument;
    return try_shared(reader->client, reader->name, 0) == MORTISE_BUSY;
}

static bool is_let_in(void *argument)
{
    const struct reader *reader = argument;
    return try_shared(reader->client, reader->name, 0) == MORTISE_OK;
}

/* While a writer waits no new reader gets in, and those that are in stay. One that only tries is in nobody's way. */
static void test_writer_waits(void)
{
    mortise_client *first = open_client("renew_every = 100ms"), *other = open_client(NULL),
                   *writer = open_client(NULL);
    const char *name = fresh_name();
    struct reader reader = {other, name};
    struct pending pending = PENDING_INIT;
    if (!lacks(MORTISE_CAP_SHARED)) {
        mortise_lease *lease = take_shared(first, name, 60000, 0);
        SAFE(try_once(writer, name) == MORTISE_BUSY);
        EXPECT(OK, try_shared(other, name, 0));
        pending_start(&pending, writer, name, WRITE_WAITING);
        CU_ASSERT(test_poll(is_kept_out, &reader, TEST_PATIENCE_MS));
        CU_ASSERT(wait_renewals(first, 2));
        CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
        SAFE(test_count_get(&pending.calls) == 0);
        EXPECT(OK, mortise_cancel(writer, pending.request));
        PENDING_EXPECT(&pending, CANCELED);
        CU_ASSERT(test_poll(is_let_in, &reader, TEST_PATIENCE_MS));
        give(lease);
    }
    close_client(first);
    close_client(other);
    close_client(writer);
}

const CU_TestInfo shared_tests[] = {
    {"shared: refused before any request", test_refused},
    {"shared: readers and a writer", test_together},
    {"shared: all readers are told", test_all_told},
    {"shared: a counter", test_counter},
    {"shared: a counter, no hand-over", test_counter_no_handover},
    {"shared: several processes", test_processes},
    {"shared: no writer starves", test_no_starving},
    {"shared: a waiting writer keeps readers out", test_writer_waits},
    CU_TEST_INFO_NULL,
};
