/* test_query.c - what is asked beside locks, and is not answered in time: was it done? Only a driver that is certain to have
 * sent nothing makes that UNREACHABLE. On the machine's clock, for a caller that waits. */
#include "rig.h"

static struct rig rig;
static const sim_on_cancel answers[] = {SIM_CANCEL_INDETERMINATE, SIM_CANCEL_CLEAN};

static int start(mortise_op_kind kind, sim_rule rule)
{
    rig_open_real(&rig, "unreachable_timeout = 100ms\n");
    rule.kinds = SIM_OP(kind);
    rule.times = 1;
    return sim->script(&rule);
}

static void test_break(void)
{
    for (size_t i = 0; i < 2; i++) {
        start(MORTISE_OP_RELEASE, (sim_rule){.fate = SIM_SILENT, .on_cancel = answers[i]});
        uint64_t token = sim->seize("a", MORTISE_NEVER);
        CU_ASSERT_EQUAL(mortise_break(rig.handle, "a", token, NULL), answers[i] == SIM_CANCEL_CLEAN
                                                                         ? MORTISE_UNREACHABLE
                                                                         : MORTISE_INDETERMINATE);
        rig_close(&rig);
        sim->reset();
    }
}

static void test_break_executed(void)
{
    start(MORTISE_OP_RELEASE, (sim_rule){.fate = SIM_SILENT_EXECUTED});
    uint64_t token = sim->seize("a", MORTISE_NEVER);
    CU_ASSERT_EQUAL(mortise_break(rig.handle, "a", token, NULL), MORTISE_INDETERMINATE);
    CU_ASSERT_FALSE(sim->holds("a", token));
    rig_close(&rig);
}

/* The driver does not even answer the cancel. */
static void test_break_ignored(void)
{
    int rule =
        start(MORTISE_OP_RELEASE, (sim_rule){.hold_reply = true, .on_cancel = SIM_CANCEL_IGNORED});
    uint64_t token = sim->seize("a", MORTISE_NEVER);
    CU_ASSERT_EQUAL(mortise_break(rig.handle, "a", token, NULL), MORTISE_INDETERMINATE);
    sim->let_go(rule);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT();
}

static void test_write(void)
{
    for (size_t i = 0; i < 2; i++) {
        uint64_t version = 0;
        start(MORTISE_OP_WRITE, (sim_rule){.fate = SIM_SILENT, .on_cancel = answers[i]});
        CU_ASSERT_EQUAL(mortise_record_write(rig.handle, "a", "x", 1, &version, NULL),
                        answers[i] == SIM_CANCEL_CLEAN ? MORTISE_UNREACHABLE
                                                       : MORTISE_INDETERMINATE);
        rig_close(&rig);
    }
}

/* What changes nothing leaves nothing in doubt. */
static void test_look(void)
{
    for (size_t i = 0; i < 2; i++) {
        mortise_info info = {.size = sizeof(info)};
        start(MORTISE_OP_INSPECT, (sim_rule){.fate = SIM_SILENT, .on_cancel = answers[i]});
        CU_ASSERT_EQUAL(mortise_inspect(rig.handle, "a", &info, NULL), MORTISE_UNREACHABLE);
        rig_close(&rig);
    }
}

/* ---- a driver that says why it has no answer ------------------------------------------------------- */

static struct test_count kept;

static void keep(void *ctx, mortise_op **ops, size_t n)
{
    (void)ctx;
    (void)ops;
    test_count_add(&kept, (int)n);
}

static void explain(void *ctx, mortise_op *op)
{
    mortise_host *host = &rig.client->top->host;
    (void)ctx;
    host->fail(host, op, MORTISE_CANCELED, 0, true, "nobody is there");
}

static void start_explaining(const char *settings)
{
    rig_open_real(&rig, settings);
    kept = (struct test_count)TEST_COUNT_INIT;
    mortise_module *module = &rig.client->top->module;
    pthread_mutex_lock(&rig.client->pump.lock);
    module->start = keep;
    module->cancel = explain;
    pthread_mutex_unlock(&rig.client->pump.lock);
}

static void test_reason(void)
{
    mortise_info info = {.size = sizeof(info)};
    mortise_error error;
    start_explaining("unreachable_timeout = 100ms\n");
    CU_ASSERT_EQUAL(mortise_inspect(rig.handle, "a", &info, &error), MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(error.status, MORTISE_UNREACHABLE);
    CU_ASSERT_STRING_EQUAL(error.message,
                           "inspect: the backend did not answer in time; nobody is there");
    rig_close(&rig);
}

static void *inspect(void *argument)
{
    mortise_info info = {.size = sizeof(info)};
    mortise_inspect(rig.handle, "a", &info, argument);
    return NULL;
}

/* The client is closed under the caller: that is why, whatever the driver says. */
static void test_reason_closed(void)
{
    pthread_t thread;
    mortise_error error;
    start_explaining("");
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, inspect, &error), 0);
    test_count_wait(&kept, 1);
    rig_close(&rig);
    pthread_join(thread, NULL);
    CU_ASSERT_EQUAL(error.status, MORTISE_CLOSED);
    CU_ASSERT_PTR_NULL(strstr(error.message, "nobody is there"));
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"a break", test_break},
        {"a break that was executed", test_break_executed},
        {"a break, and no answer to the cancel", test_break_ignored},
        {"the write of a record", test_write},
        {"an inspect", test_look},
        {"the driver says why", test_reason},
        {"the driver says why, and the client is closed", test_reason_closed},
        CU_TEST_INFO_NULL,
    };
    return rig_run("query", tests);
}
