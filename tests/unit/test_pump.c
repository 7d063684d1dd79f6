/* test_pump.c - who calls into the module stack, and when: batches, leaders and followers, the service thread, posts,
 * timers, descriptors. The test's own driver keeps ops until a byte comes through a pipe.
 *
 * If a test is about the duty of a leader, the client has no service thread that could do it instead ("alone"). Tests
 * wait for events; a time-out means failure. */
#include "fake_driver.h"

#include <semaphore.h>
#include <signal.h>

static struct outcome got;

/* ---- callers --------------------------------------------------------------------------------------- */

struct caller {
    pthread_t thread;
    char name[16];
    int64_t wait_ms;
    mortise_status status;
    mortise_lease *lease;
    _Atomic bool done;
};

static struct test_count returned = TEST_COUNT_INIT;

static void *call(void *argument)
{
    struct caller *caller = argument;
    caller->status =
        mortise_acquire(rig.handle, caller->name, MORTISE_OPTIONS(.wait_ms = caller->wait_ms),
                        &caller->lease, NULL);
    test_count_add(&returned, 1);
    return NULL;
}

static bool started(void *argument)
{
    return atomic_load(&fake.starts) >= *(int *)argument;
}

static bool polling(void *argument)
{
    struct pump *pump = &rig.client->pump;
    (void)argument;
    pthread_mutex_lock(&pump->lock);
    bool is = pump->polling;
    pthread_mutex_unlock(&pump->lock);
    return is;
}

/* The callers' requests are with the driver, or were. */
static void begin(struct caller *callers, int count, int64_t wait_ms)
{
    int wanted = atomic_load(&fake.starts) + count;
    for (int i = 0; i < count; i++) {
        callers[i] = (struct caller){.wait_ms = wait_ms};
        snprintf(callers[i].name, sizeof(callers[i].name), "%d", wanted + i);
        pthread_create(&callers[i].thread, NULL, call, &callers[i]);
    }
    CU_ASSERT(test_poll(started, &wanted, TEST_PATIENCE_MS));
}

/* They are, and one of the callers polls. */
static void launch(struct caller *callers, int count, int64_t wait_ms)
{
    begin(callers, count, wait_ms);
    CU_ASSERT(test_poll(polling, NULL, TEST_PATIENCE_MS));
}

static void land(struct caller *callers, int count, mortise_status wanted)
{
    for (int i = 0; i < count; i++) {
        pthread_join(callers[i].thread, NULL);
        CU_ASSERT_EQUAL(callers[i].status, wanted);
    }
}

/* ---- leaders and followers ------------------------------------------------------------------------- */

/* One byte, one answer, whoever leads: a leader that leaves names the next. */
static void test_leaders_name_the_next(void)
{
    enum { CALLERS = 8 };
    struct caller callers[CALLERS];
    for (int round = 0; round < 10; round++) {
        start(true);
        int before = test_count_get(&returned);
        launch(callers, CALLERS, TEST_PATIENCE_MS);
        for (int i = 0; i < CALLERS; i++) {
            send_byte();
            CU_ASSERT(test_count_wait(&returned, before + i + 1));
        }
        land(callers, CALLERS, MORTISE_OK);
        finish();
    }
}

/* All answers in one turn: every follower is woken. */
static void test_all_at_once(void)
{
    enum { CALLERS = 8 };
    struct caller callers[CALLERS];
    start(true);
    launch(callers, CALLERS, TEST_PATIENCE_MS);
    for (int i = 0; i < CALLERS; i++)
        send_byte();
    land(callers, CALLERS, MORTISE_OK);
    finish();
}

/* Each leaves at its own time, leading or not, and its request is canceled. */
static void test_followers_time_out(void)
{
    enum { CALLERS = 6 };
    struct caller callers[CALLERS];
    start(true);
    begin(callers, CALLERS, 30); /* on a busy machine all have left before anybody sees one poll */
    land(callers, CALLERS, MORTISE_TIMEDOUT);
    CU_ASSERT_EQUAL(atomic_load(&fake.canceled), CALLERS);
    CU_ASSERT_PTR_NULL(fake.first);
    finish();
}

/* The leader sleeps; a follower's request sets an earlier timer: the leader must be woken for it. */
static void test_earlier_timer(void)
{
    struct caller leader, follower = {.name = "late", .wait_ms = TEST_PATIENCE_MS};
    start(true);
    launch(&leader, 1, TEST_PATIENCE_MS);
    int before = test_count_get(&returned);
    pthread_mutex_lock(&rig.client->pump.lock);
    fake.due_after_ms = 10;
    pthread_mutex_unlock(&rig.client->pump.lock);
    pthread_create(&follower.thread, NULL, call, &follower);
    CU_ASSERT(test_count_wait_ms(&returned, before + 1, 5000));
    send_byte();
    land(&leader, 1, MORTISE_OK);
    land(&follower, 1, MORTISE_OK);
    finish();
}

