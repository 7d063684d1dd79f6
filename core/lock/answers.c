/* answers.c - the claim of a waitlist asks for its head, and the answers are acted upon. See waitlist.h and claim.h. */
#include "lock/waitlist.h"

#include <stdlib.h>
#include <string.h>

#define LONG_WAIT 10   /* times unreachable_timeout */
#define POLL_MIN_MS 20 /* of a backend that does not report when a name becomes free */
#define POLL_MAX_MS 250
#define BACKOFF_MIN_MS 20 /* of a backend that does not answer */
#define BACKOFF_MAX_MS 1000
#define HINT_UNKNOWN_MS 30000

static void ask_done(mortise_op *op);

/* ---- asking ---- */

/* Returns the claim that asks for the head. NULL: there was no memory for a claim, and all callers have failed. */
static struct claim *claim_of_head_locked(struct waitlist *list)
{
    while (list->claim == NULL) {
        struct waiter *head = list->first;
        bool last = list->count == 1;
        list->claim = head->spare != NULL
                          ? head->spare
                          : claim_new_locked(list->locks, head->owner, head->owner_len);
        head->spare = NULL;
        if (list->claim != NULL)
            break;
        waitlist_fail_locked(list, head, head->unsure ? MORTISE_INDETERMINATE : MORTISE_NOMEM,
                             NULL);
        if (last)
            return NULL;
    }
    claim_use_locked(list->claim, list->name);
    list->claim->waitlist = list;
    return list->claim;
}

void waitlist_pause_locked(struct waitlist *list, int64_t due_ns)
{
    struct claim *claim = claim_of_head_locked(list);
    if (claim != NULL)
        locks_set_timer_locked(list->locks, &claim->timer, due_ns);
}

/* Clears the room, which may have been lent for another name before: an older driver does not fill new fields, and a driver that
 * knows only that there is a holder fills little. */
static struct holder_room *take_room_locked(struct locks *locks)
{
    struct holder_room *room = locks->free_rooms;
    if (room != NULL)
        locks->free_rooms = room->next;
    else if ((room = malloc(sizeof(*room))) == NULL)
        return NULL;
    room->info = (mortise_info){.size = sizeof(room->info), .held_ms = -1};
    return room;
}

static void give_room_locked(struct locks *locks, struct holder_room *room)
{
    room->next = locks->free_rooms;
    locks->free_rooms = room;
}

/* A caller of this client holds the name, and its release will follow. A name mostly has few claims; if it has many, looking at
 * the first ones is enough. */
static bool is_next_locked(const struct waitlist *list)
{
    const struct claim *claim = list->name->claims;
    for (unsigned i = 0; claim != NULL && i < 4; claim = claim->next, i++)
        if (claim->state == CLAIM_HELD && claim->leased && claim->mode == MORTISE_EXCLUSIVE)
            return true;
    return false;
}

/* The request that waited has ended. An answer of the queue shows that the backend is there, but not that it can grant: the
 * replicas may be missing, or the other side of a migration. So the time in the queue does not count as part of an outage. Only a
 * very long time in the queue ends the outage: a turn has hardly failed in it. */
static void end_waiting_locked(struct waitlist *list, int64_t now)
{
    int64_t long_ms = LONG_WAIT * list->locks->settings.unreachable_timeout_ms;
    if (now >= clock_after_ms(list->waiting_ns, long_ms)) {
        list->failing_ns = 0;
        list->failures = 0;
    } else if (list->failing_ns != 0)
        list->failing_ns += now - list->waiting_ns;
    list->waiting_ns = 0;
}

