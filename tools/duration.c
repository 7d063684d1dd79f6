/* duration.c - times as people write and read them.
 *
 * The notation is that of the config ("500ms", "30s", "2m"), and more: fractions ("1.5m"), and a number alone, which is
 * seconds, as in flock(1). */
#include "duration.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LONGEST_MS INT64_C(3155760000000) /* a hundred years */

static int64_t unit_ms(const char *unit)
{
    static const struct {
        const char *text;
        int64_t ms;
    } units[] = {{"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};

    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(unit, units[i].text) == 0)
            return units[i].ms;
    }
    return 0;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool parse_duration(const char *text, int64_t *ms)
{
    int64_t whole = 0, fraction = 0, scale = 1;
    const char *at = text;

    if (!is_digit(*at))
        return false;
    for (; is_digit(*at); at++) {
        whole = whole * 10 + (*at - '0');
        if (whole > LONGEST_MS)
            return false;
    }
    if (*at == '.') {
        if (!is_digit(*++at))
            return false;
        for (; is_digit(*at); at++) {
            if (scale < 1000000) { /* further digits make no difference in milliseconds */
                fraction = fraction * 10 + (*at - '0');
                scale *= 10;
            }
        }
    }
    int64_t unit = unit_ms(at);
    if (unit == 0 || whole > LONGEST_MS / unit)
        return false;
    *ms = whole * unit + (fraction * unit + scale - 1) / scale;
    return true;
}

const char *format_duration(int64_t ms, char *buffer)
{
    static const struct {
        const char *text, *lesser;
        int64_t ms, lesser_ms;
    } units[] = {
        {"d", "h", 86400000, 3600000}, {"h", "min", 3600000, 60000}, {"min", "s", 60000, 1000}};

    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (ms < units[i].ms)
            continue;
        int64_t rest = ms % units[i].ms / units[i].lesser_ms;
        int used =
            snprintf(buffer, DURATION_SIZE, "%" PRId64 " %s", ms / units[i].ms, units[i].text);
        if (rest > 0)
            snprintf(buffer + used, DURATION_SIZE - (size_t)used, " %" PRId64 " %s", rest,
                     units[i].lesser);
        return buffer;
    }
    if (ms >= 10000 || (ms >= 1000 && ms % 1000 == 0))
        snprintf(buffer, DURATION_SIZE, "%" PRId64 " s", ms / 1000);
    else if (ms >= 1000)
        snprintf(buffer, DURATION_SIZE, "%" PRId64 ".%" PRId64 " s", ms / 1000, ms % 1000 / 100);
    else
        snprintf(buffer, DURATION_SIZE, "%" PRId64 " ms", ms);
    return buffer;
}
