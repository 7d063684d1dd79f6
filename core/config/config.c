/* config.c - where a client's configuration comes from.
 *
 * A file, a URL, or neither. This file has the search, and everything that is known about a config before any
 * schema is (its source, its driver, its module path). config_file.c reads the text of a file, url.c takes a
 * URL apart, config_values.c makes values of them. Every environment variable is read by secure_getenv:
 * a set-uid program gets none. Knows no backend and opens no module. */
#include "config/config_internal.h"

#include "base/status.h"
#include "config/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MORTISE_CONFIG_DIR
#error "MORTISE_CONFIG_DIR is the folder of the system's mortise.conf"
#endif
#define CONFIG_NAME "mortise.conf"

/* ---- Messages of modules ---------------------------------------------------------------------- */

/* Returns the line of the key that the text begins with; 0: the text begins with no key, or the key was not given. */
static size_t line_of_first_key(const struct config *config, const char *section,
                                const mortise_option *schema, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(schema[i].key);
        if (strncmp(text, schema[i].key, length) != 0 || strchr(" :", text[length]) == NULL)
            continue;
        const struct row *row = config_find_row(config, section, schema[i].key);
        return row != NULL ? row->line : 0;
    }
    return 0;
}

void config_complete(const struct config *config, const char *section, const mortise_option *schema,
                     size_t count, mortise_error *error)
{
    const char *text = error->message, *end = text[0] == '[' ? strstr(text, "] ") : NULL;
    bool named = end != NULL; /* the message names the section already */
    mortise_error whole;
    if (strncmp(text, config->source, strlen(config->source)) == 0)
        return;
    size_t line = line_of_first_key(config, section, schema, count, named ? end + 2 : text);
    config_failed(config, line, named || config->origin == FROM_URL ? NULL : section, &whole, "%s",
                  text);
    memcpy(error->message, whole.message, sizeof(error->message));
}

/* ---- Loading --------------------------------------------------------------------------------- */

static bool set_text(char **at, const char *text)
{
    *at = strdup(text);
    return *at != NULL;
}

/* The value of a core key that is needed before any schema is read: *text stays NULL if not given. */
static mortise_status core_text(const struct config *config, enum core_option option, char **text,
                                mortise_error *error)
{
    const char *key = core_options[option].key;
    const struct row *row = config_find_row(config, CORE_SECTION, key);
    char reason[REASON_SIZE];

    if (row == NULL)
        return MORTISE_OK;
    *text = config_expand(row->text, reason, sizeof(reason));
    if (*text == NULL && reason[0] == '\0')
        return config_no_memory(error);
    if (*text == NULL)
        return config_failed(config, row->line, CORE_SECTION, error, "%s: %s", key, reason);
    if (**text == '\0')
        return config_failed(config, row->line, CORE_SECTION, error, "%s is empty", key);
    return MORTISE_OK;
}

/* Fills in what follows from the rows. */
static mortise_status finish_file(struct config *config, mortise_error *error)
{
    mortise_status status = config_check_section(config, CORE_SECTION, error);

    if (status == MORTISE_OK)
        status = core_text(config, CORE_DRIVER, &config->driver, error);
    if (status == MORTISE_OK)
        status = core_text(config, CORE_MODULE_PATH, &config->file_module_path, error);
    return status;
}

static void mask_url(char *path)
{
    char *query = strchr(path, '?'), *at = strrchr(path, '@'), *slashes = strstr(path, "//");
    char *colon = at == NULL ? NULL : strchr(slashes != NULL && slashes < at ? slashes : path, ':');
    if (colon != NULL && query != NULL && colon < query && query < at)
        query = colon; /* the '?' is in the password, or the '@' is in the query */
    if (query != NULL && query[1] != '\0')
        snprintf(query + 1, strlen(query), "%s", "..."); /* cut to what was there */
    at = strrchr(path, '@');
    if (colon == NULL || at == NULL || colon > at)
        return;
    memmove(colon + 1, at, strlen(at) + 1);
}

