/* run_options.c - the command line of `mortise run`. */
#include "run.h"

#include "duration.h"
#include "exit_code.h"
#include "options.h"
#include "text.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
    "Usage: mortise run [OPTION…] NAME… -- COMMAND [ARGUMENT…]\n"
    "       mortise run [OPTION…] -c NAME 'SHELL COMMAND'\n"
    "Acquires the lock NAME, runs COMMAND, and releases the lock when COMMAND and all processes\n"
    "that it started have ended. If there are several names, acquires all of them or none.\n"
    "All words up to the -- right before COMMAND are names. If COMMAND has a -- of its own, it\n"
    "needs another one right before it: mortise run NAME -- kubectl exec POD -- COMMAND\n"
    "\n"
    "  -s, --shared              share NAME with other runs that say --shared\n"
    "      --permits N           share NAME, with at most N runs at once\n"
    "  -n, --nonblock            do not wait; the same as -w 0\n"
    "  -w, --wait TIME           wait at most this long: 10s, 500ms, 2m, forever, or seconds\n"
    "  -E, --conflict-exit-code CODE\n"
    "                            exit code if another has the lock until the end (75)\n"
    "  -c, --command             run the one argument with /bin/sh -c\n"
    "      --ttl TIME            how long a crashed host keeps the lock (the config's ttl)\n"
    "      --grace TIME          time between TERM and KILL if the lock is lost (a sixth of the "
    "ttl)\n"
    "      --on-loss kill|warn   if the lock is lost, end the command (kill) or only report it\n"
    "      --hide-config         hide MORTISE_CONFIG from COMMAND; it may hold a password\n"
    "  -C, --config FILE|URL     config file or URL\n"
    "\n"
    "Environment of COMMAND: MORTISE_NAME, MORTISE_TOKEN (it grows with each exclusive holder),\n"
    "MORTISE_OWNER, MORTISE_DRIVER, and MORTISE_LEASE_FD, a descriptor that reads end of file\n"
    "after the lock is lost. MORTISE_TOKENS has the tokens of all names, in their order.\n"
    "\n"
    "Exit code: the code of COMMAND; 128+N if signal N ended it or the wait; 75 held by another\n"
    "until the end, or by the run that started this one (or CODE); 76 lock lost; 69 backend\n"
    "unreachable, also if it does not answer at the end of the wait; 78 config; 64 usage, or\n"
    "another number of permits is in force; 70 internal error; 71 out of memory, or no process\n"
    "could be started; 126 not executable; 127 not found.\n";

enum {
    OPTION_TTL = OPTION_PRIVATE,
    OPTION_GRACE,
    OPTION_ON_LOSS,
    OPTION_HIDE_CONFIG,
    OPTION_PERMITS
};
static const struct option options[] = {{"shared", no_argument, NULL, 's'},
                                        {"permits", required_argument, NULL, OPTION_PERMITS},
                                        {"nonblock", no_argument, NULL, 'n'},
                                        {"nb", no_argument, NULL, 'n'},
                                        {"wait", required_argument, NULL, 'w'},
                                        {"timeout", required_argument, NULL, 'w'},
                                        {"conflict-exit-code", required_argument, NULL, 'E'},
                                        {"command", no_argument, NULL, 'c'},
                                        {"ttl", required_argument, NULL, OPTION_TTL},
                                        {"grace", required_argument, NULL, OPTION_GRACE},
                                        {"on-loss", required_argument, NULL, OPTION_ON_LOSS},
                                        {"hide-config", no_argument, NULL, OPTION_HIDE_CONFIG},
                                        COMMON_OPTIONS,
                                        {0}};

static bool read_time(const char *what, int64_t minimum, int64_t maximum, int64_t *ms)
{
    char shown[QUOTED_SIZE], low[DURATION_SIZE], high[DURATION_SIZE];

    if (!parse_duration(optarg, ms)) {
        bad_usage("run", "%s %.100s is not a time such as 500ms, 30s or 2m", what,
                  quoted(optarg, shown, sizeof shown));
        return false;
    }
    if (*ms < minimum || *ms > maximum) {
        bad_usage("run", "%s %.100s is not between %s and %s", what,
                  quoted(optarg, shown, sizeof shown), format_duration(minimum, low),
                  format_duration(maximum, high));
        return false;
    }
    return true;
}

static bool read_wait(struct run *run)
{
    if (strcmp(optarg, "forever") == 0) {
        run->wait_ms = MORTISE_WAIT_FOREVER;
        return true;
    }
    return read_time("-w", 0, MORTISE_WAIT_MAX_MS, &run->wait_ms);
}

static bool read_code(struct run *run)
{
    char shown[QUOTED_SIZE];
    uint64_t number;

    if (!parse_number(optarg, 0, 255, &number)) {
        bad_usage("run", "-E %.100s is not an exit code from 0 to 255",
                  quoted(optarg, shown, sizeof shown));
        return false;
    }
    run->not_had_code = (int)number;
    return true;
}

static bool read_permits(struct run *run)
{
    char shown[QUOTED_SIZE];
    uint64_t number;

    if (!parse_number(optarg, 1, UINT32_MAX, &number)) {
        bad_usage("run", "--permits %.100s is not a number from 1",
                  quoted(optarg, shown, sizeof shown));
        return false;
    }
    run->permits = (uint32_t)number;
    run->mode = MORTISE_SHARED;
    return true;
}

