/* schema.h - a schema row in words, and whether a schema is valid.
 *
 * For messages, for mortise_modules() and for the loader's check of a module's rows. (config.h declares
 * the parsing of single values.) Knows no file and no module. */
#ifndef MORTISE_CORE_SCHEMA_H
#define MORTISE_CORE_SCHEMA_H

#include "config/config.h"

/* Room for a duration in words, and for the range of a row. */
#define DURATION_SIZE 32
#define RANGE_SIZE 160

/* Writes a duration in the longest unit that is exact: "1500ms", "90s", "24h", "2d"; returns buffer. */
const char *duration_text(int64_t ms, char *buffer, size_t size);
/* "text", "int", "bool", "duration", "choice"; NULL for an unknown type. */
const char *option_type_word(mortise_option_type type);
/* "50ms to 24h", "0 to 1000000", "stderr|none", "yes|no"; empty: no limits; returns buffer. */
const char *option_range(const mortise_option *option, char *buffer, size_t size);
/* The rows for mortise_modules(), in one block for free(). Texts of the schema are borrowed. NULL: out of
 * memory. */
mortise_option_info *option_infos(const mortise_option *options, size_t count);
/* Whether each row has a key of its own, a known type, choices where it needs them and a default that
 * parses. If not, *problem says which row is wrong. */
bool schema_sound(const mortise_option *schema, size_t count, char *problem, size_t size);
#endif
