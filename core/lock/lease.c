/* lease.c - see lease.h. */
#include "lock/lease.h"
#include "lock/waitlist.h"

/* The local caller that may take over the claim without a request to the backend, or NULL. */
static struct waiter *heir_locked(struct claim *claim, int64_t now)
{
    struct waitlist *list = claim->name->waitlist;
    struct waiter *heir = list == NULL ? NULL : list->first;
    if (heir == NULL || heir->owner_len > 0 || claim->owner_len > 0)
        return NULL;
    if (claim->guests != NULL && heir->max_hold_ms > 0) /* the limit of one lease would end all */
        return NULL;
    return claim_may_be_shared(claim, heir, now) ? heir : NULL;
}

/* No lease of this process uses the claim any more: releases it. */
static void give_back_locked(struct claim *claim, struct release_wait *wait, int64_t now)
{
    struct locks *locks = claim->locks;
    struct name *name = claim->name;
    atomic_store(&claim->deadline_ns, DEADLINE_PASSED);
    if (claim->ask_out)
        locks_cancel_locked(locks, &claim->ask);
    claim_end_locked(claim, now);
    if (wait != NULL)
        claim_attend_locked(claim, wait);
    waitlist_freed_locked(name);
}

/* The claim of a lease that was held until its end. NULL: others share it. */
static struct claim *unused_locked(struct claim *claim)
{
    struct claim *host = claim;
    if (claim->state == CLAIM_JOINED) {
        host = claim_leave_locked(claim);
        claim_go_locked(claim, CLAIM_GONE);
    }
    return host->leased || host->guests != NULL ? NULL : host;
}

mortise_status lease_release_locked(struct claim *claim, struct release_wait *wait,
                                    struct claim **ending)
{
    struct locks *locks = claim->locks;
    int64_t now = clock_now();
    if (claim->state == CLAIM_HELD || claim->state == CLAIM_JOINED)
        claim->loss.on_state = NULL; /* the status reports a loss that is first seen here */
    claim_check_deadline_locked(claim, now);
    bool held = claim->state == CLAIM_HELD || claim->state == CLAIM_JOINED;
    mortise_status status = held ? MORTISE_OK : MORTISE_LOST;
    *ending = NULL;
    observe_locked(locks, MORTISE_EVENT_RELEASED, claim->name, claim, NULL, status);
    locks->stats.releases++;
    struct waiter *heir = claim->state == CLAIM_HELD ? heir_locked(claim, now) : NULL;
    if (heir != NULL) {
        claim_pass_on_locked(claim, heir);
        waitlist_served_locked(heir);
        return MORTISE_OK;
    }
    claim_spend_lease_locked(claim);
    if (claim->downgrader != NULL)
        claim_downgrade_over_locked(claim, locks->closing ? MORTISE_CLOSED : MORTISE_INVALID);
    if (claim->extender != NULL)
        claim_extend_over_locked(claim, locks->closing ? MORTISE_CLOSED : MORTISE_INVALID);
    if (held) {
        locks->stats.held--;
        *ending = unused_locked(claim);
        if (*ending != NULL)
            give_back_locked(*ending, wait, now);
        return status;
    }
    if (claim->ask_out)
        locks_cancel_locked(locks, &claim->ask);
    if (claim->state == CLAIM_LOST)
        claim_go_locked(claim, CLAIM_GONE);
    return status;
}

void lease_downgrade_locked(struct claim *claim, struct release_wait *wait)
{
    observe_locked(claim->locks, MORTISE_EVENT_DOWNGRADED, claim->name, claim, NULL, MORTISE_OK);
    claim->downgrader = wait;
    if (claim->downgrade == DOWNGRADE_NONE)
        claim->downgrade = DOWNGRADE_WANTED;
    if (!claim->ask_out)
        claim_renew_locked(claim, clock_now());
}

bool lease_is_held_locked(mortise_lease *lease, int64_t now)
{
    struct claim *claim = slab_find(&claim_slab, lease);
    return claim != NULL && slot_is(&claim->slot, lease) &&
           (claim->state == CLAIM_HELD || claim->state == CLAIM_JOINED) &&
           claim_deadline(claim, now) != DEADLINE_PASSED;
}

void lease_call_back_locked(mortise_lease *lease, mortise_state_callback on_state, void *user_data)
{
    struct claim *claim = slab_find(&claim_slab, lease);
    claim->change.on_state = claim->loss.on_state = on_state;
    claim->change.user_data = claim->loss.user_data = user_data;
    if (atomic_load(&claim->suspect)) /* since before there was a callback */
        events_push_state(claim->locks->events, &claim->change, MORTISE_STATE_SUSPECT);
}
