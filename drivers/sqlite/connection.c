/* connection.c - opens a connection to the file, with protection from code that others may have put into the file; and reports
 * why that failed. Reads nothing from the file. */
#include "driver.h"

#include <string.h>

#define STEP_INSTRUCTIONS 100 /* of SQLite's machine, between two checks of the clock */
#define LENGTH_MAX                                                                                 \
    (64 * 1024) /* of a row; _Static_assert below: the longest of ours is half of it */

_Static_assert(sizeof(struct rowlease_row) + MORTISE_NAME_MAX <= LENGTH_MAX / 2 &&
                   MORTISE_NAME_MAX + MORTISE_RECORD_MAX <= LENGTH_MAX / 2,
               "rows fit");

/* ---- why it failed ------------------------------------------------------------------------------- */

/* Whether the text of a table, or of an object that somebody added, exceeds the limits (set_limits). */
static bool is_schema_refused(struct driver *driver, int rc)
{
    return driver->db != NULL && (rc & 0xff) == SQLITE_CORRUPT &&
           strncmp(sqlite3_errmsg(driver->db), "malformed database schema", 25) == 0;
}

mortise_status connection_failed(struct driver *driver, int rc, mortise_error *error)
{
    char quoted[QUOTED_SIZE];
    if (is_schema_refused(driver, rc)) {
        const char *text = sqlite3_errmsg(driver->db);
        driver->locks.host->quote(text, strlen(text), quoted, sizeof(quoted));
        return fault_error(error, MORTISE_CONFIG, rc, false,
                           "%s: somebody has changed the tables, or the file is damaged: %s; undo "
                           "that, or delete the database while nobody uses it",
                           driver->path, quoted);
    }
    struct fault fault = fault_read(driver, rc, false);
    mortise_status status = fault.base.status;
    int kind = rc & 0xff;
    if (kind == SQLITE_CANTOPEN || kind == SQLITE_READONLY || kind == SQLITE_PERM)
        status = MORTISE_CONFIG;
    else if (status == MORTISE_INDETERMINATE)
        status = MORTISE_BACKEND;
    return fault_error(error, status, rc, fault.base.retryable, "%s: %s (opening it)", driver->path,
                       fault.base.text);
}

/* ---- opened ---------------------------------------------------------------------------------------- */

static int is_overdue(void *argument)
{
    const struct driver *driver = argument;
    return driver->locks.host->now(driver->locks.host) >= driver->step_until_ns;
}

/* The limits are no higher than our own tables and statements need. SQLite checks the clock only between instructions,
 * and one call of a function can work for seconds on a long value. So values are short, and no function takes an
 * argument. */
static void set_limits(sqlite3 *db)
{
    static const struct {
        int which, value;
    } limits[] = {
        {SQLITE_LIMIT_LENGTH, LENGTH_MAX}, {SQLITE_LIMIT_SQL_LENGTH, 8192},
        {SQLITE_LIMIT_FUNCTION_ARG, 0},    {SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 16},
        {SQLITE_LIMIT_EXPR_DEPTH, 32},     {SQLITE_LIMIT_COLUMN, 32},
        {SQLITE_LIMIT_VDBE_OP, 2000},      {SQLITE_LIMIT_ATTACHED, 0},
        {SQLITE_LIMIT_TRIGGER_DEPTH, 1},
    };
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
        sqlite3_limit(db, limits[i].which, limits[i].value);
}

/* Every user who may write the file can put triggers, views and other code into it. Triggers and views do not run
 * here. Other code that is added while the file is open cannot call a function, and no statement runs without end. */
int connection_open_as(const struct driver *driver, sqlite3 **db)
{
    int rc =
        sqlite3_open_v2(driver->path, db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE |
                            SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE,
                        NULL);
    if (rc != SQLITE_OK)
        return rc;
    sqlite3_db_config(*db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(*db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_db_config(*db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    sqlite3_db_config(*db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
    set_limits(*db);
    return SQLITE_OK;
}

mortise_status connection_open(struct driver *driver, mortise_error *error)
{
    int rc = connection_open_as(driver, &driver->db);
    if (rc != SQLITE_OK)
        return connection_failed(driver, rc, error);
    sqlite3_progress_handler(driver->db, STEP_INSTRUCTIONS, is_overdue, driver);
    return MORTISE_OK;
}
