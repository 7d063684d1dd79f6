/* floor.c - the floor of the token for which an acquire asks. protocol.h (6).
 *
 * In phase both the first side is asked with the floor T. T should be above all tokens of the second side, so that the second
 * side then gives the same token as the first. T follows the servers' clocks, and not this host's: a presence has a name of its
 * own, so its token is what the server's clock says, and shows by how much that is ahead of this host's monotonic time. So no
 * client's wrong clock makes tokens run away.
 *
 * T is ahead of the clocks by LEAD. It is computed when an acquire asks, and must still be ahead when the second side gives its
 * token, perhaps after a wait in the first side's queue. LEAD is ten seconds, because one second was too little on a very busy
 * machine: waiters of phase both lost their place in the first side's queue again and again. If T was not ahead, the acquire
 * begins again (acquire.c), and T is put above the second side's token by twice the time that the try took. A side on sessions
 * counts on from the value to which it was raised, over all names. So LEAD is not added to its tokens: otherwise clients that
 * outdo each other would make tokens run away. As it is, they make at most three seconds of tokens in a second.
 *
 * T has a limit, so that the floor of a step (migration.h) is above it: a minute above the servers' clocks, or half a day above
 * the count of a side on sessions. Names that were acquired in phase new after a step have tokens a day ahead of the clocks. If T
 * followed these and went on with the time, the floor of the step back, a day above the clock, would be below tokens that T made.
 * For such a name, the next try asks instead for the token that the second side gave, plus a hundredth of the time for which the
 * client has held the first side, because other clients get tokens meanwhile. (A name is hardly granted more often than once in
 * 100 us; if it is, that costs one more try.) Only one client at a time holds the first side, so the name's tokens grow by a
 * hundredth of what the clocks do. Quick steps put their floors above the clock by a day each, and the name's tokens go on from
 * there. The name is a day above such a floor after a hundred days, and by then the clock is above the floors of a hundred steps.
 *
 * An acquire with an owner uses T only for a second try: leases that share a hold have its token, and must not raise it. */
#include "internal.h"

#define LEAD_US 10000000
#define APART_US 100
#define GRANT_US 100 /* a name is hardly granted more often; each grant adds one to its tokens */
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

/* Returns the next T. The Ts of acquires that are under way together are so far apart that the tokens that a side on sessions
 * counts in between have room. */
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

/* Returns the place where a name's floor is kept. If another name has taken the place over, that costs one more try. */
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

/* Notes that a side on sessions has counted to this token. */
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
