/* away_tests.c - servers that can be connected to, and do not answer what is asked then, or answer late. */
#include "stage.h"

#include <stdio.h>
#include <string.h>

/* What is well is answered within a second, also on a busy machine. */
#define SHORT "timeout=1s&connect_timeout=1s&unreachable_timeout=2s"

/* Status is answered, and what a majority must agree to is not. */
static void fails_with(enum fault fault, const char *why)
{
    const struct rule rule = {.method = "KV/Txn", .fault = fault, .times = 100000};
    mortise_client *client = client_behind_middle(SHORT);
    mortise_info info = {.size = sizeof info};
    mortise_lease *lease = NULL;
    give_back(take(client, fresh_name()));
    middle_rule(&rule);
    mortise_status status = mortise_acquire(
        client, fresh_name(), MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS), &lease, &detail);
    CHECK(status == MORTISE_UNREACHABLE || status == MORTISE_INDETERMINATE);
    SAYS(why);
    EXPECT(UNREACHABLE, mortise_inspect(client, fresh_name(), &info, &detail));
    SAYS(why);
    CHECK(middle_clear() > 1);
    give_back(take(client, fresh_name()));
    client_end(client);
}

static void test_no_majority(void)
{
    fails_with(HOLD, "no answer within the time");
}

static void test_balancer(void)
{
    fails_with(OTHER_MEMBER, "a balancer of calls");
}

/* The disks hang: reads and keep-alives are answered, writes are not. */
static void test_reads_only(void)
{
    mortise_client *client = client_behind_middle("ttl=30s&" SHORT);
    mortise_lease *lease = NULL;
    give_back(take(client, fresh_name()));
    middle_rule(&(struct rule){
        .method = "KV/Txn", .contains = "mortise/1 ", .fault = HOLD, .times = 100000});
    mortise_status status = mortise_acquire(
        client, fresh_name(), MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS), &lease, &detail);
    CHECK(status == MORTISE_UNREACHABLE || status == MORTISE_INDETERMINATE);
    SAYS("no answer within the time");
    CHECK(middle_clear() > 1);
    give_back(take(client, fresh_name()));
    client_end(client);
}

/* The same when the key is there, and the caller is the first: somebody has deleted the base of the tokens, and it cannot be
 * written. */
static void test_first_only(void)
{
    char base[64];
    mortise_client *client = client_behind_middle("ttl=30s&" SHORT);
    mortise_lease *lease = NULL;
    give_back(take(client, fresh_name()));
    CHECK(ctl_at(1, (const char *const[]){"get", "--print-value-only", "mortise/%tokens", NULL},
                 base, sizeof base));
    base[strcspn(base, "\n")] = '\0';
    CHECK(CTL("del", "mortise/%tokens"));
    middle_rule(
        &(struct rule){.method = "KV/Txn", .contains = base, .fault = DELAY, .times = 100000});
    mortise_status status = mortise_acquire(
        client, fresh_name(), MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS), &lease, &detail);
    CHECK(status == MORTISE_INDETERMINATE);
    SAYS("no answer within the time");
    CHECK(middle_clear() > 1);
    give_back(take(client, fresh_name()));
    client_end(client);
}

/* A caller whose turn has not come, and whose connection is lost now and then, waits on for longer than unreachable_timeout: its
 * looks are answered. */
static void test_waits_on(void)
{
    mortise_client *holder = client_direct("ttl=30s"),
                   *client = client_behind_middle("ttl=30s&" SHORT);
    const char *name = fresh_name();
    struct waiter waiter = {0};
    mortise_lease *lease = take(holder, name);
    waiter_start(&waiter, client, name);
    CHECK(wait_contenders(holder, name, 2));
    for (int i = 0; i < 3; i++) {
        middle_rule(&(struct rule){.method = "KV/Txn", .fault = HOLD, .times = 1});
        mortise_ping(client, NULL, 0, &detail);
        CHECK(middle_clear() == 1);
    }
    CHECK(test_count_get(&waiter.done) == 0);
    give_back(lease);
    CHECK(waiter_join(&waiter) == MORTISE_OK);
    give_back(waiter.lease);
    client_end(client);
    client_end(holder);
}

