/* run_options.c - the command line of `mortise run`. */
#include "run.h"

#include "duration.h"
#include "exit_code.h"
#include "options.h"
#include "text.h"

#include <getopt.h>
#include <string.h>

static const char help[] =
    "Usage: mortise run [OPTION…] NAME -- COMMAND [ARGUMENT…]\n"
    "       mortise run [OPTION…] -c NAME 'SHELL COMMAND'\n"
    "Acquires the lock NAME, runs COMMAND, and releases the lock when COMMAND and all processes\n"
    "that it started have ended.\n"
    "\n"
    "  -s, --shared              share NAME with other runs that say --shared\n"
    "      --permits N           share NAME, with at most N runs at once\n"
    "  -n, --nonblock            do not wait; the same as -w 0\n"
    "  -w, --wait TIME           wait at most this long: 10s, 500ms, 2m, forever, or seconds\n"
    "  -E, --conflict-exit-code CODE\n"
    "                            exit code if the lock is not acquired in time (75)\n"
    "  -c, --command             run the one argument with /bin/sh -c\n"
    "      --ttl TIME            how long a crashed host keeps the lock (the config's ttl)\n"
    "      --grace TIME          time between TERM and KILL if the lock is lost (a sixth of the "
    "ttl)\n"
    "      --on-loss kill|warn   if the lock is lost, end the command (kill) or only report it\n"
    "      --hide-config         hide MORTISE_CONFIG from COMMAND; it may hold a password\n"
    "  -C, --config FILE|URL     config file or URL\n"
    "\n"
    "Environment of COMMAND: MORTISE_NAME, MORTISE_TOKEN (a number that grows with every holder),\n"
    "MORTISE_OWNER, MORTISE_DRIVER, and MORTISE_LEASE_FD, a descriptor that reads end of file\n"
    "after the lock is lost.\n"
    "\n"
    "Exit code: the code of COMMAND; 128+N if signal N ended it or the wait; 75 not acquired in\n"
    "time; 76 lock lost; 69 backend unreachable; 78 config; 64 usage; 126 not executable;\n"
    "127 not found.\n";

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

/* Reads options up to the first word that is not an option. */
static bool read_some(struct run *run, int argc, char **argv, int *code)
{
    int option;
    bool own;

    while ((option = getopt_long(argc, argv, "+:snw:E:cC:", options, NULL)) != -1) {
        if (!read_own(run, option, &own)) {
            *code = EXIT_BAD_USAGE;
            return false;
        }
        if (!own && option_common(option, argv, help, code))
            return false;
    }
    return true;
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
    if (!read_some(run, argc, argv, code))
        return false;
    if (optind >= argc) {
        *code = bad_usage("run", "no lock named");
        return false;
    }
    *code = EXIT_BAD_USAGE;
    run->name = argv[optind];
    if (!name_is_good("run", run->name))
        return false;
    quoted(run->name, run->shown, sizeof run->shown);
    /* Options may follow the name too (flock's `FILE -c TEXT`), up to "--" or the command. getopt skips the first word of
     * argv, so that is the name now. */
    argc -= optind;
    argv += optind;
    optind = 0;
    argv[0] = own_name;
    if (!read_some(run, argc, argv, code))
        return false;
    *code = read_command(run, argc, argv);
    return *code == EXIT_DONE;
}
