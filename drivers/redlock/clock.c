/* clock.c - what time it is in the nodes, to propose tokens that they take: microseconds of their clocks, a little ahead.
 * A wrong guess costs one round trip and nothing else.
 *
 * Each answer tells the node's time. A clock that is far ahead of the median is left out; otherwise all tokens would
 * follow it. That node takes no token that is proposed, and the others do. */
#include "redlock.h"

#include <time.h>

#define SLACK_US 2000 /* trips and clocks differ by about this much */
#define LATE_NS (INT64_C(10) * NS_PER_MS)
#define SMOOTH 8
#define TRIP_UNKNOWN_NS 250000 /* without tokens answers bring no time */
#define TRIP_MOST_NS 1000000   /* pauses are not measured by longer ones */
#define TRIP_MAX_US 160000     /* longer ones move no token further ahead */
#define OUTLIER_US 1000000     /* a clock that is so far ahead is wrong */

/* The difference includes the request's way to the node, as the next request's will. An answer that took far longer than
 * others says nothing: it may have waited at either end. */
void clock_note(struct node *node, int64_t sent_ns, int64_t now_us)
{
    int64_t trip_ns = now_of(node->driver) - sent_ns;
    bool late = node->trip_ns != 0 && trip_ns > 2 * node->trip_ns + LATE_NS;
    if (node->trip_ns == 0 || trip_ns < node->trip_ns)
        node->trip_ns = trip_ns;
    else
        node->trip_ns += (late ? node->trip_ns + LATE_NS : trip_ns - node->trip_ns) / SMOOTH;
    if (!late)
        node->ahead_us = now_us - sent_ns / 1000;
}

/* The clocks that are known, sorted; returns how many. */
static unsigned sort_known(const struct driver *driver, int64_t *ahead)
{
    unsigned n = 0;
    for (unsigned i = 0; i < driver->count; i++)
        if (driver->nodes[i].ahead_us != 0)
            ahead[n++] = driver->nodes[i].ahead_us;
    sort_numbers(ahead, n);
    return n;
}

static int64_t longest_trip_us(const struct driver *driver)
{
    int64_t longest_ns = 0;
    for (unsigned i = 0; i < driver->count; i++)
        if (driver->nodes[i].trip_ns > longest_ns)
            longest_ns = driver->nodes[i].trip_ns;
    return longest_ns / 1000 < TRIP_MAX_US ? longest_ns / 1000 : TRIP_MAX_US;
}

/* Nodes that are away, or farther away than a quorum, do not count. */
int64_t clock_quorum_trip_ns(const struct driver *driver)
{
    int64_t trips[NODES_MAX], now_ns = now_of(driver);
    unsigned n = 0;
    for (unsigned i = 0; i < driver->count; i++) {
        const struct node *node = &driver->nodes[i];
        if (node_is_usable(node, now_ns))
            trips[n++] = node->trip_ns != 0 ? node->trip_ns : TRIP_UNKNOWN_NS;
    }
    sort_numbers(trips, n);
    int64_t trip_ns = n >= driver->quorum ? trips[driver->quorum - 1] : TRIP_UNKNOWN_NS;
    return trip_ns < TRIP_MOST_NS ? trip_ns : TRIP_MOST_NS;
}

uint64_t clock_propose(struct driver *driver, uint64_t floor)
{
    int64_t ahead[NODES_MAX];
    unsigned n = sort_known(driver, ahead);
    if (n == 0)
        return floor; /* the nodes will tell; this host's own clock may be wrong */
    int64_t limit = ahead[(n - 1) / 2] + OUTLIER_US;
    while (n > 1 && ahead[n - 1] > limit)
        n--;
    int64_t token =
        now_of(driver) / 1000 + ahead[n - 1] + SLACK_US + longest_trip_us(driver) / SMOOTH;
    if (token <= driver->proposed_us) /* our tokens grow, whatever the guesses */
        token = driver->proposed_us + 1;
    if (token <= 0 || (uint64_t)token <= floor || (uint64_t)token >= TOKEN_MAX)
        return floor;
    driver->proposed_us = token;
    return (uint64_t)token;
}

uint64_t clock_wall_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}
