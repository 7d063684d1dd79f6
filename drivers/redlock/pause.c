/* pause.c - contenders that have split the votes pause, each for a random time, so that the first one to ask again has a quorum
 * before the others ask. For that, the times must differ by about as much as a vote takes. So the pauses are multiples of that
 * time, and are doubled each round, because nobody knows how many contend. If a vote takes up to some milliseconds, the first
 * pause is of one or two. A caller that must not wait never pauses for longer than that: it asks a few times, and is
 * refused. */
#include "redlock.h"

#define PAUSE_NS NS_PER_MS /* half of the longest first pause */
#define PAUSE_TRIPS 4      /* or a trip divided by this, if that is more */
#define PAUSE_MAX_NS (INT64_C(1000) * NS_PER_MS)
#define SPREAD_MAX_NS (INT64_C(32) * NS_PER_MS)

static void spread_more(struct driver *driver)
{
    driver->spread_ns = driver->spread_ns == 0 ? PAUSE_NS : driver->spread_ns * 2;
    if (driver->spread_ns > SPREAD_MAX_NS)
        driver->spread_ns = SPREAD_MAX_NS;
}

int64_t pause_after_split_ns(struct driver *driver, unsigned rounds, bool waits)
{
    int64_t least_ns = waits ? clock_trip_ns(driver) / PAUSE_TRIPS : 0;
    int64_t most_ns = (least_ns > PAUSE_NS ? least_ns : PAUSE_NS) << rounds;
    spread_more(driver);
    return (int64_t)random_below(driver,
                                 (uint64_t)(most_ns < PAUSE_MAX_NS ? most_ns : PAUSE_MAX_NS));
}
