/* pubsub.c - the second connection of each node, for subscriptions: opened when a caller first waits. It reports releases to
 * the core, so that waiters try again.
 *
 * A subscription is in force when q nodes have confirmed it. Each grant has keys on q nodes, so from then on no release can be
 * missed. That moment counts as news, too, because an earlier release was not heard.
 *
 * Each SUBSCRIBE and UNSUBSCRIBE has one reply, in order. If a name is unwatched and watched again, two SUBSCRIBE are on their
 * way, and the reply to the first does not put the second in force. So the driver counts replies.
 *
 * A second connection may be impossible, or get no answers, on so many nodes that no subscription can be in force, although a
 * quorum works otherwise: the nodes have no room for another client, this process has no descriptor, or something between
 * allows only one connection. Then waiters ask every `retry` instead, until enough nodes answer. Attempts go on with the links'
 * backoff.
 *
 * An undo publishes in every node where a caller was refused: that caller's vote request, or its own undo, left a mark
 * on the lock (undo.lua). A node that lost the mark with its data publishes nothing; the others do.
 *
 * The nodes publish one after another, as the undos arrive. A waiter that tried at the first message would find the other nodes
 * still taken. So each watched name collects the messages of one release:
 *
 *   RELEASE_NONE      no release is being collected
 *   RELEASE_PARTIAL   fewer than q nodes have announced it: the core is notified after STRAGGLER_NS, and again when q have
 *   RELEASE_COMPLETE  q nodes have announced it: the core is notified after this waiter's turn_ns()
 *
 *   message                                             NONE      PARTIAL                    COMPLETE
 *   the first; a second one from the same node;         PARTIAL   PARTIAL, the next release  PARTIAL, the next release
 *     one more than RELEASE_NS after the first
 *   another node's, fewer than q so far                 -         PARTIAL                    -
 *   another node's, the q-th                            -         COMPLETE                   -
 *   another node's, after that                          -         -                          COMPLETE
 *
 * An incomplete release may be no release at all. If a node does not count for a while (node.h), a try may fail before it has
 * seen who has the lock. Then the nodes where the holder has no vote announce that try's undo. Each waiter that then tries in
 * vain would wake the others in the same way, without end. So if after such a message q nodes name the same holder as the last
 * time, there was no release, and the driver waits twice as long for the next incomplete one, until the nodes name another
 * holder.
 *
 * Who comes next: a mark says how many releases its waiter has heard in vain, and a message carries the largest mark that the
 * lock had. A waiter that has heard fewer releases lets that one go first, by a step of time for each release. Without this,
 * the waiter that hears first would always have all votes before the others ask. If tries were split lately, every waiter also
 * waits for a random time.
 *
 * A waiter that waits for its turn sends no requests, so it leaves no mark either. Therefore the vote of a client that had to
 * wait brings a mark along: the number of releases that it has heard, less one, because the next in turn has heard that many.
 * So the release is announced, and shows whose turn it is. If the next release comes before a waiter's turn, the waiter has
 * heard one more, and its turn is counted anew. If none comes (the waiter before it is dead, or keeps the lock), it asks.
 *
 * This client's own callers: as long as this client has the lock, or has just released it, the next caller sends no request
 * (quiet_until_ns), and waits for the message as every other waiter does. If no message comes, a timer notifies the caller:
 * OWN_RELEASE_NS after the release, or when the grant would have ended. */
#include "redlock.h"

#define STRAGGLER_NS (INT64_C(3) * NS_PER_MS) /* how long to wait for the other nodes' messages */
#define ALARMS_MAX 5                          /* how often that may double at most */
#define RELEASE_NS (INT64_C(10) * NS_PER_MS)  /* the messages of one release come within this */
#define STEP_TRIPS 4 /* a step lasts as long as a release, its messages and a vote */
#define STEPS_MAX 8  /* for how many steps a waiter lets others go first */
#define OWN_RELEASE_NS (INT64_C(20) * NS_PER_MS) /* a client's own release is heard within this */

