/* test_many.c - several names at once: all or none, in whatever order they are given. */
#include "many_test.h"

static void start(void)
{
    rig_open(&rig, CONFIG);
    rig_open(&other, CONFIG);
    tap(&rig);
}

static void finish(void)
{
    settle();
    ASSERT_NOTHING_LEFT();
    rig_close(&rig);
    rig_close(&other);
}

static void test_all(void)
{
    char owner[4][40];
    start();
    CU_ASSERT_EQUAL_FATAL(many(abc, 3, TRY), MORTISE_OK);
    CU_ASSERT_EQUAL(tap_count, 3);
    CU_ASSERT_EQUAL(taps[0].batch, 3); /* together */
    CU_ASSERT_NSTRING_EQUAL(taps[0].op.name, "a", 1);
    for (int i = 0; i < 3; i++) {
        mortise_info info = {.size = sizeof(info)};
        mortise_owner(leases[i], owner[i], sizeof(owner[i]));
        CU_ASSERT_EQUAL(mortise_inspect(other.handle, abc[i], &info, NULL), MORTISE_OK);
        CU_ASSERT_STRING_EQUAL(info.owner, owner[i]); /* leases[i] is that of names[i] */
    }
    tap_count = 0;
    CU_ASSERT_EQUAL(mortise_release_many(leases, 3, &error), MORTISE_OK);
    CU_ASSERT_EQUAL(tap_count, 3);
    CU_ASSERT_EQUAL(mortise_release_many(leases, 3, &error), MORTISE_INVALID);
    error.status = MORTISE_OK; /* one alone goes another way */
    CU_ASSERT_EQUAL(mortise_release_many(leases, 1, &error), MORTISE_INVALID);
    CU_ASSERT_EQUAL(error.status, MORTISE_INVALID);
    finish();
}

static void test_none(void)
{
    start();
    mortise_lease *held = take(&other, "b", NULL);
    CU_ASSERT_EQUAL(many(abc, 3, TRY), MORTISE_BUSY);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "\"b\""));
    assert_none(3);
    settle();
    CU_ASSERT_EQUAL(sim->claims(), 1);
    CU_ASSERT_EQUAL(mortise_release(held, NULL), MORTISE_OK);
    finish();
}

static void test_invalid(void)
{
    static const char *const twice[] = {"a", "b", "a"}, *const empty[] = {"a", ""};
    start();
    CU_ASSERT_EQUAL(many(twice, 3, TRY), MORTISE_INVALID);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "twice"));
    assert_none(3);
    CU_ASSERT_EQUAL(many(empty, 2, TRY), MORTISE_INVALID);
    assert_none(2);
    CU_ASSERT_EQUAL(many(abc, 0, TRY), MORTISE_INVALID);
    CU_ASSERT_EQUAL(many(abc, MORTISE_MANY_MAX + 1, TRY), MORTISE_INVALID);
    CU_ASSERT_EQUAL(many(abc, 3, MORTISE_OPTIONS(.ttl_ms = 1)), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mortise_acquire_many(rig.handle, NULL, 1, TRY, leases, NULL), MORTISE_INVALID);
    CU_ASSERT_EQUAL(tap_count, 0);
    CU_ASSERT_EQUAL(mortise_release_many(leases, 0, NULL), MORTISE_OK);
    finish();
}

/* The server fails at the third of the names: nothing is left, whatever is known about that request. */
static void test_a_request_fails(mortise_status status, sim_fate fate)
{
    start();
    SCRIPT(.kinds = OP(ACQUIRE), .name = "c", .fate = fate, .status = status, .times = 1);
    CU_ASSERT_EQUAL(many(abc, 3, TRY), status);
    assert_none(3);
    advance_ms(100);
    finish();
}

static void test_fails(void)
{
    test_a_request_fails(MORTISE_BACKEND, SIM_REFUSE);
    test_a_request_fails(MORTISE_UNREACHABLE, SIM_REFUSE);
}

