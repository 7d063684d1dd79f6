/* duration.h - durations as people write and read them. */
#ifndef MORTISE_TOOLS_DURATION_H
#define MORTISE_TOOLS_DURATION_H

#include <stdbool.h>
#include <stdint.h>

/* Reads "500ms", "30s", "1.5m", "2h" or "1d"; a number alone is seconds. Gives milliseconds, rounded up. False if the
 * text is malformed, negative or more than a hundred years. */
bool parse_duration(const char *text, int64_t *ms);
#define DURATION_SIZE 32
/* Writes "12 s" or "1 h 5 min": at most two units, for people. Returns buffer. */
const char *format_duration(int64_t ms, char *buffer);

#endif
