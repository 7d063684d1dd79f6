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

/* what: the stored text that makes no sense. NULL: the status says enough (NOMEM), or no server answers. */
void query_fail(struct driver *driver, struct query *query, mortise_status status, const char *what)
{
    mortise_op *op = end(driver, query);
    if (what != NULL)
        fault_stored(driver, op, what);
    else if (status == MORTISE_NOMEM)
        fault_memory(driver, op, status);
    else
        fault_unreachable(driver, op, status);
    free_if_done(driver, query);
}

struct call *query_call_to(struct driver *driver, struct query *query, enum method method,
                           reply_handler *answered)
{
    struct reply_to to = {.answered = answered, .target = query, .step = ++query->step};
    return link_begin(&driver->link, method, to);
}

struct call *query_call(struct driver *driver, struct query *query, reply_handler *answered)
{
    return query_call_to(driver, query, METHOD_TXN, answered);
}

static bool send_call(struct driver *driver, struct query *query, struct call *call)
{
    bool sent = call != NULL && link_send(&driver->link, call);
    query->pending += sent;
    if (!sent && is_connected(driver))
        query_fail(driver, query, query->written ? MORTISE_INDETERMINATE : MORTISE_NOMEM, NULL);
    return sent;
}

void query_send(struct driver *driver, struct query *query, struct call *call)
{
    send_call(driver, query, call);
}

void query_send_write(struct driver *driver, struct query *query, struct call *call)
{
    if (send_call(driver, query, call))
        query->written = true;
}

struct query *query_answer(struct driver *driver, struct call *call)
{
    struct query *query = call->to.target;
    query->pending--;
    if (query->op == NULL) {
        free_if_done(driver, query);
        return NULL;
    }
    if (call->to.step != query->step)
        return NULL;
    if (call->end == CALL_DONE)
        return query;
    if (call->end == CALL_REFUSED) {
        bool maybe = query->written && fault_is_doubtful(call);
        fault_refused(driver, end(driver, query), maybe ? MORTISE_INDETERMINATE : MORTISE_BACKEND,
                      call);
        free_if_done(driver, query);
    } else if (query->written)
        query_fail(driver, query, MORTISE_INDETERMINATE, NULL);
    else
        query->was_lost = true;
    return NULL; /* a read begins anew with the next connection */
}

void query_start(struct driver *driver, mortise_op *op, query_begin *begin)
{
    struct query *query = calloc(1, sizeof(*query));
    if (query == NULL) {
        driver->host->complete(driver->host, op, MORTISE_NOMEM);
        return;
    }
    query->op = op;
    query->begin = begin;
    patience_begin(driver, &query->patience);
    op_set_data(op, query);
    DL_APPEND(driver->queries, query);
    if (is_connected(driver))
        begin(driver, query);
}

/* With many endpoints, the caller's time may be over before each was tried. The reason why there was no answer is known
 * nevertheless. */
void query_cancel(struct driver *driver, mortise_op *op)
{
    struct query *query = op_query(op);
    mortise_status status = query->written ? MORTISE_INDETERMINATE : MORTISE_CANCELED;
    end(driver, query);
    if (query->patience.away_ns != 0 && !is_connected(driver))
        fault_unreachable(driver, op, status);
    else
        driver->host->complete(driver->host, op, status);
    free_if_done(driver, query);
}

/* When the instance closes: the answers to queries were dropped. */
void queries_free(struct driver *driver)
{
    while (driver->old_queries != NULL) {
        driver->old_queries->pending = 0;
        free_if_done(driver, driver->old_queries);
    }
}

void queries_up(struct driver *driver)
{
    struct query *query, *next;
    DL_FOREACH_SAFE (driver->queries, query, next)
        if (!query->written)
            query->begin(driver, query);
}

void queries_down(struct driver *driver)
{
    struct query *query;
    DL_FOREACH (driver->queries, query)
        patience_lost(driver, &query->patience);
}

void queries_away(struct driver *driver)
{
    struct query *query, *next;
    DL_FOREACH_SAFE (driver->queries, query, next)
        if (patience_is_over(driver, &query->patience))
            query_fail(driver, query, query->written ? MORTISE_INDETERMINATE : MORTISE_UNREACHABLE,
                       NULL);
}