/* A failure that mortise_acquire() outlasts: so does this call, if it may wait. */
static void test_outlasts(mortise_status status, sim_fate fate)
{
    rig_open_real(&rig, CONFIG);
    int rule =
        SCRIPT(.kinds = OP(ACQUIRE), .name = "b", .fate = fate, .status = status, .times = 2);
    CU_ASSERT_EQUAL(many(abc, 3, TEN_SECONDS), MORTISE_OK);
    CU_ASSERT_EQUAL(sim->hits(rule), 2);
    CU_ASSERT_EQUAL(mortise_release_many(leases, 3, NULL), MORTISE_OK);
    rig_close(&rig);
    CU_ASSERT_EQUAL(sim->claims(), 0);
}

static void test_passing_failures(void)
{
    test_outlasts(MORTISE_UNREACHABLE, SIM_REFUSE);
    test_outlasts(MORTISE_INDETERMINATE, SIM_LOSE_REPLY);
}

/* The request for this name is executed and its reply lost; from then on the server cannot be reached for "a" and for it. */
static void lose_reply_and_go(const char *name)
{
    SCRIPT(.kinds = OP(ACQUIRE), .name = name, .times = 1, .fate = SIM_LOSE_REPLY,
           .status = MORTISE_INDETERMINATE);
    for (int i = 0; i < 2; i++)
        SCRIPT(.kinds = OP(ACQUIRE), .name = i == 0 ? "a" : name, .fate = SIM_REFUSE,
               .status = MORTISE_UNREACHABLE);
}

/* UNREACHABLE would say that nothing of the call may be left in the backend. */
static void test_unsure(void)
{
    start();
    lose_reply_and_go("c");
    CU_ASSERT_EQUAL(many(abc, 3, TRY), MORTISE_INDETERMINATE);
    CU_ASSERT_EQUAL(error.status, MORTISE_INDETERMINATE);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "\"c\""));
    assert_none(3);
    finish();
}

/* The same of a call that waits, for a name that it has tried before, or for another one. */
static void test_unsure_and_waits(void)
{
    static const char *const lost[] = {"a", "c"};
    for (int i = 0; i < 2; i++) {
        rig_open_real(&rig, CONFIG "unreachable_timeout = 100ms\n");
        lose_reply_and_go(lost[i]);
        CU_ASSERT_EQUAL(many(abc, 3, TEN_SECONDS), MORTISE_INDETERMINATE);
        CU_ASSERT_EQUAL(error.status, MORTISE_INDETERMINATE);
        assert_none(3);
        rig_close(&rig);
        CU_ASSERT_EQUAL(sim->claims(), 0);
        sim->reset();
    }
}

/* Waits for one name, holds the smaller ones, and not the larger ones. */
static void test_waits(void)
{
    pthread_t thread;
    static char b[] = "b";
    rig_open_real(&rig, CONFIG);
    rig_open_real(&other, CONFIG);
    mortise_lease *held = take(&other, "b", NULL), *last;
    wanted_options = TEN_SECONDS;
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, acquire, NULL), 0);
    CU_ASSERT(test_poll(has_waiter, b, TEST_PATIENCE_MS));
    mortise_lease *lease;
    CU_ASSERT_EQUAL(mortise_acquire(other.handle, "a", TRY, &lease, NULL), MORTISE_BUSY);
    CU_ASSERT_EQUAL(mortise_acquire(other.handle, "c", TEN_SECONDS, &last, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(held, NULL), MORTISE_OK);
    static char c[] = "c";
    CU_ASSERT(test_poll(has_waiter, c, TEST_PATIENCE_MS));
    CU_ASSERT_EQUAL(mortise_release(last, NULL), MORTISE_OK);
    pthread_join(thread, NULL);
    CU_ASSERT_EQUAL(outcome, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release_many(leases, 3, NULL), MORTISE_OK);
    rig_close(&rig);
    rig_close(&other);
    CU_ASSERT_EQUAL(sim->claims(), 0);
}

/* Until when the call waits for the name. */
static int64_t waits_until(const char *text)
{
    struct locks *locks = &rig.client->locks;
    pthread_mutex_lock(&locks->lock);
    const struct name *name = name_find_locked(locks, text, strlen(text));
    int64_t until_ns = name->waitlist != NULL && name->waitlist->first != NULL
                           ? name->waitlist->first->until_ns
                           : 0;
    pthread_mutex_unlock(&locks->lock);
    return until_ns;
}

