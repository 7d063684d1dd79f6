/* run_terminal.c - which group has the terminal: the wrapper's or the command's.
 *
 * A shell gives the terminal to the job that it starts, which is the wrapper. The command runs in another group, so the
 * wrapper passes the terminal on and takes it back. SIGTTOU is always blocked.
 *
 * The job may be more than the wrapper: a pipeline, or a script that goes on beside it (`&`). If one of these processes reads
 * the terminal while the command has it, the kernel stops it with its whole group. So in such a job the command gets the
 * terminal only when it needs it: TTIN or TTOU then stops the command, and the wrapper gives it the terminal and continues it.
 * In the same way, the wrapper takes the terminal back if another process of its group needs it. Each such turn lets one call of
 * the process that wanted the terminal succeed. So both go on, as they would without a wrapper. */
#include "run.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

void terminal_open(struct run *run)
{
    run->group = getpgrp();
    run->terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
}

bool terminal_is_ours(const struct run *run)
{
    return run->terminal >= 0 && tcgetpgrp(run->terminal) == run->group;
}

static pid_t command_group(const struct run *run)
{
    return atomic_load(&run->keeper.page->command_pid);
}

bool terminal_is_commands(const struct run *run)
{
    return run->terminal >= 0 && command_group(run) > 0 &&
           tcgetpgrp(run->terminal) == command_group(run);
}

/* If a signal was typed for the group of a run around this one, a keeper passes it on to the whole group of this run. But if the
 * command had the terminal, it would have got the signal itself. */
static bool is_from_outer_run(const struct run *run)
{
    return run->terminal >= 0 && getenv("MORTISE_OWNER") != NULL && !terminal_is_commands(run);
}

bool terminal_typed(const struct run *run, int number, bool typed)
{
    return (number == SIGINT || number == SIGQUIT) && (typed || is_from_outer_run(run));
}

/* False in a pipeline, and behind the `&` of a script, where stdin is /dev/null. */
bool terminal_is_for_command(const struct run *run)
{
    return !run->terminal_shared && isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1 &&
           terminal_is_ours(run);
}

void terminal_give(const struct run *run)
{
    if (terminal_is_ours(run) && command_group(run) > 0)
        tcsetpgrp(run->terminal, command_group(run));
}

static void take(const struct run *run)
{
    tcsetpgrp(run->terminal, run->group);
    /* The wrapper may be about to end, and read no signal any more. */
    if (signals_others_are_stopped())
        signals_continue_others();
}

void terminal_take(const struct run *run)
{
    if (terminal_is_commands(run))
        take(run);
}

bool terminal_take_back(const struct run *run)
{
    pid_t pid = run->terminal >= 0 ? tcgetpgrp(run->terminal) : 0;

    if (pid == run->group)
        return true;
    /* The command may have given the terminal to a group below it, for example if it is another run. */
    while (pid > 1 && pid != run->keeper.pid && pid != command_group(run))
        pid = family_parent(pid);
    if (pid <= 1)
        return false;
    take(run);
    return true;
}
