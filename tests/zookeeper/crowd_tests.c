/* crowd_tests.c - very many waiters: in one process for one name, and for more names than servers restore watches for
 * after a reconnection. */
#include "stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOCAL 1000
#define NAMES 2000
#define NAME_LENGTH                                                                                \
    500 /* so many watches would be set again by a request of more than a megabyte */

struct crowd {
    struct test_count granted, failed;
    int most; /* contenders at any grant */
    const char *name;
};

static void on_turn(mortise_status status, mortise_lease *lease, const mortise_error *error,
                    void *user_data)
{
    struct crowd *crowd = user_data;
    (void)error;
    if (status == MORTISE_OK && crowd->name) {
        int count = contenders(crowd->name);
        crowd->most = count > crowd->most ? count : crowd->most;
    }
    if (status == MORTISE_OK)
        status = mortise_release_nowait(lease, NULL);
    test_count_add(status == MORTISE_OK ? &crowd->granted : &crowd->failed, 1);
}

static bool wait_all(struct crowd *crowd, int count)
{
    int seen = -1;
    while (test_count_get(&crowd->granted) > seen && seen < count) {
        seen = test_count_get(&crowd->granted); /* as long as it goes on */
        test_count_wait(&crowd->granted, seen + 100 < count ? seen + 100 : count);
    }
    return test_count_get(&crowd->granted) == count && test_count_get(&crowd->failed) == 0;
}

/* CURATOR-716: a thousand who wait in one process are one contender in the ensemble, while they wait and while they
 * are served one after the other; so somebody of another process waits for one of them, not for all. */
static void test_thousand_local_waiters_curator_716(void)
{
    mortise_client *client = client_direct(""), *other = client_direct(""),
                   *third = client_direct("");
    const char *name = fresh_name();
    struct crowd crowd = {TEST_COUNT_INIT, TEST_COUNT_INIT, 0, name};
    struct waiter waiter = {0};
    mortise_lease *lease = take(other, name);
    for (int i = 0; i < LOCAL; i++)
        EXPECT(OK, mortise_acquire_async(client, name, MORTISE_OPTIONS(.wait_ms = -1), on_turn,
                                         &crowd, NULL, &detail));
    CU_ASSERT(wait_contenders(name, 2));
    waiter_start(&waiter, third, name); /* behind them */
    CU_ASSERT(wait_contenders(name, 3));
    CU_ASSERT_FALSE(test_count_wait_ms(&waiter.done, 1, 200));
    CU_ASSERT_EQUAL(contenders(name), 3);
    EXPECT(OK, mortise_release(lease, &detail));
    CU_ASSERT_EQUAL(waiter_join(&waiter), MORTISE_OK);
    int served = test_count_get(&crowd.granted);
    CU_ASSERT(served < LOCAL / 4); /* not behind all of them */
    EXPECT(OK, mortise_release(waiter.lease, &detail));
    CU_ASSERT(wait_all(&crowd, LOCAL));
    printf("(%d before, %d nodes) ", served, crowd.most);
    CU_ASSERT(crowd.most <= 3); /* the holder's, its client's next, the third client's */
    CU_ASSERT(wait_contenders(name, 0));
    client_end(client);
    client_end(other);
    client_end(third);
}

static void name_of(int i, char name[NAME_LENGTH + 1])
{
    memset(name, 'n', NAME_LENGTH);
    name[NAME_LENGTH] = '\0';
    name[snprintf(name, NAME_LENGTH, "%d", i)] = '-';
}

static void on_held(mortise_status status, mortise_lease *lease, const mortise_error *error,
                    void *user_data)
{
    struct crowd *crowd = user_data;
    (void)lease; /* given back when its client is closed */
    (void)error;
    test_count_add(status == MORTISE_OK ? &crowd->granted : &crowd->failed, 1);
}

static void ask_for_all(mortise_client *client, mortise_acquire_callback acquired,
                        struct crowd *crowd)
{
    char name[NAME_LENGTH + 1];
    for (int i = 0; i < NAMES; i++) {
        name_of(i, name);
        EXPECT(OK, mortise_acquire_async(client, name, MORTISE_OPTIONS(.wait_ms = -1), acquired,
                                         crowd, NULL, &detail));
    }
}

static bool last_has_waiter(void *argument)
{
    char name[NAME_LENGTH + 1];
    (void)argument;
    name_of(NAMES - 1, name);
    return contenders(name) == 2;
}

static bool is_back(void *client)
{
    return mortise_ping(client, NULL, 0, NULL) == MORTISE_OK;
}

/* A client that waits for thousands of names comes back after a cut, with the session that it had, and is told of every
 * one of them. */
static void test_more_watches_than_fit(void)
{
    mortise_client *holder = client_direct("&ttl=60s"), *client = client_behind_proxy("");
    struct crowd held = {TEST_COUNT_INIT, TEST_COUNT_INIT, 0, NULL},
                 crowd = {TEST_COUNT_INIT, TEST_COUNT_INIT, 0, NULL};
    ask_for_all(holder, on_held, &held);
    CU_ASSERT_FATAL(wait_all(&held, NAMES));
    mortise_lease *sign = take(client, fresh_name());
    ask_for_all(client, on_turn, &crowd);
    CU_ASSERT_FATAL(test_poll(last_has_waiter, NULL, 4 * TEST_PATIENCE_MS));
    CU_ASSERT_FATAL(test_proxy_say(&stage.proxy, "cut"));
    CU_ASSERT(test_poll(is_back, client, TEST_PATIENCE_MS));
    client_end(holder);
    CU_ASSERT(wait_all(&crowd, NAMES));
    CU_ASSERT_EQUAL(mortise_release(sign, NULL), MORTISE_OK);
    client_end(client);
}

const CU_TestInfo crowd_tests[] = {
    {"CURATOR-716: a thousand local waiters", test_thousand_local_waiters_curator_716},
    {"more watches than fit", test_more_watches_than_fit},
    CU_TEST_INFO_NULL,
};
