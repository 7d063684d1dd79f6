/* scene.h - for tests of shared holders: a name that three processes want, in each layout, with and without a queue. */
#ifndef MORTISE_TESTS_REDIS_SCENE_H
#define MORTISE_TESTS_REDIS_SCENE_H

#include "rig.h"

#define WAYS 4
#define CLIENTS 3
#define SHARED(...) MORTISE_OPTIONS(.mode = MORTISE_SHARED, __VA_ARGS__)

struct way {
    const char *name, *settings;
    bool queued;
};
extern const struct way scene_ways[WAYS];
extern struct server *const scene_server; /* the test's */

struct scene {
    const struct way *way;
    char name[64];
    mortise_client *client[CLIENTS];
};

/* Opens the clients; `core`: lines for [mortise], or NULL. */
void scene_begin(struct scene *scene, const struct way *way, const char *what, const char *core);
/* Closes them; nothing of the name must be left. */
void scene_end(struct scene *scene);
/* How many the sorted set has. */
int64_t scene_holders(const struct scene *scene);
/* `who`: which client. A shared lease with this number of permits, and LONG_MS; must succeed. */
mortise_lease *scene_acquire(const struct scene *scene, int who, const mortise_options *options);
mortise_lease *scene_share(const struct scene *scene, int who, uint32_t permits);
/* The status of one try, which is given back. */
mortise_status scene_try(const struct scene *scene, int who, uint32_t permits);
void scene_want(struct pending *pending, const struct scene *scene, int who, mortise_mode mode,
                uint32_t permits);
/* Asserts that it gets the lease. */
void scene_join(struct pending *pending);
/* Whether this command is the last one that an ACL refused. */
bool scene_has_refused(void *command);
/* Until so many wait, as far as the server shows it: without a queue, any. */
void scene_wait(struct scene *scene, int64_t count);
bool scene_has_bar(void *scene);
/* What is left of it; -2: there is none. */
int64_t scene_bar_ms(const struct scene *scene);
/* Asserts that a writer that listens, and is woken while it need not set the bar anew, comes again before it is over. */
void scene_bar_lasts(struct scene *scene);

#endif
