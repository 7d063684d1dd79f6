/* text.c - takes a server's answers apart, and makes the line that says why an op failed. */
#include "text.h"

#include <string.h>

#define QUOTED_SIZE 160
#define DIGITS_MAX 18

bool text_is(const redisReply *reply, const char *word)
{
    return reply->type == REDIS_REPLY_STRING && (size_t)reply->len == strlen(word) &&
           memcmp(reply->str, word, reply->len) == 0;
}

uint64_t text_number(const char *text, size_t length)
{
    uint64_t number = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9' || number > (UINT64_MAX - 9) / 10)
            return 0;
        number = number * 10 + (uint64_t)(text[i] - '0');
    }
    return number;
}

uint64_t text_digits(const char *text, size_t length)
{
    size_t n = 0;
    while (n < length && n < DIGITS_MAX && text[n] >= '0' && text[n] <= '9')
        n++;
    return text_number(text, n);
}

uint64_t text_time_us(const redisReply *time)
{
    if (time == NULL || time->type != REDIS_REPLY_ARRAY || time->elements != 2)
        return 0;
    const redisReply *s = time->element[0], *us = time->element[1];
    if (s->type != REDIS_REPLY_STRING || us->type != REDIS_REPLY_STRING)
        return 0;
    return text_number(s->str, s->len) * 1000000 + text_number(us->str, us->len);
}

const char *text_part(const char **text, const char *end, char separator, size_t *length)
{
    const char *begin = *text;
    const char *stop = begin < end ? memchr(begin, separator, (size_t)(end - begin)) : NULL;
    *length = (size_t)((stop != NULL ? stop : end) - begin);
    *text = stop != NULL ? stop + 1 : end;
    return begin;
}

void text_copy(char *to, size_t size, const char *from, size_t length)
{
    size_t n = length < size - 1 ? length : size - 1;
    if (n > 0)
        memcpy(to, from, n);
    to[n] = '\0';
}

static const char *verb_of(const mortise_op *op)
{
    static const char *const verbs[] = {
        [MORTISE_OP_ACQUIRE] = "acquire", [MORTISE_OP_RENEW] = "renew",
        [MORTISE_OP_RELEASE] = "release", [MORTISE_OP_INSPECT] = "inspect",
        [MORTISE_OP_LIST] = "list",       [MORTISE_OP_READ] = "read",
        [MORTISE_OP_WRITE] = "write",     [MORTISE_OP_PING] = "ping",
    };
    return (op->flags & MORTISE_OP_BREAK) != 0 ? "break" : verbs[op->kind];
}

void text_fail(mortise_host *host, mortise_op *op, mortise_status status, int native,
               bool retryable, const char *text)
{
    char name[QUOTED_SIZE] = "";
    if (op->name_len > 0 && op->kind != MORTISE_OP_PING)
        host->quote(op->name, op->name_len, name, sizeof(name));
    host->fail(host, op, status, native, retryable, "%s (%s%s%s)", text, verb_of(op),
               name[0] != '\0' ? " " : "", name);
}
