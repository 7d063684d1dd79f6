/* contest.c - who waits for a name in this process: the queue, its head, and how it ends.
 *
 * The states of a contest, and what leads on:
 *
 *   asking    `ask` is in the backend.  OK -> the head has it, the next head asks.
 *             BUSY -> waiting, watched. No answer, reply lost -> failing. (ask.c)
 *   waiting   `retry` runs to when the holder's claim ends; news -> asking.
 *   failing   `retry` runs as a back-off; under the same grant id if a request may have been executed.
 *             After `unreachable_timeout` all waiters fail.
 *   over      no waiter is left: the ask is abandoned and canceled; what it brings, and what may have
 *             been granted to a request whose reply was lost, is released in the background (R5).
 *
 * Where the head leaves, its ask serves the next, if that one wants the same (owner and ttl): the place
 * in the backend's queue is the process's. A contest is recycled when it has no waiters and its job has
 * run. */
#include "client/contest_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void watch_run(struct job *job);

/* ---- entries ---- */

struct entry *entry_find_locked(struct client *client, const char *name, size_t name_len)
{
    struct entry *entry;
    HASH_FIND(hh, client->entries, name, name_len, entry);
    return entry;
}

struct entry *entry_make_locked(struct client *client, const char *name, size_t name_len)
{
    struct entry *entry = entry_find_locked(client, name, name_len);
    if (entry != NULL) {
        if (client->idle == entry)
            client->idle = NULL;
        entry->references++;
        return entry;
    }
    entry = calloc(1, sizeof(*entry) + name_len + 1);
    if (entry == NULL)
        return NULL;
    memcpy(entry->name, name, name_len);
    entry->name_len = (uint32_t)name_len;
    entry->references = 1;
    HASH_ADD_KEYPTR(hh, client->entries, entry->name, name_len, entry);
    if (entry->hh.tbl == NULL) {
        free(entry);
        return NULL;
    }
    return entry;
}

static void entry_free_locked(struct client *client, struct entry *entry)
{
    HASH_DELETE(hh, client->entries, entry);
    free(entry);
}

/* One is kept: a caller that takes the same name again and again makes no entry, and no table, each time. */
void entry_unref_locked(struct client *client, struct entry *entry)
{
    if (--entry->references > 0)
        return;
    struct entry *leaves = entry;
    if (!client->closing) {
        leaves = client->idle;
        client->idle = entry;
    }
    if (leaves != NULL)
        entry_free_locked(client, leaves);
}

void entry_forget_idle_locked(struct client *client)
{
    if (client->idle != NULL)
        entry_free_locked(client, client->idle);
    client->idle = NULL;
}

/* ---- making and ending a contest ---- */

static struct contest *contest_new_locked(struct client *client, struct entry *entry, bool alone)
{
    struct contest *contest = client->free_contests;
    if (!timer_reserve(&client->timers))
        return NULL;
    mortise_error *trouble = NULL;
    if (contest != NULL) {
        client->free_contests = contest->next_free;
        trouble = contest->trouble;
    } else if ((contest = malloc(sizeof(*contest))) == NULL) {
        timer_unreserve(&client->timers);
        return NULL;
    }
    memset(contest, 0, offsetof(struct contest, holder));
    contest->client = client;
    contest->entry = entry;
    contest->alone = alone;
    contest->references = 1;
    contest->retry.kind = TIMER_CONTEST;
    contest->watch_job.run = watch_run;
    contest->trouble = trouble;
    contest->holder.held = false;
    entry->references++;
    if (!alone) {
        entry->queue = contest;
        return contest;
    }
    contest->next_lone = client->lone;
    if (client->lone != NULL)
        client->lone->previous_lone = contest;
    client->lone = contest;
    return contest;
}

static void contest_unref_locked(struct contest *contest)
{
    struct client *client = contest->client;
    if (--contest->references > 0)
        return;
    timer_unreserve(&client->timers);
    entry_unref_locked(client, contest->entry);
    contest->next_free = client->free_contests;
    client->free_contests = contest;
}

/* The job, which waits for this lock if it runs already, keeps the contest; and a close waits for it. */
static void job_began_locked(struct contest *contest)
{
    contest->references++;
    client_began_locked(contest->client);
}

