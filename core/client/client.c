/* client.c - the state of a client, its references, the calls in flight on it, and the public functions about it. See
 * open.c and close.c for its beginning and its end. */
#include "client/client.h"

#include "base/futex.h"
#include "lock/waitlist.h"

#include <stdlib.h>
#include <string.h>

SLAB_DEFINE(client_slab, struct client);

/* ---- calls in flight ---- */

/* No call is a cancellation point: a thread that is canceled inside a call would keep its mutexes forever. */
static _Thread_local unsigned calls;
static _Thread_local int cancel_state;

void client_begin_call(void)
{
    if (calls++ == 0)
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
}

void client_end_call(void)
{
    if (--calls == 0)
        pthread_setcancelstate(cancel_state, NULL);
}

/* Wakes a close that waits. The client may be freed meanwhile, but its memory is never returned to the system. */
static uint32_t take_one_off(struct client *client, _Atomic uint32_t *count)
{
    uint32_t left = atomic_fetch_sub(count, 1) - 1;
    if (atomic_load(&client->awaited) > 0)
        futex_wake_all(count);
    return left;
}

void client_count_out(struct client *client)
{
    take_one_off(client, &client->users);
}

mortise_status client_enter(mortise_client *handle, struct client **client, mortise_error *error)
{
    *client = NULL;
    if (handle == NULL)
        return failed(error, MORTISE_INVALID, "the client is NULL");
    struct client *found = slab_find(&client_slab, handle);
    if (found == NULL)
        return failed(error, MORTISE_INVALID, "not a client: %p", (void *)handle);
    atomic_fetch_add(&found->users, 1);
    /* sequentially consistent, like the close: either the close sees the count, or this call sees the spent handle */
    if (atomic_load(&found->slot.generation) != (uint32_t)((uintptr_t)handle >> 32) ||
        !slot_is(&found->slot, handle)) {
        client_count_out(found);
        return failed(error, MORTISE_CLOSED, "the client was closed: open another one");
    }
    if (atomic_load(&found->slot.epoch) != atomic_load(&fork_epoch)) {
        client_count_out(found);
        return failed(error, MORTISE_FORKED,
                      "the client was opened by the parent process: open one in the child");
    }
    *client = found;
    client_begin_call();
    return MORTISE_OK;
}

void client_leave(struct client *client)
{
    client_end_call();
    client_count_out(client);
}

/* The handle of a client that is being closed is spent, or is about to be: the generation is the next one. */
bool client_is_closing(struct client *client, const mortise_client *handle)
{
    uint32_t state = atomic_load(&client->state);
    uint32_t age = atomic_load(&client->slot.generation) - (uint32_t)((uintptr_t)handle >> 32);
    return state != CLIENT_ENDED && state != CLIENT_OPEN && age <= 1 &&
           atomic_load(&client->slot.epoch) == atomic_load(&fork_epoch);
}

bool client_enter_closing(mortise_client *handle, struct client **client)
{
    struct client *found = handle == NULL ? NULL : slab_find(&client_slab, handle);
    if (found == NULL)
        return false;
    /* before the look at the state: client_wait_for_calls() does it the other way round */
    atomic_fetch_add(&found->users, 1);
    if (!client_is_closing(found, handle)) {
        client_count_out(found);
        return false;
    }
    *client = found;
    client_begin_call();
    return true;
}

bool client_wait_for(struct client *client, _Atomic uint32_t *count, uint32_t most,
                     int64_t until_ns)
{
    uint32_t seen;
    atomic_fetch_add(&client->awaited, 1);
    while ((seen = atomic_load(count)) > most)
        if (!futex_sleep_while(count, seen, until_ns))
            break;
    atomic_fetch_sub(&client->awaited, 1);
    return seen <= most;
}

/* ---- state and references ---- */

bool client_move(struct client *client, uint32_t from, uint32_t to)
{
    if (!atomic_compare_exchange_strong(&client->state, &from, to))
        return false;
    futex_wake_all(&client->state);
    return true;
}

void client_keep(struct client *client)
{
    atomic_fetch_add(&client->references, 1);
}

static void free_client(struct client *client)
{
    events_destroy(&client->events);
    resolve_end(&client->pump);
    pump_destroy(&client->pump);
    config_values_free(client->core_values, CORE_OPTION_COUNT);
    config_free(client->config);
    waitlists_free(&client->locks);
    locks_destroy(&client->locks);
    slab_give(&client_slab, &client->slot);
}

void client_drop(struct client *client)
{
    if (take_one_off(client, &client->references) == 0)
        free_client(client);
}

void client_wait_for_calls(struct client *client)
{
    if (client->stack_closed) /* else a call is stuck, and the reference of the modules stays */
        client_wait_for(client, &client->users, 0, MORTISE_NEVER);
}

void client_leave_callbacks(struct client *client)
{
    if (events_over(&client->events) && client_move(client, CLIENT_LEAVING, CLIENT_ENDED))
        client_wait_for_calls(client);
    client_drop(client);
}

/* ---- names ---- */

mortise_status client_name(const struct client *client, const char *name, bool may_be_empty,
                           char *full, size_t *length, mortise_error *error)
{
    size_t prefix = client->locks.settings.namespace_len;
    size_t own = name == NULL ? 0 : strnlen(name, MORTISE_NAME_MAX + 1);
    if (own == 0 && !may_be_empty)
        return failed(error, MORTISE_INVALID, "the name of a lock must not be empty");
    if (prefix + own > MORTISE_NAME_MAX)
        return failed(error, MORTISE_INVALID,
                      "the name of a lock has at most %d bytes, with its namespace (%zu)",
                      MORTISE_NAME_MAX, prefix);
    memcpy(full, client->locks.settings.namespace_, prefix);
    if (own > 0)
        memcpy(full + prefix, name, own);
    full[prefix + own] = '\0';
    *length = prefix + own;
    return MORTISE_OK;
}

/* ---- asking about a client ---- */

uint32_t mortise_capabilities(mortise_client *handle)
{
    struct client *client;
    if (client_enter(handle, &client, NULL) != MORTISE_OK)
        return 0;
    uint32_t capabilities = client->capabilities;
    client_leave(client);
    return capabilities;
}

int64_t mortise_default_wait_ms(mortise_client *handle)
{
    struct client *client;
    if (client_enter(handle, &client, NULL) != MORTISE_OK)
        return MORTISE_WAIT_DEFAULT;
    int64_t wait_ms = client->locks.settings.wait_ms;
    client_leave(client);
    return wait_ms;
}

const char *mortise_config_source(mortise_client *handle)
{
    struct client *client;
    if (client_enter(handle, &client, NULL) != MORTISE_OK)
        return NULL;
    const char *source = config_source(client->config);
    client_leave(client);
    return source;
}

mortise_status mortise_stats_get(mortise_client *handle, mortise_stats *stats)
{
    struct client *client;
    if (stats == NULL || stats->size < sizeof(stats->size))
        return MORTISE_INVALID;
    mortise_status status = client_enter(handle, &client, NULL);
    if (status != MORTISE_OK)
        return status;
    size_t size = stats->size < sizeof(*stats) ? stats->size : sizeof(*stats);
    pthread_mutex_lock(&client->locks.lock);
    mortise_stats now = client->locks.stats;
    pthread_mutex_lock(&client->pump.lock);
    now.requests = client->pump.started;
    pthread_mutex_unlock(&client->pump.lock);
    locks_unlock(&client->locks, START_NOW);
    now.size = stats->size;
    memcpy(stats, &now, size);
    client_leave(client);
    return MORTISE_OK;
}
