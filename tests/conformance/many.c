/* many.c - several names in one call: all or none, whoever else wants some of them, and also if the server stops answering
 * in the middle. */
#include "conformance.h"

#include <stdatomic.h>

enum { NAMES = 3 };

static void fresh_names(const char **names)
{
    for (int i = 0; i < NAMES; i++)
        names[i] = fresh_name();
}

static mortise_status acquire_all(mortise_client *client, const char *const *names, int64_t wait_ms,
                                  mortise_lease **leases)
{
    return mortise_acquire_many(client, names, NAMES,
                                MORTISE_OPTIONS(.wait_ms = wait_ms, .ttl_ms = 60000), leases,
                                &detail);
}

static void test_all_or_none(void)
{
    mortise_client *client = open_client(NULL), *other = open_client(NULL);
    const char *names[NAMES], *twice[NAMES];
    mortise_lease *leases[NAMES];
    fresh_names(names);
    for (int taken = 0; taken < NAMES; taken++) {
        mortise_lease *lease = take(other, names[taken], 60000);
        EXPECT(BUSY, acquire_all(client, names, 0, leases));
        EXPECT(TIMEDOUT, acquire_all(client, names, 300, leases));
        for (int i = 0; i < NAMES; i++) {
            CU_ASSERT_PTR_NULL(leases[i]);
            if (i != taken)
                give(take(other, names[i], 0));
        }
        give(lease);
    }
    EXPECT(OK, acquire_all(client, names, TEST_PATIENCE_MS, leases));
    for (int i = 0; i < NAMES; i++)
        SAFE(try_once(other, names[i]) == MORTISE_BUSY);
    EXPECT(OK, mortise_release_many(leases, NAMES, &detail));
    for (int i = 0; i < NAMES; i++)
        EXPECT(OK, try_once(other, names[i]));
    for (int i = 0; i < NAMES; i++)
        twice[i] = names[i / 2];
    EXPECT(INVALID, acquire_all(client, twice, 0, leases));
    close_client(client);
    close_client(other);
}

enum { THREADS = 4, PASSES = 8 };

struct crowd {
    mortise_client *clients[2];
    const char *names[NAMES];
    atomic_int turn, inside, overlaps, failures;
};

/* Each gives the names in another order. */
static void *contend(void *argument)
{
    struct crowd *crowd = argument;
    int turn = atomic_fetch_add(&crowd->turn, 1);
    const char *names[NAMES];
    for (int i = 0; i < NAMES; i++)
        names[i] = crowd->names[(i + turn) % NAMES];
    for (int i = 0; i < PASSES; i++) {
        mortise_lease *leases[NAMES];
        mortise_status status =
            acquire_all(crowd->clients[turn % 2], names, TEST_PATIENCE_MS, leases);
        crowd->failures += status != MORTISE_OK;
        if (status != MORTISE_OK)
            continue;
        crowd->overlaps += atomic_fetch_add(&crowd->inside, 1) != 0;
        atomic_fetch_sub(&crowd->inside, 1);
        crowd->failures += mortise_release_many(leases, NAMES, NULL) != MORTISE_OK;
    }
    return NULL;
}

static void test_in_any_order(void)
{
    struct crowd crowd = {.clients = {open_client(NULL), open_client(NULL)}};
    pthread_t threads[THREADS];
    fresh_names(crowd.names);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, contend, &crowd) != 0)
            CU_FAIL_FATAL("no thread");
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    SAFE(crowd.overlaps == 0);
    CU_ASSERT_EQUAL(crowd.failures, 0);
    close_client(crowd.clients[0]);
    close_client(crowd.clients[1]);
}

const CU_TestInfo many_tests[] = {
    {"many: all or none", test_all_or_none},
    {"many: in any order", test_in_any_order},
    CU_TEST_INFO_NULL,
};

/* ---- a server that stops answering ---------------------------------------------------------------- */

struct call {
    mortise_client *client;
    const char *const *names;
    mortise_lease *leases[NAMES];
    mortise_status status;
};

static void *call_run(void *argument)
{
    struct call *call = argument;
    call->status = acquire_all(call->client, call->names, 1000, call->leases);
    return NULL;
}

/* It has two of three names and waits for the last one when the server freezes: none is left to it. */
static void test_frozen(void)
{
    mortise_client *client = open_client("!unreachable_timeout = 500ms\nclose_timeout = 60s"),
                   *other = open_client(NULL);
    const char *names[NAMES];
    struct call call = {.client = client, .names = names};
    pthread_t thread;
    fresh_names(names);
    if (subject.can & HOOK_FREEZE) {
        mortise_lease *lease = take(other, names[NAMES - 1], 60000);
        if (pthread_create(&thread, NULL, call_run, &call) != 0)
            CU_FAIL_FATAL("no thread");
        CU_ASSERT(wait_local_waiters(client, 1));
        CU_ASSERT_FATAL(subject_hook("freeze"));
        pthread_join(thread, NULL);
        CU_ASSERT_NOT_EQUAL(call.status, MORTISE_OK);
        for (int i = 0; i < NAMES; i++)
            CU_ASSERT_PTR_NULL(call.leases[i]);
        CU_ASSERT_FATAL(subject_hook("thaw"));
        mortise_release(lease, NULL); /* LOST, if the freeze was long */
        for (int i = 0; i < NAMES; i++)
            give(take(other, names[i], 0));
    }
    close_client(client);
    close_client(other);
}

const CU_TestInfo many_server_tests[] = {
    {"many: the server freezes in the middle", test_frozen},
    CU_TEST_INFO_NULL,
};
