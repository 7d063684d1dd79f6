/* observe.c - what a client tells its observers. */
#include "client/core.h"

void observe_locked(struct client *client, mortise_event_kind kind, const struct entry *entry,
                    const struct grant *grant, const struct waiter *waiter, mortise_status status)
{
    if (__builtin_expect(client->observer_count == 0, 1))
        return;
    mortise_event event = {.size = sizeof(event),
                           .kind = kind,
                           .at_ns = clock_now(),
                           .name = entry->name,
                           .name_len = entry->name_len,
                           .status = status};
    if (waiter != NULL) {
        event.caller = waiter->caller;
        event.owner = waiter->owner;
        event.owner_len = waiter->owner_len;
    }
    if (grant != NULL) {
        event.owner = grant->owner;
        event.owner_len = grant->owner_len;
        event.grant = grant->id;
        event.lease = grant->number;
        event.token = atomic_load_explicit(&grant->token, memory_order_relaxed);
        event.deadline_ns = atomic_load(&grant->deadline_ns);
    }
    for (size_t i = 0; i < client->observer_count; i++)
        client->observers[i]->module.observe(client->observers[i]->ctx, &event);
}
