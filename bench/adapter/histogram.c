/* histogram.c - the log-linear table; see histogram.h. The highest bits of a value determine its bucket: the position
 * of the first one, and the HISTOGRAM_PARTS_LOG2 bits behind it. */
#include "histogram.h"

#include <assert.h>

size_t histogram_bucket(int64_t value)
{
    uint64_t bits = value < 0 ? 0 : (uint64_t)value;
    if (bits < 2 * HISTOGRAM_PARTS)
        return (size_t)bits;
    unsigned shift = 63U - (unsigned)__builtin_clzll(bits) - HISTOGRAM_PARTS_LOG2;
    return (size_t)shift * HISTOGRAM_PARTS + (size_t)(bits >> shift);
}

int64_t histogram_upper(size_t bucket)
{
    assert(bucket < HISTOGRAM_BUCKETS);
    if (bucket < 2 * HISTOGRAM_PARTS)
        return (int64_t)bucket;
    size_t shift = bucket / HISTOGRAM_PARTS - 1;
    uint64_t first = (bucket % HISTOGRAM_PARTS + HISTOGRAM_PARTS) << shift;
    return (int64_t)(first + ((UINT64_C(1) << shift) - 1));
}

void histogram_add(struct histogram *histogram, int64_t value)
{
    int64_t counted = value < 0 ? 0 : value;
    histogram->counts[histogram_bucket(counted)]++;
    histogram->count++;
    histogram->sum += (double)counted;
    if (counted > histogram->most)
        histogram->most = counted;
}

int64_t histogram_at(const struct histogram *histogram, double part)
{
    uint64_t below = 0;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS && histogram->count > 0; i++) {
        below += histogram->counts[i];
        if (below > 0 && (double)below >= part * (double)histogram->count) {
            int64_t upper = histogram_upper(i);
            return upper < histogram->most ? upper : histogram->most;
        }
    }
    return histogram->most;
}
