/* contest.c - who waits for a name in this process, and the request of the head in the backend.
 *
 * The states of a contest, and what leads on:
 *
 *   asking    `ask` is in the backend.  OK -> the head has it, the next head asks.
 *             BUSY -> waiting, watched. No answer, reply lost -> failing.
 *   waiting   `retry` runs to when the holder's claim ends; news -> asking.
 *   failing   `retry` runs as a back-off; under the same grant id if a request may have been executed.
 *             After `unreachable_timeout` all waiters fail.
 *   over      no waiter is left: the ask is abandoned and canceled; what it brings, and what may have
 *             been granted to a request whose reply was lost, is released in the background (R5).
 *
 * Where the head leaves, its ask serves the next, if that one wants the same (owner and ttl): the place
 * in the backend's queue is the process's. A contest is recycled when it has no waiters and its job has
 * run. */
#include "core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POLL_MIN_MS 20 /* of a backend that does not tell of a release */
#define POLL_MAX_MS 250
#define BACKOFF_MIN_MS 20 /* of a backend that does not answer */
#define BACKOFF_MAX_MS 1000
#define HINT_UNKNOWN_MS 30000

static void ask_locked(struct contest *contest, struct task_list *starts);
static void ask_done(mortise_op *op);
static void no_answer_locked(struct contest *contest, const mortise_op *op,
                             struct task_list *starts);
static void join_owners_locked(struct contest *contest, const char *owner, size_t owner_len,
                               struct task_list *starts);
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

void entry_unref_locked(struct client *client, struct entry *entry)
{
    if (--entry->references > 0)
        return;
    HASH_DELETE(hh, client->entries, entry);
    free(entry);
}

/* ---- making and ending a contest ---- */

static struct contest *contest_new_locked(struct client *client, struct entry *entry, bool alone)
{
    struct contest *contest = client->free_contests;
    if (!timer_reserve_locked(client))
        return NULL;
    mortise_error *trouble = NULL;
    if (contest != NULL) {
        client->free_contests = contest->next_free;
        trouble = contest->trouble;
    } else if ((contest = malloc(sizeof(*contest))) == NULL) {
        timer_unreserve_locked(client);
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
    timer_unreserve_locked(client);
    entry_unref_locked(client, contest->entry);
    contest->next_free = client->free_contests;
    client->free_contests = contest;
}

/* Nobody waits for the ask any more: what it brings is given back. */
static void abandon_ask_locked(struct contest *contest)
{
    struct ask *ask = contest->ask;
    if (ask == NULL)
        return;
    contest->ask = NULL;
    ask->contest = NULL;
    pump_unattend(&contest->client->pump, &ask->task);
    pump_cancel(&contest->client->pump, &ask->task);
}

/* A new acquisition begins, under a new grant id. If the old one may have been granted to a request
 * whose reply was lost, that is released until it is sure. */
static void forget_grant_locked(struct contest *contest, struct task_list *starts)
{
    struct waiter *waiter = contest->first;
    if (contest->repeat && contest->ask == NULL && waiter != NULL)
        release_begin_locked(contest->client, contest->entry, &contest->grant, waiter->owner,
                             waiter->owner_len, 0, clock_after_ms(clock_now(), waiter->ttl_ms),
                             starts);
    contest->grant_valid = contest->repeat = false;
    contest->first_sent_ns = 0;
}

/* The job, which waits for this lock if it runs already, keeps the contest; and a close waits for it. */
static void job_began_locked(struct contest *contest)
{
    contest->references++;
    client_began_locked(contest->client);
}

static void watch_locked(struct contest *contest, bool wanted)
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
    abandon_ask_locked(contest);
    timer_stop_locked(contest->client, &contest->retry);
    watch_locked(contest, false);
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
    pthread_mutex_unlock(&client->lock);
    if (change && wanted)
        top->module.watch(top->ctx, entry->name, entry->name_len);
    else if (change && top->module.unwatch != NULL)
        top->module.unwatch(top->ctx, entry->name, entry->name_len);
    pthread_mutex_lock(&client->lock);
    entry_unref_locked(client, entry);
    client_ended_locked(client);
    pthread_mutex_unlock(&client->lock);
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
static void queue_waiter_locked(struct client *client, struct waiter *waiter)
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
        queue_waiter_locked(client, waiter);
    return true;
}

/* Takes a waiter off; the contest goes on or ends. The ask of a head that leaves serves the next, or is
 * replaced. */
