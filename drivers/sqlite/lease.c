/* lease.c - acquire, renew and release. The common case is one statement, which does in SQL what rowlease.c
 * does in C; where it touches nothing, rowlease.c says why, or what else is to be done. */
#include "internal.h"

#include <string.h>

/* ---- the statements of the common case ----------------------------------------------------------- */

/* What the three have in common: name, version, grant, now, an instant to come. */
static int bind_common(sqlite3_stmt *statement, const mortise_op *op, int64_t version,
                       int64_t now_us, int64_t then_us)
{
    int rc = sqlite3_bind_blob64(statement, 1, op->name, op->name_len, SQLITE_STATIC);
    rc |= sqlite3_bind_int64(statement, 2, version);
    rc |= sqlite3_bind_blob(statement, 3, op->grant.bytes, MORTISE_GRANT_ID_SIZE, SQLITE_STATIC);
    rc |= sqlite3_bind_int64(statement, 4, now_us);
    rc |= sqlite3_bind_int64(statement, 5, then_us);
    return rc;
}

/* A row that comes back is no success yet: the commit is in the step after it. */
static int finish(struct driver *driver, sqlite3_stmt *statement, int rc)
{
    if (rc == SQLITE_ROW)
        rc = database_step(driver, statement);
    int end = sqlite3_reset(statement);
    return rc == SQLITE_DONE ? SQLITE_OK : end != SQLITE_OK ? end : rc;
}

static int quick_acquire(struct driver *driver, const mortise_op *op, struct rowlease_time time,
                         struct rowlease_answer *answer)
{
    static const struct rowlease_row absent;
    sqlite3_stmt *statement = driver->statements[SQL_ACQUIRE];
    int64_t version;
    if (!rowlease_next_version(&absent, op->token_floor, time.wall_us, &version))
        return SQLITE_OK; /* the long way refuses it */
    int rc = bind_common(statement, op, version, time.now_us, time.now_us + rowlease_ttl_us(op));
    size_t note_len = op->note_len < MORTISE_NOTE_MAX ? op->note_len : MORTISE_NOTE_MAX;
    if (note_len > 0)
        rc |= sqlite3_bind_blob64(statement, 6, op->note, note_len, SQLITE_STATIC);
    else
        rc |= sqlite3_bind_null(statement, 6);
    if (rc != SQLITE_OK)
        return rc;
    rc = database_step(driver, statement);
    if (rc == SQLITE_ROW)
        *answer = (struct rowlease_answer){.status = MORTISE_OK,
                                           .write = true,
                                           .token = (uint64_t)sqlite3_column_int64(statement, 0),
                                           .from_us = time.now_us,
                                           .good_for_ms = op->ttl_ms};
    return finish(driver, statement, rc);
}

static int quick_renew(struct driver *driver, const mortise_op *op, struct rowlease_time time,
                       struct rowlease_answer *answer)
{
    sqlite3_stmt *statement = driver->statements[SQL_RENEW];
    int rc = bind_common(statement, op, (int64_t)op->token, time.now_us,
                         time.now_us + rowlease_ttl_us(op));
    if (rc != SQLITE_OK)
        return rc;
    rc = database_step(driver, statement);
    if (rc == SQLITE_ROW)
        *answer = (struct rowlease_answer){
            .status = MORTISE_OK,
            .write = true,
            .from_us = time.now_us,
            .good_for_ms = (sqlite3_column_int64(statement, 0) - time.now_us) / 1000};
    return finish(driver, statement, rc);
}

static void read_waiters(sqlite3_stmt *statement, const mortise_op *op, struct outcome *outcome)
{
    const unsigned char *list = sqlite3_column_blob(statement, 0);
    size_t len = (size_t)sqlite3_column_bytes(statement, 0);
    if (list == NULL)
        return;
    outcome->version = (int64_t)op->token;
    outcome->waiter_count = rowlease_waiters(list, len, outcome->waiters, WAKE_MAX);
    outcome->answer.wake = outcome->answer.kept = outcome->waiter_count > 0;
}

static int quick_release(struct driver *driver, const mortise_op *op, struct rowlease_time time,
                         struct outcome *outcome)
{
    sqlite3_stmt *statement = driver->statements[SQL_RELEASE];
    int rc =
        bind_common(statement, op, (int64_t)op->token, time.now_us, time.now_us + time.reserve_us);
    if (rc != SQLITE_OK)
        return rc;
    rc = database_step(driver, statement);
    if (rc == SQLITE_ROW) {
        outcome->answer = (struct rowlease_answer){.status = MORTISE_OK, .write = true};
        read_waiters(statement, op, outcome);
    }
    return finish(driver, statement, rc);
}

