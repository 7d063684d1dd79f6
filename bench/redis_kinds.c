/* redis_kinds.c - what shared locks, permits and several names cost on a Redis server: a crowd of readers beside the same
 * crowd on an exclusive lock in strict order; how long a writer waits among readers; eight permits beside one; five
 * names at once beside five acquires in flight.
 *
 * Each measurement forks processes, which count their cycles in memory that they share with this one. */
#include "common.h"
#include "redis_server.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES_MAX 64
#define NAMES 5
#define NS_PER_MS 1000000
#define READ_MS 100 /* a reader's section, if a writer waits for it: longer than handover_window */

struct squad {
    _Atomic bool stop;
    _Atomic unsigned ready;
    _Atomic uint64_t cycles;
};

struct crowd {
    const struct redis_server *server;
    const char *more; /* further options of the URL */
    unsigned processes, threads;
    mortise_options options;
    int64_t section_ns;
    struct squad *squad;
    pid_t pids[PROCESSES_MAX];
};

struct member {
    struct crowd *crowd;
    mortise_client *client;
};

static mortise_client *open_client(const struct redis_server *server, const char *more)
{
    char url[128];
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d?queue=yes&log=none%s", server->port, more);
    return bench_open(url);
}

static void sleep_ns(int64_t ns)
{
    bench_sleep_until_ns(bench_now_ns() + ns);
}

static void *make_cycles(void *argument)
{
    struct member *member = argument;
    struct crowd *crowd = member->crowd;
    while (!atomic_load(&crowd->squad->stop)) {
        mortise_lease *lease = bench_acquire(member->client, "crowd", &crowd->options);
        if (crowd->section_ns > 0)
            sleep_ns(crowd->section_ns);
        bench_release(lease);
        atomic_fetch_add_explicit(&crowd->squad->cycles, 1, memory_order_relaxed);
    }
    return NULL;
}

static void become_member(struct crowd *crowd, pid_t parent)
{
    pthread_t threads[64];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(0);
    struct member member = {crowd, open_client(crowd->server, crowd->more)};
    atomic_fetch_add(&crowd->squad->ready, 1);
    for (unsigned i = 0; i < crowd->threads; i++)
        threads[i] = bench_thread(make_cycles, &member);
    for (unsigned i = 0; i < crowd->threads; i++)
        pthread_join(threads[i], NULL);
    bench_close(member.client);
    _exit(0);
}

