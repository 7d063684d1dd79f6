/* test_bridge.c - the bridge (native/) without Python: cases that no test in Python can produce. With the SQLite driver. */
#include "slot.h"
#include "suite.h"
#include "support.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char where[300];

void mpy_log(int level, char *line, void *user_data);
void mpy_log(int level, char *line, void *user_data)
{
    (void)level, (void)user_data;
    fprintf(stderr, "%s\n", line);
}

/* ---- in place of the library's function ---- */

static void *(*before_dispatch)(
    void *client); /* runs once, on another thread, before the next dispatch begins */
static int dispatches;

int mortise_dispatch(mortise_client *client)
{
    dispatches++;
    void *(*before)(void *) = before_dispatch;
    before_dispatch = NULL;
    if (before != NULL) {
        pthread_t thread;
        CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, before, client), 0);
        pthread_join(thread, NULL);
    }
    int (*real)(mortise_client *) = (int (*)(mortise_client *))dlsym(RTLD_NEXT, "mortise_dispatch");
    return real(client);
}

/* Under the client's descriptor whenever the main thread has asked for it; DEAF_CLOSED: nothing is. -1: it is left alone. */
enum { DEAF_CLOSED = -2 };
static int deaf_fd = -1, deaf_number = -1;

static void end_deafness(void)
{
    if (deaf_number >= 0)
        syscall(SYS_close, deaf_number);
    deaf_number = -1;
}

int mortise_fd(mortise_client *client, mortise_status *status)
{
    int (*real)(mortise_client *, mortise_status *) =
        (int (*)(mortise_client *, mortise_status *))dlsym(RTLD_NEXT, "mortise_fd");
    end_deafness();
    int number = real(client, status);
    if (deaf_fd >= 0)
        deaf_number = (int)syscall(SYS_dup3, deaf_fd, number, O_CLOEXEC);
    else if (deaf_fd == DEAF_CLOSED)
        syscall(SYS_close, number);
    return number;
}

static int runs; /* so many answers say that on_state runs on another thread */
static bool too_early;
static mpy_slot *watched_slot;

bool mortise_on_state_runs(mortise_client *client, mortise_lease *lease)
{
    bool (*real)(mortise_client *, mortise_lease *) =
        (bool (*)(mortise_client *, mortise_lease *))dlsym(RTLD_NEXT, "mortise_on_state_runs");
    if (watched_slot != NULL && !watched_slot->watched)
        too_early = true;
    if (runs == 0)
        return real(client, lease);
    runs--;
    return true;
}

/* A busy machine may need longer than close_timeout to release everything. */
static bool is_end(int status)
{
    return status == MORTISE_OK || status == MORTISE_UNREACHABLE;
}

static void close_to_the_end(mortise_client *client)
{
    mortise_error error;
    CU_ASSERT(is_end(mpy_close(client, &error)));
}

/* ---- a release that has not waited for on_state ---- */

static void by_release(mpy_slot *slot)
{
    CU_ASSERT_EQUAL(mpy_release(slot), MORTISE_OK);
}

static void by_release_nowait(mpy_slot *slot)
{
    CU_ASSERT_EQUAL(mpy_release_nowait(slot), MORTISE_OK);
}

static void by_release_start(mpy_slot *slot)
{
    CU_ASSERT_EQUAL(mpy_release_start(slot), MORTISE_OK);
}

static void by_release_many(mpy_slot *slot)
{
    mortise_error error;
    CU_ASSERT_EQUAL(mpy_release_many(&slot, 1, &error), MORTISE_OK);
}

