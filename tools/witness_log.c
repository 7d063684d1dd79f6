/* witness_log.c - the witness's lines on stderr. A stuck reader, or a flood of bad peers, must not stop it. */
#include "witness.h"

#include "clock.h"
#include "output.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

enum { LINES_A_SECOND = 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t second; /* which these belong to: */
static unsigned lines, dropped;

/* lock held. False: too many lines in this second. */
static bool may_write(void)
{
    int64_t now = boottime_ns() / 1000000000;
    if (now != second) {
        second = now;
        lines = 0;
    }
    return ++lines <= LINES_A_SECOND;
}

/* lock held. False: stderr takes no line now. */
static bool write_lines(const char *text)
{
    if (dropped > 0 && !say_if_possible("witness: %u lines were left out", dropped))
        return false;
    dropped = 0;
    return say_if_possible("witness: %s", text);
}

void witness_say(const char *format, ...)
{
    char text[1200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&lock);
    if (!may_write() || !write_lines(text))
        dropped++;
    pthread_mutex_unlock(&lock);
}
