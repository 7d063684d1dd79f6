/* database.c - the connection to the file: opened, its layout made or checked, its statements prepared,
 * opened again where the file was replaced. Knows no op and no lease. */
#include "internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOK_EVERY_NS (INT64_C(1000) * NS_PER_MS)
#define REOPEN_EVERY_NS (INT64_C(250) * NS_PER_MS)
#define PAGE_SIZE                                                                                  \
    1024 /* a row is some hundred bytes, and each commit writes its whole page twice */

static mortise_status open_failed(struct driver *driver, int rc, mortise_error *error)
{
    struct fault fault = fault_read(driver, rc);
    mortise_status status = fault.status;
    int kind = rc & 0xff;
    if (kind == SQLITE_CANTOPEN || kind == SQLITE_READONLY || kind == SQLITE_PERM)
        status = MORTISE_CONFIG;
    else if (status == MORTISE_INDETERMINATE)
        status = MORTISE_BACKEND;
    return fault_error(error, status, rc, fault.retryable, "%s: %s (opening it)", driver->path,
                       fault.text);
}

/* ---- settings ---------------------------------------------------------------------------------- */

/* SQLite gives up at once where it fears a deadlock, whatever its time-out. To be called in `open`. */
static int until_not_busy(struct driver *driver, const char *text, int64_t patience_ms)
{
    int64_t until_ns = driver->host->now(driver->host) + patience_ms * NS_PER_MS;
    for (;;) {
        int rc = sqlite3_exec(driver->db, text, NULL, NULL, NULL);
        if (!fault_is_busy(rc) || driver->host->now(driver->host) >= until_ns)
            return rc;
        clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static int first_text(void *is_wal, int columns, char **texts, char **names)
{
    (void)names;
    *(bool *)is_wal = columns == 1 && texts[0] != NULL && strcmp(texts[0], "wal") == 0;
    return 0;
}

static mortise_status apply_settings(struct driver *driver, int64_t patience_ms,
                                     mortise_error *error)
{
    bool is_wal = false, full = driver->values[OPTION_SYNCHRONOUS].number == 1;
    char text[256];
    sqlite3_wal_hook(driver->db, upkeep_committed, driver); /* and so no checkpoints of its own */
    sqlite3_db_config(driver->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(driver->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    snprintf(text, sizeof(text),
             "PRAGMA page_size = %d; PRAGMA secure_delete = OFF; PRAGMA temp_store = MEMORY; "
             "PRAGMA synchronous = %s",
             PAGE_SIZE, full ? "FULL" : "NORMAL");
    int rc = until_not_busy(driver, text, patience_ms);
    if (rc == SQLITE_OK)
        rc = until_not_busy(driver, "PRAGMA journal_mode = WAL", patience_ms);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(driver->db, "PRAGMA journal_mode", first_text, &is_wal, NULL);
    if (rc != SQLITE_OK)
        return open_failed(driver, rc, error);
    if (is_wal)
        return MORTISE_OK;
    return fault_error(error, MORTISE_CONFIG, 0, false,
                       "%s: no write-ahead log can be had here; is it on a file system without "
                       "shared memory?",
                       driver->path);
}

/* ---- the layout -------------------------------------------------------------------------------- */

enum condition { EMPTY, FOREIGN, OURS, OTHER_LAYOUT, OTHER_BOOT };

static int meta_text(struct driver *driver, const char *key, char *text, size_t size)
{
    sqlite3_stmt *statement = NULL;
    text[0] = '\0';
    int rc = sqlite3_prepare_v2(driver->db, sql_meta, -1, &statement, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_text(statement, 1, key, -1, SQLITE_STATIC);
    if (rc == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW) {
        const unsigned char *value = sqlite3_column_text(statement, 0);
        snprintf(text, size, "%s", value != NULL ? (const char *)value : "");
    }
    int end = sqlite3_finalize(statement);
    return rc == SQLITE_OK ? end : rc;
}

static int meta_set(struct driver *driver, const char *key, const char *text)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(driver->db, sql_meta_set, -1, &statement, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_text(statement, 1, key, -1, SQLITE_STATIC);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_text(statement, 2, text, -1, SQLITE_STATIC);
    if (rc == SQLITE_OK)
        sqlite3_step(statement);
    int end = sqlite3_finalize(statement);
    return rc == SQLITE_OK ? end : rc;
}

static int count_tables(void *counts, int columns, char **texts, char **names)
{
    (void)names;
    for (int i = 0; i < columns && i < 2; i++)
        ((bool *)counts)[i] = texts[i] != NULL && strcmp(texts[i], "0") != 0;
    return 0;
}

static int look_at_layout(struct driver *driver, enum condition *condition, char *layout,
                          size_t size)
{
    bool tables[2] = {false, false}; /* ours, any */
    char wanted[16], boot_id[sizeof(driver->boot_id)];
    layout[0] = '\0';
    int rc = sqlite3_exec(driver->db, sql_is_ours, count_tables, tables, NULL);
    *condition = !tables[1] ? EMPTY : FOREIGN;
    if (rc != SQLITE_OK || !tables[0])
        return rc;
    rc = meta_text(driver, "layout", layout, size);
    if (rc == SQLITE_OK)
        rc = meta_text(driver, "boot_id", boot_id, sizeof(boot_id));
    snprintf(wanted, sizeof(wanted), "%d", LAYOUT_VERSION);
    if (strcmp(layout, wanted) != 0)
        *condition = OTHER_LAYOUT;
    else
        *condition = strcmp(boot_id, driver->boot_id) == 0 ? OURS : OTHER_BOOT;
    return rc;
}

/* A new file gets its tables. After a restart of the host all holders and waiters are gone: one
 * transaction frees every row, and keeps the versions (R6). */
static int mend_layout(struct driver *driver, enum condition *condition, char *layout, size_t size)
{
    char version[16];
    snprintf(version, sizeof(version), "%d", LAYOUT_VERSION);
    int rc = sqlite3_exec(driver->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (rc != SQLITE_OK)
        return rc;
    rc = look_at_layout(driver, condition, layout, size); /* another may have been faster */
    if (rc == SQLITE_OK && *condition == EMPTY)
        rc = sqlite3_exec(driver->db, sql_schema, NULL, NULL, NULL);
    if (rc == SQLITE_OK && *condition == EMPTY)
        rc = meta_set(driver, "layout", version);
    if (rc == SQLITE_OK && *condition == OTHER_BOOT)
        rc = sqlite3_exec(driver->db, sql_free_all, NULL, NULL, NULL);
    if (rc == SQLITE_OK && (*condition == EMPTY || *condition == OTHER_BOOT)) {
        *condition = OURS;
        rc = meta_set(driver, "boot_id", driver->boot_id);
    }
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(driver->db, "COMMIT", NULL, NULL, NULL);
    if (rc != SQLITE_OK && !sqlite3_get_autocommit(driver->db))
        sqlite3_exec(driver->db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

static mortise_status settle_layout(struct driver *driver, mortise_error *error)
{
    enum condition condition;
    char layout[32];
    int rc = look_at_layout(driver, &condition, layout, sizeof(layout));
    if (rc == SQLITE_OK && (condition == EMPTY || condition == OTHER_BOOT))
        rc = mend_layout(driver, &condition, layout, sizeof(layout));
    if (rc != SQLITE_OK)
        return open_failed(driver, rc, error);
    if (condition == FOREIGN)
        return fault_error(error, MORTISE_CONFIG, 0, false,
                           "%s: this database belongs to another program; the locks need a file of "
                           "their own",
                           driver->path);
    if (condition == OTHER_LAYOUT)
        return fault_error(
            error, MORTISE_CONFIG, 0, false,
            "%s: its layout is \"%s\", this driver knows %d; all programs that use it "
            "need the same version of Mortise",
            driver->path, layout, LAYOUT_VERSION);
    return MORTISE_OK;
}

/* ---- statements -------------------------------------------------------------------------------- */

static mortise_status prepare_all(struct driver *driver, mortise_error *error)
{
    for (int i = 0; i < SQL_COUNT; i++) {
        int rc = sqlite3_prepare_v3(driver->db, sql_texts[i], -1, SQLITE_PREPARE_PERSISTENT,
                                    &driver->statements[i], NULL);
        if (rc == SQLITE_ERROR)
            return fault_error(error, MORTISE_CONFIG, rc, false, "%s: %s; was its layout changed?",
                               driver->path, sqlite3_errmsg(driver->db));
        if (rc != SQLITE_OK)
            return open_failed(driver, rc, error);
    }
    return MORTISE_OK;
}

int database_run(struct driver *driver, enum sql which)
{
    int rc = sqlite3_step(driver->statements[which]);
    sqlite3_reset(driver->statements[which]);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* ---- open and close ---------------------------------------------------------------------------- */

static mortise_status open_wake_folder(struct driver *driver, mortise_error *error)
{
    if (driver->wake_folder >= 0)
        close(driver->wake_folder);
    driver->wake_folder = place_open_wake_folder(driver);
    if (driver->wake_folder >= 0)
        return MORTISE_OK;
    return fault_error(error, MORTISE_CONFIG, 0, false,
                       "the folder %s-wake, where waiting processes are told, cannot be made: %m",
                       driver->path);
}

mortise_status database_open(struct driver *driver, int64_t patience_ms, mortise_error *error)
{
    mortise_status status = open_wake_folder(driver, error);
    if (status != MORTISE_OK)
        return status;
    int rc =
        sqlite3_open_v2(driver->path, &driver->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE |
                            SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE,
                        NULL);
    if (rc != SQLITE_OK) {
        status = open_failed(driver, rc, error);
    } else {
        sqlite3_busy_timeout(driver->db, (int)patience_ms);
        status = apply_settings(driver, patience_ms, error);
        if (status == MORTISE_OK)
            status = settle_layout(driver, error);
        if (status == MORTISE_OK)
            status = prepare_all(driver, error);
        sqlite3_busy_timeout(driver->db, 0); /* from here on flow.c waits, not SQLite */
    }
    if (status != MORTISE_OK)
        database_close(driver);
    return status;
}

void database_close(struct driver *driver)
{
    for (int i = 0; i < SQL_COUNT; i++)
        sqlite3_finalize(driver->statements[i]);
    memset(driver->statements, 0, sizeof(driver->statements));
    sqlite3_close(driver->db);
    driver->db = NULL;
}

/* ---- the file is replaced underneath ----------------------------------------------------------- */

static bool has_moved(struct driver *driver)
{
    int moved = 0;
    return sqlite3_file_control(driver->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK &&
           moved;
}

static bool reopen(struct driver *driver, int64_t now_ns)
{
    database_close(driver);
    driver->reopen_ns = now_ns + REOPEN_EVERY_NS;
    mortise_status status = place_find(driver, &driver->trouble);
    if (status == MORTISE_OK)
        status = database_open(driver, 0, &driver->trouble);
    if (status != MORTISE_OK)
        return false;
    driver->broken = false;
    waiting_anew(driver);
    return true;
}

bool database_ready(struct driver *driver)
{
    int64_t now_ns = driver->host->now(driver->host);
    if (!driver->broken && now_ns < driver->look_ns)
        return true;
    driver->look_ns = now_ns + LOOK_EVERY_NS;
    if (!driver->broken && has_moved(driver)) {
        fault_error(&driver->trouble, MORTISE_UNREACHABLE, 0, true,
                    "%s was moved or deleted while in use", driver->path);
        driver->host->log(driver->host, 4, "%s", driver->trouble.message);
        driver->broken = true;
        database_close(driver);
    }
    if (!driver->broken)
        return true;
    if (now_ns >= driver->reopen_ns)
        return reopen(driver, now_ns);
    return driver->db != NULL;
}
