/* test_names.c - servers of a cluster that are known by host names, while the resolver hangs. The servers are fakes. getaddrinfo is
 * this file's own: while its gate is shut, look-ups of names below .test do not end. */
#include "fleet.h"

#include <fake.h>

#include <dirent.h>
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#define GENERATIONS 8
#define MASTERS_MAX 75 /* that a client can use at the same time */

static struct fake seed;
static struct test_count gate = TEST_COUNT_INIT, hanging = TEST_COUNT_INIT; /* 1: open; ever */

/* ---- the resolver --------------------------------------------------------------------------------------- */

typedef int resolver(const char *node, const char *port, const struct addrinfo *hints,
                     struct addrinfo **found);

/* The library finds this one, too. */
__attribute__((visibility("default"))) int getaddrinfo(const char *node, const char *port,
                                                       const struct addrinfo *hints,
                                                       struct addrinfo **found)
{
    resolver *next;
    void *symbol = dlsym(RTLD_NEXT, "getaddrinfo");
    memcpy(&next, &symbol, sizeof next);
    size_t length = node ? strlen(node) : 0;
    if (length <= 5 || strcmp(node + length - 5, ".test") != 0 ||
        (hints->ai_flags & AI_NUMERICHOST) != 0)
        return next(node, port, hints, found);
    if (test_count_get(&gate) == 0) {
        test_count_add(&hanging, 1);
        while (!test_count_wait(&gate, 1))
            continue;
    }
    struct addrinfo plain = {.ai_socktype = hints->ai_socktype,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    return next("127.0.0.1", port, &plain, found);
}

static void open_gate(void)
{
    test_count_add(&gate, 1);
}

static void shut_gate(void)
{
    test_count_add(&gate, -test_count_get(&gate));
}

static int thread_count(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (readdir(tasks))
        count++;
    closedir(tasks);
    return count;
}

static bool are_threads_gone(void *argument)
{
    return thread_count() <= *(int *)argument;
}

/* ---- maps and clients ----------------------------------------------------------------------------------- */

/* An entry of CLUSTER SLOTS: a master, and the seed as its replica. */
static size_t put_range(char *text, size_t size, int first, int last, const char *host, int port)
{
    return (size_t)snprintf(
        text, size,
        "*4\r\n:%d\r\n:%d\r\n*2\r\n$%zu\r\n%s\r\n:%d\r\n*2\r\n$9\r\n127.0.0.1\r\n"
        ":%d\r\n",
        first, last, strlen(host), host, port, seed.port);
}

static void put_map(char text[200], const char *host, int port)
{
    size_t used = (size_t)snprintf(text, 200, "*1\r\n");
    put_range(text + used, 200 - used, 0, SLOTS - 1, host, port);
}

static mortise_client *open_url(const char *url)
{
    mortise_client *client = NULL;
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

static bool start_master(struct fake *master, char map[200])
{
    if (!CHECK(fake_start(master)))
        return false;
    fake_answer(master, ":2\r\n", 0, NULL);
    put_map(map, "127.0.0.1", master->port);
    fake_map(master, map);
    return true;
}

/* ---- the tests ------------------------------------------------------------------------------------------ */

/* The resolver dies, then one master after the other. The replica of the map has a numeric address. */
static void test_seeds(void)
{
    static struct fake master[GENERATIONS];
    static char map[GENERATIONS][200];
    char url[200];
    snprintf(
        url, sizeof url,
        "redis+cluster://one.test:%d,two.test:%d,three.test:%d?log=none&unreachable_timeout=10s",
        seed.port, seed.port, seed.port);
    mortise_client *client = open_url(url);
    for (int i = 0; i < GENERATIONS; i++) {
        if (!start_master(&master[i], map[i]))
            return;
        fake_map(&seed, map[i]);
        if (i > 0)
            fake_end(&master[i - 1]);
        take_and_give(client);
        shut_gate();
    }
    CHECK(test_count_get(&hanging) > 0);
    open_gate();
    close_client(client);
    fake_end(&master[GENERATIONS - 1]);
}

static bool is_acquired(void *client)
{
    mortise_lease *lease = NULL;
    if (mortise_acquire(client, "name", MORTISE_OPTIONS(.wait_ms = 0), &lease, NULL) != MORTISE_OK)
        return false;
    give(lease);
    return true;
}

/* The map has named a master that nobody finds. The seed, which has a numeric address, names another one now. */
static void test_one_name(void)
{
    static struct fake master;
    static char lost[200], map[200];
    char url[200];
    snprintf(url, sizeof url,
             "redis+cluster://127.0.0.1:%d?log=none&connect_timeout=1s&unreachable_timeout=300ms",
             seed.port);
    int before = test_count_get(&hanging);
    shut_gate();
    put_map(lost, "lost.test", 1);
    fake_map(&seed, lost);
    mortise_client *client = open_url(url);
    CHECK(!is_acquired(client));
    if (!start_master(&master, map))
        return;
    fake_map(&seed, map);
    CHECK(test_poll(is_acquired, client, TEST_PATIENCE_MS));
    CHECK(test_count_get(&hanging) > before);
    open_gate();
    close_client(client);
    fake_end(&master);
}

static bool note(const mortise_info *info, void *user_data)
{
    (void)info;
    (void)user_data;
    return true;
}

/* A map of so many masters: the names of all but the first are not found. Then the map has one master only, and a former one
 * makes room for it; but not one whose look-up is under way, because its answer comes yet. */
static void test_room(void)
{
    static char lost[MASTERS_MAX * 120 + 20], map[200];
    struct fake master;
    char url[200], host[20];
    snprintf(url, sizeof url, "redis+cluster://127.0.0.1:%d?log=none&connect_timeout=1s",
             seed.port);
    size_t used = (size_t)snprintf(lost, sizeof lost, "*%d\r\n", MASTERS_MAX);
    for (int i = 0; i < MASTERS_MAX; i++) {
        snprintf(host, sizeof host, "lost%d.test", i);
        used += put_range(lost + used, sizeof lost - used, i, i + 1 < MASTERS_MAX ? i : SLOTS - 1,
                          i > 0 ? host : "127.0.0.1", 1);
    }
    fake_map(&seed, lost);
    if (!start_master(&master, map))
        return;
    mortise_client *client = open_url(url);
    shut_gate();
    int before = test_count_get(&hanging);
    CHECK(mortise_list(client, "", note, NULL, NULL) == MORTISE_UNREACHABLE);
    CHECK(test_count_wait(&hanging, before + MASTERS_MAX - 1));
    fake_map(&seed, map);
    take_and_give(client);
    int threads = thread_count() - (MASTERS_MAX - 1);
    open_gate();
    CHECK(test_poll(are_threads_gone, &threads, TEST_PATIENCE_MS));
    take_and_give(client); /* the answers have come by then */
    close_client(client);
    fake_end(&master);
}

static const CU_TestInfo tests[] = {
    {"the names of the configuration", test_seeds},
    {"the name of a master", test_one_name},
    {"masters whose names are looked up", test_room},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    open_gate();
    if (!fake_start(&seed))
        return 1;
    int code = run_tests("cluster: names", tests, argc, argv);
    fake_end(&seed);
    return code;
}
