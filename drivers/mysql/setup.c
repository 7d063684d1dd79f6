/* setup.c - a new connection: makes its settings, finds out which server it is, and checks whether the tables exist and are
 * ours. This takes two round trips; once in the life of a database it takes one or two more, to make the tables. See SETUP in
 * protocol.md for what is refused, and why. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The statements of sql_settings and of sql_identify, in their order. */
enum { AT_ISOLATION, AT_SETTINGS, AT_IDENTITY, AT_VARIABLES, AT_TABLES };
enum { TABLES = 3 };
/* What must have been seen when a phase ends. A server that omits one of these is no MySQL server. */
enum { SEEN_IDENTITY = 1, SEEN_VARIABLES = 2, SEEN_TABLES = 4, SEEN_LAYOUT = 8 };

static void refuse(struct link *link, mortise_status status, bool retryable, const char *why)
{
    link_failed_why(link, status, retryable, why);
}

static void write_identify(struct link *link)
{
    struct values values = {.count = 0};
    int64_t statement_s = (link->remote->command_ms + 999) / 1000;
    value_number(&values, 1);
    value_number(&values, statement_s);
    text_fill(&my_link(link)->out, sql_settings, &values);
    text_string(&my_link(link)->out, ";");
    text_string(&my_link(link)->out, sql_identify);
}

static void write_make(struct link *link)
{
    for (size_t i = 0; i < sql_make_count; i++) {
        text_string(&my_link(link)->out, i > 0 ? ";" : "");
        text_string(&my_link(link)->out, sql_make[i]);
    }
}

static void write_layout(struct link *link)
{
    if (my_link(link)->galera) {
        text_string(&my_link(link)->out, sql_galera);
        text_string(&my_link(link)->out, ";");
    }
    text_string(&my_link(link)->out, sql_layout);
}

static bool begin(struct link *link, enum setup_phase phase)
{
    my_link(link)->phase = phase;
    my_link(link)->setup_at = 0;
    text_clear(&my_link(link)->out);
    if (phase == SETUP_IDENTIFY)
        write_identify(link);
    else if (phase == SETUP_MAKE)
        write_make(link);
    else
        write_layout(link);
    if (my_link(link)->out.failed) {
        refuse(link, MORTISE_NOMEM, true, "out of memory");
        return false;
    }
    return setup_event(
        link, conn_query(&my_link(link)->conn, my_link(link)->out.bytes, my_link(link)->out.len));
}

void setup_begin(struct link *link)
{
    link_set_up(link, false);
    my_link(link)->seen = 0;
    my_link(link)->galera = my_link(link)->lacks_tables = my_link(link)->made_tables = false;
    begin(link, SETUP_IDENTIFY);
}

/* ---- which server it is ------------------------------------------------------------------------ */

static bool is_number(const char *value)
{
    return value[0] != '\0' && value[strspn(value, "0123456789")] == '\0';
}

/* Whether the text fits. A text that was cut off would not be found in the list of sessions, as if that session were gone. */
static bool fits(char *to, size_t size, const char *text)
{
    return (size_t)snprintf(to, size, "%s", text) < size;
}

/* Behind a proxy that shares connections, nobody knows which of the server's sessions executes our statements, or which
 * session a lost one was. */
static bool take_identity(struct link *link, MYSQL_ROW row)
{
    if (row == NULL || row[0] == NULL || row[1] == NULL || row[2] == NULL || row[3] == NULL) {
        refuse(link, MORTISE_BACKEND, false, "the server does not show this user its own session");
        return false;
    }
    if (!is_number(row[0])) {
        refuse(link, MORTISE_UNREACHABLE, true, "the server's answer makes no sense: no session");
        return false;
    }
    link->session.id = (int64_t)strtoul(row[0], NULL, 10);
    if (!fits(link->session.peer, sizeof(link->session.peer), row[2]) ||
        !fits(link->session.server, sizeof(link->session.server), row[3])) {
        refuse(link, MORTISE_UNREACHABLE, true,
               "the server's answer makes no sense: a host with a longer name than there is");
        return false;
    }
    if ((unsigned long)link->session.id == mysql_thread_id(my_link(link)->conn.mysql))
        return true;
    refuse(link, MORTISE_CONFIG, false,
           "there is a proxy that shares connections (ProxySQL, MaxScale) before the server; the "
           "driver needs connections of its own");
    return false;
}

