/* cxx_test.hpp - what the tests of mortise.hpp share: a directory with locks in SQLite, clients on it, and waiting
 * for an event of another thread with a time limit. Knows no suite. */
#ifndef CXX_TEST_HPP
#define CXX_TEST_HPP

#include <mortise/mortise.hpp>

#include <CUnit/Basic.h>

#include <future>
#include <thread>

extern "C" {
#include "support.h"
}

using namespace std::chrono_literals;

/* CU_ASSERT for what is explicitly bool. */
#define ASSERT_BOOL(...) CU_ASSERT(static_cast<bool>(__VA_ARGS__))

namespace cxx_test
{

inline char folder[256];

inline mortise::client open(const std::string &query = "ttl=30s")
{
    return mortise::client::open("sqlite:" + std::string(folder) + "/locks.db?" + query).value();
}

/* False: it did not come in time, which only bounds failure. */
template <class T> bool comes(std::future<T> &event)
{
    return event.wait_for(60s) == std::future_status::ready;
}

inline int run(const char *name, const CU_TestInfo *tests)
{
    CU_SuiteInfo suite = {name,    nullptr, nullptr,
                          nullptr, nullptr, const_cast<CU_TestInfo *>(tests)};
    CU_SuiteInfo suites[] = {suite, CU_SUITE_INFO_NULL};
    if (!test_folder_make(folder, sizeof(folder)) || CU_initialize_registry() != CUE_SUCCESS ||
        CU_register_suites(suites) != CUE_SUCCESS)
        return 1;
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    bool well = CU_get_number_of_failures() == 0 && CU_get_number_of_tests_run() > 0;
    CU_cleanup_registry();
    test_folder_remove(folder);
    return well ? 0 : 1;
}

} // namespace cxx_test
#endif
