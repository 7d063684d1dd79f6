/* log.h - lines for stderr, written by a thread of their own.
 *
 * Nobody who logs ever waits for the reader of stderr: a full pipe, or a stopped terminal, would otherwise stop the
 * thread that carries renewals. Lines wait in a buffer of fixed size. If it is full, further lines are dropped and
 * counted, and the count is written as soon as stderr takes bytes again. One buffer and one thread for the process;
 * the thread exists while there is something to write. Knows nothing else of the core. */
#ifndef MORTISE_CORE_LOG_H
#define MORTISE_CORE_LOG_H

#include <stdbool.h>
#include <stdint.h>

/* Queues one line; the newline is added. Any thread, any lock. */
void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Waits until what was queued before is written, but no longer than patience_ms. */
void log_flush(int64_t patience_ms);

/* Around a fork. In the child the buffer is empty: the lines are the parent's. */
void log_before_fork(void);
void log_after_fork(bool in_child);

#endif
