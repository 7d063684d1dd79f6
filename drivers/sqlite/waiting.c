/* waiting.c - who of this client waits for which name, and who of other clients is woken.
 *
 * The core watches a name while callers wait for it. What makes a waiter known to others is this client's
 * inbox in the row's list; an acquire that is BUSY puts it there, `watch` does it for one that did not, and
 * it leaves the list with the acquire that succeeds, or with `unwatch`. Where the file is busy at that
 * moment, the change becomes a chore that is done by timer.
 *
 * Who ends a claim wakes the first waiter of the list, and looks again when the reservation is over (a
 * `check`): a waiter that was stopped or died just then loses its place to the next. Who finds a waiter gone
 * takes it off the list. A client that closes before it could check wakes the second waiter right away: it
 * is BUSY, for as long as the reservation lasts, and asks again after that. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#define GRACE_NS (200 * NS_PER_MS) /* from a BUSY acquire to the core's `watch` */
#define CHORE_NS (2 * NS_PER_MS)   /* the file was busy: again after about that */
#define CHECK_MS 20                /* how long a woken waiter has at least */
#define INBOX_DEEP 8               /* so many messages at once: perhaps more did not fit */
#define CLOSE_NS (500 * NS_PER_MS) /* for what a closing client still has to write */

/* ---- names ------------------------------------------------------------------------------------- */

struct name *waiting_name(struct driver *driver, const char *bytes, size_t len, bool make)
{
    struct name *name = NULL;
    if (driver->names != NULL)
        HASH_FIND(hh, driver->names, bytes, len, name);
    if (name != NULL || !make)
        return name;
    name = calloc(1, sizeof(*name) + len);
    if (name == NULL)
        return NULL;
    memcpy(name->bytes, bytes, len);
    name->len = (uint32_t)len;
    name->grace_ns = name->check_ns = MORTISE_NEVER;
    HASH_ADD(hh, driver->names, bytes, len, name);
    if (name->hh.tbl == NULL) {
        free(name);
        return NULL;
    }
    return name;
}

bool waiting_registered(struct driver *driver, const mortise_op *op)
{
    if (driver->names == NULL)
        return false;
    const struct name *name = waiting_name(driver, op->name, op->name_len, false);
    return name != NULL && name->registered;
}

static void drop_if_idle(struct driver *driver, struct name *name)
{
    if (name->watched || name->registered || name->enlist || name->delist ||
        name->check_ns != MORTISE_NEVER)
        return;
    HASH_DEL(driver->names, name);
    free(name);
}

static void chore_at(struct driver *driver, int64_t due_ns)
{
    if (due_ns < driver->chore_ns)
        driver->chore_ns = due_ns;
}

static void chore_again(struct driver *driver)
{
    chore_at(driver, driver->host->now(driver->host) + flow_jitter(driver, CHORE_NS));
}

/* ---- waking ------------------------------------------------------------------------------------ */

struct gone {
    struct rowlease_inbox inboxes[WAKE_MAX];
    size_t count;
};

static struct rowlease_answer change_forget(struct rowlease_row *row, struct rowlease_time time,
                                            const void *argument)
{
    const struct gone *gone = argument;
    return rowlease_forget(row, time, gone->inboxes, gone->count);
}

static bool is_own(const struct driver *driver, const struct rowlease_inbox *inbox)
{
    return driver->inbox_fd >= 0 && memcmp(inbox, &driver->inbox, sizeof(*inbox)) == 0;
}

/* Tells the callers of this client. Those whose acquire was BUSY a moment ago may not be watching yet.
 * False: nobody here waits. */
static bool tell_own(struct driver *driver, struct name *name)
{
    if (!name->watched && name->grace_ns == MORTISE_NEVER)
        return false;
    name->missed = !name->watched;
    driver->host->news(driver->host, name->bytes, name->len);
    return true;
}

/* False: nobody is behind it. */
static bool tell(struct driver *driver, struct name *name, const struct rowlease_inbox *inbox)
{
    return is_own(driver, inbox) ? tell_own(driver, name)
                                 : inbox_send(driver, inbox, name->bytes, name->len);
}

/* The woken waiter has until then to take the name. */
static void check_later(struct driver *driver, struct name *name, int64_t version)
{
    int64_t reserve_ms = driver->values[OPTION_RESERVE].number;
    int64_t ms = reserve_ms > CHECK_MS ? reserve_ms : CHECK_MS;
    name->check_version = version;
    name->check_ns = driver->host->now(driver->host) + (ms + 1) * NS_PER_MS;
    chore_at(driver, name->check_ns);
}

static struct gone find_gone(struct driver *driver, const struct outcome *outcome)
{
    struct gone gone = {.inboxes[0] = outcome->waiters[0], .count = 1};
    for (size_t i = 1; i < outcome->waiter_count && i < WAKE_MAX; i++)
        if (!is_own(driver, &outcome->waiters[i]) && !inbox_is_alive(driver, &outcome->waiters[i]))
            gone.inboxes[gone.count++] = outcome->waiters[i];
    return gone;
}

