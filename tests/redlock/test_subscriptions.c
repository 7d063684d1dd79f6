/* test_subscriptions.c - when a subscription of pubsub.c is in force, and when waiters must ask because none can be. */
#include "news_nodes.h"

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
    {"in force when a majority has confirmed it", test_in_force},
    {"watched again: an old confirmation does not count", test_watched_again},
    {"too few answer for any subscription", test_unheard},
    {"too few answer, and one refuses", test_unheard_refused},
    {"too few answer, and nobody waits", test_unheard_unwatched},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    return run_tests("redlock subscriptions", tests, argc, argv);
}
