/* status.c - `mortise status` and `mortise list`: who holds these locks, and which are held.
 *
 * status asks about names, one by one; list asks the backend for all names that begin with a prefix. */
#include "commands.h"
#include "connect.h"
#include "exit_code.h"
#include "holders.h"
#include "json.h"
#include "options.h"
#include "output.h"
#include "table.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const char status_help[] =
    "Usage: mortise status [--json] NAME…\n"
    "Shows who holds each lock: host, process, since when, until when if it is not renewed, the\n"
    "fencing token (for `mortise break`), and the number of waiters.\n"
    "\n"
    "      --json                print an array of objects; unknown is null, tokens are strings\n"
    "  -C, --config FILE|URL     config file or URL\n"
    "\n"
    "On a terminal it prints a table, elsewhere one line for each lock, with tabs between:\n"
    "name, state, host, pid, program, since, until, token, queue; \"-\" is unknown.\n"
    "Exit code: 0 answered (held or not), 64 usage, 69 backend unreachable, 78 config.\n";

static const char list_help[] =
    "Usage: mortise list [--json] [PREFIX]\n"
    "Lists the held locks whose names begin with PREFIX, in byte order.\n"
    "\n"
    "      --json                print an array of objects, as `mortise status` does\n"
    "  -C, --config FILE|URL     config file or URL\n"
    "\n"
    "Exit code: 0 answered, 64 usage, 69 backend unreachable or cannot list, 78 config.\n";

static const struct option options[] = {
    {"json", no_argument, NULL, OPTION_JSON}, COMMON_OPTIONS, {0}};

/* Where answers go: into a table that is printed at the end, or out as JSON at once. */
struct sink {
    bool as_json;
    struct table table;
    struct json json;
};

static void sink_begin(struct sink *sink, bool as_json)
{
    *sink = (struct sink){.as_json = as_json, .json = {.out = stdout}};
    holders_begin(&sink->table);
    if (as_json)
        json_open(&sink->json, '[');
}

static bool sink_put(const mortise_info *info, void *user_data)
{
    struct sink *sink = user_data;

    if (!sink->as_json) {
        holders_row(&sink->table, info);
        return true;
    }
    json_open(&sink->json, '{');
    holders_json(&sink->json, info);
    json_close(&sink->json, '}');
    return true;
}

static int sink_end(struct sink *sink, int code)
{
    if (sink->as_json) {
        json_close(&sink->json, ']');
        putchar('\n');
    } else if (sink->table.rows > 0) {
        table_print(&sink->table);
    }
    table_end(&sink->table);
    return finish_output(code);
}

static bool read_options(int argc, char **argv, const char *help, bool *as_json, int *code)
{
    int option;

    while ((option = getopt_long(argc, argv, ":C:", options, NULL)) != -1) {
        if (option == OPTION_JSON)
            *as_json = true;
        else if (option_common(option, argv, help, code))
            return false;
    }
    return true;
}

static int show_names(mortise_client *client, char **names, bool as_json)
{
    int code = EXIT_DONE;
    struct sink sink;

    sink_begin(&sink, as_json);
    for (; *names != NULL && code == EXIT_DONE; names++) {
        mortise_info info = {.size = sizeof info};
        mortise_error error;
        mortise_status status = mortise_inspect(client, *names, &info, &error);
        if (status == MORTISE_OK)
            sink_put(&info, &sink);
        else
            say_error(&error), code = exit_code_of(status);
    }
    return sink_end(&sink, code);
}

int command_status(int argc, char **argv)
{
    bool as_json = false;
    int code = EXIT_DONE;

    if (!read_options(argc, argv, status_help, &as_json, &code))
        return code;
    if (optind >= argc)
        return bad_usage(argv[0], "no lock named");
    for (int i = optind; i < argc; i++) {
        if (!name_is_good(argv[0], argv[i]))
            return EXIT_BAD_USAGE;
    }
    mortise_client *client = open_client(&code);
    if (client == NULL)
        return code;
    code = show_names(client, argv + optind, as_json);
    mortise_close(client, NULL);
    return code;
}

int command_list(int argc, char **argv)
{
    bool as_json = false;
    int code = EXIT_DONE;

    if (!read_options(argc, argv, list_help, &as_json, &code))
        return code;
    if (argc - optind > 1)
        return bad_usage(argv[0], "only one prefix can be given");
    const char *prefix = optind < argc ? argv[optind] : "";
    if (strlen(prefix) > MORTISE_NAME_MAX)
        return bad_usage(argv[0], "the prefix is longer than %d bytes", MORTISE_NAME_MAX);
    mortise_client *client = open_client(&code);
    if (client == NULL)
        return code;
    struct sink sink;
    mortise_error error;
    sink_begin(&sink, as_json);
    mortise_status status = mortise_list(client, prefix, sink_put, &sink, &error);
    if (status != MORTISE_OK)
        say_error(&error);
    code = sink_end(&sink, exit_code_of(status));
    mortise_close(client, NULL);
    return code;
}
