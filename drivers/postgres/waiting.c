/* waiting.c - who of this client waits for which name, and who of other clients is woken.
 *
 * The core watches a name while callers wait for it. What makes a waiter known to others is this client's
 * inbox, a random number, in the row's list; and LISTEN on the channel of that name, on the second
 * connection. An acquire that is BUSY puts it in the list if LISTEN is in force; else `watch` sees to that,
 * and then to the list. It leaves with the acquire that succeeds, or with `unwatch`.
 *
 * Who ends a claim notifies the first of the list, in the same transaction, and looks again when the
 * reservation is over (a check): a waiter that died or was stopped loses its place to the next. The lists are
 * changed by errands, requests of this driver's own, one per name at a time. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#define GRACE_NS (200 * NS_PER_MS) /* from a BUSY acquire to the core's `watch` */
#define AGAIN_NS (100 * NS_PER_MS) /* an errand that failed */
#define CHECK_MS 20                /* how long a woken waiter has at least */
#define NOTIFY_STEPS 4             /* doublings, to 1.6 s */
#define NOTIFY_TRIES 100

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

static void drop_if_idle(struct driver *driver, struct name *name)
{
    if (name->references > 0 || name->watched || name->registered || name->enlist || name->delist ||
        name->errand != NULL || name->check_ns != MORTISE_NEVER)
        return;
    HASH_DEL(driver->names, name);
    free(name);
}

void waiting_unref(struct driver *driver, struct name *name)
{
    name->references--;
    drop_if_idle(driver, name);
}

static int64_t now_ns(const struct driver *driver)
{
    return driver->host->now(driver->host);
}

static void chore_at(struct driver *driver, int64_t due_ns)
{
    if (due_ns < driver->chore_ns)
        driver->chore_ns = due_ns;
}

/* ---- errands ----------------------------------------------------------------------------------- */

static void run_errand(struct driver *driver, struct name *name, enum task task)
{
    struct request *request = request_new(driver, task);
    if (request == NULL) {
        chore_at(driver, now_ns(driver) + AGAIN_NS);
        return;
    }
    request->name = name;
    name->references++;
    name->errand = request;
    row_read(request, name->bytes, name->len);
}

/* The next thing to be done for a name, if nothing is under way. Nothing is put in a list that could not be
 * told, nor while the driver closes. */
static void see_to(struct driver *driver, struct name *name)
{
    if (name->errand != NULL)
        return;
    if (name->delist) {
        name->delist = false;
        run_errand(driver, name, TASK_DELIST);
        name->delist = name->errand == NULL;
    } else if (name->enlist && driver->listening) {
        name->enlist = false;
        run_errand(driver, name, TASK_ENLIST);
        name->enlist = name->errand == NULL;
    } else if (name->check_ns <= now_ns(driver)) {
        name->check_ns = MORTISE_NEVER;
        run_errand(driver, name, TASK_CHECK);
    }
}

static struct rowlease_answer change(const struct request *request, struct rowlease_row *row,
                                     struct rowlease_time time)
{
    const struct driver *driver = request->driver;
    if (request->task == TASK_ENLIST)
        return rowlease_register(row, time, &driver->inbox);
    if (request->task == TASK_DELIST)
        return rowlease_forget(row, time, &driver->inbox, 1);
    return rowlease_pass_over(row, time, request->name->check_version);
}

/* Done: the name's entry says what is true now. */
static void finish(struct request *request)
{
    struct driver *driver = request->driver;
    struct name *name = request->name;
    const struct rowlease_answer *answer = &request->answer;
    name->errand = NULL;
    if (request->task == TASK_ENLIST) {
        name->registered = answer->registered;
        name->delist = answer->registered && !name->watched;
        if (!driver->closing)
            driver->host->news(driver->host, name->bytes, name->len);
    } else if (request->task == TASK_DELIST) {
        name->registered = false;
        name->enlist = name->watched;
    }
    if (answer->wake && !answer->write)
        waiting_notify(driver, &request->wake, name->bytes, name->len);
    if (answer->kept)
        waiting_check_later(driver, name->bytes, name->len, request->version);
    see_to(driver, name);
    chore_at(driver, name->check_ns); /* left out while this errand was under way */
    request_free(request);
}

/* We leave before the reservation is over: the second is told now, finds the name kept for the first, and
 * asks again when that is over. */
