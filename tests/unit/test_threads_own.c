/* test_threads_own.c - the threads that the library starts, and those that call it: signals and cancellation belong
 * to the application, and descriptors may run out. */
#include "base/high_fd.h"
#include "rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

static struct rig rig;

/* Whether all signals that can be blocked are, in this thread; -1: it is not the library's, or has ended. */
static int blocks_signals(const char *thread)
{
    char path[300], line[256];
    unsigned long long mask = 0;
    bool ours = false;
    int found = -1;
    snprintf(path, sizeof(path), "/proc/self/task/%s/status", thread);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, "Name:\tmortise", 13) == 0)
            ours = true;
        else if (ours && sscanf(line, "SigBlk: %llx", &mask) == 1)
            found = (~mask & 0x7ffbfeffull) == 0; /* 1 to 31 but KILL and STOP */
    if (file != NULL)
        fclose(file);
    return found;
}

static int open_to_signals;

static bool two_are_seen(void *argument)
{
    int threads = 0;
    DIR *folder = opendir("/proc/self/task");
    (void)argument;
    open_to_signals = 0;
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        int blocks = blocks_signals(entry->d_name);
        threads += blocks >= 0;
        open_to_signals += blocks == 0;
    }
    closedir(folder);
    return threads >= 2;
}

/* A signal is never handled by a thread that an application does not know. */
static void test_block_signals(void)
{
    mortise_lease *lease;
    struct outcome got = {.calls = 0};
    rig_open_real(&rig, "ttl = 1s\n");
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a", TRY, &lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_acquire_async(rig.handle, "b", TRY, told, &got, NULL, NULL),
                    MORTISE_OK);
    CU_ASSERT(test_poll(two_are_seen, NULL, TEST_PATIENCE_MS)); /* the watchdog and the service */
    CU_ASSERT_EQUAL(open_to_signals, 0);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
}

/* No call is a cancellation point; behind it a thread can be canceled as before. */
static void test_cancellation(void)
{
    rig_open_real(&rig, "");
    for (int round = 0; round < 2; round++) {
        int before, after;
        int state = round == 0 ? PTHREAD_CANCEL_ENABLE : PTHREAD_CANCEL_DISABLE;
        pthread_setcancelstate(state, &before);
        mortise_capabilities(rig.handle);
        pthread_setcancelstate(before, &after);
        CU_ASSERT_EQUAL(after, state);
    }
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
}

static bool see_info(const mortise_info *info, void *user_data)
{
    (void)info;
    (void)user_data;
    pthread_testcancel();
    return true;
}

static bool see_module(const mortise_module_info *info, const mortise_option_info *options,
                       size_t option_count, const char *problem, void *user_data)
{
    (void)info;
    (void)options;
    (void)option_count;
    (void)problem;
    (void)user_data;
    pthread_testcancel();
    return true;
}

static void see_text(const char *text, size_t length, void *user_data)
{
    (void)text;
    (void)length;
    (void)user_data;
    pthread_testcancel();
}

static char config[300];
static _Atomic int steps;

/* CUnit's asserts are for the thread that joins this one. */
static void *use_all_canceled(void *argument)
{
    mortise_client *client = argument;
    pthread_cancel(pthread_self()); /* pending from here on */
    atomic_fetch_add(&steps, mortise_list(client, NULL, see_info, NULL, NULL) == MORTISE_OK);
    atomic_fetch_add(&steps, mortise_holders(client, "a", see_info, NULL, NULL) == MORTISE_OK);
    atomic_fetch_add(&steps, mortise_modules(config, see_module, NULL, NULL) == MORTISE_OK);
    atomic_fetch_add(&steps, mortise_schema(config, "sim", see_text, NULL, NULL) == MORTISE_NOTSUP);
    atomic_fetch_add(&steps, mortise_open(config, &client, NULL) == MORTISE_OK);
    atomic_fetch_add(&steps, mortise_close(client, NULL) == MORTISE_OK);
    pthread_testcancel();
    return NULL;
}

/* Those that need no client, too, and callbacks on the thread of the call. */
static void test_canceled_calls(void)
{
    pthread_t thread;
    mortise_lease *lease;
    void *result = NULL;
    atomic_store(&steps, 0);
    snprintf(config, sizeof(config), "%s/canceled.conf", rig_folder);
    CU_ASSERT_FATAL(test_file_write(config, "[mortise]\ndriver = sim\nlog = none\n"));
    rig_open_real(&rig, "");
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a", TRY, &lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, use_all_canceled, rig.handle), 0);
    pthread_join(thread, &result);
    CU_ASSERT_PTR_EQUAL(result, PTHREAD_CANCELED);
    CU_ASSERT_EQUAL(atomic_load(&steps), 6);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(sim->instances(), 0);
}

