/* client.c - the state of a client, its references, the calls in flight on it, and what can be asked about it. open.c and
 * close.c: how it begins and ends. */
#include "client/client.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct slab client_slab = {.size = sizeof(struct client), .lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- calls in flight ---- */

/* No call is a cancellation point: a thread that is canceled inside one would keep its locks for ever. */
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

/* Wakes a close that waits. The client may be freed meanwhile: its memory is never given back to the system. */
static uint32_t take_one_off(struct client *client, _Atomic uint32_t *count)
{
    uint32_t left = atomic_fetch_sub(count, 1) - 1;
    if (atomic_load(&client->awaited) > 0)
        syscall(SYS_futex, count, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
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
        return failed(error, MORTISE_CLOSED, "the client was closed");
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

void client_unlock(struct client *client)
{
    struct wake_list wakes;
    wakes.count = client->wakes.count;
    wakes.leader = client->wakes.leader;
    memcpy(wakes.words, client->wakes.words, wakes.count * sizeof(wakes.words[0]));
    client->wakes.count = 0;
    client->wakes.leader = false;
    pthread_mutex_unlock(&client->lock);
    if (wakes.count > 0 || wakes.leader)
        wake_list_flush(&client->pump, &wakes);
}

bool client_sleep_while(_Atomic uint32_t *word, uint32_t value, int64_t until_ns)
{
    int64_t left = until_ns - clock_now();
    if (left <= 0)
        return false;
    struct timespec timeout = {(time_t)(left / NS_PER_S), (long)(left % NS_PER_S)};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &timeout, NULL, 0);
    return true;
}

bool client_wait_for(struct client *client, _Atomic uint32_t *count, uint32_t most,
                     int64_t until_ns)
{
    uint32_t seen;
    atomic_fetch_add(&client->awaited, 1);
    while ((seen = atomic_load(count)) > most)
        if (!client_sleep_while(count, seen, until_ns))
            break;
    atomic_fetch_sub(&client->awaited, 1);
    return seen <= most;
}

/* ---- state and references ---- */

bool client_move(struct client *client, uint32_t from, uint32_t to)
{
    if (!atomic_compare_exchange_strong(&client->state, &from, to))
        return false;
    syscall(SYS_futex, &client->state, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    return true;
}

static void free_tasks(struct task_list *list)
{
    while (list->first != NULL) {
        struct task *task = list->first;
        task_remove(list, task);
        free(task);
    }
}

/* Nobody uses the client any more: its last reference is gone. */
static void free_client(struct client *client)
{
    while (client->free_contests != NULL) {
        struct contest *contest = client->free_contests;
        client->free_contests = contest->next_free;
        free(contest->trouble);
        free(contest);
    }
    free_tasks(&client->free_asks);
    free_tasks(&client->free_releases);
    free(client->timers.timers);
    events_destroy(&client->events);
    resolve_end(&client->pump);
    pump_destroy(&client->pump);
    config_values_free(client->core_values, CORE_OPTION_COUNT);
    config_free(client->config);
    pthread_mutex_destroy(&client->lock);
    slab_give(&client_slab, &client->slot);
}

void client_keep(struct client *client)
{
    atomic_fetch_add(&client->references, 1);
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

void client_began_locked(struct client *client)
{
    client->outstanding++;
}

void client_ended_locked(struct client *client)
{
    if (--client->outstanding == 0 && client->drain != NULL) {
        struct sleeper *drain = client->drain;
        client->drain = NULL;
        sleeper_wake_later(drain, &client->wakes);
    }
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
    pthread_mutex_lock(&client->lock);
    mortise_stats now = client->stats;
    pthread_mutex_lock(&client->pump.lock);
    now.requests = client->pump.started;
    pthread_mutex_unlock(&client->pump.lock);
    client_unlock(client);
    now.size = stats->size;
    memcpy(stats, &now, size);
    client_leave(client);
    return MORTISE_OK;
}
