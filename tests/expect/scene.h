/* scene.h - what the fault tests of drivers with servers of their own have in common: servers.sh, names, states, a caller that waits on a
 * thread of its own, and the run of one set of tests. */
#ifndef MORTISE_TESTS_SCENE_H
#define MORTISE_TESTS_SCENE_H

#include "expect.h"

#include <pthread.h>

/* Runs servers.sh VERB for that kind of server, with these words (NULL: none), and hands each line that it says to `each` (NULL:
 * nobody wants to know). Returns its exit code; -1: there is none. */
int scene_servers(const char *kind, const char *folder, const char *verb, const char *const *words,
                  void (*each)(const char *line, void *argument), void *argument);

/* Returns an unused name. Valid for 16 calls; any thread. */
const char *fresh_name(void);
bool wait_state(mortise_lease *lease, mortise_lease_state state, int64_t timeout_ms);

/* An acquire that waits on a thread of its own. Before the start, zero but for what is named here. */
struct waiter {
    int64_t wait_ms; /* 0: as long as a test is patient */
    mortise_mode mode;
    uint32_t permits;
    mortise_lease *other; /* checked when it is granted: nobody else may hold then; NULL: not */
    /* then: */
    pthread_t thread;
    mortise_client *client;
    const char *name;
    mortise_status status;
    mortise_lease *lease;
    mortise_lease_state other_state;
    int64_t granted_ms;
    struct test_count done;
};
void waiter_start(struct waiter *waiter, mortise_client *client, const char *name);
mortise_status waiter_join(struct waiter *waiter);

/* The tests whose name has that text in it (NULL: all), ending with CU_TEST_INFO_NULL; for the life of the program. */
CU_TestInfo *scene_choose(const CU_TestInfo *tests, const char *only);
/* Runs them; returns the exit code. */
int scene_run(CU_SuiteInfo *suites);

#endif
