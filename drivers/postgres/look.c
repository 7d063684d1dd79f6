/* look.c - inspect, list and ping: reading only. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

void look_tell(const struct rowlease_row *row, int64_t now_us, const void *name, size_t name_len,
               mortise_info *info)
{
    if (name_len > MORTISE_NAME_MAX)
        name_len = MORTISE_NAME_MAX;
    memcpy(info->name, name, name_len);
    info->name[name_len] = '\0';
    rowlease_inspect(row, now_us, info);
}

/* Behind a pooler waiters stand in no list. */
static void look_waiters(const struct driver *driver, mortise_info *info)
{
    if (driver->main.pooled)
        info->waiters = -1;
}

/* The first name after all that begin with the prefix: the prefix with its last byte that is not 0xff
 * raised, and cut there. 0: there is none, every later name begins with it. */
static size_t end_of_prefix(const char *prefix, size_t len, char *end)
{
    while (len > 0 && (unsigned char)prefix[len - 1] == 0xff)
        len--;
    if (len == 0)
        return 0;
    memcpy(end, prefix, len);
    end[len - 1] = (char)((unsigned char)end[len - 1] + 1);
    return len;
}

static void start_list(struct request *request)
{
    const mortise_op *op = request->op;
    char end[MORTISE_NAME_MAX];
    size_t end_len = end_of_prefix(op->name, op->name_len, end);
    args_begin(&request->args);
    args_bytes(&request->args, op->name, op->name_len);
    args_bytes_or_null(&request->args, end, end_len);
    if (args_keep(&request->args))
        request_send(request, STEP_QUICK, SQL_LIST, LANE_READING);
    else
        request_done(request, MORTISE_NOMEM);
}

void look_start(struct request *request)
{
    const mortise_op *op = request->op;
    if (op->kind == MORTISE_OP_INSPECT) {
        row_read(request, op->name, op->name_len);
    } else if (op->kind == MORTISE_OP_LIST) {
        start_list(request);
    } else {
        args_begin(&request->args);
        request_send(request, STEP_QUICK, SQL_PING, LANE_READING);
    }
}

/* One snapshot: names that come and go meanwhile are neither missed nor told twice. */
static void listed(struct request *request)
{
    struct driver *driver = request->driver;
    const PGresult *result = request->result;
    mortise_info info = {.size = sizeof(info)};
    int64_t now_us;
    for (int i = 0; i < PQntuples(result); i++) {
        if (!row_take(result, i, 1, &driver->row, &now_us))
            continue; /* whoever asks for that name is told */
        look_tell(&driver->row, now_us, PQgetvalue(result, i, 0), (size_t)PQgetlength(result, i, 0),
                  &info);
        look_waiters(driver, &info);
        driver->host->emit(driver->host, request->op, &info);
    }
}

static void pinged(struct request *request)
{
    const PGresult *result = request->result;
    mortise_op *op = request->op;
    char where[200];
    bool there = PQntuples(result) == 1;
    PGconn *conn = request->link->conn;
    snprintf(op->buffer, op->buffer_size,
             "PostgreSQL %s, %s, %s, database %s, schema %s, layout %s",
             there ? PQgetvalue(result, 0, 0) : "?",
             link_where(request->link, where, sizeof(where)), PQsslInUse(conn) ? "TLS" : "no TLS",
             PQdb(conn), request->driver->schema, there ? PQgetvalue(result, 0, 1) : "?");
}

void look_answered(struct request *request)
{
    mortise_op *op = request->op;
    if (op == NULL) {
        request_done(request, MORTISE_CANCELED);
        return;
    }
    if (op->kind == MORTISE_OP_INSPECT) {
        if (!row_was_read(request))
            return;
        look_tell(&request->driver->row, request->now_us, op->name, op->name_len, op->info);
        look_waiters(request->driver, op->info);
    } else if (op->kind == MORTISE_OP_LIST) {
        listed(request);
    } else {
        pinged(request);
    }
    request_done(request, MORTISE_OK);
}
