/* test_sqlite_fault.c - what a failed statement means for its op: a status that says "not executed" must be true. */
#include "../../drivers/sqlite/driver.h"

#include "suite.h"

static mortise_status status_of(mortise_op *op, int rc)
{
    static struct driver driver;
    struct sql_request request = {.op = op, .kind = op->kind};
    struct fault fault = fault_read(&driver, rc);
    return fault_status(&request, &fault);
}

/* A commit that failed so may be found later, when the log is read again. */
static void test_may_be_found(void)
{
    static const int codes[] = {SQLITE_IOERR_FSYNC, SQLITE_ABORT};
    for (int i = 0; i < 2; i++) {
        mortise_op op = {.kind = MORTISE_OP_ACQUIRE};
        CU_ASSERT_EQUAL(status_of(&op, codes[i]), MORTISE_INDETERMINATE);
        op.kind = MORTISE_OP_RELEASE;
        CU_ASSERT_EQUAL(status_of(&op, codes[i]), MORTISE_INDETERMINATE);
        op.kind = MORTISE_OP_WRITE;
        CU_ASSERT_EQUAL(status_of(&op, codes[i]), MORTISE_INDETERMINATE);
        op.kind = MORTISE_OP_RENEW; /* what may be extended is no harm */
        CU_ASSERT_EQUAL(status_of(&op, codes[i]), MORTISE_UNREACHABLE);
        op.flags = MORTISE_OP_DOWNGRADE; /* what may be shared is */
        CU_ASSERT_EQUAL(status_of(&op, codes[i]), MORTISE_INDETERMINATE);
        op = (mortise_op){.kind = MORTISE_OP_INSPECT};
        CU_ASSERT_EQUAL(status_of(&op, codes[i]), MORTISE_UNREACHABLE);
    }
}

int main(void)
{
    CU_TestInfo tests[] = {{"may be found", test_may_be_found}, CU_TEST_INFO_NULL};
    return suite_run("sqlite: faults", tests);
}
