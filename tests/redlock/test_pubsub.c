/* test_pubsub.c - the tables of pubsub.c: what a message does to the release that is being collected, and when a
 * subscription is in force. Tests pubsub.c alone: five nodes that do not exist, and a clock that the test sets. */
#include "redlock.h"

#include <expect.h>

#define NODES 5
#define MS(n) ((n)*NS_PER_MS)
#define STRAGGLER_NS MS(3) /* as in pubsub.c */
#define RELEASE_NS MS(10)
#define TRIP_NS MS(1)
#define STEP_NS (4 * TRIP_NS)
#define OWN_RELEASE_NS MS(20)

static const char name[] = "mortise:news", channel[] = "{mortise:news}:mortise:news";
static int64_t now_ns;
static unsigned news; /* how often the core was notified */
static unsigned news_all, logged;
static unsigned usable; /* nodes */
static struct driver driver;
static const struct link_callbacks *links;

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

static void connect_node(unsigned i)
{
    struct link *link = &driver.nodes[i].news;
    link->state = LINK_UP;
    links->up(link, link->owner);
}

static void break_node(unsigned i)
{
    const struct link_fault fault = {.status = MORTISE_UNREACHABLE};
    link_break(&driver.nodes[i].news, &fault);
}

static void begin(void)
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

/* The node sends {kind, channel, text}; of a (un)subscription the text is a number. */
static void push(unsigned i, const char *kind, const char *text)
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

static void confirm(unsigned i)
{
    push(i, "subscribe", NULL);
}

/* For a reason that may pass. */
static void refuse_to_subscribe(unsigned i)
{
    redisReply reply = {.type = REDIS_REPLY_ERROR};
    links->push(&driver.nodes[i].news, &driver.nodes[i], &reply);
}

static void announce(unsigned i, const char *mark)
{
    push(i, "message", mark);
}

static void watch(void)
{
    pubsub_watch(&driver, name, sizeof name - 1);
}

static void unwatch(void)
{
    pubsub_unwatch(&driver, name, sizeof name - 1);
}

/* The driver is turned: how often the core was notified by it. */
static unsigned turned(void)
{
    unsigned before = news;
    pubsub_turn(&driver, now_ns);
    return news - before;
}

/* A name that is watched on all nodes, and nothing to be told of. */
static void begin_watching(void)
{
    begin();
    watch();
    for (unsigned i = 0; i < NODES; i++)
        confirm(i);
    CHECK(turned() == 1 && driver.news_due_ns == MORTISE_NEVER);
}

/* How many releases the waiter has heard. */
static int heard(void)
{
    return pubsub_mark(&driver, name, sizeof name - 1) - MARK;
}

/* ---- the messages of one release ---------------------------------------------------------------------------------- */

enum from { FROM_NONE, FROM_PARTIAL, FROM_COMPLETE };

/* Brings it into the state by the messages of nodes 0 to 2; what is due then is told. */
static void begin_from(enum from from)
{
    begin_watching();
    for (unsigned i = 0; i < (from == FROM_NONE ? 0 : from == FROM_PARTIAL ? 1 : 3); i++)
        announce(i, "+");
    if (from == FROM_COMPLETE)
        CHECK(turned() == 1);
}

/* For each cell of the table: in this state, that node's message, so long after the first one. Afterwards so many
 * releases were heard, and the core is notified after that time; MORTISE_NEVER: not. */
