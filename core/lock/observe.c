/* observe.c - what observers (plugins such as trace and metrics) see of the locks. */
#include "lock/claim.h"
#include "lock/waitlist.h"

void observe_locked(struct locks *locks, mortise_event_kind kind, const struct name *name,
                    const struct claim *claim, const struct waiter *waiter, mortise_status status)
{
    if (__builtin_expect(locks->observer_count == 0, 1))
        return;
    mortise_event event = {.size = sizeof(event),
                           .kind = kind,
                           .at_ns = clock_now(),
                           .name = name->text,
                           .name_len = name->length,
                           .status = status};
    if (waiter != NULL) {
        event.caller = waiter->caller;
        event.owner = waiter->owner;
        event.owner_len = waiter->owner_len;
        event.mode = waiter->mode;
        event.permits = waiter->permits;
    }
    if (claim != NULL) {
        event.owner = claim->owner;
        event.owner_len = claim->owner_len;
        event.mode = claim->mode;
        event.permits = claim->permits;
        event.grant = claim->id;
        event.lease = claim->number;
        event.token = atomic_load_explicit(&claim->token, memory_order_relaxed);
        event.deadline_ns = atomic_load(&claim->deadline_ns);
    }
    for (size_t i = 0; i < locks->observer_count; i++)
        locks->observers[i]->module.observe(locks->observers[i]->ctx, &event);
}