static void take_off_locked(struct contest *contest, struct waiter *waiter,
                            struct task_list *starts)
{
    bool was_head = contest->first == waiter, last = contest->count == 1;
    bool asking = contest->ask != NULL;
    bool replace = was_head && !last &&
                   !(same_owner(waiter->next, waiter->owner, waiter->owner_len) &&
                     waiter->next->ttl_ms == waiter->ttl_ms);
    if (last || replace)
        forget_grant_locked(contest, starts);
    remove_waiter_locked(contest, waiter);
    if (last)
        contest_end_locked(contest);
    else if (replace && asking) {
        abandon_ask_locked(contest);
        ask_locked(contest, starts);
    }
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
        notify_acquired_locked(client, waiter);
    else
        sleeper_wake(&waiter->sleeper); /* last: it may be gone now */
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
        snprintf(holder + used, sizeof(holder) - used, " for %lld.%lld s",
                 (long long)(info->held_ms / 1000), (long long)(info->held_ms % 1000 / 100));
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

static void fail_waiter_locked(struct contest *contest, struct waiter *waiter,
                               mortise_status status, const mortise_error *error,
                               struct task_list *starts)
{
    struct client *client = contest->client;
    if (waiter->error != NULL && error != NULL) {
        *waiter->error = *error;
        waiter->error->status = status;
    } else if (waiter->error != NULL)
        explain(contest, waiter, status);
    observe_locked(client, MORTISE_EVENT_FAILED, contest->entry, NULL, waiter, status);
    take_off_locked(contest, waiter, starts);
    waiter_decide_locked(client, waiter, status);
}

void contest_leave_locked(struct waiter *waiter, mortise_status status, struct task_list *starts)
{
    struct contest *contest = waiter->contest;
    const mortise_error *trouble = NULL;
    if (status == MORTISE_TIMEDOUT && contest->failing_ns != 0) {
        trouble = contest->trouble; /* not "held by another": nobody knows */
        status = contest->repeat ? MORTISE_INDETERMINATE : MORTISE_UNREACHABLE;
    } else if (status == MORTISE_TIMEDOUT && waiter->try_once)
        status = MORTISE_UNREACHABLE;
    fail_waiter_locked(contest, waiter, status, trouble, starts);
}

/* ---- asking ---- */

static struct ask *ask_new_locked(struct client *client, size_t owner_len)
{
    struct ask *ask;
    if (owner_len == 0 && client->free_asks.first != NULL) {
        ask = (struct ask *)client->free_asks.first;
        task_remove(&client->free_asks, &ask->task);
    } else
        ask = malloc(sizeof(*ask) + owner_len);
    if (ask != NULL)
        memset(ask, 0, offsetof(struct ask, holder));
    return ask;
}

static void ask_free_locked(struct client *client, struct ask *ask)
{
    entry_unref_locked(client, ask->entry);
    if (ask->task.op.owner_len == 0)
        task_append(&client->free_asks, &ask->task);
    else
        free(ask);
    client_ended_locked(client);
}

static void fill_op(const struct contest *contest, struct ask *ask)
{
    const struct waiter *head = contest->first;
    mortise_op *op = &ask->task.op;
    op->kind = MORTISE_OP_ACQUIRE;
    op->flags = (contest->alone ? MORTISE_OP_TRY : 0u) | (contest->repeat ? MORTISE_OP_REPEAT : 0u);
    op->name = contest->entry->name;
    op->name_len = contest->entry->name_len;
    if (head->owner_len > 0) {
        memcpy(ask->owner, head->owner, head->owner_len);
        op->owner = ask->owner;
        op->owner_len = head->owner_len;
    }
    op->note = contest->client->note;
    op->note_len = contest->client->note_len;
    op->grant = contest->grant;
    op->ttl_ms = head->ttl_ms;
    ask->holder.size = sizeof(ask->holder);
    ask->holder.held = false;
    ask->holder.held_ms = -1;
    op->info = &ask->holder;
    op->first_sent_ns = contest->first_sent_ns;
    op->hint_ms = -1;
    op->done = ask_done;
}

static void ask_locked(struct contest *contest, struct task_list *starts)
{
    struct client *client = contest->client;
    struct ask *ask = ask_new_locked(client, contest->first->owner_len);
    timer_stop_locked(client, &contest->retry);
    if (ask == NULL) { /* not a reason to fail: memory may be had in a while */
        timer_set_locked(client, &contest->retry, clock_after_ms(clock_now(), BACKOFF_MAX_MS));
        return;
    }
    if (!contest->grant_valid) {
        client_random_locked(client, &contest->grant, sizeof(contest->grant));
        contest->grant_valid = true;
    }
    fill_op(contest, ask);
    ask->client = client;
    ask->contest = contest;
    ask->entry = contest->entry;
    ask->entry->references++;
    contest->ask = ask;
    contest->news = false;
    client_began_locked(client);
    task_append(starts, &ask->task);
}

/* ---- answers ---- */

static void granted_locked(struct contest *contest, const mortise_op *op, struct task_list *starts)
{
    struct client *client = contest->client;
    struct waiter *head = contest->first;
    contest->grant_valid = contest->repeat = false;
    contest->first_sent_ns = 0;
    if (!grant_give_locked(head, contest->entry, op)) {
        /* the answer took as long as the claim lasts: give it back, begin anew */
        release_begin_locked(client, contest->entry, &op->grant, op->owner, op->owner_len,
                             op->token, clock_after_ms(clock_now(), op->ttl_ms), starts);
        no_answer_locked(contest, op, starts);
        return;
    }
    contest->failing_ns = 0;
    contest->failures = contest->busy_count = 0;
    if (contest->entry->queue != NULL)
        join_owners_locked(contest->entry->queue, op->owner, op->owner_len, starts);
    bool last = contest->count == 1;
    take_off_locked(contest, head, starts);
    if (!last && contest->ask == NULL)
        ask_locked(contest, starts); /* for the next head: its place among the processes */
    waiter_decide_locked(client, head, MORTISE_OK);
}

void contest_served_locked(struct contest *contest, struct waiter *waiter, struct task_list *starts)
{
    struct client *client = contest->client;
    take_off_locked(contest, waiter, starts);
    waiter_decide_locked(client, waiter, MORTISE_OK);
}

/* How long to wait for news: until the holder's claim ends; or, if nobody tells, until the next look. */
static int64_t retry_ms_locked(struct contest *contest, int64_t hint_ms)
{
    struct client *client = contest->client;
    int64_t ms = hint_ms < 0 ? HINT_UNKNOWN_MS : hint_ms;
    if (!client->notify_capable) {
        unsigned doublings = contest->busy_count < 5 ? contest->busy_count : 5;
        int64_t poll_ms = (int64_t)POLL_MIN_MS << doublings;
        poll_ms = poll_ms > POLL_MAX_MS ? POLL_MAX_MS : poll_ms;
        poll_ms = poll_ms / 2 + client_jitter_locked(client, poll_ms / 2 + 1);
        return poll_ms < ms ? poll_ms : ms + 1;
    }
    int64_t spread = ms / 10 < 100 ? ms / 10 : 100;
    return ms + 1 + client_jitter_locked(client, spread + 1);
}

/* Waiters whose owner holds the name now must not wait behind others: those may wait for them. */
static void join_owners_locked(struct contest *contest, const char *owner, size_t owner_len,
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
        if (!contest_join_locked(client, contest->entry, true, waiter, starts))
            push_waiter_locked(contest, waiter);
    }
}

