/* join.c - several shared leases of this process on one claim: the host, which asks for all of them, and its guests.
 *
 * A shared caller may join a shared claim that the process holds, without a request, as long as the claim could be passed
 * on to it (lease.c has the same conditions). So a crowd of local readers costs one claim, and `handover_window` and
 * `handover_max` limit for how long such readers go ahead of waiters in other processes. A guest has a handle, callbacks
 * and a deadline of its own, and the grant id and token of its host; it sends no requests.
 *
 * | event                        | the host                                | each guest                        |
 * |------------------------------|-----------------------------------------|-----------------------------------|
 * | a renewal extends the host   | HELD                                    | extended; LOST, if it had passed  |
 * | the host is suspect, or not  | reported for its lease                  | reported for each                 |
 * | the host is lost             | LOST, or ENDING; GONE without a lease   | LOST                              |
 * | the lease of the host ends   | HELD without a lease; ENDING, if alone  | -                                 |
 * | a guest ends                 | ENDING, if it was the last of all       | GONE                              |
 * | a guest is lost alone        | ENDING, if it was the last of all       | LOST                              |
 *
 * All deadlines of a host and its guests come from the same answers. */
#include "lock/claim.h"
#include "lock/waitlist.h"

bool claim_may_be_shared(struct claim *claim, const struct waiter *waiter, int64_t now)
{
    const struct lock_settings *settings = &claim->locks->settings;
    if (claim->ask_out || claim->doubted || claim->downgrade != DOWNGRADE_NONE)
        return false;
    if (waiter->mode != claim->mode || waiter->permits != claim->permits)
        return false;
    if (!claim->renew || waiter->no_renew || waiter->ttl_ms != claim->ttl_ms ||
        claim->hold_until_ns != MORTISE_NEVER)
        return false;
    if (claim->handovers >= settings->handover_max ||
        now - claim->granted_ns >= settings->handover_window_ms * NS_PER_MS)
        return false;
    int64_t deadline = claim_deadline(claim, now);
    return !atomic_load(&claim->suspect) && deadline != DEADLINE_PASSED &&
           deadline - now >= (int64_t)claim->span_ms * NS_PER_MS / 3;
}

bool claim_join_locked(struct claim *host, struct waiter *waiter, int64_t now)
{
    struct locks *locks = host->locks;
    struct claim *guest = waiter->spare;
    if (guest == NULL || waiter->mode != MORTISE_SHARED || waiter->permits != 0 ||
        waiter->max_hold_ms > 0 || !claim_may_be_shared(host, waiter, now))
        return false;
    waiter->spare = NULL;
    claim_use_locked(guest, host->name);
    claim_go_locked(guest, CLAIM_JOINED);
    guest->leased = guest->renew = true;
    guest->id = host->id;
    guest->ttl_ms = host->ttl_ms;
    guest->span_ms = host->span_ms;
    guest->mode = host->mode;
    guest->granted_ns = host->granted_ns;
    guest->host = host;
    guest->next_guest = host->guests;
    if (host->guests != NULL)
        host->guests->previous_guest = guest;
    host->guests = guest;
    host->handovers++;
    claim_adopt_locked(guest, waiter, now);
    atomic_store_explicit(&guest->token, atomic_load(&host->token), memory_order_release);
    atomic_store_explicit(&guest->deadline_ns, atomic_load(&host->deadline_ns),
                          memory_order_release);
    locks->stats.joins++;
    observe_locked(locks, MORTISE_EVENT_JOINED, host->name, guest, waiter, MORTISE_OK);
    return true;
}

struct claim *claim_leave_locked(struct claim *guest)
{
    struct claim *host = guest->host;
    if (guest->previous_guest != NULL)
        guest->previous_guest->next_guest = guest->next_guest;
    else
        host->guests = guest->next_guest;
    if (guest->next_guest != NULL)
        guest->next_guest->previous_guest = guest->previous_guest;
    guest->host = guest->next_guest = guest->previous_guest = NULL;
    atomic_store(&guest->deadline_ns, DEADLINE_PASSED);
    return host;
}

void guest_lost_locked(struct claim *guest)
{
    struct locks *locks = guest->locks;
    claim_leave_locked(guest);
    locks->stats.losses++;
    locks->stats.held--;
    observe_locked(locks, MORTISE_EVENT_LOST, guest->name, guest, NULL, MORTISE_LOST);
    events_push_state(locks->events, &guest->loss, MORTISE_STATE_LOST);
    claim_go_locked(guest, CLAIM_LOST);
}

void guests_lost_locked(struct claim *host)
{
    while (host->guests != NULL)
        guest_lost_locked(host->guests);
}

void guests_suspect_locked(struct claim *host, mortise_status status)
{
    for (struct claim *guest = host->guests; guest != NULL; guest = guest->next_guest) {
        atomic_store(&guest->suspect, true);
        observe_locked(host->locks, MORTISE_EVENT_SUSPECT, host->name, guest, NULL, status);
        events_push_state(host->locks->events, &guest->change, MORTISE_STATE_SUSPECT);
    }
}

void guests_renewed_locked(struct claim *host)
{
    int64_t deadline_ns = atomic_load(&host->deadline_ns);
    for (struct claim *guest = host->guests, *next; guest != NULL; guest = next) {
        next = guest->next_guest;
        if (!claim_extend_deadline(guest, deadline_ns)) {
            guest_lost_locked(guest);
            continue;
        }
        if (atomic_exchange(&guest->suspect, false))
            events_push_state(host->locks->events, &guest->change, MORTISE_STATE_HELD);
        observe_locked(host->locks, MORTISE_EVENT_RENEWED, host->name, guest, NULL, MORTISE_OK);
    }
}