/* As in a callback of the log: the slot's memory stays until on_state has returned. */
static void test_released_while_told(void)
{
    static void (*const ends[])(mpy_slot *) = {by_release, by_release_nowait, by_release_start,
                                               by_release_many, mpy_slot_leave};
    mortise_client *client = NULL;
    mpy_sink *sink = NULL;
    mortise_error error;
    CU_ASSERT_EQUAL_FATAL(mpy_open(where, &client, &error), MORTISE_OK);
    CU_ASSERT_EQUAL_FATAL(mpy_sink_new(client, &sink), MORTISE_OK);
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        mpy_slot *slot = NULL;
        CU_ASSERT_FATAL(mpy_slot_new(sink, 1, &slot));
        CU_ASSERT_EQUAL_FATAL(mpy_acquire(client, slot, "a", NULL, true), MORTISE_OK);
        watched_slot = slot;
        runs = 2;
        ends[i](slot);
        CU_ASSERT_EQUAL(runs, 0);
        CU_ASSERT_FALSE(slot->watched);
        watched_slot = NULL;
        mpy_slot_free(&slot);
    }
    CU_ASSERT_FALSE(too_early);
    close_to_the_end(client);
    mpy_sink_drop(&sink);
}

/* ---- two threads close ---- */

static int closed_beside;

static void *close_beside(void *client)
{
    closed_beside = mpy_close(client, NULL);
    return NULL;
}

static void acquired(mortise_status status, mortise_lease *lease, const mortise_error *error,
                     void *user_data)
{
    (void)status, (void)lease, (void)error;
    ++*(int *)user_data;
}

/* A callback waits, so both get CLOSING first. The other thread ends the client before this thread dispatches. */
static void test_closed_by_both(void)
{
    mortise_client *client = NULL;
    mortise_error error;
    int calls = 0;
    CU_ASSERT_EQUAL_FATAL(mpy_open(where, &client, &error), MORTISE_OK);
    CU_ASSERT_FATAL(mortise_fd(client, NULL) >= 0);
    CU_ASSERT_EQUAL_FATAL(mortise_acquire_async(client, "a", NULL, acquired, &calls, NULL, &error),
                          MORTISE_OK);
    before_dispatch = close_beside;
    CU_ASSERT_EQUAL(mpy_close(client, &error), MORTISE_CLOSED);
    CU_ASSERT_EQUAL(error.status, MORTISE_CLOSED);
    CU_ASSERT_PTR_NULL(before_dispatch);
    CU_ASSERT(is_end(closed_beside));
    CU_ASSERT_EQUAL(calls, 1);
}

/* ---- a lease is dropped while the client is being closed ---- */

static mpy_slot *dropped;

static void *drop_beside(void *client)
{
    (void)client;
    mpy_slot_free(&dropped);
    return NULL;
}

/* When the close is over, nothing of the client is left: no memory, and no descriptor. */
static void test_dropped_while_closing(void)
{
    mortise_client *client = NULL;
    mpy_sink *sink = NULL;
    mortise_error error;
    int calls = 0;
    CU_ASSERT_EQUAL_FATAL(mpy_open(where, &client, &error), MORTISE_OK);
    CU_ASSERT_EQUAL_FATAL(mpy_sink_new(client, &sink), MORTISE_OK);
    CU_ASSERT_FATAL(mpy_slot_new(sink, 1, &dropped));
    CU_ASSERT_EQUAL_FATAL(mpy_acquire(client, dropped, "a", NULL, true), MORTISE_OK);
    CU_ASSERT_EQUAL_FATAL(mortise_acquire_async(client, "b", NULL, acquired, &calls, NULL, &error),
                          MORTISE_OK);
    before_dispatch = drop_beside; /* the callback waits, so the close is under way */
    close_to_the_end(client);
    int event = mpy_sink_fd(sink);
    CU_ASSERT_PTR_NULL(dropped);
    CU_ASSERT_EQUAL(calls, 1);
    mpy_sink_end(sink, true);
    mpy_sink_drop(&sink);
    CU_ASSERT_EQUAL(fcntl(event, F_GETFD), -1);
}

