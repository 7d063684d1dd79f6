/* loader.c - opens and closes modules.
 *
 * From a section's name to a running instance: the file (module_path.c), dlopen, the handshake (handshake.c), the values
 * by the module's schema, its `open`. It holds no lock and keeps nothing between calls except what is in struct loader,
 * because several threads may open clients at once. It knows neither a backend nor the contents of the host table. */
#include "modules/loader_internal.h"

#include "base/status.h"
#include "config/schema.h"
#include "config/url.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CORE_NAME "mortise" /* the core's own section: no module has this name */
#define DEPTH_MAX 8         /* modules one above the other */

static mortise_status out_of_memory(mortise_error *error)
{
    return failed(error, MORTISE_NOMEM, "out of memory while a module was opened");
}

/* ---- A library ------------------------------------------------------------------------------- */

/* A module's file in memory, not opened. */
struct library {
    char *path;
    void *handle;
    mortise_module module;
};

static void library_free(struct library *library)
{
    if (library->handle != NULL && !KEEP_MAPPED)
        dlclose(library->handle);
    free(library->path);
    memset(library, 0, sizeof(*library));
}

/* real: the path that was opened, which the dynamic linker uses in its message. */
static mortise_status load_failed(const char *path, const char *real, mortise_error *error)
{
    const char *why = dlerror(); /* of this thread */
    if (why == NULL)
        why = "unknown reason";
    size_t length = strlen(real);
    if (strncmp(why, real, length) == 0 && strncmp(why + length, ": ", 2) == 0)
        why += length + 2;
    return failed(error, MORTISE_CONFIG, "%s cannot be loaded: %s", path, why);
}

/* Takes over path. Opens the file that was checked, and not what the path leads to by then. */
static mortise_status library_load_path(char *path, struct library *library, mortise_error *error)
{
    char real[PATH_MAX];
    mortise_status status = path_check_writers(path, real, error);
    const mortise_module *found = NULL;

    *library = (struct library){.path = path};
    if (status == MORTISE_OK && real[0] == '\0')
        status = failed(error, MORTISE_CONFIG, "%s cannot be loaded: it does not exist", path);
    if (status == MORTISE_OK)
        library->handle = dlopen(real, RTLD_NOW | RTLD_LOCAL);
    if (status != MORTISE_OK)
        ; /* *error says why */
    else if (library->handle == NULL)
        status = load_failed(path, real, error);
    else if ((found = dlsym(library->handle, MORTISE_MODULE_SYMBOL)) == NULL)
        status = failed(error, MORTISE_CONFIG,
                        "%s: the symbol " MORTISE_MODULE_SYMBOL " is missing: not a module", path);
    else
        status = handshake(path, found, &library->module, error);
    if (status != MORTISE_OK)
        library_free(library);
    return status;
}

/* section: the section that asks for the module; NULL: the core. */
static mortise_status library_load(const struct config *config, const char *section,
                                   const char *name, struct library *library, mortise_error *error)
{
    struct folders folders;
    size_t shown = url_shown_length(name);
    char quoted[QUOTED_SIZE], *path = NULL;

    if (!module_name_sound(name, strlen(name)) || strcmp(name, CORE_NAME) == 0)
        return failed(
            error, MORTISE_CONFIG,
            "%s: bad module name %s%s: expected 1 to %d letters, digits, '_', '-' and '+'",
            config_source(config), quote_name(name, shown, quoted, sizeof(quoted)),
            name[shown] == '\0' ? "" : "...", MODULE_NAME_MAX);
    mortise_status status = folders_make(config, &folders, error);
    if (status != MORTISE_OK)
        return status;
    status = folders_find(&folders, name, &path, error);
    if (status == MORTISE_OK && path == NULL)
        status = folders_lack(&folders, config, section, name, error);
    folders_free(&folders);
    return status == MORTISE_OK ? library_load_path(path, library, error) : status;
}

/* ---- An instance ----------------------------------------------------------------------------- */

/* The arguments of one loader_open(). */
struct opening {
    struct loader *loader;
    const char *asked; /* the section's name as asked for */
    struct instance *above;
    uint32_t wanted_kind;
    mortise_error *error;
};

