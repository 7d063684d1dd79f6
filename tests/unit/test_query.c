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

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"a break", test_break},
        {"a break that was executed", test_break_executed},
        {"a break, and no answer to the cancel", test_break_ignored},
        {"the write of a record", test_write},
        {"an inspect", test_look},
        CU_TEST_INFO_NULL,
    };
    return rig_run("query", tests);
}
