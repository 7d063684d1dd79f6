/* test_secure.c - a set-uid program ignores the environment (R11): no config, no directory, no module and no value
 * comes from it. Runs a set-uid copy of itself as another user, so it needs root. */
#include "config_test.h"

#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/sendfile.h>
#include <sys/wait.h>

#define SKIPPED 77
#define OTHER_USER 65534
#define COPY "secure-copy"

/* In the copy: 0, SKIPPED, or the number of what was wrong. */
static int look_as_other_user(void)
{
    struct config *config;
    const char *path;
    mortise_error error = {.message = ""};

    if (getauxval(AT_SECURE) == 0)
        return SKIPPED; /* a file system without set-uid */
    if (getenv("MORTISE_CONFIG") == NULL || getenv("MORTISE_MODULE_PATH") == NULL)
        return 1; /* else this would prove nothing */
    if (config_load(NULL, &config, &error) != MORTISE_OK)
        return 2;
    if (strcmp(config_source(config), "built-in defaults") != 0 &&
        strcmp(config_source(config), MORTISE_CONFIG_DIR "/mortise.conf") != 0)
        return 3;
    if (config_module_path(config, &path, &error) != MORTISE_OK || path != NULL)
        return 4;
    config_free(config);
    if (config_load("value.conf", &config, &error) != MORTISE_CONFIG ||
        strcmp(error.message, "value.conf:2: [mortise] driver: ${MORTISE_CONFIG} is not set in the "
                              "environment") != 0)
        return 5;
    return 0;
}

static void copy_self(void)
{
    struct stat st;
    int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int to = open(COPY, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);

    CU_ASSERT_FATAL(from >= 0 && to >= 0 && fstat(from, &st) == 0);
    for (off_t at = 0; at < st.st_size;)
        CU_ASSERT_FATAL(sendfile(to, from, &at, (size_t)(st.st_size - at)) > 0);
    CU_ASSERT_EQUAL(fchmod(to, 04755), 0);
    close(from);
    close(to);
}

static int run_copy(void)
{
    int status;
    pid_t child = fork();

    CU_ASSERT_NOT_EQUAL_FATAL(child, -1);
    if (child == 0) {
        if (setgid(OTHER_USER) != 0 || setuid(OTHER_USER) != 0)
            _exit(100);
        execl("./" COPY, COPY, "secure", (char *)NULL);
        _exit(101);
    }
    CU_ASSERT_EQUAL_FATAL(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool skipped;

static void test_secure(void)
{
    char config[128];

    if (geteuid() != 0) {
        skipped = true;
        return;
    }
    put("evil.conf", "[mortise]\ndriver = evil\n");
    put("value.conf", "[mortise]\ndriver = ${MORTISE_CONFIG}\n");
    CU_ASSERT_EQUAL(mkdir(".config", 0755), 0);
    CU_ASSERT_EQUAL(mkdir(".config/mortise", 0755), 0);
    put(".config/mortise/mortise.conf", "[mortise]\ndriver = evil\n");
    chmod("evil.conf", 0644);
    chmod("value.conf", 0644);
    chmod(test_folder, 0755);
    copy_self();
    snprintf(config, sizeof(config), "%s/evil.conf", test_folder);
    setenv("MORTISE_CONFIG", config, 1);
    setenv("MORTISE_MODULE_PATH", test_folder, 1);
    setenv("XDG_CONFIG_HOME", ".config", 1);
    int code = run_copy();
    skipped = code == SKIPPED;
    CU_ASSERT(skipped || code == 0);
    if (code != 0)
        fprintf(stderr, "\n  the copy returned %d\n", code);
    unsetenv("MORTISE_CONFIG");
    unsetenv("MORTISE_MODULE_PATH");
}

int main(int count, char **arguments)
{
    CU_TestInfo tests[] = {{"a set-uid program", test_secure}, CU_TEST_INFO_NULL};

    if (count > 1 && strcmp(arguments[1], "secure") == 0)
        return look_as_other_user();
    int result = run_tests("secure", tests);
    return result == 0 && skipped ? SKIPPED : result;
}
