/* run.c - `mortise run`: a command under a lock. The model, and the order of things.
 *
 * Three processes:
 *
 *   wrapper    this process. It has the library, the lease and the terminal. It renews, passes signals on, and never
 *   |          acts on the command itself.
 *   +- keeper      (keeper.c) forked before the library is opened, in a process group of its own. It is the command's
 *      |           parent, and a subreaper: every process that is orphaned below it becomes its child, daemons in sessions
 *      |           of their own included. So it knows when all processes are gone, and can kill all of them without
 *      |           guessing. It blocks every signal.
 *      +- command      in a process group of its own; run_terminal.c says when it has the terminal.
 *
 * If one of them dies:
 * - The command: the keeper waits for the rest of its family, sends DONE and ends; the wrapper releases the lock and ends
 *   with the command's code. The lock is not released while a process that was started under it still runs. From the
 *   release on, a signal does not change the code: the first limits the release to two seconds, the second ends the
 *   wrapper at once.
 * - The wrapper (kill -9): the keeper reads end of file, sends TERM and soon after KILL. When no process is left, it
 *   releases the lock, as a witness does (docs/crash.md); a reader of the output does not wait for that. If the keeper is killed
 *   too, the kernel kills the command, and the lock stays held until its ttl. Processes that the command has started may live
 *   longer than that, because no process is left to kill them.
 * - The keeper (kill -9): the kernel kills the command (PR_SET_PDEATHSIG). The wrapper, a subreaper too, gets the rest,
 *   kills it, waits for it, and releases the lock.
 * - A process that hangs in the kernel, or runs as another user, cannot be killed. The keeper (or the wrapper) tries
 *   again and again, at last once a second. The wrapper prints which processes are left, and a signal ends it (EXIT_LOST). The
 *   keeper stays and goes on trying.
 *
 * Loss. A page of shared memory says when to act. The wrapper moves these instants on as the lease is renewed; the keeper
 * acts: TERM at deadline - grace - margin, KILL at deadline - margin. So it makes no difference whether the server is
 * unreachable or the wrapper is stopped. Before it acts, the keeper asks the wrapper to look; that is the only timer, and
 * the wrapper has none. A renewal that is answered after TERM and before KILL cancels the KILL. If a lease is lost early
 * (an operator broke it), the library reports it and the wrapper passes that on. With --on-loss=warn nothing has to end
 * in time, so the keeper acts at the deadline itself.
 *
 * A keeper that is stopped does not act. Once the lock is lost, the wrapper checks whether the keeper has begun to kill by the
 * deadline. If not, it kills the keeper, and everything goes on as after the keeper's death. Nothing helps if both are stopped.
 *
 * Stops. ^Z reaches the command's group. The keeper reports it and the wrapper stops its own group, so that the shell sees
 * its job stopped. If TSTP is sent to the wrapper, it passes TSTP on, and stops once the command has. When the wrapper is
 * continued, it checks the lease first: if the lease is lost, the command is not continued; if its renewal is overdue, the
 * command is continued after the renewal. While all are stopped nothing renews, and the keeper kills the command before
 * the deadline. If the command has ended, the processes that it left in its group take its place. A stopped one would hold the
 * lock forever, and a signal that should end it would stay pending. So such a signal is followed by CONT.
 *
 * The wrapper blocks signals from the first instant and reads them from a signalfd, in one poll loop with the library's
 * descriptor and the keeper's socket. While the command runs there is no handler. Besides the library's threads, there is one
 * thread for each question to the backend for which the loop must not wait (run_notice.c, run_ours.c). */
#include "run.h"

#include "clock.h"
#include "commands.h"
#include "connect.h"
#include "exit_code.h"
#include "output.h"
#include "ping.h"
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
    /* This matters only after the keeper's death: while the keeper lives, it is the nearer subreaper. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return keeper_start(&run->keeper, &setup);
}

/* Releases the lock; the backend's answer decides whether we held it until the end. */
static void release(struct run *run)
{
    char words[QUOTED_SIZE + 128] = "";
    mortise_error error;

    if (!run->lost)
        snprintf(words, sizeof words,
                 "mortise: %s was not released in time: it stays locked, at the latest until its "
                 "ttl ends\n",
                 run->shown);
    signals_last_words(words);
    /* If the lock is lost, there is no answer to wait for. */
    mortise_status status = run_release(run, !run->lost, &error);
    signals_last_words("");
    if (status == MORTISE_LOST || status == MORTISE_NOTOWNER) {
        if (!run->lost)
            run_say("%s: the lock was lost before the command ended", run->shown);
        run->lost = true;
    } else if (status == MORTISE_INDETERMINATE && !run->lost) {
        run_say(
            "%s: it is unknown whether the lock was held to the end, and whether it is released; "
            "its ttl ends it at the latest: %s",
            run->shown, error.message);
    } else if (status != MORTISE_OK && !run->lost) {
        /* the release goes on while the client is closed, and may have been executed */
        run_say("%s could not be released: it stays locked, at the latest until its ttl ends: %s",
                run->shown, error.message);
    }
}

