/* fork.c - in the child of a fork a client belongs to the parent: every call returns FORKED, and nothing touches the
 * parent's connection. The parent goes on as if nothing had happened. */
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZER 1
#endif
#endif

static void never(mortise_status status, mortise_lease *lease, const mortise_error *error,
                  void *user_data)
{
    (void)status;
    (void)lease;
    (void)error;
    (void)user_data;
    _exit(99);
}

static bool each(const mortise_info *info, void *user_data)
{
    (void)info;
    (void)user_data;
    return true;
}

static void never_released(mortise_status status, const mortise_error *error, void *user_data)
{
    (void)status;
    (void)error;
    (void)user_data;
    _exit(99);
}

/* In the child, where nothing can be asserted: the number of the first call that went wrong, or 0. */
static int call_all(mortise_client *client, mortise_lease *lease, const char *name)
{
    mortise_info info = {.size = sizeof info};
    mortise_stats stats = {.size = sizeof stats};
    mortise_lease *none = (mortise_lease *)(uintptr_t)1, *both[2] = {lease, lease};
    mortise_lease *const leases[] = {lease, NULL};
    const char *const names[] = {"fork-1", "fork-2"};
    uint64_t version = 0;
    size_t size = 1;
    mortise_status status;
    char text[64], record[1] = "";
    const mortise_status statuses[] = {
        mortise_acquire(client, name, MORTISE_OPTIONS(.wait_ms = 0), &none, NULL),
        mortise_acquire(client, name, MORTISE_OPTIONS(.wait_ms = -1), &none, NULL),
        mortise_acquire_async(client, name, NULL, never, NULL, NULL, NULL),
        mortise_cancel(client, 1),
        mortise_inspect(client, name, &info, NULL),
        mortise_list(client, "", each, NULL, NULL),
        mortise_holders(client, name, each, NULL, NULL),
        mortise_break(client, name, 1, NULL),
        mortise_ping(client, text, sizeof text, NULL),
        mortise_record_read(client, name, record, &size, &version, NULL),
        mortise_record_write(client, name, record, 1, &version, NULL),
        mortise_stats_get(client, &stats),
        (mortise_status)mortise_dispatch(client),
        mortise_acquire_many(client, names, 2, MORTISE_OPTIONS(.wait_ms = 0), both, NULL),
        mortise_extend(lease, 0, NULL),
        mortise_downgrade(lease, NULL),
        mortise_release_many(leases, 2, NULL),
        mortise_release_async(lease, never_released, NULL, NULL),
        mortise_release_nowait(lease, NULL),
        mortise_release(lease, NULL),
    };
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i] != MORTISE_FORKED)
            return (int)i + 1;
    if (mortise_fd(client, &status) != -1 || status != MORTISE_FORKED)
        return 30;
    if (mortise_state(lease) != MORTISE_STATE_LOST || mortise_remaining_ms(lease) != 0)
        return 31;
    if (none != NULL || both[0] != NULL || both[1] != NULL)
        return 32;
    return mortise_close(client, NULL) == MORTISE_FORKED ? 0 : 33;
}

/* A child that hangs is ended by the alarm; code_of says 1014 then. */
static pid_t fork_child(void)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        alarm(TEST_PATIENCE_MS / 1000);
    return child;
}

