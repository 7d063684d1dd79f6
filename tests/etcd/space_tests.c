/* space_tests.c - the database is full: the no-space alarm. */
#include "stage.h"

#include <string.h>

#define SETTINGS                                                                                   \
    "ttl=2s&connect_timeout=5s&unreachable_timeout=2s" /* refused for so long, a caller gives up */

/* Until the servers refuse it. */
static bool fill(void)
{
    static char value[120001];
    memset(value, 'x', sizeof value - 1);
    for (int i = 0; i < 400; i++)
        if (!CTL("put", "filler", value))
            return true;
    return false;
}

static bool empty(void)
{
    char said[4096], *revision;
    if (!ctl_at(1, (const char *const[]){"get", "filler", "--keys-only", "--write-out=json", NULL},
                said, sizeof said))
        return false;
    revision = strstr(said, "\"revision\":");
    if (revision == NULL)
        return false;
    revision += strlen("\"revision\":");
    revision[strspn(revision, "0123456789")] = '\0';
    return CTL("compaction", revision) && CTL("defrag") && CTL("alarm", "disarm");
}

static bool is_taken(void *argument)
{
    mortise_lease *lease = NULL;
    return mortise_acquire(argument, "free", MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS), &lease,
                           &detail) == MORTISE_OK &&
           mortise_release(lease, &detail) == MORTISE_OK;
}

/* Nobody gets a lock; what is held is held for longer than its ttl, as it is, and is released. */
static void test_no_space(void)
{
    mortise_client *client = client_direct(SETTINGS), *other = client_direct(SETTINGS);
    const char *name = fresh_name();
    mortise_lease *lease = take(client, name), *none = NULL;
    CHECK(fill());
    EXPECT(BACKEND, mortise_acquire(client, "free", MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS),
                                    &none, &detail));
    SAYS("disarm the alarm");
    EXPECT(BACKEND, mortise_acquire(other, "free", MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS),
                                    &none, &detail));
    EXPECT(BACKEND, mortise_downgrade(lease, &detail));
    SAYS("disarm the alarm");
    let_pass(3500);
    SAFE(mortise_state(lease) == MORTISE_STATE_HELD);
    give_back(lease);
    CHECK(wait_contenders(client, name, 0));
    CHECK(empty());
    CHECK(test_poll(is_taken, client, TEST_PATIENCE_MS));
    CHECK(test_poll(is_taken, other, TEST_PATIENCE_MS));
    CHECK(wait_contenders(client, "free", 0));
    client_end(client);
    client_end(other);
}

struct key_place {
    char key[256];
    char lease[32]; /* to which it was attached before */
};

static bool has_moved(void *argument)
{
    const struct key_place *place = argument;
    char lease[32];
    return lease_of_key(place->key, lease, sizeof lease) && strcmp(lease, place->lease) != 0;
}

/* What is held before the leader changes cannot be held on: the next leader grants no lease to which its key could be moved. */
static void test_another_leader(void)
{
    mortise_client *client = client_direct("ttl=6s&unreachable_timeout=2s");
    const char *name = fresh_name();
    mortise_lease *lease = take(client, name);
    struct key_place place = {.key = ""};
    CHECK(key_of_name(name, "", place.key, sizeof place.key));
    CHECK(lease_of_key(place.key, place.lease, sizeof place.lease));
    CHECK(stage_server("kill", 1));
    CHECK(stage_server("start", 1));
    CHECK(test_poll(has_moved, &place, TEST_PATIENCE_MS)); /* there is space */
    CHECK(fill());
    CHECK(wait_state(lease, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    CHECK(stage_server("kill", 1));
    CHECK(stage_server("start", 1));
    CHECK(wait_state(lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    EXPECT(LOST, mortise_release(lease, &detail));
    CHECK(empty());
    CHECK(test_poll(is_taken, client, TEST_PATIENCE_MS));
    CHECK(wait_contenders(client, name, 0));
    client_end(client);
}

const CU_TestInfo space_tests[] = {
    {"the no-space alarm", test_no_space},
    {"the no-space alarm, and another leader", test_another_leader},
    CU_TEST_INFO_NULL,
};