static void instance_free(const struct loader *loader, struct instance *instance)
{
    struct library library = {.path = instance->path, .handle = instance->library};

    if (instance->core != NULL && loader->host_forget != NULL)
        loader->host_forget(instance, loader->argument);
    config_values_free(instance->values, instance->module.option_count);
    library_free(&library);
    free(instance->section);
    free(instance);
}

/* Closes all instances that were opened after `stop`. */
static void close_until(struct loader *loader, struct instance *stop)
{
    while (loader->instances != stop) {
        struct instance *instance = loader->instances;
        loader->instances = instance->next;
        instance->module.close(instance->ctx);
        instance_free(loader, instance);
    }
}

void loader_close_all(struct loader *loader)
{
    atomic_store(&loader->closing, true);
    close_until(loader, NULL);
}

/* A stack must have an end, so no section may be below itself. */
static mortise_status check_above(const struct opening *o, const char *section)
{
    size_t depth = 1;

    for (const struct instance *i = o->above; i != NULL; i = i->above, depth++) {
        if (strcmp(i->section, section) == 0)
            return failed(o->error, MORTISE_CONFIG,
                          "%s: section [%s] is being opened already: it cannot be below itself",
                          config_source(o->loader->config), section);
        if (depth >= DEPTH_MAX)
            return failed(o->error, MORTISE_CONFIG, "%s: [%s] would be more than %d modules deep",
                          config_source(o->loader->config), section, DEPTH_MAX);
    }
    return MORTISE_OK;
}

static mortise_status check_kind(const struct opening *o, const struct library *library)
{
    uint32_t kind = library->module.kind;

    if (o->wanted_kind != 0 && kind != o->wanted_kind)
        return failed(o->error, MORTISE_CONFIG, "%s: [%s] is of the kind %s, expected %s (%s)",
                      config_source(o->loader->config), o->asked, module_kind_word(kind),
                      module_kind_word(o->wanted_kind), library->path);
    if (o->above != NULL && kind == MORTISE_KIND_OBSERVER)
        return failed(o->error, MORTISE_CONFIG,
                      "%s: [%s] is an observer, which cannot be below [%s] (%s)",
                      config_source(o->loader->config), o->asked, o->above->section, library->path);
    return MORTISE_OK;
}

/* Returns the section that an instance reads, which is also its name: the section that was asked for. But if that is
 * only another name of the module (a link to its file), and has no section, the module's own name. */
static const char *section_of(const struct opening *o, const struct library *library)
{
    bool named = strchr(o->asked, ':') != NULL || config_has_section(o->loader->config, o->asked);
    return named ? o->asked : library->module.name;
}

static mortise_status read_values(const struct opening *o, struct instance *instance)
{
    const mortise_module *module = &instance->module;
    /* A URL's parts are found under its scheme, whatever the module calls itself. */
    const char *section = config_is_url(o->loader->config) ? o->asked : instance->section;
    size_t length = strlen(module->name);
    bool is_own = strcspn(o->asked, ":") == length && strncmp(o->asked, module->name, length) == 0;

    return config_values_as(o->loader->config, section, is_own ? NULL : o->asked, module->options,
                            module->option_count, &instance->values, o->error);
}

/* Passes on the module's own error about why it did not open, and fills in what is missing in it. */
static mortise_status open_failed(const struct opening *o, const struct instance *instance,
                                  mortise_status status, mortise_error *told)
{
    if (strcmp(mortise_status_name(status), "UNKNOWN") == 0)
        status = MORTISE_BACKEND;
    told->status = status;
    told->message[sizeof(told->message) - 1] = '\0';
    told->driver[sizeof(told->driver) - 1] = '\0';
    if (told->message[0] == '\0')
        failed(told, status, "[%s] did not open: %s", instance->section,
               mortise_status_text(status));
    bool own = told->driver[0] == '\0' || strcmp(told->driver, instance->module.name) == 0;
    if (status == MORTISE_CONFIG && own)
        config_complete(o->loader->config, instance->section, instance->module.options,
                        instance->module.option_count, told);
    if (told->driver[0] == '\0') /* else a module below it reported the error */
        snprintf(told->driver, sizeof(told->driver), "%s", instance->module.name);
    if (o->error != NULL)
        *o->error = *told;
    return status;
}

