/* flight.c - statements go out in groups, and what comes back. protocol.md says what a group is, and why. Knows requests,
 * not what they are for. */
#include "driver.h"

#include <string.h>
#include <utlist.h>

#define TRIES_MAX 6 /* after a deadlock or a cancellation */

static int64_t now_ns(const struct link *link)
{
    return link->driver->locks.host->now(link->driver->locks.host);
}

/* ---- the queue --------------------------------------------------------------------------------- */

void flight_queue(struct link *link, struct request *request)
{
    size_t len;
    const char *name = request_name(&request->base, &len);
    if (request->lane == LANE_WRITING && locked_lately(link->driver, name, len))
        request->alone = request->no_wait = true;
    request->link = link;
    request->number = ++link->driver->numbers;
    DL_APPEND2(link->queue, request, previous, next);
}

void flight_unqueue(struct request *request)
{
    DL_DELETE2(request->link->queue, request, previous, next);
    request->next = request->previous = NULL;
    request->link = NULL;
}

void flight_first(struct request *request)
{
    DL_DELETE2(request->link->queue, request, previous, next);
    DL_PREPEND2(request->link->queue, request, previous, next);
}

bool flight_idle(const struct link *link)
{
    return link->group.count == 0 && link->queue == NULL;
}

/* When it can go; 0: at any time. */
static int64_t ready_at(const struct link *link, const struct request *request)
{
    int64_t settled_ns = request->settles ? link->driver->settled_ns : 0;
    return settled_ns > request->not_before_ns ? settled_ns : request->not_before_ns;
}

static bool pauses(const struct link *link, const struct request *request, int64_t now)
{
    return ready_at(link, request) > now && !link->driver->locks.closing;
}

int64_t flight_paused(struct link *link)
{
    int64_t due_ns = MORTISE_NEVER;
    if (link->group.count > 0) /* its answer starts a turn */
        return due_ns;
    for (const struct request *request = link->queue; request != NULL; request = request->next)
        if (ready_at(link, request) < due_ns)
            due_ns = ready_at(link, request);
    return due_ns;
}

/* ---- a group is made --------------------------------------------------------------------------- */

static bool comes_before(const struct request *a, const struct request *b)
{
    size_t a_len, b_len;
    const char *a_name = request_name(&a->base, &a_len), *b_name = request_name(&b->base, &b_len);
    size_t common = a_len < b_len ? a_len : b_len;
    int order = common > 0 ? memcmp(a_name, b_name, common) : 0;
    if (order == 0 && a_len == b_len)
        return a->number < b->number;
    return order != 0 ? order < 0 : a_len < b_len;
}

static void insert(struct group *group, struct request *request)
{
    size_t i = group->count++;
    for (; i > 0 && comes_before(request, group->requests[i - 1]); i--)
        group->requests[i] = group->requests[i - 1];
    group->requests[i] = request;
}

/* The first that can go, and all others of its lane that can go with it. */
static void compose(struct link *link, int64_t now)
{
    struct group *group = &link->group;
    struct request *request, *next;
    size_t bytes = 0;
    memset(group, 0, sizeof(*group));
    DL_FOREACH_SAFE (link->queue, request, next) {
        if (pauses(link, request, now) || (group->count > 0 && request->lane != group->lane))
            continue;
        bytes += request->text.len;
        bool fits = bytes <= GROUP_BYTES && !request->alone && group->count < GROUP_MAX;
        if (group->count > 0 && !fits)
            break;
        group->lane = request->lane;
        DL_DELETE2(link->queue, request, previous, next);
        insert(group, request);
        if (request->alone)
            break;
    }
}

/* ---- a group is sent --------------------------------------------------------------------------- */

static void add_text(struct text *out, const char *text)
{
    text_add(out, text, strlen(text));
}

static void write_group(struct link *link)
{
    struct group *group = &link->group;
    struct text *out = &link->out;
    const struct request *first = group->requests[0];
    group->transaction =
        group->lane == LANE_WRITING && (group->count > 1 || sql_texts[first->id].parts > 1);
    group->expected = group->transaction ? 2 : 0;
    text_clear(out);
    if (group->transaction)
        add_text(out, "BEGIN;");
    for (size_t i = 0; i < group->count; i++) {
        const struct request *request = group->requests[i];
        group->expected += sql_texts[request->id].parts;
        if (i > 0)
            add_text(out, ";");
        if (request->no_wait)
            add_text(out, sql_no_wait);
        text_add(out, request->text.bytes, request->text.len);
    }
    if (group->transaction)
        add_text(out, ";COMMIT");
}

/* Before the first byte leaves: deadlines count from here. */
static void note_sent(struct request *request, int64_t now_ns)
{
    request->base.flying = true;
    request->base.sent_ns = now_ns;
    if (request->base.op == NULL)
        link_look_soon(request->link);
    if (request->handler->sending != NULL)
        request->handler->sending(request);
}

static bool send_group(struct link *link)
{
    struct group *group = &link->group;
    write_group(link);
    group->sent_ns = now_ns(link);
    for (size_t i = 0; i < group->count; i++)
        note_sent(group->requests[i], group->sent_ns);
    if (link->out.failed) {
        link_lose_why(link, "out of memory");
        return false;
    }
    return flight_event(link, conn_query(&link->conn, link->out.bytes, link->out.len));
}

