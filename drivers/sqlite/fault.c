/* fault.c - SQLite's result codes, as statuses of Mortise and as lines that a person can act on. Each names the file;
 * none contains more of a name than its quoted form. */
#include "driver.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

mortise_status fault_error(mortise_error *error, mortise_status status, int native, bool retryable,
                           const char *format, ...)
{
    memset(error, 0, sizeof(*error));
    error->status = status;
    error->native = native;
    error->retryable = retryable;
    snprintf(error->driver, sizeof(error->driver), "sqlite");
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof(error->message), format, arguments);
    va_end(arguments);
    return status;
}

/* Whether another client is at work in the file, so that nothing was done, and the same may succeed in a moment. */
bool fault_is_busy(int rc)
{
    int kind = rc & 0xff;
    return kind == SQLITE_BUSY || kind == SQLITE_LOCKED || kind == SQLITE_PROTOCOL;
}

static const struct {
    int rc;
    mortise_status status;
    bool retryable;
    const char *text;
} faults[] = {
    {SQLITE_FULL, MORTISE_BACKEND, true, "the disk is full"},
    {SQLITE_IOERR, MORTISE_INDETERMINATE, true, "I/O error"},
    {SQLITE_CORRUPT, MORTISE_BACKEND, false, "the database is corrupt"},
    {SQLITE_NOTADB, MORTISE_BACKEND, false,
     "this is no SQLite database, or it is corrupt; use another path"},
    {SQLITE_READONLY, MORTISE_BACKEND, false, "the database cannot be written"},
    {SQLITE_CANTOPEN, MORTISE_BACKEND, true, "the database or its log cannot be opened"},
    {SQLITE_PERM, MORTISE_BACKEND, false, "access to the database is denied"},
    {SQLITE_AUTH, MORTISE_BACKEND, false, "access to the database is denied"},
    {SQLITE_NOMEM, MORTISE_NOMEM, true, "out of memory"},
    {SQLITE_NOLFS, MORTISE_BACKEND, false, "the file system does not support such a large file"},
    {SQLITE_BUSY, MORTISE_UNREACHABLE, true, "another process keeps the database locked"},
    {SQLITE_LOCKED, MORTISE_UNREACHABLE, true, "another process keeps the database locked"},
    {SQLITE_PROTOCOL, MORTISE_UNREACHABLE, true, "another process keeps the database locked"},
    {SQLITE_INTERRUPT, MORTISE_INDETERMINATE, true,
     "it took too long; was the database changed by hand?"},
    {SQLITE_ABORT, MORTISE_INDETERMINATE, true, /* transactions.c: commit() */
     "the index of SQLite's log (-shm) was moved or deleted while in use"},
    {SQLITE_TOOBIG, MORTISE_BACKEND, false, "a row is too long; was it written by hand?"},
    {SQLITE_MISMATCH, MORTISE_BACKEND, false, "the row makes no sense; was it written by hand?"},
};

static const char *describe(int rc, struct fault *fault)
{
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        if (faults[i].rc != (rc & 0xff))
            continue;
        fault->base.status = faults[i].status;
        fault->base.retryable = faults[i].retryable;
        return faults[i].text;
    }
    fault->base.status = MORTISE_BACKEND;
    return sqlite3_errstr(rc);
}

/* SQLite writes all frames of a commit, then flushes them, then enters them into the log's index. If it failed after the last
 * frame, a recovery of the log may find the commit. If a frame could not be written, the commit never took place. */
static bool is_behind_frames(int rc)
{
    int kind = rc & 0xff;
    return kind == SQLITE_NOMEM || (kind == SQLITE_IOERR && rc != SQLITE_IOERR_WRITE);
}

struct fault fault_of(int rc, int code, bool committing)
{
    struct fault fault = {.base.native = rc};
    /* for example when the log's index had to grow */
    fault.full = (rc & 0xff) == SQLITE_FULL || code == ENOSPC || code == EDQUOT;
    const char *text = describe(fault.full ? SQLITE_FULL : rc, &fault);
    if (committing && is_behind_frames(rc))
        fault.base.status = MORTISE_INDETERMINATE;
    snprintf(fault.base.text, sizeof(fault.base.text), "%s%s%s", text, code != 0 ? ": " : "",
             code != 0 ? strerror(code) : "");
    return fault;
}

struct fault fault_read(struct driver *driver, int rc, bool committing)
{
    int code = 0, kind = rc & 0xff;
    if (driver->db != NULL && (kind == SQLITE_IOERR || kind == SQLITE_CANTOPEN))
        code = sqlite3_system_errno(driver->db);
    return fault_of(rc, code, committing);
}

static bool is_downgrade(const struct sql_request *request)
{
    return request->kind == MORTISE_OP_RENEW && request->op != NULL &&
           (request->op->flags & MORTISE_OP_DOWNGRADE) != 0;
}

mortise_status fault_status(const struct sql_request *request, const struct fault *fault)
{
    bool leaves = request->kind == MORTISE_OP_ACQUIRE || request->kind == MORTISE_OP_RELEASE ||
                  request->kind == MORTISE_OP_WRITE || is_downgrade(request);
    mortise_status status = fault->base.status;
    return status == MORTISE_INDETERMINATE && !leaves ? MORTISE_UNREACHABLE : status;
}
