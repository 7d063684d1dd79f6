/* node_tests.c - what operators and other clients may do to the nodes: delete them, create them, leave very many of
 * them. */
#include "stage.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* The session lives. A watch notices it, not the next renewal, which is at least 2 s later: at least once within a
 * second, however busy the machine is. */
static void test_own_node_deleted(void)
{
    mortise_client *client = client_direct("&ttl=30s");
    char node[128];
    int soon = 0;
    for (int i = 0; i < 5; i++) {
        const char *name = fresh_name();
        mortise_lease *lease = take(client, name);
        CU_ASSERT_FATAL(contender(name, 0, node, sizeof node));
        int64_t began_ms = test_now_ms();
        CU_ASSERT(node_delete(name, node));
        CU_ASSERT(wait_state(lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
        soon += test_now_ms() - began_ms < 1000;
        EXPECT(LOST, mortise_release(lease, &detail));
        CU_ASSERT_EQUAL(contenders(name), 0);
    }
    CU_ASSERT(soon > 0);
    client_end(client);
}

/* A waiter whose own node was deleted queues again, and gets its turn. */
static void test_waiting_node_deleted(void)
{
    mortise_client *holder = client_direct(""), *client = client_direct("");
    const char *name = fresh_name();
    struct waiter waiter = {0};
    char node[128];
    mortise_lease *lease = take(holder, name);
    waiter_start(&waiter, client, name);
    CU_ASSERT(wait_contenders(name, 2));
    CU_ASSERT_FATAL(contender(name, 1, node, sizeof node));
    CU_ASSERT(node_delete(name, node));
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(waiter_join(&waiter), MORTISE_OK);
    CU_ASSERT_EQUAL(contenders(name), 1);
    CU_ASSERT_EQUAL(mortise_release(waiter.lease, NULL), MORTISE_OK);
    client_end(holder);
    client_end(client);
}

/* ZooKeeper's C recipe: if a predecessor leaves while the holder is still there, nobody loses a place, and nobody
 * gets the lock. */
static void test_vanished_predecessor_c_recipe(void)
{
    mortise_client *clients[4];
    const char *name = fresh_name();
    struct waiter waiters[3] = {{0}};
    char node[128];
    for (int i = 0; i < 4; i++)
        clients[i] = client_direct("");
    mortise_lease *lease = take(clients[3], name);
    for (int i = 0; i < 3; i++) {
        waiters[i].other = lease;
        waiter_start(&waiters[i], clients[i], name);
        CU_ASSERT(wait_contenders(name, i + 2));
    }
    CU_ASSERT_FATAL(contender(name, 1, node, sizeof node));
    CU_ASSERT(node_delete(
        name,
        node)); /* that of waiters[0], which starts again behind the others when its turn comes */
    CU_ASSERT_FALSE(test_count_wait_ms(&waiters[1].done, 1, 200));
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(waiter_join(&waiters[1]), MORTISE_OK);
    CU_ASSERT_EQUAL(test_count_get(&waiters[2].done), 0);
    CU_ASSERT_EQUAL(mortise_release(waiters[1].lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(waiter_join(&waiters[2]), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(waiters[2].lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(waiter_join(&waiters[0]), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(waiters[0].lease, NULL), MORTISE_OK);
    for (int i = 0; i < 4; i++)
        client_end(clients[i]);
}

/* kazoo#730, on a server: a number below 0 was given before 0, one near 2^31 after it. */
static void test_number_overflow_kazoo_730(void)
{
    mortise_client *client = client_direct("");
    const char *name = fresh_name();
    struct waiter waiter = {0};
    CU_ASSERT_EQUAL(mortise_release(take(client, fresh_name()), NULL),
                    MORTISE_OK); /* there is a root */
    CU_ASSERT(node_make(name, NULL));
    CU_ASSERT(node_make(name, "x-lock--000000007"));
    waiter_start(&waiter, client, name);
    CU_ASSERT(wait_contenders(name, 2));
    CU_ASSERT_FALSE(test_count_wait_ms(&waiter.done, 1, 200));
    CU_ASSERT(node_make(name, "y-lock-2147483646"));
    CU_ASSERT(node_delete(name, "x-lock--000000007"));
    CU_ASSERT_EQUAL(waiter_join(&waiter), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(waiter.lease, NULL), MORTISE_OK);
    CU_ASSERT(node_delete(name, "y-lock-2147483646"));
    client_end(client);
}

/* A number that was given twice: our node came first, as its czxid says. */
static void test_number_given_twice(void)
{
    mortise_client *holder = client_direct(""), *client = client_direct("");
    const char *name = fresh_name();
    struct waiter waiter = {0};
    char node[128], twin[128];
    mortise_lease *lease = take(holder, name);
    waiter_start(&waiter, client, name);
    CU_ASSERT(wait_contenders(name, 2));
    CU_ASSERT_FATAL(contender(name, 1, node, sizeof node));
    snprintf(twin, sizeof twin, "a-lock-%s", strstr(node, "-lock-") + 6);
    CU_ASSERT(node_make(name, twin));
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(waiter_join(&waiter), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(waiter.lease, NULL), MORTISE_OK);
    CU_ASSERT(node_delete(name, twin));
    client_end(holder);
    client_end(client);
}

/* A node of a lock that our client does not count, or that does not count ours: no caller of ours gets the lock,
 * whether it waits, tries, or is in the queue already, and nothing of it is left. */
static void test_foreign_nodes(void)
{
    static const struct {
        const char *style, *node;
        bool refused, plain; /* a plain node: it may be no lock at all, and the error says so */
    } cases[] = {
        {"curator", "_c_11111111-2222-3333-4444-555555555555-__READ__0000000001", true, false},
        {"curator", "_c_11111111-2222-3333-4444-555555555555-__WRIT__0000000001", true, false},
        {"curator", "11111111222233334444555555555555__rlock__0000000001", true, false},
        {"curator", "11111111222233334444555555555555__lock__0000000001", true, false},
        {"curator", "x-1000-0000000001", true, true},
        {"curator", "report-20261123000000", true, true},
        {"curator", "leases", true, true},
        {"curator", "lease", false, false},
        {"curator-rw", "_c_11111111-2222-3333-4444-555555555555-lock-0000000001", true, false},
        {"curator-rw", "11111111222233334444555555555555__lock__0000000001", true, false},
        {"kazoo", "_c_11111111-2222-3333-4444-555555555555-lock-0000000001", true, false},
        {"kazoo", "lock-0000000001", true, false},
        {"kazoo", "_c_11111111-2222-3333-4444-555555555555-__READ__0000000001", true, false},
        {"kazoo", "11111111222233334444555555555555", true, true},
        {"kazoo-rw", "_c_11111111-2222-3333-4444-555555555555-__WRIT__0000000001", true, false},
    };
    mortise_lease *lease;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char settings[64];
        snprintf(settings, sizeof settings, "&node_style=%s", cases[i].style);
        mortise_client *client = client_direct(settings);
        const char *name = fresh_name();
        mortise_status wanted = cases[i].refused ? MORTISE_CONFIG : MORTISE_OK;
        CU_ASSERT_EQUAL(mortise_release(take(client, fresh_name()), NULL),
                        MORTISE_OK); /* there is a root */
        CU_ASSERT(node_make(name, NULL));
        CU_ASSERT(node_make(name, cases[i].node));
        for (int wait_ms = 0; wait_ms <= TEST_PATIENCE_MS; wait_ms += TEST_PATIENCE_MS) {
            mortise_status status =
                mortise_acquire(client, name, MORTISE_OPTIONS(.wait_ms = wait_ms), &lease, &detail);
            CU_ASSERT_EQUAL(status, wanted);
            if (status == MORTISE_OK)
                CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
            if (status != MORTISE_CONFIG)
                continue;
            CU_ASSERT(strstr(detail.message, cases[i].node) != NULL);
            CU_ASSERT((strstr(detail.message, "delete it") != NULL) == cases[i].plain);
        }
        CU_ASSERT(node_delete(name, cases[i].node));
        CU_ASSERT(wait_contenders(name, 0));
        CU_ASSERT_EQUAL(mortise_release(take(client, name), NULL), MORTISE_OK);
        client_end(client);
    }
}

/* It comes while one of ours waits: ours does not get the lock when its turn comes. */
static void test_foreign_node_meanwhile(void)
{
    mortise_client *holder = client_direct(""), *client = client_direct("");
    const char *name = fresh_name(),
               *node = "_c_11111111-2222-3333-4444-555555555555-__READ__0000000007";
    struct waiter waiter = {0};
    mortise_lease *lease = take(holder, name);
    waiter_start(&waiter, client, name);
    CU_ASSERT(wait_contenders(name, 2));
    CU_ASSERT(node_make(name, node));
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(waiter_join(&waiter), MORTISE_CONFIG);
    CU_ASSERT(wait_contenders(name, 1));
    CU_ASSERT(node_delete(name, node));
    client_end(holder);
    client_end(client);
}

/* A client of ours with the other node_style is refused, and the clients in the folder are not: not those that hold or
 * wait, not one that comes while it tries, nor the next one when it has gone. */
static void test_two_styles(void)
{
    static const char *const styles[] = {"curator", "kazoo"};
    for (int i = 0; i < 2; i++) {
        char settings[64], others[64];
        snprintf(settings, sizeof settings, "&node_style=%s", styles[i]);
        snprintf(others, sizeof others, "&node_style=%s", styles[1 - i]);
        mortise_client *holder = client_direct(settings), *client = client_direct(settings),
                       *last = client_direct(settings), *other = client_direct(others);
        const char *name = fresh_name(),
                   *trying = i == 0
                                 ? "11111111222233334444555555555555__mortise__lock__0000000002"
                                 : "_c_1111111122223333-4444555555555555-mortise-lock-0000000002";
        struct waiter waiter = {0}, behind = {0};
        mortise_lease *lease = take(holder, name), *refused;
        waiter_start(&waiter, client, name);
        CU_ASSERT(wait_contenders(name, 2));
        for (int wait_ms = 0; wait_ms <= TEST_PATIENCE_MS; wait_ms += TEST_PATIENCE_MS) {
            EXPECT(CONFIG, mortise_acquire(other, name, MORTISE_OPTIONS(.wait_ms = wait_ms),
                                           &refused, &detail));
            CU_ASSERT(strstr(detail.message, "a client of Mortise") != NULL);
        }
        CU_ASSERT(node_make(name, trying)); /* as if it was stopped before it leaves */
        EXPECT(BUSY, mortise_acquire(last, name, MORTISE_OPTIONS(.wait_ms = 0), &refused, &detail));
        waiter_start(&behind, last, name);
        CU_ASSERT(wait_contenders(name, 4));
        EXPECT(OK, mortise_release(lease, &detail));
        CU_ASSERT(node_delete(name, trying));
        CU_ASSERT_EQUAL(waiter_join(&waiter), MORTISE_OK);
        EXPECT(OK, mortise_release(waiter.lease, &detail));
        CU_ASSERT_EQUAL(waiter_join(&behind), MORTISE_OK);
        EXPECT(OK, mortise_release(behind.lease, &detail));
        CU_ASSERT(wait_contenders(name, 0));
        EXPECT(OK, mortise_release(take(other, name), &detail)); /* in an empty folder */
        client_end(holder);
        client_end(client);
        client_end(last);
        client_end(other);
    }
}

struct rival {
    pthread_t thread;
    mortise_client *client;
    const char *name;
    atomic_int *holders;
    int had, overlaps, odd;
};

static void *rival_main(void *argument)
{
    struct rival *rival = argument;
    for (int i = 0; i < 100; i++) {
        mortise_lease *lease;
        mortise_status status = mortise_acquire(
            rival->client, rival->name, MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS), &lease, NULL);
        rival->odd += status != MORTISE_OK && status != MORTISE_CONFIG;
        if (status != MORTISE_OK)
            continue;
        rival->had++;
        rival->overlaps += atomic_fetch_add(rival->holders, 1) != 0;
        sched_yield();
        atomic_fetch_sub(rival->holders, 1);
        rival->odd += mortise_release(lease, NULL) != MORTISE_OK;
    }
    return NULL;
}

/* Two clients of each style at once: whichever is refused, there is one holder. */
static void test_two_styles_at_once(void)
{
    struct rival rivals[4] = {{.had = 0}};
    atomic_int holders = 0;
    const char *name = fresh_name();
    int had = 0;
    for (int i = 0; i < 4; i++) {
        rivals[i].client = client_direct(i % 2 == 0 ? "" : "&node_style=kazoo");
        rivals[i].name = name;
        rivals[i].holders = &holders;
        CU_ASSERT_EQUAL_FATAL(pthread_create(&rivals[i].thread, NULL, rival_main, &rivals[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(rivals[i].thread, NULL);
        SAFE(rivals[i].overlaps == 0);
        CU_ASSERT_EQUAL(rivals[i].odd, 0);
        had += rivals[i].had;
        client_end(rivals[i].client);
    }
    CU_ASSERT(had > 0);
    CU_ASSERT(wait_contenders(name, 0));
}

struct known {
    mortise_client *client;
    const char *name;
};

static bool is_known(void *argument)
{
    const struct known *known = argument;
    mortise_info info = {.size = sizeof info};
    return mortise_inspect(known->client, known->name, &info, NULL) == MORTISE_OK && info.held &&
           info.pid > 0 && info.host[0] != '\0';
}

/* A client of Curator asks the holder to give up: the holder keeps the lock, and writes its identity again. */
static void test_revoked_by_curator(void)
{
    mortise_client *client = client_direct(""), *other = client_direct("");
    const char *name = fresh_name();
    mortise_lease *lease = take(client, name);
    uint64_t token = mortise_token(lease);
    struct known known = {other, name};
    char node[128], path[400];
    CU_ASSERT_FATAL(contender(name, 0, node, sizeof node));
    snprintf(path, sizeof path, "/faults/%s/%s", name, node);
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(zoo_set(stage.peek, path, "__REVOKE__", 10, -1), ZOK);
        CU_ASSERT(test_poll(is_known, &known, TEST_PATIENCE_MS));
    }
    mortise_info info = {.size = sizeof info};
    CU_ASSERT_EQUAL(mortise_inspect(other, name, &info, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(info.token, token);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    client_end(client);
    client_end(other);
}

struct listed {
    const char *name;
    int times;
};

static bool note_name(const mortise_info *info, void *argument)
{
    struct listed *listed = argument;
    listed->times += strcmp(info->name, listed->name) == 0;
    return true;
}

/* Each name is a lock of its own for all operations, whatever ZooKeeper does with such a path. */
static void test_odd_names(void)
{
    static char longest[MORTISE_NAME_MAX + 1], all[256];
    const char *const names[] = {".",
                                 "..",
                                 "...",
                                 "/",
                                 "//",
                                 "a/b",
                                 "a/../b",
                                 "/leading",
                                 "trailing/",
                                 "%",
                                 "%41",
                                 "%2F",
                                 "%tokens",
                                 "%sessions",
                                 "%records",
                                 "zookeeper",
                                 " ",
                                 "\xff\xfe",
                                 "\xc3\xa9",
                                 "e\xcc\x81",
                                 "\xef\xbf\xbe",
                                 "\xed\xa0\x80",
                                 "\x7f",
                                 "\x01\n\r\t",
                                 "_c_x-lock-0000000001",
                                 "lock-0000000001",
                                 longest,
                                 all};
    memset(longest, '/', MORTISE_NAME_MAX);
    for (int c = 1; c < 256; c++)
        all[c - 1] = (char)c;
    mortise_client *client = client_direct(""), *other = client_direct("");
    mortise_lease *leases[sizeof names / sizeof names[0]], *none;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        leases[i] = take(client, names[i]);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct listed listed = {names[i], 0};
        mortise_info info = {.size = sizeof info};
        EXPECT(BUSY,
               mortise_acquire(other, names[i], MORTISE_OPTIONS(.wait_ms = 0), &none, &detail));
        EXPECT(OK, mortise_inspect(other, names[i], &info, &detail));
        CU_ASSERT(info.held && info.token == mortise_token(leases[i]));
        EXPECT(OK, mortise_list(other, names[i], note_name, &listed, &detail));
        CU_ASSERT_EQUAL(listed.times, 1);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        EXPECT(OK, mortise_release(leases[i], &detail));
    client_end(client);
    client_end(other);
}

static bool folders_gone(void *argument)
{
    struct String_vector folders = {0, NULL};
    int left = 0;
    (void)argument;
    if (zoo_get_children(stage.peek, "/faults", 0, &folders) != ZOK)
        return false;
    for (int i = 0; i < folders.count; i++)
        left += strncmp(folders.data[i], "leak", 4) == 0;
    deallocate_String_vector(&folders);
    return left == 0;
}

/* kazoo#329: a name that was locked once leaves no node behind, after the servers' interval. */
static void test_parents_leak_kazoo_329(void)
{
    mortise_client *client = client_direct("");
    char name[32];
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "leak%d", i);
        CU_ASSERT_EQUAL(mortise_release_nowait(take(client, name), NULL), MORTISE_OK);
    }
    CU_ASSERT(test_poll(folders_gone, NULL, TEST_PATIENCE_MS));
    client_end(client);
}

/* A floor that is larger than the next token needs a base, which all later tokens have too: here from a node as a
 * migration would leave it. */
static void test_base_of_tokens(void)
{
    mortise_client *client = client_direct(""), *other = client_direct("");
    const char *name = fresh_name();
    mortise_lease *lease = take(client, name);
    uint64_t token = mortise_token(lease);
    mortise_release(lease, NULL);
    CU_ASSERT_EQUAL(zoo_create(stage.peek, "/faults/%tokens", "1000000000000", 13,
                               &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT, NULL, 0),
                    ZOK);
    lease = take(client, name);
    CU_ASSERT(mortise_token(lease) > token + UINT64_C(1000000000000));
    CU_ASSERT(mortise_token(lease) < token + UINT64_C(1000000001000));
    token = mortise_token(lease);
    CU_ASSERT_EQUAL(zoo_set(stage.peek, "/faults/%tokens", "1000000005000", 13, -1), ZOK);
    mortise_info info = {.size = sizeof info};
    EXPECT(OK, mortise_inspect(other, name, &info, &detail));
    CU_ASSERT_EQUAL(info.token, token); /* what its holder counts with, not the present base */
    EXPECT(NOTOWNER, mortise_break(other, name, token + 5000, &detail));
    EXPECT(OK, mortise_break(other, name, token, &detail));
    lease = take(other, name);
    CU_ASSERT(mortise_token(lease) > token + 5000);
    mortise_release(lease, NULL);
    CU_ASSERT_EQUAL(zoo_delete(stage.peek, "/faults/%tokens", -1), ZOK);
    client_end(client);
    client_end(other);
}

/* False: the session itself has ended, because something was stopped for longer than that. */
static bool outlasts_session(mortise_client *client, mortise_client *other)
{
    const char *name = fresh_name();
    mortise_lease *lease, *next;
    int64_t session = session_of(client);
    int64_t began_ms = test_now_ms(), ttl_ms = 3 * TIMEOUT_MS / 2;
    EXPECT(OK, mortise_acquire(client, name,
                               MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = ttl_ms, .no_renew = true),
                               &lease, &detail));
    next = take(other, name);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    int64_t took_ms = test_now_ms() - began_ms;
    EXPECT(OK, mortise_release(next, &detail));
    mortise_release(lease, NULL);
    if (session_of(client) != session)
        return false;
    CU_ASSERT(took_ms >= ttl_ms - ttl_ms / 50 - 20);
    return true;
}

/* A no_renew lease lasts for its ttl, although the session alone is not proven for so long; and not forever. */
static void test_no_renew_outlasts_session(void)
{
    mortise_client *client = client_direct(BRIEF), *other = client_direct("");
    while (!outlasts_session(client, other))
        continue;
    client_end(client);
    client_end(other);
}

const CU_TestInfo node_tests[] = {
    {"the own node is deleted", test_own_node_deleted},
    {"a waiter's node is deleted", test_waiting_node_deleted},
    {"the C recipe: a vanished predecessor", test_vanished_predecessor_c_recipe},
    {"kazoo#730: numbers over the end", test_number_overflow_kazoo_730},
    {"a number given twice", test_number_given_twice},
    {"nodes of other kinds of locks", test_foreign_nodes},
    {"a revocation of Curator's", test_revoked_by_curator},
    {"odd names", test_odd_names},
    {"a node of another kind of lock, while one waits", test_foreign_node_meanwhile},
    {"a client of ours with the other style", test_two_styles},
    {"clients of ours with both styles at once", test_two_styles_at_once},
    {"kazoo#329: parents leak", test_parents_leak_kazoo_329},
    {"the base of the tokens", test_base_of_tokens},
    {"no_renew outlasts the session", test_no_renew_outlasts_session},
    CU_TEST_INFO_NULL,
};
