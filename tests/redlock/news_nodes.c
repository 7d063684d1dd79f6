/* news_nodes.c - five nodes that do not exist. See news_nodes.h. */
#include "news_nodes.h"

const char name[sizeof "mortise:news"] = "mortise:news";
int64_t now_ns;
unsigned news, news_all, logged, usable;
struct driver driver;
const struct link_callbacks *links;

static const char channel[] = "{mortise:news}:mortise:news";

/* ---- what pubsub.c calls ------------------------------------------------------------------------------------- */

static int64_t now(mortise_host *host)
{
    (void)host;
    return now_ns;
}

/* The largest number. */
static void fill(mortise_host *host, void *buffer, size_t length)
{
    (void)host;
    memset(buffer, 0xff, length);
}

static void count_news(mortise_host *host, const char *text, size_t length)
{
    (void)host;
    CHECK(length == sizeof name - 1 && memcmp(text, name, length) == 0);
    news++;
}

static void count_news_all(mortise_host *host)
{
    (void)host;
    news_all++;
}

static void count_log(mortise_host *host, int level, const char *format, ...)
{
    (void)host;
    (void)level;
    (void)format;
    logged++;
}

unsigned nodes_usable(const struct driver *of)
{
    (void)of;
    return usable;
}

int64_t clock_quorum_trip_ns(const struct driver *of)
{
    (void)of;
    return TRIP_NS;
}

void link_init(struct link *link, mortise_host *host, const struct link_settings *settings,
               const struct link_callbacks *callbacks, void *owner)
{
    (void)host;
    (void)settings;
    link->owner = owner;
    links = callbacks;
}

void link_want(struct link *link)
{
    link->wanted = true;
}

void link_unwant(struct link *link)
{
    link->wanted = false;
}

void link_break(struct link *link, const struct link_fault *fault)
{
    link->state = LINK_DOWN;
    links->down(link, link->owner, fault);
}

void link_reject(struct link *link, const struct link_fault *fault)
{
    link->failures++;
    link_break(link, fault);
}

void link_awaits(struct link *link, bool answers)
{
    link->awaited_ns = answers ? now_ns : 0;
}

void link_close(struct link *link)
{
    link->state = LINK_DOWN;
}

void link_fault_reply(const struct link *link, const redisReply *reply, struct link_fault *fault)
{
    (void)link;
    (void)reply;
    *fault = (struct link_fault){.status = MORTISE_BACKEND};
}

void link_command(struct link *link, unsigned arguments)
{
    (void)arguments;
    CHECK(link_is_up(link));
}

void link_argument(struct link *link, const void *data, size_t length)
{
    (void)link;
    (void)data;
    (void)length;
}

void link_text(struct link *link, const char *text)
{
    (void)link;
    (void)text;
}

void link_parts(struct link *link, const struct link_part *parts, unsigned count)
{
    (void)link;
    (void)parts;
    (void)count;
}

/* ---- the nodes ------------------------------------------------------------------------------------------------- */

void connect_node(unsigned i)
{
    struct link *link = &driver.nodes[i].news;
    link->state = LINK_UP;
    links->up(link, link->owner);
}

void break_node(unsigned i)
{
    const struct link_fault fault = {.status = MORTISE_UNREACHABLE};
    link_break(&driver.nodes[i].news, &fault);
}

void begin(void)
{
    static mortise_host host = {.size = sizeof host,
                                .now = now,
                                .random = fill,
                                .news = count_news,
                                .news_all = count_news_all,
                                .log = count_log};
    memset(&driver, 0, sizeof driver);
    driver.host = &host;
    driver.count = NODES;
    driver.quorum = 3;
    driver.news_due_ns = MORTISE_NEVER;
    now_ns = MS(1000);
    news = news_all = logged = 0;
    usable = NODES;
    for (unsigned i = 0; i < NODES; i++) {
        driver.nodes[i].driver = &driver;
        driver.nodes[i].index = i;
        pubsub_open(&driver.nodes[i]);
        connect_node(i);
    }
}

void push(unsigned i, const char *kind, const char *text)
{
    char copies[3][40];
    redisReply parts[3], *elements[3] = {&parts[0], &parts[1], &parts[2]};
    const char *const texts[3] = {kind, channel, text ? text : ""};
    redisReply reply = {.type = REDIS_REPLY_ARRAY, .elements = 3, .element = elements};
    for (int k = 0; k < 3; k++) {
        snprintf(copies[k], sizeof copies[k], "%s", texts[k]);
        parts[k] =
            (redisReply){.type = REDIS_REPLY_STRING, .str = copies[k], .len = strlen(copies[k])};
    }
    if (!text)
        parts[2].type = REDIS_REPLY_INTEGER;
    links->push(&driver.nodes[i].news, &driver.nodes[i], &reply);
}

void confirm(unsigned i)
{
    push(i, "subscribe", NULL);
}

void refuse_to_subscribe(unsigned i)
{
    redisReply reply = {.type = REDIS_REPLY_ERROR};
    links->push(&driver.nodes[i].news, &driver.nodes[i], &reply);
}

void announce(unsigned i, const char *mark)
{
    push(i, "message", mark);
}

void watch(void)
{
    pubsub_watch(&driver, name, sizeof name - 1);
}

void unwatch(void)
{
    pubsub_unwatch(&driver, name, sizeof name - 1);
}

unsigned turned(void)
{
    unsigned before = news;
    pubsub_turn(&driver, now_ns);
    return news - before;
}

void begin_watching(void)
{
    begin();
    watch();
    for (unsigned i = 0; i < NODES; i++)
        confirm(i);
    CHECK(turned() == 1 && driver.news_due_ns == MORTISE_NEVER);
}
