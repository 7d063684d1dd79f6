/* test_addresses.c - masters come with new addresses and go for good, as pods do: a client that lives for long follows them. The
 * servers are fakes. What no real cluster answers comes from a fake, too. */
#include "fleet.h"

#include <fake.h>
#include <stdio.h>
#include <string.h>

#define GENERATIONS 90 /* more than there may be masters */
#define STRANGERS 200  /* masters that a map names; two maps have more than a client remembers */

static struct fake seed;

/* An entry of CLUSTER SLOTS. */
static size_t put_range(char *text, size_t size, int first, int last, int port)
{
    return (size_t)snprintf(text, size, "*3\r\n:%d\r\n:%d\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n",
                            first, last, port);
}

static void put_map(char text[100], int port)
{
    size_t used = (size_t)snprintf(text, 100, "*1\r\n");
    put_range(text + used, 100 - used, 0, SLOTS - 1, port);
}

static mortise_client *open_seeded(const char *more)
{
    char url[200];
    mortise_client *client = NULL;
    snprintf(url, sizeof url, "redis+cluster://127.0.0.1:%d?log=none%s", seed.port, more);
    EXPECT(OK, mortise_open(url, &client, &detail));
    return client;
}

static void take_and_give(mortise_client *client)
{
    mortise_lease *lease = NULL;
    if (EXPECT(OK, mortise_acquire(client, "name",
                                   MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = 500),
                                   &lease, &detail)))
        give(lease);
}

/* The one that dies takes its connection with it, and its address never comes back. */
static void test_generations(void)
{
    static struct fake master[GENERATIONS];
    static char map[GENERATIONS][100];
    mortise_client *client = open_seeded("");
    for (int i = 0; i < GENERATIONS; i++) {
        if (!CHECK(fake_start(&master[i])))
            return;
        fake_answer(&master[i], ":2\r\n", 0, NULL);
        put_map(map[i], master[i].port);
        fake_map(&master[i], map[i]);
        fake_map(&seed, map[i]);
        if (i > 0)
            fake_end(&master[i - 1]);
        take_and_give(client);
    }
    close_client(client);
    fake_end(&master[GENERATIONS - 1]);
}

static void put_strangers(char *text, size_t size, int first_port, int port)
{
    size_t used = (size_t)snprintf(text, size, "*%d\r\n", STRANGERS + 1);
    for (int i = 0; i < STRANGERS; i++)
        used += put_range(text + used, size - used, i, i, first_port + i);
    put_range(text + used, size - used, STRANGERS, SLOTS - 1, port);
}

static void test_strangers(void)
{
    static char maps[2][STRANGERS * 60 + 200];
    struct fake masters[2];
    mortise_client *client = open_seeded("");
    for (int i = 0; i < 2; i++) {
        if (!CHECK(fake_start(&masters[i])))
            return;
        fake_answer(&masters[i], ":2\r\n", 0, NULL);
        put_strangers(maps[i], sizeof maps[i], 1 + STRANGERS * i, masters[i].port);
        fake_map(&seed, maps[i]);
        fake_map(&masters[i], maps[i]);
        if (i > 0)
            fake_end(&masters[0]);
        take_and_give(client);
    }
    close_client(client);
    fake_end(&masters[1]);
}

/* What a cluster refuses, and what is said of it. The map is right, so only the words matter. */
static void test_refusals(void)
{
    static const struct {
        const char *answer;
        mortise_status status;
        bool retryable;
        const char *says;
    } refusals[] = {
        {"-CROSSSLOT Keys in request don't hash to the same slot\r\n", MORTISE_BACKEND, false,
         "unless a proxy changes their names"},
        {"-CLUSTERDOWN Hash slot not served\r\n", MORTISE_UNREACHABLE, true, "CLUSTERDOWN"},
        {"-LOADING Redis is loading the dataset in memory\r\n", MORTISE_UNREACHABLE, true,
         "LOADING"},
        {"-MASTERDOWN Link with MASTER is down\r\n", MORTISE_UNREACHABLE, true, "MASTERDOWN"},
        {"-READONLY You can't write against a read only replica.\r\n", MORTISE_UNREACHABLE, true,
         "READONLY"},
        {"-ERR Error running script (call to f_64b2): @user_script:1: @user_script: 1: Lua script "
         "attempted to access a non "
         "local key in a cluster node\r\n",
         MORTISE_INDETERMINATE, true, "script attempted"},
        {"-ERR Script attempted to access a non local key in a cluster node\r\n",
         MORTISE_INDETERMINATE, true, "Script attempted"},
    };
    static char map[100];
    struct fake master;
    if (!CHECK(fake_start(&master)))
        return;
    put_map(map, master.port);
    fake_map(&seed, map);
    fake_map(&master, map);
    mortise_client *client = open_seeded("&unreachable_timeout=300ms");
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        mortise_lease *lease = NULL;
        snprintf(doing, sizeof doing, "%.40s", refusals[i].answer);
        fake_answer(&master, refusals[i].answer, 0, NULL);
        mortise_status status =
            mortise_acquire(client, "words", MORTISE_OPTIONS(.wait_ms = 0), &lease, &detail);
        CHECK(status == refusals[i].status && lease == NULL);
        CHECK(detail.retryable == refusals[i].retryable);
        SAYS(refusals[i].says);
    }
    static const char *const nonsense[] = {"-MOVED nonsense\r\n", "-ASK 1 nowhere\r\n"};
    mortise_client *patient = open_seeded("");
    for (size_t i = 0; i < 2; i++) {
        snprintf(doing, sizeof doing, "%.40s", nonsense[i]);
        fake_answer(&master, nonsense[i], 0, NULL);
        EXPECT(UNREACHABLE, try_once(patient, "words"));
        SAYS("again and again");
    }
    close_client(patient);
    fake_answer(&master, ":2\r\n", 0, NULL);
    close_client(client);
    fake_end(&master);
}

