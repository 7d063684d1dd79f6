/* dialect.c - the steps of drivers/lib/sql as statements of SQLite. All steps that write run inside a transaction that
 * transactions.c has begun with the write lock, so a row does not change between reading and writing. protocol.md says
 * what each step promises. */
#include "driver.h"

#include <stdio.h>
#include <string.h>

/* ---- reading ----------------------------------------------------------------------------------- */

/* Reads a blob column. False: it is too long. NULL counts as 0 bytes. */
static bool read_bytes(sqlite3_stmt *statement, int column, void *to, size_t size, size_t *len)
{
    const void *bytes = sqlite3_column_blob(statement, column);
    int n = sqlite3_column_bytes(statement, column);
    *len = bytes != NULL && n > 0 ? (size_t)n : 0;
    if (*len > size)
        return false;
    if (*len > 0)
        memcpy(to, bytes, *len);
    return true;
}

/* Takes a row of READ or LIST. False: it makes no sense. */
static bool take_row(sqlite3_stmt *statement, int first, struct rowlease_row *row)
{
    row->exists = true;
    row->version = sqlite3_column_int64(statement, first);
    row->owned = sqlite3_column_type(statement, first + 1) != SQLITE_NULL;
    row->acquired_us = sqlite3_column_int64(statement, first + 3);
    row->expires_us = sqlite3_column_int64(statement, first + 4);
    bool fits = read_bytes(statement, first + 1, row->owner, sizeof(row->owner), &row->owner_len);
    fits &= read_bytes(statement, first + 2, row->grants, sizeof(row->grants), &row->grants_len);
    fits &= read_bytes(statement, first + 5, row->waiters, sizeof(row->waiters), &row->waiters_len);
    fits &= read_bytes(statement, first + 6, row->note, sizeof(row->note), &row->note_len);
    return fits && rowlease_valid(row);
}

static void set_absent(struct rowlease_row *row)
{
    row->exists = row->owned = false;
    row->version = row->acquired_us = row->expires_us = 0;
    row->owner_len = row->grants_len = row->waiters_len = row->note_len = 0;
}

/* A row alone is no success yet: the step after it may commit, or fail. */
static int end_step(sqlite3_stmt *statement, int rc)
{
    int end = sqlite3_reset(statement);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : end != SQLITE_OK ? end : rc;
}

static int read_row(struct driver *driver, struct sql_request *request)
{
    sqlite3_stmt *statement = driver->statements[TEXT_READ];
    struct sql_locks *locks = &driver->locks;
    size_t len;
    const char *name = request_name(request, &len);
    set_absent(&locks->row);
    int rc = sqlite3_bind_blob64(statement, 1, name, len, SQLITE_STATIC);
    if (rc != SQLITE_OK)
        return rc;
    rc = database_step(driver, statement);
    if (rc == SQLITE_ROW)
        locks->result.insane = !take_row(statement, 0, &locks->row);
    clock_read(driver, &locks->result.now_us, &locks->result.wall_us);
    request->sent_ns = clock_host_ns(driver, locks->result.now_us);
    return end_step(statement, rc);
}

/* ---- writing ----------------------------------------------------------------------------------- */

static int bind_bytes(sqlite3_stmt *statement, int at, const void *bytes, size_t len)
{
    if (len == 0)
        return sqlite3_bind_null(statement, at);
    return sqlite3_bind_blob64(statement, at, bytes, len, SQLITE_STATIC);
}

static int write_row(struct driver *driver, const struct sql_request *request)
{
    struct sql_locks *locks = &driver->locks;
    const struct rowlease_row *row = &locks->next;
    enum text text = locks->row.exists ? TEXT_UPDATE : TEXT_INSERT;
    sqlite3_stmt *statement = driver->statements[text];
    size_t len;
    const char *name = request_name(request, &len);
    int rc = sqlite3_bind_blob64(statement, 1, name, len, SQLITE_STATIC);
    rc |= sqlite3_bind_int64(statement, 2, row->version);
    rc |= bind_bytes(statement, 3, row->owner, row->owned ? row->owner_len : 0);
    rc |= bind_bytes(statement, 4, row->grants, row->grants_len);
    rc |= sqlite3_bind_int64(statement, 5, row->acquired_us);
    rc |= sqlite3_bind_int64(statement, 6, row->expires_us);
    rc |= bind_bytes(statement, 7, row->waiters, row->waiters_len);
    rc |= bind_bytes(statement, 8, row->note, row->note_len);
    locks->result.touched = true;
    return rc == SQLITE_OK ? database_run(driver, text) : rc;
}

/* ---- list, ping, records ------------------------------------------------------------------------- */

