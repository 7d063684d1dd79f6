/* test_schema.c - single values and their schema row: durations, numbers, choices, ranges in words, the nearest word,
 * and every row of the core's own section. */
#include "config/schema.h"
#include "config_test.h"

#include <inttypes.h>

static void test_durations(void)
{
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {
        {"0", 0},
        {"0ms", 0},
        {"500ms", 500},
        {"1s", 1000},
        {"30s", 30000},
        {"2m", 120000},
        {"1h", 3600000},
        {"1d", 86400000},
        {"007s", 7000},
        {"0d", 0},
        {"365d", INT64_C(31536000000)},
        {"9223372036854775807ms", INT64_MAX},
        {"9223372036854775s", INT64_C(9223372036854775000)},
        {"106751991167d", INT64_C(9223372036828800000)},
    };
    static const char *const bad[] = {
        "",
        "1",
        "00",
        "s",
        "ms",
        "-1s",
        "+1s",
        "1.5s",
        "1,5s",
        "1 s",
        " 1s",
        "1s ",
        "1sec",
        "1S",
        "1Ms",
        "1s2ms",
        "1e3s",
        "0x10s",
        "1ss",
        "1mms",
        "30 ",
        "\t1s",
        "1s\n",
        "1w",
        "1us",
        "1ns",
        "1y",
        "½s",
        "1\xc2\xb5s",
        "9223372036854775808ms",
        "9223372036854776s",
        "106751991168d",
        "99999999999999999999s",
        "184467440737095516160ms",
    };

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        int64_t ms = -7;
        if (!parse_duration_ms(good[i].text, &ms) || ms != good[i].ms)
            fprintf(stderr, "\n  %s: %" PRId64 "\n", good[i].text, ms);
        CU_ASSERT_EQUAL(ms, good[i].ms);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        int64_t ms;
        bool parsed = parse_duration_ms(bad[i], &ms);
        if (parsed)
            fprintf(stderr, "\n  \"%s\" was taken for a duration\n", bad[i]);
        CU_ASSERT_FALSE(parsed);
    }
}

static void test_duration_text(void)
{
    static const struct {
        int64_t ms;
        const char *text;
    } table[] = {{0, "0"},          {1, "1ms"},           {1500, "1500ms"},  {1000, "1s"},
                 {90000, "90s"},    {120000, "2m"},       {86400000, "24h"}, {172800000, "2d"},
                 {90000000, "25h"}, {31536000000, "365d"}};
    char buffer[DURATION_SIZE];

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        int64_t back;
        CU_ASSERT_STRING_EQUAL(duration_text(table[i].ms, buffer, sizeof(buffer)), table[i].text);
        CU_ASSERT(parse_duration_ms(buffer, &back) && back == table[i].ms);
    }
}

/* Parses or not, to that number, with that said of what was expected. */
static void check_value(const mortise_option *option, const char *text, bool good, int64_t number,
                        const char *wanted)
{
    char expected[256] = "";
    mortise_value value = {.number = -99};
    bool parsed = parse_value(option, text, &value, expected, sizeof(expected));

    if (parsed != good || (good && value.number != number) || strcmp(expected, wanted) != 0)
        fprintf(stderr, "\n  %s = \"%s\": %d, %" PRId64 ", expected \"%s\"\n", option->key, text,
                parsed, value.number, expected);
    CU_ASSERT_EQUAL(parsed, good);
    CU_ASSERT_STRING_EQUAL(expected, wanted);
    CU_ASSERT_EQUAL(value.number, good ? number : -99);
    if (good)
        CU_ASSERT_PTR_EQUAL(value.text, text);
}