void waitlist_ask_locked(struct waitlist *list)
{
    struct locks *locks = list->locks;
    struct claim *claim = claim_of_head_locked(list);
    if (claim == NULL)
        return;
    if (list->waiting_ns != 0)
        end_waiting_locked(list, clock_now());
    claim->room = take_room_locked(locks);
    if (claim->room == NULL) { /* not a reason to fail: there may be memory in a while */
        waitlist_pause_locked(list, clock_after_ms(clock_now(), BACKOFF_MAX_MS));
        return;
    }
    if (!claim->maybe) { /* a backend that fails over may remember an id that was taken back */
        random_fill(&locks->random, &claim->id, sizeof(claim->id));
        claim->first_sent_ns = 0;
    }
    claim->ttl_ms = (uint32_t)list->first->ttl_ms;
    claim->mode = list->first->mode;
    claim->permits = list->first->permits;
    if (locks->area.head != NULL)
        claim_mark_asking_locked(claim);
    claim_go_locked(claim, CLAIM_ASKING);
    claim_fill_op(claim, &claim->ask, MORTISE_OP_ACQUIRE, ask_done);
    mortise_op *op = &claim->ask.op;
    op->flags = (list->alone            ? MORTISE_OP_TRY
                 : list->busy_count > 0 ? MORTISE_OP_AGAIN
                                        : 0u) |
                (claim->maybe ? MORTISE_OP_REPEAT : 0u) |
                (is_next_locked(list) ? MORTISE_OP_NEXT : 0u);
    op->info = &claim->room->info;
    op->first_sent_ns = claim->first_sent_ns;
    claim->ask_out = true;
    list->news = false;
    locks_began_locked(locks);
    locks_start_locked(locks, &claim->ask);
    if (list->owners)
        waitlist_look_later_locked(list);
}

/* ---- no answer ---- */

static void remember_trouble(struct waitlist *list, const mortise_op *op)
{
    char name[QUOTED_SIZE];
    if (list->trouble == NULL && (list->trouble = malloc(sizeof(mortise_error))) == NULL)
        return;
    if (op->error != NULL) {
        *list->trouble = *op->error;
        return;
    }
    quote_name(op->name, op->name_len, name, sizeof(name));
    if (op->status == MORTISE_OK)
        failed(list->trouble, MORTISE_INDETERMINATE,
               "acquire %s: granted, but the answer took longer than the ttl", name);
    else
        failed(list->trouble, op->status, "acquire %s: %s", name, mortise_status_text(op->status));
}

static void fail_all_locked(struct waitlist *list, mortise_status status)
{
    /* the callers behind the head have sent nothing, except that one may have asked alone before */
    mortise_status behind = status == MORTISE_INDETERMINATE ? MORTISE_UNREACHABLE : status;
    while (list->count > 1)
        waitlist_fail_locked(list, list->last, list->last->unsure ? MORTISE_INDETERMINATE : behind,
                             list->trouble);
    waitlist_fail_locked(list, list->first, status, list->trouble);
}

/* No answer, or a refusal that may pass: asks again, while a caller has time left. */
static void no_answer_locked(struct waitlist *list, const mortise_op *op)
{
    struct locks *locks = list->locks;
    struct waiter *head = list->first;
    bool lost = op->status == MORTISE_INDETERMINATE;
    int64_t now = clock_now();
    remember_trouble(list, op);
    if (list->waiting_ns != 0)
        end_waiting_locked(list, now);
    if (list->failing_ns == 0)
        list->failing_ns = now;
    bool over = now >= clock_after_ms(list->failing_ns, locks->settings.unreachable_timeout_ms);
    if (over || (head->try_once && !lost)) {
        bool unsure = head->unsure || (list->claim != NULL && list->claim->maybe);
        fail_all_locked(list, unsure                          ? MORTISE_INDETERMINATE
                              : op->status == MORTISE_BACKEND ? MORTISE_BACKEND
                                                              : MORTISE_UNREACHABLE);
        return;
    }
    unsigned failures = list->failures++;
    if (failures == 0 && lost) {
        waitlist_ask_locked(list);
        return;
    }
    int64_t ms = (int64_t)BACKOFF_MIN_MS << (failures < 6 ? failures : 6);
    ms = locks_spread_ms_locked(locks, ms > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : ms);
    waitlist_pause_locked(list, clock_after_ms(now, ms));
}

/* ---- granted ---- */

