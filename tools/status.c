/* status.c - `mortise status` and `mortise list`: who holds these locks, and which are held.
 *
 * status asks about names, one by one; list asks the backend for all names that begin with a prefix. */
#include "backend_metrics.h"
#include "clock.h"
#include "commands.h"
#include "connect.h"
#include "exit_code.h"
#include "holders.h"
#include "json.h"
#include "options.h"
#include "output.h"
#include "table.h"
#include "witness_ask.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char status_help[] =
    "Usage: mortise status [--json] NAME…\n"
    "Shows who holds each lock: host, process, since when, until when if it is not renewed, the\n"
    "fencing token (for `mortise break`), and the number of waiters. If several leases share a\n"
    "lock, it shows each of them.\n"
    "\n"
    "      --json                print an array of objects; unknown is null, tokens are strings.\n"
    "                            If the backend does not answer, the last object has only the\n"
    "                            name and the problem; names after it are not asked about\n"
    "  -C, --config FILE|URL     config file or URL\n"
    "\n"
    "On a terminal it prints a table, elsewhere one line for each lock (for each holder of a\n"
    "shared lock), with tabs between: name, state, host, pid, program, since, until, token,\n"
    "number of waiters, mode, number of holders, permits, witness (yes, no); \"-\" is unknown,\n"
    "or none.\n"
    "Exit code: 0 answered (held or not), 64 usage, 69 backend unreachable, 78 config.\n";

static const char list_help[] =
    "Usage: mortise list [--json | --prometheus] [PREFIX]\n"
    "Lists the held locks whose names begin with PREFIX, in byte order. Of a shared lock it\n"
    "shows the one with the smallest token; `mortise status NAME` shows all.\n"
    "\n"
    "      --json                print an array of objects, as `mortise status` does; nothing if\n"
    "                            the backend does not answer\n"
    "      --prometheus          print metrics: held names, waiters and the oldest holder, by the\n"
    "                            part of the name up to its first / or :. If the backend does not\n"
    "                            answer, or the config is wrong, they say so, and the exit code\n"
    "                            is 69 or 78\n"
    "  -C, --config FILE|URL     config file or URL\n"
    "\n"
    "Exit code: 0 answered, 64 usage, 69 backend unreachable or cannot list, 78 config.\n";

enum { OPTION_PROMETHEUS = OPTION_PRIVATE };
static const struct option options[] = {
    {"json", no_argument, NULL, OPTION_JSON}, COMMON_OPTIONS, {0}};
static const struct option list_options[] = {{"json", no_argument, NULL, OPTION_JSON},
                                             {"prometheus", no_argument, NULL, OPTION_PROMETHEUS},
                                             COMMON_OPTIONS,
                                             {0}};

/* Where answers go: into a table that is printed at the end, or out as JSON at once. The first answer opens the array.
 * Without any answer nothing is printed, because a script would take an empty array for an answer. */
struct sink {
    bool as_json, open;
    struct table table;
    struct json json;
};

static void sink_begin(struct sink *sink, bool as_json)
{
    *sink = (struct sink){.as_json = as_json, .json = {.out = stdout}};
    holders_begin(&sink->table);
}

static void sink_open(struct sink *sink)
{
    if (!sink->open)
        json_open(&sink->json, '[');
    sink->open = true;
}

static bool sink_put(const mortise_info *info, void *user_data)
{
    struct sink *sink = user_data;

    if (!sink->as_json) {
        holders_row(&sink->table, info);
        return true;
    }
    sink_open(sink);
    json_open(&sink->json, '{');
    holders_json(&sink->json, info);
    json_close(&sink->json, '}');
    return true;
}

static void put_problem(struct sink *sink, const char *name, const mortise_error *error)
{
    say_error(error);
    if (!sink->as_json)
        return;
    sink_open(sink);
    json_open(&sink->json, '{');
    json_text(&sink->json, "name", name);
    json_text(&sink->json, "problem", error_text(error));
    json_close(&sink->json, '}');
}

/* The leases that share one lock. */
struct sharers {
    mortise_info *infos;
    size_t count;
};

static bool add_sharer(const mortise_info *info, void *user_data)
{
    struct sharers *sharers = user_data;

    sharers->infos =
        must_have(reallocarray(sharers->infos, sharers->count + 1, sizeof *sharers->infos));
    sharers->infos[sharers->count++] = *info;
    return true;
}