static mortise_status call_open(const struct opening *o, struct instance *instance)
{
    struct loader *loader = o->loader;
    struct instance *before = loader->instances;
    mortise_error told = {.retryable = false};
    const mortise_open_args args = {.size = sizeof(args),
                                    .host = &instance->host,
                                    .values = instance->values,
                                    .section = instance->section,
                                    .client_id = loader->client_id,
                                    .note = loader->note,
                                    .name_space = loader->name_space,
                                    .top = loader->top,
                                    .names_begin = loader->names_begin};

    loader->host_prepare(instance, loader->argument);
    mortise_status status = instance->module.open(&args, &instance->ctx, &told);
    if (status == MORTISE_OK)
        return MORTISE_OK;
    close_until(loader, before); /* the modules that it had opened below itself */
    return open_failed(o, instance, status, &told);
}

/* Takes over the library. */
static mortise_status make_instance(const struct opening *o, struct library *library,
                                    struct instance **made)
{
    struct instance *instance = calloc(1, sizeof(*instance));

    if (instance == NULL) {
        library_free(library);
        return out_of_memory(o->error);
    }
    instance->above = o->above;
    instance->path = library->path;
    instance->library = library->handle;
    instance->module = library->module;
    instance->section = strdup(section_of(o, library));
    mortise_status status =
        instance->section == NULL ? out_of_memory(o->error) : check_above(o, instance->section);
    if (status == MORTISE_OK)
        status = read_values(o, instance);
    if (status == MORTISE_OK)
        status = call_open(o, instance);
    if (status == MORTISE_OK)
        *made = instance;
    else
        instance_free(o->loader, instance);
    return status;
}

static void link_instance(struct loader *loader, struct instance *instance)
{
    const mortise_module *module = &instance->module;

    instance->capabilities = module->capabilities;
    if (module->capabilities_of != NULL)
        instance->capabilities &= module->capabilities_of(instance->ctx);
    instance->below = (mortise_below){.module = module,
                                      .ctx = instance->ctx,
                                      .capabilities = instance->capabilities,
                                      .default_namespace = module->namespace_of != NULL
                                                               ? module->namespace_of(instance->ctx)
                                                               : module->default_namespace};
    instance->next = loader->instances;
    loader->instances = instance;
}

/* Loads the file for the section that was asked for. A section "name:instance" must be in the config. */
static mortise_status find_library(const struct opening *o, struct library *library)
{
    const struct config *config = o->loader->config;
    size_t length = strcspn(o->asked, ":");

    if (o->asked[length] == ':' && !config_has_section(config, o->asked))
        return config_no_section(config, o->asked, o->error); /* other messages would show it */
    mortise_status status = check_above(o, o->asked);
    if (status != MORTISE_OK)
        return status;
    char *name = strndup(o->asked, length);
    if (name == NULL)
        return out_of_memory(o->error);
    status =
        library_load(config, o->above == NULL ? NULL : o->above->section, name, library, o->error);
    free(name);
    return status;
}

mortise_status loader_open(struct loader *loader, const char *section, struct instance *above,
                           uint32_t wanted_kind, struct instance **instance, mortise_error *error)
{
    const struct opening o = {.loader = loader,
                              .asked = section,
                              .above = above,
                              .wanted_kind = wanted_kind,
                              .error = error};
    struct library library;

    *instance = NULL;
    mortise_status status = find_library(&o, &library);
    if (status != MORTISE_OK)
        return status;
    status = check_kind(&o, &library);
    if (status != MORTISE_OK)
        library_free(&library);
    else
        status = make_instance(&o, &library, instance);
    if (status == MORTISE_OK)
        link_instance(loader, *instance);
    return status;
}

/* ---- Looking without opening ----------------------------------------------------------------- */

mortise_status loader_peek(const struct config *config, const char *name,
                           void (*use)(const mortise_module *module, void *argument),
                           void *argument, mortise_error *error)
{
    struct library library;
    mortise_status status = library_load(config, NULL, name, &library, error);

    if (status != MORTISE_OK)
        return status;
    use(&library.module, argument);
    library_free(&library);
    return MORTISE_OK;
}

struct scan {
    const struct folders *folders;
    size_t at; /* which of them */
    mortise_module_callback each;
    void *user_data;
    mortise_error *error;
};

