/* waitlist.c - the queue of callers for a name: joining, leaving, watching. See waitlist.h; answers.c asks for the head. */
#include "lock/waitlist.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MS 10000 /* at most, between two looks of callers with owners */

/* ---- beginning and end ---- */

static struct waitlist *new_locked(struct locks *locks, struct name *name, bool alone)
{
    struct waitlist *list = locks->free_waitlists;
    mortise_error *trouble = NULL;
    if (list != NULL) {
        locks->free_waitlists = list->next_free;
        trouble = list->trouble;
    } else if ((list = malloc(sizeof(*list))) == NULL)
        return NULL;
    memset(list, 0, offsetof(struct waitlist, holder));
    list->locks = locks;
    list->name = name;
    list->alone = alone;
    list->trouble = trouble;
    list->holder.held = false;
    name->references++;
    if (!alone) {
        name->waitlist = list;
        return list;
    }
    list->next_lone = locks->lone;
    if (locks->lone != NULL)
        locks->lone->previous_lone = list;
    locks->lone = list;
    return list;
}

static void unlink_lone_locked(struct waitlist *list)
{
    if (list->previous_lone != NULL)
        list->previous_lone->next_lone = list->next_lone;
    else
        list->locks->lone = list->next_lone;
    if (list->next_lone != NULL)
        list->next_lone->previous_lone = list->previous_lone;
}

static void end_locked(struct waitlist *list)
{
    struct locks *locks = list->locks;
    waitlist_drop_claim_locked(list);
    if (list->alone)
        unlink_lone_locked(list);
    else {
        list->name->waitlist = NULL;
        name_watch_locked(locks, list->name, false);
    }
    name_put_locked(locks, list->name);
    list->next_free = locks->free_waitlists;
    locks->free_waitlists = list;
}

void waitlists_free(struct locks *locks)
{
    while (locks->free_waitlists != NULL) {
        struct waitlist *list = locks->free_waitlists;
        locks->free_waitlists = list->next_free;
        free(list->trouble);
        free(list);
    }
}

/* ---- callers ---- */

/* Inserts the caller in the order of asking, so that a caller that asked alone meanwhile gets its place again; but behind the
 * head, whose request is the list's. */
static void push_locked(struct waitlist *list, struct waiter *waiter)
{
    struct waiter *before = list->last;
    while (before != list->first && before->caller > waiter->caller)
        before = before->previous;
    struct waiter *next = before != NULL ? before->next : NULL;
    waiter->waitlist = list;
    waiter->next = next;
    waiter->previous = before;
    if (before != NULL)
        before->next = waiter;
    else
        list->first = waiter;
    if (next != NULL)
        next->previous = waiter;
    else
        list->last = waiter;
    list->count++;
}

static void remove_locked(struct waitlist *list, struct waiter *waiter)
{
    if (waiter->previous != NULL)
        waiter->previous->next = waiter->next;
    else
        list->first = waiter->next;
    if (waiter->next != NULL)
        waiter->next->previous = waiter->previous;
    else
        list->last = waiter->previous;
    waiter->waitlist = NULL;
    list->count--;
}

static bool same_owner(const struct waiter *a, const char *owner, size_t owner_len)
{
    return a->owner_len == owner_len && (owner_len == 0 || memcmp(a->owner, owner, owner_len) == 0);
}

/* A claim that asks for one of the two may serve the other. */
static bool same_wish(const struct waiter *a, const struct waiter *b)
{
    return same_owner(a, b->owner, b->owner_len) && a->ttl_ms == b->ttl_ms && a->mode == b->mode &&
           a->permits == b->permits;
}

void waitlist_queued_locked(struct waiter *waiter)
{
    struct waitlist *list = waiter->waitlist;
    if (waiter->queued)
        return;
    waiter->queued = true;
    observe_locked(list->locks, MORTISE_EVENT_QUEUED, list->name, NULL, waiter, MORTISE_OK);
}

bool waitlist_join_locked(struct locks *locks, struct name *name, bool alone, struct waiter *waiter)
{
    struct waitlist *list = alone ? NULL : name->waitlist;
    if (list == NULL)
        list = new_locked(locks, name, alone);
    if (list == NULL)
        return false;
    push_locked(list, waiter);
    if (list->first == waiter) {
        waitlist_ask_locked(list);
        return true;
    }
    waitlist_queued_locked(waiter);
    if (waiter->owner_len > 0) {
        list->owners = true;
        waitlist_look_later_locked(list);
    }
    return true;
}