enum release_state { RELEASE_NONE, RELEASE_PARTIAL, RELEASE_COMPLETE };

/* The state of a name's subscription at one node. */
enum subscription {
    SUBSCRIPTION_NONE,
    SUBSCRIPTION_IN_FORCE, /* confirmed */
    SUBSCRIPTION_BROKEN    /* it was in force, and the connection broke */
};

struct watched {
    struct channel channel;                 /* first */
    unsigned char subscriptions[NODES_MAX]; /* enum subscription */
    uint64_t asked[NODES_MAX];              /* its SUBSCRIBE was that many-th request to the node */
    bool heard[NODES_MAX];                  /* which nodes have announced this release */
    enum release_state release;
    int64_t began_ns;   /* the first message of this release */
    char mark;          /* the largest mark in its messages */
    unsigned vain;      /* releases heard since it had the lock, or began to wait */
    unsigned alarms;    /* incomplete releases that were no release, ALARMS_MAX at most */
    bool tells;         /* an incomplete release was heard, and no try has followed yet */
    struct seen holder; /* the holder that q nodes last named */
    int64_t due_ns;     /* when the core is notified */
    /* This client has the lock, or has just released it: its next caller sends no request until then, or until the
     * core is notified. */
    int64_t quiet_until_ns;
    int64_t held_since_ns; /* this client has had the lock since; 0: it has not */
};

static void up(struct link *link, void *owner);
static void down(struct link *link, void *owner, const struct link_fault *fault);
static void push(struct link *link, void *owner, redisReply *reply);

void pubsub_open(struct node *node)
{
    static const struct link_callbacks callbacks = {.up = up, .down = down, .push = push};
    link_init(&node->news, node->driver->host, &node->settings, &callbacks, node);
}

static void say(struct node *node, const char *command, struct watched *watched)
{
    struct link *link = &node->news;
    if (!link_is_up(link))
        return; /* up() subscribes to everything */
    channel_say(link, command, &watched->channel);
    link_awaits(link, true);
    watched->asked[node->index] = ++node->news_asked;
}

static void say_all(struct driver *driver, const char *command, struct watched *watched)
{
    for (unsigned i = 0; i < driver->count; i++)
        say(&driver->nodes[i], command, watched);
}

/* ---- asked by the core ------------------------------------------------------------------------------------- */

static struct watched *find_name(struct driver *driver, const char *name, size_t name_len)
{
    struct key_parts parts = {.count = 0};
    if (driver->watched == NULL)
        return NULL;
    key_add_side(&parts, name, name_len, "news");
    return (struct watched *)channel_find_parts(driver->watched, &parts);
}

void pubsub_watch(struct driver *driver, const char *name, size_t name_len)
{
    struct key_parts parts = {.count = 0};
    key_add_side(&parts, name, name_len, "news");
    struct watched *watched = (struct watched *)channel_add(
        &driver->watched, sizeof(struct watched), &parts, name, name_len);
    if (watched == NULL)
        return;
    watched->due_ns = MORTISE_NEVER;
    say_all(driver, "SUBSCRIBE", watched);
    for (unsigned i = 0; i < driver->count; i++)
        link_want(&driver->nodes[i].news);
}

void pubsub_unwatch(struct driver *driver, const char *name, size_t name_len)
{
    struct watched *watched = find_name(driver, name, name_len);
    if (watched == NULL)
        return;
    say_all(driver, "UNSUBSCRIBE", watched);
    channel_remove(&driver->watched, &watched->channel);
    if (driver->watched != NULL)
        return;
    driver->unheard.since_ns = 0;
    for (unsigned i = 0; i < driver->count; i++)
        link_unwant(&driver->nodes[i].news); /* it stays open for the next */
}

static char mark_at(unsigned vain)
{
    return (char)(MARK + (vain < MARKS ? vain : MARKS));
}

char pubsub_mark(struct driver *driver, const char *name, size_t name_len)
{
    const struct watched *watched = find_name(driver, name, name_len);
    return watched != NULL ? mark_at(watched->vain) : MARK;
}

