/* ask.c - the request of a contest's head in the backend, and what its answers mean; see contest.c. */
#include "client/contest_inside.h"

#include <stdlib.h>
#include <string.h>

#define POLL_MIN_MS 20 /* of a backend that does not tell of a release */
#define POLL_MAX_MS 250
#define BACKOFF_MIN_MS 20 /* of a backend that does not answer */
#define BACKOFF_MAX_MS 1000
#define HINT_UNKNOWN_MS 30000

static void ask_done(mortise_op *op);
static void no_answer_locked(struct contest *contest, const mortise_op *op,
                             struct task_list *starts);

/* Nobody waits for the ask any more: what it brings is given back. */
void ask_abandon_locked(struct contest *contest)
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
void ask_forget_grant_locked(struct contest *contest, struct task_list *starts)
{
    struct waiter *waiter = contest->first;
    if (contest->repeat && contest->ask == NULL && waiter != NULL) {
        waiter->unsure = true;
        release_begin_locked(contest->client, contest->entry, &contest->grant, waiter->owner,
                             waiter->owner_len, 0, clock_after_ms(clock_now(), waiter->ttl_ms),
                             NULL, starts);
    }
    contest->grant_valid = contest->repeat = false;
    contest->first_sent_ns = 0;
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
    op->core_state = OP_IDLE;
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

void ask_locked(struct contest *contest, struct task_list *starts)
{
    struct client *client = contest->client;
    struct ask *ask = ask_new_locked(client, contest->first->owner_len);
    timer_stop(&client->timers, &contest->retry);
    if (ask == NULL) { /* not a reason to fail: memory may be had in a while */
        timer_set_locked(client, &contest->retry, clock_after_ms(clock_now(), BACKOFF_MAX_MS));
        return;
    }
    if (!contest->grant_valid) {
        random_fill(&client->random, &contest->grant, sizeof(contest->grant));
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
        head->unsure = true;
        release_begin_locked(client, contest->entry, &op->grant, op->owner, op->owner_len,
                             op->token, clock_after_ms(clock_now(), op->ttl_ms), NULL, starts);
        no_answer_locked(contest, op, starts);
        return;
    }
    if (((const struct task *)(const void *)op)->doubts != atomic_load(&client->pump.doubts))
        grant_doubt_entry_locked(contest->entry, clock_now(), starts);
    contest->failing_ns = 0;
    contest->failures = contest->busy_count = 0;
    if (contest->entry->queue != NULL)
        contest_join_owners_locked(contest->entry->queue, op->owner, op->owner_len, starts);
    bool last = contest->count == 1;
    contest_take_off_locked(contest, head, starts);
    if (!last && contest->ask == NULL)
        ask_locked(contest, starts); /* for the next head: its place among the processes */
    waiter_decide_locked(client, head, MORTISE_OK);
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
        poll_ms = poll_ms / 2 + random_below(&client->random, poll_ms / 2 + 1);
        return poll_ms < ms ? poll_ms : ms + 1;
    }
    int64_t spread = ms / 10 < 100 ? ms / 10 : 100;
    return ms + 1 + random_below(&client->random, spread + 1);
}

static void busy_locked(struct contest *contest, const mortise_op *op, struct task_list *starts)
{
    struct client *client = contest->client;
    struct waiter *head = contest->first;
    contest->busy_count++;
    if (op->info->held) {
        contest->holder = *op->info;
        info_terminate(&contest->holder);
        contest->holder_seen_ns = clock_now();
    }
    /* a lost request of this id may still be executed, and so may one that took a part of the claim back:
     * the next try has an id of its own */
    ask_forget_grant_locked(contest, starts);
    contest->first_sent_ns = 0;
    /* A driver refuses a repeat whose own undo may still arrive, even if nobody holds the lock. Ask once more; the
     * time without an answer goes on, so that lost replies do not repeat this for ever. */
    if (head->try_once && (op->flags & MORTISE_OP_REPEAT) != 0 && !op->info->held) {
        ask_locked(contest, starts);
        return;
    }
    contest->failing_ns = 0;
    contest->failures = 0;
    if (head->try_once) {
        contest_fail_locked(contest, head, MORTISE_BUSY, NULL, starts);
        return;
    }
    if (contest->alone) {
        contest_join_queue_locked(contest, starts);
        return;
    }
    contest_queue_waiter_locked(client, head);
    contest_watch_locked(contest, true);
    if (contest->holder.held)
        contest_join_owners_locked(contest, contest->holder.owner, strlen(contest->holder.owner),
                                   starts);
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
        failed(contest->trouble, MORTISE_INDETERMINATE,
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
    /* those behind the head have sent nothing; but for one that asked alone before, perhaps */
    mortise_status behind = status == MORTISE_INDETERMINATE ? MORTISE_UNREACHABLE : status;
    while (contest->count > 1)
        contest_fail_locked(contest, contest->last,
                            contest->last->unsure ? MORTISE_INDETERMINATE : behind,
                            contest->trouble, starts);
    contest_fail_locked(contest, contest->first, status, contest->trouble, starts);
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
    } else if (!contest->repeat) {
        contest->grant_valid =
            false; /* a backend that fails over may remember what was taken back */
    }
    if (contest->failing_ns == 0)
        contest->failing_ns = now;
    bool over = now >= clock_after_ms(contest->failing_ns, client->settings.unreachable_timeout_ms);
    if (over || (contest->first->try_once && op->status != MORTISE_INDETERMINATE)) {
        bool unsure = contest->repeat || contest->first->unsure;
        mortise_status status = unsure                          ? MORTISE_INDETERMINATE
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
    backoff_ms = backoff_ms / 2 + random_below(&client->random, backoff_ms / 2 + 1);
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
        ask_forget_grant_locked(contest, starts);
        contest_fail_locked(contest, head, op->status, contest->trouble, starts);
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
                             clock_after_ms(clock_now(), op->ttl_ms), NULL, &starts);
    ask_free_locked(client, ask);
    client_unlock(client);
    pump_start(&client->pump, &starts);
}