void waitlist_drop_claim_locked(struct waitlist *list)
{
    struct claim *claim = list->claim;
    if (claim == NULL)
        return;
    list->claim = NULL;
    claim->waitlist = NULL;
    if (claim->state == CLAIM_ASKING) {
        claim_go_locked(claim, CLAIM_LEAVING);
        pump_unattend(list->locks->pump, &claim->ask);
        locks_cancel_locked(list->locks, &claim->ask);
    } else if (claim->maybe) {
        if (list->first != NULL)
            list->first->unsure = true;
        claim_end_locked(claim, clock_now());
    } else
        claim_go_locked(claim, CLAIM_GONE);
}

/* Takes a caller off; the list goes on or ends. If the head leaves, its claim serves the next head, or is replaced. */
void waitlist_take_off_locked(struct waitlist *list, struct waiter *waiter)
{
    struct claim *claim = list->claim;
    bool was_head = list->first == waiter, last = list->count == 1;
    bool asking = claim != NULL && claim->state == CLAIM_ASKING;
    bool replace = claim != NULL && was_head && !last && !same_wish(waiter->next, waiter);
    /* the reason why the head waited need not hold for the next head */
    bool other_mode = replace && waiter->next->mode != waiter->mode;
    int64_t due_ns = claim != NULL ? claim->timer.due_ns : 0;
    if (last || replace)
        waitlist_drop_claim_locked(list);
    remove_locked(list, waiter);
    if (last)
        end_locked(list);
    else if (replace && (asking || other_mode))
        waitlist_ask_locked(list);
    else if (replace)
        waitlist_pause_locked(list, due_ns);
}

/* ---- asynchronous callers ---- */

/* Returns the place of this number in the tree, or the free place where it belongs. The tree needs no memory of its own, and no
 * balancing. Below a caller at depth d, bit d of a number decides the side: below[1] has the numbers in which that bit is one. So
 * no path is longer than the number of bits. Numbers are given in turn, so their lowest bits divide them evenly. */
static struct waiter **place_of(struct locks *locks, uint64_t caller)
{
    struct waiter **place = &locks->asyncs;
    for (uint64_t bits = caller; *place != NULL && (*place)->caller != caller; bits >>= 1)
        place = &(*place)->below[bits & 1];
    return place;
}

struct waiter *waiter_find_async_locked(struct locks *locks, uint64_t caller)
{
    return *place_of(locks, caller);
}

/* Any leaf below the caller may take its place, because all bits that led to the place are the same. */
static void remove_async_locked(struct locks *locks, struct waiter *waiter)
{
    struct waiter **place = place_of(locks, waiter->caller), **leaf = place;
    while ((*leaf)->below[0] != NULL || (*leaf)->below[1] != NULL)
        leaf = &(*leaf)->below[(*leaf)->below[0] == NULL];
    struct waiter *heir = *leaf;
    *leaf = NULL;
    if (heir == waiter)
        return;
    memcpy(heir->below, waiter->below, sizeof(heir->below));
    *place = heir;
}

void waiter_link_async_locked(struct locks *locks, struct waiter *waiter, int64_t until_ns)
{
    waiter->timer.kind = TIMER_WAITER;
    waiter->caller = ++locks->callers;
    waiter->below[0] = waiter->below[1] = NULL;
    *place_of(locks, waiter->caller) = waiter;
    pump_attention(locks->pump, +1);
    if (until_ns != MORTISE_NEVER)
        locks_set_timer_locked(locks, &waiter->timer, until_ns);
}

void waiter_unlink_async_locked(struct locks *locks, struct waiter *waiter)
{
    locks_stop_timer_locked(locks, &waiter->timer);
    timer_unreserve(&locks->timers);
    remove_async_locked(locks, waiter);
    pump_attention(locks->pump, -1);
}

void waiter_call_back_locked(struct locks *locks, struct waiter *waiter, mortise_status status)
{
    waiter_unlink_async_locked(locks, waiter);
    waiter->notice.status = status;
    waiter->notice.lease = waiter->lease;
    waiter->notice.error = status == MORTISE_OK ? NULL : waiter->error;
    events_push(locks->events, &waiter->notice);
}

/* ---- outcomes ---- */

