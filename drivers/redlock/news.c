/* news.c - the second connection of each node, for subscriptions: opened when somebody first waits.
 *
 * A release publishes in every node that it frees where somebody was refused: whoever comes to wait has seen each node's
 * holder when it took its own votes back, and left its mark on that (undo.lua); at the latest when its subscriptions
 * are in force it looks again. A node that lost the mark with its data does not tell; the others do.
 *
 * They publish one after the other as its requests arrive. Who tried again at the first message would find the other
 * nodes still taken: so it waits for messages from q nodes, or a few milliseconds (and tries again when q have told: the
 * release may not have come to the others by then). Messages of one release are those of different nodes: a second
 * one from a node, or one that is late, begins the next release.
 *
 * Who comes next: the mark on the lock says how often who left it has heard of a release in vain, and a message carries
 * the highest. Who has heard of fewer lets that one go first, for a moment. Without that it would be always the same who
 * is told first and has all votes before the others have asked. And all wait for a random time, if tries were split lately.
 *
 * Subscriptions are in force, and nothing can be missed, as long as q nodes have confirmed them, since each grant has
 * keys on q nodes. When they become so, that is news. */
#include "internal.h"

#include <stdlib.h>

#define STRAGGLER_NS                                                                               \
    (INT64_C(3) * NS_PER_MS) /* how long messages of the other nodes are waited for */
#define RELEASE_NS (INT64_C(10) * NS_PER_MS) /* how far apart its messages come */
#define STEPS_MAX 3 /* how many of those who have waited for longer are let go first */

struct watched {
    UT_hash_handle hh;
    uint32_t confirmed; /* nodes */
    uint32_t missed;    /* nodes that had, and whose connection broke */
    uint32_t heard;     /* nodes that have told of this release */
    int64_t began_ns;   /* the first of them */
    bool told;          /* the core, of this release, as q nodes have told of it */
    char mark;          /* the last of those that the messages of this release brought */
    unsigned vain;      /* releases that it heard of since it had the lock, or began to wait */
    int64_t due_ns;     /* when it is told at the latest */
    size_t name_len;
    char *channel; /* the key of the table */
    char name[];
};

static void up(struct link *link, void *owner);
static void down(struct link *link, void *owner, const struct link_fault *fault);
static void push(struct link *link, void *owner, redisReply *reply);

void news_open(struct node *node)
{
    static const struct link_callbacks callbacks = {.up = up, .down = down, .push = push};
    link_init(&node->news, node->driver->host, &node->settings, &callbacks, node);
}

static void say(struct node *node, const char *command, const struct watched *watched)
{
    struct link *link = &node->news;
    if (!link_is_up(link))
        return; /* all is said when it is */
    link_command(link, 2);
    link_text(link, command);
    link_argument(link, watched->channel, watched->hh.keylen);
}

static void say_all(struct driver *driver, const char *command, const struct watched *watched)
{
    for (unsigned i = 0; i < driver->count; i++)
        say(&driver->nodes[i], command, watched);
}

/* ---- asked by the core ------------------------------------------------------------------------------------- */

static struct watched *find(struct driver *driver, const char *channel, size_t length)
{
    struct watched *watched;
    HASH_FIND(hh, driver->watched, channel, length, watched);
    return watched;
}

static char *channel_of(const char *name, size_t name_len, size_t *length)
{
    struct key_parts parts = {.count = 0};
    key_add_side(&parts, name, name_len, "news");
    return key_join(&parts, length);
}

static struct watched *find_name(struct driver *driver, const char *name, size_t name_len)
{
    size_t length;
    char *channel = driver->watched != NULL ? channel_of(name, name_len, &length) : NULL;
    struct watched *watched = channel != NULL ? find(driver, channel, length) : NULL;
    free(channel);
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
    memset(watched, 0, sizeof(*watched));
    watched->told = true;
    watched->due_ns = MORTISE_NEVER;
    watched->name_len = name_len;
    memcpy(watched->name, name, name_len);
    watched->channel = channel;
    HASH_ADD_KEYPTR(hh, driver->watched, watched->channel, length, watched);
    if (watched->hh.tbl != NULL)
        return watched;
    free(channel);
    free(watched);
    return NULL;
}