static const struct cell {
    enum from from;
    unsigned node;
    int64_t after_ns;
    int heard;
    int64_t due_ns;
} cells[] = {
    {FROM_NONE, 0, 0, 1, STRAGGLER_NS}, /* PARTIAL */
    {FROM_PARTIAL, 0, MS(1), 2,
     STRAGGLER_NS - MS(1)}, /* PARTIAL, the next; the first is due before */
    {FROM_PARTIAL, 0, RELEASE_NS + 1, 2, STRAGGLER_NS},  /* PARTIAL, the next */
    {FROM_PARTIAL, 4, RELEASE_NS + 1, 2, STRAGGLER_NS},  /* too late to be of the same */
    {FROM_PARTIAL, 4, MS(1), 1, STRAGGLER_NS - MS(1)},   /* PARTIAL */
    {FROM_PARTIAL, 4, RELEASE_NS, 1, MORTISE_NEVER},     /* PARTIAL: was notified by time */
    {FROM_COMPLETE, 0, MS(1), 2, STRAGGLER_NS},          /* PARTIAL, the next */
    {FROM_COMPLETE, 4, RELEASE_NS + 1, 2, STRAGGLER_NS}, /* PARTIAL, the next */
    {FROM_COMPLETE, 4, MS(1), 1, MORTISE_NEVER},         /* COMPLETE */
};

static void test_cells(void)
{
    for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++) {
        const struct cell *cell = &cells[i];
        begin_from(cell->from);
        now_ns += cell->after_ns;
        turned();
        announce(cell->node, "+");
        snprintf(doing, sizeof doing, "cell %zu", i);
        CHECK(heard() == cell->heard);
        CHECK(driver.news_due_ns ==
              (cell->due_ns == MORTISE_NEVER ? MORTISE_NEVER : now_ns + cell->due_ns));
        pubsub_close(&driver);
    }
    doing[0] = '\0';
}

/* The q-th message: COMPLETE. The waiter tries at once, or lets those go first that have heard more in vain. */
static void test_complete(void)
{
    static const struct {
        const char *mark;
        int64_t turn_ns;
    } marks[] = {{"+", 0}, {",", STEP_NS}, {"-", 2 * STEP_NS}, {"z", 8 * STEP_NS}};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        begin_from(FROM_PARTIAL);
        announce(3, marks[i].mark); /* the largest counts */
        announce(4, "+");
        CHECK(heard() == 1);
        CHECK(driver.news_due_ns <= now_ns + marks[i].turn_ns);
        now_ns += marks[i].turn_ns - 1;
        CHECK(turned() == 0);
        now_ns++;
        CHECK(turned() == 1);
        now_ns += STRAGGLER_NS;
        CHECK(turned() == 0); /* once */
        pubsub_close(&driver);
    }
}

/* A minority announces it: the core is notified by time, and again when the others have. */
static void test_stragglers(void)
{
    begin_from(FROM_PARTIAL);
    announce(1, "+");
    now_ns += STRAGGLER_NS - 1;
    CHECK(turned() == 0);
    now_ns++;
    CHECK(turned() == 1);
    announce(2, "+");
    CHECK(turned() == 1 && heard() == 1);
    pubsub_granted(&driver, name, sizeof name - 1, 0);
    CHECK(heard() == 0);
    pubsub_close(&driver);
}

static void refuse(char grant, uint64_t token)
{
    struct seen holder = {.token = token};
    memset(holder.grant, grant, sizeof holder.grant);
    pubsub_refused(&driver, name, sizeof name - 1, &holder);
}

/* How long after the message of a minority the core is notified. */
static int64_t notified_after_ns(void)
{
    announce(0, "+");
    int64_t after_ns = driver.news_due_ns - now_ns;
    now_ns = driver.news_due_ns;
    CHECK(turned() == 1);
    return after_ns;
}

/* As long as the same holder has the lock after each of them, they were none. */
static void test_alarms(void)
{
    begin_watching();
    refuse('a', 1);
    for (int i = 0; i < 8; i++) {
        CHECK(notified_after_ns() == STRAGGLER_NS << (i < 5 ? i : 5));
        refuse('a', 1);
        refuse('a', 1); /* a try that followed no message */
    }
    refuse('b', 2);
    CHECK(notified_after_ns() == STRAGGLER_NS);
    refuse('b', 3);
    CHECK(notified_after_ns() == STRAGGLER_NS);
    refuse('b', 3);
    CHECK(notified_after_ns() == 2 * STRAGGLER_NS);
    for (unsigned i = 0; i < 3; i++) /* a complete one */
        announce(i, "+");
    CHECK(turned() == 1);
    CHECK(notified_after_ns() == STRAGGLER_NS);
    refuse('b', 3);
    pubsub_granted(&driver, name, sizeof name - 1, 0);
    CHECK(notified_after_ns() == STRAGGLER_NS);
    pubsub_close(&driver);
}

