/* test_proxy.c - the fault proxy as tests in C use it (support/proxy.h): start, commands, counts, end. tests/proxy
 * tests what the commands do. */
#include <proxy.h>
#include <suite.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char folder[256];
static int server = -1, port;

static int open_all(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(server, (struct sockaddr *)&address, size) != 0 || listen(server, 8) != 0 ||
        getsockname(server, (struct sockaddr *)&address, &size) != 0)
        return 1;
    port = ntohs(address.sin_port);
    return !test_folder_make(folder, sizeof folder);
}

static int close_all(void)
{
    close(server);
    test_folder_remove(folder);
    return 0;
}

static int connected_to(int where)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)where)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

static bool has_taken(void *argument)
{
    return test_proxy_count(argument, "up_taken") == 4;
}

static void test_use(void)
{
    struct test_proxy proxy;
    char bytes[8] = "";
    CU_ASSERT_FATAL(test_proxy_start(&proxy, folder, "127.0.0.1", port));
    int client = connected_to(proxy.port), served = accept(server, NULL, NULL);
    CU_ASSERT_FATAL(client >= 0 && served >= 0);
    CU_ASSERT_EQUAL(test_proxy_count(&proxy, "now"), 1);
    CU_ASSERT(test_proxy_say(&proxy, "hold"));
    CU_ASSERT_EQUAL(write(client, "text", 4), 4);
    CU_ASSERT(test_poll(has_taken, &proxy, TEST_PATIENCE_MS));
    CU_ASSERT_EQUAL(test_proxy_count(&proxy, "up"), 0);
    CU_ASSERT(test_proxy_say(&proxy, "cut-after %s %d", "up", 2));
    CU_ASSERT_FALSE(test_proxy_say(&proxy, "cut-after %s", "sideways"));
    CU_ASSERT_EQUAL(test_proxy_count(&proxy, "colour"), -1);
    CU_ASSERT(test_proxy_say(&proxy, "pass"));
    CU_ASSERT_EQUAL(recv(served, bytes, 4, MSG_WAITALL), 4);
    CU_ASSERT_STRING_EQUAL(bytes, "text");
    test_proxy_end(&proxy);
    CU_ASSERT_EQUAL(connected_to(proxy.port), -1);
    CU_ASSERT_FALSE(test_proxy_say(&proxy, "pass"));
    CU_ASSERT_EQUAL(test_proxy_count(&proxy, "now"), -1);
    test_proxy_end(&proxy); /* nothing */
    close(client);
    close(served);
}

static void test_two(void)
{
    struct test_proxy one, other;
    CU_ASSERT_FATAL(test_proxy_start(&one, folder, "127.0.0.1", port));
    CU_ASSERT_FATAL(test_proxy_start(&other, folder, "127.0.0.1", port));
    CU_ASSERT(test_proxy_say(&one, "refuse"));
    CU_ASSERT_EQUAL(connected_to(one.port), -1);
    int client = connected_to(other.port);
    CU_ASSERT(client >= 0);
    close(client);
    test_proxy_end(&one);
    test_proxy_end(&other);
}

static void test_failures(void)
{
    struct test_proxy proxy;
    CU_ASSERT_FALSE(test_proxy_start(&proxy, "/no/such/folder", "127.0.0.1", port));
    test_proxy_end(&proxy);
    CU_ASSERT_FALSE(test_proxy_start(&proxy, folder, "no address", port));
    test_proxy_end(&proxy);
    char answer[8];
    CU_ASSERT_FALSE(test_proxy_ask("/no/such/socket", "pass", answer, sizeof answer));
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"use", test_use}, {"two", test_two}, {"what cannot be", test_failures}, CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"proxy", open_all, close_all, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return suites_run(suites);
}