/* Wakes the first of the list that is alive; those that are not are taken off it, in one change for up to
 * WAKE_MAX of them, which keeps the name for the next. Where that cannot be done now, the check will. */
static void wake(struct driver *driver, struct name *name, const struct outcome *first)
{
    struct outcome outcome = *first;
    while (outcome.answer.wake && outcome.waiter_count > 0) {
        if (tell(driver, name, &outcome.waiters[0])) {
            if (outcome.answer.kept)
                check_later(driver, name, outcome.version);
            return;
        }
        struct gone gone = find_gone(driver, &outcome);
        int64_t version = outcome.version;
        memset(&outcome, 0, sizeof(outcome));
        int rc = row_change_to(driver, name->bytes, name->len, change_forget, &gone, &outcome);
        if (rc != SQLITE_OK) {
            check_later(driver, name, version);
            return;
        }
    }
}

/* Out of memory: the first of the list is told, and nobody looks later whether it took the name. */
static void wake_unchecked(struct driver *driver, const mortise_op *op,
                           const struct outcome *outcome)
{
    if (!outcome->answer.wake || outcome->waiter_count == 0)
        return;
    if (is_own(driver, &outcome->waiters[0]))
        driver->host->news(driver->host, op->name, op->name_len);
    else
        inbox_send(driver, &outcome->waiters[0], op->name, op->name_len);
}

static void settle_list(struct driver *driver, struct name *name, const struct outcome *outcome)
{
    if (outcome->left_list) {
        name->registered = name->enlist = name->delist = false;
        name->check_ns = MORTISE_NEVER;
    } else if (outcome->joined_list) {
        name->registered = true;
        name->enlist = name->delist = false;
        if (!name->watched) {
            name->grace_ns = driver->host->now(driver->host) + GRACE_NS;
            chore_at(driver, name->grace_ns);
        }
    }
}

static void settle_acquire(struct driver *driver, const mortise_op *op,
                           const struct outcome *outcome)
{
    if (outcome->answer.passed)
        inbox_send(driver, &outcome->answer.passed_over, op->name, op->name_len);
    struct name *name = waiting_name(driver, op->name, op->name_len, outcome->answer.wake);
    if (name == NULL) {
        wake_unchecked(driver, op, outcome);
        return;
    }
    settle_list(driver, name, outcome);
    wake(driver, name, outcome);
    drop_if_idle(driver, name);
}

/* Callers of this client that wait behind its own claim are in no list. */
static void settle_release(struct driver *driver, const mortise_op *op,
                           const struct outcome *outcome)
{
    struct name *name = waiting_name(driver, op->name, op->name_len, outcome->answer.wake);
    if (name == NULL) {
        wake_unchecked(driver, op, outcome);
        return;
    }
    wake(driver, name, outcome);
    if (name->watched && !name->registered)
        driver->host->news(driver->host, name->bytes, name->len);
    drop_if_idle(driver, name);
}

void waiting_settle(struct driver *driver, const mortise_op *op, const struct outcome *outcome)
{
    if (op->kind == MORTISE_OP_ACQUIRE)
        settle_acquire(driver, op, outcome);
    else if (op->kind == MORTISE_OP_RELEASE)
        settle_release(driver, op, outcome);
}

/* ---- in and out of the list ---------------------------------------------------------------------- */

static struct rowlease_answer change_register(struct rowlease_row *row, struct rowlease_time time,
                                              const void *inbox)
{
    return rowlease_register(row, time, inbox);
}

/* Then one piece of news: it may have been released before the list was reached. Without an inbox the
 * caller finds out when it asks again. */
static void enlist(struct driver *driver, struct name *name)
{
    struct outcome outcome = {.version = 0};
    int rc = SQLITE_OK;
    if (database_ready(driver) && inbox_ready(driver))
        rc = row_change_to(driver, name->bytes, name->len, change_register, &driver->inbox,
                           &outcome);
    name->enlist = fault_is_busy(rc);
    if (name->enlist) {
        chore_again(driver);
        return;
    }
    name->registered = outcome.answer.registered;
    driver->host->news(driver->host, name->bytes, name->len);
}

/* Nobody here waits any more (R5). If the name was being kept for us, the next is woken. */
static void delist(struct driver *driver, struct name *name)
{
    struct outcome outcome = {.version = 0};
    struct gone own = {.inboxes[0] = driver->inbox, .count = 1};
    int rc = SQLITE_OK;
    if (database_ready(driver) && driver->inbox_fd >= 0)
        rc = row_change_to(driver, name->bytes, name->len, change_forget, &own, &outcome);
    name->delist = fault_is_busy(rc);
    if (name->delist) {
        chore_again(driver);
        return;
    }
    name->registered = false;
    if (rc == SQLITE_OK)
        wake(driver, name, &outcome);
}