/* The leader sleeps, and its outcome comes in another caller's call: it must be woken, and the other one leads. */
static void test_outcome_by_another(void)
{
    struct caller leader, follower = {.name = "next", .wait_ms = TEST_PATIENCE_MS};
    for (int round = 0; round < 5; round++) {
        start(true);
        launch(&leader, 1, TEST_PATIENCE_MS);
        int before = test_count_get(&returned);
        pthread_mutex_lock(&rig.client->pump.lock);
        fake.in_turn = true;
        pthread_mutex_unlock(&rig.client->pump.lock);
        pthread_create(&follower.thread, NULL, call, &follower);
        CU_ASSERT(test_count_wait_ms(&returned, before + 1, 5000));
        land(&leader, 1, MORTISE_OK);
        CU_ASSERT_EQUAL(mortise_state(leader.lease), MORTISE_STATE_HELD);
        send_byte();
        land(&follower, 1, MORTISE_OK);
        finish();
    }
}

/* A descriptor that is closed and opened again under the same number is polled again; also if a driver has forgotten to say so,
 * where it asks for other events from then on. */
static void renew_descriptor(bool silently)
{
    struct caller callers[3];
    start(true);
    fake.renews_silently = silently;
    launch(callers, 3, TEST_PATIENCE_MS);
    for (int i = 0; i < 3; i++) {
        int before = test_count_get(&returned);
        pthread_mutex_lock(&rig.client->pump.lock);
        fake.renew_pipe = true;
        int turns = atomic_load(&fake.turns);
        pthread_mutex_unlock(&rig.client->pump.lock);
        send_byte();
        CU_ASSERT(test_count_wait(&returned, before + 1));
        CU_ASSERT(atomic_load(&fake.turns) > turns);
    }
    land(callers, 3, MORTISE_OK);
    finish();
}

static void test_new_descriptor(void)
{
    renew_descriptor(false);
}

static void test_new_descriptor_in_silence(void)
{
    renew_descriptor(true);
}

/* ---- posts ----------------------------------------------------------------------------------------- */

static struct test_count posted = TEST_COUNT_INIT;
static _Atomic bool was_inside;

static void run_posted(void *ctx, void *argument)
{
    atomic_store(&was_inside, ctx == rig.client->top->ctx && pump_is_inside(&rig.client->pump) &&
                                  argument == &posted);
    test_count_add(&posted, 1);
}

/* From any thread, while a leader sleeps in its poll. */
static void test_post_wakes_the_leader(void)
{
    struct caller leader;
    start(true);
    launch(&leader, 1, TEST_PATIENCE_MS);
    int before = test_count_get(&posted);
    host()->post(host(), run_posted, &posted);
    CU_ASSERT(test_count_wait_ms(&posted, before + 1, 5000));
    CU_ASSERT(atomic_load(&was_inside));
    send_byte();
    land(&leader, 1, MORTISE_OK);
    finish();
}

/* And when nobody is there. */
static void test_post_to_nobody(void)
{
    start(false);
    for (int i = 0; i < 3; i++) {
        int before = test_count_get(&posted);
        host()->post(host(), run_posted, &posted);
        CU_ASSERT(test_count_wait(&posted, before + 1));
    }
    CU_ASSERT(atomic_load(&was_inside));
    finish();
}

/* ---- the service thread ---------------------------------------------------------------------------- */

static struct test_count told_count = TEST_COUNT_INIT;

static void count_told(mortise_status status, mortise_lease *lease, const mortise_error *error,
                       void *user_data)
{
    (void)lease;
    (void)error;
    (void)user_data;
    test_count_add(&told_count, status == MORTISE_OK);
}

/* Work that no caller waits for is done, also long after every caller has gone. */
static void test_service_leads(void)
{
    struct caller caller;
    start(false);
    int before = test_count_get(&told_count);
    CU_ASSERT_EQUAL(
        mortise_acquire_async(rig.handle, "async", FOREVER, count_told, NULL, NULL, NULL),
        MORTISE_OK);
    launch(&caller, 1, TEST_PATIENCE_MS);
    send_byte();
    CU_ASSERT(test_count_wait(&told_count, before + 1));
    send_byte();
    land(&caller, 1, MORTISE_OK);
    CU_ASSERT_EQUAL(
        mortise_acquire_async(rig.handle, "again", FOREVER, count_told, NULL, NULL, NULL),
        MORTISE_OK);
    send_byte();
    CU_ASSERT(test_count_wait(&told_count, before + 2));
    finish();
}

