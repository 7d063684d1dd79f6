/* run_terminal.c - who has the terminal: the wrapper's group or the command's.
 *
 * A shell gives the terminal to the job that it starts, which is the wrapper. The command runs in another group, so the
 * wrapper passes the terminal on and takes it back. SIGTTOU is always blocked. */
#include "run.h"

#include <fcntl.h>
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

void terminal_give(const struct run *run)
{
    if (terminal_is_ours(run) && command_group(run) > 0)
        tcsetpgrp(run->terminal, command_group(run));
}

void terminal_take(const struct run *run)
{
    if (terminal_is_commands(run))
        tcsetpgrp(run->terminal, run->group);
}
