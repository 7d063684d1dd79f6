/* lease.c - the public calls on a lease: its end, and what can be asked of it without a word to anybody. */
#include "client/core.h"

#include <stdio.h>

/* The grant of a live lease, with its client entered. */
static mortise_status lease_enter(mortise_lease *lease, struct grant **grant,
                                  struct client **client, mortise_error *error)
{
    struct grant *found = slab_find(&grant_slab, lease);
    if (found == NULL)
        return failed(error, MORTISE_INVALID, "not a lease: %p", (void *)lease);
    mortise_client *handle = atomic_load_explicit(&found->client_handle, memory_order_relaxed);
    if (!slot_is(&found->slot, lease))
        return failed(error, MORTISE_INVALID,
                      "the lease was released before, or its client closed");
    *grant = found;
    return client_enter(handle, client, error);
}

/* Waits for the answer to a release; it goes on in the background if none comes. */
static void await_release(struct client *client, struct release *release, struct sleeper *sleeper)
{
    if (sleeper_done(sleeper)) /* it was answered at once: not worth a look at the clock */
        return;
    int64_t until = clock_after_ms(clock_now(), client->settings.unreachable_timeout_ms);
    if (pump_wait(&client->pump, sleeper, until))
        return;
    pthread_mutex_lock(&client->lock);
    if (!sleeper_done(sleeper))
        release_detach_locked(release);
    client_unlock(client);
}

/* What a lease was called, for a message: it may be gone by then. Quoted only if there is one. */
struct called {
    char text[MORTISE_NAME_MAX];
    size_t length;
};

static void remember_name(struct called *called, const struct grant *grant, size_t prefix)
{
    called->length = grant->entry->name_len - prefix;
    memcpy(called->text, grant->entry->name + prefix, called->length);
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
    else if (status == MORTISE_NOMEM)
        failed(error, status, "release %s: out of memory; it ends with its ttl", name);
    else
        failed(error, status, "release %s: %s; it is repeated until it is sure", name,
               mortise_status_text(status));
}

/* sleeper: of the caller that waits for the answer, or NULL. */
static mortise_status end_lease(struct grant *grant, struct client *client, mortise_lease *lease,
                                struct sleeper *sleeper, mortise_error *error)
{
    struct release *release = NULL;
    struct task_list starts = {NULL, NULL};
    struct called called;
    mortise_error detail;
    detail.status = MORTISE_OK;
    pthread_mutex_lock(&client->lock);
    if (!slot_is(&grant->slot, lease)) {
        client_unlock(client);
        return failed(error, MORTISE_INVALID,
                      "the lease was released before, or its client closed");
    }
    bool calls_back = grant->change.on_state != NULL;
    if (error != NULL)
        remember_name(&called, grant, client->settings.namespace_len);
    mortise_status status = grant_release_locked(grant, &release, &starts);
    bool waits = release != NULL && sleeper != NULL;
    if (waits)
        release_attend_locked(release, sleeper, &status, error == NULL ? NULL : &detail);
    client_unlock(client);
    if (waits)
        pump_start(&client->pump, &starts);
    else
        pump_start_soon(&client->pump, &starts);
    if (calls_back)
        events_drain(&client->events, lease);
    if (waits)
        await_release(client, release, sleeper);
    if (status != MORTISE_OK)
        explain_release(&called, status, &detail, error);
    return status;
}

static mortise_status release_lease(mortise_lease *lease, bool wait, mortise_error *error)
{
    struct grant *grant;
    struct client *client;
    struct sleeper sleeper;
    if (lease == NULL)
        return MORTISE_OK;
    mortise_status status = lease_enter(lease, &grant, &client, error);
    if (status != MORTISE_OK)
        return status;
    sleeper_init(&sleeper, &client->pump);
    status = end_lease(grant, client, lease, wait ? &sleeper : NULL, error);
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
    struct grant *grant = slab_find(&grant_slab, lease);
    if (grant == NULL || !slot_is(&grant->slot, lease) ||
        atomic_load_explicit(&grant->slot.epoch, memory_order_relaxed) !=
            atomic_load_explicit(&fork_epoch, memory_order_relaxed))
        return DEADLINE_PASSED;
    int64_t deadline = atomic_load_explicit(&grant->deadline_ns, memory_order_acquire);
    *suspect = atomic_load_explicit(&grant->suspect, memory_order_relaxed);
    if (now >= deadline && slot_is(&grant->slot, lease))
        deadline = grant_deadline(grant, now);
    return slot_is(&grant->slot, lease) ? deadline : DEADLINE_PASSED;
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
    struct grant *grant = slab_find(&grant_slab, lease);
    if (grant == NULL || !slot_is(&grant->slot, lease) ||
        atomic_load_explicit(&grant->slot.epoch, memory_order_relaxed) !=
            atomic_load_explicit(&fork_epoch, memory_order_relaxed))
        return 0;
    uint64_t token = atomic_load_explicit(&grant->token, memory_order_relaxed);
    return slot_is(&grant->slot, lease) ? token : 0;
}

static size_t owner_text(const struct grant *grant, char *buffer, size_t size)
{
    if (grant->owner_len > 0)
        return (size_t)snprintf(buffer, size, "%.*s", (int)grant->owner_len, grant->owner);
    char hex[2 * MORTISE_GRANT_ID_SIZE + 1];
    for (size_t i = 0; i < MORTISE_GRANT_ID_SIZE; i++)
        snprintf(hex + 2 * i, 3, "%02x", grant->id.bytes[i]);
    return (size_t)snprintf(buffer, size, "%s", hex);
}

size_t mortise_owner(mortise_lease *lease, char *buffer, size_t size)
{
    struct grant *grant;
    struct client *client;
    size_t length = 0;
    if (size > 0)
        buffer[0] = '\0';
    if (lease_enter(lease, &grant, &client, NULL) != MORTISE_OK)
        return 0;
    pthread_mutex_lock(&client->lock);
    if (slot_is(&grant->slot, lease))
        length = owner_text(grant, buffer, size);
    client_unlock(client);
    client_leave(client);
    return length;
}
