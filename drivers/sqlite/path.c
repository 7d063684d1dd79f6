/* path.c - which file has the locks, and its folder. Makes the default folder, the file and the folder of inboxes
 * beside it, with the right owners and modes. Never opens the file itself: driver.h says what that would do to other
 * clients of this process. */
#include "driver.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static mortise_status wrong(mortise_error *error, int code, const char *what, const char *path)
{
    return fault_error(error, MORTISE_CONFIG, code, false, "%s %s: %s%s", what, path,
                       strerror(code),
                       code == ENOENT ? "; make the directory, or set another path"
                                      : "; use another path, or permit it to this user");
}

static mortise_status fits(int length, size_t size, mortise_error *error)
{
    if (length >= 0 && (size_t)length < size)
        return MORTISE_OK;
    return fault_error(error, MORTISE_CONFIG, ENAMETOOLONG, false,
                       "the path of the database is too long");
}

/* Gets the home folder from the user database, for processes without HOME. */
static bool home_of_user(char *home, size_t size)
{
    char buffer[4096];
    struct passwd entry, *found = NULL;
    if (getpwuid_r(geteuid(), &entry, buffer, sizeof(buffer), &found) != 0 || found == NULL)
        return false;
    int n = snprintf(home, size, "%s", entry.pw_dir);
    return n > 0 && (size_t)n < size && home[0] == '/';
}

static mortise_status default_path(char *path, size_t size, mortise_error *error)
{
    char home[PATH_MAX];
    if (geteuid() == 0)
        return fits(snprintf(path, size, "/var/lib/mortise/locks.db"), size, error);
    const char *state = secure_getenv("XDG_STATE_HOME");
    if (state != NULL && state[0] == '/')
        return fits(snprintf(path, size, "%s/mortise/locks.db", state), size, error);
    const char *given = secure_getenv("HOME");
    if (given == NULL || given[0] != '/') {
        if (!home_of_user(home, sizeof(home)))
            return fault_error(error, MORTISE_CONFIG, 0, false,
                               "no home directory to keep the locks in: set `path`");
        given = home;
    }
    return fits(snprintf(path, size, "%s/.local/state/mortise/locks.db", given), size, error);
}

/* mkdir -p of the file's folder, each 0700. */
static mortise_status make_folders(const char *path, mortise_error *error)
{
    char folder[PATH_MAX];
    for (const char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
        if (mkdir(folder, 0700) != 0 && errno != EEXIST && access(folder, F_OK) != 0)
            return wrong(error, errno, "cannot make the directory", folder);
    }
    return MORTISE_OK;
}

/* The default folder must be ours, because any other owner could replace the file. */
static mortise_status check_default_folder(const char *folder, mortise_error *error)
{
    struct stat about;
    if (stat(folder, &about) != 0)
        return wrong(error, errno, "cannot use the directory", folder);
    if (about.st_uid == geteuid() && (about.st_mode & 022) == 0)
        return MORTISE_OK;
    return fault_error(
        error, MORTISE_CONFIG, 0, false,
        "the directory %s must belong to uid %ld, and nobody else may write in it (it "
        "belongs to uid %ld, mode %03o); or set `path`",
        folder, (long)geteuid(), (long)about.st_uid, (unsigned)about.st_mode & 07777u);
}

/* Other clients of the process compare it with theirs (replaced.c). */
static void set_path(struct driver *driver, const char *path)
{
    forks_lock_left();
    snprintf(driver->path, sizeof(driver->path), "%s", path);
    forks_unlock_left();
}

/* Makes an absolute path with symbolic links resolved, because the files beside the database (log, inboxes) must be
 * the same for all processes. *folder is the folder. */
