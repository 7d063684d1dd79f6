/* replies.c - what a server answers, handed to whom it is for: the calls in their order, or on a connection for
 * subscriptions whoever takes what is pushed. Reads nothing and ends no connection: what breaks it here is done
 * by link.c afterwards. */
#include "link.h"

#include <stdlib.h>
#include <string.h>

/* link.c ends the connection when what was read has been told. */
static void must_break(struct link *link, const struct link_fault *fault)
{
    if (!link->breaks)
        link->why = *fault;
    link->breaks = true;
}

static void must_break_text(struct link *link, const char *text)
{
    struct link_fault fault;
    link_fault_set(&fault, MORTISE_UNREACHABLE, true, 0, "%s: %s", link->endpoint.text, text);
    must_break(link, &fault);
}

static void tell_call(struct link *link, redisReply *reply)
{
    struct link_call *call = link->first;
    unsigned index = call->got++;
    if (call->got == call->expected) {
        link->first = call->next;
        if (link->first == NULL)
            link->last_call = &link->first;
    }
    call->replied(call, index, reply);
}

static bool says_replica(const struct link *link, const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR && link->settings->primary && link->state == LINK_UP &&
           link_error_of(reply->str, reply->len) == LINK_ERROR_READONLY;
}

static void tell(struct link *link, redisReply *reply)
{
    link->useful |= link->state == LINK_UP;
    link->demoted |= says_replica(link, reply);
    if (link->first != NULL)
        tell_call(link, reply);
    else if (link->callbacks->push != NULL)
        link->callbacks->push(link, link->owner, reply);
    else if (reply->type == REDIS_REPLY_ERROR) { /* why it is about to close the connection */
        struct link_fault fault;
        link_fault_reply(link, reply, &fault);
        fault.status = MORTISE_UNREACHABLE;
        fault.retryable = true;
        must_break(link, &fault);
    } else
        must_break_text(link, "an answer that nobody asked for");
    if (link->demoted && link->first == NULL)
        must_break_text(link, "it is a replica now");
}

/* The length of ":123\r\n" at the beginning of the bytes, and its number; 0 if that is not there, whole. */
static size_t read_integer(const char *bytes, size_t length, long long *number)
{
    size_t at = 1;
    bool minus = length > 1 && bytes[1] == '-';
    at += minus;
    size_t from = at;
    for (*number = 0; at < length && at - from < 18 && bytes[at] >= '0' && bytes[at] <= '9'; at++)
        *number = *number * 10 + (bytes[at] - '0');
    if (length == 0 || bytes[0] != ':' || at == from || at + 2 > length || bytes[at] != '\r' ||
        bytes[at + 1] != '\n')
        return 0;
    if (minus)
        *number = -*number;
    return at + 2;
}

/* The same of an integer, or "+OK\r\n". The text is allocated: whoever is told may take the reply's parts. */
static size_t read_simple(const char *bytes, size_t length, redisReply *reply)
{
    *reply = (redisReply){.type = REDIS_REPLY_INTEGER};
    if (length < 5 || memcmp(bytes, "+OK\r\n", 5) != 0)
        return read_integer(bytes, length, &reply->integer);
    *reply = (redisReply){.type = REDIS_REPLY_STATUS, .str = strdup("OK"), .len = 2};
    return reply->str != NULL ? 5 : 0;
}

size_t link_tell_simple(struct link *link, const char *bytes, size_t length)
{
    size_t told = 0, n;
    redisReply reply;
    link->reading = true;
    while (!link->breaks && link->first != NULL &&
           (n = read_simple(bytes + told, length - told, &reply)) > 0) {
        told += n;
        link->progress_ns = link->host->now(link->host);
        tell(link, &reply);
        free(reply.str);
    }
    link->reading = false;
    return told;
}

/* The text of "$12\r\n…\r\n" at *at, which is moved behind it. False: that is not there, whole. */
static bool read_text(char *bytes, size_t length, size_t *at, redisReply *text)
{
    size_t size = 0, from = *at + 1;
    if (*at >= length || bytes[*at] != '$')
        return false;
    while (from < length && from - *at < 9 && bytes[from] >= '0' && bytes[from] <= '9')
        size = size * 10 + (size_t)(bytes[from++] - '0');
    size_t end = from + 2 + size;
    if (from == *at + 1 || end + 2 > length || memcmp(bytes + from, "\r\n", 2) != 0 ||
        memcmp(bytes + end, "\r\n", 2) != 0)
        return false;
    *text = (redisReply){.type = REDIS_REPLY_STRING, .str = bytes + from + 2, .len = size};
    *at = end + 2;
    return true;
}

size_t link_tell_messages(struct link *link, char *bytes, size_t length)
{
    static const char head[] = "*3\r\n$7\r\nmessage\r\n";
    redisReply parts[3], *elements[3] = {&parts[0], &parts[1], &parts[2]};
    size_t told = 0;
    link->reading = true;
    while (!link->breaks && length - told > sizeof(head) && link->first == NULL &&
           memcmp(bytes + told, head, sizeof(head) - 1) == 0) {
        redisReply reply = {.type = REDIS_REPLY_ARRAY, .elements = 3, .element = elements};
        size_t at = told + 4;
        if (!read_text(bytes, length, &at, &parts[0]) ||
            !read_text(bytes, length, &at, &parts[1]) || !read_text(bytes, length, &at, &parts[2]))
            break;
        for (int i = 0; i < 3; i++)
            parts[i].str[parts[i].len] = '\0'; /* as the reader ends them */
        told = at;
        link->progress_ns = link->host->now(link->host);
        tell(link, &reply);
    }
    link->reading = false;
    return told;
}

void link_tell_replies(struct link *link)
{
    link->reading = true;
    while (!link->breaks) {
        void *reply = NULL;
        if (redisGetReplyFromReader(link->context, &reply) != REDIS_OK) {
            must_break_text(link, link->too_large ? "an answer that is too large"
                                                  : "what it answers is not the Redis protocol");
            break;
        }
        if (reply == NULL)
            break;
        link->elements = 0;
        link->reply_bytes = link->context->reader->len - link->context->reader->pos;
        link->progress_ns = link->host->now(link->host);
        tell(link, reply);
        freeReplyObject(reply);
    }
    link->reading = false;
}
