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
    "Walks a fleet from one backend to another with the plugin `migrate`, phase by phase:\n"
    "old (`from` only), both, new (`to` only); docs/migrating.md has it step by step.\n"
    "\n"
    "  status                    the clients by phase, what each side lets in, the locks held "
    "there\n"
    "  plan                      what is next, whether it is safe now, and whom it waits for\n"
    "  advance                   does it: the step of the registers, if one is needed, then "
    "`phase`\n"
    "                            in the config file; each file of the fleet is advanced by itself\n"
    "\n"
    "      --back                towards phase old instead of new\n"
    "  -w, --wait TIME           how long advance waits until the clients of the phase that is "
    "shut\n"
    "                            out are gone (60s; \"forever\")\n"
    "  -n, --nonblock            it does not wait: nothing is changed where any are seen first\n"
    "      --section NAME        which section, where there are several [migrate:…]\n"
    "      --json                status, plan: an object\n"
    "  -C, --config FILE         the config file\n"
    "\n"
    "Exit code: 0 done, or (plan) safe now; 1 nothing is left to be done; 64 usage; 69 a side "
    "cannot be\n"
    "reached; 75 clients are in the way, or somebody else took a step; 78 config.\n";

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
        say("every server is ready for it: write it by hand: [%s] phase = %s",
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
        say("nothing is left to be done%s", request->forward ? migrate_from_may_go(migration) : "");
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
        return bad_usage(argv[0], "say one of status, plan, advance");
    const struct word *word = find_word(argv[optind]);
    if (word == NULL)
        return bad_usage(argv[0], "%.200s is none of status, plan, advance",
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