static void count_locked(struct locks *locks, const struct waiter *waiter)
{
    locks->stats.waiting--;
    if (waiter->status != MORTISE_OK) {
        locks->stats.failures++;
        return;
    }
    locks->stats.acquires++;
    locks->stats.held++;
    if (!waiter->queued)
        return;
    locks->stats.waits++;
    locks->stats.wait_ns += (uint64_t)(clock_now() - waiter->asked_ns);
}

void waiter_decide_locked(struct locks *locks, struct waiter *waiter, mortise_status status)
{
    waiter->status = status;
    count_locked(locks, waiter);
    if (waiter->spare != NULL)
        claim_discard_locked(waiter->spare);
    waiter->spare = NULL;
    if (!waiter->async) {
        sleeper_wake_later(&waiter->sleeper, &locks->wakes); /* the waiter may be gone now */
        return;
    }
    waiter_call_back_locked(locks, waiter, status);
}

void waitlist_served_locked(struct waiter *waiter)
{
    struct waitlist *list = waiter->waitlist;
    struct locks *locks = list->locks;
    waitlist_take_off_locked(list, waiter);
    waiter_decide_locked(locks, waiter, MORTISE_OK);
}

/* ---- owners ---- */

/* The caller gets a list of its own, and its memory may be gone when this returns, also if there was no memory for a claim.
 * False: there is no memory for the list, and the caller waits as before. */
static bool ask_alone_locked(struct waitlist *list, struct waiter *waiter)
{
    remove_locked(list, waiter);
    if (waitlist_join_locked(list->locks, list->name, true, waiter))
        return true;
    push_locked(list, waiter);
    return false;
}

/* Callers of the owner that holds the name must not wait behind others, because others may wait for that owner. */
void waitlist_join_owners_locked(struct waitlist *list, const char *owner, size_t owner_len)
{
    if (owner_len == 0)
        return;
    for (struct waiter *waiter = list->first, *next; waiter != NULL; waiter = next) {
        next = waiter->next;
        if (waiter == list->first || !same_owner(waiter, owner, owner_len))
            continue;
        if (!ask_alone_locked(list, waiter))
            return;
    }
}

void waitlist_look_later_locked(struct waitlist *list)
{
    struct claim *claim = list->claim;
    if (claim == NULL || claim->state != CLAIM_ASKING || claim->timer.place != 0)
        return;
    int64_t ms = claim->ttl_ms / 3;
    locks_set_timer_locked(list->locks, &claim->timer,
                           clock_after_ms(clock_now(), ms < LOOK_MS ? ms : LOOK_MS));
}

static bool somebody_looks_locked(const struct waitlist *list)
{
    const struct waitlist *lone = list->locks->lone;
    while (lone != NULL && (lone->name != list->name || !lone->first->looks))
        lone = lone->next_lone;
    return lone != NULL;
}

void waitlist_look_locked(struct waitlist *list)
{
    struct waiter *waiter = list->first->next;
    while (waiter != NULL && waiter->owner_len == 0)
        waiter = waiter->next;
    list->owners = waiter != NULL;
    if (waiter == NULL)
        return;
    waitlist_look_later_locked(list);
    if (somebody_looks_locked(list))
        return;
    waiter->looks = true;
    if (!ask_alone_locked(list, waiter))
        waiter->looks = false;
}

/* The caller's owner does not hold the name. */
void waitlist_join_queue_locked(struct waitlist *list)
{
    struct waiter *waiter = list->first;
    struct claim *claim = list->claim;
    if (claim != NULL && !claim->maybe) { /* the caller keeps it */
        list->claim = NULL;
        claim->waitlist = NULL;
        waiter->spare = claim;
    }
    remove_locked(list, waiter);
    if (waitlist_join_locked(list->locks, list->name, false, waiter))
        end_locked(list);
    else {
        push_locked(list, waiter);
        waitlist_fail_locked(list, waiter, waiter->unsure ? MORTISE_INDETERMINATE : MORTISE_NOMEM,
                             NULL);
    }
}

/* ---- failing ---- */

/* The backend has answered that the caller must wait. A driver with its own queue (waiting_ns) names no holder in that answer. */
static bool knows_why(const struct waitlist *list)
{
    return list->busy_count > 0 || list->waiting_ns != 0;
}

