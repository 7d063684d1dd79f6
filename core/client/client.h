/* client.h - the life of a client, and what client.c, open.c, close.c, dispatch.c and watchdog.c share.
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
 * | the modules  | until they are closed: for ever if a thread is stuck in them, or a call does not return    |
 * | the notifier | the thread that runs callbacks                                                            |
 * | a dispatcher | a thread in mortise_dispatch()                                                            |
 *
 * Calls in flight (client.users) are counted apart, because a callback may take longer than a close waits. Whoever ends the
 * client waits for these calls while it holds its reference: a call may be about to take one (mortise_dispatch). */
#ifndef MORTISE_CORE_CLIENT_H
#define MORTISE_CORE_CLIENT_H

#include "client/core.h"

#define STUCK_MS 1000 /* what has not ended after its time and this much more is stuck */

enum client_state { CLIENT_ENDED, CLIENT_OPEN, CLIENT_CLOSING, CLIENT_LINGERING, CLIENT_LEAVING };

/* Changes the state, and wakes the threads that wait for a change. False: it was not `from`. */
bool client_move(struct client *client, uint32_t from, uint32_t to);

void client_keep(struct client *client); /* takes one more reference */
void client_drop(struct client *client); /* gives one back; the last one frees the client */
/* The modules were closed, and the client was moved to ENDED by this thread: returns when no call on it is in flight. */
void client_wait_for_calls(struct client *client);
/* A thread that ran callbacks gives back its reference. If a callback has closed the client, and no other one is left, the
 * thread ends the client. */
void client_leave_callbacks(struct client *client);

/* No call is a cancellation point: a thread that is canceled inside one would keep its locks for ever. Calls may nest. */
void client_begin_call(void);
void client_end_call(void);
/* client_leave() without the end of the call. */
void client_count_out(struct client *client);
/* As client_enter(), for a client that is being closed: only its callbacks and its state may be used. */
bool client_enter_closing(mortise_client *handle, struct client **client);
/* The handle is one of this client, and the client is being closed. Any thread, also when the client is gone. */
bool client_is_closing(struct client *client, const mortise_client *handle);
/* Sleeps, until it is woken, while the word has this value; false: it is until_ns already. */
bool client_sleep_while(_Atomic uint32_t *word, uint32_t value, int64_t until_ns);
/* Waits until one of the two counts is not larger than `most`; false: it is until_ns, and it still is. */
bool client_wait_for(struct client *client, _Atomic uint32_t *count, uint32_t most,
                     int64_t until_ns);

#endif
