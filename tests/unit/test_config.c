/* test_config.c - where a config comes from, and what its file may contain: the search, files that cannot be read,
 * bad lines with their numbers, the module path (R11). */
#include "config_test.h"

#include <pthread.h>

#define FILE_NAME "mortise.conf"

/* ---- Sources --------------------------------------------------------------------------------- */

static void expect_source(const char *where, const char *source, const char *driver)
{
    struct config *config = load_good(where);
    CU_ASSERT_STRING_EQUAL(config_source(config), source);
    CU_ASSERT_STRING_EQUAL(config_driver(config), driver);
    config_free(config);
}

/* A file that speaks of another backend and chooses none must not lock on this host alone. */
static void expect_choice(const char *text, const char *wanted)
{
    mortise_error error = {.message = ""};
    put(FILE_NAME, text);
    struct config *config = load_good(FILE_NAME);
    mortise_status status = config_check_driver(config, &error);
    CU_ASSERT_EQUAL(status, wanted == NULL ? MORTISE_OK : MORTISE_CONFIG);
    if (wanted != NULL)
        EXPECT_ERROR(error, wanted);
    config_free(config);
}

static void test_choice(void)
{
    expect_choice("", NULL);
    expect_choice("[mortise]\nttl = 1s\n[" MORTISE_DEFAULT_DRIVER "]\n", NULL);
    expect_choice("[mortise]\ndriver = redis\n[redis]\n[zookeeper]\n", NULL);
    expect_choice("[mortise]\nttl = 1s\n[redis]\n",
                  "mortise.conf:3: [redis] no driver is chosen: say \"driver = redis\" in "
                  "[mortise], or \"driver = " MORTISE_DEFAULT_DRIVER "\", the default");
}

static void test_source(void)
{
    put(FILE_NAME, "[mortise]\ndriver = redis:old\n[redis:old]\n");
    expect_source(FILE_NAME, FILE_NAME, "redis:old");
    put(FILE_NAME, "");
    expect_source("./" FILE_NAME, "./" FILE_NAME, MORTISE_DEFAULT_DRIVER);
    expect_source("redis://u:secret@h:1/2?password=x&ttl=1s", "redis://h:1/2?ttl=1s", "redis");
    expect_source("SQLite:rel.db", "sqlite:rel.db", "sqlite");
    put("a:b", "[mortise]\ndriver = x\n");
    expect_source("./a:b", "./a:b", "x");
    expect_source("/dev/null", "/dev/null", MORTISE_DEFAULT_DRIVER);
    LOAD_BAD("", "the path of the config file is empty");
}

/* FILE#SECTION: what an operator looks at is a part of a stack. */
static void test_other_section(void)
{
    put(FILE_NAME, "[mortise]\ndriver = redis:old\n[redis:old]\n[redis:new]\n");
    expect_source(FILE_NAME "#redis:new", FILE_NAME, "redis:new");
    expect_source("./" FILE_NAME "#sqlite", "./" FILE_NAME, "sqlite");
    put(FILE_NAME, "[redis]\n");
    struct config *config = load_good(FILE_NAME "#redis");
    CU_ASSERT_EQUAL(config_check_driver(config, NULL), MORTISE_OK);
    config_free(config);
    put("a#b", "[mortise]\ndriver = whole\n");
    put("a", "[mortise]\ndriver = part\n");
    expect_source("a#b", "a#b", "whole");
    expect_source("a#b#c", "a#b", "c");
    expect_source("a#c", "a", "c");
    LOAD_BAD("#c", "#c: cannot be read: No such file or directory; is the path right?");
    LOAD_BAD("no#c", "no: cannot be read: No such file or directory; is the path right?");
    LOAD_BAD("no#c/x", "no#c/x: cannot be read: No such file or directory; is the path right?");
}

