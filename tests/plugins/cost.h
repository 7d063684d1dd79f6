/* cost.h - what an event costs its caller: the caller neither writes the line itself nor waits for anybody. Both are
 * checked with the kernel's counters for this thread; the time does not matter. */
#ifndef COST_H
#define COST_H

#include <CUnit/Basic.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>

enum { COST_EVENTS = 60000 };

struct cost {
    int64_t writes, waits; /* before events; of them, after */
};

/* Calls that write, by this thread. A kernel may have been built without the count; then who writes is not seen here. */
static inline int64_t cost_writes(void)
{
    char line[64];
    int64_t writes = -1;
    FILE *file = fopen("/proc/thread-self/io", "re");
    if (file == NULL)
        return 0;
    while (writes < 0 && fgets(line, sizeof(line), file) != NULL)
        sscanf(line, "syscw: %" SCNd64, &writes);
    fclose(file);
    CU_ASSERT_FATAL(writes >= 0);
    return writes;
}

static inline int64_t cost_waits(void)
{
    struct rusage usage;
    CU_ASSERT_EQUAL_FATAL(getrusage(RUSAGE_THREAD, &usage), 0);
    return usage.ru_nvcsw;
}

static inline struct cost cost_begin(void)
{
    return (struct cost){cost_writes(), cost_waits()};
}

/* COST_EVENTS events were sent. Whoever has to be woken may cost a call or a wait now and then. */
static inline void cost_end(struct cost cost)
{
    enum { FEW = COST_EVENTS / 10 };
    cost.writes = cost_writes() - cost.writes;
    cost.waits = cost_waits() - cost.waits;
    printf("    %d events cost %" PRId64 " writes and %" PRId64 " waits\n", COST_EVENTS,
           cost.writes, cost.waits);
    CU_ASSERT(cost.writes < FEW);
    CU_ASSERT(cost.waits < FEW);
}

#endif
