/* clock.c - the clock of deadlines. */
#include "clock.h"

#include <time.h>

int64_t boottime_ns(void)
{
    struct timespec time;

    clock_gettime(CLOCK_BOOTTIME, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}