static int code_of(pid_t child)
{
    int status;
    if (child <= 0 || waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void check_parent(mortise_client *client, mortise_lease *lease, const char *name)
{
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    EXPECT(BUSY, try_once(subject.looker, name));
    EXPECT(OK, try_once(client, fresh_name()));
    give(lease);
    EXPECT(OK, try_once(subject.looker, name));
}

static void test_child(void)
{
    mortise_client *client = open_client(NULL);
    const char *name = fresh_name();
    mortise_lease *lease = take(client, name, 60000);
    pid_t child = fork_child();
    if (child == 0)
        _exit(call_all(client, lease, name));
    CU_ASSERT_EQUAL(code_of(child), 0);
    check_parent(client, lease, name);
    close_client(client);
}

/* Threads that wait and a lease that is renewed while the child lives and dies. */
static void test_busy_parent(void)
{
    mortise_client *client = open_client("renew_every = 100ms"), *other = open_client(NULL);
    const char *name = fresh_name(), *renewed = fresh_name();
    struct blocked blocked;
    mortise_lease *lease = take(other, name, 60000), *kept = take(client, renewed, 60000);
    blocked_start(&blocked, client, name, MORTISE_OPTIONS(.wait_ms = -1));
    CU_ASSERT(wait_local_waiters(client, 1));
    pid_t child = fork_child();
    if (child == 0)
        _exit(call_all(client, kept, name));
    CU_ASSERT_EQUAL(code_of(child), 0);
    give(lease);
    EXPECT(OK, blocked_join(&blocked));
    give(blocked.lease);
    CU_ASSERT(wait_renewals(client, 3));
    EXPECT(BUSY, try_once(other, renewed));
    CU_ASSERT_NOT_EQUAL(mortise_state(kept), MORTISE_STATE_LOST);
    give(kept);
    close_client(client);
    close_client(other);
}

#ifndef THREAD_SANITIZER /* which refuses threads in a forked child */
/* A child that wants locks opens a client of its own. */
static int open_own(const char *where, const char *held, const char *unheld)
{
    mortise_client *client;
    mortise_lease *lease;
    if (mortise_open(where, &client, NULL) != MORTISE_OK)
        return 1;
    if (mortise_acquire(client, held, MORTISE_OPTIONS(.wait_ms = 0), &lease, NULL) != MORTISE_BUSY)
        return 2;
    if (mortise_acquire(client, unheld, MORTISE_OPTIONS(.wait_ms = 0), &lease, NULL) != MORTISE_OK)
        return 3;
    if (mortise_release(lease, NULL) != MORTISE_OK)
        return 4;
    return mortise_close(client, NULL) == MORTISE_OK ? 0 : 5;
}

static void test_child_opens_its_own(void)
{
    mortise_client *client = open_client(NULL);
    const char *name = fresh_name(), *unheld = fresh_name();
    mortise_lease *lease = take(client, name, 60000);
    pid_t child = subject.processes ? fork_child() : -1;
    if (child == 0)
        _exit(open_own(subject.where, name, unheld));
    if (child > 0)
        CU_ASSERT_EQUAL(code_of(child), 0);
    check_parent(client, lease, name);
    close_client(client);
}

/* Without stderr, and perhaps stdin and stdout: what is written there must not go to the server. */
static int open_without_streams(const char *where, const char *name, int first)
{
    mortise_client *client;
    mortise_lease *lease;
    for (int fd = first; fd <= STDERR_FILENO; fd++)
        close(fd);
    if (mortise_open(where, &client, NULL) != MORTISE_OK)
        return 1;
    if (mortise_acquire(client, name, MORTISE_OPTIONS(.wait_ms = 0), &lease, NULL) != MORTISE_OK)
        return 2;
    for (int fd = first; fd <= STDERR_FILENO; fd++)
        if (write(fd, "stray\n", 6) >= 0)
            return 10 + fd;
    if (mortise_release(lease, NULL) != MORTISE_OK)
        return 3;
    return mortise_close(client, NULL) == MORTISE_OK ? 0 : 4;
}

static void test_without_streams(void)
{
    for (int first = STDIN_FILENO; subject.processes && first <= STDERR_FILENO; first++) {
        const char *name = fresh_name();
        pid_t child = fork_child();
        if (child == 0)
            _exit(open_without_streams(subject.where, name, first));
        CU_ASSERT_EQUAL(code_of(child), 0);
        EXPECT(OK, try_once(subject.looker, name));
    }
}
#else
static void test_child_opens_its_own(void)
{
}

static void test_without_streams(void)
{
}
#endif

/* A child that just ends, as after a failed exec, does not release what the parent holds. */
static void test_child_exits(void)
{
    mortise_client *client = open_client(NULL);
    const char *name = fresh_name();
    mortise_lease *lease = take(client, name, 60000);
    pid_t child = fork_child();
    if (child == 0) {
        mortise_release_scope(&lease);
        _exit(0);
    }
    CU_ASSERT_EQUAL(code_of(child), 0);
    check_parent(client, lease, name);
    close_client(client);
}

const CU_TestInfo fork_tests[] = {
    {"every call in the child", test_child},
    {"a busy parent", test_busy_parent},
    {"a child opens its own", test_child_opens_its_own},
    {"a child without streams", test_without_streams},
    {"a child ends", test_child_exits},
    CU_TEST_INFO_NULL,
};
