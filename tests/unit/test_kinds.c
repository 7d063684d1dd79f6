/* test_kinds.c - shared leases and permits in the core: what is refused, who can hold a name together, who waits for
 * whom. Two clients stand for two processes. */
#include "rig.h"

#define CONFIG "ttl = 3s\n"
#define QUEUE CONFIG "handover_max = 0\n[sim]\nqueue = yes\n" /* all readers ask: nobody joins */
#define SHARED MORTISE_OPTIONS(.wait_ms = MORTISE_WAIT_FOREVER, .mode = MORTISE_SHARED)
#define PERMITS(n)                                                                                 \
    MORTISE_OPTIONS(.wait_ms = MORTISE_WAIT_FOREVER, .mode = MORTISE_SHARED, .permits = (n))

static struct rig rig, other;
static struct outcome got, second, third;

static void start(const char *config)
{
    rig_open(&rig, config);
    rig_open(&other, config);
    tap(&rig);
}

static void finish(void)
{
    settle();
    ASSERT_NOTHING_LEFT();
    rig_close(&rig);
    rig_close(&other);
}

static void give_back(mortise_lease *lease)
{
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    settle();
}

static mortise_status refusal(struct rig *by, const mortise_options *options, mortise_error *error)
{
    mortise_lease *lease;
    mortise_options given = *options;
    given.wait_ms = 0;
    return mortise_acquire(by->handle, "a", &given, &lease, error);
}

static void test_refused(void)
{
    mortise_error error;
    start(CONFIG);
    CU_ASSERT_EQUAL(refusal(&rig, MORTISE_OPTIONS(.permits = 2), &error), MORTISE_INVALID);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "permits"));
    CU_ASSERT_EQUAL(refusal(&rig, MORTISE_OPTIONS(.mode = (mortise_mode)2), &error),
                    MORTISE_INVALID);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "mode"));
    CU_ASSERT_EQUAL(refusal(&rig, MORTISE_OPTIONS(.mode = MORTISE_SHARED, .owner = "us"), &error),
                    MORTISE_INVALID);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "owner"));
    CU_ASSERT_EQUAL(tap_count, 0);
    finish();
    start(CONFIG "[sim]\nwithout = permits\n");
    CU_ASSERT_EQUAL(refusal(&rig, PERMITS(2), &error), MORTISE_NOTSUP);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "names instead"));
    CU_ASSERT_EQUAL(tap_count, 0);
    give_back(take(&rig, "a", SHARED));
    finish();
    start(CONFIG "[sim]\nwithout = shared\n");
    CU_ASSERT_EQUAL(refusal(&rig, SHARED, &error), MORTISE_NOTSUP);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "shared"));
    CU_ASSERT_EQUAL(tap_count, 0);
    finish();
}

static void test_readers_and_a_writer(void)
{
    start(CONFIG);
    mortise_lease *first = take(&rig, "a", SHARED), *reader = take(&other, "a", SHARED);
    CU_ASSERT(mortise_token(reader) > mortise_token(first));
    CU_ASSERT_EQUAL(refusal(&other, TRY, NULL), MORTISE_BUSY);
    want(&other, &got, "a", FOREVER);
    give_back(first);
    CU_ASSERT_EQUAL(got.calls, 0);
    give_back(reader);
    advance_ms(200);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(refusal(&rig, SHARED, NULL), MORTISE_BUSY);
    want(&rig, &second, "a", SHARED);
    want(&rig, &third, "a", SHARED);
    CU_ASSERT_EQUAL(second.calls + third.calls, 0);
    give_back(got.lease);
    advance_ms(2200);
    CU_ASSERT_EQUAL_FATAL(second.status, MORTISE_OK);
    CU_ASSERT_EQUAL_FATAL(third.status, MORTISE_OK);
    give_back(second.lease);
    give_back(third.lease);
    finish();
}

static void test_permits(void)
{
    mortise_error error;
    start(QUEUE);
    mortise_lease *first = take(&rig, "a", PERMITS(2)), *last = take(&other, "a", PERMITS(2));
    CU_ASSERT_EQUAL(refusal(&rig, PERMITS(2), NULL), MORTISE_BUSY);
    CU_ASSERT_EQUAL(refusal(&rig, PERMITS(3), &error), MORTISE_INVALID);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "permits = 2"));
    CU_ASSERT_EQUAL(refusal(&rig, SHARED, NULL), MORTISE_INVALID);
    CU_ASSERT_EQUAL(refusal(&rig, TRY, NULL), MORTISE_BUSY);
    want(&rig, &got, "a", PERMITS(2));
    want(&other, &second, "a", PERMITS(2));
    CU_ASSERT_EQUAL(got.calls + second.calls, 0);
    give_back(last);
    CU_ASSERT_EQUAL(got.calls + second.calls, 1);
    give_back(first);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL_FATAL(second.status, MORTISE_OK);
    give_back(got.lease);
    give_back(second.lease);
    give_back(
        take(&rig, "a", PERMITS(3))); /* nobody holds it any more: another number may be set */
    finish();
}

/* A holder that does not renew frees its permit at its own deadline. */
static void test_dead_holder(void)
{
    start(QUEUE);
    mortise_lease *alive = take(&rig, "a", PERMITS(2));
    mortise_lease *dead =
        take(&other, "a", MORTISE_OPTIONS(.mode = MORTISE_SHARED, .permits = 2, .no_renew = true));
    want(&rig, &got, "a", PERMITS(2));
    advance_ms(2900);
    CU_ASSERT_EQUAL(got.calls, 0);
    advance_ms(200);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_state(alive), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_release(dead, NULL), MORTISE_LOST);
    give_back(alive);
    give_back(got.lease);
    finish();
}