static void start(struct crowd *crowd)
{
    pid_t parent = getpid();
    void *memory =
        mmap(NULL, sizeof(struct squad), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        bench_die("out of memory");
    crowd->squad = memory;
    fflush(stdout);
    for (unsigned i = 0; i < crowd->processes; i++) {
        crowd->pids[i] = fork();
        if (crowd->pids[i] == 0)
            become_member(crowd, parent);
        if (crowd->pids[i] < 0)
            bench_die("fork failed");
    }
    while (atomic_load(&crowd->squad->ready) < crowd->processes ||
           atomic_load(&crowd->squad->cycles) == 0)
        sleep_ns(NS_PER_MS);
}

static void finish(struct crowd *crowd)
{
    atomic_store(&crowd->squad->stop, true);
    for (unsigned i = 0; i < crowd->processes; i++) {
        int status;
        if (waitpid(crowd->pids[i], &status, 0) < 0 || status != 0)
            bench_die("a process of the benchmark failed");
    }
    munmap(crowd->squad, sizeof(struct squad));
}

static double cycles_per_second(struct bench_case *self, double seconds)
{
    struct crowd *crowd = self->context;
    start(crowd);
    sleep_ns((int64_t)(seconds / 4 * 1e9));
    uint64_t before = atomic_load(&crowd->squad->cycles);
    int64_t from = bench_now_ns();
    sleep_ns((int64_t)(seconds * 1e9));
    uint64_t cycles = atomic_load(&crowd->squad->cycles) - before;
    double taken = (double)(bench_now_ns() - from) / 1e9;
    finish(crowd);
    return (double)cycles / taken;
}

/* The longest wait of a writer that comes once a second, in sections of a reader. */
static double writer_wait(struct bench_case *self, double seconds)
{
    struct crowd *crowd = self->context;
    int64_t longest_ns = 0;
    start(crowd);
    mortise_client *client = open_client(crowd->server, "");
    for (double t = 0; t < seconds || t == 0; t++) {
        sleep_ns(INT64_C(1000) * NS_PER_MS);
        int64_t from = bench_now_ns();
        mortise_lease *lease = bench_acquire(client, "crowd", MORTISE_OPTIONS(.wait_ms = -1));
        int64_t waited_ns = bench_now_ns() - from;
        bench_release(lease);
        longest_ns = waited_ns > longest_ns ? waited_ns : longest_ns;
    }
    bench_close(client);
    finish(crowd);
    return (double)longest_ns / (double)crowd->section_ns;
}

/* ---- several names ---- */

struct several {
    mortise_client *client;
    mortise_lease *leases[NAMES];
    unsigned told;
};

static const char *const names[NAMES] = {"a", "b", "c", "d", "e"};

static void at_once(void *context, size_t n)
{
    struct several *several = context;
    while (n-- > 0) {
        if (mortise_acquire_many(several->client, names, NAMES, NULL, several->leases, NULL) !=
            MORTISE_OK)
            bench_die("several names: not acquired");
        mortise_release_many(several->leases, NAMES, NULL);
    }
}

static void told(mortise_status status, mortise_lease *lease, const mortise_error *error,
                 void *user_data)
{
    struct several *several = user_data;
    if (status != MORTISE_OK)
        bench_die("in flight: %s", error->message);
    several->leases[several->told++] = lease;
}

static void in_flight(void *context, size_t n)
{
    struct several *several = context;
    struct pollfd ready = {.fd = mortise_fd(several->client, NULL), .events = POLLIN};
    while (n-- > 0) {
        several->told = 0;
        for (int i = 0; i < NAMES; i++)
            mortise_acquire_async(several->client, names[i], NULL, told, several, NULL, NULL);
        while (several->told < NAMES) {
            poll(&ready, 1, -1);
            mortise_dispatch(several->client);
        }
        mortise_release_many(several->leases, NAMES, NULL);
    }
}

int main(int argc, char **argv)
{
    struct redis_server server;
    bench_begin(argc, argv, "redis_kinds", "Shared locks, permits and several names on Redis", 2);
    redis_server_start(&server, BENCH_ANY_CPU);
    const mortise_options shared = *MORTISE_OPTIONS(.wait_ms = -1, .mode = MORTISE_SHARED);
    const mortise_options exclusive = *MORTISE_OPTIONS(.wait_ms = -1);
    struct crowd readers = {&server, "", 8, 8, shared, 0, NULL, {0}};
    struct crowd strict = {&server, "&handover_max=0", 8, 8, exclusive, 0, NULL, {0}};
    struct crowd reading = {&server, "", 8, 8, shared, READ_MS * NS_PER_MS, NULL, {0}};
    struct crowd eight = {&server, "", 64, 1, shared, NS_PER_MS, NULL, {0}};
    struct crowd one = eight;
    eight.options.permits = 8;
    one.options.permits = 1;
    struct several together = {.client = open_client(&server, "")};
    struct several apart = {.client = open_client(&server, "")};
    struct bench_series *rate = bench_new_series("readers", "8 x 8 readers, no writer", "cycles/s");
    struct bench_series *order =
        bench_new_series("exclusive", "8 x 8 threads, strict order", "cycles/s");
    struct bench_series *wait =
        bench_new_series("writer", "a writer's longest wait among 8 x 8 readers", "sections");
    struct bench_series *permits =
        bench_new_series("permits", "64 processes, 8 permits, 1 ms", "cycles/s");
    struct bench_series *single =
        bench_new_series("permit", "64 processes, 1 permit, 1 ms", "cycles/s");
    struct bench_series *many =
        bench_new_series("many", "acquire and release 5 names at once", "ns");
    struct bench_series *flight =
        bench_new_series("flight", "5 acquires in flight, and releases", "ns");
    struct bench_case cases[] = {
        {.series = rate, .measure = cycles_per_second, .context = &readers},
        {.series = order, .measure = cycles_per_second, .context = &strict},
        {.series = wait, .measure = writer_wait, .context = &reading},
        {.series = permits, .measure = cycles_per_second, .context = &eight},
        {.series = single, .measure = cycles_per_second, .context = &one},
        {.series = many, .measure = bench_ns_per_turn, .loop = at_once, .context = &together},
        {.series = flight, .measure = bench_ns_per_turn, .loop = in_flight, .context = &apart},
    };
    bench_rounds(cases, sizeof(cases) / sizeof(cases[0]));
    bench_check("readers_over_exclusive", "readers / exclusive in strict order", rate, order,
                BENCH_AT_LEAST, 20);
    bench_check("writer_waits", "a writer's wait, in sections of a reader", wait, NULL,
                BENCH_AT_MOST, 2.1);
    bench_check("permits_over_one", "8 permits / 1 permit", permits, single, BENCH_AT_LEAST, 6);
    bench_check("many_over_flight", "5 names at once / 5 in flight", many, flight, BENCH_AT_MOST,
                1.3);
    bench_close(together.client);
    bench_close(apart.client);
    redis_server_stop(&server);
    return bench_end();
}
