/* module_path.c - where modules are looked for (R11).
 *
 * First the folders that $MORTISE_MODULE_PATH or the config file names, then the folder mortise/ beside
 * libmortise itself, then the one it was built for. Folders are absolute, and not everybody's to write:
 * what lies there becomes code of this process. Knows nothing of what is in a file. */
#include "loader_internal.h"

#include "status.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

mortise_status path_check_writers(const char *path, mortise_error *error)
{
    struct stat st;

    if (stat(path, &st) != 0 || (st.st_mode & S_IWOTH) == 0)
        return MORTISE_OK;
    return failed(error, MORTISE_CONFIG,
                  "%s: no module is loaded from where everybody may write (chmod o-w)", path);
}

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

/* "…/mortise" beside the library that this code is part of, if it is one: what the dynamic linker says of
 * the program itself is argv[0], which anybody may set. */
static mortise_status add_beside_library(struct folders *folders, mortise_error *error)
{
    struct link_map *map = NULL;
    Dl_info info;
    char *path;

    if (dladdr1((const void *)&folders_make, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 ||
        map == NULL || map->l_name == NULL || map->l_name[0] != '/')
        return MORTISE_OK;
    const char *slash = strrchr(map->l_name, '/');
    if (asprintf(&path, "%.*s/mortise", (int)(slash - map->l_name), map->l_name) < 0)
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