static mortise_status resolve(struct driver *driver, const char *path, char *folder,
                              mortise_error *error)
{
    char file[PATH_MAX], whole[PATH_MAX];
    if (realpath(path, file) == NULL) {
        if (errno != ENOENT)
            return wrong(error, errno, "cannot use", path);
        const char *slash = strrchr(path, '/');
        if (strlen(path) >= sizeof(file))
            return fits(-1, 0, error);
        snprintf(file, sizeof(file), "%.*s", slash == path ? 1 : (int)(slash - path), path);
        if (realpath(file, folder) == NULL)
            return wrong(error, errno, "cannot use the directory", file);
        int length =
            snprintf(whole, sizeof(whole), "%s%s", strcmp(folder, "/") == 0 ? "" : folder, slash);
        set_path(driver, whole);
        return fits(length, sizeof(whole), error);
    }
    set_path(driver, file);
    char *slash = strrchr(file, '/');
    snprintf(folder, PATH_MAX, "%.*s", slash == file ? 1 : (int)(slash - file), file);
    return MORTISE_OK;
}

static mortise_status read_mode(struct driver *driver, mortise_error *error)
{
    const char *text = driver->values[OPTION_MODE].text;
    char *end;
    errno = 0;
    unsigned long mode = strtoul(text, &end, 8);
    if (errno != 0 || *text < '0' || *text > '7' || *end != '\0' || (mode & ~0666ul) != 0 ||
        (mode & 0600) != 0600)
        return fault_error(error, MORTISE_CONFIG, 0, false,
                           "mode is \"%.20s\"; expected permissions such as 0600 or 0660", text);
    driver->mode = (unsigned)mode;
    return MORTISE_OK;
}

/* Makes the file with exactly the permissions of `mode`, ignoring the umask. It does so under another name, because that
 * needs a descriptor, and closing a descriptor of the database drops this process's locks on it (driver.h). False: the
 * file exists already, or cannot be made in this way. */
static bool make_with_mode(const struct driver *driver)
{
    char path[PATH_MAX + 32];
    uint64_t number;
    driver->locks.host->random(driver->locks.host, &number, sizeof(number));
    snprintf(path, sizeof(path), "%s-new-%016" PRIx64, driver->path, number);
    int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, (mode_t)driver->mode);
    if (fd < 0)
        return false;
    fchmod(fd, (mode_t)driver->mode);
    close(fd);
    if (renameat2(AT_FDCWD, path, AT_FDCWD, driver->path, RENAME_NOREPLACE) == 0)
        return true;
    unlink(path);
    return false;
}

/* An empty file is an empty database; SQLite gives the files beside it the same owner and mode. The driver makes the
 * file itself, so that its mode is never too wide. If `mode` is given, the umask is ignored, except on a file system
 * that cannot rename without replacing. mknod() is used because it needs no descriptor: as soon as the file exists,
 * another thread may lock it through SQLite. */
static mortise_status make_file(const struct driver *driver, mortise_error *error)
{
    if (access(driver->path, F_OK) == 0 ||
        (driver->values[OPTION_MODE].given && make_with_mode(driver)) ||
        mknod(driver->path, S_IFREG | (mode_t)driver->mode, 0) == 0 || errno == EEXIST)
        return MORTISE_OK;
    return wrong(error, errno, "cannot make the database", driver->path);
}

/* Checks access first: if SQLite may not write a file, it opens the file for reading, and fails later and less clearly. */
static mortise_status check_access(const char *path, int how, mortise_error *error)
{
    if (faccessat(AT_FDCWD, path, how, AT_EACCESS) == 0)
        return MORTISE_OK;
    int code = errno;
    return fault_error(error, MORTISE_CONFIG, code, false, "%s must be writable for uid %ld: %s",
                       path, (long)geteuid(), strerror(code));
}

