/* database.c - the connection to the file: opens it, prepares its statements, opens it again if the file was
 * replaced. layout.c checks the content of the file. Knows no op and no lease. */
#include "driver.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOK_EVERY_NS (INT64_C(10) * NS_PER_MS) /* for clients that only read, too */
#define LOOK_INSIDE_NS (INT64_C(1000) * NS_PER_MS)
#define TOUCH_EVERY_NS (INT64_C(3600000) * NS_PER_MS)
#define REOPEN_EVERY_NS (INT64_C(250) * NS_PER_MS)
#define STEP_MAX_NS                                                                                \
    (5000 * NS_PER_MS) /* ours take microseconds; a list of a million rows a second */
#define LOOKS 3        /* a millisecond apart */
#define PAGE_SIZE                                                                                  \
    1024 /* a row is some hundred bytes, and each commit writes its whole page twice */

/* ---- settings ---------------------------------------------------------------------------------- */

/* SQLite gives up at once if it suspects a deadlock, whatever its time-out is. This function blocks, so only `open` may use
 * it. */
static int until_not_busy(struct driver *driver, const char *text, int64_t patience_ms)
{
    int64_t until_ns = driver->locks.host->now(driver->locks.host) + patience_ms * NS_PER_MS;
    for (;;) {
        int rc = sqlite3_exec(driver->db, text, NULL, NULL, NULL);
        if (!fault_is_busy(rc) || driver->locks.host->now(driver->locks.host) >= until_ns)
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
        return connection_failed(driver, rc, error);
    if (is_wal)
        return MORTISE_OK;
    return fault_error(error, MORTISE_CONFIG, 0, false,
                       "%s: no write-ahead log can be had here; is it on a file system without "
                       "shared memory?",
                       driver->path);
}

/* ---- statements -------------------------------------------------------------------------------- */

static mortise_status prepare_all(struct driver *driver, mortise_error *error)
{
    for (int i = 0; i < TEXT_COUNT; i++) {
        int rc = sqlite3_prepare_v3(driver->db, sql_texts[i], -1, SQLITE_PREPARE_PERSISTENT,
                                    &driver->statements[i], NULL);
        if (rc == SQLITE_ERROR)
            return fault_error(error, MORTISE_CONFIG, rc, false, "%s: %s; was its layout changed?",
                               driver->path, sqlite3_errmsg(driver->db));
        if (rc != SQLITE_OK)
            return connection_failed(driver, rc, error);
    }
    return MORTISE_OK;
}

int database_run(struct driver *driver, enum text which)
{
    int rc = database_step(driver, driver->statements[which]);
    sqlite3_reset(driver->statements[which]);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int database_begin(struct driver *driver)
{
    int rc = database_run(driver, TEXT_BEGIN);
    if (rc != SQLITE_OK || !files_index_is_other(driver))
        return rc;
    database_run(driver, TEXT_ROLLBACK);
    if (driver->look_ns != MORTISE_NEVER)
        driver->look_ns = 0;
    return SQLITE_BUSY;
}

int database_write(struct driver *driver, enum text which)
{
    int rc = database_begin(driver);
    if (rc != SQLITE_OK)
        return rc;
    rc = database_run(driver, which);
    if (rc == SQLITE_OK)
        rc = database_run(driver, TEXT_COMMIT);
    if (!sqlite3_get_autocommit(driver->db))
        database_run(driver, TEXT_ROLLBACK);
    return rc;
}

/* ---- open and close ---------------------------------------------------------------------------- */

static mortise_status open_wake_folder(struct driver *driver, mortise_error *error)
{
    if (driver->wake_folder >= 0)
        close(driver->wake_folder);
    driver->wake_folder = path_open_wake_folder(driver);
    if (driver->wake_folder >= 0)
        return MORTISE_OK;
    return fault_error(
        error, MORTISE_CONFIG, 0, false,
        "the directory %s-wake, where waiting processes are notified, cannot be made: %m",
        driver->path);
}

int database_step(struct driver *driver, sqlite3_stmt *statement)
{
    driver->step_until_ns = driver->locks.host->now(driver->locks.host) + STEP_MAX_NS;
    return sqlite3_step(statement);
}

/* "No end, or below it" would be no condition of an index: all names up to the last one would be read. */
int database_bind_end(sqlite3_stmt *statement, int at, const void *end, size_t len)
{
    unsigned char behind_all[MORTISE_NAME_MAX + 1];
    if (len > 0)
        return sqlite3_bind_blob64(statement, at, end, len, SQLITE_STATIC);
    memset(behind_all, 0xff, sizeof(behind_all));
    return sqlite3_bind_blob64(statement, at, behind_all, sizeof(behind_all), SQLITE_TRANSIENT);
}

static bool has_moved(struct driver *driver)
{
    int moved = 0;
    return sqlite3_file_control(driver->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK &&
           moved;
}

static mortise_status moved_meanwhile(struct driver *driver, mortise_error *error)
{
    driver->open_later = true;
    return fault_error(error, MORTISE_UNREACHABLE, 0, true, "%s was moved or deleted while in use",
                       driver->path);
}

/* SQLite has opened the file, but not yet looked for a log. What was found out about the place holds only if the file is still
 * the one that was there before. */
static bool is_as_before(struct driver *driver, const struct file *before)
{
    struct file now[FILES];
    files_read(driver, now);
    return !files_is_other(before, now, FILE_DATABASE) && !has_moved(driver);
}

/* On success the layout is correct, or *rebooted is set: the rows are of another boot. */
static mortise_status open_once(struct driver *driver, int64_t patience_ms,
                                const struct file *before, bool *rebooted, mortise_error *error)
{
    mortise_status status = connection_open(driver, error);
    if (status != MORTISE_OK)
        return status;
    if (!is_as_before(driver, before))
        return moved_meanwhile(driver, error);
    driver->step_until_ns =
        driver->locks.host->now(driver->locks.host) + patience_ms * NS_PER_MS + STEP_MAX_NS;
    sqlite3_busy_timeout(driver->db, (int)patience_ms);
    status = apply_settings(driver, patience_ms, error);
    if (status == MORTISE_OK)
        status = trust_check_files(driver, error); /* now that SQLite has made or opened its own */
    if (status == MORTISE_OK)
        status = layout_settle(driver, rebooted, error);
    if (status == MORTISE_OK && !*rebooted)
        status = prepare_all(driver, error);
    sqlite3_busy_timeout(driver->db, 0); /* from here on, transactions.c waits */
    return status;
}

static void leave_files(struct driver *driver, int moved)
{
    char path[PATH_MAX + 8];
    fault_error(&driver->trouble, MORTISE_UNREACHABLE, 0, true,
                "%s was moved or deleted while in use",
                files_path(driver, moved, path, sizeof(path)));
    driver->locks.host->log(driver->locks.host, 4, "%s", driver->trouble.message);
    driver->broken = true;
    if (moved != FILE_DATABASE)
        driver->reopen_ns = 0; /* an earlier attempt is no reason to wait */
    database_close(driver);
}

/* A client may leave once it has had the write lock of the old index: any client that gets that lock later sees in
 * database_begin() that the index was replaced. False: another client has the lock. */
static bool leave_index(struct driver *driver)
{
    if (fault_is_busy(database_run(driver, TEXT_BEGIN)))
        return false;
    leave_files(driver, FILE_INDEX); /* this rolls back */
    return true;
}

/* Clients of this process that have the same database open share its index, even with a client that opens it now. If a client
 * still has the database that was in the place before, it has not noticed the change: then it leaves the log and the index of
 * that database. */
static bool close_moved(struct driver *driver, struct driver *other, const struct file *now)
{
    if (now[FILE_DATABASE].inode == 0)
        return true;
    if (other->db != NULL && !files_is_other(other->files, now, FILE_DATABASE))
        /* Judges by the present state: while this client is connected, only another program can remove its index. */
        return !files_index_is_other(other) || leave_index(other);
    if (strcmp(other->path, driver->path) != 0)
        return true;
    if (other->db != NULL && has_moved(other)) /* now: it may have opened what is there since */
        leave_files(other, FILE_DATABASE);
    return true;
}

/* The files that another client has left, and nobody could remove, are used for the database that is open now. */
static bool forget_left(struct driver *driver, struct driver *other, const struct file *now)
{
    (void)now;
    if (other->db == NULL && strcmp(other->path, driver->path) == 0)
        replaced_forget(other);
    return true;
}

/* From now on, nothing that this connection knows may get into the database. */
static void copy_nothing(struct driver *driver)
{
    sqlite3_db_config(driver->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
}

static void set_files(struct driver *driver, const struct file *files)
{
    forks_lock_left();
    memcpy(driver->files, files, sizeof(driver->files));
    forks_unlock_left();
}

/* If the database was replaced since its place was checked, the log and the index are still those of the old one. If it was
 * deleted since, that is the same as if it is deleted later. */
static mortise_status note_files(struct driver *driver, const struct file *before, bool all,
                                 mortise_error *error)
{
    char path[PATH_MAX + 8];
    struct file now[FILES];
    files_read(driver, now);
    bool moved = has_moved(driver), replaced = moved && now[FILE_DATABASE].inode != 0;
    if (files_index_is_open(now)) {
        if (moved)
            now[FILE_DATABASE] = before[FILE_DATABASE];
        set_files(driver, now);
        return replaced ? moved_meanwhile(driver, error) : MORTISE_OK;
    }
    copy_nothing(driver);
    if (replaced)
        return moved_meanwhile(driver, error); /* log and index belong to the new one */
    driver->open_later = !all;
    return fault_error(error, MORTISE_UNREACHABLE, 0, true,
                       "%s was removed while in use, and another user of the database in this "
                       "process still has the old one open",
                       files_path(driver, FILE_INDEX, path, sizeof(path)));
}

/* Looks several times: another thread may close both files during the first look, and open both again, so one look proves
 * nothing. */
static bool is_index_of_other(const struct driver *driver)
{
    struct file now[FILES];
    for (int i = 0; i < LOOKS; i++) {
        if (i > 0)
            clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = 1000000}, NULL);
        files_read(driver, now);
        if (!files_index_is_of_other(now))
            return false;
    }
    return true;
}

/* The files that a replaced database has left must not be used for the new one; least of all its index: SQLite does not notice
 * that its own process has the index open for the old database, and empties it. */
static mortise_status clear_place(struct driver *driver, bool all, mortise_error *error)
{
    replaced_take(driver);
    enum readiness ready = replaced_clear(driver, driver->locks.host->now(driver->locks.host));
    driver->open_later = ready == DATABASE_BUSY;
    if (ready != DATABASE_READY) {
        *error = driver->trouble;
        return error->status;
    }
    bool in_use = replaced_is_in_use(driver);
    if (!in_use && !is_index_of_other(driver)) /* if it was closed just now, it is noted as left */
        return replaced_take(driver) ? moved_meanwhile(driver, error) : MORTISE_OK;
    driver->open_later = in_use || !all;
    return fault_error(error, MORTISE_UNREACHABLE, 0, true,
                       "%s was replaced, and another user of the database in this process still "
                       "has the old one open",
                       driver->path);
}

static mortise_status open_settled(struct driver *driver, int64_t patience_ms, int64_t until_ns,
                                   mortise_error *error)
{
    struct file now[FILES];
    bool rebooted;
    files_read(driver, now);
    bool all = forks_others(driver, close_moved, now);
    mortise_status status = clear_place(driver, all, error);
    if (status != MORTISE_OK)
        return status;
    do {
        rebooted = false;
        status = open_once(driver, patience_ms, now, &rebooted, error);
        if (status == MORTISE_OK && rebooted) {
            database_close(driver);
            status = layout_free_rows(driver, until_ns, error);
        }
    } while (status == MORTISE_OK && rebooted);
    if (status == MORTISE_OK)
        status = note_files(driver, now, all, error);
    if (status != MORTISE_OK) {
        database_close(driver);
        return status;
    }
    replaced_forget(driver);
    forks_others(driver, forget_left, now);
    return MORTISE_OK;
}

mortise_status database_open(struct driver *driver, int64_t patience_ms, mortise_error *error)
{
    mortise_host *host = driver->locks.host;
    int64_t until_ns = host->now(host) + patience_ms * NS_PER_MS;
    mortise_status status = open_wake_folder(driver, error);
    if (status != MORTISE_OK)
        return status;
    status = open_settled(driver, patience_ms, until_ns, error);
    /* If there is no file in the place, path_find() must make one first. */
    while (driver->open_later && host->now(host) < until_ns && access(driver->path, F_OK) == 0) {
        clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = 1000000}, NULL);
        status = open_settled(driver, patience_ms, until_ns, error);
    }
    return status;
}

