/* dialect.c - the steps of drivers/lib/sql as statements of PostgreSQL, and their results. The texts are in sql.c;
 * protocol.md says what each step promises. */
#include "driver.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define EPOCH_US INT64_C(946684800000000) /* 2000-01-01, PostgreSQL's, since 1970 */

static const struct handler handler;

/* ---- arguments --------------------------------------------------------------------------------- */

static void send_take(struct request *request, struct args *args)
{
    const struct remote *remote = (const struct remote *)request->base.locks;
    bind_take(&args_binder, args, request);
    if (request->base.first)
        args_bytes(args, remote->locks.inbox.bytes, ROWLEASE_INBOX_SIZE);
    statement_send(request,
                   request->base.first                   ? TEXT_ACQUIRE_NEXT
                   : known_has(remote, request->base.op) ? TEXT_ACQUIRE
                                                         : TEXT_ACQUIRE_NEW,
                   LANE_DURABLE);
}

static void send_extend(struct request *request, struct args *args)
{
    bind_claim(&args_binder, args, request);
    args_interval(args, rowlease_ttl_us(request->base.op));
    statement_send(request, TEXT_RENEW, LANE_DURABLE);
}

static void send_give(struct request *request, struct args *args)
{
    bind_claim(&args_binder, args, request);
    args_interval(args, request->base.locks->reserve_us);
    args_bool(args, !request->quiet);
    statement_send(request, TEXT_RELEASE, LANE_LAZY);
}

static void send_read(struct request *request, struct args *args)
{
    bind_name(&args_binder, args, request);
    statement_send(request, TEXT_READ, LANE_READING);
    op_pause(request);
}

/* Version, grants, expiry and waiters are the whole state: owner and note change with the grants. */
static void bind_old(struct args *args, const struct rowlease_row *row)
{
    args_int8(args, row->version);
    args_bytes_or_null(args, row->grants, row->grants_len);
    args_time(args, row->expires_us);
    args_bytes_or_null(args, row->waiters, row->waiters_len);
}

/* Copies the values, because they must outlive the rows of `locks`. */
static void send_copy(struct request *request, enum text text, enum lane lane)
{
    static const struct sql_fault no_memory = {
        .status = MORTISE_NOMEM, .retryable = true, .text = "out of memory"};
    if (args_keep(&pg_request(request)->args))
        statement_send(request, text, lane);
    else
        locks_fail(&request->base, MORTISE_NOMEM, &no_memory);
}

/* The first waiter is notified in the same transaction, because this process may die right after it, and nobody else
 * would notify that waiter. Only lazy writes wake anybody. */
static void send_write(struct request *request, struct args *args)
{
    const struct sql_locks *locks = request->base.locks;
    bool notify = request->base.wakes && !request->quiet;
    char channel[CHANNEL_SIZE], payload[PAYLOAD_SIZE];
    size_t len;
    const char *name = request_name(&request->base, &len);
    bind_name(&args_binder, args, request);
    bind_row(&args_binder, args, &locks->next);
    if (!locks->row.exists) {
        send_copy(request, TEXT_INSERT, LANE_DURABLE);
        return;
    }
    bind_old(args, &locks->row);
    if (notify) {
        notify_channel(&request->base.waiters[0], channel);
        notify_payload(name, len, payload);
    }
    args_text(args, notify ? channel : NULL);
    args_text(args, notify ? payload : NULL);
    if (request->base.durable)
        send_copy(request, TEXT_SWAP, LANE_DURABLE);
    else
        send_copy(request, TEXT_SWAP_LAZY, LANE_LAZY);
}

