/* config_errors.c - messages about a configuration; they begin with its file and line, or its URL. */
#include "base/status.h"
#include "config/config_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SOURCE_SHOWN 400 /* if a path is longer, messages show only its end */

mortise_status config_failed(const struct config *config, size_t line, const char *section,
                             mortise_error *error, const char *format, ...)
{
    char text[sizeof(((mortise_error *)NULL)->message)], place[32] = "", part[SECTION_MAX + 8] = "";
    size_t length = strlen(config->source);
    bool cut = length > SOURCE_SHOWN;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (line > 0)
        snprintf(place, sizeof(place), ":%zu", line);
    if (section != NULL)
        snprintf(part, sizeof(part), "[%.*s] ", SECTION_MAX, section);
    return failed(error, MORTISE_CONFIG, "%s%s%s: %s%s", cut ? "..." : "",
                  config->source + (cut ? length - SOURCE_SHOWN : 0), place, part, text);
}

mortise_status config_no_memory(mortise_error *error)
{
    return failed(error, MORTISE_NOMEM, "out of memory while the configuration was read");
}

const char *did_you_mean(const char *nearest, char *buffer, size_t size)
{
    buffer[0] = '\0';
    if (nearest != NULL)
        snprintf(buffer, size, " (did you mean \"%s\"?)", nearest);
    return buffer;
}
