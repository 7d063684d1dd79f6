/* shared_tests.c - shared leases and permits on real servers: who gets in beside whom, and in what order. */
#include "rig.h"

#include <errno.h> /* program_invocation_short_name */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CROWD 8

static mortise_lease *take_as(mortise_client *client, const char *name, mortise_mode mode,
                              uint32_t permits)
{
    mortise_lease *lease = NULL;
    EXPECT(OK, mortise_acquire(
                   client, name,
                   MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .mode = mode, .permits = permits),
                   &lease, &detail));
    return lease;
}

static mortise_status try_as(mortise_client *client, const char *name, mortise_mode mode,
                             uint32_t permits)
{
    mortise_lease *lease = NULL;
    mortise_status status = mortise_acquire(
        client, name, MORTISE_OPTIONS(.wait_ms = 0, .mode = mode, .permits = permits), &lease,
        &detail);
    if (status == MORTISE_OK)
        EXPECT(OK, mortise_release(lease, &detail));
    return status;
}

/* Clients that come one after the other; each waits in the queue before the next one comes. */
struct crowd {
    const char *name;
    int count;
    mortise_client *clients[CROWD];
    struct waiter waiters[CROWD];
};

static void crowd_begin(struct crowd *crowd, const char *settings, int count)
{
    *crowd = (struct crowd){.name = fresh_name(), .count = 0};
    for (int i = 0; i < count; i++)
        crowd->clients[i] = client_direct(settings);
}

static void crowd_come(struct crowd *crowd, mortise_mode mode, uint32_t permits)
{
    struct waiter *waiter = &crowd->waiters[crowd->count];
    waiter->mode = mode;
    waiter->permits = permits;
    waiter_start(waiter, crowd->clients[crowd->count++], crowd->name);
    CU_ASSERT(wait_contenders(crowd->name, crowd->count));
}

/* These have their leases, and nobody else: a letter for each, '1' has, '0' has not, '-' has had. */
static void crowd_has(struct crowd *crowd, const char *wanted)
{
    for (int i = 0; wanted[i]; i++)
        if (wanted[i] == '1') {
            CU_ASSERT(test_count_wait(&crowd->waiters[i].done, 1));
            CU_ASSERT_EQUAL(crowd->waiters[i].status, MORTISE_OK);
        }
    for (int i = 0; wanted[i]; i++)
        if (wanted[i] == '0')
            SAFE(!test_count_wait_ms(&crowd->waiters[i].done, 1, 100));
}

static void crowd_release(struct crowd *crowd, int i)
{
    CU_ASSERT_EQUAL(waiter_join(&crowd->waiters[i]), MORTISE_OK);
    EXPECT(OK, mortise_release(crowd->waiters[i].lease, &detail));
}

static void crowd_end(struct crowd *crowd)
{
    CU_ASSERT(wait_contenders(crowd->name, 0));
    for (int i = 0; i < CROWD; i++)
        if (crowd->clients[i])
            client_end(crowd->clients[i]);
}

/* ---- who gets in -------------------------------------------------------------------------------------------------- */

static void readers_and_writers(const char *settings)
{
    struct crowd crowd;
    crowd_begin(&crowd, settings, 7);
    crowd_come(&crowd, MORTISE_SHARED, 0);
    crowd_come(&crowd, MORTISE_SHARED, 0);
    crowd_has(&crowd, "11");
    EXPECT(OK, try_as(crowd.clients[6], crowd.name, MORTISE_SHARED, 0));
    EXPECT(BUSY, try_as(crowd.clients[6], crowd.name, MORTISE_EXCLUSIVE, 0));
    crowd_come(&crowd, MORTISE_EXCLUSIVE, 0);
    crowd_come(&crowd, MORTISE_SHARED, 0);
    crowd_come(&crowd, MORTISE_SHARED, 0);
    crowd_come(&crowd, MORTISE_EXCLUSIVE, 0);
    crowd_has(&crowd, "110000"); /* nobody overtakes the writer */
    EXPECT(BUSY, try_as(crowd.clients[6], crowd.name, MORTISE_SHARED, 0));
    crowd_release(&crowd, 1);
    crowd_has(&crowd, "1-0000");
    crowd_release(&crowd, 0);
    crowd_has(&crowd, "--1000");
    EXPECT(BUSY, try_as(crowd.clients[6], crowd.name, MORTISE_SHARED, 0));
    crowd_release(&crowd, 2);
    crowd_has(&crowd, "---110"); /* both */
    crowd_release(&crowd, 4);
    crowd_release(&crowd, 3);
    crowd_has(&crowd, "-----1");
    crowd_release(&crowd, 5);
    crowd_end(&crowd);
}