static bool nothing_outstanding(void *argument)
{
    (void)argument;
    pthread_mutex_lock(&rig.client->locks.lock);
    bool none = rig.client->locks.outstanding == 0;
    locks_unlock(&rig.client->locks, START_NOW);
    return none;
}

/* The answer to a release whose caller has gone is read, although nobody waits and no timer is set. */
static void test_answer_that_nobody_waits_for(void)
{
    mortise_lease *lease;
    start(false);
    fake.at_once = true;
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a", TRY, &lease, NULL), MORTISE_OK);
    pthread_mutex_lock(&rig.client->pump.lock);
    fake.at_once = false;
    fake.keep_all = true;
    pthread_mutex_unlock(&rig.client->pump.lock);
    rig.client->locks.settings.unreachable_timeout_ms = 50;
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_INDETERMINATE);
    send_byte();
    CU_ASSERT(test_poll(nothing_outstanding, NULL, 5000));
    finish();
}

static bool turned(void *argument)
{
    return atomic_load(&fake.turns) > *(int *)argument;
}

static bool service_sleeps(void *argument)
{
    (void)argument;
    pthread_mutex_lock(&rig.client->pump.lock);
    bool sleeps = rig.client->pump.service_runs && rig.client->pump.service_sleeps;
    pthread_mutex_unlock(&rig.client->pump.lock);
    return sleeps;
}

static bool timer_ran(void *argument)
{
    (void)argument;
    return atomic_load(&fake.timers) > 0;
}

/* A driver's timer is served although every request was answered at once, and nobody waits. */
static void test_timer_of_an_idle_driver(void)
{
    mortise_lease *lease;
    start(false);
    fake.at_once = true;
    for (int i = 0; i < 3; i++) {
        int turns = atomic_load(&fake.turns);
        pthread_mutex_lock(&rig.client->pump.lock);
        fake.due_after_ms = 20;
        pthread_mutex_unlock(&rig.client->pump.lock);
        CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "a", TRY, &lease, NULL), MORTISE_OK);
        CU_ASSERT(test_poll(turned, &turns, 5000));
        CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    }
    finish();
}

/* The answer to the last caller sets a timer of the driver: the service thread, which sleeps, sees to it. */
static void test_timer_behind_the_last_caller(void)
{
    struct caller caller;
    start(false);
    int posts = test_count_get(&posted);
    host()->post(host(), run_posted, &posted);
    CU_ASSERT(test_count_wait(&posted, posts + 1)); /* by the service thread */
    CU_ASSERT(test_poll(service_sleeps, NULL, TEST_PATIENCE_MS));
    launch(&caller, 1, TEST_PATIENCE_MS);
    CU_ASSERT(test_poll(service_sleeps, NULL, TEST_PATIENCE_MS));
    pthread_mutex_lock(&rig.client->pump.lock);
    fake.due_then_ms = 20;
    pthread_mutex_unlock(&rig.client->pump.lock);
    send_byte();
    land(&caller, 1, MORTISE_OK);
    CU_ASSERT(test_poll(timer_ran, NULL, 5000));
    finish();
}

/* ---- a leader that gets no processor ---------------------------------------------------------------- */

static int stop_pipe[2];
static _Atomic bool stood_still; /* and does not again when the signal comes once more */

static void stand_still(int signal)
{
    char byte;
    (void)signal;
    if (atomic_exchange(&stood_still, true))
        return;
    while (read(stop_pipe[0], &byte, 1) < 0)
        continue;
}

static bool renewed(void *argument)
{
    return stats_of(&rig).renewals >= *(uint64_t *)argument;
}

static bool has_stood_still(void *argument)
{
    (void)argument;
    return atomic_load(&stood_still);
}

static struct sigaction usr1_before;

/* A client with one caller, which leads, and is stopped in its poll. The signal is repeated: ThreadSanitizer may note it and never
 * run the handler. Not in the rhythm of the leader's looks, one a second: it shall not have the pump's lock. */
