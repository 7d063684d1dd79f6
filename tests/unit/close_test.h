/* close_test.h - what the tests of a client's end share: a client with a short close_timeout, a caller on a thread of
 * its own, a time limit for the close, and a process of its own for tests that never free something. */
#ifndef CLOSE_TEST_H
#define CLOSE_TEST_H

#include "rig.h"

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONFIG "ttl = 30s\nclose_timeout = 200ms\n"

static struct rig rig;

static inline void print_failures(void)
{
    for (CU_pFailureRecord failure = CU_get_failure_list(); failure != NULL;
         failure = failure->pNext)
        fprintf(stderr, "  in the child: %s:%u: %s\n", failure->strFileName, failure->uiLineNumber,
                failure->strCondition);
}

/* For tests whose driver breaks its contract for good: what is left standing by the core, as it must be,
 * ends with a process of its own. */
static inline void in_child(void (*test)(void))
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    CU_ASSERT_FATAL(child >= 0);
    if (child == 0) {
        alarm(60); /* a hang is a failure */
        unsigned before = CU_get_number_of_failures();
        test();
        if (CU_get_number_of_failures() > before)
            print_failures();
        syscall(SYS_exit_group,
                CU_get_number_of_failures() > before); /* no sanitizer's last look */
    }
    CU_ASSERT_FATAL(waitpid(child, &status, 0) == child);
    CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

struct caller {
    pthread_t thread;
    mortise_client *client;
    mortise_lease *lease;
    mortise_status status;
    int64_t took_ms;
};

static inline void *wait_for_a(void *argument)
{
    struct caller *caller = argument;
    int64_t from_ms = test_now_ms();
    caller->status = mortise_acquire(caller->client, "a", FOREVER, &caller->lease, NULL);
    caller->took_ms = test_now_ms() - from_ms;
    return NULL;
}

/* Closes a real client and asserts that it does not take much longer than close_timeout. */
static inline void close_in_time(mortise_status wanted)
{
    mortise_error error = {.message = ""};
    int64_t from_ms = test_now_ms();
    CU_ASSERT_EQUAL(mortise_close(rig.handle, &error), wanted);
    int64_t took_ms = test_now_ms() - from_ms;
    CU_ASSERT(took_ms < 20000);
    if (wanted == MORTISE_UNREACHABLE) {
        CU_ASSERT(took_ms >= 200);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "sim"));
    }
}

#endif