_Static_assert(ROWLEASE_WAITERS_MAX *ROWLEASE_WAITER_SIZE == 3072, "as in TEXT_ENLIST");
static void send_append(struct request *request, struct args *args)
{
    const mortise_op *op = request->base.op;
    static const unsigned char wants[2][ROWLEASE_WAITER_SIZE - ROWLEASE_INBOX_SIZE] = {
        {0, 0, 0, 0}, {0, 0, 0, ROWLEASE_WANTS_SHARED}};
    bool owned = op != NULL && op->owner != NULL, shared = op != NULL && op->mode == MORTISE_SHARED;
    size_t len;
    const char *name = request_name(&request->base, &len);
    args_bytes(args, name, len);
    args_bytes(args, request->base.locks->inbox.bytes, ROWLEASE_INBOX_SIZE);
    args_bytes_or_null(args, op != NULL ? op->grant.bytes : NULL,
                       op != NULL ? MORTISE_GRANT_ID_SIZE : 0);
    if (shared)
        args_bytes(args, ROWLEASE_SHARED, ROWLEASE_SHARED_SIZE);
    else
        args_bytes_or_null(args, owned ? op->owner : NULL, owned ? op->owner_len : 0);
    args_bytes(args, wants[shared], sizeof(wants[shared]));
    statement_send(request, TEXT_ENLIST, LANE_LAZY);
}

static void send_bar(struct request *request, struct args *args)
{
    struct sql_request *base = &request->base;
    size_t len;
    const char *name = request_name(base, &len);
    args_bytes(args, name, len);
    args_bytes(args, ROWLEASE_SHARED, ROWLEASE_SHARED_SIZE);
    args_bytes_or_null(args, base->locks->inbox.bytes,
                       base->answer.registered ? ROWLEASE_INBOX_SIZE : 0);
    statement_send(request, TEXT_BAR, LANE_LAZY);
}

static void send_list(struct request *request, struct args *args)
{
    char end[MORTISE_NAME_MAX];
    bind_list(&args_binder, args, request, end);
    send_copy(request, TEXT_LIST, LANE_READING);
}

/* Whether a write of a record may have been lost, and nobody has seen its session end: behind a pooler, or if the session
 * does not end within the time after which records are read. Then a read waits for that commit. Otherwise readers need not
 * wait for each other. */
static bool is_haunted(const struct driver *driver)
{
    return driver->pooler_seen || driver->remote.ghosts != NULL;
}

/* Reading is durable, too: see protocol.md. A request that may wait for the row of a record must not keep the rows of
 * others locked, so it goes alone. */
static void send_record_read(struct request *request, struct args *args)
{
    bind_name(&args_binder, args, request);
    request->settles = true;
    request->alone = is_haunted((const struct driver *)request->base.locks);
    statement_send(request, TEXT_RECORD_READ, LANE_DURABLE);
}

static void send_record_write(struct request *request, struct args *args)
{
    bind_record(&args_binder, args, request);
    statement_send(request,
                   request->base.op->record_version > 0 ? TEXT_RECORD_WRITE : TEXT_RECORD_MAKE,
                   LANE_DURABLE);
}

static void send_ping(struct request *request, struct args *args)
{
    const struct driver *driver = (const struct driver *)request->base.locks;
    args_int8(args, (int64_t)time(NULL));
    args_bool(args, driver->values[OPTION_SCHEMA].text[0] == '\0');
    statement_send(request, TEXT_PING, LANE_READING);
}

static void run(struct sql_request *base)
{
    static void (*const sends[])(struct request * request, struct args * args) = {
        [SQL_TAKE] = send_take,
        [SQL_EXTEND] = send_extend,
        [SQL_GIVE] = send_give,
        [SQL_READ] = send_read,
        [SQL_WRITE] = send_write,
        [SQL_APPEND] = send_append,
        [SQL_BAR] = send_bar,
        [SQL_LIST] = send_list,
        [SQL_PING] = send_ping,
        [SQL_RECORD_READ] = send_record_read,
        [SQL_RECORD_WRITE] = send_record_write,
    };
    struct request *request = (struct request *)base;
    struct args *args = &pg_request(request)->args;
    request->handler = &handler;
    args_begin(args);
    sends[base->step](request, args);
}

/* ---- results ----------------------------------------------------------------------------------- */

