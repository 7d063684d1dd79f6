/* transactions.c - requests wait in a queue, and go out in transactions.
 *
 * All waiting requests that write go out together, in order, in one transaction; none is answered before the commit. A
 * request that only reads goes alone. If the file is busy, nothing was done: the requests go back to the queue, as if
 * they had just come, and a timer tries again. Nothing here sleeps.
 *
 *   QUEUED ──▶ executed ──▶ committed ──▶ told
 *     ▲ │         │ busy        │ failed: told, INDETERMINATE if the commit may yet be found (fault.c)
 *     │ └ busy_timeout, told    │ disk full, and it cannot be found: a checkpoint, then each again, alone
 *     └───────────┘
 *                 │ another error: the transaction is rolled back, then each again, alone; then told
 */
#include "driver.h"

#include <string.h>
#include <utlist.h>

#define TRIES_AT_ONCE 3
#define RETRY_FIRST_NS INT64_C(100000)
#define RETRY_STEPS 5 /* doublings, to 3.2 ms */

static bool writes(const struct request *request)
{
    mortise_op_kind kind = request->base.kind;
    return request->base.task != SQL_TASK_OP || kind == MORTISE_OP_ACQUIRE ||
           kind == MORTISE_OP_RENEW || kind == MORTISE_OP_RELEASE || kind == MORTISE_OP_WRITE;
}

/* ---- one transaction ------------------------------------------------------------------------------- */

static int begin(struct driver *driver)
{
    int rc = SQLITE_BUSY;
    for (int i = 0; i < TRIES_AT_ONCE && fault_is_busy(rc); i++)
        rc = database_begin(driver);
    return rc;
}

/* Executes all steps of the request. */
static int execute(struct driver *driver, struct request *request)
{
    int rc;
    do
        rc = dialect_execute(driver, &request->base);
    while (rc == SQLITE_OK && locks_step(&request->base) == SQL_AGAIN);
    return rc;
}

/* Whether a look without the write lock is likely to be enough: a waiter that asks again is mostly BUSY, and a check
 * mostly finds that the waiter came. If a thousand waiters all took the lock, they would keep the file busy. */
static bool looks_first(const struct request *request)
{
    enum sql_task task = request->base.task;
    return task == SQL_TASK_CHECK || task == SQL_TASK_SECOND ||
           (task == SQL_TASK_OP && request->base.kind == MORTISE_OP_ACQUIRE && request->base.first);
}

/* True: the request has nothing to write, and *rc is the result. */
static bool look(struct driver *driver, struct request *request, int *rc)
{
    *rc = dialect_execute(driver, &request->base);
    if (*rc == SQLITE_OK && locks_step(&request->base) == SQL_OVER)
        return true;
    locks_restart(&request->base);
    return *rc != SQLITE_OK;
}

/* A process that makes another index first reads the whole log. So if there is no other index yet, it will find this commit. */
static int commit(struct driver *driver)
{
    int rc = database_run(driver, TEXT_COMMIT);
    return rc == SQLITE_OK && files_index_is_other(driver) ? SQLITE_ABORT : rc;
}

/* *committing: the commit is what failed. */
static int execute_all(struct driver *driver, size_t n, bool *committing)
{
    bool transaction = writes(driver->batch[0]);
    int rc = SQLITE_OK;
    *committing = false;
    if (n == 1 && looks_first(driver->batch[0]) && look(driver, driver->batch[0], &rc))
        return rc;
    rc = transaction ? begin(driver) : SQLITE_OK;
    for (size_t i = 0; i < n && rc == SQLITE_OK; i++)
        rc = execute(driver, driver->batch[i]);
    *committing = rc == SQLITE_OK;
    return rc == SQLITE_OK && transaction ? commit(driver) : rc;
}

static struct fault roll_back(struct driver *driver, size_t n, int rc, bool committing)
{
    struct fault fault = fault_read(driver, rc, committing);
    if (!sqlite3_get_autocommit(driver->db)) /* some errors have rolled back already */
        database_run(driver, TEXT_ROLLBACK);
    for (size_t i = 0; i < n; i++)
        locks_restart(&driver->batch[i]->base);
    return fault;
}

/* ---- what becomes of requests ------------------------------------------------------------------------ */

static void fail(struct driver *driver, struct request *request, const struct fault *fault)
{
    mortise_op *op = request->base.op;
    mortise_status status = fault_status(&request->base, fault);
    int kind = fault->base.native & 0xff;
    if (kind == SQLITE_CORRUPT || kind == SQLITE_NOTADB || kind == SQLITE_INTERRUPT)
        driver->broken = true; /* the file may have been replaced or changed by now */
    if (op != NULL && op->first_sent_ns == 0 && fault->base.status == MORTISE_INDETERMINATE)
        op->first_sent_ns = driver->locks.host->now(driver->locks.host);
    locks_fail(&request->base, status, &fault->base);
}

static void fail_closed(struct driver *driver, struct request *request)
{
    mortise_error trouble = driver->trouble;
    trouble.retryable = true;
    if (trouble.status == MORTISE_CONFIG)
        trouble.status = MORTISE_UNREACHABLE;
    locks_lost(&request->base, false, &trouble);
}

static int run_batch(struct driver *driver, size_t n);

