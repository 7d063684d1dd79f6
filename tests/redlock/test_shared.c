/* test_shared.c - shared locks on five nodes: readers and writers over all majorities, nodes that are away or emptied. */
#include "share.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define FIVE 31u
#define ALONE "handover_max = 0\n" /* each reader asks the nodes: none joins a claim of its client */

static struct nodes nodes;

struct seen {
    int count;
    uint64_t tokens[8];
    mortise_info last;
};

static bool see(const mortise_info *info, void *argument)
{
    struct seen *seen = argument;
    if (seen->count < 8)
        seen->tokens[seen->count++] = info->token;
    seen->last = *info;
    return true;
}

/* ---- who gets in --------------------------------------------------------------------------------------------- */

static void test_readers_and_writer(void)
{
    const char *name = "rw";
    mortise_client *client = nodes_open(&nodes, ALL, ALONE, AT_ONCE);
    mortise_client *other = nodes_open(&nodes, ALL, ALONE, AT_ONCE);
    struct seen seen = {.count = 0}, listed = {.count = 0};
    struct pending writer;
    mortise_info info = {.size = sizeof info};
    mortise_lease *first = share(client, name), *second = share(other, name);
    CHECK(mortise_token(second) > mortise_token(first));
    EXPECT(BUSY, try_once(other, name));
    EXPECT(OK, mortise_inspect(other, name, &info, &detail));
    CHECK(info.held && info.mode == MORTISE_SHARED && info.permits == 0 && info.holders == 2);
    CHECK(info.token == mortise_token(first) && info.pid > 0);
    CHECK(info.remaining_ms > LONG_MS / 2 && info.remaining_ms <= LONG_MS);
    EXPECT(OK, mortise_holders(other, name, see, &seen, &detail));
    CHECK(seen.count == 2 && seen.tokens[0] == mortise_token(first) &&
          seen.tokens[1] == mortise_token(second));
    CHECK(strcmp(seen.last.name, name) == 0);
    EXPECT(OK, mortise_list(other, name, see, &listed, &detail));
    CHECK(listed.count == 1 && listed.last.holders == 2 && listed.last.mode == MORTISE_SHARED &&
          listed.tokens[0] == mortise_token(first));
    want(&writer, other, name, MORTISE_EXCLUSIVE);
    give(first);
    CHECK(test_count_get(&writer.calls) == 0);
    give(second);
    EXPECT(OK, pending_join(&writer));
    CHECK(mortise_token(writer.lease) > seen.tokens[1]);
    EXPECT(BUSY, try_share(client, name));
    seen.count = 0;
    EXPECT(OK, mortise_holders(client, name, see, &seen, &detail));
    CHECK(seen.count == 1 && seen.last.mode == MORTISE_EXCLUSIVE && seen.last.holders == 1);
    give(writer.lease);
    EXPECT(OK, try_share(client, name));
    CHECK(wait_nodes_with(&nodes, name, 0));
    close_client(client);
    close_client(other);
}

/* The keys beside a lock are called alike by the driver and by the script that lists. */
static void test_names_with_braces(void)
{
    static const char *const names[] = {"}", "b{}c", "b}c", "b{c", "b{c}d"};
    mortise_client *client = nodes_open(&nodes, ALL, ALONE, AT_ONCE);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct seen listed = {.count = 0};
        mortise_lease *first = share(client, names[i]), *second = share(client, names[i]);
        EXPECT(OK, mortise_list(client, names[i], see, &listed, &detail));
        CHECK(listed.count == 1 && listed.last.holders == 2 && strcmp(listed.last.name, names[i]) == 0);
        give(first);
        give(second);
        CHECK(wait_nodes_with(&nodes, names[i], 0));
    }
    close_client(client);
}

static void test_no_permits(void)
{
    mortise_client *client = nodes_open(&nodes, ALL, ALONE, AT_ONCE);
    mortise_client *bare = nodes_open(&nodes, ALL, ALONE, AT_ONCE "fencing = off\n");
    mortise_lease *lease = NULL;
    EXPECT(NOTSUP, mortise_acquire(client, "permits", SHARED(.permits = 2), &lease, &detail));
    SAYS("use exclusive locks on 2 names");
    EXPECT(NOTSUP, mortise_acquire(bare, "permits", SHARED(.wait_ms = 0), &lease, &detail));
    CHECK(nodes_with(&nodes, "permits") == 0);
    close_client(client);
    close_client(bare);
}

