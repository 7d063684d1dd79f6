/* close.c - the end of a client: mortise_close(). */
#include "base/log.h"
#include "client/client.h"

#include <stdio.h>

#define LOG_MS 200 /* how long a close waits for its log lines to be written */

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

/* Fails the callers that wait, and releases the leases that are held. */
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

/* Waits until nothing is outstanding. This thread does not enter the stack, because a driver might keep it there (R9). */
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

/* Waits for what is outstanding, and cancels what is left at the end. False: something was left to its ttl. */
static bool drain(struct client *client, int64_t until_ns)
{
    bool drained = wait_drained(client, until_ns);
    struct task_list starts = {NULL, NULL};
    pthread_mutex_lock(&client->lock);
    client->abandoning = true;
    releases_end_locked(client);
    client_unlock(client);
    pump_start_detached(&client->pump, &starts);
    if (!drained) /* unless the driver is stuck, it completes canceled requests promptly */
        wait_drained(client, clock_after_ms(clock_now(), STUCK_MS));
    pthread_mutex_lock(&client->lock);
    drained = drained && !client->left_behind;
    client_unlock(client);
    return drained;
}

static void leave_done(mortise_op *op)
{
    struct client *client =
        (struct client *)(void *)((char *)op - offsetof(struct client, leave.op));
    pthread_mutex_lock(&client->lock);
    client->left_behind |= op->status != MORTISE_OK;
    client_ended_locked(client);
    client_unlock(client);
}

/* The last request: a plugin removes what it has of its own in the backend. False: something was left to its ttl. */
static bool leave_stack(struct client *client, int64_t until_ns)
{
    if (client->top->module.leave == NULL)
        return true;
    struct task_list starts = {NULL, NULL};
    client->leave.op.kind = OP_LEAVE;
    client->leave.op.core_state = OP_IDLE;
    client->leave.op.done = leave_done;
    client->leave.unattended = true;
    pthread_mutex_lock(&client->lock);
    client_began_locked(client);
    task_append(&starts, &client->leave);
    client_unlock(client);
    pump_start_detached(&client->pump, &starts);
    bool answered = wait_drained(client, until_ns);
    if (!answered) {
        pump_cancel(&client->pump, &client->leave);
        pump_start_detached(&client->pump, &starts); /* empty: does what is on the lists */
        answered = wait_drained(client, clock_after_ms(clock_now(), STUCK_MS));
    }
    pthread_mutex_lock(&client->lock);
    bool clean = answered && !client->left_behind;
    client_unlock(client);
    return clean;
}

/* Closes the modules when no thread is in them and no call on the client is in flight, and gives back their reference.
 * False: a thread is stuck there, or a call has not returned. */
static bool close_stack(struct client *client, int64_t until_ns)
{
    if (client->stack_closed)
        return true;
    int64_t stuck_ns = clock_after_ms(clock_now(), STUCK_MS);
    if (client->clean && until_ns > stuck_ns)
        stuck_ns = until_ns; /* the driver has answered all: the machine is busy, its thread late */
    bool left = client_wait_for(client, &client->users, 0, stuck_ns);
    int64_t stop_ns =
        clock_after_ms(clock_now(), STUCK_MS); /* the wait may have used up the time */
    if (stop_ns < stuck_ns)
        stop_ns = stuck_ns;
    bool watched = watchdog_stop(client, stop_ns);
    bool stopped = pump_stop(&client->pump, stop_ns);
    if (!left || !watched || !stopped)
        return false;
    loader_close_all(&client->loader);
    client->stack_closed = true;
    client_drop(client); /* not the last one: the close has that of the handle */
    return true;
}

/* ---- mortise_close() ---- */

/* The status of a close after which no callback runs. */
static mortise_status closed(const struct client *client, mortise_error *error)
{
    if (!client->clean)
        return failed(
            error, MORTISE_UNREACHABLE,
            "close: driver %s could not give back all in time; what is left ends with its ttl",
            client->driver);
    if (!client->stack_closed)
        return failed(
            error, MORTISE_UNREACHABLE,
            "close: a call on the client, or in driver %s, has not returned; what it uses is left "
            "open",
            client->driver);
    return MORTISE_OK;
}