static void test_unreadable(void)
{
    char wanted[256];
    char *large = malloc(1024 * 1024 + 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(large);
    memset(large, '\n', 1024 * 1024 + 1);

    LOAD_BAD("none.conf",
             "none.conf: cannot be read: No such file or directory; is the path right?");
    LOAD_BAD("/dev/null/x", "/dev/null/x: cannot be read: Not a directory; is the path right?");
    mkdir("folder", 0700);
    LOAD_BAD("folder", "folder: cannot be read: Is a directory");
    LOAD_BAD("/proc/self/mem", "/proc/self/mem: cannot be read: Input/output error");
    put_bytes("large.conf", large, 1024 * 1024 + 1);
    LOAD_BAD("large.conf", "large.conf: is larger than 1 MiB");
    put_bytes("large.conf", large, 1024 * 1024);
    config_free(load_good("large.conf"));
    free(large);
    CU_ASSERT_EQUAL(symlink("loop.conf", "loop.conf"), 0);
    LOAD_BAD("loop.conf", "loop.conf: cannot be read: Too many levels of symbolic links");
    if (geteuid() != 0) {
        put("closed.conf", "");
        chmod("closed.conf", 0);
        snprintf(wanted, sizeof(wanted),
                 "closed.conf: cannot be read: Permission denied; it must be readable for the user "
                 "of this process");
        LOAD_BAD("closed.conf", wanted);
    }
}

/* A mistyped URL is taken as a path. Its password is not shown. */
static void test_mistyped_url(void)
{
    LOAD_BAD("redis//u:SECRET@h",
             "redis//u:@h: cannot be read: No such file or directory; is the path right?");
    LOAD_BAD("redis//u:SE#CRET@h",
             "redis//u:@h: cannot be read: No such file or directory; is the path right?");
    LOAD_BAD("./u:SEC@RET@h",
             "./u:@h: cannot be read: No such file or directory; is the path right?");
    LOAD_BAD("redis//:SECRET@h?x=y",
             "redis//:@h?...: cannot be read: No such file or directory; is the path right?");
    LOAD_BAD("redis//h?password=SECRET@x",
             "redis//h?...: cannot be read: No such file or directory; is the path right?");
    LOAD_BAD("./no:such",
             "./no:such: cannot be read: No such file or directory; is the path right?");
}

/* A long path is cut at its front: the end of the message matters more. */
static void test_long_path(void)
{
    char path[1200], where[1300];
    struct config *config;
    mortise_error error;

    memset(path, 'a', sizeof(path));
    for (size_t i = 0; i < sizeof(path); i += 100)
        path[i] = '/';
    path[sizeof(path) - 1] = '\0';
    snprintf(where, sizeof(where), "%s/x.conf", path);
    CU_ASSERT_EQUAL(config_load(where, &config, &error), MORTISE_CONFIG);
    CU_ASSERT_EQUAL(strncmp(error.message, "...a", 4), 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "/x.conf: cannot be read: No such file"));
}

/* ---- The search ------------------------------------------------------------------------------ */

static void put_default(const char *folder, const char *driver)
{
    char path[256], text[64];

    mkdir(folder, 0700);
    snprintf(path, sizeof(path), "%s/mortise", folder);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/mortise/mortise.conf", folder);
    snprintf(text, sizeof(text), "[mortise]\ndriver = %s\n", driver);
    put(path, text);
}

static bool has_system_config(void)
{
    return access(MORTISE_CONFIG_DIR "/mortise.conf", F_OK) == 0;
}

