/* loader_internal.h - what the loader is made of: module_path.c (where modules are looked for),
 * handshake.c (whether what was found is one), loader.c (opening and closing). Nobody else's. */
#ifndef MORTISE_CORE_LOADER_INTERNAL_H
#define MORTISE_CORE_LOADER_INTERNAL_H

#include "modules/loader.h"

#include <dirent.h>
#include <limits.h>

#define PROBLEM_SIZE 512
#define MODULE_SUFFIX ".so"
#define MODULE_NAME_MAX 31 /* it has room in mortise_error.driver */

/* ---- module_path.c ----------------------------------------------------------------------------- */

/* The folders of the module path, in order; those that do not exist too. */
struct folders {
    char **paths;
    size_t count;
};

mortise_status folders_make(const struct config *config, struct folders *folders,
                            mortise_error *error);
void folders_free(struct folders *folders);
/* The first file of that name in the folders, for free(), not checked; NULL: none. */
mortise_status folders_find(const struct folders *folders, const char *name, char **path,
                            mortise_error *error);
/* CONFIG: there is none, with what there is and each path tried. section: asks for it; NULL: the core. */
mortise_status folders_lack(const struct folders *folders, const struct config *config,
                            const char *section, const char *name, mortise_error *error);
/* Whether the name of a file is one of a module; for scandir(). */
int is_module_file(const struct dirent *entry);
/* Whether a module may be called so: 1 to MODULE_NAME_MAX letters, digits, '_', '-' and '+'. */
bool module_name_sound(const char *name, size_t length);
/* Whether nobody else may write there but root, the running user, and who may change this library itself;
 * else *error says so. real: the same without symbolic links, which nobody else can replace after that. A path that is not
 * there is nobody's to write: real is empty. */
mortise_status path_check_writers(const char *path, char real[PATH_MAX], mortise_error *error);

/* ---- handshake.c ------------------------------------------------------------------------------- */

/* Checks what the symbol of `path` points to and copies it; fields that it does not have are zero. */
mortise_status handshake(const char *path, const mortise_module *found, mortise_module *module,
                         mortise_error *error);
/* "driver", "plugin", "observer"; NULL for another number. */
const char *module_kind_word(uint32_t kind);

#endif
