/* mysql.c - the MySQL driver beside bare libmariadb, on private servers of this run: an uncontended cycle, 64 threads
 * on 64 names, and what a waiting client costs the server.
 *
 * There are two servers: one shares one processor with its clients, so that all work adds up; the other is free.
 *
 * The floor of a cycle is mysql_floor.h's: the driver's own two statements. */
#include "common.h"
#include "mysql_floor.h"
#include "servers.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 64
#define WAIT_MS 30000

/* One server and its clients. */
struct place {
    int cpu;
    struct bench_servers servers;
    char url[128];
    MYSQL *bare;
    mortise_client *client;
    struct mysql_statements statements;
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
    bench_servers_begin(&place->servers, "mysql", name, "", "PORT=", port, sizeof(port));
    snprintf(place->url, sizeof(place->url), "mysql://mortise@127.0.0.1:%s/mortise", port);
}

static void place_begin(struct place *place)
{
    bench_pin(place->cpu);
    mysql_record(place->url, "cycle", &place->statements);
    place->bare = mysql_bare(place->url, NULL);
    mysql_set_alike(place->bare, &place->statements);
    place->client = bench_open(place->url);
    bench_release(bench_acquire(place->client, "cycle", NULL));
    bench_pin(bench.cpu);
}

static bool is_set_alike(const struct place *place)
{
    return mysql_number(place->bare, "SELECT variable_value='READ-COMMITTED' FROM "
                                     "information_schema.session_variables WHERE variable_name IN "
                                     "('TX_ISOLATION','TRANSACTION_ISOLATION') LIMIT 1") == 1;
}

static void place_end(struct place *place)
{
    bench_close(place->client);
    mysql_close(place->bare);
}

/* ---- what is measured -------------------------------------------------------------------------- */

static void bare_cycles(void *context, size_t n)
{
    for (const struct place *place = context; n > 0; n--)
        mysql_floor_cycle(place->bare, &place->statements);
}

static void cycles(void *context, size_t n)
{
    for (const struct place *place = context; n > 0; n--)
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

/* Statements of a client that waits for half a minute, including its first looks. */
static double statements_per_s(const struct place *place)
{
    static const char questions[] = "SELECT variable_value FROM information_schema.global_status "
                                    "WHERE variable_name = 'QUESTIONS'";
    mortise_client *waiter = bench_open(place->url);
    mortise_lease *lease =
        bench_acquire(place->client, "waited", MORTISE_OPTIONS(.ttl_ms = 600000));
    mortise_lease *none;
    mortise_acquire(waiter, "waited", MORTISE_OPTIONS(.wait_ms = 0), &none, NULL); /* connected */
    long long before = mysql_number(place->bare, questions);
    mortise_acquire(waiter, "waited", MORTISE_OPTIONS(.wait_ms = WAIT_MS), &none, NULL);
    long long made = mysql_number(place->bare, questions) - before - 1;
    bench_close(waiter);
    bench_release(lease);
    return (double)made * 1000 / WAIT_MS;
}

/* Measured only once, because it takes so long. */
static void measure_waiter(struct bench_series *series)
{
    if (bench.only == NULL || strcmp(bench.only, series->key) == 0)
        bench_add_only(series, statements_per_s(&at_large), BENCH_COUNT);
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
}

enum { BARE_ONE, CYCLE_ONE, BARE, CYCLE, CROWD, CASES, WAITER = CASES, ALL };

int main(int argc, char **argv)
{
    static const char *const names[ALL][2] = {
        {"bare_mysql_cycle_one", "bare libmariadb, the driver's two statements, one processor"},
        {"mysql_cycle_one", "MySQL driver, one processor"},
        {"bare_mysql_cycle", "bare libmariadb, the driver's two statements, free"},
        {"mysql_cycle", "MySQL driver, free"},
        {"mysql_crowd", "MySQL driver, 64 threads on 64 names, free"},
        {"mysql_waiter", "statements of a waiting client, each second"}};
    struct bench_series *all[ALL];
    bench.rounds = 21;
    bench_begin(argc, argv, "mysql", "MySQL: cycles, beside bare libmariadb, and a waiter", 0.2);
    begin_all();
    struct bench_case cases[CASES] = {
        [BARE_ONE] = {.measure = ns_in_place, .loop = bare_cycles, .context = &on_one},
        [CYCLE_ONE] = {.measure = ns_in_place, .loop = cycles, .context = &on_one},
        [BARE] = {.measure = ns_in_place, .loop = bare_cycles, .context = &at_large},
        [CYCLE] = {.measure = ns_in_place, .loop = cycles, .context = &at_large},
        [CROWD] = {.measure = crowd_ns, .context = &at_large}};
    for (size_t i = 0; i < ALL; i++)
        all[i] = bench_new_series(names[i][0], names[i][1], i == WAITER ? "/s" : "ns");
    for (size_t i = 0; i < CASES; i++)
        cases[i].series = all[i];
    bench_rounds(cases, CASES);
    measure_waiter(all[WAITER]);
    bench_check("mysql_over_bare", "driver / bare two statements", all[CYCLE_ONE], all[BARE_ONE],
                BENCH_AT_MOST, 1.15);
    bench_check("mysql_crowd_over_one", "one thread / 64 threads", all[CYCLE], all[CROWD],
                BENCH_AT_LEAST, 4);
    bench_check("mysql_waiter_cost", "statements of a waiting client each second", all[WAITER],
                NULL, BENCH_AT_MOST, 2);
    bench_proof("mysql_set_alike", "the bare session is isolated as the driver's",
                is_set_alike(&on_one) && is_set_alike(&at_large));
    place_end(&on_one);
    place_end(&at_large);
    return bench_end();
}
