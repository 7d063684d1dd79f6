/* query.c - what is asked but locks: inspect, break, ping, and the small records. Reads begin with a
 * barrier, because the server of this connection may lag behind what the asker knows from elsewhere. Reads begin anew
 * after a lost connection; a write whose reply is lost is INDETERMINATE. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIES 10 /* the holder has gone between two looks */

/* ---- queries ---------------------------------------------------------------------------------------- */

static void free_if_done(struct driver *driver, struct query *query)
{
    if (query->op != NULL || query->pending > 0)
        return;
    DL_DELETE(driver->old_queries, query);
    list_free(query);
    free(query->first);
    free(query);
}

/* Takes it off the list; the op is to be completed. */
static mortise_op *end(struct driver *driver, struct query *query)
{
    mortise_op *op = query->op;
    DL_DELETE(driver->queries, query);
    DL_APPEND(driver->old_queries, query);
    query->op = NULL;
    return op;
}

void query_complete(struct driver *driver, struct query *query, mortise_status status)
{
    mortise_op *op = end(driver, query);
    op->sure = true;
    driver->host->complete(driver->host, op, status);
    free_if_done(driver, query);
}

static void fail(struct driver *driver, struct query *query, mortise_status status, int rc)
{
    mortise_op *op = end(driver, query);
    if (fault_is_loss(rc))
        fault_unreachable(driver, op, status);
    else
        fault_tell(driver, op, status, rc);
    free_if_done(driver, query);
}

struct reply_to query_reply(struct query *query,
                            void (*answered)(struct driver *driver, struct request *request))
{
    return (struct reply_to){answered, query, query->step, false};
}

bool query_sent(struct driver *driver, struct query *query, bool sent)
{
    query->pending += sent;
    if (!sent)
        fail(driver, query, MORTISE_NOMEM, ZSYSTEMERROR);
    return sent;
}

bool query_answer(struct driver *driver, struct request *request, bool absent)
{
    struct query *query = request->target;
    int rc = request->rc;
    query->pending--;
    if (query->op == NULL) {
        free_if_done(driver, query);
        return false;
    }
    if (request->step != query->step || rc == ZOK || (absent && rc == ZNONODE))
        return request->step == query->step;
    if (!fault_is_loss(rc))
        fail(driver, query, MORTISE_BACKEND, rc);
    else if (query->written)
        fail(driver, query, MORTISE_INDETERMINATE, rc);
    else if (query->listing != NULL)
        fail(driver, query, MORTISE_UNREACHABLE, rc);
    return false; /* else it begins anew when there is a connection */
}

/* ---- who holds ---------------------------------------------------------------------------------------- */

void query_fill(struct driver *driver, int64_t base, const char *node,
                const struct request *request, mortise_info *info)
{
    char owner[33];
    int64_t noted = note_read(request->text, info);
    info->held = true;
    info->leases = 1;
    info->token = (uint64_t)request->stat.czxid + (uint64_t)(noted < 0 ? base : noted);
    info->held_ms = session_since_ms(driver, request->stat.ctime);
    info->remaining_ms = -1;
    if (node_owner(node, owner))
        snprintf(info->owner, sizeof(info->owner), "%s", owner);
}

static void broken(struct driver *driver, struct request *request)
{
    struct query *query = request->target;
    int rc = request->rc;
    if (query_answer(driver, request, true))
        query_complete(driver, query, rc == ZOK ? MORTISE_OK : MORTISE_LOST);
}

static void node_path(struct driver *driver, const struct query *query, char *path, size_t size)
{
    char folder[FOLDER_MAX];
    folder_of_name(query->op->name, query->op->name_len, driver->root[0] == '\0', folder);
    snprintf(path, size, "%s/%s/%s", driver->root, folder, query->first);
}

/* The very node that was looked at is deleted; another grant's has another name. */
static void break_it(struct driver *driver, struct query *query, uint64_t token)
{
    char path[PATH_SIZE + NODE_MAX * 8];
    if (token != query->op->token) {
        query_complete(driver, query, MORTISE_NOTOWNER);
        return;
    }
    node_path(driver, query, path, sizeof(path));
    query->written = true;
    query_sent(driver, query, send_delete(driver, path, query_reply(query, broken)));
}

