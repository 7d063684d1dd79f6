/* replaced.c - another database is in the place of the one that was open: before it is opened, the log and the index of the
 * old one are removed.
 *
 * A log does not say which database it belongs to. SQLite, which finds that of the old file beside the new one, lays its pages
 * over those of the new one. (Only if the new file is empty, it removes the log.)
 *
 * Others may still have the old file open: they keep its log and its index without their names, until they notice. But a
 * program that opened the new file before the names were gone uses them for the new file, and must not be parted from those
 * that come later. It has a shared lock on the new file, and each that opens it needs one before it looks for a log. So they
 * are removed under an exclusive lock on the new file, as SQLite does itself; if that cannot be had, they stay. Two clients
 * that try at the same time can keep it from each other: so they try for a while. */
#include "driver.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TRY_NS (1000 * NS_PER_MS)
#define GIVEN_UP (-1)
#define LEAVE_TRIES 100 /* one a millisecond */

bool replaced_note(struct driver *driver, const struct file *now)
{
    if (driver->files[FILE_DATABASE].inode == 0 ||
        (now[FILE_DATABASE].inode != 0 && !files_is_other(driver->files, now, FILE_DATABASE)))
        return false;
    forks_lock_left();
    memcpy(driver->left, driver->files, sizeof(driver->left));
    driver->left_until_ns = 0;
    forks_unlock_left();
    return true;
}

void replaced_forget(struct driver *driver)
{
    forks_lock_left();
    memset(driver->left, 0, sizeof(driver->left));
    driver->left_until_ns = 0;
    forks_unlock_left();
}

static bool is_there(const struct file *files, const struct file *now, int which)
{
    return files[which].inode != 0 && now[which].inode != 0 && !files_is_other(files, now, which);
}

static bool is_left(const struct driver *driver, const struct file *now, int which)
{
    return is_there(driver->left, now, which);
}

/* What a database has that is not in its place (any more, or again). */
static bool are_there(const struct file *files, const struct file *now)
{
    return files[FILE_DATABASE].inode != 0 && !is_there(files, now, FILE_DATABASE) &&
           (is_there(files, now, FILE_LOG) || is_there(files, now, FILE_INDEX));
}

static bool is_anything_left(const struct driver *driver)
{
    struct file now[FILES];
    if (driver->left[FILE_DATABASE].inode == 0)
        return false;
    files_read(driver, now);
    return are_there(driver->left, now);
}

/* What is left at another path is another matter, and may be gone: then its numbers are given to other files. */
static bool is_beside(const struct driver *driver, const struct driver *other)
{
    return strcmp(other->path, driver->path) == 0;
}

/* All that the other one has left, and is still there. */
static bool knows(const struct driver *driver, const struct driver *other, const struct file *now)
{
    for (int i = FILE_LOG; i <= FILE_INDEX; i++)
        if (is_left(other, now, i) && !is_left(driver, now, i))
            return false;
    return true;
}

/* The time, too: a client that is opened may have less of it, and the next one must not begin anew. */
static bool take(struct driver *driver, struct driver *other, const struct file *now)
{
    mortise_host *host = driver->locks.host;
    if (!is_beside(driver, other) || !are_there(other->left, now) || knows(driver, other, now))
        return false;
    if (other->left_until_ns == 0)
        other->left_until_ns = host->now(host) + TRY_NS;
    memcpy(driver->left, other->left, sizeof(driver->left));
    driver->left_until_ns = other->left_until_ns;
    return true;
}

bool replaced_take(struct driver *driver)
{
    struct file now[FILES];
    files_read(driver, now);
    return now[FILE_DATABASE].inode != 0 && forks_left(driver, take, now);
}

static bool has_old(struct driver *driver, struct driver *other, const struct file *now)
{
    return is_beside(driver, other) && are_there(other->files, now);
}

bool replaced_is_in_use(struct driver *driver)
{
    struct file now[FILES];
    files_read(driver, now);
    return now[FILE_DATABASE].inode != 0 && forks_left(driver, has_old, now);
}

/* First the log: an index that no process has open any more is made anew by the next one. If this process is killed in between, and
 * others still have the old file open, they have that index, too: what opens the new file gets I/O errors, until one of them has
 * noticed and removes it. */
