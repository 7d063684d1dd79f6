/* replaced.c - handles the case that another database is in the place of the one that was open: removes the log and the index
 * of the old one before the new one is opened.
 *
 * A log does not say which database it belongs to. If SQLite finds the log of the old file beside the new one, it lays the
 * log's pages over those of the new file. (Only if the new file is empty, it removes the log.)
 *
 * Other clients may still have the old file open. They keep its log and its index, without their names, until they notice.
 * But a program that has opened the new file before the names were removed uses these files for the new database, and must
 * share them with all later users. Such a program has a shared lock on the new file, and each program that opens the file
 * needs one before it looks for a log. So log and index are removed under an exclusive lock on the new file, as SQLite does
 * itself. If that lock cannot be acquired, they stay. Two clients that try at the same time can prevent each other, so they
 * try for a while. */
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

/* Whether the log or the index of a database that is not in its place is still there. */
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

/* Files that were left at another path do not matter here. They may be gone, and then other files may have their inode
 * numbers. */
static bool is_beside(const struct driver *driver, const struct driver *other)
{
    return strcmp(other->path, driver->path) == 0;
}

/* Whether this driver knows all files that the other one has left and that are still there. */
static bool knows(const struct driver *driver, const struct driver *other, const struct file *now)
{
    for (int i = FILE_LOG; i <= FILE_INDEX; i++)
        if (is_left(other, now, i) && !is_left(driver, now, i))
            return false;
    return true;
}

/* Also takes over the time limit: a client that is being opened may have less time, and the next one must not begin to
 * count anew. */
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

/* Removes the log first: an index that no process has open any more is made anew by the next user. If this process is killed
 * between the two, and others still have the old file open, they have that index, too. Then programs that open the new file get
 * I/O errors, until one of those others has noticed and removes the index. */
static int remove_left(struct driver *driver, sqlite3 *db)
{
    char path[PATH_MAX + 8];
    struct file now[FILES];
    int moved = 1;
    sqlite3_file_control(db, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
    if (moved) { /* the locked file is not the one in the place now */
        fault_error(&driver->trouble, MORTISE_UNREACHABLE, 0, true,
                    "%s was moved or deleted while in use", driver->path);
        return SQLITE_BUSY;
    }
    files_read(driver, now);
    if (is_left(driver, now, FILE_DATABASE))
        return SQLITE_OK; /* the old database is back */
    for (int i = FILE_LOG; i <= FILE_INDEX; i++)
        if (is_left(driver, now, i) && unlink(files_path(driver, i, path, sizeof(path))) != 0 &&
            errno != ENOENT) {
            int code = errno;
            fault_error(&driver->trouble, MORTISE_UNREACHABLE, code, true,
                        "%s belongs to the database that was replaced, and cannot be removed: %s",
                        path, strerror(code));
            return SQLITE_PERM;
        }
    replaced_forget(driver); /* files that are left later are another case */
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
    if (is_anything_left(driver)) /* if only the index is left, SQLite has removed the log */
        driver->locks.host->log(driver->locks.host, 4,
                                "%s was replaced, and another program opened the new file while "
                                "the log of the old one was beside it: the new file may be damaged",
                                driver->path);
}

/* Returns when the tries end. */
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