void news_watch(struct driver *driver, const char *name, size_t name_len)
{
    size_t length;
    char *channel = channel_of(name, name_len, &length);
    if (channel == NULL || find(driver, channel, length) != NULL) {
        free(channel);
        return;
    }
    struct watched *watched = add(driver, name, name_len, channel, length);
    if (watched == NULL)
        return;
    say_all(driver, "SUBSCRIBE", watched);
    for (unsigned i = 0; i < driver->count; i++)
        link_want(&driver->nodes[i].news);
}

void news_unwatch(struct driver *driver, const char *name, size_t name_len)
{
    struct watched *watched = find_name(driver, name, name_len);
    if (watched == NULL)
        return;
    say_all(driver, "UNSUBSCRIBE", watched);
    HASH_DEL(driver->watched, watched);
    free(watched->channel);
    free(watched);
    for (unsigned i = 0; driver->watched == NULL && i < driver->count; i++)
        link_unwant(&driver->nodes[i].news); /* it stays open for the next */
}

static char mark_of(const struct watched *watched)
{
    return (char)(MARK + (watched->vain < MARKS ? watched->vain : MARKS));
}

char news_mark(struct driver *driver, const char *name, size_t name_len)
{
    const struct watched *watched = find_name(driver, name, name_len);
    return watched != NULL ? mark_of(watched) : MARK;
}

/* This client's other callers begin at the end of the line. */
void news_granted(struct driver *driver, const char *name, size_t name_len)
{
    struct watched *watched = find_name(driver, name, name_len);
    if (watched != NULL)
        watched->vain = 0;
}

/* ---- telling the core ---------------------------------------------------------------------------------------- */

static unsigned count(uint32_t bits)
{
    return (unsigned)__builtin_popcount(bits);
}

static void tell_at(struct driver *driver, struct watched *watched, int64_t due_ns)
{
    watched->due_ns = due_ns;
    if (due_ns < driver->news_due_ns)
        driver->news_due_ns = due_ns;
}

static void tell_by(struct driver *driver, struct watched *watched, int64_t due_ns)
{
    if (due_ns < watched->due_ns)
        tell_at(driver, watched, due_ns);
}

/* How long it waits for those who have waited for longer; and then for a random time, if tries were split lately. The mark
 * that it has left on the lock itself is of before this release. */
static int64_t turn_ns(struct driver *driver, const struct watched *watched)
{
    int64_t step_ns = 2 * clock_quorum_trip_ns(driver),
            steps = watched->mark + 1 - mark_of(watched);
    int64_t ns = steps <= 0 ? 0 : step_ns * (steps < STEPS_MAX ? steps : STEPS_MAX);
    if (driver->spread_ns > 0)
        ns += (int64_t)random_below(driver, (uint64_t)driver->spread_ns);
    return ns;
}

static void heard(struct driver *driver, struct watched *watched, uint32_t bit, char mark)
{
    int64_t now = now_of(driver);
    bool late = now - watched->began_ns > RELEASE_NS;
    if ((watched->heard & bit) != 0 || watched->heard == 0 || late) { /* of another release */
        watched->heard = 0;
        watched->began_ns = now;
        watched->mark = MARK;
        watched->vain++;
        watched->told = false;
        tell_by(driver, watched, now + STRAGGLER_NS);
    }
    watched->heard |= bit;
    watched->mark = mark > watched->mark ? mark : watched->mark;
    if (watched->told || count(watched->heard) < driver->quorum)
        return;
    watched->told = true;
    now += turn_ns(driver, watched);
    tell_at(driver, watched, now);
}

static void confirmed(struct driver *driver, struct watched *watched, uint32_t bit)
{
    unsigned before = count(watched->confirmed);
    watched->confirmed |= bit;
    bool again =
        (watched->missed & bit) != 0; /* what it may have told of meanwhile was not heard */
    watched->missed &= ~bit;
    if (again || (before < driver->quorum && count(watched->confirmed) >= driver->quorum))
        tell_by(driver, watched, now_of(driver));
}

