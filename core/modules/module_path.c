/* module_path.c - where modules are looked for (R11).
 *
 * First the folders that $MORTISE_MODULE_PATH or the config file names, then the folder mortise/ beside libmortise
 * itself, then the one that it was built for. Folders are absolute. A file in them becomes code of this process. So
 * folder and file must belong to root or to the running user, and nobody else may write them, replace a folder above
 * them, or replace the config file that names them. Excepted are users who owned libmortise's file or folder when it was
 * loaded, could write one of these as its group then, or can replace a folder above it (a build tree of another user, or
 * of a group). They could run any code in this process anyway, so a module of theirs is no new danger.
 * Knows nothing of the contents of a file. */
#include "modules/loader_internal.h"

#include "base/status.h"

#include <dlfcn.h>
#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <link.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define LINKS_MAX 40 /* the kernel's own limit */

#ifndef MORTISE_MODULE_DIR
#error "MORTISE_MODULE_DIR is the folder that modules are installed to"
#endif

static mortise_status out_of_memory(mortise_error *error)
{
    return failed(error, MORTISE_NOMEM, "out of memory while a module was looked for");
}

bool module_name_sound(const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        char c = name[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '_' || c == '-' || c == '+'))
            return false;
    }
    return length > 0 && length <= MODULE_NAME_MAX;
}

/* ---- Which users may write there ------------------------------------------------------------- */

/* The library that this code is in, or NULL if it is in the program: the dynamic linker's name for the program is
 * argv[0], which any caller may set. */