void waiting_watch(struct driver *driver, const char *bytes, size_t len)
{
    struct name *name = waiting_name(driver, bytes, len, true);
    if (name == NULL) { /* out of memory: it asks again at the hint */
        driver->host->news(driver->host, bytes, len);
        return;
    }
    name->watched = true;
    name->delist = false;
    name->grace_ns = MORTISE_NEVER;
    if (!name->registered)
        enlist(driver, name);
    else if (name->missed)
        driver->host->news(driver->host, bytes, len);
    name->missed = false;
}

void waiting_unwatch(struct driver *driver, const char *bytes, size_t len)
{
    struct name *name = waiting_name(driver, bytes, len, false);
    if (name == NULL)
        return;
    name->watched = name->enlist = false;
    if (name->registered)
        delist(driver, name);
    drop_if_idle(driver, name);
}

void waiting_anew(struct driver *driver)
{
    struct name *name, *next;
    inbox_close(driver);
    HASH_ITER (hh, driver->names, name, next)
        name->registered = name->delist = name->missed = false;
    driver->host->news_all(driver->host);
}

/* ---- by timer and by message --------------------------------------------------------------------- */

static struct rowlease_answer change_pass_over(struct rowlease_row *row, struct rowlease_time time,
                                               const void *version)
{
    return rowlease_pass_over(row, time, *(const int64_t *)version);
}

static void check(struct driver *driver, struct name *name)
{
    struct outcome outcome = {.version = 0};
    int rc = SQLITE_OK;
    name->check_ns = MORTISE_NEVER;
    if (database_ready(driver))
        rc = row_change_to(driver, name->bytes, name->len, change_pass_over, &name->check_version,
                           &outcome);
    if (rc == SQLITE_OK)
        wake(driver, name, &outcome);
    else if (fault_is_busy(rc))
        check_later(driver, name, name->check_version);
}

static void do_chores(struct driver *driver, struct name *name, int64_t now_ns)
{
    if (name->grace_ns <= now_ns) {
        name->grace_ns = MORTISE_NEVER;
        name->delist = name->registered && !name->watched;
    }
    if (name->enlist)
        enlist(driver, name);
    if (name->delist)
        delist(driver, name);
    if (name->check_ns <= now_ns)
        check(driver, name);
    chore_at(driver, name->grace_ns);
    chore_at(driver, name->check_ns);
    drop_if_idle(driver, name);
}

/* A message about a name that nobody here wants: our inbox stands in its list by some accident (a commit
 * that failed and yet was made). The next waiter must not suffer from it. */
static void hear(struct driver *driver, const char *bytes, size_t len)
{
    struct name *name = waiting_name(driver, bytes, len, true);
    if (name == NULL)
        return;
    if (!tell_own(driver, name))
        delist(driver, name);
    drop_if_idle(driver, name);
}

static void read_messages(struct driver *driver)
{
    char bytes[MORTISE_NAME_MAX];
    size_t count = 0, len;
    while (count < 64 && (len = inbox_receive(driver, bytes, sizeof(bytes))) > 0) {
        hear(driver, bytes, len);
        count++;
    }
    if (count >= INBOX_DEEP)
        driver->host->news_all(driver->host);
}

void waiting_turn(struct driver *driver)
{
    struct name *name, *next;
    read_messages(driver);
    int64_t now_ns = driver->host->now(driver->host);
    if (now_ns < driver->chore_ns)
        return;
    driver->chore_ns = MORTISE_NEVER;
    HASH_ITER (hh, driver->names, name, next)
        do_chores(driver, name, now_ns);
}

/* ---- closing ----------------------------------------------------------------------------------- */

static void wake_second(struct driver *driver, struct name *name)
{
    const struct rowlease_row *row = &driver->row;
    struct rowlease_inbox second;
    if (row_read(driver, name->bytes, name->len, &driver->row) != SQLITE_OK ||
        row->version != name->check_version || row->grants_len > 0 ||
        row->waiters_len < 2 * ROWLEASE_WAITER_SIZE)
        return;
    memcpy(&second, row->waiters + ROWLEASE_WAITER_SIZE, sizeof(second));
    inbox_send(driver, &second, name->bytes, name->len);
}

void waiting_close(struct driver *driver)
{
    struct name *name, *next;
    int64_t until_ns = driver->host->now(driver->host) + CLOSE_NS;
    HASH_ITER (hh, driver->names, name, next) {
        if (driver->db != NULL && driver->host->now(driver->host) < until_ns) {
            sqlite3_busy_timeout(driver->db, (int)(CLOSE_NS / NS_PER_MS / 2));
            name->watched = false;
            if (name->registered || name->delist)
                delist(driver, name);
            if (name->check_ns != MORTISE_NEVER)
                wake_second(driver, name);
        }
        HASH_DEL(driver->names, name);
        free(name);
    }
    inbox_close(driver);
}
