/* config_test.h - what the tests of config and loader share: a directory of their own in which they run, so that
 * paths in messages are short and exact, and a check of a failure's text. */
#ifndef CONFIG_TEST_H
#define CONFIG_TEST_H

#include "config/config.h"
#include "base/status.h"
#include "suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char test_folder[64];

static inline void put_bytes(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "we");
    if (file == NULL || fwrite(bytes, 1, size, file) != size || fclose(file) != 0 ||
        chmod(path, 0600) != 0) {
        perror(path);
        exit(2);
    }
}

static inline void put(const char *path, const char *text)
{
    put_bytes(path, text, strlen(text));
}

/* The text that a failure is told in, checked as a whole; says what it was when it is another. */
#define EXPECT_ERROR(error, wanted)                                                                \
    do {                                                                                           \
        bool same = strcmp((error).message, (wanted)) == 0;                                        \
        if (!same)                                                                                 \
            fprintf(stderr, "\n  %s:%d\n    told:   %s\n    wanted: %s\n", __FILE__, __LINE__,     \
                    (error).message, (wanted));                                                    \
        CU_ASSERT(same);                                                                           \
    } while (0)

/* The file is loaded without a fault. */
static inline struct config *load_good(const char *where)
{
    struct config *config;
    mortise_error error = {.message = ""};
    if (config_load(where, &config, &error) != MORTISE_OK) {
        fprintf(stderr, "\n  %s: %s\n", where == NULL ? "(search)" : where, error.message);
        CU_FAIL_FATAL("config_load failed");
    }
    return config;
}

static inline void load_bad_status(const char *where, mortise_status status, const char *wanted,
                                   int line)
{
    struct config *config = (struct config *)&status;
    mortise_error error = {.message = ""};
    mortise_status got = config_load(where, &config, &error);
    bool good = got == status && error.status == status && config == NULL &&
                strcmp(error.message, wanted) == 0;
    if (!good)
        fprintf(stderr, "\n  line %d, status %d\n    told:   %s\n    wanted: %s\n", line, got,
                error.message, wanted);
    CU_ASSERT(good);
    config_free(config == (struct config *)&status ? NULL : config);
}
#define LOAD_BAD(where, wanted) load_bad_status(where, MORTISE_CONFIG, wanted, __LINE__)

/* Runs the tests in a new folder, which is removed at the end; returns what main should. */
static inline int run_tests(const char *suite, const CU_TestInfo *tests)
{
    char command[128];

    snprintf(test_folder, sizeof(test_folder), "/tmp/mortise-test-XXXXXX");
    if (mkdtemp(test_folder) == NULL || chdir(test_folder) != 0)
        return 2;
    setenv("HOME", test_folder, 1);
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("MORTISE_CONFIG");
    unsetenv("MORTISE_MODULE_PATH");
    int code = suite_run(suite, tests);
    snprintf(command, sizeof(command), "rm -rf '%s'", test_folder);
    if (chdir("/") != 0 || system(command) != 0)
        return 2;
    return code;
}

#endif
