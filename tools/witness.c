/* witness.c - `mortise witness`: releases the locks of processes of this user that have died. witness.h has the model. */
#include "witness.h"

#include "commands.h"
#include "exit_code.h"
#include "options.h"
#include "output.h"
#include "signal_set.h"
#include "text.h"
#include "witness_ask.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static const char help[] =
    "Usage: mortise witness [--socket PATH]\n"
    "Releases the locks of processes that have died, at once instead of after their ttl: for all\n"
    "programs of this user on this host that use Mortise. Runs in the foreground until TERM or\n"
    "INT. If the host dies, the ttl is still the answer.\n"
    "\n"
    "      --socket PATH         listen there; default: $XDG_RUNTIME_DIR/mortise/witness.sock\n"
    "                            (without that variable in /run/user/UID/mortise), for root\n"
    "                            /run/mortise/witness.sock. The directory must belong to the user\n"
    "                            and be closed to all others. A socket from systemd (LISTEN_FDS)\n"
    "                            is used instead\n"
    "\n"
    "Programs find it by themselves (`witness = auto` in the config). See docs/crash.md.\n"
    "Needs a kernel with pidfds (Linux 5.3).\n"
    "Exit code: 0 ended by a signal, 64 usage, 71 system error, 75 another witness listens there,\n"
    "78 the directory is not closed to others, or LISTEN_FDS is not one listening socket with a\n"
    "path.\n";

enum { OPTION_SOCKET = OPTION_PRIVATE };
static const struct option options[] = {
    {"socket", required_argument, NULL, OPTION_SOCKET}, COMMON_OPTIONS, {0}};

/* Each process needs three descriptors. */
static void raise_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static bool has_pidfds(void)
{
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (fd >= 0)
        close(fd);
    else
        say("witness: this system has no pidfds (Linux 5.3 and later): %s", strerror(errno));
    return fd >= 0;
}

/* Prints the real path: systemd may have passed a socket at another path than the one that was asked for. */
static void say_where(int listener)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t size = sizeof address - 1;
    char shown[QUOTED_SIZE];

    getsockname(listener, (struct sockaddr *)&address, &size);
    witness_say("listens on %s", quoted(address.sun_path, shown, sizeof shown));
}

static int serve(const char *path)
{
    static const int numbers[] = {SIGTERM, SIGINT};
    struct signalfd_siginfo ended_by;
    sigset_t ending;
    int code = EXIT_SYSTEM;

    sigemptyset(&ending);
    signal_set_add(&ending, numbers, sizeof numbers / sizeof numbers[0]);
    sigprocmask(SIG_BLOCK, &ending, NULL);
    signal(SIGPIPE, SIG_IGN);
    int signals = signalfd(-1, &ending, SFD_CLOEXEC | SFD_NONBLOCK);
    raise_limit();
    int listener = has_pidfds() ? witness_listen(path, &code) : -1;
    if (signals < 0 || listener < 0)
        return code;
    say_where(listener);
    code = peers_serve(listener, signals);
    /* Closing may wait for a backend that does not answer: the next signal ends the program. */
    while (read(signals, &ended_by, sizeof ended_by) == (ssize_t)sizeof ended_by)
        continue;
    witness_unlisten();
    sigprocmask(SIG_UNBLOCK, &ending, NULL);
    backends_end();
    return code;
}

int command_witness(int argc, char **argv)
{
    char standard[108] = "";
    const char *path = NULL;
    int option, code = EXIT_DONE;

    while ((option = getopt_long(argc, argv, ":C:", options, NULL)) != -1) {
        if (option == OPTION_SOCKET)
            path = optarg;
        else if (option_common(option, argv, help, &code))
            return code;
    }
    if (optind < argc)
        return bad_usage(argv[0], "it takes no arguments");
    if (path == NULL && !witness_default_path(standard, sizeof standard))
        return bad_usage(argv[0], "the default path is too long; give --socket");
    return serve(path != NULL ? path : standard);
}
