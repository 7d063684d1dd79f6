/* test_closed_fds.c - the application closes all descriptors, and has others under their numbers: the pump writes to none of
 * them, and goes on with new ones of its own. (The driver's descriptor is left alone: what a driver does without it is its own
 * matter.) No service thread, so nobody else can do what the caller has to. */
#include "fake_driver.h"
#include "pump/pump_internal.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static struct pump *pump_of_rig(void)
{
    return &rig.client->pump;
}

static void *call(void *argument)
{
    mortise_lease *lease;
    mortise_status *status = argument;
    *status = mortise_acquire(rig.handle, "a", MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS), &lease,
                              NULL);
    return NULL;
}

static bool polls(void *argument)
{
    (void)argument;
    pthread_mutex_lock(&pump_of_rig()->lock);
    bool is = pump_of_rig()->polling;
    pthread_mutex_unlock(&pump_of_rig()->lock);
    return is;
}

static void launch(pthread_t *thread, mortise_status *status)
{
    CU_ASSERT_EQUAL_FATAL(pthread_create(thread, NULL, call, status), 0);
    CU_ASSERT_FATAL(test_poll(polls, NULL, TEST_PATIENCE_MS));
}

/* What the application has under the numbers of the pump's descriptors, and of those of mortise_fd(). */
static int file, taken[2], taken_shown[2];

/* The system call: ThreadSanitizer would report the thread that polls, which is the point. */
static int put_under(int number)
{
    return (int)syscall(SYS_dup3, file, number, O_CLOEXEC);
}

static void put_under_both(const struct wakeup *wakeup, int numbers[2])
{
    numbers[0] = put_under(wakeup->epoll);
    numbers[1] = put_under(wakeup->event);
    CU_ASSERT(numbers[0] >= 0 && numbers[1] >= 0);
}

static void take_numbers(void)
{
    file = memfd_create("the application's", MFD_CLOEXEC);
    CU_ASSERT_FATAL(file >= 0);
    pthread_mutex_lock(&pump_of_rig()->lock);
    put_under_both(&pump_of_rig()->wakeup, taken);
    pthread_mutex_unlock(&pump_of_rig()->lock);
}

static void take_shown_numbers(void)
{
    pthread_mutex_lock(&rig.client->events.lock);
    put_under_both(&rig.client->events.wakeup, taken_shown);
    pthread_mutex_unlock(&rig.client->events.lock);
}

static bool is_untouched(int fd)
{
    struct stat about, other;
    return fstat(fd, &about) == 0 && fstat(file, &other) == 0 && about.st_ino == other.st_ino &&
           about.st_size == 0;
}

static void give_numbers_back(void)
{
    CU_ASSERT(is_untouched(taken[0]) && is_untouched(taken[1]));
    syscall(SYS_close, taken[0]);
    syscall(SYS_close, taken[1]);
    close(file);
}

static void give_shown_numbers_back(void)
{
    CU_ASSERT(is_untouched(taken_shown[0]) && is_untouched(taken_shown[1]));
    syscall(SYS_close, taken_shown[0]);
    syscall(SYS_close, taken_shown[1]);
}

/* A thread that polls cannot be woken then; but nothing is written, and the next one is. */
static void test_poke(void)
{
    pthread_t thread;
    mortise_status status;
    start(true);
    launch(&thread, &status);
    take_numbers();
    pthread_mutex_lock(&pump_of_rig()->lock);
    pump_poke_locked(pump_of_rig());
    pthread_mutex_unlock(&pump_of_rig()->lock);
    CU_ASSERT(is_untouched(file));
    send_byte();
    pthread_join(thread, NULL);
    CU_ASSERT_EQUAL(status, MORTISE_OK);
    give_numbers_back();
    finish();
}

/* Only the poke's: the set is ours, and another poke is made in it. */
static void test_poke_gone(void)
{
    pthread_t thread;
    mortise_status status;
    for (int is_closed = 0; is_closed < 2; is_closed++) {
        start(true);
        launch(&thread, &status);
        struct pump *pump = pump_of_rig();
        pthread_mutex_lock(&pump->lock);
        file = memfd_create("the application's", MFD_CLOEXEC);
        uint64_t looks = pump->looks;
        int number = pump->wakeup.event;
        CU_ASSERT(number >= 500); /* not among the first that a program gets */
        CU_ASSERT(put_under(number) == number);
        if (is_closed)
            syscall(SYS_close, number);
        pump_poke_locked(pump);
        while (pump->looks == looks) /* who polls has woken up */
            pthread_cond_wait(&pump->left, &pump->lock);
        CU_ASSERT(pump->wakeup.event != number || is_closed);
        pthread_mutex_unlock(&pump->lock);
        send_byte();
        pthread_join(thread, NULL);
        CU_ASSERT_EQUAL(status, MORTISE_OK);
        CU_ASSERT(is_closed || is_untouched(number));
        if (!is_closed)
            syscall(SYS_close, number);
        close(file);
        finish();
    }
}