static void test_search(void)
{
    char xdg[128], source[256];
    mortise_error error = {.message = "untouched"};
    struct config *config;

    put("mortise.conf", "[mortise]\ndriver = wrong\n"); /* never the current folder */
    mkdir("mortise", 0700);
    put("mortise/mortise.conf", "[mortise]\ndriver = wrong\n");
    if (!has_system_config()) {
        CU_ASSERT_EQUAL(config_load(NULL, &config, &error), MORTISE_OK);
        CU_ASSERT_STRING_EQUAL(error.message, "untouched");
        CU_ASSERT_STRING_EQUAL(config_source(config), "built-in defaults");
        CU_ASSERT_STRING_EQUAL(config_driver(config), MORTISE_DEFAULT_DRIVER);
        config_free(config);
    }
    put_default(".config", "home");
    snprintf(source, sizeof(source), "%s/.config/mortise/mortise.conf", test_folder);
    expect_source(NULL, source, "home");
    setenv("XDG_CONFIG_HOME", "relative", 1);
    put_default("relative", "wrong");
    expect_source(NULL, source, "home");
    snprintf(xdg, sizeof(xdg), "%s/xdg", test_folder);
    setenv("XDG_CONFIG_HOME", xdg, 1);
    if (!has_system_config())
        expect_source(NULL, "built-in defaults", MORTISE_DEFAULT_DRIVER);
    put_default("xdg", "xdg");
    snprintf(source, sizeof(source), "%s/xdg/mortise/mortise.conf", test_folder);
    expect_source(NULL, source, "xdg");
    setenv("MORTISE_CONFIG", "", 1);
    expect_source(NULL, source, "xdg");
    put("named.conf", "[mortise]\ndriver = named\n");
    setenv("MORTISE_CONFIG", "named.conf", 1);
    expect_source(NULL, "named.conf", "named");
    setenv("MORTISE_CONFIG", "url://u:p@h/x", 1);
    expect_source(NULL, "url://h/x", "url");
    expect_source("named.conf", "named.conf", "named"); /* what the program says goes first */
    setenv("MORTISE_CONFIG", "/none/named.conf", 1);
    LOAD_BAD(
        NULL,
        "/none/named.conf: cannot be read: No such file or directory; is the path right? (named by "
        "$MORTISE_CONFIG)");
    unsetenv("MORTISE_CONFIG");
    put("xdg/mortise/mortise.conf", "x");
    snprintf(source, sizeof(source),
             "%s/xdg/mortise/mortise.conf:1: expected \"[section]\" or \"key = value\"",
             test_folder);
    LOAD_BAD(NULL, source); /* one that is there but wrong is no missing one */
    unsetenv("XDG_CONFIG_HOME");
}

/* ---- Lines ----------------------------------------------------------------------------------- */

static const mortise_option free_schema[] = {
    {.key = "a", .type = MORTISE_OPTION_TEXT},
    {.key = "b", .type = MORTISE_OPTION_TEXT},
    {.key = "c", .type = MORTISE_OPTION_TEXT},
};

static void expect_values(const char *text, size_t size, const char *a, const char *b, int line)
{
    mortise_value *values;
    mortise_error error = {.message = ""};
    const char *const wanted[] = {a, b};

    put_bytes(FILE_NAME, text, size);
    struct config *config = load_good(FILE_NAME);
    mortise_status status = config_values(config, "x", free_schema, 3, &values, &error);
    if (status != MORTISE_OK)
        fprintf(stderr, "\n  line %d: %s\n", line, error.message);
    CU_ASSERT_EQUAL_FATAL(status, MORTISE_OK);
    for (size_t i = 0; i < 2; i++) {
        const char *got = values[i].text;
        bool good = wanted[i] == NULL ? got == NULL : got != NULL && strcmp(got, wanted[i]) == 0;
        if (!good)
            fprintf(stderr, "\n  line %d: \"%s\"\n", line, got == NULL ? "(none)" : got);
        CU_ASSERT(good);
        CU_ASSERT_EQUAL(values[i].given, wanted[i] != NULL);
    }
    config_values_free(values, 3);
    config_free(config);
}
#define VALUES(text, a, b) expect_values(text, sizeof(text) - 1, a, b, __LINE__)

static void test_lines(void)
{
    VALUES("[x]\na = 1\nb = 2\n", "1", "2");
    VALUES("[x]\na=1\nb:2", "1", "2");
    VALUES("\xef\xbb\xbf[x]\na = 1\nb = 2\n", "1", "2");
    VALUES("\xef\xbb\xbf", NULL, NULL);
    VALUES("[x]\r\na = 1\r\nb = 2\r\n", "1", "2");
    VALUES("# one\n; two\n\n[x] ; three\n# four\na = 1 ; five\n\tb = 2;6 \n", "1", "2;6");
    VALUES("[x] # y\n   a = 1\n   b = 2\n", "1", "2");
    VALUES("  [x]\na =\nb = \t\n", "", "");
    VALUES("[x]\na = = 1 : 2 [3]\n", "= 1 : 2 [3]", NULL);
    VALUES("[x]\na = \"q\"\nb = $x$$y$\n", "\"q\"", "$x$y$");
    VALUES("[x]\na = 1\n[y]\na = 3\n[x]\nb = 2\n", "1", "2");
    VALUES("[x]\na = p#q\n", "p#q", NULL);
    VALUES("[x]\na = \xc3\xa4\xff\n", "\xc3\xa4\xff", NULL);
    VALUES("[x]\na = ;1\n", "", NULL);
}

