/* lease.c - the public calls on a lease: release, extend, downgrade, and those that need no request. */
#include "client/calls.h"

#include <stdio.h>
#include <stdlib.h>

/* Finds the claim of a live lease, and enters its client. */
static mortise_status lease_enter(mortise_lease *lease, struct claim **claim,
                                  struct client **client, mortise_error *error)
{
    struct claim *found = slab_find(&claim_slab, lease);
    if (found == NULL)
        return failed(error, MORTISE_INVALID, "not a lease: %p", (void *)lease);
    mortise_client *handle = atomic_load_explicit(&found->client, memory_order_relaxed);
    if (!slot_is(&found->slot, lease))
        return failed(error, MORTISE_INVALID,
                      "the lease was released before, or its client closed: use it no more");
    *claim = found;
    return client_enter(handle, client, error);
}

static int64_t release_until_ns(const struct client *client)
{
    return clock_after_ms(clock_now(), client->locks.settings.unreachable_timeout_ms);
}

/* Waits for the answer to a release. If none comes in time, the release goes on in the background. */
static void await_release(const struct release_call *call, struct release_wait *wait)
{
    struct client *client = call->client;
    if (sleeper_done(&wait->sleeper)) /* answered at once: saves reading the clock */
        return;
    int64_t until_ns = call->several ? call->until_ns : release_until_ns(client);
    /* waiting for the lease of another client may have used up the time, and no thread read this client's answers
     * meanwhile */
    if (call->several && clock_now() >= until_ns)
        pump_turn(&client->pump);
    if (pump_wait(&client->pump, &wait->sleeper, until_ns))
        return;
    pthread_mutex_lock(&client->locks.lock);
    if (!sleeper_done(&wait->sleeper)) /* else the claim may be freed and in use again */
        claim_detach_locked(call->claim);
    locks_unlock(&client->locks, START_NOW);
}

static void remember_name(struct called *called, const struct claim *claim, size_t prefix)
{
    called->length = claim->name->length - prefix;
    memcpy(called->text, claim->name->text + prefix, called->length);
}

static void explain_release(const struct called *called, mortise_status status, bool taken,
                            const mortise_error *detail, mortise_error *error)
{
    char name[QUOTED_SIZE];
    if (error == NULL)
        return;
    quote_name(called->text, called->length, name, sizeof(name));
    if (status == MORTISE_LOST)
        failed(error, status,
               "release %s: the lease was lost before: another holder may have overlapped", name);
    else if (taken) /* the message of a former failure means nothing any more */
        failed(error, status,
               "release %s: a reply was lost, and a later try found the lease lost, or another "
               "holder, which may have overlapped",
               name);
    else if (detail->status == status)
        *error = *detail;
    else
        failed(error, status, "release %s: %s; it is repeated until it is sure", name,
               mortise_status_text(status));
}

mortise_status call_begin_release(struct release_call *call, mortise_lease *lease)
{
    struct claim *claim;
    mortise_status status = lease_enter(lease, &claim, &call->client, call->error);
    if (status != MORTISE_OK)
        return status;
    struct client *client = call->client;
    struct locks *locks = &client->locks;
    call->claim = claim;
    call->detail.status = MORTISE_OK;
    call->wait = (struct release_wait){.error = call->error == NULL ? NULL : &call->detail};
    sleeper_init(&call->wait.sleeper, &client->pump);
    pthread_mutex_lock(&locks->lock);
    if (!slot_is(&claim->slot, lease)) {
        locks_unlock(locks, START_NOW);
        client_leave(client);
        return failed(call->error, MORTISE_INVALID,
                      "the lease was released before, or its client closed: use it no more");
    }
    bool calls_back = claim->loss.on_state != NULL;
    struct claim *ending; /* the lease's own claim, or the one that it shared with others */
    if (call->error != NULL)
        remember_name(&call->called, claim, locks->settings.namespace_len);
    call->status = lease_release_locked(claim, call->waits ? &call->wait : NULL, &ending);
    call->waits &= ending != NULL;
    call->claim = ending;
    locks_unlock(locks, call->waits && !call->several ? START_NOW : START_SOON);
    if (calls_back)
        events_drain(&client->events, lease);
    if (call->several)
        call->until_ns = release_until_ns(client);
    return MORTISE_OK;
}

mortise_status call_end_release(struct release_call *call)
{
    if (call->waits) {
        await_release(call, &call->wait);
        call->status = call->wait.status;
    }
    if (call->status != MORTISE_OK)
        explain_release(&call->called, call->status, call->wait.taken, &call->detail, call->error);
    client_leave(call->client);
    return call->status;
}

static mortise_status release_lease(mortise_lease *lease, bool waits, mortise_error *error)
{
    struct release_call call;
    if (lease == NULL)
        return MORTISE_OK;
    call.waits = waits;
    call.several = false;
    call.error = error;
    mortise_status status = call_begin_release(&call, lease);
    return status == MORTISE_OK ? call_end_release(&call) : status;
}

