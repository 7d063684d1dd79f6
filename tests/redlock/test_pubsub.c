/* test_pubsub.c - the tables of pubsub.c: what a message does to the release that is being collected. test_subscriptions.c has when a
 * subscription is in force. */
#include "news_nodes.h"

#define STRAGGLER_NS MS(3) /* as in pubsub.c */
#define RELEASE_NS MS(10)
#define STEP_NS (4 * TRIP_NS)
#define OWN_RELEASE_NS MS(20)

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
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    return run_tests("redlock pubsub", tests, argc, argv);
}
