/* cells.h - counts the cells of a table of states and events. The core of coverage.py calls replay_meets() and
 * replay_goes(); states and events are numbers here. */
#ifndef MORTISE_TESTS_REPLAY_CELLS_H
#define MORTISE_TESTS_REPLAY_CELLS_H

#include <stdbool.h>

enum { CELLS_NO_EVENT = 0, CELLS_OF_ANOTHER = 15 };

/* Before the first run. */
void cells_begin(void);
bool cells_wanted(void);
void cells_print(void);

#define CELLS_EXPORT __attribute__((visibility("default")))

/* This thread acts on an event of `thing`. NULL: it has acted on it. */
CELLS_EXPORT void replay_meets(const void *thing, unsigned state, unsigned event);
CELLS_EXPORT void replay_goes(const void *thing, unsigned state, unsigned to);

#endif
