/* trust.c - who could change the database behind this process: the owners and the permissions of its folder, of the file
 * and of what SQLite keeps beside it. Knows no database.
 *
 * Everybody who can write the file can give himself any lock, and everybody who can write its folder can exchange the
 * file. So both must belong to this user or to root, unless `shared` says that all the others are trusted. In a folder
 * with the sticky bit, such as /tmp, others can neither rename nor delete our file; but they can make the files that
 * SQLite looks for beside it, so these are checked before the database is opened and again afterwards.
 *
 * Whoever is trusted: each of these files must be a regular one, because a FIFO would stop this process for ever, and
 * must have no second name, because root's SQLite gives them the database's owner. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOW_TO_SHARE "or set `shared = yes` if everybody who can write it is trusted with the locks"

static bool is_shared(const struct driver *driver)
{
    return driver->values[OPTION_SHARED].number != 0;
}

static bool is_trusted(uid_t owner)
{
    return owner == 0 || owner == geteuid();
}

mortise_status trust_check_folder(const struct driver *driver, const char *folder,
                                  mortise_error *error)
{
    struct stat about;
    if (stat(folder, &about) != 0)
        return fault_error(error, MORTISE_CONFIG, errno, false, "cannot use the folder %s: %s",
                           folder, strerror(errno));
    bool others = (about.st_mode & 022) != 0 && (about.st_mode & S_ISVTX) == 0;
    if (is_shared(driver) || (is_trusted(about.st_uid) && !others))
        return MORTISE_OK;
    return fault_error(
        error, MORTISE_CONFIG, 0, false,
        "others may write the folder %s (it belongs to uid %ld, its mode is %04o) and "
        "exchange the database: chown or chmod it, " HOW_TO_SHARE,
        folder, (long)about.st_uid, (unsigned)about.st_mode & 07777u);
}

static mortise_status check_file(const struct driver *driver, const char *path,
                                 mortise_error *error)
{
    struct stat about;
    if (lstat(path, &about) != 0) {
        if (errno == ENOENT)
            return MORTISE_OK;
        return fault_error(error, MORTISE_CONFIG, errno, false, "cannot use %s: %s", path,
                           strerror(errno));
    }
    if (!S_ISREG(about.st_mode))
        return fault_error(error, MORTISE_CONFIG, 0, false, "%s is not a file", path);
    if (about.st_nlink > 1)
        return fault_error(error, MORTISE_CONFIG, 0, false,
                           "%s has %lu names (hard links): under another name its log would be "
                           "missed; copy the file instead",
                           path, (unsigned long)about.st_nlink);
    if (is_shared(driver) || is_trusted(about.st_uid))
        return MORTISE_OK;
    return fault_error(
        error, MORTISE_CONFIG, 0, false,
        "%s belongs to uid %ld, who could change the locks: use another file, " HOW_TO_SHARE, path,
        (long)about.st_uid);
}

static mortise_status check_wake_folder(const struct driver *driver, const char *path,
                                        mortise_error *error)
{
    struct stat about;
    if (lstat(path, &about) != 0 || is_shared(driver) || is_trusted(about.st_uid))
        return MORTISE_OK; /* what is no folder fails when it is opened */
    return fault_error(
        error, MORTISE_CONFIG, 0, false,
        "%s belongs to uid %ld, who could stop the waking of waiters: remove it, " HOW_TO_SHARE,
        path, (long)about.st_uid);
}

mortise_status trust_check_files(const struct driver *driver, mortise_error *error)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
    char path[PATH_MAX + 16];
    mortise_status status = MORTISE_OK;
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]) && status == MORTISE_OK; i++) {
        snprintf(path, sizeof(path), "%s%s", driver->path, suffixes[i]);
        status = check_file(driver, path, error);
    }
    snprintf(path, sizeof(path), "%s-wake", driver->path);
    return status == MORTISE_OK ? check_wake_folder(driver, path, error) : status;
}
