/* test_pace.c - which nodes can be asked, by what they have not answered: node.c without a server, and a clock that the test
 * sets. */
#include "redlock.h"

#include <expect.h>

#define MS(n) ((n)*NS_PER_MS)
#define TIMEOUT_MS 500
#define CALLS 1000

static int64_t now(mortise_host *host)
{
    (void)host;
    return 0;
}

static mortise_host host = {.size = sizeof host, .now = now};
static struct driver driver;
static struct link_call calls[CALLS + 1];

/* Connected, with so many calls outstanding that were sent at 0; the last answer came at that time. */
static const struct node *node_with(unsigned count, int64_t answered_ms)
{
    struct node *node = &driver.nodes[0];
    memset(&driver, 0, sizeof driver);
    driver.count = 1;
    driver.node_timeout_ns = MS(TIMEOUT_MS);
    node->driver = &driver;
    node->link.host = &host;
    node->link.state = LINK_UP;
    node->link.last_call = &node->link.first;
    node->link.progress_ns = MS(answered_ms);
    for (unsigned i = 0; i < count; i++) {
        link_call_begin(&node->link, &calls[i]);
        link_command(&node->link, 1);
        link_argument(&node->link, "PING", 4);
        link_call_end(&node->link, &calls[i], 1);
    }
    link_bytes_free(&node->link.out);
    return node;
}

static void test_silent(void)
{
    const struct node *node = node_with(1, 0);
    CHECK(node_is_usable(node, MS(TIMEOUT_MS - 1)));
    CHECK(!node_is_usable(node, MS(TIMEOUT_MS)));
    node = node_with(0, 0);
    CHECK(node_is_usable(node, MS(TIMEOUT_MS)));
}

/* It answers all the time, and is behind. */
static void test_behind(void)
{
    const struct node *node = node_with(CALLS + 1, TIMEOUT_MS);
    CHECK(node_pace_at(node, MS(TIMEOUT_MS)) == PACE_PROMPT);
    CHECK(node_takes_votes(node, MS(TIMEOUT_MS - 1))); /* that many at once are no sign of it */
    CHECK(!node_takes_votes(node, MS(TIMEOUT_MS)));
    CHECK(node_is_usable(node, MS(TIMEOUT_MS))); /* for renewals and releases */
    node = node_with(CALLS, TIMEOUT_MS);
    CHECK(node_takes_votes(node, MS(TIMEOUT_MS)));
}

static const CU_TestInfo tests[] = {
    {"a silent node", test_silent},
    {"a node that answers more slowly than it is asked", test_behind},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    return run_tests("redlock pace", tests, argc, argv);
}
