/* lease.h - the end of a lease: its claim passes to another caller of this process, or is released. */
#ifndef MORTISE_CORE_LOCK_LEASE_H
#define MORTISE_CORE_LOCK_LEASE_H

#include "lock/claim.h"

/* Ends the lease. wait: the caller that waits for the answer, or NULL. Returns LOST; OK, and *ending: the claim is being
 * released, and wait->sleeper is woken with the answer; or OK without: nothing has to be waited for. */
mortise_status lease_release_locked(struct claim *claim, struct release_wait *wait,
                                    struct claim **ending);

/* The handle is live, and its deadline has not passed. */
bool lease_is_held_locked(mortise_lease *lease, int64_t now);
/* Such a lease has got no callback yet: it gets this one, which is called if the lease is SUSPECT already. */
void lease_call_back_locked(mortise_lease *lease, mortise_state_callback on_state, void *user_data);

/* HELD and exclusive: asks for the claim to be made shared, until that is answered. */
void lease_downgrade_locked(struct claim *claim, struct release_wait *wait);

#endif