/* A lone waiter that may wait joins the queue: it is not the owner that holds. */
static void join_queue_locked(struct contest *contest, struct task_list *starts)
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
        fail_waiter_locked(contest, waiter, MORTISE_NOMEM, NULL, starts);
    }
    entry_unref_locked(client, entry);
}

static void busy_locked(struct contest *contest, const mortise_op *op, struct task_list *starts)
{
    struct client *client = contest->client;
    struct waiter *head = contest->first;
    contest->busy_count++;
    if (op->info->held)
        contest->holder = *op->info;
    contest->failing_ns = 0;
    contest->failures = 0;
    if (contest->repeat) /* the lost one may yet be executed: this id cannot be used again */
        forget_grant_locked(contest, starts);
    contest->first_sent_ns = 0;
    if (head->try_once) {
        fail_waiter_locked(contest, head, MORTISE_BUSY, NULL, starts);
        return;
    }
    if (contest->alone) {
        join_queue_locked(contest, starts);
        return;
    }
    queue_waiter_locked(client, head);
    watch_locked(contest, true);
    if (contest->holder.held)
        join_owners_locked(contest, contest->holder.owner, strlen(contest->holder.owner), starts);
    if (contest->news)
        ask_locked(contest, starts);
    else
        timer_set_locked(client, &contest->retry,
                         clock_after_ms(clock_now(), retry_ms_locked(contest, op->hint_ms)));
}

static void remember_trouble(struct contest *contest, const mortise_op *op)
{
    char name[QUOTED_SIZE];
    if (contest->trouble == NULL && (contest->trouble = malloc(sizeof(mortise_error))) == NULL)
        return;
    if (op->error != NULL)
        *contest->trouble = *op->error;
    else if (op->status == MORTISE_OK)
        failed(contest->trouble, MORTISE_UNREACHABLE,
               "acquire %s: granted, but the answer took longer than the ttl",
               quote_name(op->name, op->name_len, name, sizeof(name)));
    else
        failed(contest->trouble, op->status, "acquire %s: %s",
               quote_name(op->name, op->name_len, name, sizeof(name)),
               mortise_status_text(op->status));
}

