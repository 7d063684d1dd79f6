/* dialect.c - the steps of drivers/lib/sql as statements of PostgreSQL, and their results. The texts are in sql.c;
 * protocol.md says what each promises. */
#include "driver.h"

#include <stdio.h>
#include <string.h>

#define EPOCH_US INT64_C(946684800000000) /* 2000-01-01, PostgreSQL's, since 1970 */
#define PAUSE_MIN_NS (2 * NS_PER_MS)
#define PAUSE_STEPS 6 /* doublings, to 128 ms */

static const struct handler handler;

/* ---- names whose rows are there ------------------------------------------------------------------- */

/* Looking for a row that need not be made costs the server a tenth of the cycle. Names that share a place push each other
 * out; one that looks like another costs a READ more. */
static uint32_t *known_place(struct driver *driver, const mortise_op *op, uint32_t *mark)
{
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (size_t i = 0; i < op->name_len; i++)
        hash = (hash ^ (unsigned char)op->name[i]) * UINT64_C(1099511628211);
    *mark = (uint32_t)(hash >> 32) | 1;
    return &driver->known[hash % KNOWN_MAX];
}

static bool is_known(struct driver *driver, const mortise_op *op)
{
    uint32_t mark;
    return *known_place(driver, op, &mark) == mark;
}

static void note_known(const struct request *request, bool there)
{
    uint32_t mark, *place;
    if (request->base.kind != MORTISE_OP_ACQUIRE || request->base.op == NULL)
        return;
    place = known_place(statement_driver(request), request->base.op, &mark);
    *place = there ? mark : 0;
}

/* ---- arguments --------------------------------------------------------------------------------- */

static void bind_take(struct request *request)
{
    const mortise_op *op = request->base.op;
    struct args *args = &request->args;
    struct driver *driver = statement_driver(request);
    size_t note_len = op->note_len < MORTISE_NOTE_MAX ? op->note_len : MORTISE_NOTE_MAX;
    args_bytes(args, op->name, op->name_len);
    args_int8(args, (int64_t)op->token_floor);
    args_bytes(args, op->grant.bytes, MORTISE_GRANT_ID_SIZE);
    args_interval(args, rowlease_ttl_us(op));
    args_bytes_or_null(args, op->note, note_len);
    if (request->base.first)
        args_bytes(args, driver->locks.inbox.bytes, ROWLEASE_INBOX_SIZE);
    statement_send(request,
                   request->base.first    ? TEXT_ACQUIRE_NEXT
                   : is_known(driver, op) ? TEXT_ACQUIRE
                                          : TEXT_ACQUIRE_NEW,
                   LANE_DURABLE);
}

static void bind_claim(struct args *args, const mortise_op *op)
{
    args_bytes(args, op->name, op->name_len);
    args_int8(args, (int64_t)op->token);
    args_bytes(args, op->grant.bytes, MORTISE_GRANT_ID_SIZE);
}

static void bind_extend(struct request *request)
{
    bind_claim(&request->args, request->base.op);
    args_interval(&request->args, rowlease_ttl_us(request->base.op));
    statement_send(request, TEXT_RENEW, LANE_DURABLE);
}

static void bind_give(struct request *request)
{
    bind_claim(&request->args, request->base.op);
    args_interval(&request->args, request->base.locks->reserve_us);
    args_bool(&request->args, !request->quiet);
    statement_send(request, TEXT_RELEASE, LANE_LAZY);
}

/* Those that write the same row would all be in each other's way, so after the second WRITE in vain there is a pause. It grows,
 * and is not the same for any two. */
static void bind_read(struct request *request)
{
    struct sql_locks *locks = request->base.locks;
    unsigned swaps = request->base.swaps;
    size_t len;
    const char *name = request_name(&request->base, &len);
    args_bytes(&request->args, name, len);
    statement_send(request, TEXT_READ, LANE_READING);
    if (swaps < 2)
        return;
    unsigned steps = swaps - 2 < PAUSE_STEPS ? swaps - 2 : PAUSE_STEPS;
    request->not_before_ns =
        locks->host->now(locks->host) + locks_jitter(locks, PAUSE_MIN_NS << steps);
}

