/* lease.h - the end of a lease: its claim passes to another caller of this process, or is released. */
#ifndef MORTISE_CORE_LOCK_LEASE_H
#define MORTISE_CORE_LOCK_LEASE_H

#include "lock/claim.h"

/* Ends the lease. wait: the caller that waits for the answer, or NULL. Returns LOST or OK. If *ending is not NULL, the
 * claim is being released, and the answer wakes wait->sleeper; otherwise there is nothing to wait for. */
mortise_status lease_release_locked(struct claim *claim, struct release_wait *wait,
                                    struct claim **ending);

/* The handle is live, and its deadline has not passed. */
bool lease_is_held_locked(mortise_lease *lease, int64_t now);
/* Gives a lease that is held, and has no callback yet, this one, which is called if the lease is SUSPECT already. */
void lease_call_back_locked(mortise_lease *lease, mortise_state_callback on_state, void *user_data);

/* The claim is HELD and exclusive: asks the backend to make it shared, again and again until there is an answer. */
void lease_downgrade_locked(struct claim *claim, struct release_wait *wait);

#endif
