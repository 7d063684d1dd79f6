/* test_sim.c - the sim driver as a backend: claims, owners, records, waiting, and what it costs. These tests do not
 * cover what the core makes of it. */
#include "sim_host.h"

#include <malloc.h>

/* ---- claims ----------------------------------------------------------------------------------- */

static void test_acquire_and_release(void)
{
    struct client *client = client_open(NULL);
    mortise_info info = {.size = sizeof info};
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, "a", 1);
    start(client, &op);
    CU_ASSERT_EQUAL(op.status, MORTISE_OK);
    CU_ASSERT_EQUAL(op.token, 1);
    CU_ASSERT_EQUAL(op.from_ns, clock_ns);
    CU_ASSERT_EQUAL(op.first_sent_ns, clock_ns);
    CU_ASSERT_EQUAL(op.good_for_ms, 1000);
    clock_ns += 400 * MS;
    mortise_op other = op_of(MORTISE_OP_ACQUIRE, "a", 2);
    other.info = &info;
    start(client, &other);
    CU_ASSERT_EQUAL(other.status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(other.hint_ms, 600);
    CU_ASSERT_EQUAL(info.token, 1);
    CU_ASSERT_STRING_EQUAL(info.host, "somewhere");
    CU_ASSERT_EQUAL(release(client, "a", 2), MORTISE_NOTOWNER);
    CU_ASSERT_EQUAL(release(client, "a", 1), MORTISE_OK);
    CU_ASSERT_EQUAL(release(client, "a", 1), MORTISE_LOST);
    CU_ASSERT_EQUAL(acquire(client, "a", 2), MORTISE_OK);
    client_close(client);
}

static void test_repeats(void)
{
    struct client *client = client_open(NULL);
    uint64_t first, again;
    CU_ASSERT_EQUAL(acquire_as(client, "a", 1, NULL, 1000, &first), MORTISE_OK);
    clock_ns += 500 * MS;
    CU_ASSERT_EQUAL(acquire_as(client, "a", 1, NULL, 100, &again), MORTISE_OK);
    CU_ASSERT_EQUAL(first, again);
    clock_ns += 400 * MS; /* the shorter ttl did not shorten it */
    CU_ASSERT_EQUAL(acquire(client, "a", 2), MORTISE_BUSY);
    clock_ns += 100 * MS;
    CU_ASSERT_EQUAL(acquire(client, "a", 2), MORTISE_OK);
    client_close(client);
}

static void test_renew_and_expire(void)
{
    struct client *client = client_open(NULL);
    CU_ASSERT_EQUAL(acquire(client, "a", 1), MORTISE_OK);
    clock_ns += 900 * MS;
    CU_ASSERT_EQUAL(renew(client, "a", 1), MORTISE_OK);
    clock_ns += 999 * MS;
    CU_ASSERT_EQUAL(acquire(client, "a", 2), MORTISE_BUSY);
    clock_ns += 1 * MS;
    CU_ASSERT_EQUAL(renew(client, "a", 1), MORTISE_LOST);
    CU_ASSERT_EQUAL(acquire(client, "a", 2), MORTISE_OK);
    CU_ASSERT_EQUAL(renew(client, "a", 1), MORTISE_NOTOWNER);
    CU_ASSERT_EQUAL(inspect(client, "a").token, 2);
    client_close(client);
}

static void test_token_floor(void)
{
    struct client *client = client_open(NULL);
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, "a", 1);
    op.token_floor = 1000;
    start(client, &op);
    CU_ASSERT_EQUAL(op.token, 1000);
    uint64_t token;
    CU_ASSERT_EQUAL(acquire_as(client, "b", 1, NULL, 1000, &token), MORTISE_OK);
    CU_ASSERT(token > 1000);
    sim->tokens_from(5000);
    CU_ASSERT_EQUAL(acquire_as(client, "c", 1, NULL, 1000, &token), MORTISE_OK);
    CU_ASSERT_EQUAL(token, 5000);
    client_close(client);
}