/* The slot's callback will still come, and frees the slot. */
static void test_dropped_while_asking(void)
{
    mortise_client *client = NULL;
    mpy_sink *sink = NULL;
    mpy_slot *holder = NULL, *slot = NULL;
    mortise_error error;
    CU_ASSERT_EQUAL_FATAL(mpy_open(where, &client, &error), MORTISE_OK);
    CU_ASSERT_EQUAL_FATAL(mpy_sink_new(client, &sink), MORTISE_OK);
    CU_ASSERT_FATAL(mpy_slot_new(sink, 1, &holder) && mpy_slot_new(sink, 2, &slot));
    CU_ASSERT_EQUAL_FATAL(mpy_acquire(client, holder, "a", NULL, true), MORTISE_OK);
    CU_ASSERT_EQUAL_FATAL(mpy_acquire_start(client, slot, "a", NULL, true, true), MORTISE_OK);
    mpy_slot_free(&slot);
    CU_ASSERT_PTR_NULL(sink->given_up);
    close_to_the_end(client);
    mpy_sink_end(sink, true);
    mpy_slot_free(&holder);
    CU_ASSERT_EQUAL(sink->references, 1);
    mpy_sink_drop(&sink);
}

/* ---- the program closes descriptors that are not its own, and has others under their numbers ---- */

static int file, taken[8], taken_count; /* the program's */

/* By a system call: ThreadSanitizer would report the users of the number, but using it is the purpose of the test. */
static void take(int number)
{
    CU_ASSERT_FATAL(number >= 500); /* not among the first that a program gets */
    CU_ASSERT_EQUAL_FATAL(syscall(SYS_dup3, file, number, O_CLOEXEC), number);
    taken[taken_count++] = number;
}

static void make_file(void)
{
    file = memfd_create("the program's", MFD_CLOEXEC);
    CU_ASSERT_EQUAL_FATAL(pwrite(file, "as it was", 9, 0), 9);
    taken_count = 0;
}

static void give_back(void)
{
    struct stat about, own;
    char text[10] = "";
    CU_ASSERT_EQUAL_FATAL(fstat(file, &own), 0);
    CU_ASSERT(own.st_size == 9 && lseek(file, 0, SEEK_CUR) == 0);
    CU_ASSERT(pread(file, text, 9, 0) == 9 && strcmp(text, "as it was") == 0);
    for (int i = 0; i < taken_count; i++) {
        CU_ASSERT(fstat(taken[i], &about) == 0 && about.st_ino == own.st_ino);
        syscall(SYS_close, taken[i]);
    }
    close(file);
}

/* As in the main thread of Python. */
static int acquire_main(mortise_client *client, mpy_slot *slot, int64_t wait_ms)
{
    const mortise_options *options = MORTISE_OPTIONS(.wait_ms = wait_ms);
    int status = mpy_acquire_main(client, slot, "a", options, false, 100);
    while (status == MPY_PENDING)
        status = mpy_await(client, slot, 100);
    return status;
}

static mpy_batch batch;

static bool is_collected(void *sink)
{
    return mpy_collect(sink, &batch) > 0;
}

static void test_others_under_the_numbers(void)
{
    mortise_client *client = NULL;
    mpy_sink *sink = NULL;
    mpy_slot *slot = NULL, *told = NULL;
    mortise_error error;
    CU_ASSERT_EQUAL_FATAL(mpy_open(where, &client, &error), MORTISE_OK);
    CU_ASSERT_EQUAL_FATAL(mpy_sink_new(client, &sink), MORTISE_OK);
    CU_ASSERT_FATAL(mpy_slot_new(NULL, 1, &slot) && mpy_slot_new(sink, 2, &told));
    CU_ASSERT_EQUAL_FATAL(acquire_main(client, slot, TEST_PATIENCE_MS), MORTISE_OK);
    CU_ASSERT_EQUAL(mpy_release(slot), MORTISE_OK);
    make_file();
    take(mpy_main_wake.epoll);
    take(mpy_main_wake.socket);
    take(sink->wake.epoll);
    take(sink->wake.socket);
    take(sink->fd);
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(acquire_main(client, slot, TEST_PATIENCE_MS), MORTISE_OK);
        CU_ASSERT_EQUAL(mpy_release(slot), MORTISE_OK);
    }
    CU_ASSERT(wake_is_ours(&mpy_main_wake)); /* another one */
    CU_ASSERT_EQUAL(mpy_acquire_start(client, told, "b", NULL, false, true), MORTISE_OK);
    CU_ASSERT(test_poll(is_collected, sink, TEST_PATIENCE_MS));
    batch.done = batch.count;
    mpy_collected(sink);
    mpy_slot_free(&slot);
    mpy_slot_free(&told);
    close_to_the_end(client);
    mpy_sink_end(sink, true);
    mpy_sink_deaf(sink);
    mpy_sink_drop(&sink);
    give_back();
}