static bool is_held(void *argument)
{
    (void)argument;
    return middle_hits() > 0;
}

static struct test_count over;

static void *pass_slowly(void *argument)
{
    while (test_count_get(&over) == 0) {
        let_pass(1200);
        middle_pass();
    }
    return argument;
}

/* The first connection is lost. On the next one each call is answered in time, but all of them together take longer than
 * connect_timeout. */
static void test_slowly(void)
{
    const struct rule late = {.method = "", .fault = HOLD, .times = 100000};
    pthread_t thread;
    mortise_lease *lease = NULL;
    over = (struct test_count)TEST_COUNT_INIT;
    middle_rule(&(struct rule){.method = "", .fault = DROP, .times = 1, .then = &late});
    mortise_client *client = client_behind_middle("ttl=30s&timeout=10s&connect_timeout=3s");
    CHECK(pthread_create(&thread, NULL, pass_slowly, NULL) == 0);
    EXPECT(OK,
           mortise_acquire(client, fresh_name(), MORTISE_OPTIONS(.wait_ms = 0), &lease, &detail));
    CHECK(middle_hits() >= 4); /* Status, the lease, the join, the acquire */
    give_back(lease);
    test_count_add(&over, 1);
    pthread_join(thread, NULL);
    middle_clear();
    client_end(client);
}

/* The only answer of the greeting comes later than half of connect_timeout, which is the time of an attempt if there is another member:
 * no other attempt is made. */
static void test_slow_greeting(void)
{
    char endpoints[80];
    struct waiter waiter = {0};
    snprintf(endpoints, sizeof endpoints, "127.0.0.1:%d,127.0.0.1:%d", stage.middle, stage.middle);
    middle_rule(&(struct rule){.method = "Maintenance/Status", .fault = HOLD, .times = 100000});
    mortise_client *client =
        client_at(endpoints, "ttl=30s&timeout=60s&connect_timeout=2s&unreachable_timeout=60s");
    waiter_start(&waiter, client, fresh_name());
    CHECK(test_poll(is_held, NULL, TEST_PATIENCE_MS));
    let_pass(2500);
    CHECK(middle_clear() == 1);
    CHECK(waiter_join(&waiter) == MORTISE_OK);
    give_back(waiter.lease);
    client_end(client);
}

static bool count_name(const mortise_info *info, void *count)
{
    ++*(int *)count;
    return info->held;
}

/* The connection is lost below a list. It begins anew, with smaller pages, of which there are three. */
static void test_list_again(void)
{
    enum { LOCKS = 250 };
    mortise_client *holder = client_direct("ttl=30s"), *client = client_behind_middle("ttl=30s");
    mortise_lease *leases[LOCKS];
    char name[40];
    int count = 0;
    for (int i = 0; i < LOCKS; i++) {
        snprintf(name, sizeof name, "pages-%d", i);
        leases[i] = take(holder, name);
    }
    middle_rule(&(struct rule){.method = "KV/Txn", .fault = LOSE, .times = 1});
    EXPECT(OK, mortise_list(client, "pages-", count_name, &count, &detail));
    CHECK(middle_clear() == 1);
    CHECK(count == LOCKS);
    for (int i = 0; i < LOCKS; i++)
        give_back(leases[i]);
    client_end(client);
    client_end(holder);
}

const CU_TestInfo away_tests[] = {
    {"Status is answered, and nothing else", test_no_majority},
    {"a balancer of calls", test_balancer},
    {"reads are answered, and writes are not", test_reads_only},
    {"the first cannot write", test_first_only},
    {"a waiter whose looks are answered", test_waits_on},
    {"each call is answered in time, but late", test_slowly},
    {"the greeting is answered late", test_slow_greeting},
    {"a list begins anew", test_list_again},
    CU_TEST_INFO_NULL,
};
