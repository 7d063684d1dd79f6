/* etcd.c - the etcd driver beside bare calls over the same kind of connection, on one private server and in one run: what an
 * acquire costs beside one transaction that puts a key, a cycle beside put and delete, a hand-over between clients beside a
 * delete and the event that tells of it, and 64 in flight beside one. etcd_counts.c has the figures that are counted instead
 * of timed.
 *
 * tests/servers.sh starts the server, which forces its log to the disk, so --folder selects the disk. With --folder /dev/shm
 * there is no disk, which shows best what the client itself costs. */
#include "common.h"
#include "etcd_floor.h"
#include "etcd_server.h"
#include "flights.h"

#include <stdio.h>
#include <string.h>

static struct etcd_server server;
static struct etcd_bare *bare, *other;
static const char bare_key[] = "bench/bare/00000000000000000000000000000000";

/* ---- what is timed only in part -------------------------------------------------------------------- */

/* Nanoseconds of `timed` in a turn that also has `before` and `after`. */
static double part(double seconds, void (*before)(void *), void (*timed)(void *),
                   void (*after)(void *), void *context)
{
    int64_t until_ns = bench_now_ns() + (int64_t)(seconds * 1e9), spent_ns = 0;
    int turns = 0;
    for (; turns == 0 || bench_now_ns() < until_ns; turns++) {
        before(context);
        int64_t began_ns = bench_now_ns();
        timed(context);
        spent_ns += bench_now_ns() - began_ns;
        after(context);
    }
    return (double)spent_ns / turns;
}

static void nothing(void *context)
{
    (void)context;
}

/* ---- an acquire ------------------------------------------------------------------------------------------ */

static mortise_lease *held;

static void put(void *context)
{
    (void)context;
    etcd_put(bare, bare_key);
}

static void delete (void *context)
{
    (void)context;
    etcd_delete(bare, bare_key);
}

static void acquire(void *client)
{
    held = bench_acquire(client, "one", NULL);
}

static void release(void *client)
{
    (void)client;
    bench_release(held);
}

static double bare_put(struct bench_case *self, double seconds)
{
    return part(seconds, nothing, put, delete, self->context);
}

static double driver_acquire(struct bench_case *self, double seconds)
{
    return part(seconds, nothing, acquire, release, self->context);
}

/* ---- a hand-over ------------------------------------------------------------------------------------------ */

static void be_watched(void *context)
{
    (void)context;
    etcd_watch(other, bare_key, etcd_put(bare, bare_key));
}

/* Does not wait for the answer to the deletion, because the driver does not either. */
static void delete_and_hear(void *context)
{
    (void)context;
    etcd_delete_begin(bare, bare_key);
    etcd_await_event(other);
}

static void finish(void *context)
{
    (void)context;
    etcd_finish(bare);
}

static double bare_handover(struct bench_case *self, double seconds)
{
    return part(seconds, be_watched, delete_and_hear, finish, self->context);
}

/* A caller that waits on a thread of its own, as most do. */
static struct waiter {
    mortise_client *client;
    mortise_lease *handed;
    int64_t handed_ns; /* when it got the lock: the rest is the benchmark's own time */
    enum { WAITER_RESTS, WAITER_WANTS, WAITER_HAS } state;
    pthread_mutex_t lock;
    pthread_cond_t changed;
} waiter = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void waiter_set(int state)
{
    pthread_mutex_lock(&waiter.lock);
    waiter.state = state;
    pthread_cond_broadcast(&waiter.changed);
    pthread_mutex_unlock(&waiter.lock);
}

static void waiter_await(int state)
{
    pthread_mutex_lock(&waiter.lock);
    while ((int)waiter.state != state)
        pthread_cond_wait(&waiter.changed, &waiter.lock);
    pthread_mutex_unlock(&waiter.lock);
}

static void *waiter_main(void *unused)
{
    for (;;) {
        waiter_await(WAITER_WANTS);
        waiter.handed = bench_acquire(waiter.client, "handed", NULL);
        waiter.handed_ns = bench_now_ns();
        waiter_set(WAITER_HAS);
    }
    return unused;
}

static void be_waited_for(void *client)
{
    mortise_info info = {.size = sizeof(info)};
    held = bench_acquire(client, "handed", NULL);
    waiter_set(WAITER_WANTS);
    do /* until it is in the queue, */
        mortise_inspect(client, "handed", &info, NULL);
    while (info.waiters != 1);
    for (int looks = 0; looks < 4; looks++) /* and as long as it takes to set its watch */
        mortise_inspect(client, "handed", &info, NULL);
}

