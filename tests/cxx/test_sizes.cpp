/* test_sizes.cpp - mortise.hpp with a library of another version, whose mortise_info has fewer or more fields: the
 * program's own mortise_list() plays it. */
#include "cxx_test.hpp"

#include <sys/mman.h>
#include <unistd.h>

static const mortise_info *told;

extern "C" mortise_status mortise_list(mortise_client *client, const char *prefix,
                                       mortise_list_callback each, void *user_data,
                                       mortise_error *error)
{
    (void)client;
    (void)prefix;
    (void)error;
    each(told, user_data);
    return MORTISE_OK;
}

static mortise_info only_one()
{
    auto found = cxx_test::open().list();
    CU_ASSERT_EQUAL_FATAL(found.status(), MORTISE_OK);
    CU_ASSERT_EQUAL_FATAL(found.value().size(), 1);
    return found.value()[0];
}

/* The library's struct ends before a page that cannot be read. */
static void test_fewer_fields()
{
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void *pages = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CU_ASSERT_FATAL(pages != MAP_FAILED);
    CU_ASSERT_EQUAL_FATAL(mprotect(static_cast<char *>(pages) + page, page, PROT_NONE), 0);
    const std::size_t size = offsetof(mortise_info, mode);
    mortise_info small{};
    small.size = size;
    small.held = true;
    small.token = 7;
    void *place = static_cast<char *>(pages) + page - size;
    std::memcpy(place, &small, size);
    told = static_cast<const mortise_info *>(place);
    mortise_info one = only_one();
    CU_ASSERT_EQUAL(one.size, sizeof(one));
    CU_ASSERT_EQUAL(one.token, 7);
    CU_ASSERT_EQUAL(one.holders, 0);
    munmap(pages, 2 * page);
}

static void test_more_fields()
{
    struct {
        mortise_info info;
        char more[64];
    } large{};
    large.info.size = sizeof(large);
    large.info.token = 8;
    told = &large.info;
    mortise_info one = only_one();
    CU_ASSERT_EQUAL(one.size, sizeof(one)); /* mortise_inspect() would write as many bytes as it says */
    CU_ASSERT_EQUAL(one.token, 8);
}

int main()
{
    static const CU_TestInfo tests[] = {
        {"fewer fields", test_fewer_fields},
        {"more fields", test_more_fields},
        CU_TEST_INFO_NULL,
    };
    return cxx_test::run("sizes", tests);
}
