/* test_tcp.c - the options of a connection over TCP (drivers/lib/tcp.h): a host that is gone is noticed within half a minute, whether
 * something that was sent to it is outstanding or nothing is. */
#include "suite.h"
#include "tcp.h"

#include <unistd.h>

static int value_of(int fd, int option)
{
    int value = -1;
    socklen_t size = sizeof value;
    CU_ASSERT_EQUAL(getsockopt(fd, IPPROTO_TCP, option, &value, &size), 0);
    return value;
}

static void test_gone(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CU_ASSERT_FATAL(fd >= 0);
    tcp_set_options(fd);
    CU_ASSERT_EQUAL(
        value_of(fd, TCP_KEEPIDLE) + value_of(fd, TCP_KEEPINTVL) * value_of(fd, TCP_KEEPCNT), 30);
    CU_ASSERT_EQUAL(value_of(fd, TCP_USER_TIMEOUT), 30000);
    close(fd);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a host that is gone", test_gone},
        CU_TEST_INFO_NULL,
    };
    return suite_run("tcp", tests);
}
