/* acquire.c - the public calls on locks and leases: arguments checked, a waiter made, the outcome told. */
#include "client/core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

/* The caller's options in the library's layout: fields that an older program does not have are zero. */
static mortise_status read_options(struct client *client, const mortise_options *given,
                                   mortise_options *options, mortise_error *error)
{
    memset(options, 0, sizeof(*options));
    if (given == NULL)
        options->wait_ms = MORTISE_WAIT_DEFAULT;
    else if (given->size < offsetof(mortise_options, user_data) + sizeof(void *) ||
             given->size > 4096)
        return failed(error, MORTISE_INVALID, "options: size %zu; use MORTISE_OPTIONS()",
                      given->size);
    else
        memcpy(options, given, given->size < sizeof(*options) ? given->size : sizeof(*options));
    if (options->wait_ms == MORTISE_WAIT_DEFAULT)
        options->wait_ms = client->settings.wait_ms;
    if (options->ttl_ms == 0)
        options->ttl_ms = client->settings.ttl_ms;
    if (options->wait_ms < MORTISE_WAIT_FOREVER || options->wait_ms > MORTISE_WAIT_MAX_MS)
        return failed(error, MORTISE_INVALID, "options: wait_ms %lld is out of range",
                      (long long)options->wait_ms);
    if (options->ttl_ms < MORTISE_TTL_MIN_MS || options->ttl_ms > MORTISE_TTL_MAX_MS)
        return failed(error, MORTISE_INVALID, "options: ttl_ms %lld is not in %d to %d",
                      (long long)options->ttl_ms, MORTISE_TTL_MIN_MS, MORTISE_TTL_MAX_MS);
    if (options->max_hold_ms < 0)
        return failed(error, MORTISE_INVALID, "options: max_hold_ms %lld is negative",
                      (long long)options->max_hold_ms);
    return MORTISE_OK;
}

/* A number of this thread's own in this process, never used again. */
static uint64_t thread_number(void)
{
    static _Atomic uint64_t last;
    static _Thread_local uint64_t number;
    if (number == 0)
        number = atomic_fetch_add(&last, 1) + 1;
    return number;
}

/* "<client id>:<thread number>" */
#define THREAD_OWNER_SIZE 64

static mortise_status read_owner(struct client *client, const mortise_options *options,
                                 char *thread_owner, struct waiter *waiter, mortise_error *error)
{
    waiter->owner = options->owner;
    if (options->owner == NULL)
        return MORTISE_OK;
    if ((client->capabilities & MORTISE_CAP_REENTRANT) == 0)
        return failed(error, MORTISE_NOTSUP, "driver %s: leases cannot share a lock by owner here",
                      client->top->section);
    if (strcmp(options->owner, MORTISE_OWNER_THREAD) == 0) {
        snprintf(thread_owner, THREAD_OWNER_SIZE, "%s:%llu", client->id,
                 (unsigned long long)thread_number());
        waiter->owner = thread_owner;
    }
    waiter->owner_len = strnlen(waiter->owner, MORTISE_OWNER_MAX + 1);
    if (waiter->owner_len == 0 || waiter->owner_len > MORTISE_OWNER_MAX)
        return failed(error, MORTISE_INVALID, "options: an owner has 1 to %d bytes",
                      MORTISE_OWNER_MAX);
    return MORTISE_OK;
}

mortise_status api_name(struct client *client, const char *name, bool may_be_empty, char *full,
                        size_t *length, mortise_error *error)
{
    size_t prefix = client->settings.namespace_len;
    size_t own = name == NULL ? 0 : strnlen(name, MORTISE_NAME_MAX + 1);
    if (own == 0 && !may_be_empty)
        return failed(error, MORTISE_INVALID, "the name of a lock must not be empty");
    if (prefix + own > MORTISE_NAME_MAX)
        return failed(error, MORTISE_INVALID,
                      "the name of a lock has at most %d bytes, with its namespace (%zu)",
                      MORTISE_NAME_MAX, prefix);
    memcpy(full, client->settings.namespace_, prefix);
    if (own > 0)
        memcpy(full + prefix, name, own);
    full[prefix + own] = '\0';
    *length = prefix + own;
    return MORTISE_OK;
}

struct full_name {
    char text[MORTISE_NAME_MAX + 1];
    size_t length;
};

static void fill_waiter(struct waiter *waiter, const mortise_options *options)
{
    waiter->asked_ns = clock_now();
    waiter->ttl_ms = options->ttl_ms;
    waiter->max_hold_ms = options->max_hold_ms;
    waiter->no_renew = options->no_renew;
    waiter->try_once = options->wait_ms == 0;
    waiter->on_state = options->on_state;
    waiter->user_data = options->user_data;
    waiter->until_ns = options->wait_ms == MORTISE_WAIT_FOREVER
                           ? MORTISE_NEVER
                           : clock_after_ms(waiter->asked_ns, options->wait_ms);
}

