/* mark.c - what a witness sees of the claims, so that it can release them if this process dies: one slot for each claim of
 * which the backend may hold something. <mortise/witness.h> has the table of states and events; the events are here. */
#include "lock/claim.h"

#include <string.h>

/* A claim that was granted to a client that has closed may last as long as its session. This is the longest `session_timeout`
 * of zookeeper. */
#define SESSION_MAX_MS 3600000

/* A claim that is not renewed ends by itself, mostly after its ttl; a request may take as long as the ttl to arrive. */
static int64_t end_ns(const struct claim *claim, int64_t now)
{
    return clock_after_ms(now, 2 * (int64_t)claim->ttl_ms);
}

static void write_slot(struct claim *claim)
{
    const struct slot_claim what = {.name = claim->name->text,
                                    .name_len = claim->name->length,
                                    .owner = claim->owner,
                                    .owner_len = claim->owner_len,
                                    .grant = &claim->id,
                                    .ttl_ms = claim->ttl_ms,
                                    .mode = claim->mode,
                                    .permits = claim->permits};
    slot_write(claim->mark, &what);
}

void claim_mark_asking_locked(struct claim *claim)
{
    if (claim->mark == NULL)
        claim->mark = area_take(&claim->locks->area);
    else if (claim->maybe)
        return; /* the same grant id, and ASKED already */
    if (claim->mark != NULL)
        write_slot(claim);
}

void claim_mark_state_locked(struct claim *claim)
{
    switch (claim->state) {
    case CLAIM_PAUSED:
        if (!claim->maybe)
            slot_set_state(claim->mark, MORTISE_WITNESS_FREE);
        break;
    case CLAIM_HELD:
        slot_set_end(claim->mark, end_ns(claim, claim->granted_ns));
        if (claim->asked_once)
            slot_set_state(claim->mark, MORTISE_WITNESS_HELD);
        break;
    case CLAIM_GONE:
        if (!claim->left)
            slot_set_state(claim->mark, MORTISE_WITNESS_FREE);
        else if (claim->mark->ends_ns == INT64_MAX)
            /* this client sends no more requests for it, but the process may live for years */
            slot_set_end(claim->mark, clock_after_ms(end_ns(claim, clock_now()), SESSION_MAX_MS));
        break;
    case CLAIM_ASKING:
    case CLAIM_LEAVING:
    case CLAIM_JOINED:
    case CLAIM_LOST:
    case CLAIM_ENDING:
        break;
    }
}

void claim_mark_renewal_locked(struct claim *claim, int64_t now)
{
    slot_set_ttl(claim->mark, claim->ttl_ms);
    slot_set_end(claim->mark, end_ns(claim, now));
    if (claim->downgrade != DOWNGRADE_NONE)
        slot_add_flags(claim->mark, MORTISE_WITNESS_EITHER);
}

void claim_unmark_locked(struct claim *claim)
{
    if (claim->mark != NULL && !claim->left)
        area_give(&claim->locks->area, claim->mark);
    claim->mark = NULL;
}

/* ---- the witness comes later than the claims ------------------------------------------------------- */

/* The backend may hold something of the claim, or is about to be asked for it. */
static bool is_in_backend(const struct claim *claim)
{
    return claim->state == CLAIM_PAUSED
               ? claim->maybe
               : claim->state != CLAIM_JOINED && claim->state != CLAIM_GONE;
}

static void mark_late_locked(struct claim *claim, int64_t now)
{
    if (claim->mark != NULL || !is_in_backend(claim))
        return;
    claim->mark = area_take(&claim->locks->area);
    if (claim->mark == NULL)
        return;
    write_slot(claim);
    if (claim->downgrade != DOWNGRADE_NONE)
        slot_add_flags(claim->mark, MORTISE_WITNESS_EITHER);
    if (claim->state == CLAIM_HELD)
        claim_mark_state_locked(claim);
    if (claim->state == CLAIM_HELD || claim->state == CLAIM_LOST || claim->state == CLAIM_ENDING)
        slot_set_end(claim->mark, end_ns(claim, now));
}

void witness_turn_locked(struct locks *locks)
{
    bool had_area = locks->area.head != NULL;
    int64_t now = clock_now();
    link_turn(&locks->witness, now);
    if (had_area || locks->area.head == NULL)
        return;
    for (struct name *name = locks->names; name != NULL; name = name->hh.next)
        for (struct claim *claim = name->claims; claim != NULL; claim = claim->next)
            mark_late_locked(claim, now);
}
