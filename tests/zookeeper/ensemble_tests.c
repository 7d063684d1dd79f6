/* ensemble_tests.c - three servers: the leader is killed at each stage of a lock's life, a follower is stopped or
 * lags behind, all of them are down. */
#include "stage.h"

#include <stdio.h>
#include <string.h>

static bool has_leader(void *argument)
{
    (void)argument;
    return stage_leader() > 0;
}

static bool peek_works(void *argument)
{
    struct Stat stat;
    (void)argument;
    return zoo_exists(stage.peek, "/", 0, &stat) == ZOK;
}

/* All three are up, and one leads. */
static void restore(void)
{
    CU_ASSERT_FATAL(stage_server("start", 0));
    CU_ASSERT_FATAL(test_poll(has_leader, NULL, TEST_PATIENCE_MS));
    CU_ASSERT_FATAL(test_poll(peek_works, NULL, TEST_PATIENCE_MS));
}

static void kill_leader(void)
{
    int leader = stage_leader();
    CU_ASSERT_FATAL(leader > 0);
    CU_ASSERT_FATAL(stage_server("kill", leader));
}

/* The session outlives its leader; the lease was not lost, or the successor came after it. */
static void test_leader_killed_while_held(void)
{
    mortise_client *client = client_direct(""), *other = client_direct("");
    const char *name = fresh_name();
    mortise_lease *lease = take(client, name);
    uint64_t token = mortise_token(lease);
    struct waiter waiter = {.other = lease};
    waiter_start(&waiter, other, name);
    CU_ASSERT(wait_contenders(name, 2));
    kill_leader();
    CU_ASSERT(test_poll(has_leader, NULL, TEST_PATIENCE_MS));
    if (!test_count_wait_ms(&waiter.done, 1, 100)) {
        mortise_status status = mortise_release(lease, &detail);
        CU_ASSERT(status == MORTISE_OK || status == MORTISE_LOST);
    }
    CU_ASSERT_EQUAL(waiter_join(&waiter), MORTISE_OK);
    CU_ASSERT_EQUAL(waiter.other_state, MORTISE_STATE_LOST); /* or spent */
    CU_ASSERT(mortise_token(waiter.lease) > token);
    mortise_status status = mortise_release(waiter.lease, &detail);
    CU_ASSERT(status == MORTISE_OK || status == MORTISE_LOST);
    restore();
    CU_ASSERT(wait_contenders(name, 0));
    client_end(client);
    client_end(other);
}

static void test_leader_killed_while_asked(void)
{
    mortise_client *client = client_direct("");
    const char *name = fresh_name();
    CU_ASSERT_EQUAL(mortise_release(take(client, name), NULL), MORTISE_OK);
    int leader = stage_leader();
    CU_ASSERT_FATAL(leader > 0);
    CU_ASSERT_FATAL(stage_server("freeze", leader)); /* the create is sent, and not answered */
    struct waiter waiter = {0};
    waiter_start(&waiter, client, name);
    test_count_wait_ms(&waiter.done, 1, 100); /* in vain, if the others were not quick to elect */
    CU_ASSERT_FATAL(stage_server("kill", leader));
    CU_ASSERT_EQUAL(waiter_join(&waiter), MORTISE_OK);
    CU_ASSERT(test_poll(peek_works, NULL, TEST_PATIENCE_MS));
    CU_ASSERT(wait_contenders(name, 1));
    EXPECT(OK, mortise_release(waiter.lease, &detail));
    restore();
    CU_ASSERT(wait_contenders(name, 0));
    client_end(client);
}

static void test_leader_killed_while_released(void)
{
    mortise_client *client = client_direct("");
    const char *name = fresh_name();
    mortise_lease *lease = take(client, name);
    int leader = stage_leader();
    CU_ASSERT_FATAL(leader > 0);
    CU_ASSERT_FATAL(stage_server("freeze", leader));
    CU_ASSERT_EQUAL(mortise_release_nowait(lease, NULL), MORTISE_OK);
    CU_ASSERT_FATAL(stage_server("kill", leader));
    CU_ASSERT(test_poll(peek_works, NULL, TEST_PATIENCE_MS));
    CU_ASSERT(wait_contenders(name, 0));
    restore();
    client_end(client);
}

