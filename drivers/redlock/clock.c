/* clock.c - what time it is in the nodes, to propose tokens that they take: microseconds of their clocks, a little ahead.
 * A guess that is too small costs a second round trip, in which the token is written. One that is too large stays: later
 * tokens are larger still. So no token follows a clock that is far ahead of the others.
 *
 * Each answer to a vote tells the node's time. The median of the clocks that are known is the measure. One node of two
 * cannot outvote the other, so this host's clock is the third. With fewer than half of the clocks wrong, the median lies
 * between right ones. A node whose clock is far ahead of it takes no token that is proposed; if its vote is needed, the
 * token is written there by `confirm`. */
#include "redlock.h"

#include <time.h>

#define SLACK_US 2000 /* trips and clocks differ by about this much */
#define LATE_NS (INT64_C(10) * NS_PER_MS)
#define SMOOTH 8
#define TRIP_UNKNOWN_NS 250000 /* without tokens answers bring no time */
#define TRIP_MOST_NS 1000000   /* turns are not measured by longer ones */
#define TRIP_MAX_US 160000     /* longer ones move no token further ahead */
#define OUTLIER_US 1000000     /* a clock that is so far ahead of the median is wrong */

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

/* Nodes that are away, or farther away than a quorum, do not count. One that has given no vote yet is taken for as far away as the
 * farthest that has: contenders that split the votes of far nodes would pause as if these were near, and split them again. */
int64_t clock_trip_ns(const struct driver *driver)
{
    int64_t trips[NODES_MAX], now_ns = now_of(driver);
    unsigned usable = 0, known = 0;
    for (unsigned i = 0; i < driver->count; i++) {
        const struct node *node = &driver->nodes[i];
        if (!node_is_usable(node, now_ns))
            continue;
        usable++;
        if (node->trip_ns != 0)
            trips[known++] = node->trip_ns;
    }
    if (usable < driver->quorum || known == 0)
        return TRIP_UNKNOWN_NS;
    sort_numbers(trips, known);
    return trips[(known < driver->quorum ? known : driver->quorum) - 1];
}

int64_t clock_quorum_trip_ns(const struct driver *driver)
{
    int64_t trip_ns = clock_trip_ns(driver);
    return trip_ns < TRIP_MOST_NS ? trip_ns : TRIP_MOST_NS;
}

uint64_t clock_wall_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* A single node, or two, cannot tell which clock is wrong: this host's has a voice then, but no token follows it. */
static int64_t median_of(const struct driver *driver, const int64_t *ahead, unsigned n)
{
    int64_t voices[NODES_MAX + 1];
    memcpy(voices, ahead, n * sizeof(*ahead));
    if (n == 1 || n % 2 == 0)
        voices[n++] = (int64_t)clock_wall_us() - now_of(driver) / 1000;
    sort_numbers(voices, n);
    return voices[(n - 1) / 2];
}

uint64_t clock_outvoted(const struct driver *driver, uint64_t clock_us)
{
    int64_t ahead[NODES_MAX];
    unsigned n = sort_known(driver, ahead);
    int64_t median_us = n > 0 ? now_of(driver) / 1000 + median_of(driver, ahead, n) : 0;
    bool far_ahead = median_us > 0 && clock_us > (uint64_t)(median_us + OUTLIER_US);
    return far_ahead ? (uint64_t)median_us : clock_us;
}

uint64_t clock_propose(struct driver *driver, uint64_t floor)
{
    int64_t ahead[NODES_MAX];
    unsigned n = sort_known(driver, ahead);
    int64_t limit = n > 0 ? median_of(driver, ahead, n) + OUTLIER_US : 0;
    while (n > 0 && ahead[n - 1] > limit)
        n--;
    if (n == 0)
        return floor; /* the nodes will tell */
    int64_t token =
        now_of(driver) / 1000 + ahead[n - 1] + SLACK_US + longest_trip_us(driver) / SMOOTH;
    if (token <= driver->proposed_us) /* our tokens grow, whatever the guesses */
        token = driver->proposed_us + 1;
    if (token <= 0 || (uint64_t)token <= floor || (uint64_t)token >= TOKEN_MAX)
        return floor;
    driver->proposed_us = token;
    return (uint64_t)token;
}
