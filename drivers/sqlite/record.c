/* record.c - the small named records, which outlive clients: read, and written by compare-and-swap. */
#include "internal.h"

#include <string.h>

static int take_value(sqlite3_stmt *statement, mortise_op *op, struct outcome *outcome)
{
    const void *value = sqlite3_column_blob(statement, 1);
    int len = sqlite3_column_bytes(statement, 1);
    if (len < 0 || (size_t)len > op->buffer_size) {
        outcome->answer.status = MORTISE_BACKEND;
        outcome->answer.trouble = "the record is larger than the room for it";
        return SQLITE_OK;
    }
    if (len > 0)
        memcpy(op->buffer, value, (size_t)len);
    outcome->record_size = (size_t)len;
    outcome->record_version = (uint64_t)sqlite3_column_int64(statement, 0);
    return SQLITE_OK;
}

int record_read(struct driver *driver, mortise_op *op, struct outcome *outcome)
{
    sqlite3_stmt *statement = driver->statements[SQL_RECORD_READ];
    int rc = sqlite3_bind_blob64(statement, 1, op->name, op->name_len, SQLITE_STATIC);
    if (rc != SQLITE_OK)
        return rc;
    outcome->answer.status = MORTISE_OK;
    outcome->record_size = 0;
    outcome->record_version = 0;
    rc = database_step(driver, statement);
    if (rc == SQLITE_ROW)
        rc = take_value(statement, op, outcome);
    int end = sqlite3_reset(statement);
    return rc == SQLITE_DONE || rc == SQLITE_OK ? SQLITE_OK : end;
}

int record_write(struct driver *driver, mortise_op *op, struct outcome *outcome)
{
    enum sql which = op->record_version == 0 ? SQL_RECORD_MAKE : SQL_RECORD_WRITE;
    sqlite3_stmt *statement = driver->statements[which];
    const void *value = op->record_size > 0 ? op->record : ""; /* NULL would be bound as NULL */
    if (op->record_version > INT64_MAX) {
        outcome->answer.status = MORTISE_BUSY;
        return SQLITE_OK;
    }
    int rc = sqlite3_bind_blob64(statement, 1, op->name, op->name_len, SQLITE_STATIC);
    rc |= sqlite3_bind_blob64(statement, 2, value, op->record_size, SQLITE_STATIC);
    if (which == SQL_RECORD_WRITE)
        rc |= sqlite3_bind_int64(statement, 3, (int64_t)op->record_version);
    if (rc != SQLITE_OK)
        return rc;
    rc = database_step(driver, statement);
    outcome->answer.status = rc == SQLITE_ROW ? MORTISE_OK : MORTISE_BUSY;
    if (rc == SQLITE_ROW) {
        outcome->record_version = (uint64_t)sqlite3_column_int64(statement, 0);
        rc = database_step(driver, statement);
    }
    sqlite3_reset(statement);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}
