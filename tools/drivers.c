/* drivers.c - `mortise drivers`: the modules on this machine, and the config keys of each.
 *
 * All of it comes from the library, which asks the modules. */
#include "commands.h"
#include "connect.h"
#include "exit_code.h"
#include "json.h"
#include "nearest.h"
#include "options.h"
#include "output.h"
#include "table.h"
#include "text.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: mortise drivers [--json] [NAME [--options]]\n"
    "Shows the installed modules: kind, version, capabilities and file. With NAME, shows only\n"
    "that module; \"mortise\" is the core.\n"
    "\n"
    "      --options             show every config key: type, range, default and purpose\n"
    "      --json                print an array of objects, always with the options\n"
    "  -C, --config FILE|URL     config file or URL (its module_path is searched)\n"
    "\n"
    "If a module cannot be loaded, the reason is shown.\n"
    "Exit code: 0, 64 usage, 69 no such module, 78 config or a module that cannot be loaded.\n";

enum { OPTION_OPTIONS = OPTION_PRIVATE };
static const struct option options[] = {{"json", no_argument, NULL, OPTION_JSON},
                                        {"options", no_argument, NULL, OPTION_OPTIONS},
                                        COMMON_OPTIONS,
                                        {0}};

struct view {
    const char *only; /* NULL: all */
    bool as_json, with_options;
    struct table table;
    struct json json;
    char **names; /* of all modules, to suggest the nearest one */
    size_t count;
    bool found, broken;
};

static const char *or_dash(const char *text)
{
    return text != NULL && text[0] != '\0' ? text : "-";
}

static void capabilities_text(uint32_t capabilities, char *text, size_t size)
{
    size_t used = 0;

    snprintf(text, size, "-");
#define APPEND(name, bit, word, help)                                                              \
    if ((capabilities & (1u << (bit))) && used < size)                                             \
        used += (size_t)snprintf(text + used, size - used, "%s" word, used ? "," : "");
    MORTISE_CAPABILITY_MAP(APPEND)
#undef APPEND
}

static void module_row(struct view *view, const mortise_module_info *info, const char *problem)
{
    char capabilities[256], abi[16], shown[QUOTED_SIZE];
    const char *cells[7] = {
        or_dash(info->name), or_dash(info->kind),   or_dash(info->version), "-", "-",
        or_dash(info->path), or_dash(info->summary)};

    if (info->abi > 0) {
        snprintf(abi, sizeof abi, "%u", (unsigned)info->abi);
        cells[3] = abi;
    }
    capabilities_text(info->capabilities, capabilities, sizeof capabilities);
    cells[4] = capabilities;
    if (problem != NULL)
        cells[6] = printable(problem, shown, sizeof shown);
    table_row(&view->table, cells);
}

static void option_row(struct view *view, const mortise_option_info *option)
{
    table_row(&view->table,
              (const char *[]){or_dash(option->key), or_dash(option->type), or_dash(option->range),
                               option->secret ? "(secret)" : or_dash(option->default_text),
                               or_dash(option->help)});
}

static void text_or_null(struct json *json, const char *key, const char *text)
{
    if (text != NULL)
        json_text(json, key, text);
    else
        json_null(json, key);
}

static void option_json(struct json *json, const mortise_option_info *option)
{
    json_open(json, '{');
    text_or_null(json, "key", option->key);
    text_or_null(json, "type", option->type);
    text_or_null(json, "range", option->range);
    text_or_null(json, "default", option->default_text);
    json_bool(json, "secret", option->secret);
    text_or_null(json, "help", option->help);
    json_close(json, '}');
}

static void module_json(struct json *json, const mortise_module_info *info,
                        const mortise_option_info *rows, size_t count, const char *problem)
{
    char capabilities[256];

    json_open(json, '{');
    text_or_null(json, "name", info->name);
    text_or_null(json, "kind", info->kind);
    text_or_null(json, "version", info->version);
    json_int(json, "abi", info->abi);
    capabilities_text(info->capabilities, capabilities, sizeof capabilities);
    json_text(json, "capabilities", info->capabilities ? capabilities : "");
    text_or_null(json, "path", info->path);
    text_or_null(json, "summary", info->summary);
    text_or_null(json, "problem", problem);
    json_key(json, "options");
    json_open(json, '[');
    for (size_t i = 0; i < count; i++)
        option_json(json, &rows[i]);
    json_close(json, ']');
    json_close(json, '}');
}

static bool each_module(const mortise_module_info *info, const mortise_option_info *rows,
                        size_t count, const char *problem, void *user_data)
{
    struct view *view = user_data;

    view->names = must_have(reallocarray(view->names, view->count + 1, sizeof *view->names));
    view->names[view->count++] = must_have(strdup(info->name ? info->name : ""));
    if (view->only != NULL && (info->name == NULL || strcmp(view->only, info->name) != 0))
        return true;
    view->found = true;
    view->broken = view->broken || problem != NULL;
    if (view->as_json) {
        module_json(&view->json, info, rows, count, problem);
    } else if (view->with_options) {
        for (size_t i = 0; i < count; i++)
            option_row(view, &rows[i]);
        if (problem != NULL)
            say("%s", problem);
    } else {
        module_row(view, info, problem);
    }
    return true;
}

static void view_begin(struct view *view)
{
    static const char *const module_heads[] = {"NAME",         "KIND", "VERSION", "ABI",
                                               "CAPABILITIES", "FILE", "SUMMARY"};
    static const char *const option_heads[] = {"KEY", "TYPE", "RANGE", "DEFAULT", "WHAT FOR"};

    view->json.out = stdout;
    if (view->with_options)
        table_begin(&view->table, option_heads, 5);
    else
        table_begin(&view->table, module_heads, 7);
    if (view->as_json)
        json_open(&view->json, '[');
}

static int view_end(struct view *view, int code)
{
    if (view->as_json) {
        json_close(&view->json, ']');
        putchar('\n');
    } else if (view->table.rows > 0) {
        table_print(&view->table);
    }
    if (code == EXIT_DONE && view->only != NULL && !view->found) {
        char shown[QUOTED_SIZE];
        const char *near = nearest(view->only, (const char *const *)view->names, view->count);
        quoted(view->only, shown, sizeof shown);
        if (near != NULL)
            say("there is no module %.200s (did you mean \"%s\"?)", shown, near);
        else
            say("there is no module %.200s; `mortise drivers` shows those that are installed",
                shown);
        code = EXIT_BACKEND_AWAY;
    }
    if (code == EXIT_DONE && view->broken)
        code = EXIT_BAD_CONFIG;
    for (size_t i = 0; i < view->count; i++)
        free(view->names[i]);
    free(view->names);
    table_end(&view->table);
    return finish_output(code);
}

int command_drivers(int argc, char **argv)
{
    struct view view = {0};
    int option, code = EXIT_DONE;

    while ((option = getopt_long(argc, argv, ":C:", options, NULL)) != -1) {
        if (option == OPTION_JSON)
            view.as_json = true;
        else if (option == OPTION_OPTIONS)
            view.with_options = true;
        else if (option_common(option, argv, help, &code))
            return code;
    }
    if (argc - optind > 1)
        return bad_usage(argv[0], "only one module can be named");
    view.only = optind < argc ? argv[optind] : NULL;
    if (view.with_options && view.only == NULL && !view.as_json)
        return bad_usage(argv[0], "--options needs the NAME of a module");
    view_begin(&view);
    mortise_error error;
    mortise_status status = mortise_modules(config_where, each_module, &view, &error);
    if (status != MORTISE_OK)
        say_error(&error);
    return view_end(&view, exit_code_of(status));
}
