/* loader_test.h - a core for the fixtures of tests/fixtures: a loader, the few host functions that they call, and a
 * record of their messages. */
#ifndef LOADER_TEST_H
#define LOADER_TEST_H

#include "config_test.h"
#include "modules/loader.h"

#include <stdarg.h>

#define FILE_NAME "mortise.conf"
#define FIXTURES TEST_FIXTURE_DIR

/* One client: its loader, and what its modules said. */
struct bench {
    struct loader loader;
    char said[1024];
};

static inline void bench_log(mortise_host *host, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static inline void bench_log(mortise_host *host, int level, const char *format, ...)
{
    struct bench *bench = ((struct instance *)host)->core;
    size_t used = strlen(bench->said);
    va_list arguments;

    (void)level;
    va_start(arguments, format);
    vsnprintf(bench->said + used, sizeof(bench->said) - used, format, arguments);
    va_end(arguments);
    used = strlen(bench->said);
    snprintf(bench->said + used, sizeof(bench->said) - used, "; ");
}

static inline mortise_status bench_open_below(mortise_host *host, const char *section,
                                              mortise_below **below, mortise_error *error)
{
    struct instance *above = (struct instance *)host, *instance;
    struct bench *bench = above->core;
    mortise_status status = loader_open(&bench->loader, section, above, 0, &instance, error);

    *below = status == MORTISE_OK ? &instance->below : NULL;
    return status;
}

static inline void bench_prepare(struct instance *instance, void *argument)
{
    instance->core = argument;
    instance->host = (mortise_host){
        .size = sizeof(mortise_host), .log = bench_log, .open_below = bench_open_below};
}

static inline void bench_load(struct bench *bench, const char *where)
{
    *bench = (struct bench){.loader = {.config = load_good(where),
                                       .client_id = "0123456789abcdef0123456789abcdef",
                                       .note = "host\n1\ntest",
                                       .host_prepare = bench_prepare,
                                       .argument = bench}};
}

static inline void bench_close(struct bench *bench)
{
    loader_close_all(&bench->loader);
    CU_ASSERT_PTR_NULL(bench->loader.instances);
    config_free(bench->loader.config);
}

/* A config file with the fixtures as its module path, and this below. Their folder, which may be too long for
 * a line, comes from the environment. */
static inline void put_config(const char *sections)
{
    char text[4096];

    setenv("FIXTURES", FIXTURES, 1);
    snprintf(text, sizeof(text), "[mortise]\nmodule_path = ${FIXTURES}\n%s", sections);
    put(FILE_NAME, text);
}

static inline struct instance *open_good(struct bench *bench, const char *section)
{
    struct instance *instance = NULL;
    mortise_error error = {.message = "untouched"};

    if (loader_open(&bench->loader, section, NULL, 0, &instance, &error) != MORTISE_OK) {
        fprintf(stderr, "\n  [%s]: %s\n", section, error.message);
        CU_FAIL_FATAL("loader_open failed");
    }
    CU_ASSERT_STRING_EQUAL(error.message, "untouched");
    return instance;
}

/* Nothing is left open, and the message is this one. */
static inline mortise_error open_bad(const char *where, const char *section, uint32_t kind,
                                     mortise_status status, const char *wanted)
{
    struct bench bench;
    struct instance *instance = (struct instance *)&bench;
    mortise_error error = {.message = ""};

    bench_load(&bench, where);
    CU_ASSERT_EQUAL(loader_open(&bench.loader, section, NULL, kind, &instance, &error), status);
    CU_ASSERT_PTR_NULL(instance);
    CU_ASSERT_PTR_NULL(bench.loader.instances);
    CU_ASSERT_EQUAL(error.status, status);
    EXPECT_ERROR(error, wanted);
    CU_ASSERT_EQUAL(loader_open(&bench.loader, section, NULL, kind, &instance, NULL), status);
    bench_close(&bench);
    return error;
}

#endif