/* This thread runs a callback of the client: the client ends behind it. */
static mortise_status leave_to_callback(struct client *client, mortise_error *error)
{
    mortise_status status = events_last_here(&client->events)
                                ? closed(client, error)
                                : failed(error, MORTISE_CLOSING,
                                         "close: callbacks that wait run when the one that closes "
                                         "has returned");
    client_move(client, CLIENT_CLOSING, CLIENT_LEAVING);
    client_drop(client); /* not the last one: a thread that runs callbacks has one */
    return status;
}

/* No callback runs, and none will. Frees the client, unless a thread is stuck in it. */
static void end_client(struct client *client)
{
    client_move(client, CLIENT_CLOSING, CLIENT_ENDED);
    client_wait_for_calls(client);
    if (client->stack_closed) /* the threads that ran callbacks are about to leave */
        client_wait_for(client, &client->references, 1, MORTISE_NEVER);
    client_drop(client);
}

/* The last part of a close, once nothing is outstanding: it is repeated if callbacks were left. */
static mortise_status finish(struct client *client, int64_t until_ns, mortise_error *error)
{
    close_stack(client, until_ns);
    log_flush(LOG_MS);
    int64_t callbacks_ns = clock_after_ms(clock_now(), STUCK_MS);
    enum events_end end =
        events_stop(&client->events, until_ns > callbacks_ns ? until_ns : callbacks_ns);
    if (end == EVENTS_HERE)
        return leave_to_callback(client, error);
    if (end == EVENTS_LEFT) {
        client_move(client, CLIENT_CLOSING, CLIENT_LINGERING);
        return failed(error, MORTISE_CLOSING,
                      "close: callbacks still run or wait; close again to wait for their end");
    }
    close_stack(client, until_ns); /* a call may have waited for a callback, which is over now */
    mortise_status status = closed(client, error);
    end_client(client);
    return status;
}

/* Waits while another thread closes the client. */
static void wait_for_closer(mortise_client *handle, struct client *client, int64_t until_ns)
{
    uint32_t state = atomic_load(&client->state);
    if (state != CLIENT_LINGERING && client_is_closing(client, handle))
        client_sleep_while(&client->state, state, until_ns);
}

/* Takes over a client whose close ended with CLOSING, and counts this call in. If another thread closes the client, this
 * thread waits for the outcome, and returns CLOSING while callbacks may still run. Inside a callback it does not wait,
 * because the other thread may be waiting for that callback. */
static mortise_status take_over(mortise_client *handle, struct client **client,
                                mortise_error *error)
{
    int64_t until_ns = 0;
    while (client_enter_closing(handle, client)) {
        if (client_move(*client, CLIENT_LINGERING, CLIENT_CLOSING))
            return MORTISE_OK;
        if (until_ns == 0)
            until_ns = clock_after_ms(clock_now(), (*client)->settings.close_timeout_ms);
        bool last_callback = atomic_load(&(*client)->state) == CLIENT_LEAVING &&
                             events_last_here(&(*client)->events);
        client_leave(*client);
        if (last_callback)
            break;
        if (events_inside() || clock_now() >= until_ns)
            return failed(error, MORTISE_CLOSING,
                          "close: another thread closes the client; callbacks may still run");
        wait_for_closer(handle, *client, until_ns);
    }
    return failed(error, MORTISE_CLOSED, "the client was closed");
}

mortise_status mortise_close(mortise_client *handle, mortise_error *error)
{
    struct client *client;
    mortise_status status = client_enter(handle, &client, error);
    bool first = status == MORTISE_OK && client_move(client, CLIENT_OPEN, CLIENT_CLOSING);
    if (status == MORTISE_OK && !first) {
        client_leave(client);
        status = MORTISE_CLOSED;
    }
    if (status == MORTISE_CLOSED)
        status = take_over(handle, &client, error);
    if (status != MORTISE_OK)
        return status;
    int64_t until_ns = clock_after_ms(clock_now(), client->settings.close_timeout_ms);
    events_closing(&client->events);
    if (first) {
        slot_spend(&client->slot);
        snprintf(client->driver, sizeof(client->driver), "%s", client->top->module.name);
        give_up_all(client);
    }
    client_count_out(client); /* not client_leave(): still no cancellation point */
    if (first)
        client->clean = drain(client, until_ns) && leave_stack(client, until_ns);
    status = finish(client, until_ns, error);
    client_end_call();
    return status;
}
