/* test_etcd_moves.c - a session ends while a key may have been moved from it to another one: the table in claim.h, column
 * "session over". */
#include "etcd/claim.h"

#include "suite.h"

#include <CUnit/CUnit.h>

static struct driver driver;
static struct session next, last;

/* Its key was moved to `next`, perhaps, and its acquire is of `last`. */
static struct claim *make_claim(enum claim_state state, enum move move)
{
    mortise_op op = {.name = "a", .name_len = 1, .kind = MORTISE_OP_ACQUIRE, .ttl_ms = 1000};
    struct claim *claim = claim_new(&driver, &op);
    CU_ASSERT_PTR_NOT_NULL_FATAL(claim);
    claim_set_session(claim, &last);
    if (move != MOVE_NONE)
        claim_set_move(claim, &next);
    claim->move = move;
    claim_become(&driver, claim, state);
    return claim;
}

static void test_unwanted(void)
{
    static const enum claim_state states[] = {CLAIM_UNWANTED, CLAIM_DOUBTFUL, CLAIM_DELETING,
                                              CLAIM_REDELETING};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        struct claim *claim = make_claim(states[i], MOVE_UNKNOWN);
        lease_session_over(&driver, &last);
        CU_ASSERT_EQUAL(claim->state, CLAIM_REDELETING);
        CU_ASSERT_EQUAL(driver.claim_count, 1);
        lease_session_over(&driver, &next);
        CU_ASSERT_EQUAL(driver.claim_count, 1);
        claim_end(&driver, claim, MORTISE_OK);
        CU_ASSERT_PTR_NULL(driver.names);
    }
}

static void test_never_moved(void)
{
    make_claim(CLAIM_DOUBTFUL, MOVE_NONE);
    lease_session_over(&driver, &last);
    CU_ASSERT_PTR_NULL(driver.names); /* nothing can be there */
}

static const CU_TestInfo tests[] = {
    {"nobody wants it, and its key may be in another session", test_unwanted},
    {"nobody wants it, and its key is in no other session", test_never_moved},
    CU_TEST_INFO_NULL,
};

int main(void)
{
    return suite_run("etcd: moves", tests);
}