/* ---- acquire ---- */

/* The threads must not be missing later. */
static mortise_status prepare(struct client *client, struct waiter *waiter, mortise_error *error)
{
    bool calls_back = waiter->async || waiter->on_state != NULL;
    if (!watchdog_ready(client) || (calls_back && !events_ready(&client->events)))
        return failed(error, MORTISE_NOMEM, "a thread could not be started");
    return MORTISE_OK;
}

static mortise_status busy_locally(struct waiter *waiter, const struct full_name *name,
                                   const struct client *client, const struct contest *queue)
{
    char quoted[QUOTED_SIZE];
    size_t prefix = client->settings.namespace_len;
    return failed(waiter->error, MORTISE_BUSY, "%s is wanted by %u callers of this process already",
                  quote_name(name->text + prefix, name->length - prefix, quoted, sizeof(quoted)),
                  queue->count);
}

/* Puts the waiter into the contest for the name. client lock held */
static mortise_status join_locked(struct client *client, const struct full_name *name,
                                  struct waiter *waiter, struct task_list *starts)
{
    if (client->closing)
        return failed(waiter->error, MORTISE_CLOSED, "the client was closed");
    waiter->caller = ++client->callers;
    waiter->grant = grant_new_locked(client, waiter->owner, waiter->owner_len);
    struct entry *entry = entry_make_locked(client, name->text, name->length);
    mortise_status status = MORTISE_NOMEM;
    if (waiter->grant != NULL && entry != NULL) {
        observe_locked(client, MORTISE_EVENT_ASKED, entry, NULL, waiter, MORTISE_OK);
        bool alone = waiter->try_once || waiter->owner_len > 0;
        client->stats.waiting++;
        if (waiter->try_once && waiter->owner_len == 0 && entry->queue != NULL)
            status = busy_locally(waiter, name, client, entry->queue);
        else if (contest_join_locked(client, entry, alone, waiter, starts))
            status = MORTISE_OK;
        if (status != MORTISE_OK) {
            client->stats.waiting--;
            client->stats.failures++;
            observe_locked(client, MORTISE_EVENT_FAILED, entry, NULL, waiter, status);
        }
    }
    if (status == MORTISE_NOMEM)
        failed(waiter->error, status, "out of memory");
    if (status != MORTISE_OK && waiter->grant != NULL) {
        slot_spend(&waiter->grant->slot);
        grant_unref_locked(waiter->grant);
        waiter->grant = NULL;
    }
    if (entry != NULL)
        entry_unref_locked(client, entry);
    return status;
}

/* How long to sleep: a try waits for its answer, but not for ever. */
static int64_t patience_ns(const struct client *client, const struct waiter *waiter)
{
    return waiter->try_once
               ? clock_after_ms(waiter->asked_ns, client->settings.unreachable_timeout_ms)
               : waiter->until_ns;
}

static mortise_status acquire(struct client *client, const struct full_name *name,
                              struct waiter *waiter)
{
    struct task_list starts = {NULL, NULL};
    sleeper_init(&waiter->sleeper, &client->pump);
    pthread_mutex_lock(&client->lock);
    mortise_status status = join_locked(client, name, waiter, &starts);
    client_unlock(client);
    if (status != MORTISE_OK)
        return status;
    pump_start(&client->pump, &starts);
    if (pump_wait(&client->pump, &waiter->sleeper, patience_ns(client, waiter)))
        return waiter->status;
    pthread_mutex_lock(&client->lock);
    if (waiter->state == WAITER_QUEUED)
        contest_leave_locked(waiter, MORTISE_TIMEDOUT, &starts);
    client_unlock(client);
    pump_start(&client->pump, &starts);
    return waiter->status;
}

mortise_status mortise_acquire(mortise_client *handle, const char *name,
                               const mortise_options *given, mortise_lease **lease,
                               mortise_error *error)
{
    struct client *client;
    if (lease == NULL)
        return failed(error, MORTISE_INVALID, "mortise_acquire: the out-parameter is NULL");
    *lease = NULL;
    mortise_status status = client_enter(handle, &client, error);
    if (status != MORTISE_OK)
        return status;
    mortise_options options;
    struct full_name full;
    char thread_owner[THREAD_OWNER_SIZE];
    struct waiter waiter;
    memset(&waiter, 0, offsetof(struct waiter, async));
    waiter.async = false;
    waiter.error = error;
    status = read_options(client, given, &options, error);
    if (status == MORTISE_OK)
        status = api_name(client, name, false, full.text, &full.length, error);
    if (status == MORTISE_OK)
        status = read_owner(client, &options, thread_owner, &waiter, error);
    if (status == MORTISE_OK && options.wait_ms != 0 && events_inside())
        status = failed(error, MORTISE_DEADLOCK,
                        "a callback must not wait for a lock: use wait_ms = 0, or async");
    if (status == MORTISE_OK) {
        fill_waiter(&waiter, &options);
        status = prepare(client, &waiter, error);
    }
    if (status == MORTISE_OK)
        status = acquire(client, &full, &waiter);
    if (status == MORTISE_OK)
        *lease = waiter.lease;
    client_leave(client);
    return status;
}

