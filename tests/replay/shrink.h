/* shrink.h - finds a short plan that still fails. */
#ifndef MORTISE_TESTS_REPLAY_SHRINK_H
#define MORTISE_TESTS_REPLAY_SHRINK_H

#include "plan.h"

#include <sys/types.h>

struct child {
    pid_t pid;
    int output;
    int lock; /* of its folder */
    char folder[256];
};

/* replay.c: a run in a process of its own. child_end() waits for its end and removes its folder; the output is to be
 * freed. */
struct child child_begin(const struct plan *plan, bool trace, int processor);
int child_end(struct child *child, char **output);

/* Prints the plan and the trace of the shortest failure that was found. Returns the exit code. */
int shrink(const struct plan *plan);

#endif
