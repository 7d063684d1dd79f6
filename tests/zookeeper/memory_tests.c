/* memory_tests.c - no memory for the driver's tables: an op fails, and the application continues. */
static int starving;
#define uthash_malloc(size) (starving ? 0 : malloc(size))
#include "../../drivers/zookeeper/watch.c"

#include "stage.h"

static void test_watches_starve(void)
{
    static struct driver driver;
    starving = 1;
    watch_note(&driver, "/a");
    CU_ASSERT_PTR_NULL(driver.watches);
    CU_ASSERT_EQUAL(driver.watch_bytes, 0);
    watch_forget(&driver, "/a");
    starving = 0;
    watch_note(&driver, "/a");
    watch_note(&driver, "/a");
    CU_ASSERT_EQUAL(driver.watch_bytes, 6);
    watches_end(&driver);
    CU_ASSERT_EQUAL(driver.watch_bytes, 0);
}

const CU_TestInfo memory_tests[] = {
    {"no memory for a watch", test_watches_starve},
    CU_TEST_INFO_NULL,
};
