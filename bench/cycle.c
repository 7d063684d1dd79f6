/* cycle.c - what one uncontended acquire + release costs: on the sim driver, which answers at once, so that all of
 * the cost is the core's; the bare two transactions of the SQLite driver; and both together.
 *
 * One thread, one name, one client each, in one run. The floor is floor.c's. */
#include "common.h"
#include "floor.h"

#include <stdio.h>

static void cycles(void *client, size_t n)
{
    while (n-- > 0)
        bench_release(bench_acquire(client, "cycle", NULL));
}

static mortise_client *open_sqlite(void)
{
    char url[1024];
    snprintf(url, sizeof(url), "sqlite:%s/cycle.db", bench_folder());
    return bench_open(url);
}

int main(int argc, char **argv)
{
    bench.rounds = 25; /* many short ones: a disk that is busy for a moment spoils only few */
    bench_begin(argc, argv, "cycle", "one uncontended acquire + release, one thread", 0.1);
    floor_open(bench_folder());
    mortise_client *sim = bench_open("sim:"), *sqlite = open_sqlite();
    struct bench_series *on_sim = bench_new_series("sim_cycle", "sim driver", "ns");
    struct bench_series *bare =
        bench_new_series("bare_sqlite_cycle", "bare SQLite, the driver's two transactions", "ns");
    struct bench_series *on_sqlite = bench_new_series("sqlite_cycle", "SQLite driver", "ns");
    struct bench_case cases[] = {
        {.series = on_sim, .measure = bench_ns_per_turn, .loop = cycles, .context = sim},
        {.series = bare, .measure = bench_ns_per_turn, .loop = floor_cycles},
        {.series = on_sqlite, .measure = bench_ns_per_turn, .loop = cycles, .context = sqlite}};
    bench_rounds(cases, sizeof(cases) / sizeof(cases[0]));
    bench_check("sim_over_bare", "sim driver / bare SQLite", on_sim, bare, BENCH_AT_MOST, 0.1);
    bench_check("sqlite_over_bare", "SQLite driver / bare SQLite", on_sqlite, bare, BENCH_AT_MOST,
                1.2);
    bench_close(sim);
    bench_close(sqlite);
    floor_close();
    return bench_end();
}