/* The head has a lease. False: it was the last, and the list has ended. */
static bool serve_locked(struct waitlist *list, struct waiter *head)
{
    struct locks *locks = list->locks;
    bool last = list->count == 1;
    waitlist_take_off_locked(list, head);
    waiter_decide_locked(locks, head, MORTISE_OK);
    return !last;
}

static void granted_locked(struct waitlist *list, const mortise_op *op, unsigned doubts)
{
    struct locks *locks = list->locks;
    struct name *name = list->name;
    struct waiter *head = list->first;
    struct claim *claim = list->claim;
    list->claim = NULL;
    claim->waitlist = NULL;
    if (!claim_hold_locked(claim, head, op)) {
        /* the answer took as long as the claim lasts: release the claim and begin anew */
        head->unsure = true;
        atomic_store_explicit(&claim->token, op->token, memory_order_release);
        claim_end_locked(claim, clock_now());
        no_answer_locked(list, op);
        return;
    }
    if (doubts != atomic_load(&locks->pump->doubts))
        claims_doubt_locked(name, clock_now());
    list->failing_ns = list->waiting_ns = 0;
    list->failures = list->busy_count = 0;
    if (name->waitlist != NULL)
        waitlist_join_owners_locked(name->waitlist, claim->owner, claim->owner_len);
    if (!head->async && list->count > 1 && claim->mode == MORTISE_EXCLUSIVE)
        pump_depend(locks->pump, &head->sleeper, list->count - 1);
    if (!serve_locked(list, head))
        return;
    while (claim_join_locked(claim, list->first, claim->granted_ns))
        if (!serve_locked(list, list->first))
            return;
    if (!list->first->async)
        pump_expect(locks->pump, &list->first->sleeper);
    waitlist_ask_locked(list); /* for the next head: its place among the processes */
}

/* ---- busy ---- */

/* How long to wait: for news, until the holder's claim ends; without news from the backend, until the next look. */
static int64_t retry_ms_locked(struct waitlist *list, int64_t hint_ms)
{
    struct locks *locks = list->locks;
    int64_t ms = hint_ms < 0 ? HINT_UNKNOWN_MS : hint_ms;
    if (!locks->notify_capable || (locks->watches && !name_is_watched(locks, list->name))) {
        int64_t poll_ms = (int64_t)POLL_MIN_MS << (list->busy_count < 5 ? list->busy_count : 5);
        poll_ms = locks_spread_ms_locked(locks, poll_ms > POLL_MAX_MS ? POLL_MAX_MS : poll_ms);
        return poll_ms < ms ? poll_ms : ms + 1;
    }
    int64_t spread = ms / 10 < 100 ? ms / 10 : 100;
    return ms + 1 + random_below(&locks->random, spread + 1);
}

static void note_holder(struct waitlist *list, const mortise_info *info)
{
    list->busy_count++;
    list->holder.held = info->held; /* if none is reported: the previous one may be gone by now */
    if (!info->held)
        return;
    list->holder = *info;
    info_terminate(&list->holder);
    list->holder_seen_ns = clock_now();
}

/* The caller that asked alone knows now who holds the name: another owner than its own. */
static void looked_locked(struct waitlist *list)
{
    struct waitlist *queue = list->name->waitlist;
    list->first->looks = false;
    if (queue != NULL && list->holder.held)
        waitlist_join_owners_locked(queue, list->holder.owner, strlen(list->holder.owner));
}

