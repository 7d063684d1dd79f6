/* stream_tests.c - each call takes a number of its connection, and cannot be started when there is none left, or no memory. This
 * program has functions of its own in place of two of libnghttp2: the driver's, too. */
#include "stage.h"

#include <dlfcn.h>
#include <limits.h>
#include <nghttp2/nghttp2.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define NUMBER_LAST INT32_MAX
#define NUMBER_OLD ((1 << 30) + 1)

/* The driver's newest connection: middle.c makes its own ones with another function. */
static _Atomic(nghttp2_session *) newest;
static atomic_int connections;
static atomic_int jumps_to;         /* its next call has this number; 0: the next one */
static atomic_int passes = INT_MAX; /* after so many calls there is no memory for one */

static void real(const char *name, void *function, size_t size)
{
    void *found = dlsym(RTLD_NEXT, name);
    memcpy(function, &found, size);
}

__attribute__((visibility("default"))) int
nghttp2_session_client_new2(nghttp2_session **session, const nghttp2_session_callbacks *callbacks,
                            void *user, const nghttp2_option *option)
{
    int (*make)(nghttp2_session **, const nghttp2_session_callbacks *, void *,
                const nghttp2_option *);
    real("nghttp2_session_client_new2", &make, sizeof make);
    int error = make(session, callbacks, user, option);
    if (error == 0)
        atomic_store(&newest, *session);
    atomic_fetch_add(&connections, 1);
    return error;
}

__attribute__((visibility("default"))) int32_t
nghttp2_submit_request(nghttp2_session *session, const nghttp2_priority_spec *priority,
                       const nghttp2_nv *headers, size_t count, const nghttp2_data_provider *data,
                       void *user)
{
    int32_t (*submit)(nghttp2_session *, const nghttp2_priority_spec *, const nghttp2_nv *, size_t,
                      const nghttp2_data_provider *, void *);
    real("nghttp2_submit_request", &submit, sizeof submit);
    if (session == atomic_load(&newest)) {
        int number = atomic_exchange(&jumps_to, 0);
        if (number != 0)
            nghttp2_session_set_next_stream_id(session, number);
        if (atomic_load(&passes) != INT_MAX && atomic_fetch_sub(&passes, 1) <= 0)
            return NGHTTP2_ERR_NOMEM;
    }
    return submit(session, priority, headers, count, data, user);
}

/* ---- numbers ------------------------------------------------------------------------------------------------ */

static bool is_another(void *argument)
{
    const int *before = argument;
    return atomic_load(&connections) > *before;
}

/* Half of the numbers are used up. When nothing is on its way there is another connection, once. */
static void test_old(void)
{
    mortise_client *client = client_direct("ttl=4s");
    mortise_lease *held = take(client, fresh_name());
    int before = atomic_load(&connections);
    atomic_store(&jumps_to, NUMBER_OLD);
    give_back(take(client, fresh_name()));
    CHECK(test_poll(is_another, &before, TEST_PATIENCE_MS));
    for (int i = 0; i < 10; i++)
        give_back(take(client, fresh_name()));
    CHECK(wait_state(held, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    CHECK(atomic_load(&connections) == before + 1);
    give_back(held);
    client_end(client);
}

static bool was_hit(void *argument)
{
    (void)argument;
    return middle_hits() > 0;
}

/* A call is on its way until all numbers are used up: the connection is lost, and all goes on. left: how many there are. */
static void spend(int left)
{
    struct waiter waiter = {0};
    mortise_client *client = client_behind_middle("ttl=4s");
    mortise_lease *held = take(client, fresh_name());
    const char *name = fresh_name();
    int before = atomic_load(&connections);
    middle_rule(&(struct rule){.method = "KV/Txn", .contains = name, .fault = HOLD, .times = 1});
    waiter_start(&waiter, client, name);
    CHECK(test_poll(was_hit, NULL, TEST_PATIENCE_MS));
    atomic_store(&jumps_to, NUMBER_LAST - 2 * (left - 1));
    if (left == 1) {
        EXPECT(OK, mortise_ping(client, NULL, 0, &detail));
        EXPECT(OK, mortise_downgrade(held, &detail));
    }
    for (int i = 0; i < 10; i++)
        give_back(take(client, fresh_name()));
    CHECK(atomic_load(&connections) == before + 1);
    CHECK(waiter_join(&waiter) == MORTISE_OK);
    CHECK(middle_clear() == 1);
    CHECK(wait_state(held, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    give_back(waiter.lease);
    give_back(held);
    client_end(client);
}

static void test_spent(void)
{
    spend(4); /* the next would be an acquire, */
    spend(5); /* or a release, */
    spend(1); /* or a downgrade */
}

/* ---- memory -------------------------------------------------------------------------------------------------- */

/* There is no memory for the write of a query, which fails and is gone with that. */
static void test_no_memory(void)
{
    uint64_t version = 0;
    const char *name = fresh_name();
    mortise_client *client = client_direct("ttl=30s");
    mortise_lease *lease = take(client, name);
    atomic_store(&passes, 0);
    EXPECT(NOMEM, mortise_record_write(client, name, "1", 1, &version, &detail));
    atomic_store(&passes, 1); /* the read of the holders */
    EXPECT(NOMEM, mortise_break(client, name, mortise_token(lease), &detail));
    atomic_store(&passes, INT_MAX);
    EXPECT(OK, mortise_record_write(client, name, "1", 1, &version, &detail));
    SAFE(mortise_state(lease) != MORTISE_STATE_LOST);
    give_back(lease);
    client_end(client);
}

const CU_TestInfo stream_tests[] = {
    {"a connection is old", test_old},
    {"a connection is spent", test_spent},
    {"no memory for a write", test_no_memory},
    CU_TEST_INFO_NULL,
};
