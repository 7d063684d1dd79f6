/* schema.c - single values by their schema row: parsing, ranges in words, the nearest word.
 *
 * Pure functions of their arguments: no file, no environment, no memory of their own (except the block of
 * option_infos). A value is parsed whole or not at all: trailing junk is an error.
 *
 * Beyond what driver.h says of a row: an INT or DURATION with minimum and maximum both 0 has no limits
 * (a duration is never negative), and `choices` of a DURATION are words that are allowed beside durations
 * ("forever"); number is -1 for the first of them, -2 for the second. */
#include "config/schema.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DURATION_WORDS "a duration such as 500ms, 30s or 2m"
#define WORD_MAX 64 /* longer words are not compared */

static const struct unit {
    const char *word;
    int64_t ms;
    int64_t from_ms; /* messages use the unit from here on: 24h, but 2d */
} units[] = {
    {"d", 86400000, 172800000},
    {"h", 3600000, 3600000},
    {"m", 60000, 60000},
    {"s", 1000, 1000},
    {"ms", 1, 1},
};
#define UNIT_COUNT (sizeof(units) / sizeof(units[0]))

/* ---- Durations and numbers ------------------------------------------------------------------- */

/* The decimal digits at *text, at least one; *text is moved behind them. */
static bool parse_digits(const char **text, int64_t *number)
{
    const char *at = *text;
    int64_t sum = 0;

    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(sum, 10, &sum) || __builtin_add_overflow(sum, *at - '0', &sum))
            return false;
    if (at == *text)
        return false;
    *text = at;
    *number = sum;
    return true;
}

bool parse_duration_ms(const char *text, int64_t *ms)
{
    int64_t number;

    if (strcmp(text, "0") == 0) {
        *ms = 0;
        return true;
    }
    if (!parse_digits(&text, &number))
        return false;
    for (size_t i = 0; i < UNIT_COUNT; i++)
        if (strcmp(text, units[i].word) == 0)
            return !__builtin_mul_overflow(number, units[i].ms, ms);
    return false;
}

const char *duration_text(int64_t ms, char *buffer, size_t size)
{
    for (size_t i = 0; i < UNIT_COUNT; i++)
        if (ms >= units[i].from_ms && ms % units[i].ms == 0) {
            snprintf(buffer, size, "%" PRId64 "%s", ms / units[i].ms, units[i].word);
            return buffer;
        }
    snprintf(buffer, size, "%" PRId64, ms);
    return buffer;
}

static bool parse_int(const char *text, int64_t *number)
{
    bool negative = *text == '-';
    char *end;

    if (text[negative] < '0' || text[negative] > '9')
        return false;
    errno = 0;
    long long parsed = strtoll(text, &end, 10);
    *number = parsed;
    return errno == 0 && *end == '\0';
}

/* ---- Choices --------------------------------------------------------------------------------- */

/* The place of `text` among "a|b|c", or -1. */
static int64_t choice_index(const char *choices, const char *text)
{
    size_t length = strlen(text);
    int64_t index = 0;

    if (choices == NULL || length == 0)
        return -1;
    for (const char *at = choices;; at++, index++) {
        size_t part = strcspn(at, "|");
        if (part == length && memcmp(at, text, length) == 0)
            return index;
        at += part;
        if (*at == '\0')
            return -1;
    }
}

/* Returns the length without the choices behind "||", which are accepted but not shown. */
static size_t shown_length(const char *choices)
{
    const char *hidden = strstr(choices, "||");
    return hidden != NULL ? (size_t)(hidden - choices) : strlen(choices);
}

/* "a|b|c" as "a, b or c", added to the buffer. */
static void add_choices(const char *choices, char *buffer, size_t size)
{
    size_t used = strlen(buffer);
    const char *end = choices + shown_length(choices);

    for (const char *at = choices; used < size;) {
        size_t part = strcspn(at, "|");
        bool last = at + part == end;
        const char *next = last ? end : at + part + 1;
        const char *after = last ? "" : next + strcspn(next, "|") == end ? " or " : ", ";
        int added = snprintf(buffer + used, size - used, "%.*s%s", (int)part, at, after);
        if (last || added < 0)
            return;
        used += (size_t)added;
        at += part + 1;
    }
}

