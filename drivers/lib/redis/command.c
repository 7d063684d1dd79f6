/* command.c - commands as bytes of the Redis protocol (RESP2: arrays of bulk strings), straight into the link's buffer. Nothing is
 * ever pasted: each argument has its length before it. */
#include "link.h"

#include <stdlib.h>
#include <string.h>

#define GROWTH_MIN 4096

void link_bytes_free(struct link_bytes *bytes)
{
    free(bytes->data);
    *bytes = (struct link_bytes){.data = NULL};
}

static bool has_room(const struct link_bytes *bytes, size_t length)
{
    return bytes->capacity - bytes->length >= length;
}

static bool make_more_room(struct link_bytes *bytes, size_t length)
{
    if (bytes->done > bytes->capacity / 2) { /* what was written makes room */
        memmove(bytes->data, bytes->data + bytes->done, bytes->length - bytes->done);
        bytes->length -= bytes->done;
        bytes->done = 0;
    }
    if (has_room(bytes, length))
        return true;
    if (length > SIZE_MAX / 2 - bytes->length || bytes->failed)
        return false;
    size_t capacity = bytes->capacity < GROWTH_MIN ? GROWTH_MIN : bytes->capacity;
    while (capacity < bytes->length + length)
        capacity *= 2;
    char *data = realloc(bytes->data, capacity);
    if (data == NULL)
        return false;
    bytes->data = data;
    bytes->capacity = capacity;
    return true;
}

static bool make_room(struct link_bytes *bytes, size_t length)
{
    return has_room(bytes, length) || make_more_room(bytes, length);
}

/* Writes the digits of number so that they end before `end`; returns where they begin. */
static char *digits(char *end, uint64_t number)
{
    do {
        *--end = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    return end;
}

#define HEAD_MAX 24 /* "$18446744073709551615\r\n" */

/* "$12\r\n", "*3\r\n"; returns where it ends. There is room. */
static char *put_head(char *to, char kind, uint64_t number)
{
    char text[HEAD_MAX], *end = text + sizeof(text);
    *to++ = kind;
    for (const char *digit = digits(end, number); digit < end; digit++)
        *to++ = *digit;
    *to++ = '\r';
    *to++ = '\n';
    return to;
}

void link_raw(struct link *link, const char *data, size_t length)
{
    struct link_bytes *bytes = &link->out;
    if (!make_room(bytes, length)) {
        bytes->failed = true;
        return;
    }
    memcpy(bytes->data + bytes->length, data, length);
    bytes->length += length;
}

void link_command(struct link *link, unsigned arguments)
{
    struct link_bytes *bytes = &link->out;
    link->put++;
    if (!make_room(bytes, HEAD_MAX))
        bytes->failed = true;
    else
        bytes->length =
            (size_t)(put_head(bytes->data + bytes->length, '*', arguments) - bytes->data);
}

void link_parts(struct link *link, const struct link_part *parts, unsigned count)
{
    struct link_bytes *bytes = &link->out;
    size_t length = 0;
    for (unsigned i = 0; i < count; i++)
        length += parts[i].length;
    if (length > SIZE_MAX / 4 || !make_room(bytes, length + HEAD_MAX + 2)) {
        bytes->failed = true;
        return;
    }
    char *to = put_head(bytes->data + bytes->length, '$', length);
    for (unsigned i = 0; i < count; i++) {
        if (parts[i].length > 0)
            memcpy(to, parts[i].data, parts[i].length);
        to += parts[i].length;
    }
    *to++ = '\r';
    *to++ = '\n';
    bytes->length = (size_t)(to - bytes->data);
}

void link_argument(struct link *link, const void *data, size_t length)
{
    const struct link_part part = {data, length};
    link_parts(link, &part, 1);
}

void link_text(struct link *link, const char *text)
{
    link_argument(link, text, strlen(text));
}

void link_number(struct link *link, int64_t number)
{
    char text[24], *end = text + sizeof(text);
    char *begin = digits(end, number < 0 ? 0 - (uint64_t)number : (uint64_t)number);
    if (number < 0)
        *--begin = '-';
    link_argument(link, begin, (size_t)(end - begin));
}

static uint64_t stream_position(const struct link *link)
{
    return link->written + (link->out.length - link->out.done);
}

void link_call_begin(struct link *link, struct link_call *call)
{
    call->begins_at = stream_position(link);
    call->sent_ns = link->host->now(link->host);
    link->put = 0;
}

bool link_copy(struct link *link, const struct link *from, const struct link_call *call)
{
    const struct link_bytes *bytes = &from->out;
    if (from == link || bytes->failed || from->last_call != &call->next ||
        call->begins_at < from->written)
        return false;
    size_t at = bytes->done + (size_t)(call->begins_at - from->written);
    if (at >= bytes->length || !make_room(&link->out, bytes->length - at))
        return false;
    memcpy(link->out.data + link->out.length, bytes->data + at, bytes->length - at);
    link->out.length += bytes->length - at;
    link->put += call->expected;
    return true;
}

/* If the numbers differed, or one call were in the list twice, each later reply would go to the wrong request, which could take
 * it for a grant. Only a defect of a driver can cause that, and then the connection is broken. */
void link_call_end(struct link *link, struct link_call *call, unsigned replies)
{
    if (link->put != replies || link->last_call == &call->next)
        link->out.failed = true;
    link->put = 0;
    if (link->last_call == &call->next)
        return;
    call->next = NULL;
    call->expected = replies;
    call->got = 0;
    *link->last_call = call;
    link->last_call = &call->next;
    link->outstanding++;
}
