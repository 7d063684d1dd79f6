/* test_values.c - the values of a section, from a file, a URL and the defaults: every error with its message; no
 * message contains a secret. */
#include "config_test.h"

#include <sys/wait.h>

#define FILE_NAME "mortise.conf"

enum { HOST, PORT, PASSWORD, USER, DB, TLS, MODE, IDLE, SCHEME, PATH, COUNT };
static const mortise_option schema[COUNT] = {
    [HOST] = {.key = "servers",
              .type = MORTISE_OPTION_TEXT,
              .flags = MORTISE_OPTION_REQUIRED | MORTISE_OPTION_URL_AUTHORITY,
              .help = "where the servers are"},
    [PORT] = {.key = "port",
              .type = MORTISE_OPTION_INT,
              .default_text = "6379",
              .minimum = 1,
              .maximum = 65535},
    [PASSWORD] = {.key = "password",
                  .type = MORTISE_OPTION_TEXT,
                  .flags = MORTISE_OPTION_SECRET | MORTISE_OPTION_URL_PASSWORD},
    [USER] = {.key = "user", .type = MORTISE_OPTION_TEXT, .flags = MORTISE_OPTION_URL_USER},
    [DB] = {.key = "db",
            .type = MORTISE_OPTION_INT,
            .flags = MORTISE_OPTION_URL_PATH,
            .default_text = "0",
            .maximum = 15},
    [TLS] = {.key = "tls", .type = MORTISE_OPTION_BOOL, .default_text = "no"},
    [MODE] = {.key = "mode",
              .type = MORTISE_OPTION_CHOICE,
              .default_text = "string",
              .choices = "string|hash||s|h"},
    [IDLE] = {.key = "idle", .type = MORTISE_OPTION_DURATION, .maximum = 60000},
    [SCHEME] = {.key = "scheme", .type = MORTISE_OPTION_TEXT, .flags = MORTISE_OPTION_URL_SCHEME},
    [PATH] = {.key = "cache", .type = MORTISE_OPTION_TEXT, .default_text = "${HOME}/$$"},
};

static const mortise_option path_schema[] = {
    {.key = "path", .type = MORTISE_OPTION_TEXT, .flags = MORTISE_OPTION_URL_PATH},
    {.key = "pin", .type = MORTISE_OPTION_INT, .flags = MORTISE_OPTION_SECRET},
};

static const mortise_option tree_schema[] = {
    {.key = "servers",
     .type = MORTISE_OPTION_TEXT,
     .flags = MORTISE_OPTION_URL_AUTHORITY,
     .default_text = "127.0.0.1"},
    {.key = "root", .type = MORTISE_OPTION_TEXT, .flags = MORTISE_OPTION_URL_PATH},
};

static const mortise_option whole_schema[] = {
    {.key = "url",
     .type = MORTISE_OPTION_TEXT,
     .flags = MORTISE_OPTION_SECRET | MORTISE_OPTION_URL_WHOLE},
    {.key = "pooler", .type = MORTISE_OPTION_BOOL, .default_text = "no"},
};

static mortise_value *good_values(struct config *config, const char *section,
                                  const mortise_option *rows, size_t count)
{
    mortise_value *values = NULL;
    mortise_error error = {.message = ""};
    if (config_values(config, section, rows, count, &values, &error) != MORTISE_OK) {
        fprintf(stderr, "\n  %s\n", error.message);
        CU_FAIL_FATAL("config_values failed");
    }
    return values;
}

static void bad_values(const char *where, const char *section, const mortise_option *rows,
                       size_t count, const char *wanted)
{
    struct config *config = load_good(where);
    mortise_value *values = (mortise_value *)config;
    mortise_error error = {.message = ""};

    CU_ASSERT_EQUAL(config_values(config, section, rows, count, &values, &error), MORTISE_CONFIG);
    CU_ASSERT_PTR_NULL(values);
    CU_ASSERT_EQUAL(error.status, MORTISE_CONFIG);
    CU_ASSERT_FALSE(error.retryable);
    EXPECT_ERROR(error, wanted);
    config_free(config);
}

/* ---- From a file ----------------------------------------------------------------------------- */

