/* grant.c - what the backend gave: its deadline and state, its renewal, its loss, its end.
 *
 * A grant is HELD from grant_give_locked() until one of: its deadline passes (whoever looks first marks it, and that
 * is final), the backend says that it is gone, or its lease is released. The deadline only moves by compare-and-swap
 * from a value that has not passed. The slot lives as long as the lease may be released; a hand-over renews it. */
#include "client/core.h"

#include <stdlib.h>
#include <string.h>

struct renewal {
    struct task task; /* first */
    struct grant *grant;
    bool extends, doubted; /* extends: else it only looks; doubted: when it was sent */
};

struct slab grant_slab = {.size = sizeof(struct grant), .lock = PTHREAD_MUTEX_INITIALIZER};

static void renewal_done(mortise_op *op);

int64_t drift_margin_ns(int64_t ttl_ms)
{
    return ttl_ms * NS_PER_MS / 100 + 2 * NS_PER_MS;
}

int64_t grant_deadline(struct grant *grant, int64_t now)
{
    int64_t deadline = atomic_load_explicit(&grant->deadline_ns, memory_order_acquire);
    while (deadline != DEADLINE_PASSED && now >= deadline) {
        if (atomic_compare_exchange_weak(&grant->deadline_ns, &deadline, DEADLINE_PASSED))
            return DEADLINE_PASSED;
    }
    return deadline;
}

/* False: the old deadline passed first, and the new one means nothing. Never shortens. */
static bool extend_deadline(struct grant *grant, int64_t deadline_ns)
{
    int64_t before = grant_deadline(grant, clock_now());
    while (before != DEADLINE_PASSED && before < deadline_ns) {
        if (atomic_compare_exchange_weak(&grant->deadline_ns, &before, deadline_ns))
            return true;
        before = grant_deadline(grant, clock_now());
    }
    return before != DEADLINE_PASSED;
}

/* ---- beginning and end ---- */

struct grant *grant_new_locked(struct client *client, const char *owner, size_t owner_len)
{
    char *copy = NULL;
    if (owner_len > 0 && (copy = malloc(owner_len)) == NULL)
        return NULL;
    struct grant *grant = NULL;
    struct release *room = release_room_locked(client, owner_len);
    if (room != NULL && timer_reserve(&client->timers) && (grant = slab_take(&grant_slab)) == NULL)
        timer_unreserve(&client->timers);
    if (grant == NULL) {
        if (room != NULL)
            release_room_free_locked(client, room);
        free(copy);
        return NULL;
    }
    grant->room = room;
    if (copy != NULL)
        memcpy(copy, owner, owner_len);
    grant->client = client;
    atomic_store_explicit(&grant->client_handle, slot_handle(&client->slot), memory_order_relaxed);
    atomic_store(&grant->deadline_ns, DEADLINE_PASSED);
    atomic_store_explicit(&grant->token, 0, memory_order_relaxed);
    atomic_store_explicit(&grant->suspect, false, memory_order_relaxed);
    grant->lost = grant->released = grant->renew = false;
    grant->ends = grant->doubted = false;
    grant->handovers = grant->failures = 0;
    grant->references = 1;
    grant->entry = NULL;
    grant->next = grant->previous = NULL;
    grant->owner = copy;
    grant->owner_len = (uint32_t)owner_len;
    grant->timer = (struct timer){.kind = TIMER_GRANT};
    grant->renewal = NULL;
    grant->change = grant->loss = (struct notice){.on_state = NULL};
    return grant;
}

/* Its callback is not called any more. */
static void forget_callback_locked(struct grant *grant)
{
    events_forget(&grant->client->events, &grant->change);
    events_forget(&grant->client->events, &grant->loss);
    grant->change.on_state = grant->loss.on_state = NULL;
}

void grant_unref_locked(struct grant *grant)
{
    if (--grant->references > 0)
        return;
    struct client *client = grant->client;
    free(grant->owner);
    if (grant->room != NULL)
        release_room_free_locked(client, grant->room);
    grant->room = NULL;
    grant->owner = NULL;
    if (grant->entry != NULL)
        entry_unref_locked(client, grant->entry);
    grant->entry = NULL;
    timer_unreserve(&client->timers);
    slab_give(&grant_slab, &grant->slot);
}