void contest_watch_locked(struct contest *contest, bool wanted)
{
    if (contest->watch_wanted == wanted || contest->client->top->module.watch == NULL)
        return;
    contest->watch_wanted = wanted;
    if (pump_post_job(&contest->client->pump, &contest->watch_job))
        job_began_locked(contest);
}

static void unlink_lone_locked(struct contest *contest)
{
    if (contest->previous_lone != NULL)
        contest->previous_lone->next_lone = contest->next_lone;
    else
        contest->client->lone = contest->next_lone;
    if (contest->next_lone != NULL)
        contest->next_lone->previous_lone = contest->previous_lone;
}

static void contest_end_locked(struct contest *contest)
{
    ask_abandon_locked(contest);
    timer_stop(&contest->client->timers, &contest->retry);
    contest_watch_locked(contest, false);
    if (contest->entry->queue == contest)
        contest->entry->queue = NULL;
    if (contest->alone)
        unlink_lone_locked(contest);
    contest_unref_locked(contest);
}

/* Inside the pump. */
static void watch_run(struct job *job)
{
    struct contest *contest =
        (struct contest *)(void *)((char *)job - offsetof(struct contest, watch_job));
    struct client *client = contest->client;
    struct instance *top = client->top;
    pthread_mutex_lock(&client->lock);
    bool wanted = contest->watch_wanted, change = wanted != contest->watching;
    contest->watching = wanted;
    struct entry *entry = contest->entry;
    entry->references++;
    contest_unref_locked(contest);
    client_unlock(client);
    if (change && wanted)
        top->module.watch(top->ctx, entry->name, entry->name_len);
    else if (change && top->module.unwatch != NULL)
        top->module.unwatch(top->ctx, entry->name, entry->name_len);
    pthread_mutex_lock(&client->lock);
    entry_unref_locked(client, entry);
    client_ended_locked(client);
    client_unlock(client);
}

/* ---- waiters ---- */

static void push_waiter_locked(struct contest *contest, struct waiter *waiter)
{
    waiter->contest = contest;
    waiter->next = NULL;
    waiter->previous = contest->last;
    if (contest->last != NULL)
        contest->last->next = waiter;
    else
        contest->first = waiter;
    contest->last = waiter;
    contest->count++;
}

static void remove_waiter_locked(struct contest *contest, struct waiter *waiter)
{
    if (waiter->previous != NULL)
        waiter->previous->next = waiter->next;
    else
        contest->first = waiter->next;
    if (waiter->next != NULL)
        waiter->next->previous = waiter->previous;
    else
        contest->last = waiter->previous;
    waiter->contest = NULL;
    contest->count--;
}

static bool same_owner(const struct waiter *a, const char *owner, size_t owner_len)
{
    return a->owner_len == owner_len && (owner_len == 0 || memcmp(a->owner, owner, owner_len) == 0);
}

/* Marks that it has to wait. */
void contest_queue_waiter_locked(struct client *client, struct waiter *waiter)
{
    if (waiter->queued)
        return;
    waiter->queued = true;
    observe_locked(client, MORTISE_EVENT_QUEUED, waiter->contest->entry, NULL, waiter, MORTISE_OK);
}

bool contest_join_locked(struct client *client, struct entry *entry, bool alone,
                         struct waiter *waiter, struct task_list *starts)
{
    struct contest *contest = alone ? NULL : entry->queue;
    if (contest == NULL)
        contest = contest_new_locked(client, entry, alone);
    if (contest == NULL)
        return false;
    push_waiter_locked(contest, waiter);
    if (contest->first == waiter)
        ask_locked(contest, starts);
    else
        contest_queue_waiter_locked(client, waiter);
    return true;
}

/* Takes a waiter off; the contest goes on or ends. The ask of a head that leaves serves the next, or is
 * replaced. */
void contest_take_off_locked(struct contest *contest, struct waiter *waiter,
                             struct task_list *starts)
{
    bool was_head = contest->first == waiter, last = contest->count == 1;
    bool asking = contest->ask != NULL;
    bool replace = was_head && !last &&
                   !(same_owner(waiter->next, waiter->owner, waiter->owner_len) &&
                     waiter->next->ttl_ms == waiter->ttl_ms);
    if (last || replace)
        ask_forget_grant_locked(contest, starts);
    remove_waiter_locked(contest, waiter);
    if (last)
        contest_end_locked(contest);
    else if (replace && asking) {
        ask_abandon_locked(contest);
        ask_locked(contest, starts);
    }
}