static void bind_row(struct args *args, const struct rowlease_row *row)
{
    args_int8(args, row->version);
    args_bytes_or_null(args, row->owner, row->owned ? row->owner_len : 0);
    args_bytes_or_null(args, row->grants, row->grants_len);
    args_time(args, row->acquired_us);
    args_time(args, row->expires_us);
    args_bytes_or_null(args, row->waiters, row->waiters_len);
    args_bytes_or_null(args, row->note, row->note_len);
}

/* Version, grants, expiry and waiters are the whole state: owner and note change with the grants. */
static void bind_old(struct args *args, const struct rowlease_row *row)
{
    args_int8(args, row->version);
    args_bytes_or_null(args, row->grants, row->grants_len);
    args_time(args, row->expires_us);
    args_bytes_or_null(args, row->waiters, row->waiters_len);
}

/* What is bound must outlive the rows of `locks`. */
static void send_copy(struct request *request, enum text text, enum lane lane)
{
    static const struct sql_fault no_memory = {
        .status = MORTISE_NOMEM, .retryable = true, .text = "out of memory"};
    if (args_keep(&request->args))
        statement_send(request, text, lane);
    else
        locks_fail(&request->base, MORTISE_NOMEM, &no_memory);
}

/* The first waiter is notified in the same transaction: this process may die right after it, and nobody else would notify
 * it. Only what is lazy wakes anybody. */