static void holder_told(struct driver *driver, struct request *request)
{
    struct query *query = request->target;
    if (!query_answer(driver, request, true))
        return;
    if (request->rc == ZNONODE && query->tries++ < TRIES) {
        query->begin(driver, query);
        return;
    }
    if (query->op->kind == MORTISE_OP_RELEASE) {
        mortise_info info = {.size = sizeof(info)};
        query_fill(driver, query->base, query->first, request, &info);
        break_it(driver, query, info.token);
        return;
    }
    query->op->info->waiters = query->waiters;
    if (request->rc == ZOK)
        query_fill(driver, query->base, query->first, request, query->op->info);
    query_complete(driver, query, MORTISE_OK);
}

static void base_told(struct driver *driver, struct request *request)
{
    struct query *query = request->target;
    if (query_answer(driver, request, true))
        query->base = request->rc == ZOK ? base_read(request) : 0;
}

static void nobody_holds(struct driver *driver, struct query *query)
{
    mortise_info *info = query->op->info;
    if (query->op->kind == MORTISE_OP_RELEASE) {
        query_complete(driver, query, MORTISE_LOST);
        return;
    }
    info->held = false;
    info->held_ms = info->remaining_ms = 0;
    info->waiters = 0;
    query_complete(driver, query, MORTISE_OK);
}

static void queue_told(struct driver *driver, struct request *request)
{
    struct query *query = request->target;
    char path[PATH_SIZE + NODE_MAX * 8];
    size_t contenders = 0;
    if (!query_answer(driver, request, true))
        return;
    const char *first = request->rc == ZOK ? queue_first(request->children, &contenders) : NULL;
    free(query->first);
    query->first = NULL;
    if (first == NULL) {
        nobody_holds(driver, query);
        return;
    }
    query->waiters = contenders > INT32_MAX ? INT32_MAX : (int32_t)contenders - 1;
    query->first = strdup(first);
    path_of(driver, "%tokens", NULL, path);
    if (!query_sent(driver, query,
                    query->first != NULL &&
                        send_get(driver, path, false, query_reply(query, base_told))))
        return;
    node_path(driver, query, path, sizeof(path));
    query_sent(driver, query, send_get(driver, path, false, query_reply(query, holder_told)));
}

static void holder_begin(struct driver *driver, struct query *query)
{
    char folder[FOLDER_MAX], path[PATH_SIZE];
    query->step++;
    folder_of_name(query->op->name, query->op->name_len, driver->root[0] == '\0', folder);
    path_of(driver, folder, NULL, path);
    query_sent(driver, query,
               send_barrier(driver) && send_list(driver, path, query_reply(query, queue_told)));
}

/* ---- ping ----------------------------------------------------------------------------------------------- */

static void pinged(struct driver *driver, struct request *request)
{
    struct query *query = request->target;
    char server[256];
    if (!query_answer(driver, request, true))
        return;
    snprintf(query->op->buffer, query->op->buffer_size,
             "ZooKeeper at %.100s, session 0x%llx, timeout %lld ms",
             session_server(driver, server, sizeof(server)),
             (unsigned long long)driver->session->id,
             (long long)(driver->session->proof.timeout_ns / NS_PER_MS));
    query_complete(driver, query, MORTISE_OK);
}

static void ping_begin(struct driver *driver, struct query *query)
{
    query->step++;
    query_sent(driver, query, send_sync(driver, query_reply(query, pinged)));
}

/* ---- records ---------------------------------------------------------------------------------------------- */

static void record_path(const struct driver *driver, const mortise_op *op, char path[PATH_SIZE])
{
    char folder[FOLDER_MAX];
    folder_of_name(op->name, op->name_len, false, folder);
    snprintf(path, PATH_SIZE, "%s/%%records/%s", driver->root, folder);
}

static void record_told(struct driver *driver, struct request *request)
{
    struct query *query = request->target;
    if (!query_answer(driver, request, true))
        return;
    mortise_op *op = query->op;
    op->record_size = 0;
    op->record_version = 0;
    if (request->rc == ZOK) {
        if (request->text_size > op->buffer_size) {
            fail(driver, query, MORTISE_BACKEND, ZDATAINCONSISTENCY);
            return;
        }
        memcpy(op->buffer, request->text, request->text_size);
        op->record_size = request->text_size;
        op->record_version = (uint64_t)(uint32_t)request->stat.version + 1;
    }
    query_complete(driver, query, MORTISE_OK);
}

