/* watch.h - the parts of `mortise watch`: the thread that asks (watch_ask.c), the screen (watch_screen.c), and what they
 * show (watch.c). */
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

/* Asks once an interval, on a thread of its own, so that a slow backend does not delay the keyboard. */
struct asker;
struct asker *asker_start(mortise_client *client, const char *prefix, int64_t interval_ms);
/* Frees the asker. Close the client first: that ends a request that is under way. */
void asker_stop(struct asker *asker);
/* Readable if there is a new snapshot. */
int asker_fd(const struct asker *asker);
/* Takes the newest snapshot; false if there is none since the last call. */
bool asker_take(struct asker *asker, struct snapshot *snapshot);

/* Switches to the alternate screen, with unbuffered keys and a hidden cursor. */
bool screen_open(void);
void screen_close(void);
/* The descriptor of the keys; -1 if there is none. */
int screen_keys(void);
void screen_size(size_t *rows, size_t *columns);
/* Replaces the screen by text, one line a row, cut to the height, in one write. */
void screen_draw(const char *text);

#endif
