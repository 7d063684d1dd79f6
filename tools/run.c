/* run.c - `mortise run`: a command under a lock. The model, and the order of things.
 *
 * Three processes:
 *
 *   wrapper    this one. Has the library, the lease and the terminal's good manners; renews, passes
 *   |          signals on, and never touches the command itself.
 *   +- keeper      (keeper.c) forked before the library is opened, in a process group of its own.
 *      |           The command's parent, and subreaper: whoever is orphaned below it becomes its
 *      |           child, daemons in sessions of their own too, so that it knows when all are gone, and
 *      |           can kill all without guessing. Blocks every signal.
 *      +- command      in a process group of its own: the terminal's foreground if ours was.
 *
 * Who dies, and what then:
 * - The command: the keeper waits for the rest of its family, says DONE and ends; the wrapper releases
 *   the lock and ends with the command's code. Not before: the lock is not released while a process that
 *   was started under it still runs. From then on a signal does not change the code: the first gives the
 *   release two seconds, the second ends the wrapper at once.
 * - The wrapper (kill -9): the keeper reads end of file, sends TERM, soon after KILL. The lock stands
 *   until its ttl, longer than the family.
 * - The keeper (kill -9): the kernel kills the command (PR_SET_PDEATHSIG); the wrapper, a subreaper too,
 *   gets the rest, kills it, waits for it, and releases the lock.
 * - Nobody: a process that hangs in the kernel, or is another user's, cannot be killed. Whoever kills
 *   tries again, once a second in the end; the wrapper says which ones are left, and a signal ends it
 *   (76). The keeper stays and goes on trying.
 *
 * Loss. A page of shared memory says when to act: the wrapper moves it on as the lease is renewed, the
 * keeper does it: at deadline - grace - margin TERM, at deadline - margin KILL. So it makes no
 * difference whether the server is away or the wrapper is stopped, and nobody waits to be told. Before
 * it acts it asks the wrapper to look; that is the only timer, and the wrapper has none. A renewal that
 * is answered after TERM and before KILL calls the rest off. A lease that is lost early (an operator broke
 * it) is reported by the library; the wrapper passes that on. With --on-loss=warn nothing has to be ended
 * in time, so that the keeper acts at the deadline itself.
 *
 * Stops. ^Z reaches the command's group; the keeper reports it and the wrapper stops its own group, so
 * that the shell sees its job stopped. TSTP sent to the wrapper is passed on, and it stops once the
 * command has. Continued, it looks at the lease first: if that is lost the command is not continued; if
 * its renewal is overdue, the command is continued after the renewal. While all are stopped nothing is
 * renewed, and the keeper kills the command before the deadline.
 *
 * Signals are blocked from the first instant and read from a signalfd, in one poll loop with the
 * library's descriptor and the keeper's socket: there is no handler, and no thread but the library's. */
#include "run.h"

