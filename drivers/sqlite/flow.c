/* flow.c - ops come in, wait while the file is busy, and go out in transactions.
 *
 * One op that finds nobody waiting is executed at once, as a transaction of its own. Several together, or
 * behind others, go through the queue: in order, what writes in one transaction, none of them completed
 * before it is committed. A busy file is tried again by timer; nothing here sleeps. */
#include "internal.h"

#include <string.h>
#include <utlist.h>

#define TRIES_AT_ONCE 3
#define RETRY_FIRST_NS INT64_C(100000)
#define RETRY_STEPS 5 /* doublings, to 3.2 ms */

/* ---- one op ------------------------------------------------------------------------------------ */

static bool writes(const mortise_op *op)
{
    return op->kind == MORTISE_OP_ACQUIRE || op->kind == MORTISE_OP_RENEW ||
           op->kind == MORTISE_OP_RELEASE || op->kind == MORTISE_OP_WRITE;
}

static bool makes_sense(const mortise_op *op)
{
    size_t least = op->kind == MORTISE_OP_LIST || op->kind == MORTISE_OP_PING ? 0 : 1;
    bool lease = op->kind == MORTISE_OP_ACQUIRE || op->kind == MORTISE_OP_RENEW;
    if (op->name_len < least || op->name_len > MORTISE_NAME_MAX)
        return false;
    if (op->owner != NULL && (op->owner_len == 0 || op->owner_len > MORTISE_OWNER_MAX))
        return false;
    return !lease || (op->ttl_ms > 0 && op->ttl_ms <= MORTISE_TTL_MAX_MS);
}

static int execute(struct driver *driver, mortise_op *op, struct outcome *outcome)
{
    memset(outcome, 0, sizeof(*outcome));
    outcome->answer.status = MORTISE_INVALID;
    if (!makes_sense(op))
        return SQLITE_OK;
    switch (op->kind) {
    case MORTISE_OP_ACQUIRE:
        return lease_acquire(driver, op, outcome);
    case MORTISE_OP_RENEW:
        return lease_renew(driver, op, outcome);
    case MORTISE_OP_RELEASE:
        return lease_release(driver, op, outcome);
    case MORTISE_OP_INSPECT:
        return look_inspect(driver, op, outcome);
    case MORTISE_OP_LIST:
        return look_list(driver, op, outcome);
    case MORTISE_OP_READ:
        return record_read(driver, op, outcome);
    case MORTISE_OP_WRITE:
        return record_write(driver, op, outcome);
    case MORTISE_OP_PING:
        return look_ping(driver, op, outcome);
    }
    outcome->answer.status = MORTISE_NOTSUP;
    return SQLITE_OK;
}

static void fill_results(struct driver *driver, mortise_op *op, const struct outcome *outcome)
{
    const struct rowlease_answer *answer = &outcome->answer;
    op->hint_ms = answer->hint_ms;
    op->good_for_ms = answer->good_for_ms;
    op->sure = true; /* no request is ever on its way: it was executed, or it was not */
    if (op->kind == MORTISE_OP_READ)
        op->record_size = outcome->record_size;
    if (op->kind == MORTISE_OP_READ || op->kind == MORTISE_OP_WRITE)
        op->record_version = outcome->record_version;
    if (answer->status != MORTISE_OK ||
        (op->kind != MORTISE_OP_ACQUIRE && op->kind != MORTISE_OP_RENEW))
        return;
    op->from_ns = clock_host_ns(driver, answer->from_us);
    if (op->kind != MORTISE_OP_ACQUIRE)
        return;
    op->token = answer->token;
    if (op->first_sent_ns == 0)
        op->first_sent_ns = op->from_ns;
}

/* After the commit. */
static void tell(struct driver *driver, mortise_op *op, const struct outcome *outcome)
{
    char quoted[QUOTED_SIZE];
    mortise_host *host = driver->host;
    fill_results(driver, op, outcome);
    waiting_settle(driver, op, outcome);
    if (outcome->answer.trouble == NULL)
        host->complete(host, op, outcome->answer.status);
    else
        host->fail(host, op, outcome->answer.status, 0, false, "%s: %s: %s", driver->path,
                   host->quote(op->name, op->name_len, quoted, sizeof(quoted)),
                   outcome->answer.trouble);
}