void waiter_report_locked(struct client *client, struct waiter *waiter, mortise_status status)
{
    timer_stop(&client->timers, &waiter->timer);
    timer_unreserve(&client->timers);
    if (waiter->previous_async != NULL)
        waiter->previous_async->next_async = waiter->next_async;
    else
        client->asyncs = waiter->next_async;
    if (waiter->next_async != NULL)
        waiter->next_async->previous_async = waiter->previous_async;
    pump_attention(&client->pump, -1);
    waiter->state = WAITER_DECIDED;
    waiter->notice.status = status;
    waiter->notice.lease = waiter->lease;
    waiter->notice.error = status == MORTISE_OK ? NULL : waiter->error;
    events_push(&client->events, &waiter->notice); /* last: it may be gone now */
}

void waiter_decide_locked(struct client *client, struct waiter *waiter, mortise_status status)
{
    waiter->status = status;
    if (status == MORTISE_OK) {
        client->stats.acquires++;
        client->stats.held++;
        if (waiter->queued) {
            client->stats.waits++;
            client->stats.wait_ns += (uint64_t)(clock_now() - waiter->asked_ns);
        }
    } else {
        client->stats.failures++;
        slot_spend(&waiter->grant->slot);
        grant_unref_locked(waiter->grant);
        waiter->grant = NULL;
    }
    client->stats.waiting--;
    waiter->state = WAITER_DECIDED;
    if (waiter->async)
        waiter_report_locked(client, waiter, status);
    else
        sleeper_wake_later(&waiter->sleeper, &client->wakes); /* last: it may be gone now */
}

void contest_served_locked(struct contest *contest, struct waiter *waiter, struct task_list *starts)
{
    struct client *client = contest->client;
    contest_take_off_locked(contest, waiter, starts);
    waiter_decide_locked(client, waiter, MORTISE_OK);
}

/* Waiters whose owner holds the name now must not wait behind others: those may wait for them. */
void contest_join_owners_locked(struct contest *contest, const char *owner, size_t owner_len,
                                struct task_list *starts)
{
    struct client *client = contest->client;
    if (owner_len == 0)
        return;
    for (struct waiter *waiter = contest->first, *next; waiter != NULL; waiter = next) {
        next = waiter->next;
        if (waiter == contest->first || !same_owner(waiter, owner, owner_len))
            continue;
        remove_waiter_locked(contest, waiter);
        if (!contest_join_locked(client, contest->entry, true, waiter, starts)) {
            push_waiter_locked(contest, waiter); /* no memory: it waits as before */
            return;
        }
    }
}

/* A lone waiter that may wait joins the queue: it is not the owner that holds. */
void contest_join_queue_locked(struct contest *contest, struct task_list *starts)
{
    struct waiter *waiter = contest->first;
    struct client *client = contest->client;
    struct entry *entry = contest->entry;
    entry->references++;
    remove_waiter_locked(contest, waiter);
    if (contest_join_locked(client, entry, false, waiter, starts)) {
        contest_end_locked(contest);
    } else {
        push_waiter_locked(contest, waiter);
        contest_fail_locked(contest, waiter, MORTISE_NOMEM, NULL, starts);
    }
    entry_unref_locked(client, entry);
}

/* ---- failing ---- */

