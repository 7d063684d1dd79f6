/* report.h - between common.c, which collects a benchmark's figures, and report.c, which reports them. */
#ifndef MORTISE_BENCH_REPORT_H
#define MORTISE_BENCH_REPORT_H

#include "common.h"

struct report_figure {
    double median, least, most;
    double low, high; /* the median of more rounds lies between these in nine cases of ten */
};

/* Not decided: the target lies between low and high, or there are too few rounds. */
enum report_verdict { REPORT_MET, REPORT_MISSED, REPORT_NOT_DECIDED };

struct report_check {
    const char *key, *label;
    const struct bench_series *series, *over; /* NULL: a proof */
    enum bench_bound bound;
    double target;
    size_t count;  /* values */
    bool measured; /* otherwise there is nothing to report */
    struct report_figure figure;
    enum report_verdict verdict;
};

struct report {
    const char *name, *title;
    const struct bench_series *series;
    const struct report_check *checks;
    size_t series_count, check_count;
};

struct report_figure report_figure(const double *values, size_t count);
void report_print(const struct report *report);
bool report_write(const struct report *report, const char *path); /* one object per line */

#endif
