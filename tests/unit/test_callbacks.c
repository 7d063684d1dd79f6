/* test_callbacks.c - callbacks of the application (R7): on_state and async completions run with no lock held, one at
 * a time, and never on a thread that others depend on. Every call works inside a callback, except waiting for a lock. */
#include "callbacks_test.h"

#include "base/log.h"

static struct outcome got;

/* ---- inside a callback ---------------------------------------------------------------------------- */

static int ran;

static bool ignore_info(const mortise_info *info, void *user_data)
{
    (void)info;
    return ++*(int *)user_data > 0;
}

/* Each call of the API, inside. The lease is the one that the callback is about. */
static void call_everything(mortise_lease *lease)
{
    mortise_lease *more = NULL;
    mortise_error error;
    mortise_info info = {.size = sizeof(info)};
    char text[64];
    int listed = 0;
    ran++;
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "b", FOREVER, &more, &error), MORTISE_DEADLOCK);
    CU_ASSERT_EQUAL(error.status, MORTISE_DEADLOCK);
    CU_ASSERT_PTR_NULL(more);
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "b", MORTISE_OPTIONS(.wait_ms = 1), &more, NULL),
                    MORTISE_DEADLOCK);
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "b", NULL, &more, NULL), MORTISE_DEADLOCK);
    CU_ASSERT_EQUAL(mortise_dispatch(rig.handle), MORTISE_DEADLOCK);
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "b", TRY, &more, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(more, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_inspect(rig.handle, "a", &info, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_list(rig.handle, NULL, ignore_info, &listed, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_ping(rig.handle, text, sizeof(text), NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_acquire_async(rig.handle, "c", FOREVER, told, &got, NULL, NULL),
                    MORTISE_OK);
    stats_of(&rig);
    mortise_state(lease);
    mortise_token(lease);
    mortise_owner(lease, text, sizeof(text));
    CU_ASSERT_NOT_EQUAL(mortise_release(lease, NULL), MORTISE_INVALID);
}

static void acquired_and_all(mortise_status status, mortise_lease *lease,
                             const mortise_error *error, void *user_data)
{
    (void)user_data;
    CU_ASSERT_EQUAL(status, MORTISE_OK);
    CU_ASSERT_PTR_NULL(error);
    call_everything(lease);
}

static void state_and_all(mortise_lease *lease, mortise_lease_state state, void *user_data)
{
    (void)user_data;
    if (state == MORTISE_STATE_LOST)
        call_everything(lease);
}

static void test_everything_inside(void)
{
    rig_open(&rig, CONFIG);
    ran = 0;
    memset(&got, 0, sizeof(got));
    CU_ASSERT_EQUAL(
        mortise_acquire_async(rig.handle, "a", FOREVER, acquired_and_all, NULL, NULL, NULL),
        MORTISE_OK);
    settle();
    CU_ASSERT_EQUAL(ran, 1);
    CU_ASSERT_EQUAL_FATAL(got.calls, 1); /* what was begun inside came to its end */
    CU_ASSERT_EQUAL(mortise_release(got.lease, NULL), MORTISE_OK);
    take(&rig, "a", MORTISE_OPTIONS(.on_state = state_and_all));
    sim->lose("a");
    advance_ms(1000);
    CU_ASSERT_EQUAL(ran, 2);
    CU_ASSERT_EQUAL_FATAL(got.calls, 2);
    CU_ASSERT_EQUAL(mortise_release(got.lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(stats_of(&rig).failures, 0); /* a DEADLOCK has not asked for the name */
    ASSERT_NOTHING_LEFT();
    rig_close(&rig);
}

static void free_to_wait(mortise_status status, mortise_lease *lease, const mortise_error *error,
                         void *user_data)
{
    (void)status;
    (void)error;
    (void)user_data;
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
}

/* The mark of a callback ends with it. */
static void test_waiting_after_a_callback(void)
{
    mortise_lease *lease;
    rig_open(&rig, CONFIG);
    mortise_acquire_async(rig.handle, "a", FOREVER, free_to_wait, NULL, NULL, NULL);
    settle();
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a", FOREVER, &lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    rig_close(&rig);
}

/* ---- order, and exactly once ----------------------------------------------------------------------- */

/* A change of state that was not told before the release is not told after it. */
static void test_not_after_the_release(void)
{
    struct states states = {0};
    rig_open(&rig, CONFIG);
    mortise_lease *lease =
        take(&rig, "a", MORTISE_OPTIONS(.on_state = on_state, .user_data = &states));
    SCRIPT(.kinds = OP(RENEW), .times = 1, .fate = SIM_LOSE_REPLY, .status = MORTISE_INDETERMINATE);
    set_now(START_NS + 1000 * MS);
    watchdog_run(&rig.client->locks); /* suspect, and held again: noted, not told */
    CU_ASSERT_EQUAL(stats_of(&rig).renewal_failures, 1);
    CU_ASSERT_EQUAL(states.count, 0);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    take(&rig, "a", NULL); /* the same slot, perhaps */
    settle();
    CU_ASSERT_EQUAL(states.count, 0);
    rig_close(&rig);
}

/* While nobody dispatches, the changes of one lease become one notice, with the last of them. */
static void test_changes_wait_as_one(void)
{
    struct states states = {0};
    rig_open(&rig, CONFIG);
    mortise_lease *lease =
        take(&rig, "a", MORTISE_OPTIONS(.on_state = on_state, .user_data = &states));
    struct claim *claim = slab_find(&claim_slab, lease);
    for (int round = 1; round <= 2; round++) {
        mortise_lease_state last = round == 1 ? MORTISE_STATE_HELD : MORTISE_STATE_SUSPECT;
        for (int i = 0; i < 1000; i++) {
            events_push_state(&rig.client->events, &claim->change, MORTISE_STATE_SUSPECT);
            events_push_state(&rig.client->events, &claim->change, MORTISE_STATE_HELD);
        }
        events_push_state(&rig.client->events, &claim->change, last);
        CU_ASSERT_EQUAL(rig.client->events.count, 1);
        settle();
        CU_ASSERT_EQUAL_FATAL(states.count, round);
        CU_ASSERT_EQUAL(states.seen[round - 1], last);
    }
    /* one that waits when the lease ends is not reported */
    events_push_state(&rig.client->events, &claim->change, MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    settle();
    CU_ASSERT_EQUAL(states.count, 2);
    rig_close(&rig);
}

static void test_loss_is_told_once(void)
{
    struct states states = {0};
    rig_open(&rig, CONFIG);
    mortise_lease *lease =
        take(&rig, "a", MORTISE_OPTIONS(.on_state = on_state, .user_data = &states));
    SCRIPT(.kinds = OP(RENEW), .fate = SIM_LOSE_REPLY, .status = MORTISE_INDETERMINATE);
    for (int i = 0; i < 100; i++) {
        advance_ms(100);
        mortise_state(lease);
    }
    CU_ASSERT_EQUAL(states.count, 2);
    CU_ASSERT_EQUAL(states.seen[0], MORTISE_STATE_SUSPECT);
    CU_ASSERT_EQUAL(states.seen[1], MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    settle();
    CU_ASSERT_EQUAL(states.count, 2);
    rig_close(&rig);
}

static void *let_leave(void *argument)
{
    struct running *running = argument;
    poll(NULL, 0, 20); /* in which a release that does not wait would return */
    sem_post(&running->leave);
    return NULL;
}

/* A release waits for the callback of its lease that is under way on another thread. */
static void test_release_waits_for_its_callback(void)
{
    struct running running = {.left = false};
    pthread_t helper;
    mortise_lease *lease;
    sem_init(&running.entered, 0, 0);
    sem_init(&running.leave, 0, 0);
    rig_open_real(&rig, CONFIG);
    lease = lose_and_linger(rig.handle, "a", &running);
    pthread_create(&helper, NULL, let_leave, &running);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    CU_ASSERT(atomic_load(&running.left));
    pthread_join(helper, NULL);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
}

static void *dispatch_once(void *argument)
{
    (void)argument;
    CU_ASSERT_EQUAL(mortise_dispatch(rig.handle), 1);
    return NULL;
}

/* The same if a call was the first to see that the deadline had passed while the callback ran. */
static void test_release_waits_after_a_loss(void)
{
    struct running running = {.left = false};
    pthread_t dispatcher, helper;
    sem_init(&running.entered, 0, 0);
    sem_init(&running.leave, 0, 0);
    rig_open(&rig, CONFIG);
    mortise_lease *lease =
        take(&rig, "a", MORTISE_OPTIONS(.on_state = linger, .user_data = &running));
    int rule = SCRIPT(.kinds = OP(RENEW), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    set_now(START_NS + 1000 * MS);
    watchdog_run(&rig.client->locks);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_SUSPECT);
    pthread_create(&dispatcher, NULL, dispatch_once, NULL);
    while (sem_wait(&running.entered) != 0)
        continue;
    set_now(START_NS + 3000 * MS);
    CU_ASSERT_EQUAL(mortise_downgrade(lease, NULL), MORTISE_LOST);
    pthread_create(&helper, NULL, let_leave, &running);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    CU_ASSERT(atomic_load(&running.left));
    pthread_join(helper, NULL);
    pthread_join(dispatcher, NULL);
    sim->end(rule);
    settle();
    CU_ASSERT_NOT_EQUAL(sem_trywait(&running.entered), 0); /* the release had told it already */
    ASSERT_NOTHING_LEFT();
    rig_close(&rig);
}

static bool renewed_often(void *argument)
{
    (void)argument;
    return stats_of(&rig).renewals >= 10;
}

/* A callback that does not come back delays no renewal, no other name, no release of another lease. */
static void test_blocked_callback_harms_nobody(void)
{
    struct running running = {.left = false};
    mortise_lease *lost, *kept, *other;
    sem_init(&running.entered, 0, 0);
    sem_init(&running.leave, 0, 0);
    rig_open_real(&rig, CONFIG "renew_every = 50ms\n");
    lost = lose_and_linger(rig.handle, "lost", &running);
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "kept",
                                          MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = 60000), &kept,
                                          NULL),
                          MORTISE_OK);
    CU_ASSERT(test_poll(renewed_often, NULL, TEST_PATIENCE_MS));
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "other", FOREVER, &other, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(other, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(kept, NULL), MORTISE_OK);
    CU_ASSERT_FALSE(atomic_load(&running.left));
    sem_post(&running.leave);
    CU_ASSERT_EQUAL(mortise_release(lost, NULL), MORTISE_LOST);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
}

/* ---- two clients ----------------------------------------------------------------------------------- */

static struct pair {
    struct rig rig;
    mortise_lease *lease;
    mortise_status released;
    bool runs, mine_runs; /* the other's callback and this one, after the release */
} pairs[2];
static struct test_count both = TEST_COUNT_INIT, both_done = TEST_COUNT_INIT;

static void release_the_other(mortise_lease *lease, mortise_lease_state state, void *user_data)
{
    struct pair *pair = user_data, *other = &pairs[pair == &pairs[0]];
    (void)lease;
    if (state != MORTISE_STATE_LOST)
        return;
    test_count_add(&both, 1);
    test_count_wait(&both, 3); /* both callbacks run, and both leases are known */
    pair->released = mortise_release(other->lease, NULL);
    pair->runs = mortise_on_state_runs(other->rig.handle, other->lease);
    pair->mine_runs = mortise_on_state_runs(pair->rig.handle, pair->lease);
    test_count_add(&both_done, 1);
    test_count_wait(&both_done, 2);
}

static bool runs_no_more(void *argument)
{
    struct pair *pair = argument;
    return !mortise_on_state_runs(pair->rig.handle, pair->lease);
}

static void test_callbacks_release_each_other(void)
{
    for (int i = 0; i < 2; i++) {
        rig_open_real(&pairs[i].rig, CONFIG);
        CU_ASSERT_EQUAL_FATAL(
            mortise_acquire(pairs[i].rig.handle, i == 0 ? "a" : "b",
                            MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 200, .no_renew = true,
                                            .on_state = release_the_other, .user_data = &pairs[i]),
                            &pairs[i].lease, NULL),
            MORTISE_OK);
    }
    test_count_add(&both, 1);
    CU_ASSERT_FATAL(test_count_wait(&both_done, 2));
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(pairs[i].released, MORTISE_LOST);
        CU_ASSERT_TRUE(pairs[i].runs);
        CU_ASSERT_FALSE(pairs[i].mine_runs);
        CU_ASSERT(test_poll(runs_no_more, &pairs[i], TEST_PATIENCE_MS));
        CU_ASSERT_EQUAL(mortise_close(pairs[i].rig.handle, NULL), MORTISE_OK);
        CU_ASSERT_TRUE(mortise_on_state_runs(pairs[i].rig.handle, pairs[i].lease));
    }
}

/* ---- a lease's callback, and that of the log -------------------------------------------------------- */

static struct {
    struct test_count logs, runs, released, over;
    mortise_lease *lease;
    mortise_status status;
    bool runs_elsewhere;
} crossed = {.logs = TEST_COUNT_INIT,
             .runs = TEST_COUNT_INIT,
             .released = TEST_COUNT_INIT,
             .over = TEST_COUNT_INIT};

static void release_in_log(int level, const char *line, void *user_data)
{
    (void)level;
    (void)line;
    (void)user_data;
    test_count_add(&crossed.logs, 1);
    if (!test_count_wait(&crossed.runs, 1))
        return;
    crossed.status = mortise_release(crossed.lease, NULL);
    crossed.runs_elsewhere = mortise_on_state_runs(rig.handle, crossed.lease);
    test_count_add(&crossed.released, 1);
}

static void replace_log(mortise_lease *lease, mortise_lease_state state, void *user_data)
{
    (void)lease;
    (void)state;
    (void)user_data;
    test_count_add(&crossed.runs, 1);
    mortise_on_log(NULL, NULL); /* waits for the other one */
    test_count_add(&crossed.over, 1);
}

/* The one releases the lease of the other, which waits for the one: neither waits for ever. */
static void test_release_in_a_log_callback(void)
{
    rig_open_real(&rig, CONFIG);
    CU_ASSERT_EQUAL_FATAL(
        mortise_acquire(rig.handle, "a",
                        MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 200, .no_renew = true,
                                        .on_state = replace_log),
                        &crossed.lease, NULL),
        MORTISE_OK);
    mortise_on_log(release_in_log, NULL);
    log_line(4, "mortise: a line");
    CU_ASSERT_FATAL(test_count_wait(&crossed.logs, 1));
    CU_ASSERT_FATAL(test_count_wait(&crossed.released, 1));
    CU_ASSERT_EQUAL(crossed.status, MORTISE_LOST);
    CU_ASSERT_TRUE(crossed.runs_elsewhere);
    CU_ASSERT_FATAL(test_count_wait(&crossed.over, 1));
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
}

