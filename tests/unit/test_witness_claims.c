/* test_witness_claims.c - when `mortise witness` forgets a process that lives and has no connection any more. */
#include "witness.h"

#include "config_test.h"

#include <sys/mman.h>
#include <unistd.h>

#define NOW INT64_C(1000000000000)

static void put_slot(int area, const mortise_witness_slot *slot)
{
    const mortise_witness_area head = {.magic = MORTISE_WITNESS_MAGIC,
                                       .version = MORTISE_WITNESS_VERSION,
                                       .slot_size = sizeof *slot,
                                       .used = 1};
    CU_ASSERT_EQUAL_FATAL(pwrite(area, &head, sizeof head, 0), sizeof head);
    CU_ASSERT_EQUAL_FATAL(pwrite(area, slot, sizeof *slot, sizeof head), sizeof *slot);
}

/* It holds nothing at each look, but goes on acquiring between the first ones. */
static void test_goes_on_acquiring(void)
{
    mortise_witness_slot slot = {.state = MORTISE_WITNESS_FREE};
    uint64_t written = 0;
    int area = memfd_create("area", MFD_CLOEXEC);
    for (int looks = 0; looks < 3; looks++) {
        slot.sequence += 2;
        put_slot(area, &slot);
        CU_ASSERT_TRUE(claims_may_stand(area, NOW, &written));
    }
    CU_ASSERT_FALSE(claims_may_stand(area, NOW, &written));
    close(area);
}

/* A claim stands at a look; at the next one it has ended, and was written before that. */
static void test_held_in_between(void)
{
    mortise_witness_slot slot = {.sequence = 2, .state = MORTISE_WITNESS_FREE};
    uint64_t written = 0;
    int area = memfd_create("area", MFD_CLOEXEC);
    put_slot(area, &slot);
    CU_ASSERT_TRUE(claims_may_stand(area, NOW, &written));
    slot = (mortise_witness_slot){.sequence = 4, .state = MORTISE_WITNESS_HELD, .ends_ns = NOW + 1};
    put_slot(area, &slot);
    CU_ASSERT_TRUE(claims_may_stand(area, NOW, &written));
    slot.state = MORTISE_WITNESS_FREE;
    put_slot(area, &slot);
    CU_ASSERT_TRUE(claims_may_stand(area, NOW, &written));
    CU_ASSERT_FALSE(claims_may_stand(area, NOW, &written));
    close(area);
}

static void test_never_acquired(void)
{
    mortise_witness_slot slot = {.state = MORTISE_WITNESS_FREE};
    uint64_t written = 0;
    int area = memfd_create("area", MFD_CLOEXEC);
    put_slot(area, &slot);
    CU_ASSERT_FALSE(claims_may_stand(area, NOW, &written));
    close(area);
}

int main(void)
{
    CU_TestInfo tests[] = {{"it goes on acquiring", test_goes_on_acquiring},
                           {"it held something in between", test_held_in_between},
                           {"it never acquired anything", test_never_acquired},
                           CU_TEST_INFO_NULL};
    return run_tests("witness_claims", tests);
}