mortise_status mortise_release(mortise_lease *lease, mortise_error *error)
{
    return release_lease(lease, true, error);
}

mortise_status mortise_release_nowait(mortise_lease *lease, mortise_error *error)
{
    return release_lease(lease, false, error);
}

/* ---- async ---- */

/* A release that reports its outcome by a callback. Until the outcome is known the claim refers to it, then the queue of
 * callbacks. */
struct async_release {
    struct release_wait wait; /* first */
    struct notice notice;
    struct events *events;
    struct called called;
    mortise_error detail, error;
};

/* client lock held */
static void async_released(struct release_wait *wait)
{
    struct async_release *release = (struct async_release *)(void *)wait;
    release->notice.status = wait->status;
    if (wait->status != MORTISE_OK) {
        explain_release(&release->called, wait->status, wait->taken, &release->detail,
                        &release->error);
        release->notice.error = &release->error;
    }
    events_push(release->events, &release->notice);
}

static struct async_release *async_new(struct client *client, mortise_release_callback callback,
                                       void *user_data)
{
    struct async_release *release = calloc(1, sizeof(*release));
    if (release == NULL || !events_ready(&client->events)) {
        free(release);
        return NULL;
    }
    int64_t patience_ms = client->locks.settings.unreachable_timeout_ms;
    release->wait = (struct release_wait){.error = &release->detail,
                                          .told = async_released,
                                          .until_ns = clock_after_ms(clock_now(), patience_ms)};
    release->notice =
        (struct notice){.on_released = callback, .user_data = user_data, .owned = release};
    release->events = &client->events;
    return release;
}

/* OK: `release` is not ours any more, and may be freed already. */
static mortise_status end_async(struct claim *claim, struct client *client, mortise_lease *lease,
                                struct async_release *release, mortise_error *error)
{
    struct locks *locks = &client->locks;
    struct claim *ending;
    pthread_mutex_lock(&locks->lock);
    if (!slot_is(&claim->slot, lease)) {
        locks_unlock(locks, START_NOW);
        return failed(error, MORTISE_INVALID,
                      "the lease was released before, or its client closed: use it no more");
    }
    bool calls_back = claim->loss.on_state != NULL;
    remember_name(&release->called, claim, locks->settings.namespace_len);
    mortise_status status = lease_release_locked(claim, &release->wait, &ending);
    if (ending == NULL) {
        release->wait.status = status;
        async_released(&release->wait);
    }
    locks_unlock(locks, START_SOON);
    if (calls_back)
        events_drain(&client->events, lease);
    return MORTISE_OK;
}

mortise_status mortise_release_async(mortise_lease *lease, mortise_release_callback callback,
                                     void *user_data, mortise_error *error)
{
    struct claim *claim;
    struct client *client;
    if (callback == NULL)
        return failed(error, MORTISE_INVALID, "mortise_release_async: no callback");
    mortise_status status = lease_enter(lease, &claim, &client, error);
    if (status != MORTISE_OK)
        return status;
    struct async_release *release = async_new(client, callback, user_data);
    if (release == NULL)
        status = failed(error, MORTISE_NOMEM, "release: out of memory or threads");
    else if ((status = end_async(claim, client, lease, release, error)) != MORTISE_OK)
        free(release);
    client_leave(client);
    return status;
}

/* ---- changes ---- */

/* Waits for the answer to a downgrade or an extension. */
static void await_answer(struct client *client, struct claim *claim, struct release_wait *wait,
                         void (*detach_locked)(struct claim *claim))
{
    struct locks *locks = &client->locks;
    int64_t until = clock_after_ms(clock_now(), locks->settings.unreachable_timeout_ms);
    if (pump_wait(&client->pump, &wait->sleeper, until))
        return;
    pthread_mutex_lock(&locks->lock);
    if (!sleeper_done(&wait->sleeper))
        detach_locked(claim);
    locks_unlock(locks, START_NOW);
}

static mortise_status answered(const char *verb, const struct release_wait *wait,
                               mortise_error *error)
{
    if (wait->status != MORTISE_OK && wait->error->status == wait->status && error != NULL)
        *error = *wait->error;
    else if (wait->status != MORTISE_OK)
        failed(error, wait->status, "%s: %s", verb, mortise_status_text(wait->status));
    return wait->status;
}

/* Fails if the lease is not held any more, or was released. client lock held */
static mortise_status still_held_locked(struct claim *claim, mortise_lease *lease, const char *verb,
                                        mortise_error *error)
{
    if (!slot_is(&claim->slot, lease))
        return failed(error, MORTISE_INVALID,
                      "the lease was released before, or its client closed: use it no more");
    claim_check_deadline_locked(claim, clock_now());
    if (claim->state != CLAIM_HELD && claim->state != CLAIM_JOINED)
        return failed(error, MORTISE_LOST, "%s: the lease was lost before", verb);
    return MORTISE_OK;
}

