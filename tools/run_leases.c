/* run_leases.c - the leases of `mortise run`, one or several, as one lock: lost if one is lost, held until the first
 * deadline. */
#include "run.h"

#include <string.h>

size_t run_next_name(const struct run *run)
{
    size_t next = run->count;

    for (size_t i = 0; i < run->count; i++) {
        if (run->leases[i] == NULL &&
            (next == run->count || strcmp(run->names[i], run->names[next]) < 0))
            next = i;
    }
    return next;
}

bool run_is_lost(const struct run *run)
{
    for (size_t i = 0; i < run->count; i++) {
        if (mortise_state(run->leases[i]) == MORTISE_STATE_LOST)
            return true;
    }
    return false;
}

int64_t run_remaining_ms(const struct run *run)
{
    int64_t least_ms = INT64_MAX;

    for (size_t i = 0; i < run->count; i++) {
        int64_t left_ms = mortise_remaining_ms(run->leases[i]);
        least_ms = left_ms < least_ms ? left_ms : least_ms;
    }
    return least_ms;
}

bool run_has_lease(const struct run *run, const mortise_lease *lease)
{
    for (size_t i = 0; i < run->count; i++) {
        if (run->leases[i] == lease)
            return true;
    }
    return false;
}

/* A lost lease comes before another failure: the work was not alone then. */
mortise_status run_release(struct run *run, bool waits, mortise_error *error)
{
    mortise_status worst = MORTISE_OK;
    mortise_error detail;

    for (size_t i = 0; i < run->count; i++) {
        mortise_status status = waits ? mortise_release(run->leases[i], &detail)
                                      : mortise_release_nowait(run->leases[i], &detail);
        run->leases[i] = NULL;
        if (status == MORTISE_OK || worst == MORTISE_LOST ||
            (worst != MORTISE_OK && status != MORTISE_LOST))
            continue;
        worst = status;
        if (error != NULL)
            *error = detail;
    }
    return worst;
}
