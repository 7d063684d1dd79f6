/* ending.c - a claim that is released; the release must come to an end, even if no caller waits for it.
 *
 * A release names the grant id, so it can be sent any number of times. It is over
 *   - when the backend has found and released the claim;
 *   - when the backend says that the claim is not there, and the driver is sure that no lost request can bring it back (R4);
 *   - when the claim has ended by itself;
 *   - when the backend refuses the release in a way that repeating cannot change;
 *   - or when a close gives up.
 * Until then it is repeated: at once, then with growing pauses. A caller of mortise_release() gets its status with the first
 * answer; if it stops waiting, the release goes on in the background. */
#include "lock/claim.h"

#define BACKOFF_MIN_MS 10
#define BACKOFF_MAX_MS 2000

static void release_done(mortise_op *op);

static void send_locked(struct claim *claim, int64_t now)
{
    struct locks *locks = claim->locks;
    claim_fill_op(claim, &claim->end, MORTISE_OP_RELEASE, release_done);
    claim->end.op.flags = (claim->attempts > 0 ? MORTISE_OP_REPEAT : 0u) |
                          (claim->downgrade != DOWNGRADE_NONE ? MORTISE_OP_DOWNGRADE : 0u) |
                          (claim->foreign ? MORTISE_OP_DEAD : 0u);
    claim->end.op.ttl_ms = 0;
    claim->end.unattended = claim->wait == NULL || claim->wait->told != NULL;
    claim->end_out = true;
    int64_t patience_ms = locks->settings.unreachable_timeout_ms / 2 + 1;
    locks_set_timer_locked(locks, &claim->timer, clock_after_ms(now, patience_ms));
    locks_start_locked(locks, &claim->end);
}

void claim_end_locked(struct claim *claim, int64_t now)
{
    claim_go_locked(claim, CLAIM_ENDING);
    claim->ends_ns = clock_after_ms(now, claim->ttl_ms);
    claim->attempts = 0;
    claim->maybe_done = claim->end_again = false;
    locks_began_locked(claim->locks);
    send_locked(claim, now);
}

/* The claim was released, or has to be left to its ttl. */
static void over_locked(struct claim *claim, bool left)
{
    struct locks *locks = claim->locks;
    claim->left = left && locks->closing; /* a witness releases it when the process has ended */
    claim_go_locked(claim, claim->leased ? CLAIM_LOST : CLAIM_GONE);
    locks_ended_locked(locks);
}

/* ---- the caller that waits ---- */

void claim_attend_locked(struct claim *claim, struct release_wait *wait)
{
    claim->wait = wait;
    claim->end.unattended = wait->told != NULL; /* not started yet */
    wait->status = MORTISE_INDETERMINATE;
}

static void tell_locked(struct claim *claim, mortise_status status, const mortise_error *detail)
{
    claim_tell_locked(claim, &claim->wait, status, detail);
}

/* The status for a caller that stops waiting now. Its last failure may say "unsent" while another try is under way. */
static mortise_status known_by_now_locked(const struct claim *claim)
{
    if (claim->wait->status == MORTISE_UNREACHABLE && claim->end_out &&
        pump_may_be_sent(claim->locks->pump, &claim->end))
        return MORTISE_INDETERMINATE;
    return claim->wait->status;
}

/* No thread waits for an async release, so this is how its waiting ends. */
static void stop_waiting_locked(struct claim *claim)
{
    struct release_wait *wait = claim->wait;
    if (wait != NULL && wait->told != NULL && clock_now() >= wait->until_ns)
        tell_locked(claim, known_by_now_locked(claim), NULL);
}

void claim_detach_locked(struct claim *claim)
{
    claim->wait->status = known_by_now_locked(claim);
    claim->wait = NULL;
    if (claim->end_out)
        pump_unattend(claim->locks->pump, &claim->end);
}

/* ---- answers ---- */

/* A request of a dead process that was not answered may still be on its way, and the driver cannot know. Such a release is
 * not final before the ttl is over. */
static bool is_final(const struct claim *claim, const mortise_op *op)
{
    switch (op->status) {
    case MORTISE_OK:
    case MORTISE_LOST:
    case MORTISE_NOTOWNER:
        return op->sure && !(claim->foreign && claim->maybe);
    case MORTISE_UNREACHABLE:
    case MORTISE_INDETERMINATE:
    case MORTISE_CANCELED:
    case MORTISE_TIMEDOUT:
    case MORTISE_NOMEM:
        return false;
    default:
        return op->error == NULL || !op->error->retryable;
    }
}

/* The status for the caller. If the reply to a former try was lost, that try may have released the claim. If nobody holds
 * the name now, that is what a release leaves behind: OK. If another holds it now, nothing is proved: it may have acquired
 * after our release or before it. */
static mortise_status meaning(const struct claim *claim, mortise_status status)
{
    if (status == MORTISE_LOST)
        return claim->maybe_done ? MORTISE_OK : MORTISE_LOST;
    if (status == MORTISE_NOTOWNER)
        return claim->maybe_done ? MORTISE_INDETERMINATE : MORTISE_LOST;
    return status;
}

