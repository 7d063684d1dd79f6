/* machine.c - whether the machine was late while a test held a short lease: a thread that does nothing but wake up tells. */
#include "conformance.h"

#include <inttypes.h>
#include <stdio.h>

#define BEAT_MS 5
/* Of the ttl, by which that thread wakes up too late: a renewal has two thirds of a ttl for some ten steps like this one, in up to
 * four processes. */
#define LATE_PART 16
/* No busy machine needs more. */
#define LONG_MS 4000

static void *wake_up(void *argument)
{
    struct short_ttl *ttl = argument;
    for (bool ended = false; !ended;) {
        int64_t began_ms = test_now_ms();
        ended = test_count_wait_ms(&ttl->ended, 1, BEAT_MS);
        int64_t late_ms = test_now_ms() - began_ms - BEAT_MS;
        ttl->late_ms = late_ms > ttl->late_ms ? late_ms : ttl->late_ms;
    }
    return NULL;
}

void short_ttl_begin(struct short_ttl *ttl)
{
    ttl->ended = (struct test_count)TEST_COUNT_INIT;
    ttl->late_ms = 0;
    if (pthread_create(&ttl->thread, NULL, wake_up, ttl) != 0)
        CU_FAIL_FATAL("no thread");
}

bool short_ttl_excuses(struct short_ttl *ttl, bool lost)
{
    test_count_add(&ttl->ended, 1);
    pthread_join(ttl->thread, NULL);
    if (!lost)
        return false;
    bool late = ttl->late_ms > ttl->ms / LATE_PART && ttl->ms < LONG_MS;
    printf("(lost with a ttl of %" PRId64 " ms, the machine was late by %" PRId64 " ms) ", ttl->ms,
           ttl->late_ms);
    ttl->ms *= late ? 2 : 1;
    return late;
}
