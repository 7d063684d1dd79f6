/* world_settings.h - what verdicts.c needs to know of the run. world.h cannot be included there: the checker has a struct
 * world of its own. */
#ifndef MORTISE_TESTS_REPLAY_WORLD_SETTINGS_H
#define MORTISE_TESTS_REPLAY_WORLD_SETTINGS_H

#include <stdbool.h>

/* Threads, or processes, stand still by chance. */
bool run_has_stalls(void);
/* The backend forgets claims: two may hold a name until one of them learns it. */
bool run_has_losses(void);

#endif