/* A mistyped URL ("redis//user:password@host"), or a connection string, is taken for the path of a file that does not exist. So
 * anything that looks like a password, or that may have one in it, is not shown. */
static void mask_secrets(char *path)
{
    mask_url(path);
    size_t shown = url_shown_length(path);
    if (path[shown] != '\0')
        snprintf(path + shown, strlen(path + shown) + 1, "%s", "..."); /* cut to what was there */
}

/* whence: what named the file, for messages. NULL: nothing did, so it is no error if there is none (source stays NULL). */
static mortise_status load_file(struct config *config, const char *path, const char *whence,
                                mortise_error *error)
{
    struct file file;
    char reason[REASON_SIZE];
    bool missing, read = file_read(path, &file, reason, sizeof(reason), &missing);

    if (!read && missing && whence == NULL)
        return MORTISE_OK;
    config->origin = FROM_FILE;
    config->source = strdup(path);
    if (config->source == NULL || (!read && reason[0] == '\0')) {
        file_free(&file);
        return config_no_memory(error);
    }
    if (!read)
        mask_secrets(config->source);
    if (!read)
        return config_failed(config, 0, NULL, error, "%s%s", reason, whence == NULL ? "" : whence);
    config->file_owner = file.owner;
    config->file_mode = file.mode;
    mortise_status status = config_parse_file(config, file.text, file.size, error);
    file_free(&file);
    return status == MORTISE_OK ? finish_file(config, error) : status;
}

/* Query keys that may be shown: the core's own are no secrets, and about others nothing is known yet. */
static bool key_shown(const char *key)
{
    for (size_t i = 0; i < CORE_OPTION_COUNT; i++)
        if (strcmp(core_options[i].key, key) == 0)
            return true;
    return false;
}

static mortise_status load_url(struct config *config, const char *url, mortise_error *error)
{
    mortise_status status = url_parse(url, &config->url, error);

    if (status != MORTISE_OK)
        return status;
    config->origin = FROM_URL;
    config->source = url_without_secrets(&config->url, key_shown);
    if (config->source == NULL || !set_text(&config->driver, config->url.scheme))
        return config_no_memory(error);
    return MORTISE_OK;
}

/* Returns where the "#SECTION" of FILE#SECTION begins, or NULL. If a file with the whole name exists, it is that file. */
static const char *section_mark(const char *where)
{
    const char *mark = strrchr(where, '#');
    struct stat st;

    if (mark == NULL || mark == where || strpbrk(mark, "/@") != NULL || stat(where, &st) == 0)
        return NULL;
    return mark;
}

/* Loads a file, but with another section as the top of the stack than the one that the file names. */
static mortise_status load_section(struct config *config, const char *where, const char *mark,
                                   const char *whence, mortise_error *error)
{
    char *path = strndup(where, (size_t)(mark - where));

    if (path == NULL)
        return config_no_memory(error);
    mortise_status status = load_file(config, path, whence, error);
    free(path);
    if (status != MORTISE_OK)
        return status;
    free(config->driver);
    config->section_named = true;
    return set_text(&config->driver, mark + 1) ? MORTISE_OK : config_no_memory(error);
}

/* Loads the file or URL that the application, or $MORTISE_CONFIG, has named. */
static mortise_status load_named(struct config *config, const char *where, const char *whence,
                                 mortise_error *error)
{
    if (where[0] == '\0')
        return failed(error, MORTISE_CONFIG, "the path of the config file is empty%s", whence);
    if (url_is(where))
        return load_url(config, where, error);
    const char *mark = section_mark(where);
    if (mark != NULL)
        return load_section(config, where, mark, whence, error);
    return load_file(config, where, whence, error);
}