static int list(struct driver *driver, struct sql_request *request)
{
    sqlite3_stmt *statement = driver->statements[TEXT_LIST];
    const mortise_op *op = request->op;
    const void *prefix = op->name_len > 0 ? (const void *)op->name : "";
    char end[MORTISE_NAME_MAX];
    int64_t now_us, wall_us;
    clock_read(driver, &now_us, &wall_us);
    size_t end_len = locks_end_of_prefix(op->name, op->name_len, end);
    int rc = sqlite3_bind_blob64(statement, 1, prefix, op->name_len, SQLITE_STATIC);
    rc |= database_bind_end(statement, 2, end, end_len);
    rc |= sqlite3_bind_int64(statement, 3, now_us);
    if (rc != SQLITE_OK)
        return rc;
    while ((rc = database_step(driver, statement)) == SQLITE_ROW) {
        if (!take_row(statement, 1, &driver->locks.row)) {
            rc = SQLITE_MISMATCH;
            break;
        }
        int len = sqlite3_column_bytes(statement, 0);
        locks_list_row(request, sqlite3_column_blob(statement, 0), len > 0 ? (size_t)len : 0,
                       now_us);
    }
    return end_step(statement, rc);
}

static int ping(struct driver *driver, struct sql_request *request)
{
    sqlite3_stmt *statement = driver->statements[TEXT_PING];
    int rc = database_step(driver, statement);
    int layout = rc == SQLITE_ROW ? sqlite3_column_int(statement, 0) : 0;
    snprintf(request->op->buffer, request->op->buffer_size, "SQLite %s, %s, layout %d",
             sqlite3_libversion(), driver->path, layout);
    filesystem_findings(driver, request->op);
    return end_step(statement, rc);
}

static int record_read(struct driver *driver, struct sql_request *request)
{
    sqlite3_stmt *statement = driver->statements[TEXT_RECORD_READ];
    const mortise_op *op = request->op;
    int rc = sqlite3_bind_blob64(statement, 1, op->name, op->name_len, SQLITE_STATIC);
    if (rc != SQLITE_OK)
        return rc;
    rc = database_step(driver, statement);
    if (rc == SQLITE_ROW) {
        const void *value = sqlite3_column_blob(statement, 1);
        int len = sqlite3_column_bytes(statement, 1);
        locks_record(request, sqlite3_column_int64(statement, 0), value, len > 0 ? (size_t)len : 0);
    }
    return end_step(statement, rc);
}

static int record_write(struct driver *driver, struct sql_request *request)
{
    const mortise_op *op = request->op;
    struct sql_result *result = &driver->locks.result;
    enum text text = op->record_version == 0 ? TEXT_RECORD_MAKE : TEXT_RECORD_WRITE;
    sqlite3_stmt *statement = driver->statements[text];
    const void *value = op->record_size > 0 ? op->record : ""; /* NULL would be bound as NULL */
    int rc = sqlite3_bind_blob64(statement, 1, op->name, op->name_len, SQLITE_STATIC);
    rc |= sqlite3_bind_blob64(statement, 2, value, op->record_size, SQLITE_STATIC);
    if (text == TEXT_RECORD_WRITE)
        rc |= sqlite3_bind_int64(statement, 3, (int64_t)op->record_version);
    if (rc != SQLITE_OK)
        return rc;
    rc = database_step(driver, statement);
    result->touched = rc == SQLITE_ROW;
    if (result->touched) {
        result->version = sqlite3_column_int64(statement, 0);
        rc = database_step(driver, statement);
    }
    return end_step(statement, rc);
}

/* ---- a step -------------------------------------------------------------------------------------- */

int dialect_execute(struct driver *driver, struct sql_request *request)
{
    driver->locks.result = (struct sql_result){.touched = false};
    request->sure = true; /* no step is ever on its way: it was executed, or it was not */
    switch (request->step) {
    case SQL_READ:
        return read_row(driver, request);
    case SQL_WRITE:
        return write_row(driver, request);
    case SQL_LIST:
        return list(driver, request);
    case SQL_PING:
        return ping(driver, request);
    case SQL_RECORD_READ:
        return record_read(driver, request);
    case SQL_RECORD_WRITE:
        return record_write(driver, request);
    default:
        return SQLITE_MISUSE; /* steps that this dialect does not have */
    }
}

/* ---- the table --------------------------------------------------------------------------------- */

static enum sql_notified notify(struct sql_locks *locks, const struct rowlease_inbox *inbox,
                                const char *name, size_t name_len)
{
    return inbox_send((struct driver *)locks, inbox, name, name_len) ? SQL_NOTIFIED : SQL_NOBODY;
}

static bool is_alive(struct sql_locks *locks, const struct rowlease_inbox *inbox)
{
    return inbox_is_alive((struct driver *)locks, inbox);
}

/* Only a waiting client makes a socket. */
static bool hear(struct sql_locks *locks, bool dropped)
{
    struct driver *driver = (struct driver *)locks;
    if (dropped && inbox_is_lost(driver)) {
        inbox_close(driver);
        locks_unlisted(locks);
    }
    return inbox_ready(driver);
}

static const char *where(const struct sql_request *request, char *text, size_t size)
{
    (void)text;
    (void)size;
    return ((const struct driver *)request->locks)->path;
}

const struct sql_dialect sqlite_dialect = {
    .request_size = sizeof(struct request),
    .quick = false,          /* a statement with RETURNING takes longer than a read and a write */
    .append = false,         /* a WRITE never fails */
    .visible_is_safe = true, /* if a power cut loses a commit, it ends all holders, too */
    .run = transactions_run,
    .cancel = transactions_cancel,
    .notify = notify,
    .is_alive = is_alive,
    .hear = hear,
    .where = where,
};