static bool is_on(const char *value)
{
    return strcmp(value, "0") != 0 && strcmp(value, "OFF") != 0;
}

struct variables {
    bool read_only, binlog, by_statement, galera;
    char flush[8], sync[8];
};

static void take_variable(struct variables *variables, const char *name, const char *value)
{
    if (strcmp(name, "read_only") == 0 || strcmp(name, "innodb_read_only") == 0)
        variables->read_only = variables->read_only || is_on(value);
    else if (strcmp(name, "wsrep_on") == 0)
        variables->galera = is_on(value);
    else if (strcmp(name, "log_bin") == 0)
        variables->binlog = is_on(value);
    else if (strcmp(name, "binlog_format") == 0) /* of this session, which keeps it */
        variables->by_statement = strcmp(value, "STATEMENT") == 0;
    else if (strcmp(name, "innodb_flush_log_at_trx_commit") == 0)
        snprintf(variables->flush, sizeof(variables->flush), "%.6s", value);
    else if (strcmp(name, "sync_binlog") == 0)
        snprintf(variables->sync, sizeof(variables->sync), "%.6s", value);
}

/* Notes whether the server's commits survive a crash of its host. False: the server does not report it. */
static bool note_durability(struct driver *driver, const struct variables *variables)
{
    const char *name = "innodb_flush_log_at_trx_commit", *value = variables->flush;
    if (strcmp(value, "1") == 0 && variables->binlog) {
        name = "sync_binlog";
        value = variables->sync;
    }
    driver->durable[0] = '\0';
    if (strcmp(value, "1") != 0)
        snprintf(driver->durable, sizeof(driver->durable), "%s = %s", name, value);
    return is_number(value);
}

static bool take_variables(struct link *link, MYSQL_RES *rows)
{
    MYSQL_ROW row;
    struct driver *driver = driver_of(link);
    struct variables variables = {.read_only = mysql_num_rows(rows) == 0};
    char text[300];
    while ((row = mysql_fetch_row(rows)) != NULL)
        if (row[0] != NULL && row[1] != NULL)
            take_variable(&variables, row[0], row[1]);
    bool said = note_durability(driver, &variables);
    my_link(link)->galera = variables.galera;
    if (variables.read_only) {
        refuse(link, MORTISE_UNREACHABLE, true,
               "the server is read-only; is it a replica? Name the primary, or all servers");
        return false;
    }
    if (variables.by_statement && (variables.binlog || variables.galera)) {
        refuse(link, MORTISE_CONFIG, false,
               "with binlog_format = STATEMENT a replica of the server does not get the locks: set "
               "that to ROW or MIXED");
        return false;
    }
    if (driver->durable[0] == '\0' || driver->values[OPTION_DURABLE].number == 0)
        return true;
    if (!said) {
        snprintf(text, sizeof(text), "the server's answer makes no sense: %s", driver->durable);
        refuse(link, MORTISE_UNREACHABLE, true, text);
        return false;
    }
    snprintf(text, sizeof(text),
             "with %s the server may lose a lock when its host crashes: set that to 1, or set "
             "durable = no",
             driver->durable);
    refuse(link, MORTISE_CONFIG, false, text);
    return false;
}

/* Another client may be making the tables, or may have been stopped while it did. They are made in this order, and the row
 * of the layout last. So if `mortise_meta` exists and an earlier table is missing, somebody has dropped that table. It
 * must not be made anew, because a new one would not know who holds what. */
static bool take_tables(struct link *link, MYSQL_RES *rows)
{
    MYSQL_ROW row;
    bool meta = false;
    while ((row = mysql_fetch_row(rows)) != NULL) {
        if (row[0] == NULL || row[1] == NULL || strcmp(row[1], "InnoDB") != 0) {
            refuse(link, MORTISE_BACKEND, false, "the tables are not in InnoDB");
            return false;
        }
        meta = meta || strcmp(row[0], "mortise_meta") == 0;
    }
    my_link(link)->lacks_tables = mysql_num_rows(rows) < TABLES;
    if (!meta || !my_link(link)->lacks_tables)
        return true;
    refuse(link, MORTISE_BACKEND, false,
           "some of the tables are missing, or of another program (see `mortise schema mysql`)");
    return false;
}

