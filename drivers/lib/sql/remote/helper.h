/* helper.h - a thread for what a client library cannot do without blocking, such as a TLS handshake: it works on one
 * connection, which nobody else uses until the thread has ended.
 *
 * | state    | the work has ended                      | helper_end(): the time is over, or the client closes     |
 * |----------|-----------------------------------------|------------------------------------------------------------|
 * | RUNNING  | OVER; then done() is called             | CANCELED: the socket is shut down, so whatever the thread waits for ends at once |
 * | CANCELED | done() is not called                    | (in that call, which waits for the end of the thread)      |
 * | OVER     |                                         | freed                                                      |
 *
 * After helper_end() no code of the helper runs, so the module may be unloaded. A task that done() has posted may still be on
 * its way to the pump. Such a task must not refer to a helper, because by then there may be another one, or none. A child after
 * fork() has no such thread, and touches neither it nor the connection (R8).
 *
 * Knows no link. */
#ifndef MORTISE_SQL_HELPER_H
#define MORTISE_SQL_HELPER_H

#include <stdbool.h>

struct helper;

/* Both functions are called on the thread. The caller keeps their arguments until helper_end(). */
struct helper_work {
    bool (*run)(struct helper *helper, void *argument); /* returns whether it succeeded */
    void (*done)(void *argument);
    void *run_argument, *done_argument;
};

/* NULL: no memory, or no thread. */
struct helper *helper_begin(const struct helper_work *work);
/* run() calls it as soon as it has a socket, and before each wait. False: run() must return; the socket has been shut down. */
bool helper_goes_on(struct helper *helper, int fd);
/* True: run() has returned `success`. */
bool helper_is_over(struct helper *helper, bool *success);
void helper_end(struct helper *helper);

#endif
