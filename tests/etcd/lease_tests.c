/* lease_tests.c - what an operator does: ends leases, deletes keys, compacts, restarts the server. One server. */
#include "stage.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_SIZE 8192

/* The holder's and the waiter's. The holder learns it, and the waiter begins anew. */
static void test_revoked(void)
{
    mortise_client *holder = client_direct("ttl=30s"), *client = client_direct("ttl=30s");
    const char *name = fresh_name();
    mortise_lease *lease = take(holder, name);
    uint64_t token = mortise_token(lease);
    struct waiter waiter = {.other = lease};
    waiter_start(&waiter, client, name);
    CHECK(wait_contenders(holder, name, 2));
    CHECK(revoke_all_leases());
    CHECK(waiter_join(&waiter) == MORTISE_OK);
    CHECK(wait_state(lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    EXPECT(LOST, mortise_release(lease, &detail));
    SAFE(waiter.lease != NULL && mortise_token(waiter.lease) > token);
    mortise_release(waiter.lease, NULL); /* LOST, if it had it before its own lease was ended */
    CHECK(wait_contenders(holder, name, 0));
    client_end(client);
    client_end(holder);
}

static void test_own_key_deleted(void)
{
    char key[KEYS_SIZE];
    mortise_client *client = client_direct("ttl=30s");
    const char *name = fresh_name();
    mortise_lease *lease = take(client, name);
    CU_ASSERT_FATAL(key_of_name(name, "", key, sizeof key));
    CHECK(CTL("del", key));
    CHECK(wait_state(lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    EXPECT(LOST, mortise_release(lease, &detail));
    lease = take(client, name);
    give_back(lease);
    client_end(client);
}

/* The key of a waiting claim: it begins anew, behind those that came meanwhile. */
static void test_waiting_key_deleted(void)
{
    char first[KEYS_SIZE], second[KEYS_SIZE];
    mortise_client *holder = client_direct("ttl=30s"), *client = client_direct("ttl=30s");
    const char *name = fresh_name();
    mortise_lease *lease = take(holder, name);
    struct waiter waiter = {0};
    CU_ASSERT_FATAL(key_of_name(name, "", first, sizeof first));
    waiter_start(&waiter, client, name);
    CHECK(wait_contenders(holder, name, 2));
    CU_ASSERT_FATAL(key_of_name(name, first, second, sizeof second));
    CHECK(CTL("del", second));
    give_back(lease);
    CHECK(waiter_join(&waiter) == MORTISE_OK);
    CHECK(wait_contenders(holder, name, 1));
    give_back(waiter.lease);
    client_end(client);
    client_end(holder);
}

/* The key of the name at this moment. */
static void key_of_lease(mortise_client *client, const char *name, char *key)
{
    mortise_lease *lease = take(client, name);
    CU_ASSERT_FATAL(key_of_name(name, "", key, KEYS_SIZE));
    give_back(lease);
}

/* The key of the holder and that of the waiter go in one step: it is not the waiter's turn, because it has no key. */
static void test_both_keys_deleted(void)
{
    char below[80];
    mortise_client *holder = client_direct("ttl=4s"), *client = client_direct("ttl=30s");
    const char *name = fresh_name();
    mortise_lease *lease = take(holder, name);
    struct waiter waiter = {0};
    waiter_start(&waiter, client, name);
    CHECK(wait_waiting(holder, client, name));
    snprintf(below, sizeof below, "mortise/%s/", name);
    CHECK(CTL("del", "--prefix", below));
    CHECK(waiter_join(&waiter) == MORTISE_OK);
    CHECK(wait_contenders(holder, name, 1));
    CHECK(wait_state(lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    EXPECT(LOST, mortise_release(lease, &detail));
    give_back(waiter.lease);
    client_end(client);
    client_end(holder);
}

/* The holder counts with a larger base than the one that the waiter has read: so does the waiter, which reads nothing more. If its
 * watch is late it looks, and sees the base of all. */
static bool has_base_of_holder(mortise_client *holder, mortise_client *client)
{
    char key[KEYS_SIZE];
    const char *name = fresh_name();
    mortise_lease *lease = take(holder, name);
    struct waiter waiter = {0};
    CU_ASSERT_FATAL(key_of_name(name, "", key, sizeof key));
    waiter_start(&waiter, client, name);
    CHECK(wait_waiting(holder, client, name));
    CHECK(CTL("put", "--ignore-lease", key,
              "mortise/1 6000000000 1 0123456789abcdef0123456789abcdef\nhost\n1\nprogram"));
    give_back(lease);
    CHECK(waiter_join(&waiter) == MORTISE_OK);
    bool has = waiter.lease != NULL && mortise_token(waiter.lease) > 6000000000;
    give_back(waiter.lease);
    return has;
}

static void test_base_of_holder(void)
{
    mortise_client *holder = client_direct("ttl=30s"), *client = client_direct("ttl=30s");
    int tries = 1;
    while (tries < 5 && !has_base_of_holder(holder, client))
        tries++;
    SAFE(tries < 5);
    client_end(client);
    client_end(holder);
}

/* Servers remember all keys, so a name has few. After a connection was lost a late delete may come, so it has others. */
static void test_key_reused(void)
{
    static char keys[3][KEYS_SIZE];
    mortise_client *client = client_behind_proxy("ttl=30s");
    const char *name = fresh_name();
    mortise_lease *kept = take(client, fresh_name());
    key_of_lease(client, name, keys[0]);
    key_of_lease(client, name, keys[1]);
    CHECK(test_proxy_say(&stage.proxy, "cut"));
    CHECK(wait_state(kept, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    EXPECT(OK, mortise_ping(client, NULL, 0, &detail));
    key_of_lease(client, name, keys[2]);
    CU_ASSERT_STRING_EQUAL(keys[0], keys[1]);
    CU_ASSERT_STRING_NOT_EQUAL(keys[1], keys[2]);
    give_back(kept);
    client_end(client);
}

/* The session's key: it is put again, and acquires go on. */
static void test_session_key_deleted(void)
{
    mortise_client *client = client_direct("ttl=30s");
    mortise_lease *lease = take(client, fresh_name());
    CHECK(CTL("del", "--prefix", "mortise/%sessions/"));
    for (int i = 0; i < 3; i++)
        give_back(take(client, fresh_name()));
    SAFE(mortise_state(lease) != MORTISE_STATE_LOST);
    give_back(lease);
    client_end(client);
}

/* As a migration does. */
static void raise_base(int64_t base)
{
    char said[KEYS_SIZE], value[100], *id;
    CHECK(ctl_at(1, (const char *const[]){"get", "--print-value-only", "mortise/%tokens", NULL},
                 said, sizeof said));
    id = strchr(said, ' ');
    CU_ASSERT_PTR_NOT_NULL_FATAL(id);
    snprintf(value, sizeof value, "%" PRId64 "%.*s", base, (int)strcspn(id, "\n"), id);
    CHECK(CTL("put", "mortise/%tokens", value));
}

/* A base that a migration has raised is deleted: who knew it goes on above it. */
static void test_base_deleted(void)
{
    mortise_client *client = client_direct("ttl=30s");
    give_back(take(client, fresh_name()));
    raise_base(5000000000);
    mortise_lease *lease = take(client, fresh_name());
    uint64_t token = mortise_token(lease);
    SAFE(token > 5000000000);
    give_back(lease);
    CHECK(CTL("del", "mortise/%tokens"));
    lease = take(client, fresh_name());
    SAFE(mortise_token(lease) > token);
    give_back(lease);
    client_end(client);
}

/* The same, and one who does not know it makes it anew, and gives smaller tokens, until one who knew it comes: then both go on above
 * it. */
static void test_base_made_anew(void)
{
    const char *name = fresh_name();
    mortise_client *client = client_direct("ttl=30s");
    give_back(take(client, name));
    raise_base(9000000000);
    mortise_lease *lease = take(client, name);
    uint64_t token = mortise_token(lease);
    give_back(lease);
    CHECK(CTL("del", "mortise/%tokens"));
    mortise_client *other = client_direct("ttl=30s");
    lease = take(other, name);
    CHECK(mortise_token(lease) < token);
    give_back(lease);
    lease = take(client, name);
    SAFE(mortise_token(lease) > token);
    token = mortise_token(lease);
    give_back(lease);
    lease = take(other, name);
    SAFE(mortise_token(lease) > token);
    give_back(lease);
    client_end(other);
    client_end(client);
}

/* Whoever knows it has waited since before it was raised: its turn counts with no smaller one. Nor does the next name. */
static void test_base_of_turn(void)
{
    char other[64];
    mortise_client *holder = client_direct("ttl=30s"), *client = client_direct("ttl=30s");
    give_back(take(client, fresh_name()));
    snprintf(other, sizeof other, "%s", fresh_name());
    const char *name = fresh_name();
    mortise_lease *lease = take(holder, name);
    struct waiter waiter = {0};
    waiter_start(&waiter, client, name);
    CHECK(wait_waiting(holder, client, name));
    raise_base(8000000000);
    mortise_lease *first = take(client, other);
    uint64_t token = mortise_token(first);
    give_back(first);
    give_back(lease);
    CHECK(waiter_join(&waiter) == MORTISE_OK);
    SAFE(waiter.lease != NULL && mortise_token(waiter.lease) > 8000000000);
    give_back(waiter.lease);
    CHECK(CTL("del", "mortise/%tokens"));
    first = take(client, other);
    SAFE(token > 8000000000 && mortise_token(first) > token);
    give_back(first);
    client_end(client);
    client_end(holder);
}

/* A base of another cluster: as if this one was made of a snapshot. */
static void test_other_cluster(void)
{
    mortise_client *client = client_direct("ttl=30s");
    CHECK(CTL("put", "mortise/%tokens", "7000000000 abc"));
    mortise_lease *lease = take(client, fresh_name());
    SAFE(mortise_token(lease) > 7000000000 + (UINT64_C(1) << 40));
    give_back(lease);
    client_end(client);
}

static void test_nonsense(void)
{
    mortise_client *client = client_direct("ttl=30s");
    mortise_lease *lease = NULL;
    const char *name = fresh_name();
    CHECK(CTL("put", "mortise/%tokens", "nonsense"));
    EXPECT(BACKEND, mortise_acquire(client, name, MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS),
                                    &lease, &detail));
    SAYS("%tokens makes no sense");
    CHECK(wait_contenders(client, name, 0));
    CHECK(CTL("del", "mortise/%tokens"));
    give_back(take(client, name));
    client_end(client);
}

static void compact(void)
{
    char said[KEYS_SIZE], *revision;
    CHECK(CTL("put", "other", "1"));
    CHECK(ctl_at(1, (const char *const[]){"get", "other", "--write-out=json", NULL}, said,
                 sizeof said));
    revision = strstr(said, "\"revision\":");
    CU_ASSERT_PTR_NOT_NULL_FATAL(revision);
    revision += strlen("\"revision\":");
    revision[strspn(revision, "0123456789")] = '\0';
    CHECK(CTL("compaction", revision));
}

/* What the watch of the own key would begin with is compacted, and the connection is another one: the deletion is seen
 * nevertheless, and the waiter wakes. */
static void test_compacted(void)
{
    char key[KEYS_SIZE];
    mortise_client *client = client_behind_proxy("ttl=60s"), *other = client_direct("ttl=60s");
    const char *name = fresh_name();
    mortise_lease *lease = take(client, name);
    struct waiter waiter = {0};
    CU_ASSERT_FATAL(key_of_name(name, "", key, sizeof key));
    waiter_start(&waiter, other, name);
    CHECK(wait_contenders(other, name, 2));
    for (int i = 0; i < 2; i++) {
        compact();
        CHECK(test_proxy_say(&stage.proxy, "cut"));
        CHECK(wait_state(lease, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
        EXPECT(OK, mortise_ping(client, NULL, 0, &detail));
    }
    CHECK(CTL("del", key));
    CHECK(waiter_join(&waiter) == MORTISE_OK);
    CHECK(wait_state(lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    EXPECT(LOST, mortise_release(lease, &detail));
    give_back(waiter.lease);
    client_end(client);
    client_end(other);
}

/* While its client is away, the key is deleted and comes again, and what the watch would begin with is compacted: it is another key.
 * is_watched: the client has watched its key before. (If it had not, it forgot to: until the ttl had passed.) */
static void replace_key(bool is_watched)
{
    char key[KEYS_SIZE];
    mortise_client *client = client_behind_proxy(is_watched ? "ttl=20s" : "ttl=60s");
    const char *name = fresh_name();
    mortise_lease *lease = take(client, name);
    if (is_watched)
        let_pass(500);
    CHECK(test_proxy_say(&stage.proxy, "refuse"));
    CU_ASSERT_FATAL(key_of_name(name, "", key, sizeof key));
    CHECK(CTL("del", key));
    CHECK(CTL("put", key, "by hand"));
    compact();
    CHECK(test_proxy_say(&stage.proxy, "accept"));
    CHECK(wait_state(lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    EXPECT(LOST, mortise_release(lease, &detail));
    CHECK(CTL("del", key));
    client_end(client);
}

static void test_key_replaced(void)
{
    replace_key(false);
    replace_key(true);
}

/* Killed, and started again: what was held is held, and the waiter gets it. */
static void restart(const char *verb)
{
    mortise_client *holder = client_direct("ttl=60s"), *client = client_direct("ttl=60s");
    const char *name = fresh_name();
    struct waiter waiter = {0};
    mortise_lease *lease = take(holder, name);
    waiter_start(&waiter, client, name);
    CHECK(wait_contenders(holder, name, 2));
    CHECK(stage_server(verb, 1));
    CHECK(stage_server("start", 1));
    CHECK(wait_contenders(holder, name, 2));
    CHECK(wait_state(lease, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    give_back(lease);
    CHECK(waiter_join(&waiter) == MORTISE_OK);
    give_back(waiter.lease);
    client_end(client);
    client_end(holder);
}

static void test_killed(void)
{
    restart("kill");
}

static void test_restarted(void)
{
    restart("stop");
}

/* With more locks than there may be calls on their way: their keys move, and are looked at. */
static void test_many(void)
{
    enum { COUNT = 600 };
    static mortise_lease *leases[COUNT];
    char name[64], key[80];
    mortise_client *client = client_direct("ttl=30s");
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "many-%d", i);
        leases[i] = take(client, name);
    }
    CHECK(stage_server("kill", 1));
    CHECK(stage_server("start", 1));
    for (int i = 0; i < COUNT; i++)
        CHECK(wait_state(leases[i], MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    CU_ASSERT_FATAL(key_of_name(name, "", key, sizeof key));
    CHECK(CTL("del", key)); /* of the last one: so it is watched again */
    CHECK(wait_state(leases[COUNT - 1], MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    EXPECT(LOST, mortise_release(leases[COUNT - 1], &detail));
    for (int i = 0; i < COUNT - 1; i++)
        give_back(leases[i]);
    client_end(client);
}

/* The server is stopped for longer than the lease lasts: LOST, and the name is free afterwards. */
static void test_stopped(void)
{
    mortise_client *client = client_direct("ttl=2s");
    const char *name = fresh_name();
    mortise_lease *lease = take(client, name);
    uint64_t token = mortise_token(lease);
    CHECK(stage_server("freeze", 1));
    CHECK(wait_state(lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    CHECK(stage_server("thaw", 1));
    EXPECT(LOST, mortise_release(lease, &detail));
    lease = take(client, name);
    SAFE(mortise_token(lease) > token);
    give_back(lease);
    client_end(client);
}

static bool count_listed(const mortise_info *info, void *count)
{
    *(int *)count += 1 + info->waiters;
    return true;
}

/* A client whose prefix is that of another one with the name of a lock: what its locks leave in the servers is nobody's claim to that
 * lock. A lock that it holds is one, as for etcdctl. */
static void test_nested_prefix(void)
{
    char url[400];
    const char *name = fresh_name();
    mortise_client *outer = client_direct("ttl=30s"), *inner = NULL;
    mortise_info info = {.size = sizeof info};
    mortise_lease *lease = NULL;
    int count = 0;
    snprintf(url, sizeof url, "etcd://%s/mortise/%s?log=none", stage.servers, name);
    EXPECT(OK, mortise_open(url, &inner, &detail));
    give_back(take(inner, "inside"));
    EXPECT(OK, mortise_inspect(outer, name, &info, &detail));
    CHECK(!info.held && info.waiters == 0);
    EXPECT(OK, mortise_list(outer, name, count_listed, &count, &detail));
    CHECK(count == 0);
    EXPECT(OK, mortise_acquire(outer, name, MORTISE_OPTIONS(.wait_ms = 0), &lease, &detail));
    give_back(lease);
    EXPECT(OK,
           mortise_acquire(outer, name, MORTISE_OPTIONS(.wait_ms = 1000, .mode = MORTISE_SHARED),
                           &lease, &detail));
    give_back(lease);
    mortise_lease *held = take(inner, "inside");
    lease = NULL;
    EXPECT(BUSY, mortise_acquire(outer, name, MORTISE_OPTIONS(.wait_ms = 0), &lease, &detail));
    give_back(held);
    client_end(inner);
    client_end(outer);
}

/* A list is read in pages of a thousand keys. The last one of a page is another program's, and longer than a lock's may be. */
static void test_long_key(void)
{
    enum { BEFORE = 999 };
    static mortise_lease *leases[BEFORE + 1];
    static const char begin[] = "mortise/page-x";
    char name[64], key[2000];
    mortise_client *client = client_direct("ttl=30s");
    int count = 0;
    for (int i = 0; i <= BEFORE; i++) {
        snprintf(name, sizeof name, "page-%c%03d", i < BEFORE ? 'a' : 'z', i);
        leases[i] = take(client, name);
    }
    memset(key, 0xff, sizeof key);
    memcpy(key, begin, sizeof begin - 1);
    key[sizeof key - 1] = '\0';
    CHECK(CTL("put", key, "by hand"));
    EXPECT(OK, mortise_list(client, "page-", count_listed, &count, &detail));
    CHECK(count == BEFORE + 1);
    CHECK(CTL("del", key));
    for (int i = 0; i <= BEFORE; i++)
        give_back(leases[i]);
    client_end(client);
}

const CU_TestInfo lease_tests[] = {
    {"a lease is revoked by hand", test_revoked},
    {"the own key is deleted", test_own_key_deleted},
    {"the key of a waiter is deleted", test_waiting_key_deleted},
    {"both keys are deleted", test_both_keys_deleted},
    {"the base of the holder", test_base_of_holder},
    {"a key is used again", test_key_reused},
    {"the key of the session is deleted", test_session_key_deleted},
    {"the base of the tokens is deleted", test_base_deleted},
    {"the base of the tokens is made anew", test_base_made_anew},
    {"the base of a turn", test_base_of_turn},
    {"the base is another cluster's", test_other_cluster},
    {"the base makes no sense", test_nonsense},
    {"a prefix below a lock", test_nested_prefix},
    {"a long key ends a page", test_long_key},
    {"compacted", test_compacted},
    {"the own key is replaced", test_key_replaced},
    {"the server is stopped", test_stopped},
    {"the server is killed", test_killed},
    {"the server is restarted", test_restarted},
    {"the server is killed while many locks are held", test_many},
    CU_TEST_INFO_NULL,
};
