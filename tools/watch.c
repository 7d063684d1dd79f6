/* watch.c - `mortise watch`: the held locks, live.
 *
 * On a terminal it updates a table in place; elsewhere it prints a line for each change (acquired, passed on, released),
 * as text or JSON. It asks the backend as `mortise list` does, once an interval. */
#include "watch.h"

#include "commands.h"
#include "connect.h"
#include "duration.h"
#include "exit_code.h"
#include "holders.h"
#include "json.h"
#include "options.h"
#include "output.h"
#include "signal_set.h"
#include "table.h"
#include "text.h"
#include "witness_ask.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

static const char help[] =
    "Usage: mortise watch [--interval TIME] [--json] [PREFIX]\n"
    "Shows the held locks whose names begin with PREFIX, live. On a terminal it shows a table; q\n"
    "or ^C ends it. Elsewhere it prints a line for each change: time, event (held, passed,\n"
    "released), name, host, pid, token, mode, number of holders, with tabs between. If several\n"
    "leases share a lock, the line names the one with the smallest token, and the events joined\n"
    "and left say that the number has changed.\n"
    "\n"
    "      --interval TIME       how often to ask the backend (1s; 50ms to 1h)\n"
    "      --json                print one object per line for each change\n"
    "  -C, --config FILE|URL     config file or URL\n"
    "\n"
    "Exit code: 0 ended by q, 128+N by signal N, 64 usage, 69 backend unreachable at the start or\n"
    "cannot list, 78 config.\n";

enum { OPTION_INTERVAL = OPTION_PRIVATE, INTERVAL_MIN_MS = 50, INTERVAL_MAX_MS = 3600000 };
static const struct option options[] = {{"json", no_argument, NULL, OPTION_JSON},
                                        {"interval", required_argument, NULL, OPTION_INTERVAL},
                                        COMMON_OPTIONS,
                                        {0}};

struct watch {
    const char *prefix;
    int64_t interval_ms;
    bool as_json, in_place;
    mortise_client *client;
    struct asker *asker;
    struct snapshot now, before;
    bool answered; /* at least once */
    int signals;   /* -1: not in place */
};

/* ---- Lines ----------------------------------------------------------------------------------- */

