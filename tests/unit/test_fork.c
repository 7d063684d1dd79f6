/* test_fork.c - after fork() a client belongs to the parent (R8): in the child every call returns FORKED, every lease
 * is LOST, and the parent's descriptors and backend are not touched. The child may open a client of its own. */
#include "rig.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct rig rig;

#define RETURN_LINE_UNLESS(condition)                                                              \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return __LINE__;                                                                       \
    } while (0)

/* Runs in a child; what it returns is 0, or the line that was wrong. */
static int in_child(int (*test)(mortise_lease *lease), mortise_lease *lease)
{
    int status, line = -1, ends[2];
    CU_ASSERT_FATAL(pipe(ends) == 0);
    fflush(NULL);
    pid_t child = fork();
    CU_ASSERT_FATAL(child >= 0);
    if (child == 0) {
        alarm(60); /* a hang is a failure */
        line = test(lease);
        ssize_t written = write(ends[1], &line, sizeof(line));
        syscall(SYS_exit_group,
                written < 0); /* no sanitizer's last look: the parent's memory is not its own */
    }
    close(ends[1]);
    if (read(ends[0], &line, sizeof(line)) != (ssize_t)sizeof(line))
        line = -1;
    close(ends[0]);
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    if (line != 0)
        fprintf(stderr, "    the child failed at line %d\n", line);
    return line;
}

static bool ignore_info(const mortise_info *info, void *user_data)
{
    (void)info;
    (void)user_data;
    return true;
}

static void never(mortise_status status, const mortise_error *error, void *user_data)
{
    (void)status;
    (void)error;
    (void)user_data;
    syscall(SYS_exit_group, 99);
}

/* A line that is wrong, or 0. */
static int calls_of_many(mortise_lease *lease)
{
    const char *const names[] = {"b", "c"};
    mortise_lease *const leases[] = {lease, NULL};
    mortise_lease *more[2] = {lease, lease};
    mortise_error error;
    RETURN_LINE_UNLESS(mortise_acquire_many(rig.handle, names, 2, TRY, more, &error) ==
                       MORTISE_FORKED);
    RETURN_LINE_UNLESS(more[0] == NULL && more[1] == NULL && error.status == MORTISE_FORKED);
    RETURN_LINE_UNLESS(mortise_release_many(leases, 2, &error) == MORTISE_FORKED);
    RETURN_LINE_UNLESS(mortise_release_many(leases, 1, NULL) == MORTISE_FORKED);
    return 0;
}

