/* expect.h - the assertions of tests that use the public header: from any thread, with the library's message in the
 * failure. Unit tests use CUnit's own assertions. */
#ifndef MORTISE_TESTS_EXPECT_H
#define MORTISE_TESTS_EXPECT_H

#include <mortise/mortise.h>
#include <support.h>

#include <CUnit/CUnit.h>

/* The detail of the last call of this thread that was given it. */
extern _Thread_local mortise_error detail;
/* Printed before each failure of this thread: which variant, which byte. */
extern _Thread_local char doing[160];
/* Failures of this thread, for loops that need not go on. */
extern _Thread_local int failures;

/* CHECK(condition): true if it holds. */
bool check_at(bool good, const char *what, const char *file, unsigned line);
#define CHECK(condition) check_at((condition), #condition, __FILE__, __LINE__)
/* EXPECT(OK, mortise_release(lease, &detail)): true if the call returns this status. A failure says what came instead,
 * with its message. */
bool expect_at(mortise_status got, mortise_status wanted, const char *call, const char *file,
               unsigned line);
#define EXPECT(wanted, call) expect_at((call), MORTISE_##wanted, #call, __FILE__, __LINE__)
/* SAFE(condition): as CHECK, of what slowness cannot break: no two holders, tokens in order, no lost update. A
 * failure is printed as a FINDING, and the test is not run once more (tests/again.py). */
bool safe_at(bool good, const char *what, const char *file, unsigned line);
#define SAFE(condition) safe_at((condition), #condition, __FILE__, __LINE__)
/* SAYS(text): the message of `detail` has this text in it. */
bool says_at(const char *text, const char *file, unsigned line);
#define SAYS(text) says_at(text, __FILE__, __LINE__)

/* Runs run(argument) for each of the arguments at once, a thread each, and waits for all. */
void in_parallel(void (*run)(void *argument), void *arguments, size_t size, size_t count);

/* Runs the tests in turn, as one suite; returns the exit code. */
int run_tests(const char *suite, const CU_TestInfo *tests, int argc, char **argv);

/* foreign.c: the program has a socket of its own, which blocks, under the number of the client's connection to this port on
 * 127.0.0.1. full: a send blocks; otherwise a read blocks. Checks that the client notices, and connects again. */
void put_foreign_socket(mortise_client *client, int port, bool full);

#endif