/* With a queue: who comes after a waiting writer waits behind it. */
static void test_order(void)
{
    start(QUEUE);
    mortise_lease *reader = take(&rig, "a", SHARED);
    want(&other, &got, "a", FOREVER);
    CU_ASSERT_EQUAL(refusal(&rig, SHARED, NULL), MORTISE_BUSY);
    want(&rig, &second, "a", SHARED);
    CU_ASSERT_EQUAL(second.calls, 0);
    CU_ASSERT_EQUAL(mortise_cancel(other.handle, got.request), MORTISE_OK);
    settle();
    CU_ASSERT_EQUAL_FATAL(second.status, MORTISE_OK);
    give_back(reader);
    give_back(second.lease);
    finish();
}

/* Without one: a writer that waits keeps new readers out, and gets its turn. */
static void test_bar(void)
{
    start(CONFIG);
    mortise_lease *reader = take(&rig, "a", SHARED);
    want(&other, &got, "a", FOREVER);
    for (int i = 0; i < 10; i++) {
        advance_ms(1000);
        CU_ASSERT_EQUAL(refusal(&rig, SHARED, NULL), MORTISE_BUSY);
    }
    CU_ASSERT_EQUAL(mortise_state(reader), MORTISE_STATE_HELD);
    give_back(reader);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    want(&rig, &second, "a", SHARED);
    give_back(got.lease);
    advance_ms(200);
    CU_ASSERT_EQUAL_FATAL(second.status, MORTISE_OK);
    /* one that has left does so for two seconds at most */
    want(&other, &got, "a", MORTISE_OPTIONS(.wait_ms = 100));
    advance_ms(200);
    CU_ASSERT_EQUAL(got.status, MORTISE_TIMEDOUT);
    CU_ASSERT_EQUAL(refusal(&rig, SHARED, NULL), MORTISE_BUSY);
    advance_ms(2000);
    give_back(take(&rig, "a", SHARED));
    give_back(second.lease);
    finish();
}

/* A claim passes only to a caller that wants the same. */
static bool handed(const mortise_options *holder, const mortise_options *waiter)
{
    uint64_t before = stats_of(&rig).handovers;
    mortise_lease *lease = take(&rig, "a", holder);
    want(&rig, &got, "a", waiter);
    CU_ASSERT_EQUAL(got.calls, 0);
    give_back(lease);
    advance_ms(2500);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    give_back(got.lease);
    return stats_of(&rig).handovers > before;
}

static void test_handover(void)
{
    start(CONFIG);
    CU_ASSERT(handed(FOREVER, FOREVER));
    CU_ASSERT_FALSE(handed(SHARED, FOREVER));
    CU_ASSERT_FALSE(handed(FOREVER, SHARED));
    CU_ASSERT_FALSE(handed(FOREVER, PERMITS(1)));
    CU_ASSERT(handed(PERMITS(1), PERMITS(1)));
    finish();
}

struct seen {
    int count;
    mortise_info infos[8];
};

static bool see(const mortise_info *info, void *user_data)
{
    struct seen *seen = user_data;
    seen->infos[seen->count++] = *info;
    return seen->count < 8;
}

static void test_inspect_and_break(void)
{
    struct seen seen = {0};
    mortise_info info = {.size = sizeof(info)};
    start(CONFIG);
    mortise_lease *leases[3];
    for (int i = 0; i < 3; i++)
        leases[i] = take(i == 1 ? &rig : &other, "a", PERMITS(5));
    CU_ASSERT_EQUAL(mortise_inspect(rig.handle, "a", &info, NULL), MORTISE_OK);
    CU_ASSERT(info.held);
    CU_ASSERT_EQUAL(info.mode, MORTISE_SHARED);
    CU_ASSERT_EQUAL(info.permits, 5);
    CU_ASSERT_EQUAL(info.holders, 3);
    CU_ASSERT_EQUAL(info.token, mortise_token(leases[0]));
    CU_ASSERT_EQUAL(mortise_holders(rig.handle, "a", see, &seen, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL_FATAL(seen.count, 3);
    for (int i = 0; i < 3; i++) {
        CU_ASSERT_EQUAL(seen.infos[i].token, mortise_token(leases[i]));
        CU_ASSERT_STRING_EQUAL(seen.infos[i].name, "a");
    }
    CU_ASSERT_EQUAL(mortise_break(rig.handle, "a", mortise_token(leases[1]), NULL), MORTISE_OK);
    advance_ms(1100);
    CU_ASSERT_EQUAL(mortise_state(leases[0]), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_state(leases[1]), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_state(leases[2]), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_release(leases[1], NULL), MORTISE_LOST);
    give_back(leases[0]);
    give_back(leases[2]);
    seen.count = 0;
    CU_ASSERT_EQUAL(mortise_holders(rig.handle, "a", see, &seen, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(seen.count, 0);
    mortise_lease *lease = take(&rig, "a", NULL);
    CU_ASSERT_EQUAL(mortise_holders(rig.handle, "a", see, &seen, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL_FATAL(seen.count, 1);
    CU_ASSERT_EQUAL(seen.infos[0].mode, MORTISE_EXCLUSIVE);
    CU_ASSERT_EQUAL(seen.infos[0].holders, 1);
    give_back(lease);
    finish();
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"refused before any request", test_refused},
        {"readers and a writer", test_readers_and_a_writer},
        {"permits", test_permits},
        {"a dead holder", test_dead_holder},
        {"order in a queue", test_order},
        {"a waiting writer keeps readers out", test_bar},
        {"handed over to the same wish", test_handover},
        {"inspect, holders, break", test_inspect_and_break},
        CU_TEST_INFO_NULL,
    };
    return rig_run("kinds", tests);
}
