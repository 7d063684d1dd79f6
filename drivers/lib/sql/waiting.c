/* waiting.c - callers of this client that wait, and waiters of other clients that it notifies.
 *
 * The core watches a name while callers wait for it. Other clients know a waiter by its client's inbox, a random number in
 * the row's list. An acquire that is BUSY puts it there if notifications arrive (locks->hears); otherwise `watch` makes
 * notifications arrive first, and then enters the list. The inbox leaves the list with the acquire that succeeds, or with
 * `unwatch`.
 *
 * A client that releases a name notifies the first waiter, and looks again when the reservation is over (a CHECK): a waiter
 * that died or was stopped loses its place to the next. Waiters that are known to be gone are taken off the list at once.
 * Errands, one per name at a time, change the lists.
 *
 * names.h has the states of this client's place in a list.
 */
#include "waiting.h"

#include "request.h"

#include <string.h>

#define NS_PER_MS SQL_NS_PER_MS
#define GRACE_NS (200 * NS_PER_MS) /* from a BUSY acquire to the core's `watch` */
#define AGAIN_NS (100 * NS_PER_MS) /* the pause after an errand that failed */
#define CHECK_US INT64_C(20000)    /* the least time that a woken waiter has */
#define LEAVE_TRIES 5              /* for each name, when the client closes */

static int64_t now_ns(const struct sql_locks *locks)
{
    return locks->host->now(locks->host);
}

static void chore_at(struct sql_locks *locks, int64_t due_ns)
{
    if (due_ns < locks->chore_ns)
        locks->chore_ns = due_ns;
}

/* ---- errands ----------------------------------------------------------------------------------- */

static struct sql_request *new_errand(struct sql_locks *locks, struct sql_name *name,
                                      enum sql_task task)
{
    struct sql_request *request = request_new(locks, task);
    if (request == NULL) {
        chore_at(locks, now_ns(locks) + AGAIN_NS);
        return NULL;
    }
    request->name = name;
    name->references++;
    name->errand = request;
    request->step = SQL_READ;
    return request;
}

static void run_errand(struct sql_locks *locks, struct sql_name *name, enum sql_task task)
{
    struct sql_request *request = new_errand(locks, name, task);
    if (request == NULL)
        return;
    if (task == SQL_TASK_FORGET)
        request->gone[request->gone_count++] = locks->inbox;
    locks->dialect->run(request);
}

/* Begins the next errand for a name, if none is under way. A client that could not be notified enters no list. */
static void see_to(struct sql_locks *locks, struct sql_name *name)
{
    if (name->errand != NULL)
        return;
    bool leaves = name->place == PLACE_TO_LEAVE;
    if (leaves || (name->place == PLACE_TO_ENTER && locks->hears)) {
        run_errand(locks, name, leaves ? SQL_TASK_FORGET : SQL_TASK_ENLIST);
        if (name->errand != NULL)
            name_place_go(name, PLACE_BEGUN);
    } else if (name->check_ns <= now_ns(locks)) {
        name->check_ns = MORTISE_NEVER;
        run_errand(locks, name, SQL_TASK_CHECK);
    }
}

static bool is_own(const struct sql_locks *locks, const struct rowlease_inbox *inbox)
{
    return memcmp(inbox, &locks->inbox, sizeof(*inbox)) == 0;
}

/* Whether the errand removes this client's own place, and not that of other clients. */
static bool forgets_own(const struct sql_request *request)
{
    return request->task == SQL_TASK_FORGET && is_own(request->locks, &request->gone[0]);
}

/* ---- notifying --------------------------------------------------------------------------------- */

/* Notifies callers of this client. A caller whose acquire was BUSY a moment ago may not be watching yet, and one whose
 * BUSY is still on its way cannot be watching. */
static enum sql_notified notify_own(struct sql_locks *locks, struct sql_name *name)
{
    if (name == NULL)
        return SQL_NOBODY;
    bool expected = name->watched || name->grace_ns != MORTISE_NEVER;
    if (!expected && name->references == 0)
        return SQL_NOBODY;
    name->missed = !name->watched;
    if (expected)
        locks->host->news(locks->host, name->bytes, name->len);
    return SQL_NOTIFIED;
}

