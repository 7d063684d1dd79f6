/* close.c - the end of a client: mortise_close(). */
#include "base/futex.h"
#include "base/log.h"
#include "client/client.h"
#include "lock/lease.h"
#include "lock/waitlist.h"

#include <stdio.h>

#define LOG_MS 200 /* how long a close waits for its log lines to be written */

/* Callers that wait fail, and leases are released. */
static void close_name_locked(struct name *name)
{
    struct claim *ending;
    while (name->waitlist != NULL)
        waitlist_leave_locked(name->waitlist->last, MORTISE_CLOSED);
    for (struct claim *claim = name->claims, *next; claim != NULL; claim = next) {
        next = claim->next;
        if (claim->leased)
            lease_release_locked(claim, NULL, &ending);
    }
}

/* Fails the callers that wait, and releases the leases that are held. */
static void give_up_all(struct client *client)
{
    struct locks *locks = &client->locks;
    pthread_mutex_lock(&locks->lock);
    locks->closing = true;
    name_forget_idle_locked(locks);
    while (locks->lone != NULL)
        waitlist_leave_locked(locks->lone->first, MORTISE_CLOSED);
    for (struct name *name = locks->names, *next; name != NULL; name = next) {
        name->references++;
        close_name_locked(name);
        next = name->hh.next;
        name_put_locked(locks, name);
    }
    claims_hurry_locked(locks);
    queries_cancel_locked(client);
    locks_unlock(locks, START_DETACHED);
}

/* Waits until nothing is outstanding. This thread does not enter the stack, because a driver might keep it there (R9). */
static bool wait_drained(struct client *client, int64_t until_ns)
{
    struct locks *locks = &client->locks;
    struct sleeper sleeper;
    sleeper_init(&sleeper, &client->pump);
    pthread_mutex_lock(&locks->lock);
    bool wait = locks->outstanding > 0;
    if (wait)
        locks->drain = &sleeper;
    locks_unlock(locks, START_DETACHED);
    if (wait)
        pump_wait_aside(&client->pump, &sleeper, until_ns);
    pthread_mutex_lock(&locks->lock);
    locks->drain = NULL;
    bool drained = locks->outstanding == 0;
    locks_unlock(locks, START_DETACHED);
    return drained;
}

/* Waits for what is outstanding, and cancels what is left at the end. False: something was left to its ttl. */
static bool drain(struct client *client, int64_t until_ns)
{
    struct locks *locks = &client->locks;
    bool drained = wait_drained(client, until_ns);
    pthread_mutex_lock(&locks->lock);
    claims_abandon_locked(locks);
    locks_unlock(locks, START_DETACHED);
    if (!drained) /* unless the driver is stuck, it completes canceled requests promptly */
        wait_drained(client, clock_after_ms(clock_now(), STUCK_MS));
    pthread_mutex_lock(&locks->lock);
    drained = drained && !locks->left_behind && clock_now() >= locks->left_until_ns;
    locks_unlock(locks, START_DETACHED);
    return drained;
}

static void leave_done(mortise_op *op)
{
    struct client *client =
        (struct client *)(void *)((char *)op - offsetof(struct client, leave.op));
    struct locks *locks = &client->locks;
    pthread_mutex_lock(&locks->lock);
    locks->left_behind |= op->status != MORTISE_OK;
    locks_ended_locked(locks);
    locks_unlock(locks, START_NOW);
}

/* The last request: a plugin removes what it has of its own in the backend. False: something was left to its ttl. */
static bool leave_stack(struct client *client, int64_t until_ns)
{
    struct locks *locks = &client->locks;
    if (client->top->module.leave == NULL)
        return true;
    client->leave.op.kind = OP_LEAVE;
    client->leave.op.core_state = OP_IDLE;
    client->leave.op.done = leave_done;
    client->leave.unattended = true;
    pthread_mutex_lock(&locks->lock);
    locks_began_locked(locks);
    locks_start_locked(locks, &client->leave);
    locks_unlock(locks, START_DETACHED);
    bool answered = wait_drained(client, until_ns);
    if (!answered) {
        pthread_mutex_lock(&locks->lock);
        locks_cancel_locked(locks, &client->leave);
        locks_unlock(locks, START_DETACHED);
        answered = wait_drained(client, clock_after_ms(clock_now(), STUCK_MS));
    }
    pthread_mutex_lock(&locks->lock);
    bool clean = answered && !locks->left_behind;
    locks_unlock(locks, START_DETACHED);
    return clean;
}

/* No call is in flight any more. A thread that had stood still in the stack may have left cancels on the list, or brought
 * answers that led to new requests, which are not canceled yet. The modules get all these cancels before they are closed
 * (driver.h). */
static void cancel_rest(struct client *client, int64_t until_ns)
{
    struct locks *locks = &client->locks;
    pthread_mutex_lock(&locks->lock);
    bool is_left = locks->outstanding > 0;
    if (is_left)
        claims_abandon_locked(locks);
    locks_unlock(locks, START_DETACHED);
    if (is_left)
        wait_drained(client, until_ns);
}

/* No thread is in the stack any more. If one came back only now, it has left such cancels and requests (cancel_rest()), and no
 * other thread is there to handle them. So this thread enters the stack. There, the end of an acquire may begin a release, which
 * is canceled in turn. */