static bool read_on_loss(struct run *run)
{
    char shown[QUOTED_SIZE];

    run->warn_only = strcmp(optarg, "warn") == 0;
    if (run->warn_only || strcmp(optarg, "kill") == 0)
        return true;
    bad_usage("run", "--on-loss %.100s is neither kill nor warn",
              quoted(optarg, shown, sizeof shown));
    return false;
}

static bool read_own(struct run *run, int option, bool *own)
{
    *own = true;
    switch (option) {
    case 's':
        run->mode = MORTISE_SHARED;
        return true;
    case OPTION_PERMITS:
        return read_permits(run);
    case 'n':
        run->wait_ms = 0;
        return true;
    case 'w':
        return read_wait(run);
    case 'E':
        return read_code(run);
    case 'c':
        run->by_shell = true;
        return true;
    case OPTION_TTL:
        return read_time("--ttl", MORTISE_TTL_MIN_MS, MORTISE_TTL_MAX_MS, &run->ttl_ms);
    case OPTION_GRACE:
        return read_time("--grace", 0, MORTISE_TTL_MAX_MS, &run->grace_ms);
    case OPTION_ON_LOSS:
        return read_on_loss(run);
    case OPTION_HIDE_CONFIG:
        run->hide_config = true;
        return true;
    default:
        *own = false;
        return true;
    }
}

static bool add_name(struct run *run, const char *name)
{
    char shown[QUOTED_SIZE];

    if (!name_is_good("run", name))
        return false;
    for (size_t i = 0; i < run->count; i++) {
        if (strcmp(run->names[i], name) == 0) {
            bad_usage("run", "%.200s is named twice", quoted(name, shown, sizeof shown));
            return false;
        }
    }
    if (run->count == RUN_NAMES_MAX) {
        bad_usage("run", "more than %d locks are named", RUN_NAMES_MAX);
        return false;
    }
    run->names[run->count++] = name;
    return true;
}

/* Whether the words up to a "--" are names. Without "--" the second word begins the command, as with flock(1). */
static bool is_followed_by_dashes(char **words)
{
    while (*words != NULL && strcmp(*words, "--") != 0)
        words++;
    return *words != NULL;
}

enum { WORD = 1 }; /* getopt: not an option */

/* Reads options and names up to "--" or the first word of the command. */
static bool read_words(struct run *run, int argc, char **argv, int *code)
{
    int option;
    bool own;

    *code = EXIT_BAD_USAGE;
    while ((option = getopt_long(argc, argv, "-:snw:E:cC:", options, NULL)) != -1) {
        if (option == WORD && run->count > 0 && !is_followed_by_dashes(argv + optind)) {
            optind--;
            return true;
        }
        if (option == WORD ? !add_name(run, optarg) : !read_own(run, option, &own))
            return false;
        if (option != WORD && !own && option_common(option, argv, help, code))
            return false;
    }
    return true;
}

static void show_names(struct run *run)
{
    char one[QUOTED_SIZE];
    size_t used = 0;

    for (size_t i = 0; i < run->count; i++) {
        quoted(run->names[i], one, sizeof one);
        if (i > 0 && used + strlen(one) + 32 > sizeof run->shown) {
            snprintf(run->shown + used, sizeof run->shown - used, " and %zu more", run->count - i);
            return;
        }
        used += (size_t)snprintf(run->shown + used, sizeof run->shown - used, "%s%s",
                                 i > 0 ? ", " : "", one);
    }
}

static int read_command(struct run *run, int argc, char **argv)
{
    static char shell[] = "/bin/sh",
                dash_c[] = "-c"; /* not const, because the type of argv is not */

    if (optind >= argc)
        return bad_usage("run", "no command given");
    run->command = argv + optind;
    if (argv[optind][0] == '\0')
        return bad_usage("run", "the command is empty");
    if (!run->by_shell)
        return EXIT_DONE;
    if (argc - optind != 1)
        return bad_usage("run", "-c takes one string, not %d", argc - optind);
    run->shell_command[0] = shell;
    run->shell_command[1] = dash_c;
    run->shell_command[2] = argv[optind];
    run->command = run->shell_command;
    return EXIT_DONE;
}

bool run_read_options(struct run *run, int argc, char **argv, int *code)
{
    char *const own_name = argv[0];

    run->wait_ms = MORTISE_WAIT_DEFAULT;
    run->grace_ms = -1;
    run->not_had_code = EXIT_NOT_HAD;
    if (!read_words(run, argc, argv, code))
        return false;
    if (run->count == 0 && optind < argc) {
        /* "--" stands before the name, which may begin with a dash. Options and names may follow it. getopt skips the first
         * word of argv, so that is the name now. */
        if (!add_name(run, argv[optind]))
            return false;
        argc -= optind;
        argv += optind;
        optind = 0;
        argv[0] = own_name;
        if (!read_words(run, argc, argv, code))
            return false;
    }
    *code = run->count == 0 ? bad_usage("run", "no lock named") : read_command(run, argc, argv);
    show_names(run);
    return *code == EXIT_DONE;
}
