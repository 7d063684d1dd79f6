/* trust.c - which users could change the database without this process: checks the owners and the permissions of the folder, of
 * the file, and of the files that SQLite keeps beside it. Knows no database.
 *
 * A user who can write the file can take any lock, and a user who can write its folder, or rename a folder
 * above it, can exchange the file. So files and folders must belong to this user or to root, unless `shared` says that all
 * other users are trusted. In a folder with the sticky bit, such as /tmp, others can neither rename nor delete our file; but
 * they can make the files that SQLite looks for beside it, so these are checked before the database is opened and again
 * afterwards.
 *
 * In any case, each of these files must be a regular one, because a FIFO would block this process for ever. It must have no
 * second hard link, and must not be a file that somebody has moved there, because SQLite, when it runs as root, gives the files
 * beside the database to the owner of the database. */
#include "driver.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
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

bool trust_accepts_owner(const struct driver *driver, uid_t owner)
{
    return is_shared(driver) || is_trusted(owner);
}

/* ---- folders ------------------------------------------------------------------------------------- */

/* Many systems give each user a group of the same name, with nobody else in it, and a umask of 002. Does not look for
 * users whose primary group it is, because that would read the whole user database. */
static bool is_private_group(gid_t group, uid_t owner)
{
    char user_text[4096], group_text[16384];
    struct passwd user, *user_found = NULL;
    struct group entry, *found = NULL;
    if (getpwuid_r(owner, &user, user_text, sizeof(user_text), &user_found) != 0 ||
        user_found == NULL || user.pw_gid != group ||
        getgrgid_r(group, &entry, group_text, sizeof(group_text), &found) != 0 || found == NULL ||
        strcmp(entry.gr_name, user.pw_name) != 0)
        return false;
    for (char **member = entry.gr_mem; *member != NULL; member++)
        if (strcmp(*member, user.pw_name) != 0)
            return false;
    return true;
}

static bool others_may_write(const struct stat *about)
{
    if ((about->st_mode & 022) == 0 || (about->st_mode & S_ISVTX) != 0)
        return false;
    return (about->st_mode & 002) != 0 || !is_private_group(about->st_gid, about->st_uid);
}

/* If there is an ACL, the bits of the group say what the users in the list may do at most, whichever group it is. A list
 * that cannot be read counts as an ACL. */
static bool acl_may_write(const char *folder, const struct stat *about)
{
    if ((about->st_mode & 020) == 0 || (about->st_mode & S_ISVTX) != 0)
        return false;
    return getxattr(folder, "system.posix_acl_access", NULL, 0) >= 0 ||
           (errno != ENODATA && errno != EOPNOTSUPP);
}

/* In a user namespace (for example of a container) that does not map the host's root, root appears as the overflow uid. */
static bool is_unmapped(uid_t owner)
{
    unsigned overflow = 65534, inside = 0, outside = 0, count = 0;
    FILE *file = fopen("/proc/sys/kernel/overflowuid", "re");
    if (file != NULL && fscanf(file, "%u", &overflow) != 1)
        overflow = 65534;
    if (file != NULL)
        fclose(file);
    if (owner != (uid_t)overflow)
        return false;
    file = fopen("/proc/self/uid_map", "re");
    bool known = file != NULL && fscanf(file, "%u %u %u", &inside, &outside, &count) == 3;
    if (file != NULL)
        fclose(file);
    return known && count != UINT_MAX; /* otherwise all users are mapped */
}

static mortise_status check_folder(const char *folder, bool above, mortise_error *error)
{
    struct stat about;
    if (stat(folder, &about) != 0)
        return fault_error(error, MORTISE_CONFIG, errno, false, "cannot use the directory %s: %s",
                           folder, strerror(errno));
    bool owned = is_trusted(about.st_uid) || (above && is_unmapped(about.st_uid));
    if (owned && !others_may_write(&about)) {
        if (!acl_may_write(folder, &about))
            return MORTISE_OK;
        return fault_error(error, MORTISE_CONFIG, 0, false,
                           "the directory %s has an ACL, by which others may write it and exchange "
                           "the database: remove it (setfacl -b), " HOW_TO_SHARE,
                           folder);
    }
    return fault_error(
        error, MORTISE_CONFIG, 0, false,
        "others may write the directory %s (it belongs to uid %ld, its mode is %04o) and "
        "exchange the database: chown or chmod it, " HOW_TO_SHARE,
        folder, (long)about.st_uid, (unsigned)about.st_mode & 07777u);
}

