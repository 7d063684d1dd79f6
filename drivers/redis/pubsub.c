/* pubsub.c - the second connection, for subscriptions. It is opened when a caller first waits, and reports releases to the
 * core. The driver is subscribed to the channel of a name as long as a caller of this process waits for the name.
 *
 * The confirmation of a subscription counts as news, too, because an earlier release was not heard. The same holds for a
 * subscription that is made again after the connection broke, or at another node of a cluster after the slot has moved.
 *
 * If subscribing is refused, waiters ask every `retry` instead: all waiters, if the driver may not listen to its inbox
 * (then none of them queues); otherwise the waiters of that name. A refusal does not say which request it answers. But
 * every request has one answer, in order, so the driver counts the answers. While a caller waits in this way, the driver
 * subscribes again now and then, because the right may have been granted meanwhile.
 *
 * The same happens if the connection cannot be made, or SUBSCRIBE has no answer, while the main connection works: the
 * server has no room for another client, or something between allows only one. Attempts go on with the link's backoff. */
#include "redis.h"

#include <stdlib.h>

#define AGAIN_NS (2000 * NS_PER_MS)

struct watched {
    struct channel channel; /* first */
    uint64_t said;          /* the number of the last request about it */
    bool refused;
    bool ended; /* the server ended it, because the slot has left or is leaving */
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

/* In a cluster, the channel of a name belongs to its slot: only the nodes that have the slot pass messages on, and the server
 * says when the slot leaves. Redisson publishes to all nodes instead. */
static bool is_of_slot(const struct driver *driver)
{
    return driver->in_cluster && driver->layout != LAYOUT_REDISSON;
}

const char *pubsub_verb(const struct driver *driver)
{
    return is_of_slot(driver) ? "SPUBLISH" : NULL;
}

static void told(struct link_call *call, unsigned index, redisReply *reply)
{
    (void)index;
    (void)reply;
    free(call);
}

static void not_told(struct link_call *call, enum link_loss loss, const struct link_fault *fault)
{
    (void)loss;
    (void)fault;
    free(call);
}

/* Nobody waits for the answer, as when a script publishes. */
void pubsub_tell(struct driver *driver, const mortise_op *op)
{
    struct link *link = &driver->link;
    const char *verb = pubsub_verb(driver);
    struct link_call *call = verb != NULL && link_is_up(link) ? calloc(1, sizeof(*call)) : NULL;
    if (call == NULL)
        return;
    call->replied = told;
    call->lost = not_told;
    link_call_begin(link, call);
    link_command(link, 3);
    link_text(link, verb);
    key_put_channel(link, driver, op);
    link_text(link, "");
    link_call_end(link, call, 1);
    link_flush(link);
}

static uint64_t count_said(struct driver *driver)
{
    link_awaits(&driver->news, true);
    return ++driver->said;
}

static void count_answer(struct driver *driver)
{
    driver->answered++;
    link_awaits(&driver->news, driver->answered < driver->said);
}

/* command: for a channel of a slot, an S is put before it. */
static void say(struct driver *driver, const char *command, struct watched *watched)
{
    struct link *link = &driver->news;
    if (!link_is_up(link))
        return; /* up() subscribes to everything */
    watched->said = count_said(driver);
    watched->ended = false;
    channel_say(link, command + !is_of_slot(driver), &watched->channel);
}

static void set_refused(struct driver *driver, struct watched *watched, bool refused)
{
    driver->refusals += refused;
    driver->refusals -= watched->refused;
    watched->refused = refused;
}

/* ---- asked by the core ------------------------------------------------------------------------------- */

static struct watched *find_name(struct driver *driver, const char *name, size_t name_len)
{
    struct key_parts parts = {.count = 0};
    key_add_channel(&parts, driver, name, name_len);
    return (struct watched *)channel_find_parts(driver->watched, &parts);
}

void pubsub_watch(struct driver *driver, const char *name, size_t name_len)
{
    struct key_parts parts = {.count = 0};
    key_add_channel(&parts, driver, name, name_len);
    struct channel *channel =
        channel_add(&driver->watched, sizeof(struct watched), &parts, name, name_len);
    if (channel == NULL)
        return;
    say(driver, "SSUBSCRIBE", (struct watched *)channel);
    link_want(&driver->news);
    link_flush(&driver->news);
}

void pubsub_unwatch(struct driver *driver, const char *name, size_t name_len)
{
    struct watched *watched = find_name(driver, name, name_len);
    if (watched == NULL)
        return;
    if (!watched->ended) {
        driver->unsaid += link_is_up(&driver->news);
        say(driver, "SUNSUBSCRIBE", watched);
    }
    set_refused(driver, watched, false);
    channel_remove(&driver->watched, &watched->channel);
    if (driver->watched == NULL && !driver->inbox_wanted) {
        link_unwant(&driver->news); /* it stays open for the next */
        driver->unheard.since_ns = 0;
    }
    link_flush(&driver->news);
}

/* ---- told by the server -------------------------------------------------------------------------------- */

static void say_inbox(struct driver *driver)
{
    struct link *link = &driver->news;
    driver->inbox_said = count_said(driver);
    link_command(link, 2);
    link_text(link, "SUBSCRIBE");
    link_text(link, driver->inbox);
}

/* Whether this connection leads to another server than the main one. Only the server that has the locks publishes their
 * releases. */
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
    driver->said = driver->answered = driver->unsaid = 0;
    if (driver->inbox_wanted)
        say_inbox(driver);
    for (struct channel *each = driver->watched; each != NULL; each = each->hh.next)
        say(driver, "SSUBSCRIBE", (struct watched *)each);
}