static void test_continued(void)
{
    VALUES("[x]\na = 1,\n  2,\n\t3\nb = 2\n", "1, 2, 3", "2");
    VALUES("[x]\na = 1, ; one\n  2, ; two\n  # three\n  3 ; four\nb = 2\n", "1, 2, 3", "2");
    VALUES("[x]\na = [::1]:1,\n  [::2]:2\n", "[::1]:1, [::2]:2", NULL);
    VALUES("[x]\na = 1,\n\n  b = 2\n", "1,", "2");
    VALUES("[x]\na = 1,\nb = 2\n", "1,", "2");
    VALUES("[x]\na = 1,\n  b = 2\n", "1, b = 2", NULL); /* a comma at the end asks for more */
    VALUES("[x]\na = 1\n  b = 2,\n", "1", "2,");
}

static void bad_bytes(const char *text, size_t size, const char *wanted, int line)
{
    put_bytes(FILE_NAME, text, size);
    load_bad_status(FILE_NAME, MORTISE_CONFIG, wanted, line);
}
#define BAD(text, wanted) bad_bytes(text, sizeof(text) - 1, wanted, __LINE__)

#define SHAPE "expected \"[section]\" or \"key = value\""
#define SECTION_SHAPE                                                                              \
    ": letters, digits, '_' and '-', to 49 of them, and perhaps ':' and the name of an instance"
#define HASH                                                                                       \
    "a '#' in a value: a comment after a value begins with ';' (for a '#' in the value itself, "   \
    "use ${NAME})"
#define TEN "aaaaaaaaaa"
#define FIFTY TEN TEN TEN TEN TEN

static void test_bad_lines(void)
{
    BAD("a = 1\n", "mortise.conf:1: key \"a\" comes before any [section]");
    BAD("[x]\n\nword\n", "mortise.conf:3: " SHAPE);
    BAD("[x]\nword ; a = 1\n", "mortise.conf:2: " SHAPE);
    BAD("[x]\nword\na = 1\na = 2\n", "mortise.conf:2: " SHAPE); /* the first fault is told */
    BAD("[x]\na = 1\nb = 1\na = 2\n",
        "mortise.conf:4: [x] key \"a\" is given twice: also in line 2");
    BAD("[x]\na = 1\n[y]\n[x]\na = 2\n",
        "mortise.conf:5: [x] key \"a\" is given twice: also in line 2");
    BAD("[x]\n= 1\n", "mortise.conf:2: no key before the '='");
    BAD("[x\na = 1\n", "mortise.conf:1: the ']' of the section is missing");
    BAD("[x] a = 1\n", "mortise.conf:1: text after the ']' of a section");
    BAD("[]\n", "mortise.conf:1: bad section name \"\"" SECTION_SHAPE);
    BAD("[ x]\n", "mortise.conf:1: bad section name \" x\"" SECTION_SHAPE);
    BAD("[x;y]\n", "mortise.conf:1: bad section name \"x;y\"" SECTION_SHAPE);
    BAD("[:x]\n", "mortise.conf:1: bad section name \":x\"" SECTION_SHAPE);
    BAD("[x:]\n", "mortise.conf:1: bad section name \"x:\"" SECTION_SHAPE);
    BAD("[x:y:z]\n", "mortise.conf:1: bad section name \"x:y:z\"" SECTION_SHAPE);
    BAD("[../x]\n", "mortise.conf:1: bad section name \"../x\"" SECTION_SHAPE);
    BAD("[" FIFTY "]\n", "mortise.conf:1: bad section name \"" FIFTY "\"" SECTION_SHAPE);
    BAD("[x]\na = 1\0\n", "mortise.conf:2: a NUL byte: is this a text file?");
    BAD("\xff\xfe[\0x\0]\0", "mortise.conf:1: a NUL byte: is this a text file?");
    BAD("[x]\n# a\rb = 1\n", "mortise.conf:2: a control character (0x0d)");
    BAD("[x]\na = \x1b[0m\n", "mortise.conf:2: a control character (0x1b)");
    BAD("[x]\na = 1 # one\n", "mortise.conf:2: " HASH);
    BAD("[x]\na = #\n", "mortise.conf:2: " HASH);
    BAD("[x]\na = 1,\n  2 # two\n", "mortise.conf:3: " HASH);
    BAD("[x]\n" FIFTY TEN TEN " = 1\n",
        "mortise.conf:2: the key \"" FIFTY TEN TEN "\" is longer than 64 bytes");
    BAD("[x]\r\nword\r\n", "mortise.conf:2: " SHAPE);
    BAD("[x]\na = 1\nword", "mortise.conf:3: " SHAPE);
}

