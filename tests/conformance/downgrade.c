/* downgrade.c - an exclusive lease becomes shared, in one step: readers get in, and no writer does. */
#include "conformance.h"

static void test_downgrade(void)
{
    mortise_client *client = open_client("renew_every = 100ms"), *other = open_client(NULL);
    const char *name = fresh_name();
    struct blocked reader;
    mortise_lease *lease = take(client, name, 60000);
    if (!has(MORTISE_CAP_SHARED)) {
        EXPECT(NOTSUP, mortise_downgrade(lease, &detail));
        give(lease);
    } else {
        uint64_t token = mortise_token(lease);
        blocked_start(&reader, other, name,
                      MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .mode = MORTISE_SHARED));
        CU_ASSERT(wait_local_waiters(other, 1));
        EXPECT(OK, mortise_downgrade(lease, &detail));
        EXPECT(OK, mortise_downgrade(lease, &detail));
        EXPECT(OK, blocked_join(&reader));
        CU_ASSERT_EQUAL(mortise_token(lease), token);
        SAFE(!has(MORTISE_CAP_FENCING) || mortise_token(reader.lease) > token);
        SAFE(try_once(subject.looker, name) == MORTISE_BUSY);
        CU_ASSERT(wait_renewals(client, 2));
        CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
        if (has(MORTISE_CAP_INSPECT))
            CU_ASSERT_EQUAL(look(subject.looker, name).holders, 2);
        give(lease);
        SAFE(try_once(subject.looker, name) == MORTISE_BUSY);
        give(reader.lease);
        EXPECT(OK, try_once(subject.looker, name));
    }
    close_client(client);
    close_client(other);
}

/* A crowd of writers waits: none gets in before the reader that was a writer has released. */
static void test_downgrade_crowd(void)
{
    enum { WRITERS = 6 };
    mortise_client *client = open_client("renew_every = 100ms"), *others[WRITERS];
    struct pending writers[WRITERS];
    const char *name = fresh_name();
    for (int i = 0; i < WRITERS; i++)
        others[i] = open_client(NULL);
    if (!lacks(MORTISE_CAP_SHARED)) {
        mortise_lease *lease = take(client, name, 60000);
        for (int i = 0; i < WRITERS; i++) {
            writers[i] = PENDING_INIT;
            writers[i].release_at_once = true;
            pending_start(&writers[i], others[i], name,
                          MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = 60000));
        }
        wait_waiters(name, WRITERS);
        EXPECT(OK, mortise_downgrade(lease, &detail));
        for (int i = 0; i < 5; i++) {
            CU_ASSERT(wait_renewals(client, 1));
            SAFE(try_once(subject.looker, name) == MORTISE_BUSY);
        }
        CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
        for (int i = 0; i < WRITERS; i++)
            SAFE(test_count_get(&writers[i].calls) == 0);
        give(lease);
        for (int i = 0; i < WRITERS; i++)
            PENDING_EXPECT(&writers[i], OK);
    }
    close_client(client);
    for (int i = 0; i < WRITERS; i++)
        close_client(others[i]);
}

const CU_TestInfo downgrade_tests[] = {
    {"downgrade", test_downgrade},
    {"downgrade before a crowd of writers", test_downgrade_crowd},
    CU_TEST_INFO_NULL,
};
