/* setup.c - a new connection: checks whether it leads to a backend of its own, and whether the tables exist and are
 * ours; makes the settings and the prepared statements. This takes two round trips; once in the life of a database it
 * takes one more, to make the tables.
 *
 * THE SCHEMA. Clients whose roles have different search_paths must not use different tables without knowing.
 * So a client takes the schema that its config names. If the config names none, it takes the only schema of the
 * database that has the tables, if that is on its path, and fails with CONFIG otherwise. If another schema has the
 * tables, no client makes a second set; only a person may do that. Once found, the schema stays the same for the life
 * of the client, so a copy of the tables that somebody makes elsewhere does not disturb running clients. */
#include "driver.h"

#include <stdio.h>
#include <string.h>

#define SERVER_MIN 120000
#define IDENTITY_COLUMNS 13

static bool send_text(struct link *link, const char *text, const struct args *args,
                      const char *types)
{
    Oid oids[ARGS_MAX];
    int formats[ARGS_MAX];
    int count = args != NULL ? args->count : 0;
    for (int i = 0; i < count; i++) {
        oids[i] = sql_oid(types[i]);
        formats[i] = 1;
    }
    pg_link(link)->setup_count++;
    return PQsendQueryParams(pg_link(link)->conn, text, count, oids,
                             args != NULL ? args->values : NULL,
                             args != NULL ? args->lengths : NULL, formats, 1) == 1;
}

static bool send_prepare(struct link *link, enum text which)
{
    const struct sql_text *text = &sql_texts[which];
    Oid oids[ARGS_MAX];
    int count = (int)strlen(text->types);
    for (int i = 0; i < count; i++)
        oids[i] = sql_oid(text->types[i]);
    pg_link(link)->setup_count++;
    return PQsendPrepare(pg_link(link)->conn, text->name, text->text, count, oids) == 1;
}

static const char *schema_asked(const struct driver *driver)
{
    return driver->schema_found ? driver->schema : driver->values[OPTION_SCHEMA].text;
}

static bool send_identify(struct link *link)
{
    struct driver *driver = driver_of(link);
    struct args args = {.count = 0};
    char lock_ms[24], statement_ms[24];
    int setting = (int)driver->values[OPTION_POOLER].number;
    int32_t told = setting == POOLER_NO    ? -1
                   : setting == POOLER_YES ? 0
                                           : PQbackendPID(pg_link(link)->conn);
    snprintf(lock_ms, sizeof(lock_ms), "%lld", (long long)link->remote->pause_ms);
    snprintf(statement_ms, sizeof(statement_ms), "%lld", (long long)link->remote->command_ms);
    args_int4(&args, told);
    args_text(&args, lock_ms);
    args_text(&args, statement_ms);
    args_text(&args, schema_asked(driver));
    return send_text(link, sql_identify, &args, "4xxx");
}

static bool send_path(struct link *link, bool local)
{
    struct args args = {.count = 0};
    args_text(&args, driver_of(link)->schema);
    args_bool(&args, local);
    return send_text(link, sql_path, &args, "xo");
}

static bool send_make(struct link *link)
{
    struct args args = {.count = 0};
    args_text(&args, driver_of(link)->schema);
    bool sent = send_text(link, sql_make_begin, NULL, "") && send_path(link, true) &&
                send_text(link, sql_make_lock, NULL, "") &&
                send_text(link, sql_make_alone, &args, "x");
    for (size_t i = 0; i < sql_make_count && sent; i++)
        sent = send_text(link, sql_make[i], NULL, "");
    return sent && send_text(link, sql_make_end, NULL, "");
}

static bool send_listen(struct link *link)
{
    char text[CHANNEL_SIZE + 16];
    snprintf(text, sizeof(text), "LISTEN %s", driver_of(link)->channel);
    pg_link(link)->listens = true;
    return send_text(link, text, NULL, "");
}

static bool has_to_listen(const struct link *link)
{
    return link->live && !pg_link_const(link)->pooled && driver_of(link)->listen_wanted &&
           !pg_link_const(link)->listens;
}

static bool send_prepares(struct link *link)
{
    bool sent = send_path(link, pg_link(link)->pooled) && send_text(link, sql_layout, NULL, "");
    for (int text = 0; text < TEXT_COUNT && !pg_link(link)->pooled && sent; text++)
        sent = send_prepare(link, (enum text)text);
    if (has_to_listen(link))
        sent = sent && send_listen(link);
    return sent;
}