void news_turn(struct driver *driver, int64_t now_ns)
{
    if (driver->news_due_ns > now_ns)
        return;
    driver->news_due_ns = MORTISE_NEVER;
    for (struct watched *watched = driver->watched; watched != NULL; watched = watched->hh.next) {
        if (watched->due_ns <= now_ns) {
            watched->due_ns = MORTISE_NEVER;
            driver->host->news(driver->host, watched->name, watched->name_len);
        } else if (watched->due_ns < driver->news_due_ns)
            driver->news_due_ns = watched->due_ns;
    }
}

/* ---- told by the nodes ---------------------------------------------------------------------------------------- */

static void up(struct link *link, void *owner)
{
    struct node *node = owner;
    struct driver *driver = node->driver;
    (void)link;
    for (struct watched *watched = driver->watched; watched != NULL; watched = watched->hh.next)
        say(node, "SUBSCRIBE", watched);
}

static void down(struct link *link, void *owner, const struct link_fault *fault)
{
    struct node *node = owner;
    struct driver *driver = node->driver;
    (void)fault;
    uint32_t bit = 1u << node->index;
    for (struct watched *watched = driver->watched; watched != NULL; watched = watched->hh.next) {
        watched->missed |= watched->confirmed & bit;
        watched->confirmed &= ~bit;
    }
    if (driver->watched == NULL)
        link_unwant(link);
}

static void refused(struct node *node, const redisReply *reply)
{
    struct driver *driver = node->driver;
    struct link_fault fault;
    link_fault_reply(&node->news, reply, &fault);
    if (fault.error != LINK_ERROR_NOPERM && fault.error != LINK_ERROR_UNKNOWN) {
        node->news.useful = false; /* what refuses at once is not asked again without a pause */
        link_break(&node->news, &fault); /* again, on another connection */
        return;
    }
    if (driver->deaf)
        return;
    driver->deaf = true;
    driver->host->log(driver->host, 4,
                      "%s: subscribing is refused; waiters look every %lld ms instead", fault.text,
                      (long long)driver->retry_ms);
    driver->host->news_all(driver->host); /* to be told the shorter hint */
}

static bool is_word(const redisReply *reply, const char *word)
{
    return reply->type == REDIS_REPLY_STRING && (size_t)reply->len == strlen(word) &&
           memcmp(reply->str, word, reply->len) == 0;
}

/* ["subscribe", channel, count], ["message", channel, text], ["unsubscribe", channel, count] */
static void push(struct link *link, void *owner, redisReply *reply)
{
    struct node *node = owner;
    struct driver *driver = node->driver;
    (void)link;
    if (reply->type == REDIS_REPLY_ERROR) {
        refused(node, reply);
        return;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 ||
        reply->element[1]->type != REDIS_REPLY_STRING || is_word(reply->element[0], "unsubscribe"))
        return;
    struct watched *watched = find(driver, reply->element[1]->str, reply->element[1]->len);
    if (watched == NULL)
        return;
    if (is_word(reply->element[0], "subscribe"))
        confirmed(driver, watched, 1u << node->index);
    else
        heard(driver, watched, 1u << node->index,
              reply->element[2]->type == REDIS_REPLY_STRING && reply->element[2]->len == 1
                  ? reply->element[2]->str[0]
                  : MARK);
}

void news_suspect(struct node *node, const struct link_fault *fault)
{
    if (link_is_up(&node->news))
        link_break(&node->news, fault);
}

void news_close(struct driver *driver)
{
    struct watched *watched, *next;
    HASH_ITER (hh, driver->watched, watched, next) {
        HASH_DEL(driver->watched, watched);
        free(watched->channel);
        free(watched);
    }
    for (unsigned i = 0; i < driver->count; i++)
        link_close(&driver->nodes[i].news);
}
