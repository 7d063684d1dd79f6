/* run_signals.c - the signals of the wrapper: blocked at once, read from a descriptor.
 *
 * A signal that was ignored when the wrapper was started (nohup, a background job of a shell) stays ignored, for the
 * wrapper and for the command. */
#include "run.h"

#include "clock.h"
#include "exit_code.h"
#include "signal_set.h"
#include "text.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
static const int others[] = {SIGUSR1, SIGUSR2, SIGTSTP, SIGTTIN, SIGTTOU};
static const int always[] = {SIGCONT, SIGWINCH, SIGCHLD};
/* Always blocked: a closed stderr, and terminal calls from the background, must not end or stop the wrapper. */
static const int kept_off[] = {SIGPIPE, SIGTTOU};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

bool signals_take(struct run *run)
{
    sigemptyset(&run->handled);
    signal_set_add(&run->handled, ending, COUNT(ending));
    signal_set_add(&run->handled, others, COUNT(others));
    for (size_t i = 0; i < COUNT(always); i++)
        sigaddset(&run->handled, always[i]);
    sigset_t blocked = run->handled;
    for (size_t i = 0; i < COUNT(kept_off); i++)
        sigaddset(&blocked, kept_off[i]);
    pthread_sigmask(SIG_BLOCK, &blocked, &run->original_mask);
    /* If it stayed ignored, the kernel would reap the children. */
    run->child_ignored = signal_is_ignored(SIGCHLD);
    if (run->child_ignored)
        signal(SIGCHLD, SIG_DFL);
    run->signals = signalfd(-1, &run->handled, SFD_CLOEXEC | SFD_NONBLOCK);
    return run->signals >= 0;
}

/* The signal came from a run around this one, so it may have been typed. */
static volatile sig_atomic_t from_outer_run;

static void end_at_once(int number, siginfo_t *info, void *context)
{
    (void)context;
    if ((number == SIGINT || number == SIGQUIT) && (from_outer_run || info->si_code == SI_KERNEL))
        signals_die(number, true);
    _exit(EXIT_SIGNAL_BASE + number);
}

static void set_ending(const struct run *run, const struct sigaction *action, int how)
{
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < COUNT(ending); i++) {
        if (sigismember(&run->handled, ending[i]))
            sigaddset(&set, ending[i]);
    }
    if (how == SIG_BLOCK)
        pthread_sigmask(how, &set, NULL);
    for (size_t i = 0; i < COUNT(ending); i++) {
        if (sigismember(&set, ending[i]))
            sigaction(ending[i], action, NULL);
    }
    if (how == SIG_UNBLOCK)
        pthread_sigmask(how, &set, NULL);
}

void signals_end_at_once(const struct run *run)
{
    const struct sigaction action = {.sa_sigaction = end_at_once, .sa_flags = SA_SIGINFO};

    from_outer_run = terminal_typed(run, SIGINT, false);
    set_ending(run, &action, SIG_UNBLOCK);
}

void signals_held_back(const struct run *run)
{
    const struct sigaction action = {.sa_handler = SIG_DFL};

    set_ending(run, &action, SIG_BLOCK);
}

/* ---- A bounded end ---------------------------------------------------------------------------- */

enum { RELEASE_SECONDS = 2 };
#define TWICE_NS                                                                                   \
    INT64_C(250000000) /* timeout(1) sends its signal to the process and to its group */

static struct bounded_end bounded;
static volatile sig_atomic_t signalled;
static int64_t signalled_ns; /* other handlers are blocked while one runs */
static char last_words[QUOTED_SIZE + 256];
static volatile sig_atomic_t words_length;

static _Noreturn void end_bounded(void)
{
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};

    /* A stuck reader must not block this process, because the other signals are blocked here. */
    for (ssize_t n = 1; words_length > 0 && n > 0 && poll(&out, 1, 0) == 1; words_length = 0)
        n = write(STDERR_FILENO, last_words, (size_t)words_length);
    if (bounded.number != 0)
        signals_die(bounded.number, bounded.alone);
    _exit(bounded.code);
}

static void on_bound(int number)
{
    const int saved = errno;

    if (number == SIGALRM || (signalled && boottime_ns() - signalled_ns > TWICE_NS))
        end_bounded();
    if (!signalled) {
        signalled = 1;
        signalled_ns = boottime_ns();
        alarm(RELEASE_SECONDS);
    }
    errno = saved;
}

void signals_bound(const struct run *run, const struct bounded_end *end)
{
    struct sigaction action = {.sa_handler = on_bound, .sa_flags = SA_RESTART};
    sigset_t set;

    bounded = *end;
    if (end->signalled && !signalled) {
        signalled = 1;
        signalled_ns = boottime_ns();
        alarm(RELEASE_SECONDS);
    }
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    for (size_t i = 0; i < COUNT(ending); i++) {
        if (sigismember(&run->handled, ending[i]))
            sigaddset(&set, ending[i]);
    }
    action.sa_mask = set;
    for (size_t i = 0; i < COUNT(ending); i++) {
        if (sigismember(&set, ending[i]))
            sigaction(ending[i], &action, NULL);
    }
    sigaction(SIGALRM, &action, NULL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

void signals_last_words(const char *line)
{
    words_length = 0;
    snprintf(last_words, sizeof last_words, "%s", line);
    words_length = (sig_atomic_t)strlen(last_words);
}

bool signals_is_ending(int number)
{
    for (size_t i = 0; i < COUNT(ending); i++) {
        if (ending[i] == number)
            return true;
    }
    return false;
}

/* ---- Reading, stopping, dying ------------------------------------------------------------------ */

int signals_next(const struct run *run, bool *typed)
{
    struct signalfd_siginfo info;

    if (read(run->signals, &info, sizeof info) != (ssize_t)sizeof info)
        return 0;
    if (typed != NULL)
        *typed = info.ssi_code == SI_KERNEL;
    return (int)info.ssi_signo;
}

void signals_stop(const struct run *run, int number, bool alone)
{
    sigset_t stop;

    if (!sigismember(&run->handled, number))
        return; /* it is ignored: the wrapper must not be stopped */
    sigemptyset(&stop);
    sigaddset(&stop, number);
    kill(alone ? getpid() : 0, number);
    pthread_sigmask(SIG_UNBLOCK, &stop, NULL); /* stopped here, until it is continued */
    pthread_sigmask(SIG_BLOCK, &stop, NULL);
}

static bool is_pending(int number)
{
    sigset_t pending;

    return sigpending(&pending) == 0 && sigismember(&pending, number) == 1;
}

bool signals_was_continued(void)
{
    return is_pending(SIGCONT);
}

bool signals_others_are_stopped(void)
{
    return is_pending(SIGTTIN) || is_pending(SIGTTOU);
}

void signals_continue_others(void)
{
    const bool continued = signals_was_continued();
    const struct timespec at_once = {0};
    sigset_t own;

    kill(0, SIGCONT);
    sigemptyset(&own);
    sigaddset(&own, SIGCONT);
    if (!continued)
        sigtimedwait(&own, NULL, &at_once);
}

_Noreturn void signals_die(int number, bool alone)
{
    sigset_t set;
    const struct rlimit no_core = {0, 0};

    setrlimit(RLIMIT_CORE, &no_core); /* a core file of the wrapper is of no use */
    signal(number, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, number);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    kill(alone ? getpid() : 0, number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    _exit(EXIT_SIGNAL_BASE + number);
}