static void test_shared_owner(void)
{
    struct client *client = client_open(NULL);
    uint64_t first, second;
    CU_ASSERT_EQUAL(acquire_as(client, "a", 1, "us", 1000, &first), MORTISE_OK);
    CU_ASSERT_EQUAL(acquire_as(client, "a", 2, "us", 300, &second), MORTISE_OK);
    CU_ASSERT_EQUAL(first, second);
    CU_ASSERT_EQUAL(acquire_as(client, "a", 2, "us", 300, &second), MORTISE_OK); /* a repeat */
    mortise_info info = inspect(client, "a");
    CU_ASSERT_EQUAL(info.leases, 2);
    CU_ASSERT_STRING_EQUAL(info.owner, "us");
    CU_ASSERT_EQUAL(info.remaining_ms, 1000);
    CU_ASSERT_EQUAL(acquire_as(client, "a", 3, "them", 1000, &second), MORTISE_BUSY);
    CU_ASSERT_EQUAL(acquire(client, "a", 3), MORTISE_BUSY);
    CU_ASSERT_EQUAL(release(client, "a", 1), MORTISE_OK);
    CU_ASSERT_EQUAL(release(client, "a", 1), MORTISE_NOTOWNER);
    CU_ASSERT_EQUAL(acquire(client, "a", 3), MORTISE_BUSY);
    clock_ns += 300 * MS; /* the second one's own ttl */
    CU_ASSERT_EQUAL(acquire(client, "a", 3), MORTISE_OK);
    client_close(client);
}

static void test_inspect_list_break(void)
{
    struct client *client = client_open(NULL);
    CU_ASSERT_FALSE(inspect(client, "b").held);
    CU_ASSERT_EQUAL(acquire(client, "b", 0xab), MORTISE_OK);
    CU_ASSERT_EQUAL(acquire(client, "ab", 1), MORTISE_OK);
    CU_ASSERT_EQUAL(acquire(client, "a", 1), MORTISE_OK);
    clock_ns += 10 * MS;
    mortise_info info = inspect(client, "b");
    CU_ASSERT(info.held);
    CU_ASSERT_STRING_EQUAL(info.owner, "ab000000000000000000000000000000");
    CU_ASSERT_STRING_EQUAL(info.program, "tester");
    CU_ASSERT_EQUAL(info.pid, 4711);
    CU_ASSERT_EQUAL(info.held_ms, 10);
    CU_ASSERT_EQUAL(info.remaining_ms, 990);
    CU_ASSERT_EQUAL(info.waiters, 0);
    mortise_op list = op_of(MORTISE_OP_LIST, "", 0);
    start(client, &list);
    CU_ASSERT_STRING_EQUAL(client->names, "a ab b ");
    client->names[0] = '\0';
    list = op_of(MORTISE_OP_LIST, "a", 0);
    start(client, &list);
    CU_ASSERT_STRING_EQUAL(client->names, "a ab ");
    mortise_op op = op_of(MORTISE_OP_RELEASE, "b", 0);
    op.flags = MORTISE_OP_BREAK;
    op.token = info.token + 1;
    start(client, &op);
    CU_ASSERT_EQUAL(op.status, MORTISE_NOTOWNER);
    op.token = info.token;
    start(client, &op);
    CU_ASSERT_EQUAL(op.status, MORTISE_OK);
    CU_ASSERT_FALSE(inspect(client, "b").held);
    client_close(client);
}

static void test_records(void)
{
    struct client *client = client_open(NULL);
    char buffer[16];
    mortise_op read = op_of(MORTISE_OP_READ, "r", 0), write = op_of(MORTISE_OP_WRITE, "r", 0);
    read.buffer = buffer;
    read.buffer_size = sizeof buffer;
    start(client, &read);
    CU_ASSERT_EQUAL(read.status, MORTISE_OK);
    CU_ASSERT_EQUAL(read.record_version, 0);
    write.record = "one";
    write.record_size = 3;
    start(client, &write);
    CU_ASSERT_EQUAL(write.status, MORTISE_OK);
    CU_ASSERT_EQUAL(write.record_version, 1);
    write.record_version = 0;
    start(client, &write);
    CU_ASSERT_EQUAL(write.status, MORTISE_BUSY);
    start(client, &read);
    CU_ASSERT_EQUAL(read.record_version, 1);
    CU_ASSERT_EQUAL(read.record_size, 3);
    CU_ASSERT_NSTRING_EQUAL(buffer, "one", 3);
    client_close(client);
}