static void tell_second(struct request *request)
{
    const struct driver *driver = request->driver;
    const struct rowlease_row *row = &driver->row;
    const struct name *name = request->name;
    struct rowlease_inbox waiters[2];
    bool second = row->version == name->check_version && row->grants_len == 0 &&
                  rowlease_waiters(row->waiters, row->waiters_len, waiters, 2) >= 2;
    if (second)
        waiting_notify(request->driver, &waiters[1], name->bytes, name->len);
    request->answer = (struct rowlease_answer){.status = MORTISE_OK};
}

void waiting_answered(struct request *request)
{
    struct driver *driver = request->driver;
    struct name *name = request->name;
    if (request->step == STEP_SWAP) {
        if (PQntuples(request->result) == 1)
            finish(request);
        else
            row_read(request, name->bytes, name->len);
        return;
    }
    if (!row_was_read(request))
        return;
    if (request->task == TASK_SECOND)
        tell_second(request);
    else
        request->answer = change(request, &driver->next, row_time(driver, request->now_us));
    if (request->answer.write) {
        row_swap(request, name->bytes, name->len, false);
        return;
    }
    if (request->answer.wake)
        rowlease_waiters(driver->row.waiters, driver->row.waiters_len, &request->wake, 1);
    request->version = driver->row.version;
    finish(request);
}

/* Again in a while; a check is given up: the reservation ends by itself. */
void waiting_failed(struct request *request)
{
    struct driver *driver = request->driver;
    struct name *name = request->name;
    name->errand = NULL;
    name->enlist = name->enlist || (request->task == TASK_ENLIST && name->watched);
    name->delist = name->delist || (request->task == TASK_DELIST && !name->watched);
    chore_at(driver, now_ns(driver) + jitter_ns(driver, AGAIN_NS));
    if (request->task == TASK_ENLIST && !driver->closing) /* it may have been released meanwhile */
        driver->host->news(driver->host, name->bytes, name->len);
    request_free(request);
}

/* ---- waking ------------------------------------------------------------------------------------ */

void waiting_notify(struct driver *driver, const struct rowlease_inbox *inbox, const char *bytes,
                    size_t len)
{
    static const char digits[] = "0123456789abcdef";
    char channel[CHANNEL_SIZE], payload[2 * MORTISE_NAME_MAX + 1], *at = payload;
    struct request *request = request_new(driver, TASK_NOTIFY);
    if (request == NULL)
        return; /* its hint ends */
    row_channel(inbox, channel);
    for (size_t i = 0; i < len; i++) {
        *at++ = digits[(unsigned char)bytes[i] >> 4];
        *at++ = digits[(unsigned char)bytes[i] & 15];
    }
    *at = '\0';
    args_text(&request->args, channel);
    args_text(&request->args, payload);
    if (args_keep(&request->args))
        request_send(request, STEP_QUICK, SQL_NOTIFY, LANE_LAZY);
    else
        request_free(request);
}

/* The server takes no notification now: the waiter keeps its place, and is told as soon as may be. */
void waiting_notify_failed(struct request *request, const struct fault *fault)
{
    struct driver *driver = request->driver;
    unsigned steps = request->tries < NOTIFY_STEPS ? request->tries : NOTIFY_STEPS;
    if (driver->closing || !(fault->loud || fault->waited) || ++request->tries > NOTIFY_TRIES) {
        request_free(request);
        return;
    }
    request_send(request, STEP_QUICK, SQL_NOTIFY, LANE_LAZY);
    request->not_before_ns = now_ns(driver) + jitter_ns(driver, AGAIN_NS << steps);
}

void waiting_check_later(struct driver *driver, const char *bytes, size_t len, int64_t version)
{
    struct name *name = waiting_name(driver, bytes, len, true);
    int64_t reserve_ms = driver->values[OPTION_RESERVE].number;
    int64_t ms = reserve_ms > CHECK_MS ? reserve_ms : CHECK_MS;
    if (name == NULL)
        return;
    name->check_version = version;
    name->check_ns = now_ns(driver) + (ms + 1) * NS_PER_MS;
    chore_at(driver, name->check_ns);
}