static int64_t own_cpu_ms(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (int64_t)used.tv_sec * 1000 + used.tv_nsec / 1000000;
}

/* From here on nothing can be opened. */
static struct rlimit let_nothing_open(void)
{
    struct rlimit before, none;
    int next = dup(STDERR_FILENO); /* the lowest that is free */
    CU_ASSERT_FATAL(next > 0 && close(next) == 0);
    CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = (rlim_t)next;
    CU_ASSERT_EQUAL_FATAL(setrlimit(RLIMIT_NOFILE, &none), 0);
    return before;
}

/* Without the thread that ends leases in time nothing is granted. */
static void test_no_watchdog(void)
{
    mortise_lease *lease = NULL;
    mortise_error error = {.message = ""};
    rig_open_real(&rig, "");
    struct rlimit before = let_nothing_open();
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "a", TRY, &lease, &error), MORTISE_NOMEM);
    setrlimit(RLIMIT_NOFILE, &before);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "no descriptor is left"));
    CU_ASSERT_EQUAL(sim->claims(), 0);
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "a", TRY, &lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
}

/* What cannot have an epoll waits without: it sleeps, it does not spin. */
static void test_no_epoll(void)
{
    mortise_lease *lease;
    rig_open_real(&rig, "");
    sim->seize("a", MORTISE_NEVER);
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "b", TRY, &lease, NULL), MORTISE_OK);
    struct rlimit before = let_nothing_open();
    int64_t from_ms = own_cpu_ms();
    mortise_status status =
        mortise_acquire(rig.handle, "a", MORTISE_OPTIONS(.wait_ms = 500), &lease, NULL);
    int64_t used_ms = own_cpu_ms() - from_ms;
    setrlimit(RLIMIT_NOFILE, &before);
    CU_ASSERT_EQUAL(status, MORTISE_TIMEDOUT);
    CU_ASSERT(used_ms < 100);
    sim->give_back("a");
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
}

/* Then the application cannot dispatch, and nobody waits for it to do so. */
static void test_no_fd(void)
{
    mortise_status status;
    rig_open_real(&rig, "");
    struct pump *pump = &rig.client->pump;
    struct rlimit before = let_nothing_open();
    CU_ASSERT_EQUAL(mortise_fd(rig.handle, &status), -1);
    CU_ASSERT_EQUAL(status, MORTISE_NOMEM);
    setrlimit(RLIMIT_NOFILE, &before);
    pthread_mutex_lock(&pump->lock);
    CU_ASSERT_FALSE(pump->dispatched);
    pthread_mutex_unlock(&pump->lock);
    CU_ASSERT(mortise_fd(rig.handle, NULL) >= 0);
    pthread_mutex_lock(&pump->lock);
    CU_ASSERT_TRUE(pump->dispatched);
    pthread_mutex_unlock(&pump->lock);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
}

/* A close that is tried again does not close a descriptor that is somebody else's by then. */
static void test_watchdog_ends_once(void)
{
    mortise_lease *lease;
    rig_open_real(&rig, "");
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a", TRY, &lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    int timer = rig.client->locks.watchdog.timer;
    CU_ASSERT_TRUE(watchdog_stop(&rig.client->locks, MORTISE_NEVER));
    int other = dup2(STDERR_FILENO, timer);
    CU_ASSERT_EQUAL(other, timer);
    CU_ASSERT_TRUE(watchdog_stop(&rig.client->locks, MORTISE_NEVER));
    CU_ASSERT(fcntl(other, F_GETFD) >= 0);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
    CU_ASSERT(fcntl(other, F_GETFD) >= 0);
    close(other);
}

/* ---- the application closes the watchdog's timer ---- */

struct renewals {
    struct rig *rig;
    uint64_t at_least;
};

static bool is_renewed(void *argument)
{
    const struct renewals *renewals = argument;
    return stats_of(renewals->rig).renewals >= renewals->at_least;
}

static void expect_renewals(struct rig *of, mortise_lease *lease)
{
    struct renewals renewals = {of, stats_of(of).renewals + 3};
    CU_ASSERT(test_poll(is_renewed, &renewals, TEST_PATIENCE_MS));
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
}

/* Returns the number under which there was the timer. other: what is under it now, or -1. The system calls: ThreadSanitizer
 * would report the thread that polls, which is the point. */
