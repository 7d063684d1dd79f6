/* clock.c - the time in the nodes, for proposing tokens that they take: microseconds of their clocks, a little ahead. Too
 * small a guess costs a second round trip, in which the token is written. Too large a guess has a lasting effect, because
 * later tokens are larger still. So no token follows a clock that is far ahead of the others.
 *
 * Each answer to a vote has the node's time. The median of the known clocks is the standard. With two known clocks,
 * neither can outvote the other, so this host's clock is the third. With fewer than half of the clocks wrong, the median
 * lies between right ones. A node whose clock is far ahead of the median takes no proposed token. If its vote is needed,
 * `confirm` writes the token there. */
#include "redlock.h"

#include <time.h>

#define SLACK_US 2000 /* about how much trips and clocks differ */
#define LATE_NS (INT64_C(10) * NS_PER_MS)
#define SMOOTH 8
#define TRIP_UNKNOWN_NS 250000 /* used without tokens, when answers bring no time */
#define TRIP_MOST_NS 1000000   /* turns are measured by no longer trip */
#define TRIP_MAX_US 160000     /* no longer trip moves a token further ahead */
#define OUTLIER_US 1000000     /* a clock so far ahead of the median is wrong */

/* The difference includes the time of the request's way to the node, which the next request needs, too. An answer that
 * took far longer than others is ignored, because it may have waited at either end. */
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

/* Copies the known clocks, sorted; returns how many there are. */
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

/* Nodes that are unreachable, or farther away than a quorum, do not count. A node that has given no vote yet counts as far away
 * as the farthest one that has. Otherwise contenders that split the votes of far nodes would pause as if these were near, and
 * split them again. */
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

/* With only one or two known clocks, it is unclear which clock is wrong. Then this host's clock has a vote, but no token
 * follows it. */
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
        return floor; /* the nodes will report their clocks */
    int64_t token =
        now_of(driver) / 1000 + ahead[n - 1] + SLACK_US + longest_trip_us(driver) / SMOOTH;
    if (token <= driver->proposed_us) /* our tokens grow, even if the guesses do not */
        token = driver->proposed_us + 1;
    if (token <= 0 || (uint64_t)token <= floor || (uint64_t)token >= TOKEN_MAX)
        return floor;
    driver->proposed_us = token;
    return (uint64_t)token;
}
