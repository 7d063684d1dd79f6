/* dead.c - the release of a claim of a process that has died (MORTISE_OP_DEAD). Only the core's grant id is known here. Each
 * try of an acquire has a grant id of its own on a side; those of the first tries follow from the core's grant id
 * (claim_grant_of_try). So both sides release one of these after the other, until both have found theirs, or none is left. If
 * one side refuses for good, the other one still goes on. A claim that took more tries is left to its ttl. */
#include "internal.h"

static void ask_round(struct call *call)
{
    struct migrate *migrate = call->migrate;
    for (size_t i = 0; i < migrate->leg_count; i++) {
        enum migrate_side side = migrate->legs[i];
        struct ask *ask = call_prepare(call, side, MORTISE_OP_RELEASE);
        claim_grant_of_try(migrate, side, &call->upper->grant, call->round, &ask->op.grant);
        ask->op.flags = call->upper->flags;
    }
    for (size_t i = 0; i < migrate->leg_count; i++)
        ask_send(&call->asks[migrate->legs[i]]);
}

void dead_release(struct call *call)
{
    call->all_sure = true;
    ask_round(call);
}

/* If one side has found and released its part, a repeat would not find it. So a failure after that is INDETERMINATE: the core
 * must not take a later LOST for "there was nothing". */
static void end(struct call *call)
{
    bool found = call->found[MIGRATE_FROM] || call->found[MIGRATE_TO];
    call->upper->sure = call->all_sure;
    if (call->failed)
        call_fail_kept(call, found ? MORTISE_INDETERMINATE : call->status);
    else
        call_complete(call, found ? MORTISE_OK : MORTISE_LOST);
}

static bool found_all(const struct call *call)
{
    for (size_t i = 0; i < call->migrate->leg_count; i++)
        if (!call->found[call->migrate->legs[i]])
            return false;
    return true;
}

void dead_answered(struct call *call, const struct ask *ask)
{
    mortise_status status = ask->op.status;
    call->all_sure &= ask_is_sure(ask);
    if (status == MORTISE_OK)
        call->found[ask->side] = true;
    else if (status != MORTISE_LOST && status != MORTISE_NOTOWNER)
        call_keep_failure(call, ask);
    if (call_is_out(call))
        return;
    bool over = call_failure_may_pass(call) || call->round == TRIES_NAMED || found_all(call);
    if (!over && call->canceled) { /* not all tries were asked for */
        call->failed = over = true;
        call->status = MORTISE_CANCELED;
        call_keep_error(call, NULL);
    }
    if (over) {
        end(call);
        return;
    }
    call->round++;
    ask_round(call);
}
