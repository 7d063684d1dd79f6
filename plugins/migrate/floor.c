/* floor.c - the token that an acquire is asked with. protocol.h (6).
 *
 * In phase both the first side is asked with T, so that what it gives is above all that the second side has, and the second
 * then gives the same. T follows the servers' clocks, not this host's: a presence has a name of its own, and its token is
 * what the server's clock says; by how much that is ahead of this host's monotonic time is learned then. So no client's
 * wrong clock makes tokens run away.
 *
 * T is ahead of the clocks by LEAD, for it is computed when an acquire is asked, and must be ahead still when, after a wait in
 * the first side's queue perhaps, the second side gives. Ten seconds: a second was too little on a machine that was very busy,
 * where waiters of phase both lost their place in the first side's queue again and again. Where it was not, the acquire begins again (acquire.c), by twice
 * the time that it took above what the second side gave. A side on sessions counts on from whatever it was raised to, over all
 * names: nothing is added to what it says, or clients that outdo each other would make tokens run; as it is they make at
 * most three seconds of tokens in a second.
 *
 * T stays within what a step puts its floor on (migration.h): a minute above the servers' clocks, or half a day above what a side
 * on sessions has counted to. Names that were taken in phase new after a step have tokens a day ahead of the clocks; would T go
 * there, and on with the time, the floor of the step back, a day above the clock, were below tokens that T made. Such a name
 * has its next try, whenever that gets the first side, by what was found there, and a hundredth of the time for which the
 * first side was had, for what others take meanwhile: a name is granted no more often than every 100 us, and where it is, that
 * costs one try more. Only one client at a time has it: so the name's tokens run by a hundredth of what the clocks do. Quick
 * steps put their floors above the clock by a day each, and the name's tokens go on from there: it is a day above such a floor
 * after a hundred days, when the clock is above the floors of as many steps.
 *
 * Not with an owner, but for a second try: leases that share a hold have its token, and must not raise it. */
#include "internal.h"

#define LEAD_US 10000000
#define APART_US 100
#define GRANT_US 100 /* a name is granted no more often; each grant adds one to its tokens */
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

static uint64_t not_negative(int64_t t_us)
{
    return t_us > 0 ? (uint64_t)t_us : 0;
}

/* Those that are under way together are far enough apart for what a side on sessions counts in between. */
static uint64_t next_t(struct migrate *migrate, int64_t at_us)
{
    int64_t t_us = at_us + migrate->offset_us;
    if (!has_clock(migrate, migrate->legs[1]) && t_us < migrate->last_t_us + APART_US)
        t_us = migrate->last_t_us + APART_US;
    migrate->last_t_us = t_us;
    return not_negative(t_us);
}

static uint64_t highest_t(struct migrate *migrate, int64_t at_us)
{
    uint64_t clock =
        migrate->clock_us == 0 ? 0 : not_negative(at_us + migrate->clock_us + AHEAD_MAX_US);
    return larger(clock, migrate->counted + MIGRATE_FLOOR_LEAD_US / 2);
}

/* The place where a name's floor is kept. One that another name has taken over costs a second try more. */
static struct far *far_of(struct call *call, uint64_t *hash)
{
    enum migrate_side side = call->migrate->legs[0];
    *hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (size_t i = 0; i < call->name_len[side]; i++)
        *hash = (*hash ^ (unsigned char)call->name[side][i]) * UINT64_C(1099511628211);
    return &call->migrate->far[*hash % FAR_NAMES];
}

static uint64_t far_floor(struct call *call)
{
    uint64_t hash;
    const struct far *far = far_of(call, &hash);
    return far->hash == hash ? far->floor : 0;
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
    floor = larger(floor, far_floor(call));
    if (migrate->offset_known) {
        uint64_t t = next_t(migrate, call->floored_us);
        uint64_t highest = highest_t(migrate, call->floored_us);
        floor = larger(floor, t < highest ? t : highest);
    }
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

/* A side on sessions has counted to there. */
static void count(struct migrate *migrate, enum migrate_side side, uint64_t token)
{
    if (!has_clock(migrate, side))
        migrate->counted = larger(migrate->counted, token);
}

void floor_learn(struct migrate *migrate, enum migrate_side side, uint64_t token)
{
    int64_t clock_us = (int64_t)token - now_us(migrate);
    bool clock = has_clock(migrate, side) && token <= INT64_MAX / 2;
    if (clock && (migrate->clock_us == 0 || clock_us > migrate->clock_us))
        migrate->clock_us = clock_us;
    count(migrate, side, token);
    learn(migrate, token, has_clock(migrate, side) ? LEAD_US : 0);
}

void floor_given(struct call *call, uint64_t token)
{
    for (size_t i = 0; i < call->migrate->leg_count; i++)
        count(call->migrate, call->migrate->legs[i], token);
}

void floor_too_low(struct call *call, uint64_t token)
{
    int64_t now = now_us(call->migrate), ahead_us = 2 * (now - call->floored_us);
    uint64_t hash;
    struct far *far = far_of(call, &hash);
    ahead_us = ahead_us < AHEAD_MIN_US ? AHEAD_MIN_US : ahead_us;
    count(call->migrate, call->migrate->legs[1], token);
    learn(call->migrate, token, ahead_us < AHEAD_MAX_US ? ahead_us : AHEAD_MAX_US);
    call->floor = token + 1 + (uint64_t)(now - call->first_had_us) / GRANT_US;
    *far = (struct far){.hash = hash, .floor = call->floor};
}

void floor_first_had(struct call *call)
{
    call->first_had_us = now_us(call->migrate);
}