static void put_shared(struct sink *sink, const mortise_info *info, const struct sharers *sharers)
{
    if (!sink->as_json) {
        for (size_t i = 0; i < sharers->count; i++)
            holders_row(&sink->table, &sharers->infos[i]);
        return;
    }
    sink_open(sink);
    json_open(&sink->json, '{');
    holders_json(&sink->json, info);
    json_key(&sink->json, "shared_by");
    json_open(&sink->json, '[');
    for (size_t i = 0; i < sharers->count; i++) {
        json_open(&sink->json, '{');
        holders_json_one(&sink->json, &sharers->infos[i]);
        json_close(&sink->json, '}');
    }
    json_close(&sink->json, ']');
    json_close(&sink->json, '}');
}

static mortise_status put_name(struct sink *sink, mortise_client *client, const char *name,
                               mortise_error *error)
{
    mortise_info info = {.size = sizeof info};
    struct sharers sharers = {0};
    mortise_status status = mortise_inspect(client, name, &info, error);

    if (status == MORTISE_OK && info.held && info.mode == MORTISE_SHARED)
        status = mortise_holders(client, name, add_sharer, &sharers, error);
    if (status == MORTISE_OK && sharers.count > 0)
        put_shared(sink, &info, &sharers);
    else if (status == MORTISE_OK)
        sink_put(&info, sink);
    free(sharers.infos);
    return status;
}

static int sink_end(struct sink *sink, int code)
{
    if (sink->as_json && code == EXIT_DONE)
        sink_open(sink);
    if (sink->open) {
        json_close(&sink->json, ']');
        putchar('\n');
    } else if (sink->table.rows > 0) {
        table_print(&sink->table);
    }
    table_end(&sink->table);
    return finish_output(code);
}

/* as_metrics is NULL for status, which has no such option. */
static bool read_options(int argc, char **argv, bool *as_json, bool *as_metrics, int *code)
{
    const struct option *own = as_metrics != NULL ? list_options : options;
    int option;

    while ((option = getopt_long(argc, argv, ":C:", own, NULL)) != -1) {
        if (option == OPTION_JSON)
            *as_json = true;
        else if (option == OPTION_PROMETHEUS)
            *as_metrics = true;
        else if (option_common(option, argv, as_metrics != NULL ? list_help : status_help, code))
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
        mortise_error error;
        mortise_status status = put_name(&sink, client, *names, &error);
        if (status != MORTISE_OK)
            put_problem(&sink, *names, &error), code = exit_code_of(status);
    }
    return sink_end(&sink, code);
}

int command_status(int argc, char **argv)
{
    bool as_json = false;
    int code = EXIT_DONE;

    if (!read_options(argc, argv, &as_json, NULL, &code))
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
    witness_ask_begin(client);
    code = show_names(client, argv + optind, as_json);
    mortise_close(client, NULL);
    return code;
}

static int list_names(mortise_client *client, const char *prefix, bool as_json)
{
    struct sink sink;
    mortise_error error;

    witness_ask_begin(client);
    sink_begin(&sink, as_json);
    mortise_status status = mortise_list(client, prefix, sink_put, &sink, &error);
    if (status != MORTISE_OK)
        say_error(&error);
    return sink_end(&sink, exit_code_of(status));
}

static bool add_to_tally(const mortise_info *info, void *user_data)
{
    tally_add(user_data, info);
    return true;
}

static int list_metrics(mortise_client *client, const char *prefix)
{
    struct tally tally;
    mortise_error error;

    tally_begin(&tally);
    const int64_t began_ns = boottime_ns();
    mortise_status status = mortise_list(client, prefix, add_to_tally, &tally, &error);
    const int64_t took_ms = (boottime_ns() - began_ns) / 1000000;
    if (status != MORTISE_OK)
        say_error(&error);
    metrics_write(stdout, client, status == MORTISE_OK ? &tally : NULL, took_ms);
    tally_end(&tally);
    return finish_output(exit_code_of(status));
}

int command_list(int argc, char **argv)
{
    bool as_json = false, as_metrics = false;
    int code = EXIT_DONE;

    if (!read_options(argc, argv, &as_json, &as_metrics, &code))
        return code;
    if (argc - optind > 1)
        return bad_usage(argv[0], "only one prefix can be given");
    if (as_json && as_metrics)
        return bad_usage(argv[0], "--json and --prometheus exclude each other");
    const char *prefix = optind < argc ? argv[optind] : "";
    if (strlen(prefix) > MORTISE_NAME_MAX)
        return bad_usage(argv[0], "the prefix is longer than %d bytes", MORTISE_NAME_MAX);
    mortise_client *client = open_client(&code);
    if (client == NULL && as_metrics) {
        metrics_write(stdout, NULL, NULL, 0);
        return finish_output(code);
    }
    if (client == NULL)
        return code;
    code = as_metrics ? list_metrics(client, prefix) : list_names(client, prefix, as_json);
    mortise_close(client, NULL);
    return code;
}
