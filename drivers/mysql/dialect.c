/* dialect.c - the steps of drivers/lib/sql as statements of MySQL, and their results. The texts are in sql.c;
 * protocol.md says what each step promises. */
#include "driver.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct handler handler;

/* ---- values ------------------------------------------------------------------------------------ */

static enum text_id fill_write(const struct my_request *mine, struct values *values)
{
    const struct sql_locks *locks = mine->request.base.locks;
    bind_name(&text_binder, values, &mine->request);
    bind_row(&text_binder, values, &locks->next);
    if (!locks->row.exists)
        return TEXT_INSERT;
    value_number(values, locks->row.version);
    value_number(values, mine->revision);
    return TEXT_SWAP;
}

static enum text_id fill(const struct request *request, struct values *values, char *end)
{
    const mortise_op *op = request->base.op;
    switch (request->base.step) {
    case SQL_TAKE:
        bind_take(&text_binder, values, request);
        return known_has((const struct remote *)request->base.locks, op) ? TEXT_ACQUIRE
                                                                         : TEXT_ACQUIRE_NEW;
    case SQL_EXTEND:
        bind_claim(&text_binder, values, request);
        value_number(values, rowlease_ttl_us(op));
        return TEXT_RENEW;
    case SQL_GIVE:
        bind_claim(&text_binder, values, request);
        return TEXT_RELEASE;
    case SQL_WRITE:
        return fill_write(my_request_const(request), values);
    case SQL_BAR:
        bind_name(&text_binder, values, request);
        value_bytes(values, ROWLEASE_SHARED, ROWLEASE_SHARED_SIZE);
        return TEXT_BAR;
    case SQL_LIST:
        bind_list(&text_binder, values, request, end);
        return TEXT_NAMES;
    case SQL_PING:
        return TEXT_VERSION;
    case SQL_RECORD_WRITE:
        bind_record(&text_binder, values, request);
        return op->record_version == 0 ? TEXT_RECORD_MAKE : TEXT_RECORD_SWAP;
    default: /* SQL_APPEND never comes, because nobody can be notified */
        bind_name(&text_binder, values, request);
        return request->base.step == SQL_RECORD_READ ? TEXT_RECORD_LOOK : TEXT_LOOK;
    }
}

static void run(struct sql_request *base)
{
    static const struct sql_fault no_memory = {
        .status = MORTISE_NOMEM, .retryable = true, .text = "out of memory"};
    struct request *request = (struct request *)base;
    struct values values = {.count = 0};
    char end[MORTISE_NAME_MAX];
    request->handler = &handler;
    request->settles = base->step == SQL_RECORD_READ;
    enum text_id id = fill(request, &values, end);
    if (!statement_send(request, id, &values)) {
        locks_fail(base, MORTISE_NOMEM, &no_memory);
        return;
    }
    request->not_before_ns = locks_look_due(base); /* a caller that waits looks when that is due */
    op_pause(request);
}

/* ---- results ----------------------------------------------------------------------------------- */

struct cells {
    MYSQL_ROW texts;
    const unsigned long *lengths;
};

/* Takes the next row. False: there is none with so many columns. */
static bool next_cells(MYSQL_RES *rows, unsigned columns, struct cells *cells)
{
    if (rows == NULL || mysql_num_fields(rows) != columns)
        return false;
    cells->texts = mysql_fetch_row(rows);
    cells->lengths = mysql_fetch_lengths(rows);
    return cells->texts != NULL && cells->lengths != NULL;
}

static int64_t number(const struct cells *cells, size_t i)
{
    return cells->texts[i] != NULL ? strtoll(cells->texts[i], NULL, 10) : 0;
}

/* Copies a cell. False: it is too long. Null counts as 0 bytes. */
static bool take_bytes(const struct cells *cells, size_t i, void *to, size_t size, size_t *len)
{
    *len = cells->texts[i] != NULL ? cells->lengths[i] : 0;
    if (*len > size)
        return false;
    if (*len > 0)
        memcpy(to, cells->texts[i], *len);
    return true;
}

/* Takes the columns after the clock. False: they make no sense. */
static bool take_row(const struct cells *cells, size_t first, struct rowlease_row *row)
{
    row->exists = cells->texts[first] != NULL;
    row->version = number(cells, first);
    row->owned = cells->texts[first + 1] != NULL;
    row->acquired_us = number(cells, first + 3);
    row->expires_us = number(cells, first + 4);
    bool fits = take_bytes(cells, first + 1, row->owner, sizeof(row->owner), &row->owner_len);
    fits &= take_bytes(cells, first + 2, row->grants, sizeof(row->grants), &row->grants_len);
    fits &= take_bytes(cells, first + 5, row->waiters, sizeof(row->waiters), &row->waiters_len);
    fits &= take_bytes(cells, first + 6, row->note, sizeof(row->note), &row->note_len);
    return fits && rowlease_valid(row);
}

/* False: the server is read-only by now, and the link must be given up. */
static bool take_look(struct request *request, struct sql_result *to)
{
    struct sql_locks *locks = request->base.locks;
    struct cells cells;
    to->insane = true;
    if (!next_cells(my_request(request)->rows, 10, &cells))
        return true;
    if (number(&cells, 0) != 1)
        return false;
    to->now_us = to->wall_us = number(&cells, 1);
    to->insane = !take_row(&cells, 2, &locks->row) || to->now_us <= 0;
    my_request(request)->revision = number(&cells, 9);
    if (!to->insane)
        known_note(request, locks->row.exists);
    return true;
}

