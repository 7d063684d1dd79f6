/* main.c - the `mortise` command: the table of commands.
 *
 * Reads the options before the name of a command and calls the command. main.c knows all commands, and no command
 * knows main.c; what commands share is in files of its own (options, output, connect, exit_code …). */
#include "commands.h"
#include "exit_code.h"
#include "nearest.h"
#include "options.h"
#include "output.h"
#include "text.h"

#include <getopt.h>
#include <locale.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct command {
    const char *name;
    int (*function)(int argc, char **argv);
};

static const struct command commands[] = {
    {"run", command_run},         {"status", command_status},   {"list", command_list},
    {"break", command_break},     {"watch", command_watch},     {"check", command_check},
    {"drivers", command_drivers}, {"schema", command_schema},   {"migrate", command_migrate},
    {"bench", command_bench},     {"witness", command_witness}, {"serve", command_serve},
    {"doctor", command_doctor},
};
enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

static const char help[] =
    "Usage: mortise [-C FILE|URL] COMMAND …\n"
    "Distributed locks from the shell: like flock(1), but across hosts.\n"
    "\n"
    "  mortise run [-n] [-w TIME] NAME -- COMMAND [ARGUMENT…]\n"
    "                            run COMMAND while holding the lock NAME\n"
    "  mortise status NAME…      show who holds these locks\n"
    "  mortise list [PREFIX]     list the held locks\n"
    "  mortise watch [PREFIX]    list the held locks, live\n"
    "  mortise break NAME --token T\n"
    "                            take the lock from its holder, if the token is still T\n"
    "  mortise check             check the configuration and the connection to the server\n"
    "  mortise doctor            the same, and what the settings mean for the promises\n"
    "  mortise drivers [NAME --options]\n"
    "                            show the installed modules and their config keys\n"
    "  mortise schema NAME       print the SQL that creates a driver's table\n"
    "  mortise witness           release the locks of processes that crash, at once\n"
    "  mortise serve             show the held locks on a web page, with metrics\n"
    "  mortise migrate …         move a fleet from one backend to another\n"
    "  mortise bench …           compare the drivers (needs mortise-bench)\n"
    "\n"
    "  -C, --config FILE|URL     config file or URL (sqlite:/path, redis://host …);\n"
    "                            default: $MORTISE_CONFIG, the user's mortise/mortise.conf,\n"
    "                            the system's, a SQLite file\n"
    "      --help                show this text, or the help of COMMAND\n"
    "      --version             show the version\n"
    "\n"
    "Example: mortise run -w 10s nightly -- ./nightly.sh\n"
    "See `man mortise` for details.\n";

static const struct option options[] = {COMMON_OPTIONS, {0}};

static int unknown_command(const char *word)
{
    const char *names[COMMAND_COUNT];
    char shown[QUOTED_SIZE];

    for (size_t i = 0; i < COMMAND_COUNT; i++)
        names[i] = commands[i].name;
    quoted(word, shown, sizeof shown);
    const char *near = nearest(word, names, COMMAND_COUNT);
    if (near != NULL)
        return bad_usage(NULL, "unknown command %.200s (did you mean \"%s\"?)", shown, near);
    return bad_usage(NULL, "unknown command %.200s", shown);
}

int main(int argc, char **argv)
{
    int option, code;

    keep_streams();
    setlocale(LC_CTYPE, "");
    while ((option = getopt_long(argc, argv, "+:C:h", options, NULL)) != -1) {
        if (option_common(option == 'h' ? OPTION_HELP : option, argv, help, &code))
            return code;
    }
    if (optind >= argc)
        return bad_usage(NULL, "no command given");
    const char *word = argv[optind];
    if (strcmp(word, "help") == 0) {
        fputs(help, stdout);
        return finish_output(EXIT_DONE);
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(word, commands[i].name) == 0) {
            argc -= optind;
            argv += optind;
            optind = 0; /* GNU: start anew with another argv */
            return commands[i].function(argc, argv);
        }
    }
    return unknown_command(word);
}