/* However many names it waits for, one after the other: wait_ms counts from the call. */
static void test_one_deadline(void)
{
    pthread_t thread;
    static char a[] = "a", b[] = "b";
    rig_open_real(&rig, CONFIG);
    rig_open_real(&other, CONFIG);
    mortise_lease *first = take(&other, a, NULL), *second = take(&other, b, NULL);
    wanted_options = TEN_SECONDS;
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, acquire, NULL), 0);
    CU_ASSERT(test_poll(has_waiter, a, TEST_PATIENCE_MS));
    int64_t until_ns = waits_until(a);
    CU_ASSERT(until_ns > 0);
    CU_ASSERT_EQUAL(mortise_release(first, NULL), MORTISE_OK);
    CU_ASSERT(test_poll(has_waiter, b, TEST_PATIENCE_MS));
    CU_ASSERT_EQUAL(waits_until(b), until_ns);
    CU_ASSERT_EQUAL(mortise_release(second, NULL), MORTISE_OK);
    pthread_join(thread, NULL);
    CU_ASSERT_EQUAL(outcome, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release_many(leases, 3, NULL), MORTISE_OK);
    rig_close(&rig);
    rig_close(&other);
    CU_ASSERT_EQUAL(sim->claims(), 0);
}

static void test_times_out(void)
{
    rig_open_real(&rig, CONFIG);
    rig_open_real(&other, CONFIG);
    mortise_lease *held = take(&other, "b", NULL);
    CU_ASSERT_EQUAL(many(abc, 3, MORTISE_OPTIONS(.wait_ms = 50)), MORTISE_TIMEDOUT);
    assert_none(3);
    CU_ASSERT_EQUAL(mortise_release(held, NULL), MORTISE_OK);
    rig_close(&rig); /* the releases are under way */
    rig_close(&other);
    CU_ASSERT_EQUAL(sim->claims(), 0);
}

/* The time is over while a name is tried: TIMEDOUT, as of mortise_acquire(), not a backend that does not answer. */
static void test_times_out_in_a_try(void)
{
    for (int i = 0; i < 2; i++) {
        rig_open_real(&rig, CONFIG);
        int rule = SCRIPT(.kinds = OP(ACQUIRE), .name = "b", .hold_request = i == 0,
                          .hold_reply = i == 1, .on_cancel = SIM_CANCEL_CLEAN);
        CU_ASSERT_EQUAL(many(abc, 3, MORTISE_OPTIONS(.wait_ms = 20)), MORTISE_TIMEDOUT);
        CU_ASSERT_EQUAL(error.status, MORTISE_TIMEDOUT);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "\"b\""));
        assert_none(3);
        sim->end(rule);
        rig_close(&rig);
        CU_ASSERT_EQUAL(sim->claims(), 0);
    }
}

/* What was lost while the call waited for another name is acquired again; and its callback is called for the lease that
 * the caller got. */
static void test_lost_meanwhile(void)
{
    pthread_t thread;
    static char b[] = "b";
    struct states states = {0};
    rig_open_real(&rig, "ttl = 100ms\nhandover_max = 0\n");
    rig_open_real(&other, CONFIG);
    mortise_lease *held = take(&other, "b", NULL);
    wanted_options = MORTISE_OPTIONS(.wait_ms = 10000, .on_state = on_state, .user_data = &states);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, acquire, NULL), 0);
    CU_ASSERT(test_poll(has_waiter, b, TEST_PATIENCE_MS));
    CU_ASSERT(sim->lose("a"));
    while (stats_of(&rig).losses == 0)
        sched_yield();
    CU_ASSERT_EQUAL(mortise_release(held, NULL), MORTISE_OK);
    pthread_join(thread, NULL);
    CU_ASSERT_EQUAL_FATAL(outcome, MORTISE_OK);
    CU_ASSERT_EQUAL(states.count, 0);
    CU_ASSERT_EQUAL(mortise_state(leases[1]), MORTISE_STATE_HELD);
    CU_ASSERT(sim->lose("c"));
    while (mortise_state(leases[0]) != MORTISE_STATE_LOST)
        sched_yield();
    CU_ASSERT_EQUAL(mortise_release_many(leases, 3, &error), MORTISE_LOST);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "\"c\""));
    rig_close(&rig);
    rig_close(&other);
    CU_ASSERT_EQUAL(sim->claims(), 0);
}

