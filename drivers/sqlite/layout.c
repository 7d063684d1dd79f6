/* layout.c - the content of the file: whether it is ours and of this version, and to which boot of the host its rows
 * belong. Makes the tables of a new file, and frees all rows after a restart of the host. Knows no op and no lease.
 *
 * A boot id that differs from the file's means that the host was restarted, or that this process runs in a
 * container with a boot id of its own. After a restart no process has the file open. A process that holds or waits
 * for a lock has it open, and each open connection has a shared lock on the file. Therefore rows are freed only under
 * an exclusive lock on the file. If that lock cannot be acquired, opening the file fails. */
#include "driver.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ALONE_FIRST_NS INT64_C(1000000)
#define ALONE_MAX_NS INT64_C(20000000)

enum condition { EMPTY, FOREIGN, OURS, CHANGED, OTHER_LAYOUT, OTHER_BOOT };

/* The state of the file's content, and what is wrong with it. */
struct layout {
    enum condition condition;
    char version[32];
    char alien[QUOTED_SIZE]; /* CHANGED: the first object that is not as we made it */
};

/* ---- the objects in the file --------------------------------------------------------------------- */

struct objects {
    struct driver *driver;
    bool any, ours[SQL_TABLES];
    char alien[QUOTED_SIZE];
};

/* Skips white space and comments. A quotation mark ends the comparison, because our texts have none outside of comments. */
static const char *skip_blank(const char *text)
{
    for (;;) {
        text += strspn(text, " \t\r\n\f");
        if (strncmp(text, "--", 2) == 0)
            text += strcspn(text, "\n");
        else if (strncmp(text, "/*", 2) == 0)
            text = strstr(text + 2, "*/") != NULL ? strstr(text + 2, "*/") + 2 : "";
        else
            return text;
    }
}

static bool same_text(const char *a, const char *b)
{
    for (;; a++, b++) {
        a = skip_blank(a);
        b = skip_blank(b);
        if (*a != *b || *a == '\0')
            return *a == *b;
    }
}

/* Whether SQLite makes the object by itself: the index of a primary key, the statistics of ANALYZE. SQLite reads the
 * statistics whenever it reads the schema, so their table must be exactly the one that it makes. */
static bool is_internal(const char *type, const char *text)
{
    static const char *const statistics[] = {
        "CREATE TABLE sqlite_stat1(tbl,idx,stat)",
        "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)",
    };
    if (text == NULL)
        return strcmp(type, "index") == 0;
    return strcmp(type, "table") == 0 &&
           (same_text(text, statistics[0]) || same_text(text, statistics[1]));
}

static int look_at_object(void *argument, int columns, char **texts, char **names)
{
    struct objects *objects = argument;
    (void)names;
    if (columns != 3 || texts[0] == NULL || texts[1] == NULL)
        return 1;
    objects->any = true;
    for (int i = 0; i < SQL_TABLES; i++)
        if (strcmp(texts[0], "table") == 0 && strcmp(texts[1], sql_tables[i].name) == 0 &&
            texts[2] != NULL && same_text(texts[2], sql_tables[i].text)) {
            objects->ours[i] = true;
            return 0;
        }
    if (objects->alien[0] == '\0' && !is_internal(texts[0], texts[2]))
        objects->driver->locks.host->quote(texts[1], strlen(texts[1]), objects->alien,
                                           sizeof(objects->alien));
    return 0;
}

/* Only our tables may be there, each as we made it. A view in place of a table, an index or a constraint would make
 * us execute code that somebody else wrote. */
static void judge(struct objects *objects, struct layout *layout)
{
    struct driver *driver = objects->driver;
    layout->condition = !objects->any ? EMPTY : objects->ours[SQL_TABLE_META] ? OURS : FOREIGN;
    for (int i = 0; i < SQL_TABLES && objects->alien[0] == '\0'; i++)
        if (!objects->ours[i])
            driver->locks.host->quote(sql_tables[i].name, strlen(sql_tables[i].name),
                                      objects->alien, sizeof(objects->alien));
    if (layout->condition == OURS && objects->alien[0] != '\0')
        layout->condition = CHANGED;
    snprintf(layout->alien, sizeof(layout->alien), "%s", objects->alien);
}

/* ---- the layout ------------------------------------------------------------------------------------ */

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

