/* helper.h - a thread for what a client library cannot do without blocking, such as a TLS handshake: it works on one connection,
 * of which nobody else knows until it has ended.
 *
 * | state    | the work has ended                      | helper_end(): the time is over, or the client closes     |
 * |----------|-----------------------------------------|------------------------------------------------------------|
 * | RUNNING  | OVER; then done() is called             | CANCELED: the socket is shut down, so whatever the thread waits for ends at once |
 * | CANCELED | done() is not called                    | (in that call, which waits for the end of the thread)      |
 * | OVER     |                                         | freed                                                      |
 *
 * After helper_end() nothing of it runs, so the module may be unloaded. What done() has posted may still be on its way to the
 * pump: it must name no helper, because it finds another one, or none. A child after fork() has no such thread, and touches
 * neither it nor the connection (R8).
 *
 * Knows no link. */
#ifndef MORTISE_SQL_HELPER_H
#define MORTISE_SQL_HELPER_H

#include <stdbool.h>

struct helper;

/* On the thread, but for `work` and `argument`, which the caller keeps until helper_end(). */
struct helper_work {
    bool (*run)(struct helper *helper, void *argument); /* returns whether it succeeded */
    void (*done)(void *argument);
    void *run_argument, *done_argument;
};

/* NULL: no memory, or no thread. */
struct helper *helper_begin(const struct helper_work *work);
/* run() calls it as soon as it has a socket, and before each wait. False: it is to end. It has shut the socket down then. */
bool helper_goes_on(struct helper *helper, int fd);
/* True: run() has returned `success`. */
bool helper_is_over(struct helper *helper, bool *success);
void helper_end(struct helper *helper);

#endif
