/* test_pump_loop.c - an event loop that dispatches while other threads are in the driver (mortise_fd): it sleeps until there is
 * something for it to do, and is woken then. The clients have no thread of their own: what the loop does not do, nobody does. Only
 * the one that is closed has. */
#include "fake_driver.h"

#include <sched.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

static int loop; /* an epoll set with the client's descriptor */

static void start_loop(uint32_t trigger)
{
    mortise_lease *lease;
    struct epoll_event event = {.events = EPOLLIN | trigger};
    start(true);
    loop = epoll_create1(EPOLL_CLOEXEC);
    CU_ASSERT_EQUAL_FATAL(epoll_ctl(loop, EPOLL_CTL_ADD, mortise_fd(rig.handle, NULL), &event), 0);
    fake.at_once = true; /* after this call the pump knows the driver's descriptor */
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a", TRY, &lease, NULL), MORTISE_OK);
}

static void finish_loop(void)
{
    finish();
    close(loop);
}

/* Dispatches until the descriptor is not readable. Returns how often. */
static int go_round(void)
{
    enum { MANY = 100 };
    struct epoll_event event;
    int rounds = 0;
    for (; rounds < MANY && epoll_wait(loop, &event, 1, 0) == 1; rounds++)
        CU_ASSERT(mortise_dispatch(rig.handle) >= 0);
    return rounds;
}

/* ---- a thread that stays in the driver -------------------------------------------------------------- */

static sem_t entered, leave;

static void stay(void *ctx, mortise_op **ops, size_t n)
{
    rig.client->top->module.start = fake_start; /* the next ones do not */
    sem_post(&entered);
    while (sem_wait(&leave) != 0)
        continue;
    fake_start(ctx, ops, n);
}

static void *acquire_b(void *argument)
{
    mortise_lease *lease;
    (void)argument;
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "b", TRY, &lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    return NULL;
}

static pthread_t get_stuck(void)
{
    pthread_t thread;
    sem_init(&entered, 0, 0);
    sem_init(&leave, 0, 0);
    rig.client->top->module.start = stay; /* nobody is inside */
    pthread_create(&thread, NULL, acquire_b, NULL);
    while (sem_wait(&entered) != 0)
        continue;
    return thread;
}

static void come_back(pthread_t thread)
{
    sem_post(&leave);
    pthread_join(thread, NULL);
}

/* A callback becomes due. The driver does not get the request. */
static void cancel_one(struct outcome *got)
{
    *got = (struct outcome){.calls = 0};
    CU_ASSERT_EQUAL(mortise_acquire_async(rig.handle, "c", FOREVER, told, got, &got->request, NULL),
                    MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_cancel(rig.handle, got->request), MORTISE_OK);
}

/* What is ready for the driver is for the loop again when that thread has left; and callbacks run as ever meanwhile. */
static void be_busy(uint32_t trigger)
{
    struct outcome got;
    start_loop(trigger);
    go_round();
    for (int i = 0; i < 3; i++) {
        pthread_t thread = get_stuck();
        int turns = atomic_load(&fake.turns);
        send_byte();
        CU_ASSERT_EQUAL(go_round(), 1);
        cancel_one(&got);
        CU_ASSERT_EQUAL(go_round(), 1);
        CU_ASSERT_EQUAL(got.status, MORTISE_CANCELED);
        CU_ASSERT_EQUAL(atomic_load(&fake.turns), turns);
        come_back(thread);
        CU_ASSERT_EQUAL(go_round(), 1);
        CU_ASSERT_EQUAL(atomic_load(&fake.turns), turns + 1);
    }
    finish_loop();
}

static void test_driver_is_busy(void)
{
    be_busy(0);
}

static void test_driver_is_busy_edges(void)
{
    be_busy(EPOLLET);
}

static void come_back_now(mortise_status status, mortise_lease *lease, const mortise_error *error,
                          void *user_data)
{
    pthread_t *thread = user_data;
    struct epoll_event event;
    CU_ASSERT_EQUAL(status, MORTISE_CANCELED);
    CU_ASSERT(lease == NULL && error != NULL);
    come_back(*thread);
    CU_ASSERT_EQUAL(epoll_wait(loop, &event, 1, 0), 1);
}

/* That thread leaves while a callback runs, which may take long: another thread of the loop is woken at once. */
static void test_edge_during_a_callback(void)
{
    mortise_request request;
    start_loop(EPOLLET);
    go_round();
    pthread_t thread = get_stuck();
    int turns = atomic_load(&fake.turns);
    send_byte();
    CU_ASSERT_EQUAL(
        mortise_acquire_async(rig.handle, "c", FOREVER, come_back_now, &thread, &request, NULL),
        MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_cancel(rig.handle, request), MORTISE_OK);
    CU_ASSERT_EQUAL(go_round(), 2);
    CU_ASSERT_EQUAL(atomic_load(&fake.turns), turns + 1);
    finish_loop();
}