static int64_t wall_ms(void)
{
    struct timespec time;

    clock_gettime(CLOCK_REALTIME, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void change_json(const char *event, const mortise_info *info)
{
    struct json json = {.out = stdout};

    json_open(&json, '{');
    json_int(&json, "at_ms", wall_ms());
    json_text(&json, "event", event);
    holders_json(&json, info);
    json_close(&json, '}');
    putchar('\n');
}

static void change_line(const char *event, const mortise_info *info)
{
    char name[QUOTED_SIZE], host[4 * sizeof info->host], instant[32];
    time_t now = time(NULL);
    struct tm local;

    localtime_r(&now, &local);
    strftime(instant, sizeof instant, "%Y-%m-%dT%H:%M:%S%z", &local);
    printf("%s\t%s\t%s\t%s\t%" PRId64 "\t%" PRIu64 "\t%s\t%" PRIu32 "\n", instant, event,
           printable(info->name, name, sizeof name),
           info->host[0] ? printable(info->host, host, sizeof host) : "-", info->pid, info->token,
           info->mode == MORTISE_SHARED ? "shared" : "exclusive", holders_count(info));
}

static void change(const struct watch *watch, const char *event, const mortise_info *info)
{
    if (watch->as_json)
        change_json(event, info);
    else
        change_line(event, info);
}

static bool same_grant(const mortise_info *a, const mortise_info *b)
{
    return a->token == b->token && strcmp(a->owner, b->owner) == 0;
}

/* Returns what has happened to a name that is held in both answers; NULL: nothing. The former holder may have downgraded its lease,
 * and others may have joined it since. */
static const char *event_of(const mortise_info *then, const mortise_info *now)
{
    const uint32_t before = holders_count(then), after = holders_count(now);
    const bool is_same = same_grant(then, now);

    if (now->mode == MORTISE_SHARED && before != after && (then->mode == MORTISE_SHARED || is_same))
        return after > before ? "joined" : "left";
    return is_same ? NULL : "passed";
}

static void released(const struct watch *watch, const mortise_info *info)
{
    mortise_info gone = *info;

    gone.held = !watch->as_json; /* text names the last holder; JSON has no holder any more */
    change(watch, "released", &gone);
}

/* Both are in byte order, so one walk over both finds all changes. */
static void print_changes(const struct watch *watch)
{
    const struct snapshot *then = &watch->before, *now = &watch->now;
    size_t i = 0, j = 0;
    const char *event;

    while (i < then->count || j < now->count) {
        int order = i == then->count  ? 1
                    : j == now->count ? -1
                                      : strcmp(then->infos[i].name, now->infos[j].name);
        if (order < 0)
            released(watch, &then->infos[i++]);
        else if (order > 0)
            change(watch, "held", &now->infos[j++]);
        else if ((event = event_of(&then->infos[i++], &now->infos[j++])) != NULL)
            change(watch, event, &now->infos[j - 1]);
    }
    fflush(stdout);
}

/* ---- The table ------------------------------------------------------------------------------- */

static void write_title(const struct watch *watch, FILE *out)
{
    char prefix[QUOTED_SIZE], source[QUOTED_SIZE], instant[32];
    time_t now = time(NULL);
    struct tm local;

    localtime_r(&now, &local);
    strftime(instant, sizeof instant, "%H:%M:%S", &local);
    printable(watch->prefix, prefix, sizeof prefix);
    const char *where = mortise_config_source(watch->client);
    fprintf(out, "%s  %zu held%s%s  %s  (q quits)\n", instant, watch->now.count,
            prefix[0] ? ", prefix " : "", prefix,
            printable(where ? where : "", source, sizeof source));
    if (watch->answered && watch->now.status != MORTISE_OK)
        fprintf(out, "no answer: %s\n", watch->now.error.message);
    else
        fputs(watch->answered ? "\n" : "waiting for the first answer\n", out);
}

static void draw(const struct watch *watch)
{
    struct table table;
    char *text = NULL;
    size_t length = 0, rows, columns;
    FILE *out = must_have(open_memstream(&text, &length));

    screen_size(&rows, &columns);
    write_title(watch, out);
    holders_begin(&table);
    size_t room = rows > 4 ? rows - 4 : 1; /* title, message, head, "more" */
    for (size_t i = 0; i < watch->now.count && i < room; i++)
        holders_row(&table, &watch->now.infos[i]);
    table_write(&table, out, columns, with_colour());
    if (watch->now.count > room)
        fprintf(out, "and %zu more\n", watch->now.count - room);
    table_end(&table);
    fclose(out);
    screen_draw(text);
    free(text);
}

/* ---- The loop -------------------------------------------------------------------------------- */

/* A failed first answer ends the command; a later failure leaves the last answer on the screen. */
static int on_answer(struct watch *watch)
{
    struct snapshot fresh = {0};

    if (!asker_take(watch->asker, &fresh))
        return -1;
    if (fresh.status != MORTISE_OK) {
        if (!watch->answered || fresh.status == MORTISE_NOTSUP) {
            const int code = exit_code_of(fresh.status);
            screen_close();
            say_error(&fresh.error);
            snapshot_free(&fresh);
            return code;
        }
        if (!watch->in_place && watch->now.status == MORTISE_OK)
            say_error(&fresh.error);
        watch->now.status = fresh.status;
        watch->now.error = fresh.error;
        snapshot_free(&fresh);
        return -1;
    }
    watch->answered = true;
    witness_ask_anew();
    snapshot_free(&watch->before);
    watch->before = watch->now;
    watch->now = fresh;
    if (!watch->in_place)
        print_changes(watch);
    return -1;
}

static void stop(void)
{
    sigset_t set;

    screen_close();
    sigemptyset(&set);
    sigaddset(&set, SIGTSTP);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    sigprocmask(SIG_BLOCK, &set, NULL);
    screen_open();
}

static int on_signals(struct watch *watch)
{
    struct signalfd_siginfo info;

    while (read(watch->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGTSTP)
            stop();
        else if (info.ssi_signo != SIGWINCH)
            return EXIT_SIGNAL_BASE + (int)info.ssi_signo;
    }
    return -1;
}

static int on_keys(void)
{
    char typed[32];
    ssize_t length = read(screen_keys(), typed, sizeof typed);

    if (length <= 0)
        return EXIT_DONE; /* the terminal is gone */
    return memchr(typed, 'q', (size_t)length) || memchr(typed, 'Q', (size_t)length) ? EXIT_DONE
                                                                                    : -1;
}

static int loop(struct watch *watch)
{
    int code = -1;

    while (code < 0) {
        struct pollfd fds[] = {{.fd = watch->signals, .events = POLLIN},
                               {.fd = asker_fd(watch->asker), .events = POLLIN},
                               {.fd = watch->in_place ? screen_keys() : -1, .events = POLLIN},
                               {.fd = watch->in_place ? -1 : STDOUT_FILENO, .events = 0}};
        if (watch->in_place)
            draw(watch);
        if (poll(fds, 4, -1) < 0)
            continue;
        if (fds[1].revents != 0)
            code = on_answer(watch);
        if (code < 0 && fds[2].revents != 0)
            code = on_keys();
        if (code < 0 && (fds[3].revents & (POLLERR | POLLHUP)) != 0)
            code = EXIT_DONE; /* the reader has seen enough */
        if (code < 0 && fds[0].revents != 0)
            code = on_signals(watch);
    }
    return code;
}

static void end_at_once(int number)
{
    _exit(EXIT_SIGNAL_BASE + number);
}

/* If the table is not updated in place, there is no terminal to restore, and a write may wait forever for a reader: so the
 * signals end or stop the process directly. -1: there is no descriptor. */
static int open_signals(bool in_place)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
    const struct sigaction action = {.sa_handler = end_at_once};
    sigset_t set;

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    signal_set_add(&set, numbers, sizeof numbers / sizeof numbers[0]);
    for (size_t i = 0; !in_place && i < sizeof numbers / sizeof numbers[0]; i++) {
        if (numbers[i] != SIGTSTP && sigismember(&set, numbers[i]))
            sigaction(numbers[i], &action, NULL);
    }
    if (!in_place) {
        sigprocmask(SIG_UNBLOCK, &set, NULL); /* the parent may have blocked them */
        setvbuf(stdout, NULL, _IOLBF, 0);     /* so that writes to a pipe end with a line */
        return -1;
    }
    sigaddset(&set, SIGWINCH);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int run_watch(struct watch *watch)
{
    int code = EXIT_DONE;

    watch->client = open_client(&code);
    if (watch->client == NULL)
        return code;
    witness_ask_begin(watch->client);
    watch->in_place = on_terminal() && !watch->as_json;
    watch->signals = open_signals(watch->in_place);
    watch->asker = asker_start(watch->client, watch->prefix, watch->interval_ms);
    if (watch->in_place) {
        must_have_calls(screen_close);
        screen_open();
    }
    code = loop(watch);
    screen_close();
    /* From here on a signal ends the command in any case, because closing may wait for a backend that does not answer. */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    mortise_close(watch->client, NULL);
    asker_stop(watch->asker);
    snapshot_free(&watch->now);
    snapshot_free(&watch->before);
    return code;
}

static bool read_interval(struct watch *watch)
{
    char shown[QUOTED_SIZE];

    if (parse_duration(optarg, &watch->interval_ms) && watch->interval_ms >= INTERVAL_MIN_MS &&
        watch->interval_ms <= INTERVAL_MAX_MS)
        return true;
    bad_usage("watch", "--interval %.100s is not a time between 50ms and 1h",
              quoted(optarg, shown, sizeof shown));
    return false;
}

int command_watch(int argc, char **argv)
{
    struct watch watch = {.interval_ms = 1000, .prefix = ""};
    int option, code = EXIT_DONE;

    while ((option = getopt_long(argc, argv, ":C:", options, NULL)) != -1) {
        if (option == OPTION_JSON)
            watch.as_json = true;
        else if (option == OPTION_INTERVAL && !read_interval(&watch))
            return EXIT_BAD_USAGE;
        else if (option != OPTION_INTERVAL && option_common(option, argv, help, &code))
            return code;
    }
    if (argc - optind > 1)
        return bad_usage(argv[0], "only one prefix can be given");
    watch.prefix = optind < argc ? argv[optind] : "";
    if (strlen(watch.prefix) > MORTISE_NAME_MAX)
        return bad_usage(argv[0], "the prefix is longer than %d bytes", MORTISE_NAME_MAX);
    return run_watch(&watch);
}
