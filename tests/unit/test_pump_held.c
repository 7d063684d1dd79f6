/* test_pump_held.c - what callbacks ask for is held back and goes out together (pump_hold), but not once somebody waits
 * for it. The clients have no thread but the test's, and their leader sleeps: nobody else could send it. Only the last test has
 * the service thread, which must not sleep through a timer that comes of what was held back. */
#include "fake_driver.h"

#define BLOCKED 2
#define LEASES 2

/* ---- callers that wait: one leads, and sleeps in its poll; the other follows ------------------------- */

struct blocked {
    pthread_t thread;
    const char *name;
    mortise_status status;
};

static void *block(void *argument)
{
    struct blocked *blocked = argument;
    mortise_lease *lease;
    blocked->status = mortise_acquire(rig.handle, blocked->name, FOREVER, &lease, NULL);
    return NULL;
}

static bool all_sleep(void *argument)
{
    struct pump *pump = &rig.client->pump;
    (void)argument;
    pthread_mutex_lock(&pump->lock);
    bool all = pump->polling && !pump->inside && pump->follower_count == BLOCKED - 1;
    pthread_mutex_unlock(&pump->lock);
    return all;
}

static void begin(struct blocked *blocked)
{
    static const char *const names[BLOCKED] = {"leads", "follows"};
    for (int i = 0; i < BLOCKED; i++) {
        blocked[i] = (struct blocked){.name = names[i]};
        pthread_create(&blocked[i].thread, NULL, block, &blocked[i]);
    }
    CU_ASSERT(test_poll(all_sleep, NULL, TEST_PATIENCE_MS));
}

static void end(struct blocked *blocked)
{
    for (int i = 0; i < BLOCKED; i++)
        send_byte();
    for (int i = 0; i < BLOCKED; i++) {
        pthread_join(blocked[i].thread, NULL);
        CU_ASSERT_EQUAL(blocked[i].status, MORTISE_OK);
    }
}

/* ---- the driver notes who starts what ---------------------------------------------------------------- */

static struct note {
    pthread_t thread;                                            /* whose requests count */
    size_t calls[MORTISE_OP_PING + 1], ops[MORTISE_OP_PING + 1]; /* by kind */
} note;

static void note_start(void *ctx, mortise_op **ops, size_t n)
{
    if (pthread_equal(pthread_self(), note.thread)) {
        note.calls[ops[0]->kind]++;
        note.ops[ops[0]->kind] += n;
    }
    fake_start(ctx, ops, n);
}

static void start_noted(void)
{
    start(true);
    CU_ASSERT_FATAL(mortise_fd(rig.handle, NULL) >= 0);
    rig.client->locks.settings.unreachable_timeout_ms = 2000; /* what is not sent fails, and soon */
    memset(&note, 0, sizeof(note));
    note.thread = pthread_self();
    pthread_mutex_lock(&rig.client->pump.lock);
    rig.client->top->module.start = note_start;
    pthread_mutex_unlock(&rig.client->pump.lock);
}

static void answer_at_once(bool at_once)
{
    pthread_mutex_lock(&rig.client->pump.lock);
    fake.at_once = at_once;
    pthread_mutex_unlock(&rig.client->pump.lock);
}

/* Runs the callback in mortise_dispatch(), while all others sleep. */
static void dispatch(mortise_acquire_callback callback)
{
    answer_at_once(true);
    CU_ASSERT_EQUAL(mortise_acquire_async(rig.handle, "async", FOREVER, callback, NULL, NULL, NULL),
                    MORTISE_OK);
    CU_ASSERT(all_sleep(NULL));
    memset(note.calls, 0, sizeof(note.calls));
    memset(note.ops, 0, sizeof(note.ops));
    CU_ASSERT_EQUAL(mortise_dispatch(rig.handle), 1);
    answer_at_once(false);
}

/* ---- the tests ---------------------------------------------------------------------------------------- */

static mortise_lease *leases[LEASES];
static const char *const names[LEASES] = {"a", "b"};

static void release_them(mortise_status status, mortise_lease *lease, const mortise_error *error,
                         void *user_data)
{
    (void)lease;
    (void)error;
    (void)user_data;
    CU_ASSERT_EQUAL(status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release_many(leases, LEASES, NULL), MORTISE_OK);
}

