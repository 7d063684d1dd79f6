/* fault.c - what the server says went wrong, as statuses of Mortise and as lines that a person can act on.
 * None holds more of a name than its quoted form. */
#include "fault.h"

#include <errmsg.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

mortise_status fault_error(mortise_error *error, mortise_status status, int native, bool retryable,
                           const char *format, ...)
{
    memset(error, 0, sizeof(*error));
    error->status = status;
    error->native = native;
    error->retryable = retryable;
    snprintf(error->driver, sizeof(error->driver), "mysql");
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof(error->message), format, arguments);
    va_end(arguments);
    return status;
}

enum { AGAIN = 1, RESET = 2, WAITED = 4, UNDONE = 8, REPEATABLE = 16 };

static const struct {
    unsigned number;
    mortise_status status;
    bool retryable;
    unsigned flags;
    const char *text; /* NULL: the server's own */
} faults[] = {
    /* a statement */
    {1213, MORTISE_UNREACHABLE, true, AGAIN | UNDONE, "too many deadlocks"},
    {1020, MORTISE_UNREACHABLE, true, AGAIN | UNDONE, "too many serialization failures"},
    {1205, MORTISE_UNREACHABLE, true, WAITED, "another session keeps the row locked"},
    {1317, MORTISE_UNREACHABLE, true, AGAIN, "the statement was canceled"},
    {1969, MORTISE_UNREACHABLE, true, 0, "the statement took longer than command_timeout"},
    {1290, MORTISE_UNREACHABLE, true, RESET, "the server is read-only"},
    {1792, MORTISE_UNREACHABLE, true, RESET, "transactions are read-only"},
    {1836, MORTISE_UNREACHABLE, true, RESET, "the server is read-only"},
    {1665, MORTISE_UNREACHABLE, true, AGAIN | RESET | REPEATABLE, NULL},
    {1146, MORTISE_UNREACHABLE, true, RESET, "the tables are gone"},
    {1114, MORTISE_BACKEND, true, 0, "the server's disk is full"},
    {1021, MORTISE_BACKEND, true, 0, "the server's disk is full"},
    {1041, MORTISE_BACKEND, true, 0, NULL},
    {1030, MORTISE_BACKEND, true, 0, NULL},
    {1026, MORTISE_BACKEND, true, 0, NULL},
    {1047, MORTISE_UNREACHABLE, true, RESET, NULL}, /* a node of Galera that is not ready */
    {1053, MORTISE_UNREACHABLE, true, RESET, NULL}, /* shutdown */
    {1927, MORTISE_UNREACHABLE, true, RESET, "the connection was killed"},
    {4031, MORTISE_UNREACHABLE, true, RESET, NULL}, /* idle for wait_timeout */
    /* a new connection */
    {1040, MORTISE_UNREACHABLE, true, RESET,
     "the server has too many connections (max_connections)"},
    {1203, MORTISE_UNREACHABLE, true, RESET, NULL},
    {1226, MORTISE_UNREACHABLE, true, RESET, NULL},
    {1129, MORTISE_UNREACHABLE, true, RESET, NULL},
    {1045, MORTISE_UNREACHABLE, true, RESET, NULL}, /* access denied */
    {1698, MORTISE_UNREACHABLE, true, RESET, NULL},
    {1044, MORTISE_BACKEND, false, RESET, NULL},
    {1049, MORTISE_BACKEND, false, RESET, NULL}, /* no such database */
};

/* One line. */
static void copy_line(const char *text, char *line, size_t size)
{
    size_t len = 0;
    for (; *text != '\0' && len + 1 < size; text++)
        line[len++] = (unsigned char)*text < ' ' || *text == 127 ? ' ' : *text;
    line[len] = '\0';
}

void fault_read(MYSQL *mysql, struct fault *fault)
{
    unsigned number = mysql_errno(mysql);
    *fault = (struct fault){.base.status = MORTISE_BACKEND, .base.native = (int)number};
    copy_line(mysql_error(mysql), fault->base.text, sizeof(fault->base.text));
    if (number == 0 || (number >= CR_MIN_ERROR && number <= CR_MAX_ERROR) ||
        (number >= 5000 && number < 6000)) { /* libmariadb's own: the connection is gone */
        fault->base.status = MORTISE_UNREACHABLE;
        fault->base.retryable = fault->reset = true;
    }
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        unsigned flags = faults[i].flags;
        if (faults[i].number != number)
            continue;
        fault->base.status = faults[i].status;
        fault->base.retryable = faults[i].retryable;
        fault->again = (flags & AGAIN) != 0;
        fault->reset = (flags & RESET) != 0;
        fault->waited = (flags & WAITED) != 0;
        fault->undone = (flags & UNDONE) != 0;
        fault->repeatable = (flags & REPEATABLE) != 0;
        if (faults[i].text != NULL)
            snprintf(fault->base.text, sizeof(fault->base.text), "%s", faults[i].text);
        return;
    }
}
