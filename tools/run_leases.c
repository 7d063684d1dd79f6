/* run_leases.c - the leases of `mortise run`, one or several, as one lock: it is lost if one lease is lost, and held until the
 * first deadline. */
#include "run.h"

#include <poll.h>
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

/* The end of all leases. */
struct parting {
    mortise_status worst;
    mortise_error *error; /* NULL: not wanted */
    size_t unanswered;
};

/* LOST: another holder may have overlapped. INDETERMINATE: the same, but less certain. Other failures say nothing about
 * that. */
static int gravity(mortise_status status)
{
    return status == MORTISE_OK              ? 0
           : status == MORTISE_LOST          ? 3
           : status == MORTISE_INDETERMINATE ? 2
                                             : 1;
}

static void take_outcome(struct parting *parting, mortise_status status, const mortise_error *error)
{
    if (gravity(status) <= gravity(parting->worst))
        return;
    parting->worst = status;
    if (parting->error != NULL)
        *parting->error = *error;
}

static void on_released(mortise_status status, const mortise_error *error, void *user_data)
{
    struct parting *parting = user_data;

    parting->unanswered--;
    take_outcome(parting, status, error);
}

/* Begins all releases before it waits for any: while it waits for one, the others must not pass their deadlines, because they
 * would count as lost then. */
static void release_and_wait(struct run *run, struct parting *parting)
{
    mortise_error detail;

    for (size_t i = 0; i < run->count; i++) {
        if (mortise_release_async(run->leases[i], on_released, parting, NULL) != MORTISE_OK)
            continue;
        run->leases[i] = NULL;
        parting->unanswered++;
    }
    for (size_t i = 0; i < run->count; i++) { /* there was no memory for these; this needs none */
        mortise_status status = mortise_release(run->leases[i], &detail);
        run->leases[i] = NULL;
        take_outcome(parting, status, &detail);
    }
    while (parting->unanswered > 0) {
        struct pollfd fd = {.fd = run->events, .events = POLLIN};
        mortise_dispatch(run->client);
        if (parting->unanswered > 0)
            poll(&fd, 1, -1);
    }
}

mortise_status run_release(struct run *run, bool waits, mortise_error *error)
{
    struct parting parting = {.worst = MORTISE_OK, .error = error};
    mortise_error detail;

    if (waits)
        release_and_wait(run, &parting);
    for (size_t i = 0; i < run->count && !waits; i++) {
        mortise_status status = mortise_release_nowait(run->leases[i], &detail);
        run->leases[i] = NULL;
        take_outcome(&parting, status, &detail);
    }
    return parting.worst;
}
