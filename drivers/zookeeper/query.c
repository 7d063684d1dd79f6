/* query.c - the life of a query of any kind. See query.h. */
#include "query.h"

#include <stdlib.h>

static void free_if_done(struct driver *driver, struct query *query)
{
    if (query->op != NULL || query->pending > 0)
        return;
    DL_DELETE(driver->old_queries, query);
    free(query);
}

/* Takes the query off the list. The caller completes the op. */
static mortise_op *end(struct driver *driver, struct query *query)
{
    mortise_op *op = query->op;
    DL_DELETE(driver->queries, query);
    DL_APPEND(driver->old_queries, query);
    query->op = NULL;
    if (query->drop != NULL)
        query->drop(query);
    return op;
}

void query_complete(struct driver *driver, struct query *query, mortise_status status)
{
    mortise_op *op = end(driver, query);
    op->sure = true;
    driver->host->complete(driver->host, op, status);
    free_if_done(driver, query);
}

void query_fail(struct driver *driver, struct query *query, mortise_status status, int rc)
{
    mortise_op *op = end(driver, query);
    if (fault_is_loss(rc))
        fault_unreachable(driver, op, status);
    else
        fault_tell(driver, op, status, rc);
    free_if_done(driver, query);
}

struct reply_to query_reply(struct query *query, reply_handler *answered)
{
    return (struct reply_to){.answered = answered, .target = query, .step = query->step};
}

bool query_sent(struct driver *driver, struct query *query, bool sent)
{
    query->pending += sent;
    if (!sent)
        query_fail(driver, query, MORTISE_NOMEM, ZSYSTEMERROR);
    return sent;
}

struct query *query_answer(struct driver *driver, struct request *request, bool absent)
{
    struct query *query = request->to.target;
    int rc = request->rc;
    query->pending--;
    if (query->op == NULL) {
        free_if_done(driver, query);
        return NULL;
    }
    if (request->to.step != query->step)
        return NULL;
    if (rc == ZOK || (absent && rc == ZNONODE))
        return query;
    if (!fault_is_loss(rc))
        query_fail(driver, query, MORTISE_BACKEND, rc);
    else if (query->written)
        query_fail(driver, query, MORTISE_INDETERMINATE, rc);
    return NULL; /* a read begins anew with the next connection */
}

void query_start(struct driver *driver, mortise_op *op, query_begin *begin)
{
    struct query *query = calloc(1, sizeof(*query));
    if (query == NULL) {
        driver->host->complete(driver->host, op, MORTISE_NOMEM);
        return;
    }
    session_ask(driver);
    query->op = op;
    query->begin = begin;
    query->asked_ns = session_patience(driver);
    op_set_data(op, query);
    DL_APPEND(driver->queries, query);
    if (is_ready(driver))
        begin(driver, query);
}

void query_cancel(struct driver *driver, mortise_op *op)
{
    struct query *query = op_query(op);
    end(driver, query);
    driver->host->complete(driver->host, op,
                           query->written ? MORTISE_INDETERMINATE : MORTISE_CANCELED);
    free_if_done(driver, query);
}

bool queries_are_open(const struct driver *driver)
{
    for (const struct query *query = driver->queries; query != NULL; query = query->next)
        if (query->pending > 0)
            return true;
    return false;
}

/* When the instance closes: the answers to queries were dropped. */
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
        if (!query->written)
            query->begin(driver, query);
}

void queries_away(struct driver *driver)
{
    struct query *query, *next;
    DL_FOREACH_SAFE (driver->queries, query, next)
        if (session_is_away(driver, query->asked_ns))
            query_fail(driver, query, query->written ? MORTISE_INDETERMINATE : MORTISE_UNREACHABLE,
                       ZCONNECTIONLOSS);
}
