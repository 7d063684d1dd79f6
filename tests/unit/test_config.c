/* test_config.c - where a config comes from: a file, a section, a URL, the search; files that cannot be read; the module path
 * (R11); what other processes must read alike. test_config_lines.c: what a file may contain. */
#include "config_test.h"

#include <malloc.h>
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
    expect_choice("[mortise]\nobserve = trace, metrics:x\n[trace]\n[metrics:x]\n", NULL);
    expect_choice("[mortise]\nobserve = trace, metrics:x\n[trace]\n[metrics]\n",
                  "mortise.conf:4: [metrics] no driver is chosen: set \"driver = metrics\" in "
                  "[mortise], or \"driver = " MORTISE_DEFAULT_DRIVER "\", the default");
    expect_choice("[mortise]\nttl = 1s\n[redis]\n",
                  "mortise.conf:3: [redis] no driver is chosen: set \"driver = redis\" in "
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
    expect_source("postgres:host=db password=SECRET", "postgres:host=...", "postgres");
    expect_source("postgres://host=db password=SECRET/locks?ttl=1s", "postgres://host=...?ttl=1s",
                  "postgres");
    expect_source("sqlite:/a=b", "sqlite:/a=b", "sqlite");
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
    LOAD_BAD("redis//u:SE?CRET@h",
             "redis//u:...: cannot be read: No such file or directory; is the path right?");
    LOAD_BAD("redis//h:1?password=SEC@RET",
             "redis//h:...: cannot be read: No such file or directory; is the path right?");
    LOAD_BAD("redis//h?password=SECRET@x",
             "redis//h?...: cannot be read: No such file or directory; is the path right?");
    LOAD_BAD("host=db user=app password=SECRET dbname=locks",
             "host=...: cannot be read: No such file or directory; is the path right?");
    LOAD_BAD("password=SE:CR@ET/x",
             "password=...: cannot be read: No such file or directory; is the path right?");
    LOAD_BAD("./key=value",
             "./key=value: cannot be read: No such file or directory; is the path right?");
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
    put(FILE_NAME, "[mortise]\nmodule_path =\n");
    LOAD_BAD(FILE_NAME, "mortise.conf:2: [mortise] module_path is empty");
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

/* ---- For other processes --------------------------------------------------------------------- */

/* As a user who is not root, whose place the environment decides; if `as_root`, as the user who runs the test. */
static uint64_t print_of(const char *where, bool as_root)
{
    struct config *config = load_good(where);
    uid_t self = geteuid();
    bool changes = self == 0 && !as_root && seteuid(4711) == 0;
    uint64_t print = config_print(config);
    CU_ASSERT(!changes || seteuid(self) == 0);
    config_free(config);
    return print;
}

/* Whether a process with another XDG_STATE_HOME, or another HOME, has another print. */
static void expect_print(const char *where, bool differs)
{
    static const char *const variables[] = {"XDG_STATE_HOME", "HOME"};
    for (size_t i = 0; i < 2; i++) {
        setenv(variables[i], "/one", 1);
        uint64_t print = print_of(where, false), print_of_self = print_of(where, true);
        setenv(variables[i], "/two", 1);
        CU_ASSERT_EQUAL(print_of(where, false) != print, differs);
        CU_ASSERT_EQUAL(print_of(where, true) != print_of_self, differs && geteuid() != 0);
    }
    unsetenv("XDG_STATE_HOME");
    setenv("HOME", test_folder, 1);
}

static void expect_print_of(const char *text, bool differs)
{
    put(FILE_NAME, text);
    expect_print(FILE_NAME, differs);
}

/* The default driver keeps its data where the environment says, unless the config does: wherever it is in the stack. */
static void test_print(void)
{
#define DEFAULT MORTISE_DEFAULT_DRIVER
    setenv("EMPTY", "", 1);
    expect_print_of("", true);
    expect_print_of("[" DEFAULT "]\nbusy_timeout = 3s\n", true);
    expect_print_of("[" DEFAULT "]\npath =\n", true);
    expect_print_of("[" DEFAULT "]\npath = ${EMPTY}\n", true);
    expect_print_of("[" DEFAULT "]\npath = /a\n", false);
    expect_print_of("[mortise]\ndriver = " DEFAULT ":x\n[" DEFAULT ":x]\n", true);
    expect_print_of(
        "[mortise]\ndriver = " DEFAULT ":x\n[" DEFAULT "]\npath = /a\n[" DEFAULT ":x]\n", true);
    expect_print_of("[mortise]\ndriver = " DEFAULT ":x\n[" DEFAULT ":x]\npath = /a\n", false);
    expect_print_of("[mortise]\ndriver = chaos\n[chaos]\nbelow = " DEFAULT "\n", true);
    expect_print_of("[mortise]\ndriver = chaos\n[chaos]\nbelow = " DEFAULT "\n[" DEFAULT
                    "]\npath = /a\n",
                    false);
    expect_print_of("[mortise]\ndriver = migrate\n[migrate]\nfrom = redis\nto = " DEFAULT ":x\n"
                    "[" DEFAULT ":x]\nbusy_timeout = 3s\n",
                    true);
    expect_print_of("[mortise]\ndriver = redis\n[" DEFAULT "]\nbusy_timeout = 3s\n", false);
    expect_print(DEFAULT ":", true);
    expect_print(DEFAULT ":?busy_timeout=3s", true);
    expect_print(DEFAULT ":/a?busy_timeout=3s", false);
    expect_print(DEFAULT ":?path=/a", false);
    expect_print("chaos:?below=" DEFAULT, true);
    expect_print("redis://h", false);
    unsetenv("EMPTY");
#undef DEFAULT
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

/* ---- No memory -------------------------------------------------------------------------------- */

static bool no_copies; /* strdup() fails in the core */
char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);

char *__wrap_strdup(const char *text)
{
    return no_copies ? NULL : __real_strdup(text);
}

static size_t memory_in_use(void)
{
#ifdef __GLIBC__
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
#else
    return 0;
#endif
}

/* The text of the file may have secrets, and takes a megabyte: it is not kept. */
static void test_no_memory(void)
{
    put(FILE_NAME, "[mortise]\ndriver = x\n");
    config_free(load_good(FILE_NAME));
    size_t before = memory_in_use();
    no_copies = true;
    for (int i = 0; i < 4; i++) {
        struct config *config = NULL;
        CU_ASSERT_EQUAL(config_load(FILE_NAME, &config, NULL), MORTISE_NOMEM);
        CU_ASSERT_PTR_NULL(config);
    }
    no_copies = false;
    CU_ASSERT(memory_in_use() < before + (1 << 20));
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
                           {"module path", test_module_path},
                           {"module path of another's file", test_module_path_owner},
                           {"the print", test_print},
                           {"many threads", test_threads},
                           {"no memory", test_no_memory},
                           CU_TEST_INFO_NULL};
    return run_tests("config", tests);
}
