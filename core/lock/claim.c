/* claim.c - the memory and the states of claims; see claim.h. It sends no requests. */
#include "lock/claim.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

SLAB_DEFINE(claim_slab, struct claim);

struct claim *claim_new_locked(struct locks *locks, const char *owner, size_t owner_len)
{
    char *copy = NULL;
    if (owner_len > 0 && (copy = malloc(owner_len)) == NULL)
        return NULL;
    bool reserved = timer_reserve(&locks->timers);
    struct claim *claim = reserved ? slab_take(&claim_slab) : NULL;
    if (claim == NULL) {
        if (reserved)
            timer_unreserve(&locks->timers);
        free(copy);
        return NULL;
    }
    if (copy != NULL)
        memcpy(copy, owner, owner_len);
    atomic_store_explicit(&claim->client, locks->handle, memory_order_relaxed);
    atomic_store(&claim->deadline_ns, DEADLINE_PASSED);
    atomic_store_explicit(&claim->token, 0, memory_order_release);
    atomic_store_explicit(&claim->suspect, false, memory_order_release);
    memset((char *)claim + offsetof(struct claim, state), 0,
           offsetof(struct claim, ask) - offsetof(struct claim, state));
    claim->locks = locks;
    claim->timer.kind = TIMER_CLAIM;
    claim->owner = copy;
    claim->owner_len = (uint32_t)owner_len;
    return claim;
}

static void unlink_locked(struct claim *claim)
{
    if (claim->previous != NULL)
        claim->previous->next = claim->next;
    else
        claim->name->claims = claim->next;
    if (claim->next != NULL)
        claim->next->previous = claim->previous;
}

static void free_locked(struct claim *claim)
{
    struct locks *locks = claim->locks;
    struct name *name = claim->name;
    assert(!claim->leased);
    if ((atomic_load(&claim->slot.generation) & 1) != 0)
        slot_spend(&claim->slot); /* it was never a lease */
    locks_stop_timer_locked(locks, &claim->timer);
    timer_unreserve(&locks->timers);
    if (name != NULL) {
        unlink_locked(claim);
        name_put_locked(locks, name);
    }
    claim_unmark_locked(claim);
    free(claim->owner);
    claim->owner = NULL;
    claim->state = CLAIM_GONE;
    slab_give(&claim_slab, &claim->slot);
}

void claim_discard_locked(struct claim *claim)
{
    assert(!claim->maybe);
    claim_go_locked(claim, CLAIM_GONE);
}

void claim_use_locked(struct claim *claim, struct name *name)
{
    if (claim->name != NULL)
        return;
    claim->name = name;
    name->references++;
    claim->next = name->claims;
    if (name->claims != NULL)
        name->claims->previous = claim;
    name->claims = claim;
}

/* Every change of a state, as in the table of claim.h. */
static bool may_go(enum claim_state from, enum claim_state to)
{
#define TO(state) (1u << CLAIM_##state)
    static const unsigned ways[] = {
        [CLAIM_PAUSED] = TO(ASKING) | TO(ENDING) | TO(JOINED) | TO(GONE),
        [CLAIM_ASKING] = TO(PAUSED) | TO(HELD) | TO(LEAVING) | TO(ENDING),
        [CLAIM_LEAVING] = TO(ENDING) | TO(GONE),
        [CLAIM_HELD] = TO(LOST) | TO(ENDING),
        [CLAIM_JOINED] = TO(LOST) | TO(GONE),
        [CLAIM_LOST] = TO(ENDING) | TO(GONE),
        [CLAIM_ENDING] = TO(LOST) | TO(GONE),
        [CLAIM_GONE] = 0,
    };
#undef TO
    return (ways[from] & 1u << to) != 0;
}

void claim_go_locked(struct claim *claim, enum claim_state state)
{
    assert(may_go(claim->state, state));
    (void)may_go;
    if (claim->state == CLAIM_HELD && claim->name->shared == claim)
        claim->name->shared = NULL;
    claim->state = state;
    if (claim->mark != NULL)
        claim_mark_state_locked(claim);
    locks_stop_timer_locked(claim->locks, &claim->timer);
    claim_answered_locked(claim);
}

void claim_answered_locked(struct claim *claim)
{
    if (claim->state == CLAIM_GONE && !claim->ask_out && !claim->end_out)
        free_locked(claim);
}

void claim_spend_lease_locked(struct claim *claim)
{
    slot_spend(&claim->slot);
    claim->leased = false;
    events_forget(claim->locks->events, &claim->change);
    events_forget(claim->locks->events, &claim->loss);
}

void claim_tell_locked(struct claim *claim, struct release_wait **who, mortise_status status,
                       const mortise_error *detail)
{
    struct release_wait *wait = *who;
    if (wait == NULL)
        return;
    *who = NULL;
    wait->status = status;
    if (wait->error != NULL && detail != NULL) {
        *wait->error = *detail;
        wait->error->status = status;
    }
    if (wait->told != NULL)
        wait->told(wait);
    else
        sleeper_wake_later(&wait->sleeper, &claim->locks->wakes);
}

void claim_fill_op(const struct claim *claim, struct task *task, mortise_op_kind kind,
                   void (*done)(mortise_op *op))
{
    memset(task, 0, sizeof(*task));
    mortise_op *op = &task->op;
    op->kind = kind;
    op->core_state = OP_IDLE;
    op->name = claim->name->text;
    op->name_len = claim->name->length;
    op->owner = claim->owner;
    op->owner_len = claim->owner_len;
    op->note = claim->locks->note;
    op->note_len = claim->locks->note_len;
    op->grant = claim->id;
    op->ttl_ms = claim->ttl_ms;
    op->mode = claim->mode;
    op->permits = claim->permits;
    op->token = atomic_load_explicit(&claim->token, memory_order_relaxed);
    op->hint_ms = -1;
    op->done = done;
}
