/* flight.c - statements go out in groups, each a transaction of its own, and what comes back. protocol.md says what a group
 * is, and why. Knows requests, not what they are for. */
#include "driver.h"

#include <stdio.h>
#include <string.h>
#include <utlist.h>

#define TRIES_MAX 6 /* after a serialization failure or a deadlock */

/* ---- the queues -------------------------------------------------------------------------------- */

void flight_queue(struct link *link, struct request *request)
{
    size_t len;
    const char *name = request_name(&request->base, &len);
    if (request->lane != LANE_READING && locked_lately(link->driver, name, len))
        request->alone = true;
    request->link = link;
    request->number = ++link->driver->numbers;
    DL_APPEND2(link->queue[request->lane], request, previous, next);
}

void flight_unqueue(struct request *request)
{
    DL_DELETE2(request->link->queue[request->lane], request, previous, next);
    request->next = request->previous = NULL;
    request->link = NULL;
}

static void queue_first(struct link *link, struct request *request)
{
    DL_PREPEND2(link->queue[request->lane], request, previous, next);
}

void flight_first(struct request *request)
{
    struct link *link = request->link;
    DL_DELETE2(link->queue[request->lane], request, previous, next);
    queue_first(link, request);
}

bool flight_none(const struct link *link)
{
    return link->group_count == 0;
}

bool flight_idle(const struct link *link)
{
    return flight_none(link) && link->queue[LANE_LAZY] == NULL &&
           link->queue[LANE_DURABLE] == NULL && link->queue[LANE_READING] == NULL;
}

/* ---- a group is made --------------------------------------------------------------------------- */

static int64_t now_ns(const struct link *link)
{
    return link->driver->locks.host->now(link->driver->locks.host);
}

static struct group *group_at(struct link *link, size_t i)
{
    return &link->groups[(link->first_group + i) % GROUPS_MAX];
}

/* On the wire, at most: Bind, Describe, Execute; before them Parse, behind a pooler. */
static size_t wire_size(const struct link *link, const struct request *request)
{
    const struct sql_text *text = &sql_texts[request->text];
    size_t each = 10 * (size_t)request->args.count;
    size_t size = 64 + strlen(text->name) + request->args.bytes + each;
    return link->pooled ? size + strlen(text->text) : size;
}

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

static bool has_ready(const struct link *link, enum lane lane)
{
    const struct request *request = link->queue[lane];
    int64_t now = request != NULL && ready_at(link, request) > 0 ? now_ns(link) : 0;
    while (request != NULL && pauses(link, request, now))
        request = request->next;
    return request != NULL;
}

static struct group *compose(struct link *link, enum lane lane)
{
    int64_t now = now_ns(link);
    struct group *group = group_at(link, link->group_count++);
    struct request *request, *next;
    size_t bytes = link->pooled ? 800 : 16;
    memset(group, 0, sizeof(*group));
    group->lane = lane;
    DL_FOREACH_SAFE (link->queue[lane], request, next) {
        if (pauses(link, request, now))
            continue;
        bytes += wire_size(link, request);
        bool fits = bytes <= GROUP_BYTES && !request->alone && group->count < GROUP_MAX;
        if (group->count > 0 && !fits)
            break;
        bool alone = request->alone;
        DL_DELETE2(link->queue[lane], request, previous, next);
        insert(group, request);
        if (alone)
            break;
    }
    return group;
}

/* ---- a group is sent --------------------------------------------------------------------------- */

int64_t flight_patience_ns(const struct driver *driver)
{
    return driver->values[OPTION_COMMAND_TIMEOUT].number * NS_PER_MS / 4;
}

static bool send_settings(struct link *link)
{
    const struct driver *driver = link->driver;
    char lock_ms[24], statement_ms[24];
    const char *const values[] = {lock_ms, statement_ms, driver->schema};
    snprintf(lock_ms, sizeof(lock_ms), "%lld", (long long)locked_slice_ms(driver));
    snprintf(statement_ms, sizeof(statement_ms), "%lld",
             (long long)driver->values[OPTION_COMMAND_TIMEOUT].number);
    return PQsendQueryParams(link->conn, sql_settings, 3, NULL, values, NULL, NULL, 1) == 1;
}

/* The server read its clock before we received the reading. So when our clock is at sent_ns + patience, the server's has
 * passed the instant that is sent here. */
static bool send_in_time(struct link *link, int64_t sent_ns)
{
    static const int formats[] = {1};
    int64_t patience_ns = flight_patience_ns(link->driver);
    const Oid oid = sql_oid('t');
    struct args args = {.count = 0};
    args_time(&args, link->clock_us + (sent_ns - link->clock_ns + patience_ns) / 1000);
    return PQsendQueryParams(link->conn, sql_in_time, 1, &oid, args.values, args.lengths, formats,
                             1) == 1;
}

