/* shared_tests.h - shared claims and permits through real servers, by several processes: for test_*_shared.c, each of which
 * says where its clients connect. A worker is this program again, which obeys lines (see work()). */
#ifndef MORTISE_TESTS_SHARED_TESTS_H
#define MORTISE_TESTS_SHARED_TESTS_H

#include <mortise/mortise.h>
#include <support.h>

#include <CUnit/Basic.h>

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

/* SOON: a waiter that nobody tells asks again after ten seconds. A busy machine may take as long: such a test has three tries. */
enum { WORKERS_MAX = 16, LONG_MS = 600000, SOON_MS = 5000 };

static char config_path[300], arena_path[300]; /* made by the test program */

/* ---- what workers have in common ------------------------------------------------------------------- */

/* Who is inside, by worker, so that a killed one's can be cleared: until when he holds the lock at least, in ns; 0: he is not. Who
 * stands still until then may have a successor. */
struct arena {
    _Atomic int64_t writing[WORKERS_MAX], reading[WORKERS_MAX];
    atomic_int violations, failures, writes, reads, most;
    atomic_bool stop;
};

/* As SAFE() of tests/expect: for what no busy machine and no stopped process causes. */
static void assert_safe(bool good, const char *what, int line)
{
    if (!good)
        printf("\nFINDING: %s:%d: %s\n", __FILE__, line, what);
    CU_ASSERT(good);
}
#define ASSERT_SAFE(condition) assert_safe((condition), #condition, __LINE__)

static struct arena *arena_map(void)
{
    int fd = open(arena_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(struct arena)) != 0)
        return NULL;
    void *at = mmap(NULL, sizeof(struct arena), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return at != MAP_FAILED ? at : NULL;
}

/* The clock of the leases. */
static int64_t boot_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* How many others are inside at one instant, which is between the two looks at each of them; the clock is read behind both. */
static int others(const _Atomic int64_t *each, int me)
{
    int64_t seen[WORKERS_MAX];
    int all = 0;
    for (int i = 0; i < WORKERS_MAX; i++)
        seen[i] = i != me ? atomic_load(&each[i]) : 0;
    for (int i = 0; i < WORKERS_MAX; i++)
        all += seen[i] != 0 && atomic_load(&each[i]) == seen[i] && seen[i] > boot_ns();
    return all;
}

static bool is_over(void *arena)
{
    return atomic_load(&((struct arena *)arena)->stop);
}

struct amount {
    const atomic_int *number;
    int enough;
};

static bool is_enough(void *argument)
{
    const struct amount *amount = argument;
    return atomic_load(amount->number) >= amount->enough;
}

static void await_number(const atomic_int *number, int enough)
{
    struct amount amount = {number, enough};
    CU_ASSERT(test_poll(is_enough, &amount, TEST_PATIENCE_MS));
}

/* ---- a worker ---------------------------------------------------------------------------------- */

static mortise_client *work_client;
static mortise_lease *work_lease;

static void say(mortise_status status, const char *more)
{
    printf("%s %s\n", mortise_status_name(status), more);
    fflush(stdout);
}

static mortise_status work_acquire(const char *name, int64_t wait_ms, int64_t ttl_ms,
                                   const char *mode, uint32_t permits, mortise_error *error)
{
    bool shared = strcmp(mode, "shared") == 0;
    return mortise_acquire(work_client, name,
                           MORTISE_OPTIONS(.wait_ms = wait_ms, .ttl_ms = ttl_ms,
                                           .mode = shared ? MORTISE_SHARED : MORTISE_EXCLUSIVE,
                                           .permits = permits),
                           &work_lease, error);
}

