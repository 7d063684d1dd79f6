/* held.c - a claim that is held: its deadline, its renewal, its loss. See claim.h.
 *
 * A renewal that gets no answer makes the lease SUSPECT and is repeated: at once, then with growing pauses. An answer
 * makes it HELD again; the deadline, or a report of the backend that it is gone, makes it LOST. If the driver doubts a claim
 * that is not renewed, the claim is checked all the same: a claim that is known to be lost is not held (R2). */
#include "lock/claim.h"
#include "lock/waitlist.h"

#include <string.h>

/* A retry costs more than a renewal, because thousands of renewals are sent together. */
#define RETRY_NS (200 * NS_PER_MS)

static void renewal_done(mortise_op *op);

int64_t drift_margin_ns(int64_t ttl_ms)
{
    return ttl_ms * NS_PER_MS / 100 + 2 * NS_PER_MS;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- the deadline ---- */

int64_t claim_deadline(struct claim *claim, int64_t now)
{
    int64_t deadline = atomic_load_explicit(&claim->deadline_ns, memory_order_acquire);
    while (deadline != DEADLINE_PASSED && now >= deadline) {
        if (atomic_compare_exchange_weak(&claim->deadline_ns, &deadline, DEADLINE_PASSED))
            return DEADLINE_PASSED;
    }
    return deadline;
}

bool claim_extend_deadline(struct claim *claim, int64_t deadline_ns)
{
    int64_t before = claim_deadline(claim, clock_now());
    while (before != DEADLINE_PASSED && before < deadline_ns) {
        if (atomic_compare_exchange_weak(&claim->deadline_ns, &before, deadline_ns))
            return true;
        before = claim_deadline(claim, clock_now());
    }
    return before != DEADLINE_PASSED;
}

/* Returns until when this process may believe that it holds the claim, by this answer (R1). Sets the span. A short extension does
 * not make the span shorter than the time that is left, so that later requests have no less time for their answers. */
static int64_t believed_until(struct claim *claim, const mortise_op *op)
{
    int64_t deadline = atomic_load(&claim->deadline_ns);
    int64_t left_ms = deadline == DEADLINE_PASSED ? 0 : (deadline - op->from_ns) / NS_PER_MS;
    int64_t span_ms = op->good_for_ms > left_ms ? op->good_for_ms : left_ms;
    claim->span_ms = (uint32_t)earlier(span_ms, claim->ttl_ms);
    return clock_after_ms(op->from_ns, op->good_for_ms) - drift_margin_ns(op->good_for_ms);
}

/* ---- when to look at it again ---- */

static int64_t renew_every_ns(const struct claim *claim)
{
    int64_t every_ms = claim->locks->settings.renew_every_ms;
    int64_t third_ms = claim->span_ms < 3 ? 1 : claim->span_ms / 3;
    return (every_ms > 0 ? earlier(every_ms, third_ms) : third_ms) * NS_PER_MS;
}

static bool is_renewed(const struct claim *claim, int64_t now)
{
    return claim->renew && now < claim->hold_until_ns;
}

/* The backend must be asked, even if the deadline need not move. */
static bool asks_again(const struct claim *claim)
{
    return claim->doubted || claim->downgrade != DOWNGRADE_NONE || claim->extend_ms > 0;
}

/* The pause after a failure; the first failure has none. After the second failure it lasts up to about a twelfth of the span,
 * and later up to a sixth, but no longer than the pause between renewals, or than 200 ms if that is longer. It is random, and
 * at least half of these. */
static int64_t backoff_ns(struct claim *claim)
{
    int64_t span_ns = (int64_t)claim->span_ms * NS_PER_MS;
    int64_t every_ns = renew_every_ns(claim);
    int64_t most_ns = earlier(span_ns / 6, every_ns < RETRY_NS ? RETRY_NS : every_ns);
    int64_t step = earlier(span_ns / 50 << (claim->failures < 6 ? claim->failures : 6), most_ns);
    if (step < NS_PER_MS)
        step = NS_PER_MS;
    return step / 2 + random_below(&claim->locks->random, step / 2 + 1);
}

/* Sets the timer to due_ns, or to the deadline if that is earlier. A deadline that has passed (INT64_MIN) is due at once. */
static void set_timer_locked(struct claim *claim, int64_t due_ns)
{
    locks_set_timer_locked(claim->locks, &claim->timer,
                           earlier(due_ns, atomic_load(&claim->deadline_ns)));
}

static void set_renewal_timer_locked(struct claim *claim, int64_t now)
{
    set_timer_locked(claim, is_renewed(claim, now) ? claim->renewed_ns + renew_every_ns(claim)
                                                   : MORTISE_NEVER);
}

bool claim_is_renewal(struct claim *claim)
{
    return claim->state == CLAIM_HELD && claim->renew && !claim->ask_out && claim->failures == 0 &&
           claim->timer.due_ns < atomic_load(&claim->deadline_ns);
}

/* ---- granted ---- */

void claim_adopt_locked(struct claim *claim, struct waiter *waiter, int64_t now)
{
    claim->hold_until_ns =
        waiter->max_hold_ms > 0 ? clock_after_ms(now, waiter->max_hold_ms) : MORTISE_NEVER;
    claim->number = ++claim->locks->leases;
    waiter->lease = slot_handle(&claim->slot);
    claim->change = claim->loss = (struct notice){
        .lease = waiter->lease, .on_state = waiter->on_state, .user_data = waiter->user_data};
}

bool claim_hold_locked(struct claim *claim, struct waiter *waiter, const mortise_op *op)
{
    int64_t now = clock_now();
    int64_t deadline = believed_until(claim, op);
    if (now >= deadline)
        return false;
    claim->granted_ns = now;
    claim->asked_once = !claim->maybe;
    claim->maybe = false;
    claim_go_locked(claim, CLAIM_HELD);
    claim->leased = true;
    claim->first_ttl_ms = claim->ttl_ms;
    claim->renewed_ns = op->from_ns;
    claim->renew = !waiter->no_renew;
    claim_adopt_locked(claim, waiter, now);
    if (waiter->no_renew && claim->span_ms < claim->ttl_ms) {
        claim->renew = claim->ends = true; /* the claim alone does not last that long */
        claim->hold_until_ns = clock_after_ms(op->from_ns, claim->ttl_ms);
    }
    atomic_store_explicit(&claim->token, op->token, memory_order_release);
    atomic_store_explicit(&claim->deadline_ns, deadline, memory_order_release);
    if (claim->mode == MORTISE_SHARED)
        claim->name->shared = claim;
    set_renewal_timer_locked(claim, now);
    observe_locked(claim->locks, MORTISE_EVENT_GRANTED, claim->name, claim, waiter, MORTISE_OK);
    return true;
}

void claim_pass_on_locked(struct claim *claim, struct waiter *waiter)
{
    struct locks *locks = claim->locks;
    events_forget(locks->events, &claim->change);
    events_forget(locks->events, &claim->loss);
    slot_renew(&claim->slot);
    claim->handovers++;
    claim_adopt_locked(claim, waiter, clock_now());
    locks->stats.handovers++;
    locks->stats.held--;
    observe_locked(locks, MORTISE_EVENT_HANDED_OVER, claim->name, claim, waiter, MORTISE_OK);
}

/* ---- lost ---- */

static void suspect_locked(struct claim *claim, mortise_status status)
{
    if (atomic_exchange(&claim->suspect, true))
        return;
    guests_suspect_locked(claim, status);
    if (!claim->leased)
        return;
    observe_locked(claim->locks, MORTISE_EVENT_SUSPECT, claim->name, claim, NULL, status);
    events_push_state(claim->locks->events, &claim->change, MORTISE_STATE_SUSPECT);
}

/* Reports the loss to the holder. A claim that only guests share has no holder of its own. */
static void tell_lost_locked(struct claim *claim)
{
    struct locks *locks = claim->locks;
    if (!claim->leased)
        return;
    locks->stats.losses++;
    locks->stats.held--;
    observe_locked(locks, MORTISE_EVENT_LOST, claim->name, claim, NULL, MORTISE_LOST);
    events_push_state(locks->events, &claim->loss, MORTISE_STATE_LOST);
    claim_downgrade_over_locked(claim, MORTISE_LOST);
    claim_extend_over_locked(claim, MORTISE_LOST);
}

/* gone: the backend said that the claim is gone. Otherwise the claim is released if the backend may keep it beyond the deadline:
 *   - A renewal that was sent may have moved the deadline in the backend. That renewal may have failed long ago: a later answer
 *     that the claim is there does not say until when.
 *   - The claim is good for less than its ttl, for example because it ends with a session. When a stopped process continues, that
 *     session may still be there. */
static void lost_locked(struct claim *claim, bool gone)
{
    bool longer = claim->span_ms < claim->ttl_ms;
    bool unsure = !gone && (claim->moved || claim->ask_out || longer);
    bool leased = claim->leased;
    atomic_store(&claim->deadline_ns, DEADLINE_PASSED);
    guests_lost_locked(claim);
    tell_lost_locked(claim);
    if (claim->ask_out) /* without a lease, no other code would cancel it */
        locks_cancel_locked(claim->locks, &claim->ask);
    if (unsure) {
        claim_end_locked(claim, clock_now());
        return;
    }
    claim_go_locked(claim, CLAIM_LOST);
    if (!leased)
        claim_go_locked(claim, CLAIM_GONE);
}

/* The last guest of a claim without a lease of its own was lost, but the claim was not: no lease is left whose release would
 * release the claim. */
static bool end_unused_locked(struct claim *host)
{
    if (host->leased || host->guests != NULL)
        return false;
    atomic_store(&host->deadline_ns, DEADLINE_PASSED);
    if (host->ask_out)
        locks_cancel_locked(host->locks, &host->ask);
    claim_end_locked(host, clock_now());
    return true;
}

void claim_check_deadline_locked(struct claim *claim, int64_t now)
{
    bool joined = claim->state == CLAIM_JOINED;
    if ((claim->state != CLAIM_HELD && !joined) || claim_deadline(claim, now) != DEADLINE_PASSED)
        return;
    if (joined) {
        struct claim *host = claim->host;
        guest_lost_locked(claim);
        end_unused_locked(host);
    } else
        lost_locked(claim, false);
}

/* ---- renewal ---- */

/* The time that is left of a claim that must not be extended. If a check asks for no more than this, it extends the claim only by
 * the time that the request takes. A thread that reads the state may see the deadline pass at any time. */
static int64_t left_ms(const struct claim *claim, int64_t now)
{
    int64_t deadline = atomic_load(&claim->deadline_ns);
    if (deadline == DEADLINE_PASSED || deadline <= now)
        return 1;
    int64_t ms = (deadline + drift_margin_ns(claim->span_ms) - now) / NS_PER_MS + 1;
    return earlier(ms, claim->ttl_ms);
}

/* The ttl that a renewal asks for. */
static int64_t renewal_ms(const struct claim *claim, int64_t now)
{
    if (!claim->extends)
        return left_ms(claim, now);
    if (!claim->ends)
        return claim->extending ? claim->extend_ms : claim->ttl_ms;
    int64_t ms = (claim->hold_until_ns - now) / NS_PER_MS + 1;
    return ms > claim->extend_ms ? ms : claim->extend_ms;
}

void claim_renew_locked(struct claim *claim, int64_t now)
{
    int64_t patience_ns = (int64_t)claim->span_ms * NS_PER_MS / 6;
    set_timer_locked(claim, now + (patience_ns < NS_PER_MS ? NS_PER_MS : patience_ns));
    claim_fill_op(claim, &claim->ask, MORTISE_OP_RENEW, renewal_done);
    claim->extending = claim->extend_ms > 0;
    claim->extends = claim->extending || is_renewed(claim, now);
    claim->ask.op.ttl_ms = renewal_ms(claim, now);
    claim->extend_ms = 0;
    if (claim->downgrade != DOWNGRADE_NONE)
        claim->ask.op.flags = MORTISE_OP_DOWNGRADE;
    claim->ask.unattended = true;
    claim->answers_doubt = claim->doubted;
    claim->doubted = false;
    claim->ask_out = true;
    if (claim->mark != NULL)
        claim_mark_renewal_locked(claim, now);
    locks_began_locked(claim->locks);
    locks_start_locked(claim->locks, &claim->ask);
}

static void renewed_locked(struct claim *claim, const mortise_op *op)
{
    bool stands = claim->extends ? claim_extend_deadline(claim, believed_until(claim, op))
                                 : claim_deadline(claim, clock_now()) != DEADLINE_PASSED;
    if (!stands) {
        claim->moved = true; /* in the backend, but the lease is over */
        lost_locked(claim, false);
        return;
    }
    claim->failures = 0;
    if ((op->flags & MORTISE_OP_DOWNGRADE) != 0)
        claim_downgraded_locked(claim);
    claim_extended_locked(claim, op);
    if (atomic_exchange(&claim->suspect, false) && claim->leased)
        events_push_state(claim->locks->events, &claim->change, MORTISE_STATE_HELD);
    if (claim->extends) {
        claim->locks->stats.renewals++;
        claim->renewed_ns = op->from_ns;
        if (claim->leased)
            observe_locked(claim->locks, MORTISE_EVENT_RENEWED, claim->name, claim, NULL,
                           MORTISE_OK);
    }
    guests_renewed_locked(claim);
    if (end_unused_locked(claim))
        return;
    int64_t now = clock_now();
    if (asks_again(claim))
        claim_renew_locked(claim, now);
    else
        set_renewal_timer_locked(claim, now);
}

/* doubted: the driver doubted the claim while the renewal was out. The driver knows more now, so try again at once. */
static void renewal_failed_locked(struct claim *claim, const mortise_op *op, bool doubted)
{
    int64_t now = clock_now();
    if (claim_extend_failed_locked(claim, op) ||
        ((op->flags & MORTISE_OP_DOWNGRADE) != 0 && claim_downgrade_failed_locked(claim, op))) {
        if (asks_again(claim))
            claim_renew_locked(claim, now);
        else
            set_renewal_timer_locked(claim, now);
        return;
    }
    claim->locks->stats.renewal_failures++;
    claim->moved = true; /* perhaps: the renewal may have been executed */
    if (claim->failures < UINT16_MAX)
        claim->failures++;
    suspect_locked(claim, op->status);
    if (claim_deadline(claim, now) == DEADLINE_PASSED)
        lost_locked(claim, false);
    else if (!is_renewed(claim, now) && !asks_again(claim))
        set_timer_locked(claim, MORTISE_NEVER);
    else if (claim->failures == 1 || doubted)
        claim_renew_locked(claim, now);
    else
        set_timer_locked(claim, now + backoff_ns(claim));
}

/* An answer for a claim that is not held any more: a renewal that succeeded late is undone. Nothing is to be done if the lease
 * was released: its release, or the one after the loss, was sent after the renewal, and is repeated until it is sure. */
static void renewed_too_late_locked(struct claim *claim, const mortise_op *op)
{
    if (!claim->leased || (op->status != MORTISE_OK && op->status != MORTISE_INDETERMINATE))
        return;
    if (claim->state == CLAIM_ENDING) {
        claim->end_again = true;
        claim->ends_ns = clock_after_ms(clock_now(), claim->ttl_ms);
    } else
        claim_end_locked(claim, clock_now());
}

/* Inside the pump, no lock held. */
static void renewal_done(mortise_op *op)
{
    struct claim *claim = (struct claim *)(void *)((char *)op - offsetof(struct claim, ask));
    struct locks *locks = claim->locks;
    pthread_mutex_lock(&locks->lock);
    claim->ask_out = false;
    bool doubted = claim->doubted;
    claim->doubted |= claim->answers_doubt && op->status != MORTISE_OK; /* the doubt remains */
    if (claim->state != CLAIM_HELD) {
        renewed_too_late_locked(claim, op);
        claim_answered_locked(claim);
    } else if (op->status == MORTISE_OK)
        renewed_locked(claim, op);
    else if (op->status == MORTISE_LOST || op->status == MORTISE_NOTOWNER)
        lost_locked(claim, true);
    else
        renewal_failed_locked(claim, op, doubted);
    locks_ended_locked(locks);
    locks_unlock(locks, START_NOW);
}

void claim_held_timer_locked(struct claim *claim, int64_t now)
{
    if (claim_deadline(claim, now) == DEADLINE_PASSED)
        lost_locked(claim, false);
    else if (claim->ask_out) { /* no answer in a sixth of the ttl: this try has failed */
        locks_cancel_locked(claim->locks, &claim->ask);
        suspect_locked(claim,
                       MORTISE_TIMEDOUT); /* now: a stuck driver does not answer the cancel */
        set_timer_locked(claim, MORTISE_NEVER);
    } else if (is_renewed(claim, now) || asks_again(claim))
        claim_renew_locked(claim, now);
    else
        set_timer_locked(claim, MORTISE_NEVER);
}

/* ---- doubts of the driver ---- */

void claims_doubt_locked(struct name *name, int64_t now)
{
    for (struct claim *claim = name->claims; claim != NULL; claim = claim->next) {
        if (claim->state != CLAIM_HELD || claim_deadline(claim, now) == DEADLINE_PASSED)
            continue;
        claim->doubted = true;
        if (!claim->ask_out)
            claim_renew_locked(claim, now);
    }
}

/* If all names are doubted, each held claim costs one renewal. The driver gets these in batches, like the renewals that all
 * claims send once in a third of the ttl. A claim whose renewal is out is renewed once more, however often it is doubted
 * meanwhile. That is no limit if the driver answers renewals at once: each call then renews all claims again. So the drivers
 * themselves gather the doubts that can wait (see tell_doubt() in pump.c). The other doubts are rare (a failover, a
 * reconnection, a node that somebody deleted). They must not wait: a claim that was not checked might be reported as held
 * while another client has the name. */
void claims_doubt(struct locks *locks, const char *text, size_t length)
{
    pthread_mutex_lock(&locks->lock);
    int64_t now = clock_now();
    struct name *name = text == NULL ? NULL : name_find_locked(locks, text, length);
    if (name != NULL)
        claims_doubt_locked(name, now);
    for (name = text == NULL ? locks->names : NULL; name != NULL; name = name->hh.next)
        claims_doubt_locked(name, now);
    locks_unlock(locks, START_NOW);
}
