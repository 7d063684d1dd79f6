/* group.c - sends a group as one text, and takes the results of its statements. protocol.md says what a group is, and why. */
#include "driver.h"

#include <string.h>

#define ANSWER_BYTES 45 /* about the smallest answer: "Rows matched: 0…" or the like */

/* ---- statements -------------------------------------------------------------------------------- */

void statement_forget(struct request *request)
{
    struct my_request *mine = my_request(request);
    mysql_free_result(mine->rows_before);
    mysql_free_result(mine->rows);
    mine->rows = mine->rows_before = NULL;
    mine->touched = mine->insert_id = 0;
}

bool statement_send(struct request *request, enum text_id id, const struct values *values)
{
    struct my_request *mine = my_request(request);
    text_clear(&mine->text);
    text_fill(&mine->text, sql_texts[id].text, values);
    if (mine->text.failed)
        return false;
    mine->id = id;
    statement_queue(request, sql_texts[id].writes ? LANE_DURABLE : LANE_READING);
    return true;
}

/* ---- a group goes out -------------------------------------------------------------------------- */

size_t group_size(const struct link *link, const struct request *request)
{
    (void)link;
    return request != NULL ? my_request_const(request)->text.len : sizeof("BEGIN;;COMMIT");
}

/* Only one group is in flight at a time. The lane whose first request came earlier goes first. */
bool group_is_open(const struct link *link, enum lane lane)
{
    enum lane other = lane == LANE_DURABLE ? LANE_READING : LANE_DURABLE;
    if (link->group_count > 0)
        return false;
    const struct request *first = queue_ready(link, lane), *rival = queue_ready(link, other);
    return first == NULL || rival == NULL || first->number <= rival->number;
}

static void write_group(struct my_link *mine, const struct group *group)
{
    struct text *out = &mine->out;
    unsigned parts = sql_texts[my_request(group->requests[0])->id].parts;
    mine->transaction = group->lane == LANE_DURABLE && (group->count > 1 || parts > 1);
    mine->got = mine->request_at = mine->part_at = 0;
    mine->expected = mine->transaction ? 2 : 0;
    text_clear(out);
    if (mine->transaction)
        text_string(out, "BEGIN;");
    for (size_t i = 0; i < group->count; i++) {
        const struct my_request *request = my_request_const(group->requests[i]);
        mine->expected += sql_texts[request->id].parts;
        if (i > 0)
            text_string(out, ";");
        if (request->request.locked)
            text_string(out, sql_no_wait);
        text_add(out, request->text.bytes, request->text.len);
    }
    if (mine->transaction)
        text_string(out, ";COMMIT");
}

static bool send_text(struct link *link)
{
    struct my_link *mine = my_link(link);
    if (mine->out.failed) {
        link_lose_why(link, "out of memory");
        return false;
    }
    return group_event(link, conn_query(&mine->conn, mine->out.bytes, mine->out.len));
}

bool group_send(struct link *link, struct group *group)
{
    write_group(my_link(link), group);
    return send_text(link);
}

/* ---- results come back ------------------------------------------------------------------------- */

/* A statement failed, and the rest of the text is not executed. If the commit fails, or the connection, nobody knows
 * what was done. */
static bool failed(struct link *link)
{
    struct my_link *mine = my_link(link);
    struct group *group = flight_group(link);
    bool commit = mine->transaction && mine->request_at == group->count;
    struct fault fault;
    fault_read(mine->conn.mysql, &fault);
    bool gone = (fault.flags & FAULT_RESET) != 0;
    if (group->failed || gone || (commit && (fault.flags & FAULT_UNDONE) == 0)) {
        link_lose(link, &fault.base);
        return false;
    }
    group->failed = true;
    group->failed_at = mine->request_at;
    group->fault = fault;
    if (!mine->transaction)
        return flight_done(link);
    mine->got = 0;
    mine->expected = 1;
    text_clear(&mine->out);
    text_string(&mine->out, "ROLLBACK");
    return send_text(link);
}

static void keep_result(struct my_request *request, struct conn *conn)
{
    mysql_free_result(request->rows_before);
    request->rows_before = request->rows;
    request->rows = conn->rows;
    if (conn->rows != NULL)
        return;
    request->touched += conn->touched;
    if (conn->touched > 0)
        request->insert_id = conn->insert_id;
}

/* Takes the result of one statement. True: the next one is still to come. */
static bool take_result(struct link *link)
{
    struct my_link *mine = my_link(link);
    struct conn *conn = &mine->conn;
    const struct group *group = flight_group(link);
    bool lead = mine->transaction && mine->got == 0;
    mine->got++;
    if (lead || group->failed || mine->request_at == group->count) {
        mysql_free_result(conn->rows);
    } else {
        struct my_request *request = my_request(group->requests[mine->request_at]);
        keep_result(request, conn);
        if (++mine->part_at == sql_texts[request->id].parts) {
            mine->part_at = 0;
            mine->request_at++;
        }
    }
    conn->rows = NULL;
    return conn->more;
}

/* The answer to the last statement may have been read in part, and the answer to COMMIT is shorter. */
static bool wait_for_rest(struct link *link)
{
    const struct my_link *mine = my_link(link);
    bool many = mine->transaction && mine->expected > mine->got + 2;
    link_expect(link, many ? (mine->expected - mine->got - 2) * ANSWER_BYTES : 0);
    return true;
}

bool group_event(struct link *link, enum conn_event event)
{
    struct my_link *mine = my_link(link);
    while (event == CONN_RESULT && take_result(link))
        event = conn_next(&mine->conn);
    if (event == CONN_WAITS)
        return wait_for_rest(link);
    if (event == CONN_FAILED)
        return failed(link);
    if (mine->got != mine->expected) {
        link_lose_why(link, "answers are missing, or there are too many");
        return false;
    }
    if (!flight_done(link))
        return false;
    if (mine->stale)
        link_lose_why(link, "the server is read-only");
    return link->state == LINK_READY;
}