/* ---- async ---- */

static void link_async_locked(struct client *client, struct waiter *waiter)
{
    waiter->timer.kind = TIMER_WAITER;
    waiter->next_async = client->asyncs;
    if (client->asyncs != NULL)
        client->asyncs->previous_async = waiter;
    client->asyncs = waiter;
    pump_attention(&client->pump, +1);
    int64_t until_ns = patience_ns(client, waiter);
    if (until_ns != MORTISE_NEVER)
        timer_set_locked(client, &waiter->timer, until_ns);
}

static void unlink_async_locked(struct client *client, struct waiter *waiter)
{
    timer_stop(&client->timers, &waiter->timer);
    timer_unreserve(&client->timers);
    client->asyncs = waiter->next_async;
    if (client->asyncs != NULL)
        client->asyncs->previous_async = NULL;
    pump_attention(&client->pump, -1);
}

/* On OK the waiter is the client's; it may be gone already. */
static mortise_status acquire_async(struct client *client, const struct full_name *name,
                                    struct waiter *waiter, mortise_request *request,
                                    mortise_error *error)
{
    struct task_list starts = {NULL, NULL};
    pthread_mutex_lock(&client->lock);
    mortise_status status = MORTISE_NOMEM;
    if (timer_reserve(&client->timers)) {
        link_async_locked(client, waiter);
        status = join_locked(client, name, waiter, &starts);
        if (status == MORTISE_OK && request != NULL)
            *request = waiter->caller;
        if (status == MORTISE_BUSY) { /* an outcome, not a refusal: the callback reports it */
            if (request != NULL)
                *request = waiter->caller;
            waiter_report_locked(client, waiter, status);
            status = MORTISE_OK;
        } else if (status != MORTISE_OK)
            unlink_async_locked(client, waiter);
    }
    client_unlock(client);
    if (status != MORTISE_OK)
        return failed(error, status, "%s",
                      status == MORTISE_CLOSED ? "the client was closed" : "out of memory");
    pump_start_soon(&client->pump, &starts);
    pump_hurry(&client->pump);
    return MORTISE_OK;
}

mortise_status mortise_acquire_async(mortise_client *handle, const char *name,
                                     const mortise_options *given,
                                     mortise_acquire_callback callback, void *user_data,
                                     mortise_request *request, mortise_error *error)
{
    struct client *client;
    if (request != NULL)
        *request = 0;
    mortise_status status = client_enter(handle, &client, error);
    if (status != MORTISE_OK)
        return status;
    mortise_options options;
    struct full_name full;
    char thread_owner[THREAD_OWNER_SIZE];
    struct waiter read = {.async = true}, *waiter = NULL;
    if (callback == NULL)
        status = failed(error, MORTISE_INVALID, "mortise_acquire_async: no callback");
    if (status == MORTISE_OK)
        status = read_options(client, given, &options, error);
    if (status == MORTISE_OK)
        status = api_name(client, name, false, full.text, &full.length, error);
    if (status == MORTISE_OK)
        status = read_owner(client, &options, thread_owner, &read, error);
    if (status == MORTISE_OK && (waiter = malloc(sizeof(*waiter) + read.owner_len)) == NULL)
        status = failed(error, MORTISE_NOMEM, "out of memory");
    if (status == MORTISE_OK) {
        *waiter = read;
        if (read.owner_len > 0)
            waiter->owner = memcpy(waiter + 1, read.owner, read.owner_len);
        waiter->error = &waiter->error_room;
        waiter->notice =
            (struct notice){.on_acquired = callback, .user_data = user_data, .owned = waiter};
        fill_waiter(waiter, &options);
        status = prepare(client, waiter, error);
    }
    if (status == MORTISE_OK)
        status = acquire_async(client, &full, waiter, request, error);
    if (status != MORTISE_OK)
        free(waiter);
    client_leave(client);
    return status;
}

mortise_status mortise_cancel(mortise_client *handle, mortise_request request)
{
    struct client *client;
    struct task_list starts = {NULL, NULL};
    mortise_status status = client_enter(handle, &client, NULL);
    if (status != MORTISE_OK)
        return status;
    pthread_mutex_lock(&client->lock);
    struct waiter *waiter = client->asyncs;
    while (waiter != NULL && waiter->caller != request)
        waiter = waiter->next_async;
    if (waiter != NULL)
        contest_leave_locked(waiter, MORTISE_CANCELED, &starts);
    client_unlock(client);
    pump_start(&client->pump, &starts);
    client_leave(client);
    return waiter != NULL ? MORTISE_OK : MORTISE_INVALID;
}