static enum sql_notified notify(struct sql_locks *locks, const struct rowlease_inbox *inbox,
                                const char *bytes, size_t len)
{
    if (locks->hears && is_own(locks, inbox))
        return notify_own(locks, name_find(locks, bytes, len));
    return locks->dialect->notify(locks, inbox, bytes, len);
}

/* Plans the check: the woken waiter has as long as the reservation to take the name. */
static void check_later(struct sql_locks *locks, struct sql_name *name, int64_t version)
{
    int64_t us = locks->reserve_us > CHECK_US ? locks->reserve_us : CHECK_US;
    name->check_version = version;
    name->check_ns = now_ns(locks) + us * 1000 + NS_PER_MS;
    chore_at(locks, name->check_ns);
}

/* The client of the first inbox is gone: takes that inbox off the list, and others whose clients are gone. Then the
 * name is reserved for the next waiter, which is woken. If that is impossible now, the check does it. */
static void forget_gone(struct sql_request *request, struct sql_name *name)
{
    struct sql_locks *locks = request->locks;
    struct sql_request *errand =
        name->errand == NULL ? new_errand(locks, name, SQL_TASK_FORGET) : NULL;
    if (errand == NULL) {
        check_later(locks, name, request->version);
        return;
    }
    errand->version = request->version;
    errand->gone[errand->gone_count++] = request->waiters[0];
    for (size_t i = 1; i < request->waiter_count && i < SQL_WAKE_MAX; i++)
        if (!is_own(locks, &request->waiters[i]) && locks->dialect->is_alive != NULL &&
            !locks->dialect->is_alive(locks, &request->waiters[i]))
            errand->gone[errand->gone_count++] = request->waiters[i];
    locks->dialect->run(errand);
}

/* Places are also kept for shared waiters whose notification arrives later. A late waiter keeps the notification. */
static void wake(struct sql_request *request, const char *bytes, size_t len)
{
    struct sql_locks *locks = request->locks;
    bool places = request->answer.places > 0;
    enum sql_notified notified =
        request->notified ? SQL_NOTIFIED : notify(locks, &request->waiters[0], bytes, len);
    for (size_t i = 1; places && i < request->waiter_count && i < SQL_WAKE_MAX; i++)
        notify(locks, &request->waiters[i], bytes, len);
    bool told = notified == SQL_NOTIFIED || (places && notified != SQL_NOBODY);
    bool check = request->answer.kept && told;
    struct sql_name *name = check || notified == SQL_NOBODY ? name_make(locks, bytes, len) : NULL;
    if (name == NULL)
        return; /* nothing to do; or out of memory: the reservation ends by itself */
    if (check)
        check_later(locks, name, request->version);
    else
        forget_gone(request, name);
    name_drop_if_idle(locks, name);
}

void waiting_wake(struct sql_request *request)
{
    size_t len;
    const char *bytes = request_name(request, &len);
    if (len == 0) /* the op was canceled, and there was no memory for the name */
        return;
    if (request->answer.passed)
        notify(request->locks, &request->answer.passed_over, bytes, len);
    if (request->answer.wake && request->waiter_count > 0)
        wake(request, bytes, len);
}

void waiting_released(const struct sql_request *request)
{
    struct sql_locks *locks = request->locks;
    size_t len;
    const char *bytes = request_name(request, &len);
    struct sql_name *name = name_find(locks, bytes, len);
    if (name != NULL && name->watched && !name_is_listed(name))
        locks->host->news(locks->host, name->bytes, name->len);
}

/* If a notification comes for a name that nobody here wants, this client is in its list by accident (a commit that was
 * reported as failed, but took effect). It leaves, so that the next waiter does not suffer. */
void locks_hear(struct sql_locks *locks, const char *bytes, size_t len)
{
    struct sql_name *name = name_make(locks, bytes, len);
    if (name == NULL)
        return;
    if (notify_own(locks, name) == SQL_NOBODY) {
        name_place_go(name, PLACE_STRAY);
        see_to(locks, name);
    }
    name_drop_if_idle(locks, name);
}

/* ---- errands, step by step ------------------------------------------------------------------------- */