static int close_timer(struct rig *of, int other)
{
    struct locks *locks = &of->client->locks;
    pthread_mutex_lock(&locks->lock);
    int timer = locks->watchdog.timer;
    long done = other < 0 ? syscall(SYS_close, timer) : syscall(SYS_dup3, other, timer, O_CLOEXEC);
    pthread_mutex_unlock(&locks->lock);
    CU_ASSERT_EQUAL(done, other < 0 ? 0 : timer);
    return timer;
}

/* While nothing is due, and while a renewal is. It is renewed nevertheless, and the file that has come under the number is
 * neither read nor closed. */
static void test_timer_closed(void)
{
    for (int is_taken = 0; is_taken < 2; is_taken++) {
        mortise_lease *lease;
        int file = is_taken ? memfd_create("the application's", MFD_CLOEXEC) : -1;
        CU_ASSERT(!is_taken || ftruncate(file, 100) == 0);
        rig_open_real(&rig, "renew_every = 20ms\n");
        CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a", TRY, &lease, NULL), MORTISE_OK);
        CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
        int first = close_timer(&rig, file);
        CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a", TRY, &lease, NULL), MORTISE_OK);
        expect_renewals(&rig, lease);
        int second = close_timer(&rig, file);
        expect_renewals(&rig, lease);
        CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
        int third = close_timer(&rig, file);
        CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
        if (!is_taken)
            continue;
        CU_ASSERT_EQUAL(lseek(file, 0, SEEK_CUR), 0);
        int numbers[] = {first, second, third, file};
        for (int i = 0; i < 4; i++)
            CU_ASSERT_EQUAL(syscall(SYS_close, numbers[i]), 0);
    }
}

/* Timers of the application, as an event loop has: more than the library had descriptors under low numbers. */
#define LOOP_TIMERS 16

static void make_timers(int timers[LOOP_TIMERS])
{
    static const struct itimerspec in_an_hour = {.it_value = {3600, 0}};
    for (int i = 0; i < LOOP_TIMERS; i++) {
        timers[i] = (int)syscall(SYS_timerfd_create, CLOCK_MONOTONIC, TFD_CLOEXEC);
        CU_ASSERT_FATAL(timers[i] >= 0);
        CU_ASSERT_EQUAL(timerfd_settime(timers[i], 0, &in_an_hour, NULL), 0);
    }
}

/* They still run, and are still there. */
static void close_timers(const int timers[LOOP_TIMERS])
{
    for (int i = 0; i < LOOP_TIMERS; i++) {
        struct itimerspec left = {.it_value = {0, 0}};
        CU_ASSERT_EQUAL(timerfd_gettime(timers[i], &left), 0);
        CU_ASSERT(left.it_value.tv_sec > 3000);
        CU_ASSERT_EQUAL(syscall(SYS_close, timers[i]), 0);
    }
}

/* The same, and then the application makes timers of its own, while nothing is due, and while a renewal is. None is taken for the
 * library's. */
static void test_timer_of_application(void)
{
    int timers[2][LOOP_TIMERS];
    mortise_lease *lease;
    rig_open_real(&rig, "renew_every = 20ms\n");
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a", TRY, &lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    for (int i = 0; i < 2; i++) {
        close_timer(&rig, -1);
        make_timers(timers[i]);
        if (i == 0)
            CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a", TRY, &lease, NULL), MORTISE_OK);
        expect_renewals(&rig, lease);
    }
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
    close_timers(timers[0]);
    close_timers(timers[1]);
}

/* Of two clients, both timers are closed. The new one of the first that goes on is not taken for the old one of the other. */
static void test_timers_of_clients(void)
{
    static struct rig second;
    struct rig *both[] = {&second, &rig};
    static const char *const names[] = {"b", "a"};
    mortise_lease *leases[2];
    for (int i = 0; i < 2; i++) {
        rig_open_real(both[i], "renew_every = 20ms\n");
        CU_ASSERT_EQUAL_FATAL(mortise_acquire(both[i]->handle, names[i], TRY, &leases[i], NULL),
                              MORTISE_OK);
        CU_ASSERT_EQUAL(mortise_release(leases[i], NULL), MORTISE_OK);
    }
    for (int i = 0; i < 2; i++)
        close_timer(both[i], -1);
    for (int i = 1; i >= 0; i--)
        CU_ASSERT_EQUAL_FATAL(mortise_acquire(both[i]->handle, names[i], TRY, &leases[i], NULL),
                              MORTISE_OK);
    for (int i = 0; i < 2; i++)
        expect_renewals(both[i], leases[i]);
    CU_ASSERT_NOT_EQUAL(rig.client->locks.watchdog.timer, second.client->locks.watchdog.timer);
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(mortise_release(leases[i], NULL), MORTISE_OK);
        CU_ASSERT_EQUAL(mortise_close(both[i]->handle, NULL), MORTISE_OK);
    }
}