/* ---- the descriptor -------------------------------------------------------------------------------- */

static void test_descriptor(void)
{
    rig_open(&rig, CONFIG);
    mortise_status status;
    int fd = mortise_fd(rig.handle, &status);
    CU_ASSERT_EQUAL(status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_fd(rig.handle, NULL), fd);
    CU_ASSERT_FALSE(readable(fd));
    CU_ASSERT_EQUAL(mortise_dispatch(rig.handle), 0);
    memset(&got, 0, sizeof(got));
    for (int i = 0; i < 3; i++)
        mortise_acquire_async(rig.handle, "a", TRY, told, &got, NULL, NULL);
    CU_ASSERT_EQUAL(got.calls, 0); /* not on the caller's stack */
    CU_ASSERT(readable(fd));
    CU_ASSERT_EQUAL(mortise_dispatch(rig.handle), 3);
    CU_ASSERT_EQUAL(got.calls, 3);
    CU_ASSERT_FALSE(readable(fd));
    rig_close(&rig);
    CU_ASSERT_EQUAL(mortise_fd(rig.handle, &status), -1);
    CU_ASSERT_EQUAL(status, MORTISE_CLOSED);
}

static void test_dispatch_without_a_descriptor(void)
{
    rig_open_real(&rig, CONFIG);
    CU_ASSERT_EQUAL(mortise_dispatch(rig.handle), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
}

/* Callbacks that were due before the descriptor was asked for come by it. */
static void test_descriptor_late(void)
{
    mortise_error error;
    CU_ASSERT_EQUAL_FATAL(rig_try_open(&rig, true, CONFIG, &error), MORTISE_OK);
    memset(&got, 0, sizeof(got));
    mortise_acquire_async(rig.handle, "a", TRY, told, &got, NULL, NULL);
    int fd = mortise_fd(rig.handle, NULL);
    CU_ASSERT(readable(fd));
    CU_ASSERT_EQUAL(mortise_dispatch(rig.handle), 1);
    CU_ASSERT_EQUAL(got.calls, 1);
    rig_close(&rig);
}

/* A program with an event loop, on a real client: nothing runs on a thread that is not its own. */
static pthread_t looping;

static void on_my_thread(mortise_status status, mortise_lease *lease, const mortise_error *error,
                         void *user_data)
{
    (void)error;
    CU_ASSERT_EQUAL(status, MORTISE_OK);
    CU_ASSERT(pthread_equal(pthread_self(), looping));
    CU_ASSERT_EQUAL(mortise_release_nowait(lease, NULL), MORTISE_OK);
    ++*(int *)user_data;
}

static void test_event_loop(void)
{
    enum { COUNT = 30 };
    int done = 0;
    looping = pthread_self();
    rig_open_real(&rig, CONFIG "[sim]\nlatency = 2ms\n");
    int fd = mortise_fd(rig.handle, NULL);
    for (int i = 0; i < COUNT; i++)
        mortise_acquire_async(rig.handle, i % 2 ? "a" : "b", FOREVER, on_my_thread, &done, NULL,
                              NULL);
    while (done < COUNT) {
        struct pollfd pollfd = {.fd = fd, .events = POLLIN};
        CU_ASSERT_FATAL(poll(&pollfd, 1, TEST_PATIENCE_MS) == 1);
        CU_ASSERT(mortise_dispatch(rig.handle) >= 0);
    }
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
    ASSERT_NOTHING_LEFT();
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"R7: every call works inside, but waiting", test_everything_inside},
        {"waiting after a callback", test_waiting_after_a_callback},
        {"not after the release", test_not_after_the_release},
        {"a loss is told once", test_loss_is_told_once},
        {"changes of a lease wait as one", test_changes_wait_as_one},
        {"a release waits for its callback", test_release_waits_for_its_callback},
        {"a release waits, after a loss that a call saw", test_release_waits_after_a_loss},
        {"R7: a blocked callback harms nobody", test_blocked_callback_harms_nobody},
        {"callbacks release each other's leases", test_callbacks_release_each_other},
        {"a callback of the log releases a lease", test_release_in_a_log_callback},
        {"the descriptor", test_descriptor},
        {"no dispatch without a descriptor", test_dispatch_without_a_descriptor},
        {"a descriptor asked for late", test_descriptor_late},
        {"an event loop", test_event_loop},
        CU_TEST_INFO_NULL,
    };
    return rig_run("callbacks", tests);
}