bool flight_has_own(const struct link *link)
{
    for (size_t i = 0; i < link->group.count; i++)
        if (link->group.requests[i]->base.op == NULL)
            return true;
    return false;
}

bool flight_go(struct link *link)
{
    while (link->state == LINK_READY && link->group.count == 0 && link->queue != NULL) {
        int64_t now = now_ns(link);
        if (flight_paused(link) > now && !link->driver->locks.closing)
            break;
        if (!link_is_there(link))
            return false;
        compose(link, now);
        if (!send_group(link))
            return false;
    }
    return link->state == LINK_READY;
}

/* The server notices first, if it is MariaDB. */
int64_t flight_due(const struct link *link)
{
    int64_t patience_ms = link->driver->values[OPTION_COMMAND_TIMEOUT].number;
    return link->group.count == 0
               ? MORTISE_NEVER
               : link->group.sent_ns + (patience_ms + patience_ms / 4) * NS_PER_MS;
}

struct request *flight_take(struct link *link)
{
    struct request *taken = NULL;
    for (size_t i = 0; i < link->group.count; i++) {
        struct request *request = link->group.requests[i];
        statement_forget(request);
        request->base.flying = false;
        DL_APPEND2(taken, request, previous, next);
    }
    link->group.count = 0;
    return taken;
}

/* ---- a group comes back ------------------------------------------------------------------------ */

static void committed(struct link *link)
{
    struct group group = link->group; /* what follows may make another */
    link->group.count = 0;
    link->failures = 0;
    for (size_t i = 0; i < group.count; i++) {
        struct request *request = group.requests[i];
        request->base.flying = false;
        request->handler->answered(request);
    }
}

/* Whether the one that failed goes out again. */
static bool has_another_try(struct request *request, const struct fault *fault)
{
    size_t len;
    const char *name = request_name(&request->base, &len);
    if (fault->waited)
        return locked_again(request, name, len);
    return fault->again && ++request->tries < TRIES_MAX;
}

/* Goes out again as it was: the statements find out whether they still fit. */
static void send_again(struct link *link, struct request *request)
{
    if (request->base.task == SQL_TASK_OP && request->base.op == NULL) { /* canceled */
        request_free(&request->base);
        return;
    }
    DL_PREPEND2(link->queue, request, previous, next);
}

/* Nothing of the group was done. The one that failed goes again, alone, if that may help, or is told. The others go again:
 * each alone, if it was the commit that failed. */
static bool rolled_back(struct link *link)
{
    struct group group = link->group;
    bool commit = group.failed_at >= group.count;
    link->group.count = 0;
    for (size_t i = group.count; i-- > 0;) {
        struct request *request = group.requests[i];
        bool failed = commit ? group.count == 1 : i == group.failed_at;
        request->base.flying = false;
        statement_forget(request);
        if (failed && !has_another_try(request, &group.fault)) {
            request->handler->failed(request, &group.fault);
            continue;
        }
        request->alone = request->alone || failed || commit;
        send_again(link, request);
    }
    if (group.fault.repeatable)
        link->driver->repeatable = true;
    if (!group.fault.reset)
        return true;
    link_lose(link, &group.fault.base);
    return false;
}

/* A statement failed. What follows it in the text is not executed. If the commit fails, or the connection, nobody knows
 * what was done. */
static bool failed(struct link *link)
{
    struct group *group = &link->group;
    bool commit = group->transaction && group->request_at == group->count;
    struct fault fault;
    fault_read(link->conn.mysql, &fault);
    if (group->failed || (fault.reset && !fault.repeatable) || (commit && !fault.undone)) {
        link_lose(link, &fault.base);
        return false;
    }
    group->failed = true;
    group->failed_at = group->request_at;
    group->fault = fault;
    if (!group->transaction)
        return rolled_back(link);
    group->got = 0;
    group->expected = 1;
    text_clear(&link->out);
    add_text(&link->out, "ROLLBACK");
    if (link->out.failed) {
        link_lose_why(link, "out of memory");
        return false;
    }
    return flight_event(link, conn_query(&link->conn, link->out.bytes, link->out.len));
}

/* The result of one statement. True: the next one is to come. */
static bool take_result(struct link *link)
{
    struct conn *conn = &link->conn;
    struct group *group = &link->group;
    bool lead = group->transaction && group->got == 0;
    group->got++;
    if (lead || group->failed || group->request_at == group->count) {
        mysql_free_result(conn->rows);
    } else {
        struct request *request = group->requests[group->request_at];
        mysql_free_result(request->rows);
        request->rows = conn->rows;
        request->touched += conn->rows == NULL ? conn->touched : 0;
        if (conn->rows == NULL && conn->touched > 0)
            request->insert_id = conn->insert_id;
        if (++group->part_at == sql_texts[request->id].parts) {
            group->part_at = 0;
            group->request_at++;
        }
    }
    conn->rows = NULL;
    return conn->more;
}

bool flight_event(struct link *link, enum conn_event event)
{
    while (event == CONN_RESULT && take_result(link))
        event = conn_next(&link->conn);
    if (event == CONN_WAITS)
        return true;
    if (event == CONN_FAILED)
        return failed(link);
    if (link->group.got != link->group.expected) {
        link_lose_why(link, "answers are missing, or there are too many");
        return false;
    }
    if (link->group.failed)
        return rolled_back(link);
    committed(link);
    if (link->state == LINK_READY && link->stale)
        link_lose_why(link, "the server is read-only");
    return link->state == LINK_READY;
}
