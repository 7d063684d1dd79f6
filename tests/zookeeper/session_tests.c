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

/* ---- back within the session ---------------------------------------------------------------------------- */

/* The server is killed, with SIGKILL, and is back before the lease ends: all nodes are there, the lease is held, and the
 * waiters get the lock in their order. False: it was not back in time, because the machine is busy with something else. */
static bool killed_and_back(void)
{
    static const char settings[] = "&session_timeout=30s&tick=200ms&ttl=60s";
    mortise_client *holder = client_direct(settings), *clients[2];
    struct waiter waiters[2] = {{.wait_ms = 0}, {.wait_ms = 0}};
    const char *name = fresh_name();
    char before[3][128], after[128];
    mortise_lease *lease = take(holder, name);
    uint64_t token = mortise_token(lease);
    for (int i = 0; i < 2; i++) {
        clients[i] = client_direct(settings);
        waiter_start(&waiters[i], clients[i], name);
        CU_ASSERT(wait_contenders(name, i + 2));
    }
    for (int n = 0; n < 3; n++)
        CU_ASSERT_FATAL(contender(name, n, before[n], sizeof before[n]));
    int64_t deadline_ms = deadline_of(lease);
    CU_ASSERT_FATAL(stage_server("kill", 0) && stage_server("start", 0));
    CU_ASSERT(test_poll(ready, holder, TEST_PATIENCE_MS));
    bool in_time = test_now_ms() + 500 < deadline_ms;
    if (in_time) {
        CU_ASSERT(wait_state(lease, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
        for (int n = 0; n < 3; n++)
            CU_ASSERT(contender(name, n, after, sizeof after) && strcmp(after, before[n]) == 0);
        CU_ASSERT_EQUAL(test_count_get(&waiters[0].done) + test_count_get(&waiters[1].done), 0);
        EXPECT(OK, mortise_release(lease, &detail));
    }
    for (int i = 0; i < 2; i++) {
        if (!in_time)
            client_end(clients[i]); /* they may wait in any order */
        mortise_status status = waiter_join(&waiters[i]);
        if (!in_time)
            continue;
        CU_ASSERT_EQUAL(status, MORTISE_OK);
        CU_ASSERT_EQUAL(test_count_get(&waiters[1].done), i);
        CU_ASSERT(mortise_token(waiters[i].lease) > token);
        token = mortise_token(waiters[i].lease);
        EXPECT(OK, mortise_release(waiters[i].lease, &detail));
        client_end(clients[i]);
    }
    client_end(holder);
    return in_time;
}

static void test_killed_within_the_session(void)
{
    int tries = 1;
    while (tries <= TRIES && !killed_and_back())
        tries++;
    CU_ASSERT(tries <= TRIES); /* else it was not back in time each time */
}

/* ---- left ------------------------------------------------------------------------------------------------ */

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

static bool reports_the_name(void *argument)
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
    CU_ASSERT(test_poll(reports_the_name, NULL, TEST_PATIENCE_MS));
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
    {"CURATOR-498: a dying session's node", test_dying_session_curator_498},
    {"ZOOKEEPER-3162: two of one session", test_same_session_zookeeper_3162},
    {"CURATOR-495: a callback that blocks", test_blocked_callback_curator_495},
    {"away for longer than the session", test_away_longer_than_the_session},
    {"killed, and back within the session", test_killed_within_the_session},
    {"digest ACL", test_acl},
    {"may not delete", test_may_not_delete},
    {"closed while frozen", test_closed_while_frozen},
    {"roots", test_roots},
    {"the first server is dead", test_first_server_dead},
    {"the first name is unknown", test_first_name_unknown},
    CU_TEST_INFO_NULL,
};