static bool take_layout(struct link *link, MYSQL_ROW row)
{
    char text[200];
    my_link(link)->lacks_tables = row == NULL;
    if (row == NULL && !my_link(link)->made_tables)
        return true;
    if (row != NULL && row[0] != NULL && strcmp(row[0], LAYOUT_VERSION) == 0)
        return true;
    snprintf(text, sizeof(text),
             "the layout of its tables is \"%.30s\", this driver knows %s; all programs that use "
             "it need the same version of Mortise",
             row != NULL && row[0] != NULL ? row[0] : "", LAYOUT_VERSION);
    refuse(link, MORTISE_BACKEND, false, text);
    return false;
}

/* ---- results ----------------------------------------------------------------------------------- */

/* False: the server was refused, so there is another connection, or none. */
static bool take_rows(struct link *link, MYSQL_RES *rows)
{
    unsigned columns = mysql_num_fields(rows);
    if (my_link(link)->phase == SETUP_LAYOUT && columns == 1) {
        my_link(link)->seen |= SEEN_LAYOUT;
        return take_layout(link, mysql_fetch_row(rows));
    }
    if (my_link(link)->phase == SETUP_IDENTIFY && my_link(link)->setup_at == AT_IDENTITY &&
        columns == 4) {
        my_link(link)->seen |= SEEN_IDENTITY;
        return take_identity(link, mysql_fetch_row(rows));
    }
    if (my_link(link)->phase == SETUP_IDENTIFY && my_link(link)->setup_at == AT_VARIABLES &&
        columns == 2) {
        my_link(link)->seen |= SEEN_VARIABLES;
        return take_variables(link, rows);
    }
    if (my_link(link)->phase == SETUP_IDENTIFY && my_link(link)->setup_at == AT_TABLES &&
        columns == 2) {
        my_link(link)->seen |= SEEN_TABLES;
        return take_tables(link, rows);
    }
    return true;
}

static bool failed(struct link *link)
{
    struct fault fault;
    char text[320];
    fault_read(my_link(link)->conn.mysql, &fault);
    bool no_right = my_link(link)->phase == SETUP_MAKE && fault.base.native == 1142;
    if (no_right) {
        snprintf(text, sizeof(text), "%.*s", (int)strcspn(fault.base.text, ";"), fault.base.text);
        snprintf(fault.base.text, sizeof(fault.base.text),
                 "%.150s: the tables are not there, and this user may not make them; run what "
                 "`mortise schema mysql` prints as one that may",
                 text);
    }
    link_failed(link, &fault.base);
    return false;
}

static bool phase_done(struct link *link)
{
    struct my_link *mine = my_link(link);
    unsigned needed = SEEN_IDENTITY | SEEN_VARIABLES | SEEN_TABLES;
    if (mine->phase == SETUP_LAYOUT)
        needed |= SEEN_LAYOUT;
    if ((mine->seen & needed) != needed) {
        refuse(link, MORTISE_UNREACHABLE, true, "answers are missing");
        return false;
    }
    bool make = mine->lacks_tables && !mine->made_tables;
    if (mine->phase == SETUP_LAYOUT && !make) {
        link_ready(link);
        return link->state == LINK_READY;
    }
    mine->made_tables = mine->made_tables || make;
    mine->seen &= ~(unsigned)SEEN_LAYOUT;
    return begin(link, make ? SETUP_MAKE : SETUP_LAYOUT);
}

bool setup_event(struct link *link, enum conn_event event)
{
    struct conn *conn = &my_link(link)->conn;
    while (event == CONN_RESULT) {
        MYSQL_RES *rows = conn->rows;
        conn->rows = NULL;
        bool good = rows == NULL || take_rows(link, rows);
        mysql_free_result(rows);
        if (!good)
            return false;
        my_link(link)->setup_at++;
        if (!conn->more)
            return phase_done(link);
        event = conn_next(conn);
    }
    return event == CONN_FAILED ? failed(link) : true;
}
