/* handover.c - how fast a lock goes from thread to thread: 64 threads on one name of one client (sim
 * driver), beside the same threads on a bare FIFO lock; free, and pinned to one processor.
 *
 * A *pass* is an acquire by another thread than the last holder: a thread that takes the lock again before anybody
 * else could has not passed it on. Passes are counted from the time when the queue has formed; the section between
 * acquire and release only counts. The hand-over limits are the library's defaults, so now and then the grant goes
 * back to the backend, as it does in use. */
#include "common.h"
#include "fifo.h"

#include <stdatomic.h>
#include <stdio.h>

#define THREADS 64

struct crowd;

struct member {
    struct crowd *crowd;
    pthread_t thread;
    struct fifo_waiter waiter;
};

/* The threads of one measurement. */
struct crowd {
    int cpu;
    bool bare;
    mortise_client *client;
    struct fifo fifo;
    pthread_barrier_t start;
    _Atomic bool stop;
    _Atomic uint64_t passes;
    /* guarded by the measured lock: a race here would be its failure */
    int inside;
    const struct member *last;
    struct member members[THREADS];
};

static void section(struct member *member)
{
    struct crowd *crowd = member->crowd;
    if (crowd->inside++ != 0)
        bench_die("two threads were inside at once");
    if (crowd->last != member) {
        uint64_t passes = atomic_load_explicit(&crowd->passes, memory_order_relaxed);
        atomic_store_explicit(&crowd->passes, passes + 1, memory_order_relaxed);
    }
    crowd->last = member;
    crowd->inside--;
}

static void pass_bare(struct member *member)
{
    struct crowd *crowd = member->crowd;
    fifo_acquire(&crowd->fifo, &member->waiter);
    section(member);
    fifo_release(&crowd->fifo);
}

static void pass_lease(struct member *member)
{
    struct crowd *crowd = member->crowd;
    mortise_lease *lease =
        bench_acquire(crowd->client, "passed on", MORTISE_OPTIONS(.wait_ms = MORTISE_WAIT_FOREVER));
    section(member);
    bench_release(lease);
}

static void *member_main(void *argument)
{
    struct member *member = argument;
    struct crowd *crowd = member->crowd;
    pthread_barrier_wait(&crowd->start);
    while (!atomic_load_explicit(&crowd->stop, memory_order_relaxed)) {
        if (crowd->bare)
            pass_bare(member);
        else
            pass_lease(member);
    }
    return NULL;
}

static void start_crowd(struct crowd *crowd)
{
    atomic_store(&crowd->stop, false);
    pthread_barrier_init(&crowd->start, NULL, THREADS + 1);
    bench_pin(crowd->cpu);
    for (int i = 0; i < THREADS; i++) {
        struct member *member = &crowd->members[i];
        member->crowd = crowd;
        fifo_waiter_begin(&member->waiter);
        member->thread = bench_thread(member_main, member);
    }
}

static void stop_crowd(struct crowd *crowd)
{
    atomic_store(&crowd->stop, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(crowd->members[i].thread, NULL);
    for (int i = 0; i < THREADS; i++) /* only now, because a signal may come late */
        fifo_waiter_end(&crowd->members[i].waiter);
    bench_pin(bench.cpu);
    pthread_barrier_destroy(&crowd->start);
}

static void sleep_seconds(double seconds)
{
    bench_sleep_until_ns(bench_now_ns() + (int64_t)(seconds * 1e9));
}

/* A `measure`: passes per second. */
static double passes_per_second(struct bench_case *self, double seconds)
{
    struct crowd *crowd = self->context;
    start_crowd(crowd);
    pthread_barrier_wait(&crowd->start);
    sleep_seconds(seconds / 4); /* until all of them are in the queue */
    uint64_t passes = atomic_load(&crowd->passes);
    int64_t from = bench_now_ns();
    sleep_seconds(seconds);
    passes = atomic_load(&crowd->passes) - passes;
    double taken = (double)(bench_now_ns() - from);
    stop_crowd(crowd);
    return (double)passes * 1e9 / taken;
}

/* A client whose threads, made at the first acquire, stay on that processor, too. */
static mortise_client *open_on(int cpu)
{
    bench_pin(cpu);
    mortise_client *client = bench_open("sim:");
    bench_release(bench_acquire(client, "first", NULL));
    bench_pin(bench.cpu);
    return client;
}

static double handed_over(mortise_client *client)
{
    mortise_stats stats = {.size = sizeof(stats)};
    if (mortise_stats_get(client, &stats) != MORTISE_OK || stats.acquires == 0)
        return 0;
    return 100.0 * (double)stats.handovers / (double)stats.acquires;
}

int main(int argc, char **argv)
{
    static struct crowd crowds[4];
    static const char *const keys[] = {"fifo_free", "handover_free", "fifo_one", "handover_one"};
    static const char *const labels[] = {"bare FIFO, free", "hand-over, free",
                                         "bare FIFO, on one processor",
                                         "hand-over, on one processor"};
    struct bench_case cases[4];
    bench.rounds = 15;
    bench_begin(argc, argv, "handover", "64 threads on one name, passes per second", 0.2);
    int one = bench.cpu != BENCH_ANY_CPU ? bench.cpu : bench_first_cpu();
    for (int i = 0; i < 4; i++) {
        crowds[i] = (struct crowd){
            .cpu = i < 2 ? bench.cpu : one, .bare = i % 2 == 0, .fifo = FIFO_INITIALIZER};
        if (!crowds[i].bare)
            crowds[i].client = open_on(crowds[i].cpu);
        cases[i] = (struct bench_case){.series = bench_new_series(keys[i], labels[i], "/s"),
                                       .measure = passes_per_second,
                                       .context = &crowds[i]};
    }
    bench_rounds(cases, 4);
    bench_check("free_over_fifo", "hand-over / bare FIFO, free", cases[1].series, cases[0].series,
                BENCH_AT_LEAST, 0.5);
    bench_check("one_over_fifo", "hand-over / bare FIFO, on one processor", cases[3].series,
                cases[2].series, BENCH_AT_LEAST, 0.5);
    struct bench_series *share =
        bench_new_series("handed_over", "of them without the backend", "%");
    for (int i = 1; i < 4; i += 2)
        bench_add(share, handed_over(crowds[i].client));
    for (int i = 1; i < 4; i += 2)
        bench_close(crowds[i].client);
    return bench_end();
}