/* No answer yet: what the caller gets if it stops waiting. */
static void note_failure(struct claim *claim, const mortise_op *op)
{
    struct release_wait *wait = claim->wait;
    if (wait == NULL)
        return;
    bool sent = op->status != MORTISE_UNREACHABLE || claim->maybe_done;
    wait->status = sent ? MORTISE_INDETERMINATE : MORTISE_UNREACHABLE;
    if (wait->error != NULL && op->error != NULL)
        *wait->error = *op->error;
}

/* answered: the release is repeated only because an earlier request may still arrive, and that happens soon if at all. */
static void repeat_locked(struct claim *claim, bool at_once, bool answered)
{
    struct locks *locks = claim->locks;
    unsigned attempts = claim->attempts++;
    if (at_once) {
        send_locked(claim, clock_now());
        return;
    }
    int64_t most_ms = BACKOFF_MAX_MS;
    if (claim->foreign && answered && claim->ttl_ms / 16 > most_ms)
        most_ms = claim->ttl_ms / 16;
    int64_t ms = (int64_t)BACKOFF_MIN_MS << (attempts < 24 ? attempts : 24);
    ms = locks_spread_ms_locked(locks, ms > most_ms ? most_ms : ms);
    locks_set_timer_locked(locks, &claim->timer, clock_after_ms(clock_now(), ms));
}

static void released_locked(struct claim *claim, const mortise_op *op)
{
    struct locks *locks = claim->locks;
    bool found =
        op->status == MORTISE_OK || op->status == MORTISE_LOST || op->status == MORTISE_NOTOWNER;
    bool final = is_final(claim, op);
    bool released = final && found;
    bool over = !released && clock_now() >= claim->ends_ns;
    if (claim->wait != NULL)
        claim->wait->taken = op->status == MORTISE_NOTOWNER && claim->maybe_done;
    if (final || found)
        tell_locked(claim, meaning(claim, op->status), op->error);
    else
        note_failure(claim, op);
    if (claim->wait != NULL)
        stop_waiting_locked(claim);
    claim->maybe_done |= op->status == MORTISE_INDETERMINATE;
    bool again = claim->end_again;
    claim->end_again = false;
    if (((!final && !over) || again) && !locks->abandoning) {
        repeat_locked(claim, again || (claim->attempts == 0 && !found), found);
        return;
    }
    if (claim->wait != NULL) /* it has heard nothing yet */
        tell_locked(claim, claim->wait->status, NULL);
    locks->left_behind |= !released && locks->closing;
    if (!released && !over && claim->ends_ns > locks->left_until_ns)
        locks->left_until_ns = claim->ends_ns;
    over_locked(claim, !released && !over);
}

/* Inside the pump, no lock held. */
static void release_done(mortise_op *op)
{
    struct claim *claim = (struct claim *)(void *)((char *)op - offsetof(struct claim, end));
    struct locks *locks = claim->locks;
    pthread_mutex_lock(&locks->lock);
    claim->end_out = false;
    released_locked(claim, op);
    locks_unlock(locks, START_NOW);
}

void claim_ending_timer_locked(struct claim *claim)
{
    stop_waiting_locked(claim);
    if (!claim->end_out) {
        send_locked(claim, clock_now());
        return;
    }
    struct release_wait *wait = claim->wait;
    bool async =
        wait != NULL && wait->told != NULL; /* a driver that is stuck answers no cancel either */
    locks_cancel_locked(claim->locks, &claim->end); /* no answer: this try has failed */
    locks_set_timer_locked(claim->locks, &claim->timer, async ? wait->until_ns : MORTISE_NEVER);
}

/* ---- the client closes ---- */

void claims_hurry_locked(struct locks *locks)
{
    for (struct name *name = locks->names; name != NULL; name = name->hh.next)
        for (struct claim *claim = name->claims; claim != NULL; claim = claim->next)
            if (claim->state == CLAIM_ENDING && !claim->end_out)
                send_locked(claim, clock_now());
}

static void abandon_locked(struct claim *claim)
{
    if (claim->wait != NULL) /* before the cancel, which changes pump_may_be_sent() */
        tell_locked(claim, known_by_now_locked(claim), NULL);
    if (claim->end_out) {
        pump_unattend(claim->locks->pump, &claim->end);
        locks_cancel_locked(claim->locks, &claim->end);
    } else
        over_locked(claim, true);
}

void claims_abandon_locked(struct locks *locks)
{
    locks->abandoning = true;
    for (struct name *name = locks->names, *next_name; name != NULL; name = next_name) {
        next_name = name->hh.next;
        for (struct claim *claim = name->claims, *next; claim != NULL; claim = next) {
            next = claim->next;
            if (claim->state == CLAIM_ENDING)
                abandon_locked(claim);
        }
    }
}
