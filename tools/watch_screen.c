/* watch_screen.c - draws over a terminal in place, and restores it.
 *
 * A frame is one write: cursor home, each line followed by "clear to its end", then "clear what is below". Nothing is
 * blanked first, so nothing flickers. */
#include "watch.h"

#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static struct termios before;
static int keys = -1;
static bool is_open;

static void put(const char *text, size_t length)
{
    while (length > 0) {
        ssize_t written = write(STDOUT_FILENO, text, length);
        if (written < 0 && errno != EINTR)
            return; /* the terminal is gone; SIGHUP will follow */
        if (written > 0) {
            text += written;
            length -= (size_t)written;
        }
    }
}

bool screen_open(void)
{
    static const char enter[] = "\033[?1049h\033[?25l\033[?7l";

    if (keys < 0)
        keys =
            isatty(STDIN_FILENO) ? STDIN_FILENO : open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (keys >= 0 && tcgetattr(keys, &before) == 0) {
        struct termios raw = before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO); /* ^C and ^Z stay signals */
        raw.c_cc[VMIN] = 1;
        raw.c_cc[VTIME] = 0;
        tcsetattr(keys, TCSADRAIN, &raw);
    }
    put(enter, sizeof enter - 1);
    is_open = true;
    return true;
}

void screen_close(void)
{
    static const char leave[] = "\033[?7h\033[?25h\033[?1049l";

    if (!is_open)
        return;
    is_open = false;
    put(leave, sizeof leave - 1);
    if (keys >= 0)
        tcsetattr(keys, TCSADRAIN, &before);
}

int screen_keys(void)
{
    return keys;
}

void screen_size(size_t *rows, size_t *columns)
{
    struct winsize size;

    *rows = 24;
    *columns = 80;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0) {
        *rows = size.ws_row;
        *columns = size.ws_col;
    }
}

void screen_draw(const char *text)
{
    char *frame = NULL;
    size_t length = 0, rows, columns, row = 0;
    FILE *out = must_have(open_memstream(&frame, &length));

    screen_size(&rows, &columns);
    fputs("\033[?2026h\033[H", out); /* a terminal that knows this shows the frame at once */
    while (*text != '\0' && row < rows) {
        size_t line = strcspn(text, "\n");
        fputs(row++ > 0 ? "\r\n" : "", out);
        fwrite(text, 1, line, out);
        fputs("\033[K", out);
        text += line + (text[line] == '\n');
    }
    fputs("\033[J\033[?2026l", out);
    fclose(out);
    put(frame, length);
    free(frame);
}