static void fail_all_locked(struct contest *contest, mortise_status status,
                            struct task_list *starts)
{
    while (contest->count > 1)
        fail_waiter_locked(contest, contest->last, status, contest->trouble, starts);
    fail_waiter_locked(contest, contest->first, status, contest->trouble, starts);
}

/* No answer, or a passing refusal: again, while anybody has time left. */
static void no_answer_locked(struct contest *contest, const mortise_op *op,
                             struct task_list *starts)
{
    struct client *client = contest->client;
    int64_t now = clock_now();
    remember_trouble(contest, op);
    if (op->status == MORTISE_INDETERMINATE) {
        contest->repeat = true;
        contest->first_sent_ns = op->first_sent_ns;
    }
    if (contest->failing_ns == 0)
        contest->failing_ns = now;
    bool over = now >= clock_after_ms(contest->failing_ns, client->settings.unreachable_timeout_ms);
    if (over || (contest->first->try_once && op->status != MORTISE_INDETERMINATE)) {
        mortise_status status = contest->repeat                 ? MORTISE_INDETERMINATE
                                : op->status == MORTISE_BACKEND ? MORTISE_BACKEND
                                                                : MORTISE_UNREACHABLE;
        fail_all_locked(contest, status, starts);
        return;
    }
    unsigned failures = contest->failures++;
    if (failures == 0 && op->status == MORTISE_INDETERMINATE) {
        ask_locked(contest, starts);
        return;
    }
    int64_t backoff_ms = (int64_t)BACKOFF_MIN_MS << (failures < 6 ? failures : 6);
    backoff_ms = backoff_ms > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : backoff_ms;
    backoff_ms = backoff_ms / 2 + client_jitter_locked(client, backoff_ms / 2 + 1);
    timer_set_locked(client, &contest->retry, clock_after_ms(now, backoff_ms));
}

static bool is_passing(const mortise_op *op)
{
    switch (op->status) {
    case MORTISE_INDETERMINATE:
    case MORTISE_UNREACHABLE:
    case MORTISE_CANCELED:
    case MORTISE_TIMEDOUT:
        return true;
    case MORTISE_BACKEND:
        return op->error != NULL && op->error->retryable;
    default:
        return false;
    }
}

static void answered_locked(struct contest *contest, const mortise_op *op, struct task_list *starts)
{
    contest->ask = NULL;
    if (op->status == MORTISE_OK)
        granted_locked(contest, op, starts);
    else if (op->status == MORTISE_BUSY)
        busy_locked(contest, op, starts);
    else if (is_passing(op))
        no_answer_locked(contest, op, starts);
    else {
        remember_trouble(contest, op);
        struct waiter *head = contest->first;
        bool more = contest->count > 1;
        forget_grant_locked(contest, starts);
        fail_waiter_locked(contest, head, op->status, contest->trouble, starts);
        if (more && contest->ask == NULL)
            ask_locked(contest, starts);
    }
}

/* The completion of an ask: inside the pump, no lock held. */
static void ask_done(mortise_op *op)
{
    struct ask *ask = (struct ask *)op;
    struct client *client = ask->client;
    struct task_list starts = {NULL, NULL};
    pthread_mutex_lock(&client->lock);
    if (ask->contest != NULL)
        answered_locked(ask->contest, op, &starts);
    else if (op->status == MORTISE_OK || op->status == MORTISE_INDETERMINATE ||
             (op->flags & MORTISE_OP_REPEAT) != 0)
        release_begin_locked(client, ask->entry, &op->grant, op->owner, op->owner_len, op->token,
                             clock_after_ms(clock_now(), op->ttl_ms), &starts);
    ask_free_locked(client, ask);
    pthread_mutex_unlock(&client->lock);
    pump_start(&client->pump, &starts);
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
    if (contest->watching && client->notify_capable)
        /* its turn among the processes comes by news; should they be lost, soon by itself */
        timer_set_locked(client, &contest->retry,
                         clock_after_ms(clock_now(), 50 + client_jitter_locked(client, 50)));
    else
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
    struct entry *entry = entry_find_locked(client, name, name_len);
    if (entry != NULL && entry->queue != NULL)
        news_locked(entry->queue, &starts);
    pthread_mutex_unlock(&client->lock);
    pump_start(&client->pump, &starts);
}

void contest_news_all(struct client *client)
{
    struct task_list starts = {NULL, NULL};
    pthread_mutex_lock(&client->lock);
    for (struct entry *entry = client->entries; entry != NULL; entry = entry->hh.next)
        if (entry->queue != NULL)
            news_locked(entry->queue, &starts);
    pthread_mutex_unlock(&client->lock);
    pump_start(&client->pump, &starts);
}
