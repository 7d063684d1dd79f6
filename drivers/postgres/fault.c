/* fault.c - turns the server's errors into statuses of Mortise, and into lines that a person can act on. None
 * contains more of a name than its quoted form. */
#include "driver.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *state; /* five letters, or the two of a class */
    mortise_status status;
    bool retryable;
    unsigned flags;
    const char *text;
} faults[] = {
    {"40001", MORTISE_UNREACHABLE, true, FAULT_AGAIN, "too many serialization failures"},
    {"40P01", MORTISE_UNREACHABLE, true, FAULT_AGAIN, "too many deadlocks"},
    {"55P03", MORTISE_UNREACHABLE, true, FAULT_WAITED, "another session keeps the row locked"},
    {"57014", MORTISE_UNREACHABLE, true, 0, "the statement was canceled"},
    {"25001", MORTISE_UNREACHABLE, true, FAULT_RESET, /* sql_settings */
     "transactions are read-only; is it a standby, or default_transaction_read_only on?"},
    {"25006", MORTISE_UNREACHABLE, true, FAULT_RESET,
     "transactions are read-only; is it a standby, or default_transaction_read_only on?"},
    {"22012", MORTISE_UNREACHABLE, true, FAULT_AGAIN | FAULT_RESET,
     "it took too long to reach the server"},
    {"25P02", MORTISE_UNREACHABLE, true, FAULT_AGAIN | FAULT_RESET, "the transaction had failed"},
    {"26000", MORTISE_UNREACHABLE, true, FAULT_AGAIN | FAULT_RESET,
     "prepared statements are lost; is there a pooler? (pooler = yes)"},
    {"0A000", MORTISE_UNREACHABLE, true, FAULT_AGAIN | FAULT_RESET,
     NULL}, /* cached plan: altered table */
    {"42P01", MORTISE_UNREACHABLE, true, FAULT_RESET, "the tables are gone"},
    {"42501", MORTISE_BACKEND, false, 0, NULL},
    {"53100", MORTISE_BACKEND, true, 0, "the server's disk is full"},
    {"53", MORTISE_BACKEND, true, 0, NULL},
    {"54000", MORTISE_BACKEND, true, FAULT_AGAIN | FAULT_LOUD,
     NULL}, /* too many notifications in the queue */
    {"57P", MORTISE_UNREACHABLE, true, FAULT_RESET, NULL},
    {"08", MORTISE_UNREACHABLE, true, FAULT_RESET, NULL},
    {"58", MORTISE_BACKEND, true, 0, NULL},
};

/* Five letters of six bits each, as in the server's own sources. */
static int pack_state(const char *state)
{
    int packed = 0;
    for (int i = 0; i < 5 && state[i] != '\0'; i++)
        packed |= (state[i] - '0') << (6 * i);
    return packed;
}

static void describe(const char *state, struct fault *fault)
{
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        if (strncmp(faults[i].state, state, strlen(faults[i].state)) != 0)
            continue;
        fault->base.status = faults[i].status;
        fault->base.retryable = faults[i].retryable;
        fault->flags = faults[i].flags;
        if (faults[i].text != NULL)
            snprintf(fault->base.text, sizeof(fault->base.text), "%s", faults[i].text);
        return;
    }
}

/* This session is over, whatever the request was. So no such error is a reason to give the request up. */
static void end_session(struct fault *fault)
{
    fault->flags |= FAULT_RESET;
    if (fault->base.retryable)
        return;
    fault->base.status = MORTISE_UNREACHABLE;
    fault->base.retryable = true;
}

void fault_read(const PGresult *result, struct fault *fault)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    *fault = (struct fault){.base.status = MORTISE_BACKEND};
    fault_line(text != NULL ? text : PQresultErrorMessage(result), fault->base.text,
               sizeof(fault->base.text));
    if (state != NULL) {
        fault->base.native = pack_state(state);
        describe(state, fault);
    } else { /* an error of libpq itself: the connection is gone */
        fault->base.status = MORTISE_UNREACHABLE;
        fault->base.retryable = true;
        fault->flags = FAULT_RESET;
    }
    if (severity != NULL && (strcmp(severity, "FATAL") == 0 || strcmp(severity, "PANIC") == 0))
        end_session(fault);
}
