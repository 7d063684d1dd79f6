/* main.c - runs the conformance suite on one driver or stack. subject.c says on which. */
#include "conformance.h"

#include <CUnit/Basic.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* only=TEXT: the tests whose name contains it. part=K/N: of these the K-th, the K+N-th and so on. */
static void narrow(int argc, char **argv)
{
    const char *only = NULL;
    unsigned parts = subject.parts, count = 0;
    for (int i = 2; i < argc; i++)
        if (strncmp(argv[i], "only=", 5) == 0)
            only = argv[i] + 5;
    if (!only && parts == 0)
        return;
    CU_set_fail_on_inactive(CU_FALSE);
    for (CU_pSuite suite = CU_get_registry()->pSuite; suite; suite = suite->pNext)
        for (CU_pTest test = suite->pTest; test; test = test->pNext)
            if ((only && !strstr(test->pName, only)) ||
                (parts > 0 && count++ % parts != subject.part - 1))
                CU_set_test_active(test, CU_FALSE);
}

static CU_TestInfo *table(const CU_TestInfo *tests)
{
    return (CU_TestInfo *)(uintptr_t)tests; /* CUnit reads them only */
}

static int run(int argc, char **argv)
{
    CU_SuiteInfo suites[] = {
        {"acquire and release", NULL, NULL, helpers_before, helpers_after, table(basic_tests)},
        {"names", NULL, NULL, helpers_before, helpers_after, table(names_tests)},
        {"exclusion", NULL, NULL, helpers_before, helpers_after, table(contend_tests)},
        {"order", NULL, NULL, helpers_before, helpers_after, table(order_tests)},
        {"async and cancel", NULL, NULL, helpers_before, helpers_after, table(async_tests)},
        {"callbacks", NULL, NULL, helpers_before, helpers_after, table(callback_tests)},
        {"life of a lease", NULL, NULL, helpers_before, helpers_after, table(life_tests)},
        {"loss and break", NULL, NULL, helpers_before, helpers_after, table(break_tests)},
        {"owners", NULL, NULL, helpers_before, helpers_after, table(owner_tests)},
        {"inspect and list", NULL, NULL, helpers_before, helpers_after, table(look_tests)},
        {"shared", NULL, NULL, helpers_before, helpers_after, table(shared_tests)},
        {"holders", NULL, NULL, helpers_before, helpers_after, table(holders_tests)},
        {"downgrade", NULL, NULL, helpers_before, helpers_after, table(downgrade_tests)},
        {"many names", NULL, NULL, helpers_before, helpers_after, table(many_tests)},
        {"processes", NULL, NULL, helpers_before, helpers_after, table(process_tests)},
        {"a dead client's claim", NULL, NULL, helpers_before, helpers_after, table(dead_tests)},
        {"fork", NULL, NULL, helpers_before, helpers_after, table(fork_tests)},
        {"close", NULL, NULL, helpers_before, helpers_after, table(close_tests)},
        {"open", NULL, NULL, helpers_before, helpers_after, table(open_tests)},
        {"to the end", NULL, NULL, helpers_before, helpers_after, table(kept_tests)},
        {"server", NULL, NULL, helpers_before, helpers_after, table(server_tests)},
        {"server and holders", NULL, NULL, helpers_before, helpers_after, table(repeat_tests)},
        {"server and many names", NULL, NULL, helpers_before, helpers_after,
         table(many_server_tests)},
        CU_SUITE_INFO_NULL,
    };
    if (CU_register_suites(suites) != CUE_SUCCESS)
        return 1;
    narrow(argc, argv);
    kept_begin();
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    kept_end();
    return CU_get_number_of_failures() > 0 || CU_get_number_of_tests_run() == 0;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN); /* a taker that was killed */
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (CU_initialize_registry() != CUE_SUCCESS)
        return 1;
    int code = subject_begin(argc, argv);
    if (code == 0)
        code = subject.looker ? run(argc, argv) : 1;
    if (!subject_end() && code == 0)
        code = 1;
    CU_cleanup_registry();
    return code;
}
