/* test_claim_deadline.c - the process is stopped where a renewal moves the deadline (core/lock/held.c): the clock jumps
 * between two looks at it. */
#include "lock/claim.h"
#include "suite.h"

enum { OLD_NS = 1000, NEW_NS = 5000 };

static const int64_t *looks;

/* What the core's clock reads: the next of `looks`. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    (void)clock;
    *now = (struct timespec){.tv_nsec = *looks++};
    return 0;
}

static bool extend(struct claim *claim, const int64_t *instants)
{
    looks = instants;
    return claim_extend_deadline(claim, NEW_NS);
}

static void test_in_time(void)
{
    struct claim claim = {.deadline_ns = OLD_NS};
    CU_ASSERT(extend(&claim, (const int64_t[]){998, 999}));
    CU_ASSERT_EQUAL(claim.deadline_ns, NEW_NS);
}

static void test_passed(void)
{
    struct claim claim = {.deadline_ns = OLD_NS};
    CU_ASSERT_FALSE(extend(&claim, (const int64_t[]){1000}));
    CU_ASSERT_EQUAL(claim.deadline_ns, DEADLINE_PASSED);
}

static void test_stopped_meanwhile(void)
{
    struct claim claim = {.deadline_ns = OLD_NS};
    CU_ASSERT_FALSE(extend(&claim, (const int64_t[]){999, 1000}));
    CU_ASSERT_EQUAL(claim.deadline_ns, DEADLINE_PASSED);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"renewed in time", test_in_time},
        {"renewed too late", test_passed},
        {"stopped beyond the deadline between the look and the move", test_stopped_meanwhile},
        CU_TEST_INFO_NULL,
    };
    return suite_run("claim_deadline", tests);
}
