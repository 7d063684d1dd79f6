/* check.c - `mortise check`: whether the configuration is right, the modules can be loaded and the server answers.
 *
 * Prints a line for each check: "ok", or what is wrong. The exit code has the result for scripts. Takes no lock. */
#include "check.h"

#include "commands.h"
#include "connect.h"
#include "exit_code.h"
#include "options.h"
#include "output.h"
#include "ping.h"
#include "text.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char help[] =
    "Usage: mortise check [--json]\n"
    "Checks the configuration, the modules that it needs, and the server, and prints a line for\n"
    "each, and one that says which kinds of locks they have. Takes no lock.\n"
    "\n"
    "      --json                print an array of objects: what, ok, detail\n"
    "  -C, --config FILE|URL     config file or URL\n"
    "\n"
    "Exit code: 0 all checks passed, 64 usage, 69 the server does not answer, 78 config or\n"
    "modules.\n";

static const struct option options[] = {
    {"json", no_argument, NULL, OPTION_JSON}, COMMON_OPTIONS, {0}};

void report_line(struct report *report, const char *what, enum level level, const char *detail)
{
    static const char *const words[] = {"ok", "note", "risk", "wrong"};
    static const char *const colours[] = {"\033[32m", "\033[36m", "\033[33m", "\033[31m"};

    report->counts[level]++;
    if (report->as_json) {
        json_open(&report->json, '{');
        json_text(&report->json, "what", what);
        if (report->with_level)
            json_text(&report->json, "level", words[level]);
        json_bool(&report->json, "ok", level < LEVEL_RISK);
        json_text(&report->json, "detail", detail);
        json_close(&report->json, '}');
        return;
    }
    const bool colour = with_colour();
    printf("%-8s %s%-5s%s %s\n", what, colour ? colours[level] : "", words[level],
           colour ? "\033[0m" : "", detail);
}

static void line(struct report *report, const char *what, bool ok, const char *detail)
{
    report_line(report, what, ok ? LEVEL_OK : LEVEL_WRONG, detail);
}

static void append_capabilities(uint32_t capabilities, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
#define APPEND(name, bit, word, help)                                                              \
    if ((capabilities & (1u << (bit))) && used < size)                                             \
        used += (size_t)snprintf(text + used, size - used, "%s" word, used ? ", " : "");
    MORTISE_CAPABILITY_MAP(APPEND)
#undef APPEND
}

static void check_modules(struct report *report, mortise_client *client)
{
    mortise_module_info info = {.size = sizeof info};
    char capabilities[256], detail[2048];

    for (size_t i = 0; mortise_module_at(client, i, &info); i++) {
        append_capabilities(info.capabilities, capabilities, sizeof capabilities);
        snprintf(detail, sizeof detail, "%s %s, section [%s], %s%s%s", info.name, info.version,
                 info.section, info.path ? info.path : "built in", capabilities[0] ? ": " : "",
                 capabilities);
        line(report, info.kind, true, detail);
    }
}

/* What the whole stack can do, as a sentence. A module's line lists its capabilities. */
static void show_kinds(struct report *report, mortise_client *client)
{
    const uint32_t can = mortise_capabilities(client);

    if ((can & MORTISE_CAP_SHARED) == 0)
        line(report, "locks", true, "exclusive; no shared locks, no permits");
    else if ((can & MORTISE_CAP_PERMITS) == 0)
        line(report, "locks", true, "exclusive and shared; no permits");
    else
        line(report, "locks", true, "exclusive, shared, permits");
}

int64_t check_now_us(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

static int check_server(struct report *report, mortise_client *client, check_more more)
{
    char text[MORTISE_PING_SIZE] = "", shown[4 * sizeof text], detail[5 * sizeof text],
         findings[sizeof text];
    mortise_error error;
    int64_t begin = check_now_us();
    mortise_status status =
        ping_server(client, text, sizeof text, findings, sizeof findings, &error);
    int64_t took = check_now_us() - begin;

    if (status != MORTISE_OK) {
        line(report, "server", false, error.message);
        return exit_code_of(status);
    }
    snprintf(detail, sizeof detail, "%s, answered in %" PRId64 ".%02" PRId64 " ms",
             printable(text, shown, sizeof shown), took / 1000, took % 1000 / 10);
    line(report, "server", true, detail);
    if (more != NULL)
        more(report, client, findings, took);
    return EXIT_DONE;
}

int check_all(struct report *report, check_more more)
{
    mortise_client *client;
    mortise_error error;
    mortise_status status = mortise_open(config_where, &client, &error);

    if (status != MORTISE_OK) {
        line(report, status == MORTISE_CONFIG ? "config" : "open", false, error.message);
        return exit_code_of(status);
    }
    line(report, "config", true, mortise_config_source(client));
    check_modules(report, client);
    show_kinds(report, client);
    int code = check_server(report, client, more);
    status = mortise_close(client, &error);
    if (status != MORTISE_OK && code == EXIT_DONE) {
        line(report, "close", false, error.message);
        code = exit_code_of(status);
    }
    return code;
}

int check_command(int argc, char **argv, const char *text, struct report *report, check_more more)
{
    int option, code = EXIT_DONE;

    while ((option = getopt_long(argc, argv, ":C:", options, NULL)) != -1) {
        if (option == OPTION_JSON)
            report->as_json = true;
        else if (option_common(option, argv, text, &code))
            return code;
    }
    if (optind < argc)
        return bad_usage(argv[0], "it takes no arguments");
    report->json.out = stdout;
    if (report->as_json)
        json_open(&report->json, '[');
    code = check_all(report, more);
    if (report->as_json) {
        json_close(&report->json, ']');
        putchar('\n');
    }
    if (code == EXIT_DONE && report->counts[LEVEL_RISK] > 0)
        code = EXIT_NOTHING_DONE;
    return finish_output(code);
}

int command_check(int argc, char **argv)
{
    struct report report = {.as_json = false};
    return check_command(argc, argv, help, &report, NULL);
}
