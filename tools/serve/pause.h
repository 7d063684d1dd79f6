/* pause.h - how long the thread that asks the backend waits until it asks again. */
#ifndef MORTISE_TOOLS_SERVE_PAUSE_H
#define MORTISE_TOOLS_SERVE_PAUSE_H

#include <stdbool.h>
#include <stdint.h>

enum { PAUSE_MAX_MS = 60000 };

/* For poll(), after a listing that took so long. interval_ms is at most an hour; the pause is never shorter. */
int pause_ms(bool answered, int64_t took_ms, int64_t interval_ms);

#endif