static bool parse_bool(const char *text, int64_t *number)
{
    int64_t index = choice_index("no|yes|off|on|false|true|0|1", text);
    *number = index & 1;
    return index >= 0;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static bool is_limited(const mortise_option *option)
{
    return option->minimum != 0 || option->maximum != 0;
}

static bool in_range(const mortise_option *option, int64_t number)
{
    return !is_limited(option) || (number >= option->minimum && number <= option->maximum);
}

static bool parse_number(const mortise_option *option, const char *text, int64_t *number)
{
    switch (option->type) {
    case MORTISE_OPTION_TEXT:
        *number = 0;
        return true;
    case MORTISE_OPTION_INT:
        return parse_int(text, number) && in_range(option, *number);
    case MORTISE_OPTION_BOOL:
        return parse_bool(text, number);
    case MORTISE_OPTION_CHOICE:
        *number = choice_index(option->choices, text);
        return *number >= 0;
    case MORTISE_OPTION_DURATION:
        *number = -1 - choice_index(option->choices, text);
        return *number < 0 || (parse_duration_ms(text, number) && in_range(option, *number));
    }
    return false;
}

static void tell_limits(const mortise_option *option, const char *what, char *expected, size_t size)
{
    char range[RANGE_SIZE];

    if (is_limited(option))
        snprintf(expected, size, "%s, %s", what, option_range(option, range, sizeof(range)));
    else
        snprintf(expected, size, "%s", what);
}

static void tell_expected(const mortise_option *option, char *expected, size_t size)
{
    switch (option->type) {
    case MORTISE_OPTION_INT:
        tell_limits(option, "a whole number", expected, size);
        break;
    case MORTISE_OPTION_BOOL:
        snprintf(expected, size, "yes or no");
        break;
    case MORTISE_OPTION_DURATION:
        tell_limits(option, DURATION_WORDS, expected, size);
        break;
    case MORTISE_OPTION_CHOICE:
        snprintf(expected, size, "%s", "");
        add_choices(option->choices == NULL ? "" : option->choices, expected, size);
        break;
    default:
        snprintf(expected, size, "a text");
    }
}

bool parse_value(const mortise_option *option, const char *text, mortise_value *value,
                 char *expected, size_t size)
{
    int64_t number = 0;

    if (!parse_number(option, text, &number)) {
        tell_expected(option, expected, size);
        return false;
    }
    value->text = text;
    value->number = number;
    return true;
}

/* ---- In words -------------------------------------------------------------------------------- */

const char *option_type_word(mortise_option_type type)
{
    switch (type) {
    case MORTISE_OPTION_TEXT:
        return "text";
    case MORTISE_OPTION_INT:
        return "int";
    case MORTISE_OPTION_BOOL:
        return "bool";
    case MORTISE_OPTION_DURATION:
        return "duration";
    case MORTISE_OPTION_CHOICE:
        return "choice";
    }
    return NULL;
}

static void duration_range(const mortise_option *option, char *buffer, size_t size)
{
    char low[DURATION_SIZE], high[DURATION_SIZE];

    if (is_limited(option))
        snprintf(buffer, size, "%s to %s", duration_text(option->minimum, low, sizeof(low)),
                 duration_text(option->maximum, high, sizeof(high)));
    if (option->choices == NULL)
        return;
    size_t used = strlen(buffer);
    snprintf(buffer + used, size - used, "%s", used > 0 ? ", or " : "");
    add_choices(option->choices, buffer, size);
}

const char *option_range(const mortise_option *option, char *buffer, size_t size)
{
    buffer[0] = '\0';
    if (option->type == MORTISE_OPTION_INT && is_limited(option))
        snprintf(buffer, size, "%" PRId64 " to %" PRId64, option->minimum, option->maximum);
    else if (option->type == MORTISE_OPTION_DURATION)
        duration_range(option, buffer, size);
    else if (option->type == MORTISE_OPTION_BOOL)
        snprintf(buffer, size, "yes|no");
    else if (option->type == MORTISE_OPTION_CHOICE && option->choices != NULL)
        snprintf(buffer, size, "%.*s", (int)shown_length(option->choices), option->choices);
    return buffer;
}

mortise_option_info *option_infos(const mortise_option *options, size_t count)
{
    size_t row = sizeof(mortise_option_info) + RANGE_SIZE;
    mortise_option_info *infos = calloc(count + 1, row); /* + 1: never of size 0 */

    if (infos == NULL)
        return NULL;
    char *ranges = (char *)(infos + count);
    for (size_t i = 0; i < count; i++, ranges += RANGE_SIZE) {
        const mortise_option *option = &options[i];
        infos[i].key = option->key;
        infos[i].type = option_type_word(option->type);
        infos[i].range = option_range(option, ranges, RANGE_SIZE);
        infos[i].default_text = option->default_text;
        infos[i].help = option->help == NULL ? "" : option->help;
        infos[i].secret = (option->flags & MORTISE_OPTION_SECRET) != 0;
    }
    return infos;
}

/* ---- Soundness of a schema ------------------------------------------------------------------- */

static bool row_sound(const mortise_option *row, char *problem, size_t size)
{
    char expected[RANGE_SIZE + 64];
    mortise_value value;

    if (option_type_word(row->type) == NULL)
        snprintf(problem, size, "%s has the unknown type %d", row->key, (int)row->type);
    else if (row->type == MORTISE_OPTION_CHOICE && (row->choices == NULL || *row->choices == '\0'))
        snprintf(problem, size, "%s has no choices", row->key);
    else if (row->minimum > row->maximum)
        snprintf(problem, size, "%s has a minimum above its maximum", row->key);
    else if (row->default_text != NULL && (row->flags & MORTISE_OPTION_REQUIRED) != 0)
        snprintf(problem, size, "%s is required and has a default", row->key);
    else if (row->default_text != NULL && strchr(row->default_text, '$') == NULL &&
             !parse_value(row, row->default_text, &value, expected, sizeof(expected)))
        snprintf(problem, size, "%s has the default \"%s\", expected %s", row->key,
                 row->default_text, expected);
    else
        return true;
    return false;
}

bool schema_sound(const mortise_option *schema, size_t count, char *problem, size_t size)
{
    for (size_t i = 0; i < count; i++) {
        if (schema[i].key == NULL || schema[i].key[0] == '\0') {
            snprintf(problem, size, "row %zu has no key", i);
            return false;
        }
        if (!row_sound(&schema[i], problem, size))
            return false;
        for (size_t k = 0; k < i; k++)
            if (strcmp(schema[k].key, schema[i].key) == 0) {
                snprintf(problem, size, "%s is in it twice", schema[i].key);
                return false;
            }
    }
    return true;
}

/* ---- The nearest word ------------------------------------------------------------------------ */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static bool same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* One row of the table of distances. above: the row before it; above2: the row before that one. */
static void distance_row(const char *a, size_t i, const char *b, size_t b_len, size_t *row,
                         const size_t *above, const size_t *above2)
{
    row[0] = i;
    for (size_t k = 1; k <= b_len; k++) {
        size_t cost = same_letter(a[i - 1], b[k - 1]) ? 0 : 1;
        row[k] = least(least(above[k] + 1, row[k - 1] + 1), above[k - 1] + cost);
        if (i > 1 && k > 1 && same_letter(a[i - 1], b[k - 2]) && same_letter(a[i - 2], b[k - 1]))
            row[k] = least(row[k], above2[k - 2] + 1);
    }
}

/* Returns the edit distance (a swap of neighbours counts one, upper and lower case are the same), or
 * `limit` + 1 if it is larger than `limit`. */
static size_t word_distance(const char *a, const char *b, size_t limit)
{
    size_t rows[3][WORD_MAX + 1];
    size_t a_len = strlen(a), b_len = strlen(b);
    size_t difference = a_len > b_len ? a_len - b_len : b_len - a_len;

    if (a_len > WORD_MAX || b_len > WORD_MAX || difference > limit)
        return limit + 1;
    for (size_t k = 0; k <= b_len; k++)
        rows[0][k] = k;
    for (size_t i = 1; i <= a_len; i++)
        distance_row(a, i, b, b_len, rows[i % 3], rows[(i + 2) % 3], rows[(i + 1) % 3]);
    return least(rows[a_len % 3][b_len], limit + 1);
}

const char *nearest_word(const char *word, const char *const *candidates, size_t count)
{
    size_t length = strlen(word);
    size_t limit = length < 2 ? 0 : length < 6 ? 1 : length / 3;
    const char *nearest = NULL;

    for (size_t i = 0; i < count; i++) {
        size_t distance = word_distance(word, candidates[i], limit);
        if (distance > limit)
            continue;
        nearest = candidates[i];
        if (distance == 0)
            break;
        limit = distance - 1;
    }
    return nearest;
}