/* ---- this client's own holds ------------------------------------------------------------------------------------- */

/* A release that all announce, with this mark. */
static void announce_all(const char *mark)
{
    for (unsigned i = 0; i < NODES; i++)
        announce(i, mark);
}

static char vote_mark(void)
{
    return pubsub_vote_mark(&driver, name, sizeof name - 1);
}

/* A vote brings a mark along if this client had to wait: one release less than it has heard. */
static void test_vote_mark(void)
{
    begin();
    CHECK(vote_mark() == ' ');
    begin_watching();
    CHECK(vote_mark() == MARK);
    for (int i = 1; i < 4; i++) {
        announce_all("+");
        CHECK(heard() == i && vote_mark() == MARK + i - 1);
    }
    pubsub_granted(&driver, name, sizeof name - 1, 0);
    CHECK(vote_mark() == MARK);
    unwatch();
    CHECK(vote_mark() == ' ');
    pubsub_close(&driver);
}

/* Clients that announce their turns by the marks of their votes come one after the other: the one that has heard most
 * asks at once, the next one a step later, unless it hears another release. */
static void test_order(void)
{
    begin_watching();
    announce_all("-"); /* others have heard three, and this one the first */
    now_ns += 2 * STEP_NS - 1;
    CHECK(turned() == 0);
    announce_all("-");
    now_ns += STEP_NS - 1;
    CHECK(turned() == 0);
    announce_all("-");
    CHECK(turned() == 1); /* its turn */
    pubsub_close(&driver);
}

/* The largest mark: who has heard more releases than it counts does not wait for itself. */
static void test_order_of_many(void)
{
    char most[] = {MARK + MARKS, '\0'};
    begin_watching();
    for (int i = 0; i < MARKS; i++)
        announce_all(most);
    CHECK(turned() == 0 && vote_mark() == MARK + MARKS - 1);
    announce_all(most);
    CHECK(turned() == 1 && vote_mark() == MARK + MARKS);
    pubsub_close(&driver);
}

/* Eight steps and a random time: at most 64 ms after the release. */
static void test_longest_turn(void)
{
    begin_watching();
    driver.spread_ns = MS(32); /* the largest: acquire.c */
    announce_all("z");
    now_ns += 8 * STEP_NS;
    CHECK(turned() == 0);
    now_ns += MS(32);
    CHECK(turned() == 1);
    pubsub_close(&driver);
}

static int64_t quiet_ns(void)
{
    int64_t until_ns = pubsub_quiet_until_ns(&driver, name, sizeof name - 1);
    return until_ns > now_ns ? until_ns - now_ns : 0;
}

/* While this client has the lock, its next caller asks nothing, and after the release until it is notified: by the
 * message in its turn, or by time if there is none. */
static void test_quiet(void)
{
    for (int heard_of = 0; heard_of < 2; heard_of++) {
        begin_watching();
        CHECK(quiet_ns() == 0);
        pubsub_granted(&driver, name, sizeof name - 1, now_ns + MS(500));
        CHECK(quiet_ns() == MS(500));
        now_ns += MS(100);
        pubsub_released(&driver, name, sizeof name - 1);
        CHECK(quiet_ns() == OWN_RELEASE_NS);
        if (heard_of)
            announce_all(",");
        now_ns += (heard_of ? STEP_NS : OWN_RELEASE_NS) - 1;
        CHECK(turned() == 0 && quiet_ns() > 0);
        now_ns++;
        CHECK(turned() == 1 && quiet_ns() == 0);
        pubsub_released(&driver, name, sizeof name - 1); /* once more: nothing is held */
        CHECK(quiet_ns() == 0 && driver.news_due_ns == MORTISE_NEVER);
        pubsub_close(&driver);
    }
}

