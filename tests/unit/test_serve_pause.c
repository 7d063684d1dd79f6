/* test_serve_pause.c - how long `mortise serve` waits between two listings. */
#include "pause.h"

#include "config_test.h"

#include <limits.h>

enum { SECOND = 1000, HOUR = 3600 * SECOND };

static void test_a_large_backend_is_spared(void)
{
    CU_ASSERT_EQUAL(pause_ms(true, 0, 2 * SECOND), 2 * SECOND);
    CU_ASSERT_EQUAL(pause_ms(true, 500, 2 * SECOND), 2 * SECOND);
    CU_ASSERT_EQUAL(pause_ms(true, 501, 2 * SECOND), 2004);
    CU_ASSERT_EQUAL(pause_ms(true, 10 * SECOND, 2 * SECOND), 40 * SECOND);
    CU_ASSERT_EQUAL(pause_ms(true, 900, 203), 3600);
}

/* Stopped or suspended for eight hours, or for so long that four times that is no int, or no int64_t. */
static void test_it_has_a_limit(void)
{
    const int64_t spans[] = {
        15 * SECOND,           8 * (int64_t)HOUR, INT_MAX,  (int64_t)INT_MAX / 4 + 1,
        (int64_t)INT_MAX << 3, INT64_MAX / 4 + 1, INT64_MAX};

    for (size_t i = 0; i < sizeof spans / sizeof spans[0]; i++) {
        CU_ASSERT_EQUAL(pause_ms(true, spans[i], 200), PAUSE_MAX_MS);
        CU_ASSERT_EQUAL(pause_ms(true, spans[i], 2 * SECOND), PAUSE_MAX_MS);
    }
    CU_ASSERT_EQUAL(pause_ms(true, 16 * SECOND, HOUR), HOUR);
    CU_ASSERT_EQUAL(pause_ms(true, 8 * (int64_t)HOUR, HOUR), HOUR);
}

static void test_a_failed_one_is_repeated_soon(void)
{
    CU_ASSERT_EQUAL(pause_ms(false, 10 * SECOND, 2 * SECOND), 2 * SECOND);
    CU_ASSERT_EQUAL(pause_ms(false, 24 * (int64_t)HOUR, 200), 200);
    CU_ASSERT_EQUAL(pause_ms(false, 0, HOUR), HOUR);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a large backend is spared", test_a_large_backend_is_spared},
        {"the pause has a limit", test_it_has_a_limit},
        {"a failed listing is repeated soon", test_a_failed_one_is_repeated_soon},
        CU_TEST_INFO_NULL};
    return run_tests("serve_pause", tests);
}