/* Looks around while it holds its lease: nobody else may be there who excludes it. */
static void visit(struct arena *arena, int me, bool write, uint32_t permits)
{
    _Atomic int64_t *here = write ? &arena->writing[me] : &arena->reading[me];
    int64_t now_ns = boot_ns();
    atomic_store(here, now_ns + (mortise_remaining_ms(work_lease) - 1) * 1000000);
    int writers = others(arena->writing, me), readers = others(arena->reading, me);
    bool bad = writers > 0 || (write ? readers > 0 : permits > 0 && readers >= (int)permits);
    if (mortise_state(work_lease) == MORTISE_STATE_LOST)
        return; /* it stood still: others may well be there */
    atomic_fetch_add(&arena->violations, bad);
    if (!write && readers + 1 > atomic_load(&arena->most))
        atomic_store(&arena->most, readers + 1);
}

/* Writes now and then (each so-manieth time; 0: never), reads otherwise, until the arena says stop. */
static void storm(const char *name, int me, unsigned writes, uint32_t permits, int64_t ttl_ms,
                  int64_t hold_ms)
{
    struct arena *arena = arena_map();
    mortise_error error = {0};
    unsigned seed = (unsigned)getpid();
    while (!atomic_load(&arena->stop)) {
        bool write = writes > 0 && (unsigned)rand_r(&seed) % writes == 0;
        mortise_status status = work_acquire(name, LONG_MS, ttl_ms, write ? "exclusive" : "shared",
                                             write ? 0 : permits, &error);
        if (status != MORTISE_OK) {
            fprintf(stderr, "worker %d: %s\n", me, error.message);
            atomic_fetch_add(&arena->failures, 1);
            break;
        }
        visit(arena, me, write, permits);
        atomic_fetch_add(write ? &arena->writes : &arena->reads, 1);
        test_poll(is_over, arena, hold_ms); /* the work */
        atomic_store(write ? &arena->writing[me] : &arena->reading[me], 0);
        mortise_release(work_lease, NULL);
    }
    say(MORTISE_OK, "");
}

/* acquire NAME WAIT TTL MODE PERMITS | release | downgrade | storm NAME ME WRITES PERMITS TTL HOLD */
static int work(const char *config, const char *arena)
{
    char line[512], word[32], name[128], mode[32];
    mortise_error error = {0};
    long long a = 0, b = 0, c = 0, d = 0, e = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(arena_path, sizeof arena_path, "%s", arena);
    say(mortise_open(config, &work_client, &error), error.message);
    while (fgets(line, sizeof line, stdin) != NULL) {
        mortise_status status = MORTISE_INVALID;
        error.message[0] = '\0';
        sscanf(line, "%31s", word);
        if (sscanf(line, "acquire %127s %lld %lld %31s %lld", name, &a, &b, mode, &c) == 5)
            status = work_acquire(name, a, b, mode, (uint32_t)c, &error);
        else if (strcmp(word, "release") == 0)
            status = mortise_release(work_lease, &error);
        else if (strcmp(word, "downgrade") == 0)
            status = mortise_downgrade(work_lease, &error);
        else if (sscanf(line, "storm %127s %lld %lld %lld %lld %lld", name, &a, &b, &c, &d, &e) == 6) {
            storm(name, (int)a, (unsigned)b, (uint32_t)c, d, e);
            continue;
        }
        say(status, error.message);
    }
    mortise_close(work_client, NULL);
    return 0;
}

/* ---- workers in the hands of a test ------------------------------------------------------------------ */

static bool hears(struct test_process *worker, const char *status, int64_t within_ms)
{
    char line[512] = "nothing";
    bool heard = test_hear(worker, line, sizeof line, within_ms);
    bool good = heard && strncmp(line, status, strlen(status)) == 0;
    if (!good)
        fprintf(stderr, "not \"%s\", but: %s\n", status, line);
    return good;
}

static void worker_start(struct test_process *worker)
{
    const char *const argv[] = {"/proc/self/exe", "worker", config_path, arena_path, NULL};
    CU_ASSERT_FATAL(test_spawn(worker, argv) && hears(worker, "OK", TEST_PATIENCE_MS));
}

static void workers_start(struct test_process *workers, int count)
{
    for (int i = 0; i < count; i++)
        worker_start(&workers[i]);
}

static void workers_end(struct test_process *workers, int count)
{
    for (int i = 0; i < count; i++)
        test_kill(&workers[i]);
}

