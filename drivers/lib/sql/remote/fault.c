/* fault.c - errors and their texts. No text contains more of a name than its quoted form. */
#include "remote.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

mortise_status fault_error(mortise_error *error, const char *driver, mortise_status status,
                           int native, bool retryable, const char *format, ...)
{
    memset(error, 0, sizeof(*error));
    error->status = status;
    error->native = native;
    error->retryable = retryable;
    snprintf(error->driver, sizeof(error->driver), "%s", driver);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof(error->message), format, arguments);
    va_end(arguments);
    return status;
}

void fault_line(const char *text, char *line, size_t size)
{
    size_t used = 0;
    while (*text == '\n' || *text == ' ')
        text++;
    for (; *text != '\0' && used + 3 < size; text++) {
        bool plain = (unsigned char)*text >= ' ' && *text != 127;
        if (*text == '\n' && text[1] == '\0')
            break;
        if (*text == '\n')
            line[used++] = ';';
        line[used++] = plain ? *text : ' ';
    }
    line[used] = '\0';
}
