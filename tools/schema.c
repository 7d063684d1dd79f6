/* schema.c - `mortise schema`, and the commands that are programs of their own.
 *
 * schema prints the statements that a driver needs in its database. bench and serve execute mortise-bench and
 * mortise-serve. */
#include "commands.h"
#include "connect.h"
#include "exit_code.h"
#include "options.h"
#include "output.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char schema_help[] =
    "Usage: mortise schema NAME\n"
    "Prints the statements that create what the driver NAME needs in its database (postgres,\n"
    "mysql, sqlite: the tables). Use them if the driver's role may not create these:\n"
    "mortise schema postgres | psql …\n"
    "\n"
    "  -C, --config FILE|URL     config file or URL (its module_path is searched)\n"
    "\n"
    "Exit code: 0, 64 usage, 69 the driver has none, 78 config or no such driver.\n";

static const struct option options[] = {COMMON_OPTIONS, {0}};

static void write_text(const char *text, size_t length, void *user_data)
{
    (void)user_data;
    fwrite(text, 1, length, stdout);
}

int command_schema(int argc, char **argv)
{
    int option, code = EXIT_DONE;
    mortise_error error;

    while ((option = getopt_long(argc, argv, ":C:", options, NULL)) != -1) {
        if (option_common(option, argv, schema_help, &code))
            return code;
    }
    if (argc - optind != 1)
        return bad_usage(argv[0],
                         argc > optind ? "only one driver can be named" : "no driver named");
    mortise_status status = mortise_schema(config_where, argv[optind], write_text, NULL, &error);
    if (status != MORTISE_OK)
        say_error(&error);
    return finish_output(exit_code_of(status));
}

/* Looks in the folder of this program first (a build folder, another prefix). */
static void exec_beside(const char *program, char **argv)
{
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 64);

    if (length > 0) {
        path[length] = '\0';
        char *slash = strrchr(path, '/');
        snprintf(slash + 1, 64, "%s", program);
        execv(path, argv);
    }
}

static int exec_failed(const char *command, const char *program)
{
    const int error = errno;

    if (error == ENOENT)
        say("%s needs the program %s, which is not installed", command, program);
    else
        say("cannot run %s: %s", program, strerror(error));
    return error == ENOENT ? EXIT_BACKEND_AWAY : EXIT_SYSTEM;
}

/* Passes -C on: without it the program would use another configuration. */
static bool pass_config(const char *variable)
{
    if (config_where == NULL || setenv(variable, config_where, 1) == 0)
        return true;
    say("cannot set %s: %s", variable, strerror(errno));
    return false;
}

int command_bench(int argc, char **argv)
{
    static char name[] = "mortise-bench";

    (void)argc;
    /* mortise-bench does not read MORTISE_CONFIG, because the user must name what it measures. Not passed as its -C, because
     * every user of the host can read the arguments of a process, and a URL may contain a password. */
    if (!pass_config("MORTISE_BENCH_CONFIG"))
        return EXIT_SYSTEM;
    argv[0] = name;
    exec_beside(name, argv);
    execvp(name, argv);
    return exec_failed("bench", name);
}

/* The program belongs to this one, so it is not looked for in the PATH. */
int command_serve(int argc, char **argv)
{
    static char name[] = "mortise-serve";

    (void)argc;
    if (!pass_config("MORTISE_CONFIG"))
        return EXIT_SYSTEM;
    argv[0] = name;
    exec_beside(name, argv);
    return exec_failed("serve", name);
}
