/* close.c - the end of a client: mortise_close(). */
#include "base/log.h"
#include "client/client_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOG_MS 200 /* how long a close waits for its log lines to be written */

static void free_tasks(struct task_list *list)
{
    while (list->first != NULL) {
        struct task *task = list->first;
        task_remove(list, task);
        free(task);
    }
}

void client_free(struct client *client)
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
    if (client->notify_fd >= 0)
        close(client->notify_fd);
    if (client->notify_event >= 0)
        close(client->notify_event);
    resolve_end(&client->pump);
    pump_destroy(&client->pump);
    config_values_free(client->core_values, CORE_OPTION_COUNT);
    config_free(client->config);
    pthread_cond_destroy(&client->notify_cond);
    pthread_mutex_destroy(&client->notify_lock);
    pthread_mutex_destroy(&client->lock);
    slab_give(&client_slab, &client->slot);
}

static void close_entry_locked(struct client *client, struct entry *entry, struct task_list *starts)
{
    entry->references++;
    while (entry->queue != NULL && entry->queue->last != NULL)
        contest_leave_locked(entry->queue->last, MORTISE_CLOSED, starts);
    while (entry->grants != NULL) {
        struct release *release;
        grant_release_locked(entry->grants, &release, starts);
    }
    entry_unref_locked(client, entry);
}

/* Fails what waits and gives back what is held. */
static void give_up_all(struct client *client)
{
    struct task_list starts = {NULL, NULL};
    pthread_mutex_lock(&client->lock);
    client->closing = true;
    entry_forget_idle_locked(client);
    while (client->lone != NULL)
        contest_leave_locked(client->lone->first, MORTISE_CLOSED, &starts);
    for (struct entry *entry = client->entries, *next; entry != NULL; entry = next) {
        next = entry->hh.next;
        close_entry_locked(client, entry, &starts);
    }
    releases_hurry_locked(client, &starts);
    queries_cancel_locked(client);
    client_unlock(client);
    pump_start_detached(&client->pump, &starts);
}

/* Waits until nothing is outstanding. This thread does not go into the stack, where a driver might keep
 * it (R9). */
static bool wait_drained(struct client *client, int64_t until_ns)
{
    struct sleeper sleeper;
    sleeper_init(&sleeper, &client->pump);
    pthread_mutex_lock(&client->lock);
    bool wait = client->outstanding > 0;
    if (wait)
        client->drain = &sleeper;
    client_unlock(client);
    if (wait)
        pump_wait_aside(&client->pump, &sleeper, until_ns);
    pthread_mutex_lock(&client->lock);
    client->drain = NULL;
    bool drained = client->outstanding == 0;
    client_unlock(client);
    return drained;
}

/* Brings what is outstanding to its end, by cancellation if need be; false: something was left to its ttl. */
static bool drain(struct client *client, int64_t until_ns)
{
    bool drained = wait_drained(client, until_ns);
    struct task_list starts = {NULL, NULL};
    pthread_mutex_lock(&client->lock);
    client->abandoning = true;
    releases_end_locked(client);
    client_unlock(client);
    pump_start_detached(&client->pump, &starts);
    if (!drained) /* the driver completes what is canceled promptly, unless it is stuck */
        wait_drained(client, clock_after_ms(clock_now(), STUCK_MS));
    pthread_mutex_lock(&client->lock);
    drained = drained && !client->left_behind;
    client_unlock(client);
    return drained;
}

/* The last request of a client. */
struct parting {
    struct task task; /* first */
    struct client *client;
    bool clean, done;
};

static void parted(mortise_op *op)
{
    struct parting *parting = (struct parting *)op;
    struct client *client = parting->client;
    pthread_mutex_lock(&client->lock);
    parting->clean = op->status == MORTISE_OK;
    parting->done = true;
    client_ended_locked(client);
    client_unlock(client);
}

/* What a plugin has of its own in the backend; nothing else is outstanding. False: something was left to its ttl. */
static bool leave_stack(struct client *client, int64_t until_ns)
{
    if (client->top->module.leave == NULL)
        return true;
    struct parting *parting = calloc(1, sizeof(*parting));
    struct task_list starts = {NULL, NULL};
    if (parting == NULL)
        return false;
    parting->client = client;
    parting->task.op.kind = OP_LEAVE;
    parting->task.op.core_state = OP_IDLE;
    parting->task.op.done = parted;
    parting->task.unattended = true;
    pthread_mutex_lock(&client->lock);
    client_began_locked(client);
    task_append(&starts, &parting->task);
    client_unlock(client);
    pump_start_detached(&client->pump, &starts);
    if (!wait_drained(client, until_ns)) {
        pump_cancel(&client->pump, &parting->task);
        pump_start_detached(&client->pump, &starts); /* empty: does what is on the lists */
        wait_drained(client, clock_after_ms(clock_now(), STUCK_MS));
    }
    pthread_mutex_lock(&client->lock);
    bool clean = parting->clean, done = parting->done;
    client_unlock(client);
    if (done) /* else the stack is stuck, and left standing */
        free(parting);
    return clean;
}

/* Nobody is in the modules any more, or waits for them: closes them. False: a thread is stuck there, or a call on the
 * client has not returned. */
static bool close_stack(struct client *client, int64_t until_ns)
{
    int64_t stuck_ns = clock_after_ms(clock_now(), STUCK_MS);
    if (client->clean && until_ns > stuck_ns)
        stuck_ns =
            until_ns; /* the driver has answered all: its thread is late, on a busy machine */
    bool left = client_wait_for_users(client, stuck_ns);
    int64_t stop_ns =
        clock_after_ms(clock_now(), STUCK_MS); /* the calls may have used up the rest */
    if (stop_ns < stuck_ns)
        stop_ns = stuck_ns;
    bool watched = watchdog_stop(client, stop_ns);
    bool stopped = pump_stop(&client->pump, stop_ns) && watched;
    if (stopped && left && !client->stack_closed) {
        loader_close_all(&client->loader);
        client->stack_closed = true;
    }
    return client->stack_closed;
}