static int remove_left(struct driver *driver, sqlite3 *db)
{
    char path[PATH_MAX + 8];
    struct file now[FILES];
    int moved = 1;
    sqlite3_file_control(db, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
    if (moved) { /* what is locked is not what is in the place now */
        fault_error(&driver->trouble, MORTISE_UNREACHABLE, 0, true,
                    "%s was moved or deleted while in use", driver->path);
        return SQLITE_BUSY;
    }
    files_read(driver, now);
    if (is_left(driver, now, FILE_DATABASE))
        return SQLITE_OK; /* it is back */
    for (int i = FILE_LOG; i <= FILE_INDEX; i++)
        if (is_left(driver, now, i) && unlink(files_path(driver, i, path, sizeof(path))) != 0 &&
            errno != ENOENT) {
            int code = errno;
            fault_error(&driver->trouble, MORTISE_UNREACHABLE, code, true,
                        "%s belongs to the database that was replaced, and cannot be removed: %s",
                        path, strerror(code));
            return SQLITE_PERM;
        }
    replaced_forget(driver); /* what is left later is another matter */
    return SQLITE_OK;
}

static int remove_alone(struct driver *driver)
{
    sqlite3 *db = NULL;
    sqlite3_file *file = NULL;
    int rc = connection_open_as(driver, &db);
    if (rc == SQLITE_OK)
        rc = sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file);
    if (rc == SQLITE_OK)
        rc = file->pMethods->xLock(file, SQLITE_LOCK_SHARED);
    if (rc == SQLITE_OK)
        rc = file->pMethods->xLock(file, SQLITE_LOCK_EXCLUSIVE);
    if (rc != SQLITE_OK)
        connection_failed(driver, rc, &driver->trouble);
    if (rc == SQLITE_OK)
        rc = remove_left(driver, db);
    if (file != NULL)
        file->pMethods->xUnlock(file, SQLITE_LOCK_NONE);
    sqlite3_close(db);
    return rc;
}

static void tell_if_mixed(const struct driver *driver)
{
    if (is_anything_left(driver)) /* if it is the index alone, SQLite has removed the log */
        driver->locks.host->log(driver->locks.host, 4,
                                "%s was replaced, and another program opened the new file while "
                                "the log of the old one was beside it: the new file may be damaged",
                                driver->path);
}

/* Returns until when it is tried. */
static int64_t begin_to_try(struct driver *driver, int64_t now_ns)
{
    forks_lock_left();
    int64_t until_ns = driver->left_until_ns;
    if (until_ns == 0)
        driver->left_until_ns = until_ns = now_ns + TRY_NS;
    else if (now_ns >= until_ns)
        driver->left_until_ns = GIVEN_UP;
    forks_unlock_left();
    return until_ns;
}

enum readiness replaced_clear(struct driver *driver, int64_t now_ns)
{
    if (is_anything_left(driver)) {
        int rc = remove_alone(driver);
        if (rc == SQLITE_OK)
            return DATABASE_READY;
        if (!fault_is_busy(rc))
            return DATABASE_CLOSED;
        int64_t until_ns = begin_to_try(driver, now_ns);
        if (now_ns < until_ns)
            return DATABASE_BUSY;
        if (until_ns != GIVEN_UP)
            tell_if_mixed(driver);
    }
    return DATABASE_READY;
}

void replaced_leave(struct driver *driver)
{
    mortise_error ignored;
    int rc = SQLITE_BUSY;
    if (!is_anything_left(driver) || access(driver->path, F_OK) != 0 ||
        path_find(driver, &ignored) != MORTISE_OK)
        return;
    for (int i = 0; i < LEAVE_TRIES && fault_is_busy(rc) && is_anything_left(driver); i++) {
        rc = remove_alone(driver);
        if (fault_is_busy(rc)) /* or another client that knows of it is opened, and removes it */
            clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    if (fault_is_busy(rc))
        tell_if_mixed(driver);
    else if (rc != SQLITE_OK)
        driver->locks.host->log(driver->locks.host, 4, "%s", driver->trouble.message);
}
