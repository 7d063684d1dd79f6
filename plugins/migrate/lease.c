/* lease.c - a claim that is held: renewed and released on all legs at once, or broken by its token. protocol.h (3, 7).
 *
 *   renew     If the presence that it depends on was lost: LOST, and the claim is dropped. Both OK: good for the shortest of both
 *             and D. Either gone: the other is dropped, LOST. Either without an answer: that failure. Either does not take this
 *             ttl: INVALID if neither has extended the claim, else INDETERMINATE.
 *   release   If the core repeats a release, a leg that was surely released or lost is not asked again: the claim remembers
 *             that. A release takes the claim from a renewal that is out, and does not wait for it. */
#include "internal.h"

#include <string.h>

static void release_legs(struct call *call);

static bool is_gone(mortise_status status)
{
    return status == MORTISE_LOST || status == MORTISE_NOTOWNER;
}

/* ---- renew --------------------------------------------------------------------------------------- */

void lease_tell(struct call *call)
{
    struct migrate *migrate = call->migrate;
    mortise_op *upper = call->upper;
    int64_t from_ns = MORTISE_NEVER, until_ns = registered_until(migrate);
    for (size_t i = 0; i < migrate->leg_count; i++) {
        const struct leg *leg = &call->claim->legs[migrate->legs[i]];
        int64_t end_ns = leg->from_ns + leg->good_for_ms * NS_PER_MS;
        from_ns = leg->from_ns < from_ns ? leg->from_ns : from_ns;
        until_ns = end_ns < until_ns ? end_ns : until_ns;
    }
    upper->from_ns = from_ns;
    upper->good_for_ms = until_ns <= from_ns ? 0 : (until_ns - from_ns) / NS_PER_MS;
}

/* Whether a presence has not been renewed although its deadline is near or has passed. Then the claims that depend on it are in
 * danger. */
static bool presence_is_late(struct migrate *migrate)
{
    int64_t now_ns = now_of(migrate);
    for (size_t i = 0; i < migrate->leg_count; i++) {
        const struct presence *presence = &migrate->sides[migrate->legs[i]].presence;
        bool trouble = presence->failures > 0 || presence->ask.out;
        if (!presence_is_good(presence, now_ns) ||
            (trouble && presence->deadline_ns - now_ns < presence->span_ms * NS_PER_MS / 3))
            return true;
    }
    return false;
}

void lease_renew(struct call *call)
{
    struct migrate *migrate = call->migrate;
    struct claim *claim = claim_find(migrate, &call->upper->grant);
    if (claim == NULL || claim->dropped) {
        call_complete(call, MORTISE_LOST);
        return;
    }
    if (claim->busy) {
        call_complete(call, MORTISE_UNREACHABLE);
        return;
    }
    if (claim->epoch != migrate->epoch) {
        claim_drop(claim);
        call_complete(call, MORTISE_LOST);
        return;
    }
    call->claim = claim;
    claim->busy = true;
    claim->renewal = call;
    claim_may_last(claim, call->upper->ttl_ms);
    for (size_t i = 0; i < migrate->leg_count; i++) {
        enum migrate_side side = migrate->legs[i];
        struct ask *ask = call_prepare(call, side, MORTISE_OP_RENEW);
        ask->op.grant = claim->legs[side].grant;
        ask->op.token = claim->legs[side].token;
        ask_send(ask);
    }
}

/* INVALID says to the core that no server was asked. So it is the answer only if no side has extended the claim. */
static mortise_status renewal_status(const struct call *call)
{
    if (call->status == MORTISE_INVALID)
        for (size_t i = 0; i < call->migrate->leg_count; i++)
            if (call->asks[call->migrate->legs[i]].op.status == MORTISE_OK)
                return MORTISE_INDETERMINATE;
    return call->status;
}

static void renewed_all(struct call *call)
{
    struct migrate *migrate = call->migrate;
    struct claim *claim = call->claim;
    mortise_status status = call->lost ? MORTISE_LOST : renewal_status(call);
    if (status == MORTISE_LOST || claim->epoch != migrate->epoch) {
        call->claim = NULL;
        claim_drop(claim);
        call_complete(call, MORTISE_LOST);
    } else if (status != MORTISE_OK) {
        call_fail_kept(call, status);
    } else if (presence_is_late(migrate)) {
        call_fail(call, MORTISE_UNREACHABLE, true,
                  "migrate: the presence of this client could not be renewed");
    } else {
        lease_tell(call);
        call_complete(call, MORTISE_OK);
    }
}

static void renewed(struct call *call, const struct ask *ask)
{
    const mortise_op *op = &ask->op;
    if (call->claim == NULL) { /* a release has the claim */
        if (!call_is_out(call))
            call_complete(call, MORTISE_INDETERMINATE);
        return;
    }
    struct leg *leg = &call->claim->legs[ask->side];
    if (op->status == MORTISE_OK) {
        leg->from_ns = op->from_ns;
        leg->good_for_ms = op->good_for_ms;
    } else if (is_gone(op->status)) {
        leg->maybe = leg->held = false;
        call->lost = true;
    } else if (op->status != MORTISE_INVALID || call->status == MORTISE_OK) {
        call->status = op->status; /* another failure says more than INVALID */
        call_keep_error(call, ask);
    }
    if (!call_is_out(call))
        renewed_all(call);
}

/* ---- release ------------------------------------------------------------------------------------- */

static void break_by_token(struct call *call)
{
    struct migrate *migrate = call->migrate;
    for (size_t i = 0; i < migrate->leg_count; i++) {
        struct ask *ask = call_prepare(call, migrate->legs[i], MORTISE_OP_RELEASE);
        ask->op.flags = call->upper->flags;
        ask->op.token = call->upper->token;
        ask_send(ask);
    }
}

