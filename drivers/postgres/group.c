/* group.c - sends a group as a pipeline with one sync, which the server executes as one transaction, and takes the results
 * of its statements. protocol.md says what a group is, and why. */
#include "driver.h"

#include <stdio.h>
#include <string.h>

/* ---- values of results, in PostgreSQL's own binary form ------------------------------------------- */

int64_t result_int8(const PGresult *result, int tuple, int column)
{
    const unsigned char *at = (const unsigned char *)PQgetvalue(result, tuple, column);
    uint64_t value = 0;
    if (PQgetlength(result, tuple, column) != 8)
        return 0;
    for (int i = 0; i < 8; i++)
        value = value << 8 | at[i];
    return (int64_t)value;
}

int64_t result_time(const PGresult *result, int tuple, int column)
{
    int64_t us = result_int8(result, tuple, column);
    return us == INT64_MIN ? 0 : us;
}

/* ---- statements -------------------------------------------------------------------------------- */

void statement_forget(struct request *request)
{
    struct pg_request *mine = pg_request(request);
    PQclear(mine->result);
    mine->result = NULL;
}

void statement_send(struct request *request, enum text text, enum lane lane)
{
    pg_request(request)->text = text;
    statement_queue(request, lane);
}

/* ---- a group is sent --------------------------------------------------------------------------- */

/* The largest size on the wire: Bind, Describe, Execute; behind a pooler also Parse before them. */
size_t group_size(const struct link *link, const struct request *request)
{
    bool pooled = pg_link_const(link)->pooled;
    if (request == NULL)
        return pooled ? 1300 : 16;
    const struct pg_request *mine = pg_request_const(request);
    const struct sql_text *text = &sql_texts[mine->text];
    size_t each = 10 * (size_t)mine->args.count;
    size_t size = 64 + strlen(text->name) + mine->args.bytes + each;
    if (mine->text == TEXT_SWEEP)
        size += 64 + strlen(sql_in_order);
    return pooled ? size + strlen(text->text) : size;
}

bool group_is_open(const struct link *link, enum lane lane)
{
    if (pg_link_const(link)->unflushed)
        return false;
    if (lane == LANE_LAZY)
        return flight_count(link, lane) < LAZY_GROUPS_MAX;
    return queue_ready(link, LANE_LAZY) == NULL && flight_count(link, lane) == 0;
}

int64_t group_patience_ns(const struct remote *remote)
{
    return remote->command_ms * NS_PER_MS / 4;
}

static bool send_settings(struct pg_link *mine)
{
    const struct driver *driver = driver_of(&mine->link);
    char lock_ms[24], statement_ms[24];
    const char *const values[] = {lock_ms, statement_ms, driver->schema};
    snprintf(lock_ms, sizeof(lock_ms), "%lld", (long long)driver->remote.pause_ms);
    snprintf(statement_ms, sizeof(statement_ms), "%lld", (long long)driver->remote.command_ms);
    return PQsendQueryParams(mine->conn, sql_settings, 3, NULL, values, NULL, NULL, 1) == 1;
}

/* The server read its clock before we received the reading. So when our clock is at sent_ns + patience, the server's has
 * passed the instant that is sent here. */
static bool send_in_time(struct pg_link *mine, int64_t sent_ns)
{
    static const int formats[] = {1};
    int64_t patience_ns = group_patience_ns(mine->link.remote);
    const Oid oid = sql_oid('t');
    struct args args = {.count = 0};
    args_time(&args, mine->clock_us + (sent_ns - mine->clock_ns + patience_ns) / 1000);
    return PQsendQueryParams(mine->conn, sql_in_time, 1, &oid, args.values, args.lengths, formats,
                             1) == 1;
}

static const int formats_max[ARGS_MAX] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

static bool send_unprepared(struct pg_link *mine, const struct pg_request *request)
{
    const struct sql_text *text = &sql_texts[request->text];
    const struct args *args = &request->args;
    Oid oids[ARGS_MAX];
    for (int i = 0; i < args->count; i++)
        oids[i] = sql_oid(text->types[i]);
    return PQsendQueryParams(mine->conn, text->text, args->count, oids, args->values, args->lengths,
                             formats_max, 1) == 1;
}

static bool send_statement(struct pg_link *mine, const struct pg_request *request)
{
    const struct args *args = &request->args;
    if (mine->pooled)
        return send_unprepared(mine, request);
    return PQsendQueryPrepared(mine->conn, sql_texts[request->text].name, args->count, args->values,
                               args->lengths, formats_max, 1) == 1;
}