static struct rowlease_answer change(const struct sql_request *request, struct rowlease_time time)
{
    struct sql_locks *locks = request->locks;
    switch (request->task) {
    case SQL_TASK_ENLIST:
        /* the inbox may have been closed since the errand was queued; then the news that follows makes the caller ask again */
        if (!locks->hears && !(locks->dialect->hear(locks, false) && locks->hears))
            return (struct rowlease_answer){.status = MORTISE_OK};
        return rowlease_register(&locks->next, time, &locks->inbox);
    case SQL_TASK_FORGET:
        return rowlease_forget(&locks->next, time, request->gone, request->gone_count);
    case SQL_TASK_CHECK:
        return rowlease_pass_over(&locks->next, time, request->name->check_version);
    default:
        return (struct rowlease_answer){.status = MORTISE_OK};
    }
}

/* SECOND: takes the waiters that a check would wake if the first one does not come. */
static void take_second(struct sql_request *request)
{
    const struct rowlease_row *row = &request->locks->row;
    if (rowlease_shared(row))
        request->answer.places = UINT32_MAX;
    request_take_waiters(request, row->waiters, row->waiters_len);
    bool free = row->grants_len == 0 || rowlease_shared(row);
    if (row->version != request->name->check_version || !free)
        request->waiter_count = 0;
}

enum sql_next waiting_step(struct sql_request *request)
{
    struct sql_locks *locks = request->locks;
    struct rowlease_time time;
    if (request->step != SQL_READ)
        return request_written(request);
    if (!request_was_read(request, &time))
        return SQL_OVER;
    request->answer = change(request, time);
    if (request->task == SQL_TASK_SECOND)
        take_second(request);
    else
        request_take_waiters(request, locks->next.waiters, locks->next.waiters_len);
    return request->answer.write ? request_write(request) : SQL_OVER;
}

/* The second waiter finds the name reserved for the first, and asks again when the reservation is over. So do shared waiters,
 * the first few of which were notified before. */
static void notify_second(struct sql_request *request)
{
    const struct sql_name *name = request->name;
    size_t count = request->answer.places > 0 ? SQL_WAKE_MAX : 2;
    for (size_t i = 1; i < count && i < request->waiter_count; i++)
        notify(request->locks, &request->waiters[i], name->bytes, name->len);
}

/* The errand is done: updates the name's entry. */
void waiting_tell(struct sql_request *request)
{
    struct sql_locks *locks = request->locks;
    struct sql_name *name = request->name;
    if (request->answer.trouble != NULL) {
        waiting_failed(request);
        return;
    }
    name->errand = NULL;
    if (request->task == SQL_TASK_ENLIST) {
        name_place_go(name, request->answer.registered ? PLACE_ENTERED : PLACE_UNLISTED);
        if (!name->watched)
            name_place_go(name, PLACE_UNWANTED);
        if (!locks->closing)
            locks->host->news(locks->host, name->bytes, name->len);
    } else if (forgets_own(request)) {
        name_place_go(name, PLACE_LEFT);
        if (name->watched)
            name_place_go(name, PLACE_WANTED);
    } else if (request->task == SQL_TASK_SECOND) {
        notify_second(request);
    }
    waiting_wake(request);
    see_to(locks, name);
    chore_at(locks, name->check_ns); /* it was not planned while this errand was under way */
    request_free(request);
}

/* Whether to try once more to leave. A client that closes has no time for pauses, so an errand that fails at once would be
 * repeated as fast as the server can answer. */
static bool leaves_again(const struct sql_locks *locks, struct sql_name *name)
{
    return !name->watched && (!locks->closing || ++name->refusals < LEAVE_TRIES);
}

/* Tries again in a while. Gives a check up, because the reservation ends by itself. */
void waiting_failed(struct sql_request *request)
{
    struct sql_locks *locks = request->locks;
    struct sql_name *name = request->name;
    bool enlists = request->task == SQL_TASK_ENLIST;
    name->errand = NULL;
    if (enlists && name->watched)
        name_place_go(name, PLACE_WANTED);
    if (forgets_own(request)) { /* it may have been executed; to enter again is safe */
        name_place_go(name, leaves_again(locks, name) ? PLACE_STRAY : PLACE_LEFT);
        if (name->watched)
            name_place_go(name, PLACE_WANTED);
    } else if (request->task == SQL_TASK_FORGET)
        check_later(locks, name, request->version);
    chore_at(locks, now_ns(locks) + locks_jitter(locks, AGAIN_NS));
    if (enlists && !locks->closing) /* the name may have been released meanwhile */
        locks->host->news(locks->host, name->bytes, name->len);
    request_free(request);
}