/* The core releases the claim, cancels the renewal that is out, and may ask for the name again, all at once. The release must be
 * before that request, so it does not wait for the renewal. The answer to the release says what was held, and no answer to the
 * renewal says more: one that is executed after the release changes nothing. False: the claim is known to be lost, and was dropped. */
static bool take_from_renewal(struct claim *claim)
{
    struct call *renewal = claim->renewal;
    if (renewal == NULL)
        return true;
    bool lost = renewal->lost || claim->epoch != claim->migrate->epoch;
    renewal->claim = NULL;
    claim->renewal = NULL;
    claim->busy = false;
    if (lost)
        claim_drop(claim);
    return !lost;
}

void lease_release(struct call *call)
{
    if ((call->upper->flags & MORTISE_OP_BREAK) != 0) {
        break_by_token(call);
        return;
    }
    if ((call->upper->flags & MORTISE_OP_DEAD) != 0) {
        dead_release(call);
        return;
    }
    struct claim *claim = claim_find(call->migrate, &call->upper->grant);
    if (claim == NULL || claim->dropped || !take_from_renewal(claim)) {
        /* there is nothing, or it is being released already */
        call->upper->sure = true;
        call_complete(call, MORTISE_LOST);
        return;
    }
    if (claim->busy) {
        call_complete(call, MORTISE_UNREACHABLE);
        return;
    }
    call->claim = claim;
    claim->busy = true;
    release_legs(call);
}

/* This release, or one that it repeats, has found that a leg was lost. */
static bool was_lost(const struct claim *claim)
{
    return claim->legs[MIGRATE_FROM].lost || claim->legs[MIGRATE_TO].lost;
}

static void released_all(struct call *call)
{
    mortise_status status = call->was && !call->lost ? MORTISE_OK : MORTISE_LOST;
    /* in a repeat, the core would take LOST for the effect of a release whose reply was lost */
    if (call->migrate->leg_count == 1
            ? call->status == MORTISE_NOTOWNER
            : (call->upper->flags & MORTISE_OP_REPEAT) != 0 && was_lost(call->claim))
        status = MORTISE_NOTOWNER;
    call->upper->sure = claim_is_clean(call->claim);
    if (call->failed)
        call_fail_kept(call, call->status);
    else
        call_complete(call, status);
}

/* Releases all legs at the same time, because this client's next request must come after them. */
static void release_legs(struct call *call)
{
    struct migrate *migrate = call->migrate;
    struct claim *claim = call->claim;
    for (size_t i = migrate->leg_count; i-- > 0;) {
        enum migrate_side side = migrate->legs[i];
        struct ask *ask = &call->asks[side];
        call->was |= claim->legs[side].given_back;
        if (!claim->legs[side].maybe)
            continue;
        leg_prepare_release(claim, side, ask, call->name[side], call->name_len[side]);
        ask->op.flags |= call->upper->flags;
        ask_send(ask);
    }
    if (!call_is_out(call))
        released_all(call);
}

static void released(struct call *call, const struct ask *ask)
{
    struct leg *leg = &call->claim->legs[ask->side];
    bool was_held = leg->held, was;
    leg_released(leg, ask, &was);
    leg->in_doubt |= ask->op.status == MORTISE_INDETERMINATE;
    if (was) {
        call->was = leg->given_back = true;
    } else if (is_gone(ask->op.status)) {
        bool lost = was_held && !leg->given_back;
        call->lost |= lost;
        /* if another client has the leg, it is unknown when it got it */
        leg->lost |= lost && (!leg->in_doubt || ask->op.status == MORTISE_NOTOWNER);
        call->status = call->failed ? call->status : ask->op.status;
    } else {
        call_keep_failure(call, ask);
    }
    if (!call_is_out(call))
        released_all(call);
}

/* ---- break --------------------------------------------------------------------------------------- */

/* One side has failed. If a side has broken its part, or may have broken it, the answer is INDETERMINATE. */
static mortise_status half_broken(const struct call *call, mortise_status status)
{
    for (size_t i = 0; i < call->migrate->leg_count; i++) {
        mortise_status of = call->asks[call->migrate->legs[i]].op.status;
        if (of == MORTISE_OK || of == MORTISE_INDETERMINATE)
            return MORTISE_INDETERMINATE;
    }
    return status;
}

/* OK if the claim existed on either side. If either side failed, see half_broken(). */
static void broken(struct call *call)
{
    struct migrate *migrate = call->migrate;
    mortise_status status = MORTISE_LOST;
    bool sure = true;
    for (size_t i = 0; i < migrate->leg_count; i++) {
        const struct ask *ask = &call->asks[migrate->legs[i]];
        sure &= ask_is_sure(ask);
        if (!is_gone(ask->op.status) && ask->op.status != MORTISE_OK) {
            call_fail_kept(call, half_broken(call, ask->op.status));
            return;
        }
        if (ask->op.status == MORTISE_OK || status != MORTISE_OK)
            status = ask->op.status == MORTISE_OK         ? MORTISE_OK
                     : ask->op.status == MORTISE_NOTOWNER ? MORTISE_NOTOWNER
                                                          : status;
    }
    call->upper->sure = sure;
    call_complete(call, status);
}

void lease_answered(struct call *call, struct ask *ask)
{
    if (ask->op.kind == MORTISE_OP_RENEW) {
        renewed(call, ask);
    } else if ((call->upper->flags & MORTISE_OP_DEAD) != 0) {
        dead_answered(call, ask);
    } else if ((call->upper->flags & MORTISE_OP_BREAK) == 0) {
        released(call, ask);
    } else {
        if (ask->op.error != NULL)
            call_keep_error(call, ask);
        if (!call_is_out(call))
            broken(call);
    }
}