static bool send_unprepared(struct link *link, const struct request *request)
{
    static const int formats[ARGS_MAX] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const struct sql_text *text = &sql_texts[request->text];
    const struct args *args = &request->args;
    Oid oids[ARGS_MAX];
    for (int i = 0; i < args->count; i++)
        oids[i] = sql_oid(text->types[i]);
    return PQsendQueryParams(link->conn, text->text, args->count, oids, args->values, args->lengths,
                             formats, 1) == 1;
}

static bool send_statement(struct link *link, const struct request *request)
{
    static const int formats[ARGS_MAX] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const struct args *args = &request->args;
    if (link->pooled)
        return send_unprepared(link, request);
    return PQsendQueryPrepared(link->conn, sql_texts[request->text].name, args->count, args->values,
                               args->lengths, formats, 1) == 1;
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

static bool send_group(struct link *link, struct group *group)
{
    group->sent_ns = now_ns(link);
    for (size_t i = 0; i < group->count; i++)
        note_sent(group->requests[i], group->sent_ns);
    bool sent = true;
    if (link->pooled) {
        group->lead = 1;
        group->tail = group->lane != LANE_READING;
        sent = send_settings(link);
    }
    for (size_t i = 0; i < group->count && sent; i++)
        sent = send_statement(link, group->requests[i]);
    if (sent && group->tail > 0)
        sent = send_in_time(link, group->sent_ns);
    return sent && PQpipelineSync(link->conn) == 1 && flight_flush(link);
}

bool flight_has_own(struct link *link)
{
    for (size_t i = 0; i < link->group_count; i++) {
        const struct group *group = group_at(link, i);
        for (size_t k = 0; k < group->count; k++)
            if (group->requests[k]->base.op == NULL)
                return true;
    }
    return false;
}

bool flight_flush(struct link *link)
{
    int left = PQflush(link->conn);
    link->unflushed = left > 0;
    link->events = (short)(POLLIN | (left > 0 ? POLLOUT : 0));
    return left >= 0;
}

static size_t in_flight(struct link *link, enum lane lane)
{
    size_t count = 0;
    for (size_t i = 0; i < link->group_count; i++)
        count += group_at(link, i)->lane == lane;
    return count;
}

static bool is_open(struct link *link, enum lane lane)
{
    if (link->unflushed)
        return false;
    if (lane == LANE_LAZY)
        return in_flight(link, lane) < LAZY_GROUPS_MAX;
    return !has_ready(link, LANE_LAZY) && in_flight(link, lane) == 0;
}

static bool can_send(struct link *link, enum lane lane)
{
    return is_open(link, lane) && has_ready(link, lane);
}

int64_t flight_paused(struct link *link)
{
    int64_t due_ns = MORTISE_NEVER;
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        const struct request *request = link->queue[lane];
        if (request == NULL ||
            !is_open(link, (enum lane)lane)) /* an answer opens it, which starts a turn */
            continue;
        for (; request != NULL; request = request->next)
            if (ready_at(link, request) < due_ns)
                due_ns = ready_at(link, request);
    }
    return due_ns;
}

bool flight_go(struct link *link)
{
    bool idle = link->state == LINK_READY && link->group_count == 0 && !flight_idle(link);
    if (idle && !link_is_there(link))
        return false;
    for (int lane = 0; lane < LANE_COUNT && link->state == LINK_READY; lane++)
        while (can_send(link, (enum lane)lane))
            if (!send_group(link, compose(link, (enum lane)lane))) {
                link_lose(link, PQerrorMessage(link->conn));
                return false;
            }
    return link->state == LINK_READY;
}

int64_t flight_due(const struct link *link)
{
    if (link->group_count == 0)
        return MORTISE_NEVER;
    int64_t patience_ms = link->driver->values[OPTION_COMMAND_TIMEOUT].number;
    int64_t sent_ns = link->groups[link->first_group].sent_ns;
    int64_t from_ns = sent_ns > link->heard_ns ? sent_ns : link->heard_ns;
    return from_ns + (patience_ms + patience_ms / 4) * NS_PER_MS; /* the server notices first */
}

struct request *flight_take(struct link *link)
{
    struct request *taken = NULL;
    for (; link->group_count > 0; link->group_count--) {
        struct group *group = group_at(link, 0);
        for (size_t i = 0; i < group->count; i++) {
            PQclear(group->requests[i]->result);
            group->requests[i]->result = NULL;
            group->requests[i]->base.flying = false;
            DL_APPEND2(taken, group->requests[i], previous, next);
        }
        link->first_group = (link->first_group + 1) % GROUPS_MAX;
    }
    return taken;
}

/* ---- a group comes back ------------------------------------------------------------------------ */

static void committed(const struct group *group)
{
    for (size_t i = 0; i < group->count; i++) {
        struct request *request = group->requests[i];
        request->base.flying = false;
        request->handler->answered(request);
    }
}

