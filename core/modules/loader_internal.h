/* loader_internal.h - what only the parts of the loader share: module_path.c (where modules are looked for),
 * handshake.c (whether a file is a module that can be used), loader.c (opening and closing). */
#ifndef MORTISE_CORE_LOADER_INTERNAL_H
#define MORTISE_CORE_LOADER_INTERNAL_H

#include "modules/loader.h"

#include <dirent.h>
#include <limits.h>

#define PROBLEM_SIZE 512
#define MODULE_SUFFIX ".so"
#define MODULE_NAME_MAX 31 /* so that it fits into mortise_error.driver */

/* Under sanitizers a module's library stays mapped, so that reports have names. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KEEP_MAPPED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define KEEP_MAPPED true
#endif
#endif
#ifndef KEEP_MAPPED
#define KEEP_MAPPED false
#endif

/* ---- module_path.c ----------------------------------------------------------------------------- */

/* The folders of the module path, in order, including those that do not exist. */
struct folders {
    char **paths;
    size_t count;
};

mortise_status folders_make(const struct config *config, struct folders *folders,
                            mortise_error *error);
void folders_free(struct folders *folders);
/* Finds the first file of that name in the folders, and does not check it. The caller frees *path; NULL: there is none. */
mortise_status folders_find(const struct folders *folders, const char *name, char **path,
                            mortise_error *error);
/* Returns CONFIG: there is no such module. The message lists the existing ones and each path tried. section: the section
 * that asks for it; NULL: the core. */
mortise_status folders_lack(const struct folders *folders, const struct config *config,
                            const char *section, const char *name, mortise_error *error);
/* Whether the name of a file is one of a module; for scandir(). */
int is_module_file(const struct dirent *entry);
/* Whether a module may be called so: 1 to MODULE_NAME_MAX letters, digits, '_', '-' and '+'. */
bool module_name_sound(const char *name, size_t length);
/* OK if only root, the running user, and users who may change this library itself may write there; else *error says so.
 * real: the same path without symbolic links; nobody else can replace it afterwards. If the path does not exist: OK, and
 * real is empty. */
mortise_status path_check_writers(const char *path, char real[PATH_MAX], mortise_error *error);

/* ---- handshake.c ------------------------------------------------------------------------------- */

/* Checks what the symbol of `path` points to and copies it; fields that it does not have are zero. */
mortise_status handshake(const char *path, const mortise_module *found, mortise_module *module,
                         mortise_error *error);
/* "driver", "plugin", "observer"; NULL for another number. */
const char *module_kind_word(uint32_t kind);

#endif