bool group_flush(struct link *link)
{
    struct pg_link *mine = pg_link(link);
    int left = PQflush(mine->conn);
    mine->unflushed = left > 0;
    mine->events = (short)(POLLIN | (left > 0 ? POLLOUT : 0));
    return left >= 0;
}

static bool send_in_order(struct pg_link *mine)
{
    return PQsendQueryParams(mine->conn, sql_in_order, 0, NULL, NULL, NULL, NULL, 1) == 1;
}

/* Whether the group is a stretch of a sweep, which goes alone. */
static bool is_stretch(const struct group *group)
{
    return group->count > 0 && pg_request_const(group->requests[0])->text == TEXT_SWEEP;
}

/* Behind a pooler, there is one statement before those of the requests, and one after them if they write. Before a stretch of
 * a sweep, there is one statement. */
static size_t lead_of(const struct pg_link *mine, const struct group *group)
{
    return (size_t)mine->pooled + is_stretch(group);
}

static size_t tail_of(const struct pg_link *mine, const struct group *group)
{
    return mine->pooled && group->lane != LANE_READING;
}

bool group_send(struct link *link, struct group *group)
{
    struct pg_link *mine = pg_link(link);
    bool sent = !mine->pooled || send_settings(mine);
    if (sent && is_stretch(group))
        sent = send_in_order(mine);
    for (size_t i = 0; i < group->count && sent; i++)
        sent = send_statement(mine, pg_request_const(group->requests[i]));
    if (sent && tail_of(mine, group) > 0)
        sent = send_in_time(mine, group->sent_ns);
    if (sent && PQpipelineSync(mine->conn) == 1 && group_flush(link))
        return true;
    link_lose_why(link, PQerrorMessage(mine->conn));
    return false;
}

/* ---- results come back ------------------------------------------------------------------------- */

/* Takes a fresh reading of the server's clock, because over days the two clocks drift apart. */
static void take_clock(struct pg_link *mine, const PGresult *result)
{
    int64_t clock_us = result_time(result, 0, 0);
    if (clock_us == 0)
        return;
    mine->clock_us = clock_us;
    mine->clock_ns = remote_now(mine->link.remote);
}

static void note_failure(const struct pg_link *mine, struct group *group, const PGresult *result)
{
    size_t lead = lead_of(mine, group), at = mine->at - lead;
    group->failed = true;
    group->failed_at = mine->at < lead || at > group->count ? group->count : at;
    fault_read(result, &group->fault);
}

static void keep_result(struct pg_link *mine, struct group *group, PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);
    bool fine = status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK;
    size_t lead = lead_of(mine, group);
    mine->got = true;
    if (!fine && status != PGRES_PIPELINE_ABORTED && !group->failed)
        note_failure(mine, group, result);
    if (fine && tail_of(mine, group) > 0 && mine->at == lead + group->count)
        take_clock(mine, result);
    bool is_request = fine && mine->at >= lead && mine->at - lead < group->count;
    struct pg_request *request = is_request ? pg_request(group->requests[mine->at - lead]) : NULL;
    if (request != NULL && request->result == NULL)
        request->result = result;
    else
        PQclear(result);
}

/* Whether it is an error of libpq itself: there was no memory for the server's answer. Nobody knows what the answer was. */
static bool is_unread(const PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);
    return (status == PGRES_FATAL_ERROR || status == PGRES_BAD_RESPONSE) &&
           PQresultErrorField(result, PG_DIAG_SQLSTATE) == NULL;
}

static bool lose_unread(struct link *link, PGresult *result)
{
    link_lose_why(link, PQresultErrorMessage(result));
    PQclear(result);
    return false;
}

bool group_result(struct link *link, PGresult *result)
{
    struct pg_link *mine = pg_link(link);
    if (link->group_count == 0) {
        PQclear(result); /* the end of the setup, or the server's last message */
        return true;
    }
    struct group *group = flight_group(link);
    if (result == NULL) {
        mine->at += mine->got;
        mine->got = false;
        return true;
    }
    if (is_unread(result))
        return lose_unread(link, result);
    if (PQresultStatus(result) != PGRES_PIPELINE_SYNC) {
        keep_result(mine, group, result);
        return true;
    }
    PQclear(result);
    bool whole =
        group->failed || mine->at == lead_of(mine, group) + group->count + tail_of(mine, group);
    mine->at = 0;
    mine->got = false;
    if (!whole || mine->unconfirmed) {
        link_lose_why(link, whole ? "the server no longer waits for its synchronous standby"
                                  : "answers are missing");
        return false;
    }
    return flight_done(link);
}