/* Reads a bytea. False: it is too long. Null counts as 0 bytes. */
static bool take_bytes(const PGresult *result, int tuple, int column, void *to, size_t size,
                       size_t *len)
{
    *len = (size_t)PQgetlength(result, tuple, column);
    if (*len > size)
        return false;
    if (*len > 0)
        memcpy(to, PQgetvalue(result, tuple, column), *len);
    return true;
}

/* Takes the columns of READ or LIST, beginning with `first`. False: they make no sense. */
static bool take_row(const PGresult *result, int tuple, int first, struct rowlease_row *row,
                     int64_t *now_us)
{
    *now_us = result_time(result, tuple, first + 7);
    row->exists = !PQgetisnull(result, tuple, first);
    row->version = row->exists ? result_int8(result, tuple, first) : 0;
    row->owned = !PQgetisnull(result, tuple, first + 1);
    row->acquired_us = row->exists ? result_time(result, tuple, first + 3) : 0;
    row->expires_us = row->exists ? result_time(result, tuple, first + 4) : 0;
    bool fits =
        take_bytes(result, tuple, first + 1, row->owner, sizeof(row->owner), &row->owner_len);
    fits &=
        take_bytes(result, tuple, first + 2, row->grants, sizeof(row->grants), &row->grants_len);
    fits &=
        take_bytes(result, tuple, first + 5, row->waiters, sizeof(row->waiters), &row->waiters_len);
    fits &= take_bytes(result, tuple, first + 6, row->note, sizeof(row->note), &row->note_len);
    return fits && *now_us > 0 && rowlease_valid(row);
}

static void take_read(struct request *request, struct sql_result *to)
{
    struct sql_locks *locks = request->base.locks;
    to->insane = PQntuples(pg_request(request)->result) != 1 ||
                 !take_row(pg_request(request)->result, 0, 0, &locks->row, &to->now_us);
    to->wall_us = to->now_us + EPOCH_US;
    if (!to->insane)
        known_note(request, locks->row.exists);
}

static void take_list(struct request *request)
{
    const PGresult *result = pg_request(request)->result;
    int64_t now_us;
    for (int i = 0; i < PQntuples(result); i++)
        if (take_row(result, i, 1, &request->base.locks->row,
                     &now_us)) /* otherwise an op for that name reports it */
            locks_list_row(&request->base, PQgetvalue(result, i, 0),
                           (size_t)PQgetlength(result, i, 0), now_us);
}

/* A finding about the connection itself (driver.h, MORTISE_OP_PING). With `pooler = no`, the driver takes any server process
 * for its own, even if there is a pooler in between. */
static const char *pooler_finding(struct link *link)
{
    bool trusted = driver_of(link)->values[OPTION_POOLER].number == POOLER_NO;
    if (pg_link(link)->pooled)
        return " | note: the connection is through a pooler that shares connections: waiters look "
               "at the lock again and again, so a release is seen late, and clients without the "
               "pooler get the lock first; connect all clients in the same way";
    if (trusted && link->session.id != 0 &&
        link->session.id != (int64_t)PQbackendPID(pg_link(link)->conn))
        return " | note: the connection is through a pooler, and pooler = no: that is right in "
               "session mode only, because in transaction mode settings and requests reach the "
               "sessions of others; without session mode, remove pooler = no";
    return "";
}

static void take_ping(struct request *request)
{
    const PGresult *result = pg_request(request)->result;
    mortise_op *op = request->base.op;
    char where[200];
    bool there = PQntuples(result) == 1;
    PGconn *conn = pg_link(request->link)->conn;
    if (op == NULL)
        return;
    snprintf(
        op->buffer, op->buffer_size, "PostgreSQL %s, %s, %s, database %s, schema %s, layout %s%s%s",
        there ? PQgetvalue(result, 0, 0) : "?",
        connection_where(request->link, where, sizeof(where)), PQsslInUse(conn) ? "TLS" : "no TLS",
        PQdb(conn), driver_of(request->link)->schema, there ? PQgetvalue(result, 0, 1) : "?",
        there ? PQgetvalue(result, 0, 2) : "", pooler_finding(request->link));
}

