/* suite.h - the main function of a unit test that needs nothing before its tests and nothing after them. */
#ifndef SUITE_H
#define SUITE_H

#include <CUnit/Basic.h>

#include <stdint.h>

/* Returns the exit code. */
static inline int suite_run(const char *name, const CU_TestInfo *tests)
{
    CU_SuiteInfo suites[] = {
        {name, NULL, NULL, NULL, NULL, (CU_TestInfo *)(uintptr_t)tests},
        CU_SUITE_INFO_NULL,
    };
    if (CU_initialize_registry() != CUE_SUCCESS || CU_register_suites(suites) != CUE_SUCCESS)
        return 1;
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    unsigned failures = CU_get_number_of_failures();
    CU_cleanup_registry();
    return failures == 0 ? 0 : 1;
}

#endif