static void begin(struct link *link, enum setup_phase phase)
{
    pg_link(link)->phase = phase;
    pg_link(link)->setup_at = pg_link(link)->setup_count = 0;
    pg_link(link)->setup_got = false;
    bool sent = phase == SETUP_IDENTIFY ? send_identify(link)
                : phase == SETUP_MAKE   ? send_make(link)
                : phase == SETUP_LISTEN ? send_listen(link)
                                        : send_prepares(link);
    if (!sent || PQpipelineSync(pg_link(link)->conn) != 1 || !group_flush(link))
        connection_failed(link);
}

void setup_listen(struct link *link)
{
    if (link->state != LINK_READY || !has_to_listen(link) || link->group_count > 0)
        return;
    link_set_up(link, true);
    begin(link, SETUP_LISTEN);
}

void setup_begin(struct link *link)
{
    if (PQserverVersion(pg_link(link)->conn) < SERVER_MIN) {
        link_failed_why(link, MORTISE_BACKEND, false, "PostgreSQL 12 or later is needed");
        return;
    }
    link_set_up(link, false);
    begin(link, SETUP_IDENTIFY);
}

/* ---- answers ----------------------------------------------------------------------------------- */

static bool is_true(const PGresult *result, int column)
{
    return !PQgetisnull(result, 0, column) && PQgetvalue(result, 0, column)[0] != 0;
}

static void note_pooler(struct link *link)
{
    struct driver *driver = driver_of(link);
    bool known = driver->pooler_seen || driver->values[OPTION_POOLER].number == POOLER_YES;
    driver->pooler_seen = true;
    if (known)
        return;
    driver->remote.locks.host->log(driver->remote.locks.host, 4,
                                   "postgres: there is a pooler before the server: waiters poll "
                                   "(pooler = yes in the config says so from the start)");
}

/* False: it is unclear which tables are meant, and the link has failed. */
static bool take_schema(struct link *link, const PGresult *result)
{
    struct driver *driver = driver_of(link);
    bool asked = *schema_asked(driver) != '\0', usable = is_true(result, 8),
         on_path = is_true(result, 9);
    const char *schema = PQgetvalue(result, 0, 7), *having = PQgetvalue(result, 0, 11);
    int64_t count = result_int8(result, 0, 10);
    char text[500] = "";
    if (!asked && count > 1)
        snprintf(text, sizeof(text),
                 "more than one schema of this database has a table mortise_lock (%.150s): set "
                 "schema = … to the one that is meant, for all clients",
                 having);
    else if (*schema == '\0')
        snprintf(text, sizeof(text),
                 "the role's search_path names no schema that exists: set schema = …");
    else if (asked && !usable)
        snprintf(text, sizeof(text),
                 "schema \"%.63s\" does not exist, or this role may not use it: create it, or "
                 "grant the role its use",
                 schema);
    else if (asked && pg_link(link)->tables_missing && count > 0)
        snprintf(text, sizeof(text),
                 "schema \"%.63s\" has no tables, but another schema of this database has them "
                 "(%.150s): set schema = … to that one if the same locks are meant; if a second "
                 "set is intended, make it with what `mortise schema postgres` prints",
                 schema, having);
    else if (!asked && count == 1 && !on_path)
        snprintf(text, sizeof(text),
                 "the tables are in schema \"%.63s\", which is not on this role's search_path: set "
                 "schema = %.63s, or another schema if other locks are meant",
                 schema, schema);
    else
        snprintf(driver->schema, sizeof(driver->schema), "%s", schema);
    if (*text != '\0')
        link_failed_why(link, MORTISE_CONFIG, false, text);
    return *text == '\0';
}

/* Whether the result is not one row of so many columns. No PostgreSQL server answers in this way, and there may be no value
 * to read. */
static bool lacks(struct link *link, const PGresult *result, int columns)
{
    if (PQntuples(result) == 1 && PQnfields(result) == columns)
        return false;
    link_failed_why(link, MORTISE_UNREACHABLE, true, "answers are missing");
    return true;
}

