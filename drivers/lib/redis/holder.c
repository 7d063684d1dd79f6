/* holder.c - who holds a lock, read from the value of a string: "<grant> <token> <since, us>\n<note>". */
#include "holder.h"

#include <string.h>

/* A part of a text, up to a separator; moves on behind it. */
const char *holder_part(const char **text, const char *end, char separator, size_t *length)
{
    const char *begin = *text;
    const char *stop = begin < end ? memchr(begin, separator, (size_t)(end - begin)) : NULL;
    *length = (size_t)((stop != NULL ? stop : end) - begin);
    *text = stop != NULL ? stop + 1 : end;
    return begin;
}

void holder_copy(char *to, size_t size, const char *from, size_t length)
{
    size_t n = length < size - 1 ? length : size - 1;
    if (n > 0)
        memcpy(to, from, n);
    to[n] = '\0';
}

uint64_t holder_number(const char *text, size_t length)
{
    uint64_t number = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9' || number > (UINT64_MAX - 9) / 10)
            return 0;
        number = number * 10 + (uint64_t)(text[i] - '0');
    }
    return number;
}

/* "host\npid\nprogram" */
static void set_note(mortise_info *info, const char *note, size_t length)
{
    const char *end = note + length;
    size_t n;
    const char *text = holder_part(&note, end, '\n', &n);
    holder_copy(info->host, sizeof(info->host), text, n);
    text = holder_part(&note, end, '\n', &n);
    info->pid = (int64_t)(holder_number(text, n) & INT64_MAX);
    holder_copy(info->program, sizeof(info->program), note, (size_t)(end - note));
}

void holder_set(mortise_info *info, const char *owner, size_t owner_len, uint64_t token,
                uint64_t since_us, uint64_t now_us, const char *note, size_t note_len)
{
    info->held = true;
    holder_copy(info->owner, sizeof(info->owner), owner, owner_len);
    info->token = token;
    info->held_ms = since_us > 0 && now_us > 0
                        ? (now_us > since_us ? (int64_t)((now_us - since_us) / 1000) : 0)
                        : -1;
    info->leases = 1;
    info->waiters = -1;
    set_note(info, note, note_len);
}

uint64_t holder_time_us(const redisReply *time)
{
    if (time == NULL || time->type != REDIS_REPLY_ARRAY || time->elements != 2)
        return 0;
    const redisReply *s = time->element[0], *us = time->element[1];
    if (s->type != REDIS_REPLY_STRING || us->type != REDIS_REPLY_STRING)
        return 0;
    return holder_number(s->str, s->len) * 1000000 + holder_number(us->str, us->len);
}

/* ---- strings ------------------------------------------------------------------------------------------ */

bool holder_of_string(const char *value, size_t length, uint64_t now_us, mortise_info *info)
{
    const char *text = value, *end = value + length;
    size_t grant_len, token_len, since_len;
    const char *grant = holder_part(&text, end, ' ', &grant_len);
    const char *token = holder_part(&text, end, ' ', &token_len);
    const char *since = holder_part(&text, end, '\n', &since_len);
    if (grant_len != GRANT_HEX || token_len == 0 || since_len == 0) {
        holder_set(info, value, length < 64 ? length : 0, 0, 0, 0, "", 0);
        return false;
    }
    holder_set(info, grant, grant_len, holder_number(token, token_len),
               holder_number(since, since_len), now_us, text, (size_t)(end - text));
    return true;
}