/* The longest waiter has heard one release less than this client. After this client's release, it will have heard as many. */
char pubsub_vote_mark(struct driver *driver, const char *name, size_t name_len)
{
    const struct watched *watched = find_name(driver, name, name_len);
    if (watched == NULL)
        return ' ';
    return mark_at(watched->vain > 0 ? watched->vain - 1 : 0);
}

/* ---- notifying the core ---------------------------------------------------------------------------------------- */

static void notify_at(struct driver *driver, struct watched *watched, int64_t due_ns)
{
    watched->due_ns = due_ns;
    if (due_ns < driver->news_due_ns)
        driver->news_due_ns = due_ns;
}

static void notify_by(struct driver *driver, struct watched *watched, int64_t due_ns)
{
    if (due_ns < watched->due_ns)
        notify_at(driver, watched, due_ns);
}

/* How long this client lets waiters go first that have heard more releases in vain; plus a random time, if tries were
 * split lately. The mark that it left on the lock itself dates from before this release. A mark counts only up to
 * MARKS: a waiter that has heard more is one of the next, and waits for nobody. */
static int64_t turn_ns(struct driver *driver, const struct watched *watched)
{
    int64_t step_ns = STEP_TRIPS * clock_quorum_trip_ns(driver),
            steps = watched->mark - MARK + 1 - (int64_t)watched->vain;
    int64_t ns = steps <= 0 ? 0 : step_ns * (steps < STEPS_MAX ? steps : STEPS_MAX);
    if (driver->spread_ns > 0)
        ns += (int64_t)random_below(driver, (uint64_t)driver->spread_ns);
    return ns;
}

static unsigned count_heard(const struct driver *driver, const struct watched *watched)
{
    unsigned n = 0;
    for (unsigned i = 0; i < driver->count; i++)
        n += watched->heard[i];
    return n;
}

static unsigned count_in_force(const struct driver *driver, const struct watched *watched)
{
    unsigned n = 0;
    for (unsigned i = 0; i < driver->count; i++)
        n += watched->subscriptions[i] == SUBSCRIPTION_IN_FORCE;
    return n;
}

/* The node announces a release. */
static void heard(struct driver *driver, struct watched *watched, unsigned node, char mark)
{
    int64_t now = now_of(driver);
    if (watched->release == RELEASE_NONE || watched->heard[node] ||
        now - watched->began_ns > RELEASE_NS) {
        memset(watched->heard, 0, sizeof(watched->heard));
        watched->release = RELEASE_PARTIAL;
        watched->began_ns = now;
        watched->mark = MARK;
        watched->vain++;
        watched->tells = true;
        notify_by(driver, watched, now + (STRAGGLER_NS << watched->alarms));
    }
    watched->heard[node] = true;
    watched->mark = mark > watched->mark ? mark : watched->mark;
    if (watched->release == RELEASE_COMPLETE || count_heard(driver, watched) < driver->quorum)
        return;
    watched->release = RELEASE_COMPLETE;
    watched->alarms = 0;
    notify_at(driver, watched, now + turn_ns(driver, watched));
}

/* ---- this client's own holds --------------------------------------------------------------------------------- */

/* This client's other callers begin to count anew. */
void pubsub_granted(struct driver *driver, const char *name, size_t name_len, int64_t until_ns)
{
    struct watched *watched = find_name(driver, name, name_len);
    if (watched == NULL)
        return;
    watched->vain = watched->alarms = 0;
    watched->quiet_until_ns = until_ns;
    watched->held_since_ns = now_of(driver);
}

/* If the same holder as before refuses it after an incomplete release, there was no release. */
void pubsub_refused(struct driver *driver, const char *name, size_t name_len,
                    const struct seen *holder)
{
    struct watched *watched = find_name(driver, name, name_len);
    if (watched == NULL)
        return;
    bool is_same = watched->holder.token == holder->token &&
                   memcmp(watched->holder.grant, holder->grant, sizeof(holder->grant)) == 0;
    if (!is_same)
        watched->alarms = 0;
    else if (watched->tells && watched->alarms < ALARMS_MAX)
        watched->alarms++;
    watched->tells = false;
    watched->holder = *holder;
}

