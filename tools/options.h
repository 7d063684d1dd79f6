/* options.h - options that all commands share, and checks of what a user wrote. */
#ifndef MORTISE_TOOLS_OPTIONS_H
#define MORTISE_TOOLS_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/* getopt's values for the long options that every command has. Each command adds them to its table. */
enum common_option { OPTION_HELP = 1000, OPTION_VERSION, OPTION_JSON, OPTION_PRIVATE };
#define COMMON_OPTIONS                                                                             \
    {"config", required_argument, NULL, 'C'}, {"help", no_argument, NULL, OPTION_HELP},            \
    {                                                                                              \
        "version", no_argument, NULL, OPTION_VERSION                                               \
    }
/* Handles an option that is not the command's own: -C, --help, --version, or a wrong one. Returns true
 * if the command must end with *code. `help` is the command's text. */
bool option_common(int option, char **argv, const char *help, int *code);
/* Prints "mortise: …; see `mortise COMMAND --help`" to stderr; returns EXIT_BAD_USAGE. */
int bad_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Reads a decimal number. False if the text holds anything else, or the number is out of range. */
bool parse_number(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *number);
/* Checks the name of a lock. If it is empty or too long, prints that and returns false. */
bool name_is_good(const char *command, const char *name);

#endif
