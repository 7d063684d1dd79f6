/* test_url.c - URLs: how they are parsed, and which are refused. No message and no source shows what may be a secret. */
#include "config_test.h"
#include "config/url.h"

static void test_is_url(void)
{
    static const char *const urls[] = {
        "sqlite:", "sqlite:/x", "a:b", "redis://h", "x+y-z.0:", "SQLITE:/x", "sqlite:relative"};
    static const char *const paths[] = {"",     "/a:b",  "./a:b",  "mortise.conf",
                                        ":x",   "1a:b",  "a/b:c",  "a b:c",
                                        "-a:b", "a_b:c", "sqlite", "\xc3\xa4:x"};

    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++)
        CU_ASSERT(url_is(urls[i]));
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        CU_ASSERT_FALSE(url_is(paths[i]));
}

static bool same(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static void test_parts(void)
{
    static const struct {
        const char *text, *scheme, *user, *password, *authority, *path;
    } table[] = {
        {"sqlite:/path", "sqlite", NULL, NULL, NULL, "/path"},
        {"sqlite:relative?", "sqlite", NULL, NULL, NULL, "relative"},
        {"SQLite:", "sqlite", NULL, NULL, NULL, NULL},
        {"sqlite:///path", "sqlite", NULL, NULL, NULL, "/path"},
        {"sqlite:/a%20b%2fc%40", "sqlite", NULL, NULL, NULL, "/a b/c@"},
        {"sqlite:/a b", "sqlite", NULL, NULL, NULL, "/a b"},
        {"redis://", "redis", NULL, NULL, NULL, NULL},
        {"redis://h", "redis", NULL, NULL, "h", NULL},
        {"redis://h/", "redis", NULL, NULL, "h", "/"},
        {"redis://h:6379/3", "redis", NULL, NULL, "h:6379", "/3"},
        {"redis://u@h", "redis", "u", NULL, "h", NULL},
        {"redis://u:p@h", "redis", "u", "p", "h", NULL},
        {"redis://:p@h", "redis", NULL, "p", "h", NULL},
        {"redis://u:@h", "redis", "u", "", "h", NULL},
        {"redis://u:p@/x", "redis", "u", "p", NULL, "/x"},
        {"redis://@h", "redis", NULL, NULL, "h", NULL},
        {"redis://u%3A:%40%2F%3f%25%23:x@h", "redis", "u:", "@/?%#:x", "h", NULL},
        {"redis://u:p@ss@h", "redis", "u", "p@ss", "h", NULL},
        {"zookeeper://a,b:1,[::1]:2,[fe80::1]/locks", "zookeeper", NULL, NULL,
         "a,b:1,[::1]:2,[fe80::1]", "/locks"},
        {"x://h:1?a=@/b", "x", NULL, NULL, "h:1", NULL},
        {"x://h:65535", "x", NULL, NULL, "h:65535", NULL},
        {"postgresql://%2Ftmp/db", "postgresql", NULL, NULL, "%2Ftmp", "/db"},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct url url;
        mortise_error error = {.message = ""};
        mortise_status status = url_parse(table[i].text, &url, &error);
        bool good = status == MORTISE_OK && same(url.scheme, table[i].scheme) &&
                    same(url.user, table[i].user) && same(url.password, table[i].password) &&
                    same(url.authority, table[i].authority) && same(url.path, table[i].path);
        if (!good)
            fprintf(stderr, "\n  %s: %s\n", table[i].text, error.message);
        CU_ASSERT(good);
        url_free(&url);
    }
}

static void test_query(void)
{
    struct url url;
    CU_ASSERT_EQUAL_FATAL(url_parse("x:/p?a=1&b=%20+&&c=&d.e-f_1=x=y&", &url, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL_FATAL(url.item_count, 4);
    CU_ASSERT_STRING_EQUAL(url.items[0].key, "a");
    CU_ASSERT_STRING_EQUAL(url.items[0].text, "1");
    CU_ASSERT_STRING_EQUAL(url.items[1].text, " +");
    CU_ASSERT_STRING_EQUAL(url.items[2].text, "");
    CU_ASSERT_STRING_EQUAL(url.items[3].key, "d.e-f_1");
    CU_ASSERT_STRING_EQUAL(url.items[3].text, "x=y");
    url.items[1].known = true;
    url.items[2].known = true;
    char *whole = url_whole(&url);
    CU_ASSERT_STRING_EQUAL(whole, "x:/p?a=1&d.e-f_1=x=y");
    free(whole);
    url_free(&url);
}

static void refused(const char *text, const char *wanted)
{
    struct url url;
    mortise_error error = {.message = ""};

    CU_ASSERT_EQUAL(url_parse(text, &url, &error), MORTISE_CONFIG);
    if (strcmp(error.message, wanted) != 0)
        fprintf(stderr, "\n  %s\n    told:   %s\n    wanted: %s\n", text, error.message, wanted);
    CU_ASSERT_STRING_EQUAL(error.message, wanted);
    CU_ASSERT_PTR_NULL(url.scheme);
}

#define PORT                                                                                       \
    "x URL: a port must be a number from 1 to 65535 (in a password, ':' is written %3A, '/' %2F, " \
    "'?' %3F and '@' %40; an IPv6 address is written in brackets)"
#define PERCENT "x URL: a '%' must be followed by two hex digits, and not by 00"

static void test_refused(void)
{
    refused("x://h:0", PORT);
    refused("x://h:65536", PORT);
    refused("x://h:", PORT);
    refused("x://h:1x", PORT);
    refused("x://h:-1", PORT);
    refused("x://h:000001", PORT);
    refused("x://::1", "x URL: a host is missing");
    refused("x://fe80::1", PORT);
    refused("x://:1", "x URL: a host is missing");
    refused("x://a,,b", "x URL: a host is missing");
    refused("x://a,", "x URL: a host is missing");
    refused("x://[::1", "x URL: an IPv6 address is written [address] or [address]:port");
    refused("x://[]", "x URL: an IPv6 address is written [address] or [address]:port");
    refused("x://[::1]x", "x URL: a port must be a number from 1 to 65535");
    refused("x://[::1]:0", "x URL: a port must be a number from 1 to 65535");
    refused("x:/%", PERCENT);
    refused("x:/%4", PERCENT);
    refused("x:/%4g", PERCENT);
    refused("x:/%00", PERCENT);
    refused("x:/?a=%zz", PERCENT);
    refused("x://%:p@h", PERCENT);
    refused("x:/a#b", "x URL: a '#' is written %23");
    refused("x:/a\nb", "x URL: it holds a control character");
    refused("x:/?a", "x URL: the query must be key=value, joined by '&'");
    refused("x:/?=a", "x URL: the query must be key=value, joined by '&'");
    refused("x:/?a b=1", "x URL: the query must be key=value, joined by '&'");
    refused("x:/?a=1&b=2&a=3", "x URL: the query has \"a\" twice");
}

/* The ways in which an unescaped password ends up in another part: no message may repeat it. */
static void test_password_unescaped(void)
{
    static const char *const urls[] = {
        "x://u:hunter/2@h",  "x://u:1/hunter@h", "x://u:hunter?@h",   "x://u:1?hunter@h",
        "x://u:hunter#2@h",  "x:u:hunter@h",     "x:/u:hunter@h",     "x://hunter:%zz@h",
        "x://u:1?hunter=@#", "x:hunter@h:1",     "x://u:hunter:1@@:", "x://u:1?a=hunter&a=2@h"};

    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        struct url url;
        mortise_error error = {.message = ""};
        CU_ASSERT_EQUAL(url_parse(urls[i], &url, &error), MORTISE_CONFIG);
        CU_ASSERT_PTR_NULL(strstr(error.message, "hunter"));
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "x URL: "));
    }
}