/* The next one that polls makes new ones, hears the driver's descriptor, and can be woken. */
static void test_new_ones(void)
{
    pthread_t thread;
    mortise_status status;
    start(true);
    launch(&thread, &status);
    take_numbers();
    send_byte();
    pthread_join(thread, NULL);
    CU_ASSERT_EQUAL(status, MORTISE_OK);
    for (int i = 0; i < 2; i++) {
        launch(&thread, &status);
        pthread_mutex_lock(&pump_of_rig()->lock);
        pump_poke_locked(pump_of_rig());
        pthread_mutex_unlock(&pump_of_rig()->lock);
        send_byte();
        pthread_join(thread, NULL);
        CU_ASSERT_EQUAL(status, MORTISE_OK);
    }
    CU_ASSERT(pump_of_rig()->wakeup.epoll != taken[0] && pump_of_rig()->wakeup.event != taken[1]);
    give_numbers_back();
    finish();
}

/* Closed, and nothing is under the numbers. */
static void test_closed(void)
{
    pthread_t thread;
    mortise_status status;
    start(true);
    launch(&thread, &status);
    take_numbers();
    syscall(SYS_close, taken[0]);
    syscall(SYS_close, taken[1]);
    send_byte();
    pthread_join(thread, NULL);
    CU_ASSERT_EQUAL(status, MORTISE_OK);
    launch(&thread, &status);
    send_byte();
    pthread_join(thread, NULL);
    CU_ASSERT_EQUAL(status, MORTISE_OK);
    close(file);
    finish();
}

static bool is_open(int number)
{
    return fcntl(number, F_GETFD) >= 0;
}

/* The pump has its set then. */
static void acquire_once(void)
{
    pthread_t thread;
    mortise_status status;
    launch(&thread, &status);
    send_byte();
    pthread_join(thread, NULL);
    CU_ASSERT_EQUAL(status, MORTISE_OK);
}

/* Nobody has polled in between, and found out. What is still the client's is closed. */
static void test_close(void)
{
    start(true);
    acquire_once();
    CU_ASSERT_FATAL(mortise_fd(rig.handle, NULL) >= 0);
    struct wakeup all[] = {pump_of_rig()->wakeup, rig.client->events.wakeup};
    finish();
    for (int i = 0; i < 2; i++)
        CU_ASSERT(!is_open(all[i].epoll) && !is_open(all[i].event));
    start(true);
    acquire_once();
    CU_ASSERT_FATAL(mortise_fd(rig.handle, NULL) >= 0);
    take_numbers();
    take_shown_numbers();
    finish();
    give_shown_numbers_back();
    give_numbers_back();
}

/* An async acquire is told in a dispatch, for which the descriptor wakes. */
static void expect_told(int fd)
{
    static struct outcome outcome;
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    want(&rig, &outcome, "b", FOREVER);
    send_byte();
    while (outcome.calls == 0 && poll(&polled, 1, TEST_PATIENCE_MS) == 1 &&
           polled.revents == POLLIN)
        CU_ASSERT(mortise_dispatch(rig.handle) >= 0);
    CU_ASSERT_EQUAL(outcome.calls, 1);
    CU_ASSERT_EQUAL(outcome.status, MORTISE_OK);
}

/* is_closed: nothing is under the numbers. */
static void expect_another_fd(bool is_closed, bool has_fd)
{
    take_numbers();
    if (has_fd)
        take_shown_numbers();
    for (int i = 0; is_closed && i < 2; i++) {
        syscall(SYS_close, taken[i]);
        if (has_fd)
            syscall(SYS_close, taken_shown[i]);
    }
    int fd = mortise_fd(rig.handle, NULL);
    CU_ASSERT_FATAL(fd >= 0 && !is_untouched(fd));
    expect_told(fd);
    if (is_closed) {
        close(file);
        return;
    }
    if (has_fd)
        give_shown_numbers_back();
    give_numbers_back();
}

/* The first mortise_fd(), and one after it. Nobody polls, so it finds out by itself. */
static void test_fd(void)
{
    for (int is_closed = 0; is_closed < 2; is_closed++) {
        start(true);
        acquire_once();
        expect_another_fd(is_closed, false);
        expect_another_fd(is_closed, true);
        finish();
    }
}

/* A thread that polls: it has to see that the set is gone before there can be another. */
static void test_fd_meanwhile(void)
{
    pthread_t thread;
    mortise_status status, fd_status;
    start(true);
    launch(&thread, &status);
    take_numbers();
    CU_ASSERT_EQUAL(mortise_fd(rig.handle, &fd_status), -1);
    CU_ASSERT_EQUAL(fd_status, MORTISE_NOMEM);
    send_byte();
    pthread_join(thread, NULL);
    CU_ASSERT_EQUAL(status, MORTISE_OK);
    int fd = mortise_fd(rig.handle, &fd_status);
    CU_ASSERT_FATAL(fd >= 0 && fd_status == MORTISE_OK);
    expect_told(fd);
    give_numbers_back();
    finish();
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"a poke writes nothing to another's file", test_poke},
        {"the poke's descriptor is gone", test_poke_gone},
        {"others are under the numbers", test_new_ones},
        {"nothing is under the numbers", test_closed},
        {"the client is closed", test_close},
        {"mortise_fd() gives another", test_fd},
        {"but not while a thread polls", test_fd_meanwhile},
        CU_TEST_INFO_NULL,
    };
    return rig_run("closed_fds", tests);
}