static void cancel_last(struct client *client)
{
    struct locks *locks = &client->locks;
    enum { ROUNDS = 3 };
    bool is_left = true;
    for (int i = 0; i < ROUNDS && is_left; i++) {
        pthread_mutex_lock(&locks->lock);
        is_left = locks->outstanding > 0;
        if (is_left)
            claims_abandon_locked(locks);
        locks_unlock(locks, START_DETACHED);
        if (is_left)
            pump_kick(&client->pump);
    }
}

/* Closes the modules when no thread is in them and no call on the client is in flight, and drops their reference.
 * False: a thread is stuck there, or a call has not returned. */
static bool close_stack(struct client *client, int64_t until_ns)
{
    if (client->stack_closed)
        return true;
    int64_t stuck_ns = clock_after_ms(clock_now(), STUCK_MS);
    if (client->clean && until_ns > stuck_ns)
        stuck_ns = until_ns; /* the driver has answered everything: its thread is only late */
    bool left = client_wait_for(client, &client->users, 0, stuck_ns);
    int64_t stop_ns =
        clock_after_ms(clock_now(), STUCK_MS); /* that wait may have used up stuck_ns */
    if (stop_ns < stuck_ns)
        stop_ns = stuck_ns;
    bool watched = watchdog_stop(&client->locks, stop_ns);
    if (left && watched)
        cancel_rest(client, stop_ns);
    bool stopped = pump_stop(&client->pump, stop_ns);
    if (!left || !watched || !stopped)
        return false;
    cancel_last(client);
    link_end(&client->locks.witness, client->locks.area.in_use == 0);
    area_drop(&client->locks.area);
    loader_close_all(&client->loader);
    client->stack_closed = true;
    client_drop(client); /* not the last reference: the close has that of the handle */
    return true;
}

/* ---- mortise_close() ---- */

/* The status of a close after which no callback runs. */
static mortise_status closed(const struct client *client, mortise_error *error)
{
    if (!client->clean)
        return failed(
            error, MORTISE_UNREACHABLE,
            "close: driver %s could not release everything in time; the rest ends with its ttl",
            client->driver);
    if (!client->stack_closed)
        return failed(
            error, MORTISE_UNREACHABLE,
            "close: a call on the client, or in driver %s, has not returned; what it uses is left "
            "open",
            client->driver);
    return MORTISE_OK;
}

/* This thread runs a callback of the client: the client ends after that callback. */
static mortise_status leave_to_callback(struct client *client, mortise_error *error)
{
    mortise_status status = events_last_here(&client->events)
                                ? closed(client, error)
                                : failed(error, MORTISE_CLOSING,
                                         "close: callbacks that wait run when the one that closes "
                                         "has returned");
    client_move(client, CLIENT_CLOSING, CLIENT_LEAVING);
    client_drop(client); /* not the last reference: a thread that runs callbacks has one */
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

/* The last part of a close, when nothing is outstanding any more. If callbacks are left, the next close repeats it. */
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
    close_stack(client, until_ns); /* a call may have waited for a callback that is over now */
    mortise_status status = closed(client, error);
    end_client(client);
    return status;
}

/* Waits while another thread closes the client. */
static void wait_for_closer(mortise_client *handle, struct client *client, int64_t until_ns)
{
    uint32_t state = atomic_load(&client->state);
    if (state != CLIENT_LINGERING && client_is_closing(client, handle))
        futex_sleep_while(&client->state, state, until_ns);
}

/* Takes over a client whose close ended with CLOSING, and counts this call in. If another thread closes the client, this
 * call waits for the outcome, and returns CLOSING while callbacks may still run. It does not wait inside a callback, because
 * the other thread may be waiting for that callback. */
static mortise_status take_over(mortise_client *handle, struct client **client,
                                mortise_error *error)
{
    for (int64_t until_ns = 0; client_enter_closing(handle, client);) {
        if (client_move(*client, CLIENT_LINGERING, CLIENT_CLOSING))
            return MORTISE_OK;
        if (until_ns == 0)
            until_ns = clock_after_ms(clock_now(), (*client)->locks.settings.close_timeout_ms);
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
    return failed(error, MORTISE_CLOSED, "the client was closed: open another one");
}

mortise_status mortise_close(mortise_client *handle, mortise_error *error)
{
    struct client *client;
    mortise_error refusal; /* not *error: a close that takes over may succeed */
    mortise_status status = client_enter(handle, &client, &refusal);
    bool first = status == MORTISE_OK && client_move(client, CLIENT_OPEN, CLIENT_CLOSING);
    if (status == MORTISE_OK && !first) {
        client_leave(client);
        status = MORTISE_CLOSED;
    }
    if (status == MORTISE_CLOSED)
        status = take_over(handle, &client, error);
    else if (status != MORTISE_OK && error != NULL)
        *error = refusal;
    if (status != MORTISE_OK)
        return status;
    int64_t until_ns = clock_after_ms(clock_now(), client->locks.settings.close_timeout_ms);
    events_closing(&client->events);
    if (first) {
        pump_closing(&client->pump);
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
