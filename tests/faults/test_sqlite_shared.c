/* test_sqlite_shared.c - shared claims and permits in a SQLite database that several processes use. */
#include "shared_tests.h"

int main(int argc, char **argv)
{
    char folder[200], text[400];
    CU_TestInfo tests[] = {
        {"readers and writers", test_readers_and_writers},
        {"a semaphore", test_semaphore},
        {"a writer gets in", test_writer_gets_in},
        {"killed holders", test_killed_holders},
        {"a dead reader", test_dead_reader},
        {"a downgrade", test_downgrade},
        {"permits come back", test_permits_come_back},
        {"holders", test_holders},
        CU_TEST_INFO_NULL,
    };
    CU_SuiteInfo suites[] = {{"sqlite", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    if (argc == 4 && strcmp(argv[1], "worker") == 0)
        return work(argv[2], argv[3]);
    if (!test_folder_make(folder, sizeof folder))
        return 1;
    snprintf(config_path, sizeof config_path, "%s/mortise.conf", folder);
    snprintf(arena_path, sizeof arena_path, "%s/arena", folder);
    snprintf(text, sizeof text, "[mortise]\ndriver = sqlite\n[sqlite]\npath = %s/locks.db\n",
             folder);
    signal(SIGPIPE, SIG_IGN);
    int code = !test_file_write(config_path, text);
    if (code == 0 && CU_initialize_registry() == CUE_SUCCESS &&
        CU_register_suites(suites) == CUE_SUCCESS) {
        for (CU_pTest test = CU_get_registry()->pSuite->pTest; test && argc > 1; test = test->pNext)
            CU_set_test_active(test, strstr(test->pName, argv[1]) != NULL);
        CU_set_fail_on_inactive(CU_FALSE);
        CU_basic_set_mode(CU_BRM_VERBOSE);
        CU_basic_run_tests();
        code = CU_get_number_of_failures() > 0;
        CU_cleanup_registry();
    }
    test_folder_remove(folder);
    return code;
}