static void test_long_lines(void)
{
    char text[1024], value[256];

    memset(value, 'v', sizeof(value));
    value[194] = '\0'; /* "a = " and this are the 198 bytes that libinih takes */
    snprintf(text, sizeof(text), "[x]\n   a = %s   \nb = 2\n", value);
    expect_values(text, strlen(text), value, "2", __LINE__);
    snprintf(text, sizeof(text), "[x]\nb = 2\na = %sw\n", value);
    bad_bytes(text, strlen(text),
              "mortise.conf:3: the line is longer than 198 bytes (after a comma, a value may "
              "continue on an indented line)",
              __LINE__);
    snprintf(text, sizeof(text), "[x]\n# %s%s\na = 1\n", value, value); /* but a comment may be */
    expect_values(text, strlen(text), "1", NULL, __LINE__);
}

static void test_sections(void)
{
    put(FILE_NAME, "[redis:old]\n[x-y_Z:1.0]\n[x]\na = 1\n[y]\nunknown = here nobody looks\n");
    struct config *config = load_good(FILE_NAME);
    CU_ASSERT(config_has_section(config, "redis:old")); /* though it is empty */
    CU_ASSERT(config_has_section(config, "x-y_Z:1.0"));
    CU_ASSERT(config_has_section(config, "x"));
    CU_ASSERT_FALSE(config_has_section(config, "redis"));
    CU_ASSERT_FALSE(config_is_url(config));
    config_free(config);
    BAD("[x]\n[Mortise]\ndriver = x\n",
        "mortise.conf:2: unknown section [Mortise] (did you mean \"mortise\"?)");
    BAD("[mortis]\n", "mortise.conf:1: unknown section [mortis] (did you mean \"mortise\"?)");
    put(FILE_NAME, "[mortis]\n[mortise]\n");
    config_free(load_good(FILE_NAME));
    BAD("[mortise]\n\ndriver = ${NOT_SET_HERE}\n",
        "mortise.conf:3: [mortise] driver: ${NOT_SET_HERE} is not set in the environment");
    BAD("[mortise]\ndriver =\n", "mortise.conf:2: [mortise] driver is empty");
    setenv("MORTISE_TEST_DRIVER", "zoo", 1);
    put(FILE_NAME, "[mortise]\ndriver = ${MORTISE_TEST_DRIVER}:a\n[zoo:a]\n");
    expect_source(FILE_NAME, FILE_NAME, "zoo:a");
}

static void test_many_rows(void)
{
    size_t size = 0, capacity = 1024 * 1024;
    char *text = malloc(capacity);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    size += (size_t)snprintf(text, capacity, "[x]\n");
    for (int i = 0; size + 32 < capacity; i++)
        size += (size_t)snprintf(text + size, capacity - size, "k%d=\n", i);
    put_bytes(FILE_NAME, text, size);
    free(text);
    config_free(load_good(FILE_NAME)); /* in time: no search through all rows for each row */
}

/* ---- Module path (R11) ----------------------------------------------------------------------- */

static void expect_path(const char *where, const char *wanted)
{
    struct config *config = load_good(where);
    const char *path = "?";
    CU_ASSERT_EQUAL(config_module_path(config, &path, NULL), MORTISE_OK);
    CU_ASSERT((path == NULL) == (wanted == NULL));
    if (path != NULL && wanted != NULL)
        CU_ASSERT_STRING_EQUAL(path, wanted);
    config_free(config);
}

static void refused_path(const char *wanted)
{
    struct config *config = load_good(FILE_NAME);
    mortise_error error = {.message = ""};
    const char *path = "?";
    CU_ASSERT_EQUAL(config_module_path(config, &path, &error), MORTISE_CONFIG);
    CU_ASSERT_PTR_NULL(path);
    EXPECT_ERROR(error, wanted);
    config_free(config);
}