static double driver_handover(struct bench_case *self, double seconds)
{
    int64_t until_ns = bench_now_ns() + (int64_t)(seconds * 1e9), spent_ns = 0;
    int turns = 0;
    for (; turns == 0 || bench_now_ns() < until_ns; turns++) {
        be_waited_for(self->context);
        int64_t began_ns = bench_now_ns();
        if (mortise_release_nowait(held, NULL) != MORTISE_OK)
            bench_die("not released");
        waiter_await(WAITER_HAS);
        spent_ns += waiter.handed_ns - began_ns;
        bench_release(waiter.handed);
    }
    return (double)spent_ns / turns;
}

/* ---- cycles -------------------------------------------------------------------------------------------------- */

static void bare_cycles(void *context, size_t n)
{
    (void)context;
    for (; n > 0; n--) {
        etcd_put(bare, bare_key);
        etcd_delete(bare, bare_key);
    }
}

static void cycles(void *client, size_t n)
{
    for (; n > 0; n--)
        bench_release(bench_acquire(client, "one", NULL));
}

static void cycles_nowait(void *client, size_t n)
{
    for (; n > 0; n--)
        if (mortise_release_nowait(bench_acquire(client, "one", NULL), NULL) != MORTISE_OK)
            bench_die("not released");
}

/* ---- main ------------------------------------------------------------------------------------------------------ */

enum { PUT, ACQUIRE, BARE_CYCLE, CYCLE, NOWAIT, EVENT, HANDOVER, FLYING, CASES };

static void checks(struct bench_series *const *s)
{
    bench_check("acquire_over_put", "acquire / one bare put transaction", s[ACQUIRE], s[PUT],
                BENCH_AT_MOST, 1.2);
    bench_check("cycle_over_bare", "acquire + release / bare put and delete", s[CYCLE],
                s[BARE_CYCLE], BENCH_TOLD, 0);
    bench_check("nowait_over_bare", "rate with release_nowait / bare put and delete", s[BARE_CYCLE],
                s[NOWAIT], BENCH_AT_LEAST, 1.3);
    bench_check("handover_over_event", "hand-over between clients / bare delete to watch event",
                s[HANDOVER], s[EVENT], BENCH_AT_MOST, 1.5);
    bench_check("flying_over_one", "rate with 64 in flight / acquire + release", s[CYCLE],
                s[FLYING], BENCH_AT_LEAST, 6);
    bench_check("flying_over_nowait", "rate with 64 in flight / acquire + release_nowait",
                s[NOWAIT], s[FLYING], BENCH_TOLD, 0);
}

int main(int argc, char **argv)
{
    static const char *const names[CASES][2] = {
        {"etcd_bare_put", "bare transaction that puts a key"},
        {"etcd_acquire", "acquire"},
        {"etcd_bare_cycle", "bare put, then delete"},
        {"etcd_cycle", "acquire + release"},
        {"etcd_nowait", "acquire + release_nowait"},
        {"etcd_bare_handover", "bare delete, until its event is told"},
        {"etcd_handover", "release_nowait, until the other client has it"},
        {"etcd_flying", "a cycle of 64 in flight"}};
    static struct flights flights;
    struct bench_series *all[CASES];
    bench.rounds = 11;
    bench_begin(argc, argv, "etcd", "etcd: one server that waits for its disk", 0.3);
    etcd_server_begin(&server, "");
    bare = etcd_connect(server.address);
    other = etcd_connect(server.address);
    etcd_grant(bare, 3600);
    mortise_client *client = bench_open(server.url);
    waiter.client = bench_open(server.url);
    bench_thread(waiter_main, NULL);
    flights_open(&flights, bench_open(server.url), "flying");
    for (size_t i = 0; i < CASES; i++)
        all[i] = bench_new_series(names[i][0], names[i][1], "ns");
    struct bench_case cases[CASES] = {
        [PUT] = {.measure = bare_put},
        [ACQUIRE] = {.measure = driver_acquire, .context = client},
        [BARE_CYCLE] = {.measure = bench_ns_per_turn, .loop = bare_cycles},
        [CYCLE] = {.measure = bench_ns_per_turn, .loop = cycles, .context = client},
        [NOWAIT] = {.measure = bench_ns_per_turn, .loop = cycles_nowait, .context = client},
        [EVENT] = {.measure = bare_handover},
        [HANDOVER] = {.measure = driver_handover, .context = client},
        [FLYING] = {.measure = bench_ns_per_turn, .loop = flights_cycles, .context = &flights}};
    for (size_t i = 0; i < CASES; i++)
        cases[i].series = all[i];
    bench_rounds(cases, CASES);
    checks(all);
    bench_close(flights.client);
    bench_close(waiter.client);
    bench_close(client);
    etcd_close(other);
    etcd_close(bare);
    return bench_end();
}
