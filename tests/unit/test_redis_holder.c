/* test_redis_holder.c - what the value of a lock on Redis says of its holder, whatever stands in it. */
#include "holder.h"
#include "suite.h"

#include <string.h>

#define GRANT "0123456789abcdef0123456789abcdef"

static mortise_info info;

static bool read_value(const char *value, uint64_t now_us)
{
    memset(&info, 0x55, sizeof info);
    return holder_of_string(value, strlen(value), now_us, &info);
}

static void test_ours(void)
{
    CU_ASSERT_TRUE(read_value(GRANT " 7 2000000\nhost\n12\nprogram", 5000000));
    CU_ASSERT_TRUE(info.held);
    CU_ASSERT_STRING_EQUAL(info.owner, GRANT);
    CU_ASSERT_EQUAL(info.token, 7);
    CU_ASSERT_EQUAL(info.held_ms, 3000);
    CU_ASSERT_STRING_EQUAL(info.host, "host");
    CU_ASSERT_EQUAL(info.pid, 12);
    CU_ASSERT_STRING_EQUAL(info.program, "program");
    CU_ASSERT_EQUAL(info.leases, 1);
    CU_ASSERT_EQUAL(info.holders, 1);
    CU_ASSERT_EQUAL(info.waiters, -1);
    CU_ASSERT_EQUAL(info.mode, MORTISE_EXCLUSIVE);
    CU_ASSERT_EQUAL(info.permits, 0);
}

/* For how long: -1 where nobody knows it, and never less than nothing. */
static void test_how_long(void)
{
    read_value(GRANT " 7 2000000\n", 0); /* the server's time is not known */
    CU_ASSERT_EQUAL(info.held_ms, -1);
    read_value(GRANT " 7 0\n", 5000000);
    CU_ASSERT_EQUAL(info.held_ms, -1);
    read_value(GRANT " 7 2000000\n", 1999999); /* its clock went back */
    CU_ASSERT_EQUAL(info.held_ms, 0);
    read_value(GRANT " 7 2000000\n", 2000999);
    CU_ASSERT_EQUAL(info.held_ms, 0);
    read_value(GRANT " 7 1\n", 1001);
    CU_ASSERT_EQUAL(info.held_ms, 1);
}

/* Somebody else's value: held, and its text is the owner if it is short. */
static void test_not_ours(void)
{
    static const char *const values[] = {"someone",   GRANT,         GRANT " 7",
                                         GRANT " 7 ", GRANT "  5\n", "short 7 5\n"};
    char longest[65];
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        CU_ASSERT_FALSE(read_value(values[i], 5000000));
        CU_ASSERT_TRUE(info.held);
        CU_ASSERT_STRING_EQUAL(info.owner, values[i]);
        CU_ASSERT_EQUAL(info.token, 0);
        CU_ASSERT_EQUAL(info.held_ms, -1);
        CU_ASSERT_STRING_EQUAL(info.host, "");
        CU_ASSERT_STRING_EQUAL(info.program, "");
    }
    memset(longest, 'x', 64);
    longest[64] = '\0';
    CU_ASSERT_FALSE(read_value(longest, 5000000));
    CU_ASSERT_STRING_EQUAL(info.owner, "");
    CU_ASSERT_FALSE(read_value(longest + 1, 5000000));
    CU_ASSERT_STRING_EQUAL(info.owner, longest + 1);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a value of ours", test_ours},
        {"for how long", test_how_long},
        {"somebody else's", test_not_ours},
        CU_TEST_INFO_NULL,
    };
    return suite_run("redis_holder", tests);
}