static void explain(const struct contest *contest, const struct waiter *waiter,
                    mortise_status status)
{
    char name[QUOTED_SIZE], holder[160] = "another";
    const mortise_info *info = &contest->holder;
    size_t prefix = contest->client->settings.namespace_len;
    quote_name(contest->entry->name + prefix, contest->entry->name_len - prefix, name,
               sizeof(name));
    int64_t waited_ms = (clock_now() - waiter->asked_ns) / NS_PER_MS;
    if (info->held && info->host[0] != '\0')
        snprintf(holder, sizeof(holder), "%s (pid %lld)", info->host, (long long)info->pid);
    if (info->held && info->held_ms >= 0 && contest->busy_count > 0) {
        size_t used = strlen(holder);
        int64_t held_ms = info->held_ms + (clock_now() - contest->holder_seen_ns) / NS_PER_MS;
        snprintf(holder + used, sizeof(holder) - used, " for %lld.%lld s",
                 (long long)(held_ms / 1000), (long long)(held_ms % 1000 / 100));
    }
    if (status == MORTISE_BUSY)
        failed(waiter->error, status, "%s is held by %s", name, holder);
    else if (status == MORTISE_TIMEDOUT && contest->busy_count > 0)
        failed(waiter->error, status, "%s is held by %s; gave up after %lld ms", name, holder,
               (long long)waited_ms);
    else
        failed(waiter->error, status, "acquire %s: %s after %lld ms", name,
               mortise_status_text(status), (long long)waited_ms);
}

void contest_fail_locked(struct contest *contest, struct waiter *waiter, mortise_status status,
                         const mortise_error *error, struct task_list *starts)
{
    struct client *client = contest->client;
    if (waiter->error != NULL && error != NULL) {
        *waiter->error = *error;
        waiter->error->status = status;
    } else if (waiter->error != NULL)
        explain(contest, waiter, status);
    observe_locked(client, MORTISE_EVENT_FAILED, contest->entry, NULL, waiter, status);
    contest_take_off_locked(contest, waiter, starts);
    waiter_decide_locked(client, waiter, status);
}

/* A request for this waiter may be executed yet, or has been. */
static bool may_have_it(const struct contest *contest, const struct waiter *waiter)
{
    if (waiter->unsure)
        return true;
    if (contest->first != waiter)
        return false; /* only the head sends requests */
    return contest->repeat ||
           (contest->ask != NULL && pump_may_be_sent(&contest->client->pump, &contest->ask->task));
}

void contest_leave_locked(struct waiter *waiter, mortise_status status, struct task_list *starts)
{
    struct contest *contest = waiter->contest;
    const mortise_error *trouble = NULL;
    if (status == MORTISE_TIMEDOUT && contest->failing_ns != 0) {
        trouble = contest->trouble; /* not "held by another": nobody knows */
        status = may_have_it(contest, waiter) ? MORTISE_INDETERMINATE : MORTISE_UNREACHABLE;
    } else if (status == MORTISE_TIMEDOUT && waiter->try_once)
        status = may_have_it(contest, waiter) ? MORTISE_INDETERMINATE : MORTISE_UNREACHABLE;
    contest_fail_locked(contest, waiter, status, trouble, starts);
}

/* ---- what wakes a waiting contest ---- */

void contest_timer_locked(struct contest *contest, struct task_list *starts)
{
    if (contest->ask == NULL && contest->first != NULL)
        ask_locked(contest, starts);
}

void contest_freed_locked(struct client *client, struct entry *entry, struct task_list *starts)
{
    struct contest *contest = entry->queue;
    if (contest == NULL || contest->ask != NULL || contest->first == NULL)
        return;
    if (contest->watching && client->notify_capable) {
        /* its turn among the processes comes by news; should they be lost, soon by itself */
        int64_t soon_ns = clock_after_ms(clock_now(), 50 + random_below(&client->random, 50));
        if (contest->retry.place == 0 || soon_ns < contest->retry.due_ns)
            timer_set_locked(client, &contest->retry, soon_ns);
    } else
        ask_locked(contest, starts);
}

static void news_locked(struct contest *contest, struct task_list *starts)
{
    if (contest->ask != NULL)
        contest->news = true;
    else if (contest->first != NULL)
        ask_locked(contest, starts);
}

void contest_news(struct client *client, const char *name, size_t name_len)
{
    struct task_list starts = {NULL, NULL};
    pthread_mutex_lock(&client->lock);
    struct entry *entry = name == NULL ? NULL : entry_find_locked(client, name, name_len);
    if (entry != NULL && entry->queue != NULL)
        news_locked(entry->queue, &starts);
    for (entry = name == NULL ? client->entries : NULL; entry != NULL; entry = entry->hh.next)
        if (entry->queue != NULL)
            news_locked(entry->queue, &starts);
    client_unlock(client);
    pump_start(&client->pump, &starts);
}