static void start_still(struct caller *leader)
{
    struct sigaction action = {.sa_handler = stand_still};
    atomic_store(&stood_still, false);
    CU_ASSERT_FATAL(pipe(stop_pipe) == 0);
    sigaction(SIGUSR1, &action, &usr1_before);
    start(false);
    launch(leader, 1, TEST_PATIENCE_MS * 4);
    do {
        CU_ASSERT(test_poll(polling, NULL, TEST_PATIENCE_MS));
        pthread_kill(leader->thread, SIGUSR1);
    } while (!test_poll(has_stood_still, NULL, 700));
}

static void let_go(void)
{
    CU_ASSERT_EQUAL(write(stop_pipe[1], "x", 1), 1);
}

static void finish_still(void)
{
    finish();
    sigaction(SIGUSR1, &usr1_before, NULL);
    close(stop_pipe[0]);
    close(stop_pipe[1]);
}

/* The leading thread is stopped, as by a debugger, in a signal handler or without processor time. Renewals that wait
 * for the driver reach it nevertheless. */
static void test_leader_stands_still(void)
{
    struct caller leader;
    mortise_lease *lease;
    start_still(&leader);
    rig.client->locks.settings.renew_every_ms = 50;
    fake.at_once = true;
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "held",
                                          MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = 3600000), &lease,
                                          NULL),
                          MORTISE_OK);
    uint64_t wanted = 3;
    CU_ASSERT(test_poll(renewed, &wanted, TEST_PATIENCE_MS));
    let_go();
    send_byte();
    land(&leader, 1, MORTISE_OK);
    finish_still();
}

/* A function that a module posts from its own thread (for example, a session is lost) runs, although nothing else is
 * outstanding. */
static void test_post_behind_one_that_stands_still(void)
{
    struct caller leader;
    start_still(&leader);
    for (int i = 0; i < 3; i++) {
        int before = test_count_get(&posted);
        host()->post(host(), run_posted, &posted);
        CU_ASSERT(test_count_wait_ms(&posted, before + 1, TEST_PATIENCE_MS));
    }
    let_go();
    send_byte();
    land(&leader, 1, MORTISE_OK);
    finish_still();
}

/* Callers that wait behind it get their answers, although no lease is held that would be renewed. */
static void test_callers_behind_one_that_stands_still(void)
{
    enum { CALLERS = 3 };
    struct caller leader, callers[CALLERS];
    int before = test_count_get(&returned);
    start_still(&leader);
    launch(callers, CALLERS, TEST_PATIENCE_MS * 4);
    for (int i = 0; i < 1 + CALLERS; i++)
        send_byte(); /* the first answer is the leader's */
    CU_ASSERT(test_count_wait_ms(&returned, before + CALLERS, TEST_PATIENCE_MS));
    let_go();
    land(callers, CALLERS, MORTISE_OK);
    land(&leader, 1, MORTISE_OK);
    finish_still();
}

/* ---- batches, and what never reaches the driver ----------------------------------------------------- */

static sem_t entered, leave;
static size_t batches[64], batch_count;

static void slow_start(void *ctx, mortise_op **ops, size_t n)
{
    if (batch_count < 64)
        batches[batch_count++] = n;
    if (batch_count == 1) {
        sem_post(&entered);
        while (sem_wait(&leave) != 0)
            continue;
    }
    fake_start(ctx, ops, n);
}

static void start_slow(struct caller *first)
{
    start(true);
    CU_ASSERT(mortise_fd(rig.handle, NULL) >= 0);
    sem_init(&entered, 0, 0);
    sem_init(&leave, 0, 0);
    batch_count = 0;
    fake.at_once = true;
    pthread_mutex_lock(&rig.client->pump.lock);
    rig.client->top->module.start = slow_start;
    pthread_mutex_unlock(&rig.client->pump.lock);
    *first = (struct caller){.name = "first", .wait_ms = TEST_PATIENCE_MS};
    pthread_create(&first->thread, NULL, call, first);
    while (sem_wait(&entered) != 0)
        continue;
}

/* Nobody waits for a driver that is busy with another caller's request; what is collected meanwhile is one batch. */
static void test_requests_gather(void)
{
    enum { COUNT = 600, BATCH_MAX = 256 };
    struct caller first;
    int before = test_count_get(&told_count);
    start_slow(&first);
    for (int i = 0; i < COUNT; i++) {
        char name[16];
        snprintf(name, sizeof(name), "n%d", i);
        CU_ASSERT_EQUAL(
            mortise_acquire_async(rig.handle, name, FOREVER, count_told, NULL, NULL, NULL),
            MORTISE_OK); /* returns although the driver is stuck */
    }
    sem_post(&leave);
    land(&first, 1, MORTISE_OK);
    CU_ASSERT_EQUAL(batch_count, 4);
    CU_ASSERT(batches[1] == BATCH_MAX && batches[2] == BATCH_MAX &&
              batches[3] == COUNT - 2 * BATCH_MAX);
    CU_ASSERT_EQUAL(mortise_dispatch(rig.handle), COUNT);
    CU_ASSERT_EQUAL(test_count_get(&told_count), before + COUNT);
    finish();
}

