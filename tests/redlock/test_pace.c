/* test_pace.c - which nodes can be asked, by what they have not answered, what becomes of an acquire if too few can, and when
 * connections in the making are looked at. Without a server, and with a clock that the test sets. */
#include "redlock.h"

#include <expect.h>

#include <stdarg.h>
#include <stdio.h>

#define MS(n) ((n)*NS_PER_MS)
#define TIMEOUT_MS 500
#define CALLS 1000
#define NODES 3

static int64_t now_ns;
static mortise_status outcome;
static char reason[300];

static int64_t now(mortise_host *host)
{
    (void)host;
    return now_ns;
}

static void complete(mortise_host *host, mortise_op *op, mortise_status status)
{
    (void)host;
    (void)op;
    outcome = status;
}

static void fail(mortise_host *host, mortise_op *op, mortise_status status, int32_t native,
                 bool retryable, const char *format, ...) __attribute__((format(printf, 6, 7)));
static void fail(mortise_host *host, mortise_op *op, mortise_status status, int32_t native,
                 bool retryable, const char *format, ...)
{
    va_list words;
    (void)native;
    CHECK(retryable);
    va_start(words, format);
    vsnprintf(reason, sizeof reason, format, words);
    va_end(words);
    complete(host, op, status);
}

static const char *quote(const char *name, size_t name_len, char *buffer, size_t size)
{
    snprintf(buffer, size, "%.*s", (int)name_len, name);
    return buffer;
}

static void fill(mortise_host *host, void *bytes, size_t size)
{
    (void)host;
    memset(bytes, 0, size);
}

static mortise_host host = {.size = sizeof host,
                            .now = now,
                            .complete = complete,
                            .fail = fail,
                            .quote = quote,
                            .random = fill};
static struct driver driver;
static struct link_call calls[NODES][CALLS + 1];

static void begin(unsigned count)
{
    memset(&driver, 0, sizeof driver);
    now_ns = 0;
    driver.host = &host;
    driver.count = count;
    driver.quorum = count / 2 + 1;
    driver.fencing = driver.persistent = true;
    driver.node_timeout_ns = MS(TIMEOUT_MS);
    for (unsigned i = 0; i < count; i++) {
        driver.nodes[i].driver = &driver;
        driver.nodes[i].index = i;
        driver.nodes[i].link.host = &host;
    }
}

/* Connected, with so many calls outstanding that were sent at 0; the last answer came at that time. */
static void put_up(unsigned which, unsigned count, int64_t answered_ms)
{
    struct link *link = &driver.nodes[which].link;
    link->state = LINK_UP;
    link->last_call = &link->first;
    link->progress_ns = MS(answered_ms);
    for (unsigned i = 0; i < count; i++) {
        link_call_begin(link, &calls[which][i]);
        link_command(link, 1);
        link_argument(link, "PING", 4);
        link_call_end(link, &calls[which][i], 1);
    }
    link_bytes_free(&link->out);
}

static const struct node *node_with(unsigned count, int64_t answered_ms)
{
    begin(1);
    put_up(0, count, answered_ms);
    return &driver.nodes[0];
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

/* Nobody has to have the lock. */
static void expect_too_few(const char *why)
{
    mortise_op op = {.kind = MORTISE_OP_ACQUIRE, .name = "pace", .name_len = 4, .ttl_ms = 60000};
    op.flags = MORTISE_OP_TRY;
    outcome = MORTISE_OK;
    now_ns = MS(TIMEOUT_MS);
    acquire_start(&driver, &op);
    CHECK(outcome == MORTISE_UNREACHABLE);
    CHECK(strstr(reason, "1 of 3 nodes, and 2 are needed") != NULL);
    CHECK(strstr(reason, why) != NULL);
}

static void test_majority_behind(void)
{
    begin(NODES);
    put_up(0, 0, 0);
    put_up(1, CALLS + 1, TIMEOUT_MS);
    put_up(2, CALLS + 1, TIMEOUT_MS);
    expect_too_few("a node answers more slowly than it is asked");
    begin(NODES);
    put_up(0, 0, 0);
    put_up(1, CALLS + 1, TIMEOUT_MS);
    link_fault_set(&driver.nodes[2].link.last, MORTISE_UNREACHABLE, true, 0, "it is down");
    expect_too_few("it is down");
}

/* When it is turned, if one of its connections is in that state, and its attempt began at 0. */
static int64_t due_ms(enum link_state state, int64_t turned_ms)
{
    static const struct link_settings settings = {.connect_timeout_ms = 1000};
    struct pollfd fds[2];
    int64_t due_ns = MORTISE_NEVER;
    begin(1);
    struct link *link = &driver.nodes[0].link;
    link->settings = &settings;
    link->state = state;
    link->fd = -1;
    link->due_ns = link->attempt_end_ns = MS(1000);
    driver.turned_ns = MS(turned_ms);
    nodes_interest(&driver, fds, 2, &due_ns);
    return due_ns / NS_PER_MS;
}

/* Nobody polls: a host that is off is not looked at a hundred times a second. */
static void test_looks(void)
{
    CHECK(due_ms(LINK_CONNECTING, 0) == 10);
    CHECK(due_ms(LINK_CONNECTING, 40) == 50);
    CHECK(due_ms(LINK_CONNECTING, 400) == 450);
    CHECK(due_ms(LINK_CONNECTING, 960) == 1000); /* the end of the attempt */
    CHECK(due_ms(LINK_GREETING, 400) == 410);
}

static const CU_TestInfo tests[] = {
    {"a silent node", test_silent},
    {"a node that answers more slowly than it is asked", test_behind},
    {"a majority that does", test_majority_behind},
    {"how often a connection in the making is looked at", test_looks},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    return run_tests("redlock pace", tests, argc, argv);
}
