/* permit_tests.c - callers give different numbers of permits: who is refused, and who is not. One server. */
#include "stage.h"

#include <stdio.h>

#define THREE "s3-0123456789abcdef0123456789abcdef"

static bool was_hit(void *argument)
{
    (void)argument;
    return middle_hits() > 0;
}

static void key_with_three(const char *name, char key[200])
{
    snprintf(key, 200, "mortise/%s/" THREE, name);
    CHECK(CTL("put", key, "mortise/1 0 1 0123456789abcdef0123456789abcdef\nhost\n1\nprogram"));
}

struct asker {
    pthread_t thread;
    mortise_client *client;
    const char *name;
    int64_t wait_ms;
    mortise_status status;
    mortise_lease *lease;
};

static void *asker_main(void *argument)
{
    struct asker *asker = argument;
    asker->status = mortise_acquire(
        asker->client, asker->name,
        MORTISE_OPTIONS(.wait_ms = asker->wait_ms, .mode = MORTISE_SHARED, .permits = 2),
        &asker->lease, NULL);
    return NULL;
}

/* Asks for one of two permits, while the first key of the name is one with three. */
static mortise_status asked(mortise_client *client, int64_t wait_ms, bool leaves)
{
    struct asker asker = {.client = client, .name = fresh_name(), .wait_ms = wait_ms};
    char key[200];
    key_with_three(asker.name, key);
    middle_rule(
        &(struct rule){.method = "KV/Txn", .contains = asker.name, .fault = HOLD, .times = 1});
    pthread_create(&asker.thread, NULL, asker_main, &asker);
    CHECK(test_poll(was_hit, NULL, TEST_PATIENCE_MS));
    if (leaves)
        CHECK(CTL("del", key));
    middle_clear();
    pthread_join(asker.thread, NULL);
    give_back(asker.lease);
    if (!leaves)
        CHECK(CTL("del", key));
    CHECK(wait_contenders(client, asker.name, 0));
    return asker.status;
}

/* The key that an acquire has seen may be that of a caller that was refused, and is about to go: nobody holds the name with
 * three. */
static void test_about_to_leave(void)
{
    mortise_client *client = client_behind_middle("ttl=30s");
    give_back(take(client, fresh_name())); /* it has a session: its next call is the acquire */
    CHECK(asked(client, TEST_PATIENCE_MS, true) == MORTISE_OK);
    CHECK(asked(client, 0, true) == MORTISE_OK);
    client_end(client);
}

static void test_stays(void)
{
    mortise_client *client = client_behind_middle("ttl=30s");
    give_back(take(client, fresh_name()));
    CHECK(asked(client, TEST_PATIENCE_MS, false) == MORTISE_INVALID);
    CHECK(asked(client, 0, false) == MORTISE_INVALID);
    client_end(client);
}

const CU_TestInfo permit_tests[] = {
    {"another number of permits", test_stays},
    {"another number of permits, about to leave", test_about_to_leave},
    CU_TEST_INFO_NULL,
};
