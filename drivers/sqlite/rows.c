/* rows.c - a row of the table, read into memory and written back where it is still as it was read. */
#include "internal.h"

#include <string.h>

#define SWAPS_MAX 16 /* in a row that failed: then let the others go first */

/* ---- reading ----------------------------------------------------------------------------------- */

/* A blob column; false: it is longer than it may be. NULL is 0 bytes. */
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

int row_step(sqlite3_stmt *statement, int first, struct rowlease_row *row)
{
    row->exists = true;
    row->version = sqlite3_column_int64(statement, first);
    row->shared = sqlite3_column_type(statement, first + 1) != SQLITE_NULL;
    bool fits = read_bytes(statement, first + 1, row->owner, sizeof(row->owner), &row->owner_len);
    fits = fits &&
           read_bytes(statement, first + 2, row->grants, sizeof(row->grants), &row->grants_len);
    row->acquired_us = sqlite3_column_int64(statement, first + 3);
    row->expires_us = sqlite3_column_int64(statement, first + 4);
    fits = fits &&
           read_bytes(statement, first + 5, row->waiters, sizeof(row->waiters), &row->waiters_len);
    fits = fits && read_bytes(statement, first + 6, row->note, sizeof(row->note), &row->note_len);
    return fits && rowlease_valid(row) ? SQLITE_OK : SQLITE_MISMATCH;
}

static void row_absent(struct rowlease_row *row)
{
    row->exists = row->shared = false;
    row->version = row->acquired_us = row->expires_us = 0;
    row->owner_len = row->grants_len = row->waiters_len = row->note_len = 0;
}

int row_read(struct driver *driver, const char *name, size_t name_len, struct rowlease_row *row)
{
    sqlite3_stmt *statement = driver->statements[SQL_READ];
    row_absent(row);
    int rc = sqlite3_bind_blob64(statement, 1, name, name_len, SQLITE_STATIC);
    if (rc != SQLITE_OK)
        return rc;
    rc = database_step(driver, statement);
    if (rc == SQLITE_ROW)
        rc = row_step(statement, 0, row);
    int end = sqlite3_reset(statement);
    if (rc == SQLITE_DONE || rc == SQLITE_OK)
        return end;
    return rc;
}

/* ---- writing ----------------------------------------------------------------------------------- */

static int bind_bytes(sqlite3_stmt *statement, int at, const void *bytes, size_t len)
{
    if (len == 0)
        return sqlite3_bind_null(statement, at);
    return sqlite3_bind_blob64(statement, at, bytes, len, SQLITE_STATIC);
}

static int bind_row(sqlite3_stmt *statement, const char *name, size_t name_len,
                    const struct rowlease_row *row)
{
    int rc = sqlite3_bind_blob64(statement, 1, name, name_len, SQLITE_STATIC);
    rc |= sqlite3_bind_int64(statement, 2, row->version);
    rc |= bind_bytes(statement, 3, row->owner, row->shared ? row->owner_len : 0);
    rc |= bind_bytes(statement, 4, row->grants, row->grants_len);
    rc |= sqlite3_bind_int64(statement, 5, row->acquired_us);
    rc |= sqlite3_bind_int64(statement, 6, row->expires_us);
    rc |= bind_bytes(statement, 7, row->waiters, row->waiters_len);
    rc |= bind_bytes(statement, 8, row->note, row->note_len);
    return rc;
}

/* Version, grants, expiry and waiters are the whole state: owner and note change with the grants. */
static int bind_old(sqlite3_stmt *statement, const struct rowlease_row *row)
{
    int rc = sqlite3_bind_int64(statement, 9, row->version);
    rc |= bind_bytes(statement, 10, row->grants, row->grants_len);
    rc |= sqlite3_bind_int64(statement, 11, row->expires_us);
    rc |= bind_bytes(statement, 12, row->waiters, row->waiters_len);
    return rc;
}

int row_swap(struct driver *driver, const char *name, size_t name_len,
             const struct rowlease_row *from, const struct rowlease_row *to, bool *swapped)
{
    enum sql which = from->exists ? SQL_SWAP : SQL_INSERT;
    sqlite3_stmt *statement = driver->statements[which];
    int rc = bind_row(statement, name, name_len, to);
    if (rc == SQLITE_OK && from->exists)
        rc = bind_old(statement, from);
    if (rc == SQLITE_OK)
        rc = database_run(driver, which);
    *swapped = rc == SQLITE_OK && sqlite3_changes(driver->db) == 1;
    return rc;
}

/* ---- both -------------------------------------------------------------------------------------- */

static void note_waiters(const struct rowlease_row *row, struct outcome *outcome)
{
    outcome->version = row->version;
    outcome->waiter_count =
        rowlease_waiters(row->waiters, row->waiters_len, outcome->waiters, WAKE_MAX);
}

int row_change_to(struct driver *driver, const char *name, size_t name_len, row_change *change,
                  const void *argument, struct outcome *outcome)
{
    bool swapped = false;
    for (int i = 0; i < SWAPS_MAX && !swapped; i++) {
        int rc = row_read(driver, name, name_len, &driver->row);
        if (rc != SQLITE_OK)
            return rc;
        rowlease_copy(&driver->next, &driver->row);
        outcome->answer = change(&driver->next, clock_read(driver), argument);
        if (!outcome->answer.write)
            break;
        rc = row_swap(driver, name, name_len, &driver->row, &driver->next, &swapped);
        if (rc != SQLITE_OK)
            return rc;
    }
    if (outcome->answer.write && !swapped)
        return SQLITE_BUSY;
    if (outcome->answer.wake)
        note_waiters(&driver->next, outcome);
    return SQLITE_OK;
}