/* `folder` has no symbolic links. A user who can rename a folder above it can put another one in its place. */
mortise_status trust_check_folder(const struct driver *driver, const char *folder,
                                  mortise_error *error)
{
    char path[PATH_MAX];
    if (is_shared(driver))
        return MORTISE_OK;
    snprintf(path, sizeof(path), "%s", folder);
    mortise_status status = check_folder(path, false, error);
    while (status == MORTISE_OK && strcmp(path, "/") != 0) {
        char *slash = strrchr(path, '/');
        slash[slash == path ? 1 : 0] = '\0';
        status = check_folder(path, true, error);
    }
    return status;
}

/* ---- files --------------------------------------------------------------------------------------- */

static mortise_status look(const char *path, struct stat *about, bool *exists, mortise_error *error)
{
    *exists = lstat(path, about) == 0;
    if (*exists || errno == ENOENT)
        return MORTISE_OK;
    return fault_error(error, MORTISE_CONFIG, errno, false, "cannot use %s: %s", path,
                       strerror(errno));
}

static mortise_status check_file(const struct driver *driver, const char *path,
                                 const struct stat *about, mortise_error *error)
{
    if (!S_ISREG(about->st_mode))
        return fault_error(error, MORTISE_CONFIG, 0, false,
                           "%s is not a file; remove it, or set another path", path);
    if (about->st_nlink > 1)
        return fault_error(error, MORTISE_CONFIG, 0, false,
                           "%s has %lu names (hard links): under another name its log would be "
                           "missed; copy the file instead",
                           path, (unsigned long)about->st_nlink);
    if (trust_accepts_owner(driver, about->st_uid))
        return MORTISE_OK;
    return fault_error(
        error, MORTISE_CONFIG, 0, false,
        "%s belongs to uid %ld, who could change the locks: use another file, " HOW_TO_SHARE, path,
        (long)about->st_uid);
}

/* SQLite, when it runs as root, makes the owner of the database the owner of this file. That must not give that user
 * more rights. A log that SQLite made for another user has the permissions of the database. */
static mortise_status check_gift(const char *path, const struct stat *about,
                                 const struct stat *database, mortise_error *error)
{
    mode_t mode = about->st_mode & 0777;
    bool group = about->st_gid == database->st_gid && (mode & 060) == 060;
    if (geteuid() != 0 || database->st_uid == 0 || about->st_uid == database->st_uid ||
        (mode == (database->st_mode & 0777) && ((mode & 06) == 06 || group)))
        return MORTISE_OK;
    return fault_error(error, MORTISE_CONFIG, 0, false,
                       "%s belongs to uid %ld, and the database to uid %ld, to whom SQLite would "
                       "give it: was it moved here? remove it while nobody uses the database",
                       path, (long)about->st_uid, (long)database->st_uid);
}

static mortise_status check_wake_folder(const struct driver *driver, const char *path,
                                        mortise_error *error)
{
    struct stat about;
    if (lstat(path, &about) != 0 || trust_accepts_owner(driver, about.st_uid))
        return MORTISE_OK; /* anything but a folder fails later, when it is opened */
    return fault_error(
        error, MORTISE_CONFIG, 0, false,
        "%s belongs to uid %ld, who could stop the waking of waiters: remove it, " HOW_TO_SHARE,
        path, (long)about.st_uid);
}

mortise_status trust_check_files(const struct driver *driver, mortise_error *error)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
    char path[PATH_MAX + 16];
    struct stat database, about;
    bool there, exists;
    mortise_status status = look(driver->path, &database, &there, error);
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]) && status == MORTISE_OK; i++) {
        snprintf(path, sizeof(path), "%s%s", driver->path, suffixes[i]);
        status = look(path, &about, &exists, error);
        if (status == MORTISE_OK && exists)
            status = check_file(driver, path, &about, error);
        if (status == MORTISE_OK && exists && there)
            status = check_gift(path, &about, &database, error);
    }
    snprintf(path, sizeof(path), "%s-wake", driver->path);
    return status == MORTISE_OK ? check_wake_folder(driver, path, error) : status;
}
