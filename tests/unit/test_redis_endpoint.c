/* test_redis_endpoint.c - where a server is, as a person or a server writes it: what is read, and what is refused. */
#include "link.h"
#include "suite.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/un.h>

static struct endpoint endpoint;
static const char *problem;

static bool reads(const char *text)
{
    memset(&endpoint, 0x55, sizeof endpoint);
    return endpoint_next(&text, "6379", &endpoint, &problem) && *text == '\0';
}

static void test_read(void)
{
    static const struct {
        const char *written, *host, *port, *text;
    } all[] = {
        {"host", "host", "6379", "host:6379"},
        {" host:1 ", "host", "1", "host:1"},
        {"host:65535", "host", "65535", "host:65535"},
        {"[::1]", "::1", "6379", "[::1]:6379"},
        {"[::1]:7", "::1", "7", "[::1]:7"},
        {"10.0.0.1:80", "10.0.0.1", "80", "10.0.0.1:80"},
        {"/run/a socket", "/run/a socket", "", "/run/a socket"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        CU_ASSERT_TRUE(reads(all[i].written));
        CU_ASSERT_STRING_EQUAL(endpoint.host, all[i].host);
        CU_ASSERT_STRING_EQUAL(endpoint.port, all[i].port);
        CU_ASSERT_STRING_EQUAL(endpoint.text, all[i].text);
    }
}

static void test_refused(void)
{
    static const char *const all[] = {
        "",          " ",       ":1",          "host:",  "host:0", "host:65536",
        "host:1x",   "host:-1", "host:1:2",    "::1",    "[::1",   "::1]",
        "h]ost",     "[]",      "[]:1",        "[::1]x", "[::1]:", "ho st",
        "user@host", "a/b",     "host:000001", "[a:1",   "a]:1",
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        problem = NULL;
        CU_ASSERT_FALSE(reads(all[i]));
        CU_ASSERT_PTR_NOT_NULL(problem);
    }
}

static void test_lengths(void)
{
    char text[300];
    const size_t longest_path = sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1;
    memset(text, 'h', sizeof text);
    text[255] = '\0';
    CU_ASSERT_TRUE(reads(text));
    text[255] = 'h';
    text[256] = '\0';
    CU_ASSERT_FALSE(reads(text));
    text[0] = '/';
    text[longest_path] = '\0';
    CU_ASSERT_TRUE(reads(text));
    text[longest_path] = 'h';
    text[longest_path + 1] = '\0';
    CU_ASSERT_FALSE(reads(text));
}

static void test_list(void)
{
    const char *list = " a:1 ,, [::1]:2";
    CU_ASSERT_TRUE(endpoint_next(&list, "6379", &endpoint, &problem));
    CU_ASSERT_STRING_EQUAL(endpoint.text, "a:1");
    CU_ASSERT_FALSE(
        endpoint_next(&list, "6379", &endpoint, &problem)); /* nothing between two commas */
    CU_ASSERT_TRUE(endpoint_next(&list, "6379", &endpoint, &problem));
    CU_ASSERT_STRING_EQUAL(endpoint.text, "[::1]:2");
    CU_ASSERT_STRING_EQUAL(list, "");
}

/* As a server names another one: not every text is a host. */
static void test_set(void)
{
    static const char *const hosts[] = {"", "a b", "a,b", "user@a", "[a]", "a/b", "a\n"};
    CU_ASSERT_TRUE(endpoint_set(&endpoint, "host and more", 4, "12345", 2));
    CU_ASSERT_STRING_EQUAL(endpoint.text, "host:12");
    CU_ASSERT_TRUE(endpoint_set(&endpoint, "::1", 3, "1", 1));
    CU_ASSERT_STRING_EQUAL(endpoint.text, "[::1]:1");
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        CU_ASSERT_FALSE(endpoint_set(&endpoint, hosts[i], strlen(hosts[i]), "1", 1));
    CU_ASSERT_FALSE(endpoint_set(&endpoint, "a\0b", 3, "1", 1));
    CU_ASSERT_FALSE(endpoint_set(&endpoint, "a", 1, "70000", 5));
}

static void test_address(void)
{
    struct sockaddr_storage address;
    CU_ASSERT_TRUE(reads("10.0.0.1:258"));
    CU_ASSERT_EQUAL(endpoint_address(&endpoint, &address), sizeof(struct sockaddr_in));
    CU_ASSERT_EQUAL(((struct sockaddr_in *)&address)->sin_port, htons(258));
    CU_ASSERT_TRUE(reads("[::1]:258"));
    CU_ASSERT_EQUAL(endpoint_address(&endpoint, &address), sizeof(struct sockaddr_in6));
    CU_ASSERT_EQUAL(((struct sockaddr_in6 *)&address)->sin6_port, htons(258));
    CU_ASSERT_TRUE(reads("/run/socket"));
    CU_ASSERT_EQUAL(endpoint_address(&endpoint, &address), sizeof(struct sockaddr_un));
    CU_ASSERT_STRING_EQUAL(((struct sockaddr_un *)&address)->sun_path, "/run/socket");
    CU_ASSERT_TRUE(reads("host"));
    CU_ASSERT_EQUAL(endpoint_address(&endpoint, &address), 0);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"what is read", test_read},
        {"what is refused", test_refused},
        {"as long as possible, and longer", test_lengths},
        {"a list", test_list},
        {"as a server names it", test_set},
        {"addresses without a look-up", test_address},
        CU_TEST_INFO_NULL,
    };
    return suite_run("redis_endpoint", tests);
}
