/* note.c - see note.h. */
#include "note.h"

#include <string.h>

/* The next line of *rest; *rest moves behind it. */
static size_t cut_line(const char **rest, size_t *rest_len, const char **line)
{
    const char *end = *rest_len > 0 ? memchr(*rest, '\n', *rest_len) : NULL;
    size_t len = end != NULL ? (size_t)(end - *rest) : *rest_len;
    *line = *rest;
    *rest_len -= end != NULL ? len + 1 : len;
    *rest = end != NULL ? end + 1 : NULL;
    return len;
}

static void copy_text(char *to, size_t size, const char *text, size_t len)
{
    if (len > size - 1)
        len = size - 1;
    if (len > 0)
        memcpy(to, text, len);
    to[len] = '\0';
}

static int64_t read_pid(const char *text, size_t len)
{
    int64_t pid = 0;
    if (len == 0 || len > 10)
        return 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return 0;
        pid = pid * 10 + (text[i] - '0');
    }
    return pid;
}

void note_read(const char *note, size_t note_len, mortise_info *info)
{
    const char *line;
    size_t len = cut_line(&note, &note_len, &line);
    copy_text(info->host, sizeof(info->host), line, len);
    len = cut_line(&note, &note_len, &line);
    info->pid = read_pid(line, len);
    len = cut_line(&note, &note_len, &line);
    copy_text(info->program, sizeof(info->program), line, len);
}
