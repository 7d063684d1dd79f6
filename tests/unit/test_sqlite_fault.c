/* test_sqlite_fault.c - what a failed statement means for its op: a status that says "not executed" must be true. */
#include "../../drivers/sqlite/driver.h"

#include "suite.h"

#include <errno.h>

static mortise_status status_of(mortise_op *op, int rc, int code, bool committing)
{
    struct sql_request request = {.op = op, .kind = op->kind};
    struct fault fault = fault_of(rc, code, committing);
    CU_ASSERT_EQUAL(fault.full, rc == SQLITE_FULL || code == ENOSPC || code == EDQUOT);
    return fault_status(&request, &fault);
}

static void is_maybe(int rc, int code)
{
    mortise_op op = {.kind = MORTISE_OP_ACQUIRE};
    CU_ASSERT_EQUAL(status_of(&op, rc, code, true), MORTISE_INDETERMINATE);
    op.kind = MORTISE_OP_RELEASE;
    CU_ASSERT_EQUAL(status_of(&op, rc, code, true), MORTISE_INDETERMINATE);
    op.kind = MORTISE_OP_WRITE;
    CU_ASSERT_EQUAL(status_of(&op, rc, code, true), MORTISE_INDETERMINATE);
    op.kind = MORTISE_OP_RENEW; /* what may be extended is no harm */
    CU_ASSERT_EQUAL(status_of(&op, rc, code, true), MORTISE_UNREACHABLE);
    op.flags = MORTISE_OP_DOWNGRADE; /* what may be shared is */
    CU_ASSERT_EQUAL(status_of(&op, rc, code, true), MORTISE_INDETERMINATE);
    op = (mortise_op){.kind = MORTISE_OP_INSPECT};
    CU_ASSERT_EQUAL(status_of(&op, rc, code, true), MORTISE_UNREACHABLE);
}

/* A commit that failed so may be found later, when the log is read again: also for want of room or memory behind its frames. */
static void test_may_be_found(void)
{
    is_maybe(SQLITE_IOERR_FSYNC, 0);
    is_maybe(SQLITE_ABORT, 0);
    is_maybe(SQLITE_IOERR_FSYNC, ENOSPC);
    is_maybe(SQLITE_IOERR_SHMSIZE, ENOSPC);
    is_maybe(SQLITE_IOERR_SHMSIZE, EDQUOT);
    is_maybe(SQLITE_IOERR_SHMMAP, ENOSPC);
    is_maybe(SQLITE_NOMEM, 0);
}

/* Not all frames were written, or none was. */
static void test_never_was(void)
{
    mortise_op op = {.kind = MORTISE_OP_ACQUIRE};
    CU_ASSERT_EQUAL(status_of(&op, SQLITE_FULL, 0, true), MORTISE_BACKEND);
    CU_ASSERT_EQUAL(status_of(&op, SQLITE_IOERR_WRITE, EDQUOT, true), MORTISE_BACKEND);
    CU_ASSERT_EQUAL(status_of(&op, SQLITE_IOERR_SHMSIZE, ENOSPC, false), MORTISE_BACKEND);
    CU_ASSERT_EQUAL(status_of(&op, SQLITE_NOMEM, 0, false), MORTISE_NOMEM);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"may be found", test_may_be_found}, {"never was", test_never_was}, CU_TEST_INFO_NULL};
    return suite_run("sqlite: faults", tests);
}