/* Waiters ask again, and get the shorter hint. */
static void tried_in_vain(struct driver *driver, const struct link_fault *fault)
{
    if (!unheard_goes_on(&driver->unheard, driver->host, fault, driver->retry_ms))
        return;
    driver->host->news_all(driver->host);
    driver->inbox_calls->changed(driver);
}

static void down(struct link *link, void *owner, const struct link_fault *fault)
{
    struct driver *driver = owner;
    driver->inbox_ready = false;
    if (driver->watched == NULL && !driver->inbox_wanted)
        link_unwant(link);
    else if (link->failures > 0 && link_is_up(&driver->link))
        tried_in_vain(driver, fault);
}

/* Waiters ask again, and get the shorter hint. */
static void refuse_inbox(struct driver *driver)
{
    if (driver->deaf)
        return;
    driver->deaf = true;
    driver->host->news_all(driver->host);
    driver->inbox_calls->changed(driver); /* they become BUSY */
}

static void refuse_name(struct driver *driver, uint64_t which)
{
    struct channel *each = driver->watched;
    while (each != NULL && ((struct watched *)each)->said != which)
        each = each->hh.next;
    if (each == NULL || ((struct watched *)each)->refused)
        return;
    set_refused(driver, (struct watched *)each, true);
    driver->host->news(driver->host, each->name, each->name_len);
}

static void refused(struct driver *driver, const redisReply *reply)
{
    struct link_fault fault;
    bool known = driver->deaf || driver->refusals > 0;
    link_fault_reply(&driver->news, reply, &fault);
    if (driver->in_cluster)
        driver->routes->doubted(driver);
    /* For SUNSUBSCRIBE: the server had ended the subscription itself, and its message was taken for the answer. */
    if (fault.error == LINK_ERROR_MOVED && driver->answered > driver->said) {
        driver->answered = driver->said;
        return;
    }
    if (fault.error != LINK_ERROR_NOPERM && fault.error != LINK_ERROR_UNKNOWN) {
        link_reject(&driver->news, &fault); /* again, on another connection, after the backoff */
        return;
    }
    unheard_end(&driver->unheard); /* waiters of a refused channel poll in any case */
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
    for (struct channel *each = driver->watched; each != NULL; each = each->hh.next)
        if (((struct watched *)each)->refused)
            say(driver, "SSUBSCRIBE", (struct watched *)each);
    link_flush(&driver->news);
}

