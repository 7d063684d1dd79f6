/* common.h - what the benchmarks share: rounds, medians, ratios, a table, a JSON file.
 *
 * A benchmark has *series* (one figure per round) that are taken in turn, A B C, B A C, so that other work of the
 * machine, and work that the previous series leaves to the server, affects all of them alike; and *checks*: a ratio
 * of two series, or a single series, compared with a target. A ratio is the median of the rounds' ratios, not the
 * ratio of the medians, for the same reason. A slow machine fails nothing here: the program prints a missed
 * target, and its exit status reports one only with --check. */
#ifndef MORTISE_BENCH_COMMON_H
#define MORTISE_BENCH_COMMON_H

#include <mortise/mortise.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_ROUNDS_MAX 99
#define BENCH_ANY_CPU (-1)

/* What the command line said. */
struct bench_options {
    bool quick;       /* few, short rounds, to see whether it works */
    int rounds;       /* at least 1 */
    double seconds;   /* of one measurement in one round */
    int cpu;          /* pin everything to it, or BENCH_ANY_CPU */
    bool check;       /* report a missed target by the exit status */
    const char *only; /* measure only this series (for a profiler); NULL: all */
    const char *folder;
    const char *json;
};

extern struct bench_options bench;

/* Reads the arguments and pins the program. Ends the program on --help and on unknown arguments. `name` is for the
 * JSON file, `title` for the line above the table. */
void bench_begin(int argc, char **argv, const char *name, const char *title, double seconds);
/* Prints the table and writes the JSON file. Returns the program's exit status. */
int bench_end(void);
/* For a program that reads its arguments itself: the program's name for bench_die(). */
void bench_name(const char *name);
void bench_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* ---- series ---------------------------------------------------------------------------------- */

/* What a series has: a value of each round; the value of one measurement; or a number of requests or the like, which
 * does not depend on how fast anything was. */
enum bench_sort { BENCH_OF_ROUNDS, BENCH_ONCE, BENCH_COUNT };

struct bench_series {
    const char *key, *label, *unit;
    double values[BENCH_ROUNDS_MAX];
    size_t count;
    enum bench_sort sort;
};

/* Static text; the series lives as long as the program. */
struct bench_series *bench_new_series(const char *key, const char *label, const char *unit);
void bench_add(struct bench_series *series, double value);
/* Its only value. sort: BENCH_ONCE or BENCH_COUNT. */
void bench_add_only(struct bench_series *series, double value, enum bench_sort sort);
double bench_median(const struct bench_series *series);

/* ---- checks ---------------------------------------------------------------------------------- */

/* BENCH_NEVER_ABOVE: not even in the worst round. BENCH_TOLD: there is no target, the ratio is for the reader. */
enum bench_bound { BENCH_AT_MOST, BENCH_AT_LEAST, BENCH_NEVER_ABOVE, BENCH_TOLD };

/* `over` NULL: the series itself is compared with the target. bench_end() does the comparison. Fewer than five rounds
 * never show that a target is met. What was measured once, or is of the worst round, is not decided within a quarter of its target. */
void bench_check(const char *key, const char *label, const struct bench_series *series,
                 const struct bench_series *over, enum bench_bound bound, double target);
/* A property that holds or not. */
void bench_proof(const char *key, const char *label, bool holds);

/* ---- rounds ---------------------------------------------------------------------------------- */

/* One thing that is measured in each round. */
struct bench_case {
    struct bench_series *series;
    /* Returns the round's figure, from about so many seconds of work. */
    double (*measure)(struct bench_case *self, double seconds);
    void (*loop)(void *context, size_t n); /* for bench_ns_per_turn: the work, n times */
    void *context;
    double turn_ns; /* as last measured; also for bench_ns_per_turn */
};

/* A `measure`: nanoseconds per turn of `loop`. */
double bench_ns_per_turn(struct bench_case *self, double seconds);
/* Warms up each case, then takes the rounds. In each round the cases have another order. */
void bench_rounds(struct bench_case *cases, size_t count);

/* ---- the machine ----------------------------------------------------------------------------- */

int64_t bench_now_ns(void); /* CLOCK_MONOTONIC */
void bench_sleep_until_ns(int64_t at_ns);
/* Pins this thread, and those that it makes from now on. BENCH_ANY_CPU: to the processors on which the program began. */
void bench_pin(int cpu);
int bench_first_cpu(void); /* the first of those that the program may use */
pthread_t bench_thread(void *(*body)(void *), void *argument);

/* Opens a client, or ends the program. The module path is that of the build folder, unless the environment sets another one. */
mortise_client *bench_open(const char *where);
void bench_close(mortise_client *client);
mortise_lease *bench_acquire(mortise_client *client, const char *name,
                             const mortise_options *options);
void bench_release(mortise_lease *lease);

/* A fresh folder below --folder, $TMPDIR or /tmp. It is removed with its files when the program ends. */
const char *bench_folder(void);

#endif