/* A cluster with TLS only has port 0 for those that ask without. */
static void test_portless(void)
{
    static char map[100];
    put_map(map, 0);
    fake_map(&seed, map);
    mortise_client *client = open_seeded("&unreachable_timeout=300ms");
    EXPECT(UNREACHABLE, try_once(client, "portless"));
    SAYS("no port for connections of this kind (tls)");
    close_client(client);
}

/* A master that has all slots, as it and the seed say. */
static bool begin_master(struct fake *master, char map[100])
{
    if (!CHECK(fake_start(master)))
        return false;
    fake_answer(master, ":2\r\n", 0, NULL);
    put_map(map, master->port);
    fake_map(&seed, map);
    fake_map(master, map);
    return true;
}

/* Before Redis 7.0.3 a lock may be held at the node that answers ASK, so such a node gets no request: as the only server, as one of a
 * list, and as a master that the map names. */
static void check_old(const char *old, const char *refusal)
{
    static const char at_seven[] = "$44\r\nredis_version:7.0.15\r\nredis_mode:cluster\r\n\r\n\r\n";
    static char maps[2][100]; /* the seed may still be sending the former one */
    static size_t calls;
    struct fake master;
    char url[100];
    mortise_client *client = NULL;
    if (!begin_master(&master, maps[calls++ % 2]))
        return;
    fake_inform(&master, old);
    for (size_t i = 0; i < 4; i++) {
        fake_inform(&seed, i < 3 ? old : at_seven);
        int length = snprintf(url, sizeof url, "redis%s://127.0.0.1:%d",
                              i % 3 == 0 ? "+cluster" : "", seed.port);
        if (i == 2)
            snprintf(url + length, sizeof url - (size_t)length, ",127.0.0.1:%d", master.port);
        snprintf(doing, sizeof doing, "%s, server %zu", url, i);
        if (!EXPECT(OK, mortise_open(url, &client, &detail)))
            continue;
        EXPECT(BACKEND, try_once(client, "old"));
        SAYS(refusal);
        CHECK(!detail.retryable);
        close_client(client);
    }
    for (size_t i = 0; i < sizeof master.asked / sizeof *master.asked; i++)
        CHECK(atomic_load(&master.asked[i]) == 0);
    /* as one server, whose redirects are not followed */
    snprintf(url, sizeof url, "redis://127.0.0.1:%d?cluster=no", master.port);
    if (EXPECT(OK, mortise_open(url, &client, &detail))) {
        take_and_give(client);
        close_client(client);
    }
    fake_inform(&seed, NULL);
    fake_end(&master);
}

static void test_old(void)
{
    check_old("$44\r\nredis_version:6.2.14\r\nredis_mode:cluster\r\n\r\n\r\n",
              "a cluster needs Redis 7.0.3 or later; this is 6.2.14");
    check_old("$43\r\nredis_version:7.0.2\r\nredis_mode:cluster\r\n\r\n\r\n",
              "a cluster needs Redis 7.0.3 or later; this is 7.0.2");
}

/* Valkey from 8.0 on has another name for what says that a server is a node: as the only server, and as one of a list. */
static void test_valkey(void)
{
    static const char valkey[] = "$44\r\nredis_version:7.2.4\r\nserver_mode:cluster\r\n\r\n\r\n";
    static char map[100];
    struct fake master;
    char url[100];
    mortise_client *client = NULL;
    if (!begin_master(&master, map))
        return;
    fake_inform(&seed, valkey);
    fake_inform(&master, valkey);
    for (int i = 0; i < 2; i++) {
        int length = snprintf(url, sizeof url, "redis://127.0.0.1:%d", seed.port);
        if (i == 1)
            snprintf(url + length, sizeof url - (size_t)length, ",127.0.0.1:%d", master.port);
        snprintf(doing, sizeof doing, "%s", url);
        if (!EXPECT(OK, mortise_open(url, &client, &detail)))
            continue;
        mortise_lease *lease = NULL;
        if (EXPECT(OK, mortise_acquire(client, "valkey",
                                       MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = LONG_MS), &lease,
                                       &detail)))
            give(lease);
        close_client(client);
    }
    for (size_t i = 0; i < sizeof seed.asked / sizeof *seed.asked; i++)
        CHECK(atomic_load(&seed.asked[i]) == 0);
    fake_inform(&seed, NULL);
    fake_end(&master);
}

static const CU_TestInfo tests[] = {
    {"ninety masters, one after the other", test_generations},
    {"more masters than a client remembers", test_strangers},
    {"what a node refuses", test_refusals},
    {"masters without a port", test_portless},
    {"nodes before Redis 7.0.3", test_old},
    {"nodes of Valkey", test_valkey},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    if (!fake_start(&seed))
        return 1;
    int code = run_tests("cluster: addresses", tests, argc, argv);
    fake_end(&seed);
    return code;
}