/* ---- a thread that comes and goes ------------------------------------------------------------------- */

static _Atomic bool is_over;

static void turn_slowly(void *ctx, const struct pollfd *ready, size_t n)
{
    sched_yield(); /* to the loop */
    fake_turn(ctx, ready, n);
}

static void *come_and_go(void *argument)
{
    struct pump *pump = &rig.client->pump;
    (void)argument;
    while (!atomic_load(&is_over)) {
        pthread_mutex_lock(&pump->lock);
        pump->turn_wanted |= !pump->inside; /* it looks at no descriptor */
        pthread_mutex_unlock(&pump->lock);
        pump_kick(pump);
    }
    return NULL;
}

static bool is_read(void)
{
    int left = -1;
    return ioctl(fake.in, FIONREAD, &left) == 0 && left == 0;
}

/* Whenever that thread leaves, the loop learns of what it could not read before. */
static void test_no_edge_is_lost(void)
{
    enum { BYTES = 3000 };
    pthread_t thread;
    struct epoll_event event;
    int woken = 1;
    start_loop(EPOLLET);
    go_round();
    rig.client->top->module.turn = turn_slowly;
    atomic_store(&is_over, false);
    pthread_create(&thread, NULL, come_and_go, NULL);
    for (int i = 0; i < BYTES && woken == 1; i++) {
        send_byte();
        while (!is_read() && woken == 1) {
            woken = epoll_wait(loop, &event, 1, TEST_PATIENCE_MS);
            CU_ASSERT(mortise_dispatch(rig.handle) >= 0);
        }
    }
    CU_ASSERT_EQUAL(woken, 1);
    atomic_store(&is_over, true);
    pthread_join(thread, NULL);
    finish_loop();
}

/* ---- a client that is being closed ------------------------------------------------------------------ */

enum { LEASES = 20 };

static void *close_it(void *argument)
{
    mortise_status *status = argument;
    *status = mortise_close(rig.handle, NULL);
    return NULL;
}

static bool all_released(void *argument)
{
    (void)argument;
    return atomic_load(&fake.starts) >= 2 * LEASES;
}

static bool has_turned(void *turns)
{
    return atomic_load(&fake.turns) > *(int *)turns;
}

/* Whether what is ready is left to a dispatch first, for two milliseconds each time. */
static bool is_left_to_dispatch(void)
{
    struct pump *pump = &rig.client->pump;
    pthread_mutex_lock(&pump->lock);
    bool left = pump->dispatched;
    pthread_mutex_unlock(&pump->lock);
    return left;
}

/* A dispatch makes no turns then. */
static void test_answers_to_a_close(void)
{
    pthread_t thread;
    mortise_lease *lease;
    mortise_status status;
    char name[] = "a";
    start(false);
    int fd = mortise_fd(rig.handle, NULL);
    fake.at_once = true;
    for (int i = 0; i < LEASES; i++, name[0]++)
        CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, name, TRY, &lease, NULL), MORTISE_OK);
    fake.at_once = false;
    fake.keep_all = true;
    CU_ASSERT(is_left_to_dispatch());
    pthread_create(&thread, NULL, close_it, &status);
    CU_ASSERT(test_poll(all_released, NULL, TEST_PATIENCE_MS));
    CU_ASSERT_FALSE(is_left_to_dispatch());
    pump_dispatched(&rig.client->pump, fd); /* by a first mortise_fd() that comes late */
    CU_ASSERT_FALSE(is_left_to_dispatch());
    for (int i = 0; i < LEASES; i++) {
        int turns = atomic_load(&fake.turns);
        send_byte();
        CU_ASSERT(test_poll(has_turned, &turns, TEST_PATIENCE_MS));
    }
    pthread_join(thread, NULL);
    CU_ASSERT_EQUAL(status, MORTISE_OK);
    close(fake.in);
    close(fake.out);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"the driver is busy", test_driver_is_busy},
        {"the driver is busy, edge-triggered", test_driver_is_busy_edges},
        {"an edge during a callback", test_edge_during_a_callback},
        {"no edge is lost", test_no_edge_is_lost},
        {"answers to a close", test_answers_to_a_close},
        CU_TEST_INFO_NULL,
    };
    return rig_run("pump_loop", tests);
}