static int everything_says_forked(mortise_lease *lease)
{
    mortise_lease *more;
    uint64_t version = 0;
    size_t size = 8;
    char record[8] = "";
    mortise_error error;
    mortise_status status = MORTISE_OK;
    mortise_info info = {.size = sizeof(info)};
    mortise_stats stats = {.size = sizeof(stats)};
    char text[64];
    RETURN_LINE_UNLESS(mortise_state(lease) == MORTISE_STATE_LOST);
    RETURN_LINE_UNLESS(mortise_remaining_ms(lease) == 0);
    RETURN_LINE_UNLESS(mortise_acquire(rig.handle, "b", FOREVER, &more, &error) == MORTISE_FORKED);
    RETURN_LINE_UNLESS(more == NULL && error.status == MORTISE_FORKED);
    RETURN_LINE_UNLESS(mortise_acquire(rig.handle, "b", TRY, &more, NULL) == MORTISE_FORKED);
    RETURN_LINE_UNLESS(mortise_acquire_async(rig.handle, "b", TRY, told, NULL, NULL, NULL) ==
                       MORTISE_FORKED);
    RETURN_LINE_UNLESS(mortise_cancel(rig.handle, 1) == MORTISE_FORKED);
    RETURN_LINE_UNLESS(mortise_extend(lease, 0, &error) == MORTISE_FORKED);
    RETURN_LINE_UNLESS(mortise_downgrade(lease, &error) == MORTISE_FORKED);
    RETURN_LINE_UNLESS(mortise_on_state_runs(rig.handle, lease));
    int line = calls_of_many(lease);
    if (line != 0)
        return line;
    RETURN_LINE_UNLESS(mortise_release(lease, &error) == MORTISE_FORKED);
    RETURN_LINE_UNLESS(mortise_release_nowait(lease, NULL) == MORTISE_FORKED);
    RETURN_LINE_UNLESS(mortise_release_async(lease, never, NULL, NULL) == MORTISE_FORKED);
    RETURN_LINE_UNLESS(mortise_owner(lease, text, sizeof(text)) == 0);
    RETURN_LINE_UNLESS(mortise_inspect(rig.handle, "a", &info, NULL) == MORTISE_FORKED);
    RETURN_LINE_UNLESS(mortise_list(rig.handle, NULL, ignore_info, NULL, NULL) == MORTISE_FORKED);
    RETURN_LINE_UNLESS(mortise_holders(rig.handle, "a", ignore_info, NULL, NULL) == MORTISE_FORKED);
    RETURN_LINE_UNLESS(mortise_record_read(rig.handle, "a", record, &size, &version, NULL) ==
                       MORTISE_FORKED);
    RETURN_LINE_UNLESS(mortise_record_write(rig.handle, "a", record, 1, &version, NULL) ==
                       MORTISE_FORKED);
    RETURN_LINE_UNLESS(mortise_break(rig.handle, "a", 1, NULL) == MORTISE_FORKED);
    RETURN_LINE_UNLESS(mortise_ping(rig.handle, text, sizeof(text), NULL) == MORTISE_FORKED);
    RETURN_LINE_UNLESS(mortise_stats_get(rig.handle, &stats) == MORTISE_FORKED);
    RETURN_LINE_UNLESS(mortise_dispatch(rig.handle) == MORTISE_FORKED);
    RETURN_LINE_UNLESS(mortise_fd(rig.handle, &status) == -1 && status == MORTISE_FORKED);
    RETURN_LINE_UNLESS(mortise_capabilities(rig.handle) == 0);
    RETURN_LINE_UNLESS(mortise_config_source(rig.handle) == NULL);
    RETURN_LINE_UNLESS(mortise_default_wait_ms(rig.handle) == MORTISE_WAIT_DEFAULT);
    RETURN_LINE_UNLESS(mortise_close(rig.handle, &error) == MORTISE_FORKED);
    RETURN_LINE_UNLESS(mortise_close(rig.handle, &error) == MORTISE_FORKED);
    return 0;
}

static void test_everything_says_forked(void)
{
    rig_open(&rig, "");
    mortise_lease *lease = take(&rig, "a", NULL);
    CU_ASSERT_EQUAL(in_child(everything_says_forked, lease), 0);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD); /* here it goes on */
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    rig_close(&rig);
}

static bool were_renewed(void *argument)
{
    return stats_of(&rig).renewals >= *(uint64_t *)argument;
}

/* The pump's descriptors are shared with the parent: whatever the child does, what they poll stays. */
static void test_parent_with_threads_goes_on(void)
{
    mortise_lease *lease, *next;
    rig_open_real(&rig, "renew_every = 50ms\n[sim]\nlatency = 2ms\n");
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a",
                                          MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 60000), &lease,
                                          NULL),
                          MORTISE_OK);
    for (int i = 0; i < 5; i++)
        CU_ASSERT_EQUAL(in_child(everything_says_forked, lease), 0);
    uint64_t wanted = stats_of(&rig).renewals + 3;
    CU_ASSERT(test_poll(were_renewed, &wanted, TEST_PATIENCE_MS));
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "b", FOREVER, &next, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(next, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
}

static void told_inside(mortise_status status, mortise_lease *lease, const mortise_error *error,
                        void *user_data)
{
    if (events_inside())
        told(status, lease, error, user_data);
}