static void read_begin(struct driver *driver, struct query *query)
{
    char path[PATH_SIZE];
    query->step++;
    record_path(driver, query->op, path);
    query_sent(driver, query,
               send_barrier(driver) &&
                   send_get(driver, path, false, query_reply(query, record_told)));
}

static void record_written(struct driver *driver, struct request *request)
{
    struct query *query = request->target;
    int rc = request->rc;
    bool busy = rc == ZBADVERSION || rc == ZNODEEXISTS;
    if (busy)
        request->rc = ZOK; /* an answer as good as any */
    if (!query_answer(driver, request, true))
        return;
    mortise_op *op = query->op;
    if (rc == ZNONODE && op->record_version == 0 && query->tries++ < 3) {
        session_make_root(driver, "%records");
        query->begin(driver, query);
        return;
    }
    if (rc == ZOK)
        op->record_version = (uint64_t)(uint32_t)request->stat.version + 1;
    query_complete(driver, query, rc == ZOK ? MORTISE_OK : MORTISE_BUSY);
}

static void write_begin(struct driver *driver, struct query *query)
{
    const mortise_op *op = query->op;
    struct reply_to to;
    char path[PATH_SIZE];
    query->step++;
    query->written = true;
    to = query_reply(query, record_written);
    record_path(driver, op, path);
    if (op->record_version > INT32_MAX)
        query_complete(driver, query, MORTISE_BUSY);
    else if (op->record_version == 0)
        query_sent(driver, query,
                   send_create(driver, path, op->record, op->record_size, ZOO_PERSISTENT, to));
    else
        query_sent(
            driver, query,
            send_set(driver, path, op->record, op->record_size, (int)(op->record_version - 1), to));
}

/* ---- ops ---------------------------------------------------------------------------------------------------- */

void query_start(struct driver *driver, mortise_op *op)
{
    void (*begin)(struct driver * driver, struct query * query) =
        op->kind == MORTISE_OP_PING    ? ping_begin
        : op->kind == MORTISE_OP_READ  ? read_begin
        : op->kind == MORTISE_OP_WRITE ? write_begin
        : op->kind == MORTISE_OP_LIST  ? list_begin
                                       : holder_begin;
    struct query *query = calloc(1, sizeof(*query));
    if (query == NULL) {
        driver->host->complete(driver->host, op, MORTISE_NOMEM);
        return;
    }
    query->op = op;
    query->begin = begin;
    query->asked_ns = session_patience(driver);
    op->driver_data[0] = query;
    DL_APPEND(driver->queries, query);
    if (is_ready(driver))
        begin(driver, query);
}

void query_cancel(struct driver *driver, mortise_op *op)
{
    struct query *query = op->driver_data[0];
    end(driver, query);
    driver->host->complete(driver->host, op,
                           query->written ? MORTISE_INDETERMINATE : MORTISE_CANCELED);
    free_if_done(driver, query);
}

bool queries_open(const struct driver *driver)
{
    for (const struct query *query = driver->queries; query != NULL; query = query->next)
        if (query->pending > 0)
            return true;
    return false;
}

/* Their answers were thrown away. */
void queries_free(struct driver *driver)
{
    while (driver->old_queries != NULL) {
        driver->old_queries->pending = 0;
        free_if_done(driver, driver->old_queries);
    }
}

void queries_connected(struct driver *driver)
{
    struct query *query, *next;
    DL_FOREACH_SAFE (driver->queries, query, next)
        if (!query->written && query->listing == NULL)
            query->begin(driver, query);
}

void queries_away(struct driver *driver)
{
    struct query *query, *next;
    DL_FOREACH_SAFE (driver->queries, query, next)
        if (session_is_away(driver, query->asked_ns))
            fail(driver, query, query->written ? MORTISE_INDETERMINATE : MORTISE_UNREACHABLE,
                 ZCONNECTIONLOSS);
}