static mortise_client *open_here(void)
{
    mortise_client *client = NULL;
    CU_ASSERT_FATAL(mortise_open(config_path, &client, NULL) == MORTISE_OK);
    return client;
}

static mortise_lease *hold(mortise_client *client, const char *name, mortise_mode mode,
                           uint32_t permits)
{
    mortise_lease *lease = NULL;
    mortise_error error = {0};
    mortise_status status =
        mortise_acquire(client, name,
                        MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS,
                                        .mode = mode, .permits = permits),
                        &lease, &error);
    if (status != MORTISE_OK)
        fprintf(stderr, "%s: %s\n", name, error.message);
    CU_ASSERT_EQUAL_FATAL(status, MORTISE_OK);
    return lease;
}

struct crowd {
    mortise_client *client;
    const char *name;
    int waiters;
};

static bool so_many_wait(void *argument)
{
    const struct crowd *crowd = argument;
    mortise_info info = {.size = sizeof info};
    return mortise_inspect(crowd->client, crowd->name, &info, NULL) == MORTISE_OK &&
           info.waiters >= crowd->waiters;
}

static void await_waiters(mortise_client *client, const char *name, int waiters)
{
    struct crowd crowd = {client, name, waiters};
    CU_ASSERT(test_poll(so_many_wait, &crowd, TEST_PATIENCE_MS));
}

/* ---- the tests ----------------------------------------------------------------------------------- */

static void check_arena(struct arena *arena)
{
    CU_ASSERT_EQUAL(atomic_load(&arena->failures), 0);
    ASSERT_SAFE(atomic_load(&arena->violations) == 0);
}

static void run_storm(const char *name, int count, unsigned writes, uint32_t permits)
{
    struct test_process workers[WORKERS_MAX];
    struct arena *arena = arena_map();
    memset(arena, 0, sizeof *arena);
    workers_start(workers, count);
    for (int i = 0; i < count; i++)
        test_say(&workers[i], "storm %s %d %u %u %d 1", name, i, writes, permits, LONG_MS);
    await_number(&arena->reads, 500);
    await_number(&arena->writes, writes > 0 ? 40 : 0);
    atomic_store(&arena->stop, true);
    for (int i = 0; i < count; i++)
        CU_ASSERT(hears(&workers[i], "OK", TEST_PATIENCE_MS));
    check_arena(arena);
    fprintf(stderr, "%d reads, %d writes, at most %d at once ", atomic_load(&arena->reads),
            atomic_load(&arena->writes), atomic_load(&arena->most));
    workers_end(workers, count);
}

static void test_readers_and_writers(void)
{
    run_storm("mixed", 6, 4, 0);
}

static void test_semaphore(void)
{
    run_storm("semaphore", 8, 10, 3);
}

/* Readers that overlap all the time, and one writer. */
static void test_writer_gets_in(void)
{
    struct test_process workers[8];
    struct arena *arena = arena_map();
    mortise_client *client = open_here();
    memset(arena, 0, sizeof *arena);
    workers_start(workers, 8);
    for (int i = 0; i < 8; i++)
        test_say(&workers[i], "storm busy %d 0 0 %d 20", i, LONG_MS);
    await_number(&arena->most, 4);
    for (int i = 0; i < 3; i++) {
        int64_t began_ms = test_now_ms();
        mortise_lease *lease = hold(client, "busy", MORTISE_EXCLUSIVE, 0);
        CU_ASSERT_TRUE(test_now_ms() - began_ms < 20000);
        bool alone = others(arena->reading, -1) == 0;
        ASSERT_SAFE(alone || mortise_state(lease) == MORTISE_STATE_LOST);
        mortise_release(lease, NULL);
    }
    atomic_store(&arena->stop, true);
    for (int i = 0; i < 8; i++)
        CU_ASSERT(hears(&workers[i], "OK", TEST_PATIENCE_MS));
    check_arena(arena);
    workers_end(workers, 8);
    mortise_close(client, NULL);
}

