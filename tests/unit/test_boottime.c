/* test_boottime.c - the clock of deadlines counts while the machine sleeps (R1). The library runs in a time namespace
 * whose CLOCK_BOOTTIME is a day ahead of CLOCK_MONOTONIC, as after a day of sleep, and a watchdog on that clock
 * renews a lease. Needs root if the system forbids user namespaces. And threads sleep while the clock jumps ahead, which their
 * sleep in the kernel does not notice, as after a suspend: the timers of drivers run all the same. */
#include "fake_driver.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* In a time namespace whose CLOCK_BOOTTIME is a day ahead, as if the machine had slept so long. 0, or the line
 * that was wrong. */
static int live_on_boottime(void)
{
    struct timespec monotonic;
    mortise_lease *lease;
    rig_open_real(&rig, "renew_every = 50ms\n");
    clock_gettime(CLOCK_MONOTONIC, &monotonic);
    if (clock_now() / NS_PER_S - monotonic.tv_sec < 80000)
        return __LINE__;
    if (mortise_acquire(rig.handle, "a", MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = 60000), &lease,
                        NULL) != MORTISE_OK)
        return __LINE__;
    while (mortise_state(lease) == MORTISE_STATE_HELD && stats_of(&rig).renewals < 4)
        poll(NULL, 0, 1);
    if (mortise_release(lease, NULL) != MORTISE_OK) /* the watchdog woke in time */
        return __LINE__;
    return mortise_close(rig.handle, NULL) == MORTISE_OK ? 0 : __LINE__;
}

static bool shift_boottime(void)
{
    static const char offset[] = "boottime 86400 0";
    int fd = unshare(CLONE_NEWTIME) == 0 ? open("/proc/self/timens_offsets", O_WRONLY) : -1;
    bool shifted = fd >= 0 && write(fd, offset, sizeof(offset) - 1) > 0;
    if (fd >= 0)
        close(fd);
    return shifted;
}

static void test_boottime(void)
{
    enum { SKIPPED = 77, WRONG = 1 };
    int status;
    fflush(NULL);
    pid_t outer = fork();
    CU_ASSERT_FATAL(outer >= 0);
    if (outer == 0) {
        bool shifted = shift_boottime();
        pid_t inner = shifted ? fork() : -1; /* the namespace is that of children */
        if (inner == 0) {
            int line = live_on_boottime();
            if (line != 0)
                fprintf(stderr, "    the child failed at line %d\n", line);
            syscall(SYS_exit_group, line != 0 ? WRONG : 0);
        }
        bool right = inner > 0 && waitpid(inner, &status, 0) == inner && status == 0;
        syscall(SYS_exit_group, inner < 0 ? SKIPPED : right ? 0 : WRONG);
    }
    CU_ASSERT_EQUAL_FATAL(waitpid(outer, &status, 0), outer);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
        fprintf(stderr, " (skipped: no time namespace can be made here) ");
    else
        CU_ASSERT_EQUAL(status, 0);
}

/* ---- threads that sleep while the machine does ------------------------------------------------------ */

#define TIMER_MS (TEST_PATIENCE_MS * 10)
#define SOON_MS 10000 /* ten times what a leader sleeps: the machine may be busy */

static bool polls(void *argument)
{
    struct pump *pump = &rig.client->pump;
    (void)argument;
    pthread_mutex_lock(&pump->lock);
    bool is = pump->polling;
    pthread_mutex_unlock(&pump->lock);
    return is;
}

static bool service_sleeps(void *argument)
{
    struct pump *pump = &rig.client->pump;
    (void)argument;
    pthread_mutex_lock(&pump->lock);
    bool is = pump->service_runs && pump->service_sleeps && pump->due_ns != MORTISE_NEVER;
    pthread_mutex_unlock(&pump->lock);
    return is;
}

static bool timer_ran(void *argument)
{
    (void)argument;
    return atomic_load(&fake.timers) > 0;
}

/* The machine sleeps until the timer is overdue. */
static void suspend_machine(void)
{
    set_now(clock_now() + 2 * TIMER_MS * NS_PER_MS);
}

static void *acquire_a(void *argument)
{
    mortise_lease *lease;
    mortise_status *status = argument;
    *status = mortise_acquire(rig.handle, "a", FOREVER, &lease, NULL);
    return NULL;
}

/* A caller that waits alone leads. */
static void test_caller_leads(void)
{
    pthread_t thread;
    mortise_status status;
    start(true);
    fake.due_after_ms = TIMER_MS;
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, acquire_a, &status), 0);
    CU_ASSERT(test_poll(polls, NULL, TEST_PATIENCE_MS));
    suspend_machine();
    bool ran = test_poll(timer_ran, NULL, SOON_MS);
    CU_ASSERT(ran);
    if (!ran)
        send_byte();
    pthread_join(thread, NULL);
    CU_ASSERT_EQUAL(status, MORTISE_OK);
    finish();
}

/* The service thread leads for callbacks. */
static void test_service_leads(void)
{
    static struct outcome got;
    start(false);
    fake.due_after_ms = TIMER_MS;
    CU_ASSERT_EQUAL(mortise_acquire_async(rig.handle, "a", FOREVER, told, &got, NULL, NULL),
                    MORTISE_OK);
    CU_ASSERT(test_poll(polls, NULL, TEST_PATIENCE_MS));
    suspend_machine();
    CU_ASSERT(test_poll(timer_ran, NULL, SOON_MS));
    finish();
}

/* Nothing is wanted, and the service thread sleeps until the timer. The next call wakes it. */
static void test_service_sleeps(void)
{
    mortise_lease *lease;
    start(false);
    fake.at_once = true;
    fake.due_after_ms = TIMER_MS;
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a", TRY, &lease, NULL), MORTISE_OK);
        CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
        if (i == 0) {
            CU_ASSERT(test_poll(service_sleeps, NULL, TEST_PATIENCE_MS));
            suspend_machine();
        }
    }
    CU_ASSERT(test_poll(timer_ran, NULL, SOON_MS));
    finish();
}

/* ---- how long a thread sleeps ----------------------------------------------------------------------- */

static void test_poll_ms(void)
{
    CU_ASSERT_EQUAL(clock_poll_ms(DEADLINE_PASSED), 0);
    CU_ASSERT_EQUAL(clock_poll_ms(now_ns()), 0);
    CU_ASSERT_EQUAL(clock_poll_ms(now_ns() + 1), 1);
    CU_ASSERT_EQUAL(clock_poll_ms(now_ns() + 2 * MS - 1), 2);
    CU_ASSERT_EQUAL(clock_poll_ms(MORTISE_NEVER - 1), 3600000);
    CU_ASSERT_EQUAL(clock_poll_ms(MORTISE_NEVER), -1);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"R1: the clock is BOOTTIME", test_boottime},
        {"a caller leads while the machine sleeps", test_caller_leads},
        {"the service thread leads meanwhile", test_service_leads},
        {"the service thread sleeps, too", test_service_sleeps},
        {"a sleep until an instant", test_poll_ms},
        CU_TEST_INFO_NULL,
    };
    return rig_run("boottime", tests);
}
