/* postgres.c - the PostgreSQL driver beside bare libpq, on private servers of this run: an uncontended cycle,
 * the same with a look before the write, 64 threads on 64 names, and the hand-over between two clients.
 *
 * There are two servers: one shares one processor with its clients, so that all work adds up; the other is free.
 *
 * The floor of a cycle is postgres_floor.h's: the driver's own two statements. */
#include "common.h"
#include "postgres_floor.h"
#include "servers.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 64
#define TEXT_SIZE 2048

/* One server and its clients. */
struct place {
    int cpu;
    struct bench_servers servers;
    char url[128];
    PGconn *bare, *other;
    mortise_client *client;
};

static struct place on_one = {.cpu = BENCH_ANY_CPU}, at_large = {.cpu = BENCH_ANY_CPU};

/* ---- the servers ------------------------------------------------------------------------------- */

static void servers_end(void)
{
    bench_servers_end(&on_one.servers);
    bench_servers_end(&at_large.servers);
}

/* The server runs where this thread runs. */
static void server_begin(struct place *place, const char *name)
{
    char port[16] = "";
    bench_pin(place->cpu);
    bench_servers_begin(&place->servers, "postgres", name, "", "PORT=", port, sizeof(port));
    snprintf(place->url, sizeof(place->url), "postgresql://mortise@127.0.0.1:%s/mortise", port);
}

/* ---- bare -------------------------------------------------------------------------------------- */

#define FREE_THEN_TAKE                                                                             \
    "UPDATE mortise_lock SET version = greatest(version + 1, (date_part('epoch', "                 \
    "clock_timestamp()) * 1000000)::bigint), owner = NULL, grants = $3, "                          \
    "acquired_at = clock_timestamp(), expires_at = clock_timestamp() + $4, note = $5 "             \
    "WHERE name = $1 AND version = $2 AND expires_at <= clock_timestamp() RETURNING version"
#define GIVE                                                                                       \
    "UPDATE mortise_lock SET grants = NULL, acquired_at = '-infinity', note = NULL, "              \
    "expires_at = '-infinity' WHERE name = $1 AND version = $2 AND grants = $3 RETURNING true"
#define GIVE_LAZILY GIVE ", set_config('synchronous_commit', 'off', true)"

static void place_begin(struct place *place)
{
    struct postgres_statements statements;
    bench_pin(place->cpu);
    postgres_record(place->url, &statements);
    place->bare = postgres_connect(place->url);
    place->other = postgres_connect(place->url);
    place->client = bench_open(place->url);
    bench_release(bench_acquire(place->client, "cycle", NULL));
    bench_release(bench_acquire(place->client, "bare", NULL)); /* the row of the bare statements */
    postgres_floor_prepare(place->bare, &statements);
    postgres_prepare(
        place->bare, "look",
        "SELECT version, expires_at <= clock_timestamp() FROM mortise_lock WHERE name = $1");
    postgres_prepare(place->bare, "write", FREE_THEN_TAKE);
    postgres_prepare(place->bare, "give durably", GIVE);
    bench_pin(bench.cpu);
}

static void place_end(struct place *place)
{
    bench_close(place->client);
    PQfinish(place->bare);
    PQfinish(place->other);
}

static void bare_cycles(void *context, size_t n)
{
    for (const struct place *place = context; n > 0; n--)
        postgres_floor_cycle(place->bare, "bare");
}

static void looking_cycles(void *context, size_t n)
{
    for (const struct place *place = context; n > 0; n--) {
        int64_t version = postgres_look(place->bare, "look", "bare");
        postgres_give(place->bare, "give durably", "bare",
                      postgres_take(place->bare, "write", "bare", version), 3);
    }
}

/* ---- the driver -------------------------------------------------------------------------------- */

static void cycles(void *context, size_t n)
{
    const struct place *place = context;
    while (n-- > 0)
        bench_release(bench_acquire(place->client, "cycle", NULL));
}

/* A `measure`: nanoseconds per turn, where the place is. */
static double ns_in_place(struct bench_case *self, double seconds)
{
    const struct place *place = self->context;
    bench_pin(place->cpu);
    double ns = bench_ns_per_turn(self, seconds);
    bench_pin(bench.cpu);
    return ns;
}

struct crowd {
    mortise_client *client;
    _Atomic bool stop;
    _Atomic uint64_t cycles, next;
};

