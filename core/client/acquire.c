/* acquire.c - the public calls that acquire: they check the arguments, make a waiter, and report the outcome. */
#include "client/calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

/* The driver lacks the capability, or has it, but not with this config. */
static const char *where(const struct client *client, uint32_t capability)
{
    return (client->top->module.capabilities & capability) != 0 ? "with these settings" : "here";
}

static mortise_status read_mode(const struct client *client, const mortise_options *options,
                                mortise_error *error)
{
    const char *driver = client->top->section;
    if (options->mode == MORTISE_EXCLUSIVE)
        return options->permits == 0 ? MORTISE_OK
                                     : failed(error, MORTISE_INVALID,
                                              "options: permits belong to mode = MORTISE_SHARED");
    if (options->mode != MORTISE_SHARED)
        return failed(error, MORTISE_INVALID, "options: mode is %d, expected 0 or 1",
                      (int)options->mode);
    if (options->owner != NULL)
        return failed(error, MORTISE_INVALID,
                      "options: a shared lease has no owner: it shares the name with all others");
    if ((client->capabilities & MORTISE_CAP_SHARED) == 0)
        return failed(error, MORTISE_NOTSUP,
                      "driver %s: no shared locks %s; an exclusive lock is safe in their place",
                      driver, where(client, MORTISE_CAP_SHARED));
    if (options->permits > 0 && (client->capabilities & MORTISE_CAP_PERMITS) == 0)
        return failed(error, MORTISE_NOTSUP,
                      "driver %s: no permits %s; use exclusive locks on %u names instead, and try "
                      "one after the other",
                      driver, where(client, MORTISE_CAP_PERMITS), options->permits);
    return MORTISE_OK;
}

static bool all_zero(const unsigned char *bytes, size_t from, size_t to)
{
    while (from < to && bytes[from] == 0)
        from++;
    return from >= to;
}

#define SIZE_OF_0_1 (offsetof(mortise_options, user_data) + sizeof(void *))

/* Copies the caller's options into the library's layout. Fields that an older program does not have are zero. If a newer
 * program sets a field that we do not know, the call must fail: the field could ask for a different kind of lock. */
static mortise_status copy_options(const mortise_options *given, mortise_options *options,
                                   mortise_error *error)
{
    memset(options, 0, sizeof(*options));
    options->wait_ms = MORTISE_WAIT_DEFAULT;
    if (given == NULL)
        return MORTISE_OK;
    if (given->size == SIZE_OF_0_1)
        return failed(
            error, MORTISE_INVALID,
            "options: their size is that of mortise 0.1, whose states have other numbers: "
            "compile the program again");
    if (given->size < offsetof(mortise_options, permits) + sizeof(given->permits) ||
        given->size > 4096)
        return failed(error, MORTISE_INVALID, "options: size %zu; use MORTISE_OPTIONS()",
                      given->size);
    if (!all_zero((const unsigned char *)given, sizeof(*options), given->size))
        return failed(error, MORTISE_INVALID,
                      "options: a field beyond the first %zu bytes is set, and mortise %s does not "
                      "know it: the program was built for a newer version",
                      sizeof(*options), mortise_version());
    memcpy(options, given, given->size < sizeof(*options) ? given->size : sizeof(*options));
    return MORTISE_OK;
}

mortise_status call_read_options(struct client *client, const mortise_options *given,
                                 mortise_options *options, mortise_error *error)
{
    mortise_status status = copy_options(given, options, error);
    if (status != MORTISE_OK)
        return status;
    if (options->wait_ms == MORTISE_WAIT_DEFAULT)
        options->wait_ms = client->locks.settings.wait_ms;
    if (options->ttl_ms == 0)
        options->ttl_ms = client->locks.settings.ttl_ms;
    if (options->wait_ms < MORTISE_WAIT_FOREVER || options->wait_ms > MORTISE_WAIT_MAX_MS)
        return failed(error, MORTISE_INVALID, "options: wait_ms %lld is out of range",
                      (long long)options->wait_ms);
    if (options->ttl_ms < MORTISE_TTL_MIN_MS || options->ttl_ms > MORTISE_TTL_MAX_MS)
        return failed(error, MORTISE_INVALID, "options: ttl_ms %lld is not in %d to %d",
                      (long long)options->ttl_ms, MORTISE_TTL_MIN_MS, MORTISE_TTL_MAX_MS);
    if (options->max_hold_ms < 0)
        return failed(error, MORTISE_INVALID, "options: max_hold_ms %lld is negative",
                      (long long)options->max_hold_ms);
    return read_mode(client, options, error);
}

