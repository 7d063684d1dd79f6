/* test_histogram.c - the benchmark's log-linear histogram: no value falls between two buckets, the error of a bucket
 * is bounded, and the quantiles of a known set are correct. */
#include "histogram.h"

#include "config_test.h"

static void test_small_values_are_exact(void)
{
    for (int64_t value = 0; value < 2 * HISTOGRAM_PARTS; value++) {
        CU_ASSERT_EQUAL(histogram_bucket(value), (size_t)value);
        CU_ASSERT_EQUAL(histogram_upper((size_t)value), value);
    }
}

/* Each bucket begins where the one before it ends. */
static void test_buckets_join(void)
{
    for (size_t i = 0; i + 1 < HISTOGRAM_BUCKETS; i++) {
        int64_t upper = histogram_upper(i);
        CU_ASSERT_EQUAL(histogram_bucket(upper), i);
        CU_ASSERT_EQUAL(histogram_bucket(upper + 1), i + 1);
    }
    CU_ASSERT_EQUAL(histogram_upper(HISTOGRAM_BUCKETS - 1), INT64_MAX);
}

static void test_error_is_bounded(void)
{
    for (int64_t value = 1; value < INT64_MAX / 3; value = value * 3 / 2 + 1) {
        int64_t upper = histogram_upper(histogram_bucket(value));
        CU_ASSERT(upper >= value && upper - value <= value / HISTOGRAM_PARTS);
    }
    CU_ASSERT_EQUAL(histogram_upper(histogram_bucket(INT64_MAX)), INT64_MAX);
}

static void test_parts(void)
{
    static struct histogram histogram;
    CU_ASSERT_EQUAL(histogram_at(&histogram, 0.5), 0);
    for (int64_t value = 1; value <= 100; value++)
        histogram_add(&histogram, value);
    CU_ASSERT_EQUAL(histogram_at(&histogram, 0.5), 50);
    CU_ASSERT_EQUAL(histogram_at(&histogram, 0.99), 99);
    CU_ASSERT_EQUAL(histogram_at(&histogram, 0), 1);
    CU_ASSERT_EQUAL(histogram_at(&histogram, 1), 100);
    CU_ASSERT_EQUAL(histogram.count, 100);
    CU_ASSERT_DOUBLE_EQUAL(histogram.sum, 5050, 0.1);
}

/* The greatest value is told as it was, not as its bucket's end. */
static void test_most_is_exact(void)
{
    static struct histogram histogram;
    histogram_add(&histogram, -5);
    histogram_add(&histogram, 1000001);
    CU_ASSERT_EQUAL(histogram.most, 1000001);
    CU_ASSERT_EQUAL(histogram_at(&histogram, 0.999), 1000001);
    CU_ASSERT_EQUAL(histogram_at(&histogram, 0.5), 0);
}

int main(void)
{
    CU_TestInfo tests[] = {{"small values are exact", test_small_values_are_exact},
                           {"buckets join", test_buckets_join},
                           {"the error is bounded", test_error_is_bounded},
                           {"parts of a known set", test_parts},
                           {"the greatest value is exact", test_most_is_exact},
                           CU_TEST_INFO_NULL};
    return run_tests("histogram", tests);
}