static void bind_write(struct request *request)
{
    const struct sql_locks *locks = request->base.locks;
    struct args *args = &request->args;
    bool notify = request->base.wakes && !request->quiet;
    char channel[CHANNEL_SIZE], payload[PAYLOAD_SIZE];
    size_t len;
    const char *name = request_name(&request->base, &len);
    args_bytes(args, name, len);
    bind_row(args, &locks->next);
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
static void bind_append(struct request *request)
{
    const mortise_op *op = request->base.op;
    struct args *args = &request->args;
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

static void bind_bar(struct request *request)
{
    struct sql_request *base = &request->base;
    struct args *args = &request->args;
    size_t len;
    const char *name = request_name(base, &len);
    args_bytes(args, name, len);
    args_bytes(args, ROWLEASE_SHARED, ROWLEASE_SHARED_SIZE);
    args_bytes_or_null(args, base->locks->inbox.bytes,
                       base->answer.registered ? ROWLEASE_INBOX_SIZE : 0);
    statement_send(request, TEXT_BAR, LANE_LAZY);
}

static void bind_list(struct request *request)
{
    const mortise_op *op = request->base.op;
    char end[MORTISE_NAME_MAX];
    size_t end_len = locks_end_of_prefix(op->name, op->name_len, end);
    args_bytes(&request->args, op->name, op->name_len);
    args_bytes_or_null(&request->args, end, end_len);
    send_copy(request, TEXT_LIST, LANE_READING);
}

/* Reading is durable, too: see protocol.md. */
static void bind_record_read(struct request *request)
{
    const mortise_op *op = request->base.op;
    args_bytes(&request->args, op->name, op->name_len);
    request->settles = true;
    statement_send(request, TEXT_RECORD_READ, LANE_DURABLE);
}

static void bind_record_write(struct request *request)
{
    const mortise_op *op = request->base.op;
    args_bytes(&request->args, op->name, op->name_len);
    args_bytes(&request->args, op->record, op->record_size);
    if (op->record_version > 0)
        args_int8(&request->args, (int64_t)op->record_version);
    statement_send(request, op->record_version > 0 ? TEXT_RECORD_WRITE : TEXT_RECORD_MAKE,
                   LANE_DURABLE);
}

static void run(struct sql_request *base)
{
    struct request *request = (struct request *)base;
    request->handler = &handler;
    args_begin(&request->args);
    switch (base->step) {
    case SQL_TAKE:
        bind_take(request);
        return;
    case SQL_EXTEND:
        bind_extend(request);
        return;
    case SQL_GIVE:
        bind_give(request);
        return;
    case SQL_READ:
        bind_read(request);
        return;
    case SQL_WRITE:
        bind_write(request);
        return;
    case SQL_APPEND:
        bind_append(request);
        return;
    case SQL_BAR:
        bind_bar(request);
        return;
    case SQL_LIST:
        bind_list(request);
        return;
    case SQL_PING:
        statement_send(request, TEXT_PING, LANE_READING);
        return;
    case SQL_RECORD_READ:
        bind_record_read(request);
        return;
    case SQL_RECORD_WRITE:
        bind_record_write(request);
    }
}

/* ---- results ----------------------------------------------------------------------------------- */

/* A bytea; false: it is longer than it may be. Null is 0 bytes. */
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

/* From the columns of READ or LIST, the first of which is `first`; false: it makes no sense. */
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
    to->insane = PQntuples(request->result) != 1 ||
                 !take_row(request->result, 0, 0, &locks->row, &to->now_us);
    to->wall_us = to->now_us + EPOCH_US;
    if (!to->insane)
        note_known(request, locks->row.exists);
}

static void take_list(struct request *request)
{
    const PGresult *result = request->result;
    int64_t now_us;
    for (int i = 0; i < PQntuples(result); i++)
        if (take_row(result, i, 1, &request->base.locks->row,
                     &now_us)) /* else: who asks for it is told */
            locks_list_row(&request->base, PQgetvalue(result, i, 0),
                           (size_t)PQgetlength(result, i, 0), now_us);
}

static void take_ping(const struct request *request)
{
    const PGresult *result = request->result;
    mortise_op *op = request->base.op;
    char where[200];
    bool there = PQntuples(result) == 1;
    PGconn *conn = request->link->conn;
    if (op == NULL)
        return;
    snprintf(op->buffer, op->buffer_size,
             "PostgreSQL %s, %s, %s, database %s, schema %s, layout %s",
             there ? PQgetvalue(result, 0, 0) : "?",
             link_where(request->link, where, sizeof(where)), PQsslInUse(conn) ? "TLS" : "no TLS",
             PQdb(conn), statement_driver(request)->schema, there ? PQgetvalue(result, 0, 1) : "?");
}

static void take_result(struct request *request, struct sql_result *to)
{
    struct sql_request *base = &request->base;
    const PGresult *result = request->result;
    bool touched = PQntuples(result) == 1;
    *to = (struct sql_result){.touched = touched};
    switch (base->step) {
    case SQL_TAKE:
        to->version = touched ? result_int8(result, 0, 0) : 0;
        if (touched && request->text == TEXT_ACQUIRE_NEW)
            note_known(request, true);
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

static void sending(struct request *request)
{
    struct sql_request *base = &request->base;
    mortise_op *op = base->op;
    if (op != NULL && op->kind == MORTISE_OP_ACQUIRE && op->first_sent_ns == 0)
        op->first_sent_ns = base->sent_ns;
    if (op != NULL && op->kind == MORTISE_OP_RELEASE && base->step != SQL_WRITE)
        base->sure = !ghost_has(statement_driver(request), &base->grant);
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

static void failed(struct request *request, const struct fault *fault)
{
    locks_fail(&request->base, fault->base.status, &fault->base);
}

static void lost(struct request *request, bool sent)
{
    locks_lost(&request->base, sent, &statement_driver(request)->trouble);
}

static void silence(struct request *request)
{
    struct args *args = &request->args;
    request->quiet = true;
    if (request->text == TEXT_RELEASE)
        args->numbers[4][0] = 0;
    else if (request->text == TEXT_SWAP || request->text == TEXT_SWAP_LAZY)
        args->values[12] = NULL;
}

static const struct handler handler = {
    .sending = sending, .answered = answered, .failed = failed, .lost = lost, .silence = silence};

/* ---- the table --------------------------------------------------------------------------------- */

static void cancel(struct sql_request *base)
{
    struct request *request = (struct request *)base;
    if (base->flying)
        link_look_soon(request->link);
    else
        flight_unqueue(request);
}

static void clear(struct sql_request *base)
{
    struct request *request = (struct request *)base;
    PQclear(request->result);
    args_begin(&request->args);
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

static const char *where(const struct sql_request *base, char *text, size_t size)
{
    const struct request *request = (const struct request *)base;
    const struct driver *driver = statement_driver(request);
    return link_where(request->link != NULL ? request->link : &driver->main, text, size);
}

const struct sql_dialect postgres_dialect = {
    .request_size = sizeof(struct request),
    .quick = true,
    .append =
        true, /* a row that goes round within one process is another whenever it has been read */
    .visible_is_safe = false, /* a synchronous standby may lack it: see protocol.md */
    .run = run,
    .cancel = cancel,
    .clear = clear,
    .notify = notify_inbox,
    .hear = hear,
    .where = where,
};