/* Before the main thread waits, it checks whether it can be woken: a quiet pipe does not show that it is not ours. */
static void test_a_quiet_one_under_the_number(void)
{
    mortise_client *client = NULL;
    mpy_slot *slot = NULL;
    mortise_error error;
    int pipe_fds[2];
    CU_ASSERT_EQUAL_FATAL(mpy_open(where, &client, &error), MORTISE_OK);
    CU_ASSERT_EQUAL_FATAL(mpy_listen(client), MORTISE_OK);
    CU_ASSERT_FATAL(mpy_slot_new(NULL, 1, &slot));
    CU_ASSERT_EQUAL_FATAL(acquire_main(client, slot, TEST_PATIENCE_MS), MORTISE_OK);
    CU_ASSERT_EQUAL(mpy_release(slot), MORTISE_OK);
    CU_ASSERT_EQUAL_FATAL(pipe(pipe_fds), 0);
    file = pipe_fds[0];
    taken_count = 0;
    take(mpy_main_wake.epoll);
    take(mpy_main_wake.socket);
    CU_ASSERT_EQUAL(acquire_main(client, slot, TEST_PATIENCE_MS), MORTISE_OK);
    CU_ASSERT(wake_is_ours(&mpy_main_wake)); /* another one */
    CU_ASSERT_EQUAL(mpy_release(slot), MORTISE_OK);
    mpy_slot_free(&slot);
    close_to_the_end(client);
    while (taken_count > 0)
        syscall(SYS_close, taken[--taken_count]);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

/* The program has put something else under the number of the library's descriptor: a pipe in which nothing comes, a file, or
 * nothing. A wait still ends when its time is over, or when it gets the lock, and does not use a whole processor. */
static void test_the_main_thread_is_deaf(void)
{
    for (int kind = 0; kind < 3; kind++) {
        mortise_client *client = NULL, *other = NULL;
        mpy_slot *slot = NULL, *holder = NULL;
        mortise_error error;
        int pipe_fds[2];
        CU_ASSERT_EQUAL_FATAL(mpy_open(where, &client, &error), MORTISE_OK);
        CU_ASSERT_EQUAL_FATAL(mpy_open(where, &other, &error), MORTISE_OK);
        CU_ASSERT_EQUAL_FATAL(mpy_listen(client), MORTISE_OK);
        CU_ASSERT_FATAL(mpy_slot_new(NULL, 1, &slot) && mpy_slot_new(NULL, 2, &holder));
        CU_ASSERT_EQUAL_FATAL(mpy_acquire(other, holder, "a", NULL, false), MORTISE_OK);
        make_file();
        CU_ASSERT_EQUAL_FATAL(pipe(pipe_fds), 0);
        deaf_fd = kind == 0 ? pipe_fds[0] : kind == 1 ? file : DEAF_CLOSED;
        dispatches = 0;
        CU_ASSERT_EQUAL(acquire_main(client, slot, 200), MORTISE_TIMEDOUT);
        CU_ASSERT(dispatches < 100);
        CU_ASSERT_EQUAL(mpy_release(holder), MORTISE_OK);
        CU_ASSERT_EQUAL(acquire_main(client, slot, TEST_PATIENCE_MS), MORTISE_OK);
        deaf_fd = -1;
        end_deafness();
        mpy_slot_free(&slot);
        mpy_slot_free(&holder);
        close_to_the_end(client);
        close_to_the_end(other);
        close(pipe_fds[0]);
        close(pipe_fds[1]);
        close(file);
    }
}

/* The thread that calls on_loss does not look again at once. */
static void test_a_sink_is_deaf(void)
{
    for (int is_closed = 0; is_closed < 2; is_closed++) {
        mortise_client *client = NULL;
        mpy_sink *sink = NULL;
        mortise_error error;
        CU_ASSERT_EQUAL_FATAL(mpy_open(where, &client, &error), MORTISE_OK);
        CU_ASSERT_EQUAL_FATAL(mpy_sink_new(client, &sink), MORTISE_OK);
        make_file();
        take(sink->wake.epoll);
        take(sink->wake.socket);
        take(sink->fd);
        while (is_closed && taken_count > 0)
            syscall(SYS_close, taken[--taken_count]);
        int64_t before_ms = test_now_ms();
        mpy_sink_wait(sink);
        CU_ASSERT(test_now_ms() - before_ms >= 50);
        close_to_the_end(client);
        mpy_sink_end(sink, true);
        mpy_sink_drop(&sink);
        give_back();
    }
}

static void test_no_failure_yet(void)
{
    static const mortise_error none;
    mpy_slot *slot = NULL;
    mallopt(M_PERTURB, 0xa5);
    CU_ASSERT_FATAL(mpy_slot_new(NULL, 1, &slot));
    mallopt(M_PERTURB, 0);
    CU_ASSERT(memcmp(mpy_slot_error(slot), &none, sizeof(none)) == 0);
    mpy_slot_free(&slot);
}

/* The exit code of a child that drops the slot and the sink of its parent. */
static int drop_in_child(mortise_client *client, mpy_sink *sink, mpy_slot *slot)
{
    int numbers[] = {sink->wake.epoll, sink->wake.socket, sink->fd};
    for (int i = 0; i < 3; i++)
        if (fcntl(numbers[i], F_GETFD) != -1 || dup2(STDERR_FILENO, numbers[i]) != numbers[i])
            return 1;
    mpy_sink_deaf(sink);
    mpy_sink_drop(&sink);
    for (int i = 0; i < 3; i++)
        if (fcntl(numbers[i], F_GETFD) == -1)
            return 2;
    if (mpy_await(client, slot, 100) != MORTISE_FORKED ||
        mpy_slot_error(slot)->status != MORTISE_FORKED || *mpy_slot_error(slot)->message == '\0')
        return 3;
    return 0;
}

/* A child closes the descriptors when it begins, and never again: later, when Python drops the sink, the numbers may be those of
 * other descriptors of the child. */
static void test_forked(void)
{
    mortise_client *client = NULL;
    mpy_sink *sink = NULL;
    mpy_slot *slot = NULL;
    mortise_error error;
    int code = -1;
    CU_ASSERT_EQUAL_FATAL(mpy_open(where, &client, &error), MORTISE_OK);
    CU_ASSERT_EQUAL_FATAL(mpy_sink_new(client, &sink), MORTISE_OK);
    CU_ASSERT_FATAL(mpy_slot_new(sink, 1, &slot));
    pid_t child = fork();
    if (child == 0)
        _exit(drop_in_child(client, sink, slot));
    CU_ASSERT_EQUAL_FATAL(waitpid(child, &code, 0), child);
    CU_ASSERT_EQUAL(code, 0);
    CU_ASSERT(wake_is_ours(&sink->wake));
    mpy_slot_free(&slot);
    close_to_the_end(client);
    mpy_sink_end(sink, true);
    mpy_sink_drop(&sink);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"released while on_state runs", test_released_while_told},
        {"closed by two threads", test_closed_by_both},
        {"dropped while it is closed", test_dropped_while_closing},
        {"dropped while it waits", test_dropped_while_asking},
        {"others are under the numbers", test_others_under_the_numbers},
        {"a quiet one is under the number", test_a_quiet_one_under_the_number},
        {"the main thread is deaf", test_the_main_thread_is_deaf},
        {"a sink is deaf", test_a_sink_is_deaf},
        {"a child drops its parent's sink", test_forked},
        {"no failure yet", test_no_failure_yet},
        CU_TEST_INFO_NULL,
    };
    char folder[256];
    if (!test_folder_make(folder, sizeof(folder)))
        return 1;
    snprintf(where, sizeof(where), "sqlite:%s/locks.db", folder);
    int failed = suite_run("bridge", tests);
    test_folder_remove(folder);
    return failed;
}
