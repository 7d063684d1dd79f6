/* session_tests.c - the client's session ends: another client closes it with its password, it expires while the
 * process was stopped, or the servers were down; and who may have a session: passwords, lists of servers. */
#include "stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- ended from outside ------------------------------------------------------------------------------ */

/* Computes it from the id as the servers do: java.util.Random, seeded with the id and their "secret". */
static void password_of(int64_t id, char password[16])
{
    uint64_t seed = ((uint64_t)id ^ UINT64_C(0xB3415C00)) ^ UINT64_C(0x5DEECE66D);
    seed &= (UINT64_C(1) << 48) - 1;
    for (int i = 0; i < 16; i += 4) {
        seed = (seed * UINT64_C(0x5DEECE66D) + 0xB) & ((UINT64_C(1) << 48) - 1);
        uint32_t number = (uint32_t)(seed >> 16);
        for (int k = 0; k < 4; k++, number >>= 8)
            password[i + k] = (char)number;
    }
}

static void watch_nothing(zhandle_t *zh, int type, int state, const char *path, void *context)
{
    (void)zh;
    (void)type;
    (void)state;
    (void)path;
    (void)context;
}

static void be_quiet(const char *message)
{
    (void)message;
}

static bool is_answered(void *handle)
{
    return zoo_state(handle) == ZOO_CONNECTED_STATE ||
           zoo_state(handle) == ZOO_EXPIRED_SESSION_STATE;
}

/* A second handle takes it over and closes it; again, if the client took it back in between, until the servers
 * say that there is no such session. */
bool session_close_by_hand(int64_t session)
{
    clientid_t id = {.client_id = session};
    bool over = false;
    password_of(session, id.passwd);
    for (int tries = 0; tries < 50 && !over; tries++) {
        zhandle_t *second = zookeeper_init2(stage.servers, watch_nothing, LIFE_MS, &id, NULL,
                                            ZOO_NO_LOG_CLIENTENV, be_quiet);
        CU_ASSERT_PTR_NOT_NULL_FATAL(second);
        test_poll(is_answered, second, TEST_PATIENCE_MS);
        over = zoo_state(second) == ZOO_EXPIRED_SESSION_STATE;
        zookeeper_close(second);
    }
    return over;
}

static void end_session(mortise_client *client)
{
    CU_ASSERT(session_close_by_hand(session_of(client)));
}

/* Returns how often the node for the beats of this client's session was written; -1: there is none. */
static int beats_of(mortise_client *client)
{
    int64_t session = session_of(client);
    struct String_vector nodes = {0, NULL};
    struct Stat stat;
    char path[256];
    int beats = -1;
    if (zoo_get_children(stage.peek, "/faults/%sessions", 0, &nodes) != ZOK)
        return -1;
    for (int i = 0; i < nodes.count; i++) {
        snprintf(path, sizeof path, "/faults/%%sessions/%s", nodes.data[i]);
        if (zoo_exists(stage.peek, path, 0, &stat) == ZOK && stat.ephemeralOwner == session)
            beats = stat.version;
    }
    deallocate_String_vector(&nodes);
    return beats;
}

static bool never(void *argument)
{
    (void)argument;
    return false;
}

/* For as long as the session would last. */
static bool wrote_nothing(void *argument)
{
    int beats = beats_of(argument);
    test_poll(never, NULL, TIMEOUT_MS);
    return beats >= 0 && beats_of(argument) == beats;
}

struct goal {
    mortise_lease *lease;
    int64_t deadline_ms;
};

/* Or it is LOST. */
static bool lasts_until(void *argument)
{
    const struct goal *goal = argument;
    int64_t deadline_ms = deadline_of(goal->lease);
    return deadline_ms == 0 || deadline_ms >= goal->deadline_ms;
}

/* A client without locks rests, and its session lives on. The next lock is proven at once, and is renewed. */
static void test_rests(void)
{
    mortise_client *client = client_direct(BRIEF);
    EXPECT(OK, mortise_release(take(client, fresh_name()), &detail));
    int64_t session = session_of(client);
    CU_ASSERT(test_poll(wrote_nothing, client, TEST_PATIENCE_MS));
    CU_ASSERT_EQUAL(session_of(client), session);
    const char *name = fresh_name();
    bool kept = false;
    for (int tries = 0; tries < TRIES && !kept; tries++) {
        mortise_lease *lease = take(client, name);
        CU_ASSERT(session_of(client) != session);
        struct goal goal = {lease, deadline_of(lease) + 2 * TIMEOUT_MS};
        CU_ASSERT(test_poll(lasts_until, &goal, TEST_PATIENCE_MS));
        kept = mortise_release(lease, &detail) == MORTISE_OK;
    }
    CU_ASSERT(kept);
    client_end(client);
}

