/* config_values.c - what was given for one section, as typed values by a schema.
 *
 * In a value of a file (and in a default) ${NAME} is replaced by an environment variable, which must be set,
 * and $$ by a dollar; any other '$' stays. In a URL nothing is replaced. A secret KEY can also be
 * given as KEY_file, an absolute path: the value is the first line of that file, which must not be writable
 * for everybody. No message has the value of a secret. If a value came from the environment, a message shows
 * the ${NAME}. (The name of a module or a section is shown as it was looked for; see config_no_section().)
 *
 * The rows of a file are read here, the parts of a URL in config_url.c. Knows no module: the caller passes
 * the schemas. */
#include "config/config_internal.h"

#include "base/status.h"
#include "config/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_SUFFIX "_file"
void text_wipe(const char *text)
{
    char *owned = (char *)(uintptr_t)text;

    if (owned != NULL)
        explicit_bzero(owned, strlen(owned));
    free(owned);
}

/* ---- ${NAME} --------------------------------------------------------------------------------- */

static bool name_sound(const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        char c = name[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!letter && (i == 0 || c < '0' || c > '9'))
            return false;
    }
    return length > 0;
}

/* The variable at "${NAME}…", whose length with the braces is *length. */
static const char *variable(const char *at, size_t *length, char *reason, size_t size)
{
    size_t name_length = strcspn(at + 2, "}");
    char name[128];

    *length = name_length + 3;
    if (at[2 + name_length] == '\0' || !name_sound(at + 2, name_length) ||
        name_length >= sizeof(name)) {
        snprintf(reason, size, "'${' must be followed by a variable's name and '}'");
        return NULL;
    }
    memcpy(name, at + 2, name_length);
    name[name_length] = '\0';
    const char *text = secure_getenv(name);
    if (text == NULL)
        snprintf(reason, size, "${%s} is not set in the environment", name);
    return text;
}

/* False with the reason. */
static bool expand_to(FILE *out, const char *text, char *reason, size_t size)
{
    while (*text != '\0') {
        size_t plain = strcspn(text, "$");
        fprintf(out, "%.*s", (int)plain, text);
        text += plain;
        if (*text == '\0')
            break;
        size_t length = text[1] == '$' ? 2 : 1;
        const char *put = "$";
        if (text[1] == '{')
            put = variable(text, &length, reason, size);
        if (put == NULL)
            return false;
        fprintf(out, "%s", put);
        text += length;
    }
    return true;
}

char *config_expand(const char *text, char *reason, size_t size)
{
    char *expanded = NULL;
    size_t expanded_size = 0;
    FILE *out = open_memstream(&expanded, &expanded_size);

    reason[0] = '\0';
    if (out == NULL)
        return NULL;
    bool good = expand_to(out, text, reason, size) && ferror(out) == 0;
    if (fclose(out) == 0 && good)
        return expanded;
    free(expanded);
    return NULL;
}

/* ---- KEY_file -------------------------------------------------------------------------------- */

/* Returns the first line of a file for a secret. NULL: `reason` says why (empty: out of memory). *piped is set if the
 * file is a pipe. */
static char *read_secret(const char *path, bool *piped, char *reason, size_t size)
{
    struct file file;
    bool missing;
    char *text = NULL;

    reason[0] = '\0';
    if (path[0] != '/') {
        snprintf(reason, size, "must be an absolute path");
        return NULL;
    }
    if (!file_read(path, &file, reason, size, &missing))
        return NULL;
    *piped |= S_ISFIFO(file.mode);
    size_t length = strcspn(file.text, "\r\n");
    /* its owner decides who may read it: orchestrators mount secrets that all users of a container can read */
    if (S_ISREG(file.mode) && (file.mode & S_IWOTH) != 0)
        snprintf(reason, size, "can be written by every user: chmod o-w");
    else if (length == 0)
        snprintf(reason, size, "has an empty first line");
    else if (length == strlen(file.text) && length != file.size)
        snprintf(reason, size, "has a NUL byte in its first line");
    else
        text = strndup(file.text, length);
    file_free(&file);
    return text;
}

/* ---- One value ------------------------------------------------------------------------------- */

