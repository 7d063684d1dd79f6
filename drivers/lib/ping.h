/* ping.h - a driver appends its findings to the line that answers a ping, each as " | risk: …" or " | note: …"
 * (driver.h, MORTISE_OP_PING). */
#ifndef MORTISE_LIB_PING_H
#define MORTISE_LIB_PING_H

#include <mortise/driver.h>

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Cuts off what does not fit. op->buffer must hold a text already. */
__attribute__((format(printf, 2, 3))) static inline void ping_add(const mortise_op *op,
                                                                  const char *format, ...)
{
    char *text = op->buffer;
    const size_t used = strlen(text);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text + used, op->buffer_size - used, format, arguments);
    va_end(arguments);
}

/* How far a server's clock, by which claims end, is ahead of this host's. A second is exact enough for a reader who compares
 * two logs. */
static inline void ping_add_clock(const mortise_op *op, int64_t ahead_s)
{
    if (ahead_s > 2 || ahead_s < -2)
        ping_add(
            op,
            " | note: the server's clock is %" PRId64
            " s ahead of this host's: the times in logs differ; let NTP slew the clocks, because a "
            "step forward of the server's clock frees locks that are held",
            ahead_s);
}

#endif
