/* query.h - the ops that are not about a claim: inspect, break, list, ping and the small records.
 *
 * Every read is linearizable, so it shows every change that was answered to any client before the read was sent. If the
 * connection of a query is lost, the query begins anew, unless it has sent a write: then it is INDETERMINATE. A list that
 * begins anew asks for smaller pages. */
#ifndef MORTISE_ETCD_QUERY_H
#define MORTISE_ETCD_QUERY_H

#include "driver.h"

typedef void query_begin(struct driver *driver, struct query *query);

struct query {
    struct query *next, *prev;
    mortise_op *op; /* NULL: answered; the query is freed when nothing is pending */
    struct patience patience;
    query_begin *begin;
    uint64_t step;                     /* answers to calls of earlier steps are ignored */
    unsigned pending;                  /* calls on their way */
    bool written;                      /* a write was sent */
    bool was_lost;                     /* a connection was lost, with a read on its way */
    struct listing *listing;           /* of inspect.c, */
    void (*drop)(struct query *query); /* frees `listing`, if there is one */
};

/* ---- query.c -------------------------------------------------------------------------------------- */

void query_start(struct driver *driver, mortise_op *op, query_begin *begin);
void query_cancel(struct driver *driver, mortise_op *op);
void queries_up(struct driver *driver);
void queries_down(struct driver *driver);
void queries_away(struct driver *driver);
void queries_free(struct driver *driver);

/* For the files below: */
/* A transaction of the next step of a query. NULL: no memory. */
struct call *query_call(struct driver *driver, struct query *query, reply_handler *answered);
/* The same, with another method. */
struct call *query_call_to(struct driver *driver, struct query *query, enum method method,
                           reply_handler *answered);
/* Sends the call, if possible. Otherwise the query has failed, and may be freed, or it waits for a connection. */
void query_send(struct driver *driver, struct query *query, struct call *call);
/* The same for a write. A query has only one. */
void query_send_write(struct driver *driver, struct query *query, struct call *call);
/* The query of an answer that has come. NULL: the answer is outdated, or it was a failure that has been handled. */
struct query *query_answer(struct driver *driver, struct call *call);
void query_complete(struct driver *driver, struct query *query, mortise_status status);
void query_fail(struct driver *driver, struct query *query, mortise_status status,
                const char *what);

/* ---- inspect.c, dead.c, record.c, ping.c -------------------------------------------------------------------------- */

query_begin inspect_begin, list_begin, dead_begin, ping_begin, record_read, record_write;

#endif
