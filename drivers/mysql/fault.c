/* fault.c - turns the server's errors into statuses of Mortise, and into lines that a person can act on. None
 * contains more of a name than its quoted form. */
#include "driver.h"

#include <errmsg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    unsigned number;
    mortise_status status;
    bool retryable;
    unsigned flags;
    const char *text; /* NULL: the server's own; with a ; in front: behind the server's own */
} faults[] = {
    /* a statement */
    {1213, MORTISE_UNREACHABLE, true, FAULT_AGAIN | FAULT_UNDONE, "too many deadlocks"},
    {1020, MORTISE_UNREACHABLE, true, FAULT_AGAIN | FAULT_UNDONE,
     "too many serialization failures"},
    {3101, MORTISE_UNREACHABLE, true, FAULT_AGAIN | FAULT_UNDONE,
     "too many certification failures"}, /* Group Replication */
    {1205, MORTISE_UNREACHABLE, true, FAULT_WAITED, "another session keeps the row locked"},
    {1317, MORTISE_UNREACHABLE, true, FAULT_AGAIN, "the statement was canceled"},
    {1969, MORTISE_UNREACHABLE, true, 0, "the statement took longer than command_timeout"},
    {1290, MORTISE_UNREACHABLE, true, FAULT_RESET, "the server is read-only"},
    {1792, MORTISE_UNREACHABLE, true, FAULT_RESET, "transactions are read-only"},
    {1836, MORTISE_UNREACHABLE, true, FAULT_RESET, "the server is read-only"},
    {1146, MORTISE_UNREACHABLE, true, FAULT_RESET, "the tables are gone"},
    {1114, MORTISE_BACKEND, true, 0, "the server's disk is full"},
    {1021, MORTISE_BACKEND, true, 0, "the server's disk is full"},
    {1041, MORTISE_BACKEND, true, 0, NULL}, /* no memory; also of a new connection */
    {1037, MORTISE_BACKEND, true, 0, NULL}, /* likewise */
    {1038, MORTISE_BACKEND, true, 0, NULL}, /* no memory to sort */
    {1206, MORTISE_BACKEND, true, 0, NULL}, /* too many locks */
    {1637, MORTISE_BACKEND, true, 0, NULL}, /* too many transactions */
    {1030, MORTISE_BACKEND, true, 0, NULL},
    {1026, MORTISE_BACKEND, true, 0, NULL},
    {1047, MORTISE_UNREACHABLE, true, FAULT_RESET, NULL}, /* a node of Galera that is not ready */
    {1053, MORTISE_UNREACHABLE, true, FAULT_RESET, NULL}, /* shutdown */
    {3032, MORTISE_UNREACHABLE, true, FAULT_RESET, "the server is in offline mode"},
    {1180, MORTISE_UNREACHABLE, true, FAULT_RESET, NULL}, /* the commit failed */
    /* a member of Group Replication that leaves the group; or a new primary, while it applies what it has received */
    {3100, MORTISE_UNREACHABLE, true, FAULT_RESET, NULL},
    {3781, MORTISE_UNREACHABLE, true, FAULT_RESET, NULL},
    {3782, MORTISE_UNREACHABLE, true, FAULT_RESET, NULL},
    {3783, MORTISE_UNREACHABLE, true, FAULT_RESET, NULL},
    {1927, MORTISE_UNREACHABLE, true, FAULT_RESET, "the connection was killed"},
    {4031, MORTISE_UNREACHABLE, true, FAULT_RESET, NULL}, /* idle for wait_timeout */
    /* a new connection */
    {1040, MORTISE_UNREACHABLE, true, FAULT_RESET,
     "the server has too many connections (max_connections)"},
    {1203, MORTISE_UNREACHABLE, true, FAULT_RESET, NULL},
    {1226, MORTISE_UNREACHABLE, true, FAULT_RESET, NULL},
    {1135, MORTISE_UNREACHABLE, true, FAULT_RESET, NULL}, /* the server can make no thread */
    {1042, MORTISE_UNREACHABLE, true, FAULT_RESET, NULL}, /* it cannot tell who connects */
    {1043, MORTISE_UNREACHABLE, true, FAULT_RESET, NULL}, /* a handshake too slow, or senseless */
    {1158, MORTISE_UNREACHABLE, true, FAULT_RESET, NULL}, /* its network, as the next three */
    {1159, MORTISE_UNREACHABLE, true, FAULT_RESET, NULL},
    {1160, MORTISE_UNREACHABLE, true, FAULT_RESET, NULL},
    {1161, MORTISE_UNREACHABLE, true, FAULT_RESET, NULL},
    {1129, MORTISE_UNREACHABLE, true, FAULT_RESET, NULL},
    {1045, MORTISE_UNREACHABLE, true, FAULT_RESET, "; check user and password"}, /* access denied */
    {1698, MORTISE_UNREACHABLE, true, FAULT_RESET, "; check user and password"},
    {1044, MORTISE_BACKEND, false, FAULT_RESET,
     "; create the database, or grant the user rights on it"},
    {1049, MORTISE_BACKEND, false, FAULT_RESET,
     "; create it, or set database"}, /* no such database */
    {1142, MORTISE_BACKEND, false, 0,
     "; grant this user SELECT, INSERT, UPDATE and DELETE on the tables"}, /* command denied for a table */
    {CR_CONN_HOST_ERROR, MORTISE_UNREACHABLE, true, FAULT_RESET, "; does a server run there?"},
    {CR_CONNECTION_ERROR, MORTISE_UNREACHABLE, true, FAULT_RESET, "; does a server run there?"},
};

void fault_read(MYSQL *mysql, struct fault *fault)
{
    unsigned number = mysql_errno(mysql);
    *fault = (struct fault){.base.status = MORTISE_BACKEND, .base.native = (int)number};
    fault_line(mysql_error(mysql), fault->base.text, sizeof(fault->base.text));
    if (number == 0 || (number >= CR_MIN_ERROR && number <= CR_MAX_ERROR) ||
        (number >= 5000 && number < 6000)) { /* libmariadb's own: the connection is gone */
        fault->base.status = MORTISE_UNREACHABLE;
        fault->base.retryable = true;
        fault->flags = FAULT_RESET;
    }
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        if (faults[i].number != number)
            continue;
        fault->base.status = faults[i].status;
        fault->base.retryable = faults[i].retryable;
        fault->flags = faults[i].flags;
        size_t used = 0;
        if (faults[i].text != NULL && faults[i].text[0] == ';')
            used = strlen(fault->base.text);
        if (faults[i].text != NULL)
            snprintf(fault->base.text + used, sizeof(fault->base.text) - used, "%s",
                     faults[i].text);
        return;
    }
}
