/* lease.c - the public calls on a lease: its end, and what can be asked of it without a word to anybody. */
#include "lock/lease.h"
#include "client/client.h"
#include "lock/waitlist.h"

#include <stdio.h>

/* The claim of a live lease, with its client entered. */
static mortise_status lease_enter(mortise_lease *lease, struct claim **claim,
                                  struct client **client, mortise_error *error)
{
    struct claim *found = slab_find(&claim_slab, lease);
    if (found == NULL)
        return failed(error, MORTISE_INVALID, "not a lease: %p", (void *)lease);
    mortise_client *handle = atomic_load_explicit(&found->client, memory_order_relaxed);
    if (!slot_is(&found->slot, lease))
        return failed(error, MORTISE_INVALID,
                      "the lease was released before, or its client closed");
    *claim = found;
    return client_enter(handle, client, error);
}

/* Waits for the answer to a release; it goes on in the background if none comes. */
static void await_release(struct client *client, struct claim *claim, struct release_wait *wait)
{
    if (sleeper_done(&wait->sleeper)) /* it was answered at once: not worth a look at the clock */
        return;
    int64_t until = clock_after_ms(clock_now(), client->locks.settings.unreachable_timeout_ms);
    if (pump_wait(&client->pump, &wait->sleeper, until))
        return;
    pthread_mutex_lock(&client->locks.lock);
    if (!sleeper_done(&wait->sleeper)) /* else the claim may be another one's already */
        claim_detach_locked(claim);
    locks_unlock(&client->locks, START_NOW);
}

/* What a lease was called, for a message: it may be gone by then. Quoted only if there is one. */
struct called {
    char text[MORTISE_NAME_MAX];
    size_t length;
};

static void remember_name(struct called *called, const struct claim *claim, size_t prefix)
{
    called->length = claim->name->length - prefix;
    memcpy(called->text, claim->name->text + prefix, called->length);
}

static void explain_release(const struct called *called, mortise_status status,
                            const mortise_error *detail, mortise_error *error)
{
    char name[QUOTED_SIZE];
    if (error == NULL)
        return;
    quote_name(called->text, called->length, name, sizeof(name));
    if (status == MORTISE_LOST)
        failed(error, status, "release %s: the lease was lost before", name);
    else if (detail->status == status)
        *error = *detail;
    else
        failed(error, status, "release %s: %s; it is repeated until it is sure", name,
               mortise_status_text(status));
}

static mortise_status end_lease(struct claim *claim, struct client *client, mortise_lease *lease,
                                bool waits, mortise_error *error)
{
    struct locks *locks = &client->locks;
    struct called called;
    mortise_error detail;
    detail.status = MORTISE_OK;
    /* cppcheck-suppress uninitvar ; it is filled if there is detail */
    struct release_wait wait = {.error = error == NULL ? NULL : &detail};
    bool ending;
    sleeper_init(&wait.sleeper, &client->pump);
    pthread_mutex_lock(&locks->lock);
    if (!slot_is(&claim->slot, lease)) {
        locks_unlock(locks, START_NOW);
        return failed(error, MORTISE_INVALID,
                      "the lease was released before, or its client closed");
    }
    bool calls_back = claim->loss.on_state != NULL;
    if (error != NULL)
        remember_name(&called, claim, locks->settings.namespace_len);
    mortise_status status = lease_release_locked(claim, waits ? &wait : NULL, &ending);
    locks_unlock(locks, waits && ending ? START_NOW : START_SOON);
    if (calls_back)
        events_drain(&client->events, lease);
    if (waits && ending) {
        await_release(client, claim, &wait);
        status = wait.status;
    }
    if (status != MORTISE_OK)
        explain_release(&called, status, &detail, error);
    return status;
}

static mortise_status release_lease(mortise_lease *lease, bool waits, mortise_error *error)
{
    struct claim *claim;
    struct client *client;
    if (lease == NULL)
        return MORTISE_OK;
    mortise_status status = lease_enter(lease, &claim, &client, error);
    if (status != MORTISE_OK)
        return status;
    status = end_lease(claim, client, lease, waits, error);
    client_leave(client);
    return status;
}

mortise_status mortise_release(mortise_lease *lease, mortise_error *error)
{
    return release_lease(lease, true, error);
}

mortise_status mortise_release_nowait(mortise_lease *lease, mortise_error *error)
{
    return release_lease(lease, false, error);
}

static mortise_status may_downgrade(const struct claim *claim, mortise_error *error)
{
    if (claim->owner_len > 0)
        return failed(error, MORTISE_INVALID, "downgrade: a lease with an owner cannot be shared");
    if (claim->downgrader != NULL)
        return failed(error, MORTISE_INVALID, "downgrade: another thread downgrades this lease");
    return MORTISE_OK;
}