/* If there is another index or another database in the place, this connection does not know what was committed since. Then
 * SQLite must not copy or delete the log as if this connection were its last user. */
void database_close(struct driver *driver)
{
    struct file now[FILES];
    files_read(driver, now);
    if (driver->files[FILE_DATABASE].inode != 0 &&
        (files_is_other(driver->files, now, FILE_DATABASE) ||
         files_is_other(driver->files, now, FILE_INDEX)))
        copy_nothing(driver);
    bool noted = replaced_note(driver, now);
    for (int i = 0; i < TEXT_COUNT; i++)
        sqlite3_finalize(driver->statements[i]);
    memset(driver->statements, 0, sizeof(driver->statements));
    sqlite3_close(driver->db);
    driver->db = NULL;
    files_read(driver, now);
    /* The database may have been replaced meanwhile. But what was noted is not noted again, because another client may
     * already have begun to count the time for it. */
    if (!noted)
        replaced_note(driver, now);
    set_files(driver, (const struct file[FILES]){{.inode = 0}});
}

/* ---- the file is replaced or changed underneath -------------------------------------------------- */

static int take_number(void *number, int columns, char **texts, char **names)
{
    (void)names;
    if (columns == 1 && texts[0] != NULL)
        *(int *)number = (int)strtol(texts[0], NULL, 10);
    return 0;
}

