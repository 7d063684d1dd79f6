/* suite.h - the part of a test's main function that runs CUnit. For programs that link to CUnit. */
#ifndef SUITE_H
#define SUITE_H

#include <CUnit/Basic.h>

#include <stdint.h>

/* Runs these suites, and prints each test. Returns the exit code. */
static inline int suites_run(CU_SuiteInfo *suites)
{
    if (CU_initialize_registry() != CUE_SUCCESS || CU_register_suites(suites) != CUE_SUCCESS)
        return 1;
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    unsigned failed = CU_get_number_of_failures();
    CU_cleanup_registry();
    return failed == 0 ? 0 : 1;
}

/* The same for one suite that needs nothing before its tests and nothing after them. */
static inline int suite_run(const char *name, const CU_TestInfo *tests)
{
    CU_SuiteInfo suites[] = {
        {name, NULL, NULL, NULL, NULL, (CU_TestInfo *)(uintptr_t)tests},
        CU_SUITE_INFO_NULL,
    };
    return suites_run(suites);
}

#endif