static const char *own_library(void)
{
    struct link_map *map = NULL;
    Dl_info info;

    if (dladdr1((const void *)&folders_make, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 ||
        map == NULL || map->l_name == NULL || map->l_name[0] != '/')
        return NULL;
    return map->l_name;
}

/* With an access control list, the group's bits say only what its users may do at most. Unknown: assume a list. */
static bool has_acl(const char *path)
{
    return getxattr(path, "system.posix_acl_access", NULL, 0) >= 0 ||
           (errno != ENODATA && errno != EOPNOTSUPP);
}

/* The owners of this code: of its file, and of the file's folder, when it was loaded. By now another user, who could not
 * change the code that is mapped here, may have put a file at that path. If an owner is unknown, assume root. */
static struct own {
    struct stat file, folder;
    char path[PATH_MAX]; /* of the file, without symbolic links; or empty */
} own;

static void own_look_at(const char *path, struct stat *st)
{
    if (stat(path, st) != 0)
        memset(st, 0, sizeof(*st));
    if (has_acl(path))
        st->st_mode &= ~(mode_t)S_IWGRP;
}

__attribute__((constructor)) static void own_look(void)
{
    const char *library = own_library(), *file = library != NULL ? library : "/proc/self/exe";
    char folder[PATH_MAX];

    own_look_at(file, &own.file);
    if (realpath(file, own.path) == NULL)
        own.path[0] = '\0';
    if (library == NULL || strlen(library) >= sizeof(folder))
        return;
    snprintf(folder, sizeof(folder), "%.*s", (int)(strrchr(library, '/') - library + 1), library);
    own_look_at(folder, &own.folder);
}

static bool group_writes(const struct stat *there, gid_t group)
{
    return (there->st_mode & S_IWGRP) != 0 && there->st_gid == group;
}

static bool owner_is_good(const struct stat *st)
{
    return st->st_uid == 0 || st->st_uid == geteuid() || st->st_uid == own.file.st_uid ||
           st->st_uid == own.folder.st_uid;
}

static bool writers_are_good(const char *path, const struct stat *st)
{
    if ((st->st_mode & (S_IWGRP | S_IWOTH)) == 0)
        return true;
    return (st->st_mode & S_IWOTH) == 0 && !has_acl(path) &&
           (group_writes(&own.file, st->st_gid) || group_writes(&own.folder, st->st_gid));
}

/* ---- Which users may replace a folder ------------------------------------------------------------ */

/* Many systems give each user a group of the same name, with nobody else in it, and a umask of 002. */
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

/* A user namespace (of a container, for example) may not map the host's root, which is then shown as the overflow uid. */
static bool is_unmapped(uid_t owner)
{
    unsigned overflow = 65534, inside, outside, count = UINT_MAX;
    FILE *file = fopen("/proc/sys/kernel/overflowuid", "re");

    if (file != NULL && fscanf(file, "%u", &overflow) != 1)
        overflow = 65534;
    if (file != NULL)
        fclose(file);
    if (owner != (uid_t)overflow || (file = fopen("/proc/self/uid_map", "re")) == NULL)
        return false;
    bool known = fscanf(file, "%u %u %u", &inside, &outside, &count) == 3;
    fclose(file);
    return known && count != UINT_MAX; /* else all users are mapped */
}

/* The folder is above this library too: users who can replace the folder can replace the library as well. */
static bool is_above_library(const char *folder)
{
    struct stat st;
    char real[PATH_MAX]; /* without ".." */

    if (stat(own.path, &st) != 0 || st.st_dev != own.file.st_dev || st.st_ino != own.file.st_ino ||
        realpath(folder, real) == NULL)
        return false; /* or above another file of that name */
    size_t length = strlen(real);
    return strncmp(own.path, real, length) == 0 &&
           (own.path[length] == '/' || strcmp(real, "/") == 0);
}

/* Nobody else can replace `part`: a folder above a module's folder, or a symbolic link on the way to it. In a folder with
 * the sticky bit, others can rename only their own entries. */
static bool stays_there(const char *part, const struct stat *st)
{
    bool owned = owner_is_good(st) || is_unmapped(st->st_uid);

    if (!owned || S_ISLNK(st->st_mode) || (st->st_mode & S_ISVTX) != 0 ||
        writers_are_good(part, st))
        return owned;
    return (st->st_mode & S_IWOTH) == 0 && is_private_group(st->st_gid, st->st_uid) &&
           !has_acl(part);
}

/* Checks `part`, a symbolic link or a folder on the way of `path`. */
static mortise_status check_part(const char *path, const char *part, const struct stat *st,
                                 mortise_error *error)
{
    if (stays_there(part, st) || (S_ISDIR(st->st_mode) && is_above_library(part)))
        return MORTISE_OK;
    return failed(
        error, MORTISE_CONFIG,
        "%s: modules are not loaded from a path that others can replace: %s belongs to user "
        "%u, its mode is %04o (chown, chmod go-w)",
        path, part, (unsigned)st->st_uid, (unsigned)st->st_mode & 07777);
}

/* Replaces the symbolic link `part`, with which `path` begins, by its target. False: the link cannot be read, or there is
 * no room. */
static bool follow(char path[PATH_MAX], const char *part)
{
    char target[PATH_MAX], whole[PATH_MAX];
    ssize_t size = readlink(part, target, sizeof(target) - 1);
    size_t folder = (size_t)(strrchr(part, '/') - part) + 1;

    if (size <= 0)
        return false;
    target[size] = '\0';
    int length = snprintf(whole, sizeof(whole), "%.*s%s%s", target[0] == '/' ? 0 : (int)folder,
                          part, target, path + strlen(part));
    if (length < 0 || (size_t)length >= sizeof(whole))
        return false;
    memcpy(path, whole, (size_t)length + 1);
    return true;
}

/* Checks each part of `path` up to the first symbolic link, and follows that. */
static mortise_status check_to_link(char path[PATH_MAX], bool *followed, mortise_error *error)
{
    char part[PATH_MAX] = "/";
    struct stat st;
    mortise_status status = MORTISE_OK;

    *followed = false;
    for (size_t i = 1; status == MORTISE_OK && !*followed; i++) {
        if (i > 1 && path[i] != '/' && path[i] != '\0')
            continue;
        if (i > 1)
            snprintf(part, sizeof(part), "%.*s", (int)i, path);
        if (lstat(part, &st) != 0)
            return failed(error, MORTISE_CONFIG, "%s cannot be read: %m", part);
        if (S_ISLNK(st.st_mode) || strcmp(path, part) != 0)
            status = check_part(path, part, &st, error);
        if (status == MORTISE_OK && S_ISLNK(st.st_mode) && !(*followed = follow(path, part)))
            return failed(error, MORTISE_CONFIG, "%s: this symbolic link cannot be followed", part);
        if (path[i] == '\0')
            break;
    }
    return status;
}

/* Goes from link to link, as the kernel does. Each link may lead through a folder that is neither in the path as given nor
 * in the path without symbolic links. In the end, `path` has no symbolic links. */
static mortise_status check_way(char path[PATH_MAX], mortise_error *error)
{
    bool followed = true;
    mortise_status status = MORTISE_OK;

    for (int links = 0; followed && status == MORTISE_OK; links++) {
        if (links > LINKS_MAX)
            return failed(error, MORTISE_CONFIG, "%s: too many symbolic links", path);
        status = check_to_link(path, &followed, error);
    }
    return status;
}

mortise_status path_check_writers(const char *path, char real[PATH_MAX], mortise_error *error)
{
    struct stat st;

    real[0] = '\0';
    if (strlen(path) >= PATH_MAX || stat(path, &st) != 0)
        return MORTISE_OK;
    snprintf(real, PATH_MAX, "%s", path);
    mortise_status status = check_way(real, error);
    if (status != MORTISE_OK)
        return status;
    if (lstat(real, &st) != 0)
        return failed(error, MORTISE_CONFIG, "%s cannot be read: %m", path);
    if (!owner_is_good(&st))
        return failed(error, MORTISE_CONFIG,
                      "%s: modules are not loaded from what belongs to user %u: it must "
                      "belong to root or to the running user (chown)",
                      path, (unsigned)st.st_uid);
    if (!writers_are_good(real, &st))
        return failed(
            error, MORTISE_CONFIG,
            "%s: modules are not loaded from a file or directory that others can write: its mode "
            "is %04o (chmod go-w)",
            path, (unsigned)st.st_mode & 07777);
    return MORTISE_OK;
}

/* ---- The folders ----------------------------------------------------------------------------- */

/* Takes over path, NULL if there was no memory for it. */
static mortise_status add_folder(struct folders *folders, char *path, mortise_error *error)
{
    char real[PATH_MAX];
    char **paths =
        path == NULL ? NULL : reallocarray(folders->paths, folders->count + 1, sizeof(*paths));

    if (paths == NULL) {
        free(path);
        return out_of_memory(error);
    }
    folders->paths = paths;
    for (size_t i = 0; i < folders->count; i++)
        if (strcmp(paths[i], path) == 0) {
            free(path);
            return MORTISE_OK;
        }
    paths[folders->count++] = path;
    return path_check_writers(path, real, error);
}

/* "/a:/b" */
static mortise_status add_list(struct folders *folders, const char *list, mortise_error *error)
{
    char quoted[QUOTED_SIZE];
    mortise_status status = MORTISE_OK;

    for (const char *at = list; status == MORTISE_OK; at++) {
        size_t length = strcspn(at, ":");
        if (at[0] != '/')
            return failed(
                error, MORTISE_CONFIG, "module path %s: %.*s%s is not an absolute directory",
                quote_name(list, strlen(list), quoted, sizeof(quoted)),
                (int)(length > 200 ? 200 : length), at, length == 0 ? "an empty part" : "");
        status = add_folder(folders, strndup(at, length), error);
        at += length;
        if (*at == '\0')
            break;
    }
    return status;
}

/* "…/mortise" beside the library that this code is part of, if it is one. */
static mortise_status add_beside_library(struct folders *folders, mortise_error *error)
{
    const char *library = own_library();
    char *path;

    if (library == NULL)
        return MORTISE_OK;
    if (asprintf(&path, "%.*s/mortise", (int)(strrchr(library, '/') - library), library) < 0)
        return out_of_memory(error);
    return add_folder(folders, path, error);
}

static mortise_status check_config(const struct config *config, mortise_error *error)
{
    char path[PATH_MAX] = "", real[PATH_MAX];
    const char *file = config_module_path_file(config);
    mortise_error why;

    if (file == NULL)
        return MORTISE_OK;
    if (file[0] != '/' && getcwd(path, sizeof(path)) == NULL)
        return failed(error, MORTISE_CONFIG, "%s cannot be read: %m", file);
    size_t folder = strlen(path), size = sizeof(path) - folder;
    if ((size_t)snprintf(path + folder, size, folder > 0 ? "/%s" : "%s", file) >= size)
        return failed(error, MORTISE_CONFIG, "%s cannot be read: its path is too long", file);
    if (path_check_writers(path, real, &why) != MORTISE_OK)
        return failed(error, MORTISE_CONFIG, "%s: [mortise] module_path is refused: %s", file,
                      why.message);
    if (real[0] == '\0') /* it was read before, so it was removed since */
        return failed(error, MORTISE_CONFIG, "%s cannot be read: it is gone", file);
    return MORTISE_OK;
}

mortise_status folders_make(const struct config *config, struct folders *folders,
                            mortise_error *error)
{
    const char *list;

    memset(folders, 0, sizeof(*folders));
    mortise_status status = config_module_path(config, &list, error);
    if (status == MORTISE_OK)
        status = check_config(config, error);
    if (status == MORTISE_OK && list != NULL)
        status = add_list(folders, list, error);
    if (status == MORTISE_OK)
        status = add_beside_library(folders, error);
    if (status == MORTISE_OK)
        status = add_folder(folders, strdup(MORTISE_MODULE_DIR), error);
    if (status != MORTISE_OK)
        folders_free(folders);
    return status;
}

void folders_free(struct folders *folders)
{
    for (size_t i = 0; i < folders->count; i++)
        free(folders->paths[i]);
    free(folders->paths);
    memset(folders, 0, sizeof(*folders));
}

/* ---- Which modules exist ------------------------------------------------------------------------ */

int is_module_file(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name), suffix = strlen(MODULE_SUFFIX);

    return length > suffix && strcmp(entry->d_name + length - suffix, MODULE_SUFFIX) == 0 &&
           module_name_sound(entry->d_name, length - suffix);
}

