/* tool.h - what the parts of the `mortise` command have in common.
 *
 * The command stands on mortise.h only: it knows no driver and no core header. Each subcommand is a
 * function that gets its own argv (argv[0] is its name) and returns the exit code of the process. */
#ifndef MORTISE_TOOLS_TOOL_H
#define MORTISE_TOOLS_TOOL_H

#include <mortise/mortise.h>

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Exit codes: those of sysexits.h where it has one. */
enum exit_code {
    EXIT_DONE = 0,
    EXIT_NOTHING_DONE = 1,    /* break: the grant that was named is not there any more */
    EXIT_BAD_USAGE = 64,      /* EX_USAGE */
    EXIT_BACKEND_AWAY = 69,   /* EX_UNAVAILABLE */
    EXIT_BROKEN_PROMISE = 70, /* EX_SOFTWARE */
    EXIT_SYSTEM = 71,         /* EX_OSERR */
    EXIT_NOT_HAD = 75,        /* EX_TEMPFAIL: the lock was not had in time */
    EXIT_LOST = 76,           /* EX_PROTOCOL: the lock was lost while the command ran */
    EXIT_BAD_CONFIG = 78,     /* EX_CONFIG */
    EXIT_NOT_EXECUTABLE = 126,
    EXIT_NOT_FOUND = 127,
    EXIT_SIGNAL_BASE = 128
};
/* What a failure of the library means for the caller of the command. */
int exit_code_of(mortise_status status);

/* The subcommands. */
int command_run(int argc, char **argv);
int command_status(int argc, char **argv);
int command_list(int argc, char **argv);
int command_break(int argc, char **argv);
int command_watch(int argc, char **argv);
int command_check(int argc, char **argv);
int command_drivers(int argc, char **argv);
int command_schema(int argc, char **argv);
int command_migrate(int argc, char **argv);
int command_bench(int argc, char **argv);

/* ---- main.c ---- */
/* The config that -C named, or NULL: as mortise_open() takes it. Set by main and by option_common. */
extern const char *config_where;
/* Opens config_where; on failure says why and returns NULL with *code set. */
mortise_client *open_client(int *code);

/* ---- usage.c: options ---- */
/* getopt's values for the long options that every command has; add them to the tables. */
enum common_option { OPTION_HELP = 1000, OPTION_VERSION, OPTION_JSON, OPTION_PRIVATE };
#define COMMON_OPTIONS                                                                             \
    {"config", required_argument, NULL, 'C'}, {"help", no_argument, NULL, OPTION_HELP},            \
    {                                                                                              \
        "version", no_argument, NULL, OPTION_VERSION                                               \
    }
/* Handles an option that is not the command's own: -C, --help, --version, or a wrong one. Returns true
 * if the command must end with *code. `help` is the command's text. */
bool option_common(int option, char **argv, const char *help, int *code);
/* "mortise: …; see `mortise COMMAND --help`" on stderr; returns EXIT_BAD_USAGE. */
int bad_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A whole decimal number; false if there is anything else, or it is out of range. */
bool parse_number(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *number);
/* Says what is wrong with a name (empty, too long) and returns false. */
bool name_is_good(const char *command, const char *name);

/* ---- duration.c ---- */
/* "500ms", "30s", "1.5m", "2h", "1d"; a number alone is seconds. In milliseconds, rounded up; false if
 * it is malformed, negative or more than a hundred years. */
bool parse_duration(const char *text, int64_t *ms);
#define DURATION_SIZE 32
/* "12 s", "1 h 5 min": two units at most, for people. Returns buffer. */
const char *format_duration(int64_t ms, char *buffer);

/* ---- output.c ---- */
/* One line on stderr, "mortise: …". Foreign bytes must have been quoted before. One write(2). */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void say_error(const mortise_error *error);
/* Whether stdout is a terminal, and whether colour is wanted there. */
bool on_terminal(void);
bool with_colour(void);
#define QUOTED_SIZE (4 * MORTISE_OWNER_MAX + 4)
/* Writes text so that it is one printable piece of UTF-8: controls, backslashes and bytes that are not
 * UTF-8 become \t \n \\ \xNN. Returns buffer. */
const char *printable(const char *text, char *buffer, size_t size);
/* The same within double quotes; quotes are escaped. */
const char *quoted(const char *text, char *buffer, size_t size);
/* Columns that a piece of UTF-8 takes on a terminal. */
size_t columns_of(const char *text);
/* Flushes stdout; a failed write (disk full, closed pipe) is said and changes the code. */
int finish_output(int code);
/* Length of the UTF-8 sequence at text (1 to 4), 0 if it is none (overlong, surrogate, cut off). */
size_t utf8_length(const char *text);
/* The code point of a sequence if it reorders or breaks the line in which it is shown (marks, overrides and isolates
 * of direction, separators of lines and paragraphs), else 0: a name could hide behind it. */
uint32_t reordering_point(const char *text, size_t length);

/* ---- table.c ---- */
/* Rows of cells, printed aligned on a terminal, with tabs and no head line otherwise. */
struct table {
    const char *const *heads;
    size_t columns;
    char **cells; /* row after row, each allocated */
    size_t rows, capacity;
};
void table_begin(struct table *table, const char *const *heads, size_t columns);
/* Adds a row of `columns` texts, copied. */
void table_row(struct table *table, const char *const *texts);
/* Appends lines to `out`: aligned and cut to `width` columns (0: not cut). */
void table_write(const struct table *table, FILE *out, size_t width, bool colour);
void table_write_plain(const struct table *table, FILE *out);
void table_print(const struct table *table);
void table_end(struct table *table);

/* ---- json.c ---- */
/* A member of an object, `"key":value`, with the comma before it unless it is the first. */
struct json {
    FILE *out;
    bool follows; /* something stands before in this object or array */
};
void json_open(struct json *json, char bracket);  /* '{' or '[' as a value */
void json_close(struct json *json, char bracket); /* '}' or ']' */
void json_key(struct json *json, const char *key);
void json_text(struct json *json, const char *key, const char *text);
void json_int(struct json *json, const char *key, int64_t number);
void json_uint(struct json *json, const char *key, uint64_t number);
void json_bool(struct json *json, const char *key, bool value);
void json_null(struct json *json, const char *key);

/* ---- holders.c ---- */
/* What is shown of a lock: by status, list and watch. */
void holders_begin(struct table *table);
void holders_row(struct table *table, const mortise_info *info);
void holders_json(struct json *json, const mortise_info *info);

/* ---- nearest.c ---- */
const char *nearest(const char *word, const char *const *candidates, size_t count);

/* ---- memory ---- */
/* Never NULL: a command that has no memory left says so and ends. */
void *must_have(void *memory);

#endif