static int a_client_of_its_own(mortise_lease *parents)
{
    struct rig own;
    struct outcome got[2] = {{.calls = 0}};
    mortise_error error;
    mortise_lease *lease, *more;
    for (int i = 0; i < RIGS_MAX; i++) /* the parent's are not driven here */
        rigs[i] = NULL;
    RETURN_LINE_UNLESS(rig_try_open(&own, true, "ttl = 3s\n", &error) == MORTISE_OK);
    RETURN_LINE_UNLESS(own.handle != rig.handle);
    RETURN_LINE_UNLESS(mortise_acquire(own.handle, "b", TRY, &lease, NULL) == MORTISE_OK);
    RETURN_LINE_UNLESS(lease != parents);
    RETURN_LINE_UNLESS(mortise_state(lease) == MORTISE_STATE_HELD);
    RETURN_LINE_UNLESS(mortise_state(parents) == MORTISE_STATE_LOST);
    RETURN_LINE_UNLESS(mortise_acquire(rig.handle, "b", TRY, &more, NULL) == MORTISE_FORKED);
    RETURN_LINE_UNLESS(mortise_fd(own.handle, NULL) >= 0);
    for (int i = 0; i < 2; i++)
        RETURN_LINE_UNLESS(mortise_acquire_async(own.handle, "b", TRY, told_inside, &got[i], NULL,
                                                 NULL) == MORTISE_OK);
    RETURN_LINE_UNLESS(mortise_dispatch(own.handle) == 2);
    RETURN_LINE_UNLESS(got[0].status == MORTISE_BUSY && got[1].status == MORTISE_BUSY);
    RETURN_LINE_UNLESS(mortise_release(lease, NULL) == MORTISE_OK);
    RETURN_LINE_UNLESS(mortise_close(own.handle, NULL) == MORTISE_OK);
    RETURN_LINE_UNLESS(mortise_acquire(rig.handle, "b", TRY, &more, NULL) == MORTISE_FORKED);
    return 0;
}

static void test_a_client_of_its_own(void)
{
    rig_open(&rig, "");
    mortise_lease *lease = take(&rig, "a", NULL);
    CU_ASSERT_EQUAL(in_child(a_client_of_its_own, lease), 0);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    rig_close(&rig);
}

static int grandchild(mortise_lease *lease)
{
    struct rig own;
    mortise_error error;
    mortise_lease *mine, *more;
    for (int i = 0; i < RIGS_MAX; i++)
        rigs[i] = NULL;
    RETURN_LINE_UNLESS(rig_try_open(&own, true, "", &error) == MORTISE_OK);
    RETURN_LINE_UNLESS(mortise_acquire(own.handle, "c", TRY, &mine, NULL) == MORTISE_OK);
    pid_t child = fork();
    if (child == 0) {
        bool right = mortise_state(mine) == MORTISE_STATE_LOST &&
                     mortise_state(lease) == MORTISE_STATE_LOST &&
                     mortise_acquire(own.handle, "d", TRY, &more, NULL) == MORTISE_FORKED &&
                     mortise_acquire(rig.handle, "d", TRY, &more, NULL) == MORTISE_FORKED;
        syscall(SYS_exit_group, right ? 0 : 1);
    }
    int status;
    RETURN_LINE_UNLESS(waitpid(child, &status, 0) == child && WIFEXITED(status) &&
                       WEXITSTATUS(status) == 0);
    RETURN_LINE_UNLESS(mortise_release(mine, NULL) == MORTISE_OK);
    RETURN_LINE_UNLESS(mortise_close(own.handle, NULL) == MORTISE_OK);
    return 0;
}

static void test_grandchild(void)
{
    rig_open(&rig, "");
    mortise_lease *lease = take(&rig, "a", NULL);
    CU_ASSERT_EQUAL(in_child(grandchild, lease), 0);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    rig_close(&rig);
}

/* ---- in a callback ---- */

static pid_t forked;

static void fork_here(mortise_status status, mortise_lease *lease, const mortise_error *error,
                      void *user_data)
{
    fflush(NULL);
    forked = fork();
    told(status, lease, error, user_data);
}

