/* pubsub.c - the second connection, for subscriptions: opened when somebody first waits; it tells the core of
 * releases. A name is subscribed to while a head waits for it in this process, and no longer.
 *
 * The confirmation of a subscription is news, too: a release in between would be missed. So is that of a
 * subscription that was made anew after the connection broke.
 *
 * Where subscribing is refused, waiters look every `retry` instead: all of them, where it is the inbox that must not
 * be listened to (nobody queues then), else those of the name. A refusal does not say what it is about, but each
 * request has one answer, in their order: they are counted. While somebody waits so, it is asked again now and
 * then, since rights are given, too. */
#include "redis.h"

#include <stdlib.h>

#define AGAIN_NS (2000 * NS_PER_MS)

struct watched {
    UT_hash_handle hh;
    size_t name_len;
    uint64_t said; /* as which of the requests */
    bool refused;
    char *channel; /* the key of the table */
    char name[];
};

static void up(struct link *link, void *owner);
static void down(struct link *link, void *owner, const struct link_fault *fault);
static void push(struct link *link, void *owner, redisReply *reply);

static const struct link_callbacks callbacks = {
    .up = up, .down = down, .push = push, .seek = failover_seek};

void pubsub_open(struct driver *driver, const struct inbox_calls *inbox_calls)
{
    driver->inbox_calls = inbox_calls;
    link_init(&driver->news, driver->host, &driver->settings, &callbacks, driver);
    driver->news.beside = &driver->link;
}

static void say(struct driver *driver, const char *command, struct watched *watched)
{
    struct link *link = &driver->news;
    if (!link_is_up(link))
        return; /* all is said when it is */
    watched->said = ++driver->said;
    link_command(link, 2);
    link_text(link, command);
    link_argument(link, watched->channel, watched->hh.keylen);
}

static void set_refused(struct driver *driver, struct watched *watched, bool refused)
{
    driver->refusals += refused;
    driver->refusals -= watched->refused;
    watched->refused = refused;
}

/* ---- asked by the core ------------------------------------------------------------------------------- */

static struct watched *find(struct driver *driver, const char *channel, size_t length)
{
    struct watched *watched;
    HASH_FIND(hh, driver->watched, channel, length, watched);
    return watched;
}

/* Owns the channel from here on. NULL without memory: its waiters wait for their hint. */
static struct watched *add(struct driver *driver, const char *name, size_t name_len, char *channel,
                           size_t length)
{
    struct watched *watched = malloc(sizeof(*watched) + name_len);
    if (watched == NULL) {
        free(channel);
        return NULL;
    }
    watched->name_len = name_len;
    watched->said = 0;
    watched->refused = false;
    memcpy(watched->name, name, name_len);
    watched->channel = channel;
    HASH_ADD_KEYPTR(hh, driver->watched, watched->channel, length, watched);
    if (watched->hh.tbl != NULL)
        return watched;
    free(channel);
    free(watched);
    return NULL;
}

void pubsub_watch(struct driver *driver, const char *name, size_t name_len)
{
    size_t length;
    char *channel = key_channel(driver, name, name_len, &length);
    if (channel == NULL || find(driver, channel, length) != NULL) {
        free(channel);
        return;
    }
    struct watched *watched = add(driver, name, name_len, channel, length);
    if (watched == NULL)
        return;
    say(driver, "SUBSCRIBE", watched);
    link_want(&driver->news);
    link_flush(&driver->news);
}

void pubsub_unwatch(struct driver *driver, const char *name, size_t name_len)
{
    size_t length;
    char *channel = key_channel(driver, name, name_len, &length);
    struct watched *watched = channel != NULL ? find(driver, channel, length) : NULL;
    free(channel);
    if (watched == NULL)
        return;
    say(driver, "UNSUBSCRIBE", watched);
    set_refused(driver, watched, false);
    HASH_DEL(driver->watched, watched);
    free(watched->channel);
    free(watched);
    if (driver->watched == NULL && !driver->inbox_wanted)
        link_unwant(&driver->news); /* it stays open for the next */
    link_flush(&driver->news);
}

/* ---- told by the server -------------------------------------------------------------------------------- */

static void say_inbox(struct driver *driver)
{
    struct link *link = &driver->news;
    driver->inbox_said = ++driver->said;
    link_command(link, 2);
    link_text(link, "SUBSCRIBE");
    link_text(link, driver->inbox);
}

/* Only the server that has the locks tells of releases. */
static bool is_elsewhere(const struct driver *driver)
{
    const char *locks = driver->link.run_id, *news = driver->news.run_id;
    return link_is_up(&driver->link) && link_is_up(&driver->news) && locks[0] != '\0' &&
           news[0] != '\0' && strcmp(locks, news) != 0;
}

void pubsub_follow(struct driver *driver, bool may_be_another)
{
    bool unknown = driver->link.run_id[0] == '\0' || driver->news.run_id[0] == '\0';
    bool may_lag = may_be_another &&
                   (link_is_connecting(&driver->news) || (unknown && link_is_up(&driver->news)));
    if (is_elsewhere(driver) || may_lag) /* an attempt that began earlier may lead to the old one */
        link_leave(&driver->news, "the locks are at another server now");
}

