/* options.c - options that all commands share, and messages about wrong usage.
 *
 * Knows no command: each command passes the text of its help. */
#include "options.h"

#include "connect.h"
#include "exit_code.h"
#include "output.h"
#include "text.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int bad_usage(const char *command, const char *format, ...)
{
    char text[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (command == NULL)
        say("%s; see `mortise --help`", text);
    else
        say("%s: %s; see `mortise %s --help`", command, text, command);
    return EXIT_BAD_USAGE;
}

/* The option that getopt_long has just read, as the user wrote it. */
static const char *written_option(char **argv, char *buffer)
{
    const char *word = argv[optind - 1];

    if (optopt > 0 && optopt < 256 && (word[0] != '-' || word[1] != '-'))
        snprintf(buffer, QUOTED_SIZE, "-%c", optopt);
    else
        snprintf(buffer, QUOTED_SIZE, "%.*s", (int)strcspn(word, "="), word);
    return buffer;
}

static int wrong_option(int option, char **argv, const char *command)
{
    char written[QUOTED_SIZE], shown[QUOTED_SIZE];

    printable(written_option(argv, written), shown, sizeof shown);
    if (option == ':')
        return bad_usage(command, "option %.100s needs a value", shown);
    if (optopt >= OPTION_HELP || (optopt != 0 && strncmp(written, "--", 2) == 0))
        return bad_usage(command, "option %.100s takes no value", shown);
    return bad_usage(command, "unknown option %.100s", shown);
}

/* Every user of the host can read the arguments of a process (ps, /proc/PID/cmdline), and a URL may contain a
 * password: keep only its scheme there. A connection string of libpq, which was given by mistake, ends after its first key. */
static void blank_secrets(char *where)
{
    char *colon = strchr(where, ':'), *equals = where + strcspn(where, "/=");
    bool is_url = colon != NULL && colon != where && strcspn(where, "/") > (size_t)(colon - where);

    if (is_url && strpbrk(colon, "@?") != NULL)
        memset(colon + 1, '*', strlen(colon + 1));
    if (*equals == '=')
        memset(equals + 1, '*', strlen(equals + 1));
}

bool option_common(int option, char **argv, const char *help, int *code)
{
    /* getopt_long leaves the command's name in argv[0]; main's own is the path of the program. */
    const char *command = strncmp(help, "Usage: mortise [", 16) == 0 ? NULL : argv[0];

    switch (option) {
    case 'C':
        if (optarg[0] == '\0') {
            *code = bad_usage(command, "option -C needs a file or a URL, not an empty text");
            return true;
        }
        config_where = must_have(strdup(optarg));
        blank_secrets(optarg);
        return false;
    case OPTION_HELP:
        fputs(help, stdout);
        break;
    case OPTION_VERSION:
        printf("mortise %d.%d.%d (library %s)\n", MORTISE_VERSION_MAJOR, MORTISE_VERSION_MINOR,
               MORTISE_VERSION_PATCH, mortise_version());
        break;
    default:
        *code = wrong_option(option, argv, command);
        return true;
    }
    *code = finish_output(EXIT_DONE);
    return true;
}

bool parse_number(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *number)
{
    char *end;

    if (text[0] < '0' || text[0] > '9')
        return false; /* strtoull takes blanks and signs */
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || value < minimum || value > maximum)
        return false;
    *number = value;
    return true;
}

bool name_is_good(const char *command, const char *name)
{
    if (name[0] == '\0') {
        bad_usage(command, "the name of the lock is empty");
        return false;
    }
    if (strlen(name) > MORTISE_NAME_MAX) {
        bad_usage(command, "the name of the lock is longer than %d bytes", MORTISE_NAME_MAX);
        return false;
    }
    return true;
}
