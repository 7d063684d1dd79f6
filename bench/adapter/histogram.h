/* histogram.h - how often a time occurred, log-linear: each power of two is cut into HISTOGRAM_PARTS buckets of the
 * same width, so that a value is known to about 1.6 % whatever its size, in a table of fixed size. Knows nothing of
 * what the times are of. */
#ifndef MORTISE_BENCH_HISTOGRAM_H
#define MORTISE_BENCH_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#define HISTOGRAM_PARTS_LOG2 6
#define HISTOGRAM_PARTS (1U << HISTOGRAM_PARTS_LOG2)
/* Below 2 * HISTOGRAM_PARTS each value has its own; above, so many for each of the other powers. */
#define HISTOGRAM_BUCKETS ((64 - HISTOGRAM_PARTS_LOG2) * HISTOGRAM_PARTS)

/* All zero: empty. */
struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS];
    uint64_t count;
    int64_t most; /* exactly */
    double sum;
};

/* A value below zero counts as zero. */
void histogram_add(struct histogram *histogram, int64_t value);
/* The least value that at least so large a part (0 to 1) of all are not above: the upper end of its bucket, but not
 * more than the greatest value. 0 if it is empty. */
int64_t histogram_at(const struct histogram *histogram, double part);
/* The bucket of a value, and the largest value of a bucket. */
size_t histogram_bucket(int64_t value);
int64_t histogram_upper(size_t bucket);

#endif
