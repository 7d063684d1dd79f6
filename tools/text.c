/* text.c - foreign bytes as text that is safe to show.
 *
 * Names, owners and host names come from other programs and may hold any byte. The command prints them to a terminal only
 * through printable() and quoted(). */
#include "text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

size_t utf8_length(const char *text)
{
    const unsigned char *t = (const unsigned char *)text;
    size_t length = t[0] < 0x80 ? 1 : t[0] >= 0xf0 ? 4 : t[0] >= 0xe0 ? 3 : t[0] >= 0xc2 ? 2 : 0;

    if (length == 0 || t[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < length; i++) {
        if ((t[i] & 0xc0) != 0x80)
            return 0;
    }
    bool overlong = (t[0] == 0xe0 && t[1] < 0xa0) || (t[0] == 0xf0 && t[1] < 0x90);
    bool surrogate = t[0] == 0xed && t[1] >= 0xa0;
    bool beyond = t[0] == 0xf4 && t[1] >= 0x90;
    return overlong || surrogate || beyond ? 0 : length;
}

uint32_t reordering_point(const char *text, size_t length)
{
    const unsigned char *t = (const unsigned char *)text;
    uint32_t point = 0;

    if (length == 2)
        point = (t[0] & 0x1fu) << 6 | (t[1] & 0x3fu);
    else if (length == 3)
        point = (t[0] & 0x0fu) << 12 | (t[1] & 0x3fu) << 6 | (t[2] & 0x3fu);
    bool reorders = point == 0x061c || point == 0x200e || point == 0x200f ||
                    (point >= 0x2028 && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069);
    return reorders ? point : 0;
}

/* The escape of a byte that must not be shown as it is, or of a C1 control (two bytes in UTF-8); its length, 0 if none
 * is needed. */
static size_t escape(const char *text, size_t length, char quote, char *escaped)
{
    unsigned char byte = (unsigned char)text[0];
    const char *named = byte == '\t' ? "\\t" : byte == '\n' ? "\\n" : byte == '\\' ? "\\\\" : NULL;

    if (named != NULL)
        return (size_t)snprintf(escaped, 12, "%s", named);
    if (quote != '\0' && byte == (unsigned char)quote)
        return (size_t)snprintf(escaped, 12, "\\%c", quote);
    if (length == 2 && byte == 0xc2 && (unsigned char)text[1] < 0xa0)
        return (size_t)snprintf(escaped, 12, "\\x%02x\\x%02x", byte, (unsigned char)text[1]);
    if (length == 0 || byte < 0x20 || byte == 0x7f)
        return (size_t)snprintf(escaped, 12, "\\x%02x", byte);
    if (reordering_point(text, length) != 0)
        return (size_t)snprintf(escaped, 12, "\\u%04x", reordering_point(text, length));
    return 0;
}

static size_t put(const char *text, char quote, char *buffer, size_t size)
{
    size_t used = 0;

    while (*text != '\0') {
        char escaped[12];
        size_t length = utf8_length(text);
        size_t escape_length = escape(text, length, quote, escaped);
        const char *piece = escape_length > 0 ? escaped : text;
        size_t piece_length = escape_length > 0 ? escape_length : length;
        if (used + piece_length >= size)
            break;
        memcpy(buffer + used, piece, piece_length);
        used += piece_length;
        text += length > 0 ? length : 1;
    }
    buffer[used] = '\0';
    return used;
}

const char *printable(const char *text, char *buffer, size_t size)
{
    put(text, '\0', buffer, size);
    return buffer;
}

const char *quoted(const char *text, char *buffer, size_t size)
{
    buffer[0] = '"';
    size_t used = put(text, '"', buffer + 1, size - 2);
    buffer[used + 1] = '"';
    buffer[used + 2] = '\0';
    return buffer;
}

size_t columns_of(const char *text)
{
    size_t columns = 0;
    mbstate_t state = {0};

    while (*text != '\0') {
        wchar_t wide;
        size_t length = mbrtowc(&wide, text, 4, &state);
        if (length == 0 || length > 4) { /* not valid in this locale: each byte takes a column */
            memset(&state, 0, sizeof state);
            length = 1;
            columns++;
        } else {
            int width = wcwidth(wide);
            columns += width > 0 ? (size_t)width : 0;
        }
        text += length;
    }
    return columns;
}
