/* test_sim_script.c - the sim driver's script: every outcome that a test can choose for an op. */
#include "sim_host.h"

#include <pthread.h>

/* ---- the script ------------------------------------------------------------------------------- */

#define SCRIPT(...) sim->script(&(const sim_rule){__VA_ARGS__})
#define ACQUIRES .kinds = SIM_OP(MORTISE_OP_ACQUIRE)

static void test_refuse_skip_times(void)
{
    struct client *client = client_open(NULL);
    int rule = SCRIPT(ACQUIRES, .name = "a", .skip = 1, .times = 1, .fate = SIM_REFUSE,
                      .status = MORTISE_UNREACHABLE, .native = 42);
    CU_ASSERT_EQUAL(acquire(client, "a", 1), MORTISE_OK);
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, "b", 1);
    start(client, &op);
    CU_ASSERT_EQUAL(op.status, MORTISE_OK);
    CU_ASSERT_EQUAL(release(client, "a", 1), MORTISE_OK);
    op = op_of(MORTISE_OP_ACQUIRE, "a", 2);
    start(client, &op);
    CU_ASSERT_EQUAL(op.status, MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(op.hint_ms, 42);
    CU_ASSERT_EQUAL(sim->hits(rule), 1);
    CU_ASSERT_EQUAL(sim->claims(), 1);
    CU_ASSERT_EQUAL(acquire(client, "a", 2), MORTISE_OK);
    CU_ASSERT_EQUAL(sim->count(MORTISE_OP_ACQUIRE), 4);
    CU_ASSERT_EQUAL(sim->count(0), 5);
    client_close(client);
}

static void test_reply_lost(void)
{
    struct client *client = client_open(NULL);
    SCRIPT(ACQUIRES, .times = 1, .fate = SIM_LOSE_REPLY, .status = MORTISE_INDETERMINATE);
    CU_ASSERT_EQUAL(acquire(client, "a", 1), MORTISE_INDETERMINATE);
    CU_ASSERT_EQUAL(acquire(client, "a", 2), MORTISE_BUSY);
    CU_ASSERT_EQUAL(acquire(client, "a", 1), MORTISE_OK);
    client_close(client);
}

static void test_hold(void)
{
    struct client *client = client_open(NULL), *other = client_open(NULL);
    int rule = SCRIPT(ACQUIRES, .times = 1, .hold_request = true, .hold_reply = true);
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, "a", 1);
    start(client, &op);
    CU_ASSERT_EQUAL(sim->held(rule), 1);
    CU_ASSERT_EQUAL(sim->claims(), 0);
    CU_ASSERT_EQUAL(due(client), MORTISE_NEVER);
    sim->let_go(rule);
    turn(client);
    CU_ASSERT_EQUAL(sim->claims(), 1);
    CU_ASSERT_EQUAL(op.status, 1);
    CU_ASSERT_EQUAL(acquire(other, "a", 2), MORTISE_BUSY);
    sim->let_go(rule);
    turn(client);
    CU_ASSERT_EQUAL(op.status, MORTISE_OK);
    CU_ASSERT_EQUAL(sim->outstanding(), 0);
    client_close(client);
    client_close(other);
}

static void test_delays(void)
{
    struct client *client = client_open(NULL);
    SCRIPT(ACQUIRES, .request_ns = 3 * MS, .reply_ns = 4 * MS);
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, "a", 1);
    start(client, &op);
    clock_ns += 3 * MS;
    turn(client);
    CU_ASSERT_EQUAL(sim->claims(), 1);
    CU_ASSERT_EQUAL(due(client), clock_ns + 4 * MS);
    clock_ns += 4 * MS;
    turn(client);
    CU_ASSERT_EQUAL(op.status, MORTISE_OK);
    client_close(client);
}

/* The request outlives the answer: no release is sure until it has arrived. */
static void test_ghost(void)
{
    struct client *client = client_open(NULL);
    int rule = SCRIPT(ACQUIRES, .times = 1, .fate = SIM_GHOST, .hold_request = true,
                      .status = MORTISE_INDETERMINATE);
    CU_ASSERT_EQUAL(acquire(client, "a", 1), MORTISE_INDETERMINATE);
    mortise_op op = op_of(MORTISE_OP_RELEASE, "a", 1);
    start(client, &op);
    CU_ASSERT_EQUAL(op.status, MORTISE_LOST);
    CU_ASSERT_FALSE(op.sure);
    CU_ASSERT_EQUAL(sim->ghosts(), 1);
    sim->let_go(rule);
    CU_ASSERT_EQUAL(sim->ghosts(), 0);
    CU_ASSERT_EQUAL(acquire(client, "a", 2), MORTISE_BUSY);
    start(client, &op);
    CU_ASSERT_EQUAL(op.status, MORTISE_OK);
    CU_ASSERT(op.sure);
    client_close(client);
}

static void test_cancel_on_its_way(void)
{
    struct client *client = OPEN("latency", "5");
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, "a", 1);
    start(client, &op);
    module->cancel(client->ctx, &op);
    CU_ASSERT_EQUAL(op.status, MORTISE_INDETERMINATE);
    CU_ASSERT_EQUAL(sim->claims(), 0);
    clock_ns += 5 * MS;
    turn(client);
    CU_ASSERT_EQUAL(sim->claims(), 1); /* it came all the same */
    client_close(client);
}