static mortise_status may_extend(const struct claim *claim, mortise_error *error)
{
    if (claim->renew && !claim->ends)
        return failed(error, MORTISE_INVALID, "extend: the library renews this lease by itself");
    if (claim->extender != NULL)
        return failed(error, MORTISE_INVALID, "extend: another thread extends this lease");
    return MORTISE_OK;
}

static mortise_status extend(struct client *client, struct claim *claim, mortise_lease *lease,
                             int64_t ttl_ms, mortise_error *error)
{
    struct locks *locks = &client->locks;
    mortise_error detail;
    detail.status = MORTISE_OK;
    /* cppcheck-suppress uninitvar ; it is filled if there is detail */
    struct release_wait wait = {.error = &detail};
    sleeper_init(&wait.sleeper, &client->pump);
    pthread_mutex_lock(&locks->lock);
    mortise_status status = still_held_locked(claim, lease, "extend", error);
    if (status == MORTISE_OK)
        status = may_extend(claim, error);
    if (status == MORTISE_OK)
        claim_extend_locked(claim, ttl_ms == 0 ? claim->first_ttl_ms : ttl_ms, &wait);
    locks_unlock(locks, START_NOW);
    if (status != MORTISE_OK)
        return status;
    await_answer(client, claim, &wait, claim_extend_detach_locked);
    return answered("extend", &wait, error);
}

mortise_status mortise_extend(mortise_lease *lease, int64_t ttl_ms, mortise_error *error)
{
    struct claim *claim;
    struct client *client;
    if (ttl_ms != 0 && (ttl_ms < MORTISE_TTL_MIN_MS || ttl_ms > MORTISE_TTL_MAX_MS))
        return failed(error, MORTISE_INVALID, "extend: ttl_ms %lld is not 0 and not in %d to %d",
                      (long long)ttl_ms, MORTISE_TTL_MIN_MS, MORTISE_TTL_MAX_MS);
    mortise_status status = lease_enter(lease, &claim, &client, error);
    if (status != MORTISE_OK)
        return status;
    status = extend(client, claim, lease, ttl_ms, error);
    client_leave(client);
    return status;
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
    mortise_status status = still_held_locked(claim, lease, "downgrade", error);
    if (status == MORTISE_OK)
        status = may_downgrade(claim, error);
    bool asks = status == MORTISE_OK && claim->mode == MORTISE_EXCLUSIVE;
    if (asks)
        lease_downgrade_locked(claim, &wait);
    locks_unlock(locks, START_NOW);
    if (!asks)
        return status;
    await_answer(client, claim, &wait, claim_downgrade_detach_locked);
    pthread_mutex_lock(&locks->lock);
    if (wait.status == MORTISE_OK && slot_is(&claim->slot, lease))
        waitlist_freed_locked(claim->name); /* callers of this process may share it */
    locks_unlock(locks, START_NOW);
    return answered("downgrade", &wait, error);
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
        return true; /* it is unknown */
    bool runs = events_run_elsewhere(&client->events, lease);
    client_leave(client);
    return runs;
}

void mortise_release_scope(mortise_lease **lease)
{
    mortise_release(*lease, NULL);
}

/* Returns the current deadline of a lease; DEADLINE_PASSED if the handle is spent. */
static int64_t lease_deadline(mortise_lease *lease, int64_t now, bool *suspect)
{
    struct claim *claim = slab_find(&claim_slab, lease);
    if (claim == NULL || !slot_is(&claim->slot, lease) ||
        atomic_load_explicit(&claim->slot.epoch, memory_order_relaxed) !=
            atomic_load_explicit(&fork_epoch, memory_order_relaxed))
        return DEADLINE_PASSED;
    int64_t deadline = atomic_load_explicit(&claim->deadline_ns, memory_order_acquire);
    *suspect = atomic_load_explicit(&claim->suspect, memory_order_acquire);
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
    uint64_t token = atomic_load_explicit(&claim->token, memory_order_acquire);
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

/* Writes the text that `text` returns for a live lease. */
static size_t write_text(mortise_lease *lease, char *buffer, size_t size,
                         size_t (*text)(const struct claim *claim, char *buffer, size_t size))
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
        length = text(claim, buffer, size);
    locks_unlock(&client->locks, START_NOW);
    client_leave(client);
    return length;
}

size_t mortise_owner(mortise_lease *lease, char *buffer, size_t size)
{
    return write_text(lease, buffer, size, owner_text);
}

static size_t name_text(const struct claim *claim, char *buffer, size_t size)
{
    size_t prefix = claim->locks->settings.namespace_len;
    return (size_t)snprintf(buffer, size, "%s", claim->name->text + prefix);
}

size_t mortise_name(mortise_lease *lease, char *buffer, size_t size)
{
    return write_text(lease, buffer, size, name_text);
}