static mortise_info told(void)
{
    mortise_info info = {.size = sizeof info, .held = false, .held_ms = -1};
    const mortise_op op = {.name = name, .name_len = sizeof name - 1, .info = &info};
    pubsub_tell_holder(&driver, &op);
    return info;
}

/* A caller that asks nothing is told of this client's own hold; after the release, of none. */
static void test_holder(void)
{
    static const char note[] = "here\n7\nprogram";
    begin_watching();
    memcpy(driver.note, note, sizeof note);
    driver.note_len = sizeof note - 1;
    CHECK(!told().held);
    pubsub_granted(&driver, name, sizeof name - 1, now_ns + MS(500));
    now_ns += MS(100);
    mortise_info info = told();
    CHECK(info.held && strcmp(info.host, "here") == 0 && info.pid == 7);
    CHECK(info.held_ms == 100 && info.remaining_ms == 400);
    pubsub_released(&driver, name, sizeof name - 1);
    CHECK(quiet_ns() > 0 && !told().held);
    pubsub_close(&driver);
}

/* A caller asks as ever if too few subscriptions are in force, if the lock is lost, or if it is held together with others. */
static void test_not_quiet(void)
{
    begin_watching();
    pubsub_granted(&driver, name, sizeof name - 1, now_ns + MS(500));
    for (unsigned i = 0; i < 3; i++)
        break_node(i);
    CHECK(quiet_ns() == 0);
    for (unsigned i = 0; i < 3; i++) {
        connect_node(i);
        confirm(i);
    }
    CHECK(turned() == 1 && quiet_ns() == 0); /* releases may have been missed */
    pubsub_granted(&driver, name, sizeof name - 1, now_ns + MS(500));
    CHECK(quiet_ns() > 0);
    pubsub_lost(&driver, name, sizeof name - 1);
    CHECK(turned() == 1 && quiet_ns() == 0);
    pubsub_granted(&driver, name, sizeof name - 1, now_ns + MS(500));
    pubsub_granted(&driver, name, sizeof name - 1, 0);
    CHECK(quiet_ns() == 0);
    pubsub_close(&driver);
}

/* ---- subscriptions ------------------------------------------------------------------------------------------------ */

static bool listens(unsigned node)
{
    return pubsub_listens(&driver.nodes[node], name, sizeof name - 1);
}

/* In force when q nodes have confirmed it: that is news. A broken one that is confirmed again is news, too. */
static void test_in_force(void)
{
    begin();
    CHECK(!listens(0));
    watch();
    CHECK(!listens(0));
    confirm(0);
    CHECK(listens(0) && !listens(1));
    confirm(1);
    CHECK(turned() == 0);
    confirm(2);
    CHECK(turned() == 1);
    confirm(3);
    CHECK(turned() == 0);
    break_node(0);
    break_node(4); /* was never confirmed */
    CHECK(turned() == 0 && !listens(0) && listens(1));
    connect_node(0);
    connect_node(4);
    confirm(4);
    CHECK(turned() == 0);
    confirm(0);
    CHECK(turned() == 1 && listens(0));
    unwatch();
    CHECK(!listens(0));
    pubsub_close(&driver);
}

/* Watched, no more, and again, before the nodes have answered: only the last SUBSCRIBE counts, because the node hears
 * nothing between the two. */
static void test_watched_again(void)
{
    begin();
    watch();
    unwatch();
    watch();
    for (unsigned i = 0; i < NODES; i++)
        confirm(i);
    CHECK(turned() == 0);
    for (unsigned i = 0; i < NODES; i++)
        push(i, "unsubscribe", NULL);
    confirm(0);
    confirm(1);
    CHECK(turned() == 0);
    confirm(2);
    CHECK(turned() == 1);
    break_node(3); /* a new connection begins to count anew */
    connect_node(3);
    break_node(0);
    connect_node(0);
    confirm(3); /* the third again */
    CHECK(turned() == 1);
    confirm(0); /* was broken */
    CHECK(turned() == 1);
    pubsub_close(&driver);
}

