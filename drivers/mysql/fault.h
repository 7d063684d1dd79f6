/* fault.h - what the server, or libmariadb, says went wrong. */
#ifndef MORTISE_MYSQL_FAULT_H
#define MORTISE_MYSQL_FAULT_H

#include "../lib/sql/dialect.h"

#include <mysql.h>

struct fault {
    struct sql_fault base;
    bool again;      /* the same may succeed at once: send it again */
    bool reset;      /* this connection is of no use: make another */
    bool waited;     /* it waited for a row for too long */
    bool undone;     /* if it was the COMMIT that failed: the transaction was rolled back */
    bool repeatable; /* the server's log needs REPEATABLE READ */
};

void fault_read(MYSQL *mysql, struct fault *fault);
mortise_status fault_error(mortise_error *error, mortise_status status, int native, bool retryable,
                           const char *format, ...) __attribute__((format(printf, 5, 6)));

#endif
