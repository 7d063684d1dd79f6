/* output.c - one-line messages on stderr, and the end of the output on stdout. */
#include "output.h"

#include "exit_code.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A file of O_PATH can neither be read nor written; open() returns the lowest free number. */
void keep_streams(void)
{
    int fd;

    do
        fd = open("/", O_PATH | O_CLOEXEC);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

static void say_line(const char *format, va_list arguments) __attribute__((format(printf, 1, 0)));
static void say_line(const char *format, va_list arguments)
{
    char line[4096] = "mortise: "; /* no longer than PIPE_BUF, see say_if_possible() */
    const size_t head = strlen(line);

    if (vsnprintf(line + head, sizeof line - head - 1, format, arguments) < 0)
        return;
    size_t used = strlen(line);
    line[used++] = '\n';
    fflush(stdout);
    /* One write, so that lines of several processes do not mix. A failure cannot be reported anywhere. */
    while (write(STDERR_FILENO, line, used) < 0 && errno == EINTR)
        continue;
}

void say(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    say_line(format, arguments);
    va_end(arguments);
}

/* A pipe that is writable takes PIPE_BUF bytes at once. O_NONBLOCK would be a flag of all processes that share stderr. */
bool say_if_possible(const char *format, ...)
{
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    va_list arguments;

    if (poll(&out, 1, 0) != 1)
        return false;
    va_start(arguments, format);
    say_line(format, arguments);
    va_end(arguments);
    return true;
}

const char *error_text(const mortise_error *error)
{
    const char *text = error->message[0] ? error->message : mortise_status_text(error->status);

    /* Messages of the core may begin with its name already. */
    return strncmp(text, "mortise: ", 9) == 0 ? text + 9 : text;
}

void say_error(const mortise_error *error)
{
    say("%s", error_text(error));
}

bool on_terminal(void)
{
    return isatty(STDOUT_FILENO) == 1;
}

bool with_colour(void)
{
    const char *no_colour = getenv("NO_COLOR"), *terminal = getenv("TERM");

    return on_terminal() && (no_colour == NULL || no_colour[0] == '\0') && terminal != NULL &&
           strcmp(terminal, "dumb") != 0;
}

int finish_output(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    if (errno != EPIPE) /* a reader that closes the pipe has seen enough */
        say("cannot write the output: %s", strerror(errno));
    return code == EXIT_DONE ? EXIT_SYSTEM : code;
}

static void (*before_the_end)(void);

void must_have_calls(void (*restore)(void))
{
    before_the_end = restore;
}

void *must_have(void *memory)
{
    if (memory != NULL)
        return memory;
    if (before_the_end != NULL)
        before_the_end();
    say("out of memory");
    exit(EXIT_SYSTEM);
}