/* FOLDER/BELOW/mortise.conf, or nothing if there is none. */
static mortise_status load_users(struct config *config, const char *folder, const char *below,
                                 mortise_error *error)
{
    char *path;

    if (asprintf(&path, "%s/%s/" CONFIG_NAME, folder, below) < 0)
        return config_no_memory(error);
    mortise_status status = load_file(config, path, NULL, error);
    free(path);
    return status;
}

static mortise_status search(struct config *config, mortise_error *error)
{
    const char *named = secure_getenv("MORTISE_CONFIG");
    const char *xdg = secure_getenv("XDG_CONFIG_HOME"), *home = secure_getenv("HOME");
    mortise_status status = MORTISE_OK;

    if (named != NULL && named[0] != '\0')
        return load_named(config, named, " (named by $MORTISE_CONFIG)", error);
    if (xdg != NULL && xdg[0] == '/') /* its specification says: ignore a relative path */
        status = load_users(config, xdg, "mortise", error);
    else if (home != NULL && home[0] == '/')
        status = load_users(config, home, ".config/mortise", error);
    if (status == MORTISE_OK && config->source == NULL)
        status = load_file(config, MORTISE_CONFIG_DIR "/" CONFIG_NAME, NULL, error);
    if (status == MORTISE_OK && config->source == NULL &&
        !set_text(&config->source, "built-in defaults"))
        return config_no_memory(error);
    return status;
}

static mortise_status load(struct config *config, const char *where, mortise_error *error)
{
    const char *module_path = secure_getenv("MORTISE_MODULE_PATH");
    mortise_status status =
        where == NULL ? search(config, error) : load_named(config, where, "", error);

    if (status != MORTISE_OK)
        return status;
    config->driver_is_default = config->driver == NULL;
    if (config->driver_is_default &&
        !set_text(&config->driver, core_options[CORE_DRIVER].default_text))
        return config_no_memory(error);
    if (module_path != NULL && module_path[0] != '\0' &&
        !set_text(&config->environment_module_path, module_path))
        return config_no_memory(error);
    return MORTISE_OK;
}

mortise_status config_load(const char *where, struct config **config, mortise_error *error)
{
    struct config *loaded = calloc(1, sizeof(*loaded));
    mortise_status status = loaded == NULL ? config_no_memory(error) : load(loaded, where, error);

    *config = loaded;
    if (status == MORTISE_OK)
        return MORTISE_OK;
    config_free(loaded);
    *config = NULL;
    return status;
}

void config_free(struct config *config)
{
    if (config == NULL)
        return;
    config_free_rows(config);
    url_free(&config->url);
    free(config->source);
    free(config->driver);
    free(config->file_module_path);
    free(config->environment_module_path);
    free(config);
}

/* ---- What a config says ---------------------------------------------------------------------- */

const char *config_source(const struct config *config)
{
    return config->source;
}

const char *config_driver(const struct config *config)
{
    return config->driver;
}

/* Whether a list of sections ("trace, redis:old") has this one; instances: or one of this module. */
static bool has_section(const char *list, const char *name, bool instances)
{
    static const char *const between = ", \t";
    size_t length = strlen(name);

    for (list += strspn(list, between); *list != '\0'; list += strspn(list, between)) {
        size_t size = strcspn(list, between);
        if (size >= length && strncmp(list, name, length) == 0 &&
            (size == length || (instances && list[length] == ':')))
            return true;
        list += size;
    }
    return false;
}

static bool is_observer(const struct config *config, const char *section)
{
    const struct row *row = config_find_row(config, CORE_SECTION, core_options[CORE_OBSERVE].key);
    return row != NULL && has_section(row->text, section, false);
}

mortise_status config_check_driver(const struct config *config, mortise_error *error)
{
    if (!config->driver_is_default)
        return MORTISE_OK;
    for (struct section *at = config->sections; at != NULL; at = at->hh.next)
        if (strcmp(at->name, CORE_SECTION) != 0 && strcmp(at->name, config->driver) != 0 &&
            !is_observer(config, at->name))
            return config_failed(config, at->line, at->name, error,
                                 "no driver is chosen: set \"driver = %.*s\" in [" CORE_SECTION
                                 "], or \"driver = %s\", the default",
                                 SECTION_MAX, at->name, config->driver);
    return MORTISE_OK;
}