static void test_file(void)
{
    put(FILE_NAME, "[mortise]\ndriver = redis\n[redis]\nservers = a, b\npassword = p ; not this\n"
                   "db = 7\ntls = on\nmode = hash\nidle = 5s\n");
    struct config *config = load_good(FILE_NAME);
    mortise_value *values = good_values(config, "redis", schema, COUNT);
    CU_ASSERT_STRING_EQUAL(values[HOST].text, "a, b");
    CU_ASSERT(values[HOST].given);
    CU_ASSERT_EQUAL(values[PORT].number, 6379);
    CU_ASSERT_STRING_EQUAL(values[PORT].text, "6379");
    CU_ASSERT_FALSE(values[PORT].given);
    CU_ASSERT_STRING_EQUAL(values[PASSWORD].text, "p");
    CU_ASSERT_PTR_NULL(values[USER].text);
    CU_ASSERT_EQUAL(values[DB].number, 7);
    CU_ASSERT_EQUAL(values[TLS].number, 1);
    CU_ASSERT_EQUAL(values[MODE].number, 1);
    CU_ASSERT_EQUAL(values[IDLE].number, 5000);
    CU_ASSERT_PTR_NULL(values[SCHEME].text);
    CU_ASSERT_EQUAL(strncmp(values[PATH].text, test_folder, strlen(test_folder)), 0);
    CU_ASSERT_STRING_EQUAL(values[PATH].text + strlen(test_folder), "/$");
    config_values_free(values, COUNT);
    values = good_values(config, "redis", schema, COUNT); /* a config can be asked again */
    config_values_free(values, COUNT);
    values = good_values(config, "other", NULL, 0);
    CU_ASSERT_PTR_NOT_NULL(values);
    config_values_free(values, 0);
    config_free(config);
}

static void bad_row(const char *row, const char *wanted)
{
    char text[512];
    snprintf(text, sizeof(text), "[mortise]\ndriver = redis\n\n[redis]\nservers = a\n\n%s\n", row);
    put(FILE_NAME, text);
    bad_values(FILE_NAME, "redis", schema, COUNT, wanted);
}

static void test_bad_rows(void)
{
    bad_row("tsl = yes", "mortise.conf:7: [redis] unknown key \"tsl\" (did you mean \"tls\"?)");
    bad_row("ttl = 5s", "mortise.conf:7: [redis] unknown key \"ttl\" (it belongs in [mortise])");
    bad_row("wait = 5s", "mortise.conf:7: [redis] unknown key \"wait\" (it belongs in [mortise])");
    bad_row("colour = 5s", "mortise.conf:7: [redis] unknown key \"colour\"");
    bad_row("c\xc3\xb6 = 1", "mortise.conf:7: [redis] unknown key \"c\\xc3\\xb6\"");
    bad_row("servers_file = /x", "mortise.conf:7: [redis] unknown key \"servers_file\"");
    bad_row("port = 0",
            "mortise.conf:7: [redis] port = \"0\": expected a whole number, 1 to 65535");
    bad_row("port = 12x",
            "mortise.conf:7: [redis] port = \"12x\": expected a whole number, 1 to 65535");
    bad_row("port =", "mortise.conf:7: [redis] port = \"\": expected a whole number, 1 to 65535");
    bad_row("tls = maybe", "mortise.conf:7: [redis] tls = \"maybe\": expected yes or no");
    bad_row("mode = sting", "mortise.conf:7: [redis] mode = \"sting\": expected string or hash");
    bad_row("idle = 5", "mortise.conf:7: [redis] idle = \"5\": expected a duration such as 500ms, "
                        "30s or 2m, 0 to 1m");
    put(FILE_NAME, "[redis]\nport = 1\n");
    bad_values(FILE_NAME, "redis", schema, COUNT,
               "mortise.conf: [redis] servers is missing (where the servers are)");
    put(FILE_NAME, "[reddis]\nservers = a\n");
    bad_values(FILE_NAME, "redis", schema, COUNT,
               "mortise.conf:1: unknown section [reddis] (did you mean \"redis\"?)");
}