static mortise_status find(struct driver *driver, mortise_error *error)
{
    char path[PATH_MAX], folder[PATH_MAX];
    const char *given = driver->values[OPTION_PATH].text;
    mortise_status status = MORTISE_OK;
    bool by_default = given == NULL || given[0] == '\0';
    if (by_default)
        status = default_path(path, sizeof(path), error);
    else if (given[0] != '/' || given[strlen(given) - 1] == '/')
        return fault_error(error, MORTISE_CONFIG, 0, false,
                           "\"%.200s\"; expected the absolute path of a file", given);
    else
        status = fits(snprintf(path, sizeof(path), "%s", given), sizeof(path), error);

    if (status == MORTISE_OK && by_default)
        status = make_folders(path, error);
    if (status == MORTISE_OK)
        status = resolve(driver, path, folder, error);
    if (status == MORTISE_OK && by_default)
        status = check_default_folder(folder, error);
    if (status == MORTISE_OK && driver->values[OPTION_FILESYSTEM].number == 0)
        status = filesystem_check(folder, error);
    if (status == MORTISE_OK)
        status = trust_check_folder(driver, folder, error);
    if (status == MORTISE_OK)
        status = check_access(folder, W_OK | X_OK, error);
    if (status == MORTISE_OK)
        status = make_file(driver, error);
    if (status == MORTISE_OK)
        status = trust_check_files(driver, error);
    return status == MORTISE_OK ? check_access(driver->path, R_OK | W_OK, error) : status;
}

/* An error begins with the key that it concerns; the core adds file and line. */
mortise_status path_find(struct driver *driver, mortise_error *error)
{
    char text[sizeof(error->message)];
    mortise_status status = read_mode(driver, error);
    if (status != MORTISE_OK)
        return status;
    status = find(driver, error);
    if (status != MORTISE_CONFIG)
        return status;
    snprintf(text, sizeof(text), "%s", error->message);
    snprintf(error->message, sizeof(error->message), "path%s: %s",
             driver->values[OPTION_PATH].given ? "" : " (by default)", text);
    return status;
}

static bool is_inbox(int folder, const char *name)
{
    struct stat about;
    return inbox_is_id(name) && fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISSOCK(about.st_mode);
}

/* Whether a folder contains only inboxes. If somebody has moved another folder of this user here, it must keep its
 * owner and its permissions. */
static bool holds_inboxes_only(int folder)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;
    bool only = stream != NULL;
    if (stream == NULL && fd >= 0)
        close(fd);
    while (only && (entry = readdir(stream)) != NULL)
        only = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
               is_inbox(folder, entry->d_name);
    if (stream != NULL)
        closedir(stream);
    return only;
}

/* Gives the folder the owner, group and permissions of the database, as far as this user may do that. */
static void match_folder(int fd, const struct stat *file)
{
    struct stat folder;
    if (fstat(fd, &folder) != 0 || (folder.st_uid != geteuid() && geteuid() != 0))
        return;
    mode_t mode = file->st_mode & 0666;
    uid_t owner = geteuid() == 0 ? file->st_uid : (uid_t)-1;
    mode |= (mode & 0444) >> 2;
    bool others = folder.st_uid != file->st_uid || folder.st_gid != file->st_gid;
    if ((!others && (folder.st_mode & 0777) == mode) || !holds_inboxes_only(fd))
        return;
    if (others && fchown(fd, owner, file->st_gid) != 0)
        mode &= 0700; /* not in that group: the folder cannot be shared with it */
    fchmod(fd, mode);
}

/* Every user who may use the database may make inboxes and send to them. The owner is checked through the descriptor,
 * because others may be able to put another folder there at any time. */
int path_open_wake_folder(const struct driver *driver)
{
    char folder[PATH_MAX + 8];
    struct stat file, about;
    snprintf(folder, sizeof(folder), "%s-wake", driver->path);
    if (stat(driver->path, &file) != 0 || (mkdir(folder, 0700) != 0 && errno != EEXIST))
        return -1;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (fstat(fd, &about) != 0 || !trust_accepts_owner(driver, about.st_uid)) {
        close(fd);
        errno = EPERM;
        return -1;
    }
    match_folder(fd, &file);
    return fd;
}
