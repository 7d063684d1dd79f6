/* channels.h - the channels that a client is subscribed to for its waiters, what the server pushes over them, and
 * whether anything arrives at all; see channels.c. */
#ifndef MORTISE_DRIVERS_LIB_REDIS_CHANNELS_H
#define MORTISE_DRIVERS_LIB_REDIS_CHANNELS_H

#include "keys.h"

#define HASH_NONFATAL_OOM 1 /* an element that could not be added has hh.tbl == NULL */
#include <uthash.h>

/* A name that callers wait for. A driver's own structure begins with this one. */
struct channel {
    UT_hash_handle hh;
    size_t name_len, text_len;
    const char *name, *text; /* text: of the channel, the key of the table */
};

/* Adds a channel of `size` bytes; those behind struct channel are zero. NULL: the table has this channel already, or there is
 * no memory. Without memory, the waiters ask at their hint. */
struct channel *channel_add(struct channel **table, size_t size, const struct key_parts *text,
                            const char *name, size_t name_len);
struct channel *channel_find(struct channel *table, const char *text, size_t length);
/* NULL: the table has no such channel, or there is no memory. */
struct channel *channel_find_parts(struct channel *table, const struct key_parts *text);
void channel_remove(struct channel **table, struct channel *channel);
void channels_free(struct channel **table);
/* Sends a command: SUBSCRIBE or UNSUBSCRIBE, or for a channel of a slot SSUBSCRIBE or SUNSUBSCRIBE. */
void channel_say(struct link *link, const char *command, const struct channel *channel);

enum push {
    PUSH_ODD,
    PUSH_REFUSED, /* an error: answers the oldest open request */
    PUSH_SUBSCRIBED,
    PUSH_UNSUBSCRIBED,
    PUSH_MESSAGE
};
/* What the server pushed. In the last three kinds, element 1 is the channel; in a message, element 2 is the text. */
enum push push_of(const redisReply *reply);

/* Whether waiters get no notifications, because no connection for subscriptions can be made, or none is answered, while the
 * other connections work. An ordinary reconnection takes less than a second. It makes no waiter ask more often, and it is not
 * logged. */
struct unheard {
    int64_t since_ns; /* since when all attempts to subscribe fail; 0: they do not */
    bool asks;        /* they have failed for so long that waiters ask */
};
/* One more attempt to subscribe has failed. True if waiters must ask from now on. The log says so once until unheard_end(). */
bool unheard_goes_on(struct unheard *unheard, mortise_host *host, const struct link_fault *fault,
                     int64_t retry_ms);
/* Subscriptions work again, or their failure has another cause. */
static inline void unheard_end(struct unheard *unheard)
{
    *unheard = (struct unheard){.since_ns = 0};
}

#endif
