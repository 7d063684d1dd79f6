/* note.c - the text in the nodes. The node of a contender says "mortise/1 BASE" in its first line and who made it
 * in the next ones; a line "shared" behind these says that the holder has made it shared. The nodes of other clients may say
 * anything. */
#include "session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARK "mortise/1 "
#define SHARED "shared"

size_t note_write(const struct driver *driver, int64_t base, bool downgraded, char data[DATA_MAX])
{
    int length = snprintf(data, DATA_MAX, MARK "%lld\n%.*s%s", (long long)base,
                          (int)driver->note_len, driver->note, downgraded ? "\n" SHARED : "");
    return length < 0 ? 0 : length < DATA_MAX ? (size_t)length : DATA_MAX - 1;
}

/* Copies one line into a field, cut to fit; returns the rest of the text. */
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
    text = take_line(text, info->program, sizeof(info->program));
    if (strcmp(text, SHARED) == 0)
        info->mode = MORTISE_SHARED;
    return base;
}

/* How long ago that time was by the servers' clock; -1: unknown. */
static int64_t since_ms(const struct driver *driver, int64_t servers_ms)
{
    const struct session *session = driver->session;
    if (session == NULL || session->servers_ms == 0)
        return -1;
    int64_t ms =
        session->servers_ms - servers_ms + (now_of(driver) - session->servers_at_ns) / NS_PER_MS;
    return ms < 0 ? 0 : ms;
}

void note_holder(const struct driver *driver, int64_t base, const char *node,
                 const struct request *request, mortise_info *info)
{
    char owner[33];
    int64_t noted = note_read(request->text, info);
    info->held = true;
    info->leases = 1;
    info->token = (uint64_t)request->stat.czxid + (uint64_t)(noted < 0 ? base : noted);
    info->held_ms = since_ms(driver, request->stat.ctime);
    info->remaining_ms = -1;
    if (node != NULL && node_owner(node, owner))
        snprintf(info->owner, sizeof(info->owner), "%s", owner);
}

int64_t note_base(const struct request *request)
{
    char *end;
    if (request->text == NULL || request->text_size == 0)
        return -1;
    errno = 0;
    long long base = strtoll(request->text, &end, 10);
    return *end == '\0' && errno == 0 ? base : -1;
}
