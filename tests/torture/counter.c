/* counter.c - the fenced counter of a torture run: see counter.h. */
#include "counter.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* All lines are equally long, filled up with spaces, and none crosses a page: the kernel copies a page at a time, and
 * ends the write between two of them if the process is killed. */
enum { LINE_SIZE = 128 };
_Static_assert(4096 % LINE_SIZE == 0, "a page is whole lines");
#define LINE_FORMAT                                                                                \
    "{\"event\":%-7s,\"token\":%20" PRIu64 ",\"value\":%20" PRIu64                                 \
    ",\"thread\":%10d,\"name\":\"%s\"}"

bool counter_open(struct counter *counter, const char *folder, const char *name)
{
    char path[4096];
    *counter = (struct counter){.fd = -1, .name = name};
    int length = snprintf(path, sizeof path, "%s/%s.counter.jsonl", folder, name);
    if (length > 0 && (size_t)length < sizeof path)
        counter->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    return counter->fd >= 0;
}

int plain_open(const char *folder, const char *name)
{
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/%s.count", folder, name);
    if (length < 0 || (size_t)length >= sizeof path)
        return -1;
    return open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

bool plain_read(int fd, int64_t *value)
{
    *value = 0;
    return pread(fd, value, sizeof *value, 0) >= 0;
}

bool plain_write(int fd, int64_t value)
{
    return pwrite(fd, &value, sizeof value, 0) == sizeof value;
}

void counter_close(struct counter *counter)
{
    close(counter->fd);
}

static bool make_line(const struct counter *counter, char *line, const char *event, uint64_t token,
                      uint64_t value)
{
    int length =
        snprintf(line, LINE_SIZE, LINE_FORMAT, event, token, value, (int)gettid(), counter->name);
    if (length < 0 || length >= LINE_SIZE)
        return false;
    memset(line + length, ' ', (size_t)(LINE_SIZE - length));
    line[LINE_SIZE - 1] = '\n';
    line[LINE_SIZE] = '\0';
    return true;
}

static bool number_behind(const char *line, const char *key, uint64_t *number)
{
    const char *place = strstr(line, key);
    if (place)
        *number = strtoull(place + strlen(key), NULL, 10);
    return place != NULL;
}

/* As the checker does it. False: it is no line of ours. *taken: a write that passed. */
static bool decide(struct counter *counter, const char *line, bool *taken)
{
    uint64_t token, value;
    bool is_write = strstr(line, "\"write\"") != NULL;
    if (!number_behind(line, "\"token\":", &token) || !number_behind(line, "\"value\":", &value))
        return false;
    *taken = is_write && token >= counter->fence;
    if (token > counter->fence)
        counter->fence = token;
    if (*taken)
        counter->value = value;
    return true;
}

/* Appends the line and decides all up to it, which others may have appended in the meantime. Ours is known by
 * the thread: what this one wrote before has been decided. */
static bool ask(struct counter *counter, const char *event, uint64_t token, uint64_t value,
                bool *taken)
{
    char line[LINE_SIZE + 1], seen[LINE_SIZE + 1];
    if (!make_line(counter, line, event, token, value) ||
        write(counter->fd, line, LINE_SIZE) != LINE_SIZE)
        return false;
    do {
        if (pread(counter->fd, seen, LINE_SIZE, counter->decided) != LINE_SIZE ||
            seen[LINE_SIZE - 1] != '\n')
            return false;
        seen[LINE_SIZE] = '\0';
        counter->decided += LINE_SIZE;
        if (!decide(counter, seen, taken))
            return false;
    } while (strcmp(seen, line) != 0);
    return true;
}

bool counter_read(struct counter *counter, uint64_t token, uint64_t *value)
{
    bool taken;
    bool done = ask(counter, "\"read\"", token, 0, &taken);
    *value = counter->value;
    return done;
}

bool counter_write(struct counter *counter, uint64_t token, uint64_t value, bool *taken)
{
    return ask(counter, "\"write\"", token, value, taken);
}