static void test_core_section(void)
{
    put(FILE_NAME, "[mortise]\n\n\n\n\n\ntll = 5s\n");
    bad_values(FILE_NAME, "mortise", core_options, CORE_OPTION_COUNT,
               "mortise.conf:7: [mortise] unknown key \"tll\" (did you mean \"ttl\"?)");
    put(FILE_NAME, "[mortise]\nttl = 30\n");
    bad_values(FILE_NAME, "mortise", core_options, CORE_OPTION_COUNT,
               "mortise.conf:2: [mortise] ttl = \"30\": expected a duration such as 500ms, 30s or "
               "2m, 50ms to 24h");
    put(FILE_NAME, "[mortise]\nunreachable_timeout = 99ms\n");
    bad_values(FILE_NAME, "mortise", core_options, CORE_OPTION_COUNT,
               "mortise.conf:2: [mortise] unreachable_timeout = \"99ms\": expected a duration such "
               "as 500ms, 30s or 2m, 100ms to 24h");
    put(FILE_NAME, "[mortise]\nwait = 0\nnamespace =\nlog = none\nrenew_every = 1s\n");
    struct config *config = load_good(FILE_NAME);
    mortise_value *values = good_values(config, "mortise", core_options, CORE_OPTION_COUNT);
    CU_ASSERT_EQUAL(values[CORE_WAIT].number, 0);
    CU_ASSERT(values[CORE_NAMESPACE].given);
    CU_ASSERT_STRING_EQUAL(values[CORE_NAMESPACE].text, "");
    CU_ASSERT_EQUAL(values[CORE_LOG].number, 1);
    CU_ASSERT_EQUAL(values[CORE_RENEW_EVERY].number, 1000);
    config_values_free(values, CORE_OPTION_COUNT);
    config_free(config);
}

static void test_core_defaults(void)
{
    put(FILE_NAME, "");
    struct config *config = load_good(FILE_NAME);
    mortise_value *values = good_values(config, "mortise", core_options, CORE_OPTION_COUNT);
    CU_ASSERT_STRING_EQUAL(values[CORE_DRIVER].text, MORTISE_DEFAULT_DRIVER);
    CU_ASSERT_EQUAL(values[CORE_TTL].number, 30000);
    CU_ASSERT_PTR_NULL(values[CORE_RENEW_EVERY].text);
    CU_ASSERT_EQUAL(values[CORE_WAIT].number, MORTISE_WAIT_FOREVER);
    CU_ASSERT_PTR_NULL(values[CORE_NAMESPACE].text);
    CU_ASSERT_EQUAL(values[CORE_HANDOVER_WINDOW].number, 25);
    CU_ASSERT_EQUAL(values[CORE_HANDOVER_MAX].number, 64);
    CU_ASSERT_EQUAL(values[CORE_UNREACHABLE_TIMEOUT].number, 10000);
    CU_ASSERT_EQUAL(values[CORE_CLOSE_TIMEOUT].number, 5000);
    CU_ASSERT_PTR_NULL(values[CORE_REQUIRE].text);
    CU_ASSERT_PTR_NULL(values[CORE_OBSERVE].text);
    CU_ASSERT_PTR_NULL(values[CORE_MODULE_PATH].text);
    CU_ASSERT_EQUAL(values[CORE_LOG].number, 0);
    for (size_t i = 0; i < CORE_OPTION_COUNT; i++)
        CU_ASSERT_FALSE(values[i].given);
    config_values_free(values, CORE_OPTION_COUNT);
    config_free(config);
}

/* ---- ${NAME} and KEY_file -------------------------------------------------------------------- */

static void test_environment(void)
{
    setenv("MORTISE_TEST_A", "va lue", 1);
    setenv("MORTISE_TEST_NONE", "", 1);
    setenv("MORTISE_TEST_SECRET", "hunter", 1);
    put(FILE_NAME, "[redis]\nservers = x${MORTISE_TEST_A}y${MORTISE_TEST_NONE}$$${MORTISE_TEST_A}\n"
                   "password = $${x}$1\nuser = $\n");
    struct config *config = load_good(FILE_NAME);
    mortise_value *values = good_values(config, "redis", schema, COUNT);
    CU_ASSERT_STRING_EQUAL(values[HOST].text, "xva luey$va lue");
    CU_ASSERT_STRING_EQUAL(values[PASSWORD].text, "${x}$1");
    CU_ASSERT_STRING_EQUAL(values[USER].text, "$");
    config_values_free(values, COUNT);
    config_free(config);
    bad_row(
        "password = ${MORTISE_TEST_UNSET}",
        "mortise.conf:7: [redis] password: ${MORTISE_TEST_UNSET} is not set in the environment");
    static const char *const bad[] = {"${", "${}", "${A", "${A-B}", "${1}", "${A B}", "x${A${B}"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char row[64];
        snprintf(row, sizeof(row), "user = %s", bad[i]);
        bad_row(row, "mortise.conf:7: [redis] user: '${' must be followed by a variable's name "
                     "and '}'");
    }
    /* What came from the environment may be a secret, wherever it is used. */
    bad_row("port = ${MORTISE_TEST_SECRET}",
            "mortise.conf:7: [redis] port = \"${MORTISE_TEST_SECRET}\": expected a whole number, 1 "
            "to 65535");
}

