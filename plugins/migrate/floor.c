/* floor.c - the token that an acquire is asked with. protocol.h (6).
 *
 * In phase both the first side is asked with T, so that what it gives is above all that the second side has, and the second
 * then gives the same. T follows the servers' clocks, not this host's: a presence has a name of its own, and its token is
 * what the server's clock says; by how much that is ahead of this host's monotonic time is learned then. So no client's
 * wrong clock makes tokens run away.
 *
 * T is ahead of the servers' clocks by LEAD: it is computed when an acquire is asked, and must be ahead still when, after a wait
 * in the first side's queue perhaps, the second side is asked. Where it was not, the acquire begins again (acquire.c) with a
 * fresh T, and the lead grows.
 *
 * Not with an owner, but for a second try: leases that share a hold have its token, and must not raise it. */
#include "internal.h"

#define LEAD_MIN_US 1000000
#define LEAD_MAX_US 60000000

static int64_t now_us(struct migrate *migrate)
{
    return now_of(migrate) / 1000;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

uint64_t floor_first(struct call *call)
{
    struct migrate *migrate = call->migrate;
    uint64_t floor = larger(call->upper->token_floor, call->floor);
    for (size_t i = 0; i < migrate->leg_count; i++)
        floor = larger(floor, migrate->sides[migrate->legs[i]].reg.floor);
    call->floored_us = now_us(migrate);
    if (migrate->leg_count < 2 || (call->upper->owner_len > 0 && call->floor == 0))
        return floor;
    int64_t t_us = call->floored_us + migrate->offset_us + migrate->lead_us;
    return larger(floor, t_us > 0 ? (uint64_t)t_us : 0);
}

void floor_learn(struct migrate *migrate, uint64_t token)
{
    int64_t offset_us = (int64_t)token - now_us(migrate);
    if (token == 0 || token > INT64_MAX / 2)
        return;
    if (migrate->lead_us == 0 || offset_us > migrate->offset_us)
        migrate->offset_us = offset_us;
    if (migrate->lead_us == 0)
        migrate->lead_us = LEAD_MIN_US;
}

void floor_too_low(struct call *call, uint64_t token)
{
    struct migrate *migrate = call->migrate;
    int64_t waited_us = now_us(migrate) - call->floored_us;
    call->floor = token + 1;
    if (waited_us > migrate->lead_us)
        migrate->lead_us = 2 * waited_us < LEAD_MAX_US ? 2 * waited_us : LEAD_MAX_US;
}
