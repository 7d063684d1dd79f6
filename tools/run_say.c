/* run_say.c - the messages of `mortise run`. The reader of stderr may be stuck (a full pipe, ^S on a terminal). That must
 * neither stop the renewals nor delay the release. So a line that stderr does not take now is kept, and written later. */
#include "run.h"

#include "clock.h"
#include "output.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { KEPT_MAX = 8, LINE_SIZE = 4000, PATIENCE_MS = 1000 };

static char kept[KEPT_MAX][LINE_SIZE];
static size_t kept_count;

void run_say_kept(void)
{
    size_t said = 0;

    while (said < kept_count && say_if_possible("%s", kept[said]))
        said++;
    kept_count -= said;
    if (said > 0)
        memmove(kept, kept + said, kept_count * sizeof kept[0]);
}

void run_say(const char *format, ...)
{
    char line[LINE_SIZE];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    run_say_kept();
    if ((kept_count > 0 || !say_if_possible("%s", line)) && kept_count < KEPT_MAX)
        memcpy(kept[kept_count++], line, sizeof line);
}

void run_say_last(void)
{
    const int64_t end_ns = boottime_ns() + PATIENCE_MS * INT64_C(1000000);
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};

    while (kept_count > 0) {
        const int64_t left_ns = end_ns - boottime_ns();
        if (left_ns <= 0)
            return;
        poll(&out, 1, (int)(left_ns / 1000000) + 1);
        run_say_kept();
    }
}