/* The child returns from the callback, and from the dispatch, without a second callback. */
static void test_in_a_callback(void)
{
    struct outcome first, second;
    int status;
    rig_open(&rig, "");
    memset(&first, 0, sizeof(first));
    memset(&second, 0, sizeof(second));
    sim->seize("a", MORTISE_NEVER);
    mortise_acquire_async(rig.handle, "a", TRY, fork_here, &first, NULL, NULL);
    mortise_acquire_async(rig.handle, "a", TRY, told, &second, NULL, NULL);
    int count = mortise_dispatch(rig.handle);
    if (forked == 0) {
        alarm(60);
        bool right = count == 1 && first.calls == 1 && second.calls == 0 &&
                     mortise_dispatch(rig.handle) == MORTISE_FORKED &&
                     mortise_close(rig.handle, NULL) == MORTISE_FORKED &&
                     a_client_of_its_own(NULL) == 0;
        syscall(SYS_exit_group, right ? 0 : 1);
    }
    CU_ASSERT_EQUAL(count, 2);
    CU_ASSERT_EQUAL(waitpid(forked, &status, 0), forked);
    CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    sim->give_back("a");
    rig_close(&rig);
}

static _Atomic bool churning;

static void *churn(void *argument)
{
    (void)argument;
    mortise_lease *lease;
    while (atomic_load(&churning))
        if (mortise_acquire(rig.handle, "churned", FOREVER, &lease, NULL) == MORTISE_OK)
            mortise_release(lease, NULL);
    return NULL;
}

static int first_words(mortise_lease *lease)
{
    mortise_lease *more;
    RETURN_LINE_UNLESS(mortise_state(lease) == MORTISE_STATE_LOST);
    RETURN_LINE_UNLESS(mortise_acquire(rig.handle, "b", FOREVER, &more, NULL) == MORTISE_FORKED);
    RETURN_LINE_UNLESS(mortise_release(lease, NULL) == MORTISE_FORKED);
    RETURN_LINE_UNLESS(mortise_close(rig.handle, NULL) == MORTISE_FORKED);
    return 0;
}

/* At any moment: other threads hold any lock of the library's when the process forks. */
static void test_at_any_moment(void)
{
#ifndef __SANITIZE_THREAD__ /* which cannot follow a fork of many threads */
    pthread_t threads[3];
    mortise_lease *lease;
    rig_open_real(&rig, "");
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a", TRY, &lease, NULL), MORTISE_OK);
    atomic_store(&churning, true);
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, churn, NULL);
    for (int i = 0; i < 50; i++)
        CU_ASSERT_EQUAL(in_child(first_words, lease), 0);
    atomic_store(&churning, false);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
#else
    (void)churn;
    (void)first_words;
#endif
}

static int tables_are_free(mortise_lease *lease)
{
    (void)lease;
    RETURN_LINE_UNLESS(pthread_mutex_trylock(&client_slab.lock) == 0);
    RETURN_LINE_UNLESS(pthread_mutex_trylock(&claim_slab.lock) == 0);
    return 0;
}

static struct test_count locked = TEST_COUNT_INIT;

static bool nothing(void *argument)
{
    (void)argument;
    return false;
}

static void *hold_the_tables(void *argument)
{
    (void)argument;
    pthread_mutex_lock(&client_slab.lock);
    pthread_mutex_lock(&claim_slab.lock);
    test_count_add(&locked, 1);
    test_poll(nothing, NULL, 20); /* the fork comes now; it passes as well if it comes later */
    pthread_mutex_unlock(&claim_slab.lock);
    pthread_mutex_unlock(&client_slab.lock);
    return NULL;
}

/* The tables of handles outlive the fork: no thread that is not there in the child holds their locks. */
static void test_tables_are_free(void)
{
    pthread_t thread;
    rig_open(&rig, "");
    pthread_create(&thread, NULL, hold_the_tables, NULL);
    CU_ASSERT(test_count_wait(&locked, 1));
    CU_ASSERT_EQUAL(in_child(tables_are_free, NULL), 0);
    pthread_join(thread, NULL);
    rig_close(&rig);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"R8: every call says FORKED", test_everything_says_forked},
        {"R8: the parent goes on", test_parent_with_threads_goes_on},
        {"R8: a client of its own", test_a_client_of_its_own},
        {"R8: a grandchild", test_grandchild},
        {"R8: in a callback", test_in_a_callback},
        {"R8: at any moment", test_at_any_moment},
        {"R8: the tables are free", test_tables_are_free},
        CU_TEST_INFO_NULL,
    };
    return rig_run("fork", tests);
}
