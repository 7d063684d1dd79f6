/* history.c - reads the lines of a history: flat objects of strings and whole numbers, in a mapped file. */
#include "history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

bool word_is(struct word word, const char *text)
{
    return word.size == strlen(text) && memcmp(word.bytes, text, word.size) == 0;
}

static const char *skip_space(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r'))
        at++;
    return at;
}

/* A string, from its opening quote on; the place behind it, or NULL. */
static const char *read_string(const char *at, const char *end, struct word *word)
{
    if (at == end || *at != '"')
        return NULL;
    const char *first = ++at;
    while (at < end && *at != '"')
        at += *at == '\\' && end - at > 1 ? 2 : 1;
    if (at >= end)
        return NULL;
    *word = (struct word){first, (size_t)(at - first)};
    return at + 1;
}

static const char *read_number(const char *at, const char *end, struct word *word)
{
    const char *first = at;
    if (at < end && *at == '-')
        at++;
    const char *digits = at;
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    *word = (struct word){first, (size_t)(at - first)};
    return at > digits && at - digits < 21 ? at : NULL;
}

/* Both are bounded by read_number, and followed by something that is no digit. */
static bool to_signed(struct word word, int64_t *number)
{
    errno = 0;
    *number = strtoll(word.bytes, NULL, 10);
    return errno == 0;
}

static bool to_unsigned(struct word word, uint64_t *number)
{
    errno = 0;
    *number = strtoull(word.bytes, NULL, 10);
    return errno == 0 && word.bytes[0] != '-';
}

static bool set_text(struct line *line, struct word key, struct word value)
{
    const struct {
        const char *key;
        struct word *to;
    } keys[] = {{"event", &line->event},   {"name", &line->name},       {"owner", &line->owner},
                {"client", &line->client}, {"grant", &line->grant},     {"status", &line->status},
                {"name_hex", &line->name}, {"owner_hex", &line->owner}, {"text", &line->text},
                {"mode", &line->mode}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (word_is(key, keys[i].key))
            *keys[i].to = value;
    return true;
}

static bool set_number(struct line *line, struct word key, struct word value)
{
    const struct {
        const char *key;
        int64_t *to;
    } instants[] = {{"at_ns", &line->at_ns},
                    {"until_ns", &line->until_ns},
                    {"deadline_ns", &line->deadline_ns},
                    {"pid", &line->pid}};
    const struct {
        const char *key;
        uint64_t *to;
    } counts[] = {{"lease", &line->lease}, {"caller", &line->caller}, {"token", &line->token},
                  {"value", &line->value}, {"count", &line->count},   {"permits", &line->permits}};
    for (size_t i = 0; i < sizeof instants / sizeof *instants; i++)
        if (word_is(key, instants[i].key))
            return to_signed(value, instants[i].to);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (word_is(key, counts[i].key))
            return to_unsigned(value, counts[i].to);
    return true;
}

/* "key":value; the place behind it, or NULL. */
static const char *read_pair(struct line *line, const char *at, const char *end)
{
    struct word key, value;
    at = read_string(skip_space(at, end), end, &key);
    at = at ? skip_space(at, end) : NULL;
    if (!at || at == end || *at != ':')
        return NULL;
    at = skip_space(at + 1, end);
    if (at < end && *at == '"')
        return (at = read_string(at, end, &value)) && set_text(line, key, value) ? at : NULL;
    return (at = read_number(at, end, &value)) && set_number(line, key, value) ? at : NULL;
}

static bool read_line(struct line *line, const char *at, const char *end)
{
    at = skip_space(at, end);
    if (at == end || *at++ != '{')
        return false;
    do {
        at = read_pair(line, at, end);
        at = at ? skip_space(at, end) : NULL;
    } while (at && at < end && *at++ == ',');
    return at && at[-1] == '}' && skip_space(at, end) == end && line->event.size > 0;
}

static void read_lines(const char *path, const char *at, const char *end,
                       void (*each)(const struct line *),
                       void (*garbled)(const char *, unsigned long, bool))
{
    for (unsigned long number = 1; at < end && *at; number++) {
        struct line line = {.file = path, .number = number};
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop || !read_line(&line, at, stop))
            garbled(path, number, !stop);
        else
            each(&line);
        at = stop ? stop + 1 : end;
    }
}

bool history_read(const char *path, void (*each)(const struct line *line),
                  void (*garbled)(const char *path, unsigned long number, bool last))
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    void *bytes = MAP_FAILED;
    if (status.st_size > 0)
        bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (bytes != MAP_FAILED)
        read_lines(path, bytes, (const char *)bytes + status.st_size, each, garbled);
    return bytes != MAP_FAILED || status.st_size == 0;
}
