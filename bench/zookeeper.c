/* zookeeper.c - the ZooKeeper driver against the bare library, on one server and in one run: what an acquire
 * costs beside the create that it is made of, a cycle beside the same requests one after the other, a
 * hand-over beside a delete and the event that tells of it; and what many held locks cost.
 *
 * `mortise-bench --workload floors` starts the servers; $MORTISE_BENCH_ZOOKEEPER is HOST:PORT of one. $MORTISE_BENCH_KIND says
 * what kind of server it is: one that waits for its disk ("zookeeper", the default: all figures), one that does not
 * ("zookeeper_unforced"), or one that does not and shares a processor with the program ("zookeeper_one"). With the latter two,
 * only cycles are measured. */
#include "common.h"
#include "zookeeper_floor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELD 1000
#define TIMEOUT_MS 4000
#define WATCHED_MS 9250 /* 23.1 beats of a holder */

static zhandle_t *second;

static void on_data(int rc, const char *value, int length, const struct Stat *stat,
                    const void *data)
{
    (void)value;
    (void)length;
    (void)stat;
    (void)data;
    if (rc != ZOK)
        bench_die("get: %s", zerror(rc));
    zookeeper_answer();
}

/* ---- bare ---------------------------------------------------------------------------------------- */

static void create_list_delete(void *context, size_t n)
{
    (void)context;
    while (n-- > 0) {
        char path[256];
        struct String_vector children;
        if (zoo_create(zookeeper_bare, "/bench/bare/lock-", zookeeper_data, zookeeper_data_length,
                       &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL_SEQUENTIAL, path, sizeof(path)) != ZOK ||
            zoo_get_children(zookeeper_bare, "/bench/bare", 0, &children) != ZOK ||
            zoo_delete(zookeeper_bare, path, -1) != ZOK)
            bench_die("the bare cycle fails");
        deallocate_String_vector(&children);
    }
}

/* ---- what is timed only in part -------------------------------------------------------------------- */

/* Nanoseconds of `timed` in a turn that also has `before` and `after`. */
static double part(double seconds, void (*before)(void *), void (*timed)(void *),
                   void (*after)(void *), void *context)
{
    int64_t until_ns = bench_now_ns() + (int64_t)(seconds * 1e9), spent_ns = 0;
    int turns = 0;
    for (; turns == 0 || bench_now_ns() < until_ns; turns++) {
        if (before != NULL)
            before(context);
        int64_t began_ns = bench_now_ns();
        timed(context);
        spent_ns += bench_now_ns() - began_ns;
        after(context);
    }
    return (double)spent_ns / turns;
}

static mortise_lease *held;

static void acquire(void *client)
{
    held = bench_acquire(client, "one", NULL);
}

static void release(void *client)
{
    (void)client;
    bench_release(held);
}

static void create(void *context)
{
    (void)context;
    zookeeper_create();
}

static void delete (void *context)
{
    (void)context;
    zookeeper_delete();
}

static double bare_acquire(struct bench_case *self, double seconds)
{
    return part(seconds, NULL, create, delete, self->context);
}

static double driver_acquire(struct bench_case *self, double seconds)
{
    return part(seconds, NULL, acquire, release, self->context);
}

/* A second session watches the node that is deleted, until it gets the event. */
static void be_watched(void *context)
{
    (void)context;
    zookeeper_create();
    zoo_aget(second, zookeeper_made(), 1, on_data, NULL);
    zookeeper_await(1);
}

static void delete_and_hear(void *context)
{
    (void)context;
    zoo_adelete(zookeeper_bare, zookeeper_made(), -1, zookeeper_on_void, NULL);
    zookeeper_await(2);
}

static void nothing(void *context)
{
    (void)context;
}

static double bare_handover(struct bench_case *self, double seconds)
{
    return part(seconds, be_watched, delete_and_hear, nothing, self->context);
}

/* A caller that waits on a thread of its own, as most do. */
static mortise_lease *handed;
static unsigned wanted;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;

static void *take_turns(void *client)
{
    for (;;) {
        pthread_mutex_lock(&lock);
        while (wanted == 0)
            pthread_cond_wait(&wake, &lock);
        wanted--;
        pthread_mutex_unlock(&lock);
        handed = bench_acquire(client, "handed", NULL);
        zookeeper_answer();
    }
    return NULL;
}

struct two {
    mortise_client *holder, *waiter;
};

static void be_waited_for(void *context)
{
    struct two *two = context;
    mortise_info info = {.size = sizeof(info)};
    held = bench_acquire(two->holder, "handed", NULL);
    pthread_mutex_lock(&lock);
    wanted++;
    pthread_cond_signal(&wake);
    pthread_mutex_unlock(&lock);
    do /* until it is in the queue, and its watch is set */
        for (int looks = 0; looks < 3; looks++)
            mortise_inspect(two->holder, "handed", &info, NULL);
    while (info.waiters != 1);
}

static void release_and_get(void *context)
{
    (void)context;
    if (mortise_release_nowait(held, NULL) != MORTISE_OK)
        bench_die("not released");
    zookeeper_await(1);
}

static void give_back(void *context)
{
    (void)context;
    bench_release(handed);
}

static double driver_handover(struct bench_case *self, double seconds)
{
    return part(seconds, be_waited_for, release_and_get, give_back, self->context);
}

/* ---- the driver's cycles ------------------------------------------------------------------------------ */

static void cycles(void *client, size_t n)
{
    while (n-- > 0)
        bench_release(bench_acquire(client, "one", NULL));
}

static void cycles_nowait(void *client, size_t n)
{
    while (n-- > 0)
        if (mortise_release_nowait(bench_acquire(client, "one", NULL), NULL) != MORTISE_OK)
            bench_die("not released");
}