static void busy_locked(struct waitlist *list, const mortise_op *op)
{
    struct waiter *head = list->first;
    note_holder(list, op->info);
    if (list->claim->maybe)
        waitlist_drop_claim_locked(list);
    /* If the driver's own undo of a request may still arrive, it refuses a repeat of that request even if nobody holds the
     * lock. Ask once more. The time without an answer goes on, so that lost replies do not repeat this forever. */
    if (head->try_once && (op->flags & MORTISE_OP_REPEAT) != 0 && !op->info->held) {
        waitlist_ask_locked(list);
        return;
    }
    list->failing_ns = list->waiting_ns = 0;
    list->failures = 0;
    if (head->try_once) {
        waitlist_fail_locked(list, head, MORTISE_BUSY, NULL);
        return;
    }
    if (list->alone) {
        if (head->looks)
            looked_locked(list);
        waitlist_join_queue_locked(list);
        return;
    }
    waitlist_queued_locked(head);
    name_watch_locked(list->locks, list->name, true);
    if (list->holder.held)
        waitlist_join_owners_locked(list, list->holder.owner, strlen(list->holder.owner));
    if (list->news)
        waitlist_ask_locked(list);
    else
        waitlist_pause_locked(list,
                              clock_after_ms(clock_now(), retry_ms_locked(list, op->hint_ms)));
}

/* ---- the completion ---- */

static bool may_pass(const mortise_op *op)
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

static void refused_locked(struct waitlist *list, const mortise_op *op)
{
    bool more = list->count > 1;
    remember_trouble(list, op);
    if (list->claim->maybe)
        waitlist_drop_claim_locked(list);
    waitlist_fail_locked(list, list->first, op->status, list->trouble);
    if (more && list->first != NULL && (list->claim == NULL || list->claim->state == CLAIM_PAUSED))
        waitlist_ask_locked(list);
}

static void answered_locked(struct claim *claim, const mortise_op *op, unsigned doubts)
{
    struct waitlist *list = claim->waitlist;
    if (op->status == MORTISE_OK) {
        granted_locked(list, op, doubts);
        return;
    }
    if (op->status == MORTISE_INDETERMINATE) {
        claim->maybe = true;
        claim->first_sent_ns = op->first_sent_ns;
    }
    claim_go_locked(claim, CLAIM_PAUSED);
    if (op->status == MORTISE_BUSY)
        busy_locked(list, op);
    else if (may_pass(op))
        no_answer_locked(list, op);
    else
        refused_locked(list, op);
}

/* The answer to a claim that nobody wants any more. */
static void left_locked(struct claim *claim, const mortise_op *op)
{
    if (op->status == MORTISE_OK)
        atomic_store_explicit(&claim->token, op->token, memory_order_release);
    if (op->status == MORTISE_OK || op->status == MORTISE_INDETERMINATE || claim->maybe)
        claim_end_locked(claim, clock_now());
    else
        claim_go_locked(claim, CLAIM_GONE);
}

static struct claim *claim_of(mortise_op *op)
{
    return (struct claim *)(void *)((char *)op - offsetof(struct claim, ask));
}

/* Inside the pump, no lock held. The claim may be free, or ask again, before this ends. */
static void ask_done(mortise_op *op)
{
    struct claim *claim = claim_of(op);
    struct locks *locks = claim->locks;
    const mortise_op answer = *op;
    unsigned doubts = claim->ask.doubts;
    pthread_mutex_lock(&locks->lock);
    struct holder_room *room = claim->room;
    claim->room = NULL;
    claim->ask_out = false;
    if (claim->state == CLAIM_LEAVING)
        left_locked(claim, &answer);
    else
        answered_locked(claim, &answer, doubts);
    give_room_locked(locks, room);
    locks_ended_locked(locks);
    locks_unlock(locks, START_NOW);
}

/* A try does not wait in a queue: its time counts, whatever a driver reports (busy_locked). */
void waitlists_waiting(struct locks *locks, mortise_op *op)
{
    if (op->kind != MORTISE_OP_ACQUIRE || (op->flags & MORTISE_OP_TRY) != 0)
        return;
    const struct claim *claim = claim_of(op);
    pthread_mutex_lock(&locks->lock);
    struct waitlist *list = claim->state == CLAIM_ASKING ? claim->waitlist : NULL;
    /* else unwanted, or not the first report */
    if (list != NULL && list->waiting_ns == 0) {
        list->waiting_ns = clock_now();
        waitlist_queued_locked(list->first);
    }
    locks_unlock(locks, START_NOW);
}
