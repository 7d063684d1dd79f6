/* serve.c - `mortise serve`: a read-only web page of the held locks, with metrics. serve.h has the model.
 *
 * A program of its own, so that `mortise run` does not load an HTTP library each time. The command `mortise serve`
 * executes it. */
#include "serve.h"

#include "connect.h"
#include "duration.h"
#include "exit_code.h"
#include "options.h"
#include "output.h"
#include "signal_set.h"
#include "text.h"
#include "witness_ask.h"

#include <getopt.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static const char help[] =
    "Usage: mortise serve [--listen HOST:PORT] [--token-file FILE] [--interval TIME] [PREFIX]\n"
    "Serves a read-only web page of the held locks whose names begin with PREFIX: who holds them,\n"
    "for how long, how many wait. Runs in the foreground until TERM, INT or HUP. The page cannot\n"
    "break a lock.\n"
    "\n"
    "      --listen HOST:PORT    listen there (127.0.0.1:9750). A socket from systemd\n"
    "                            (LISTEN_FDS) is used instead\n"
    "      --token-file FILE     visitors need the token that is in FILE, as a password or as a\n"
    "                            bearer token. Required for an address that other hosts can "
    "reach.\n"
    "                            16 to 512 characters; only this user may be able to read the "
    "file\n"
    "      --interval TIME       how often to ask the backend, for all visitors together (2s)\n"
    "  -C, --config FILE|URL     config file or URL\n"
    "\n"
    "/ is the page, /locks.json what it shows, /metrics for Prometheus, /healthz for probes (200 "
    "if\n"
    "the backend answers, else 503; needs no token). See docs/operating.md.\n"
    "Exit code: 0 ended by a signal, 64 usage, 69 the backend cannot list, 71 system error, 75\n"
    "another program listens there, 78 config or token file.\n";

enum {
    OPTION_LISTEN = OPTION_PRIVATE,
    OPTION_TOKEN_FILE,
    OPTION_INTERVAL,
    INTERVAL_MIN_MS = 200,
    INTERVAL_MAX_MS = 3600000
};
static const struct option options[] = {{"listen", required_argument, NULL, OPTION_LISTEN},
                                        {"token-file", required_argument, NULL, OPTION_TOKEN_FILE},
                                        {"interval", required_argument, NULL, OPTION_INTERVAL},
                                        COMMON_OPTIONS,
                                        {0}};

struct serve {
    const char *where, *token_file;
    struct board board;
    struct access access;
    struct listener listener;
    struct asker *asker;
    struct http *http;
    int signals;
};

/* ---- The loop -------------------------------------------------------------------------------- */

/* Returns an exit code, or -1. */
static int on_news(struct serve *serve)
{
    struct answer answer;

    if (!asker_take(serve->asker, &answer))
        return -1;
    if (answer.status == MORTISE_NOTSUP && serve->board.state == STARTING) {
        say_error(&answer.error);
        answer_free(&answer);
        return exit_code_of(MORTISE_NOTSUP);
    }
    board_on_answer(&serve->board, &answer);
    return -1;
}

/* The reader of stderr may be stuck, which must not stop the page or the handling of signals. */
static void announce(const struct board *board, enum backend_state before)
{
    if (board->state == DOWN && before != DOWN)
        say_if_possible("serve: no answer from the backend: %.1000s", board->error);
    else if (board->state == UP && before == DOWN)
        say_if_possible("serve: the backend answers again");
}

static int loop(struct serve *serve)
{
    int code = -1;

    while (code < 0) {
        struct pollfd fds[] = {{.fd = serve->signals, .events = POLLIN},
                               {.fd = asker_fd(serve->asker), .events = POLLIN},
                               {.fd = http_fd(serve->http), .events = POLLIN}};
        if (poll(fds, 3, http_timeout_ms(serve->http)) < 0)
            continue;
        struct signalfd_siginfo signal;
        if (read(serve->signals, &signal, sizeof signal) == (ssize_t)sizeof signal)
            return EXIT_DONE;
        const enum backend_state before = serve->board.state;
        if (fds[1].revents != 0)
            code = on_news(serve);
        board_on_time(&serve->board, asker_asks_since_ns(serve->asker));
        announce(&serve->board, before);
        http_run(serve->http);
    }
    return code;
}

static int open_signals(void)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    sigset_t set;

    sigemptyset(&set);
    signal_set_add(&set, numbers, sizeof numbers / sizeof numbers[0]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int run(struct serve *serve)
{
    witness_ask_never();
    serve->signals = open_signals();
    board_begin(&serve->board);
    serve->asker = asker_start(serve->board.client, serve->board.prefix, serve->board.interval_ms);
    serve->http = http_start(serve->listener.fd, &serve->access, &serve->board);
    say_if_possible("serve: %s", serve->listener.shown);
    const int code = loop(serve);
    http_stop(serve->http);
    /* From here on a signal ends the program, because closing may wait for a backend that does not answer. */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    board_end(&serve->board);
    mortise_close(serve->board.client, NULL);
    asker_stop(serve->asker);
    return code;
}

/* ---- The beginning --------------------------------------------------------------------------- */

static bool set_access(struct serve *serve, int *code)
{
    const struct listener *listener = &serve->listener;

    if (serve->token_file != NULL && !access_read_token(&serve->access, serve->token_file, code))
        return false;
    serve->access.check_host = listener->loopback;
    if (listener->loopback || listener->local || serve->access.token[0] != '\0')
        return true;
    *code =
        bad_usage("serve", "other hosts can reach %s, so it needs --token-file", listener->shown);
    return false;
}

static bool read_interval(struct serve *serve)
{
    int64_t *ms = &serve->board.interval_ms;
    char shown[QUOTED_SIZE];

    if (parse_duration(optarg, ms) && *ms >= INTERVAL_MIN_MS && *ms <= INTERVAL_MAX_MS)
        return true;
    bad_usage("serve", "--interval %.100s is not a time between 200ms and 1h",
              quoted(optarg, shown, sizeof shown));
    return false;
}

/* Returns an exit code, or -1: go on. */
static int read_options(struct serve *serve, int argc, char **argv)
{
    int option, code;

    while ((option = getopt_long(argc, argv, ":C:", options, NULL)) != -1) {
        if (option == OPTION_LISTEN)
            serve->where = optarg;
        else if (option == OPTION_TOKEN_FILE)
            serve->token_file = optarg;
        else if (option == OPTION_INTERVAL && !read_interval(serve))
            return EXIT_BAD_USAGE;
        else if (option != OPTION_INTERVAL && option_common(option, argv, help, &code))
            return code;
    }
    if (argc - optind > 1)
        return bad_usage("serve", "only one prefix can be given");
    serve->board.prefix = optind < argc ? argv[optind] : "";
    if (strlen(serve->board.prefix) > MORTISE_NAME_MAX)
        return bad_usage("serve", "the prefix is longer than %d bytes", MORTISE_NAME_MAX);
    return -1;
}

int main(int argc, char **argv)
{
    static char name[] = "serve";
    static struct serve serve = {.where = "127.0.0.1:9750", .board = {.interval_ms = 2000}};

    keep_streams();
    setlocale(LC_CTYPE, "");
    if (argc > 0)
        argv[0] = name; /* for messages: the user typed `mortise serve` */
    int code = read_options(&serve, argc, argv);
    if (code >= 0)
        return code;
    code = EXIT_DONE;
    if (!listen_open(serve.where, &serve.listener, &code) || !set_access(&serve, &code))
        return code;
    serve.board.client = open_client(&code);
    return serve.board.client != NULL ? run(&serve) : code;
}
