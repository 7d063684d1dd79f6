/* break.c - `mortise break`: an operator ends the grant of another client.
 *
 * It ends only the grant that has the given token: if the lock has changed hands since the operator looked, nothing is
 * done. The server checks and acts in one step. */
#include "commands.h"
#include "connect.h"
#include "exit_code.h"
#include "holders.h"
#include "migration.h"
#include "options.h"
#include "output.h"
#include "text.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
    "Usage: mortise break NAME --token TOKEN\n"
    "Takes the lock NAME from its holder, if its token is still TOKEN (`mortise status NAME`\n"
    "shows it). If the lock changed hands meanwhile, nothing is done. If several leases share\n"
    "the lock, takes only that with this token; the others keep it. For operators: first make\n"
    "sure that the holder is dead, or that two holders at once do no harm, because the holder\n"
    "learns of the loss only at its next renewal. Does not break the presence of a client of the\n"
    "plugin migrate: end that client instead.\n"
    "\n"
    "      --token TOKEN         the token of the holder\n"
    "  -C, --config FILE|URL     config file or URL\n"
    "\n"
    "Exit code: 0 done, 1 nothing done (changed hands, or not held), 64 usage,\n"
    "69 backend unreachable or cannot do it, or no answer: the message says whether the break may\n"
    "still have happened, 78 config.\n";

enum { OPTION_TOKEN = OPTION_PRIVATE };
static const struct option options[] = {
    {"token", required_argument, NULL, OPTION_TOKEN}, COMMON_OPTIONS, {0}};

static void name_holder(const mortise_info *info, char *text, size_t size)
{
    char host[4 * sizeof info->host];

    if (info->host[0] == '\0')
        snprintf(text, size, "its holder");
    else
        snprintf(text, size, "%s (pid %" PRId64 ")", printable(info->host, host, sizeof host),
                 info->pid);
}

static int changed_hands(mortise_client *client, const char *name, const char *shown,
                         uint64_t token)
{
    char holder[512];
    mortise_info info = {.size = sizeof info};

    if (mortise_inspect(client, name, &info, NULL) != MORTISE_OK || !info.held) {
        say("%s changed hands: it is no longer held with token %" PRIu64 "; nothing was done",
            shown, token);
        return EXIT_NOTHING_DONE;
    }
    name_holder(&info, holder, sizeof holder);
    if (info.mode == MORTISE_SHARED && holders_count(&info) > 1)
        say("%s is held by %" PRIu32 " shared leases, and none has token %" PRIu64
            "; nothing was done",
            shown, holders_count(&info), token);
    else
        say("%s changed hands: %s holds it with token %" PRIu64 ", not %" PRIu64
            "; nothing was done",
            shown, holder, info.token, token);
    return EXIT_NOTHING_DONE;
}

/* A presence must not be broken: its client would still hold locks, and a step of a migration would not wait for that
 * client. */
static bool is_presence(const char *name)
{
    const char *own = strstr(name, MIGRATE_PRESENCES);
    unsigned phase;

    return own != NULL && migrate_presence_decode(own, &phase, NULL);
}

static bool look_at_holder(const mortise_info *info, void *user_data)
{
    mortise_info *wanted = user_data;

    if (info->token != wanted->token)
        return true;
    *wanted = *info;
    return false;
}

static int break_grant(mortise_client *client, const char *name, uint64_t token)
{
    char shown[QUOTED_SIZE], holder[512];
    mortise_info info = {.size = sizeof info, .token = token};
    mortise_error error;

    quoted(name, shown, sizeof shown);
    if (is_presence(name)) {
        say("%s is the presence of a client of the plugin migrate; nothing was done. Without it, a "
            "step would not wait for that client, which may hold locks. End the client: its "
            "presence ends within the `presence` of its config (30 s by default)",
            shown);
        return EXIT_NOTHING_DONE;
    }
    /* ask first, for the message only: mortise_break() checks the token itself */
    mortise_holders(client, name, look_at_holder, &info, NULL);
    mortise_status status = mortise_break(client, name, token, &error);
    switch (status) {
    case MORTISE_OK:
        name_holder(&info, holder, sizeof holder);
        say("broke %s: the grant with token %" PRIu64 " was taken from %s", shown, token, holder);
        return EXIT_DONE;
    case MORTISE_NOTOWNER:
        return changed_hands(client, name, shown, token);
    case MORTISE_LOST:
        say("nobody holds %s; nothing was done (`mortise list` shows the names that are held)",
            shown);
        return EXIT_NOTHING_DONE;
    case MORTISE_INDETERMINATE:
        say_error(&error);
        say("it is unknown whether %s was broken; `mortise status` shows it", shown);
        return exit_code_of(status);
    default:
        say_error(&error);
        return exit_code_of(status);
    }
}

int command_break(int argc, char **argv)
{
    int option, code = EXIT_DONE;
    uint64_t token = 0;

    while ((option = getopt_long(argc, argv, ":C:", options, NULL)) != -1) {
        if (option == OPTION_TOKEN) {
            if (!parse_number(optarg, 1, UINT64_MAX, &token)) {
                char shown[QUOTED_SIZE];
                return bad_usage(argv[0],
                                 "--token %.100s is not a token: it must be a number from 1",
                                 quoted(optarg, shown, sizeof shown));
            }
        } else if (option_common(option, argv, help, &code)) {
            return code;
        }
    }
    if (argc - optind != 1)
        return bad_usage(argv[0], argc > optind ? "only one lock can be named" : "no lock named");
    if (!name_is_good(argv[0], argv[optind]))
        return EXIT_BAD_USAGE;
    if (token == 0)
        return bad_usage(argv[0], "--token is missing; `mortise status NAME` shows it");
    mortise_client *client = open_client(&code);
    if (client == NULL)
        return code;
    code = break_grant(client, argv[optind], token);
    mortise_close(client, NULL);
    return code;
}