/* If the lock had no mark, no message comes. Then a timer notifies the core. */
void pubsub_released(struct driver *driver, const char *name, size_t name_len)
{
    struct watched *watched = find_name(driver, name, name_len);
    int64_t now = now_of(driver);
    if (watched == NULL)
        return;
    watched->held_since_ns = 0;
    if (watched->quiet_until_ns <= now)
        return;
    watched->quiet_until_ns = now + OWN_RELEASE_NS;
    notify_by(driver, watched, watched->quiet_until_ns);
}

void pubsub_lost(struct driver *driver, const char *name, size_t name_len)
{
    struct watched *watched = find_name(driver, name, name_len);
    if (watched == NULL)
        return;
    watched->held_since_ns = 0;
    if (watched->quiet_until_ns > now_of(driver))
        notify_by(driver, watched, now_of(driver));
}

bool pubsub_listens(const struct node *node, const char *name, size_t name_len)
{
    const struct watched *watched = find_name(node->driver, name, name_len);
    return watched != NULL && watched->subscriptions[node->index] == SUBSCRIPTION_IN_FORCE;
}

bool pubsub_hears(struct driver *driver, const char *name, size_t name_len)
{
    const struct watched *watched = find_name(driver, name, name_len);
    return watched != NULL && count_in_force(driver, watched) >= driver->quorum;
}

int64_t pubsub_quiet_until_ns(struct driver *driver, const char *name, size_t name_len)
{
    const struct watched *watched = find_name(driver, name, name_len);
    return pubsub_hears(driver, name, name_len) ? watched->quiet_until_ns : 0;
}

/* No node is asked, so the holder is described from memory. */
void pubsub_tell_holder(struct driver *driver, const mortise_op *op)
{
    const struct watched *watched = find_name(driver, op->name, op->name_len);
    if (watched == NULL || watched->held_since_ns == 0 || op->info == NULL)
        return;
    int64_t now = now_of(driver);
    holder_set(op->info, "", 0, 0, 0, 0, driver->note, driver->note_len);
    op->info->held_ms = (now - watched->held_since_ns) / NS_PER_MS;
    op->info->remaining_ms = (watched->quiet_until_ns - now) / NS_PER_MS;
}

/* ---- subscriptions --------------------------------------------------------------------------------------------- */

/* If the subscription was broken, or is in force only now, an earlier release was not heard. */
static void confirmed(struct driver *driver, struct watched *watched, unsigned node)
{
    bool was_short = count_in_force(driver, watched) < driver->quorum;
    bool was_broken = watched->subscriptions[node] == SUBSCRIPTION_BROKEN;
    watched->subscriptions[node] = SUBSCRIPTION_IN_FORCE;
    if (was_broken || (was_short && count_in_force(driver, watched) >= driver->quorum))
        notify_by(driver, watched, now_of(driver));
}

void pubsub_turn(struct driver *driver, int64_t now_ns)
{
    if (driver->news_due_ns > now_ns)
        return;
    driver->news_due_ns = MORTISE_NEVER;
    for (struct channel *each = driver->watched; each != NULL; each = each->hh.next) {
        struct watched *watched = (struct watched *)each;
        if (watched->due_ns <= now_ns) {
            watched->due_ns = MORTISE_NEVER;
            watched->quiet_until_ns = 0;
            driver->host->news(driver->host, each->name, each->name_len);
        } else if (watched->due_ns < driver->news_due_ns)
            driver->news_due_ns = watched->due_ns;
    }
}

/* ---- replies of the nodes ---------------------------------------------------------------------------------------- */

static void up(struct link *link, void *owner)
{
    struct node *node = owner;
    struct driver *driver = node->driver;
    (void)link;
    node->news_asked = node->news_answered = 0;
    for (struct channel *each = driver->watched; each != NULL; each = each->hh.next)
        say(node, "SUBSCRIBE", (struct watched *)each);
}

