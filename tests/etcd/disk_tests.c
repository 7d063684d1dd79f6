/* disk_tests.c - the disk of the server is slow, very slow, or fails (slow_disk.c). One server. */
#include "stage.h"

#include <stdio.h>

/* From now on; "": as it is. */
static void disk(const char *what)
{
    char path[300];
    snprintf(path, sizeof path, "%s/1.disk", stage.folder);
    CHECK(test_file_write(path, what));
}

/* Writes take long, but not too long: all goes on. */
static void test_slow(void)
{
    mortise_client *client = client_direct("ttl=4s&timeout=5s");
    mortise_lease *kept = take(client, fresh_name());
    uint64_t token = 0;
    disk("100");
    for (int i = 0; i < 5; i++) {
        mortise_lease *lease = take(client, fresh_name());
        SAFE(mortise_token(lease) > token);
        token = mortise_token(lease);
        give_back(lease);
    }
    CHECK(wait_state(kept, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    disk("");
    give_back(kept);
    client_end(client);
}

/* No write is answered in time: callers give up, what is held is LOST at its deadline at the latest, and nothing is left afterwards. */
static void test_very_slow(void)
{
    mortise_client *client =
        client_direct("ttl=2s&timeout=300ms&connect_timeout=2s&unreachable_timeout=2s");
    mortise_client *other = client_direct("ttl=2s");
    const char *name = fresh_name(), *wanted = fresh_name();
    mortise_lease *lease = take(client, name), *none = NULL;
    uint64_t token = mortise_token(lease);
    disk("60000");
    mortise_status status =
        mortise_acquire(client, wanted, MORTISE_OPTIONS(.wait_ms = 1000), &none, &detail);
    CHECK(status == MORTISE_INDETERMINATE || status == MORTISE_UNREACHABLE ||
          status == MORTISE_TIMEDOUT);
    CHECK(wait_state(lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    disk("");
    mortise_release(lease, NULL);
    lease = take(other, name);
    SAFE(mortise_token(lease) > token);
    CHECK(wait_contenders(other, wanted, 0));
    give_back(lease);
    client_end(other);
    client_end(client);
}

/* The server ends rather than to answer what it has not written. Started again on a good disk it knows what it has answered. */
static void test_failing(void)
{
    mortise_client *holder = client_direct("ttl=60s"), *client = client_direct("ttl=60s");
    const char *name = fresh_name();
    struct waiter waiter = {0};
    mortise_lease *lease = take(holder, name);
    uint64_t token = mortise_token(lease);
    disk("fail");
    waiter_start(&waiter, client, name); /* its write is the one that fails */
    CHECK(wait_state(lease, MORTISE_STATE_SUSPECT, TEST_PATIENCE_MS)); /* the server has ended */
    disk("");
    stage_server("kill", 1); /* if anything is left of it */
    CHECK(stage_server("start", 1));
    CHECK(wait_contenders(holder, name, 2));
    CHECK(wait_state(lease, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    CHECK(test_count_get(&waiter.done) == 0);
    give_back(lease);
    CHECK(waiter_join(&waiter) == MORTISE_OK);
    SAFE(mortise_token(waiter.lease) > token);
    give_back(waiter.lease);
    client_end(client);
    client_end(holder);
}

const CU_TestInfo disk_tests[] = {
    {"slow", test_slow},
    {"very slow", test_very_slow},
    {"failing", test_failing},
    CU_TEST_INFO_NULL,
};