struct asker {
    pthread_t thread;
    mortise_client *client;
    const char *name;
    uint64_t token; /* 0: it lists */
    int times;
    mortise_status status;
    mortise_error error;
};

static bool count_name(const mortise_info *info, void *argument)
{
    struct asker *asker = argument;
    asker->times += strcmp(info->name, asker->name) == 0;
    return true;
}

static void *ask_main(void *argument)
{
    struct asker *asker = argument;
    asker->status = asker->token == 0
                        ? mortise_list(asker->client, asker->name, count_name, asker, &asker->error)
                        : mortise_break(asker->client, asker->name, asker->token, &asker->error);
    return NULL;
}

static void ask(struct asker *asker, mortise_client *client, const char *name, uint64_t token)
{
    int64_t before = test_proxy_count(&stage.proxy, "up");
    *asker = (struct asker){.client = client, .name = name, .token = token};
    CU_ASSERT_EQUAL_FATAL(pthread_create(&asker->thread, NULL, ask_main, asker), 0);
    for (int i = 0; i < TEST_PATIENCE_MS && test_proxy_count(&stage.proxy, "up") <= before; i++)
        test_poll(never, NULL, 1);
}

/* An acquire ends the session of a client that rests; open requests in it are answered first. */
static void test_queries_at_rest(void)
{
    mortise_client *client = client_behind_proxy("&session_timeout=12s"),
                   *holder = client_direct("");
    const char *listed = fresh_name(), *ended = fresh_name(), *wanted = fresh_name();
    mortise_lease *kept = take(holder, listed), *broken = take(holder, ended);
    struct asker lists, breaks;
    struct waiter waiter = {0};
    EXPECT(OK, mortise_release(take(client, fresh_name()), &detail));
    CU_ASSERT(test_poll(wrote_nothing, client, TEST_PATIENCE_MS));
    int64_t session = session_of(client);
    CU_ASSERT(test_proxy_say(&stage.proxy, "delay 700 down"));
    ask(&lists, client, listed, 0);
    ask(&breaks, client, ended, mortise_token(broken));
    CU_ASSERT(
        wait_contenders(ended, 0)); /* executed, and not answered; the list knows its folders */
    waiter_start(&waiter, client, wanted);
    pthread_join(lists.thread, NULL);
    pthread_join(breaks.thread, NULL);
    CU_ASSERT(test_proxy_say(&stage.proxy, "pass"));
    CU_ASSERT_EQUAL(waiter_join(&waiter), MORTISE_OK);
    CU_ASSERT(session_of(client) != session);
    CU_ASSERT_EQUAL(lists.status, MORTISE_OK);
    CU_ASSERT_EQUAL(lists.times, 1);
    CU_ASSERT_EQUAL(breaks.status, MORTISE_OK);
    EXPECT(OK, mortise_release(waiter.lease, &detail));
    EXPECT(OK, mortise_release(kept, &detail));
    mortise_release(broken, NULL);
    client_end(client);
    client_end(holder);
}

