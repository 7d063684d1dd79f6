/* migrate.c - `mortise migrate`: walks a fleet from one backend to another, and back.
 *
 * Reads the words and options. migrate.h lists the files that do the rest. */
#include "migrate.h"

#include "commands.h"
#include "duration.h"
#include "exit_code.h"
#include "options.h"
#include "output.h"
#include "text.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#define WAIT_MS 60000

static const char help[] =
    "Usage: mortise migrate status [--json]\n"
    "       mortise migrate plan [--back] [--json]\n"
    "       mortise migrate advance [--back] [-n | -w TIME]\n"
    "Moves a fleet from one backend to another with the plugin `migrate`, phase by phase:\n"
    "old (only `from`), both, new (only `to`). docs/migrating.md explains each step.\n"
    "\n"
    "  status                    show the clients by phase, the phases that each side admits, and\n"
    "                            the locks held there\n"
    "  plan                      show the next step, whether it is safe now, and for which "
    "clients\n"
    "                            it waits\n"
    "  advance                   take the next step: change the registers if needed, then `phase`\n"
    "                            in the config file. Repeat it for each config file of the fleet\n"
    "\n"
    "      --back                go towards phase old instead of new\n"
    "  -w, --wait TIME           how long advance waits until the clients of the closed phase are\n"
    "                            gone (60s; \"forever\")\n"
    "  -n, --nonblock            do not wait; if there are such clients, change nothing\n"
    "      --section NAME        the section to use if there are several [migrate:…]\n"
    "      --json                status, plan: print an object\n"
    "  -C, --config FILE         the config file\n"
    "\n"
    "Exit code: 0 done, or (plan) safe now; 1 nothing left to do; 64 usage; 69 a side is\n"
    "unreachable; 75 clients or another migration are in the way, or another operator took a\n"
    "step; 78 config.\n";

enum { OPTION_BACK = OPTION_PRIVATE, OPTION_SECTION };
static const struct option options[] = {{"json", no_argument, NULL, OPTION_JSON},
                                        {"back", no_argument, NULL, OPTION_BACK},
                                        {"section", required_argument, NULL, OPTION_SECTION},
                                        {"wait", required_argument, NULL, 'w'},
                                        {"nonblock", no_argument, NULL, 'n'},
                                        COMMON_OPTIONS,
                                        {0}};

struct request {
    bool as_json, forward, waits;
    int64_t wait_ms;
    const char *section;
};

/* ---- words ---------------------------------------------------------------------------------------- */

static int do_status(struct migration *migration, const struct request *request)
{
    return show_status(migration, request->as_json);
}

static int do_plan(struct migration *migration, const struct request *request)
{
    struct plan plan;

    plan_make(migration, request->forward, &plan);
    int code = show_plan(migration, &plan, request->forward, request->as_json);
    plan_end(&plan);
    return code;
}

static int put_phase(const struct migration *migration, unsigned phase)
{
    int code = EXIT_DONE;

    if (phase == migration->file.phase) {
        printf("%s stays at phase = %s\n", migration->file.path, migration->file.phase_word);
        return code;
    }
    code = migrate_file_set_phase(&migration->file, phase);
    if (code == EXIT_DONE)
        printf("%s: [%s] phase = %s; restart the clients that read it, one by one\n",
               migration->file.path, migration->file.section, migrate_phase_word(phase));
    else
        say("the servers are ready; edit the file yourself: [%s] phase = %s",
            migration->file.section, migrate_phase_word(phase));
    return code;
}

static int advance(struct migration *migration, const struct request *request,
                   const struct plan *plan)
{
    int code = plan->code;

    if (code != EXIT_DONE) {
        say("%s", plan->trouble);
        return code;
    }
    if (plan->last) {
        say("nothing is left to do%s", request->forward ? migrate_from_may_go(migration) : "");
        return EXIT_NOTHING_DONE;
    }
    if (plan->step != NULL)
        code = step_take(migration, plan, request->wait_ms);
    if (code == EXIT_DONE && plan->step != NULL)
        printf("done: %s\n", plan->step->words);
    return code == EXIT_DONE ? put_phase(migration, plan->phase) : code;
}

static int do_advance(struct migration *migration, const struct request *request)
{
    struct plan plan;

    plan_make(migration, request->forward, &plan);
    int code = advance(migration, request, &plan);
    plan_end(&plan);
    return finish_output(code);
}

static const struct word {
    const char *word;
    int (*function)(struct migration *migration, const struct request *request);
    bool has_back, has_wait, has_json;
} words[] = {{"status", do_status, false, false, true},
             {"plan", do_plan, true, false, true},
             {"advance", do_advance, true, true, false}};
enum { WORD_COUNT = sizeof words / sizeof words[0] };

/* ---- options -------------------------------------------------------------------------------------- */

static bool read_wait(const char *command, const char *text, struct request *request)
{
    char shown[QUOTED_SIZE];

    request->waits = true;
    if (strcmp(text, "forever") == 0)
        request->wait_ms = MORTISE_WAIT_FOREVER;
    else if (!parse_duration(text, &request->wait_ms)) {
        bad_usage(command, "-w %.100s is not a time such as 500ms, 30s or 2m, nor \"forever\"",
                  quoted(text, shown, sizeof shown));
        return false;
    }
    return true;
}

static bool read_option(int option, char **argv, struct request *request, int *code)
{
    *code = EXIT_BAD_USAGE;
    switch (option) {
    case OPTION_JSON:
        return request->as_json = true;
    case OPTION_BACK:
        request->forward = false;
        return true;
    case OPTION_SECTION:
        request->section = optarg;
        if (optarg[0] != '\0' && strlen(optarg) < SECTION_SIZE)
            return true;
        bad_usage(argv[0], "--section needs the name of a section");
        return false;
    case 'n':
        request->waits = true;
        request->wait_ms = 0;
        return true;
    case 'w':
        return read_wait(argv[0], optarg, request);
    default:
        return !option_common(option, argv, help, code);
    }
}

static const struct word *find_word(const char *text)
{
    for (size_t i = 0; i < WORD_COUNT; i++) {
        if (strcmp(text, words[i].word) == 0)
            return &words[i];
    }
    return NULL;
}

static int check_word(const struct word *word, const struct request *request)
{
    if (request->as_json && !word->has_json)
        return bad_usage("migrate", "%s has no --json", word->word);
    if (!request->forward && !word->has_back)
        return bad_usage("migrate", "%s has no --back", word->word);
    if (request->waits && !word->has_wait)
        return bad_usage("migrate", "%s does not wait", word->word);
    return EXIT_DONE;
}

int command_migrate(int argc, char **argv)
{
    struct request request = {.forward = true, .wait_ms = WAIT_MS};
    struct migration migration;
    char shown[QUOTED_SIZE];
    int option, code = EXIT_DONE;

    while ((option = getopt_long(argc, argv, ":C:w:n", options, NULL)) != -1) {
        if (!read_option(option, argv, &request, &code))
            return code;
    }
    if (argc - optind != 1)
        return bad_usage(argv[0], "expected status, plan or advance");
    const struct word *word = find_word(argv[optind]);
    if (word == NULL)
        return bad_usage(argv[0], "%.200s is not one of status, plan, advance",
                         quoted(argv[optind], shown, sizeof shown));
    code = check_word(word, &request);
    if (code == EXIT_DONE)
        code = migration_open(&migration, request.section);
    if (code != EXIT_DONE)
        return code;
    code = word->function(&migration, &request);
    migration_close(&migration);
    return code;
}
