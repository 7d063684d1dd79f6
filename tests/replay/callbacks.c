/* callbacks.c - what the application does in its callbacks, and the promises that callbacks can check: exactly once, in
 * order, not after a release, not after a close. */
#include "world.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check_alive(const struct opened *opened, const char *what)
{
    if (opened->ended && opened->closer != sched_thread())
        sched_fail("%s runs after mortise_close() has returned", what);
}

/* ---- on_state ---- */

struct watched *watch_new(struct opened *opened, enum plan_callback callback, int name)
{
    struct watched *watched = calloc(1, sizeof *watched);
    if (!watched)
        abort();
    watched->opened = opened;
    watched->callback = callback;
    watched->name = name;
    return watched;
}

void check_kept(const struct watched *watched, bool kept)
{
    if (!kept && watched->keeps && !watched->released_inside && !watched->opened->closing)
        sched_fail("a lease of %s is lost or suspect without any cause", name_text(watched->name));
}

static void try_another(const struct watched *watched)
{
    mortise_lease *lease;
    mortise_error error;
    const mortise_options options = {.size = sizeof options, .wait_ms = 0};
    mortise_status status = mortise_acquire(watched->opened->handle, "d", &options, &lease, &error);
    sched_trace("acquire d in the callback: %s", mortise_status_name(status));
    check_status(CALL_ACQUIRE, status, watched->opened, &error);
    if (status == MORTISE_OK)
        check_status(CALL_NOWAIT, mortise_release_nowait(lease, &error), watched->opened, &error);
}

static void react(struct watched *watched, mortise_lease *lease)
{
    mortise_error error;
    switch (watched->callback) {
    case CALLBACK_RELEASE:
        if (!watched->released_inside) {
            watched->released_inside = true;
            mortise_status status = mortise_release(lease, &error);
            sched_trace("release in the callback: %s", mortise_status_name(status));
            if (status != MORTISE_INVALID) /* else the application has released it meanwhile */
                check_status(CALL_RELEASE, status, watched->opened, &error);
        }
        break;
    case CALLBACK_TRY:
        try_another(watched);
        break;
    case CALLBACK_CLOSE:
        client_close(watched->opened);
        break;
    case CALLBACK_SLOW:
        usleep(30000);
        break;
    default:
        break;
    }
}

static void on_state(mortise_lease *lease, mortise_lease_state state, void *user_data)
{
    static const char *const words[] = {"LOST", "SUSPECT", "HELD"};
    struct watched *watched = user_data;
    sched_trace("on_state of %s: %s", name_text(watched->name), words[state]);
    check_alive(watched->opened, "on_state");
    if (watched->released && !watched->released_inside)
        sched_fail("on_state is called after mortise_release() has returned");
    if (watched->lost)
        sched_fail("on_state is called after LOST");
    if (state == MORTISE_STATE_LOST && mortise_state(lease) != MORTISE_STATE_LOST)
        sched_fail("LOST was reported, and mortise_state() says that the lease is held");
    watched->lost = state == MORTISE_STATE_LOST;
    check_kept(watched, state == MORTISE_STATE_HELD ||
                            (state == MORTISE_STATE_SUSPECT && !watched->in_time));
    react(watched, lease);
    check_alive(watched->opened, "on_state");
}

mortise_state_callback watch_function(const struct watched *watched)
{
    return watched->callback == CALLBACK_NONE ? NULL : on_state;
}

/* ---- async acquires ---- */

struct wish *wish_new(struct opened *opened, struct watched *watched, bool release_now)
{
    struct wish *wish = calloc(1, sizeof *wish);
    if (!wish)
        abort();
    pthread_mutex_init(&wish->lock, NULL);
    pthread_cond_init(&wish->decided, NULL);
    wish->opened = opened;
    wish->watched = watched;
    wish->release_now = release_now;
    return wish;
}

void wish_granted(mortise_status status, mortise_lease *lease, const mortise_error *error,
                  void *user_data)
{
    struct wish *wish = user_data;
    mortise_error problem;
    sched_trace("async outcome for %s: %s", name_text(wish->watched->name),
                mortise_status_name(status));
    check_alive(wish->opened, "the callback of an async acquire");
    if (status != MORTISE_CANCELED)
        check_status(CALL_ACQUIRE, status, wish->opened, error);
    if ((status == MORTISE_OK) != (lease != NULL))
        sched_fail("an async acquire has a lease and failed, or none and succeeded");
    if (status == MORTISE_OK && wish->release_now) {
        check_status(CALL_NOWAIT, mortise_release_nowait(lease, &problem), wish->opened, &problem);
        lease = NULL;
        wish->watched->released = true;
    }
    pthread_mutex_lock(&wish->lock);
    if (wish->times++ > 0)
        sched_fail("an async acquire has two outcomes");
    wish->status = status;
    wish->lease = lease;
    pthread_cond_signal(&wish->decided);
    pthread_mutex_unlock(&wish->lock);
    check_alive(wish->opened, "the callback of an async acquire");
}

void told_released(mortise_status status, const mortise_error *error, void *user_data)
{
    const struct watched *watched = user_data;
    const struct opened *opened = watched->opened;
    sched_trace("async release: %s", mortise_status_name(status));
    check_alive(opened, "the callback of an async release");
    check_status(CALL_RELEASE, status, opened, error);
    check_kept(watched, status != MORTISE_LOST);
    if ((status == MORTISE_OK) != (error == NULL))
        sched_fail("an async release has an error and succeeded, or none and failed");
}
