/* client.h - a client: what mortise_open() returns, and how it lives and ends.
 *
 * A client is in one of five states. client_move() changes it, and nothing else does.
 *
 * | state     | meaning                                                                                  |
 * |-----------|------------------------------------------------------------------------------------------|
 * | ENDED     | there is no client in this slot, or its last callback has returned                       |
 * | OPEN      | calls are served                                                                         |
 * | CLOSING   | one thread closes: it is in mortise_close()                                              |
 * | LINGERING | mortise_close() has returned CLOSING, because callbacks run or wait on other threads     |
 * | LEAVING   | a callback of the client has closed it; its thread runs the callbacks left, and ends it  |
 *
 * | state     | mortise_close() on another thread     | ... in a callback of the client      | no callback is left |
 * |-----------|---------------------------------------|-------------------------------------|---------------------|
 * | ENDED     | returns CLOSED                        |                                     |                     |
 * | OPEN      | CLOSING                               | CLOSING                             |                     |
 * | CLOSING   | waits for close_timeout               | returns CLOSING                     | ENDED, by the closer |
 * | LINGERING | CLOSING                               | CLOSING                             |                     |
 * | LEAVING   | waits for close_timeout               | returns CLOSING; CLOSED in the last | ENDED, by the thread |
 * |           |                                       | callback that is left               | that ran the last   |
 *
 * mortise_open() changes ENDED to OPEN. At the end of close_timeout, CLOSING changes to LINGERING; if the closer runs a
 * callback of this client, it changes CLOSING to LEAVING when it returns.
 *
 * The memory of a client is freed with its last reference. These hold one:
 *
 * | the handle   | from mortise_open() until a close has ended the client, or has left that to a callback     |
 * | the modules  | until they are closed: forever if a thread is stuck in them, or a call does not return     |
 * | the notifier | the thread that runs callbacks                                                            |
 * | a dispatcher | a thread in mortise_dispatch()                                                            |
 *
 * Calls in flight (client.users) are counted separately, because a callback may take longer than a close waits. The thread
 * that ends the client waits for these calls while it still holds its own reference, because a call may be about to take a
 * reference (mortise_dispatch). */
#ifndef MORTISE_CORE_CLIENT_H
#define MORTISE_CORE_CLIENT_H

#include "events/events.h"
#include "lock/locks.h"
#include "modules/loader.h"
#include "pump/pump.h"

/* A thread or request that has not ended this long after its time counts as stuck. */
#define STUCK_MS 1000

enum client_state { CLIENT_ENDED, CLIENT_OPEN, CLIENT_CLOSING, CLIENT_LINGERING, CLIENT_LEAVING };

struct query;

struct client {
    struct slot slot;
    /* these are never reset by a new client in the slot: a caller with an old handle may be counting */
    _Atomic uint32_t users;      /* calls in flight; a futex of the close */
    _Atomic uint32_t references; /* likewise a futex of the close */
    _Atomic uint32_t awaited;    /* threads that wait for `users` or `references` */
    _Atomic uint32_t state;      /* enum client_state; a futex of closes that wait */

    struct locks locks;
    struct pump pump;
    struct events events;
    struct config *config;
    mortise_value *core_values;
    struct loader loader;
    struct instance *top;
    uint32_t capabilities;
    char id[33];
    char driver[32];       /* the name of the driver, for error messages of mortise_close() */
    struct query *queries; /* all that are under way; lock of locks */
    struct task leave;     /* the last request */
    bool clean;            /* the close released everything that was held */
    bool stack_closed;     /* the modules are closed: no thread is in the stack */
};

/* For tests: no threads are started; time, pump and callbacks are driven by hand. */
extern _Atomic bool client_manual;
extern struct slab client_slab;

/* ---- client.c ---- */

/* Counts a call in; OK, CLOSED or FORKED. Every OK is followed by client_leave(). No call is a cancellation point: a
 * thread that ended inside one would take locks with it. Calls may be nested. */
mortise_status client_enter(mortise_client *handle, struct client **client, mortise_error *error);
void client_leave(struct client *client);
/* The two parts of client_leave(). */
void client_count_out(struct client *client);
void client_end_call(void);
/* The second part of client_enter(), alone for a call that enters no client. client_end_call() follows. */
void client_begin_call(void);
/* Like client_enter(), for a client that is closing. The caller may use only its callbacks and its state. */
bool client_enter_closing(mortise_client *handle, struct client **client);
/* The handle belongs to this client, and the client is being closed. Any thread, also when the client is gone. */
bool client_is_closing(struct client *client, const mortise_client *handle);

/* Changes the state, and wakes the threads that wait for a change. False: it was not `from`. */
bool client_move(struct client *client, uint32_t from, uint32_t to);
void client_keep(struct client *client); /* takes one more reference */
void client_drop(struct client *client); /* drops a reference; the last one frees the client */
/* This thread has closed the modules and moved the client to ENDED: returns when no call on the client is in flight. */
void client_wait_for_calls(struct client *client);
/* A thread that ran callbacks drops its reference. If the client was closed in a callback, and this thread ran the last
 * callback, it ends the client. */
void client_leave_callbacks(struct client *client);
/* Waits until `users` or `references` (count) is not larger than `most`. False: at until_ns it still was. */
bool client_wait_for(struct client *client, _Atomic uint32_t *count, uint32_t most,
                     int64_t until_ns);

/* Writes the name, with the namespace before it, to `full` (MORTISE_NAME_MAX + 1 bytes). */
mortise_status client_name(const struct client *client, const char *name, bool may_be_empty,
                           char *full, size_t *length, mortise_error *error);

/* ---- query.c ---- */

/* The client closes: callers that wait for an answer return. */
void queries_cancel_locked(struct client *client);

#endif