/* Why a group was rolled back, and what becomes of its requests:
 *
 * | cause        | the one that failed                    | the others           |
 * |--------------|----------------------------------------|----------------------|
 * | STATEMENT    | again, alone, if that may help; or told | again, as they were |
 * | COMMIT       | the same, if there is only one          | again, each alone   |
 * | NOTIFICATION | all go again without a notification; one that is nothing else is told     |
 *
 * NOTIFICATION: their queue is full, or another session's commit keeps it locked (rows are waited for by statements). */
enum cause { CAUSE_STATEMENT, CAUSE_COMMIT, CAUSE_NOTIFICATION };

static enum cause cause_of(const struct group *group)
{
    if (group->failed_at < group->count)
        return CAUSE_STATEMENT;
    return group->fault.loud || group->fault.waited ? CAUSE_NOTIFICATION : CAUSE_COMMIT;
}

/* Whether the one that failed goes out again. */
static bool has_another_try(struct request *request, const struct fault *fault, enum cause cause,
                            bool silence)
{
    size_t len;
    const char *name = request_name(&request->base, &len);
    if (fault->waited && cause != CAUSE_NOTIFICATION)
        return locked_again(request, name, len);
    return (fault->again || (silence && !request->quiet)) && ++request->tries < TRIES_MAX;
}

/* Goes out again as it was: the statements find out whether they still fit. */
static void send_again(struct link *link, struct request *request, bool silence)
{
    if (request->base.task == SQL_TASK_OP && request->base.op == NULL) { /* canceled */
        request_free(&request->base);
        return;
    }
    if (silence && request->handler->silence != NULL)
        request->handler->silence(request);
    queue_first(link, request);
}

static void rolled_back(struct link *link, struct group *group)
{
    enum cause cause = cause_of(group);
    const struct fault *fault = &group->fault;
    for (size_t i = group->count; i-- > 0;) {
        struct request *request = group->requests[i];
        bool failed = cause == CAUSE_STATEMENT ? i == group->failed_at : group->count == 1;
        bool silence = cause == CAUSE_NOTIFICATION || (failed && fault->loud);
        request->base.flying = false;
        PQclear(request->result);
        request->result = NULL;
        if ((silence && request->only_notifies) ||
            (failed && !has_another_try(request, fault, cause, silence))) {
            request->handler->failed(request, fault);
            continue;
        }
        bool split = cause == CAUSE_COMMIT || (silence && request->quiet);
        request->alone = request->alone || failed || split;
        send_again(link, request, silence);
    }
}

static bool group_done(struct link *link)
{
    struct group group = *group_at(link, 0); /* out of the ring: what follows may queue more */
    link->first_group = (link->first_group + 1) % GROUPS_MAX;
    link->group_count--;
    link->failures = 0;
    if (link->group_count > 0)
        link->heard_ns = now_ns(link);
    if (!group.failed) {
        committed(&group);
        return true;
    }
    rolled_back(link, &group);
    if (!group.fault.reset)
        return true;
    link_lose(link, group.fault.base.text);
    return false;
}

/* A fresh reading of the server's clock: over days the two clocks drift apart. */
static void take_clock(struct link *link, const PGresult *result)
{
    int64_t clock_us = result_time(result, 0, 0);
    if (clock_us == 0)
        return;
    link->clock_us = clock_us;
    link->clock_ns = now_ns(link);
}

static void keep_result(struct link *link, struct group *group, PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);
    bool fine = status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK;
    group->got = true;
    if (!fine && status != PGRES_PIPELINE_ABORTED && !group->failed) {
        group->failed = true;
        size_t at = group->at - group->lead;
        group->failed_at = group->at < group->lead || at > group->count ? group->count : at;
        fault_read(result, &group->fault);
    }
    if (fine && group->tail > 0 && group->at == group->lead + group->count)
        take_clock(link, result);
    if (fine && group->at >= group->lead && group->at - group->lead < group->count &&
        group->requests[group->at - group->lead]->result == NULL)
        group->requests[group->at - group->lead]->result = result;
    else
        PQclear(result);
}

bool flight_result(struct link *link, PGresult *result)
{
    if (link->group_count == 0) {
        PQclear(result); /* the end of the setup, or the server's last message */
        return true;
    }
    struct group *group = group_at(link, 0);
    if (result == NULL) {
        group->at += group->got;
        group->got = false;
        return true;
    }
    if (PQresultStatus(result) != PGRES_PIPELINE_SYNC) {
        keep_result(link, group, result);
        return true;
    }
    PQclear(result);
    if (!group->failed && group->at != group->lead + group->count + group->tail) {
        link_lose(link, "answers are missing");
        return false;
    }
    if (link->unconfirmed) {
        link_lose(link, "the server no longer waits for its synchronous standby");
        return false;
    }
    return group_done(link);
}