/* ---- the application closes every descriptor of several clients ---- */

#define CLIENTS 3
#define NUMBERS 3 /* of a client: the timer, the epoll set, the event in it */

static void look_at_numbers(struct rig *of, int numbers[NUMBERS])
{
    pthread_mutex_lock(&of->client->locks.lock);
    numbers[0] = of->client->locks.watchdog.timer;
    pthread_mutex_unlock(&of->client->locks.lock);
    pthread_mutex_lock(&of->client->pump.lock);
    numbers[1] = of->client->pump.wakeup.epoll;
    numbers[2] = of->client->pump.wakeup.event;
    pthread_mutex_unlock(&of->client->pump.lock);
    for (int i = 0; i < NUMBERS; i++)
        CU_ASSERT(numbers[i] >= HIGH_FD);
}

struct last_set {
    struct rig *rig;
    int epoll; /* -1: none yet */
};

/* Who waits polls, unless the time is over before it does. */
static bool has_another_set(void *argument)
{
    const struct last_set *last = argument;
    struct pump *pump = &last->rig->client->pump;
    mortise_lease *lease;
    CU_ASSERT_EQUAL(
        mortise_acquire(last->rig->handle, "seized", MORTISE_OPTIONS(.wait_ms = 20), &lease, NULL),
        MORTISE_TIMEDOUT);
    pthread_mutex_lock(&pump->lock);
    bool has = pump->wakeup.epoll >= 0 && pump->wakeup.epoll != last->epoll;
    pthread_mutex_unlock(&pump->lock);
    return has;
}

/* The client has all three from then on. */
static void wait_in_vain(struct rig *of, int epoll)
{
    struct last_set last = {of, epoll};
    CU_ASSERT(test_poll(has_another_set, &last, TEST_PATIENCE_MS));
}

/* The first that goes on has others, and none of them is an old one of another client, which would take it for its own. In a process
 * that has had no clients: later, numbers lie apart by chance. */
static void test_all_of_clients(void)
{
    static struct rig all[CLIENTS];
    int old[CLIENTS][NUMBERS], new[NUMBERS];
    mortise_lease *leases[CLIENTS];
    char name[] = "a";
    for (int i = 0; i < CLIENTS; i++)
        rig_open_real(&all[i], "renew_every = 20ms\n");
    sim->seize("seized", MORTISE_NEVER);
    for (int i = 0; i < CLIENTS; i++) {
        wait_in_vain(&all[i], -1);
        look_at_numbers(&all[i], old[i]);
    }
    for (int i = 0; i < CLIENTS * NUMBERS; i++) /* see close_timer() */
        CU_ASSERT_EQUAL(syscall(SYS_close, old[i / NUMBERS][i % NUMBERS]), 0);
    for (int i = 0; i < CLIENTS; i++, name[0]++) {
        wait_in_vain(&all[i], old[i][1]);
        CU_ASSERT_EQUAL_FATAL(mortise_acquire(all[i].handle, name, TRY, &leases[i], NULL),
                              MORTISE_OK);
        look_at_numbers(&all[i], new);
        for (int k = 0; k < CLIENTS * NUMBERS * NUMBERS; k++)
            CU_ASSERT_NOT_EQUAL(new[k % NUMBERS],
                                old[k / NUMBERS / NUMBERS][k / NUMBERS % NUMBERS]);
    }
    for (int i = 0; i < CLIENTS; i++)
        expect_renewals(&all[i], leases[i]);
    for (int i = 0; i < CLIENTS; i++) {
        CU_ASSERT_EQUAL(mortise_release(leases[i], NULL), MORTISE_OK);
        CU_ASSERT_EQUAL(mortise_close(all[i].handle, NULL), MORTISE_OK);
    }
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"all descriptors of three clients", test_all_of_clients},
        {"they block signals", test_block_signals},
        {"a thread can be canceled as before", test_cancellation},
        {"calls that a canceled thread makes", test_canceled_calls},
        {"no descriptor is left for the watchdog", test_no_watchdog},
        {"no descriptor is left for an epoll", test_no_epoll},
        {"no descriptor is left for mortise_fd", test_no_fd},
        {"the watchdog ends once", test_watchdog_ends_once},
        {"the application closes the watchdog's timer", test_timer_closed},
        {"the application has timers of its own", test_timer_of_application},
        {"the timers of two clients", test_timers_of_clients},
        CU_TEST_INFO_NULL,
    };
    return rig_run("threads_own", tests);
}
