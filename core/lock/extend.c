/* extend.c - a lease that the library does not renew is made to last longer by its holder; see claim.h.
 *
 * | the claim | mortise_extend()     | renewal answered OK | no answer, refused | lost, released |
 * |-----------|----------------------|---------------------|--------------------|----------------|
 * | nothing   | wanted, renews       | -                   | -                  | -              |
 * | wanted    | INVALID, one waits   | sent                | sent, repeats      | told           |
 * | sent      | INVALID, or wanted   | told, nothing       | told, nothing      | told           |
 *
 * "wanted": extend_ms is set. The call is INVALID while another one waits. A renewal that was sent before the call (because of a
 * doubt, or for a caller that stopped waiting) does not carry the extension; the next one does. The extension is sent once: if
 * there is no answer, the caller decides whether to call again. If the driver does not take this ttl (INVALID), it has asked the
 * server nothing: the claim is as it was. */
#include "lock/claim.h"

static void tell_locked(struct claim *claim, mortise_status status, const mortise_error *detail)
{
    claim_tell_locked(claim, &claim->extender, status, detail);
}

/* The answer to the extension that was sent. A caller whose extension is still wanted waits for the next answer; if that one is
 * a refusal, the claim lasts, or may last, as long as this extension asked for. */
static void answer_locked(struct claim *claim, const mortise_op *op, mortise_status status)
{
    claim->extending = false;
    if (status != MORTISE_INVALID && op->ttl_ms > claim->unextended_ms)
        claim->unextended_ms = (uint32_t)op->ttl_ms;
    if (claim->extend_ms == 0)
        tell_locked(claim, status, op->error);
}

void claim_extend_locked(struct claim *claim, int64_t ttl_ms, struct release_wait *wait)
{
    claim->extender = wait;
    claim->extend_ms = ttl_ms;
    if (!claim->extending) /* else the extension that is out may be refused, too */
        claim->unextended_ms = claim->ttl_ms;
    if (ttl_ms > claim->ttl_ms) /* from now on the claim may last that long in the backend */
        claim->ttl_ms = (uint32_t)ttl_ms;
    if (!claim->ask_out)
        claim_renew_locked(claim, clock_now());
}

void claim_extend_detach_locked(struct claim *claim)
{
    bool sent = claim->extend_ms == 0 &&
                (!claim->ask_out || pump_may_be_sent(claim->locks->pump, &claim->ask));
    claim->extender->status = sent ? MORTISE_INDETERMINATE : MORTISE_UNREACHABLE;
    claim->extender = NULL;
    claim->extend_ms = 0;
}

void claim_extended_locked(struct claim *claim, const mortise_op *op)
{
    if (!claim->extending)
        return;
    if (!claim->renew && op->good_for_ms < op->ttl_ms) { /* as at the grant */
        claim->renew = claim->ends = true;
        claim->hold_until_ns = 0;
    }
    if (claim->ends) { /* renewed until then, because the session alone does not last that long */
        int64_t until_ns = clock_after_ms(op->from_ns, op->ttl_ms);
        if (until_ns > claim->hold_until_ns)
            claim->hold_until_ns = until_ns;
    }
    answer_locked(claim, op, MORTISE_OK);
}

bool claim_extend_failed_locked(struct claim *claim, const mortise_op *op)
{
    if (!claim->extending)
        return false;
    bool canceled = op->status == MORTISE_CANCELED || op->status == MORTISE_TIMEDOUT;
    bool invalid = op->status == MORTISE_INVALID;
    if (invalid && claim->extend_ms == 0)
        claim->ttl_ms = claim->unextended_ms;
    answer_locked(claim, op, canceled ? MORTISE_INDETERMINATE : op->status);
    return invalid;
}

void claim_extend_over_locked(struct claim *claim, mortise_status status)
{
    claim->extend_ms = 0;
    tell_locked(claim, status, NULL);
}
