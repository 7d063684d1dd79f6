/* note.c - the text in the keys. The value of a contender's key says "mortise/1 BASE TIME GRANT" in its first line and who made it in
 * the next ones; a line "shared" behind these says that the holder has made it shared. The keys of other clients may say
 * anything. %tokens says "BASE CLUSTER".
 *
 * TIME is the wall clock of the client that made the key, in milliseconds: servers keep no times. It is used only for
 * display. */
#include "driver.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MARK "mortise/1 "
#define SHARED "shared"

int64_t note_time_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / NS_PER_MS;
}

size_t note_write(const struct driver *driver, const mortise_grant_id *grant, int64_t base,
                  int64_t time_ms, bool downgraded, char data[DATA_MAX])
{
    char hex[HEX_SIZE];
    grant_write(grant, hex);
    int length = snprintf(data, DATA_MAX, MARK "%" PRId64 " %" PRId64 " %s\n%.*s%s", base, time_ms,
                          hex, (int)driver->note_len, driver->note, downgraded ? "\n" SHARED : "");
    return length < 0 ? 0 : length < DATA_MAX ? (size_t)length : DATA_MAX - 1;
}

/* Copies one line into a field, cut to fit; returns the rest of the text. */
static const char *take_line(const char *text, char *to, size_t size)
{
    size_t length = strcspn(text, "\n");
    snprintf(to, size, "%.*s", (int)length, text);
    return text + length + (text[length] == '\n');
}

int64_t note_read(struct bytes value, mortise_info *info)
{
    char data[DATA_MAX], *end, pid[24];
    info->held_ms = -1;
    if (value.size >= sizeof(data))
        return -1;
    if (value.size > 0)
        memcpy(data, value.data, value.size);
    data[value.size] = '\0';
    if (strncmp(data, MARK, strlen(MARK)) != 0)
        return -1;
    long long base = strtoll(data + strlen(MARK), &end, 10);
    if (*end != ' ' || base < 0)
        return -1;
    long long time_ms = strtoll(end + 1, &end, 10);
    size_t grant_len = strspn(end + (*end == ' '), "0123456789abcdef");
    if (*end != ' ' || grant_len != HEX_SIZE - 1 || end[HEX_SIZE] != '\n' || time_ms < 0)
        return -1;
    memcpy(info->owner, end + 1, HEX_SIZE - 1);
    info->owner[HEX_SIZE - 1] = '\0';
    end += HEX_SIZE;
    info->held_ms = note_time_ms() - time_ms;
    if (info->held_ms < 0)
        info->held_ms = 0;
    const char *text = take_line(end + 1, info->host, sizeof(info->host));
    text = take_line(text, pid, sizeof(pid));
    info->pid = strtoll(pid, NULL, 10);
    text = take_line(text, info->program, sizeof(info->program));
    if (strcmp(text, SHARED) == 0)
        info->mode = MORTISE_SHARED;
    return base;
}

void note_holder(const struct kv *kv, int64_t base, mortise_info *info)
{
    size_t length;
    const char *last = key_last(kv->key, &length);
    struct contender contender = contender_read(last, length);
    int64_t noted = note_read(kv->value, info);
    info->held = true;
    info->leases = 1;
    info->token = (uint64_t)kv->created + (uint64_t)(noted < 0 ? base : noted);
    info->remaining_ms = -1;
    if (contender.kind.shared)
        info->mode = MORTISE_SHARED;
    info->permits = contender.kind.permits;
}

enum base_kind base_read(const struct kvs *kvs, uint64_t cluster, int64_t *base)
{
    char data[64], *end;
    *base = 0;
    if (kvs->count == 0)
        return BASE_NONE;
    const struct bytes *value = &kvs->all[0].value;
    if (value->size == 0 || value->size >= sizeof(data))
        return BASE_NONSENSE;
    memcpy(data, value->data, value->size);
    data[value->size] = '\0';
    errno = 0;
    long long number = strtoll(data, &end, 10);
    if (number < 0 || errno != 0 || *end != ' ')
        return BASE_NONSENSE;
    *base = number;
    unsigned long long noted = strtoull(end + 1, &end, 16);
    if (*end != '\0' || errno != 0)
        return BASE_NONSENSE;
    return noted == cluster ? BASE_GOOD : BASE_OTHER_CLUSTER;
}

size_t base_write(int64_t base, uint64_t cluster, char data[DATA_MAX])
{
    int length = snprintf(data, DATA_MAX, "%" PRId64 " %" PRIx64, base, cluster);
    return length < 0 ? 0 : (size_t)length;
}
