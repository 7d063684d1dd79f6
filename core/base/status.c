/* status.c - texts of statuses and the filling of mortise_error. Knows nothing else of the core. */
#include "base/status.h"

#include <stdio.h>
#include <string.h>

const char *mortise_status_text(mortise_status status)
{
    switch (status) {
#define STATUS_CASE(name, code, text)                                                              \
    case MORTISE_##name:                                                                           \
        return text;
        MORTISE_STATUS_MAP(STATUS_CASE)
#undef STATUS_CASE
    }
    return "unknown status";
}

const char *mortise_status_name(mortise_status status)
{
    switch (status) {
#define STATUS_CASE(name, code, text)                                                              \
    case MORTISE_##name:                                                                           \
        return #name;
        MORTISE_STATUS_MAP(STATUS_CASE)
#undef STATUS_CASE
    }
    return "UNKNOWN";
}

const char *mortise_version(void)
{
    return MORTISE_VERSION_TEXT;
}

bool status_retryable(mortise_status status)
{
    switch (status) {
    case MORTISE_BUSY:
    case MORTISE_TIMEDOUT:
    case MORTISE_CANCELED:
    case MORTISE_UNREACHABLE:
    case MORTISE_INDETERMINATE:
    case MORTISE_NOMEM:
        return true;
    default:
        return false;
    }
}

/* The length of the character at `at`, if it ends a line or changes the direction of what is displayed; else 0. */
static size_t misleading(const unsigned char *at)
{
    if (at[0] == 0xc2 && at[1] >= 0x80 && at[1] <= 0x9f) /* C1 controls, U+0085 among them */
        return 2;
    if (at[0] == 0xd8 && at[1] == 0x9c) /* U+061C */
        return 2;
    if (at[0] != 0xe2 || (at[1] != 0x80 && at[1] != 0x81))
        return 0;
    bool marks = at[2] == 0x8e || at[2] == 0x8f;    /* U+200E, U+200F */
    bool lines = at[2] >= 0xa8 && at[2] <= 0xae;    /* U+2028 to U+202E */
    bool isolates = at[2] >= 0xa6 && at[2] <= 0xa9; /* U+2066 to U+2069 */
    return (at[1] == 0x80 ? marks || lines : isolates) ? 3 : 0;
}

void make_one_line(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c != '\0'; c++) {
        size_t length = misleading(c);
        if (*c < ' ' || *c == 127)
            *c = ' ';
        for (size_t i = 0; i < length; i++)
            c[i] = '?';
    }
}

mortise_status failed_with(mortise_error *error, mortise_status status, const char *driver,
                           int32_t native, bool retryable, const char *format, va_list arguments)
{
    if (error == NULL)
        return status;
    error->status = status;
    error->native = native;
    error->retryable = retryable;
    memset(error->reserved, 0, sizeof(error->reserved));
    snprintf(error->driver, sizeof(error->driver), "%s", driver == NULL ? "" : driver);
    vsnprintf(error->message, sizeof(error->message), format, arguments);
    make_one_line(error->message);
    return status;
}

mortise_status failed(mortise_error *error, mortise_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    failed_with(error, status, NULL, 0, status_retryable(status), format, arguments);
    va_end(arguments);
    return status;
}

const char *quote_name(const char *name, size_t name_len, char *buffer, size_t size)
{
    static const char hex[] = "0123456789abcdef";
    static const char cut[] = "...\"";
    size_t used = 0;

    if (size < 16) {
        if (size > 0)
            buffer[0] = '\0';
        return buffer;
    }
    buffer[used++] = '"';
    for (size_t i = 0; i < name_len; i++) {
        unsigned char c = (unsigned char)name[i];
        size_t need = c < ' ' || c >= 127 ? 4 : c == '"' || c == '\\' ? 2 : 1;
        if (used + need + sizeof(cut) > size) {
            memcpy(buffer + used, cut, sizeof(cut));
            return buffer;
        }
        if (need == 4) {
            buffer[used++] = '\\';
            buffer[used++] = 'x';
            buffer[used++] = hex[c >> 4];
            buffer[used++] = hex[c & 15];
        } else {
            if (need == 2)
                buffer[used++] = '\\';
            buffer[used++] = (char)c;
        }
    }
    buffer[used++] = '"';
    buffer[used] = '\0';
    return buffer;
}

void info_terminate(mortise_info *info)
{
    info->name[sizeof(info->name) - 1] = '\0';
    info->owner[sizeof(info->owner) - 1] = '\0';
    info->host[sizeof(info->host) - 1] = '\0';
    info->program[sizeof(info->program) - 1] = '\0';
}