static mortise_status downgrade(struct client *client, struct claim *claim, mortise_lease *lease,
                                mortise_error *error)
{
    struct locks *locks = &client->locks;
    mortise_error detail;
    detail.status = MORTISE_OK;
    /* cppcheck-suppress uninitvar ; it is filled if there is detail */
    struct release_wait wait = {.error = &detail};
    sleeper_init(&wait.sleeper, &client->pump);
    pthread_mutex_lock(&locks->lock);
    if (!slot_is(&claim->slot, lease)) {
        locks_unlock(locks, START_NOW);
        return failed(error, MORTISE_INVALID,
                      "the lease was released before, or its client closed");
    }
    claim_check_deadline_locked(claim, clock_now());
    mortise_status status =
        claim->state == CLAIM_HELD
            ? may_downgrade(claim, error)
            : failed(error, MORTISE_LOST, "downgrade: the lease was lost before");
    bool asks = status == MORTISE_OK && claim->mode == MORTISE_EXCLUSIVE;
    if (asks)
        lease_downgrade_locked(claim, &wait);
    locks_unlock(locks, START_NOW);
    if (!asks)
        return status;
    int64_t until = clock_after_ms(clock_now(), locks->settings.unreachable_timeout_ms);
    bool answered = pump_wait(&client->pump, &wait.sleeper, until);
    pthread_mutex_lock(&locks->lock);
    if (!answered && !sleeper_done(&wait.sleeper))
        claim_downgrade_detach_locked(claim);
    else if (wait.status == MORTISE_OK && slot_is(&claim->slot, lease))
        waitlist_freed_locked(claim->name); /* callers of this process may share it */
    locks_unlock(locks, START_NOW);
    if (wait.status != MORTISE_OK && detail.status == wait.status && error != NULL)
        *error = detail;
    else if (wait.status != MORTISE_OK)
        failed(error, wait.status, "downgrade: %s", mortise_status_text(wait.status));
    return wait.status;
}

mortise_status mortise_downgrade(mortise_lease *lease, mortise_error *error)
{
    struct claim *claim;
    struct client *client;
    mortise_status status = lease_enter(lease, &claim, &client, error);
    if (status != MORTISE_OK)
        return status;
    if ((client->capabilities & MORTISE_CAP_SHARED) == 0)
        status =
            failed(error, MORTISE_NOTSUP, "driver %s: no shared locks here", client->top->section);
    else
        status = downgrade(client, claim, lease, error);
    client_leave(client);
    return status;
}

bool mortise_on_state_runs(mortise_client *handle, mortise_lease *lease)
{
    struct client *client;
    if (client_enter(handle, &client, NULL) != MORTISE_OK)
        return true; /* for all that is known */
    bool runs = events_run_elsewhere(&client->events, lease);
    client_leave(client);
    return runs;
}

void mortise_release_scope(mortise_lease **lease)
{
    mortise_release(*lease, NULL);
}

/* The deadline of a lease as it stands; DEADLINE_PASSED if the handle is spent. */
static int64_t lease_deadline(mortise_lease *lease, int64_t now, bool *suspect)
{
    struct claim *claim = slab_find(&claim_slab, lease);
    if (claim == NULL || !slot_is(&claim->slot, lease) ||
        atomic_load_explicit(&claim->slot.epoch, memory_order_relaxed) !=
            atomic_load_explicit(&fork_epoch, memory_order_relaxed))
        return DEADLINE_PASSED;
    int64_t deadline = atomic_load_explicit(&claim->deadline_ns, memory_order_acquire);
    *suspect = atomic_load_explicit(&claim->suspect, memory_order_relaxed);
    if (now >= deadline && slot_is(&claim->slot, lease))
        deadline = claim_deadline(claim, now);
    return slot_is(&claim->slot, lease) ? deadline : DEADLINE_PASSED;
}

mortise_lease_state mortise_state(mortise_lease *lease)
{
    bool suspect = false;
    if (lease_deadline(lease, clock_now(), &suspect) == DEADLINE_PASSED)
        return MORTISE_STATE_LOST;
    return suspect ? MORTISE_STATE_SUSPECT : MORTISE_STATE_HELD;
}

int64_t mortise_remaining_ms(mortise_lease *lease)
{
    bool suspect;
    int64_t now = clock_now(), deadline = lease_deadline(lease, now, &suspect);
    return deadline == DEADLINE_PASSED ? 0 : (deadline - now) / NS_PER_MS;
}

uint64_t mortise_token(mortise_lease *lease)
{
    struct claim *claim = slab_find(&claim_slab, lease);
    if (claim == NULL || !slot_is(&claim->slot, lease) ||
        atomic_load_explicit(&claim->slot.epoch, memory_order_relaxed) !=
            atomic_load_explicit(&fork_epoch, memory_order_relaxed))
        return 0;
    uint64_t token = atomic_load_explicit(&claim->token, memory_order_relaxed);
    return slot_is(&claim->slot, lease) ? token : 0;
}

static size_t owner_text(const struct claim *claim, char *buffer, size_t size)
{
    if (claim->owner_len > 0)
        return (size_t)snprintf(buffer, size, "%.*s", (int)claim->owner_len, claim->owner);
    char hex[2 * MORTISE_GRANT_ID_SIZE + 1];
    for (size_t i = 0; i < MORTISE_GRANT_ID_SIZE; i++)
        snprintf(hex + 2 * i, 3, "%02x", claim->id.bytes[i]);
    return (size_t)snprintf(buffer, size, "%s", hex);
}

size_t mortise_owner(mortise_lease *lease, char *buffer, size_t size)
{
    struct claim *claim;
    struct client *client;
    size_t length = 0;
    if (size > 0)
        buffer[0] = '\0';
    if (lease_enter(lease, &claim, &client, NULL) != MORTISE_OK)
        return 0;
    pthread_mutex_lock(&client->locks.lock);
    if (slot_is(&claim->slot, lease))
        length = owner_text(claim, buffer, size);
    locks_unlock(&client->locks, START_NOW);
    client_leave(client);
    return length;
}