static int say_start_error(const struct run *run, int number)
{
    char shown[QUOTED_SIZE];

    run_say("cannot run %s: %s%s", quoted(run->command[0], shown, sizeof shown), strerror(number),
            number == ENOENT   ? "; is it installed, and in PATH?"
            : number == EACCES ? "; is it a program, and executable (chmod +x)?"
                               : "");
    if (number == ENOMEM)
        return EXIT_SYSTEM;
    return number == ENOENT || number == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
}

static int code_of_command(const struct run *run)
{
    int number = atomic_load(&run->keeper.page->start_errno);

    if (number != 0 && atomic_load(&run->keeper.page->command_pid) == 0) {
        run_say("cannot start a process: %s", strerror(number));
        return EXIT_SYSTEM;
    }
    if (number != 0)
        return say_start_error(run, number);
    if (WIFSIGNALED(run->wait_status))
        return EXIT_SIGNAL_BASE + WTERMSIG(run->wait_status);
    return WEXITSTATUS(run->wait_status);
}

/* If ^C was typed while the command had the terminal, a script around the wrapper must see it too, as it would without the
 * wrapper. Otherwise the script goes on with its next line. The same holds if ^C was typed for the wrapper's group, and the
 * wrapper passed it on, or for the group of a run around it. */
static int typed_signal(const struct run *run)
{
    int number = WIFSIGNALED(run->wait_status) ? WTERMSIG(run->wait_status) : 0;

    if (run->lost || (number != SIGINT && number != SIGQUIT))
        return 0;
    return (number == run->passed_on ? run->passed_on_typed : run->had_terminal) ? number : 0;
}

enum { CLOSE_SECONDS = 1 };

/* If the lock was lost, or a signal ended the wait, a backend that does not answer must not delay the end: the claims that it
 * still has of this process end by themselves. */
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

/* A renewal came after TERM. A command that ended within the grace, or died of TERM, ended because of TERM. A command that
 * ignored TERM and went on under the renewed lock did not. */
static bool ended_because_told(const struct run *run)
{
    const struct keeper_page *page = run->keeper.page;

    if (!run->told_to_end || atomic_load(&page->ended_ns) == 0) /* 0: the keeper was killed first */
        return false;
    return atomic_load(&page->ended_ns) <= atomic_load(&page->grace_end_ns) ||
           (died_of(run, SIGTERM) && run->ending_signal != SIGTERM);
}

static int code_of_end(const struct run *run)
{
    return run->lost || ended_because_told(run) ? EXIT_LOST : code_of_command(run);
}

enum { SIGNAL_COUNTS_MS = 5000 };

/* Whether a signal asked for this end: then the release is limited from the start. A signal long before the end does not
 * count. */
static bool was_signalled(const struct run *run)
{
    if (run->ending_signal == 0)
        return false;
    return died_of(run, run->ending_signal) ||
           boottime_ns() <= run->signal_ns + SIGNAL_COUNTS_MS * INT64_C(1000000);
}

static int end_as(const struct bounded_end *end)
{
    if (end->number != 0)
        signals_die(end->number, end->alone);
    return end->code;
}

static int run_under_lock(struct run *run)
{
    struct bounded_end end = {0};

    if (!run_wait(run, &end.code)) {
        end.number = run->typed_end;
        end.alone = true;
        end.signalled = run->interrupted;
        close_client(run, &end);
        keeper_stop(&run->keeper);
        run_say_last();
        return end_as(&end);
    }
    run_hold(run);
    if (run->abandoned) {
        run_say_last();
        exit(EXIT_LOST); /* do not close: that would release a lock that processes still use */
    }
    /* No process of the command is left: from here on only the backend can delay the end. The keeper waits: if this process
     * is killed now, it releases the locks. */
    end = (struct bounded_end){.code = code_of_end(run),
                               .number = typed_signal(run),
                               .alone = !run->had_terminal, /* the group has the signal already */
                               .signalled = was_signalled(run) || typed_signal(run) != 0};
    signals_bound(run, &end);
    release(run);
    if (run->lost)
        end = (struct bounded_end){.code = EXIT_LOST, .signalled = end.signalled};
    close_client(run, &end);
    keeper_stop(&run->keeper);
    run_say_last();
    return end_as(&end);
}

/* Each user has a default database of their own: a lock that a crontab of root acquires does not exclude the shell of another
 * user. Tell the user so, but not in a run inside of another one. */
static void say_default_database(const struct run *run)
{
    char text[512] = "", shown[QUOTED_SIZE];

    if (strcmp(mortise_config_source(run->client), "built-in defaults") != 0 ||
        isatty(STDERR_FILENO) != 1 || getenv("MORTISE_OWNER") != NULL)
        return;
    if (ping_server(run->client, text, sizeof text, NULL, 0, NULL) == MORTISE_OK)
        say("no config file: using this user's own database (%s)",
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
    /* `status` shows the program that holds a lock: show the command, not mortise. */
    const char *slash = strrchr(run.command[0], '/');
    program_invocation_short_name =
        slash != NULL ? run.command[0] + (slash + 1 - run.command[0]) : run.command[0];
    run.client = open_witnessed_client(run.keeper.witness, &code);
    if (run.client != NULL)
        say_default_database(&run);
    signals_held_back(&run);
    if (run.client == NULL) {
        keeper_stop(&run.keeper);
        return code;
    }
    return run_under_lock(&run);
}