/* Returns the number of this thread, which no other thread of this process gets. */
static uint64_t thread_number(void)
{
    static _Atomic uint64_t last;
    static _Thread_local uint64_t number;
    if (number == 0)
        number = atomic_fetch_add(&last, 1) + 1;
    return number;
}

mortise_status call_read_owner(struct client *client, const mortise_options *options,
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

void call_fill_waiter(struct waiter *waiter, const mortise_options *options)
{
    waiter->asked_ns = clock_now();
    waiter->ttl_ms = options->ttl_ms;
    waiter->max_hold_ms = options->max_hold_ms;
    waiter->mode = options->mode;
    waiter->permits = options->permits;
    waiter->no_renew = options->no_renew;
    waiter->try_once = options->wait_ms == 0;
    waiter->on_state = options->on_state;
    waiter->user_data = options->user_data;
    waiter->until_ns = options->wait_ms == MORTISE_WAIT_FOREVER
                           ? MORTISE_NEVER
                           : clock_after_ms(waiter->asked_ns, options->wait_ms);
}

/* ---- acquire ---- */

mortise_status call_may_wait(const mortise_options *options, mortise_error *error)
{
    if (options->wait_ms == 0 || !events_inside())
        return MORTISE_OK;
    return failed(error, MORTISE_DEADLOCK,
                  "a callback must not wait for a lock: use wait_ms = 0, or async");
}

/* Starts the threads now, because that must not fail later. */
mortise_status call_prepare(struct client *client, const struct waiter *waiter,
                            mortise_error *error)
{
    bool calls_back = waiter->async || waiter->on_state != NULL;
    if (!watchdog_ready(&client->locks))
        return failed(error, MORTISE_NOMEM,
                      "the threads that renew leases could not be started: no thread or no "
                      "descriptor is left");
    if (calls_back && !events_ready(&client->events))
        return failed(error, MORTISE_NOMEM, "a thread could not be started");
    return MORTISE_OK;
}

/* Other callers of this process wait for the name, and this one may not go ahead of them. Shared callers may get the name
 * together, unless the backend has already told the first of them to wait. */
static bool is_wanted(const struct waitlist *queue, const struct waiter *waiter)
{
    return queue != NULL && (waiter->mode == MORTISE_EXCLUSIVE ||
                             queue->first->mode == MORTISE_EXCLUSIVE || queue->first->queued);
}

static mortise_status busy_locally(struct waiter *waiter, const struct full_name *name,
                                   const struct locks *locks, const struct waitlist *queue)
{
    char quoted[QUOTED_SIZE];
    size_t prefix = locks->settings.namespace_len;
    return failed(waiter->error, MORTISE_BUSY, "%s is wanted by %u callers of this process already",
                  quote_name(name->text + prefix, name->length - prefix, quoted, sizeof(quoted)),
                  queue->count);
}

mortise_status call_join_locked(struct locks *locks, const struct full_name *full,
                                struct waiter *waiter)
{
    if (locks->closing)
        return failed(waiter->error, MORTISE_CLOSED, "the client was closed: open another one");
    if (!waiter->async) /* else it has a number already */
        waiter->caller = ++locks->callers;
    waiter->spare = claim_new_locked(locks, waiter->owner, waiter->owner_len);
    struct name *name = name_get_locked(locks, full->text, full->length);
    mortise_status status = MORTISE_NOMEM;
    if (waiter->spare != NULL && name != NULL) {
        observe_locked(locks, MORTISE_EVENT_ASKED, name, NULL, waiter, MORTISE_OK);
        bool alone = waiter->try_once || waiter->owner_len > 0;
        locks->stats.waiting++;
        if (name->shared != NULL && name->waitlist == NULL &&
            claim_join_locked(name->shared, waiter, clock_now())) { /* asked_ns may be long ago */
            waiter_decide_locked(locks, waiter, MORTISE_OK);
            status = MORTISE_OK;
        } else if (waiter->try_once && waiter->owner_len == 0 && is_wanted(name->waitlist, waiter))
            status = busy_locally(waiter, full, locks, name->waitlist);
        else if (waitlist_join_locked(locks, name, alone, waiter))
            status = MORTISE_OK;
        if (status != MORTISE_OK) {
            locks->stats.waiting--;
            locks->stats.failures++;
            observe_locked(locks, MORTISE_EVENT_FAILED, name, NULL, waiter, status);
        }
    }
    if (status == MORTISE_NOMEM)
        failed(waiter->error, status, "out of memory");
    if (status != MORTISE_OK && waiter->spare != NULL) {
        claim_discard_locked(waiter->spare);
        waiter->spare = NULL;
    }
    if (name != NULL)
        name_put_locked(locks, name);
    return status;
}

int64_t call_patience_ns(const struct client *client, const struct waiter *waiter)
{
    return waiter->try_once
               ? clock_after_ms(waiter->asked_ns, client->locks.settings.unreachable_timeout_ms)
               : waiter->until_ns;
}

mortise_status call_await(struct client *client, struct waiter *waiter, int64_t until_ns)
{
    struct locks *locks = &client->locks;
    if (pump_wait(&client->pump, &waiter->sleeper, until_ns))
        return waiter->status;
    pthread_mutex_lock(&locks->lock);
    if (until_ns < call_patience_ns(client, waiter))
        waiter->try_once = false; /* the time of the whole call is over, but not that of this try */
    if (waiter->waitlist != NULL)
        waitlist_leave_locked(waiter, MORTISE_TIMEDOUT);
    locks_unlock(locks, START_NOW);
    return waiter->status;
}

static mortise_status acquire(struct client *client, const struct full_name *name,
                              struct waiter *waiter)
{
    struct locks *locks = &client->locks;
    sleeper_init(&waiter->sleeper, &client->pump);
    pthread_mutex_lock(&locks->lock);
    mortise_status status = call_join_locked(locks, name, waiter);
    waiter->sleeper.patient = waiter->waitlist != NULL && waiter->waitlist->first != waiter;
    locks_unlock(locks, START_NOW);
    if (status != MORTISE_OK)
        return status;
    return call_await(client, waiter, call_patience_ns(client, waiter));
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
    status = call_read_options(client, given, &options, error);
    if (status == MORTISE_OK)
        status = client_name(client, name, false, full.text, &full.length, error);
    if (status == MORTISE_OK)
        status = call_read_owner(client, &options, thread_owner, &waiter, error);
    if (status == MORTISE_OK)
        status = call_may_wait(&options, error);
    if (status == MORTISE_OK) {
        call_fill_waiter(&waiter, &options);
        status = call_prepare(client, &waiter, error);
    }
    if (status == MORTISE_OK)
        status = acquire(client, &full, &waiter);
    if (status == MORTISE_OK)
        *lease = waiter.lease;
    client_leave(client);
    return status;
}

/* ---- async ---- */

/* On OK the waiter belongs to the client, and may be freed already. */
static mortise_status acquire_async(struct client *client, const struct full_name *name,
                                    struct waiter *waiter, mortise_request *request,
                                    mortise_error *error)
{
    struct locks *locks = &client->locks;
    pthread_mutex_lock(&locks->lock);
    mortise_status status = MORTISE_NOMEM;
    if (timer_reserve(&locks->timers)) {
        waiter_link_async_locked(locks, waiter, call_patience_ns(client, waiter));
        status = call_join_locked(locks, name, waiter);
        if (request != NULL && (status == MORTISE_OK || status == MORTISE_BUSY))
            *request = locks->callers;
        if (status == MORTISE_BUSY) /* an outcome, and no refusal: the callback gets it */
            waiter_call_back_locked(locks, waiter, status);
        else if (status != MORTISE_OK)
            waiter_unlink_async_locked(locks, waiter);
    }
    locks_unlock(locks, START_SOON);
    if (status != MORTISE_OK && status != MORTISE_BUSY)
        return failed(error, status, "%s",
                      status == MORTISE_CLOSED ? "the client was closed: open another one"
                                               : "out of memory");
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
        status = call_read_options(client, given, &options, error);
    if (status == MORTISE_OK)
        status = client_name(client, name, false, full.text, &full.length, error);
    if (status == MORTISE_OK)
        status = call_read_owner(client, &options, thread_owner, &read, error);
    if (status == MORTISE_OK && (waiter = malloc(sizeof(*waiter) + read.owner_len)) == NULL)
        status = failed(error, MORTISE_NOMEM, "out of memory");
    if (status == MORTISE_OK) {
        *waiter = read;
        if (read.owner_len > 0)
            waiter->owner = memcpy(waiter + 1, read.owner, read.owner_len);
        waiter->error = &waiter->error_room;
        waiter->notice =
            (struct notice){.on_acquired = callback, .user_data = user_data, .owned = waiter};
        call_fill_waiter(waiter, &options);
        status = call_prepare(client, waiter, error);
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
    mortise_status status = client_enter(handle, &client, NULL);
    if (status != MORTISE_OK)
        return status;
    struct locks *locks = &client->locks;
    pthread_mutex_lock(&locks->lock);
    struct waiter *waiter = waiter_find_async_locked(locks, request);
    if (waiter != NULL)
        waitlist_leave_locked(waiter, MORTISE_CANCELED);
    locks_unlock(locks, START_NOW);
    client_leave(client);
    return waiter != NULL ? MORTISE_OK : MORTISE_INVALID;
}
