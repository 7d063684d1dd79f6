/* config.h - where a client's configuration comes from, and what it says.
 *
 * Reads an INI file (inih), a URL or the defaults into rows of (section, key, text, place), and turns
 * the rows of one section into typed values by a schema. Knows no backend and opens no module: the
 * schema is handed in. Used while a client is opened; a config is read-only after config_load. */
#ifndef MORTISE_CORE_CONFIG_H
#define MORTISE_CORE_CONFIG_H

#include <mortise/driver.h>

struct config;

/* where: as mortise_open(). Does the default search for NULL. Errors: MORTISE_CONFIG, its message
 * "mortise.conf:7: …" with the path as given, or NOMEM. */
mortise_status config_load(const char *where, struct config **config, mortise_error *error);
void config_free(struct config *config);

/* A path, "sqlite:/path" (a URL less its user, password and secret query keys), or "built-in defaults". */
const char *config_source(const struct config *config);
/* Once the values of all sections were asked for. Writes how another process of this user names the same config: an absolute
 * path, a URL, or "" (the defaults). False: it has secrets that only this process was given, or config_has_pipe(), or the file is
 * gone, or it does not fit. */
bool config_for_others(const struct config *config, char *text, size_t size);
/* It, or a secret that it names (KEY_file), came out of a pipe, which is read once. A later reader would wait in it, or take
 * what is meant for another. */
bool config_has_pipe(const struct config *config);
/* A number that differs if another process reads something else under that name. */
uint64_t config_print(const struct config *config);
/* The section of the driver at the top of the stack, before any schema is known: the [mortise] key
 * `driver`, or the URL's scheme, or MORTISE_DEFAULT_DRIVER. Owned by the config. */
const char *config_driver(const struct config *config);
/* Without a `driver` the default one is taken; but a file that speaks of another backend and forgot to
 * choose it would silently lock on this host alone: CONFIG. Sections of observers are no backends. */
mortise_status config_check_driver(const struct config *config, mortise_error *error);
/* The module path that the file may set (R11): checks that root or the running user owns the file and
 * that nobody else may write it (likewise $MORTISE_MODULE_PATH in a program that is not set-uid, which
 * goes before it). Sets *path (owned by the config) to NULL where neither is given. */
mortise_status config_module_path(const struct config *config, const char **path,
                                  mortise_error *error);
/* The file that this path is from, as it was given; who can put another file in its place is for the caller to check. NULL:
 * it is from no file. */
const char *config_module_path_file(const struct config *config);
/* CONFIG: there is no such module; names file, line and key where `section` (NULL: the core's own) asks for it. nearest
 * (or NULL) was perhaps meant; details end the message. */
mortise_status config_unknown_module(const struct config *config, const char *section,
                                     const char *name, const char *nearest, const char *details,
                                     mortise_error *error);
/* Whether a file has it, be it empty. A URL and the built-in defaults have no sections. */
bool config_has_section(const struct config *config, const char *section);
/* The next section that has this key, in the order of the file, after that one; NULL: the first, and none. */
const char *config_section_with(const struct config *config, const char *after, const char *key);
/* CONFIG: there is no section of that name, which may be a URL with a password. */
mortise_status config_no_section(const struct config *config, const char *section,
                                 mortise_error *error);
/* Whether the config is a URL: its parts are then the values of the section config_driver() names. */
bool config_is_url(const struct config *config);

/* The values of `section` by a schema, one per row, defaults filled in; free with
 * config_values_free. Unknown key (nearest one named), bad value, a key given twice, both KEY and
 * KEY_file, a missing required key, an unset ${NAME}: MORTISE_CONFIG naming file, line, section, key
 * and what was expected. For a URL, the rows with URL flags take their parts of it, and query keys
 * that stand in the schema theirs; after the core's own section and the driver's have been asked for,
 * config_check_url() tells of query keys that nobody knew. */
mortise_status config_values(struct config *config, const char *section,
                             const mortise_option *schema, size_t count, mortise_value **values,
                             mortise_error *error);
void config_values_free(mortise_value *values, size_t count);
mortise_status config_check_url(const struct config *config, mortise_error *error);
/* A module did not open because of its section, and *error says why: puts "source:line: [section] " before that. The line
 * is the one of the key that the message begins with, if it begins with one. */
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