mortise_status config_unknown_module(const struct config *config, const char *section,
                                     const char *name, const char *nearest, const char *details,
                                     mortise_error *error)
{
    char hint[QUOTED_SIZE];
    const struct row *row = config->rows;

    section = section == NULL ? CORE_SECTION : section;
    while (row != NULL &&
           (strcmp(row->section->name, section) != 0 || !has_section(row->text, name, true)))
        row = row->hh.next;
    did_you_mean(nearest, hint, sizeof(hint));
    if (row == NULL)
        return config_failed(config, 0, NULL, error, "no module \"%s\"%s: %s", name, hint, details);
    return config_failed(config, row->line, section, error, "%s: no module \"%s\"%s: %s", row->key,
                         name, hint, details);
}

bool config_is_url(const struct config *config)
{
    return config->origin == FROM_URL;
}

const char *config_section_with(const struct config *config, const char *after, const char *key)
{
    const struct section *at =
        after == NULL ? config->sections : config_find_section(config, after)->hh.next;

    while (at != NULL && config_find_row(config, at->name, key) == NULL)
        at = at->hh.next;
    return at == NULL ? NULL : at->name;
}

bool config_has_section(const struct config *config, const char *section)
{
    return config_find_section(config, section) != NULL;
}

/* A user may have written a URL with a password, or a connection string, where a section name belongs, also by a variable: then
 * only its beginning is shown. */
mortise_status config_no_section(const struct config *config, const char *section,
                                 mortise_error *error)
{
    int shown = (int)strcspn(section, ":/?@=");

    if (strpbrk(section, "/?@=") == NULL)
        return config_failed(config, 0, NULL, error, "there is no section [%s]", section);
    return config_failed(config, 0, NULL, error,
                         "there is no section [%.*s:...]; if that is a URL, give it to "
                         "mortise_open(), or its parts in a section of their own",
                         shown, section);
}

/* R11: users who may write the file decide which code this process runs. */
static mortise_status check_owner(const struct config *config, mortise_error *error)
{
    if (config->file_owner != 0 && config->file_owner != geteuid())
        return config_failed(config, 0, CORE_SECTION, error,
                             "module_path is refused: the file belongs to user %u; it must belong "
                             "to root or to the running user (chown)",
                             (unsigned)config->file_owner);
    if ((config->file_mode & (S_IWGRP | S_IWOTH)) != 0)
        return config_failed(
            config, 0, CORE_SECTION, error,
            "module_path is refused: users other than its owner can write the file "
            "(chmod go-w)");
    return MORTISE_OK;
}

mortise_status config_module_path(const struct config *config, const char **path,
                                  mortise_error *error)
{
    *path = config->environment_module_path;
    if (*path != NULL || config->file_module_path == NULL)
        return MORTISE_OK;
    mortise_status status = check_owner(config, error);
    if (status == MORTISE_OK)
        *path = config->file_module_path;
    return status;
}

/* The file is a pipe of the caller, as made by the shell's <(…), which is in no folder. (A pipe with a name is in one.) */
static bool is_nowhere(const struct config *config)
{
    static const char *const descriptors[] = {"/dev/fd/", "/dev/stdin", "/proc/self/fd/"};
    bool is_descriptor = false;
    for (size_t i = 0; i < sizeof(descriptors) / sizeof(descriptors[0]); i++)
        is_descriptor |= strncmp(config->source, descriptors[i], strlen(descriptors[i])) == 0;
    return is_descriptor && !S_ISREG(config->file_mode);
}

const char *config_module_path_file(const struct config *config)
{
    bool used = config->environment_module_path == NULL && config->file_module_path != NULL;
    return used && !is_nowhere(config) ? config->source : NULL;
}