static bool take_identity(struct link *link, const PGresult *result)
{
    if (lacks(link, result, IDENTITY_COLUMNS))
        return false;
    bool same = is_true(result, 0), lock = is_true(result, 3), meta = is_true(result, 4);
    int setting = (int)driver_of(link)->values[OPTION_POOLER].number;
    pg_link(link)->pooled = setting == POOLER_YES || (setting == POOLER_AUTO && !same);
    if (pg_link(link)->pooled)
        note_pooler(link);
    if (same && !PQgetisnull(result, 0, 1) && result_time(result, 0, 1) != 0) {
        link->session.id = result_int8(result, 0, 6);
        link->session.start = result_time(result, 0, 1);
    }
    pg_link(link)->clock_us = result_time(result, 0, 5);
    pg_link(link)->clock_ns = remote_now(link->remote);
    pg_link(link)->tables_missing = !lock && !meta;
    if (is_true(result, 2)) {
        link_failed_why(link, MORTISE_UNREACHABLE, true,
                        "the server is a standby, and read-only: name the primary, or all servers");
        return false;
    }
    if (!take_schema(link, result))
        return false;
    if (lock == meta)
        return true;
    link_failed_why(
        link, MORTISE_BACKEND, false,
        "of the tables mortise_lock and mortise_meta only one is there: they are of another "
        "program, or of another version (see `mortise schema postgres`)");
    return false;
}

static bool take_layout(struct link *link, const PGresult *result)
{
    char text[200], layout[32] = "";
    if (PQntuples(result) == 1 && PQnfields(result) == 1)
        snprintf(layout, sizeof(layout), "%s", PQgetvalue(result, 0, 0));
    driver_of(link)->schema_found = true;
    if (strcmp(layout, LAYOUT_VERSION) == 0)
        return true;
    snprintf(
        text, sizeof(text),
        "the layout of its tables is \"%s\", this driver knows %s; all programs that use it need "
        "the same version of Mortise",
        layout, LAYOUT_VERSION);
    link_failed_why(link, MORTISE_BACKEND, false, text);
    return false;
}

static bool refused(struct link *link, const PGresult *result)
{
    struct fault fault;
    char text[600];
    fault_read(result, &fault);
    bool no_right = pg_link(link)->phase == SETUP_MAKE && !fault.base.retryable;
    snprintf(text, sizeof(text), "%s%s", fault.base.text,
             no_right ? ": the tables are not there, and this role may not make them; run what "
                        "`mortise schema postgres` prints as one that may"
                      : "");
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    bool denied = state != NULL && strcmp(state, "42501") == 0;
    if (fault.base.native != 0 && pg_link(link)->phase == SETUP_PREPARE &&
        (fault.flags & FAULT_RESET) == 0)
        snprintf(text, sizeof(text), "%s; %s", fault.base.text,
                 denied ? "grant this role SELECT, INSERT, UPDATE and DELETE on the tables"
                        : "was the layout of its tables changed?");
    if (pg_link(link)->phase == SETUP_MAKE && state != NULL && strcmp(state, "22012") == 0)
        snprintf(text, sizeof(text), "another client has made the tables in another schema");
    fault.base.retryable = fault.base.retryable || (fault.flags & FAULT_AGAIN) != 0;
    snprintf(fault.base.text, sizeof(fault.base.text), "%s", text);
    link_failed(link, &fault.base);
    return false;
}

/* The sync has come: all statements of the phase succeeded. */
static bool phase_done(struct link *link)
{
    if (pg_link(link)->setup_at < pg_link(link)->setup_count) {
        link_failed_why(link, MORTISE_UNREACHABLE, true, "answers are missing");
        return false;
    }
    if (pg_link(link)->phase >= SETUP_PREPARE &&
        has_to_listen(link)) { /* the first waiter has come meanwhile */
        begin(link, SETUP_LISTEN);
        return link->state == LINK_SETTING_UP;
    }
    if (pg_link(link)->phase >= SETUP_PREPARE) {
        link_ready(link);
        return link->state == LINK_READY;
    }
    bool make = pg_link(link)->phase == SETUP_IDENTIFY && pg_link(link)->tables_missing;
    begin(link, make ? SETUP_MAKE : SETUP_PREPARE);
    return link->state == LINK_SETTING_UP;
}

bool setup_result(struct link *link, PGresult *result)
{
    bool goes_on = true;
    ExecStatusType status = result != NULL ? PQresultStatus(result) : PGRES_COMMAND_OK;
    if (result == NULL) {
        pg_link(link)->setup_at += pg_link(link)->setup_got;
        pg_link(link)->setup_got = false;
        return true;
    }
    pg_link(link)->setup_got = true;
    if (status == PGRES_PIPELINE_SYNC)
        goes_on = phase_done(link);
    else if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
        goes_on = refused(link, result);
    else if (pg_link(link)->phase == SETUP_IDENTIFY)
        goes_on = take_identity(link, result);
    else if (pg_link(link)->phase == SETUP_PREPARE && pg_link(link)->setup_at == 1)
        goes_on = take_layout(link, result);
    PQclear(result);
    return goes_on;
}