static void test_cancel_modes(void)
{
    struct client *client = client_open(NULL);
    int completions = 0;
    int ignored =
        SCRIPT(ACQUIRES, .name = "a", .hold_reply = true, .on_cancel = SIM_CANCEL_IGNORED);
    SCRIPT(ACQUIRES, .name = "b", .hold_reply = true, .on_cancel = SIM_CANCEL_CLEAN);
    SCRIPT(ACQUIRES, .name = "c", .fate = SIM_SILENT_EXECUTED);
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, "a", 1);
    start(client, &op);
    module->cancel(client->ctx, &op);
    CU_ASSERT_EQUAL(op.status, 1);
    sim->let_go(ignored);
    turn(client);
    CU_ASSERT_EQUAL(op.status, MORTISE_OK);
    op = op_of(MORTISE_OP_ACQUIRE, "b", 1);
    start(client, &op);
    CU_ASSERT_EQUAL(sim->claims(), 2);
    module->cancel(client->ctx, &op);
    CU_ASSERT_EQUAL(op.status, MORTISE_CANCELED);
    CU_ASSERT_EQUAL(sim->claims(), 1);
    op = op_of(MORTISE_OP_ACQUIRE, "c", 1);
    op.issuer = &completions;
    start(client, &op);
    CU_ASSERT_EQUAL(sim->outstanding(), 1);
    module->cancel(client->ctx, &op);
    CU_ASSERT_EQUAL(op.status, MORTISE_INDETERMINATE);
    CU_ASSERT_EQUAL(completions, 1);
    client_close(client);
}

static void test_twice_and_silent(void)
{
    struct client *client = client_open(NULL);
    int completions = 0;
    int rule = SCRIPT(.times = 1, .twice = true);
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, "a", 1), silent = op_of(MORTISE_OP_ACQUIRE, "b", 1);
    op.issuer = &completions;
    start(client, &op);
    CU_ASSERT_EQUAL(completions, 2);
    sim->end(rule);
    SCRIPT(.fate = SIM_SILENT);
    start(client, &silent);
    CU_ASSERT_EQUAL(silent.status, 1);
    CU_ASSERT_EQUAL(sim->claims(), 1);
    client_close(client); /* with an op that nobody answered */
    CU_ASSERT_EQUAL(sim->outstanding(), 0);
}

static void test_claims_by_hand(void)
{
    struct client *client = client_open(NULL);
    CU_ASSERT_EQUAL(acquire(client, "a", 1), MORTISE_OK);
    CU_ASSERT(sim->lose("a"));
    CU_ASSERT_FALSE(sim->lose("a"));
    CU_ASSERT_EQUAL(renew(client, "a", 1), MORTISE_LOST);
    uint64_t token = sim->seize("a", clock_ns + 100 * MS);
    CU_ASSERT_EQUAL(token, 2);
    CU_ASSERT_EQUAL(renew(client, "a", 1), MORTISE_NOTOWNER);
    CU_ASSERT_STRING_EQUAL(inspect(client, "a").program, "stranger");
    module->watch(client->ctx, "a", 1);
    CU_ASSERT(sim->give_back("a"));
    turn(client);
    CU_ASSERT_EQUAL(client->news, 2);
    CU_ASSERT(sim->seize("a", MORTISE_NEVER) > token);
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, "a", 1);
    start(client, &op);
    CU_ASSERT_EQUAL(op.status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(op.hint_ms, -1);
    sim->lose_all();
    CU_ASSERT_EQUAL(sim->claims(), 0);
    CU_ASSERT_EQUAL(sim->waiters("a"), 1);
    CU_ASSERT_EQUAL(sim->waiters(NULL), 1);
    client_close(client);
    CU_ASSERT_EQUAL(sim->waiters(NULL), 0);
}

/* A holder that was taken away does not leave the queue waiting. */
static void test_lose_with_queue(void)
{
    struct client *client = OPEN("queue", "yes");
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, "a", 2);
    CU_ASSERT_EQUAL(acquire(client, "a", 1), MORTISE_OK);
    start(client, &op);
    sim->lose("a");
    turn(client);
    CU_ASSERT_EQUAL(op.status, MORTISE_OK);
    client_close(client);
}

static void *hit(void *client)
{
    acquire(client, "a", 1);
    return NULL;
}

static void test_wait_hits(void)
{
    struct client *client = client_open(NULL);
    pthread_t thread;
    int rule = SCRIPT(ACQUIRES);
    CU_ASSERT_FALSE(sim->wait_hits(rule, 1, 1));
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, hit, client), 0);
    CU_ASSERT(sim->wait_hits(rule, 1, 10000));
    pthread_join(thread, NULL);
    client_close(client);
}

static const CU_TestInfo tests[] = {
    {"script: refuse, skip, times", test_refuse_skip_times},
    {"script: reply lost", test_reply_lost},
    {"script: hold", test_hold},
    {"script: delays", test_delays},
    {"script: ghost", test_ghost},
    {"cancel of a request on its way", test_cancel_on_its_way},
    {"cancel modes", test_cancel_modes},
    {"twice, and silent", test_twice_and_silent},
    {"claims by hand", test_claims_by_hand},
    {"a queue behind a lost claim", test_lose_with_queue},
    {"wait for hits", test_wait_hits},
    CU_TEST_INFO_NULL,
};

int main(void)
{
    return run_tests("sim script", tests);
}
