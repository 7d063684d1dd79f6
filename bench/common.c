/* common.c - rounds, medians and the report of a benchmark; see common.h. Knows no lock: the programs do the
 * measuring, and machine.c handles the machine. */
#include "common.h"
#include "report.h"

#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SERIES_MAX 16
#define CHECKS_MAX 16
#define QUICK_ROUNDS 2
#define QUICK_PART 0.1 /* of a measurement's usual time */
#define LEAST_ROUNDS 5 /* that can show that a target is met */
#define APART 1.25     /* times its target: what is one value is nowhere as sure as that */

struct bench_options bench = {.rounds = 7, .cpu = BENCH_ANY_CPU};
struct report report;

static struct bench_series all_series[SERIES_MAX];
static struct report_check all_checks[CHECKS_MAX];

void bench_die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: ", report.name != NULL ? report.name : "bench");
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(EXIT_FAILURE);
}

void bench_name(const char *name)
{
    report.name = name;
}

/* ---- the command line ---- */

static void usage(FILE *stream)
{
    fprintf(stream,
            "%s: %s\n\n"
            "  --quick          few and short rounds: does everything run\n"
            "  --rounds N       so many rounds (1 to %d; default %d)\n"
            "  --seconds S      how long each measurement of a round takes, about\n"
            "  --cpu N          pin everything to this processor\n"
            "  --folder FOLDER  where databases are made (default $TMPDIR or /tmp)\n"
            "  --json FILE      write the figures there too\n"
            "  --check          exit with 1 if a target is missed\n"
            "  --only SERIES    measure this one alone, by its key in the JSON file\n",
            report.name, report.title, BENCH_ROUNDS_MAX, bench.rounds);
}

static double number_of(const char *option, const char *text, double from, double to)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= from && value <= to))
        bench_die("--%s: expected a number from %g to %g, not \"%s\"", option, from, to, text);
    return value;
}

enum option_code { QUICK = 1, ROUNDS, SECONDS, CPU, FOLDER, JSON, CHECK, ONLY, HELP };

static const struct option long_options[] = {{"quick", no_argument, NULL, QUICK},
                                             {"rounds", required_argument, NULL, ROUNDS},
                                             {"seconds", required_argument, NULL, SECONDS},
                                             {"cpu", required_argument, NULL, CPU},
                                             {"folder", required_argument, NULL, FOLDER},
                                             {"json", required_argument, NULL, JSON},
                                             {"check", no_argument, NULL, CHECK},
                                             {"only", required_argument, NULL, ONLY},
                                             {"help", no_argument, NULL, HELP},
                                             {NULL, 0, NULL, 0}};

static void take_option(int code, const char *value)
{
    switch ((enum option_code)code) {
    case QUICK:
        bench.quick = true;
        bench.rounds = QUICK_ROUNDS;
        bench.seconds *= QUICK_PART;
        break;
    case ROUNDS:
        bench.rounds = (int)number_of("rounds", value, 1, BENCH_ROUNDS_MAX);
        break;
    case SECONDS:
        bench.seconds = number_of("seconds", value, 0.001, 3600);
        break;
    case CPU:
        bench.cpu = (int)number_of("cpu", value, 0, 4095);
        break;
    case FOLDER:
        bench.folder = value;
        break;
    case JSON:
        bench.json = value;
        break;
    case CHECK:
        bench.check = true;
        break;
    case ONLY:
        bench.only = value;
        break;
    case HELP:
        usage(stdout);
        exit(EXIT_SUCCESS);
    }
}

