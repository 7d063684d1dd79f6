/* watch.c - asks the driver to report when a name becomes free, as long as callers wait for it.
 *
 * An UNWATCH may reach the driver after the acquire of the next caller, because requests that are made under the lock of
 * the client are started after the lock is released. If the driver has registered that caller with its BUSY answer, the
 * UNWATCH may remove the registration, and news may be lost. So a WATCH that had to wait for an UNWATCH is `late`: when
 * the driver has got the WATCH, the waitlist asks once more. */
#include "lock/waitlist.h"

#include <stdlib.h>
#include <string.h>

static void watch_done(mortise_op *op);

static void send_locked(struct watch *watch)
{
    struct locks *locks = watch->locks;
    mortise_op *op = &watch->task.op;
    memset(&watch->task, 0, sizeof(watch->task));
    op->kind = watch->wanted ? OP_WATCH : OP_UNWATCH;
    op->core_state = OP_IDLE;
    op->name = watch->name->text;
    op->name_len = watch->name->length;
    op->done = watch_done;
    watch->watching = watch->wanted;
    watch->out = true;
    watch->name->references++;
    locks_began_locked(locks);
    locks_start_locked(locks, &watch->task);
}

/* Inside the pump, no lock held. */
static void watch_done(mortise_op *op)
{
    struct watch *watch = (struct watch *)(void *)((char *)op - offsetof(struct watch, task));
    struct locks *locks = watch->locks;
    pthread_mutex_lock(&locks->lock);
    watch->out = false;
    if (watch->late && watch->watching)
        waitlist_news_locked(watch->name);
    watch->late = watch->wanted && !watch->watching;
    if (watch->wanted != watch->watching)
        send_locked(watch);
    name_put_locked(locks, watch->name);
    locks_ended_locked(locks);
    locks_unlock(locks, START_NOW);
}

void name_watch_locked(struct locks *locks, struct name *name, bool wanted)
{
    struct watch *watch = name->watch;
    if (watch == NULL && wanted && locks->watches) {
        name->watch = watch = calloc(1, sizeof(*watch));
        if (watch != NULL)
            *watch = (struct watch){.locks = locks, .name = name};
    }
    if (watch == NULL)
        return;
    watch->wanted = wanted;
    if (!watch->out && watch->watching != wanted)
        send_locked(watch);
}

bool name_is_watched(const struct locks *locks, const struct name *name)
{
    return locks->notify_capable && name->watch != NULL && name->watch->watching;
}