static bool only_ttl(const char *key)
{
    return strcmp(key, "ttl") == 0;
}

static void test_without_secrets(void)
{
    static const struct {
        const char *text, *shown;
    } table[] = {
        {"sqlite:/path", "sqlite:/path"},
        {"sqlite:/a%20b?ttl=10s&x=hunter", "sqlite:/a%20b?ttl=10s"},
        {"redis://u:hunter@h:1,i/3?password=hunter&ttl=1s", "redis://h:1,i/3?ttl=1s"},
        {"redis://:hunter@", "redis://"},
        {"sqlite:///p?hunter=1", "sqlite:///p"},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct url url;
        CU_ASSERT_EQUAL_FATAL(url_parse(table[i].text, &url, NULL), MORTISE_OK);
        char *shown = url_without_secrets(&url, only_ttl);
        CU_ASSERT_STRING_EQUAL(shown, table[i].shown);
        free(shown);
        url_free(&url);
    }
}

static void test_long(void)
{
    size_t size = 100000;
    char *text = malloc(size + 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    memset(text, 'a', size);
    memcpy(text, "x:/", 3);
    text[size] = '\0';
    refused(text, "x URL: it is longer than 8192 bytes");
    free(text);
}

int main(void)
{
    CU_TestInfo tests[] = {{"what is a URL", test_is_url},
                           {"its parts", test_parts},
                           {"its query", test_query},
                           {"what is refused", test_refused},
                           {"a password that was not escaped", test_password_unescaped},
                           {"without secrets", test_without_secrets},
                           {"too long", test_long},
                           CU_TEST_INFO_NULL};
    return run_tests("url", tests);
}
