/* test_modules_config.c - a config file that names folders of modules: who could put another one in its place could have
 * any code loaded (R11). */
#include "loader_test.h"

static void refused_config(const char *file, const char *what, const char *told, unsigned user,
                           unsigned mode)
{
    char wanted[700];
    snprintf(wanted, sizeof(wanted),
             "%s: [mortise] module_path is refused: %s: modules are not loaded from a path that "
             "others can replace: %s belongs to user %u, its mode is %04o (chown, chmod go-w)",
             file, what, told, user, mode);
    open_bad(file, "sink", 0, MORTISE_CONFIG, wanted);
}

static void accepted_config(const char *file)
{
    struct bench bench;
    bench_load(&bench, file);
    open_good(&bench, "sink");
    bench_close(&bench);
}

/* Who may write the folder of the config file, or one above it, can put another file there, with another module_path. */
static void test_config_folder(void)
{
    char folder[128], file[160], link[128], section[180];
    snprintf(folder, sizeof(folder), "%s/config", test_folder);
    snprintf(file, sizeof(file), "%s/mortise.conf", folder);
    snprintf(link, sizeof(link), "%s/linked.conf", test_folder);
    snprintf(section, sizeof(section), "%s#sink", file);
    CU_ASSERT_FATAL(mkdir(folder, 0700) == 0 && symlink("config/mortise.conf", link) == 0);
    put_config("");
    CU_ASSERT_EQUAL_FATAL(rename(FILE_NAME, file), 0);
    CU_ASSERT_EQUAL(chmod(folder, 0777), 0);
    refused_config(file, file, folder, geteuid(), 0777);
    refused_config("config/mortise.conf", file, folder, geteuid(), 0777);
    refused_config(link, file, folder, geteuid(), 0777);
    setenv("MORTISE_MODULE_PATH", FIXTURES, 1);
    accepted_config(file); /* what it says does not count */
    unsetenv("MORTISE_MODULE_PATH");
    CU_ASSERT_EQUAL(chmod(folder, 01777), 0);
    accepted_config(file);
    CU_ASSERT_EQUAL(chmod(folder, 0755), 0);
    accepted_config(file);
    accepted_config("config/mortise.conf");
    accepted_config("./linked.conf");
    accepted_config(section);
    if (geteuid() != 0)
        return; /* only root can make what is another's */
    CU_ASSERT_EQUAL(lchown(link, 4711, 4711), 0);
    refused_config("linked.conf", link, link, 4711, 0777);
    CU_ASSERT_EQUAL(chown(folder, 4711, 4711), 0);
    refused_config(file, file, folder, 4711, 0755);
}

/* From a pipe: nobody can put another one in its place. */
static void test_config_pipe(void)
{
    int ends[2];
    char file[32];
    static const char text[] = "[mortise]\nmodule_path = ${FIXTURES}\n";
    CU_ASSERT_EQUAL_FATAL(pipe(ends), 0);
    CU_ASSERT_EQUAL(write(ends[1], text, sizeof(text) - 1), (ssize_t)sizeof(text) - 1);
    close(ends[1]);
    snprintf(file, sizeof(file), "/dev/fd/%d", ends[0]);
    accepted_config(file);
    close(ends[0]);
}

int main(void)
{
    CU_TestInfo tests[] = {{"the folder of the config", test_config_folder},
                           {"a config from a pipe", test_config_pipe},
                           CU_TEST_INFO_NULL};
    return run_tests("modules_config", tests);
}