/* Runs requests one after another, because one of them makes the transaction fail for all. After SQLITE_BUSY, or with a
 * broken database, the remaining ones go back to the queue. */
static int run_singly(struct driver *driver, size_t n)
{
    struct request *left[BATCH_MAX];
    memcpy(left, driver->batch, n * sizeof(*left));
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && driver->broken) { /* each could take seconds: check the database first */
            while (n-- > i)
                DL_PREPEND2(driver->queue, left[n], previous, next);
            return SQLITE_OK;
        }
        driver->batch[0] = left[i];
        if (run_batch(driver, 1) == SQLITE_OK)
            continue;
        DL_DELETE2(driver->queue, left[i], previous,
                   next); /* it went back, and is the first of the rest */
        while (n-- > i)
            DL_PREPEND2(driver->queue, left[n], previous, next);
        return SQLITE_BUSY;
    }
    return SQLITE_OK;
}

/* SQLITE_BUSY: the requests went back to the front of the queue. Anything else: they were answered. */
static int run_batch(struct driver *driver, size_t n)
{
    bool committing = false;
    int rc = execute_all(driver, n, &committing);
    if (rc == SQLITE_OK) {
        for (size_t i = 0; i < n; i++)
            locks_tell(&driver->batch[i]->base);
        return SQLITE_OK;
    }
    struct fault fault = roll_back(driver, n, rc, committing);
    if (fault_is_busy(rc)) {
        while (n-- > 0)
            DL_PREPEND2(driver->queue, driver->batch[n], previous, next);
        return SQLITE_BUSY;
    }
    bool maybe = committing && fault.base.status == MORTISE_INDETERMINATE;
    bool makes_room = fault.full && !driver->made_room;
    if (makes_room)
        upkeep_make_room(driver);
    if (!maybe && (makes_room || (n > 1 && (!committing || fault.full)))) {
        if (makes_room)
            driver->made_room = true;
        rc = run_singly(driver, n);
        if (makes_room)
            driver->made_room = false;
        return rc;
    }
    for (size_t i = 0; i < n; i++)
        fail(driver, driver->batch[i], &fault);
    return SQLITE_OK;
}

/* ---- the queue --------------------------------------------------------------------------------- */

void transactions_run(struct sql_request *base)
{
    struct request *request = (struct request *)base;
    struct driver *driver = (struct driver *)base->locks;
    DL_APPEND2(driver->queue, request, previous, next);
}

/* A request that waits here was not executed. */
void transactions_cancel(struct sql_request *base)
{
    struct request *request = (struct request *)base;
    struct driver *driver = (struct driver *)base->locks;
    DL_DELETE2(driver->queue, request, previous, next);
    if (driver->queue == NULL)
        driver->retry_ns = MORTISE_NEVER;
}

/* Requests that have waited too long fail. The time of each begins when it first finds the file busy, so the queue is
 * in the order of the deadlines. */
static void retry_later(struct driver *driver)
{
    mortise_host *host = driver->locks.host;
    struct request *request, *next;
    int64_t now = host->now(host);
    int64_t patience_ns = driver->values[OPTION_BUSY_TIMEOUT].number * NS_PER_MS;
    struct fault fault = fault_read(driver, SQLITE_BUSY, false);
    DL_FOREACH_SAFE2(driver->queue, request, next, next)
    {
        if (request->deadline_ns == 0)
            request->deadline_ns = now + patience_ns;
        if (request->deadline_ns > now)
            continue;
        DL_DELETE2(driver->queue, request, previous, next);
        fail(driver, request, &fault);
    }
    unsigned steps = driver->retries < RETRY_STEPS ? driver->retries : RETRY_STEPS;
    driver->retries++;
    if (driver->queue != NULL)
        driver->retry_ns = now + locks_jitter(&driver->locks, RETRY_FIRST_NS << steps);
}

/* Takes the requests that write, up to the first that does not; or only that one. */
static size_t collect(struct driver *driver)
{
    size_t n = 0;
    while (driver->queue != NULL && n < BATCH_MAX) {
        struct request *request = driver->queue;
        bool writing = writes(request);
        if (n > 0 && !writing)
            break;
        DL_DELETE2(driver->queue, request, previous, next);
        driver->batch[n++] = request;
        if (!writing)
            break;
    }
    return n;
}

void transactions_go(struct driver *driver)
{
    if (driver->queue == NULL || (driver->retry_ns != MORTISE_NEVER &&
                                  driver->locks.host->now(driver->locks.host) < driver->retry_ns))
        return;
    driver->retry_ns = MORTISE_NEVER;
    while (driver->queue != NULL) {
        enum readiness ready = database_ready(driver);
        if (ready == DATABASE_BUSY) {
            retry_later(driver);
            return;
        }
        size_t n = collect(driver);
        if (ready == DATABASE_CLOSED) {
            for (size_t i = 0; i < n; i++)
                fail_closed(driver, driver->batch[i]);
            continue;
        }
        if (run_batch(driver, n) != SQLITE_OK) {
            retry_later(driver);
            return;
        }
        driver->retries = 0;
    }
}

void transactions_drop(struct driver *driver)
{
    struct request *request, *next;
    DL_FOREACH_SAFE2(driver->queue, request, next, next)
    request_free(&request->base);
    driver->queue = NULL;
}
