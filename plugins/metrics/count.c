/* count.c - adds an event to the counters and histograms. Runs with locks of the core held, so it does only a few
 * additions. */
#include "internal.h"

#include <stddef.h>

#define US INT64_C(1000)
#define MS (1000 * US)
#define S (1000 * MS)
/* From the time of a hand-over within the process to that of a wait for a nightly job. */
const struct bound bounds[BOUNDS] = {
    {100 * US, "0.0001"}, {500 * US, "0.0005"}, {MS, "0.001"},
    {5 * MS, "0.005"},    {10 * MS, "0.01"},    {50 * MS, "0.05"},
    {100 * MS, "0.1"},    {500 * MS, "0.5"},    {S, "1"},
    {5 * S, "5"},         {10 * S, "10"},       {60 * S, "60"},
    {600 * S, "600"},     {3600 * S, "3600"},
};

/* ---- times ---- */

/* Takes the seat of the caller or lease `number`. If another one still has that seat, it keeps it, and `number`
 * is not timed. */
static void sit(struct metrics *metrics, struct seats *seats, uint64_t number, int64_t now_ns)
{
    size_t seat = number % SEATS;
    if (seats->number[seat] != 0) {
        count_add(&metrics->counts.untimed, 1);
        return;
    }
    seats->number[seat] = number;
    seats->since_ns[seat] = now_ns;
}

static void measure(struct histogram *histogram, int64_t ns)
{
    size_t i = 0;
    while (i < BOUNDS && ns > bounds[i].ns)
        i++;
    count_add(&histogram->buckets[i], 1);
    count_add(&histogram->sum_ns, (uint64_t)ns);
}

static void rise(struct seats *seats, uint64_t number, int64_t now_ns, struct histogram *histogram)
{
    size_t seat = number % SEATS;
    if (seats->number[seat] != number || number == 0)
        return;
    seats->number[seat] = 0;
    int64_t ns = now_ns - seats->since_ns[seat];
    if (histogram != NULL)
        measure(histogram, ns > 0 ? ns : 0);
}

/* ---- events ---- */

/* A core that was built before shared leases does not report the mode. */
static bool is_shared(const mortise_event *event)
{
    return event->size >= offsetof(mortise_event, mode) + sizeof(event->mode) &&
           event->mode == MORTISE_SHARED;
}

static void count_begin(struct metrics *metrics, const mortise_event *event, counter *which)
{
    count_add(which, 1);
    if (is_shared(event))
        count_add(&metrics->counts.shared, 1);
    rise(metrics->callers, event->caller, event->at_ns, &metrics->counts.wait);
    sit(metrics, metrics->leases, event->lease, event->at_ns);
}

static void count_end(struct metrics *metrics, const mortise_event *event)
{
    count_add(&metrics->counts.ended, 1);
    rise(metrics->leases, event->lease, event->at_ns, &metrics->counts.hold);
}

static void count_failure(struct metrics *metrics, const mortise_event *event)
{
    int64_t index = -(int64_t)event->status;
    count_add(&metrics->counts.failures[index > 0 && index < STATUSES ? index : 0], 1);
    rise(metrics->callers, event->caller, event->at_ns, NULL);
}

void count_event(struct metrics *metrics, const mortise_event *event)
{
    struct counts *counts = &metrics->counts;
    switch (event->kind) {
    case MORTISE_EVENT_ASKED:
        count_add(&counts->asked, 1);
        sit(metrics, metrics->callers, event->caller, event->at_ns);
        break;
    case MORTISE_EVENT_QUEUED:
        count_add(&counts->queued, 1);
        break;
    case MORTISE_EVENT_GRANTED:
        count_begin(metrics, event, &counts->granted);
        break;
    case MORTISE_EVENT_JOINED:
    case MORTISE_EVENT_HANDED_OVER:
        count_begin(metrics, event, &counts->handed_over);
        break;
    case MORTISE_EVENT_RENEWED:
        count_add(&counts->renewals, 1);
        break;
    case MORTISE_EVENT_SUSPECT:
        count_add(&counts->suspects, 1);
        break;
    case MORTISE_EVENT_LOST:
        count_add(&counts->losses, 1);
        count_end(metrics, event);
        break;
    case MORTISE_EVENT_RELEASED: /* if the lease was lost, LOST came before */
        count_add(&counts->releases, 1);
        if (event->status == MORTISE_OK)
            count_end(metrics, event);
        break;
    case MORTISE_EVENT_DOWNGRADED:
        break;
    case MORTISE_EVENT_FAILED:
        count_failure(metrics, event);
        break;
    }
}