/* Each of these nodes is tried once more, in vain. */
static void fail(unsigned set)
{
    const struct link_fault fault = {.status = MORTISE_UNREACHABLE};
    for (unsigned i = 0; i < NODES; i++)
        if ((set & 1u << i) != 0)
            link_reject(&driver.nodes[i].news, &fault);
}

/* Whether waiters must ask. */
static bool asks(void)
{
    CHECK(news_all == logged && logged <= 1);
    return driver.unheard.asks;
}

/* When so few answer that no subscription can be in force, for a second, while a quorum works. */
static void test_unheard(void)
{
    begin_watching();
    CHECK(driver.nodes[0].news.awaited_ns == 0);
    fail(3); /* q are left */
    now_ns += MS(1000);
    fail(3);
    CHECK(!asks());
    fail(7);
    connect_node(2);
    CHECK(driver.nodes[2].news.awaited_ns != 0);
    now_ns += MS(999);
    fail(4);
    CHECK(!asks());
    usable = 2;
    now_ns += MS(1);
    fail(7);
    CHECK(!asks()); /* all is down */
    usable = 3;
    fail(7);
    now_ns += MS(999);
    fail(7);
    CHECK(!asks());
    now_ns += MS(1);
    fail(7);
    CHECK(asks());
    fail(7);
    now_ns += MS(1000);
    fail(7);
    CHECK(asks());
    usable = 2; /* that changes nothing for those who ask */
    fail(7);
    usable = 3;
    connect_node(0);
    CHECK(asks());
    confirm(0); /* with two that were not broken, q again */
    CHECK(!asks());
    pubsub_close(&driver);
}

/* A node that is connected to and refuses to subscribe tells of nothing, like one that cannot be connected to. */
static void test_unheard_refused(void)
{
    begin_watching();
    fail(7);
    for (unsigned i = 0; i < 10; i++) {
        now_ns += MS(100);
        connect_node(2);
        refuse_to_subscribe(2);
    }
    CHECK(asks());
    connect_node(2);
    refuse_to_subscribe(2); /* nor does it end the asking */
    CHECK(asks());
    connect_node(2);
    confirm(2);
    CHECK(!asks());
    pubsub_close(&driver);
}

/* No waiter, no blame; and what was before a waiter's time does not count. */
static void test_unheard_unwatched(void)
{
    begin_watching();
    fail(31);
    unwatch();
    now_ns += MS(1000);
    fail(31);
    watch();
    fail(31);
    CHECK(!asks());
    now_ns += MS(1000);
    fail(1);
    CHECK(asks());
    pubsub_close(&driver);
}

static const CU_TestInfo tests[] = {
    {"each message in each state of a release", test_cells},
    {"a release that a majority announces", test_complete},
    {"a release that a minority announces", test_stragglers},
    {"releases that are none", test_alarms},
    {"the mark that a vote brings along", test_vote_mark},
    {"one after the other, by the marks of votes", test_order},
    {"one after the other, more than a mark counts", test_order_of_many},
    {"the longest turn", test_longest_turn},
    {"quiet while this client has the lock", test_quiet},
    {"not quiet", test_not_quiet},
    {"who holds it while this client is quiet", test_holder},
    {"in force when a majority has confirmed it", test_in_force},
    {"watched again: an old confirmation does not count", test_watched_again},
    {"too few answer for any subscription", test_unheard},
    {"too few answer, and one refuses", test_unheard_refused},
    {"too few answer, and nobody waits", test_unheard_unwatched},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    return run_tests("redlock pubsub", tests, argc, argv);
}