static void test_without(void)
{
    CU_ASSERT_PTR_NULL(OPEN("without", "fencing, nothing"));
    struct client *client = OPEN("without", "fencing, list,inspect reentrant shared permits");
    uint64_t token;
    CU_ASSERT_EQUAL(module->capabilities_of(client->ctx), MORTISE_CAP_LEASE | MORTISE_CAP_NOTIFY);
    CU_ASSERT_EQUAL(acquire_as(client, "a", 1, "us", 1000, &token), MORTISE_NOTSUP);
    CU_ASSERT_EQUAL(acquire_as(client, "a", 1, NULL, 1000, &token), MORTISE_OK);
    CU_ASSERT_EQUAL(token, 0);
    mortise_op op = op_of(MORTISE_OP_LIST, "", 0);
    start(client, &op);
    CU_ASSERT_EQUAL(op.status, MORTISE_NOTSUP);
    client_close(client);
}

/* ---- waiting ---------------------------------------------------------------------------------- */

static void test_news(void)
{
    struct client *holder = client_open(NULL), *waiter = client_open(NULL);
    CU_ASSERT_EQUAL(acquire(holder, "a", 1), MORTISE_OK);
    CU_ASSERT_EQUAL(acquire(waiter, "a", 2), MORTISE_BUSY);
    module->watch(waiter->ctx, "a", 1);
    CU_ASSERT_EQUAL(waiter->news, 1); /* in force */
    CU_ASSERT_EQUAL(inspect(holder, "a").waiters, 1);
    CU_ASSERT_EQUAL(release(holder, "a", 1), MORTISE_OK);
    CU_ASSERT_EQUAL(waiter->posts, 1);
    turn(waiter);
    CU_ASSERT_EQUAL(waiter->news, 2);
    module->unwatch(waiter->ctx, "a", 1);
    CU_ASSERT_EQUAL(acquire(holder, "a", 3), MORTISE_OK);
    CU_ASSERT_EQUAL(release(holder, "a", 3), MORTISE_OK);
    turn(waiter);
    CU_ASSERT_EQUAL(waiter->news, 2);
    sim->news_all();
    turn(waiter);
    CU_ASSERT_EQUAL(waiter->news_all, 1);
    client_close(holder);
    client_close(waiter);
}

static void test_no_news(void)
{
    struct client *client = OPEN("notify", "no");
    CU_ASSERT_FALSE(module->capabilities_of(client->ctx) & MORTISE_CAP_NOTIFY);
    CU_ASSERT_EQUAL(acquire(client, "a", 1), MORTISE_OK);
    module->watch(client->ctx, "a", 1);
    CU_ASSERT_EQUAL(release(client, "a", 1), MORTISE_OK);
    turn(client);
    CU_ASSERT_EQUAL(client->news, 0);
    client_close(client);
}

static void test_queue(void)
{
    struct client *holder = OPEN("queue", "yes"), *waiter = OPEN("queue", "yes");
    CU_ASSERT(module->capabilities_of(holder->ctx) & MORTISE_CAP_FAIR);
    mortise_op ops[3];
    CU_ASSERT_EQUAL(acquire(holder, "a", 1), MORTISE_OK);
    for (unsigned char i = 0; i < 3; i++) {
        ops[i] = op_of(MORTISE_OP_ACQUIRE, "a", (unsigned char)(10 + i));
        start(i == 2 ? holder : waiter, &ops[i]);
        CU_ASSERT_EQUAL(ops[i].status, 1);
    }
    CU_ASSERT_EQUAL(inspect(holder, "a").waiters, 3);
    mortise_op try = op_of(MORTISE_OP_ACQUIRE, "a", 20);
    try.flags = MORTISE_OP_TRY;
    start(waiter, &try);
    CU_ASSERT_EQUAL(try.status, MORTISE_BUSY);
    module->cancel(waiter->ctx, &ops[0]);
    CU_ASSERT_EQUAL(ops[0].status, MORTISE_CANCELED);
    clock_ns += 100 * MS;
    CU_ASSERT_EQUAL(release(holder, "a", 1), MORTISE_OK);
    CU_ASSERT_EQUAL(ops[1].status, 1); /* only in its own pump */
    turn(waiter);
    CU_ASSERT_EQUAL(ops[1].status, MORTISE_OK);
    CU_ASSERT_EQUAL(ops[1].from_ns, clock_ns);
    CU_ASSERT_EQUAL(due(holder), clock_ns + 1000 * MS); /* the next one waits for the expiry */
    clock_ns += 1000 * MS;
    turn(holder);
    CU_ASSERT_EQUAL(ops[2].status, MORTISE_OK);
    CU_ASSERT(ops[2].token > ops[1].token);
    client_close(holder);
    client_close(waiter);
}