/* CURATOR-604: after the end of a session there is one owner, and the old one knows that it is LOST. */
static void test_two_owners_curator_604(void)
{
    mortise_client *client = client_direct(""), *other = client_direct("");
    const char *name = fresh_name();
    mortise_lease *lease = take(client, name);
    uint64_t token = mortise_token(lease);
    struct waiter waiter = {0};
    waiter_start(&waiter, other, name);
    CU_ASSERT(wait_contenders(name, 2));
    end_session(client);
    CU_ASSERT_EQUAL(waiter_join(&waiter), MORTISE_OK);
    CU_ASSERT(mortise_token(waiter.lease) > token);
    CU_ASSERT(wait_state(lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    EXPECT(LOST, mortise_release(lease, &detail));
    CU_ASSERT_EQUAL(contenders(name), 1);
    CU_ASSERT_EQUAL(mortise_state(waiter.lease), MORTISE_STATE_HELD);
    EXPECT(OK, mortise_release(waiter.lease, &detail));
    lease = take(client, name); /* in a session of its own */
    CU_ASSERT(mortise_token(lease) > token);
    EXPECT(OK, mortise_release(lease, &detail));
    client_end(client);
    client_end(other);
}

/* CURATOR-498: a waiter continues in the next session, with a node of that session. */
static void test_dying_session_curator_498(void)
{
    mortise_client *holder = client_direct(""), *client = client_direct("");
    const char *name = fresh_name();
    char node[128], path[256];
    struct Stat stat;
    mortise_lease *lease = take(holder, name);
    struct waiter waiter = {0};
    waiter_start(&waiter, client, name);
    CU_ASSERT(wait_contenders(name, 2));
    int64_t before = session_of(client);
    end_session(client);
    EXPECT(OK, mortise_release(lease, &detail));
    CU_ASSERT_EQUAL(waiter_join(&waiter), MORTISE_OK);
    CU_ASSERT_FATAL(contender(name, 0, node, sizeof node));
    snprintf(path, sizeof path, "/faults/%s/%s", name, node);
    CU_ASSERT_EQUAL(zoo_exists(stage.peek, path, 0, &stat), ZOK);
    CU_ASSERT_EQUAL(stat.ephemeralOwner, session_of(client));
    CU_ASSERT(stat.ephemeralOwner != before);
    EXPECT(OK, mortise_release(waiter.lease, &detail));
    CU_ASSERT_EQUAL(contenders(name), 0);
    client_end(client);
    client_end(holder);
}

/* ZOOKEEPER-3162: two acquires of one session are two contenders; one waits for the other. */
static void test_same_session_zookeeper_3162(void)
{
    mortise_client *client = client_direct("&handover_max=0");
    const char *name = fresh_name();
    mortise_lease *lease = take(client, name);
    struct waiter waiter = {.other = lease};
    waiter_start(&waiter, client, name);
    CU_ASSERT(wait_contenders(name, 2));
    CU_ASSERT_FALSE(test_count_wait_ms(&waiter.done, 1, 200));
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(waiter_join(&waiter), MORTISE_OK);
    CU_ASSERT_EQUAL(waiter.other_state, MORTISE_STATE_LOST); /* spent */
    CU_ASSERT_EQUAL(mortise_release(waiter.lease, NULL), MORTISE_OK);
    client_end(client);
}

static void block(mortise_lease *lease, mortise_lease_state state, void *gate)
{
    (void)lease;
    (void)state;
    test_count_wait(gate, 1);
}

/* CURATOR-495: a callback of the application that blocks delays no event: others get and lose their locks. */
static void test_blocked_callback_curator_495(void)
{
    mortise_client *client = client_direct("");
    const char *name = fresh_name(), *next = fresh_name();
    char node[128];
    struct test_count gate = TEST_COUNT_INIT;
    mortise_lease *lease;
    EXPECT(OK, mortise_acquire(client, name,
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .on_state = block,
                                               .user_data = &gate),
                               &lease, &detail));
    CU_ASSERT_FATAL(contender(name, 0, node, sizeof node));
    CU_ASSERT(node_delete(name, node));
    CU_ASSERT(wait_state(lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    mortise_lease *second = take(client, next);
    CU_ASSERT_FATAL(contender(next, 0, node, sizeof node));
    CU_ASSERT(node_delete(next, node));
    CU_ASSERT(wait_state(second, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    test_count_add(&gate, 1);
    mortise_release(lease, NULL);
    mortise_release(second, NULL);
    client_end(client);
}

/* ---- away for longer than the session ------------------------------------------------------------------ */

static void test_away_longer_than_the_session(void)
{
    mortise_client *client = client_direct(BRIEF);
    const char *name = fresh_name();
    mortise_lease *lease = take(client, name);
    uint64_t token = mortise_token(lease);
    CU_ASSERT_FATAL(stage_server("freeze", 0));
    CU_ASSERT(mortise_remaining_ms(lease) < TIMEOUT_MS); /* nobody can extend it now */
    CU_ASSERT(wait_state(lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    CU_ASSERT_FATAL(stage_server("thaw", 0));
    EXPECT(LOST, mortise_release(lease, &detail));
    take_in_short_session(client, name, token);
    client_end(client);
}

/* ---- how long a lease is good for ------------------------------------------------------------------------ */

#define WATCHED 2

struct shortest {
    mortise_lease *leases[WATCHED];
    int64_t left_ms;
};

static bool is_lost(void *argument)
{
    struct shortest *shortest = argument;
    bool lost = false;
    for (int i = 0; i < WATCHED; i++) {
        int64_t left_ms = mortise_remaining_ms(shortest->leases[i]);
        if (left_ms < shortest->left_ms)
            shortest->left_ms = left_ms;
        lost |= mortise_state(shortest->leases[i]) != MORTISE_STATE_HELD;
    }
    return lost;
}

/* The servers grant a timeout of 30 s. From the first moment on, and as long as everything works, a lease always has
 * more than a fifth of that left, because its holder needs time to act. */
static void test_never_near_its_end(void)
{
    static const char *const asked[WATCHED] = {"&" LIFE, "&session_timeout=60s"};
    mortise_client *clients[WATCHED];
    struct shortest shortest = {.left_ms = INT64_MAX};
    for (int i = 0; i < WATCHED; i++) {
        clients[i] = client_direct(asked[i]);
        shortest.leases[i] = take(clients[i], fresh_name());
    }
    CU_ASSERT_FALSE(test_poll(is_lost, &shortest, LIFE_MS * 2 / 3));
    printf("(%d ms) ", (int)shortest.left_ms);
    CU_ASSERT(shortest.left_ms > LIFE_MS / 5);
    for (int i = 0; i < WATCHED; i++) {
        CU_ASSERT_EQUAL(mortise_release(shortest.leases[i], NULL), MORTISE_OK);
        client_end(clients[i]);
    }
}

/* ---- who may ---------------------------------------------------------------------------------------------- */

/* @folder  Checked while the name is held: the server removes empty ones. NULL: not checked. */
static mortise_status lock_in(const char *servers, const char *rest, const char *folder,
                              mortise_error *error)
{
    char url[600];
    mortise_client *client;
    mortise_lease *lease;
    snprintf(url, sizeof url, "zookeeper://%s%s", servers, rest);
    mortise_status status = mortise_open(url, &client, error);
    if (status != MORTISE_OK)
        return status;
    status =
        mortise_acquire(client, "x", MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS), &lease, error);
    if (status == MORTISE_OK && folder != NULL)
        CU_ASSERT_EQUAL(zoo_exists(stage.peek, folder, 0, NULL), ZOK);
    if (status == MORTISE_OK)
        status = mortise_release(lease, error);
    mortise_close(client, NULL);
    return status;
}

static mortise_status lock_once(const char *servers, const char *rest, mortise_error *error)
{
    return lock_in(servers, rest, NULL, error);
}

static void test_acl(void)
{
    EXPECT(OK, lock_once(stage.servers, "/secured?auth=digest:me:secret", &detail));
    EXPECT(OK, lock_once(stage.servers, "/secured?auth=digest:me:secret", &detail));
    EXPECT(BACKEND, lock_once(stage.servers, "/secured?auth=digest:me:wrong", &detail));
    CU_ASSERT_PTR_NOT_NULL(strstr(detail.message, "the password is wrong"));
    CU_ASSERT_PTR_NULL(strstr(detail.message, "digest:me"));
    EXPECT(BACKEND, lock_once(stage.servers, "/secured", &detail));
    CU_ASSERT_PTR_NOT_NULL(strstr(detail.message, "set auth"));
    EXPECT(CONFIG, lock_once(stage.servers, "/secured?auth=me", &detail));
    EXPECT(CONFIG, lock_once(stage.servers, "/secured?tls=yes", &detail));
}

/* A client that may create nodes but not delete them: each release reports it, the node is not forgotten, and as soon
 * as nothing else is held the client ends the session to remove it. */
static void test_may_not_delete(void)
{
    struct ACL some = {ZOO_PERM_CREATE | ZOO_PERM_READ, ZOO_ANYONE_ID_UNSAFE};
    struct ACL_vector acl = {1, &some};
    mortise_client *client = client_direct("");
    const char *name = fresh_name(), *kept = fresh_name();
    char path[64];
    mortise_lease *sign = take(client, kept);
    snprintf(path, sizeof path, "/faults/%s", name);
    CU_ASSERT_EQUAL_FATAL(zoo_create(stage.peek, path, "", 0, &acl, 0, NULL, 0), ZOK);
    int64_t session = session_of(client);
    EXPECT(BACKEND, mortise_release(take(client, name), &detail));
    CU_ASSERT_EQUAL(contenders(name), 1);
    CU_ASSERT_EQUAL(session_of(client), session); /* not while there is another lock */
    CU_ASSERT_EQUAL(mortise_state(sign), MORTISE_STATE_HELD);
    EXPECT(OK, mortise_release(sign, &detail));
    CU_ASSERT(wait_contenders(name, 0));
    CU_ASSERT(session_of(client) != session);
    EXPECT(BACKEND, mortise_release(take(client, name), &detail)); /* nothing else is held */
    CU_ASSERT(wait_contenders(name, 0));
    client_end(client);
}

static bool ready(void *client)
{
    return mortise_ping(client, NULL, 0, NULL) == MORTISE_OK;
}

/* What nobody waits for any more is freed at the end too; the leak checker verifies it. */
static void test_closed_while_frozen(void)
{
    mortise_client *client = client_direct("&unreachable_timeout=3s");
    mortise_info info = {.size = sizeof info};
    const char *name = fresh_name();
    CU_ASSERT_FATAL(test_poll(ready, client, TEST_PATIENCE_MS));
    EXPECT(OK, mortise_release(take(client, name), &detail));
    CU_ASSERT_FATAL(stage_server("freeze", 0));
    CU_ASSERT(mortise_inspect(client, name, &info, &detail) != MORTISE_OK);
    client_end(client);
    CU_ASSERT_FATAL(stage_server("thaw", 0));
}

static void test_roots(void)
{
    EXPECT(OK, lock_in(stage.servers, "/a/b/c", "/a/b/c/x", &detail));
    EXPECT(OK, lock_in(stage.servers, "/", "/x", &detail));
    EXPECT(CONFIG, lock_once(stage.servers, "/a/../b", &detail));
}

static void test_first_server_dead(void)
{
    char servers[300];
    snprintf(servers, sizeof servers, "127.0.0.1:1,%s", stage.servers);
    EXPECT(OK, lock_once(servers, "/faults?" LIFE, &detail));
    snprintf(servers, sizeof servers, "localhost:%d", stage.ports[0]);
    EXPECT(OK, lock_once(servers, "/faults?" LIFE, &detail));
    EXPECT(UNREACHABLE, lock_once("127.0.0.1:1", "/faults?unreachable_timeout=300ms", &detail));
    EXPECT(CONFIG, lock_once("127.0.0.1:x", "/faults", &detail));
}

static bool name_is_told(void *argument)
{
    (void)argument;
    EXPECT(UNREACHABLE,
           lock_once("name.invalid:2181", "/faults?unreachable_timeout=500ms", &detail));
    return strstr(detail.message, "name.invalid: ") != NULL;
}

/* A name that could not be looked up is reported as long as there is no connection, and not forever after. */
static void test_first_name_unknown(void)
{
    mortise_info info = {.size = sizeof info};
    mortise_client *client = NULL;
    char url[400];
    CU_ASSERT(test_poll(name_is_told, NULL, TEST_PATIENCE_MS));
    snprintf(url, sizeof url,
             "zookeeper://name.invalid:2181,127.0.0.1:%d/faults?session_timeout=8s"
             "&connect_timeout=300ms&unreachable_timeout=20s",
             stage.proxy.port);
    EXPECT(OK, mortise_open(url, &client, &detail));
    EXPECT(OK, mortise_release(take(client, fresh_name()), &detail));
    CU_ASSERT_FATAL(test_proxy_say(&stage.proxy, "refuse"));
    CU_ASSERT(mortise_inspect(client, "x", &info, &detail) != MORTISE_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(detail.message, "no connection"));
    CU_ASSERT_PTR_NULL(strstr(detail.message, "name.invalid: "));
    CU_ASSERT_FATAL(test_proxy_say(&stage.proxy, "accept"));
    client_end(client);
}

const CU_TestInfo session_tests[] = {
    {"CURATOR-604: two owners", test_two_owners_curator_604},
    {"a client that has nothing rests", test_rests},
    {"queries of a client that rests, and an acquire", test_queries_at_rest},
    {"CURATOR-498: a dying session's node", test_dying_session_curator_498},
    {"ZOOKEEPER-3162: two of one session", test_same_session_zookeeper_3162},
    {"CURATOR-495: a callback that blocks", test_blocked_callback_curator_495},
    {"away for longer than the session", test_away_longer_than_the_session},
    {"never near its end", test_never_near_its_end},
    {"digest ACL", test_acl},
    {"may not delete", test_may_not_delete},
    {"closed while frozen", test_closed_while_frozen},
    {"roots", test_roots},
    {"the first server is dead", test_first_server_dead},
    {"the first name is unknown", test_first_name_unknown},
    CU_TEST_INFO_NULL,
};
