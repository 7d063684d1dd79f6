/* module_path.c - where modules are looked for (R11).
 *
 * First the folders that $MORTISE_MODULE_PATH or the config file names, then the folder mortise/ beside
 * libmortise itself, then the one it was built for. Folders are absolute. What lies there becomes code of
 * this process: folder and file must belong to root or to the running user, and nobody else may write
 * them. But who owns libmortise's own file or folder, or may write one of these as its group, could put
 * any code into its place: a module of theirs is no new danger. (A build tree of another user, or of a group.)
 * Knows nothing of what is in a file. */
#include "loader_internal.h"

#include "status.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
              c == '_' || c == '-'))
            return false;
    }
    return length > 0 && length <= MODULE_NAME_MAX;
}

/* ---- Who may write there --------------------------------------------------------------------- */

/* The library that this code is in, or NULL if it is in the program: what the dynamic linker says of that is
 * argv[0], which anybody may set. */
static const char *own_library(void)
{
    struct link_map *map = NULL;
    Dl_info info;

    if (dladdr1((const void *)&folders_make, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 ||
        map == NULL || map->l_name == NULL || map->l_name[0] != '/')
        return NULL;
    return map->l_name;
}

/* Whose this code is: its file, and the folder of that. What is not to be had is as if it were root's. */
struct own {
    struct stat file, folder;
};

static void own_look(struct own *own)
{
    const char *library = own_library();
    char folder[PATH_MAX];

    memset(own, 0, sizeof(*own));
    if (stat(library != NULL ? library : "/proc/self/exe", &own->file) != 0)
        memset(&own->file, 0, sizeof(own->file));
    if (library == NULL || strlen(library) >= sizeof(folder))
        return;
    snprintf(folder, sizeof(folder), "%.*s", (int)(strrchr(library, '/') - library + 1), library);
    if (stat(folder, &own->folder) != 0)
        memset(&own->folder, 0, sizeof(own->folder));
}

static bool group_writes(const struct stat *there, gid_t group)
{
    return (there->st_mode & S_IWGRP) != 0 && there->st_gid == group;
}

static bool owner_is_good(const struct stat *st)
{
    struct own own;

    if (st->st_uid == 0 || st->st_uid == geteuid())
        return true;
    own_look(&own);
    return st->st_uid == own.file.st_uid || st->st_uid == own.folder.st_uid;
}

static bool writers_are_good(const struct stat *st)
{
    struct own own;

    if ((st->st_mode & (S_IWGRP | S_IWOTH)) == 0)
        return true;
    own_look(&own);
    return (st->st_mode & S_IWOTH) == 0 &&
           (group_writes(&own.file, st->st_gid) || group_writes(&own.folder, st->st_gid));
}

mortise_status path_check_writers(const char *path, mortise_error *error)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return MORTISE_OK;
    if (!owner_is_good(&st))
        return failed(
            error, MORTISE_CONFIG,
            "%s: no module is loaded from what belongs to user %u: it must belong to root "
            "or to the running user (chown)",
            path, (unsigned)st.st_uid);
    if (!writers_are_good(&st))
        return failed(error, MORTISE_CONFIG,
                      "%s: no module is loaded from what others than its owner may write: its mode "
                      "is %04o (chmod go-w)",
                      path, (unsigned)st.st_mode & 07777);
    return MORTISE_OK;
}

/* ---- The folders ----------------------------------------------------------------------------- */

/* Takes over path, NULL if there was no memory for it. */
static mortise_status add_folder(struct folders *folders, char *path, mortise_error *error)
{
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
    return path_check_writers(path, error);
}

/* "/a:/b" */
static mortise_status add_list(struct folders *folders, const char *list, mortise_error *error)
{
    char quoted[QUOTED_SIZE];
    mortise_status status = MORTISE_OK;

    for (const char *at = list; status == MORTISE_OK; at++) {
        size_t length = strcspn(at, ":");
        if (at[0] != '/')
            return failed(error, MORTISE_CONFIG, "module path %s: %.*s%s is not an absolute folder",
                          quote_name(list, strlen(list), quoted, sizeof(quoted)),
                          (int)(length > 200 ? 200 : length), at,
                          length == 0 ? "an empty part" : "");
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

mortise_status folders_make(const struct config *config, struct folders *folders,
                            mortise_error *error)
{
    const char *list;

    memset(folders, 0, sizeof(*folders));
    mortise_status status = config_module_path(config, &list, error);
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

static mortise_status not_found(const struct folders *folders, const char *name,
                                mortise_error *error)
{
    char tried[sizeof(error->message) - 100];
    size_t used = 0;

    tried[0] = '\0';
    for (size_t i = 0; i < folders->count && used < sizeof(tried); i++) {
        int added = snprintf(tried + used, sizeof(tried) - used, "%s%s/%s" MODULE_SUFFIX,
                             i == 0 ? "" : ", ", folders->paths[i], name);
        used += added > 0 ? (size_t)added : 0;
    }
    return failed(error, MORTISE_CONFIG, "no module \"%s\": tried %s", name, tried);
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
        if (stat(*path, &st) == 0) {
            status = path_check_writers(*path, error);
            if (status == MORTISE_OK)
                return MORTISE_OK;
        } else if (errno != ENOENT && errno != ENOTDIR)
            status = failed(error, MORTISE_CONFIG, "%s cannot be read: %s", *path,
                            strerror_r(errno, reason, sizeof(reason)));
        free(*path);
        *path = NULL;
        if (status != MORTISE_OK)
            return status;
    }
    return not_found(folders, name, error);
}