static void expect_secret(const char *content, const char *wanted)
{
    put("secret", content);
    struct config *config = load_good(FILE_NAME);
    mortise_value *values = good_values(config, "redis", schema, COUNT);
    CU_ASSERT_STRING_EQUAL(values[PASSWORD].text, wanted);
    CU_ASSERT(values[PASSWORD].given);
    config_values_free(values, COUNT);
    config_free(config);
}

static void bad_secret(const char *wanted)
{
    char message[256];
    snprintf(message, sizeof(message), "mortise.conf:3: [redis] password_file: \"%s/secret\" %s",
             test_folder, wanted);
    bad_values(FILE_NAME, "redis", schema, COUNT, message);
}

static void test_secret_file(void)
{
    put(FILE_NAME, "[redis]\nservers = a\npassword_file = ${HOME}/secret\n");
    expect_secret("hunter\n", "hunter");
    expect_secret("hunter", "hunter");
    expect_secret("hunter\r\nsecond line\n", "hunter");
    expect_secret(" hunt # er; ${x} \n", " hunt # er; ${x} ");
    chmod("secret", 0640);
    expect_secret("group\n", "group");
    chmod("secret", 0644);
    expect_secret("mounted\n", "mounted");
    chmod("secret", 0602);
    bad_secret("can be written by every user: chmod o-w");
    chmod("secret", 0600);
    put("secret", "\nhunter\n");
    bad_secret("has an empty first line");
    put("secret", "");
    bad_secret("has an empty first line");
    put_bytes("secret", "hun\0ter\n", 8);
    bad_secret("has a NUL byte in its first line");
    put_bytes("secret", "hunter\n\0", 8);
    config_free(load_good(FILE_NAME));
    CU_ASSERT_EQUAL(unlink("secret"), 0);
    bad_secret("cannot be read: No such file or directory; is the path right?");
    CU_ASSERT_EQUAL(mkdir("secret", 0700), 0);
    bad_secret("cannot be read: Is a directory");
    CU_ASSERT_EQUAL(rmdir("secret"), 0);
    bad_row("password_file = secret",
            "mortise.conf:7: [redis] password_file: \"secret\" must be an absolute path");
    bad_row("password = x\npassword_file = /y",
            "mortise.conf:8: [redis] password_file: password is given already, in line 7");
    bad_row("password_file = /dev/null",
            "mortise.conf:7: [redis] password_file: \"/dev/null\" has an empty first line");
}

/* Whether others may open the config after its values were read here, while somebody writes to the secret's pipe. */
static void expect_shared(const char *where, bool shared)
{
    char text[256];
    fflush(NULL);
    pid_t writer = fork();
    if (writer == 0) {
        FILE *file = shared ? NULL : fopen("pipe", "we");
        bool written = file == NULL || (fputs("hunter\n", file) >= 0 && fclose(file) == 0);
        _exit(written ? 0 : 1);
    }
    struct config *config = load_good(where);
    mortise_value *values = good_values(config, "redis", schema, COUNT);
    CU_ASSERT_EQUAL(waitpid(writer, NULL, 0), writer);
    CU_ASSERT_STRING_EQUAL(values[PASSWORD].text, "hunter");
    CU_ASSERT_EQUAL(config_has_pipe(config), !shared);
    CU_ASSERT_EQUAL(config_for_others(config, text, sizeof(text)), shared);
    config_values_free(values, COUNT);
    config_free(config);
}

/* What comes out of a pipe is no other process's. */
static void test_secret_in_pipe(void)
{
    char url[256];
    put("secret", "hunter\n");
    CU_ASSERT_EQUAL(mkfifo("pipe", 0600), 0);
    put(FILE_NAME, "[redis]\nservers = a\npassword_file = ${HOME}/secret\n");
    expect_shared(FILE_NAME, true);
    put(FILE_NAME, "[redis]\nservers = a\npassword_file = ${HOME}/pipe\n");
    expect_shared(FILE_NAME, false);
    snprintf(url, sizeof(url), "redis://h?password_file=%s/pipe", test_folder);
    expect_shared(url, false);
}

/* ---- From a URL ------------------------------------------------------------------------------ */

