/* output.c - what goes to the terminal: one-line messages, foreign bytes made harmless.
 *
 * Names, owners and host names come from other programs and may hold any byte: nothing of them reaches
 * a terminal but by printable() and quoted(). */
#include "tool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

void say(const char *format, ...)
{
    char line[4096] = "mortise: ";
    const size_t head = strlen(line);
    va_list arguments;

    va_start(arguments, format);
    int length = vsnprintf(line + head, sizeof line - head - 1, format, arguments);
    va_end(arguments);
    if (length < 0)
        return;
    size_t used = strlen(line);
    line[used++] = '\n';
    fflush(stdout);
    /* one write, so that lines of several processes do not mix; nobody is left to be told of failure */
    while (write(STDERR_FILENO, line, used) < 0 && errno == EINTR)
        continue;
}

void say_error(const mortise_error *error)
{
    const char *text = error->message[0] ? error->message : mortise_status_text(error->status);

    /* a core that names itself already is not named twice */
    say("%s", strncmp(text, "mortise: ", 9) == 0 ? text + 9 : text);
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

/* The escape of a byte that must not be shown as it is, or of a C1 control (two bytes in UTF-8). */
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
        if (length == 0 || length > 4) { /* not the locale's: a column a byte */
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

int finish_output(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    if (errno != EPIPE) /* a reader that has seen enough is no failure to talk about */
        say("cannot write the output: %s", strerror(errno));
    return code == EXIT_DONE ? EXIT_SYSTEM : code;
}