/* The row for a key, or `count`. */
size_t config_find_option(const mortise_option *schema, size_t count, const char *key, bool *file)
{
    size_t length = strlen(key), suffix = strlen(FILE_SUFFIX);

    *file = false;
    for (size_t i = 0; i < count; i++)
        if (strcmp(schema[i].key, key) == 0)
            return i;
    if (length <= suffix || strcmp(key + length - suffix, FILE_SUFFIX) != 0)
        return count;
    *file = true;
    for (size_t i = 0; i < count; i++)
        if ((schema[i].flags & MORTISE_OPTION_SECRET) != 0 &&
            strlen(schema[i].key) == length - suffix &&
            memcmp(schema[i].key, key, length - suffix) == 0)
            return i;
    return count;
}

/* Returns given->text with the file read or the variables replaced, for text_wipe(); NULL: *status says why. */
static char *resolve(const struct filling *f, const struct given *given, mortise_status *status)
{
    char reason[REASON_SIZE], quoted[QUOTED_SIZE];
    char *text =
        given->expand ? config_expand(given->text, reason, sizeof(reason)) : strdup(given->text);

    if (text == NULL && given->expand && reason[0] != '\0')
        *status = value_failed(f, given, "%s: %s", given->key, reason);
    else if (text == NULL)
        *status = config_no_memory(f->error);
    if (text == NULL || !given->file)
        return text;
    char *secret = read_secret(text, &f->config->secret_was_piped, reason, sizeof(reason));
    if (secret == NULL && reason[0] == '\0')
        *status = config_no_memory(f->error);
    else if (secret == NULL)
        *status = value_failed(f, given, "%s: %s %s", given->key,
                               quote_name(text, strlen(text), quoted, sizeof(quoted)), reason);
    free(text);
    return secret;
}

/* Reports a bad value, and says what was expected. */
static mortise_status value_refused(const struct filling *f, const mortise_option *option,
                                    const struct given *given, const char *expected)
{
    char quoted[QUOTED_SIZE];

    if ((option->flags & MORTISE_OPTION_SECRET) != 0)
        return value_failed(f, given, "%s: expected %s", given->key, expected);
    return value_failed(f, given, "%s = %s: expected %s", given->key,
                        quote_name(given->text, strlen(given->text), quoted, sizeof(quoted)),
                        expected);
}

static mortise_status set_value(struct filling *f, size_t index, const struct given *given)
{
    char expected[RANGE_SIZE + 64];
    mortise_status status = MORTISE_OK;
    char *text = resolve(f, given, &status);

    if (text == NULL)
        return status;
    if (parse_value(&f->schema[index], text, &f->values[index], expected, sizeof(expected)))
        return MORTISE_OK;
    text_wipe(text);
    return value_refused(f, &f->schema[index], given, expected);
}

mortise_status config_give(struct filling *f, size_t index, const struct given *given)
{
    const char *key = f->schema[index].key;

    if (f->values[index].given && f->lines[index] > 0)
        return value_failed(f, given, "%s: %s is given already, in line %zu", given->key, key,
                            f->lines[index]);
    if (f->values[index].given)
        return value_failed(f, given, "%s is given twice", key);
    mortise_status status = set_value(f, index, given);
    if (status == MORTISE_OK) {
        f->values[index].given = true;
        f->lines[index] = given->line;
    }
    return status;
}

/* ---- From a file ----------------------------------------------------------------------------- */

/* Returns the key of the schema that may have been meant, or NULL. */
const char *config_nearest_key(const mortise_option *schema, size_t count, const char *key)
{
    const char *nearest = NULL;
    const char **keys = calloc(count + 1, sizeof(*keys)); /* without memory, no hint */

    if (keys == NULL)
        return NULL;
    for (size_t i = 0; i < count; i++)
        keys[i] = schema[i].key;
    nearest = nearest_word(key, keys, count);
    free(keys);
    return nearest;
}

static mortise_status unknown_key(const struct filling *f, const struct row *row)
{
    const struct given given = {.line = row->line};
    const char *nearest = config_nearest_key(f->schema, f->count, row->key);
    char quoted[QUOTED_SIZE], hint[QUOTED_SIZE];
    bool file;

    did_you_mean(nearest, hint, sizeof(hint));
    if (f->schema != core_options &&
        config_find_option(core_options, CORE_OPTION_COUNT, row->key, &file) < CORE_OPTION_COUNT)
        snprintf(hint, sizeof(hint), " (it belongs in [%s])", CORE_SECTION);
    return value_failed(f, &given, "unknown key %s%s",
                        quote_name(row->key, strlen(row->key), quoted, sizeof(quoted)), hint);
}

