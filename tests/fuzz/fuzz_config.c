/* fuzz_config.c - libFuzzer's entry to the parsers of the configuration. The first byte selects one: the text of a
 * file and the values of all its sections, a URL, or a single value. The checks, besides not crashing: a failure has
 * one line of message, and an accepted value obeys its schema. Tests feed it with mutate.c; libFuzzer does it with
 *
 *   clang -fsanitize=fuzzer,address,undefined … fuzz_config.c core/{config*,core_options,schema,status,url}.c */
#include "config/config.h"
#include "config/config_internal.h"
#include "corpus.h"
#include "config/schema.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const mortise_option schema[] = {
    {.key = "servers", .type = MORTISE_OPTION_TEXT, .flags = MORTISE_OPTION_URL_AUTHORITY},
    {.key = "user", .type = MORTISE_OPTION_TEXT, .flags = MORTISE_OPTION_URL_USER},
    {.key = "password",
     .type = MORTISE_OPTION_TEXT,
     .flags = MORTISE_OPTION_SECRET | MORTISE_OPTION_URL_PASSWORD},
    {.key = "db", .type = MORTISE_OPTION_INT, .flags = MORTISE_OPTION_URL_PATH, .maximum = 15},
    {.key = "mode", .type = MORTISE_OPTION_CHOICE, .choices = "a|bb|ccc", .default_text = "a"},
    {.key = "tls", .type = MORTISE_OPTION_BOOL},
    {.key = "idle",
     .type = MORTISE_OPTION_DURATION,
     .minimum = 1,
     .maximum = 60000,
     .choices = "never"},
};
#define COUNT (sizeof(schema) / sizeof(schema[0]))

static const mortise_option whole[] = {
    {.key = "url", .type = MORTISE_OPTION_TEXT, .flags = MORTISE_OPTION_URL_WHOLE}};

static void check_error(mortise_status status, const mortise_error *error)
{
    assert(status == error->status && status != MORTISE_OK);
    assert(error->message[0] != '\0' && strpbrk(error->message, "\r\n") == NULL);
}

static void check_values(struct config *config, const char *section, const mortise_option *rows,
                         size_t count)
{
    mortise_value *values;
    mortise_error error;
    mortise_status status = config_values(config, section, rows, count, &values, &error);

    if (status != MORTISE_OK) {
        assert(values == NULL);
        check_error(status, &error);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        bool limited = rows[i].minimum != 0 || rows[i].maximum != 0;
        assert(!values[i].given || values[i].text != NULL);
        if (values[i].text != NULL && limited && values[i].number >= 0)
            assert(values[i].number >= rows[i].minimum && values[i].number <= rows[i].maximum);
    }
    config_values_free(values, count);
}

/* Two sections are enough: more only makes it slow. */
static void check_sections(struct config *config)
{
    size_t left = 2;

    check_values(config, CORE_SECTION, core_options, CORE_OPTION_COUNT);
    for (struct section *s = config->sections; s != NULL && left > 0; s = s->hh.next, left--)
        check_values(config, s->name, schema, COUNT);
    check_values(config, "absent", schema, COUNT);
}

static void fuzz_file(const char *text, size_t size)
{
    struct config *config = calloc(1, sizeof(*config));
    mortise_error error;

    if (config == NULL || (config->source = strdup("mortise.conf")) == NULL)
        abort();
    config->origin = FROM_FILE;
    mortise_status status = config_parse_file(config, text, size, &error);
    if (status == MORTISE_OK)
        check_sections(config);
    else
        check_error(status, &error);
    config_free(config);
}

static void fuzz_url(const char *text)
{
    struct config *config;
    mortise_error error;

    if (!url_is(text))
        return; /* a path: the file system is not fuzzed */
    mortise_status status = config_load(text, &config, &error);
    if (status != MORTISE_OK) {
        check_error(status, &error);
        return;
    }
    /* What is shown is no more than what was given less user and password. */
    assert(strchr(config_source(config), '@') == NULL || config->url.item_count > 0);
    check_values(config, CORE_SECTION, core_options, CORE_OPTION_COUNT);
    check_values(config, config_driver(config), schema, COUNT);
    check_values(config, config_driver(config), whole, 1);
    status = config_check_url(config, &error);
    assert(status == MORTISE_OK); /* `whole` took the rest */
    config_free(config);
}

static void fuzz_value(const char *text)
{
    char expected[256], written[DURATION_SIZE];
    mortise_value value;
    int64_t ms, again;

    if (parse_duration_ms(text, &ms)) {
        assert(ms >= 0);
        bool parsed = parse_duration_ms(duration_text(ms, written, sizeof(written)), &again);
        assert(parsed && again == ms);
    }
    for (size_t i = 0; i < COUNT; i++)
        if (!parse_value(&schema[i], text, &value, expected, sizeof(expected)))
            assert(expected[0] != '\0');
    const char *candidates[] = {"servers", "password", "idle"};
    nearest_word(text, candidates, 3);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    char *text = malloc(size);
    if (text == NULL)
        abort();
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    switch (data[0] % 3) {
    case 0:
        fuzz_file(text, size - 1);
        break;
    case 1:
        fuzz_url(text);
        break;
    default:
        fuzz_value(text);
    }
    free(text);
    return 0;
}