static void fail(struct driver *driver, mortise_op *op, const struct fault *fault)
{
    int kind = fault->native & 0xff;
    if (kind == SQLITE_CORRUPT || kind == SQLITE_NOTADB || kind == SQLITE_INTERRUPT)
        driver->broken =
            true; /* perhaps there is another file in its place by now, or a changed one */
    if (op->first_sent_ns == 0 && fault->status == MORTISE_INDETERMINATE)
        op->first_sent_ns = driver->host->now(driver->host);
    fault_tell(driver, op, fault);
}

static void fail_closed(struct driver *driver, mortise_op *op)
{
    const mortise_error *trouble = &driver->trouble;
    mortise_status status =
        trouble->status == MORTISE_CONFIG ? MORTISE_UNREACHABLE : trouble->status;
    driver->host->fail(driver->host, op, status, trouble->native, true, "%s", trouble->message);
}

/* SQLITE_BUSY: not done, is to be tried again; anything else: completed. */
static int run_one(struct driver *driver, mortise_op *op)
{
    int rc = SQLITE_OK;
    if (!database_ready(driver)) {
        fail_closed(driver, op);
        return SQLITE_OK;
    }
    for (int i = 0; i < TRIES_AT_ONCE; i++) {
        rc = execute(driver, op, &driver->outcome);
        if (!fault_is_busy(rc))
            break;
    }
    if (rc == SQLITE_OK) {
        tell(driver, op, &driver->outcome);
        return SQLITE_OK;
    }
    if (fault_is_busy(rc))
        return SQLITE_BUSY;
    struct fault fault = fault_read(driver, rc);
    if (fault.full) {
        upkeep_checkpoint_full(driver);
        rc = execute(driver, op, &driver->outcome);
        if (rc == SQLITE_OK) {
            tell(driver, op, &driver->outcome);
            return SQLITE_OK;
        }
    }
    fail(driver, op, &fault);
    return SQLITE_OK;
}

/* ---- several ops in one transaction --------------------------------------------------------------- */

static int begin(struct driver *driver)
{
    int rc = SQLITE_BUSY;
    for (int i = 0; i < TRIES_AT_ONCE && fault_is_busy(rc); i++)
        rc = database_run(driver, SQL_BEGIN);
    return rc;
}

static void roll_back(struct driver *driver)
{
    if (!sqlite3_get_autocommit(driver->db)) /* some errors have done it already */
        database_run(driver, SQL_ROLLBACK);
}

static int execute_all(struct driver *driver, size_t n)
{
    int rc = SQLITE_OK;
    for (size_t i = 0; i < n && rc == SQLITE_OK; i++)
        rc = execute(driver, driver->batch[i], &driver->outcomes[i]);
    return rc;
}

static void fail_batch(struct driver *driver, size_t n, const struct fault *fault)
{
    for (size_t i = 0; i < n; i++)
        fail(driver, driver->batch[i], fault);
}

/* One after the other, each with its own result: where one of them spoils it for all. */
static int run_singly(struct driver *driver, size_t n, size_t *done)
{
    for (*done = 0; *done < n; ++*done)
        if (run_one(driver, driver->batch[*done]) != SQLITE_OK)
            return SQLITE_BUSY;
    return SQLITE_OK;
}

/* The first *done ops of the batch are completed; SQLITE_BUSY: the others are to be tried again. A failed
 * commit fails them all: whether it left something is then each op's own question (see fault.c). */
static int run_batch(struct driver *driver, size_t n, size_t *done)
{
    *done = 0;
    if (n == 1 || driver->outcomes == NULL || !database_ready(driver))
        return run_singly(driver, n, done);
    int rc = begin(driver);
    if (rc == SQLITE_OK)
        rc = execute_all(driver, n);
    bool committing = rc == SQLITE_OK;
    if (committing)
        rc = database_run(driver, SQL_COMMIT);
    if (rc == SQLITE_OK) {
        for (; *done < n; ++*done)
            tell(driver, driver->batch[*done], &driver->outcomes[*done]);
        return SQLITE_OK;
    }
    struct fault fault = fault_read(driver, rc);
    roll_back(driver);
    if (fault_is_busy(rc))
        return SQLITE_BUSY;
    if (!committing || fault.full)
        return run_singly(driver, n, done);
    fail_batch(driver, n, &fault);
    *done = n;
    return SQLITE_OK;
}

/* ---- the queue --------------------------------------------------------------------------------- */

int64_t flow_jitter(struct driver *driver, int64_t ns)
{
    if (driver->jitter == 0)
        driver->host->random(driver->host, &driver->jitter, sizeof(driver->jitter));
    driver->jitter = driver->jitter * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return ns / 2 + (int64_t)((driver->jitter >> 33) % (uint64_t)(ns / 2 + 1));
}

