/* keeper_command.c - how the keeper starts the command: group, terminal, environment, signals.
 *
 * Runs in the keeper, which has no threads. The shared page says what goes into the command's environment. */
#include "keeper.h"

#include "exit_code.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

/* False, here and below: no memory. */
static bool set(const char *variable, const char *value)
{
    return setenv(variable, value, 1) == 0;
}

static bool set_number(const char *variable, uint64_t value)
{
    char text[32];

    snprintf(text, sizeof text, "%" PRIu64, value);
    return set(variable, text);
}

/* Appends a word, if there is one, to a list in the environment. */
static bool append_to(const char *variable, const char *word)
{
    const char *others = getenv(variable);
    char *list;

    if (word == NULL || word[0] == '\0')
        return true;
    if (asprintf(&list, "%s%s%s", others ? others : "", others ? " " : "", word) < 0)
        return false;
    const bool done = set(variable, list);
    free(list);
    return done;
}

/* Tells a run inside of this one about the runs around it. */
static bool set_outer(const struct keeper_page *page)
{
    return append_to(OUTER_OWNERS, getenv("MORTISE_OWNER")) &&
           append_to(OUTER_OWNERS, page->other_owners) &&
           append_to(OUTER_MIGRATING, page->migrating);
}

static bool set_environment(const struct keeper_page *page, int lease_fd)
{
    if (page->hide_config)
        unsetenv("MORTISE_CONFIG");
    return set_outer(page) && set("MORTISE_NAME", page->name) &&
           set("MORTISE_OWNER", page->owner) && set("MORTISE_DRIVER", page->driver) &&
           set_number("MORTISE_TOKEN", page->token) && set("MORTISE_TOKENS", page->tokens) &&
           set_number("MORTISE_LEASE_FD", (uint64_t)lease_fd);
}

/* The child, up to exec. It keeps the keeper's signal mask until the last moment: every signal is blocked. */
static _Noreturn void become_command(struct keeper_page *page, const struct keeper_setup *setup,
                                     int lease_fd, pid_t keeper)
{
    setpgid(0, 0);
    if (page->foreground)
        tcsetpgrp(setup->terminal, getpid());
    /* If the keeper is killed, the kernel kills the command too (the wrapper then gets its children). The keeper may have
     * died before this line, so check its pid afterwards. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != keeper)
        _exit(EXIT_SYSTEM);
    /* The keeper stores it as well, unless it is killed before. */
    atomic_store(&page->command_pid, getpid());
    if (!set_environment(page, lease_fd)) {
        atomic_store(&page->start_errno, ENOMEM);
        _exit(EXIT_SYSTEM);
    }
    fcntl(lease_fd, F_SETFD, 0);
    if (setup->command_ignores_child)
        signal(SIGCHLD, SIG_IGN);
    sigprocmask(SIG_SETMASK, &setup->command_mask, NULL);
    execvp(setup->command[0], setup->command);
    atomic_store(&page->start_errno, errno);
    _exit(errno == ENOENT || errno == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}

pid_t command_start(struct keeper_page *page, const struct keeper_setup *setup, int lease_fd)
{
    const pid_t keeper = getpid();
    pid_t pid = fork();

    if (pid == 0)
        become_command(page, setup, lease_fd, keeper);
    if (pid > 0)
        setpgid(pid, pid); /* both processes do it, because either may be first; fails after exec */
    return pid;
}
