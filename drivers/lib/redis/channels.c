/* channels.c - the channels that a client is subscribed to: a table by the channel's text, because messages carry that
 * text; and how long subscribing may fail before waiters ask the server instead. */
#include "channels.h"

#include "text.h"

#include <stdlib.h>
#include <string.h>

#define VAIN_NS (1000 * LINK_NS_PER_MS)

struct channel *channel_find(struct channel *table, const char *text, size_t length)
{
    struct channel *channel = NULL;
    if (table != NULL)
        HASH_FIND(hh, table, text, length, channel);
    return channel;
}

struct channel *channel_find_parts(struct channel *table, const struct key_parts *parts)
{
    size_t length;
    char *text = table != NULL ? key_join(parts, &length) : NULL;
    struct channel *channel = text != NULL ? channel_find(table, text, length) : NULL;
    free(text);
    return channel;
}

/* The table owns `text` from now on. */
static struct channel *add(struct channel **table, size_t size, char *text, size_t text_len,
                           const char *name, size_t name_len)
{
    struct channel *channel = calloc(1, size + name_len);
    if (channel == NULL)
        return NULL;
    memcpy((char *)channel + size, name, name_len);
    channel->name = (char *)channel + size;
    channel->name_len = name_len;
    channel->text = text;
    channel->text_len = text_len;
    HASH_ADD_KEYPTR(hh, *table, text, text_len, channel);
    if (channel->hh.tbl != NULL)
        return channel;
    free(channel);
    return NULL;
}

struct channel *channel_add(struct channel **table, size_t size, const struct key_parts *parts,
                            const char *name, size_t name_len)
{
    size_t length;
    char *text = key_join(parts, &length);
    struct channel *channel = text != NULL && channel_find(*table, text, length) == NULL
                                  ? add(table, size, text, length, name, name_len)
                                  : NULL;
    if (channel == NULL)
        free(text);
    return channel;
}

void channel_remove(struct channel **table, struct channel *channel)
{
    HASH_DEL(*table, channel);
    free((char *)(uintptr_t)channel->text);
    free(channel);
}

void channels_free(struct channel **table)
{
    while (*table != NULL)
        channel_remove(table, *table);
}

void channel_say(struct link *link, const char *command, const struct channel *channel)
{
    link_command(link, 2);
    link_text(link, command);
    link_argument(link, channel->text, channel->text_len);
}

enum push push_of(const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_ERROR)
        return PUSH_REFUSED;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 ||
        reply->element[1]->type != REDIS_REPLY_STRING)
        return PUSH_ODD;
    const redisReply *kind = reply->element[0];
    if (text_is(kind, "message") || text_is(kind, "smessage"))
        return PUSH_MESSAGE;
    if (text_is(kind, "subscribe") || text_is(kind, "ssubscribe"))
        return PUSH_SUBSCRIBED;
    return text_is(kind, "unsubscribe") || text_is(kind, "sunsubscribe") ? PUSH_UNSUBSCRIBED
                                                                         : PUSH_ODD;
}

bool unheard_goes_on(struct unheard *unheard, mortise_host *host, const struct link_fault *fault,
                     int64_t retry_ms)
{
    int64_t now = host->now(host);
    if (unheard->since_ns == 0)
        unheard->since_ns = now;
    if (unheard->asks || now - unheard->since_ns < VAIN_NS)
        return false;
    unheard->asks = true;
    host->log(host, 4, "%s: no connection for subscriptions; waiters look every %lld ms instead",
              fault->text, (long long)retry_ms);
    return true;
}