/* Nodes that have answered on this connection. */
static unsigned count_answering(const struct driver *driver)
{
    unsigned n = 0;
    for (unsigned i = 0; i < driver->count; i++)
        n += link_is_up(&driver->nodes[i].news) && driver->nodes[i].news_answered > 0;
    return n;
}

/* Makes waiters ask again, so that they get the shorter hint. */
static void tried_in_vain(struct driver *driver, const struct link_fault *fault)
{
    if (count_answering(driver) >= driver->quorum || nodes_usable(driver) < driver->quorum)
        driver->unheard.since_ns = 0;
    else if (unheard_goes_on(&driver->unheard, driver->host, fault, driver->retry_ms))
        driver->host->news_all(driver->host);
}

static void count_answer(struct node *node)
{
    node->news_answered++;
    link_awaits(&node->news, node->news_answered < node->news_asked);
}

/* Called for an answer that does not end the connection. */
static void look_whether_heard(struct driver *driver)
{
    if (count_answering(driver) >= driver->quorum)
        unheard_end(&driver->unheard);
}

static void down(struct link *link, void *owner, const struct link_fault *fault)
{
    struct node *node = owner;
    struct driver *driver = node->driver;
    for (struct channel *each = driver->watched; each != NULL; each = each->hh.next) {
        unsigned char *subscription = &((struct watched *)each)->subscriptions[node->index];
        if (*subscription == SUBSCRIPTION_IN_FORCE)
            *subscription = SUBSCRIPTION_BROKEN;
    }
    if (driver->watched == NULL)
        link_unwant(link);
    else if (link->failures > 0)
        tried_in_vain(driver, fault);
}

static void refused(struct node *node, const redisReply *reply)
{
    struct driver *driver = node->driver;
    struct link_fault fault;
    link_fault_reply(&node->news, reply, &fault);
    if (fault.error != LINK_ERROR_NOPERM && fault.error != LINK_ERROR_UNKNOWN) {
        link_reject(&node->news, &fault); /* again, on another connection, after the backoff */
        return;
    }
    look_whether_heard(driver); /* waiters poll for a refused channel in any case */
    if (driver->deaf)
        return;
    driver->deaf = true;
    driver->host->log(driver->host, 4,
                      "%s: subscribing is refused; waiters look every %lld ms instead", fault.text,
                      (long long)driver->retry_ms);
    driver->host->news_all(driver->host); /* they ask again, and get the shorter hint */
}

static void push(struct link *link, void *owner, redisReply *reply)
{
    struct node *node = owner;
    struct driver *driver = node->driver;
    (void)link;
    enum push kind = push_of(reply);
    if (kind == PUSH_REFUSED || kind == PUSH_SUBSCRIBED || kind == PUSH_UNSUBSCRIBED)
        count_answer(node);
    if (kind == PUSH_REFUSED)
        refused(node, reply);
    else if (kind == PUSH_SUBSCRIBED || kind == PUSH_UNSUBSCRIBED)
        look_whether_heard(driver);
    if (kind != PUSH_SUBSCRIBED && kind != PUSH_MESSAGE)
        return;
    struct watched *watched = (struct watched *)channel_find(
        driver->watched, reply->element[1]->str, reply->element[1]->len);
    if (watched == NULL)
        return;
    const redisReply *text = reply->element[2];
    bool marked = text->type == REDIS_REPLY_STRING && text->len == 1;
    if (kind == PUSH_SUBSCRIBED && node->news_answered == watched->asked[node->index])
        confirmed(driver, watched, node->index);
    else if (kind == PUSH_MESSAGE)
        heard(driver, watched, node->index, marked ? text->str[0] : MARK);
}

void pubsub_suspect(struct node *node, const struct link_fault *fault)
{
    if (nodes_usable(node->driver) < node->driver->quorum)
        node->driver->unheard.since_ns = 0;
    if (link_is_up(&node->news))
        link_break(&node->news, fault);
}

void pubsub_close(struct driver *driver)
{
    channels_free(&driver->watched);
    for (unsigned i = 0; i < driver->count; i++)
        link_close(&driver->nodes[i].news);
}
