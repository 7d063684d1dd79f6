/* look.c - inspect, list and ping: reading only. In the log-based journal a reader waits for nobody. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

void look_tell(const struct rowlease_row *row, int64_t now_us, const void *name, size_t name_len,
               mortise_info *info)
{
    if (name_len > MORTISE_NAME_MAX)
        name_len = MORTISE_NAME_MAX;
    memcpy(info->name, name, name_len);
    info->name[name_len] = '\0';
    rowlease_inspect(row, now_us, info);
}

int look_inspect(struct driver *driver, mortise_op *op, struct outcome *outcome)
{
    outcome->answer.status = MORTISE_OK;
    int rc = row_read(driver, op->name, op->name_len, &driver->row);
    if (rc != SQLITE_OK)
        return rc;
    look_tell(&driver->row, clock_read(driver).now_us, op->name, op->name_len, op->info);
    return SQLITE_OK;
}

/* The first name after all that begin with the prefix: the prefix with its last byte that is not 0xff
 * raised, and cut there. 0: there is none, every later name begins with it. */
static size_t end_of_prefix(const char *prefix, size_t len, char *end)
{
    while (len > 0 && (unsigned char)prefix[len - 1] == 0xff)
        len--;
    if (len == 0)
        return 0;
    memcpy(end, prefix, len);
    end[len - 1] = (char)((unsigned char)end[len - 1] + 1);
    return len;
}

static int bind_list(sqlite3_stmt *statement, const mortise_op *op, const char *end, size_t end_len,
                     int64_t now_us)
{
    const void *prefix = op->name_len > 0 ? (const void *)op->name : "";
    int rc = sqlite3_bind_blob64(statement, 1, prefix, op->name_len, SQLITE_STATIC);
    if (end_len > 0)
        rc |= sqlite3_bind_blob64(statement, 2, end, end_len, SQLITE_STATIC);
    else
        rc |= sqlite3_bind_null(statement, 2);
    rc |= sqlite3_bind_int64(statement, 3, now_us);
    return rc;
}

/* One snapshot: names that come and go meanwhile are neither missed nor told twice. */
int look_list(struct driver *driver, mortise_op *op, struct outcome *outcome)
{
    sqlite3_stmt *statement = driver->statements[SQL_LIST];
    mortise_info info = {.size = sizeof(info)};
    char end[MORTISE_NAME_MAX];
    int64_t now_us = clock_read(driver).now_us;
    size_t end_len = end_of_prefix(op->name, op->name_len, end);
    int rc = bind_list(statement, op, end, end_len, now_us);
    if (rc != SQLITE_OK)
        return rc;
    while ((rc = database_step(driver, statement)) == SQLITE_ROW) {
        rc = row_step(statement, 1, &driver->row);
        if (rc != SQLITE_OK)
            break;
        int len = sqlite3_column_bytes(statement, 0);
        look_tell(&driver->row, now_us, sqlite3_column_blob(statement, 0),
                  len > 0 ? (size_t)len : 0, &info);
        driver->host->emit(driver->host, op, &info);
    }
    sqlite3_reset(statement);
    outcome->answer.status = MORTISE_OK;
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int look_ping(struct driver *driver, mortise_op *op, struct outcome *outcome)
{
    sqlite3_stmt *statement = driver->statements[SQL_PING];
    int rc = database_step(driver, statement);
    int layout = rc == SQLITE_ROW ? sqlite3_column_int(statement, 0) : 0;
    int end = sqlite3_reset(statement);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        return end;
    snprintf(op->buffer, op->buffer_size, "SQLite %s, %s, layout %d", sqlite3_libversion(),
             driver->path, layout);
    outcome->answer.status = MORTISE_OK;
    return SQLITE_OK;
}