static void *member(void *argument)
{
    struct crowd *crowd = argument;
    char name[32];
    snprintf(name, sizeof(name), "crowd-%d", (int)atomic_fetch_add(&crowd->next, 1));
    while (!atomic_load(&crowd->stop)) {
        bench_release(bench_acquire(crowd->client, name, NULL));
        atomic_fetch_add(&crowd->cycles, 1);
    }
    return NULL;
}

/* A `measure`: nanoseconds for each cycle of any of them. */
static double crowd_ns(struct bench_case *self, double seconds)
{
    const struct place *place = self->context;
    struct crowd crowd = {.client = place->client};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = bench_thread(member, &crowd);
    bench_sleep_until_ns(bench_now_ns() + (int64_t)(seconds * 0.2e9));
    uint64_t before = atomic_load(&crowd.cycles);
    int64_t from_ns = bench_now_ns();
    bench_sleep_until_ns(from_ns + (int64_t)(seconds * 0.8e9));
    uint64_t done = atomic_load(&crowd.cycles) - before;
    double took_ns = (double)(bench_now_ns() - from_ns);
    atomic_store(&crowd.stop, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return took_ns / (double)(done > 0 ? done : 1);
}

/* ---- hand-over --------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void prepare_hand(struct place *place)
{
    postgres_prepare(place->bare, "give and tell", GIVE_LAZILY ", pg_notify('bare', 'bare')");
    postgres_prepare(
        place->other, "take handed",
        "UPDATE mortise_lock SET version = greatest(version + 1, (date_part('epoch', "
        "clock_timestamp()) * 1000000)::bigint, $2), owner = NULL, grants = $3, "
        "acquired_at = clock_timestamp(), expires_at = clock_timestamp() + $4, note = $5 "
        "WHERE name = $1 AND expires_at <= clock_timestamp() RETURNING version");
    postgres_prepare(place->other, "give handed", GIVE_LAZILY);
    postgres_need(place->other, PQexec(place->other, "LISTEN bare"), PGRES_COMMAND_OK, "LISTEN");
}

/* The median of single hand-overs. */
static double median_of(double (*one)(void *context), void *context, double seconds)
{
    enum { MAX = 2000 };
    static double values[MAX];
    size_t count = 0;
    int64_t until_ns = bench_now_ns() + (int64_t)(seconds * 1e9);
    do
        values[count++] = one(context);
    while (count < MAX && bench_now_ns() < until_ns);
    qsort(values, count, sizeof(values[0]), compare);
    return values[count / 2];
}

struct bare_pair {
    struct place *place;
    int64_t token, end_ns;
};

static void *bare_waiter(void *argument)
{
    struct bare_pair *pair = argument;
    PGconn *other = pair->place->other;
    struct pollfd ready = {.fd = PQsocket(other), .events = POLLIN};
    PGnotify *notify = NULL;
    while (notify == NULL && poll(&ready, 1, -1) == 1 && PQconsumeInput(other) == 1)
        notify = PQnotifies(other);
    PQfreemem(notify);
    pair->token = postgres_take(other, "take handed", "bare", 0);
    pair->end_ns = bench_now_ns();
    return NULL;
}

static double bare_handover(void *context)
{
    struct bare_pair pair = {.place = context};
    int64_t token = postgres_take(pair.place->bare, "take", "bare", 0);
    pthread_t thread = bench_thread(bare_waiter, &pair);
    bench_sleep_until_ns(bench_now_ns() + 2000000); /* it polls by now */
    int64_t from_ns = bench_now_ns();
    postgres_give(pair.place->bare, "give and tell", "bare", token, 3);
    pthread_join(thread, NULL);
    postgres_give(pair.place->other, "give handed", "bare", pair.token, 3);
    return (double)(pair.end_ns - from_ns);
}

struct pair {
    mortise_client *holder, *waiter;
    int64_t end_ns;
};

static void *lease_waiter(void *argument)
{
    struct pair *pair = argument;
    mortise_lease *lease =
        bench_acquire(pair->waiter, "handed", MORTISE_OPTIONS(.wait_ms = MORTISE_WAIT_FOREVER));
    pair->end_ns = bench_now_ns();
    bench_release(lease);
    return NULL;
}

static double lease_handover(void *context)
{
    struct pair *pair = context;
    mortise_info info = {.size = sizeof(info)};
    mortise_lease *lease = bench_acquire(pair->holder, "handed", NULL);
    pthread_t thread = bench_thread(lease_waiter, pair);
    do
        mortise_inspect(pair->holder, "handed", &info, NULL);
    while (info.waiters < 1);
    bench_sleep_until_ns(bench_now_ns() + 2000000);
    int64_t from_ns = bench_now_ns();
    bench_release(lease);
    pthread_join(thread, NULL);
    return (double)(pair->end_ns - from_ns);
}

static double bare_handover_ns(struct bench_case *self, double seconds)
{
    return median_of(bare_handover, self->context, seconds);
}

static double lease_handover_ns(struct bench_case *self, double seconds)
{
    return median_of(lease_handover, self->context, seconds);
}

/* ---- main -------------------------------------------------------------------------------------- */

static void begin_all(void)
{
    on_one.cpu = bench.cpu != BENCH_ANY_CPU ? bench.cpu : bench_first_cpu();
    at_large.cpu = bench.cpu;
    server_begin(&on_one, "one");
    server_begin(&at_large, "free");
    atexit(servers_end);
    place_begin(&on_one);
    place_begin(&at_large);
    prepare_hand(&at_large);
}

enum { BARE_ONE, LOOK_ONE, CYCLE_ONE, BARE, CYCLE, CROWD, BARE_HAND, HAND, CASES };

static void define_series(struct bench_series **all)
{
    static const char *const names[CASES][2] = {
        {"bare_postgres_cycle_one", "bare libpq, the driver's two statements, one processor"},
        {"select_postgres_cycle_one",
         "bare libpq, select, update, update, all durable, one processor"},
        {"postgres_cycle_one", "PostgreSQL driver, one processor"},
        {"bare_postgres_cycle", "bare libpq, the driver's two statements, free"},
        {"postgres_cycle", "PostgreSQL driver, free"},
        {"postgres_crowd", "driver, 64 threads on 64 names, free"},
        {"bare_postgres_handover", "bare NOTIFY and one statement, free"},
        {"postgres_handover", "driver, hand-over, free"}};
    for (size_t i = 0; i < CASES; i++)
        all[i] = bench_new_series(names[i][0], names[i][1], "ns");
}

static void check(struct bench_series **all)
{
    bench_check("postgres_over_bare", "driver / bare two statements", all[CYCLE_ONE], all[BARE_ONE],
                BENCH_AT_MOST, 1.15);
    bench_check("select_over_postgres", "select, then update / driver", all[LOOK_ONE],
                all[CYCLE_ONE], BENCH_AT_LEAST, 1.4);
    bench_check("crowd_over_one", "one thread / 64 threads", all[CYCLE], all[CROWD], BENCH_AT_LEAST,
                6);
    bench_check("handover_over_bare", "hand-over / bare NOTIFY and statement", all[HAND],
                all[BARE_HAND], BENCH_AT_MOST, 1.5);
}

int main(int argc, char **argv)
{
    struct bench_series *all[CASES];
    bench.rounds = 21;
    bench_begin(argc, argv, "postgres", "PostgreSQL: cycles and hand-over, beside bare libpq", 0.2);
    begin_all();
    struct pair pair = {.holder = bench_open(at_large.url), .waiter = bench_open(at_large.url)};
    define_series(all);
    struct bench_case cases[CASES] = {
        [BARE_ONE] = {.measure = ns_in_place, .loop = bare_cycles, .context = &on_one},
        [LOOK_ONE] = {.measure = ns_in_place, .loop = looking_cycles, .context = &on_one},
        [CYCLE_ONE] = {.measure = ns_in_place, .loop = cycles, .context = &on_one},
        [BARE] = {.measure = ns_in_place, .loop = bare_cycles, .context = &at_large},
        [CYCLE] = {.measure = ns_in_place, .loop = cycles, .context = &at_large},
        [CROWD] = {.measure = crowd_ns, .context = &at_large},
        [BARE_HAND] = {.measure = bare_handover_ns, .context = &at_large},
        [HAND] = {.measure = lease_handover_ns, .context = &pair}};
    for (size_t i = 0; i < CASES; i++)
        cases[i].series = all[i];
    bench_rounds(cases, CASES);
    check(all);
    bench_close(pair.holder);
    bench_close(pair.waiter);
    place_end(&on_one);
    place_end(&at_large);
    return bench_end();
}