/* ---- acquire ----------------------------------------------------------------------------------- */

struct attempt {
    const mortise_op *op;
    const struct rowlease_inbox *inbox; /* NULL: not known in any list */
};

static struct rowlease_answer change_acquire(struct rowlease_row *row, struct rowlease_time time,
                                             const void *argument)
{
    const struct attempt *attempt = argument;
    return rowlease_acquire(row, attempt->op, time, attempt->inbox);
}

/* An inbox, and an entry that remembers where it was put. */
static bool can_wait(struct driver *driver, const mortise_op *op)
{
    return inbox_ready(driver) && waiting_name(driver, op->name, op->name_len, true) != NULL;
}

static int slow_acquire(struct driver *driver, mortise_op *op, struct outcome *outcome)
{
    bool known = waiting_name(driver, op->name, op->name_len, false) != NULL;
    struct attempt attempt = {op, known && driver->inbox_fd >= 0 ? &driver->inbox : NULL};
    int rc = row_change_to(driver, op->name, op->name_len, change_acquire, &attempt, outcome);
    bool waits = rc == SQLITE_OK && outcome->answer.status == MORTISE_BUSY &&
                 (op->flags & MORTISE_OP_TRY) == 0;
    if (waits && outcome->answer.registered && outcome->answer.write &&
        waiting_registered(driver, op) && inbox_is_lost(driver)) {
        waiting_anew(driver); /* that is why it had been dropped from the list */
        attempt.inbox = NULL;
    }
    if (waits && attempt.inbox == NULL && can_wait(driver, op)) {
        attempt.inbox = &driver->inbox;
        rc = row_change_to(driver, op->name, op->name_len, change_acquire, &attempt, outcome);
    }
    return rc;
}

/* A waiter that nobody can tell asks again soon. */
static void tell_busy(struct driver *driver, mortise_op *op, struct outcome *outcome)
{
    struct rowlease_answer *answer = &outcome->answer;
    outcome->joined_list = answer->registered;
    int64_t most_ms = answer->registered ? ROWLEASE_LOOK_MS : POLL_MS;
    if ((op->flags & MORTISE_OP_TRY) == 0 && answer->hint_ms > most_ms)
        answer->hint_ms = most_ms;
    if (op->info != NULL)
        look_tell(&driver->next, clock_read(driver).now_us, op->name, op->name_len, op->info);
}

int lease_acquire(struct driver *driver, mortise_op *op, struct outcome *outcome)
{
    int rc = SQLITE_OK;
    outcome->answer.status = MORTISE_BUSY;
    if (op->owner == NULL && !waiting_registered(driver, op))
        rc = quick_acquire(driver, op, clock_read(driver), &outcome->answer);
    if (rc != SQLITE_OK || outcome->answer.status == MORTISE_OK)
        return rc;
    rc = slow_acquire(driver, op, outcome);
    if (rc != SQLITE_OK)
        return rc;
    if (outcome->answer.status == MORTISE_BUSY)
        tell_busy(driver, op, outcome);
    else
        outcome->left_list = outcome->answer.write && op->owner == NULL;
    return rc;
}

/* ---- renew, release ---------------------------------------------------------------------------- */

static struct rowlease_answer change_renew(struct rowlease_row *row, struct rowlease_time time,
                                           const void *op)
{
    return rowlease_renew(row, op, time);
}

static struct rowlease_answer change_release(struct rowlease_row *row, struct rowlease_time time,
                                             const void *op)
{
    return rowlease_release(row, op, time);
}

int lease_renew(struct driver *driver, mortise_op *op, struct outcome *outcome)
{
    int rc = SQLITE_OK;
    outcome->answer.status = MORTISE_LOST;
    if (op->owner == NULL)
        rc = quick_renew(driver, op, clock_read(driver), &outcome->answer);
    if (rc != SQLITE_OK || outcome->answer.status == MORTISE_OK)
        return rc;
    return row_change_to(driver, op->name, op->name_len, change_renew, op, outcome);
}

int lease_release(struct driver *driver, mortise_op *op, struct outcome *outcome)
{
    int rc = SQLITE_OK;
    outcome->answer.status = MORTISE_LOST;
    if (op->owner == NULL && (op->flags & MORTISE_OP_BREAK) == 0)
        rc = quick_release(driver, op, clock_read(driver), outcome);
    if (rc != SQLITE_OK || outcome->answer.status == MORTISE_OK)
        return rc;
    return row_change_to(driver, op->name, op->name_len, change_release, op, outcome);
}