int database_schema_version(struct driver *driver)
{
    int version = -1;
    int rc = sqlite3_exec(driver->db, "PRAGMA schema_version", take_number, &version, NULL);
    return rc == SQLITE_OK ? version : -1;
}

/* VACUUM changes the version, too. Then opening the file again does no harm. */
static bool has_changed(struct driver *driver)
{
    driver->step_until_ns = driver->locks.host->now(driver->locks.host) + STEP_MAX_NS;
    int version = database_schema_version(driver);
    return version >= 0 && version != driver->schema_version;
}

/* All clients still share the index, but the next ones find no log where the index points. Nothing can be done about
 * that while others use the old log. */
static void tell_of_log(struct driver *driver)
{
    struct file now[FILES];
    files_read(driver, now);
    if (!files_is_other(driver->files, now, FILE_LOG) ||
        files_is_other(driver->files, now, FILE_DATABASE))
        return;
    now[FILE_DATABASE] = driver->files[FILE_DATABASE];
    now[FILE_INDEX] = driver->files[FILE_INDEX];
    set_files(driver, now);
    driver->locks.host->log(driver->locks.host, 4,
                            "%s-wal was moved or deleted while in use; end all programs that use "
                            "the database, and start them again",
                            driver->path);
}

/* False: other clients still work by the replaced index. */
static bool look(struct driver *driver, int64_t now_ns)
{
    driver->look_ns = now_ns + LOOK_EVERY_NS;
    if (now_ns >= driver->inside_ns && has_moved(driver)) {
        leave_files(driver, FILE_DATABASE);
        return true;
    }
    if (files_index_is_other(driver)) {
        driver->look_ns = 0;
        return leave_index(driver);
    }
    tell_of_log(driver);
    if (now_ns >= driver->touch_ns) {
        files_touch(driver);
        inbox_touch(driver);
        driver->touch_ns = now_ns + TOUCH_EVERY_NS;
    }
    if (now_ns >= driver->inside_ns) {
        driver->inside_ns = now_ns + LOOK_INSIDE_NS;
        driver->broken = has_changed(driver) || driver->broken;
    }
    return true;
}

static enum readiness reopen(struct driver *driver, int64_t now_ns)
{
    database_close(driver);
    driver->reopen_ns = now_ns + REOPEN_EVERY_NS;
    driver->open_later = false;
    mortise_status status = path_find(driver, &driver->trouble);
    if (status == MORTISE_OK)
        status = database_open(driver, 0, &driver->trouble);
    if (driver->open_later)
        driver->reopen_ns = 0;
    if (status != MORTISE_OK)
        return driver->open_later ? DATABASE_BUSY : DATABASE_CLOSED;
    driver->broken = false;
    inbox_close(driver);
    locks_unlisted(&driver->locks);
    return DATABASE_READY;
}

enum readiness database_ready(struct driver *driver)
{
    int64_t now_ns = driver->locks.host->now(driver->locks.host);
    if (driver->db != NULL && (driver->broken || now_ns >= driver->look_ns) &&
        !look(driver, now_ns))
        return DATABASE_BUSY;
    if (!driver->broken)
        return DATABASE_READY;
    if (now_ns >= driver->reopen_ns)
        return reopen(driver, now_ns);
    return driver->db != NULL ? DATABASE_READY : DATABASE_CLOSED;
}
