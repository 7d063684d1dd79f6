/* watch.h - the parts of `mortise watch`: asking (watch_ask.c), the screen (watch_screen.c), and what
 * is shown (watch.c). */
#ifndef MORTISE_TOOLS_WATCH_H
#define MORTISE_TOOLS_WATCH_H

#include <mortise/mortise.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What one answer of the backend said. */
struct snapshot {
    mortise_info *infos; /* in byte order of their names */
    size_t count, capacity;
    mortise_status status;
    mortise_error error; /* valid unless status is OK */
};
void snapshot_free(struct snapshot *snapshot);

/* Asks every interval on a thread of its own, so that a backend that is slow does not make the keyboard
 * slow. */
struct asker;
struct asker *asker_start(mortise_client *client, const char *prefix, int64_t interval_ms);
/* The client must have been closed: a question under way ends by that. Frees the asker. */
void asker_stop(struct asker *asker);
/* Readable when there is a new snapshot. */
int asker_fd(const struct asker *asker);
/* Takes the newest one; false if there is none since the last time. */
bool asker_take(struct asker *asker, struct snapshot *snapshot);

/* A terminal in the alternate screen, keys unbuffered, cursor hidden. */
bool screen_open(void);
void screen_close(void);
/* Keys come from here; -1 if there are none. */
int screen_keys(void);
void screen_size(size_t *rows, size_t *columns);
/* Replaces what is shown by text, a line a row, cut to the height; in one write. */
void screen_draw(const char *text);

#endif