static void test_release_many(void)
{
    struct blocked blocked[BLOCKED];
    start_noted();
    fake.at_once = true;
    CU_ASSERT_EQUAL_FATAL(mortise_acquire_many(rig.handle, names, LEASES, TRY, leases, NULL),
                          MORTISE_OK);
    fake.at_once = false;
    begin(blocked);
    dispatch(release_them);
    CU_ASSERT_EQUAL(note.calls[MORTISE_OP_RELEASE], 1);
    CU_ASSERT_EQUAL(note.ops[MORTISE_OP_RELEASE], LEASES);
    end(blocked);
    finish();
}

static void acquire_them(mortise_status status, mortise_lease *lease, const mortise_error *error,
                         void *user_data)
{
    (void)lease;
    (void)error;
    (void)user_data;
    CU_ASSERT_EQUAL(status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_acquire_many(rig.handle, names, LEASES, TRY, leases, NULL), MORTISE_OK);
}

static void test_acquire_many(void)
{
    struct blocked blocked[BLOCKED];
    start_noted();
    begin(blocked);
    dispatch(acquire_them);
    CU_ASSERT_EQUAL(note.calls[MORTISE_OP_ACQUIRE], 1);
    CU_ASSERT_EQUAL(note.ops[MORTISE_OP_ACQUIRE], LEASES);
    end(blocked);
    finish();
}

static void count_told(mortise_status status, mortise_lease *lease, const mortise_error *error,
                       void *user_data)
{
    (void)lease;
    (void)error;
    (void)user_data;
    CU_ASSERT_EQUAL(status, MORTISE_OK);
}

static void ask_for_them(mortise_status status, mortise_lease *lease, const mortise_error *error,
                         void *user_data)
{
    (void)lease;
    (void)error;
    (void)user_data;
    CU_ASSERT_EQUAL(status, MORTISE_OK);
    for (int i = 0; i < LEASES; i++)
        CU_ASSERT_EQUAL(
            mortise_acquire_async(rig.handle, names[i], FOREVER, count_told, NULL, NULL, NULL),
            MORTISE_OK);
    CU_ASSERT_EQUAL(note.calls[MORTISE_OP_ACQUIRE], 0);
}

/* Nobody waits for it in the callback: it goes out when the callbacks have ended, and not when some thread has time. */
static void test_acquire_async(void)
{
    struct blocked blocked[BLOCKED];
    start_noted();
    begin(blocked);
    dispatch(ask_for_them);
    CU_ASSERT_EQUAL(note.calls[MORTISE_OP_ACQUIRE], 1);
    CU_ASSERT_EQUAL(note.ops[MORTISE_OP_ACQUIRE], LEASES);
    end(blocked);
    CU_ASSERT_EQUAL(mortise_dispatch(rig.handle), LEASES);
    finish();
}

static bool service_sleeps(void *argument)
{
    struct pump *pump = &rig.client->pump;
    (void)argument;
    pthread_mutex_lock(&pump->lock);
    bool sleeps = pump->service_runs && pump->service_sleeps && pump->due_ns == MORTISE_NEVER;
    pthread_mutex_unlock(&pump->lock);
    return sleeps;
}

static bool timer_ran(void *argument)
{
    (void)argument;
    return atomic_load(&fake.timers) > 0;
}

static void add_one(void *ctx, void *count)
{
    (void)ctx;
    test_count_add(count, 1);
}

static void answered(mortise_op *op)
{
    CU_ASSERT_EQUAL(op->status, MORTISE_OK);
}

/* The answer comes at once and sets a timer of the driver. The service thread slept already, and nobody has woken it since. */
static void test_timer(void)
{
    struct test_count posted = TEST_COUNT_INIT;
    struct task task = {.op = {.kind = MORTISE_OP_PING, .core_state = OP_IDLE, .done = answered}};
    struct task_list tasks = {NULL, NULL};
    start(false);
    struct pump *pump = &rig.client->pump;
    host()->post(host(), add_one, &posted);
    CU_ASSERT(test_count_wait(&posted, 1)); /* by the service thread */
    CU_ASSERT(test_poll(service_sleeps, NULL, TEST_PATIENCE_MS));
    answer_at_once(true);
    fake.due_after_ms = 20;
    task_append(&tasks, &task);
    pump_hold(pump);
    pump_start_soon(pump, &tasks);
    CU_ASSERT(service_sleeps(NULL));
    pump_let_go(pump);
    CU_ASSERT(test_poll(timer_ran, NULL, TEST_PATIENCE_MS));
    finish();
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"several releases in a callback, while others wait", test_release_many},
        {"several acquires in a callback, while others wait", test_acquire_many},
        {"what a callback does not wait for", test_acquire_async},
        {"a timer of the driver", test_timer},
        CU_TEST_INFO_NULL,
    };
    return rig_run("pump_held", tests);
}
