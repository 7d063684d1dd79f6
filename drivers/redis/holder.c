/* holder.c - who holds a lock, read from a hash. ../lib/redis/holder.h reads strings. */
#include "redis.h"

#include <inttypes.h>
#include <stdio.h>

void holder_put(struct link *link, const mortise_op *op, uint64_t token, uint64_t since_us)
{
    char hex[GRANT_HEX + 1], numbers[48];
    int length = snprintf(numbers, sizeof(numbers), " %" PRIu64 " %" PRIu64 "\n", token, since_us);
    key_hex(&op->grant, hex);
    const struct link_part parts[] = {
        {hex, GRANT_HEX}, {numbers, (size_t)length}, {op->note, op->note_len}};
    link_parts(link, parts, 3);
}

/* ---- hashes --------------------------------------------------------------------------------------------- */

struct hash_view {
    const redisReply *owner, *token, *since, *note, *grant;
    uint32_t grants;
};

static bool is_field(const redisReply *field, const char *name)
{
    return (size_t)field->len == strlen(name) && memcmp(field->str, name, field->len) == 0;
}

static bool has_prefix(const redisReply *field, const char *prefix)
{
    return field->len == 2 + GRANT_HEX && memcmp(field->str, prefix, 2) == 0;
}

/* Whether it is the note of a grant that has not ended. The note of an ended grant may be that of a process that is gone. */
static bool is_note_of(const redisReply *grant, const redisReply *field)
{
    return has_prefix(field, "n:") && memcmp(field->str + 2, grant->str + 2, GRANT_HEX) == 0;
}

static void view_field(struct hash_view *view, const redisReply *field, const redisReply *value,
                       uint64_t now_us)
{
    if (is_field(field, "o"))
        view->owner = value;
    else if (is_field(field, "t"))
        view->token = value;
    else if (is_field(field, "s"))
        view->since = value;
    else if (has_prefix(field, "g:") && text_number(value->str, value->len) * 1000 > now_us) {
        view->grant = field;
        view->grants++;
    }
}

static bool of_native(const redisReply *fields, uint64_t now_us, mortise_info *info)
{
    struct hash_view view = {.owner = NULL};
    for (size_t i = 0; i + 1 < fields->elements; i += 2)
        view_field(&view, fields->element[i], fields->element[i + 1], now_us);
    if (view.owner == NULL || view.grant == NULL)
        return false;
    for (size_t i = 0; i + 1 < fields->elements; i += 2)
        if (is_note_of(view.grant, fields->element[i]))
            view.note = fields->element[i + 1];
    bool shared = view.owner->len > 0;
    const char *owner = shared ? view.owner->str : view.grant->str + 2;
    size_t owner_len = shared ? (size_t)view.owner->len : GRANT_HEX;
    uint64_t token = view.token != NULL ? text_number(view.token->str, view.token->len) : 0;
    uint64_t since = view.since != NULL ? text_number(view.since->str, view.since->len) : 0;
    holder_set(info, owner, owner_len, token, since, now_us,
               view.note != NULL ? view.note->str : "", view.note != NULL ? view.note->len : 0);
    info->leases = view.grants;
    info->holders = 1;
    return true;
}

/* The field of an unshared grant is shown as the grant: "uuid:0" without its dashes. */
static void set_redisson_owner(mortise_info *info, const char *field, size_t length)
{
    char hex[GRANT_HEX + 1];
    size_t n = 0;
    bool ours = length == GRANT_HEX + 4 + 2 && memcmp(field + length - 2, ":0", 2) == 0;
    for (size_t i = 0; ours && i < length - 2 && n < GRANT_HEX; i++)
        if (field[i] != '-')
            hex[n++] = field[i];
    if (ours && n == GRANT_HEX)
        text_copy(info->owner, sizeof(info->owner), hex, n);
    else
        text_copy(info->owner, sizeof(info->owner), field, length);
}

static bool is_grant(const redisReply *field)
{
    return field->len == 8 + GRANT_HEX && memcmp(field->str, "mortise:", 8) == 0;
}

static bool is_ours(const redisReply *field)
{
    return is_field(field, "mortise");
}

/* "mortise": "<token> <since, µs>\n<note>". Without this field, the hash is a lock if the owner looks like Redisson's. */
static bool of_redisson(const redisReply *fields, uint64_t now_us, mortise_info *info)
{
    const redisReply *owner = NULL, *count = NULL, *ours = NULL;
    for (size_t i = 0; i + 1 < fields->elements; i += 2) {
        if (is_ours(fields->element[i]))
            ours = fields->element[i + 1];
        if (is_ours(fields->element[i]) || is_grant(fields->element[i]))
            continue;
        owner = fields->element[i];
        count = fields->element[i + 1];
    }
    uint64_t holds = count != NULL ? text_number(count->str, count->len) : 0;
    if (owner == NULL || holds == 0 ||
        (ours == NULL && memchr(owner->str, ':', owner->len) == NULL))
        return false;
    const char *text = ours != NULL ? ours->str : "", *end = text + (ours != NULL ? ours->len : 0);
    size_t token_len, since_len;
    const char *token = text_part(&text, end, ' ', &token_len);
    const char *since = text_part(&text, end, '\n', &since_len);
    holder_set(info, "", 0, text_number(token, token_len), text_number(since, since_len), now_us,
               text, (size_t)(end - text));
    set_redisson_owner(info, owner->str, owner->len);
    info->leases = holds > UINT32_MAX ? UINT32_MAX : (uint32_t)holds;
    info->holders = 1;
    return true;
}

bool holder_of_hash(const struct driver *driver, const redisReply *fields, uint64_t now_us,
                    mortise_info *info)
{
    for (size_t i = 0; i < fields->elements; i++)
        if (fields->element[i]->type != REDIS_REPLY_STRING)
            return false;
    return driver->layout == LAYOUT_REDISSON ? of_redisson(fields, now_us, info)
                                             : of_native(fields, now_us, info);
}

/* ---- what an acquire is told of who holds ------------------------------------------------------------------ */

static const redisReply *text_at(const redisReply *reply, size_t index)
{
    static char nothing[] = "";
    static const redisReply empty = {.type = REDIS_REPLY_STRING, .str = nothing};
    if (index >= reply->elements || reply->element[index]->type != REDIS_REPLY_STRING)
        return &empty;
    return reply->element[index];
}

/* {remaining, value, now} of a string; {remaining, hash} of a hash. */
void holder_of_refusal(const struct driver *driver, const redisReply *reply, mortise_info *info)
{
    const redisReply *held = reply->element[1];
    const redisReply *now = text_at(reply, 2);
    uint64_t now_us = text_number(now->str, now->len);
    if (held->type == REDIS_REPLY_STRING)
        holder_of_string(held->str, held->len, now_us, info);
    else if (held->type == REDIS_REPLY_ARRAY && !holder_of_hash(driver, held, now_us, info))
        holder_set(info, "", 0, 0, 0, 0, "", 0);
}
