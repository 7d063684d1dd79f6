/* note.c - what stands in the nodes, and where they are. A contender's says "mortise/1 BASE", and in the
 * lines after it who it is; other clients' nodes say what they like. */
#include "driver.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARK "mortise/1 "

size_t note_write(const struct driver *driver, int64_t base, char data[DATA_MAX])
{
    int length = snprintf(data, DATA_MAX, MARK "%lld\n%.*s", (long long)base, (int)driver->note_len,
                          driver->note);
    return length < 0 ? 0 : length < DATA_MAX ? (size_t)length : DATA_MAX - 1;
}

/* One line of text into a field, cut to fit; the place behind it. */
static const char *take_line(const char *text, char *to, size_t size)
{
    size_t length = strcspn(text, "\n");
    snprintf(to, size, "%.*s", (int)length, text);
    return text + length + (text[length] == '\n');
}

int64_t note_read(const char *data, mortise_info *info)
{
    char *end, pid[24];
    if (data == NULL || strncmp(data, MARK, strlen(MARK)) != 0)
        return -1;
    long long base = strtoll(data + strlen(MARK), &end, 10);
    if (*end != '\n' || base < 0)
        return -1;
    const char *text = take_line(end + 1, info->host, sizeof(info->host));
    text = take_line(text, pid, sizeof(pid));
    info->pid = strtoll(pid, NULL, 10);
    take_line(text, info->program, sizeof(info->program));
    return base;
}

void path_of(const struct driver *driver, const char *folder, const char *node,
             char path[PATH_SIZE])
{
    if (folder == NULL)
        snprintf(path, PATH_SIZE, "%s", driver->root[0] == '\0' ? "/" : driver->root);
    else
        snprintf(path, PATH_SIZE, "%s/%s%s%s", driver->root, folder, node == NULL ? "" : "/",
                 node == NULL ? "" : node);
}

int64_t base_read(const struct request *request)
{
    char *end;
    if (request->text == NULL || request->text_size == 0)
        return -1;
    errno = 0;
    long long base = strtoll(request->text, &end, 10);
    return *end == '\0' && errno == 0 ? base : -1;
}