static void test_ints(void)
{
    const mortise_option limited = {
        .key = "n", .type = MORTISE_OPTION_INT, .minimum = -5, .maximum = 70};
    const mortise_option free_ = {.key = "n", .type = MORTISE_OPTION_INT};
    const char *what = "a whole number, -5 to 70";

    check_value(&limited, "0", true, 0, "");
    check_value(&limited, "-5", true, -5, "");
    check_value(&limited, "070", true, 70, "");
    check_value(&limited, "-6", false, 0, what);
    check_value(&limited, "71", false, 0, what);
    check_value(&free_, "9223372036854775807", true, INT64_MAX, "");
    check_value(&free_, "-9223372036854775808", true, INT64_MIN, "");
    static const char *const bad[] = {"",
                                      " 1",
                                      "1 ",
                                      "+1",
                                      "--1",
                                      "-",
                                      "1x",
                                      "0x1",
                                      "1.0",
                                      "1e3",
                                      "1k",
                                      "½",
                                      "1_0",
                                      "9223372036854775808",
                                      "-9223372036854775809"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        check_value(&free_, bad[i], false, 0, "a whole number");
}

static void test_bools(void)
{
    const mortise_option option = {.key = "b", .type = MORTISE_OPTION_BOOL};
    static const char *const yes[] = {"yes", "on", "true", "1"}, *const no[] = {"no", "off",
                                                                                "false", "0"};
    static const char *const bad[] = {"", "y", "yess", "no|yes", "|", "2", "10", "YES", " yes"};

    for (size_t i = 0; i < 4; i++) {
        check_value(&option, yes[i], true, 1, "");
        check_value(&option, no[i], true, 0, "");
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        check_value(&option, bad[i], false, 0, "yes or no");
}

static void test_choices(void)
{
    const mortise_option option = {
        .key = "c", .type = MORTISE_OPTION_CHOICE, .choices = "string|hash|x"};

    check_value(&option, "string", true, 0, "");
    check_value(&option, "hash", true, 1, "");
    check_value(&option, "x", true, 2, "");
    check_value(&option, "", false, 0, "string, hash or x");
    check_value(&option, "has", false, 0, "string, hash or x");
    check_value(&option, "hash|x", false, 0, "string, hash or x");
}

static void test_duration_rows(void)
{
    const mortise_option ttl = {
        .key = "ttl", .type = MORTISE_OPTION_DURATION, .minimum = 50, .maximum = 86400000};
    const mortise_option wait = {.key = "wait",
                                 .type = MORTISE_OPTION_DURATION,
                                 .maximum = 60000,
                                 .choices = "forever|never"};
    const char *what = "a duration such as 500ms, 30s or 2m, 50ms to 24h";

    check_value(&ttl, "50ms", true, 50, "");
    check_value(&ttl, "1d", true, 86400000, "");
    check_value(&ttl, "49ms", false, 0, what);
    check_value(&ttl, "0", false, 0, what);
    check_value(&ttl, "86400001ms", false, 0, what);
    check_value(&ttl, "365d", false, 0, what);
    check_value(&ttl, "forever", false, 0, what);
    check_value(&wait, "forever", true, -1, "");
    check_value(&wait, "never", true, -2, "");
    check_value(&wait, "0", true, 0, "");
    check_value(&wait, "61s", false, 0,
                "a duration such as 500ms, 30s or 2m, 0 to 1m, or forever or never");
}

static void test_nearest(void)
{
    static const char *const words[] = {"ttl", "wait", "renew_every", "handover_max", "password"};
    static const struct {
        const char *word, *nearest;
    } table[] = {{"tll", "ttl"},
                 {"TTL", "ttl"},
                 {"tlt", "ttl"},
                 {"tt", "ttl"},
                 {"wiat", "wait"},
                 {"wait", "wait"},
                 {"renew-every", "renew_every"},
                 {"renewevery", "renew_every"},
                 {"passwrod", "password"},
                 {"handovermaxx", "handover_max"},
                 {"xyz", NULL},
                 {"t", NULL},
                 {"", NULL},
                 {"wxyz", NULL},
                 {"completely_other", NULL}};
    char long_word[200];

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        const char *nearest = nearest_word(table[i].word, words, 5);
        CU_ASSERT((nearest == NULL) == (table[i].nearest == NULL));
        if (nearest != NULL && table[i].nearest != NULL)
            CU_ASSERT_STRING_EQUAL(nearest, table[i].nearest);
    }
    memset(long_word, 'a', sizeof(long_word) - 1);
    long_word[sizeof(long_word) - 1] = '\0';
    const char *const same = long_word;
    CU_ASSERT_PTR_NULL(nearest_word(long_word, &same, 1));
    CU_ASSERT_PTR_NULL(nearest_word("ttl", NULL, 0));
}

/* The text of each default is a value of its row, and each limit is kept to the last unit. */
static void test_core_options(void)
{
    char problem[256] = "", expected[256], text[64];

    CU_ASSERT(schema_sound(core_options, CORE_OPTION_COUNT, problem, sizeof(problem)));
    CU_ASSERT_STRING_EQUAL(problem, "");
    for (size_t i = 0; i < CORE_OPTION_COUNT; i++) {
        const mortise_option *o = &core_options[i];
        mortise_value value;
        CU_ASSERT(o->help != NULL && o->help[0] != '\0' && strchr(o->help, '\n') == NULL);
        if (o->default_text != NULL)
            CU_ASSERT(parse_value(o, o->default_text, &value, expected, sizeof(expected)));
        if (o->type != MORTISE_OPTION_DURATION && o->type != MORTISE_OPTION_INT)
            continue;
        const char *unit = o->type == MORTISE_OPTION_DURATION ? "ms" : "";
        const struct {
            int64_t number;
            bool good;
        } edges[] = {{o->minimum, true},
                     {o->minimum - 1, false},
                     {o->maximum, true},
                     {o->maximum + 1, false}};
        for (size_t k = 0; k < 4; k++) {
            snprintf(text, sizeof(text), "%" PRId64 "%s", edges[k].number, unit);
            bool parsed = parse_value(o, text, &value, expected, sizeof(expected));
            CU_ASSERT_EQUAL(parsed, edges[k].good);
            if (parsed)
                CU_ASSERT_EQUAL(value.number, edges[k].number);
        }
    }
}

static void test_option_infos(void)
{
    mortise_option_info *infos = option_infos(core_options, CORE_OPTION_COUNT);
    CU_ASSERT_PTR_NOT_NULL_FATAL(infos);
    CU_ASSERT_STRING_EQUAL(infos[CORE_DRIVER].type, "text");
    CU_ASSERT_STRING_EQUAL(infos[CORE_DRIVER].range, "");
    CU_ASSERT_STRING_EQUAL(infos[CORE_DRIVER].default_text, MORTISE_DEFAULT_DRIVER);
    CU_ASSERT_STRING_EQUAL(infos[CORE_TTL].type, "duration");
    CU_ASSERT_STRING_EQUAL(infos[CORE_TTL].range, "50ms to 24h");
    CU_ASSERT_STRING_EQUAL(infos[CORE_WAIT].range, "0 to 365d, or forever");
    CU_ASSERT_STRING_EQUAL(infos[CORE_HANDOVER_MAX].type, "int");
    CU_ASSERT_STRING_EQUAL(infos[CORE_HANDOVER_MAX].range, "0 to 1000000");
    CU_ASSERT_STRING_EQUAL(infos[CORE_LOG].type, "choice");
    CU_ASSERT_STRING_EQUAL(infos[CORE_LOG].range, "stderr|none");
    CU_ASSERT_PTR_NULL(infos[CORE_RENEW_EVERY].default_text);
    CU_ASSERT_FALSE(infos[CORE_NAMESPACE].secret);
    free(infos);

    const mortise_option rows[] = {
        {.key = "password", .type = MORTISE_OPTION_TEXT, .flags = MORTISE_OPTION_SECRET},
        {.key = "fencing", .type = MORTISE_OPTION_BOOL},
        {.key = "idle", .type = MORTISE_OPTION_DURATION, .choices = "off"}};
    infos = option_infos(rows, 3);
    CU_ASSERT_PTR_NOT_NULL_FATAL(infos);
    CU_ASSERT(infos[0].secret);
    CU_ASSERT_STRING_EQUAL(infos[0].help, "");
    CU_ASSERT_STRING_EQUAL(infos[1].range, "yes|no");
    CU_ASSERT_STRING_EQUAL(infos[2].range, "off");
    free(infos);
    infos = option_infos(NULL, 0);
    CU_ASSERT_PTR_NOT_NULL(infos);
    free(infos);
}

static void unsound(mortise_option row, const char *wanted)
{
    const mortise_option rows[] = {{.key = "first", .type = MORTISE_OPTION_TEXT}, row};
    char problem[256] = "";

    CU_ASSERT_FALSE(schema_sound(rows, 2, problem, sizeof(problem)));
    if (strcmp(problem, wanted) != 0)
        fprintf(stderr, "\n  told: %s\n  wanted: %s\n", problem, wanted);
    CU_ASSERT_STRING_EQUAL(problem, wanted);
}

static void test_unsound(void)
{
    unsound((mortise_option){.type = MORTISE_OPTION_TEXT}, "row 1 has no key");
    unsound((mortise_option){.key = "x"}, "x has the unknown type 0");
    unsound((mortise_option){.key = "first", .type = MORTISE_OPTION_TEXT}, "first is in it twice");
    unsound((mortise_option){.key = "x", .type = MORTISE_OPTION_CHOICE}, "x has no choices");
    unsound((mortise_option){.key = "x", .type = MORTISE_OPTION_INT, .minimum = 1},
            "x has a minimum above its maximum");
    unsound((mortise_option){.key = "x",
                             .type = MORTISE_OPTION_TEXT,
                             .flags = MORTISE_OPTION_REQUIRED,
                             .default_text = "y"},
            "x is required and has a default");
    unsound((mortise_option){.key = "x",
                             .type = MORTISE_OPTION_INT,
                             .default_text = "12",
                             .minimum = 1,
                             .maximum = 9},
            "x has the default \"12\", expected a whole number, 1 to 9");
}

int main(void)
{
    CU_TestInfo tests[] = {{"durations", test_durations},
                           {"a duration in words", test_duration_text},
                           {"whole numbers", test_ints},
                           {"yes and no", test_bools},
                           {"choices", test_choices},
                           {"durations with limits and words", test_duration_rows},
                           {"the nearest word", test_nearest},
                           {"every row of the core", test_core_options},
                           {"rows for the public", test_option_infos},
                           {"unsound schemas", test_unsound},
                           CU_TEST_INFO_NULL};
    return run_tests("schema", tests);
}