static void test_module_path(void)
{
    static const char writers[] =
        "mortise.conf: [mortise] module_path is refused: users other than "
        "its owner can write the file (chmod go-w)";
    static const unsigned good_modes[] = {0400, 0600, 0644, 0755}, bad_modes[] = {0620, 0602, 0666};

    put(FILE_NAME, "[x]\n");
    expect_path(FILE_NAME, NULL);
    expect_path("sqlite:/x", NULL);
    put(FILE_NAME, "[mortise]\nmodule_path = /a:${HOME}\n");
    for (size_t i = 0; i < 4; i++) {
        char wanted[128];
        snprintf(wanted, sizeof(wanted), "/a:%s", test_folder);
        chmod(FILE_NAME, good_modes[i]);
        expect_path(FILE_NAME, wanted);
    }
    for (size_t i = 0; i < 3; i++) {
        chmod(FILE_NAME, bad_modes[i]);
        refused_path(writers);
    }
    setenv("MORTISE_MODULE_PATH", "/env", 1); /* goes before what the file says */
    expect_path(FILE_NAME, "/env");
    expect_path("sqlite:/x", "/env");
    setenv("MORTISE_MODULE_PATH", "", 1);
    refused_path(writers);
    unsetenv("MORTISE_MODULE_PATH");
    BAD("[mortise]\nmodule_path =\n", "mortise.conf:2: [mortise] module_path is empty");
}

static void test_module_path_owner(void)
{
    put(FILE_NAME, "[mortise]\nmodule_path = /a\n");
    if (geteuid() != 0 || chown(FILE_NAME, 4711, 0) != 0)
        return; /* only root can make a file of somebody else's */
    refused_path(
        "mortise.conf: [mortise] module_path is refused: the file belongs to user 4711; it "
        "must belong to root or to the running user (chown)");
    struct config *config = NULL;
    const char *path = NULL;
    CU_ASSERT_EQUAL(chmod(test_folder, 0711), 0);
    CU_ASSERT_EQUAL(seteuid(4711), 0);
    CU_ASSERT_EQUAL(config_load(FILE_NAME, &config, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(config_module_path(config, &path, NULL), MORTISE_OK); /* the user's own */
    config_free(config);
    CU_ASSERT_EQUAL(seteuid(0), 0);
    CU_ASSERT_EQUAL(chown(FILE_NAME, 0, 0), 0);
    CU_ASSERT_EQUAL(chmod(FILE_NAME, 0644), 0);
    CU_ASSERT_EQUAL(seteuid(4711), 0);
    CU_ASSERT_EQUAL(config_load(FILE_NAME, &config, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(config_module_path(config, &path, NULL), MORTISE_OK); /* root's */
    config_free(config);
    CU_ASSERT_EQUAL(seteuid(0), 0);
    CU_ASSERT_EQUAL(chmod(test_folder, 0700), 0);
}

/* ---- Threads --------------------------------------------------------------------------------- */

static void *load_often(void *argument)
{
    for (int i = 0; i < 200; i++) {
        struct config *config;
        mortise_error error;
        if (config_load(i % 2 == 0 ? "threads.conf" : "none.conf", &config, &error) == MORTISE_OK)
            config_free(config);
        else if (i % 2 == 0)
            *(bool *)argument = false;
    }
    return NULL;
}

static void test_threads(void)
{
    pthread_t threads[4];
    bool good[4] = {true, true, true, true};

    put("threads.conf", "[mortise]\ndriver = x\nrequire = a,\n  b\n");
    for (size_t i = 0; i < 4; i++)
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, load_often, &good[i]), 0);
    for (size_t i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CU_ASSERT(good[i]);
    }
}

int main(void)
{
    CU_TestInfo tests[] = {{"source and driver", test_source},
                           {"another section", test_other_section},
                           {"a driver not chosen", test_choice},
                           {"a mistyped URL", test_mistyped_url},
                           {"files that cannot be read", test_unreadable},
                           {"a long path", test_long_path},
                           {"the search", test_search},
                           {"lines", test_lines},
                           {"lists over lines", test_continued},
                           {"bad lines", test_bad_lines},
                           {"long lines", test_long_lines},
                           {"sections", test_sections},
                           {"many rows", test_many_rows},
                           {"module path", test_module_path},
                           {"module path of another's file", test_module_path_owner},
                           {"many threads", test_threads},
                           CU_TEST_INFO_NULL};
    return run_tests("config", tests);
}