/* False: the server is read-only by now. */
static bool take_names(struct request *request)
{
    struct cells cells;
    if (!next_cells(my_request(request)->rows_before, 1, &cells) || number(&cells, 0) != 1)
        return false;
    /* A row that makes no sense is left out: a caller that asks for its name gets an error. */
    while (next_cells(my_request(request)->rows, 9, &cells))
        if (cells.texts[0] != NULL && take_row(&cells, 2, &request->base.locks->row))
            locks_list_row(&request->base, cells.texts[0], cells.lengths[0], number(&cells, 1));
    return true;
}

/* False: the server is read-only by now. */
static bool take_ping(const struct request *request)
{
    const struct driver *driver = driver_of(request->link);
    mortise_op *op = request->base.op;
    MYSQL_RES *rows = my_request_const(request)->rows;
    struct cells cells;
    char where[200];
    bool all = rows != NULL && mysql_num_fields(rows) == SETTING_COUNT;
    unsigned columns = all ? SETTING_COUNT : SETTING_ALL_HAVE;
    bool there = next_cells(rows, columns, &cells);
    if (there && number(&cells, SETTING_WRITABLE) != 1)
        return false;
    if (op == NULL)
        return true;
    snprintf(op->buffer, op->buffer_size,
             "MySQL protocol, server %.80s, %s, %s, database %.64s, layout %.20s%s%s",
             there && cells.texts[SETTING_VERSION] != NULL ? cells.texts[SETTING_VERSION] : "?",
             connection_where(request->link, where, sizeof(where)),
             conn_has_tls(&my_link(request->link)->conn) ? "TLS" : "no TLS",
             my_link(request->link)->conn.target.database,
             there && cells.texts[SETTING_LAYOUT] != NULL ? cells.texts[SETTING_LAYOUT] : "?",
             driver->durable[0] != '\0' ? ", not durable: " : "", driver->durable);
    if (there)
        findings_add(op, (const char *const *)cells.texts, columns);
    return true;
}

/* False: the server is read-only by now. */
static bool take_record(struct request *request)
{
    struct cells cells;
    if (!next_cells(my_request(request)->rows, 3, &cells)) {
        request->base.answer =
            (struct rowlease_answer){.status = MORTISE_BACKEND,
                                     .trouble = "the row makes no sense; was it written by hand?"};
        return true;
    }
    if (number(&cells, 0) != 1)
        return false;
    if (cells.texts[1] != NULL)
        locks_record(&request->base, number(&cells, 1), cells.texts[2],
                     cells.texts[2] != NULL ? cells.lengths[2] : 0);
    return true;
}

static bool take_result(struct request *request, struct sql_result *to)
{
    struct sql_request *base = &request->base;
    *to = (struct sql_result){.touched = my_request(request)->touched > 0};
    switch (base->step) {
    case SQL_TAKE:
        to->version = to->touched ? (int64_t)my_request(request)->insert_id : 0;
        if (to->touched)
            known_note(request, true);
        return true;
    case SQL_READ:
        return take_look(request, to);
    case SQL_LIST:
        return take_names(request);
    case SQL_PING:
        return take_ping(request);
    case SQL_RECORD_READ:
        return take_record(request);
    case SQL_RECORD_WRITE:
        to->version = base->op != NULL ? (int64_t)base->op->record_version + 1 : 0;
        return true;
    default:
        return true;
    }
}

/* ---- what becomes of a request --------------------------------------------------------------------- */

static void answered(struct request *request)
{
    struct sql_request *base = &request->base;
    if (!take_result(request, &base->locks->result)) {
        struct link *link = request->link;
        char where[200];
        fault_error(&link->remote->trouble, DRIVER_NAME, MORTISE_UNREACHABLE, 0, true,
                    "%s: the server is read-only", connection_where(link, where, sizeof(where)));
        my_link(link)->stale = true;
        op_lost(request, true);
    } else if (locks_step(base) == SQL_AGAIN) {
        run(base);
    } else {
        locks_tell(base);
    }
}

static const struct handler handler = {
    .sending = op_sending, .answered = answered, .failed = op_failed, .lost = op_lost};

/* ---- the table --------------------------------------------------------------------------------- */

static void clear(struct sql_request *base)
{
    struct request *request = (struct request *)base;
    statement_forget(request);
    text_free(&my_request(request)->text);
}

/* Nobody is notified. */
static bool hear(struct sql_locks *locks, bool dropped)
{
    (void)locks;
    (void)dropped;
    return false;
}

static enum sql_notified notify(struct sql_locks *locks, const struct rowlease_inbox *inbox,
                                const char *name, size_t name_len)
{
    (void)locks;
    (void)inbox;
    (void)name;
    (void)name_len;
    return SQL_NOT_YET;
}

const struct sql_dialect mysql_dialect = {
    .request_size = sizeof(struct my_request),
    .quick = true,
    .append = true, /* for BAR: while readers come and go, a WRITE would fail too often */
    .visible_is_safe =
        false, /* a change is visible before the log is on the disk: see protocol.md */
    .run = run,
    .cancel = op_cancel,
    .clear = clear,
    .notify = notify,
    .hear = hear,
    .hasten = op_hasten,
    .where = op_where,
};