/* Releases the claim, with the memory that was made for it at the acquire; a second time if there is any. */
static struct release *give_back_locked(struct grant *grant, uint64_t token, int64_t now,
                                        struct task_list *starts)
{
    struct release *room = grant->room;
    grant->room = NULL;
    return release_begin_locked(grant->client, grant->entry, &grant->id, grant->owner,
                                grant->owner_len, token, clock_after_ms(now, grant->ttl_ms), room,
                                starts);
}

static void link_locked(struct entry *entry, struct grant *grant)
{
    grant->entry = entry;
    entry->references++;
    grant->previous = NULL;
    grant->next = entry->grants;
    if (entry->grants != NULL)
        entry->grants->previous = grant;
    entry->grants = grant;
}

/* Off the list of the name, which stays until the last reference. */
static void unlink_locked(struct grant *grant)
{
    if (grant->previous != NULL)
        grant->previous->next = grant->next;
    else
        grant->entry->grants = grant->next;
    if (grant->next != NULL)
        grant->next->previous = grant->previous;
    grant->next = grant->previous = NULL;
}

/* ---- when to look at it again ---- */

static int64_t renew_every_ns(const struct grant *grant)
{
    int64_t every_ms = grant->client->settings.renew_every_ms;
    int64_t third_ms = grant->span_ms < 3 ? 1 : grant->span_ms / 3;
    return (every_ms > 0 && every_ms < third_ms ? every_ms : third_ms) * NS_PER_MS;
}

static void set_span(struct grant *grant, int64_t ttl_ms, int64_t good_for_ms)
{
    grant->span_ms = (uint32_t)(good_for_ms < ttl_ms ? good_for_ms : ttl_ms);
}

static bool is_renewed(const struct grant *grant, int64_t now)
{
    return grant->renew && now < grant->hold_until_ns;
}