static void up(struct link *link, void *owner)
{
    struct driver *driver = owner;
    if (is_elsewhere(driver) && !failover_leads_elsewhere(driver)) {
        struct link_fault fault;
        link_fault_set(&fault, MORTISE_UNREACHABLE, true, 0, "%s: the locks are at another server",
                       link->endpoint.text);
        link_reject(link, &fault); /* again, after the backoff */
        return;
    }
    driver->said = driver->answered = 0;
    if (driver->inbox_wanted)
        say_inbox(driver);
    for (struct watched *watched = driver->watched; watched != NULL; watched = watched->hh.next)
        say(driver, "SUBSCRIBE", watched);
}

static void down(struct link *link, void *owner, const struct link_fault *fault)
{
    struct driver *driver = owner;
    (void)fault;
    driver->inbox_ready = false;
    if (driver->watched == NULL && !driver->inbox_wanted)
        link_unwant(link);
}

/* Who waits is told the shorter hint. */
static void refuse_inbox(struct driver *driver)
{
    if (driver->deaf)
        return;
    driver->deaf = true;
    driver->host->news_all(driver->host);
    driver->inbox_calls->changed(driver); /* they are told that they are BUSY */
}

static void refuse_name(struct driver *driver, uint64_t which)
{
    struct watched *watched = driver->watched;
    while (watched != NULL && watched->said != which)
        watched = watched->hh.next;
    if (watched == NULL || watched->refused)
        return;
    set_refused(driver, watched, true);
    driver->host->news(driver->host, watched->name, watched->name_len);
}

static void refused(struct driver *driver, const redisReply *reply)
{
    struct link_fault fault;
    bool known = driver->deaf || driver->refusals > 0;
    link_fault_reply(&driver->news, reply, &fault);
    if (fault.error != LINK_ERROR_NOPERM && fault.error != LINK_ERROR_UNKNOWN) {
        link_reject(&driver->news, &fault); /* again, on another connection, after the backoff */
        return;
    }
    driver->refused_ns = now_of(driver);
    if (driver->answered == driver->inbox_said)
        refuse_inbox(driver);
    else
        refuse_name(driver, driver->answered);
    if (!known && (driver->deaf || driver->refusals > 0))
        driver->host->log(driver->host, 4,
                          "%s: subscribing is refused; waiters look every %lld ms instead",
                          fault.text, (long long)driver->retry_ms);
}

static void say_again(struct driver *driver)
{
    driver->refused_ns = now_of(driver);
    if (driver->deaf)
        say_inbox(driver);
    for (struct watched *watched = driver->watched; watched != NULL; watched = watched->hh.next)
        if (watched->refused)
            say(driver, "SUBSCRIBE", watched);
    link_flush(&driver->news);
}

bool pubsub_is_refused(struct driver *driver, const mortise_op *op)
{
    size_t length;
    if (!driver->deaf && driver->refusals == 0)
        return false;
    if (link_is_up(&driver->news) && now_of(driver) - driver->refused_ns >= AGAIN_NS)
        say_again(driver);
    char *channel = key_channel(driver, op->name, op->name_len, &length);
    struct watched *watched = channel != NULL ? find(driver, channel, length) : NULL;
    free(channel);
    return driver->deaf || (watched != NULL && watched->refused);
}

static bool is_word(const redisReply *reply, const char *word)
{
    return reply->type == REDIS_REPLY_STRING && (size_t)reply->len == strlen(word) &&
           memcmp(reply->str, word, reply->len) == 0;
}

void pubsub_want_inbox(struct driver *driver)
{
    if (driver->inbox_wanted)
        return; /* it is under way */
    driver->inbox_wanted = true;
    if (link_is_up(&driver->news))
        say_inbox(driver);
    link_want(&driver->news);
    link_flush(&driver->news);
}

static void take_inbox(struct driver *driver, const redisReply *reply)
{
    const redisReply *text = reply->element[2];
    if (is_word(reply->element[0], "subscribe")) {
        driver->inbox_ready = true;
        driver->deaf = false;
        driver->inbox_calls->changed(driver);
    } else if (text->type == REDIS_REPLY_STRING)
        driver->inbox_calls->told(driver, text->str, text->len);
}

/* ["subscribe", channel, count], ["message", channel, text], ["unsubscribe", channel, count] */
static void push(struct link *link, void *owner, redisReply *reply)
{
    struct driver *driver = owner;
    (void)link;
    if (reply->type == REDIS_REPLY_ERROR) {
        driver->answered++;
        refused(driver, reply);
        return;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 ||
        reply->element[1]->type != REDIS_REPLY_STRING)
        return;
    driver->answered += !is_word(reply->element[0], "message");
    if (is_word(reply->element[0], "unsubscribe"))
        return;
    if (driver->queued && is_word(reply->element[1], driver->inbox)) {
        take_inbox(driver, reply);
        return;
    }
    struct watched *watched = find(driver, reply->element[1]->str, reply->element[1]->len);
    if (watched == NULL)
        return;
    set_refused(driver, watched, false);
    driver->host->news(driver->host, watched->name, watched->name_len);
}

void pubsub_suspect(struct driver *driver, const struct link_fault *fault)
{
    if (link_is_up(&driver->news))
        link_break(&driver->news, fault);
}

void pubsub_close(struct driver *driver)
{
    struct watched *watched, *next;
    HASH_ITER (hh, driver->watched, watched, next) {
        HASH_DEL(driver->watched, watched);
        free(watched->channel);
        free(watched);
    }
    link_close(&driver->news);
}