static void test_canceled_before_it_was_started(void)
{
    struct caller first;
    start_slow(&first);
    memset(&got, 0, sizeof(got));
    CU_ASSERT_EQUAL(mortise_acquire_async(rig.handle, "a", FOREVER, told, &got, &got.request, NULL),
                    MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_cancel(rig.handle, got.request), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_dispatch(rig.handle), 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_CANCELED); /* reported although the driver is stuck */
    sem_post(&leave);
    land(&first, 1, MORTISE_OK);
    CU_ASSERT_EQUAL(batch_count, 1); /* the driver never got it */
    CU_ASSERT_EQUAL(atomic_load(&fake.canceled), 0);
    finish();
}

/* ---- a driver that breaks its contract -------------------------------------------------------------- */

/* A completion outside of the pump is ignored; the op still belongs to the driver. */
static void test_completed_from_outside(void)
{
    struct caller caller;
    start(true);
    launch(&caller, 1, TEST_PATIENCE_MS);
    host()->complete(host(), fake.first, MORTISE_NOTSUP);
    host()->fail(host(), fake.first, MORTISE_BACKEND, 1, false, "from outside");
    CU_ASSERT_EQUAL(fake.first->status, MORTISE_OK); /* untouched: zero */
    send_byte();
    land(&caller, 1, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_state(caller.lease), MORTISE_STATE_HELD);
    finish();
}

static void twice_start(void *ctx, mortise_op **ops, size_t n)
{
    (void)ctx;
    for (size_t i = 0; i < n; i++) {
        grant(ops[i]);
        host()->complete(host(), ops[i], MORTISE_BUSY);
        host()->fail(host(), ops[i], MORTISE_BACKEND, 1, false, "again");
    }
}

static void test_completed_twice(void)
{
    mortise_lease *lease;
    start(true);
    rig.client->top->module.start = twice_start;
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a", TRY, &lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    finish();
}

/* An op of a module, as plugins have them, and the memory behind it, which the core must not touch. */
static struct own {
    mortise_op op;
    unsigned char behind[256];
} own;
static int own_done;

static void have_own(mortise_op *op)
{
    own_done += op == &own.op;
}

static void own_start(void *ctx, mortise_op **ops, size_t n)
{
    (void)ctx;
    host()->complete(host(), &own.op, MORTISE_OK);
    for (size_t i = 0; i < n; i++)
        grant(ops[i]);
}

static void test_completes_its_own(void)
{
    mortise_lease *lease;
    start(true);
    own = (struct own){.op = {.done = have_own}};
    memset(own.behind, 0xa5, sizeof(own.behind));
    own_done = 0;
    rig.client->top->module.start = own_start;
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a", TRY, &lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(own_done, 1);
    for (size_t i = 0; i < sizeof(own.behind); i++)
        CU_ASSERT_EQUAL(own.behind[i], 0xa5);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    finish();
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"leaders name the next", test_leaders_name_the_next},
        {"all at once", test_all_at_once},
        {"followers time out", test_followers_time_out},
        {"an earlier timer", test_earlier_timer},
        {"an outcome by another", test_outcome_by_another},
        {"a new descriptor", test_new_descriptor},
        {"a new descriptor, and nobody said so", test_new_descriptor_in_silence},
        {"a post wakes the leader", test_post_wakes_the_leader},
        {"a post to nobody", test_post_to_nobody},
        {"the service thread leads", test_service_leads},
        {"an answer that nobody waits for", test_answer_that_nobody_waits_for},
        {"the timer of an idle driver", test_timer_of_an_idle_driver},
        {"a timer behind the last caller", test_timer_behind_the_last_caller},
        {"a leader that stands still", test_leader_stands_still},
        {"a post behind one that stands still", test_post_behind_one_that_stands_still},
        {"callers behind one that stands still", test_callers_behind_one_that_stands_still},
        {"requests gather", test_requests_gather},
        {"canceled before it was started", test_canceled_before_it_was_started},
        {"completed from outside", test_completed_from_outside},
        {"completed twice", test_completed_twice},
        {"completes an op of its own", test_completes_its_own},
        CU_TEST_INFO_NULL,
    };
    return rig_run("pump", tests);
}
