/* floor.c - the token that an acquire is asked with. protocol.h (6).
 *
 * In phase both the first side is asked with T, so that what it gives is above all that the second side has, and the second
 * then gives the same. T follows the servers' clocks, not this host's: a presence has a name of its own, and its token is
 * what the server's clock says; by how much that is ahead of this host's monotonic time is learned then. So no client's
 * wrong clock makes tokens run away.
 *
 * T is ahead of the clocks by LEAD, for it is computed when an acquire is asked, and must be ahead still when, after a wait in
 * the first side's queue perhaps, the second side is asked. Where it was not, the acquire begins again (acquire.c), by twice
 * the time that it took above what the second side gave. A side on sessions counts on from whatever it was raised to, over all
 * names: nothing is added to what it says, or clients that outdo each other would make tokens run; as it is they make at
 * most three seconds of tokens in a second.
 *
 * Not with an owner, but for a second try: leases that share a hold have its token, and must not raise it. */
#include "internal.h"

#define LEAD_US 1000000
#define APART_US 100
#define AHEAD_MIN_US 1000
#define AHEAD_MAX_US 60000000

static int64_t now_us(struct migrate *migrate)
{
    return now_of(migrate) / 1000;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static bool has_clock(const struct migrate *migrate, enum migrate_side side)
{
    return (migrate->sides[side].below->capabilities & MORTISE_CAP_LEASE) != 0;
}

/* Those that are under way together are far enough apart for what a side on sessions counts in between. */
static uint64_t next_t(struct migrate *migrate, int64_t at_us)
{
    int64_t t_us = at_us + migrate->offset_us;
    if (!has_clock(migrate, migrate->legs[1]) && t_us < migrate->last_t_us + APART_US)
        t_us = migrate->last_t_us + APART_US;
    migrate->last_t_us = t_us;
    return t_us > 0 ? (uint64_t)t_us : 0;
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
    if (migrate->offset_known)
        floor = larger(floor, next_t(migrate, call->floored_us));
    return floor;
}

static void learn(struct migrate *migrate, uint64_t token, int64_t ahead_us)
{
    if (token == 0 || token > INT64_MAX / 2)
        return;
    int64_t offset_us = (int64_t)token - now_us(migrate) + ahead_us;
    if (!migrate->offset_known || offset_us > migrate->offset_us)
        migrate->offset_us = offset_us;
    migrate->offset_known = true;
}

void floor_learn(struct migrate *migrate, enum migrate_side side, uint64_t token)
{
    learn(migrate, token, has_clock(migrate, side) ? LEAD_US : 0);
}

void floor_too_low(struct call *call, uint64_t token)
{
    int64_t ahead_us = 2 * (now_us(call->migrate) - call->floored_us);
    ahead_us = ahead_us < AHEAD_MIN_US ? AHEAD_MIN_US : ahead_us;
    learn(call->migrate, token, ahead_us < AHEAD_MAX_US ? ahead_us : AHEAD_MAX_US);
    call->floor = token + 1;
}
