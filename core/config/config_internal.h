/* config_internal.h - what a config consists of. Only for the files that make it: config.c (where it
 * comes from), config_file.c (the text of a file), config_values.c (values by a schema), and so on. */
#ifndef MORTISE_CORE_CONFIG_INTERNAL_H
#define MORTISE_CORE_CONFIG_INTERNAL_H

#include "config/config.h"
#include "config/url.h"

#include <sys/types.h>

#define HASH_NONFATAL_OOM 1 /* a failed HASH_ADD leaves hh.tbl NULL */
#include <uthash.h>

#define CORE_SECTION "mortise"
#define FILE_SIZE_MAX ((size_t)1024 * 1024)
#define SECTION_MAX 49 /* what libinih can hold */
#define REASON_SIZE 256

struct section {
    UT_hash_handle hh;
    size_t line;
    char name[];
};

struct row {
    UT_hash_handle hh; /* by id */
    const struct section *section;
    char *id;        /* "section\nkey" */
    const char *key; /* in id */
    char *text;      /* as in the file; ${NAME} not yet replaced */
    size_t line;
};

enum config_origin { FROM_DEFAULTS, FROM_FILE, FROM_URL };

struct config {
    enum config_origin origin;
    char *source; /* of config_source() */
    char *driver;
    bool driver_is_default; /* the config names no driver */
    bool section_named;     /* FILE#SECTION: driver is the section */
    char *file_module_path, *environment_module_path;
    uid_t file_owner; /* FROM_FILE */
    mode_t file_mode;
    bool secret_was_piped;    /* a KEY_file that was read is a pipe */
    struct section *sections; /* FROM_FILE: hash tables, in the order of the file */
    struct row *rows;
    struct url url; /* FROM_URL */
};

/* ---- config_errors.c --------------------------------------------------------------------------- */

/* Fills *error with "source:line: [section] …"; line 0 and section NULL are left out. */
mortise_status config_failed(const struct config *config, size_t line, const char *section,
                             mortise_error *error, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
mortise_status config_no_memory(mortise_error *error);
/* " (did you mean "ttl"?)", or nothing if `nearest` is NULL; returns buffer. */
const char *did_you_mean(const char *nearest, char *buffer, size_t size);

/* ---- config_file.c ----------------------------------------------------------------------------- */

struct file {
    char *text; /* NUL-terminated; may contain NULs too */
    size_t size;
    uid_t owner;
    mode_t mode; /* with its type */
};

/* Reads a whole file, up to FILE_SIZE_MAX bytes. False: `reason` says why (empty: out of memory), and
 * *missing is set if there is no such file. */
bool file_read(const char *path, struct file *file, char *reason, size_t size, bool *missing);
void file_free(struct file *file);
/* The text of a file as sections and rows of *config, whose source is set. */
mortise_status config_parse_file(struct config *config, const char *text, size_t size,
                                 mortise_error *error);
void config_free_rows(struct config *config);
struct section *config_find_section(const struct config *config, const char *name);
struct row *config_find_row(const struct config *config, const char *section, const char *key);

/* ---- config_values.c --------------------------------------------------------------------------- */

/* The values of a section while they are being read. */
struct filling {
    struct config *config;
    const char *section;
    const char *alias; /* of config_values_as() */
    const mortise_option *schema;
    size_t count;
    mortise_value *values;
    size_t *lines; /* where each was given */
    mortise_error *error;
};

/* A value as it was given. */
struct given {
    const char *key; /* with "_file", if it was given so */
    const char *text;
    size_t line;
    bool file;   /* text is a path */
    bool expand; /* ${NAME} */
};

#define value_failed(f, given_, ...)                                                               \
    config_failed((f)->config, (given_)->line,                                                     \
                  (f)->config->origin == FROM_URL ? NULL : (f)->section, (f)->error, __VA_ARGS__)

/* Overwrites and frees a text that may be a secret; NULL is allowed. */
void text_wipe(const char *text);
/* The row for a key, or `count`; *file: the key is KEY_file. */
size_t config_find_option(const mortise_option *schema, size_t count, const char *key, bool *file);
/* The key of the schema that was meant, or NULL. */
const char *config_nearest_key(const mortise_option *schema, size_t count, const char *key);
/* Parses and stores the value of a row; a second one for the same row is an error. */
mortise_status config_give(struct filling *filling, size_t index, const struct given *given);
/* config_url.c */
mortise_status config_fill_from_url(struct filling *filling);
/* text with ${NAME} and $$ replaced, for free(); NULL with the reason, empty if out of memory. */
char *config_expand(const char *text, char *reason, size_t size);
/* Returns CONFIG if `section` is not in the file, but a section is that may be a misspelling of it. */
mortise_status config_check_section(const struct config *config, const char *section,
                                    mortise_error *error);

#endif