/* Two clients want the same names, given in opposite order, many times: neither waits for ever. */
static void *take_turns(void *argument)
{
    struct rig *mine = argument;
    static const char *const up[] = {"a", "b", "c"}, *const down[] = {"c", "b", "a"};
    for (int i = 0; i < 300; i++) {
        mortise_lease *got[3];
        if (mortise_acquire_many(mine->handle, mine == &rig ? up : down, 3, TEN_SECONDS, got,
                                 NULL) != MORTISE_OK ||
            mortise_release_many(got, 3, NULL) != MORTISE_OK)
            return mine;
    }
    return NULL;
}

static void test_opposite_order(void)
{
    pthread_t threads[4];
    void *failed_one;
    rig_open_real(&rig, CONFIG);
    rig_open_real(&other, CONFIG);
    for (int i = 0; i < 4; i++)
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, take_turns, i % 2 ? &rig : &other),
                              0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], &failed_one);
        CU_ASSERT_PTR_NULL(failed_one);
    }
    rig_close(&rig);
    rig_close(&other);
    CU_ASSERT_EQUAL(sim->claims(), 0);
}

/* ---- a release that is not answered ---------------------------------------------------------------- */

enum { FIVE = 5 };
static const char *const five[FIVE] = {"a", "b", "c", "d", "e"};

static void *release_five(void *argument)
{
    (void)argument;
    outcome = mortise_release_many(leases, FIVE, &error);
    return NULL;
}

static bool released(void *thread)
{
    return pthread_tryjoin_np(*(pthread_t *)thread, NULL) == 0;
}

/* The backend is silent: the call waits for unreachable_timeout once, and not once for each lease. */
static void test_silent_releases(void)
{
    pthread_t thread;
    rig_open(&rig, "ttl = 1h\nhandover_max = 0\nunreachable_timeout = 2s\n");
    CU_ASSERT_EQUAL_FATAL(many(five, FIVE, TRY), MORTISE_OK);
    int silent = SCRIPT(.kinds = OP(RELEASE), .fate = SIM_SILENT);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, release_five, NULL), 0);
    CU_ASSERT(sim->wait_hits(silent, FIVE, TEST_PATIENCE_MS));
    /* when it is due, time goes on more slowly: its thread may have to wait for its turn */
    int ms = 0;
    while (!test_poll(released, &thread, ms >= 2000 && ms < 4000 ? 300 : 5)) {
        set_now(START_NS + (ms += 100) * MS);
        watchdog_run(&rig.client->locks);
    }
    CU_ASSERT(ms >= 2000 && ms < 4000);
    CU_ASSERT_EQUAL(outcome, MORTISE_INDETERMINATE);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "\"a\""));
    sim->end(silent);
    advance_ms(5000);
    ASSERT_NOTHING_LEFT();
    rig_close(&rig);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"all, in one batch", test_all},
        {"none", test_none},
        {"invalid", test_invalid},
        {"a request fails", test_fails},
        {"failures that pass", test_passing_failures},
        {"UNREACHABLE, and an unsure request", test_unsure},
        {"UNREACHABLE, and an unsure request before the wait", test_unsure_and_waits},
        {"it waits for one name", test_waits},
        {"one deadline", test_one_deadline},
        {"it times out", test_times_out},
        {"it times out in a try", test_times_out_in_a_try},
        {"lost meanwhile", test_lost_meanwhile},
        {"opposite order", test_opposite_order},
        {"releases that are not answered", test_silent_releases},
        CU_TEST_INFO_NULL,
    };
    return rig_run("many", tests);
}