/* A renewal is due, sooner or later; or a look at one that is to end. */
static bool is_asked_for(const struct grant *grant, int64_t now)
{
    return is_renewed(grant, now) || grant->doubted;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* After the first failure at once, then doubling from a fiftieth of the span to a sixth. */
static int64_t backoff_ns(struct grant *grant)
{
    int64_t span_ns = (int64_t)grant->span_ms * NS_PER_MS;
    int64_t step = span_ns / 50 << (grant->failures < 6 ? grant->failures : 6);
    step = step < NS_PER_MS ? NS_PER_MS : earlier(step, span_ns / 6);
    return step / 2 + random_below(&grant->client->random, step / 2 + 1);
}

static void set_timer_locked(struct grant *grant, int64_t due_ns)
{
    /* a deadline that was just seen to have passed (INT64_MIN) is due at once */
    due_ns = earlier(due_ns, atomic_load(&grant->deadline_ns));
    timer_set_locked(grant->client, &grant->timer, due_ns);
}

static void set_renewal_timer_locked(struct grant *grant, int64_t now)
{
    if (is_renewed(grant, now))
        set_timer_locked(grant, grant->renewed_ns + renew_every_ns(grant));
    else
        set_timer_locked(grant, MORTISE_NEVER);
}

/* ---- granted ---- */

static void take_callback_locked(struct grant *grant, struct waiter *waiter)
{
    forget_callback_locked(grant);
    grant->change = (struct notice){.lease = slot_handle(&grant->slot),
                                    .on_state = waiter->on_state,
                                    .user_data = waiter->user_data};
    grant->loss = grant->change;
    grant->loss.state = MORTISE_STATE_LOST;
}

bool grant_give_locked(struct waiter *waiter, struct entry *entry, const mortise_op *op)
{
    struct grant *grant = waiter->grant;
    int64_t now = clock_now();
    set_span(grant, waiter->ttl_ms, op->good_for_ms);
    int64_t deadline =
        clock_after_ms(op->from_ns, op->good_for_ms) - drift_margin_ns(grant->span_ms);
    if (now >= deadline)
        return false;
    grant->id = op->grant;
    grant->ttl_ms = (uint32_t)waiter->ttl_ms;
    grant->granted_ns = now;
    grant->renewed_ns = op->from_ns;
    grant->renew = !waiter->no_renew;
    grant->hold_until_ns =
        waiter->max_hold_ms > 0 ? clock_after_ms(now, waiter->max_hold_ms) : MORTISE_NEVER;
    if (waiter->no_renew && grant->span_ms < grant->ttl_ms) {
        grant->renew = grant->ends = true; /* the claim alone does not last that long */
        grant->hold_until_ns = clock_after_ms(op->from_ns, waiter->ttl_ms);
    }
    take_callback_locked(grant, waiter);
    grant->number = ++grant->client->leases;
    atomic_store_explicit(&grant->token, op->token, memory_order_relaxed);
    atomic_store_explicit(&grant->deadline_ns, deadline, memory_order_release);
    link_locked(entry, grant);
    set_renewal_timer_locked(grant, now);
    waiter->lease = slot_handle(&grant->slot);
    observe_locked(grant->client, MORTISE_EVENT_GRANTED, entry, grant, waiter, MORTISE_OK);
    return true;
}

/* ---- lost ---- */

/* gone: the backend said so. Else a renewal that was sent may have moved the claim in the backend, and
 * is undone. */
static void lost_locked(struct grant *grant, bool gone, struct task_list *starts)
{
    struct client *client = grant->client;
    bool unsure = !gone && (grant->failures > 0 || grant->renewal != NULL);
    atomic_store(&grant->deadline_ns, DEADLINE_PASSED);
    grant->lost = true;
    timer_stop(&client->timers, &grant->timer);
    client->stats.losses++;
    client->stats.held--;
    observe_locked(client, MORTISE_EVENT_LOST, grant->entry, grant, NULL, MORTISE_LOST);
    events_push(&client->events, &grant->loss);
    if (unsure)
        give_back_locked(grant, atomic_load(&grant->token), clock_now(), starts);
}

/* ---- renewal ---- */

/* What is left of a claim that is to end: asked for so long, it is there longer than it was by the way of the request
 * only. A holder's look may find the deadline passed at any time. */
static int64_t left_ms(const struct grant *grant, int64_t now)
{
    int64_t deadline = atomic_load(&grant->deadline_ns);
    if (deadline == DEADLINE_PASSED || deadline <= now)
        return 1;
    int64_t ms = (deadline + drift_margin_ns(grant->span_ms) - now) / NS_PER_MS + 1;
    return ms < grant->ttl_ms ? ms : grant->ttl_ms;
}

static void renew_locked(struct grant *grant, int64_t now, struct task_list *starts)
{
    struct renewal *renewal = calloc(1, sizeof(*renewal));
    int64_t patience_ns = (int64_t)grant->span_ms * NS_PER_MS / 6;
    set_timer_locked(grant, now + (patience_ns < NS_PER_MS ? NS_PER_MS : patience_ns));
    if (renewal == NULL)
        return; /* again when the timer is due */
    mortise_op *op = &renewal->task.op;
    op->kind = MORTISE_OP_RENEW;
    op->core_state = OP_IDLE;
    op->name = grant->entry->name;
    op->name_len = grant->entry->name_len;
    op->owner = grant->owner;
    op->owner_len = grant->owner_len;
    op->note = grant->client->note;
    op->note_len = grant->client->note_len;
    op->grant = grant->id;
    op->ttl_ms = grant->ttl_ms;
    renewal->extends = is_renewed(grant, now);
    if (!renewal->extends)
        op->ttl_ms = left_ms(grant, now);
    else if (grant->ends)
        op->ttl_ms = (grant->hold_until_ns - now) / NS_PER_MS + 1;
    op->token = atomic_load_explicit(&grant->token, memory_order_relaxed);
    op->done = renewal_done;
    renewal->task.unattended = true;
    renewal->grant = grant;
    grant->renewal = &renewal->task;
    renewal->doubted = grant->doubted;
    grant->doubted = false;
    grant->references++;
    client_began_locked(grant->client);
    task_append(starts, &renewal->task);
}

/* False: the deadline passed before the answer came. */
static bool extend_locked(struct grant *grant, const mortise_op *op)
{
    set_span(grant, grant->ttl_ms, op->good_for_ms);
    int64_t deadline =
        clock_after_ms(op->from_ns, op->good_for_ms) - drift_margin_ns(grant->span_ms);
    if (!extend_deadline(grant, deadline))
        return false;
    grant->client->stats.renewals++;
    grant->renewed_ns = op->from_ns;
    return true;
}

static void renewed_locked(struct grant *grant, const mortise_op *op, bool extends,
                           struct task_list *starts)
{
    bool stands =
        extends ? extend_locked(grant, op) : grant_deadline(grant, clock_now()) != DEADLINE_PASSED;
    if (!stands) {
        grant->failures++; /* the claim stands in the backend, but the lease is over */
        lost_locked(grant, false, starts);
        return;
    }
    grant->failures = 0;
    if (atomic_exchange(&grant->suspect, false))
        events_push_state(&grant->client->events, &grant->change, MORTISE_STATE_HELD);
    if (extends)
        observe_locked(grant->client, MORTISE_EVENT_RENEWED, grant->entry, grant, NULL, MORTISE_OK);
    int64_t now = clock_now();
    if (grant->doubted)
        renew_locked(grant, now, starts);
    else
        set_renewal_timer_locked(grant, now);
}

static void suspect_locked(struct grant *grant, mortise_status status)
{
    if (atomic_exchange(&grant->suspect, true))
        return;
    observe_locked(grant->client, MORTISE_EVENT_SUSPECT, grant->entry, grant, NULL, status);
    events_push_state(&grant->client->events, &grant->change, MORTISE_STATE_SUSPECT);
}

static void renewal_failed_locked(struct grant *grant, mortise_status status,
                                  struct task_list *starts)
{
    struct client *client = grant->client;
    int64_t now = clock_now();
    client->stats.renewal_failures++;
    if (grant->failures < UINT16_MAX)
        grant->failures++;
    suspect_locked(grant, status);
    if (grant_deadline(grant, now) == DEADLINE_PASSED)
        lost_locked(grant, false, starts);
    else if (!is_asked_for(grant, now))
        set_timer_locked(grant, MORTISE_NEVER);
    else if (grant->failures == 1)
        renew_locked(grant, now, starts);
    else
        set_timer_locked(grant, now + backoff_ns(grant));
}

/* An answer for a lease that is over already. What a late success moved is undone, unless the lease was
 * released: that release comes after it. */
static void too_late_locked(struct grant *grant, const mortise_op *op, struct task_list *starts)
{
    if (grant->released || (op->status != MORTISE_OK && op->status != MORTISE_INDETERMINATE))
        return;
    give_back_locked(grant, op->token, clock_now(), starts);
}

static void renewal_done(mortise_op *op)
{
    struct renewal *renewal = (struct renewal *)op;
    struct grant *grant = renewal->grant;
    struct client *client = grant->client;
    struct task_list starts = {NULL, NULL};
    pthread_mutex_lock(&client->lock);
    grant->renewal = NULL;
    grant->doubted |= renewal->doubted && op->status != MORTISE_OK; /* what was doubted still is */
    if (grant->released || grant->lost)
        too_late_locked(grant, op, &starts);
    else if (op->status == MORTISE_OK)
        renewed_locked(grant, op, renewal->extends, &starts);
    else if (op->status == MORTISE_LOST || op->status == MORTISE_NOTOWNER)
        lost_locked(grant, true, &starts);
    else
        renewal_failed_locked(grant, op->status, &starts);
    grant_unref_locked(grant);
    client_ended_locked(client);
    client_unlock(client);
    free(renewal);
    pump_start(&client->pump, &starts);
}

void grant_timer_locked(struct grant *grant, int64_t now, struct task_list *starts)
{
    if (grant_deadline(grant, now) == DEADLINE_PASSED)
        lost_locked(grant, false, starts);
    else if (grant->renewal != NULL) { /* no answer in a sixth of the ttl: this try has failed */
        pump_cancel(&grant->client->pump, grant->renewal);
        suspect_locked(grant, MORTISE_TIMEDOUT); /* now: a stuck driver does not complete it */
        set_timer_locked(grant, MORTISE_NEVER);
    } else if (is_asked_for(grant, now))
        renew_locked(grant, now, starts);
    else
        set_timer_locked(grant, MORTISE_NEVER);
}

/* One that is not renewed, or not any more, is looked at: what is known to be lost is not held (R2). */
void grant_doubt_entry_locked(struct entry *entry, int64_t now, struct task_list *starts)
{
    for (struct grant *grant = entry->grants; grant != NULL; grant = grant->next) {
        if (grant->lost || grant_deadline(grant, now) == DEADLINE_PASSED)
            continue;
        grant->doubted = true;
        if (grant->renewal == NULL)
            renew_locked(grant, now, starts);
    }
}

void grants_doubt(struct client *client, const char *name, size_t name_len)
{
    struct task_list starts = {NULL, NULL};
    pthread_mutex_lock(&client->lock);
    int64_t now = clock_now();
    struct entry *entry = name == NULL ? NULL : entry_find_locked(client, name, name_len);
    if (entry != NULL)
        grant_doubt_entry_locked(entry, now, &starts);
    for (entry = name == NULL ? client->entries : NULL; entry != NULL; entry = entry->hh.next)
        grant_doubt_entry_locked(entry, now, &starts);
    client_unlock(client);
    pump_start(&client->pump, &starts);
}

/* ---- released ---- */

/* The local caller that may take over the grant without a request to the backend, or NULL. A claim that is being
 * checked or renewed is not handed over: until the answer is there, a server that failed over or came back empty may
 * have granted the name to somebody else, and the new holder would begin with that. */
static struct waiter *heir_locked(struct grant *grant, int64_t now)
{
    const struct settings *settings = &grant->client->settings;
    struct contest *contest = grant->entry->queue;
    struct waiter *heir = contest == NULL ? NULL : contest->first;
    if (heir == NULL || heir->owner_len > 0 || grant->owner_len > 0)
        return NULL;
    if (grant->renewal != NULL || grant->doubted)
        return NULL;
    if (!grant->renew || heir->no_renew || heir->ttl_ms != grant->ttl_ms ||
        grant->hold_until_ns != MORTISE_NEVER)
        return NULL;
    if (grant->handovers >= settings->handover_max ||
        now - grant->granted_ns >= settings->handover_window_ms * NS_PER_MS)
        return NULL;
    int64_t deadline = grant_deadline(grant, now);
    if (atomic_load(&grant->suspect) || deadline == DEADLINE_PASSED ||
        deadline - now < (int64_t)grant->span_ms * NS_PER_MS / 3)
        return NULL;
    return heir;
}

static void hand_over_locked(struct grant *grant, struct waiter *heir, struct task_list *starts)
{
    struct client *client = grant->client;
    slot_renew(&grant->slot);
    slot_spend(&heir->grant->slot);
    grant_unref_locked(heir->grant);
    grant->handovers++;
    grant->hold_until_ns =
        heir->max_hold_ms > 0 ? clock_after_ms(clock_now(), heir->max_hold_ms) : MORTISE_NEVER;
    take_callback_locked(grant, heir);
    grant->number = ++client->leases;
    heir->grant = grant;
    heir->lease = slot_handle(&grant->slot);
    client->stats.handovers++;
    client->stats.held--;
    observe_locked(client, MORTISE_EVENT_HANDED_OVER, grant->entry, grant, heir, MORTISE_OK);
    contest_served_locked(heir->contest, heir, starts);
}

mortise_status grant_release_locked(struct grant *grant, struct release **release,
                                    struct task_list *starts)
{
    struct client *client = grant->client;
    int64_t now = clock_now();
    *release = NULL;
    forget_callback_locked(grant); /* if it is lost, the status says so */
    if (!grant->lost && grant_deadline(grant, now) == DEADLINE_PASSED)
        lost_locked(grant, false, starts);
    mortise_status status = grant->lost ? MORTISE_LOST : MORTISE_OK;
    observe_locked(client, MORTISE_EVENT_RELEASED, grant->entry, grant, NULL, status);
    client->stats.releases++;
    struct waiter *heir = grant->lost ? NULL : heir_locked(grant, now);
    if (heir != NULL) {
        hand_over_locked(grant, heir, starts);
        return MORTISE_OK;
    }
    slot_spend(&grant->slot);
    grant->released = true;
    unlink_locked(grant);
    if (grant->renewal != NULL)
        pump_cancel(&client->pump, grant->renewal);
    if (!grant->lost) {
        *release = give_back_locked(grant, atomic_load(&grant->token), now, starts);
        status = *release == NULL ? MORTISE_NOMEM : MORTISE_OK;
        atomic_store(&grant->deadline_ns, DEADLINE_PASSED);
        timer_stop(&client->timers, &grant->timer);
        client->stats.held--;
        contest_freed_locked(client, grant->entry, starts);
    }
    grant_unref_locked(grant);
    return status;
}
