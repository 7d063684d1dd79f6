/* process.c - child processes of tests, which exchange lines with them through pipes. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static bool spawn_between(struct test_process *process, const char *const *argv, int in, int out)
{
    posix_spawn_file_actions_t actions;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return false;
    posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    int failed = posix_spawn(&process->pid, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv,
                             environ);
    posix_spawn_file_actions_destroy(&actions);
    return failed == 0;
}

bool test_spawn(struct test_process *process, const char *const *argv)
{
    int to[2], from[2];
    *process = (struct test_process){.in = -1, .out = -1};
    if (pipe2(to, O_CLOEXEC) != 0)
        return false;
    if (pipe2(from, O_CLOEXEC) != 0) {
        close(to[0]);
        close(to[1]);
        return false;
    }
    bool spawned = spawn_between(process, argv, to[0], from[1]);
    close(to[0]);
    close(from[1]);
    if (spawned) {
        process->in = to[1];
        process->out = from[0];
        return true;
    }
    close(to[1]);
    close(from[0]);
    process->pid = 0;
    return false;
}

bool test_say(struct test_process *process, const char *format, ...)
{
    char line[4096];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof line - 1 || process->in < 0)
        return false;
    line[length++] = '\n';
    return write(process->in, line, (size_t)length) == length;
}

/* Cuts the first line off the buffer. */
static bool take_line(struct test_process *process, char *line, size_t size)
{
    char *end = memchr(process->buffer, '\n', process->used);
    if (!end)
        return false;
    size_t length = (size_t)(end - process->buffer);
    snprintf(line, size, "%.*s", (int)length, process->buffer);
    process->used -= length + 1;
    memmove(process->buffer, end + 1, process->used);
    return true;
}

bool test_hear(struct test_process *process, char *line, size_t size, int64_t timeout_ms)
{
    int64_t until_ms = test_now_ms() + timeout_ms;
    while (!take_line(process, line, size)) {
        int64_t left_ms = until_ms - test_now_ms();
        struct pollfd ready = {.fd = process->out, .events = POLLIN};
        if (process->out < 0 || process->used == sizeof process->buffer ||
            poll(&ready, 1, left_ms > 0 ? (int)left_ms : 0) <= 0)
            return false;
        ssize_t got = read(process->out, process->buffer + process->used,
                           sizeof process->buffer - process->used);
        if (got <= 0)
            return false;
        process->used += (size_t)got;
    }
    return true;
}

bool test_signal(struct test_process *process, int signal)
{
    return process->pid > 0 && kill(process->pid, signal) == 0;
}

static void forget(struct test_process *process)
{
    if (process->in >= 0)
        close(process->in);
    if (process->out >= 0)
        close(process->out);
    process->in = process->out = -1;
    process->pid = 0;
}

/* For tests/again.py, whatever the test says: no busy machine causes that. */
static void tell_crash(const struct test_process *process, int status)
{
    static const struct {
        int number;
        const char *name;
    } crashes[] = {
        {SIGILL, "ILL"}, {SIGABRT, "ABRT"}, {SIGBUS, "BUS"}, {SIGFPE, "FPE"}, {SIGSEGV, "SEGV"}};
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        if (WIFSIGNALED(status) && WTERMSIG(status) == crashes[i].number)
            fprintf(stderr, "process %d died by SIG%s\n", (int)process->pid, crashes[i].name);
}

int test_reap(struct test_process *process, int64_t timeout_ms)
{
    int status = -1;
    if (process->pid <= 0)
        return -1;
    int fd = (int)syscall(SYS_pidfd_open, process->pid, 0);
    struct pollfd ended = {.fd = fd, .events = POLLIN};
    bool has_ended = fd >= 0 && poll(&ended, 1, (int)timeout_ms) == 1;
    if (fd >= 0)
        close(fd);
    if (!has_ended || waitpid(process->pid, &status, 0) != process->pid)
        return -1;
    tell_crash(process, status);
    forget(process);
    return status;
}

void test_kill(struct test_process *process)
{
    if (process->pid <= 0)
        return;
    kill(process->pid, SIGKILL);
    test_reap(process, TEST_PATIENCE_MS);
}

int test_stdin_begin(const char *text)
{
    int pipes[2], former = dup(STDIN_FILENO);
    if (former < 0 || pipe(pipes) != 0 ||
        write(pipes[1], text, strlen(text)) != (ssize_t)strlen(text) ||
        dup2(pipes[0], STDIN_FILENO) < 0)
        abort();
    close(pipes[0]);
    close(pipes[1]);
    return former;
}

bool test_stdin_end(int former, const char *text)
{
    char rest[64] = "";
    ssize_t length = read(STDIN_FILENO, rest, sizeof rest - 1);
    dup2(former, STDIN_FILENO);
    close(former);
    return length == (ssize_t)strlen(text) && strcmp(rest, text) == 0;
}