static bool stop_own_follower(void)
{
    int leader = stage_leader(), follower = leader == 1 ? 2 : 1, third = 6 - leader - follower;
    mortise_client *client = client_at(follower, BRIEF), *other = client_at(third, "");
    const char *name = fresh_name();
    mortise_lease *lease = take(client, name);
    struct waiter waiter = {.other = lease};
    waiter_start(&waiter, other, name);
    bool held = held_among(name, 2, lease);
    if (held) {
        CU_ASSERT_FATAL(stage_server("freeze", follower));
        CU_ASSERT_EQUAL(waiter_join(&waiter), MORTISE_OK);
        CU_ASSERT_EQUAL(waiter.other_state, MORTISE_STATE_LOST);
        CU_ASSERT_FATAL(stage_server("thaw", follower));
    } else
        CU_ASSERT_EQUAL(waiter_join(&waiter), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    CU_ASSERT_EQUAL(mortise_release(waiter.lease, NULL), MORTISE_OK);
    client_end(client);
    client_end(other);
    return held;
}

/* The client's own server is a follower that is stopped: its leases end at their deadlines, at the latest
 * when the servers let the next in. */
static void test_own_follower_stopped(void)
{
    bool seen = false;
    for (int tries = 0; tries < TRIES && !seen; tries++)
        seen = stop_own_follower();
    CU_ASSERT(seen);
    restore();
}

static void test_all_away(void)
{
    mortise_client *client = client_direct(BRIEF);
    const char *name = fresh_name();
    mortise_lease *lease = take(client, name);
    uint64_t token = mortise_token(lease);
    CU_ASSERT_FATAL(stage_server("kill", 0));
    CU_ASSERT(mortise_remaining_ms(lease) < TIMEOUT_MS); /* nobody can prolong it now */
    CU_ASSERT(wait_state(lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    restore();
    EXPECT(LOST, mortise_release(lease, &detail));
    take_in_short_session(client, name, token);
    client_end(client);
}

/* One lock, clients at all three servers: what one of them gave back the next one sees, though its server may
 * lag. */
static void test_clients_everywhere(void)
{
    mortise_client *clients[3];
    const char *name = fresh_name();
    uint64_t token = 0;
    for (int i = 0; i < 3; i++)
        clients[i] = client_at(i + 1, "");
    for (int i = 0; i < 60; i++) {
        mortise_lease *lease = NULL, *refused = NULL;
        EXPECT(OK, mortise_acquire(clients[i % 3], name,
                                   MORTISE_OPTIONS(.wait_ms = i < 6 ? TEST_PATIENCE_MS : 0), &lease,
                                   &detail));
        CU_ASSERT(mortise_token(lease) > token);
        token = mortise_token(lease);
        EXPECT(BUSY, mortise_acquire(clients[(i + 1) % 3], name, MORTISE_OPTIONS(.wait_ms = 0),
                                     &refused, &detail));
        mortise_info info = {.size = sizeof info};
        EXPECT(OK, mortise_inspect(clients[(i + 2) % 3], name, &info, &detail));
        CU_ASSERT_EQUAL(info.token, token);
        EXPECT(OK, mortise_release(lease, &detail));
    }
    for (int i = 0; i < 3; i++)
        client_end(clients[i]);
}

const CU_TestInfo ensemble_tests[] = {
    {"clients everywhere", test_clients_everywhere},
    {"leader killed while held", test_leader_killed_while_held},
    {"leader killed while asked", test_leader_killed_while_asked},
    {"leader killed while released", test_leader_killed_while_released},
    {"the own follower is stopped", test_own_follower_stopped},
    {"all are away", test_all_away},
    CU_TEST_INFO_NULL,
};