static int64_t deadline_of(const mortise_op *op)
{
    int64_t deadline_ns;
    _Static_assert(sizeof(op->driver_data) >= sizeof(deadline_ns), "its place");
    memcpy(&deadline_ns, op->driver_data, sizeof(deadline_ns));
    return deadline_ns;
}

static void enqueue(struct driver *driver, mortise_op *op)
{
    int64_t patience_ms = driver->values[OPTION_BUSY_TIMEOUT].number;
    int64_t deadline_ns = driver->host->now(driver->host) + patience_ms * NS_PER_MS;
    memcpy(op->driver_data, &deadline_ns, sizeof(deadline_ns));
    op->next = op->previous = NULL;
    DL_APPEND2(driver->queue, op, previous, next);
}

static void retry_later(struct driver *driver)
{
    int64_t ns = RETRY_FIRST_NS << (driver->retries < RETRY_STEPS ? driver->retries : RETRY_STEPS);
    driver->retries++;
    driver->retry_ns = driver->host->now(driver->host) + flow_jitter(driver, ns);
}

/* Those who have waited long enough: the queue is in the order of their deadlines. */
static void give_up(struct driver *driver)
{
    int64_t now_ns = driver->host->now(driver->host);
    struct fault fault = fault_read(driver, SQLITE_BUSY);
    while (driver->queue != NULL && deadline_of(driver->queue) <= now_ns) {
        mortise_op *op = driver->queue;
        DL_DELETE2(driver->queue, op, previous, next);
        fail(driver, op, &fault);
    }
}

/* The ops that can go together: those that write, up to the first that does not; or that one alone. */
static size_t collect(struct driver *driver)
{
    size_t n = 0;
    for (mortise_op *op = driver->queue; op != NULL && n < BATCH_MAX; op = op->next) {
        if (n > 0 && !writes(op))
            break;
        driver->batch[n++] = op;
        if (!writes(op))
            break;
    }
    return n;
}

static void run_queue(struct driver *driver)
{
    driver->retry_ns = MORTISE_NEVER;
    while (driver->queue != NULL) {
        size_t done, n = collect(driver);
        for (size_t i = 0; i < n; i++)
            DL_DELETE2(driver->queue, driver->batch[i], previous, next);
        int rc = run_batch(driver, n, &done);
        while (n > done) { /* back to the front, in order */
            n--;
            DL_PREPEND2(driver->queue, driver->batch[n], previous, next);
        }
        if (rc == SQLITE_OK) {
            driver->retries = 0;
            continue;
        }
        give_up(driver);
        if (driver->queue != NULL)
            retry_later(driver);
        return;
    }
}

void flow_start(struct driver *driver, mortise_op **ops, size_t n)
{
    bool convenient = true; /* asked now: completed ops are not ours */
    for (size_t i = 0; i < n; i++)
        convenient = convenient && ops[i]->kind != MORTISE_OP_ACQUIRE;
    if (n == 1 && driver->queue == NULL) {
        if (run_one(driver, ops[0]) != SQLITE_OK) {
            enqueue(driver, ops[0]);
            retry_later(driver);
        }
    } else {
        for (size_t i = 0; i < n; i++)
            enqueue(driver, ops[i]);
        if (driver->retry_ns == MORTISE_NEVER)
            run_queue(driver);
    }
    upkeep_run(driver, convenient);
}

void flow_turn(struct driver *driver)
{
    if (driver->queue != NULL && driver->host->now(driver->host) >= driver->retry_ns)
        run_queue(driver);
}

/* Whatever waits here has not been executed: a busy file means that nothing was done. Only an earlier
 * try, before this start, can have left something. */
void flow_cancel(struct driver *driver, mortise_op *op)
{
    mortise_op *found;
    DL_FOREACH2(driver->queue, found, next)
    if (found == op)
        break;
    if (found == NULL)
        return;
    DL_DELETE2(driver->queue, op, previous, next);
    if (driver->queue == NULL)
        driver->retry_ns = MORTISE_NEVER;
    bool unsure = (op->flags & MORTISE_OP_REPEAT) != 0 && op->kind == MORTISE_OP_ACQUIRE;
    driver->host->complete(driver->host, op, unsure ? MORTISE_INDETERMINATE : MORTISE_CANCELED);
}
