/* log.h - lines for stderr or for mortise_on_log(), written by a thread of their own.
 *
 * A thread that logs never waits for the reader: otherwise a full pipe, a stopped terminal or a slow callback would stop
 * the thread that sends renewals. Lines wait in a buffer of fixed size. If it is full, further lines are dropped and
 * counted, and the count is written as soon as the reader takes lines again. One buffer and one thread for the process;
 * the thread exists while there is something to write. Knows nothing else of the core. */
#ifndef MORTISE_CORE_LOG_H
#define MORTISE_CORE_LOG_H

#include <stdbool.h>
#include <stdint.h>

/* Queues one line; the newline is added. level: 3 error, 4 warning, 6 info. Any thread, any lock. */
void log_line(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Waits until what was queued before is written, but no longer than patience_ms. */
void log_flush(int64_t patience_ms);

bool log_inside(void); /* this thread runs the callback of mortise_on_log() */

/* Around a fork. In the child the buffer is empty: the lines are the parent's. */
void log_before_fork(void);
void log_after_fork(bool in_child);

#endif