bool pubsub_is_refused(struct driver *driver, const mortise_op *op)
{
    if (driver->unheard.asks)
        return true;
    if (!driver->deaf && driver->refusals == 0)
        return false;
    if (link_is_up(&driver->news) && now_of(driver) - driver->refused_ns >= AGAIN_NS)
        say_again(driver);
    const struct watched *watched = find_name(driver, op->name, op->name_len);
    return driver->deaf || (watched != NULL && watched->refused);
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

static void take_inbox(struct driver *driver, enum push kind, const redisReply *text)
{
    if (kind == PUSH_SUBSCRIBED) {
        driver->inbox_ready = true;
        driver->deaf = false;
        driver->inbox_calls->changed(driver);
    } else if (text->type == REDIS_REPLY_STRING)
        driver->inbox_calls->told(driver, text->str, text->len);
}

/* The server itself ended a subscription, because the slot has left it: the waiters ask, and are led to the new node. But if
 * the driver has subscribed to the name again meanwhile, the answer to that is still to come, and says where the slot is. */
static void check_slot(struct driver *driver, const redisReply *text)
{
    struct channel *channel = channel_find(driver->watched, text->str, text->len);
    if (channel == NULL || !is_of_slot(driver) ||
        ((struct watched *)channel)->said > driver->answered)
        return;
    ((struct watched *)channel)->ended = true;
    driver->routes->doubted(driver);
    driver->host->news(driver->host, channel->name, channel->name_len);
}

/* The answer to a request, or a message that the server sends by itself. */
static void take_unsubscribed(struct driver *driver, const redisReply *text)
{
    if (driver->unsaid > 0) {
        driver->unsaid--;
        count_answer(driver);
    }
    check_slot(driver, text);
}

void pubsub_stay(struct driver *driver, struct channel *channel)
{
    if (((struct watched *)channel)->ended)
        say(driver, "SSUBSCRIBE", (struct watched *)channel);
    link_flush(&driver->news);
}

/* The server ends the subscription itself, if it has not done so yet. It would refuse a request to end it (MOVED). */
void pubsub_leave(struct driver *driver, struct channel *channel)
{
    ((struct watched *)channel)->ended |= is_of_slot(driver);
    pubsub_unwatch(driver, channel->name, channel->name_len);
}

static void push(struct link *link, void *owner, redisReply *reply)
{
    struct driver *driver = owner;
    enum push kind = push_of(reply);
    (void)link;
    if (kind == PUSH_REFUSED || kind == PUSH_SUBSCRIBED)
        count_answer(driver);
    if (kind == PUSH_REFUSED)
        refused(driver, reply);
    if (kind == PUSH_SUBSCRIBED)
        unheard_end(&driver->unheard);
    if (kind == PUSH_UNSUBSCRIBED)
        take_unsubscribed(driver, reply->element[1]);
    if (kind != PUSH_SUBSCRIBED && kind != PUSH_MESSAGE)
        return;
    if (driver->queued && text_is(reply->element[1], driver->inbox)) {
        take_inbox(driver, kind, reply->element[2]);
        return;
    }
    struct channel *channel =
        channel_find(driver->watched, reply->element[1]->str, reply->element[1]->len);
    if (channel == NULL)
        return;
    set_refused(driver, (struct watched *)channel, false);
    driver->host->news(driver->host, channel->name, channel->name_len);
}

void pubsub_suspect(struct driver *driver, const struct link_fault *fault)
{
    driver->unheard.since_ns = 0;
    if (link_is_up(&driver->news))
        link_break(&driver->news, fault);
}

void pubsub_close(struct driver *driver)
{
    channels_free(&driver->watched);
    link_close(&driver->news);
}
