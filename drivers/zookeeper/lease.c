/* lease.c - what the core's ops do to claims, and what the session's fortune does: connected, lost, proven,
 * ended. */
#include "driver.h"

#include <stdio.h>
#include <string.h>

#define SWEEP_AGAIN_NS (1000 * NS_PER_MS)

void lease_sweep_by(struct driver *driver, int64_t at_ns)
{
    if (at_ns < driver->sweep_ns)
        driver->sweep_ns = at_ns;
}

/* ---- acquire -------------------------------------------------------------------------------------- */

/* The acquire of a claim that is here already: its reply was lost on the way to the caller, or it was told
 * that nobody answers. */
static void attach(struct driver *driver, struct claim *claim, mortise_op *op)
{
    if (claim->op != NULL || claim->goal == GOAL_LEAVE || claim->gone) {
        fault_unreachable(driver, op, MORTISE_INDETERMINATE);
        return;
    }
    if (claim->goal == GOAL_HOLD && claim->ends_ns <= now_of(driver)) {
        claim->goal = GOAL_LEAVE;
        fault_unreachable(driver, op, MORTISE_INDETERMINATE);
        claim_go(driver, claim);
        return;
    }
    claim->op = op;
    claim->asked_ns = session_patience(driver);
    claim->token_floor = op->token_floor;
    op->driver_data[0] = claim;
    if (claim->goal == GOAL_HOLD)
        claim_grant(driver, claim);
    else {
        claim->ends_ns = MORTISE_NEVER;
        claim_go(driver, claim);
    }
}

void lease_acquire(struct driver *driver, mortise_op *op)
{
    struct claim *claim = claim_find(driver, op);
    if (op->first_sent_ns == 0)
        op->first_sent_ns = now_of(driver);
    if (claim != NULL) {
        attach(driver, claim, op);
        return;
    }
    session_wake(driver);
    if ((claim = claim_new(driver, op)) == NULL) {
        driver->host->complete(driver->host, op, MORTISE_NOMEM);
        return;
    }
    claim->op = op;
    claim->asked_ns = session_patience(driver);
    claim->ttl_ms = op->ttl_ms;
    claim->token_floor = op->token_floor;
    claim->try_once = (op->flags & MORTISE_OP_TRY) != 0;
    op->driver_data[0] = claim;
    claim_go(driver, claim);
}

/* Whatever was sent for it, the claim leaves by itself; the core asks until that is done. */
void lease_cancel_acquire(struct driver *driver, mortise_op *op)
{
    struct claim *claim = op->driver_data[0];
    bool nothing = !claim->sent;
    claim->op = NULL;
    claim->goal = GOAL_LEAVE;
    driver->host->complete(driver->host, op, nothing ? MORTISE_CANCELED : MORTISE_INDETERMINATE);
    claim_go(driver, claim);
}

/* ---- renew ---------------------------------------------------------------------------------------- */

/* Answered without a word to the server: until when the session is proven. */
void lease_renew(struct driver *driver, mortise_op *op)
{
    struct claim *claim = claim_find(driver, op);
    int64_t now_ns = now_of(driver), until_ns = session_deadline(driver);
    bool held = claim != NULL && claim->goal == GOAL_HOLD && !claim->gone;
    if (held && claim->ends_ns <= now_ns) {
        claim->goal = GOAL_LEAVE;
        claim_go(driver, claim);
        held = false;
    }
    if (!held) {
        driver->host->complete(driver->host, op, MORTISE_LOST);
        return;
    }
    if (!session_is_well(driver, now_ns) || until_ns - now_ns < NS_PER_MS) {
        fault_unreachable(driver, op, MORTISE_UNREACHABLE);
        return;
    }
    int64_t ends_ns = now_ns + op->ttl_ms * NS_PER_MS;
    if (ends_ns > claim->ends_ns)
        claim->ends_ns = ends_ns;
    until_ns = until_ns < ends_ns ? until_ns : ends_ns;
    op->from_ns = now_ns;
    op->good_for_ms = (until_ns - now_ns) / NS_PER_MS;
    driver->host->complete(driver->host, op, MORTISE_OK);
    if (!claim->watched && claim->watch_ns <= now_ns &&
        now_ns - claim->looked_ns > session_timeout_ns(driver) / 2)
        claim_watch_own(driver, claim);
}

/* ---- release -------------------------------------------------------------------------------------- */

void lease_release(struct driver *driver, mortise_op *op)
{
    struct claim *claim = claim_find(driver, op);
    if (claim == NULL) { /* claims are forgotten when it is sure that nothing is left */
        op->sure = true;
        driver->host->complete(driver->host, op, MORTISE_LOST);
        return;
    }
    op->driver_data[0] = claim;
    LL_APPEND(claim->releases, op);
    if (claim->gone)
        claim_end(driver, claim, MORTISE_LOST);
    else if (claim->goal != GOAL_LEAVE || (claim->again_ns != 0 && claim->pending == 0)) {
        claim->goal = GOAL_LEAVE;
        claim_go(driver, claim);
    }
}

void lease_cancel_release(struct driver *driver, mortise_op *op)
{
    struct claim *claim = op->driver_data[0];
    bool maybe = claim->maybe_deleted || is_connected(driver);
    LL_DELETE(claim->releases, op);
    fault_unreachable(driver, op, maybe ? MORTISE_INDETERMINATE : MORTISE_UNREACHABLE);
}

/* ---- the session's fortune -------------------------------------------------------------------------- */

static void doubt(struct driver *driver, struct claim *claim)
{
    if (claim->goal == GOAL_HOLD)
        driver->host->doubt(driver->host, claim->name->name, claim->name->name_len);
}

