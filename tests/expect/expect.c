/* expect.c - CUnit for threads: serialises the assertions, and runs the tests. */
#include "expect.h"

#include <CUnit/Basic.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Thread_local mortise_error detail;
_Thread_local char doing[160];
_Thread_local int failures;

static void tell(bool good, const char *text, const char *file, unsigned line)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    failures += !good;
    pthread_mutex_lock(&lock);
    if (CU_get_current_test())
        CU_assertImplementation(good, line, text, file, "", CU_FALSE);
    else if (!good)
        fprintf(stderr, "%s:%u: %s\n", file, line, text);
    pthread_mutex_unlock(&lock);
}

bool check_at(bool good, const char *what, const char *file, unsigned line)
{
    char text[600];
    snprintf(text, sizeof text, "%s%s%s", doing, doing[0] ? ": " : "", what);
    tell(good, text, file, line);
    return good;
}

bool safe_at(bool good, const char *what, const char *file, unsigned line)
{
    if (!good)
        printf("\nFINDING: %s:%u: %s\n", file, line, what);
    return check_at(good, what, file, line);
}

bool expect_at(mortise_status got, mortise_status wanted, const char *call, const char *file,
               unsigned line)
{
    char text[1800];
    snprintf(text, sizeof text, "%s%s%s: %s, wanted %s; %s", doing, doing[0] ? ": " : "", call,
             mortise_status_name(got), mortise_status_name(wanted),
             got != MORTISE_OK && detail.status == got ? detail.message : "");
    tell(got == wanted, text, file, line);
    return got == wanted;
}

bool says_at(const char *text, const char *file, unsigned line)
{
    char told[1800];
    snprintf(told, sizeof told, "%s%swanted \"%s\" in \"%s\"", doing, doing[0] ? ": " : "", text,
             detail.message);
    tell(strstr(detail.message, text) != NULL, told, file, line);
    return strstr(detail.message, text) != NULL;
}

struct job {
    void (*run)(void *argument);
    void *argument;
};

static void *do_job(void *argument)
{
    const struct job *job = argument;
    job->run(job->argument);
    return NULL;
}

void in_parallel(void (*run)(void *argument), void *arguments, size_t size, size_t count)
{
    pthread_t threads[64];
    struct job jobs[64];
    size_t begun = 0;
    for (; begun < count && begun < 64; begun++) {
        jobs[begun] = (struct job){run, (char *)arguments + begun * size};
        if (pthread_create(&threads[begun], NULL, do_job, &jobs[begun]) != 0)
            break;
    }
    CHECK(begun == count);
    for (size_t i = 0; i < begun; i++)
        pthread_join(threads[i], NULL);
}

/* only=TEXT: the tests whose name contains it. */
static void narrow(int argc, char **argv)
{
    const char *only = argc > 1 && strncmp(argv[1], "only=", 5) == 0 ? argv[1] + 5 : NULL;
    if (!only)
        return;
    CU_set_fail_on_inactive(CU_FALSE);
    for (CU_pSuite suite = CU_get_registry()->pSuite; suite; suite = suite->pNext)
        for (CU_pTest test = suite->pTest; test; test = test->pNext)
            if (!strstr(test->pName, only))
                CU_set_test_active(test, CU_FALSE);
}

static int64_t began_ms;

static void before(void)
{
    doing[0] = '\0';
    failures = 0;
    began_ms = test_now_ms();
}

static void after(void)
{
    printf("(%lld ms) ", (long long)(test_now_ms() - began_ms));
}

int run_tests(const char *suite, const CU_TestInfo *tests, int argc, char **argv)
{
    CU_SuiteInfo suites[] = {
        {suite, NULL, NULL, before, after, (CU_TestInfo *)(uintptr_t)tests},
        CU_SUITE_INFO_NULL,
    };
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (CU_initialize_registry() != CUE_SUCCESS || CU_register_suites(suites) != CUE_SUCCESS)
        return 1;
    narrow(argc, argv);
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    int code = CU_get_number_of_failures() > 0 || CU_get_number_of_tests_run() == 0;
    CU_cleanup_registry();
    return code;
}