/* A grant that the queue gave just as the waiter gave up is an answer like any other. */
static void test_queue_cancel_races(void)
{
    struct client *holder = OPEN("queue", "yes"), *waiter = OPEN("queue", "yes");
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, "a", 2);
    int completions = 0;
    op.issuer = &completions;
    CU_ASSERT_EQUAL(acquire(holder, "a", 1), MORTISE_OK);
    start(waiter, &op);
    CU_ASSERT_EQUAL(release(holder, "a", 1), MORTISE_OK);
    module->cancel(waiter->ctx, &op);
    CU_ASSERT_EQUAL(op.status, MORTISE_OK);
    turn(waiter);
    CU_ASSERT_EQUAL(completions, 1);
    client_close(holder);
    client_close(waiter);
}

static void test_latency(void)
{
    struct client *client = OPEN("latency", "5");
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, "a", 1), second = op_of(MORTISE_OP_ACQUIRE, "b", 1);
    start(client, &op);
    clock_ns += 1 * MS;
    start(client, &second);
    CU_ASSERT_EQUAL(due(client), clock_ns + 4 * MS);
    clock_ns += 4 * MS;
    turn(client);
    CU_ASSERT_EQUAL(op.status, MORTISE_OK);
    CU_ASSERT_EQUAL(op.from_ns, clock_ns - 5 * MS); /* before the request left */
    CU_ASSERT_EQUAL(second.status, 1);
    clock_ns += 1 * MS;
    turn(client);
    CU_ASSERT_EQUAL(second.status, MORTISE_OK);
    CU_ASSERT_EQUAL(due(client), MORTISE_NEVER);
    client_close(client);
}

/* ---- cost ------------------------------------------------------------------------------------- */

enum { MANY = 100000 };

static size_t allocated(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void test_memory(void)
{
    struct client *client = client_open(NULL);
    char name[32];
    size_t before = allocated();
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "bench/%d", i);
        if (acquire(client, name, 1) != MORTISE_OK)
            CU_FAIL("a name that was free was not had");
    }
    size_t each = (allocated() - before) / MANY;
    CU_ASSERT(each < 130); /* 0 under a sanitizer, whose allocator is another */
    before = allocated();
    for (int i = 0; i < 1000; i++)
        if (release(client, name, 1) != MORTISE_OK || acquire(client, name, 1) != MORTISE_OK)
            CU_FAIL("a steady cycle failed");
    CU_ASSERT_EQUAL(allocated(), before);
    client_close(client);
}

/* Names that were used and left do not stay for ever. */
static void test_idle_names_go(void)
{
    struct client *client = client_open(NULL);
    char name[32];
    size_t before = allocated();
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "passing/%d", i);
        acquire(client, name, 1);
        release(client, name, 1);
    }
    CU_ASSERT(allocated() - before < (size_t)MANY * 20);
    client_close(client);
}

static const CU_TestInfo tests[] = {
    {"acquire and release", test_acquire_and_release},
    {"repeats change nothing", test_repeats},
    {"renew and expire", test_renew_and_expire},
    {"token floor", test_token_floor},
    {"shared owner", test_shared_owner},
    {"inspect, list, break", test_inspect_list_break},
    {"records", test_records},
    {"without capabilities", test_without},
    {"news", test_news},
    {"no news", test_no_news},
    {"queue", test_queue},
    {"queue: grant and cancel at once", test_queue_cancel_races},
    {"latency", test_latency},
    {"memory", test_memory},
    {"idle names go", test_idle_names_go},
    CU_TEST_INFO_NULL,
};

int main(void)
{
    return run_tests("sim", tests);
}