static void explain(const struct waitlist *list, const struct waiter *waiter, mortise_status status)
{
    char name[QUOTED_SIZE], holder[160] = "another";
    const mortise_info *info = list->busy_count > 0 && list->holder.held ? &list->holder : NULL;
    size_t prefix = list->locks->settings.namespace_len;
    quote_name(list->name->text + prefix, list->name->length - prefix, name, sizeof(name));
    int64_t waited_ms = (clock_now() - waiter->asked_ns) / NS_PER_MS;
    if (info != NULL && info->host[0] != '\0')
        snprintf(holder, sizeof(holder), "%s (pid %lld)", info->host, (long long)info->pid);
    if (info != NULL && info->held_ms >= 0) {
        size_t used = strlen(holder);
        int64_t held_ms = info->held_ms + (clock_now() - list->holder_seen_ns) / NS_PER_MS;
        snprintf(holder + used, sizeof(holder) - used, " for %lld.%lld s",
                 (long long)(held_ms / 1000), (long long)(held_ms % 1000 / 100));
    }
    if (status == MORTISE_BUSY)
        failed(waiter->error, status, "%s is held by %s", name, holder);
    else if (status == MORTISE_TIMEDOUT && knows_why(list))
        failed(waiter->error, status, "%s is held by %s; gave up after %lld ms", name, holder,
               (long long)waited_ms);
    else
        failed(waiter->error, status, "acquire %s: %s after %lld ms", name,
               mortise_status_text(status), (long long)waited_ms);
}

void waitlist_fail_locked(struct waitlist *list, struct waiter *waiter, mortise_status status,
                          const mortise_error *error)
{
    struct locks *locks = list->locks;
    if (waiter->error != NULL && error != NULL) {
        *waiter->error = *error;
        waiter->error->status = status;
    } else if (waiter->error != NULL)
        explain(list, waiter, status);
    observe_locked(locks, MORTISE_EVENT_FAILED, list->name, NULL, waiter, status);
    waitlist_take_off_locked(list, waiter);
    waiter_decide_locked(locks, waiter, status);
}

/* A request for this caller may have been executed, or may still be executed. */
static bool may_have_it(const struct waitlist *list, const struct waiter *waiter)
{
    const struct claim *claim = list->claim;
    if (waiter->unsure)
        return true;
    if (list->first != waiter || claim == NULL)
        return false; /* only the head sends requests */
    return claim->maybe ||
           (claim->state == CLAIM_ASKING && pump_may_be_sent(list->locks->pump, &claim->ask));
}

void waitlist_leave_locked(struct waiter *waiter, mortise_status status)
{
    struct waitlist *list = waiter->waitlist;
    const mortise_error *trouble = NULL;
    bool failing = list->failing_ns != 0 && list->waiting_ns == 0;
    if (status == MORTISE_TIMEDOUT && (failing || waiter->try_once)) {
        trouble = failing ? list->trouble : NULL; /* not "held by another": that is unknown */
        status = may_have_it(list, waiter) ? MORTISE_INDETERMINATE : MORTISE_UNREACHABLE;
    }
    waitlist_fail_locked(list, waiter, status, trouble);
}

/* ---- what wakes a list that pauses ---- */

static bool pauses(const struct waitlist *list)
{
    return list->claim != NULL && list->claim->state == CLAIM_PAUSED;
}

void waitlist_freed_locked(struct name *name)
{
    struct waitlist *list = name->waitlist;
    if (list == NULL || !pauses(list))
        return;
    struct locks *locks = list->locks;
    if (!name_is_watched(locks, name)) {
        waitlist_ask_locked(list);
        return;
    }
    /* news comes when it is the turn of this process; if the news gets lost, the list soon asks by itself */
    struct timer *timer = &list->claim->timer;
    int64_t soon_ns = clock_after_ms(clock_now(), 50 + random_below(&locks->random, 50));
    if (timer->place == 0 || soon_ns < timer->due_ns)
        locks_set_timer_locked(locks, timer, soon_ns);
}

void waitlist_news_locked(struct name *name)
{
    struct waitlist *list = name->waitlist;
    if (list == NULL)
        return;
    if (pauses(list))
        waitlist_ask_locked(list);
    else
        list->news = true;
}

void waitlists_news(struct locks *locks, const char *text, size_t length)
{
    pthread_mutex_lock(&locks->lock);
    struct name *name = text == NULL ? NULL : name_find_locked(locks, text, length);
    if (name != NULL)
        waitlist_news_locked(name);
    for (name = text == NULL ? locks->names : NULL; name != NULL; name = name->hh.next)
        waitlist_news_locked(name);
    locks_unlock(locks, START_NOW);
}
