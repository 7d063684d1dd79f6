/* etcd_test.h - the main function of the unit tests of the etcd driver. */
#ifndef MORTISE_TESTS_UNIT_ETCD_TEST_H
#define MORTISE_TESTS_UNIT_ETCD_TEST_H

#include <CUnit/Basic.h>

static int run_etcd_tests(const char *name, CU_TestInfo *tests)
{
    CU_SuiteInfo suites[] = {{name, NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    if (CU_initialize_registry() != CUE_SUCCESS || CU_register_suites(suites) != CUE_SUCCESS)
        return 1;
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    unsigned failures = CU_get_number_of_failures();
    CU_cleanup_registry();
    return failures == 0 ? 0 : 1;
}

#endif