/* ---- in and out of the list ---------------------------------------------------------------------- */

void waiting_registered(struct sql_locks *locks, struct sql_name *name)
{
    name_place_go(name, PLACE_ENTERED);
    if (name->watched)
        return;
    name->grace_ns = now_ns(locks) + GRACE_NS;
    chore_at(locks, name->grace_ns);
}

void waiting_left(struct sql_name *name)
{
    name_place_go(name, PLACE_LEFT);
    name->check_ns = MORTISE_NEVER;
}

void locks_hearing(struct sql_locks *locks)
{
    struct sql_name *name, *next;
    locks->hears = true;
    HASH_ITER (hh, locks->names, name, next)
        see_to(locks, name);
    locks->host->news_all(locks->host);
}

void locks_unlisted(struct sql_locks *locks)
{
    struct sql_name *name, *next;
    HASH_ITER (hh, locks->names, name, next) {
        name_place_go(name, PLACE_UNLISTED);
        name->missed = false;
    }
    locks->host->news_all(locks->host);
}

/* Without an inbox, the caller learns of a release when it asks again. */
void locks_watch(struct sql_locks *locks, const char *bytes, size_t len)
{
    struct sql_name *name = name_make(locks, bytes, len);
    if (name == NULL) { /* out of memory: likewise */
        locks->host->news(locks->host, bytes, len);
        return;
    }
    name->watched = true;
    name->grace_ns = MORTISE_NEVER;
    if (name_is_listed(name) && name->missed)
        locks->host->news(locks->host, bytes, len);
    name->missed = false;
    bool hears = name->place == PLACE_LISTED || locks->dialect->hear(locks, false);
    name_place_go(name, hears ? PLACE_WANTED : PLACE_DEAF);
    see_to(locks, name);
}

void locks_unwatch(struct sql_locks *locks, const char *bytes, size_t len)
{
    struct sql_name *name = name_find(locks, bytes, len);
    if (name == NULL)
        return;
    name->watched = false;
    name_place_go(name, PLACE_UNWANTED);
    see_to(locks, name);
    name_drop_if_idle(locks, name);
}

/* ---- by timer ---------------------------------------------------------------------------------- */

static void do_chores(struct sql_locks *locks, struct sql_name *name, int64_t now)
{
    if (name->grace_ns <= now) {
        name->grace_ns = MORTISE_NEVER;
        if (!name->watched)
            name_place_go(name, PLACE_UNWANTED);
    }
    see_to(locks, name);
    chore_at(locks, name->grace_ns);
    if (name->errand == NULL)
        chore_at(locks, name->check_ns);
    name_drop_if_idle(locks, name);
}

void locks_turn(struct sql_locks *locks)
{
    struct sql_name *name, *next;
    int64_t now = now_ns(locks);
    if (now < locks->chore_ns)
        return;
    locks->chore_ns = MORTISE_NEVER;
    HASH_ITER (hh, locks->names, name, next)
        do_chores(locks, name, now);
}

/* ---- closing ----------------------------------------------------------------------------------- */

void locks_leave(struct sql_locks *locks)
{
    struct sql_name *name, *next;
    HASH_ITER (hh, locks->names, name, next) {
        name->watched = false;
        name->grace_ns = MORTISE_NEVER;
        name_place_go(name, PLACE_UNWANTED);
        if (name->errand == NULL && name->check_ns != MORTISE_NEVER && !name_is_listed(name)) {
            run_errand(locks, name, SQL_TASK_SECOND);
            name->check_ns = MORTISE_NEVER;
        }
        see_to(locks, name);
        name_drop_if_idle(locks, name);
    }
}

bool locks_have_left(const struct sql_locks *locks)
{
    for (const struct sql_name *name = locks->names; name != NULL; name = name->hh.next)
        if (name->errand != NULL || name_is_listed(name) || name->check_ns != MORTISE_NEVER)
            return false;
    return true;
}