static bool is_barred(void *name)
{
    int barred = 0;
    for (int i = 0; i < nodes.count; i++)
        barred += ask_number(&nodes.node[i], "EXISTS {mortise:%s}:mortise:bar", (const char *)name) == 1;
    return barred == nodes.count;
}

/* A client without tokens, and other programs, take the marker for another's lock. That client's bar ends with its grant, too. */
static void test_seen_by_others(void)
{
    static char name[] = "others";
    struct pending writer;
    mortise_client *client = nodes_open(&nodes, ALL, ALONE, AT_ONCE);
    mortise_client *bare = nodes_open(&nodes, ALL, ALONE, AT_ONCE "fencing = off\n");
    mortise_lease *lease = share(client, name);
    EXPECT(BUSY, try_once(bare, name));
    for (int i = 0; i < nodes.count; i++)
        CHECK(ask_number(&nodes.node[i], "SETNX mortise:others another") == 0);
    want(&writer, bare, name, MORTISE_EXCLUSIVE);
    CHECK(test_poll(is_barred, name, TEST_PATIENCE_MS));
    give(lease);
    EXPECT(OK, pending_join(&writer));
    CHECK(!is_barred(name));
    give(writer.lease);
    close_client(client);
    close_client(bare);
}

/* A holder that does not renew keeps a writer out for its own ttl, and no longer. */
static void test_dead_reader(void)
{
    const char *name = "dead";
    mortise_client *client = nodes_open(&nodes, ALL, ALONE, AT_ONCE);
    struct pending writer;
    mortise_lease *lives = share(client, name);
    mortise_lease *dies = acquire(client, name, SHARED(.ttl_ms = 3000, .no_renew = true));
    want(&writer, client, name, MORTISE_EXCLUSIVE);
    give(lives);
    EXPECT(OK, pending_join(&writer));
    SAFE(mortise_state(dies) == MORTISE_STATE_LOST);
    EXPECT(LOST, mortise_release(dies, &detail));
    give(writer.lease);
    dies = acquire(client, name, SHARED(.ttl_ms = 300, .no_renew = true));
    lives = share(client, name);
    CHECK(wait_state(dies, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    CHECK(mortise_release(dies, &detail) == MORTISE_LOST);
    CHECK(mortise_state(lives) == MORTISE_STATE_HELD);
    give(lives);
    close_client(client);
}

static void test_break(void)
{
    const char *name = "break";
    mortise_client *client = nodes_open(&nodes, ALL, ALONE "renew_every = 50ms\n", AT_ONCE);
    mortise_client *other = nodes_open(&nodes, ALL, ALONE, AT_ONCE);
    mortise_lease *first = share(client, name), *second = share(other, name);
    EXPECT(NOTOWNER, mortise_break(other, name, mortise_token(second) + 1000, &detail));
    EXPECT(OK, mortise_break(other, name, mortise_token(first), &detail));
    CHECK(wait_state(first, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    CHECK(mortise_state(second) == MORTISE_STATE_HELD);
    EXPECT(LOST, mortise_release(first, &detail));
    EXPECT(BUSY, try_once(other, name));
    give(second);
    give(take(other, name));
    close_client(client);
    close_client(other);
}

/* ---- exclusion ------------------------------------------------------------------------------------------------ */

#define PARTIES 8
#define TURNS 40

static _Atomic int readers, writers;
static uint64_t reader_tokens[PARTIES][TURNS];

struct party {
    mortise_client *client;
    unsigned number;
    bool writes;
};

static void party_run(void *argument)
{
    const struct party *party = argument;
    uint64_t before = 0;
    for (int i = 0; i < TURNS && failures < 3; i++) {
        mortise_lease *lease = party->writes
                                   ? acquire(party->client, "party", MORTISE_OPTIONS(.owner = NULL))
                                   : share(party->client, "party");
        if (!lease)
            return;
        SAFE(mortise_token(lease) > before);
        before = mortise_token(lease);
        if (party->writes) {
            SAFE(atomic_fetch_add(&writers, 1) == 0);
            SAFE(atomic_load(&readers) == 0);
            atomic_fetch_sub(&writers, 1);
        } else {
            atomic_fetch_add(&readers, 1);
            SAFE(atomic_load(&writers) == 0);
            reader_tokens[party->number][i] = mortise_token(lease);
            atomic_fetch_sub(&readers, 1);
        }
        give(lease);
    }
}

static int by_number(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

/* The first `writing` of them write; each reaches the nodes of its set. */
static void run_parties(unsigned writing, const unsigned *sets)
{
    struct party parties[PARTIES];
    memset(reader_tokens, 0, sizeof reader_tokens);
    for (unsigned i = 0; i < PARTIES; i++)
        parties[i] = (struct party){nodes_open(&nodes, sets[i], ALONE, AT_ONCE), i, i < writing};
    in_parallel(party_run, parties, sizeof parties[0], PARTIES);
    qsort(reader_tokens, PARTIES * TURNS, sizeof(uint64_t), by_number);
    const uint64_t *all = &reader_tokens[0][0];
    for (int i = 1; i < PARTIES * TURNS; i++)
        SAFE(all[i] == 0 || all[i] > all[i - 1]); /* no two have the same */
    for (unsigned i = 0; i < PARTIES; i++)
        close_client(parties[i].client);
    CHECK(wait_nodes_with(&nodes, "party", 0));
}

static void test_exclusion(void)
{
    static const unsigned sets[PARTIES] = {FIVE, FIVE, FIVE, FIVE, FIVE, FIVE, FIVE, FIVE};
    run_parties(2, sets);
}

/* Each has another majority, three of five: its votes are all that it has. */
static void test_exclusion_of_majorities(void)
{
    static const unsigned sets[PARTIES] = {7, 28, 21, 11, 14, 22, 25, 19};
    run_parties(2, sets);
}

static void test_exclusion_with_a_dead_node(void)
{
    static const unsigned sets[PARTIES] = {FIVE, FIVE, FIVE, FIVE, FIVE, FIVE, FIVE, FIVE};
    nodes_do(&nodes, "kill", 2);
    run_parties(2, sets);
    nodes_do(&nodes, "start", 2);
}

static void test_only_readers(void)
{
    static const unsigned sets[PARTIES] = {7, 28, 21, 11, FIVE, FIVE, FIVE, FIVE};
    run_parties(0, sets);
}

/* ---- a writer among many readers ------------------------------------------------------------------------------- */

static _Atomic bool writer_is_done;

static void read_on(void *argument)
{
    const struct party *party = argument;
    while (!atomic_load(&writer_is_done) && failures < 3) {
        mortise_lease *lease = share(party->client, "starving");
        sched_yield();
        if (lease)
            give(lease);
    }
}

static void write_among(void *argument)
{
    const struct party *party = argument;
    if (!party->writes) {
        read_on(argument);
        return;
    }
    for (int i = 0; i < 3; i++)
        give(acquire(party->client, "starving", MORTISE_OPTIONS(.owner = NULL)));
    atomic_store(&writer_is_done, true);
}

static void test_writer_does_not_starve(void)
{
    struct party parties[PARTIES];
    for (unsigned i = 0; i < PARTIES; i++)
        parties[i] = (struct party){nodes_open(&nodes, ALL, ALONE, AT_ONCE), i, i == 0};
    in_parallel(write_among, parties, sizeof parties[0], PARTIES);
    for (unsigned i = 0; i < PARTIES; i++)
        close_client(parties[i].client);
}

/* A bar keeps new readers out, also when the last reader is gone, and is gone with the writer's grant. */
static void test_bar(void)
{
    static char name[] = "bar";
    mortise_client *client = nodes_open(&nodes, ALL, ALONE, AT_ONCE);
    mortise_client *other = nodes_open(&nodes, ALL, ALONE "renew_every = 50ms\n", AT_ONCE);
    mortise_client *third = nodes_open(&nodes, ALL, ALONE, AT_ONCE); /* joins no claim of `other` */
    struct pending writer, reader;
    mortise_lease *lease = share(other, name);
    EXPECT(BUSY, try_once(client, name)); /* it does not wait: no bar */
    EXPECT(OK, try_share(third, name));
    want(&writer, client, name, MORTISE_EXCLUSIVE);
    CHECK(test_poll(is_barred, name, TEST_PATIENCE_MS));
    EXPECT(BUSY, try_share(third, name));
    CHECK(wait_renewals(other, stats_of(other).renewals + 3)); /* who shares it already goes on */
    want(&reader, third, name, MORTISE_SHARED);
    give(lease);
    EXPECT(OK, pending_join(&writer));
    CHECK(test_count_get(&reader.calls) == 0);
    give(writer.lease);
    EXPECT(OK, pending_join(&reader));
    give(reader.lease);
    close_client(client);
    close_client(other);
    close_client(third);
}

/* ---- no memory ---------------------------------------------------------------------------------------------------- */

static void limit_memory(const char *bytes)
{
    for (int i = 0; i < nodes.count; i++)
        CHECK(ask_is(&nodes.node[i], "OK", "CONFIG SET maxmemory %s", bytes));
}

/* A full memory refuses a new holder, of a free name, too; what is held goes on, is downgraded and released. */
static void test_no_memory(void)
{
    static char name[] = "memory", alone[] = "memory alone";
    mortise_client *client = nodes_open(&nodes, ALL, ALONE "renew_every = 50ms\n", AT_ONCE);
    mortise_client *other = nodes_open(&nodes, ALL, ALONE "renew_every = 50ms\n", AT_ONCE);
    mortise_client *third = nodes_open(&nodes, ALL, ALONE, AT_ONCE);
    struct pending writer;
    EXPECT(OK, try_share(third, name));
    CHECK(wait_nodes_with(&nodes, name, 0));
    mortise_lease *reader = share(client, name), *lease = take(other, alone);
    CHECK(wait_nodes_with(&nodes, name, FIVE) && wait_nodes_with(&nodes, alone, FIVE));
    limit_memory("1");
    EXPECT(UNREACHABLE, try_share(third, name));
    SAYS("OOM");
    EXPECT(UNREACHABLE, try_share(third, "memory free"));
    SAYS("OOM");
    CHECK(nodes_with(&nodes, "memory free") == 0);
    CHECK(wait_renewals(client, stats_of(client).renewals + 3));
    EXPECT(OK, mortise_downgrade(lease, &detail));
    CHECK(wait_renewals(other, stats_of(other).renewals + 3));
    want(&writer, other, name, MORTISE_EXCLUSIVE);
    CHECK(test_poll(is_barred, name, TEST_PATIENCE_MS));
    EXPECT(BUSY, try_share(third, name));
    CHECK(mortise_state(reader) == MORTISE_STATE_HELD);
    CHECK(mortise_state(lease) == MORTISE_STATE_HELD);
    give(lease);
    CHECK(wait_nodes_with(&nodes, alone, 0));
    limit_memory("0");
    give(reader);
    EXPECT(OK, pending_join(&writer));
    give(writer.lease);
    EXPECT(OK, try_share(third, name));
    close_client(client);
    close_client(other);
    close_client(third);
}

/* ---- nodes that forget ------------------------------------------------------------------------------------------- */

/* Two of five nodes lose their data: renewals bring it back, and until then the others keep a writer out. */
static void test_repaired(void)
{
    const char *name = "repaired";
    mortise_client *client = nodes_open(&nodes, ALL, ALONE "renew_every = 200ms\n", AT_ONCE);
    mortise_client *other = nodes_open(&nodes, ALL, ALONE "renew_every = 200ms\n", AT_ONCE);
    struct seen seen = {.count = 0};
    mortise_lease *first = share(client, name), *second = share(other, name);
    CHECK(wait_nodes_with(&nodes, name, FIVE));
    nodes_do(&nodes, "kill", 5);
    nodes_do(&nodes, "start", 5);
    SAFE(try_once(other, name) != MORTISE_OK);
    CHECK(wait_nodes_with(&nodes, name, FIVE));
    CHECK(wait_renewals(client, stats_of(client).renewals + 4));
    CHECK(wait_renewals(other, stats_of(other).renewals + 4));
    nodes_do(&nodes, "kill", 10); /* the repaired ones are needed now */
    EXPECT(OK, mortise_holders(other, name, see, &seen, &detail));
    CHECK(seen.count == 2);
    SAFE(try_once(other, name) != MORTISE_OK);
    CHECK(mortise_state(first) == MORTISE_STATE_HELD);
    nodes_do(&nodes, "start", 10);
    CHECK(mortise_token(first) != mortise_token(second));
    give(first);
    give(second);
    CHECK(wait_nodes_with(&nodes, name, 0));
    close_client(client);
    close_client(other);
}

struct successor {
    mortise_lease *of;
    struct test_count done;
    mortise_lease *lease;
    mortise_lease_state state_of;
};

static void succeeded(mortise_status status, mortise_lease *lease, const mortise_error *error,
                      void *user_data)
{
    struct successor *successor = user_data;
    (void)status;
    (void)error;
    successor->state_of = mortise_state(successor->of);
    successor->lease = lease;
    test_count_add(&successor->done, 1);
}

/* More nodes are emptied than a reader that is not renewed can bear: those do not vote for max_ttl, so a writer gets in
 * after the reader's deadline only. */
static void test_guard(void)
{
    mortise_client *client = nodes_open(&nodes, ALL, ALONE, "max_ttl = 8s\n");
    mortise_client *other = nodes_open(&nodes, ALL, ALONE, "max_ttl = 8s\n");
    struct successor writer = {.done = TEST_COUNT_INIT};
    writer.of = acquire(client, "guard", SHARED(.ttl_ms = 8000, .no_renew = true));
    uint64_t token = mortise_token(writer.of);
    CHECK(wait_nodes_with(&nodes, "guard", FIVE));
    nodes_do(&nodes, "kill", 7);
    nodes_do(&nodes, "start", 7);
    EXPECT(OK, mortise_acquire_async(other, "guard", MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 8000),
                                     succeeded, &writer, NULL, &detail));
    CHECK(test_count_wait(&writer.done, 1));
    SAFE(writer.state_of == MORTISE_STATE_LOST);
    SAFE(mortise_token(writer.lease) > token);
    give(writer.lease);
    mortise_release(writer.of, NULL);
    close_client(client);
    close_client(other);
}

static bool find_beside(const mortise_info *info, void *found)
{
    *(bool *)found |= strcmp(info->name, "beside") == 0 && info->holders == 1;
    return true;
}

/* What is beside one lock becomes another type in a majority: its lease is not renewed. Another one is, and is listed. */
static void test_side_of_another_type(void)
{
    struct told told = TOLD_INIT;
    bool listed = false;
    mortise_client *client = nodes_open(&nodes, ALL, "renew_every = 100ms\n", AT_ONCE);
    mortise_lease *typed = acquire(client, "typed", SHARED(.ttl_ms = 2000));
    mortise_lease *beside = acquire(
        client, "beside", SHARED(.ttl_ms = LONG_MS, .on_state = note_state, .user_data = &told));
    CHECK(wait_nodes_with(&nodes, "typed", FIVE) && wait_nodes_with(&nodes, "beside", FIVE));
    for (int i = 0; i < 3; i++)
        CHECK(ask_is(&nodes.node[i], "OK", "SET {mortise:typed}:mortise:shares x"));
    CHECK(wait_state(typed, MORTISE_STATE_SUSPECT, TEST_PATIENCE_MS));
    EXPECT(OK, mortise_list(client, "", find_beside, &listed, &detail));
    CHECK(listed);
    CHECK(wait_renewals(client, stats_of(client).renewals + 3));
    CHECK(wait_state(typed, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    CHECK(test_count_get(&told.suspect) == 0 && test_count_get(&told.lost) == 0);
    give(beside);
    for (int i = 0; i < 5; i++)
        freeReplyObject(ask(&nodes.node[i], "DEL mortise:typed {mortise:typed}:mortise:holders %s",
                            "{mortise:typed}:mortise:shares"));
    mortise_release(typed, NULL);
    close_client(client);
}

static const CU_TestInfo tests[] = {
    {"readers and a writer", test_readers_and_writer},
    {"names with braces", test_names_with_braces},
    {"permits are refused", test_no_permits},
    {"other programs see a lock", test_seen_by_others},
    {"a dead reader", test_dead_reader},
    {"break of one reader", test_break},
    {"exclusion", test_exclusion},
    {"exclusion over all majorities", test_exclusion_of_majorities},
    {"exclusion with a dead node", test_exclusion_with_a_dead_node},
    {"readers at once have different tokens", test_only_readers},
    {"a writer among many readers", test_writer_does_not_starve},
    {"a bar", test_bar},
    {"no memory left", test_no_memory},
    {"emptied nodes are repaired", test_repaired},
    {"shares become another type", test_side_of_another_type},
    {"restarted nodes do not let a writer in", test_guard},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = nodes_start(&nodes, 5, NULL);
    if (code == 0)
        code = run_tests("redlock shared", tests, argc, argv);
    return !nodes_end(&nodes) && code == 0 ? 1 : code;
}
