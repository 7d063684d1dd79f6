/* permit_tests.c - callers give different numbers of permits: who is refused, and who is not. One server. */
#include "stage.h"

#include <stdio.h>

static bool was_hit(void *argument)
{
    (void)argument;
    return middle_hits() > 0;
}

/* A contender with that number of permits, which no client has. */
static void put_key(const char *name, uint32_t permits, char key[200])
{
    snprintf(key, 200, "mortise/%s/s%u-0123456789abcdef0123456789abcdef", name, permits);
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
    put_key(asker.name, 3, key);
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

/* Starts a caller as the second in the queue. The answer that shows it the first one is held. */
static void start_second(struct waiter *waiter, mortise_client *client, mortise_client *other,
                         const char *name)
{
    middle_rule(&(struct rule){.method = "KV/Txn", .contains = name, .fault = HOLD, .times = 1});
    waiter_start(waiter, client, name);
    CHECK(test_poll(was_hit, NULL, TEST_PATIENCE_MS));
    CHECK(wait_contenders(other, name, 2));
}

/* The second and the third have different numbers: two such never hold together. */
static void end_both(struct waiter *second, struct waiter *third, bool leaves)
{
    middle_clear();
    CHECK(waiter_join(second) == (leaves ? MORTISE_OK : MORTISE_INVALID));
    CHECK(waiter_join(third) == (leaves ? MORTISE_INVALID : MORTISE_OK));
    SAFE(second->lease == NULL || third->lease == NULL);
    give_back(second->lease);
    give_back(third->lease);
}

/* Somebody holds the name with `theirs`, a caller with `others` is in the queue, and behind it is one with `theirs`. The
 * holder `leaves`: then the second gets its turn, and the third is refused; or it stays, and the second is refused. */
static void three_callers(uint32_t theirs, uint32_t others, bool leaves)
{
    mortise_client *client = client_behind_middle("ttl=30s"), *other = client_direct("ttl=30s");
    struct waiter second = {.mode = MORTISE_SHARED, .permits = others},
                  third = {.mode = MORTISE_SHARED, .permits = theirs};
    const char *name = fresh_name();
    mortise_lease *lease = NULL;
    char key[200];
    give_back(take(client, fresh_name()));
    put_key(name, theirs, key);
    start_second(&second, client, other, name);
    EXPECT(BUSY,
           mortise_acquire(other, name,
                           MORTISE_OPTIONS(.wait_ms = 0, .mode = MORTISE_SHARED, .permits = theirs),
                           &lease, NULL));
    give_back(lease);
    waiter_start(&third, other, name);
    CHECK(wait_contenders(other, name, 3));
    if (leaves)
        CHECK(CTL("del", key));
    end_both(&second, &third, leaves);
    if (!leaves)
        CHECK(CTL("del", key));
    CHECK(wait_contenders(other, name, 0));
    client_end(client);
    client_end(other);
}

static void test_three_callers(void)
{
    three_callers(0, 2, true);
    three_callers(20, 2, false);
}

/* The holder was exclusive, and the caller with permits came before the reader. */
static void test_behind_downgraded(void)
{
    mortise_client *client = client_behind_middle("ttl=30s"), *other = client_direct("ttl=30s"),
                   *writer = client_direct("ttl=30s");
    struct waiter second = {.mode = MORTISE_SHARED, .permits = 2}, third = {.mode = MORTISE_SHARED};
    const char *name = fresh_name();
    give_back(take(client, fresh_name()));
    mortise_lease *held = take(writer, name);
    start_second(&second, client, writer, name);
    EXPECT(OK, mortise_downgrade(held, &detail));
    waiter_start(&third, other, name);
    CHECK(wait_contenders(writer, name, 3));
    give_back(held);
    end_both(&second, &third, true);
    CHECK(wait_contenders(writer, name, 0));
    client_end(client);
    client_end(other);
    client_end(writer);
}

const CU_TestInfo permit_tests[] = {
    {"another number of permits", test_stays},
    {"another number of permits, about to leave", test_about_to_leave},
    {"another number of permits, a third caller", test_three_callers},
    {"another number of permits, behind a downgraded lease", test_behind_downgraded},
    CU_TEST_INFO_NULL,
};