void lease_connected(struct driver *driver)
{
    driver->barrier = BARRIER_OWED;
    claims_each(driver, claim_go);
    driver->barrier = BARRIER_EACH;
}

void lease_disconnected(struct driver *driver)
{
    driver->suspects = true;
    claims_each(driver, doubt);
}

static void grant_if_first(struct driver *driver, struct claim *claim)
{
    bool first = claim->goal == GOAL_OWN && claim->first && claim->token != 0;
    if (claim->op != NULL && (first || claim->goal == GOAL_HOLD))
        claim_grant(driver, claim);
}

void lease_proven(struct driver *driver)
{
    bool were_suspects = driver->suspects;
    claims_each(driver, grant_if_first);
    if (!were_suspects || !is_connected(driver))
        return;
    driver->suspects = false;
    claims_each(driver, doubt); /* they are looked at again, and found to be well */
}

/* Who waits for an answer is told that there is none; the claim waits for who may ask again, but not for
 * ever. */
static void tell_away(struct driver *driver, struct claim *claim)
{
    mortise_op *op = claim->op;
    if (op == NULL || !session_is_away(driver, claim->asked_ns))
        return;
    claim->op = NULL;
    fault_unreachable(driver, op, claim->sent ? MORTISE_INDETERMINATE : MORTISE_UNREACHABLE);
    if (claim->goal == GOAL_OWN && claim->sent) {
        claim->ends_ns = now_of(driver) + claim->ttl_ms * NS_PER_MS;
        lease_sweep_by(driver, claim->ends_ns);
        return;
    }
    claim->goal = GOAL_LEAVE;
    claim_go(driver, claim);
}

void lease_away(struct driver *driver)
{
    claims_each(driver, tell_away);
}

/* Its nodes are gone, and no request of it is executed any more. */
static void begin_anew(struct driver *driver, struct claim *claim)
{
    claim->step++;
    claim->creating = 0;
    claim->maybe = claim->first = claim->watched = false;
    if (claim->goal == GOAL_LEAVE) /* it was there until then */
        claim_end(driver, claim, MORTISE_OK);
    else if (claim->goal == GOAL_HOLD) {
        claim->gone = true;
        doubt(driver, claim);
    } else
        claim->node[0] = '\0';
}

void lease_session_ended(struct driver *driver)
{
    claims_each(driver, begin_anew);
    watches_end(driver);
}

/* It is not known to have ended, but nobody keeps it alive any more. What it has left is deleted from the
 * next session as far as it is known, and ends with it. */
static void leave_behind(struct driver *driver, struct claim *claim)
{
    claim->step++;
    claim->maybe |= claim->creating > 0;
    claim->creating = 0;
    claim->first = claim->watched = false;
    if (claim->goal == GOAL_OWN) {
        if (claim->node[0] != '\0') {
            snprintf(claim->old_node, sizeof(claim->old_node), "%s", claim->node);
            claim->maybe = false;
        }
        claim->node[0] = '\0';
        return;
    }
    doubt(driver, claim);
    claim->goal = GOAL_LEAVE;
    claim->maybe_deleted = claim->behind = true;
}

void lease_session_abandoned(struct driver *driver)
{
    claims_each(driver, leave_behind);
    watches_end(driver);
}

/* ---- time ------------------------------------------------------------------------------------------- */

/* The own node is watched when it has been held for a while; if it has gone by then, that is seen now. */
static void watch_if_due(struct driver *driver, struct claim *claim)
{
    lease_sweep_by(driver, claim->ends_ns);
    if (claim->goal != GOAL_HOLD || claim->watched || claim->gone || claim->looked_ns != 0)
        return;
    if (claim->watch_ns > now_of(driver))
        lease_sweep_by(driver, claim->watch_ns);
    else if (is_connected(driver))
        claim_watch_own(driver, claim);
}

static void sweep_leaving(struct driver *driver, struct claim *claim)
{
    int64_t now_ns = now_of(driver);
    if (claim->refused && is_connected(driver) && claims_stuck(driver))
        session_give_up(driver);
    if (claim->again_ns > now_ns) {
        lease_sweep_by(driver, claim->again_ns);
        return;
    }
    lease_sweep_by(driver, now_ns + SWEEP_AGAIN_NS);
    if (claim->pending == 0 && is_connected(driver))
        claim_go(driver, claim); /* there was no memory to do it before, or it failed */
}

/* There was no room for a watch on the one before it. */
static void look_if_due(struct driver *driver, struct claim *claim)
{
    if (claim->again_ns > now_of(driver))
        lease_sweep_by(driver, claim->again_ns);
    else if (claim->pending > 0)
        lease_sweep_by(driver, now_of(driver) + SWEEP_AGAIN_NS);
    else {
        claim->again_ns = 0;
        claim_go(driver, claim);
    }
}

static void sweep_one(struct driver *driver, struct claim *claim)
{
    bool over = claim->ends_ns <= now_of(driver);
    if (claim->goal == GOAL_LEAVE)
        sweep_leaving(driver, claim);
    else if (over && claim->op == NULL) {
        claim->goal = GOAL_LEAVE;
        claim_go(driver, claim);
    } else if (over) /* a repeated acquire, of which the next beat tells */
        lease_sweep_by(driver, now_of(driver) + SWEEP_AGAIN_NS);
    else {
        watch_if_due(driver, claim);
        if (claim->goal == GOAL_OWN && claim->again_ns != 0)
            look_if_due(driver, claim);
    }
}

/* Claims whose ttl passed without a renewal: their leases were lost at their deadlines. */
void lease_sweep(struct driver *driver, int64_t now_ns)
{
    if (now_ns < driver->sweep_ns)
        return;
    driver->sweep_ns = MORTISE_NEVER;
    claims_each(driver, sweep_one);
}
