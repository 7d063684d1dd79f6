/* test_config_lines.c - what a config file may contain: lines, lists over lines, sections, and bad lines with their numbers. */
#include "config_test.h"

#define FILE_NAME "mortise.conf"

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

/* What a file says by another name of the module than its own. */
static void test_other_name(void)
{
    static const mortise_option rows[] = {
        {.key = "scheme",
         .type = MORTISE_OPTION_CHOICE,
         .flags = MORTISE_OPTION_URL_SCHEME,
         .default_text = "one",
         .choices = "one|two"},
    };
    static const struct {
        const char *alias, *text, *error;
        int64_t number;
    } cases[] = {
        {NULL, "", NULL, 0},
        {"two", "", NULL, 1},
        {"two:x", "", NULL, 1},
        {"other", "", NULL, 0}, /* it says nothing of this */
        {"other", "scheme = two\n", NULL, 1},
        {"two", "scheme = two\n", "mortise.conf: [x] driver: scheme is given already, in line 2",
         0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[64];
        mortise_value *values = NULL;
        mortise_error error = {.message = ""};
        snprintf(text, sizeof(text), "[x]\n%s", cases[i].text);
        put(FILE_NAME, text);
        struct config *config = load_good(FILE_NAME);
        mortise_status status =
            config_values_as(config, "x", cases[i].alias, rows, 1, &values, &error);
        EXPECT_ERROR(error, cases[i].error == NULL ? "" : cases[i].error);
        CU_ASSERT_EQUAL(status, cases[i].error == NULL ? MORTISE_OK : MORTISE_CONFIG);
        if (status == MORTISE_OK)
            CU_ASSERT_EQUAL(values[0].number, cases[i].number);
        config_values_free(values, 1);
        config_free(config);
    }
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
    bad_bytes(
        text, strlen(text),
        "mortise.conf:3: the line is longer than 198 bytes (a list may continue on an indented "
        "line after a comma; any other text can be ${NAME}, and a secret in KEY_file)",
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
    config = load_good(FILE_NAME);
    CU_ASSERT_STRING_EQUAL(config_driver(config), "zoo:a");
    config_free(config);
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

int main(void)
{
    CU_TestInfo tests[] = {{"lines", test_lines},
                           {"lists over lines", test_continued},
                           {"bad lines", test_bad_lines},
                           {"long lines", test_long_lines},
                           {"sections", test_sections},
                           {"many rows", test_many_rows},
                           {"another name of the module", test_other_name},
                           CU_TEST_INFO_NULL};
    return run_tests("config_lines", tests);
}
