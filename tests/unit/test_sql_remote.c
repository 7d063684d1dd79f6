/* test_sql_remote.c - what drivers/lib/sql/remote does with a dialect that only notes what it is to connect to: which addresses
 * the two links of a client try. A test answers the look-ups of host names when it likes. */
#include "remote/remote.h"

#include "suite.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the host ------------------------------------------------------------------------------------ */

struct question {
    mortise_resolved resolved;
    void *argument;
};

static int64_t now_ns;
static struct question questions[8];
static size_t question_count;

static int64_t host_now(mortise_host *host)
{
    (void)host;
    return now_ns;
}

static void host_random(mortise_host *host, void *bytes, size_t size)
{
    (void)host;
    memset(bytes, 7, size);
}

static bool host_resolve(mortise_host *host, const char *node, const char *port,
                         mortise_resolved resolved, void *argument)
{
    (void)host;
    (void)node;
    (void)port;
    CU_ASSERT_FATAL(question_count < 8);
    questions[question_count++] = (struct question){resolved, argument};
    return true;
}

static mortise_host host = {
    .size = sizeof(host), .now = host_now, .random = host_random, .resolve = host_resolve};

/* ---- the dialect --------------------------------------------------------------------------------- */

static char tried[64]; /* the last address, and by which link */

static void connect_noted(struct link *link)
{
    snprintf(tried, sizeof tried, "%s %.40s", link->live ? "live" : "main",
             link->addresses.at[link->address].text);
}

static void close_nothing(struct link *link)
{
    (void)link;
}

static void forget(struct request *request)
{
    (void)request;
}

static const char *where(const struct link *link, char *text, size_t size)
{
    (void)link;
    text[size - 1] = text[0] = '\0';
    return text;
}

static const struct remote_dialect dialect = {.name = "test",
                                              .connect = connect_noted,
                                              .close = close_nothing,
                                              .where = where,
                                              .forget = forget};
static const struct sql_dialect statements = {.request_size = sizeof(struct request)};
static const struct handler handler = {.lost = statement_lost};

/* ---- a client ------------------------------------------------------------------------------------ */

static struct remote *remote;
static struct link main_link, live_link;

static void begin(const char *hosts)
{
    remote = calloc(1, sizeof *remote);
    CU_ASSERT_PTR_NOT_NULL_FATAL(remote);
    now_ns = 1000000 * NS_PER_MS;
    question_count = 0;
    memset(&main_link, 0, sizeof main_link);
    memset(&live_link, 0, sizeof live_link);
    remote->main = &main_link;
    remote->live = &live_link;
    remote->connect_ms = remote->command_ms = 5000;
    remote_init(remote, &host, &dialect, &statements, 0);
    CU_ASSERT_PTR_NULL(hosts_read(&remote->hosts, hosts, "3306"));
}

/* Something waits for that connection. */
static void want(struct link *link)
{
    struct request *request = link->live ? NULL : statement_new(remote, &handler);
    if (request != NULL)
        statement_queue(request, LANE_READING);
    remote->live_wanted = remote->live_wanted || link->live;
    link_want(link);
}

/* The next look-up that was not answered. NULL: it fails. */
static void answer(const char *address)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    struct addrinfo found = {
        .ai_family = AF_INET, .ai_addr = (struct sockaddr *)&at, .ai_addrlen = sizeof at};
    struct question question = questions[0];
    CU_ASSERT_FATAL(question_count > 0);
    memmove(questions, questions + 1, --question_count * sizeof questions[0]);
    CU_ASSERT(address == NULL || inet_pton(AF_INET, address, &at.sin_addr) == 1);
    question.resolved(remote, question.argument, address != NULL ? &found : NULL, "not found");
}

static void refuse(struct link *link)
{
    link_failed_why(link, MORTISE_UNREACHABLE, true, "refused");
}

/* ---- the tests ----------------------------------------------------------------------------------- */

static void test_each_address(void)
{
    begin("one, two");
    want(&main_link);
    answer("10.0.0.1");
    CU_ASSERT_EQUAL(main_link.state, LINK_RESOLVING);
    answer("10.0.0.2");
    CU_ASSERT_STRING_EQUAL(tried, "main 10.0.0.1");
    refuse(&main_link);
    CU_ASSERT_STRING_EQUAL(tried, "main 10.0.0.2");
    refuse(&main_link);
    CU_ASSERT_EQUAL(main_link.state, LINK_DOWN);
    remote_close(remote);
}

/* The second link looks the hosts up while the first one tries them: that one still knows what comes next. */
static void test_look_up_of_the_other(void)
{
    begin("one, two, three");
    want(&main_link);
    for (int i = 0; i < 3; i++)
        answer(i == 0 ? "10.0.0.1" : i == 1 ? "10.0.0.2" : "10.0.0.3");
    want(&live_link);
    CU_ASSERT_EQUAL(live_link.state, LINK_RESOLVING);
    refuse(&main_link);
    CU_ASSERT_EQUAL(main_link.state, LINK_CONNECTING);
    CU_ASSERT_STRING_EQUAL(tried, "main 10.0.0.2");
    answer("10.0.0.1");
    refuse(&main_link);
    CU_ASSERT_EQUAL(main_link.state, LINK_CONNECTING);
    CU_ASSERT_STRING_EQUAL(tried, "main 10.0.0.3");
    answer("10.0.0.2");
    answer("10.0.0.3");
    CU_ASSERT_STRING_EQUAL(tried, "live 10.0.0.1");
    remote_close(remote);
}

/* The same, and it finds nothing, or less, or elsewhere. */
static void test_look_up_of_the_other_fails(void)
{
    static const char *const second[][2] = {
        {NULL, NULL}, {NULL, "10.0.0.2"}, {"10.0.0.1", NULL}, {"10.0.0.8", "10.0.0.9"}};
    for (size_t i = 0; i < sizeof second / sizeof second[0]; i++) {
        begin("one, two");
        want(&main_link);
        answer("10.0.0.1");
        answer("10.0.0.2");
        want(&live_link);
        answer(second[i][0]);
        answer(second[i][1]);
        CU_ASSERT_EQUAL(live_link.state, i == 0 ? LINK_DOWN : LINK_CONNECTING);
        refuse(&main_link);
        CU_ASSERT_EQUAL(main_link.state, LINK_CONNECTING);
        CU_ASSERT_STRING_EQUAL(tried, "main 10.0.0.2");
        refuse(&main_link);
        CU_ASSERT_EQUAL(main_link.state, LINK_DOWN);
        remote_close(remote);
    }
}

/* Each look-up counts, not what was found before. */
static void test_moved(void)
{
    begin("one, 10.0.0.2");
    want(&main_link);
    answer("10.0.0.1");
    answer("10.0.0.2");
    refuse(&main_link);
    refuse(&main_link);
    CU_ASSERT_EQUAL(main_link.state, LINK_DOWN);
    now_ns = main_link.retry_ns;
    want(&main_link);
    answer("10.0.0.9");
    answer("10.0.0.2");
    CU_ASSERT_STRING_EQUAL(tried, "main 10.0.0.9");
    CU_ASSERT_EQUAL(main_link.addresses.count, 2);
    remote_close(remote);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"each address is tried", test_each_address},
        {"the other link looks the hosts up", test_look_up_of_the_other},
        {"the other link looks the hosts up, and finds others", test_look_up_of_the_other_fails},
        {"a host has moved", test_moved},
        CU_TEST_INFO_NULL,
    };
    return suite_run("sql remote", tests);
}