#include "clock.h"
#include "commands.h"
#include "connect.h"
#include "exit_code.h"
#include "output.h"
#include "text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static bool become_wrapper(struct run *run)
{
    struct keeper_setup setup;

    if (!signals_take(run))
        return false;
    terminal_open(run);
    setup = (struct keeper_setup){.command = run->command,
                                  .command_mask = run->original_mask,
                                  .command_ignores_child = run->child_ignored,
                                  .terminal = run->terminal};
    /* For the keeper's death only: it is the nearer one, and reaps while it lives. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return keeper_start(&run->keeper, &setup);
}

/* Releases the lock; the backend's answer decides whether it was ours to the end. */
static void release(struct run *run)
{
    char words[QUOTED_SIZE + 128] = "";
    mortise_error error;

    if (!run->lost)
        snprintf(words, sizeof words,
                 "mortise: %s was not released in time: it stays locked until its ttl has passed\n",
                 run->shown);
    signals_last_words(words);
    /* A lost lock, or one that was given up because it was late, is nothing to wait for. */
    mortise_status status = run->lost ? mortise_release_nowait(run->lease, &error)
                                      : mortise_release(run->lease, &error);
    signals_last_words("");
    run->lease = NULL;
    if (status == MORTISE_LOST || status == MORTISE_NOTOWNER) {
        if (!run->lost)
            say("%s: the lock was lost before the command ended", run->shown);
        run->lost = true;
    } else if (status != MORTISE_OK && !run->lost) {
        say("%s could not be released: it stays locked until its ttl has passed: %s", run->shown,
            error.message);
    }
}

static int say_start_error(const struct run *run, int number)
{
    char shown[QUOTED_SIZE];

    say("cannot run %s: %s", quoted(run->command[0], shown, sizeof shown), strerror(number));
    return number == ENOENT || number == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
}

static int code_of_command(const struct run *run)
{
    int number = atomic_load(&run->keeper.page->start_errno);

    if (number != 0 && atomic_load(&run->keeper.page->command_pid) == 0) {
        say("cannot start a process: %s", strerror(number));
        return EXIT_SYSTEM;
    }
    if (number != 0)
        return say_start_error(run, number);
    if (WIFSIGNALED(run->wait_status))
        return EXIT_SIGNAL_BASE + WTERMSIG(run->wait_status);
    return WEXITSTATUS(run->wait_status);
}

/* ^C was typed while the command had the terminal: a script that runs us must see it too, as it would
 * without us, or it goes on with its next line. */
static int typed_signal(const struct run *run)
{
    int number = WIFSIGNALED(run->wait_status) ? WTERMSIG(run->wait_status) : 0;

    if (!run->had_terminal || run->lost || number == run->passed_on)
        return 0;
    return number == SIGINT || number == SIGQUIT ? number : 0;
}

enum { CLOSE_SECONDS = 1 };

/* If the lock was lost, or a signal ended the wait, an unresponsive backend must not keep us: it drops
 * by itself what it has of us. */
static void close_client(struct run *run, const struct bounded_end *end)
{
    signals_bound(run, end);
    if (run->lost && !end->signalled)
        alarm(CLOSE_SECONDS);
    mortise_close(run->client, NULL);
    alarm(0);
    signals_held_back(run);
}

static bool died_of(const struct run *run, int number)
{
    return WIFSIGNALED(run->wait_status) && WTERMSIG(run->wait_status) == number;
}

/* A renewal came after TERM: a command that ended in the grace, or dies of TERM, did not end by itself. One that
 * ignored TERM and went on under the renewed lock did. */
static bool ended_because_told(const struct run *run)
{
    const struct keeper_page *page = run->keeper.page;

    if (!run->told_to_end ||
        atomic_load(&page->ended_ns) == 0) /* 0: the keeper was killed before */
        return false;
    return atomic_load(&page->ended_ns) <= atomic_load(&page->grace_end_ns) ||
           (died_of(run, SIGTERM) && run->ending_signal != SIGTERM);
}

static int code_of_end(const struct run *run)
{
    return run->lost || ended_because_told(run) ? EXIT_LOST : code_of_command(run);
}

enum { SIGNAL_COUNTS_MS = 5000 };

/* Whether a signal asked for this end, so that the release is bounded from the start. One that the command outlived
 * by long did not. */
static bool was_signalled(const struct run *run)
{
    if (run->ending_signal == 0)
        return false;
    return died_of(run, run->ending_signal) ||
           boottime_ns() <= run->signal_ns + SIGNAL_COUNTS_MS * INT64_C(1000000);
}

static int run_under_lock(struct run *run)
{
    struct bounded_end end = {0};

    if (!run_wait(run, &end.code)) {
        keeper_stop(&run->keeper);
        end.signalled = run->interrupted;
        close_client(run, &end);
        return end.code;
    }
    run_hold(run);
    if (run->abandoned)
        exit(EXIT_LOST); /* not closed: that would release what still has a holder */
    /* Nothing is left of the command: from here on only the backend can keep us waiting. */
    keeper_stop(&run->keeper);
    end = (struct bounded_end){.code = code_of_end(run),
                               .number = typed_signal(run),
                               .signalled = was_signalled(run) || typed_signal(run) != 0};
    signals_bound(run, &end);
    release(run);
    if (run->lost)
        end = (struct bounded_end){.code = EXIT_LOST, .signalled = end.signalled};
    close_client(run, &end);
    if (end.number != 0)
        signals_die(run, end.number);
    return end.code;
}

/* Root and each other user have a default database of their own: a lock that a crontab of root takes does not keep
 * out the shell of another user. Not in a run inside of another one. */
static void say_default_database(const struct run *run)
{
    char text[512] = "", shown[QUOTED_SIZE];

    if (strcmp(mortise_config_source(run->client), "built-in defaults") != 0 ||
        isatty(STDERR_FILENO) != 1 || getenv("MORTISE_OWNER") != NULL)
        return;
    if (mortise_ping(run->client, text, sizeof text, NULL) == MORTISE_OK)
        say("no config file: the locks are this user's own (%s)",
            printable(text, shown, sizeof shown));
}

int command_run(int argc, char **argv)
{
    struct run run = {0};
    int code = EXIT_DONE;

    if (!run_read_options(&run, argc, argv, &code))
        return code;
    if (!become_wrapper(&run)) {
        say("cannot start: %s", strerror(errno));
        return EXIT_SYSTEM;
    }
    signals_end_at_once(&run);
    /* `status` shows the program that holds a lock: here it is the command that is of interest. */
    const char *slash = strrchr(run.command[0], '/');
    program_invocation_short_name =
        slash != NULL ? run.command[0] + (slash + 1 - run.command[0]) : run.command[0];
    run.client = open_client(&code);
    if (run.client != NULL)
        say_default_database(&run);
    signals_held_back(&run);
    if (run.client == NULL) {
        keeper_stop(&run.keeper);
        return code;
    }
    return run_under_lock(&run);
}
