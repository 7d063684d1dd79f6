/* test_high_fd.c - the numbers that the library gives to its descriptors. unit.threads_own has what clients do with them. */
#include "base/high_fd.h"
#include "rig.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

/* The application has some of the numbers. What is made after it has closed everything is above what was given before. */
static void test_numbers_of_application(void)
{
    int first = high_fd(dup(STDERR_FILENO));
    CU_ASSERT_FATAL(first >= HIGH_FD && first + 8 < HIGH_FD + HIGH_TURNS);
    for (int number = first + 1; number <= first + 4; number++)
        CU_ASSERT_EQUAL(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, first + 1), number);
    CU_ASSERT_EQUAL(high_fd(dup(STDERR_FILENO)), first + 5);
    for (int number = first; number <= first + 5; number++)
        close(number);
    int next = high_fd(dup(STDERR_FILENO));
    CU_ASSERT_EQUAL(next, first + 6);
    close(next);
}

/* The limit on numbers is in the middle of ours: they begin again below it. */
static void test_numbers_below_the_limit(void)
{
    int first = high_fd(dup(STDERR_FILENO));
    struct rlimit before, low;
    CU_ASSERT_FATAL(first >= HIGH_FD && first + 2 < HIGH_FD + HIGH_TURNS);
    CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = before;
    low.rlim_cur = (rlim_t)first + 1;
    CU_ASSERT_EQUAL_FATAL(setrlimit(RLIMIT_NOFILE, &low), 0);
    int numbers[] = {high_fd(dup(STDERR_FILENO)), 0};
    close(numbers[0]);
    numbers[1] = high_fd(dup(STDERR_FILENO));
    close(numbers[1]);
    setrlimit(RLIMIT_NOFILE, &before);
    close(first);
    CU_ASSERT_EQUAL(numbers[0], HIGH_FD);
    CU_ASSERT_EQUAL(numbers[1], HIGH_FD + 1);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"the application has numbers among ours", test_numbers_of_application},
        {"the limit is among our numbers", test_numbers_below_the_limit},
        CU_TEST_INFO_NULL,
    };
    return rig_run("high_fd", tests);
}
