/* channels.h - the channels that a client is subscribed to for its waiters, and what comes over them, or does not; see
 * channels.c. */
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

/* One that was not there, of `size` bytes, zeroed behind this part. NULL: it is there, or no memory: then the waiters wait for
 * their hint. */
struct channel *channel_add(struct channel **table, size_t size, const struct key_parts *text,
                            const char *name, size_t name_len);
struct channel *channel_find(struct channel *table, const char *text, size_t length);
/* NULL: it is not there, or no memory. */
struct channel *channel_find_parts(struct channel *table, const struct key_parts *text);
void channel_remove(struct channel **table, struct channel *channel);
void channels_free(struct channel **table);
/* SUBSCRIBE or UNSUBSCRIBE, or (of a slot) SSUBSCRIBE or SUNSUBSCRIBE. */
void channel_say(struct link *link, const char *command, const struct channel *channel);

enum push {
    PUSH_ODD,
    PUSH_REFUSED, /* an error: of the request that has no answer yet */
    PUSH_SUBSCRIBED,
    PUSH_UNSUBSCRIBED,
    PUSH_MESSAGE
};
/* What is pushed. Of the last three, element 1 is the channel, and of a message element 2 is the text. */
enum push push_of(const redisReply *reply);

/* Whether waiters are told of nothing: no connection for subscriptions can be made, or none is answered, while the others work. An
 * ordinary reconnection is quicker than a second: for that nobody asks more often, and nothing is logged. */
struct unheard {
    int64_t since_ns; /* since when all attempts to subscribe fail; 0: they do not */
    bool asks;        /* for so long that waiters ask */
};
/* One more has failed. True if waiters must ask from now on: the log says so, once until unheard_end(). */
bool unheard_goes_on(struct unheard *unheard, mortise_host *host, const struct link_fault *fault,
                     int64_t retry_ms);
/* They work again, or may not be blamed. */
static inline void unheard_end(struct unheard *unheard)
{
    *unheard = (struct unheard){.since_ns = 0};
}

#endif
