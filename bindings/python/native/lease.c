/* lease.c - releases, and the other functions on a lease. slot.h has the states. */
#include "slot.h"

/* Takes the lease out of the slot, so that one caller releases it. */
static mortise_lease *take_lease(mpy_slot *slot, enum slot_state next, int *status)
{
    mortise_lease *lease = NULL;
    *status = MORTISE_INVALID;
    if (slot == NULL)
        return NULL;
    if (!is_ours(slot->epoch)) {
        *status = fail(&slot->error, MORTISE_FORKED, "the lease belongs to the parent process");
        return NULL;
    }
    pthread_mutex_lock(&mpy_lock);
    if (slot->state == HELD) {
        lease = atomic_load(&slot->lease);
        slot_go_locked(slot, next);
        slot->references += next == RELEASING;
    }
    pthread_mutex_unlock(&mpy_lock);
    if (lease == NULL)
        *status = fail(&slot->error, MORTISE_INVALID, "the lease was released before");
    return lease;
}

int mpy_release(mpy_slot *slot)
{
    int status;
    mortise_lease *lease = take_lease(slot, IDLE, &status);
    if (lease == NULL)
        return status;
    status = mortise_release(lease, &slot->error);
    if (is_ours(slot->epoch))
        slot_unwatch(slot, lease);
    return status;
}

int mpy_release_nowait(mpy_slot *slot)
{
    int status;
    mortise_lease *lease = take_lease(slot, IDLE, &status);
    if (lease == NULL)
        return status;
    status = mortise_release_nowait(lease, &slot->error);
    slot_unwatch(slot, lease);
    return status;
}

int mpy_release_start(mpy_slot *slot)
{
    int status;
    mortise_lease *lease = take_lease(slot, RELEASING, &status);
    if (lease == NULL)
        return status;
    mortise_error error;
    status = mortise_release_async(lease, slot_on_released, slot, &error);
    bool held = status == MORTISE_NOMEM; /* held and watched as before */
    if (!held)
        slot_unwatch(slot, lease);
    if (status == MORTISE_OK)
        return status;
    pthread_mutex_lock(&mpy_lock);
    slot->error = error;
    bool left = slot->state == LEFT;
    if (!left)
        slot_go_locked(slot, held ? HELD : IDLE);
    pthread_mutex_unlock(&mpy_lock);
    if (left && held)
        release_left(slot, lease);
    pthread_mutex_lock(&mpy_lock);
    slot_put_locked(slot, 1);
    pthread_mutex_unlock(&mpy_lock);
    return status;
}

int mpy_release_many(mpy_slot **slots, size_t count, mortise_error *error)
{
    mortise_lease *leases[MORTISE_MANY_MAX];
    int status = MORTISE_OK, taken;
    if (count > MORTISE_MANY_MAX)
        return fail(error, MORTISE_INVALID, "too many leases");
    for (size_t i = 0; i < count; i++) {
        leases[i] = take_lease(slots[i], IDLE, &taken);
        if (leases[i] == NULL && taken == MORTISE_FORKED)
            return fail(error, taken, "the leases belong to the parent process");
    }
    status = mortise_release_many(leases, count, error);
    for (size_t i = 0; i < count; i++)
        if (leases[i] != NULL)
            slot_unwatch(slots[i], leases[i]);
    return status;
}

/* Returns the handle for a question; the library recognises a released handle, and NULL. */
static mortise_lease *lease_of(mpy_slot *slot)
{
    return slot == NULL ? NULL : atomic_load(&slot->lease);
}

int mpy_extend(mpy_slot *slot, int64_t ttl_ms)
{
    if (slot == NULL)
        return MORTISE_INVALID;
    return mortise_extend(lease_of(slot), ttl_ms, &slot->error);
}

int mpy_downgrade(mpy_slot *slot)
{
    if (slot == NULL)
        return MORTISE_INVALID;
    return mortise_downgrade(lease_of(slot), &slot->error);
}

int mpy_state(mpy_slot *slot)
{
    return mortise_state(lease_of(slot));
}

int64_t mpy_remaining_ms(mpy_slot *slot)
{
    return mortise_remaining_ms(lease_of(slot));
}

uint64_t mpy_token(mpy_slot *slot)
{
    return mortise_token(lease_of(slot));
}

size_t mpy_owner(mpy_slot *slot, char *buffer, size_t size)
{
    return mortise_owner(lease_of(slot), buffer, size);
}
