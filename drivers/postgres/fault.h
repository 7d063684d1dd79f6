/* fault.h - what the server says went wrong. */
#ifndef MORTISE_POSTGRES_FAULT_H
#define MORTISE_POSTGRES_FAULT_H

#include "../lib/sql/dialect.h"

#include <libpq-fe.h>

struct fault {
    struct sql_fault base;
    bool again;  /* the same may succeed at once: send it again */
    bool reset;  /* this connection is of no use: make another */
    bool waited; /* it waited for a row, or for the lock of the notifications, for too long */
    bool loud;   /* without a notification it may succeed */
};

void fault_read(const PGresult *result, struct fault *fault);
mortise_status fault_error(mortise_error *error, mortise_status status, int native, bool retryable,
                           const char *format, ...) __attribute__((format(printf, 5, 6)));
/* One line of what libpq says, which ends its lines, and may say several. */
void fault_line(const char *text, char *line, size_t size);

#endif