static void take_result(struct request *request, struct sql_result *to)
{
    struct sql_request *base = &request->base;
    const PGresult *result = pg_request(request)->result;
    bool touched = PQntuples(result) == 1;
    *to = (struct sql_result){.touched = touched};
    switch (base->step) {
    case SQL_TAKE:
        to->version = touched ? result_int8(result, 0, 0) : 0;
        if (touched && pg_request(request)->text == TEXT_ACQUIRE_NEW)
            known_note(request, true);
        return;
    case SQL_GIVE:
        to->waiters_len = touched ? (size_t)PQgetlength(result, 0, 0) : 0;
        to->waiters = touched ? (const unsigned char *)PQgetvalue(result, 0, 0) : NULL;
        base->notified = touched && to->waiters_len > 0 && !request->quiet;
        return;
    case SQL_READ:
        take_read(request, to);
        return;
    case SQL_WRITE:
        base->notified = touched && base->wakes && !request->quiet;
        return;
    case SQL_APPEND:
    case SQL_BAR:
        if (touched) {
            int64_t us = result_time(result, 0, 0) - result_time(result, 0, 1);
            to->hint_ms = us > 0 ? (us + 999) / 1000 : 1;
            to->version = result_int8(result, 0, 2);
        }
        return;
    case SQL_LIST:
        take_list(request);
        return;
    case SQL_PING:
        take_ping(request);
        return;
    case SQL_RECORD_READ:
        if (touched)
            locks_record(base, result_int8(result, 0, 0), PQgetvalue(result, 0, 1),
                         (size_t)PQgetlength(result, 0, 1));
        return;
    case SQL_RECORD_WRITE:
        to->version = touched ? result_int8(result, 0, 0) : 0;
        return;
    case SQL_EXTEND:
        return;
    }
}

/* ---- what becomes of a request --------------------------------------------------------------------- */

/* Only now the kind of the connection is known. */
static void sending(struct request *request)
{
    op_sending(request);
    if (request->base.step == SQL_RECORD_READ)
        pg_request(request)->text =
            is_haunted(driver_of(request->link)) ? TEXT_RECORD_AWAIT : TEXT_RECORD_READ;
}

static void answered(struct request *request)
{
    struct sql_request *base = &request->base;
    take_result(request, &base->locks->result);
    if (locks_step(base) == SQL_AGAIN)
        run(base);
    else
        locks_tell(base);
}

static void silence(struct request *request)
{
    struct args *args = &pg_request(request)->args;
    request->quiet = true;
    if (pg_request(request)->text == TEXT_RELEASE)
        args->numbers[4][0] = 0;
    else if (pg_request(request)->text == TEXT_SWAP || pg_request(request)->text == TEXT_SWAP_LAZY)
        args->values[12] = NULL;
}

static const struct handler handler = {.sending = sending,
                                       .answered = answered,
                                       .failed = op_failed,
                                       .lost = op_lost,
                                       .silence = silence};

/* ---- the table --------------------------------------------------------------------------------- */

static void clear(struct sql_request *base)
{
    struct request *request = (struct request *)base;
    PQclear(pg_request(request)->result);
    args_begin(&pg_request(request)->args);
}

/* LISTEN is sent on the second connection; link.h says when. */
static bool hear(struct sql_locks *locks, bool dropped)
{
    struct driver *driver = (struct driver *)locks;
    (void)dropped;
    bool can = driver->values[OPTION_POOLER].number != POOLER_YES && !driver->main.pooled &&
               !driver->live.pooled;
    driver->listen_wanted = driver->listen_wanted || can;
    return can;
}

const struct sql_dialect postgres_dialect = {
    .request_size = sizeof(struct pg_request),
    .quick = true,
    .append = true, /* a row that changes hands within one process changes after each READ */
    .visible_is_safe = false, /* a synchronous standby may lack it: see protocol.md */
    .run = run,
    .cancel = op_cancel,
    .clear = clear,
    .notify = notify_inbox,
    .hear = hear,
    .where = op_where,
};