/* Whether an earlier folder has a file of this name too, which is the one that is loaded. */
static bool is_shadowed(const struct scan *scan, const char *path)
{
    const char *file = strrchr(path, '/') + 1;
    char *before;

    for (size_t i = 0; i < scan->at; i++) {
        if (asprintf(&before, "%s/%s", scan->folders->paths[i], file) < 0)
            return false;
        bool there = access(before, F_OK) == 0;
        free(before);
        if (there)
            return true;
    }
    return false;
}

static bool tell_problem(const struct scan *scan, const char *name, const char *path,
                         const char *problem)
{
    const mortise_module_info info = {.size = sizeof(info),
                                      .name = name,
                                      .section = name,
                                      .version = "",
                                      .summary = "",
                                      .path = path,
                                      .kind = ""};

    return scan->each(&info, NULL, 0, problem, scan->user_data);
}

static mortise_status tell_module(const struct scan *scan, const struct library *library,
                                  bool *more)
{
    const mortise_module *module = &library->module;
    mortise_option_info *options = option_infos(module->options, module->option_count);
    const mortise_module_info info = {.size = sizeof(info),
                                      .name = module->name,
                                      .section = module->name,
                                      .version = module->version,
                                      .summary = module->summary,
                                      .path = library->path,
                                      .kind = module_kind_word(module->kind),
                                      .abi = module->abi,
                                      .capabilities = module->capabilities};

    if (options == NULL)
        return out_of_memory(scan->error);
    *more = scan->each(&info, options, module->option_count, NULL, scan->user_data);
    free(options);
    return MORTISE_OK;
}

/* Whether `name` is only another name of a module whose own file is in the same folder. */
static bool is_alias(const struct scan *scan, const struct library *library, const char *name)
{
    char *own;

    if (strcmp(library->module.name, name) == 0 ||
        asprintf(&own, "%s/%s" MODULE_SUFFIX, scan->folders->paths[scan->at],
                 library->module.name) < 0)
        return false;
    bool there = access(own, F_OK) == 0;
    free(own);
    return there;
}

/* Takes over path. */
static mortise_status scan_path(const struct scan *scan, const char *name, char *path, bool *more)
{
    struct library library;
    mortise_error problem;
    char *again = strdup(path); /* library_load_path frees it on failure */

    if (again == NULL) {
        free(path);
        return out_of_memory(scan->error);
    }
    mortise_status status = library_load_path(path, &library, &problem);
    if (status != MORTISE_OK)
        *more = tell_problem(scan, name, again, problem.message);
    free(again);
    if (status != MORTISE_OK)
        return MORTISE_OK;
    if (!is_alias(scan, &library, name))
        status = tell_module(scan, &library, more);
    library_free(&library);
    return status;
}

static mortise_status scan_entry(const struct scan *scan, const char *file, bool *more)
{
    char name[MODULE_NAME_MAX + 1], *path;

    snprintf(name, sizeof(name), "%.*s", (int)(strlen(file) - strlen(MODULE_SUFFIX)), file);
    if (asprintf(&path, "%s/%s", scan->folders->paths[scan->at], file) < 0)
        return out_of_memory(scan->error);
    if (!is_shadowed(scan, path))
        return scan_path(scan, name, path, more);
    free(path);
    return MORTISE_OK;
}

static mortise_status scan_folder(const struct scan *scan, bool *more)
{
    struct dirent **entries;
    int count = scandir(scan->folders->paths[scan->at], &entries, is_module_file, alphasort);
    mortise_status status = MORTISE_OK;

    if (count < 0 && errno == ENOMEM)
        return out_of_memory(scan->error);
    if (count < 0)
        return MORTISE_OK; /* not there */
    for (int i = 0; i < count; i++) {
        if (status == MORTISE_OK && *more)
            status = scan_entry(scan, entries[i]->d_name, more);
        free(entries[i]);
    }
    free(entries);
    return status;
}

mortise_status loader_scan(const struct config *config, mortise_module_callback each,
                           void *user_data, mortise_error *error)
{
    struct folders folders;
    struct scan scan = {.folders = &folders, .each = each, .user_data = user_data, .error = error};
    bool more = true;
    mortise_status status = folders_make(config, &folders, error);

    if (status != MORTISE_OK)
        return status;
    for (; scan.at < folders.count && status == MORTISE_OK && more; scan.at++)
        status = scan_folder(&scan, &more);
    folders_free(&folders);
    return status;
}