/* Holders are killed again and again; there are never more than the permits allow. */
static void test_killed_holders(void)
{
    struct test_process workers[6];
    struct arena *arena = arena_map();
    memset(arena, 0, sizeof *arena);
    workers_start(workers, 6);
    for (int i = 0; i < 6; i++)
        test_say(&workers[i], "storm killed %d 0 2 1000 2", i);
    for (int i = 0; i < 6; i++) {
        await_number(&arena->reads, atomic_load(&arena->reads) + 5);
        test_kill(&workers[i % 3]);
        atomic_store(&arena->reading[i % 3], 0);
        worker_start(&workers[i % 3]);
        test_say(&workers[i % 3], "storm killed %d 0 2 1000 2", i % 3);
    }
    atomic_store(&arena->stop, true);
    for (int i = 0; i < 6; i++)
        CU_ASSERT(hears(&workers[i], "OK", TEST_PATIENCE_MS));
    check_arena(arena);
    CU_ASSERT_TRUE(atomic_load(&arena->most) <= 2);
    workers_end(workers, 6);
}

/* A dead reader blocks a writer for its own ttl, whatever others do. */
static void test_dead_reader(void)
{
    enum { TTL_MS = 2000 };
    struct test_process dead, alive;
    mortise_client *client = open_here();
    worker_start(&dead);
    worker_start(&alive);
    test_say(&alive, "acquire dead 0 %d shared 0", LONG_MS);
    CU_ASSERT(hears(&alive, "OK", TEST_PATIENCE_MS));
    int64_t before_ms = test_now_ms();
    test_say(&dead, "acquire dead 0 %d shared 0", TTL_MS);
    CU_ASSERT(hears(&dead, "OK", TEST_PATIENCE_MS));
    test_kill(&dead);
    test_say(&alive, "release");
    CU_ASSERT(hears(&alive, "OK", TEST_PATIENCE_MS));
    mortise_lease *lease = hold(client, "dead", MORTISE_EXCLUSIVE, 0);
    CU_ASSERT_TRUE(test_now_ms() - before_ms >= TTL_MS);
    CU_ASSERT_TRUE(test_now_ms() - before_ms < TTL_MS + 10000);
    mortise_release(lease, NULL);
    test_kill(&alive);
    mortise_close(client, NULL);
}

/* Readers get in, writers that wait do not, until all have released. */
static bool downgrade_is_soon(const char *name)
{
    struct test_process writers[3], readers[2];
    mortise_client *client = open_here();
    mortise_error error = {0};
    workers_start(writers, 3);
    workers_start(readers, 2);
    mortise_lease *lease = hold(client, name, MORTISE_EXCLUSIVE, 0);
    uint64_t token = mortise_token(lease);
    for (int i = 0; i < 3; i++)
        test_say(&writers[i], "acquire %s %d %d exclusive 0", name, LONG_MS, LONG_MS);
    await_waiters(client, name, 3);
    for (int i = 0; i < 2; i++)
        test_say(&readers[i], "acquire %s %d %d shared 0", name, LONG_MS, LONG_MS);
    await_waiters(client, name, 5);
    int64_t began_ms = test_now_ms();
    CU_ASSERT_EQUAL(mortise_downgrade(lease, &error), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_token(lease), token);
    for (int i = 0; i < 2; i++)
        CU_ASSERT(hears(&readers[i], "OK", TEST_PATIENCE_MS));
    bool soon = test_now_ms() - began_ms < SOON_MS;
    mortise_info info = {.size = sizeof info};
    CU_ASSERT_EQUAL(mortise_inspect(client, name, &info, &error), MORTISE_OK);
    CU_ASSERT_TRUE(info.mode == MORTISE_SHARED && info.holders == 3 && info.token == token);
    CU_ASSERT_EQUAL(mortise_release(lease, &error), MORTISE_OK);
    for (int i = 0; i < 2; i++) {
        char line[64];
        CU_ASSERT_FALSE(test_hear(&writers[i], line, sizeof line, 0));
        test_say(&readers[i], "release");
        CU_ASSERT(hears(&readers[i], "OK", TEST_PATIENCE_MS));
    }
    for (int in = 0; in < 3; in++) /* one after the other, in any order */
        for (int i = 0, left = 1; left; i = (i + 1) % 3) {
            char line[64];
            if (writers[i].pid == 0 || !test_hear(&writers[i], line, sizeof line, 10))
                continue;
            CU_ASSERT_NSTRING_EQUAL(line, "OK", 2);
            test_say(&writers[i], "release");
            CU_ASSERT(hears(&writers[i], "OK", TEST_PATIENCE_MS));
            test_kill(&writers[i]);
            left = 0;
        }
    workers_end(readers, 2);
    mortise_close(client, NULL);
    return soon;
}

