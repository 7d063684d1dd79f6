/* ping.h - the line that answers a ping grows at its end: a driver adds what it finds, each " | risk: …" or " | note: …"
 * (driver.h, MORTISE_OP_PING). */
#ifndef MORTISE_LIB_PING_H
#define MORTISE_LIB_PING_H

#include <mortise/driver.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* What does not fit is cut off. op->buffer holds a text. */
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

#endif
