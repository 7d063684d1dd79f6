/* config.h - where a client's configuration comes from, and what it says.
 *
 * Reads an INI file (inih), a URL or the defaults into rows of (section, key, text, place), and turns
 * the rows of one section into typed values by a schema. Knows no backend and opens no module: the
 * schema is handed in. Used while a client is opened; a config is read-only after config_load. */
#ifndef MORTISE_CORE_CONFIG_H
#define MORTISE_CORE_CONFIG_H

#include <mortise/driver.h>

struct config;

/* where: as in mortise_open(). Does the default search for NULL. Errors: MORTISE_CONFIG, with the message
 * "mortise.conf:7: …" and the path as given, or NOMEM. */
mortise_status config_load(const char *where, struct config **config, mortise_error *error);
void config_free(struct config *config);

/* A path, "sqlite:/path" (a URL less its user, password and secret query keys), or "built-in defaults". */
const char *config_source(const struct config *config);
/* Call it after config_values() of all sections. Writes the name by which another process of this user opens the same config: an
 * absolute path, a URL, or "" (the defaults). False: the config has secrets that only this process was given, or
 * config_has_pipe() is true, or the file is gone, or the name does not fit. */
bool config_for_others(const struct config *config, char *text, size_t size);
/* The config, or a secret that it names (KEY_file), came out of a pipe, which can be read only once. A later reader would wait
 * for data, or take those that are meant for another reader. */
bool config_has_pipe(const struct config *config);
/* Returns a number that differs if another process reads something else under the name of config_for_others(). */
uint64_t config_print(const struct config *config);
/* The section of the driver at the top of the stack, before any schema is known: the [mortise] key
 * `driver`, or the URL's scheme, or MORTISE_DEFAULT_DRIVER. Owned by the config. */
const char *config_driver(const struct config *config);
/* Without `driver`, the default driver is used. But if the file has a section of another backend, the user may have forgotten
 * `driver`, and the locks would silently hold on this host only: CONFIG. Sections of observers are no backends. */
mortise_status config_check_driver(const struct config *config, mortise_error *error);
/* The module path that the file sets (R11): checks that root or the running user owns the file and that nobody else
 * may write it. In a program that is not set-uid, $MORTISE_MODULE_PATH takes precedence. Sets *path (owned by the
 * config) to NULL if neither is given. */
mortise_status config_module_path(const struct config *config, const char **path,
                                  mortise_error *error);
/* Returns the file that sets the module path, as it was given. The caller checks which users can replace the file. NULL: no file
 * sets it. */
const char *config_module_path_file(const struct config *config);
/* Returns CONFIG: there is no such module. The message names the file, line and key at which `section` (NULL: the core's own)
 * asks for it, and ends with the details. nearest: a name that may have been meant, or NULL. */
mortise_status config_unknown_module(const struct config *config, const char *section,
                                     const char *name, const char *nearest, const char *details,
                                     mortise_error *error);
/* Whether the file has the section, even an empty one. A URL and the built-in defaults have no sections. */
bool config_has_section(const struct config *config, const char *section);
/* Returns the next section after `after` that has this key, in the order of the file; NULL: there is none. after NULL: begins
 * with the first. */
const char *config_section_with(const struct config *config, const char *after, const char *key);
/* Returns CONFIG: there is no section of that name. The name may be a URL with a password, which is not shown. */
mortise_status config_no_section(const struct config *config, const char *section,
                                 mortise_error *error);
/* Whether the config is a URL: its parts are then the values of the section config_driver() names. */
bool config_is_url(const struct config *config);

/* The values of `section` by a schema, one per row, defaults filled in; free with
 * config_values_free. Unknown key (nearest one named), bad value, a key given twice, both KEY and
 * KEY_file, a missing required key, an unset ${NAME}: MORTISE_CONFIG naming file, line, section, key
 * and what was expected. In a URL, rows with URL flags take their parts of it, and the other rows take
 * query keys of their names. After the values of the core's own section and of the driver's were read,
 * config_check_url() reports query keys that no schema has. */
mortise_status config_values(struct config *config, const char *section,
                             const mortise_option *schema, size_t count, mortise_value **values,
                             mortise_error *error);
/* Like config_values(), for a module that the configuration calls by another name than its own: `alias`, up to a ':'. NULL: by its
 * own. An option that takes the scheme of a URL gets that name, if the name is one of its values, as if the section gave it. (The
 * driver of a URL gets the scheme of the URL.) */
mortise_status config_values_as(struct config *config, const char *section, const char *alias,
                                const mortise_option *schema, size_t count, mortise_value **values,
                                mortise_error *error);
void config_values_free(mortise_value *values, size_t count);
mortise_status config_check_url(const struct config *config, mortise_error *error);
/* A module did not open because of its section, and *error says why: puts "source:line: [section] " before that message. The
 * line is that of the key with which the message begins, if it begins with a key. */
void config_complete(const struct config *config, const char *section, const mortise_option *schema,
                     size_t count, mortise_error *error);

/* Single values, also used by config_values: the whole text must be consumed. On failure they write
 * what was expected ("a duration such as 500ms, 30s or 2m") to `expected`. */
bool parse_duration_ms(const char *text, int64_t *ms);
bool parse_value(const mortise_option *option, const char *text, mortise_value *value,
                 char *expected, size_t size);
/* The candidate nearest to `word` by edit distance, or NULL if none is near. */
const char *nearest_word(const char *word, const char *const *candidates, size_t count);

/* The core's own section, [mortise]: its rows and their indexes. */
enum core_option {
    CORE_DRIVER,
    CORE_TTL,
    CORE_RENEW_EVERY,
    CORE_WAIT,
    CORE_NAMESPACE,
    CORE_HANDOVER_WINDOW,
    CORE_HANDOVER_MAX,
    CORE_UNREACHABLE_TIMEOUT,
    CORE_CLOSE_TIMEOUT,
    CORE_REQUIRE,
    CORE_OBSERVE,
    CORE_MODULE_PATH,
    CORE_LOG,
    CORE_WITNESS,
    CORE_CRASH_DELAY,
    CORE_OPTION_COUNT
};
extern const mortise_option core_options[CORE_OPTION_COUNT];

#endif
