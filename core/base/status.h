/* status.h - texts of statuses and the filling of mortise_error. */
#ifndef MORTISE_CORE_STATUS_H
#define MORTISE_CORE_STATUS_H

#include <mortise/driver.h>

#include <stdarg.h>

/* Fills *error (may be NULL) and returns status: `return failed(error, MORTISE_INVALID, "…", …)`. */
mortise_status failed(mortise_error *error, mortise_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same with all fields: driver (may be NULL), native code, retryable. */
mortise_status failed_with(mortise_error *error, mortise_status status, const char *driver,
                           int32_t native, bool retryable, const char *format, va_list arguments)
    __attribute__((format(printf, 6, 0)));
/* Whether the same call may succeed later without anything being changed. */
bool status_retryable(mortise_status status);
/* name as one printable quoted line, foreign bytes as \xNN, cut to fit with "…"; returns buffer. */
const char *quote_name(const char *name, size_t name_len, char *buffer, size_t size);
/* Room for a quoted name in a message. */
#define QUOTED_SIZE 160

/* Makes one line of text that came from elsewhere: control characters become blanks, characters that end a line or
 * change the direction of the text become question marks. */
void make_one_line(char *text);

/* Terminates the texts, in case a module did not. */
void info_terminate(mortise_info *info);

#endif
