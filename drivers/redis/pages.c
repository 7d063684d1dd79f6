/* pages.c - a server's keys by SCAN, a page at a time. */
#include "pages.h"

#include <stdlib.h>

#define PAGE "500"

bool page_is_one(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        reply->element[0]->type != REDIS_REPLY_STRING || reply->element[0]->len > 20 ||
        reply->element[1]->type != REDIS_REPLY_ARRAY)
        return false;
    for (size_t i = 0; i < reply->element[1]->elements; i++)
        if (reply->element[1]->element[i]->type != REDIS_REPLY_STRING)
            return false;
    return true;
}

redisReply *page_take(redisReply *reply, char cursor[PAGE_CURSOR_SIZE])
{
    redisReply *page = calloc(1, sizeof(*page));
    if (page == NULL)
        return NULL;
    *page = *reply;
    memset(reply, 0, sizeof(*reply)); /* the page owns its parts now */
    reply->type = REDIS_REPLY_NIL;
    memcpy(cursor, page->element[0]->str, page->element[0]->len + 1);
    redisReply *keys = page->element[1];
    size_t n = 0;
    for (size_t i = 0; i < keys->elements; i++)
        if (key_is_side(keys->element[i]->str, keys->element[i]->len))
            freeReplyObject(keys->element[i]);
        else
            keys->element[n++] = keys->element[i];
    keys->elements = n;
    return page;
}

/* The prefix as a pattern; its special characters are escaped. */
static char *new_pattern(const char *prefix, size_t prefix_len, size_t *length)
{
    char *pattern = malloc(2 * prefix_len + 2);
    *length = 0;
    for (size_t i = 0; pattern != NULL && i < prefix_len; i++) {
        if (memchr("*?[]^\\", prefix[i], 6) != NULL)
            pattern[(*length)++] = '\\';
        pattern[(*length)++] = prefix[i];
    }
    if (pattern != NULL)
        pattern[(*length)++] = '*';
    return pattern;
}

bool page_put(struct link *link, const char *cursor, const char *prefix, size_t prefix_len)
{
    size_t length;
    char *pattern = new_pattern(prefix, prefix_len, &length);
    if (pattern == NULL)
        return false;
    link_command(link, 6);
    link_text(link, "SCAN");
    link_text(link, cursor);
    link_text(link, "MATCH");
    link_argument(link, pattern, length);
    link_text(link, "COUNT");
    link_text(link, PAGE);
    free(pattern);
    return true;
}