#define KNOWN_MAX 100

/* Names of modules for a message, each once. Names for which there is no room or memory are left out. */
struct known {
    char *names[KNOWN_MAX];
    size_t count;
};

static void add_known(struct known *known, const char *file)
{
    char *name = strndup(file, strlen(file) - strlen(MODULE_SUFFIX));

    for (size_t i = 0; i < known->count && name != NULL; i++)
        if (strcmp(known->names[i], name) == 0) {
            free(name);
            name = NULL;
        }
    if (name != NULL && known->count < KNOWN_MAX)
        known->names[known->count++] = name;
    else
        free(name);
}

static void list_known(const struct folders *folders, struct known *known)
{
    struct dirent **entries;

    known->count = 0;
    for (size_t i = 0; i < folders->count; i++) {
        int count = scandir(folders->paths[i], &entries, is_module_file, alphasort);
        for (int k = 0; k < count; k++) {
            add_known(known, entries[k]->d_name);
            free(entries[k]);
        }
        if (count >= 0)
            free(entries);
    }
}

/* Appends to a list, which is cut off when it is full. */
static void append(char *list, size_t size, const char *between, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void append(char *list, size_t size, const char *between, const char *format, ...)
{
    size_t used = strlen(list);
    va_list arguments;

    if (list[0] != '\0')
        snprintf(list + used, size - used, "%s", between);
    used = strlen(list);
    va_start(arguments, format);
    vsnprintf(list + used, size - used, format, arguments);
    va_end(arguments);
}

mortise_status folders_lack(const struct folders *folders, const struct config *config,
                            const char *section, const char *name, mortise_error *error)
{
    char details[700] = "", there[300] = "";
    struct known known;

    list_known(folders, &known);
    for (size_t i = 0; i < known.count; i++)
        append(there, sizeof(there), ", ", "%s", known.names[i]);
    append(details, sizeof(details), "",
           "install its package, or use one that is installed (%s); tried",
           known.count == 0 ? "none" : there);
    for (size_t i = 0; i < folders->count; i++)
        append(details, sizeof(details), i == 0 ? " " : ", ", "%s/%s" MODULE_SUFFIX,
               folders->paths[i], name);
    const char *nearest = nearest_word(name, (const char *const *)known.names, known.count);
    mortise_status status = config_unknown_module(config, section, name, nearest, details, error);
    for (size_t i = 0; i < known.count; i++)
        free(known.names[i]);
    return status;
}

mortise_status folders_find(const struct folders *folders, const char *name, char **path,
                            mortise_error *error)
{
    char reason[128];
    struct stat st;

    *path = NULL;
    for (size_t i = 0; i < folders->count; i++) {
        if (asprintf(path, "%s/%s" MODULE_SUFFIX, folders->paths[i], name) < 0) {
            *path = NULL;
            return out_of_memory(error);
        }
        mortise_status status = MORTISE_OK;
        if (stat(*path, &st) == 0)
            return MORTISE_OK;
        if (errno != ENOENT && errno != ENOTDIR)
            status = failed(error, MORTISE_CONFIG, "%s cannot be read: %s", *path,
                            strerror_r(errno, reason, sizeof(reason)));
        free(*path);
        *path = NULL;
        if (status != MORTISE_OK)
            return status;
    }
    return MORTISE_OK;
}