static void test_downgrade(void)
{
    CU_ASSERT(downgrade_is_soon("down1") || downgrade_is_soon("down2") || downgrade_is_soon("down3"));
}

/* Several permits come back at once: as many waiters get in, at once. */
static bool permits_are_back_soon(const char *name)
{
    struct test_process workers[4];
    mortise_client *client = open_here();
    mortise_lease *leases[3];
    workers_start(workers, 4);
    for (int i = 0; i < 3; i++)
        leases[i] = hold(client, name, MORTISE_SHARED, 3);
    for (int i = 0; i < 4; i++)
        test_say(&workers[i], "acquire %s %d %d shared 3", name, LONG_MS, LONG_MS);
    await_waiters(client, name, 4);
    test_kill(&workers[0]); /* whichever place it has: the others do not wait for it */
    int64_t began_ms = test_now_ms();
    for (int i = 0; i < 3; i++)
        CU_ASSERT_EQUAL(mortise_release(leases[i], NULL), MORTISE_OK);
    for (int i = 1; i < 4; i++)
        CU_ASSERT(hears(&workers[i], "OK", TEST_PATIENCE_MS));
    bool soon = test_now_ms() - began_ms < SOON_MS;
    workers_end(workers, 4);
    mortise_close(client, NULL);
    return soon;
}

static void test_permits_come_back(void)
{
    CU_ASSERT(permits_are_back_soon("back1") || permits_are_back_soon("back2") || permits_are_back_soon("back3"));
}

static bool count_holder(const mortise_info *info, void *argument)
{
    uint64_t *last = argument;
    CU_ASSERT_TRUE(info->token > last[0] && info->holders == 3 && info->permits == 4);
    CU_ASSERT_EQUAL(info->pid, getpid());
    last[0] = info->token;
    last[1]++;
    return true;
}

static void test_holders(void)
{
    mortise_client *client = open_here(), *other = open_here();
    mortise_lease *leases[3], *none;
    mortise_error error = {0};
    uint64_t last[2] = {0, 0};
    char permits[64];
    for (int i = 0; i < 3; i++)
        leases[i] = hold(client, "holders", MORTISE_SHARED, 4);
    CU_ASSERT_EQUAL(mortise_holders(other, "holders", count_holder, last, &error), MORTISE_OK);
    CU_ASSERT_EQUAL(last[1], 3);
    CU_ASSERT_EQUAL(
        mortise_acquire(other, "holders", MORTISE_OPTIONS(.mode = MORTISE_SHARED, .permits = 5),
                        &none, &error),
        MORTISE_INVALID);
    snprintf(permits, sizeof permits, "(pid %d) holds it with permits = 4", (int)getpid());
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, permits));
    CU_ASSERT_EQUAL(mortise_break(other, "holders", mortise_token(leases[1]), &error), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_break(other, "holders", mortise_token(leases[1]), &error),
                    MORTISE_NOTOWNER);
    CU_ASSERT_EQUAL(mortise_release(leases[1], &error), MORTISE_LOST);
    CU_ASSERT_EQUAL(mortise_release(leases[0], &error), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(leases[2], &error), MORTISE_OK);
    mortise_close(other, NULL);
    mortise_close(client, NULL);
}

#endif