void bench_begin(int argc, char **argv, const char *name, const char *title, double seconds)
{
    report =
        (struct report){.name = name, .title = title, .series = all_series, .checks = all_checks};
    bench.seconds = seconds;
    int code;
    while ((code = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        if (code == '?') {
            usage(stderr);
            exit(EXIT_FAILURE);
        }
        take_option(code, optarg);
    }
    if (optind < argc)
        bench_die("no arguments are expected, but \"%s\" was given; see --help", argv[optind]);
    bench_pin(bench.cpu);
    setvbuf(stdout, NULL, _IOLBF, 0);
}

/* ---- series ---- */

struct bench_series *bench_new_series(const char *key, const char *label, const char *unit)
{
    if (report.series_count == SERIES_MAX)
        bench_die("more than %d series", SERIES_MAX);
    struct bench_series *series = &all_series[report.series_count++];
    *series = (struct bench_series){.key = key, .label = label, .unit = unit};
    return series;
}

void bench_add(struct bench_series *series, double value)
{
    if (series->count < BENCH_ROUNDS_MAX)
        series->values[series->count++] = value;
}

void bench_add_only(struct bench_series *series, double value, enum bench_sort sort)
{
    series->sort = sort;
    bench_add(series, value);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The largest k for which the true median lies between the k-th smallest and the k-th largest of `count` rounds in nine cases
 * of ten: each round is below the median with the probability of a coin toss. 1, if there are too few rounds.
 * mortise_bench/figures.py has the same. */
static size_t sure_rank(size_t count)
{
    double choices = 1, outside = 2; /* in units of 1 / 2^count */
    size_t rank = 1;
    for (; 2 * (rank + 1) <= count; rank++) {
        choices *= (double)(count - rank + 1) / (double)rank;
        outside += 2 * choices;
        if (outside * pow(0.5, (double)count) > 1 - 0.9)
            break;
    }
    return rank;
}

struct report_figure report_figure(const double *values, size_t count)
{
    double sorted[BENCH_ROUNDS_MAX];
    if (count == 0)
        return (struct report_figure){0};
    memcpy(sorted, values, count * sizeof(sorted[0]));
    qsort(sorted, count, sizeof(sorted[0]), compare);
    size_t rank = sure_rank(count);
    return (struct report_figure){
        .median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2,
        .least = sorted[0],
        .most = sorted[count - 1],
        .low = sorted[rank - 1],
        .high = sorted[count - rank],
    };
}

double bench_median(const struct bench_series *series)
{
    return report_figure(series->values, series->count).median;
}

/* ---- checks ---- */

static struct report_check *add_check(const char *key, const char *label)
{
    if (report.check_count == CHECKS_MAX)
        bench_die("more than %d checks", CHECKS_MAX);
    struct report_check *check = &all_checks[report.check_count++];
    *check = (struct report_check){.key = key, .label = label};
    return check;
}

void bench_check(const char *key, const char *label, const struct bench_series *series,
                 const struct bench_series *over, enum bench_bound bound, double target)
{
    struct report_check *check = add_check(key, label);
    check->series = series;
    check->over = over;
    check->bound = bound;
    check->target = target;
}

void bench_proof(const char *key, const char *label, bool holds)
{
    struct report_check *check = add_check(key, label);
    check->verdict = holds ? REPORT_MET : REPORT_MISSED;
    check->measured = true;
}

static enum report_verdict verdict(const struct report_check *check)
{
    const struct report_figure *figure = &check->figure;
    bool never = check->bound == BENCH_NEVER_ABOVE, at_least = check->bound == BENCH_AT_LEAST;
    bool few = check->series->sort == BENCH_OF_ROUNDS && check->count < LEAST_ROUNDS;
    double apart = never || check->series->sort == BENCH_ONCE ? APART : 1;
    double low = (never ? figure->most : figure->low) / apart;
    double high = (never ? figure->most : figure->high) * apart;
    if (check->bound == BENCH_TOLD)
        return REPORT_MET;
    if (at_least ? low >= check->target : high <= check->target)
        return few ? REPORT_NOT_DECIDED : REPORT_MET;
    return (at_least ? high < check->target : low > check->target) ? REPORT_MISSED
                                                                   : REPORT_NOT_DECIDED;
}

static void settle_check(struct report_check *check)
{
    double values[BENCH_ROUNDS_MAX];
    const struct bench_series *series = check->series, *over = check->over;
    if (series == NULL)
        return;
    size_t count = series->count;
    if (over != NULL && over->count < count)
        count = over->count;
    for (size_t i = 0; i < count; i++)
        values[i] = over == NULL ? series->values[i] : series->values[i] / over->values[i];
    check->figure = report_figure(values, count);
    check->count = count;
    check->measured = count > 0;
    check->verdict = verdict(check);
}

int bench_end(void)
{
    bool missed = false;
    for (size_t i = 0; i < report.check_count; i++) {
        settle_check(&all_checks[i]);
        missed |= all_checks[i].measured && all_checks[i].verdict == REPORT_MISSED;
    }
    report_print(&report);
    if (bench.json != NULL && !report_write(&report, bench.json))
        bench_die("%s: cannot be written", bench.json);
    return bench.check && missed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* ---- rounds ---- */

double bench_ns_per_turn(struct bench_case *self, double seconds)
{
    double turns = self->turn_ns > 0 ? seconds * 1e9 / self->turn_ns : 100;
    size_t n = turns < 1 ? 1 : turns > 1e9 ? (size_t)1e9 : (size_t)turns;
    int64_t from = bench_now_ns();
    self->loop(self->context, n);
    self->turn_ns = (double)(bench_now_ns() - from) / (double)n;
    if (self->turn_ns < 0.01)
        self->turn_ns = 0.01;
    return self->turn_ns;
}

static bool is_wanted(const struct bench_case *one)
{
    return bench.only == NULL || strcmp(bench.only, one->series->key) == 0;
}

/* Warms up twice: the speed of a loop in the first pass decides how much of it the second one does. */
static void warm_up(struct bench_case *cases, size_t count)
{
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < count; i++)
            if (is_wanted(&cases[i]))
                cases[i].measure(&cases[i], bench.seconds / 4);
}

/* Makes an order of its own for each round, the same in each run. So no case always follows the one that leaves most work to
 * the server. */
static void shuffle(size_t *order, size_t count, unsigned short state[3])
{
    for (size_t left = count; left > 1; left--) {
        size_t at = (size_t)nrand48(state) % left, taken = order[at];
        order[at] = order[left - 1];
        order[left - 1] = taken;
    }
}

void bench_rounds(struct bench_case *cases, size_t count)
{
    unsigned short state[3] = {0};
    size_t order[SERIES_MAX]; /* each case has a series */
    for (size_t i = 0; i < count; i++)
        order[i] = i;
    warm_up(cases, count);
    for (int round = 0; round < bench.rounds; round++) {
        shuffle(order, count, state);
        for (size_t i = 0; i < count; i++) {
            struct bench_case *one = &cases[order[i]];
            if (is_wanted(one))
                bench_add(one->series, one->measure(one, bench.seconds));
        }
    }
}
