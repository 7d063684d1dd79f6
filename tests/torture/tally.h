/* tally.h - how often each call of a torture process ended with each status, and what it complains of. Any thread. */
#ifndef MORTISE_TESTS_TORTURE_TALLY_H
#define MORTISE_TESTS_TORTURE_TALLY_H

#include <mortise/mortise.h>

#include <stdbool.h>
#include <stdint.h>

enum call { ACQUIRE, RELEASE, NOWAIT, CLOSE, WRITE, READ, DOWNGRADE, CALLS };

/* A write that the storage refuses counts as LOST. */
void count(enum call call, mortise_status status);
/* Counts it, and complains if the call may not end so. Returns the status. */
mortise_status seen(enum call call, const char *name, mortise_status status,
                    const mortise_error *error);
/* The same of an acquire: only one that does not wait is BUSY, and only one that waits for a time is TIMEDOUT. */
mortise_status seen_acquire(const char *name, int64_t wait_ms, mortise_status status,
                            const mortise_error *error);
/* This process is about to call exec: while the kernel ends the other threads, it makes no new ones, so an acquire may end
 * with NOMEM. */
void tally_before_exec(void);
/* Prints what must not happen on stderr at once. */
void complain(const char *what, const char *name, const char *why);
/* "acquire.OK=12 release.LOST=1 ", without a newline. */
void tally_print(void);
bool tally_is_wrong(void); /* something was complained of */

#endif