static void test_readers_and_writers(void)
{
    static const char *const styles[] = {"", "&node_style=kazoo", "&node_style=curator-rw",
                                         "&node_style=kazoo-rw"};
    for (int i = 0; i < 4; i++)
        readers_and_writers(styles[i]);
}

/* A writer that gives up lets those behind it in at once. */
static void test_writer_gives_up(void)
{
    struct crowd crowd;
    crowd_begin(&crowd, "", 3);
    crowd_come(&crowd, MORTISE_SHARED, 0);
    crowd.waiters[1].wait_ms = 500;
    crowd_come(&crowd, MORTISE_EXCLUSIVE, 0);
    crowd_come(&crowd, MORTISE_SHARED, 0);
    CU_ASSERT_EQUAL(waiter_join(&crowd.waiters[1]), MORTISE_TIMEDOUT);
    crowd_has(&crowd, "1-1");
    crowd_release(&crowd, 0);
    crowd_release(&crowd, 2);
    crowd_end(&crowd);
}

/* The session of a reader ends: the writer has to wait for the other one only. */
static void test_reader_dies(void)
{
    struct crowd crowd;
    crowd_begin(&crowd, "", 3);
    crowd_come(&crowd, MORTISE_SHARED, 0);
    crowd_come(&crowd, MORTISE_SHARED, 0);
    crowd_come(&crowd, MORTISE_EXCLUSIVE, 0);
    crowd_has(&crowd, "110");
    CU_ASSERT(session_close_by_hand(session_of(crowd.clients[1])));
    CU_ASSERT(wait_contenders(crowd.name, 2));
    crowd_has(&crowd, "1-0");
    CU_ASSERT(session_close_by_hand(session_of(crowd.clients[0])));
    crowd_has(&crowd, "--1");
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(waiter_join(&crowd.waiters[i]), MORTISE_OK);
        CU_ASSERT(wait_state(crowd.waiters[i].lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
        EXPECT(LOST, mortise_release(crowd.waiters[i].lease, &detail));
    }
    crowd_release(&crowd, 2);
    crowd_end(&crowd);
}

/* ---- permits ------------------------------------------------------------------------------------------------------ */

/* Three hold, three wait. Any two that come back let the next two in, whichever they are. */
static void test_permits(void)
{
    static const int back[3][2] = {{0, 1}, {1, 2}, {2, 0}};
    for (int n = 0; n < 3; n++) {
        struct crowd crowd;
        crowd_begin(&crowd, "", 7);
        for (int i = 0; i < 6; i++)
            crowd_come(&crowd, MORTISE_SHARED, 3);
        crowd_has(&crowd, "111000");
        EXPECT(BUSY, try_as(crowd.clients[6], crowd.name, MORTISE_SHARED, 3));
        EXPECT(BUSY, try_as(crowd.clients[6], crowd.name, MORTISE_EXCLUSIVE, 0));
        for (int i = 0; i < 2; i++) {
            CU_ASSERT_EQUAL(waiter_join(&crowd.waiters[back[n][i]]), MORTISE_OK);
            EXPECT(OK, mortise_release_nowait(crowd.waiters[back[n][i]].lease, &detail));
        }
        crowd_has(&crowd, n == 0 ? "--1110" : n == 1 ? "1--110" : "-1-110");
        crowd_release(&crowd, 3);
        crowd_has(&crowd, "-----1");
        crowd_release(&crowd, 3 - back[n][0] - back[n][1]);
        crowd_release(&crowd, 4);
        crowd_release(&crowd, 5);
        crowd_end(&crowd);
    }
}

/* Everybody has to give the same number, and is told which one it is and who gave it. */
static void test_other_permits(void)
{
    mortise_client *one = client_direct(""), *two = client_direct("");
    const char *name = fresh_name();
    mortise_lease *lease = take_as(one, name, MORTISE_SHARED, 2), *none;
    char pid[32];
    snprintf(pid, sizeof pid, "(pid %d)", (int)getpid());
    for (int wait_ms = 0; wait_ms <= TEST_PATIENCE_MS; wait_ms += TEST_PATIENCE_MS)
        for (uint32_t permits = 0; permits <= 3; permits += 3) {
            EXPECT(INVALID,
                   mortise_acquire(two, name,
                                   MORTISE_OPTIONS(.wait_ms = wait_ms, .mode = MORTISE_SHARED,
                                                   .permits = permits),
                                   &none, &detail));
            CU_ASSERT_PTR_NOT_NULL(strstr(detail.message, "with permits = 2"));
            CU_ASSERT_PTR_NOT_NULL(strstr(detail.message, pid));
        }
    EXPECT(OK, try_as(two, name, MORTISE_SHARED, 2));
    EXPECT(OK, mortise_release(lease, &detail));
    EXPECT(OK, try_as(two, name, MORTISE_SHARED, 3));
    CU_ASSERT(wait_contenders(name, 0));
    client_end(one);
    client_end(two);
}

/* ---- downgrade ---------------------------------------------------------------------------------------------------- */

struct seen {
    int count;
    uint64_t tokens[CROWD];
    mortise_info last;
};

static bool see(const mortise_info *info, void *argument)
{
    struct seen *seen = argument;
    if (seen->count < CROWD)
        seen->tokens[seen->count] = info->token;
    seen->count++;
    seen->last = *info;
    return true;
}

static void holders_are(mortise_client *client, const char *name, mortise_mode mode, int count)
{
    struct seen seen = {0};
    mortise_info info = {.size = sizeof info};
    EXPECT(OK, mortise_holders(client, name, see, &seen, &detail));
    CU_ASSERT_EQUAL(seen.count, count);
    for (int i = 1; i < count; i++)
        CU_ASSERT(seen.tokens[i - 1] < seen.tokens[i]);
    EXPECT(OK, mortise_inspect(client, name, &info, &detail));
    CU_ASSERT(info.held && info.mode == mode && info.holders == (uint32_t)count);
    CU_ASSERT(count == 0 || info.token == seen.tokens[0]);
    CU_ASSERT(info.pid == getpid());
}

/* Readers up to the next writer get in, the writers do not; the token and the place stay. */
static void downgrade(const char *settings)
{
    struct crowd crowd;
    crowd_begin(&crowd, settings, 6);
    crowd_come(&crowd, MORTISE_EXCLUSIVE, 0);
    crowd_has(&crowd, "1");
    crowd_come(&crowd, MORTISE_SHARED, 0);
    crowd_come(&crowd, MORTISE_SHARED, 0);
    crowd_come(&crowd, MORTISE_EXCLUSIVE, 0);
    crowd_come(&crowd, MORTISE_SHARED, 0);
    crowd_has(&crowd, "10000");
    holders_are(crowd.clients[5], crowd.name, MORTISE_EXCLUSIVE, 1);
    uint64_t token = mortise_token(crowd.waiters[0].lease);
    EXPECT(OK, mortise_downgrade(crowd.waiters[0].lease, &detail));
    EXPECT(OK, mortise_downgrade(crowd.waiters[0].lease, &detail));
    CU_ASSERT_EQUAL(mortise_token(crowd.waiters[0].lease), token);
    crowd_has(&crowd, "11100");
    holders_are(crowd.clients[5], crowd.name, MORTISE_SHARED, 3);
    EXPECT(BUSY, try_as(crowd.clients[5], crowd.name, MORTISE_SHARED, 0)); /* a writer waits */
    crowd_release(&crowd, 0);
    crowd_has(&crowd, "-1100");
    holders_are(crowd.clients[5], crowd.name, MORTISE_SHARED, 2);
    EXPECT(NOTOWNER, mortise_break(crowd.clients[5], crowd.name, token, &detail));
    EXPECT(OK, mortise_break(crowd.clients[5], crowd.name, mortise_token(crowd.waiters[2].lease),
                             &detail));
    CU_ASSERT_EQUAL(waiter_join(&crowd.waiters[2]), MORTISE_OK);
    EXPECT(LOST, mortise_release(crowd.waiters[2].lease, &detail));
    holders_are(crowd.clients[5], crowd.name, MORTISE_SHARED, 1);
    crowd_release(&crowd, 1);
    crowd_has(&crowd, "---10");
    EXPECT(OK, mortise_downgrade(crowd.waiters[3].lease, &detail));
    crowd_has(&crowd, "---11");
    EXPECT(OK, try_as(crowd.clients[5], crowd.name, MORTISE_SHARED, 0));
    crowd_release(&crowd, 4);
    EXPECT(OK, try_as(crowd.clients[5], crowd.name, MORTISE_SHARED, 0)); /* reads that it is open */
    EXPECT(BUSY, try_as(crowd.clients[5], crowd.name, MORTISE_EXCLUSIVE, 0));
    EXPECT(INVALID, try_as(crowd.clients[5], crowd.name, MORTISE_SHARED, 2));
    crowd_release(&crowd, 3);
    crowd_end(&crowd);
}

static void test_downgrade(void)
{
    downgrade("");
    downgrade("&node_style=kazoo-rw");
}

/* A program whose name looks like a line of the note: its exclusive lease is exclusive. */
static void test_name_of_a_program(void)
{
    static char odd_name[] = "x\nshared";
    char *name_before = program_invocation_short_name;
    program_invocation_short_name = odd_name;
    mortise_client *client = client_direct(""), *other = client_direct("");
    program_invocation_short_name = name_before;
    const char *name = fresh_name();
    mortise_lease *lease = take(client, name);
    SAFE(try_as(other, name, MORTISE_SHARED, 0) == MORTISE_BUSY);
    holders_are(other, name, MORTISE_EXCLUSIVE, 1);
    EXPECT(OK, mortise_release(lease, &detail));
    client_end(client);
    client_end(other);
}

/* ---- all at once -------------------------------------------------------------------------------------------------- */

enum { RIVALS = 6, TURNS = 60 };

struct rival {
    pthread_t thread;
    mortise_client *client;
    const char *name;
    uint32_t permits;
    unsigned seed;
    atomic_int *readers, *writers;
    int overlaps, odd, turns[2], downgrades;
};

/* What somebody sees who holds. */
static bool is_right(const struct rival *rival, mortise_mode mode)
{
    int readers = atomic_load(rival->readers), writers = atomic_load(rival->writers);
    if (mode == MORTISE_EXCLUSIVE)
        return readers == 0 && writers == 1;
    return writers == 0 && (rival->permits == 0 || readers <= (int)rival->permits);
}

static void play(struct rival *rival, mortise_mode mode)
{
    mortise_lease *lease =
        take_as(rival->client, rival->name, mode, mode == MORTISE_SHARED ? rival->permits : 0);
    atomic_fetch_add(mode == MORTISE_SHARED ? rival->readers : rival->writers, 1);
    rival->turns[mode]++;
    for (int i = 0; i < 3; i++) {
        rival->overlaps += !is_right(rival, mode);
        sched_yield();
    }
    if (mode == MORTISE_EXCLUSIVE && rival->permits == 0 && rand_r(&rival->seed) % 2 == 0) {
        atomic_fetch_add(rival->readers, 1); /* from here on others may come in */
        atomic_fetch_sub(rival->writers, 1);
        rival->odd += mortise_downgrade(lease, NULL) != MORTISE_OK;
        rival->downgrades++;
        mode = MORTISE_SHARED;
        rival->overlaps += !is_right(rival, mode);
    }
    atomic_fetch_sub(mode == MORTISE_SHARED ? rival->readers : rival->writers, 1);
    rival->odd += mortise_release(lease, NULL) != MORTISE_OK;
}

static void *rival_main(void *argument)
{
    struct rival *rival = argument;
    for (int i = 0; i < TURNS; i++)
        play(rival, rand_r(&rival->seed) % 3 == 0 ? MORTISE_EXCLUSIVE : MORTISE_SHARED);
    return NULL;
}

/* Readers, writers and downgrades, or permits and writers. */
static void test_all_at_once(void)
{
    for (uint32_t permits = 0; permits <= 2; permits += 2) {
        struct rival rivals[RIVALS] = {{.seed = 0}};
        atomic_int readers = 0, writers = 0;
        const char *name = fresh_name();
        for (int i = 0; i < RIVALS; i++) {
            rivals[i] = (struct rival){.client = client_direct("&handover_max=0"),
                                       .name = name,
                                       .permits = permits,
                                       .seed = (unsigned)i + 1,
                                       .readers = &readers,
                                       .writers = &writers};
            CU_ASSERT_EQUAL_FATAL(pthread_create(&rivals[i].thread, NULL, rival_main, &rivals[i]),
                                  0);
        }
        for (int i = 0; i < RIVALS; i++) {
            pthread_join(rivals[i].thread, NULL);
            SAFE(rivals[i].overlaps == 0);
            CU_ASSERT_EQUAL(rivals[i].odd, 0);
            CU_ASSERT(rivals[i].turns[0] > 0 && rivals[i].turns[1] > 0);
            CU_ASSERT(permits > 0 || rivals[i].downgrades > 0);
            client_end(rivals[i].client);
        }
        CU_ASSERT(wait_contenders(name, 0));
    }
}

/* ---- nodes of others ------------------------------------------------------------------------------------------------ */

/* A reader of another library, as it names its nodes: ours share with it, and our writers wait for it. Its writers keep
 * both out. */
static void test_foreign_readers(void)
{
    static const struct {
        const char *settings, *reader, *writer;
    } cases[] = {
        {"&node_style=curator-rw", "_c_11111111-2222-3333-4444-555555555555-__READ__0000000000",
         "_c_11111111-2222-3333-4444-555555555555-__WRIT__0000000000"},
        {"&node_style=kazoo-rw", "11111111222233334444555555555555__rlock__0000000000",
         "11111111222233334444555555555555__lock__0000000000"},
        {"&node_style=kazoo", "11111111222233334444555555555555__rlock__0000000000",
         "11111111222233334444555555555555__lock__0000000000"},
    };
    for (int i = 0; i < 3; i++) {
        mortise_client *client = client_direct(cases[i].settings);
        const char *name = fresh_name();
        struct waiter waiter = {.mode = MORTISE_SHARED};
        mortise_info info = {.size = sizeof info};
        CU_ASSERT_EQUAL(mortise_release(take(client, fresh_name()), NULL), MORTISE_OK);
        CU_ASSERT(node_make(name, NULL) && node_make(name, cases[i].reader));
        EXPECT(OK, try_as(client, name, MORTISE_SHARED, 0));
        EXPECT(BUSY, try_as(client, name, MORTISE_EXCLUSIVE, 0));
        EXPECT(INVALID, try_as(client, name, MORTISE_SHARED, 2));
        EXPECT(OK, mortise_inspect(client, name, &info, &detail));
        CU_ASSERT(info.held && info.mode == MORTISE_SHARED && info.holders == 1);
        CU_ASSERT(node_make(name, cases[i].writer));
        CU_ASSERT(node_delete(name, cases[i].reader));
        EXPECT(BUSY, try_as(client, name, MORTISE_SHARED, 0));
        waiter_start(&waiter, client, name);
        CU_ASSERT(wait_contenders(name, 2));
        SAFE(!test_count_wait_ms(&waiter.done, 1, 100));
        CU_ASSERT(node_delete(name, cases[i].writer));
        CU_ASSERT_EQUAL(waiter_join(&waiter), MORTISE_OK);
        EXPECT(OK, mortise_release(waiter.lease, &detail));
        client_end(client);
    }
}

const CU_TestInfo shared_tests[] = {
    {"readers and writers", test_readers_and_writers},
    {"a writer gives up", test_writer_gives_up},
    {"a reader dies", test_reader_dies},
    {"permits", test_permits},
    {"another number of permits", test_other_permits},
    {"CURATOR-621: downgrade", test_downgrade},
    {"the name of a program", test_name_of_a_program},
    {"all at once", test_all_at_once},
    {"readers of other libraries", test_foreign_readers},
    CU_TEST_INFO_NULL,
};