static int look_at_layout(struct driver *driver, struct layout *layout)
{
    struct objects objects = {.driver = driver};
    char wanted[16], boot_id[sizeof(driver->boot_id)];
    memset(layout, 0, sizeof(*layout));
    driver->schema_version = database_schema_version(driver); /* first: what comes later is seen */
    int rc = sqlite3_exec(driver->db, sql_objects, look_at_object, &objects, NULL);
    judge(&objects, layout);
    if (rc != SQLITE_OK || !objects.ours[SQL_TABLE_META])
        return rc;
    rc = meta_text(driver, "layout", layout->version, sizeof(layout->version));
    if (rc == SQLITE_OK)
        rc = meta_text(driver, "boot_id", boot_id, sizeof(boot_id));
    snprintf(wanted, sizeof(wanted), "%d", LAYOUT_VERSION);
    if (strcmp(layout->version, wanted) != 0)
        layout->condition = OTHER_LAYOUT;
    else if (layout->condition == OURS && strcmp(boot_id, driver->boot_id) != 0)
        layout->condition = OTHER_BOOT;
    return rc;
}

/* Commits if rc is SQLITE_OK. Otherwise, or if the commit fails, rolls back. */
static int end_transaction(struct driver *driver, int rc)
{
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(driver->db, "COMMIT", NULL, NULL, NULL);
    if (rc != SQLITE_OK && !sqlite3_get_autocommit(driver->db))
        sqlite3_exec(driver->db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

/* A new file gets its tables. */
static int make_layout(struct driver *driver, struct layout *layout)
{
    char version[16];
    snprintf(version, sizeof(version), "%d", LAYOUT_VERSION);
    int rc = sqlite3_exec(driver->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (rc != SQLITE_OK)
        return rc;
    rc = look_at_layout(driver, layout); /* another process may have been faster */
    if (rc == SQLITE_OK && layout->condition == EMPTY) {
        layout->condition = OURS;
        rc = sqlite3_exec(driver->db, sql_schema, NULL, NULL, NULL);
        if (rc == SQLITE_OK)
            rc = meta_set(driver, "layout", version);
        if (rc == SQLITE_OK)
            rc = meta_set(driver, "boot_id", driver->boot_id);
        driver->schema_version = database_schema_version(driver);
    }
    return end_transaction(driver, rc);
}

mortise_status layout_settle(struct driver *driver, bool *rebooted, mortise_error *error)
{
    struct layout layout;
    int rc = look_at_layout(driver, &layout);
    if (rc == SQLITE_OK && layout.condition == EMPTY)
        rc = make_layout(driver, &layout);
    if (rc != SQLITE_OK)
        return connection_failed(driver, rc, error);
    *rebooted = layout.condition == OTHER_BOOT;
    if (layout.condition == FOREIGN)
        return fault_error(error, MORTISE_CONFIG, 0, false,
                           "%s: this database belongs to another program; the locks need a file of "
                           "their own",
                           driver->path);
    if (layout.condition == OTHER_LAYOUT)
        return fault_error(
            error, MORTISE_CONFIG, 0, false,
            "%s: its layout is \"%s\", this driver knows %d; all programs that use it "
            "need the same version of Mortise",
            driver->path, layout.version, LAYOUT_VERSION);
    if (layout.condition == CHANGED)
        return fault_error(
            error, MORTISE_CONFIG, 0, false,
            "%s: somebody has changed the tables: %s is missing, or not as this driver "
            "makes it; undo that, or delete the database while nobody uses it",
            driver->path, layout.alien);
    return MORTISE_OK;
}

/* ---- after a restart of the host ----------------------------------------------------------------- */

/* No other process can open the file until this connection is closed. All holders and waiters are gone, so one
 * transaction frees every row, and keeps the versions (R6). */
static int free_rows_alone(struct driver *driver)
{
    struct layout layout;
    int rc = sqlite3_exec(driver->db, "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE", NULL,
                          NULL, NULL);
    if (rc != SQLITE_OK)
        return rc;
    rc = look_at_layout(driver, &layout);
    if (rc == SQLITE_OK && layout.condition == OTHER_BOOT) {
        driver->step_until_ns = MORTISE_NEVER; /* there may be any number of rows */
        rc = sqlite3_exec(driver->db, sql_free_all, NULL, NULL, NULL);
        if (rc == SQLITE_OK)
            rc = meta_set(driver, "boot_id", driver->boot_id);
    }
    return end_transaction(driver, rc);
}

/* What is known about the rows, and what the driver does for that while the folder is locked ("in turn"):
 *
 *             nobody else has the file open     another process has it open
 *   MINE      done                              done
 *   OTHER     they are freed                    wait: it opens it just now, or is of the other boot
 *   UNKNOWN   look again                        look again: it recovers the log, or is the last to close the file
 *
 * UNKNOWN never counts as OTHER, because the process that makes the file busy may have freed the rows, and may keep the
 * file open for hours. OTHER cannot become MINE in turn, because no other process frees rows then. A process that gets no
 * turn looks only when its time is over, because each look has the file open for a moment, which disturbs the process in
 * turn. */
enum rows { MINE, OTHER, UNKNOWN };

/* On a connection of its own. */
static mortise_status look_again(struct driver *driver, enum rows *rows, int *rc,
                                 mortise_error *error)
{
    struct layout layout;
    mortise_status status = connection_open(driver, error);
    *rows = UNKNOWN;
    *rc = SQLITE_OK;
    if (status == MORTISE_OK) {
        *rc = look_at_layout(driver, &layout);
        if (*rc == SQLITE_OK)
            *rows = layout.condition == OTHER_BOOT ? OTHER : MINE;
        else if (!fault_is_busy(*rc))
            status = connection_failed(driver, *rc, error);
    }
    database_close(driver);
    return status;
}

/* Waits a little longer each time. False: no time is left. */
static bool wait_a_little(struct driver *driver, int64_t *ns, int64_t until_ns)
{
    if (driver->locks.host->now(driver->locks.host) >= until_ns)
        return false;
    clock_nanosleep(CLOCK_MONOTONIC, 0,
                    &(struct timespec){.tv_nsec = locks_jitter(&driver->locks, *ns)}, NULL);
    *ns = *ns * 2 < ALONE_MAX_NS ? *ns * 2 : ALONE_MAX_NS;
    return true;
}

/* Frees the rows on a connection of its own. Afterwards they are MINE, or still OTHER because another process has the file
 * open. */
static mortise_status free_rows(struct driver *driver, enum rows *rows, mortise_error *error)
{
    mortise_status status = connection_open(driver, error);
    if (status == MORTISE_OK) {
        int rc = free_rows_alone(driver);
        if (rc == SQLITE_OK)
            *rows = MINE;
        else if (!fault_is_busy(rc))
            status = connection_failed(driver, rc, error);
    }
    database_close(driver);
    return status;
}

/* While the folder is locked, no other process frees rows. Processes that are opening the file have it open only briefly. */
static mortise_status free_rows_in_turn(struct driver *driver, int64_t until_ns, enum rows *rows,
                                        int *rc, mortise_error *error)
{
    int64_t ns = ALONE_FIRST_NS;
    mortise_status status;
    do {
        status = look_again(driver, rows, rc, error); /* another process may have been faster */
        if (status == MORTISE_OK && *rows == OTHER)
            status = free_rows(driver, rows, error);
    } while (status == MORTISE_OK && *rows != MINE && wait_a_little(driver, &ns, until_ns));
    return status;
}

mortise_status layout_free_rows(struct driver *driver, int64_t until_ns, mortise_error *error)
{
    int64_t ns = ALONE_FIRST_NS;
    int rc = SQLITE_OK;
    int lock = -1;
    enum rows rows = UNKNOWN;
    mortise_status status = MORTISE_OK;
    do
        lock = inbox_lock_folder(driver);
    while (lock < 0 && wait_a_little(driver, &ns, until_ns));
    if (lock >= 0) {
        status = free_rows_in_turn(driver, until_ns, &rows, &rc, error);
        close(lock);
    } else {
        status = look_again(driver, &rows, &rc, error);
    }
    if (status != MORTISE_OK || rows == MINE)
        return status;
    if (rows == UNKNOWN)
        return connection_failed(driver, rc, error);
    return fault_error(
        error, MORTISE_CONFIG, 0, false,
        "%s: its locks belong to another boot of this host, and another process uses it; a "
        "container needs the host's /proc/sys/kernel/random/boot_id to share it",
        driver->path);
}