void waiting_released(struct driver *driver, const char *bytes, size_t len)
{
    struct name *name = waiting_name(driver, bytes, len, false);
    if (name != NULL && name->watched && !name->registered)
        driver->host->news(driver->host, name->bytes, name->len);
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The length, 0: no name. */
static size_t unhex(const char *text, char *bytes)
{
    size_t len = 0;
    while (len < MORTISE_NAME_MAX && digit(text[0]) >= 0 && digit(text[1]) >= 0) {
        bytes[len++] = (char)(digit(text[0]) << 4 | digit(text[1]));
        text += 2;
    }
    return *text == '\0' ? len : 0;
}

/* What nobody here wants: our inbox stands in its list by some accident. The next waiter must not suffer
 * from it. */
void waiting_hear(struct driver *driver, const char *payload)
{
    char bytes[MORTISE_NAME_MAX];
    size_t len = unhex(payload, bytes);
    struct name *name = len > 0 ? waiting_name(driver, bytes, len, true) : NULL;
    if (name == NULL)
        return;
    if (name->watched || name->grace_ns != MORTISE_NEVER) {
        name->missed = !name->watched;
        driver->host->news(driver->host, name->bytes, name->len);
    } else if (name->references > 0) {
        name->missed = true; /* told before the answer of the request that put us in the list */
    } else {
        name->delist = true;
        see_to(driver, name);
    }
    drop_if_idle(driver, name);
}

/* ---- in and out of the list ---------------------------------------------------------------------- */

void waiting_registered(struct driver *driver, struct name *name)
{
    name->registered = true;
    name->enlist = name->delist = false;
    if (name->watched)
        return;
    name->grace_ns = now_ns(driver) + GRACE_NS;
    chore_at(driver, name->grace_ns);
}

void waiting_left(struct driver *driver, struct name *name)
{
    (void)driver;
    name->registered = name->enlist = name->delist = false;
    name->check_ns = MORTISE_NEVER;
}

static bool can_listen(const struct driver *driver)
{
    return driver->values[OPTION_POOLER].number != POOLER_YES && !driver->main.pooled &&
           !driver->live.pooled;
}

static void want_listening(struct driver *driver)
{
    if (driver->listen_wanted || !can_listen(driver))
        return;
    driver->listen_wanted = true; /* where LIVE was made for renewals: see setup_listen() */
}

/* LISTEN is in force. Those who waited before ask again, for what they may have missed. */
void waiting_listening(struct driver *driver)
{
    struct name *name, *next;
    driver->listening = true;
    HASH_ITER (hh, driver->names, name, next)
        see_to(driver, name);
    driver->host->news_all(driver->host);
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
    want_listening(driver);
    if (name->registered && name->missed)
        driver->host->news(driver->host, bytes, len);
    name->enlist = !name->registered && can_listen(driver);
    name->missed = false;
    see_to(driver, name);
}

void waiting_unwatch(struct driver *driver, const char *bytes, size_t len)
{
    struct name *name = waiting_name(driver, bytes, len, false);
    if (name == NULL)
        return;
    name->watched = name->enlist = false;
    name->delist = name->registered;
    see_to(driver, name);
    drop_if_idle(driver, name);
}

/* ---- by timer ---------------------------------------------------------------------------------- */

static void do_chores(struct driver *driver, struct name *name, int64_t now)
{
    if (name->grace_ns <= now) {
        name->grace_ns = MORTISE_NEVER;
        name->delist = name->registered && !name->watched;
    }
    see_to(driver, name);
    chore_at(driver, name->grace_ns);
    if (name->errand == NULL)
        chore_at(driver, name->check_ns);
    drop_if_idle(driver, name);
}

void waiting_turn(struct driver *driver)
{
    struct name *name, *next;
    int64_t now = now_ns(driver);
    if (now < driver->chore_ns)
        return;
    driver->chore_ns = MORTISE_NEVER;
    HASH_ITER (hh, driver->names, name, next)
        do_chores(driver, name, now);
}

void waiting_leave(struct driver *driver)
{
    struct name *name, *next;
    HASH_ITER (hh, driver->names, name, next) {
        name->watched = name->enlist = false;
        name->grace_ns = MORTISE_NEVER;
        name->delist = name->registered;
        if (name->errand == NULL && name->check_ns != MORTISE_NEVER && !name->delist)
            run_errand(driver, name, TASK_SECOND);
        name->check_ns = MORTISE_NEVER;
        see_to(driver, name);
        drop_if_idle(driver, name);
    }
}

bool waiting_has_left(const struct driver *driver)
{
    for (const struct name *name = driver->names; name != NULL; name = name->hh.next)
        if (name->errand != NULL || name->registered)
            return false;
    return true;
}

void waiting_free(struct driver *driver)
{
    struct name *name, *next;
    HASH_ITER (hh, driver->names, name, next) {
        HASH_DEL(driver->names, name);
        free(name);
    }
}