static void test_url(void)
{
    struct config *config = load_good("redis://me:p%40ss@h:1,i/3?ttl=10s&tls=yes&wait=forever");
    mortise_value *core = good_values(config, "mortise", core_options, CORE_OPTION_COUNT);
    mortise_value *values = good_values(config, "redis", schema, COUNT);
    CU_ASSERT(config_is_url(config));
    CU_ASSERT_EQUAL(config_check_url(config, NULL), MORTISE_OK);
    CU_ASSERT_STRING_EQUAL(core[CORE_DRIVER].text, "redis");
    CU_ASSERT_EQUAL(core[CORE_TTL].number, 10000);
    CU_ASSERT_EQUAL(core[CORE_WAIT].number, -1);
    CU_ASSERT_STRING_EQUAL(values[HOST].text, "h:1,i");
    CU_ASSERT_STRING_EQUAL(values[USER].text, "me");
    CU_ASSERT_STRING_EQUAL(values[PASSWORD].text, "p@ss");
    CU_ASSERT_STRING_EQUAL(values[SCHEME].text, "redis");
    CU_ASSERT_EQUAL(values[DB].number, 3);
    CU_ASSERT_EQUAL(values[TLS].number, 1);
    config_values_free(core, CORE_OPTION_COUNT);
    config_values_free(values, COUNT);
    /* another module of the same client finds nothing in the URL */
    values = good_values(config, "trace", path_schema, 2);
    CU_ASSERT_PTR_NULL(values[0].text);
    config_values_free(values, 2);
    config_free(config);
}

static void test_url_path(void)
{
    static const struct {
        const char *url, *path;
    } table[] = {{"sqlite:/a/b", "/a/b"},
                 {"sqlite:a", "a"},
                 {"sqlite:", NULL},
                 {"sqlite:///a", "/a"},
                 {"sqlite:/%24{HOME}", "/${HOME}"}};
    static const struct {
        const char *url, *servers, *root;
    } trees[] = {{"zk:/a", "127.0.0.1", "/a"},
                 {"zk:///a", "127.0.0.1", "/a"},
                 {"zk:a?servers=h", "h", "a"},
                 {"zk://h/a", "h", "/a"}};

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct config *config = load_good(table[i].url);
        mortise_value *values = good_values(config, "sqlite", path_schema, 2);
        CU_ASSERT_EQUAL(values[0].given, table[i].path != NULL);
        if (table[i].path != NULL)
            CU_ASSERT_STRING_EQUAL(values[0].text, table[i].path);
        config_values_free(values, 2);
        config_free(config);
    }
    for (size_t i = 0; i < sizeof(trees) / sizeof(trees[0]); i++) {
        struct config *config = load_good(trees[i].url);
        mortise_value *values = good_values(config, "zk", tree_schema, 2);
        CU_ASSERT_STRING_EQUAL(values[0].text, trees[i].servers);
        CU_ASSERT_PTR_NOT_NULL_FATAL(values[1].text);
        CU_ASSERT_STRING_EQUAL(values[1].text, trees[i].root);
        config_values_free(values, 2);
        config_free(config);
    }
    struct config *config = load_good("redis://h/");
    mortise_value *values = good_values(config, "redis", schema, COUNT);
    CU_ASSERT_FALSE(values[DB].given); /* "/" is no number, and none is given */
    config_values_free(values, COUNT);
    config_free(config);
}

