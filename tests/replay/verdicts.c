/* verdicts.c - what the checker of tests/torture finds passes through here.
 *
 * If the backend loses claims, two may hold a name until the first one learns it, and a grant may be lost while its reply
 * travels. So overlaps and the order of tokens prove nothing then; worker.c looks at the backend itself.
 *
 * One finding is left out if threads stand still by chance: that a lease was renewed after its end. The history has the
 * instant at which the renewal was recorded. A thread that stands still between the new deadline and the record makes
 * that late, although the deadline moved in time. The torture stops whole processes, and writes down when (verdict.c). */
#include "../torture/check.h"
#include "world_settings.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void __real_violation(enum violation kind, const char *file, unsigned long line, const char *format,
                      ...);
void __wrap_violation(enum violation kind, const char *file, unsigned long line, const char *format,
                      ...);

void __wrap_violation(enum violation kind, const char *file, unsigned long line, const char *format,
                      ...)
{
    char text[1024];
    va_list arguments;
    if (kind == OUTLIVED && run_has_stalls() && strstr(format, "renewed"))
        return;
    if ((kind == OVERLAP || kind == PERMITS || kind == ORDER) && run_has_losses())
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    __real_violation(kind, file, line, "%s", text);
}