/* The changes that the ensemble sees in a timeout while HELD locks are held and nothing else happens. The spell begins
 * when the watches are set. */
static double writes_per_timeout(const char *url)
{
    static mortise_lease *leases[HELD];
    mortise_client *client = bench_open(url);
    char name[32];
    for (int i = 0; i < HELD; i++) {
        snprintf(name, sizeof(name), "held%d", i);
        leases[i] = bench_acquire(client, name, NULL);
    }
    zookeeper_create();
    int64_t before = zookeeper_made_zxid();
    zookeeper_delete();
    bench_sleep_until_ns(bench_now_ns() + WATCHED_MS * INT64_C(1000000));
    zookeeper_create();
    double writes = (double)(zookeeper_made_zxid() - before - 2); /* less its own two */
    zookeeper_delete();
    for (int i = 0; i < HELD; i++)
        mortise_release_nowait(leases[i], NULL);
    bench_close(client);
    return writes * TIMEOUT_MS / WATCHED_MS;
}

/* ---- all ------------------------------------------------------------------------------------------------ */

static struct kind {
    const char *name, *title;
    bool forced;
} kinds[] = {
    {"zookeeper", "ZooKeeper, one server that waits for its disk", true},
    {"zookeeper_unforced", "ZooKeeper, one server that does not wait for its disk", false},
    {"zookeeper_one", "ZooKeeper, the same, client and server on one processor", false},
};

static const struct kind *kind_wanted(void)
{
    const char *name = getenv("MORTISE_BENCH_KIND");
    for (size_t i = 0; name != NULL && i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    return &kinds[0];
}

enum { CREATE, ACQUIRE, BARE_CYCLE, STRAIGHT, CYCLE, NOWAIT, EVENT, HANDOVER, ALL };

static void checks(struct bench_series *const *s, bool forced)
{
    bench_check("acquire_over_create", "acquire / bare create", s[ACQUIRE], s[CREATE],
                BENCH_AT_MOST, 1.2);
    bench_check("straight_over_cycle", "bare create, list, delete / cycle", s[STRAIGHT], s[CYCLE],
                BENCH_AT_LEAST, forced ? 1 : 1.25);
    bench_check("bare_over_nowait", "bare create + delete / release_nowait cycle", s[BARE_CYCLE],
                s[NOWAIT], BENCH_AT_LEAST, 1.3);
    if (!forced)
        return;
    bench_check("handover_over_event", "hand-over / bare delete and its event", s[HANDOVER],
                s[EVENT], BENCH_AT_MOST, 1.5);
}

/* Counts only while no other session beats. */
static void count_writes(const char *url)
{
    struct bench_series *series =
        bench_new_series("writes", "writes in a session's timeout, 1,000 locks held", "");
    bench_add_only(series, writes_per_timeout(url), BENCH_COUNT);
    /* ten, a tenth of the timeout apart: of 23.1 in the spell it has 23 or 24 */
    bench_check("writes_in_a_timeout", "writes in a session's timeout, 1,000 locks held", series,
                NULL, BENCH_AT_MOST, 10.5);
}

static void measure(const struct kind *kind, const char *url)
{
    mortise_client *client = bench_open(url);
    struct two two = {client, bench_open(url)};
    bench_thread(take_turns, two.waiter);
    struct bench_series *s[ALL] = {
        bench_new_series("bare_create", "bare create of an ephemeral sequential node", "ns"),
        bench_new_series("acquire", "acquire", "ns"),
        bench_new_series("bare_cycle", "bare create + delete, both waited for", "ns"),
        bench_new_series("bare_straight", "bare create, list, delete, one after the other", "ns"),
        bench_new_series("cycle", "acquire + release", "ns"),
        bench_new_series("cycle_nowait", "acquire + release_nowait", "ns")};
    if (kind->forced) {
        s[EVENT] =
            bench_new_series("bare_handover", "bare delete and the event that tells of it", "ns");
        s[HANDOVER] =
            bench_new_series("handover", "release_nowait and the next one's acquire", "ns");
    }
    struct bench_case cases[] = {
        {.series = s[CREATE], .measure = bare_acquire},
        {.series = s[ACQUIRE], .measure = driver_acquire, .context = client},
        {.series = s[BARE_CYCLE], .measure = bench_ns_per_turn, .loop = zookeeper_cycles},
        {.series = s[STRAIGHT], .measure = bench_ns_per_turn, .loop = create_list_delete},
        {.series = s[CYCLE], .measure = bench_ns_per_turn, .loop = cycles, .context = client},
        {.series = s[NOWAIT],
         .measure = bench_ns_per_turn,
         .loop = cycles_nowait,
         .context = client},
        {.series = s[EVENT], .measure = bare_handover},
        {.series = s[HANDOVER], .measure = driver_handover, .context = &two}};
    bench_rounds(cases, kind->forced ? ALL : EVENT);
    checks(s, kind->forced);
    bench_close(two.waiter);
    bench_close(client);
}

int main(int argc, char **argv)
{
    const char *server = getenv("MORTISE_BENCH_ZOOKEEPER");
    const struct kind *kind = kind_wanted();
    char url[256];
    bench_begin(argc, argv, kind->name, kind->title, 0.5);
    if (server == NULL)
        bench_die("run it by mortise-bench --workload floors, which starts a server");
    snprintf(url, sizeof(url), "zookeeper://%s/bench?session_timeout=%dms&handover_max=0", server,
             TIMEOUT_MS);
    zookeeper_bare = zookeeper_connect(server);
    second = zookeeper_connect(server);
    measure(kind, url);
    if (kind->forced)
        count_writes(url);
    zookeeper_close(second);
    zookeeper_close(zookeeper_bare);
    return bench_end();
}
