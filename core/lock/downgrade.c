/* downgrade.c - an exclusive claim becomes shared; see claim.h.
 *
 * | the claim | mortise_downgrade()   | renewal: OK  | UNREACHABLE | no answer      | refused | lost, released |
 * |-----------|-----------------------|--------------|-------------|----------------|---------|----------------|
 * | NONE      | WANTED, renews        | -            | -           | -              | -       | -              |
 * | WANTED    | INVALID, or waits too | shared, NONE | repeats     | MAYBE, repeats | NONE    | told           |
 * | MAYBE     | INVALID, or waits too | shared, NONE | repeats     | repeats        | repeats | told           |
 *
 * A renewal that was sent before the call does not carry the downgrade: the next renewal does, at once after that answer. A
 * refusal in MAYBE says nothing about an earlier request that may have been executed. So the request is repeated, and the
 * release of such a claim looks for it in both modes. */
#include "lock/claim.h"

static void tell_locked(struct claim *claim, mortise_status status, const mortise_error *detail)
{
    claim_tell_locked(claim, &claim->downgrader, status, detail);
}

void claim_downgrade_detach_locked(struct claim *claim)
{
    bool sent = claim->downgrade == DOWNGRADE_MAYBE ||
                (claim->ask_out && (claim->ask.op.flags & MORTISE_OP_DOWNGRADE) != 0 &&
                 pump_may_be_sent(claim->locks->pump, &claim->ask));
    claim->downgrader->status = sent ? MORTISE_INDETERMINATE : MORTISE_UNREACHABLE;
    claim->downgrader = NULL;
}

void claim_downgraded_locked(struct claim *claim)
{
    claim->mode = MORTISE_SHARED;
    claim->permits = 0;
    claim->downgrade = DOWNGRADE_NONE;
    claim->name->shared = claim;
    tell_locked(claim, MORTISE_OK, NULL);
}

/* The backend answered, and repeating the request changes nothing. */
static bool is_refusal(const mortise_op *op)
{
    switch (op->status) {
    case MORTISE_INDETERMINATE:
    case MORTISE_UNREACHABLE:
    case MORTISE_CANCELED:
    case MORTISE_TIMEDOUT:
    case MORTISE_NOMEM:
        return false;
    default:
        return op->error == NULL || !op->error->retryable;
    }
}

bool claim_downgrade_failed_locked(struct claim *claim, const mortise_op *op)
{
    if (claim->downgrade == DOWNGRADE_WANTED && is_refusal(op)) {
        claim->downgrade = DOWNGRADE_NONE;
        tell_locked(claim, op->status, op->error);
        return true;
    }
    if (op->status != MORTISE_UNREACHABLE)
        claim->downgrade = DOWNGRADE_MAYBE;
    return false;
}

void claim_downgrade_over_locked(struct claim *claim, mortise_status status)
{
    tell_locked(claim, status, NULL);
}
