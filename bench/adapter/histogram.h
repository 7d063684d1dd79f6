/* histogram.h - how often a time occurred, log-linear: each power of two is cut into HISTOGRAM_PARTS buckets of the
 * same width, so that a value of any size is known to about 1.6 %, in a table of fixed size. Does not know what the
 * times measure. */
#ifndef MORTISE_BENCH_HISTOGRAM_H
#define MORTISE_BENCH_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#define HISTOGRAM_PARTS_LOG2 6
#define HISTOGRAM_PARTS (1U << HISTOGRAM_PARTS_LOG2)
/* Below 2 * HISTOGRAM_PARTS each value has its own bucket; above, each power of two has HISTOGRAM_PARTS. */
#define HISTOGRAM_BUCKETS ((64 - HISTOGRAM_PARTS_LOG2) * HISTOGRAM_PARTS)

/* All zero: empty. */
struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS];
    uint64_t count;
    int64_t most; /* the exact maximum */
    double sum;
};

/* A value below zero counts as zero. */
void histogram_add(struct histogram *histogram, int64_t value);
/* The quantile: the smallest value that at least this part (0 to 1) of all values do not exceed. Returns the upper
 * end of its bucket, but not more than the largest value; 0 if the histogram is empty. */
int64_t histogram_at(const struct histogram *histogram, double part);
/* The bucket of a value, and the largest value of a bucket. */
size_t histogram_bucket(int64_t value);
int64_t histogram_upper(size_t bucket);

#endif