/* all: nothing of the client is left standing. */
static mortise_status closed(bool clean, bool all, const char *driver, mortise_error *error)
{
    if (!clean)
        return failed(
            error, MORTISE_UNREACHABLE,
            "close: driver %s could not give back all in time; what is left ends with its ttl",
            driver);
    if (!all)
        return failed(
            error, MORTISE_UNREACHABLE,
            "close: a call on the client, or in driver %s, has not returned; what it uses is left "
            "open",
            driver);
    return MORTISE_OK;
}

static enum notify_end stop_callbacks(struct client *client, int64_t until_ns, bool may_free)
{
    int64_t callbacks_ns = clock_after_ms(clock_now(), STUCK_MS);
    return notify_stop(client, until_ns > callbacks_ns ? until_ns : callbacks_ns, may_free);
}

/* The last part of a close, once nothing is outstanding: it may be repeated until no callback is left. */
static mortise_status end_client(struct client *client, int64_t until_ns, const char *driver,
                                 mortise_error *error)
{
    bool may_free = close_stack(client, until_ns);
    log_flush(LOG_MS);
    switch (stop_callbacks(client, until_ns, may_free)) {
    case NOTIFY_INSIDE: /* it may be gone as soon as the callback returns */
        return closed(client->clean, may_free, driver, error);
    case NOTIFY_INSIDE_LEFT:
        return failed(error, MORTISE_CLOSING,
                      "close: callbacks that wait run when the one that closes has returned");
    case NOTIFY_LEFT:
        client_set_phase(client, PHASE_LINGERS);
        return failed(error, MORTISE_CLOSING,
                      "close: callbacks still run or wait; close again to wait for their end");
    case NOTIFY_DONE:
        break;
    }
    if (!may_free) /* a call that had not returned may have waited for a callback, which is over now */
        may_free = close_stack(client, until_ns);
    bool clean = client->clean;
    client_shut(client);
    if (may_free) { /* else it is left standing: a thread is in it */
        notify_end(client);
        client_free(client);
    }
    return closed(clean, may_free, driver, error);
}

/* Waits while another thread closes the client. */
static void wait_for_closer(mortise_client *handle, struct client *client, int64_t until_ns)
{
    while (client_is_closing(client, handle) && atomic_load(&client->phase) == PHASE_CLOSES)
        if (!client_sleep_while(&client->phase, PHASE_CLOSES, until_ns))
            return;
}

/* Takes over a client whose close ended with CLOSING. If another thread closes the client, this one waits for the
 * outcome; it returns CLOSING while callbacks may still run. It does not wait inside a callback, because the other thread may be
 * waiting for that callback. */
static mortise_status take_over(mortise_client *handle, struct client **client,
                                mortise_error *error)
{
    bool closes = client_enter_closing(handle, client);
    int64_t until_ns =
        closes ? clock_after_ms(clock_now(), (*client)->settings.close_timeout_ms) : 0;
    uint32_t lingers = PHASE_LINGERS;
    while (closes) {
        bool mine = atomic_compare_exchange_strong(&(*client)->phase, &lingers, PHASE_CLOSES);
        bool closed_here = !mine && notify_closed_here(*client);
        client_leave_closing(*client);
        if (mine)
            return MORTISE_OK;
        if (closed_here)
            break;
        if (notify_inside() || clock_now() >= until_ns)
            return failed(error, MORTISE_CLOSING,
                          "close: another thread closes the client; callbacks may still run");
        wait_for_closer(handle, *client, until_ns);
        lingers = PHASE_LINGERS;
        closes = client_enter_closing(handle, client);
    }
    return failed(error, MORTISE_CLOSED, "the client was closed");
}

/* A client that is being closed, or was. */
static mortise_status close_again(mortise_client *handle, mortise_error *error)
{
    struct client *client;
    mortise_status status = take_over(handle, &client, error);
    if (status != MORTISE_OK)
        return status;
    client_begin_call();
    char driver[32];
    snprintf(driver, sizeof(driver), "%s", client->driver);
    notify_closing(client);
    status = end_client(client, clock_after_ms(clock_now(), client->settings.close_timeout_ms),
                        driver, error);
    client_end_call();
    return status;
}

mortise_status mortise_close(mortise_client *handle, mortise_error *error)
{
    struct client *client;
    uint32_t open = PHASE_OPEN;
    mortise_status status = client_enter(handle, &client, error);
    if (status == MORTISE_CLOSED)
        return close_again(handle, error);
    if (status != MORTISE_OK)
        return status;
    if (!atomic_compare_exchange_strong(&client->phase, &open, PHASE_CLOSES)) {
        client_leave(client);
        return close_again(handle, error);
    }
    slot_spend(&client->slot);
    int64_t until_ns = clock_after_ms(clock_now(), client->settings.close_timeout_ms);
    char driver[32];
    snprintf(driver, sizeof(driver), "%s", client->top->module.name);
    snprintf(client->driver, sizeof(client->driver), "%s", driver);
    notify_closing(client);
    give_up_all(client);
    client_count_out(client); /* not client_leave: still no cancellation point */
    client->clean = drain(client, until_ns) && leave_stack(client, until_ns);
    status = end_client(client, until_ns, driver, error);
    client_end_call();
    return status;
}