static mortise_status fill_from_file(struct filling *f)
{
    const struct section *section = config_find_section(f->config, f->section);
    mortise_status status = MORTISE_OK;

    if (section == NULL)
        return config_check_section(f->config, f->section, f->error);
    for (struct row *row = f->config->rows; row != NULL && status == MORTISE_OK;
         row = row->hh.next) {
        if (row->section != section)
            continue;
        struct given given = {
            .key = row->key, .text = row->text, .line = row->line, .expand = true};
        size_t index = config_find_option(f->schema, f->count, row->key, &given.file);
        status = index < f->count ? config_give(f, index, &given) : unknown_key(f, row);
    }
    return status;
}

mortise_status config_check_section(const struct config *config, const char *section,
                                    mortise_error *error)
{
    char hint[QUOTED_SIZE];

    if (config_find_section(config, section) != NULL)
        return MORTISE_OK;
    for (struct section *s = config->sections; s != NULL; s = s->hh.next) {
        const char *name = s->name;
        if (nearest_word(section, &name, 1) != NULL)
            return config_failed(config, s->line, NULL, error, "unknown section [%s]%s", s->name,
                                 did_you_mean(section, hint, sizeof(hint)));
    }
    return MORTISE_OK;
}

/* ---- All of a section ------------------------------------------------------------------------ */

static mortise_status fill_default(struct filling *f, size_t index)
{
    const mortise_option *option = &f->schema[index];
    const struct given given = {.key = option->key, .text = option->default_text, .expand = true};

    if (f->values[index].given)
        return MORTISE_OK;
    if ((option->flags & MORTISE_OPTION_REQUIRED) != 0)
        return value_failed(f, &given, "%s is missing (%s)", option->key,
                            option->help == NULL ? "required" : option->help);
    if (option->default_text == NULL)
        return MORTISE_OK;
    return set_value(f, index, &given);
}

/* A name that says nothing of this module's settings is none of a URL either. */
static mortise_status give_alias(struct filling *f)
{
    char expected[RANGE_SIZE + 64], *name = strndup(f->alias, strcspn(f->alias, ":"));
    const struct given given = {.key = core_options[CORE_DRIVER].key, .text = name};
    mortise_status status = name == NULL ? config_no_memory(f->error) : MORTISE_OK;
    mortise_value value;

    for (size_t i = 0; i < f->count && status == MORTISE_OK; i++)
        if ((f->schema[i].flags & MORTISE_OPTION_URL_SCHEME) != 0 &&
            parse_value(&f->schema[i], name, &value, expected, sizeof(expected)))
            status = config_give(f, i, &given);
    free(name);
    return status;
}

static mortise_status fill(struct filling *f)
{
    bool is_url = f->config->origin == FROM_URL;
    mortise_status status = f->config->origin == FROM_FILE ? fill_from_file(f)
                            : is_url                       ? config_fill_from_url(f)
                                                           : MORTISE_OK;

    if (status == MORTISE_OK && f->alias != NULL &&
        !(is_url && strcmp(f->section, f->config->driver) == 0))
        status = give_alias(f);
    for (size_t i = 0; i < f->count && status == MORTISE_OK; i++)
        status = fill_default(f, i);
    return status;
}

mortise_status config_values(struct config *config, const char *section,
                             const mortise_option *schema, size_t count, mortise_value **values,
                             mortise_error *error)
{
    return config_values_as(config, section, NULL, schema, count, values, error);
}

mortise_status config_values_as(struct config *config, const char *section, const char *alias,
                                const mortise_option *schema, size_t count, mortise_value **values,
                                mortise_error *error)
{
    struct filling f = {.config = config,
                        .section = section,
                        .alias = alias,
                        .schema = schema,
                        .count = count,
                        .values = calloc(count + 1, sizeof(mortise_value)),
                        .lines = calloc(count + 1, sizeof(size_t)),
                        .error = error};
    bool memory = f.values != NULL && f.lines != NULL;
    mortise_status status = memory ? fill(&f) : config_no_memory(error);

    free(f.lines);
    *values = f.values;
    if (status == MORTISE_OK)
        return MORTISE_OK;
    config_values_free(f.values, count);
    *values = NULL;
    return status;
}

void config_values_free(mortise_value *values, size_t count)
{
    for (size_t i = 0; values != NULL && i < count; i++)
        text_wipe(values[i].text);
    free(values);
}