static void test_bad_url(void)
{
    static const struct {
        const char *url, *wanted;
    } table[] = {
        {"redis://h/x", "redis://h/x: db = \"x\": expected a whole number, 0 to 15"},
        {"redis://h/3?db=4", "redis://h/3: db is given twice"},
        {"redis://:p@h?password=q", "redis://h: password is given twice"},
        {"redis:", "redis:: servers is missing (where the servers are)"},
        {"redis://h?port=x", "redis://h: port = \"x\": expected a whole number, 1 to 65535"},
    };
    static const struct {
        const char *url, *wanted;
    } sqlite[] = {
        {"sqlite://h/x", "sqlite://h/x: sqlite takes no host (a path is written SCHEME:/path) in a "
                         "URL"},
        {"sqlite://u@/x", "sqlite:///x: sqlite takes no user in a URL"},
        {"sqlite://u:hunter@/x", "sqlite:///x: sqlite takes no password in a URL"},
        {"sqlite:/x?pin=hunter", "sqlite:/x: pin: expected a whole number"},
        {"sqlite:/x?path=y", "sqlite:/x: path is given twice"},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        bad_values(table[i].url, "redis", schema, COUNT, table[i].wanted);
    for (size_t i = 0; i < sizeof(sqlite) / sizeof(sqlite[0]); i++)
        bad_values(sqlite[i].url, "sqlite", path_schema, 2, sqlite[i].wanted);
    bad_values("zk:h", "zk", tree_schema, 2,
               "zk:h: a host is written zk://HOST, and a path zk:/PATH");
    bad_values("zk:h:1/a", "zk", tree_schema, 2,
               "zk:h:1/a: a host is written zk://HOST, and a path zk:/PATH");
    bad_values("nopath:/x", "nopath", path_schema + 1, 1,
               "nopath:/x: nopath takes no path in a URL");
    bad_values("x:/?driver=y", "mortise", core_options, CORE_OPTION_COUNT,
               "x:/?driver=y: driver: the scheme of a URL names it");
    bad_values("x:/?module_path=/tmp", "mortise", core_options, CORE_OPTION_COUNT,
               "x:/?module_path=/tmp: module_path can be set in a config file only");
    bad_values("x:/?ttl=1", "mortise", core_options, CORE_OPTION_COUNT,
               "x:/?ttl=1: ttl = \"1\": expected a duration such as 500ms, 30s or 2m, 50ms to 24h");
}

static void check_url(const char *url, const mortise_option *rows, size_t count, const char *wanted)
{
    struct config *config = load_good(url);
    mortise_error error = {.message = ""};
    config_values_free(good_values(config, "mortise", core_options, CORE_OPTION_COUNT),
                       CORE_OPTION_COUNT);
    config_values_free(good_values(config, config_driver(config), rows, count), count);
    mortise_status status = config_check_url(config, &error);
    CU_ASSERT_EQUAL(status, wanted[0] == '\0' ? MORTISE_OK : MORTISE_CONFIG);
    EXPECT_ERROR(error, wanted);
    config_free(config);
}

static void test_unknown_in_url(void)
{
    check_url("x:/p?tll=10s", path_schema, 2, "x:/p: unknown key \"tll\" (did you mean \"ttl\"?)");
    check_url("x:/p?pn=hunter", path_schema, 2, "x:/p: unknown key \"pn\" (did you mean \"pin\"?)");
    check_url("x:/p?sslmode=hunter", path_schema, 2, "x:/p: unknown key \"sslmode\"");
    check_url("x:/p?pin=1&ttl=1s", path_schema, 2, "");
}

static void test_whole_url(void)
{
    const char *url =
        "postgresql://u:p%40@h,i:1/db?sslmode=require&ttl=1s&pooler=yes&options=-c%20x";
    struct config *config = load_good(url);
    mortise_value *values = good_values(config, "postgresql", whole_schema, 2);
    config_values_free(values, 2);
    values = good_values(config, "mortise", core_options, CORE_OPTION_COUNT);
    config_values_free(values, CORE_OPTION_COUNT);
    values = good_values(config, "postgresql", whole_schema, 2);
    CU_ASSERT_STRING_EQUAL(values[0].text,
                           "postgresql://u:p%40@h,i:1/db?sslmode=require&options=-c%20x");
    CU_ASSERT_EQUAL(values[1].number, 1);
    config_values_free(values, 2);
    CU_ASSERT_EQUAL(config_check_url(config, NULL), MORTISE_OK);
    config_free(config);
}

static void test_secret_file_in_url(void)
{
    char url[256];
    put("secret", "hunter\n");
    snprintf(url, sizeof(url), "redis://h?password_file=%s/secret", test_folder);
    struct config *config = load_good(url);
    mortise_value *values = good_values(config, "redis", schema, COUNT);
    CU_ASSERT_STRING_EQUAL(values[PASSWORD].text, "hunter");
    CU_ASSERT_STRING_EQUAL(config_source(config), "redis://h");
    config_values_free(values, COUNT);
    config_free(config);
}

int main(void)
{
    CU_TestInfo tests[] = {{"from a file", test_file},
                           {"bad rows", test_bad_rows},
                           {"the core's section", test_core_section},
                           {"the core's defaults", test_core_defaults},
                           {"from the environment", test_environment},
                           {"from a secret's file", test_secret_file},
                           {"from a secret's pipe", test_secret_in_pipe},
                           {"from a URL", test_url},
                           {"the path of a URL", test_url_path},
                           {"bad URLs", test_bad_url},
                           {"unknown keys in a URL", test_unknown_in_url},
                           {"a URL as a whole", test_whole_url},
                           {"a secret's file in a URL", test_secret_file_in_url},
                           CU_TEST_INFO_NULL};
    return run_tests("values", tests);
}
