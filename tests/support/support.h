/* support.h - what tests share: waiting for an event with a time limit, processes that exchange lines with the test,
 * temporary directories, skips. Knows nothing of locks.
 *
 * No function here ends the test: each reports whether it worked, and the test asserts. */
#ifndef MORTISE_TESTS_SUPPORT_H
#define MORTISE_TESTS_SUPPORT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* What a test that cannot run exits with. */
#define TEST_SKIP_CODE 77
/* Bounds failure only: nothing waits for so long when all is well. */
#define TEST_PATIENCE_MS 60000

/* ---- wait.c: events --------------------------------------------------------------------------- */

int64_t test_now_ms(void); /* CLOCK_MONOTONIC */

/* Looks every millisecond whether ready(argument); false after timeout_ms. For what tells nobody. */
bool test_poll(bool (*ready)(void *argument), void *argument, int64_t timeout_ms);

/* A number that threads raise and wait for. */
struct test_count {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int value;
};
#define TEST_COUNT_INIT                                                                            \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0                                     \
    }
void test_count_add(struct test_count *count, int change);
int test_count_get(struct test_count *count);
/* Until the value is at least so large; false after TEST_PATIENCE_MS. */
bool test_count_wait(struct test_count *count, int at_least);
/* The same with a bound of one's own. */
bool test_count_wait_ms(struct test_count *count, int at_least, int64_t timeout_ms);

/* ---- process.c: a child that is talked to by lines --------------------------------------------- */

struct test_process {
    pid_t pid; /* 0: none, or reaped */
    int in, out;
    size_t used;
    char buffer[4096];
};

/* argv[0] is a path; NULL-terminated. Its stdin and stdout are pipes, stderr is ours. */
bool test_spawn(struct test_process *process, const char *const *argv);
/* One line to it; the newline is added. */
bool test_say(struct test_process *process, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The next line from it, without the newline; false: none within timeout_ms, or it has ended. */
bool test_hear(struct test_process *process, char *line, size_t size, int64_t timeout_ms);
/* Sends the signal, if the process is there. */
bool test_signal(struct test_process *process, int signal);
/* Waits for its end and forgets it. The status of waitpid; -1: it did not end within timeout_ms. Says on stderr if it crashed. */
int test_reap(struct test_process *process, int64_t timeout_ms);
/* Ends it with SIGKILL, if it is there, and reaps it. */
void test_kill(struct test_process *process);

/* ---- folder.c: files ---------------------------------------------------------------------------- */

/* Makes a folder of one's own below $TMPDIR or /tmp; path has room for size bytes. */
bool test_folder_make(char *path, size_t size);
/* Removes it with all that is in it. */
void test_folder_remove(const char *path);
/* Writes text to a file that only we may write and read. */
bool test_file_write(const char *path, const char *text);
/* Its whole text, to be freed; NULL: it cannot be read. */
char *test_file_read(const char *path);

/* Says on stderr that and why `what` is skipped and returns TEST_SKIP_CODE, or 1 where
 * $MORTISE_REQUIRE_ALL is 1: nothing may be skipped there. */
int test_skip(const char *what, const char *why);

/* This program's standard input is a pipe with this text from now on; returns the former one, for test_stdin_end(). */
int test_stdin_begin(const char *text);
/* The former input again. True: nobody has read the text. */
bool test_stdin_end(int former, const char *text);

#endif
